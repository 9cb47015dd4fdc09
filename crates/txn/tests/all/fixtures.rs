//! Directories that earlier versions wrote are opened. `fixtures/README.md` describes how they were made.

use crate::durable::*;
use firn_base::disk::{Disk, SimulatedDisk};
use firn_base::sync::Arc;
use firn_base::{Numeric, Representation, SqlType, TextStyle, Type, TypeId, Value, text};
use firn_txn::Engine;
use firn_txn::catalog::ColumnType;
use std::path::{Path, PathBuf};

/// The columns of the table in the fixture.
const COLUMNS: [(&str, SqlType); 6] = [
    ("id", SqlType::Integer),
    ("plain", SqlType::NUMERIC),
    ("cents", SqlType::Numeric { precision: 12, scale: 2 }),
    ("note", SqlType::Varchar(Some(40))),
    ("code", SqlType::Char(4)),
    ("day", SqlType::Date),
];

/// Puts the files of a fixture on a simulated disk.
fn place(name: &str) -> Arc<SimulatedDisk> {
    let disk = SimulatedDisk::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/fixtures").join(name);
    let mut left = vec![PathBuf::new()];
    while let Some(inner) = left.pop() {
        let target =
            if inner.as_os_str().is_empty() { directory().to_owned() } else { directory().join(&inner) };
        disk.create_directory(&target).unwrap();
        for entry in std::fs::read_dir(source.join(&inner)).unwrap() {
            let entry = entry.unwrap();
            let path = inner.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                left.push(path);
                continue;
            }
            let file = disk.create(&directory().join(&path)).unwrap();
            file.write_at(&std::fs::read(entry.path()).unwrap(), 0).unwrap();
            file.sync().unwrap();
        }
        disk.sync_directory(&target).unwrap();
    }
    disk
}

/// The rows that were inserted, by the rule with which the fixture was made.
fn expected() -> Vec<Vec<Value>> {
    let row = |id: i32| {
        let sign = if id % 2 == 0 { "-" } else { "" };
        let decimals = ["50", "125", "0000000000000001", "0"][id as usize % 4];
        let texts = [
            Some(id.to_string()),
            (id % 5 != 4).then(|| format!("{sign}{id}.{decimals}")),
            Some(format!("{id}.05")),
            Some(format!("a note of the row that is number {id}")),
            Some(format!("c{id}")),
            Some(format!("2026-01-{:02}", id % 28 + 1)),
        ];
        let value = |(text, (_, ty)): (&Option<String>, (&str, SqlType))| match text {
            Some(text) => text::parse(text, ty, &TextStyle::DEFAULT).expect("the text is a value"),
            None => Value::Null,
        };
        texts.iter().zip(COLUMNS).map(value).collect()
    };
    (0..30).map(row).collect()
}

fn rows(engine: &Arc<Engine>, name: &str) -> Vec<Vec<Value>> {
    let (_, rows) = state(engine).remove(name).expect("the table exists");
    rows.into_values().collect()
}

#[test]
fn a_directory_of_version_3_opens_and_continues() {
    let disk = place("version-3");
    let engine = open(&disk).unwrap();
    assert_eq!(rows(&engine, "rows"), expected());
    let mut tx = engine.begin();
    let plain = definition(&tx, "rows").columns[1].ty;
    // Its type is that of today's columns, its representation is not.
    assert_eq!(plain.declared, Type::new(TypeId::NUMERIC));
    assert_eq!(plain.stored, Representation::Decimal { precision: 38, scale: 16 });
    let of_now = ColumnType::new(plain.declared).expect("columns of this type exist");
    let key = ColumnType::from(SqlType::Integer);
    let table_of_now = create_table(&mut tx, "now", &[(key, false), (of_now, true)]);
    let number = Value::Number(Numeric::parse("1.500").unwrap());
    insert(&mut tx, &table_of_now, &[Value::Integer(1), number]);
    let of_before = table(&tx, "rows");
    update(&mut tx, &of_before, &Value::Integer(7), 1, &Value::Numeric { unscaled: 1, scale: 16 });
    commit(tx);
    let mut changed = expected();
    changed[7][1] = Value::Numeric { unscaled: 1, scale: 16 };
    let disk = disk.after_kill();
    for is_checked in [false, true] {
        let engine = open(&disk).unwrap();
        assert_eq!(rows(&engine, "rows"), changed, "checkpoint: {is_checked}");
        assert_eq!(format!("{:?}", rows(&engine, "now")), "[[Integer(1), Number(1.500)]]");
        engine.checkpoint().unwrap();
        engine.close().unwrap();
    }
    let manifest = (&*disk as &dyn Disk).read(&directory().join("MANIFEST")).unwrap();
    assert!(manifest.starts_with(b"FIRNDB 4 "));
}
