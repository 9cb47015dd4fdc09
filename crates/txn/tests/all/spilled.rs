//! Transactions that write more than memory should hold: their redo is written to files of its own before
//! they commit.

use crate::durable::{State, commit, config, create_table, delete, files, insert, open, state, update};
use firn_base::disk::{Disk, Fault, PAGE_BYTES, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{SqlState, SqlType, Value};
use firn_storage::Table;
use firn_txn::{Engine, Transaction};
use std::path::PathBuf;

fn spills(disk: &SimulatedDisk) -> Vec<PathBuf> {
    files(disk, "log").into_iter().filter(|path| path.extension().is_some_and(|end| end == "spill")).collect()
}

fn row(key: i32) -> [Value; 2] {
    [Value::Integer(key), Value::Text(format!("a text that makes the row of {key} long"))]
}

/// A database with a table of ten rows.
fn database() -> (Arc<SimulatedDisk>, Arc<Engine>) {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    let mut tx = engine.begin();
    let table = create_table(&mut tx, "t", &[(SqlType::Integer, false), (SqlType::Text, true)]);
    for key in 0..10 {
        insert(&mut tx, &table, &row(key));
    }
    commit(tx);
    engine.checkpoint().unwrap();
    assert_eq!(spills(&disk), Vec::<PathBuf>::new(), "there are no spill files after the checkpoint");
    (disk, engine)
}

fn table(tx: &Transaction) -> Arc<Table> {
    crate::durable::table(tx, "t")
}

/// Changes of all kinds, of the same rows more than once, too many for memory.
fn change_much(tx: &mut Transaction) {
    let table = table(tx);
    for key in 10..60 {
        insert(tx, &table, &row(key));
    }
    for key in 5..15 {
        update(tx, &table, &Value::Integer(key), 1, &Value::Text("changed".into()));
    }
    for key in 8..12 {
        delete(tx, &table, &Value::Integer(key));
        insert(tx, &table, &row(key));
    }
}

fn try_insert(tx: &mut Transaction, table: &Arc<Table>, key: i32) -> firn_base::Result<()> {
    let row = row(key);
    let cells: Vec<_> =
        row.iter().zip(table.columns()).map(|(value, column)| value.as_cell(column.representation)).collect();
    tx.insert(table, &cells, &firn_txn::pin()).map(drop)
}

fn reopened(disk: &SimulatedDisk) -> State {
    state(&open(&disk.after_kill()).unwrap())
}

#[test]
fn a_long_transaction_leaves_a_short_entry_in_the_log_and_is_recovered() {
    let (disk, engine) = database();
    let mut tx = engine.begin();
    change_much(&mut tx);
    assert_eq!(spills(&disk).len(), 1);
    let nobody_else_has_logged = engine.begin();
    commit(tx);
    drop(nobody_else_has_logged);
    let expected = state(&engine);
    assert_eq!(expected["t"].1.len(), 60);
    assert_eq!(reopened(&disk), expected);

    // Later changes are applied after it.
    let mut tx = engine.begin();
    let table = table(&tx);
    update(&mut tx, &table, &Value::Integer(30), 1, &Value::Null);
    commit(tx);
    let expected = state(&engine);
    assert_eq!(reopened(&disk), expected);

    // The log that recovery has read refers to the file, so it remains until the next checkpoint.
    let after = disk.after_kill();
    let again = open(&after).unwrap();
    assert_eq!(spills(&after).len(), 1);
    again.checkpoint().unwrap();
    assert_eq!(spills(&after), Vec::<PathBuf>::new());
    assert_eq!(state(&again), expected);
    assert_eq!(reopened(&after), expected);
}

#[test]
fn what_is_rolled_back_leaves_no_file_and_does_not_come_back() {
    let (disk, engine) = database();
    let before = state(&engine);
    let mut tx = engine.begin();
    change_much(&mut tx);
    tx.rollback();
    assert_eq!(spills(&disk), Vec::<PathBuf>::new());
    assert_eq!(state(&engine), before);

    // To savepoints in memory, in a chunk that has been written, at its begin, and before all of them.
    for kept in 0..60 {
        let mut tx = engine.begin();
        let table = table(&tx);
        for key in 0..kept {
            insert(&mut tx, &table, &row(1000 + key));
        }
        let savepoint = tx.savepoint();
        for round in 0..2 {
            change_much(&mut tx);
            tx.rollback_to(savepoint);
            insert(&mut tx, &table, &row(2000 + round));
        }
        commit(tx);
        let expected = state(&engine);
        assert_eq!(expected["t"].1.len(), 11 + kept as usize);
        assert_eq!(reopened(&disk), expected);

        let mut tx = engine.begin();
        (0..kept)
            .map(|key| 1000 + key)
            .chain([2001])
            .for_each(|key| delete(&mut tx, &table, &Value::Integer(key)));
        commit(tx);
        assert_eq!(state(&engine), before);
        engine.checkpoint().unwrap();
    }
}

#[test]
fn a_crash_before_the_commit_leaves_nothing_and_one_after_it_loses_nothing() {
    let mut random = Random::seeded(7);
    let (disk, engine) = database();
    let before = state(&engine);
    let mut tx = engine.begin();
    change_much(&mut tx);
    let killed = disk.after_kill();
    assert_eq!(spills(&killed).len(), 1);
    assert_eq!(state(&open(&killed).unwrap()), before);
    assert_eq!(spills(&killed), Vec::<PathBuf>::new());
    for _ in 0..20 {
        assert_eq!(state(&open(&disk.after_power_cut(&mut random)).unwrap()), before);
    }
    commit(tx);
    let after = state(&engine);
    for _ in 0..20 {
        assert_eq!(state(&open(&disk.after_power_cut(&mut random)).unwrap()), after);
    }
}

#[test]
fn a_disk_that_fails_anywhere_in_it_leaves_all_or_nothing() {
    for fault in [Fault::Full, Fault::Broken] {
        for operations in 0.. {
            let (disk, engine) = database();
            let before = state(&engine);
            disk.fail_after_operations(operations, fault);
            let mut tx = engine.begin();
            let table = table(&tx);
            let changed = (10..60).try_for_each(|key| try_insert(&mut tx, &table, key));
            let outcome = match changed {
                Ok(()) => crate::durable::try_commit(tx),
                Err(error) => {
                    tx.rollback();
                    Err(error)
                }
            };
            disk.heal();
            let found = reopened(&disk);
            match outcome {
                Ok(()) => {
                    assert_eq!(found["t"].1.len(), 60);
                    assert!(operations > 5, "more than one chunk was written");
                    break;
                }
                Err(error) => {
                    let is_nothing = error.state() == SqlState::DISK_FULL;
                    assert!(is_nothing || error.state() == SqlState::IO_ERROR, "{error:?}");
                    assert!(matches!(fault, Fault::Full) || !is_nothing, "{error:?}");
                    assert!(
                        found == before || !is_nothing && found["t"].1.len() == 60,
                        "half of it is there"
                    );
                }
            }
        }
    }
}

#[test]
fn a_disk_that_was_full_for_a_while_harms_nothing() {
    let (disk, engine) = database();
    let mut tx = engine.begin();
    let table = table(&tx);
    insert(&mut tx, &table, &row(10));
    let savepoint = tx.savepoint();
    disk.fail_after_bytes(0, Fault::Full);
    let error =
        (11..60).find_map(|key| try_insert(&mut tx, &table, key).err()).expect("the redo has nowhere to go");
    assert_eq!(error.state(), SqlState::DISK_FULL);
    disk.heal();
    tx.rollback_to(savepoint);
    for key in 20..40 {
        insert(&mut tx, &table, &row(key));
    }
    commit(tx);
    let expected = state(&engine);
    assert_eq!(expected["t"].1.len(), 31);
    assert_eq!(reopened(&disk), expected);
}

#[test]
fn a_missing_or_damaged_file_that_the_log_names_stops_the_engine() {
    let (disk, engine) = database();
    let mut tx = engine.begin();
    change_much(&mut tx);
    commit(tx);
    drop(engine);
    let path = spills(&disk).remove(0);
    let content = (&*disk as &dyn Disk).read(&path).unwrap();
    let fails = |disk: &SimulatedDisk, what: &str| {
        let error = Engine::open_on(disk.after_kill(), config()).err().expect(what);
        assert_eq!(error.state(), SqlState::DATA_CORRUPTED, "{what}");
        assert!(error.message().contains(path.file_name().unwrap().to_str().unwrap()), "{error}");
        assert!(error.hint().is_some());
    };
    // The header and each chunk are followed by zeros up to a page, which are not read.
    let is_filler =
        |at: usize| content[at..at / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES].iter().all(|byte| *byte == 0);
    for at in (0..content.len()).step_by(37).filter(|at| !is_filler(*at)) {
        let damaged = disk.after_kill();
        damaged.open(&path).unwrap().write_at(&[content[at] ^ 0x40], at as u64).unwrap();
        fails(&damaged, "a flipped bit");
        let short = disk.after_kill();
        short.open(&path).unwrap().set_len(at as u64).unwrap();
        fails(&short, "a file cut off");
    }
    let without = disk.after_kill();
    without.remove(&path).unwrap();
    fails(&without, "no file");
    // Nothing was changed: with the file restored, it opens.
    without.create(&path).unwrap().write_at(&content, 0).unwrap();
    open(&without).unwrap();
    assert!(disk.exists(&crate::durable::directory().join("MANIFEST")).unwrap());
}
