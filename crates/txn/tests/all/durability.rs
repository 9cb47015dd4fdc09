//! Nothing that was acknowledged is lost, and nothing is there by half, whatever happens to the disk.

use crate::durable::*;
use crate::transfers;
use firn_base::disk::{Disk, Fault, RealDisk, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, AtomicI64, Ordering};
use firn_base::{Interval, SqlState, SqlType, Value, clock, thread};
use firn_txn::{Config, Engine, pin};
use std::time::Duration;

const ITEM: [(SqlType, bool); 3] =
    [(SqlType::Integer, false), (SqlType::BigInt, true), (SqlType::Text, true)];

fn item(key: i32) -> Vec<Value> {
    let text = match key % 3 {
        0 => Value::Null,
        1 => Value::Text("short".into()),
        _ => Value::Text(format!("a text too long to lie in its view {key}")),
    };
    vec![Value::Integer(key), Value::BigInt(i64::from(key) * 1000), text]
}

/// One transaction of every kind, one after the other; the state after each of them.
fn workload(engine: &Arc<Engine>, mut after_each: impl FnMut(usize)) -> Vec<State> {
    let mut states = vec![state(engine)];
    let mut number = 0;
    let mut step = |body: &dyn Fn(&mut firn_txn::Transaction)| {
        let mut tx = engine.begin();
        body(&mut tx);
        commit(tx);
        states.push(state(engine));
        after_each(number);
        number += 1;
    };
    step(&|tx| {
        let items = create_table(tx, "items", &ITEM);
        insert(tx, &items, &item(1));
    });
    step(&|tx| {
        let items = table(tx, "items");
        (2..6).for_each(|key| {
            insert(tx, &items, &item(key));
        });
    });
    step(&|tx| {
        let items = table(tx, "items");
        update(tx, &items, &Value::Integer(2), 1, &Value::Null);
        update(tx, &items, &Value::Integer(3), 2, &Value::Text("no longer null but rather long".into()));
        update(tx, &items, &Value::Integer(4), 0, &Value::Integer(40));
        let undone = tx.savepoint();
        insert(tx, &items, &item(99));
        delete(tx, &items, &Value::Integer(1));
        tx.rollback_to(undone);
    });
    step(&|tx| delete(tx, &table(tx, "items"), &Value::Integer(5)));
    step(&|tx| {
        create_index(tx, "items", 1);
        let other = create_table(tx, "other", &ITEM[..1]);
        insert(tx, &other, &item(1)[..1]);
    });
    step(&|tx| {
        let items = table(tx, "items");
        let rows: Vec<Vec<Value>> = (10..20).map(item).collect();
        let columns: Vec<_> = ITEM
            .iter()
            .enumerate()
            .map(|(column, (ty, _))| {
                let values: Vec<Value> = rows.iter().map(|row| row[column].clone()).collect();
                firn_storage::arrow::values_to_array(&values, *ty)
            })
            .collect();
        tx.insert_batch(&items, &columns, &pin()).unwrap();
    });
    step(&|tx| {
        let other = table(tx, "other");
        insert(tx, &other, &item(2)[..1]);
        drop_table(tx, "other");
        update(tx, &table(tx, "items"), &Value::Integer(11), 1, &Value::BigInt(-1));
    });
    step(&|tx| {
        insert(tx, &table(tx, "items"), &item(5));
    });
    states
}

#[test]
fn the_log_cut_at_every_byte_recovers_a_prefix_of_the_commits() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    let states = workload(&engine, |_| {});
    let disk = disk.after_kill();
    drop(engine);
    let segments: Vec<_> =
        files(&disk, "log").into_iter().filter(|path| path.to_string_lossy().ends_with(".redo")).collect();
    let mut newest = 0;
    for (number, path) in segments.iter().enumerate() {
        let length = disk.open(path).unwrap().len().unwrap();
        for cut in 4096..length {
            let copy = disk.after_kill();
            segments[number + 1..].iter().for_each(|later| copy.remove(later).unwrap());
            copy.open(path).unwrap().set_len(cut).unwrap();
            let config = Config { threads: 1, ..config() };
            let engine = Engine::open_on(copy, config).unwrap();
            let recovered = state(&engine);
            let commits = states.iter().position(|state| *state == recovered).expect("some commits, whole");
            assert!(commits == newest || commits == newest + 1, "{commits} after {newest} at byte {cut}");
            newest = commits;
        }
    }
    assert_eq!(newest + 1, states.len());
}

