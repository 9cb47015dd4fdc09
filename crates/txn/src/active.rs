//! Who is running: the read time of every active transaction, and from them the horizon, the time
//! below which nobody reads.
//!
//! ```text
//! begin                                         collector
//! slot: idle → 0  (everything is needed)        now ← last commit
//! read time ← last commit                       horizon ← least of now and all slots
//! slot ← read time
//! ```
//! All in sequential order. If the collector saw the slot idle, its `now` was read before the slot
//! was taken, hence before the transaction's read time: the horizon is not above it.

use firn_base::sync::{AtomicU64, AtomicUsize, Ordering};
use firn_base::{Error, Result, Snapshot, SqlState, Stamp, Time};
use std::cell::Cell;

/// Transactions that can run at once.
const SLOTS: usize = 4096;
const SLOT_BITS: u32 = SLOTS.ilog2();
const IDLE: u64 = u64::MAX;

/// The running transactions.
pub(crate) struct ActiveSet {
    slots: Box<[Slot]>,
    /// Slots from here on were never used.
    used: AtomicUsize,
}

/// On a cache line of its own, since its transaction writes it at begin and end.
#[repr(align(64))]
struct Slot {
    read_time: AtomicU64,
    /// How many transactions have used the slot: makes their ids differ.
    uses: AtomicU64,
}

/// The right to be counted as running.
#[derive(Debug)]
pub(crate) struct ActiveSlot(usize);

thread_local! {
    /// The slot this thread's last transaction had; most likely idle again.
    static HINT: Cell<usize> = const { Cell::new(0) };
}

impl ActiveSet {
    pub fn new() -> ActiveSet {
        let slot = |_| Slot { read_time: AtomicU64::new(IDLE), uses: AtomicU64::new(0) };
        ActiveSet { slots: (0..SLOTS).map(slot).collect(), used: AtomicUsize::new(0) }
    }

    /// Counts a transaction that begins now; `last` is the newest published commit time.
    pub fn enter(&self, last: &AtomicU64) -> Result<(ActiveSlot, Snapshot)> {
        let hint = HINT.get();
        for offset in 0..SLOTS {
            let at = (hint + offset) % SLOTS;
            let slot = &self.slots[at];
            if slot.read_time.compare_exchange(IDLE, 0, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                continue;
            }
            if at >= self.used.load(Ordering::Relaxed) {
                // Before the read time is drawn, so that a collector that misses the slot has read
                // `last` earlier than this.
                self.used.fetch_max(at + 1, Ordering::SeqCst);
            }
            let read_time = last.load(Ordering::SeqCst);
            slot.read_time.store(read_time, Ordering::SeqCst);
            let uses = slot.uses.load(Ordering::Relaxed) + 1;
            slot.uses.store(uses, Ordering::Relaxed);
            HINT.set(at);
            let owner = Stamp::transaction(uses << SLOT_BITS | at as u64);
            return Ok((ActiveSlot(at), Snapshot { read_time: Time(read_time), owner }));
        }
        Err(Error::new(SqlState::TOO_MANY_CONNECTIONS, format!("more than {SLOTS} transactions are running"))
            .with_hint("End some of them, or run fewer at once."))
    }

    /// Moves a transaction on to the newest published commit.
    pub fn advance(&self, slot: &ActiveSlot, last: &AtomicU64) -> Time {
        let read_time = last.load(Ordering::SeqCst);
        self.slots[slot.0].read_time.store(read_time, Ordering::SeqCst);
        Time(read_time)
    }

    /// Counts a transaction off.
    pub fn leave(&self, slot: &ActiveSlot) {
        // Release: what it read comes before it is gone.
        self.slots[slot.0].read_time.store(IDLE, Ordering::Release);
    }

    /// The time at or before which nobody reads any more but the newest state: records with this
    /// stamp or an older one are needed by no active or future snapshot.
    pub fn horizon(&self, last: &AtomicU64) -> Time {
        let now = last.load(Ordering::SeqCst);
        Time(self.read_times().fold(now, u64::min))
    }

    /// The read times of all active transactions, ascending, and the time that those begun since
    /// read at least at.
    pub fn snapshot_times(&self, last: &AtomicU64) -> (Vec<Time>, Time) {
        let now = last.load(Ordering::SeqCst);
        let mut times: Vec<Time> = self.read_times().map(Time).collect();
        times.sort_unstable();
        (times, Time(now))
    }

    fn read_times(&self) -> impl Iterator<Item = u64> {
        let used = self.used.load(Ordering::SeqCst);
        self.slots[..used]
            .iter()
            .map(|slot| slot.read_time.load(Ordering::SeqCst))
            .filter(|time| *time != IDLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_is_the_oldest_read_time_or_now() {
        let last = AtomicU64::new(5);
        let active = ActiveSet::new();
        assert_eq!(active.horizon(&last), Time(5));
        let (first, snapshot) = active.enter(&last).unwrap();
        assert_eq!(snapshot.read_time, Time(5));
        last.store(9, Ordering::SeqCst);
        let (second, later) = active.enter(&last).unwrap();
        assert_ne!(snapshot.owner, later.owner);
        assert_eq!(active.horizon(&last), Time(5));
        assert_eq!(active.snapshot_times(&last), (vec![Time(5), Time(9)], Time(9)));
        active.leave(&first);
        assert_eq!(active.horizon(&last), Time(9));
        active.leave(&second);
        last.store(12, Ordering::SeqCst);
        assert_eq!(active.horizon(&last), Time(12));
    }
}
