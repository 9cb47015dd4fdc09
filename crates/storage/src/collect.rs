//! Garbage: undo records that no snapshot needs, index entries of dead versions, dead slots.
//!
//! There is one collector at a time (the transaction manager ensures it). It only unlinks. What it has
//! unlinked is freed once every guard of that time is released ([`Garbage::free`]).

use crate::digest::SharedDigest;
use crate::memory::prefetch;
use crate::table::Purges;
use crate::undo::{OwnRecord, UndoMemory, reuse};
use crate::version::{Change, Record, UndoHeader};
use crate::write_set::{Retired, TouchedTables, table_of};
use crate::{Guard, Table};
use firn_base::sync::Arc;
use firn_base::{RowId, Slot};
use std::ptr::NonNull;

/// Memory that has been unlinked, under one guard.
#[derive(Default)]
pub struct Garbage {
    memory: Vec<UndoMemory>,
    /// What the attic no longer keeps.
    pub(crate) records: Vec<OwnRecord>,
    /// The tables of the digests own the blocks that the records refer to, so the digests must outlive the
    /// records.
    digests: Vec<SharedDigest>,
    pub(crate) tables: Vec<TouchedTables>,
    /// What is to be done before the guard is released.
    pub(crate) purges: Purges,
}

impl Garbage {
    /// Frees it once every guard that is held now is released. Returns how many versions of rows were read
    /// until then, to find the keys that no version has any more.
    pub fn free(self, guard: &Guard) -> usize {
        let Garbage { memory, records, digests, tables, purges } = self;
        let looked_at = purges.finish(guard);
        if !memory.is_empty() || !records.is_empty() {
            guard.defer(move || drop((memory, records, digests, tables)));
        }
        looked_at
    }
}

impl Retired {
    /// Unlinks every record, removes index entries of what is dead, and gives dead slots back.
    ///
    /// The caller guarantees that every active and future snapshot reads at this write set's time or later.
    /// It also guarantees that write sets are collected in the order of their times.
    pub fn collect(self, garbage: &mut Garbage, guard: &Guard) {
        let Retired { records: list, memory, digest, .. } = self;
        let tables = &digest.get(guard).tables;
        // Slots are given out again only when every record of the row is unlinked: a row that was inserted,
        // changed and rolled back has several.
        let mut dead: Vec<(&Arc<Table>, RowId)> = Vec::new();
        for (position, at) in list.iter().enumerate() {
            prefetch_after(&list, position);
            // SAFETY: lies in `memory`.
            let record: Record<'_> = unsafe { Record::from_raw(*at) };
            let table = table_of(tables, record);
            match record.change() {
                // In no chain: no other transaction could name the table.
                Change::Insert | Change::InsertMany if record.is_out() => {
                    if record.undone() {
                        dead.extend(inserted_by(record).map(|row| (table, row)));
                    }
                }
                Change::InsertMany => {
                    for row in inserted_by(record) {
                        unlink(record, row.slot(), guard);
                        if record.undone() {
                            dead.push((table, row));
                        }
                    }
                }
                change => {
                    unlink(record, record.slot(), guard);
                    if clean_up(table, record, change, garbage, guard) {
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
        garbage.digests.push(digest);
    }

    /// Prefetches the first records, with which [`Retired::collect`] begins.
    pub fn prefetch(&self) {
        for record in self.records.iter().take(12) {
            prefetch(record.as_ptr().cast());
        }
    }

    /// Frees the memory of a write set whose records are all in the attic, or not needed.
    pub fn discard(self, garbage: &mut Garbage) {
        reuse(self.records);
        garbage.memory.push(self.memory);
        garbage.digests.push(self.digest);
    }
}

/// Prefetches what collecting the records after `position` will touch: behind a long reader neither they nor
/// their rows are in a cache. Returns the record that should have arrived by now.
#[inline]
pub(crate) fn prefetch_after(records: &[NonNull<UndoHeader>], position: usize) -> Option<Record<'_>> {
    const HEADS: usize = 6;
    const RECORDS: usize = 2 * HEADS;
    if let Some(record) = records.get(position + RECORDS) {
        prefetch(record.as_ptr().cast());
    }
    let record = records.get(position + HEADS)?;
    // SAFETY: lies in the memory of the write set that is being collected.
    let record: Record<'_> = unsafe { Record::from_raw(*record) };
    record.block().prefetch_head(record.slot());
    Some(record)
}

/// The rows that a record inserted.
pub(crate) fn inserted_by(record: Record<'_>) -> impl Iterator<Item = RowId> {
    let slots = record.slot().0..record.slot().0 + record.inserted_rows();
    slots.map(move |slot| record.block().row(Slot(slot)))
}

/// Removes `record`, the oldest of its chain, from the chain.
pub(crate) fn unlink(record: Record<'_>, slot: Slot, guard: &Guard) {
    // Unless it has been cut off already.
    replace(record, slot, None, guard);
}

/// Puts a record into the place of `record` in the chain of `slot`: one that is not linked yet, one from
/// behind `record`, or none. Returns false if `record` was not in the chain.
pub(crate) fn replace(record: Record<'_>, slot: Slot, instead: Option<Record<'_>>, guard: &Guard) -> bool {
    if let Some(instead) = instead {
        // Before a writer that links a record to it sets another.
        instead.set_newer(None);
    }
    if record.block().replace_head(slot, record, instead) {
        return true;
    }
    // There is a newer record before it.
    let Some(newer) = before(record, slot, guard) else { return false };
    newer.set_older(instead);
    if let Some(instead) = instead {
        instead.set_newer(Some(newer));
    }
    true
}

/// The record right before `record` in the chain of `slot`, which does not begin with `record`.
pub(crate) fn before<'g>(record: Record<'g>, slot: Slot, guard: &'g Guard) -> Option<Record<'g>> {
    if let Some(newer) = record.newer(guard) {
        debug_assert!(newer.older(guard) == Some(record), "neighbours refer to each other");
        return Some(newer);
    }
    // Linked just now, or to a record of the attic; or a record of many rows.
    let mut next = record.block().newest(slot, guard);
    while let Some(newer) = next {
        let older = newer.older(guard);
        if older == Some(record) {
            return Some(newer);
        }
        next = older;
    }
    None
}

/// Removes index entries that only a record, which has left its chain as the oldest one, still needed. Returns whether its
/// slot is free: its row is dead to every snapshot, and no other row has the slot.
pub(crate) fn clean_up(
    table: &Arc<Table>,
    record: Record<'_>,
    change: Change,
    garbage: &mut Garbage,
    guard: &Guard,
) -> bool {
    match (change, record.undone()) {
        (Change::Insert, undone) => undone,
        // Its keys go with the record of the row that has the slot now.
        (Change::Delete, false) if record.block().newest(record.slot(), guard).is_some() => false,
        (Change::Delete, false) => {
            garbage.purges.finish_row(record.block(), record.slot(), guard);
            table.remove_entries(record.block().row(record.slot()), guard);
            true
        }
        (Change::Update | Change::Refill, false) => {
            table.purge_before_image(record, None, &mut garbage.purges, guard);
            false
        }
        _ => false,
    }
}
