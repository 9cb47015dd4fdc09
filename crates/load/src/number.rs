//! The quick ways to read numbers and dates from a file, eight digits at a time.
//!
//! Each function gets the bytes around the field, so that it may load words that begin before it. It returns `None` for every
//! form that it does not support. Rare spellings and errors are left to the general parser, which alone defines what is valid
//! (`firn_base::text` and its neighbours). The tests compare the two.
//!
//! Mühlbauer (dissertation, TU München 2016, §3.3.3) validates digits with SSE 4.2 and folds them one by one. Here eight in a
//! word are validated and folded in a dozen operations (Langdale and Lemire, "Parsing gigabytes of JSON per second", VLDB
//! Journal 28, 2019, §3.2.1).

use firn_base::datetime::days_from_civil;
use std::ops::Range;

/// `0` eight times.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The value of eight digits.
#[inline(always)]
fn eight(word: u64) -> Option<u64> {
    let high = 0xf0f0_f0f0_f0f0_f0f0;
    // The high half of a digit is 3, also after six is added.
    let outside = (word & high) ^ ZEROS | (word.wrapping_add(0x0606_0606_0606_0606) & high) ^ ZEROS;
    // Neighbours are folded into pairs, fours and all eight; the first byte has the highest place.
    let pairs = (word & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul((10 << 8) + 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul((100 << 16) + 1) >> 16 & 0x0000_ffff_0000_ffff;
    let all = fours.wrapping_mul((10_000 << 32) + 1) >> 32;
    (outside == 0).then_some(all)
}

/// The eight bytes that end at `end`, the first of them the lowest.
#[inline(always)]
fn word_before(bytes: &[u8], end: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(..end)?.last_chunk()?))
}

/// One to eight digits.
#[inline(always)]
fn few_digits(bytes: &[u8], field: Range<usize>) -> Option<u64> {
    let length = field.end - field.start;
    debug_assert!((1..=8).contains(&length));
    // Bytes before the field become zeros.
    let foreign = !(u64::MAX << (64 - 8 * length as u32));
    let word = word_before(bytes, field.end)?;
    let kept = if length == 8 { word } else { word & !foreign | ZEROS & foreign };
    eight(kept)
}

/// One to sixteen digits.
#[inline(always)]
pub(crate) fn digits(bytes: &[u8], field: Range<usize>) -> Option<u64> {
    match field.end.wrapping_sub(field.start) {
        1..=8 => few_digits(bytes, field),
        9..=16 => {
            let middle = field.end - 8;
            let high = few_digits(bytes, field.start..middle)?;
            Some(high * 100_000_000 + eight(word_before(bytes, field.end)?)?)
        }
        _ => None,
    }
}

/// Skips a minus sign. Returns whether there was one.
#[inline(always)]
fn sign(bytes: &[u8], field: Range<usize>) -> (bool, Range<usize>) {
    let negative = bytes.get(field.start) == Some(&b'-');
    (negative, field.start + usize::from(negative)..field.end)
}

#[inline(always)]
fn signed(negative: bool, magnitude: u64) -> i64 {
    // It has less than 63 bits.
    if negative { -(magnitude as i64) } else { magnitude as i64 }
}

/// An integer of up to sixteen digits.
#[inline(always)]
pub(crate) fn integer(bytes: &[u8], field: Range<usize>) -> Option<i64> {
    let (negative, field) = sign(bytes, field);
    (field.start < field.end).then_some(())?;
    Some(signed(negative, digits(bytes, field)?))
}

/// A decimal with `scale` digits after its point or without one, in units of its last digit; up to sixteen digits.
#[inline(always)]
pub(crate) fn decimal(bytes: &[u8], field: Range<usize>, scale: usize) -> Option<i64> {
    if scale > 8 {
        return None;
    }
    let (negative, field) = sign(bytes, field);
    let point = field.end.wrapping_sub(scale + 1);
    if scale == 0 || bytes.get(point) != Some(&b'.') || point < field.start {
        let whole = digits(bytes, field)?.checked_mul(10_u64.pow(scale as u32));
        return Some(signed(negative, whole.filter(|whole| *whole < 1 << 62)?));
    }
    if point == field.start {
        return None;
    }
    let length = field.end - field.start;
    if length <= 9 {
        // All digits are in one word once the point is taken out of it.
        let behind = few_digits_mask(scale);
        let with_point = word_before(bytes, field.end)?;
        let before_point = word_before(bytes, point)?;
        let shift = 8 * scale as u32;
        // The digits before the point, moved up so that only the digits after it follow.
        let before = if scale == 8 { 0 } else { before_point >> shift };
        let word = before & !behind | with_point & behind;
        let kept = length as u32 - 1;
        let foreign = if kept == 8 { 0 } else { !(u64::MAX << (64 - 8 * kept)) };
        return Some(signed(negative, eight(word & !foreign | ZEROS & foreign)?));
    }
    let whole = digits(bytes, field.start..point)?;
    let parts = few_digits(bytes, point + 1..field.end)?;
    let whole = whole.checked_mul(10_u64.pow(scale as u32)).filter(|whole| *whole < 1 << 62)?;
    Some(signed(negative, whole + parts))
}

