//! Transactions in Rust: access paths that are prepared once, and closures that run until they commit.
//!
//! A [`TableAccess`] finds a table by its name and makes [`Columns`] to read, set or insert and [`Key`]s to
//! find rows by. Both know the Rust types of their values ([`firn_storage::typed`]) and check them against
//! the table's when they are made. So their use needs no look-up by name, no conversion and no plan.
//!
//! ```
//! # use firn_txn::{ColumnSpec, Config, Engine, IndexColumn, IndexSpec, TableAccess, pin};
//! # use firn_txn::catalog::{ColumnDef, IndexColumnDef, IndexDef, Oid, TableDef};
//! # use firn_base::{Representation, SqlType};
//! # fn main() -> firn_base::Result<()> {
//! # let engine = Engine::open(Config::default())?;
//! # let mut tx = engine.begin();
//! # let column = |name: &str| ColumnDef { name: name.into(), ty: SqlType::Integer.into(), not_null: true, default: None, identity: None, generated: None, hidden: false, dropped: false };
//! # let spec = ColumnSpec { representation: Representation::Int32, nullable: false };
//! # let storage = tx.create_storage("accounts", vec![spec.clone(), spec])?;
//! # let index = IndexDef { oid: engine.allocate_oid(), name: "accounts_pkey".into(), columns: vec![IndexColumnDef { column: 0, descending: false, nulls_first: false }], unique: true, values: true, deferral: Default::default(), condition: None, internal: false, annotations: Default::default() };
//! # let part = IndexColumn { column: firn_base::ColumnId(0), representation: Representation::Int32, nullable: false, descending: false, nulls_first: false };
//! # let table = tx.table(storage);
//! # tx.create_index(&table, IndexSpec { id: index.id(), name: index.name.clone(), columns: vec![part], unique: true, values: true }, 2)?;
//! # let oid = engine.allocate_oid();
//! # tx.catalog_mut()?.tables.insert(oid, std::sync::Arc::new(TableDef { oid, schema: Oid::PUBLIC, name: "accounts".into(), columns: vec![column("id"), column("balance")], constraints: vec![], indexes: vec![index], storage: storage.0, settings: Default::default() }));
//! # engine.wait(tx.commit()?)?;
//! // CREATE TABLE accounts (id integer PRIMARY KEY, balance integer NOT NULL)
//! let accounts = TableAccess::open(&engine, "accounts")?;
//! let by_id = accounts.key::<(i32,)>("accounts_pkey")?;
//! let row = accounts.all_columns::<(i32, i32)>()?;
//! let balance = accounts.columns::<(i32,)>(&["balance"])?;
//!
//! engine.transact(|tx| {
//!     let guard = &pin();
//!     tx.insert_as(&row, &(1, 100), guard)?;
//!     tx.insert_as(&row, &(2, 0), guard)?;
//!     Ok(())
//! })?;
//! engine.transact(|tx| {
//!     let guard = &pin();
//!     for (id, amount) in [(1, -30), (2, 30)] {
//!         let (row, (old,)) = tx.find_as(&by_id, &(id,), &balance, guard).expect("the account is there");
//!         tx.update_as(&balance, row, &(old + amount,), guard)?;
//!     }
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! Unique keys are enforced, and NOT NULL by the types. Only SQL checks CHECK and FOREIGN KEY constraints and deferrable
//! keys, and computes generated columns: a table that has some, or gets some, can be read but not written to in this way (0A000).
//! Likewise rows that foreign keys reference cannot be deleted, nor the referenced columns be set.
//!
//! Access paths belong to a table's present definition. After ALTER TABLE or DROP TABLE writing through them is an error
//! (55000: prepare them again), and reading returns the rows from before.

use crate::catalog::{Catalog, ConstraintDef, ConstraintKind, Deferral, Oid, TableDef};
use crate::engine::Engine;
use crate::isolation::Isolation;
use crate::ticket::Ticket;
use crate::transaction::{Change, Transaction};
use crate::waits::Waited;
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{ColumnId, Error, Result, RowId, SqlState, clock};
use firn_storage::{
    Guard, Index, KeyBuffer, Misfit, Projection, Row, Rows, Table, Vectors, is_long_string, pin,
};
use smallvec::SmallVec;
use std::iter::repeat;
use std::marker::PhantomData;
use std::ops::Bound;
use std::time::Duration;

