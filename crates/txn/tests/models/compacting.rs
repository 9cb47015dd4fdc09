//! Writing × freezing × encoding × reading: rows of compact blocks are deleted and inserted elsewhere, while
//! blocks become compact, get other codes, and are emptied and filled again.

use crate::keys::{assert_balances, index_on_balances};
use crate::schedule::explore;
use crate::support::{BALANCE, Bank, KEY, NAME, commit};
use crate::{committed, freezing_bank_with, join, statement, task};
use firn_base::sync::{Arc, AtomicBool};
use firn_base::{Cell, Result, clock};
use firn_storage::BlockState;
use firn_txn::{Isolation, Transaction, pin};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The number of rows in a block.
const BLOCK: i32 = 64;

/// How often a writer, and a reader, found a block compact.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);
static READ: AtomicUsize = AtomicUsize::new(0);

fn is_compact(bank: &Bank) -> bool {
    bank.accounts.block_usage().any(|usage| usage.state == BlockState::Compact)
}

/// Makes frozen blocks compact, all of them or only full ones.
fn freeze_and_compact(bank: &Bank, all: bool) {
    bank.engine.freeze(Duration::ZERO);
    bank.engine.compact(Duration::from_nanos(u64::from(!all)));
}

/// Sets two accounts to a balance, with the corresponding names.
fn set(bank: &Bank, tx: &mut Transaction, balance: i64) -> Result<()> {
    let guard = pin();
    for key in [1, 2] {
        let row = bank.find(tx, key, &guard).expect("accounts stay");
        let name = Bank::name(balance as i32);
        tx.update(&bank.accounts, row, &[BALANCE, NAME], &[Cell::i64(balance), Cell::text(&name)], &guard)?;
    }
    Ok(())
}

/// The one balance of both accounts, which their names and all ways to read agree on.
fn read(bank: &Bank, tx: &Transaction) -> i64 {
    let guard = pin();
    let mut all = Vec::new();
    let scanned: i64 = {
        use arrow_array::cast::AsArray;
        use arrow_array::types::Int64Type;
        let scan = bank.accounts.scan(tx.snapshot(), &[BALANCE], false);
        std::iter::from_fn(|| scan.next_batch(&guard))
            .map(|batch| batch.columns[0].as_primitive::<Int64Type>().values().iter().sum::<i64>())
            .sum()
    };
    for key in [1, 2] {
        let mut cells = [Cell::Null; 2];
        let found =
            tx.find(&bank.accounts, &bank.by_key, &bank.key(key), &[BALANCE, NAME], &mut cells, &guard);
        assert!(found.is_some(), "accounts stay");
        let balance = cells[0].as_i64();
        assert_eq!(cells[1].str(), Bank::name(balance as i32), "half a row");
        all.push(balance);
    }
    assert!(all[0] == all[1] && scanned == 2 * all[0], "{all:?}, {scanned}");
    all[0]
}

fn compacts() {
    let bank = freezing_bank_with((1..=BLOCK).map(|key| (key, 0)));
    let mut tx = bank.engine.begin();
    set(&bank, &mut tx, 0).unwrap();
    commit(tx);
    let freezer = task(&bank, |bank| (0..8).for_each(|_| freeze_and_compact(bank, true)));
    let writer = task(&bank, |bank| {
        for balance in 1..=3 {
            WRITTEN.fetch_add(usize::from(is_compact(bank)), Ordering::Relaxed);
            let mut tx = bank.engine.begin();
            set(bank, &mut tx, balance).expect("there is no other writer");
            // One is rolled back.
            if balance != 2 {
                commit(tx);
            }
        }
    });
    let reader = task(&bank, |bank| {
        let mut last = 0;
        for _ in 0..3 {
            READ.fetch_add(usize::from(is_compact(bank)), Ordering::Relaxed);
            let tx = bank.engine.begin_read_only();
            let balance = read(bank, &tx);
            assert!(balance >= last && balance != 2, "{balance} after {last}");
            assert_eq!(read(bank, &tx), balance, "a snapshot does not change");
            last = balance;
        }
    });
    join([writer, freezer, reader]);
    freeze_and_compact(&bank, true);
    assert_eq!(read(&bank, &bank.engine.begin_read_only()), 3);
}

#[test]
fn a_row_of_a_block_that_becomes_compact_is_read_and_changed_as_any_other() {
    explore(compacts);
    // A single run that is repeated need not find one.
    let repeated = std::env::var("FIRN_MODEL_SEED").is_ok();
    let found = [&WRITTEN, &READ].map(|found| found.load(Ordering::Relaxed));
    assert!(repeated || found.iter().all(|found| *found > 0), "{found:?}: no task met a compact block");
}

