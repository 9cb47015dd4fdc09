//! Models: the engine itself, in memory, under shuttle, which chooses at every step of an atomic or a lock
//! which task continues (docs/decisions/0013-models-run-the-engine.md).
//!
//! Each model states what must hold. It runs for `FIRN_MODEL_SECONDS` (a few if that is not set), each time
//! with another schedule. A run that fails prints its seed; `FIRN_MODEL_SEED` repeats it.

mod compacting;
mod following;
mod freezing;
mod histories;
mod keys;
mod merging;
mod rows;
mod schedule;
mod transfers;
mod validation;
mod waiting;

#[path = "../all/history.rs"]
mod history;
#[path = "../all/support.rs"]
mod support;

use firn_base::sync::Arc;
use firn_base::thread::{self, JoinHandle};
use firn_base::{Result, SqlState, Time};
use firn_txn::{Isolation, Transaction, Waited};
use std::panic::resume_unwind;
use std::time::Duration;
use support::Bank;

/// Starts a task.
fn task<T: Send + 'static>(
    bank: &Arc<Bank>,
    body: impl FnOnce(&Bank) -> T + Send + 'static,
) -> JoinHandle<T> {
    let bank = bank.clone();
    thread::spawn("task", move || body(&bank))
}

/// Waits for the end of tasks.
fn join<T>(tasks: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    tasks.into_iter().map(|task| task.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
}

/// A bank with these accounts.
fn bank_with(accounts: impl IntoIterator<Item = (i32, i64)>) -> Arc<Bank> {
    filled(Bank::open(), accounts)
}

/// As [`bank_with`], with blocks that are frozen as soon as possible.
fn freezing_bank_with(accounts: impl IntoIterator<Item = (i32, i64)>) -> Arc<Bank> {
    filled(Bank::freezing(), accounts)
}

fn filled(bank: Bank, accounts: impl IntoIterator<Item = (i32, i64)>) -> Arc<Bank> {
    let mut tx = bank.engine.begin();
    for (key, balance) in accounts {
        bank.insert(&mut tx, key, balance).unwrap();
    }
    support::commit(tx);
    Arc::new(bank)
}

/// Runs a statement as a session does: it waits for a blocking transaction, and is run again.
fn statement<T>(tx: &mut Transaction, mut body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
    let start = tx.begin_statement();
    loop {
        let error = match body(tx) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        tx.undo_statement(&start);
        match error.blocker() {
            Some(blocker) => loop {
                match tx.wait_for(blocker, Duration::from_millis(10)) {
                    Waited::Ended | Waited::Released => break,
                    Waited::NotYet => {}
                    Waited::Deadlock => return Err(error),
                }
            },
            None if error.is_retryable() && tx.can_advance_snapshot() => {}
            None => return Err(error),
        }
        tx.restart(&start)?;
    }
}

/// Runs a transaction until it has committed; returns when. It may fail with conflicts and nothing else.
fn committed(
    bank: &Bank,
    isolation: Isolation,
    mut body: impl FnMut(&mut Transaction) -> Result<()>,
) -> Time {
    loop {
        let mut tx = bank.engine.try_begin(isolation).unwrap();
        match body(&mut tx).and_then(|()| tx.commit()) {
            Ok(ticket) => return ticket.time,
            Err(error) => assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{error:?}"),
        }
    }
}
