//! Digests: what write sets that have ended changed, in as few cache lines as can be, for those who validate what they
//! have read.
//!
//! With many committers a transaction validates against a dozen others that were at work beside it, and what these have
//! written lies in other cores' caches: their undo records, one or two lines of memory each, and the blocks that these name.
//! A digest tells the same side by side. The newest are found without a lock ([`Recent`]).

use crate::memory::prefetch;
use crate::version::{Change, Record};
use crate::write_set::{Retired, TouchedTables, WriteSet, columns_set_by, leave_gates, table_of};
use crate::{Guard, Table};
use firn_base::sync::{Arc, AtomicPtr, AtomicU64, Ordering, in_model};
use firn_base::{ColumnSet, RowId, Stamp, TableId, Time};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ptr::{self, NonNull};

/// What a write set has done to some rows that lie side by side.
pub struct Changed<'a> {
    /// Their table.
    pub table: &'a Arc<Table>,
    /// The first of them.
    pub first: RowId,
    /// How many.
    pub rows: u32,
    /// Which columns it set; all if the rows came or went.
    pub columns: ColumnSet,
}

/// The same without the table.
#[derive(Clone, Copy, Debug)]
pub struct ChangedRows {
    /// The first of them.
    pub first: RowId,
    /// Which columns it set; all if the rows came or went.
    pub columns: ColumnSet,
    /// How many.
    pub rows: u32,
}

/// What a write set that has ended changed.
pub struct Digest {
    time: Time,
    owner: Stamp,
    pub(crate) tables: TouchedTables,
    /// A bit for each of these that it changed: others it has only locked rows of, or found none to change.
    changed: u64,
    /// Stretches of `rows`.
    parts: SmallVec<[Part; 8]>,
    /// In the order in which they were changed.
    rows: SmallVec<[ChangedRows; 16]>,
}

/// Rows of one table.
#[derive(Clone, Copy)]
struct Part {
    table: TableId,
    /// Where it stands in the list of tables.
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
    /// Memory of digests, to use again.
    #[expect(clippy::vec_box, reason = "their memory is what is kept")]
    static SPARE: RefCell<Vec<Box<Digest>>> = const { RefCell::new(Vec::new()) };
}

const SPARE_DIGESTS: usize = 128;

/// In `changed`, of the table at a position. From the 64th on they share one.
fn bit_of(at: usize) -> u64 {
    1 << at.min(63)
}

impl Digest {
    /// Of what a write set has done so far and not taken back. It does not end yet.
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

    /// Of a transaction that changed nothing which it has not taken back.
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
        // Who changes many rows mostly takes them as they lie.
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

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let rows = if self.rows.spilled() { self.rows.capacity() * size_of::<ChangedRows>() } else { 0 };
        let parts = if self.parts.spilled() { self.parts.capacity() * size_of::<Part>() } else { 0 };
        size_of::<Digest>() + rows + parts
    }

    /// The write set ends at `time`, and was at work in these tables.
    pub(crate) fn complete(&mut self, time: Time, tables: TouchedTables) {
        (self.time, self.tables) = (time, tables);
    }

    /// When the write set ended: its commit time, or the time its rollback was stamped with.
    #[inline]
    pub fn time(&self) -> Time {
        self.time
    }

    /// What was changed, table by table; of one there may be several parts.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = (TableId, ChangedTable<'_>)> {
        let mut first = 0;
        self.parts.iter().map(move |part| {
            let rows = &self.rows[first..part.end as usize];
            first = part.end as usize;
            (part.table, ChangedTable { table: &self.tables[part.at as usize], columns: part.columns, rows })
        })
    }

    /// Asks the processor to fetch its first lines.
    #[inline]
    pub fn prefetch(&self) {
        let start = ptr::from_ref(self).cast::<u8>();
        (0..size_of::<Digest>()).step_by(64).take(6).for_each(|at| prefetch(start.wrapping_add(at)));
    }

    /// Calls `visit` with every change, until it returns false; false if it did.
    pub fn changes(&self, mut visit: impl FnMut(Changed<'_>) -> bool) -> bool {
        self.parts().all(|(_, ChangedTable { table, rows, .. })| {
            rows.iter()
                .all(|&ChangedRows { first, rows, columns }| visit(Changed { table, first, rows, columns }))
        })
    }

    /// Tells the gates of the tables that it changed of a commit.
    pub fn note_commit(&self) {
        for (at, table) in self.tables.iter().enumerate() {
            if self.changed & bit_of(at) != 0 {
                table.gate().note_commit(self.owner, self.time);
            }
        }
    }

    /// Leaves them.
    pub fn leave_gates(&self) {
        leave_gates(&self.tables, self.owner);
    }

    /// Keeps the memory for another.
    pub(crate) fn reuse(mut self: Box<Self>) {
        if self.rows.spilled() {
            return;
        }
        self.tables.clear();
        self.changed = 0;
        self.parts.clear();
        self.rows.clear();
        if in_model() {
            // Who looks at it nevertheless shall notice.
            self.time = Time(u64::MAX);
        }
        // While a thread ends there is nobody to use it.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_DIGESTS {
                spare.push(self);
            }
        });
    }
}

