//! Changing rows: memory, conflicts, and keys that are found taken.

use super::{Change, Isolation, Transaction};
use arrow_array::ArrayRef;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Error, Result, RowId, Snapshot, SqlState};
use firn_storage::{Guard, Index, KeyBuffer, Move, Pressure, Table, WriteSet, is_long_string};
use std::ops::Bound;

impl Transaction {
    #[inline]
    pub(super) fn writes(&self) -> &WriteSet {
        self.write_set.as_ref().expect("running")
    }

    /// The write set, after the transaction has joined the writers of `table`.
    #[inline]
    pub(crate) fn writes_to(&mut self, table: &Arc<Table>) -> Result<&mut WriteSet> {
        if !self.may_write_to(table) {
            self.join(table)?;
        }
        let write_set = self.write_set.as_mut().expect("running");
        self.engine.spill_if_long(write_set)?;
        Ok(write_set)
    }

    /// Joins the writers of a table without waiting for DDL. Errors: 55P03, 40001.
    pub(crate) fn try_to_write_to(&mut self, table: &Arc<Table>) -> Result<()> {
        debug_assert!(self.locks.writes_to_all(), "this is for transactions that move rows");
        if self.writes().has_touched(table) {
            return Ok(());
        }
        if !table.gate().try_join(self.snapshot.owner) {
            return Err(super::locks::lock_not_available(super::Awaited::Table(table)));
        }
        self.joined(table)
    }

    /// Checks that there is memory for a change, as far as that is known beforehand: 53200 if the change needs some and
    /// there is none.
    #[inline]
    pub(crate) fn check_memory(
        &self,
        table: &Table,
        change: Change,
        has_strings: impl FnOnce() -> bool,
    ) -> Result<()> {
        match self.engine.memory().pressure() {
            Pressure::None => Ok(()),
            pressure => self.reclaim_memory(table, pressure, change, has_strings()),
        }
    }

    #[cold]
    fn reclaim_memory(
        &self,
        table: &Table,
        pressure: Pressure,
        change: Change,
        has_strings: bool,
    ) -> Result<()> {
        let needs_no_block = change == Change::Update || table.has_free_slots();
        if pressure == Pressure::Rows && !has_strings && needs_no_block {
            return Ok(());
        }
        // Old versions of transactions that have ended may be all that fills the memory.
        self.engine.collect_now();
        match self.engine.memory().pressure() {
            Pressure::None => Ok(()),
            Pressure::Rows if !has_strings => Ok(()),
            _ => Err(self.engine.memory().exceeded(&format!("room to change table \"{}\"", table.name()))),
        }
    }

    /// Rows can be deleted from a store above its limit. A process without any memory left cannot note what was deleted
    /// (53200).
    #[cold]
    fn reclaim_memory_to_delete(&self, table: &Table) -> Result<()> {
        let memory = self.engine.memory();
        if memory.pressure_of_process() == Pressure::All {
            self.engine.collect_now();
        }
        match memory.pressure_of_process() {
            Pressure::All => Err(memory.exceeded(&format!("room to delete from table \"{}\"", table.name()))),
            Pressure::None | Pressure::Rows => Ok(()),
        }
    }

