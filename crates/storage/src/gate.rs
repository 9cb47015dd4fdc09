//! The gate of a table: transactions that write to it or lock its rows share it, and DDL and LOCK TABLE close it.

use firn_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Spread};
use firn_base::{Snapshot, Stamp, Time};

/// The right to write to a table, or to lock its rows. Transactions that do so share it; DDL closes it.
///
/// The sharers are counted in several counters, so that the writers of a table do not all write to the same
/// cache line. A transaction uses the counter that its stamp selects.
///
/// ```text
/// writer                        DDL
/// increment                     close
/// closed? then decrement        wait until all counters are 0
/// ```
/// With sequential consistency either the writer sees that the gate is closed, or DDL sees that the writer is
/// counted.
///
/// The gate may be closed to writers only, and several transactions may keep it closed together if none of
/// them writes. A locker that becomes a writer is counted all along. So a transaction that closes the gate to
/// all at once waits for it in either role, and does not prevent the change of role. A transaction that
/// closed the gate to writers before relies on there being none, and does prevent it.
#[derive(Default)]
pub struct Gate {
    /// Whether the gate is closed, at least to writers. Changes under the lock of `keepers`.
    closed: AtomicBool,
    /// Whether also to transactions that only lock rows. Likewise.
    closed_to_all: AtomicBool,
    keepers: Mutex<Keepers>,
    /// Snapshots older than this may no longer write: the definition of the table has changed since.
    changed_at: AtomicU64,
    sharers: Spread<Sharers>,
}

/// To which transactions a gate is closed; each value excludes more than the one before. None excludes
/// readers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Closed {
    /// To writers. Other transactions may close it in the same way: SQL's SHARE.
    #[default]
    Together,
    /// Also to other transactions that would close it: SHARE ROW EXCLUSIVE.
    ToWriters,
    /// Also to lockers: EXCLUSIVE, and changes of the table as a whole.
    ToAll,
}

/// The transactions that keep it closed, and the one that has the table's maintenance.
#[derive(Default)]
struct Keepers {
    all: Vec<Stamp>,
    /// How they keep it closed, if there are any.
    how: Closed,
    /// How they closed it at first.
    at_first: Closed,
    maintainer: Option<Stamp>,
}

#[derive(Default)]
struct Sharers {
    /// Their number: [`WRITER`] for each that writes, [`LOCKER`] for each that only locks rows.
    counts: AtomicU64,
    /// The newest commit among them that has changed something.
    written_at: AtomicU64,
}

const WRITER: u64 = 1;
const LOCKER: u64 = 1 << 32;

/// Later than any snapshot.
const RETIRED: u64 = u64::MAX;

impl Gate {
    fn sharers(&self, owner: Stamp) -> &Sharers {
        self.sharers.of(owner.sequence().expect("transactions write"))
    }

