//! The heap of a block: where the bytes of strings longer than 12 bytes lie.
//!
//! Append-only, in buffers that never move. A view (Arrow's `Utf8View`/`BinaryView` entry) names a
//! buffer and an offset:
//!
//! ```text
//! word 0: length (32 bits) | first 4 bytes        word 1: buffer | offset (32 bits each)
//! word 0: length ≤ 12      | bytes 0..4           word 1: bytes 4..12
//! ```
//! Invariant: bytes of a buffer that are `filled` never change, so that Arrow arrays may share them.
//! Bytes are written before that grows, under a lock that makes appenders take turns.
//! What updates leave behind is garbage until the block is frozen.

use crate::budget::{Held, MemoryBudget};
use crate::layout::PART_ALIGN;
use crate::memory::{Piece, prefetch};
use crate::region::PLACE_BYTES;
use arrow_buffer::Buffer;
use firn_base::Cell;
use firn_base::sync::{Arc, AtomicPtr, AtomicU32, Mutex, MutexGuard, OnceLock, Ordering};
use std::ptr;

/// The longest string that lies wholly inside its view.
pub(crate) const INLINE_BYTES: usize = 12;

/// More than any block will fill.
const BUFFERS: usize = 64;
const FIRST_BUFFER_BYTES: usize = 8 << 10;
/// Arrow takes offsets as signed 32-bit numbers.
const LARGEST_BUFFER_BYTES: usize = 1 << 30;

/// Usual size of a buffer: twice that of the one before, but [`PLACE_BYTES`] for so many more, since
/// pages of larger pieces are not made ready ahead.
const PLACES: usize = 8;

fn usual_bytes(buffer: usize) -> usize {
    const FIRST_PLACE: usize = (PLACE_BYTES / FIRST_BUFFER_BYTES).ilog2() as usize;
    let doublings = buffer.min(FIRST_PLACE) + buffer.saturating_sub(FIRST_PLACE + PLACES);
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

/// The string of at most [`INLINE_BYTES`] that a view holds.
#[inline]
pub(crate) fn inline_cell(view: [u64; 2]) -> Cell<'static> {
    debug_assert!(view_len(view) <= INLINE_BYTES);
    let mut bytes = [0; INLINE_BYTES];
    bytes[..4].copy_from_slice(&((view[0] >> 32) as u32).to_le_bytes());
    bytes[4..].copy_from_slice(&view[1].to_le_bytes());
    Cell::Inline(view_len(view) as u8, bytes)
}

/// The length that a view tells.
#[inline]
pub(crate) fn view_len(view: [u64; 2]) -> usize {
    view[0] as u32 as usize
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
    /// Where each buffer begins, and how much of it is filled and will not change again. Readers only
    /// touch bytes before that; the one appender at a time only touches bytes after it. Both lie here,
    /// not in the buffers, so that following a view touches nothing else but the string.
    starts: [AtomicPtr<u8>; BUFFERS],
    filled: [AtomicU32; BUFFERS],
    buffers: [OnceLock<Arc<HeapBuffer>>; BUFFERS],
    /// The buffer that is being filled; the lock is the right to append.
    filling: Mutex<usize>,
    /// Counts the buffers.
    budget: Arc<MemoryBudget>,
}

impl Heap {
    pub fn new(budget: Arc<MemoryBudget>) -> Heap {
        Heap {
            budget,
            starts: [const { AtomicPtr::new(ptr::null_mut()) }; BUFFERS],
            filled: [const { AtomicU32::new(0) }; BUFFERS],
            buffers: [const { OnceLock::new() }; BUFFERS],
            filling: Mutex::new(0),
        }
    }

    /// The view of `bytes`, stored here if they do not fit into it.
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

    /// The bytes of a view of more than [`INLINE_BYTES`]. The view must be whole: read from this
    /// block and validated. Panics if it points outside what was ever stored.
    #[inline]
    pub fn bytes(&self, view: [u64; 2]) -> &[u8] {
        let (offset, length) = ((view[1] >> 32) as usize, view_len(view));
        let bytes = self.filled(view[1] as u32 as usize);
        &bytes[offset..offset + length]
    }

