//! Memory of a block that others may hold on to, and that can be changed for other memory under its readers.
//!
//! Readers load where it begins with every access, which costs them no more than an address that never
//! changes would. What was in its place before is freed once every guard of that time has gone, and when
//! nobody holds on to it any more:
//!
//! ```text
//! block ── start ──> bytes <── owner: Arc <── Arrow arrays that were handed out
//! ```
//! Invariant: whoever reads or writes here holds a guard, or keeps those away who change the memory.

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

/// Memory that a budget counts as long as somebody holds it.
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

    /// Where it begins.
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
    /// None yet; of so many bytes once there is some.
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
        // Acquire: whoever sees it sees what it begins with.
        let start = NonNull::new(self.start.load(Ordering::Acquire))?;
        // SAFETY: so many bytes are there, and stay as long as a guard of now (module).
        Some(unsafe { Span::new(start, self.bytes) })
    }

    /// The memory.
    ///
    /// # Safety
    /// There is some: it was [made](SharedMemory::new) with it, or [given](SharedMemory::get_or_make), and
    /// was never [taken off](SharedMemory::take_off).
    #[inline(always)]
    pub unsafe fn always(&self) -> Span<'_> {
        // Acquire: as in `get`. Who has learnt of nothing that was done there may see it all the same.
        let start = self.start.load(Ordering::Acquire);
        debug_assert!(!start.is_null());
        // SAFETY: as above, and it is not null by the caller.
        unsafe { Span::new(NonNull::new_unchecked(start), self.bytes) }
    }

    /// The memory, which is made if there is none.
    pub fn get_or_make(&self, make: impl FnOnce() -> CountedMemory) -> Span<'_> {
        let mut owner = self.owner.lock();
        let memory = owner.get_or_insert_with(|| Arc::new(make()));
        debug_assert!(memory.memory.len() >= self.bytes);
        self.start.store(memory.start().as_ptr(), Ordering::Release);
        // SAFETY: as in `get`.
        unsafe { Span::new(memory.start(), self.bytes) }
    }

    /// Does something while there is no memory and nobody makes any; nothing if there is some.
    pub fn while_none<T>(&self, body: impl FnOnce() -> T) -> Option<T> {
        let owner = self.owner.lock();
        owner.is_none().then(body)
    }

    /// The right to keep the memory as long as one likes. The caller sees to it that nobody writes to it as
    /// long as it [is held](SharedMemory::is_held).
    pub fn hold(&self) -> Option<Arc<CountedMemory>> {
        self.owner.lock().clone()
    }

    /// Whether somebody else holds it. The caller sees to it that nobody comes to hold it just now.
    pub fn is_held(&self) -> bool {
        // When it is not, what the last one who let go of it read, it read before (`get_mut` acquires).
        self.owner.lock().as_mut().is_some_and(|memory| Arc::get_mut(memory).is_none())
    }

    /// Whether it is that memory.
    pub fn is(&self, memory: &Arc<CountedMemory>) -> bool {
        self.owner.lock().as_ref().is_some_and(|own| Arc::ptr_eq(own, memory))
    }

    /// Puts other memory in its place.
    pub fn change_for(&self, memory: Arc<CountedMemory>, guard: &Guard) {
        let start = memory.start();
        let before = self.owner.lock().replace(memory);
        self.start.store(start.as_ptr(), Ordering::Release);
        guard.defer(move || drop(before));
    }

    /// As [`SharedMemory::change_for`], when nobody reads or writes here any more.
    pub fn change_unread(&self, memory: Arc<CountedMemory>) {
        let start = memory.start();
        *self.owner.lock() = Some(memory);
        self.start.store(start.as_ptr(), Ordering::Release);
    }

    /// Takes the memory off.
    pub fn take_off(&self, guard: &Guard) {
        let before = self.owner.lock().take();
        self.start.store(ptr::null_mut(), Ordering::Release);
        guard.defer(move || drop(before));
    }
}
