//! exp, ln, log and powers of numerics, with PostgreSQL's numbers of decimals.
//!
//! PostgreSQL gives a result at least 16 significant digits, and no fewer decimals than the arguments have. It estimates the
//! size of the result for that from the first digits of the arguments in base 10,000; the estimates here are the same, since
//! the number of decimals is part of the answer. The digits are those of the exact result, rounded.

use super::fixed::Fixed;
use super::integers::division_by_zero;
use crate::registry::RegistryBuilder;
use firn_base::numeric::{Numeric, POWERS, overflow};
use firn_base::{Error, Result, SqlState};
use std::f64::consts::{LN_10, LOG10_E};

/// The significant digits that a result has at least (PostgreSQL's `NUMERIC_MIN_SIG_DIGITS`).
const MIN_SIGNIFICANT_DIGITS: i32 = 16;
/// The most decimals of a result (PostgreSQL's `NUMERIC_MAX_DISPLAY_SCALE`).
const MAX_DECIMALS: i32 = 1000;
/// Exponents of e from which PostgreSQL takes a result for infinite, or zero.
const MAX_EXPONENT: f64 = 6000.0;
/// The same for an exponent that is known to about eight digits.
const MAX_ROUGH_EXPONENT: f64 = 6020.0;
/// Decimals that intermediate results have beyond those that are kept.
const GUARD: i32 = 25;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(Numeric,), _>("exp(numeric) numeric_exp(numeric)", |_, (value,)| exp(value));
    builder.scalar::<(Numeric,), _>("ln(numeric) numeric_ln(numeric)", |_, (value,)| ln(value));
    builder.scalar::<(Numeric,), _>("log(numeric) log10(numeric)", |_, (value,)| {
        logarithm(Numeric::from(10i64), value)
    });
    builder.scalar::<(Numeric, Numeric), _>(
        "log(numeric,numeric) numeric_log(numeric,numeric)",
        |_, (base, value)| logarithm(base, value),
    );
    builder.scalar::<(Numeric, Numeric), _>(
        "power(numeric,numeric) pow(numeric,numeric) numeric_power(numeric,numeric)",
        |_, (base, exponent)| power(base, exponent),
    );
}

/// A number of decimals within the limits of results.
fn decimals_within(decimals: i32, shown: &[u16]) -> i32 {
    let most_shown = shown.iter().copied().max().unwrap_or(0);
    decimals.max(most_shown.into()).clamp(0, MAX_DECIMALS)
}

/// Zero with so many decimals.
fn zero(decimals: i32) -> Numeric {
    Numeric::new(0, decimals as u16).expect("zero fits")
}

fn exp(value: Numeric) -> Result<Numeric> {
    let Some((unscaled, scale)) = value.number() else {
        return Ok(if value.sign() == Some(-1) { Numeric::ZERO } else { value });
    };
    let size = value.to_f64();
    let weight = (size * LOG10_E).clamp(-2000.0, 2000.0) as i32;
    let decimals = decimals_within(MIN_SIGNIFICANT_DIGITS - weight, &[scale]);
    let fixed = match working_decimals(size, decimals)? {
        Some(working) => Fixed::new(working),
        None => return Ok(zero(decimals)),
    };
    fixed.to_numeric(&fixed.exp(&fixed.value(unscaled, scale)), decimals as u32)
}

/// With how many decimals `e^size` is computed if so many are kept. `None` if it is zero; 22003 if it is too large.
fn working_decimals(size: f64, decimals: i32) -> Result<Option<u32>> {
    // 38 digits end at e^88.
    if size > 90.0 {
        return Err(overflow());
    }
    if size <= -MAX_EXPONENT {
        return Ok(None);
    }
    Ok(Some((decimals + GUARD + (size.max(0.0) * LOG10_E) as i32) as u32))
}

#[cold]
fn no_logarithm(of: &str) -> Error {
    Error::new(SqlState::new("2201E"), format!("cannot take logarithm of {of}"))
}

