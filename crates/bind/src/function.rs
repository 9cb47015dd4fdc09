//! Handles of functions: the registry's entries as plans hold them.

use firn_plan::Function;
use firn_plan::registry::planned;
use firn_vector::Registry;
use firn_vector::registry;
use std::collections::HashMap;

/// Handles that have been made, by oid.
#[derive(Default)]
pub struct Handles(HashMap<u32, Function>);

impl Handles {
    /// The handle of a function.
    pub fn of(&mut self, registry: &Registry, function: &registry::Function) -> Function {
        self.0.entry(function.id.0).or_insert_with(|| planned(registry, function)).clone()
    }
}
