//! Values as text, as PostgreSQL reads and writes them.

use crate::array::{ArrayValue, Dimension};
use crate::data_type::{Type, TypeId};
use crate::error::{Error, Result, SqlState};
use crate::ids::{BlockNumber, RowId, Slot};
use crate::numeric::Numeric;
use crate::representation::Representation;
use crate::text_style::{ByteaStyle, TextStyle};
use crate::type_table::TypeInfo;
use crate::types::SqlType;
use crate::value::Value;
use crate::{array, datetime, interval, json, numeric};
use std::fmt::{Display, LowerExp, Write};
use std::io;

/// Reads a value of type `ty`.
pub fn parse(text: &str, ty: SqlType, style: &TextStyle) -> Result<Value> {
    Ok(match ty {
        SqlType::Boolean => Value::Boolean(parse_boolean(text)?),
        SqlType::SmallInt => Value::SmallInt(parse_integer(text, ty)?),
        SqlType::Integer => Value::Integer(parse_integer(text, ty)?),
        SqlType::BigInt => Value::BigInt(parse_integer(text, ty)?),
        SqlType::Real => Value::Real(parse_real(text)?),
        SqlType::Double => Value::Double(parse_double(text)?),
        SqlType::Numeric { precision, scale } => {
            Value::Numeric { unscaled: numeric::parse_as(text, precision, scale)?, scale }
        }
        SqlType::Text | SqlType::Varchar(None) => Value::Text(text.to_owned()),
        SqlType::Varchar(Some(length)) => Value::Text(fit_varchar(text, length)?.to_owned()),
        SqlType::Char(length) => Value::Text(fit_char(text, length)?),
        SqlType::Bytea => Value::Bytea(parse_bytea(text)?),
        SqlType::Date => Value::Date(datetime::parse_date(text, style)?),
        SqlType::Time => Value::Time(datetime::parse_time(text)?),
        SqlType::Timestamp => Value::Timestamp(datetime::parse_timestamp(text, style)?),
        SqlType::TimestampTz => Value::TimestampTz(datetime::parse_timestamptz(text, style)?),
        SqlType::Interval => Value::Interval(interval::parse(text, style.intervals)?),
        SqlType::Uuid => Value::Uuid(parse_uuid(text)?),
    })
}

/// Reads a date or time, which may refer to the current time; other values as [`parse`] does.
pub fn parse_at(text: &str, ty: SqlType, present: datetime::Present<'_>) -> Result<Value> {
    Ok(match ty {
        SqlType::Date => Value::Date(datetime::parse_date_at(text, present)?),
        SqlType::Time => Value::Time(datetime::parse_time_at(text, present)?),
        SqlType::Timestamp => Value::Timestamp(datetime::parse_timestamp_at(text, present)?),
        SqlType::TimestampTz => Value::TimestampTz(datetime::parse_timestamptz_at(text, present)?),
        _ => return parse(text, ty, present.style),
    })
}

/// Appends a value as text; NULL appends nothing. The only property of `ty` (for an array, the type of the
/// elements) that matters is which decimals of a numeric are shown.
pub fn write(value: &Value, ty: SqlType, style: &TextStyle, out: &mut String) {
    match value {
        Value::Null => {}
        Value::Boolean(value) => out.push(if *value { 't' } else { 'f' }),
        Value::SmallInt(value) => write_integer(i64::from(*value), out),
        Value::Integer(value) => write_integer(i64::from(*value), out),
        Value::BigInt(value) => write_integer(*value, out),
        Value::Real(value) => write_real(*value, style, out),
        Value::Double(value) => write_double(*value, style, out),
        Value::Numeric { unscaled, scale } => {
            let (unscaled, scale) = numeric::shown(*unscaled, *scale, ty);
            numeric::write(unscaled, scale, out);
        }
        Value::Text(value) => out.push_str(value),
        Value::Bytea(value) => write_bytea(value, style.bytea, out),
        Value::Date(value) => datetime::write_date(*value, style, out),
        Value::Time(value) => datetime::write_time(*value, out),
        Value::Timestamp(value) => datetime::write_timestamp(*value, style, out),
        Value::TimestampTz(value) => datetime::write_timestamptz(*value, style, out),
        Value::Interval(value) => interval::write(value, style.intervals, out),
        Value::Uuid(value) => write_uuid(value, out),
        Value::Number(value) => value.write(out),
        Value::Oid(value) => write_integer(i64::from(*value), out),
        Value::Array(elements) => array::write(elements, ty, style, out),
    }
}

