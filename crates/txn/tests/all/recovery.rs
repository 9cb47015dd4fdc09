//! The cases of the table in `recovery.rs`, one by one, by their numbers.

use crate::durable::*;
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::sync::Arc;
use firn_base::{Error, SqlState, SqlType, Value, thread};
use firn_txn::{Config, Engine};
use std::path::{Path, PathBuf};

const ROW: [(SqlType, bool); 2] = [(SqlType::Integer, false), (SqlType::Text, true)];

fn row(key: i32) -> [Value; 2] {
    [Value::Integer(key), Value::Text(format!("the text of row number {key}"))]
}

/// A killed database with a checkpoint of two tables, and commits since in several segments.
fn database() -> (Arc<SimulatedDisk>, State) {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    let mut tx = engine.begin();
    for name in ["one", "two"] {
        let table = create_table(&mut tx, name, &ROW);
        (0..20).for_each(|key| {
            insert(&mut tx, &table, &row(key));
        });
    }
    commit(tx);
    engine.checkpoint().unwrap();
    for key in 20..60 {
        let mut tx = engine.begin();
        let one = table(&tx, "one");
        insert(&mut tx, &one, &row(key));
        commit(tx);
    }
    (disk.after_kill(), state(&engine))
}

/// Asserts that opening fails in this way, with a hint, and leaves the directory unchanged.
fn fails(disk: &Arc<SimulatedDisk>, state: SqlState, what: &str) -> Error {
    let before = contents(disk);
    let error = open(disk).err().unwrap_or_else(|| panic!("opened in spite of: {what}"));
    assert_eq!(error.state(), state, "{error:?}");
    assert!(format!("{error}").contains(what), "{error:?}");
    assert!(error.hint().is_some(), "{error:?}");
    assert!(contents(disk) == before, "{error:?}");
    error
}

fn contents(disk: &SimulatedDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths: Vec<PathBuf> = ["log", "checkpoint"].iter().flat_map(|inner| files(disk, inner)).collect();
    paths.extend(["MANIFEST", "MANIFEST.tmp"].iter().map(|name| directory().join(name)));
    let existing = paths.into_iter().filter(|path| disk.exists(path).unwrap());
    existing.map(|path| (path.clone(), (disk as &dyn Disk).read(&path).unwrap())).collect()
}

fn manifest() -> PathBuf {
    directory().join("MANIFEST")
}

fn flip(disk: &SimulatedDisk, path: &Path, at: u64) {
    let file = disk.open(path).unwrap();
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, at).unwrap(), 1);
    file.write_at(&[byte[0] ^ 1], at).unwrap();
}

fn segments(disk: &SimulatedDisk) -> Vec<PathBuf> {
    files(disk, "log").into_iter().filter(|path| path.to_string_lossy().ends_with(".redo")).collect()
}

#[test]
fn case_1_a_new_directory_becomes_an_empty_database() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    assert!(state(&engine).is_empty());
    drop(engine);
    assert!(state(&open(&disk).unwrap()).is_empty());
}

#[test]
fn case_2_creating_a_database_may_be_cut_short_anywhere() {
    for operations in 0..60 {
        let disk = SimulatedDisk::new();
        disk.fail_after_operations(operations, Fault::Broken);
        let created = open(&disk);
        disk.heal();
        drop(created);
        for seed in 0..4 {
            let cut = disk.after_power_cut(&mut firn_base::random::Random::seeded(seed));
            let engine = open(&cut).unwrap_or_else(|error| panic!("{operations} {seed}: {error:?}"));
            assert!(state(&engine).is_empty());
        }
    }
}

#[test]
fn cases_3_and_4_the_log_ends_behind_a_whole_group_or_in_a_torn_one() {
    let (disk, expected) = database();
    assert_eq!(state(&open(&disk.after_kill()).unwrap()), expected);
    let (last, end) = segments(&disk)
        .into_iter()
        .find_map(|path| {
            let content = (&*disk as &dyn Disk).read(&path).unwrap();
            content.windows(9).rposition(|bytes| bytes == b"number 59").map(|at| (path, at as u64))
        })
        .unwrap();
    flip(&disk, &last, end);
    let engine = open(&disk).unwrap();
    let mut shorter = expected.clone();
    shorter.get_mut("one").unwrap().1.pop_last();
    assert_eq!(state(&engine), shorter);
    let mut tx = engine.begin();
    let one = table(&tx, "one");
    insert(&mut tx, &one, &row(59));
    commit(tx);
    drop(engine);
    assert_eq!(state(&open(&disk).unwrap()), expected);
}

