//! Arrow batches of other programs: their columns as types of SQL, and their rows as values.

mod floats;
pub mod types;
pub mod vectors;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, FixedSizeListArray, GenericListArray, ListArray,
    OffsetSizeTrait, PrimitiveArray, RecordBatch, RecordBatchOptions, StringViewArray,
    downcast_dictionary_array, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, BinaryViewType, DataType, Date32Type, Decimal128Type, Field,
    FieldRef, Int16Type, Int32Type, Int64Type, IntervalUnit, Schema, StringViewType, Time64MicrosecondType,
    TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use firn_base::datetime::{MICROS_PER_DAY, check_date, check_timestamp};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, Type, TypeId, Value, numeric};
use firn_executor::values::value;
use firn_storage::views::views_of;
use firn_vector::Datum;
use floats::with_one_nan;

pub use firn_storage::views::{strings_of, tightened};

/// The SQL type of a column of a table that is made for a field of a given Arrow schema.
///
/// Errors: 0A000 for types without an SQL type.
pub fn sql_type(field: &Field) -> Result<Type> {
    let plain = plain_type(field.data_type()).ok_or_else(|| unsupported(field))?;
    // A declaration beside the Arrow type applies if it is ours.
    types::declared(&Field::new(field.name(), plain, true).with_metadata(field.metadata().clone()))
        .ok_or_else(|| unsupported(field))
}

/// The field of a column that [`normalise`] makes of one with that field; text if it has no type of its own.
/// A declaration beside the Arrow type is left out.
///
/// Errors: 0A000 for types without an SQL type.
pub fn plain_field(field: &Field) -> Result<FieldRef> {
    let plain = match field.data_type() {
        DataType::Null => types::data_type(Type::new(TypeId::TEXT)),
        ty => plain_type(ty).ok_or_else(|| unsupported(field))?,
    };
    Ok(Arc::new(Field::new(field.name(), plain, true)))
}

/// The batch with every column of a type that an SQL type has: dictionaries are expanded, every
/// string becomes a view, every time one of microseconds, unsigned numbers the next larger signed ones. A column
/// without a type (nothing but NULL) becomes one of the type in `targets`, if they are given.
///
/// Errors: 0A000 for types without an SQL type; 22003, 22008 and 22021 for values that do not fit, with the row
/// of a value that is invalid for its own type.
pub fn normalise(batch: &RecordBatch, targets: Option<&[Type]>) -> Result<RecordBatch> {
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
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options);
    Ok(batch.expect("columns have the types of their fields"))
}

/// The rows of a batch as values, a vector each. Lists become arrays, as parameters may be arrays. Values take more
/// memory than the Arrow array: the number of their bytes is subtracted from `budget`.
///
/// Errors as for [`normalise`]; 54000 if the budget does not suffice.
pub fn rows(batch: &RecordBatch, budget: &mut usize) -> Result<Vec<Vec<Value>>> {
    refuse_claims(batch, *budget)?;
    let mut spend = |bytes: usize| match budget.checked_sub(bytes) {
        Some(left) => {
            *budget = left;
            Ok(())
        }
        None => Err(too_large("the rows take more memory than one call may use")),
    };
    let row_bytes = size_of::<Vec<Value>>() + batch.num_columns() * size_of::<Value>();
    spend(batch.num_rows().saturating_mul(row_bytes))?;
    let batch = normalise(batch, None)
        .map_err(|error| with_row(error, |row| format!("row {} of a batch", row + 1)))?;
    let mut rows: Vec<Vec<Value>> =
        (0..batch.num_rows()).map(|_| Vec::with_capacity(batch.num_columns())).collect();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let ty = types::type_of(field.data_type()).ok_or_else(|| unsupported(field))?;
        let representation = ty.representation().expect("a plain type is that of values");
        let vector = vectors::vector(column, representation);
        for (row, values) in rows.iter_mut().enumerate() {
            let datum = vector.datum(row);
            // Many views may refer to the same bytes; each value has its own.
            spend(bytes_of(&datum))?;
            values.push(value(datum, representation));
        }
    }
    Ok(rows)
}