    /// Adds a transaction to the writers, if the gate is open.
    #[inline]
    pub fn try_join(&self, owner: Stamp) -> bool {
        let sharers = self.sharers(owner);
        sharers.counts.fetch_add(WRITER, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            sharers.counts.fetch_sub(WRITER, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Adds a transaction to the writers that alone keeps the gate closed.
    pub fn join_closed(&self, owner: Stamp) {
        debug_assert!(self.how_closed() > Some(Closed::Together) && self.closed_by() == [owner]);
        self.sharers(owner).counts.fetch_add(WRITER, Ordering::SeqCst);
    }

    /// Adds a transaction to the lockers, if the gate is open to them.
    pub fn try_join_lockers(&self, owner: Stamp) -> bool {
        let sharers = self.sharers(owner);
        sharers.counts.fetch_add(LOCKER, Ordering::SeqCst);
        if self.closed_to_all.load(Ordering::SeqCst) {
            sharers.counts.fetch_sub(LOCKER, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Adds a transaction to the lockers that alone keeps the gate closed.
    pub fn join_lockers_closed(&self, owner: Stamp) {
        debug_assert!(self.how_closed() == Some(Closed::ToAll) && self.closed_by() == [owner]);
        self.sharers(owner).counts.fetch_add(LOCKER, Ordering::SeqCst);
    }

    /// Makes a locker a writer, unless [another transaction](Gate::closed_to_write_too_by) prevents that.
    pub fn try_write_too(&self, owner: Stamp) -> bool {
        // First, as in `try_join`.
        self.write_too(owner);
        let is_open = !self.closed.load(Ordering::SeqCst) || self.closed_to_write_too_by().is_empty();
        if !is_open {
            self.sharers(owner).counts.fetch_add(LOCKER - WRITER, Ordering::SeqCst);
        }
        is_open
    }

    /// Counts a locker as a writer, which keeps the gate closed alone, or is about to [leave](Gate::leave).
    pub fn write_too(&self, owner: Stamp) {
        let before = self.sharers(owner).counts.fetch_sub(LOCKER - WRITER, Ordering::SeqCst);
        debug_assert!(before >= LOCKER, "the transaction is a locker");
    }

    /// Notes the time of a writer's commit that has changed something. The writer has not left yet, and no
    /// other can commit.
    #[inline]
    pub fn note_commit(&self, owner: Stamp, time: Time) {
        // Calls follow one another, so the times ascend.
        self.sharers(owner).written_at.store(time.0, Ordering::Release);
    }

    /// Removes a writer. After a commit this is called when the commit is published.
    #[inline]
    pub fn leave(&self, owner: Stamp) {
        self.sharers(owner).counts.fetch_sub(WRITER, Ordering::SeqCst);
    }

    /// Closes the gate for a transaction. Returns false if another one keeps it closed, unless both do so
    /// together.
    pub fn try_close(&self, owner: Stamp, how: Closed) -> bool {
        let mut keepers = self.keepers.lock();
        let may = keepers.all.is_empty() || keepers.how == Closed::Together && how == Closed::Together;
        if may {
            keepers.all.push(owner);
            keepers.at_first = how;
            self.set_how(&mut keepers, how);
            self.closed.store(true, Ordering::SeqCst);
        }
        may
    }

    /// Changes how a transaction keeps the gate closed. Returns false while other transactions keep it
    /// closed.
    pub fn try_keep(&self, owner: Stamp, how: Closed) -> bool {
        let mut keepers = self.keepers.lock();
        let may = keepers.all == [owner];
        if may {
            self.set_how(&mut keepers, how);
        }
        may
    }

    fn set_how(&self, keepers: &mut Keepers, how: Closed) {
        keepers.how = how;
        self.closed_to_all.store(how == Closed::ToAll, Ordering::SeqCst);
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The transactions that keep it closed, or are about to: they may still wait for writers to leave.
    pub fn closed_by(&self) -> Vec<Stamp> {
        self.keepers.lock().all.clone()
    }

    /// The transaction that keeps it closed to all, or is about to.
    pub fn closed_to_all_by(&self) -> Option<Stamp> {
        let keepers = self.keepers.lock();
        keepers.all.first().copied().filter(|_| keepers.how == Closed::ToAll)
    }

    /// The transactions that prevent a locker from becoming a writer: all that keep it closed, unless they
    /// have closed it to all at once. In that case the locker was there before, and they wait for it already.
    pub fn closed_to_write_too_by(&self) -> Vec<Stamp> {
        let keepers = self.keepers.lock();
        if keepers.at_first == Closed::ToAll { Vec::new() } else { keepers.all.clone() }
    }

    /// How it is closed, if it is.
    pub fn how_closed(&self) -> Option<Closed> {
        let keepers = self.keepers.lock();
        (!keepers.all.is_empty()).then_some(keepers.how)
    }

    /// Whether there are at most `own` writers and lockers. Stable only while it is closed to all.
    pub fn is_alone(&self, own: u64) -> bool {
        self.count(|counts| counts % LOCKER + counts / LOCKER) <= own
    }

    /// Whether there are at most `own` writers. Stable only while it is closed.
    pub fn is_unwritten(&self, own: u64) -> bool {
        self.count(|counts| counts % LOCKER) <= own
    }

    fn count(&self, part: impl Fn(u64) -> u64) -> u64 {
        self.sharers.iter().map(|sharers| part(sharers.counts.load(Ordering::SeqCst))).sum()
    }

    /// Ends a transaction's closing of the gate. It is open again unless other transactions keep it closed.
    pub fn open(&self, owner: Stamp) {
        let mut keepers = self.keepers.lock();
        keepers.all.retain(|keeper| *keeper != owner);
        if keepers.all.is_empty() {
            self.set_how(&mut keepers, Closed::Together);
            self.closed.store(false, Ordering::SeqCst);
        }
    }

    /// Gives a transaction the table's maintenance, SQL's SHARE UPDATE EXCLUSIVE, which one transaction at a
    /// time can have. Returns false if another one has it. To exclude further transactions it joins the
    /// writers.
    pub fn try_maintain(&self, owner: Stamp) -> bool {
        let mut keepers = self.keepers.lock();
        *keepers.maintainer.get_or_insert(owner) == owner
    }

    /// The transaction that has the maintenance.
    pub fn maintained_by(&self) -> Option<Stamp> {
        self.keepers.lock().maintainer
    }

    /// Ends a transaction's maintenance.
    pub fn end_maintenance(&self, owner: Stamp) {
        let ended = self.keepers.lock().maintainer.take();
        debug_assert!(ended == Some(owner));
    }

    /// From now on only snapshots that read at `time` or later may write.
    pub fn set_changed_at(&self, time: Time) {
        // A dropped table remains retired.
        self.changed_at.fetch_max(time.0, Ordering::AcqRel);
    }

    /// From now on no transaction may write: the table is dropped, or its rows are elsewhere.
    pub fn retire(&self) {
        self.changed_at.store(RETIRED, Ordering::Release);
    }

    /// Whether it is retired.
    pub fn is_retired(&self) -> bool {
        self.changed_at.load(Ordering::Acquire) == RETIRED
    }

    /// Whether a snapshot may write.
    #[inline]
    pub fn admits(&self, snapshot: Snapshot) -> bool {
        snapshot.read_time.0 >= self.changed_at.load(Ordering::Acquire)
    }

    /// Whether a snapshot sees everything committed to the table. Stable only while it is closed, or no
    /// commit is possible.
    pub fn is_current(&self, snapshot: Snapshot) -> bool {
        let read_time = snapshot.read_time.0;
        self.sharers.iter().all(|sharers| read_time >= sharers.written_at.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::thread::{scope, spawn_scoped, yield_now};

    #[test]
    fn there_is_no_writer_while_the_gate_is_closed() {
        let gate = Gate::default();
        let inside = AtomicU64::new(0);
        let done = AtomicBool::new(false);
        scope(|scope| {
            for number in 0..3 {
                let (gate, inside, done) = (&gate, &inside, &done);
                spawn_scoped(scope, "writer", move || {
                    let owner = Stamp::transaction(number * 5);
                    let mut joined = 0;
                    while !done.load(Ordering::Relaxed) || joined == 0 {
                        if gate.try_join(owner) {
                            joined += 1;
                            inside.fetch_add(1, Ordering::Relaxed);
                            yield_now();
                            inside.fetch_sub(1, Ordering::Relaxed);
                            gate.leave(owner);
                        }
                    }
                });
            }
            let (own, other) = (Stamp::transaction(1), Stamp::transaction(2));
            for _ in 0..50 {
                assert!(gate.try_close(own, Closed::ToAll) && !gate.try_close(other, Closed::ToAll));
                assert!(!gate.try_close(other, Closed::Together) && !gate.try_close(own, Closed::ToWriters));
                assert_eq!(gate.closed_by(), [own]);
                while !gate.is_alone(0) {
                    yield_now();
                }
                assert_eq!(inside.load(Ordering::Relaxed), 0);
                gate.open(own);
                assert_eq!(gate.closed_by(), []);
                yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn several_keep_it_closed_together_until_the_last_opens_it_or_has_it_alone() {
        let gate = Gate::default();
        let [one, other, writer] = [1, 2, 3].map(Stamp::transaction);
        assert!(gate.try_close(one, Closed::Together) && gate.try_close(other, Closed::Together));
        assert!(!gate.try_close(writer, Closed::ToWriters) && !gate.try_keep(one, Closed::ToWriters));
        assert_eq!(gate.how_closed(), Some(Closed::Together));
        gate.open(one);
        assert!(!gate.try_join(writer));
        assert_eq!(gate.closed_by(), [other]);
        assert!(gate.try_keep(other, Closed::ToWriters) && !gate.try_close(one, Closed::Together));
        assert_eq!(gate.how_closed(), Some(Closed::ToWriters));
        gate.join_closed(other);
        gate.leave(other);
        gate.open(other);
        assert_eq!(gate.how_closed(), None);
        assert!(!gate.is_closed() && gate.try_join(writer));
    }

    #[test]
    fn lockers_are_excluded_only_while_the_gate_is_closed_to_all() {
        let gate = Gate::default();
        // The first two have the same counter.
        let [locker, other, keeper] = [1, 17, 2].map(Stamp::transaction);
        assert!(gate.try_join_lockers(locker) && gate.try_join(other));
        for how in [Closed::Together, Closed::ToWriters] {
            assert!(gate.try_close(keeper, how) && gate.closed_to_all_by().is_none());
            assert!(!gate.is_unwritten(0) && gate.is_unwritten(1) && !gate.is_alone(1) && gate.is_alone(2));
            assert!(!gate.try_write_too(locker));
            gate.open(keeper);
        }
        gate.leave(other);
        assert!(gate.try_close(keeper, Closed::Together) && gate.is_unwritten(0) && !gate.is_alone(0));
        assert!(gate.try_join_lockers(other));
        assert!(gate.try_keep(keeper, Closed::ToAll));
        assert_eq!(gate.closed_to_all_by(), Some(keeper));
        assert!(!gate.try_join_lockers(Stamp::transaction(3)) && !gate.is_alone(1));
        // The keeper relies on there being no writer.
        assert!(!gate.try_write_too(locker) && gate.closed_to_write_too_by() == [keeper]);
        // It did not get it, and returns to what it had.
        assert!(gate.try_keep(keeper, Closed::Together) && gate.closed_to_all_by().is_none());
        gate.write_too(other);
        gate.leave(other);
        assert!(gate.try_keep(keeper, Closed::ToAll) && gate.is_alone(1));
        gate.join_lockers_closed(keeper);
        gate.write_too(keeper);
        gate.leave(keeper);
        gate.open(keeper);
        // A transaction that closes it to all at once waits for the present ones in either role.
        assert!(gate.try_close(keeper, Closed::ToAll) && gate.closed_to_write_too_by().is_empty());
        assert!(!gate.try_join(other) && !gate.is_alone(0));
        assert!(gate.try_write_too(locker) && !gate.is_alone(0));
        gate.open(keeper);
        assert!(!gate.is_unwritten(0));
        gate.leave(locker);
        assert!(gate.is_alone(0));
    }

    #[test]
    fn one_at_a_time_has_the_maintenance() {
        let gate = Gate::default();
        let [one, other] = [1, 2].map(Stamp::transaction);
        assert!(gate.try_maintain(one) && gate.try_maintain(one) && !gate.try_maintain(other));
        assert_eq!(gate.maintained_by(), Some(one));
        gate.end_maintenance(one);
        assert!(gate.try_maintain(other));
        gate.end_maintenance(other);
        assert_eq!(gate.maintained_by(), None);
    }

    #[test]
    fn the_newest_commit_of_all_places_counts() {
        let gate = Gate::default();
        for (owner, time) in [(1, 5), (2, 7), (1, 6)] {
            assert!(gate.try_join(Stamp::transaction(owner)));
            gate.note_commit(Stamp::transaction(owner), Time(time));
            gate.leave(Stamp::transaction(owner));
        }
        let at = |time| Snapshot { read_time: Time(time), owner: Stamp::transaction(3) };
        assert!(gate.is_current(at(7)) && !gate.is_current(at(6)));
    }
}