/// A table, found by its name.
pub struct TableAccess {
    definition: Arc<TableDef>,
    table: Arc<Table>,
}

/// Columns of a table, with the types of `R`, to read, set or insert together.
pub struct Columns<R: Row> {
    table: Arc<Table>,
    projection: Projection<R>,
    definition: Oid,
    /// The kinds of change that constraints forbid here, and the version of the catalog for which this holds: see [`known`].
    known: AtomicU64,
}

/// An index, for keys with the types of `K`: of all its columns, or of its first ones.
pub struct Key<K: Row> {
    table: Arc<Table>,
    index: Arc<Index>,
    keys: PhantomData<fn(K)>,
}

impl TableAccess {
    /// The table of that name in schema `public`; 42P01 if there is none.
    pub fn open(engine: &Arc<Engine>, name: &str) -> Result<TableAccess> {
        let catalog = engine.catalog();
        let definition = catalog.table(Oid::PUBLIC, name).ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
        })?;
        let table = engine.table(definition.storage());
        Ok(TableAccess { definition: definition.clone(), table })
    }

    /// The table itself.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Some columns by their names. 42703 if there is no such column, 42804 if a column has another type
    /// than in `R`.
    pub fn columns<R: Row>(&self, names: &[&str]) -> Result<Columns<R>> {
        let ids: Vec<ColumnId> = names.iter().map(|name| self.column(name)).collect::<Result<_>>()?;
        self.columns_of(&ids)
    }

    /// All columns in their order, as rows are inserted. Errors as for [`TableAccess::columns`].
    pub fn all_columns<R: Row>(&self) -> Result<Columns<R>> {
        let ids: Vec<ColumnId> = (0..self.table.columns().len() as u16).map(ColumnId).collect();
        self.columns_of(&ids)
    }

    fn column(&self, name: &str) -> Result<ColumnId> {
        self.definition.column(name).map(|(id, _)| id).ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" of relation \"{}\" does not exist", self.definition.name),
            )
        })
    }

    fn columns_of<R: Row>(&self, ids: &[ColumnId]) -> Result<Columns<R>> {
        let projection = self.table.projection(ids).map_err(|misfit| self.mismatch(misfit))?;
        Ok(Columns {
            table: self.table.clone(),
            projection,
            definition: self.definition.oid,
            // Nothing, of no version.
            known: AtomicU64::new(0),
        })
    }

    /// An index by its name. 42704 if there is none of that name, 42804 if its first columns have other
    /// types than in `K`.
    pub fn key<K: Row>(&self, index: &str) -> Result<Key<K>> {
        let indexes = self.table.indexes();
        let found = indexes.iter().find(|candidate| candidate.spec().name == index);
        let index = found.ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_OBJECT, format!("index \"{index}\" does not exist"))
        })?;
        index.key_fits::<K>().map_err(|misfit| self.mismatch(misfit))?;
        Ok(Key { table: self.table.clone(), index: index.clone(), keys: PhantomData })
    }

    fn mismatch(&self, misfit: Misfit) -> Error {
        let message = match misfit {
            Misfit::Count { columns, fields } => {
                format!("the row type has {fields} fields for {columns} columns")
            }
            Misfit::Type(column) => {
                let definition = &self.definition.columns[column.index()];
                let null = if definition.not_null { "NOT NULL" } else { "and may be NULL" };
                format!("column \"{}\" is of type {} {null}", definition.name, definition.ty)
            }
        };
        Error::new(SqlState::DATATYPE_MISMATCH, message)
            .with_hint("Give a field of the type that stands for it; Option<…> if it may be NULL.")
    }
}

impl<R: Row> Columns<R> {
    /// Their table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Checks that rows may be written so; 0A000 if a constraint would not be checked.
    #[inline]
    fn check_writable(&self, engine: &Engine, way: Way) -> Result<()> {
        // Relaxed: a thread with a snapshot sees everything that was stored before the snapshot was published, also the version.
        let word = self.known.load(Ordering::Relaxed);
        let is_fine = word >> WAYS == engine.catalog_version() && word & way as u64 == 0;
        if is_fine { Ok(()) } else { self.check_again(engine, way) }
    }

