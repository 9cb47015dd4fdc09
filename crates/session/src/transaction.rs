//! Transactions as guards, and closures that run again after conflicts: for programs that prefer them to BEGIN
//! and COMMIT.

use crate::connection::{Connection, TransactionStatus};
use firn_base::{Error, Result, SqlState};
use firn_sql::settings::Level;
use firn_sql::statement::{Isolation, TransactionModes};
use std::ops::{Deref, DerefMut};

/// How often [`Connection::retry`] runs its closure again.
const MOST_RETRIES: u32 = 100;

/// The name of the savepoints that nested transactions begin with. If several have it, SQL means the last.
const SAVEPOINT: &str = "firndb_transaction";

/// A transaction that rolls back when it is dropped before [`Transaction::commit`].
/// Statements are run through it as through the connection.
///
/// ```
/// # fn main() -> firn_session::Result<()> {
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
/// drop(transaction); // Rolls back.
///
/// let balance: Option<i64> = connection.query_row_as("SELECT balance FROM accounts WHERE id = 2", ())?;
/// assert_eq!(balance, Some(10));
/// # Ok(())
/// # }
/// ```
///
/// A transaction within a transaction begins at a savepoint ([`Transaction::savepoint`]).
pub struct Transaction<'c> {
    connection: &'c mut Connection,
    extent: Extent,
    ended: bool,
}

/// What a guard ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// The transaction block.
    Block,
    /// The changes since a savepoint.
    Savepoint,
}