#[test]
fn checkpoints_and_reopening_at_any_point_change_nothing() {
    for checkpoints in 0..1 << 8 {
        let disk = SimulatedDisk::new();
        let engine = open(&disk).unwrap();
        let states = workload(&engine, |step| {
            if checkpoints >> step & 1 != 0 {
                engine.checkpoint().unwrap();
            }
        });
        let killed = disk.after_kill();
        let cut = disk.after_power_cut(&mut Random::seeded(checkpoints));
        // Every other run closes the database.
        if checkpoints % 2 == 0 {
            engine.close().unwrap();
        }
        drop(engine);
        for disk in [killed, cut, disk] {
            let engine = open(&disk).unwrap();
            assert_eq!(state(&engine), *states.last().unwrap(), "checkpoints {checkpoints:b}");
            let mut tx = engine.begin();
            let items = table(&tx, "items");
            insert(&mut tx, &items, &item(1000));
            commit(tx);
            let expected = state(&engine);
            engine.close().unwrap();
            drop(engine);
            assert_eq!(state(&open(&disk).unwrap()), expected, "checkpoints {checkpoints:b}");
        }
    }
}

/// Lets the disk fail at every single operation of a checkpoint, then cuts the power.
#[test]
fn a_checkpoint_that_dies_at_any_point_leaves_a_whole_database() {
    let (mut failed, mut succeeded) = (0, 0);
    for operations in 0.. {
        let disk = SimulatedDisk::new();
        let engine = open(&disk).unwrap();
        let expected = workload(&engine, |step| {
            if step == 4 {
                engine.checkpoint().unwrap();
            }
        });
        let expected = expected.last().unwrap();
        let fault = if operations % 2 == 0 { Fault::Full } else { Fault::Broken };
        disk.fail_after_operations(operations, fault);
        let outcome = engine.checkpoint();
        disk.heal();
        for seed in 0..4 {
            let cut = disk.after_power_cut(&mut Random::seeded(seed));
            let recovered = open(&cut).unwrap_or_else(|error| panic!("{operations} {seed}: {error:?}"));
            assert_eq!(state(&recovered), *expected, "{operations} operations, seed {seed}");
        }
        match outcome {
            Ok(()) => succeeded += 1,
            Err(error) => {
                let code = if fault == Fault::Full { SqlState::DISK_FULL } else { SqlState::IO_ERROR };
                assert_eq!(error.state(), code, "{error:?}");
                failed += 1;
                // The database continues, and the next checkpoint succeeds.
                let mut tx = engine.begin();
                let items = table(&tx, "items");
                insert(&mut tx, &items, &item(2000));
                commit(tx);
                engine.checkpoint().unwrap();
                let after = state(&engine);
                let cut = disk.after_power_cut(&mut Random::seeded(operations));
                assert_eq!(state(&open(&cut).unwrap()), after);
            }
        }
        if succeeded == 3 {
            break;
        }
    }
    assert!(failed > 8, "{failed}");
}

#[test]
fn a_large_table_goes_into_several_files_even_by_one_thread() {
    let disk = SimulatedDisk::new();
    let open = || Engine::open_on(disk.clone(), Config { threads: 1, ..config() }).unwrap();
    let engine = open();
    let mut tx = engine.begin();
    let items = create_table(&mut tx, "items", &ITEM);
    (0..8_000).for_each(|key| {
        insert(&mut tx, &items, &item(key));
    });
    commit(tx);
    let before = state(&engine);
    engine.close().unwrap();
    drop(engine);
    let files = disk.list(&directory().join("checkpoint")).unwrap();
    assert!(files.len() > 2, "{files:?}");
    assert_eq!(state(&open()), before);
}

/// Transfers on several threads together with checkpoints, and repeated power cuts.
#[test]
fn power_cuts_under_load_lose_nothing_acknowledged_and_halve_nothing() {
    for seed in 0..3 {
        let disk = SimulatedDisk::new();
        disk.set_sync_time(Duration::from_micros(100));
        let engine =
            Engine::open_on(disk.clone(), Config { checkpoint_after_bytes: 20_000, ..config() }).unwrap();
        transfers::create_accounts(&engine, transfers::FEW);
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged: Arc<Vec<AtomicI64>> =
            Arc::new((0..transfers::THREADS).map(|_| AtomicI64::new(0)).collect());
        let workers: Vec<_> = (0..transfers::THREADS)
            .map(|number| {
                let engine = engine.clone();
                let (stop, acknowledged) = (stop.clone(), acknowledged.clone());
                thread::spawn("transfers", move || {
                    transfers::run(&engine, transfers::FEW, number, |count| {
                        acknowledged[number as usize].store(count, Ordering::SeqCst);
                        !stop.load(Ordering::Relaxed)
                    });
                })
            })
            .collect();
        let mut random = Random::seeded(seed);
        for _ in 0..25 {
            clock::sleep(Duration::from_millis(4));
            let safe: Vec<i64> = acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect();
            let cut = disk.after_power_cut(&mut random);
            let recovered = open(&cut).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            transfers::check(&recovered, &safe);
        }
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert!(acknowledged.iter().all(|count| count.load(Ordering::SeqCst) > 10));
        engine.close().unwrap();
    }
}

