//! From which effects serializable transactions are isolated, and from which they are not.

use crate::support::{BALANCE, Bank, KEY, NAME, commit};
use firn_base::{Cell, ColumnId, ColumnSet, SqlState, SqlType};
use firn_storage::{KeyBuffer, summary};
use firn_txn::{Config, Granularity, Isolation, Restriction, StringRange, Transaction, pin};
use std::ops::Bound;

fn bank_with(accounts: &[(i32, i64)]) -> Bank {
    fill(Bank::open(), accounts)
}

fn fill(bank: Bank, accounts: &[(i32, i64)]) -> Bank {
    let mut tx = bank.engine.begin();
    for (key, balance) in accounts {
        bank.insert(&mut tx, *key, *balance).unwrap();
    }
    commit(tx);
    bank
}

fn refused(tx: Transaction) {
    let error = tx.commit().unwrap_err();
    assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
    assert!(error.message().contains("accounts"), "{error}");
}

/// Runs `read` in a transaction that then writes an account of its own, and `change` in another one that
/// commits meanwhile. Returns whether the first still commits.
fn holds(bank: &Bank, read: impl FnOnce(&mut Transaction), change: impl FnOnce(&mut Transaction)) -> bool {
    const OWN: i32 = 1_000_000;
    let mut reader = bank.engine.begin();
    read(&mut reader);
    let mut writer = bank.engine.try_begin(Isolation::Snapshot).unwrap();
    change(&mut writer);
    commit(writer);
    bank.insert(&mut reader, OWN, 0).unwrap();
    let outcome = reader.commit();
    let held = outcome.is_ok();
    if let Err(error) = outcome {
        assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
    }
    let mut tidy = bank.engine.begin();
    if held {
        bank.delete(&mut tidy, OWN).unwrap();
    }
    commit(tidy);
    held
}

fn range(bank: &Bank, tx: &Transaction, low: i32, high: i32, rows: usize, columns: &[ColumnId; 1]) {
    let (low, high) = (bank.key(low), bank.key(high));
    let bounds = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
    let mut left = rows;
    tx.range_read(&bank.accounts, &bank.by_key, bounds, false, columns, &pin(), &mut |_, _| {
        left -= 1;
        left > 0
    });
}

fn insert(bank: &Bank, tx: &mut Transaction, key: i32, balance: i64) {
    bank.insert(tx, key, balance).unwrap();
}

/// Two doctors are on call; each may leave as long as the other stays on call.
#[test]
fn of_two_that_each_rely_on_what_the_other_changes_one_fails() {
    let bank = bank_with(&[(1, 1), (2, 1)]);
    let leave = |isolation, key: i32| {
        let mut tx = bank.engine.try_begin(isolation).unwrap();
        let on_call: i64 = [1, 2].iter().map(|doctor| bank.balance(&tx, *doctor).unwrap()).sum();
        assert_eq!(on_call, 2);
        bank.set_balance(&mut tx, key, 0).unwrap();
        tx
    };
    let (first, second) = (leave(Isolation::Serializable, 1), leave(Isolation::Serializable, 2));
    commit(first);
    refused(second);
    let mut back = bank.engine.begin();
    bank.set_balance(&mut back, 1, 1).unwrap();
    commit(back);
    // Snapshot isolation permits it.
    let (first, second) = (leave(Isolation::Snapshot, 1), leave(Isolation::Snapshot, 2));
    commit(first);
    commit(second);
    assert_eq!(bank.scan(&bank.engine.begin()), [(1, 0), (2, 0)]);
}

/// Figure 2.7 of Mühlbauer, "On Scalable and Flexible Transaction and Query Processing in Main-Memory
/// Database Systems", TU München 2016: money is withdrawn from either of two accounts as long as their sum
/// allows it.
#[test]
fn the_sum_of_two_accounts_does_not_fall_below_zero() {
    let bank = bank_with(&[(1, 60), (2, 60)]);
    let draw = |key: i32| {
        let mut tx = bank.engine.begin();
        let mut sum = 0;
        range_sum(&bank, &tx, &mut sum);
        assert!(sum >= 100);
        let balance = bank.balance(&tx, key).unwrap();
        bank.set_balance(&mut tx, key, balance - 100).unwrap();
        tx
    };
    let (first, second) = (draw(1), draw(2));
    commit(second);
    refused(first);
    assert_eq!(bank.scan(&bank.engine.begin()), [(1, 60), (2, -40)]);
}

