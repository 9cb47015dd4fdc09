//! How a database is opened.

use crate::predicates::Granularity;
use firn_base::memory;
use firn_log::LogOptions;
use std::path::PathBuf;
use std::time::Duration;

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it lives; `None` keeps it in memory only, by the same code without a log.
    pub directory: Option<PathBuf>,
    /// Bytes of a block; small in tests. A database that is there already keeps its own.
    pub block_bytes: usize,
    /// Log bytes since the last checkpoint that start the next one.
    pub checkpoint_after_bytes: u64,
    /// Threads for recovery and checkpoints.
    pub threads: usize,
    /// How the log is written.
    pub log: LogOptions,
    /// What fails a serializable transaction that has read what others change.
    pub granularity: Granularity,
    /// Bytes that the store may hold: blocks, indexes, old versions, and what running transactions have
    /// written. Beyond, statements that need more fail with 53200. `None` for no limit: the operating system kills who needs more
    /// than there is. Three quarters of what the process may have, by default.
    pub memory_limit: Option<u64>,
    /// Bytes that are taken for rows and indexes when the database is opened, with the pages of memory behind them, and not given
    /// back to the operating system: [`firn_storage::reserve`]. They are the process's.
    pub reserve_memory: u64,
    /// How long nobody must have written to a block before it is [frozen](firn_storage::Frozen); `None` for never.
    pub freeze_after: Option<Duration>,
    /// How long a block must have been frozen before it is encoded; `None` for never.
    pub compact_after: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            directory: None,
            block_bytes: 1 << 20,
            checkpoint_after_bytes: 1 << 30,
            threads: 2,
            log: LogOptions::default(),
            granularity: Granularity::default(),
            // In whole megabytes, for people.
            memory_limit: memory::of_process().map(|bytes| (bytes / 4 * 3) >> 20 << 20),
            reserve_memory: 0,
            freeze_after: Some(Duration::from_secs(5)),
            compact_after: Some(Duration::from_secs(60)),
        }
    }
}
