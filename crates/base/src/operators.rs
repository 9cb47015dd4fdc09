//! Comparison and arithmetic on values, with PostgreSQL's result types and errors. Types of fixed width need
//! no allocation.
//!
//! Operands of different numeric types are converted to the wider one: smallint, integer, bigint, numeric,
//! double (real only with real). The result is NULL if an operand is. Dates and timestamps are compared with
//! values of their own type; the binder casts first if types differ.

use crate::coerce::{as_f64, as_numeric};
use crate::datetime::{
    self, MICROS_PER_DAY, check_date, check_timestamp, civil_from_days, date_to_timestamp, days_from_civil,
    days_in_month, is_finite, is_finite_date,
};
use crate::error::{Error, Result, SqlState};
use crate::numeric::{self, Numeric};
use crate::time_zone::TimeZoneSetting;
use crate::types::SqlType;
use crate::value::{Interval, Value};
use std::cmp::Ordering;

impl Value {
    /// SQL order; `None` if either is NULL. NaN equals itself and is larger than every number. Strings
    /// compare by bytes; for char(n) see [`compare_blank_padded`]. Panics on types that the binder never
    /// combines.
    pub fn compare(&self, other: &Value) -> Option<Ordering> {
        Some(match (self, other) {
            (Value::Null, _) | (_, Value::Null) => return None,
            (Value::Boolean(left), Value::Boolean(right)) => left.cmp(right),
            (Value::Text(left), Value::Text(right)) => left.cmp(right),
            (Value::Bytea(left), Value::Bytea(right)) => left.cmp(right),
            (Value::Date(left), Value::Date(right)) => left.cmp(right),
            (Value::Time(left), Value::Time(right))
            | (Value::Timestamp(left), Value::Timestamp(right))
            | (Value::TimestampTz(left), Value::TimestampTz(right)) => left.cmp(right),
            (Value::Date(days), Value::Timestamp(moment)) => compare_days(*days, *moment),
            (Value::Timestamp(moment), Value::Date(days)) => compare_days(*days, *moment).reverse(),
            (Value::Interval(left), Value::Interval(right)) => left.compare(right),
            (Value::Uuid(left), Value::Uuid(right)) => left.cmp(right),
            (Value::Oid(left), Value::Oid(right)) => left.cmp(right),
            (Value::Array(left), Value::Array(right)) => {
                left.compare(right, |left, right| left.compare(right).expect("neither is NULL"))
            }
            (left, right) => compare_numbers(left, right)
                .unwrap_or_else(|| panic!("{left:?} and {right:?} have no common type")),
        })
    }
}

/// The order of two char(n) values: trailing blanks are ignored.
pub fn compare_blank_padded(left: &str, right: &str) -> Ordering {
    left.trim_end_matches(' ').cmp(right.trim_end_matches(' '))
}

/// The order of two floats: NaN last and equal to itself, -0 equal to 0.
pub fn compare_floats(left: f64, right: f64) -> Ordering {
    match left.partial_cmp(&right) {
        Some(order) => order,
        None => left.is_nan().cmp(&right.is_nan()),
    }
}

fn compare_days(days: i32, moment: i64) -> Ordering {
    (i128::from(days) * i128::from(MICROS_PER_DAY)).cmp(&i128::from(moment))
}

fn compare_numbers(left: &Value, right: &Value) -> Option<Ordering> {
    if let (Some(left), Some(right)) = (as_integer(left), as_integer(right)) {
        return Some(left.cmp(&right));
    }
    if let (Some(left), Some(right)) = (as_numeric(left), as_numeric(right)) {
        return Some(numeric::compare(left, right));
    }
    if let (Some(left), Some(right)) = (as_number(left), as_number(right)) {
        return Some(left.cmp(&right));
    }
    Some(compare_floats(as_f64(left)?, as_f64(right)?))
}

