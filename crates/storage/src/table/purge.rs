//! Purging: removal of index entries that no version of their row has any more.
//!
//! When an update's record leaves its chain, a before-image is lost. The keys of that image are searched for
//! in the rest of the chain, and removed from their indexes if no version has them. A few rows that are
//! changed again and again behind a reader have chains of thousands of versions. To search all of them for
//! each record that leaves would take quadratic time. So the records of a long chain are deferred until the
//! collector releases its guard, or something else happens to the row. Then their keys are searched for
//! together:
//!
//! ```text
//! in place → newest → … → under → … → oldest          left in the chain
//!                       ↑
//!          goneₙ → … → gone₂ → gone₁                  were here, side by side
//! ```
//! For each index one walk down the chain collects the keys before all records that have left; another one
//! removes those that versions still have. A writer that gives the row one of them meanwhile is not
//! prevented: it inserts the entry again, and the index calls `dead` again ([`Index::remove_if`]). Then only
//! records that were added to the chain since are read.
//!
//! Invariants:
//! - The deferred records of a row were side by side, with `under` below them, which has not left the chain
//!   since. It is `None` if they were the oldest, or if only the row's insertion is below.
//! - They, and what they refer to, are freed after the guard is released ([`Purges::finish`] comes before).

use super::keys::{key_columns, key_of};
use super::{Table, changes};
use crate::block::{Block, RawCell};
use crate::version::{Record, UndoHeader, restore_columns};
use crate::{Guard, Index, KeyBuffer};
use firn_base::sync::Arc;
use firn_base::{ColumnId, RowId, Slot, TableId};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// Small limits in tests, where long chains are rare.
const SMALL: bool = cfg!(any(test, feature = "models"));

/// Records of a chain that are read each time: as many as a hot row has while committers collect every few
/// commits.
const FEW: usize = if SMALL { 1 } else { 32 };

/// The largest number of deferred records of a row, so that their keys take some megabytes.
const PUT_OFF: usize = if SMALL { 1 << 10 } else { 1 << 14 };

/// Keys in indexes that a row has left.
pub(crate) type ReplacedKeys = SmallVec<[(Arc<Index>, KeyBuffer); 1]>;

/// Updates of long chains whose records have left under one guard, and whose keys are still to be searched
/// for.
#[derive(Default)]
pub(crate) struct Purges {
    /// Ordered, so that the sequence is the same each time.
    rows: BTreeMap<(TableId, RowId), PutOff>,
    /// The number of records of chains that were read, as a measure of the work.
    looked_at: usize,
}

/// The deferred records of one row.
struct PutOff {
    table: Arc<Table>,
    under: Option<NonNull<UndoHeader>>,
    /// The oldest first.
    gone: Vec<NonNull<UndoHeader>>,
}

/// The values of an index's columns in a row, in place or in one of its versions.
struct Image<'a> {
    block: &'a Block,
    index: &'a Index,
    columns: SmallVec<[ColumnId; 8]>,
    raw: SmallVec<[RawCell; 8]>,
}

/// Keys that a row had, some of which no version may have any more.
struct Orphans<'a, 'g> {
    table: &'a Table,
    index: &'a Index,
    block: &'a Block,
    slot: Slot,
    guard: &'g Guard,
    /// Ascending, and whether no version was found to have it.
    keys: Vec<(KeyBuffer, bool)>,
    /// The head of the chain when it was last read; everything below it was read.
    seen: Option<Record<'g>>,
    looked_at: usize,
}

impl Purges {
    /// Defers an update that has left its chain, where `under` is below its place.
    fn put_off(&mut self, table: &Arc<Table>, record: Record<'_>, under: Option<Record<'_>>, guard: &Guard) {
        let (block, slot) = (record.block(), record.slot());
        let under = under.map(pointer);
        let id = row_of(block, slot);
        if self.rows.get(&id).is_some_and(|row| row.under != under) {
            self.finish_row(block, slot, guard);
        }
        let row =
            self.rows.entry(id).or_insert_with(|| PutOff { table: table.clone(), under, gone: Vec::new() });
        row.gone.push(pointer(record));
        if row.gone.len() == PUT_OFF {
            self.finish_row(block, slot, guard);
        }
    }

    fn has(&self, block: &Block, slot: Slot) -> bool {
        !self.rows.is_empty() && self.rows.contains_key(&row_of(block, slot))
    }

    /// Processes the deferred records of a row to which something else is about to happen.
    pub fn finish_row(&mut self, block: &Block, slot: Slot, guard: &Guard) {
        if self.rows.is_empty() {
            return;
        }
        if let Some(row) = self.rows.remove(&row_of(block, slot)) {
            row.finish(&mut self.looked_at, guard);
        }
    }

