//! Histories: random short transactions on few keys, replayed one after another, with every read compared
//! with what it should have been (`tests/all/history.rs` describes it).

use crate::history::{Entry, Workload, check, run_reader, run_transaction};
use crate::schedule::explore;
use crate::support::Bank;
use crate::{bank_with, freezing_bank_with, join, task};
use firn_base::random::Random;
use firn_base::thread::yield_now;
use firn_storage::BlockState;
use firn_txn::Isolation;
use shuttle::rand::RngCore;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const TASKS: i64 = 3;

/// How often a transaction began while a block was compact.
static COMPACT: AtomicUsize = AtomicUsize::new(0);

fn histories(isolation: Isolation, scans: bool) {
    let bank = if scans { freezing_bank_with([]) } else { bank_with([]) };
    let seed = shuttle::rand::thread_rng().next_u64();
    let workload = Workload { isolation, keys: 3, operations: 4, scans };
    let compacts = scans && seed.is_multiple_of(2);
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            task(&bank, move |bank| {
                let mut random = Random::seeded(seed.wrapping_add(number as u64));
                let mut stamp = number * 1_000_000;
                (0..3)
                    .map(|_| {
                        if compacts {
                            // Blocks freeze when no transaction uses them.
                            let waits = random.uniform(0, 1) == 0;
                            (0..20)
                                .take_while(|_| waits && !has_compact_block(bank))
                                .for_each(|_| yield_now());
                            COMPACT.fetch_add(usize::from(has_compact_block(bank)), Ordering::Relaxed);
                        }
                        run_transaction(bank, workload, &mut random, &mut stamp)
                    })
                    .collect::<Vec<Entry>>()
            })
        })
        .collect();
    let merger = compacts.then(|| {
        task(&bank, |bank| {
            for _ in 0..20 {
                bank.engine.freeze(Duration::ZERO);
                bank.engine.compact(Duration::ZERO);
                yield_now();
            }
        })
    });
    let entries = join(tasks).into_iter().flatten().collect();
    join(merger);
    check(entries, isolation, seed);
}

fn has_compact_block(bank: &Bank) -> bool {
    bank.accounts.block_usage().any(|block| block.state == BlockState::Compact)
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
    let repeated = std::env::var("FIRN_MODEL_SEED").is_ok();
    assert!(repeated || COMPACT.load(Ordering::Relaxed) > 0, "no task met a compact block");
}

/// Two that write, and two that read and begin and end at any time: the versions between them are collected,
/// moved to the attic, merged there and collected from there.
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
    // All have ended, and everything is collected.
    while bank.engine.garbage_backlog() > 0 {
        yield_now();
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
