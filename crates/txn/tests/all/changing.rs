//! Checkpoints read a table block by block while it changes: rows are inserted, changed, moved and deleted
//! meanwhile, and others take their places. The result is what the log contains.

use crate::cold_files::{ITEM, below, item, rows};
use crate::durable::*;
use firn_base::disk::{Disk, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::{ColumnId, Result, SqlState, Value, thread};
use firn_storage::arrow::values_to_array;
use firn_txn::{Config, Engine, Ticket, Transaction, pin};
use std::collections::BTreeMap;
use std::time::Duration;

type Model = BTreeMap<i32, Vec<Value>>;

/// Changes of one kind, by their keys; of a few rows, so that there are many commits during a checkpoint.
fn change(tx: &mut Transaction, model: &mut Model, next: &mut i32, random: &mut Random) -> Result<()> {
    let items = table(tx, "items");
    let (first, step) = (below(random, model.len().max(1) as u64) as usize, 1 + below(random, 3) as usize);
    let count = 1 + below(random, 60) as usize;
    let some: Vec<i32> = model.keys().copied().skip(first).step_by(step).take(count).collect();
    match below(random, if model.len() < 600 { 4 } else { 8 }) {
        0 | 1 => {
            let new: Vec<Vec<Value>> = (*next..*next + count as i32).map(|key| item(key, 0)).collect();
            *next += count as i32;
            let column = |number: usize| {
                let values: Vec<Value> = new.iter().map(|row| row[number].clone()).collect();
                values_to_array(&values, ITEM[number].0)
            };
            tx.insert_batch(&items, &[column(0), column(1), column(2)], &pin())?;
            model.extend((*next - count as i32..*next).zip(new));
        }
        2 => {
            let row = item(*next, 1);
            insert(tx, &items, &row);
            model.insert(*next, row);
            *next += 1;
        }
        kind => {
            for key in some {
                let row = find(tx, &items, &Value::Integer(key)).expect("the row exists");
                let (column, value) = match kind {
                    3 => (2, Value::Text(format!("a text of its own for the row of {key}, of {first}"))),
                    4 | 5 => (1, Value::BigInt(below(random, 1000) as i64)),
                    _ => {
                        tx.delete(&items, row, &pin())?;
                        model.remove(&key);
                        continue;
                    }
                };
                let number = usize::from(column);
                tx.update(&items, row, &[ColumnId(column)], &[value.as_cell(ITEM[number].0)], &pin())?;
                model.get_mut(&key).expect("the key exists")[number] = value;
            }
        }
    }
    Ok(())
}

/// A transaction that makes a change, and is repeated if it conflicts with one that moves rows.
fn changed(engine: &Arc<Engine>, model: &mut Model, next: &mut i32, random: &mut Random) -> Ticket {
    loop {
        let (mut new_model, mut new_next) = (model.clone(), *next);
        let mut tx = engine.begin();
        let outcome = change(&mut tx, &mut new_model, &mut new_next, random).and_then(|()| tx.commit());
        match outcome {
            Ok(ticket) => {
                (*model, *next) = (new_model, new_next);
                return ticket;
            }
            Err(error) => assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{error:?}"),
        }
    }
}

/// A database recovered from a checkpoint and the log can be changed, written by the next checkpoint, and
/// recovered again, any number of times. The next checkpoint keeps the files that it can.
fn goes_on(
    disk: &Arc<SimulatedDisk>,
    engine: Arc<Engine>,
    mut model: Model,
    mut next: i32,
    random: &mut Random,
) {
    let (mut disk, mut engine) = (disk.clone(), engine);
    for step in 0..6 {
        for _ in 0..3 {
            let ticket = changed(&engine, &mut model, &mut next, random);
            engine.wait(ticket).unwrap();
        }
        match step {
            1 | 3 => engine.checkpoint().unwrap(),
            _ => {
                engine.freeze(Duration::ZERO);
            }
        }
        disk = disk.after_power_cut(random);
        drop(engine);
        engine = open(&disk).unwrap();
        assert!(rows(&engine) == model, "after step {step}");
    }
}

/// The times in the manifest: up to which the rows include all commits, and up to which some.
fn shown(disk: &SimulatedDisk) -> (u64, u64) {
    let text = String::from_utf8((disk as &dyn Disk).read(&directory().join("MANIFEST")).unwrap()).unwrap();
    let body: serde_json::Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
    (body["time"].as_u64().unwrap(), body["until"].as_u64().unwrap())
}

#[test]
fn changes_of_every_kind_beside_checkpoints_are_neither_lost_nor_done_twice() {
    let (seeds, rounds) = if cfg!(miri) { (1, 2) } else { (4, 40) };
    let mut overlapping = 0;
    for seed in 0..seeds {
        let mut random = Random::seeded(seed);
        let disk = SimulatedDisk::new();
        disk.set_sync_time(Duration::from_micros(30));
        let engine = Engine::open_on(disk.clone(), Config { threads: 2, ..config() }).unwrap();
        let mut tx = engine.begin();
        create_table(&mut tx, "items", &ITEM);
        commit(tx);

        let stop = Arc::new(AtomicBool::new(false));
        type Work = fn(&Arc<Engine>);
        // With half of the seeds blocks are frozen and encoded meanwhile, and changed rows of encoded ones
        // are moved.
        let works: &[Work] = &[
            |engine| engine.checkpoint().unwrap(),
            |engine| {
                engine.freeze(Duration::ZERO);
                engine.compact(Duration::ZERO);
            },
        ];
        let works = &works[..1 + seed as usize % 2];
        let threads: Vec<_> = works
            .iter()
            .map(|work| {
                let (engine, stop) = (engine.clone(), stop.clone());
                thread::spawn("works", move || {
                    while !stop.load(Ordering::Relaxed) {
                        work(&engine);
                    }
                })
            })
            .collect();

        let (mut model, mut next) = (Model::new(), 0);
        for round in 0..rounds {
            // The states that may be found: the one after the last commit that was waited for, and those
            // after later ones.
            let mut states = vec![model.clone()];
            for _ in 0..25 {
                let ticket = changed(&engine, &mut model, &mut next, &mut random);
                if below(&mut random, 4) == 0 {
                    engine.wait(ticket).unwrap();
                    states.clear();
                }
                states.push(model.clone());
            }
            let cut = disk.after_power_cut(&mut random);
            let (time, until) = shown(&cut);
            overlapping += u32::from(until > time);
            let again = open(&cut).unwrap_or_else(|error| panic!("seed {seed}, {round}: {error:?}"));
            let recovered = rows(&again);
            assert!(
                states.contains(&recovered),
                "seed {seed}, round {round}: none of {} states",
                states.len()
            );
            if round % 8 == 0 {
                goes_on(&cut, again, recovered, next, &mut random);
            }
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(engine);
        assert!(rows(&open(&disk.after_kill()).unwrap()) == model, "seed {seed} at its end");
    }
    assert!(cfg!(miri) || overlapping > 10, "checkpoints met {overlapping} changes");
}
