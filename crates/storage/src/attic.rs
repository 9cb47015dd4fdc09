//! The attic: undo records that a long reader still needs, in memory of their own.
//!
//! The memory of undo records is freed in whole segments, which several transactions share. Nearly every
//! transaction has some record that an older reader needs, such as that a row was inserted, or what a row was
//! before. So behind a long reader the collector moves the records that are needed here, and frees the
//! segments. Between two neighbouring active snapshots all times are the same to every reader, so little is
//! needed:
//!
//! | what happened to a row between two snapshots | what is kept of it |
//! |---|---|
//! | it was inserted, and perhaps changed then | a record that it shares with all such rows of its block |
//! | it was changed, any number of times | one record: the first value of each column |
//! | it was deleted | a record |
//! | another row was inserted in its slot | a record with all of its columns |
//! | it was inserted and deleted; it was locked; any change that was undone | nothing |
//!
//! Readers walk the chains meanwhile. One store puts a record in the place of others, into the newer
//! neighbour or the chain's head. The replaced records stay unchanged until every guard of that time is
//! released. So a reader sees the chain before or after the replacement, and both lead to the same row:
//!
//! ```text
//! head → P → r2 → r1 → a → …        r2, r1: of transactions; a: in the attic, of the same interval
//!        └──→ a' ─────────→ …        a' = what r2, r1 and a undo together
//! ```
//! When a snapshot ends, records that only this snapshot distinguished are merged ([`Attic::settle`]).
//!
//! A reader that noted `a` as the head, copied the row while `r1` changed it, and finds `a` at the head again
//! would use its copy. Therefore no record is moved before every guard is released that was held when its
//! transaction ended (the transaction manager ensures it).
//!
//! Invariants:
//! - The write sets whose records are here ended before all others. In every chain their records are behind
//!   all others.
//! - The stamp of a record here is as good as any other time that the record represents: no snapshot that is
//!   active at a move reads between them.

use crate::Guard;
use crate::collect::{Garbage, clean_up, inserted_by, prefetch_after, replace, unlink};
use crate::digest::Changed;
use crate::memory::prefetch;
use crate::table::{ReplacedKeys, Table};
use crate::undo::OwnRecord;
use crate::version::{Change, Record};
use crate::write_set::{Retired, TouchedTables, columns_set_by, table_of};
use firn_base::sync::Arc;
use firn_base::{BlockNumber, RowId, Slot, TableId, Time};
use smallvec::{SmallVec, smallvec};
use std::collections::{HashMap, VecDeque};

/// Records that are in no chain any more may remain while there are at most this many, plus a quarter of all.
const FEW_OUT: usize = 1024;

/// How far ahead in the list the older neighbours of records to be settled are fetched.
const SETTLED_AHEAD: usize = 8;

/// Undo records that only the oldest snapshots need. Owned by the collector.
pub struct Attic {
    /// Updates, deletes and refills, in the order of their stamps.
    records: VecDeque<OwnRecord>,
    /// Records merged from older ones, unordered, and a time than which none of them is older.
    joined: Vec<OwnRecord>,
    joined_since: Time,
    /// How many of both are in no chain any more.
    out: usize,
    /// For every block with inserted rows, when and where; the oldest first.
    inserts: HashMap<BlockId, Vec<Inserts>>,
    /// The same in the order of their stamps.
    insert_times: VecDeque<(Time, BlockId)>,
    /// The tables of all these, and the number of records of each.
    tables: HashMap<TableId, (Arc<Table>, usize)>,
    /// Bytes of the records that are in chains.
    bytes: usize,
    until: Time,
    /// Read times of the snapshots that distinguish records, ascending.
    dividing: Vec<Time>,
    /// Intervals in which there may be records that only an ended snapshot distinguished from older ones.
    unsettled: VecDeque<(Time, Time)>,
}

/// Rows that are dead to every snapshot once all of a write set's records are unlinked.
type Dead<'a> = Vec<(&'a Arc<Table>, RowId)>;

type BlockId = (TableId, BlockNumber);

/// Rows of a block that were inserted between two snapshots: the record that they share, and their slots.
struct Inserts {
    record: OwnRecord,
    first: u32,
    end: u32,
}

