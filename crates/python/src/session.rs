//! A connection to a database, for any number of threads, one at a time.

use crate::capsule;
use crate::database::{self, Open, Wishes, has_forked, refuse_fork};
use crate::error;
use crate::from_python::{Given, Reader};
use crate::interrupt::{self, interrupted, lock};
use crate::result::{Drawn, RowSet};
use crate::statements::{Bound as BoundStatement, Statements, located};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use firn_session::base::{Error, Result, SqlState};
use firn_session::server::{ServerConnection as _, parse_cooling_time, parse_memory};
use firn_session::{CancelHandle, CommandTag, Connection, Outcome, TransactionStatus};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The most notices that are kept until they are requested.
const MOST_NOTICES: usize = 100;
/// How often a batch of changes that commits by itself is run again after conflicts.
const MOST_RETRIES: u32 = 20;

/// The part of a connection that its results share.
pub struct Core {
    /// `None` once it is closed.
    state: Mutex<Option<State>>,
    cancel: CancelHandle,
    /// Results whose rows may still be fetched. Locked only briefly, and never during a wait, since it is locked
    /// with the interpreter held.
    results: Mutex<Vec<Weak<Mutex<Drawn>>>>,
}

/// The part that only one thread uses at a time.
pub struct State {
    connection: Connection,
    /// Declared after the connection, which is part of it, and so dropped later.
    database: Arc<Open>,
    statements: Statements,
    notices: VecDeque<String>,
    autocommit: bool,
    looking: Looking,
}

/// Whether a name without a table may be that of a frame of the program.
#[derive(Default)]
enum Looking {
    #[default]
    No,
    /// Frames may be looked for, except those that were found already.
    For { found: Vec<String> },
    /// The statement cannot run without the frame with this name.
    Missed(String),
}

/// A frame of the program that a statement reads by the name of its variable.
struct Frame {
    name: String,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

/// The result of a statement that may read frames.
enum Attempt<T> {
    Done(T),
    /// None: it reads a table of this name, which does not exist.
    Misses(String),
}

/// The savepoint before a statement that may have to run again with a frame.
const SAVEPOINT: &str = "firndb_frames";

impl Core {
    /// Calls `work` with the connection, while others may use the interpreter.
    pub fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut State) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.try_call(py, work)?.map_err(|error| error::raised(py, &error))
    }

    /// As [`Core::call`], but returns the engine's errors apart from exceptions of signal handlers.
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

    /// Registers a result, whose rows are closed with the connection.
    pub fn keep(&self, drawn: &Arc<Mutex<Drawn>>) {
        let mut results = self.results.lock();
        if results.len() == results.capacity() {
            results.retain(|result| result.strong_count() > 0);
        }
        results.push(Arc::downgrade(drawn));
    }

    /// Rolls back and drops everything; does nothing if that was done.
    fn close(&self) -> Result<()> {
        let Some(mut state) = lock(&self.state) else { return Err(error::interrupted()) };
        // Closing them may wait for the interpreter, and the thread that holds it may wait for the list (`keep`).
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

/// Drops a value of the engine without the interpreter: threads for which this waits may need it to release
/// memory of other libraries. In a forked child nothing is done: its parent's threads do not exist there, and
/// the files belong to the parent.
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
    // The interpreter has ended.
    if let Some((value, drop)) = value {
        drop(value);
    }
}

impl State {
    fn close(self) -> Result<()> {
        drop(self.connection);
        database::close(self.database)
    }

    /// Calls `work` with frames registered under their names, for this call only.
    fn attempt<T>(
        &mut self,
        frames: &[Frame],
        looks: bool,
        work: &mut dyn FnMut(&mut State) -> Result<T>,
    ) -> Result<Attempt<T>> {
        if !frames.is_empty() {
            self.statements.clear();
        }
        if looks {
            let found = frames.iter().map(|frame| frame.name.clone()).collect();
            self.looking = Looking::For { found };
        }
        self.statements.spares_block = looks;
        let registered = frames.iter().try_for_each(|Frame { name, schema, batches }| {
            self.connection.register(name, schema, batches.clone())
        });
        let done = registered.and_then(|()| work(self));
        for frame in frames {
            // A frame with a column that cannot be read has not been registered.
            let _ = self.connection.unregister(&frame.name);
        }
        if !frames.is_empty() {
            self.statements.clear();
        }
        self.statements.spares_block = false;
        match (done, std::mem::take(&mut self.looking)) {
            (Err(_), Looking::Missed(name)) => Ok(Attempt::Misses(name)),
            (done, _) => done.map(Attempt::Done),
        }
    }

