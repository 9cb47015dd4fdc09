//! SQL types: the values of a column and their memory layout.
//!
//! | SQL | stored width | Arrow |
//! |---|---|---|
//! | boolean | 1 bit | Boolean |
//! | smallint, integer, bigint | 2, 4, 8 | Int16, Int32, Int64 |
//! | real, double precision | 4, 8 | Float32, Float64 |
//! | numeric(p ≤ 18, s) | 8 | Decimal128(p, s), widened when read |
//! | numeric(p > 18, s), numeric | 16 | Decimal128(p, s) |
//! | text, varchar(n), char(n) | 16 + heap | Utf8View |
//! | bytea | 16 + heap | BinaryView |
//! | date | 4 | Date32 |
//! | time, timestamp, timestamptz | 8 | Time64(µs), Timestamp(µs[, UTC]) |
//! | interval | 16 | Interval(MonthDayNano) |
//! | uuid | 16 | FixedSizeBinary(16) |

use std::fmt;

/// The type of a column, parameter or result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SqlType {
    /// boolean
    Boolean,
    /// smallint
    SmallInt,
    /// integer
    Integer,
    /// bigint
    BigInt,
    /// real
    Real,
    /// double precision
    Double,
    /// numeric(precision, scale); plain `numeric` is [`SqlType::NUMERIC`]
    Numeric {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits after the point, 0 to `precision`.
        scale: u8,
    },
    /// text
    Text,
    /// varchar(n) or varchar; n counts characters
    Varchar(Option<u32>),
    /// char(n), blank-padded; n counts characters
    Char(u32),
    /// bytea
    Bytea,
    /// date: days since 1970-01-01
    Date,
    /// time without time zone: microseconds since midnight
    Time,
    /// timestamp without time zone: microseconds since 1970-01-01
    Timestamp,
    /// timestamp with time zone: microseconds since 1970-01-01 UTC
    TimestampTz,
    /// interval
    Interval,
    /// uuid
    Uuid,
}

/// The layout of a value of a type in a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// One bit in a bitmap.
    Bit,
    /// That many bytes: 2, 4, 8 or 16.
    Fixed(u8),
    /// A 16-byte Arrow view; data of more than 12 bytes are in the block's heap.
    View,
}

impl SqlType {
    /// `numeric` without precision: 38 digits, 16 of them after the point (docs/dialect.md).
    pub const NUMERIC: SqlType = SqlType::Numeric { precision: 38, scale: 16 };

    /// The layout of values in a block.
    pub fn width(self) -> Width {
        match self {
            SqlType::Boolean => Width::Bit,
            SqlType::SmallInt => Width::Fixed(2),
            SqlType::Integer | SqlType::Real | SqlType::Date => Width::Fixed(4),
            SqlType::BigInt | SqlType::Double | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz => {
                Width::Fixed(8)
            }
            SqlType::Numeric { precision, .. } => Width::Fixed(if precision <= 18 { 8 } else { 16 }),
            SqlType::Interval | SqlType::Uuid => Width::Fixed(16),
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Bytea => Width::View,
        }
    }

    /// Whether values are character strings.
    pub fn is_string(self) -> bool {
        matches!(self, SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_))
    }
}

impl fmt::Display for SqlType {
    /// The name as PostgreSQL's `format_type` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SqlType::Boolean => f.write_str("boolean"),
            SqlType::SmallInt => f.write_str("smallint"),
            SqlType::Integer => f.write_str("integer"),
            SqlType::BigInt => f.write_str("bigint"),
            SqlType::Real => f.write_str("real"),
            SqlType::Double => f.write_str("double precision"),
            SqlType::NUMERIC => f.write_str("numeric"),
            SqlType::Numeric { precision, scale } => write!(f, "numeric({precision},{scale})"),
            SqlType::Text => f.write_str("text"),
            SqlType::Varchar(None) => f.write_str("character varying"),
            SqlType::Varchar(Some(length)) => write!(f, "character varying({length})"),
            SqlType::Char(length) => write!(f, "character({length})"),
            SqlType::Bytea => f.write_str("bytea"),
            SqlType::Date => f.write_str("date"),
            SqlType::Time => f.write_str("time without time zone"),
            SqlType::Timestamp => f.write_str("timestamp without time zone"),
            SqlType::TimestampTz => f.write_str("timestamp with time zone"),
            SqlType::Interval => f.write_str("interval"),
            SqlType::Uuid => f.write_str("uuid"),
        }
    }
}
