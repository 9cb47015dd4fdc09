//! Exact numbers: `unscaled · 10^-scale` with up to 38 digits.
//!
//! [`Numeric`] is a number with a scale of its own, not-a-number or an infinity: PostgreSQL's plain
//! `numeric`. The functions on pairs of `(unscaled, scale)` here are for columns with one scale, and for
//! both. Pairs have no NaN and no infinity.
//!
//! Results of arithmetic have PostgreSQL's scales: the larger one for sums, the sum of both for products, at
//! least 16 significant digits for quotients. If 38 digits are not enough for that many decimals, decimals
//! are rounded away. If they are not enough for the integer part, it is an overflow (22003). A sum of that
//! length may be off by one in its last digit.

mod arithmetic;
mod image;
#[cfg(test)]
mod numeric_tests;
mod value;
mod wire;

pub use image::NumericImage;
pub use value::{MAX_SCALE, Numeric};

use crate::error::{Error, Result, SqlState};
use crate::types::SqlType;
use std::cmp::Ordering;

/// The largest number of digits.
pub const MAX_PRECISION: u8 = 38;

/// The least number of significant digits of a quotient (PostgreSQL's `NUMERIC_MIN_SIG_DIGITS`).
const MIN_SIGNIFICANT_DIGITS: i32 = 16;

/// Powers of ten up to 10^38.
pub const POWERS: [i128; 39] = {
    let mut powers = [1; 39];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};

/// `10^exponent`, or `None` beyond 38.
#[inline]
pub fn power_of_ten(exponent: u32) -> Option<i128> {
    POWERS.get(exponent as usize).copied()
}

/// The error for results of more than 38 digits.
#[cold]
pub fn overflow() -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
        .with_hint("FirnDB's numeric has 38 digits.")
}

/// The error for a number that a declared precision does not hold.
#[cold]
fn field_overflow(precision: u16, scale: i16) -> Error {
    let digits = precision as i16 - scale;
    let limit = if digits == 0 { "1".to_owned() } else { format!("10^{digits}") };
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").with_detail(format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than {limit}."
    ))
}

/// The error for text that is not a number.
#[cold]
fn invalid(text: &str) -> Error {
    Error::new(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type numeric: \"{text}\""),
    )
}

/// Changes the scale, rounding half away from zero. `None` if the result has more than 38 digits.
#[inline]
pub fn rescale(unscaled: i128, from: u8, to: u8) -> Option<i128> {
    match to.cmp(&from) {
        Ordering::Equal => Some(unscaled),
        Ordering::Greater => {
            let scaled = unscaled.checked_mul(power_of_ten(u32::from(to - from))?)?;
            (scaled.unsigned_abs() < POWERS[38].unsigned_abs()).then_some(scaled)
        }
        Ordering::Less => match power_of_ten(u32::from(from - to)) {
            Some(divisor) => Some(divide_rounding(unscaled, divisor)),
            None => Some(0),
        },
    }
}

/// Rounds half away from zero. The divisor is positive.
#[inline]
fn divide_rounding(value: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (value / divisor, value % divisor);
    if rest.unsigned_abs() >= divisor.unsigned_abs().div_ceil(2) && rest != 0 {
        quotient + rest.signum()
    } else {
        quotient
    }
}

/// The unscaled value in a column of `numeric(precision, scale)`.
#[inline]
pub fn fit(unscaled: i128, from: u8, precision: u8, scale: u8) -> Result<i128> {
    match rescale(unscaled, from, scale) {
        Some(value) if value.unsigned_abs() < POWERS[usize::from(precision)].unsigned_abs() => Ok(value),
        _ => Err(field_overflow(u16::from(precision), i16::from(scale))),
    }
}

/// Reads a number as written: the number of digits after the point is the scale.
pub fn parse(text: &str) -> Result<(i128, u8)> {
    let literal = Literal::read(text)?;
    // Trailing zeros beyond 38 digits are dropped by rounding, other digits as well.
    let scale = literal.decimals().clamp(0, i64::from(MAX_PRECISION)) as u8;
    for scale in (0..=scale).rev() {
        if let Some(value) = literal.at_scale(u16::from(scale)) {
            return Ok((value, scale));
        }
    }
    Err(overflow())
}

