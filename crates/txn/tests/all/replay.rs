//! Replay of a primary's log in a replica: at every commit time the replica is what the primary was then, for readers of all ages,
//! whatever happens to either side.

use crate::durable::{
    commit, config, create_index, create_sequence, create_table, definition, drop_table, find, insert, table,
    update,
};
use crate::replica::{Replica, is_out_of_reach};
use firn_base::disk::SimulatedDisk;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{ColumnId, RowId, SqlState, SqlType, Value, clock};
use firn_log::LogOptions;
use firn_storage::{ColumnSpec, Table, arrow};
use firn_txn::catalog::{Oid, TableDef};
use firn_txn::{Config, Engine, Transaction, pin};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

const ITEM: [(SqlType, bool); 3] =
    [(SqlType::Integer, false), (SqlType::BigInt, true), (SqlType::Text, true)];

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Of all tables: the definition, and the rows by their ids.
#[derive(Clone, PartialEq, Default)]
struct Content {
    tables: BTreeMap<Oid, (String, BTreeMap<u64, Vec<Value>>)>,
    sequences: String,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.tables.iter().map(|(oid, (_, rows))| (oid.0, rows));
        f.debug_map().entries(shown).finish()
    }
}

/// What a transaction sees, by scans, and by every index that its catalog has.
fn content(tx: &Transaction) -> Content {
    let mut content = Content::default();
    let catalog = tx.catalog().clone();
    for (oid, definition) in &catalog.tables {
        let table = tx.table(definition.storage());
        let columns: Vec<ColumnId> = (0..table.columns().len() as u16).map(ColumnId).collect();
        let scan = table.scan(tx.snapshot(), &columns, true);
        let mut rows = BTreeMap::new();
        while let Some(batch) = scan.next_batch(&pin()) {
            for (row, id) in batch.row_ids.unwrap().values().iter().enumerate() {
                let values = table.columns().iter().zip(&batch.columns);
                let values: Vec<Value> =
                    values.map(|(spec, array)| arrow::array_value(array, row, spec.representation)).collect();
                assert!(rows.insert(*id, values).is_none());
            }
        }
        let indexes = table.indexes();
        for wanted in &definition.indexes {
            // It may have been dropped since.
            let Some(index) = indexes.iter().find(|index| index.spec().id == wanted.id()) else { continue };
            let all = (Bound::Unbounded, Bound::Unbounded);
            let mut found = Vec::new();
            let first = [ColumnId(0)];
            table.range(index, all, false, tx.snapshot(), &first, &pin(), &mut |row, cells| {
                found.push((row.to_bits(), cells[0].as_i32()));
                true
            });
            found.sort_unstable();
            let key = |row: &Vec<Value>| match row[0] {
                Value::Integer(key) => key,
                _ => unreachable!("the first column is an integer"),
            };
            let expected: Vec<(u64, i32)> = rows.iter().map(|(id, row)| (*id, key(row))).collect();
            assert!(found == expected, "{} at {:?}", wanted.name, tx.snapshot());
        }
        content.tables.insert(*oid, (format!("{definition:?}"), rows));
    }
    let sequence = |definition: &Arc<firn_txn::catalog::SequenceDef>| format!("{definition:?}");
    content.sequences = catalog.sequences.values().map(sequence).collect::<Vec<_>>().join("\n");
    content
}

/// A primary with its workload, and what it was at each commit.
struct Primary {
    disk: Arc<SimulatedDisk>,
    engine: Arc<Engine>,
    config: Config,
    ledger: BTreeMap<u64, Content>,
    /// A transaction that is open while others commit. It only inserts.
    open: Option<Transaction>,
    readers: Vec<Transaction>,
    next_key: i32,
    epochs: u32,
    loads: u32,
}

fn row(key: i32, number: i64) -> Vec<Value> {
    let text = match key % 3 {
        0 => Value::Null,
        1 => Value::Text("short".into()),
        _ => Value::Text(format!("a text too long to lie in its view {key}")),
    };
    vec![Value::Integer(key), Value::BigInt(number), text]
}

fn config_of(seed: u64) -> Config {
    let spill_bytes = [200, 600, 1 << 20][seed as usize % 3];
    Config { compact_after: None, log: LogOptions { spill_bytes, ..config().log }, ..config() }
}

impl Primary {
    fn new(seed: u64) -> Primary {
        let (disk, config) = (SimulatedDisk::new(), config_of(seed));
        let engine = Engine::open_on(disk.clone(), config.clone()).unwrap();
        let (ledger, readers) = (BTreeMap::new(), Vec::new());
        let mut primary =
            Primary { disk, engine, config, ledger, open: None, readers, next_key: 0, epochs: 1, loads: 0 };
        primary.note();
        primary
    }

