//! What has happened in an engine since it was opened, and what is running in it.
//!
//! Nothing here costs a transaction that goes well more than an addition to memory that it has mostly at hand:
//! ends are counted in several places, beginnings in the transaction's own slot. What goes
//! wrong, and whoever waits, can afford a shared counter.

use crate::isolation::Isolation;
use crate::waits::Want;
use firn_base::sync::{AtomicU64, Mutex, Ordering, Spread};
use firn_base::{Error, SqlState, TableId, Time};
use std::time::Duration;

/// Upper bounds of the classes of commit latencies: powers of two in microseconds; what takes longer than
/// the last is in a class of its own.
const LATENCY_CLASSES: usize = 25;

/// A counter that several threads add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    #[cold]
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter that every transaction adds to.
#[derive(Debug, Default)]
pub struct Ends(Spread<AtomicU64>);

impl Ends {
    /// One more, of the transaction of that number.
    #[inline]
    pub(crate) fn count(&self, number: u64) {
        self.0.of(number).fetch_add(1, Ordering::Relaxed);
    }

    /// How many.
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
    /// Changes that met a row which another transaction was changing, or had changed since the snapshot. Most
    /// are waited for, or the transaction moves on.
    pub write_conflicts: Counter,
    /// Validations that found that what was read has changed: of transactions that fail then (40001), or stay where they are
    /// although they would rather move on.
    pub validation_failures: Counter,
    /// Times that a transaction waited for another's end.
    pub waits: Counter,
    /// Rings of transactions that waited for each other (40P01).
    pub deadlocks: Counter,
    /// Statements that waited for longer than `lock_timeout` (55P03).
    pub lock_timeouts: Counter,
    /// Keys that were found taken (23505).
    pub unique_violations: Counter,
    /// Statements that there was no memory for (53200).
    pub out_of_memory: Counter,
    /// Statements that were run once more after a conflict.
    pub restarts: Counter,
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
    /// What it was kept apart from.
    pub isolation: Isolation,
    /// Of which error; `None` if its client, or whoever ran it, asked for it.
    pub state: Option<SqlState>,
    /// Whether what it had read had changed, if that is 40001; else what it was to change had.
    pub is_of_reads: bool,
}

impl Statistics {
    /// A transaction was rolled back, for an error or because it was to be.
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

    /// How many transactions were rolled back, by what for.
    pub fn aborts(&self) -> Vec<(Abort, u64)> {
        self.aborts.lock().clone()
    }

    /// A commit took so long, until it was on disk if somebody waited for that.
    pub fn note_latency(&self, taken: Duration) {
        let micros = taken.as_micros().clamp(1, u128::from(u64::MAX)) as u64;
        let class = micros.next_power_of_two().ilog2() as usize;
        self.latencies[class.min(LATENCY_CLASSES)].fetch_add(1, Ordering::Relaxed);
    }

    /// Every class of latencies: its upper bound in microseconds, `None` for the last, and how many
    /// commits took so long.
    pub fn latencies(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.latencies.iter().enumerate().map(|(class, count)| {
            ((class < LATENCY_CLASSES).then_some(1 << class), count.load(Ordering::Relaxed))
        })
    }
}

/// A running transaction, as others see it.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its number, by which others name it that wait for it.
    pub id: u64,
    /// The session that it is of, as that says; 0 for the engine's own and for programs below SQL.
    pub session: u32,
    /// What it is kept apart from.
    pub isolation: Isolation,
    /// Since when it runs, to some hundredths of a second.
    pub age: Duration,
    /// What it reads.
    pub read_time: Time,
    /// How many commits came after that.
    pub commits_behind: u64,
    /// Whether it has begun to write.
    pub writes: bool,
    /// Undo records that it had written when it began or ended its last statement.
    pub records: u64,
    /// The transactions that it waits for: one, unless it waits for all who write to a table or lock rows there to end, or have locked one
    /// together.
    pub waits_for: Vec<u64>,
    /// What it waits for if that is not a row.
    pub wants: Option<Want>,
    /// The tables whose writers it has joined, since it has changed rows there, or may.
    pub writes_to: Vec<TableId>,
    /// The tables where it has locked rows, or may; it may have come to write there as well.
    pub locks_in: Vec<TableId>,
}

/// A lock of a whole table, or of the catalog, that a transaction has or waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableLock {
    /// The number of the transaction.
    pub transaction: u64,
    /// The session that it is of.
    pub session: u32,
    /// `None` for the catalog.
    pub table: Option<TableId>,
    /// What it lets others do.
    pub mode: TableLockMode,
    /// Whether it has it.
    pub is_granted: bool,
}

/// Whom a lock of a whole table keeps out. Nobody is kept from reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableLockMode {
    /// Those who have it alone.
    LockingRows,
    /// Those who share it, let nobody else write, or have it alone.
    Writing,
    /// The same, and those who would do likewise.
    Maintaining,
    /// Those who write there or maintain it, let nobody else write, or have it alone.
    Sharing,
    /// All but those who lock rows: nobody else writes.
    WritingAlone,
    /// All who write there, lock rows, or lock it.
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
