//! Tables that are filled by the transaction that creates them: their full blocks are written to files, which
//! the log refers to and checkpoints keep.

use crate::durable::{
    State, commit, config, create_table, delete, drop_table, find, insert, open, state, table, try_commit,
    update,
};
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::{Result, SqlState, SqlType, Value, clock, thread};
use firn_storage::{BlockState, Table};
use firn_txn::{Config, Engine, Transaction, pin};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

const ITEM: [(SqlType, bool); 3] =
    [(SqlType::Integer, false), (SqlType::BigInt, true), (SqlType::Text, true)];

/// Rows of somewhat more than three blocks.
const MANY: i32 = 3 * 1024 + 100;

fn item(key: i32, number: i64) -> Vec<Value> {
    let text = match key % 3 {
        0 => Value::Null,
        1 => Value::Text("short".into()),
        _ => Value::Text(format!("a text too long to lie in its view {}", key % 100)),
    };
    vec![Value::Integer(key), Value::BigInt(number), text]
}

fn insert_many(tx: &mut Transaction, table: &Arc<Table>, keys: Range<i32>) {
    try_insert_many(tx, table, keys).unwrap();
}

fn try_insert_many(tx: &mut Transaction, table: &Arc<Table>, keys: Range<i32>) -> Result<()> {
    let rows: Vec<Vec<Value>> = keys.map(|key| item(key, 0)).collect();
    let column = |(column, (ty, _)): (usize, &(SqlType, bool))| {
        let values: Vec<Value> = rows.iter().map(|row| row[column].clone()).collect();
        firn_storage::arrow::values_to_array(&values, *ty)
    };
    let columns: Vec<_> = ITEM.iter().enumerate().map(column).collect();
    tx.insert_batch(table, &columns, &pin())
}

/// The present files of loads.
fn load_files(disk: &SimulatedDisk) -> Vec<PathBuf> {
    let files = crate::durable::files(disk, "checkpoint").into_iter();
    files.filter(|path| path.to_string_lossy().contains("-load-")).collect()
}

/// A database with a table of one row, which is in a checkpoint.
fn database() -> (Arc<SimulatedDisk>, Arc<Engine>) {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    let mut tx = engine.begin();
    let other = create_table(&mut tx, "other", &ITEM);
    insert(&mut tx, &other, &item(1, 1));
    commit(tx);
    engine.checkpoint().unwrap();
    (disk, engine)
}

/// Lets a transaction create a table and fill it.
fn load(tx: &mut Transaction) -> Arc<Table> {
    try_load(tx).unwrap()
}

fn try_load(tx: &mut Transaction) -> Result<Arc<Table>> {
    let items = create_table(tx, "items", &ITEM);
    try_insert_many(tx, &items, 0..MANY)?;
    Ok(items)
}

fn reopened(disk: &SimulatedDisk) -> State {
    state(&open(&disk.after_kill()).unwrap())
}

#[test]
fn full_blocks_go_into_files_and_the_next_checkpoint_keeps_them() {
    let (disk, engine) = database();
    let mut tx = engine.begin();
    let items = load(&mut tx);
    assert_eq!(
        state(&open(&disk.after_kill()).unwrap()).len(),
        1,
        "the table does not exist before the commit"
    );
    commit(tx);
    let written = load_files(&disk);
    assert!(!written.is_empty());
    let frozen = items.block_usage().filter(|block| block.state == BlockState::Frozen).count();
    assert_eq!(frozen, 3, "and they are frozen");
    let expected = state(&engine);
    assert_eq!(expected["items"].1.len(), MANY as usize);
    assert_eq!(reopened(&disk), expected);

    // By recovery, and by checkpoints before and after it.
    let killed = disk.after_kill();
    let again = open(&killed).unwrap();
    assert_eq!(load_files(&killed), written);
    again.checkpoint().unwrap();
    assert_eq!(load_files(&killed), written);
    assert_eq!(reopened(&killed), expected);
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(load_files(&disk), written);
    assert_eq!(reopened(&disk), expected);

    // Later changes are recovered with it.
    let mut tx = engine.begin();
    for key in [0, 1500, MANY - 1] {
        update(&mut tx, &items, &Value::Integer(key), 1, &Value::BigInt(7));
        delete(&mut tx, &items, &Value::Integer(key + 1 - 2 * (key / (MANY - 1))));
    }
    insert_many(&mut tx, &items, MANY..2 * MANY);
    commit(tx);
    let expected = state(&engine);
    assert_eq!(reopened(&disk), expected);
    engine.checkpoint().unwrap();
    assert_eq!(reopened(&disk), expected);
    // The first file has two blocks, which have both been written to, the second one has an unchanged one.
    assert_eq!(load_files(&disk), written[1..]);
    let mut tx = engine.begin();
    drop_table(&mut tx, "items");
    commit(tx);
    engine.checkpoint().unwrap();
    assert_eq!(load_files(&disk), Vec::<PathBuf>::new());
}

