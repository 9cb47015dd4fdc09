//! Strings in vectors: Arrow's views, and a builder that allocates for no single row.
//!
//! ```text
//! a view, 16 bytes, little-endian
//!   length u32 | bytes, up to 12, padded with zeros          length <= 12
//!   length u32 | first 4 bytes | buffer u32 | offset u32     longer
//! ```
//!
//! A view of zeros is the empty string, so rows that no kernel writes need no care.

use arrow_buffer::{Buffer, ScalarBuffer};
use firn_base::sync::Arc;

/// Up to so many bytes lie inside the view.
pub const INLINE: usize = 12;

/// A buffer of a builder is closed when it has so many bytes, well below what a view's offset can name.
const CLOSE_AT: usize = 1 << 30;

/// Strings of a vector: of characters or of bytes, as the vector's representation says.
#[derive(Clone, Debug)]
pub struct Strings {
    views: ScalarBuffer<u128>,
    buffers: Arc<[Buffer]>,
}

impl Strings {
    /// Strings from their views and the buffers that the long ones lead into. Panics on first use of a view
    /// that leads elsewhere.
    pub fn new(views: ScalarBuffer<u128>, buffers: Arc<[Buffer]>) -> Strings {
        Strings { views, buffers }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// The views.
    pub fn views(&self) -> &ScalarBuffer<u128> {
        &self.views
    }

    /// The buffers.
    pub fn buffers(&self) -> &Arc<[Buffer]> {
        &self.buffers
    }

    /// The bytes of one string.
    #[inline]
    pub fn bytes(&self, row: usize) -> &[u8] {
        let view = self.views[row];
        let length = view as u32 as usize;
        if length <= INLINE {
            let place = row * 16 + 4;
            &self.views.inner().as_slice()[place..place + length]
        } else {
            let (buffer, offset) = ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize);
            &self.buffers[buffer].as_slice()[offset..offset + length]
        }
    }

    /// One string of a vector of characters.
    #[inline]
    pub fn text(&self, row: usize) -> &str {
        let bytes = self.bytes(row);
        debug_assert!(std::str::from_utf8(bytes).is_ok());
        // SAFETY: vectors of text come from a `StringBuilder`, which takes `str`, or from blocks and Arrow arrays of
        // text, which hold UTF-8 (the same promise as that of `base::Cell::str`).
        unsafe { std::str::from_utf8_unchecked(bytes) }
    }

    /// The strings from a row on, so many.
    pub fn slice(&self, from: usize, length: usize) -> Strings {
        Strings { views: self.views.slice(from, length), buffers: self.buffers.clone() }
    }

    /// The strings at these positions; the buffers are shared.
    pub fn take(&self, positions: impl Iterator<Item = usize>) -> Strings {
        Strings { views: positions.map(|row| self.views[row]).collect(), buffers: self.buffers.clone() }
    }

    /// Bytes of memory that the views take, and the strings that they point to: the buffers whole at most, which others may share.
    pub fn memory(&self) -> usize {
        let whole = self.buffers.iter().map(Buffer::capacity).sum::<usize>();
        let length = |view: &u128| *view as u32 as usize;
        let pointed_to = || self.views.iter().map(length).filter(|length| *length > INLINE).sum::<usize>();
        self.views.len() * 16 + if whole == 0 { 0 } else { whole.min(pointed_to()) }
    }
}

/// The view of a string that lies at a place of a buffer.
#[inline]
pub fn view(bytes: &[u8], buffer: u32, offset: u32) -> u128 {
    if bytes.len() <= INLINE {
        return inline_view(bytes);
    }
    let prefix = u32::from_le_bytes(bytes[..4].try_into().expect("it is longer than 12"));
    bytes.len() as u128 | u128::from(prefix) << 32 | u128::from(buffer) << 64 | u128::from(offset) << 96
}

#[inline]
fn inline_view(bytes: &[u8]) -> u128 {
    let mut image = [0; 16];
    image[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    image[4..4 + bytes.len()].copy_from_slice(bytes);
    u128::from_le_bytes(image)
}

/// Builds the strings of a vector whose rows are written in any order, each at most once.
///
/// The kernel appends a row's bytes to one growing buffer; [`StringBuilder::put`] makes a view of what was appended.
#[derive(Debug)]
pub struct StringBuilder {
    views: Vec<u128>,
    full: Vec<Buffer>,
}

impl StringBuilder {
    /// A builder of so many strings, all empty.
    pub fn new(length: usize) -> StringBuilder {
        StringBuilder { views: vec![0; length], full: Vec::new() }
    }

    /// Makes one row's string of the bytes of `buffer` from `start` on.
    #[inline]
    pub fn put(&mut self, row: usize, buffer: &mut Vec<u8>, start: usize) {
        let bytes = &buffer[start..];
        self.views[row] = view(bytes, self.full.len() as u32, start as u32);
        if bytes.len() <= INLINE {
            buffer.truncate(start);
        } else if buffer.len() >= CLOSE_AT {
            self.full.push(Buffer::from_vec(std::mem::take(buffer)));
        }
    }

    /// As [`StringBuilder::put`], of a buffer of characters.
    #[inline]
    pub fn put_text(&mut self, row: usize, buffer: &mut String, start: usize) {
        let bytes = &buffer.as_bytes()[start..];
        self.views[row] = view(bytes, self.full.len() as u32, start as u32);
        if bytes.len() <= INLINE {
            buffer.truncate(start);
        } else if buffer.len() >= CLOSE_AT {
            self.full.push(Buffer::from_vec(std::mem::take(buffer).into_bytes()));
        }
    }

    /// Appends a row.
    pub fn push(&mut self, buffer: &mut Vec<u8>, start: usize) {
        self.views.push(0);
        self.put(self.views.len() - 1, buffer, start);
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// The strings, of which those not yet in a closed buffer lie in `buffer`.
    pub fn finish(mut self, buffer: Vec<u8>) -> Strings {
        if !buffer.is_empty() {
            self.full.push(Buffer::from_vec(buffer));
        }
        Strings { views: self.views.into(), buffers: self.full.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_read_as_they_were_written() {
        let texts: Vec<String> =
            (0..40).map(|length| "äbcdefg".chars().cycle().take(length).collect()).collect();
        let (mut builder, mut buffer) = (StringBuilder::new(texts.len()), Vec::new());
        for (row, text) in texts.iter().enumerate().rev() {
            let start = buffer.len();
            buffer.extend_from_slice(text.as_bytes());
            builder.put(row, &mut buffer, start);
        }
        let strings = builder.finish(buffer);
        for (row, text) in texts.iter().enumerate() {
            assert_eq!(strings.text(row), text);
            assert_eq!(strings.slice(row, 1).text(0), text, "a slice reads its own views");
        }
    }

    #[test]
    fn a_view_is_laid_out_as_arrow_lays_it_out() {
        assert_eq!(view(b"abc", 7, 9).to_le_bytes(), *b"\x03\0\0\0abc\0\0\0\0\0\0\0\0\0");
        assert_eq!(view(b"abcdefghijklm", 7, 9).to_le_bytes(), *b"\x0d\0\0\0abcd\x07\0\0\0\x09\0\0\0");
    }
}
