//! Garbage: undo records that no snapshot needs, index entries of dead versions, dead slots.
//!
//! One collector at a time (the transaction manager sees to it). It only ever unlinks; what it
//! unlinks is freed once every guard of that time has gone ([`Garbage::free`]).

use crate::memory::prefetch;
use crate::undo::{UndoMemory, reuse};
use crate::version::{Change, Record, UndoHeader};
use crate::write_set::{Retired, TouchedTables, table_of};
use crate::{Guard, Table};
use firn_base::sync::Arc;
use firn_base::{RowId, Slot, Time};
use std::ptr::NonNull;

/// Memory that has been unlinked.
#[derive(Default)]
pub struct Garbage {
    memory: Vec<UndoMemory>,
    /// Blocks that the records name must outlive the records.
    tables: Vec<TouchedTables>,
}

impl Garbage {
    /// Frees it once no guard that is held now is held any more.
    pub fn free(self, guard: &Guard) {
        if !self.memory.is_empty() {
            guard.defer(move || drop(self));
        }
    }
}

impl Retired {
    /// Unlinks every record, removes index entries of what is dead, and gives dead slots back.
    ///
    /// The caller guarantees that every active and future snapshot reads at this write set's time or
    /// later, and that write sets are collected in the order of their times.
    pub fn collect(self, garbage: &mut Garbage, guard: &Guard) {
        let Retired { records: list, memory, tables, .. } = self;
        let list = list.into_inner();
        // Slots are given out again only when every record of the row is unlinked: a row that was
        // inserted, changed and rolled back has several.
        let mut dead: Vec<(&Arc<Table>, RowId)> = Vec::new();
        for (position, at) in list.iter().enumerate() {
            prefetch_after(&list, position);
            // SAFETY: lies in `memory`.
            let record: Record<'_> = unsafe { Record::from_raw(*at) };
            let table = table_of(&tables, record);
            match record.change() {
                Change::InsertMany => {
                    let first = record.slot().0;
                    for slot in first..first + record.inserted_rows() {
                        unlink(record, Slot(slot), guard);
                        if record.undone() {
                            dead.push((table, record.block().row(Slot(slot))));
                        }
                    }
                }
                change => {
                    unlink(record, record.slot(), guard);
                    if clean_up(table, record, change, guard) {
                        dead.push((table, record.block().row(record.slot())));
                    }
                }
            }
        }
        for (table, row) in dead {
            table.free_slot(row);
        }
        reuse(list);
        garbage.memory.push(memory);
        garbage.tables.push(tables);
    }

    /// Asks the processor to fetch the first records, of which [`Retired::collect`] will begin.
    pub fn prefetch(&self) {
        for record in self.records.read().iter().take(12) {
            prefetch(record.as_ptr().cast());
        }
    }

    /// Drops records that lie between what anybody reads: of two neighbours in a chain, the newer
    /// goes if no active snapshot reads at a time from the older's stamp up to its own, and the
    /// older holds every column it holds. A snapshot that applies the newer applies the older as
    /// well, and ends up with the older's image. Locks go in any case. Returns how many went.
    ///
    /// `active` are the read times of all active snapshots, ascending; snapshots begun since they
    /// were taken read at `now` or later.
    pub fn trim(&self, active: &[Time], now: Time, garbage_follows: &Guard) -> usize {
        let guard = garbage_follows;
        let mut records = self.records.write();
        let before = records.len();
        let tables = &self.tables;
        let time = self.time;
        for at in records.iter() {
            // SAFETY: lies in `self.memory`.
            let record: Record<'_> = unsafe { Record::from_raw(*at) };
            if matches!(record.change(), Change::Update | Change::Lock) {
                record.older(guard).iter().for_each(|older| prefetch(older.as_ptr().cast()));
                record.block().prefetch_head(record.slot());
            }
        }
        records.retain(|at| {
            // SAFETY: lies in `self.memory`.
            let record: Record<'_> = unsafe { Record::from_raw(*at) };
            if !matches!(record.change(), Change::Update | Change::Lock) || time > now {
                return true;
            }
            let Some(older) = record.older(guard) else { return true };
            if record.change() == Change::Lock {
                // Whoever reads, it tells them nothing.
                return !bypass(record, older, guard);
            }
            let Some(older_time) = older.stamp().time() else { return true };
            let read_between = active.partition_point(|read| *read < older_time)
                != active.partition_point(|read| *read < time);
            if read_between || older.change() != Change::Update || !record.covered_by(older) {
                return true;
            }
            // One that was undone conflicts with nobody: at the head of the chain it would hide the
            // change of `record` from a writer who does not see it.
            if older.undone() {
                return true;
            }
            // Key changes leave index entries that collecting the record cleans up.
            if table_of(tables, record).touches_index(record, guard) {
                return true;
            }
            !bypass(record, older, guard)
        });
        before - records.len()
    }

