//! Digests: what ended write sets have changed, in as few cache lines as possible, for transactions that
//! validate.
//!
//! With many committers a transaction validates against a dozen others that ran at the same time. What they
//! have written is in other cores' caches: their undo records, one or two cache lines each, and the blocks
//! that these refer to. A digest has the same information in one place. The newest digests are found without
//! a lock ([`Recent`]).

use crate::memory::prefetch;
use crate::version::{Change, Record};
use crate::write_set::{Retired, TouchedTables, WriteSet, columns_set_by, leave_gates, table_of};
use crate::{Guard, Table};
use firn_base::sync::{Arc, AtomicPtr, AtomicU64, Ordering, in_model};
use firn_base::{ColumnSet, RowId, Stamp, TableId, Time};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ptr::{self, NonNull};

/// A change of some consecutive rows by a write set.
pub struct Changed<'a> {
    /// Their table.
    pub table: &'a Arc<Table>,
    /// The first row.
    pub first: RowId,
    /// How many.
    pub rows: u32,
    /// The columns that it set; all if the rows were inserted or deleted.
    pub columns: ColumnSet,
}

/// A [`Changed`] without the table.
#[derive(Clone, Copy, Debug)]
pub struct ChangedRows {
    /// The first row.
    pub first: RowId,
    /// The columns that it set; all if the rows were inserted or deleted.
    pub columns: ColumnSet,
    /// How many.
    pub rows: u32,
}

/// What an ended write set has changed.
pub struct Digest {
    time: Time,
    owner: Stamp,
    pub(crate) tables: TouchedTables,
    /// A bit for each of these tables that it changed. In the others it only locked rows, or found none to
    /// change.
    changed: u64,
    /// Ranges of `rows`.
    parts: SmallVec<[Part; 8]>,
    /// In the order in which they were changed.
    rows: SmallVec<[ChangedRows; 16]>,
}

/// Rows of one table.
#[derive(Clone, Copy)]
struct Part {
    table: TableId,
    /// Its position in the list of tables.
    at: u32,
    /// Where the next part begins.
    end: u32,
    columns: ColumnSet,
}

/// Changes of one table.
#[derive(Clone, Copy)]
pub struct ChangedTable<'a> {
    /// The table.
    pub table: &'a Arc<Table>,
    /// All columns that were set.
    pub columns: ColumnSet,
    /// The changes.
    pub rows: &'a [ChangedRows],
}

thread_local! {
    /// Digests whose memory is reused.
    #[expect(clippy::vec_box, reason = "the boxes themselves are reused")]
    static SPARE: RefCell<Vec<Box<Digest>>> = const { RefCell::new(Vec::new()) };
}

const SPARE_DIGESTS: usize = 128;

/// The bit in `changed` of the table at a position. Tables from the 64th on share one.
fn bit_of(at: usize) -> u64 {
    1 << at.min(63)
}

