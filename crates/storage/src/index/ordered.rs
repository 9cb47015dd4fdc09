//! The common interface of the kinds of index: ordered pairs of key and row id.

use super::KeyBuffer;
use crate::Guard;
use firn_base::RowId;

/// The verdict of a judge about a row that is listed under a key that another row claims; a row that
/// conflicts is an error instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No version of the row has the key for any transaction that may see the claimant.
    Dead,
}

/// The byte strings from `low` up to but not including `high`.
#[derive(Clone, Copy)]
pub(in crate::index) struct Span<'a> {
    pub low: &'a [u8],
    pub high: Option<&'a [u8]>,
}

pub(super) const EVERYTHING: Span<'_> = Span { low: &[], high: None };

/// Pairs of key and row in order. Implementations hold no lock during callbacks.
pub(super) trait OrderedIndex {
    /// Adds a pair that conflicts with no other; a pair that exists counts as added again.
    fn insert(&self, key: &[u8], row: RowId, guard: &Guard);
    /// Removes such a pair if `dead` returns true; calls it again if the pair was added again meanwhile.
    fn remove(&self, key: &[u8], row: RowId, guard: &Guard, dead: impl FnMut() -> bool);
    /// Calls `visit` with the pairs whose key is in the span, until it returns false, and `ahead` with rows
    /// that will be visited soon, if they are known.
    fn range(
        &self,
        span: Span<'_>,
        reverse: bool,
        guard: &Guard,
        ahead: &mut impl FnMut(RowId),
        visit: &mut impl FnMut(&[u8], RowId) -> bool,
    );
    /// The number of pairs, which are counted one by one.
    fn len(&self, guard: &Guard) -> usize;
    /// The approximate number of bytes, summed up node by node.
    fn memory_bytes(&self, guard: &Guard) -> usize;
    /// Asserts the invariants; there must be no concurrent writer.
    fn verify(&self, guard: &Guard);
}

/// The number of bytes of a row id behind a key.
pub(super) const ROW_ID_BYTES: usize = 8;

/// key ‖ row id.
#[inline]
pub(super) fn with_row(key: &[u8], row: RowId) -> KeyBuffer {
    let mut pair = KeyBuffer::from_slice(key);
    pair.push_word(row.to_bits().to_be_bytes(), ROW_ID_BYTES);
    pair
}

/// The key and row id of a pair.
#[inline]
pub(super) fn split(pair: &[u8]) -> (&[u8], RowId) {
    let (key, row) = pair.split_last_chunk::<ROW_ID_BYTES>().expect("a pair ends with a row id");
    (key, RowId::from_bits(u64::from_be_bytes(*row)))
}
