//! Helpers of the durability tests: databases on a simulated disk, and their whole content.

use firn_base::disk::{Disk, SimulatedDisk};
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Result, RowId, SqlType, Stored, Value};
use firn_log::LogOptions;
use firn_storage::{ColumnSpec, KeyBuffer, Table, arrow};
use firn_txn::catalog::{
    ColumnDef, ColumnType, ConstraintDef, ConstraintKind, Deferral, IndexColumnDef, IndexDef, Oid,
    SequenceDef, TableDef, TableSettings,
};
use firn_txn::{Config, Engine, Transaction, pin};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub fn directory() -> &'static Path {
    Path::new("/data/db")
}

/// All sizes as small as possible.
pub fn config() -> Config {
    Config {
        directory: Some(directory().to_owned()),
        block_bytes: 1,
        log: LogOptions { segment_bytes: 4096 + 2048, spill_bytes: 200, ..LogOptions::default() },
        // Rows are not moved: some tests rely on their places.
        freeze_after: None,
        ..Config::default()
    }
}

pub fn open(disk: &Arc<SimulatedDisk>) -> Result<Arc<Engine>> {
    Engine::open_on(disk.clone(), config())
}

/// Commits and waits for the disk.
pub fn commit(tx: Transaction) {
    try_commit(tx).unwrap();
}

pub fn try_commit(tx: Transaction) -> Result<()> {
    let engine = tx.engine().clone();
    let ticket = tx.commit()?;
    engine.wait(ticket)
}

/// Makes a table whose first column is its primary key.
pub fn create_table(
    tx: &mut Transaction,
    name: &str,
    columns: &[(impl Into<ColumnType> + Copy, bool)],
) -> Arc<Table> {
    let columns: Vec<(ColumnType, bool)> =
        columns.iter().map(|(ty, nullable)| ((*ty).into(), *nullable)).collect();
    let engine = tx.engine().clone();
    let specs = columns
        .iter()
        .map(|(ty, nullable)| ColumnSpec { representation: ty.stored, nullable: *nullable })
        .collect();
    let storage = tx.create_storage(name, specs).unwrap();
    let (oid, constraint, index) = (engine.allocate_oid(), engine.allocate_oid(), engine.allocate_oid());
    let column = |(position, (ty, nullable)): (usize, &(ColumnType, bool))| ColumnDef {
        name: format!("c{position}"),
        ty: *ty,
        not_null: !nullable,
        default: None,
        identity: None,
        generated: None,
        hidden: false,
        dropped: false,
    };
    let definition = TableDef {
        oid,
        schema: Oid::PUBLIC,
        name: name.to_owned(),
        columns: columns.iter().enumerate().map(column).collect(),
        constraints: vec![ConstraintDef {
            oid: constraint,
            name: format!("{name}_pkey"),
            kind: ConstraintKind::PrimaryKey { index },
            valid: true,
        }],
        indexes: vec![index_definition(index, &format!("{name}_pkey"), 0, true)],
        storage: storage.0,
        settings: TableSettings::default(),
    };
    let table = tx.table(storage);
    tx.create_index(&table, definition.indexes[0].spec(&table), 2).unwrap();
    tx.catalog_mut().unwrap().tables.insert(oid, Arc::new(definition));
    table
}

fn index_definition(oid: Oid, name: &str, column: u16, unique: bool) -> IndexDef {
    let columns = vec![IndexColumnDef { column, descending: false, nulls_first: false }];
    IndexDef {
        oid,
        name: name.to_owned(),
        columns,
        unique,
        nulls_not_distinct: false,
        values: true,
        deferral: Deferral::Never,
        condition: None,
        internal: false,
        annotations: Default::default(),
    }
}

/// Adds an index over one column to a table.
pub fn create_index(tx: &mut Transaction, name: &str, column: u16) {
    let oid = tx.engine().allocate_oid();
    let mut definition = TableDef::clone(definition(tx, name));
    definition.indexes.push(index_definition(oid, &format!("{name}_{column}_idx"), column, false));
    let table = tx.table(definition.storage());
    tx.create_index(&table, definition.indexes.last().unwrap().spec(&table), 2).unwrap();
    tx.catalog_mut().unwrap().tables.insert(definition.oid, Arc::new(definition));
}