/// The bytes that a value takes beside itself.
fn bytes_of(datum: &Datum<'_>) -> usize {
    match datum {
        Datum::Text(text) => text.len(),
        Datum::Bytes(bytes) => bytes.len(),
        Datum::List(list) => {
            list.iter().fold(list.len().saturating_mul(size_of::<Value>()), |sum, element| {
                sum.saturating_add(bytes_of(&element))
            })
        }
        _ => 0,
    }
}

/// Refuses batches whose columns claim more rows than their bytes account for, beyond `most_bytes`: a few
/// bytes may claim any number of NULLs, or of copies of one value. Must be called before a batch of
/// an untrusted client is normalised, since that allocates memory for the rows.
///
/// Errors: 54000.
pub fn refuse_claims(batch: &RecordBatch, most_bytes: usize) -> Result<()> {
    let claimed = batch.columns().iter().fold(0, |sum: usize, column| sum.saturating_add(claimed(column)));
    match claimed > most_bytes {
        true => Err(too_large("the batch has more rows than one call may have")),
        false => Ok(()),
    }
}

#[cold]
fn too_large(message: &str) -> Error {
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).with_hint("Send fewer rows at a time.")
}

/// The bytes that a column will take for values without bytes of their own.
fn claimed(array: &ArrayRef) -> usize {
    let repeated =
        |values: &ArrayRef| array.len().saturating_mul(widest(values)).saturating_add(claimed(values));
    match array.data_type() {
        DataType::Null => array.len().saturating_mul(size_of::<u128>()),
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => repeated(array.as_run::<Int16Type>().values()),
            DataType::Int32 => repeated(array.as_run::<Int32Type>().values()),
            _ => repeated(array.as_run::<Int64Type>().values()),
        },
        DataType::Dictionary(_, ty) => {
            let values = array.as_any_dictionary().values();
            // Strings become views of one copy; other repeated values are about as wide as their keys.
            let is_copied = ty.is_nested() || matches!(**ty, DataType::Dictionary(..));
            if is_copied { repeated(values) } else { claimed(values) }
        }
        DataType::List(_) => claimed(array.as_list::<i32>().values()),
        DataType::LargeList(_) => claimed(array.as_list::<i64>().values()),
        DataType::FixedSizeList(..) => claimed(array.as_fixed_size_list().values()),
        _ => 0,
    }
}

/// At least the bytes of the largest value.
fn widest(values: &ArrayRef) -> usize {
    fn of<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> usize {
        offsets.lengths().max().unwrap_or(0).saturating_add(size_of::<u128>())
    }
    match values.data_type() {
        DataType::Utf8 => of(values.as_string::<i32>().offsets()),
        DataType::LargeUtf8 => of(values.as_string::<i64>().offsets()),
        DataType::Binary => of(values.as_binary::<i32>().offsets()),
        DataType::LargeBinary => of(values.as_binary::<i64>().offsets()),
        DataType::FixedSizeBinary(size) => usize::try_from(*size).unwrap_or(0).max(size_of::<u128>()),
        ty if ty.is_nested() || matches!(ty, DataType::Dictionary(..)) => {
            values.get_array_memory_size().max(claimed(values))
        }
        // A view, a number, a boolean.
        _ => size_of::<u128>(),
    }
}

/// The type that plans use for an Arrow type; `None` if SQL has no similar one.
pub(crate) fn plain_type(given: &DataType) -> Option<DataType> {
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
    taken_over(field, column, &plain)
}

