//! The functions of this crate, a file a family.

mod aggregates;
mod array_parts;
mod arrays;
mod bytes;
mod casts;
mod comparison_loops;
mod comparisons;
mod date_templates;
mod decimals;
mod encoding_names;
mod encodings;
mod fixed;
mod floats;
mod general;
mod grammar;
mod hashes;
mod integers;
mod io;
mod json;
mod moments;
mod names;
mod number_templates;
mod numbers;
mod objects;
pub(crate) mod patterns;
mod periods;
mod powers;
mod regexps;
mod roots;
mod row_versions;
mod safety;
mod series;
mod session;
mod sizes;
mod texts;
mod windows;

use crate::registry::RegistryBuilder;
pub use encoding_names::{encoding_name, encoding_number};
pub use objects::is_object;
pub use row_versions::ROW_VERSION;

impl RegistryBuilder {
    /// What this crate has.
    pub fn built_in() -> RegistryBuilder {
        let mut builder = RegistryBuilder::default();
        register(&mut builder);
        builder.end_own();
        builder
    }
}

/// Adds all of them.
fn register(builder: &mut RegistryBuilder) {
    comparisons::register(builder);
    integers::register(builder);
    floats::register(builder);
    numbers::register(builder);
    casts::register(builder);
    decimals::register(builder);
    io::register(builder);
    json::register(builder);
    objects::register(builder);
    texts::register(builder);
    patterns::register(builder);
    moments::register(builder);
    periods::register(builder);
    general::register(builder);
    grammar::register(builder);
    date_templates::register(builder);
    number_templates::register(builder);
    encoding_names::register(builder);
    encodings::register(builder);
    regexps::register(builder);
    roots::register(builder);
    row_versions::register(builder);
    powers::register(builder);
    arrays::register(builder);
    series::register(builder);
    bytes::register(builder);
    hashes::register(builder);
    names::register(builder);
    session::register(builder);
    sizes::register(builder);
    aggregates::register(builder);
    windows::register(builder);
    safety::register(builder);
}
