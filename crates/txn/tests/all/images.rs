//! Columns whose values are stored as images: numerics with scales of their own, and arrays.

use crate::durable::*;
use firn_base::disk::SimulatedDisk;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{ArrayValue, Cell, ColumnId, Numeric, Representation, RowId, SqlState, Type, TypeId, Value};
use firn_storage::{BlockState, KeyBuffer, Restriction, images, summary};
use firn_txn::catalog::ColumnType;
use firn_txn::{Engine, Progress, Transaction, pin};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// The types of the columns after the key.
const TYPES: [TypeId; 4] = [TypeId::NUMERIC, TypeId::INT4_ARRAY, TypeId::TEXT_ARRAY, TypeId::OID];

fn columns() -> Vec<(ColumnType, bool)> {
    let column = |id| ColumnType::new(Type::new(id)).expect("columns of this type exist");
    let key = (column(TypeId::INT4), false);
    std::iter::once(key).chain(TYPES.map(|id| (column(id), true))).collect()
}

type Rows = BTreeMap<i32, Vec<Value>>;

fn any_numeric(random: &mut Random) -> Value {
    Value::Number(match random.uniform(0, 12) {
        0 => return Value::Null,
        1 => [Numeric::NAN, Numeric::INFINITY, Numeric::NEGATIVE_INFINITY][random.uniform(0, 2) as usize],
        2 => Numeric::from_parts(i128::from(random.next_u64()) << 60, random.uniform(0, 300) as u16),
        _ => {
            let zeros = random.uniform(0, 3) as u32;
            let unscaled = i128::from(random.uniform(-50, 50)) * 10i128.pow(zeros);
            Numeric::from_parts(unscaled, zeros as u16)
        }
    })
}

fn any_array(random: &mut Random, element: impl Fn(&mut Random) -> Value) -> Value {
    if random.uniform(0, 8) == 0 {
        return Value::Null;
    }
    let value = |random: &mut Random| if random.uniform(0, 5) == 0 { Value::Null } else { element(random) };
    Value::Array((0..random.uniform(0, 5)).map(|_| value(random)).collect::<ArrayValue>())
}

fn any_row(key: i32, random: &mut Random) -> Vec<Value> {
    let text = |random: &mut Random| {
        let number = random.uniform(0, 30);
        Value::Text(if number % 2 == 0 {
            format!("w{number}")
        } else {
            format!("a long word, number {number}")
        })
    };
    vec![
        Value::Integer(key),
        any_numeric(random),
        any_array(random, |random| Value::Integer(random.uniform(-3, 3) as i32)),
        any_array(random, text),
        Value::Oid(random.next_u64() as u32),
    ]
}

/// The rows with all decimals, which equality ignores.
fn shown(rows: &Rows) -> Vec<String> {
    rows.values().map(|row| format!("{row:?}")).collect()
}

/// The rows of the table; checks that its indexes agree.
fn rows(engine: &Arc<Engine>) -> Rows {
    let (_, rows) = state(engine).remove("items").expect("the table exists");
    let keyed = rows.into_values().map(|row| match row[0] {
        Value::Integer(key) => (key, row),
        _ => unreachable!("the first column is an integer"),
    });
    keyed.collect()
}

fn create(engine: &Arc<Engine>) {
    let mut tx = engine.begin();
    create_table(&mut tx, "items", &columns());
    for column in 1..=4 {
        create_index(&mut tx, "items", column);
    }
    commit(tx);
}

/// Changes rows at random, in one transaction.
fn change(engine: &Arc<Engine>, model: &mut Rows, random: &mut Random) {
    let mut tx = engine.begin();
    let items = table(&tx, "items");
    for _ in 0..random.uniform(1, 40) {
        let key = random.uniform(0, 3_000) as i32;
        let new = any_row(key, random);
        match model.get_mut(&key) {
            None => {
                insert(&mut tx, &items, &new);
                model.insert(key, new);
            }
            Some(_) if random.uniform(0, 3) == 0 => {
                delete(&mut tx, &items, &Value::Integer(key));
                model.remove(&key);
            }
            Some(row) => {
                let column = random.uniform(1, 4) as usize;
                update(&mut tx, &items, &Value::Integer(key), column as u16, &new[column]);
                row[column] = new[column].clone();
            }
        }
    }
    commit(tx);
}

