//! Transfers between accounts: a workload that shows whether a commit was lost or is half there. The
//! sum of the accounts stays 0, and every thread counts its transfers in a row of its own.

use crate::durable::*;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, SqlState, SqlType, Value};
use firn_txn::{Engine, pin};

pub const THREADS: i32 = 3;
const ACCOUNTS: i32 = 20;
const BALANCE: [ColumnId; 1] = [ColumnId(1)];

pub fn create_accounts(engine: &Arc<Engine>) {
    let mut tx = engine.begin();
    let columns = [(SqlType::Integer, false), (SqlType::BigInt, false)];
    let accounts = create_table(&mut tx, "accounts", &columns);
    for key in 0..ACCOUNTS + THREADS {
        insert(&mut tx, &accounts, &[Value::Integer(key), Value::BigInt(0)]);
    }
    commit(tx);
}

/// Transfers until `acknowledge`, which is told the thread's count after each, says no.
pub fn run(engine: &Arc<Engine>, thread: i32, mut acknowledge: impl FnMut(i64) -> bool) {
    let accounts = table(&engine.begin(), "accounts");
    let mut random = Random::from_entropy();
    loop {
        let mut tx = engine.begin();
        let from = random.uniform(0, i64::from(ACCOUNTS) - 1) as i32;
        let changes = [(from, -5), ((from + 1) % ACCOUNTS, 5), (ACCOUNTS + thread, 1)];
        let mut count = 0;
        let done = changes.iter().try_for_each(|(key, by)| {
            let row = find(&tx, &accounts, &Value::Integer(*key)).unwrap();
            let guard = pin();
            let mut cells = [Cell::Null];
            assert!(tx.read(&accounts, row, &BALANCE, &mut cells, &guard));
            count = cells[0].as_i64() + by;
            tx.update(&accounts, row, &BALANCE, &[Cell::i64(count)], &guard)
        });
        match done {
            Ok(()) => commit(tx),
            Err(error) => {
                assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
                continue;
            }
        }
        if !acknowledge(count) {
            return;
        }
    }
}

/// What must hold once the threads have been told of so many transfers.
pub fn check(engine: &Arc<Engine>, acknowledged: &[i64]) {
    let state = state(engine);
    let balance = |row: &Vec<Value>| match row[1] {
        Value::BigInt(balance) => balance,
        ref other => panic!("{other:?}"),
    };
    let balances: Vec<i64> = state["accounts"].1.values().map(balance).collect();
    let (accounts, counts) = balances.split_at(ACCOUNTS as usize);
    assert_eq!(accounts.iter().sum::<i64>(), 0);
    assert!(
        counts.iter().zip(acknowledged).all(|(count, safe)| count >= safe),
        "{counts:?} {acknowledged:?}"
    );
}
