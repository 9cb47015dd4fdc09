//! Where a block's transaction rests while its connection is idle, so that the timer can end it without the connection:
//! `idle_in_transaction_session_timeout`.
//!
//! When the time is over, the timer rolls it back and releases at once its rows, its snapshot, and the tables that its
//! plans pin. Other transactions may have dropped these tables. The connection finds out when its client returns. While a
//! program reads the rows of a query the connection is not idle.

use crate::cache::PlanCache;
use crate::database::Shared;
use crate::rows::{InTransaction, end_idle};
use crate::timer::Alarm;
use firn_base::sync::{Arc, Mutex, Weak};
use firn_base::{Error, SqlState};
use firn_txn::Transaction;
use std::time::Duration;

/// See the module.
pub(crate) struct Rest {
    /// `None` once it has been taken back or ended.
    at_rest: Mutex<Option<AtRest>>,
    /// The rows that are being read in it.
    streams: Vec<Weak<dyn InTransaction>>,
    timeout: Duration,
    /// The database to notify of its end, if it has changed the catalog. Weak, as the database has the timer, which has this.
    notify_of_ddl: Option<Weak<Shared>>,
}

/// What a block releases when it ends without its connection.
pub(crate) struct AtRest {
    pub transaction: Box<Transaction>,
    /// Plans that only it can use.
    pub own_plans: PlanCache,
}

/// The connection's half of it.
pub(crate) struct Resting {
    rest: Arc<Rest>,
    _alarm: Alarm,
}

impl Resting {
    /// Lays a transaction to rest; `changed_catalog` says whether it has changed the catalog.
    pub fn new(
        at_rest: AtRest,
        streams: Vec<Weak<dyn InTransaction>>,
        database: &Arc<Shared>,
        changed_catalog: bool,
        timeout: Duration,
    ) -> Resting {
        let notify_of_ddl = changed_catalog.then(|| Arc::downgrade(database));
        let rest = Arc::new(Rest { at_rest: Mutex::new(Some(at_rest)), streams, timeout, notify_of_ddl });
        let alarm = database.timer.set_end(timeout, &rest);
        Resting { rest, _alarm: alarm }
    }

    /// Takes the transaction back; `None` if it has been ended.
    pub fn wake(&self) -> Option<AtRest> {
        self.rest.at_rest.lock().take()
    }

    /// Whether it has been ended.
    pub fn has_ended(&self) -> bool {
        self.rest.at_rest.lock().is_none()
    }
}

impl Rest {
    /// Ends the transaction, or returns when to try again because its rows were read meanwhile.
    pub fn end(&self) -> Option<Duration> {
        let mut at_rest = self.at_rest.lock();
        if at_rest.is_some() && !end_idle(&self.streams, &ended()) {
            return Some(self.timeout);
        }
        // Under the lock: a connection that returns meanwhile begins when everything is released. Until then the
        // database is open, since the connection cannot be dropped either.
        if let Some(AtRest { transaction, own_plans }) = at_rest.take() {
            transaction.engine().statistics().idle_timeouts.count();
            transaction.rollback();
            drop(own_plans);
            if let Some(database) = self.notify_of_ddl.as_ref().and_then(Weak::upgrade) {
                database.note_end_of_ddl();
            }
        }
        None
    }
}

/// The error of a client that returns too late.
pub(crate) fn ended() -> Error {
    Error::new(
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        "the transaction has been rolled back due to idle-in-transaction timeout",
    )
    .with_hint("Use ROLLBACK and run it again; idle_in_transaction_session_timeout limits its idle time.")
}
