//! The memory limit: what is refused, what continues, and that all memory is subtracted again.

use crate::support::*;
use firn_base::{Cell, Error, Result, SqlState};
use firn_storage::{Held, RowLock};
use firn_txn::{Config, Transaction, pin};

const LIMIT: u64 = 4 << 20;

fn limited() -> Bank {
    Bank::open_with(Config { memory_limit: Some(LIMIT), ..Config::default() })
}

/// Inserts an account without a name, which takes memory in its block only.
fn insert(bank: &Bank, tx: &mut Transaction, key: i32) -> Result<()> {
    let row = [Cell::i32(key), Cell::i64(0), Cell::Null];
    tx.insert(&bank.accounts, &row, &pin()).map(drop)
}

/// Repeats `once` until there is no memory for it; returns how often it succeeded.
fn until_full(mut once: impl FnMut(i32) -> Result<()>) -> (i32, Error) {
    for done in 0..10_000_000 {
        if let Err(error) = once(done) {
            assert_eq!(error.state(), SqlState::OUT_OF_MEMORY, "{error}");
            assert!(
                error.hint().is_some() && error.detail().is_some_and(|detail| detail.contains("4.0 MiB"))
            );
            return (done, error);
        }
    }
    panic!("there is no end to memory");
}

/// One transaction per insert. A full database has room again once rows were deleted.
#[test]
fn inserts_end_at_the_limit_and_everything_else_continues() {
    let bank = limited();
    let (rows, _) = until_full(|key| {
        let mut tx = bank.engine.begin();
        insert(&bank, &mut tx, key)?;
        tx.commit().map(drop)
    });
    assert!(bank.engine.memory().total() <= LIMIT);
    assert!(rows > 10_000, "{rows} rows are no 4 MiB");
    let mut tx = bank.engine.begin();
    assert_eq!(bank.balance(&tx, rows - 1), Some(0));
    for key in 0..1000 {
        bank.set_balance(&mut tx, key, 1).unwrap();
    }
    commit(tx);
    let mut tx = bank.engine.begin();
    for key in 0..100 {
        bank.delete(&mut tx, key).unwrap();
    }
    commit(tx);
    let mut tx = bank.engine.begin();
    for key in 0..100 {
        insert(&bank, &mut tx, key).unwrap();
    }
    assert_eq!(bank.balance(&tx, 99), Some(0));
    commit(tx);
    assert_eq!(bank.accounts.approximate_rows(), rows as u64);
}

#[test]
fn the_memory_of_a_bulk_load_that_was_too_large_is_there_again_after_its_rollback() {
    let bank = limited();
    let mut loaded = Vec::new();
    for _ in 0..3 {
        let mut tx = bank.engine.begin();
        let (rows, _) = until_full(|at| {
            let rows: Vec<_> =
                (0..100).map(|row| [Cell::i32(100 * at + row), Cell::i64(0), Cell::Null]).collect();
            tx.insert_rows(&bank.accounts, &rows, &pin())
        });
        tx.rollback();
        while bank.engine.garbage_backlog() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(bank.engine.memory().held(Held::Unfinished), 0);
        loaded.push(rows);
    }
    assert!(loaded[0] > 100, "{loaded:?}");
    // Slots are reused one by one, which takes more undo records than consecutive slots.
    assert!(loaded[1] > 100 && loaded[2] == loaded[1], "{loaded:?}");
    let mut tx = bank.engine.begin();
    insert(&bank, &mut tx, 1).unwrap();
    commit(tx);
    let tx = bank.engine.begin();
    assert_eq!(bank.balance(&tx, 1), Some(0));
    assert_eq!(bank.accounts.approximate_rows(), 1);
}

#[test]
fn updates_behind_a_long_snapshot_end_at_the_limit_until_that_has_gone() {
    let bank = limited();
    let mut tx = bank.engine.begin();
    for key in 0..1000 {
        insert(&bank, &mut tx, key).unwrap();
    }
    commit(tx);
    let reader = bank.engine.begin_read_only();
    let update = |round: i32| {
        let mut tx = bank.engine.begin();
        for key in 0..900 {
            bank.set_balance(&mut tx, key, i64::from(round))?;
        }
        tx.commit().map(drop)
    };
    // So few transactions that no chain is trimmed.
    let (rounds, _) = until_full(update);
    assert!(rounds > 20, "{rounds}");
    let (records, bytes) = bank.engine.memory().undo();
    assert!(records >= 900 * rounds as u64 && bytes > LIMIT / 2, "{records} records of {bytes} bytes");
    assert_eq!(bank.balance(&reader, 5), Some(0));
    let mut tx = bank.engine.begin();
    bank.delete(&mut tx, 999).unwrap();
    commit(tx);
    assert_eq!(update(3).unwrap_err().state(), SqlState::OUT_OF_MEMORY);
    reader.rollback();
    update(3).unwrap();
    assert!(bank.engine.memory().undo().1 < LIMIT / 8);
}

