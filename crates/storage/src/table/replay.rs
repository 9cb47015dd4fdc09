//! Tables of a replica: rows change as the log of the primary says, beside readers with snapshots.
//!
//! One thread replays the log, and no other transaction writes. So there are no conflicts; all else is as on the primary:
//! versions, index entries, collection of what no snapshot needs.
//!
//! The log names rows by their ids, so each row must get the slot that it has on the primary. The primary uses a slot again
//! once none of *its* snapshots sees the former row; a snapshot of the replica may be older. Then that row is deleted, but still has
//! versions, and perhaps index entries. The new row is put over it: a record keeps all columns of the former row ([`Change::Refill`])
//! for the snapshots that see it. So replay never waits for a reader, and no reader is ever refused a row.
//!
//! | slot | what the new row gets |
//! |---|---|
//! | never passed: behind all slots that have been given out | a record of its insertion |
//! | vacant: passed, without row and versions | the same |
//! | of a deleted row that still has versions | a record with all columns of that row, above them |
//!
//! When the replica becomes a primary, the table gives out what is free from then on ([`Table::choose_slots`]).
//!
//! Invariants:
//! - A slot without a row and without a version is vacant or was never passed, except while the collector, which has unlinked its
//!   last version, removes the index entries of its row.
//! - No block is compact: the rows of such a block cannot be changed in place.

use super::Table;
use super::keys::key_in_place;
use super::slots::NONE;
use crate::block::Block;
use crate::index::Runs;
use crate::version::Change;
use crate::{Guard, Restored, WriteSet};
use firn_base::sync::{Mutex, Ordering};
use firn_base::thread;
use firn_base::{BlockNumber, Cell, ColumnId, Result, RowId, Slot, Snapshot};
use firn_log::faults::Fault;
use std::collections::HashSet;

impl Table {
    /// Lets the log decide which slots rows get from now on. Nothing has been changed beside readers yet.
    pub fn follow_log(&self) {
        let free = std::mem::take(&mut *self.free.lock());
        self.free_count.store(0, Ordering::Relaxed);
        let vacant = self.vacant.set(Mutex::new(Some(free.into_iter().collect())));
        assert!(vacant.is_ok(), "a table begins to follow once");
    }

    /// Gives out the free slots itself from now on: nothing is replayed any more, and transactions will write.
    pub fn choose_slots(&self) {
        // Slots become free through this lock, so each is in one of the lists.
        let mut vacant = self.vacant.get().expect("the table follows a log").lock();
        let mut free: Vec<RowId> = vacant.take().expect("the table follows a log").into_iter().collect();
        let last = self.blocks.len().checked_sub(1);
        for block in (0..last.unwrap_or(0)).filter_map(|number| self.blocks.get(BlockNumber(number))) {
            // The primary gave them out to transactions that have not committed, or would have later.
            free.extend((block.allocated()..self.layout.slots).map(|slot| block.row(Slot(slot))));
            block.allocate_through(Slot(self.layout.slots - 1));
        }
        // As after recovery: they are taken from the end.
        free.sort_unstable_by(|left, right| right.cmp(left));
        self.filling.store(last.unwrap_or(NONE), Ordering::Release);
        self.give_back(free);
    }

    /// Whether the log decides which slots rows get.
    pub(super) fn follows_log(&self) -> bool {
        self.vacant.get().is_some_and(|vacant| vacant.lock().is_some())
    }

    /// Calls `body` with the slots that are vacant.
    fn with_vacant<T>(&self, body: impl FnOnce(&mut HashSet<RowId>) -> T) -> T {
        let vacant = self.vacant.get().expect("the table follows a log");
        body(vacant.lock().as_mut().expect("the table follows a log"))
    }

