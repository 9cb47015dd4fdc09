//! Memory that readers and writers share, seen only as slices of atomics, and its allocation.
//!
//! This file owns the casts from raw bytes. Memory is handed out as `&[AtomicX]`, so that every access is an
//! atomic one and a race is a question of order, never of undefined behaviour. [`crate::block`] keeps this
//! rule: one part of a block is always accessed at one width, since racing accesses of mixed sizes are
//! undefined even between atomics.
//!
//! Blocks of 1 MiB and other memory that is read at random come from regions that ask for huge pages
//! ([`crate::region`]): buffers of heaps from 64 KiB to 1 MiB, nodes and leaves of indexes, undo segments,
//! and chain heads except those of a table's first blocks. A random read that misses the TLB as well costs
//! half as much again (337 ns against 220 ns measured). An allocator does not guarantee huge pages, since it
//! returns parts of them to the system.

use firn_base::sync::unmodelled::Mutex;
use firn_base::sync::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, in_model};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::layout::PART_ALIGN;
use crate::region::{self, PLACE_BYTES};

/// A piece of zeroed memory, aligned to [`PART_ALIGN`].
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

enum Origin {
    /// From the allocator.
    Allocator,
    /// A place in a region, which goes back to the region's free list.
    Region,
    /// A piece of a slab.
    Slab(&'static Slab),
}

// SAFETY: the memory is owned, and shared access goes through atomics only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// `bytes` zero bytes.
    pub fn zeroed(bytes: usize) -> Memory {
        let bytes = bytes.max(1).next_multiple_of(PART_ALIGN);
        if let Some(start) = region::take(bytes) {
            return Memory { start, bytes, origin: Origin::Region };
        }
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout(bytes)) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout(bytes)) };
        Memory { start, bytes, origin: Origin::Allocator }
    }

    /// As [`Memory::zeroed`], for objects of this size of which there are many: from huge pages even if it is
    /// small.
    pub fn zeroed_of_many(bytes: usize) -> Memory {
        let bytes = bytes.max(1).next_multiple_of(PART_ALIGN);
        let Some(slab) = slab_of(bytes) else { return Memory::zeroed(bytes) };
        let start = slab.take();
        // SAFETY: `bytes` bytes were just taken.
        unsafe { start.write_bytes(0, bytes) };
        Memory { start, bytes, origin: Origin::Slab(slab) }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The address of its first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// All of it.
    pub fn span(&self) -> Span<'_> {
        // SAFETY: this many bytes are there as long as `self` is.
        unsafe { Span::new(self.start, self.bytes) }
    }
}

/// A view of memory as atomics.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    start: NonNull<u8>,
    bytes: usize,
    life: PhantomData<&'a AtomicU64>,
}

impl<'a> Span<'a> {
    /// # Safety
    /// The bytes belong to a [`Memory`] that outlives the span.
    #[inline(always)]
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Span<'a> {
        Span { start, bytes, life: PhantomData }
    }

    /// Size in bytes.
    pub fn len(self) -> usize {
        self.bytes
    }

    /// `count` 2-byte values from byte `offset` on.
    #[inline]
    pub fn u16s(self, offset: usize, count: usize) -> &'a [AtomicU16] {
        self.atomics(offset, count)
    }

    /// `count` 4-byte values from byte `offset` on.
    #[inline]
    pub fn u32s(self, offset: usize, count: usize) -> &'a [AtomicU32] {
        self.atomics(offset, count)
    }

    /// `count` 8-byte values from byte `offset` on.
    #[inline]
    pub fn u64s(self, offset: usize, count: usize) -> &'a [AtomicU64] {
        self.atomics(offset, count)
    }

    /// `count` pointers from byte `offset` on.
    #[inline]
    pub fn pointers<T>(self, offset: usize, count: usize) -> &'a [AtomicPtr<T>] {
        self.atomics(offset, count)
    }

    /// The atomic at byte `offset`.
    ///
    /// # Safety
    /// It lies within the memory, at a multiple of its size.
    #[inline]
    pub unsafe fn at<A: Atomic>(self, offset: usize) -> &'a A {
        debug_assert!(offset + size_of::<A>() <= self.bytes && offset.is_multiple_of(size_of::<A>()));
        // SAFETY: in bounds and aligned by the caller; initialised and shared as in `atomics`.
        unsafe { &*self.start.as_ptr().add(offset).cast() }
    }

    /// Prefetches the cache line of byte `offset`, if it is within the memory.
    #[inline]
    pub fn prefetch(self, offset: usize) {
        prefetch(self.start.as_ptr().wrapping_add(offset));
    }

    /// As [`Span::prefetch`], for writing.
    #[inline]
    pub fn prefetch_to_write(self, offset: usize) {
        prefetch_to_write(self.start.as_ptr().wrapping_add(offset));
    }

    #[inline]
    fn atomics<A: Atomic>(self, offset: usize, count: usize) -> &'a [A] {
        assert!(offset + count * size_of::<A>() <= self.bytes && offset.is_multiple_of(align_of::<A>()));
        // SAFETY: in bounds and aligned by the assertion (the start is aligned to 64); initialised,
        // since the memory began zeroed and every `Atomic` may be all zeros; shared only as atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset).cast(), count) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: `start` came from the allocator with this layout, and is not borrowed any more.
            Origin::Allocator => unsafe { dealloc(self.start.as_ptr(), layout(self.bytes)) },
            Origin::Region => region::give_back(self.start),
            // SAFETY: it came from this slab, and is not borrowed any more.
            Origin::Slab(slab) => unsafe { slab.give_back(self.start) },
        }
    }
}

