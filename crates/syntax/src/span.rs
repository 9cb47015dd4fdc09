//! Where something stands in the text.

use firn_base::{Error, SqlState};
use std::fmt;

/// Bytes `start..end` of the text. All spans are equal, so that trees compare by what they say and not
/// by where they say it; compare the fields to compare places.
#[derive(Clone, Copy, Default)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte behind the last one.
    pub end: u32,
}

impl Span {
    /// The bytes `start..end`.
    pub fn new(start: u32, end: u32) -> Span {
        Span { start, end }
    }

    /// From the beginning of one to the end of another.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end }
    }

    /// What stands there in `text`.
    pub fn of(self, text: &str) -> &str {
        &text[self.start as usize..self.end as usize]
    }
}

impl PartialEq for Span {
    fn eq(&self, _: &Span) -> bool {
        true
    }
}

impl Eq for Span {}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// The position that PostgreSQL's clients know a byte of `text` by: in characters, from 1.
pub fn character_position(text: &str, offset: u32) -> u32 {
    let before = &text.as_bytes()[..(offset as usize).min(text.len())];
    before.iter().filter(|&&byte| byte & 0xC0 != 0x80).count() as u32 + 1
}

/// An error at a byte of `text`.
#[cold]
pub(crate) fn error_at(state: SqlState, message: impl Into<String>, text: &str, offset: u32) -> Error {
    Error::new(state, message).with_position(character_position(text, offset))
}
