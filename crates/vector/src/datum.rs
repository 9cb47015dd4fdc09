//! One value, borrowed: what a short program passes to a function, and how code that knows no
//! representation reads a vector.

use crate::data::Data;
use crate::lists::{List, Record};
use firn_base::numeric::Numeric;
use firn_base::{Interval, Representation};

/// One value or NULL. Types that lie alike share a variant: a date is an `Int32`, a timestamp an `Int64`.
#[derive(Clone, Copy, Debug)]
pub enum Datum<'a> {
    /// NULL of any type.
    Null,
    /// boolean
    Boolean(bool),
    /// smallint
    Int16(i16),
    /// integer, date
    Int32(i32),
    /// bigint, time, timestamp, timestamptz
    Int64(i64),
    /// oid and its relatives
    UInt32(u32),
    /// real
    Float32(f32),
    /// double precision
    Float64(f64),
    /// numeric, whether its vector has one scale or many
    Numeric(Numeric),
    /// interval
    Interval(Interval),
    /// uuid
    Uuid([u8; 16]),
    /// text, varchar, name, character(n)
    Text(&'a str),
    /// bytea
    Bytes(&'a [u8]),
    /// An array.
    List(List<'a>),
    /// A record.
    Record(Record<'a>),
}

impl<'a> Datum<'a> {
    /// Whether it is NULL.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }

    /// A value of some data, which is not NULL.
    pub fn of_data(data: &'a Data, row: usize, representation: Representation) -> Datum<'a> {
        let decimal = |unscaled| match representation {
            Representation::Decimal { scale, .. } => Numeric::from_decimal(unscaled, scale),
            other => panic!("{other:?} is no decimal"),
        };
        match data {
            Data::Boolean(values) => Datum::Boolean(values.value(row)),
            Data::Int16(values) => Datum::Int16(values[row]),
            Data::Int32(values) => Datum::Int32(values[row]),
            Data::Int64(values) if matches!(representation, Representation::Decimal { .. }) => {
                Datum::Numeric(decimal(i128::from(values[row])))
            }
            Data::Int64(values) => Datum::Int64(values[row]),
            Data::Int128(values) => Datum::Numeric(decimal(values[row])),
            Data::UInt32(values) => Datum::UInt32(values[row]),
            Data::Float32(values) => Datum::Float32(values[row]),
            Data::Float64(values) => Datum::Float64(values[row]),
            Data::Numeric(values) => Datum::Numeric(values.value(row)),
            Data::Interval(values) => {
                let value = values[row];
                Datum::Interval(Interval {
                    months: value.months,
                    days: value.days,
                    nanoseconds: value.nanoseconds,
                })
            }
            Data::Uuid(values) => Datum::Uuid(values[row].to_le_bytes()),
            Data::Strings(values) if representation == Representation::Bytes => {
                Datum::Bytes(values.bytes(row))
            }
            Data::Strings(values) => Datum::Text(values.text(row)),
            Data::List(values) => Datum::List(values.value(row)),
            Data::Record(values) => Datum::Record(values.value(row)),
        }
    }

    /// A value of a representation that lies in whole numbers of up to 8 bytes.
    pub fn of_word(word: i64, representation: Representation) -> Datum<'static> {
        match representation {
            Representation::Int16 => Datum::Int16(word as i16),
            Representation::Int32 | Representation::Date => Datum::Int32(word as i32),
            Representation::Decimal { scale, .. } => {
                Datum::Numeric(Numeric::from_decimal(i128::from(word), scale))
            }
            Representation::Int64
            | Representation::Time
            | Representation::Timestamp
            | Representation::TimestampTz => Datum::Int64(word),
            other => panic!("{other:?} does not lie in whole numbers"),
        }
    }
}