/// Reads a value of any type whose text needs no catalog; 0A000 for others.
pub fn parse_any(text: &str, ty: Type, style: &TextStyle) -> Result<Value> {
    if let Some(element) = ty.element() {
        return match ty.info().is_some_and(TypeInfo::is_array) {
            true => array::parse_any(text, element, style).map(Value::Array),
            false => parse_vector(text, element, style),
        };
    }
    match (ty.id, ty.representation()) {
        (_, Some(Representation::Numeric)) => {
            let value = Numeric::parse(text)?;
            Ok(Value::Number(match ty.precision_and_scale() {
                Some((precision, scale)) => value.fit(precision, scale)?,
                None => value,
            }))
        }
        (TypeId::OID | TypeId::XID | TypeId::CID, _) => parse_oid(text, ty).map(Value::Oid),
        (TypeId::NAME, _) => Ok(Value::Text(fit_name(text).to_owned())),
        (TypeId::JSON, _) => json::check(text).map(|()| Value::Text(text.to_owned())),
        (TypeId::TID, _) => parse_tid(text).map(Value::BigInt),
        (TypeId::PG_LSN, _) => parse_lsn(text).map(Value::BigInt),
        (TypeId::CHAR, _) => {
            let mut out = String::new();
            write_char(char_byte(text), &mut out);
            Ok(Value::Text(out))
        }
        (TypeId::XID8, _) => parse_integer(text, SqlType::BigInt).map(Value::BigInt),
        (TypeId::UNKNOWN | TypeId::CSTRING | TypeId::REFCURSOR, _) => Ok(Value::Text(text.to_owned())),
        // Without a length it is neither padded nor truncated.
        (TypeId::BPCHAR, _) if ty.length().is_none() => Ok(Value::Text(text.to_owned())),
        _ => parse(text, SqlType::try_from(ty)?, style),
    }
}

/// As [`parse_any`]; a date or time may refer to the current time.
pub fn parse_any_at(text: &str, ty: Type, present: datetime::Present<'_>) -> Result<Value> {
    match SqlType::try_from(ty) {
        Ok(single @ (SqlType::Date | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz)) => {
            parse_at(text, single, present)
        }
        _ => parse_any(text, ty, present.style),
    }
}

/// Appends a value of any type as text. Types whose names are in the catalog, such as `regclass`, are written
/// as numbers.
pub fn write_any(value: &Value, ty: Type, style: &TextStyle, out: &mut String) {
    match value {
        Value::Numeric { unscaled, scale } => numeric::write(*unscaled, *scale, out),
        Value::Array(vector) if matches!(ty.id, TypeId::INT2VECTOR | TypeId::OIDVECTOR) => {
            for (place, value) in vector.elements().iter().enumerate() {
                if place > 0 {
                    out.push(' ');
                }
                write_any(value, ty.element().unwrap_or(ty), style, out);
            }
        }
        Value::Array(array) => array::write_any(array, ty.element().unwrap_or(ty), style, out),
        Value::BigInt(value) if ty.id == TypeId::PG_LSN => write_lsn(*value, out),
        Value::BigInt(value) if ty.id == TypeId::TID => write_tid(*value, out),
        value => write(value, SqlType::Text, style, out),
    }
}

/// The text of `int2vector` and `oidvector`: numbers separated by blanks. Their indexes begin at 0.
fn parse_vector(text: &str, element: Type, style: &TextStyle) -> Result<Value> {
    let elements = text.split_ascii_whitespace().map(|number| parse_any(number, element, style));
    let elements: Vec<Value> = elements.collect::<Result<_>>()?;
    if elements.is_empty() {
        return Ok(Value::Array(ArrayValue::default()));
    }
    let dimension = Dimension { length: elements.len() as u32, lower: 0 };
    Ok(Value::Array(ArrayValue::new(vec![dimension], elements)))
}

