//! The gate of a table: transactions that write to it share it, and DDL closes it.

use firn_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Spread};
use firn_base::{Snapshot, Stamp, Time};

/// The right to write to a table. Transactions that write share it; DDL keeps it closed.
///
/// The sharers are counted in several places, lest all who write to a table write to the same line of memory: each
/// in that of its stamp.
///
/// ```text
/// writer                        DDL
/// count one more                close
/// closed? then one less         wait until all counts are 0
/// ```
/// In sequential order: either the writer sees that it is closed, or DDL sees that it is counted.
///
/// Several may keep it closed together, if none of them writes.
#[derive(Default)]
pub struct Gate {
    /// Whether somebody keeps it closed. Changes under the lock of `keepers`.
    closed: AtomicBool,
    keepers: Mutex<Keepers>,
    /// Snapshots older than this may no longer write: the table has changed its shape since.
    changed_at: AtomicU64,
    sharers: Spread<Sharers>,
}

/// Who keeps it closed.
#[derive(Default)]
struct Keepers {
    all: Vec<Stamp>,
    /// Whether others may do so as well.
    together: bool,
}

#[derive(Default)]
struct Sharers {
    /// How many there are.
    count: AtomicU64,
    /// The newest commit of one of them.
    written_at: AtomicU64,
}

/// Later than any snapshot.
const RETIRED: u64 = u64::MAX;

impl Gate {
    fn sharers(&self, owner: Stamp) -> &Sharers {
        self.sharers.of(owner.sequence().expect("transactions write"))
    }

    /// Has a transaction join the writers, if the gate is open.
    #[inline]
    pub fn try_join(&self, owner: Stamp) -> bool {
        let sharers = self.sharers(owner);
        sharers.count.fetch_add(1, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            sharers.count.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Joins the writers as the one who keeps the gate closed alone.
    pub fn join_closed(&self, owner: Stamp) {
        debug_assert!(!self.is_shared() && self.closed_by() == [owner]);
        self.sharers(owner).count.fetch_add(1, Ordering::SeqCst);
    }

    /// A commit of one of the writers tells its time, before it leaves, while nobody else can commit.
    #[inline]
    pub fn note_commit(&self, owner: Stamp, time: Time) {
        // Of one after the other: they ascend.
        self.sharers(owner).written_at.store(time.0, Ordering::Release);
    }

    /// Leaves the writers. A commit does so after it was published.
    #[inline]
    pub fn leave(&self, owner: Stamp) {
        self.sharers(owner).count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Has a transaction keep new writers out; false if somebody already does, unless both do so `together` with others.
    pub fn try_close(&self, owner: Stamp, together: bool) -> bool {
        let mut keepers = self.keepers.lock();
        let may = keepers.all.is_empty() || keepers.together && together;
        if may {
            keepers.all.push(owner);
            keepers.together = together;
            self.closed.store(true, Ordering::SeqCst);
        }
        may
    }

    /// Has one who keeps it closed do so alone from now on; false as long as others do.
    pub fn try_keep_alone(&self, owner: Stamp) -> bool {
        let mut keepers = self.keepers.lock();
        let may = keepers.all == [owner];
        keepers.together &= !may;
        may
    }

    /// Whether somebody keeps it closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The transactions that keep it closed, or are about to: they may yet wait for writers to leave.
    pub fn closed_by(&self) -> Vec<Stamp> {
        self.keepers.lock().all.clone()
    }

    /// Whether others may keep it closed together with those who do.
    pub fn is_shared(&self) -> bool {
        self.keepers.lock().together
    }

    /// Whether at most `own` writers are left. Sure only while it is closed.
    pub fn is_alone(&self, own: u64) -> bool {
        self.sharers.iter().map(|sharers| sharers.count.load(Ordering::SeqCst)).sum::<u64>() <= own
    }

    /// Has a transaction keep it closed no more, which lets writers in again, unless others do.
    pub fn open(&self, owner: Stamp) {
        let mut keepers = self.keepers.lock();
        keepers.all.retain(|keeper| *keeper != owner);
        if keepers.all.is_empty() {
            keepers.together = false;
            self.closed.store(false, Ordering::SeqCst);
        }
    }

    /// From now on only snapshots that read at `time` or later may write.
    pub fn set_changed_at(&self, time: Time) {
        // A table that is gone stays so.
        self.changed_at.fetch_max(time.0, Ordering::AcqRel);
    }

    /// From now on nobody may write: the table is gone, or its rows are elsewhere.
    pub fn retire(&self) {
        self.changed_at.store(RETIRED, Ordering::Release);
    }

    /// Whether that has happened.
    pub fn is_retired(&self) -> bool {
        self.changed_at.load(Ordering::Acquire) == RETIRED
    }

    /// Whether a snapshot may write.
    #[inline]
    pub fn admits(&self, snapshot: Snapshot) -> bool {
        snapshot.read_time.0 >= self.changed_at.load(Ordering::Acquire)
    }

    /// Whether a snapshot sees everything committed to the table. Sure only while it is closed, or nobody can commit.
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
    fn nobody_writes_while_who_has_closed_it_is_alone() {
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
                assert!(gate.try_close(own, false) && !gate.try_close(other, false));
                assert!(!gate.try_close(other, true) && !gate.try_close(own, false));
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
        assert!(gate.try_close(one, true) && gate.try_close(other, true) && !gate.try_close(writer, false));
        assert!(gate.is_shared() && !gate.try_keep_alone(one));
        gate.open(one);
        assert!(!gate.try_join(writer));
        assert_eq!(gate.closed_by(), [other]);
        assert!(gate.try_keep_alone(other) && !gate.is_shared() && !gate.try_close(one, true));
        gate.join_closed(other);
        gate.leave(other);
        gate.open(other);
        assert!(!gate.is_closed() && gate.try_join(writer));
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
