//! How much memory the store of a database holds, by purpose, and its limit.
//!
//! Counted is what there can be much of, in large units and never by the row: blocks, their chain heads,
//! strings, nodes of indexes, undo records, and what running transactions have written so far. Transactions
//! that end report their undo records, each in one of several counters; the collector reports those that it
//! frees.
//!
//! Not everything is counted, and the store is not alone in its process. So if there is a limit, the store
//! does not grow either when the process as a whole comes near its own limit ([`memory::left`]).
//!
//! The limit is enforced where the store grows: no block is made that would exceed it, and above it no write
//! that needs memory is admitted. A share of it is [reserved for undo records](KEPT_FROM_ROWS), so that rows
//! of a full store can still be changed. A delete is always possible while the process has memory left.

use crate::region;
use firn_base::sync::{Apart, Arc, AtomicI64, AtomicU8, AtomicU64, Ordering, Spread};
use firn_base::{Error, Result, SqlState, memory};

/// One byte in this many is for undo records alone.
const KEPT_FROM_ROWS: u64 = 32;

/// What memory is held for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// Blocks.
    Rows,
    /// Strings too long for their column.
    Strings,
    /// Heads of version chains.
    Heads,
    /// Nodes of indexes.
    Indexes,
    /// What running transactions have written so far: undo records, and images for the log. Small ones are
    /// not counted.
    Unfinished,
}

const KINDS: usize = 5;

/// Counts memory as long as this value lives.
pub struct Counted {
    what: Held,
    bytes: usize,
    budget: Arc<MemoryBudget>,
}

impl Counted {
    /// Counts this much more.
    pub fn new(what: Held, bytes: usize, budget: &Arc<MemoryBudget>) -> Counted {
        budget.add(what, bytes as i64);
        Counted { what, bytes, budget: budget.clone() }
    }

    /// How much.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts so much from now on.
    pub fn set(&mut self, bytes: usize) {
        self.budget.add(self.what, bytes as i64 - self.bytes as i64);
        self.bytes = bytes;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.add(self.what, -(self.bytes as i64));
    }
}

/// How near the limit is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pressure {
    /// There is room.
    None = 0,
    /// There is no room for another block or for strings.
    Rows = 1,
    /// There is no room for anything.
    All = 2,
}

