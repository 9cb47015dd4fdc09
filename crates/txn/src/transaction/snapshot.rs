//! The states of a transaction's snapshot while it runs.
//!
//! A transaction takes a snapshot when it begins. Some events may replace it by one of the newest committed
//! state, or release it for a while. What an event does depends on three things: the [`SnapshotState`], the
//! isolation level, and whether the transaction has changed the catalog. [`SnapshotState::next`] is the whole
//! table; the methods of [`Transaction`] below perform its actions.
//!
//! Invariant: while the state is [`Released`](SnapshotState::Released) nothing is read with the snapshot, and
//! the transaction's slot among the active ones retains no version.

use super::{Isolation, StatementStart, Transaction};
use firn_base::sync::Ordering;
use firn_base::{Error, Result, SqlState, Time};
use firn_storage::{Guard, Mark};

/// How a transaction holds its snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum SnapshotState {
    /// It has a snapshot, which its isolation level may replace between statements and between batches.
    #[default]
    Held,
    /// As `Held`. Until its first change a DDL statement may also advance it, at every level.
    Advanceable,
    /// It has a snapshot that others read during later statements: a running statement neither advances nor
    /// releases it.
    Pinned,
    /// It has none and only inserts.
    Released,
}

/// What may change the snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SnapshotEvent {
    /// A statement begins that reads what is committed by now.
    Refresh,
    /// A statement is run again after a conflict.
    Restart,
    /// A long statement is between two batches of rows.
    Batch,
    /// DDL has locked a table that has changed since the snapshot; nothing has been written yet.
    DdlLock,
    /// The transaction has its first table locks and has read nothing.
    Renew,
    /// A single DDL statement begins outside a transaction block.
    AllowAdvance,
    /// A reader of the snapshot outlives its statement.
    Pin,
    /// A statement begins that needs no snapshot.
    Release,
    /// A snapshot is needed again.
    Acquire,
}

/// What an event does to the snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SnapshotAction {
    /// Nothing; only the state changes.
    Keep,
    /// Versions are no longer retained for it.
    Release,
    /// A new one is taken, as by a transaction that begins.
    Acquire,
    /// It advances to the newest committed state.
    Advance,
    /// It advances there if everything read so far still reads the same.
    AdvanceIfValid,
    /// There is none; only the read time follows the newest commit.
    Follow,
}

impl SnapshotState {
    /// The state after an event, and what is to be done; `None` if the event does not concern the snapshot then.
    fn next(
        self,
        event: SnapshotEvent,
        isolation: Isolation,
        has_ddl: bool,
    ) -> Option<(SnapshotState, SnapshotAction)> {
        use Isolation::{ReadCommitted, Serializable};
        use SnapshotAction as Action;
        use SnapshotEvent::{Acquire, AllowAdvance, Batch, DdlLock, Pin, Refresh, Release, Renew, Restart};
        use SnapshotState::{Advanceable, Held, Pinned, Released};
        let keeps_first = isolation == Isolation::Snapshot;
        match (event, self) {
            // One snapshot for the whole transaction.
            (Refresh | Restart | Batch | Release, _) if keeps_first => None,
            // The changed catalog is a copy of the one that the snapshot sees.
            (Refresh | Restart, _) if has_ddl => None,
            (Refresh, _) if isolation != ReadCommitted => None,

            (Refresh | Restart | Renew | Acquire, Released) => Some((Held, Action::Acquire)),
            (Restart, _) if isolation == Serializable => Some((self, Action::AdvanceIfValid)),
            (Refresh | Restart | Renew, _) => Some((self, Action::Advance)),
            (Acquire, _) => None,

            (Batch, Pinned) => None,
            (Batch, Released) => Some((Released, Action::Follow)),
            (Batch, _) if isolation == Serializable => Some((self, Action::AdvanceIfValid)),
            (Batch, _) => Some((self, Action::Advance)),

            (DdlLock, Advanceable) => Some((Advanceable, Action::Advance)),
            (DdlLock, _) => None,

            (AllowAdvance, Held | Advanceable) => Some((Advanceable, Action::Keep)),
            (AllowAdvance, _) => None,

            (Pin, Released) => Some((Pinned, Action::Acquire)),
            (Pin, _) => Some((Pinned, Action::Keep)),

            (Release, Held | Advanceable) => Some((Released, Action::Release)),
            (Release, Pinned | Released) => None,
        }
    }
}

impl Transaction {
    /// Takes an event, and returns what is to be done with the snapshot.
    fn after(&mut self, event: SnapshotEvent) -> Option<SnapshotAction> {
        let (state, action) = self.snapshot_state.next(event, self.isolation, self.has_ddl())?;
        self.snapshot_state = state;
        Some(action)
    }

