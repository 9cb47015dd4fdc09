//! What one transaction sees of another, case by case.

use crate::support::{Bank, commit};
use firn_base::random::Random;
use firn_base::{Cell, SqlState};
use firn_txn::{Isolation, RowLock, Transaction, pin};
use std::collections::BTreeMap;
use std::ops::Range;

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
fn a_snapshot_does_not_see_what_commits_after_it_began() {
    let bank = bank_with(&[(1, 10), (2, 20), (3, 30)]);
    let old = bank.engine.begin();
    let mut writer = bank.engine.begin();
    bank.set_balance(&mut writer, 1, 11).unwrap();
    bank.delete(&mut writer, 2).unwrap();
    bank.insert(&mut writer, 4, 40).unwrap();
    assert_eq!(bank.scan(&writer), [(1, 11), (3, 30), (4, 40)]);
    assert_eq!(bank.scan(&old), [(1, 10), (2, 20), (3, 30)]);
    commit(writer);
    assert_eq!(bank.scan(&old), [(1, 10), (2, 20), (3, 30)]);
    assert_eq!((bank.balance(&old, 2), bank.balance(&old, 4)), (Some(20), None));
    let new = bank.engine.begin();
    assert_eq!(bank.scan(&new), [(1, 11), (3, 30), (4, 40)]);
    assert_eq!((bank.balance(&new, 2), bank.balance(&new, 4)), (None, Some(40)));
}

#[test]
fn an_aborted_update_is_never_seen_by_an_older_snapshot() {
    let bank = bank_with(&[(1, 10)]);
    let old = bank.engine.begin();
    let mut writer = bank.engine.begin();
    bank.set_balance(&mut writer, 1, 99).unwrap();
    bank.insert(&mut writer, 2, 20).unwrap();
    writer.rollback();
    assert_eq!(bank.scan(&old), [(1, 10)]);
    assert_eq!(bank.scan(&bank.engine.begin()), [(1, 10)]);
    // A change that was rolled back does not conflict.
    let mut next = bank.engine.begin();
    bank.set_balance(&mut next, 1, 12).unwrap();
    bank.insert(&mut next, 2, 21).unwrap();
    commit(next);
    assert_eq!(bank.scan(&bank.engine.begin()), [(1, 12), (2, 21)]);
    assert_eq!(bank.scan(&old), [(1, 10)]);
}