#[test]
fn changes_after_a_load_are_recovered_with_it_before_any_checkpoint() {
    let (disk, engine) = database();
    let mut tx = engine.begin();
    let items = load(&mut tx);
    commit(tx);
    let mut tx = engine.begin();
    update(&mut tx, &items, &Value::Integer(2000), 2, &Value::Text("changed, and now rather long".into()));
    delete(&mut tx, &items, &Value::Integer(10));
    insert(&mut tx, &items, &item(-5, 5));
    commit(tx);
    let expected = state(&engine);
    assert_eq!(reopened(&disk), expected);
    // Also if the table is dropped by the end of the log, or created again.
    let mut tx = engine.begin();
    drop_table(&mut tx, "items");
    commit(tx);
    let mut tx = engine.begin();
    load(&mut tx);
    commit(tx);
    let expected = state(&engine);
    let killed = disk.after_kill();
    let again = open(&killed).unwrap();
    assert_eq!(state(&again), expected);
    let both = load_files(&killed).len();
    again.checkpoint().unwrap();
    assert!(load_files(&killed).len() < both, "the files of the first are not needed any more");
    assert_eq!(reopened(&killed), expected);
}

#[test]
fn what_is_rolled_back_or_fails_to_commit_leaves_no_file() {
    let (disk, engine) = database();
    let mut tx = engine.begin();
    load(&mut tx);
    tx.rollback();
    assert_eq!(load_files(&disk), Vec::<PathBuf>::new());

    // It has read what another one changes meanwhile, so its files are written and then it cannot commit.
    let mut tx = engine.begin();
    let other = table(&tx, "other");
    let row = find(&tx, &other, &Value::Integer(1)).unwrap();
    assert!(tx.read(&other, row, &[firn_base::ColumnId(1)], &mut [firn_base::Cell::Null], &pin()));
    load(&mut tx);
    let mut second = engine.begin();
    update(&mut second, &other, &Value::Integer(1), 1, &Value::BigInt(2));
    commit(second);
    let error = try_commit(tx).unwrap_err();
    assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
    assert_eq!(load_files(&disk), Vec::<PathBuf>::new());
    let expected = state(&engine);
    assert!(!expected.contains_key("items"));
    assert_eq!(reopened(&disk), expected);

    // A second attempt finds nothing of the first.
    let mut tx = engine.begin();
    load(&mut tx);
    commit(tx);
    assert_eq!(reopened(&disk), state(&engine));
}

#[test]
fn a_checkpoint_during_a_load_leaves_its_files_alone() {
    let (disk, engine) = database();
    let reader = engine.begin();
    let mut tx = engine.begin();
    load(&mut tx);
    engine.checkpoint().unwrap();
    commit(tx);
    // The reader retains old versions, and does not see the table.
    assert!(reader.catalog().tables.values().all(|table| table.name != "items"));
    engine.checkpoint().unwrap();
    let recovered = reopened(&disk);
    drop(reader);
    let expected = state(&engine);
    assert_eq!(recovered, expected);
    engine.checkpoint().unwrap();
    assert_eq!(reopened(&disk), expected);
}

