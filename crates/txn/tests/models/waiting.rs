//! Waiting: a transaction that waits for another one's end wakes when it comes, and of a cycle one gets the
//! deadlock.

use crate::schedule::explore;
use crate::support::{Bank, commit};
use crate::{bank_with, join, task};
use firn_base::sync::Arc;
use firn_base::{SqlState, Stamp};
use firn_storage::Table;
use firn_txn::{Isolation, Transaction, Waited};
use std::time::Duration;

/// In a model only a wake-up ends this.
const FOREVER: Duration = Duration::from_secs(3600);
/// This ends as soon as other tasks have continued.
const A_WHILE: Duration = Duration::from_millis(10);

/// The transaction with which an update of that account conflicts; the update is undone.
fn blocker(bank: &Bank, tx: &mut Transaction, key: i32) -> Option<Stamp> {
    let start = tx.begin_statement();
    let outcome = bank.set_balance(tx, key, 1);
    tx.undo_statement(&start);
    outcome.err().and_then(|error| error.blocker())
}

/// Waits for another transaction's end. Returns false if it would never come.
fn ends(tx: &Transaction, other: Stamp) -> bool {
    loop {
        match tx.wait_for(other, A_WHILE) {
            Waited::Ended | Waited::Released => return true,
            Waited::NotYet => {}
            Waited::Deadlock => return false,
        }
    }
}

/// Holders follow one another, also in the same slot of the running ones; waiters wait for each.
fn wakes() {
    let bank = bank_with([(1, 0)]);
    let holding = [true, false].map(|ends_well| {
        task(&bank, move |bank| {
            for _ in 0..2 {
                let mut tx = bank.engine.try_begin(Isolation::Snapshot).unwrap();
                if bank.set_balance(&mut tx, 1, 2).is_ok() && ends_well {
                    commit(tx);
                }
            }
        })
    });
    let waiting = [1, 2].map(|_| {
        task(&bank, |bank| {
            let mut tx = bank.engine.try_begin(Isolation::ReadCommitted).unwrap();
            for _ in 0..2 {
                if let Some(holder) = blocker(bank, &mut tx, 1) {
                    // Perhaps woken for the holder that was in its slot before.
                    while tx.wait_for(holder, FOREVER) != Waited::Ended {}
                }
            }
        })
    });
    join(holding);
    join(waiting);
}

#[test]
fn waiting_transactions_wake() {
    explore(wakes);
}

/// Each transaction has changed the account of its number and wants to change another's. Returns how many get
/// a deadlock.
fn wanting(wants: &'static [Option<i32>]) -> usize {
    let bank = bank_with((0..wants.len() as i32).map(|key| (key, 0)));
    let begin = |key: usize| {
        let mut tx = bank.engine.try_begin(Isolation::ReadCommitted).unwrap();
        bank.set_balance(&mut tx, key as i32, 1).unwrap();
        tx
    };
    let transactions: Vec<Transaction> = (0..wants.len()).map(begin).collect();
    let tasks = transactions.into_iter().zip(wants).map(|(mut tx, wants)| {
        task(&bank, move |bank| {
            while let Some(holder) = wants.and_then(|key| blocker(bank, &mut tx, key)) {
                if !ends(&tx, holder) {
                    return true;
                }
                let start = tx.begin_statement();
                tx.restart(&start).expect("READ COMMITTED can always restart");
            }
            commit(tx);
            false
        })
    });
    let tasks: Vec<_> = tasks.collect();
    join(tasks).into_iter().filter(|deadlocked| *deadlocked).count()
}

#[test]
fn of_a_cycle_of_two_one_gets_the_deadlock() {
    explore(|| assert_eq!(wanting(&[Some(1), Some(0)]), 1));
}

#[test]
fn of_a_cycle_of_three_and_one_that_waits_for_it_one_gets_the_deadlock() {
    explore(|| assert_eq!(wanting(&[Some(1), Some(2), Some(0), Some(0)]), 1));
}

