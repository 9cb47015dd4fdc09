//! Casts that are functions: between numbers, strings, and dates and times, and those that make values fit a modifier.

use crate::kernel::{Overflow, Text, TooLarge};
use crate::registry::RegistryBuilder;
use firn_base::datetime::{self, MICROS_PER_DAY, MICROS_PER_SECOND, POSTGRES_EPOCH_DAYS};
use firn_base::numeric::Numeric;
use firn_base::{Error, Interval, Result, SqlState, Type, TypeId, text};

const INT2: Overflow = Overflow("smallint out of range");
const INT4: Overflow = Overflow("integer out of range");
const INT8: Overflow = Overflow("bigint out of range");
const OID: Overflow = Overflow("OID out of range");

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    numbers(builder);
    strings(builder);
    moments(builder);
}

fn numbers(builder: &mut RegistryBuilder) {
    builder.scalar::<(i32,), _>("int2(int4)", |_, (value,)| i16::try_from(value).map_err(|_| INT2));
    builder.scalar::<(i64,), _>("int2(int8)", |_, (value,)| i16::try_from(value).map_err(|_| INT2));
    builder.scalar::<(i16,), _>("int4(int2)", |_, (value,)| i32::from(value));
    builder.scalar::<(i64,), _>("int4(int8)", |_, (value,)| i32::try_from(value).map_err(|_| INT4));
    builder.scalar::<(i16,), _>("int8(int2)", |_, (value,)| i64::from(value));
    builder.scalar::<(i32,), _>("int8(int4)", |_, (value,)| i64::from(value));
    builder.scalar::<(i64,), _>("oid(int8)", |_, (value,)| u32::try_from(value).map_err(|_| OID));
    builder.scalar::<(u32,), _>("int8(oid)", |_, (value,)| i64::from(value));
    builder.scalar::<(i32,), _>("bool(int4)", |_, (value,)| value != 0);
    builder.scalar::<(bool,), _>("int4(bool)", |_, (value,)| i32::from(value));

    builder.scalar::<(f32,), _>("int2(float4)", |_, (value,)| {
        whole(value.into(), -32768.0, 32768.0).map(|n| n as i16).ok_or(INT2)
    });
    builder.scalar::<(f64,), _>("int2(float8)", |_, (value,)| {
        whole(value, -32768.0, 32768.0).map(|n| n as i16).ok_or(INT2)
    });
    builder.scalar::<(f32,), _>("int4(float4)", |_, (value,)| {
        whole(value.into(), LOW32, -LOW32).map(|n| n as i32).ok_or(INT4)
    });
    builder.scalar::<(f64,), _>("int4(float8)", |_, (value,)| {
        whole(value, LOW32, -LOW32).map(|n| n as i32).ok_or(INT4)
    });
    builder.scalar::<(f32,), _>("int8(float4)", |_, (value,)| {
        whole(value.into(), LOW64, -LOW64).map(|n| n as i64).ok_or(INT8)
    });
    builder.scalar::<(f64,), _>("int8(float8)", |_, (value,)| {
        whole(value, LOW64, -LOW64).map(|n| n as i64).ok_or(INT8)
    });
    builder.scalar::<(i16,), _>("float4(int2)", |_, (value,)| f32::from(value));
    builder.scalar::<(i32,), _>("float4(int4)", |_, (value,)| value as f32);
    builder.scalar::<(i64,), _>("float4(int8)", |_, (value,)| value as f32);
    builder.scalar::<(f64,), _>("float4(float8)", |_, (value,)| narrow(value));
    builder.scalar::<(Numeric,), _>("float4(numeric)", |_, (value,)| narrow(value.to_f64()));
    builder.scalar::<(i16,), _>("float8(int2)", |_, (value,)| f64::from(value));
    builder.scalar::<(i32,), _>("float8(int4)", |_, (value,)| f64::from(value));
    builder.scalar::<(i64,), _>("float8(int8)", |_, (value,)| value as f64);
    builder.scalar::<(f32,), _>("float8(float4)", |_, (value,)| f64::from(value));
    builder.scalar::<(Numeric,), _>("float8(numeric)", |_, (value,)| value.to_f64());

    builder.scalar::<(i16,), _>("numeric(int2)", |_, (value,)| Numeric::from(i64::from(value)));
    builder.scalar::<(i32,), _>("numeric(int4)", |_, (value,)| Numeric::from(i64::from(value)));
    builder.scalar::<(i64,), _>("numeric(int8)", |_, (value,)| Numeric::from(value));
    builder.scalar::<(f32,), _>("numeric(float4)", |_, (value,)| Numeric::from_f32(value).map_err(TooLarge));
    builder.scalar::<(f64,), _>("numeric(float8)", |_, (value,)| Numeric::from_f64(value).map_err(TooLarge));
    // NaN and infinities fail by 0A000.
    builder.scalar::<(Numeric,), _>("int2(numeric)", |_, (value,)| value.to_i16());
    builder.scalar::<(Numeric,), _>("int4(numeric)", |_, (value,)| value.to_i32());
    builder.scalar::<(Numeric,), _>("int8(numeric)", |_, (value,)| value.to_i64());
}

