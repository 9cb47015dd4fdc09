//! Square roots of numerics.

use crate::registry::RegistryBuilder;
use firn_base::numeric::Numeric;
use firn_base::{Error, Result, SqlState};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(Numeric,), _>("sqrt(numeric) numeric_sqrt(numeric)", |_, (value,)| square_root(value));
}

/// The root with PostgreSQL's number of decimals: 16 digits at least, and no fewer decimals than the argument has.
fn square_root(value: Numeric) -> Result<Numeric> {
    match value.sign() {
        Some(-1) => {
            return Err(Error::new(SqlState::new("2201F"), "cannot take square root of a negative number"));
        }
        None => return Ok(value),
        _ => {}
    }
    let Some((unscaled, scale)) = value.number() else { return Ok(value) };
    // PostgreSQL counts digits of base 10,000: the weight of the first one, and half of it for the root.
    let digits = unscaled.unsigned_abs().checked_ilog10().map_or(0, |log| log as i32);
    let weight = if unscaled == 0 { 0 } else { (digits - i32::from(scale)).div_euclid(4) };
    let weight_of_root = (weight + 1) * 4 / 2 - 1;
    let decimals = (16 - weight_of_root).max(i32::from(scale)).max(0);
    root(value, decimals as u16)
}

/// The root of a number that is not negative, rounded to so many decimals, or to fewer if it had more than 37 digits.
pub fn root(value: Numeric, decimals: u16) -> Result<Numeric> {
    let Some((unscaled, scale)) = value.number() else { return Ok(value) };
    // An even number of decimals, so that pairs of digits begin at the point.
    let mut digits: Vec<u8> = unscaled.unsigned_abs().to_string().bytes().map(|digit| digit - b'0').collect();
    let whole = digits.len() as i32 - i32::from(scale);
    if whole % 2 != 0 {
        digits.insert(0, 0);
    }
    // Pairs before the point; there may be as many missing behind it.
    let before = whole.div_euclid(2) + whole.rem_euclid(2);
    let wanted = (before + i32::from(decimals) + 1).min(36);
    let mut pairs = digits
        .chunks(2)
        .map(|pair| pair.iter().chain(&[0]).take(2).fold(0, |sum, digit| sum * 10 + u128::from(*digit)));
    // Digit by digit, as by hand: the remainder stays below twice the root.
    let (mut root, mut rest) = (0u128, 0u128);
    for _ in 0..wanted {
        rest = rest * 100 + pairs.next().unwrap_or(0);
        let digit = (0..10).rev().find(|digit| (root * 20 + digit) * digit <= rest).expect("0 always fits");
        rest -= (root * 20 + digit) * digit;
        root = root * 10 + digit;
    }
    let found = wanted - before;
    let root = i128::try_from(root).expect("it has at most 36 digits");
    let root = match u16::try_from(found) {
        Ok(scale) => Numeric::new(root, scale),
        Err(_) => Numeric::new(root * 10i128.pow(found.unsigned_abs()), 0),
    };
    root.expect("it has at most 38 digits").round(i32::from(decimals))
}