#[test]
fn in_a_queue_there_is_no_deadlock() {
    explore(|| assert_eq!(wanting(&[None, Some(0), Some(1), Some(1)]), 0));
}

/// The first changes an account after a savepoint, rolls back to it, and then wants that of the second, which
/// waits for it.
fn goes_back() {
    let bank = bank_with([(0, 0), (1, 0)]);
    let begin = || bank.engine.try_begin(Isolation::ReadCommitted).unwrap();
    // The one with the greater number would get the deadlock.
    let (mut first, mut second) = (begin(), begin());
    bank.set_balance(&mut second, 1, 1).unwrap();
    let savepoint = first.savepoint();
    bank.set_balance(&mut first, 0, 1).unwrap();
    let until_had = |bank: &Bank, tx: &mut Transaction, key| {
        while let Some(holder) = blocker(bank, tx, key) {
            match tx.wait_for(holder, FOREVER) {
                Waited::Ended | Waited::Released => {}
                outcome => panic!("{outcome:?}: there is no cycle, and a waiting transaction wakes"),
            }
        }
        let start = tx.begin_statement();
        tx.restart(&start).expect("READ COMMITTED can always restart");
        bank.set_balance(tx, key, 2).is_ok()
    };
    let going_back = task(&bank, move |bank| {
        first.rollback_to(savepoint);
        assert!(until_had(bank, &mut first, 1));
        commit(first);
    });
    let waiting = task(&bank, move |bank| {
        assert!(until_had(bank, &mut second, 0));
        commit(second);
    });
    join([going_back, waiting]);
    assert_eq!(bank.scan(&bank.engine.begin()), [(0, 2), (1, 2)]);
}

#[test]
fn a_waiting_transaction_gets_a_row_that_a_rollback_to_a_savepoint_releases() {
    explore(goes_back);
}

/// The first waits for the second, which ends; in its slot a third begins and waits for the first. That is no
/// cycle, though a thread that reads the slot at the wrong time sees one.
fn follows_in_its_slot() {
    let bank = bank_with([(0, 0), (1, 0)]);
    let begin = || bank.engine.try_begin(Isolation::ReadCommitted).unwrap();
    // In the slot that the setup has used, so with a greater number than the second.
    let (mut first, mut second) = (begin(), begin());
    assert!(first.snapshot().owner.to_bits() > second.snapshot().owner.to_bits());
    bank.set_balance(&mut first, 0, 1).unwrap();
    bank.set_balance(&mut second, 1, 1).unwrap();
    let wait = |bank: &Bank, mut tx: Transaction, key| {
        let holder = blocker(bank, &mut tx, key);
        assert!(holder.is_none_or(|holder| ends(&tx, holder)), "there is no cycle");
        commit(tx);
    };
    let waiting = task(&bank, move |bank| wait(bank, first, 1));
    let following = task(&bank, move |bank| {
        commit(second);
        wait(bank, bank.engine.try_begin(Isolation::ReadCommitted).unwrap(), 0);
    });
    join([waiting, following]);
}

#[test]
fn a_transaction_is_not_mistaken_for_an_earlier_one_in_its_slot() {
    explore(follows_in_its_slot);
}

/// What a transaction has or wants: to change an account, to write to another table, to lock rows there, to
/// lock it, alone or together with others, or to have its maintenance.
#[derive(Clone, Copy)]
enum Thing {
    Row(i32),
    Write(usize),
    LockRows(usize),
    Lock(usize),
    Share(usize),
    Maintain(usize),
}

use Thing::{Lock, LockRows, Maintain, Row, Share, Write};

