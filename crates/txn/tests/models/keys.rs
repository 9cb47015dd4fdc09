//! Index: insert × delete × scan, and the requirements of constraints.

use crate::schedule::explore;
use crate::support::{BALANCE, Bank, commit};
use crate::{bank_with, committed, join, statement, task};
use firn_base::sync::Arc;
use firn_base::{Cell, Representation, RowId, SqlState};
use firn_storage::{Index, IndexColumn, IndexId, IndexSpec, KeyBuffer};
use firn_txn::{Isolation, Transaction, pin};
use std::ops::Bound;

/// One account moves from key to key: every snapshot sees exactly one, and the same in every way
/// ([`Bank::scan`] compares the table with the index).
fn moves() {
    let bank = bank_with([(1, 0), (5, 5)]);
    let moving = |from: i32, to: i32, ends_well: bool| {
        task(&bank, move |bank| {
            let mut tx = bank.engine.begin();
            let key = if bank.balance(&tx, 1).is_some() { from } else { to };
            let other = from + to - key;
            if bank.set_key(&mut tx, key, other).is_ok() && ends_well {
                let _lost = tx.commit();
            }
        })
    };
    let moving = [moving(1, 2, true), moving(1, 2, false)];
    let replacing = task(&bank, |bank| {
        // Deleted and inserted again: another slot under the same key.
        for _ in 0..2 {
            let mut tx = bank.engine.begin();
            let key = if bank.balance(&tx, 1).is_some() { 1 } else { 2 };
            let replaced = bank.delete(&mut tx, key).and_then(|()| bank.insert(&mut tx, key, 7));
            if replaced.is_ok() {
                let _lost = tx.commit();
            }
        }
    });
    let reading = task(&bank, |bank| {
        for _ in 0..3 {
            let tx = bank.engine.begin_read_only();
            let rows = bank.scan(&tx);
            assert!(matches!(rows[..], [(1 | 2, 0 | 7), (5, 5)]), "{rows:?}");
            let found = [1, 2].iter().filter(|key| bank.balance(&tx, **key).is_some()).count();
            assert_eq!(found, 1, "a snapshot does not change");
        }
    });
    join(moving);
    join([replacing, reading]);
}

#[test]
fn a_row_that_goes_from_key_to_key_is_seen_exactly_once() {
    explore(moves);
}

/// Several claim the same key, whose holder deletes it, rolls that back, or never commits.
fn claims() {
    let bank = bank_with([(5, 0)]);
    let hesitating = task(&bank, |bank| {
        let mut tx = bank.engine.begin();
        if bank.balance(&tx, 5).is_none() {
            return;
        }
        let savepoint = tx.savepoint();
        let _conflict = bank.delete(&mut tx, 5);
        tx.rollback_to(savepoint);
        let _conflict = bank.set_key(&mut tx, 5, 6);
        tx.rollback_to(savepoint);
        if bank.set_balance(&mut tx, 5, 1).is_ok() {
            let _lost = tx.commit();
        }
    });
    let deleting = task(&bank, |bank| {
        let mut tx = bank.engine.begin();
        let deleted =
            bank.balance(&tx, 5).is_some() && bank.delete(&mut tx, 5).is_ok() && tx.commit().is_ok();
        i64::from(deleted)
    });
    let inserting = [10, 20].map(|balance| {
        task(&bank, move |bank| {
            let mut inserted = 0;
            for round in 0..2 {
                let mut tx = bank.engine.begin();
                if balance == 20 {
                    tx.release_snapshot();
                }
                match bank.insert(&mut tx, 5, balance + round) {
                    Ok(_) if round == 0 => tx.rollback(),
                    Ok(_) => inserted += i64::from(tx.commit().is_ok()),
                    Err(error) => assert!(
                        [SqlState::UNIQUE_VIOLATION, SqlState::SERIALIZATION_FAILURE]
                            .contains(&error.state()),
                        "{error:?}"
                    ),
                }
            }
            inserted
        })
    });
    join([hesitating]);
    let inserted: i64 = join(inserting).iter().sum();
    let deleted: i64 = join([deleting]).iter().sum();
    let left = bank.scan(&bank.engine.begin());
    assert_eq!(left.len() as i64, 1 + inserted - deleted, "{left:?}");
    assert!(left.len() <= 1, "two rows have one key: {left:?}");
}