    /// Notes what it is now.
    fn note(&mut self) {
        let tx = self.engine.begin();
        let time = tx.snapshot().read_time.0;
        self.ledger.entry(time).or_insert_with(|| content(&tx));
    }

    fn fresh_key(&mut self) -> i32 {
        self.next_key += 1;
        self.next_key
    }

    fn batch(&mut self, random: &mut Random, rows: usize) -> Vec<Vec<Value>> {
        let number = random.uniform(0, 3);
        (0..rows).map(|_| row(self.fresh_key(), number)).collect()
    }

    fn step(&mut self, random: &mut Random) {
        match random.uniform(0, 45) {
            0..25 => self.change_rows(random),
            25..31 => self.change_objects(random),
            31 | 32 => self.begin_open(random),
            33 | 34 => {
                if let Some(open) = self.open.take() {
                    if random.uniform(0, 3) == 0 { open.rollback() } else { commit(open) }
                }
            }
            35 => self.engine.checkpoint().unwrap(),
            36 | 37 => drop(self.engine.freeze(Duration::ZERO)),
            38 => drop(self.engine.compact(Duration::ZERO)),
            39 => drop(self.engine.create_restore_point("here").unwrap()),
            40 if self.readers.len() < 3 => self.readers.push(self.engine.begin()),
            41 if !self.readers.is_empty() => drop(self.readers.swap_remove(0)),
            42 | 43 => self.sequence(random),
            _ => self.engine.collect(),
        }
        self.note();
    }

    fn begin_open(&mut self, random: &mut Random) {
        let mut open = self.open.take().unwrap_or_else(|| self.engine.begin());
        let names: Vec<String> = open.catalog().tables.values().map(|def| def.name.clone()).collect();
        for name in names {
            let table = table(&open, &name);
            for row in self.batch(random, 2) {
                insert(&mut open, &table, &row);
            }
        }
        self.open = Some(open);
    }

    fn change_rows(&mut self, random: &mut Random) {
        let mut tx = self.engine.begin();
        let names: Vec<String> = tx.catalog().tables.values().map(|def| def.name.clone()).collect();
        let mut savepoint = None;
        for _ in 0..random.uniform(1, 6) {
            if names.is_empty() {
                return;
            }
            let name = &names[random.uniform(0, names.len() as i64 - 1) as usize];
            let table = table(&tx, name);
            match random.uniform(0, 11) {
                0..3 => {
                    let row = row(self.fresh_key(), random.uniform(0, 3));
                    insert(&mut tx, &table, &row);
                }
                3 | 4 => {
                    let count = random.uniform(1, 6) as usize;
                    let rows = self.batch(random, count);
                    insert_batch(&mut tx, &table, &rows);
                }
                5 => savepoint = Some(tx.savepoint()),
                6 => {
                    if let Some(savepoint) = savepoint.take() {
                        tx.rollback_to(savepoint);
                    }
                }
                what => {
                    let Some((id, key)) = some_row(&tx, &table, random) else { continue };
                    let key = Value::Integer(key);
                    let guard = &pin();
                    // A conflict with a transaction that has moved it is possible.
                    match what {
                        7 | 8 => tx.delete(&table, id, guard).unwrap(),
                        9 => {
                            let new = self.fresh_key();
                            update(&mut tx, &table, &key, 0, &Value::Integer(new));
                        }
                        10 => {
                            let number = Value::BigInt(random.uniform(0, 3));
                            update(&mut tx, &table, &key, 1, &number);
                        }
                        _ => {
                            let text = format!("changed to a text of some length {}", random.uniform(0, 9));
                            update(&mut tx, &table, &key, 2, &Value::Text(text));
                        }
                    }
                }
            }
        }
        // Many at once, so that slots become free.
        if random.uniform(0, 7) == 0
            && let Some(name) = names.first()
        {
            let table = table(&tx, name);
            let most = random.uniform(1, 40);
            for _ in 0..most {
                let Some((id, _)) = some_row(&tx, &table, random) else { break };
                tx.delete(&table, id, &pin()).unwrap();
            }
        }
        if random.uniform(0, 7) == 0 { tx.rollback() } else { commit(tx) }
    }

    fn sequence(&mut self, random: &mut Random) {
        let catalog = self.engine.catalog();
        match catalog.sequences.values().next() {
            Some(sequence) if random.uniform(0, 3) == 0 => {
                self.engine.set_value(sequence, random.uniform(1, 1000), random.uniform(0, 1) == 0).unwrap();
            }
            Some(sequence) => drop(self.engine.next_value(sequence).unwrap()),
            None => {
                self.end_open();
                let mut tx = self.engine.begin();
                let sequence = create_sequence(&mut tx, "s");
                self.engine.next_value(&sequence).unwrap();
                if random.uniform(0, 3) == 0 { tx.rollback() } else { commit(tx) }
            }
        }
    }