    /// Inserts a row; see [`Table::insert`].
    #[inline]
    pub fn insert(&mut self, table: &Arc<Table>, row: &[Cell<'_>], guard: &Guard) -> Result<RowId> {
        self.check_memory(table, Change::Insert, || row.iter().any(is_long_string))?;
        let (snapshot, mark) = (self.snapshot, self.mark_for_retry());
        let mut inserted = table.insert(self.writes_to(table)?, snapshot, row, guard);
        if inserted.as_ref().is_err_and(|error| error.state() == SqlState::OUT_OF_MEMORY) {
            // Nothing has changed yet; what the collector frees may be enough.
            self.engine.collect_now();
            inserted = table.insert(self.writes_to(table)?, snapshot, row, guard);
        }
        if inserted.as_ref().is_err_and(|error| self.retry_with_snapshot(error, mark, guard)) {
            let snapshot = self.snapshot;
            inserted = table.insert(self.writes_to(table)?, snapshot, row, guard);
        }
        inserted.map_err(|error| {
            self.violation(table, error, guard, |index| {
                let mut key = KeyBuffer::new();
                index.encode_with(|column| row[column.index()], &mut key);
                Some(key)
            })
        })
    }

    /// Inserts several rows, faster than one by one; see [`Table::insert_rows`].
    pub fn insert_rows<const N: usize>(
        &mut self,
        table: &Arc<Table>,
        rows: &[[Cell<'_>; N]],
        guard: &Guard,
    ) -> Result<()> {
        self.check_memory(table, Change::Insert, || rows.iter().flatten().any(is_long_string))?;
        self.insert_with_retry(table, guard, |writes, snapshot| {
            table.insert_rows(writes, snapshot, rows, guard)
        })
    }

    /// Inserts whole columns; see [`Table::insert_batch`].
    pub fn insert_batch(&mut self, table: &Arc<Table>, columns: &[ArrayRef], guard: &Guard) -> Result<()> {
        self.check_memory(table, Change::Insert, || table.has_strings())?;
        self.insert_with_retry(table, guard, |writes, snapshot| {
            table.insert_batch(writes, snapshot, columns, guard)
        })?;
        if table.is_published() { Ok(()) } else { self.write_ahead(table) }
    }

    /// Inserts rows. Repeats the insertion if there was no memory for all of them, since what a running collector frees may
    /// not be available yet; and if it is to be [repeated with a snapshot](Transaction::retry_with_snapshot).
    pub(crate) fn insert_with_retry(
        &mut self,
        table: &Arc<Table>,
        guard: &Guard,
        mut insert: impl FnMut(&mut WriteSet, Snapshot) -> Result<()>,
    ) -> Result<()> {
        let mark = self.writes_to(table)?.mark();
        let (snapshot, mark_for_retry) = (self.snapshot, self.mark_for_retry());
        let mut inserted = insert(self.writes_to(table)?, snapshot);
        if inserted.as_ref().is_err_and(|error| error.state() == SqlState::OUT_OF_MEMORY) {
            self.write_set.as_mut().expect("running").roll_back(mark, guard);
            self.engine.collect_now();
            inserted = insert(self.writes_to(table)?, snapshot);
        }
        if inserted.as_ref().is_err_and(|error| self.retry_with_snapshot(error, mark_for_retry, guard)) {
            let snapshot = self.snapshot;
            inserted = insert(self.writes_to(table)?, snapshot);
        }
        inserted.map_err(|error| self.violation(table, error, guard, |_| None))
    }

    /// Sets columns of a visible row; see [`Table::update`].
    #[inline]
    pub fn update(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        columns: &[ColumnId],
        cells: &[Cell<'_>],
        guard: &Guard,
    ) -> Result<()> {
        self.check_memory(table, Change::Update, || cells.iter().any(is_long_string))?;
        if self.locks.locks_before_changes() && !self.lock_to_change(table, row, guard)? {
            return Ok(());
        }
        let (snapshot, row) = (self.snapshot, self.current_row_id(table, row));
        let mut updated = table.update(self.writes_to(table)?, snapshot, row, columns, cells, guard);
        if updated.as_ref().is_err_and(|error| error.state() == SqlState::OUT_OF_MEMORY) {
            // A row of a compact block takes a new slot, as an inserted one does.
            self.engine.collect_now();
            updated = table.update(self.writes_to(table)?, snapshot, row, columns, cells, guard);
        }
        updated.map_err(|error| self.violation(table, error, guard, |_| None))
    }

    /// The id that a row of this transaction's snapshot has by now: an update moves a row out of a compact block. The
    /// methods here also accept the old id; rows that are found in other ways have the new one.
    #[inline]
    pub fn current_row_id(&self, table: &Table, row: RowId) -> RowId {
        self.writes().place_of(table, row)
    }

    /// Deletes a visible row; see [`Table::delete`].
    pub fn delete(&mut self, table: &Arc<Table>, row: RowId, guard: &Guard) -> Result<()> {
        if self.engine.memory().pressure() == Pressure::All {
            self.reclaim_memory_to_delete(table)?;
        }
        if self.locks.locks_before_changes() && !self.lock_to_change(table, row, guard)? {
            return Ok(());
        }
        let (snapshot, row) = (self.snapshot, self.current_row_id(table, row));
        let deleted = table.delete(self.writes_to(table)?, snapshot, row, guard);
        deleted.inspect_err(|error| self.count_failure(error))
    }

    /// Moves a row to another slot; see [`Table::move_row`].
    pub(crate) fn move_row(&mut self, table: &Arc<Table>, to: Move, guard: &Guard) -> Result<()> {
        let snapshot = self.snapshot;
        let memory = self.check_memory(table, Change::Insert, || table.has_strings());
        match memory.and_then(|()| self.writes_to(table)) {
            Ok(writes) => table.move_row(writes, snapshot, to, guard),
            Err(error) => {
                table.give_back([to.1]);
                Err(error)
            }
        }
    }

    #[cold]
    fn count_failure(&self, error: &Error) {
        let statistics = self.engine.statistics();
        match error.state() {
            SqlState::UNIQUE_VIOLATION => statistics.unique_violations.count(),
            SqlState::SERIALIZATION_FAILURE => statistics.write_conflicts.count(),
            _ => {}
        }
    }

    /// Notes that a key was found taken, if that is the error. If a serializable transaction does not see the
    /// row that has the key, the error may become a conflict: see [`Transaction::conflict_over_unseen`].
    #[cold]
    pub(crate) fn violation(
        &self,
        table: &Table,
        error: Error,
        guard: &Guard,
        key: impl FnOnce(&Index) -> Option<KeyBuffer>,
    ) -> Error {
        if error.state() != SqlState::UNIQUE_VIOLATION {
            self.count_failure(&error);
            return error;
        }
        let indexes = table.indexes();
        let index = indexes.iter().find(|index| error.constraint() == Some(&index.spec().name));
        let index = index.expect("a violation names its index");
        // Without the key, all keys count as read.
        let key = key(index);
        if let Some(other) = error.other_row()
            && let Some(conflict) = self.conflict_over_unseen(table, index, key.as_deref(), other, guard)
        {
            return conflict;
        }
        self.count_failure(&error);
        let bound = key.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(key.as_slice()));
        self.note(|reads| reads.range(table, index, (bound, bound), &[], index.columns()));
        error
    }

    /// The conflict (40001) that must be reported in place of 23505 over `row`, if any. The transaction must be serializable,
    /// and must not see the row under the key (under the row's newest key if `key` is not known).
    ///
    /// A transaction that continues after errors would have read a state that it does not see: the row may be gone again by
    /// its commit, and validation, which compares begin and commit, would not notice. A transaction that ends with the error
    /// may get 23505, since a serial order in which it comes after the owner of the key explains that. It gets 40001 if what
    /// it has read has changed since, because then another attempt is the cure.
    #[cold]
    pub(crate) fn conflict_over_unseen(
        &self,
        table: &Table,
        index: &Index,
        key: Option<&[u8]>,
        row: RowId,
        guard: &Guard,
    ) -> Option<Error> {
        if self.isolation != Isolation::Serializable || self.read_only {
            return None;
        }
        let sees = match key {
            Some(key) => table.sees(index, key, row, self.snapshot, guard),
            None => table.is_seen_under_newest_key(index, row, self.snapshot, guard),
        };
        if sees {
            return None;
        }
        if !self.continues_after_error {
            return self.validate_so_far().err();
        }
        let conflict = Error::write_conflict(&table.name());
        self.count_failure(&conflict);
        Some(conflict)
    }

    /// Checks that everything read so far reads the same in the newest committed state: 40001 if not. The
    /// snapshot does not change.
    #[cold]
    fn validate_so_far(&self) -> Result<()> {
        self.take_notes();
        let reads = &mut *self.reads.borrow_mut();
        if reads.is_empty() {
            return Ok(());
        }
        // As in `restart`.
        self.wait_for_publication();
        let before = self.snapshot.read_time;
        let active = self.engine.active();
        active.advance(&self.slot, before, self.engine.last());
        let validated = self.engine.validate(reads, self.snapshot, before);
        active.settle(&self.slot, before);
        validated.map(|_| ())
    }
}
