//! How values are represented in Arrow: the one table of types, and the conversion between values and arrays.
//!
//! Scans return numerics without a fixed scale and arrays as their images, in `BinaryView`. `crate::images`
//! converts these to the Arrow types that other programs know, and back.

use arrow_array::builder::{
    BinaryViewBuilder, BooleanBuilder, FixedSizeBinaryBuilder, PrimitiveBuilder, StringViewBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::IntervalMonthDayNano;
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use firn_base::sync::Arc;
use firn_base::{Cell, Interval, Representation, SqlType, TextStyle, Value, numeric, text};
use std::collections::HashMap;

/// Key of the field metadata that carries the SQL type, so that `varchar(10)`, `char(3)` and `text`
/// or `numeric` and `numeric(38,16)` stay apart in schemas.
pub const SQL_TYPE_KEY: &str = "firn:type";

/// Key of the field metadata that carries the representation of a column in files of ours.
pub const REPRESENTATION_KEY: &str = "firn:representation";

/// The zone of timestamptz arrays.
const UTC: &str = "UTC";

/// The Arrow type that scans yield and bulk inserts take for a column of a representation.
pub fn data_type(representation: impl Into<Representation>) -> DataType {
    match representation.into() {
        Representation::Boolean => DataType::Boolean,
        Representation::Int16 => DataType::Int16,
        Representation::Int32 => DataType::Int32,
        Representation::Int64 => DataType::Int64,
        Representation::Oid => DataType::UInt32,
        Representation::Float32 => DataType::Float32,
        Representation::Float64 => DataType::Float64,
        Representation::Decimal { precision, scale } => DataType::Decimal128(precision, scale as i8),
        Representation::Text | Representation::PaddedText => DataType::Utf8View,
        Representation::Bytes
        | Representation::Numeric
        | Representation::List(_)
        | Representation::Record => DataType::BinaryView,
        Representation::Date => DataType::Date32,
        Representation::Time => DataType::Time64(TimeUnit::Microsecond),
        Representation::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        Representation::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        Representation::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        Representation::Uuid => DataType::FixedSizeBinary(16),
    }
}

/// A field with [`SQL_TYPE_KEY`] metadata.
pub fn field(name: &str, ty: SqlType, nullable: bool) -> Field {
    let metadata = HashMap::from([(SQL_TYPE_KEY.to_owned(), ty.to_string())]);
    Field::new(name, data_type(ty), nullable).with_metadata(metadata)
}

/// A field of a file that holds what scans return. It has [`REPRESENTATION_KEY`] metadata, since other
/// programs see the images of numerics and of arrays as plain bytes.
pub fn stored_field(name: &str, representation: Representation, nullable: bool) -> Field {
    let metadata = HashMap::from([(REPRESENTATION_KEY.to_owned(), representation.to_string())]);
    Field::new(name, data_type(representation), nullable).with_metadata(metadata)
}

/// Whether a field holds values of a representation. Older files have only the Arrow type, and hold no
/// images.
pub fn is_stored_field(field: &Field, representation: Representation) -> bool {
    let is_named = match field.metadata().get(REPRESENTATION_KEY) {
        Some(name) => Representation::from_name(name) == Some(representation),
        None => !representation.is_image(),
    };
    is_named && *field.data_type() == data_type(representation)
}

/// The SQL type of a field: from its metadata, otherwise the natural one of its Arrow type. `None` for Arrow
/// types without an SQL type.
///
/// Metadata counts only if the Arrow type is still the one that it was written for: functions and set
/// operations copy the metadata of fields whose type they have changed.
pub fn sql_type(field: &Field) -> Option<SqlType> {
    let declared = field.metadata().get(SQL_TYPE_KEY).and_then(|name| SqlType::parse(name).ok());
    match declared {
        Some(ty) if data_type(ty) == *field.data_type() => Some(ty),
        _ => natural_type(field.data_type()),
    }
}

/// The SQL type of an Arrow type that has no metadata.
fn natural_type(data_type: &DataType) -> Option<SqlType> {
    Some(match data_type {
        // A column of NULLs only; PostgreSQL calls it text, too.
        DataType::Null => SqlType::Text,
        DataType::Boolean => SqlType::Boolean,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => SqlType::SmallInt,
        DataType::UInt16 | DataType::Int32 => SqlType::Integer,
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => SqlType::BigInt,
        DataType::Float32 => SqlType::Real,
        DataType::Float64 => SqlType::Double,
        DataType::Decimal128(precision, scale) if (0..=*precision as i8).contains(scale) => {
            SqlType::Numeric { precision: *precision, scale: *scale as u8 }
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => SqlType::Text,
        DataType::Dictionary(_, values) => natural_type(values)?,
        // Arrays are shown in PostgreSQL's text form.
        DataType::List(field) => natural_type(field.data_type()).map(|_| SqlType::Text)?,
        DataType::FixedSizeBinary(16) => SqlType::Uuid,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => SqlType::Bytea,
        DataType::Date32 => SqlType::Date,
        DataType::Time32(_) | DataType::Time64(_) => SqlType::Time,
        DataType::Timestamp(_, None) => SqlType::Timestamp,
        DataType::Timestamp(_, Some(_)) => SqlType::TimestampTz,
        DataType::Interval(_) | DataType::Duration(_) => SqlType::Interval,
        _ => return None,
    })
}

/// The value in a row of an array. The array holds values of the representation, or is of a type that
/// [`sql_type`] maps to `ty`.
pub fn array_value(array: &dyn Array, row: usize, ty: impl Into<Representation>) -> Value {
    value_in(array, row, ty.into())
}

fn value_in(array: &dyn Array, row: usize, representation: Representation) -> Value {
    fn get<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
        array.as_primitive::<T>().value(row)
    }
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => Value::Boolean(array.as_boolean().value(row)),
        DataType::Int8 => Value::SmallInt(i16::from(get::<Int8Type>(array, row))),
        DataType::UInt8 => Value::SmallInt(i16::from(get::<UInt8Type>(array, row))),
        DataType::Int16 => Value::SmallInt(get::<Int16Type>(array, row)),
        DataType::UInt16 => Value::Integer(i32::from(get::<UInt16Type>(array, row))),
        DataType::Int32 => Value::Integer(get::<Int32Type>(array, row)),
        DataType::UInt32 if representation == Representation::Oid => {
            Value::Oid(get::<UInt32Type>(array, row))
        }
        DataType::UInt32 => Value::BigInt(i64::from(get::<UInt32Type>(array, row))),
        DataType::Int64 => Value::BigInt(get::<Int64Type>(array, row)),
        // Unsigned numbers of other programs are counts of rows; larger ones do not fit.
        DataType::UInt64 => Value::BigInt(i64::try_from(get::<UInt64Type>(array, row)).unwrap_or(i64::MAX)),
        DataType::Float32 => Value::Real(get::<Float32Type>(array, row)),
        DataType::Float64 => Value::Double(get::<Float64Type>(array, row)),
        DataType::Decimal128(_, scale) => {
            let (unscaled, from) = (get::<Decimal128Type>(array, row), *scale as u8);
            match representation {
                Representation::Decimal { scale, .. } => match numeric::rescale(unscaled, from, scale) {
                    Some(unscaled) => Value::Numeric { unscaled, scale },
                    None => Value::Numeric { unscaled, scale: from },
                },
                _ => Value::Numeric { unscaled, scale: from },
            }
        }
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Value::Text(array.as_string::<i64>().value(row).to_owned()),
        DataType::Utf8View => Value::Text(array.as_string_view().value(row).to_owned()),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys()[row];
            value_in(dictionary.values().as_ref(), key, representation)
        }
        DataType::List(field) => {
            let elements = array.as_list::<i32>().value(row);
            Value::Text(array_text(
                elements.as_ref(),
                natural_type(field.data_type()).unwrap_or(SqlType::Text),
            ))
        }
        DataType::Binary if representation.is_image() => {
            Cell::Bytes(array.as_binary::<i32>().value(row)).to_value(representation)
        }
        DataType::BinaryView if representation.is_image() => {
            Cell::Bytes(array.as_binary_view().value(row)).to_value(representation)
        }
        DataType::Binary => Value::Bytea(array.as_binary::<i32>().value(row).to_owned()),
        DataType::LargeBinary => Value::Bytea(array.as_binary::<i64>().value(row).to_owned()),
        DataType::BinaryView => Value::Bytea(array.as_binary_view().value(row).to_owned()),
        DataType::FixedSizeBinary(16) => {
            Value::Uuid(array.as_fixed_size_binary().value(row).try_into().expect("16 bytes"))
        }
        DataType::Date32 => Value::Date(get::<Date32Type>(array, row)),
        DataType::Time32(TimeUnit::Second) => {
            Value::Time(i64::from(get::<Time32SecondType>(array, row)) * 1_000_000)
        }
        DataType::Time32(_) => Value::Time(i64::from(get::<Time32MillisecondType>(array, row)) * 1_000),
        DataType::Time64(TimeUnit::Nanosecond) => {
            Value::Time(get::<Time64NanosecondType>(array, row) / 1_000)
        }
        DataType::Time64(_) => Value::Time(get::<Time64MicrosecondType>(array, row)),
        DataType::Timestamp(unit, zone) => {
            let micros = match unit {
                TimeUnit::Second => get::<TimestampSecondType>(array, row).saturating_mul(1_000_000),
                TimeUnit::Millisecond => get::<TimestampMillisecondType>(array, row).saturating_mul(1_000),
                TimeUnit::Microsecond => get::<TimestampMicrosecondType>(array, row),
                TimeUnit::Nanosecond => get::<TimestampNanosecondType>(array, row).div_euclid(1_000),
            };
            if zone.is_some() { Value::TimestampTz(micros) } else { Value::Timestamp(micros) }
        }
        DataType::Interval(unit) => Value::Interval(match unit {
            IntervalUnit::YearMonth => {
                Interval { months: get::<IntervalYearMonthType>(array, row), ..Interval::default() }
            }
            IntervalUnit::DayTime => {
                let value = get::<IntervalDayTimeType>(array, row);
                let nanoseconds = i64::from(value.milliseconds) * 1_000_000;
                Interval { months: 0, days: value.days, nanoseconds }
            }
            IntervalUnit::MonthDayNano => {
                let value = get::<IntervalMonthDayNanoType>(array, row);
                Interval { months: value.months, days: value.days, nanoseconds: value.nanoseconds }
            }
        }),
        // A difference of timestamps: whole days apart, as PostgreSQL shows it.
        DataType::Duration(unit) => {
            let nanoseconds = match unit {
                TimeUnit::Second => i128::from(get::<DurationSecondType>(array, row)) * 1_000_000_000,
                TimeUnit::Millisecond => i128::from(get::<DurationMillisecondType>(array, row)) * 1_000_000,
                TimeUnit::Microsecond => i128::from(get::<DurationMicrosecondType>(array, row)) * 1_000,
                TimeUnit::Nanosecond => i128::from(get::<DurationNanosecondType>(array, row)),
            };
            const DAY: i128 = 86_400_000_000_000;
            let days = (nanoseconds / DAY).clamp(i128::from(i32::MIN), i128::from(i32::MAX)) as i32;
            Value::Interval(Interval { months: 0, days, nanoseconds: (nanoseconds % DAY) as i64 })
        }
        other => panic!("Arrow type {other} has no SQL type"),
    }
}

