//! The cost of compact blocks for reads and changes of single rows, and how much smaller they are: TPC-C's
//! order lines in hot, frozen and compact blocks, by their ids and by their keys. As in Funke, Kemper and
//! Neumann, "Compacting Transactional Data in Hybrid OLTP&OLAP Databases", VLDB 2012, sections 5.2 and 5.6.2.

use crate::schema::{TableSchema, tables};
use crate::temperature::{Temperature, cool};
use arrow_array::{ArrayRef, Int32Array, StringViewArray};
use firn_base::clock::now;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Result, RowId, SqlType};
use firn_storage::{IndexColumn, IndexId, IndexSpec, KeyBuffer};
use firn_txn::{Columns, Config, Engine, Key, Str, TableAccess, pin};
use std::collections::HashSet;
use std::hint::black_box;
use std::ops::Bound;
use std::time::Duration;

tables! {
    /// Found by their ids.
    lines {
        columns {
            order: Integer;
            number: Integer;
            item: Integer;
            quantity: Integer;
            amount: Integer;
            info: Text;
        }
        primary key ();
    }

    /// Found by their keys.
    keyed_lines {
        columns {
            order: Integer;
            number: Integer;
            item: Integer;
            quantity: Integer;
            amount: Integer;
            info: Text;
        }
        primary key (order, number);
    }
}

/// Lines of an order.
const LINES: i32 = 10;
/// Orders that are changed, as in Funke et al.
const CHANGED_ORDERS: usize = 10_000;
/// Rows that are read.
const READ: usize = 1_000_000;
/// Different strings.
const INFOS: i64 = 1 << 15;

/// What it cost.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Reading three columns of a random row by its id, in nanoseconds: twice numbers and a string.
    pub read: f64,
    /// The same by key.
    pub find: f64,
    /// Changing one column of the ten lines of so many random orders, by id.
    pub update: Duration,
    /// The same by key, in a table with an index.
    pub update_by_key: Duration,
    /// Bytes of a row, before the changes.
    pub row_bytes: f64,
    /// An index over the strings, with values.
    pub with_values: IndexCosts,
    /// The same without.
    pub without_values: IndexCosts,
}

/// What an index over strings costs.
#[derive(Clone, Copy, Debug)]
pub struct IndexCosts {
    /// Bytes for each row.
    pub row_bytes: f64,
    /// Finding the first row with a random string, in nanoseconds.
    pub find: f64,
}

/// A column of numbers, which is changed.
type Number = (i32,);
/// What is read.
type Shown = (i32, i32, Str);

struct Bench {
    engine: Arc<Engine>,
    table: TableAccess,
    quantity: Columns<Number>,
    shown: Columns<Shown>,
    orders: i32,
    temperature: Temperature,
}

/// Measures it with so many orders.
pub fn run(temperature: Temperature, orders: i32) -> Result<Costs> {
    let by_id = Bench::load(&lines::SCHEMA, temperature, orders)?;
    let row_bytes = by_id.table.table().memory_bytes() as f64 / f64::from(orders * LINES);
    let ids = by_id.rows();
    let read = by_id.read(&ids);
    let update = by_id.update(&ids)?;
    drop(by_id);
    let by_key = Bench::load(&keyed_lines::SCHEMA, temperature, orders)?;
    let key = by_key.table.key::<(i32, i32)>("keyed_lines_pkey")?;
    let find = by_key.find(&key);
    let update_by_key = by_key.update_by_key(&key)?;
    drop(by_key);
    let indexed = Bench::load(&lines::SCHEMA, temperature, orders)?;
    let (with_values, without_values) = (indexed.index(true)?, indexed.index(false)?);
    Ok(Costs { read, find, update, update_by_key, row_bytes, with_values, without_values })
}

impl Bench {
    fn load(schema: &'static TableSchema, temperature: Temperature, orders: i32) -> Result<Bench> {
        let never = Config { freeze_after: None, compact_after: None, ..Config::default() };
        let engine = Engine::open(never)?;
        schema.create(&engine)?;
        let table = TableAccess::open(&engine, schema.name)?;
        let (quantity, shown) =
            (table.columns(&["quantity"])?, table.columns(&["quantity", "amount", "info"])?);
        let bench = Bench { engine, table, quantity, shown, orders, temperature };
        let random = &mut Random::seeded(1);
        let infos = infos(random);
        const AT_ONCE: i32 = 1000;
        for first in (0..orders).step_by(AT_ONCE as usize) {
            let rows = first * LINES..orders.min(first + AT_ONCE) * LINES;
            let numbers = |of: &mut dyn FnMut(i32) -> i32| -> ArrayRef {
                Arc::new(Int32Array::from_iter_values(rows.clone().map(of)))
            };
            let mut columns = vec![numbers(&mut |row| row / LINES), numbers(&mut |row| row % LINES)];
            for most in [100_000, 10, 999_999] {
                columns.push(numbers(&mut |_| random.uniform(1, most) as i32));
            }
            let info = |_| &infos[random.uniform(0, INFOS - 1) as usize];
            columns.push(Arc::new(StringViewArray::from_iter_values(rows.clone().map(info))));
            let mut tx = bench.engine.begin();
            tx.insert_batch(bench.table.table(), &columns, &pin())?;
            let _in_memory = tx.commit()?;
        }
        cool(&bench.engine, temperature);
        Ok(bench)
    }

