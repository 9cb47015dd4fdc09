//! What followers and copies of the database retain: the log, the files that it names, and those of a checkpoint.

use crate::durable::{
    commit, config, create_table, delete, directory, drop_table, files, insert, open, state, table,
};
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Lsn, SqlState, SqlType, Value, clock, thread};
use firn_log::{LogOptions, LogPoint, Record};
use firn_storage::arrow;
use firn_txn::{Config, Engine, Folders, Transaction, pin};
use std::path::PathBuf;
use std::time::Duration;

const COLUMNS: [(SqlType, bool); 2] = [(SqlType::Integer, false), (SqlType::BigInt, true)];

fn row(key: i32) -> [Value; 2] {
    [Value::Integer(key), Value::BigInt(i64::from(key) * 7)]
}

/// A table with a few rows, in a checkpoint.
fn database() -> (Arc<SimulatedDisk>, Arc<Engine>) {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    let mut tx = engine.begin();
    let rows = create_table(&mut tx, "rows", &COLUMNS);
    (0..20).for_each(|key| {
        insert(&mut tx, &rows, &row(key));
    });
    commit(tx);
    engine.checkpoint().unwrap();
    (disk, engine)
}

fn change(engine: &Arc<Engine>, key: i32) {
    let mut tx = engine.begin();
    let rows = table(&tx, "rows");
    delete(&mut tx, &rows, &Value::Integer(key));
    insert(&mut tx, &rows, &row(key + 1000));
    commit(tx);
}

/// Waits until the background thread has removed what is released.
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = clock::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        clock::sleep(Duration::from_millis(1));
    }
}

/// A copy of the log and of the files that a manifest names, as one made it who has pinned that.
fn copy(from: &SimulatedDisk, manifest: &[u8], named: &[PathBuf]) -> Arc<SimulatedDisk> {
    let to = SimulatedDisk::new();
    for inner in ["log", "checkpoint"] {
        to.create_directory(&directory().join(inner)).unwrap();
    }
    let put = |path: &PathBuf, bytes: &[u8]| to.create(path).unwrap().write_at(bytes, 0).unwrap();
    put(&directory().join("MANIFEST"), manifest);
    for path in named.iter().chain(&files(from, "log")) {
        put(path, &(from as &dyn Disk).read(path).unwrap());
    }
    to
}

#[test]
fn a_pinned_checkpoint_is_retained_with_its_log_and_can_be_copied() {
    let (disk, engine) = database();
    change(&engine, 1);
    let pinned = engine.pin_checkpoint("a copy").unwrap();
    let named: Vec<PathBuf> = pinned.files().map(|file| Folders::of(directory()).path(&file)).collect();
    assert!(!named.is_empty());
    for (path, file) in named.iter().zip(pinned.files()) {
        let (bytes, crc) = file.content.unwrap();
        assert_eq!(disk.open(path).unwrap().len().unwrap(), bytes);
        assert_eq!(crc32c::crc32c(&(&*disk as &dyn Disk).read(path).unwrap()), crc);
    }
    for key in 2..10 {
        change(&engine, key);
        engine.checkpoint().unwrap();
    }
    let expected = state(&engine);
    assert!(named.iter().all(|path| disk.exists(path).unwrap()));
    assert!(pinned.needed() >= pinned.point().lsn);
    let copied = copy(&disk.after_kill(), &pinned.manifest(), &named);
    assert_eq!(state(&open(&copied).unwrap()), expected);

    let segments =
        || files(&disk, "log").iter().filter(|path| path.to_string_lossy().ends_with(".redo")).count();
    let before = segments();
    drop(pinned);
    wait_until("what was pinned stays", || named.iter().all(|path| !disk.exists(path).unwrap()));
    wait_until("the log stays", || segments() < before);
    assert!(engine.pinned().is_empty());
    assert_eq!(state(&open(&disk.after_kill()).unwrap()), expected);
}

#[test]
fn what_nobody_has_pinned_is_removed_by_the_next_opening() {
    let (disk, engine) = database();
    let pinned = engine.pin_checkpoint("a copy").unwrap();
    change(&engine, 1);
    engine.checkpoint().unwrap();
    let (kept, expected) = (files(&disk, "checkpoint").len(), state(&engine));
    let killed = disk.after_kill();
    drop(pinned);
    let engine = open(&killed).unwrap();
    assert!(files(&killed, "checkpoint").len() < kept);
    assert_eq!(state(&engine), expected);
}