/// A column of another program as one of a type that plans use.
///
/// Errors: 22003 and 22008 for values that do not fit, 22021 for strings with zero bytes.
pub(crate) fn taken_over(field: &Field, column: &ArrayRef, plain: &DataType) -> Result<ArrayRef> {
    let column = match plain == column.data_type() {
        true => column.clone(),
        false => cast(column, plain).map_err(|error| match error {
            ArrowError::CastError(message) | ArrowError::ComputeError(message) => Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("a value of column \"{}\" cannot be converted: {message}", field.name()),
            ),
            _ => unsupported(field),
        })?,
    };
    check_range(field.name(), &column)?;
    Ok(with_one_nan(&column))
}

/// Refuses values that are outside their SQL type: an Arrow array may hold a decimal with more digits than its
/// type has, a time of day of thirty hours, or a string with a zero byte. These would be stored as other values or shown wrongly.
///
/// Errors: 22003, 22008 and 22021, with the row.
fn check_range(name: &str, column: &ArrayRef) -> Result<()> {
    let Some(outside) = outside(column) else { return Ok(()) };
    Err(out_of_range(name, column, outside))
}

/// The row of the first value that is outside its SQL type; of a list, one with such an element.
fn outside(column: &dyn Array) -> Option<usize> {
    match column.data_type() {
        DataType::Decimal128(precision, _) => {
            let limit = numeric::power_of_ten(u32::from(*precision))?.unsigned_abs();
            misfit(column.as_primitive::<Decimal128Type>(), |unscaled| unscaled.unsigned_abs() < limit)
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            let is_time = |micros| (0..=MICROS_PER_DAY).contains(&micros);
            misfit(column.as_primitive::<Time64MicrosecondType>(), is_time)
        }
        DataType::Date32 => {
            misfit(column.as_primitive::<Date32Type>(), |days| check_date(i64::from(days)).is_ok())
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let is_moment = |micros| check_timestamp(Some(micros)).is_ok();
            misfit(column.as_primitive::<TimestampMicrosecondType>(), is_moment)
        }
        DataType::Utf8View => with_zero_byte(column.as_string_view()),
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            let (first, last) = (lists.offsets()[0] as usize, lists.offsets()[lists.len()] as usize);
            outside(&lists.values().slice(first, last - first))?;
            // The value under a NULL does not count.
            (0..lists.len()).find(|row| element_outside(lists, *row).is_some())
        }
        _ => None,
    }
}

fn element_outside(lists: &ListArray, row: usize) -> Option<usize> {
    if lists.is_valid(row) { outside(&lists.value(row)) } else { None }
}

/// The position of the first value that does not fit.
fn misfit<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    fits: impl Fn(T::Native) -> bool,
) -> Option<usize> {
    const AT_ONCE: usize = 1024;
    // The values under NULLs mostly fit; checking for NULL in the loop would prevent its vectorization.
    let all_fit = |values: &[T::Native]| values.iter().fold(true, |all, value| all & fits(*value));
    if array.values().chunks(AT_ONCE).all(all_fit) {
        return None;
    }
    (0..array.len()).find(|row| array.is_valid(*row) && !fits(array.value(*row)))
}

/// The position of the first string with a zero byte, which SQL's strings cannot contain: no text format could restore it.
fn with_zero_byte(strings: &StringViewArray) -> Option<usize> {
    let mut long_bytes = 0;
    let mut any = false;
    for view in strings.views() {
        let length = *view as u32 as usize;
        match length <= INLINE_BYTES {
            true => any |= has_zero_inline(*view, length),
            false => long_bytes += length,
        }
    }
    let buffers = strings.data_buffers();
    // One search through all bytes, unless most of them belong to other arrays, as in a part of a batch.
    let is_mostly_ours = buffers.iter().map(|buffer| buffer.len()).sum::<usize>() / 2 <= long_bytes;
    if is_mostly_ours {
        any |= long_bytes > 0 && buffers.iter().any(|buffer| buffer.contains(&0));
    }
    if is_mostly_ours && !any {
        return None;
    }
    // The bytes under a NULL do not count, nor do those between strings.
    (0..strings.len()).find(|row| strings.is_valid(*row) && strings.value(*row).as_bytes().contains(&0))
}

