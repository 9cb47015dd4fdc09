//! A write set: the undo and redo images of one transaction, and their processing at its end.
//!
//! The undo records are walked by [`WriteSet::stamp`] (commit), by [`WriteSet::roll_back`], and once no
//! snapshot needs the old images any more by [`Retired::collect`] (see [`crate::collect`]). If a long reader
//! still needs them, [`Attic::take_in`](crate::Attic::take_in) does. What is rolled back while the
//! transaction runs can end before it does ([`WriteSet::let_go`]).

use crate::block::Block;
use crate::budget::{Held, MemoryBudget};
use crate::digest::{Digest, SharedDigest};
use crate::row_lock::RowLock;
use crate::undo::{UndoBuffer, UndoMemory, reuse};
use crate::version::{Change, EntryWriter, Record, UndoHeader};
use crate::{Guard, Index, IndexId, Table};
use firn_base::sync::Arc;
use firn_base::{ColumnSet, Result, RowId, Slot, Stamp, Time};
use firn_log::{RedoBuffer, RedoMark, Spills};
use smallvec::SmallVec;
use std::ptr::NonNull;

/// A place in a write set to roll back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    records: usize,
    redo: Option<RedoMark>,
}

/// The receiver of the keys that a transaction releases.
pub struct Freed<'f> {
    /// Deferrable indexes, in which each key belongs to one row in the end, in addition to unique ones.
    pub late: &'f [IndexId],
    /// The function that gets them.
    pub visit: &'f mut VisitFreed<'f>,
}

/// Gets table, index, and key; no key if there are many.
pub type VisitFreed<'f> = dyn FnMut(&Table, &Index, Option<&[u8]>) + 'f;

/// Tables that a transaction has written to; few.
pub(crate) type TouchedTables = SmallVec<[Arc<Table>; 8]>;

/// One transaction's changes: undo records in segments that never move, redo images in order.
pub struct WriteSet {
    owner: Stamp,
    undo: UndoBuffer,
    /// The contents of the log record; `None` in a database without a log.
    redo: Option<RedoBuffer>,
    tables: TouchedTables,
    /// How many of the undo records are locks.
    locks: usize,
    /// Bytes that have been reported to the budget.
    counted: usize,
    /// Whether it has put rows of compact blocks elsewhere.
    moves: bool,
}

/// A transaction reports its memory to the budget whenever it has grown by this much; most never do.
const COUNTED_BYTES: usize = 64 << 10;

/// It checks that after this many changes of rows.
const COUNTED_ROWS: usize = 64;

impl WriteSet {
    /// An empty write set of the transaction with this stamp. Without `redo`, nothing is logged.
    #[inline]
    pub fn new(owner: Stamp, redo: Option<RedoBuffer>) -> WriteSet {
        WriteSet {
            owner,
            undo: UndoBuffer::new(owner),
            redo,
            tables: TouchedTables::new(),
            locks: 0,
            counted: 0,
            moves: false,
        }
    }

    /// The stamp of its transaction.
    pub fn owner(&self) -> Stamp {
        self.owner
    }

    /// Whether it is empty: nothing was changed and no row locked.
    pub fn is_empty(&self) -> bool {
        self.undo.records().is_empty() && self.redo.as_ref().is_none_or(RedoBuffer::is_empty)
    }

    /// Whether nothing was changed.
    pub fn has_only_locks(&self) -> bool {
        self.undo.records().len() == self.locks && self.redo.as_ref().is_none_or(RedoBuffer::is_empty)
    }

    /// Undo records so far.
    pub fn records_written(&self) -> usize {
        self.undo.records().len()
    }

    /// Bytes that the budget counts for an unfinished transaction.
    pub fn counted_bytes(&self) -> usize {
        self.counted
    }

    /// As [`WriteSet::count_growth`], after a change of one row; checks only after several of them.
    #[inline]
    pub(crate) fn count_row(&mut self, budget: &MemoryBudget) {
        if self.undo.records().len().is_multiple_of(COUNTED_ROWS) {
            self.count_growth(budget);
        }
    }

    /// Reports to the budget what has been written, once that is much.
    pub(crate) fn count_growth(&mut self, budget: &MemoryBudget) {
        let bytes = self.undo.bytes() + self.redo.as_ref().map_or(0, |redo| redo.as_bytes().len());
        if bytes >= self.counted + COUNTED_BYTES {
            budget.add(Held::Unfinished, (bytes - self.counted) as i64);
            self.counted = bytes;
        }
    }

