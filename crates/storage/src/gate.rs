//! The gate of a table: transactions that write to it share it, and DDL closes it.

use firn_base::sync::{AtomicU64, Ordering};
use firn_base::{Snapshot, Time};

/// The right to write to a table. Transactions that write share it; DDL keeps it closed.
///
/// The lowest 32 bits of `state` count the sharers, the highest bit says that it is closed.
#[derive(Default)]
pub struct Gate {
    state: AtomicU64,
    /// Snapshots older than this may no longer write: the table has changed its shape since.
    changed_at: AtomicU64,
    /// The newest commit that wrote to the table.
    written_at: AtomicU64,
}

const CLOSED: u64 = 1 << 63;
/// Later than any snapshot.
const RETIRED: u64 = u64::MAX;

impl Gate {
    /// Joins the writers, if the gate is open.
    #[inline]
    pub fn try_join(&self) -> bool {
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        if before & CLOSED != 0 {
            self.state.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// Joins the writers as the one who keeps the gate closed.
    pub fn join_closed(&self) {
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before & CLOSED != 0);
    }

    /// Leaves the writers. A commit tells its time, after it was published.
    #[inline]
    pub fn leave(&self, written_at: Option<Time>) {
        if let Some(time) = written_at {
            self.written_at.fetch_max(time.0, Ordering::AcqRel);
        }
        self.state.fetch_sub(1, Ordering::AcqRel);
    }

    /// Keeps new writers out; false if somebody else already does.
    pub fn try_close(&self) -> bool {
        self.state.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0
    }

    /// Whether at most `own` writers are left.
    pub fn is_alone(&self, own: u64) -> bool {
        self.state.load(Ordering::Acquire) & !CLOSED <= own
    }

    /// Lets writers in again.
    pub fn open(&self) {
        self.state.fetch_and(!CLOSED, Ordering::AcqRel);
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

    /// Whether a snapshot sees everything committed to the table. Sure only while it is closed.
    pub fn is_current(&self, snapshot: Snapshot) -> bool {
        snapshot.read_time.0 >= self.written_at.load(Ordering::Acquire)
    }
}