    /// DDL waits for it.
    fn end_open(&mut self) {
        if let Some(open) = self.open.take() {
            commit(open);
            self.note();
        }
        self.readers.clear();
    }

    fn change_objects(&mut self, random: &mut Random) {
        self.end_open();
        let mut tx = self.engine.begin();
        for _ in 0..random.uniform(1, 2) {
            let name = NAMES[random.uniform(0, 2) as usize];
            let Some(old) = tx.catalog().table(Oid::PUBLIC, name).cloned() else {
                let table = create_table(&mut tx, name, &ITEM);
                let rows = match random.uniform(0, 20) {
                    0 => {
                        self.loads += 1;
                        1024 * random.uniform(1, 2) as usize + 100
                    }
                    rows => rows as usize,
                };
                if rows > 0 {
                    let rows = self.batch(random, rows);
                    insert_batch(&mut tx, &table, &rows);
                }
                continue;
            };
            match random.uniform(0, 7) {
                0 => drop_table(&mut tx, name),
                1 => truncate(&mut tx, &old),
                2 | 3 if old.indexes.len() < 3 => create_index(&mut tx, name, old.indexes.len() as u16),
                4 | 5 if old.indexes.len() > 1 => {
                    let table = table(&tx, name);
                    let mut new = TableDef::clone(&old);
                    let gone = new.indexes.pop().expect("there are two");
                    tx.drop_index(&table, gone.id()).unwrap();
                    tx.catalog_mut().unwrap().tables.insert(new.oid, Arc::new(new));
                }
                6 => {
                    let mut new = TableDef::clone(&old);
                    new.columns[1].name = format!("renamed {}", random.uniform(0, 99));
                    let table = table(&tx, name);
                    tx.lock_exclusive(&table).unwrap();
                    tx.catalog_mut().unwrap().tables.insert(new.oid, Arc::new(new));
                }
                _ => {
                    let table = table(&tx, name);
                    let rows = self.batch(random, 3);
                    for row in rows {
                        insert(&mut tx, &table, &row);
                    }
                }
            }
        }
        let sequence = tx.catalog().sequences.keys().next().copied();
        if let Some(oid) = sequence
            && random.uniform(0, 9) == 0
        {
            tx.catalog_mut().unwrap().sequences.remove(&oid);
        }
        if random.uniform(0, 5) == 0 { tx.rollback() } else { commit(tx) }
    }

    /// Ends its process, without or with a loss of power, and opens the directory again.
    fn restart(&mut self, random: &mut Random) {
        self.open = None;
        self.readers.clear();
        let disk = match random.uniform(0, 2) {
            0 => {
                self.engine.close().unwrap();
                self.disk.after_kill()
            }
            1 => self.disk.after_kill(),
            _ => self.disk.after_power_cut(random),
        };
        self.engine = Engine::open_on(disk.clone(), self.config.clone()).unwrap();
        self.disk = disk;
        self.epochs += 1;
        let now = self.engine.now().0;
        self.ledger.retain(|time, _| *time <= now);
        self.note();
    }
}

fn insert_batch(tx: &mut Transaction, table: &Arc<Table>, rows: &[Vec<Value>]) {
    let column = |(column, (ty, _)): (usize, &(SqlType, bool))| {
        let values: Vec<Value> = rows.iter().map(|row| row[column].clone()).collect();
        arrow::values_to_array(&values, *ty)
    };
    let columns: Vec<_> = ITEM.iter().enumerate().map(column).collect();
    tx.insert_batch(table, &columns, &pin()).unwrap();
}

/// One of the rows that a transaction sees, with its key.
fn some_row(tx: &Transaction, table: &Arc<Table>, random: &mut Random) -> Option<(RowId, i32)> {
    let mut rows = Vec::new();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let columns = [ColumnId(0)];
    table.range(&table.indexes()[0], all, false, tx.snapshot(), &columns, &pin(), &mut |row, cells| {
        rows.push((row, cells[0].as_i32()));
        rows.len() < 200
    });
    let (row, key) = *rows.get(random.uniform(0, (rows.len() as i64 - 1).max(0)) as usize)?;
    assert_eq!(find(tx, table, &Value::Integer(key)), Some(row));
    Some((row, key))
}