/// A log position: the upper and the lower half of a number in hexadecimal digits.
pub fn parse_lsn(text: &str) -> Result<i64> {
    let half = |digits: &str| match digits.len() {
        1..=8 => u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')),
        _ => None,
    };
    let halves = text.split_once('/').and_then(|(upper, lower)| Some((half(upper)?, half(lower)?)));
    let (upper, lower) = halves.ok_or_else(|| invalid(Type::new(TypeId::PG_LSN), text))?;
    Ok((u64::from(upper) << 32 | u64::from(lower)) as i64)
}

/// Appends a log position.
pub fn write_lsn(place: i64, out: &mut String) {
    let place = place as u64;
    write!(out, "{:X}/{:X}", place >> 32, place as u32).expect("a write to a string succeeds");
}

/// The id of a row: its block and its slot in parentheses.
fn parse_tid(text: &str) -> Result<i64> {
    let inner = text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let numbers = inner.and_then(|inner| inner.split_once(','));
    let parsed = numbers.and_then(|(block, slot)| {
        let (block, slot) = (BlockNumber(block.trim().parse().ok()?), Slot(slot.trim().parse().ok()?));
        RowId::checked(block, slot)
    });
    let row = parsed.ok_or_else(|| invalid(Type::new(TypeId::TID), text))?;
    Ok(row.to_bits() as i64)
}

/// Appends the id of a row.
pub fn write_tid(bits: i64, out: &mut String) {
    let row = RowId::from_bits(bits as u64);
    write!(out, "({},{})", row.block().0, row.slot().0).expect("a write to a string succeeds");
}

/// An oid: digits, with a sign as C's `strtoul` accepts it.
fn parse_oid(text: &str, ty: Type) -> Result<u32> {
    let trimmed = text.trim_ascii();
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(ty, text));
    }
    let range = i64::from(i32::MIN)..=i64::from(u32::MAX);
    match trimmed.parse::<i64>().ok().filter(|value| range.contains(value)) {
        Some(value) => Ok(value as u32),
        None => Err(Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("value \"{text}\" is out of range for type {ty}"),
        )),
    }
}

/// The largest number of bytes of a name.
const NAME_BYTES: usize = 63;

/// The part of a string that fits into a name: whole characters of at most 63 bytes.
pub fn fit_name(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_BYTES)]
}

/// The value of a text as `"char"`: its first byte, or the one of three octal digits after a backslash.
pub fn char_byte(text: &str) -> u8 {
    match *text.as_bytes() {
        [b'\\', a @ b'0'..=b'7', b @ b'0'..=b'7', c @ b'0'..=b'7'] => {
            (a - b'0').wrapping_shl(6) | (b - b'0') << 3 | (c - b'0')
        }
        ref bytes => bytes.first().copied().unwrap_or(0),
    }
}

/// Appends a byte as the text of a `"char"`, which is also how such values are stored: zero is empty, and
/// bytes that are not a character are written in octal digits.
pub fn write_char(byte: u8, out: &mut String) {
    match byte {
        0 => {}
        1..0x80 => out.push(char::from(byte)),
        byte => write!(out, "\\{byte:03o}").expect("a write to a string succeeds"),
    }
}

/// Appends an integer.
pub fn write_integer(value: i64, out: &mut String) {
    const PAIRS: [[u8; 2]; 100] = {
        let mut pairs = [[0; 2]; 100];
        let mut number = 0;
        while number < 100 {
            pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
            number += 1;
        }
        pairs
    };
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = value.unsigned_abs();
    while rest >= 10 {
        start -= 2;
        digits[start..start + 2].copy_from_slice(&PAIRS[(rest % 100) as usize]);
        rest /= 100;
    }
    // The rest is the first digit, or nothing if a pair ended with it; zero has one digit, too.
    if rest > 0 || start == digits.len() {
        start -= 1;
        digits[start] = b'0' + rest as u8;
    }
    if value < 0 {
        out.push('-');
    }
    out.push_str(std::str::from_utf8(&digits[start..]).expect("digits are ASCII"));
}

