//! The functions of this crate, a file a family.

mod casts;
mod comparisons;
mod floats;
mod general;
mod integers;
mod io;
mod moments;
mod numbers;
mod texts;

use crate::registry::RegistryBuilder;

/// Adds all of them.
pub fn register(builder: &mut RegistryBuilder) {
    comparisons::register(builder);
    integers::register(builder);
    floats::register(builder);
    numbers::register(builder);
    casts::register(builder);
    io::register(builder);
    texts::register(builder);
    moments::register(builder);
    general::register(builder);
}