    /// What is filled of a buffer.
    #[inline]
    fn filled(&self, buffer: usize) -> &[u8] {
        // Acquire: pairs with the store in `Appender::append`; before that the length is 0.
        let length = self.filled[buffer].load(Ordering::Acquire) as usize;
        let start = self.starts[buffer].load(Ordering::Relaxed);
        if length == 0 {
            return &[];
        }
        // SAFETY: the start was set before the length. So many bytes are initialised, will not change
        // again, and stay as long as the heap.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// Asks the processor to fetch what a view, perhaps a torn one, points to.
    #[inline]
    pub fn prefetch(&self, view: [u64; 2]) {
        if view_len(view) > INLINE_BYTES
            && let Some(start) = self.starts.get(view[1] as u32 as usize)
        {
            let first = start.load(Ordering::Relaxed).wrapping_add((view[1] >> 32) as usize);
            prefetch(first);
            // The processor guesses what follows beyond.
            prefetch(first.wrapping_add((view_len(view) - 1).min(PART_ALIGN)));
        }
    }

    /// The buffers so far, as Arrow buffers that share the memory and keep it alive.
    pub fn arrow_buffers(&self) -> Vec<Buffer> {
        (0..BUFFERS)
            .map_while(|number| Some((self.buffers[number].get()?, self.filled(number).len())))
            .map(|(buffer, length)| {
                // SAFETY: the first `length` bytes are initialised, never change again, and live as
                // long as the `Arc` that the Arrow buffer owns.
                unsafe { Buffer::from_custom_allocation(buffer.0.start(), length, buffer.clone()) }
            })
            .collect()
    }

    /// Bytes allocated.
    pub fn allocated_bytes(&self) -> usize {
        self.buffers.iter().map_while(OnceLock::get).map(|buffer| buffer.0.len()).sum()
    }
}

/// The right to append to a heap; see [`Heap::appender`].
pub(crate) struct Appender<'h> {
    heap: &'h Heap,
    filling: MutexGuard<'h, usize>,
}

impl Appender<'_> {
    /// The view of `bytes`, more than [`INLINE_BYTES`], which are stored.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> [u64; 2] {
        assert!(bytes.len() <= LONGEST_STRING_BYTES, "callers refuse longer strings");
        let (heap, filling) = (self.heap, &mut *self.filling);
        loop {
            let buffer = heap.buffers[*filling].get_or_init(|| {
                let piece = Piece::new(usual_bytes(*filling).max(bytes.len().next_power_of_two()));
                heap.starts[*filling].store(piece.start().as_ptr(), Ordering::Relaxed);
                Arc::new(HeapBuffer::new(piece, &heap.budget))
            });
            let offset = heap.filled[*filling].load(Ordering::Relaxed) as usize;
            if bytes.len() <= buffer.0.len() - offset {
                let to = heap.starts[*filling].load(Ordering::Relaxed);
                // SAFETY: in bounds by the check; nobody else writes (the lock) or reads (beyond what is
                // filled) there.
                unsafe { to.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                // Release: whoever sees the new length sees the bytes, and the start.
                heap.filled[*filling].store((offset + bytes.len()) as u32, Ordering::Release);
                let prefix: [u8; 4] = bytes[..4].try_into().expect("longer than 12 bytes");
                return [
                    bytes.len() as u64 | u64::from(u32::from_le_bytes(prefix)) << 32,
                    *filling as u64 | (offset as u64) << 32,
                ];
            }
            *filling += 1;
            assert!(*filling < BUFFERS, "a block's heap outgrew {BUFFERS} buffers");
        }
    }
}

/// Memory of a buffer, which Arrow arrays may share.
struct HeapBuffer(Piece, Arc<MemoryBudget>);

impl HeapBuffer {
    fn new(piece: Piece, budget: &Arc<MemoryBudget>) -> HeapBuffer {
        budget.add(Held::Strings, piece.len() as i64);
        HeapBuffer(piece, budget.clone())
    }
}

impl Drop for HeapBuffer {
    fn drop(&mut self) {
        self.1.add(Held::Strings, -(self.0.len() as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let buffers = heap.arrow_buffers();
        heap.store(text.as_bytes());
        drop(heap);
        assert_eq!(&buffers[0][..], text.as_bytes());
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