/// The elements as PostgreSQL writes an array: `{a,"b c",NULL}`.
fn array_text(elements: &dyn Array, ty: SqlType) -> String {
    let mut out = String::from("{");
    for row in 0..elements.len() {
        if row > 0 {
            out.push(',');
        }
        if elements.is_null(row) {
            out.push_str("NULL");
            continue;
        }
        let mut element = String::new();
        text::write(&array_value(elements, row, ty), ty, &TextStyle::DEFAULT, &mut element);
        // Elements that are arrays themselves are not quoted.
        let nested = matches!(elements.data_type(), DataType::List(_));
        let special = |c: char| c.is_ascii_whitespace() || matches!(c, '{' | '}' | ',' | '"' | '\\');
        if !nested
            && (element.is_empty() || element.contains(special) || element.eq_ignore_ascii_case("null"))
        {
            out.push('"');
            for character in element.chars() {
                if matches!(character, '"' | '\\') {
                    out.push('\\');
                }
                out.push(character);
            }
            out.push('"');
        } else {
            out.push_str(&element);
        }
    }
    out.push('}');
    out
}

/// An array of the type that [`data_type`] returns. The values must have been coerced to the representation.
pub fn values_to_array(values: &[Value], representation: impl Into<Representation>) -> ArrayRef {
    let representation = representation.into();
    /// Panics if `pick` returns `None` for a value: it was not of the array's type.
    fn primitive<T: ArrowPrimitiveType>(
        values: &[Value],
        representation: Representation,
        pick: impl Fn(&Value) -> Option<T::Native>,
    ) -> ArrayRef {
        let mut builder =
            PrimitiveBuilder::<T>::with_capacity(values.len()).with_data_type(data_type(representation));
        for value in values {
            match value {
                Value::Null => builder.append_null(),
                value => builder.append_value(pick(value).unwrap_or_else(|| mismatch(value, representation))),
            }
        }
        Arc::new(builder.finish())
    }
    macro_rules! primitive {
        ($arrow:ty, $value:pat => $native:expr) => {
            primitive::<$arrow>(values, representation, |value| match value {
                $value => Some($native),
                _ => None,
            })
        };
    }
    match representation {
        Representation::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(values.len());
            for value in values {
                match value {
                    Value::Null => builder.append_null(),
                    Value::Boolean(value) => builder.append_value(*value),
                    value => mismatch(value, representation),
                }
            }
            Arc::new(builder.finish())
        }
        Representation::Int16 => primitive!(Int16Type, Value::SmallInt(value) => *value),
        Representation::Int32 => primitive!(Int32Type, Value::Integer(value) => *value),
        Representation::Int64 => primitive!(Int64Type, Value::BigInt(value) => *value),
        Representation::Oid => primitive!(UInt32Type, Value::Oid(value) => *value),
        Representation::Float32 => primitive!(Float32Type, Value::Real(value) => *value),
        Representation::Float64 => primitive!(Float64Type, Value::Double(value) => *value),
        Representation::Decimal { scale, .. } => {
            primitive::<Decimal128Type>(values, representation, |value| match value {
                Value::Numeric { unscaled, scale: of_value } if *of_value == scale => Some(*unscaled),
                _ => None,
            })
        }
        Representation::Text | Representation::PaddedText => {
            let mut builder = StringViewBuilder::with_capacity(values.len());
            for value in values {
                match value {
                    Value::Null => builder.append_null(),
                    Value::Text(value) => builder.append_value(value),
                    value => mismatch(value, representation),
                }
            }
            Arc::new(builder.finish())
        }
        Representation::Bytes => {
            let mut builder = BinaryViewBuilder::with_capacity(values.len());
            for value in values {
                match value {
                    Value::Null => builder.append_null(),
                    Value::Bytea(value) => builder.append_value(value),
                    value => mismatch(value, representation),
                }
            }
            Arc::new(builder.finish())
        }
        Representation::Numeric | Representation::List(_) | Representation::Record => {
            let mut builder = BinaryViewBuilder::with_capacity(values.len());
            for value in values {
                match value.stored(representation).cell() {
                    Cell::Null => builder.append_null(),
                    image => builder.append_value(image.bytes()),
                }
            }
            Arc::new(builder.finish())
        }
        Representation::Date => primitive!(Date32Type, Value::Date(value) => *value),
        Representation::Time => primitive!(Time64MicrosecondType, Value::Time(value) => *value),
        Representation::Timestamp => primitive!(TimestampMicrosecondType, Value::Timestamp(value) => *value),
        Representation::TimestampTz => {
            primitive!(TimestampMicrosecondType, Value::TimestampTz(value) => *value)
        }
        Representation::Interval => primitive!(IntervalMonthDayNanoType, Value::Interval(value) =>
            IntervalMonthDayNano::new(value.months, value.days, value.nanoseconds)),
        Representation::Uuid => {
            let mut builder = FixedSizeBinaryBuilder::with_capacity(values.len(), 16);
            for value in values {
                match value {
                    Value::Null => builder.append_null(),
                    Value::Uuid(value) => builder.append_value(value).expect("16 bytes"),
                    value => mismatch(value, representation),
                }
            }
            Arc::new(builder.finish())
        }
    }
}