/// A transaction that creates a table makes random changes to it, with savepoints; a map has the same
/// changes.
#[test]
fn whatever_a_transaction_does_to_its_own_table_is_there_in_the_end_and_nothing_else() {
    let seed = Random::from_entropy().next_u64();
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    for round in 0..30 {
        let (disk, engine) = database();
        let long_reader = (round % 3 == 0).then(|| engine.begin());
        let mut tx = engine.begin();
        let items = create_table(&mut tx, "items", &ITEM);
        let mut model: BTreeMap<i32, Vec<Value>> = BTreeMap::new();
        let mut next = 0;
        let mut saved = Vec::new();
        for _ in 0..random.uniform(1, 40) {
            let any_key = |random: &mut Random| random.uniform(0, i64::from(next.max(1))) as i32;
            match random.uniform(0, 9) {
                0..=2 => {
                    let rows = random.uniform(1, 2000) as i32;
                    insert_many(&mut tx, &items, next..next + rows);
                    model.extend((next..next + rows).map(|key| (key, item(key, 0))));
                    next += rows;
                }
                3 => {
                    insert(&mut tx, &items, &item(next, 1));
                    model.insert(next, item(next, 1));
                    next += 1;
                }
                4..=5 => {
                    let key = any_key(&mut random);
                    if let Some(row) = model.get_mut(&key) {
                        row[1] = Value::BigInt(i64::from(key));
                        update(&mut tx, &items, &Value::Integer(key), 1, &Value::BigInt(i64::from(key)));
                    }
                }
                6 => {
                    let key = any_key(&mut random);
                    if model.remove(&key).is_some() {
                        delete(&mut tx, &items, &Value::Integer(key));
                    }
                }
                7..=8 => saved.push((tx.savepoint(), model.clone())),
                _ => {
                    if let Some((savepoint, then)) = saved.pop() {
                        tx.rollback_to(savepoint);
                        model = then;
                    }
                }
            }
        }
        if random.uniform(0, 4) == 0 {
            tx.rollback();
            drop(long_reader);
            assert!(!state(&engine).contains_key("items"));
            assert!(!reopened(&disk).contains_key("items"));
            continue;
        }
        commit(tx);
        let rows = |state: State| -> Vec<Vec<Value>> { state["items"].1.values().cloned().collect() };
        let sorted = |mut rows: Vec<Vec<Value>>| {
            rows.sort_by_key(|row| match row[0] {
                Value::Integer(key) => key,
                _ => unreachable!("the first column is an integer"),
            });
            rows
        };
        let expected: Vec<Vec<Value>> = model.into_values().collect();
        assert_eq!(sorted(rows(reopened(&disk))), expected, "round {round}");
        drop(long_reader);
        assert_eq!(sorted(rows(state(&engine))), expected, "round {round}");
        engine.checkpoint().unwrap();
        assert_eq!(sorted(rows(reopened(&disk))), expected, "round {round}");
    }
}

#[test]
fn a_load_that_is_cut_off_at_any_operation_is_recovered_as_a_whole_or_not_at_all() {
    let mut random = Random::seeded(5);
    let (mut lost, mut kept) = (0, 0);
    for at in 0.. {
        let (disk, engine) = database();
        let without = state(&engine);
        disk.fail_after_operations(at, if at % 2 == 0 { Fault::Full } else { Fault::Broken });
        let mut tx = engine.begin();
        // The writer of the files may find the disk broken while rows are still being inserted.
        let loaded = try_load(&mut tx);
        let acknowledged = loaded.and_then(|_| try_commit(tx)).is_ok();
        let checkpoint = engine.checkpoint().is_ok();
        let with = acknowledged.then(|| state(&engine));
        for cut in [disk.after_kill(), disk.after_power_cut(&mut random)] {
            let again = open(&cut).unwrap_or_else(|error| panic!("{at}: {error:?}"));
            let found = state(&again);
            if found == without {
                assert!(!acknowledged, "{at}: an acknowledged load is lost");
                assert_eq!(load_files(&cut), Vec::<PathBuf>::new(), "{at}");
                lost += 1;
                let mut tx = again.begin();
                load(&mut tx);
                commit(tx);
                assert_eq!(reopened(&cut)["items"].1.len(), MANY as usize, "{at}");
            } else {
                assert_eq!(found["items"].1.len(), MANY as usize, "{at}");
                assert!(with.as_ref().is_none_or(|with| *with == found), "{at}");
                kept += 1;
            }
        }
        if checkpoint {
            break;
        }
    }
    assert!(lost > 4 && kept > 4, "{lost} {kept}");
}

#[test]
fn a_file_that_the_log_names_and_that_is_missing_or_damaged_stops_the_engine() {
    let (disk, engine) = database();
    let mut tx = engine.begin();
    load(&mut tx);
    commit(tx);
    let path = load_files(&disk).remove(0);
    let missing = disk.after_kill();
    missing.remove(&path).unwrap();
    let damaged = disk.after_kill();
    let file = damaged.open(&path).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 5000).unwrap();
    file.write_at(&[byte[0] ^ 1], 5000).unwrap();
    let short = disk.after_kill();
    let file = short.open(&path).unwrap();
    file.set_len(file.len().unwrap() - 1).unwrap();
    for broken in [missing, damaged, short] {
        let error = open(&broken).map(drop).unwrap_err();
        assert_eq!(error.state(), SqlState::DATA_CORRUPTED, "{error:?}");
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(error.message().contains(&name), "{error:?}");
        assert!(error.hint().is_some(), "{error:?}");
    }
}

