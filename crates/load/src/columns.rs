//! Growing columns: text in, Arrow out, with no value in between for types of fixed width.

use arrow_array::builder::{
    BinaryViewBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder,
    Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder,
    StringViewBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, StringViewArray};
use arrow_buffer::IntervalMonthDayNano;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlType, TimeZoneSetting, Value, binary, datetime, interval, numeric, text};

/// Texts read as literals of a type. An error comes with the text.
pub fn read_literals(
    texts: &StringViewArray,
    ty: SqlType,
    zone: TimeZoneSetting,
) -> std::result::Result<ArrayRef, (Error, String)> {
    let mut builder = ColumnBuilder::new(ty, zone);
    for text in texts {
        match text {
            Some(text) => builder.append(text).map_err(|error| (error, text.to_owned()))?,
            None => builder.append_null(),
        }
    }
    Ok(builder.finish())
}

/// The column of one type under construction.
pub(crate) enum ColumnBuilder {
    Boolean(BooleanBuilder),
    SmallInt(Int16Builder),
    Integer(Int32Builder),
    BigInt(Int64Builder),
    Real(Float32Builder),
    Double(Float64Builder),
    Numeric { precision: u8, scale: u8, builder: Decimal128Builder },
    Text(StringViewBuilder),
    Varchar(u32, StringViewBuilder),
    Char(u32, StringViewBuilder),
    Bytea(BinaryViewBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    TimestampTz(TimeZoneSetting, TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    Uuid(FixedSizeBinaryBuilder),
}

/// The same statement for the builder of every type.
macro_rules! each {
    ($column:expr, $builder:ident => $result:expr) => {
        match $column {
            ColumnBuilder::Boolean($builder) => $result,
            ColumnBuilder::SmallInt($builder) => $result,
            ColumnBuilder::Integer($builder) => $result,
            ColumnBuilder::BigInt($builder) => $result,
            ColumnBuilder::Real($builder) => $result,
            ColumnBuilder::Double($builder) => $result,
            ColumnBuilder::Numeric { builder: $builder, .. } => $result,
            ColumnBuilder::Text($builder) => $result,
            ColumnBuilder::Varchar(_, $builder) => $result,
            ColumnBuilder::Char(_, $builder) => $result,
            ColumnBuilder::Bytea($builder) => $result,
            ColumnBuilder::Date($builder) => $result,
            ColumnBuilder::Time($builder) => $result,
            ColumnBuilder::Timestamp($builder) => $result,
            ColumnBuilder::TimestampTz(_, $builder) => $result,
            ColumnBuilder::Interval($builder) => $result,
            ColumnBuilder::Uuid($builder) => $result,
        }
    };
}

impl ColumnBuilder {
    /// An empty column. Moments that name no zone are in `zone`.
    pub(crate) fn new(ty: SqlType, zone: TimeZoneSetting) -> ColumnBuilder {
        match ty {
            SqlType::Boolean => ColumnBuilder::Boolean(BooleanBuilder::new()),
            SqlType::SmallInt => ColumnBuilder::SmallInt(Int16Builder::new()),
            SqlType::Integer => ColumnBuilder::Integer(Int32Builder::new()),
            SqlType::BigInt => ColumnBuilder::BigInt(Int64Builder::new()),
            SqlType::Real => ColumnBuilder::Real(Float32Builder::new()),
            SqlType::Double => ColumnBuilder::Double(Float64Builder::new()),
            SqlType::Numeric { precision, scale } => ColumnBuilder::Numeric {
                precision,
                scale,
                builder: Decimal128Builder::new()
                    .with_precision_and_scale(precision, scale as i8)
                    .expect("SqlType keeps precision and scale in range"),
            },
            SqlType::Text | SqlType::Varchar(None) => ColumnBuilder::Text(StringViewBuilder::new()),
            SqlType::Varchar(Some(length)) => ColumnBuilder::Varchar(length, StringViewBuilder::new()),
            SqlType::Char(length) => ColumnBuilder::Char(length, StringViewBuilder::new()),
            SqlType::Bytea => ColumnBuilder::Bytea(BinaryViewBuilder::new()),
            SqlType::Date => ColumnBuilder::Date(Date32Builder::new()),
            SqlType::Time => ColumnBuilder::Time(Time64MicrosecondBuilder::new()),
            SqlType::Timestamp => ColumnBuilder::Timestamp(TimestampMicrosecondBuilder::new()),
            SqlType::TimestampTz => {
                ColumnBuilder::TimestampTz(zone, TimestampMicrosecondBuilder::new().with_timezone("UTC"))
            }
            SqlType::Interval => ColumnBuilder::Interval(IntervalMonthDayNanoBuilder::new()),
            SqlType::Uuid => ColumnBuilder::Uuid(FixedSizeBinaryBuilder::new(16)),
        }
    }

    /// Appends NULL.
    pub(crate) fn append_null(&mut self) {
        each!(self, builder => builder.append_null());
    }

    /// Reads and appends a value.
    pub(crate) fn append(&mut self, field: &str) -> Result<()> {
        match self {
            ColumnBuilder::Boolean(builder) => builder.append_value(text::parse_boolean(field)?),
            ColumnBuilder::SmallInt(builder) => {
                builder.append_value(text::parse_integer(field, SqlType::SmallInt)?)
            }
            ColumnBuilder::Integer(builder) => {
                builder.append_value(text::parse_integer(field, SqlType::Integer)?)
            }
            ColumnBuilder::BigInt(builder) => {
                builder.append_value(text::parse_integer(field, SqlType::BigInt)?)
            }
            ColumnBuilder::Real(builder) => builder.append_value(text::parse_real(field)?),
            ColumnBuilder::Double(builder) => builder.append_value(text::parse_double(field)?),
            ColumnBuilder::Numeric { precision, scale, builder } => {
                builder.append_value(numeric::parse_as(field, *precision, *scale)?)
            }
            ColumnBuilder::Text(builder) => builder.append_value(field),
            ColumnBuilder::Varchar(length, builder) => {
                builder.append_value(text::fit_varchar(field, *length)?)
            }
            ColumnBuilder::Char(length, builder) => builder.append_value(text::fit_char(field, *length)?),
            ColumnBuilder::Bytea(builder) => builder.append_value(text::parse_bytea(field)?),
            ColumnBuilder::Date(builder) => builder.append_value(datetime::parse_date(field)?),
            ColumnBuilder::Time(builder) => builder.append_value(datetime::parse_time(field)?),
            ColumnBuilder::Timestamp(builder) => builder.append_value(datetime::parse_timestamp(field)?),
            ColumnBuilder::TimestampTz(zone, builder) => {
                builder.append_value(datetime::parse_timestamptz(field, zone)?)
            }
            ColumnBuilder::Interval(builder) => {
                let value = interval::parse(field)?;
                builder.append_value(IntervalMonthDayNano::new(value.months, value.days, value.nanoseconds));
            }
            ColumnBuilder::Uuid(builder) => {
                builder.append_value(text::parse_uuid(field)?).expect("a uuid has 16 bytes")
            }
        }
        Ok(())
    }

    /// Reads and appends a value in PostgreSQL's binary format; `ty` is the type of the column.
    pub(crate) fn append_binary(&mut self, field: &[u8], ty: SqlType) -> Result<()> {
        // Strings need no copy of their own.
        if let ColumnBuilder::Text(_) | ColumnBuilder::Varchar(..) | ColumnBuilder::Char(..) = self {
            return self.append(binary::utf8(field)?);
        }
        match (self, binary::decode(field, ty)?) {
            (ColumnBuilder::Boolean(builder), Value::Boolean(value)) => builder.append_value(value),
            (ColumnBuilder::SmallInt(builder), Value::SmallInt(value)) => builder.append_value(value),
            (ColumnBuilder::Integer(builder), Value::Integer(value)) => builder.append_value(value),
            (ColumnBuilder::BigInt(builder), Value::BigInt(value)) => builder.append_value(value),
            (ColumnBuilder::Real(builder), Value::Real(value)) => builder.append_value(value),
            (ColumnBuilder::Double(builder), Value::Double(value)) => builder.append_value(value),
            (ColumnBuilder::Numeric { builder, .. }, Value::Numeric { unscaled, .. }) => {
                builder.append_value(unscaled)
            }
            (ColumnBuilder::Bytea(builder), Value::Bytea(value)) => builder.append_value(value),
            (ColumnBuilder::Date(builder), Value::Date(value)) => builder.append_value(value),
            (ColumnBuilder::Time(builder), Value::Time(value)) => builder.append_value(value),
            (ColumnBuilder::Timestamp(builder), Value::Timestamp(value)) => builder.append_value(value),
            (ColumnBuilder::TimestampTz(_, builder), Value::TimestampTz(value)) => {
                builder.append_value(value)
            }
            (ColumnBuilder::Interval(builder), Value::Interval(value)) => {
                builder.append_value(IntervalMonthDayNano::new(value.months, value.days, value.nanoseconds));
            }
            (ColumnBuilder::Uuid(builder), Value::Uuid(value)) => {
                builder.append_value(value).expect("a uuid has 16 bytes")
            }
            (_, value) => unreachable!("{value:?} was decoded as {ty}"),
        }
        Ok(())
    }

    /// Takes the column out; the builder is empty again.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        each!(self, builder => Arc::new(builder.finish()))
    }
}
