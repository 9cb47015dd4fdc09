//! Keys of an index compare as SQL compares the values that they are made of.
#![no_main]

use firn_base::array::Dimension;
use firn_base::numeric::POWERS;
use firn_base::{ArrayValue, ColumnId, Interval, Numeric, Representation, Value};
use firn_storage::{Index, IndexColumn, IndexId, IndexSpec, KeyBuffer};
use libfuzzer_sys::fuzz_target;
use std::cmp::Ordering;

/// Takes a value off the front of the input.
fn take(representation: Representation, input: &mut &[u8]) -> Option<Value> {
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
    Some(match representation {
        Representation::Int16 => Value::SmallInt(i16::from_le_bytes(array(input)?)),
        Representation::Float64 => Value::Double(f64::from_le_bytes(array(input)?)),
        Representation::Float32 => Value::Real(f32::from_le_bytes(array(input)?)),
        Representation::Decimal { scale, .. } => {
            Value::Numeric { unscaled: i128::from_le_bytes(array(input)?), scale }
        }
        Representation::Bytes => Value::Bytea(string(input)?.to_vec()),
        Representation::Text | Representation::PaddedText => {
            Value::Text(String::from_utf8_lossy(string(input)?).into_owned())
        }
        Representation::Interval => Value::Interval(Interval {
            months: i32::from_le_bytes(array(input)?),
            days: i32::from_le_bytes(array(input)?),
            nanoseconds: i64::from(i32::from_le_bytes(array(input)?)) * 1000,
        }),
        Representation::Uuid => Value::Uuid(array(input)?),
        Representation::Numeric => Value::Number(match u16::from_le_bytes(array(input)?) {
            0 => Numeric::NAN,
            1 => Numeric::INFINITY,
            2 => Numeric::NEGATIVE_INFINITY,
            scale => {
                let unscaled = i128::from_le_bytes(array(input)?) % POWERS[38];
                Numeric::new(unscaled, scale % 50).expect("38 digits at most")
            }
        }),
        Representation::List(element) => {
            let [length, rows] = array(input)?;
            let (length, rows) = (length % 4, rows % 2 + 1);
            let element = |_| match array::<1>(input)?[0] {
                0 => Some(Value::Null),
                _ => take(*element, input),
            };
            let elements = (0..length * rows).map(element).collect::<Option<Vec<_>>>()?;
            let dimension = |length: u8| Dimension { length: length.into(), lower: length.into() };
            let dimensions = if length == 0 { Vec::new() } else { vec![dimension(rows), dimension(length)] };
            Value::Array(ArrayValue::new(dimensions, elements))
        }
        other => unreachable!("{other} is not in TYPES"),
    })
}

const TYPES: [Representation; 12] = [
    Representation::Int16,
    Representation::Float64,
    Representation::Float32,
    Representation::Decimal { precision: 38, scale: 3 },
    Representation::Bytes,
    Representation::Text,
    Representation::PaddedText,
    Representation::Interval,
    Representation::Uuid,
    Representation::Numeric,
    Representation::List(&Representation::Text),
    Representation::List(&Representation::Numeric),
];

fuzz_target!(|bytes: &[u8]| {
    let Some(([first, second], mut input)) = bytes.split_first_chunk() else { return };
    let columns = [first, second].map(|choice| IndexColumn {
        column: ColumnId(0),
        representation: TYPES[usize::from(choice >> 1) % TYPES.len()],
        nullable: false,
        descending: choice & 1 == 1,
        nulls_first: false,
    });
    let spec = IndexSpec {
        id: IndexId(1),
        name: "fuzz".into(),
        columns: columns.to_vec(),
        unique: false,
        equal_nulls_from: None,
        values: true,
    };
    let index = Index::new(spec);
    let mut rows: Vec<([Value; 2], KeyBuffer)> = Vec::new();
    while rows.len() < 3
        && let Some(a) = take(columns[0].representation, &mut input)
        && let Some(b) = take(columns[1].representation, &mut input)
    {
        let mut key = KeyBuffer::new();
        let stored = [a.stored(columns[0].representation), b.stored(columns[1].representation)];
        index.encode(&[stored[0].cell(), stored[1].cell()], &mut key);
        drop(stored);
        rows.push(([a, b], key));
    }
    for (a, key_a) in &rows {
        for (b, key_b) in &rows {
            let mut expected = Ordering::Equal;
            for position in 0..2 {
                let order = a[position].compare_as(&b[position], columns[position].representation);
                expected = expected.then(if columns[position].descending { order.reverse() } else { order });
            }
            assert_eq!(key_a.cmp(key_b), expected, "{columns:?} {a:?} {b:?}");
            assert!(key_a == key_b || !key_a.starts_with(key_b), "{columns:?} {a:?} {b:?}");
        }
    }
});