impl Connection {
    /// Begins a transaction at the isolation level of `default_transaction_isolation`, which is serializable unless it is set.
    /// Within a transaction it begins a nested one ([`Transaction::savepoint`]).
    ///
    /// After an error of a statement the transaction has failed: every statement but its end is refused (25P02). After a conflict
    /// with another transaction ([`Error::is_retryable`]) the whole transaction must be run again, which [`Connection::retry`] does.
    pub fn transaction(&mut self) -> Result<Transaction<'_>> {
        self.transaction_with(TransactionModes::default())
    }

    /// As [`Connection::transaction`], at an isolation level: BEGIN ISOLATION LEVEL. 25001 within a transaction.
    pub fn transaction_at(&mut self, isolation: Isolation) -> Result<Transaction<'_>> {
        self.refuse_own_level()?;
        self.transaction_with(at(isolation))
    }

    fn refuse_own_level(&self) -> Result<()> {
        match self.in_block() {
            true => Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "a nested transaction cannot have an isolation level of its own",
            )),
            false => Ok(()),
        }
    }

    fn transaction_with(&mut self, modes: TransactionModes) -> Result<Transaction<'_>> {
        if self.in_block() {
            self.execute(&format!("SAVEPOINT {SAVEPOINT}"))?;
            return Ok(Transaction { connection: self, extent: Extent::Savepoint, ended: false });
        }
        self.recall();
        let begun = self.begin(modes);
        self.rest();
        begun?;
        Ok(Transaction { connection: self, extent: Extent::Block, ended: false })
    }

    /// Runs `work` in a transaction and commits it. After a conflict with another transaction (40001, 40P01) it is rolled back
    /// and `work` runs again from its beginning, so it should change nothing else. After any other error, or after a hundred
    /// conflicts, it is rolled back and the error is returned. A panic of `work` rolls it back as well.
    ///
    /// Within a transaction `work` runs once, in a nested one: the outermost one must be run again.
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// # connection.execute("CREATE TABLE accounts (id integer PRIMARY KEY, balance bigint)")?;
    /// # connection.execute("INSERT INTO accounts VALUES (1, 100), (2, 0)")?;
    /// let left = connection.retry(|transaction| {
    ///     let balance: Option<i64> =
    ///         transaction.query_row_as("SELECT balance FROM accounts WHERE id = $1", (1,))?;
    ///     let left = balance.unwrap_or(0) - 30;
    ///     transaction.execute_statement("UPDATE accounts SET balance = $1 WHERE id = 1", (left,))?;
    ///     Ok(left)
    /// })?;
    /// assert_eq!(left, 70);
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry<T>(&mut self, work: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        self.retry_with(TransactionModes::default(), work)
    }

    /// As [`Connection::retry`], at an isolation level. 25001 within a transaction.
    pub fn retry_at<T>(
        &mut self,
        isolation: Isolation,
        work: impl FnMut(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        self.refuse_own_level()?;
        self.retry_with(at(isolation), work)
    }

    fn retry_with<T>(
        &mut self,
        modes: TransactionModes,
        mut work: impl FnMut(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let is_nested = self.in_block();
        let mut retries = 0;
        loop {
            let mut transaction = self.transaction_with(modes)?;
            let outcome = work(&mut transaction);
            // `work` may have hidden the conflict behind another error, or have continued.
            let met_conflict = transaction.failed_of_conflict();
            let outcome = match outcome {
                Ok(value) => transaction.commit().map(|()| value),
                Err(error) => {
                    drop(transaction);
                    Err(error)
                }
            };
            match outcome {
                Err(error)
                    if !is_nested && (met_conflict || error.is_retryable()) && retries < MOST_RETRIES =>
                {
                    retries += 1;
                    self.pause(retries)?;
                }
                outcome => return outcome,
            }
        }
    }
}

fn at(isolation: Isolation) -> TransactionModes {
    TransactionModes { level: Some(Level::As(isolation)), ..TransactionModes::default() }
}

impl Transaction<'_> {
    /// Begins a nested transaction: SAVEPOINT. Its [commit](Transaction::commit) keeps its changes in this transaction:
    /// RELEASE SAVEPOINT. Dropping it, or its [rollback](Transaction::rollback), takes them back: ROLLBACK TO
    /// SAVEPOINT. Then this transaction continues, even after an error.
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// connection.execute("CREATE TABLE visitors (name text PRIMARY KEY)")?;
    /// let mut transaction = connection.transaction()?;
    /// for name in ["Ada", "Grace", "Ada"] {
    ///     let mut attempt = transaction.savepoint()?;
    ///     match attempt.execute_statement("INSERT INTO visitors VALUES ($1)", (name,)) {
    ///         Ok(_) => attempt.commit()?,
    ///         Err(error) => assert_eq!(error.state().as_str(), "23505"), // The attempt rolls back.
    ///     }
    /// }
    /// transaction.commit()?;
    /// assert_eq!(connection.query_row_as::<i64>("SELECT count(*) FROM visitors", ())?, Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&mut self) -> Result<Transaction<'_>> {
        match self.in_block() {
            true => self.connection.transaction(),
            false => Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SAVEPOINT can only be used in transaction blocks",
            )
            .with_detail("A statement has ended the transaction.")),
        }
    }

    /// Commits; returns when the changes are on disk, unless `synchronous_commit` is off.
    /// 25P02 if a statement in it has failed: everything has been rolled back then. The commit of a nested transaction
    /// only moves its changes to the outer one.
    pub fn commit(mut self) -> Result<()> {
        self.ended = true;
        match self.extent {
            Extent::Block => self.connection.commit_block(),
            Extent::Savepoint => {
                if self.connection.status() == TransactionStatus::Failed {
                    self.roll_back_to_savepoint()?;
                    return Err(Error::new(
                        SqlState::IN_FAILED_SQL_TRANSACTION,
                        "the nested transaction had failed and has been rolled back",
                    ));
                }
                self.connection.execute(&format!("RELEASE SAVEPOINT {SAVEPOINT}")).map(drop)
            }
        }
    }

    /// Rolls back.
    pub fn rollback(mut self) -> Result<()> {
        self.ended = true;
        self.roll_back()
    }

    fn roll_back(&mut self) -> Result<()> {
        match self.extent {
            Extent::Block => self.connection.execute("ROLLBACK").map(drop),
            Extent::Savepoint => self.roll_back_to_savepoint(),
        }
    }

    fn roll_back_to_savepoint(&mut self) -> Result<()> {
        let script = format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}; RELEASE SAVEPOINT {SAVEPOINT}");
        self.connection.execute(&script).map(drop)
    }

    /// Whether it has failed because of a conflict with another transaction.
    fn failed_of_conflict(&self) -> bool {
        let failure = self.connection.block.left_open().and_then(|(_, failure)| failure);
        failure.is_some_and(|error| error.is_retryable())
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
        // A statement may have ended it already.
        if !self.ended && self.connection.in_block() {
            // Rolling back cannot fail, but a statement may have released the savepoint.
            let _ = self.roll_back();
        }
    }
}
