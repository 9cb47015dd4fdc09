//! Random concurrent histories, replayed (see [`crate::history`]).

use crate::history::{Entry, Workload, check, run_reader, run_transaction};
use crate::support::Bank;
use firn_base::random::Random;
use firn_base::thread;
use firn_txn::Isolation;
use std::sync::Arc;

fn run(isolation: Isolation, checked_as: Isolation) {
    let transactions: usize =
        std::env::var("FIRN_HISTORY_TRANSACTIONS").map_or(3000, |text| text.parse().expect("a number"));
    for seed in 1..=4u64 {
        let bank = Arc::new(if seed % 2 == 0 { Bank::freezing() } else { Bank::open() });
        let workload = Workload { isolation, keys: 12, operations: 8, scans: seed > 2 };
        let workers: Vec<_> = (0..4u64)
            .map(|worker| {
                let bank = bank.clone();
                thread::spawn("history", move || {
                    let mut random = Random::seeded(seed * 1000 + worker);
                    let mut stamp = worker as i64 * 1_000_000_000;
                    (0..transactions)
                        .map(|_| run_transaction(&bank, workload, &mut random, &mut stamp))
                        .collect::<Vec<Entry>>()
                })
            })
            .collect();
        // One reads beside them.
        let mut entries = vec![run_reader(&bank, Workload { scans: true, operations: 100, ..workload })];
        entries.extend(workers.into_iter().flat_map(|worker| worker.join().unwrap()));
        let committed = entries.iter().filter(|entry| entry.commit_time.is_some()).count();
        assert!(committed > transactions / 2, "seed {seed}: only {committed} commits");
        check(entries, checked_as, seed);
    }
}

#[test]
fn random_histories_are_what_snapshots_promise() {
    run(Isolation::Snapshot, Isolation::Snapshot);
}

#[test]
fn random_serializable_histories_are_as_if_run_one_after_another() {
    run(Isolation::Serializable, Isolation::Serializable);
}

/// The check itself: it tells snapshots from what is serializable.
#[test]
#[should_panic(expected = "seed")]
fn random_histories_of_snapshots_are_not_serializable() {
    run(Isolation::Snapshot, Isolation::Serializable);
}