/// As TRUNCATE does: another physical table takes the place.
fn truncate(tx: &mut Transaction, old: &TableDef) {
    let before = tx.table(old.storage());
    tx.lock_exclusive(&before).unwrap();
    let specs: Vec<ColumnSpec> = before.columns().to_vec();
    let storage = tx.create_storage(&old.name, specs).unwrap();
    let table = tx.table(storage);
    for index in &old.indexes {
        tx.create_index(&table, index.spec(&table), 2).unwrap();
    }
    tx.drop_storage(old.storage()).unwrap();
    let new = TableDef { storage: storage.0, ..old.clone() };
    tx.catalog_mut().unwrap().tables.insert(new.oid, Arc::new(new));
}

/// A replica beside its primary, with readers.
struct Pair {
    primary: Primary,
    replica: Replica,
    readers: Vec<(Transaction, Content)>,
    random: Random,
    copies: u32,
    restarts: u32,
    compared: u32,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut random = Random::seeded(seed);
        let mut primary = Primary::new(seed);
        for _ in 0..random.uniform(0, 20) {
            primary.step(&mut random);
        }
        let replica = Replica::of(&primary.engine, config_of(seed));
        let mut pair =
            Pair { primary, replica, readers: Vec::new(), random, copies: 1, restarts: 0, compared: 0 };
        pair.compare();
        pair
    }

    /// Compares the replica with what the primary was.
    fn compare(&mut self) {
        let tx = self.replica.engine.begin();
        let time = tx.snapshot().read_time.0;
        assert_eq!(time, self.replica.engine.now().0);
        let Some(expected) = self.primary.ledger.get(&time) else { return };
        let found = content(&tx);
        assert!(found == *expected, "at {time}: {found:?}, not {expected:?}");
        self.compared += 1;
    }

    fn begin_reader(&mut self) {
        let tx = self.replica.engine.begin();
        // At a time that the primary has not noted, it counts what it saw first.
        let seen = content(&tx);
        self.readers.push((tx, seen));
    }

    fn check_readers(&self) {
        for (tx, seen) in &self.readers {
            let found = content(tx);
            assert!(found == *seen, "at {:?}: {found:?}, not {seen:?}", tx.snapshot());
        }
    }

    fn replay(&mut self, most: usize) {
        for _ in 0..most {
            if self.replica.replay_one().unwrap().is_none() {
                return;
            }
            self.compare();
        }
    }

    fn receive(&mut self, most: usize) {
        if !self.replica.is_connected()
            && let Err(error) = self.replica.connect(&self.primary.engine)
        {
            assert!(is_out_of_reach(error.state()), "{error}");
            return self.copy_again();
        }
        for _ in 0..most {
            if !self.replica.receive_one(&self.primary.engine).unwrap() {
                return;
            }
        }
    }

    fn copy_again(&mut self) {
        self.readers.clear();
        self.replica = Replica::of(&self.primary.engine, self.primary.config.clone());
        self.copies += 1;
        self.compare();
    }

    fn restart_replica(&mut self) {
        self.readers.clear();
        let (received, durable) =
            (self.replica.engine.received().unwrap(), self.replica.engine.durable_lsn());
        let (disk, is_cut) = match self.random.uniform(0, 2) {
            0 => {
                self.replica.engine.close().unwrap();
                (self.replica.disk.after_kill(), false)
            }
            1 => (self.replica.disk.after_kill(), false),
            _ => (self.replica.disk.after_power_cut(&mut self.random), true),
        };
        // It moves out for a moment.
        let other = Replica::open(disk, self.primary.config.clone());
        self.replica = other;
        let again = self.replica.engine.received().unwrap();
        assert!(again.lsn >= durable, "{again:?} before {durable:?}");
        assert!(is_cut || again == received, "{again:?}, not {received:?}");
        assert!(self.replica.engine.visible_lsn() == again.lsn);
        self.restarts += 1;
        self.compare();
    }

    fn step(&mut self) {
        match self.random.uniform(0, 30) {
            0..10 => self.primary.step(&mut self.random),
            10..13 => {
                let most = self.random.uniform(1, 4) as usize;
                self.receive(most);
            }
            13 => self.receive(usize::MAX),
            14 | 15 => self.replica.flush().unwrap(),
            16..19 => {
                let most = self.random.uniform(1, 4) as usize;
                self.replay(most);
            }
            19 => {
                self.receive(usize::MAX);
                self.replica.flush().unwrap();
                self.replay(usize::MAX);
            }
            20 if self.readers.len() < 4 => self.begin_reader(),
            21 if !self.readers.is_empty() => {
                let gone = self.random.uniform(0, self.readers.len() as i64 - 1) as usize;
                let now = self.replica.engine.now();
                let (tx, _) = self.readers.swap_remove(gone);
                if self.random.uniform(0, 1) == 0 {
                    tx.rollback()
                } else {
                    let _ = tx.commit().unwrap();
                }
                assert_eq!(self.replica.engine.now(), now);
            }
            22 => self.replica.engine.checkpoint().unwrap(),
            23 => {
                self.replica.engine.freeze(Duration::ZERO);
                self.replica.engine.compact(Duration::ZERO);
            }
            24 => self.replica.engine.collect(),
            25 => self.check_readers(),
            26 => match self.random.uniform(0, 3) {
                0 => self.restart_replica(),
                1 => {
                    self.replica.disconnect();
                    self.primary.restart(&mut self.random);
                }
                2 => self.replica.disconnect(),
                _ => self.replica.renew_replayer(),
            },
            _ => {}
        }
    }

    /// Everything arrives, and nothing is left of what was.
    fn finish(mut self) -> [u32; 5] {
        self.primary.end_open();
        self.primary.note();
        self.receive(usize::MAX);
        self.receive(usize::MAX);
        self.replica.flush().unwrap();
        self.replay(usize::MAX);
        self.check_readers();
        let at = self.primary.engine.log_point().unwrap();
        assert!(self.replica.engine.received().unwrap().is_same_place(&at));
        assert!(self.replica.engine.visible_lsn() == at.lsn);
        let expected = self.primary.ledger.values().next_back().unwrap();
        assert!(content(&self.replica.engine.begin()) == *expected);
        // Sequences have the value that a restart of the primary would find.
        let again = Engine::open_on(self.primary.disk.after_kill(), self.primary.config.clone()).unwrap();
        for sequence in again.catalog().sequences.values() {
            assert_eq!(self.replica.engine.last_value(sequence), again.last_value(sequence));
        }
        drop(again);
        self.readers.clear();
        let engine = &self.replica.engine;
        let wanted: Vec<u32> =
            engine.catalog().tables.values().map(|definition| definition.storage().0).collect();
        let begun = clock::now();
        loop {
            engine.collect();
            pin().flush();
            let mut tables: Vec<u32> = engine.tables().iter().map(|table| table.id().0).collect();
            let mut wanted = wanted.clone();
            tables.sort_unstable();
            wanted.sort_unstable();
            if engine.garbage_backlog() == 0 && tables == wanted {
                break;
            }
            let backlog = engine.garbage_backlog();
            assert!(begun.elapsed() < Duration::from_secs(30), "{backlog} {tables:?}, not {wanted:?}");
            clock::sleep(Duration::from_millis(1));
        }
        let tx = engine.begin();
        for definition in tx.catalog().tables.values() {
            let table = tx.table(definition.storage());
            let (_, rows) = &expected.tables[&definition.oid];
            assert_eq!(table.approximate_rows(), rows.len() as u64);
            assert_eq!(table.indexes().len(), definition.indexes.len());
            for index in table.indexes().iter() {
                index.verify();
                assert_eq!(index.len(), rows.len(), "{}", index.spec().name);
            }
        }
        drop(tx);
        self.restart_replica();
        [self.copies, self.restarts, self.compared, self.primary.epochs, self.primary.loads]
    }
}

