//! FirnDB in your program: a [`Database`], [`Connection`]s to it, statements, rows.
//!
//! | to | call |
//! |---|---|
//! | run statements without parameters | [`Connection::execute`] |
//! | run one with parameters | [`Connection::execute_statement`] |
//! | collect rows | [`query_as`](Connection::query_as) as Rust values, [`query`](Connection::query) as Arrow batches, [`query_values`](Connection::query_values) as [`Value`]s |
//! | read one row | [`query_row_as`](Connection::query_row_as), [`query_row`](Connection::query_row) |
//! | read a large result | [`Connection::stream`] |
//! | run a statement often | [`Connection::prepare`] |
//! | run a transaction, again after conflicts | [`Connection::retry`] |
//! | control a transaction yourself | [`Connection::transaction`], [`Transaction::savepoint`] |
//! | load or write many rows | [`copy_from`](Connection::copy_from), [`copy_to`](Connection::copy_to), [`CopyIn`], [`CopyOut`] |
//! | read Arrow batches as a table | [`Connection::register`] |
//! | stop a statement from another thread | [`Connection::cancel_handle`] |
//! | reach rows without SQL | [`native`] |
//! | build a server | [`server`] |
//!
//! ```
//! use firn_session::{Database, Result};
//!
//! # fn main() -> Result<()> {
//! let database = Database::memory()?; // or Database::open("directory")?
//! let mut connection = database.connect();
//! connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text NOT NULL, price numeric(10,2), note text)")?;
//!
//! // Prepared statements are the quickest way to run anything often. None is NULL.
//! let insert = connection.prepare("INSERT INTO orders VALUES ($1, $2, $3, $4)")?;
//! for (id, item) in [(1, "pencil"), (2, "paper")] {
//!     connection.execute_statement(&insert, (id, item, 1.5 * id as f64, None::<&str>))?;
//! }
//!
//! // Rows as Rust values: a tuple, or one value of a result with one column.
//! let orders: Vec<(i64, String, f64, Option<String>)> =
//!     connection.query_as("SELECT * FROM orders WHERE id <= $1 ORDER BY id", (2,))?;
//! assert_eq!(orders[1], (2, "paper".to_owned(), 3.0, None));
//! let count: Option<i64> = connection.query_row_as("SELECT count(*) FROM orders", ())?;
//! assert_eq!(count, Some(2));
//!
//! // Rows as Arrow batches.
//! let batches = connection.query("SELECT item, price FROM orders ORDER BY price DESC")?;
//! assert_eq!(batches[0].num_rows(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Transactions
//!
//! A connection is one client's state and is used by one thread at a time; give every thread its
//! own. Outside a transaction every statement is one, and is run again automatically when it conflicts with a concurrent change.
//!
//! Transactions are serializable unless a weaker level is set. One that
//! cannot be serialized fails with 40001, at its commit at the latest, and must be run again. [`Connection::retry`] does so:
//!
//! ```
//! # use firn_session::{Database, Result};
//! # fn main() -> Result<()> {
//! # let mut connection = Database::memory()?.connect();
//! connection.execute("CREATE TABLE counters (name text PRIMARY KEY, value bigint NOT NULL)")?;
//! connection.execute("INSERT INTO counters VALUES ('visits', 0)")?;
//! let visits = connection.retry(|transaction| {
//!     let visits: Option<i64> =
//!         transaction.query_row_as("SELECT value FROM counters WHERE name = $1", ("visits",))?;
//!     let visits = visits.unwrap_or(0) + 1;
//!     transaction.execute_statement("UPDATE counters SET value = $1 WHERE name = $2", (visits, "visits"))?;
//!     Ok(visits)
//! })?;
//! assert_eq!(visits, 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`Connection::transaction`] returns a guard, a [`Transaction`], which rolls back when it is dropped; its
//! [`savepoint`](Transaction::savepoint) is a transaction within it.
//!
//! # Values
//!
//! Parameters are tuples of what converts into a [`Value`] ([`Parameters`]); rows are read as what a `Value` converts to
//! ([`FromValue`], [`FromRow`]). `Option` is the type of values that may be NULL. Types without a Rust type of their own are
//! `Value`s, such as [`Value::Date`], which counts days since 1970-01-01. A cast of text in the
//! statement, `$1::text::date` and `day::text`, avoids them.
//!
//! # Large results, COPY
//!
//! ```
//! # use firn_session::{Database, Result};
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! # let mut connection = Database::memory()?.connect();
//! connection.execute("CREATE TABLE readings (sensor integer, value double precision)")?;
//! let csv: &[u8] = b"1,20.5\n2,NaN\n1,21.0\n"; // or a file, or anything else that is io::Read
//! connection.copy_from("COPY readings FROM STDIN (FORMAT csv)", csv)?;
//!
//! // Rows are computed while they are read: the memory used does not depend on their number.
//! let mut largest = f64::MIN;
//! for row in connection.stream("SELECT sensor, value FROM readings", ())?.into_typed()? {
//!     let (_, value): (i32, f64) = row?;
//!     largest = largest.max(value);
//! }
//! assert_eq!(largest, 21.0);
//! for batch in connection.stream("SELECT sensor, value FROM readings", ())? {
//!     assert!(batch?.num_rows() > 0); // an arrow::RecordBatch
//! }
//!
//! let mut out = Vec::new(); // or anything else that is io::Write
//! assert_eq!(connection.copy_to("COPY readings TO STDOUT (FORMAT csv)", &mut out)?, 3);
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! An [`Error`] has SQLSTATE, message, detail, hint and position, as PostgreSQL has them. The documentation of a method names
//! the SQLSTATEs that it adds to those of the statement.
//!
//! ```
//! use firn_session::SqlState;
//! # let mut connection = firn_session::Database::memory().unwrap().connect();
//! let error = connection.execute("SELECT * FROM nowhere").unwrap_err();
//! assert_eq!(error.state(), SqlState::UNDEFINED_TABLE);
//! assert_eq!(error.state().as_str(), "42P01");
//! assert_eq!(error.message(), "relation \"nowhere\" does not exist");
//! ```
//!
//! # Without SQL
//!
//! Programs for which SQL is too slow read and change rows directly ([`native`]).
//!
//! ```
//! use firn_session::native::{TableAccess, pin};
//! # let database = firn_session::Database::memory()?;
//! # let mut connection = database.connect();
//! connection.execute("CREATE TABLE stock (item integer PRIMARY KEY, quantity integer NOT NULL)")?;
//! connection.execute("INSERT INTO stock VALUES (7, 100)")?;
//!
//! let stock = TableAccess::open(database.engine(), "stock")?;
//! let by_item = stock.key::<(i32,)>("stock_pkey")?;
//! let quantity = stock.columns::<(i32,)>(&["quantity"])?;
//! let left = database.engine().transact(|tx| {
//!     let guard = &pin();
//!     let (row, (left,)) = tx.find_as(&by_item, &(7,), &quantity, guard).expect("we sell it");
//!     tx.update_as(&quantity, row, &(left - 3,), guard)?;
//!     Ok(left - 3)
//! })?;
//! assert_eq!(left, 97);
//! # Ok::<(), firn_session::Error>(())
//! ```