    /// Whether trimming has taken everything.
    pub fn is_empty(&self) -> bool {
        self.records.read().is_empty()
    }

    /// Gives up the memory of a write set all of whose records were trimmed.
    pub fn discard(self, garbage: &mut Garbage) {
        assert!(self.is_empty());
        garbage.memory.push(self.memory);
        garbage.tables.push(self.tables);
    }
}

/// Asks the processor to fetch what collecting the records after `position` will touch: behind a long
/// reader neither they nor their rows are in a cache any more.
#[inline]
fn prefetch_after(records: &[NonNull<UndoHeader>], position: usize) {
    const HEADS: usize = 6;
    const RECORDS: usize = 2 * HEADS;
    if let Some(record) = records.get(position + RECORDS) {
        prefetch(record.as_ptr().cast());
    }
    if let Some(record) = records.get(position + HEADS) {
        // SAFETY: lies in the memory of the write set that is being collected.
        let record: Record<'_> = unsafe { Record::from_raw(*record) };
        record.block().prefetch_head(record.slot());
    }
}

/// Takes `record`, the oldest of its chain, out of it.
fn unlink(record: Record<'_>, slot: Slot, guard: &Guard) {
    if record.block().unlink_head(slot, record) {
        return;
    }
    // A newer record stands before it, or trimming has already taken it out.
    if let Some(newer) = before(record, slot, guard) {
        newer.set_older(None);
    }
}

/// Takes `record` out of the middle of its chain, or off its head if nobody has written since. False
/// if it was not in it.
fn bypass(record: Record<'_>, older: Record<'_>, guard: &Guard) -> bool {
    let block = record.block();
    let slot = record.slot();
    // Before whoever links a record to `older` next may say otherwise.
    older.set_newer(None);
    if block.replace_head(slot, record, older) {
        return true;
    }
    let Some(newer) = before(record, slot, guard) else { return false };
    newer.set_older(Some(older));
    older.set_newer(Some(newer));
    true
}

/// The record that stands right before `record` in the chain of `slot`, which does not begin with it.
fn before<'g>(record: Record<'g>, slot: Slot, guard: &'g Guard) -> Option<Record<'g>> {
    if let Some(newer) = record.newer(guard) {
        debug_assert!(newer.older(guard) == Some(record), "neighbours name each other");
        return Some(newer);
    }
    // Linked a moment ago, or a record of many rows.
    let mut next = record.block().head(slot, guard);
    while let Some(newer) = next {
        let older = newer.older(guard);
        if older == Some(record) {
            return Some(newer);
        }
        next = older;
    }
    None
}

/// Removes index entries that went with a record; whether its row is dead to everybody.
fn clean_up(table: &Arc<Table>, record: Record<'_>, change: Change, guard: &Guard) -> bool {
    match (change, record.undone()) {
        (Change::Insert, undone) => undone,
        (Change::Delete, false) => {
            table.remove_entries(record.block().row(record.slot()), guard);
            true
        }
        (Change::Update, false) => {
            table.purge_before_images(record, guard);
            false
        }
        _ => false,
    }
}
