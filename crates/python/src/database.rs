//! Databases that this process has open: one handle for each, whatever the number of connections.
//!
//! A forked child has its parent's memory but none of the threads that work on it, and the parent continues to
//! write the files. So a child of a process that has ever opened a database cannot use any, and frees nothing.

use crate::error;
use firn_session::base::{Error, Result, SqlState};
use firn_session::{Config, Database};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Databases in directories, by their paths without links.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Open>>> = Mutex::new(BTreeMap::new());

/// Whether a database was ever opened.
static USED: AtomicBool = AtomicBool::new(false);
/// Whether this process is the child of one in which that was true.
static FORKED: AtomicBool = AtomicBool::new(false);

/// An open database.
pub struct Open {
    pub database: Database,
    /// The times after which its rows become cold.
    cooling: Cooling,
}

/// The times after which rows become cold; `None` for never.
#[derive(Clone, Copy)]
struct Cooling {
    freeze_after: Option<Duration>,
    compact_after: Option<Duration>,
}

/// Options for opening a database; `None` for the default.
#[derive(Default)]
pub struct Wishes {
    /// Bytes that its store may use; 0 is for no limit.
    pub memory_limit: Option<u64>,
    /// How long after the last write blocks are frozen.
    pub freeze_after: Option<Option<Duration>>,
    /// How long after that they become compact.
    pub compact_after: Option<Option<Duration>>,
}

/// Python calls this in the child after a fork.
#[pyfunction]
#[pyo3(name = "_after_fork_in_child")]
pub fn after_fork_in_child() {
    // Relaxed: the child has one thread.
    FORKED.fetch_or(USED.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether databases are unusable in this process.
pub fn has_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Refuses work in a forked child.
pub fn refuse_fork(py: Python<'_>) -> PyResult<()> {
    if !has_forked() {
        return Ok(());
    }
    let error = Error::new(
        SqlState::CONNECTION_FAILURE,
        "this process was forked from one that has used firndb, and cannot use it",
    )
    .with_hint(
        "Start processes by \"spawn\" or \"forkserver\" (multiprocessing.set_start_method), or fork first.",
    );
    Err(error::raised(py, &error))
}

/// Opens a database, or returns the handle if this process has it open already.
pub fn open(directory: Option<&Path>, wishes: Wishes) -> Result<Arc<Open>> {
    USED.store(true, Ordering::Relaxed);
    let limit = wishes.memory_limit.map(|bytes| (bytes > 0).then_some(bytes));
    let usual = Config::default();
    let config = Config {
        directory: directory.map(Path::to_owned),
        memory_limit: limit.unwrap_or(usual.memory_limit),
        freeze_after: wishes.freeze_after.unwrap_or(usual.freeze_after),
        compact_after: wishes.compact_after.unwrap_or(usual.compact_after),
        ..usual
    };
    let cooling = Cooling { freeze_after: config.freeze_after, compact_after: config.compact_after };
    let Some(directory) = directory else {
        return Ok(Arc::new(Open { database: Database::open_with(config)?, cooling }));
    };
    let mut all = OPEN.lock();
    if let Some(open) = absolute(directory).and_then(|path| all.get(&path)?.upgrade()) {
        let differs = [
            ("memory_limit", limit.is_some_and(|limit| limit != open.database.engine().memory().limit())),
            ("freeze_after", wishes.freeze_after.is_some_and(|time| time != open.cooling.freeze_after)),
            ("compact_after", wishes.compact_after.is_some_and(|time| time != open.cooling.compact_after)),
        ];
        if let Some((name, _)) = differs.iter().find(|(_, differs)| *differs) {
            return Err(Error::new(
                SqlState::OBJECT_IN_USE,
                format!("this process has the database open with another {name}"),
            )
            .with_hint(format!("Leave {name} out, or close the other connections first.")));
        }
        return Ok(open);
    }
    let open = Arc::new(Open { database: Database::open_with(config)?, cooling });
    all.retain(|_, open| open.strong_count() > 0);
    if let Some(path) = absolute(directory) {
        all.insert(path, Arc::downgrade(&open));
    }
    Ok(open)
}

/// Releases a handle. The last one writes a checkpoint, and returns the error if that fails.
pub fn close(open: Arc<Open>) -> Result<()> {
    // Held so that no other thread finds it half closed.
    let _all = OPEN.lock();
    match Arc::try_unwrap(open) {
        Ok(open) => open.database.close(),
        Err(_) => Ok(()),
    }
}

fn absolute(directory: &Path) -> Option<PathBuf> {
    directory.canonicalize().ok()
}
