//! Rows alone, without a workload: how fast one thread inserts and changes them (as in Mühlbauer, dissertation, TU München
//! 2016, table 2.2), and what versions cost a scan (its figures 2.8 to 2.10). Without a log.

use crate::schema::tables;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, Int32Array};
use firn_base::clock::now;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Result, RowId};
use firn_storage::Table;
use firn_txn::{Columns, Config, Engine, TableAccess, Transaction, pin};
use std::time::Duration;

tables! {
    /// Ten integers.
    tens {
        columns {
            a: Integer;
            b: Integer;
            c: Integer;
            d: Integer;
            e: Integer;
            f: Integer;
            g: Integer;
            h: Integer;
            i: Integer;
            j: Integer;
        }
        primary key ();
    }

    /// Two integers.
    pairs {
        columns {
            x: Integer;
            y: Integer;
        }
        primary key ();
    }

    /// Two integers.
    changed_pairs {
        columns {
            x: Integer;
            y: Integer;
        }
        primary key ();
    }
}

/// The number of changes of one transaction. Each is still a call, a version and an undo record of its own.
pub const CHANGES_PER_TRANSACTION: usize = 100;

/// Millions of operations a second.
#[derive(Clone, Copy, Debug)]
pub struct Writes {
    /// Inserts of a row.
    pub inserts: f64,
    /// Updates of one attribute of random rows.
    pub updates_of_one: f64,
    /// Of five.
    pub updates_of_five: f64,
    /// Of all ten.
    pub updates_of_ten: f64,
    /// Deletes of a random row followed by an insert, together.
    pub delete_inserts: f64,
}

/// Inserts `rows` rows and changes a tenth as many in each way.
pub fn writes(rows: usize) -> Result<Writes> {
    let engine = Engine::open(Config::default())?;
    tens::SCHEMA.create(&engine)?;
    let access = TableAccess::open(&engine, tens::SCHEMA.name)?;
    let whole = access.all_columns::<[i32; 10]>()?;
    let inserted =
        per_second(&engine, rows, |tx, number| tx.insert_as(&whole, &[number as i32; 10], &pin()).map(drop))?;

    let ids = row_ids(access.table());
    let changes = (rows / 10).max(1);
    let random = &mut Random::seeded(1);
    let mut any = || ids[random.uniform(0, ids.len() as i64 - 1) as usize];
    let one = access.columns::<[i32; 1]>(&["d"])?;
    let five = access.columns::<[i32; 5]>(&["b", "c", "d", "e", "f"])?;
    let mut update = |columns: &dyn Fn(&mut firn_txn::Transaction, RowId, i32) -> Result<()>| {
        per_second(&engine, changes, |tx, number| columns(tx, any(), number as i32))
    };
    let updates_of_one = update(&|tx, row, value| tx.update_as(&one, row, &[value], &pin()))?;
    let updates_of_five = update(&|tx, row, value| tx.update_as(&five, row, &[value; 5], &pin()))?;
    let updates_of_ten = update(&|tx, row, value| tx.update_as(&whole, row, &[value; 10], &pin()))?;

    // Every row once: a deleted row cannot be deleted again.
    let mut left = ids.clone();
    let delete_inserts = per_second(&engine, changes, |tx, number| {
        let gone = left.swap_remove(random.uniform(0, left.len() as i64 - 1) as usize);
        tx.delete_as(&whole, gone, &pin())?;
        tx.insert_as(&whole, &[number as i32; 10], &pin()).map(drop)
    })?;
    Ok(Writes { inserts: inserted, updates_of_one, updates_of_five, updates_of_ten, delete_inserts })
}

/// Runs an operation so often, and returns how often a second, in millions.
fn per_second(
    engine: &Arc<Engine>,
    times: usize,
    mut work: impl FnMut(&mut firn_txn::Transaction, usize) -> Result<()>,
) -> Result<f64> {
    let start = now();
    let mut done = 0;
    while done < times {
        let end = times.min(done + CHANGES_PER_TRANSACTION);
        let mut tx = engine.begin();
        for number in done..end {
            work(&mut tx, number)?;
        }
        let _in_memory = tx.commit()?;
        done = end;
    }
    Ok(times as f64 / start.elapsed().as_secs_f64() / 1e6)
}

/// The ids of all rows, by a scan.
fn row_ids(table: &Arc<Table>) -> Vec<RowId> {
    let newest =
        firn_base::Snapshot { read_time: firn_base::Time::LATEST, owner: firn_base::Stamp::transaction(0) };
    let scan = table.scan(newest, &[], true);
    let mut ids = Vec::new();
    while let Some(batch) = scan.next_batch(&pin()) {
        ids.extend(batch.row_ids.expect("asked for").values().iter().map(|id| RowId::from_bits(*id)));
    }
    ids
}

