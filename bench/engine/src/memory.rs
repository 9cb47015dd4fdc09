//! The memory of a database while transactions run, and what uses it.

use crate::driver::Live;
use crate::{resident_bytes, short_bytes};
use firn_storage::{Held, MemoryBudget};
use std::fmt;

/// The memory at a certain time.
#[derive(Clone, Copy, Debug)]
pub struct MemoryUsage {
    /// Transactions so far that count.
    pub transactions: u64,
    /// Bytes of the process.
    pub resident: u64,
    /// Bytes of blocks and of strings outside of them.
    pub rows: u64,
    /// Bytes of indexes.
    pub indexes: u64,
    /// Bytes of chain heads.
    pub heads: u64,
    /// Bytes of undo records of transactions that have ended.
    pub undo: u64,
}

impl MemoryUsage {
    /// The header of the lines that show it.
    pub const TITLE: &str = "transactions    resident        rows     indexes chain heads        undo";

    /// The current memory.
    pub fn now(memory: &MemoryBudget, live: &Live) -> MemoryUsage {
        MemoryUsage {
            transactions: live.total(),
            resident: resident_bytes(),
            rows: memory.held(Held::Rows) + memory.held(Held::Strings),
            indexes: memory.held(Held::Indexes),
            heads: memory.held(Held::Heads),
            undo: memory.undo().1,
        }
    }

    /// Bytes of the database, without the rest of the process.
    pub fn database(&self) -> u64 {
        self.rows + self.indexes + self.heads + self.undo
    }
}

impl fmt::Display for MemoryUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12}", self.transactions)?;
        [self.resident, self.rows, self.indexes, self.heads, self.undo]
            .into_iter()
            .try_for_each(|bytes| write!(f, "{:>12}", short_bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{self, Options};
    use crate::tpcc::consistency::{self, HeldSnapshot};
    use crate::tpcc::input::Terminal;
    use crate::tpcc::{Scale, load, native};
    use firn_base::clock;
    use firn_txn::{Config, Engine};
    use std::time::Duration;

    const WAREHOUSES: i32 = 5;
    /// Transactions a second, few enough for a machine that is busy with other tests.
    const RATE: u64 = 10_000;
    /// Bytes that a reader without end may cost.
    const MOST: u64 = 200 << 20;

    /// The memory each time that another tenth of the transactions has committed, with a snapshot of the beginning
    /// held or without.
    fn usages(seconds: u64, hold: bool) -> Vec<MemoryUsage> {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { directory: Some(directory.path().into()), ..Config::default() };
        let engine = Engine::open(config).unwrap();
        let scale = Scale::warehouses(WAREHOUSES);
        load::load(&engine, scale, 1, 1, &load::LoadProgress::default()).unwrap();
        let tables = native::Tpcc::open(&engine).unwrap();
        let held = hold.then(|| HeldSnapshot::take(&engine, scale).unwrap());
        let client = |number| Ok(native::Worker::new(&tables, Terminal::new(scale, 1, number, 1)));
        let duration = Duration::from_secs(seconds);
        let options = Options { clients: 1, duration, core: None, rate: Some(RATE) };
        let live = Live::default();
        let usages = std::thread::scope(|scope| {
            let run = scope.spawn(|| driver::run(&client, Some(&engine), options, &live));
            // The least that a slow machine must do for the test to be meaningful.
            let each = RATE * seconds / 20;
            let usages = (1..=10).map(|at| {
                while live.total() < at * each && !run.is_finished() {
                    clock::sleep(Duration::from_millis(5));
                }
                MemoryUsage::now(engine.memory(), &live)
            });
            let usages: Vec<MemoryUsage> = usages.collect();
            assert!(usages[9].transactions >= 10 * each, "this machine is too slow for {RATE} a second");
            run.join().unwrap().unwrap();
            usages
        });
        if let Some(held) = held {
            assert_eq!(held.violations(&engine).unwrap(), Vec::<String>::new());
        }
        assert_eq!(consistency::violations(&engine, scale).unwrap(), Vec::<String>::new());
        usages
    }

    #[test]
    #[ignore = "takes minutes, or as long as the soak test is to run; cargo xtask soak runs it"]
    fn a_reader_that_does_not_end_costs_little_memory() {
        let minutes = std::env::var("FIRN_SOAK_MINUTES").map_or(3, |text| text.parse().unwrap());
        // In parallel, so that a disturbance affects both.
        let [without, with] = std::thread::scope(|scope| {
            let runs = [false, true].map(|hold| scope.spawn(move || usages(60 * minutes, hold)));
            runs.map(|run| run.join().unwrap())
        });
        println!("{}", MemoryUsage::TITLE);
        for (without, with) in without.iter().zip(&with) {
            println!("{without}\n{with}");
            let more = with.database().saturating_sub(without.database());
            assert!(more < MOST, "{} more with a snapshot that is held", short_bytes(more));
        }
    }
}