#[cold]
fn invalid(ty: impl Display, text: &str) -> Error {
    Error::new(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type {ty}: \"{text}\""),
    )
}

#[cold]
fn out_of_range(ty: SqlType, text: &str) -> Error {
    Error::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value \"{text}\" is out of range for type {ty}"),
    )
}

/// `t`, `true`, `yes`, `on`, `1` and their opposites, and unambiguous prefixes of the words.
pub fn parse_boolean(text: &str) -> Result<bool> {
    let word = text.trim_ascii();
    let begins = |full: &str, least: usize| {
        word.len() >= least && full.len() >= word.len() && full[..word.len()].eq_ignore_ascii_case(word)
    };
    if !word.is_ascii() {
        return Err(invalid(SqlType::Boolean, text));
    }
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || word == "1" {
        Ok(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        Ok(false)
    } else {
        Err(invalid(SqlType::Boolean, text))
    }
}

/// An integer of the type `ty`, which has `T`'s range.
pub fn parse_integer<T: TryFrom<i64>>(text: &str, ty: SqlType) -> Result<T> {
    let trimmed = text.trim_ascii();
    let (negative, digits) = match trimmed.as_bytes().first() {
        Some(b'-') => (true, &trimmed.as_bytes()[1..]),
        Some(b'+') => (false, &trimmed.as_bytes()[1..]),
        _ => (false, trimmed.as_bytes()),
    };
    if digits.is_empty() {
        return Err(invalid(ty, text));
    }
    let mut value: Option<i64> = Some(0);
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(invalid(ty, text));
        }
        // Negative, because the smallest number has no positive counterpart.
        value = value.and_then(|value| value.checked_mul(10)?.checked_sub(i64::from(digit)));
    }
    let value = if negative { value } else { value.and_then(i64::checked_neg) };
    value.and_then(|value| T::try_from(value).ok()).ok_or_else(|| out_of_range(ty, text))
}

/// A double, with `NaN` and `Infinity`.
pub fn parse_double(text: &str) -> Result<f64> {
    let trimmed = text.trim_ascii();
    let value: f64 = float_words(trimmed)
        .map(Ok)
        .unwrap_or_else(|| trimmed.parse())
        .map_err(|_| invalid(SqlType::Double, text))?;
    match lost(trimmed, value.is_infinite(), value == 0.0) {
        true => Err(float_out_of_range(SqlType::Double, text)),
        false => Ok(value),
    }
}

/// A real, with `NaN` and `Infinity`.
pub fn parse_real(text: &str) -> Result<f32> {
    let trimmed = text.trim_ascii();
    let value: f32 = float_words(trimmed)
        .map(|value| Ok(value as f32))
        .unwrap_or_else(|| trimmed.parse())
        .map_err(|_| invalid(SqlType::Real, text))?;
    match lost(trimmed, value.is_infinite(), value == 0.0) {
        true => Err(float_out_of_range(SqlType::Real, text)),
        false => Ok(value),
    }
}

fn float_words(text: &str) -> Option<f64> {
    let (sign, word) = match text.strip_prefix('-') {
        Some(word) => (-1.0, word),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if word.eq_ignore_ascii_case("infinity") || word.eq_ignore_ascii_case("inf") {
        Some(sign * f64::INFINITY)
    } else if word.eq_ignore_ascii_case("nan") {
        Some(f64::NAN)
    } else {
        None
    }
}

/// Whether digits other than zero became infinity or zero.
fn lost(text: &str, infinite: bool, zero: bool) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let nonzero = mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    nonzero && (infinite || zero)
}

#[cold]
fn float_out_of_range(ty: SqlType, text: &str) -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("\"{text}\" is out of range for type {ty}"))
}