/// Powers of ten that a double holds exactly.
const POWERS: [f64; 17] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16];

/// A decimal whose digits, without the point, are an integer that a double represents exactly: then one division rounds
/// correctly (Clinger, "How to read floating point numbers accurately", PLDI 1990).
#[inline(always)]
pub(crate) fn double(bytes: &[u8], field: Range<usize>) -> Option<f64> {
    let (negative, field) = sign(bytes, field);
    let point = bytes.get(field.clone())?.iter().position(|byte| *byte == b'.');
    let (mantissa, decimals) = match point {
        None => (digits(bytes, field)?, 0),
        Some(whole) => {
            let fraction = field.start + whole + 1..field.end;
            let (decimals, parts) = (fraction.len(), digits(bytes, fraction)?);
            let whole = digits(bytes, field.start..field.start + whole)?;
            (whole.checked_mul(10_u64.pow(decimals as u32))?.checked_add(parts)?, decimals)
        }
    };
    let magnitude = (mantissa < 1 << 53).then_some(mantissa as f64)? / POWERS[decimals];
    Some(if negative { -magnitude } else { magnitude })
}

/// `YYYY-MM-DD HH:MM:SS` with up to six decimals, or a `T` in between, of the years that [`date`] supports, in microseconds
/// since 1970-01-01.
#[inline(always)]
pub(crate) fn timestamp(bytes: &[u8], field: Range<usize>) -> Option<i64> {
    let days = date(bytes, field.start..field.start + 10)?;
    let Some(&[b' ' | b'T', h1, h2, b':', m1, m2, b':', s1, s2, ref decimals @ ..]) =
        bytes.get(field.start + 10..field.end)
    else {
        return None;
    };
    let number = eight(u64::from_le_bytes([b'0', b'0', h1, h2, m1, m2, s1, s2]))? as i64;
    let (hour, minute, second) = (number / 10_000, number / 100 % 100, number % 100);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let micros = match decimals {
        [] => 0,
        [b'.', decimals @ ..] if (1..=6).contains(&decimals.len()) => {
            let value = digits(bytes, field.end - decimals.len()..field.end)?;
            value as i64 * 10_i64.pow(6 - decimals.len() as u32)
        }
        _ => return None,
    };
    let seconds = i64::from(days) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(seconds * 1_000_000 + micros)
}

/// The last `count` bytes of a word.
#[inline(always)]
fn few_digits_mask(count: usize) -> u64 {
    u64::MAX << (64 - 8 * count as u32)
}

/// The first year of the table of months.
pub(crate) const FIRST_YEAR: u32 = 1900;
pub(crate) const YEARS: u32 = 256;

/// For each month the day before its first, counted from 1970-01-01, and its number of days.
static MONTHS: [(i32, u32); 12 * YEARS as usize] = {
    let mut months = [(0, 0); 12 * YEARS as usize];
    let mut position = 0;
    while position < months.len() as u32 {
        let (year, month) = ((FIRST_YEAR + position / 12) as i64, position % 12 + 1);
        let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        let first = days_from_civil(year, month, 1);
        let length = days_from_civil(next_year, next_month, 1) - first;
        months[position as usize] = (first as i32 - 1, length as u32);
        position += 1;
    }
    months
};

