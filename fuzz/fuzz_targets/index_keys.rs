//! Keys of an index compare as SQL compares the values that they are made of.
#![no_main]

use firn_base::operators::compare_blank_padded;
use firn_base::{ColumnId, Interval, SqlType, Value};
use firn_storage::{Index, IndexColumn, IndexId, IndexSpec, KeyBuffer};
use libfuzzer_sys::fuzz_target;
use std::cmp::Ordering;

/// Takes a value off the front of the input.
fn take(ty: SqlType, input: &mut &[u8]) -> Option<Value> {
    fn array<const LENGTH: usize>(input: &mut &[u8]) -> Option<[u8; LENGTH]> {
        let (taken, rest) = input.split_first_chunk()?;
        *input = rest;
        Some(*taken)
    }
    fn string<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
        let length = usize::from(array::<1>(input)?[0] % 8).min(input.len());
        let (taken, rest) = input.split_at(length);
        *input = rest;
        Some(taken)
    }
    Some(match ty {
        SqlType::SmallInt => Value::SmallInt(i16::from_le_bytes(array(input)?)),
        SqlType::Double => Value::Double(f64::from_le_bytes(array(input)?)),
        SqlType::Real => Value::Real(f32::from_le_bytes(array(input)?)),
        SqlType::Numeric { scale, .. } => {
            Value::Numeric { unscaled: i128::from_le_bytes(array(input)?), scale }
        }
        SqlType::Bytea => Value::Bytea(string(input)?.to_vec()),
        SqlType::Text | SqlType::Char(_) => Value::Text(String::from_utf8_lossy(string(input)?).into_owned()),
        SqlType::Interval => Value::Interval(Interval {
            months: i32::from_le_bytes(array(input)?),
            days: i32::from_le_bytes(array(input)?),
            nanoseconds: i64::from(i32::from_le_bytes(array(input)?)) * 1000,
        }),
        SqlType::Uuid => Value::Uuid(array(input)?),
        other => unreachable!("{other} is not in TYPES"),
    })
}

const TYPES: [SqlType; 9] = [
    SqlType::SmallInt,
    SqlType::Double,
    SqlType::Real,
    SqlType::Numeric { precision: 38, scale: 3 },
    SqlType::Bytea,
    SqlType::Text,
    SqlType::Char(8),
    SqlType::Interval,
    SqlType::Uuid,
];

fn compare(ty: SqlType, a: &Value, b: &Value) -> Ordering {
    match (ty, a, b) {
        (SqlType::Char(_), Value::Text(a), Value::Text(b)) => compare_blank_padded(a, b),
        _ => a.compare(b).expect("neither is NULL"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(([first, second], mut input)) = bytes.split_first_chunk() else { return };
    let columns = [first, second].map(|choice| IndexColumn {
        column: ColumnId(0),
        ty: TYPES[usize::from(choice >> 1) % TYPES.len()],
        nullable: false,
        descending: choice & 1 == 1,
        nulls_first: false,
    });
    let spec = IndexSpec {
        id: IndexId(1),
        name: "fuzz".into(),
        columns: columns.to_vec(),
        unique: false,
        values: true,
    };
    let index = Index::new(spec);
    let mut rows: Vec<([Value; 2], KeyBuffer)> = Vec::new();
    while rows.len() < 3
        && let Some(a) = take(columns[0].ty, &mut input)
        && let Some(b) = take(columns[1].ty, &mut input)
    {
        let mut key = KeyBuffer::new();
        index.encode(&[a.as_cell(columns[0].ty), b.as_cell(columns[1].ty)], &mut key);
        rows.push(([a, b], key));
    }
    for (a, key_a) in &rows {
        for (b, key_b) in &rows {
            let mut expected = Ordering::Equal;
            for position in 0..2 {
                let order = compare(columns[position].ty, &a[position], &b[position]);
                expected = expected.then(if columns[position].descending { order.reverse() } else { order });
            }
            assert_eq!(key_a.cmp(key_b), expected, "{columns:?} {a:?} {b:?}");
            assert!(key_a == key_b || !key_a.starts_with(key_b), "{columns:?} {a:?} {b:?}");
        }
    }
});
