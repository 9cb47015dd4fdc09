//! [`Numeric`]: a value of PostgreSQL's plain `numeric`, with a scale of its own.
//!
//! Invariant: a number has at most 38 digits and a scale of at most [`MAX_SCALE`]. NaN and the infinities are scales
//! that no number has, and their `unscaled` is zero. So two values are identical exactly if both fields are equal.
//!
//! Equality, order and hash are of the value: 1.0 equals 1.00. NaN equals itself and is larger than everything else.

use super::{Literal, MAX_PRECISION, POWERS, checked, divide_rounding, field_overflow, invalid, overflow};
use super::{power_of_ten, without_trailing_zeros};
use crate::error::{Error, Result, SqlState};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The largest number of decimals (PostgreSQL's `NUMERIC_DSCALE_MAX`).
pub const MAX_SCALE: u16 = 16_383;

/// The largest number of decimals of `round` and `trunc` (PostgreSQL's `NUMERIC_MAX_RESULT_SCALE`).
const MAX_RESULT_SCALE: i32 = 2_000;

const NAN: u16 = 0xffff;
const INFINITY: u16 = 0xfffe;
const NEGATIVE_INFINITY: u16 = 0xfffd;

/// A number `unscaled · 10^-scale`, not-a-number, or an infinity.
#[derive(Clone, Copy)]
pub struct Numeric {
    unscaled: i128,
    scale: u16,
}

/// The kinds of [`Numeric`], with their parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    NegativeInfinity,
    Number(i128, u16),
    Infinity,
    NaN,
}

impl Numeric {
    /// Zero without decimals.
    pub const ZERO: Numeric = Numeric { unscaled: 0, scale: 0 };
    /// Not a number.
    pub const NAN: Numeric = Numeric { unscaled: 0, scale: NAN };
    /// Larger than every number.
    pub const INFINITY: Numeric = Numeric { unscaled: 0, scale: INFINITY };
    /// Smaller than every number.
    pub const NEGATIVE_INFINITY: Numeric = Numeric { unscaled: 0, scale: NEGATIVE_INFINITY };

    /// The number `unscaled · 10^-scale`; `None` if it has more than 38 digits or [`MAX_SCALE`] decimals.
    #[inline]
    pub fn new(unscaled: i128, scale: u16) -> Option<Numeric> {
        (scale <= MAX_SCALE).then_some(())?;
        Some(Numeric { unscaled: checked(unscaled)?, scale })
    }

    /// The value with the parts that [`Numeric::to_parts`] has returned. Panics on anything else.
    #[inline]
    pub fn from_parts(unscaled: i128, scale: u16) -> Numeric {
        match scale {
            NEGATIVE_INFINITY.. => assert_eq!(unscaled, 0, "NaN and infinities have no digits"),
            _ => assert!(Numeric::new(unscaled, scale).is_some(), "{unscaled} with {scale} decimals"),
        }
        Numeric { unscaled, scale }
    }

    /// Digits and scale as vectors store them; NaN and infinities have scales that no number has.
    #[inline]
    pub fn to_parts(self) -> (i128, u16) {
        (self.unscaled, self.scale)
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self.scale {
            NAN => Kind::NaN,
            INFINITY => Kind::Infinity,
            NEGATIVE_INFINITY => Kind::NegativeInfinity,
            scale => Kind::Number(self.unscaled, scale),
        }
    }

    /// Digits and scale of a number; `None` for NaN and infinities.
    #[inline]
    pub fn number(self) -> Option<(i128, u16)> {
        (self.scale <= MAX_SCALE).then_some((self.unscaled, self.scale))
    }

    /// Whether this is NaN.
    #[inline]
    pub fn is_nan(self) -> bool {
        self.scale == NAN
    }

    /// Whether this is a number: neither NaN nor infinite.
    #[inline]
    pub fn is_finite(self) -> bool {
        self.scale <= MAX_SCALE
    }

    /// Whether both are the same, including decimals: 1.0 is not identical to 1.00.
    #[inline]
    pub fn is_identical(self, other: Numeric) -> bool {
        self.to_parts() == other.to_parts()
    }

    /// -1, 0 or 1, for values below zero, zero or above; `None` for NaN.
    pub fn sign(self) -> Option<i8> {
        match self.kind() {
            Kind::NaN => None,
            Kind::Infinity => Some(1),
            Kind::NegativeInfinity => Some(-1),
            Kind::Number(unscaled, _) => Some(unscaled.signum() as i8),
        }
    }

