//! Rust's values into statements and out of their rows: [`Parameters`], [`FromValue`], [`FromRow`].

use firn_base::{Error, Interval, Numeric, Result, SqlState, Value};
use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The values of `$1`, `$2`, … of a statement: a tuple of Rust values, a slice or an array of [`Value`], `()` or `&[]`
/// for none.
///
/// Everything that converts [into a `Value`](Value#trait-implementations) can be in a tuple; `None` is NULL. The statement
/// converts a value to the type of its parameter as in an assignment to a column. Errors: 42804 if there is no such
/// conversion, 22003 if a number is out of range. A string is read as a literal of that type would be.
///
/// ```
/// # fn main() -> firn_session::Result<()> {
/// # let mut connection = firn_session::Database::memory()?.connect();
/// connection.execute("CREATE TABLE items (id bigint, name text, price numeric(10,2), tags text[])")?;
/// let insert = connection.prepare("INSERT INTO items VALUES ($1, $2, $3, $4)")?;
/// connection.execute_statement(&insert, (1, "pencil", 1.50, vec!["red", "wood"]))?;
/// connection.execute_statement(&insert, (2, None::<&str>, None::<f64>, Vec::<&str>::new()))?;
/// let day: Option<String> = connection.query_row_as("SELECT ($1::date + 1)::text", ("2024-02-28",))?;
/// assert_eq!(day.as_deref(), Some("2024-02-29"));
/// # Ok(())
/// # }
/// ```
pub trait Parameters {
    /// The values in their order.
    fn into_values<'v>(self) -> Cow<'v, [Value]>
    where
        Self: 'v;
}

impl Parameters for &[Value] {
    fn into_values<'v>(self) -> Cow<'v, [Value]>
    where
        Self: 'v,
    {
        Cow::Borrowed(self)
    }
}

impl<const N: usize> Parameters for &[Value; N] {
    fn into_values<'v>(self) -> Cow<'v, [Value]>
    where
        Self: 'v,
    {
        Cow::Borrowed(self)
    }
}

impl Parameters for &Vec<Value> {
    fn into_values<'v>(self) -> Cow<'v, [Value]>
    where
        Self: 'v,
    {
        Cow::Borrowed(self)
    }
}

impl Parameters for Vec<Value> {
    fn into_values<'v>(self) -> Cow<'v, [Value]>
    where
        Self: 'v,
    {
        Cow::Owned(self)
    }
}

impl<const N: usize> Parameters for [Value; N] {
    fn into_values<'v>(self) -> Cow<'v, [Value]>
    where
        Self: 'v,
    {
        Cow::Owned(self.into())
    }
}

impl Parameters for () {
    fn into_values<'v>(self) -> Cow<'v, [Value]>
    where
        Self: 'v,
    {
        Cow::Borrowed(&[])
    }
}

/// Reads a value of a row as a Rust type.
///
/// | Rust | SQL |
/// |---|---|
/// | `bool` | boolean |
/// | `i16`, `i32`, `i64`, `u16`, `u32`, `u64` | smallint, integer, bigint, oid, whole numbers of type numeric; 22003 if out of range |
/// | `f32`, `f64` | real, double precision, integers, numeric: the nearest |
/// | `String` | text, varchar, char, and all types whose values are read as text |
/// | `Vec<u8>` | bytea |
/// | [`Numeric`] | numeric and integers |
/// | [`Interval`], `[u8; 16]` | interval, uuid |
/// | [`SystemTime`] | timestamptz |
/// | `Vec<T>` | an array of one dimension |
/// | `Option<T>` | the same, and NULL as `None` |
/// | [`Value`] | everything |
///
/// Other pairs are 42804, and NULL without `Option` is 22004.
pub trait FromValue: Sized {
    /// Converts the value.
    fn from_value(value: Value) -> Result<Self>;
}

/// Reads a row as a Rust type: one [`FromValue`] for a row of one column, a tuple of up to twelve for a row of as many.
///
/// ```
/// use firn_session::{Database, FromRow, Result, Value};
///
/// struct Item { id: i64, name: Option<String> }
///
/// impl FromRow for Item {
///     const COLUMNS: usize = 2;
///
///     fn from_row(row: Vec<Value>) -> Result<Item> {
///         let (id, name) = FromRow::from_row(row)?;
///         Ok(Item { id, name })
///     }
/// }
///
/// # fn main() -> Result<()> {
/// # let mut connection = Database::memory()?.connect();
/// let items: Vec<Item> = connection.query_as("VALUES (1, 'pencil'), (2, NULL) ORDER BY 1", ())?;
/// assert_eq!((items[0].id, items[0].name.as_deref()), (1, Some("pencil")));
/// assert_eq!((items[1].id, items[1].name.as_deref()), (2, None));
/// # Ok(())
/// # }
/// ```
pub trait FromRow: Sized {
    /// How many columns a row has. A result with another number of columns is refused (42804).
    const COLUMNS: usize;

