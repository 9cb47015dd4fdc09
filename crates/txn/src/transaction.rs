//! A transaction: a snapshot, a write set, and the way to end it.
//!
//! Reads take a [`Guard`], which pins what they return; hold it for one operation or one short
//! transaction, never across a wait. Dropping a transaction rolls it back.

mod locking;
mod reading;

pub use locking::{Awaited, Patience, TablePatience};

use crate::active::{ActiveSlot, Waited};
use crate::catalog::{Catalog, IndexDef};
use crate::ddl::{Action, Ddl};
use crate::deferred::{Deferred, DeferredMark};
use crate::engine::{Engine, keep_redo};
use crate::loads::{self, Loading};
use crate::predicates::{PredicateLog, ReadMark};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use firn_base::sync::{Arc, OnceLock, Ordering};
use firn_base::{
    Cell, ColumnId, ColumnSet, Error, Lsn, Result, RowId, Snapshot, SqlState, Stamp, TableId, Time,
};
use firn_log::RedoBuffer;
use firn_storage::{
    ColumnSpec, Counted, Freed, Guard, Index, IndexId, IndexSpec, KeyBuffer, Mark, MemoryBudget, Move,
    Pressure, RowLock, Table, WaitingKeys, WriteSet, is_long_string, pin,
};
use std::cell::RefCell;
use std::ops::Bound;
use std::time::Duration;

/// What a transaction is kept apart from. Each keeps what those before it keep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Isolation {
    /// Reads the newest snapshot whenever it is [refreshed](Transaction::refresh): SQL's READ COMMITTED.
    ReadCommitted,
    /// Reads one snapshot, and changes no row that changed since: SQL's REPEATABLE READ.
    Snapshot,
    /// Does what it would do if it ran alone, at the moment of its commit.
    #[default]
    Serializable,
}

impl Isolation {
    /// The level that is this number when it is cast to one.
    pub(crate) fn from_number(number: u32) -> Isolation {
        match number {
            0 => Isolation::ReadCommitted,
            1 => Isolation::Snapshot,
            _ => Isolation::Serializable,
        }
    }
}

/// A running transaction.
pub struct Transaction {
    engine: Arc<Engine>,
    slot: ActiveSlot,
    snapshot: Snapshot,
    /// All that the snapshot sees is durable once the log is on disk up to here.
    seen: Lsn,
    /// `None` only while it ends.
    write_set: Option<WriteSet>,
    /// The rows that it keeps others from changing and not from sharing, in the order of their locks.
    shared: Vec<(Arc<Table>, RowId, RowLock)>,
    /// What the budget counts of them.
    shared_counted: Option<Counted>,
    /// The tables that it keeps others from writing to.
    closed: Vec<Arc<Table>>,
    /// Of the tables that its write set knows, those whose rows it may only lock.
    locks_only: Vec<Arc<Table>>,
    /// The tables that it keeps others from maintaining: SHARE UPDATE EXCLUSIVE.
    maintains: Vec<Arc<Table>>,
    patience: Option<TablePatience>,
    /// Whether its statement locks rows before it changes them, and which conflict it went on behind; see
    /// [`Transaction::lock_before_changes`].
    locks_first: bool,
    missed: Option<Error>,
    /// The committed catalog of the snapshot, once asked for.
    catalog: OnceLock<Arc<Catalog>>,
    ddl: Option<Box<Ddl>>,
    /// What it has put into files of tables that it has made.
    loading: Option<Box<Loading>>,
    /// Keys of rows that its statement has inserted into a table, which wait to enter their indexes together.
    waiting: Option<Box<(Arc<Table>, WaitingKeys)>>,
    /// Checks that were put off, if there ever were any, and whether they are to be.
    pub(crate) deferred: Option<Box<Deferred>>,
    may_advance: bool,
    isolation: Isolation,
    read_only: bool,
    /// Whether what it reads is noted to find out whether that may be lost.
    asks_what_may_be_lost: bool,
    /// Whether it does not [keep up](Transaction::keep_up).
    stays: bool,
    /// Whether it reads by no snapshot; see [`Transaction::forgo_snapshot`].
    reads_nothing: bool,
    /// Whether it may go on after an error, or after something was taken back: see [`Transaction::expect_to_end_by_errors`].
    goes_on: bool,
    /// What it has read, if it is serializable and may write, or asks.
    reads: RefCell<PredicateLog>,
}

/// A place to roll back to.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    mark: Mark,
    /// Catalog changes and storage actions so far.
    changes: usize,
    actions: usize,
    /// Shared locks so far.
    shared: usize,
    deferred: DeferredMark,
}

/// What needs memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Insert,
    Update,
}

/// Where a statement began; see [`Transaction::restart`].
#[derive(Debug)]
pub struct StatementStart {
    savepoint: Savepoint,
    reads: ReadMark,
}

/// What a transaction had read at some point; see [`Transaction::forget_reads`].
#[derive(Debug)]
pub struct ReadsSoFar(ReadMark);

/// What a commit yields: when it took effect, and when it will be safe on disk.
#[derive(Clone, Copy, Debug)]
#[must_use = "a commit is durable only once its ticket has been waited for"]
pub struct Ticket {
    /// The commit time; a read-only transaction's read time.
    pub time: Time,
    /// The log position that must reach the disk: behind its own changes, or behind those that it has
    /// seen if it has only read. `None` if there is nothing to wait for.
    pub lsn: Option<Lsn>,
}

thread_local! {
    /// A predicate log to use again.
    static SPARE_READS: std::cell::Cell<PredicateLog> = const { std::cell::Cell::new(PredicateLog::new()) };
}

