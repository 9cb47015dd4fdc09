//! The heap of a block: the bytes of strings longer than 12 bytes.
//!
//! It is append-only, in buffers that never move. A view (Arrow's `Utf8View`/`BinaryView` entry) has a buffer
//! and an offset:
//!
//! ```text
//! word 0: length (32 bits) | first 4 bytes        word 1: buffer | offset (32 bits each)
//! word 0: length ≤ 12      | bytes 0..4           word 1: bytes 4..12
//! ```
//! Invariant: the `filled` bytes of a buffer never change, so that Arrow arrays may share them. Bytes are
//! written before `filled` grows, under a lock that makes appenders take turns. Equal strings of a column
//! that are stored together [share](Recent) their bytes.
//!
//! Strings that updates no longer refer to are garbage until the block is frozen. Then the remaining strings
//! may be [gathered](Gathering) in new buffers ([`crate::tidy`]), and the former buffers *leave*. They are
//! freed once every guard of that time is released, since a reader that has loaded a view before may still
//! follow it. Until then their numbers are not reused. The heap of a compact block has only buffers of
//! encoded columns, which it [adopts](Heap::adopt), so that their strings have views as others do. A string
//! that had to be decoded is in no buffer. Its view contains the address, and is not kept longer than a
//! guard.
//!
//! ```text
//! word 0: length (31 bits), 1 | first 4 bytes     word 1: address
//! ```
//! A block never contains such a word, so a torn view cannot be mistaken for one.

use crate::Guard;
use crate::budget::{Held, MemoryBudget};
use crate::layout::PART_ALIGN;
use crate::memory::{Piece, prefetch};
use crate::region::PLACE_BYTES;
use arrow_buffer::Buffer;
use firn_base::Cell;
use firn_base::sync::{Arc, AtomicPtr, AtomicU32, Mutex, MutexGuard, Ordering};
use std::ops::Range;
use std::ptr;

/// The longest string that fits into its view.
pub(crate) const INLINE_BYTES: usize = 12;

/// More than any block fills; one for every bit of a word.
pub(crate) const BUFFERS: usize = 64;
const FIRST_BUFFER_BYTES: usize = 8 << 10;
/// Arrow takes offsets as signed 32-bit numbers.
const LARGEST_BUFFER_BYTES: usize = 1 << 30;

/// The number of buffers of [`PLACE_BYTES`] in a row. Before them each buffer is twice as large as the last
/// one, and after them again. The pages of pieces larger than that are not prepared in advance.
const PLACES: usize = 8;

fn usual_bytes(before: usize) -> usize {
    const FIRST_PLACE: usize = (PLACE_BYTES / FIRST_BUFFER_BYTES).ilog2() as usize;
    let doublings = before.min(FIRST_PLACE) + before.saturating_sub(FIRST_PLACE + PLACES);
    if doublings < 32 {
        (FIRST_BUFFER_BYTES << doublings).min(LARGEST_BUFFER_BYTES)
    } else {
        LARGEST_BUFFER_BYTES
    }
}

/// The longest string that a column can hold.
pub const LONGEST_STRING_BYTES: usize = LARGEST_BUFFER_BYTES;

/// Whether a cell takes memory of a heap.
pub fn is_long_string(cell: &Cell<'_>) -> bool {
    matches!(cell, Cell::Bytes(bytes) if bytes.len() > INLINE_BYTES)
}