    /// The same if the deferred records were above a record that is about to leave the chain.
    pub fn finish_above(&mut self, under: Record<'_>, guard: &Guard) {
        let (block, slot) = (under.block(), under.slot());
        if !self.rows.is_empty() && self.rows.get(&row_of(block, slot)).is_some_and(|row| row.under.is_some())
        {
            self.finish_row(block, slot, guard);
        }
    }

    /// Processes all deferred records, before `guard` is released. Returns how many records were read in all.
    pub fn finish(mut self, guard: &Guard) -> usize {
        for row in std::mem::take(&mut self.rows).into_values() {
            row.finish(&mut self.looked_at, guard);
        }
        self.looked_at
    }
}

impl Drop for Purges {
    fn drop(&mut self) {
        debug_assert!(self.rows.is_empty() || std::thread::panicking(), "all deferred records are processed");
    }
}

impl PutOff {
    /// Removes the entries of the keys before the records, unless a version has them.
    fn finish(self, looked_at: &mut usize, guard: &Guard) {
        // SAFETY: they are freed once the guard is released under which they have left their chains.
        let record = |at: &NonNull<UndoHeader>| -> Record<'_> { unsafe { Record::from_raw(*at) } };
        let gone: Vec<Record<'_>> = self.gone.iter().map(record).collect();
        let under = self.under.as_ref().map(record);
        let Some(oldest) = gone.first() else { return };
        let (block, slot) = (oldest.block(), oldest.slot());
        for index in self.table.indexes.get(guard).all().iter() {
            if gone.iter().any(|record| changes(index, *record)) {
                let keys = self.table.keys_gone(index, &gone, under, looked_at, guard);
                let keys = keys.into_iter().map(|key| (key, true)).collect();
                let table = &*self.table;
                let mut orphans =
                    Orphans { table, index, block, slot, guard, keys, seen: None, looked_at: 0 };
                orphans.purge();
                *looked_at += orphans.looked_at;
            }
        }
    }
}

impl<'a> Image<'a> {
    /// The values in place. The caller holds the row's key lock, so that they are consistent.
    fn in_place(block: &'a Block, index: &'a Index, slot: Slot) -> Image<'a> {
        let (columns, mut raw) = key_columns(index);
        for (column, cell) in columns.iter().zip(&mut raw) {
            *cell = block.load_cell(slot, *column);
        }
        Image { block, index, columns, raw }
    }

    fn take_back(&mut self, record: Record<'_>) {
        restore_columns(record, &self.columns, &mut self.raw);
    }

    fn key(&self) -> KeyBuffer {
        key_of(self.block, self.index, &self.raw)
    }
}

impl Orphans<'_, '_> {
    /// Removes the entries of those keys that no version has.
    fn purge(&mut self) {
        let (index, row, guard) = (self.index, self.block.row(self.slot), self.guard);
        self.look();
        for at in 0..self.keys.len() {
            let (key, is_orphan) = self.keys[at].clone();
            if is_orphan {
                index.remove_if(&key, row, guard, &mut || self.look() != key && self.keys[at].1);
            }
        }
    }

    /// Removes from the list the keys of versions that were added to the chain since it was last read.
    /// Returns the key in place.
    fn look(&mut self) -> KeyBuffer {
        let (index, seen) = (self.index, self.seen);
        let (keys, looked_at) = (&mut self.keys, &mut self.looked_at);
        let (mut in_place, mut newest) = (KeyBuffer::new(), None);
        self.table.walk(index, self.block, self.slot, self.guard, |image, record| {
            let Some(record) = record else {
                in_place = image.key();
                return true;
            };
            newest = newest.or(Some(record));
            if Some(record) == seen {
                return false;
            }
            *looked_at += 1;
            image.take_back(record);
            if is_version(index, record) {
                let key = image.key();
                if let Ok(at) = keys.binary_search_by(|(orphan, _)| orphan.cmp(&key)) {
                    keys[at].1 = false;
                }
            }
            true
        });
        self.seen = newest;
        in_place
    }
}