/// An integer, or a numeric of either kind.
fn as_number(value: &Value) -> Option<Numeric> {
    match value {
        Value::Number(value) => Some(*value),
        value => as_numeric(value).map(|(unscaled, scale)| Numeric::from_decimal(unscaled, scale)),
    }
}

fn as_integer(value: &Value) -> Option<i64> {
    match *value {
        Value::SmallInt(value) => Some(i64::from(value)),
        Value::Integer(value) => Some(i64::from(value)),
        Value::BigInt(value) => Some(value),
        _ => None,
    }
}

/// Two numbers converted to one type.
enum Pair {
    SmallInt(i16, i16),
    Integer(i32, i32),
    BigInt(i64, i64),
    Real(f32, f32),
    Double(f64, f64),
    Numeric((i128, u8), (i128, u8)),
    Number(Numeric, Numeric),
}

impl Pair {
    #[inline]
    fn of(left: &Value, right: &Value) -> Option<Pair> {
        Some(match (left, right) {
            (Value::Integer(left), Value::Integer(right)) => Pair::Integer(*left, *right),
            (Value::BigInt(left), Value::BigInt(right)) => Pair::BigInt(*left, *right),
            (Value::SmallInt(left), Value::SmallInt(right)) => Pair::SmallInt(*left, *right),
            (Value::SmallInt(left), Value::Integer(right)) => Pair::Integer(i32::from(*left), *right),
            (Value::Integer(left), Value::SmallInt(right)) => Pair::Integer(*left, i32::from(*right)),
            (Value::Real(left), Value::Real(right)) => Pair::Real(*left, *right),
            (left, right) => {
                if let (Some(left), Some(right)) = (as_integer(left), as_integer(right)) {
                    Pair::BigInt(left, right)
                } else if let (Some(left), Some(right)) = (as_numeric(left), as_numeric(right)) {
                    Pair::Numeric(left, right)
                } else if let (Some(left), Some(right)) = (as_number(left), as_number(right)) {
                    Pair::Number(left, right)
                } else {
                    Pair::Double(as_f64(left)?, as_f64(right)?)
                }
            }
        })
    }
}

#[cold]
fn out_of_range(ty: SqlType) -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{ty} out of range"))
}

