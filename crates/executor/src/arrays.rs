//! Columns of the storage as vectors and back.
//!
//! The storage takes and gives Arrow arrays (`firn_storage::arrow` says of which types): decimals are wide, uuids are bytes, numerics
//! with scales of their own and arrays are images. Buffers are shared where both sides have the same.

use crate::values::{push, value};
use arrow_array::builder::BinaryViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType, UInt32Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, Decimal128Array,
    FixedSizeBinaryArray, PrimitiveArray, StringViewArray,
};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use firn_base::array::ArrayImage;
use firn_base::numeric::Numeric;
use firn_base::sync::Arc;
use firn_base::{Representation, Value};
use firn_vector::builder::Builder;
use firn_vector::selection::Rows;
use firn_vector::strings::Strings;
use firn_vector::{Data, Datum, Vector};

/// An array of the storage as a vector: buffers are shared, but narrow decimals, which Arrow has wide, and uuids are copied.
pub fn vector_of(array: &ArrayRef, representation: Representation) -> Vector {
    let data = match representation {
        Representation::Boolean => Data::Boolean(array.as_boolean().values().clone()),
        Representation::Int16 => Data::Int16(array.as_primitive::<Int16Type>().values().clone()),
        Representation::Int32 => Data::Int32(array.as_primitive::<Int32Type>().values().clone()),
        Representation::Date => Data::Int32(array.as_primitive::<Date32Type>().values().clone()),
        Representation::Int64 => Data::Int64(array.as_primitive::<Int64Type>().values().clone()),
        Representation::Time => Data::Int64(array.as_primitive::<Time64MicrosecondType>().values().clone()),
        Representation::Timestamp | Representation::TimestampTz => {
            Data::Int64(array.as_primitive::<TimestampMicrosecondType>().values().clone())
        }
        Representation::Float32 => Data::Float32(array.as_primitive::<Float32Type>().values().clone()),
        Representation::Float64 => Data::Float64(array.as_primitive::<Float64Type>().values().clone()),
        Representation::Decimal { precision, .. } => {
            let values = array.as_primitive::<Decimal128Type>().values();
            match precision {
                ..=18 => Data::Int64(values.iter().map(|value| *value as i64).collect()),
                _ => Data::Int128(values.clone()),
            }
        }
        Representation::Interval => {
            Data::Interval(array.as_primitive::<IntervalMonthDayNanoType>().values().clone())
        }
        Representation::Uuid => {
            let values = array.as_fixed_size_binary().iter().map(|value| {
                value.map_or(0, |bytes| u128::from_le_bytes(bytes.try_into().expect("a uuid has 16 bytes")))
            });
            Data::Uuid(values.collect())
        }
        Representation::Text | Representation::PaddedText => {
            let array = array.as_string_view();
            Data::Strings(Strings::new(array.views().clone(), array.data_buffers().to_vec().into()))
        }
        Representation::Bytes => {
            let array = array.as_binary_view();
            Data::Strings(Strings::new(array.views().clone(), array.data_buffers().to_vec().into()))
        }
        Representation::Oid => Data::UInt32(array.as_primitive::<UInt32Type>().values().clone()),
        Representation::Numeric | Representation::List(_) => return of_images(array, representation),
        Representation::Record => panic!("tables have no columns of records"),
    };
    Vector::flat(representation, data, array.nulls().cloned())
}

/// Numerics with scales of their own, and arrays, which blocks hold as images.
fn of_images(array: &ArrayRef, representation: Representation) -> Vector {
    let read = |image: &[u8]| match representation {
        Representation::List(element) => {
            let array = ArrayImage::new(image, *element).expect("blocks hold whole images");
            Value::Array(array.to_value())
        }
        _ => Value::Number(Numeric::from_image(image).expect("blocks hold whole images")),
    };
    let mut builder = Builder::new(representation);
    for image in array.as_binary_view().iter() {
        match image {
            Some(image) => push(&mut builder, &read(image), representation),
            None => builder.push_null(),
        }
    }
    builder.finish()
}

/// A vector as the storage takes it: all its rows, with the same representation.
pub fn array_of(vector: &Vector) -> ArrayRef {
    let vector = vector.flatten(Rows::all(vector.len()));
    let nulls = vector.validity().cloned();
    let data = vector.data().expect("it is flat");
    match (vector.representation(), data) {
        (_, Data::Boolean(values)) => Arc::new(BooleanArray::new(values.clone(), nulls)),
        (_, Data::Int16(values)) => primitive::<Int16Type>(values, nulls),
        (Representation::Date, Data::Int32(values)) => primitive::<Date32Type>(values, nulls),
        (_, Data::Int32(values)) => primitive::<Int32Type>(values, nulls),
        (Representation::Time, Data::Int64(values)) => primitive::<Time64MicrosecondType>(values, nulls),
        (Representation::Timestamp, Data::Int64(values)) => {
            primitive::<TimestampMicrosecondType>(values, nulls)
        }
        (Representation::TimestampTz, Data::Int64(values)) => {
            let array = PrimitiveArray::<TimestampMicrosecondType>::new(values.clone(), nulls);
            Arc::new(array.with_timezone("UTC"))
        }
        (Representation::Decimal { precision, scale }, Data::Int64(values)) => {
            let values: ScalarBuffer<i128> = values.iter().map(|value| i128::from(*value)).collect();
            decimal(values, nulls, precision, scale)
        }
        (_, Data::Int64(values)) => primitive::<Int64Type>(values, nulls),
        (Representation::Decimal { precision, scale }, Data::Int128(values)) => {
            decimal(values.clone(), nulls, precision, scale)
        }
        (_, Data::UInt32(values)) => primitive::<UInt32Type>(values, nulls),
        (_, Data::Float32(values)) => primitive::<Float32Type>(values, nulls),
        (_, Data::Float64(values)) => primitive::<Float64Type>(values, nulls),
        (_, Data::Interval(values)) => primitive::<IntervalMonthDayNanoType>(values, nulls),
        (_, Data::Uuid(values)) => {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            Arc::new(FixedSizeBinaryArray::new(16, Buffer::from_vec(bytes), nulls))
        }
        (Representation::Bytes, Data::Strings(strings)) => {
            let array = BinaryViewArray::try_new(strings.views().clone(), strings.buffers().to_vec(), nulls);
            Arc::new(array.expect("views lie in their buffers"))
        }
        (_, Data::Strings(strings)) => {
            let array = StringViewArray::try_new(strings.views().clone(), strings.buffers().to_vec(), nulls);
            Arc::new(array.expect("strings are UTF-8"))
        }
        (representation, Data::Numeric(_) | Data::List(_)) => images(&vector, representation),
        (representation, data) => panic!("no column of {representation} holds {data:?}"),
    }
}