impl Digest {
    /// The digest of what a write set has changed so far and not undone. It has no time yet.
    pub(crate) fn of(write_set: &WriteSet) -> Box<Digest> {
        let mut digest = SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            Box::new(Digest {
                time: Time(0),
                owner: write_set.owner(),
                tables: TouchedTables::new(),
                changed: 0,
                parts: SmallVec::new(),
                rows: SmallVec::new(),
            })
        });
        digest.owner = write_set.owner();
        for record in write_set.records() {
            if !record.undone() && record.change() != Change::Lock {
                digest.add(write_set.tables(), record);
            }
        }
        digest
    }

    /// The digest of a transaction without changes, apart from those that it has undone.
    pub(crate) fn of_nothing(owner: Stamp, time: Time, tables: TouchedTables) -> Box<Digest> {
        Box::new(Digest { time, owner, tables, changed: 0, parts: SmallVec::new(), rows: SmallVec::new() })
    }

    fn add(&mut self, tables: &[Arc<Table>], record: Record<'_>) {
        let block = record.block();
        let columns = columns_set_by(record);
        let (first, rows) = (block.row(record.slot()), record.inserted_rows().max(1));
        let Some(part) = self.parts.last_mut().filter(|last| last.table == block.table) else {
            let table = table_of(tables, record);
            let at = tables.iter().position(|known| Arc::ptr_eq(known, table)).expect("just found");
            self.changed |= bit_of(at);
            self.rows.push(ChangedRows { first, columns, rows });
            self.parts.push(Part { table: block.table, at: at as u32, end: self.rows.len() as u32, columns });
            return;
        };
        // A transaction that changes many rows mostly changes them in their order.
        if let Some(last) = self.rows.last_mut()
            && last.columns == columns
            && last.first.to_bits() + u64::from(last.rows) == first.to_bits()
            && let Some(together) = last.rows.checked_add(rows)
        {
            last.rows = together;
            return;
        }
        self.rows.push(ChangedRows { first, columns, rows });
        (part.end, part.columns) = (self.rows.len() as u32, part.columns.union(columns));
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let rows = if self.rows.spilled() { self.rows.capacity() * size_of::<ChangedRows>() } else { 0 };
        let parts = if self.parts.spilled() { self.parts.capacity() * size_of::<Part>() } else { 0 };
        size_of::<Digest>() + rows + parts
    }

    /// Completes it: the write set ends at `time`, and has used these tables.
    pub(crate) fn complete(&mut self, time: Time, tables: TouchedTables) {
        (self.time, self.tables) = (time, tables);
    }

    /// When the write set ended: its commit time, or the time its rollback was stamped with.
    #[inline]
    pub fn time(&self) -> Time {
        self.time
    }

    /// The changes by table; one table may have several parts.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = (TableId, ChangedTable<'_>)> {
        let mut first = 0;
        self.parts.iter().map(move |part| {
            let rows = &self.rows[first..part.end as usize];
            first = part.end as usize;
            (part.table, ChangedTable { table: &self.tables[part.at as usize], columns: part.columns, rows })
        })
    }

    /// Prefetches its first cache lines.
    #[inline]
    pub fn prefetch(&self) {
        let start = ptr::from_ref(self).cast::<u8>();
        (0..size_of::<Digest>()).step_by(64).take(6).for_each(|at| prefetch(start.wrapping_add(at)));
    }

    /// Calls `visit` with every change, until it returns false; returns false in that case.
    pub fn changes(&self, mut visit: impl FnMut(Changed<'_>) -> bool) -> bool {
        self.parts().all(|(_, ChangedTable { table, rows, .. })| {
            rows.iter()
                .all(|&ChangedRows { first, rows, columns }| visit(Changed { table, first, rows, columns }))
        })
    }

    /// Notes the commit at the gates of the tables that it changed.
    pub fn note_commit(&self) {
        for (at, table) in self.tables.iter().enumerate() {
            if self.changed & bit_of(at) != 0 {
                table.gate().note_commit(self.owner, self.time);
            }
        }
    }

    /// Leaves the gates of its tables.
    pub fn leave_gates(&self) {
        leave_gates(&self.tables, self.owner);
    }

    /// Keeps the memory for another digest.
    pub(crate) fn reuse(mut self: Box<Self>) {
        if self.rows.spilled() {
            return;
        }
        self.tables.clear();
        self.changed = 0;
        self.parts.clear();
        self.rows.clear();
        if in_model() {
            // A wrong use after this is noticed.
            self.time = Time(u64::MAX);
        }
        // Not while the thread ends.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_DIGESTS {
                spare.push(self);
            }
        });
    }
}

/// A digest that other threads may be reading. Dropping it frees it. That may happen only when no thread can
/// reach it any more: through `Guard::defer`, after it was [withdrawn](Recent::withdraw).
pub(crate) struct SharedDigest(NonNull<Digest>);

// SAFETY: a digest is `Send` and `Sync`, and nothing changes a shared one.
unsafe impl Send for SharedDigest {}
// SAFETY: as above.
unsafe impl Sync for SharedDigest {}

impl SharedDigest {
    pub fn new(digest: Box<Digest>) -> SharedDigest {
        SharedDigest(NonNull::from(Box::leak(digest)))
    }

    #[inline]
    pub fn get<'g>(&self, _guard: &'g Guard) -> &'g Digest {
        // SAFETY: it is dropped through a guard (contract of the type), and not before `_guard` is released.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedDigest {
    fn drop(&mut self) {
        // SAFETY: it was a box, and no thread can reach it any more (contract of the type).
        unsafe { Box::from_raw(self.0.as_ptr()) }.reuse();
    }
}

