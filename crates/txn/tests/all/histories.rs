//! Random concurrent histories, replayed (see [`crate::history`]).

use crate::history::{Entry, Workload, check, run_reader, run_transaction};
use crate::support::Bank;
use firn_base::random::Random;
use firn_base::thread;
use firn_storage::BlockState;
use firn_txn::{Config, Isolation};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often all threads pause, if blocks should become compact, until they are.
const PAUSES: usize = 10;

fn run(isolation: Isolation, checked_as: Isolation) {
    let transactions: usize =
        std::env::var("FIRN_HISTORY_TRANSACTIONS").map_or(3000, |text| text.parse().expect("a number"));
    for seed in 1..=6u64 {
        let compacts = seed % 3 == 0;
        let bank = Arc::new(match seed % 3 {
            0 => Bank::open_with(Config {
                freeze_after: Some(Duration::ZERO),
                compact_after: Some(Duration::ZERO),
                ..Config::default()
            }),
            1 => Bank::open(),
            _ => Bank::freezing(),
        });
        let workload = Workload { isolation, keys: 12, operations: 8, scans: seed > 3 };
        let rounds = if compacts { PAUSES } else { 1 };
        let mut entries = Vec::new();
        for round in 0..rounds {
            // Not by chance: writes all the time keep blocks hot.
            if round > 0 {
                assert!(becomes_compact(&bank), "seed {seed}");
            }
            let workers: Vec<_> = (0..4u64)
                .map(|worker| {
                    let bank = bank.clone();
                    thread::spawn("history", move || {
                        let mut random = Random::seeded(seed * 1000 + worker + 10 * round as u64);
                        let mut stamp = worker as i64 * 1_000_000_000 + round as i64 * 10_000_000;
                        (0..transactions / rounds)
                            .map(|_| run_transaction(&bank, workload, &mut random, &mut stamp))
                            .collect::<Vec<Entry>>()
                    })
                })
                .collect();
            // One thread reads meanwhile.
            entries.push(run_reader(&bank, Workload { scans: true, operations: 100, ..workload }));
            entries.extend(workers.into_iter().flat_map(|worker| worker.join().unwrap()));
        }
        let committed = entries.iter().filter(|entry| entry.commit_time.is_some()).count();
        assert!(committed > transactions / 2, "seed {seed}: only {committed} commits");
        check(entries, checked_as, seed);
    }
}

/// Waits until a block is compact.
fn becomes_compact(bank: &Bank) -> bool {
    let is_compact = || bank.accounts.block_usage().any(|block| block.state == BlockState::Compact);
    let until = Instant::now() + Duration::from_secs(60);
    while !is_compact() && Instant::now() < until {
        // Guards of other tests may prevent it.
        std::thread::sleep(Duration::from_millis(1));
    }
    is_compact()
}

#[test]
fn random_histories_are_what_snapshots_promise() {
    run(Isolation::Snapshot, Isolation::Snapshot);
}

#[test]
fn random_serializable_histories_are_as_if_run_one_after_another() {
    run(Isolation::Serializable, Isolation::Serializable);
}

/// Tests the check itself: it distinguishes snapshot isolation from serializability.
#[test]
#[should_panic(expected = "seed")]
fn random_histories_of_snapshots_are_not_serializable() {
    run(Isolation::Snapshot, Isolation::Serializable);
}
