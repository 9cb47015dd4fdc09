//! Access paths and transactions as closures. That they read and write as the untyped interface does is
//! tested with everything else: see [`Bank`].

use crate::support::{Bank, Typed, commit};
use firn_base::{Error, Result, SqlState, thread};
use firn_txn::{Str, TableAccess, Text, Transaction, pin};

fn state<T>(result: Result<T>) -> SqlState {
    result.err().expect("it is refused").state()
}

fn bank_with(accounts: &[(i32, i64)]) -> Bank {
    let bank = Bank::open();
    let mut tx = bank.engine.begin();
    for (key, balance) in accounts {
        bank.insert(&mut tx, *key, *balance).unwrap();
    }
    commit(tx);
    bank
}

#[test]
fn what_does_not_exist_or_fit_is_told_when_paths_are_prepared() {
    let bank = Bank::open();
    assert_eq!(state(TableAccess::open(&bank.engine, "account")), SqlState::UNDEFINED_TABLE);
    let accounts = TableAccess::open(&bank.engine, "accounts").unwrap();
    assert_eq!(state(accounts.columns::<(i32,)>(&["number"])), SqlState::UNDEFINED_COLUMN);
    assert_eq!(state(accounts.key::<(i32,)>("accounts_key")), SqlState::UNDEFINED_OBJECT);
    let error = accounts.columns::<(i64,)>(&["balance"]).err().unwrap();
    assert_eq!(error.state(), SqlState::DATATYPE_MISMATCH);
    assert_eq!(error.message(), "column \"balance\" is of type bigint and may be NULL");
    assert_eq!(state(accounts.key::<(Str,)>("accounts_pkey")), SqlState::DATATYPE_MISMATCH);
    let error = accounts.all_columns::<(i32, Option<i64>)>().err().unwrap();
    assert_eq!(error.message(), "the row type has 2 fields for 3 columns");
}

#[test]
fn paths_to_a_table_that_is_gone_no_longer_write() {
    let bank = bank_with(&[(2, 20)]);
    let mut truncating = bank.engine.begin();
    truncating.lock_exclusive(&bank.accounts).unwrap();
    truncating.drop_storage(bank.accounts.id()).unwrap();
    commit(truncating);
    let written = bank.engine.transact(|tx| bank.insert(tx, 4, 40));
    assert_eq!(state(written), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
}

#[test]
fn a_closure_runs_until_it_commits() {
    let bank = bank_with(&[(2, 0), (3, 0)]);
    const ROUNDS: i64 = if cfg!(miri) { 5 } else { 300 };
    thread::scope(|scope| {
        for key in [2, 3, 2, 3] {
            let bank = &bank;
            thread::spawn_scoped(scope, "clerk", move || {
                for _ in 0..ROUNDS {
                    let raise = |tx: &mut Transaction| {
                        let balance = bank.balance(tx, key).unwrap();
                        // What others set meanwhile fails the commit, or moves the row away before.
                        thread::yield_now();
                        bank.set_balance(tx, key, balance + 1)
                    };
                    bank.engine.transact(raise).unwrap();
                }
            });
        }
    });
    let tx = bank.engine.begin_read_only();
    assert_eq!(bank.scan(&tx), [(2, 2 * ROUNDS), (3, 2 * ROUNDS)]);
}

#[test]
fn an_error_of_the_closure_takes_everything_back() {
    let bank = bank_with(&[(2, 20)]);
    let refused: Result<()> = bank.engine.transact(|tx| {
        bank.set_balance(tx, 2, 30)?;
        Err(Error::new(SqlState::CHECK_VIOLATION, "too much"))
    });
    assert_eq!(state(refused), SqlState::CHECK_VIOLATION);
    let duplicate = bank.engine.transact(|tx| {
        bank.set_balance(tx, 2, 30)?;
        bank.insert(tx, 2, 5)
    });
    assert_eq!(state(duplicate), SqlState::UNIQUE_VIOLATION);
    assert_eq!(bank.scan(&bank.engine.begin_read_only()), [(2, 20)]);
}

#[test]
fn several_rows_are_inserted_and_found_together() {
    let bank = Bank::open();
    let Typed { by_key, whole, balance } = &bank.typed;
    let names: Vec<String> = (0..40).map(Bank::name).collect();
    let rows: Vec<_> = (0..40)
        .map(|key| (key, Some(i64::from(key) * 10), Some(Text::from(&names[key as usize][..]))))
        .collect();
    bank.engine.transact(|tx| tx.insert_rows_as(whole, &rows, &pin())).unwrap();
    let tx = bank.engine.begin();
    assert_eq!(bank.scan(&tx), (0..40).map(|key| (key, i64::from(key) * 10)).collect::<Vec<_>>());

    // Looked for first and read afterwards.
    let guard = &pin();
    let keys = [(7,), (41,), (3,)];
    let located = tx.locate(by_key, &keys, balance, guard);
    let mut seen = Vec::new();
    tx.read_located(by_key, &keys, &located, balance, guard, |number, row| {
        seen.push((number, row.map(|(_, (balance,))| balance.unwrap())));
    });
    assert_eq!(seen, [(0, Some(70)), (1, None), (2, Some(30))]);
}

/// Every way to read notes what it has read.
#[test]
fn reads_of_tuples_are_validated() {
    type Read = fn(&Bank, &Transaction);
    let reads: [Read; 5] = [
        |bank, tx| assert!(tx.find_as(&bank.typed.by_key, &(2,), &bank.typed.balance, &pin()).is_some()),
        |bank, tx| tx.find_many_as(&bank.typed.by_key, &[(2,)], &bank.typed.balance, &pin(), |_, _| ()),
        |bank, tx| {
            let (guard, keys) = (&pin(), [(2,)]);
            let located = tx.locate(&bank.typed.by_key, &keys, &bank.typed.balance, guard);
            tx.read_located(&bank.typed.by_key, &keys, &located, &bank.typed.balance, guard, |_, _| ());
        },
        |bank, tx| tx.prefix_as(&bank.typed.by_key, &(2,), &bank.typed.balance, &pin(), |_, _| true),
        |bank, tx| {
            let guard = pin();
            let row = bank.find(&bank.engine.begin(), 2, &guard).unwrap();
            tx.read_as(&bank.typed.balance, row, &guard).unwrap();
        },
    ];
    for (number, read) in reads.into_iter().enumerate() {
        for (changed, fails) in [(2, true), (5, false)] {
            let bank = bank_with(&[(2, 20), (3, 30), (5, 50)]);
            let mut tx = bank.engine.begin();
            read(&bank, &tx);
            bank.engine.transact(|other| bank.set_balance(other, changed, 1)).unwrap();
            bank.set_balance(&mut tx, 3, 31).unwrap();
            let committed = tx.commit().map(drop);
            assert_eq!(committed.is_err(), fails, "read {number}, change of {changed}");
        }
    }
    // What was not there.
    let bank = bank_with(&[(3, 30)]);
    let mut tx = bank.engine.begin();
    tx.find_many_as(&bank.typed.by_key, &[(2,)], &bank.typed.balance, &pin(), |_, row| {
        assert!(row.is_none())
    });
    bank.engine.transact(|other| bank.insert(other, 2, 1)).unwrap();
    bank.set_balance(&mut tx, 3, 31).unwrap();
    assert_eq!(state(tx.commit()), SqlState::SERIALIZATION_FAILURE);
}