    /// Records the name without a table, if that is the error and a frame may have the name.
    fn misses(&mut self, error: &Error) -> bool {
        let (Looking::For { found }, Some(name)) = (&self.looking, error.missing_relation()) else {
            return false;
        };
        if found.iter().any(|found| found == name) {
            return false;
        }
        self.looking = Looking::Missed(name.to_owned());
        true
    }

    /// Runs a statement; in a transaction that begins for it, unless statements commit by themselves.
    fn run(&mut self, sql: &str, given: Given) -> Result<Outcome> {
        let mut given = given;
        for is_last in [false, true] {
            let numbered = given.numbered.clone();
            let bound = match self.statements.bind(&mut self.connection, sql, given) {
                Ok(bound) => bound,
                Err(error) => {
                    self.misses(&error);
                    return Err(error);
                }
            };
            match self.run_bound(&bound) {
                // It was prepared before a table was replaced. Outside a block it has not done anything yet.
                Err(error)
                    if !is_last
                        && error.state() == SqlState::FEATURE_NOT_SUPPORTED
                        && error.routine() == Some("RevalidateCachedQuery")
                        && self.connection.status() == TransactionStatus::Idle =>
                {
                    self.statements.clear();
                    given = Given { values: bound.values, numbered };
                }
                done => return done,
            }
        }
        unreachable!("the second attempt returns")
    }

