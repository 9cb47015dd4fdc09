//! Columns that are built: text is parsed into Arrow arrays, without an intermediate value for types of fixed width.

use crate::kind::Kind;
use arrow_array::builder::{
    BinaryViewBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder,
    Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder,
    StringViewBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder, UInt32Builder,
};
use arrow_array::{ArrayRef, StringViewArray};
use arrow_buffer::IntervalMonthDayNano;
use firn_base::sync::Arc;
use firn_base::text_style::IntervalStyle;
use firn_base::{
    Error, Numeric, Representation, Result, SqlType, TextStyle, Type, Value, binary, datetime, interval,
    numeric, text,
};

/// Reads texts as literals of a type. An error is returned with its text.
pub fn read_literals(
    texts: &StringViewArray,
    ty: impl Into<Type>,
    style: TextStyle,
) -> std::result::Result<ArrayRef, (Error, String)> {
    let mut builder = ColumnBuilder::new(Kind::of(ty), style);
    for text in texts {
        match text {
            Some(text) => builder.append(text).map_err(|error| (error, text.to_owned()))?,
            None => builder.append_null(),
        }
    }
    Ok(builder.finish())
}

/// A column of one type that is built.
pub(crate) enum ColumnBuilder {
    Boolean(BooleanBuilder),
    SmallInt(Int16Builder),
    Integer(Int32Builder),
    BigInt(Int64Builder),
    Real(Float32Builder),
    Double(Float64Builder),
    Numeric {
        precision: u8,
        scale: u8,
        builder: Decimal128Builder,
    },
    Text(StringViewBuilder),
    Varchar(u32, StringViewBuilder),
    Char(u32, StringViewBuilder),
    Bytea(BinaryViewBuilder),
    Date(TextStyle, Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TextStyle, TimestampMicrosecondBuilder),
    TimestampTz(TextStyle, TimestampMicrosecondBuilder),
    Interval(IntervalStyle, IntervalMonthDayNanoBuilder),
    Uuid(FixedSizeBinaryBuilder),
    /// The images of numerics without a common scale, which precision and scale may limit.
    Numbers(Option<(u16, i16)>, BinaryViewBuilder),
    /// The images of arrays.
    Arrays {
        ty: Type,
        element: Representation,
        style: TextStyle,
        image: Vec<u8>,
        builder: BinaryViewBuilder,
    },
    Oids(Type, UInt32Builder),
    /// Strings of a type with its own length, such as `name`.
    Names(Type, StringViewBuilder),
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
            ColumnBuilder::Date(_, $builder) => $result,
            ColumnBuilder::Time($builder) => $result,
            ColumnBuilder::Timestamp(_, $builder) => $result,
            ColumnBuilder::TimestampTz(_, $builder) => $result,
            ColumnBuilder::Interval(_, $builder) => $result,
            ColumnBuilder::Uuid($builder) => $result,
            ColumnBuilder::Numbers(_, $builder) => $result,
            ColumnBuilder::Arrays { builder: $builder, .. } => $result,
            ColumnBuilder::Oids(_, $builder) => $result,
            ColumnBuilder::Names(_, $builder) => $result,
        }
    };
}