    /// As [`Columns::check_writable`], with the newest catalog.
    #[cold]
    fn check_again(&self, engine: &Engine, way: Way) -> Result<()> {
        let catalog = engine.catalog();
        // The gate of a table that no longer exists refuses the change.
        let definition = catalog.tables.get(&self.definition);
        let in_the_way = |way| definition.and_then(|definition| self.unchecked(&catalog, definition, way));
        let closed =
            [Way::Insert, Way::Update, Way::Delete].into_iter().filter(|way| in_the_way(*way).is_some());
        self.known.store(known(catalog.version, closed), Ordering::Relaxed);
        let Some((table, what)) = in_the_way(way) else { return Ok(()) };
        Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("table \"{table}\" has {what}"))
            .with_hint(format!("Write to table \"{}\" by SQL statements.", self.table.name())))
    }

    /// What only SQL does and a change might need, with the table that has it.
    fn unchecked<'c>(
        &self,
        catalog: &'c Catalog,
        definition: &'c TableDef,
        way: Way,
    ) -> Option<(&'c str, String)> {
        let mut generated =
            definition.columns.iter().filter(|column| way != Way::Delete && column.generated.is_some());
        if let Some(column) = generated.next() {
            let what = match column.hidden {
                false => format!("generated column \"{}\", which only SQL computes", column.name),
                true => "an index on an expression or a partial index, which only SQL maintains".to_owned(),
            };
            return Some((&definition.name, what));
        }
        self.unchecked_constraint(catalog, definition, way)
            .map(|(table, constraint)| (table, format!("constraint \"{constraint}\", which only SQL checks")))
    }

    /// A constraint that only SQL checks and that a change might break, with the table that has it.
    fn unchecked_constraint<'c>(
        &self,
        catalog: &'c Catalog,
        definition: &'c TableDef,
        way: Way,
    ) -> Option<(&'c str, &'c str)> {
        let is_sqls = |constraint: &&ConstraintDef| match constraint.kind {
            ConstraintKind::Check { .. } | ConstraintKind::ForeignKey { .. } => way != Way::Delete,
            ConstraintKind::PrimaryKey { .. } | ConstraintKind::Unique { .. } => {
                way != Way::Delete && definition.deferral(constraint) != Deferral::Never
            }
        };
        let own = definition.constraints.iter().find(is_sqls).map(|own| (&*definition.name, &*own.name));
        let set = self.projection.set();
        own.or_else(|| {
            let others =
                catalog.tables.values().flat_map(|table| table.constraints.iter().zip(repeat(table)));
            others
                .filter(|(constraint, _)| match &constraint.kind {
                    ConstraintKind::ForeignKey { parent, parent_columns, .. }
                        if *parent == self.definition =>
                    {
                        way == Way::Delete
                            || way == Way::Update
                                && parent_columns.iter().any(|column| set.contains(ColumnId(*column)))
                    }
                    _ => false,
                })
                .map(|(constraint, table)| (&*table.name, &*constraint.name))
                .next()
        })
    }

    /// Prefetches the memory that reading or setting these columns touches, in rows of the same table that were located.
    #[inline]
    pub fn prefetch(&self, rows: &Rows) {
        self.table.prefetch_rows_as(rows, &self.projection);
    }

    /// The columns for storage.
    pub fn projection(&self) -> &Projection<R> {
        &self.projection
    }
}

/// A way to change a table, as a bit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Insert = 1,
    Update = 2,
    Delete = 4,
}

/// The number of ways.
const WAYS: u32 = 3;

/// A version of the catalog and the kinds of change that constraints forbid in it, in one word.
fn known(version: u64, closed: impl Iterator<Item = Way>) -> u64 {
    closed.fold(version << WAYS, |word, way| word | way as u64)
}

