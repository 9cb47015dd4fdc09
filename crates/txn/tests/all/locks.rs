//! Row locks, case by case.

use crate::support::{Bank, commit};
use firn_base::{Error, Result, SqlState, thread};
use firn_storage::Table;
use firn_txn::{Engine, Isolation, RowLock, TableLock, TableLockMode, Transaction, pin};
use std::sync::Arc;
use std::time::Duration;

const ALL: [RowLock; 4] = [RowLock::KeyShare, RowLock::Share, RowLock::NoKeyUpdate, RowLock::Update];

fn bank() -> Bank {
    let bank = Bank::open();
    let mut tx = bank.engine.begin();
    for key in 1..=3 {
        bank.insert(&mut tx, key, 10 * i64::from(key)).unwrap();
    }
    commit(tx);
    bank
}

fn snapshot(engine: &Arc<Engine>) -> Transaction {
    engine.try_begin(Isolation::Snapshot).unwrap()
}

/// Asserts that the attempt conflicted with `other`, whose end can be waited for.
fn assert_blocked(result: Result<()>, other: &Transaction) {
    let error = result.expect_err("there is a conflict");
    assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
    assert_eq!(error.blocker(), Some(other.snapshot().owner));
}

/// The locks and changes of a row that are compatible, according to PostgreSQL's table.
#[test]
fn locks_and_changes_keep_away_what_they_should() {
    let bank = bank();
    for held in ALL {
        let mut holder = snapshot(&bank.engine);
        bank.lock(&mut holder, 1, held).unwrap();
        for wanted in ALL {
            let mut other = snapshot(&bank.engine);
            let outcome = bank.lock(&mut other, 1, wanted);
            match held.conflicts_with(wanted) {
                true => assert_blocked(outcome, &holder),
                false => outcome.unwrap(),
            }
            bank.lock(&mut other, 2, wanted).unwrap();
        }
        let mut other = snapshot(&bank.engine);
        match held {
            RowLock::KeyShare => bank.set_balance(&mut other, 1, 11).unwrap(),
            _ => assert_blocked(bank.set_balance(&mut other, 1, 11), &holder),
        }
        other.rollback();
        assert_blocked(bank.set_key(&mut snapshot(&bank.engine), 1, 9), &holder);
        assert_blocked(bank.delete(&mut snapshot(&bank.engine), 1), &holder);
        // The holder itself may do all of that.
        bank.set_balance(&mut holder, 1, 12).unwrap();
        bank.set_key(&mut holder, 1, 9).unwrap();
        bank.delete(&mut holder, 9).unwrap();
        assert_eq!(bank.scan(&holder), [(2, 20), (3, 30)]);
    }
    for wanted in ALL {
        let mut writer = snapshot(&bank.engine);
        bank.set_balance(&mut writer, 1, 11).unwrap();
        let mut other = snapshot(&bank.engine);
        match wanted {
            RowLock::KeyShare => bank.lock(&mut other, 1, wanted).unwrap(),
            _ => assert_blocked(bank.lock(&mut other, 1, wanted), &writer),
        }
        drop(other);
        bank.set_key(&mut writer, 1, 9).unwrap();
        assert_blocked(bank.lock(&mut snapshot(&bank.engine), 1, wanted), &writer);
        writer.rollback();
        let mut writer = snapshot(&bank.engine);
        bank.delete(&mut writer, 1).unwrap();
        assert_blocked(bank.lock(&mut snapshot(&bank.engine), 1, wanted), &writer);
    }
}

#[test]
fn a_lock_that_has_ended_does_not_conflict_and_is_not_logged() {
    let bank = bank();
    for lock in ALL {
        for commits in [true, false] {
            let mut old = snapshot(&bank.engine);
            let mut holder = snapshot(&bank.engine);
            let read_time = holder.snapshot().read_time;
            bank.lock(&mut holder, 1, lock).unwrap();
            assert!(!holder.has_writes());
            match commits {
                true => {
                    let ticket = holder.commit().unwrap();
                    assert_eq!((ticket.time, ticket.lsn), (read_time, None));
                }
                false => holder.rollback(),
            }
            // A transaction that began before it as well: nothing has changed.
            bank.lock(&mut old, 1, RowLock::Update).unwrap();
            bank.set_balance(&mut old, 1, 10).unwrap();
            assert_eq!(bank.scan(&old), [(1, 10), (2, 20), (3, 30)]);
            old.rollback();
        }
    }
}

