//! Values in PostgreSQL's binary format, as used by its wire protocol and binary COPY: big-endian, dates and
//! timestamps counted from 2000-01-01, numerics in digits of base 10,000.

use crate::array;
use crate::data_type::{Type, TypeId};
use crate::datetime::{
    MICROS_PER_DAY, POSTGRES_EPOCH_DAYS, check_date, check_timestamp, is_finite, is_finite_date,
};
use crate::error::{Error, Result, SqlState};
use crate::numeric::{self, Numeric, POWERS};
use crate::operators::{one_nan, one_nan_real};
use crate::representation::Representation;
use crate::text;
use crate::types::SqlType;
use crate::value::{Interval, Value};
use std::fmt::Display;

const POSTGRES_EPOCH_MICROS: i64 = POSTGRES_EPOCH_DAYS as i64 * MICROS_PER_DAY;

// numeric: i16 digit count, i16 weight of the first digit, u16 sign, i16 decimals to show, digits.
const NUMERIC_POSITIVE: u16 = 0x0000;
const NUMERIC_NEGATIVE: u16 = 0x4000;
const NUMERIC_HEADER: usize = 8;

/// Appends a value without its length. NULL appends nothing; the caller writes its length of -1. `ty` (for an
/// array, the type of the elements) matters only for plain `numeric`, which is sent without zeros at the end.
pub fn encode(value: &Value, ty: SqlType, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Boolean(value) => out.push(u8::from(*value)),
        Value::SmallInt(value) => out.extend(value.to_be_bytes()),
        Value::Integer(value) => out.extend(value.to_be_bytes()),
        Value::BigInt(value) => out.extend(value.to_be_bytes()),
        Value::Real(value) => out.extend(value.to_be_bytes()),
        Value::Double(value) => out.extend(value.to_be_bytes()),
        Value::Numeric { unscaled, scale } => {
            let (unscaled, scale) = numeric::shown(*unscaled, *scale, ty);
            encode_numeric(unscaled, scale, out);
        }
        Value::Text(value) => out.extend(value.as_bytes()),
        Value::Bytea(value) => out.extend(value),
        Value::Date(value) => out.extend(date(*value)),
        Value::Time(value) => out.extend(value.to_be_bytes()),
        Value::Timestamp(value) | Value::TimestampTz(value) => out.extend(timestamp(*value)),
        Value::Interval(value) => out.extend(interval(value)),
        Value::Uuid(value) => out.extend(value),
        Value::Number(value) => value.encode(out),
        Value::Oid(value) => out.extend(value.to_be_bytes()),
        Value::Array(array) => array::encode_any(array, ty.into(), out),
    }
}

/// Appends a value of any type without its length. NULL appends nothing; the caller writes its length of -1.
pub fn encode_any(value: &Value, ty: Type, out: &mut Vec<u8>) {
    match value {
        Value::Numeric { unscaled, scale } => encode_numeric(*unscaled, *scale, out),
        Value::Array(array) => array::encode_any(array, ty.element().unwrap_or(ty), out),
        value => encode(value, SqlType::Text, out),
    }
}

/// Reads a value of any type; 22P03 if the bytes are not valid, 0A000 for types that have no binary format
/// here.
pub fn decode_any(bytes: &[u8], ty: Type) -> Result<Value> {
    if let Some(element) = ty.element() {
        return array::decode_any(bytes, element).map(Value::Array);
    }
    match (ty.id, ty.representation()) {
        (_, Some(Representation::Numeric)) => {
            let value = Numeric::decode(bytes)?;
            Ok(Value::Number(match ty.precision_and_scale() {
                Some((precision, scale)) => value.fit(precision, scale)?,
                None => value,
            }))
        }
        (_, Some(Representation::Oid)) => {
            let bytes = bytes.try_into().map_err(|_| malformed(ty))?;
            Ok(Value::Oid(u32::from_be_bytes(bytes)))
        }
        (TypeId::NAME, _) => Ok(Value::Text(text::fit_name(utf8(bytes)?).to_owned())),
        (TypeId::CHAR, _) => {
            let mut text = String::new();
            text::write_char(bytes.first().copied().unwrap_or(0), &mut text);
            Ok(Value::Text(text))
        }
        (TypeId::XID8, _) => Ok(Value::BigInt(i64::from_be_bytes(fixed(bytes, SqlType::BigInt)?))),
        (TypeId::UNKNOWN | TypeId::CSTRING | TypeId::REFCURSOR, _) => {
            Ok(Value::Text(utf8(bytes)?.to_owned()))
        }
        // Without a length it is neither padded nor truncated.
        (TypeId::BPCHAR, _) if ty.length().is_none() => Ok(Value::Text(utf8(bytes)?.to_owned())),
        _ => decode(bytes, SqlType::try_from(ty)?),
    }
}