#[test]
fn a_load_takes_the_room_of_its_rows_once() {
    let load_and_checkpoint = |disk: &Arc<SimulatedDisk>, engine: &Arc<Engine>| {
        let mut tx = engine.begin();
        // The writer's thread may find the disk full before the last row is inserted.
        try_load(&mut tx)?;
        try_commit(tx)?;
        engine.checkpoint().map(|()| disk.clone())
    };
    let (disk, engine) = database();
    let disk = load_and_checkpoint(&disk, &engine).unwrap();
    let files: u64 = load_files(&disk).iter().map(|path| disk.open(path).unwrap().len().unwrap()).sum();
    let (disk, engine) = database();
    disk.leave_room(files + files / 2);
    load_and_checkpoint(&disk, &engine).unwrap();
    let (disk, engine) = database();
    disk.leave_room(files / 2);
    let error = load_and_checkpoint(&disk, &engine).unwrap_err();
    assert_eq!(error.state(), SqlState::DISK_FULL, "{error:?}");
    assert_eq!(load_files(&disk), Vec::<PathBuf>::new());
    disk.heal();
    // Nothing else is lost with it.
    let disk = load_and_checkpoint(&disk, &engine).unwrap();
    assert_eq!(reopened(&disk), state(&engine));
}

#[test]
fn loads_make_a_checkpoint_due_so_that_the_files_of_dropped_tables_go() {
    let disk = SimulatedDisk::new();
    let due = Config { checkpoint_after_bytes: 300 << 10, ..config() };
    let engine = Engine::open_on(disk.clone(), due).unwrap();
    for _ in 0..30 {
        let mut tx = engine.begin();
        load(&mut tx);
        commit(tx);
        let mut tx = engine.begin();
        drop_table(&mut tx, "items");
        commit(tx);
    }
    let deadline = clock::now() + Duration::from_secs(20);
    while load_files(&disk).len() > 10 {
        assert!(clock::now() < deadline, "{:?}", load_files(&disk));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_load_without_room_on_the_disk_is_undone_and_the_transaction_continues() {
    let (disk, engine) = database();
    let mut tx = engine.begin();
    let other = table(&tx, "other");
    insert(&mut tx, &other, &item(2, 2));
    let savepoint = tx.savepoint();
    disk.leave_room(10 << 10);
    let items = create_table(&mut tx, "items", &ITEM);
    let failed = (0..300).find_map(|part| {
        // The writer's thread runs when it gets a core.
        std::thread::sleep(Duration::from_millis(10));
        try_insert_many(&mut tx, &items, part * MANY..(part + 1) * MANY).err()
    });
    assert_eq!(failed.expect("the disk is full").state(), SqlState::DISK_FULL);
    tx.rollback_to(savepoint);
    assert_eq!(load_files(&disk), Vec::<PathBuf>::new());
    disk.heal();
    load(&mut tx);
    commit(tx);
    let expected = state(&engine);
    assert_eq!((expected["other"].1.len(), expected["items"].1.len()), (2, MANY as usize));
    assert_eq!(reopened(&disk), expected);
}

#[test]
fn long_strings_are_logged_by_few_rows_at_a_time() {
    let (disk, engine) = database();
    let mut tx = engine.begin();
    let items = create_table(&mut tx, "items", &ITEM);
    for key in 0..100 {
        let text = Value::Text(format!("{key:>3}").repeat(1000));
        insert(&mut tx, &items, &[Value::Integer(key), Value::Null, text]);
    }
    commit(tx);
    let expected = state(&engine);
    assert_eq!(expected["items"].1.len(), 100);
    assert_eq!(reopened(&disk), expected);
}

#[test]
fn a_database_without_a_log_has_no_files_of_loads() {
    let engine = Engine::open(Config { directory: None, ..config() }).unwrap();
    let mut tx = engine.begin();
    let items = load(&mut tx);
    let savepoint = tx.savepoint();
    insert_many(&mut tx, &items, MANY..2 * MANY);
    tx.rollback_to(savepoint);
    let _ = tx.commit().unwrap();
    assert_eq!(state(&engine)["items"].1.len(), MANY as usize);
    let mut tx = engine.begin();
    update(&mut tx, &items, &Value::Integer(5), 1, &Value::BigInt(5));
    let _ = tx.commit().unwrap();
    assert_eq!(state(&engine)["items"].1.len(), MANY as usize);
}

/// Checkpoints remove files to which nothing refers, at any time during a load.
#[test]
fn checkpoints_beside_loads_never_remove_what_these_have_written() {
    let (disk, engine) = database();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let checkpoints = thread::spawn_scoped(scope, "checkpoints", || {
            while !done.load(Ordering::Relaxed) {
                engine.checkpoint().unwrap();
            }
        });
        for round in 0..20 {
            let mut tx = engine.begin();
            load(&mut tx);
            // Not every one commits.
            if round % 4 == 3 {
                tx.rollback();
                continue;
            }
            commit(tx);
            let expected = state(&engine);
            assert_eq!(reopened(&disk), expected, "round {round}");
            let mut tx = engine.begin();
            drop_table(&mut tx, "items");
            commit(tx);
        }
        done.store(true, Ordering::Relaxed);
        checkpoints.join().unwrap();
    });
    assert!(engine.statistics().checkpoints.get() > 10);
}