#[test]
fn a_key_belongs_to_one_row() {
    explore(claims);
}

/// One gives its row a key, then another, and returns to the first; meanwhile others claim that.
fn returns() {
    let bank = bank_with([]);
    let returning = task(&bank, |bank| {
        let mut tx = bank.engine.begin();
        if bank.insert(&mut tx, 7, 0).is_err() {
            return 0;
        }
        let savepoint = tx.savepoint();
        let _conflict = bank.set_key(&mut tx, 7, 8);
        tx.rollback_to(savepoint);
        i64::from(tx.commit().is_ok())
    });
    let claiming = [1, 2].map(|balance| {
        task(&bank, move |bank| {
            let mut tx = bank.engine.begin();
            i64::from(bank.insert(&mut tx, 7, balance).is_ok() && tx.commit().is_ok())
        })
    });
    let committed: i64 = join(claiming).into_iter().chain(join([returning])).sum();
    let rows = bank.scan(&bank.engine.begin());
    assert!(rows.len() as i64 == committed && committed <= 1, "{committed} have committed: {rows:?}");
}

#[test]
fn a_key_to_which_a_transaction_may_return_is_taken() {
    explore(returns);
}

/// Adds an index on balances, which several accounts may share.
fn by_balance(bank: &Bank) -> Arc<Index> {
    index_on_balances(bank, true)
}

/// The same, with or without values.
pub fn index_on_balances(bank: &Bank, values: bool) -> Arc<Index> {
    let mut tx = bank.engine.begin();
    let part = IndexColumn {
        column: BALANCE,
        representation: Representation::Int64,
        nullable: true,
        descending: false,
        nulls_first: false,
    };
    let spec =
        IndexSpec { id: IndexId(2), name: "by_balance".into(), columns: vec![part], unique: false, values };
    tx.allow_snapshot_advance();
    tx.create_index(&bank.accounts, spec, 2).expect("writers end");
    let rows = bank.scan(&tx).len() as u64;
    assert_eq!(rows, bank.accounts.approximate_rows(), "all that was committed is seen behind a closed gate");
    commit(tx);
    bank.accounts.indexes()[1].clone()
}

fn balance_key(index: &Index, balance: i64) -> KeyBuffer {
    let mut key = KeyBuffer::new();
    index.encode(&[Cell::i64(balance)], &mut key);
    key
}

/// Asserts that the index on balances has exactly the rows of the table.
pub fn assert_balances(bank: &Bank, by_balance: &Index, tx: &Transaction) {
    let mut expected: Vec<i64> = bank.scan(tx).iter().map(|(_, balance)| *balance).collect();
    expected.sort_unstable();
    for reverse in [false, true] {
        let (mut found, guard) = (Vec::new(), pin());
        let all = (Bound::Unbounded, Bound::Unbounded);
        tx.range_read(&bank.accounts, by_balance, all, reverse, &[BALANCE], &guard, &mut |_, cells| {
            found.push(cells[0].as_i64());
            true
        });
        if reverse {
            found.reverse();
        }
        assert_eq!(found, expected);
    }
}

/// Balances are removed and restored, so that entries of dead versions are removed while the same entries are
/// inserted again.
fn balances() {
    let bank = bank_with([(1, 1), (2, 2)]);
    let index = by_balance(&bank);
    let swinging = [(1, [2, 1, 2]), (2, [1, 2, 1])].map(|(key, balances)| {
        task(&bank, move |bank| {
            for (round, balance) in balances.into_iter().enumerate() {
                let mut tx = bank.engine.begin();
                bank.set_balance(&mut tx, key, balance).expect("no other task changes it");
                if round == 1 {
                    tx.rollback();
                } else {
                    commit(tx);
                }
            }
        })
    });
    let replacing = task(&bank, |bank| {
        for balance in [1, 2] {
            let mut tx = bank.engine.begin();
            bank.insert(&mut tx, 3, balance).expect("no other task inserts it");
            commit(tx);
            let mut tx = bank.engine.begin();
            bank.delete(&mut tx, 3).expect("no other task deletes it");
            commit(tx);
        }
    });
    let reading = {
        let index = index.clone();
        task(&bank, move |bank| {
            (0..2).for_each(|_| assert_balances(bank, &index, &bank.engine.begin_read_only()))
        })
    };
    join(swinging);
    join([replacing, reading]);
    assert_balances(&bank, &index, &bank.engine.begin());
}

