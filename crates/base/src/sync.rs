//! Access to atomics and locks.
//!
//! With the feature `models`, which only tests enable, they are those of [`modelled`]: the same, but a model
//! checker chooses which task continues between one step and the next
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

/// Locks that models do not control: those of statics, which belong to the process and outlive a model.
/// Several models may run in the process at once, and a task that waits in one of them is not woken by a task
/// of another. While such a lock is held, nothing else of this module is used.
pub mod unmodelled {
    pub use parking_lot::{Condvar, Mutex, MutexGuard};
    pub use std::sync::OnceLock;
    pub use std::sync::atomic::AtomicBool;
}

/// A value on cache lines of its own: reads of it by many threads and writes to its neighbours do not disturb
/// each other. It uses two lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Apart<T>(pub T);

impl<T> std::ops::Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Several values of one kind, each on cache lines of its own. Threads that write often each write to one of
/// them; a thread that needs the total reads all.
#[derive(Debug, Default)]
pub struct Spread<T>([Apart<T>; SPREAD_OVER]);

/// As many as cores that are commonly busy at once.
const SPREAD_OVER: usize = 16;

impl<T> Spread<T> {
    /// The value for a number.
    #[inline]
    pub fn of(&self, number: u64) -> &T {
        &self.0[number as usize % SPREAD_OVER]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|one| &one.0)
    }
}

/// A lock for sections of about a microsecond that many threads enter at the same time. A thread that finds
/// it taken spins for a while before it sleeps. To wake a thread takes tens of microseconds. Meanwhile all
/// others would begin to wait as well, and each of them would have to be woken. The number of spinning
/// threads is limited to the cores beside that of the holder.
#[derive(Debug, Default)]
pub struct ShortMutex<T> {
    mutex: Apart<Mutex<T>>,
    /// The number of spinning threads.
    #[cfg(not(feature = "models"))]
    looking: Apart<AtomicUsize>,
}

/// How long a thread spins before it sleeps: longer than it takes to wake another.
#[cfg(not(feature = "models"))]
const LOOKED_FOR: std::time::Duration = std::time::Duration::from_micros(100);

/// The largest number of pauses between two attempts.
#[cfg(not(feature = "models"))]
const LONGEST_PAUSE: u32 = 16;

/// What holds a [`ShortMutex`].
pub type ShortMutexGuard<'a, T> = MutexGuard<'a, T>;

impl<T> ShortMutex<T> {
    /// An open lock.
    pub const fn new(value: T) -> ShortMutex<T> {
        ShortMutex {
            mutex: Apart(Mutex::new(value)),
            #[cfg(not(feature = "models"))]
            looking: Apart(AtomicUsize::new(0)),
        }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> ShortMutexGuard<'_, T> {
        match self.mutex.try_lock() {
            Some(guard) => guard,
            None => self.wait(|| false).expect("the wait is not interrupted"),
        }
    }

    /// Waits for the lock, or until `else_to_do` returns true; then returns `None`. It is not called while
    /// the thread sleeps, which is after a while, or at once if no core is free for spinning.
    #[inline]
    pub fn lock_or(&self, else_to_do: impl FnMut() -> bool) -> Option<ShortMutexGuard<'_, T>> {
        match self.mutex.try_lock() {
            Some(guard) => Some(guard),
            None => self.wait(else_to_do),
        }
    }

    #[cold]
    fn wait(&self, mut else_to_do: impl FnMut() -> bool) -> Option<ShortMutexGuard<'_, T>> {
        #[cfg(not(feature = "models"))]
        {
            let _looking = Looking(&self.looking);
            if self.looking.fetch_add(1, Ordering::Relaxed) < other_cores() {
                let since = std::time::Instant::now();
                let mut pause = 1;
                // Reading the clock costs as much as several attempts to take the lock.
                for look in 1_u32.. {
                    if look % 16 == 0 && since.elapsed() > LOOKED_FOR {
                        break;
                    }
                    if !self.mutex.is_locked()
                        && let Some(guard) = self.mutex.try_lock()
                    {
                        return Some(guard);
                    }
                    if else_to_do() {
                        return None;
                    }
                    (0..pause).for_each(|_| std::hint::spin_loop());
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        #[cfg(feature = "models")]
        if else_to_do() {
            return None;
        }
        Some(self.mutex.lock())
    }
}

/// Counts a spinning thread while it exists.
#[cfg(not(feature = "models"))]
struct Looking<'a>(&'a AtomicUsize);

#[cfg(not(feature = "models"))]
impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of cores minus one.
#[cfg(not(feature = "models"))]
fn other_cores() -> usize {
    static OTHERS: OnceLock<usize> = OnceLock::new();
    *OTHERS.get_or_init(|| std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1))
}

/// Whether the caller runs in a model.
#[inline]
pub fn in_model() -> bool {
    #[cfg(feature = "models")]
    return modelled::in_model();
    #[cfg(not(feature = "models"))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{scope, spawn_scoped};

    #[test]
    fn a_short_lock_has_one_holder_also_after_interrupted_waits() {
        let counter = ShortMutex::new(0_u64);
        scope(|scope| {
            for number in 0..4 {
                let counter = &counter;
                spawn_scoped(scope, "counting", move || {
                    let mut others = 0;
                    for _ in 0..20_000 {
                        let mut counted = loop {
                            let guard = match number % 2 {
                                0 => Some(counter.lock()),
                                _ => counter.lock_or(|| others % 3 == 1),
                            };
                            others += 1;
                            if let Some(guard) = guard {
                                break guard;
                            }
                        };
                        *counted += 1;
                    }
                });
            }
        });
        assert_eq!(*counter.lock(), 80_000);
    }
}
