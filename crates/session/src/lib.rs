//! The embedded API: a [`Database`], [`Connection`]s to it, statements, rows.
//!
//! Also what the wire protocol stands on: a connection here is one client's state (transaction,
//! settings, prepared statements), and [`Connection::run`] is all that a protocol needs to drive it.

use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlType, Value};

/// An open database; cheap to clone, closed when the last handle goes.
#[derive(Clone)]
pub struct Database {}

impl Database {
    /// Opens the database in `directory`, creating it if the directory is empty or missing.
    pub fn open(directory: impl AsRef<std::path::Path>) -> Result<Database> {
        todo!("{:?}", directory.as_ref())
    }

    /// A database in memory only.
    pub fn memory() -> Result<Database> {
        todo!()
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        todo!()
    }

    /// Writes a checkpoint now.
    pub fn checkpoint(&self) -> Result<()> {
        todo!()
    }

    /// Flushes and closes; every connection must be gone or idle.
    pub fn close(self) -> Result<()> {
        todo!()
    }
}

/// A column of a result.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
}

/// A prepared statement, cheap to clone. It stays valid when the catalog changes: it is planned
/// anew when run, and fails with 0A000 if its result columns came out different.
#[derive(Clone)]
pub struct Statement {}

impl Statement {
    /// The types of `$1`, `$2`, …
    pub fn parameters(&self) -> &[SqlType] {
        todo!()
    }

    /// The columns it yields; `None` if it yields no rows.
    pub fn columns(&self) -> Option<&Arc<[Column]>> {
        todo!()
    }
}

/// Whether a connection is inside a transaction block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionStatus {
    /// No.
    Idle,
    /// Yes.
    InBlock,
    /// Yes, and it has failed: only ROLLBACK helps.
    Failed,
}

/// What running one statement yields.
pub enum Outcome {
    /// Rows, to be drawn from [`Rows`]; the tag is complete once they are drained.
    Rows(Rows),
    /// Nothing but a command tag such as `INSERT 0 3`, `BEGIN`, `CREATE TABLE`.
    Done(CommandTag),
    /// The client is to send data.
    CopyIn(CopyIn),
    /// Data for the client.
    CopyOut(CopyOut),
    /// The statement text was empty.
    Empty,
}

/// What a statement did, as PostgreSQL's command tags say it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandTag {
    /// `SELECT`, `INSERT`, `CREATE TABLE`, …
    pub verb: &'static str,
    /// Rows selected or changed, for the verbs that tell.
    pub rows: Option<u64>,
}

impl std::fmt::Display for CommandTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.verb, self.rows) {
            ("INSERT", Some(rows)) => write!(f, "INSERT 0 {rows}"),
            (verb, Some(rows)) => write!(f, "{verb} {rows}"),
            (verb, None) => f.write_str(verb),
        }
    }
}

/// Rows in the making.
pub struct Rows {}

/// Some rows of a result.
pub enum RowChunk {
    /// Row-major values: as many per row as there are columns. What the short path yields.
    Values(Vec<Value>),
    /// An Arrow batch. What the analytical path yields.
    Batch(arrow_array::RecordBatch),
}

impl Rows {
    /// The columns.
    pub fn columns(&self) -> &Arc<[Column]> {
        todo!()
    }

    /// The next rows; `None` at the end. After an error the statement has been rolled back.
    pub fn next_chunk(&mut self) -> Result<Option<RowChunk>> {
        todo!()
    }

    /// The command tag, once `next_chunk` has returned `None`.
    pub fn tag(&self) -> CommandTag {
        todo!()
    }
}

/// COPY … FROM STDIN in progress. Dropping it aborts the statement.
pub struct CopyIn {}

impl CopyIn {
    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        todo!()
    }

    /// Takes the next bytes of data, cut anywhere.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        let _ = data;
        todo!()
    }

    /// Ends the data.
    pub fn finish(self) -> Result<CommandTag> {
        todo!()
    }
}

/// COPY … TO STDOUT in progress.
pub struct CopyOut {}

impl CopyOut {
    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        todo!()
    }

    /// The next bytes, whole lines; `None` at the end.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        todo!()
    }

    /// The command tag, once `next_chunk` has returned `None`.
    pub fn tag(&self) -> CommandTag {
        todo!()
    }
}

/// Stops what a connection is running, from another thread.
#[derive(Clone)]
pub struct CancelHandle {}

impl CancelHandle {
    /// The statement running now, if any, fails with 57014.
    pub fn cancel(&self) {
        todo!()
    }
}

/// One client's state. Dropping it rolls back an open transaction.
pub struct Connection {}

impl Connection {
    /// Splits a script into statements. Syntax errors (42601) carry their position in the script.
    pub fn parse_script(&self, script: &str) -> Result<Vec<String>> {
        todo!("{script}")
    }

    /// Prepares one statement. Types of parameters may be given; the others are inferred (42P18 if
    /// they cannot be). An empty text is fine.
    pub fn prepare_typed(&mut self, sql: &str, types: &[Option<SqlType>]) -> Result<Statement> {
        todo!("{sql} {types:?}")
    }

    /// Prepares one statement, inferring the types of its parameters.
    pub fn prepare(&mut self, sql: &str) -> Result<Statement> {
        self.prepare_typed(sql, &[])
    }

    /// Runs a statement. Rows must be drained or dropped before the next call (they borrow nothing,
    /// so that a portal can keep them; running another statement first is fine in a transaction
    /// block and finishes them otherwise).
    pub fn run(&mut self, statement: &Statement, parameters: &[Value]) -> Result<Outcome> {
        let _ = (statement, parameters);
        todo!()
    }

    /// Runs one statement that yields no rows, or whose rows nobody wants; how many it touched.
    pub fn execute(&mut self, sql: &str) -> Result<u64> {
        todo!("{sql}")
    }

    /// Runs one query and collects its rows as Arrow batches.
    pub fn query(&mut self, sql: &str) -> Result<Vec<arrow_array::RecordBatch>> {
        todo!("{sql}")
    }

    /// Whether it is in a transaction block.
    pub fn status(&self) -> TransactionStatus {
        todo!()
    }

    /// Fails the open transaction block, if there is one: for mistakes that a protocol finds before a
    /// statement reaches the session. Only ROLLBACK helps then.
    pub fn fail_block(&mut self) {
        todo!()
    }

    /// The value of a setting, as SHOW prints it.
    pub fn setting(&self, name: &str) -> Result<String> {
        todo!("{name}")
    }

    /// Sets a setting for the session, as SET does: for start-up parameters.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        todo!("{name} {value}")
    }

    /// Warnings and notices since the last call, in order; an [`Error`] each, with SQLSTATE.
    pub fn take_notices(&mut self) -> Vec<Error> {
        todo!()
    }

    /// A handle to cancel with.
    pub fn cancel_handle(&self) -> CancelHandle {
        todo!()
    }
}