/// The view of a string of at most [`INLINE_BYTES`].
#[inline]
pub(crate) fn inline_view(bytes: &[u8]) -> [u64; 2] {
    debug_assert!(bytes.len() <= INLINE_BYTES);
    let mut view = [0; 16];
    view[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    view[4..4 + bytes.len()].copy_from_slice(bytes);
    words(view)
}

/// The view of a longer string, which is in a buffer.
#[inline]
pub(crate) fn long_view(bytes: &[u8], buffer: u32, offset: u32) -> [u64; 2] {
    let prefix: [u8; 4] = bytes[..4].try_into().expect("longer than 12 bytes");
    [
        bytes.len() as u64 | u64::from(u32::from_le_bytes(prefix)) << 32,
        u64::from(buffer) | u64::from(offset) << 32,
    ]
}

/// Not set in any length, since strings are shorter.
const ELSEWHERE: u64 = 1 << 31;
const _: () = assert!((LONGEST_STRING_BYTES as u64) < ELSEWHERE);

/// The view of a longer string that is not in a buffer but at an address.
#[inline]
pub(crate) fn view_elsewhere(bytes: &[u8]) -> [u64; 2] {
    let [low, _] = long_view(bytes, 0, 0);
    [low | ELSEWHERE, bytes.as_ptr().expose_provenance() as u64]
}

/// Whether a view of more than [`INLINE_BYTES`] is [one of those](view_elsewhere).
#[inline]
pub(crate) fn is_elsewhere(view: [u64; 2]) -> bool {
    view[0] & ELSEWHERE != 0
}

/// The string of at most [`INLINE_BYTES`] that a view holds.
#[inline]
pub(crate) fn inline_cell(view: [u64; 2]) -> Cell<'static> {
    debug_assert!(view_len(view) <= INLINE_BYTES);
    let mut bytes = [0; INLINE_BYTES];
    bytes[..4].copy_from_slice(&((view[0] >> 32) as u32).to_le_bytes());
    bytes[4..].copy_from_slice(&view[1].to_le_bytes());
    Cell::Inline(view_len(view) as u8, bytes)
}

/// The length in a view.
#[inline]
pub(crate) fn view_len(view: [u64; 2]) -> usize {
    (view[0] as u32 & !(ELSEWHERE as u32)) as usize
}

#[inline]
fn words(view: [u8; 16]) -> [u64; 2] {
    let (low, high) = view.split_at(8);
    [
        u64::from_le_bytes(low.try_into().expect("8 bytes")),
        u64::from_le_bytes(high.try_into().expect("8 bytes")),
    ]
}

/// A heap.
pub(crate) struct Heap {
    /// Where each buffer begins, and how much of it is filled and does not change any more. Readers touch
    /// only bytes before that; the appender, one at a time, touches only bytes after it. Both arrays are here
    /// and not in the buffers, so that following a view touches nothing but the string.
    starts: [AtomicPtr<u8>; BUFFERS],
    filled: [AtomicU32; BUFFERS],
    buffers: Arc<Mutex<Buffers>>,
    /// The holder of the lock may append.
    filling: Mutex<Filling>,
    /// Counts the buffers.
    budget: Arc<MemoryBudget>,
}

/// The buffers of a heap by number.
struct Buffers {
    all: [Option<Arc<HeapBuffer>>; BUFFERS],
    /// Those to which no view refers any more, a bit each.
    leaving: u64,
}

/// The buffer that is being filled.
#[derive(Default)]
struct Filling {
    number: usize,
    /// Its size; 0 if there is none.
    bytes: usize,
    /// How many were begun since strings were last gathered.
    begun: usize,
}

impl Heap {
    pub fn new(budget: Arc<MemoryBudget>) -> Heap {
        Heap {
            budget,
            starts: [const { AtomicPtr::new(ptr::null_mut()) }; BUFFERS],
            filled: [const { AtomicU32::new(0) }; BUFFERS],
            buffers: Arc::new(Mutex::new(Buffers { all: [const { None }; BUFFERS], leaving: 0 })),
            filling: Mutex::new(Filling::default()),
        }
    }

    /// The view of `bytes`, which are stored here if they do not fit into it.
    #[inline]
    pub fn store(&self, bytes: &[u8]) -> [u64; 2] {
        if bytes.len() <= INLINE_BYTES { inline_view(bytes) } else { self.append(bytes) }
    }

    fn append(&self, bytes: &[u8]) -> [u64; 2] {
        self.appender().append(bytes)
    }

