//! Access paths and transactions as closures. All other tests check that they read and write as the untyped
//! interface does: see [`Bank`].

use crate::durable;
use crate::support::{Bank, Typed, commit};
use firn_base::disk::SimulatedDisk;
use firn_base::{Error, Result, SqlState, thread};
use firn_txn::catalog::{ConstraintDef, ConstraintKind, Deferral, Oid, ReferentialAction};
use firn_txn::{Columns, Isolation, Str, TableAccess, Text, Transaction, pin};
use std::ops::Bound;

fn state<T>(result: Result<T>) -> SqlState {
    result.err().expect("the call is refused").state()
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
fn what_does_not_exist_or_fit_is_an_error_when_paths_are_prepared() {
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
    let gone = bank.accounts.id();
    truncating.catalog_mut().unwrap().tables.retain(|_, table| table.storage() != gone);
    truncating.drop_storage(gone).unwrap();
    // A program that has prepared before may find more rows when it begins again.
    let mut before = bank.engine.begin();
    assert_eq!(before.catalog().tables.len(), 1);
    commit(truncating);
    assert_eq!(state(bank.insert(&mut before, 3, 30)), SqlState::SERIALIZATION_FAILURE);
    before.rollback();
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

    // Searched first and read afterwards.
    let guard = &pin();
    let keys = [(7,), (41,), (3,)];
    let located = tx.locate(by_key, &keys, balance, guard);
    let mut seen = Vec::new();
    tx.read_located(by_key, &keys, &located, balance, guard, |number, row| {
        seen.push((number, row.map(|(_, (balance,))| balance.unwrap())));
    });
    assert_eq!(seen, [(0, Some(70)), (1, None), (2, Some(30))]);
}

/// Every way to read notes its reads.
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
    // A row that did not exist.
    let bank = bank_with(&[(3, 30)]);
    let mut tx = bank.engine.begin();
    tx.find_many_as(&bank.typed.by_key, &[(2,)], &bank.typed.balance, &pin(), |_, row| {
        assert!(row.is_none())
    });
    bank.engine.transact(|other| bank.insert(other, 2, 1)).unwrap();
    bank.set_balance(&mut tx, 3, 31).unwrap();
    assert_eq!(state(tx.commit()), SqlState::SERIALIZATION_FAILURE);
}

/// A transaction that reads all rows is affected by inserted ones, and by new values of the columns that it
/// reads.
#[test]
fn scans_of_tuples_are_validated() {
    type Scan = fn(&Transaction, &Columns<(i32,)>);
    let scans: [Scan; 2] = [
        |tx, keys| tx.scan_as(keys, |_| ()),
        |tx, keys| assert_eq!(tx.fold_as(keys, 0, |sum, (key,)| *sum = i32::wrapping_add(*sum, key)), 5),
    ];
    for (number, scan) in scans.into_iter().enumerate() {
        type Change = fn(&Bank, &mut Transaction) -> Result<()>;
        let changes: [(Change, bool); 3] = [
            (|bank, tx| bank.insert(tx, 4, 40).map(drop), true),
            (|bank, tx| bank.set_key(tx, 3, 7), true),
            (|bank, tx| bank.set_balance(tx, 3, 31), false),
        ];
        for (at, (change, fails)) in changes.into_iter().enumerate() {
            let bank = bank_with(&[(2, 20), (3, 30)]);
            let accounts = TableAccess::open(&bank.engine, "accounts").unwrap();
            let mut tx = bank.engine.begin();
            scan(&tx, &accounts.columns(&["key"]).unwrap());
            bank.engine.transact(|other| change(&bank, other)).unwrap();
            bank.set_balance(&mut tx, 2, 21).unwrap();
            assert_eq!(tx.commit().is_err(), fails, "scan {number}, change {at}");
        }
    }
}

/// A transaction that gets rows in the order of a key is affected by changes of the key, even if it reads
/// other columns; beyond the row at which it stopped it is not.
#[test]
fn the_order_of_a_range_is_read() {
    for (from, to, fails) in [(3, 1, true), (4, 1, true), (4, 5, false)] {
        let bank = bank_with(&[(2, 20), (3, 30), (4, 40)]);
        let accounts = TableAccess::open(&bank.engine, "accounts").unwrap();
        let by_key = accounts.key::<(i32,)>("accounts_pkey").unwrap();
        let balances = accounts.columns::<(Option<i64>,)>(&["balance"]).unwrap();
        let mut tx = bank.engine.begin();
        let mut seen = Vec::new();
        let guard = pin();
        tx.range_as(
            &by_key,
            Bound::Unbounded,
            Bound::Unbounded,
            false,
            &balances,
            &guard,
            |_, (balance,)| {
                seen.push(balance);
                seen.len() < 2
            },
        );
        drop(guard);
        assert_eq!(seen, [Some(20), Some(30)]);
        bank.engine.transact(|other| bank.set_key(other, from, to)).unwrap();
        bank.insert(&mut tx, 7, 70).unwrap();
        assert_eq!(tx.commit().is_err(), fails, "{from} becomes {to}");
    }
}