/// Appends a double, by default with the fewest digits that read back as the same value.
pub fn write_double(value: f64, style: &TextStyle, out: &mut String) {
    if !value.is_finite() {
        not_finite(value, out);
    } else if style.float_digits > 0 {
        shortest(scientific(&value, &mut [0; _]), 15, out);
    } else {
        rounded(&value, 15 + i32::from(style.float_digits), out);
    }
}

/// Appends a real, by default with the fewest digits that read back as the same value.
pub fn write_real(value: f32, style: &TextStyle, out: &mut String) {
    if !value.is_finite() {
        not_finite(f64::from(value), out);
    } else if style.float_digits > 0 {
        shortest(scientific(&value, &mut [0; _]), 6, out);
    } else {
        rounded(&value, 6 + i32::from(style.float_digits), out);
    }
}

/// Appends a number with `digits` digits, without trailing zeros: C's `%.*g`.
#[cold]
fn rounded(value: &dyn LowerExp, digits: i32, out: &mut String) {
    let digits = digits.max(1);
    let written = format!("{value:.*e}", digits as usize - 1);
    let (mantissa, exponent) = written.split_once('e').expect("Rust writes an exponent");
    let mantissa = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    shortest(&format!("{mantissa}e{exponent}"), digits, out);
}

fn not_finite(value: f64, out: &mut String) {
    out.push_str(if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    });
}

/// The longest is `-1.2345678901234567e-308`.
const SCIENTIFIC_BYTES: usize = 24;

/// A number as Rust's `d.ddde±x`, without an allocation for each.
fn scientific<'b>(value: &dyn LowerExp, buffer: &'b mut [u8; SCIENTIFIC_BYTES]) -> &'b str {
    let mut rest = &mut buffer[..];
    io::Write::write_fmt(&mut rest, format_args!("{value:e}")).expect("the longest fits");
    let length = SCIENTIFIC_BYTES - rest.len();
    std::str::from_utf8(&buffer[..length]).expect("digits are ASCII")
}

/// Rust's `d.ddde±x` in PostgreSQL's form: plain digits for exponents from -4 to below `limit`, otherwise an
/// exponent with its sign and at least two digits.
fn shortest(scientific: &str, limit: i32, out: &mut String) {
    let (mantissa, exponent) = scientific.split_once('e').expect("Rust writes an exponent");
    let exponent: i32 = exponent.parse().expect("Rust writes a number");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    out.push_str(sign);
    if exponent < -4 || exponent >= limit {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{mantissa}e{sign}{:02}", exponent.unsigned_abs()).expect("a write to a string succeeds");
        return;
    }
    let digits = mantissa.bytes().filter(|byte| *byte != b'.').map(char::from);
    let count = digits.clone().count() as i32;
    if exponent < 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', (-exponent - 1) as usize));
        out.extend(digits);
        return;
    }
    for (position, digit) in digits.enumerate() {
        if position as i32 == exponent + 1 {
            out.push('.');
        }
        out.push(digit);
    }
    out.extend(std::iter::repeat_n('0', (exponent + 1 - count).max(0) as usize));
}

/// A string of at most `length` characters; only blanks may be removed for that.
pub fn fit_varchar(text: &str, length: u32) -> Result<&str> {
    match end_of(text, length) {
        None => Ok(text),
        Some(end) if text[end..].bytes().all(|byte| byte == b' ') => Ok(&text[..end]),
        Some(_) => Err(too_long(SqlType::Varchar(Some(length)))),
    }
}

/// A string of exactly `length` characters, padded with blanks; only blanks may be removed.
pub fn fit_char(text: &str, length: u32) -> Result<String> {
    match end_of(text, length) {
        Some(end) if text[end..].bytes().all(|byte| byte == b' ') => Ok(text[..end].to_owned()),
        Some(_) => Err(too_long(SqlType::Char(length))),
        None => Ok(pad(text, length)),
    }
}

/// The string padded with blanks to `length` characters.
pub(crate) fn pad(text: &str, length: u32) -> String {
    let missing = (length as usize).saturating_sub(text.chars().count());
    let mut padded = String::with_capacity(text.len() + missing);
    padded.push_str(text);
    padded.extend(std::iter::repeat_n(' ', missing));
    padded
}

