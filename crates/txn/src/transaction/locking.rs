//! Taking locks of rows and of whole tables, and waiting for them.
//!
//! A lock is kept when the statement that took it is run again.

use super::locks::{Awaited, TableWaitLimit, WaitLimit};
use super::{Change, Isolation, Transaction};
use crate::waits::{Waited, Want};
use firn_base::sync::Arc;
use firn_base::{Error, Result, RowId, Snapshot, SqlState, Stamp, Time, clock};
use firn_storage::{Closed, Guard, RowLock, Table, WriteSet};
use std::time::Duration;

/// How long it sleeps at first, and at most, before it checks the limit and searches for a deadlock again.
const SHORTEST_SLEEP: Duration = Duration::from_micros(200);
const LONGEST_SLEEP: Duration = Duration::from_millis(10);

impl Transaction {
    /// Sets how long it waits for tables and for the catalog from now on; without a limit of its own a transaction waits five
    /// seconds (55P03).
    pub fn set_wait_limit(&mut self, limit: TableWaitLimit) {
        self.locks.set_wait_limit(limit);
    }

    fn wait_limit_for<'t>(&self, table: &'t Table) -> impl FnMut(Duration) -> Result<()> + use<'t> {
        let awaited = if self.has_ddl() { Awaited::TableForDdl(table) } else { Awaited::Table(table) };
        self.locks.wait_limit(awaited)
    }

    /// Repeats `attempt` until it succeeds; returns whether it had to wait. Between attempts it waits for the end of the
    /// transaction that `holder` returns, as for the holder of a row. Errors: 40P01 if that one waits for this one; those of
    /// `limit`.
    fn wait_until(
        &self,
        want: Want,
        mut attempt: impl FnMut() -> bool,
        holder: impl Fn() -> Option<Stamp>,
        limit: WaitLimit<'_>,
    ) -> Result<bool> {
        // Nearly always the first attempt succeeds, and the clock is not read.
        if attempt() {
            return Ok(false);
        }
        let begun = clock::now();
        let active = self.engine.active();
        self.engine.statistics().waits.count();
        active.set_want(&self.slot, Some(want));
        let mut longest = SHORTEST_SLEEP;
        let mut ended = None;
        let mut wait_once = || {
            limit(begun.elapsed())?;
            // An unknown holder has only just locked, and one that has ended is about to unlock.
            let Some(holder) = holder().filter(|holder| ended != Some(*holder)) else {
                clock::sleep(SHORTEST_SLEEP);
                return Ok(());
            };
            match self.wait_for(holder, longest) {
                Waited::Deadlock => return Err(Error::deadlock()),
                Waited::Ended => ended = Some(holder),
                Waited::NotYet | Waited::Released => {}
            }
            longest = LONGEST_SLEEP.min(2 * longest);
            Ok(())
        };
        let outcome = loop {
            if attempt() {
                break Ok(true);
            }
            if let Err(error) = wait_once() {
                break Err(error);
            }
        };
        active.set_want(&self.slot, None);
        outcome
    }

    /// Takes the right to change the catalog. Errors: 55P03 if another transaction has it for too long, 40001 if one has
    /// committed a change that the snapshot does not see.
    pub(super) fn begin_ddl(&self) -> Result<()> {
        self.check_writable()?;
        let (engine, owner) = (&self.engine, self.snapshot.owner);
        let limit = &mut self.locks.wait_limit(Awaited::Catalog);
        self.wait_until(Want::Catalog, || engine.try_begin_ddl(owner), || engine.ddl_by(), limit)?;
        if engine.has_changed_catalog_since(self.snapshot.read_time) {
            engine.end_ddl();
            return Err(Error::new(
                SqlState::SERIALIZATION_FAILURE,
                "could not serialize access due to a concurrent change of the catalog",
            )
            .with_hint("Retry the transaction."));
        }
        engine.active().set_writes(&self.slot);
        Ok(())
    }

    /// Locks a visible row until the transaction ends, or until a savepoint from before the lock is rolled back to. Errors:
    /// 40001 if the lock or the change of another transaction conflicts, with [the other transaction](Error::blocker) if it
    /// still runs; 53200 if there is no memory to note the lock.
    pub fn lock(&mut self, table: &Arc<Table>, row: RowId, lock: RowLock, guard: &Guard) -> Result<()> {
        self.check_memory(table, Change::Update, || false)?;
        self.lock_as_seen_by(self.snapshot, table, row, lock, guard)
    }

    /// Locks the newest committed version of a row that has changed since the snapshot. So no other transaction changes the
    /// row before the statement is run again with a newer snapshot, which sees that version. Until then what was read of the
    /// row is out of date. Errors as for [`Transaction::lock`]; also 40001 if the row has been deleted.
    pub fn lock_newest(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        lock: RowLock,
        guard: &Guard,
    ) -> Result<()> {
        debug_assert!(self.can_advance_snapshot());
        self.check_memory(table, Change::Update, || false)?;
        let newest = Snapshot { read_time: Time::LATEST, ..self.snapshot };
        self.lock_as_seen_by(newest, table, row, lock, guard)
    }

    fn lock_as_seen_by(
        &mut self,
        snapshot: Snapshot,
        table: &Arc<Table>,
        row: RowId,
        lock: RowLock,
        guard: &Guard,
    ) -> Result<()> {
        let row = self.current_row_id(table, row);
        let write_set = self.locks_in(table)?;
        if !lock.is_shared() {
            return table.lock(write_set, snapshot, row, lock, guard);
        }
        if table.share(snapshot, row, lock, guard)? {
            self.locks.add_shared_row(table, row, lock, self.engine.memory());
        }
        Ok(())
    }

    /// Joins the writers of a table, for [`Transaction::writes_to`].
    #[cold]
    pub(super) fn join(&mut self, table: &Arc<Table>) -> Result<()> {
        self.join_writers(table, &mut self.wait_limit_for(table)).map(drop)
    }

    /// The write set, after the transaction has joined the lockers of `table`.
    fn locks_in(&mut self, table: &Arc<Table>) -> Result<&mut WriteSet> {
        if !self.writes().has_touched(table) {
            self.join_lockers(table, &mut self.wait_limit_for(table))?;
        }
        let write_set = self.write_set.as_mut().expect("running");
        self.engine.spill_if_long(write_set)?;
        Ok(write_set)
    }

    /// Locks a table in ROW EXCLUSIVE mode until the transaction ends, whether it writes there or not: no other transaction changes
    /// the table's definition, or all of its rows. Returns whether it had to wait. Errors: 55P03, 40P01; 40001 if the table's
    /// definition has changed since the snapshot.
    pub fn lock_row_exclusive(&mut self, table: &Arc<Table>) -> Result<bool> {
        self.join_writers(table, &mut self.wait_limit_for(table))
    }

    /// As [`Transaction::lock_row_exclusive`], for a statement that is about to read the table. Under READ COMMITTED it must
    /// then read the state at the time of the lock: a wait is a conflict (40001), after which the statement is run again.
    pub fn lock_row_exclusive_to_read(&mut self, table: &Arc<Table>) -> Result<()> {
        let has_waited = self.lock_row_exclusive(table)?;
        self.check_read_after_wait(has_waited, table)
    }

    /// Locks a table in ROW SHARE mode, which is compatible with the modes that keep out writers alone. Returns and errors as
    /// [`Transaction::lock_row_exclusive`].
    pub fn lock_row_share(&mut self, table: &Arc<Table>) -> Result<bool> {
        self.join_lockers(table, &mut self.wait_limit_for(table))
    }

    /// As [`Transaction::lock_row_share`], for a statement that is about to read the table and lock rows; see
    /// [`Transaction::lock_row_exclusive_to_read`].
    pub fn lock_row_share_to_read(&mut self, table: &Arc<Table>) -> Result<()> {
        let has_waited = self.lock_row_share(table)?;
        self.check_read_after_wait(has_waited, table)
    }

    fn check_read_after_wait(&self, has_waited: bool, table: &Table) -> Result<()> {
        match has_waited && self.isolation == Isolation::ReadCommitted && self.can_advance_snapshot() {
            true => Err(Error::write_conflict(&table.name())),
            false => Ok(()),
        }
    }

    /// Joins the writers of a table, which keeps others from [locking](Transaction::lock_table) it. Returns whether it had to
    /// wait. Errors: those of `limit`, 40P01; 40001 if the table's definition has changed since the snapshot.
    pub fn join_writers(&mut self, table: &Arc<Table>, limit: WaitLimit<'_>) -> Result<bool> {
        self.check_writable()?;
        assert!(!self.read_only, "a transaction that was begun to read does not write");
        if self.may_write_to(table) {
            return Ok(false);
        }
        let (want, holder) = (self.want_to_write(table), || self.write_blocker(table));
        let has_waited = self.wait_until(want, || self.try_join_writers(table), holder, limit)?;
        self.joined(table)?;
        Ok(has_waited)
    }

    /// Counts it among the writers of a table, unless another transaction has locked the table against that.
    fn try_join_writers(&self, table: &Arc<Table>) -> bool {
        let (gate, owner) = (table.gate(), self.snapshot.owner);
        let only_locks = self.locks.only_locks_rows_of(table);
        if !self.has_locked(table) {
            return if only_locks { gate.try_write_too(owner) } else { gate.try_join(owner) };
        }
        // A table that its holder writes to cannot be locked together with others.
        let is_alone = gate.how_closed() > Some(Closed::Together) || gate.try_keep(owner, Closed::ToWriters);
        match (is_alone, only_locks) {
            (false, _) => {}
            (true, true) => gate.write_too(owner),
            (true, false) => gate.join_closed(owner),
        }
        is_alone
    }

    /// What it waits for before it may write to a table.
    fn want_to_write(&self, table: &Arc<Table>) -> Want {
        match (self.has_locked(table), self.locks.only_locks_rows_of(table)) {
            (true, _) => Want::Lock(table.id()),
            (false, true) => Want::WriteToo(table.id()),
            (false, false) => Want::Write(table.id()),
        }
    }

    /// A transaction because of which it may not write to a table.
    fn write_blocker(&self, table: &Arc<Table>) -> Option<Stamp> {
        match self.want_to_write(table) {
            Want::WriteToo(_) => table.gate().closed_to_write_too_by().pop(),
            _ => other_holder(table, self.snapshot.owner),
        }
    }

    /// Completes joining, after it was counted among the writers of a table.
    pub(super) fn joined(&mut self, table: &Arc<Table>) -> Result<()> {
        if self.locks.only_locks_rows_of(table) {
            // Its row locks have kept the table's definition.
            self.locks.set_writer(table);
        } else if self.is_admitted(table) {
            self.write_set.as_mut().expect("running").touch(table);
        } else {
            table.gate().leave(self.snapshot.owner);
            return Err(self.refused(table));
        }
        self.note_joined(table, false);
        Ok(())
    }

    /// Joins the lockers of a table, unless it has joined its writers: compatible with locks against writers, but not
    /// with exclusive ones. Returns and errors as [`Transaction::join_writers`].
    pub fn join_lockers(&mut self, table: &Arc<Table>, limit: WaitLimit<'_>) -> Result<bool> {
        self.check_writable()?;
        assert!(!self.read_only, "a transaction that was begun to read does not lock");
        if self.writes().has_touched(table) {
            return Ok(false);
        }
        let (gate, owner) = (table.gate(), self.snapshot.owner);
        let mut has_waited = false;
        if self.has_locked(table) && gate.how_closed() == Some(Closed::ToAll) {
            gate.join_lockers_closed(owner);
        } else {
            let (want, holder) = (Want::LockRows(table.id()), || gate.closed_to_all_by());
            has_waited = self.wait_until(want, || gate.try_join_lockers(owner), holder, limit)?;
        }
        if !self.is_admitted(table) {
            gate.write_too(owner);
            gate.leave(owner);
            return Err(self.refused(table));
        }
        self.write_set.as_mut().expect("running").touch(table);
        self.locks.add_row_locker(table);
        self.note_joined(table, true);
        Ok(has_waited)
    }

    /// Whether the table has the definition that the snapshot sees, or only this transaction can change it.
    fn is_admitted(&self, table: &Arc<Table>) -> bool {
        self.has_locked(table) || table.gate().admits(self.snapshot)
    }

    fn note_joined(&self, table: &Table, only_locks: bool) {
        match table.is_published() {
            true => self.engine.active().note_joined(&self.slot, table.id(), only_locks),
            false => self.engine.active().set_writes(&self.slot),
        }
    }

    /// Whether it has joined the writers of a table.
    #[inline]
    pub(super) fn may_write_to(&self, table: &Arc<Table>) -> bool {
        self.writes().has_touched(table) && !self.locks.only_locks_rows_of(table)
    }

    /// The error if the gate of a table does not admit the snapshot: 40001 if the table's definition has changed since, or the
    /// table has been dropped; 55000 if it was dropped before, so that another attempt would fail likewise.
    #[cold]
    fn refused(&self, table: &Table) -> Error {
        let knows = || self.catalog().tables.values().any(|known| known.storage() == table.id());
        if table.gate().is_retired() && !knows() {
            return retired(table);
        }
        let message = format!(
            "could not serialize access: table \"{}\" has changed its shape or has gone",
            table.name()
        );
        Error::new(SqlState::SERIALIZATION_FAILURE, message).with_hint("Retry the transaction.")
    }

    /// Whether this transaction has [locked](Transaction::lock_table) the table, alone or together with others.
    pub fn has_locked(&self, table: &Arc<Table>) -> bool {
        self.locks.has_table(table)
    }

    /// Locks a table in EXCLUSIVE mode until the transaction ends: SQL's LOCK TABLE. Others can neither write to the table nor
    /// lock it or its rows; they can read it. Errors: those of `limit`, 40P01; 40001 if the table's definition has changed
    /// since the snapshot.
    pub fn lock_table(&mut self, table: &Arc<Table>, limit: WaitLimit<'_>) -> Result<()> {
        self.close(table, Closed::ToAll, limit)
    }

    /// As [`Transaction::lock_table`], but others may lock rows: SHARE ROW EXCLUSIVE mode.
    pub fn lock_share_row_exclusive(&mut self, table: &Arc<Table>, limit: WaitLimit<'_>) -> Result<()> {
        self.close(table, Closed::ToWriters, limit)
    }

    /// As [`Transaction::lock_share_row_exclusive`], but others may hold the same lock: SHARE mode. When the transaction
    /// writes to the table, before or later, it needs the lock alone, and waits for that as for any other.
    pub fn lock_share(&mut self, table: &Arc<Table>, limit: WaitLimit<'_>) -> Result<()> {
        self.close(table, Closed::Together, limit)
    }

    /// Locks a table in SHARE UPDATE EXCLUSIVE mode: it joins the writers of the table, and no other transaction gets this
    /// lock. Errors as for [`Transaction::join_writers`].
    pub fn lock_share_update_exclusive(&mut self, table: &Arc<Table>, limit: WaitLimit<'_>) -> Result<()> {
        self.check_writable()?;
        assert!(!self.read_only, "a transaction that was begun to read does not write");
        if self.locks.maintains(table) {
            return Ok(());
        }
        let (gate, owner) = (table.gate(), self.snapshot.owner);
        let begun = clock::now();
        let limit: WaitLimit<'_> = &mut |_| limit(begun.elapsed());
        // Both or neither: with one alone it would block transactions for which it waits to get the other.
        while !self.may_write_to(table) {
            let (want, holder) = (self.want_to_write(table), || self.write_blocker(table));
            self.wait_until(want, || holder().is_none(), holder, limit)?;
            self.wait_for_maintenance(table, limit)?;
            if self.try_join_writers(table) {
                self.joined(table).inspect_err(|_| gate.end_maintenance(owner))?;
            } else {
                gate.end_maintenance(owner);
            }
        }
        self.wait_for_maintenance(table, limit)?;
        self.locks.add_maintained(table);
        Ok(())
    }

    fn wait_for_maintenance(&self, table: &Table, limit: WaitLimit<'_>) -> Result<()> {
        let (gate, owner) = (table.gate(), self.snapshot.owner);
        let other = || gate.maintained_by().filter(|other| *other != owner);
        self.wait_until(Want::Maintain(table.id()), || gate.try_maintain(owner), other, limit).map(drop)
    }

    fn close(&mut self, table: &Arc<Table>, how: Closed, limit: WaitLimit<'_>) -> Result<()> {
        self.check_writable()?;
        if self.has_locked(table) {
            return self.keep_closed(table, how, limit);
        }
        let (gate, owner, active) = (table.gate(), self.snapshot.owner, self.engine.active());
        // A table that its holder writes to cannot be locked together with others.
        let how = if self.may_write_to(table) { how.max(Closed::ToWriters) } else { how };
        let shares = how == Closed::Together;
        let want = if shares { Want::Share(table.id()) } else { Want::Lock(table.id()) };
        // After those that wait already: else they might starve while new transactions share the lock one after another.
        let is_next = || !shares || !gate.is_closed() || !active.is_wanted(table.id());
        let attempt = || is_next() && gate.try_close(owner, how);
        self.wait_until(want, attempt, || other_holder(table, owner), limit)?;
        let alone = self.wait_for_sharers(table, how, limit);
        let alone = alone.and_then(|()| match gate.admits(self.snapshot) {
            true => Ok(()),
            false => Err(self.refused(table)),
        });
        if alone.is_err() {
            gate.open(owner);
            return alone;
        }
        self.locks.add_table(table);
        Ok(())
    }

    /// Upgrades the lock of a table that it has locked, after waiting until no other transaction holds one.
    fn keep_closed(&self, table: &Arc<Table>, how: Closed, limit: WaitLimit<'_>) -> Result<()> {
        let (gate, owner) = (table.gate(), self.snapshot.owner);
        let before = gate.how_closed().expect("it has closed it");
        if how <= before {
            return Ok(());
        }
        let (want, holder) = (Want::Lock(table.id()), || other_holder(table, owner));
        self.wait_until(want, || gate.try_keep(owner, how), holder, limit)?;
        // The lock has kept out writers; others may have locked rows.
        if how < Closed::ToAll {
            return Ok(());
        }
        let alone = self.wait_for_sharers(table, how, limit);
        if alone.is_err() {
            assert!(gate.try_keep(owner, before), "a lock that is held alone can be downgraded");
        }
        alone
    }

    /// Waits for the writers of a table that it has just locked, and for its lockers if the lock excludes them.
    fn wait_for_sharers(&self, table: &Arc<Table>, how: Closed, limit: WaitLimit<'_>) -> Result<()> {
        let (gate, owner, active) = (table.gate(), self.snapshot.owner, self.engine.active());
        let to_all = how == Closed::ToAll;
        let sharer = || active.sharer_beside(owner, table.id(), to_all);
        let waited = match to_all {
            true => {
                let own = u64::from(self.writes().has_touched(table));
                self.wait_until(Want::Alone(table.id()), || gate.is_alone(own), sharer, limit)
            }
            false => {
                let own = u64::from(self.may_write_to(table));
                self.wait_until(Want::Unwritten(table.id()), || gate.is_unwritten(own), sharer, limit)
            }
        };
        waited.map(drop)
    }

    /// As [`Transaction::lock_table`], to change the definition of the table or all of its rows: for ALTER, CREATE INDEX,
    /// TRUNCATE, DROP. Errors: 55P03 if others that have written to the table do not end in time, 40001 if the snapshot does
    /// not see all of their changes.
    pub fn lock_exclusive(&mut self, table: &Arc<Table>) -> Result<()> {
        self.ddl_mut()?;
        let was_locked = self.has_locked(table);
        self.lock_table(table, &mut self.wait_limit_for(table))?;
        if !table.gate().is_current(self.snapshot) && !self.advance_for_ddl() {
            if !was_locked {
                self.locks.unlock_last_table(self.snapshot.owner);
            }
            return Err(Error::write_conflict(&table.name()));
        }
        let ddl = self.ddl_mut()?;
        if !ddl.exclusive.iter().any(|known| Arc::ptr_eq(known, table)) {
            ddl.exclusive.push(table.clone());
        }
        Ok(())
    }

    /// From now on the statement, which is being run again, locks each row before it changes the row. It leaves out rows that
    /// others have changed, after it has locked their newest versions too: so after a few attempts it holds locks on all its
    /// rows, however often others change them. The outcome of such an attempt does not count: see
    /// [`Transaction::take_skipped_conflict`].
    pub fn lock_rows_before_changes(&mut self) {
        debug_assert!(self.can_advance_snapshot());
        self.locks.lock_before_changes();
    }

    /// The first conflict because of which an attempt of the statement left out a change. The statement must then be run
    /// again, whatever its outcome was.
    pub fn take_skipped_conflict(&mut self) -> Option<Error> {
        self.locks.take_skipped_conflict()
    }

    /// Locks a row that is about to be changed; false if this attempt must leave out the change.
    #[cold]
    pub(super) fn lock_to_change(&mut self, table: &Arc<Table>, row: RowId, guard: &Guard) -> Result<bool> {
        let lock = RowLock::Update;
        // The caller has checked that there is memory, or deletes the row, which must also succeed without memory.
        let Err(error) = self.lock_as_seen_by(self.snapshot, table, row, lock, guard) else {
            return Ok(true);
        };
        if error.state() != SqlState::SERIALIZATION_FAILURE || error.blocker().is_some() {
            return Err(error);
        }
        // The next attempt will not find a deleted row.
        let newest = Snapshot { read_time: Time::LATEST, ..self.snapshot };
        match self.lock_as_seen_by(newest, table, row, lock, guard) {
            Err(newest) if newest.blocker().is_some() => Err(newest),
            _ => {
                self.locks.skip_conflict(error);
                Ok(false)
            }
        }
    }
}

/// A transaction other than `own` that has locked a table, or is about to.
fn other_holder(table: &Table, own: Stamp) -> Option<Stamp> {
    table.gate().closed_by().into_iter().find(|holder| *holder != own)
}

/// 55000: the table was dropped or replaced before the snapshot.
fn retired(table: &Table) -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("table \"{}\" has been dropped or has changed its shape", table.name()),
    )
    .with_hint("Prepare the access paths to it again.")
}
