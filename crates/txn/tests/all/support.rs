//! The common database of the tests, with one table of accounts.

use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Representation, Result, RowId, SqlType};
use firn_storage::{ColumnSpec, Index, IndexColumn, IndexSpec, KeyBuffer, Table};
use firn_txn::catalog::{ColumnDef, Deferral, IndexColumnDef, IndexDef, Oid, TableDef, TableSettings};
use firn_txn::{Columns, Config, Engine, Guard, Key, RowLock, Str, TableAccess, Text, Transaction, pin};
use std::ops::Bound;
use std::time::Duration;

pub const KEY: ColumnId = ColumnId(0);
pub const BALANCE: ColumnId = ColumnId(1);
pub const NAME: ColumnId = ColumnId(2);

/// A database with the table `accounts (key integer primary key, balance bigint, name text)`.
///
/// Accounts with an even key are looked up, inserted and changed as tuples, the others as cells.
pub struct Bank {
    pub engine: Arc<Engine>,
    pub accounts: Arc<Table>,
    pub by_key: Arc<Index>,
    pub typed: Typed,
}

/// The same table as access paths.
pub struct Typed {
    pub by_key: Key<(i32,)>,
    pub whole: Columns<(i32, Option<i64>, Option<Str>)>,
    pub balance: Columns<(Option<i64>,)>,
}

impl Typed {
    pub fn prepare(engine: &Arc<Engine>) -> Result<Typed> {
        let accounts = TableAccess::open(engine, "accounts")?;
        Ok(Typed {
            by_key: accounts.key("accounts_pkey")?,
            whole: accounts.all_columns()?,
            balance: accounts.columns(&["balance"])?,
        })
    }
}

impl Bank {
    /// In memory, with the smallest possible blocks, which are never frozen: there is no conflict with
    /// background work that a test does not expect.
    pub fn open() -> Bank {
        Bank::open_with(Config { freeze_after: None, ..Bank::unlimited() })
    }

    /// A configuration without what depends on the machine, and without the steps in models that a limit
    /// takes.
    fn unlimited() -> Config {
        Config { compact_after: None, memory_limit: None, ..Config::default() }
    }

    /// As [`Bank::open`], but blocks are frozen, and rows moved, as soon as possible.
    pub fn freezing() -> Bank {
        Bank::open_with(Config { freeze_after: Some(Duration::ZERO), ..Bank::unlimited() })
    }

    pub fn open_with(config: Config) -> Bank {
        Bank::on(Engine::open(Config { block_bytes: 1, ..config }).unwrap())
    }

    /// In a database without tables.
    pub fn on(engine: Arc<Engine>) -> Bank {
        let mut setup = engine.begin();
        let columns = vec![
            ColumnSpec { representation: Representation::Int32, nullable: false },
            ColumnSpec { representation: Representation::Int64, nullable: true },
            ColumnSpec { representation: Representation::Text, nullable: true },
        ];
        let id = setup.create_storage("accounts", columns).unwrap();
        let accounts = setup.table(id);
        let part = |column, representation| IndexColumn {
            column,
            representation,
            nullable: false,
            descending: false,
            nulls_first: false,
        };
        let first = IndexColumnDef { column: 0, descending: false, nulls_first: false };
        let index = IndexDef {
            oid: engine.allocate_oid(),
            name: "accounts_pkey".into(),
            columns: vec![first],
            unique: true,
            values: true,
            deferral: Deferral::Never,
            condition: None,
            internal: false,
            annotations: Default::default(),
        };
        let primary = IndexSpec {
            id: index.id(),
            name: index.name.clone(),
            columns: vec![part(KEY, Representation::Int32)],
            unique: true,
            values: true,
        };
        setup.create_index(&accounts, primary, 2).unwrap();
        describe(&engine, &mut setup, &accounts, index);
        commit(setup);
        let by_key = accounts.indexes()[0].clone();
        let typed = Typed::prepare(&engine).unwrap();
        Bank { engine, accounts, by_key, typed }
    }

    pub fn key(&self, key: i32) -> KeyBuffer {
        let mut buffer = KeyBuffer::new();
        self.by_key.encode(&[Cell::i32(key)], &mut buffer);
        buffer
    }

    /// The name of an account.
    pub fn name(key: i32) -> String {
        format!("the owner of account number {key}")
    }

    pub fn insert(&self, tx: &mut Transaction, key: i32, balance: i64) -> Result<RowId> {
        let name = Bank::name(key);
        if key % 2 == 0 {
            let row = (key, Some(balance), Some(Text::from(&name[..])));
            return tx.insert_as(&self.typed.whole, &row, &pin());
        }
        tx.insert(&self.accounts, &[Cell::i32(key), Cell::i64(balance), Cell::text(&name)], &pin())
    }

    pub fn find(&self, tx: &Transaction, key: i32, guard: &Guard) -> Option<RowId> {
        tx.get(&self.accounts, &self.by_key, &self.key(key), guard)
    }

    pub fn balance(&self, tx: &Transaction, key: i32) -> Option<i64> {
        let guard = pin();
        if key % 2 == 0 {
            let found = tx.find_as(&self.typed.by_key, &(key,), &self.typed.balance, &guard);
            return found.map(|(_, (balance,))| balance.expect("every account has one"));
        }
        let mut cells = [Cell::Null];
        tx.find(&self.accounts, &self.by_key, &self.key(key), &[BALANCE], &mut cells, &guard)?;
        Some(cells[0].as_i64())
    }

