//! Fixed-point numbers of any length: what exp, ln and powers of numerics are computed with.
//!
//! A value is an integer that counts units of `10^-decimals`, and all values of one computation have the same number of
//! decimals. Each operation cuts its result towards zero, so its error is below one unit. Callers choose so many decimals
//! that the errors of all operations stay far below the last digit that they keep.

use firn_base::numeric::{Numeric, overflow};
use firn_base::{Result, numeric};
use num_bigint::{BigInt, Sign};

/// A computation with so many decimals.
pub struct Fixed {
    decimals: u32,
    one: BigInt,
}

impl Fixed {
    /// A computation with so many decimals.
    pub fn new(decimals: u32) -> Fixed {
        Fixed { decimals, one: BigInt::from(10).pow(decimals) }
    }

    /// The value 1.
    pub fn one(&self) -> BigInt {
        self.one.clone()
    }

    /// The value of `unscaled · 10^-scale`.
    pub fn value(&self, unscaled: i128, scale: u16) -> BigInt {
        let scale = u32::from(scale);
        let unscaled = BigInt::from(unscaled);
        match scale <= self.decimals {
            true => unscaled * BigInt::from(10).pow(self.decimals - scale),
            false => unscaled / BigInt::from(10).pow(scale - self.decimals),
        }
    }

    /// The product.
    pub fn mul(&self, left: &BigInt, right: &BigInt) -> BigInt {
        left * right / &self.one
    }

    /// The quotient. Panics if the divisor is zero.
    pub fn div(&self, left: &BigInt, right: &BigInt) -> BigInt {
        left * &self.one / right
    }

    /// `e^x`: the Taylor series for a small fraction of x, whose sum is squared as often as x was halved.
    pub fn exp(&self, x: &BigInt) -> BigInt {
        // Below 2^-8 each term adds more than two digits.
        let bits = x.bits() as i64 - self.one.bits() as i64;
        let halvings = u32::try_from(bits + 8).unwrap_or(0);
        let x = x >> halvings;
        let (mut sum, mut term) = (&self.one + &x, x.clone());
        for divisor in 2u32.. {
            term = self.mul(&term, &x) / divisor;
            if term.sign() == Sign::NoSign {
                break;
            }
            sum += &term;
        }
        for _ in 0..halvings {
            sum = self.mul(&sum, &sum);
        }
        sum
    }

    /// `ln(unscaled · 10^-scale)` of a positive number, as the logarithm of a number from 1 to 10 and a multiple of that of 10.
    pub fn ln(&self, unscaled: i128, scale: u16) -> BigInt {
        debug_assert!(unscaled > 0);
        let digits = unscaled.ilog10() as i32;
        let exponent = digits - i32::from(scale);
        let mantissa = self.ln_of_small(self.value(unscaled, digits as u16));
        match exponent {
            0 => mantissa,
            _ => mantissa + self.ln_of_small(&self.one * 10) * exponent,
        }
    }

    /// The logarithm of a number that is not far from 1: square roots bring it nearer, then `2 · artanh((x - 1) / (x + 1))` converges fast.
    fn ln_of_small(&self, mut x: BigInt) -> BigInt {
        let mut roots = 0;
        let limit = &self.one + &self.one / 16;
        while x > limit {
            x = (x * &self.one).sqrt();
            roots += 1;
        }
        let z = self.div(&(&x - &self.one), &(&x + &self.one));
        let square = self.mul(&z, &z);
        let (mut sum, mut power) = (z.clone(), z);
        for divisor in (3u32..).step_by(2) {
            power = self.mul(&power, &square);
            let term = &power / divisor;
            if term.sign() == Sign::NoSign {
                break;
            }
            sum += term;
        }
        sum << (roots + 1)
    }

    /// `x^exponent`
    pub fn power(&self, x: &BigInt, mut exponent: u32) -> BigInt {
        let (mut power, mut result) = (x.clone(), self.one());
        loop {
            if exponent & 1 == 1 {
                result = self.mul(&result, &power);
            }
            exponent >>= 1;
            if exponent == 0 {
                return result;
            }
            power = self.mul(&power, &power);
        }
    }

    /// A value as a double, with about 15 digits.
    pub fn to_f64(&self, value: &BigInt) -> f64 {
        format!("{value}e-{}", self.decimals).parse().expect("numbers that we write are floats")
    }

    /// A value with so many decimals, rounded half away from zero.
    pub fn round(&self, value: &BigInt, decimals: u32) -> BigInt {
        match self.decimals.checked_sub(decimals) {
            None => value * BigInt::from(10).pow(decimals - self.decimals),
            Some(0) => value.clone(),
            Some(dropped) => {
                let unit = BigInt::from(10).pow(dropped);
                let half: BigInt = &unit >> 1;
                if value.sign() == Sign::Minus { (value - half) / unit } else { (value + half) / unit }
            }
        }
    }

    /// A value as a numeric with so many decimals, or with as many as 38 digits leave room for; 22003 if they do not hold the
    /// whole part.
    pub fn to_numeric(&self, value: &BigInt, decimals: u32) -> Result<Numeric> {
        let rounded = self.round(value, decimals);
        let digits = rounded.magnitude().to_string().len() as u32;
        let excess = digits.saturating_sub(u32::from(numeric::MAX_PRECISION));
        // Rounding may carry into one digit more.
        for decimals in [decimals.checked_sub(excess), decimals.checked_sub(excess + 1)].into_iter().flatten()
        {
            let unscaled = i128::try_from(self.round(value, decimals)).ok();
            if let Some(number) = unscaled.and_then(|unscaled| Numeric::new(unscaled, decimals as u16)) {
                return Ok(number);
            }
        }
        Err(overflow())
    }
}