    /// The right to append strings, until it is dropped.
    pub fn appender(&self) -> Appender<'_> {
        Appender { heap: self, filling: self.filling.lock() }
    }

    /// The bytes of a view of more than [`INLINE_BYTES`]. The view must be whole: read from this block and
    /// validated. Panics if it refers to bytes that were never stored.
    #[inline]
    pub fn bytes(&self, view: [u64; 2]) -> &[u8] {
        if is_elsewhere(view) {
            let start = ptr::with_exposed_provenance(view[1] as usize);
            // SAFETY: the bytes remain until the guard is released under which the view was made, and the
            // caller got the view under that guard.
            return unsafe { std::slice::from_raw_parts(start, view_len(view)) };
        }
        let (offset, length) = ((view[1] >> 32) as usize, view_len(view));
        let bytes = self.filled(view[1] as u32 as usize);
        &bytes[offset..offset + length]
    }

    /// The filled bytes of a buffer.
    #[inline]
    fn filled(&self, buffer: usize) -> &[u8] {
        // Acquire: pairs with the store in `Appender::append`; before that the length is 0.
        let length = self.filled[buffer].load(Ordering::Acquire) as usize;
        let start = self.starts[buffer].load(Ordering::Relaxed);
        if length == 0 {
            return &[];
        }
        // SAFETY: the start was set before the length. These bytes are initialised, and do not change any
        // more. They remain as long as the heap or, if their buffer leaves, until every guard of that time is
        // released. A reader with a view of the buffer has loaded it under such a guard.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// Prefetches what a view, perhaps a torn one, refers to.
    #[inline]
    pub fn prefetch(&self, view: [u64; 2]) {
        if view_len(view) > INLINE_BYTES
            && let Some(start) = self.starts.get(view[1] as u32 as usize)
        {
            let first = start.load(Ordering::Relaxed).wrapping_add((view[1] >> 32) as usize);
            prefetch(first);
            // The processor prefetches what follows by itself.
            prefetch(first.wrapping_add((view_len(view) - 1).min(PART_ALIGN)));
        }
    }

    /// Makes room for strings of `bytes` bytes in all, side by side, if there is no buffer yet. If they
    /// exceed the largest buffer, the remaining strings go to the next one.
    pub fn reserve_first(&self, bytes: usize) {
        let mut appender = self.appender();
        if bytes > 0 && appender.filling.begun == 0 {
            appender.begin_buffer(Piece::good_size(bytes.min(LARGEST_BUFFER_BYTES)));
        }
    }

    /// The buffers by number, as Arrow buffers that share the memory and keep it alive. Numbers without a
    /// buffer have an empty one. A caller that includes `leaving` buffers has held a guard since before it
    /// loaded its views.
    pub fn arrow_buffers(&self, leaving: bool) -> Vec<Buffer> {
        let buffers = self.buffers.lock();
        let left_out = if leaving { 0 } else { buffers.leaving };
        let count = buffers.all.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let shared = |(number, buffer): (usize, &Option<Arc<HeapBuffer>>)| {
            let Some(buffer) = buffer.as_ref().filter(|_| left_out >> number & 1 == 0) else {
                return Buffer::from(&[]);
            };
            let length = self.filled[number].load(Ordering::Acquire) as usize;
            match &**buffer {
                // SAFETY: the first `length` bytes are initialised, never change again, and live as long as
                // the `Arc` that the Arrow buffer owns.
                HeapBuffer::Own(piece, _) => unsafe {
                    Buffer::from_custom_allocation(piece.start(), length, buffer.clone())
                },
                HeapBuffer::Adopted(shared) => shared.clone(),
            }
        };
        buffers.all[..count].iter().enumerate().map(shared).collect()
    }

    /// Bytes of appended strings, without those in leaving buffers.
    pub fn appended_bytes(&self) -> usize {
        let buffers = self.buffers.lock();
        let is_own = |number: &usize| {
            let own = buffers.all[*number].as_ref().is_some_and(|buffer| buffer.own_bytes() > 0);
            own && buffers.leaving >> number & 1 == 0
        };
        (0..BUFFERS).filter(is_own).map(|number| self.filled[number].load(Ordering::Relaxed) as usize).sum()
    }

    /// Bytes of strings in some buffers, a bit each.
    pub fn filled_bytes(&self, buffers: u64) -> usize {
        let numbers = (0..BUFFERS).filter(|number| buffers >> number & 1 == 1);
        numbers.map(|number| self.filled[number].load(Ordering::Relaxed) as usize).sum()
    }

    /// Bytes allocated, without those of leaving buffers and of adopted ones.
    pub fn allocated_bytes(&self) -> usize {
        let buffers = self.buffers.lock();
        let is_in_use = |number: &usize| buffers.leaving >> number & 1 == 0;
        let bytes = |number: usize| buffers.all[number].as_ref().map_or(0, |buffer| buffer.own_bytes());
        (0..BUFFERS).filter(is_in_use).map(bytes).sum()
    }

    /// How many more buffers it can have.
    pub fn buffers_left(&self) -> usize {
        self.buffers.lock().all.iter().filter(|buffer| buffer.is_none()).count()
    }

    /// Whether there are leaving buffers.
    #[cfg(test)]
    pub fn has_leaving(&self) -> bool {
        self.buffers.lock().leaving != 0
    }

    /// Adopts buffers of strings. Returns their numbers, in order; `None` without an effect if too few
    /// numbers are left.
    pub fn adopt(&self, all: &[&Buffer]) -> Option<Vec<u32>> {
        // Numbers become free at any time, but only an appender takes some.
        let mut appender = self.appender();
        if self.buffers_left() < all.len() {
            return None;
        }
        Some(all.iter().map(|strings| appender.adopt(strings)).collect())
    }

    /// Removes all buffers but some. No view refers to the others any more.
    pub fn keep_only(&self, numbers: &[u32], guard: &Guard) {
        self.appender().give_up_all_but(numbers.iter().fold(0, |bits, number| bits | 1 << number), guard);
    }

    /// Begins to gather strings.
    pub fn gather(&self) -> Gathering<'_> {
        Gathering { keeps: 0, appender: self.appender() }
    }
}