#[cold]
fn mismatch(value: &Value, representation: Representation) -> ! {
    panic!("{value:?} was not coerced to {representation:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::{ListBuilder, StringBuilder};

    #[test]
    fn every_type_survives_the_way_into_an_array_and_back() {
        let cases = [
            (Value::Boolean(true), SqlType::Boolean),
            (Value::SmallInt(-3), SqlType::SmallInt),
            (Value::Integer(i32::MIN), SqlType::Integer),
            (Value::BigInt(-1), SqlType::BigInt),
            (Value::Real(-0.5), SqlType::Real),
            (Value::Double(1e300), SqlType::Double),
            (Value::Numeric { unscaled: -12345, scale: 2 }, SqlType::Numeric { precision: 12, scale: 2 }),
            (Value::Numeric { unscaled: 5, scale: 16 }, SqlType::NUMERIC),
            (Value::Text("longer than twelve bytes".into()), SqlType::Text),
            (Value::Text("ab ".into()), SqlType::Char(3)),
            (Value::Text("ab".into()), SqlType::Varchar(Some(3))),
            (Value::Bytea(vec![0, 255]), SqlType::Bytea),
            (Value::Date(-1), SqlType::Date),
            (Value::Time(86_399_999_999), SqlType::Time),
            (Value::Timestamp(-1), SqlType::Timestamp),
            (Value::TimestampTz(1), SqlType::TimestampTz),
            (Value::Interval(Interval { months: -1, days: 2, nanoseconds: -3000 }), SqlType::Interval),
            (Value::Uuid([7; 16]), SqlType::Uuid),
        ];
        for (value, ty) in cases {
            let array = values_to_array(&[value.clone(), Value::Null], ty);
            assert_eq!(array.data_type(), &data_type(ty));
            assert_eq!(array_value(array.as_ref(), 0, ty), value);
            assert_eq!(array_value(array.as_ref(), 1, ty), Value::Null);
            assert_eq!(sql_type(&field("column", ty, true)), Some(ty));
        }
    }

    #[test]
    fn metadata_of_another_type_does_not_count() {
        let stale = field("column", SqlType::Integer, true).with_data_type(DataType::Int64);
        assert_eq!(sql_type(&stale), Some(SqlType::BigInt));
    }

    #[test]
    fn lists_are_shown_as_postgres_arrays() {
        let mut builder = ListBuilder::new(StringBuilder::new());
        for element in [Some("a"), Some("b c"), None, Some(""), Some("q\"")] {
            builder.values().append_option(element);
        }
        builder.append(true);
        let list = builder.finish();
        let shown = array_value(&list, 0, SqlType::Text);
        assert_eq!(shown, Value::Text("{a,\"b c\",NULL,\"\",\"q\\\"\"}".into()));
    }
}
