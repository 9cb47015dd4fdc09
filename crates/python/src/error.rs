//! Errors of the engine as Python's exceptions, which `firndb._errors` defines.

use firn_session::base::{Error, SqlState};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A misuse that is found before the engine is called; PostgreSQL's "connection does not exist".
const NOT_CONNECTED: SqlState = SqlState::new("08003");

/// The exception for an error.
pub fn raised(py: Python<'_>, error: &Error) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make =
        MAKE.get_or_try_init(py, || py.import("firndb._errors")?.getattr("from_engine").map(Bound::unbind));
    let state = error.state();
    let arguments = (
        state.as_str(),
        error.message(),
        error.detail(),
        error.hint(),
        error.context(),
        error.position(),
        error.constraint(),
        error.table(),
        error.column(),
    );
    match make.and_then(|make| make.bind(py).call1(arguments)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// The exception for a misuse of the package.
pub fn interface(py: Python<'_>, message: &str) -> PyErr {
    raised(py, &Error::new(NOT_CONNECTED, message))
}

/// The error of a use after closing.
pub fn closed(what: &str) -> Error {
    Error::new(NOT_CONNECTED, format!("the {what} is closed"))
}

/// The error of a statement that a signal handler has stopped; the handler's exception takes precedence over it.
pub fn interrupted() -> Error {
    Error::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}
