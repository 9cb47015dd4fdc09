//! The workload over the transaction API, without SQL: what a stored procedure compiled to machine code
//! would do. Every list is one row.

use super::history::{Ended, Found, complete};
use super::trial::Transactions;
use super::workload::{Manner, Step, Way, group};
use adya::Workload;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, ColumnSet, Result, RowId, SqlState, SqlType};
use firn_session::Database;
use firn_storage::{Index, KeyBuffer, Table, summary};
use firn_txn::{Engine, Isolation, Restriction, RowLock, Transaction, pin};
use std::ops::Bound;

const SCHEMA: [&str; 2] = [
    "CREATE TABLE lists (key bigint PRIMARY KEY, grp bigint NOT NULL, version bigint NOT NULL, wide bigint NOT NULL, \
     elements text NOT NULL)",
    "CREATE INDEX lists_group ON lists (grp, version)",
];
const KEY: ColumnId = ColumnId(0);
const VERSION: ColumnId = ColumnId(2);
/// The key again, without an index.
const WIDE: ColumnId = ColumnId(3);
const ELEMENTS: ColumnId = ColumnId(4);
const LOCKS: [RowLock; 4] = [RowLock::Update, RowLock::NoKeyUpdate, RowLock::Share, RowLock::KeyShare];
/// How often a statement is tried that conflicts with other transactions.
const ATTEMPTS: u32 = 20;

/// The table of lists, or of registers.
pub struct Lists {
    engine: Arc<Engine>,
    table: Arc<Table>,
    by_key: Arc<Index>,
    by_group: Arc<Index>,
}

impl Lists {
    /// Makes the table.
    pub fn create(database: &Database) -> Result<Lists> {
        let mut connection = database.connect();
        for sql in SCHEMA {
            connection.execute(sql)?;
        }
        let engine = database.engine().clone();
        let table = engine.tables().pop().expect("it was made");
        let (by_key, by_group) = (table.indexes()[0].clone(), table.indexes()[1].clone());
        Ok(Lists { engine, table, by_key, by_group })
    }

    /// Removes all lists.
    pub fn clear(&self) -> Result<()> {
        let mut tx = self.engine.begin();
        let guard = pin();
        let mut rows: Vec<RowId> = Vec::new();
        tx.range(&self.table, &self.by_key, Bound::Unbounded, Bound::Unbounded, false, &guard, &mut |row| {
            rows.push(row);
            true
        });
        rows.into_iter().try_for_each(|row| tx.delete(&self.table, row, &guard))?;
        self.engine.wait(tx.commit()?)
    }
}

/// One client.
pub struct NativeTransactions<'a> {
    lists: &'a Lists,
    workload: Workload,
    isolation: Isolation,
}

impl NativeTransactions<'_> {
    pub fn new(lists: &Lists, workload: Workload, isolation: Isolation) -> NativeTransactions<'_> {
        NativeTransactions { lists, workload, isolation }
    }

    fn write(&self, tx: &mut Transaction, key: i64, value: i64, by_scan: bool) -> Result<()> {
        let Lists { table, .. } = self.lists;
        let found = match by_scan {
            true => self.scan(tx, key, key).pop(),
            false => self.find(tx, key),
        };
        let value_cell = Cell::i64(value);
        match found {
            Some((row, _, old)) => {
                let new = match self.workload {
                    Workload::ListAppend => format!("{old},{value}"),
                    Workload::RwRegister => value.to_string(),
                };
                tx.update(table, row, &[VERSION, ELEMENTS], &[value_cell, Cell::text(&new)], &pin())
            }
            None => {
                let (key, group) = (Cell::i64(key), Cell::i64(group(key)));
                tx.insert(table, &[key, group, value_cell, key, Cell::text(&value.to_string())], &pin())
                    .map(drop)
            }
        }
    }

    fn find(&self, tx: &Transaction, key: i64) -> Option<(RowId, i64, String)> {
        let Lists { table, by_key, .. } = self.lists;
        let guard = pin();
        let mut cells = [Cell::Null];
        let row = tx.find(table, by_key, &encode(by_key, &[key]), &[ELEMENTS], &mut cells, &guard)?;
        Some((row, key, cells[0].str().to_owned()))
    }

    /// Reads a list and locks it, in its current version if it has changed.
    fn lock(&self, tx: &mut Transaction, key: i64, lock: RowLock) -> Result<Found> {
        if let Some((row, ..)) = self.find(tx, key)
            && let Err(error) = tx.lock(&self.lists.table, row, lock, &pin())
        {
            if self.isolation != Isolation::Snapshot {
                tx.lock_newest(&self.lists.table, row, lock, &pin())?;
            }
            return Err(error);
        }
        Ok(self.read(tx, key, key, Way::Key))
    }

    /// The lists whose keys are in this range, by a scan of every row.
    fn scan(&self, tx: &Transaction, first: i64, last: i64) -> Vec<(RowId, i64, String)> {
        let Lists { table, .. } = self.lists;
        let bound = |key: i64| summary(SqlType::BigInt, &Cell::i64(key)).expect("numbers have one");
        let condition = Restriction::within(WIDE, bound(first), bound(last));
        tx.note_scan(table, &[condition], ColumnSet::NONE.with(WIDE).with(ELEMENTS));
        let scan = table.scan(tx.snapshot(), &[WIDE, ELEMENTS], true);
        let mut found = Vec::new();
        while let Some(batch) = scan.next_batch(&pin()) {
            let (keys, elements) =
                (batch.columns[0].as_primitive::<Int64Type>(), batch.columns[1].as_string_view());
            let rows = batch.row_ids.as_ref().expect("they were asked for");
            let matching = (0..batch.rows).filter(|row| (first..=last).contains(&keys.value(*row)));
            found.extend(matching.map(|row| {
                (RowId::from_bits(rows.value(row)), keys.value(row), elements.value(row).to_owned())
            }));
        }
        found
    }

    fn read(&self, tx: &Transaction, first: i64, last: i64, way: Way) -> Found {
        let Lists { table, by_group, .. } = self.lists;
        let lists: Vec<(i64, String)> = match way {
            Way::Key | Way::Last(_) => {
                self.find(tx, first).into_iter().map(|(_, key, list)| (key, list)).collect()
            }
            Way::Scan | Way::Query(_) | Way::End(_) => {
                self.scan(tx, first, last).into_iter().map(|(_, key, list)| (key, list)).collect()
            }
            Way::Index => {
                let (low, high) = (encode(by_group, &[group(first)]), encode(by_group, &[group(first) + 1]));
                let bounds = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
                let mut lists = Vec::new();
                let guard = pin();
                tx.range_read(table, by_group, bounds, false, &[KEY, ELEMENTS], &guard, &mut |_, cells| {
                    lists.push((cells[0].as_i64(), cells[1].str().to_owned()));
                    true
                });
                lists
            }
        };
        let numbers = |list: &str| list.split(',').map(|number| number.parse().expect("a number")).collect();
        let mut found: Found = lists.iter().map(|(key, list)| (*key, numbers(list))).collect();
        complete(&mut found, first, last);
        found
    }
}

