//! Between our types and values and DataFusion's: fields that carry an SQL type, scalars of values.
//!
//! The Arrow type of an SQL type is storage's affair ([`firn_storage::arrow`]); a field's metadata
//! keeps apart what Arrow does not, such as `text` and `varchar(10)`.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalMonthDayNano, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use firn_base::{Error, ParameterType, Result, SqlType, Value};
use std::sync::Arc;

/// The time zone of `timestamptz` in Arrow types.
pub const UTC: &str = "UTC";

/// A nullable field of type `ty`.
pub fn field(name: &str, ty: SqlType) -> FieldRef {
    Arc::new(column_field(name, ty, true))
}

/// A field of type `ty`. Its metadata names the type only if the Arrow type would not tell: plans
/// compare metadata in places where an expression has lost it.
pub fn column_field(name: &str, ty: SqlType, nullable: bool) -> Field {
    let plain = Field::new(name, data_type(ty), nullable);
    if sql_type(&plain) == Some(ty) { plain } else { firn_storage::arrow::field(name, ty, nullable) }
}

/// The Arrow type that plans use for `ty`.
pub fn data_type(ty: SqlType) -> DataType {
    firn_storage::arrow::data_type(ty)
}

/// The SQL type of a field, from its metadata or its Arrow type; `None` if no SQL type comes near.
pub fn sql_type(field: &Field) -> Option<SqlType> {
    firn_storage::arrow::sql_type(field)
}

/// The Arrow type of arrays with elements of type `element`.
pub fn array_type(element: SqlType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(data_type(element), true)))
}

/// The type of the elements of an array type of one dimension.
pub fn element_type(array: &DataType) -> Option<SqlType> {
    match array {
        DataType::List(inner) if !inner.data_type().is_nested() => sql_type(inner),
        _ => None,
    }
}

/// A nullable field for a parameter.
pub fn parameter_field(name: &str, ty: ParameterType) -> FieldRef {
    match ty {
        ParameterType::Single(ty) => field(name, ty),
        ParameterType::Array(element) => Arc::new(Field::new(name, array_type(element), true)),
    }
}

/// The type of a parameter with such a field; `None` if no parameter is.
pub fn parameter_type(field: &Field) -> Option<ParameterType> {
    match field.data_type().is_nested() {
        true => element_type(field.data_type()).map(ParameterType::array_of),
        false => sql_type(field).map(ParameterType::Single),
    }
}

/// The name of a function that yields its argument, of whatever type: an expression of which DataFusion does not see that it is a
/// column, and so may be a key. In conditions the optimiser takes it away, where an index may find the rows.
pub const AS_IS: &str = "as_is";

/// Ends the part of an output column's name that users see: what follows keeps equal names apart
/// inside plans, where DataFusion wants them to differ.
pub const NAME_END: char = '\u{0}';

/// The name of an output column as users see it.
pub fn visible_name(name: &str) -> &str {
    name.split(NAME_END).next().expect("splitting yields a first part")
}

/// The columns of a result as SQL names and types. 0A000 for types that clients cannot be told of.
pub fn columns_of(schema: &Schema) -> Result<Vec<(String, SqlType)>> {
    let column = |field: &FieldRef| match sql_type(field) {
        Some(ty) => Ok((visible_name(field.name()).to_owned(), ty)),
        None => Err(Error::unsupported(format!(
            "a result column of type {} (\"{}\")",
            field.data_type(),
            visible_name(field.name())
        ))
        .with_hint("Cast the column to text.")),
    };
    schema.fields().iter().map(column).collect()
}

/// The scalar that stands for `value` in a plan where type `ty` is expected. The value must already
/// have been coerced to `ty`; NULL becomes a typed NULL.
pub fn scalar(value: &Value, ty: SqlType) -> ScalarValue {
    let decimal = |unscaled: Option<i128>| {
        let SqlType::Numeric { precision, scale } = ty else { panic!("{value:?} was not coerced to {ty}") };
        ScalarValue::Decimal128(unscaled, precision, scale as i8)
    };
    match value {
        Value::Null => ScalarValue::try_from(&data_type(ty)).expect("every storage type has a null scalar"),
        Value::Boolean(value) => ScalarValue::Boolean(Some(*value)),
        Value::SmallInt(value) => ScalarValue::Int16(Some(*value)),
        Value::Integer(value) => ScalarValue::Int32(Some(*value)),
        Value::BigInt(value) => ScalarValue::Int64(Some(*value)),
        Value::Real(value) => ScalarValue::Float32(Some(*value)),
        Value::Double(value) => ScalarValue::Float64(Some(*value)),
        Value::Numeric { unscaled, .. } => decimal(Some(*unscaled)),
        Value::Text(value) => ScalarValue::Utf8View(Some(value.clone())),
        Value::Bytea(value) => ScalarValue::BinaryView(Some(value.clone())),
        Value::Date(value) => ScalarValue::Date32(Some(*value)),
        Value::Time(value) => ScalarValue::Time64Microsecond(Some(*value)),
        Value::Timestamp(value) => ScalarValue::TimestampMicrosecond(Some(*value), None),
        Value::TimestampTz(value) => ScalarValue::TimestampMicrosecond(Some(*value), Some(UTC.into())),
        Value::Interval(value) => ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(
            value.months,
            value.days,
            value.nanoseconds,
        ))),
        Value::Uuid(value) => ScalarValue::FixedSizeBinary(16, Some(value.to_vec())),
        Value::Array(_) | Value::Number(_) | Value::Oid(_) => panic!("{value:?} was not coerced to {ty}"),
    }
}

