//! Histories: random short transactions over few keys, replayed one after another, and every read of them
//! compared with what it should have been (`tests/all/history.rs` says how).

use crate::history::{Entry, Workload, check, run_transaction};
use crate::schedule::explore;
use crate::{bank_with, join, task};
use firn_base::random::Random;
use firn_txn::Isolation;
use shuttle::rand::RngCore;

const TASKS: i64 = 3;

fn histories(isolation: Isolation, scans: bool) {
    let bank = bank_with([]);
    let seed = shuttle::rand::thread_rng().next_u64();
    let workload = Workload { isolation, keys: 3, operations: 4, scans };
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            task(&bank, move |bank| {
                let mut random = Random::seeded(seed.wrapping_add(number as u64));
                let mut stamp = number * 1_000_000;
                (0..3)
                    .map(|_| run_transaction(bank, workload, &mut random, &mut stamp))
                    .collect::<Vec<Entry>>()
            })
        })
        .collect();
    check(join(tasks).into_iter().flatten().collect(), isolation, seed);
}

#[test]
fn histories_are_what_snapshots_promise() {
    explore(|| histories(Isolation::Snapshot, false));
}

#[test]
fn serializable_histories_are_as_if_run_one_after_another() {
    explore(|| histories(Isolation::Serializable, false));
}

#[test]
fn serializable_histories_with_scans_are_as_if_run_one_after_another() {
    explore(|| histories(Isolation::Serializable, true));
}
