//! The functions of this crate, a file a family.

mod integers;

use crate::registry::RegistryBuilder;

/// Adds all of them.
pub fn register(builder: &mut RegistryBuilder) {
    integers::register(builder);
}
