//! Conversion of values between types: assignment to columns and explicit casts, with PostgreSQL's rules.
//!
//! A quoted literal has no type yet in SQL: it is read with [`crate::text::parse`], not assigned.

use crate::array::ArrayValue;
use crate::data_type::{Type, TypeId};
use crate::datetime::{self, MICROS_PER_DAY};
use crate::error::{Error, Result, SqlState};
use crate::numeric::Numeric;
use crate::representation::Representation;
use crate::text_style::TextStyle;
use crate::types::SqlType;
use crate::value::{Interval, Value};
use crate::{numeric, text};

impl Value {
    /// The type of the value itself; `None` for NULL, which has any type, for arrays, and for values whose
    /// type is not in [`SqlType`].
    pub fn natural_type(&self) -> Option<SqlType> {
        Some(match self {
            Value::Null | Value::Array(_) | Value::Number(_) | Value::Oid(_) => return None,
            Value::Boolean(_) => SqlType::Boolean,
            Value::SmallInt(_) => SqlType::SmallInt,
            Value::Integer(_) => SqlType::Integer,
            Value::BigInt(_) => SqlType::BigInt,
            Value::Real(_) => SqlType::Real,
            Value::Double(_) => SqlType::Double,
            Value::Numeric { scale, .. } => {
                SqlType::Numeric { precision: numeric::MAX_PRECISION, scale: *scale }
            }
            Value::Text(_) => SqlType::Text,
            Value::Bytea(_) => SqlType::Bytea,
            Value::Date(_) => SqlType::Date,
            Value::Time(_) => SqlType::Time,
            Value::Timestamp(_) => SqlType::Timestamp,
            Value::TimestampTz(_) => SqlType::TimestampTz,
            Value::Interval(_) => SqlType::Interval,
            Value::Uuid(_) => SqlType::Uuid,
        })
    }
}

/// The context of a conversion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    /// Assignment to a column.
    Assignment,
    /// An explicit CAST.
    Explicit,
}

/// The value as a column of type `to` stores it: rescaled, padded, checked. 42804 if PostgreSQL has
/// no assignment cast between the types.
pub fn assign(value: Value, to: SqlType, style: &TextStyle) -> Result<Value> {
    convert(value, to, style, Context::Assignment)
}

/// The result of CAST: as [`assign`], but strings are truncated without an error, and strings are read as any
/// type. 42846 if there is no cast.
pub fn cast(value: Value, to: SqlType, style: &TextStyle) -> Result<Value> {
    convert(value, to, style, Context::Explicit)
}

/// Whether values of type `from` may be assigned to columns of type `to`.
pub fn can_assign(from: SqlType, to: SqlType) -> bool {
    use SqlType::*;
    if to.is_string() || from.oid() == to.oid() {
        return true;
    }
    match to {
        SmallInt | Integer | BigInt | Real | Double | Numeric { .. } => {
            matches!(from, SmallInt | Integer | BigInt | Real | Double | Numeric { .. })
        }
        Date => matches!(from, Timestamp | TimestampTz),
        Timestamp | TimestampTz => matches!(from, Date | Timestamp | TimestampTz),
        Time => matches!(from, Timestamp | TimestampTz | Interval),
        Interval => matches!(from, Time),
        _ => false,
    }
}

/// Whether CAST can make `to` from `from`.
pub fn can_cast(from: SqlType, to: SqlType) -> bool {
    from.is_string()
        || can_assign(from, to)
        || matches!((from, to), (SqlType::Boolean, SqlType::Integer) | (SqlType::Integer, SqlType::Boolean))
}

/// Whether a value is of type `ty` unchanged, as far as its kind decides it: strings and numbers of limited
/// size may have to be truncated or padded.
#[inline]
pub fn is_of(value: &Value, ty: Type) -> bool {
    match (value, ty.id) {
        // The usual ones need no look at the table of types.
        (Value::Integer(_), TypeId::INT4) | (Value::BigInt(_), TypeId::INT8) => true,
        (Value::Text(_), TypeId::TEXT | TypeId::VARCHAR | TypeId::BPCHAR) => ty.length().is_none(),
        _ => is_represented_as(value, ty),
    }
}

