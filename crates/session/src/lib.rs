//! FirnDB in your program: a [`Database`], [`Connection`]s to it, statements, rows.
//!
//! ```
//! use firn_base::Value;
//! use firn_session::Database;
//!
//! # fn main() -> firn_base::Result<()> {
//! let database = Database::memory()?; // or Database::open("directory")?
//! let mut connection = database.connect();
//! connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text NOT NULL, price numeric(10,2))")?;
//!
//! // Prepared statements take typed parameters and are the quickest way to run anything often.
//! let insert = connection.prepare("INSERT INTO orders VALUES ($1, $2, $3)")?;
//! for (id, item) in [(1, "pencil"), (2, "paper")] {
//!     let price = Value::Numeric { unscaled: 150 * i128::from(id), scale: 2 };
//!     connection.execute_statement(&insert, &[Value::BigInt(id), Value::Text(item.into()), price])?;
//! }
//!
//! // Queries yield Arrow batches, or values for a few rows.
//! let batches = connection.query("SELECT item, price FROM orders ORDER BY price DESC")?;
//! assert_eq!(batches[0].num_rows(), 2);
//! let row = connection.query_row("SELECT item FROM orders WHERE id = $1", &[Value::BigInt(2)])?;
//! assert_eq!(row, Some(vec![Value::Text("paper".into())]));
//! # Ok(())
//! # }
//! ```
//!
//! A connection is one client's state and is used by one thread at a time; give every thread its
//! own. Outside a transaction block every statement is a transaction, and is run again by itself
//! when it meets a concurrent change; [`Connection::transaction`] begins a block as a guard that
//! rolls back when dropped. Transactions are serializable unless they are asked to be less; one that
//! cannot be fails with 40001, at its commit at the latest, and is to be run again.
//!
//! Errors are [`firn_base::Error`]: SQLSTATE, message, detail, hint, as PostgreSQL has them.
//!
//! ```
//! # let mut connection = firn_session::Database::memory().unwrap().connect();
//! let error = connection.execute("SELECT * FROM nowhere").unwrap_err();
//! assert_eq!(error.state().as_str(), "42P01");
//! ```
//!
//! Programs that cannot spare the time for SQL reach the rows by themselves ([`native`]).
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
//! # Ok::<(), firn_base::Error>(())
//! ```
//!
//! It is also what the wire protocol stands on: [`Connection::run`] is all that a protocol needs
//! to drive a connection.

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
mod rest;
mod rows;
mod statement;
mod timer;
mod transaction;
mod utility;

#[cfg(test)]
mod anomaly_tests;
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
mod precision_tests;
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
pub mod native {
    pub use firn_txn::native::*;
    pub use firn_txn::{Guard, Isolation, Str, Text, Ticket, Transaction, pin};
}

pub use connection::{
    CancelHandle, CommandTag, Connection, Outcome, Ran, SessionSettings, TransactionStatus,
};
pub use copy::{CopyIn, CopyOut};
pub use database::Database;
pub use firn_base as base;
pub use firn_sql::arrow;
pub use firn_sql::copy::CopyFormat;
pub use firn_sql::notifications::Notification;
pub use firn_sql::parse::{Numbered, Parsed, number_parameters};
pub use firn_sql::settings::{cooling_time as parse_cooling_time, parse_memory};
pub use firn_sql::{Column, Datum, ResultChunk, arrow_type};
pub use firn_txn::{Config, Granularity, Isolation, Progress, Running};
pub use rows::{RowChunk, Rows};
pub use statement::Statement;
pub use transaction::Transaction;

/// Says how many bytes the queries that run in this process may hold together in their hash tables and sort buffers: those that
/// need more write to temporary files, or fail (53200). To be said before the first database is opened, else 55000; half of the
/// process's memory if it is not.
pub fn limit_query_memory(bytes: u64) -> base::Result<()> {
    match firn_sql::limit_query_memory(bytes) {
        true => Ok(()),
        false => Err(base::Error::new(
            base::SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "the memory of queries cannot be limited any more",
        )
        .with_hint("Say it once, before the first database is opened.")),
    }
}