/// Locks take memory as changes do, both exclusive and shared ones.
#[test]
fn locks_end_at_the_limit_and_are_counted_off_again() {
    const ROWS: i32 = 10_000;
    let bank = limited();
    let mut tx = bank.engine.begin();
    for key in 0..ROWS {
        insert(&bank, &mut tx, key).unwrap();
    }
    commit(tx);
    let settled = || {
        while bank.engine.garbage_backlog() > 0 {
            std::thread::yield_now();
        }
        bank.engine.memory().held(Held::Unfinished)
    };
    for lock in [RowLock::Update, RowLock::KeyShare] {
        let mut tx = bank.engine.begin();
        let savepoint = tx.savepoint();
        for key in 0..ROWS {
            bank.lock(&mut tx, key, lock).unwrap();
        }
        assert!(bank.engine.memory().held(Held::Unfinished) > 200_000, "{lock:?}");
        tx.rollback_to(savepoint);
        assert_eq!(
            bank.engine.memory().held(Held::Unfinished),
            0,
            "the memory is freed before the transaction ends"
        );
        tx.rollback();
        assert_eq!(settled(), 0, "{lock:?}");
    }
    let mut sharing: Vec<Transaction> = Vec::new();
    let (locks, _) = until_full(|done| {
        if done % ROWS == 0 {
            sharing.push(bank.engine.begin());
        }
        bank.lock(sharing.last_mut().expect("just begun"), done % ROWS, RowLock::Share)
    });
    assert!(locks > ROWS && bank.engine.memory().total() <= LIMIT + (1 << 20), "{locks}");
    // Rows can be deleted nevertheless, and there is no conflict when all has ended.
    for tx in sharing.drain(..) {
        tx.rollback();
    }
    assert_eq!(settled(), 0);
    let mut tx = bank.engine.begin();
    bank.lock(&mut tx, 1, RowLock::Update).unwrap();
    bank.delete(&mut tx, 1).unwrap();
    commit(tx);
}

#[test]
fn an_index_that_would_not_fit_is_not_built() {
    let bank = limited();
    let (rows, _) = until_full(|key| {
        let mut tx = bank.engine.begin();
        insert(&bank, &mut tx, key)?;
        tx.commit().map(drop)
    });
    let before = bank.engine.memory().held(Held::Indexes);
    let mut tx = bank.engine.begin();
    let spec = firn_storage::IndexSpec {
        id: firn_storage::IndexId(9),
        name: "by_balance".into(),
        unique: false,
        ..bank.by_key.spec().clone()
    };
    let error = tx.create_index(&bank.accounts, spec, 2).unwrap_err();
    assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
    tx.rollback();
    assert_eq!(bank.engine.memory().held(Held::Indexes), before);
    assert_eq!(bank.accounts.approximate_rows(), rows as u64);
}

/// Without a limit, with strings and moved keys, through rollbacks: the counts return to 0.
#[test]
fn what_is_counted_is_counted_off_again() {
    let bank = Bank::open();
    let memory = bank.engine.memory();
    let mut tx = bank.engine.begin();
    for key in 0..20_000 {
        bank.insert(&mut tx, key, 0).unwrap();
    }
    commit(tx);
    let held = |what| memory.held(what);
    let names: u64 = (0..20_000).map(|key| Bank::name(key).len() as u64).sum();
    assert!(held(Held::Strings) >= names && held(Held::Strings) < 3 * names + (1 << 20));
    assert_eq!(
        held(Held::Rows) + held(Held::Strings) + held(Held::Heads),
        bank.accounts.memory_bytes(),
        "the bytes that the table computes"
    );
    let index_bytes = bank.by_key.memory_bytes();
    let counted = bank.by_key.held_bytes();
    assert!(counted.abs_diff(index_bytes) < 8192, "{counted} bytes are counted, {index_bytes} found");
    for round in 0..3 {
        let mut tx = bank.engine.begin();
        for key in 0..20_000 {
            match key % 3 {
                0 => bank.set_key(&mut tx, key, 20_000 + key).unwrap(),
                1 => bank.delete(&mut tx, key).unwrap(),
                _ => bank.set_balance(&mut tx, key, round).unwrap(),
            }
        }
        assert!(held(Held::Unfinished) > 100_000);
        tx.rollback();
    }
    assert_eq!(held(Held::Unfinished), 0);
    while bank.engine.garbage_backlog() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(memory.undo(), (0, 0));
    let (index_bytes, counted) = (bank.by_key.memory_bytes(), bank.by_key.held_bytes());
    assert!(counted.abs_diff(index_bytes) < 8192, "{counted} bytes are counted, {index_bytes} found");
    let mut tx = bank.engine.begin();
    tx.drop_storage(bank.accounts.id()).unwrap();
    commit(tx);
    let Bank { engine, accounts, by_key, typed } = bank;
    drop(typed);
    drop((accounts, by_key));
    let begun = firn_base::clock::now();
    while engine.memory().total() > 0 {
        assert!(begun.elapsed().as_secs() < 60, "{:?}", engine.memory());
        // What was unlinked is freed by the next thread that pins.
        drop(pin());
        std::thread::yield_now();
    }
}