pub fn drop_table(tx: &mut Transaction, name: &str) {
    let (oid, storage) = (definition(tx, name).oid, definition(tx, name).storage());
    let table = tx.table(storage);
    tx.lock_exclusive(&table).unwrap();
    tx.drop_storage(storage).unwrap();
    tx.catalog_mut().unwrap().tables.remove(&oid);
}

pub fn create_sequence(tx: &mut Transaction, name: &str) -> SequenceDef {
    let definition = SequenceDef {
        oid: tx.engine().allocate_oid(),
        schema: Oid::PUBLIC,
        name: name.to_owned(),
        ty: SqlType::BigInt,
        start: 1,
        increment: 1,
        minimum: 1,
        maximum: i64::MAX,
        cycle: false,
        cache: 1,
        owner: None,
        is_identity: false,
    };
    tx.catalog_mut().unwrap().sequences.insert(definition.oid, Arc::new(definition.clone()));
    definition
}

pub fn definition<'t>(tx: &'t Transaction, name: &str) -> &'t Arc<TableDef> {
    tx.catalog().table(Oid::PUBLIC, name).expect("the table exists")
}

pub fn table(tx: &Transaction, name: &str) -> Arc<Table> {
    tx.table(definition(tx, name).storage())
}

pub fn insert(tx: &mut Transaction, table: &Arc<Table>, row: &[Value]) -> RowId {
    let stored: Vec<Stored<'_>> =
        row.iter().zip(table.columns()).map(|(value, column)| value.stored(column.representation)).collect();
    let cells: Vec<Cell<'_>> = stored.iter().map(Stored::cell).collect();
    tx.insert(table, &cells, &pin()).unwrap()
}

/// The row with that value in its first column, by the primary key.
pub fn find(tx: &Transaction, table: &Arc<Table>, key: &Value) -> Option<RowId> {
    let index = table.indexes()[0].clone();
    let mut bytes = KeyBuffer::new();
    index.encode(&[key.as_cell(table.columns()[0].representation)], &mut bytes);
    tx.get(table, &index, &bytes, &pin())
}

pub fn update(tx: &mut Transaction, table: &Arc<Table>, key: &Value, column: u16, value: &Value) {
    let row = find(tx, table, key).expect("the row exists");
    let stored = value.stored(table.columns()[usize::from(column)].representation);
    tx.update(table, row, &[ColumnId(column)], &[stored.cell()], &pin()).unwrap();
}

pub fn delete(tx: &mut Transaction, table: &Arc<Table>, key: &Value) {
    let row = find(tx, table, key).expect("the row exists");
    tx.delete(table, row, &pin()).unwrap();
}

/// The content of a database: per table its indexes and its rows by their ids.
pub type State = BTreeMap<String, (Vec<String>, BTreeMap<u64, Vec<Value>>)>;

/// Reads everything and checks that the indexes agree with it.
pub fn state(engine: &Arc<Engine>) -> State {
    // The collector removes entries from indexes, which are counted below.
    while engine.garbage_backlog() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let tx = engine.begin();
    let mut state = State::new();
    for definition in tx.catalog().tables.values() {
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
        assert_eq!(indexes.len(), definition.indexes.len());
        for index in indexes.iter() {
            for (id, row) in &rows {
                let part = index.spec().columns[0];
                let mut key = KeyBuffer::new();
                index.encode(&[row[part.column.index()].stored(part.representation).cell()], &mut key);
                let mut found = false;
                index.lookup(&key, &pin(), &mut |row| {
                    found |= row.to_bits() == *id;
                    true
                });
                assert!(found, "index {} lacks row {id}", index.spec().name);
            }
            index.verify();
        }
        let names = definition.indexes.iter().map(|index| index.name.clone()).collect();
        state.insert(definition.name.clone(), (names, rows));
    }
    state
}

/// The paths of the files of an inner directory.
pub fn files(disk: &SimulatedDisk, inner: &str) -> Vec<PathBuf> {
    let inner = directory().join(inner);
    disk.list(&inner).unwrap().iter().map(|name| inner.join(name)).collect()
}
