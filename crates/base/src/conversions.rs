//! Conversions of Rust's values to SQL's: `From` for [`Value`].
//!
//! Integers without a corresponding SQL type become the next wider one. `None` is NULL. A vector is an array,
//! but a vector of bytes is a bytea.

use crate::array::ArrayValue;
use crate::numeric::Numeric;
use crate::value::{Interval, Value};
use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

/// `T => Variant`: the variant contains a `T`, or a type to which `T` converts without loss.
macro_rules! from {
    ($($from:ty => $variant:ident),* $(,)?) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Value {
                Value::$variant(value.into())
            }
        }
    )*};
}

from! {
    bool => Boolean,
    i8 => SmallInt,
    u8 => SmallInt,
    i16 => SmallInt,
    u16 => Integer,
    i32 => Integer,
    u32 => BigInt,
    i64 => BigInt,
    f32 => Real,
    f64 => Double,
    String => Text,
    &String => Text,
    &str => Text,
    char => Text,
    Cow<'_, str> => Text,
    Vec<u8> => Bytea,
    &[u8] => Bytea,
    Interval => Interval,
    Numeric => Number,
    ArrayValue => Array,
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Value {
        Value::Bytea(bytes.to_vec())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    /// `None` is NULL.
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl From<SystemTime> for Value {
    /// A timestamptz, truncated to microseconds. Times beyond its range become its first or last value.
    fn from(time: SystemTime) -> Value {
        let micros = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => {
                // Towards the past, as a later time is truncated.
                let micros = before.duration().as_nanos().div_ceil(1000);
                i64::try_from(micros).map_or(i64::MIN, |micros| -micros)
            }
        };
        Value::TimestampTz(micros)
    }
}

/// Vectors of these, and of `Option`s of these, as arrays. `Vec<u8>` is not among them.
macro_rules! lists {
    ($($element:ty),* $(,)?) => {$(
        impl From<Vec<$element>> for Value {
            fn from(elements: Vec<$element>) -> Value {
                Value::Array(elements.into_iter().map(Value::from).collect())
            }
        }

        impl From<Vec<Option<$element>>> for Value {
            fn from(elements: Vec<Option<$element>>) -> Value {
                Value::Array(elements.into_iter().map(Value::from).collect())
            }
        }
    )*};
}

lists! { bool, i16, i32, i64, f32, f64, String, &str, Vec<u8>, Interval, Numeric, SystemTime }

impl From<Vec<Value>> for Value {
    /// An array of one dimension.
    fn from(elements: Vec<Value>) -> Value {
        Value::Array(elements.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rust_values_become_the_sql_values_that_hold_them() {
        assert_eq!(Value::from(-1i8), Value::SmallInt(-1));
        assert_eq!(Value::from(u32::MAX), Value::BigInt(4_294_967_295));
        assert_eq!(Value::from("x"), Value::Text("x".into()));
        assert_eq!(Value::from(b"x"), Value::Bytea(vec![b'x']));
        assert_eq!(Value::from(Some(7)), Value::Integer(7));
        assert_eq!(Value::from(None::<i32>), Value::Null);
        let list = ArrayValue::from(vec![Value::Integer(1), Value::Null]);
        assert_eq!(Value::from(vec![Some(1), None]), Value::Array(list));
        assert_eq!(Value::from(Vec::<&str>::new()), Value::Array(ArrayValue::default()));
    }

    #[test]
    fn times_are_cut_towards_the_past() {
        let nanos = Duration::from_nanos(1500);
        assert_eq!(Value::from(UNIX_EPOCH + nanos), Value::TimestampTz(1));
        assert_eq!(Value::from(UNIX_EPOCH - nanos), Value::TimestampTz(-2));
    }
}