#[test]
fn a_committed_change_that_is_not_seen_conflicts_unless_it_leaves_what_is_locked() {
    let bank = bank();
    let mut old = ALL.map(|lock| (lock, snapshot(&bank.engine)));
    let mut writer = bank.engine.begin();
    bank.set_balance(&mut writer, 1, 11).unwrap();
    commit(writer);
    for (lock, tx) in &mut old {
        let outcome = bank.lock(tx, 1, *lock);
        match lock {
            RowLock::KeyShare => outcome.unwrap(),
            _ => {
                let error = outcome.unwrap_err();
                assert_eq!((error.state(), error.blocker()), (SqlState::SERIALIZATION_FAILURE, None));
            }
        }
    }
}

/// A transaction that may advance locks the newest version, and sees it after it has advanced.
#[test]
fn a_row_that_has_changed_is_locked_as_it_is_by_now() {
    let bank = bank();
    for lock in ALL {
        let mut tx = bank.engine.begin();
        let mut writer = bank.engine.begin();
        let balance = bank.balance(&writer, 1).unwrap() + 1;
        bank.set_balance(&mut writer, 1, balance).unwrap();
        bank.set_key(&mut writer, 2, 9).unwrap();
        bank.delete(&mut writer, 9).unwrap();
        let guard = pin();
        let statement = tx.begin_statement();
        let rows = [1, 2].map(|key| bank.find(&tx, key, &guard).unwrap());
        let newest = |tx: &mut Transaction, row| tx.lock_newest(&bank.accounts, row, lock, &pin());
        assert_blocked(newest(&mut tx, rows[1]), &writer);
        commit(writer);
        newest(&mut tx, rows[0]).unwrap();
        // The other one has ended.
        assert_eq!(newest(&mut tx, rows[1]).unwrap_err().blocker(), None);
        drop(guard);
        assert_blocked(bank.lock(&mut snapshot(&bank.engine), 1, RowLock::Update), &tx);
        tx.restart(&statement).unwrap();
        assert_blocked(bank.lock(&mut snapshot(&bank.engine), 1, RowLock::Update), &tx);
        assert_eq!(bank.scan(&tx), [(1, balance), (3, 30)]);
        bank.lock(&mut tx, 1, lock).unwrap();
        bank.set_balance(&mut tx, 1, balance + 1).unwrap();
        bank.insert(&mut tx, 2, 20).unwrap();
        commit(tx);
    }
}

/// A lock of the newest version does not make it visible: what was read before has changed, and a transaction
/// that continued from there would lose the change (found by random histories).
#[test]
fn a_transaction_that_locks_a_newer_version_still_sees_the_old_one() {
    for lock in ALL {
        let bank = bank();
        let mut tx = bank.engine.begin();
        let rows = [1, 2, 3].map(|key| {
            bank.balance(&tx, key).unwrap();
            bank.find(&tx, key, &pin()).unwrap()
        });
        for key in [1, 2] {
            bank.engine.transact(|other| bank.set_balance(other, key, 100)).unwrap();
        }
        let savepoint = tx.savepoint();
        let statement = tx.begin_statement();
        for row in rows {
            tx.lock_newest(&bank.accounts, row, lock, &pin()).unwrap();
        }
        let is_out_of_date = |result: Result<()>| {
            let error = result.unwrap_err();
            assert_eq!((error.state(), error.blocker()), (SqlState::SERIALIZATION_FAILURE, None), "{lock:?}");
        };
        let sees_it_as_it_was = |tx: &mut Transaction| {
            assert_eq!(bank.scan(tx), [(1, 10), (2, 20), (3, 30)], "{lock:?}");
            for key in [1, 2] {
                is_out_of_date(bank.set_balance(tx, key, 11));
                is_out_of_date(bank.set_key(tx, key, 11));
                is_out_of_date(bank.delete(tx, key));
                if lock != RowLock::KeyShare {
                    is_out_of_date(bank.lock(tx, key, lock));
                }
            }
            bank.lock(tx, 3, lock).unwrap();
        };
        sees_it_as_it_was(&mut tx);
        is_out_of_date(tx.restart(&statement));
        sees_it_as_it_was(&mut tx);
        tx.rollback_to(savepoint);
        sees_it_as_it_was(&mut tx);
        bank.set_balance(&mut tx, 3, 31).unwrap();
        is_out_of_date(tx.commit().map(drop));
        assert_eq!(bank.scan(&bank.engine.begin()), [(1, 100), (2, 100), (3, 30)]);
    }
}

