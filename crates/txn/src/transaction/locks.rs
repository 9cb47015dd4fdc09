//! The locks that a transaction holds, and how it waits for more.
//!
//! This is bookkeeping alone: which rows and tables are locked, and how. `locking.rs` takes the locks, since that needs the
//! engine, the write set and the snapshot.
//!
//! Row locks that keep others from locking the row in their turn are undo records and belong to the write set. Those that
//! several transactions may share are listed here.

use firn_base::sync::Arc;
use firn_base::{Error, Result, RowId, SqlState, Stamp};
use firn_storage::{Counted, Held, MemoryBudget, RowLock, Table};
use std::time::Duration;

/// Called between attempts to lock a table, with the time waited so far; an error ends the wait.
pub type WaitLimit<'l> = &'l mut dyn FnMut(Duration) -> Result<()>;

/// The same for all waits of a transaction but those for rows.
pub type TableWaitLimit = Arc<dyn Fn(Awaited<'_>, Duration) -> Result<()> + Send + Sync>;

/// What a transaction waits for, other than a row.
#[derive(Clone, Copy)]
pub enum Awaited<'t> {
    /// A table.
    Table(&'t Table),
    /// A table, while this transaction keeps all others from changing the catalog.
    TableForDdl(&'t Table),
    /// The right to change the catalog.
    Catalog,
}

/// How long a transaction without a limit of its own waits for a table or for the catalog.
const DEFAULT_LIMIT: Duration = Duration::from_secs(5);

/// What a transaction has locked.
#[derive(Default)]
pub(super) struct Locks {
    /// The rows with a lock that others may share, in the order in which they were locked.
    shared_rows: Vec<(Arc<Table>, RowId, RowLock)>,
    /// What the memory budget counts for them.
    shared_counted: Option<Counted>,
    /// The tables that are locked against writers, alone or together with others.
    tables: Vec<Arc<Table>>,
    /// Of the tables that the write set has touched, those whose rows may only be locked.
    row_locks_only: Vec<Arc<Table>>,
    /// The tables locked in SHARE UPDATE EXCLUSIVE mode.
    maintained: Vec<Arc<Table>>,
    wait_limit: Option<TableWaitLimit>,
    changes: ChangeMode,
}

/// How the running statement changes rows.
#[derive(Default)]
enum ChangeMode {
    /// It changes them; a conflict is an error.
    #[default]
    Direct,
    /// It locks each row before it changes it. Of a row that has changed since the snapshot it locks the newest version and
    /// leaves the change out; the first such conflict is kept.
    LockFirst { skipped: Option<Error> },
}

impl Locks {
    // ---- rows ----

    /// How many shared row locks are held.
    #[inline]
    pub fn shared_rows(&self) -> usize {
        self.shared_rows.len()
    }

    /// Lists a shared row lock that has been taken.
    pub fn add_shared_row(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        lock: RowLock,
        budget: &Arc<MemoryBudget>,
    ) {
        self.shared_rows.push((table.clone(), row, lock));
        self.count_shared_rows(budget);
    }

    /// Releases the shared row locks but for the first `kept`.
    pub fn release_shared_rows(&mut self, kept: usize, owner: Stamp, budget: &Arc<MemoryBudget>) {
        for (table, row, lock) in self.shared_rows.drain(kept..) {
            table.unshare(row, owner, lock);
        }
        self.shared_rows.shrink_to(2 * kept);
        self.count_shared_rows(budget);
    }

    /// Counts the shared row locks against the memory budget once they are many.
    fn count_shared_rows(&mut self, budget: &Arc<MemoryBudget>) {
        /// In this list and in the table's, of which half is free.
        const BYTES_EACH: usize = 128;
        const LOT: usize = 1 << 18;
        let lots = self.shared_rows.len() * BYTES_EACH / LOT;
        if self.shared_counted.as_ref().map_or(0, Counted::bytes) != lots * LOT {
            // Before the old count is dropped, so that the budget never shows less than is held.
            let counted = (lots > 0).then(|| Counted::new(Held::Unfinished, lots * LOT, budget));
            self.shared_counted = counted;
        }
    }

    // ---- tables ----

    /// Whether the transaction has locked a table, alone or together with others.
    #[inline]
    pub fn has_table(&self, table: &Arc<Table>) -> bool {
        self.tables.iter().any(|known| Arc::ptr_eq(known, table))
    }

    /// Lists a table that has been locked.
    pub fn add_table(&mut self, table: &Arc<Table>) {
        self.tables.push(table.clone());
    }

    /// Unlocks the table that was locked last.
    pub fn unlock_last_table(&mut self, owner: Stamp) {
        self.tables.pop().expect("one has just been locked").gate().open(owner);
    }

    /// Whether the transaction has joined those who lock rows of a table, and not its writers.
    #[inline]
    pub fn only_locks_rows_of(&self, table: &Arc<Table>) -> bool {
        self.row_locks_only.iter().any(|known| Arc::ptr_eq(known, table))
    }

    /// Whether there is no table of which it only locks rows.
    pub fn writes_to_all(&self) -> bool {
        self.row_locks_only.is_empty()
    }

    /// The transaction has joined those who lock rows of a table.
    pub fn add_row_locker(&mut self, table: &Arc<Table>) {
        self.row_locks_only.push(table.clone());
    }

    /// The transaction, which has locked rows of a table, has joined its writers as well.
    pub fn set_writer(&mut self, table: &Arc<Table>) {
        self.row_locks_only.retain(|known| !Arc::ptr_eq(known, table));
    }

    /// Counts the transaction among the writers of every table of which it has only locked rows: it is about to leave all
    /// gates, and does so as a writer everywhere. Those who wait only for writers wait for it from now on.
    pub fn leave_as_writer(&mut self, owner: Stamp) {
        self.row_locks_only.drain(..).for_each(|table| table.gate().write_too(owner));
    }

    /// Whether the transaction has locked a table in SHARE UPDATE EXCLUSIVE mode.
    pub fn maintains(&self, table: &Arc<Table>) -> bool {
        self.maintained.iter().any(|known| Arc::ptr_eq(known, table))
    }

    /// Lists a table that has been locked so.
    pub fn add_maintained(&mut self, table: &Arc<Table>) {
        self.maintained.push(table.clone());
    }

    /// Unlocks all tables.
    pub fn unlock_tables(&mut self, owner: Stamp) {
        self.tables.drain(..).for_each(|table| table.gate().open(owner));
        self.maintained.drain(..).for_each(|table| table.gate().end_maintenance(owner));
    }

    // ---- waiting ----

    /// Sets how long the transaction waits for tables and for the catalog from now on.
    pub fn set_wait_limit(&mut self, limit: TableWaitLimit) {
        self.wait_limit = Some(limit);
    }

    /// The limit of one wait.
    pub fn wait_limit<'t>(&self, awaited: Awaited<'t>) -> impl FnMut(Duration) -> Result<()> + use<'t> {
        let limit = self.wait_limit.clone();
        move |waited| match &limit {
            Some(limit) => limit(awaited, waited),
            None if waited > DEFAULT_LIMIT => Err(lock_not_available(awaited)),
            None => Ok(()),
        }
    }

    // ---- changing rows ----

    /// A statement begins: it changes rows without locking them first.
    #[inline]
    pub fn begin_statement(&mut self) {
        self.changes = ChangeMode::Direct;
    }

    /// The statement, which is being run again, locks rows before it changes them.
    pub fn lock_before_changes(&mut self) {
        if let ChangeMode::Direct = self.changes {
            self.changes = ChangeMode::LockFirst { skipped: None };
        }
    }

    /// Whether the statement locks rows before it changes them.
    #[inline]
    pub fn locks_before_changes(&self) -> bool {
        matches!(self.changes, ChangeMode::LockFirst { .. })
    }

    /// Notes a conflict after which the statement has gone on.
    pub fn skip_conflict(&mut self, conflict: Error) {
        if let ChangeMode::LockFirst { skipped } = &mut self.changes {
            skipped.get_or_insert(conflict);
        }
    }

    /// The first conflict that was noted since the last call.
    #[inline]
    pub fn take_skipped_conflict(&mut self) -> Option<Error> {
        match &mut self.changes {
            ChangeMode::Direct => None,
            ChangeMode::LockFirst { skipped } => skipped.take(),
        }
    }
}

/// 55P03: other transactions use the table, or one changes the catalog.
pub(super) fn lock_not_available(awaited: Awaited<'_>) -> Error {
    let (Awaited::Table(table) | Awaited::TableForDdl(table)) = awaited else {
        let message = "another transaction is changing the catalog";
        return Error::new(SqlState::LOCK_NOT_AVAILABLE, message).with_hint("Retry when it has ended.");
    };
    Error::new(
        SqlState::LOCK_NOT_AVAILABLE,
        format!("could not obtain the lock on table \"{}\" in time", table.name()),
    )
    .with_hint("Other transactions are using the table; retry when they have ended.")
}
