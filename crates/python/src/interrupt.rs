//! Waiting for the engine without the interpreter, and Ctrl-C meanwhile.
//!
//! Python only notes a signal when it arrives; its handlers run when the main thread asks for them. So the engine
//! asks now and then, through the watch of its cancel flag ([`firn_session::server::ServerConnection::set_interrupt_hook`]), and the
//! thread that is Python's main one and waits for it looks. A handler that raises, as Ctrl-C's does,
//! cancels the statement; the exception waits here until the engine has returned.

use crate::error;
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// How often signals are looked for.
const INTERVAL: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether this is Python's main thread, once that is known.
    static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
    /// On the main thread while it waits for the engine: when it last looked.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// What a handler has raised.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Does work of the engine while other threads may use the interpreter. What a signal handler raised meanwhile
/// is raised, whatever came of the work.
pub fn released<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    if !is_main(py)? {
        return Ok(py.detach(work));
    }
    if LOOKED.get().is_some() {
        // It might wait for ever for a lock of its own.
        return Err(error::interface(
            py,
            "a signal handler cannot use a database while a statement is running",
        ));
    }
    let _waiting = Waiting::begin();
    let done = py.detach(|| {
        let done = work();
        // What nobody gets is dropped here: that may wait for threads that want the interpreter.
        if RAISED.with_borrow(Option::is_some) { None } else { Some(done) }
    });
    done.ok_or_else(|| RAISED.take().expect("a handler has raised something"))
}

/// Python's main thread waits for the engine, until this is dropped: by a panic, too.
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
        // It was not for the next statement.
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

/// Whether a signal handler has raised something, so that work is to stop.
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

/// Waits for a lock; `None` if a signal handler raises something first. The caller has released the interpreter.
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