/// Strings of a heap that are being copied to new buffers.
pub(crate) struct Gathering<'h> {
    appender: Appender<'h>,
    /// The numbers of the new buffers, a bit each.
    keeps: u64,
}

impl Gathering<'_> {
    /// Begins a new buffer for strings of `bytes` bytes.
    pub fn begin(&mut self, bytes: usize) {
        self.appender.begin_buffer(bytes);
        self.keeps |= 1 << self.appender.filling.number;
    }

    /// Copies a string of more than [`INLINE_BYTES`] to the newest buffer and returns its new view. Only the
    /// second word differs.
    pub fn copy(&mut self, view: [u64; 2]) -> [u64; 2] {
        let (start, length) = ((view[1] >> 32) as usize, view_len(view));
        let all = self.appender.heap.filled(view[1] as u32 as usize);
        let moved = self.appender.append_with_room(all, start..start + length);
        debug_assert!(moved[0] == view[0] && moved[1] as u32 == self.appender.filling.number as u32);
        moved
    }

    /// Removes all buffers but the new ones. No view refers to them any more.
    pub fn finish(mut self, guard: &Guard) {
        self.appender.give_up_all_but(self.keeps, guard);
    }
}

/// The right to append to a heap; see [`Heap::appender`].
pub(crate) struct Appender<'h> {
    heap: &'h Heap,
    filling: MutexGuard<'h, Filling>,
}

/// The strings that were appended last, so that equal strings that follow share their bytes. Columns such as
/// names of states or shipping modes have few different strings, which repeat often.
pub(crate) struct Recent([[u64; 2]; Recent::STRINGS]);

impl Recent {
    const STRINGS: usize = 64;

    pub fn new() -> Recent {
        Recent([[0; 2]; Recent::STRINGS])
    }

    /// The entry for a string whose view begins with `low`.
    #[inline(always)]
    fn place(&mut self, low: u64, bytes: &[u8]) -> &mut [u64; 2] {
        // Length, beginning and end: strings that repeat often begin alike.
        let last = u64::from_le_bytes(*bytes.last_chunk().expect("longer than 12 bytes"));
        // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).
        let hash = (low ^ last.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &mut self.0[(hash >> (64 - Recent::STRINGS.ilog2())) as usize]
    }
}

impl Appender<'_> {
    /// As [`Appender::append`] for a part of some bytes, unless it equals a recent string of this heap.
    #[inline(always)]
    pub fn append_part(&mut self, all: &[u8], part: Range<usize>, recent: &mut Recent) -> [u64; 2] {
        let bytes = &all[part.clone()];
        let [low, _] = long_view(bytes, 0, 0);
        let place = recent.place(low, bytes);
        if place[0] == low && self.heap.bytes(*place) == bytes {
            return *place;
        }
        *place = self.append_with_room(all, part);
        *place
    }

    /// As [`Appender::append`] for a part of some bytes. If there is room around it, copies a fixed number of
    /// bytes.
    #[inline(always)]
    fn append_with_room(&mut self, all: &[u8], part: Range<usize>) -> [u64; 2] {
        const TOGETHER: usize = 64;
        let bytes = &all[part.clone()];
        let Filling { number, bytes: room, .. } = *self.filling;
        let offset = if room > 0 { self.heap.filled[number].load(Ordering::Relaxed) as usize } else { 0 };
        let Some(together) = all[part.start..].first_chunk::<TOGETHER>() else { return self.append(bytes) };
        if bytes.len() > TOGETHER || room - offset < TOGETHER {
            return self.append(bytes);
        }
        let to = self.heap.starts[number].load(Ordering::Relaxed);
        // SAFETY: in bounds by the check. No other thread writes there (the lock) or reads there (it is not
        // filled). The next string overwrites what was copied beyond this one.
        unsafe { to.add(offset).cast::<[u8; TOGETHER]>().write_unaligned(*together) };
        // Release: as in `append`.
        self.heap.filled[number].store((offset + bytes.len()) as u32, Ordering::Release);
        long_view(bytes, number as u32, offset as u32)
    }

