//! Databases that this process has open: one handle each, however many connections.
//!
//! A forked child has its parent's memory but none of the threads that work on it, and the parent goes on
//! writing the files. So a child of a process that has ever opened a database can use none, and frees nothing.

use crate::error;
use firn_session::base::{Error, Result, SqlState};
use firn_session::{Config, Database};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Those in directories, by their path without links.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Open>>> = Mutex::new(BTreeMap::new());

/// Whether a database was ever opened.
static USED: AtomicBool = AtomicBool::new(false);
/// Whether this process is the child of one in which that was so.
static FORKED: AtomicBool = AtomicBool::new(false);

/// An open database.
pub struct Open {
    pub database: Database,
}

/// Python calls this in the child after a fork.
#[pyfunction]
#[pyo3(name = "_after_fork_in_child")]
pub fn after_fork_in_child() {
    // Relaxed: the child has one thread.
    FORKED.fetch_or(USED.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether databases are out of reach here.
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

/// Opens a database, or finds it open here already. 0 is for no limit.
pub fn open(directory: Option<&Path>, memory_limit: Option<u64>) -> Result<Arc<Open>> {
    USED.store(true, Ordering::Relaxed);
    let asked = memory_limit.map(|bytes| (bytes > 0).then_some(bytes));
    let mut config = Config { directory: directory.map(Path::to_owned), ..Config::default() };
    if let Some(limit) = asked {
        config.memory_limit = limit;
    }
    let Some(directory) = directory else {
        return Ok(Arc::new(Open { database: Database::open_with(config)? }));
    };
    let mut all = OPEN.lock();
    if let Some(open) = absolute(directory).and_then(|path| all.get(&path)?.upgrade()) {
        if asked.is_some_and(|limit| limit != open.database.engine().memory().limit()) {
            return Err(Error::new(
                SqlState::OBJECT_IN_USE,
                "this process has the database open with another memory_limit",
            )
            .with_hint("Leave memory_limit out, or close the other connections first."));
        }
        return Ok(open);
    }
    let open = Arc::new(Open { database: Database::open_with(config)? });
    all.retain(|_, open| open.strong_count() > 0);
    if let Some(path) = absolute(directory) {
        all.insert(path, Arc::downgrade(&open));
    }
    Ok(open)
}

/// Gives up a handle. The last one writes what a quick start wants, and says if that fails.
pub fn close(open: Arc<Open>) -> Result<()> {
    // Nobody finds it half closed.
    let _all = OPEN.lock();
    match Arc::try_unwrap(open) {
        Ok(open) => open.database.close(),
        Err(_) => Ok(()),
    }
}

fn absolute(directory: &Path) -> Option<PathBuf> {
    directory.canonicalize().ok()
}