impl Pressure {
    #[inline]
    fn of(kept: &AtomicU8) -> Pressure {
        match kept.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::Rows,
            _ => Pressure::All,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: u64,
    pressure: AtomicU8,
    /// The same for the process as a whole, when it was last checked.
    pressure_of_process: AtomicU8,
    /// Bytes of the largest block that any table has.
    largest_block: AtomicU64,
    held: Apart<[AtomicI64; KINDS]>,
    /// Undo records of transactions that have ended, since the database was opened.
    retired: Spread<Tally>,
    /// Those of them that were freed, as reported by the collector.
    collected: Apart<Tally>,
}

/// Undo records and their bytes.
#[derive(Debug, Default)]
struct Tally {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    #[inline]
    fn add(&self, records: i64, bytes: i64) {
        self.records.fetch_add(records as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Default for MemoryBudget {
    fn default() -> MemoryBudget {
        MemoryBudget::new(None)
    }
}

impl MemoryBudget {
    /// A budget with a limit in bytes, or without one.
    pub fn new(limit: Option<u64>) -> MemoryBudget {
        MemoryBudget {
            limit: limit.unwrap_or(u64::MAX),
            pressure: AtomicU8::new(Pressure::None as u8),
            pressure_of_process: AtomicU8::new(Pressure::None as u8),
            largest_block: AtomicU64::new(0),
            held: Apart::default(),
            retired: Spread::default(),
            collected: Apart::default(),
        }
    }

    /// Bytes that the store may hold.
    pub fn limit(&self) -> Option<u64> {
        (self.limit < u64::MAX).then_some(self.limit)
    }

    /// Bytes held for a purpose.
    pub fn held(&self, what: Held) -> u64 {
        self.held.0[what as usize].load(Ordering::Relaxed).max(0) as u64
    }

    /// Undo records of ended transactions which a snapshot may still need, and their bytes.
    pub fn undo(&self) -> (u64, u64) {
        // In this order: what is collected was retired before. Records that moved to the attic may have been
        // subtracted and added again meanwhile, so the difference may be below zero.
        let (freed, freed_bytes) = (
            self.collected.0.records.load(Ordering::Acquire),
            self.collected.0.bytes.load(Ordering::Acquire),
        );
        let left = |of: fn(&Tally) -> &AtomicU64, freed| {
            let all = self.retired.iter().map(|tally| of(tally).load(Ordering::Acquire));
            (all.fold(0, u64::wrapping_add).wrapping_sub(freed) as i64).max(0) as u64
        };
        (left(|tally| &tally.records, freed), left(|tally| &tally.bytes, freed_bytes))
    }

    /// All bytes held.
    pub fn total(&self) -> u64 {
        let held: i64 = self.held.0.iter().map(|held| held.load(Ordering::Relaxed)).sum();
        held.max(0) as u64 + self.undo().1
    }

    /// How near the limit is.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        Pressure::of(&self.pressure)
    }

    /// The same for the process as a whole, when it was last checked. There other memory than the store's
    /// counts, too.
    pub fn pressure_of_process(&self) -> Pressure {
        Pressure::of(&self.pressure_of_process)
    }

    /// Computes the pressure anew, after memory was allocated or freed.
    pub fn reconsider(&self) {
        if self.limit == u64::MAX {
            return;
        }
        let total = self.total();
        let pressure = if total > self.limit {
            Pressure::All
        } else if total + self.largest_block.load(Ordering::Relaxed) > self.for_rows() {
            Pressure::Rows
        } else {
            Pressure::None
        };
        let pressure = (pressure as u8).max(self.pressure_of_process.load(Ordering::Relaxed));
        self.pressure.store(pressure, Ordering::Relaxed);
    }

    /// As [`MemoryBudget::reconsider`], and checks the process as a whole.
    pub fn look_around(&self) {
        if self.limit == u64::MAX {
            return;
        }
        let block = self.largest_block.load(Ordering::Relaxed);
        let mut left = memory::left_for(block);
        if left < block as i64 {
            left = left.saturating_add(region::kept_bytes() as i64);
        }
        let pressure = if left < -(memory::margin() as i64 / 2) {
            Pressure::All
        } else if left < block as i64 {
            Pressure::Rows
        } else {
            Pressure::None
        };
        self.pressure_of_process.store(pressure as u8, Ordering::Relaxed);
        self.reconsider();
    }

    fn for_rows(&self) -> u64 {
        self.limit - self.limit / KEPT_FROM_ROWS
    }

    /// Notes the size of blocks that will be made.
    pub(crate) fn expect_blocks(&self, bytes: usize) {
        self.largest_block.fetch_max(bytes as u64, Ordering::Relaxed);
        self.reconsider();
    }

    /// Whether there is room for more rows or an index; otherwise 53200, saying what it was wanted for.
    pub fn admit(&self, bytes: u64, what_for: impl FnOnce() -> String) -> Result<()> {
        if self.limit == u64::MAX {
            return Ok(());
        }
        self.look_around();
        if self.pressure_of_process() == Pressure::None && self.total() + bytes <= self.for_rows() {
            return Ok(());
        }
        Err(self.exceeded(&format!("{} for {}", print_bytes(bytes), what_for())))
    }

    /// 53200: there is no room for what is wanted.
    #[cold]
    pub fn exceeded(&self, wanted: &str) -> Error {
        let is_process = self.pressure_of_process() > Pressure::None;
        let detail = format!(
            "The statement needs {wanted}. Of {} there are {} in use: {} for rows, {} for indexes, {} for old \
             versions and running transactions.{}",
            print_bytes(self.limit),
            print_bytes(self.total()),
            print_bytes(self.held(Held::Rows) + self.held(Held::Strings) + self.held(Held::Heads)),
            print_bytes(self.held(Held::Indexes)),
            print_bytes(self.held(Held::Unfinished) + self.undo().1),
            match is_process {
                true => " With queries and other memory the process is near its memory limit.",
                false => "",
            }
        );
        let (message, hint) = match is_process {
            true => (
                "out of memory: the process has no more for the store",
                "Delete rows, lower query_memory, or end queries and long transactions (pg_stat_activity).",
            ),
            false => (
                "out of memory: the store has reached memory_limit",
                "Delete rows, raise memory_limit, or end long transactions (firn_stat_transactions).",
            ),
        };
        Error::new(SqlState::OUT_OF_MEMORY, message).with_detail(detail).with_hint(hint)
    }

    /// Memory was allocated, or freed if `bytes` is negative.
    pub(crate) fn add(&self, what: Held, bytes: i64) {
        self.held.0[what as usize].fetch_add(bytes, Ordering::Relaxed);
        match bytes > 0 {
            true => self.look_around(),
            false => self.reconsider(),
        }
    }

    /// The memory of a transaction that has ended is no longer counted as unfinished.
    #[inline]
    pub fn forget_unfinished(&self, bytes: usize) {
        if bytes > 0 {
            self.add(Held::Unfinished, -(bytes as i64));
        }
    }

    /// The transaction with that number has ended and wrote this many undo records.
    #[inline]
    pub fn retire(&self, number: u64, records: usize, bytes: usize) {
        self.retired.of(number).add(records as i64, bytes as i64);
    }

    /// This many of these were freed; negative if the attic now keeps more. Called by the collector, one call
    /// at a time.
    pub fn collect(&self, records: i64, bytes: i64) {
        self.collected.0.add(records, bytes);
        self.reconsider();
    }
}

/// A number of bytes with a unit, to be read by people.
pub fn print_bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stop_before_undo_records_and_continue_when_there_is_room() {
        let budget = MemoryBudget::new(Some(3200));
        budget.expect_blocks(1000);
        let block = || budget.admit(1000, || "a block".to_owned());
        for _ in 0..3 {
            assert_eq!(budget.pressure(), Pressure::None);
            block().unwrap();
            budget.add(Held::Rows, 1000);
        }
        assert_eq!(budget.pressure(), Pressure::Rows);
        assert_eq!(block().unwrap_err().state(), SqlState::OUT_OF_MEMORY);
        budget.retire(1, 3, 201);
        budget.reconsider();
        assert_eq!((budget.pressure(), budget.undo()), (Pressure::All, (3, 201)));
        budget.collect(3, 201);
        assert_eq!((budget.pressure(), budget.undo()), (Pressure::Rows, (0, 0)));
        budget.add(Held::Rows, -1000);
        assert_eq!(budget.pressure(), Pressure::None);
        block().unwrap();
    }
}
