//! Functions of dates, times and spans.

use super::format;
use datafusion::logical_expr::{ScalarUDF, Volatility};
use firn_base::clock::wall_clock_micros;
use firn_base::datetime::{self, MICROS_PER_DAY, MICROS_PER_SECOND};
use firn_base::sync::Arc;
use firn_base::{Error, Interval, Result, SqlState, SqlType, TimeZoneSetting, Value, numeric};
use firn_exec::function::{Surroundings, ValueFunction};

/// A function of this file by its name.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    let name = match name {
        "current_timestamp" | "transaction_timestamp" | "statement_timestamp" => "now",
        "current_time" => "localtime",
        "datetrunc" => "date_trunc",
        other => other,
    };
    FUNCTIONS.iter().find(|function| function.name == name).map(ValueFunction::udf)
}

/// The function that computes EXTRACT of a field: whole numbers have no decimals.
pub fn extract(field: &str) -> Arc<ScalarUDF> {
    let fraction = matches!(
        field.to_lowercase().as_str(),
        "second" | "seconds" | "epoch" | "millisecond" | "milliseconds" | "julian"
    );
    let name = if fraction { "extract_fraction" } else { "extract" };
    function(name).expect("both are defined")
}

fn string(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        other => panic!("{other:?} was coerced to text"),
    }
}

fn whole(value: &Value) -> i64 {
    match value {
        Value::Integer(value) => i64::from(*value),
        Value::BigInt(value) => *value,
        other => panic!("{other:?} was coerced to an integer"),
    }
}

fn double(value: &Value) -> f64 {
    match value {
        Value::Double(value) => *value,
        other => panic!("{other:?} was coerced to double precision"),
    }
}

/// A value that has fields to extract.
enum Moment {
    /// Microseconds since 1970, as the clock on the wall shows them; the zone's offset in seconds.
    Point {
        local: i64,
        offset: i32,
    },
    /// Microseconds since midnight.
    Time(i64),
    Span(Interval),
}

impl Moment {
    fn of(value: &Value, zone: &TimeZoneSetting) -> Result<Moment> {
        Ok(match value {
            Value::Date(days) => Moment::Point { local: datetime::date_to_timestamp(*days)?, offset: 0 },
            Value::Timestamp(micros) => Moment::Point { local: *micros, offset: 0 },
            Value::TimestampTz(micros) => {
                Moment::Point { local: datetime::to_local(*micros, zone)?, offset: zone.offset_at(*micros) }
            }
            Value::Time(micros) => Moment::Time(*micros),
            Value::Interval(interval) => Moment::Span(*interval),
            other => panic!("{other:?} has no fields"),
        })
    }
}