const LOW32: f64 = i32::MIN as f64;
const LOW64: f64 = i64::MIN as f64;

/// A float rounded to the nearest whole number, halves to even, if it is in range: from `low` to below `end`.
fn whole(value: f64, low: f64, end: f64) -> Option<f64> {
    let rounded = value.round_ties_even();
    (rounded >= low && rounded < end).then_some(rounded)
}

fn narrow(value: f64) -> std::result::Result<f32, Overflow> {
    let narrow = value as f32;
    if narrow.is_infinite() && value.is_finite() {
        return Err(Overflow("value out of range: overflow"));
    }
    if narrow == 0.0 && value != 0.0 {
        return Err(Overflow("value out of range: underflow"));
    }
    Ok(narrow)
}

fn strings(builder: &mut RegistryBuilder) {
    builder.scalar::<(&str,), _>("text(bpchar)", |call, (value,)| {
        call.text.push_str(value.trim_end_matches(' '));
        Text
    });
    builder.scalar::<(&str,), _>("name(bpchar)", |call, (value,)| {
        call.text.push_str(text::fit_name(value.trim_end_matches(' ')));
        Text
    });
    builder.scalar::<(&str,), _>(
        "text(name) text(char) bpchar(char) bpchar(name) varchar(name)",
        |call, (value,)| {
            call.text.push_str(value);
            Text
        },
    );
    builder.scalar::<(&str,), _>("name(text) name(varchar)", |call, (value,)| {
        call.text.push_str(text::fit_name(value));
        Text
    });
    builder.scalar::<(bool,), _>("text(bool)", |call, (value,)| {
        call.text.push_str(if value { "true" } else { "false" });
        Text
    });
    builder.scalar::<(&str,), _>("int4(char)", |_, (value,)| i32::from(text::char_byte(value) as i8));
    builder.scalar::<(i32,), _>("char(int4)", |call, (value,)| match i8::try_from(value) {
        Ok(byte) => {
            text::write_char(byte as u8, &mut call.text);
            Ok(Text)
        }
        Err(_) => Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "\"char\" out of range")),
    });
    builder.scalar::<(&str,), _>("char(text)", |call, (value,)| {
        text::write_char(text::char_byte(value), &mut call.text);
        Text
    });
    builder.scalar::<(&str, i32, bool), _>(
        "varchar(varchar,int4,bool)",
        |call, (value, modifier, is_explicit)| {
            let fitted = match Type::new(TypeId::VARCHAR).with_modifier(modifier).length() {
                None => value,
                Some(length) if is_explicit => first_characters(value, length as usize),
                Some(length) => text::fit_varchar(value, length)?,
            };
            call.text.push_str(fitted);
            Ok::<_, Error>(Text)
        },
    );
    builder.scalar::<(&str, i32, bool), _>(
        "bpchar(bpchar,int4,bool)",
        |call, (value, modifier, is_explicit)| {
            match Type::new(TypeId::BPCHAR).with_modifier(modifier).length() {
                None => call.text.push_str(value),
                Some(length) => {
                    let value = if is_explicit { first_characters(value, length as usize) } else { value };
                    call.text.push_str(&text::fit_char(value, length)?);
                }
            }
            Ok::<_, Error>(Text)
        },
    );
}