    /// Converts the row, which has as many values.
    fn from_row(row: Vec<Value>) -> Result<Self>;
}

impl<T: FromValue> FromRow for T {
    const COLUMNS: usize = 1;

    fn from_row(row: Vec<Value>) -> Result<T> {
        let [value] = <[Value; 1]>::try_from(row).expect("the number of columns was checked");
        T::from_value(value)
    }
}

/// Tuples of values, for parameters and for rows.
macro_rules! tuples {
    ($(($($name:ident),*)),* $(,)?) => {$(
        impl<$($name: Into<Value>),*> Parameters for ($($name,)*) {
            fn into_values<'v>(self) -> Cow<'v, [Value]>
            where
                Self: 'v,
            {
                #[expect(non_snake_case, reason = "a value is named as its type")]
                let ($($name,)*) = self;
                Cow::Owned(vec![$($name.into()),*])
            }
        }

        impl<$($name: FromValue),*> FromRow for ($($name,)*) {
            const COLUMNS: usize = [$(stringify!($name)),*].len();

            fn from_row(row: Vec<Value>) -> Result<Self> {
                let mut values = (1..).zip(row);
                Ok(($(column::<$name>(values.next().expect("the number of columns was checked"))?,)*))
            }
        }
    )*};
}

tuples! {
    (A), (A, B), (A, B, C), (A, B, C, D), (A, B, C, D, E), (A, B, C, D, E, F), (A, B, C, D, E, F, G),
    (A, B, C, D, E, F, G, H), (A, B, C, D, E, F, G, H, I), (A, B, C, D, E, F, G, H, I, J),
    (A, B, C, D, E, F, G, H, I, J, K), (A, B, C, D, E, F, G, H, I, J, K, L),
}

/// A value of a row; an error says of which column.
fn column<T: FromValue>((number, value): (usize, Value)) -> Result<T> {
    T::from_value(value).map_err(|error| error.with_detail(format!("It is column {number} of the result.")))
}

/// The columns of a result as a type expects them: 42804 if there are more or fewer.
pub(crate) fn check_columns<T: FromRow>(columns: usize) -> Result<()> {
    match columns == T::COLUMNS {
        true => Ok(()),
        false => Err(Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "the result has {columns} columns, but rows of type {} have {}",
                short_name::<T>(),
                T::COLUMNS
            ),
        )),
    }
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Value> {
        Ok(value)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Option<T>> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> Result<Vec<T>> {
        match value {
            Value::Array(array) => array.into_list()?.into_iter().map(T::from_value).collect(),
            other => Err(mismatch::<Vec<T>>(&other)),
        }
    }
}

/// Types that one kind of value is read as.
macro_rules! exactly {
    ($($type:ty: $variant:ident),* $(,)?) => {$(
        impl FromValue for $type {
            fn from_value(value: Value) -> Result<$type> {
                match value {
                    Value::$variant(value) => Ok(value),
                    other => Err(mismatch::<$type>(&other)),
                }
            }
        }
    )*};
}

exactly! { bool: Boolean, String: Text, Vec<u8>: Bytea, Interval: Interval, [u8; 16]: Uuid }

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl FromValue for $type {
            fn from_value(value: Value) -> Result<$type> {
                let whole = whole(&value).ok_or_else(|| mismatch::<$type>(&value))?;
                <$type>::try_from(whole).map_err(|_| {
                    let message = format!("value \"{whole}\" is out of range for {}", short_name::<$type>());
                    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
                })
            }
        }
    )*};
}

integers! { i16, i32, i64, u16, u32, u64 }

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl FromValue for $type {
            fn from_value(value: Value) -> Result<$type> {
                Ok(match value {
                    Value::Double(value) => value as $type,
                    Value::Real(value) => value as $type,
                    Value::Numeric { unscaled, scale } => {
                        Numeric::from_parts(unscaled, scale.into()).to_f64() as $type
                    }
                    Value::Number(value) => value.to_f64() as $type,
                    other => whole(&other).ok_or_else(|| mismatch::<$type>(&other))? as $type,
                })
            }
        }
    )*};
}

floats! { f32, f64 }

