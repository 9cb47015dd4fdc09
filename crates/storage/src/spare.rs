//! Reusable memory for batches of scans. A batch is made, read and dropped, and the next one finds its memory
//! still in the core's cache. An allocator returns such pieces to the system and allocates new ones, which
//! costs more than filling them.
//!
//! All threads share the kept pieces, so that their number is bounded: the thread that drops a batch is often
//! not the one that made it.

use arrow_buffer::Buffer;
use firn_base::sync::Arc;
use firn_base::sync::unmodelled::Mutex;
use std::ptr::NonNull;

/// The largest number of kept pieces of one type.
const MOST: usize = 32;
/// Pieces larger than this are not kept.
const LARGEST_BYTES: usize = 512 << 10;

/// Types of the values in batches.
pub(crate) trait Spare: Copy + Send + Sync + std::panic::RefUnwindSafe + 'static {
    /// The kept pieces of the type.
    fn pieces() -> &'static Mutex<Vec<Vec<Self>>>;
}

macro_rules! spare {
    ($($representation:ty),*) => {$(
        impl Spare for $representation {
            fn pieces() -> &'static Mutex<Vec<Vec<$representation>>> {
                static PIECES: Mutex<Vec<Vec<$representation>>> = Mutex::new(Vec::new());
                &PIECES
            }
        }
    )*};
}
spare!(u8, u16, u32, u64, u128, i16, i32, i64, i128);

/// An empty vector with room for `capacity` values.
pub(crate) fn take<T: Spare>(capacity: usize) -> Vec<T> {
    let kept = {
        let mut pieces = T::pieces().lock();
        let fits = pieces.iter().rposition(|piece| piece.capacity() >= capacity);
        fits.map(|fits| pieces.swap_remove(fits))
    };
    kept.unwrap_or_else(|| Vec::with_capacity(capacity))
}

/// Keeps a vector's memory.
pub(crate) fn keep<T: Spare>(mut piece: Vec<T>) {
    if !(1..=LARGEST_BYTES).contains(&(piece.capacity() * size_of::<T>())) {
        return;
    }
    piece.clear();
    let mut pieces = T::pieces().lock();
    if pieces.len() < MOST {
        pieces.push(piece);
    }
}

/// The memory of a buffer, which is kept when the last reference to the buffer is dropped.
struct Lent<T: Spare>(Vec<T>);

impl<T: Spare> Drop for Lent<T> {
    fn drop(&mut self) {
        keep(std::mem::take(&mut self.0));
    }
}

/// The values as an Arrow buffer.
pub(crate) fn into_buffer<T: Spare>(values: Vec<T>) -> Buffer {
    let bytes = size_of_val(&values[..]);
    let start = NonNull::from(&values[..]).cast();
    let lent = Arc::new(Lent(values));
    // SAFETY: this many bytes are initialised there. They do not change, and are not freed while `lent`
    // lives.
    unsafe { Buffer::from_custom_allocation(start, bytes, lent) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_the_last_reader_has_gone() {
        // Of a size that no scan requests, since other tests take pieces as well.
        const CAPACITY: usize = LARGEST_BYTES / size_of::<u16>();
        let mut values: Vec<u16> = take(CAPACITY);
        values.extend(0..100);
        let place = values.as_ptr();
        let is_kept = || u16::pieces().lock().iter().any(|piece| piece.as_ptr() == place);
        let buffer = into_buffer(values);
        let reader = buffer.slice(20);
        drop(buffer);
        assert!(!is_kept(), "it has a reader");
        assert_eq!(reader.typed_data::<u16>()[..3], [10, 11, 12]);
        drop(reader);
        assert!(is_kept() || u16::pieces().lock().len() == MOST);
        assert!(take::<u16>(2 * CAPACITY).capacity() >= 2 * CAPACITY);
    }
}
