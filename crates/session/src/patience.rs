//! How long statements wait for tables that other transactions have locked, or write to.

use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{Error, Result, SqlState};
use firn_sql::{Cancel, cancelled};
use firn_txn::{Awaited, Engine, TableWaitLimit};
use std::time::Duration;

/// How long statements wait to change the catalog if `lock_timeout` is not set, and, while they keep others from changing it,
/// for tables. Other waits for tables and rows last until they succeed. But a client whose DDL is blocked by DDL on other tables
/// does not expect to wait at all, and should get an error.
const USUAL_FOR_DDL: Duration = Duration::from_secs(5);

/// What a connection's statements check while they wait.
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

    /// The form in which transactions call it.
    pub fn of_transactions(self: &Arc<Self>) -> TableWaitLimit {
        let patience = self.clone();
        Arc::new(move |awaited, waited| match awaited {
            Awaited::Table(table) => patience.go_on(&table.name(), false, waited),
            Awaited::TableForDdl(table) => patience.go_on(&table.name(), true, waited),
            Awaited::Catalog => patience.go_on_for_catalog(waited),
        })
    }

    /// Whether to continue to wait for a table: 55P03 after `lock_timeout`, 57014 if the statement is cancelled.
    pub fn go_on(&self, table: &str, for_ddl: bool, waited: Duration) -> Result<()> {
        match self.is_over(for_ddl.then_some(USUAL_FOR_DDL), waited)? {
            false => Ok(()),
            true => Err(not_available("canceling statement due to lock timeout".to_owned(), table)),
        }
    }

    /// The same for the catalog.
    fn go_on_for_catalog(&self, waited: Duration) -> Result<()> {
        match self.is_over(Some(USUAL_FOR_DDL), waited)? {
            false => Ok(()),
            true => {
                Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, "another transaction is changing the catalog")
                    .with_hint("Retry when it has ended, or set lock_timeout to wait longer."))
            }
        }
    }

    /// Whether the wait has lasted as long as `lock_timeout`, or else the usual limit, allows: 57014 if the statement is cancelled.
    fn is_over(&self, usual: Option<Duration>, waited: Duration) -> Result<bool> {
        if self.cancel.is_cancelled() {
            return Err(cancelled());
        }
        let longest = match self.lock_timeout.load(Ordering::Relaxed) {
            0 => usual,
            micros => Some(Duration::from_micros(micros)),
        };
        let is_over = longest.is_some_and(|longest| waited > longest);
        if is_over {
            self.engine.statistics().lock_timeouts.count();
        }
        Ok(is_over)
    }

    /// The error of a statement with NOWAIT: 55P03.
    pub fn nowait(table: &str) -> Error {
        not_available(format!("could not obtain lock on relation \"{table}\""), table)
    }
}

fn not_available(message: String, table: &str) -> Error {
    Error::new(SqlState::LOCK_NOT_AVAILABLE, message).with_hint(format!(
        "Other transactions write to table \"{table}\", or one has locked it; set lock_timeout to wait longer."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_txn::Config;

    #[test]
    fn without_a_limit_a_wait_lasts_for_ever_except_with_or_for_the_catalog() {
        let engine = Engine::open(Config::default()).unwrap();
        let cancel = Cancel::new();
        let patience = Patience::new(engine.clone(), cancel.clone());
        let waits = |waited| {
            let [table, for_ddl] = [false, true].map(|for_ddl| patience.go_on("t", for_ddl, waited).is_ok());
            [table, for_ddl, patience.go_on_for_catalog(waited).is_ok()]
        };
        let (seconds, hour) = (Duration::from_secs(4), Duration::from_secs(3600));
        assert_eq!((waits(seconds), waits(hour)), ([true; 3], [true, false, false]));
        patience.set_lock_timeout(Some(Duration::from_secs(60)));
        assert_eq!((waits(seconds), waits(hour)), ([true; 3], [false; 3]));
        assert_eq!(engine.statistics().lock_timeouts.get(), 5);
        patience.set_lock_timeout(None);
        cancel.cancel();
        assert_eq!(patience.go_on("t", false, seconds).unwrap_err().state(), SqlState::QUERY_CANCELED);
    }
}
