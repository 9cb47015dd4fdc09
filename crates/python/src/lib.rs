//! The native half of the Python package `firndb`: [`firn_session`] as a few classes.
//!
//! The interface for Python programs is written in Python (`python/firndb`): the DB-API, the exceptions, pandas and
//! Polars. This half runs statements, converts values and rows to objects and back, and passes Arrow
//! batches by pointers.
//!
//! Invariant: no thread waits for a lock or for the engine while it holds the interpreter. The threads that work for
//! the engine may need the interpreter to check for signals ([`interrupt`]).

mod capsule;
mod database;
mod error;
mod from_python;
mod interrupt;
mod result;
mod session;
mod statements;
mod to_python;

use pyo3::prelude::*;

#[pymodule]
mod _firndb {
    #[pymodule_export]
    use crate::capsule::Batches;
    #[pymodule_export]
    use crate::database::after_fork_in_child;
    #[pymodule_export]
    use crate::result::RowSet;
    #[pymodule_export]
    use crate::session::{Session, connect};

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