fn range_sum(bank: &Bank, tx: &Transaction, sum: &mut i64) {
    let all = (Bound::Unbounded, Bound::Unbounded);
    tx.range_read(&bank.accounts, &bank.by_key, all, false, &[BALANCE], &pin(), &mut |_, cells| {
        *sum += cells[0].as_i64();
        true
    });
}

/// Figure 2.6 (a) and (b) of Mühlbauer 2016: a reader of an old version commits unless it wrote; one that
/// commits before an earlier writer may.
#[test]
fn the_first_to_commit_need_not_have_begun_first() {
    let bank = bank_with(&[(1, 10), (2, 20)]);
    // (b): the writer of 1 began before, and commits after.
    let mut writer = bank.engine.begin();
    bank.set_balance(&mut writer, 1, 11).unwrap();
    let mut slipping = bank.engine.begin();
    assert_eq!(bank.balance(&slipping, 1), Some(10));
    bank.set_balance(&mut slipping, 2, 21).unwrap();
    let long = bank.engine.begin();
    commit(slipping);
    commit(writer);
    assert_eq!((bank.balance(&long, 1), bank.balance(&long, 2)), (Some(10), Some(20)));
    commit(long);
    // (a): both read what the other writes; the second one fails.
    let mut first = bank.engine.begin();
    let mut second = bank.engine.begin();
    assert_eq!((bank.balance(&first, 2), bank.balance(&second, 1)), (Some(21), Some(11)));
    bank.set_balance(&mut first, 1, 12).unwrap();
    bank.set_balance(&mut second, 2, 22).unwrap();
    commit(second);
    refused(first);
}

#[test]
fn reading_alone_never_fails() {
    let bank = bank_with(&[(1, 10)]);
    let reader = bank.engine.begin();
    assert_eq!(bank.scan(&reader), [(1, 10)]);
    let mut writer = bank.engine.begin();
    bank.set_balance(&mut writer, 1, 11).unwrap();
    bank.insert(&mut writer, 2, 20).unwrap();
    commit(writer);
    assert_eq!(bank.scan(&reader), [(1, 10)]);
    commit(reader);
}

#[test]
fn writing_blindly_fails_over_nothing_that_was_read() {
    let bank = bank_with(&[(1, 10)]);
    assert!(holds(&bank, |_| {}, |tx| bank.set_balance(tx, 1, 11).unwrap()));
}

#[test]
fn a_row_counts_by_the_columns_that_were_read_of_it() {
    let bank = bank_with(&[(1, 10), (2, 20)]);
    let name = |tx: &mut Transaction| {
        let guard = pin();
        let mut cells = [Cell::Null];
        tx.find(&bank.accounts, &bank.by_key, &bank.key(1), &[NAME], &mut cells, &guard).unwrap();
    };
    let balance = |tx: &mut Transaction| assert!(bank.balance(tx, 1).is_some());
    assert!(holds(&bank, name, |tx| bank.set_balance(tx, 1, 11).unwrap()));
    assert!(!holds(&bank, balance, |tx| bank.set_balance(tx, 1, 12).unwrap()));
    assert!(holds(&bank, balance, |tx| bank.set_balance(tx, 2, 22).unwrap()));
    assert!(!holds(&bank, name, |tx| bank.set_key(tx, 1, 3).unwrap()), "the key led to it");
    assert!(!holds(&bank, |tx| assert!(bank.balance(tx, 3).is_some()), |tx| bank.delete(tx, 3).unwrap()));
}

#[test]
fn by_record_any_change_of_a_row_that_was_read_counts() {
    let bank = fill(
        Bank::open_with(Config { granularity: Granularity::Record, ..Config::default() }),
        &[(1, 10), (2, 20)],
    );
    let name = |tx: &mut Transaction| {
        let guard = pin();
        let mut cells = [Cell::Null];
        tx.find(&bank.accounts, &bank.by_key, &bank.key(1), &[NAME], &mut cells, &guard).unwrap();
    };
    assert!(!holds(&bank, name, |tx| bank.set_balance(tx, 1, 11).unwrap()));
    assert!(holds(&bank, name, |tx| bank.set_balance(tx, 2, 21).unwrap()));
    assert!(!holds(
        &bank,
        |tx| range(&bank, tx, 0, 3, 9, &[NAME]),
        |tx| bank.set_balance(tx, 2, 22).unwrap()
    ));
}

