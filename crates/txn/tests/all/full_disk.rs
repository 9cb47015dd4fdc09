//! Disks without space: what does not fit fails with 53100 and leaves nothing, and commits go on once there is space.
//! And logs that cannot be written: what may be lost is not shown.

use crate::durable::*;
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Result, SqlState, SqlType, Value, clock, thread};
use firn_log::LogOptions;
use firn_storage::Table;
use firn_txn::{Config, Engine, Transaction};
use std::collections::BTreeSet;
use std::time::Duration;

const COLUMNS: [(SqlType, bool); 2] = [(SqlType::Integer, false), (SqlType::Text, true)];

fn row(key: i32) -> [Value; 2] {
    [Value::Integer(key), Value::Text(format!("a text that makes the row of {key} long"))]
}

fn try_insert(tx: &mut Transaction, table: &Arc<Table>, key: i32) -> Result<()> {
    let row = row(key);
    let cells: Vec<_> =
        row.iter().zip(table.columns()).map(|(value, column)| value.as_cell(column.representation)).collect();
    tx.insert(table, &cells, &firn_txn::pin()).map(drop)
}

/// A database with an empty table `t`.
fn database(config: Config) -> (Arc<SimulatedDisk>, Arc<Engine>) {
    let disk = SimulatedDisk::new();
    let engine = Engine::open_on(disk.clone(), config).unwrap();
    let mut tx = engine.begin();
    create_table(&mut tx, "t", &COLUMNS);
    commit(tx);
    (disk, engine)
}

/// Inserts rows by transactions of their own until one fails; returns how many it inserted.
fn fill(engine: &Arc<Engine>, from: i32) -> (i32, firn_base::Error) {
    for key in from.. {
        let mut tx = engine.begin();
        let table = table(&tx, "t");
        if let Err(error) = try_insert(&mut tx, &table, key).and_then(|()| try_commit(tx)) {
            return (key - from, error);
        }
    }
    unreachable!("the disk is full before")
}

/// The keys of the rows of `t`.
fn keys(state: &State) -> BTreeSet<i32> {
    let key = |row: &Vec<Value>| match row[0] {
        Value::Integer(key) => key,
        _ => unreachable!("the first column is an integer"),
    };
    state["t"].1.values().map(key).collect()
}

/// What one transaction does.
type Step = fn(&mut Transaction, i32) -> Result<()>;

/// One row; more rows than are kept in memory; a new table with rows; an index; and less of all that.
const STEPS: [Step; 6] = [
    |tx, key| {
        let table = table(tx, "t");
        try_insert(tx, &table, key)
    },
    |tx, key| {
        let table = table(tx, "t");
        (0..20).try_for_each(|more| try_insert(tx, &table, key + more))
    },
    |tx, key| {
        let made = create_table(tx, &format!("made{key}"), &COLUMNS);
        (0..3).try_for_each(|more| try_insert(tx, &made, more))
    },
    |tx, _| {
        create_index(tx, "t", 1);
        Ok(())
    },
    |tx, key| {
        delete(tx, &table(tx, "t"), &Value::Integer(key - 400));
        Ok(())
    },
    |tx, key| {
        drop_table(tx, &format!("made{}", key - 300));
        Ok(())
    },
];

/// Runs all steps, with checkpoints in between, on disks of growing size. What fails is tried again with space.
#[test]
fn what_does_not_fit_leaves_nothing_and_succeeds_once_there_is_space() {
    let mut random = Random::seeded(11);
    let (mut failed, mut failed_checkpoints) = (0, 0);
    for room in (0..).step_by(1300) {
        let (disk, engine) = database(config());
        let mut failed_here = 0;
        disk.leave_room(room);
        for (number, step) in STEPS.iter().cycle().take(3 * STEPS.len()).enumerate() {
            // The index is made once.
            if number % STEPS.len() == 3 && number > STEPS.len() {
                continue;
            }
            let before = state(&engine);
            loop {
                let mut tx = engine.begin();
                let Err(error) = step(&mut tx, 100 * number as i32).and_then(|()| try_commit(tx)) else {
                    break;
                };
                assert_eq!(error.state(), SqlState::DISK_FULL, "{error:?}");
                assert!(error.hint().is_some(), "{error:?}");
                assert_eq!(state(&engine), before, "{room} {number}");
                assert_eq!(state(&open(&disk.after_kill()).unwrap()), before, "{room} {number}");
                let cut = disk.after_power_cut(&mut random);
                assert_eq!(state(&open(&cut).unwrap()), before, "{room} {number}");
                disk.heal();
                failed_here += 1;
            }
            if number % 4 == 3 {
                if let Err(error) = engine.checkpoint() {
                    assert_eq!(error.state(), SqlState::DISK_FULL, "{error:?}");
                    failed_checkpoints += 1;
                }
                assert_eq!(state(&open(&disk.after_kill()).unwrap()), state(&engine), "{room} {number}");
            }
            disk.leave_room(room);
        }
        let expected = state(&engine);
        assert_eq!(state(&open(&disk.after_power_cut(&mut random)).unwrap()), expected);
        if failed_here == 0 && room > 0 {
            break;
        }
        failed += failed_here;
    }
    assert!(failed > 20 && failed_checkpoints > 3, "{failed} {failed_checkpoints}");
}

