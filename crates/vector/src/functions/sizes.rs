//! Sizes of values, and sizes as people write them.

use crate::Datum;
use crate::kernel::{Rest, Text};
use crate::registry::RegistryBuilder;
use firn_base::numeric::Numeric;
use firn_base::{Error, Result, SqlState};
use std::fmt::Write;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<Rest, _>("pg_column_size(any)", |call, arguments| {
        let length = call.signature.arguments[0].info().map_or(-1, |info| info.length);
        match arguments.get(0) {
            Datum::Null => None,
            _ if length > 0 => Some(i32::from(length)),
            value => Some(HEADER + bytes(&value)),
        }
    });
    builder.scalar::<(i64,), _>("pg_size_pretty(int8)", |call, (bytes,)| {
        pretty(i128::from(bytes), &mut call.text);
        Text
    });
    builder.scalar::<(Numeric,), _>("pg_size_pretty(numeric)", |call, (bytes,)| {
        let mut digits = String::new();
        bytes.write(&mut digits);
        match digits.split('.').next().and_then(|whole| whole.parse::<i128>().ok()) {
            Some(whole) if whole.abs() >= MOST || !digits.contains('.') => pretty(whole, &mut call.text),
            _ => write!(call.text, "{digits} bytes").expect("strings take all"),
        }
        Text
    });
    builder.scalar::<(&str,), _>("pg_size_bytes(text)", |_, (text,)| size(text));
}

/// The bytes of PostgreSQL's values of varying length before their contents.
const HEADER: i32 = 4;

/// Bytes of a value's contents.
fn bytes(value: &Datum<'_>) -> i32 {
    match value {
        Datum::Text(text) => text.len() as i32,
        Datum::Bytes(bytes) => bytes.len() as i32,
        Datum::List(list) => list.iter().map(|element| HEADER + bytes(&element)).sum(),
        Datum::Record(record) => (0..record.len()).map(|field| HEADER + bytes(&record.get(field).1)).sum(),
        Datum::Null => 0,
        _ => 8,
    }
}

/// The units, with the number of bytes up to which they are used and that of one of them.
const UNITS: [(&str, u32); 6] = [("bytes", 0), ("kB", 10), ("MB", 20), ("GB", 30), ("TB", 40), ("PB", 50)];
/// So many of a unit are written in the next one.
const MOST: i128 = 10 * 1024;

/// Writes a number of bytes in the largest unit of which there are at least 10, rounded half away from zero.
fn pretty(bytes: i128, out: &mut String) {
    let rounded = |shift: u32| match shift {
        0 => bytes,
        shift => {
            let half = 1i128 << (shift - 1);
            ((bytes.abs() + half) >> shift) * bytes.signum()
        }
    };
    let fitting = UNITS.iter().find(|(_, shift)| rounded(*shift).abs() < MOST);
    let (unit, shift) = fitting.unwrap_or(&UNITS[UNITS.len() - 1]);
    write!(out, "{} {unit}", rounded(*shift)).expect("strings take all");
}

/// Reads a number of bytes with a unit behind it.
fn size(text: &str) -> Result<i64> {
    let invalid = || Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid size: \"{text}\""));
    let trimmed = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
    let mut end = trimmed.find(|c| !is_number(c)).unwrap_or(trimmed.len());
    // An exponent needs digits behind it, else it begins a unit.
    if let Some(exponent) = trimmed[end..].strip_prefix(['e', 'E']) {
        let digits = exponent.trim_start_matches(['+', '-']);
        if digits.starts_with(|c: char| c.is_ascii_digit()) {
            let signs = exponent.len() - digits.len();
            end += 1 + signs + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        }
    }
    let (number, unit) = trimmed.split_at(end);
    let unit = unit.trim();
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "bytes" => 0,
        lower => UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(lower))
            .map(|(_, shift)| *shift)
            .ok_or_else(|| {
                invalid()
                    .with_detail(format!("Invalid size unit: \"{unit}\"."))
                    .with_hint("Valid units are \"bytes\", \"kB\", \"MB\", \"GB\", \"TB\", and \"PB\".")
            })?,
    };
    let number: f64 = number.parse().map_err(|_| invalid())?;
    let bytes = (number * (1u64 << shift) as f64).round();
    if !(i64::MIN as f64..i64::MAX as f64).contains(&bytes) {
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range"));
    }
    Ok(bytes as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those of PostgreSQL 15.
    #[test]
    fn sizes_are_written_in_the_largest_unit_with_two_digits_and_read_with_any() {
        let cases = [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (-10_240, "-10 kB"),
            (10_485_247, "10239 kB"),
            (10_485_248, "10 MB"),
            (i64::MAX, "8192 PB"),
        ];
        for (bytes, expected) in cases {
            let mut text = String::new();
            pretty(bytes.into(), &mut text);
            assert_eq!(text, expected);
        }
        for (text, bytes) in
            [("1 kB", 1024), ("1.5 MB", 1_572_864), ("-1GB", -1_073_741_824), ("1e3", 1000), (" 7 bytes ", 7)]
        {
            assert_eq!(size(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "kB", "1 XB", "1.2.3"] {
            assert_eq!(size(text).unwrap_err().state(), SqlState::INVALID_PARAMETER_VALUE, "{text}");
        }
    }
}