/// A field of a moment, as a multiple of a millionth.
fn field(name: &str, value: &Value, zone: &TimeZoneSetting) -> Result<i128> {
    const MILLION: i128 = 1_000_000;
    let name = name.to_lowercase();
    let whole = |value: i64| Ok(i128::from(value) * MILLION);
    let of_day = |micros: i64| -> Option<i128> {
        Some(match name.as_str() {
            "hour" | "hours" => i128::from(micros / 3_600_000_000) * MILLION,
            "minute" | "minutes" => i128::from(micros / 60_000_000 % 60) * MILLION,
            "second" | "seconds" => i128::from(micros % 60_000_000),
            "millisecond" | "milliseconds" => i128::from(micros % 60_000_000) * 1000,
            "microsecond" | "microseconds" => i128::from(micros % 60_000_000) * MILLION,
            _ => return None,
        })
    };
    let unknown = || {
        let ty = value.natural_type().map_or_else(String::new, |ty| ty.to_string());
        Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("unit \"{name}\" not recognized for type {ty}"))
    };
    match Moment::of(value, zone)? {
        Moment::Time(micros) => match name.as_str() {
            "epoch" => Ok(i128::from(micros)),
            _ => of_day(micros).ok_or_else(unknown),
        },
        Moment::Span(interval) => {
            let micros = interval.microseconds();
            let (years, months) = (i64::from(interval.months / 12), i64::from(interval.months % 12));
            match name.as_str() {
                "year" | "years" => whole(years),
                "month" | "months" => whole(months),
                "quarter" => whole(months / 3 + 1),
                "day" | "days" => whole(i64::from(interval.days)),
                "decade" => whole(years / 10),
                "century" => whole(years / 100),
                "millennium" => whole(years / 1000),
                "epoch" => {
                    // A year of 365.25 days, a month of 30.
                    let seconds = i128::from(years) * 31_557_600
                        + i128::from(months) * 30 * 86_400
                        + i128::from(interval.days) * 86_400;
                    Ok(seconds * MILLION + i128::from(micros))
                }
                _ => of_day(micros).ok_or_else(unknown),
            }
        }
        Moment::Point { local, offset } => {
            let days = local.div_euclid(MICROS_PER_DAY);
            let (year, month, day) = datetime::civil_from_days(days);
            let weekday = (days + 4).rem_euclid(7);
            match name.as_str() {
                "year" | "years" => whole(if year > 0 { year } else { year - 1 }),
                "month" | "months" => whole(i64::from(month)),
                "day" | "days" => whole(i64::from(day)),
                "quarter" => whole(i64::from(month - 1) / 3 + 1),
                "dow" => whole(weekday),
                "isodow" => whole(if weekday == 0 { 7 } else { weekday }),
                "doy" => whole(days - datetime::days_from_civil(year, 1, 1) + 1),
                "week" => whole(format::iso_week(days).1),
                "isoyear" => whole(format::iso_week(days).0),
                "decade" => whole(year.div_euclid(10)),
                "century" => whole(if year > 0 { (year + 99) / 100 } else { year / 100 - 1 }),
                "millennium" => whole(if year > 0 { (year + 999) / 1000 } else { year / 1000 - 1 }),
                "epoch" => Ok(i128::from(local) - i128::from(offset) * MILLION),
                "julian" => Ok(i128::from(days + 2_440_588) * MILLION
                    + i128::from(local.rem_euclid(MICROS_PER_DAY)) * MILLION / i128::from(MICROS_PER_DAY)),
                "timezone" => whole(i64::from(offset)),
                "timezone_hour" => whole(i64::from(offset / 3600)),
                "timezone_minute" => whole(i64::from(offset / 60 % 60)),
                _ => of_day(local.rem_euclid(MICROS_PER_DAY)).ok_or_else(unknown),
            }
        }
    }
}

