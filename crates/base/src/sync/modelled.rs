//! Atomics and locks for a model checker: before every step another task may continue, and the checker knows
//! which tasks wait, so that it finds deadlocks.
//!
//! Inside they are the ordinary ones: an atomic has the layout of the standard library's, so memory can be
//! cast to it. All of them work as usual outside models, for statics, which outlive models. The tasks of a
//! model share one thread of the operating system, so no lock is ever waited for inside: a task that cannot
//! have it sleeps at a [`Gate`] of the checker's.
//!
//! Orderings are passed on, but models see steps in one sequence: the effects of weaker orderings are left to
//! loom, Miri and ThreadSanitizer.

#![allow(missing_docs, reason = "named as in the standard library and in parking_lot")]

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longer waits end only when another task wakes the waiter, so that a missing wake-up is detected.
const FOREVER: Duration = Duration::from_secs(60);

pub fn in_model() -> bool {
    shuttle::current::try_get_current_task().is_some()
}

/// Lets the checker choose the task that continues.
#[inline]
fn step() {
    if in_model() {
        // Time is not modelled: this is only a step.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// Where one task sleeps until another opens it.
struct Gate(BatchSemaphore);

/// Sleeping tasks, in the order in which they began to sleep.
#[derive(Default)]
struct Sleepers(parking_lot::Mutex<VecDeque<Arc<Gate>>>);

impl Sleepers {
    const fn new() -> Sleepers {
        Sleepers(parking_lot::const_mutex(VecDeque::new()))
    }

    /// A gate for the caller. No step comes between its decision to sleep and this.
    fn lie_down(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate(BatchSemaphore::new(0, Fairness::StrictlyFair)));
        self.0.lock().push_back(gate.clone());
        gate
    }

    fn wake_one(&self) {
        let gate = self.0.lock().pop_front();
        gate.iter().for_each(|gate| gate.open());
    }

    fn wake_all(&self) {
        let gates = std::mem::take(&mut *self.0.lock());
        gates.iter().for_each(|gate| gate.open());
    }
}

impl Gate {
    fn sleep(&self) {
        self.0.acquire_blocking(1).expect("a gate is not closed");
    }

    fn open(&self) {
        // A task that slept in a failed model does not wake again.
        if in_model() {
            self.0.release(1);
        }
    }
}

/// Takes a lock by `attempt`, sleeping between attempts.
fn acquire<G>(sleepers: &Sleepers, mut attempt: impl FnMut() -> Option<G>) -> G {
    loop {
        step();
        if let Some(guard) = attempt() {
            return guard;
        }
        sleepers.lie_down().sleep();
    }
}

pub struct Mutex<T> {
    sleepers: Sleepers,
    inner: parking_lot::Mutex<T>,
}

pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` while it waits for a [`Condvar`].
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { sleepers: Sleepers::new(), inner: parking_lot::const_mutex(value) }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, inner: Some(self.acquire()) }
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        step();
        self.inner.try_lock().map(|inner| MutexGuard { mutex: self, inner: Some(inner) })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }

    fn acquire(&self) -> parking_lot::MutexGuard<'_, T> {
        if in_model() { acquire(&self.sleepers, || self.inner.try_lock()) } else { self.inner.lock() }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> MutexGuard<'_, T> {
    fn release(&mut self) {
        if self.inner.take().is_some() {
            self.mutex.sleepers.wake_one();
        }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the lock is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("the lock is held")
    }
}

#[derive(Default)]
pub struct Condvar {
    sleepers: Sleepers,
    /// For use outside models.
    inner: parking_lot::Condvar,
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar { sleepers: Sleepers::new(), inner: parking_lot::Condvar::new() }
    }

    pub fn notify_one(&self) {
        step();
        self.inner.notify_one();
        self.sleepers.wake_one();
    }

    pub fn notify_all(&self) {
        step();
        self.inner.notify_all();
        self.sleepers.wake_all();
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if !in_model() {
            return self.inner.wait(guard.inner.as_mut().expect("the lock is held"));
        }
        let gate = self.sleepers.lie_down();
        guard.release();
        gate.sleep();
        guard.inner = Some(guard.mutex.acquire());
    }

    /// In a model, a short time is over as soon as other tasks have had a chance to continue.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, longest: Duration) {
        if !in_model() {
            let _timed_out = self.inner.wait_for(guard.inner.as_mut().expect("the lock is held"), longest);
        } else if longest >= FOREVER {
            self.wait(guard);
        } else {
            guard.release();
            shuttle::thread::yield_now();
            guard.inner = Some(guard.mutex.acquire());
        }
    }
}

/// Like parking_lot's, it lets no reader overtake a waiting writer.
pub struct RwLock<T> {
    sleepers: Sleepers,
    writers_waiting: std::sync::atomic::AtomicUsize,
    inner: parking_lot::RwLock<T>,
}

pub struct RwLockReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    inner: Option<parking_lot::RwLockReadGuard<'a, T>>,
}

pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    inner: Option<parking_lot::RwLockWriteGuard<'a, T>>,
}

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock {
            sleepers: Sleepers::new(),
            writers_waiting: std::sync::atomic::AtomicUsize::new(0),
            inner: parking_lot::const_rwlock(value),
        }
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let attempt = || match self.writers_waiting.load(Ordering::Relaxed) {
            0 => self.inner.try_read(),
            _ => None,
        };
        let inner = if in_model() { acquire(&self.sleepers, attempt) } else { self.inner.read() };
        RwLockReadGuard { lock: self, inner: Some(inner) }
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let inner = if in_model() {
            let mut waits = false;
            acquire(&self.sleepers, || {
                let guard = self.inner.try_write();
                match (guard.is_none(), std::mem::replace(&mut waits, guard.is_none())) {
                    (true, false) => self.writers_waiting.fetch_add(1, Ordering::Relaxed),
                    (false, true) => self.writers_waiting.fetch_sub(1, Ordering::Relaxed),
                    _ => 0,
                };
                guard
            })
        } else {
            self.inner.write()
        };
        RwLockWriteGuard { lock: self, inner: Some(inner) }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.inner = None;
        self.lock.sleepers.wake_all();
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.inner = None;
        self.lock.sleepers.wake_all();
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the lock is held")
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the lock is held")
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("the lock is held")
    }
}

/// A task that finds it being set sleeps until it is set.
pub struct OnceLock<T> {
    turn: Mutex<()>,
    inner: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub const fn new() -> OnceLock<T> {
        OnceLock { turn: Mutex::new(()), inner: std::sync::OnceLock::new() }
    }

    pub fn get(&self) -> Option<&T> {
        step();
        self.inner.get()
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        let _turn = self.turn.lock();
        self.inner.set(value)
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.get().is_none() {
            let _turn = self.turn.lock();
            if self.inner.get().is_none() {
                let value = make();
                assert!(self.inner.set(value).is_ok(), "only the holder of the turn sets the value");
            }
        }
        self.inner.get().expect("the value has been set")
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

macro_rules! atomic {
    ($name:ident $(<$type:ident>)?, $value:ty) => {
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name $(<$type>)? (std::sync::atomic::$name $(<$type>)?);

        impl $(<$type>)? $name $(<$type>)? {
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }

            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(current, new, success, failure)
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }
    };
}

/// Operations that change a value in one step.
macro_rules! changes {
    ($name:ident, $value:ty, $($change:ident)*) => {
        impl $name {
            $(pub fn $change(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.$change(value, order)
            })*
        }
    };
}

macro_rules! integer {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);
        changes!($name, $value, fetch_add fetch_sub fetch_or fetch_and fetch_max fetch_min);

        impl $name {
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut before = self.load(fetch);
                while let Some(after) = update(before) {
                    match self.compare_exchange(before, after, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(now) => before = now,
                    }
                }
                Err(before)
            }
        }
    };
}

integer!(AtomicU8, u8);
integer!(AtomicU16, u16);
integer!(AtomicU32, u32);
integer!(AtomicU64, u64);
integer!(AtomicUsize, usize);
integer!(AtomicI64, i64);
atomic!(AtomicBool, bool);
changes!(AtomicBool, bool, fetch_or fetch_and);
atomic!(AtomicPtr<T>, *mut T);
