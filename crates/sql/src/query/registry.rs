//! The registry of a server: the functions of `firn-vector` and those that need the catalog or the session.

use super::functions;
use firn_vector::Registry;
use firn_vector::registry::RegistryBuilder;
use std::sync::LazyLock;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let mut builder = RegistryBuilder::built_in();
    functions::register(&mut builder);
    builder.finish()
});

/// All functions, operators and casts.
pub fn registry() -> &'static Registry {
    &REGISTRY
}