/// Reads a value of type `ty`; 22P03 if the bytes are not valid.
pub fn decode(bytes: &[u8], ty: SqlType) -> Result<Value> {
    Ok(match ty {
        SqlType::Boolean => Value::Boolean(fixed::<1>(bytes, ty)?[0] != 0),
        SqlType::SmallInt => Value::SmallInt(i16::from_be_bytes(fixed(bytes, ty)?)),
        SqlType::Integer => Value::Integer(i32::from_be_bytes(fixed(bytes, ty)?)),
        SqlType::BigInt => Value::BigInt(i64::from_be_bytes(fixed(bytes, ty)?)),
        SqlType::Real => Value::Real(one_nan_real(f32::from_be_bytes(fixed(bytes, ty)?))),
        SqlType::Double => Value::Double(one_nan(f64::from_be_bytes(fixed(bytes, ty)?))),
        SqlType::Numeric { precision, scale } => {
            let (unscaled, from) = decode_numeric(bytes, ty)?;
            Value::Numeric { unscaled: numeric::fit(unscaled, from, precision, scale)?, scale }
        }
        SqlType::Text | SqlType::Varchar(None) => Value::Text(utf8(bytes)?.to_owned()),
        SqlType::Varchar(Some(length)) => Value::Text(text::fit_varchar(utf8(bytes)?, length)?.to_owned()),
        SqlType::Char(length) => Value::Text(text::fit_char(utf8(bytes)?, length)?),
        SqlType::Bytea => Value::Bytea(bytes.to_owned()),
        SqlType::Date => {
            let days = i32::from_be_bytes(fixed(bytes, ty)?);
            Value::Date(match is_finite_date(days) {
                true => check_date(i64::from(days) + i64::from(POSTGRES_EPOCH_DAYS))?,
                false => days,
            })
        }
        SqlType::Time => {
            let micros = i64::from_be_bytes(fixed(bytes, ty)?);
            if !(0..=MICROS_PER_DAY).contains(&micros) {
                return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "time out of range"));
            }
            Value::Time(micros)
        }
        SqlType::Timestamp => Value::Timestamp(decode_moment(fixed(bytes, ty)?)?),
        SqlType::TimestampTz => Value::TimestampTz(decode_moment(fixed(bytes, ty)?)?),
        SqlType::Interval => {
            let bytes: [u8; 16] = fixed(bytes, ty)?;
            let (micros, rest) = bytes.split_at(8);
            let (days, months) = rest.split_at(4);
            let word = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("4 bytes"));
            let micros = i64::from_be_bytes(micros.try_into().expect("8 bytes"));
            Value::Interval(Interval::from_parts(word(months), word(days), micros)?)
        }
        SqlType::Uuid => Value::Uuid(fixed(bytes, ty)?),
    })
}

fn decode_moment(bytes: [u8; 8]) -> Result<i64> {
    match i64::from_be_bytes(bytes) {
        micros if !is_finite(micros) => Ok(micros),
        micros => check_timestamp(micros.checked_add(POSTGRES_EPOCH_MICROS)),
    }
}

fn fixed<const N: usize>(bytes: &[u8], ty: SqlType) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| {
        malformed(ty).with_detail(format!("Expected {N} bytes for type {ty}, got {}.", bytes.len()))
    })
}

#[cold]
fn malformed(ty: impl Display) -> Error {
    Error::new(SqlState::INVALID_BINARY_REPRESENTATION, format!("incorrect binary data format for type {ty}"))
}