/// The most bytes of a string that are stored in its view, after the length.
const INLINE_BYTES: usize = 12;

/// Whether an inline string has a zero byte.
fn has_zero_inline(view: u128, length: usize) -> bool {
    const LOW: u128 = u128::from_ne_bytes([0x01; 16]);
    const HIGH: u128 = LOW << 7;
    // The bytes after the string are zero, and must not match.
    let filled = view >> 32 | u128::MAX << (8 * length);
    filled.wrapping_sub(LOW) & !filled & HIGH != 0
}

#[cold]
fn out_of_range(name: &str, column: &ArrayRef, row: usize) -> Error {
    if let DataType::List(_) = column.data_type() {
        let lists = column.as_list::<i32>();
        let element = element_outside(lists, row).expect("it has been found");
        return out_of_range(name, &lists.value(row), element).with_ordinal(row as u64);
    }
    if let DataType::Utf8View = column.data_type() {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Error::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
            .with_detail(format!("Column \"{name}\" has a string with a zero byte in it."))
            .with_ordinal(row as u64);
    }
    let ty = types::type_of(column.data_type()).expect("it is a plain type");
    let (state, shown) = match column.data_type() {
        DataType::Decimal128(_, scale) => {
            let unscaled = column.as_primitive::<Decimal128Type>().value(row);
            let mut shown = String::new();
            numeric::write(unscaled, *scale as u8, &mut shown);
            (SqlState::NUMERIC_VALUE_OUT_OF_RANGE, shown)
        }
        DataType::Date32 => {
            let days = column.as_primitive::<Date32Type>().value(row);
            (SqlState::DATETIME_FIELD_OVERFLOW, format!("{days} days"))
        }
        DataType::Timestamp(..) => {
            let micros = column.as_primitive::<TimestampMicrosecondType>().value(row);
            (SqlState::DATETIME_FIELD_OVERFLOW, format!("{micros} µs"))
        }
        _ => {
            let micros = column.as_primitive::<Time64MicrosecondType>().value(row);
            (SqlState::DATETIME_FIELD_OVERFLOW, format!("{micros} µs"))
        }
    };
    let message = format!("value {shown} of column \"{name}\" is out of range for type {ty}");
    Error::new(state, message).with_ordinal(row as u64)
}

/// An error of [`normalise`] with the row that it is about, if known.
pub(crate) fn with_row(error: Error, place: impl FnOnce(u64) -> String) -> Error {
    match (error.ordinal(), error.context()) {
        (Some(row), None) => error.with_context(place(row)),
        _ => error,
    }
}

/// A cast that fails on values that do not fit. Arrow's own default makes NULL of them, which would lose them without
/// an error.
fn cast(column: &ArrayRef, ty: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
    let arrows = |column: &ArrayRef| {
        cast_with_options(column, ty, &CastOptions { safe: false, ..CastOptions::default() })
    };
    match (column.data_type(), ty) {
        (DataType::Utf8, DataType::Utf8View) => {
            Ok(Arc::new(views_of::<_, StringViewType>(column.as_string::<i32>())))
        }
        (DataType::Binary, DataType::BinaryView) => {
            Ok(Arc::new(views_of::<_, BinaryViewType>(column.as_binary::<i32>())))
        }
        (_, DataType::Dictionary(..) | DataType::RunEndEncoded(..)) => arrows(column),
        (DataType::Dictionary(_, values), _) => match (values.as_ref(), ty) {
            // Arrow makes views of the strings in place, and of a NULL the empty view.
            (DataType::Utf8, DataType::Utf8View) | (DataType::Binary, DataType::BinaryView) => {
                arrows(&with_all_nulls(column))
            }
            _ => {
                let dictionary = column.as_any_dictionary();
                take(&cast(dictionary.values(), ty)?, dictionary.keys(), None)
            }
        },
        (DataType::RunEndEncoded(_, values), _) => {
            let values = values.data_type();
            let unfolded = cast_with_options(column, values, &CastOptions::default())?;
            if values == ty { Ok(unfolded) } else { cast(&unfolded, ty) }
        }
        (DataType::List(_), DataType::List(element)) => cast_elements::<i32>(column, element),
        (DataType::LargeList(_), DataType::List(element)) => arrows(&cast_elements::<i64>(column, element)?),
        (DataType::FixedSizeList(_, size), DataType::List(element)) => {
            let list = column.as_fixed_size_list();
            let elements = cast_unless_alike(list.values(), element.data_type())?;
            let nulls = list.nulls().cloned();
            let list =
                FixedSizeListArray::try_new_with_length(element.clone(), *size, elements, nulls, list.len())?;
            arrows(&(Arc::new(list) as ArrayRef))
        }
        _ => arrows(column),
    }
}