impl<K: Row> Key<K> {
    /// The index.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Its table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Prefetches what later transactions will touch: the paths to at most [`Rows::MOST`] full keys of a unique
    /// index, and columns of the rows under them. For programs that know several requests at a time: all of
    /// them together wait for memory hardly longer than one. Nothing is read or noted.
    #[inline]
    pub fn look_ahead<R: Row>(&self, keys: &[K::Values<'_>], columns: &Columns<R>, guard: &Guard) -> Rows {
        self.check_unique(&columns.table);
        columns.table.locate::<K, R>(&self.index, keys, &columns.projection, guard)
    }

    /// As [`Key::look_ahead`], for the paths alone, of any index, also to the first of several keys.
    #[inline]
    pub fn approach(&self, keys: &[K::Values<'_>], guard: &Guard) {
        let keys: SmallVec<[KeyBuffer; Rows::MOST]> = keys.iter().map(|key| self.encode(key)).collect();
        let ways: SmallVec<[(&Index, &[u8]); Rows::MOST]> =
            keys.iter().map(|key| (&*self.index, key.as_slice())).collect();
        Index::approach(&ways, guard);
    }

    #[inline(always)]
    fn encode(&self, key: &K::Values<'_>) -> KeyBuffer {
        let mut buffer = KeyBuffer::new();
        self.index.encode_as::<K>(key, &mut buffer);
        buffer
    }

    #[inline(always)]
    fn check(&self, table: &Arc<Table>) {
        assert!(Arc::ptr_eq(&self.table, table), "key and columns are of one table");
    }

    /// Asserts that its keys have all columns of a unique index.
    #[inline(always)]
    fn check_unique(&self, table: &Arc<Table>) {
        self.check(table);
        let spec = self.index.spec();
        assert!(
            spec.unique && spec.columns.len() == K::LEN,
            "one row is found by a full key of a unique index"
        );
    }
}

impl Transaction {
    /// Reads columns of a row; `None` if this transaction does not see it.
    #[inline]
    pub fn read_as<'g, R: Row>(
        &self,
        columns: &'g Columns<R>,
        row: RowId,
        guard: &'g Guard,
    ) -> Option<R::Values<'g>> {
        let row = self.current_row_id(&columns.table, row);
        let seen = columns.table.read_as(self.snapshot(), row, &columns.projection, guard);
        if seen.is_some() {
            self.note(|reads| reads.row(columns.table.id(), row, columns.projection.set()));
        }
        seen
    }