fn is_represented_as(value: &Value, ty: Type) -> bool {
    match (value, ty.representation()) {
        (Value::Null, _) => true,
        (Value::Boolean(_), Some(Representation::Boolean))
        | (Value::SmallInt(_), Some(Representation::Int16))
        | (Value::Integer(_), Some(Representation::Int32))
        | (Value::BigInt(_), Some(Representation::Int64))
        | (Value::Oid(_), Some(Representation::Oid))
        | (Value::Real(_), Some(Representation::Float32))
        | (Value::Double(_), Some(Representation::Float64))
        | (Value::Bytea(_), Some(Representation::Bytes))
        | (Value::Date(_), Some(Representation::Date))
        | (Value::Time(_), Some(Representation::Time))
        | (Value::Timestamp(_), Some(Representation::Timestamp))
        | (Value::TimestampTz(_), Some(Representation::TimestampTz))
        | (Value::Interval(_), Some(Representation::Interval))
        | (Value::Uuid(_), Some(Representation::Uuid)) => true,
        (Value::Numeric { .. } | Value::Number(_), Some(Representation::Numeric)) => ty.modifier < 0,
        (Value::Array(array), Some(Representation::List(_))) => {
            let element = ty.element().expect("a list has elements");
            array.elements().iter().all(|value| is_of(value, element))
        }
        _ => false,
    }
}

/// The value of a parameter as a statement receives it: assigned, element by element if it is an array. A
/// numeric keeps its scale unless the type has one. 42804 if PostgreSQL has no assignment cast between the
/// types.
pub fn assign_parameter(value: Value, to: Type, style: &TextStyle) -> Result<Value> {
    match (value, to.representation()) {
        (value, _) if is_of(&value, to) => Ok(value),
        (Value::Array(array), Some(Representation::List(_))) => {
            let element = to.element().expect("a list has elements");
            let dimensions = array.dimensions().to_vec();
            let elements = array.into_elements().into_iter();
            let elements =
                elements.map(|value| assign_parameter(value, element, style)).collect::<Result<_>>()?;
            Ok(Value::Array(ArrayValue::new(dimensions, elements)))
        }
        (value, Some(Representation::Numeric)) => {
            let number = any_numeric(&value).ok_or_else(|| not_assignable(&type_of(&value), &to))??;
            Ok(Value::Number(match to.precision_and_scale() {
                Some((precision, scale)) => number.fit(precision, scale)?,
                None => number,
            }))
        }
        (value, Some(Representation::Oid)) => match value {
            Value::SmallInt(_) | Value::Integer(_) | Value::BigInt(_) => {
                let number = as_numeric(&value).expect("the value is an integer").0;
                u32::try_from(number).map(Value::Oid).map_err(|_| {
                    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("OID out of range: {number}"))
                })
            }
            value => Err(not_assignable(&type_of(&value), &to)),
        },
        (value, Some(Representation::Text | Representation::PaddedText)) => {
            match assign(value, SqlType::try_from(to).unwrap_or(SqlType::Text), style)? {
                Value::Text(mut text) if to.id == TypeId::NAME => {
                    text.truncate(text::fit_name(&text).len());
                    Ok(Value::Text(text))
                }
                value => Ok(value),
            }
        }
        (value, _) => match SqlType::try_from(to) {
            Ok(single) => assign(value, single, style),
            Err(_) => Err(not_assignable(&type_of(&value), &to)),
        },
    }
}

/// A number with its own scale; `None` for other values.
fn any_numeric(value: &Value) -> Option<Result<Numeric>> {
    Some(match *value {
        Value::Number(number) => Ok(number),
        Value::Real(value) => Numeric::from_f32(value),
        Value::Double(value) => Numeric::from_f64(value),
        ref value => {
            let (unscaled, scale) = as_numeric(value)?;
            Ok(Numeric::from_decimal(unscaled, scale))
        }
    })
}

/// The type of a value in error messages.
fn type_of(value: &Value) -> String {
    match value {
        Value::Array(_) => "array".to_owned(),
        Value::Oid(_) => "oid".to_owned(),
        Value::Number(_) => "numeric".to_owned(),
        value => value.natural_type().map_or_else(String::new, name),
    }
}