    /// The current position.
    pub fn mark(&self) -> Mark {
        Mark { records: self.undo.records().len(), redo: self.redo.as_ref().map(RedoBuffer::mark) }
    }

    /// Tables written to so far.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// Whether it may write to `table`.
    #[inline]
    pub fn has_touched(&self, table: &Arc<Table>) -> bool {
        self.tables.iter().any(|known| Arc::ptr_eq(known, table))
    }

    /// Where a row is now that this transaction has seen: an update puts a row of a compact block elsewhere.
    #[inline]
    pub fn place_of(&self, table: &Table, row: RowId) -> RowId {
        if self.moves { self.follow(table, row) } else { row }
    }

    #[cold]
    fn follow(&self, table: &Table, mut row: RowId) -> RowId {
        let guard = &crate::pin();
        // Unless that was undone.
        let moved_to = |row: RowId| {
            let head = table.block(row).newest(row.slot(), guard)?;
            head.moved_to().filter(|_| head.stamp() == self.owner && !head.undone())
        };
        while let Some(to) = moved_to(row) {
            row = to;
        }
        row
    }

    /// Registers that `table` will be written to. The caller has joined its gate.
    pub fn touch(&mut self, table: &Arc<Table>) {
        debug_assert!(!self.has_touched(table));
        self.tables.push(table.clone());
    }

    /// Leaves the gates of its tables without having written. Returns the redo buffer for reuse.
    pub fn give_up(self) -> Option<RedoBuffer> {
        leave_gates(&self.tables, self.owner);
        let (records, _) = self.undo.into_parts();
        reuse(records);
        self.redo
    }

    /// The redo images, to append what is not a row (catalog, sequences).
    pub fn redo(&mut self) -> Option<&mut RedoBuffer> {
        self.redo.as_mut()
    }

    /// The redo images, to append a change of a row of `table`; `None` also if the table is private: then its
    /// content is logged with the commit.
    #[inline]
    pub(crate) fn redo_of(&mut self, table: &Table) -> Option<&mut RedoBuffer> {
        self.redo.as_mut().filter(|_| table.is_published())
    }

    /// Whether its redo in memory has at least this many bytes.
    #[inline]
    pub fn has_long_redo(&self, bytes: usize) -> bool {
        self.redo.as_ref().is_some_and(|redo| redo.as_bytes().len() >= bytes)
    }

    /// Moves its redo from memory to a file of its own.
    pub fn spill_redo(&mut self, spills: &Arc<Spills>) -> Result<()> {
        self.redo.as_mut().map_or(Ok(()), |redo| redo.spill(spills))
    }