#[cold]
fn division_by_zero() -> Error {
    Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

#[cold]
fn no_operator(operator: &str, left: &Value, right: &Value) -> Error {
    let name = |value: &Value| match value.natural_type() {
        Some(SqlType::Numeric { .. }) => "numeric".to_owned(),
        Some(ty) => ty.to_string(),
        None => "unknown".to_owned(),
    };
    Error::new(
        SqlState::UNDEFINED_FUNCTION,
        format!("operator does not exist: {} {operator} {}", name(left), name(right)),
    )
    .with_hint(
        "No operator matches the given name and argument types. You might need to add explicit type casts.",
    )
}

/// A float result, which may be infinite only if an operand was.
fn finite(result: f64, left: f64, right: f64) -> Result<f64> {
    if result.is_infinite() && left.is_finite() && right.is_finite() {
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
    }
    Ok(one_nan(result))
}

/// The float, or the NaN without a sign for any NaN. Processors return one with a sign for `Infinity -
/// Infinity`, and orders of floats by their bits put only the other one last.
pub fn one_nan(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// As [`one_nan`].
pub fn one_nan_real(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value }
}

/// As [`finite`], and zero only if `may_vanish`.
fn product(result: f64, left: f64, right: f64, may_vanish: bool) -> Result<f64> {
    if result == 0.0 && !may_vanish {
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow"));
    }
    finite(result, left, right)
}

fn real(result: f32, left: f32, right: f32, may_vanish: bool) -> Result<Value> {
    product(f64::from(result), f64::from(left), f64::from(right), may_vanish)?;
    Ok(Value::Real(one_nan_real(result)))
}

fn exact((unscaled, scale): (i128, u8)) -> Value {
    Value::Numeric { unscaled, scale }
}

/// `left + right`: numbers, date + integer, timestamp or time + interval, interval + interval, date + time.
pub fn add(left: &Value, right: &Value, zone: &TimeZoneSetting) -> Result<Value> {
    match Pair::of(left, right) {
        Some(Pair::SmallInt(a, b)) => {
            a.checked_add(b).map(Value::SmallInt).ok_or_else(|| out_of_range(SqlType::SmallInt))
        }
        Some(Pair::Integer(a, b)) => {
            a.checked_add(b).map(Value::Integer).ok_or_else(|| out_of_range(SqlType::Integer))
        }
        Some(Pair::BigInt(a, b)) => {
            a.checked_add(b).map(Value::BigInt).ok_or_else(|| out_of_range(SqlType::BigInt))
        }
        Some(Pair::Real(a, b)) => real(a + b, a, b, true),
        Some(Pair::Double(a, b)) => finite(a + b, a, b).map(Value::Double),
        Some(Pair::Numeric(a, b)) => numeric::add(a, b).map(exact),
        Some(Pair::Number(a, b)) => a.checked_add(b).map(Value::Number),
        None => add_time(left, right, zone),
    }
}

/// Sums with a date, a time or an interval.
fn add_time(left: &Value, right: &Value, zone: &TimeZoneSetting) -> Result<Value> {
    Ok(match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Value::Null,
        (Value::Date(days), number @ (Value::Integer(_) | Value::SmallInt(_)))
        | (number @ (Value::Integer(_) | Value::SmallInt(_)), Value::Date(days)) => {
            let number = as_integer(number).expect("the pattern matches integers");
            Value::Date(move_date(*days, number)?)
        }
        (Value::Date(days), Value::Interval(interval)) | (Value::Interval(interval), Value::Date(days)) => {
            Value::Timestamp(shift(date_to_timestamp(*days)?, interval)?)
        }
        (Value::Date(days), Value::Time(time)) | (Value::Time(time), Value::Date(days)) => {
            Value::Timestamp(match date_to_timestamp(*days)? {
                midnight if is_finite(midnight) => check_timestamp(midnight.checked_add(*time))?,
                infinite => infinite,
            })
        }
        (Value::Timestamp(moment), Value::Interval(interval))
        | (Value::Interval(interval), Value::Timestamp(moment)) => {
            Value::Timestamp(shift(*moment, interval)?)
        }
        (Value::TimestampTz(moment), Value::Interval(interval))
        | (Value::Interval(interval), Value::TimestampTz(moment)) => {
            Value::TimestampTz(shift_in_zone(*moment, interval, zone)?)
        }
        (Value::Time(time), Value::Interval(interval)) | (Value::Interval(interval), Value::Time(time)) => {
            Value::Time((time + interval.microseconds() % MICROS_PER_DAY).rem_euclid(MICROS_PER_DAY))
        }
        (Value::Interval(left), Value::Interval(right)) => Value::Interval(left.checked_add(*right)?),
        _ => return Err(no_operator("+", left, right)),
    })
}

/// `left - right`: numbers, dates (in days), timestamps (an interval), and values minus an interval.
pub fn subtract(left: &Value, right: &Value, zone: &TimeZoneSetting) -> Result<Value> {
    match Pair::of(left, right) {
        Some(Pair::SmallInt(a, b)) => {
            a.checked_sub(b).map(Value::SmallInt).ok_or_else(|| out_of_range(SqlType::SmallInt))
        }
        Some(Pair::Integer(a, b)) => {
            a.checked_sub(b).map(Value::Integer).ok_or_else(|| out_of_range(SqlType::Integer))
        }
        Some(Pair::BigInt(a, b)) => {
            a.checked_sub(b).map(Value::BigInt).ok_or_else(|| out_of_range(SqlType::BigInt))
        }
        Some(Pair::Real(a, b)) => real(a - b, a, b, true),
        Some(Pair::Double(a, b)) => finite(a - b, a, b).map(Value::Double),
        Some(Pair::Numeric(a, b)) => numeric::subtract(a, b).map(exact),
        Some(Pair::Number(a, b)) => a.checked_sub(b).map(Value::Number),
        None => subtract_time(left, right, zone),
    }
}