/// Reads a number as [`parse`] does; `None` if it would lose digits.
pub fn parse_exact(text: &str) -> Result<Option<(i128, u8)>> {
    let literal = Literal::read(text)?;
    let scale = literal.decimals().max(0);
    let scale = u8::try_from(scale).ok().filter(|scale| *scale <= MAX_PRECISION);
    Ok(scale.and_then(|scale| Some((literal.at_scale(u16::from(scale))?, scale))))
}

/// Reads a number for `numeric(precision, scale)`.
pub fn parse_as(text: &str, precision: u8, scale: u8) -> Result<i128> {
    if let Some(value) = parse_short(text.as_bytes(), scale)
        && value.unsigned_abs() < POWERS[usize::from(precision)].unsigned_abs()
    {
        return Ok(value);
    }
    match Literal::read(text)?.at_scale(u16::from(scale)) {
        Some(value) if value.unsigned_abs() < POWERS[usize::from(precision)].unsigned_abs() => Ok(value),
        _ => Err(field_overflow(u16::from(precision), i16::from(scale))),
    }
}

/// The fast path for `[-]digits[.digits]` of up to 18 digits with no more decimals than `scale`; everything
/// else, including invalid text, takes the slow one.
fn parse_short(text: &[u8], scale: u8) -> Option<i128> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value: i64 = 0;
    let mut point = digits.len();
    for (position, byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            value = value * 10 + i64::from(digit);
        } else if *byte == b'.' && point == digits.len() && digits.len() > 1 {
            point = position;
        } else {
            return None;
        }
    }
    let decimals = (digits.len() - point).saturating_sub(1);
    let zeros = usize::from(scale).checked_sub(decimals)?;
    let value = i128::from(value).checked_mul(*POWERS.get(zeros)?)?;
    Some(if negative { -value } else { value })
}