/// 2201E of numbers that have no logarithm.
fn check_logarithm(value: Numeric) -> Result<()> {
    match value.sign() {
        Some(-1) => Err(no_logarithm("a negative number")),
        Some(0) => Err(no_logarithm("zero")),
        _ => Ok(()),
    }
}

fn ln(value: Numeric) -> Result<Numeric> {
    check_logarithm(value)?;
    let Some((unscaled, scale)) = value.number() else { return Ok(value) };
    let decimals = decimals_within(MIN_SIGNIFICANT_DIGITS - logarithm_weight(unscaled, scale), &[scale]);
    let fixed = Fixed::new((decimals + GUARD) as u32);
    fixed.to_numeric(&fixed.ln(unscaled, scale), decimals as u32)
}

fn logarithm(base: Numeric, value: Numeric) -> Result<Numeric> {
    let (Some((base, base_scale)), Some((value, value_scale))) = (base.number(), value.number()) else {
        if base.is_nan() || value.is_nan() {
            return Ok(Numeric::NAN);
        }
        // Of two mistakes that with the sign comes first.
        if base.sign() == Some(-1) || value.sign() == Some(-1) {
            return Err(no_logarithm("a negative number"));
        }
        check_logarithm(base)?;
        check_logarithm(value)?;
        return Ok(match (base.is_finite(), value.is_finite()) {
            (false, false) => Numeric::NAN,
            (false, true) => Numeric::ZERO,
            _ => Numeric::INFINITY,
        });
    };
    let number = |unscaled, scale| Numeric::new(unscaled, scale).expect("it is one");
    check_logarithm(number(base, base_scale))?;
    check_logarithm(number(value, value_scale))?;
    let base_weight = logarithm_weight(base, base_scale);
    let value_weight = logarithm_weight(value, value_scale);
    let wanted = MIN_SIGNIFICANT_DIGITS - (value_weight - base_weight);
    let decimals = decimals_within(wanted, &[base_scale, value_scale]);
    // An error of the base's logarithm weighs more the smaller that is.
    let fixed = Fixed::new((decimals + GUARD + (-2 * base_weight).max(0) + value_weight.max(0)) as u32);
    let of_base = fixed.ln(base, base_scale);
    if of_base == 0.into() {
        return Err(division_by_zero());
    }
    fixed.to_numeric(&fixed.div(&fixed.ln(value, value_scale), &of_base), decimals as u32)
}

/// The power of ten of the first digit of a number's natural logarithm, as PostgreSQL estimates it; 0 of numbers that have none.
fn logarithm_weight(unscaled: i128, scale: u16) -> i32 {
    if unscaled <= 0 {
        return 0;
    }
    let value = Numeric::new(unscaled, scale).expect("it is a number");
    let tenths = |count| Numeric::new(count, 1).expect("it is a number");
    if (tenths(9)..=tenths(11)).contains(&value) {
        // ln(1 + x) is about x.
        let distance = unscaled - POWERS[usize::from(scale)];
        return match first_digits(distance.abs(), scale) {
            Some((weight, first, _)) => weight * 4 + f64::from(first).log10() as i32,
            None => 0,
        };
    }
    let (weight, first, second) = first_digits(unscaled, scale).expect("it is not zero");
    let (digits, exponent) = match second {
        Some(second) => (first * 10_000 + second, weight * 4 - 4),
        None => (first, weight * 4),
    };
    let estimate = f64::from(digits).ln() + f64::from(exponent) * LN_10;
    estimate.abs().log10() as i32
}

