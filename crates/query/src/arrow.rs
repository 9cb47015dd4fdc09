//! Results as Arrow: the type that each SQL type has there, and vectors as arrays.
//!
//! | SQL | Arrow |
//! |---|---|
//! | `numeric(p, s)` | decimal128(p, s) |
//! | `numeric` | decimal128(38, 16): 22003 where a column of a relation would lose digits; what is computed is rounded |
//! | strings | utf8 view |
//! | `bytea` | binary view |
//! | `timestamptz` | timestamp of microseconds, UTC |
//! | `interval` | month, day, nano |
//! | `uuid` | fixed size binary(16) |
//! | `oid` and its like | uint32 |
//! | arrays | list: 0A000 for a value of several dimensions |
//!
//! Other types (records) are their text. Buffers of fixed width and of strings are shared with the vectors.

use crate::prepared::ResultColumn;
use crate::stream::ResultChunk;
use arrow_array::builder::Decimal128Builder;
use arrow_array::{ArrayRef, ListArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, FieldRef, IntervalUnit, Schema, SchemaRef, TimeUnit};
use firn_base::sync::Arc;
use firn_base::{Error, Numeric, Representation, Result, SqlState, Type};
use firn_executor::arrays::array_of;
use firn_vector::{Datum, Vector};

/// Digits of a plain numeric as Arrow has it, and how many of them follow the point.
const PLAIN_NUMERIC: (u8, u8) = (38, 16);

/// The schema of a result. Every column may hold NULL.
pub fn schema(columns: &[ResultColumn]) -> SchemaRef {
    let field = |column: &ResultColumn| Field::new(&column.name, data_type(column.ty), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// The Arrow type of values of an SQL type.
pub fn data_type(ty: Type) -> DataType {
    match ty.representation() {
        Some(representation) => of_representation(representation),
        None => DataType::Utf8View,
    }
}

fn of_representation(representation: Representation) -> DataType {
    match representation {
        Representation::Boolean => DataType::Boolean,
        Representation::Int16 => DataType::Int16,
        Representation::Int32 => DataType::Int32,
        Representation::Int64 => DataType::Int64,
        Representation::Oid => DataType::UInt32,
        Representation::Float32 => DataType::Float32,
        Representation::Float64 => DataType::Float64,
        Representation::Decimal { precision, scale } => DataType::Decimal128(precision, scale as i8),
        Representation::Numeric => DataType::Decimal128(PLAIN_NUMERIC.0, PLAIN_NUMERIC.1 as i8),
        Representation::Text | Representation::PaddedText | Representation::Record => DataType::Utf8View,
        Representation::Bytes => DataType::BinaryView,
        Representation::Date => DataType::Date32,
        Representation::Time => DataType::Time64(TimeUnit::Microsecond),
        Representation::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        Representation::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Representation::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        Representation::Uuid => DataType::FixedSizeBinary(16),
        Representation::List(element) => DataType::List(element_field(*element)),
    }
}

fn element_field(element: Representation) -> FieldRef {
    Arc::new(Field::new_list_field(of_representation(element), true))
}

/// Rows of these columns as a batch of the schema that [`schema`] has made of them.
pub fn batch(rows: &ResultChunk, columns: &[ResultColumn], schema: &SchemaRef) -> Result<RecordBatch> {
    let chunk = &rows.values;
    let fields = schema.fields().iter().enumerate();
    let arrays = chunk.vectors().iter().zip(fields).map(|(vector, (place, field))| {
        let text = rows.text(place).filter(|_| *field.data_type() == DataType::Utf8View);
        // Averages and quotients have more digits than what they are computed from.
        let digits = match columns[place].origin {
            Some(_) => Digits::Exact,
            None => Digits::Rounded,
        };
        // Numbers of one scale may be those of a column of any.
        let is_numeric =
            text.is_none() && columns[place].ty.representation() == Some(Representation::Numeric);
        let vector = text.unwrap_or(vector).flatten(chunk.rows());
        let array = if is_numeric { numerics(&vector, digits)? } else { array(&vector, digits)? };
        debug_assert_eq!(array.data_type(), field.data_type());
        Ok(array)
    });
    let options = RecordBatchOptions::new().with_row_count(Some(chunk.length()));
    let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
    let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options);
    Ok(batch.expect("arrays have the types and the length that the schema says"))
}

/// What becomes of digits that the Arrow type of a plain numeric does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Digits {
    /// 22003
    Exact,
    /// The value is rounded.
    Rounded,
}

