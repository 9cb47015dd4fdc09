//! A write set: one transaction's undo and redo images, and what becomes of them at its end.
//!
//! The ways to walk the undo records are [`WriteSet::stamp`] (commit), [`WriteSet::roll_back`] and,
//! once nobody needs the old images any more, [`Retired::collect`] (see [`crate::collect`]) or,
//! if a long reader still does, [`Attic::take_in`](crate::Attic::take_in). What is rolled back while the transaction runs on
//! can end before it does ([`WriteSet::let_go`]).

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

/// Who is told of the keys that a transaction lets go of.
pub struct Freed<'f> {
    /// Indexes whose keys are each one row's in the end, beside those that are unique.
    pub late: &'f [IndexId],
    /// Who that is.
    pub visit: &'f mut VisitFreed<'f>,
}

/// Gets table, index, and key; no key where they are many.
pub type VisitFreed<'f> = dyn FnMut(&Table, &Index, Option<&[u8]>) + 'f;

/// Tables that a transaction has written to; few.
pub(crate) type TouchedTables = SmallVec<[Arc<Table>; 8]>;

/// One transaction's changes: undo records in segments that never move, redo images in order.
pub struct WriteSet {
    owner: Stamp,
    undo: UndoBuffer,
    /// What the log will hold; `None` in a database without a log.
    redo: Option<RedoBuffer>,
    tables: TouchedTables,
    /// How many of the undo records are locks.
    locks: usize,
    /// Bytes that the budget was told of.
    counted: usize,
    /// Whether it has put rows elsewhere that lay in compact blocks.
    moves: bool,
}

/// A transaction tells the budget of its memory whenever that has grown by so much; most never do.
const COUNTED_BYTES: usize = 64 << 10;