/// Some digests in the order of their times.
pub type Digests<'g> = SmallVec<[&'g Digest; 32]>;

/// The newest digests by their times, to be found without a lock.
///
/// ```text
/// committer, in the commit section         validator, with a guard
/// place.digest ← the write set's           until ← newest time
/// place.time   ← its time                  place.time   is that time, or an older one: no digest has it
/// newest time ← its time                   place.digest is of that time
/// ```
/// Any other digest that a validator finds is newer, or none: then it searches the list of all write sets.
pub struct Recent(Box<[Place]>);

struct Place {
    time: AtomicU64,
    digest: AtomicPtr<Digest>,
}

impl Recent {
    /// A table with this many places.
    pub fn new(places: usize) -> Recent {
        let place = |_| Place { time: AtomicU64::new(0), digest: AtomicPtr::new(ptr::null_mut()) };
        Recent((0..places).map(place).collect())
    }

    fn place(&self, time: Time) -> &Place {
        &self.0[time.0 as usize % self.0.len()]
    }

    /// Publishes the digest of a write set that ends now. Calls follow one another in the order of the times,
    /// each before its time is published. A digest is [withdrawn](Recent::withdraw) before it is freed.
    pub fn publish(&self, retired: &Retired) {
        let place = self.place(retired.time);
        // Release: a reader that finds the pointer finds the content.
        place.digest.store(retired.digest.0.as_ptr(), Ordering::Release);
        place.time.store(retired.time.0, Ordering::Release);
    }

    /// Withdraws the digest of a write set that is about to be collected or moved to the attic.
    pub fn withdraw(&self, retired: &Retired) {
        let digest = &self.place(retired.time).digest;
        if digest.load(Ordering::Relaxed) == retired.digest.0.as_ptr() {
            // If a newer one takes the place at the same time, readers find it in the list of all.
            digest.store(ptr::null_mut(), Ordering::Release);
        }
    }