fn run(seed: u64, steps: u32) -> [u32; 5] {
    let mut pair = Pair::new(seed);
    for _ in 0..steps {
        pair.step();
    }
    pair.finish()
}

#[test]
fn a_replica_is_at_every_commit_what_its_primary_was() {
    let number = |name, usual| std::env::var(name).map_or(usual, |value| value.parse().expect("a number"));
    let (first, rounds) = (number("FIRN_SEED", 0), number("FIRN_ROUNDS", 60));
    let mut all = [0; 5];
    for seed in first..first + rounds {
        println!("seed {seed}");
        all.iter_mut().zip(run(seed, 120)).for_each(|(all, more)| *all += more);
    }
    println!("copies, restarts of the replica, comparisons, epochs, loads: {all:?}");
}

/// A primary with a table of a few rows, and its replica.
fn pair() -> (Primary, Replica) {
    let mut primary = Primary::new(2);
    let mut tx = primary.engine.begin();
    let rows = create_table(&mut tx, "a", &ITEM);
    for key in 0..10 {
        insert(&mut tx, &rows, &row(key, 1));
    }
    create_sequence(&mut tx, "s");
    commit(tx);
    primary.note();
    let mut replica = Replica::of(&primary.engine, config_of(2));
    replica.catch_up(&primary.engine).unwrap();
    (primary, replica)
}