impl Table {
    /// Walks down the chain from the values of an index's columns in place, as long as `step` returns true.
    /// Undoes each change for which it is called. Returns the resulting values.
    fn walk<'a, 'g>(
        &self,
        index: &'a Index,
        block: &'a Block,
        slot: Slot,
        guard: &'g Guard,
        mut step: impl FnMut(&mut Image<'a>, Option<Record<'g>>) -> bool,
    ) -> Image<'a> {
        let mut turn = Some(self.key_lock(block.row(slot)).lock());
        let mut image = Image::in_place(block, index, slot);
        let mut goes_on = step(&mut image, None);
        let mut next = block.newest(slot, guard);
        while goes_on && let Some(record) = next {
            // If it has ended, it and everything below it does not change.
            turn = turn.filter(|_| record.stamp().time().is_none());
            goes_on = step(&mut image, Some(record));
            next = record.older(guard);
        }
        image
    }

    /// Removes the entries of the keys that an update replaced whose record has left its chain, where `under`
    /// is below its place, unless a version still has them. If the chain is long, this is deferred.
    pub(crate) fn purge_before_image(
        self: &Arc<Table>,
        record: Record<'_>,
        under: Option<Record<'_>>,
        purges: &mut Purges,
        guard: &Guard,
    ) {
        if !self.touches_index(record, guard) {
            return;
        }
        // The insertion of the row has no before-image.
        let under = under.filter(|under| !under.is_insert());
        let (block, slot) = (record.block(), record.slot());
        let chain = std::iter::successors(block.newest(slot, guard), |record| record.older(guard));
        if purges.has(block, slot) || chain.take(FEW + 1).count() > FEW {
            return purges.put_off(self, record, under, guard);
        }
        for index in self.indexes.get(guard).all().iter().filter(|index| changes(index, record)) {
            for key in self.keys_gone(index, &[record], under, &mut purges.looked_at, guard) {
                self.purge(index, &key, block.row(slot), &mut purges.looked_at, guard);
            }
        }
    }

    /// The keys that a row had before updates that have left its chain, the oldest first, where `under` is
    /// below their place; each key once, ascending.
    fn keys_gone(
        &self,
        index: &Index,
        gone: &[Record<'_>],
        under: Option<Record<'_>>,
        looked_at: &mut usize,
        guard: &Guard,
    ) -> Vec<KeyBuffer> {
        let Some(oldest) = gone.first() else { return Vec::new() };
        let mut image = self.walk(index, oldest.block(), oldest.slot(), guard, |image, record| {
            let Some(record) = record else { return true };
            if Some(record) == under {
                return false;
            }
            *looked_at += 1;
            image.take_back(record);
            true
        });
        let mut keys = Vec::new();
        for record in gone.iter().rev() {
            image.take_back(*record);
            if changes(index, *record) {
                keys.push(image.key());
            }
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The keys that a row had before an update in its chain.
    pub(crate) fn keys_before(&self, record: Record<'_>, guard: &Guard) -> ReplacedKeys {
        if !self.touches_index(record, guard) {
            return ReplacedKeys::new();
        }
        let replaced = |index: &Arc<Index>| {
            let image = self.walk(index, record.block(), record.slot(), guard, |image, newer| {
                newer.iter().for_each(|newer| image.take_back(*newer));
                newer != Some(record)
            });
            (index.clone(), image.key())
        };
        self.indexes.get(guard).all().iter().filter(|index| changes(index, record)).map(replaced).collect()
    }

    /// Removes the entries of such keys, unless a version of the row still has them.
    pub(crate) fn purge_keys(&self, row: RowId, keys: &ReplacedKeys, purges: &mut Purges, guard: &Guard) {
        keys.iter().for_each(|(index, key)| self.purge(index, key, row, &mut purges.looked_at, guard));
    }

    /// Removes the entry of `key` for `row` unless the row in place or a version of it still has the key. If
    /// an update gives the row this key meanwhile, it lists the row again and the index calls `dead` again.
    pub(super) fn purge(&self, index: &Index, key: &[u8], row: RowId, looked_at: &mut usize, guard: &Guard) {
        index.remove_if(key, row, guard, &mut || !self.any_version_has(index, key, row, looked_at, guard));
    }

    fn any_version_has(
        &self,
        index: &Index,
        key: &[u8],
        row: RowId,
        looked_at: &mut usize,
        guard: &Guard,
    ) -> bool {
        let mut has = false;
        self.walk(index, self.block(row), row.slot(), guard, |image, record| {
            has = match record {
                None => image.key().as_slice() == key,
                Some(record) => {
                    *looked_at += 1;
                    image.take_back(record);
                    is_version(index, record) && image.key().as_slice() == key
                }
            };
            !has
        });
        has
    }
}

/// Whether a row, or the former one in its slot, had another key of an index before `record`, in a version. The before-image of an undone
/// change is not a version: only its own transaction may have seen it.
fn is_version(index: &Index, record: Record<'_>) -> bool {
    record.has_entries() && !record.undone() && changes(index, record)
}

fn pointer(record: Record<'_>) -> NonNull<UndoHeader> {
    NonNull::new(record.as_ptr()).expect("a record has an address")
}

fn row_of(block: &Block, slot: Slot) -> (TableId, RowId) {
    (block.table, block.row(slot))
}

#[cfg(test)]
mod tests;