#[cold]
fn not_assignable(from: &str, to: &dyn std::fmt::Display) -> Error {
    Error::new(SqlState::DATATYPE_MISMATCH, format!("a value of type {from} cannot be assigned to type {to}"))
        .with_hint("You will need to rewrite or cast the expression.")
}

fn convert(value: Value, to: SqlType, style: &TextStyle, context: Context) -> Result<Value> {
    let value = match value {
        Value::Null => return Ok(Value::Null),
        Value::Oid(oid) => Value::BigInt(oid.into()),
        value => value,
    };
    let from = match value {
        Value::Number(_) => SqlType::NUMERIC,
        ref value => value.natural_type().ok_or_else(|| not_assignable(&type_of(value), &to))?,
    };
    if context == Context::Assignment && !can_assign(from, to) {
        return Err(not_assignable(&name(from), &to));
    }
    Ok(match (value, to) {
        (Value::Text(value), ty) if ty.is_string() => Value::Text(fit(value, ty, context)?),
        (Value::Text(value), ty) => text::parse(&value, ty, style)?,
        (value, ty) if ty.is_string() => {
            let mut written = String::new();
            match value {
                // Unlike output, the cast writes booleans as words.
                Value::Boolean(value) => written.push_str(if value { "true" } else { "false" }),
                value => text::write(&value, from, style, &mut written),
            }
            Value::Text(fit(written, ty, context)?)
        }
        (Value::Boolean(value), SqlType::Integer) => Value::Integer(i32::from(value)),
        (Value::Integer(value), SqlType::Boolean) => Value::Boolean(value != 0),
        (
            value @ (Value::SmallInt(_)
            | Value::Integer(_)
            | Value::BigInt(_)
            | Value::Real(_)
            | Value::Double(_)
            | Value::Numeric { .. }
            | Value::Number(_)),
            ty,
        ) if can_assign(from, ty) => number(&value, ty)?,
        (Value::Date(days), SqlType::Timestamp) => Value::Timestamp(datetime::date_to_timestamp(days)?),
        (Value::Date(days), SqlType::TimestampTz) => {
            Value::TimestampTz(datetime::to_utc(datetime::date_to_timestamp(days)?, &style.zone)?)
        }
        (Value::Timestamp(local), SqlType::Date) => Value::Date(datetime::day_of(local)),
        (Value::Timestamp(local), SqlType::Time) => datetime::time_of(local).map_or(Value::Null, Value::Time),
        (Value::Timestamp(local), SqlType::TimestampTz) => {
            Value::TimestampTz(datetime::to_utc(local, &style.zone)?)
        }
        (Value::TimestampTz(utc), SqlType::Timestamp) => {
            Value::Timestamp(datetime::to_local(utc, &style.zone)?)
        }
        (Value::TimestampTz(utc), SqlType::Date) => {
            Value::Date(datetime::day_of(datetime::to_local(utc, &style.zone)?))
        }
        (Value::TimestampTz(utc), SqlType::Time) => {
            datetime::time_of(datetime::to_local(utc, &style.zone)?).map_or(Value::Null, Value::Time)
        }
        (Value::Time(micros), SqlType::Interval) => Value::Interval(Interval::from_parts(0, 0, micros)?),
        (Value::Interval(interval), SqlType::Time) => {
            Value::Time(interval.microseconds().rem_euclid(MICROS_PER_DAY))
        }
        (value, ty) if from.oid() == ty.oid() => value,
        (_, ty) => {
            return Err(Error::new(
                SqlState::CANNOT_COERCE,
                format!("cannot cast type {} to {}", name(from), name(ty)),
            ));
        }
    })
}

/// The type in error messages: numbers without the scale of the value.
fn name(ty: SqlType) -> String {
    match ty {
        SqlType::Numeric { .. } => "numeric".to_owned(),
        ty => ty.to_string(),
    }
}

/// A string as a value of a column of type `ty`.
fn fit(value: String, ty: SqlType, context: Context) -> Result<String> {
    Ok(match ty {
        SqlType::Varchar(Some(length)) => match text::end_of(&value, length) {
            None => value,
            Some(end) if context == Context::Explicit => value[..end].to_owned(),
            Some(_) => text::fit_varchar(&value, length)?.to_owned(),
        },
        SqlType::Char(length) => match text::end_of(&value, length) {
            Some(end) if context == Context::Explicit => value[..end].to_owned(),
            _ => text::fit_char(&value, length)?,
        },
        _ => value,
    })
}

