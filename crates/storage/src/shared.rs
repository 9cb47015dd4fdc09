//! Memory of a block that other objects may hold, and that can be replaced while it is read.
//!
//! Readers load its address with every access, which costs no more than an address that never changes.
//! Replaced memory is freed once every guard of that time is released, and when it has no holder any more:
//!
//! ```text
//! block ── start ──> bytes <── owner: Arc <── Arrow arrays that were handed out
//! ```
//! Invariant: a thread that reads or writes here holds a guard, or excludes the threads that replace the
//! memory.

use crate::Guard;
use crate::budget::{Held, MemoryBudget};
use crate::memory::{Memory, Span};
use firn_base::sync::{Arc, AtomicPtr, Mutex, Ordering};
use std::ptr::{self, NonNull};

/// See the module.
pub(crate) struct SharedMemory {
    /// Null if there is none.
    start: AtomicPtr<u8>,
    bytes: usize,
    owner: Mutex<Option<Arc<CountedMemory>>>,
}

/// Memory that a budget counts as long as it has a holder.
pub(crate) struct CountedMemory {
    memory: Memory,
    what: Held,
    budget: Arc<MemoryBudget>,
}

impl CountedMemory {
    pub fn new(memory: Memory, what: Held, budget: &Arc<MemoryBudget>) -> CountedMemory {
        budget.add(what, memory.len() as i64);
        CountedMemory { memory, what, budget: budget.clone() }
    }

    /// The address of its first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.memory.start()
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.budget.add(self.what, -(self.memory.len() as i64));
    }
}

impl SharedMemory {
    /// No memory yet; `bytes` is the size of what will be made.
    pub fn none(bytes: usize) -> SharedMemory {
        SharedMemory { start: AtomicPtr::new(ptr::null_mut()), bytes, owner: Mutex::new(None) }
    }

    pub fn new(memory: CountedMemory) -> SharedMemory {
        let shared = SharedMemory::none(memory.memory.len());
        shared.get_or_make(|| memory);
        shared
    }

    /// The memory, if there is some.
    #[inline]
    pub fn get(&self) -> Option<Span<'_>> {
        // Acquire: a reader that gets the address sees the content.
        let start = NonNull::new(self.start.load(Ordering::Acquire))?;
        // SAFETY: this many bytes are there, and remain as long as a guard that is held now (see the module).
        Some(unsafe { Span::new(start, self.bytes) })
    }

    /// The memory.
    ///
    /// # Safety
    /// There is some: it was [made](SharedMemory::new) with it, or [given](SharedMemory::get_or_make), and
    /// was never [taken off](SharedMemory::take_off).
    #[inline(always)]
    pub unsafe fn always(&self) -> Span<'_> {
        // Acquire: as in `get`. A thread that is not synchronised with a replacement may still load the
        // former address.
        let start = self.start.load(Ordering::Acquire);
        debug_assert!(!start.is_null());
        // SAFETY: as above, and it is not null by the caller.
        unsafe { Span::new(NonNull::new_unchecked(start), self.bytes) }
    }

    /// The memory; it is made if there is none.
    pub fn get_or_make(&self, make: impl FnOnce() -> CountedMemory) -> Span<'_> {
        let mut owner = self.owner.lock();
        let memory = owner.get_or_insert_with(|| Arc::new(make()));
        debug_assert!(memory.memory.len() >= self.bytes);
        self.start.store(memory.start().as_ptr(), Ordering::Release);
        // SAFETY: as in `get`.
        unsafe { Span::new(memory.start(), self.bytes) }
    }

    /// Calls `body` while there is no memory and none can be made. Does nothing if there is some.
    pub fn while_none<T>(&self, body: impl FnOnce() -> T) -> Option<T> {
        let owner = self.owner.lock();
        owner.is_none().then(body)
    }

    /// A reference that keeps the memory for any time. The caller ensures that nothing writes to it while it
    /// [is held](SharedMemory::is_held).
    pub fn hold(&self) -> Option<Arc<CountedMemory>> {
        self.owner.lock().clone()
    }

    /// Whether there is another holder. The caller ensures that none is added meanwhile.
    pub fn is_held(&self) -> bool {
        // If there is none, the last holder's reads come before this (`get_mut` acquires).
        self.owner.lock().as_mut().is_some_and(|memory| Arc::get_mut(memory).is_none())
    }

    /// Whether `memory` is its current memory.
    pub fn is(&self, memory: &Arc<CountedMemory>) -> bool {
        self.owner.lock().as_ref().is_some_and(|own| Arc::ptr_eq(own, memory))
    }

    /// Replaces the memory.
    pub fn change_for(&self, memory: Arc<CountedMemory>, guard: &Guard) {
        let start = memory.start();
        let before = self.owner.lock().replace(memory);
        self.start.store(start.as_ptr(), Ordering::Release);
        guard.defer(move || drop(before));
    }

    /// As [`SharedMemory::change_for`], when there is no reader or writer any more.
    pub fn change_unread(&self, memory: Arc<CountedMemory>) {
        let start = memory.start();
        *self.owner.lock() = Some(memory);
        self.start.store(start.as_ptr(), Ordering::Release);
    }

    /// Removes the memory.
    pub fn take_off(&self, guard: &Guard) {
        let before = self.owner.lock().take();
        self.start.store(ptr::null_mut(), Ordering::Release);
        guard.defer(move || drop(before));
    }
}