    pub(crate) fn push_plain(&mut self, block: &Block, slot: Slot, change: Change) -> Record<'static> {
        let at = self.undo.push_plain(block, slot, change);
        // SAFETY: just written; callers do not use it longer than the write set lives.
        unsafe { Record::from_raw(at) }
    }

    /// A record of a delete of a row that is put elsewhere.
    pub(crate) fn push_move(&mut self, block: &Block, slot: Slot, to: RowId) -> Record<'static> {
        self.moves = true;
        let at = self.undo.push_move(block, slot, to);
        // SAFETY: as above.
        unsafe { Record::from_raw(at) }
    }

    pub(crate) fn push_insert_many(&mut self, block: &Block, slot: Slot, rows: u32) -> Record<'static> {
        let at = self.undo.push_insert_many(block, slot, rows);
        // SAFETY: as above.
        unsafe { Record::from_raw(at) }
    }

    #[inline]
    pub(crate) fn push_update(
        &mut self,
        block: &Block,
        slot: Slot,
        columns: usize,
        remember: impl FnOnce(&mut EntryWriter),
    ) -> Record<'static> {
        let at = self.undo.push_update(block, slot, Change::Update, columns, remember);
        // SAFETY: as above.
        unsafe { Record::from_raw(at) }
    }

    /// A record of a row in the slot of a deleted one; `remember` gets all columns of that one.
    pub(crate) fn push_refill(
        &mut self,
        block: &Block,
        slot: Slot,
        columns: usize,
        remember: impl FnOnce(&mut EntryWriter),
    ) -> Record<'static> {
        let at = self.undo.push_update(block, slot, Change::Refill, columns, remember);
        // SAFETY: as above.
        unsafe { Record::from_raw(at) }
    }

    pub(crate) fn push_lock(&mut self, block: &Block, slot: Slot, lock: RowLock) -> Record<'static> {
        self.locks += 1;
        let at = self.undo.push_lock(block, slot, lock);
        // SAFETY: as above.
        unsafe { Record::from_raw(at) }
    }

    /// Removes the newest record, which could not be linked.
    pub(crate) fn pop(&mut self) {
        self.undo.pop();
    }

    /// Removes the newest record, which is a lock's, likewise.
    pub(crate) fn pop_lock(&mut self) {
        self.locks -= 1;
        self.undo.pop();
    }

    pub(crate) fn records(&self) -> impl DoubleEndedIterator<Item = Record<'_>> + ExactSizeIterator {
        // SAFETY: the records are in our segments, which live as long as the borrow.
        self.undo.records().iter().map(|at| unsafe { Record::from_raw(*at) })
    }

    /// Commit: makes every change visible to snapshots of `time` and later. The caller ensures that no such
    /// snapshot can be taken before this returns.
    pub fn stamp(&self, time: Time) {
        let stamp = Stamp::committed(time);
        self.records().for_each(|record| record.set_stamp(stamp));
    }

    /// Undoes every change since `mark`, newest first. The records remain linked; their images then equal the
    /// values in place.
    pub fn roll_back(&mut self, mark: Mark, guard: &Guard) {
        self.roll_back_and(mark, guard, None);
    }

    /// As [`WriteSet::roll_back`]; also calls `freed` with every key of a unique index that this releases.
    pub fn roll_back_and(&mut self, mark: Mark, guard: &Guard, mut freed: Option<Freed<'_>>) {
        for record in self.records().skip(mark.records).rev() {
            if !record.undone() {
                let table = self.table_of(record);
                if let Some(freed) = &mut freed {
                    // The newer ones are undone: this record's change is what is in place.
                    table.keys_claimed(record, guard, freed);
                }
                table.undo(record, guard);
                record.set_undone();
            }
        }
        if let (Some(redo), Some(mark)) = (&mut self.redo, mark.redo) {
            redo.truncate(mark);
        }
    }

    /// Undoes everything. The contents of the redo buffer are not valid any more. Private tables keep the
    /// rows that it has inserted, since they are dropped as a whole.
    pub fn roll_back_all(&mut self, guard: &Guard) {
        for record in self.records().rev().filter(|record| !record.undone() && !record.is_out()) {
            self.table_of(record).undo(record, guard);
            record.set_undone();
        }
    }

    /// Removes the records of rows that it has changed or locked only since `mark`, and whose changes it has
    /// undone. Other transactions may then have the rows. Once these records are stamped with a time, they
    /// have ended as if another transaction had made them and been rolled back. Rows that it has changed or
    /// locked before `mark` as well remain its own, with all its records: no record with a time may be above
    /// one without. So do rows of private tables, which no other transaction can want and whose insertion has
    /// no record in a chain. `None` if there is nothing to release.
    pub fn let_go(&mut self, mark: Mark, guard: &Guard) -> Option<LetGo> {
        let since = || self.records().skip(mark.records);
        since().for_each(|record| {
            record.set_let_go(record.undone() && self.table_of(record).is_published());
        });
        for record in since().filter(|record| record.is_let_go()) {
            // All or none of a row's records: the newest one decides.
            let head = record.block().newest(record.slot(), guard);
            let own = || {
                let chain = std::iter::successors(head, |record| record.older(guard));
                chain.take_while(|record| record.stamp() == self.owner)
            };
            if head == Some(record) && !own().all(Record::is_let_go) {
                // Those are above all that it has done before.
                own().take_while(|record| record.is_let_go()).for_each(|record| record.set_let_go(false));
            }
        }
        let mut locks = 0;
        let (records, memory, bytes) = self.undo.take_out(mark.records, |record| {
            locks += usize::from(record.is_let_go() && record.change() == Change::Lock);
            record.is_let_go()
        });
        if records.is_empty() {
            return None;
        }
        self.locks -= locks;
        let counted = self.counted.min(bytes);
        self.counted -= counted;
        Some(LetGo { owner: self.owner, records, memory, bytes, counted, tables: self.tables.clone() })
    }

    /// The ordinal of a row, from 0, among the rows that it has inserted into a table since `mark`; `None` if
    /// it is none of them.
    pub fn ordinal_since(&self, mark: Mark, table: &Table, row: RowId) -> Option<u64> {
        let mut before = 0;
        for record in self.records().skip(mark.records) {
            let inserts = matches!(record.change(), Change::Insert | Change::InsertMany);
            if !inserts || record.undone() || record.block().table != table.id() {
                continue;
            }
            let (first, rows) = (record.block().row(record.slot()), record.inserted_rows().max(1));
            if first.block() == row.block() && (first.slot().0..first.slot().0 + rows).contains(&row.slot().0)
            {
                return Some(before + u64::from(row.slot().0 - first.slot().0));
            }
            before += u64::from(rows);
        }
        None
    }

    fn table_of(&self, record: Record<'_>) -> &Arc<Table> {
        table_of(&self.tables, record)
    }

    /// A digest of its changes, for [`WriteSet::retire`].
    pub fn digest(&self) -> Box<Digest> {
        Digest::of(self)
    }

    /// Ends it at `time`. Returns what the collector keeps, with the digest, and the redo buffer for reuse.
    pub fn retire(self, time: Time, mut digest: Box<Digest>) -> (Retired, Option<RedoBuffer>) {
        let bytes = self.undo.bytes() + digest.bytes();
        let (records, memory) = self.undo.into_parts();
        digest.complete(time, self.tables);
        (Retired { time, bytes, records, memory, digest: SharedDigest::new(digest) }, self.redo)
    }

    #[cfg(test)]
    pub(crate) fn retire_now(self, time: Time) -> Retired {
        let digest = self.digest();
        self.retire(time, digest).0
    }
}