/// Keys of unordered rows wait, of one table at a time. Until they enter the index, the rows cannot be found
/// by it, and a rollback leaves no entry.
#[test]
fn keys_of_unordered_rows_wait_until_they_are_to_enter() {
    let (_disk, engine) = database();
    let columns = |keys: &[i32]| -> Vec<_> {
        let rows: Vec<Vec<Value>> = keys.iter().map(|key| item(*key, 0)).collect();
        let column = |(column, (ty, _)): (usize, &(SqlType, bool))| {
            let values: Vec<Value> = rows.iter().map(|row| row[column].clone()).collect();
            firn_storage::arrow::values_to_array(&values, *ty)
        };
        ITEM.iter().enumerate().map(column).collect()
    };
    let mut tx = engine.begin();
    let names = ["ordered", "first", "second"];
    for name in names {
        create_table(&mut tx, name, &ITEM);
    }
    commit(tx);
    let mut tx = engine.begin();
    let [ordered, first, second] = names.map(|name| table(&tx, name));
    let is_there = |tx: &Transaction, table, key: i32| find(tx, table, &Value::Integer(key)).is_some();
    let savepoint = tx.savepoint();
    tx.insert_batch_waiting(&ordered, &columns(&[1, 2, 3]), 2).unwrap();
    assert!(is_there(&tx, &ordered, 2), "keys in order are as fast one by one");
    tx.enter_keys(&ordered, 2).unwrap();
    tx.insert_batch_waiting(&first, &columns(&[3, 1, 2]), 2).unwrap();
    assert!(!is_there(&tx, &first, 2));
    // Those of another table do not wait meanwhile.
    tx.insert_batch_waiting(&second, &columns(&[3, 1, 2]), 2).unwrap();
    assert!(is_there(&tx, &second, 2) && !is_there(&tx, &first, 2));
    tx.enter_keys(&second, 2).unwrap();
    assert!(!is_there(&tx, &first, 2));
    tx.enter_keys(&first, 2).unwrap();
    assert!([1, 2, 3].iter().all(|key| is_there(&tx, &first, *key)));
    // Afterwards they do.
    tx.insert_batch_waiting(&second, &columns(&[7, 5, 6]), 2).unwrap();
    assert!(!is_there(&tx, &second, 5));
    tx.rollback_to(savepoint);
    tx.insert_batch_waiting(&second, &columns(&[5, 1]), 2).unwrap();
    tx.enter_keys(&second, 2).unwrap();
    let found: Vec<i32> = (0..9).filter(|key| is_there(&tx, &second, *key)).collect();
    assert_eq!(found, [1, 5]);
    // If several keys are taken, the first row is reported.
    tx.insert_batch_waiting(&second, &columns(&[9, 5, 8, 1]), 2).unwrap();
    let error = tx.enter_keys(&second, 2).unwrap_err();
    assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
    let row = error.row().expect("the row is reported");
    let other = find(&tx, &second, &Value::Integer(5)).unwrap();
    assert_eq!((row.slot().0, error.other_row()), (other.slot().0 + 3, Some(other)));
    tx.rollback();
}