impl Transaction {
    #[inline]
    pub(crate) fn new(
        engine: Arc<Engine>,
        slot: ActiveSlot,
        snapshot: Snapshot,
        seen: Lsn,
        isolation: Isolation,
        redo: Option<RedoBuffer>,
    ) -> Transaction {
        let write_set = Some(WriteSet::new(snapshot.owner, redo));
        Transaction {
            engine,
            slot,
            snapshot,
            seen,
            write_set,
            shared: Vec::new(),
            shared_counted: None,
            closed: Vec::new(),
            locks_only: Vec::new(),
            maintains: Vec::new(),
            patience: None,
            locks_first: false,
            missed: None,
            catalog: OnceLock::new(),
            ddl: None,
            loading: None,
            waiting: None,
            deferred: None,
            may_advance: false,
            isolation,
            read_only: false,
            asks_what_may_be_lost: false,
            stays: false,
            reads_nothing: false,
            goes_on: true,
            reads: RefCell::new(SPARE_READS.take()),
        }
    }

    /// The engine it runs in.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What it sees.
    #[inline]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot
    }

    /// What it is kept apart from.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Changes that. What was read before does not count, so nothing should have been.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        assert!(!self.has_writes(), "the transaction has not begun to work");
        self.isolation = isolation;
        self.engine.active().set_isolation(&self.slot, isolation);
    }

    /// Says which session it is of, for those who look at what is running.
    #[inline]
    pub fn set_session(&self, session: u32) {
        self.engine.active().set_session(&self.slot, session);
    }

    /// Tells those at what level it was asked to run, if it runs at another: what only reads needs less to keep that.
    #[inline]
    pub fn tell_isolation(&self, asked: Isolation) {
        self.engine.active().set_isolation(&self.slot, asked);
    }

    /// Tells those who how much it has written.
    #[inline]
    pub fn tell_progress(&self) {
        self.engine.active().set_records(&self.slot, self.writes().records_written());
    }

    /// Says that it will not go on after an error, unless it has a [savepoint](Transaction::savepoint) by then. What it is told
    /// of keys need not be noted as far as it holds while nothing is taken back, and may be newer than what it sees.
    pub fn expect_to_end_by_errors(&mut self) {
        self.goes_on = false;
    }

    /// Says that it will not write: then nothing of what it reads need be validated.
    pub(crate) fn set_read_only(&mut self) {
        self.read_only = true;
    }

    /// Finds out at its end whether anything that it has read may yet be lost: if only other changes may be,
    /// nothing need be waited for. To be called before it reads, if it only reads rows of tables.
    ///
    /// Others' commits are visible before they are on disk. A reader who has read none of what they changed
    /// has read what stood there before them, and that is safe: it may say so whether or not they are lost.
    pub fn ask_what_may_be_lost(&mut self) {
        self.asks_what_may_be_lost = self.engine.to_wait_for(self.seen).is_some();
    }

    /// Whether what it reads is noted.
    #[inline]
    pub fn notes_reads(&self) -> bool {
        (self.isolation == Isolation::Serializable && !self.read_only) || self.asks_what_may_be_lost
    }

    /// Notes what it reads, if anybody is to know.
    #[inline]
    pub(crate) fn note(&self, read: impl FnOnce(&mut PredicateLog)) {
        debug_assert!(!self.reads_nothing, "it has forgone its snapshot");
        if self.notes_reads() {
            read(&mut self.reads.borrow_mut());
        }
    }

    /// The catalog as it sees it, its own DDL included.
    pub fn catalog(&self) -> &Arc<Catalog> {
        match &self.ddl {
            Some(ddl) => &ddl.catalog,
            None => self.catalog.get_or_init(|| self.engine.catalog_at(self.snapshot)),
        }
    }

    /// The version of that catalog. Quicker than asking the catalog itself.
    #[inline]
    pub fn catalog_version(&self) -> u64 {
        if self.ddl.is_none()
            && let Some(version) = self.engine.newest_catalog_version(self.snapshot)
        {
            return version;
        }
        self.catalog().version
    }

    /// Whether it may have changed the catalog.
    #[inline]
    pub fn has_ddl(&self) -> bool {
        self.ddl.is_some()
    }

    /// The catalog to change. First use takes the DDL lock until the end of the transaction;
    /// SQLSTATE 40001 if another transaction's DDL committed since this one began, 55P03 if another
    /// one is under way and does not end in time.
    pub fn catalog_mut(&mut self) -> Result<&mut Catalog> {
        let ddl = self.ddl_mut()?;
        ddl.history.push(ddl.catalog.clone());
        let version = self.engine.fresh_catalog_version();
        let catalog = Arc::make_mut(&mut self.ddl.as_mut().expect("just made").catalog);
        catalog.version = version;
        Ok(catalog)
    }

    fn ddl_mut(&mut self) -> Result<&mut Ddl> {
        assert!(!self.read_only, "a transaction that was begun to read does not write");
        if self.ddl.is_none() {
            self.begin_ddl()?;
            self.ddl = Some(Box::new(Ddl::new(self.catalog().clone())));
        }
        Ok(self.ddl.as_mut().expect("just made"))
    }

    /// The physical table of an id, also if this transaction has just created it.
    pub fn table(&self, id: TableId) -> Arc<Table> {
        self.engine.table(id)
    }

    /// Whether it has changed anything. Locks change nothing.
    pub fn has_writes(&self) -> bool {
        self.ddl.is_some() || !self.writes().has_only_locks()
    }

    #[inline]
    fn writes(&self) -> &WriteSet {
        self.write_set.as_ref().expect("running")
    }

    /// The write set, once `table` may be written to.
    #[inline]
    pub(crate) fn writes_to(&mut self, table: &Arc<Table>) -> Result<&mut WriteSet> {
        if !self.may_write_to(table) {
            self.join(table)?;
        }
        let write_set = self.write_set.as_mut().expect("running");
        self.engine.spill_if_long(write_set)?;
        Ok(write_set)
    }

    /// Makes sure that it may write to a table, without waiting for DDL. Errors: 55P03, or 40001.
    pub(crate) fn try_to_write_to(&mut self, table: &Arc<Table>) -> Result<()> {
        debug_assert!(self.locks_only.is_empty(), "this is for who moves rows");
        if self.writes().has_touched(table) {
            return Ok(());
        }
        if !table.gate().try_join(self.snapshot.owner) {
            return Err(locking::busy(locking::Awaited::Table(table)));
        }
        self.joined(table)
    }

    /// Sees to it that there is memory for a change, as far as that can be told beforehand: 53200 if it
    /// takes some where there is none.
    #[inline]
    pub(crate) fn ask_for_room(
        &self,
        table: &Table,
        change: Change,
        has_strings: impl FnOnce() -> bool,
    ) -> Result<()> {
        match self.engine.memory().pressure() {
            Pressure::None => Ok(()),
            pressure => self.make_room(table, pressure, change, has_strings()),
        }
    }

    #[cold]
    fn make_room(&self, table: &Table, pressure: Pressure, change: Change, has_strings: bool) -> Result<()> {
        let needs_no_block = change == Change::Update || table.has_free_slots();
        if pressure == Pressure::Rows && !has_strings && needs_no_block {
            return Ok(());
        }
        // What others have ended may be all that is in the way.
        self.engine.collect_now();
        match self.engine.memory().pressure() {
            Pressure::None => Ok(()),
            Pressure::Rows if !has_strings => Ok(()),
            _ => Err(self.engine.memory().exceeded(&format!("room to change table \"{}\"", table.name()))),
        }
    }

    /// A store above its limit can be deleted from; a process that has nothing left cannot note what was deleted (53200).
    #[cold]
    fn make_room_to_delete(&self, table: &Table) -> Result<()> {
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
        self.ask_for_room(table, Change::Insert, || row.iter().any(is_long_string))?;
        let (snapshot, before) = (self.snapshot, self.mark_without_snapshot());
        let mut inserted = table.insert(self.writes_to(table)?, snapshot, row, guard);
        if inserted.as_ref().is_err_and(|error| error.state() == SqlState::OUT_OF_MEMORY) {
            // Nothing has happened yet; what the collector is freeing just now may be enough.
            self.engine.collect_now();
            inserted = table.insert(self.writes_to(table)?, snapshot, row, guard);
        }
        if inserted.as_ref().is_err_and(|error| self.looks_again(error, before, guard)) {
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

    /// What to go back to if a row is [to be inserted again](Transaction::looks_again).
    #[inline]
    pub(crate) fn mark_without_snapshot(&self) -> Option<Mark> {
        self.reads_nothing.then(|| self.writes().mark())
    }

    /// Whether rows are to be inserted once more, by a snapshot: a key is taken, and the transaction had none when it was
    /// `before` them. Whoever is told of that has read it, and it must be noted. What has been inserted is taken back.
    ///
    /// The catalog may have changed by the new snapshot, but not what the statement relies on: it has joined its table's
    /// gate by now, and writes to no other.
    #[cold]
    pub(crate) fn looks_again(&mut self, error: &Error, before: Option<Mark>, guard: &Guard) -> bool {
        let Some(before) = before.filter(|_| error.state() == SqlState::UNIQUE_VIOLATION) else {
            return false;
        };
        self.write_set.as_mut().expect("running").roll_back(before, guard);
        self.take_snapshot_again();
        true
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

    /// Notes that a key was found taken, if that is what the error says. A serializable transaction that does not see the row that has
    /// it may be told of a conflict instead: see [`Transaction::conflict_over_unseen`].
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
        // Without the key, that any key was.
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

    /// The conflict that 23505 over this row must become, if it must: the transaction is serializable and does not see the row under the
    /// key, or under its newest one if that is not known. One that goes on after errors must have seen it: the row may be gone again by
    /// its commit, and validation, which compares begin and commit, would not notice. One that ends is told of the key if it might have
    /// come after whoever has that: not if what it has read has changed since, when running it again is the cure.
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
        if !self.goes_on {
            return self.validate_so_far().err();
        }
        let conflict = Error::write_conflict(&table.name());
        self.count_failure(&conflict);
        Some(conflict)
    }

    /// Whether what it has read by now reads the same in the newest committed state: 40001 if not. It stays where it is.
    #[cold]
    fn validate_so_far(&self) -> Result<()> {
        let reads = &mut *self.reads.borrow_mut();
        if reads.is_empty() {
            return Ok(());
        }
        // As in `restart`.
        drop(self.engine.commit.lock());
        let before = self.snapshot.read_time;
        let active = self.engine.active();
        active.advance(&self.slot, before, self.engine.last());
        let validated = self.engine.validate(reads, self.snapshot, before);
        active.settle(&self.slot, before);
        validated.map(|_| ())
    }

    /// Indexes of keys that are tested late.
    fn late_keys(&self) -> Vec<IndexId> {
        let indexes = self.catalog().tables.values().flat_map(|table| &table.indexes);
        indexes.filter(|index| index.unique && !index.is_always_unique()).map(IndexDef::id).collect()
    }

    /// Inserts several rows, quicker than one by one; see [`Table::insert_rows`].
    pub fn insert_rows<const N: usize>(
        &mut self,
        table: &Arc<Table>,
        rows: &[[Cell<'_>; N]],
        guard: &Guard,
    ) -> Result<()> {
        self.ask_for_room(table, Change::Insert, || rows.iter().flatten().any(is_long_string))?;
        self.insert_in_room(table, guard, |writes, snapshot| table.insert_rows(writes, snapshot, rows, guard))
    }

    /// Inserts whole columns; see [`Table::insert_batch`].
    pub fn insert_batch(&mut self, table: &Arc<Table>, columns: &[ArrayRef], guard: &Guard) -> Result<()> {
        self.ask_for_room(table, Change::Insert, || table.has_strings())?;
        self.insert_in_room(table, guard, |writes, snapshot| {
            table.insert_batch(writes, snapshot, columns, guard)
        })?;
        if table.is_published() { Ok(()) } else { self.write_ahead(table) }
    }

    /// As [`Transaction::insert_batch`], but the keys may wait for those of later rows, to enter the indexes together, on up to so many
    /// threads: when there are many, and at the latest by [`Transaction::enter_keys`]. Nobody finds the rows by them until then, nor is
    /// told that one is taken; an error that is about a row that came earlier tells it by [`Error::row`] in place of its ordinal. For
    /// rows that a statement puts into one table.
    pub fn insert_batch_waiting(
        &mut self,
        table: &Arc<Table>,
        columns: &[ArrayRef],
        threads: usize,
    ) -> Result<()> {
        /// Before it is asked whether they are due, keys come to wait of so many rows, or of so many bytes.
        const ROWS: usize = 64 << 10;
        const BYTES: usize = 32 << 20;
        const LEAST_ROWS: usize = 1 << 10;
        if self
            .waiting
            .as_ref()
            .is_some_and(|waiting| !Arc::ptr_eq(&waiting.0, table) && !waiting.1.is_empty())
        {
            return self.insert_batch(table, columns, &pin());
        }
        let rows = columns.first().map_or(0, |column| column.len());
        let bytes: usize = columns.iter().map(|column| bytes_of(column.as_ref())).sum();
        let at_once =
            ((rows as u128 * BYTES as u128 / bytes.max(1) as u128) as usize).clamp(LEAST_ROWS, ROWS);
        for first in (0..rows).step_by(at_once) {
            self.ask_for_room(table, Change::Insert, || table.has_strings())?;
            let slices: Vec<ArrayRef> =
                columns.iter().map(|column| column.slice(first, at_once.min(rows - first))).collect();
            let guard = &pin();
            let waiting = self.waiting.take().filter(|waiting| Arc::ptr_eq(&waiting.0, table));
            let mut waiting = waiting.unwrap_or_else(|| Box::new((table.clone(), table.waiting_keys())));
            let keys = &mut waiting.1;
            let mark = keys.mark();
            let inserted = self.insert_in_room(table, guard, |writes, snapshot| {
                // Those of the time before have been taken back.
                keys.truncate(&mark);
                table.insert_batch_waiting(writes, snapshot, &slices, keys, guard)
            });
            let is_due = keys.is_due();
            self.waiting = Some(waiting);
            inserted.map_err(|error| match error.ordinal() {
                Some(ordinal) => error.with_ordinal(first as u64 + ordinal),
                None => error,
            })?;
            if is_due {
                self.enter_waiting(threads, true)?;
            }
        }
        if table.is_published() { Ok(()) } else { self.write_ahead(table) }
    }

    /// Enters all keys of a table that wait into their indexes, on up to so many threads. Errors as for [`Transaction::insert_batch`],
    /// with the row ([`Error::row`]) in place of its ordinal: of several the first that came. The keys are given up then.
    pub fn enter_keys(&mut self, table: &Arc<Table>, threads: usize) -> Result<()> {
        let are_here = self.waiting.as_ref().is_some_and(|waiting| Arc::ptr_eq(&waiting.0, table));
        if are_here { self.enter_waiting(threads, false) } else { Ok(()) }
    }

    /// Enters all keys that wait; whether the statement `goes_on`, and so the memory for them is kept.
    fn enter_waiting(&mut self, threads: usize, goes_on: bool) -> Result<()> {
        let mut waiting = self.waiting.take().expect("keys wait");
        let (table, keys) = &mut *waiting;
        let mut entered = table.enter_waiting_keys(keys, self.snapshot, threads);
        let is_taken = |error: &Error| error.state() == SqlState::UNIQUE_VIOLATION;
        // As in `looks_again`; the rows are there already, and who is in the index already does not mind to enter again.
        if self.reads_nothing && entered.as_ref().is_err_and(is_taken) {
            self.take_snapshot_again();
            entered = table.enter_waiting_keys(keys, self.snapshot, threads);
        }
        entered.map_err(|error| self.violation(table, error, &pin(), |_| None))?;
        if goes_on {
            keys.clear();
            self.waiting = Some(waiting);
        }
        Ok(())
    }

    /// Has blocks of a table that it has made be written to files, which it has filled.
    fn write_ahead(&mut self, table: &Arc<Table>) -> Result<()> {
        let ddl = self.ddl.as_ref().expect("it has made the table");
        loads::write_ahead(&self.engine, &mut self.loading, &ddl.catalog, table, self.snapshot)
    }

    /// Inserts rows, once more if there was no memory for all: while the collector works what it frees may
    /// not be there yet; and once more if it [looks again](Transaction::looks_again).
    pub(crate) fn insert_in_room(
        &mut self,
        table: &Arc<Table>,
        guard: &Guard,
        mut insert: impl FnMut(&mut WriteSet, Snapshot) -> Result<()>,
    ) -> Result<()> {
        let mark = self.writes_to(table)?.mark();
        let (snapshot, before) = (self.snapshot, self.mark_without_snapshot());
        let mut inserted = insert(self.writes_to(table)?, snapshot);
        if inserted.as_ref().is_err_and(|error| error.state() == SqlState::OUT_OF_MEMORY) {
            self.write_set.as_mut().expect("running").roll_back(mark, guard);
            self.engine.collect_now();
            inserted = insert(self.writes_to(table)?, snapshot);
        }
        if inserted.as_ref().is_err_and(|error| self.looks_again(error, before, guard)) {
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
        self.ask_for_room(table, Change::Update, || cells.iter().any(is_long_string))?;
        if self.locks_first && !self.locks_to_change(table, row, guard)? {
            return Ok(());
        }
        let (snapshot, row) = (self.snapshot, self.place_of(table, row));
        let mut updated = table.update(self.writes_to(table)?, snapshot, row, columns, cells, guard);
        if updated.as_ref().is_err_and(|error| error.state() == SqlState::OUT_OF_MEMORY) {
            // A row of a compact block takes a slot, as one that is inserted.
            self.engine.collect_now();
            updated = table.update(self.writes_to(table)?, snapshot, row, columns, cells, guard);
        }
        updated.map_err(|error| self.violation(table, error, guard, |_| None))
    }

    /// Where a row is now that this transaction has seen: an update puts one that was in a compact block elsewhere. Who
    /// goes on with the id of before is understood, but rows that are found by other ways have the new one.
    #[inline]
    pub fn place_of(&self, table: &Table, row: RowId) -> RowId {
        self.writes().place_of(table, row)
    }

    /// Deletes a visible row; see [`Table::delete`].
    pub fn delete(&mut self, table: &Arc<Table>, row: RowId, guard: &Guard) -> Result<()> {
        if self.engine.memory().pressure() == Pressure::All {
            self.make_room_to_delete(table)?;
        }
        if self.locks_first && !self.locks_to_change(table, row, guard)? {
            return Ok(());
        }
        let (snapshot, row) = (self.snapshot, self.place_of(table, row));
        let deleted = table.delete(self.writes_to(table)?, snapshot, row, guard);
        deleted.inspect_err(|error| self.count_failure(error))
    }

    /// Moves a row to another slot; see [`Table::move_row`].
    pub(crate) fn move_row(&mut self, table: &Arc<Table>, to: Move, guard: &Guard) -> Result<()> {
        let snapshot = self.snapshot;
        let room = self.ask_for_room(table, Change::Insert, || table.has_strings());
        match room.and_then(|()| self.writes_to(table)) {
            Ok(writes) => table.move_row(writes, snapshot, to, guard),
            Err(error) => {
                table.give_back([to.1]);
                Err(error)
            }
        }
    }

    /// What it has read by now.
    pub fn reads_so_far(&self) -> ReadsSoFar {
        ReadsSoFar(self.reads.borrow().mark())
    }

    /// Whether it may go on after what it does now has been taken back: it has had a savepoint, or is a program's own.
    pub fn may_go_back(&self) -> bool {
        self.goes_on
    }

    /// Forgets what it has read since: it relies on nothing of that.
    pub fn forget_reads(&mut self, since: &ReadsSoFar) {
        self.reads.get_mut().truncate(&since.0);
    }

    /// Makes an empty physical table, which goes away again if the transaction rolls back.
    /// `name` is for messages. The caller puts the id into a [`crate::catalog::TableDef`].
    pub fn create_storage(&mut self, name: &str, columns: Vec<ColumnSpec>) -> Result<TableId> {
        let engine = self.engine.clone();
        let ddl = self.ddl_mut()?;
        let table = engine.create_table(name, columns);
        let id = table.id();
        ddl.actions.push(Action::CreateStorage(table));
        Ok(id)
    }

    /// Lets a physical table go once this transaction has committed and nobody reads it any more.
    pub fn drop_storage(&mut self, table: TableId) -> Result<()> {
        self.ddl_mut()?.actions.push(Action::DropStorage(table));
        Ok(())
    }

    /// Begins a statement, which may be [restarted](Transaction::restart).
    pub fn begin_statement(&mut self) -> StatementStart {
        self.take_snapshot_again();
        (self.locks_first, self.missed) = (false, None);
        StatementStart { savepoint: self.place(), reads: self.reads.get_mut().mark() }
    }

    /// Takes back what a statement has changed. What it has locked stays so, for it to be run again: of many
    /// rows that others change all the time it would never have all.
    pub fn take_back(&mut self, statement: &StatementStart) {
        self.undo_to(statement.savepoint, false);
    }

    /// Takes back what a statement has changed that has failed, and is not run again.
    pub fn take_back_for_good(&mut self, statement: &StatementStart) {
        self.take_snapshot_again();
        self.undo_to(statement.savepoint, self.goes_on);
    }

    /// Whether [`Transaction::restart`] may move it on.
    pub fn can_move_on(&self) -> bool {
        self.isolation != Isolation::Snapshot && self.ddl.is_none()
    }

    /// Moves a transaction that is only to read what is committed on to the newest state: before each of
    /// its statements. Nothing for others. No rows may be left to be read of earlier statements.
    pub fn refresh(&mut self) {
        if self.isolation == Isolation::ReadCommitted && self.ddl.is_none() {
            self.move_on();
            self.catalog = OnceLock::new();
        }
    }

    /// Whether the catalog has changed since, so that it would find another one [refreshed](Transaction::refresh).
    pub fn has_old_catalog(&self) -> bool {
        self.isolation == Isolation::ReadCommitted
            && self.ddl.is_none()
            && self.engine.has_changed_catalog_since(self.snapshot.read_time)
    }

    fn move_on(&mut self) {
        let active = self.engine.active();
        self.snapshot.read_time = active.advance(&self.slot, self.snapshot.read_time, self.engine.last());
        active.settle(&self.slot, self.snapshot.read_time);
        self.seen = self.engine.last_position();
    }

    /// Takes back what a statement has done that met a conflict, and lets it run once more.
    ///
    /// A serializable transaction moves on to the newest committed state, if what it had read before the
    /// statement still reads the same there: as far as anybody can tell it begins only now, and the
    /// conflict is gone. 40001 otherwise. One that reads what is committed moves on in any case. One
    /// that keeps to its snapshot stays there, where only a change that was taken back no longer
    /// conflicts.
    ///
    /// No rows may be left to be read of earlier statements.
    pub fn restart(&mut self, statement: &StatementStart) -> Result<()> {
        self.take_back(statement);
        if !self.can_move_on() {
            return Ok(());
        }
        // Whoever was met may have stamped its changes and not yet published its time.
        drop(self.engine.commit.lock());
        if self.reads_nothing {
            self.take_snapshot_again();
            return Ok(());
        }
        if self.isolation == Isolation::ReadCommitted {
            self.refresh();
            return Ok(());
        }
        self.reads.get_mut().truncate(&statement.reads);
        let before = self.snapshot.read_time;
        let active = self.engine.active();
        // Both what it has read and what it will read is kept meanwhile.
        active.advance(&self.slot, before, self.engine.last());
        let moved = self.engine.validate(self.reads.get_mut(), self.snapshot, before);
        let read_time = *moved.as_ref().unwrap_or(&before);
        active.settle(&self.slot, read_time);
        moved?;
        self.snapshot.read_time = read_time;
        self.seen = self.engine.last_position();
        self.catalog = OnceLock::new();
        Ok(())
    }

    /// Lets a statement that takes long and reads little keep up with the others, so that what they leave behind can be
    /// collected: it moves on to the newest committed state as [`Transaction::restart`] does. False, and it stays where it
    /// is, if what it has read reads differently there, if the catalog has changed, by which its statement was compiled, or if
    /// it keeps to its snapshot.
    ///
    /// No rows may be left to be read of this statement or of earlier ones.
    pub fn keep_up(&mut self) -> bool {
        if self.isolation == Isolation::Snapshot || self.stays {
            return false;
        }
        let before = self.snapshot.read_time;
        let active = self.engine.active();
        if self.reads_nothing {
            let newest = Time(self.engine.last().load(Ordering::SeqCst));
            if self.engine.has_changed_catalog_since(before) {
                return false;
            }
            self.snapshot.read_time = newest;
            self.seen = self.engine.last_position();
            return true;
        }
        // As in `restart`.
        let newest = active.advance(&self.slot, before, self.engine.last());
        let moved = match self.isolation {
            Isolation::Serializable => self.engine.validate(self.reads.get_mut(), self.snapshot, before).ok(),
            Isolation::ReadCommitted | Isolation::Snapshot => Some(newest),
        };
        // Looked at after the newest time was: a change of the catalog is known before its time is published.
        let moved = moved.filter(|_| !self.engine.has_changed_catalog_since(before));
        active.settle(&self.slot, moved.unwrap_or(before));
        let Some(read_time) = moved else { return false };
        self.snapshot.read_time = read_time;
        self.seen = self.engine.last_position();
        true
    }

    /// Lets go of its snapshot: until it [has one again](Transaction::take_snapshot_again) it only inserts rows, and reads none but
    /// those that stand under their keys. So no version is kept for it, and committers go on to collect what they have written
    /// while that is in their cache: beside a snapshot of a few milliseconds TPC-C runs at seven eighths of its speed.
    ///
    /// Nothing if it has read something, or keeps to its snapshot.
    ///
    /// No rows may be left to be read of earlier statements.
    pub fn forgo_snapshot(&mut self) {
        let keeps_it = self.isolation == Isolation::Snapshot || self.stays || self.asks_what_may_be_lost;
        if keeps_it || !self.reads.get_mut().is_empty() {
            return;
        }
        // By it the statement finds its tables.
        self.catalog();
        self.reads_nothing = true;
        self.engine.active().forgo(&self.slot);
    }

    /// Goes on as if it began now, but for what it has inserted, if it has [let go](Transaction::forgo_snapshot) of its snapshot.
    pub fn take_snapshot_again(&mut self) {
        if std::mem::take(&mut self.reads_nothing) {
            // Whoever's change was found at a key may have stamped it and not yet published its time.
            drop(self.engine.commit.lock());
            self.snapshot.read_time = self.engine.active().read_again(&self.slot, self.engine.last());
            self.seen = self.engine.last_position();
            self.catalog = OnceLock::new();
        }
    }

    /// Has it not keep up any more: somebody reads what its snapshot shows beside its statements.
    pub fn stay(&mut self) {
        self.stays = true;
    }

    /// Waits for another running transaction's end, for a while: [`Error::blocker`] names it.
    pub fn wait_for(&self, other: Stamp, longest: Duration) -> Waited {
        let holders_of = |want| self.engine.holders_of(want);
        let waited = self.engine.active().wait(&self.slot, self.snapshot.owner, other, longest, &holders_of);
        if waited == Waited::Deadlock {
            self.engine.statistics().deadlocks.count();
        }
        waited
    }

    /// Lets it move its snapshot on while it has written nothing: for a single DDL statement outside
    /// a transaction block, which need not fail because others wrote while it waited for its table.
    pub fn allow_advance(&mut self) {
        self.may_advance = true;
    }

    /// Builds an index over what the table holds, on up to so many threads, under [`Transaction::lock_exclusive`]; it goes
    /// away again on rollback. 23505 if `spec.unique` and two rows share a key.
    pub fn create_index(&mut self, table: &Arc<Table>, spec: IndexSpec, threads: usize) -> Result<()> {
        self.lock_exclusive(table)?;
        let index = build_index(table, spec, threads, Some(self.engine.memory()))?;
        table.add_index(index.clone());
        self.ddl_mut()?.actions.push(Action::CreateIndex(table.clone(), index));
        Ok(())
    }

    /// Takes an index off a table once this transaction has committed.
    pub fn drop_index(&mut self, table: &Arc<Table>, index: IndexId) -> Result<()> {
        self.lock_exclusive(table)?;
        let indexes = table.indexes();
        let index = indexes.iter().find(|candidate| candidate.spec().id == index);
        let index = index.expect("the catalog names existing indexes").clone();
        self.ddl_mut()?.actions.push(Action::DropIndex(table.clone(), index));
        Ok(())
    }

    /// Remembers this point, for somebody who may go on from there after an error.
    pub fn savepoint(&mut self) -> Savepoint {
        self.goes_on = true;
        self.place()
    }

    /// Remembers this point, for whoever takes back what has failed.
    pub fn place(&self) -> Savepoint {
        let (changes, actions) =
            self.ddl.as_ref().map_or((0, 0), |ddl| (ddl.history.len(), ddl.actions.len()));
        let deferred = self.deferred.as_ref().map_or_else(DeferredMark::default, |deferred| deferred.mark());
        Savepoint { mark: self.writes().mark(), changes, actions, shared: self.shared.len(), deferred }
    }

    /// Of the rows that it has inserted into a table since the savepoint, which one a row is, from 0; `None` if it is none
    /// of them. Looks through all changes since.
    pub fn ordinal_since(&self, savepoint: Savepoint, table: &Table, row: RowId) -> Option<u64> {
        self.writes().ordinal_since(savepoint.mark, table, row)
    }

    /// Undoes everything since the savepoint, DDL included; the savepoint stays. Others may have the rows that it has changed or locked
    /// only since.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        self.take_snapshot_again();
        self.undo_to(savepoint, self.goes_on);
        let mut others_may_have = self.shared.len() > savepoint.shared;
        self.unshare(savepoint.shared);
        let write_set = self.write_set.as_mut().expect("running");
        if let Some(let_go) = write_set.let_go(savepoint.mark, &pin()) {
            others_may_have = true;
            self.engine.active().set_records(&self.slot, write_set.records_written());
            self.engine.let_go_section(self.snapshot.owner, let_go);
        }
        if others_may_have {
            self.engine.active().tell_let_go(&self.slot);
        }
    }

    /// Whoever was told that a row is in has learnt that nobody had its keys. The row keeps that so, and when it is taken back it
    /// is to be noted, if the transaction goes on.
    fn undo_to(&mut self, savepoint: Savepoint, goes_on: bool) {
        // They are of the statement that is taken back.
        self.waiting = None;
        let notes_freed = goes_on && self.notes_reads();
        let late = if notes_freed { self.late_keys() } else { Vec::new() };
        if self.loading.as_ref().is_some_and(|loading| loading.has_failed()) {
            self.loading = None;
        }
        let reads = self.reads.get_mut();
        let mut note = |table: &Table, index: &Index, key: Option<&[u8]>| {
            let bound = key.map_or(Bound::Unbounded, Bound::Included);
            reads.range(table, index, (bound, bound), &[], ColumnSet::NONE);
        };
        let freed = notes_freed.then_some(Freed { late: &late, visit: &mut note });
        self.write_set.as_mut().expect("running").roll_back_and(savepoint.mark, &pin(), freed);
        if let Some(deferred) = &mut self.deferred {
            deferred.roll_back(savepoint.deferred);
        }
        if let Some(ddl) = &mut self.ddl {
            ddl.undo_actions(savepoint.actions, &self.engine);
            if savepoint.changes < ddl.history.len() {
                ddl.catalog = ddl.history.swap_remove(savepoint.changes);
                ddl.history.truncate(savepoint.changes);
            }
        }
    }

    /// Commits; deferred checks must have been made. The changes are visible to others when this
    /// returns, and durable once [`Engine::wait`] returns for the ticket.
    ///
    /// Errors: 40001 if it is serializable and what it read has changed; the log has failed, or the disk that is to take
    /// what a long transaction has written (53100, 58030). The transaction is rolled back.
    pub fn commit(mut self) -> Result<Ticket> {
        assert!(!self.has_deferred_checks(), "a transaction commits after its deferred checks");
        let waits = self.waiting.as_ref().is_some_and(|waiting| !waiting.1.is_empty());
        assert!(!waits, "a statement ends when its keys have entered");
        if !self.has_writes() {
            // Others' commits are visible before they are durable. Who has seen one must not say so
            // before it can no longer be lost. Dropping lets go of what it has locked.
            let mut lsn = self.engine.to_wait_for(self.seen);
            if lsn.is_some() && self.asks_what_may_be_lost && self.write_set.iter().all(WriteSet::is_empty) {
                let reads = self.reads.get_mut();
                lsn = lsn.filter(|_| !self.engine.is_safe(reads, self.snapshot.read_time));
            }
            return Ok(Ticket { time: self.snapshot.read_time, lsn });
        }
        let write_set = self.write_set.as_mut().expect("running");
        if let Some(ddl) = &self.ddl {
            loads::write(&self.engine, &mut self.loading, ddl, self.snapshot, write_set)?;
        }
        self.engine.seal_redo(write_set)?;
        if let Some(loading) = &self.loading
            && let (Some(bytes), Some(redo)) = (loading.to_bytes(), write_set.redo())
        {
            redo.loaded(&bytes);
        }
        // What it read is validated if it writes: otherwise it has run at its read time.
        assert!(self.reads.get_mut().is_empty() || !self.reads_nothing, "it has read without a snapshot");
        // Its own write set is collected no earlier than it ends only if it has a snapshot.
        self.take_snapshot_again();
        let reads = self.reads.get_mut();
        let mut to_validate = None;
        if !reads.is_empty() {
            let validated = self.engine.validate_ahead(&self.slot, reads, self.snapshot)?;
            to_validate = Some((reads, self.snapshot, validated));
        }
        let write_set = self.write_set.take().expect("running");
        locking::leave_as_writer(&mut self.locks_only, self.snapshot.owner);
        match self.engine.commit_section(&self.slot, write_set, self.ddl.as_deref(), to_validate) {
            Ok(ticket) => {
                if let Some(loading) = self.loading.take() {
                    loading.keep(ticket.time);
                }
                self.end_ddl();
                Ok(ticket)
            }
            Err(failure) => {
                let (error, write_set) = *failure;
                // Dropping rolls back.
                self.write_set = Some(write_set);
                Err(error)
            }
        }
    }

    /// Rolls back.
    pub fn rollback(self) {
        drop(self);
    }

    fn end_ddl(&mut self) {
        self.open_tables();
        if self.ddl.take().is_some() {
            self.engine.end_ddl();
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // First, since it reads what is taken back.
        self.loading = None;
        let made_tables = self.ddl.is_some();
        if let Some(mut write_set) = self.write_set.take() {
            if write_set.is_empty() {
                self.engine.memory().forget_unfinished(write_set.counted_bytes());
                locking::leave_as_writer(&mut self.locks_only, self.snapshot.owner);
                if let Some(redo) = write_set.give_up() {
                    keep_redo(redo);
                }
            } else {
                write_set.roll_back_all(&pin());
                // As in `commit`.
                self.take_snapshot_again();
                locking::leave_as_writer(&mut self.locks_only, self.snapshot.owner);
                self.engine.rollback_section(write_set);
            }
            if let Some(ddl) = &mut self.ddl {
                ddl.undo_actions(0, &self.engine);
            }
            self.end_ddl();
        }
        // Before those who wait for it are told of its end.
        self.unshare(0);
        self.engine.leave(&self.slot);
        self.engine.collect_if_due();
        if made_tables {
            // A table that came to nothing may be all the memory there is, and nobody else may come to free it.
            self.engine.collect_now();
            (0..3).for_each(|_| pin().flush());
        }
        let mut reads = self.reads.take();
        reads.clear();
        SPARE_READS.set(reads);
    }
}

/// Rows after which whoever builds an index looks whether there is memory for it.
const ROWS_AT_ONCE: usize = 4096;

/// A new index over every row in place, which up to so many threads make; 53200 if it outgrows a limit.
pub(crate) fn build_index(
    table: &Table,
    spec: IndexSpec,
    threads: usize,
    limit: Option<&MemoryBudget>,
) -> Result<Arc<Index>> {
    let index = Index::new(spec);
    let guard = &pin();
    let mut load = index.load(table.budget(), threads, guard);
    let admit = || {
        let what_for = || format!("index \"{}\"", index.spec().name);
        limit.map_or(Ok(()), |limit| limit.admit(index.held_bytes(), what_for))
    };
    let mut rows = 0;
    table.keys_in_place(&index, |key, row| {
        rows += 1;
        if rows % ROWS_AT_ONCE == 0 {
            admit()?;
        }
        load.add(key, row).map_err(|_| duplicate(&index))
    })?;
    load.finish().map_err(|_| duplicate(&index))?;
    // Many may have waited until now.
    admit()?;
    Ok(index)
}

pub(crate) fn duplicate(index: &Index) -> Error {
    let name = &index.spec().name;
    Error::new(SqlState::UNIQUE_VIOLATION, format!("could not create unique index \"{name}\""))
        .with_detail("Some rows share a key.")
        .with_constraint(name)
}

/// Bytes of an array: of strings at least as many as they have, of which several may share some.
fn bytes_of(array: &dyn Array) -> usize {
    let lengths = |views: &[u128]| views.iter().map(|view| *view as u32 as usize).sum();
    let of_strings = match (array.as_string_view_opt(), array.as_binary_view_opt()) {
        (Some(strings), _) => lengths(strings.views()),
        (_, Some(strings)) => lengths(strings.views()),
        _ => 0,
    };
    array.get_array_memory_size().max(of_strings)
}