    /// The same value with the fewest decimals that show all digits.
    pub fn normalized(self) -> Numeric {
        let Some((mut unscaled, mut scale)) = self.number() else { return self };
        if unscaled == 0 {
            return Numeric::ZERO;
        }
        while scale > u16::from(MAX_PRECISION) && unscaled % 10 == 0 {
            unscaled /= 10;
            scale -= 1;
        }
        if let Ok(short) = u8::try_from(scale) {
            let (unscaled, scale) = without_trailing_zeros(unscaled, short);
            return Numeric { unscaled, scale: scale.into() };
        }
        Numeric { unscaled, scale }
    }

    /// Reads a number with the decimals as written, `NaN` or an infinity. A number of more than 38 digits
    /// loses decimals by rounding.
    pub fn parse(text: &str) -> Result<Numeric> {
        let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
        if let Some(literal) = Literal::take_apart(trimmed.as_bytes()) {
            return literal.to_numeric();
        }
        let (is_negative, word) = match trimmed.as_bytes() {
            [b'-', ..] => (true, &trimmed[1..]),
            [b'+', ..] => (false, &trimmed[1..]),
            _ => (false, trimmed),
        };
        if word.eq_ignore_ascii_case("inf") || word.eq_ignore_ascii_case("infinity") {
            return Ok(if is_negative { Numeric::NEGATIVE_INFINITY } else { Numeric::INFINITY });
        }
        // NaN has no sign.
        if trimmed.eq_ignore_ascii_case("nan") { Ok(Numeric::NAN) } else { Err(invalid(text)) }
    }

    /// Appends the number with all its decimals, `NaN`, `Infinity` or `-Infinity`.
    pub fn write(self, out: &mut String) {
        match self.kind() {
            Kind::NaN => out.push_str("NaN"),
            Kind::Infinity => out.push_str("Infinity"),
            Kind::NegativeInfinity => out.push_str("-Infinity"),
            Kind::Number(unscaled, scale) if scale <= u16::from(MAX_PRECISION) => {
                super::write(unscaled, scale as u8, out);
            }
            Kind::Number(unscaled, scale) => {
                // All digits are after the point, after zeros.
                out.push_str(if unscaled < 0 { "-0." } else { "0." });
                let digits = if unscaled == 0 { String::new() } else { unscaled.unsigned_abs().to_string() };
                out.extend(std::iter::repeat_n('0', usize::from(scale) - digits.len()));
                out.push_str(&digits);
            }
        }
    }