#[test]
fn nothing_but_replay_moves_the_clock_of_a_replica() {
    let (primary, replica) = pair();
    let engine = &replica.engine;
    let now = engine.now();
    let state = |result: firn_base::Result<()>| result.unwrap_err().state();
    let refused = SqlState::READ_ONLY_SQL_TRANSACTION;
    let begin = || engine.begin();
    let (id, cells) = {
        let tx = begin();
        let rows = table(&tx, "a");
        (find(&tx, &rows, &Value::Integer(3)).unwrap(), [firn_base::Cell::i64(5)])
    };
    type Write<'a> = (&'a str, Box<dyn Fn(&mut Transaction) -> firn_base::Result<()> + 'a>);
    let whole = [firn_base::Cell::i32(77), firn_base::Cell::i64(5), firn_base::Cell::Null];
    let writes: Vec<Write<'_>> = vec![
        ("insert", Box::new(|tx| tx.insert(&table(tx, "a"), &whole, &pin()).map(drop))),
        ("insert rows", Box::new(|tx| tx.insert_rows(&table(tx, "a"), &[whole], &pin()).map(drop))),
        (
            "insert a batch",
            Box::new(|tx| {
                let column =
                    |column: usize| arrow::values_to_array(&[row(80, 1)[column].clone()], ITEM[column].0);
                tx.insert_batch(&table(tx, "a"), &[column(0), column(1), column(2)], &pin())
            }),
        ),
        ("update", Box::new(|tx| tx.update(&table(tx, "a"), id, &[ColumnId(1)], &cells, &pin()))),
        ("delete", Box::new(|tx| tx.delete(&table(tx, "a"), id, &pin()))),
        ("lock a row", Box::new(|tx| tx.lock(&table(tx, "a"), id, firn_txn::RowLock::Update, &pin()))),
        (
            "lock a row to share",
            Box::new(|tx| tx.lock(&table(tx, "a"), id, firn_txn::RowLock::KeyShare, &pin())),
        ),
        ("lock a table", Box::new(|tx| tx.lock_exclusive(&table(tx, "a")))),
        ("create a table", Box::new(|tx| tx.create_storage("x", Vec::new()).map(drop))),
        ("change the catalog", Box::new(|tx| tx.catalog_mut().map(drop))),
        ("drop a table", Box::new(|tx| tx.drop_storage(table(tx, "a").id()))),
        (
            "create an index",
            Box::new(|tx| {
                let rows = table(tx, "a");
                let spec = definition(tx, "a").indexes[0].spec(&rows);
                tx.create_index(&rows, spec, 1)
            }),
        ),
    ];
    for (what, write) in &writes {
        for isolation in [firn_txn::Isolation::Serializable, firn_txn::Isolation::Snapshot] {
            for ends in 0..3 {
                let mut tx = engine.try_begin(isolation).unwrap();
                let savepoint = tx.savepoint();
                let error = write(&mut tx).expect_err(what);
                assert_eq!(error.state(), refused, "{what}: {error}");
                let hint = error.hint().unwrap_or_default();
                assert!(hint.contains("primary.example:5432") && !hint.contains("secret"), "{hint}");
                if ends == 0 {
                    tx.rollback_to(savepoint);
                }
                match ends {
                    0 => {
                        let _ = tx.commit().unwrap();
                    }
                    1 => tx.rollback(),
                    _ => drop(tx),
                }
                assert_eq!(engine.now(), now, "{what} {ends}");
            }
        }
    }
    let sequence = engine.catalog().sequences.values().next().unwrap().clone();
    assert_eq!(state(engine.next_value(&sequence).map(drop)), refused);
    assert_eq!(state(engine.set_value(&sequence, 9, true)), refused);
    assert_eq!(state(engine.create_restore_point("x").map(drop)), refused);
    assert_eq!(state(engine.draw_number().map(drop)), refused);
    engine.checkpoint().unwrap();
    engine.collect();
    engine.freeze(Duration::ZERO);
    engine.compact(Duration::ZERO);
    assert_eq!(engine.now(), now);
    assert_eq!(state(engine.replayer().map(drop)), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert_eq!(
        state(primary.engine.replayer().map(drop)),
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "a primary is no replica"
    );
    engine.close().unwrap();
    assert_eq!(engine.now(), now);
}