    /// The digests of what has ended after `since` and up to `until`, a published time: at most `most` of
    /// them, and only those in the table. Also returns the time up to which they are complete.
    pub fn between<'g>(
        &self,
        since: Time,
        until: Time,
        most: usize,
        _guard: &'g Guard,
    ) -> (Digests<'g>, Time) {
        let mut found = Digests::new();
        for time in since.0 + 1..=until.0 {
            let before = (found.len(), Time(time - 1));
            let place = self.place(Time(time));
            // Acquire: pairs with `publish`.
            let newest = place.time.load(Ordering::Acquire);
            if newest < time {
                // No write set ended at that time.
                continue;
            }
            let digest = place.digest.load(Ordering::Acquire);
            if newest > time || digest.is_null() || before.0 == most {
                return (found, before.1);
            }
            // SAFETY: it had not been withdrawn when the guard was taken, or was later. It is freed through a
            // guard after that (`SharedDigest`).
            let digest = unsafe { &*digest };
            if digest.time.0 != time {
                return (found, before.1);
            }
            found.push(digest);
        }
        (found, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnSpec, Garbage, TableOptions, pin};
    use firn_base::{Cell, ColumnId, Representation, Snapshot};

    const OWNER: Stamp = Stamp::transaction(3);
    const SNAPSHOT: Snapshot = Snapshot { read_time: Time(1), owner: OWNER };

    fn table(id: u32) -> Arc<Table> {
        let column = || ColumnSpec { representation: Representation::Int32, nullable: false };
        Table::new(TableId(id), "t", [column(), column()].into(), TableOptions::default())
    }

    /// A write set with an inserted row in each table.
    fn inserts(tables: &[&Arc<Table>]) -> (WriteSet, Vec<RowId>) {
        let mut writes = WriteSet::new(OWNER, None);
        let mut rows = Vec::new();
        for table in tables {
            if !writes.has_touched(table) {
                assert!(table.gate().try_join(OWNER));
                writes.touch(table);
            }
            rows.push(table.insert(&mut writes, SNAPSHOT, &[Cell::Word(1), Cell::Word(2)], &pin()).unwrap());
        }
        (writes, rows)
    }

    fn retired(time: u64) -> Retired {
        inserts(&[&table(1)]).0.retire_now(Time(time))
    }

    #[test]
    fn a_digest_has_the_changes_that_were_not_undone() {
        let (one, other) = (table(1), table(2));
        let (mut writes, rows) = inserts(&[&one, &one, &other, &one]);
        let second = ColumnId(1);
        one.update(&mut writes, SNAPSHOT, rows[0], &[second], &[Cell::Word(5)], &pin()).unwrap();
        let mark = writes.mark();
        one.delete(&mut writes, SNAPSHOT, rows[1], &pin()).unwrap();
        writes.roll_back(mark, &pin());
        let retired = writes.retire_now(Time(7));
        let guard = &pin();
        let digest = retired.digest(guard);
        let mut changed = Vec::new();
        assert!(digest.changes(|change| {
            changed.push((change.table.id().0, change.first, change.rows, change.columns));
            true
        }));
        let all = ColumnSet::ALL;
        let updated = ColumnSet::NONE.with(second);
        assert_eq!(
            changed,
            [(1, rows[0], 2, all), (2, rows[2], 1, all), (1, rows[3], 1, all), (1, rows[0], 1, updated)]
        );
        let parts: Vec<_> = digest.parts().map(|(table, changed)| (table.0, changed.rows.len())).collect();
        assert_eq!(parts, [(1, 1), (2, 1), (1, 2)]);
        assert_eq!(digest.time(), Time(7));
        digest.note_commit();
        digest.leave_gates();
        assert!(one.gate().is_alone(0) && other.gate().is_alone(0));
    }

    #[test]
    fn the_gates_of_changed_tables_get_the_commit() {
        let tables = [1, 2, 3].map(table);
        let [locked, taken_back, changed] = &tables;
        assert!(locked.gate().try_join(OWNER));
        let mut writes = WriteSet::new(OWNER, None);
        writes.touch(locked);
        for table in [taken_back, changed] {
            assert!(table.gate().try_join(OWNER));
            writes.touch(table);
            let mark = writes.mark();
            table.insert(&mut writes, SNAPSHOT, &[Cell::Word(1), Cell::Word(2)], &pin()).unwrap();
            if Arc::ptr_eq(table, taken_back) {
                writes.roll_back(mark, &pin());
            }
        }
        let retired = writes.retire_now(Time(7));
        let guard = &pin();
        retired.digest(guard).note_commit();
        retired.digest(guard).leave_gates();
        let before = Snapshot { read_time: Time(6), ..SNAPSHOT };
        for (at, table) in tables.iter().enumerate() {
            assert_eq!(table.gate().is_current(before), at < 2, "{at}");
            assert!(table.gate().is_alone(0));
        }
        assert!(bit_of(62) != bit_of(63) && bit_of(63) == bit_of(100));
    }

    #[test]
    fn the_newest_are_found_until_others_take_their_places_or_they_are_withdrawn() {
        let recent = Recent::new(4);
        let guard = &pin();
        let all: Vec<Retired> = [1, 2, 4, 5].into_iter().map(retired).collect();
        let found = |since, until, most| {
            let (found, until) = recent.between(Time(since), Time(until), most, guard);
            (found.iter().map(|digest| digest.time().0).collect::<Vec<_>>(), until.0)
        };
        recent.publish(&all[0]);
        recent.publish(&all[1]);
        // Nothing ended at 3.
        assert_eq!(found(0, 3, 9), (vec![1, 2], 3));
        recent.publish(&all[2]);
        assert_eq!(found(0, 4, 9), (vec![1, 2, 4], 4));
        assert_eq!(found(0, 4, 2), (vec![1, 2], 3));
        assert_eq!(found(2, 4, 9), (vec![4], 4));
        // In the place of 1.
        recent.publish(&all[3]);
        assert_eq!(found(0, 5, 9), (vec![], 0));
        assert_eq!(found(1, 5, 9), (vec![2, 4, 5], 5));
        recent.withdraw(&all[0]);
        assert_eq!(found(3, 5, 9), (vec![4, 5], 5));
        recent.withdraw(&all[2]);
        assert_eq!(found(1, 5, 9), (vec![2], 3));
        let mut garbage = Garbage::default();
        all.into_iter().for_each(|retired| retired.collect(&mut garbage, guard));
        garbage.free(guard);
    }
}