    /// All rows, in the order of their keys.
    fn rows(&self) -> Vec<RowId> {
        let reader = self.engine.begin_read_only();
        let scan = self.table.table().scan(reader.snapshot(), &[], true);
        let batches = std::iter::from_fn(|| scan.next_batch(&pin()));
        batches
            .flat_map(|batch| batch.row_ids.expect("asked for").values().to_vec())
            .map(RowId::from_bits)
            .collect()
    }

    /// Nanoseconds of each of many calls with random rows, by their number.
    fn each_random_row(&self, mut read: impl FnMut(i32)) -> f64 {
        let random = &mut Random::seeded(2);
        let rows: Vec<i32> =
            (0..READ).map(|_| random.uniform(0, i64::from(self.orders * LINES) - 1) as i32).collect();
        let start = now();
        rows.iter().for_each(|row| read(*row));
        start.elapsed().as_nanos() as f64 / READ as f64
    }

    fn read(&self, ids: &[RowId]) -> f64 {
        let tx = self.engine.begin_read_only();
        let guard = pin();
        self.each_random_row(|row| {
            let shown = tx.read_as(&self.shown, ids[row as usize], &guard);
            let (quantity, amount, info) = shown.expect("it is there");
            black_box((quantity, amount, info.len()));
        })
    }

    fn find(&self, key: &Key<(i32, i32)>) -> f64 {
        let tx = self.engine.begin_read_only();
        let guard = pin();
        self.each_random_row(|row| {
            let shown = tx.find_as(key, &(row / LINES, row % LINES), &self.shown, &guard);
            let (_, (quantity, amount, info)) = shown.expect("it is there");
            black_box((quantity, amount, info.len()));
        })
    }

    /// Makes an index over the strings and looks for random ones.
    fn index(&self, values: bool) -> Result<IndexCosts> {
        let table = self.table.table();
        let info = IndexColumn {
            column: ColumnId(5),
            representation: SqlType::Text.into(),
            nullable: false,
            descending: false,
            nulls_first: false,
        };
        let id = IndexId(if values { 1 << 20 } else { 2 << 20 });
        let name = format!("lines_info_{values}");
        let mut tx = self.engine.begin();
        tx.create_index(table, IndexSpec { id, name, columns: vec![info], unique: false, values }, 2)?;
        let _in_memory = tx.commit()?;
        if self.temperature == Temperature::Compact {
            // Once to take what is compact, and once to forget its keys.
            for _ in 0..2 {
                self.engine.compact(Duration::ZERO);
            }
        }
        let indexes = table.indexes();
        let index = indexes.iter().find(|index| index.spec().id == id).expect("it was just made");
        let infos = infos(&mut Random::seeded(1));
        let tx = self.engine.begin_read_only();
        let guard = pin();
        let mut key = KeyBuffer::new();
        let find = self.each_random_row(|row| {
            key.clear();
            index.encode(&[Cell::text(&infos[row as usize % infos.len()])], &mut key);
            let only = Bound::Included(&key[..]);
            tx.range(table, index, only, only, false, &guard, &mut |found| {
                black_box(found);
                false
            });
        });
        Ok(IndexCosts { row_bytes: index.held_bytes() as f64 / f64::from(self.orders * LINES), find })
    }

    fn changed_orders(&self) -> Vec<i32> {
        let random = &mut Random::seeded(3);
        (0..CHANGED_ORDERS).map(|_| random.uniform(0, i64::from(self.orders) - 1) as i32).collect()
    }

    fn update(&self, ids: &[RowId]) -> Result<Duration> {
        // One that comes twice is somewhere else by then.
        let mut seen = HashSet::new();
        let mut orders = self.changed_orders();
        orders.retain(|order| seen.insert(*order));
        let start = now();
        for order in orders {
            let mut tx = self.engine.begin();
            let guard = pin();
            for line in 0..LINES {
                tx.update_as(&self.quantity, ids[(order * LINES + line) as usize], &(11,), &guard)?;
            }
            drop(guard);
            let _in_memory = tx.commit()?;
        }
        Ok(start.elapsed())
    }

    fn update_by_key(&self, key: &Key<(i32, i32)>) -> Result<Duration> {
        let orders = self.changed_orders();
        let start = now();
        for order in orders {
            let mut tx = self.engine.begin();
            let guard = pin();
            for line in 0..LINES {
                let found = tx.find_as(key, &(order, line), &self.quantity, &guard);
                let (row, (quantity,)) = found.expect("it is there");
                tx.update_as(&self.quantity, row, &(quantity + 1,), &guard)?;
            }
            drop(guard);
            let _in_memory = tx.commit()?;
        }
        Ok(start.elapsed())
    }
}

fn infos(random: &mut Random) -> Vec<String> {
    (0..INFOS).map(|_| format!("{:024x}", random.next_u64())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_changed_whatever_they_lie_in() {
        for temperature in Temperature::ALL {
            let costs = run(temperature, 5_000).unwrap();
            let is_smaller = costs.without_values.row_bytes < costs.with_values.row_bytes;
            assert_eq!(is_smaller, temperature == Temperature::Compact, "{costs:?}");
            assert!(costs.read > 0.0 && costs.find > 0.0 && costs.row_bytes > 0.0, "{costs:?}");
        }
    }
}