    fn run_bound(&mut self, bound: &BoundStatement) -> Result<Outcome> {
        self.begin_for(bound)?;
        // Without the savepoint the block would have failed when the frame is found.
        let is_guarded = matches!(self.looking, Looking::For { .. })
            && bound.statement.binds_when_run()
            && self.connection.status() == TransactionStatus::InBlock;
        if is_guarded {
            self.connection.execute(&format!("SAVEPOINT {SAVEPOINT}"))?;
        }
        let outcome = self.connection.run(&bound.statement, &bound.values);
        self.note();
        if let Err(error) = &outcome
            && bound.statement.binds_when_run()
            && self.misses(error)
            && is_guarded
        {
            self.connection.execute(&format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}"))?;
        }
        if is_guarded && self.connection.status() == TransactionStatus::InBlock {
            self.connection.execute(&format!("RELEASE SAVEPOINT {SAVEPOINT}"))?;
        }
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

    /// Begins a transaction for a statement, as the DB-API requires.
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

    /// Runs a change for each row of values: all of them succeed or none.
    fn run_many(&mut self, sql: &str, rows: &[Given]) -> Result<CommandTag> {
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

    fn run_all(&mut self, sql: &str, rows: &[Given]) -> Result<CommandTag> {
        let mut whole = CommandTag { verb: "", rows: Some(0) };
        for given in rows {
            match self.run(sql, given.clone())? {
                Outcome::Done(tag) => {
                    let rows = whole.rows.zip(tag.rows).map(|(sum, rows)| sum + rows);
                    whole = CommandTag { verb: tag.verb, rows };
                }
                // Rows of RETURNING, which were not requested.
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

/// Whether statements that were prepared before one of these mean the same afterwards.
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

/// A time, or never: the syntax of `ALTER TABLE … SET (freeze_after = …)`, but with a unit.
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
            looking: Looking::No,
        };
        Session { core: Arc::new(Core { state: Mutex::new(Some(state)), cancel, results: Mutex::default() }) }
    }

    /// Calls `work` with the connection; again with the frames that `find` returns for names without a table. The program's
    /// code runs while no lock of the engine is held.
    fn with_frames<T: Send>(
        &self,
        py: Python<'_>,
        find: Option<&Bound<'_, PyAny>>,
        mut work: impl FnMut(&mut State) -> Result<T> + Send,
    ) -> PyResult<T> {
        let (mut frames, mut find): (Vec<Frame>, _) = (Vec::new(), find);
        loop {
            let looks = find.is_some();
            let name = match self.core.call(py, |state| state.attempt(&frames, looks, &mut work))? {
                Attempt::Done(value) => return Ok(value),
                Attempt::Misses(name) => name,
            };
            let found = find.map(|find| find.call1((&name,))).transpose()?;
            match found.filter(|found| !found.is_none()) {
                Some(frame) => {
                    let (schema, batches) = capsule::import(&frame)?;
                    frames.push(Frame { name, schema, batches });
                }
                // Now the error is returned.
                None => find = None,
            }
        }
    }
}

#[pymethods]
impl Session {
    /// Another connection to the same database.
    fn connect(&self, py: Python<'_>, autocommit: bool) -> PyResult<Session> {
        self.core.call(py, |state| Ok(Session::new(state.database.clone(), autocommit)))
    }

    /// Runs one statement.
    #[pyo3(name = "execute", signature = (sql, values=None, find_frame=None))]
    fn run(
        &self,
        py: Python<'_>,
        sql: &str,
        values: Option<&Bound<'_, PyAny>>,
        find_frame: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<RowSet> {
        let given = Reader::new(sql).given(values)?;
        match self.with_frames(py, find_frame, |state| state.run(sql, given.clone()))? {
            Outcome::Rows(rows) => RowSet::of_rows(py, self.core.clone(), rows),
            Outcome::Done(tag) => Ok(RowSet::of_tag(self.core.clone(), tag)),
            _ => Ok(RowSet::of_tag(self.core.clone(), CommandTag { verb: "", rows: None })),
        }
    }

    /// Runs a statement that changes rows for each sequence of values.
    #[pyo3(name = "executemany", signature = (sql, rows, find_frame=None))]
    fn run_many(
        &self,
        py: Python<'_>,
        sql: &str,
        rows: &Bound<'_, PyAny>,
        find_frame: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<RowSet> {
        let mut reader = Reader::new(sql);
        let rows = rows.try_iter()?.map(|row| reader.given(Some(&row?))).collect::<PyResult<Vec<_>>>()?;
        let tag = self.with_frames(py, find_frame, |state| state.run_many(sql, &rows))?;
        Ok(RowSet::of_tag(self.core.clone(), tag))
    }

    /// Runs statements separated by semicolons and discards their rows.
    #[pyo3(name = "executescript", signature = (sql, find_frame=None))]
    fn run_script(&self, py: Python<'_>, sql: &str, find_frame: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let texts = self.core.call(py, |state| {
            let statements = state.connection.parse_script(sql)?;
            Ok(statements.iter().map(|statement| statement.text().to_owned()).collect::<Vec<_>>())
        })?;
        for text in texts {
            self.with_frames(py, find_frame, |state| {
                let given = Given { values: Vec::new(), numbered: None };
                if let Outcome::Rows(mut rows) = state.run(&text, given)? {
                    while rows.next_chunk()?.is_some() {}
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Ends the open transaction, if there is one: by COMMIT or ROLLBACK.
    fn end(&self, py: Python<'_>, commit: bool) -> PyResult<()> {
        self.core.call(py, |state| {
            if state.connection.status() == TransactionStatus::Idle {
                return Ok(());
            }
            if commit && state.connection.status() == TransactionStatus::Failed {
                // COMMIT would roll back without an error.
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

    /// Registers the batches of an object under a name.
    fn register(&self, py: Python<'_>, name: &str, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let (schema, batches) = capsule::import(object)?;
        self.core.call(py, |state| {
            state.statements.clear();
            state.connection.register(name, &schema, batches)
        })
    }

    /// Removes it.
    fn unregister(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.core.call(py, |state| {
            state.statements.clear();
            state.connection.unregister(name)
        })
    }

    /// The notices since the last call.
    fn notices(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.core.call(py, |state| Ok(state.notices.drain(..).collect()))
    }

    /// Cancels the running statement; for other threads, and signal handlers.
    fn cancel(&self) {
        self.core.cancel.cancel();
    }

    /// Rolls back and closes. May be called again.
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
            // The next use returns an error.
            return Ok(false);
        }
        let core = &self.core;
        interrupt::released(py, || lock(&core.state).is_some_and(|state| state.is_none()))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        Err(error::interface(py, "a connection cannot be copied or sent to another process"))
    }
}
