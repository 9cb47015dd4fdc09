//! Guards: as long as one is held, nothing is freed that could be reached when it was taken.

pub use crossbeam_epoch::Guard;
#[cfg(not(feature = "models"))]
pub use crossbeam_epoch::pin;

/// As in `crossbeam_epoch`, but in a model every task pins for itself, and the model ends with all
/// garbage freed.
#[cfg(feature = "models")]
pub fn pin() -> Guard {
    use crossbeam_epoch::{Collector, LocalHandle};

    shuttle::lazy_static! {
        static ref COLLECTOR: Collector = Collector::new();
    }
    shuttle::thread_local! {
        static HANDLE: LocalHandle = COLLECTOR.register();
    }
    if !firn_base::sync::in_model() {
        return crossbeam_epoch::pin();
    }
    // At its end a task has no handle any more; then the guard alone keeps its place.
    HANDLE.try_with(LocalHandle::pin).unwrap_or_else(|_| COLLECTOR.register().pin())
}
