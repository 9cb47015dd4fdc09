//! The indexes over the radix tree ([`super::radix`]), in which readers write no shared memory.
//!
//! A unique index is a tree from keys to postings ([`super::posting`]). A non-unique one is a tree from key ‖
//! row id to the row id.

use super::KeyBuffer;
use super::ordered::{EVERYTHING, OrderedIndex, ROW_ID_BYTES, Span, Verdict, split, with_row};
use super::posting::{self, Entries, Lists, Posting, Rows, SUFFIXED};
use super::radix::{AT_ONCE, Sighting, Tree};
use super::runs::Run;
use crate::Guard;
use firn_base::RowId;

/// A unique index.
pub(super) struct UniqueTree {
    tree: Tree,
    lists: Box<Lists>,
}

/// A tree with a guard that keeps its nodes from being freed.
struct Pinned<'a>(&'a Tree, &'a Guard);

impl Entries for Pinned<'_> {
    type Sighting = Sighting;

    #[inline]
    fn insert(&self, key: &[u8], value: u64) -> bool {
        self.0.insert(key, value, self.1).is_ok()
    }

    fn look(&self, key: &[u8]) -> (Option<u64>, Sighting) {
        let seen = self.0.look(key, self.1);
        (seen.value, seen)
    }

    fn replace(&self, key: &[u8], seen: Sighting, new: Option<u64>) -> bool {
        self.0.replace(key, seen, new, self.1)
    }
}

impl UniqueTree {
    pub(super) fn new() -> UniqueTree {
        UniqueTree { tree: Tree::new(), lists: Box::new(Lists::new()) }
    }

    /// The tree.
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// See [`posting::claim`].
    #[inline]
    pub(super) fn claim<E>(
        &self,
        key: &[u8],
        row: RowId,
        guard: &Guard,
        judge: impl FnMut(RowId) -> Result<Verdict, E>,
    ) -> Result<(), E> {
        posting::claim(&Pinned(&self.tree, guard), &self.lists, key, row, judge)
    }

    /// Lists rows under keys that are not in the tree yet; see [`super::Index::claim_run`].
    pub(super) fn claim_run(&self, key: &[u8], run: &Run, guard: &Guard) -> bool {
        self.tree.insert_run(key, run, guard)
    }

    /// See [`posting::remove`].
    pub(super) fn remove_claimed(&self, key: &[u8], row: RowId, guard: &Guard, dead: impl FnMut() -> bool) {
        posting::remove(&Pinned(&self.tree, guard), &self.lists, key, row, dead);
    }

    /// The only rows that were claimed under exactly these keys, at most [`AT_ONCE`]; `Err` for a key that
    /// has several.
    pub(super) fn only_many(
        &self,
        keys: &[KeyBuffer],
        rows: &mut [Result<Option<RowId>, ()>],
        guard: &Guard,
    ) {
        let mut values = [None; AT_ONCE];
        let values = &mut values[..keys.len()];
        self.tree.get_many(keys, values, guard);
        for (row, value) in rows.iter_mut().zip(values) {
            *row = match value.map(Posting::of) {
                None => Ok(None),
                Some(Posting::One(row)) => Ok(Some(row)),
                Some(_) => Err(()),
            };
        }
    }

    /// Calls `visit` with the rows that were claimed under exactly this key.
    #[inline]
    pub(super) fn lookup_claimed(&self, key: &[u8], guard: &Guard, mut visit: impl FnMut(RowId) -> bool) {
        match self.tree.get(key, guard).map(Posting::of) {
            None => {}
            Some(Posting::One(row)) => {
                visit(row);
            }
            Some(_) => {
                let _stopped = self.rows(key, guard).into_iter().all(visit);
            }
        }
    }

    #[cold]
    fn rows(&self, key: &[u8], guard: &Guard) -> Rows {
        posting::rows(&Pinned(&self.tree, guard), &self.lists, key)
    }
}

impl OrderedIndex for UniqueTree {
    fn insert(&self, key: &[u8], row: RowId, guard: &Guard) {
        insert_pair(&self.tree, key, row, SUFFIXED, guard);
    }

    fn remove(&self, key: &[u8], row: RowId, guard: &Guard, dead: impl FnMut() -> bool) {
        remove_pair(&self.tree, key, row, guard, dead);
    }