    /// Stores `bytes`, more than [`INLINE_BYTES`], and returns their view.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> [u64; 2] {
        assert!(bytes.len() <= LONGEST_STRING_BYTES, "callers refuse longer strings");
        let heap = self.heap;
        loop {
            let Filling { number, bytes: room, begun } = *self.filling;
            let offset = if room > 0 { heap.filled[number].load(Ordering::Relaxed) as usize } else { 0 };
            if bytes.len() <= room - offset {
                let to = heap.starts[number].load(Ordering::Relaxed);
                // SAFETY: in bounds by the check. No other thread writes there (the lock) or reads there (it
                // is not filled).
                unsafe { to.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                // Release: a reader that sees the new length sees the bytes and the start.
                heap.filled[number].store((offset + bytes.len()) as u32, Ordering::Release);
                return long_view(bytes, number as u32, offset as u32);
            }
            self.begin_buffer(usual_bytes(begun).max(bytes.len().next_power_of_two()));
        }
    }

    /// Adopts a buffer of strings. Returns its number in views.
    fn adopt(&mut self, strings: &Buffer) -> u32 {
        let heap = self.heap;
        let mut buffers = heap.buffers.lock();
        let number = buffers.all.iter().position(Option::is_none).expect("counted before");
        let bytes = u32::try_from(strings.len()).expect("Arrow's offsets have 32 bits");
        heap.starts[number].store(strings.as_ptr().cast_mut(), Ordering::Relaxed);
        // Release: as in `append`.
        heap.filled[number].store(bytes, Ordering::Release);
        buffers.all[number] = Some(Arc::new(HeapBuffer::Adopted(strings.clone())));
        number as u32
    }

    /// Removes all buffers but some, a bit each. No view refers to the others any more.
    fn give_up_all_but(&mut self, keeps: u64, guard: &Guard) {
        let mut buffers = self.heap.buffers.lock();
        let is_there = |number: &usize| buffers.all[*number].is_some();
        let there = (0..BUFFERS).filter(is_there).fold(0, |bits, number| bits | 1 << number);
        let leave = there & !buffers.leaving & !keeps;
        buffers.leaving |= leave;
        *self.filling = Filling::default();
        let shared = self.heap.buffers.clone();
        guard.defer(move || {
            let mut buffers = shared.lock();
            buffers.leaving &= !leave;
            for (number, buffer) in buffers.all.iter_mut().enumerate() {
                buffer.take_if(|_| leave >> number & 1 != 0);
            }
        });
    }

    /// Begins a new buffer.
    #[cold]
    fn begin_buffer(&mut self, bytes: usize) {
        assert!(bytes <= LARGEST_BUFFER_BYTES, "Arrow's offsets are signed numbers of 32 bits");
        let heap = self.heap;
        let mut buffers = heap.buffers.lock();
        let number = buffers.all.iter().position(Option::is_none);
        let number = number.unwrap_or_else(|| panic!("a block's heap outgrew {BUFFERS} buffers"));
        let piece = Piece::new(bytes);
        heap.filled[number].store(0, Ordering::Relaxed);
        heap.starts[number].store(piece.start().as_ptr(), Ordering::Relaxed);
        buffers.all[number] = Some(Arc::new(HeapBuffer::new(piece, &heap.budget)));
        drop(buffers);
        let begun = self.filling.begun + 1;
        *self.filling = Filling { number, bytes, begun };
    }
}

/// Memory of a buffer, which Arrow arrays may share.
enum HeapBuffer {
    Own(Piece, Arc<MemoryBudget>),
    /// Strings that are stored elsewhere, and counted there.
    Adopted(Buffer),
}

impl HeapBuffer {
    fn new(piece: Piece, budget: &Arc<MemoryBudget>) -> HeapBuffer {
        budget.add(Held::Strings, piece.len() as i64);
        HeapBuffer::Own(piece, budget.clone())
    }

