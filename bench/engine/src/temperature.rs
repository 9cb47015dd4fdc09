//! Databases of which all rows are in blocks of one state.

use firn_base::sync::Arc;
use firn_storage::{BlockState, Table};
use firn_txn::{Engine, pin};
use std::fmt;
use std::time::Duration;

/// The state of the blocks with the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Temperature {
    /// In hot blocks, as they were inserted.
    Hot,
    /// In frozen ones.
    Frozen,
    /// In compact ones.
    Compact,
}

impl fmt::Display for Temperature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.state().name())
    }
}

impl Temperature {
    /// All, the coldest last.
    pub const ALL: [Temperature; 3] = [Temperature::Hot, Temperature::Frozen, Temperature::Compact];

    fn state(self) -> BlockState {
        match self {
            Temperature::Hot => BlockState::Hot,
            Temperature::Frozen => BlockState::Frozen,
            Temperature::Compact => BlockState::Compact,
        }
    }
}

/// Moves all rows to blocks of this state, unless they may remain in hot ones. There must be no writers, and blocks must not be
/// colder.
pub fn cool(engine: &Arc<Engine>, temperature: Temperature) {
    let tables = tables(engine);
    let is_cold = |table: &Arc<Table>| {
        table.block_usage().all(|block| block.rows == 0 || block.state == temperature.state())
    };
    while temperature != Temperature::Hot && !tables.iter().all(is_cold) {
        engine.freeze(Duration::ZERO);
        // Blocks in the state cooling wait until guards from before are released.
        pin().flush();
        if temperature == Temperature::Compact {
            engine.compact(Duration::ZERO);
        }
    }
}

/// The shares of a table's rows by the states of their blocks.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    rows: u64,
    /// By the numbers of states.
    by_state: [u64; BlockState::ALL.len()],
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10} rows", self.rows)?;
        for (state, rows) in BlockState::ALL.iter().zip(&self.by_state).filter(|(_, rows)| **rows > 0) {
            write!(f, ", {:.1} % {}", 100.0 * *rows as f64 / self.rows as f64, state.name())?;
        }
        Ok(())
    }
}

/// The shares of each table, by its name.
pub fn shares(engine: &Engine) -> Vec<(String, Shares)> {
    let catalog = engine.catalog();
    let of_table = |table: &Table| {
        let mut shares = Shares::default();
        for block in table.block_usage() {
            shares.rows += u64::from(block.rows);
            shares.by_state[block.state as usize] += u64::from(block.rows);
        }
        shares
    };
    let all = catalog.tables.values();
    let mut all: Vec<(String, Shares)> = all
        .filter_map(|table| Some((table.name.to_string(), of_table(&*engine.find_table(table.storage())?))))
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Bytes of the rows and strings of all tables.
pub fn row_bytes(engine: &Engine) -> u64 {
    tables(engine).iter().map(|table| table.memory_bytes()).sum()
}

fn tables(engine: &Engine) -> Vec<Arc<Table>> {
    let catalog = engine.catalog();
    catalog.tables.values().filter_map(|table| engine.find_table(table.storage())).collect()
}