    pub fn set_balance(&self, tx: &mut Transaction, key: i32, balance: i64) -> Result<()> {
        let guard = pin();
        if key % 2 == 0 {
            let found = tx.find_as(&self.typed.by_key, &(key,), &self.typed.balance, &guard);
            let (row, _) = found.expect("the account exists");
            return tx.update_as(&self.typed.balance, row, &(Some(balance),), &guard);
        }
        let row = self.find(tx, key, &guard).expect("the account exists");
        tx.update(&self.accounts, row, &[BALANCE], &[Cell::i64(balance)], &guard)
    }

    pub fn set_key(&self, tx: &mut Transaction, key: i32, new: i32) -> Result<()> {
        let guard = pin();
        let row = self.find(tx, key, &guard).expect("the account exists");
        tx.update(&self.accounts, row, &[KEY], &[Cell::i32(new)], &guard)
    }

    pub fn lock(&self, tx: &mut Transaction, key: i32, lock: RowLock) -> Result<()> {
        let guard = pin();
        let row = self.find(tx, key, &guard).expect("the account exists");
        tx.lock(&self.accounts, row, lock, &guard)
    }

    pub fn delete(&self, tx: &mut Transaction, key: i32) -> Result<()> {
        let guard = pin();
        let row = self.find(tx, key, &guard).expect("the account exists");
        tx.delete(&self.accounts, row, &guard)
    }

    /// Every account that the transaction sees, in key order, found in three ways that agree.
    pub fn scan(&self, tx: &Transaction) -> Vec<(i32, i64)> {
        use arrow_array::cast::AsArray;
        use arrow_array::types::{Int32Type, Int64Type};
        let scan = self.accounts.scan(tx.snapshot(), &[KEY, BALANCE, NAME], true);
        let mut rows = Vec::new();
        while let Some(batch) = scan.next_batch(&pin()) {
            let keys = batch.columns[0].as_primitive::<Int32Type>();
            let balances = batch.columns[1].as_primitive::<Int64Type>();
            let names = batch.columns[2].as_string_view();
            assert_eq!(batch.row_ids.unwrap().len(), batch.rows);
            for row in 0..batch.rows {
                assert!(names.value(row).starts_with("the owner of account"), "{:?}", names.value(row));
                rows.push((keys.value(row), balances.value(row)));
            }
        }
        rows.sort_unstable();
        self.assert_indexed(tx, &rows);
        rows
    }

    /// Asserts that the index has exactly these accounts, one after another and many at a time.
    fn assert_indexed(&self, tx: &Transaction, rows: &[(i32, i64)]) {
        let guard = pin();
        let columns = [NAME, KEY, BALANCE];
        let mut ranged = Vec::new();
        let all = (Bound::Unbounded, Bound::Unbounded);
        tx.range_read(&self.accounts, &self.by_key, all, false, &columns, &guard, &mut |_, cells| {
            assert!(cells[0].bytes().starts_with(b"the owner of account"));
            ranged.push((cells[1].as_i32(), cells[2].as_i64()));
            true
        });
        assert_eq!(ranged, rows);
        let last = rows.last().map_or(0, |row| row.0);
        let mut found = Vec::new();
        tx.find_many(
            &self.accounts,
            &self.by_key,
            (last + 3) as usize,
            &mut |number, key| self.by_key.encode(&[Cell::i32(number as i32)], key),
            &columns,
            &guard,
            &mut |number, row| {
                if let Some((_, cells)) = row {
                    assert_eq!(cells[1].as_i32(), number as i32);
                    found.push((number as i32, cells[2].as_i64()));
                }
            },
        );
        assert_eq!(found, rows, "keys are not negative");

        let keys: Vec<(i32,)> = (0..last + 3).map(|key| (key,)).collect();
        let mut typed = Vec::new();
        tx.find_many_as(&self.typed.by_key, &keys, &self.typed.whole, &guard, |number, row| {
            if let Some((_, (key, balance, name))) = row {
                assert_eq!(key, number as i32);
                assert!(name.unwrap().as_str().starts_with("the owner of account"));
                typed.push((key, balance.unwrap()));
            }
        });
        assert_eq!(typed, rows);
        typed.clear();
        let (key, all) = (&self.typed.by_key, &self.typed.whole);
        tx.range_as(key, Bound::Unbounded, Bound::Unbounded, true, all, &guard, |_, (key, balance, _)| {
            typed.push((key, balance.unwrap()));
            true
        });
        typed.reverse();
        assert_eq!(typed, rows);
    }
}

/// Adds the table to the catalog.
fn describe(engine: &Engine, setup: &mut Transaction, accounts: &Table, index: IndexDef) {
    let columns = [("key", SqlType::Integer), ("balance", SqlType::BigInt), ("name", SqlType::Text)]
        .into_iter()
        .zip(accounts.columns());
    let column = |((name, ty), spec): ((&str, SqlType), &ColumnSpec)| ColumnDef {
        name: name.into(),
        ty: ty.into(),
        not_null: !spec.nullable,
        default: None,
        identity: None,
        generated: None,
        hidden: false,
        dropped: false,
    };
    let oid = engine.allocate_oid();
    let table = TableDef {
        oid,
        schema: Oid::PUBLIC,
        name: "accounts".into(),
        columns: columns.map(column).collect(),
        constraints: vec![],
        indexes: vec![index],
        storage: accounts.id().0,
        settings: TableSettings::default(),
    };
    setup.catalog_mut().unwrap().tables.insert(oid, Arc::new(table));
}

/// Commits a transaction of a database in memory, without a wait for a disk.
pub fn commit(tx: Transaction) {
    let _durable_at_once = tx.commit().unwrap();
}