    /// Inserts a row at its place, with one cell per column. Returns false, without a change, if there is a row already, or if
    /// blocks have no such slot.
    ///
    /// Error: a row with the same key in a unique index. Then the caller does not continue.
    pub fn replay_insert(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        cells: &[Cell<'_>],
        guard: &Guard,
    ) -> Result<bool> {
        debug_assert_eq!(cells.len(), self.columns.len());
        if !self.has_slots(row, 1) {
            return Ok(false);
        }
        let (block, slot) = (self.block_to_replay(row), row.slot());
        if block.is_present(slot) {
            return Ok(false);
        }
        block.prepare_write();
        if self.take_vacant(block, slot) {
            let record = write_set.push_plain(block, slot, Change::Insert);
            self.link_fresh(block, record);
            block.store_row(slot, cells);
        } else if self.refill(block, slot, write_set, guard) {
            self.keys_changed.store(true, Ordering::Release);
            let _turn = self.key_lock(row).lock();
            block.store_row(slot, cells);
        } else {
            let record = write_set.push_plain(block, slot, Change::Insert);
            self.link_fresh(block, record);
            block.store_row(slot, cells);
        }
        self.rows.fetch_add(1, Ordering::Relaxed);
        // As in `insert`.
        block.set_present(slot, true);
        write_set.count_row(&self.budget);
        self.enter_row(row, cells, None, snapshot, guard)?;
        Ok(true)
    }

    /// Inserts consecutive rows of a block, which `fill` gives their columns. Returns false, without a change, if not all of these
    /// slots are vacant or were never passed: then the rows are to be inserted one by one.
    ///
    /// Errors: those of `fill`, and as [`Table::replay_insert`].
    pub fn replay_insert_many(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        first: RowId,
        rows: u32,
        fill: impl FnOnce(&Restored<'_>) -> Result<()>,
        guard: &Guard,
    ) -> Result<bool> {
        if !self.has_slots(first, rows) {
            return Ok(false);
        }
        let block = self.block_to_replay(first);
        let slots = first.slot().0..first.slot().0 + rows;
        let passed = block.allocated();
        if slots.clone().map(Slot).any(|slot| slot.0 < passed && !self.is_vacant(block, slot)) {
            return Ok(false);
        }
        block.prepare_write();
        slots.clone().map(Slot).for_each(|slot| assert!(self.take_vacant(block, slot)));
        let record = write_set.push_insert_many(block, first.slot(), rows);
        self.link_many(block, record);
        self.rows.fetch_add(i64::from(rows), Ordering::Relaxed);
        let restored = Restored::over(block, first.slot(), rows);
        fill(&restored)?;
        restored.insert();
        write_set.count_growth(&self.budget);
        for index in self.indexes.get(guard).all().iter() {
            let mut runs = Runs::new(index);
            let mut enter = |key: &[u8], row: RowId| self.enter(index, key, row, snapshot, guard);
            for slot in slots.clone().map(Slot) {
                runs.add(&key_in_place(block, index, slot), block.row(slot), guard, &mut enter)?;
            }
            runs.finish(guard, &mut enter)?;
        }
        Ok(true)
    }

    /// Sets some columns of a row. Returns false, without a change, if there is no such row. Errors as [`Table::replay_insert`].
    pub fn replay_update(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        columns: &[ColumnId],
        cells: &[Cell<'_>],
        guard: &Guard,
    ) -> Result<bool> {
        if !self.is_there(row) {
            return Ok(false);
        }
        self.update(write_set, snapshot, row, columns, cells, guard).map(|()| true)
    }

    /// Deletes a row. Returns false, without a change, if there is no such row.
    pub fn replay_delete(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        guard: &Guard,
    ) -> Result<bool> {
        if !self.is_there(row) {
            return Ok(false);
        }
        self.delete(write_set, snapshot, row, guard).map(|()| true)
    }

    fn is_there(&self, row: RowId) -> bool {
        let block = self.blocks.get(row.block()).filter(|_| self.has_slots(row, 1));
        block.is_some_and(|block| block.is_present(row.slot()))
    }

    /// The block of a row, which is made if it does not exist yet.
    fn block_to_replay(&self, row: RowId) -> &Block {
        while self.blocks.len() <= row.block().0 {
            self.grow(self.blocks.len());
        }
        let block = self.blocks.get(row.block()).expect("just grown");
        assert!(!block.is_compact(), "no block of a replica is compact");
        block
    }

    /// The slots that are vacant, or free once the table follows no more.
    #[cfg(test)]
    pub(crate) fn vacant_slots(&self) -> HashSet<RowId> {
        match self.follows_log() {
            true => self.with_vacant(|vacant| vacant.clone()),
            false => self.free.lock().iter().copied().collect(),
        }
    }

    fn is_vacant(&self, block: &Block, slot: Slot) -> bool {
        self.with_vacant(|vacant| vacant.contains(&block.row(slot)))
    }

    /// Takes a slot that is vacant or was never passed. Returns false if it is neither.
    #[inline]
    fn take_vacant(&self, block: &Block, slot: Slot) -> bool {
        // Only this thread gives out slots.
        let passed = block.allocated();
        if slot.0 < passed {
            return self.with_vacant(|vacant| vacant.remove(&block.row(slot)));
        }
        if slot.0 > passed {
            // Transactions that got slots earlier than this one may commit later.
            self.with_vacant(|vacant| vacant.extend((passed..slot.0).map(|slot| block.row(Slot(slot)))));
        }
        block.allocate_through(slot);
        true
    }

    /// Links a record of a row that takes the slot of a deleted one, which has versions. Returns false if the slot has become vacant
    /// meanwhile, and was taken.
    fn refill(&self, block: &Block, slot: Slot, write_set: &mut WriteSet, guard: &Guard) -> bool {
        loop {
            let head = block.head(slot, guard);
            if head.record().is_none() {
                // The collector has unlinked the last version, and is about to make the slot vacant.
                if self.with_vacant(|vacant| vacant.remove(&block.row(slot))) {
                    return false;
                }
                thread::yield_now();
                continue;
            }
            let columns = if Fault::SlotReusedUnderReader.is_made() { 0 } else { self.columns.len() };
            let record = write_set.push_refill(block, slot, columns, |entries| {
                for column in (0..columns).map(|column| ColumnId(column as u16)) {
                    entries.put(column, block.load_cell(slot, column));
                }
            });
            if block.link(record, head) {
                return true;
            }
            // The collector has changed the head.
            write_set.pop();
        }
    }
}