/// Differences with a date, a time or an interval.
fn subtract_time(left: &Value, right: &Value, zone: &TimeZoneSetting) -> Result<Value> {
    Ok(match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Value::Null,
        (Value::Date(days), number @ (Value::Integer(_) | Value::SmallInt(_))) => {
            let number = as_integer(number).expect("the pattern matches integers");
            Value::Date(move_date(*days, -number)?)
        }
        (Value::Date(left), Value::Date(right)) => Value::Integer(days_between(*left, *right)?),
        (Value::Time(left), Value::Time(right)) => Value::Interval(Interval::from_parts(0, 0, left - right)?),
        (Value::Timestamp(left), Value::Timestamp(right))
        | (Value::TimestampTz(left), Value::TimestampTz(right)) => Value::Interval(span(*left, *right)?),
        (_, Value::Interval(interval)) => match left {
            Value::Interval(_)
            | Value::Date(_)
            | Value::Time(_)
            | Value::Timestamp(_)
            | Value::TimestampTz(_) => add_time(left, &Value::Interval(interval.checked_neg()?), zone)?,
            _ => return Err(no_operator("-", left, right)),
        },
        _ => return Err(no_operator("-", left, right)),
    })
}

/// `left * right`: numbers, and intervals by numbers.
pub fn multiply(left: &Value, right: &Value) -> Result<Value> {
    match Pair::of(left, right) {
        Some(Pair::SmallInt(a, b)) => {
            a.checked_mul(b).map(Value::SmallInt).ok_or_else(|| out_of_range(SqlType::SmallInt))
        }
        Some(Pair::Integer(a, b)) => {
            a.checked_mul(b).map(Value::Integer).ok_or_else(|| out_of_range(SqlType::Integer))
        }
        Some(Pair::BigInt(a, b)) => {
            a.checked_mul(b).map(Value::BigInt).ok_or_else(|| out_of_range(SqlType::BigInt))
        }
        Some(Pair::Real(a, b)) => real(a * b, a, b, a == 0.0 || b == 0.0),
        Some(Pair::Double(a, b)) => product(a * b, a, b, a == 0.0 || b == 0.0).map(Value::Double),
        Some(Pair::Numeric(a, b)) => numeric::multiply(a, b).map(exact),
        Some(Pair::Number(a, b)) => a.checked_mul(b).map(Value::Number),
        None => match (left, right) {
            (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
            (Value::Interval(interval), number) | (number, Value::Interval(interval)) => match as_f64(number)
            {
                Some(factor) => interval.checked_mul(factor).map(Value::Interval),
                None => Err(no_operator("*", left, right)),
            },
            _ => Err(no_operator("*", left, right)),
        },
    }
}

/// `left / right`: numbers (whole numbers truncate), and intervals by numbers.
pub fn divide(left: &Value, right: &Value) -> Result<Value> {
    match Pair::of(left, right) {
        Some(Pair::SmallInt(_, 0) | Pair::Integer(_, 0) | Pair::BigInt(_, 0)) => Err(division_by_zero()),
        Some(Pair::SmallInt(a, b)) => {
            a.checked_div(b).map(Value::SmallInt).ok_or_else(|| out_of_range(SqlType::SmallInt))
        }
        Some(Pair::Integer(a, b)) => {
            a.checked_div(b).map(Value::Integer).ok_or_else(|| out_of_range(SqlType::Integer))
        }
        Some(Pair::BigInt(a, b)) => {
            a.checked_div(b).map(Value::BigInt).ok_or_else(|| out_of_range(SqlType::BigInt))
        }
        Some(Pair::Real(a, b)) if b == 0.0 && !a.is_nan() => Err(division_by_zero()),
        Some(Pair::Double(a, b)) if b == 0.0 && !a.is_nan() => Err(division_by_zero()),
        Some(Pair::Real(a, b)) => real(a / b, a, b, a == 0.0 || b.is_infinite()),
        Some(Pair::Double(a, b)) => product(a / b, a, b, a == 0.0 || b.is_infinite()).map(Value::Double),
        Some(Pair::Numeric(a, b)) => numeric::divide(a, b).map(exact),
        Some(Pair::Number(a, b)) => a.checked_div(b).map(Value::Number),
        None => match (left, right) {
            (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
            (Value::Interval(interval), number) => match as_f64(number) {
                Some(divisor) => interval.checked_div(divisor).map(Value::Interval),
                None => Err(no_operator("/", left, right)),
            },
            _ => Err(no_operator("/", left, right)),
        },
    }
}

/// `left % right`, with the sign of the dividend. Floats have no such operator.
pub fn modulo(left: &Value, right: &Value) -> Result<Value> {
    match Pair::of(left, right) {
        Some(Pair::SmallInt(_, 0) | Pair::Integer(_, 0) | Pair::BigInt(_, 0)) => Err(division_by_zero()),
        // The smallest number modulo -1 is 0; the processor would trap.
        Some(Pair::SmallInt(a, b)) => Ok(Value::SmallInt(a.wrapping_rem(b))),
        Some(Pair::Integer(a, b)) => Ok(Value::Integer(a.wrapping_rem(b))),
        Some(Pair::BigInt(a, b)) => Ok(Value::BigInt(a.wrapping_rem(b))),
        Some(Pair::Numeric(a, b)) => numeric::remainder(a, b).map(exact),
        Some(Pair::Number(a, b)) => a.checked_rem(b).map(Value::Number),
        _ if left.is_null() || right.is_null() => Ok(Value::Null),
        _ => Err(no_operator("%", left, right)),
    }
}

/// `-value`.
pub fn negate(value: &Value) -> Result<Value> {
    Ok(match value {
        Value::Null => Value::Null,
        Value::SmallInt(value) => {
            Value::SmallInt(value.checked_neg().ok_or_else(|| out_of_range(SqlType::SmallInt))?)
        }
        Value::Integer(value) => {
            Value::Integer(value.checked_neg().ok_or_else(|| out_of_range(SqlType::Integer))?)
        }
        Value::BigInt(value) => {
            Value::BigInt(value.checked_neg().ok_or_else(|| out_of_range(SqlType::BigInt))?)
        }
        Value::Real(value) => Value::Real(one_nan_real(-value)),
        Value::Double(value) => Value::Double(one_nan(-value)),
        Value::Numeric { unscaled, scale } => Value::Numeric { unscaled: -unscaled, scale: *scale },
        Value::Interval(interval) => Value::Interval(interval.checked_neg()?),
        other => return Err(no_operator("-", &Value::Null, other)),
    })
}

/// A date plus a number of days.
pub fn move_date(days: i32, by: i64) -> Result<i32> {
    if is_finite_date(days) { check_date(i64::from(days) + by) } else { Ok(days) }
}

/// The days from one date to another.
pub fn days_between(left: i32, right: i32) -> Result<i32> {
    match is_finite_date(left) && is_finite_date(right) {
        // Both are in PostgreSQL's range of dates, which is smaller than an i32.
        true => Ok(left - right),
        false => Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite dates")),
    }
}

/// A timestamp plus an interval: months first (the day limited to the month's last), then days, then time.
pub fn shift(moment: i64, interval: &Interval) -> Result<i64> {
    if !is_finite(moment) {
        return Ok(moment);
    }
    let moment = add_months_and_days(moment, interval)?;
    check_timestamp(moment.checked_add(interval.microseconds()))
}

/// A timestamp plus an interval, with months and days in the local time of `zone`.
pub fn shift_in_zone(moment: i64, interval: &Interval, zone: &TimeZoneSetting) -> Result<i64> {
    if !is_finite(moment) {
        return Ok(moment);
    }
    let mut moment = moment;
    // Each step ends at a timestamp, which decides between local times that are skipped or occur twice.
    let months = Interval { months: interval.months, ..Interval::default() };
    let days = Interval { days: interval.days, ..Interval::default() };
    for part in [months, days] {
        if part != Interval::default() {
            let local = datetime::to_local(moment, zone)?;
            moment = datetime::to_utc(add_months_and_days(local, &part)?, zone)?;
        }
    }
    check_timestamp(moment.checked_add(interval.microseconds()))
}

fn add_months_and_days(moment: i64, interval: &Interval) -> Result<i64> {
    if interval.months == 0 && interval.days == 0 {
        return Ok(moment);
    }
    let mut days = moment.div_euclid(MICROS_PER_DAY);
    if interval.months != 0 {
        let (year, month, day) = civil_from_days(days);
        let months = year * 12 + i64::from(month) - 1 + i64::from(interval.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
        days = days_from_civil(year, month, day.min(days_in_month(year, month)));
    }
    days += i64::from(interval.days);
    let midnight = days.checked_mul(MICROS_PER_DAY);
    check_timestamp(midnight.and_then(|midnight| midnight.checked_add(moment.rem_euclid(MICROS_PER_DAY))))
}

/// The difference of two timestamps, in days and time.
pub fn span(left: i64, right: i64) -> Result<Interval> {
    if !is_finite(left) || !is_finite(right) {
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite timestamps"));
    }
    let micros = check_span(left.checked_sub(right))?;
    Interval::from_parts(0, (micros / MICROS_PER_DAY) as i32, micros % MICROS_PER_DAY)
}

fn check_span(micros: Option<i64>) -> Result<i64> {
    micros.ok_or_else(|| Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;
    use crate::text_style::TextStyle;

    /// `operand operator operand`, each written as `text::type`, computed by our operators.
    fn evaluate(left: (&str, SqlType), operator: char, right: (&str, SqlType)) -> String {
        let zone = TimeZoneSetting::parse("Europe/Berlin").unwrap();
        let style = TextStyle::in_zone(zone);
        let read = |(text, ty): (&str, SqlType)| match ty {
            // As a literal: with the scale as written.
            SqlType::NUMERIC => {
                let (unscaled, scale) = numeric::parse(text).unwrap();
                Value::Numeric { unscaled, scale }
            }
            ty => text::parse(text, ty, &style).unwrap(),
        };
        let (left, right) = (read(left), read(right));
        let result = match operator {
            '+' => add(&left, &right, &zone),
            '-' => subtract(&left, &right, &zone),
            '*' => multiply(&left, &right),
            '/' => divide(&left, &right),
            '%' => modulo(&left, &right),
            other => panic!("{other}"),
        };
        match result {
            Ok(value) => {
                let mut out = String::new();
                text::write(&value, value.natural_type().unwrap(), &style, &mut out);
                out
            }
            Err(error) => format!("{} {}", error.state(), error.message()),
        }
    }

    #[test]
    fn arithmetic_gives_what_postgres_gives() {
        use SqlType::*;
        let numeric = SqlType::NUMERIC;
        let cases = [
            (("2147483647", Integer), '+', ("1", Integer), "22003 integer out of range"),
            (("2147483647", Integer), '+', ("1", BigInt), "2147483648"),
            (("32767", SmallInt), '*', ("2", SmallInt), "22003 smallint out of range"),
            (("-7", Integer), '/', ("2", Integer), "-3"),
            (("-7", Integer), '%', ("2", Integer), "-1"),
            (("-2147483648", Integer), '/', ("-1", Integer), "22003 integer out of range"),
            (("-2147483648", Integer), '%', ("-1", Integer), "0"),
            (("1", Integer), '/', ("0", Integer), "22012 division by zero"),
            (("1", Double), '/', ("0", Double), "22012 division by zero"),
            (("1e308", Double), '*', ("10", Double), "22003 value out of range: overflow"),
            (("1e-308", Double), '*', ("1e-300", Double), "22003 value out of range: underflow"),
            (("0.5", Real), '+', ("1", Integer), "1.5"),
            (("1.10", numeric), '*', ("3", Integer), "3.30"),
            (("1", Integer), '/', ("4.0", numeric), "0.25000000000000000000"),
            (("2024-02-28", Date), '+', ("2", Integer), "2024-03-01"),
            (("2024-03-01", Date), '-', ("2024-02-28", Date), "2"),
            (("2024-01-31", Date), '+', ("1 mon", Interval), "2024-02-29 00:00:00"),
            (("2024-01-31", Date), '+', ("12:30", Time), "2024-01-31 12:30:00"),
            (("2024-03-31 01:00", Timestamp), '-', ("1 mon 1 hour", Interval), "2024-02-29 00:00:00"),
            (("2024-03-30 12:00", TimestampTz), '+', ("1 day", Interval), "2024-03-31 12:00:00+02"),
            (("2024-03-30 12:00", TimestampTz), '+', ("24 hours", Interval), "2024-03-31 13:00:00+02"),
            (("2024-03-02 10:00", Timestamp), '-', ("2024-02-28 12:00", Timestamp), "2 days 22:00:00"),
            (("23:00", Time), '+', ("2 hours", Interval), "01:00:00"),
            (("01:00", Time), '-', ("23:00", Time), "-22:00:00"),
            (("1 mon", Interval), '*', ("0.5", Double), "15 days"),
            (("1 day", Interval), '-', ("1 hour", Interval), "1 day -01:00:00"),
            (("2024-01-01", Date), '*', ("2", Integer), "42883 operator does not exist: date * integer"),
            (("5874897-12-31", Date), '+', ("1", Integer), "22008 date out of range"),
        ];
        for (left, operator, right, expected) in cases {
            assert_eq!(evaluate(left, operator, right), expected, "{left:?} {operator} {right:?}");
        }
    }

    #[test]
    fn what_is_no_number_has_no_sign() {
        let (zone, endless) = (TimeZoneSetting::UTC, Value::Double(f64::INFINITY));
        let nan = Value::Double(f64::NAN);
        let less = subtract(&endless, &endless, &zone);
        for computed in [less, multiply(&endless, &Value::Double(0.0)), negate(&nan)] {
            let Ok(Value::Double(value)) = computed else { panic!("{computed:?} is not a double") };
            assert_eq!(value.to_bits(), f64::NAN.to_bits());
        }
        let Ok(Value::Double(zero)) = negate(&Value::Double(0.0)) else { panic!("the result is a double") };
        assert!(zero == 0.0 && zero.is_sign_negative());
    }

    #[test]
    fn comparison_orders_mixed_numbers_and_puts_nan_last() {
        let nan = Value::Double(f64::NAN);
        assert_eq!(nan.compare(&nan), Some(Ordering::Equal));
        assert_eq!(nan.compare(&Value::Double(f64::INFINITY)), Some(Ordering::Greater));
        assert_eq!(Value::SmallInt(1).compare(&Value::BigInt(2)), Some(Ordering::Less));
        let half = Value::Numeric { unscaled: 50, scale: 2 };
        assert_eq!(half.compare(&Value::Integer(1)), Some(Ordering::Less));
        assert_eq!(half.compare(&Value::Double(0.5)), Some(Ordering::Equal));
        assert_eq!(Value::Null.compare(&half), None);
        assert_eq!(Value::Date(1).compare(&Value::Timestamp(MICROS_PER_DAY)), Some(Ordering::Equal));
        assert_eq!(compare_blank_padded("a  ", "a"), Ordering::Equal);
    }
}