#[test]
fn the_log_is_replayed_by_as_many_threads_as_the_system_gives() {
    let (disk, expected) = database();
    // Opening takes further threads for other tasks, and works without them.
    let opens = |permitted: &usize| match thread::with_at_most(*permitted, || open(&disk.after_kill())) {
        Ok(engine) => {
            assert_eq!(state(&engine), expected);
            true
        }
        Err(error) => {
            assert_eq!(error.state(), SqlState::INSUFFICIENT_RESOURCES);
            false
        }
    };
    let permitted: Vec<usize> = (0..20).filter(opens).collect();
    assert!(!permitted.contains(&0), "a thread has to apply the log");
    assert!(permitted.len() > 2 && permitted.is_sorted() && permitted.contains(&19));
}

#[test]
fn case_5_damage_in_the_middle_of_the_log_stops_the_engine() {
    let (disk, _) = database();
    let path = &segments(&disk)[1];
    flip(&disk, path, 4096 + 100);
    let error = fails(&disk, SqlState::DATA_CORRUPTED, "the log is damaged in file");
    assert!(error.message().contains("at byte"), "{error:?}");
}

#[test]
fn case_6_missing_segments_stop_the_engine() {
    let (disk, _) = database();
    let gap = disk.after_kill();
    gap.remove(&segments(&gap)[1]).unwrap();
    fails(&gap, SqlState::DATA_CORRUPTED, "lacks the part");
    for segment in segments(&disk) {
        disk.remove(&segment).unwrap();
    }
    fails(&disk, SqlState::DATA_CORRUPTED, "is missing");
}

#[test]
fn case_6_a_log_that_ends_before_what_the_checkpoint_needs_stops_the_engine() {
    let (disk, expected) = database();
    let text = String::from_utf8((&*disk as &dyn Disk).read(&manifest()).unwrap()).unwrap();
    let (_, body) = text.split_once('\n').unwrap();
    let mut json: serde_json::Value = serde_json::from_str(body).unwrap();
    // Up to the end of the log, and one byte further.
    let engine = open(&disk.after_kill()).unwrap();
    let end = engine.log_bytes().0;
    for (needed, is_there) in [(end, true), (end + 1, false)] {
        json["needed"] = needed.into();
        let body = serde_json::to_vec(&json).unwrap();
        let mut forged = format!("FIRNDB 6 crc32c={:08x}\n", crc32c::crc32c(&body)).into_bytes();
        forged.extend(body);
        let copy = disk.after_kill();
        let file = copy.open(&manifest()).unwrap();
        file.set_len(0).unwrap();
        file.write_at(&forged, 0).unwrap();
        match is_there {
            true => assert_eq!(state(&open(&copy).unwrap()), expected),
            false => drop(fails(&copy, SqlState::DATA_CORRUPTED, "ends before what the checkpoint needs")),
        }
    }
}

#[test]
fn case_7_a_segment_of_another_database_is_refused() {
    let (disk, _) = database();
    let (other, _) = database();
    let path = &segments(&disk)[1];
    let foreign = (&*other as &dyn Disk).read(path).unwrap();
    disk.open(path).unwrap().write_at(&foreign, 0).unwrap();
    fails(&disk, SqlState::DATA_CORRUPTED, "another database");
}

#[test]
fn case_8_a_lost_manifest_is_not_taken_for_a_new_database() {
    let (disk, _) = database();
    disk.remove(&manifest()).unwrap();
    fails(&disk, SqlState::DATA_CORRUPTED, "MANIFEST\" is missing");
}

#[test]
fn case_9_a_directory_with_other_files_is_left_alone() {
    let disk = SimulatedDisk::new();
    disk.create_directory(directory()).unwrap();
    disk.create(&directory().join("letter.txt")).unwrap();
    let error = open(&disk).err().unwrap();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(error.detail().unwrap().contains("letter.txt"));
    assert_eq!(disk.list(directory()).unwrap(), ["letter.txt"]);
}

#[test]
fn cases_10_and_11_a_manifest_of_another_version_or_a_damaged_one_is_refused() {
    let (disk, _) = database();
    let newer = disk.after_kill();
    newer.open(&manifest()).unwrap().write_at(b"FIRNDB 9 ", 0).unwrap();
    fails(&newer, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "format version 9");
    flip(&disk, &manifest(), 200);
    fails(&disk, SqlState::DATA_CORRUPTED, "checksum");
}

