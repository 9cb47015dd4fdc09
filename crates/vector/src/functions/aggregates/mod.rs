//! Aggregates.

mod collecting;
mod extremes;
mod hypothetical;
mod numeric_sums;
mod ordered;
mod statistics;
mod sums;

use crate::registry::RegistryBuilder;

/// Adds all of them.
pub fn register(builder: &mut RegistryBuilder) {
    sums::register(builder);
    extremes::register(builder);
    collecting::register(builder);
    statistics::register(builder);
    hypothetical::register(builder);
    ordered::register(builder);
}