#[cold]
fn out_of_range(ty: SqlType) -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{ty} out of range"))
}

/// A number as another type of number.
fn number(value: &Value, to: SqlType) -> Result<Value> {
    let integer = || -> Result<i64> {
        match *value {
            Value::SmallInt(value) => Ok(i64::from(value)),
            Value::Integer(value) => Ok(i64::from(value)),
            Value::BigInt(value) => Ok(value),
            Value::Numeric { unscaled, scale } => numeric::rescale(unscaled, scale, 0)
                .and_then(|value| i64::try_from(value).ok())
                .ok_or_else(|| out_of_range(to)),
            Value::Number(value) => value
                .rounded_at(0)
                .and_then(|value| i64::try_from(value).ok())
                .ok_or_else(|| out_of_range(to)),
            Value::Real(value) => whole(f64::from(value), to),
            Value::Double(value) => whole(value, to),
            _ => unreachable!("the value is a number"),
        }
    };
    Ok(match to {
        SqlType::SmallInt => Value::SmallInt(integer()?.try_into().map_err(|_| out_of_range(to))?),
        SqlType::Integer => Value::Integer(integer()?.try_into().map_err(|_| out_of_range(to))?),
        SqlType::BigInt => Value::BigInt(integer()?),
        SqlType::Real => match *value {
            Value::Real(value) => Value::Real(value),
            _ => {
                let wide = as_f64(value).expect("the value is a number");
                let narrow = wide as f32;
                if narrow.is_infinite() && wide.is_finite() {
                    return Err(Error::new(
                        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                        "value out of range: overflow",
                    ));
                }
                if narrow == 0.0 && wide != 0.0 {
                    return Err(Error::new(
                        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                        "value out of range: underflow",
                    ));
                }
                Value::Real(narrow)
            }
        },
        SqlType::Double => Value::Double(as_f64(value).expect("the value is a number")),
        SqlType::Numeric { precision, scale } if matches!(value, Value::Number(_)) => {
            let fitting =
                any_numeric(value).expect("the value is a number")?.fit(precision.into(), scale.into())?;
            let unscaled = fitting.exactly_at(scale.into()).ok_or_else(|| out_of_range(to))?;
            Value::Numeric { unscaled, scale }
        }
        SqlType::Numeric { precision, scale } => {
            let (unscaled, from) = match *value {
                Value::Real(value) => numeric::from_f64(f64::from(value), 6)?,
                Value::Double(value) => numeric::from_f64(value, 15)?,
                ref value => as_numeric(value).expect("the value is a number"),
            };
            Value::Numeric { unscaled: numeric::fit(unscaled, from, precision, scale)?, scale }
        }
        _ => unreachable!("only numbers are assigned from numbers"),
    })
}

/// Rounds to the nearest integer, halves to even, as PostgreSQL's casts from floats do.
fn whole(value: f64, to: SqlType) -> Result<i64> {
    let rounded = value.round_ties_even();
    // Both limits are exact doubles.
    match rounded >= i64::MIN as f64 && rounded < -(i64::MIN as f64) {
        true => Ok(rounded as i64),
        false => Err(out_of_range(to)),
    }
}

/// Any number as a double.
pub(crate) fn as_f64(value: &Value) -> Option<f64> {
    Some(match *value {
        Value::SmallInt(value) => f64::from(value),
        Value::Integer(value) => f64::from(value),
        Value::BigInt(value) => value as f64,
        Value::Real(value) => f64::from(value),
        Value::Double(value) => value,
        Value::Numeric { unscaled, scale } => numeric::to_f64((unscaled, scale)),
        Value::Number(value) => value.to_f64(),
        _ => return None,
    })
}

