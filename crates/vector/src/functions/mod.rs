//! The functions of this crate, a file a family.

mod aggregates;
mod arrays;
mod bytes;
mod casts;
mod comparisons;
mod encodings;
mod floats;
mod formats;
mod general;
mod grammar;
mod hashes;
mod integers;
mod io;
mod moments;
mod names;
mod numbers;
mod randoms;
mod regexps;
mod roots;
mod series;
mod texts;
mod windows;

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
    grammar::register(builder);
    formats::register(builder);
    encodings::register(builder);
    regexps::register(builder);
    roots::register(builder);
    arrays::register(builder);
    series::register(builder);
    bytes::register(builder);
    hashes::register(builder);
    names::register(builder);
    randoms::register(builder);
    aggregates::register(builder);
    windows::register(builder);
}
