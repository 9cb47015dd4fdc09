//! What the tests share: a small database with one table of accounts.

use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Result, RowId, SqlType};
use firn_storage::{ColumnSpec, Index, IndexColumn, IndexId, IndexSpec, KeyBuffer, Table};
use firn_txn::{Config, Engine, Guard, RowLock, Transaction, pin};
use std::ops::Bound;

pub const KEY: ColumnId = ColumnId(0);
pub const BALANCE: ColumnId = ColumnId(1);
pub const NAME: ColumnId = ColumnId(2);

/// A database with the table `accounts (key integer primary key, balance bigint, name text)`.
pub struct Bank {
    pub engine: Arc<Engine>,
    pub accounts: Arc<Table>,
    pub by_key: Arc<Index>,
}

impl Bank {
    /// In memory, with blocks as small as they come.
    pub fn open() -> Bank {
        Bank::open_with(Config::default())
    }

    pub fn open_with(config: Config) -> Bank {
        let engine = Engine::open(Config { block_bytes: 1, ..config }).unwrap();
        let mut setup = engine.begin();
        let columns = vec![
            ColumnSpec { ty: SqlType::Integer, nullable: false },
            ColumnSpec { ty: SqlType::BigInt, nullable: true },
            ColumnSpec { ty: SqlType::Text, nullable: true },
        ];
        let id = setup.create_storage("accounts", columns).unwrap();
        let accounts = setup.table(id);
        let part =
            |column, ty| IndexColumn { column, ty, nullable: false, descending: false, nulls_first: false };
        let primary = IndexSpec {
            id: IndexId(1),
            name: "accounts_pkey".into(),
            columns: vec![part(KEY, SqlType::Integer)],
            unique: true,
        };
        setup.create_index(&accounts, primary).unwrap();
        commit(setup);
        let by_key = accounts.indexes()[0].clone();
        Bank { engine, accounts, by_key }
    }

    pub fn key(&self, key: i32) -> KeyBuffer {
        let mut buffer = KeyBuffer::new();
        self.by_key.encode(&[Cell::i32(key)], &mut buffer);
        buffer
    }

    /// The name that an account is given.
    pub fn name(key: i32) -> String {
        format!("the owner of account number {key}")
    }

    pub fn insert(&self, tx: &mut Transaction, key: i32, balance: i64) -> Result<RowId> {
        let name = Bank::name(key);
        tx.insert(&self.accounts, &[Cell::i32(key), Cell::i64(balance), Cell::text(&name)], &pin())
    }

    pub fn find(&self, tx: &Transaction, key: i32, guard: &Guard) -> Option<RowId> {
        tx.get(&self.accounts, &self.by_key, &self.key(key), guard)
    }

    pub fn balance(&self, tx: &Transaction, key: i32) -> Option<i64> {
        let guard = pin();
        let mut cells = [Cell::Null];
        tx.find(&self.accounts, &self.by_key, &self.key(key), &[BALANCE], &mut cells, &guard)?;
        Some(cells[0].as_i64())
    }

    pub fn set_balance(&self, tx: &mut Transaction, key: i32, balance: i64) -> Result<()> {
        let guard = pin();
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

    /// Asserts that the index leads to just these accounts, one after another and many at a time.
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
    }
}

/// Commits a transaction of a database in memory, where nobody waits for a disk.
pub fn commit(tx: Transaction) {
    let _durable_at_once = tx.commit().unwrap();
}
