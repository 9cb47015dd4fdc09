//! A transaction: a snapshot, a write set, locks, and its end.
//!
//! Its parts are in files of their own. `snapshot.rs` has the states of the snapshot. `reading.rs` and
//! `writing.rs` read and change rows. `read_notes.rs` takes over what other threads read. `bulk.rs` inserts
//! many rows. `constraints.rs` defers checks. `locks.rs` lists locks, `locking.rs` takes them.
//! `catalog_view.rs` has the catalog and DDL.
//!
//! Reads take a [`Guard`](firn_storage::Guard), which pins what they return. Hold it for one operation or one
//! short transaction, never across a wait. Dropping a transaction rolls it back.

mod begin;
mod bulk;
mod catalog_view;
mod constraints;
mod locking;
mod locks;
mod read_notes;
mod reading;
mod snapshot;
mod writing;

pub use locks::{Awaited, TableWaitLimit, WaitLimit};
pub use read_notes::ReadNotes;

use crate::active::ActiveSlot;
use crate::ddl::DdlMark;
use crate::deferred::{Deferred, DeferredMark};
use crate::engine::{Engine, keep_redo};
use crate::isolation::Isolation;
use crate::loads;
use crate::predicates::{PredicateLog, ReadMark};
use crate::ticket::Ticket;
use crate::waits::Waited;
use bulk::Bulk;
use catalog_view::CatalogView;
use firn_base::sync::{Arc, AtomicBool};
use firn_base::{ColumnSet, Lsn, Result, RowId, Snapshot, Stamp};
use firn_log::RedoBuffer;
use firn_storage::{Freed, Index, Mark, Table, WriteSet, pin};
use locks::Locks;
use snapshot::SnapshotState;
use std::cell::{OnceCell, RefCell};
use std::ops::Bound;
use std::time::Duration;

/// A running transaction.
pub struct Transaction {
    engine: Arc<Engine>,
    slot: ActiveSlot,
    snapshot: Snapshot,
    /// Everything that the snapshot sees is durable once the log is on disk up to here.
    seen: Lsn,
    snapshot_state: SnapshotState,
    isolation: Isolation,
    read_only: bool,
    /// Whether it began when the database was a replica, and so has no redo.
    is_of_replica: bool,
    /// Whether reads are noted to find out at the end whether a crash may undo anything that was read.
    tracks_read_durability: bool,
    /// Whether it may continue after an error, or after a rollback to a savepoint.
    continues_after_error: bool,
    /// `None` only while it ends.
    write_set: Option<WriteSet>,
    /// What it has read, if it [notes](Transaction::notes_reads) that.
    reads: RefCell<PredicateLog>,
    /// What other threads read for it, until it is taken over into `reads`.
    notes: OnceCell<ReadNotes>,
    locks: Locks,
    catalog_view: CatalogView,
    bulk: Bulk,
    /// Deferred checks and the effects of SET CONSTRAINTS, if there are any.
    deferred: Option<Box<Deferred>>,
    /// Whether its session currently skips checks of foreign keys.
    trusts_references: Option<Arc<AtomicBool>>,
}

/// A point to roll back to.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    mark: Mark,
    ddl: DdlMark,
    /// Shared row locks so far.
    shared_rows: usize,
    deferred: DeferredMark,
}

/// A change that needs memory.
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

