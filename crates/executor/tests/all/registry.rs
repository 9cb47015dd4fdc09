//! The built-in registry, and the one function that the reference interpreter has beside it.

use firn_base::TypeId;
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_vector::kernel::scalar::scalar;
use firn_vector::registry::{Body, Kernels, Mode, Parameter, RegistryBuilder};
use firn_vector::{FunctionId, Registry};
use std::sync::LazyLock;

/// The numbers that `nextval` has given, of all threads of the test.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Lets `nextval` begin with 1 again. One test calls it.
pub fn restart_numbers() {
    NEXT.store(1, Ordering::Relaxed);
}

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
    // As the reference interpreter's: a number that no call has given before.
    let random = built_in.functions_named("clock_timestamp").first().expect("it is built in");
    let mut next = (**random).clone();
    next.id = FunctionId(1574);
    next.name = "nextval".into();
    let regclass = Parameter { name: None, ty: TypeId::REGCLASS, mode: Mode::In, default: None };
    next.parameters = [regclass].into();
    next.result = TypeId::INT8;
    let kernel = scalar::<(u32,), _>(|_, _| NEXT.fetch_add(1, Ordering::Relaxed) as i64);
    next.body = Body::Scalar(Kernels { general: Arc::new(kernel), special: Vec::new() });
    builder.add(next);
    builder.finish()
});