#[test]
fn an_index_leads_to_every_row_that_a_snapshot_sees() {
    explore(balances);
}

/// An index is built while others write.
fn builds() {
    let bank = bank_with([(1, 1), (2, 2)]);
    let writing = [1, 2].map(|key| {
        task(&bank, move |bank| {
            for balance in [10, 20] {
                committed(bank, Isolation::Serializable, |tx| {
                    bank.set_balance(tx, key, balance)?;
                    bank.insert(tx, 10 * key + balance as i32 / 10, balance).map(drop)
                });
            }
        })
    });
    let building =
        task(&bank, |bank| assert_balances(bank, &by_balance(bank), &bank.engine.begin_read_only()));
    join(writing);
    join([building]);
    assert_balances(&bank, &bank.accounts.indexes()[1], &bank.engine.begin());
}

#[test]
fn an_index_built_beside_writers_misses_none_of_their_rows() {
    explore(builds);
}

/// The balance of an account is the key of another, which it references. One task inserts such an account,
/// the other deletes the referenced one: no snapshot sees the first without the other.
fn references(isolation: Isolation) {
    let bank = bank_with([(1, 0), (2, 0)]);
    let index = by_balance(&bank);
    let referring = task(&bank, move |bank| {
        for key in [11, 12] {
            let mut tx = bank.engine.try_begin(isolation).unwrap();
            let inserted = statement(&mut tx, |tx| {
                bank.insert(tx, key, 1)?;
                tx.reference_target_exists(&bank.accounts, &bank.by_key, &bank.key(1), &pin())
            });
            if inserted.is_ok_and(|exists| exists) {
                let _lost = tx.commit();
            }
        }
    });
    let deleting = task(&bank, move |bank| {
        let mut tx = bank.engine.try_begin(isolation).unwrap();
        let referred = statement(&mut tx, |tx| {
            if bank.balance(tx, 1).is_none() {
                return Ok(true);
            }
            bank.delete(tx, 1)?;
            tx.referencing_row_exists(&bank.accounts, &index, &balance_key(&index, 1), &pin())
        });
        if referred.is_ok_and(|exists| !exists) {
            let _lost = tx.commit();
        }
    });
    let reading = task(&bank, |bank| {
        let rows = bank.scan(&bank.engine.begin_read_only());
        let has = |wanted: fn(&(i32, i64)) -> bool| rows.iter().any(wanted);
        assert!(has(|(key, _)| *key == 1) || !has(|(_, balance)| *balance == 1), "{rows:?}");
    });
    join([referring, deleting, reading]);
    let rows = bank.scan(&bank.engine.begin());
    let has = |wanted: fn(&(i32, i64)) -> bool| rows.iter().any(wanted);
    assert!(has(|(key, _)| *key == 1) || !has(|(_, balance)| *balance == 1), "{rows:?}");
}

#[test]
fn what_is_referred_to_is_there() {
    explore(|| references(Isolation::Serializable));
}

#[test]
fn what_is_referred_to_is_there_under_weaker_isolation() {
    explore(|| references(Isolation::ReadCommitted));
}

