//! Reports long transactions: what they retain costs all others (docs/mvcc.md).
//!
//! A thread of the server checks periodically and writes to standard error: about every transaction that has
//! become too old, and again whenever its age has doubled since the last report.

use firn_base::sync::mpsc::{self, RecvTimeoutError, Sender};
use firn_base::thread::{self, JoinHandle};
use firn_session::{Database, Running};
use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

/// How often it checks, unless transactions younger than twice this are to be reported.
const INTERVAL: Duration = Duration::from_secs(5);

/// The thread; it ends when this is dropped.
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to watch for transactions that are older than `age`.
    pub fn start(database: Database, age: Duration) -> Watch {
        let (stop, stopped) = mpsc::channel();
        let body = move || {
            let mut reports = Reports { age, next_reports: HashMap::new() };
            let interval = INTERVAL.min(age / 2).max(Duration::from_millis(10));
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                for line in reports.on(&database.engine().running()) {
                    let _ = writeln!(std::io::stderr(), "{line}"); // Standard error may be closed.
                }
            }
        };
        Watch { stop: Some(stop), thread: Some(thread::spawn("firn-watch", body)) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

/// The reports so far.
struct Reports {
    age: Duration,
    /// The age of the next report, by transaction.
    next_reports: HashMap<u64, Duration>,
}

impl Reports {
    /// The reports about the running transactions.
    fn on(&mut self, running: &[Running]) -> Vec<String> {
        self.next_reports.retain(|id, _| running.iter().any(|transaction| transaction.id == *id));
        let mut lines = Vec::new();
        for transaction in running {
            let due = self.next_reports.get(&transaction.id).copied().unwrap_or(self.age);
            // A transaction that reads the newest state and has written nothing costs nothing.
            if transaction.age < due || !transaction.writes && transaction.commits_behind == 0 {
                continue;
            }
            self.next_reports.insert(transaction.id, 2 * transaction.age);
            let what = if transaction.writes {
                format!("has written {} records, for whose rows other transactions wait", transaction.records)
            } else {
                "only reads".to_owned()
            };
            let whose = match transaction.session {
                0 => "the engine".to_owned(),
                session => format!("session {session}"),
            };
            lines.push(format!(
                "warning: transaction {} of {whose} has been running for {} s: it {what}, and keeps the old versions of {} commits",
                transaction.id,
                transaction.age.as_secs(),
                transaction.commits_behind,
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_session::Config;

    /// With real transactions, whose ages are invented.
    #[test]
    fn a_transaction_is_reported_when_it_is_old_and_when_it_is_twice_as_old() {
        let database = Database::open_with(Config::default()).unwrap();
        let (mut writer, mut reader) = (database.connect(), database.connect());
        writer.execute("CREATE TABLE t (a integer)").unwrap();
        reader.execute("BEGIN; SELECT * FROM t").unwrap();
        writer.execute("INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2)").unwrap();
        let mut reports = Reports { age: Duration::from_secs(60), next_reports: HashMap::new() };
        let mut at = |seconds| {
            let mut running = database.engine().running();
            running.iter_mut().for_each(|transaction| transaction.age = Duration::from_secs(seconds));
            reports.on(&running)
        };
        assert_eq!(at(59), [""; 0]);
        let lines = at(60);
        assert!(lines.iter().any(|line| line.contains("has written 1 records")), "{lines:?}");
        assert!(
            lines.iter().any(|line| line.contains("only reads, and keeps the old versions of 1 commits")),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 2);
        assert_eq!((at(61).len(), at(119).len(), at(121).len(), at(122).len()), (0, 0, 2, 0));
        drop((writer, reader));
    }
}
