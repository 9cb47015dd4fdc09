//! Memory of scans' batches, used again and again: a batch is drawn, looked at and dropped, and the next
//! one finds its memory still in the core's cache. An allocator gives such pieces back to the system and
//! takes new ones, which costs more than filling them.

use arrow_buffer::Buffer;
use firn_base::sync::Arc;
use std::cell::RefCell;
use std::ptr::NonNull;

/// Pieces of one type that a thread keeps.
const MOST: usize = 32;
/// Pieces larger than this are not kept.
const LARGEST_BYTES: usize = 256 << 10;

/// Values that batches are made of.
pub(crate) trait Spare: Copy + Send + Sync + std::panic::RefUnwindSafe + 'static {
    fn with<R>(body: impl FnOnce(&mut Vec<Vec<Self>>) -> R) -> Option<R>;
}

macro_rules! spare {
    ($($ty:ty),*) => {$(
        impl Spare for $ty {
            fn with<R>(body: impl FnOnce(&mut Vec<Vec<$ty>>) -> R) -> Option<R> {
                thread_local! {
                    static PIECES: RefCell<Vec<Vec<$ty>>> = const { RefCell::new(Vec::new()) };
                }
                // A batch may be dropped when the thread has ended all but that.
                PIECES.try_with(|pieces| body(&mut pieces.borrow_mut())).ok()
            }
        }
    )*};
}
spare!(u16, u32, u64, u128, i128);

/// An empty vector with room for `capacity` values.
pub(crate) fn take<T: Spare>(capacity: usize) -> Vec<T> {
    let kept = T::with(|pieces| {
        let fits = pieces.iter().rposition(|piece| piece.capacity() >= capacity)?;
        Some(pieces.swap_remove(fits))
    });
    kept.flatten().unwrap_or_else(|| Vec::with_capacity(capacity))
}

/// Keeps a vector's memory.
pub(crate) fn keep<T: Spare>(mut piece: Vec<T>) {
    if piece.capacity() * size_of::<T>() <= LARGEST_BYTES {
        piece.clear();
        T::with(|pieces| {
            if pieces.len() < MOST {
                pieces.push(piece);
            }
        });
    }
}

/// The memory of a buffer, which is kept when the last who has it lets go of it.
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
    // SAFETY: so many bytes are initialised there, and nobody changes them or gives them up as long as
    // `lent` lives.
    unsafe { Buffer::from_custom_allocation(start, bytes, lent) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_the_last_reader_has_gone() {
        let mut values: Vec<u16> = take(100);
        values.extend(0..100);
        let place = values.as_ptr();
        let buffer = into_buffer(values);
        let reader = buffer.slice(20);
        drop(buffer);
        let other: Vec<u16> = take(100);
        assert_ne!(other.as_ptr(), place, "somebody reads it");
        assert_eq!(reader.typed_data::<u16>()[..3], [10, 11, 12]);
        drop(reader);
        let again: Vec<u16> = take(100);
        assert!(again.is_empty() && again.as_ptr() == place);
        assert!(take::<u16>(1000).capacity() >= 1000);
    }
}