/// The weight of the first digit in base 10,000, that digit, and the next one if any that is not zero follows; `None` of zero.
fn first_digits(unscaled: i128, scale: u16) -> Option<(i32, u32, Option<u32>)> {
    let exponent = unscaled.checked_ilog10()? as i32 - i32::from(scale);
    let weight = exponent.div_euclid(4);
    // The unit of the first digit is 10^drop in units of the number's last decimal.
    let drop = weight * 4 + i32::from(scale);
    let (first, rest) = match u32::try_from(drop) {
        Ok(drop) => (unscaled / POWERS[drop as usize], unscaled % POWERS[drop as usize]),
        Err(_) => (unscaled * POWERS[drop.unsigned_abs() as usize], 0),
    };
    let second = (rest != 0).then(|| match u32::try_from(drop - 4) {
        Ok(drop) => rest / POWERS[drop as usize],
        Err(_) => rest * POWERS[(drop - 4).unsigned_abs() as usize],
    });
    Some((weight, first as u32, second.map(|second| second as u32)))
}

#[cold]
fn no_power(message: &str) -> Error {
    Error::new(SqlState::new("2201F"), message)
}

/// `base ^ exponent`
pub fn power(base: Numeric, exponent: Numeric) -> Result<Numeric> {
    let one = Numeric::from(1i64);
    if base.is_nan() || exponent.is_nan() {
        // NaN^0 and 1^NaN are 1, as in POSIX.
        let is_one = exponent.sign() == Some(0) || base == one;
        return Ok(if is_one { one } else { Numeric::NAN });
    }
    let (Some(base_sign), Some(sign)) = (base.sign(), exponent.sign()) else { panic!("neither is NaN") };
    if base_sign == 0 && sign < 0 {
        return Err(no_power("zero raised to a negative power is undefined"));
    }
    let is_whole = exponent.normalized().number().is_none_or(|(_, scale)| scale == 0);
    if base_sign < 0 && !is_whole {
        let message = "a negative number raised to a non-integer power yields a complex result";
        return Err(no_power(message));
    }
    match (base.number(), exponent.number()) {
        (Some(base), Some(exponent)) => finite_power(base, exponent),
        _ => Ok(infinite_power(base, exponent)),
    }
}

/// POSIX's rules for powers of which one side is infinite.
fn infinite_power(base: Numeric, exponent: Numeric) -> Numeric {
    let one = Numeric::from(1i64);
    let is_positive = exponent.sign() == Some(1);
    if base == one || exponent.sign() == Some(0) {
        return one;
    }
    if base.sign() == Some(0) {
        return Numeric::ZERO;
    }
    if !exponent.is_finite() {
        let size = base.abs();
        return match size == one {
            true => one,
            false if (size > one) == is_positive => Numeric::INFINITY,
            false => Numeric::ZERO,
        };
    }
    match (is_positive, base.sign()) {
        (false, _) => Numeric::ZERO,
        (true, Some(-1)) if is_odd(exponent) => Numeric::NEGATIVE_INFINITY,
        _ => Numeric::INFINITY,
    }
}

/// Whether a number is whole and odd.
fn is_odd(value: Numeric) -> bool {
    value.normalized().number().is_some_and(|(unscaled, scale)| scale == 0 && unscaled % 2 != 0)
}

