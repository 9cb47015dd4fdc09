//! Where a block's transaction rests while its connection is idle, so that it can be ended without it:
//! `idle_in_transaction_session_timeout`.
//!
//! The timer rolls it back when its time has come, and what it held is free at once. The connection finds
//! out when it comes back. While a program draws the rows of a query the connection is not idle.

use crate::rows::{InTransaction, end_idle};
use crate::timer::{Alarm, Timer};
use firn_base::sync::{Arc, Mutex, Weak};
use firn_base::{Error, SqlState};
use firn_txn::Transaction;
use std::time::Duration;

/// See the module.
pub(crate) struct Rest {
    /// Nothing once it has been taken back or ended.
    transaction: Mutex<Option<Transaction>>,
    /// The rows that are being read in it.
    streams: Vec<Weak<dyn InTransaction>>,
    timeout: Duration,
}

/// The connection's end of it.
pub(crate) struct Resting {
    rest: Arc<Rest>,
    _alarm: Alarm,
}

impl Resting {
    /// Lays the transaction to rest.
    pub fn new(
        transaction: Transaction,
        streams: Vec<Weak<dyn InTransaction>>,
        timer: &Timer,
        timeout: Duration,
    ) -> Resting {
        let rest = Arc::new(Rest { transaction: Mutex::new(Some(transaction)), streams, timeout });
        let alarm = timer.set_end(timeout, &rest);
        Resting { rest, _alarm: alarm }
    }

    /// Takes the transaction back; `None` if it has been ended.
    pub fn wake(self) -> Option<Transaction> {
        self.rest.transaction.lock().take()
    }

    /// Whether it has been ended.
    pub fn has_ended(&self) -> bool {
        self.rest.transaction.lock().is_none()
    }
}

impl Rest {
    /// Ends the transaction, or says when to try again because its rows were drawn meanwhile.
    pub fn end(&self) -> Option<Duration> {
        let mut transaction = self.transaction.lock();
        if transaction.is_some() && !end_idle(&self.streams, &ended()) {
            return Some(self.timeout);
        }
        // Under the lock: a connection that comes back meanwhile begins when everything is free.
        if let Some(transaction) = transaction.take() {
            transaction.engine().statistics().idle_timeouts.count();
            transaction.rollback();
        }
        None
    }
}

/// What whoever comes back too late is told.
pub(crate) fn ended() -> Error {
    Error::new(
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        "the transaction has been rolled back due to idle-in-transaction timeout",
    )
    .with_hint(
        "Use ROLLBACK and run it again; idle_in_transaction_session_timeout says how long it may idle.",
    )
}