    /// The visible row under a full key of a unique index, with columns of it.
    #[inline]
    pub fn find_as<'g, K: Row, R: Row>(
        &self,
        key: &Key<K>,
        values: &K::Values<'_>,
        columns: &'g Columns<R>,
        guard: &'g Guard,
    ) -> Option<(RowId, R::Values<'g>)> {
        key.check_unique(&columns.table);
        let buffer = key.encode(values);
        let table = &columns.table;
        let found = table.find_as(&key.index, &buffer, self.snapshot(), &columns.projection, guard);
        self.note(|reads| match &found {
            Some((row, _)) => {
                reads.row(table.id(), *row, columns.projection.set().union(key.index.columns()))
            }
            None => reads.nothing(table.id(), &key.index, &buffer),
        });
        found
    }

    /// As [`Transaction::find_as`] for any number of keys, faster than one by one where the rows are in
    /// no cache; `visit` gets the number of the key and its row, in the order of the keys.
    #[inline]
    pub fn find_many_as<'g, K: Row, R: Row>(
        &self,
        key: &Key<K>,
        keys: &[K::Values<'_>],
        columns: &'g Columns<R>,
        guard: &'g Guard,
        mut visit: impl FnMut(usize, Option<(RowId, R::Values<'g>)>),
    ) {
        key.check_unique(&columns.table);
        let (table, projection) = (&columns.table, &columns.projection);
        let read = projection.set().union(key.index.columns());
        table.find_many_as::<K, R>(
            &key.index,
            keys,
            self.snapshot(),
            projection,
            guard,
            &mut |number, found| {
                self.note_found(key, &keys[number], found.as_ref().map(|(row, _)| *row), read);
                visit(number, found);
            },
        );
    }

    #[inline(always)]
    fn note_found<K: Row>(
        &self,
        key: &Key<K>,
        values: &K::Values<'_>,
        row: Option<RowId>,
        columns: firn_base::ColumnSet,
    ) {
        self.note(|reads| match row {
            Some(row) => reads.row(key.table.id(), row, columns),
            None => reads.nothing(key.table.id(), &key.index, &key.encode(values)),
        });
    }

    /// Searches for the rows under at most [`Rows::MOST`] keys and prefetches what reading them touches, while
    /// the transaction does something else. [`Transaction::read_located`] then reads them with the same guard;
    /// it may miss rows that the transaction itself has changed meanwhile.
    #[inline]
    pub fn locate<K: Row, R: Row>(
        &self,
        key: &Key<K>,
        keys: &[K::Values<'_>],
        columns: &Columns<R>,
        guard: &Guard,
    ) -> Rows {
        key.check_unique(&columns.table);
        columns.table.locate::<K, R>(&key.index, keys, &columns.projection, guard)
    }

    /// Reads the rows of [`Transaction::locate`] under the same keys; `visit` as for
    /// [`Transaction::find_many_as`].
    #[inline]
    pub fn read_located<'g, K: Row, R: Row>(
        &self,
        key: &Key<K>,
        keys: &[K::Values<'_>],
        rows: &Rows,
        columns: &'g Columns<R>,
        guard: &'g Guard,
        mut visit: impl FnMut(usize, Option<(RowId, R::Values<'g>)>),
    ) {
        key.check_unique(&columns.table);
        let (table, projection) = (&columns.table, &columns.projection);
        let read = projection.set().union(key.index.columns());
        table.read_located::<K, R>(
            &key.index,
            keys,
            rows,
            self.snapshot(),
            projection,
            guard,
            &mut |number, found| {
                self.note_found(key, &keys[number], found.as_ref().map(|(row, _)| *row), read);
                visit(number, found);
            },
        );
    }

    /// Calls `visit` with every visible row between two keys, in key order or against it, until it returns
    /// false. A key may have only the first columns of the index; then it represents all keys that begin with
    /// it. The columns of the key count as read too, since they determine the order.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    pub fn range_as<'g, K: Row, R: Row>(
        &self,
        key: &Key<K>,
        low: Bound<&K::Values<'_>>,
        high: Bound<&K::Values<'_>>,
        reverse: bool,
        columns: &'g Columns<R>,
        guard: &'g Guard,
        mut visit: impl FnMut(RowId, R::Values<'g>) -> bool,
    ) {
        key.check(&columns.table);
        let (low, high) = (low.map(|low| key.encode(low)), high.map(|high| key.encode(high)));
        let bounds = (low.as_ref().map(KeyBuffer::as_slice), high.as_ref().map(KeyBuffer::as_slice));
        let (table, projection) = (&columns.table, &columns.projection);
        let end = table.range_as(&key.index, bounds, reverse, self.snapshot(), projection, guard, &mut visit);
        let read = projection.set().union(key.index.columns());
        self.note_range(table, &key.index, bounds, reverse, end.as_ref(), &[], read);
    }

    /// As [`Transaction::range_as`] for all keys that begin with some values, in key order.
    #[inline]
    pub fn prefix_as<'g, K: Row, R: Row>(
        &self,
        key: &Key<K>,
        prefix: &K::Values<'_>,
        columns: &'g Columns<R>,
        guard: &'g Guard,
        visit: impl FnMut(RowId, R::Values<'g>) -> bool,
    ) {
        self.range_as(key, Bound::Included(prefix), Bound::Included(prefix), false, columns, guard, visit);
    }

    /// Calls `visit` with slices of the columns of all visible rows, some rows at a time, in no particular
    /// order.
    pub fn scan_as<R: Vectors>(&self, columns: &Columns<R>, mut visit: impl FnMut(R::Slices<'_>)) {
        let Columns { table, projection, .. } = columns;
        self.note_scan(table, &[], projection.set());
        let scan = table.scan_as(self.snapshot(), projection);
        while scan.next_vectors::<R>(&pin(), &mut visit) {}
    }

    /// Folds all visible rows into a state, in no particular order.
    ///
    /// This is the fastest way to read a table: rows are read in place, as from an array. Other transactions may
    /// change them meanwhile. If that is found afterwards, the former state is restored, and the rows are read
    /// again as this transaction sees them. So `fold` may be called with values that were never in one row
    /// together: it must return for any values, and have no effect but on the state.
    ///
    /// ```
    /// # use firn_txn::{Columns, Transaction};
    /// # fn total(tx: &Transaction, amounts: &Columns<(i32, i64)>) -> i64 {
    /// // Wrapping: values that were never in one row together may be any numbers.
    /// tx.fold_as(amounts, 0, |sum, (count, price)| {
    ///     *sum = i64::wrapping_add(*sum, price.wrapping_mul(i64::from(count)))
    /// })
    /// # }
    /// ```
    pub fn fold_as<R: Vectors, S: Copy>(&self, columns: &Columns<R>, init: S, fold: impl Fn(&mut S, R)) -> S {
        let Columns { table, projection, .. } = columns;
        self.note_scan(table, &[], projection.set());
        let scan = table.scan_as(self.snapshot(), projection);
        let mut state = init;
        while scan.fold_next(&pin(), &mut state, &fold) {}
        state
    }

    /// Prefetches the memory that reading or setting columns of a row touches.
    #[inline]
    pub fn prefetch_as<R: Row>(&self, columns: &Columns<R>, row: RowId) {
        columns.table.prefetch_as(row, &columns.projection);
    }

    /// Inserts a row of all columns; see [`Table::insert`] for the errors.
    #[inline]
    pub fn insert_as<R: Row>(
        &mut self,
        columns: &Columns<R>,
        values: &R::Values<'_>,
        guard: &Guard,
    ) -> Result<RowId> {
        columns.check_writable(self.engine(), Way::Insert)?;
        let (snapshot, Columns { table, projection, .. }) = (self.snapshot(), columns);
        let before = self.mark_for_retry();
        self.check_memory(table, Change::Insert, || R::cells(values).as_ref().iter().any(is_long_string))?;
        let mut inserted = table.insert_as(self.writes_to(table)?, snapshot, projection, values, guard);
        if inserted.as_ref().is_err_and(|error| error.state() == SqlState::OUT_OF_MEMORY) {
            // As for `Transaction::insert`.
            self.engine().collect_now();
            inserted = table.insert_as(self.writes_to(table)?, snapshot, projection, values, guard);
        }
        if inserted.as_ref().is_err_and(|error| self.retry_with_snapshot(error, before, guard)) {
            let snapshot = self.snapshot();
            inserted = table.insert_as(self.writes_to(table)?, snapshot, projection, values, guard);
        }
        inserted.map_err(|error| {
            self.violation(table, error, guard, |index| {
                let mut key = KeyBuffer::new();
                let cells = R::cells(values);
                index.encode_with(|column| cells.as_ref()[column.index()], &mut key);
                Some(key)
            })
        })
    }

    /// Inserts several rows, faster than one by one.
    #[inline]
    pub fn insert_rows_as<R: Row>(
        &mut self,
        columns: &Columns<R>,
        rows: &[R::Values<'_>],
        guard: &Guard,
    ) -> Result<()> {
        columns.check_writable(self.engine(), Way::Insert)?;
        let Columns { table, projection, .. } = columns;
        self.check_memory(table, Change::Insert, || table.has_strings())?;
        self.insert_with_retry(table, guard, |writes, snapshot| {
            table.insert_rows_as(writes, snapshot, projection, rows, guard)
        })
    }

    /// Sets columns of a visible row; see [`Table::update`] for the errors.
    #[inline]
    pub fn update_as<R: Row>(
        &mut self,
        columns: &Columns<R>,
        row: RowId,
        values: &R::Values<'_>,
        guard: &Guard,
    ) -> Result<()> {
        columns.check_writable(self.engine(), Way::Update)?;
        let (snapshot, table) = (self.snapshot(), &columns.table);
        self.check_memory(table, Change::Update, || R::cells(values).as_ref().iter().any(is_long_string))?;
        let row = self.current_row_id(table, row);
        let projection = &columns.projection;
        let mut updated = table.update_as(self.writes_to(table)?, snapshot, row, projection, values, guard);
        if updated.as_ref().is_err_and(|error| error.state() == SqlState::OUT_OF_MEMORY) {
            // As for `Transaction::update`.
            self.engine().collect_now();
            updated = table.update_as(self.writes_to(table)?, snapshot, row, projection, values, guard);
        }
        updated.map_err(|error| self.violation(table, error, guard, |_| None))
    }

    /// Deletes a visible row of the columns' table; see [`Table::delete`] for the errors.
    #[inline]
    pub fn delete_as<R: Row>(&mut self, columns: &Columns<R>, row: RowId, guard: &Guard) -> Result<()> {
        columns.check_writable(self.engine(), Way::Delete)?;
        self.delete(&columns.table, row, guard)
    }
}

/// How often a closure is run again after conflicts.
const MOST_RETRIES: u32 = 100;
/// The longest pause before another attempt; the first is a few microseconds, and each may be twice as long as the last.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

impl Engine {
    /// Runs `work` in a serializable transaction, commits it and waits until it is on disk. If it meets
    /// a conflict with another one (40001, 40P01) it is rolled back and runs again from the beginning, so
    /// `work` should change nothing else. After any other error, or after a hundred conflicts, it is rolled
    /// back and the error is returned.
    pub fn transact<T>(self: &Arc<Self>, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_at(Isolation::Serializable, work)
    }

    /// As [`Engine::transact`], at another isolation level. At READ COMMITTED `work` reads one state until it
    /// [refreshes](Transaction::refresh) the transaction.
    pub fn transact_at<T>(
        self: &Arc<Self>,
        isolation: Isolation,
        work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let (value, ticket, begun) = self.attempt(isolation, self.has_log(), work)?;
        self.wait(ticket)?;
        if let Some(begun) = begun {
            self.statistics().note_latency(begun.elapsed());
        }
        Ok(value)
    }

    /// As [`Engine::transact`], but does not wait until it is on disk: [`Engine::wait`] does, for the
    /// ticket.
    pub fn transact_ahead<T>(
        self: &Arc<Self>,
        work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Ticket)> {
        let (value, ticket, _) = self.attempt(Isolation::Serializable, false, work)?;
        Ok((value, ticket))
    }

    /// Runs `work` in a transaction that only reads: it sees one state, needs no validation and meets no conflict. Waits until
    /// what it has seen is on disk.
    pub fn read<T>(self: &Arc<Self>, work: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
        let mut transaction = self.try_begin(Isolation::Serializable)?;
        transaction.set_read_only();
        let value = work(&transaction)?;
        self.wait(transaction.commit()?)?;
        Ok(value)
    }

    /// Runs `work` until it commits. Also returns the time before the commit, if it is timed and has written.
    fn attempt<T>(
        self: &Arc<Self>,
        isolation: Isolation,
        is_timed: bool,
        mut work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Ticket, Option<clock::Instant>)> {
        let mut retries = 0;
        loop {
            let mut transaction = self.try_begin(isolation)?;
            let outcome = match work(&mut transaction) {
                Ok(value) => {
                    let begun = (is_timed && transaction.has_writes()).then(clock::now);
                    transaction.commit().map(|ticket| (value, ticket, begun))
                }
                Err(error) => {
                    transaction.rollback();
                    Err(error)
                }
            };
            if let Err(error) = &outcome {
                self.statistics().note_abort(isolation, Some(error));
            }
            match outcome {
                Err(error) if error.is_retryable() && retries < MOST_RETRIES => {
                    self.pause(&error, retries);
                    retries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits before another attempt of a transaction that has failed with a retryable error: for the end of the blocking
    /// transaction if it is known, otherwise for a random time, which grows with every attempt.
    #[cold]
    pub fn pause(self: &Arc<Self>, error: &Error, retries: u32) {
        if let Some(blocker) = error.blocker()
            // It holds nothing itself, so no transaction waits for it in turn.
            && let Ok(reader) = self.try_begin(Isolation::ReadCommitted)
        {
            while reader.wait_for(blocker, Duration::from_secs(1)) == Waited::NotYet {}
            return;
        }
        let most = LONGEST_PAUSE.min(Duration::from_micros(4 << retries.min(16)));
        let nanos = Random::from_entropy().uniform(0, most.as_nanos() as i64);
        clock::sleep(Duration::from_nanos(nanos as u64));
    }
}