/// The primary uses a slot again at once, since it has no readers; each reader of the replica keeps seeing its row.
#[test]
fn one_slot_has_many_rows_for_readers_of_a_replica() {
    let (primary, mut replica) = pair();
    let mut readers: Vec<(Transaction, Content)> = Vec::new();
    let mut places = std::collections::BTreeSet::new();
    for round in 0..60 {
        let mut tx = primary.engine.begin();
        let rows = table(&tx, "a");
        let key = if round == 0 { 3 } else { 99 + round };
        let id = find(&tx, &rows, &Value::Integer(key)).unwrap();
        tx.delete(&rows, id, &pin()).unwrap();
        commit(tx);
        let begun = clock::now();
        while primary.engine.garbage_backlog() > 0 {
            primary.engine.collect();
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        let mut tx = primary.engine.begin();
        places.insert(insert(&mut tx, &rows, &row(100 + round, 1)));
        commit(tx);
        let again = primary.engine.begin();
        let expected = content(&again);
        drop(again);
        replica.catch_up(&primary.engine).unwrap();
        let tx = replica.engine.begin();
        assert_eq!(content(&tx), expected);
        readers.push((tx, expected));
        if round % 7 == 6 {
            replica.engine.collect();
            readers.swap_remove(round as usize % readers.len());
        }
        readers.iter().for_each(|(tx, seen)| assert_eq!(content(tx), *seen));
    }
    assert!(places.len() < 10, "{places:?}");
    while !readers.is_empty() {
        readers.swap_remove(readers.len() / 2);
        replica.engine.collect();
        readers.iter().for_each(|(tx, seen)| assert_eq!(content(tx), *seen));
    }
}

/// Its rows have no records, since no older snapshot sees the table.
#[test]
fn a_checkpoint_of_a_replica_has_the_rows_of_tables_that_were_created_with_them() {
    for rows in [1, 1500] {
        let (mut primary, mut replica) = pair();
        let mut tx = primary.engine.begin();
        let table = create_table(&mut tx, "b", &ITEM);
        let rows = primary.batch(&mut Random::seeded(1), rows);
        insert_batch(&mut tx, &table, &rows);
        commit(tx);
        let expected = content(&primary.engine.begin());
        replica.catch_up(&primary.engine).unwrap();
        for _ in 0..2 {
            replica.engine.checkpoint().unwrap();
            let disk = replica.disk.after_kill();
            replica = replica.reopen(disk);
            assert!(content(&replica.engine.begin()) == expected);
        }
    }
}

/// The primary syncs each group before it writes the next one; a replica does not.
#[test]
fn a_power_cut_loses_any_of_the_groups_that_a_replica_has_not_flushed_and_it_receives_them_again() {
    for seed in 0..20 {
        let random = &mut Random::seeded(seed);
        let (primary, mut replica) = pair();
        let flushed = replica.engine.received().unwrap();
        for key in 0..20 {
            let mut tx = primary.engine.begin();
            let rows = table(&tx, "a");
            insert(&mut tx, &rows, &row(1000 + key, 1));
            commit(tx);
        }
        while replica.receive_one(&primary.engine).unwrap() {}
        let disk = replica.disk.after_power_cut(random);
        let mut replica = replica.reopen(disk);
        assert!(replica.engine.received().unwrap().lsn >= flushed.lsn);
        replica.catch_up(&primary.engine).unwrap();
        assert!(content(&replica.engine.begin()) == content(&primary.engine.begin()));
        let disk = replica.disk.after_power_cut(random);
        let replica = replica.reopen(disk);
        assert!(content(&replica.engine.begin()) == content(&primary.engine.begin()));
    }
}

/// The segments of the earlier epoch end early, while the replayer has them open.
#[test]
fn a_replayer_continues_with_the_next_epoch() {
    let (mut primary, mut replica) = pair();
    let random = &mut Random::seeded(9);
    for round in 0..10 {
        let mut tx = primary.engine.begin();
        let rows = table(&tx, "a");
        insert(&mut tx, &rows, &row(2000 + round, 1));
        commit(tx);
        replica.catch_up(&primary.engine).unwrap();
        assert!(content(&replica.engine.begin()) == content(&primary.engine.begin()));
        let end = primary.engine.log_point().unwrap();
        assert_eq!(replica.engine.visible_lsn(), end.lsn);
        replica.disconnect();
        primary.restart(random);
    }
}

/// Transfers that delete both accounts and insert them anew, so that slots are used again all the time. Each reader of the replica
/// sees all accounts, and their sum, in every way, while another thread replays and others end and collect.
#[test]
fn readers_beside_a_replayer_see_whole_commits() {
    const ACCOUNTS: i32 = 12;
    let (primary, mut replica) = pair();
    let mut tx = primary.engine.begin();
    let accounts = create_table(&mut tx, "accounts", &ITEM);
    for key in 0..ACCOUNTS {
        insert(&mut tx, &accounts, &row(key, 0));
    }
    create_index(&mut tx, "accounts", 1);
    commit(tx);
    replica.catch_up(&primary.engine).unwrap();
    let stop = Arc::new(firn_base::sync::AtomicBool::new(false));
    let is_over = |stop: &firn_base::sync::AtomicBool| stop.load(firn_base::sync::Ordering::Relaxed);
    let readers: Vec<_> = (0..3)
        .map(|number| {
            let (engine, stop) = (replica.engine.clone(), stop.clone());
            firn_base::thread::spawn("reader", move || {
                let mut random = Random::seeded(number);
                let mut held: Vec<(Transaction, Vec<(i32, i64)>)> = Vec::new();
                let mut reads = 0;
                while !is_over(&stop) {
                    let tx = engine.begin();
                    let seen = balances(&tx);
                    assert_eq!(seen.len(), ACCOUNTS as usize, "{seen:?}");
                    assert_eq!(seen.iter().map(|account| account.1).sum::<i64>(), 0, "{seen:?}");
                    reads += 1;
                    if random.uniform(0, 3) == 0 {
                        held.push((tx, seen));
                    }
                    if held.len() > 4 {
                        held.swap_remove(random.uniform(0, 4) as usize);
                    }
                    held.iter().for_each(|(tx, seen)| assert_eq!(balances(tx), *seen));
                }
                reads
            })
        })
        .collect();
    let collector = firn_base::thread::spawn("collector", {
        let (engine, stop) = (replica.engine.clone(), stop.clone());
        move || {
            while !is_over(&stop) {
                engine.collect();
                engine.freeze(Duration::ZERO);
                engine.checkpoint().unwrap();
            }
        }
    });
    let begun = clock::now();
    let mut random = Random::seeded(7);
    let mut rounds = 0;
    while begun.elapsed() < Duration::from_secs(2) || rounds < 50 {
        for _ in 0..5 {
            let mut tx = primary.engine.begin();
            let from = random.uniform(0, i64::from(ACCOUNTS) - 1) as i32;
            let other = (from + 1 + random.uniform(0, i64::from(ACCOUNTS) - 2) as i32) % ACCOUNTS;
            for (key, by) in [(from, -5), (other, 5)] {
                let id = find(&tx, &accounts, &Value::Integer(key)).unwrap();
                let mut cells = [firn_base::Cell::Null];
                let guard = pin();
                assert!(tx.read(&accounts, id, &[ColumnId(1)], &mut cells, &guard));
                let balance = cells[0].as_i64() + by;
                if random.uniform(0, 3) == 0 {
                    update(&mut tx, &accounts, &Value::Integer(key), 1, &Value::BigInt(balance));
                } else {
                    tx.delete(&accounts, id, &guard).unwrap();
                    insert(&mut tx, &accounts, &row(key, balance));
                }
            }
            commit(tx);
        }
        primary.engine.collect();
        replica.catch_up(&primary.engine).unwrap();
        rounds += 1;
    }
    stop.store(true, firn_base::sync::Ordering::Relaxed);
    collector.join().unwrap();
    let reads: u32 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    assert!(content(&replica.engine.begin()) == content(&primary.engine.begin()));
    let begun = clock::now();
    while replica.engine.garbage_backlog() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        replica.engine.collect();
        pin().flush();
    }
    for index in table(&replica.engine.begin(), "accounts").indexes().iter() {
        index.verify();
        assert_eq!(index.len(), ACCOUNTS as usize, "{}", index.spec().name);
    }
    println!("{rounds} rounds, {reads} reads");
}

