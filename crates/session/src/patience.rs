//! How long statements wait for tables that others have locked, or write to.

use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{Error, Result, SqlState};
use firn_sql::{Cancel, cancelled};
use firn_txn::{Engine, TablePatience};
use std::time::Duration;

/// How long that is where `lock_timeout` does not say: whoever waits for a table does not know for whom, so that rings of them
/// are not found, but end.
const USUAL: Duration = Duration::from_secs(5);

/// What a connection's statements look at while they wait.
pub(crate) struct Patience {
    engine: Arc<Engine>,
    cancel: Cancel,
    /// `lock_timeout` in microseconds; 0 for none. Relaxed: the connection's thread sets it between statements.
    lock_timeout: AtomicU64,
}

impl Patience {
    pub fn new(engine: Arc<Engine>, cancel: Cancel) -> Arc<Patience> {
        Arc::new(Patience { engine, cancel, lock_timeout: AtomicU64::new(0) })
    }

    pub fn set_lock_timeout(&self, timeout: Option<Duration>) {
        let micros = timeout.map_or(0, |timeout| timeout.as_micros().clamp(1, u128::from(u64::MAX)) as u64);
        self.lock_timeout.store(micros, Ordering::Relaxed);
    }

    /// As transactions ask for it.
    pub fn of_transactions(self: &Arc<Self>) -> TablePatience {
        let patience = self.clone();
        Arc::new(move |table, waited| patience.go_on(&table.name(), waited))
    }

    /// Whether to go on waiting for a table: 55P03 if not for longer than that, 57014 if the statement is cancelled.
    pub fn go_on(&self, table: &str, waited: Duration) -> Result<()> {
        if self.cancel.is_cancelled() {
            return Err(cancelled());
        }
        let longest = match self.lock_timeout.load(Ordering::Relaxed) {
            0 => USUAL,
            micros => Duration::from_micros(micros),
        };
        if waited <= longest {
            return Ok(());
        }
        self.engine.statistics().lock_timeouts.count();
        Err(not_available("canceling statement due to lock timeout".to_owned(), table))
    }

    /// Of a statement that does not wait: 55P03.
    pub fn nowait(table: &str) -> Error {
        not_available(format!("could not obtain lock on relation \"{table}\""), table)
    }
}

fn not_available(message: String, table: &str) -> Error {
    Error::new(SqlState::LOCK_NOT_AVAILABLE, message).with_hint(format!(
        "Other transactions write to table \"{table}\", or one has locked it; set lock_timeout to wait longer."
    ))
}
