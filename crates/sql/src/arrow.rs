//! Arrow batches that come from outside: their columns as types that SQL has, and their rows as values.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, Schema, TimeUnit};
use datafusion::arrow::error::ArrowError;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType, Value};
use firn_exec::types;

/// The SQL type of a column of a table that is made for a field of somebody's Arrow schema.
///
/// Errors: 0A000 for types that no SQL type stands for.
pub fn sql_type(field: &Field) -> Result<SqlType> {
    let plain = plain_type(field.data_type()).ok_or_else(|| unsupported(field))?;
    // What is declared beside the Arrow type holds if it is ours.
    types::sql_type(&Field::new(field.name(), plain, true).with_metadata(field.metadata().clone()))
        .ok_or_else(|| unsupported(field))
}

/// The batch with every column of a type that an SQL type has: dictionaries become what they stand for, every
/// string a view, every time one of microseconds, unsigned numbers the next larger signed ones. A column
/// without a type (nothing but NULL) becomes one of the type in `targets`, if they are given.
///
/// Errors: 0A000 for types that no SQL type stands for, 22003 for values that do not fit.
pub fn normalise(batch: &RecordBatch, targets: Option<&[SqlType]>) -> Result<RecordBatch> {
    let mut fields: Vec<FieldRef> = Vec::with_capacity(batch.num_columns());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    for (position, (field, column)) in batch.schema().fields().iter().zip(batch.columns()).enumerate() {
        let target = targets.and_then(|targets| targets.get(position));
        let (column, plain) = match (column.data_type(), target) {
            (DataType::Null, Some(ty)) => {
                let plain = types::data_type(*ty);
                (new_null_array(&plain, column.len()), plain)
            }
            _ => (normal(field, column)?, plain_type(field.data_type()).ok_or_else(|| unsupported(field))?),
        };
        fields.push(Arc::new(Field::new(field.name(), plain, true)));
        columns.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|error| firn_exec::error::from_datafusion(error.into()))
}

/// The rows of a batch as values, a vector each. Lists become arrays, as parameters may be.
///
/// Errors as for [`normalise`].
pub fn rows(batch: &RecordBatch) -> Result<Vec<Vec<Value>>> {
    let batch = normalise(batch, None)?;
    let mut rows: Vec<Vec<Value>> =
        (0..batch.num_rows()).map(|_| Vec::with_capacity(batch.num_columns())).collect();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let is_list = matches!(field.data_type(), DataType::List(_));
        for (row, values) in rows.iter_mut().enumerate() {
            values.push(match is_list && column.is_valid(row) {
                true => {
                    let list = column.as_list::<i32>().value(row);
                    let elements = (0..list.len()).map(|position| types::value_at(list.as_ref(), position));
                    Value::Array(elements.collect::<Result<_>>()?)
                }
                false => types::value_at(column.as_ref(), row)?,
            });
        }
    }
    Ok(rows)
}

/// The type that plans use for what a type of Arrow stands for; `None` if SQL has nothing like it.
fn plain_type(given: &DataType) -> Option<DataType> {
    Some(match given {
        DataType::Null
        | DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32 => given.clone(),
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let (precision, scale) = (i16::from(*precision), i16::from(*scale));
            // Decimals may have more digits after the point than in all, or fewer than none.
            let (precision, scale) = (precision.max(scale) - scale.min(0), scale.max(0));
            DataType::Decimal128(precision.min(38) as u8, scale.min(38) as i8)
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8View,
        DataType::FixedSizeBinary(16) => given.clone(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::BinaryView
        }
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, zone) => {
            let zone = zone.as_ref().map(|_| types::UTC.into());
            DataType::Timestamp(TimeUnit::Microsecond, zone)
        }
        DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Dictionary(_, values) => plain_type(values)?,
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type())?,
        DataType::List(inner) | DataType::LargeList(inner) | DataType::FixedSizeList(inner, _) => {
            let element = plain_type(inner.data_type()).filter(|element| !element.is_nested())?;
            DataType::List(Arc::new(Field::new_list_field(element, true)))
        }
        _ => return None,
    })
}

fn normal(field: &Field, column: &ArrayRef) -> Result<ArrayRef> {
    let plain = plain_type(field.data_type()).ok_or_else(|| unsupported(field))?;
    if plain == *column.data_type() {
        return Ok(column.clone());
    }
    // A cast that makes NULL of what does not fit would lose it without a word.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, &plain, &options).map_err(|error| match error {
        ArrowError::CastError(message) | ArrowError::ComputeError(message) => Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("a value of column \"{}\" cannot be taken over: {message}", field.name()),
        ),
        _ => unsupported(field),
    })
}

#[cold]
fn unsupported(field: &Field) -> Error {
    Error::unsupported(format!("a column of Arrow type {} (\"{}\")", field.data_type(), field.name()))
        .with_hint("Cast the column to a type that SQL has before it is sent.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{
        DictionaryArray, Int64Array, ListArray, NullArray, StringArray, TimestampSecondArray, UInt64Array,
    };
    use datafusion::arrow::datatypes::{Int8Type, Int64Type};

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn values_of_foreign_types_are_those_that_they_stand_for() {
        let keys: DictionaryArray<Int8Type> = [Some("a"), None].into_iter().collect();
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1), None]), None]);
        let given = batch(vec![
            ("unsigned", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None])) as ArrayRef),
            ("key", Arc::new(keys)),
            ("when", Arc::new(TimestampSecondArray::from(vec![Some(1), None]).with_timezone("+02:00"))),
            ("list", Arc::new(lists)),
            ("nothing", Arc::new(NullArray::new(2))),
        ]);
        let found = rows(&given).unwrap();
        let first = vec![
            Value::Numeric { unscaled: i128::from(u64::MAX), scale: 0 },
            Value::Text("a".into()),
            Value::TimestampTz(1_000_000),
            Value::Array(vec![Value::BigInt(1), Value::Null]),
            Value::Null,
        ];
        assert_eq!(found, [first, vec![Value::Null; 5]]);
    }

    #[test]
    fn a_column_without_a_type_takes_that_of_its_target() {
        let given = batch(vec![("a", Arc::new(NullArray::new(3)) as ArrayRef)]);
        let found = normalise(&given, Some(&[SqlType::Date])).unwrap();
        assert_eq!((found.column(0).data_type(), found.column(0).null_count()), (&DataType::Date32, 3));
    }

    #[test]
    fn what_sql_has_no_type_for_is_refused() {
        let inner: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let field = Arc::new(Field::new("x", DataType::Int64, true));
        let structs = datafusion::arrow::array::StructArray::from(vec![(field, inner)]);
        let error = rows(&batch(vec![("s", Arc::new(structs))])).unwrap_err();
        assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
        let field = Field::new("text", DataType::LargeUtf8, true);
        assert_eq!(sql_type(&field).unwrap(), SqlType::Text);
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        assert_eq!(rows(&batch(vec![("t", text)])).unwrap(), [[Value::Text("x".into())]]);
    }
}
