//! Constant arguments with which functions cannot fail: a divisor that is not zero, a pattern that is whole, a known unit.
//!
//! The optimiser may evaluate an expression that cannot fail on rows that a condition would have left out. As everywhere, 22003 of
//! a number that does not fit does not count.

use super::moments::{Moment, extract, is_day_or_shorter, truncate_span};
use crate::registry::RegistryBuilder;
use firn_base::{Interval, Value};

/// Adds the rules.
pub fn register(builder: &mut RegistryBuilder) {
    builder.cannot_fail(
        "int2div(int2,int2) int4div(int4,int4) int8div(int8,int8) int24div(int2,int4) int42div(int4,int2) int28div(int2,int8) \
         int82div(int8,int2) int48div(int4,int8) int84div(int8,int4) int2mod(int2,int2) int4mod(int4,int4) int8mod(int8,int8) \
         mod(int2,int2) mod(int4,int4) mod(int8,int8) float4div(float4,float4) float8div(float8,float8) float48div(float4,float8) \
         float84div(float8,float4) numeric_div(numeric,numeric) numeric_mod(numeric,numeric) mod(numeric,numeric) \
         div(numeric,numeric) numeric_div_trunc(numeric,numeric)",
        |constants| constants[1].is_some_and(|divisor| number(divisor) != Some(0.0)),
    );
    builder.cannot_fail(
        "dpow(float8,float8) pow(float8,float8) power(float8,float8) pow(numeric,numeric) power(numeric,numeric) \
         numeric_power(numeric,numeric)",
        |constants| {
            let exponent = constants[1].and_then(number);
            exponent.is_some_and(|exponent| exponent >= 0.0 && exponent.trunc() == exponent)
        },
    );
    builder.cannot_fail(
        "textlike(text,text) like(text,text) namelike(name,text) like(name,text) bpcharlike(bpchar,text) textnlike(text,text) \
         notlike(text,text) namenlike(name,text) notlike(name,text) bpcharnlike(bpchar,text) texticlike(text,text) \
         nameiclike(name,text) bpchariclike(bpchar,text) texticnlike(text,text) nameicnlike(name,text) bpcharicnlike(bpchar,text)",
        |constants| text(constants[1]).is_some_and(is_whole_pattern),
    );
    builder.cannot_fail(
        "textregexeq(text,text) nameregexeq(name,text) bpcharregexeq(bpchar,text) textregexne(text,text) nameregexne(name,text) \
         bpcharregexne(bpchar,text) texticregexeq(text,text) nameicregexeq(name,text) bpcharicregexeq(bpchar,text) \
         texticregexne(text,text) nameicregexne(name,text) bpcharicregexne(bpchar,text) substring(text,text) \
         regexp_like(text,text) regexp_match(text,text) regexp_replace(text,text,text) regexp_count(text,text) \
         regexp_instr(text,text) regexp_substr(text,text) regexp_split_to_array(text,text)",
        |constants| text(constants[1]).is_some_and(crate::regex::is_pattern),
    );
    builder.cannot_fail("substring(text,int4,int4) substr(text,int4,int4)", |constants| {
        constants[2].and_then(number).is_some_and(|length| length >= 0.0)
    });
    builder.cannot_fail("varchar(varchar,int4,bool) bpchar(bpchar,int4,bool)", |constants| {
        // What is cut is an error only where a column is assigned to.
        let is_explicit = matches!(constants[2], Some(Value::Boolean(true)));
        is_explicit || constants[1].and_then(number).is_some_and(|modifier| modifier < 0.0)
    });
    builder.cannot_fail("extract(text,date)", |constants| is_field(constants, Moment::Day(0)));
    builder.cannot_fail("extract(text,time) date_part(text,time)", |constants| {
        is_field(constants, Moment::Time(0))
    });
    builder.cannot_fail("extract(text,timestamp) date_part(text,timestamp)", |constants| {
        is_field(constants, Moment::Point(0, None))
    });
    builder.cannot_fail("extract(text,interval) date_part(text,interval)", |constants| {
        is_field(constants, Moment::Span(Interval::default()))
    });
    builder.cannot_fail("date_trunc(text,interval)", |constants| {
        text(constants[0]).is_some_and(|unit| truncate_span(unit, Interval::default()).is_ok())
    });
    builder.cannot_fail("date_trunc(text,timestamp)", |constants| {
        // The first day of all is no first day of a longer unit.
        text(constants[0]).is_some_and(is_day_or_shorter)
    });
}

/// A number's value, near enough to see its sign and whether it is zero or whole; `None` of NaN and of what is no number.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::SmallInt(value) => f64::from(*value),
        Value::Integer(value) => f64::from(*value),
        Value::BigInt(value) => *value as f64,
        Value::Real(value) => f64::from(*value),
        Value::Double(value) => *value,
        Value::Numeric { unscaled, scale } => {
            return sign_and_wholeness(*unscaled, u16::from(*scale));
        }
        Value::Number(value) => {
            let (unscaled, scale) = value.number()?;
            return sign_and_wholeness(unscaled, scale);
        }
        _ => return None,
    };
    (!number.is_nan()).then_some(number)
}

/// A number that is whole, below zero or zero exactly if this one is.
fn sign_and_wholeness(unscaled: i128, scale: u16) -> Option<f64> {
    let value = firn_base::numeric::Numeric::new(unscaled, scale)?;
    let is_whole = value.normalized().number()?.1 == 0;
    Some(unscaled.signum() as f64 * if is_whole { 1.0 } else { 0.5 })
}

fn text(value: Option<&Value>) -> Option<&str> {
    match value {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// Whether a pattern of LIKE does not end in the middle of an escape.
fn is_whole_pattern(pattern: &str) -> bool {
    pattern.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 0
}

/// Whether values of this type have the field.
fn is_field(constants: &[Option<&Value>], sample: Moment) -> bool {
    text(constants[0]).is_some_and(|field| extract(field, sample).is_ok())
}
