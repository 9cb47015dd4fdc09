//! Order, equality and hash of values by their representation, as in indexes, joins and sorts.
//!
//! [`Value::compare`] orders values without their type. That is not sufficient for padded text, in which
//! trailing blanks are ignored, nor for arrays of it.

use crate::operators::compare_blank_padded;
use crate::representation::Representation;
use crate::value::Value;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

impl Value {
    /// The order of two values of a representation; NULL is larger than everything else. Panics on values of another one.
    pub fn compare_as(&self, other: &Value, representation: Representation) -> Ordering {
        match (self, other, representation) {
            (Value::Null, _, _) | (_, Value::Null, _) => self.is_null().cmp(&other.is_null()),
            (Value::Text(left), Value::Text(right), Representation::PaddedText) => {
                compare_blank_padded(left, right)
            }
            (Value::Array(left), Value::Array(right), Representation::List(element)) => {
                left.compare(right, |left, right| left.compare_as(right, *element))
            }
            _ => self.compare(other).expect("neither is NULL"),
        }
    }

    /// Hashes a value such that values of a representation that are equal by [`Value::compare_as`] have one hash.
    pub fn hash_as<H: Hasher>(&self, representation: Representation, state: &mut H) {
        match self {
            Value::Null => 0u8.hash(state),
            Value::Boolean(value) => value.hash(state),
            Value::SmallInt(value) => value.hash(state),
            Value::Integer(value) | Value::Date(value) => value.hash(state),
            Value::BigInt(value)
            | Value::Time(value)
            | Value::Timestamp(value)
            | Value::TimestampTz(value) => value.hash(state),
            Value::Real(value) => hash_float(f64::from(*value), state),
            Value::Double(value) => hash_float(*value, state),
            Value::Numeric { unscaled, scale } => {
                crate::numeric::Numeric::from_decimal(*unscaled, *scale).hash(state);
            }
            Value::Number(value) => value.hash(state),
            Value::Oid(value) => value.hash(state),
            Value::Text(value) if representation == Representation::PaddedText => {
                value.trim_end_matches(' ').hash(state);
            }
            Value::Text(value) => value.hash(state),
            Value::Bytea(value) => value.hash(state),
            Value::Interval(value) => value.comparable().hash(state),
            Value::Uuid(value) => value.hash(state),
            Value::Array(array) => {
                let element = match representation {
                    Representation::List(element) => *element,
                    _ => representation,
                };
                array.elements().len().hash(state);
                for value in array.elements() {
                    value.hash_as(element, state);
                }
            }
        }
    }
}

/// Zeros of both signs are equal, and so are all NaNs.
fn hash_float<H: Hasher>(value: f64, state: &mut H) {
    let value = if value == 0.0 { 0.0 } else { crate::operators::one_nan(value) };
    value.to_bits().hash(state);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::ArrayValue;
    use crate::numeric::Numeric;
    use crate::value::Interval;
    use std::hash::DefaultHasher;

    #[test]
    fn equal_values_have_one_hash() {
        let number = |text: &str| Value::Number(Numeric::parse(text).expect("it is a number"));
        let text = |text: &str| Value::Text(text.to_owned());
        let list = |value: &Value| Value::Array(ArrayValue::from(vec![value.clone()]));
        for (left, right, representation) in [
            (number("1.0"), number("1.00"), Representation::Numeric),
            (number("0.0"), number("-0"), Representation::Numeric),
            (Value::Numeric { unscaled: 10, scale: 1 }, number("1"), Representation::Numeric),
            (Value::Double(0.0), Value::Double(-0.0), Representation::Float64),
            (Value::Double(f64::NAN), Value::Double(-f64::NAN), Representation::Float64),
            (text("a  "), text("a"), Representation::PaddedText),
            (
                Value::Interval(Interval { months: 1, days: 0, nanoseconds: 0 }),
                Value::Interval(Interval { months: 0, days: 30, nanoseconds: 0 }),
                Representation::Interval,
            ),
        ] {
            let hash = |value: &Value, representation| {
                let mut hasher = DefaultHasher::new();
                value.hash_as(representation, &mut hasher);
                hasher.finish()
            };
            let lists = (list(&left), list(&right), representation.list());
            for (left, right, representation) in [(left, right, representation), lists] {
                assert_eq!(left.compare_as(&right, representation), Ordering::Equal, "{left:?} {right:?}");
                assert_eq!(hash(&left, representation), hash(&right, representation), "{left:?} {right:?}");
            }
        }
        assert_eq!(text("a ").compare_as(&text("a"), Representation::Text), Ordering::Greater);
        assert_eq!(Value::Null.compare_as(&text("a"), Representation::Text), Ordering::Greater);
    }
}