/// The keys of rows by an index over one column, between two of its values, both included.
fn by_index(tx: &Transaction, column: u16, ends: [&Value; 2]) -> Vec<i32> {
    let items = table(tx, "items");
    let indexes = items.indexes();
    let index = indexes.iter().find(|index| index.spec().columns[0].column == ColumnId(column));
    let index = index.expect("each column has an index");
    let representation = index.spec().columns[0].representation;
    let guard = pin();
    let [low, high] = ends.map(|end| {
        let mut key = KeyBuffer::new();
        index.encode(&[end.stored(representation).cell()], &mut key);
        key
    });
    let mut keys = Vec::new();
    tx.range(
        &items,
        index,
        Bound::Included(&low),
        Bound::Included(&high),
        false,
        &guard,
        &mut |row: RowId| {
            let mut cells = [Cell::Null];
            assert!(tx.read(&items, row, &[ColumnId(0)], &mut cells, &guard));
            keys.push(cells[0].as_i32());
            true
        },
    );
    keys
}

/// Compares ranges of every index with the model.
fn check_ranges(engine: &Arc<Engine>, model: &Rows, random: &mut Random) {
    let tx = engine.begin_read_only();
    for (column, (ty, _)) in columns().into_iter().enumerate().skip(1) {
        for _ in 0..5 {
            let mut ends = [any_row(0, random), any_row(0, random)].map(|row| row[column].clone());
            if ends.iter().any(Value::is_null) {
                continue;
            }
            ends.sort_by(|left, right| left.compare_as(right, ty.stored));
            let compared = |value: &Value, end: &Value| value.compare_as(end, ty.stored);
            let mut expected: Vec<(&i32, &Value)> = model
                .iter()
                .map(|(key, row)| (key, &row[column]))
                .filter(|(_, value)| compared(value, &ends[0]).is_ge() && compared(value, &ends[1]).is_le())
                .collect();
            expected.sort_by(|left, right| compared(left.1, right.1));
            let found = by_index(&tx, column as u16, [&ends[0], &ends[1]]);
            assert!(found.iter().map(|key| &model[key][column]).is_sorted_by(|a, b| compared(a, b).is_le()));
            let sorted = |mut keys: Vec<i32>| {
                keys.sort_unstable();
                keys
            };
            let expected = sorted(expected.into_iter().map(|(key, _)| *key).collect());
            assert_eq!(sorted(found), expected, "{} between {ends:?}", ty.declared);
        }
    }
}

/// Numerics between two, by a scan under a condition, which may return more and never fewer.
fn check_scan(engine: &Arc<Engine>, model: &Rows, random: &mut Random) {
    let tx = engine.begin_read_only();
    let items = table(&tx, "items");
    let mut ends = [any_numeric(random), any_numeric(random)];
    if ends.iter().any(Value::is_null) {
        return;
    }
    ends.sort_by(|left, right| left.compare_as(right, Representation::Numeric));
    let summary_of =
        |end: &Value| summary(Representation::Numeric, &end.stored(Representation::Numeric).cell()).unwrap();
    let restriction = Restriction::within(ColumnId(1), summary_of(&ends[0]), summary_of(&ends[1]));
    let scan = items.scan(tx.snapshot(), &[ColumnId(0)], false).under(&[restriction]);
    let mut found = Vec::new();
    while let Some(batch) = scan.next_batch(&pin()) {
        found.extend_from_slice(
            arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Int32Type>(&batch.columns[0])
                .values(),
        );
    }
    let compared = |value: &Value, end: &Value| value.compare_as(end, Representation::Numeric);
    for (key, row) in model {
        let is_within = compared(&row[1], &ends[0]).is_ge() && compared(&row[1], &ends[1]).is_le();
        assert!(!is_within || found.contains(key), "{:?} between {ends:?}", row[1]);
    }
}

fn check(engine: &Arc<Engine>, model: &Rows, random: &mut Random) {
    assert_eq!(shown(&rows(engine)), shown(model));
    check_ranges(engine, model, random);
    check_scan(engine, model, random);
}

fn cool(engine: &Arc<Engine>, is_compact: bool) {
    for _ in 0..3 {
        while engine.freeze(Duration::ZERO) != Progress::Done {
            pin().flush();
            std::thread::yield_now();
        }
    }
    while is_compact && engine.compact(Duration::ZERO) {}
}

fn blocks(engine: &Arc<Engine>, state: BlockState) -> usize {
    let tx = engine.begin_read_only();
    table(&tx, "items").block_usage().filter(|block| block.state == state && block.rows > 0).count()
}