/// Takes it. Returns false for a deadlock.
fn take(bank: &Bank, tables: &[Arc<Table>], tx: &mut Transaction, thing: Thing) -> bool {
    let patience = &mut |_| Ok(());
    let taken = match thing {
        Row(key) => {
            while let Some(holder) = blocker(bank, tx, key) {
                if !ends(tx, holder) {
                    return false;
                }
                let start = tx.begin_statement();
                tx.restart(&start).expect("READ COMMITTED can always restart");
            }
            return true;
        }
        Write(table) => tx.join_writers(&tables[table], patience).map(drop),
        LockRows(table) => tx.join_lockers(&tables[table], patience).map(drop),
        Lock(table) => tx.lock_table(&tables[table], patience),
        Share(table) => tx.lock_share(&tables[table], patience),
        Maintain(table) => tx.lock_share_update_exclusive(&tables[table], patience),
    };
    taken.map_err(|error| assert_eq!(error.state(), SqlState::DEADLOCK_DETECTED)).is_ok()
}

/// Each transaction has the first and then wants the second. Returns how many get a deadlock.
fn having_and_wanting(transactions: &'static [(Thing, Option<Thing>)]) -> usize {
    let bank = bank_with([(0, 0), (1, 0)]);
    let mut setup = bank.engine.begin();
    let mut create = || setup.create_storage("beside", bank.accounts.columns().to_vec()).unwrap();
    let ids = [create(), create()];
    commit(setup);
    let tables = Arc::new(ids.map(|id| bank.engine.table(id)));
    let have = |&(has, wants): &(Thing, Option<Thing>)| {
        let mut tx = bank.engine.try_begin(Isolation::ReadCommitted).unwrap();
        assert!(take(&bank, &*tables, &mut tx, has), "there is no conflict yet");
        (tx, wants)
    };
    let having: Vec<_> = transactions.iter().map(have).collect();
    let tasks = having.into_iter().map(|(mut tx, wants)| {
        let tables = tables.clone();
        task(&bank, move |bank| {
            let deadlocked = wants.is_some_and(|wants| !take(bank, &*tables, &mut tx, wants));
            if !deadlocked {
                commit(tx);
            }
            deadlocked
        })
    });
    let tasks: Vec<_> = tasks.collect();
    join(tasks).into_iter().filter(|deadlocked| *deadlocked).count()
}

#[test]
fn of_two_that_lock_tables_crosswise_one_gets_the_deadlock() {
    explore(|| assert_eq!(having_and_wanting(&[(Lock(0), Some(Lock(1))), (Lock(1), Some(Lock(0)))]), 1));
}

#[test]
fn of_two_that_write_and_lock_crosswise_one_gets_the_deadlock() {
    explore(|| assert_eq!(having_and_wanting(&[(Write(0), Some(Lock(1))), (Write(1), Some(Lock(0)))]), 1));
}

#[test]
fn of_a_cycle_through_a_row_and_a_table_one_gets_the_deadlock() {
    explore(|| assert_eq!(having_and_wanting(&[(Row(0), Some(Write(0))), (Lock(0), Some(Row(0)))]), 1));
}

/// Another one writes to the table as well, and is in no cycle.
#[test]
fn of_a_cycle_through_one_of_the_writers_of_a_table_one_gets_the_deadlock() {
    const TRANSACTIONS: &[(Thing, Option<Thing>)] =
        &[(Write(0), None), (Row(0), Some(Lock(0))), (Write(0), Some(Row(1))), (Row(1), Some(Row(0)))];
    explore(|| assert_eq!(having_and_wanting(TRANSACTIONS), 1));
}

#[test]
fn in_a_queue_for_a_table_there_is_no_deadlock() {
    const TRANSACTIONS: &[(Thing, Option<Thing>)] =
        &[(Write(0), None), (Write(1), Some(Lock(0))), (Row(0), Some(Write(0))), (Row(1), Some(Lock(1)))];
    explore(|| assert_eq!(having_and_wanting(TRANSACTIONS), 0));
}

#[test]
fn of_two_that_share_a_table_and_then_write_to_it_one_gets_the_deadlock() {
    explore(|| assert_eq!(having_and_wanting(&[(Share(0), Some(Write(0))), (Share(0), Some(Write(0)))]), 1));
}