#[test]
fn locks_go_with_a_savepoint() {
    let bank = bank();
    let mut holder = snapshot(&bank.engine);
    bank.lock(&mut holder, 1, RowLock::Share).unwrap();
    let savepoint = holder.savepoint();
    bank.lock(&mut holder, 1, RowLock::Share).unwrap();
    bank.lock(&mut holder, 2, RowLock::Share).unwrap();
    bank.lock(&mut holder, 3, RowLock::Update).unwrap();
    holder.rollback_to(savepoint);
    let mut other = snapshot(&bank.engine);
    assert_blocked(bank.set_balance(&mut other, 1, 0), &holder);
    bank.set_balance(&mut other, 2, 0).unwrap();
    bank.set_balance(&mut other, 3, 0).unwrap();
    assert_blocked(bank.lock(&mut holder, 3, RowLock::Update), &other);
    other.rollback();
    // It may take the lock again.
    bank.lock(&mut holder, 3, RowLock::Update).unwrap();
    bank.set_balance(&mut holder, 3, 33).unwrap();
    commit(holder);
    assert_eq!(bank.scan(&bank.engine.begin()), [(1, 10), (2, 20), (3, 33)]);
}

#[test]
fn several_share_a_row_and_the_last_of_them_lets_it_go() {
    let bank = bank();
    let mut first = snapshot(&bank.engine);
    let mut second = snapshot(&bank.engine);
    bank.lock(&mut first, 1, RowLock::KeyShare).unwrap();
    bank.lock(&mut second, 1, RowLock::Share).unwrap();
    // Twice, and with a weaker lock than it has.
    bank.lock(&mut second, 1, RowLock::KeyShare).unwrap();
    assert_blocked(bank.set_balance(&mut first, 1, 11), &second);
    bank.lock(&mut first, 1, RowLock::Share).unwrap();
    second.rollback();
    assert_blocked(bank.set_balance(&mut snapshot(&bank.engine), 1, 12), &first);
    bank.set_balance(&mut first, 1, 13).unwrap();
    commit(first);
    assert_eq!(bank.balance(&bank.engine.begin(), 1), Some(13));
}

