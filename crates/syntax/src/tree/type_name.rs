//! Names of types.

use super::{Expr, ObjectName};
use crate::span::Span;

/// A type as text names it.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeName {
    /// From its first token to its last one.
    pub span: Span,
    /// SETOF stands before it.
    pub is_set: bool,
    /// The type of elements, if it is an array.
    pub base: BaseType,
    /// One item for each `[]`, with its length if it has one. `ARRAY` is one `[]`.
    pub bounds: Vec<Option<i32>>,
}

/// A type that is no array. Those with names of their own in the grammar are never looked up in the
/// search path: they are in `pg_catalog`.
#[derive(Clone, Debug, PartialEq)]
pub enum BaseType {
    /// Any name with modifiers in parentheses.
    Named {
        /// The name.
        name: ObjectName,
        /// The modifiers; they are constants or names by the time that they are used.
        modifiers: Vec<Expr>,
    },
    /// `smallint`
    SmallInt,
    /// `integer`, `int`
    Integer,
    /// `bigint`
    BigInt,
    /// `real`, and `float(1)` to `float(24)`
    Real,
    /// `double precision`, `float`, and `float(25)` to `float(53)`
    DoublePrecision,
    /// `boolean`
    Boolean,
    /// `numeric`, `decimal`, `dec`, with precision and scale
    Numeric(Vec<Expr>),
    /// `bit`, `bit varying`. Without a length `bit` is `bit(1)`, except in a typed literal.
    Bit {
        /// `bit varying`
        is_varying: bool,
        /// The length.
        modifiers: Vec<Expr>,
    },
    /// `character`, `character varying` and their other names. Without a length `character` is
    /// `character(1)`, except in a typed literal.
    Character {
        /// `character varying`
        is_varying: bool,
        /// The length.
        length: Option<i32>,
    },
    /// `time`, `time with time zone`
    Time {
        /// With time zone.
        with_zone: bool,
        /// Digits of the second.
        precision: Option<i32>,
    },
    /// `timestamp`, `timestamp with time zone`
    Timestamp {
        /// With time zone.
        with_zone: bool,
        /// Digits of the second.
        precision: Option<i32>,
    },
    /// `interval`
    Interval {
        /// The fields that it is limited to.
        fields: Option<IntervalFields>,
        /// Digits of the second.
        precision: Option<i32>,
    },
}

/// The fields of an interval, from the larger to the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum IntervalFields {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    YearToMonth,
    DayToHour,
    DayToMinute,
    DayToSecond,
    HourToMinute,
    HourToSecond,
    MinuteToSecond,
}
