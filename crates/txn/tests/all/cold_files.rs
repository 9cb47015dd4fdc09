//! Cold blocks are written by one checkpoint and kept by those after it, whatever happens to them meanwhile.

use crate::durable::*;
use crate::transfers;
use firn_base::disk::{Disk, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, AtomicI64, Ordering};
use firn_base::{SqlType, Value, clock, thread};
use firn_storage::BlockState;
use firn_txn::{Config, Engine, Progress, pin};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub const ITEM: [(SqlType, bool); 3] =
    [(SqlType::Integer, false), (SqlType::BigInt, true), (SqlType::Text, true)];

pub fn item(key: i32, number: i64) -> Vec<Value> {
    let text = match key % 3 {
        0 => Value::Null,
        1 => Value::Text("short".into()),
        _ => Value::Text(format!("a text too long to lie in its view {key}")),
    };
    vec![Value::Integer(key), Value::BigInt(number), text]
}

/// The rows of the table by their keys, without their places, which may change.
pub fn rows(engine: &Arc<Engine>) -> BTreeMap<i32, Vec<Value>> {
    let (_, rows) = state(engine).remove("items").expect("the table exists");
    let keyed = rows.into_values().map(|row| match row[0] {
        Value::Integer(key) => (key, row),
        _ => unreachable!("the first column is an integer"),
    });
    keyed.collect()
}

fn freeze(engine: &Arc<Engine>) {
    for _ in 0..3 {
        while engine.freeze(Duration::ZERO) != Progress::Done {
            // Guards of other tests may prevent it.
            pin().flush();
            std::thread::yield_now();
        }
    }
}

fn blocks(engine: &Arc<Engine>, state: BlockState) -> usize {
    let tx = engine.begin();
    table(&tx, "items").block_usage().filter(|block| block.state == state && block.rows > 0).count()
}

/// A table with `count` rows, in frozen blocks except for the last.
fn frozen_items(disk: &Arc<SimulatedDisk>, count: i32) -> Arc<Engine> {
    let engine = open(disk).unwrap();
    let mut tx = engine.begin();
    let items = create_table(&mut tx, "items", &ITEM);
    for key in 0..count {
        insert(&mut tx, &items, &item(key, 0));
    }
    commit(tx);
    let all = table(&engine.begin(), "items").block_usage().count();
    while blocks(&engine, BlockState::Frozen) < all - 1 {
        freeze(&engine);
    }
    engine
}

fn file_names(disk: &SimulatedDisk) -> BTreeSet<String> {
    disk.list(&directory().join("checkpoint")).unwrap().into_iter().collect()
}

fn checkpoint_bytes(disk: &SimulatedDisk, names: impl Iterator<Item = String>) -> u64 {
    names.map(|name| disk.open(&directory().join("checkpoint").join(name)).unwrap().len().unwrap()).sum()
}

#[test]
fn what_remains_cold_is_written_once_also_after_reopening() {
    let disk = SimulatedDisk::new();
    let mut engine = frozen_items(&disk, 20_000);
    engine.checkpoint().unwrap();
    for round in 0..6 {
        let before = file_names(&disk);
        let mut tx = engine.begin();
        let items = table(&tx, "items");
        insert(&mut tx, &items, &item(20_000 + round, 1));
        commit(tx);
        engine.checkpoint().unwrap();
        let new = checkpoint_bytes(&disk, file_names(&disk).difference(&before).cloned());
        let all = checkpoint_bytes(&disk, file_names(&disk).into_iter());
        assert!(new < all / 4, "{new} of {all} bytes are new in round {round}");
        let expected = rows(&engine);
        if round % 2 == 1 {
            let frozen = blocks(&engine, BlockState::Frozen);
            engine.close().unwrap();
            drop(engine);
            engine = open(&disk).unwrap();
            assert!(blocks(&engine, BlockState::Frozen) + 2 >= frozen, "they are frozen again at once");
        }
        assert!(rows(&engine) == expected);
    }
}

#[test]
fn blocks_that_were_changed_are_written_again_and_files_of_few_go() {
    let disk = SimulatedDisk::new();
    let engine = frozen_items(&disk, 20_000);
    engine.checkpoint().unwrap();
    let first = file_names(&disk);
    // One row of every third of the table, and then one of each block.
    for step in [7_000, 1_000, 100] {
        let mut tx = engine.begin();
        let items = table(&tx, "items");
        (0..20_000).step_by(step).for_each(|key| {
            update(&mut tx, &items, &Value::Integer(key), 1, &Value::BigInt(step as i64));
        });
        commit(tx);
        engine.checkpoint().unwrap();
        let expected = rows(&engine);
        let killed = open(&disk.after_kill()).unwrap();
        assert!(rows(&killed) == expected, "after one row of {step}");
    }
    assert!(file_names(&disk).is_disjoint(&first), "none of the first files has a block that still counts");
}