/// A reader that began before retains every record; the locks among them do not affect it, and are collected.
#[test]
fn a_long_reader_sees_through_locks_and_they_are_collected() {
    let bank = bank();
    let old = bank.engine.begin();
    for balance in 0..200 {
        let mut tx = bank.engine.begin();
        bank.lock(&mut tx, 1, RowLock::Update).unwrap();
        if balance % 3 > 0 {
            bank.set_balance(&mut tx, 1, balance).unwrap();
        }
        match balance % 5 {
            0 => tx.rollback(),
            _ => commit(tx),
        }
    }
    assert_eq!(bank.balance(&old, 1), Some(10));
    assert_eq!(bank.balance(&bank.engine.begin(), 1), Some(199));
    assert_eq!(bank.scan(&old)[0], (1, 10));
    old.rollback();
    for _ in 0..500 {
        if bank.engine.garbage_backlog() == 0 {
            break;
        }
        firn_base::clock::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(bank.engine.garbage_backlog(), 0);
    assert_eq!(bank.scan(&bank.engine.begin()), [(1, 199), (2, 20), (3, 30)]);
}

/// Behind a long reader pairs of lock and change are trimmed like changes.
#[test]
#[cfg_attr(miri, ignore = "slow")]
fn locks_do_not_keep_chains_from_being_trimmed() {
    let bank = bank();
    let old = bank.engine.begin();
    for balance in 0..40_000 {
        let mut tx = bank.engine.begin();
        bank.lock(&mut tx, 1, RowLock::Update).unwrap();
        if balance % 2 == 0 {
            bank.set_balance(&mut tx, 1, balance).unwrap();
        }
        commit(tx);
    }
    for _ in 0..1000 {
        if bank.engine.garbage_backlog() <= 10_000 {
            break;
        }
        firn_base::clock::sleep(std::time::Duration::from_millis(10));
    }
    assert!(bank.engine.garbage_backlog() <= 10_000, "nothing was trimmed");
    assert_eq!(bank.scan(&old), [(1, 10), (2, 20), (3, 30)]);
    assert_eq!(bank.balance(&bank.engine.begin(), 1), Some(39_998));
}

/// A row that another transaction locks has not changed: a serializable transaction that has read it may
/// commit.
#[test]
fn a_lock_is_no_change_to_a_transaction_that_has_read_the_row() {
    let bank = bank();
    let mut reader = bank.engine.begin();
    assert_eq!(bank.balance(&reader, 1), Some(10));
    let mut holder = bank.engine.begin();
    bank.lock(&mut holder, 1, RowLock::Update).unwrap();
    bank.set_balance(&mut holder, 2, 21).unwrap();
    commit(holder);
    bank.set_balance(&mut reader, 3, 31).unwrap();
    commit(reader);
    // A transaction that has only read and locked does not fail because of others' changes.
    let mut locker = bank.engine.begin();
    assert_eq!(bank.balance(&locker, 2), Some(21));
    bank.lock(&mut locker, 1, RowLock::Update).unwrap();
    let mut writer = bank.engine.begin();
    bank.set_balance(&mut writer, 2, 22).unwrap();
    commit(writer);
    commit(locker);
}

#[test]
fn a_locked_row_that_lies_in_place_still_has_its_key() {
    let bank = bank();
    let mut holder = bank.engine.begin();
    bank.lock(&mut holder, 1, RowLock::Update).unwrap();
    let taken = bank.insert(&mut bank.engine.begin(), 1, 0).unwrap_err();
    assert_eq!(taken.state(), SqlState::UNIQUE_VIOLATION);
}

/// Many transactions lock, read, add one and commit: no addition is lost, whichever lock they take. Those
/// that lock first in a shared mode fail when two of them would wait for each other.
#[test]
#[cfg_attr(miri, ignore = "waits check again by the clock, which is faster than this test")]
fn what_is_read_under_a_lock_does_not_change_until_the_end() {
    use firn_base::thread;
    const ROUNDS: i64 = 400;
    for lock in [RowLock::Share, RowLock::NoKeyUpdate, RowLock::Update] {
        let bank = Arc::new(bank());
        let adder = |bank: Arc<Bank>| {
            move || {
                let mut added = 0;
                while added < ROUNDS {
                    let mut tx = snapshot(&bank.engine);
                    // The lock first, then a snapshot that is not older than it.
                    let locked = bank.lock(&mut tx, 1, lock);
                    let balance = bank.balance(&tx, 1).unwrap();
                    if locked.is_err() {
                        thread::yield_now();
                        continue;
                    }
                    let newest = bank.balance(&snapshot(&bank.engine), 1);
                    assert_eq!(newest, Some(balance), "no other transaction has changed it");
                    if bank.set_balance(&mut tx, 1, balance + 1).is_ok() {
                        commit(tx);
                        added += 1;
                    }
                }
            }
        };
        let adders: Vec<_> = (0..3).map(|_| thread::spawn("adder", adder(bank.clone()))).collect();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        assert_eq!(bank.balance(&bank.engine.begin(), 1), Some(10 + 3 * ROUNDS), "{lock:?}");
    }
}

/// Changes what it finds, as a statement does.
fn set_if_there(bank: &Bank, tx: &mut Transaction, key: i32, balance: i64) {
    if bank.find(tx, key, &pin()).is_some() {
        bank.set_balance(tx, key, balance).unwrap();
    }
}

/// A statement that conflicts repeatedly locks what it changes, and succeeds at the second attempt after
/// that.
#[test]
fn a_statement_that_locks_before_it_changes_is_through_at_the_second_attempt() {
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let bank = bank();
        let mut tx = bank.engine.try_begin(isolation).unwrap();
        let start = tx.begin_statement();
        let by_others = |key: i32| bank.engine.transact(|other| bank.set_balance(other, key, 100));
        by_others(2).unwrap();
        by_others(3).unwrap();
        bank.engine.transact(|other| bank.insert(other, 4, 40)).unwrap();
        tx.lock_rows_before_changes();
        // The first succeeds; the others have changed, and are skipped.
        for key in [1, 3, 5] {
            set_if_there(&bank, &mut tx, key, 1);
        }
        let missed = tx.take_skipped_conflict().expect("a row has changed");
        assert_eq!(missed.state(), SqlState::SERIALIZATION_FAILURE);
        assert!(tx.take_skipped_conflict().is_none(), "it is reported once");
        tx.restart(&start).unwrap();
        // No other transaction can be first.
        for key in [1, 3] {
            assert_blocked(bank.set_balance(&mut snapshot(&bank.engine), key, 7), &tx);
        }
        tx.lock_rows_before_changes();
        for key in [1, 3] {
            set_if_there(&bank, &mut tx, key, 1);
        }
        assert!(tx.take_skipped_conflict().is_none());
        commit(tx);
        let reader = bank.engine.begin_read_only();
        assert_eq!(bank.scan(&reader), [(1, 1), (2, 100), (3, 1), (4, 40)]);
    }
}

