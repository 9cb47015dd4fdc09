//! Between values that are owned and typed, as clients and catalogs have them, and those of vectors.

use crate::builder::Builder;
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::lists::Shape;
use firn_base::array::ArrayValue;
use firn_base::numeric::Numeric;
use firn_base::sync::Arc;
use firn_base::{Representation, Type, Value};

impl Datum<'_> {
    /// The value, of a type. Panics on a record, which is not a value of base.
    pub fn to_value(&self, ty: Type) -> Value {
        let representation = ty.representation();
        match *self {
            Datum::Null => Value::Null,
            Datum::Boolean(value) => Value::Boolean(value),
            Datum::Int16(value) => Value::SmallInt(value),
            Datum::Int32(value) if representation == Some(Representation::Date) => Value::Date(value),
            Datum::Int32(value) => Value::Integer(value),
            Datum::Int64(value) => match representation {
                Some(Representation::Time) => Value::Time(value),
                Some(Representation::Timestamp) => Value::Timestamp(value),
                Some(Representation::TimestampTz) => Value::TimestampTz(value),
                _ => Value::BigInt(value),
            },
            Datum::UInt32(value) => Value::Oid(value),
            Datum::Float32(value) => Value::Real(value),
            Datum::Float64(value) => Value::Double(value),
            Datum::Numeric(value) => Value::Number(value),
            Datum::Interval(value) => Value::Interval(value),
            Datum::Uuid(value) => Value::Uuid(value),
            Datum::Text(value) => Value::Text(value.to_owned()),
            Datum::Bytes(value) => Value::Bytea(value.to_owned()),
            Datum::List(list) => {
                let element = ty.element().expect("arrays have elements");
                let dimensions = (0..list.dimensions()).filter_map(|number| list.dimension(number));
                let elements = list.iter().map(|datum| datum.to_value(element));
                Value::Array(ArrayValue::new(dimensions.collect(), elements.collect()))
            }
            Datum::Record(_) => panic!("a record is no value of base"),
        }
    }
}

impl Slot {
    /// Makes it hold a value, which is of the type.
    pub fn set_value(&mut self, value: &Value, ty: Type) {
        match value {
            Value::Null => self.set(Datum::Null),
            Value::Boolean(value) => self.set(Datum::Boolean(*value)),
            Value::SmallInt(value) => self.set(Datum::Int16(*value)),
            Value::Integer(value) | Value::Date(value) => self.set(Datum::Int32(*value)),
            Value::BigInt(value)
            | Value::Time(value)
            | Value::Timestamp(value)
            | Value::TimestampTz(value) => self.set(Datum::Int64(*value)),
            Value::Oid(value) => self.set(Datum::UInt32(*value)),
            Value::Real(value) => self.set(Datum::Float32(*value)),
            Value::Double(value) => self.set(Datum::Float64(*value)),
            Value::Number(value) => self.set(Datum::Numeric(*value)),
            Value::Numeric { unscaled, scale } => {
                self.set(Datum::Numeric(Numeric::from_decimal(*unscaled, *scale)));
            }
            Value::Interval(value) => self.set(Datum::Interval(*value)),
            Value::Uuid(value) => self.set(Datum::Uuid(*value)),
            Value::Text(value) => self.set(Datum::Text(value)),
            Value::Bytea(value) => self.set(Datum::Bytes(value)),
            Value::Array(array) => {
                let element = ty.element().expect("arrays have elements");
                let mut builder = Builder::new(element_representation(element));
                let mut slot = Slot::new();
                for value in array.elements() {
                    slot.set_value(value, element);
                    builder.push(slot.get());
                }
                self.set_list(Arc::new(builder.finish()), shape(array));
            }
        }
    }
}

/// How elements of arrays of a type lie: numerics as in plain `numeric`.
pub fn element_representation(element: Type) -> Representation {
    match element.representation() {
        Some(Representation::Decimal { .. }) => Representation::Numeric,
        Some(representation) => representation,
        None => panic!("{element} is no type of elements"),
    }
}

fn shape(array: &ArrayValue) -> Option<Shape> {
    match array.dimensions() {
        [] | [firn_base::array::Dimension { lower: 1, .. }] => None,
        dimensions => Some(dimensions.into()),
    }
}
