//! What a database holds in memory while transactions run, and what for.

use crate::driver::Live;
use crate::{resident_bytes, short_bytes};
use firn_storage::{Held, MemoryBudget};
use std::fmt;

/// How much memory is held at some moment.
#[derive(Clone, Copy, Debug)]
pub struct MemoryUsage {
    /// Transactions until then that count.
    pub transactions: u64,
    /// Bytes of the process.
    pub resident: u64,
    /// Bytes of blocks and of strings that do not lie in them.
    pub rows: u64,
    /// Bytes of indexes.
    pub indexes: u64,
    /// Bytes of chain heads.
    pub heads: u64,
    /// Bytes of undo records of transactions that have ended.
    pub undo: u64,
}

impl MemoryUsage {
    /// The line above those that it is shown in.
    pub const TITLE: &str = "transactions    resident        rows     indexes chain heads        undo";

    /// How much it is now.
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
}

impl fmt::Display for MemoryUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12}", self.transactions)?;
        [self.resident, self.rows, self.indexes, self.heads, self.undo]
            .into_iter()
            .try_for_each(|bytes| write!(f, "{:>12}", short_bytes(bytes)))
    }
}