/// All accounts, found in three ways that agree.
fn balances(tx: &Transaction) -> Vec<(i32, i64)> {
    let accounts = table(tx, "accounts");
    let columns = [ColumnId(0), ColumnId(1)];
    let all = (Bound::Unbounded, Bound::Unbounded);
    let by_index = |index: usize| {
        let index = accounts.indexes()[index].clone();
        let (mut found, guard) = (Vec::new(), pin());
        tx.range_read(&accounts, &index, all, false, &columns, &guard, &mut |_, cells| {
            found.push((cells[0].as_i32(), cells[1].as_i64()));
            true
        });
        found.sort_unstable();
        found
    };
    let scan = accounts.scan(tx.snapshot(), &columns, false);
    let mut scanned = Vec::new();
    while let Some(batch) = scan.next_batch(&pin()) {
        use arrow_array::cast::AsArray;
        use arrow_array::types::{Int32Type, Int64Type};
        let keys = batch.columns[0].as_primitive::<Int32Type>();
        let numbers = batch.columns[1].as_primitive::<Int64Type>();
        scanned.extend((0..batch.rows).map(|row| (keys.value(row), numbers.value(row))));
    }
    scanned.sort_unstable();
    assert_eq!(by_index(0), scanned);
    assert_eq!(by_index(1), scanned);
    scanned
}