#[test]
fn case_12_a_checkpoint_file_that_is_missing_or_changed_is_refused() {
    let (disk, _) = database();
    let path = &files(&disk, "checkpoint")[1];
    let length = disk.open(path).unwrap().len().unwrap();
    for at in (0..length).step_by(97) {
        let changed = disk.after_kill();
        flip(&changed, path, at);
        fails(&changed, SqlState::DATA_CORRUPTED, "its checksum is wrong");
    }
    let short = disk.after_kill();
    short.open(path).unwrap().set_len(length - 1).unwrap();
    fails(&short, SqlState::DATA_CORRUPTED, "another length");
    disk.remove(path).unwrap();
    fails(&disk, SqlState::DATA_CORRUPTED, "it is missing");
}

#[test]
fn case_13_leftovers_are_removed() {
    let (disk, expected) = database();
    let before = files(&disk, "checkpoint");
    let leftovers =
        ["MANIFEST.tmp", "checkpoint/9-9.arrow", "log/preparing.tmp", "log/0000000000000009.spare"];
    for leftover in leftovers {
        disk.create(&directory().join(leftover)).unwrap().write_at(b"left over", 0).unwrap();
    }
    let engine = open(&disk).unwrap();
    assert_eq!(state(&engine), expected);
    assert_eq!(files(&disk, "checkpoint"), before);
    // The log creates new files with these names later.
    for leftover in ["MANIFEST.tmp", "log/0000000000000009.spare"] {
        assert!(!disk.exists(&directory().join(leftover)).unwrap(), "{leftover}");
    }
}

/// The log of a database combined with an earlier checkpoint of a database with the same identity: a partly
/// restored backup.
#[test]
fn case_14_redo_that_does_not_fit_the_checkpoint_is_refused() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    let mut tx = engine.begin();
    let one = create_table(&mut tx, "one", &ROW);
    commit(tx);
    engine.checkpoint().unwrap();
    let early = disk.after_kill();
    let mut tx = engine.begin();
    (0..5).for_each(|key| {
        insert(&mut tx, &one, &row(key));
    });
    commit(tx);
    engine.checkpoint().unwrap();
    let mut tx = engine.begin();
    update(&mut tx, &one, &Value::Integer(3), 1, &Value::Null);
    commit(tx);
    // The later checkpoint whose table's file was removed from the manifest.
    let later = disk.after_kill();
    let text = String::from_utf8((&*later as &dyn Disk).read(&manifest()).unwrap()).unwrap();
    let (_, body) = text.split_once('\n').unwrap();
    let mut json: serde_json::Value = serde_json::from_str(body).unwrap();
    json["files"] = serde_json::json!([]);
    let body = serde_json::to_vec(&json).unwrap();
    let mut forged = format!("FIRNDB 2 crc32c={:08x}\n", crc32c::crc32c(&body)).into_bytes();
    forged.extend(body);
    let file = later.open(&manifest()).unwrap();
    file.set_len(0).unwrap();
    file.write_at(&forged, 0).unwrap();
    fails(&later, SqlState::DATA_CORRUPTED, "does not fit the checkpoint");
    assert!(open(&early).is_ok());
}

#[test]
fn case_15_a_directory_that_is_open_elsewhere_is_refused() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    let error = open(&disk).err().unwrap();
    assert_eq!(error.state(), SqlState::OBJECT_IN_USE);
    assert!(error.message().contains("/data/db"), "{error:?}");
    drop(engine);
    assert!(open(&disk).is_ok());
}

#[test]
fn case_16_a_full_disk_or_a_broken_one_is_reported_and_harms_nothing() {
    let (disk, expected) = database();
    for operations in 0..6 {
        for (fault, code) in [(Fault::Full, SqlState::DISK_FULL), (Fault::Broken, SqlState::IO_ERROR)] {
            let copy = disk.after_kill();
            copy.fail_after_operations(operations, fault);
            if let Err(error) = open(&copy) {
                assert_eq!(error.state(), code, "{error:?}");
            }
            copy.heal();
            assert_eq!(state(&open(&copy.after_kill()).unwrap()), expected);
        }
    }
}

#[test]
fn a_database_keeps_the_size_of_blocks_it_was_created_with() {
    let (disk, expected) = database();
    let larger = Config { block_bytes: 1 << 20, ..config() };
    let engine = Engine::open_on(disk.clone(), larger).unwrap();
    assert_eq!(state(&engine), expected);
    assert_eq!(engine.config().block_bytes, 1);
}