fn other_table(bank: &Bank) -> Arc<Table> {
    let mut tx = bank.engine.begin();
    let id = tx.create_storage("other", bank.accounts.columns().to_vec()).unwrap();
    commit(tx);
    bank.engine.table(id)
}

/// A locked table matters only to transactions that write to it.
#[test]
fn a_locked_table_excludes_writers_and_no_others() {
    let bank = bank();
    let other = other_table(&bank);
    let impatient = || |_: Duration| Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, "no"));
    let mut first = bank.engine.begin();
    first.lock_table(&bank.accounts, &mut impatient()).unwrap();
    first.lock_table(&bank.accounts, &mut impatient()).unwrap();
    bank.set_balance(&mut first, 1, 11).unwrap();

    // Another table is not locked, nor is the catalog.
    let mut second = bank.engine.begin();
    second.lock_table(&other, &mut impatient()).unwrap();
    let refused = second.lock_table(&bank.accounts, &mut impatient()).unwrap_err();
    assert_eq!(refused.state(), SqlState::LOCK_NOT_AVAILABLE);
    let refused = second.join_writers(&bank.accounts, &mut impatient()).unwrap_err();
    assert_eq!(refused.state(), SqlState::LOCK_NOT_AVAILABLE);
    assert_eq!(bank.scan(&second).len(), 3);
    let mut ddl = bank.engine.begin();
    ddl.create_storage("third", bank.accounts.columns().to_vec()).unwrap();
    commit(ddl);
    commit(first);

    // Its end releases the lock, and the waiting transaction continues although its snapshot is older.
    second.join_writers(&bank.accounts, &mut impatient()).unwrap();
    bank.set_balance(&mut second, 2, 22).unwrap();
    let mut third = bank.engine.begin();
    let refused = third.lock_table(&bank.accounts, &mut impatient()).unwrap_err();
    assert_eq!(refused.state(), SqlState::LOCK_NOT_AVAILABLE);
    // A transaction that has given up waiting excludes no other.
    bank.engine.transact(|tx| bank.set_balance(tx, 3, 33)).unwrap();
    second.rollback();
    third.lock_table(&other, &mut impatient()).unwrap();
    assert_eq!(bank.scan(&bank.engine.begin_read_only()), [(1, 11), (2, 20), (3, 33)]);
}

/// Any number of transactions share a lock, and none writes: one that writes holds it alone from then on.
#[test]
fn a_lock_that_several_share_keeps_them_all_from_writing() {
    let bank = bank();
    let impatient = || |_: Duration| Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, "no"));
    let refused =
        |outcome: Result<()>| assert_eq!(outcome.unwrap_err().state(), SqlState::LOCK_NOT_AVAILABLE);
    let (mut first, mut second, mut third) = (bank.engine.begin(), bank.engine.begin(), bank.engine.begin());
    for tx in [&mut first, &mut second] {
        tx.lock_share(&bank.accounts, &mut impatient()).unwrap();
        tx.lock_share(&bank.accounts, &mut impatient()).unwrap();
    }
    let listed = bank.engine.table_locks();
    assert!(
        listed.len() == 2 && listed.iter().all(|lock| lock.mode == TableLockMode::Sharing && lock.is_granted)
    );
    for tx in [&mut first, &mut second, &mut third] {
        refused(tx.join_writers(&bank.accounts, &mut impatient()).map(drop));
        refused(tx.lock_table(&bank.accounts, &mut impatient()));
    }
    second.rollback();
    refused(third.join_writers(&bank.accounts, &mut impatient()).map(drop));
    bank.set_balance(&mut first, 1, 11).unwrap();
    first.lock_share(&bank.accounts, &mut impatient()).unwrap();
    first.lock_table(&bank.accounts, &mut impatient()).unwrap();
    // It has written, so no other transaction may share the lock.
    refused(third.lock_share(&bank.accounts, &mut impatient()));
    commit(first);
    third.lock_share(&bank.accounts, &mut impatient()).unwrap();
    drop(third);
    // Nor may one that has written before it locks.
    let (mut writer, mut other) = (bank.engine.begin(), bank.engine.begin());
    bank.set_balance(&mut writer, 1, 12).unwrap();
    writer.lock_share(&bank.accounts, &mut impatient()).unwrap();
    refused(other.lock_share(&bank.accounts, &mut impatient()));
    commit(writer);
    bank.engine.transact(|tx| bank.set_balance(tx, 1, 13)).unwrap();
}