    /// Whether it has [released](Transaction::release_snapshot) its snapshot.
    #[inline]
    pub(super) fn is_without_snapshot(&self) -> bool {
        self.snapshot_state == SnapshotState::Released
    }

    /// Whether [`Transaction::restart`] may advance the snapshot.
    pub fn can_advance_snapshot(&self) -> bool {
        self.snapshot_state.next(SnapshotEvent::Restart, self.isolation, self.has_ddl()).is_some()
    }

    /// Under READ COMMITTED, advances the snapshot to the newest committed state. Called before each statement; no effect
    /// at other levels, and after DDL. No rows of earlier statements may be left to read.
    pub fn refresh(&mut self) {
        match self.after(SnapshotEvent::Refresh) {
            Some(SnapshotAction::Acquire) => self.take_new_snapshot(),
            Some(_) => {
                self.advance_to_newest();
                self.catalog_view.forget_committed();
            }
            None => {}
        }
    }

    /// Whether the catalog has changed since the snapshot, so that a [refresh](Transaction::refresh) would make a
    /// different one visible.
    pub fn has_stale_catalog(&self) -> bool {
        let refreshes =
            self.snapshot_state.next(SnapshotEvent::Refresh, self.isolation, self.has_ddl()).is_some();
        refreshes && self.engine.has_changed_catalog_since(self.snapshot.read_time)
    }

    /// Undoes the changes of a statement that met a conflict, and prepares the transaction for another attempt.
    ///
    /// A serializable transaction advances to the newest committed state if everything that it had read before the
    /// statement still reads the same there: then no observer can distinguish it from a transaction that begins only now,
    /// and the conflict is gone. Otherwise the error is 40001. READ COMMITTED always advances. REPEATABLE READ keeps its
    /// snapshot, so only a conflict with a change that was rolled back is gone.
    ///
    /// No rows of earlier statements may be left to read.
    pub fn restart(&mut self, statement: &StatementStart) -> Result<()> {
        self.undo_statement(statement);
        let Some(action) = self.after(SnapshotEvent::Restart) else { return Ok(()) };
        if action == SnapshotAction::Acquire {
            self.take_new_snapshot();
            return Ok(());
        }
        self.wait_for_publication();
        if action == SnapshotAction::Advance {
            self.advance_to_newest();
            self.catalog_view.forget_committed();
            return Ok(());
        }
        self.take_notes();
        self.reads.get_mut().truncate(&statement.reads);
        let before = self.snapshot.read_time;
        let active = self.engine.active();
        // Meanwhile versions are retained both for what it has read and for what it will read.
        active.advance(&self.slot, before, self.engine.last());
        let validated = self.engine.validate(self.reads.get_mut(), self.snapshot, before);
        let read_time = *validated.as_ref().unwrap_or(&before);
        active.settle(&self.slot, read_time);
        validated?;
        self.set_read_time(read_time);
        self.catalog_view.forget_committed();
        Ok(())
    }

    /// Advances the snapshot of a long statement that reads little, so that old versions can be collected: to
    /// the newest committed state, as [`Transaction::restart`] does. Returns false without a change in these
    /// cases:
    /// - something that was read reads differently there;
    /// - the catalog has changed (the statement was compiled with it);
    /// - the level is REPEATABLE READ;
    /// - the snapshot is [pinned](Transaction::pin_snapshot).
    ///
    /// No rows of this statement or of earlier ones may be left to read.
    pub fn advance_snapshot(&mut self) -> bool {
        let Some(action) = self.after(SnapshotEvent::Batch) else { return false };
        self.take_notes();
        let before = self.snapshot.read_time;
        if action == SnapshotAction::Follow {
            let newest = Time(self.engine.last().load(Ordering::SeqCst));
            if self.engine.has_changed_catalog_since(before) {
                return false;
            }
            self.set_read_time(newest);
            return true;
        }
        // As in `restart`.
        let active = self.engine.active();
        let newest = active.advance(&self.slot, before, self.engine.last());
        let advanced = match action {
            SnapshotAction::AdvanceIfValid => {
                self.engine.validate(self.reads.get_mut(), self.snapshot, before).ok()
            }
            _ => Some(newest),
        };
        // Checked after the newest time was read: a change of the catalog is stored before its time is published.
        let advanced = advanced.filter(|_| !self.engine.has_changed_catalog_since(before));
        active.settle(&self.slot, advanced.unwrap_or(before));
        let Some(read_time) = advanced else { return false };
        self.set_read_time(read_time);
        true
    }