/// It looks at that after so many changes of rows.
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

    /// Whose changes these are.
    pub fn owner(&self) -> Stamp {
        self.owner
    }

    /// Whether there is nothing in it: nothing was changed and no row locked.
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

    /// Bytes that the budget counts as an unfinished transaction's.
    pub fn counted_bytes(&self) -> usize {
        self.counted
    }

    /// As [`WriteSet::count_growth`], after a change of one row: looks after some of them only.
    #[inline]
    pub(crate) fn count_row(&mut self, budget: &MemoryBudget) {
        if self.undo.records().len().is_multiple_of(COUNTED_ROWS) {
            self.count_growth(budget);
        }
    }

    /// Has the budget count what has been written, once that is much.
    pub(crate) fn count_growth(&mut self, budget: &MemoryBudget) {
        let bytes = self.undo.bytes() + self.redo.as_ref().map_or(0, |redo| redo.as_bytes().len());
        if bytes >= self.counted + COUNTED_BYTES {
            budget.add(Held::Unfinished, (bytes - self.counted) as i64);
            self.counted = bytes;
        }
    }

    /// Where it is now.
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

    /// Where a row is now that this transaction has seen: an update puts one of a compact block elsewhere.
    #[inline]
    pub fn place_of(&self, table: &Table, row: RowId) -> RowId {
        if self.moves { self.follow(table, row) } else { row }
    }

    #[cold]
    fn follow(&self, table: &Table, mut row: RowId) -> RowId {
        let guard = &crate::pin();
        // Unless that was taken back.
        let moved_to = |row: RowId| {
            let head = table.block(row).newest(row.slot(), guard)?;
            head.moved_to().filter(|_| head.stamp() == self.owner && !head.undone())
        };
        while let Some(to) = moved_to(row) {
            row = to;
        }
        row
    }

    /// Announces that `table` will be written to, whose gate the caller has joined.
    pub fn touch(&mut self, table: &Arc<Table>) {
        debug_assert!(!self.has_touched(table));
        self.tables.push(table.clone());
    }

    /// Leaves the gates of its tables without having written; gives back the redo buffer to use again.
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

    /// The redo images, to append a change of a row of `table`; `None` as well if nobody else knows of the table yet: what is
    /// in it then is logged with the commit.
    #[inline]
    pub(crate) fn redo_of(&mut self, table: &Table) -> Option<&mut RedoBuffer> {
        self.redo.as_mut().filter(|_| table.is_published())
    }

    /// Whether its redo in memory has grown to so many bytes.
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
        // SAFETY: just written; callers use it no longer than the write set lives.
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
        let at = self.undo.push_update(block, slot, columns, remember);
        // SAFETY: as above.
        unsafe { Record::from_raw(at) }
    }

    pub(crate) fn push_lock(&mut self, block: &Block, slot: Slot, lock: RowLock) -> Record<'static> {
        self.locks += 1;
        let at = self.undo.push_lock(block, slot, lock);
        // SAFETY: as above.
        unsafe { Record::from_raw(at) }
    }

    /// Takes back the newest record, which could not be linked.
    pub(crate) fn pop(&mut self) {
        self.undo.pop();
    }

    /// Takes back the newest record, a lock's, likewise.
    pub(crate) fn pop_lock(&mut self) {
        self.locks -= 1;
        self.undo.pop();
    }

    pub(crate) fn records(&self) -> impl DoubleEndedIterator<Item = Record<'_>> + ExactSizeIterator {
        // SAFETY: the records lie in our segments, which live as long as the borrow.
        self.undo.records().iter().map(|at| unsafe { Record::from_raw(*at) })
    }

    /// Commit: makes every change visible to snapshots of `time` and later. The caller sees to it
    /// that nobody can draw such a snapshot before this returns.
    pub fn stamp(&self, time: Time) {
        let stamp = Stamp::committed(time);
        self.records().for_each(|record| record.set_stamp(stamp));
    }

    /// Undoes every change since `mark`, newest first. The records stay linked; their images now
    /// equal what lies in place.
    pub fn roll_back(&mut self, mark: Mark, guard: &Guard) {
        self.roll_back_and(mark, guard, None);
    }

    /// As [`WriteSet::roll_back`], and calls `freed` with every key of a unique index that others may have by that.
    pub fn roll_back_and(&mut self, mark: Mark, guard: &Guard, mut freed: Option<Freed<'_>>) {
        for record in self.records().skip(mark.records).rev() {
            if !record.undone() {
                let table = self.table_of(record);
                if let Some(freed) = &mut freed {
                    // The newer ones are taken back: what lies in place is what this one has put there.
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

    /// Undoes everything. What is left in the redo buffer no longer counts. Tables that only this transaction knows of keep
    /// the rows that it has inserted: they are given up as wholes.
    pub fn roll_back_all(&mut self, guard: &Guard) {
        for record in self.records().rev().filter(|record| !record.undone() && !record.is_out()) {
            self.table_of(record).undo(record, guard);
            record.set_undone();
        }
    }

    /// Parts with what it has changed or locked since `mark` and taken back, so that others may have the rows: once that is stamped with a time it
    /// has ended as if another transaction had made it and been rolled back. Rows that it has changed or locked before as well stay its
    /// own, with all that it has done to them: above a record without a time there shall be none that has one. So do those of
    /// tables that only it knows of, which nobody else wants and whose chains do not tell that rows came to be. `None` if there is nothing else.
    pub fn let_go(&mut self, mark: Mark, guard: &Guard) -> Option<LetGo> {
        let since = || self.records().skip(mark.records);
        since().for_each(|record| {
            record.set_let_go(record.undone() && self.table_of(record).is_published());
        });
        for record in since().filter(|record| record.is_let_go()) {
            // Of each row all or nothing, which is seen at the newest.
            let head = record.block().newest(record.slot(), guard);
            let own = || {
                let chain = std::iter::successors(head, |record| record.older(guard));
                chain.take_while(|record| record.stamp() == self.owner)
            };
            if head == Some(record) && !own().all(Record::is_let_go) {
                // Those stand above all that it has done before.
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

    /// Of the rows that it has inserted into a table since `mark`, which one a row is, from 0; `None` if it is none of
    /// them.
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

    /// What it has changed, for [`WriteSet::retire`].
    pub fn digest(&self) -> Box<Digest> {
        Digest::of(self)
    }

    /// What the collector keeps of it once it has ended at `time`, with its digest, and the redo buffer to use again.
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

/// What a transaction that runs on has changed and taken back.
#[must_use = "its records lie in chains"]
pub struct LetGo {
    owner: Stamp,
    records: Vec<NonNull<UndoHeader>>,
    memory: UndoMemory,
    bytes: usize,
    counted: usize,
    tables: TouchedTables,
}

impl LetGo {
    /// Bytes of it that the budget counts as an unfinished transaction's.
    pub fn counted_bytes(&self) -> usize {
        self.counted
    }

    /// Ends it at `time`; the caller sees to it that nobody reads then or later before this returns. To be collected as what has been
    /// rolled back.
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

/// The undo records of a transaction that has ended, until no snapshot needs them: the collector's; and their digest, to be read
/// by whoever validates what it read before. Others may hold what they say as long as they hold a guard: so it is given up by
/// [`Retired::collect`] or [`Retired::discard`], or where nobody else is left.
pub struct Retired {
    /// When it ended: its commit time, or the time its rollback was stamped with.
    pub time: Time,
    /// Bytes of its undo records and its digest.
    pub bytes: usize,
    pub(crate) records: Vec<NonNull<UndoHeader>>,
    pub(crate) memory: UndoMemory,
    pub(crate) digest: SharedDigest,
}

// SAFETY: the pointers lead into `memory`, which moves along.
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

/// Which columns a change sets; all if the row came or went.
pub(crate) fn columns_set_by(record: Record<'_>) -> ColumnSet {
    match record.change() {
        Change::Update => record.entries().map(|(column, _)| column).collect(),
        Change::Lock => ColumnSet::NONE,
        Change::Insert | Change::InsertMany | Change::Delete => ColumnSet::ALL,
    }
}