/// What a running transaction has changed, undone and released.
#[must_use = "its records are in chains"]
pub struct LetGo {
    owner: Stamp,
    records: Vec<NonNull<UndoHeader>>,
    memory: UndoMemory,
    bytes: usize,
    counted: usize,
    tables: TouchedTables,
}

impl LetGo {
    /// Its bytes that the budget counts for an unfinished transaction.
    pub fn counted_bytes(&self) -> usize {
        self.counted
    }

    /// Ends it at `time`. The caller ensures that no snapshot reads at that time or later before this
    /// returns. It is then collected like the records of a rolled-back transaction.
    pub fn end(self, time: Time) -> Retired {
        let LetGo { owner, records, memory, bytes, tables, .. } = self;
        let digest = Digest::of_nothing(owner, time, tables);
        let bytes = bytes + digest.bytes();
        for at in &records {
            // SAFETY: lies in `memory`.
            let record: Record<'_> = unsafe { Record::from_raw(*at) };
            record.set_stamp(Stamp::committed(time));
        }
        Retired { time, bytes, records, memory, digest: SharedDigest::new(digest) }
    }
}

pub(crate) fn leave_gates(tables: &TouchedTables, owner: Stamp) {
    for table in tables {
        table.gate().leave(owner);
    }
}

pub(crate) fn table_of<'a>(tables: &'a [Arc<Table>], record: Record<'_>) -> &'a Arc<Table> {
    let id = record.block().table;
    tables.iter().find(|table| table.id() == id).expect("tables are touched before they are written to")
}

/// The undo records of an ended transaction, owned by the collector until no snapshot needs them, and their
/// digest, which validating transactions read. These may use the digest as long as they hold a guard. So it
/// is freed by [`Retired::collect`] or [`Retired::discard`], or where no other thread is left.
pub struct Retired {
    /// When it ended: its commit time, or the time of its rollback.
    pub time: Time,
    /// Bytes of its undo records and its digest.
    pub bytes: usize,
    pub(crate) records: Vec<NonNull<UndoHeader>>,
    pub(crate) memory: UndoMemory,
    pub(crate) digest: SharedDigest,
}

// SAFETY: the pointers refer to `memory`, which moves along.
unsafe impl Send for Retired {}
// SAFETY: sharing gives no access to the records.
unsafe impl Sync for Retired {}

impl Retired {
    /// How many undo records there are.
    pub fn record_count(&self) -> usize {
        self.records.len()
    }

    /// What it has changed.
    #[inline]
    pub fn digest<'g>(&self, guard: &'g Guard) -> &'g Digest {
        self.digest.get(guard)
    }
}

/// The columns that a change sets; all if the row was inserted or deleted.
pub(crate) fn columns_set_by(record: Record<'_>) -> ColumnSet {
    match record.change() {
        Change::Update => record.entries().map(|(column, _)| column).collect(),
        Change::Lock => ColumnSet::NONE,
        Change::Insert | Change::InsertMany | Change::Delete | Change::Refill => ColumnSet::ALL,
    }
}
