//! The gate of a table: transactions that write to it share it, and DDL closes it.

use firn_base::sync::{AtomicU64, Ordering, Spread};
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
#[derive(Default)]
pub struct Gate {
    /// The stamp of the transaction that keeps it closed, or 0.
    closed_by: AtomicU64,
    /// Snapshots older than this may no longer write: the table has changed its shape since.
    changed_at: AtomicU64,
    sharers: Spread<Sharers>,
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
        if self.closed_by.load(Ordering::SeqCst) != 0 {
            sharers.count.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Joins the writers as the one who keeps the gate closed.
    pub fn join_closed(&self, owner: Stamp) {
        debug_assert!(self.closed_by() == Some(owner));
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

    /// Has a transaction keep new writers out; false if somebody already does.
    pub fn try_close(&self, owner: Stamp) -> bool {
        self.closed_by.compare_exchange(0, owner.to_bits(), Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The transaction that keeps it closed, or is about to: it may yet wait for writers to leave.
    pub fn closed_by(&self) -> Option<Stamp> {
        Some(self.closed_by.load(Ordering::SeqCst)).filter(|bits| *bits != 0).map(Stamp::from_bits)
    }

    /// Whether at most `own` writers are left. Sure only while it is closed.
    pub fn is_alone(&self, own: u64) -> bool {
        self.sharers.iter().map(|sharers| sharers.count.load(Ordering::SeqCst)).sum::<u64>() <= own
    }

    /// Lets writers in again.
    pub fn open(&self) {
        self.closed_by.store(0, Ordering::SeqCst);
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
    use firn_base::sync::AtomicBool;
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
                assert!(gate.try_close(own) && !gate.try_close(other) && !gate.try_close(own));
                assert_eq!(gate.closed_by(), Some(own));
                while !gate.is_alone(0) {
                    yield_now();
                }
                assert_eq!(inside.load(Ordering::Relaxed), 0);
                gate.open();
                assert_eq!(gate.closed_by(), None);
                yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
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