#[test]
fn every_type_with_and_without_nulls_survives_the_log_and_the_checkpoint() {
    let numeric = |precision, scale| SqlType::Numeric { precision, scale };
    let types = [
        SqlType::Integer,
        SqlType::Boolean,
        SqlType::SmallInt,
        SqlType::BigInt,
        SqlType::Real,
        SqlType::Double,
        numeric(12, 2),
        numeric(38, 10),
        SqlType::Text,
        SqlType::Varchar(Some(100)),
        SqlType::Char(3),
        SqlType::Bytea,
        SqlType::Date,
        SqlType::Time,
        SqlType::Timestamp,
        SqlType::TimestampTz,
        SqlType::Interval,
        SqlType::Uuid,
    ];
    let row = |key: i32, sign: i64| {
        vec![
            Value::Integer(key),
            Value::Boolean(sign > 0),
            Value::SmallInt(sign as i16),
            Value::BigInt(i64::MAX * sign),
            Value::Real(0.5 * sign as f32),
            Value::Double(1e300 * sign as f64),
            Value::Numeric { unscaled: 123_456_789_012 * i128::from(sign), scale: 2 },
            Value::Numeric { unscaled: (10i128.pow(38) - 1) * i128::from(sign), scale: 10 },
            Value::Text("ein längerer Text als zwölf Bytes".into()),
            Value::Text(String::new()),
            Value::Text("abc".into()),
            Value::Bytea([0, 255, 1].repeat(key as usize * 100)),
            Value::Date(-sign as i32),
            Value::Time(86_399_999_999),
            Value::Timestamp(sign * 1_000_000),
            Value::TimestampTz(-sign),
            Value::Interval(Interval { months: -1, days: 2, nanoseconds: -3000 * sign }),
            Value::Uuid([sign as u8; 16]),
        ]
    };
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    let mut tx = engine.begin();
    let columns: Vec<(SqlType, bool)> = types.iter().enumerate().map(|(at, ty)| (*ty, at > 0)).collect();
    let all = create_table(&mut tx, "all", &columns);
    insert(&mut tx, &all, &row(1, 1));
    insert(&mut tx, &all, &row(2, -1));
    let nulls: Vec<Value> =
        (0..types.len()).map(|at| if at == 0 { Value::Integer(3) } else { Value::Null }).collect();
    insert(&mut tx, &all, &nulls);
    // Enough rows for several batches of a file and several blocks.
    for key in 4..3000 {
        let mut row = nulls.clone();
        row[0] = Value::Integer(key);
        insert(&mut tx, &all, &row);
    }
    commit(tx);
    let expected = state(&engine);
    let killed = disk.after_kill();
    engine.close().unwrap();
    drop(engine);
    for disk in [killed, disk] {
        let engine = open(&disk).unwrap();
        assert!(state(&engine) == expected);
        engine.close().unwrap();
        drop(engine);
        assert!(state(&open(&disk).unwrap()) == expected);
    }
}

#[test]
fn a_sequence_never_gives_a_value_twice_and_loses_few() {
    let disk = SimulatedDisk::new();
    let mut engine = open(&disk).unwrap();
    let mut tx = engine.begin();
    let sequence = create_sequence(&mut tx, "s");
    commit(tx);
    let mut disk = disk;
    let mut last = 0;
    for round in 0..12 {
        for _ in 0..10 {
            let value = engine.next_value(&sequence).unwrap();
            assert!(value > last && value <= last + 40, "{value} after {last}");
            last = value;
        }
        if round % 3 == 1 {
            engine.checkpoint().unwrap();
            last = engine.next_value(&sequence).unwrap();
        }
        // A value counts as returned once something that was committed after it is durable.
        let mut tx = engine.begin();
        create_sequence(&mut tx, &format!("other{round}"));
        commit(tx);
        disk = disk.after_power_cut(&mut Random::seeded(round));
        engine = open(&disk).unwrap();
    }
    engine.set_value(&sequence, 7, false).unwrap();
    engine.checkpoint().unwrap();
    engine.close().unwrap();
    drop(engine);
    assert_eq!(open(&disk).unwrap().next_value(&sequence).unwrap(), 7);
}