#[test]
fn a_value_set_and_set_back_makes_no_difference() {
    let bank = bank_with(&[(1, 10)]);
    let read = |tx: &mut Transaction| assert_eq!(bank.balance(tx, 1), Some(10));
    assert!(holds(&bank, read, |tx| {
        bank.set_balance(tx, 1, 99).unwrap();
        bank.set_balance(tx, 1, 10).unwrap();
    }));
    // By two transactions.
    let mut reader = bank.engine.begin();
    read(&mut reader);
    for balance in [99, 10] {
        let mut writer = bank.engine.begin();
        bank.set_balance(&mut writer, 1, balance).unwrap();
        commit(writer);
    }
    bank.insert(&mut reader, 2, 0).unwrap();
    commit(reader);
}

#[test]
fn what_was_not_found_must_still_not_be_there() {
    let bank = bank_with(&[(1, 10)]);
    let missing = |tx: &mut Transaction| assert_eq!(bank.balance(tx, 7), None);
    assert!(holds(&bank, missing, |tx| insert(&bank, tx, 8, 80)));
    assert!(!holds(&bank, missing, |tx| insert(&bank, tx, 7, 70)));
    let many = |tx: &mut Transaction| {
        let encode =
            &mut |number: usize, key: &mut KeyBuffer| bank.by_key.encode(&[Cell::i32(number as i32)], key);
        let mut found = 0;
        tx.find_many(&bank.accounts, &bank.by_key, 7, encode, &[BALANCE], &pin(), &mut |_, row| {
            found += usize::from(row.is_some());
        });
        assert_eq!(found, 1);
    };
    assert!(holds(&bank, many, |tx| insert(&bank, tx, 9, 90)));
    assert!(!holds(&bank, many, |tx| insert(&bank, tx, 5, 50)));
    // A key found taken must still be taken.
    let taken = |tx: &mut Transaction| {
        let savepoint = tx.savepoint();
        assert_eq!(bank.insert(tx, 9, 0).unwrap_err().state(), SqlState::UNIQUE_VIOLATION);
        tx.rollback_to(savepoint);
    };
    assert!(holds(&bank, taken, |tx| bank.delete(tx, 8).unwrap()));
    assert!(!holds(&bank, taken, |tx| bank.delete(tx, 9).unwrap()));
}

#[test]
fn a_range_conflicts_with_inserts_deletes_and_changes_in_it() {
    let bank = bank_with(&[(10, 1), (20, 2), (30, 3), (40, 4)]);
    let read = |tx: &mut Transaction| range(&bank, tx, 15, 35, 99, &[BALANCE]);
    assert!(holds(&bank, read, |tx| insert(&bank, tx, 14, 0)));
    assert!(holds(&bank, read, |tx| insert(&bank, tx, 35, 0)), "the end is excluded");
    assert!(!holds(&bank, read, |tx| insert(&bank, tx, 15, 0)));
    assert!(!holds(&bank, read, |tx| bank.delete(tx, 20).unwrap()));
    assert!(holds(&bank, read, |tx| bank.delete(tx, 40).unwrap()));
    assert!(!holds(&bank, read, |tx| bank.set_balance(tx, 30, 33).unwrap()));
    assert!(holds(&bank, read, |tx| bank.set_balance(tx, 10, 11).unwrap()));
    assert!(!holds(&bank, read, |tx| bank.set_key(tx, 10, 22).unwrap()), "it enters the range");
    assert!(!holds(&bank, read, |tx| bank.set_key(tx, 22, 10).unwrap()), "it leaves");
    let keys = |tx: &mut Transaction| range(&bank, tx, 15, 35, 99, &[KEY]);
    assert!(holds(&bank, keys, |tx| bank.set_balance(tx, 30, 34).unwrap()), "the balance was not read");
}

#[test]
fn a_range_that_was_left_early_ends_there() {
    let bank = bank_with(&[(10, 1), (20, 2), (30, 3)]);
    let first = |tx: &mut Transaction| range(&bank, tx, 0, 99, 1, &[BALANCE]);
    assert!(holds(&bank, first, |tx| bank.set_balance(tx, 20, 22).unwrap()));
    assert!(holds(&bank, first, |tx| insert(&bank, tx, 11, 0)));
    assert!(!holds(&bank, first, |tx| insert(&bank, tx, 9, 0)));
    let last = |tx: &mut Transaction| {
        let all = Bound::Unbounded;
        tx.range(&bank.accounts, &bank.by_key, all, all, true, &pin(), &mut |_| false);
    };
    assert!(holds(&bank, last, |tx| insert(&bank, tx, 29, 0)));
    assert!(!holds(&bank, last, |tx| insert(&bank, tx, 31, 0)));
}