/// `[±]digits[.digits][e[±]digits]`, split into its parts.
struct Literal<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Literal<'a> {
    fn read(text: &'a str) -> Result<Literal<'a>> {
        let trimmed = text.trim_ascii();
        Literal::take_apart(trimmed.as_bytes()).ok_or_else(|| {
            let unsigned = trimmed.trim_start_matches(['+', '-']).to_ascii_lowercase();
            match unsigned.as_str() {
                "nan" | "inf" | "infinity" => Error::unsupported(format_args!("the numeric {trimmed}"))
                    .with_hint("Use double precision for NaN and infinity."),
                _ => invalid(text),
            }
        })
    }

    fn take_apart(text: &'a [u8]) -> Option<Literal<'a>> {
        let (negative, text) = match text.first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (whole, rest) = text.split_at(digits(text));
        let (fraction, rest) = match rest.first() {
            Some(b'.') => rest[1..].split_at(digits(&rest[1..])),
            _ => (&rest[..0], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest {
            [] => 0,
            [b'e' | b'E', exponent @ ..] => {
                let unsigned =
                    exponent.strip_prefix(b"-").or(exponent.strip_prefix(b"+")).unwrap_or(exponent);
                if unsigned.is_empty() || digits(unsigned) != unsigned.len() {
                    return None;
                }
                // Longer exponents all overflow, or vanish, in the same way.
                let size = unsigned
                    .iter()
                    .fold(0i64, |size, digit| (size * 10 + i64::from(digit - b'0')).min(100_000));
                if exponent[0] == b'-' { -size } else { size }
            }
            _ => return None,
        };
        Some(Literal { negative, whole, fraction, exponent })
    }

    /// The number of digits after the point.
    fn decimals(&self) -> i64 {
        self.fraction.len() as i64 - self.exponent
    }

    /// The value at a scale, rounded half away from zero; `None` if it has more than 38 digits.
    fn at_scale(&self, scale: u16) -> Option<i128> {
        let digits = self.whole.len() + self.fraction.len();
        // The number of digits that count; negative if there are zeros between the point and the first.
        let wanted = digits as i64 - self.decimals() + i64::from(scale);
        let all = self.whole.iter().chain(self.fraction).map(|digit| i128::from(digit - b'0'));
        let mut value: i128 = 0;
        for digit in all.clone().take(wanted.max(0) as usize) {
            value = value.checked_mul(10)?.checked_add(digit)?;
        }
        let zeros = wanted - digits as i64;
        if zeros > 0 && value != 0 {
            value = value.checked_mul(power_of_ten(u32::try_from(zeros).ok()?)?)?;
        }
        if wanted >= 0 && all.clone().nth(wanted as usize).is_some_and(|digit| digit >= 5) {
            value += 1;
        }
        (value < POWERS[38]).then_some(if self.negative { -value } else { value })
    }
}

/// Appends a number with all digits of its scale.
pub fn write(unscaled: i128, scale: u8, out: &mut String) {
    debug_assert!(scale <= MAX_PRECISION);
    let mut digits = [b'0'; 40];
    let mut rest = unscaled.unsigned_abs();
    let mut start = digits.len();
    // 64-bit division is several times faster, and most numbers are that small.
    while rest > u128::from(u64::MAX) {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut rest = rest as u64;
    while rest > 0 {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // At least one digit before the point.
    start = start.min(digits.len() - usize::from(scale) - 1);
    if unscaled < 0 {
        out.push('-');
    }
    let point = digits.len() - usize::from(scale);
    out.push_str(std::str::from_utf8(&digits[start..point]).expect("digits are ASCII"));
    if scale > 0 {
        out.push('.');
        out.push_str(std::str::from_utf8(&digits[point..]).expect("digits are ASCII"));
    }
}

/// Drops trailing zeros of the decimals, for plain `numeric`, which has no scale of its own.
pub fn without_trailing_zeros(mut unscaled: i128, mut scale: u8) -> (i128, u8) {
    while scale > 0 {
        // Numbers of one word are divided by a multiplication, longer ones by a call.
        if let Ok(mut word) = i64::try_from(unscaled) {
            while scale > 0 && word % 10 == 0 {
                word /= 10;
                scale -= 1;
            }
            return (word.into(), scale);
        }
        if unscaled % 10 != 0 {
            break;
        }
        unscaled /= 10;
        scale -= 1;
    }
    (unscaled, scale)
}

/// The scales of `numeric(38, s)` that are displayed as quotients: PostgreSQL gives each quotient a scale by
/// its size, a column of ours has one scale for all values.
const QUOTIENT_SCALES: [u8; 3] = [17, 19, 20];

/// The type of quotients with up to `whole` digits before the point and at least `scale` after it. It has
/// PostgreSQL's number of decimals if 38 digits have room for it.
pub fn quotient_type(whole: u8, scale: u8) -> SqlType {
    let room = MAX_PRECISION.saturating_sub(whole).max(MIN_SIGNIFICANT_DIGITS as u8);
    let decimals = QUOTIENT_SCALES.into_iter().rev().find(|decimals| *decimals <= room);
    let decimals = decimals.unwrap_or(MIN_SIGNIFICANT_DIGITS as u8);
    SqlType::Numeric { precision: MAX_PRECISION, scale: decimals.max(scale.min(room)) }
}

/// Whether a type is one of quotients, which users see as plain `numeric`.
pub fn is_quotient(ty: SqlType) -> bool {
    matches!(ty, SqlType::Numeric { precision: MAX_PRECISION, scale } if QUOTIENT_SCALES.contains(&scale))
}

/// The digits that are displayed for a value of a type: plain `numeric` has no scale of its own and drops
/// trailing zeros, a quotient keeps those of PostgreSQL's scale.
pub fn shown(unscaled: i128, scale: u8, ty: SqlType) -> (i128, u8) {
    match ty {
        SqlType::NUMERIC => without_trailing_zeros(unscaled, scale),
        ty if is_quotient(ty) => {
            let (trimmed, decimals) = without_trailing_zeros(unscaled, scale);
            let wanted = decimals.max(quotient_decimals(unscaled, scale)).min(scale);
            (trimmed * POWERS[usize::from(wanted - decimals)], wanted)
        }
        _ => (unscaled, scale),
    }
}

/// The decimals that [`divide`] would give to a quotient, as far as they can be derived from the quotient.
fn quotient_decimals(unscaled: i128, scale: u8) -> u8 {
    let (weight, first) = first_digit((unscaled, u16::from(scale)));
    // A power of 10,000 results from equal first digits.
    let exact = first <= 1 && POWERS.contains(&without_trailing_zeros(unscaled.abs(), scale).0);
    let weight = if exact || unscaled == 0 { weight - 1 } else { weight };
    (MIN_SIGNIFICANT_DIGITS - weight * 4).clamp(0, i32::from(MAX_PRECISION)) as u8
}

/// SQL order of two numbers of any scales.
pub fn compare(left: (i128, u8), right: (i128, u8)) -> Ordering {
    if left.1 == right.1 {
        return left.0.cmp(&right.0);
    }
    let split = |(unscaled, scale): (i128, u8)| {
        let power = POWERS[usize::from(scale)];
        (unscaled / power, unscaled % power * POWERS[usize::from(MAX_PRECISION - scale)])
    };
    split(left).cmp(&split(right))
}

/// The sum.
#[inline]
pub fn add(left: (i128, u8), right: (i128, u8)) -> Result<(i128, u8)> {
    let sum = |scale| {
        let sum = rescale(left.0, left.1, scale)?.checked_add(rescale(right.0, right.1, scale)?)?;
        checked(sum)
    };
    shrinking(left.1.max(right.1), sum)
}

/// The difference.
#[inline]
pub fn subtract(left: (i128, u8), right: (i128, u8)) -> Result<(i128, u8)> {
    add(left, (-right.0, right.1))
}

/// The product.
#[inline]
pub fn multiply(left: (i128, u8), right: (i128, u8)) -> Result<(i128, u8)> {
    let scale = left.1 + right.1;
    if let Some(product) = left.0.checked_mul(right.0).and_then(checked)
        && scale <= MAX_PRECISION
    {
        return Ok((product, scale));
    }
    let wide = |(unscaled, scale): (i128, u8)| (unscaled, u16::from(scale));
    let (product, scale) = multiply_wide(wide(left), wide(right), u16::from(MAX_PRECISION))?;
    Ok((product, scale as u8))
}

/// A product with more than 38 digits or `most` decimals: its last decimals are rounded away.
#[cold]
fn multiply_wide(left: (i128, u16), right: (i128, u16), most: u16) -> Result<(i128, u16)> {
    let negative = (left.0 < 0) != (right.0 < 0);
    let (mut high, mut low) = wide_product(left.0.unsigned_abs(), right.0.unsigned_abs());
    let mut scale = u32::from(left.1) + u32::from(right.1);
    let mut dropped = 0;
    while high > 0 || low >= POWERS[38].unsigned_abs() || scale > u32::from(most) {
        if scale == 0 {
            return Err(overflow());
        }
        (high, low, dropped) = wide_divide_by_ten(high, low);
        scale -= 1;
    }
    let value = low + u128::from(dropped >= 5);
    let value = checked(value as i128).ok_or_else(overflow)?;
    Ok((if negative { -value } else { value }, scale as u16))
}

/// 128 × 128 bits to 256 (high, low).
fn wide_product(left: u128, right: u128) -> (u128, u128) {
    const HALF: u128 = u64::MAX as u128;
    let (left_high, left_low) = (left >> 64, left & HALF);
    let (right_high, right_low) = (right >> 64, right & HALF);
    let low = left_low * right_low;
    let middle = left_high * right_low + (low >> 64);
    let other = left_low * right_high + (middle & HALF);
    (left_high * right_high + (middle >> 64) + (other >> 64), other << 64 | low & HALF)
}

/// 256 bits divided by ten, with the remainder.
fn wide_divide_by_ten(high: u128, low: u128) -> (u128, u128, u8) {
    let mut words = [(high >> 64) as u64, high as u64, (low >> 64) as u64, low as u64];
    let mut rest = 0u128;
    for word in &mut words {
        let value = rest << 64 | u128::from(*word);
        *word = (value / 10) as u64;
        rest = value % 10;
    }
    let join = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
    (join(words[0], words[1]), join(words[2], words[3]), rest as u8)
}

/// The quotient, 22012 for a divisor of zero.
pub fn divide(left: (i128, u8), right: (i128, u8)) -> Result<(i128, u8)> {
    if right.0 == 0 {
        return Err(Error::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
    }
    let wide = |(unscaled, scale): (i128, u8)| (unscaled, u16::from(scale));
    let scale = quotient_scale(wide(left), wide(right)).min(u32::from(MAX_PRECISION)) as u8;
    shrinking(scale, |scale| divide_at(wide(left), wide(right), u16::from(scale)))
}

/// PostgreSQL's `select_div_scale`, which estimates in its digits of base 10,000.
fn quotient_scale(left: (i128, u16), right: (i128, u16)) -> u32 {
    let (left_weight, left_first) = first_digit(left);
    let (right_weight, right_first) = first_digit(right);
    let mut weight = left_weight - right_weight;
    if left_first <= right_first {
        weight -= 1;
    }
    let scale = MIN_SIGNIFICANT_DIGITS - weight * 4;
    scale.max(i32::from(left.1)).max(i32::from(right.1)) as u32
}

/// Weight and value of the first digit in base 10,000.
fn first_digit((unscaled, scale): (i128, u16)) -> (i32, i128) {
    if unscaled == 0 {
        return (0, 0);
    }
    let magnitude = unscaled.unsigned_abs() as i128;
    // The exponent of the first decimal digit, then the base-10,000 digit that contains it.
    let exponent = magnitude.ilog10() as i32 - i32::from(scale);
    let weight = exponent.div_euclid(4);
    let shift = weight * 4 + i32::from(scale);
    let digit =
        if shift >= 0 { magnitude / POWERS[shift as usize] } else { magnitude * POWERS[-shift as usize] };
    (weight, digit)
}

/// The quotient at a scale, rounded half away from zero.
fn divide_at(left: (i128, u16), right: (i128, u16), scale: u16) -> Option<i128> {
    let negative = (left.0 < 0) != (right.0 < 0);
    let divisor = right.0.unsigned_abs();
    let mut quotient = left.0.unsigned_abs() / divisor;
    let mut rest = left.0.unsigned_abs() % divisor;
    // left/right at `scale` is left.0/right.0 · 10^(scale - left.1 + right.1).
    let exponent = i32::from(scale) - i32::from(left.1) + i32::from(right.1);
    for _ in 0..exponent {
        let (digit, next) = if divisor < POWERS[37].unsigned_abs() {
            (rest * 10 / divisor, rest * 10 % divisor)
        } else {
            ten_times(rest, divisor)
        };
        quotient = quotient.checked_mul(10)?.checked_add(digit)?;
        rest = next;
    }
    let value = if exponent < 0 {
        // Only if the dividend has many more decimals than wanted.
        match power_of_ten(-exponent as u32) {
            Some(power) => {
                let power = power.unsigned_abs();
                quotient / power + u128::from(quotient % power >= power / 2)
            }
            None => 0,
        }
    } else {
        quotient + u128::from(rest >= divisor - rest)
    };
    let value = checked(i128::try_from(value).ok()?)?;
    Some(if negative { -value } else { value })
}

/// Quotient and remainder of `10 · rest / divisor`. Ten times a number near 10^38 may not fit, so it is
/// computed by addition.
fn ten_times(rest: u128, divisor: u128) -> (u128, u128) {
    let (mut digit, mut next) = (0, 0u128);
    for _ in 0..10 {
        next += rest;
        if next >= divisor {
            next -= divisor;
            digit += 1;
        }
    }
    (digit, next)
}

/// The remainder of the truncated division; it has the sign of the dividend.
pub fn remainder(left: (i128, u8), right: (i128, u8)) -> Result<(i128, u8)> {
    if right.0 == 0 {
        return Err(Error::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
    }
    let scale = left.1.max(right.1);
    let Some(divisor) = rescale(right.0, right.1, scale) else {
        // A divisor too large for the dividend's scale is larger than the dividend.
        return Ok(left);
    };
    // (a · 10^k) mod m, digit by digit, because a · 10^k may not fit.
    let modulus = divisor.unsigned_abs();
    let mut rest = left.0.unsigned_abs() % modulus;
    for _ in left.1..scale {
        let mut next = 0u128;
        for _ in 0..10 {
            next = (next + rest) % modulus;
        }
        rest = next;
    }
    let rest = rest as i128;
    Ok((if left.0 < 0 { -rest } else { rest }, scale))
}

/// The number as the nearest double.
pub fn to_f64((unscaled, scale): (i128, u8)) -> f64 {
    // Both are exact below 2^53 and 10^22, so that the one division rounds correctly.
    if unscaled.unsigned_abs() <= 1 << 53 && scale <= 22 {
        return unscaled as f64 / POWERS[usize::from(scale)] as f64;
    }
    let mut text = String::with_capacity(48);
    write(unscaled, scale, &mut text);
    text.parse().expect("numbers that we write are floats")
}

/// A double as a numeric, with its 15 certain digits (6 for real), as PostgreSQL casts.
pub fn from_f64(value: f64, digits: usize) -> Result<(i128, u8)> {
    if !value.is_finite() {
        return Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("cannot convert {} to numeric", if value.is_nan() { "NaN" } else { "infinity" }),
        ));
    }
    let text = format!("{:.*e}", digits - 1, value);
    let (unscaled, scale) = parse(&text)?;
    Ok(without_trailing_zeros(unscaled, scale))
}

#[inline]
fn checked(value: i128) -> Option<i128> {
    (value.unsigned_abs() < POWERS[38].unsigned_abs()).then_some(value)
}

/// The result at the largest scale at which it fits.
#[inline]
fn shrinking(scale: u8, at: impl Fn(u8) -> Option<i128>) -> Result<(i128, u8)> {
    if let Some(value) = at(scale) {
        return Ok((value, scale));
    }
    (0..scale).rev().find_map(|scale| Some((at(scale)?, scale))).ok_or_else(overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Result<(i128, u8)>) -> String {
        let mut out = String::new();
        match value {
            Ok((unscaled, scale)) => write(unscaled, scale, &mut out),
            Err(error) => out = format!("{} {}", error.state(), error.message()),
        }
        out
    }

    fn number(text: &str) -> (i128, u8) {
        parse(text).unwrap()
    }

    #[test]
    fn zeros_at_the_end_go_from_numbers_of_any_length() {
        let long = 12 * 10i128.pow(30) + 5;
        for (number, scale, expected) in [
            (0, 3, (0, 0)),
            (-1200, 1, (-120, 0)),
            (1200, 5, (12, 3)),
            (long * 1000, 10, (long, 7)),
            (7 * 10i128.pow(36), 38, (7, 2)),
            (i128::from(i64::MIN) * 100, 4, (i128::from(i64::MIN), 2)),
        ] {
            assert_eq!(without_trailing_zeros(number, scale), expected);
        }
    }

    #[test]
    fn numbers_are_read_with_the_scale_they_are_written_in() {
        for (input, output) in [
            ("12.340", "12.340"),
            ("-.5", "-0.5"),
            ("5.", "5"),
            ("1e3", "1000"),
            ("1.5e-3", "0.0015"),
            (" 7 ", "7"),
            ("99999999999999999999999999999999999999", "99999999999999999999999999999999999999"),
            ("1e38", "22003 value overflows numeric format"),
            ("0.00000000000000000000000000000000000001", "0.00000000000000000000000000000000000001"),
            ("1e-50", "0.00000000000000000000000000000000000000"),
            ("x", "22P02 invalid input syntax for type numeric: \"x\""),
            ("1.2.3", "22P02 invalid input syntax for type numeric: \"1.2.3\""),
            ("", "22P02 invalid input syntax for type numeric: \"\""),
        ] {
            assert_eq!(text(parse(input)), output, "{input}");
        }
    }

    #[test]
    fn a_declared_scale_rounds_half_away_from_zero_and_a_precision_overflows() {
        assert_eq!(parse_as("1.005", 5, 2).unwrap(), 101);
        assert_eq!(parse_as("-1.005", 5, 2).unwrap(), -101);
        assert_eq!(parse_as("0.004999", 5, 2).unwrap(), 0);
        assert_eq!(parse_as("123.449", 4, 1).unwrap(), 1234);
        assert_eq!(parse_as("0.5", 1, 0).unwrap(), 1);
        assert_eq!(parse_as("-12.5", 5, 2).unwrap(), -1250);
        assert_eq!(parse_as("7.", 5, 2).unwrap(), 700);
        assert_eq!(parse_as(".25", 5, 2).unwrap(), 25);
        assert!(parse_as(".", 5, 2).is_err());
        assert!(parse_as("1.2.", 5, 2).is_err());
        assert!(parse_as("1000", 5, 2).is_err());
        let error = parse_as("999.995", 5, 2).unwrap_err();
        assert_eq!(error.state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        assert_eq!(
            error.detail(),
            Some("A field with precision 5, scale 2 must round to an absolute value less than 10^3.")
        );
        assert_eq!(fit(12345, 3, 4, 2).unwrap(), 1235);
        assert_eq!(rescale(-25, 1, 0), Some(-3));
    }

    #[test]
    fn quotients_are_shown_with_the_decimals_that_postgres_gives_them() {
        for (left, right) in
            [("10", "4"), ("1", "3"), ("20001", "3"), ("30001", "2"), ("0", "7"), ("5", "5"), ("-7", "2")]
        {
            let quotient = divide(number(left), number(right));
            let ty = quotient_type(10, 0);
            let (unscaled, scale) = quotient.clone().unwrap();
            let stored = rescale(unscaled, scale, 20).unwrap();
            assert_eq!(text(Ok(shown(stored, 20, ty))), text(quotient), "{left} / {right}");
        }
        let scale = |whole, scale| match quotient_type(whole, scale) {
            SqlType::Numeric { scale, .. } => scale,
            other => panic!("{other}"),
        };
        assert_eq!([scale(10, 2), scale(19, 0), scale(20, 2), scale(22, 16)], [20, 19, 17, 16]);
        assert_eq!([scale(8, 30), scale(34, 4)], [30, 16]);
    }

    #[test]
    fn arithmetic_takes_postgres_scales() {
        assert_eq!(text(add(number("1.10"), number("2.205"))), "3.305");
        assert_eq!(text(multiply(number("1.10"), number("2.205"))), "2.42550");
        for (left, right, quotient) in [
            ("1", "3", "0.33333333333333333333"),
            ("10", "3", "3.3333333333333333"),
            ("2", "3", "0.66666666666666666667"),
            ("100000", "3", "33333.333333333333"),
            ("1", "10000", "0.000100000000000000000000"),
            ("1.00", "4", "0.25000000000000000000"),
            ("12345.6789", "-0.001", "-12345678.900000000000"),
            ("1", "0", "22012 division by zero"),
        ] {
            assert_eq!(text(divide(number(left), number(right))), quotient, "{left} / {right}");
        }
        assert_eq!(text(remainder(number("-7.5"), number("2"))), "-1.5");
        assert_eq!(text(remainder(number("7"), number("0.3"))), "0.1");
    }

    #[test]
    fn results_keep_as_many_decimals_as_38_digits_hold() {
        let large = number("12345678901234567890.123456789");
        assert_eq!(text(multiply(large, number("1.0000000000"))), "12345678901234567890.123456789000000000");
        assert_eq!(text(multiply(large, large)), "22003 value overflows numeric format");
        let most = (POWERS[38] - 1, 0);
        assert_eq!(text(add(most, (1, 0))), "22003 value overflows numeric format");
        assert_eq!(text(add((-(POWERS[38] - 1), 0), (4, 1))), "-99999999999999999999999999999999999999");
    }

    #[test]
    fn comparison_sees_through_scales() {
        assert_eq!(compare((10, 1), (1, 0)), Ordering::Equal);
        assert_eq!(compare((-(POWERS[37]), 0), (1, 38)), Ordering::Less);
        assert_eq!(compare((15, 1), (149, 2)), Ordering::Greater);
    }

    #[test]
    fn doubles_and_numerics_convert_as_in_postgres() {
        assert_eq!(text(from_f64(0.1, 15)), "0.1");
        assert_eq!(text(from_f64(1.0 / 3.0, 15)), "0.333333333333333");
        assert_eq!(text(from_f64(123456789012345680.0, 15)), "123456789012346000");
        for (text, value) in
            [("1e3", Some((1000, 0))), ("-1.5e-3", Some((-15, 4))), ("1e37", Some((POWERS[37], 0)))]
        {
            assert_eq!(parse_exact(text).unwrap(), value, "{text}");
        }
        for text in ["1e38", "1e-39", "1e300", "-1e-100", "1.5e-38"] {
            assert_eq!(parse_exact(text).unwrap(), None, "{text}");
        }
        assert_eq!(to_f64((1, 1)), 0.1);
        assert_eq!(to_f64((-(POWERS[38] - 1), 38)), -1.0);
    }
}
