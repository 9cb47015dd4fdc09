//! Validation × commit: what a serializable transaction has read still reads the same when it takes effect,
//! also if it has advanced meanwhile, and whatever is collected and trimmed.

use crate::schedule::explore;
use crate::support::{BALANCE, Bank};
use crate::{bank_with, committed, join, statement, task};
use firn_base::ColumnSet;
use firn_txn::{Isolation, Transaction};

/// Two doctors are on call; each leaves if the other stays on call.
fn doctors() {
    let bank = bank_with([(1, 1), (2, 1), (3, 0)]);
    let leaving = [1, 2].map(|key| {
        task(&bank, move |bank| {
            let mut tx = bank.engine.begin();
            let other = bank.balance(&tx, 3 - key).expect("doctors stay");
            if other == 1 && bank.set_balance(&mut tx, key, 0).is_ok() {
                let _refused = tx.commit();
            }
        })
    });
    // Other tasks commit meanwhile, so that there is something to validate, to collect and to trim.
    let busy = task(&bank, |bank| {
        for balance in 1..=4 {
            committed(bank, Isolation::Serializable, |tx| bank.set_balance(tx, 3, balance));
        }
    });
    join(leaving);
    join([busy]);
    let on_call: i64 = bank.scan(&bank.engine.begin())[..2].iter().map(|(_, balance)| balance).sum();
    assert!(on_call >= 1, "both have left");
}

#[test]
fn of_two_that_each_rely_on_what_the_other_changes_one_fails() {
    explore(doctors);
}

/// Each inserts an account if it sees none but the first, by a scan or by the index.
fn phantoms() {
    let bank = bank_with([(0, 0)]);
    let inserting = [(1, true), (2, false)].map(|(key, scans)| {
        task(&bank, move |bank| {
            let mut tx = bank.engine.begin();
            let alone = if scans { scanned(bank, &tx) } else { ranged(bank, &tx) } == 1;
            if alone && bank.insert(&mut tx, key, 0).is_ok() {
                let _refused = tx.commit();
            }
        })
    });
    let busy = task(&bank, |bank| {
        for _ in 0..2 {
            // Inserted and deleted without being seen.
            let mut tx = bank.engine.begin();
            let _conflict = bank.insert(&mut tx, 3, 0);
            tx.rollback();
        }
    });
    join(inserting);
    join([busy]);
    assert!(bank.scan(&bank.engine.begin()).len() <= 2, "both have inserted");
}

/// The number of accounts, by a query's plan.
fn scanned(bank: &Bank, tx: &Transaction) -> usize {
    tx.note_scan(&bank.accounts, &[], [BALANCE].into_iter().collect::<ColumnSet>());
    let scan = bank.accounts.scan(tx.snapshot(), &[BALANCE], false);
    std::iter::from_fn(|| scan.next_batch(&firn_txn::pin()).map(|batch| batch.rows)).sum()
}

/// The number of accounts, by the index.
fn ranged(bank: &Bank, tx: &Transaction) -> usize {
    let mut rows = 0;
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    tx.range(&bank.accounts, &bank.by_key, all.0, all.1, false, &firn_txn::pin(), &mut |_| {
        rows += 1;
        true
    });
    rows
}

#[test]
fn a_row_that_would_have_been_read_fails_its_reader() {
    explore(phantoms);
}

/// Other tasks move money between accounts. A transaction reads one account in one statement and changes
/// another in the next, and advances in between if it must. If it commits, it has seen both at one time.
fn moves_on() {
    let bank = bank_with([(1, 50), (2, 50), (3, 0)]);
    let transferring = [1, 2].map(|from| {
        task(&bank, move |bank| {
            committed(bank, Isolation::Serializable, |tx| {
                for (key, by) in [(from, -1), (3 - from, 1)] {
                    statement(tx, |tx| {
                        let balance = bank.balance(tx, key).expect("accounts stay");
                        bank.set_balance(tx, key, balance + by)
                    })?;
                }
                Ok(())
            });
        })
    });
    let summing = task(&bank, |bank| {
        for _ in 0..2 {
            let mut sum = 0;
            committed(bank, Isolation::Serializable, |tx| {
                // Account 1 is only read, so that advancing after a change of it must fail; changing account
                // 2 causes it to advance.
                let first = bank.balance(tx, 1).expect("accounts stay");
                let second = statement(tx, |tx| {
                    let second = bank.balance(tx, 2).expect("accounts stay");
                    bank.set_balance(tx, 2, second)?;
                    Ok(second)
                })?;
                sum = first + second;
                assert_eq!(bank.balance(tx, 1), Some(first), "it has moved on past what it had read");
                bank.set_balance(tx, 3, sum)
            });
            assert_eq!(sum, 100, "it has committed what never was");
        }
    });
    join(transferring);
    join([summing]);
}

#[test]
fn a_transaction_that_advances_has_read_what_it_would_read_there() {
    explore(moves_on);
}

/// Versions are trimmed behind a transaction that holds them all back, and that advances repeatedly to some
/// time in between.
fn refreshes() {
    let bank = bank_with([(1, 0), (2, 0)]);
    let transferring = task(&bank, |bank| {
        let transfer = |balance| {
            let time = committed(bank, Isolation::Snapshot, |tx| {
                bank.set_balance(tx, 1, balance)?;
                bank.set_balance(tx, 2, -balance)
            });
            (time, balance)
        };
        (1..=8).map(transfer).collect::<Vec<_>>()
    });
    let reading = task(&bank, |bank| {
        let mut tx = bank.engine.try_begin(Isolation::ReadCommitted).unwrap();
        let mut read = || {
            tx.refresh();
            let first = bank.balance(&tx, 1).expect("accounts stay");
            assert_eq!(bank.balance(&tx, 2), Some(-first), "a statement sees one state");
            assert_eq!(bank.balance(&tx, 1), Some(first), "a statement sees one state");
            (tx.snapshot().read_time, first)
        };
        (0..4).map(|_| read()).collect::<Vec<_>>()
    });
    let written = join([transferring]).concat();
    for (read_time, balance) in join([reading]).concat() {
        let newest = written.iter().rfind(|(time, _)| *time <= read_time);
        assert_eq!(balance, newest.map_or(0, |(_, balance)| *balance), "at {read_time:?} of {written:?}");
    }
}

#[test]
fn what_is_read_after_moving_on_is_kept() {
    explore(refreshes);
}