/// A power of numbers: of zero not to a negative one, of a negative number to a whole one.
fn finite_power(base: (i128, u16), exponent: (i128, u16)) -> Result<Numeric> {
    let number = |(unscaled, scale)| Numeric::new(unscaled, scale).expect("it is one");
    let (whole, decimals_of_exponent) = number(exponent).normalized().number().expect("it is a number");
    if decimals_of_exponent == 0
        && let Ok(whole) = i32::try_from(whole)
    {
        return whole_power(base, whole);
    }
    if base.0 == 0 {
        return Ok(zero(MIN_SIGNIFICANT_DIGITS));
    }
    let is_negative = base.0 < 0 && is_odd(number(exponent));
    let base = (base.0.abs(), base.1);
    let weight = logarithm_weight(base.0, base.1);
    // A first logarithm with about eight digits gives the size of the result.
    let rough_decimals = (8 - weight).max(0) as u32;
    let rough = Fixed::new(rough_decimals + GUARD as u32);
    let rough_logarithm = rough.round(&rough.ln(base.0, base.1), rough_decimals);
    let rough = Fixed::new(rough_decimals);
    let exact = Fixed::new(rough_decimals + u32::from(exponent.1));
    let product = exact.round(&(rough_logarithm * exponent.0), rough_decimals);
    let size = rough.to_f64(&product);
    if size.abs() > MAX_ROUGH_EXPONENT {
        return if size > 0.0 { Err(overflow()) } else { Ok(zero(MAX_DECIMALS)) };
    }
    let wanted = MIN_SIGNIFICANT_DIGITS - (size * LOG10_E) as i32;
    let decimals = decimals_within(wanted, &[base.1, exponent.1]);
    let working = match working_decimals(size, decimals)? {
        // The exponent multiplies the error of the logarithm.
        Some(working) => working + exponent.0.unsigned_abs().checked_ilog10().unwrap_or(0) + 1,
        None => return Ok(zero(decimals)),
    };
    let fixed = Fixed::new(working);
    let product = fixed.ln(base.0, base.1) * exponent.0 / num_bigint::BigInt::from(10).pow(exponent.1.into());
    let result = fixed.to_numeric(&fixed.exp(&product), decimals as u32)?;
    Ok(if is_negative { result.negate() } else { result })
}

/// A power to a whole number.
fn whole_power(base: (i128, u16), exponent: i32) -> Result<Numeric> {
    let decimals = decimals_within(MIN_SIGNIFICANT_DIGITS, &[base.1]);
    if exponent == 0 {
        let fixed = Fixed::new(0);
        return fixed.to_numeric(&fixed.one(), decimals as u32);
    }
    let Some((weight, first, second)) = first_digits(base.0.abs(), base.1) else {
        return Ok(zero(decimals));
    };
    let digits = f64::from(first) + f64::from(second.unwrap_or(0)) / 10_000.0;
    // The power of ten of the result's first digit.
    let size = f64::from(exponent) * (digits.log10() + f64::from(weight) * 4.0);
    if size > 40.0 {
        return Err(overflow());
    }
    // PostgreSQL computes the powers -1, 1 and 2 without an estimate.
    if (size + 1.0 < f64::from(-decimals) || size + 1.0 < f64::from(-MAX_DECIMALS))
        && !matches!(exponent, -1..=2)
    {
        return Ok(zero(decimals));
    }
    // The error of a reciprocal grows with its square.
    let working = decimals + GUARD + 2 * size.max(0.0).ceil() as i32;
    let fixed = Fixed::new(working as u32);
    let base = match base.1 as i32 <= working {
        true => fixed.value(base.0, base.1),
        false => fixed.round(&Fixed::new(base.1.into()).value(base.0, base.1), working as u32),
    };
    let power = fixed.power(&base, exponent.unsigned_abs());
    let power = match exponent < 0 {
        true => fixed.div(&fixed.one(), &power),
        false => power,
    };
    fixed.to_numeric(&power, decimals as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Numeric {
        Numeric::parse(text).unwrap()
    }

    #[test]
    fn results_of_more_than_38_digits_lose_decimals_or_are_out_of_range() {
        let power = |base, exponent| power(number(base), number(exponent));
        assert_eq!(power("2", "100").unwrap().to_string(), "1267650600228229401496703205376.0000000");
        assert_eq!(power("-2", "99").unwrap().to_string(), "-633825300114114700748351602688.00000000");
        for (base, exponent) in [("2", "127"), ("10", "38"), ("0.1", "-38"), ("1.5", "2000.5"), ("3", "1e30")]
        {
            let error = power(base, exponent).unwrap_err();
            assert_eq!(error.state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "{base} ^ {exponent}");
        }
        assert_eq!(exp(number("87")).unwrap().to_string(), "60760302250568721495223289381302760753");
        assert!(exp(number("88")).is_err() && exp(number("1e30")).is_err());
    }
}