/// A moment on the wall with everything below the unit cut off.
fn truncate(unit: &str, local: i64) -> Result<i64> {
    let days = local.div_euclid(MICROS_PER_DAY);
    let (year, month, _) = datetime::civil_from_days(days);
    let at = |year: i64, month: u32| datetime::days_from_civil(year, month, 1) * MICROS_PER_DAY;
    let to = |micros: i64| local - local.rem_euclid(micros);
    Ok(match unit.to_lowercase().as_str() {
        "microsecond" | "microseconds" => local,
        "millisecond" | "milliseconds" => to(1000),
        "second" | "seconds" => to(MICROS_PER_SECOND),
        "minute" | "minutes" => to(60 * MICROS_PER_SECOND),
        "hour" | "hours" => to(3600 * MICROS_PER_SECOND),
        "day" | "days" => to(MICROS_PER_DAY),
        "week" | "weeks" => (days - (days + 3).rem_euclid(7)) * MICROS_PER_DAY,
        "month" | "months" => at(year, month),
        "quarter" => at(year, (month - 1) / 3 * 3 + 1),
        "year" | "years" => at(year, 1),
        "decade" | "decades" => at(year.div_euclid(10) * 10, 1),
        "century" | "centuries" => at((year - 1).div_euclid(100) * 100 + 1, 1),
        "millennium" | "millennia" => at((year - 1).div_euclid(1000) * 1000 + 1, 1),
        _ => {
            let message = format!("unit \"{unit}\" not recognized for type timestamp without time zone");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    })
}

fn truncate_span(unit: &str, interval: Interval) -> Result<Interval> {
    let micros = interval.microseconds();
    let to = |unit: i64| micros - micros % unit;
    let (months, days, micros) = match unit.to_lowercase().as_str() {
        "year" | "years" => (interval.months / 12 * 12, 0, 0),
        "quarter" => (interval.months / 3 * 3, 0, 0),
        "month" | "months" => (interval.months, 0, 0),
        "day" | "days" => (interval.months, interval.days, 0),
        "hour" | "hours" => (interval.months, interval.days, to(3600 * MICROS_PER_SECOND)),
        "minute" | "minutes" => (interval.months, interval.days, to(60 * MICROS_PER_SECOND)),
        "second" | "seconds" => (interval.months, interval.days, to(MICROS_PER_SECOND)),
        "millisecond" | "milliseconds" => (interval.months, interval.days, to(1000)),
        "microsecond" | "microseconds" => (interval.months, interval.days, micros),
        _ => {
            let message = format!("unit \"{unit}\" not recognized for type interval");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    };
    Interval::from_parts(months, days, micros)
}

/// The span between two moments on the wall in years, months, days and time.
fn age(later: i64, earlier: i64) -> Result<Interval> {
    if later < earlier {
        return age(earlier, later)?.checked_neg();
    }
    let split = |micros: i64| {
        let (year, month, day) = datetime::civil_from_days(micros.div_euclid(MICROS_PER_DAY));
        (year, month as i64, i64::from(day), micros.rem_euclid(MICROS_PER_DAY))
    };
    let (y1, m1, d1, t1) = split(later);
    let (y0, m0, d0, t0) = split(earlier);
    let (mut months, mut days, mut time) = ((y1 - y0) * 12 + m1 - m0, d1 - d0, t1 - t0);
    if time < 0 {
        time += MICROS_PER_DAY;
        days -= 1;
    }
    if days < 0 {
        // Days are borrowed from the month in which the earlier moment lies.
        days += i64::from(datetime::days_in_month(y0, m0 as u32));
        months -= 1;
    }
    Interval::from_parts(months as i32, days as i32, time)
}

/// A span with full days taken out of its hours, and full months of 30 days out of its days.
fn justify(value: &Value, hours: bool, days: bool) -> Result<Value> {
    let Value::Interval(interval) = value else { panic!("{value:?} was coerced to interval") };
    let (mut whole_months, mut whole_days) = (i64::from(interval.months), i64::from(interval.days));
    let mut micros = interval.microseconds();
    if hours {
        whole_days += micros / MICROS_PER_DAY;
        micros %= MICROS_PER_DAY;
    }
    if days {
        whole_months += whole_days / 30;
        whole_days %= 30;
    }
    match (i32::try_from(whole_months), i32::try_from(whole_days)) {
        (Ok(months), Ok(days)) => Interval::from_parts(months, days, micros).map(Value::Interval),
        _ => Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range")),
    }
}

fn now(surroundings: &Surroundings<'_>) -> i64 {
    surroundings.now
}

fn local_now(surroundings: &Surroundings<'_>) -> Result<i64> {
    datetime::to_local(surroundings.now, &surroundings.zone)
}

/// A moment as the wall shows it, whatever its type.
fn on_the_wall(value: &Value, zone: &TimeZoneSetting) -> Result<i64> {
    match value {
        Value::Timestamp(micros) => Ok(*micros),
        Value::TimestampTz(micros) => datetime::to_local(*micros, zone),
        Value::Date(days) => datetime::date_to_timestamp(*days),
        other => panic!("{other:?} is no moment"),
    }
}

use SqlType::{BigInt, Date, Double, Integer, Interval as Span, Text, Time, Timestamp, TimestampTz};

const WHOLE: SqlType = SqlType::Numeric { precision: 20, scale: 0 };
const FRACTION: SqlType = SqlType::Numeric { precision: 38, scale: 6 };

/// The type that a field is extracted from: a bare literal is a timestamp.
fn has_fields(ty: Option<SqlType>) -> Option<SqlType> {
    match ty {
        None => Some(Timestamp),
        Some(ty @ (Date | Timestamp | TimestampTz | Time | Span)) => Some(ty),
        _ => None,
    }
}

/// Year, month, day, hour, minute, second.
fn clock_fields() -> Vec<SqlType> {
    vec![Integer, Integer, Integer, Integer, Integer, Double]
}

/// The moment on the wall that [`clock_fields`] tell.
fn moment_of(values: &[Value]) -> Result<i64> {
    let [year, month, day, hour, minute] = [0, 1, 2, 3, 4].map(|field| whole(&values[field]));
    let second = double(&values[5]);
    let text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:09.6}");
    datetime::parse_timestamp(&text).map_err(|_| {
        let message = match (1..=12).contains(&month) && (1..=31).contains(&day) {
            true => format!("time field value out of range: {hour}:{minute:02}:{second}"),
            false => format!("date field value out of range: {year}-{month:02}-{day:02}"),
        };
        Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
    })
}

fn nothing(arguments: &[Option<SqlType>], result: SqlType) -> Option<(Vec<SqlType>, SqlType)> {
    // CURRENT_TIMESTAMP(6) and its relatives give a precision, which is ours anyway.
    match arguments {
        [] => Some((vec![], result)),
        [Some(SqlType::Integer)] => Some((vec![Integer], result)),
        _ => None,
    }
}

const fn stable(
    name: &'static str,
    resolve: firn_exec::function::Resolve,
    compute: firn_exec::function::Compute,
) -> ValueFunction {
    ValueFunction { name, resolve, compute, volatility: Volatility::Stable, takes_null: false }
}

/// A moment with so many decimals of a second. Halves go away from zero, which for points in time is the
/// year 2000, as in PostgreSQL.
fn round(moment: &Value, decimals: i64) -> Result<Value> {
    // The rewriting asks for 0 to 5, but whoever knows the name may call it.
    let unit = 10_i64.pow(6 - decimals.clamp(0, 6) as u32);
    let round = |micros: i64| {
        let half = if micros < 0 { -unit / 2 } else { unit / 2 };
        micros.checked_add(half).map(|micros| micros / unit * unit)
    };
    let point = |micros: i64| {
        let epoch = i64::from(datetime::POSTGRES_EPOCH_DAYS) * MICROS_PER_DAY;
        micros.checked_sub(epoch).and_then(round).and_then(|micros| micros.checked_add(epoch))
    };
    let rounded = match moment {
        Value::Time(micros) => round(*micros).map(Value::Time),
        Value::Timestamp(micros) => point(*micros).map(Value::Timestamp),
        Value::TimestampTz(micros) => point(*micros).map(Value::TimestampTz),
        Value::Interval(span) => round(span.microseconds())
            .and_then(|micros| micros.checked_mul(1000))
            .map(|nanoseconds| Value::Interval(Interval { nanoseconds, ..*span })),
        other => panic!("{other:?} was coerced to a moment"),
    };
    rounded.ok_or_else(|| Error::new(SqlState::new("22008"), "timestamp out of range"))
}

static FUNCTIONS: &[ValueFunction] = &[
    ValueFunction {
        name: "round moment",
        resolve: |arguments| match arguments {
            [Some(ty @ (Time | Timestamp | TimestampTz | Span)), Some(BigInt)] => {
                Some((vec![*ty, BigInt], *ty))
            }
            _ => None,
        },
        compute: |arguments, _| round(&arguments[0], whole(&arguments[1])),
        volatility: Volatility::Immutable,
        takes_null: false,
    },
    stable(
        "now",
        |arguments| nothing(arguments, TimestampTz),
        |_, around| Ok(Value::TimestampTz(now(around))),
    ),
    stable(
        "localtimestamp",
        |arguments| nothing(arguments, Timestamp),
        |_, around| Ok(Value::Timestamp(local_now(around)?)),
    ),
    stable(
        "current_date",
        |arguments| nothing(arguments, Date),
        |_, around| Ok(Value::Date(local_now(around)?.div_euclid(MICROS_PER_DAY) as i32)),
    ),
    stable(
        "localtime",
        |arguments| nothing(arguments, Time),
        |_, around| Ok(Value::Time(local_now(around)?.rem_euclid(MICROS_PER_DAY))),
    ),
    ValueFunction {
        name: "clock_timestamp",
        resolve: |arguments| nothing(arguments, TimestampTz),
        compute: |_, _| Ok(Value::TimestampTz(wall_clock_micros())),
        volatility: Volatility::Volatile,
        takes_null: false,
    },
    stable(
        "extract",
        |arguments| match arguments {
            [_, ty] => Some((vec![Text, has_fields(*ty)?], WHOLE)),
            _ => None,
        },
        |values, around| {
            let millionths = field(string(&values[0]), &values[1], &around.zone)?;
            Ok(Value::Numeric { unscaled: millionths.div_euclid(1_000_000), scale: 0 })
        },
    ),
    stable(
        "extract_fraction",
        |arguments| match arguments {
            [_, ty] => Some((vec![Text, has_fields(*ty)?], FRACTION)),
            _ => None,
        },
        |values, around| {
            Ok(Value::Numeric { unscaled: field(string(&values[0]), &values[1], &around.zone)?, scale: 6 })
        },
    ),
    stable(
        "date_part",
        |arguments| match arguments {
            [_, ty] => Some((vec![Text, has_fields(*ty)?], Double)),
            _ => None,
        },
        |values, around| {
            let millionths = field(string(&values[0]), &values[1], &around.zone)?;
            Ok(Value::Double(numeric::to_f64((millionths, 6))))
        },
    ),
    stable(
        "date_trunc",
        |arguments| match arguments {
            [_, None | Some(Timestamp)] => Some((vec![Text, Timestamp], Timestamp)),
            [_, Some(Date | TimestampTz)] => Some((vec![Text, TimestampTz], TimestampTz)),
            [_, Some(Span)] => Some((vec![Text, Span], Span)),
            _ => None,
        },
        |values, around| {
            let unit = string(&values[0]);
            Ok(match &values[1] {
                Value::Timestamp(micros) => Value::Timestamp(truncate(unit, *micros)?),
                Value::TimestampTz(micros) => {
                    let local = truncate(unit, datetime::to_local(*micros, &around.zone)?)?;
                    Value::TimestampTz(datetime::to_utc(local, &around.zone)?)
                }
                Value::Interval(interval) => Value::Interval(truncate_span(unit, *interval)?),
                other => panic!("{other:?} cannot be truncated"),
            })
        },
    ),
    stable(
        "age",
        |arguments| match arguments {
            [Some(TimestampTz), _] | [_, Some(TimestampTz)] => Some((vec![TimestampTz, TimestampTz], Span)),
            [_, _] => Some((vec![Timestamp, Timestamp], Span)),
            [Some(TimestampTz)] => Some((vec![TimestampTz], Span)),
            [_] => Some((vec![Timestamp], Span)),
            _ => None,
        },
        |values, around| {
            let first = on_the_wall(&values[0], &around.zone)?;
            let span = match values.get(1) {
                Some(second) => age(first, on_the_wall(second, &around.zone)?)?,
                None => {
                    let today = local_now(around)?;
                    age(today - today.rem_euclid(MICROS_PER_DAY), first)?
                }
            };
            Ok(Value::Interval(span))
        },
    ),
    stable(
        "timezone",
        |arguments| match arguments {
            [_, Some(TimestampTz)] => Some((vec![Text, TimestampTz], Timestamp)),
            [_, None | Some(Timestamp | Date)] => Some((vec![Text, Timestamp], TimestampTz)),
            _ => None,
        },
        |values, _| {
            let zone = TimeZoneSetting::parse(string(&values[0]))?;
            Ok(match &values[1] {
                Value::TimestampTz(micros) => Value::Timestamp(datetime::to_local(*micros, &zone)?),
                Value::Timestamp(micros) => Value::TimestampTz(datetime::to_utc(*micros, &zone)?),
                other => panic!("{other:?} is in no zone"),
            })
        },
    ),
    stable(
        "to_char",
        |arguments| match arguments {
            [Some(ty @ (Timestamp | TimestampTz | Span)), _] => Some((vec![*ty, Text], Text)),
            [Some(Date), _] => Some((vec![Timestamp, Text], Text)),
            [Some(SqlType::Real | Double), _] => Some((vec![Double, Text], Text)),
            [Some(ty @ SqlType::Numeric { .. }), _] => Some((vec![*ty, Text], Text)),
            [Some(SqlType::SmallInt | Integer | SqlType::BigInt), _] => {
                Some((vec![SqlType::BigInt, Text], Text))
            }
            _ => None,
        },
        |values, around| {
            let pattern = string(&values[1]);
            let written = match &values[0] {
                Value::Interval(interval) => {
                    let day = i64::from(interval.days) * MICROS_PER_DAY + interval.microseconds();
                    format::moment(pattern, day, 0, "")
                }
                moment @ (Value::Timestamp(_) | Value::TimestampTz(_)) => {
                    let local = on_the_wall(moment, &around.zone)?;
                    let offset = match moment {
                        Value::TimestampTz(micros) => around.zone.offset_at(*micros),
                        _ => 0,
                    };
                    let zone = if matches!(moment, Value::TimestampTz(_)) {
                        around.zone.to_string()
                    } else {
                        String::new()
                    };
                    format::moment(pattern, local, offset, &zone)
                }
                Value::BigInt(value) => format::number(pattern, i128::from(*value), 0),
                Value::Numeric { unscaled, scale } => format::number(pattern, *unscaled, *scale),
                Value::Double(value) => {
                    let (unscaled, scale) = numeric::from_f64(*value, 15)?;
                    format::number(pattern, unscaled, scale)
                }
                other => panic!("{other:?} cannot be formatted"),
            };
            Ok(Value::Text(written))
        },
    ),
    stable(
        "to_number",
        |arguments| (arguments.len() == 2).then(|| (vec![Text, Text], SqlType::NUMERIC)),
        |values, zone| {
            let (unscaled, scale) = format::read_number(string(&values[0]), string(&values[1]))?;
            firn_base::coerce::assign(Value::Numeric { unscaled, scale }, SqlType::NUMERIC, &zone.zone)
        },
    ),
    stable(
        "to_date",
        |arguments| (arguments.len() == 2).then(|| (vec![Text, Text], Date)),
        |values, _| {
            let micros = format::read_moment(string(&values[0]), string(&values[1]))?;
            Ok(Value::Date(datetime::check_date(micros.div_euclid(MICROS_PER_DAY))?))
        },
    ),
    stable(
        "to_timestamp",
        |arguments| match arguments {
            [_, _] => Some((vec![Text, Text], TimestampTz)),
            [_] => Some((vec![Double], TimestampTz)),
            _ => None,
        },
        |values, around| match values {
            [seconds] => {
                let micros = double(seconds) * MICROS_PER_SECOND as f64;
                let micros = micros.is_finite().then_some(micros.round() as i64);
                Ok(Value::TimestampTz(datetime::check_timestamp(micros)?))
            }
            _ => {
                let local = format::read_moment(string(&values[0]), string(&values[1]))?;
                Ok(Value::TimestampTz(datetime::to_utc(local, &around.zone)?))
            }
        },
    ),
    stable(
        "make_date",
        |arguments| (arguments.len() == 3).then(|| (vec![Integer; 3], Date)),
        |values, _| {
            let text = format!("{:04}-{:02}-{:02}", whole(&values[0]), whole(&values[1]), whole(&values[2]));
            datetime::parse_date(&text).map(Value::Date).map_err(|_| {
                Error::new(
                    SqlState::DATETIME_FIELD_OVERFLOW,
                    format!("date field value out of range: {text}"),
                )
            })
        },
    ),
    stable(
        "make_time",
        |arguments| (arguments.len() == 3).then(|| (vec![Integer, Integer, Double], Time)),
        |values, _| {
            let (hour, minute, second) = (whole(&values[0]), whole(&values[1]), double(&values[2]));
            let text = format!("{hour:02}:{minute:02}:{second:09.6}");
            datetime::parse_time(&text).map(Value::Time).map_err(|_| {
                let message = format!("time field value out of range: {hour}:{minute:02}:{second}");
                Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
            })
        },
    ),
    stable(
        "make_timestamp",
        |arguments| (arguments.len() == 6).then(|| (clock_fields(), Timestamp)),
        |values, _| moment_of(values).map(Value::Timestamp),
    ),
    stable(
        "make_timestamptz",
        |arguments| (arguments.len() == 6).then(|| (clock_fields(), TimestampTz)),
        |values, around| datetime::to_utc(moment_of(values)?, &around.zone).map(Value::TimestampTz),
    ),
    stable(
        "isfinite",
        |arguments| match arguments {
            [Some(ty @ (Date | Timestamp | TimestampTz | Span))] => Some((vec![*ty], SqlType::Boolean)),
            _ => None,
        },
        // There are no infinite moments.
        |_, _| Ok(Value::Boolean(true)),
    ),
    stable(
        "make_interval",
        |arguments| (arguments.len() <= 6).then(|| (vec![Integer; arguments.len()], Span)),
        |values, _| {
            let part = |position: usize| values.get(position).map_or(0, whole);
            let micros = (part(4) * 60 + part(5)) * 60 * MICROS_PER_SECOND;
            let months = i32::try_from(part(0) * 12 + part(1));
            let days = i32::try_from(part(2) * 7 + part(3));
            match (months, days) {
                (Ok(months), Ok(days)) => Interval::from_parts(months, days, micros).map(Value::Interval),
                _ => Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range")),
            }
        },
    ),
    stable(
        "justify_hours",
        |arguments| (arguments.len() == 1).then(|| (vec![Span], Span)),
        |values, _| justify(&values[0], true, false),
    ),
    stable(
        "justify_days",
        |arguments| (arguments.len() == 1).then(|| (vec![Span], Span)),
        |values, _| justify(&values[0], false, true),
    ),
    stable(
        "justify_interval",
        |arguments| (arguments.len() == 1).then(|| (vec![Span], Span)),
        |values, _| justify(&values[0], true, true),
    ),
    stable(
        "date",
        |arguments| match arguments {
            [None] => Some((vec![Date], Date)),
            [Some(Date | Timestamp | TimestampTz)] => Some((vec![arguments[0]?], Date)),
            [Some(ty)] if ty.is_string() => Some((vec![Text], Date)),
            _ => None,
        },
        |values, around| firn_base::coerce::cast(values[0].clone(), Date, &around.zone),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(text: &str) -> i64 {
        datetime::parse_timestamp(text).unwrap()
    }

    fn fields_of(text: &str, name: &str) -> i128 {
        field(name, &Value::Timestamp(timestamp(text)), &TimeZoneSetting::UTC).unwrap() / 1_000_000
    }

    #[test]
    fn fields_are_those_of_the_calendar() {
        assert_eq!(fields_of("2001-02-16 20:38:40", "year"), 2001);
        assert_eq!(fields_of("2001-02-16 20:38:40", "quarter"), 1);
        assert_eq!(fields_of("2001-02-16 20:38:40", "doy"), 47);
        assert_eq!(fields_of("2001-02-16 20:38:40", "dow"), 5);
        assert_eq!(fields_of("2001-02-18 20:38:40", "isodow"), 7);
        assert_eq!(fields_of("2001-02-16 20:38:40", "week"), 7);
        assert_eq!(fields_of("2005-01-01", "week"), 53);
        assert_eq!(fields_of("2005-01-01", "isoyear"), 2004);
        assert_eq!(fields_of("2000-12-16 12:21:13", "century"), 20);
        assert_eq!(fields_of("2001-02-16 20:38:40", "epoch"), 982_355_920);
    }

    #[test]
    fn truncation_keeps_the_unit_and_what_is_above_it() {
        let cut = |unit| truncate(unit, timestamp("2001-02-16 20:38:40.5")).unwrap();
        assert_eq!(cut("hour"), timestamp("2001-02-16 20:00:00"));
        assert_eq!(cut("week"), timestamp("2001-02-12"));
        assert_eq!(cut("quarter"), timestamp("2001-01-01"));
        assert_eq!(cut("century"), timestamp("2001-01-01"));
        assert!(truncate("fortnight", 0).is_err());
    }

    #[test]
    fn an_age_borrows_days_from_the_earlier_month() {
        let span = age(timestamp("2001-04-10"), timestamp("1957-06-13")).unwrap();
        assert_eq!((span.months, span.days), (43 * 12 + 9, 27));
    }
}
