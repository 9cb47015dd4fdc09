//! The speed of a restart: commits rows one by one and in bulk, then measures replaying the log, writing a
//! checkpoint and loading it.
//!
//! `cargo run --release -p firn-txn --example restart [rows]`

use firn_base::clock::now;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Result, RowId, SqlType};
use firn_storage::{ColumnSpec, Table};
use firn_txn::catalog::{ColumnDef, IndexColumnDef, IndexDef, Oid, TableDef, TableSettings};
use firn_txn::{Config, Engine, pin};

const TYPES: [SqlType; 6] = [
    SqlType::BigInt,
    SqlType::Integer,
    SqlType::Numeric { precision: 12, scale: 2 },
    SqlType::Date,
    SqlType::Text,
    SqlType::Text,
];

fn create(engine: &Arc<Engine>) -> Result<Arc<Table>> {
    let mut tx = engine.begin();
    let columns =
        TYPES.iter().map(|ty| ColumnSpec { representation: (*ty).into(), nullable: false }).collect();
    let storage = tx.create_storage("rows", columns)?;
    let table = tx.table(storage);
    let oid = engine.allocate_oid();
    let part = IndexColumnDef { column: 0, descending: false, nulls_first: false };
    let index = IndexDef {
        oid: engine.allocate_oid(),
        name: "rows_pkey".into(),
        columns: vec![part],
        unique: true,
        values: true,
        deferral: Default::default(),
        condition: None,
        internal: false,
        annotations: Default::default(),
    };
    tx.create_index(&table, index.spec(&table), 2)?;
    let column = |(position, ty): (usize, &SqlType)| ColumnDef {
        name: format!("c{position}"),
        ty: (*ty).into(),
        not_null: true,
        default: None,
        identity: None,
        generated: None,
        hidden: false,
        dropped: false,
    };
    let definition = TableDef {
        oid,
        schema: Oid::PUBLIC,
        name: "rows".into(),
        columns: TYPES.iter().enumerate().map(column).collect(),
        constraints: vec![],
        indexes: vec![index],
        storage: storage.0,
        settings: TableSettings::default(),
    };
    tx.catalog_mut()?.tables.insert(oid, Arc::new(definition));
    engine.wait(tx.commit()?)?;
    Ok(table)
}

fn main() -> Result<()> {
    let rows: i64 = std::env::args().nth(1).and_then(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    let root = std::env::temp_dir().join(format!("firn-restart-{}", std::process::id()));
    let config = Config { directory: Some(root.clone()), ..Config::default() };
    let _ = std::fs::remove_dir_all(&root);

    let begin = now();
    let engine = Engine::open(config.clone())?;
    println!("create    {:8.3} s", begin.elapsed().as_secs_f64());
    let table = create(&engine)?;
    let begin = now();
    let mut checksum = 0i64;
    let mut last = None;
    let mut ids: Vec<RowId> = Vec::new();
    for key in 0..rows {
        let mut tx = engine.begin();
        let guard = pin();
        let comment = format!("comment {} of a row that has one", key % 1000);
        let cells = [
            Cell::i64(key),
            Cell::i32(key as i32 % 7),
            Cell::i64(key * 100),
            Cell::i32(9000),
            Cell::text("AIR"),
            Cell::text(&comment),
        ];
        ids.push(tx.insert(&table, &cells, &guard)?);
        if key % 2 == 1 {
            let row = ids[(key / 2) as usize];
            tx.update(&table, row, &[ColumnId(2)], &[Cell::i64(key)], &guard)?;
        }
        checksum = checksum.wrapping_add(key);
        last = Some(tx.commit()?);
    }
    engine.wait(last.expect("some rows"))?;
    let spent = begin.elapsed().as_secs_f64();
    println!("commit    {spent:8.3} s  {:9.0} /s, not waiting for each", rows as f64 / spent);
    drop((table, engine));

    let begin = now();
    let engine = Engine::open(config.clone())?;
    let spent = begin.elapsed().as_secs_f64();
    println!("replay    {spent:8.3} s  {:9.0} commits/s", rows as f64 / spent);
    let begin = now();
    engine.close()?;
    println!("checkpoint{:8.3} s", begin.elapsed().as_secs_f64());
    drop(engine);

    let begin = now();
    let engine = Engine::open(config)?;
    let spent = begin.elapsed().as_secs_f64();
    println!("load      {spent:8.3} s  {:9.0} rows/s", rows as f64 / spent);
    let found: u64 = engine.tables().iter().map(|table| table.approximate_rows()).sum();
    println!("{found} rows, checksum {checksum}");
    std::fs::remove_dir_all(&root).expect("the directory was just created");
    Ok(())
}
