//! Images as Arrow: numerics with scales of their own, and arrays, in the types that other programs know.
//!
//! Blocks, and the arrays that scans return, hold [images](Representation::is_image) of these values, as
//! `BinaryView`.
//!
//! | representation | exported as |
//! |---|---|
//! | numeric | `Decimal128(38, 16)`; 22003 for a value that has more digits, NaN or an infinity |
//! | list | `List` of the elements' type; 0A000 for an array of several dimensions |
//!
//! Lower bounds are lost in the export. All other values have the type of [`data_type`] and are not
//! converted.

use crate::arrow::data_type;
use crate::arrow_rows::BatchRows;
use crate::column::ColumnSpec;
use crate::table::Rows;
use arrow_array::builder::{
    BinaryViewBuilder, BooleanBuilder, FixedSizeBinaryBuilder, PrimitiveBuilder, StringViewBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType, UInt32Type,
};
use arrow_array::{Array, ArrayRef, BinaryViewArray, ListArray};
use arrow_buffer::{IntervalMonthDayNano, OffsetBuffer};
use arrow_schema::{DataType, Field};
use firn_base::array::ArrayImage;
use firn_base::sync::Arc;
use firn_base::{
    ArrayValue, Cell, Error, Interval, Numeric, Representation, Result, SqlState, numeric, value,
};

/// Digits and decimals of exported numerics.
const PRECISION: u8 = numeric::MAX_PRECISION;
const SCALE: u8 = 16;

/// The Arrow type in which values of a representation are exported. Panics for records.
pub fn exchange_type(representation: Representation) -> DataType {
    match representation {
        Representation::Numeric => DataType::Decimal128(PRECISION, SCALE as i8),
        Representation::List(element) => {
            DataType::List(Arc::new(Field::new_list_field(exchange_type(*element), true)))
        }
        Representation::Record => panic!("no column holds records"),
        other => data_type(other),
    }
}

/// Converts a column of a scan to the type that [`exchange_type`] returns.
pub fn to_exchange(column: &ArrayRef, representation: Representation) -> Result<ArrayRef> {
    match representation {
        Representation::Numeric => {
            let images = column.as_binary_view();
            let cell = |row| if images.is_null(row) { Cell::Null } else { Cell::Bytes(images.value(row)) };
            decimals((0..images.len()).map(cell))
        }
        Representation::List(element) => lists(column.as_binary_view(), *element),
        _ => Ok(Arc::clone(column)),
    }
}

fn decimals<'a>(cells: impl ExactSizeIterator<Item = Cell<'a>>) -> Result<ArrayRef> {
    let mut builder = PrimitiveBuilder::<Decimal128Type>::with_capacity(cells.len())
        .with_data_type(exchange_type(Representation::Numeric));
    for cell in cells {
        match cell {
            Cell::Null => builder.append_null(),
            cell => {
                let value = cell.as_numeric();
                builder.append_value(value.exactly_at(SCALE.into()).ok_or_else(|| digits_are_lost(value))?);
            }
        }
    }
    Ok(Arc::new(builder.finish()))
}

#[cold]
fn digits_are_lost(value: Numeric) -> Error {
    Error::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("numeric value {value} does not fit Arrow's decimal128({PRECISION},{SCALE})"),
    )
    .with_hint("Cast the column to numeric(p,s) with a scale that suits it, or to text or double precision.")
}