/// An integer or numeric with its scale.
pub(crate) fn as_numeric(value: &Value) -> Option<(i128, u8)> {
    Some(match *value {
        Value::SmallInt(value) => (i128::from(value), 0),
        Value::Integer(value) => (i128::from(value), 0),
        Value::BigInt(value) => (i128::from(value), 0),
        Value::Numeric { unscaled, scale } => (unscaled, scale),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_zone::TimeZoneSetting;

    fn outcome(result: Result<Value>, ty: SqlType) -> String {
        let mut out = String::new();
        match result {
            Ok(value) => {
                // The result of a coercion must be storable.
                assert_eq!(value.as_cell(ty).to_value(ty), value);
                text::write(&value, ty, &TextStyle::DEFAULT, &mut out);
            }
            Err(error) => out = format!("{} {}", error.state(), error.message()),
        }
        out
    }

    #[test]
    fn assignments_convert_check_and_refuse_like_postgres() {
        let money = SqlType::Numeric { precision: 5, scale: 2 };
        let text = |text: &str| Value::Text(text.to_owned());
        let cases = [
            (Value::Integer(7), SqlType::SmallInt, "7"),
            (Value::Integer(70_000), SqlType::SmallInt, "22003 smallint out of range"),
            (Value::BigInt(1 << 40), SqlType::Integer, "22003 integer out of range"),
            (Value::Double(2.5), SqlType::Integer, "2"),
            (Value::Double(f64::NAN), SqlType::BigInt, "22003 bigint out of range"),
            (Value::Double(9.3e18), SqlType::BigInt, "22003 bigint out of range"),
            (Value::Numeric { unscaled: 25, scale: 1 }, SqlType::Integer, "3"),
            (Value::Numeric { unscaled: 12345, scale: 3 }, money, "12.35"),
            (Value::Integer(1000), money, "22003 numeric field overflow"),
            (Value::Double(0.1), SqlType::NUMERIC, "0.1"),
            (Value::Double(1e40), SqlType::Real, "22003 value out of range: overflow"),
            (Value::Integer(5), SqlType::Varchar(Some(3)), "5"),
            (Value::Boolean(true), SqlType::Text, "true"),
            (text("ab"), SqlType::Char(4), "ab  "),
            (text("abc  "), SqlType::Varchar(Some(3)), "abc"),
            (text("abcd"), SqlType::Varchar(Some(3)), "22001 value too long for type character varying(3)"),
            (text("5"), SqlType::Integer, "42804 a value of type text cannot be assigned to type integer"),
            (Value::Date(1), SqlType::Timestamp, "1970-01-02 00:00:00"),
            (Value::Timestamp(-1), SqlType::Date, "1969-12-31"),
            (Value::Null, SqlType::Uuid, ""),
        ];
        for (value, ty, expected) in cases {
            let shown = format!("{value:?} as {ty}");
            assert_eq!(outcome(assign(value, ty, &TextStyle::DEFAULT), ty), expected, "{shown}");
        }
    }

    #[test]
    fn casts_cut_strings_and_read_them() {
        let text = |text: &str| Value::Text(text.to_owned());
        let cases = [
            (text("abcd"), SqlType::Varchar(Some(3)), "abc"),
            (text("abcd"), SqlType::Char(2), "ab"),
            (text(" 12 "), SqlType::Integer, "12"),
            (Value::Integer(2), SqlType::Boolean, "t"),
            (Value::Boolean(true), SqlType::Integer, "1"),
            (Value::BigInt(1), SqlType::Boolean, "42846 cannot cast type bigint to boolean"),
            (Value::Date(1), SqlType::Integer, "42846 cannot cast type date to integer"),
        ];
        for (value, ty, expected) in cases {
            let shown = format!("{value:?} as {ty}");
            assert_eq!(outcome(cast(value, ty, &TextStyle::DEFAULT), ty), expected, "{shown}");
        }
    }

    #[test]
    fn timestamps_convert_by_the_sessions_zone() {
        let berlin = TextStyle::in_zone(TimeZoneSetting::parse("Europe/Berlin").unwrap());
        assert_eq!(
            assign(Value::Date(0), SqlType::TimestampTz, &berlin).unwrap(),
            Value::TimestampTz(-3_600_000_000)
        );
        assert_eq!(
            assign(Value::TimestampTz(82_800_000_000), SqlType::Date, &berlin).unwrap(),
            Value::Date(1)
        );
    }
}
