//! Short trials in process, at every level: the guarantees of a level hold, and the checker finds anomalies
//! that it does not exclude. The trials would prove nothing if no anomaly were found anywhere.

use super::history::{Recorder, explain};
use super::native::{Lists, NativeTransactions};
use super::sql::{self, SqlTransactions};
use super::trial::{self, Transactions};
use super::upkeep;
use super::workload::Generator;
use adya::{Report, Valid, Workload};
use firn_base::Result;
use firn_session::Database;
use firn_txn::Isolation;

const TRANSACTIONS: u64 = 600;
const CLIENTS: i64 = 4;
const WORKLOADS: [Workload; 2] = [Workload::ListAppend, Workload::RwRegister];

/// Runs a history and checks it against both models.
fn check<T: Transactions>(
    workload: Workload,
    transactions: u64,
    connect: impl Fn() -> Result<T> + Sync,
    beside: impl FnOnce(&Recorder),
    models: [&str; 2],
) -> [Report; 2] {
    let recorder = Recorder::new(workload, Generator::new(workload, 1), transactions);
    trial::run(&recorder, CLIENTS, &connect, || {
        beside(&recorder);
        Ok(())
    })
    .unwrap();
    let (history, counts, _) = recorder.finish();
    println!("{workload:?}: {counts:?}");
    assert!(counts.committed > transactions / 4, "{counts:?}");
    assert_eq!(counts.unknown, 0);
    models.map(|model| history.check(model))
}

/// A history in SQL at `level` satisfies `promised`; returns its anomalies beyond `serializable`.
fn check_sql(workload: Workload, level: &str, promised: &str) -> Vec<String> {
    let database = Database::open_with(upkeep::compacting()).unwrap();
    sql::create(&mut database.connect()).unwrap();
    let connect = || SqlTransactions::new(database.connect(), workload, level);
    let beside = |recorder: &Recorder| assert!(upkeep::compact(database.engine(), recorder) > 0);
    let [kept, serializable] = check(workload, TRANSACTIONS, connect, beside, [promised, "serializable"]);
    sql::clear(&mut database.connect()).unwrap();
    assert_eq!(kept.valid, Valid::True, "{workload:?} at {level}: {}", explain(&kept));
    serializable.anomaly_types
}

#[test]
fn serializable_histories_have_no_anomalies() {
    for workload in WORKLOADS {
        assert_eq!(check_sql(workload, "serializable", "strict-serializable"), [""; 0], "{workload:?}");
    }
}

#[test]
fn histories_of_snapshots_have_write_skew_and_nothing_worse() {
    for workload in WORKLOADS {
        let found = check_sql(workload, "repeatable read", "strong-snapshot-isolation");
        let is_skew = |found: &String| found.starts_with("G2-item");
        assert!(!found.is_empty() && found.iter().all(is_skew), "{workload:?}: {found:?}");
    }
}

#[test]
fn read_committed_histories_lose_updates_but_read_what_was_committed() {
    for workload in WORKLOADS {
        let found = check_sql(workload, "read committed", "read-committed");
        // Which of them a short history contains is random.
        let is_loss = |found: &String| found.starts_with("G-single") || found == "lost-update";
        assert!(found.iter().any(is_loss), "{workload:?}: {found:?}");
    }
}

#[test]
fn histories_without_sql_have_the_anomalies_of_their_level() {
    for workload in WORKLOADS {
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            let database = Database::memory().unwrap();
            let lists = Lists::create(&database).unwrap();
            let connect = || Ok(NativeTransactions::new(&lists, workload, isolation));
            let models = ["strong-snapshot-isolation", "strict-serializable"];
            let [snapshot, serializable] = check(workload, 3 * TRANSACTIONS, connect, |_| (), models);
            assert_eq!(snapshot.valid, Valid::True, "{workload:?}, {isolation:?}: {}", explain(&snapshot));
            let found = serializable.anomaly_types;
            match isolation {
                Isolation::Snapshot => {
                    assert!(found.iter().any(|found| found.starts_with("G2-item")), "{found:?}")
                }
                _ => assert_eq!(found, [""; 0], "{workload:?}: {}", found.join(", ")),
            }
        }
    }
}