/// A digest that others may be looking at. Dropping it gives it up; that may happen only once nobody can look at it
/// any more: through `Guard::defer`, after it was [withdrawn](Recent::withdraw).
pub(crate) struct SharedDigest(NonNull<Digest>);

// SAFETY: a digest is `Send` and `Sync`, and nobody writes to a shared one.
unsafe impl Send for SharedDigest {}
// SAFETY: as above.
unsafe impl Sync for SharedDigest {}

impl SharedDigest {
    pub fn new(digest: Box<Digest>) -> SharedDigest {
        SharedDigest(NonNull::from(Box::leak(digest)))
    }

    #[inline]
    pub fn get<'g>(&self, _guard: &'g Guard) -> &'g Digest {
        // SAFETY: it is dropped through a guard (type's contract), and not before `_guard` has gone.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedDigest {
    fn drop(&mut self) {
        // SAFETY: it was a box, and nobody looks at it any more (type's contract).
        unsafe { Box::from_raw(self.0.as_ptr()) }.reuse();
    }
}

/// Some digests in the order of their times.
pub type Digests<'g> = SmallVec<[&'g Digest; 32]>;

/// The newest digests, by their times, to be found without a lock.
///
/// ```text
/// committer, inside its section            validator, holding a guard
/// place.digest ← the write set's           until ← newest time
/// place.time   ← its time                  place.time   is that time, or an older one: nothing ended then
/// newest time ← its time                   place.digest is of that time
/// ```
/// Whatever else a validator finds is newer, or was withdrawn: then it looks in the list that has them all.
pub struct Recent(Box<[Place]>);

struct Place {
    time: AtomicU64,
    digest: AtomicPtr<Digest>,
}

impl Recent {
    /// Room for so many.
    pub fn new(places: usize) -> Recent {
        let place = |_| Place { time: AtomicU64::new(0), digest: AtomicPtr::new(ptr::null_mut()) };
        Recent((0..places).map(place).collect())
    }

    fn place(&self, time: Time) -> &Place {
        &self.0[time.0 as usize % self.0.len()]
    }

    /// Shows a write set that ends now. Called in the order of their times, by one at a time, before the time is published. It is
    /// [withdrawn](Recent::withdraw) before it is given up.
    pub fn publish(&self, retired: &Retired) {
        let place = self.place(retired.time);
        // Release: who finds it finds what it says.
        place.digest.store(retired.digest.0.as_ptr(), Ordering::Release);
        place.time.store(retired.time.0, Ordering::Release);
    }

    /// Shows a write set no longer, which is about to be collected or moved to the attic.
    pub fn withdraw(&self, retired: &Retired) {
        let digest = &self.place(retired.time).digest;
        if digest.load(Ordering::Relaxed) == retired.digest.0.as_ptr() {
            // A newer one that takes its place just now is not found here then, but where all are.
            digest.store(ptr::null_mut(), Ordering::Release);
        }
    }

    /// What has ended after `since` and up to `until`, which has been published, as far as it is at hand and not more than
    /// `most`; and until when that is all.
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
            // Acquire: with `publish`.
            let newest = place.time.load(Ordering::Acquire);
            if newest < time {
                // No write set ended then.
                continue;
            }
            let digest = place.digest.load(Ordering::Acquire);
            if newest > time || digest.is_null() || before.0 == most {
                return (found, before.1);
            }
            // SAFETY: it had not been withdrawn when the guard was taken or later, and is given up through a guard
            // thereafter (`SharedDigest`).
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

    /// A write set that has inserted a row into each table.
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
    fn a_digest_tells_what_was_changed_and_not_taken_back() {
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
    fn the_gates_of_tables_that_were_changed_are_told() {
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
