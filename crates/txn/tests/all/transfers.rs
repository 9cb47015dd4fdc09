//! Transfers between accounts: a workload that shows whether a commit was lost or recovered in part. The sum
//! of the accounts is always 0, and every thread counts its transfers in a row of its own.

use crate::durable::*;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, SqlState, SqlType, Value};
use firn_txn::{Engine, pin};
use std::collections::BTreeMap;

pub const THREADS: i32 = 3;
/// Enough accounts if rows should be in one block.
pub const FEW: i32 = 20;
const BALANCE: [ColumnId; 1] = [ColumnId(1)];

pub fn create_accounts(engine: &Arc<Engine>, accounts: i32) {
    let mut tx = engine.begin();
    let columns = [(SqlType::Integer, false), (SqlType::BigInt, false)];
    let table = create_table(&mut tx, "accounts", &columns);
    for key in 0..accounts + THREADS {
        insert(&mut tx, &table, &[Value::Integer(key), Value::BigInt(0)]);
    }
    commit(tx);
}

/// Transfers until `acknowledge`, which gets the thread's count after each, returns false.
pub fn run(engine: &Arc<Engine>, accounts: i32, thread: i32, mut acknowledge: impl FnMut(i64) -> bool) {
    let table = table(&engine.begin(), "accounts");
    let mut random = Random::from_entropy();
    loop {
        let mut tx = engine.begin();
        let from = random.uniform(0, i64::from(accounts) - 1) as i32;
        let changes = [(from, -5), ((from + 1) % accounts, 5), (accounts + thread, 1)];
        let mut count = 0;
        let done = changes.iter().try_for_each(|(key, by)| {
            let row = find(&tx, &table, &Value::Integer(*key)).unwrap();
            let guard = pin();
            let mut cells = [Cell::Null];
            assert!(tx.read(&table, row, &BALANCE, &mut cells, &guard));
            count = cells[0].as_i64() + by;
            tx.update(&table, row, &BALANCE, &[Cell::i64(count)], &guard)
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

/// What must hold after this many transfers of the threads were acknowledged.
pub fn check(engine: &Arc<Engine>, acknowledged: &[i64]) {
    let state = state(engine);
    // By their keys: rows may have moved.
    let number = |row: &Vec<Value>| match (&row[0], &row[1]) {
        (Value::Integer(key), Value::BigInt(balance)) => (*key, *balance),
        other => panic!("{other:?}"),
    };
    let balances: BTreeMap<i32, i64> = state["accounts"].1.values().map(number).collect();
    let balances: Vec<i64> = balances.into_values().collect();
    let (accounts, counts) = balances.split_at(balances.len() - THREADS as usize);
    assert_eq!(accounts.iter().sum::<i64>(), 0);
    assert!(
        counts.iter().zip(acknowledged).all(|(count, safe)| count >= safe),
        "{counts:?} {acknowledged:?}"
    );
}
