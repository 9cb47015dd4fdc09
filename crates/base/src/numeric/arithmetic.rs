//! Arithmetic on [`Numeric`], with PostgreSQL's result scales and its rules for NaN and infinities.

use super::value::{Kind, exponent, rescale};
use super::{MAX_PRECISION, MAX_SCALE, Numeric};
use super::{checked, divide_at, multiply_wide, overflow, quotient_scale};
use crate::error::{Error, Result, SqlState};

/// The largest number of decimals of a quotient (PostgreSQL's `NUMERIC_MAX_DISPLAY_SCALE`).
const MAX_DISPLAY_SCALE: u32 = 1_000;

impl Numeric {
    /// The sum.
    #[inline]
    pub fn checked_add(self, other: Numeric) -> Result<Numeric> {
        let (left, right) = match (self.kind(), other.kind()) {
            (Kind::Number(left, left_scale), Kind::Number(right, right_scale)) => {
                if left_scale == right_scale
                    && let Some(sum) = left.checked_add(right).and_then(|sum| Numeric::new(sum, left_scale))
                {
                    return Ok(sum);
                }
                ((left, left_scale), (right, right_scale))
            }
            (Kind::NaN, _) | (_, Kind::NaN) => return Ok(Numeric::NAN),
            (Kind::Infinity, Kind::NegativeInfinity) | (Kind::NegativeInfinity, Kind::Infinity) => {
                return Ok(Numeric::NAN);
            }
            (Kind::Number(..), _) => return Ok(other),
            _ => return Ok(self),
        };
        // Scales at which either has more than 38 digits need not be tried.
        let first = exponent(left).max(exponent(right)).unwrap_or(0);
        shrinking(left.1.max(right.1).into(), first, |scale| {
            checked(rescale(left.0, left.1, scale)?.checked_add(rescale(right.0, right.1, scale)?)?)
        })
    }

    /// The difference.
    #[inline]
    pub fn checked_sub(self, other: Numeric) -> Result<Numeric> {
        self.checked_add(other.negate())
    }

    /// The product.
    pub fn checked_mul(self, other: Numeric) -> Result<Numeric> {
        match (self.kind(), other.kind()) {
            (Kind::Number(left, left_scale), Kind::Number(right, right_scale)) => {
                let scale = left_scale + right_scale;
                if let Some(product) =
                    left.checked_mul(right).and_then(|product| Numeric::new(product, scale))
                {
                    return Ok(product);
                }
                let (product, scale) = multiply_wide((left, left_scale), (right, right_scale), MAX_SCALE)?;
                Ok(Numeric::from_parts(product, scale))
            }
            _ => {
                Ok(self.signs_with(other).map_or(Numeric::NAN, |sign| infinity(sign).unwrap_or(Numeric::NAN)))
            }
        }
    }

    /// The quotient; 22012 if a number or an infinity is divided by zero.
    pub fn checked_div(self, other: Numeric) -> Result<Numeric> {
        match (self.kind(), other.kind()) {
            (Kind::NaN, _) | (_, Kind::NaN) => Ok(Numeric::NAN),
            (_, Kind::Number(0, _)) => Err(division_by_zero()),
            (Kind::Number(left, left_scale), Kind::Number(right, right_scale)) => {
                let (left, right) = ((left, left_scale), (right, right_scale));
                let scale = quotient_scale(left, right).min(MAX_DISPLAY_SCALE);
                // The quotient's first digit is at this power of ten or at the next.
                let first = match (exponent(left), exponent(right)) {
                    (Some(left), Some(right)) => left - right - 1,
                    _ => 0,
                };
                shrinking(scale, first, |scale| divide_at(left, right, scale))
            }
            (Kind::Number(..), _) => Ok(Numeric::ZERO),
            (_, Kind::Number(..)) => {
                let sign = self.signs_with(other).expect("neither is NaN");
                Ok(infinity(sign).expect("neither is zero"))
            }
            _ => Ok(Numeric::NAN),
        }
    }

    /// The remainder of the truncated division, which has the sign of the dividend; 22012 if the divisor is
    /// zero.
    pub fn checked_rem(self, other: Numeric) -> Result<Numeric> {
        let (left, right) = match (self.kind(), other.kind()) {
            (Kind::NaN, _) | (_, Kind::NaN) => return Ok(Numeric::NAN),
            (_, Kind::Number(0, _)) => return Err(division_by_zero()),
            (Kind::Number(left, left_scale), Kind::Number(right, right_scale)) => {
                ((left, left_scale), (right, right_scale))
            }
            (Kind::Number(..), _) => return Ok(self),
            _ => return Ok(Numeric::NAN),
        };
        let scale = left.1.max(right.1);
        let Some(divisor) = rescale(right.0, right.1, scale) else {
            // A divisor that has more than 38 digits at the dividend's scale is larger than the dividend.
            return Ok(self);
        };
        // (a · 10^k) mod m, digit by digit, because a · 10^k may not fit.
        let modulus = divisor.unsigned_abs();
        let mut rest = left.0.unsigned_abs() % modulus;
        for _ in left.1..scale {
            rest = match rest.checked_mul(10) {
                Some(next) => next % modulus,
                None => (0..10).fold(0, |sum, _| (sum + rest) % modulus),
            };
        }
        let rest = rest as i128;
        Ok(Numeric::from_parts(if left.0 < 0 { -rest } else { rest }, scale))
    }

    /// The value with the other sign.
    #[inline]
    pub fn negate(self) -> Numeric {
        match self.kind() {
            Kind::NaN => self,
            Kind::Infinity => Numeric::NEGATIVE_INFINITY,
            Kind::NegativeInfinity => Numeric::INFINITY,
            Kind::Number(unscaled, scale) => Numeric::from_parts(-unscaled, scale),
        }
    }

    /// The value without its sign.
    #[inline]
    pub fn abs(self) -> Numeric {
        if self.sign() == Some(-1) { self.negate() } else { self }
    }

    /// The sign of a product; `None` if either is NaN.
    fn signs_with(self, other: Numeric) -> Option<i8> {
        Some(self.sign()? * other.sign()?)
    }
}

fn infinity(sign: i8) -> Option<Numeric> {
    match sign {
        1 => Some(Numeric::INFINITY),
        -1 => Some(Numeric::NEGATIVE_INFINITY),
        _ => None,
    }
}

#[cold]
fn division_by_zero() -> Error {
    Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// The result at the largest scale, `scale` or below, at which it fits; its first digit is at the power of
/// ten `first` or above.
#[inline]
fn shrinking(scale: u32, first: i32, at: impl Fn(u16) -> Option<i128>) -> Result<Numeric> {
    let most = (i32::from(MAX_PRECISION) - 1 - first).clamp(0, i32::from(MAX_SCALE)) as u32;
    let largest = scale.min(most) as u16;
    let found = (0..=largest).rev().find_map(|scale| Numeric::new(at(scale)?, scale));
    found.ok_or_else(overflow)
}
