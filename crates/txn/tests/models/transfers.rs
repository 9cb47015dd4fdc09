//! Commit × begin: transfers between accounts. Every snapshot sees all of a commit or nothing of it, and no
//! update is lost.

use crate::schedule::explore;
use crate::support::Bank;
use crate::{bank_with, committed, join, statement, task};
use firn_base::sync::Arc;
use firn_txn::Isolation;

const ACCOUNTS: i32 = 3;
const EACH: i64 = 100;
const TOTAL: i64 = ACCOUNTS as i64 * EACH;

fn bank() -> Arc<Bank> {
    bank_with((0..ACCOUNTS).map(|key| (key, EACH)))
}

/// Moves 1 from one account to the next; returns when.
fn transfer(bank: &Bank, isolation: Isolation, from: i32) -> firn_base::Time {
    committed(bank, isolation, |tx| {
        for (key, by) in [(from, -1), ((from + 1) % ACCOUNTS, 1)] {
            statement(tx, |tx| {
                let balance = bank.balance(tx, key).expect("accounts stay");
                bank.set_balance(tx, key, balance + by)
            })?;
        }
        Ok(())
    })
}

/// Of two snapshots of one reader the second is not older; the sum is the same in both, in every way of
/// reading.
fn read(bank: &Bank) {
    let mut last = firn_base::Time(0);
    for _ in 0..2 {
        let tx = bank.engine.begin_read_only();
        assert!(tx.snapshot().read_time >= last, "time ran backwards");
        last = tx.snapshot().read_time;
        let rows = bank.scan(&tx);
        assert_eq!(rows.iter().map(|(_, balance)| balance).sum::<i64>(), TOTAL, "{rows:?}");
        let points: i64 = (0..ACCOUNTS).map(|key| bank.balance(&tx, key).expect("accounts stay")).sum();
        assert_eq!(points, TOTAL);
    }
}

fn transfers(isolation: Isolation) {
    let bank = bank();
    let writers = [0, 1].map(|from| {
        task(&bank, move |bank| {
            let time = transfer(bank, isolation, from);
            assert!(
                bank.engine.begin().snapshot().read_time >= time,
                "one's own commit is seen by what follows"
            );
            transfer(bank, isolation, from);
        })
    });
    let reader = task(&bank, read);
    join(writers);
    join([reader]);
    // 0 has given 2; 1 has received and given 2; 2 has received 2.
    assert_eq!(
        bank.scan(&bank.engine.begin()),
        [(0, EACH - 2), (1, EACH), (2, EACH + 2)],
        "an update was lost"
    );
}

#[test]
fn every_snapshot_sees_all_of_a_commit_or_nothing() {
    explore(|| transfers(Isolation::Serializable));
}

#[test]
fn under_snapshot_isolation_as_well() {
    explore(|| transfers(Isolation::Snapshot));
}

#[test]
fn read_committed_loses_no_update_that_it_waited_for() {
    explore(|| transfers(Isolation::ReadCommitted));
}