#[test]
fn numerics_and_arrays_outlast_changes_cold_blocks_checkpoints_and_crashes() {
    let seed = Random::from_entropy().next_u64();
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let mut disk = SimulatedDisk::new();
    let mut engine = open(&disk).unwrap();
    create(&engine);
    let mut model = Rows::new();
    let mut tx = engine.begin();
    let items = table(&tx, "items");
    for key in 0..2_500 {
        let row = any_row(key, &mut random);
        insert(&mut tx, &items, &row);
        model.insert(key, row);
    }
    commit(tx);
    drop(items);
    check(&engine, &model, &mut random);
    // Two blocks are full and have no gaps; guards of other tests may prevent it.
    for (state, is_compact) in [(BlockState::Frozen, false), (BlockState::Compact, true)] {
        while blocks(&engine, state) == 0 {
            cool(&engine, is_compact);
        }
        check(&engine, &model, &mut random);
    }
    for round in 0..12 {
        for _ in 0..random.uniform(0, 3) {
            change(&engine, &mut model, &mut random);
        }
        if round % 3 != 2 {
            cool(&engine, round % 3 == 1);
            check(&engine, &model, &mut random);
        }
        if random.uniform(0, 1) == 0 {
            engine.checkpoint().unwrap();
        }
        let (before, after) =
            (engine, if round % 2 == 0 { disk.after_power_cut(&mut random) } else { disk.after_kill() });
        disk = after;
        engine = open(&disk).unwrap();
        drop(before);
        check(&engine, &model, &mut random);
    }
}

#[test]
fn columns_of_cold_blocks_become_decimals_and_lists_for_others() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    create(&engine);
    let mut tx = engine.begin();
    let items = table(&tx, "items");
    let number = |text: &str| Value::Number(Numeric::parse(text).unwrap());
    let list = |elements: Vec<Value>| Value::Array(elements.into());
    for key in 0..2_048 {
        let row = [
            Value::Integer(key),
            number(&format!("{key}.50")),
            list(vec![Value::Integer(key), Value::Null]),
            list(vec![Value::Text(format!("a word that belongs to {key}"))]),
            Value::Null,
        ];
        insert(&mut tx, &items, &row);
    }
    commit(tx);
    for is_compact in [false, true] {
        cool(&engine, is_compact);
        let tx = engine.begin_read_only();
        let ids: Vec<ColumnId> = (0..5).map(ColumnId).collect();
        let scan = items.scan(tx.snapshot(), &ids, false);
        let mut rows = 0;
        while let Some(batch) = scan.next_batch(&pin()) {
            for (column, spec) in batch.columns.iter().zip(items.columns()) {
                let exchanged = images::to_exchange(column, spec.representation).unwrap();
                assert_eq!(*exchanged.data_type(), images::exchange_type(spec.representation));
                let back = images::from_exchange(&exchanged, spec.representation);
                let value = |array: &arrow_array::ArrayRef, row| {
                    firn_storage::arrow::array_value(array.as_ref(), row, spec.representation)
                };
                assert!((0..batch.rows).all(|row| value(&back, row) == value(column, row)));
            }
            rows += batch.rows;
        }
        assert_eq!(rows, 2_048);
    }
}

#[test]
fn bulk_inserts_take_what_others_have_as_decimals_and_lists() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    create(&engine);
    let mut tx = engine.begin();
    let items = table(&tx, "items");
    let mut random = Random::seeded(3);
    let mut model = Rows::new();
    for key in 0..300 {
        let mut row = any_row(key, &mut random);
        // Values that decimal128(38,16) can represent.
        if let Value::Number(value) = &row[1]
            && value.exactly_at(16).is_none()
        {
            row[1] = Value::Null;
        }
        model.insert(key, row);
    }
    let arrays: Vec<arrow_array::ArrayRef> = items
        .columns()
        .iter()
        .enumerate()
        .map(|(position, spec)| {
            let values: Vec<Value> = model.values().map(|row| row[position].clone()).collect();
            let stored = firn_storage::arrow::values_to_array(&values, spec.representation);
            let exchanged = images::to_exchange(&stored, spec.representation).unwrap();
            images::from_exchange(&exchanged, spec.representation)
        })
        .collect();
    tx.insert_batch(&items, &arrays, &pin()).unwrap();
    commit(tx);
    assert_eq!(rows(&engine), model);
    let engine = open(&disk.after_kill()).unwrap();
    assert_eq!(rows(&engine), model);
}

#[test]
fn redo_that_is_no_image_is_damage() {
    let disk = SimulatedDisk::new();
    let engine = open(&disk).unwrap();
    let mut tx = engine.begin();
    let items = create_table(&mut tx, "items", &columns());
    // Storage trusts its callers, as long as no index orders the value.
    let cells = [Cell::i32(1), Cell::Bytes(&[1]), Cell::Null, Cell::Null, Cell::Null];
    tx.insert(&items, &cells, &pin()).unwrap();
    commit(tx);
    let error = open(&disk.after_kill()).err().expect("the database is damaged");
    assert_eq!(error.state(), SqlState::DATA_CORRUPTED);
}
