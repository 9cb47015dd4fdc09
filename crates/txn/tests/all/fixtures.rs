//! Directories that earlier versions wrote are opened. `fixtures/README.md` describes how they were made.

use crate::durable::*;
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Numeric, Representation, SqlType, TextStyle, Type, TypeId, Value, text};
use firn_txn::Engine;
use firn_txn::catalog::ColumnType;
use std::collections::BTreeMap;
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
    assert!(manifest.starts_with(b"FIRNDB 8 "));
}

/// The content of the directory of version 4.
fn state_of_version_4() -> State {
    let texts = |id: i32| match id {
        7 => Value::Null,
        _ => Value::Text(format!("a note of the row that is number {id}")),
    };
    let of_rows = (0..70).filter(|id| *id != 8).map(|id| vec![Value::Integer(id), texts(id)]);
    let of_loaded =
        (0..2100).map(|id| vec![Value::Integer(id), Value::BigInt(i64::from(id) * i64::from(id))]);
    let numbered = |rows: Vec<Vec<Value>>| {
        let rows: BTreeMap<u64, Vec<Value>> = (0..).zip(rows).collect();
        (Vec::new(), rows)
    };
    let tables = [("rows", numbered(of_rows.collect())), ("loaded", numbered(of_loaded.collect()))];
    tables.map(|(name, table)| (name.to_owned(), table)).into()
}

/// The same with consecutive ids, and without the names of indexes.
fn without_ids(state: State) -> State {
    let table = |(name, (_, rows)): (String, (_, BTreeMap<u64, Vec<Value>>))| {
        let mut rows: Vec<Vec<Value>> = rows.into_values().collect();
        rows.sort_by_key(|row| match row[0] {
            Value::Integer(id) => id,
            _ => unreachable!("the first column is an integer"),
        });
        (name, (Vec::new(), (0..).zip(rows).collect()))
    };
    state.into_iter().map(table).collect()
}

/// Its log has a spill file and names files of a load.
#[test]
fn a_directory_of_version_4_opens_and_continues() {
    let disk = place("version-4");
    let names = |disk: &SimulatedDisk, inner| {
        let names = files(disk, inner).into_iter().map(|path| path.file_name().unwrap().to_owned());
        names.map(|name| name.into_string().unwrap()).collect::<Vec<String>>()
    };
    assert!(names(&disk, "log").iter().any(|name| name.ends_with(".spill")));
    assert!(names(&disk, "checkpoint").iter().any(|name| name.contains("-load-")));
    let engine = open(&disk).unwrap();
    assert_eq!(without_ids(state(&engine)), state_of_version_4());
    let sequence = engine.catalog().sequences.values().next().expect("there is one").clone();
    assert!(engine.next_value(&sequence).unwrap() > 1);
    let mut tx = engine.begin();
    let of_before = table(&tx, "rows");
    insert(&mut tx, &of_before, &[Value::Integer(100), Value::Null]);
    commit(tx);
    let changed = state(&engine);
    let disk = disk.after_kill();
    for _ in 0..2 {
        let engine = open(&disk).unwrap();
        assert_eq!(state(&engine), changed);
        engine.checkpoint().unwrap();
        engine.close().unwrap();
    }
    // Nothing of the earlier version is left but files of rows, and spare segments.
    let left = names(&disk, "log");
    assert!(left.iter().all(|name| !name.ends_with(".spill")), "{left:?}");
    assert!(left.iter().all(|name| !name.ends_with(".redo") || name.contains('-')), "{left:?}");
}

/// The conversion fails at each operation of the disk, and then the power is cut.
#[test]
fn a_conversion_that_is_cut_short_loses_nothing_and_is_made_again() {
    for version in ["version-3", "version-4"] {
        let expected = state(&open(&place(version)).unwrap());
        let mut opened = 0;
        for operations in 0.. {
            let disk = place(version);
            disk.fail_after_operations(operations, Fault::Broken);
            // The preparer of segments may be the one that meets the fault: then a commit does.
            let outcome = open(&disk).and_then(|engine| {
                let mut tx = engine.begin();
                create_table(&mut tx, "new", &[(SqlType::Integer, false)]);
                try_commit(tx)
            });
            disk.heal();
            for seed in 0..2 {
                let cut = disk.after_power_cut(&mut Random::seeded(seed));
                let engine =
                    open(&cut).unwrap_or_else(|error| panic!("{version} {operations} {seed}: {error:?}"));
                let mut found = state(&engine);
                let has_new = found.remove("new").is_some();
                assert!(found == expected && (has_new || outcome.is_err()), "{version} {operations} {seed}");
                let mut tx = engine.begin();
                create_table(&mut tx, "newer", &[(SqlType::Integer, false)]);
                commit(tx);
                drop(engine);
                assert!(state(&open(&cut).unwrap()).contains_key("newer"), "{version} {operations} {seed}");
            }
            opened += u64::from(outcome.is_ok());
            if opened == 3 {
                break;
            }
        }
    }
}