/// A piece of uninitialised memory, aligned to [`PART_ALIGN`], for bytes that are appended.
pub(crate) struct Piece {
    start: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

// SAFETY: the memory is owned; its owner is responsible for its use.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Piece {
    /// A piece of `bytes` bytes.
    pub fn new(bytes: usize) -> Piece {
        if let Some(slab) = PIECES.iter().find(|slab| slab.bytes == bytes) {
            return Piece { start: slab.take(), bytes, origin: Origin::Slab(slab) };
        }
        if bytes == PLACE_BYTES
            && let Some(start) = region::take(bytes)
        {
            return Piece { start, bytes, origin: Origin::Region };
        }
        Piece { start: allocate(bytes), bytes, origin: Origin::Allocator }
    }

    /// The size of a slab or place that holds `bytes` bytes and leaves no more than a quarter of it unused;
    /// `bytes` if there is none.
    pub fn good_size(bytes: usize) -> usize {
        let sizes = PIECES.iter().map(|slab| slab.bytes).chain([PLACE_BYTES]);
        let enough = sizes.filter(|size| *size >= bytes).min();
        enough.filter(|size| size - bytes <= size / 4).unwrap_or(bytes)
    }

    /// A piece of a slab's size: from the slab, unless it has cut `most` pieces and all are in use.
    pub fn of_slab(slab: &'static Slab, most: usize) -> Piece {
        let bytes = slab.bytes;
        match slab.take_some(most) {
            Some(start) => Piece { start, bytes, origin: Origin::Slab(slab) },
            None => Piece { start: allocate(bytes), bytes, origin: Origin::Allocator },
        }
    }

    /// The address of its first byte.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Whether an address is in it.
    pub fn holds(&self, place: NonNull<u8>) -> bool {
        place.addr().get().checked_sub(self.start.addr().get()).is_some_and(|offset| offset < self.bytes)
    }

    /// Size in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: as for `Memory`.
            Origin::Allocator => unsafe { dealloc(self.start.as_ptr(), layout(self.bytes)) },
            Origin::Region => region::give_back(self.start),
            // SAFETY: it came from this slab, and is not borrowed any more.
            Origin::Slab(slab) => unsafe { slab.give_back(self.start) },
        }
    }
}

/// Prefetches a cache line. Any address is allowed; a bad one is a wasted request.
#[inline]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that the program can see and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// As [`prefetch`], for a line that will be written to.
#[inline]
pub(crate) fn prefetch_to_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above. A processor without this instruction executes it as a no-op.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, PART_ALIGN).expect("a block is smaller than the address space")
}

/// Atomics that may be made from zero bytes.
pub trait Atomic {}
impl Atomic for AtomicU16 {}
impl Atomic for AtomicU32 {}
impl Atomic for AtomicU64 {}
impl<T> Atomic for AtomicPtr<T> {}

/// Memory of one size, cut from places of huge pages as it is needed. Pieces that are given back are reused
/// for the same size, and never returned to the system.
pub(crate) struct Slab {
    bytes: usize,
    state: Mutex<SlabState>,
}

struct SlabState {
    free: Vec<NonNull<u8>>,
    /// The unused rest of the place that is being cut up, and the number of pieces that fit into it.
    next: NonNull<u8>,
    left: usize,
    /// How many pieces were ever cut.
    cut: usize,
}

