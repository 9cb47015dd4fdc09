//! A connection to a database, for any number of threads, one at a time.

use crate::capsule;
use crate::database::{self, Open, Wishes, has_forked, refuse_fork};
use crate::error;
use crate::from_python::parameters;
use crate::interrupt::{self, interrupted, lock};
use crate::result::{Drawn, RowSet};
use crate::statements::{Bound as BoundStatement, Statements, located};
use firn_session::base::{Error, Result, SqlState, Value};
use firn_session::server::{ServerConnection as _, parse_cooling_time, parse_memory};
use firn_session::{CancelHandle, CommandTag, Connection, Outcome, TransactionStatus};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Notices that are kept until somebody asks.
const MOST_NOTICES: usize = 100;
/// How often a batch of changes that commits by itself is run again after conflicts.
const MOST_RETRIES: u32 = 20;

/// What the results of a connection share with it.
pub struct Core {
    /// None once it is closed.
    state: Mutex<Option<State>>,
    cancel: CancelHandle,
    /// Results whose rows may be in the making. Locked for a moment, and never while anything waits: it is
    /// with the interpreter held.
    results: Mutex<Vec<Weak<Mutex<Drawn>>>>,
}

/// What only one thread uses at a time.
pub struct State {
    connection: Connection,
    /// After the connection, which is part of it.
    database: Arc<Open>,
    statements: Statements,
    notices: VecDeque<String>,
    autocommit: bool,
}

impl Core {
    /// Works on the connection, while others may use the interpreter.
    pub fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut State) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.try_call(py, work)?.map_err(|error| error::raised(py, &error))
    }

    /// As [`Core::call`], with the engine's errors apart from exceptions of signal handlers.
    pub fn try_call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut State) -> Result<T> + Send,
    ) -> PyResult<Result<T>> {
        refuse_fork(py)?;
        interrupt::released(py, || match lock(&self.state).as_deref_mut() {
            None => Err(error::interrupted()),
            Some(None) => Err(error::closed("connection")),
            Some(Some(state)) => work(state),
        })
    }

    /// Has a result's rows closed with the connection.
    pub fn keep(&self, drawn: &Arc<Mutex<Drawn>>) {
        let mut results = self.results.lock();
        if results.len() == results.capacity() {
            results.retain(|result| result.strong_count() > 0);
        }
        results.push(Arc::downgrade(drawn));
    }

    /// Rolls back and lets go of everything; nothing if that was done.
    fn close(&self) -> Result<()> {
        let Some(mut state) = lock(&self.state) else { return Err(error::interrupted()) };
        // Their end may wait for the interpreter, and whoever holds that may wait for the list (`keep`).
        let results = std::mem::take(&mut *self.results.lock());
        for drawn in results.into_iter().filter_map(|drawn| drawn.upgrade()) {
            drawn.lock().close();
        }
        state.take().map_or(Ok(()), State::close)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some(state) = self.state.get_mut().take() {
            drop_released(state, |state| drop(state.close()));
        }
    }
}

/// Lets go of what belongs to the engine, without the interpreter: threads that are waited for may need it to give
/// memory of other libraries back. In a forked child nothing is done: its parent's threads are not here, and
/// its files are not ours.
pub fn drop_released<T: Send>(value: T, drop: impl FnOnce(T) + Send) {
    if has_forked() {
        return std::mem::forget(value);
    }
    let mut value = Some((value, drop));
    Python::try_attach(|py| {
        py.detach(|| {
            if let Some((value, drop)) = value.take() {
                drop(value);
            }
        });
    });
    // There is no interpreter any more.
    if let Some((value, drop)) = value {
        drop(value);
    }
}

impl State {
    fn close(self) -> Result<()> {
        drop(self.connection);
        database::close(self.database)
    }