/// Inserts twice as much as fits without encoding, and lets it become cold.
#[test]
fn what_fits_the_memory_only_when_it_is_compact_is_opened_compact() {
    const WIDE: i32 = 40;
    let disk = SimulatedDisk::new();
    let columns = [vec![(SqlType::Integer, false)], vec![(SqlType::BigInt, false); WIDE as usize]].concat();
    let row = |key: i32| {
        let numbers = (0..WIDE).map(|column| Value::BigInt(i64::from(column) << 40));
        [Value::Integer(key)].into_iter().chain(numbers).collect::<Vec<Value>>()
    };
    let engine = open(&disk).unwrap();
    let mut tx = engine.begin();
    let items = create_table(&mut tx, "items", &columns);
    let mut keys = 0;
    while items.block_usage().count() <= 24 {
        insert(&mut tx, &items, &row(keys));
        keys += 1;
    }
    commit(tx);
    freeze(&engine);
    engine.compact(Duration::ZERO);
    assert!(blocks(&engine, BlockState::Compact) >= 24, "most blocks are compact");
    // Every third has gaps, since rows of it are deleted meanwhile.
    let mut tx = engine.begin();
    let of_a_third = (0..keys).filter(|key| key / 1024 % 3 == 0 && key % 5 == 0);
    of_a_third.for_each(|key| delete(&mut tx, &items, &Value::Integer(key)));
    commit(tx);
    // Changes after the checkpoint are replayed from the log into blocks that are compact by then.
    engine.checkpoint().unwrap();
    let mut tx = engine.begin();
    for key in (1..keys).step_by(1505) {
        delete(&mut tx, &items, &Value::Integer(key));
        update(&mut tx, &items, &Value::Integer(key + 1), 1, &Value::BigInt(7));
    }
    commit(tx);
    let expected = rows(&engine);
    let raw: u64 = items.block_usage().map(|usage| usage.raw_bytes).sum();
    drop((items, engine));

    let limit = raw / 2;
    let limited = Config { memory_limit: Some(limit), threads: 1, ..config() };
    let engine = Engine::open_on(disk.after_kill(), limited).unwrap();
    // Fewer than an eighth of them wait until a merge pays.
    assert!(blocks(&engine, BlockState::Compact) >= 20, "they are compact again");
    assert!(engine.memory().total() < limit, "{} of {limit}", engine.memory().total());
    assert!(rows(&engine) == expected);
    let mut tx = engine.begin();
    let items = table(&tx, "items");
    insert(&mut tx, &items, &row(keys));
    commit(tx);
    // Without a limit opening does not wait for that.
    let engine = open(&disk.after_kill()).unwrap();
    assert_eq!(blocks(&engine, BlockState::Compact), 0);
    assert!(rows(&engine) == expected);
}

/// In any state of the blocks, checkpoints and the log together contain what was committed.
#[test]
fn checkpoints_of_blocks_of_all_temperatures_hold_what_was_committed() {
    let seeds = if cfg!(miri) { 1 } else { 12 };
    let mut opened_compact = 0;
    for seed in 0..seeds {
        let mut random = Random::seeded(seed);
        let disk = SimulatedDisk::new();
        let options = Config { compact_after: Some(Duration::ZERO), ..config() };
        let open = |disk: &Arc<SimulatedDisk>| Engine::open_on(disk.clone(), options.clone()).unwrap();
        let mut disk = disk;
        let mut engine = open(&disk);
        let mut tx = engine.begin();
        create_table(&mut tx, "items", &ITEM);
        commit(tx);
        let mut model: BTreeMap<i32, Vec<Value>> = BTreeMap::new();
        let mut next = 0;
        for _ in 0..60 {
            match below(&mut random, 12) {
                0..=2 => {
                    let mut tx = engine.begin();
                    let items = table(&tx, "items");
                    for _ in 0..below(&mut random, 3000) {
                        let row = item(next, 0);
                        insert(&mut tx, &items, &row);
                        model.insert(next, row);
                        next += 1;
                    }
                    commit(tx);
                }
                kind @ 3..=5 => {
                    let keys: Vec<i32> = model.keys().copied().collect();
                    let mut tx = engine.begin();
                    let items = table(&tx, "items");
                    let first = below(&mut random, keys.len().max(1) as u64) as usize;
                    let step = 1 + below(&mut random, 50) as usize;
                    let keep = below(&mut random, 4) > 0;
                    for key in keys.iter().skip(first).step_by(step).take(300) {
                        if kind == 3 {
                            delete(&mut tx, &items, &Value::Integer(*key));
                            keep.then(|| model.remove(key));
                        } else {
                            let number = Value::BigInt(below(&mut random, 1000) as i64);
                            update(&mut tx, &items, &Value::Integer(*key), 1, &number);
                            keep.then(|| model.get_mut(key).expect("the key exists")[1] = number);
                        }
                    }
                    if keep { commit(tx) } else { drop(tx) }
                }
                6 | 7 => freeze(&engine),
                8 => {
                    freeze(&engine);
                    engine.compact(Duration::ZERO);
                }
                9 => engine.checkpoint().unwrap(),
                10 => {
                    // One with uncommitted deletes of another transaction, which must not matter.
                    let mut tx = engine.begin();
                    let items = table(&tx, "items");
                    let keys = model.keys().step_by(97).take(50);
                    keys.for_each(|key| delete(&mut tx, &items, &Value::Integer(*key)));
                    engine.checkpoint().unwrap();
                    if below(&mut random, 2) > 0 {
                        commit(tx);
                        model = model.into_iter().enumerate().fold(BTreeMap::new(), |mut left, (at, row)| {
                            if at % 97 != 0 || at / 97 >= 50 {
                                left.insert(row.0, row.1);
                            }
                            left
                        });
                    }
                }
                _ => {
                    let reopened = match below(&mut random, 3) {
                        0 => disk.after_kill(),
                        1 => disk.after_power_cut(&mut random),
                        _ => {
                            engine.close().unwrap();
                            disk.clone()
                        }
                    };
                    drop(engine);
                    disk = reopened;
                    // Without any room, all full blocks become compact before the log is read.
                    let short = Config { memory_limit: Some(1), ..options.clone() };
                    let tight = Engine::open_on(disk.after_kill(), short).unwrap();
                    opened_compact += blocks(&tight, BlockState::Compact);
                    assert!(rows(&tight) == model, "seed {seed} after reopening without room");
                    drop(tight);
                    engine = open(&disk);
                    assert!(rows(&engine) == model, "seed {seed} after reopening");
                }
            }
        }
        assert!(rows(&engine) == model, "seed {seed} at its end");
        assert!(rows(&open(&disk.after_kill())) == model, "seed {seed} reopened at its end");
    }
    assert!(opened_compact > 0 || cfg!(miri), "blocks are compact before the log is read");
}