/// An index without values takes a block that has become compact, and drops the keys of its rows. Meanwhile
/// these are read through it and some are changed.
fn takes() {
    // Few: most of the steps of a run should be those of the tasks.
    const ACCOUNTS: i32 = 12;
    let bank = freezing_bank_with((1..=ACCOUNTS).map(|key| (key, i64::from(key % 6) << 32)));
    let index = index_on_balances(&bank, false);
    for _ in 0..4 {
        bank.engine.freeze(Duration::ZERO);
    }
    // Reading takes fewer steps than merging, so it has to begin in the middle of a merge.
    let reading = Arc::new(AtomicBool::new(false));
    let merger = task(&bank, {
        let reading = reading.clone();
        move |bank| {
            while !reading.load(Ordering::Relaxed) {
                clock::sleep(Duration::ZERO);
            }
            while !is_compact(bank) {
                bank.engine.compact(Duration::ZERO);
            }
            bank.engine.compact(Duration::ZERO);
        }
    });
    let writer = task(&bank, |bank| {
        // Before that it would thaw the block.
        while !is_compact(bank) {
            clock::sleep(Duration::ZERO);
        }
        for (key, balance) in [(1, 5), (2, 7)] {
            let mut tx = bank.engine.begin();
            bank.set_balance(&mut tx, key, balance).expect("there is no other writer");
            if balance != 7 { commit(tx) } else { tx.rollback() }
        }
    });
    let reader = task(&bank, move |bank| {
        let index = bank.accounts.indexes()[1].clone();
        for _ in 0..2 {
            let tx = bank.engine.begin_read_only();
            let guard = pin();
            let mut found = Vec::new();
            let all = (Bound::Unbounded, Bound::Unbounded);
            tx.range_read(&bank.accounts, &index, all, false, &[KEY], &guard, &mut |_, cells| {
                found.push(cells[0].as_i32());
                reading.store(true, Ordering::Relaxed);
                true
            });
            found.sort_unstable();
            assert!(found.iter().copied().eq(1..=ACCOUNTS), "{found:?}");
        }
    });
    join([merger, writer, reader]);
    assert_balances(&bank, &index, &bank.engine.begin_read_only());
    while bank.engine.garbage_backlog() > 0 {
        clock::sleep(Duration::ZERO);
    }
    index.verify();
}

#[test]
fn rows_are_found_by_an_index_without_values_while_it_takes_them() {
    explore(takes);
}

/// How often a block was freed.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Most rows are deleted, so that the others are moved, while some of these are changed.
fn leaves() {
    let bank = freezing_bank_with((1..=BLOCK).map(|key| (key, 100)));
    for _ in 0..4 {
        freeze_and_compact(&bank, false);
    }
    let mut tx = bank.engine.begin();
    (5..=BLOCK).for_each(|key| bank.delete(&mut tx, key).unwrap());
    commit(tx);
    let freezer = task(&bank, |bank| (0..8).for_each(|_| freeze_and_compact(bank, false)));
    let writer = task(&bank, |bank| {
        for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
            committed(bank, isolation, |tx| {
                for (key, by) in [(3, -1), (4, 1)] {
                    statement(tx, |tx| {
                        let balance = bank.balance(tx, key).expect("the account exists in any place");
                        bank.set_balance(tx, key, balance + by)
                    })?;
                }
                Ok(())
            });
        }
        committed(bank, Isolation::Serializable, |tx| statement(tx, |tx| bank.insert(tx, 100, 7).map(drop)));
    });
    let reader = task(&bank, |bank| {
        for _ in 0..3 {
            let tx = bank.engine.begin_read_only();
            let rows = bank.scan(&tx);
            let [threes, fours] =
                [3, 4].map(|key| rows.iter().filter(|row| row.0 == key).collect::<Vec<_>>());
            assert!(threes.len() == 1 && fours.len() == 1 && threes[0].1 + fours[0].1 == 200, "{rows:?}");
            assert_eq!(bank.scan(&tx), rows, "a snapshot does not change");
        }
    });
    join([freezer, writer, reader]);
    let expected = [(1, 100), (2, 100), (3, 98), (4, 102), (100, 7)];
    assert_eq!(bank.scan(&bank.engine.begin_read_only()), expected);
    let compact = is_compact(&bank);
    for _ in 0..8 {
        freeze_and_compact(&bank, false);
    }
    LEFT.fetch_add(usize::from(compact && !is_compact(&bank)), Ordering::Relaxed);
    assert_eq!(bank.scan(&bank.engine.begin_read_only()), expected);
}

#[test]
fn rows_that_leave_a_compact_block_are_found_and_no_change_of_them_is_lost() {
    explore(leaves);
    let repeated = std::env::var("FIRN_MODEL_SEED").is_ok();
    assert!(repeated || LEFT.load(Ordering::Relaxed) > 0, "no block was freed");
}

/// All rows of the only block are deleted, which is the one that is being filled, while others are inserted.
fn refills() {
    let bank = freezing_bank_with((1..=BLOCK).map(|key| (key, 100)));
    for _ in 0..4 {
        freeze_and_compact(&bank, true);
    }
    let mut tx = bank.engine.begin();
    (1..=BLOCK).for_each(|key| bank.delete(&mut tx, key).unwrap());
    commit(tx);
    let freezer = task(&bank, |bank| (0..6).for_each(|_| freeze_and_compact(bank, true)));
    let writers = [100, 200].map(|first| {
        task(&bank, move |bank| {
            for key in first..first + 3 {
                let mut tx = bank.engine.begin();
                bank.insert(&mut tx, key, 7).unwrap();
                commit(tx);
                assert_eq!(bank.balance(&bank.engine.begin_read_only(), key), Some(7));
            }
        })
    });
    join([freezer]);
    join(writers);
    let expected: Vec<(i32, i64)> = [100, 101, 102, 200, 201, 202].map(|key| (key, 7)).into();
    assert_eq!(bank.scan(&bank.engine.begin_read_only()), expected);
    for _ in 0..4 {
        freeze_and_compact(&bank, true);
    }
    assert_eq!(bank.scan(&bank.engine.begin_read_only()), expected);
}

#[test]
fn rows_that_come_while_a_compact_block_is_given_up_stay() {
    explore(refills);
}