#[test]
fn a_scan_conflicts_with_what_meets_its_conditions() {
    let bank = bank_with(&[(1, 10), (2, 20), (3, 30)]);
    let above = |low: i64, columns: &[ColumnId]| {
        let low = summary(SqlType::BigInt, &Cell::i64(low)).unwrap();
        let condition = Restriction::within(BALANCE, low, u64::MAX);
        let columns: ColumnSet = columns.iter().copied().collect();
        let accounts = bank.accounts.clone();
        move |tx: &mut Transaction| tx.note_scan(&accounts, std::slice::from_ref(&condition), columns)
    };
    assert!(holds(&bank, above(15, &[KEY]), |tx| bank.set_balance(tx, 1, 14).unwrap()));
    assert!(holds(&bank, above(15, &[KEY]), |tx| bank.set_balance(tx, 2, 25).unwrap()));
    assert!(!holds(&bank, above(15, &[KEY, BALANCE]), |tx| bank.set_balance(tx, 2, 26).unwrap()));
    assert!(!holds(&bank, above(15, &[KEY]), |tx| bank.set_balance(tx, 1, 15).unwrap()));
    assert!(!holds(&bank, above(16, &[]), |tx| bank.delete(tx, 3).unwrap()));
    assert!(holds(&bank, above(16, &[]), |tx| bank.delete(tx, 1).unwrap()));
    let all = |tx: &mut Transaction| tx.note_scan(&bank.accounts, &[], ColumnSet::NONE.with(NAME));
    assert!(holds(&bank, all, |tx| bank.set_balance(tx, 2, 1).unwrap()));
    assert!(!holds(&bank, all, |tx| insert(&bank, tx, 9, 9)));
}

/// In a range of an index whose rows are filtered, the other rows are not read.
#[test]
fn a_range_conflicts_only_with_rows_that_pass_its_filter() {
    let bank = bank_with(&[(1, 10), (2, 20), (3, 30), (4, 40)]);
    let balance = |balance: i64| summary(SqlType::BigInt, &Cell::i64(balance)).unwrap();
    let poor_or_unknown = || {
        let poor = Restriction::within(BALANCE, 0, balance(20));
        Restriction::any([poor, Restriction::null(BALANCE)]).unwrap()
    };
    let key = |key: i32| {
        let mut bytes = KeyBuffer::new();
        bank.by_key.encode(&[Cell::i32(key)], &mut bytes);
        bytes
    };
    let first = |tx: &mut Transaction| {
        let (low, high) = (key(1), key(3));
        let bounds = (Bound::Included(&low[..]), Bound::Included(&high[..]));
        let columns = ColumnSet::NONE.with(BALANCE);
        let filter = [poor_or_unknown()];
        tx.range_under(&bank.accounts, &bank.by_key, bounds, false, &filter, columns, &pin(), &mut |_| true);
    };
    let set =
        |key, balance| move |bank: &Bank, tx: &mut Transaction| bank.set_balance(tx, key, balance).unwrap();
    assert!(holds(&bank, first, |tx| set(3, 21)(&bank, tx)), "rich before and after");
    assert!(holds(&bank, first, |tx| insert(&bank, tx, 5, 5)), "beyond the range");
    assert!(!holds(&bank, first, |tx| set(3, 20)(&bank, tx)), "comes in");
    assert!(!holds(&bank, first, |tx| set(1, 30)(&bank, tx)), "goes out");
    assert!(!holds(&bank, first, |tx| set(2, 15)(&bank, tx)), "is read");
    let unknown = |tx: &mut Transaction| {
        let row = bank.find(tx, 1, &pin()).unwrap();
        tx.update(&bank.accounts, row, &[BALANCE], &[Cell::Null], &pin()).unwrap();
    };
    assert!(!holds(&bank, first, unknown), "it enters as NULL");

    // Thousands of ranges become fewer without filters.
    let many = |tx: &mut Transaction| (0..if cfg!(miri) { 20 } else { 3_000 }).for_each(|_| first(tx));
    assert!(holds(&bank, many, |tx| set(4, 1)(&bank, tx)));
    assert!(!holds(&bank, many, |tx| set(2, 16)(&bank, tx)));
}

