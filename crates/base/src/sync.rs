//! The door to atomics and locks.
//!
//! With the feature `models`, which only tests turn on, they are those of [`modelled`]: the same, but a
//! model checker says who goes on between one step and the next
//! (docs/decisions/0013-models-run-the-engine.md).

#[cfg(feature = "models")]
mod modelled;

#[cfg(feature = "models")]
pub use modelled::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Condvar, Mutex,
    MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
#[cfg(not(feature = "models"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "models"))]
pub use std::sync::OnceLock;
#[cfg(not(feature = "models"))]
pub use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
pub use std::sync::atomic::{Ordering, fence};
pub use std::sync::{Arc, Weak, mpsc};

/// Locks that models do not see: of statics, which are the process's and outlive a model. Several models may run in it at
/// once, and who waits in one of them is not woken by another's task. While such a lock is held nothing else of this door is used.
pub mod unmodelled {
    pub use parking_lot::{Condvar, Mutex, MutexGuard};
    pub use std::sync::OnceLock;
    pub use std::sync::atomic::AtomicBool;
}

/// Whether the caller runs in a model.
#[inline]
pub fn in_model() -> bool {
    #[cfg(feature = "models")]
    return modelled::in_model();
    #[cfg(not(feature = "models"))]
    false
}