/// Another one shares the table as well, and is in no cycle.
#[test]
fn of_a_cycle_through_one_of_the_sharers_of_a_table_one_gets_the_deadlock() {
    const TRANSACTIONS: &[(Thing, Option<Thing>)] =
        &[(Share(0), None), (Row(0), Some(Write(0))), (Share(0), Some(Row(0)))];
    explore(|| assert_eq!(having_and_wanting(TRANSACTIONS), 1));
}

#[test]
fn sharers_of_a_table_get_no_deadlock_while_one_writes_to_it() {
    const TRANSACTIONS: &[(Thing, Option<Thing>)] =
        &[(Share(0), Some(Write(0))), (Share(0), None), (Row(0), Some(Share(0)))];
    explore(|| assert_eq!(having_and_wanting(TRANSACTIONS), 0));
}

#[test]
fn of_two_that_lock_rows_of_a_table_and_then_want_it_alone_one_gets_the_deadlock() {
    explore(|| {
        assert_eq!(having_and_wanting(&[(LockRows(0), Some(Lock(0))), (LockRows(0), Some(Lock(0)))]), 1);
    });
}

/// Transactions that share a table or write to it do not conflict with one that locks rows.
#[test]
fn transactions_that_lock_rows_of_a_shared_table_get_no_deadlock() {
    explore(|| {
        assert_eq!(having_and_wanting(&[(Share(0), Some(LockRows(0))), (Share(0), Some(LockRows(0)))]), 0);
    });
    explore(|| {
        assert_eq!(having_and_wanting(&[(LockRows(0), Some(Write(0))), (LockRows(0), Some(Share(0)))]), 0);
    });
}

/// A transaction that begins to write need not wait for one that has yet to wait for it.
#[test]
fn one_that_wants_a_table_alone_and_a_locker_that_wants_to_write_to_it_get_no_deadlock() {
    explore(|| {
        assert_eq!(having_and_wanting(&[(LockRows(0), Some(Write(0))), (Row(0), Some(Lock(0)))]), 0);
    });
    // Also after it has waited for another one.
    const TRANSACTIONS: &[(Thing, Option<Thing>)] =
        &[(LockRows(0), Some(Write(0))), (Share(0), None), (Row(0), Some(Lock(0)))];
    explore(|| assert_eq!(having_and_wanting(TRANSACTIONS), 0));
}

/// The first returns to sharing the table if it gets the deadlock.
#[test]
fn of_a_sharer_that_wants_the_table_alone_and_a_locker_that_wants_to_write_one_gets_the_deadlock() {
    explore(|| {
        assert_eq!(having_and_wanting(&[(Share(0), Some(Lock(0))), (LockRows(0), Some(Write(0)))]), 1);
    });
}

#[test]
fn of_two_that_maintain_tables_crosswise_one_gets_the_deadlock() {
    explore(|| {
        assert_eq!(
            having_and_wanting(&[(Maintain(0), Some(Maintain(1))), (Maintain(1), Some(Maintain(0)))]),
            1
        );
    });
}

#[test]
fn in_a_queue_for_the_maintenance_of_a_table_there_is_no_deadlock() {
    const TRANSACTIONS: &[(Thing, Option<Thing>)] =
        &[(Maintain(0), None), (Write(0), Some(Maintain(0))), (Row(0), Some(Share(0)))];
    explore(|| assert_eq!(having_and_wanting(TRANSACTIONS), 0));
}

/// A transaction that waits for the maintenance does not write yet, and one that waits to write has no
/// maintenance yet.
#[test]
fn two_that_want_to_maintain_and_to_share_a_locked_table_get_no_deadlock() {
    explore(|| {
        assert_eq!(having_and_wanting(&[(Maintain(0), Some(Share(0))), (Row(0), Some(Maintain(0)))]), 0);
    });
    explore(|| {
        assert_eq!(having_and_wanting(&[(Share(0), Some(Maintain(0))), (Row(0), Some(Maintain(0)))]), 0);
    });
    explore(|| {
        assert_eq!(having_and_wanting(&[(LockRows(0), Some(Maintain(0))), (Row(0), Some(Lock(0)))]), 0);
    });
}
