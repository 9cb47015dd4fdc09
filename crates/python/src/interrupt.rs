//! Waiting for the engine without the interpreter, and handling Ctrl-C meanwhile.
//!
//! Python only records a signal when it arrives; its handlers run when the main thread checks for signals. So the engine
//! calls a hook periodically when it checks its cancel flag ([`firn_session::server::ServerConnection::set_interrupt_hook`]). On
//! Python's main thread, while it waits for the engine, the hook checks for signals. A handler that raises, like Ctrl-C's,
//! cancels the statement; the exception is kept here until the engine has returned.

use crate::error;
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// How often signals are checked for.
const INTERVAL: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether this is Python's main thread, once that is known.
    static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
    /// On the main thread while it waits for the engine: the time of the last check.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The exception that a handler has raised.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs work of the engine while other threads may use the interpreter. An exception of a signal handler meanwhile
/// is raised, whatever the result of the work.
pub fn released<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    if !is_main(py)? {
        return Ok(py.detach(work));
    }
    if LOOKED.get().is_some() {
        // It might wait for ever for a lock that this thread holds.
        return Err(error::interface(
            py,
            "a signal handler cannot use a database while a statement is running",
        ));
    }
    let _waiting = Waiting::begin();
    let done = py.detach(|| {
        let done = work();
        // A result that is not returned is dropped here: that may wait for threads that need the interpreter.
        if RAISED.with_borrow(Option::is_some) { None } else { Some(done) }
    });
    done.ok_or_else(|| RAISED.take().expect("a handler has raised something"))
}

/// Marks that Python's main thread waits for the engine, until this is dropped, also by a panic.
struct Waiting;

impl Waiting {
    fn begin() -> Waiting {
        LOOKED.set(Some(Instant::now()));
        Waiting
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        LOOKED.set(None);
        // It does not belong to the next statement.
        RAISED.take();
    }
}

fn is_main(py: Python<'_>) -> PyResult<bool> {
    if let Some(known) = IS_MAIN.get() {
        return Ok(known);
    }
    let threading = py.import("threading")?;
    let is_main = threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?);
    IS_MAIN.set(Some(is_main));
    Ok(is_main)
}

/// Whether a signal handler has raised an exception, so that work must stop.
pub fn interrupted() -> bool {
    let Some(looked) = LOOKED.get() else { return false };
    if RAISED.with_borrow(Option::is_some) {
        return true;
    }
    if looked.elapsed() < INTERVAL {
        return false;
    }
    let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
    LOOKED.set(Some(Instant::now()));
    let stop = raised.is_some();
    RAISED.set(raised);
    stop
}

/// Waits for a lock; `None` if a signal handler raises an exception first. The caller has released the interpreter.
pub fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    loop {
        if let Some(guard) = mutex.try_lock_for(INTERVAL) {
            return Some(guard);
        }
        if interrupted() {
            return None;
        }
    }
}