/// The characters of a text value; 22021 if they are not UTF-8 or contain a NUL, which PostgreSQL's strings
/// cannot.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    let invalid = |at: &[u8]| {
        let shown: Vec<String> = at.iter().take(4).map(|byte| format!("0x{byte:02x}")).collect();
        Error::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
        )
    };
    match std::str::from_utf8(bytes) {
        Ok(_) if bytes.contains(&0) => Err(invalid(&[0])),
        Ok(text) => Ok(text),
        Err(error) => {
            let start = error.valid_up_to();
            let end = error.error_len().map_or(bytes.len(), |length| start + length);
            Err(invalid(&bytes[start..end]))
        }
    }
}

/// A date, in days since 1970.
#[inline]
pub fn date(days: i32) -> [u8; 4] {
    // Years before 4713 BC, the only ones to underflow here, are not valid dates.
    if is_finite_date(days) { (days - POSTGRES_EPOCH_DAYS).to_be_bytes() } else { days.to_be_bytes() }
}

/// A timestamp with or without time zone, in microseconds since 1970.
#[inline]
pub fn timestamp(micros: i64) -> [u8; 8] {
    if is_finite(micros) { (micros - POSTGRES_EPOCH_MICROS).to_be_bytes() } else { micros.to_be_bytes() }
}

/// An interval.
#[inline]
pub fn interval(value: &Interval) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&value.microseconds().to_be_bytes());
    bytes[8..12].copy_from_slice(&value.days.to_be_bytes());
    bytes[12..].copy_from_slice(&value.months.to_be_bytes());
    bytes
}

fn encode_numeric(unscaled: i128, scale: u8, out: &mut Vec<u8>) {
    let magnitude = unscaled.unsigned_abs();
    // The number of decimals to complete a digit of base 10,000.
    let missing = usize::from((4 - scale % 4) % 4);
    let shifted = u64::try_from(magnitude).ok().and_then(|word| word.checked_mul(POWERS[missing] as u64));
    match shifted {
        Some(shifted) => encode_word(shifted, unscaled < 0, scale, out),
        None => encode_wide(magnitude, unscaled < 0, scale, out),
    }
}

/// A numeric whose digits, with the last four decimals padded with zeros, fit into a word.
fn encode_word(mut shifted: u64, is_negative: bool, scale: u8, out: &mut Vec<u8>) {
    // A word has 20 decimal places.
    let mut digits = [0u16; 5];
    let mut first = digits.len();
    let mut last = digits.len();
    while shifted > 0 {
        first -= 1;
        digits[first] = (shifted % 10_000) as u16;
        shifted /= 10_000;
        if digits[first] == 0 && last == first + 1 {
            last = first;
        }
    }
    // Digits after the point, including or excluding the last ones.
    let decimals = scale.div_ceil(4) as i16;
    let weight = if first == last { 0 } else { (digits.len() - first) as i16 - 1 - decimals };
    put_numeric(&digits[first..last], weight, is_negative, scale, out);
}

fn put_numeric(digits: &[u16], weight: i16, is_negative: bool, scale: u8, out: &mut Vec<u8>) {
    out.extend((digits.len() as i16).to_be_bytes());
    out.extend(weight.to_be_bytes());
    out.extend(if is_negative { NUMERIC_NEGATIVE } else { NUMERIC_POSITIVE }.to_be_bytes());
    out.extend(u16::from(scale).to_be_bytes());
    for digit in digits {
        out.extend(digit.to_be_bytes());
    }
}

fn encode_wide(magnitude: u128, is_negative: bool, scale: u8, out: &mut Vec<u8>) {
    let power = POWERS[usize::from(scale)].unsigned_abs();
    let (mut whole, fraction) = (magnitude / power, magnitude % power);
    // At most 10 digits before the point and 10 after it.
    let mut digits = [0u16; 20];
    let mut first = 10;
    while whole > 0 {
        first -= 1;
        digits[first] = (whole % 10_000) as u16;
        whole /= 10_000;
    }
    let mut last = 10;
    let mut fraction = fraction;
    let mut remaining = u32::from(scale);
    while fraction > 0 {
        // The next four decimals.
        let digit = if remaining > 4 {
            let power = POWERS[remaining as usize - 4].unsigned_abs();
            let digit = fraction / power;
            fraction %= power;
            remaining -= 4;
            digit
        } else {
            let digit = fraction * POWERS[4 - remaining as usize].unsigned_abs();
            fraction = 0;
            digit
        };
        digits[last] = digit as u16;
        last += 1;
    }
    while first < last && digits[first] == 0 {
        first += 1;
    }
    while last > first && digits[last - 1] == 0 {
        last -= 1;
    }
    let weight = if first == last { 0 } else { 10 - first as i16 - 1 };
    put_numeric(&digits[first..last], weight, is_negative, scale, out);
}