/// As [`references`], with a task that removes the referenced key, restores it, and rolls back to before
/// that.
fn goes_back(isolation: Isolation) {
    let bank = bank_with([(1, 0), (2, 0)]);
    let index = by_balance(&bank);
    let referring = task(&bank, move |bank| {
        let mut tx = bank.engine.try_begin(isolation).unwrap();
        let inserted = statement(&mut tx, |tx| {
            bank.insert(tx, 11, 1)?;
            tx.reference_target_exists(&bank.accounts, &bank.by_key, &bank.key(1), &pin())
        });
        if inserted.is_ok_and(|exists| exists) {
            let _lost = tx.commit();
        }
    });
    let leaving = task(&bank, move |bank| {
        let mut tx = bank.engine.try_begin(isolation).unwrap();
        let referred = statement(&mut tx, |tx| {
            bank.set_key(tx, 1, 5)?;
            tx.referencing_row_exists(&bank.accounts, &index, &balance_key(&index, 1), &pin())
        });
        if referred.is_ok_and(|exists| !exists) {
            let savepoint = tx.savepoint();
            bank.set_key(&mut tx, 5, 1).expect("no other account has it");
            tx.rollback_to(savepoint);
            let _lost = tx.commit();
        }
    });
    join([referring, leaving]);
    let rows = bank.scan(&bank.engine.begin());
    let has = |wanted: fn(&(i32, i64)) -> bool| rows.iter().any(wanted);
    assert!(has(|(key, _)| *key == 1) || !has(|(_, balance)| *balance == 1), "{rows:?}");
}

#[test]
fn a_key_that_may_be_left_again_is_not_referred_to() {
    explore(|| goes_back(Isolation::Serializable));
}

#[test]
fn a_key_that_may_be_left_again_is_not_referred_to_under_weaker_isolation() {
    explore(|| goes_back(Isolation::ReadCommitted));
}

/// Gives an account the balance 9 as a deferrable unique constraint would: checks when the row is written,
/// and once more at the end if it was not alone then; meanwhile it leaves the balance for a short time.
/// Returns whether it has committed.
fn give(
    bank: &Bank,
    by_balance: &Index,
    mut tx: Transaction,
    account: i32,
    write: impl Fn(&mut Transaction) -> RowId,
) -> bool {
    let key = balance_key(by_balance, 9);
    let row = write(&mut tx);
    let shared = tx.shares_key(&bank.accounts, by_balance, &key, row, &pin());
    let savepoint = tx.savepoint();
    bank.set_balance(&mut tx, account, 7).expect("no other task changes it");
    tx.rollback_to(savepoint);
    if shared {
        let again = statement(&mut tx, |tx| tx.is_duplicate(&bank.accounts, by_balance, &key, row, &pin()));
        if !again.is_ok_and(|duplicate| !duplicate) {
            return false;
        }
    }
    tx.commit().is_ok()
}

/// Of rows that claim one balance, which is tested late, one has it; its holder leaves it and returns.
fn late_keys(isolation: Isolation) {
    let bank = bank_with([(1, 9)]);
    let index = by_balance(&bank);
    let inserting = [2, 3].map(|key| {
        let index = index.clone();
        task(&bank, move |bank| {
            let tx = bank.engine.try_begin(isolation).unwrap();
            give(bank, &index, tx, key, |tx| bank.insert(tx, key, 9).expect("no other task inserts it"))
        })
    });
    let leaving = task(&bank, move |bank| {
        let mut tx = bank.engine.try_begin(isolation).unwrap();
        let savepoint = tx.savepoint();
        bank.set_balance(&mut tx, 1, 5).expect("no other task changes it");
        tx.rollback_to(savepoint);
        bank.set_balance(&mut tx, 1, 5).expect("no other task changes it");
        commit(tx);
        let tx = bank.engine.try_begin(isolation).unwrap();
        give(bank, &index, tx, 1, |tx| {
            bank.set_balance(tx, 1, 9).expect("no other task changes it");
            bank.find(tx, 1, &pin()).expect("the account exists")
        })
    });
    let holders = |bank: &Bank| {
        let rows = bank.scan(&bank.engine.begin_read_only());
        rows.iter().filter(|(_, balance)| *balance == 9).count()
    };
    let reading = task(&bank, move |bank| (0..2).for_each(|_| assert!(holders(bank) <= 1)));
    let given = join(inserting).into_iter().chain(join([leaving])).filter(|given| *given).count();
    join([reading]);
    assert_eq!(holders(&bank), given, "each of them has committed");
    assert!(given <= 1, "{given} have it");
}

#[test]
fn a_key_that_is_tested_late_belongs_to_one_row() {
    explore(|| late_keys(Isolation::Serializable));
}

#[test]
fn a_key_that_is_tested_late_belongs_to_one_row_under_weaker_isolation() {
    explore(|| late_keys(Isolation::ReadCommitted));
}