/// At most so many characters from the beginning.
pub fn first_characters(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

fn moments(builder: &mut RegistryBuilder) {
    builder.scalar::<(i64,), _>("date(timestamp)", |_, (moment,)| datetime::day_of(moment));
    builder.scalar::<(i64,), _>("date(timestamptz)", |call, (moment,)| {
        Ok::<_, Error>(datetime::day_of(datetime::to_local(moment, call.context.zone())?))
    });
    builder.scalar::<(i32,), _>("timestamp(date)", |_, (days,)| datetime::date_to_timestamp(days));
    builder.scalar::<(i32,), _>("timestamptz(date)", |call, (days,)| {
        datetime::to_utc(datetime::date_to_timestamp(days)?, call.context.zone())
    });
    builder.scalar::<(i32, i64), _>("timestamp(date,time) datetime_pl(date,time)", |_, (days, time)| {
        at(days, time)
    });
    builder.scalar::<(i64, i32), _>("timedate_pl(time,date)", |_, (time, days)| at(days, time));
    builder.scalar::<(i32, i64), _>("timestamptz(date,time)", |call, (days, time)| {
        datetime::to_utc(at(days, time)?, call.context.zone())
    });
    builder.scalar::<(i64,), _>("timestamp(timestamptz)", |call, (moment,)| {
        datetime::to_local(moment, call.context.zone())
    });
    builder.scalar::<(i64,), _>("timestamptz(timestamp)", |call, (moment,)| {
        datetime::to_utc(moment, call.context.zone())
    });
    builder.scalar::<(i64,), _>("time(timestamp)", |_, (moment,)| datetime::time_of(moment));
    builder.scalar::<(i64,), _>("time(timestamptz)", |call, (moment,)| {
        Ok::<_, Error>(datetime::time_of(datetime::to_local(moment, call.context.zone())?))
    });
    builder.scalar::<(Interval,), _>("time(interval)", |_, (span,)| {
        span.microseconds().rem_euclid(MICROS_PER_DAY)
    });
    builder.scalar::<(i64,), _>("interval(time)", |_, (time,)| Interval::from_parts(0, 0, time));
    builder.scalar::<(i64, i32), _>(
        "timestamp(timestamp,int4) timestamptz(timestamptz,int4)",
        |_, (moment, digits)| round_timestamp(moment, digits),
    );
    builder.scalar::<(i64, i32), _>("time(time,int4)", |_, (time, digits)| round(time, digits));
    builder.scalar::<(Interval, i32), _>("interval(interval,int4)", |_, (span, modifier)| {
        fit_interval(span, modifier)
    });
}

fn at(days: i32, time: i64) -> Result<i64> {
    match datetime::date_to_timestamp(days)? {
        midnight if datetime::is_finite(midnight) => datetime::check_timestamp(midnight.checked_add(time)),
        infinite => Ok(infinite),
    }
}

/// Microseconds with so many decimals of a second; halves go away from zero.
fn round(micros: i64, digits: i32) -> i64 {
    if !(0..6).contains(&digits) {
        return micros;
    }
    let unit = 10i64.pow(6 - digits as u32);
    let half = if micros < 0 { -unit / 2 } else { unit / 2 };
    micros.saturating_add(half) / unit * unit
}

/// A timestamp with so many decimals of its seconds, rounded away from 2000-01-01, from which PostgreSQL counts.
pub fn round_timestamp(moment: i64, digits: i32) -> Result<i64> {
    if !datetime::is_finite(moment) {
        return Ok(moment);
    }
    let epoch = i64::from(POSTGRES_EPOCH_DAYS) * MICROS_PER_DAY;
    let rounded = moment.checked_sub(epoch).map(|moment| round(moment, digits));
    datetime::check_timestamp(rounded.and_then(|moment| moment.checked_add(epoch)))
}

/// An interval cut to the fields of a modifier, and rounded to its decimals.
pub fn fit_interval(span: Interval, modifier: i32) -> Result<Interval> {
    const YEAR: i32 = 1 << 2;
    const MONTH: i32 = 1 << 1;
    const DAY: i32 = 1 << 3;
    const HOUR: i32 = 1 << 10;
    const MINUTE: i32 = 1 << 11;
    const SECOND: i32 = 1 << 12;
    if modifier < 0 {
        return Ok(span);
    }
    let (fields, precision) = (modifier >> 16 & 0x7fff, modifier & 0xffff);
    let micros = span.microseconds();
    let (months, days, micros) = match fields {
        YEAR => (span.months / 12 * 12, 0, 0),
        _ if fields == MONTH || fields == YEAR | MONTH => (span.months, 0, 0),
        DAY => (span.months, span.days, 0),
        _ if fields & SECOND != 0 || fields == 0x7fff => (span.months, span.days, micros),
        _ if fields & MINUTE != 0 => (span.months, span.days, micros - micros % (60 * MICROS_PER_SECOND)),
        _ if fields & HOUR != 0 => (span.months, span.days, micros - micros % (3600 * MICROS_PER_SECOND)),
        _ => (span.months, span.days, micros),
    };
    let micros = if precision <= 6 { round(micros, precision) } else { micros };
    Interval::from_parts(months, days, micros)
}