    /// The bytes that it owns.
    fn own_bytes(&self) -> usize {
        match self {
            HeapBuffer::Own(piece, _) => piece.len(),
            HeapBuffer::Adopted(_) => 0,
        }
    }
}

impl Drop for HeapBuffer {
    fn drop(&mut self) {
        if let HeapBuffer::Own(piece, budget) = self {
            budget.add(Held::Strings, -(piece.len() as i64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_may_lead_elsewhere() {
        let heap = Heap::new(Arc::new(MemoryBudget::new(None)));
        let string = b"one that was made of symbols";
        let view = view_elsewhere(string);
        assert!(is_elsewhere(view) && !is_elsewhere(heap.store(string)));
        assert_eq!((view_len(view), heap.bytes(view)), (string.len(), &string[..]));
    }

    #[test]
    fn every_length_comes_back_as_it_was_stored() {
        let heap = Heap::new(Arc::default());
        let lengths = (0..300).step_by(if cfg!(miri) { 23 } else { 1 });
        let stored: Vec<(Vec<u8>, [u64; 2])> = lengths
            .map(|length| {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
                let view = heap.store(&bytes);
                (bytes, view)
            })
            .collect();
        for (bytes, view) in &stored {
            assert_eq!(view_len(*view), bytes.len());
            if bytes.len() <= INLINE_BYTES {
                assert_eq!(inline_cell(*view).bytes(), bytes);
            } else {
                assert_eq!(heap.bytes(*view), bytes);
            }
        }
    }

    #[test]
    fn buffers_grow_to_the_largest_and_stay_so() {
        let sizes: Vec<usize> = (0..BUFFERS).map(usual_bytes).collect();
        assert_eq!(sizes[0], FIRST_BUFFER_BYTES);
        assert_eq!(sizes.iter().filter(|bytes| **bytes == PLACE_BYTES).count(), PLACES + 1);
        assert!(sizes.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == 2 * pair[0]));
        assert_eq!(sizes[BUFFERS - 1], LARGEST_BUFFER_BYTES);
    }

    #[test]
    fn arrow_buffers_outlive_the_heap() {
        let heap = Heap::new(Arc::default());
        let text = "thirteen bytes and more";
        heap.store(text.as_bytes());
        let buffers = heap.arrow_buffers(true);
        heap.store(text.as_bytes());
        drop(heap);
        assert_eq!(&buffers[0][..], text.as_bytes());
    }

    #[test]
    fn gathering_leaves_one_buffer_and_every_string_and_numbers_are_used_again() {
        let heap = Heap::new(Arc::default());
        let string = |at: usize| vec![at as u8; 13 + at * 37 % 5000];
        for round in 0..if cfg!(miri) { 2 } else { 100 } {
            let mut views: Vec<_> = (0..50).map(|at| heap.store(&string(at))).collect();
            assert!(heap.arrow_buffers(true).len() > 1);
            let kept: Vec<usize> = (0..50).filter(|at| at % 3 == round % 3).collect();
            let bytes = kept.iter().map(|at| string(*at).len()).sum();
            let mut gathering = heap.gather();
            gathering.begin(bytes);
            for at in &kept {
                let before = views[*at];
                views[*at] = gathering.copy(before);
                assert_eq!(heap.bytes(before), string(*at), "the old view can still be followed");
            }
            gathering.finish(&crate::pin());
            assert_eq!(heap.allocated_bytes(), bytes);
            kept.iter().for_each(|at| assert_eq!(heap.bytes(views[*at]), string(*at)));
            let arrow = heap.arrow_buffers(false);
            assert_eq!(arrow.iter().map(|buffer| buffer.len()).sum::<usize>(), bytes);
            let [_, place] = views[kept[0]];
            assert_eq!(arrow[place as u32 as usize][(place >> 32) as usize], kept[0] as u8);
            // Numbers become free once all guards of now are released, including those of other tests.
            while heap.has_leaving() {
                crate::pin().flush();
                firn_base::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_string_larger_than_the_next_buffer_gets_one_of_its_own() {
        let heap = Heap::new(Arc::default());
        let long = vec![5; FIRST_BUFFER_BYTES * 3];
        let short = vec![6; 100];
        let views = [heap.store(&short), heap.store(&long), heap.store(&short)];
        assert_eq!(heap.bytes(views[1]), long);
        assert_eq!(heap.bytes(views[2]), short);
    }
}