/// Read times of active snapshots, ascending.
#[derive(Clone, Copy)]
struct Snapshots<'a>(&'a [Time]);

impl Snapshots<'_> {
    /// Whether no snapshot has its read time between two changes, that is, sees one of them and not the
    /// other.
    fn see_both_or_none(self, one: Time, other: Time) -> bool {
        let before = |time: Time| self.0.partition_point(|read| *read < time);
        before(one) == before(other)
    }
}

impl Default for Attic {
    fn default() -> Attic {
        Attic {
            records: VecDeque::new(),
            joined: Vec::new(),
            joined_since: Time(0),
            out: 0,
            inserts: HashMap::new(),
            insert_times: VecDeque::new(),
            tables: HashMap::new(),
            bytes: 0,
            until: Time(0),
            dividing: Vec::new(),
            unsettled: VecDeque::new(),
        }
    }
}

impl Attic {
    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.joined.is_empty() && self.insert_times.is_empty()
    }

    /// Records that are kept, and their bytes.
    pub fn kept(&self) -> (usize, usize) {
        (self.records.len() + self.joined.len() + self.insert_times.len() - self.out, self.bytes)
    }

    /// When the newest write set ended whose records were taken in.
    pub fn until(&self) -> Time {
        self.until
    }

    /// Takes in what is still needed of a write set's records, and unlinks them all.
    ///
    /// `active` are the read times of all active snapshots, ascending. The caller guarantees that all other
    /// snapshots read at this write set's time or later; that write sets are taken in in the order of their
    /// times, those in between having been collected; and that no guard is held that was held when it ended.
    /// `until` is that time or later. Readers at `until` or later can skip the kept records. The fewer other
    /// readers there are, the fewer writes to memory that all transactions read.
    pub fn take_in(
        &mut self,
        retired: &Retired,
        active: &[Time],
        until: Time,
        garbage: &mut Garbage,
        guard: &Guard,
    ) {
        debug_assert!(self.until <= retired.time && retired.time <= until);
        let active = Snapshots(active);
        // As in `Retired::collect`.
        let mut dead = Dead::new();
        let mut undone_is_out = false;
        for (position, at) in retired.records.iter().enumerate() {
            if let Some(soon) = prefetch_after(&retired.records, position) {
                soon.older(guard).iter().for_each(|older| older.prefetch_header());
            }
            // SAFETY: lies in the write set's memory.
            let record: Record<'_> = unsafe { Record::from_raw(*at) };
            let table = table_of(&retired.digest(guard).tables, record);
            record.block().keep_until(until);
            if record.undone() {
                if !std::mem::replace(&mut undone_is_out, true) {
                    take_out_undone(retired, position, &mut dead, guard);
                }
                continue;
            }
            match record.change() {
                // In no chain: a snapshot with an earlier read time does not have the table.
                Change::Insert | Change::InsertMany if record.is_out() => {}
                Change::Insert | Change::InsertMany => {
                    let shared = self.inserts_with(table, record, active, guard);
                    inserted_by(record).for_each(|row| {
                        replace(record, row.slot(), Some(shared), guard);
                    });
                }
                Change::Lock => {
                    replace(record, record.slot(), record.older(guard), guard);
                }
                Change::Update | Change::Delete | Change::Refill => {
                    if self.take_in_change(table, record, active, garbage, guard) {
                        dead.push((table, record.block().row(record.slot())));
                    }
                }
            }
        }
        for (table, row) in dead {
            debug_assert!(table.block(row).newest(row.slot(), guard).is_none(), "a dead row has no versions");
            table.free_slot(row);
        }
        self.until = retired.time;
        self.sweep(garbage, guard);
    }

    /// The record of the insertion of these rows and of other rows of their block.
    fn inserts_with<'g>(
        &mut self,
        table: &Arc<Table>,
        record: Record<'_>,
        active: Snapshots<'_>,
        guard: &'g Guard,
    ) -> Record<'g> {
        let block = record.block();
        let id = (block.table, block.number);
        let (first, end) = (record.slot().0, record.slot().0 + record.inserted_rows());
        let of_block = self.inserts.entry(id).or_default();
        if let Some(last) = of_block.last_mut() {
            let shared = last.record.record(guard);
            if active.see_both_or_none(time_of(shared), time_of(record)) {
                (last.first, last.end) = (last.first.min(first), last.end.max(end));
                return shared;
            }
        }
        let own = OwnRecord::of_inserts(record.stamp(), block);
        let shared = own.record(guard);
        of_block.push(Inserts { record: own, first, end });
        self.insert_times.push_back((time_of(record), id));
        self.bytes += shared.bytes();
        self.tables.entry(id.0).or_insert_with(|| (table.clone(), 0)).1 += 1;
        shared
    }

    /// Takes in a record of an update, a delete or a refill. Returns whether its row is now dead to every snapshot.
    fn take_in_change(
        &mut self,
        table: &Arc<Table>,
        record: Record<'_>,
        active: Snapshots<'_>,
        garbage: &mut Garbage,
        guard: &Guard,
    ) -> bool {
        let slot = record.slot();
        let Some(older) = record.older(guard) else {
            let copy = self.keep(table, OwnRecord::copy(record), None, guard);
            replace(record, slot, Some(copy), guard);
            return false;
        };
        // Most changes are of rows that have changed before.
        if record.change() == Change::Update
            && active.see_both_or_none(time_of(older), time_of(record))
            && (older.is_insert() || older.has_entries() && record.covered_by(older))
        {
            replace(record, slot, Some(older), guard);
            table.purge_before_image(record, Some(older), &mut garbage.purges, guard);
            return false;
        }
        self.rebuild(table, record, active, garbage, guard)
    }

    /// Merges up to `most` records that no snapshot distinguishes any more. Returns whether there are more.
    ///
    /// `active` are the read times of all active snapshots, ascending. The caller guarantees that all other
    /// snapshots read at [`Attic::until`] or later, and calls this with the same list before it has write
    /// sets taken in. Records of inserts remain as they are; there are few.
    pub fn settle(&mut self, active: &[Time], most: usize, garbage: &mut Garbage, guard: &Guard) -> bool {
        if self.dividing != active {
            let next = |time: Time| active.get(active.partition_point(|read| *read <= time)).copied();
            for ended in self.dividing.iter().filter(|time| active.binary_search(time).is_err()) {
                // What is older than all snapshots is collected as it is.
                if Some(ended) > active.first() && *ended < self.until {
                    let until = next(*ended).unwrap_or(self.until);
                    let covered = |(since, to): &(Time, Time)| since <= ended && until <= *to;
                    if !self.unsettled.back().is_some_and(covered) {
                        self.unsettled.push_back((*ended, until));
                    }
                }
            }
            self.dividing = active.to_vec();
        }
        let Some((since, until)) = self.unsettled.front().copied() else { return false };
        let active = Snapshots(active);
        let time_at =
            |records: &VecDeque<OwnRecord>, at: usize| Some(time_of(records.get(at)?.record(guard)));
        let mut at = self.records.partition_point(|own| time_of(own.record(guard)) <= since);
        let enough = at + most;
        let mut done = since;
        while let Some(time) = time_at(&self.records, at)
            && time <= until
        {
            if at >= enough && time > done {
                self.unsettled[0].0 = done;
                return true;
            }
            done = time;
            if let Some(soon) = self.records.get(at + SETTLED_AHEAD) {
                soon.record(guard).older(guard).iter().for_each(|older| prefetch(older.as_ptr().cast()));
            }
            if let Some(own) = self.settle_one(self.records[at].record(guard), active, garbage, guard) {
                garbage.records.push(std::mem::replace(&mut self.records[at], own));
            }
            at += 1;
        }
        for at in 0..self.joined.len() {
            if let Some(own) = self.settle_one(self.joined[at].record(guard), active, garbage, guard) {
                garbage.records.push(std::mem::replace(&mut self.joined[at], own));
            }
        }
        self.unsettled.pop_front();
        self.sweep(garbage, guard);
        !self.unsettled.is_empty()
    }

    /// Merges a record with the older one behind it, if no snapshot distinguishes them. The caller lists the
    /// returned record, which takes the record's place in its chain, in its place here.
    fn settle_one(
        &mut self,
        record: Record<'_>,
        active: Snapshots<'_>,
        garbage: &mut Garbage,
        guard: &Guard,
    ) -> Option<OwnRecord> {
        if record.is_out() {
            return None;
        }
        let older = record.older(guard)?;
        if !active.see_both_or_none(time_of(older), time_of(record)) {
            return None;
        }
        let slot = record.slot();
        let table = self.tables[&record.block().table].0.clone();
        garbage.purges.finish_row(record.block(), slot, guard);
        match (record.change(), older.change()) {
            (Change::Delete, _) if older.is_insert() => {
                replace(record, slot, None, guard);
                self.let_go(record);
                if clean_up(&table, record, Change::Delete, garbage, guard) {
                    table.free_slot(record.block().row(slot));
                }
                None
            }
            (Change::Update, _) if older.is_insert() || record.covered_by(older) => {
                replace(record, slot, Some(older), guard);
                self.let_go(record);
                table.purge_before_image(record, Some(older), &mut garbage.purges, guard);
                None
            }
            (Change::Update, Change::Update) => {
                let own = OwnRecord::of_both(record, older);
                let both = own.record(guard);
                both.set_older(older.older(guard));
                if let Some(oldest) = older.older(guard) {
                    oldest.set_newer(Some(both));
                }
                replace(record, slot, Some(both), guard);
                // An older value may take less space than a newer one.
                self.bytes = self.bytes + both.bytes() - record.bytes();
                record.set_out();
                self.let_go(older);
                table.purge_before_image(record, Some(both), &mut garbage.purges, guard);
                Some(own)
            }
            _ => None,
        }
    }

    /// Makes the part of a chain from a transaction's record on as small as the snapshots permit. Returns
    /// whether its row is now dead to every snapshot.
    ///
    /// Snapshots that distinguished older records may have ended since these were taken in; then those are
    /// merged too.
    #[cold]
    fn rebuild(
        &mut self,
        table: &Arc<Table>,
        record: Record<'_>,
        active: Snapshots<'_>,
        garbage: &mut Garbage,
        guard: &Guard,
    ) -> bool {
        garbage.purges.finish_row(record.block(), record.slot(), guard);
        let chain: SmallVec<[Record<'_>; 8]> =
            std::iter::successors(Some(record), |record| record.older(guard)).collect();
        let mut made: SmallVec<[Record<'_>; 4]> = SmallVec::new();
        let mut keys = ReplacedKeys::new();
        let mut dead = false;
        let mut top: Option<Record<'_>> = None;
        for &next in chain.iter().rev() {
            let same = top.filter(|top| active.see_both_or_none(time_of(*top), time_of(next)));
            top = match (same, next.change()) {
                (Some(under), Change::Update) if under.is_insert() => {
                    keys.extend(table.keys_before(next, guard));
                    top
                }
                (Some(under), Change::Update) if under.change() == Change::Refill => {
                    keys.extend(table.keys_before(next, guard));
                    top
                }
                (Some(under), Change::Update) if under.change() == Change::Update => {
                    keys.extend(table.keys_before(next, guard));
                    if next.covered_by(under) {
                        top
                    } else {
                        let both = OwnRecord::of_both(next, under);
                        made.push(self.keep(table, both, under.older(guard), guard));
                        made.last().copied()
                    }
                }
                (Some(under), Change::Delete) if under.is_insert() => {
                    // Its slot may have another row since.
                    dead |= next == record;
                    None
                }
                // As it is in the chain.
                _ if next != record && next.older(guard) == top => Some(next),
                _ => {
                    made.push(self.keep(table, OwnRecord::copy(next), top, guard));
                    made.last().copied()
                }
            };
        }
        replace(record, record.slot(), top, guard);
        let left: SmallVec<[Record<'_>; 8]> =
            std::iter::successors(top, |record| record.older(guard)).collect();
        for gone in chain[1..].iter().chain(&made) {
            if !left.contains(gone) && !gone.is_insert() {
                self.let_go(*gone);
            }
        }
        let row = record.block().row(record.slot());
        table.purge_keys(row, &keys, &mut garbage.purges, guard);
        dead && clean_up(table, record, Change::Delete, garbage, guard)
    }

    /// Keeps a record, which is about to be linked before `older`.
    fn keep<'g>(
        &mut self,
        table: &Arc<Table>,
        own: OwnRecord,
        older: Option<Record<'_>>,
        guard: &'g Guard,
    ) -> Record<'g> {
        let record = own.record(guard);
        record.set_older(older);
        if let Some(older) = older {
            older.set_newer(Some(record));
        }
        self.bytes += record.bytes();
        self.tables.entry(record.block().table).or_insert_with(|| (table.clone(), 0)).1 += 1;
        let time = time_of(record);
        if self.records.back().is_none_or(|last| time_of(last.record(guard)) <= time) {
            self.records.push_back(own);
        } else {
            self.joined_since = if self.joined.is_empty() { time } else { self.joined_since.min(time) };
            self.joined.push(own);
        }
        record
    }

    /// Notes that a record is in no chain any more.
    fn let_go(&mut self, record: Record<'_>) {
        record.set_out();
        self.bytes -= record.bytes();
        self.out += 1;
    }

    /// Unlinks up to `most` records that no snapshot at `horizon` or later needs, and removes index entries
    /// and slots that become free. Returns whether there are more.
    ///
    /// The caller guarantees that every active and future snapshot reads at `horizon` or later.
    pub fn collect(&mut self, horizon: Time, most: usize, garbage: &mut Garbage, guard: &Guard) -> bool {
        for _ in 0..most {
            if let Some((time, block)) = self.insert_times.front().copied()
                && time <= horizon
            {
                self.insert_times.pop_front();
                self.collect_inserts(block, garbage, guard);
            } else if let Some(oldest) = self.records.front() {
                let record = oldest.record(guard);
                if !record.is_out() {
                    if time_of(record) > horizon {
                        break;
                    }
                    self.collect_chain(record, garbage, guard);
                }
                let own = self.records.pop_front().expect("`front` returned it");
                self.forget(own, garbage, guard);
            } else {
                break;
            }
        }
        let is_due = |oldest: Option<&OwnRecord>| {
            oldest.is_some_and(|oldest| {
                let record = oldest.record(guard);
                record.is_out() || time_of(record) <= horizon
            })
        };
        if is_due(self.records.front()) || self.insert_times.front().is_some_and(|(time, _)| *time <= horizon)
        {
            return true;
        }
        if !self.joined.is_empty() && self.joined_since <= horizon {
            for own in std::mem::take(&mut self.joined) {
                let record = own.record(guard);
                if !record.is_out() && time_of(record) <= horizon {
                    self.collect_chain(record, garbage, guard);
                }
                if record.is_out() { self.forget(own, garbage, guard) } else { self.joined.push(own) }
            }
            let times = self.joined.iter().map(|own| time_of(own.record(guard)));
            self.joined_since = times.min().unwrap_or(Time(0));
            // Some of these may have been collected with them.
            return is_due(self.records.front());
        }
        false
    }

    /// Unlinks the oldest inserts of a block.
    fn collect_inserts(&mut self, block: BlockId, garbage: &mut Garbage, guard: &Guard) {
        let of_block = self.inserts.get_mut(&block).expect("an entry by time has one by block");
        let Inserts { record: own, first, end } = of_block.remove(0);
        if of_block.is_empty() {
            self.inserts.remove(&block);
        }
        let record = own.record(guard);
        (first..end).for_each(|slot| unlink(record, Slot(slot), guard));
        self.let_go(record);
        self.forget(own, garbage, guard);
    }

    /// Unlinks a record and those behind it, the oldest first.
    fn collect_chain(&mut self, record: Record<'_>, garbage: &mut Garbage, guard: &Guard) {
        garbage.purges.finish_above(record, guard);
        let table = self.tables[&record.block().table].0.clone();
        let mut dead = false;
        let chain: SmallVec<[Record<'_>; 4]> =
            std::iter::successors(Some(record), |record| record.older(guard))
                .take_while(|record| !record.is_insert())
                .collect();
        for record in chain.into_iter().rev() {
            self.let_go(record);
            unlink(record, record.slot(), guard);
            dead |= clean_up(&table, record, record.change(), garbage, guard);
        }
        if dead {
            table.free_slot(record.block().row(record.slot()));
        }
    }

    /// Frees a record that is in no chain any more.
    fn forget(&mut self, own: OwnRecord, garbage: &mut Garbage, guard: &Guard) {
        debug_assert!(own.record(guard).is_out());
        let id = own.record(guard).block().table;
        garbage.records.push(own);
        self.out -= 1;
        let (_, records) = self.tables.get_mut(&id).expect("each record's table is listed");
        *records -= 1;
        if *records == 0 {
            let (table, _) = self.tables.remove(&id).expect("the table is listed");
            let tables: TouchedTables = smallvec![table];
            garbage.tables.push(tables);
        }
    }

    /// Frees the records that are in no chain any more, if there are many.
    fn sweep(&mut self, garbage: &mut Garbage, guard: &Guard) {
        if self.out <= FEW_OUT + (self.records.len() + self.joined.len()) / 4 {
            return;
        }
        for own in std::mem::take(&mut self.records) {
            if own.record(guard).is_out() {
                self.forget(own, garbage, guard)
            } else {
                self.records.push_back(own)
            }
        }
        for own in std::mem::take(&mut self.joined) {
            if own.record(guard).is_out() { self.forget(own, garbage, guard) } else { self.joined.push(own) }
        }
    }

    /// Calls `visit` with every row that write sets whose records were taken in have changed after `since`,
    /// until it returns false; returns false in that case. An active snapshot reads at `since`. Rows that
    /// were inserted and deleted after it are left out.
    pub fn changes(&self, since: Time, guard: &Guard, mut visit: impl FnMut(Changed<'_>) -> bool) -> bool {
        // They are in the order of their times; there are few merged ones.
        let first = self.records.partition_point(|own| time_of(own.record(guard)) <= since);
        let changed = self.records.range(first..).chain(&self.joined).all(|own| {
            let record = own.record(guard);
            record.is_out()
                || time_of(record) <= since
                || visit(Changed {
                    table: &self.tables[&record.block().table].0,
                    first: record.block().row(record.slot()),
                    rows: 1,
                    columns: columns_set_by(record),
                })
        });
        let newer = self.insert_times.partition_point(|(time, _)| *time <= since);
        changed
            && self.insert_times.range(newer..).all(|(time, block)| {
                let is_of_time = |inserts: &&Inserts| time_of(inserts.record.record(guard)) == *time;
                let inserts =
                    self.inserts[block].iter().find(is_of_time).expect("an entry by time has one by block");
                self.inserted(inserts, guard, &mut visit)
            })
    }

    /// As [`Attic::changes`], for the inserted rows of a block.
    fn inserted(
        &self,
        inserts: &Inserts,
        guard: &Guard,
        visit: &mut impl FnMut(Changed<'_>) -> bool,
    ) -> bool {
        let record = inserts.record.record(guard);
        let block = record.block();
        (inserts.first..inserts.end).map(Slot).all(|slot| {
            let mut chain = std::iter::successors(block.newest(slot, guard), |record| record.older(guard));
            !chain.any(|other| other == record)
                || visit(Changed {
                    table: &self.tables[&block.table].0,
                    first: block.row(slot),
                    rows: 1,
                    columns: columns_set_by(record),
                })
        })
    }
}

/// Unlinks the records of a write set from `first` on, whose changes were undone, the newest first. All
/// together they have no effect on any reader, but each one undoes what the record before it had restored.
#[cold]
fn take_out_undone<'g>(retired: &Retired, first: usize, dead: &mut Dead<'g>, guard: &'g Guard) {
    for at in retired.records[first..].iter().rev() {
        // SAFETY: lies in the write set's memory.
        let record: Record<'_> = unsafe { Record::from_raw(*at) };
        if !record.undone() {
            continue;
        }
        if record.is_insert() {
            let table = table_of(&retired.digest(guard).tables, record);
            inserted_by(record).for_each(|row| {
                unlink(record, row.slot(), guard);
                dead.push((table, row));
            });
        } else {
            replace(record, record.slot(), record.older(guard), guard);
        }
    }
}

/// The commit time of a record's change, or an equivalent one.
fn time_of(record: Record<'_>) -> Time {
    record.stamp().time().expect("the attic takes in ended write sets only")
}

#[cfg(test)]
mod tests;