    /// The value in a column of `numeric(precision, scale)`; 22003 if it does not fit.
    pub fn fit(self, precision: u16, scale: i16) -> Result<Numeric> {
        match self.kind() {
            Kind::NaN => Ok(self),
            Kind::Infinity | Kind::NegativeInfinity => {
                Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").with_detail(
                    format!(
                        "A field with precision {precision}, scale {scale} cannot hold an infinite value."
                    ),
                ))
            }
            Kind::Number(unscaled, from) => {
                let rounded = match u16::try_from(scale) {
                    // More decimals do not change the value: whether it fits is checked before zeros are
                    // added.
                    Ok(to) if to >= from => (unscaled, from),
                    _ => round_at(unscaled, from, i32::from(scale)),
                };
                if exponent(rounded)
                    .is_some_and(|exponent| exponent >= i32::from(precision) - i32::from(scale))
                {
                    return Err(field_overflow(precision, scale));
                }
                let shown = scale.max(0) as u16;
                let unscaled = rescale(rounded.0, rounded.1, shown);
                unscaled.and_then(|unscaled| Numeric::new(unscaled, shown)).ok_or_else(overflow)
            }
        }
    }

    /// Rounds half away from zero to `digits` decimals, or to a power of ten if it is negative.
    pub fn round(self, digits: i32) -> Result<Numeric> {
        self.to_decimals(digits, round_at)
    }

    /// Truncates to `digits` decimals, or to a power of ten if it is negative.
    pub fn truncate(self, digits: i32) -> Result<Numeric> {
        self.to_decimals(digits, |unscaled, from, to| {
            let exponent = i32::from(from) - to;
            let cut = power_of_ten(exponent.unsigned_abs()).map_or(0, |power| unscaled / power * power);
            (if exponent <= 0 { unscaled } else { cut }, from)
        })
    }

    fn to_decimals(self, digits: i32, cut: impl Fn(i128, u16, i32) -> (i128, u16)) -> Result<Numeric> {
        let Some((unscaled, from)) = self.number() else { return Ok(self) };
        let digits = digits.clamp(-MAX_RESULT_SCALE, MAX_RESULT_SCALE);
        let (unscaled, scale) = cut(unscaled, from, digits);
        let wanted = digits.max(0) as u16;
        // As many zeros as 38 digits allow.
        let scale_of_most = 37 - exponent((unscaled, scale)).unwrap_or(0);
        let wanted = i32::from(wanted).min(scale_of_most.max(0)) as u16;
        let unscaled = rescale(unscaled, scale, wanted);
        unscaled.and_then(|unscaled| Numeric::new(unscaled, wanted)).ok_or_else(overflow)
    }

    /// The least integer that is not smaller.
    pub fn ceil(self) -> Result<Numeric> {
        let Some((unscaled, _)) = self.number() else { return Ok(self) };
        let whole = self.truncate(0)?;
        if unscaled > 0 && whole != self { whole.checked_add(Numeric::from(1i64)) } else { Ok(whole) }
    }

    /// The largest integer that is not larger.
    pub fn floor(self) -> Result<Numeric> {
        let Some((unscaled, _)) = self.number() else { return Ok(self) };
        let whole = self.truncate(0)?;
        if unscaled < 0 && whole != self { whole.checked_sub(Numeric::from(1i64)) } else { Ok(whole) }
    }

    /// The digits at `scale` decimals, rounded half away from zero. `None` for more than 38 digits and for
    /// NaN and infinities.
    pub fn rounded_at(self, scale: u16) -> Option<i128> {
        let (unscaled, from) = self.number()?;
        rescale(unscaled, from, scale)
    }

    /// The digits at `scale` decimals, if none is lost.
    pub fn exactly_at(self, scale: u16) -> Option<i128> {
        let unscaled = self.rounded_at(scale)?;
        (Numeric { unscaled, scale } == self).then_some(unscaled)
    }

    /// The nearest integer, half away from zero; `ty` is the type in the error.
    fn to_integer(self, ty: &str) -> Result<i64> {
        let Some((unscaled, scale)) = self.number() else {
            let what = if self.is_nan() { "NaN" } else { "infinity" };
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("cannot convert {what} to {ty}"),
            ));
        };
        let whole = rescale(unscaled, scale, 0).expect("fewer decimals always fit");
        i64::try_from(whole)
            .map_err(|_| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{ty} out of range")))
    }

    /// As bigint, rounded half away from zero; 22003 if it is out of range, 0A000 for NaN and infinities.
    pub fn to_i64(self) -> Result<i64> {
        self.to_integer("bigint")
    }

    /// As integer, rounded half away from zero; 22003 if it is out of range, 0A000 for NaN and infinities.
    pub fn to_i32(self) -> Result<i32> {
        i32::try_from(self.to_integer("integer")?)
            .map_err(|_| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range"))
    }

    /// As smallint, rounded half away from zero; 22003 if it is out of range, 0A000 for NaN and infinities.
    pub fn to_i16(self) -> Result<i16> {
        i16::try_from(self.to_integer("smallint")?)
            .map_err(|_| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "smallint out of range"))
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self.kind() {
            Kind::NaN => f64::NAN,
            Kind::Infinity => f64::INFINITY,
            Kind::NegativeInfinity => f64::NEG_INFINITY,
            Kind::Number(unscaled, scale) if scale <= u16::from(MAX_PRECISION) => {
                super::to_f64((unscaled, scale as u8))
            }
            Kind::Number(unscaled, scale) => {
                format!("{unscaled}e-{scale}").parse().expect("numbers that we write are floats")
            }
        }
    }

    /// A double with its 15 certain digits, as PostgreSQL casts.
    pub fn from_f64(value: f64) -> Result<Numeric> {
        Numeric::of_float(value, 15)
    }

    /// A real with its 6 certain digits, as PostgreSQL casts.
    pub fn from_f32(value: f32) -> Result<Numeric> {
        Numeric::of_float(f64::from(value), 6)
    }

    fn of_float(value: f64, digits: usize) -> Result<Numeric> {
        if value.is_nan() {
            return Ok(Numeric::NAN);
        }
        if value.is_infinite() {
            return Ok(if value > 0.0 { Numeric::INFINITY } else { Numeric::NEGATIVE_INFINITY });
        }
        Ok(Numeric::parse(&format!("{:.*e}", digits - 1, value))?.normalized())
    }

    /// A value of a column with one scale.
    #[inline]
    pub fn from_decimal(unscaled: i128, scale: u8) -> Numeric {
        debug_assert!(checked(unscaled).is_some() && scale <= MAX_PRECISION);
        Numeric { unscaled, scale: scale.into() }
    }

    fn compare_numbers(left: (i128, u16), right: (i128, u16)) -> Ordering {
        if left.1 == right.1 || left.0.signum() != right.0.signum() {
            return left.0.cmp(&right.0);
        }
        // Of one sign. The one with fewer decimals is converted to the scale of the other; if that takes more
        // than 128 bits, it is the larger one.
        let raised = |unscaled: i128, by: u16| {
            let power = power_of_ten(by.into())?.unsigned_abs();
            unscaled.unsigned_abs().checked_mul(power)
        };
        let order = if left.1 < right.1 {
            raised(left.0, right.1 - left.1)
                .map_or(Ordering::Greater, |raised| raised.cmp(&right.0.unsigned_abs()))
        } else {
            raised(right.0, left.1 - right.1)
                .map_or(Ordering::Less, |raised| left.0.unsigned_abs().cmp(&raised))
        };
        match left.0.signum() {
            0 => Ordering::Equal,
            1 => order,
            _ => order.reverse(),
        }
    }
}