fn primitive<T: ArrowPrimitiveType>(values: &ScalarBuffer<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.clone(), nulls))
}

fn decimal(values: ScalarBuffer<i128>, nulls: Option<NullBuffer>, precision: u8, scale: u8) -> ArrayRef {
    let array = Decimal128Array::new(values, nulls).with_precision_and_scale(precision, scale as i8);
    Arc::new(array.expect("the type's digits are those of Arrow"))
}

fn images(vector: &Vector, representation: Representation) -> ArrayRef {
    let mut builder = BinaryViewBuilder::with_capacity(vector.len());
    let mut image = Vec::new();
    for row in 0..vector.len() {
        match (vector.datum(row), representation) {
            (Datum::Null, _) => builder.append_null(),
            (Datum::Numeric(value), _) => builder.append_value(value.image().bytes()),
            (datum @ Datum::List(_), Representation::List(element)) => {
                let Value::Array(array) = value(datum, representation) else { unreachable!("it is a list") };
                image.clear();
                array.write_image(*element, &mut image);
                builder.append_value(&image);
            }
            (datum, _) => panic!("{datum:?} has no image"),
        }
    }
    Arc::new(builder.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::{TextStyle, Type, TypeId, text};

    /// A vector becomes an array of the type that the storage takes, and comes back.
    #[test]
    fn columns_of_every_type_go_to_the_storage_and_come_back() {
        let cases: &[(Type, &[&str])] = &[
            (Type::new(TypeId::BOOL), &["t", "NULL", "f"]),
            (Type::new(TypeId::INT2), &["-1", "NULL"]),
            (Type::new(TypeId::INT4), &["-1", "NULL"]),
            (Type::new(TypeId::INT8), &["-1", "NULL"]),
            (Type::new(TypeId::OID), &["4294967295", "NULL"]),
            (Type::new(TypeId::FLOAT4), &["0.5", "NULL"]),
            (Type::new(TypeId::FLOAT8), &["0.5", "NULL"]),
            (Type::numeric(10, 2), &["1.50", "NULL"]),
            (Type::numeric(30, 2), &["1.50", "NULL"]),
            (Type::new(TypeId::NUMERIC), &["1.50", "NULL", "NaN", "1e-20"]),
            (Type::new(TypeId::TEXT), &["longer than twelve bytes", "NULL", ""]),
            (Type::character(4), &["ab", "NULL"]),
            (Type::new(TypeId::BYTEA), &["\\x00", "NULL"]),
            (Type::new(TypeId::DATE), &["2020-01-01", "NULL"]),
            (Type::new(TypeId::TIME), &["01:00", "NULL"]),
            (Type::new(TypeId::TIMESTAMP), &["2020-01-01 01:00", "NULL"]),
            (Type::new(TypeId::TIMESTAMPTZ), &["2020-01-01 01:00", "NULL"]),
            (Type::new(TypeId::INTERVAL), &["1 day", "NULL"]),
            (Type::new(TypeId::UUID), &["01234567-89ab-cdef-0123-456789abcdef", "NULL"]),
            (Type::new(TypeId::INT4_ARRAY), &["{1,NULL,3}", "NULL", "{}", "[0:1]={1,2}"]),
            (Type::new(TypeId::TEXT_ARRAY), &["{{a},{b}}", "NULL"]),
        ];
        for (ty, texts) in cases {
            let representation = ty.representation().expect("it is built in");
            let mut builder = Builder::new(representation);
            for text in *texts {
                let value = match *text {
                    "NULL" => Value::Null,
                    text => text::parse_any(text, *ty, &TextStyle::DEFAULT).expect("it is a value"),
                };
                push(&mut builder, &value, representation);
            }
            let vector = builder.finish();
            let array = array_of(&vector);
            assert_eq!(*array.data_type(), firn_storage::arrow::data_type(representation), "{ty}");
            let back = vector_of(&array, representation);
            for row in 0..vector.len() {
                let values = [&vector, &back].map(|vector| value(vector.datum(row), representation));
                assert_eq!(values[0], values[1], "{ty}");
            }
            // A part of it, and a constant.
            let part = array_of(&vector.slice(1, texts.len() - 1));
            assert_eq!(vector_of(&part, representation).is_null(0), vector.is_null(1), "{ty}");
            assert_eq!(array_of(&Vector::null(representation, 3)).null_count(), 3, "{ty}");
        }
    }
}