/// The position after the first `length` characters, if there are more.
pub(crate) fn end_of(text: &str, length: u32) -> Option<usize> {
    // Never more characters than bytes.
    if text.len() <= length as usize {
        return None;
    }
    text.char_indices().nth(length as usize).map(|(position, _)| position)
}

#[cold]
fn too_long(ty: SqlType) -> Error {
    Error::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, format!("value too long for type {ty}"))
}

/// Reads bytes in hexadecimal (`\x0aff`) or with escapes (`a\\\012`).
pub fn parse_bytea(text: &str) -> Result<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(hex) => parse_hex(hex),
        None => parse_escapes(text.as_bytes()).ok_or_else(|| {
            Error::new(SqlState::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type bytea")
        }),
    }
}

fn parse_hex(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut characters = text.chars();
    let digit = |character: char| {
        character.to_digit(16).map(|digit| digit as u8).ok_or_else(|| {
            Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid hexadecimal digit: \"{character}\""),
            )
        })
    };
    while let Some(character) = characters.next() {
        // Blanks are allowed between bytes, not within one.
        if character.is_ascii_whitespace() {
            continue;
        }
        let high = digit(character)?;
        let low = characters.next().ok_or_else(|| {
            Error::new(SqlState::INVALID_PARAMETER_VALUE, "invalid hexadecimal data: odd number of digits")
        })?;
        bytes.push(high << 4 | digit(low)?);
    }
    Ok(bytes)
}

fn parse_escapes(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((&first, rest)) = text.split_first() {
        text = rest;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        match *text {
            [b'\\', ..] => {
                bytes.push(b'\\');
                text = &text[1..];
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                text = &text[3..];
            }
            _ => return None,
        }
    }
    Some(bytes)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends bytes in hexadecimal after `\x`.
pub fn write_bytea(bytes: &[u8], style: ByteaStyle, out: &mut String) {
    if style == ByteaStyle::Escape {
        return write_escapes(bytes, out);
    }
    out.reserve(2 + 2 * bytes.len());
    out.push_str("\\x");
    for byte in bytes {
        push_hex(*byte, out);
    }
}

/// Appends printable bytes as they are, backslashes doubled, and others as three octal digits.
fn write_escapes(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0x20..=0x7e => out.push(char::from(*byte)),
            byte => write!(out, "\\{byte:03o}").expect("a write to a string succeeds"),
        }
    }
}

fn push_hex(byte: u8, out: &mut String) {
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

/// Reads a UUID in any of PostgreSQL's forms: hyphens after any four digits or none, braces or none.
pub fn parse_uuid(text: &str) -> Result<[u8; 16]> {
    uuid(text.as_bytes()).ok_or_else(|| invalid(SqlType::Uuid, text))
}

fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let mut rest = match text {
        [b'{', inner @ .., b'}'] => inner,
        [b'{', ..] => return None,
        _ => text,
    };
    let mut bytes = [0; 16];
    for (position, byte) in bytes.iter_mut().enumerate() {
        let &[high, low, ..] = rest else { return None };
        let digit = |character: u8| char::from(character).to_digit(16);
        *byte = (digit(high)? << 4 | digit(low)?) as u8;
        rest = &rest[2..];
        if position % 2 == 1 && position < 15 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
    }
    rest.is_empty().then_some(bytes)
}