/// The scalar that stands for a parameter's value, which must already be of its type.
pub fn parameter_scalar(value: &Value, ty: ParameterType) -> ScalarValue {
    match (value, ty) {
        (value, ParameterType::Single(ty)) => scalar(value, ty),
        (Value::Null, ParameterType::Array(element)) => {
            ScalarValue::try_from(&array_type(element)).expect("every list type has a null scalar")
        }
        (Value::Array(array), ParameterType::Array(element)) => {
            let elements = array.elements();
            let values = firn_storage::arrow::values_to_array(elements, element);
            let inner = Arc::new(Field::new_list_field(data_type(element), true));
            let offsets = OffsetBuffer::from_lengths([elements.len()]);
            ScalarValue::List(Arc::new(ListArray::new(inner, offsets, values, None)))
        }
        (value, ty) => panic!("{value:?} was not coerced to {ty}"),
    }
}

/// The elements of an array at a position of a column of arrays of one dimension; `None` if it is NULL.
pub fn elements_at(arrays: &dyn Array, row: usize) -> Result<Option<Vec<Value>>> {
    let Some(lists) = arrays.as_list_opt::<i32>() else {
        return Err(Error::unsupported(format!("an array of type {}", arrays.data_type())));
    };
    if lists.is_null(row) {
        return Ok(None);
    }
    let elements = lists.value(row);
    (0..elements.len()).map(|position| value_at(elements.as_ref(), position)).collect::<Result<_>>().map(Some)
}

/// The value that a scalar stands for.
pub fn value(scalar: &ScalarValue) -> Result<Value> {
    if scalar.is_null() {
        return Ok(Value::Null);
    }
    let array = scalar.to_array().map_err(crate::error::from_datafusion)?;
    value_at(array.as_ref(), 0)
}

/// The value at a position of an array.
pub fn value_at(array: &dyn Array, row: usize) -> Result<Value> {
    match sql_type(&Field::new("", array.data_type().clone(), true)) {
        Some(ty) => Ok(firn_storage::arrow::array_value(array, row, ty)),
        None => Err(Error::unsupported(format!("a value of type {}", array.data_type()))),
    }
}

/// An array of the same values in the Arrow type that their SQL type is stored in, as [`value_at`] reads them. Plans
/// yield others: counts without a sign, strings with offsets, arrays, which are text.
pub fn stored(array: &ArrayRef) -> Result<ArrayRef> {
    let external = |error: ArrowError| crate::error::from_datafusion(error.into());
    let ty = array.data_type();
    let Some(natural) = sql_type(&Field::new("", ty.clone(), true)) else {
        return Err(Error::unsupported(format!("a value of type {ty}")));
    };
    let wanted = data_type(natural);
    match (ty, &wanted) {
        (ty, wanted) if ty == wanted => Ok(array.clone()),
        // Whatever the zone is called, moments are the same.
        (DataType::Timestamp(unit, Some(_)), DataType::Timestamp(wanted, Some(_))) if unit == wanted => {
            Ok(array.clone())
        }
        (DataType::Dictionary(..), _) => {
            let dictionary = array.as_any_dictionary();
            stored(&take(dictionary.values(), dictionary.keys(), None).map_err(external)?)
        }
        (DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary, _) => {
            cast(array, &wanted).map_err(external)
        }
        _ => {
            let value = |row| firn_storage::arrow::array_value(array, row, natural);
            let values: Vec<Value> = (0..array.len()).map(value).collect();
            Ok(firn_storage::arrow::values_to_array(&values, natural))
        }
    }
}

/// A moment in microseconds since 1970 as DataFusion's libraries write it; `None` far outside the
/// years that SQL knows.
pub(crate) fn date_time(micros: i64) -> Option<chrono::DateTime<chrono::Utc>> {
    chrono::DateTime::from_timestamp_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{
        DictionaryArray, DurationMicrosecondArray, Int8Array, NullArray, StringArray,
        TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
    };
    use datafusion::arrow::datatypes::{Int32Type, Int64Type};

    #[test]
    fn arrays_of_every_type_are_stored_with_the_values_that_they_have() {
        let keys: DictionaryArray<Int32Type> = [Some("a"), None, Some("b"), Some("a")].into_iter().collect();
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1), None]), None]);
        let arrays: [ArrayRef; 9] = [
            Arc::new(UInt64Array::from(vec![Some(7), None, Some(u64::MAX)])),
            Arc::new(Int8Array::from(vec![-1])),
            Arc::new(StringArray::from(vec![Some("firn"), None])),
            Arc::new(keys.slice(1, 3)),
            Arc::new(lists),
            Arc::new(NullArray::new(2)),
            Arc::new(TimestampNanosecondArray::from(vec![-1])),
            Arc::new(TimestampSecondArray::from(vec![Some(1), None]).with_timezone("+02:00")),
            Arc::new(DurationMicrosecondArray::from(vec![86_400_000_001])),
        ];
        for array in arrays {
            let stored = stored(&array).unwrap();
            let ty = sql_type(&Field::new("", stored.data_type().clone(), true)).unwrap();
            assert_eq!(*stored.data_type(), data_type(ty));
            for row in 0..array.len() {
                assert_eq!(value_at(&stored, row).unwrap(), value_at(&array, row).unwrap(), "{array:?}");
            }
        }
    }
}
