//! Writing × freezing × reading × keeping what was read. Blocks are frozen whenever no row in them has a
//! version. A writer thaws them, in a copy if a reader keeps their rows. Rows move to where others were
//! deleted. Blocks of which all rows were inserted behind a reader replace their chain heads by one, which
//! writers undo, and are frozen nevertheless.

use crate::schedule::explore;
use crate::support::{BALANCE, Bank, NAME, commit};
use crate::{committed, freezing_bank_with, join, statement, task};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use firn_base::{Cell, Result};
use firn_storage::{BlockState, Held, ScanBatch};
use firn_txn::{Isolation, Transaction, pin};
use shuttle::rand::RngCore;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often a reader got rows of a block that was frozen, or had been until just then: their strings are in
/// one buffer of exactly their size.
static FROZEN: AtomicUsize = AtomicUsize::new(0);

/// Sets both accounts to a balance, with the corresponding names.
fn set(bank: &Bank, tx: &mut Transaction, balance: i64) -> Result<()> {
    let guard = pin();
    for key in [1, 2] {
        let row = bank.find(tx, key, &guard).expect("accounts stay");
        let name = Bank::name(balance as i32);
        tx.update(&bank.accounts, row, &[BALANCE, NAME], &[Cell::i64(balance), Cell::text(&name)], &guard)?;
    }
    Ok(())
}

/// The result of a scan.
fn read(bank: &Bank, tx: &Transaction) -> Vec<ScanBatch> {
    let scan = bank.accounts.scan(tx.snapshot(), &[BALANCE, NAME], false);
    std::iter::from_fn(|| scan.next_batch(&pin())).collect()
}

/// The one balance of all rows, to which their names correspond.
fn balance_of(batches: &[ScanBatch]) -> i64 {
    let mut all = Vec::new();
    for batch in batches {
        let (balances, names) =
            (batch.columns[0].as_primitive::<Int64Type>(), batch.columns[1].as_string_view());
        for row in 0..batch.rows {
            assert_eq!(names.value(row), Bank::name(balances.value(row) as i32), "half a row");
            all.push(balances.value(row));
        }
    }
    assert!(all.len() == 2 && all[0] == all[1], "{all:?}");
    all[0]
}

fn freezes() {
    let bank = freezing_bank_with([(1, 0), (2, 0)]);
    let mut tx = bank.engine.begin();
    set(&bank, &mut tx, 0).unwrap();
    commit(tx);
    let writer = task(&bank, |bank| {
        for balance in 1..=4 {
            let mut tx = bank.engine.begin();
            set(bank, &mut tx, balance).expect("there is no other writer");
            // One is rolled back.
            if balance != 3 {
                commit(tx);
            }
        }
    });
    // Of a table whose interval is changed repeatedly.
    let freezer = task(&bank, |bank| {
        for turn in [0, 0, 1, 0, 1, 1, 0, 0] {
            bank.engine.freeze(Duration::from_nanos(turn));
        }
    });
    let readers = [1, 2].map(|_| {
        task(&bank, |bank| {
            let mut last = 0;
            let mut kept = Vec::new();
            for _ in 0..3 {
                let tx = bank.engine.begin_read_only();
                let batches = read(bank, &tx);
                let balance = balance_of(&batches);
                assert!(balance >= last && balance != 3, "{balance} after {last}");
                assert_eq!(balance_of(&read(bank, &tx)), balance, "a snapshot does not change");
                let is_dense = |batch: &ScanBatch| {
                    let strings = batch.columns[1].as_string_view();
                    let bytes: usize = strings.iter().flatten().map(str::len).sum();
                    strings.data_buffers().iter().map(|buffer| buffer.len()).sum::<usize>() == bytes
                };
                FROZEN.fetch_add(usize::from(batches.iter().all(is_dense)), Ordering::Relaxed);
                last = balance;
                kept.push((batches, balance));
            }
            for (batches, balance) in kept {
                assert_eq!(balance_of(&batches), balance, "what was handed out has changed");
            }
        })
    });
    join([writer, freezer]);
    join(readers);
    assert_eq!(bank.scan(&bank.engine.begin()), [(1, 4), (2, 4)]);
}

