//! The engine: one database in this process.

use crate::{Catalog, Transaction};
use firn_base::Result;
use firn_base::sync::Arc;
use firn_storage::Table;
use std::path::PathBuf;

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it lives; `None` keeps it in memory only, by the same code without a log.
    pub directory: Option<PathBuf>,
    /// Bytes of a block of new tables; small in tests.
    pub block_bytes: usize,
    /// Log bytes since the last checkpoint that start the next one.
    pub checkpoint_after_bytes: u64,
    /// Threads for recovery and checkpoints.
    pub threads: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { directory: None, block_bytes: 1 << 20, checkpoint_after_bytes: 1 << 30, threads: 2 }
    }
}

/// An open database.
pub struct Engine {}

impl Engine {
    /// Opens or creates the database; recovers it first if need be.
    ///
    /// Errors: 55006 (open elsewhere), XX001 (damaged, with the file and position), 58P01/58030.
    pub fn open(config: Config) -> Result<Arc<Engine>> {
        todo!("{config:?}")
    }

    /// Begins a transaction that reads the newest committed state.
    pub fn begin(self: &Arc<Self>) -> Transaction {
        todo!()
    }

    /// The newest committed catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        todo!()
    }

    /// The physical table of an id.
    pub fn table(&self, id: firn_base::TableId) -> Arc<Table> {
        todo!("{id:?}")
    }

    /// A fresh object id; never given again, also after a crash.
    pub fn allocate_oid(&self) -> crate::catalog::Oid {
        todo!()
    }

    /// The next value of a sequence, outside transactions: never given twice, also after a crash.
    /// 2200H when it is exhausted.
    pub fn next_value(&self, sequence: &crate::catalog::SequenceDef) -> Result<i64> {
        todo!("{sequence:?}")
    }

    /// What `setval` does: `value` counts as already given if `is_called`.
    pub fn set_value(
        &self,
        sequence: &crate::catalog::SequenceDef,
        value: i64,
        is_called: bool,
    ) -> Result<()> {
        todo!("{sequence:?} {value} {is_called}")
    }

    /// The value last given and whether one was: what `SELECT last_value, is_called FROM seq` shows.
    pub fn last_value(&self, sequence: &crate::catalog::SequenceDef) -> (i64, bool) {
        todo!("{sequence:?}")
    }

    /// Waits until a commit is on disk. At once for tickets without a log position.
    pub fn wait(&self, ticket: crate::Ticket) -> Result<()> {
        todo!("{ticket:?}")
    }

    /// How far the log is on disk: commits with this position or an earlier one are durable.
    pub fn durable_lsn(&self) -> firn_base::Lsn {
        todo!()
    }

    /// Writes a checkpoint now and drops the log before it.
    pub fn checkpoint(&self) -> Result<()> {
        todo!()
    }

    /// Flushes the log and stops background work. Dropping the last handle does the same, but
    /// cannot report an error.
    pub fn close(&self) -> Result<()> {
        todo!()
    }
}