/// Transfers together with the freezer, the merger and checkpoints, none of which waits for another, and
/// power cuts.
#[test]
fn power_cuts_beside_everything_that_moves_rows_lose_nothing_and_halve_nothing() {
    const ACCOUNTS: i32 = 4000;
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    transfers::create_accounts(&engine, ACCOUNTS);
    let stop = Arc::new(AtomicBool::new(false));
    let rest = Arc::new(AtomicBool::new(false));
    let acknowledged: Arc<Vec<AtomicI64>> =
        Arc::new((0..transfers::THREADS).map(|_| AtomicI64::new(0)).collect());
    let mut threads: Vec<_> = (0..transfers::THREADS)
        .map(|number| {
            let (engine, stop, rest) = (engine.clone(), stop.clone(), rest.clone());
            let acknowledged = acknowledged.clone();
            thread::spawn("transfers", move || {
                transfers::run(&engine, ACCOUNTS, number, |count| {
                    acknowledged[number as usize].store(count, Ordering::SeqCst);
                    while rest.load(Ordering::Relaxed) {
                        clock::sleep(Duration::from_micros(500));
                    }
                    !stop.load(Ordering::Relaxed)
                });
            })
        })
        .collect();
    type Work = fn(&Arc<Engine>);
    let works: [Work; 3] = [
        |engine| {
            engine.freeze(Duration::ZERO);
        },
        |engine| {
            engine.compact(Duration::ZERO);
        },
        |engine| engine.checkpoint().unwrap(),
    ];
    for work in works {
        let (engine, stop) = (engine.clone(), stop.clone());
        threads.push(thread::spawn("works", move || {
            while !stop.load(Ordering::Relaxed) {
                work(&engine);
                clock::sleep(Duration::from_micros(500));
            }
        }));
    }
    let mut random = Random::seeded(1);
    let mut check = || {
        let safe: Vec<i64> = acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        let recovered = open(&disk.after_power_cut(&mut random)).unwrap();
        transfers::check(&recovered, &safe);
        let accounts = table(&recovered.begin(), "accounts");
        accounts.block_usage().any(|block| block.state == BlockState::Frozen)
    };
    for _ in 0..4 {
        for _ in 0..10 {
            clock::sleep(Duration::from_millis(10));
            check();
        }
        // One transfer at a time until a checkpoint has found cold blocks. Without any transfer there would
        // be nothing to write.
        rest.store(true, Ordering::Relaxed);
        let begin = clock::now();
        while !check() {
            assert!(begin.elapsed() < Duration::from_secs(60), "no checkpoint meets a cold block");
            transfers::run(&engine, ACCOUNTS, 0, |count| {
                acknowledged[0].store(count, Ordering::SeqCst);
                false
            });
        }
        rest.store(false, Ordering::Relaxed);
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    engine.close().unwrap();
}

pub fn below(random: &mut Random, end: u64) -> u64 {
    random.uniform(0, end as i64 - 1) as u64
}