impl Transactions for NativeTransactions<'_> {
    fn run(&mut self, steps: &[Step], between: &dyn Fn()) -> Ended {
        let engine = &self.lists.engine;
        let mut tx = match engine.try_begin(self.isolation) {
            Ok(tx) => tx,
            Err(error) => return Ended::Wrong(error),
        };
        let mut found = Vec::new();
        let mut writes = false;
        for step in steps {
            writes |= matches!(step, Step::Write { .. });
            if !writes {
                between();
            }
            match *step {
                Step::Read { first, way, manner: Manner::Locking(lock), .. }
                    if way == Way::Key && lock < LOCKS.len() =>
                {
                    let lock = |tx: &mut Transaction| self.lock(tx, first, LOCKS[lock]);
                    match try_again(&mut tx, lock) {
                        Ok(read) => found.push(read),
                        Err(ended) => return ended,
                    }
                }
                Step::Read { first, last, way, .. } => found.push(self.read(&tx, first, last, way)),
                Step::Write { first, last, value, change } => {
                    let write = |tx: &mut Transaction| {
                        (first..=last)
                            .try_for_each(|key| self.write(tx, key, value + key - first, change % 2 == 1))
                    };
                    match try_again(&mut tx, write) {
                        Ok(()) => found.push(Found::new()),
                        Err(ended) => return ended,
                    }
                }
                Step::LockTable { .. } => found.push(Found::new()),
            }
        }
        match tx.commit() {
            Ok(ticket) => match engine.wait(ticket) {
                Ok(()) => Ended::Committed(found),
                Err(error) => Ended::Wrong(error),
            },
            Err(error) if error.is_retryable() => Ended::Failed,
            Err(error) => Ended::Wrong(error),
        }
    }
}

/// Runs a statement, and again after a conflict: by then the other transactions may have ended, and the reads may still be valid.
fn try_again<T>(
    tx: &mut Transaction,
    mut statement: impl FnMut(&mut Transaction) -> Result<T>,
) -> std::result::Result<T, Ended> {
    let start = tx.begin_statement();
    for _ in 0..ATTEMPTS {
        match statement(tx) {
            Ok(value) => return Ok(value),
            Err(error) if error.is_retryable() || error.state() == SqlState::UNIQUE_VIOLATION => {}
            Err(error) => return Err(Ended::Wrong(error)),
        }
        if tx.restart(&start).is_err() {
            break;
        }
    }
    Err(Ended::Failed)
}

fn encode(index: &Index, parts: &[i64]) -> KeyBuffer {
    let cells: Vec<Cell<'_>> = parts.iter().map(|part| Cell::i64(*part)).collect();
    let mut buffer = KeyBuffer::new();
    index.encode(&cells, &mut buffer);
    buffer
}