fn load(engine: &Arc<Engine>, name: &str) {
    let mut tx = engine.begin();
    fill(&mut tx, name);
    commit(tx);
}

/// Makes a table, and fills more than a block of it.
fn fill(tx: &mut Transaction, name: &str) {
    let loaded = create_table(tx, name, &COLUMNS);
    let ids: Vec<Value> = (0..2100).map(Value::Integer).collect();
    let numbers: Vec<Value> = (0..2100).map(Value::BigInt).collect();
    let columns =
        [arrow::values_to_array(&ids, SqlType::Integer), arrow::values_to_array(&numbers, SqlType::BigInt)];
    tx.insert_batch(&loaded, &columns, &pin()).unwrap();
}

fn load_files(disk: &SimulatedDisk) -> usize {
    files(disk, "checkpoint").iter().filter(|path| path.to_string_lossy().contains("-load-")).count()
}

/// After a failed checkpoint it is unknown which manifest is in the directory.
#[test]
fn the_end_of_a_pin_removes_no_file_that_the_manifest_may_name() {
    for operations in 0..40 {
        let (disk, engine) = database();
        let pinned = engine.pin_checkpoint("a copy").unwrap();
        change(&engine, 1);
        let expected = state(&engine);
        disk.fail_after_operations(operations, Fault::Broken);
        let written = engine.checkpoint();
        disk.heal();
        drop(pinned);
        // Long enough for the background thread.
        clock::sleep(Duration::from_millis(25));
        for seed in 0..4 {
            let cut = disk.after_power_cut(&mut Random::seeded(seed));
            let found = open(&cut).unwrap_or_else(|error| panic!("{operations} {seed}: {error:?}"));
            assert_eq!(state(&found), expected, "{operations} {seed}");
        }
        if written.is_ok() {
            assert!(operations > 5, "{operations}");
            return;
        }
    }
    panic!("no checkpoint was written");
}

#[test]
fn files_of_loads_are_retained_for_those_who_follow_the_log() {
    let (disk, engine) = database();
    let from = engine.log_point().unwrap();
    let mut follower = engine.follow("a follower", from).unwrap();
    load(&engine, "loaded");
    let written = load_files(&disk);
    assert!(written > 0);
    let mut tx = engine.begin();
    drop_table(&mut tx, "loaded");
    commit(tx);
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(load_files(&disk), written, "the log names them");
    let mut named = 0;
    while let Some(group) = follower.next_group(Lsn(u64::MAX)).unwrap() {
        for entry in group.entries() {
            named += entry.records().filter(|it| matches!(it, Ok(Record::Loaded(_)))).count();
        }
    }
    assert_eq!(named, 1);
    // In the names is the epoch.
    let epoch = follower.point().epoch.0;
    let in_name = format!("-load-{epoch}-");
    assert!(files(&disk, "checkpoint").iter().any(|path| path.to_string_lossy().contains(&in_name)));
    follower.pin().advance(follower.point().lsn).unwrap();
    wait_until("files of a load stay", || load_files(&disk) == 0);
}

#[test]
fn a_follower_that_retains_too_much_gets_an_error_and_the_space_is_free() {
    let log = LogOptions { most_pinned_bytes: Some(20_000), ..config().log };
    let disk = SimulatedDisk::new();
    let engine = Engine::open_on(disk.clone(), Config { log, ..config() }).unwrap();
    load(&engine, "rows");
    engine.checkpoint().unwrap();
    let mut follower = engine.follow("slow", engine.log_point().unwrap()).unwrap();
    // A load's file that the manifest names is not retained for the follower.
    load(&engine, "kept");
    engine.checkpoint().unwrap();
    follower.pin().position().unwrap();
    load(&engine, "dropped");
    let written = load_files(&disk);
    let mut tx = engine.begin();
    drop_table(&mut tx, "dropped");
    commit(tx);
    engine.checkpoint().unwrap();
    assert_eq!(
        follower.next_group(Lsn(u64::MAX)).unwrap_err().state(),
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
    );
    assert!(load_files(&disk) < written);
    assert_eq!(engine.pinned().len(), 1);
}