/// Conditions on strings are known by their first bytes, unless they have the strings: a change with the same
/// bytes conflicts only if it may make a difference.
#[test]
fn conditions_on_strings_are_ranges_of_their_first_bytes_or_of_strings() {
    let bank = bank_with(&[]);
    let add = |key: i32, name: &str| {
        let cells = [Cell::i32(key), Cell::i64(0), Cell::text(name)];
        let mut tx = bank.engine.begin();
        tx.insert(&bank.accounts, &cells, &pin()).unwrap();
        commit(tx);
    };
    for (key, name) in [(1, "Armstrong the elder"), (2, "Armstrong the younger"), (3, "Baker")] {
        add(key, name);
    }
    let named = |tx: &mut Transaction| {
        let only = summary(SqlType::Text, &Cell::text("Armstrong the elder")).unwrap();
        tx.note_scan(&bank.accounts, &[Restriction::within(NAME, only, only)], ColumnSet::NONE);
    };
    let rename = |tx: &mut Transaction, key: i32, name: &str| {
        let row = bank.find(tx, key, &pin()).unwrap();
        tx.update(&bank.accounts, row, &[NAME], &[Cell::text(name)], &pin()).unwrap();
    };
    assert!(holds(&bank, named, |tx| rename(tx, 3, "Butcher")));
    assert!(holds(&bank, named, |tx| bank.set_balance(tx, 2, 5).unwrap()));
    assert!(!holds(&bank, named, |tx| rename(tx, 2, "Armstrong the middle")), "it might be the same string");
    assert!(!holds(&bank, named, |tx| rename(tx, 3, "Armstrong the elder")));

    let exactly = |tx: &mut Transaction| {
        let only = Restriction::of_strings(NAME, StringRange::only(b"Armstrong the elder"));
        tx.note_scan(&bank.accounts, &[only], ColumnSet::NONE);
    };
    assert!(
        holds(&bank, exactly, |tx| rename(tx, 2, "Armstrong the younger")),
        "it cannot be the same string"
    );
    assert!(!holds(&bank, exactly, |tx| rename(tx, 3, "Armstrong the younger")), "it was the same string");
    assert!(!holds(&bank, exactly, |tx| rename(tx, 2, "Armstrong the elder")));
}

#[test]
fn reads_of_a_statement_that_was_rolled_back_still_count() {
    let bank = bank_with(&[(1, 10)]);
    assert!(!holds(
        &bank,
        |tx| {
            let savepoint = tx.savepoint();
            assert_eq!(bank.balance(tx, 1), Some(10));
            bank.insert(tx, 5, 50).unwrap();
            tx.rollback_to(savepoint);
        },
        |tx| bank.set_balance(tx, 1, 11).unwrap()
    ));
}

#[test]
fn changes_that_were_rolled_back_conflict_with_none() {
    let bank = bank_with(&[(1, 10), (2, 20)]);
    let mut reader = bank.engine.begin();
    assert_eq!(bank.scan(&reader).len(), 2);
    let mut gone = bank.engine.begin();
    bank.set_balance(&mut gone, 1, 99).unwrap();
    bank.insert(&mut gone, 3, 30).unwrap();
    gone.rollback();
    let mut partly = bank.engine.begin();
    let savepoint = partly.savepoint();
    bank.delete(&mut partly, 2).unwrap();
    partly.rollback_to(savepoint);
    commit(partly);
    bank.insert(&mut reader, 4, 40).unwrap();
    commit(reader);
}

#[test]
fn thousands_of_rows_become_ranges_that_still_hold_them() {
    const ROWS: i32 = if cfg!(miri) { 20 } else { 10_000 };
    let accounts: Vec<(i32, i64)> = (0..ROWS).map(|key| (2 * key, 1)).collect();
    let bank = bank_with(&accounts);
    // Every third, so that the ranges have gaps.
    let some = |tx: &mut Transaction| {
        (0..ROWS / 2).for_each(|key| assert!(bank.balance(tx, 2 * key).is_some()));
    };
    assert!(!holds(&bank, some, |tx| bank.set_balance(tx, ROWS / 2 * 2 - 2, 2).unwrap()));
    assert!(!holds(&bank, some, |tx| bank.set_balance(tx, 0, 2).unwrap()));
    assert!(holds(&bank, some, |tx| bank.set_balance(tx, 2 * ROWS - 2, 2).unwrap()));
}

