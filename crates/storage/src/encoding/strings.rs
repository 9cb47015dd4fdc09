//! Strings without gaps: the offset of each, and their bytes one after another.
//!
//! ```text
//!  offsets  | 0 | 5 | 5 | 9 |          one more than there are strings; Arrow's Utf8 and Binary
//!  bytes    | alpha         beta |
//! ```
//! The view in a frozen block takes 16 bytes in addition to the bytes that do not fit into it; these take 4.

use crate::memory::prefetch;
use arrow_array::types::{BinaryType, Utf8Type};
use arrow_array::{ArrayRef, BinaryArray, BinaryViewArray, GenericByteArray, StringArray, StringViewArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use firn_base::Representation;
use firn_base::sync::Arc;
use std::ops::Range;

/// The largest number of bytes for these offsets.
pub const MOST_STRING_BYTES: usize = i32::MAX as usize;

/// Many strings.
#[derive(Clone, Debug)]
pub struct Strings {
    offsets: OffsetBuffer<i32>,
    bytes: Buffer,
}

impl Strings {
    /// Of offsets that rise from 0 to the number of bytes.
    pub(super) fn new(offsets: Vec<i32>, bytes: Vec<u8>) -> Strings {
        let strings = Strings {
            offsets: OffsetBuffer::new(ScalarBuffer::from(offsets)),
            bytes: Buffer::from_vec(bytes),
        };
        assert_eq!(strings.offsets.last().copied(), Some(strings.bytes.len() as i32));
        strings
    }

    /// Copies strings; `None` if they are longer than [`MOST_STRING_BYTES`] in all.
    pub fn collect<'a>(strings: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Strings> {
        let (mut count, mut total) = (0, 0);
        for string in strings.clone() {
            count += 1;
            total += string.len();
        }
        if total > MOST_STRING_BYTES {
            return None;
        }
        let mut offsets = Vec::with_capacity(count + 1);
        let mut bytes = Vec::with_capacity(total);
        offsets.push(0);
        for string in strings {
            bytes.extend_from_slice(string);
            offsets.push(bytes.len() as i32);
        }
        Some(Strings::new(offsets, bytes))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The string at a position.
    #[inline]
    pub fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.offsets[at] as usize..self.offsets[at + 1] as usize]
    }

    /// Prefetches the offset of a string.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        prefetch(self.offsets.as_ptr().wrapping_add(at).cast());
    }

    /// Prefetches a string, at most up to its end.
    #[inline]
    pub fn prefetch_further(&self, at: usize) {
        let string = self.get(at).as_ptr_range();
        prefetch(string.start);
        prefetch(string.end.wrapping_sub(1));
    }

    /// The memory they take.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.offsets[..]) + self.bytes.len()
    }

    /// The offset of each, and the end of the last one.
    pub(super) fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    /// All their bytes.
    pub(super) fn all_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The memory of their bytes.
    pub(super) fn buffer(&self) -> &Buffer {
        &self.bytes
    }

    /// An Arrow array of the corresponding type, which shares their memory. Texts are checked to be UTF-8.
    pub(super) fn to_array(&self, representation: Representation, nulls: Option<NullBuffer>) -> ArrayRef {
        match representation {
            representation if representation.is_string() => {
                Arc::new(GenericByteArray::<Utf8Type>::new(self.offsets.clone(), self.bytes.clone(), nulls))
            }
            _ => {
                Arc::new(GenericByteArray::<BinaryType>::new(self.offsets.clone(), self.bytes.clone(), nulls))
            }
        }
    }

    /// Panics if an invariant does not hold.
    pub fn verify(&self) {
        assert!(self.offsets.is_sorted() && self.offsets[0] == 0, "offsets rise from 0");
        assert_eq!(*self.offsets.last().expect("one more than strings") as usize, self.bytes.len());
    }
}

/// A range of an array of [`Strings::to_array`], with views instead of offsets. The bytes are shared.
pub(super) fn as_views(array: &ArrayRef, range: Range<usize>) -> ArrayRef {
    let part = array.slice(range.start, range.len());
    match part.as_any().downcast_ref::<StringArray>() {
        Some(texts) => Arc::new(StringViewArray::from(texts)),
        None => {
            let bytes = part.as_any().downcast_ref::<BinaryArray>().expect("strings are texts or bytes");
            Arc::new(BinaryViewArray::from(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;

    #[test]
    fn strings_lie_one_after_another() {
        let given = ["alpha", "", "beta"];
        let strings = Strings::collect(given.iter().map(|string| string.as_bytes())).unwrap();
        strings.verify();
        assert_eq!((strings.len(), strings.offsets()), (3, &[0, 5, 5, 9][..]));
        assert_eq!(strings.all_bytes(), b"alphabeta");
        assert_eq!(strings.bytes(), 4 * 4 + 9);
        assert!(strings.get(1).is_empty() && strings.get(2) == b"beta");
        let array = strings.to_array(Representation::Text, None);
        assert_eq!(array.as_string::<i32>().values().as_ptr(), strings.all_bytes().as_ptr());
        let views = as_views(&array, 1..3);
        assert_eq!(views.as_string_view().iter().collect::<Vec<_>>(), [Some(""), Some("beta")]);
    }
}
