//! How a database is opened.

use crate::predicates::Granularity;
use firn_base::memory;
use firn_log::LogOptions;
use std::path::PathBuf;
use std::time::Duration;

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory; `None` keeps the database in memory only, by the same code without a log.
    pub directory: Option<PathBuf>,
    /// Where queries put rows for which there is no memory, in files without names. If `None`: the database's directory,
    /// and the system's directory for temporary files of a database in memory only.
    pub temporary_directory: Option<PathBuf>,
    /// Bytes of a block; small in tests. An existing database keeps its own.
    pub block_bytes: usize,
    /// Log bytes since the last checkpoint that start the next one.
    pub checkpoint_after_bytes: u64,
    /// Threads for recovery and checkpoints.
    pub threads: usize,
    /// How the log is written.
    pub log: LogOptions,
    /// Which changes of others fail a serializable transaction.
    pub granularity: Granularity,
    /// Bytes that the store may hold: blocks, indexes, old versions, and the changes of running transactions.
    /// Statements that need more fail with 53200. `None` for no limit: the operating system then kills a process that needs more
    /// than there is. The default is three quarters of the process's memory.
    pub memory_limit: Option<u64>,
    /// Bytes that are allocated for rows and indexes when the database is opened, with their pages of memory, and not returned to
    /// the operating system: [`firn_storage::reserve`]. They belong to the process, not to one database.
    pub reserve_memory: u64,
    /// Whether it has threads of its own, which collect garbage, freeze and encode blocks, and begin checkpoints. Without them a
    /// simulation calls [`Engine::work_in_background`](crate::Engine::work_in_background).
    pub has_threads: bool,
    /// How long a block must not have been written to before it is [frozen](firn_storage::Frozen); `None` for never.
    pub freeze_after: Option<Duration>,
    /// How long a block must have been frozen before it is encoded; `None` for never.
    pub compact_after: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            directory: None,
            temporary_directory: None,
            block_bytes: 1 << 20,
            checkpoint_after_bytes: 1 << 30,
            threads: 2,
            log: LogOptions::default(),
            granularity: Granularity::default(),
            // In whole megabytes, which are easier to read.
            memory_limit: memory::of_process().map(|bytes| (bytes / 4 * 3) >> 20 << 20),
            reserve_memory: 0,
            has_threads: true,
            freeze_after: Some(Duration::from_secs(5)),
            compact_after: Some(Duration::from_secs(60)),
        }
    }
}