#[test]
fn ids_are_not_given_again_after_reopening() {
    let disk = SimulatedDisk::new();
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..4 {
        let engine = open(&disk).unwrap();
        let mut tx = engine.begin();
        let created = create_table(&mut tx, &format!("t{round}"), &ITEM[..1]);
        assert!(seen.insert((0, created.id().0)));
        for table in tx.catalog().tables.values().filter(|table| table.name == format!("t{round}")) {
            assert!(seen.insert((1, table.oid.0)));
        }
        commit(tx);
        if round % 2 == 0 {
            engine.close().unwrap();
        }
    }
}

#[test]
fn a_table_that_has_not_changed_keeps_its_file() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    let mut tx = engine.begin();
    for name in ["one", "two"] {
        let table = create_table(&mut tx, name, &ITEM);
        insert(&mut tx, &table, &item(1));
    }
    commit(tx);
    engine.checkpoint().unwrap();
    let before = files(&disk, "checkpoint");
    assert_eq!(before.len(), 2);
    let change = |engine: &Arc<Engine>, key| {
        let mut tx = engine.begin();
        let one = table(&tx, "one");
        insert(&mut tx, &one, &item(key));
        commit(tx);
    };
    change(&engine, 2);
    engine.checkpoint().unwrap();
    let after = files(&disk, "checkpoint");
    assert_eq!(before.iter().filter(|path| after.contains(path)).count(), 1);

    // Also if the change was made before a crash and the checkpoint after it.
    change(&engine, 3);
    let expected = state(&engine);
    let killed = disk.after_kill();
    let engine = open(&killed).unwrap();
    engine.checkpoint().unwrap();
    let recovered = files(&killed, "checkpoint");
    assert_eq!(after.iter().filter(|path| recovered.contains(path)).count(), 1);
    assert_eq!(state(&open(&killed.after_kill()).unwrap()), expected);
}

#[test]
fn the_log_starts_a_checkpoint_when_it_has_grown_and_gets_shorter_by_it() {
    let disk = SimulatedDisk::new();
    let engine =
        Engine::open_on(disk.clone(), Config { checkpoint_after_bytes: 10_000, ..config() }).unwrap();
    let mut tx = engine.begin();
    let items = create_table(&mut tx, "items", &ITEM);
    commit(tx);
    let mut checkpoints = 0;
    let mut before = Vec::new();
    for key in 0..2000 {
        let mut tx = engine.begin();
        insert(&mut tx, &items, &item(key));
        commit(tx);
        let now = files(&disk, "checkpoint");
        checkpoints += usize::from(now != before);
        before = now;
        clock::sleep(Duration::from_micros(100));
    }
    assert!(checkpoints >= 3, "{checkpoints}");
    assert!(files(&disk, "log").len() < 20, "{:?}", files(&disk, "log"));
    assert_eq!(state(&open(&disk.after_kill()).unwrap()), state(&engine));
}

#[test]
fn a_database_on_real_files_reopens_and_keeps_others_out() {
    let root = std::env::temp_dir().join(format!("firn-durability-{}", std::process::id()));
    let config = Config { directory: Some(root.clone()), ..config() };
    let mut expected = State::new();
    for round in 0..3 {
        let engine = Engine::open(config.clone()).unwrap();
        assert_eq!(state(&engine), expected);
        assert_eq!(Engine::open(config.clone()).err().unwrap().state(), SqlState::OBJECT_IN_USE);
        let mut tx = engine.begin();
        let items = create_table(&mut tx, &format!("items{round}"), &ITEM);
        (0..50).for_each(|key| {
            insert(&mut tx, &items, &item(key));
        });
        commit(tx);
        expected = state(&engine);
        if round != 1 {
            engine.close().unwrap();
        }
    }
    // Any Arrow reader can open a checkpoint.
    let names = RealDisk.list(&root.join("checkpoint")).unwrap();
    let file = std::fs::File::open(root.join("checkpoint").join(&names[0])).unwrap();
    let batch = arrow_ipc::reader::FileReader::try_new(file, None).unwrap().next().unwrap().unwrap();
    assert_eq!((batch.num_rows(), batch.schema().field(0).name().as_str()), (50, "_rowid"));
    assert_eq!(batch.schema().field(1).name(), "c0");
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_database_in_memory_has_nothing_to_checkpoint() {
    let engine = Engine::open(Config { block_bytes: 1, ..Config::default() }).unwrap();
    workload(&engine, |_| engine.checkpoint().unwrap());
    engine.close().unwrap();
}
