//! The radix trees: indexes over the crate `artmap`, an adaptive radix tree with optimistic lock
//! coupling, in which readers write no shared memory.
//!
//! A unique index is a map from key to posting ([`super::posting`]); a non-unique one is a set of
//! key ‖ row id. Keys lie in the tree's leaf, so an entry is one allocation. artmap keeps its own
//! epoch; its operations pin it for themselves, so nothing here is bound to the caller's guard.

use super::posting::{self, Entries, Lists, Posting, Rows, SUFFIXED};
use super::{OrderedIndex, ROW_ID_BYTES, Span, Verdict, split, with_row};
use artmap::{ArtMap, AsBytes, EntryRef};
use firn_base::RowId;
use firn_base::sync::AtomicU64;
use std::borrow::Borrow;
use std::ops::Bound;

/// A key in a leaf: short ones in place.
pub(super) enum Key<const INLINE: usize> {
    Inline { length: u8, bytes: [u8; INLINE] },
    Boxed(Box<[u8]>),
}

/// With the flag and word of its leaf, 40 bytes.
type UniqueKey = Key<22>;
/// With the flag of its leaf, 40 bytes.
type PairKey = Key<30>;
const _: () = assert!(size_of::<UniqueKey>() == 24 && size_of::<PairKey>() == 32);

impl<const INLINE: usize> Key<INLINE> {
    #[inline]
    fn new(key: &[u8]) -> Self {
        if key.len() <= INLINE {
            let mut bytes = [0; INLINE];
            bytes[..key.len()].copy_from_slice(key);
            Key::Inline { length: key.len() as u8, bytes }
        } else {
            Key::Boxed(key.into())
        }
    }

    /// Bytes held outside the leaf.
    fn heap_bytes(&self) -> usize {
        match self {
            Key::Inline { .. } => 0,
            Key::Boxed(bytes) => bytes.len(),
        }
    }
}

impl<const INLINE: usize> AsBytes for Key<INLINE> {
    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self {
            Key::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Key::Boxed(bytes) => bytes,
        }
    }
}

impl<const INLINE: usize> Borrow<[u8]> for Key<INLINE> {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Inner nodes cost about this much per entry in trees of integers and of strings.
const NODE_BYTES_PER_ENTRY: usize = 22;

/// An estimate from the first entries: what all would take if all were like them.
fn memory_bytes<const INLINE: usize, V: Send + 'static>(map: &ArtMap<Key<INLINE>, V>) -> usize {
    const SAMPLE: usize = 256;
    let heap: usize = map.iter().take(SAMPLE).map(|entry| entry.key().heap_bytes()).sum();
    let entries = map.len();
    let leaf = 8 + size_of::<Key<INLINE>>() + size_of::<V>();
    entries * (leaf + NODE_BYTES_PER_ENTRY) + heap * entries / entries.clamp(1, SAMPLE)
}

/// Calls `visit` with the entries between the bounds in order, or against it, until it says no.
#[inline]
fn scan<const INLINE: usize, V: Send + 'static>(
    map: &ArtMap<Key<INLINE>, V>,
    span: Span<'_>,
    reverse: bool,
    mut visit: impl FnMut(&[u8], &V) -> bool,
) {
    let guard = map.pin();
    let low = if span.low.is_empty() { Bound::Unbounded } else { Bound::Included(span.low) };
    let high = span.high.map_or(Bound::Unbounded, Bound::Excluded);
    let mut entries = map.range_with_guard::<_, [u8]>((low, high), &guard);
    if reverse {
        while let Some(entry) = entries.next_back()
            && visit(entry.key().as_bytes(), entry.value())
        {}
    } else {
        while let Some(entry) = entries.next()
            && visit(entry.key().as_bytes(), entry.value())
        {}
    }
}

/// A unique index.
pub(super) struct UniqueTree {
    map: ArtMap<UniqueKey, AtomicU64>,
    lists: Box<Lists>,
}

impl Entries for UniqueTree {
    type Word = AtomicU64;
    type Entry<'a> = EntryRef<'a, UniqueKey, AtomicU64>;

    fn find(&self, key: &[u8]) -> Option<Self::Entry<'_>> {
        self.map.get_by_slice(key)
    }

    fn find_or_insert(&self, key: &[u8], word: u64) -> (Self::Entry<'_>, bool) {
        let mut absent = false;
        let entry = self.map.get_or_insert_with(UniqueKey::new(key), || {
            absent = true;
            AtomicU64::new(word)
        });
        (entry, absent)
    }

    fn unlink(&self, entry: &Self::Entry<'_>) {
        entry.remove();
    }
}

impl UniqueTree {
    pub(super) fn new() -> UniqueTree {
        UniqueTree { map: ArtMap::new(), lists: Box::new(Lists::new()) }
    }

    /// See [`posting::claim`].
    pub(super) fn claim<E>(
        &self,
        key: &[u8],
        row: RowId,
        judge: impl FnMut(RowId) -> Result<Verdict, E>,
    ) -> Result<(), E> {
        posting::claim(self, &self.lists, key, row, judge)
    }