/// How long one thread takes to add up all numbers of a table of pairs; medians.
#[derive(Clone, Copy, Debug)]
pub struct Scans {
    /// Rows.
    pub rows: usize,
    /// A loop over two arrays.
    pub arrays: Duration,
    /// A fold of rows without versions, in place.
    pub clean: Duration,
    /// The same by a snapshot for which rows are hidden that others have changed since, four times each:
    /// 0.01 % of them.
    pub dirty: Duration,
    /// A scan of rows without versions that returns slices, which are copies.
    pub slices: Duration,
    /// A scan of rows without versions that returns Arrow batches, as for SQL.
    pub batches: Duration,
    /// A loop over the ids of all rows that checks the versions of each.
    pub row_by_row: Duration,
}

/// Loads `rows` pairs and adds them up `runs` times in each way, one after another.
pub fn scans(rows: usize, runs: usize) -> Result<Scans> {
    // One remains as loaded, of the other some rows are changed.
    let engine = Engine::open(Config::default())?;
    pairs::SCHEMA.create(&engine)?;
    changed_pairs::SCHEMA.create(&engine)?;
    let access = TableAccess::open(&engine, pairs::SCHEMA.name)?;
    let changed = TableAccess::open(&engine, changed_pairs::SCHEMA.name)?;
    const BATCH: usize = 1 << 20;
    let mut arrays: [Vec<i32>; 2] = [Vec::with_capacity(rows), Vec::with_capacity(rows)];
    let mut random = Random::seeded(2);
    while arrays[0].len() < rows {
        let count = BATCH.min(rows - arrays[0].len());
        let columns: Vec<ArrayRef> = arrays
            .iter_mut()
            .map(|array| {
                let start = array.len();
                array.extend((0..count).map(|_| random.next_u64() as i32));
                Arc::new(Int32Array::from_iter_values(array[start..].iter().copied())) as ArrayRef
            })
            .collect();
        for table in [access.table(), changed.table()] {
            let mut tx = engine.begin();
            tx.insert_batch(table, &columns, &pin())?;
            let _in_memory = tx.commit()?;
        }
    }
    let expected: i64 = arrays.iter().map(|array| add(array)).sum();

    let both: Columns<(i32, i32)> = access.all_columns()?;
    let changed_both: Columns<(i32, i32)> = changed.all_columns()?;
    let fold = |tx: &Transaction, columns| {
        tx.fold_as(columns, 0, |sum: &mut i64, (x, y)| *sum += i64::from(x) + i64::from(y))
    };
    // The versions of the load are collected, and the first scan finds that there are none.
    while engine.garbage_backlog() > 0 {
        firn_base::clock::sleep(Duration::from_millis(20));
    }
    let reader = engine.begin_read_only();
    for _ in 0..3 {
        fold(&reader, &both);
        fold(&reader, &changed_both);
        firn_base::clock::sleep(Duration::from_millis(50));
    }
    let ids = row_ids(access.table());
    let changed_ids = row_ids(changed.table());
    for _ in 0..rows / 10_000 {
        let row = changed_ids[random.uniform(0, rows as i64 - 1) as usize];
        for value in 0..4 {
            let mut tx = engine.begin();
            tx.update_as(&changed_both, row, &(value, value), &pin())?;
            let _in_memory = tx.commit()?;
        }
    }
    drop(changed_ids);

    let ways: [&dyn Fn() -> i64; 6] = [
        &|| arrays.iter().map(|array| add(array)).sum(),
        &|| fold(&reader, &both),
        &|| fold(&reader, &changed_both),
        &|| {
            let mut sum = 0;
            reader.scan_as(&both, |(x, y)| sum += add(x) + add(y));
            sum
        },
        &|| {
            let scan = access.table().scan(reader.snapshot(), both.projection().columns(), false);
            let mut sum = 0;
            while let Some(batch) = scan.next_batch(&pin()) {
                let numbers = |column: &ArrayRef| add(column.as_primitive::<Int32Type>().values());
                sum += batch.columns.iter().map(numbers).sum::<i64>();
            }
            sum
        },
        &|| {
            let (guard, table) = (&pin(), access.table());
            let read = |row: &RowId| {
                let (x, y) =
                    table.read_as(reader.snapshot(), *row, both.projection(), guard).expect("it is there");
                i64::from(x) + i64::from(y)
            };
            ids.iter().map(read).sum()
        },
    ];
    let mut times = [const { Vec::new() }; 6];
    for _ in 0..runs {
        for (way, times) in ways.iter().zip(&mut times) {
            let start = now();
            assert_eq!(way(), expected, "every way sees the same rows");
            times.push(start.elapsed());
        }
    }
    let [arrays, clean, dirty, slices, batches, row_by_row] =
        times.map(|mut times| crate::median(&mut times));
    Ok(Scans { rows, arrays, clean, dirty, slices, batches, row_by_row })
}

/// The sum of numbers.
fn add(numbers: &[i32]) -> i64 {
    numbers.iter().map(|number| i64::from(*number)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_scanning_adds_up_the_same() {
        let scans = scans(50_000, 1).unwrap();
        assert!(scans.arrays > Duration::ZERO && scans.dirty > Duration::ZERO);
    }

    #[test]
    fn every_kind_of_change_is_done() {
        let writes = writes(5_000).unwrap();
        assert!(writes.inserts > 0.0 && writes.delete_inserts > 0.0);
    }
}