/// A transaction that locks rows conflicts with one that wants the table alone, and with no other.
#[test]
fn rows_can_be_locked_while_writers_are_excluded() {
    let bank = bank();
    let impatient = || |_: Duration| Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, "no"));
    let refused =
        |outcome: Result<()>| assert_eq!(outcome.unwrap_err().state(), SqlState::LOCK_NOT_AVAILABLE);
    let modes = |tx: &Transaction| {
        let locks = bank.engine.table_locks().into_iter().filter(|lock| lock.transaction == number(tx));
        locks.map(|lock| lock.mode).collect::<Vec<_>>()
    };
    let (mut holder, mut locker) = (bank.engine.begin(), bank.engine.begin());
    let lock = |tx: &mut Transaction, key| bank.lock(tx, key, RowLock::Update).unwrap();
    holder.lock_share_row_exclusive(&bank.accounts, &mut impatient()).unwrap();
    lock(&mut locker, 1);
    lock(&mut holder, 2);
    assert_eq!(modes(&locker), [TableLockMode::LockingRows]);
    assert_eq!(modes(&holder), [TableLockMode::LockingRows, TableLockMode::WritingAlone]);
    refused(locker.join_writers(&bank.accounts, &mut impatient()).map(drop));
    // It does not hold it alone, so others may still lock rows.
    refused(holder.lock_table(&bank.accounts, &mut impatient()));
    assert_eq!(modes(&holder), [TableLockMode::LockingRows, TableLockMode::WritingAlone]);
    lock(&mut locker, 3);
    bank.set_balance(&mut holder, 2, 22).unwrap();
    drop(locker);
    holder.lock_table(&bank.accounts, &mut impatient()).unwrap();
    refused(bank.engine.begin().join_lockers(&bank.accounts, &mut impatient()).map(drop));
    commit(holder);
    // A transaction that holds it alone may lock rows and write.
    let mut holder = bank.engine.begin();
    holder.lock_table(&bank.accounts, &mut impatient()).unwrap();
    lock(&mut holder, 1);
    bank.set_balance(&mut holder, 1, 11).unwrap();
    commit(holder);
    // And one that has locked rows may write if there is no conflict.
    let (mut locker, mut other) = (bank.engine.begin(), bank.engine.begin());
    lock(&mut locker, 1);
    lock(&mut other, 2);
    bank.set_balance(&mut locker, 1, 12).unwrap();
    assert_eq!(modes(&locker), [TableLockMode::LockingRows, TableLockMode::Writing]);
    refused(other.lock_share(&bank.accounts, &mut impatient()));
    locker.rollback();
    other.lock_share(&bank.accounts, &mut impatient()).unwrap();
    commit(other);
    let mut last = bank.engine.begin();
    last.lock_table(&bank.accounts, &mut impatient()).unwrap();
    assert_eq!(bank.scan(&last), [(1, 11), (2, 22), (3, 30)]);
    drop(last);
    assert_eq!(bank.engine.table_locks(), []);
}