#[test]
fn thousands_of_keys_not_found_become_ranges_that_still_hold_them() {
    const KEYS: i32 = if cfg!(miri) { 20 } else { 5_000 };
    let bank = bank_with(&[(1, 1)]);
    let missing = |tx: &mut Transaction| {
        // In no order.
        (0..KEYS).for_each(|key| assert_eq!(bank.balance(tx, 10 + key * 7919 % KEYS), None));
    };
    assert!(holds(&bank, missing, |tx| insert(&bank, tx, 9, 0)));
    assert!(holds(&bank, missing, |tx| insert(&bank, tx, 10 + KEYS, 0)));
    assert!(holds(&bank, missing, |tx| bank.set_balance(tx, 1, 2).unwrap()));
    for key in [10, 10 + KEYS / 2, 9 + KEYS] {
        assert!(!holds(&bank, missing, |tx| insert(&bank, tx, key, 0)), "{key}");
        let mut tx = bank.engine.begin();
        bank.delete(&mut tx, key).unwrap();
        commit(tx);
    }
}

#[test]
fn many_scans_of_a_table_still_have_the_conflicts_of_each() {
    let bank = bank_with(&[(1, 10)]);
    let scans = |tx: &mut Transaction| {
        for balance in 1000..1200 {
            let at = summary(SqlType::BigInt, &Cell::i64(balance)).unwrap();
            let condition = Restriction::within(BALANCE, at, at);
            tx.note_scan(&bank.accounts, &[condition], ColumnSet::NONE.with(KEY));
        }
    };
    for balance in [1000, 1063, 1064, 1199] {
        assert!(!holds(&bank, scans, |tx| bank.set_balance(tx, 1, balance).unwrap()), "{balance}");
        let mut tx = bank.engine.begin();
        bank.set_balance(&mut tx, 1, 10).unwrap();
        commit(tx);
    }
    // Repeated reads of one row are noted once.
    let same = |tx: &mut Transaction| {
        (0..1000).for_each(|_| {
            tx.note_scan(&bank.accounts, &[Restriction::within(BALANCE, 0, 0)], ColumnSet::NONE.with(KEY))
        })
    };
    assert!(holds(&bank, same, |tx| bank.set_balance(tx, 1, 11).unwrap()));
}