fn cast_unless_alike(column: &ArrayRef, ty: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
    if column.data_type() == ty { Ok(column.clone()) } else { cast(column, ty) }
}

/// Lists whose elements have the type of a field.
fn cast_elements<O: OffsetSizeTrait>(
    column: &ArrayRef,
    element: &FieldRef,
) -> std::result::Result<ArrayRef, ArrowError> {
    let list = column.as_list::<O>();
    let elements = cast_unless_alike(list.values(), element.data_type())?;
    let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
    Ok(Arc::new(GenericListArray::try_new(element.clone(), offsets, elements, nulls)?))
}

/// A dictionary whose keys are NULL wherever their values are.
fn with_all_nulls(column: &ArrayRef) -> ArrayRef {
    fn of<K: ArrowDictionaryKeyType>(dictionary: &DictionaryArray<K>) -> ArrayRef {
        let keys = PrimitiveArray::<K>::new(dictionary.keys().values().clone(), dictionary.logical_nulls());
        Arc::new(DictionaryArray::new(keys, dictionary.values().clone()))
    }
    if column.as_any_dictionary().values().null_count() == 0 {
        return column.clone();
    }
    downcast_dictionary_array!(
        column => of(column),
        ty => unreachable!("{ty} is no dictionary"),
    )
}

