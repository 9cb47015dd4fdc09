//! Install × read × abort, collecting × walking a chain, loading × scan × change, folding × change. A reader
//! sees whole rows, of committed transactions, and the same ones again as long as its snapshot lasts.

use crate::schedule::explore;
use crate::support::{BALANCE, Bank, KEY, NAME, commit};
use crate::{bank_with, committed, join, statement, task};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use firn_base::{Cell, Result};
use firn_txn::{Isolation, Transaction, pin};
use std::ops::Range;

/// Sets an account to a balance with a corresponding name, which is too long to be inline.
fn set_both(bank: &Bank, tx: &mut Transaction, key: i32, balance: i64) -> Result<()> {
    let guard = pin();
    let row = bank.find(tx, key, &guard).expect("the account exists");
    let name = Bank::name(balance as i32);
    tx.update(&bank.accounts, row, &[BALANCE, NAME], &[Cell::i64(balance), Cell::text(&name)], &guard)
}

/// The balance, to which the name must correspond.
fn read_both(bank: &Bank, tx: &Transaction, key: i32) -> Option<i64> {
    let guard = pin();
    let mut cells = [Cell::Null, Cell::Null];
    tx.find(&bank.accounts, &bank.by_key, &bank.key(key), &[NAME, BALANCE], &mut cells, &guard)?;
    let balance = cells[1].as_i64();
    assert_eq!(cells[0].bytes(), Bank::name(balance as i32).as_bytes(), "half a row");
    Some(balance)
}

/// Balances below 100 are committed, those from 100 on are rolled back.
fn installs_and_aborts() {
    let bank = bank_with([(1, 1)]);
    let aborting = task(&bank, |bank| {
        for balance in [100, 101] {
            let mut tx = bank.engine.begin();
            if set_both(bank, &mut tx, 1, balance).is_ok() {
                assert_eq!(read_both(bank, &tx, 1), Some(balance), "one's own change is seen");
                // A key of its own, which others claim later.
                let _conflict = bank.insert(&mut tx, 2, balance);
            }
            tx.rollback();
        }
    });
    let committing = task(&bank, |bank| {
        for balance in [2, 3] {
            let mut tx = bank.engine.begin();
            let savepoint = tx.savepoint();
            let taken_back = set_both(bank, &mut tx, 1, 100 + balance).is_ok();
            tx.rollback_to(savepoint);
            if taken_back {
                assert!(read_both(bank, &tx, 1).is_some_and(|balance| balance < 100));
            }
            if set_both(bank, &mut tx, 1, balance).is_ok() {
                commit(tx);
            }
        }
        let mut tx = bank.engine.begin();
        let inserted = bank.insert(&mut tx, 2, 2).is_ok();
        if inserted {
            commit(tx);
        }
    });
    let reading = task(&bank, |bank| {
        for _ in 0..2 {
            let tx = bank.engine.begin_read_only();
            let first = read_both(bank, &tx, 1).expect("the account exists");
            assert!(first < 100, "{first} was rolled back");
            let rows = bank.scan(&tx);
            assert_eq!(rows[0], (1, first), "a snapshot does not change");
            assert!(matches!(rows[1..], [] | [(2, 2)]), "{rows:?}");
            assert_eq!(read_both(bank, &tx, 1), Some(first), "a snapshot does not change");
        }
    });
    join([aborting, committing, reading]);
}

#[test]
fn a_reader_sees_whole_rows_and_nothing_that_was_rolled_back() {
    explore(installs_and_aborts);
}

/// Both accounts always have the same balance. Ten commits make a chain that is collected and trimmed behind
/// readers of different ages.
fn collects() {
    let bank = bank_with([(1, 0), (2, 0)]);
    // Names correspond to balances from here on.
    let mut tx = bank.engine.begin();
    [1, 2].iter().for_each(|key| set_both(&bank, &mut tx, *key, 0).unwrap());
    commit(tx);
    let writing = task(&bank, |bank| {
        let write = |balance| {
            let mut tx = bank.engine.begin();
            for key in [1, 2] {
                set_both(bank, &mut tx, key, balance).expect("there is no other writer");
            }
            // Some are rolled back.
            (balance % 4 != 3).then(|| (tx.commit().expect("there is no other writer").time, balance))
        };
        (1..=10).filter_map(write).collect::<Vec<_>>()
    });
    let readers = [1, 2].map(|rounds| {
        task(&bank, move |bank| {
            let read = |_| {
                let tx = bank.engine.begin_read_only();
                let first = read_both(bank, &tx, 1).expect("the account exists");
                for _ in 0..3 {
                    assert_eq!(read_both(bank, &tx, 2), Some(first), "a version that is needed has gone");
                    assert_eq!(read_both(bank, &tx, 1), Some(first), "a version that is needed has gone");
                }
                (tx.snapshot().read_time, first)
            };
            (0..rounds).map(read).collect::<Vec<_>>()
        })
    });
    let written = join([writing]).concat();
    for (read_time, balance) in join(readers).concat() {
        let newest = written.iter().rfind(|(time, _)| *time <= read_time);
        assert_eq!(balance, newest.map_or(0, |(_, balance)| *balance), "at {read_time:?} of {written:?}");
    }
    assert_eq!(bank.scan(&bank.engine.begin()), [(1, 10), (2, 10)]);
}