#[test]
fn no_row_is_seen_half_moved_and_what_was_handed_out_does_not_change() {
    explore(freezes);
    // A single run that is repeated need not find one.
    let repeated = std::env::var("FIRN_MODEL_SEED").is_ok();
    assert!(repeated || FROZEN.load(Ordering::Relaxed) > 0, "no reader was given a frozen block");
}

/// How often a row was found in another place than before.
static MOVED: AtomicUsize = AtomicUsize::new(0);

/// Rows are inserted and deleted, so that others move, while some of these are changed.
fn moves() {
    let bank = freezing_bank_with((1..=5).map(|key| (key, 100)));
    let freezer = task(&bank, |bank| {
        for _ in 0..10 {
            bank.engine.freeze(Duration::ZERO);
        }
    });
    let deleter = task(&bank, |bank| {
        for key in [2, 1] {
            committed(bank, Isolation::Serializable, |tx| {
                statement(
                    tx,
                    |tx| if bank.balance(tx, key).is_some() { bank.delete(tx, key) } else { Ok(()) },
                )
            });
        }
        committed(bank, Isolation::Serializable, |tx| statement(tx, |tx| bank.insert(tx, 6, 100).map(drop)));
    });
    let writer = task(&bank, |bank| {
        for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
            committed(bank, isolation, |tx| {
                for (key, by) in [(4, -1), (5, 1)] {
                    statement(tx, |tx| {
                        let balance = bank.balance(tx, key).expect("the account exists in any place");
                        bank.set_balance(tx, key, balance + by)
                    })?;
                }
                Ok(())
            });
        }
    });
    let reader = task(&bank, |bank| {
        for _ in 0..3 {
            let tx = bank.engine.begin_read_only();
            let rows = bank.scan(&tx);
            let [fours, fives] = [4, 5].map(|key| rows.iter().filter(|row| row.0 == key).collect::<Vec<_>>());
            assert!(fours.len() == 1 && fives.len() == 1 && fours[0].1 + fives[0].1 == 200, "{rows:?}");
            assert_eq!(bank.scan(&tx), rows, "a snapshot does not change");
        }
    });
    let place = |key| bank.find(&bank.engine.begin_read_only(), key, &pin()).expect("the account exists");
    let before = [4, 5].map(place);
    join([freezer, deleter, writer, reader]);
    assert_eq!(bank.scan(&bank.engine.begin()), [(3, 100), (4, 98), (5, 102), (6, 100)]);
    for _ in 0..10 {
        bank.engine.freeze(Duration::ZERO);
    }
    assert_eq!(bank.scan(&bank.engine.begin()), [(3, 100), (4, 98), (5, 102), (6, 100)]);
    MOVED.fetch_add(usize::from([4, 5].map(place) != before), Ordering::Relaxed);
}

#[test]
fn rows_that_move_are_found_and_no_change_of_them_is_lost() {
    explore(moves);
    let repeated = std::env::var("FIRN_MODEL_SEED").is_ok();
    assert!(repeated || MOVED.load(Ordering::Relaxed) > 0, "no row has moved");
}

/// How often a block had versions and no heads.
static SHARED: AtomicUsize = AtomicUsize::new(0);

/// How often such a block was frozen, and compact.
static FROZE: AtomicUsize = AtomicUsize::new(0);
static COMPACTED: AtomicUsize = AtomicUsize::new(0);

/// For two blocks with versions, each of 64 rows.
fn has_given_up_heads(bank: &Bank) -> bool {
    bank.engine.memory().held(Held::Heads) < 2 * 64 * size_of::<usize>() as u64
}

fn has_block(bank: &Bank, state: BlockState) -> bool {
    bank.accounts.block_usage().any(|block| block.state == state)
}

