//! Counters of an engine since it was opened, and the transactions that run in it.
//!
//! A transaction that succeeds pays no more than an addition to memory that is mostly in its cache: ends are
//! counted in several places, beginnings in the transaction's own slot. Errors and waits are counted by shared
//! counters, since they cost much more anyway.

use crate::isolation::Isolation;
use crate::waits::Want;
use firn_base::sync::{AtomicU64, Mutex, Ordering, Spread};
use firn_base::{Error, SqlState, TableId, Time};
use std::time::Duration;

/// Upper bounds of the classes of commit latencies: powers of two in microseconds. Longer latencies than the last bound are in a
/// class of their own.
const LATENCY_CLASSES: usize = 25;

/// A counter shared by all threads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    #[cold]
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter with several parts, for events of every transaction.
#[derive(Debug, Default)]
pub struct Ends(Spread<AtomicU64>);

impl Ends {
    /// Adds one, for the transaction of that number.
    #[inline]
    pub(crate) fn count(&self, number: u64) {
        self.0.of(number).fetch_add(1, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Counters of an engine.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Transactions that had written and have committed.
    pub commits: Ends,
    /// Transactions that had written and were rolled back.
    pub rollbacks: Ends,
    /// Conflicts: changes of a row that another transaction was changing, or had changed since the snapshot. After most
    /// the transaction waits, or advances its snapshot.
    pub write_conflicts: Counter,
    /// Validations that found a change of what was read: the transaction failed (40001), or could not advance its snapshot.
    pub validation_failures: Counter,
    /// Waits for the end of another transaction.
    pub waits: Counter,
    /// Deadlocks (40P01).
    pub deadlocks: Counter,
    /// Statements that waited for longer than `lock_timeout` (55P03).
    pub lock_timeouts: Counter,
    /// Keys that were found taken (23505).
    pub unique_violations: Counter,
    /// Statements for which there was no memory (53200).
    pub out_of_memory: Counter,
    /// Statements that were run again after a conflict.
    pub restarts: Counter,
    /// Queries whose rows a replica has computed.
    pub routed: Counter,
    /// Queries that were handed to a replica, and run here after all.
    pub routed_back: Counter,
    /// Plans that were optimised.
    pub plans: Counter,
    /// Blocks that were idle for too long (25P03).
    pub idle_timeouts: Counter,
    /// Checkpoints written.
    pub checkpoints: Counter,
    latencies: [AtomicU64; LATENCY_CLASSES + 1],
    aborts: Mutex<Vec<(Abort, u64)>>,
}

/// Why a transaction was rolled back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abort {
    /// Its isolation level.
    pub isolation: Isolation,
    /// The error's SQLSTATE; `None` if the client or the program requested the rollback.
    pub state: Option<SqlState>,
    /// For 40001: whether what it had read had changed, and not what it was about to change.
    pub is_of_reads: bool,
}

impl Statistics {
    /// Counts a transaction that was rolled back, because of an error or on request.
    #[cold]
    pub fn note_abort(&self, isolation: Isolation, error: Option<&Error>) {
        let is_of_reads = error.is_some_and(Error::is_read_conflict);
        let abort = Abort { isolation, state: error.map(Error::state), is_of_reads };
        let mut aborts = self.aborts.lock();
        match aborts.iter_mut().find(|(known, _)| *known == abort) {
            Some((_, count)) => *count += 1,
            None => aborts.push((abort, 1)),
        }
    }

    /// How many transactions were rolled back, by cause.
    pub fn aborts(&self) -> Vec<(Abort, u64)> {
        self.aborts.lock().clone()
    }

    /// Counts the latency of a commit, until it was on disk if its client waited for that.
    pub fn note_latency(&self, taken: Duration) {
        let micros = taken.as_micros().clamp(1, u128::from(u64::MAX)) as u64;
        let class = micros.next_power_of_two().ilog2() as usize;
        self.latencies[class.min(LATENCY_CLASSES)].fetch_add(1, Ordering::Relaxed);
    }

    /// The classes of latencies: the upper bound in microseconds, `None` for the last, and the number of commits.
    pub fn latencies(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.latencies.iter().enumerate().map(|(class, count)| {
            ((class < LATENCY_CLASSES).then_some(1 << class), count.load(Ordering::Relaxed))
        })
    }
}

/// A running transaction, as [`Engine::running`](crate::Engine::running) lists it.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its number, by which `waits_for` names it.
    pub id: u64,
    /// The id of its session; 0 for transactions of the engine and of programs that use no SQL.
    pub session: u32,
    /// Its isolation level.
    pub isolation: Isolation,
    /// How long it has run, to some hundredths of a second.
    pub age: Duration,
    /// The time of its snapshot.
    pub read_time: Time,
    /// How many commits came after its snapshot.
    pub commits_behind: u64,
    /// Whether it has begun to write.
    pub writes: bool,
    /// Undo records that it had written when it began or ended its last statement.
    pub records: u64,
    /// The transactions that it waits for: several if it waits for all that write to a table or lock rows of it, or for all that
    /// have locked a table together.
    pub waits_for: Vec<u64>,
    /// What it waits for, if that is not a row.
    pub wants: Option<Want>,
    /// The tables whose writers it has joined: it has changed rows there, or is about to.
    pub writes_to: Vec<TableId>,
    /// The tables whose rows it has locked, or is about to; it may also write there by now.
    pub locks_in: Vec<TableId>,
}

/// A lock of a whole table, or of the catalog, that a transaction holds or waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableLock {
    /// The number of the transaction.
    pub transaction: u64,
    /// The id of its session.
    pub session: u32,
    /// `None` for the catalog.
    pub table: Option<TableId>,
    /// The mode of the lock.
    pub mode: TableLockMode,
    /// Whether the transaction holds the lock.
    pub is_granted: bool,
}

/// The mode of a lock of a whole table. The comments list the conflicting transactions; no mode excludes readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableLockMode {
    /// Conflicts with those that hold the table alone.
    LockingRows,
    /// Conflicts with those that share the table, exclude writers, or hold it alone.
    Writing,
    /// Conflicts with the same, and with its own mode.
    Maintaining,
    /// Conflicts with those that write to or maintain the table, exclude writers, or hold it alone.
    Sharing,
    /// Conflicts with all but those that lock rows.
    WritingAlone,
    /// Conflicts with all that write to the table, lock rows of it, or lock it.
    Alone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_the_first_class_that_is_not_too_small() {
        let statistics = Statistics::default();
        for micros in [0, 1, 2, 3, 1000, 1 << 30] {
            statistics.note_latency(Duration::from_micros(micros));
        }
        let counted: Vec<_> = statistics.latencies().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(Some(1), 2), (Some(2), 1), (Some(4), 1), (Some(1024), 1), (None, 1)]);
    }
}