fn lists(images: &BinaryViewArray, element: Representation) -> Result<ArrayRef> {
    let image = |row: usize| -> Option<ArrayImage<'_>> {
        images
            .is_valid(row)
            .then(|| ArrayImage::new(images.value(row), element).expect("the column holds images of arrays"))
    };
    let mut arrays = Vec::with_capacity(images.len());
    for image in (0..images.len()).map(image) {
        if image.is_some_and(|image| image.dimensions().len() > 1) {
            return Err(Error::unsupported("an array of several dimensions as an Arrow list")
                .with_hint("Cast the column to text."));
        }
        arrays.push(image);
    }
    let length = |image: &Option<ArrayImage<'_>>| image.map_or(0, ArrayImage::len);
    if arrays.iter().map(length).sum::<usize>() > i32::MAX as usize {
        return Err(Error::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            "the arrays have more elements together than an Arrow list",
        ));
    }
    let offsets = OffsetBuffer::<i32>::from_lengths(arrays.iter().map(length));
    let values = elements(&arrays, element)?;
    let DataType::List(field) = exchange_type(Representation::List(list_element(element))) else {
        unreachable!("lists are lists")
    };
    Ok(Arc::new(ListArray::new(field, offsets, values, images.nulls().cloned())))
}

/// The element type of a list, as Arrow's lists have it.
fn list_element(element: Representation) -> &'static Representation {
    let Representation::List(element) = element.list() else { unreachable!("the caller has a list") };
    element
}

