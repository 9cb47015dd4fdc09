//! The built-in registry, and the one function that the reference interpreter has beside it.

use firn_vector::registry::RegistryBuilder;
use firn_vector::{FunctionId, Registry};
use std::sync::LazyLock;

/// The registry.
pub static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let built_in = Registry::built_in();
    let count = built_in.function(FunctionId(2147)).expect("count(any) is built in");
    // The reference interpreter's aggregate whose value over no rows is unknown to the planner.
    let mut counted = (**count).clone();
    counted.id = FunctionId(90_002);
    counted.name = "counted".into();
    let mut builder = RegistryBuilder::built_in();
    builder.add(counted);
    builder.finish()
});
