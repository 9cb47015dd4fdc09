//! Locks of rows and of whole tables, and what of them outlives a statement that is run again.

use super::{Change, Isolation, Transaction};
use crate::active::{Waited, Want};
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Error, Result, RowId, Snapshot, SqlState, Stamp, Time, clock};
use firn_storage::{Closed, Counted, Guard, Held, RowLock, Table, WriteSet};
use std::time::Duration;

/// What somebody who waits for a table is asked between attempts, with the time for which he has waited: an error if he
/// gives up.
pub type Patience<'p> = &'p mut dyn FnMut(Duration) -> Result<()>;

/// The same for whatever a transaction waits for that is no row.
pub type TablePatience = Arc<dyn Fn(Awaited<'_>, Duration) -> Result<()> + Send + Sync>;

/// What a transaction waits for that is no row.
#[derive(Clone, Copy)]
pub enum Awaited<'t> {
    /// A table.
    Table(&'t Table),
    /// A table, by one that keeps all others from changing the catalog meanwhile.
    TableForDdl(&'t Table),
    /// That another one has changed the catalog.
    Catalog,
}

/// How long a transaction waits for a table, or for the catalog, that has not been told for how long.
const USUAL_PATIENCE: Duration = Duration::from_secs(5);

/// How long it sleeps at first, and at most, before it asks patience again, and looks whether it waits for itself.
const SHORTEST_SLEEP: Duration = Duration::from_micros(200);
const LONGEST_SLEEP: Duration = Duration::from_millis(10);

impl Transaction {
    /// Says how long it waits for tables from now on; else it is five seconds (55P03).
    pub fn set_patience(&mut self, patience: TablePatience) {
        self.patience = Some(patience);
    }

    fn patience_for<'t>(&self, table: &'t Table) -> impl FnMut(Duration) -> Result<()> + use<'t> {
        self.patience(if self.ddl.is_some() { Awaited::TableForDdl(table) } else { Awaited::Table(table) })
    }

    fn patience<'t>(&self, awaited: Awaited<'t>) -> impl FnMut(Duration) -> Result<()> + use<'t> {
        let patience = self.patience.clone();
        move |waited| match &patience {
            Some(patience) => patience(awaited, waited),
            None if waited > USUAL_PATIENCE => Err(busy(awaited)),
            None => Ok(()),
        }
    }

    /// Whether it keeps others from changing the catalog.
    pub fn changes_catalog(&self) -> bool {
        self.ddl.is_some()
    }

    /// Tries until it has what it wants; whether it had to wait. Meanwhile it waits for the end of whoever has it, as of one that
    /// has a row: 40P01 if that one waits for it. Errors else: patience's.
    fn wait_until(
        &self,
        want: Want,
        mut attempt: impl FnMut() -> bool,
        holder: impl Fn() -> Option<Stamp>,
        patience: Patience<'_>,
    ) -> Result<bool> {
        // Nearly always at once, without asking the clock.
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
            patience(begun.elapsed())?;
            // Who is not known yet has only just come, and who has ended is about to go.
            let Some(holder) = holder().filter(|holder| ended != Some(*holder)) else {
                clock::sleep(SHORTEST_SLEEP);
                return Ok(());
            };
            match self.wait_for(holder, longest) {
                Waited::Deadlock => return Err(Error::deadlock()),
                Waited::Ended => ended = Some(holder),
                Waited::NotYet | Waited::LetGo => {}
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

    /// Takes the right to change the catalog, waiting for others: 55P03 if they take too long, 40001 if they have committed what
    /// its snapshot does not see.
    pub(super) fn begin_ddl(&self) -> Result<()> {
        let (engine, owner) = (&self.engine, self.snapshot.owner);
        let patience = &mut self.patience(Awaited::Catalog);
        self.wait_until(Want::Catalog, || engine.try_begin_ddl(owner), || engine.ddl_by(), patience)?;
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

    /// Locks a visible row until the transaction ends, or a savepoint from before is rolled back to: then
    /// others may have it at once. 40001 if another transaction's
    /// lock or change is in the way, with [who that is](Error::blocker) if it still runs; 53200 if there is no memory to
    /// note the lock.
    pub fn lock(&mut self, table: &Arc<Table>, row: RowId, lock: RowLock, guard: &Guard) -> Result<()> {
        self.ask_for_room(table, Change::Update, || false)?;
        self.lock_as_seen_by(self.snapshot, table, row, lock, guard)
    }

    /// Locks a row that has changed since the snapshot as it is committed now, so that nobody else comes first
    /// when the statement is run again, moved on to a snapshot that sees it so. Until then what was read of
    /// the row is out of date. Errors as for [`Transaction::lock`]; 40001 also if the row has gone.
    pub fn lock_newest(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        lock: RowLock,
        guard: &Guard,
    ) -> Result<()> {
        debug_assert!(self.can_move_on());
        self.ask_for_room(table, Change::Update, || false)?;
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
        let row = self.place_of(table, row);
        let write_set = self.locks_in(table)?;
        if !lock.is_shared() {
            return table.lock(write_set, snapshot, row, lock, guard);
        }
        if table.share(snapshot, row, lock, guard)? {
            self.shared.push((table.clone(), row, lock));
            self.count_shared();
        }
        Ok(())
    }

    /// Has the budget count the locks that it shares, once they are many.
    fn count_shared(&mut self) {
        /// In its list and in the table's, where half of the places are free.
        const BYTES_EACH: usize = 128;
        const LOT: usize = 1 << 18;
        let lots = self.shared.len() * BYTES_EACH / LOT;
        if self.shared_counted.as_ref().map_or(0, Counted::bytes) != lots * LOT {
            // First, that nobody sees less than there is.
            let counted =
                (lots > 0).then(|| Counted::new(Held::Unfinished, lots * LOT, self.engine.memory()));
            self.shared_counted = counted;
        }
    }

    /// Takes back the shared locks since there were `kept`.
    pub(super) fn unshare(&mut self, kept: usize) {
        for (table, row, lock) in self.shared.drain(kept..) {
            table.unshare(row, self.snapshot.owner, lock);
        }
        self.shared.shrink_to(2 * kept);
        self.count_shared();
    }

    /// The write set of a table may be had once it has joined those who write there.
    #[cold]
    pub(super) fn join(&mut self, table: &Arc<Table>) -> Result<()> {
        self.join_writers(table, &mut self.patience_for(table)).map(drop)
    }

    /// The write set, once rows of `table` may be locked.
    fn locks_in(&mut self, table: &Arc<Table>) -> Result<&mut WriteSet> {
        if !self.writes().has_touched(table) {
            self.join_lockers(table, &mut self.patience_for(table))?;
        }
        let write_set = self.write_set.as_mut().expect("running");
        self.engine.spill_if_long(write_set)?;
        Ok(write_set)
    }

    /// Keeps others from changing the shape of a table, or all of its rows, until this transaction ends, whether it writes there or not;
    /// whether it had to wait for one. Errors: 55P03, 40P01; 40001 if the table has changed its shape since the snapshot.
    pub fn keep_shape(&mut self, table: &Arc<Table>) -> Result<bool> {
        self.join_writers(table, &mut self.patience_for(table))
    }

    /// The same before a statement reads, which then has to be as of when the table was to be had: to one that reads what is
    /// committed it is a conflict (40001) that it had to wait, so that the statement is run again.
    pub fn keep_shape_to_read(&mut self, table: &Arc<Table>) -> Result<()> {
        let has_waited = self.keep_shape(table)?;
        self.reads_after(has_waited, table)
    }

    /// The same before a statement locks rows that it reads: also beside those who let nobody write to the table.
    pub fn keep_shape_to_lock(&mut self, table: &Arc<Table>) -> Result<()> {
        let has_waited = self.join_lockers(table, &mut self.patience_for(table))?;
        self.reads_after(has_waited, table)
    }

    /// As [`Transaction::keep_shape`], for one that only looks into the table: also beside those who let nobody write there.
    pub fn keep_shape_to_look(&mut self, table: &Arc<Table>) -> Result<bool> {
        self.join_lockers(table, &mut self.patience_for(table))
    }

    fn reads_after(&self, has_waited: bool, table: &Table) -> Result<()> {
        match has_waited && self.isolation == Isolation::ReadCommitted && self.can_move_on() {
            true => Err(Error::write_conflict(&table.name())),
            false => Ok(()),
        }
    }

    /// Joins those who write to a table, which keeps others from [locking](Transaction::lock_table) it; whether it had to wait.
    /// 40001 if the table has changed its shape since the snapshot.
    pub fn join_writers(&mut self, table: &Arc<Table>, patience: Patience<'_>) -> Result<bool> {
        assert!(!self.read_only, "a transaction that was begun to read does not write");
        if self.may_write_to(table) {
            return Ok(false);
        }
        let (want, keeper) = (self.want_to_write(table), || self.kept_from_writing_by(table));
        let has_waited = self.wait_until(want, || self.try_join_writers(table), keeper, patience)?;
        self.joined(table)?;
        Ok(has_waited)
    }

    /// Has it counted among the writers of a table, unless somebody keeps it from writing there.
    fn try_join_writers(&self, table: &Arc<Table>) -> bool {
        let (gate, owner) = (table.gate(), self.snapshot.owner);
        let only_locks = self.only_locks_in(table);
        if !self.has_closed(table) {
            return if only_locks { gate.try_write_too(owner) } else { gate.try_join(owner) };
        }
        // Who writes there lets nobody else keep it closed.
        let is_alone = gate.how_closed() > Some(Closed::Together) || gate.try_keep(owner, Closed::ToWriters);
        match (is_alone, only_locks) {
            (false, _) => {}
            (true, true) => gate.write_too(owner),
            (true, false) => gate.join_closed(owner),
        }
        is_alone
    }

    /// What it waits for until it may write to a table.
    fn want_to_write(&self, table: &Arc<Table>) -> Want {
        match (self.has_closed(table), self.only_locks_in(table)) {
            (true, _) => Want::Lock(table.id()),
            (false, true) => Want::WriteToo(table.id()),
            (false, false) => Want::Write(table.id()),
        }
    }

    /// One that keeps it from writing to a table.
    fn kept_from_writing_by(&self, table: &Arc<Table>) -> Option<Stamp> {
        match self.want_to_write(table) {
            Want::WriteToo(_) => table.gate().closed_to_write_too_by().pop(),
            _ => keeper_beside(table, self.snapshot.owner),
        }
    }

    /// Goes on after it was counted among the writers of a table.
    pub(super) fn joined(&mut self, table: &Arc<Table>) -> Result<()> {
        if self.only_locks_in(table) {
            // As long as it does that the table keeps its shape.
            self.locks_only.retain(|known| !Arc::ptr_eq(known, table));
        } else if self.is_admitted(table) {
            self.write_set.as_mut().expect("running").touch(table);
        } else {
            table.gate().leave(self.snapshot.owner);
            return Err(self.refused(table));
        }
        self.note_joined(table, false);
        Ok(())
    }

    /// Joins those who lock rows of a table, unless it has joined its writers: others may let nobody write there, but not have it
    /// alone. Whether it had to wait. Errors as for [`Transaction::join_writers`].
    pub fn join_lockers(&mut self, table: &Arc<Table>, patience: Patience<'_>) -> Result<bool> {
        assert!(!self.read_only, "a transaction that was begun to read does not lock");
        if self.writes().has_touched(table) {
            return Ok(false);
        }
        let (gate, owner) = (table.gate(), self.snapshot.owner);
        let mut has_waited = false;
        if self.has_closed(table) && gate.how_closed() == Some(Closed::ToAll) {
            gate.join_lockers_closed(owner);
        } else {
            let (want, keeper) = (Want::LockRows(table.id()), || gate.closed_to_all_by());
            has_waited = self.wait_until(want, || gate.try_join_lockers(owner), keeper, patience)?;
        }
        if !self.is_admitted(table) {
            gate.write_too(owner);
            gate.leave(owner);
            return Err(self.refused(table));
        }
        self.write_set.as_mut().expect("running").touch(table);
        self.locks_only.push(table.clone());
        self.note_joined(table, true);
        Ok(has_waited)
    }

    /// Whether the table has the shape that its snapshot sees, or may be about to get another by itself.
    fn is_admitted(&self, table: &Arc<Table>) -> bool {
        self.has_closed(table) || table.gate().admits(self.snapshot)
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
        self.writes().has_touched(table) && !self.only_locks_in(table)
    }

    /// Whether it has joined those who lock rows of a table and not its writers.
    #[inline]
    fn only_locks_in(&self, table: &Arc<Table>) -> bool {
        self.locks_only.iter().any(|known| Arc::ptr_eq(known, table))
    }

    /// Of a table whose gate does not admit it: 40001 if the table has changed its shape, or has gone, since the
    /// snapshot; 55000 if it went before, so that the next attempt would find it no better.
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

    /// Whether this transaction has [locked](Transaction::lock_table) the table, alone or with others.
    pub fn has_closed(&self, table: &Arc<Table>) -> bool {
        self.closed.iter().any(|closed| Arc::ptr_eq(closed, table))
    }

    /// Keeps every other transaction from writing to the table, from locking its rows and from locking it until this one ends: SQL's
    /// LOCK TABLE. Nobody is kept from reading. Errors: patience's; 40P01; 40001 if the table has changed its shape since the snapshot.
    pub fn lock_table(&mut self, table: &Arc<Table>, patience: Patience<'_>) -> Result<()> {
        self.close(table, Closed::ToAll, patience)
    }

    /// As [`Transaction::lock_table`], but others may lock rows: IN SHARE ROW EXCLUSIVE MODE.
    pub fn keep_writers_out(&mut self, table: &Arc<Table>, patience: Patience<'_>) -> Result<()> {
        self.close(table, Closed::ToWriters, patience)
    }

    /// As [`Transaction::keep_writers_out`], but others may do the same: IN SHARE MODE. Once it has written to the table, or comes to, it
    /// has the lock alone, for which it waits as for any other.
    pub fn share_table(&mut self, table: &Arc<Table>, patience: Patience<'_>) -> Result<()> {
        self.close(table, Closed::Together, patience)
    }

    /// Joins the writers of a table, and keeps every other transaction from doing this until it ends: IN SHARE UPDATE EXCLUSIVE MODE. Errors
    /// as for [`Transaction::join_writers`].
    pub fn maintain_table(&mut self, table: &Arc<Table>, patience: Patience<'_>) -> Result<()> {
        assert!(!self.read_only, "a transaction that was begun to read does not write");
        if self.maintains.iter().any(|known| Arc::ptr_eq(known, table)) {
            return Ok(());
        }
        let (gate, owner) = (table.gate(), self.snapshot.owner);
        let begun = clock::now();
        let patience: Patience<'_> = &mut |_| patience(begun.elapsed());
        // Both or neither: with one it would be in the way of those for whom it waits for the other.
        while !self.may_write_to(table) {
            let (want, keeper) = (self.want_to_write(table), || self.kept_from_writing_by(table));
            self.wait_until(want, || keeper().is_none(), keeper, patience)?;
            self.wait_for_maintenance(table, patience)?;
            if self.try_join_writers(table) {
                self.joined(table).inspect_err(|_| gate.end_maintenance(owner))?;
            } else {
                gate.end_maintenance(owner);
            }
        }
        self.wait_for_maintenance(table, patience)?;
        self.maintains.push(table.clone());
        Ok(())
    }

    fn wait_for_maintenance(&self, table: &Table, patience: Patience<'_>) -> Result<()> {
        let (gate, owner) = (table.gate(), self.snapshot.owner);
        let other = || gate.maintained_by().filter(|other| *other != owner);
        self.wait_until(Want::Maintain(table.id()), || gate.try_maintain(owner), other, patience).map(drop)
    }

    fn close(&mut self, table: &Arc<Table>, how: Closed, patience: Patience<'_>) -> Result<()> {
        if self.has_closed(table) {
            return self.keep_closed(table, how, patience);
        }
        let (gate, owner, active) = (table.gate(), self.snapshot.owner, self.engine.active());
        // Who writes there lets nobody else keep it closed.
        let how = if self.may_write_to(table) { how.max(Closed::ToWriters) } else { how };
        let shares = how == Closed::Together;
        let want = if shares { Want::Share(table.id()) } else { Want::Lock(table.id()) };
        // Behind those who wait already: else they might wait for ever while one comes to share it after the other.
        let is_next = || !shares || !gate.is_closed() || !active.is_wanted(table.id());
        let attempt = || is_next() && gate.try_close(owner, how);
        self.wait_until(want, attempt, || keeper_beside(table, owner), patience)?;
        let alone = self.wait_for_sharers(table, how, patience);
        let alone = alone.and_then(|()| match gate.admits(self.snapshot) {
            true => Ok(()),
            false => Err(self.refused(table)),
        });
        if alone.is_err() {
            gate.open(owner);
            return alone;
        }
        self.closed.push(table.clone());
        Ok(())
    }

    /// Has a table that it has locked closed at least so from now on, once nobody else has locked it.
    fn keep_closed(&self, table: &Arc<Table>, how: Closed, patience: Patience<'_>) -> Result<()> {
        let (gate, owner) = (table.gate(), self.snapshot.owner);
        let before = gate.how_closed().expect("it has closed it");
        if how <= before {
            return Ok(());
        }
        let (want, keeper) = (Want::Lock(table.id()), || keeper_beside(table, owner));
        self.wait_until(want, || gate.try_keep(owner, how), keeper, patience)?;
        // Nobody has come to write there; some may have come to lock rows.
        if how < Closed::ToAll {
            return Ok(());
        }
        let alone = self.wait_for_sharers(table, how, patience);
        if alone.is_err() {
            assert!(gate.try_keep(owner, before), "nobody else keeps closed what one has alone");
        }
        alone
    }

    /// Waits for those who write to a table that it has just closed, and for those who lock rows there if it is closed to them.
    fn wait_for_sharers(&self, table: &Arc<Table>, how: Closed, patience: Patience<'_>) -> Result<()> {
        let (gate, owner, active) = (table.gate(), self.snapshot.owner, self.engine.active());
        let to_all = how == Closed::ToAll;
        let sharer = || active.sharer_beside(owner, table.id(), to_all);
        let waited = match to_all {
            true => {
                let own = u64::from(self.writes().has_touched(table));
                self.wait_until(Want::Alone(table.id()), || gate.is_alone(own), sharer, patience)
            }
            false => {
                let own = u64::from(self.may_write_to(table));
                self.wait_until(Want::Unwritten(table.id()), || gate.is_unwritten(own), sharer, patience)
            }
        };
        waited.map(drop)
    }

    /// Moves a transaction that has neither read nor written on to the newest committed state, as if it began only now.
    pub fn begin_anew(&mut self) {
        debug_assert!(!self.has_writes() && self.reads.get_mut().is_empty());
        self.move_on();
        self.catalog = OnceLock::new();
    }

    /// As [`Transaction::lock_table`], to change the shape of the table or all of it: for ALTER, CREATE INDEX, TRUNCATE, DROP.
    /// 55P03 if others that have written to it do not end in time, 40001 if one changed it that this transaction does not see.
    pub fn lock_exclusive(&mut self, table: &Arc<Table>) -> Result<()> {
        self.ddl_mut()?;
        let was_closed = self.has_closed(table);
        self.lock_table(table, &mut self.patience_for(table))?;
        if !self.catch_up(table) {
            if !was_closed {
                self.closed.pop().expect("just closed").gate().open(self.snapshot.owner);
            }
            return Err(Error::write_conflict(&table.name()));
        }
        let ddl = self.ddl_mut()?;
        if !ddl.exclusive.iter().any(|known| Arc::ptr_eq(known, table)) {
            ddl.exclusive.push(table.clone());
        }
        Ok(())
    }

    /// Whether this transaction sees everything committed to a table that it has closed. If it may,
    /// it moves its snapshot on so that it does.
    fn catch_up(&mut self, table: &Table) -> bool {
        if table.gate().is_current(self.snapshot) {
            return true;
        }
        let may_move = self.may_advance && self.writes().is_empty();
        if may_move {
            self.move_on();
        }
        may_move
    }

    /// Lets others write to the tables that it has locked, and maintain those that it maintains.
    pub(super) fn open_tables(&mut self) {
        let owner = self.snapshot.owner;
        self.closed.drain(..).for_each(|table| table.gate().open(owner));
        self.maintains.drain(..).for_each(|table| table.gate().end_maintenance(owner));
    }

    /// From now on the statement that is being run again locks each row before it changes it, and goes on behind one
    /// that others have changed once it has locked that, too: so that it has them all after few attempts, however often
    /// others change them. What comes of such an attempt does not count: see [`Transaction::take_missed`].
    pub fn lock_before_changes(&mut self) {
        debug_assert!(self.can_move_on());
        self.locks_first = true;
    }

    /// The first conflict that an attempt of the statement has gone on behind. The statement is to be run again, whatever
    /// has come of it.
    pub fn take_missed(&mut self) -> Option<Error> {
        self.missed.take()
    }

    /// Locks a row that is about to be changed; false if the change is to be left out of this attempt.
    #[cold]
    pub(super) fn locks_to_change(&mut self, table: &Arc<Table>, row: RowId, guard: &Guard) -> Result<bool> {
        let lock = RowLock::Update;
        // Whoever changes the row has asked for memory, or deletes it, which is to go well where there is none.
        let Err(error) = self.lock_as_seen_by(self.snapshot, table, row, lock, guard) else {
            return Ok(true);
        };
        if error.state() != SqlState::SERIALIZATION_FAILURE || error.blocker().is_some() {
            return Err(error);
        }
        // A row that has gone is not met again.
        let newest = Snapshot { read_time: Time::LATEST, ..self.snapshot };
        match self.lock_as_seen_by(newest, table, row, lock, guard) {
            Err(newest) if newest.blocker().is_some() => Err(newest),
            _ => {
                self.missed.get_or_insert(error);
                Ok(false)
            }
        }
    }
}

/// One that has only locked rows of these tables is about to leave all gates, and does so as a writer everywhere. Those who wait for
/// writers alone wait for it from now on.
pub(super) fn leave_as_writer(locks_only: &mut Vec<Arc<Table>>, owner: Stamp) {
    locks_only.drain(..).for_each(|table| table.gate().write_too(owner));
}

/// One who has closed a table, or is about to, but for `own`.
fn keeper_beside(table: &Table, own: Stamp) -> Option<Stamp> {
    table.gate().closed_by().into_iter().find(|keeper| *keeper != own)
}

/// 55P03: others use the table, or change the catalog.
pub(super) fn busy(awaited: Awaited<'_>) -> Error {
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

fn retired(table: &Table) -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("table \"{}\" has been dropped or has changed its shape", table.name()),
    )
    .with_hint("Prepare the access paths to it again.")
}