/// Appends a UUID in its standard form.
pub fn write_uuid(bytes: &[u8; 16], out: &mut String) {
    for (position, byte) in bytes.iter().enumerate() {
        if matches!(position, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        push_hex(*byte, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(text: &str, ty: SqlType) -> String {
        let mut out = String::new();
        match parse(text, ty, &TextStyle::DEFAULT) {
            Ok(value) => write(&value, ty, &TextStyle::DEFAULT, &mut out),
            Err(error) => out = format!("{} {}", error.state(), error.message()),
        }
        out
    }

    #[test]
    fn whole_numbers_are_written_as_rust_writes_them() {
        let powers = (0..19).map(|exponent| 10i64.pow(exponent));
        let around =
            powers.flat_map(|power| [power - 1, power, power + 1, power * 9, power.wrapping_mul(37)]);
        for value in around.chain([i64::MAX, i64::MIN, i64::MIN + 1]) {
            for value in [value, value.wrapping_neg()] {
                let mut out = String::from("=");
                write_integer(value, &mut out);
                assert_eq!(out, format!("={value}"));
            }
        }
    }

    #[test]
    fn values_are_read_and_written_like_postgres_does() {
        let money = SqlType::Numeric { precision: 12, scale: 2 };
        let cases = [
            (SqlType::Boolean, " TRUE ", "t"),
            (SqlType::Boolean, "n", "f"),
            (SqlType::Boolean, "of", "f"),
            (SqlType::Boolean, "o", "22P02 invalid input syntax for type boolean: \"o\""),
            (SqlType::Boolean, "", "22P02 invalid input syntax for type boolean: \"\""),
            (SqlType::Integer, " -42 ", "-42"),
            (SqlType::Integer, "+7", "7"),
            (SqlType::Integer, "x", "22P02 invalid input syntax for type integer: \"x\""),
            (SqlType::Integer, "1.5", "22P02 invalid input syntax for type integer: \"1.5\""),
            (SqlType::Integer, "2147483648", "22003 value \"2147483648\" is out of range for type integer"),
            (SqlType::SmallInt, "-32768", "-32768"),
            (SqlType::BigInt, "-9223372036854775808", "-9223372036854775808"),
            (
                SqlType::BigInt,
                "9223372036854775808",
                "22003 value \"9223372036854775808\" is out of range for type bigint",
            ),
            (SqlType::Double, "1e15", "1e+15"),
            (SqlType::Double, "100000000000000", "100000000000000"),
            (SqlType::Double, "0.0001", "0.0001"),
            (SqlType::Double, "0.00001", "1e-05"),
            (SqlType::Double, "-0", "-0"),
            (SqlType::Double, "0.1", "0.1"),
            (SqlType::Double, "123456789.125", "123456789.125"),
            (SqlType::Double, "1e300", "1e+300"),
            (SqlType::Double, "inf", "Infinity"),
            (SqlType::Double, "nan", "NaN"),
            (SqlType::Double, "1e400", "22003 \"1e400\" is out of range for type double precision"),
            (SqlType::Double, "1e-400", "22003 \"1e-400\" is out of range for type double precision"),
            (SqlType::Real, "1234567", "1.234567e+06"),
            (SqlType::Real, "123456", "123456"),
            (SqlType::Real, "0.1", "0.1"),
            (money, "1.005", "1.01"),
            (money, "7", "7.00"),
            (SqlType::NUMERIC, "1.500", "1.5"),
            (SqlType::NUMERIC, "100", "100"),
            (SqlType::Varchar(Some(3)), "abc  ", "abc"),
            (SqlType::Varchar(Some(3)), "abcd", "22001 value too long for type character varying(3)"),
            (SqlType::Varchar(Some(3)), "äöü", "äöü"),
            (SqlType::Char(3), "ä", "ä  "),
            (SqlType::Char(3), "abc ", "abc"),
            (SqlType::Char(1), "ab", "22001 value too long for type character(1)"),
            (SqlType::Bytea, "\\x00 fF", "\\x00ff"),
            (SqlType::Bytea, "a\\\\\\001", "\\x615c01"),
            (SqlType::Bytea, "\\x0", "22023 invalid hexadecimal data: odd number of digits"),
            (SqlType::Bytea, "\\x0g", "22023 invalid hexadecimal digit: \"g\""),
            (SqlType::Bytea, "\\9", "22P02 invalid input syntax for type bytea"),
            (SqlType::Uuid, "{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            (SqlType::Uuid, "a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            (SqlType::Uuid, "a0ee", "22P02 invalid input syntax for type uuid: \"a0ee\""),
            (SqlType::Timestamp, "2024-01-31 02:03:04.50", "2024-01-31 02:03:04.5"),
        ];
        for (ty, text, written) in cases {
            assert_eq!(through(text, ty), written, "{text} as {ty}");
        }
    }
}