mod acknowledge;
mod block;
mod cache;
mod connection;
mod copy;
mod cursor;
mod database;
mod errors;
mod new_file;
mod parameters;
mod patience;
mod place;
mod positioned;
mod queries;
mod read_after;
mod rest;
mod routing;
mod rows;
pub mod server;
mod statement;
mod timer;
mod transaction;
mod utility;
mod values;

#[cfg(test)]
mod anomaly_tests;
#[cfg(test)]
mod api_tests;
#[cfg(test)]
mod between_sessions_tests;
#[cfg(test)]
mod cancelled_tests;
#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod condition_tests;
#[cfg(test)]
mod csv_tests;
#[cfg(test)]
mod cursor_tests;
#[cfg(test)]
mod deferred_tests;
#[cfg(test)]
mod dependency_tests;
#[cfg(test)]
mod depth_tests;
#[cfg(test)]
mod drawn_tests;
#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod generated_tests;
#[cfg(test)]
mod index_tests;
#[cfg(test)]
mod interrupted_tests;
#[cfg(test)]
mod locking_tests;
#[cfg(test)]
mod pattern_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod position_tests;
#[cfg(test)]
mod precision_tests;
#[cfg(test)]
mod replica_tests;
#[cfg(test)]
mod routing_tests;
#[cfg(test)]
mod shared_plan_tests;
#[cfg(test)]
mod source_tests;
#[cfg(test)]
mod table_waiting_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod utility_tests;
#[cfg(test)]
mod waiting_tests;
#[cfg(test)]
mod zone_tests;

/// Rows without SQL: access paths with the types of their values, and transactions as closures.
///
/// A [`RowTransaction`] is the argument of the closures: it reads and changes rows, and runs no SQL. A [`Guard`] keeps what it
/// has read from being freed.
pub mod native {
    pub use firn_txn::native::*;
    pub use firn_txn::{Guard, Isolation, Str, Text, Ticket, Transaction as RowTransaction, pin};
}

pub use connection::{CancelHandle, CommandTag, Connection, Outcome, TransactionStatus};
pub use copy::{CopyIn, CopyOut};
pub use database::Database;
pub use firn_base as base;
pub use firn_base::{ArrayValue, Error, Interval, Numeric, Result, SqlState, Type, TypeId, Value};
#[doc(hidden)]
pub use firn_sql::Forced;
pub use firn_sql::arrow;
pub use firn_sql::copy::CopyFormat;
pub use firn_sql::notifications::Notification;
pub use firn_sql::{Column, arrow_type};
pub use firn_txn::{Config, Granularity, Isolation, Progress, Running};
pub use queries::AsStatement;
pub use rows::{Batches, Rows, TypedRows};
pub use statement::Statement;
pub use transaction::Transaction;
pub use values::{FromRow, FromValue, Parameters};

/// Sets the limit in bytes of the hash tables and sort buffers of all queries in this process. Queries that need more write to
/// temporary files, or fail (53200). Half of the process's memory unless it is set. 55000 once a database has been opened.
pub fn limit_query_memory(bytes: u64) -> base::Result<()> {
    match firn_sql::limit_query_memory(bytes) {
        true => Ok(()),
        false => Err(base::Error::new(
            base::SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "the memory limit of queries cannot be changed any more",
        )
        .with_hint("Set it once, before the first database is opened.")),
    }
}