/// A restart forgets what its statement read, not what was read before, also when that was much.
#[test]
fn a_statement_that_is_run_again_forgets_only_its_own_reads() {
    const KEYS: i32 = if cfg!(miri) { 20 } else { 3_000 };
    for before in [1, KEYS] {
        let bank = bank_with(&[(1, 10), (2, 20)]);
        let mut tx = bank.engine.begin();
        (0..before).for_each(|key| assert_eq!(bank.balance(&tx, 100 + key), None));
        let statement = tx.begin_statement();
        (0..KEYS).for_each(|key| assert_eq!(bank.balance(&tx, 100_000 + key), None));
        assert_eq!(bank.balance(&tx, 1), Some(10));
        let mut other = bank.engine.begin();
        bank.set_balance(&mut other, 1, 11).unwrap();
        commit(other);
        assert_eq!(bank.set_balance(&mut tx, 1, 12).unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
        tx.restart(&statement).unwrap();
        assert_eq!(bank.balance(&tx, 1), Some(11));
        let statement = tx.begin_statement();
        let mut other = bank.engine.begin();
        bank.insert(&mut other, 100, 0).unwrap();
        commit(other);
        assert_eq!(tx.restart(&statement).unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
    }
}

/// Also if it has checked meanwhile whether all of that is still valid.
#[test]
fn a_statement_that_has_kept_up_and_is_run_again_forgets_only_its_own_reads() {
    let bank = bank_with(&[(1, 10), (2, 20), (3, 30), (4, 40)]);
    let set = |key| bank.engine.transact(|other| bank.set_balance(other, key, 100)).unwrap();
    let mut tx = bank.engine.begin();
    assert_eq!(bank.balance(&tx, 3), Some(30));
    let statement = tx.begin_statement();
    for key in [2, 1] {
        bank.balance(&tx, key).unwrap();
    }
    set(4);
    assert!(tx.advance_snapshot());
    set(1);
    tx.restart(&statement).unwrap();
    set(3);
    insert(&bank, &mut tx, 5, 50);
    refused(tx);
}

/// What a long load does between its batches.
#[test]
fn advancing_shows_the_newest_state_unless_what_was_read_has_changed() {
    for isolation in [Isolation::Serializable, Isolation::ReadCommitted, Isolation::Snapshot] {
        let bank = bank_with(&[(1, 10), (2, 20), (5, 50)]);
        let set = |key, balance| {
            let mut tx = bank.engine.begin();
            bank.set_balance(&mut tx, key, balance).unwrap();
            commit(tx);
        };
        let moves = isolation != Isolation::Snapshot;
        let mut long = bank.engine.try_begin(isolation).unwrap();
        assert_eq!(bank.balance(&long, 1), Some(10));
        insert(&bank, &mut long, 3, 30);
        set(2, 21);
        assert_eq!(long.advance_snapshot(), moves);
        assert_eq!(bank.balance(&long, 2), Some(if moves { 21 } else { 20 }), "{isolation:?}");
        assert_eq!(bank.balance(&long, 3), Some(30), "its own changes remain");
        assert_eq!(bank.balance(&bank.engine.begin(), 3), None);
        for balance in 0..100 {
            set(5, balance);
            assert_eq!(long.advance_snapshot(), moves);
        }
        let backlog = bank.engine.garbage_backlog();
        assert_eq!(backlog < 50, moves, "{backlog} write sets are left to collect");
        set(1, 11);
        let sees = isolation == Isolation::ReadCommitted;
        assert_eq!(long.advance_snapshot(), sees);
        assert_eq!(bank.balance(&long, 1), Some(if sees { 11 } else { 10 }), "{isolation:?}");
        insert(&bank, &mut long, 4, 40);
        match isolation {
            Isolation::Serializable => refused(long),
            Isolation::ReadCommitted | Isolation::Snapshot => commit(long),
        }
        let kept = isolation != Isolation::Serializable;
        assert_eq!(bank.balance(&bank.engine.begin(), 4), kept.then_some(40));
    }
}

/// That a key was taken is read like anything else, also by a transaction without a snapshot.
#[test]
fn a_transaction_that_found_a_key_taken_fails_if_it_no_longer_is() {
    for goes in [false, true] {
        let bank = bank_with(&[(1, 10)]);
        let mut inserting = bank.engine.begin();
        inserting.release_snapshot();
        let savepoint = inserting.savepoint();
        let error = bank.insert(&mut inserting, 1, 11).unwrap_err();
        assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
        inserting.rollback_to(savepoint);
        if goes {
            let mut tx = bank.engine.begin();
            bank.delete(&mut tx, 1).unwrap();
            commit(tx);
        }
        insert(&bank, &mut inserting, 2, 20);
        if goes { refused(inserting) } else { commit(inserting) }
    }
}

/// The error for a key that is taken by an unseen row. It is 23505 if the transaction may be ordered after
/// the owner of that row. It is a conflict if what it has read has changed since: running it again is the
/// cure then. A transaction that continues after errors gets the conflict in any case.
#[test]
fn a_key_taken_by_an_unseen_row_is_a_conflict_if_what_was_read_has_changed() {
    const CONFLICT: SqlState = SqlState::SERIALIZATION_FAILURE;
    // Keys inserted as cells and as tuples.
    for key in [5, 6] {
        for (reads, ends, expected) in [
            (None, true, SqlState::UNIQUE_VIOLATION),
            (Some(1), true, SqlState::UNIQUE_VIOLATION),
            (Some(2), true, CONFLICT),
            (Some(key), true, CONFLICT),
            (None, false, CONFLICT),
            (Some(1), false, CONFLICT),
        ] {
            let bank = bank_with(&[(1, 10), (2, 20)]);
            let mut late = bank.engine.begin();
            if ends {
                late.set_continues_after_error(false);
            }
            if let Some(read) = reads {
                bank.balance(&late, read);
            }
            let mut first = bank.engine.begin();
            insert(&bank, &mut first, key, 1);
            bank.set_balance(&mut first, 2, 21).unwrap();
            commit(first);
            let error = bank.insert(&mut late, key, 2).unwrap_err();
            assert_eq!(error.state(), expected, "{key}: {reads:?}, {ends}");
            // Its snapshot remains.
            assert_eq!(bank.balance(&late, 2), Some(20));
            drop(late);
            assert_eq!(bank.balance(&bank.engine.begin(), key), Some(1));
        }
    }
    // A row that it sees is a violation, whatever it has read.
    let bank = bank_with(&[(1, 10), (2, 20)]);
    let mut late = bank.engine.begin();
    late.set_continues_after_error(false);
    bank.balance(&late, 2);
    let mut first = bank.engine.begin();
    bank.set_balance(&mut first, 2, 21).unwrap();
    commit(first);
    assert_eq!(bank.insert(&mut late, 1, 2).unwrap_err().state(), SqlState::UNIQUE_VIOLATION);
}

/// What a load does from the beginning.
#[test]
fn for_a_transaction_that_only_inserts_no_version_is_retained_and_keys_are_the_newest() {
    let bank = bank_with(&[(1, 10), (2, 20)]);
    let mut inserting = bank.engine.begin();
    inserting.release_snapshot();
    insert(&bank, &mut inserting, 3, 30);
    for balance in 0..100 {
        let mut tx = bank.engine.begin();
        bank.set_balance(&mut tx, 1, balance).unwrap();
        commit(tx);
    }
    let mut tx = bank.engine.begin();
    bank.delete(&mut tx, 2).unwrap();
    insert(&bank, &mut tx, 4, 40);
    commit(tx);
    let begun = std::time::Instant::now();
    while bank.engine.garbage_backlog() > 0 {
        assert!(begun.elapsed().as_secs() < 60, "a version is retained for it");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // A key that was freed since it began is free, and one that was taken since is taken.
    let mut statement = inserting.begin_statement();
    inserting.release_snapshot();
    insert(&bank, &mut inserting, 2, 21);
    let error = bank.insert(&mut inserting, 4, 41).unwrap_err();
    assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
    // It may need another attempt, and then reads like one that begins now.
    inserting.restart(&statement).unwrap();
    assert_eq!(bank.balance(&inserting, 1), Some(99));
    assert_eq!(bank.balance(&inserting, 2), None, "taken back");
    assert_eq!(bank.balance(&inserting, 3), Some(30));
    // It has read by now, and keeps its snapshot.
    statement = inserting.begin_statement();
    inserting.release_snapshot();
    let mut tx = bank.engine.begin();
    bank.set_balance(&mut tx, 1, 7).unwrap();
    commit(tx);
    assert_eq!(bank.balance(&inserting, 1), Some(99));
    inserting.restart(&statement).expect_err("what it has read has changed");
    drop(inserting);
    assert_eq!(bank.balance(&bank.engine.begin(), 3), None);
}

#[test]
fn a_table_that_was_altered_or_dropped_fails_its_readers() {
    let bank = bank_with(&[(1, 10)]);
    let mut before = bank.engine.begin();
    let own = before.create_storage("own", bank.accounts.columns().to_vec()).unwrap();
    let own = before.table(own);
    commit(before);
    let mut reader = bank.engine.begin();
    assert_eq!(bank.balance(&reader, 1), Some(10));
    let mut other = bank.engine.begin();
    let elsewhere = other.create_storage("elsewhere", vec![]).unwrap();
    commit(other);
    assert_eq!(bank.balance(&reader, 1), Some(10), "DDL of another table does not matter");
    let mut truncating = bank.engine.begin();
    truncating.lock_exclusive(&bank.accounts).unwrap();
    truncating.drop_storage(bank.accounts.id()).unwrap();
    truncating.drop_storage(elsewhere).unwrap();
    let new = truncating.create_storage("accounts", bank.accounts.columns().to_vec()).unwrap();
    let table = truncating.table(new);
    commit(truncating);
    let row = [Cell::i32(1), Cell::i64(1), Cell::Null];
    let error = reader.insert(&table, &row, &pin()).expect_err("it does not see the new table's rows either");
    assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
    reader.insert(&own, &row, &pin()).unwrap_or_else(|error| panic!("{error}"));
    refused(reader);
}

/// A long transaction and many writers, whose versions are trimmed meanwhile.
#[test]
#[cfg_attr(miri, ignore = "commits tens of thousands of transactions")]
fn what_was_trimmed_still_counts() {
    let bank = bank_with(&[(1, 10), (2, 20)]);
    let mut holding = bank.engine.begin();
    let mut failing = bank.engine.begin();
    assert_eq!(bank.balance(&holding, 2), Some(20));
    assert_eq!(bank.balance(&failing, 1), Some(10));
    for balance in 0..40_000 {
        let mut writer = bank.engine.begin();
        bank.set_balance(&mut writer, 1, balance).unwrap();
        commit(writer);
    }
    let begun = std::time::Instant::now();
    while bank.engine.garbage_backlog() > 10_000 && begun.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(bank.engine.garbage_backlog() <= 10_000, "nothing was trimmed");
    bank.insert(&mut holding, 3, 0).unwrap();
    commit(holding);
    bank.insert(&mut failing, 4, 0).unwrap();
    refused(failing);
}
