//! The buffer in which keys are built: short ones in place, without a call to copy a few bytes.
//!
//! Most keys are one to four integers. A general small vector makes two library calls for every append, which
//! for such keys cost more than the search in the index.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// Longer keys are on the heap.
const SHORT: usize = 48;

/// An encoded key.
#[derive(Clone)]
pub struct KeyBuffer {
    length: usize,
    /// The key, if it has at most [`SHORT`] bytes; behind it, room to write a whole word at once.
    short: [u8; SHORT + 8],
    /// The key otherwise.
    long: Vec<u8>,
}

impl KeyBuffer {
    /// An empty key.
    #[inline]
    pub const fn new() -> KeyBuffer {
        KeyBuffer { length: 0, short: [0; SHORT + 8], long: Vec::new() }
    }

    /// A copy of a key.
    pub fn from_slice(key: &[u8]) -> KeyBuffer {
        let mut buffer = KeyBuffer::new();
        buffer.extend_from_slice(key);
        buffer
    }

    /// Empties it; its memory is kept.
    #[inline]
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// The key's bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        if self.length <= SHORT { &self.short[..self.length] } else { &self.long }
    }

    /// Truncates it to `length` bytes.
    #[inline]
    pub(super) fn truncate(&mut self, length: usize) {
        if self.length > SHORT {
            self.truncate_long(length);
        }
        self.length = self.length.min(length);
    }

    #[cold]
    fn truncate_long(&mut self, length: usize) {
        if length <= SHORT {
            self.short[..length].copy_from_slice(&self.long[..length]);
        } else {
            self.long.truncate(length);
        }
    }

    /// Appends the bytes of a number.
    #[inline(always)]
    pub(crate) fn push_bytes<const LENGTH: usize>(&mut self, bytes: [u8; LENGTH]) {
        if self.length + LENGTH <= SHORT {
            self.short[self.length..self.length + LENGTH].copy_from_slice(&bytes);
            self.length += LENGTH;
        } else {
            self.extend_long(&bytes);
        }
    }

    /// Appends the first `length` of 8 bytes.
    #[inline]
    pub(super) fn push_word(&mut self, word: [u8; 8], length: usize) {
        debug_assert!(length <= 8);
        if self.length + length <= SHORT {
            self.short[self.length..self.length + 8].copy_from_slice(&word);
            self.length += length;
        } else {
            self.extend_long(&word[..length]);
        }
    }

    /// Sets it to the lowest `width` bytes of a number, the highest first.
    #[inline]
    pub(super) fn set_packed(&mut self, number: u128, width: usize) {
        let bytes = (number << (8 * (16 - width))).to_be_bytes();
        let (high, low) = bytes.split_at(8);
        self.clear();
        self.push_word(high.try_into().expect("8 bytes"), width.min(8));
        self.push_word(low.try_into().expect("8 bytes"), width.saturating_sub(8));
    }

    /// Appends bytes.
    #[inline]
    pub(super) fn extend_from_slice(&mut self, bytes: &[u8]) {
        if self.length + bytes.len() <= SHORT {
            self.short[self.length..self.length + bytes.len()].copy_from_slice(bytes);
            self.length += bytes.len();
        } else {
            self.extend_long(bytes);
        }
    }

    /// Appends one byte.
    #[inline]
    pub(super) fn push(&mut self, byte: u8) {
        self.extend_from_slice(&[byte]);
    }

    #[cold]
    fn extend_long(&mut self, bytes: &[u8]) {
        if self.length <= SHORT {
            self.long.clear();
            self.long.extend_from_slice(&self.short[..self.length]);
        }
        self.long.extend_from_slice(bytes);
        self.length = self.long.len();
    }
}

impl Default for KeyBuffer {
    fn default() -> Self {
        KeyBuffer::new()
    }
}

impl Deref for KeyBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for KeyBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.length <= SHORT { &mut self.short[..self.length] } else { &mut self.long }
    }
}

impl AsRef<[u8]> for KeyBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for KeyBuffer {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for KeyBuffer {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for KeyBuffer {}

impl PartialOrd for KeyBuffer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyBuffer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self[..].cmp(&other[..])
    }
}

impl Hash for KeyBuffer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl fmt::Debug for KeyBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", &self[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares appends of all lengths with a vector, across the border to the heap and back.
    #[test]
    fn a_key_is_what_was_appended_to_it() {
        let mut buffer = KeyBuffer::new();
        for start in 0..2 * SHORT {
            for length in 0..=8 {
                let mut expected: Vec<u8> = (0..start).map(|byte| byte as u8).collect();
                buffer.clear();
                buffer.extend_from_slice(&expected);
                buffer.push_word([7; 8], length);
                buffer.push(9);
                expected.extend(vec![7; length]);
                expected.push(9);
                assert_eq!(buffer[..], expected[..]);
                assert_eq!(KeyBuffer::from_slice(&expected), buffer);
                assert_eq!(buffer.clone(), buffer);
                *buffer.last_mut().expect("it ends with 9") = 3;
                assert_eq!(buffer.as_slice().last(), Some(&3));
                for kept in [start + length, start, start / 2] {
                    buffer.truncate(kept);
                    assert_eq!(buffer[..], expected[..kept]);
                }
            }
        }
    }
}