    #[inline]
    fn range(
        &self,
        span: Span<'_>,
        reverse: bool,
        guard: &Guard,
        ahead: &mut impl FnMut(RowId),
        visit: &mut impl FnMut(&[u8], RowId) -> bool,
    ) {
        let mut soon = |value| {
            if let Posting::One(row) = Posting::of(value) {
                ahead(row);
            }
        };
        self.tree.range(span, reverse, guard, &mut soon, &mut |key, value| match Posting::of(value) {
            Posting::One(row) => visit(key, row),
            Posting::Suffixed => {
                let (key, row) = split(key);
                visit(key, row)
            }
            Posting::Listed(_) => self.rows(key, guard).into_iter().all(|row| visit(key, row)),
        });
    }

    fn len(&self, guard: &Guard) -> usize {
        count(&self.tree, guard) + self.lists.surplus()
    }

    fn memory_bytes(&self, guard: &Guard) -> usize {
        self.tree.memory_bytes(guard) + (self.lists.count() + self.lists.surplus()) * size_of::<Rows>() * 2
    }

    fn verify(&self, guard: &Guard) {
        self.tree.verify();
        let mut listed = 0;
        self.tree.range(EVERYTHING, false, guard, &mut |_| {}, &mut |key, value| {
            match Posting::of(value) {
                Posting::One(_) => {}
                Posting::Suffixed => assert!(key.len() > ROW_ID_BYTES),
                Posting::Listed(_) => {
                    let mut rows = self.rows(key, guard);
                    let count = rows.len();
                    rows.sort_unstable();
                    rows.dedup();
                    assert!(count > 1 && rows.len() == count, "rows listed twice under {key:02x?}");
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
    tree: Tree,
}

impl PairTree {
    pub(super) fn new() -> PairTree {
        PairTree { tree: Tree::new() }
    }
}

impl PairTree {
    /// The tree.
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Calls `visit` with all key ‖ row id from `low` on, until it returns false.
    pub(super) fn pairs_from(&self, low: &[u8], guard: &Guard, visit: &mut impl FnMut(&[u8]) -> bool) {
        self.tree.range(Span { low, high: None }, false, guard, &mut |_| {}, &mut |pair, _| visit(pair));
    }
}

impl OrderedIndex for PairTree {
    fn insert(&self, key: &[u8], row: RowId, guard: &Guard) {
        insert_pair(&self.tree, key, row, posting::single(row), guard);
    }

    fn remove(&self, key: &[u8], row: RowId, guard: &Guard, dead: impl FnMut() -> bool) {
        remove_pair(&self.tree, key, row, guard, dead);
    }

    #[inline]
    fn range(
        &self,
        span: Span<'_>,
        reverse: bool,
        guard: &Guard,
        ahead: &mut impl FnMut(RowId),
        visit: &mut impl FnMut(&[u8], RowId) -> bool,
    ) {
        let mut soon = |value| ahead(RowId::from_bits(value));
        self.tree.range(span, reverse, guard, &mut soon, &mut |pair, _| {
            let (key, row) = split(pair);
            visit(key, row)
        });
    }

    fn len(&self, guard: &Guard) -> usize {
        count(&self.tree, guard)
    }

    fn memory_bytes(&self, guard: &Guard) -> usize {
        self.tree.memory_bytes(guard)
    }

    fn verify(&self, guard: &Guard) {
        self.tree.verify();
        self.tree.range(EVERYTHING, false, guard, &mut |_| {}, &mut |pair, value| {
            assert!(pair.len() > ROW_ID_BYTES, "a key without a row id: {pair:02x?}");
            assert_eq!(split(pair).1, RowId::from_bits(value));
            true
        });
    }
}

fn count(tree: &Tree, guard: &Guard) -> usize {
    let mut count = 0;
    tree.range(EVERYTHING, false, guard, &mut |_| {}, &mut |_, _| {
        count += 1;
        true
    });
    count
}

/// Inserts key ‖ row id with a value that is the same each time. If the pair exists, it counts as inserted
/// again, so that a removal decided before fails.
fn insert_pair(tree: &Tree, key: &[u8], row: RowId, value: u64, guard: &Guard) {
    let pair = with_row(key, row);
    while tree.insert(&pair, value, guard).is_err() {
        let seen = tree.look(&pair, guard);
        if seen.value.is_some() && tree.replace(&pair, seen, Some(value), guard) {
            return;
        }
    }
}

/// Removes key ‖ row id if `dead` returns true. If the pair was inserted again after the call of `dead`, it
/// is called again.
fn remove_pair(tree: &Tree, key: &[u8], row: RowId, guard: &Guard, mut dead: impl FnMut() -> bool) {
    let pair = with_row(key, row);
    loop {
        let seen = tree.look(&pair, guard);
        if seen.value.is_none() || !dead() || tree.replace(&pair, seen, None, guard) {
            return;
        }
    }
}
