//! Histories: random short transactions over few keys, replayed one after another, and every read of them
//! compared with what it should have been (`tests/all/history.rs` says how).

use crate::history::{Entry, Workload, check, run_reader, run_transaction};
use crate::schedule::explore;
use crate::{bank_with, freezing_bank_with, join, task};
use firn_base::random::Random;
use firn_txn::Isolation;
use shuttle::rand::RngCore;

const TASKS: i64 = 3;

fn histories(isolation: Isolation, scans: bool) {
    let bank = if scans { freezing_bank_with([]) } else { bank_with([]) };
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

/// Two that write, beside two that read and begin and end at any time: what lies between them is collected, moved
/// to the attic, put together there and collected from there.
fn beside_readers(scans: bool) {
    let bank = bank_with([]);
    let seed = shuttle::rand::thread_rng().next_u64();
    let workload = Workload { isolation: Isolation::Snapshot, keys: 3, operations: 4, scans: false };
    let writers = [0, 1].map(|number| {
        task(&bank, move |bank| {
            let mut random = Random::seeded(seed.wrapping_add(number));
            let mut stamp = number as i64 * 1_000_000;
            (0..6).map(|_| run_transaction(bank, workload, &mut random, &mut stamp)).collect::<Vec<Entry>>()
        })
    });
    let readers = [1, 3].map(|operations| {
        let workload = Workload { operations, scans, ..workload };
        task(&bank, move |bank| (0..3).map(|_| run_reader(bank, workload)).collect::<Vec<Entry>>())
    });
    let entries = join(writers.into_iter().chain(readers)).into_iter().flatten().collect();
    check(entries, Isolation::Snapshot, seed);
    // Everybody has gone, and everything goes.
    while bank.engine.garbage_backlog() > 0 {
        firn_base::thread::yield_now();
    }
    let rows = bank.scan(&bank.engine.begin_read_only()).len();
    assert_eq!(bank.by_key.len(), rows, "entries of dead versions");
}

#[test]
fn long_readers_see_the_same_whatever_is_moved_to_the_attic() {
    explore(|| beside_readers(false));
}

#[test]
fn long_readers_scan_the_same_whatever_is_moved_to_the_attic() {
    explore(|| beside_readers(true));
}
