//! Transactions as a guard: for programs that would rather not write BEGIN and COMMIT.

use crate::connection::Connection;
use firn_base::Result;
use firn_sql::settings::Level;
use firn_sql::statement::{Isolation, TransactionModes};
use std::ops::{Deref, DerefMut};

/// A transaction block that rolls back when it is dropped before [`Transaction::commit`].
/// Statements are run through it as through the connection.
///
/// ```
/// # fn main() -> firn_base::Result<()> {
/// # let mut connection = firn_session::Database::memory()?.connect();
/// connection.execute("CREATE TABLE accounts (id integer PRIMARY KEY, balance bigint)")?;
/// connection.execute("INSERT INTO accounts VALUES (1, 100), (2, 0)")?;
///
/// let mut transaction = connection.transaction()?;
/// transaction.execute("UPDATE accounts SET balance = balance - 10 WHERE id = 1")?;
/// transaction.execute("UPDATE accounts SET balance = balance + 10 WHERE id = 2")?;
/// transaction.commit()?;
///
/// let mut transaction = connection.transaction()?;
/// transaction.execute("DELETE FROM accounts")?;
/// drop(transaction); // Never mind.
///
/// let row = connection.query_row("SELECT balance FROM accounts WHERE id = 2", &[])?;
/// assert_eq!(row, Some(vec![firn_base::Value::BigInt(10)]));
/// # Ok(())
/// # }
/// ```
pub struct Transaction<'c> {
    connection: &'c mut Connection,
    ended: bool,
}

impl Connection {
    /// Begins a transaction. An error inside it fails it; conflicts with other transactions
    /// (`Error::is_retryable`) are the caller's to retry from the beginning.
    pub fn transaction(&mut self) -> Result<Transaction<'_>> {
        self.transaction_with(TransactionModes::default())
    }

    /// As [`Connection::transaction`], at an isolation level: BEGIN ISOLATION LEVEL.
    pub fn transaction_at(&mut self, isolation: Isolation) -> Result<Transaction<'_>> {
        self.transaction_with(TransactionModes {
            level: Some(Level::As(isolation)),
            ..TransactionModes::default()
        })
    }

    fn transaction_with(&mut self, modes: TransactionModes) -> Result<Transaction<'_>> {
        self.recall();
        let begun = self.begin(modes);
        self.rest();
        begun?;
        Ok(Transaction { connection: self, ended: false })
    }
}

impl Transaction<'_> {
    /// Commits; returns when the changes are on disk, unless `synchronous_commit` is off.
    /// 25P02 if a statement in it has failed: everything has been rolled back then.
    pub fn commit(mut self) -> Result<()> {
        self.ended = true;
        self.connection.commit_block()
    }

    /// Rolls back.
    pub fn rollback(mut self) -> Result<()> {
        self.ended = true;
        self.connection.execute("ROLLBACK").map(drop)
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // Rolling back cannot fail; a statement may have ended the block already.
            let _ = self.connection.execute("ROLLBACK");
        }
    }
}