    /// Replaces the snapshot of a transaction that has neither read nor written by the newest committed
    /// state, as if it began only now.
    pub fn renew_snapshot(&mut self) {
        self.take_notes();
        debug_assert!(!self.has_writes() && self.reads.get_mut().is_empty());
        match self.after(SnapshotEvent::Renew) {
            Some(SnapshotAction::Acquire) => self.take_new_snapshot(),
            _ => self.advance_to_newest(),
        }
        self.catalog_view.forget_committed();
    }

    /// Permits a single DDL statement outside a transaction block to advance its snapshot while it has written nothing:
    /// it need not fail because others wrote to its table while it waited for the lock.
    pub fn allow_snapshot_advance(&mut self) {
        self.after(SnapshotEvent::AllowAdvance);
    }

    /// Advances the snapshot to the newest committed state, if the transaction may do so after it has locked a table for
    /// DDL. Returns whether it has.
    pub(super) fn advance_for_ddl(&mut self) -> bool {
        let advances = self.writes().is_empty() && self.after(SnapshotEvent::DdlLock).is_some();
        if advances {
            self.advance_to_newest();
        }
        advances
    }

    /// Pins the snapshot: a reader uses it during later statements, so [`Transaction::advance_snapshot`] and
    /// [`Transaction::release_snapshot`] have no effect any more.
    pub fn pin_snapshot(&mut self) {
        if self.after(SnapshotEvent::Pin) == Some(SnapshotAction::Acquire) {
            self.take_new_snapshot();
        }
    }

    /// Releases the snapshot. Until the transaction [acquires one again](Transaction::acquire_snapshot) it
    /// only inserts rows, and reads only those under their keys. So no version is retained for it, and
    /// committers continue to collect their own old versions while these are in their cache: with a snapshot
    /// of a few milliseconds TPC-C runs at seven eighths of its speed.
    ///
    /// No effect if it has read something, under REPEATABLE READ, and if the snapshot is
    /// [pinned](Transaction::pin_snapshot). No rows of earlier statements may be left to read.
    pub fn release_snapshot(&mut self) {
        self.take_notes();
        if self.tracks_read_durability || !self.reads.get_mut().is_empty() {
            return;
        }
        if self.after(SnapshotEvent::Release).is_some() {
            // The statement finds its tables in it.
            self.catalog();
            self.engine.active().release_snapshot(&self.slot);
        }
    }

    /// Takes a new snapshot if the transaction has [released](Transaction::release_snapshot) its own: it continues as if it
    /// began now, with the rows that it has inserted.
    #[inline]
    pub fn acquire_snapshot(&mut self) {
        if self.is_without_snapshot() {
            self.after(SnapshotEvent::Acquire);
            self.take_new_snapshot();
        }
    }

    #[cold]
    fn take_new_snapshot(&mut self) {
        self.wait_for_publication();
        self.snapshot.read_time = self.engine.active().acquire_snapshot(&self.slot, self.engine.last());
        self.seen = self.engine.last_position();
        self.catalog_view.forget_committed();
    }

    fn advance_to_newest(&mut self) {
        let active = self.engine.active();
        self.snapshot.read_time = active.advance(&self.slot, self.snapshot.read_time, self.engine.last());
        active.settle(&self.slot, self.snapshot.read_time);
        self.seen = self.engine.last_position();
    }

    fn set_read_time(&mut self, read_time: Time) {
        self.snapshot.read_time = read_time;
        self.seen = self.engine.last_position();
    }

    /// Returns when every transaction that has stamped its changes by now has published its commit time: the conflict or
    /// the taken key that was met may be of one that has not yet.
    pub(super) fn wait_for_publication(&self) {
        drop(self.engine.commit.lock());
    }

    /// Where to undo to if an insertion is [repeated with a snapshot](Transaction::retry_with_snapshot); `None` if the
    /// transaction has one.
    #[inline]
    pub(crate) fn mark_for_retry(&self) -> Option<Mark> {
        self.is_without_snapshot().then(|| self.writes().mark())
    }