/// A foreign key of another table is checked only by SQL, at both of its ends.
#[test]
fn what_others_point_to_is_neither_deleted_nor_given_another_key() {
    let bank = bank_with(&[(2, 20), (4, 40)]);
    let accounts = TableAccess::open(&bank.engine, "accounts").unwrap();
    let key = accounts.columns::<(i32,)>(&["key"]).unwrap();
    let row_of = |tx: &Transaction, key: i32| bank.find(tx, key, &pin()).unwrap();
    bank.engine.transact(|tx| tx.update_as(&key, row_of(tx, 4), &(6,), &pin())).unwrap();
    bank.engine.transact(|tx| tx.delete_as(&key, row_of(tx, 6), &pin())).unwrap();

    let mut ddl = bank.engine.begin();
    let catalog = ddl.catalog_mut().unwrap();
    let mut table = (**catalog.table(Oid::PUBLIC, "accounts").unwrap()).clone();
    let (parent, oid) = (table.oid, bank.engine.allocate_oid());
    table.oid = oid;
    table.name = "transfers".into();
    table.indexes.clear();
    table.constraints = vec![ConstraintDef {
        oid: bank.engine.allocate_oid(),
        name: "transfers_account_fkey".into(),
        kind: ConstraintKind::ForeignKey {
            columns: vec![0],
            parent,
            parent_columns: vec![0],
            on_delete: ReferentialAction::NoAction,
            on_update: ReferentialAction::NoAction,
            deferral: Deferral::Never,
        },
        valid: true,
    }];
    catalog.tables.insert(oid, table.into());
    commit(ddl);

    let refused = bank.engine.transact(|tx| tx.delete_as(&key, row_of(tx, 2), &pin())).unwrap_err();
    assert_eq!(refused.state(), SqlState::FEATURE_NOT_SUPPORTED);
    assert!(
        refused.message().contains("\"transfers\" has constraint \"transfers_account_fkey\""),
        "{refused}"
    );
    let refused = bank.engine.transact(|tx| tx.update_as(&key, row_of(tx, 2), &(8,), &pin()));
    assert_eq!(state(refused), SqlState::FEATURE_NOT_SUPPORTED);
    bank.engine.transact(|tx| bank.set_balance(tx, 2, 21)).unwrap();
    bank.engine.transact(|tx| bank.insert(tx, 10, 100)).unwrap();
    assert_eq!(bank.scan(&bank.engine.begin_read_only()), [(2, 21), (10, 100)]);
}

#[test]
fn closures_run_at_the_level_that_they_ask_for_or_only_read() {
    let bank = bank_with(&[(2, 20), (4, 40)]);
    for (isolation, skews) in [(Isolation::Snapshot, true), (Isolation::Serializable, false)] {
        let mut attempts = 0;
        let written = bank.engine.transact_at(isolation, |tx| {
            attempts += 1;
            let balance = bank.balance(tx, 2).unwrap();
            if attempts == 1 {
                bank.engine.transact(|other| bank.set_balance(other, 2, balance + 1))?;
            }
            bank.set_balance(tx, 4, balance)?;
            Ok(balance)
        });
        let now = bank.engine.read(|tx| Ok(bank.balance(tx, 2).unwrap())).unwrap();
        assert_eq!((attempts, now - written.unwrap()), if skews { (1, 1) } else { (2, 0) });
    }
    let refused = bank.engine.read(|_| Err::<(), Error>(Error::new(SqlState::CHECK_VIOLATION, "no")));
    assert_eq!(state(refused), SqlState::CHECK_VIOLATION);
}

/// From the beginning of the commit until it is on disk.
#[test]
fn commits_of_closures_are_timed_if_they_wait_for_a_disk() {
    let bank = Bank::on(durable::open(&SimulatedDisk::new()).unwrap());
    let timed = || bank.engine.statistics().latencies().map(|(_, commits)| commits).sum::<u64>();
    assert_eq!(timed(), 0);
    bank.engine.transact(|tx| bank.insert(tx, 1, 10)).unwrap();
    bank.engine.transact(|tx| Ok(bank.balance(tx, 1))).unwrap();
    bank.engine.read(|tx| Ok(bank.balance(tx, 1))).unwrap();
    bank.engine.transact(|tx| bank.set_balance(tx, 1, 11)).unwrap();
    assert_eq!(timed(), 2);
}