/// The number with at least as many decimals as it shows, limited to 38 digits.
fn decode_numeric(bytes: &[u8], ty: SqlType) -> Result<(i128, u8)> {
    let Some((header, digits)) = bytes.split_at_checked(NUMERIC_HEADER) else {
        return Err(malformed(ty));
    };
    let word = |position: usize| u16::from_be_bytes([header[2 * position], header[2 * position + 1]]);
    let (count, weight, sign, shown) = (word(0), word(1) as i16, word(2), word(3));
    let negative = match sign {
        NUMERIC_POSITIVE => false,
        NUMERIC_NEGATIVE => true,
        0xC000 | 0xD000 | 0xF000 => {
            return Err(Error::unsupported("the numeric NaN or infinity")
                .with_hint("Use double precision for NaN and infinity."));
        }
        _ => return Err(malformed(ty)),
    };
    if digits.len() != usize::from(count) * 2 {
        return Err(malformed(ty));
    }
    let shown = shown.min(u16::from(numeric::MAX_PRECISION)) as u8;
    let mut unscaled: i128 = 0;
    // Digits below the shown scale are truncated, as in PostgreSQL.
    for (position, pair) in digits.chunks_exact(2).enumerate() {
        let digit = i128::from(u16::from_be_bytes([pair[0], pair[1]]));
        if digit > 9_999 {
            return Err(malformed(ty));
        }
        let exponent = (i32::from(weight) - position as i32) * 4 + i32::from(shown);
        let part = match exponent {
            0.. if digit == 0 => 0,
            0.. => numeric::power_of_ten(exponent as u32)
                .and_then(|power| digit.checked_mul(power))
                .ok_or_else(numeric::overflow)?,
            -3..0 => digit / POWERS[-exponent as usize],
            _ => 0,
        };
        unscaled = unscaled.checked_add(part).ok_or_else(numeric::overflow)?;
    }
    Ok((if negative { -unscaled } else { unscaled }, shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text_style::TextStyle;

    /// Expected bytes come from PostgreSQL 15's `…send` functions.
    #[test]
    fn numerics_are_sent_alike_however_their_digits_are_found() {
        let mut random = crate::random::Random::seeded(3);
        for _ in 0..20_000 {
            let scale = random.uniform(0, 38) as u8;
            let magnitude = random.next_u64() >> random.uniform(0, 63);
            // Often with zeros at the end.
            let zeros = 10u64.pow(random.uniform(0, 12) as u32);
            let magnitude = magnitude / zeros * zeros;
            let missing = usize::from((4 - scale % 4) % 4);
            let Some(shifted) = magnitude.checked_mul(POWERS[missing] as u64) else { continue };
            let [mut short, mut long] = [Vec::new(), Vec::new()];
            encode_word(shifted, false, scale, &mut short);
            encode_wide(magnitude.into(), false, scale, &mut long);
            assert_eq!(short, long, "{magnitude} with {scale} decimals");
        }
    }

    #[test]
    fn values_have_the_bytes_that_postgres_sends() {
        let cases = [
            (SqlType::Boolean, "t", "\\x01"),
            (SqlType::SmallInt, "-2", "\\xfffe"),
            (SqlType::Integer, "258", "\\x00000102"),
            (SqlType::BigInt, "-1", "\\xffffffffffffffff"),
            (SqlType::Real, "1.5", "\\x3fc00000"),
            (SqlType::Double, "-1.5", "\\xbff8000000000000"),
            (SqlType::Numeric { precision: 12, scale: 2 }, "12345.60", "\\x00030001000000020001092917 70"),
            (SqlType::Numeric { precision: 12, scale: 2 }, "0", "\\x0000000000000002"),
            (SqlType::Numeric { precision: 12, scale: 5 }, "-0.00012", "\\x0002ffff40000005000107d0"),
            (SqlType::NUMERIC, "10000", "\\x00010001000000000001"),
            (SqlType::Text, "hi", "\\x6869"),
            (SqlType::Date, "2000-01-02", "\\x00000001"),
            (SqlType::Date, "1999-12-31", "\\xffffffff"),
            (SqlType::Time, "00:00:01", "\\x00000000000f4240"),
            (SqlType::Timestamp, "2000-01-01 00:00:01", "\\x00000000000f4240"),
            (SqlType::TimestampTz, "2000-01-01 01:00:01+01", "\\x00000000000f4240"),
            (SqlType::Interval, "1 mon 2 days 00:00:01", "\\x00000000000f42400000000200000001"),
        ];
        for (ty, written, bytes) in cases {
            let value = text::parse(written, ty, &TextStyle::DEFAULT).unwrap();
            let mut encoded = Vec::new();
            encode(&value, ty, &mut encoded);
            assert_eq!(encoded, text::parse_bytea(bytes).unwrap(), "{written} as {ty}");
            assert_eq!(decode(&encoded, ty).unwrap(), value, "{written} as {ty}");
        }
    }

    #[test]
    fn of_nans_with_a_sign_one_without_is_read() {
        let bits = |value| match value {
            Value::Real(value) => u64::from(value.to_bits()),
            Value::Double(value) => value.to_bits(),
            other => panic!("{other:?} is not a float"),
        };
        let real = decode(&(-f32::NAN).to_be_bytes(), SqlType::Real).unwrap();
        assert_eq!(bits(real), u64::from(f32::NAN.to_bits()));
        let double = decode(&(-f64::NAN).to_be_bytes(), SqlType::Double).unwrap();
        assert_eq!(bits(double), f64::NAN.to_bits());
    }

    #[test]
    fn numerics_of_every_scale_survive_the_way_out_and_back() {
        for scale in 0..=38 {
            for unscaled in [1, -9, 10_001, 99_999_999, 12_345_678_901_234_567_890, POWERS[38] - 1] {
                let ty = SqlType::Numeric { precision: 38, scale };
                let value = Value::Numeric { unscaled, scale };
                let mut bytes = Vec::new();
                encode_numeric(unscaled, scale, &mut bytes);
                assert_eq!(decode(&bytes, ty).unwrap(), value, "{value:?}");
            }
        }
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let state = |bytes: &[u8], ty| decode(bytes, ty).unwrap_err().state();
        assert_eq!(state(&[1, 2, 3], SqlType::Integer), SqlState::INVALID_BINARY_REPRESENTATION);
        assert_eq!(state(&[], SqlType::Boolean), SqlState::INVALID_BINARY_REPRESENTATION);
        assert_eq!(state(&[0, 1], SqlType::NUMERIC), SqlState::INVALID_BINARY_REPRESENTATION);
        assert_eq!(
            state(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10], SqlType::NUMERIC),
            SqlState::INVALID_BINARY_REPRESENTATION
        );
        assert_eq!(
            state(&[0, 1, 0x7f, 0, 0, 0, 0, 0, 0, 1], SqlType::NUMERIC),
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE
        );
        assert_eq!(state(&[0xff], SqlType::Text), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
        assert_eq!(state(&[b'a', 0], SqlType::Text), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
        assert_eq!(
            state(&(i64::MAX - 1).to_be_bytes(), SqlType::Timestamp),
            SqlState::DATETIME_FIELD_OVERFLOW
        );
        assert_eq!(state(&(i32::MAX - 1).to_be_bytes(), SqlType::Date), SqlState::DATETIME_FIELD_OVERFLOW);
    }

    #[test]
    fn infinities_are_the_same_numbers_on_both_sides() {
        for micros in [i64::MAX, i64::MIN] {
            assert_eq!(timestamp(micros), micros.to_be_bytes());
            assert_eq!(decode(&micros.to_be_bytes(), SqlType::Timestamp).unwrap(), Value::Timestamp(micros));
        }
        for days in [i32::MAX, i32::MIN] {
            assert_eq!(date(days), days.to_be_bytes());
            assert_eq!(decode(&days.to_be_bytes(), SqlType::Date).unwrap(), Value::Date(days));
        }
    }
}