/// A column of a result with the type that was announced for it: 22003 if a value does not fit, which
/// must not become NULL.
pub fn converted(column: &ArrayRef, ty: &DataType) -> Result<ArrayRef> {
    if column.data_type() == ty {
        return Ok(column.clone());
    }
    cast(column, ty).map_err(|error| match error {
        ArrowError::CastError(message) | ArrowError::ComputeError(message) => Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("a value of the result does not fit its type: {message}"),
        ),
        error => Error::unsupported(format!("a result as Arrow: {error}")),
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
    use arrow::array::{
        BinaryArray, Date32Array, Decimal128Array, Decimal256Array, Float64Array, Int32Array, Int64Array,
        LargeListArray, LargeStringArray, NullArray, RunArray, StringArray, StringViewArray, StructArray,
        Time32SecondArray, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampSecondArray,
        UInt64Array,
    };
    use arrow::buffer::NullBuffer;
    use arrow::datatypes::{Float64Type, Int8Type, i256};

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
        let found = rows(&given, &mut usize::MAX.clone()).unwrap();
        let first = vec![
            Value::Numeric { unscaled: i128::from(u64::MAX), scale: 0 },
            Value::Text("a".into()),
            Value::TimestampTz(1_000_000),
            Value::Array(vec![Value::BigInt(1), Value::Null].into()),
            Value::Null,
        ];
        assert_eq!(found, [first, vec![Value::Null; 5]]);
    }

    #[test]
    fn of_nans_with_a_sign_one_without_is_taken_over() {
        let given = batch(vec![("x", Arc::new(Float64Array::from(vec![-f64::NAN])) as ArrayRef)]);
        let taken = normalise(&given, None).unwrap();
        let taken = taken.column(0).as_primitive::<Float64Type>().value(0);
        assert_eq!(taken.to_bits(), f64::NAN.to_bits());
    }

    /// Keys 0, 1, NULL of a dictionary whose second value is NULL, in every form that occurs.
    #[test]
    fn a_null_among_the_values_of_a_dictionary_is_null() {
        let texts: [ArrayRef; 3] = [
            Arc::new(StringArray::from(vec![Some("a"), None])),
            Arc::new(LargeStringArray::from(vec![Some("a"), None])),
            Arc::new(StringViewArray::from(vec![Some("a"), None])),
        ];
        let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![Some(&b"a"[..]), None]));
        let keys = || PrimitiveArray::<Int8Type>::from(vec![Some(0), Some(1), None]);
        let of = |values: &ArrayRef| Arc::new(DictionaryArray::new(keys(), values.clone())) as ArrayRef;
        let text = || Value::Text("a".into());
        let mut columns: Vec<(ArrayRef, Value)> = texts.iter().map(|values| (of(values), text())).collect();
        columns.push((of(&bytes), Value::Bytea(b"a".to_vec())));
        let dictionary = of(&texts[0]);
        let two_layers = PrimitiveArray::<Int16Type>::from(vec![0, 1, 2]);
        columns.push((Arc::new(DictionaryArray::new(two_layers, dictionary.clone())), text()));
        let ends = Int32Array::from(vec![1, 2, 3]);
        columns.push((Arc::new(RunArray::try_new(&ends, &dictionary).unwrap()), text()));
        for (column, first) in columns {
            let ty = column.data_type().clone();
            let column = batch(vec![("a", column)]);
            let expected = [[first.clone()], [Value::Null], [Value::Null]];
            assert_eq!(rows(&column, &mut usize::MAX.clone()).unwrap(), expected, "{ty}");
            let part = rows(&column.slice(1, 2), &mut usize::MAX.clone()).unwrap();
            assert_eq!(part, expected[1..], "{ty}");
        }
        let field = Arc::new(Field::new_list_field(dictionary.data_type().clone(), true));
        let (small, large) = (OffsetBuffer::from_lengths([2, 1]), OffsetBuffer::from_lengths([2, 1]));
        let lists: [(ArrayRef, &[usize]); 3] = [
            (Arc::new(ListArray::new(field.clone(), small, dictionary.clone(), None)), &[2, 1]),
            (Arc::new(LargeListArray::new(field.clone(), large, dictionary.clone(), None)), &[2, 1]),
            (Arc::new(FixedSizeListArray::new(field, 3, dictionary, None)), &[3]),
        ];
        for (list, lengths) in lists {
            let ty = list.data_type().clone();
            let found = rows(&batch(vec![("a", list)]), &mut usize::MAX.clone()).unwrap();
            let mut elements = [text(), Value::Null, Value::Null].into_iter();
            let expected: Vec<Vec<Value>> = lengths
                .iter()
                .map(|length| vec![Value::Array(elements.by_ref().take(*length).collect())])
                .collect();
            assert_eq!(found, expected, "{ty}");
        }
    }

    #[test]
    fn values_that_their_types_do_not_have_are_refused() {
        let decimals =
            |values: Vec<Option<i128>>| Decimal128Array::from(values).with_precision_and_scale(5, 2).unwrap();
        let numeric = SqlState::NUMERIC_VALUE_OUT_OF_RANGE;
        let overflow = SqlState::DATETIME_FIELD_OVERFLOW;
        let decimal: ArrayRef = Arc::new(decimals(vec![Some(99_999), None, Some(100_000)]));
        let keys = || PrimitiveArray::<Int8Type>::from(vec![0, 0, 2]);
        let offsets = || OffsetBuffer::from_lengths([1, 1, 1]);
        let field = Arc::new(Field::new_list_field(decimal.data_type().clone(), true));
        let wide = Decimal256Array::from(vec![Some(i256::ZERO), None, Some(i256::from_i128(100_000))]);
        let hours = [Some(MICROS_PER_DAY), None, Some(30 * 3_600_000_000)];
        let columns: Vec<(ArrayRef, SqlState, &str)> = vec![
            (decimal.clone(), numeric, "value 1000.00 of column \"a\" is out of range for type numeric(5,2)"),
            (Arc::new(DictionaryArray::new(keys(), decimal.clone())), numeric, "value 1000.00 "),
            (Arc::new(ListArray::new(field, offsets(), decimal, None)), numeric, "value 1000.00 "),
            (Arc::new(wide.with_precision_and_scale(5, 2).unwrap()), numeric, "value"),
            (Arc::new(Time64MicrosecondArray::from(hours.to_vec())), overflow, "value 108000000000 µs "),
            (Arc::new(Time64MicrosecondArray::from(vec![0, 0, -5])), overflow, "value -5 µs of column"),
            (Arc::new(Time32SecondArray::from(vec![0, 86_400, 86_401])), overflow, "value 86401000000 µs"),
            (Arc::new(Date32Array::from(vec![0, 0, i32::MAX])), overflow, "value 2147483647 days"),
            (Arc::new(TimestampMicrosecondArray::from(vec![0, 0, i64::MIN])), overflow, "value -"),
        ];
        for (column, state, message) in columns {
            let ty = column.data_type().clone();
            let given = batch(vec![("first", Arc::new(NullArray::new(3))), ("a", column)]);
            let error = rows(&given, &mut usize::MAX.clone()).expect_err(&ty.to_string());
            assert_eq!(error.state(), state, "{ty}");
            assert!(error.message().starts_with(message), "{ty}: {error}");
            assert!(rows(&given.slice(0, 2), &mut usize::MAX.clone()).is_ok(), "{ty}");
            if !matches!(ty, DataType::Decimal256(..)) {
                assert_eq!(error.context(), Some("row 3 of a batch"), "{ty}");
            }
        }
        // The value under a NULL does not count.
        let nulls = NullBuffer::from(vec![false]);
        let covered = Time64MicrosecondArray::new(vec![-1].into(), Some(nulls.clone()));
        let field = Arc::new(Field::new_list_field(covered.data_type().clone(), true));
        let times = Arc::new(Time64MicrosecondArray::from(vec![-1]));
        let list = ListArray::new(field, OffsetBuffer::from_lengths([1]), times, Some(nulls));
        let given = batch(vec![("a", Arc::new(covered)), ("b", Arc::new(list))]);
        assert_eq!(rows(&given, &mut usize::MAX.clone()).unwrap(), [[Value::Null, Value::Null]]);
    }

    #[test]
    fn strings_with_zero_bytes_are_refused_wherever_they_lie() {
        let long = "a string that does not lie in its view";
        let plain = ["", "a", "twelve bytes", long];
        for length in 1..=14 {
            for place in 0..length {
                let mut bytes = vec![b'x'; length];
                bytes[place] = 0;
                let broken = String::from_utf8(bytes).unwrap();
                for other in plain {
                    // The second part of a batch shares the buffers of all of it.
                    let strings =
                        StringArray::from(vec![Some(long), None, Some(other), Some(broken.as_str())]);
                    let views = views_of::<_, StringViewType>(&strings);
                    let offsets = OffsetBuffer::from_lengths([1, 1, 1, 1]);
                    let field = Arc::new(Field::new_list_field(DataType::Utf8, true));
                    let list = ListArray::new(field, offsets, Arc::new(strings.clone()), None);
                    for column in [Arc::new(strings) as ArrayRef, Arc::new(views), Arc::new(list)] {
                        let given = batch(vec![("a", column)]);
                        for (start, length) in [(0, 4), (2, 2), (3, 1)] {
                            let error = normalise(&given.slice(start, length), None).unwrap_err();
                            assert_eq!(error.state(), SqlState::CHARACTER_NOT_IN_REPERTOIRE, "{broken:?}");
                            assert_eq!(error.ordinal(), Some(3 - start as u64), "{broken:?}");
                        }
                        normalise(&given.slice(0, 3), None).unwrap();
                    }
                }
            }
        }
        // The value under a NULL may be anything.
        let nulls = NullBuffer::from(vec![false, true]);
        let covered = StringArray::new(OffsetBuffer::from_lengths([13, 20]), vec![0; 33].into(), Some(nulls));
        assert!(normalise(&batch(vec![("a", Arc::new(covered.clone()))]).slice(0, 1), None).is_ok());
        assert!(normalise(&batch(vec![("a", Arc::new(covered))]), None).is_err());
    }

    #[test]
    fn a_column_without_a_type_takes_that_of_its_target() {
        let given = batch(vec![("a", Arc::new(NullArray::new(3)) as ArrayRef)]);
        let found = normalise(&given, Some(&[Type::new(TypeId::DATE)])).unwrap();
        assert_eq!((found.column(0).data_type(), found.column(0).null_count()), (&DataType::Date32, 3));
    }

    #[test]
    fn what_sql_has_no_type_for_is_refused() {
        let inner: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let field = Arc::new(Field::new("x", DataType::Int64, true));
        let structs = StructArray::from(vec![(field, inner)]);
        let error = rows(&batch(vec![("s", Arc::new(structs))]), &mut usize::MAX.clone()).unwrap_err();
        assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
        let field = Field::new("text", DataType::LargeUtf8, true);
        assert_eq!(sql_type(&field).unwrap(), Type::new(TypeId::TEXT));
        let field = Field::new_list("list", Field::new_list_field(DataType::Int64, true), true);
        assert_eq!(sql_type(&field).unwrap(), Type::new(TypeId::INT8_ARRAY));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        assert_eq!(
            rows(&batch(vec![("t", text)]), &mut usize::MAX.clone()).unwrap(),
            [[Value::Text("x".into())]]
        );
    }

    /// A column of a few bytes each that claims 2⁴⁰ rows, and many views of the same megabyte.
    #[test]
    fn rows_that_few_bytes_claim_are_refused_before_memory_is_taken_for_them() {
        const CLAIMED: usize = 1 << 40;
        let run_ends = Int64Array::from(vec![CLAIMED as i64]);
        let runs = RunArray::try_new(&run_ends, &StringArray::from(vec!["a"])).unwrap();
        let field = Arc::new(Field::new_list_field(DataType::Null, true));
        let offsets = OffsetBuffer::new(vec![0_i64, CLAIMED as i64].into());
        let list = LargeListArray::new(field, offsets, Arc::new(NullArray::new(CLAIMED)), None);
        let key = PrimitiveArray::<Int8Type>::from_iter_values([0, 0, 0]);
        let dictionary = DictionaryArray::new(key, Arc::new(list.clone()));
        let claims: [ArrayRef; 4] =
            [Arc::new(NullArray::new(CLAIMED)), Arc::new(runs), Arc::new(list), Arc::new(dictionary)];
        for claim in claims {
            let ty = claim.data_type().clone();
            let given = batch(vec![("a", claim)]);
            let error = refuse_claims(&given, 1 << 30).expect_err(&ty.to_string());
            assert_eq!(error.state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
            assert!(rows(&given, &mut (1 << 30)).is_err(), "{ty}");
        }
        let long = "x".repeat(1 << 20);
        let keys = PrimitiveArray::<Int8Type>::from_iter_values([0; 1000]);
        let same: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(StringArray::from(vec![long]))));
        let given = batch(vec![("a", same)]);
        refuse_claims(&given, 1 << 20).unwrap();
        let error = rows(&given, &mut (100 << 20)).unwrap_err();
        assert_eq!(error.state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }

    #[test]
    fn a_value_that_does_not_fit_becomes_no_null() {
        let large: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(i64::MAX), None]));
        let error = converted(&large, &DataType::Int32).unwrap_err();
        assert_eq!(error.state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        let fits = converted(&large.slice(0, 1), &DataType::Int32).unwrap();
        assert_eq!(fits.data_type(), &DataType::Int32);
    }
}