#[test]
fn a_database_in_memory_has_no_log_to_follow() {
    let engine = Engine::open(Config { block_bytes: 1, ..Config::default() }).unwrap();
    let error = engine.follow("f", LogPoint::START).unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(engine.pin_checkpoint("c").is_err() && engine.pinned().is_empty());
}

#[test]
fn the_manifest_has_the_point_of_the_log_where_it_ends() {
    let (disk, engine) = database();
    let mut disk = disk;
    let mut engine = engine;
    for round in 0..4 {
        change(&engine, round);
        engine.checkpoint().unwrap();
        let point = engine.log_point().unwrap();
        let pinned = engine.pin_checkpoint("p").unwrap();
        assert_eq!((pinned.point(), point.epoch.0), (point, round as u64 + 1));
        assert!(point.checksum != 0 && point.wall_time > 0);
        drop(pinned);
        change(&engine, round + 10);
        if round % 2 == 0 {
            engine.close().unwrap();
        }
        disk = disk.after_kill();
        engine = open(&disk).unwrap();
        // Nothing has been written in the new epoch yet.
        assert!(engine.log_point().unwrap().wall_time >= point.wall_time);
        assert_eq!(engine.log_point().unwrap().epoch, point.epoch);
    }
}

/// The load and the drop have their redo behind the position of the checkpoint, which includes both: all are in one group.
#[test]
fn an_opening_keeps_the_files_of_loads_that_a_follower_of_the_retained_log_finds() {
    let log = LogOptions { flush_interval: Duration::from_secs(3600), ..config().log };
    let disk = SimulatedDisk::new();
    let engine = Engine::open_on(disk.clone(), Config { log, ..config() }).unwrap();
    let mut tx = engine.begin();
    create_table(&mut tx, "rows", &COLUMNS);
    commit(tx);
    let mut tx = engine.begin();
    fill(&mut tx, "loaded");
    let _ = tx.commit().unwrap();
    let mut tx = engine.begin();
    drop_table(&mut tx, "loaded");
    let _ = tx.commit().unwrap();
    engine.checkpoint().unwrap();
    let written = load_files(&disk);
    assert!(written > 0);
    let expected = state(&engine);

    let killed = disk.after_kill();
    let engine = open(&killed).unwrap();
    assert_eq!(load_files(&killed), written, "the retained log names them");
    assert_eq!(state(&engine), expected);
    let pinned = engine.pin_checkpoint("a replica").unwrap();
    let mut follower = engine.follow("a replica", pinned.point()).unwrap();
    let group = follower.next_group(Lsn(u64::MAX)).unwrap().unwrap();
    let records = || group.entries().flat_map(|entry| entry.records());
    assert!(records().any(|record| matches!(record, Ok(Record::Loaded(_)))));
    drop((pinned, follower));
    let mut tx = engine.begin();
    let rows = table(&tx, "rows");
    insert(&mut tx, &rows, &row(1));
    commit(tx);
    engine.checkpoint().unwrap();
    assert_eq!(load_files(&killed), 0);
}

/// A checkpoint waits for the disk while the pin ends.
#[test]
fn a_pin_that_ends_while_a_checkpoint_is_written_gives_its_files_back() {
    for delay in [0, 1, 2, 4, 8] {
        let (disk, engine) = database();
        let pinned = engine.pin_checkpoint("a copy").unwrap();
        change(&engine, 1);
        engine.checkpoint().unwrap();
        let named: Vec<PathBuf> = pinned.files().map(|file| Folders::of(directory()).path(&file)).collect();
        disk.set_sync_time(Duration::from_millis(5));
        let checkpoint = thread::spawn("checkpoint", {
            let engine = engine.clone();
            move || {
                change(&engine, 2);
                engine.checkpoint().unwrap();
            }
        });
        clock::sleep(Duration::from_millis(5 * delay));
        drop(pinned);
        checkpoint.join().unwrap();
        wait_until("what was pinned stays", || named.iter().all(|path| !disk.exists(path).unwrap()));
    }
}