#[test]
fn one_transaction_at_a_time_maintains_a_table() {
    let bank = bank();
    let impatient = || |_: Duration| Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, "no"));
    let refused =
        |outcome: Result<()>| assert_eq!(outcome.unwrap_err().state(), SqlState::LOCK_NOT_AVAILABLE);
    let (mut first, mut second) = (bank.engine.begin(), bank.engine.begin());
    first.lock_share_update_exclusive(&bank.accounts, &mut impatient()).unwrap();
    first.lock_share_update_exclusive(&bank.accounts, &mut impatient()).unwrap();
    refused(second.lock_share_update_exclusive(&bank.accounts, &mut impatient()));
    // Nor has it joined the writers by that.
    assert!(bank.engine.table_locks().iter().all(|lock| lock.transaction == number(&first)));
    refused(second.lock_share(&bank.accounts, &mut impatient()));
    bank.set_balance(&mut second, 2, 22).unwrap();
    let maintained = bank.engine.table_locks().into_iter().any(|lock| {
        lock.mode == TableLockMode::Maintaining && lock.transaction == number(&first) && lock.is_granted
    });
    assert!(maintained);
    first.rollback();
    second.lock_share_update_exclusive(&bank.accounts, &mut impatient()).unwrap();
    commit(second);
    let (mut third, mut fourth) = (bank.engine.begin(), bank.engine.begin());
    third.lock_share(&bank.accounts, &mut impatient()).unwrap();
    // A transaction that may not write there has not taken the maintenance, either.
    refused(fourth.lock_share_update_exclusive(&bank.accounts, &mut impatient()));
    third.lock_share_update_exclusive(&bank.accounts, &mut impatient()).unwrap();
    commit(third);
    fourth.lock_share_update_exclusive(&bank.accounts, &mut impatient()).unwrap();
    commit(fourth);
    assert_eq!(bank.engine.table_locks(), []);
}

/// A transaction that waits to write, or to lock the table alone, is not overtaken by others that would share
/// the lock.
#[test]
#[cfg_attr(miri, ignore = "waits check again by the clock, which is faster than this test")]
fn waiting_transactions_are_not_overtaken_by_new_sharers() {
    let bank = bank();
    let impatient = || |_: Duration| Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, "no"));
    for alone in [false, true] {
        let (mut holder, waiting) = (bank.engine.begin(), bank.engine.begin());
        holder.lock_share(&bank.accounts, &mut impatient()).unwrap();
        thread::scope(|scope| {
            let accounts = &bank.accounts;
            let waiter = thread::spawn_scoped(scope, "waiting", move || {
                let mut tx = waiting;
                match alone {
                    true => tx.lock_table(accounts, &mut |_| Ok(())),
                    false => tx.join_writers(accounts, &mut |_| Ok(())).map(drop),
                }
            });
            while bank.engine.table_locks().len() < 2 {
                thread::yield_now();
            }
            let refused = bank.engine.begin().lock_share(accounts, &mut impatient()).unwrap_err();
            assert_eq!(refused.state(), SqlState::LOCK_NOT_AVAILABLE);
            // It has the lock already.
            holder.lock_share(accounts, &mut impatient()).unwrap();
            drop(holder);
            waiter.join().unwrap().unwrap();
        });
    }
}

/// The views of locks: which transactions write to a table, have locked one, and wait.
#[test]
#[cfg_attr(miri, ignore = "waits check again by the clock, which is faster than this test")]
fn locks_of_tables_and_waits_for_them_are_listed() {
    use TableLockMode::{Alone, Writing};
    let bank = bank();
    let other = other_table(&bank);
    let patient = || |_: Duration| Ok(());
    let lock = |tx: &Transaction, table: Option<&Arc<Table>>, mode, is_granted| TableLock {
        transaction: number(tx),
        session: 0,
        table: table.map(|table| table.id()),
        mode,
        is_granted,
    };
    let mut writer = bank.engine.begin();
    bank.set_balance(&mut writer, 1, 11).unwrap();
    let mut holder = bank.engine.begin();
    holder.lock_table(&other, &mut patient()).unwrap();
    let mut ddl = bank.engine.begin();
    // A table that no other transaction can name is not listed.
    let private = ddl.create_storage("third", bank.accounts.columns().to_vec()).unwrap();
    let private = ddl.table(private);
    ddl.join_writers(&private, &mut patient()).unwrap();
    let (accounts, other) = (Some(&bank.accounts), Some(&other));
    let had = [
        lock(&writer, accounts, Writing, true),
        lock(&holder, other, Alone, true),
        lock(&ddl, None, Alone, true),
    ];
    assert_eq!(bank.engine.table_locks(), had);

    let mut others: Vec<_> = (0..4).map(|_| bank.engine.begin()).collect();
    let waits = [(accounts, Alone), (accounts, Writing), (other, Writing), (None, Alone)];
    let waits: Vec<_> =
        others.iter().zip(waits).map(|(tx, (table, mode))| lock(tx, table, mode, false)).collect();
    let until = |condition: &dyn Fn() -> bool| {
        while !condition() {
            thread::yield_now();
        }
    };
    let (locking, joining) = (number(&others[0]), number(&others[1]));
    thread::scope(|scope| {
        let bank = &bank;
        for (at, tx) in others.drain(..).enumerate() {
            let other = other.unwrap();
            // The second comes when the table is about to be locked.
            until(&|| waits[..at].iter().all(|wait| bank.engine.table_locks().contains(wait)));
            thread::spawn_scoped(scope, "waiting", move || {
                let mut tx = tx;
                match at {
                    0 => tx.lock_table(&bank.accounts, &mut patient()).unwrap(),
                    1 => tx.join_writers(&bank.accounts, &mut patient()).map(drop).unwrap(),
                    2 => tx.join_writers(other, &mut patient()).map(drop).unwrap(),
                    _ => drop(tx.catalog_mut().unwrap()),
                }
            });
        }
        until(&|| waits.iter().all(|wait| bank.engine.table_locks().contains(wait)));
        assert_eq!(bank.engine.table_locks().len(), had.len() + waits.len());
        let awaited_by = |waiting: u64| {
            let running = bank.engine.running();
            running.into_iter().find(|running| running.id == waiting).unwrap().waits_for
        };
        assert_eq!(awaited_by(locking), [number(&writer)]);
        // It may not have reported yet what it wants.
        until(&|| awaited_by(joining) == [locking]);
        assert_eq!(awaited_by(number(&writer)), [0; 0]);
        drop((writer, holder, ddl));
    });
    assert_eq!(bank.engine.table_locks(), []);
}

