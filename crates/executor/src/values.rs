//! SQL values and vectors: how constants and parameters become vectors, and how a row is read back.

use firn_base::array::{ArrayValue, Dimension};
use firn_base::{Numeric, Representation, Value};
use firn_vector::builder::Builder;
use firn_vector::lists::{List, Shape};
use firn_vector::{Datum, Vector};

/// One value for each of `length` rows.
pub fn constant(value: &Value, representation: Representation, length: usize) -> Vector {
    if *value == Value::Null {
        return Vector::null(representation, length);
    }
    let mut builder = Builder::new(representation);
    push(&mut builder, value, representation);
    let data = builder.finish().data().expect("builders make flat vectors").clone();
    Vector::constant(representation, data, length)
}

/// A constant with as many rows as its chunk has.
pub fn repeat(constant: &Vector, length: usize) -> Vector {
    match constant.is_null(0) {
        true => Vector::null(constant.representation(), length),
        false => {
            let data = constant.data().expect("constants have data").clone();
            Vector::constant(constant.representation(), data, length)
        }
    }
}

/// Appends a value. Panics if it is of another kind than the vector.
pub fn push(builder: &mut Builder, value: &Value, representation: Representation) {
    let Value::Array(array) = value else {
        return builder.push(datum(value).expect("it is no array"));
    };
    let Representation::List(element) = representation else { panic!("an array is no {representation:?}") };
    let mut elements = Builder::new(*element);
    array.elements().iter().for_each(|value| push(&mut elements, value, *element));
    let elements = elements.finish();
    let shape = shape(array.dimensions());
    builder.push(Datum::List(List::with_shape(&elements, shape.as_ref())));
}

/// A value, borrowed; `None` of an array, whose elements functions read from a vector.
#[inline]
pub fn datum(value: &Value) -> Option<Datum<'_>> {
    Some(match value {
        Value::Null => Datum::Null,
        Value::Boolean(value) => Datum::Boolean(*value),
        Value::SmallInt(value) => Datum::Int16(*value),
        Value::Integer(value) | Value::Date(value) => Datum::Int32(*value),
        Value::BigInt(value) | Value::Time(value) | Value::Timestamp(value) | Value::TimestampTz(value) => {
            Datum::Int64(*value)
        }
        Value::Real(value) => Datum::Float32(*value),
        Value::Double(value) => Datum::Float64(*value),
        Value::Numeric { unscaled, scale } => Datum::Numeric(Numeric::from_decimal(*unscaled, *scale)),
        Value::Number(value) => Datum::Numeric(*value),
        Value::Text(value) => Datum::Text(value),
        Value::Bytea(value) => Datum::Bytes(value),
        Value::Interval(value) => Datum::Interval(*value),
        Value::Uuid(value) => Datum::Uuid(*value),
        Value::Oid(value) => Datum::UInt32(*value),
        Value::Array(_) => return None,
    })
}

/// The shape of an array that has not just one dimension that begins at 1.
fn shape(dimensions: &[Dimension]) -> Option<Shape> {
    let is_plain = matches!(dimensions, [] | [Dimension { lower: 1, .. }]);
    (!is_plain).then(|| dimensions.into())
}

/// The value of a datum.
pub fn value(datum: Datum<'_>, representation: Representation) -> Value {
    match (datum, representation) {
        (Datum::Null, _) => Value::Null,
        (Datum::Boolean(value), _) => Value::Boolean(value),
        (Datum::Int16(value), _) => Value::SmallInt(value),
        (Datum::Int32(value), Representation::Date) => Value::Date(value),
        (Datum::Int32(value), _) => Value::Integer(value),
        (Datum::Int64(value), Representation::Time) => Value::Time(value),
        (Datum::Int64(value), Representation::Timestamp) => Value::Timestamp(value),
        (Datum::Int64(value), Representation::TimestampTz) => Value::TimestampTz(value),
        (Datum::Int64(value), _) => Value::BigInt(value),
        (Datum::UInt32(value), _) => Value::Oid(value),
        (Datum::Float32(value), _) => Value::Real(value),
        (Datum::Float64(value), _) => Value::Double(value),
        (Datum::Numeric(value), Representation::Decimal { scale, .. }) => {
            let unscaled = value.exactly_at(u16::from(scale)).expect("decimals of a vector have its scale");
            Value::Numeric { unscaled, scale }
        }
        (Datum::Numeric(value), _) => Value::Number(value),
        (Datum::Interval(value), _) => Value::Interval(value),
        (Datum::Uuid(value), _) => Value::Uuid(value),
        (Datum::Text(text), _) => Value::Text(text.to_owned()),
        (Datum::Bytes(bytes), _) => Value::Bytea(bytes.to_owned()),
        (Datum::List(list), Representation::List(element)) => {
            let dimensions = (0..list.dimensions()).map(|number| list.dimension(number).expect("it has it"));
            let elements = list.iter().map(|datum| self::value(datum, *element)).collect();
            Value::Array(ArrayValue::new(dimensions.collect(), elements))
        }
        (datum, representation) => panic!("no value of {representation:?} is {datum:?}"),
    }
}