// SAFETY: the state owns the memory that it points to.
unsafe impl Send for SlabState {}
// No panic is possible while the state is half changed.
impl std::panic::RefUnwindSafe for Slab {}

impl Slab {
    /// A slab for pieces of this size, from which no piece has been taken yet.
    pub const fn new(bytes: usize) -> Slab {
        assert!(bytes.is_multiple_of(PART_ALIGN) && bytes > 0 && bytes <= PLACE_BYTES);
        let state = SlabState { free: Vec::new(), next: NonNull::dangling(), left: 0, cut: 0 };
        Slab { bytes, state: Mutex::new(state) }
    }

    /// Size of a piece.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A piece, uninitialised, aligned to [`PART_ALIGN`].
    pub fn take(&self) -> NonNull<u8> {
        self.take_some(usize::MAX).expect("the number of pieces is not limited")
    }

    /// As [`Slab::take`], but `None` if `most` pieces were cut and all are in use.
    fn take_some(&self, most: usize) -> Option<NonNull<u8>> {
        if cfg!(miri) {
            return Some(allocate(self.bytes));
        }
        let mut state = self.state.lock();
        if let Some(start) = state.free.pop() {
            return Some(start);
        }
        if state.cut >= most {
            return None;
        }
        if state.left == 0 {
            state.next = region::take(PLACE_BYTES).unwrap_or_else(|| allocate(PLACE_BYTES));
            state.left = PLACE_BYTES / self.bytes;
        }
        let start = state.next;
        state.left -= 1;
        state.cut += 1;
        // SAFETY: within the place, or right behind it if there is no room for more.
        state.next = unsafe { start.add(self.bytes) };
        Some(start)
    }

    /// Takes a piece back.
    ///
    /// # Safety
    /// It was taken from this slab, and is not used any more.
    pub unsafe fn give_back(&self, start: NonNull<u8>) {
        if cfg!(miri) {
            // SAFETY: `take` allocated it with this layout.
            unsafe { dealloc(start.as_ptr(), layout(self.bytes)) };
        } else {
            if in_model() {
                // SAFETY: it is not used any more; this exposes a wrong use.
                unsafe { start.write_bytes(0xa5, self.bytes) };
            }
            self.state.lock().free.push(start);
        }
    }
}

fn allocate(bytes: usize) -> NonNull<u8> {
    // SAFETY: the size is not zero.
    let start = unsafe { alloc(layout(bytes)) };
    NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout(bytes)))
}

/// Slabs for buffers of heaps smaller than a place.
static PIECES: [Slab; 7] = [
    Slab::new(64 << 10),
    Slab::new(96 << 10),
    Slab::new(128 << 10),
    Slab::new(192 << 10),
    Slab::new(256 << 10),
    Slab::new(320 << 10),
    Slab::new(512 << 10),
];

/// The slab for a size that depends on the layout of a table; `None` for sizes beyond half a place.
fn slab_of(bytes: usize) -> Option<&'static Slab> {
    static SLABS: Mutex<BTreeMap<usize, &'static Slab>> = Mutex::new(BTreeMap::new());
    if bytes > PLACE_BYTES / 2 {
        return None;
    }
    // There are few layouts. Their slabs remain for ever, as regions do.
    Some(SLABS.lock().entry(bytes).or_insert_with(|| Box::leak(Box::new(Slab::new(bytes)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::sync::Ordering;

    #[test]
    fn pieces_that_are_held_do_not_overlap() {
        let sizes = if cfg!(miri) { 10..12 } else { 12..22 };
        for _ in 0..2 {
            let mut pieces: Vec<Piece> =
                sizes.clone().flat_map(|size| (0..5).map(move |_| Piece::new(1 << size))).collect();
            pieces.sort_by_key(Piece::start);
            for neighbours in pieces.windows(2) {
                let end = neighbours[0].start().addr().get() + neighbours[0].len();
                assert!(end <= neighbours[1].start().addr().get());
            }
        }
    }

    #[test]
    fn a_place_that_was_written_to_is_zero_when_taken_again() {
        for bytes in [100, if cfg!(miri) { 4096 } else { 1 << 20 }] {
            for _ in 0..3 {
                let memory = Memory::zeroed(bytes);
                let words = memory.span().u64s(0, bytes / 8);
                assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
                words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
            }
        }
    }
}
