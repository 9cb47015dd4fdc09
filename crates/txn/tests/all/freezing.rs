//! When rows move to the gaps of other blocks, and when they do not.

use crate::support::{Bank, commit};
use firn_base::RowId;
use firn_txn::{Engine, Isolation, Progress, pin};
use std::sync::Arc;
use std::time::Duration;

const ACCOUNTS: i32 = 6000;

/// Runs the freezer until it has ended some rounds.
fn freeze(engine: &Arc<Engine>) {
    for _ in 0..3 {
        while engine.freeze(Duration::ZERO) != Progress::Done {
            // Guards of other tests may prevent it.
            std::thread::yield_now();
        }
    }
}

fn places(bank: &Bank) -> Vec<RowId> {
    let tx = bank.engine.begin_read_only();
    (1..=ACCOUNTS).filter_map(|key| bank.find(&tx, key, &pin())).collect()
}

#[test]
fn rows_stay_where_a_transaction_that_waits_for_its_client_may_have_seen_them() {
    let bank = Bank::open();
    let mut tx = bank.engine.begin();
    for key in 1..=ACCOUNTS {
        bank.insert(&mut tx, key, 0).unwrap();
    }
    commit(tx);
    let mut tx = bank.engine.begin();
    (1..=ACCOUNTS).filter(|key| key % 4 != 0).for_each(|key| bank.delete(&mut tx, key).unwrap());
    commit(tx);
    let before = places(&bank);

    let mut waits = bank.engine.try_begin(Isolation::Snapshot).unwrap();
    while bank.engine.running().iter().all(|running| running.age < Duration::from_millis(100)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    freeze(&bank.engine);
    assert_eq!(places(&bank), before);
    bank.set_balance(&mut waits, ACCOUNTS, 1).unwrap();
    commit(waits);

    // The collector has to notice the end of the reader, and the deletes.
    while places(&bank) == before {
        freeze(&bank.engine);
    }
    let tx = bank.engine.begin_read_only();
    let balance = |key| bank.balance(&tx, key);
    assert!((1..ACCOUNTS).all(|key| balance(key) == (key % 4 == 0).then_some(0)));
    assert_eq!(balance(ACCOUNTS), Some(1));
}