    /// Runs a statement; in a transaction that begins for it, unless each commits by itself.
    fn run(&mut self, sql: &str, values: Vec<Value>) -> Result<Outcome> {
        let mut values = values;
        for is_last in [false, true] {
            let bound = self.statements.bind(&mut self.connection, sql, values)?;
            match self.run_bound(&bound) {
                // It was prepared before a table became another one. Alone it has done nothing yet.
                Err(error)
                    if !is_last
                        && error.state() == SqlState::FEATURE_NOT_SUPPORTED
                        && error.message().starts_with("cached plan")
                        && self.connection.status() == TransactionStatus::Idle =>
                {
                    self.statements.clear();
                    values = bound.values;
                }
                done => return done,
            }
        }
        unreachable!("the second attempt returns")
    }

    fn run_bound(&mut self, bound: &BoundStatement) -> Result<Outcome> {
        self.begin_for(bound)?;
        let outcome = self.connection.run(&bound.statement, &bound.values);
        self.note();
        match outcome {
            Ok(Outcome::Done(tag)) => {
                if !keeps_meaning(tag.verb) {
                    self.statements.clear();
                }
                Ok(Outcome::Done(tag))
            }
            Ok(Outcome::CopyIn(_) | Outcome::CopyOut(_)) => {
                self.connection.report_idle();
                Err(Error::unsupported("COPY with the client in a program's own process")
                    .with_hint("Use COPY with a file, register(), or arrow()."))
            }
            Ok(outcome) => Ok(outcome),
            Err(error) => Err(located(error, bound.numbered.as_deref())),
        }
    }

    /// Begins a transaction for a statement, as DB-API wants it.
    fn begin_for(&mut self, bound: &BoundStatement) -> Result<()> {
        let begins = !self.autocommit
            && self.connection.status() == TransactionStatus::Idle
            && !bound.statement.controls_transactions();
        if begins { self.connection.execute("BEGIN").map(drop) } else { Ok(()) }
    }

    fn note(&mut self) {
        for notice in self.connection.take_notices() {
            self.notices.push_back(notice.to_string());
        }
        while self.notices.len() > MOST_NOTICES {
            self.notices.pop_front();
        }
    }