/// Committers whose redo shares groups: none is accepted that does not fit together with the others.
#[test]
fn of_many_committers_on_a_full_disk_each_is_refused_or_safe() {
    for room in [0, 5_000, 20_000] {
        let (disk, engine) = database(config());
        disk.set_sync_time(Duration::from_micros(200));
        disk.leave_room(room);
        let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
        let committers: Vec<_> = (0..6)
            .map(|committer| {
                let (engine, acknowledged) = (engine.clone(), acknowledged.clone());
                thread::spawn("committer", move || {
                    let mut refused = 0;
                    for round in 0.. {
                        // Some are short enough for what is left when others are not.
                        let first = 100_000 * committer + 10 * round;
                        let keys = first..first + 1 + round % 3;
                        let mut tx = engine.begin();
                        let table = table(&tx, "t");
                        let changed = keys.clone().try_for_each(|key| try_insert(&mut tx, &table, key));
                        match changed.and_then(|()| try_commit(tx)) {
                            Ok(()) => acknowledged.lock().extend(keys),
                            Err(error) => {
                                assert_eq!(error.state(), SqlState::DISK_FULL, "{error:?}");
                                refused += 1;
                            }
                        }
                        if refused == 20 {
                            break;
                        }
                    }
                })
            })
            .collect();
        committers.into_iter().for_each(|committer| committer.join().unwrap());
        let found = state(&engine);
        assert_eq!(keys(&found), *acknowledged.lock());
        let cut = disk.after_power_cut(&mut Random::seeded(room));
        assert_eq!(state(&open(&cut).unwrap()), found);
        disk.heal();
        let mut tx = engine.begin();
        let table = table(&tx, "t");
        (0..30).for_each(|key| try_insert(&mut tx, &table, 900_000 + key).unwrap());
        commit(tx);
        engine.checkpoint().unwrap();
        let found = state(&engine);
        assert_eq!(keys(&found).len(), acknowledged.lock().len() + 30);
        assert_eq!(state(&open(&disk.after_kill()).unwrap()), found);
    }
}

#[test]
fn a_sequence_that_the_log_cannot_take_does_not_advance() {
    let (disk, engine) = database(config());
    let mut tx = engine.begin();
    let sequence = create_sequence(&mut tx, "s");
    commit(tx);
    assert_eq!(engine.next_value(&sequence).unwrap(), 1);
    disk.leave_room(0);
    let (_, error) = fill(&engine, 0);
    assert_eq!(error.state(), SqlState::DISK_FULL);
    let last = loop {
        match engine.next_value(&sequence) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.state(), SqlState::DISK_FULL, "{error:?}");
                break engine.last_value(&sequence).0;
            }
        }
    };
    assert_eq!(engine.next_value(&sequence).unwrap_err().state(), SqlState::DISK_FULL);
    assert_eq!(engine.set_value(&sequence, 5, true).unwrap_err().state(), SqlState::DISK_FULL);
    assert_eq!(engine.last_value(&sequence), (last, true));
    disk.heal();
    assert_eq!(engine.next_value(&sequence).unwrap(), last + 1);
}

/// The rows are few and change often, so the log has filled the disk.
#[test]
fn a_checkpoint_by_itself_frees_the_space_of_a_log_that_has_filled_the_disk() {
    let (disk, engine) = database(config());
    let mut tx = engine.begin();
    let table = table(&tx, "t");
    try_insert(&mut tx, &table, 0).unwrap();
    commit(tx);
    // All but the last 6,000 bytes for segments of 6 KiB; the rest is enough for a checkpoint.
    disk.leave_room(6 * 6144 + 6000);
    let deadline = clock::now() + Duration::from_secs(60);
    let begun = engine.statistics().checkpoints.get();
    for change in 0.. {
        let mut tx = engine.begin();
        update(&mut tx, &table, &Value::Integer(0), 1, &Value::Text(format!("{change:0100}")));
        match try_commit(tx) {
            Ok(()) if engine.statistics().checkpoints.get() > begun => break,
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.state(), SqlState::DISK_FULL, "{error:?}");
                assert!(clock::now() < deadline, "no checkpoint came");
                clock::sleep(Duration::from_millis(5));
            }
        }
    }
    assert_eq!(state(&open(&disk.after_kill()).unwrap()), state(&engine));
}