/// More tables than a transaction notes without a lock.
#[test]
#[cfg_attr(miri, ignore = "waits check again by the clock, which is faster than this test")]
fn a_writer_of_many_tables_is_found_by_waits_for_any_of_them() {
    let bank = bank();
    let tables: Vec<_> = (0..60).map(|_| other_table(&bank)).collect();
    let mut patient = |_: Duration| Ok(());
    for _ in 0..2 {
        let mut writer = bank.engine.begin();
        tables.iter().for_each(|table| writer.join_writers(table, &mut patient).map(drop).unwrap());
        let running = bank.engine.running();
        let ids: Vec<_> = tables.iter().map(|table| table.id()).collect();
        assert_eq!(running[0].writes_to, ids);
        let waiting = bank.engine.begin();
        thread::scope(|scope| {
            let table = &tables[59];
            thread::spawn_scoped(scope, "waiting", move || {
                let mut waiting = waiting;
                waiting.lock_table(table, &mut |_| Ok(())).unwrap();
            });
            let blocked =
                || bank.engine.running().into_iter().any(|running| running.waits_for == [number(&writer)]);
            while !blocked() {
                thread::yield_now();
            }
            drop(writer);
        });
        assert!(bank.engine.running().is_empty());
    }
}

fn number(tx: &Transaction) -> u64 {
    tx.snapshot().owner.sequence().expect("it is a transaction's")
}

/// Each locks the table to which the other writes; one of them gets the deadlock, also one that changes the
/// catalog.
#[test]
fn of_a_cycle_through_tables_one_gets_the_deadlock() {
    let bank = bank();
    let other = other_table(&bank);
    for changes_catalog in [false, true] {
        let (mut first, mut second) = (bank.engine.begin(), bank.engine.begin());
        bank.set_balance(&mut first, 1, 11).unwrap();
        if changes_catalog {
            second.catalog_mut().unwrap();
        } else {
            second.join_writers(&other, &mut |_| Ok(())).unwrap();
        }
        let deadlocks = bank.engine.statistics().deadlocks.get();
        let outcomes = thread::scope(|scope| {
            let (accounts, other) = (&bank.accounts, &other);
            let one = thread::spawn_scoped(scope, "first", move || match changes_catalog {
                true => first.catalog_mut().map(drop),
                false => first.lock_table(other, &mut |_| Ok(())),
            });
            let two =
                thread::spawn_scoped(scope, "second", move || second.lock_table(accounts, &mut |_| Ok(())));
            [one.join().unwrap(), two.join().unwrap()]
        });
        let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].state(), SqlState::DEADLOCK_DETECTED);
        assert_eq!(bank.engine.statistics().deadlocks.get(), deadlocks + 1);
        // The table is not locked any more.
        bank.engine.transact(|tx| bank.set_balance(tx, 1, 10)).unwrap();
    }
}