    /// See [`posting::remove`].
    pub(super) fn remove_claimed(&self, key: &[u8], row: RowId, dead: impl FnMut() -> bool) {
        posting::remove(self, &self.lists, key, row, dead);
    }

    /// The only row that was claimed under exactly this key; `Err` if there are several.
    #[inline]
    pub(super) fn only(&self, key: &[u8]) -> Result<Option<RowId>, ()> {
        let row = self.map.with_value(key, |word| match Posting::of(posting::Word::load(word)) {
            Posting::One(row) => Ok(row),
            _ => Err(()),
        });
        row.transpose()
    }

    /// Calls `visit` with the rows that were claimed under exactly this key.
    #[inline]
    pub(super) fn lookup_claimed(&self, key: &[u8], mut visit: impl FnMut(RowId) -> bool) {
        let word = self.map.with_value(key, |word| match Posting::of(posting::Word::load(word)) {
            Posting::One(row) => Ok(row),
            _ => Err(posting::rows(word, &self.lists)),
        });
        match word {
            None => {}
            Some(Ok(row)) => {
                visit(row);
            }
            Some(Err(rows)) => {
                let _stopped = rows.into_iter().all(visit);
            }
        }
    }
}

impl OrderedIndex for UniqueTree {
    fn insert(&self, key: &[u8], row: RowId) {
        self.map.insert(UniqueKey::new(&with_row(key, row)), AtomicU64::new(SUFFIXED));
    }

    fn remove(&self, key: &[u8], row: RowId, dead: impl FnMut() -> bool) {
        remove_pair(&self.map, key, row, dead);
    }

    #[inline]
    fn range(&self, span: Span<'_>, reverse: bool, visit: &mut impl FnMut(&[u8], RowId) -> bool) {
        scan(&self.map, span, reverse, |key, word| match Posting::of(posting::Word::load(word)) {
            Posting::One(row) => visit(key, row),
            Posting::Suffixed => {
                let (key, row) = split(key);
                visit(key, row)
            }
            Posting::Tomb => true,
            Posting::Listed(_) => posting::rows(word, &self.lists).into_iter().all(|row| visit(key, row)),
        });
    }

    fn len(&self) -> usize {
        self.map.len() + self.lists.surplus()
    }

    fn memory_bytes(&self) -> usize {
        memory_bytes(&self.map) + (self.lists.count() + self.lists.surplus()) * size_of::<Rows>() * 2
    }

    fn verify(&self) {
        let mut listed = 0;
        scan(&self.map, Span { low: &[], high: None }, false, |key, word| {
            match Posting::of(posting::Word::load(word)) {
                Posting::One(_) => {}
                Posting::Suffixed => assert!(key.len() > ROW_ID_BYTES),
                Posting::Tomb => panic!("a removed key was left in the tree: {key:02x?}"),
                Posting::Listed(_) => {
                    let mut rows = posting::rows(word, &self.lists);
                    let count = rows.len();
                    rows.sort_unstable();
                    rows.dedup();
                    assert!(count > 0 && rows.len() == count, "rows listed twice under {key:02x?}");
                    listed += 1;
                }
            }
            true
        });
        assert_eq!(listed, self.lists.count(), "lists without an entry");
    }
}

/// A non-unique index.
pub(super) struct PairTree {
    map: ArtMap<PairKey, ()>,
}

impl PairTree {
    pub(super) fn new() -> PairTree {
        PairTree { map: ArtMap::new() }
    }
}

impl OrderedIndex for PairTree {
    fn insert(&self, key: &[u8], row: RowId) {
        // Replaces the leaf of a pair that is there already, so that a removal decided on before
        // fails (`remove_pair`).
        self.map.insert(PairKey::new(&with_row(key, row)), ());
    }

    fn remove(&self, key: &[u8], row: RowId, dead: impl FnMut() -> bool) {
        remove_pair(&self.map, key, row, dead);
    }

    #[inline]
    fn range(&self, span: Span<'_>, reverse: bool, visit: &mut impl FnMut(&[u8], RowId) -> bool) {
        scan(&self.map, span, reverse, |pair, ()| {
            let (key, row) = split(pair);
            visit(key, row)
        });
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn memory_bytes(&self) -> usize {
        memory_bytes(&self.map)
    }

    fn verify(&self) {
        scan(&self.map, Span { low: &[], high: None }, false, |pair, ()| {
            assert!(pair.len() > ROW_ID_BYTES, "a key without a row id: {pair:02x?}");
            true
        });
    }
}

/// Removes key ‖ row id if `dead` agrees; if it was inserted anew after `dead` was asked, it is
/// asked again.
fn remove_pair<const INLINE: usize, V: Send + 'static>(
    map: &ArtMap<Key<INLINE>, V>,
    key: &[u8],
    row: RowId,
    mut dead: impl FnMut() -> bool,
) {
    let pair = with_row(key, row);
    while let Some(entry) = map.get_by_slice(&pair)
        && dead()
        && !entry.remove()
    {}
}