/// `YYYY-MM-DD` of a year from 1900 to 2155, in days since 1970-01-01.
#[inline(always)]
pub(crate) fn date(bytes: &[u8], field: Range<usize>) -> Option<i32> {
    let text: &[u8; 10] = bytes.get(field)?.try_into().ok()?;
    // The year and the month around the first dash; the second dash and the day.
    let front = u64::from_le_bytes(*text.first_chunk()?);
    let back = u64::from_le_bytes(*text.last_chunk()?);
    const DASHES: u64 = 0xff00_00ff_0000_0000;
    if front & DASHES != 0x2d00_002d_0000_0000 {
        return None;
    }
    // YYYYMMDD
    let year = front & 0xffff_ffff;
    let month = front >> 8 & 0x0000_ffff_0000_0000;
    let day = back & 0xffff_0000_0000_0000;
    let number = eight(year | month | day)? as u32;
    let (year, month, day) = (number / 10_000, number / 100 % 100, number % 100);
    // A month of zero wraps around to an invalid one.
    let month = month.wrapping_sub(1);
    if month >= 12 {
        return None;
    }
    let position = year.wrapping_sub(FIRST_YEAR).wrapping_mul(12).wrapping_add(month);
    let (before, length) = *MONTHS.get(position as usize)?;
    (day.wrapping_sub(1) < length).then_some(before + day as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::random::Random;
    use firn_base::{SqlType, datetime, numeric, text};

    /// The field among others, at the very beginning and the very end, and away from both.
    fn around(field: &str, read: impl Fn(&[u8], Range<usize>)) {
        for (before, behind) in
            [("", ""), ("9,", ",9"), ("12345678901234567,", "\n"), ("--------", "-------")]
        {
            let bytes = format!("{before}{field}{behind}");
            read(bytes.as_bytes(), before.len()..before.len() + field.len());
        }
    }

    fn check(field: &str) {
        around(field, |bytes, range| {
            if let Some(value) = integer(bytes, range.clone()) {
                assert_eq!(text::parse_integer::<i64>(field, SqlType::BigInt).ok(), Some(value), "{field:?}");
            }
            for scale in 0..=9 {
                if let Some(value) = decimal(bytes, range.clone(), scale) {
                    let long = numeric::parse_as(field, 38, scale as u8).ok();
                    assert_eq!(long, Some(i128::from(value)), "{field:?} at {scale}");
                }
            }
            if let Some(value) = date(bytes, range.clone()) {
                assert_eq!(
                    datetime::parse_date(field, &firn_base::TextStyle::DEFAULT).ok(),
                    Some(value),
                    "{field:?}"
                );
            }
            if let Some(value) = double(bytes, range.clone()) {
                let long = text::parse_double(field).ok();
                assert_eq!(long.map(f64::to_bits), Some(value.to_bits()), "{field:?}");
            }
            if let Some(value) = timestamp(bytes, range.clone()) {
                assert_eq!(
                    datetime::parse_timestamp(field, &firn_base::TextStyle::DEFAULT).ok(),
                    Some(value),
                    "{field:?}"
                );
            }
        });
    }

    #[test]
    fn what_is_read_quickly_is_right() {
        for field in [
            "", "-", "--1", "1-", ".", "-.", "0", "-0", "+1", " 1", "1 ", "1.", ".5", "-.5", "1.5", "1..5",
            "1.2.3",
        ] {
            check(field);
        }
        let mut random = Random::seeded(7);
        let alphabet = b"0123456789-. /:\"";
        for _ in 0..if cfg!(miri) { 50 } else { 50_000 } {
            let length = random.uniform(0, 20);
            let most = random.uniform(9, alphabet.len() as i64 - 1);
            let field: Vec<u8> = (0..length).map(|_| alphabet[random.uniform(0, most) as usize]).collect();
            check(std::str::from_utf8(&field).unwrap());
            let (whole, scale) = (random.uniform(-99_999_999, 99_999_999), random.uniform(1, 8) as u32);
            let parts = random.uniform(0, 10_i64.pow(scale) - 1);
            check(&format!("{}.{parts:0width$}", whole >> random.uniform(0, 30), width = scale as usize));
            let day = format!(
                "{:04}-{:02}-{:02}",
                random.uniform(1890, 2170),
                random.uniform(0, 13),
                random.uniform(0, 32)
            );
            check(&day);
            let mut two = |most| random.uniform(0, most);
            let time = format!("{:02}:{:02}:{:02}", two(25), two(61), two(61));
            check(&format!("{day}{}{time}", ['T', ' ', '_'][two(2) as usize]));
            check(&format!("{day} {time}.{}", two(99_999_999)));
            check(&format!("{}.{}", two(i64::MAX) >> two(62), two(i64::MAX) >> two(62)));
        }
    }

    #[test]
    fn what_is_common_is_read_quickly() {
        let before = "1996-03-13,";
        let read = |field: &str| (format!("{before}{field},"), before.len()..before.len() + field.len());
        for (field, value) in
            [("7", 7), ("-12345678", -12_345_678), ("1234567890123456", 1_234_567_890_123_456)]
        {
            let (bytes, range) = read(field);
            assert_eq!(integer(bytes.as_bytes(), range), Some(value));
        }
        for (field, scale, value) in [
            ("0.04", 2, 4),
            ("-33078.94", 2, -3_307_894),
            ("123456.78", 2, 12_345_678),
            ("1234567.89", 2, 123_456_789),
            ("0.12345678", 8, 12_345_678),
            ("42", 0, 42),
            ("-17", 2, -1700),
        ] {
            let (bytes, range) = read(field);
            assert_eq!(decimal(bytes.as_bytes(), range, scale), Some(value), "{field}");
        }
        for (field, value) in
            [("0.5", 0.5), ("-21168.23", -21168.23), ("17", 17.0), ("-0.000000123", -0.000000123)]
        {
            let (bytes, range) = read(field);
            assert_eq!(double(bytes.as_bytes(), range), Some(value), "{field}");
        }
        let (bytes, range) = read("2000-01-01T00:00:01.5");
        assert_eq!(timestamp(bytes.as_bytes(), range), Some(946_684_801_500_000));
        let (bytes, range) = read("2000-02-29");
        assert_eq!(date(bytes.as_bytes(), range), Some(11_016));
        for year in 1900..2156 {
            for month in 1..=12 {
                for day in 1..=31 {
                    let (bytes, range) = read(&format!("{year:04}-{month:02}-{day:02}"));
                    let long =
                        datetime::parse_date(&bytes[range.clone()], &firn_base::TextStyle::DEFAULT).ok();
                    assert_eq!(date(bytes.as_bytes(), range), long);
                }
            }
        }
    }
}