impl FromValue for Numeric {
    fn from_value(value: Value) -> Result<Numeric> {
        Ok(match value {
            Value::Number(value) => value,
            Value::Numeric { unscaled, scale } => Numeric::from_parts(unscaled, scale.into()),
            other => Numeric::from_parts(whole(&other).ok_or_else(|| mismatch::<Numeric>(&other))?, 0),
        })
    }
}

impl FromValue for SystemTime {
    fn from_value(value: Value) -> Result<SystemTime> {
        let Value::TimestampTz(micros) = value else { return Err(mismatch::<SystemTime>(&value)) };
        let distance = Duration::from_micros(micros.unsigned_abs());
        let time = match micros {
            0.. => UNIX_EPOCH.checked_add(distance),
            _ => UNIX_EPOCH.checked_sub(distance),
        };
        time.ok_or_else(|| {
            Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range for SystemTime")
        })
    }
}

/// The value as an integer, whatever its type.
fn whole(value: &Value) -> Option<i128> {
    match *value {
        Value::SmallInt(value) => Some(value.into()),
        Value::Integer(value) => Some(value.into()),
        Value::BigInt(value) => Some(value.into()),
        Value::Oid(value) => Some(value.into()),
        Value::Numeric { unscaled, scale } => Numeric::from_parts(unscaled, scale.into()).exactly_at(0),
        Value::Number(value) => value.exactly_at(0),
        _ => None,
    }
}

/// 42804, or 22004 for NULL.
#[cold]
fn mismatch<T>(value: &Value) -> Error {
    let name = short_name::<T>();
    if value.is_null() {
        return Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, format!("NULL cannot be read as {name}"))
            .with_hint(format!("Read it as Option<{name}>."));
    }
    let kind = match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Oid(_) => "an oid".to_owned(),
        // A whole number would have been read.
        Value::Number(_) | Value::Numeric { .. } => "a value of type numeric".to_owned(),
        value => match value.natural_type() {
            Some(ty) => format!("a value of type {ty}"),
            None => "this value".to_owned(),
        },
    };
    Error::new(SqlState::DATATYPE_MISMATCH, format!("{kind} cannot be read as {name}"))
}

/// The name of a type without the paths of modules.
fn short_name<T>() -> String {
    let name = std::any::type_name::<T>();
    let mut short = String::with_capacity(name.len());
    for part in name.split_inclusive(|it: char| !it.is_alphanumeric() && it != '_' && it != ':') {
        short.push_str(part.rsplit("::").next().expect("there is a last part"));
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::ArrayValue;

    /// The result of reading the value as a `T`: the value, or the SQLSTATE and the message.
    fn read<T: FromValue + std::fmt::Debug>(value: Value) -> String {
        match T::from_value(value) {
            Ok(value) => format!("{value:?}"),
            Err(error) => format!("{} {}", error.state().as_str(), error.message()),
        }
    }

    #[test]
    fn values_are_read_where_nothing_is_lost_and_refused_elsewhere() {
        assert_eq!(read::<i64>(Value::SmallInt(7)), "7");
        assert_eq!(read::<i16>(Value::BigInt(40_000)), "22003 value \"40000\" is out of range for i16");
        assert_eq!(read::<u64>(Value::Integer(-1)), "22003 value \"-1\" is out of range for u64");
        assert_eq!(read::<i32>(Value::Numeric { unscaled: 700, scale: 2 }), "7");
        assert_eq!(
            read::<i32>(Value::Numeric { unscaled: 750, scale: 2 }),
            "42804 a value of type numeric cannot be read as i32"
        );
        assert_eq!(read::<f64>(Value::Numeric { unscaled: 750, scale: 2 }), "7.5");
        assert_eq!(read::<f64>(Value::BigInt(2)), "2.0");
        assert_eq!(read::<bool>(Value::Integer(1)), "42804 a value of type integer cannot be read as bool");
        assert_eq!(read::<String>(Value::Null), "22004 NULL cannot be read as String");
        assert_eq!(read::<Option<String>>(Value::Null), "None");
        let list = Value::Array(ArrayValue::from(vec![Value::Integer(1), Value::Null]));
        assert_eq!(read::<Vec<Option<i32>>>(list.clone()), "[Some(1), None]");
        assert_eq!(read::<Vec<i32>>(list.clone()), "22004 NULL cannot be read as i32");
        assert_eq!(read::<Vec<u8>>(list), "42804 an array cannot be read as Vec<u8>");
        assert_eq!(
            read::<SystemTime>(Value::Date(1)),
            "42804 a value of type date cannot be read as SystemTime"
        );
        let time = UNIX_EPOCH - Duration::from_micros(3);
        assert_eq!(SystemTime::from_value(Value::from(time)).unwrap(), time);
    }
}