thread_local! {
    /// A predicate log to reuse.
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
        is_of_replica: bool,
    ) -> Transaction {
        let write_set = Some(WriteSet::new(snapshot.owner, redo));
        Transaction {
            engine,
            slot,
            snapshot,
            seen,
            snapshot_state: SnapshotState::Held,
            isolation,
            // The commits of a replica are a serial history, each prefix of which is a state that a serializable reader may see.
            read_only: is_of_replica,
            is_of_replica,
            tracks_read_durability: false,
            continues_after_error: true,
            write_set,
            reads: RefCell::new(SPARE_READS.take()),
            notes: OnceCell::new(),
            locks: Locks::default(),
            catalog_view: CatalogView::default(),
            bulk: Bulk::default(),
            deferred: None,
            trusts_references: None,
        }
    }

    /// Error: 25006 in a replica, and if it began when the database was one.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.is_of_replica {
            false => Ok(()),
            true => Err(self.engine.check_writable().err().unwrap_or_else(crate::role::begun_in_replica)),
        }
    }

    /// The engine it runs in.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The snapshot that it reads.
    #[inline]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot
    }

    /// Its isolation level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Sets the isolation level. The level does not cover earlier reads, so there should be none.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        assert!(!self.has_writes(), "the transaction has no writes");
        self.isolation = isolation;
        self.engine.active().set_isolation(&self.slot, isolation);
    }

    /// Sets the session that [`Engine::running`] reports for it.
    #[inline]
    pub fn set_session(&self, session: u32) {
        self.engine.active().set_session(&self.slot, session);
    }

    /// Sets the isolation level that [`Engine::running`] reports, if the transaction runs at another one than was requested:
    /// a reader may need less to get the same result.
    #[inline]
    pub fn report_isolation(&self, requested: Isolation) {
        self.engine.active().set_isolation(&self.slot, requested);
    }

    /// Sets how much it has written, for [`Engine::running`].
    #[inline]
    pub fn report_progress(&self) {
        self.engine.active().set_records(&self.slot, self.writes().records_written());
    }

    /// Sets whether it may continue after an error; a [savepoint](Transaction::savepoint) implies that it
    /// may. If it may not, what an error reveals about keys need not be noted as far as it holds while
    /// nothing is undone. It may then also be newer than the snapshot.
    pub fn set_continues_after_error(&mut self, continues: bool) {
        self.continues_after_error = continues;
    }

    /// Whether it may continue after a rollback of what it does now: it has had a savepoint, or no caller has
    /// [excluded it](Transaction::set_continues_after_error).
    pub fn continues_after_error(&self) -> bool {
        self.continues_after_error
    }

    /// Declares that it will not write: then its reads need not be validated.
    pub(crate) fn set_read_only(&mut self) {
        self.read_only = true;
    }

    /// Notes reads to find out at the end whether a crash may undo anything that was read: if only other changes may be
    /// undone, there is nothing to wait for. Call it before the first read, of a transaction that only reads rows of tables.
    ///
    /// Commits are visible before they are on disk. A reader that has read nothing that they changed has read the state
    /// before them, which is durable: its result is right whether or not they are lost.
    pub fn track_read_durability(&mut self) {
        self.tracks_read_durability = self.engine.unflushed_position(self.seen).is_some();
    }

    /// Whether its reads are noted.
    #[inline]
    pub fn notes_reads(&self) -> bool {
        (self.isolation == Isolation::Serializable && !self.read_only) || self.tracks_read_durability
    }

    /// Notes a read, if reads are noted.
    #[inline]
    pub(crate) fn note(&self, read: impl FnOnce(&mut PredicateLog)) {
        debug_assert!(!self.is_without_snapshot(), "it has released its snapshot");
        if self.notes_reads() {
            read(&mut self.reads.borrow_mut());
        }
    }

    /// Whether it has changed anything. Locks change nothing.
    pub fn has_writes(&self) -> bool {
        self.has_ddl() || !self.writes().has_only_locks()
    }

    /// What it has read by now.
    pub fn reads_so_far(&self) -> ReadsSoFar {
        self.take_notes();
        ReadsSoFar(self.reads.borrow().mark())
    }

    /// Forgets what it has read since: it does not rely on it.
    pub fn forget_reads(&mut self, since: &ReadsSoFar) {
        self.take_notes();
        self.reads.get_mut().truncate(&since.0);
    }

    /// Begins a statement, which may be [restarted](Transaction::restart).
    pub fn begin_statement(&mut self) -> StatementStart {
        self.acquire_snapshot();
        self.locks.begin_statement();
        self.take_notes();
        StatementStart { savepoint: self.implicit_savepoint(), reads: self.reads.get_mut().mark() }
    }

    /// Undoes the changes of a statement that will be run again. Its locks are kept: of many rows that others change all the
    /// time it would never lock all at once.
    pub fn undo_statement(&mut self, statement: &StatementStart) {
        self.undo_to(statement.savepoint, false);
    }

    /// Undoes the changes of a statement that has failed and will not be run again.
    pub fn abort_statement(&mut self, statement: &StatementStart) {
        self.acquire_snapshot();
        self.undo_to(statement.savepoint, self.continues_after_error);
    }

    /// Waits at most `longest` for the end of another running transaction, which [`Error::blocker`](firn_base::Error::blocker)
    /// names.
    pub fn wait_for(&self, other: Stamp, longest: Duration) -> Waited {
        let holders_of = |want| self.engine.holders_of(want);
        let waited = self.engine.active().wait(&self.slot, self.snapshot.owner, other, longest, &holders_of);
        if waited == Waited::Deadlock {
            self.engine.statistics().deadlocks.count();
        }
        waited
    }

    /// Makes a savepoint. The transaction may continue from there after an error.
    pub fn savepoint(&mut self) -> Savepoint {
        self.continues_after_error = true;
        self.implicit_savepoint()
    }

    /// Makes a savepoint of the caller's own, which does not imply that the transaction continues after errors.
    pub fn implicit_savepoint(&self) -> Savepoint {
        let deferred = self.deferred.as_ref().map_or_else(DeferredMark::default, |deferred| deferred.mark());
        Savepoint {
            mark: self.writes().mark(),
            ddl: self.catalog_view.mark(),
            shared_rows: self.locks.shared_rows(),
            deferred,
        }
    }

    /// The ordinal, from 0, of a row among those that were inserted into a table since the savepoint; `None` if it is none of
    /// them. Searches all changes since.
    pub fn ordinal_since(&self, savepoint: Savepoint, table: &Table, row: RowId) -> Option<u64> {
        self.writes().ordinal_since(savepoint.mark, table, row)
    }

    /// Undoes everything since the savepoint, including DDL; the savepoint remains. Rows that were changed or
    /// locked only since then are released to others.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        self.acquire_snapshot();
        self.undo_to(savepoint, self.continues_after_error);
        let mut releases_rows = self.locks.shared_rows() > savepoint.shared_rows;
        self.locks.release_shared_rows(savepoint.shared_rows, self.snapshot.owner, self.engine.memory());
        let write_set = self.write_set.as_mut().expect("running");
        if let Some(released) = write_set.let_go(savepoint.mark, &pin()) {
            releases_rows = true;
            self.engine.active().set_records(&self.slot, write_set.records_written());
            self.engine.release_section(self.snapshot.owner, released);
        }
        if releases_rows {
            self.engine.active().report_release(&self.slot);
        }
    }

    /// Undoes everything since the savepoint. A row that was inserted proves that its keys were free, and keeps them so while it is
    /// there. When it is undone and the transaction `continues`, that the keys were free must be noted as read.
    fn undo_to(&mut self, savepoint: Savepoint, continues: bool) {
        self.bulk.undo();
        let notes_freed = continues && self.notes_reads();
        let late = if notes_freed { self.late_keys() } else { Vec::new() };
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
        self.catalog_view.roll_back(savepoint.ddl, &self.engine);
    }

    /// Commits; deferred checks must have been made. The changes are visible to others when this returns, and durable once
    /// [`Engine::wait`] returns for the ticket.
    ///
    /// Errors: 40001 if it is serializable and what it has read has changed; 53100 if the disk has no space for its redo;
    /// 58030 if the log has failed. After an error the transaction has been rolled back.
    pub fn commit(mut self) -> Result<Ticket> {
        assert!(!self.has_deferred_checks(), "a transaction commits after its deferred checks");
        assert!(!self.bulk.has_waiting_keys(), "a statement ends when its keys have entered");
        self.take_notes();
        if !self.has_writes() {
            // Commits of others are visible before they are durable. A client that has seen one must not learn of it while it
            // can still be lost. Dropping the transaction releases its locks.
            let mut lsn = self.engine.unflushed_position(self.seen);
            if lsn.is_some() && self.tracks_read_durability && self.write_set.iter().all(WriteSet::is_empty) {
                let reads = self.reads.get_mut();
                lsn = lsn.filter(|_| !self.engine.has_read_durable(reads, self.snapshot.read_time));
            }
            return Ok(Ticket { time: self.snapshot.read_time, lsn, has_written: false });
        }
        let write_set = self.write_set.as_mut().expect("running");
        if let Some(ddl) = self.catalog_view.ddl() {
            loads::write(&self.engine, &mut self.bulk.files, ddl, self.snapshot, write_set)?;
        }
        self.engine.seal_redo(write_set)?;
        if let Some(files) = &self.bulk.files
            && let (Some(bytes), Some(redo)) = (files.to_bytes(), write_set.redo())
        {
            redo.loaded(&bytes);
        }
        // A transaction that writes is validated; one that only reads takes effect at its read time.
        assert!(
            self.reads.get_mut().is_empty() || !self.is_without_snapshot(),
            "it has read without a snapshot"
        );
        // Without a snapshot other threads might collect its own write set before it has ended.
        self.acquire_snapshot();
        let reads = self.reads.get_mut();
        let mut to_validate = None;
        if !reads.is_empty() {
            let validated = self.engine.validate_ahead(&self.slot, reads, self.snapshot)?;
            to_validate = Some((reads, self.snapshot, validated));
        }
        let write_set = self.write_set.take().expect("running");
        self.locks.leave_as_writer(self.snapshot.owner);
        match self.engine.commit_section(&self.slot, write_set, self.catalog_view.ddl(), to_validate) {
            Ok(ticket) => {
                if let Some(files) = self.bulk.files.take() {
                    files.keep(ticket);
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
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // First, since it reads what is undone next.
        self.bulk.files = None;
        let had_ddl = self.has_ddl();
        if let Some(mut write_set) = self.write_set.take() {
            if write_set.is_empty() {
                self.engine.memory().forget_unfinished(write_set.counted_bytes());
                self.locks.leave_as_writer(self.snapshot.owner);
                if let Some(redo) = write_set.give_up() {
                    keep_redo(redo);
                }
            } else {
                write_set.roll_back_all(&pin());
                // As in `commit`.
                self.acquire_snapshot();
                self.locks.leave_as_writer(self.snapshot.owner);
                self.engine.rollback_section(write_set);
            }
            self.catalog_view.undo_actions(&self.engine);
            self.end_ddl();
        }
        // Before the transactions that wait for this one wake at its end.
        self.locks.release_shared_rows(0, self.snapshot.owner, self.engine.memory());
        self.engine.leave(&self.slot);
        self.engine.collect_if_due();
        if had_ddl {
            // A table that was rolled back may hold most of the memory, and no other transaction may run that
            // would free it.
            self.engine.collect_now();
            (0..3).for_each(|_| pin().flush());
        }
        let mut reads = self.reads.take();
        reads.clear();
        SPARE_READS.set(reads);
    }
}