#[test]
fn versions_stay_as_long_as_a_snapshot_needs_them() {
    explore(collects);
}

/// Five accounts are inserted together; one is then changed, and one deleted.
fn loads() {
    let bank = bank_with([]);
    let insert = |bank: &Bank, tx: &mut Transaction, keys: Range<i32>| {
        let name = Bank::name(0);
        let rows: Vec<_> = keys.map(|key| [Cell::i32(key), Cell::i64(0), Cell::text(&name)]).collect();
        tx.insert_rows(&bank.accounts, &rows, &pin()).expect("no other account has these keys");
    };
    let loading = task(&bank, move |bank| {
        let mut tx = bank.engine.begin();
        insert(bank, &mut tx, 1..6);
        commit(tx);
        let mut tx = bank.engine.begin();
        insert(bank, &mut tx, 6..9);
        tx.rollback();
    });
    let changing = task(&bank, |bank| {
        for balance in [1, 2] {
            let mut tx = bank.engine.begin();
            if bank.find(&tx, 2, &pin()).is_some() {
                set_both(bank, &mut tx, 2, balance).expect("no other task writes to it");
                if balance == 2 {
                    bank.delete(&mut tx, 4).expect("no other task writes to it");
                }
                commit(tx);
            }
        }
    });
    let readers = [1, 2].map(|rounds| {
        task(&bank, move |bank| {
            for _ in 0..rounds {
                let tx = bank.engine.begin_read_only();
                let rows = scan_both(bank, &tx);
                let is_a_state = matches!(
                    rows[..],
                    [] | [(1, 0), (2, 0 | 1), (3, 0), (4, 0), (5, 0)] | [(1, 0), (2, 2), (3, 0), (5, 0)]
                );
                assert!(is_a_state, "{rows:?}");
                assert_eq!(scan_both(bank, &tx), rows, "a snapshot does not change");
            }
        })
    });
    join([loading, changing]);
    join(readers);
}

/// All accounts, whose names must correspond to their balances.
fn scan_both(bank: &Bank, tx: &Transaction) -> Vec<(i32, i64)> {
    let scan = bank.accounts.scan(tx.snapshot(), &[KEY, BALANCE, NAME], false);
    let mut rows = Vec::new();
    while let Some(batch) = scan.next_batch(&pin()) {
        let keys = batch.columns[0].as_primitive::<Int32Type>();
        let balances = batch.columns[1].as_primitive::<Int64Type>();
        for (row, name) in batch.columns[2].as_string_view().iter().enumerate() {
            let (key, balance) = (keys.value(row), balances.value(row));
            assert_eq!(name, Some(&*Bank::name(balance as i32)), "half a row");
            rows.push((key, balance));
        }
    }
    rows
}

#[test]
fn rows_that_come_together_are_seen_together_and_each_as_it_is() {
    explore(loads);
}

/// Each account is deleted and inserted again in one transaction, so the keys always have the same sum.
fn folds() {
    let bank = bank_with((1..=3).map(|key| (key, 0)));
    let writers = [[1, 2], [3, 3]].map(|keys| {
        task(&bank, move |bank| {
            for key in keys {
                committed(bank, Isolation::Serializable, |tx| {
                    statement(tx, |tx| bank.delete(tx, key))?;
                    // The slot of its former row, which is still in the index, may belong to another row by
                    // now.
                    statement(tx, |tx| bank.insert(tx, key, 0).map(drop))
                });
            }
        })
    });
    let readers = [1, 2].map(|rounds| {
        task(&bank, move |bank| {
            let keys = bank.accounts.projection::<(i32,)>(&[KEY]).expect("keys are numbers");
            for _ in 0..rounds {
                let tx = bank.engine.begin_read_only();
                for _ in 0..2 {
                    let scan = bank.accounts.scan_as(tx.snapshot(), &keys);
                    let mut rows = (0, 0);
                    let add = |(count, sum): &mut (i32, i32), (key,): (i32,)| {
                        (*count, *sum) = (*count + 1, sum.wrapping_add(key));
                    };
                    while scan.fold_next(&pin(), &mut rows, &add) {}
                    assert_eq!(rows, (3, 6), "rows and the sum of their keys");
                }
            }
        })
    });
    join(writers);
    join(readers);
}

#[test]
fn a_fold_sees_each_row_once_while_rows_change() {
    explore(folds);
}