/// More rows than a block has slots, so that they are inserted in several blocks.
#[test]
fn rows_inserted_together_come_and_go_together() {
    const ROWS: i32 = if cfg!(miri) { 20 } else { 3_000 };
    let bank = bank_with(&[(ROWS / 2, 1)]);
    let old = bank.engine.begin();
    let insert = |tx: &mut Transaction, keys: Range<i32>| {
        let names: Vec<String> = keys.clone().map(Bank::name).collect();
        let rows: Vec<[Cell<'_>; 3]> = (keys.zip(&names))
            .map(|(key, name)| [Cell::i32(key), Cell::i64(i64::from(key)), Cell::text(name)])
            .collect();
        tx.insert_rows(&bank.accounts, &rows, &pin())
    };
    let mut tx = bank.engine.begin();
    let savepoint = tx.savepoint();
    let taken = insert(&mut tx, 0..ROWS).unwrap_err();
    assert_eq!(taken.state(), SqlState::UNIQUE_VIOLATION);
    tx.rollback_to(savepoint);
    assert_eq!(bank.scan(&tx), [(ROWS / 2, 1)]);
    insert(&mut tx, ROWS..2 * ROWS).unwrap();
    bank.set_balance(&mut tx, ROWS, -1).unwrap();
    bank.delete(&mut tx, ROWS + 1).unwrap();
    insert(&mut tx, 0..1).unwrap();
    insert(&mut tx, 0..0).unwrap();
    let expected: Vec<(i32, i64)> = [(0, 0), (ROWS / 2, 1), (ROWS, -1)]
        .into_iter()
        .chain((ROWS + 2..2 * ROWS).map(|key| (key, i64::from(key))))
        .collect();
    assert_eq!(bank.scan(&tx), expected);
    assert_eq!(bank.scan(&bank.engine.begin()), [(ROWS / 2, 1)]);
    commit(tx);
    assert_eq!(bank.scan(&bank.engine.begin()), expected);
    assert_eq!(bank.scan(&old), [(ROWS / 2, 1)]);
    let new = bank.engine.begin();
    assert_eq!(
        (bank.balance(&new, 2 * ROWS - 1), bank.balance(&old, ROWS)),
        (Some(2 * i64::from(ROWS) - 1), None)
    );
}

/// An old snapshot retains the records of rows that were inserted together, while others change some of them.
#[test]
fn every_snapshot_sees_rows_that_came_together_as_they_were_then() {
    // Enough that scans read them together.
    const ROWS: i32 = if cfg!(miri) { 12 } else { 2_500 };
    const ROUNDS: i32 = if cfg!(miri) { 2 } else { 6 };
    let bank = Bank::open();
    let load = |keys: Range<i32>| {
        let names: Vec<String> = keys.clone().map(Bank::name).collect();
        let rows: Vec<[Cell<'_>; 3]> =
            (keys.zip(&names)).map(|(key, name)| [Cell::i32(key), Cell::i64(0), Cell::text(name)]).collect();
        let mut tx = bank.engine.begin();
        tx.insert_rows(&bank.accounts, &rows, &pin()).unwrap();
        tx
    };
    let mut random = Random::seeded(7);
    let mut model: BTreeMap<i32, i64> = BTreeMap::new();
    let mut snapshots = vec![(bank.engine.begin(), model.clone())];
    for round in 0..ROUNDS {
        let keys = round * ROWS..(round + 1) * ROWS;
        load(-ROWS..0).rollback();
        let running = load(-ROWS..0);
        commit(load(keys.clone()));
        model.extend(keys.clone().map(|key| (key, 0)));
        for changed in 0..round * 3 {
            let key = random.uniform(0, i64::from(keys.end) - 1) as i32;
            let mut tx = bank.engine.begin();
            let is_there = model.contains_key(&key);
            if is_there && changed % 3 == 0 {
                bank.delete(&mut tx, key).unwrap();
                model.remove(&key);
            } else if is_there {
                bank.set_balance(&mut tx, key, i64::from(changed)).unwrap();
                model.insert(key, i64::from(changed));
            }
            commit(tx);
        }
        snapshots.push((bank.engine.begin(), model.clone()));
        running.rollback();
        for (tx, model) in &snapshots {
            let expected: Vec<(i32, i64)> = model.iter().map(|(key, balance)| (*key, *balance)).collect();
            assert!(bank.scan(tx) == expected, "round {round}");
        }
    }
}

#[test]
fn the_first_updater_wins() {
    let bank = bank_with(&[(1, 10)]);
    let mut first = bank.engine.begin();
    let mut second = bank.engine.begin();
    bank.set_balance(&mut first, 1, 11).unwrap();
    let running = bank.set_balance(&mut second, 1, 12).unwrap_err();
    commit(first);
    let committed = bank.delete(&mut second, 1).unwrap_err();
    for error in [running, committed] {
        assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
        assert!(error.message().contains("accounts") && error.is_retryable());
    }
    drop(second);
    assert_eq!(bank.scan(&bank.engine.begin()), [(1, 11)]);
}

#[test]
fn a_key_is_given_to_one_row_at_a_time() {
    let bank = bank_with(&[(1, 10)]);
    let old = bank.engine.begin();
    let mut tx = bank.engine.begin();
    let before = tx.savepoint();
    let duplicate = bank.insert(&mut tx, 1, 0).unwrap_err();
    assert_eq!(duplicate.state(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(duplicate.constraint(), Some("accounts_pkey"));
    tx.rollback_to(before);
    // A delete frees the key for the same transaction at once, for others when it has committed.
    bank.delete(&mut tx, 1).unwrap();
    let mut other = bank.engine.begin();
    assert_eq!(bank.insert(&mut other, 1, 0).unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
    drop(other);
    bank.insert(&mut tx, 1, 100).unwrap();
    commit(tx);
    assert_eq!((bank.balance(&old, 1), bank.balance(&bank.engine.begin(), 1)), (Some(10), Some(100)));
    // An uncommitted insert blocks the key; its rollback frees it.
    let mut inserter = bank.engine.begin();
    bank.insert(&mut inserter, 7, 70).unwrap();
    let mut other = bank.engine.begin();
    assert_eq!(bank.insert(&mut other, 7, 0).unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
    drop((inserter, other));
    let mut other = bank.engine.begin();
    bank.insert(&mut other, 7, 71).unwrap();
    commit(other);
    assert_eq!(bank.balance(&bank.engine.begin(), 7), Some(71));
}

#[test]
fn keys_that_move_are_found_where_each_snapshot_left_them() {
    let bank = bank_with(&[(1, 10), (2, 20)]);
    let old = bank.engine.begin();
    let mut tx = bank.engine.begin();
    bank.set_key(&mut tx, 2, 3).unwrap();
    bank.set_key(&mut tx, 1, 2).unwrap();
    commit(tx);
    let new = bank.engine.begin();
    let seen = |tx: &firn_txn::Transaction| [1, 2, 3].map(|key| bank.balance(tx, key));
    assert_eq!(seen(&old), [Some(10), Some(20), None]);
    assert_eq!(seen(&new), [None, Some(10), Some(20)]);
    drop(old);
    drop(new);
    // Back again, rolled back, and forth: entries of dead keys never hide live ones.
    let mut tx = bank.engine.begin();
    bank.set_key(&mut tx, 2, 1).unwrap();
    let savepoint = tx.savepoint();
    bank.set_key(&mut tx, 1, 5).unwrap();
    bank.set_key(&mut tx, 5, 1).unwrap();
    tx.rollback_to(savepoint);
    assert_eq!(bank.balance(&tx, 1), Some(10));
    tx.rollback();
    let now = bank.engine.begin();
    assert_eq!(seen(&now), [None, Some(10), Some(20)]);
}

#[test]
fn a_savepoint_takes_back_just_what_came_after_it() {
    let bank = bank_with(&[(1, 10), (2, 20)]);
    let mut tx = bank.engine.begin();
    bank.set_balance(&mut tx, 1, 11).unwrap();
    let savepoint = tx.savepoint();
    bank.set_balance(&mut tx, 1, 12).unwrap();
    bank.delete(&mut tx, 2).unwrap();
    bank.insert(&mut tx, 3, 30).unwrap();
    tx.rollback_to(savepoint);
    assert_eq!(bank.scan(&tx), [(1, 11), (2, 20)]);
    bank.insert(&mut tx, 3, 31).unwrap();
    tx.rollback_to(savepoint);
    bank.insert(&mut tx, 3, 32).unwrap();
    commit(tx);
    assert_eq!(bank.scan(&bank.engine.begin()), [(1, 11), (2, 20), (3, 32)]);
}

#[test]
#[cfg_attr(miri, ignore = "inserts thousands of rows")]
fn garbage_is_collected_when_it_has_no_reader_and_slots_are_used_again() {
    let bank = bank_with(&[]);
    for round in 0..50 {
        let mut tx = bank.engine.begin();
        for key in 0..100 {
            bank.insert(&mut tx, key, round).unwrap();
        }
        commit(tx);
        let mut tx = bank.engine.begin();
        for key in 0..100 {
            bank.set_balance(&mut tx, key, -round).unwrap();
            bank.delete(&mut tx, key).unwrap();
        }
        commit(tx);
        // The background tick collects.
        while bank.engine.garbage_backlog() > 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(bank.by_key.len(), 0);
    assert_eq!(bank.accounts.approximate_rows(), 0);
    let one_block = bank.accounts.memory_bytes();
    assert!(one_block < 500_000, "5,000 rows in turn fit into the slots of 100: {one_block}");
}

/// A rollback to a savepoint restores rows and keys that the transaction had removed.
#[test]
fn a_key_is_not_given_away_while_its_row_may_come_back_to_it() {
    let bank = bank_with(&[(1, 10)]);
    for (given_up_by, key) in [("delete", 9), ("move", 9), ("delete after move", 8), ("two moves", 8)] {
        let mut holder = bank.engine.begin();
        if key == 9 {
            bank.insert(&mut holder, 9, 90).unwrap();
        } else {
            bank.set_key(&mut holder, 1, 8).unwrap();
        }
        let savepoint = holder.savepoint();
        match given_up_by {
            "delete" => bank.delete(&mut holder, 9).unwrap(),
            "move" => bank.set_key(&mut holder, 9, 5).unwrap(),
            "delete after move" => bank.delete(&mut holder, 8).unwrap(),
            _ => {
                bank.set_key(&mut holder, 8, 5).unwrap();
                bank.set_key(&mut holder, 5, 6).unwrap();
            }
        }
        let mut other = bank.engine.begin();
        let error = bank.insert(&mut other, key, 0).unwrap_err();
        assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{given_up_by}");
        assert_eq!(error.blocker(), Some(holder.snapshot().owner));
        other.rollback();
        holder.rollback_to(savepoint);
        commit(holder);
        let mut tidy = bank.engine.begin();
        assert_eq!(bank.scan(&tidy).len(), if key == 9 { 2 } else { 1 });
        if key == 9 {
            bank.delete(&mut tidy, 9).unwrap()
        } else {
            bank.set_key(&mut tidy, 8, 1).unwrap()
        }
        commit(tidy);
    }
}

#[test]
fn rows_that_were_changed_since_a_savepoint_are_free_after_a_rollback_to_it() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let bank = bank_with(&[(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)]);
        let old = bank.engine.begin();
        let mut tx = bank.engine.try_begin(isolation).unwrap();
        let blocker = Some(tx.snapshot().owner);
        bank.set_balance(&mut tx, 1, 11).unwrap();
        bank.lock(&mut tx, 4, RowLock::NoKeyUpdate).unwrap();
        let savepoint = tx.savepoint();
        let change = |tx: &mut Transaction| {
            bank.set_balance(tx, 1, 12).unwrap();
            bank.set_balance(tx, 2, 21).unwrap();
            // The lock is between the changes.
            bank.lock(tx, 2, RowLock::Update).unwrap();
            bank.set_balance(tx, 2, 22).unwrap();
            bank.set_balance(tx, 4, 41).unwrap();
            bank.delete(tx, 3).unwrap();
            bank.set_key(tx, 5, 6).unwrap();
            bank.insert(tx, 7, 70).unwrap();
        };
        change(&mut tx);
        tx.rollback_to(savepoint);
        // Once more, above the released records.
        change(&mut tx);
        assert_eq!(bank.scan(&tx), [(1, 12), (2, 22), (4, 41), (6, 50), (7, 70)]);
        assert_eq!(bank.set_balance(&mut bank.engine.begin(), 2, 0).unwrap_err().blocker(), blocker);
        tx.rollback_to(savepoint);
        let before = [(1, 11), (2, 20), (3, 30), (4, 40), (5, 50)];
        assert_eq!(bank.scan(&tx), before);
        let committed = [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)];
        let mut other = bank.engine.begin();
        assert_eq!(bank.scan(&other), committed);
        assert_eq!(
            bank.set_balance(&mut other, 1, 13).unwrap_err().blocker(),
            blocker,
            "the row is still changed"
        );
        assert_eq!(
            bank.set_balance(&mut other, 4, 42).unwrap_err().blocker(),
            blocker,
            "the row is still locked"
        );
        bank.set_balance(&mut other, 2, 23).unwrap();
        bank.delete(&mut other, 3).unwrap();
        bank.set_key(&mut other, 5, 8).unwrap();
        for key in [6, 7] {
            bank.insert(&mut other, key, 77).unwrap();
        }
        let (other_own, error) = (other.snapshot().owner, bank.set_balance(&mut tx, 2, 24).unwrap_err());
        assert_eq!(error.blocker(), Some(other_own));
        commit(other);
        let after = [(1, 11), (2, 23), (4, 40), (6, 77), (7, 77), (8, 50)];
        if isolation == Isolation::ReadCommitted {
            let statement = tx.begin_statement();
            tx.restart(&statement).unwrap();
            assert_eq!(bank.scan(&tx), after);
            bank.set_balance(&mut tx, 2, 23).unwrap();
        } else {
            assert_eq!(bank.scan(&tx), before);
            let error = bank.set_balance(&mut tx, 2, 24).unwrap_err();
            assert_eq!((error.state(), error.blocker()), (SqlState::SERIALIZATION_FAILURE, None));
        }
        if isolation == Isolation::Serializable {
            // It has read what the other one has changed.
            assert_eq!(tx.commit().unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
        } else {
            commit(tx);
            assert_eq!(bank.scan(&bank.engine.begin()), after);
        }
        bank.engine.collect();
        assert_eq!(bank.scan(&old), committed);
        drop(old);
        (0..2).for_each(|_| bank.engine.collect());
        assert_eq!(bank.engine.garbage_backlog(), 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "runs thousands of transactions")]
fn trimming_behind_a_long_reader_hides_no_conflict() {
    let bank = bank_with(&[(1, 10), (2, 20)]);
    let mut old = bank.engine.begin();
    let mut tx = bank.engine.begin();
    let savepoint = tx.savepoint();
    bank.set_balance(&mut tx, 1, 11).unwrap();
    tx.rollback_to(savepoint);
    bank.set_balance(&mut tx, 1, 12).unwrap();
    commit(tx);
    // More than are retained before chains are trimmed; nearly all of them are collected.
    for balance in 0..40_000 {
        let mut tx = bank.engine.begin();
        bank.set_balance(&mut tx, 2, balance).unwrap();
        commit(tx);
    }
    let begun = std::time::Instant::now();
    while bank.engine.garbage_backlog() > 10_000 && begun.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    assert!(bank.engine.garbage_backlog() <= 10_000, "nothing was trimmed");
    assert_eq!(bank.balance(&old, 1), Some(10));
    let error = bank.set_balance(&mut old, 1, 13).unwrap_err();
    assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
}

#[test]
fn ddl_is_rolled_back_with_its_transaction() {
    let bank = bank_with(&[(1, 10)]);
    let tables = bank.engine.tables().len();
    let version = bank.engine.catalog().version;
    let mut tx = bank.engine.begin();
    let savepoint = tx.savepoint();
    tx.catalog_mut().unwrap().schemas.clear();
    tx.create_storage("scratch", vec![]).unwrap();
    assert!(tx.catalog().schemas.is_empty());
    tx.rollback_to(savepoint);
    assert_eq!(tx.catalog().schemas.len(), 3);
    tx.catalog_mut().unwrap().schemas.clear();
    // Other transactions neither see it nor may write to a table that it has locked exclusively.
    tx.lock_exclusive(&bank.accounts).unwrap();
    assert_eq!(bank.engine.begin().catalog().schemas.len(), 3);
    tx.rollback();
    assert_eq!((bank.engine.tables().len(), bank.engine.catalog().version), (tables, version));
    let mut tx = bank.engine.begin();
    bank.set_balance(&mut tx, 1, 11).unwrap();
    commit(tx);
}

#[test]
fn a_writer_with_an_older_snapshot_does_not_write_to_a_table_that_changed_its_shape() {
    let bank = bank_with(&[(1, 10)]);
    let mut old = bank.engine.begin();
    let mut ddl = bank.engine.begin();
    ddl.lock_exclusive(&bank.accounts).unwrap();
    commit(ddl);
    assert_eq!(bank.set_balance(&mut old, 1, 11).unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
    let mut new = bank.engine.begin();
    bank.set_balance(&mut new, 1, 12).unwrap();
}