/// As many accounts as a block has slots are inserted behind a reader. One is changed, and one is deleted,
/// when the block has replaced its heads, has been frozen, or is compact.
fn shares() {
    const COUNT: i32 = 64;
    let what_for = match shuttle::rand::thread_rng().next_u64() % 4 {
        0 | 1 => None,
        2 => Some(BlockState::Frozen),
        _ => Some(BlockState::Compact),
    };
    let bank = freezing_bank_with([]);
    let old = bank.engine.begin_read_only();
    let mut tx = bank.engine.begin();
    let name = Bank::name(0);
    let rows: Vec<_> = (1..=COUNT).map(|key| [Cell::i32(key), Cell::i64(0), Cell::text(&name)]).collect();
    tx.insert_rows(&bank.accounts, &rows, &pin()).unwrap();
    commit(tx);
    // So that the earlier records move to the attic.
    for key in [COUNT + 1, COUNT + 2] {
        let mut tx = bank.engine.begin();
        bank.insert(&mut tx, key, 0).unwrap();
        commit(tx);
    }
    let is_time =
        move |bank: &Bank| what_for.map_or_else(|| has_given_up_heads(bank), |state| has_block(bank, state));
    // Freezing requires that no guard is held, and tasks that read or write step by step hold theirs for
    // long.
    let is_patient = what_for.is_some();
    let times = if is_patient { 100 } else { 20 };
    let wait = move |bank: &Bank| {
        (0..times).take_while(|_| !is_time(bank)).for_each(|_| firn_base::thread::yield_now());
    };
    let freezer = task(&bank, move |bank| {
        for _ in (0..times).take_while(|turn| *turn < 8 || !is_time(bank)) {
            bank.engine.freeze(Duration::ZERO);
            if is_patient {
                if what_for == Some(BlockState::Compact) {
                    bank.engine.compact(Duration::ZERO);
                }
                firn_base::thread::yield_now();
            }
        }
    });
    let writer = task(&bank, move |bank| {
        // At about the time when the old reader ends.
        wait(bank);
        for last in [false, true] {
            committed(bank, Isolation::Serializable, |tx| {
                statement(tx, |tx| bank.set_balance(tx, 1, 1 + i64::from(last)))?;
                if last { statement(tx, |tx| bank.delete(tx, 4)) } else { Ok(()) }
            });
        }
    });
    let newer = task(&bank, move |bank| {
        if is_patient {
            wait(bank);
        }
        for _ in 0..3 {
            let tx = bank.engine.begin_read_only();
            let rows = bank.scan(&tx);
            let changed: i64 = rows.iter().map(|(_, balance)| balance).sum();
            assert!(matches!((rows.len() as i32 - COUNT, changed), (2, 0 | 1) | (1, 2)), "{rows:?}");
            assert_eq!(bank.scan(&tx), rows, "a snapshot does not change");
            assert_eq!(bank.balance(&tx, 1), Some(changed), "a snapshot does not change");
        }
    });
    for _ in (0..times).take_while(|_| !is_time(&bank)) {
        assert!(is_patient || bank.balance(&old, 2).is_none(), "it was inserted later");
        firn_base::thread::yield_now();
    }
    SHARED.fetch_add(usize::from(has_given_up_heads(&bank)), Ordering::Relaxed);
    for (state, count) in [(BlockState::Frozen, &FROZE), (BlockState::Compact, &COMPACTED)] {
        count.fetch_add(usize::from(has_block(&bank, state)), Ordering::Relaxed);
    }
    assert_eq!(bank.scan(&old), [], "they were inserted later");
    // The record of all of them is removed while others read and write.
    old.rollback();
    join([freezer, writer]);
    join([newer]);
    let rows = bank.scan(&bank.engine.begin());
    assert_eq!((rows.len() as i32, rows[0]), (COUNT + 1, (1, 2)));
    // No version is needed any more, and none is left.
    let is_left = |_: &i32| bank.engine.memory().held(Held::Heads) > 0;
    for _ in (0..1000).take_while(is_left) {
        bank.engine.freeze(Duration::ZERO);
        firn_base::thread::yield_now();
    }
    assert_eq!(bank.engine.memory().held(Held::Heads), 0);
}

#[test]
fn rows_that_share_their_head_are_seen_by_the_same_as_before() {
    explore(shares);
    let repeated = std::env::var("FIRN_MODEL_SEED").is_ok();
    assert!(repeated || SHARED.load(Ordering::Relaxed) > 0, "no block gave up its heads");
    assert!(repeated || FROZE.load(Ordering::Relaxed) > 0, "no such block was frozen");
    assert!(repeated || COMPACTED.load(Ordering::Relaxed) > 0, "no such block became compact");
}