/// The power of ten of the first digit; `None` for zero.
#[inline]
pub(super) fn exponent((unscaled, scale): (i128, u16)) -> Option<i32> {
    let exponent = unscaled.unsigned_abs().checked_ilog10()?;
    Some(exponent as i32 - i32::from(scale))
}

/// Changes the scale, rounding half away from zero. `None` if the result has more than 38 digits.
#[inline]
pub(super) fn rescale(unscaled: i128, from: u16, to: u16) -> Option<i128> {
    match to.cmp(&from) {
        Ordering::Equal => Some(unscaled),
        Ordering::Greater if unscaled == 0 => Some(0),
        Ordering::Greater => checked(unscaled.checked_mul(power_of_ten((to - from).into())?)?),
        Ordering::Less => match power_of_ten((from - to).into()) {
            Some(divisor) => Some(divide_rounding(unscaled, divisor)),
            None => Some(0),
        },
    }
}

/// Rounds half away from zero to `to` decimals, which may be negative.
fn round_at(unscaled: i128, from: u16, to: i32) -> (i128, u16) {
    let Ok(to) = u16::try_from(to) else {
        let whole = match power_of_ten(u32::from(from) + to.unsigned_abs()) {
            // A number below 10^38 that is rounded up to it, or above, keeps 38 digits of it.
            Some(divisor) => divide_rounding(unscaled, divisor) * POWERS[to.unsigned_abs().min(38) as usize],
            None => 0,
        };
        return (whole, 0);
    };
    if to >= from {
        return (unscaled, from);
    }
    (rescale(unscaled, from, to).expect("fewer decimals always fit"), to)
}

impl Literal<'_> {
    /// The number with the decimals as written, limited to 38 digits.
    fn to_numeric(&self) -> Result<Numeric> {
        self.with_decimals(self.decimals())
    }

    /// The number with this many decimals, limited to 38 digits.
    pub(super) fn with_decimals(&self, decimals: i64) -> Result<Numeric> {
        let decimals = decimals.max(0);
        if decimals > i64::from(MAX_SCALE) {
            return Err(overflow());
        }
        let digits = self.whole.iter().chain(self.fraction);
        let zeros = digits.clone().take_while(|digit| **digit == b'0').count();
        let significant = digits.count() - zeros;
        if significant == 0 {
            return Ok(Numeric { unscaled: 0, scale: decimals as u16 });
        }
        // Digits that the number has at this scale.
        let needed = significant as i64 - self.decimals() + decimals;
        let excess = (needed - i64::from(MAX_PRECISION)).max(0);
        // One more is dropped if rounding carries.
        for scale in [decimals - excess, decimals - excess - 1] {
            let Ok(scale) = u16::try_from(scale) else { break };
            if let Some(unscaled) = self.at_scale(scale) {
                return Ok(Numeric { unscaled, scale });
            }
        }
        Err(overflow())
    }
}

impl From<i64> for Numeric {
    #[inline]
    fn from(value: i64) -> Numeric {
        Numeric { unscaled: value.into(), scale: 0 }
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Numeric) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Numeric) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Numeric {
    fn cmp(&self, other: &Numeric) -> Ordering {
        let rank = |kind| match kind {
            Kind::NegativeInfinity => 0,
            Kind::Number(..) => 1,
            Kind::Infinity => 2,
            Kind::NaN => 3,
        };
        match (self.kind(), other.kind()) {
            (Kind::Number(left, left_scale), Kind::Number(right, right_scale)) => {
                Numeric::compare_numbers((left, left_scale), (right, right_scale))
            }
            (left, right) => rank(left).cmp(&rank(right)),
        }
    }
}

impl Hash for Numeric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.normalized().to_parts().hash(state);
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.write_str(&text)
    }
}

impl fmt::Debug for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