/// A flat vector as an array.
fn array(vector: &Vector, digits: Digits) -> Result<ArrayRef> {
    match vector.representation() {
        Representation::Numeric => numerics(vector, digits),
        Representation::List(element) => lists(vector, *element, digits),
        representation @ Representation::Record => {
            Err(Error::unsupported(format_args!("results of type {representation} as Arrow"))
                .with_hint("Cast the column to text."))
        }
        // The storage has the same arrays.
        _ => Ok(array_of(vector)),
    }
}

/// Numerics with scales of their own.
fn numerics(vector: &Vector, digits: Digits) -> Result<ArrayRef> {
    let (precision, scale) = PLAIN_NUMERIC;
    let mut builder = Decimal128Builder::with_capacity(vector.len())
        .with_precision_and_scale(precision, scale as i8)
        .expect("the type's digits are those of Arrow");
    for row in 0..vector.len() {
        match vector.datum(row) {
            Datum::Numeric(value) => builder.append_value(unscaled(value, scale, digits)?),
            _ => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// A numeric with so many digits after the point: 22003 where it does not fit.
fn unscaled(value: Numeric, scale: u8, digits: Digits) -> Result<i128> {
    let fits = |unscaled: &i128| unscaled.unsigned_abs() < 10u128.pow(PLAIN_NUMERIC.0.into());
    let unscaled = match digits {
        Digits::Exact => value.exactly_at(scale.into()),
        Digits::Rounded => value.rounded_at(scale.into()),
    };
    unscaled.filter(fits).ok_or_else(|| {
        Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("numeric {value} does not fit decimal128(38, 16)"),
        )
        .with_hint("Cast the column to numeric with a precision and a scale, to double precision or to text.")
    })
}

fn lists(vector: &Vector, element: Representation, digits: Digits) -> Result<ArrayRef> {
    let mut offsets = Vec::with_capacity(vector.len() + 1);
    offsets.push(0i32);
    let mut builder = firn_vector::builder::Builder::new(element);
    let mut count = 0usize;
    for row in 0..vector.len() {
        if let Datum::List(list) = vector.datum(row) {
            if list.dimensions() > 1 {
                return Err(Error::unsupported("arrays of several dimensions as Arrow")
                    .with_hint("Cast the column to text, or unnest it."));
            }
            list.iter().for_each(|datum| builder.push(datum));
            count += list.len();
        }
        offsets.push(i32::try_from(count).map_err(|_| {
            Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the arrays of a batch have more than 2^31 elements")
        })?);
    }
    let elements = array(&builder.finish(), digits)?;
    let offsets = OffsetBuffer::new(offsets.into());
    Ok(Arc::new(ListArray::new(element_field(element), offsets, elements, vector.validity().cloned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Array, Decimal128Array};
    use firn_base::TypeId;
    use firn_vector::builder::Builder;

    fn vector(ty: Type, values: &[&str]) -> Vector {
        let mut builder = Builder::new(ty.representation().unwrap());
        for value in values {
            match firn_base::text::parse_any(value, ty, &firn_base::TextStyle::DEFAULT) {
                _ if *value == "NULL" => builder.push_null(),
                Ok(value) => firn_executor::values::push(&mut builder, &value, ty.representation().unwrap()),
                Err(error) => panic!("{error}"),
            }
        }
        builder.finish()
    }

    #[test]
    fn numbers_of_one_scale_are_those_of_a_column_of_any() {
        let column = ResultColumn { name: "n".to_owned(), ty: Type::new(TypeId::NUMERIC), origin: None };
        let scaled = vector(Type::numeric(12, 2), &["1.50", "NULL"]);
        let chunk = ResultChunk::from(firn_vector::Chunk::new(2, vec![scaled]));
        let columns = [column];
        let batch = batch(&chunk, &columns, &schema(&columns)).unwrap();
        let numbers = batch.column(0).as_any().downcast_ref::<Decimal128Array>().unwrap();
        assert_eq!((numbers.value(0), numbers.is_null(1)), (15_000_000_000_000_000, true));
    }

    #[test]
    fn every_type_has_the_array_that_the_schema_says() {
        let cases: &[(Type, &[&str])] = &[
            (Type::new(TypeId::BOOL), &["t", "NULL"]),
            (Type::new(TypeId::INT2), &["-1", "NULL"]),
            (Type::new(TypeId::INT4), &["-1", "NULL"]),
            (Type::new(TypeId::INT8), &["-1", "NULL"]),
            (Type::new(TypeId::FLOAT4), &["0.5", "NULL"]),
            (Type::new(TypeId::FLOAT8), &["0.5", "NULL"]),
            (Type::numeric(10, 2), &["1.50", "NULL"]),
            (Type::numeric(30, 2), &["1.50", "NULL"]),
            (Type::new(TypeId::NUMERIC), &["1.5", "NULL"]),
            (Type::new(TypeId::TEXT), &["longer than twelve bytes", "NULL"]),
            (Type::new(TypeId::BYTEA), &["\\x00", "NULL"]),
            (Type::new(TypeId::DATE), &["2020-01-01", "NULL"]),
            (Type::new(TypeId::TIME), &["01:00", "NULL"]),
            (Type::new(TypeId::TIMESTAMP), &["2020-01-01 01:00", "NULL"]),
            (Type::new(TypeId::TIMESTAMPTZ), &["2020-01-01 01:00", "NULL"]),
            (Type::new(TypeId::INTERVAL), &["1 day", "NULL"]),
            (Type::new(TypeId::UUID), &["01234567-89ab-cdef-0123-456789abcdef", "NULL"]),
            (Type::new(TypeId::INT4_ARRAY), &["{1,NULL,3}", "NULL", "{}"]),
        ];
        for (ty, texts) in cases {
            let array = array(&vector(*ty, texts), Digits::Exact).unwrap();
            assert_eq!(*array.data_type(), data_type(*ty), "{ty}");
            assert_eq!(array.len(), texts.len());
            assert!(array.is_valid(0) && array.is_null(1), "{ty}");
        }
    }

    #[test]
    fn digits_are_not_lost_in_silence() {
        let numeric = Type::new(TypeId::NUMERIC);
        let values = array(&vector(numeric, &["1.2500000000000000"]), Digits::Exact).unwrap();
        let values = values.as_any().downcast_ref::<Decimal128Array>().unwrap().clone();
        assert_eq!(values.value_as_string(0), "1.2500000000000000");
        for lost in ["0.00000000000000001", "99999999999999999999999", "NaN", "Infinity"] {
            let error = array(&vector(numeric, &[lost]), Digits::Exact).unwrap_err();
            assert_eq!(error.state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "{lost}");
        }
        let computed = vector(numeric, &["0.05008133906964237698", "-0.66666666666666666667"]);
        let values = array(&computed, Digits::Rounded).unwrap();
        let values = values.as_any().downcast_ref::<Decimal128Array>().unwrap();
        assert_eq!(values.value_as_string(0), "0.0500813390696424");
        assert_eq!(values.value_as_string(1), "-0.6666666666666667");
        for wide in ["99999999999999999999999", "NaN"] {
            assert!(array(&vector(numeric, &[wide]), Digits::Rounded).is_err(), "{wide}");
        }
    }
}