/// The elements of all arrays in turn, in the type that [`exchange_type`] returns.
fn elements(arrays: &[Option<ArrayImage<'_>>], element: Representation) -> Result<ArrayRef> {
    /// Each cell in turn, NULLs among them.
    fn each<'a>(arrays: &'a [Option<ArrayImage<'a>>]) -> impl Iterator<Item = Cell<'a>> {
        arrays.iter().flatten().flat_map(|image| (0..image.len()).map(|position| image.cell(position)))
    }
    fn primitive<T: ArrowPrimitiveType>(
        arrays: &[Option<ArrayImage<'_>>],
        element: Representation,
        native: impl Fn(Cell<'_>) -> T::Native,
    ) -> ArrayRef {
        let mut builder = PrimitiveBuilder::<T>::new().with_data_type(data_type(element));
        builder.extend(each(arrays).map(|cell| (!cell.is_null()).then(|| native(cell))));
        Arc::new(builder.finish())
    }
    Ok(match element {
        Representation::Boolean => {
            let mut builder = BooleanBuilder::new();
            for cell in each(arrays) {
                builder.append_option((!cell.is_null()).then(|| cell.word() != 0));
            }
            Arc::new(builder.finish())
        }
        Representation::Int16 => primitive::<Int16Type>(arrays, element, |cell| cell.word() as i16),
        Representation::Int32 => primitive::<Int32Type>(arrays, element, |cell| cell.as_i32()),
        Representation::Int64 => primitive::<Int64Type>(arrays, element, |cell| cell.as_i64()),
        Representation::Oid => primitive::<UInt32Type>(arrays, element, |cell| cell.word() as u32),
        Representation::Float32 => {
            primitive::<Float32Type>(arrays, element, |cell| f32::from_bits(cell.word() as u32))
        }
        Representation::Float64 => {
            primitive::<Float64Type>(arrays, element, |cell| f64::from_bits(cell.word()))
        }
        Representation::Date => primitive::<Date32Type>(arrays, element, |cell| cell.as_i32()),
        Representation::Time => primitive::<Time64MicrosecondType>(arrays, element, |cell| cell.as_i64()),
        Representation::Timestamp | Representation::TimestampTz => {
            primitive::<TimestampMicrosecondType>(arrays, element, |cell| cell.as_i64())
        }
        Representation::Interval => primitive::<IntervalMonthDayNanoType>(arrays, element, |cell| {
            let Cell::Wide(words) = cell else { panic!("interval cells are wide") };
            let Interval { months, days, nanoseconds } = Interval::from_words(words);
            IntervalMonthDayNano::new(months, days, nanoseconds)
        }),
        Representation::Uuid => {
            let mut builder = FixedSizeBinaryBuilder::new(16);
            for cell in each(arrays) {
                match cell {
                    Cell::Wide(words) => {
                        builder.append_value(value::uuid_from_words(words)).expect("16 bytes");
                    }
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        Representation::Text | Representation::PaddedText => {
            let mut builder = StringViewBuilder::new();
            for cell in each(arrays) {
                builder.append_option((!cell.is_null()).then(|| cell.str()));
            }
            Arc::new(builder.finish())
        }
        Representation::Bytes => {
            let mut builder = BinaryViewBuilder::new();
            for cell in each(arrays) {
                builder.append_option((!cell.is_null()).then(|| cell.bytes()));
            }
            Arc::new(builder.finish())
        }
        Representation::Numeric => {
            let cells: Vec<Cell<'_>> = each(arrays).collect();
            decimals(cells.into_iter())?
        }
        Representation::Decimal { .. } | Representation::List(_) | Representation::Record => {
            panic!("arrays have no elements of {element}")
        }
    })
}

/// Converts a column of the type that [`exchange_type`] returns to the form of bulk inserts. A numeric may be
/// a decimal of any scale from 0 to 38, which its values keep. Panics if the column is of another type.
pub fn from_exchange(column: &ArrayRef, representation: Representation) -> ArrayRef {
    match representation {
        Representation::Numeric => images(column.len(), |row, image| {
            image.extend_from_slice(numeric_at(column.as_ref(), row)?.image().bytes());
            Some(())
        }),
        Representation::List(element) => {
            let lists = column.as_list::<i32>();
            let values = [from_exchange(lists.values(), *element)];
            let spec = ColumnSpec { representation: *element, nullable: true };
            let cells = BatchRows::new(&values, std::slice::from_ref(&spec));
            let offsets = lists.offsets();
            images(column.len(), |row, image| {
                if lists.is_null(row) {
                    return None;
                }
                let elements = offsets[row] as usize..offsets[row + 1] as usize;
                let array: ArrayValue = elements.map(|at| cells.cell(at, 0).to_value(*element)).collect();
                array.write_image(*element, image);
                Some(())
            })
        }
        _ => Arc::clone(column),
    }
}

/// An array of the images that `write` makes; NULL for a row for which it returns nothing.
fn images(rows: usize, write: impl Fn(usize, &mut Vec<u8>) -> Option<()>) -> ArrayRef {
    let mut builder = BinaryViewBuilder::with_capacity(rows);
    let mut image = Vec::new();
    for row in 0..rows {
        image.clear();
        match write(row, &mut image) {
            Some(()) => builder.append_value(&image),
            None => builder.append_null(),
        }
    }
    Arc::new(builder.finish())
}

fn numeric_at(array: &dyn Array, row: usize) -> Option<Numeric> {
    let DataType::Decimal128(_, scale) = array.data_type() else {
        panic!("a numeric column has type {}", array.data_type())
    };
    let scale = u8::try_from(*scale).expect("the scale is not negative");
    array
        .is_valid(row)
        .then(|| Numeric::from_decimal(array.as_primitive::<Decimal128Type>().value(row), scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrow::values_to_array;
    use arrow_array::Decimal128Array;
    use firn_base::Value;
    use firn_base::array::{Dimension, parse_any};
    use firn_base::{TextStyle, Type, TypeId};

    fn numeric(text: &str) -> Value {
        Value::Number(Numeric::parse(text).expect("it is a number"))
    }

    fn back(column: &ArrayRef, representation: Representation) -> Vec<Value> {
        let images = column.as_binary_view();
        let value = |row| {
            if images.is_null(row) {
                Value::Null
            } else {
                Cell::Bytes(images.value(row)).to_value(representation)
            }
        };
        (0..images.len()).map(value).collect()
    }

    #[test]
    fn numerics_are_decimals_for_others_if_no_digit_is_lost() {
        let values = [numeric("1.00"), Value::Null, numeric("-0.1234567890123456"), numeric("0e-300")];
        let column = values_to_array(&values, Representation::Numeric);
        let decimals = to_exchange(&column, Representation::Numeric).unwrap();
        assert_eq!(decimals.data_type(), &exchange_type(Representation::Numeric));
        assert_eq!(decimals.as_primitive::<Decimal128Type>().value(0), 10i128.pow(16));
        let images = from_exchange(&decimals, Representation::Numeric);
        assert_eq!(
            back(&images, Representation::Numeric),
            values,
            "the values are the same, with another scale"
        );
        for lost in ["0.12345678901234567", "1e30", "NaN", "-Infinity"] {
            let column = values_to_array(&[numeric(lost)], Representation::Numeric);
            let error = to_exchange(&column, Representation::Numeric).unwrap_err();
            assert_eq!(error.state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "{lost}");
            assert!(error.hint().is_some(), "{lost}");
        }
    }

    #[test]
    fn decimals_of_others_keep_their_scale() {
        let cents = Decimal128Array::from(vec![Some(150), None]).with_precision_and_scale(9, 2).unwrap();
        let images = from_exchange(&(Arc::new(cents) as ArrayRef), Representation::Numeric);
        let Value::Number(first) = &back(&images, Representation::Numeric)[0] else {
            panic!("it is a number")
        };
        assert_eq!(first.to_string(), "1.50");
    }

    #[test]
    fn arrays_are_lists_for_others_and_come_back() {
        for (id, texts) in [
            (TypeId::INT4, ["{1,NULL,3}", "{}"]),
            (TypeId::BOOL, ["{t,f,NULL}", "{t}"]),
            (TypeId::INT2, ["{1,-1}", "{}"]),
            (TypeId::INT8, ["{1}", "{NULL}"]),
            (TypeId::OID, ["{4294967295}", "{}"]),
            (TypeId::FLOAT4, ["{1.5}", "{NULL,2}"]),
            (TypeId::FLOAT8, ["{1.5}", "{1e300}"]),
            (TypeId::NUMERIC, ["{1.0,NULL}", "{2}"]),
            (TypeId::TEXT, ["{a,\"a string of more than twelve bytes\"}", "{NULL}"]),
            (TypeId::BPCHAR, ["{\"a \"}", "{}"]),
            (TypeId::BYTEA, ["{\"\\\\x00\"}", "{}"]),
            (TypeId::DATE, ["{2000-01-01}", "{NULL}"]),
            (TypeId::TIME, ["{12:00}", "{}"]),
            (TypeId::TIMESTAMP, ["{2000-01-01 00:00}", "{}"]),
            (TypeId::TIMESTAMPTZ, ["{2000-01-01 00:00+00}", "{}"]),
            (TypeId::INTERVAL, ["{1 mon 1 day 1 hour}", "{NULL}"]),
            (TypeId::UUID, ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}", "{}"]),
        ] {
            let element = Type::new(id);
            let representation = element.representation().expect("columns of this type exist").list();
            let array = |text: &str| {
                let array = parse_any(text, element, &TextStyle::DEFAULT);
                Value::Array(array.unwrap_or_else(|error| panic!("{text}: {}", error.message())))
            };
            let values = [array(texts[0]), Value::Null, array(texts[1])];
            let column = values_to_array(&values, representation);
            let lists = to_exchange(&column, representation).unwrap();
            assert_eq!(lists.data_type(), &exchange_type(representation), "{element}");
            // Also when the array has an offset.
            for from in 0..values.len() {
                let part = lists.slice(from, values.len() - from);
                assert_eq!(
                    back(&from_exchange(&part, representation), representation),
                    values[from..],
                    "{element}"
                );
            }
        }
    }

    #[test]
    fn arrays_of_several_dimensions_are_no_lists() {
        let dimension = Dimension { length: 1, lower: 1 };
        let array = ArrayValue::new(vec![dimension; 2], vec![Value::Integer(1)]);
        let representation = Representation::Int32.list();
        let column = values_to_array(&[Value::Array(array)], representation);
        let error = to_exchange(&column, representation).unwrap_err();
        assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
    }
}