/// The segments are of the usual lengths, which would fill the disk to the last byte.
#[test]
fn a_log_that_has_filled_the_disk_leaves_room_for_a_checkpoint() {
    let log = LogOptions { segment_bytes: 64 << 20, ..LogOptions::default() };
    let disk = SimulatedDisk::new();
    disk.leave_room(16 << 20);
    let engine = Engine::open_on(disk.clone(), Config { log, ..config() }).unwrap();
    let mut tx = engine.begin();
    let table = create_table(&mut tx, "t", &COLUMNS);
    try_insert(&mut tx, &table, 0).unwrap();
    commit(tx);
    let change = |change: i32| {
        let mut tx = engine.begin();
        let text = format!("{change:060000}");
        update(&mut tx, &table, &Value::Integer(0), 1, &Value::Text(text));
        try_commit(tx)
    };
    let error = (0..).find_map(|number| change(number).err()).unwrap();
    assert_eq!(error.state(), SqlState::DISK_FULL, "{error:?}");
    engine.checkpoint().unwrap();
    change(-1).unwrap();
    assert_eq!(state(&open(&disk.after_kill()).unwrap()), state(&engine));
}

#[test]
fn a_failed_checkpoint_gives_its_space_back() {
    let (disk, engine) = database(config());
    for part in 0..20 {
        let mut tx = engine.begin();
        let table = table(&tx, "t");
        (0..100).for_each(|key| try_insert(&mut tx, &table, 100 * part + key).unwrap());
        commit(tx);
    }
    let before = files(&disk, "checkpoint");
    disk.leave_room(100_000);
    assert_eq!(engine.checkpoint().unwrap_err().state(), SqlState::DISK_FULL);
    assert_eq!(files(&disk, "checkpoint"), before);
    let probe = disk.create(&directory().join("probe")).unwrap();
    probe.allocate(80_000).unwrap();
    disk.remove(&directory().join("probe")).unwrap();
    disk.heal();
    engine.checkpoint().unwrap();
    assert_eq!(state(&open(&disk.after_kill()).unwrap()), state(&engine));
}

#[test]
fn a_database_opens_on_a_full_disk_even_if_its_log_has_lost_its_space() {
    let (disk, engine) = database(config());
    let (filled, _) = {
        disk.leave_room(20_000);
        fill(&engine, 0)
    };
    let expected = state(&engine);
    let copy = disk.after_kill();
    // As a copy of the directory may be: what is zero takes no space.
    for path in files(&copy, "log") {
        let content = (&*copy as &dyn Disk).read(&path).unwrap();
        let end = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let file = copy.open(&path).unwrap();
        file.set_len(end as u64).unwrap();
        file.set_len(content.len() as u64).unwrap();
    }
    copy.leave_room(0);
    let engine = open(&copy).unwrap();
    assert_eq!(state(&engine), expected);
    assert_eq!(fill(&engine, filled).1.state(), SqlState::DISK_FULL);
    copy.heal();
    let mut tx = engine.begin();
    let table = table(&tx, "t");
    try_insert(&mut tx, &table, 1_000_000).unwrap();
    commit(tx);
    assert_eq!(keys(&state(&open(&copy.after_kill()).unwrap())).len(), keys(&state(&engine)).len());
}

#[test]
fn a_log_that_cannot_be_written_ends_and_what_may_be_lost_is_not_shown() {
    for fault in [Fault::Broken, Fault::Full] {
        let log = LogOptions { flush_interval: Duration::from_secs(3600), ..LogOptions::default() };
        let (disk, engine) = database(Config { log, ..config() });
        let insert = |key: i32| {
            let mut tx = engine.begin();
            let table = table(&tx, "t");
            try_insert(&mut tx, &table, key).unwrap();
            tx.commit()
        };
        engine.wait(insert(1).unwrap()).unwrap();
        disk.fail_after_operations(0, fault);
        let lost = insert(2).unwrap();
        // Also of a full disk, which 53100 would say had changed nothing.
        let is_failure = |error: firn_base::Error| {
            assert_eq!(error.state(), SqlState::IO_ERROR, "{error:?}");
            assert!(error.hint().is_some_and(|hint| hint.contains("restart")), "{error:?}");
        };
        is_failure(engine.wait(lost).unwrap_err());
        disk.heal();
        is_failure(engine.wait(lost).unwrap_err());
        is_failure(insert(3).map(drop).unwrap_err());
        is_failure(engine.checkpoint().unwrap_err());
        for tracks in [false, true] {
            let mut tx = engine.begin();
            if tracks {
                tx.track_read_durability();
            }
            let table = table(&tx, "t");
            assert!(find(&tx, &table, &Value::Integer(2)).is_some());
            is_failure(engine.wait(tx.commit().unwrap()).unwrap_err());
        }
        // What was on disk by then can be read.
        let mut tx = engine.begin();
        tx.track_read_durability();
        let table = table(&tx, "t");
        assert!(find(&tx, &table, &Value::Integer(1)).is_some());
        engine.wait(tx.commit().unwrap()).unwrap();
        let found = state(&open(&disk.after_power_cut(&mut Random::seeded(1))).unwrap());
        assert_eq!(keys(&found), BTreeSet::from([1]));
    }
}