impl ColumnBuilder {
    /// An empty column of values that are read in a text style.
    pub(crate) fn new(kind: Kind, style: TextStyle) -> ColumnBuilder {
        let ty = match kind {
            Kind::Typed(ty) => ty,
            Kind::General(ty, Representation::Numeric) => {
                return ColumnBuilder::Numbers(ty.precision_and_scale(), BinaryViewBuilder::new());
            }
            Kind::General(ty, Representation::List(element)) => {
                let (image, builder) = (Vec::new(), BinaryViewBuilder::new());
                return ColumnBuilder::Arrays { ty, element: *element, style, image, builder };
            }
            Kind::General(ty, Representation::Oid) => return ColumnBuilder::Oids(ty, UInt32Builder::new()),
            Kind::General(ty, _) => return ColumnBuilder::Names(ty, StringViewBuilder::new()),
        };
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
            SqlType::Date => ColumnBuilder::Date(style, Date32Builder::new()),
            SqlType::Time => ColumnBuilder::Time(Time64MicrosecondBuilder::new()),
            SqlType::Timestamp => ColumnBuilder::Timestamp(style, TimestampMicrosecondBuilder::new()),
            SqlType::TimestampTz => {
                ColumnBuilder::TimestampTz(style, TimestampMicrosecondBuilder::new().with_timezone("UTC"))
            }
            SqlType::Interval => ColumnBuilder::Interval(style.intervals, IntervalMonthDayNanoBuilder::new()),
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
            ColumnBuilder::Date(style, builder) => builder.append_value(datetime::parse_date(field, style)?),
            ColumnBuilder::Time(builder) => builder.append_value(datetime::parse_time(field)?),
            ColumnBuilder::Timestamp(style, builder) => {
                builder.append_value(datetime::parse_timestamp(field, style)?)
            }
            ColumnBuilder::TimestampTz(style, builder) => {
                builder.append_value(datetime::parse_timestamptz(field, style)?)
            }
            ColumnBuilder::Interval(style, builder) => {
                let value = interval::parse(field, *style)?;
                builder.append_value(IntervalMonthDayNano::new(value.months, value.days, value.nanoseconds));
            }
            ColumnBuilder::Uuid(builder) => {
                builder.append_value(text::parse_uuid(field)?).expect("a uuid has 16 bytes")
            }
            ColumnBuilder::Numbers(limit, builder) => append_number(Numeric::parse(field)?, *limit, builder)?,
            ColumnBuilder::Arrays { ty, style, .. } => {
                let value = text::parse_any(field, *ty, style)?;
                self.append_array(value);
            }
            ColumnBuilder::Oids(ty, _) | ColumnBuilder::Names(ty, _) => {
                let value = text::parse_any(field, *ty, &TextStyle::DEFAULT)?;
                self.append_general(value);
            }
        }
        Ok(())
    }

    fn append_array(&mut self, value: Value) {
        match (self, value) {
            (ColumnBuilder::Arrays { element, image, builder, .. }, Value::Array(array)) => {
                image.clear();
                array.write_image(*element, image);
                builder.append_value(&*image);
            }
            (_, value) => unreachable!("{value:?} is no array"),
        }
    }

    fn append_general(&mut self, value: Value) {
        match (self, value) {
            (ColumnBuilder::Oids(_, builder), Value::Oid(value)) => builder.append_value(value),
            (ColumnBuilder::Names(_, builder), Value::Text(value)) => builder.append_value(value),
            (_, value) => unreachable!("{value:?} is of another type"),
        }
    }

    /// Reads and appends a value in PostgreSQL's binary format; `kind` is that of the column.
    pub(crate) fn append_binary(&mut self, field: &[u8], kind: Kind) -> Result<()> {
        // Strings are not copied first.
        if let ColumnBuilder::Text(_) | ColumnBuilder::Varchar(..) | ColumnBuilder::Char(..) = self {
            return self.append(binary::utf8(field)?);
        }
        let ty = match (&mut *self, kind) {
            (_, Kind::Typed(ty)) => ty,
            (ColumnBuilder::Numbers(limit, builder), _) => {
                return append_number(Numeric::decode(field)?, *limit, builder);
            }
            (ColumnBuilder::Arrays { ty, .. }, _) => {
                let value = binary::decode_any(field, *ty)?;
                self.append_array(value);
                return Ok(());
            }
            (_, Kind::General(ty, _)) => {
                let value = binary::decode_any(field, ty)?;
                self.append_general(value);
                return Ok(());
            }
        };
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
            (ColumnBuilder::Date(_, builder), Value::Date(value)) => builder.append_value(value),
            (ColumnBuilder::Time(builder), Value::Time(value)) => builder.append_value(value),
            (ColumnBuilder::Timestamp(_, builder), Value::Timestamp(value)) => builder.append_value(value),
            (ColumnBuilder::TimestampTz(_, builder), Value::TimestampTz(value)) => {
                builder.append_value(value)
            }
            (ColumnBuilder::Interval(_, builder), Value::Interval(value)) => {
                builder.append_value(IntervalMonthDayNano::new(value.months, value.days, value.nanoseconds));
            }
            (ColumnBuilder::Uuid(builder), Value::Uuid(value)) => {
                builder.append_value(value).expect("a uuid has 16 bytes")
            }
            (_, value) => unreachable!("{value:?} was decoded as {ty}"),
        }
        Ok(())
    }

    /// Takes the column; the builder is empty again.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        each!(self, builder => Arc::new(builder.finish()))
    }
}

fn append_number(value: Numeric, limit: Option<(u16, i16)>, builder: &mut BinaryViewBuilder) -> Result<()> {
    let value = match limit {
        Some((precision, scale)) => value.fit(precision, scale)?,
        None => value,
    };
    builder.append_value(value.image().bytes());
    Ok(())
}