    /// Whether an insertion is to be repeated with a snapshot: it failed because a key is taken, and the transaction had no
    /// snapshot when it was at `mark`. A client that learns of a taken key has read it, and the read must be noted. What has
    /// been inserted is undone.
    ///
    /// The catalog may have changed by the new snapshot, but not what the statement relies on: by now it has joined the gate
    /// of its table, and it writes to no other.
    #[cold]
    pub(crate) fn retry_with_snapshot(&mut self, error: &Error, mark: Option<Mark>, guard: &Guard) -> bool {
        let Some(mark) = mark.filter(|_| error.state() == SqlState::UNIQUE_VIOLATION) else {
            return false;
        };
        self.write_set.as_mut().expect("running").roll_back(mark, guard);
        self.acquire_snapshot();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::SnapshotAction as Action;
    use super::SnapshotEvent::{
        Acquire, AllowAdvance, Batch, DdlLock, Pin, Refresh, Release, Renew, Restart,
    };
    use super::SnapshotState::{Advanceable, Held, Pinned, Released};
    use super::{Isolation, SnapshotState};
    use Isolation::{ReadCommitted, Serializable, Snapshot};

    const STATES: [SnapshotState; 4] = [Held, Advanceable, Pinned, Released];
    const LEVELS: [Isolation; 3] = [ReadCommitted, Snapshot, Serializable];

    /// Asserts what an event does in each of [`STATES`].
    fn assert_row(
        event: super::SnapshotEvent,
        isolation: Isolation,
        has_ddl: bool,
        expected: [Option<(SnapshotState, Action)>; 4],
    ) {
        for (state, expected) in STATES.into_iter().zip(expected) {
            let next = state.next(event, isolation, has_ddl);
            assert_eq!(next, expected, "{event:?} in {state:?} at {isolation:?}, DDL: {has_ddl}");
        }
    }

    /// The same action in every state that has a snapshot, and a new one in the state that has none.
    fn advances(action: Action) -> [Option<(SnapshotState, Action)>; 4] {
        [
            Some((Held, action)),
            Some((Advanceable, action)),
            Some((Pinned, action)),
            Some((Held, Action::Acquire)),
        ]
    }

    #[test]
    fn a_statement_begins_with_the_newest_state_under_read_committed_alone() {
        assert_row(Refresh, ReadCommitted, false, advances(Action::Advance));
        assert_row(Refresh, ReadCommitted, true, [None; 4]);
        for has_ddl in [false, true] {
            assert_row(Refresh, Snapshot, has_ddl, [None; 4]);
            assert_row(Refresh, Serializable, has_ddl, [None; 4]);
        }
    }

    #[test]
    fn a_restarted_statement_reads_a_newer_state_where_the_level_permits_and_before_ddl() {
        assert_row(Restart, ReadCommitted, false, advances(Action::Advance));
        assert_row(Restart, Serializable, false, advances(Action::AdvanceIfValid));
        assert_row(Restart, Snapshot, false, [None; 4]);
        for isolation in LEVELS {
            assert_row(Restart, isolation, true, [None; 4]);
        }
    }

    #[test]
    fn between_batches_a_pinned_snapshot_does_not_change() {
        let advances = |action| {
            [Some((Held, action)), Some((Advanceable, action)), None, Some((Released, Action::Follow))]
        };
        for has_ddl in [false, true] {
            assert_row(Batch, ReadCommitted, has_ddl, advances(Action::Advance));
            assert_row(Batch, Serializable, has_ddl, advances(Action::AdvanceIfValid));
            assert_row(Batch, Snapshot, has_ddl, [None; 4]);
        }
    }

    #[test]
    fn a_lock_for_ddl_advances_only_a_snapshot_that_may_at_every_level() {
        for isolation in LEVELS {
            for has_ddl in [false, true] {
                assert_row(
                    DdlLock,
                    isolation,
                    has_ddl,
                    [None, Some((Advanceable, Action::Advance)), None, None],
                );
                let allowed = Some((Advanceable, Action::Keep));
                assert_row(AllowAdvance, isolation, has_ddl, [allowed, allowed, None, None]);
            }
        }
    }

    #[test]
    fn the_first_table_locks_renew_the_snapshot_at_every_level() {
        for isolation in LEVELS {
            for has_ddl in [false, true] {
                assert_row(Renew, isolation, has_ddl, advances(Action::Advance));
            }
        }
    }

    #[test]
    fn a_snapshot_is_released_unless_it_is_pinned_or_the_first_is_kept() {
        let released = Some((Released, Action::Release));
        for has_ddl in [false, true] {
            assert_row(Release, ReadCommitted, has_ddl, [released, released, None, None]);
            assert_row(Release, Serializable, has_ddl, [released, released, None, None]);
            assert_row(Release, Snapshot, has_ddl, [None; 4]);
        }
    }

    #[test]
    fn a_released_snapshot_is_acquired_again_and_pinning_acquires_one() {
        for isolation in LEVELS {
            for has_ddl in [false, true] {
                let acquired = Some((Held, Action::Acquire));
                assert_row(Acquire, isolation, has_ddl, [None, None, None, acquired]);
                let pinned = Some((Pinned, Action::Keep));
                let acquired = Some((Pinned, Action::Acquire));
                assert_row(Pin, isolation, has_ddl, [pinned, pinned, pinned, acquired]);
            }
        }
    }
}