    /// Runs a change for each row of values, all or none of them.
    fn run_many(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<CommandTag> {
        let is_alone = self.autocommit && self.connection.status() == TransactionStatus::Idle;
        if !is_alone {
            return self.run_all(sql, rows);
        }
        let mut retries = 0;
        loop {
            self.connection.execute("BEGIN")?;
            let done = self.run_all(sql, rows).and_then(|tag| self.connection.execute("COMMIT").map(|_| tag));
            if self.connection.status() != TransactionStatus::Idle {
                self.connection.execute("ROLLBACK")?;
            }
            match done {
                Err(error) if error.is_retryable() && retries < MOST_RETRIES && !interrupted() => {
                    retries += 1
                }
                done => return done,
            }
        }
    }

    fn run_all(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<CommandTag> {
        let mut whole = CommandTag { verb: "", rows: Some(0) };
        for values in rows {
            match self.run(sql, values.clone())? {
                Outcome::Done(tag) => {
                    let rows = whole.rows.zip(tag.rows).map(|(sum, rows)| sum + rows);
                    whole = CommandTag { verb: tag.verb, rows };
                }
                // Of RETURNING, which nobody asked to see.
                Outcome::Rows(rows) if rows.tag().verb != "SELECT" => {
                    let rows = whole.rows.zip(rows.tag().rows).map(|(sum, rows)| sum + rows);
                    whole.rows = rows;
                }
                _ => {
                    return Err(Error::new(
                        SqlState::SYNTAX_ERROR,
                        "executemany() takes statements that change rows",
                    ));
                }
            }
        }
        Ok(whole)
    }
}

/// Whether statements that were prepared before one of these mean the same after it.
fn keeps_meaning(verb: &str) -> bool {
    matches!(
        verb,
        "INSERT"
            | "UPDATE"
            | "DELETE"
            | "BEGIN"
            | "START TRANSACTION"
            | "COMMIT"
            | "SAVEPOINT"
            | "RELEASE"
            | "COPY"
    )
}

/// Opens a database, in memory without a directory, and connects to it.
#[pyfunction]
#[pyo3(signature = (directory, memory_limit=None, freeze_after=None, compact_after=None, autocommit=false))]
pub fn connect(
    py: Python<'_>,
    directory: Option<PathBuf>,
    memory_limit: Option<&str>,
    freeze_after: Option<&str>,
    compact_after: Option<&str>,
    autocommit: bool,
) -> PyResult<Session> {
    refuse_fork(py)?;
    let open = interrupt::released(py, || {
        let wishes = Wishes {
            memory_limit: memory_limit.map(bytes).transpose()?,
            freeze_after: freeze_after.map(|text| after("freeze_after", text)).transpose()?,
            compact_after: compact_after.map(|text| after("compact_after", text)).transpose()?,
        };
        Ok(Session::new(database::open(directory.as_deref(), wishes)?, autocommit))
    })?;
    open.map_err(|error| error::raised(py, &error))
}

/// A time, or never: the words of `ALTER TABLE … SET (freeze_after = …)`, but with a unit.
fn after(name: &str, text: &str) -> Result<Option<Duration>> {
    parse_cooling_time(text).ok_or_else(|| {
        let message = format!("invalid value for parameter \"{name}\": \"{text}\"");
        Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
            .with_hint("Give a time with its unit, such as \"500ms\", \"10s\" or \"1h\", or \"never\".")
    })
}

/// A number of bytes with a unit.
fn bytes(text: &str) -> Result<u64> {
    parse_memory(text).ok_or_else(|| {
        let message = format!("invalid value for parameter \"memory_limit\": \"{text}\"");
        Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
            .with_hint("Give a number of bytes, or one with a unit such as \"8GiB\".")
    })
}

/// A connection.
#[pyclass(frozen, weakref, module = "firndb._firndb")]
pub struct Session {
    core: Arc<Core>,
}

impl Session {
    fn new(database: Arc<Open>, autocommit: bool) -> Session {
        let connection = database.database.connect();
        connection.set_interrupt_hook(interrupted);
        let cancel = connection.cancel_handle();
        let state = State {
            connection,
            database,
            statements: Statements::default(),
            notices: VecDeque::new(),
            autocommit,
        };
        Session { core: Arc::new(Core { state: Mutex::new(Some(state)), cancel, results: Mutex::default() }) }
    }
}

#[pymethods]
impl Session {
    /// Another connection to the same database.
    fn connect(&self, py: Python<'_>, autocommit: bool) -> PyResult<Session> {
        self.core.call(py, |state| Ok(Session::new(state.database.clone(), autocommit)))
    }

    /// Runs one statement.
    #[pyo3(name = "execute", signature = (sql, values=None))]
    fn run(&self, py: Python<'_>, sql: &str, values: Option<&Bound<'_, PyAny>>) -> PyResult<RowSet> {
        let values = parameters(values)?;
        match self.core.call(py, |state| state.run(sql, values))? {
            Outcome::Rows(rows) => RowSet::of_rows(py, self.core.clone(), rows),
            Outcome::Done(tag) => Ok(RowSet::of_tag(self.core.clone(), tag)),
            _ => Ok(RowSet::of_tag(self.core.clone(), CommandTag { verb: "", rows: None })),
        }
    }

    /// Runs a statement that changes rows for each sequence of values.
    #[pyo3(name = "executemany")]
    fn run_many(&self, py: Python<'_>, sql: &str, rows: &Bound<'_, PyAny>) -> PyResult<RowSet> {
        let rows = rows.try_iter()?.map(|row| parameters(Some(&row?))).collect::<PyResult<Vec<_>>>()?;
        let tag = self.core.call(py, |state| state.run_many(sql, &rows))?;
        Ok(RowSet::of_tag(self.core.clone(), tag))
    }

    /// Runs statements separated by semicolons and throws their rows away.
    #[pyo3(name = "executescript")]
    fn run_script(&self, py: Python<'_>, sql: &str) -> PyResult<()> {
        self.core.call(py, |state| {
            for statement in state.connection.parse_script(sql)? {
                if let Outcome::Rows(mut rows) = state.run(statement.text(), Vec::new())? {
                    while rows.next_chunk()?.is_some() {}
                }
            }
            Ok(())
        })
    }

    /// Ends the transaction that is open, if one is: by COMMIT or ROLLBACK.
    fn end(&self, py: Python<'_>, commit: bool) -> PyResult<()> {
        self.core.call(py, |state| {
            if state.connection.status() == TransactionStatus::Idle {
                return Ok(());
            }
            if commit && state.connection.status() == TransactionStatus::Failed {
                // COMMIT would roll back and say nothing.
                let error = Error::new(
                    SqlState::IN_FAILED_SQL_TRANSACTION,
                    "the transaction has failed and cannot be committed",
                );
                return Err(error.with_hint("Call rollback(), and run it again."));
            }
            let ended = state.connection.execute(if commit { "COMMIT" } else { "ROLLBACK" });
            state.note();
            ended.map(drop)
        })
    }

    /// `idle`, `open` or `failed`.
    #[getter]
    fn transaction_status(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.core.call(py, |state| {
            Ok(match state.connection.status() {
                TransactionStatus::Idle => "idle",
                TransactionStatus::InBlock => "open",
                TransactionStatus::Failed => "failed",
            })
        })
    }

    /// Whether statements commit by themselves.
    #[getter]
    fn get_autocommit(&self, py: Python<'_>) -> PyResult<bool> {
        self.core.call(py, |state| Ok(state.autocommit))
    }

    #[setter]
    fn set_autocommit(&self, py: Python<'_>, autocommit: bool) -> PyResult<()> {
        self.core.call(py, |state| {
            if state.connection.status() != TransactionStatus::Idle {
                let error = Error::new(
                    SqlState::ACTIVE_SQL_TRANSACTION,
                    "autocommit cannot change inside a transaction",
                );
                return Err(error.with_hint("Call commit() or rollback() first."));
            }
            state.autocommit = autocommit;
            Ok(())
        })
    }

    /// Sets a setting, as SET does.
    fn set(&self, py: Python<'_>, name: &str, value: &str) -> PyResult<()> {
        self.core.call(py, |state| {
            state.statements.clear();
            state.connection.set(name, value)
        })
    }

    /// Has a name stand for the batches of an object.
    fn register(&self, py: Python<'_>, name: &str, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let (schema, batches) = capsule::import(object)?;
        self.core.call(py, |state| {
            state.statements.clear();
            state.connection.register(name, &schema, batches)
        })
    }

    /// Takes it back.
    fn unregister(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.core.call(py, |state| {
            state.statements.clear();
            state.connection.unregister(name)
        })
    }

    /// Notices since they were last asked for.
    fn notices(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.core.call(py, |state| Ok(state.notices.drain(..).collect()))
    }

    /// Has the statement that is running fail; for other threads, and signal handlers.
    fn cancel(&self) {
        self.core.cancel.cancel();
    }

    /// Rolls back and closes. Again is fine.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if has_forked() {
            return Ok(());
        }
        let core = &self.core;
        interrupt::released(py, || core.close())?.map_err(|error| error::raised(py, &error))
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        if has_forked() {
            // Whoever goes on is told by what it does then.
            return Ok(false);
        }
        let core = &self.core;
        interrupt::released(py, || lock(&core.state).is_some_and(|state| state.is_none()))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        Err(error::interface(py, "a connection cannot be copied or sent to another process"))
    }
}
