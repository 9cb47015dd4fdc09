//! Arithmetic and elementary functions of floats, with PostgreSQL's errors: a result is infinite, or zero, only if the arguments make it so.

use super::integers::division_by_zero;
use crate::kernel::{Argument, Output, Overflow};
use crate::registry::RegistryBuilder;
use firn_base::operators::{one_nan, one_nan_real};
use firn_base::{Error, Result, SqlState};

const OVERFLOW: Overflow = Overflow("value out of range: overflow");
const UNDERFLOW: Overflow = Overflow("value out of range: underflow");
const INPUT: Overflow = Overflow("input is out of range");

/// A type of floats.
trait Float: for<'a> Argument<Row<'a> = Self> + Output + Copy + Send + Sync {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn divided(self, other: Self) -> Self;
    fn wide(self) -> f64;
    fn with_one_nan(self) -> Self;
}

macro_rules! float {
    ($($ty:ty, $one_nan:expr;)*) => {
        $(impl Float for $ty {
            #[inline]
            fn plus(self, other: $ty) -> $ty {
                self + other
            }
            #[inline]
            fn minus(self, other: $ty) -> $ty {
                self - other
            }
            #[inline]
            fn times(self, other: $ty) -> $ty {
                self * other
            }
            #[inline]
            fn divided(self, other: $ty) -> $ty {
                self / other
            }
            #[inline]
            fn wide(self) -> f64 {
                self.into()
            }
            #[inline]
            fn with_one_nan(self) -> $ty {
                $one_nan(self)
            }
        })*
    };
}

float! {
    f32, one_nan_real;
    f64, one_nan;
}

/// The result, unless it is infinite and no argument is, or zero where it may not be.
fn checked<F: Float>(
    result: F,
    may_be_infinite: bool,
    may_be_zero: bool,
) -> std::result::Result<F, Overflow> {
    let value = result.wide();
    if value.is_infinite() && !may_be_infinite {
        return Err(OVERFLOW);
    }
    if value == 0.0 && !may_be_zero {
        return Err(UNDERFLOW);
    }
    Ok(result.with_one_nan())
}

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    arithmetic::<f32, f32, f32>(builder, "float4%(float4,float4)");
    arithmetic::<f64, f64, f64>(builder, "float8%(float8,float8)");
    arithmetic::<f32, f64, f64>(builder, "float48%(float4,float8)");
    arithmetic::<f64, f32, f64>(builder, "float84%(float8,float4)");
    builder.scalar::<(f32,), _>("float4um(float4)", |_, (value,)| one_nan_real(-value));
    builder.scalar::<(f64,), _>("float8um(float8)", |_, (value,)| one_nan(-value));
    builder.scalar::<(f32,), _>("float4up(float4)", |_, (value,)| value);
    builder.scalar::<(f64,), _>("float8up(float8)", |_, (value,)| value);
    builder.scalar::<(f32,), _>("float4abs(float4) abs(float4)", |_, (value,)| value.abs());
    builder.scalar::<(f64,), _>("float8abs(float8) abs(float8)", |_, (value,)| value.abs());

    one(builder, "dround(float8) round(float8)", f64::round_ties_even);
    one(builder, "dtrunc(float8) trunc(float8)", f64::trunc);
    one(builder, "ceil(float8) ceiling(float8)", f64::ceil);
    one(builder, "floor(float8)", f64::floor);
    one(builder, "sign(float8)", |value| f64::from(i8::from(value > 0.0) - i8::from(value < 0.0)));
    builder.scalar::<(f64,), _>("dsqrt(float8) sqrt(float8)", |_, (value,)| match value < 0.0 {
        true => Err(power_error("cannot take square root of a negative number")),
        false => Ok(value.sqrt()),
    });
    one(builder, "dcbrt(float8) cbrt(float8)", cube_root);
    builder.scalar::<(f64, f64), _>(
        "dpow(float8,float8) pow(float8,float8) power(float8,float8)",
        |_, (base, exponent)| power(base, exponent),
    );
    builder.scalar::<(f64,), _>("dexp(float8) exp(float8)", |_, (value,)| {
        checked(value.exp(), value.is_infinite(), value == f64::NEG_INFINITY)
    });
    builder.scalar::<(f64,), _>("dlog1(float8) ln(float8)", |_, (value,)| logarithm(value, f64::ln));
    builder.scalar::<(f64,), _>("dlog10(float8) log(float8) log10(float8)", |_, (value,)| {
        logarithm(value, f64::log10)
    });

    builder.scalar::<(), _>("pi()", |_, ()| std::f64::consts::PI);
    builder.scalar::<(f64,), _>("degrees(float8)", |_, (value,)| {
        checked(value / RADIANS, value.is_infinite(), value == 0.0)
    });
    builder.scalar::<(f64,), _>("radians(float8)", |_, (value,)| {
        checked(value * RADIANS, value.is_infinite(), value == 0.0)
    });
    finite(builder, "sin(float8)", f64::sin);
    finite(builder, "cos(float8)", f64::cos);
    finite(builder, "tan(float8)", f64::tan);
    finite(builder, "cot(float8)", |value| 1.0 / value.tan());
    within(builder, "asin(float8)", -1.0, 1.0, f64::asin);
    within(builder, "acos(float8)", -1.0, 1.0, f64::acos);
    one(builder, "atan(float8)", f64::atan);
    builder.scalar::<(f64, f64), _>("atan2(float8,float8)", |_, (y, x)| one_nan(y.atan2(x)));
    one(builder, "sinh(float8)", f64::sinh);
    one(builder, "cosh(float8)", f64::cosh);
    one(builder, "tanh(float8)", f64::tanh);
    // The square of a large number overflows.
    one(builder, "asinh(float8)", |value| match value.abs() > 1e150 {
        true => (value.abs().ln() + std::f64::consts::LN_2).copysign(value),
        false => value.asinh(),
    });
    within(builder, "acosh(float8)", 1.0, f64::INFINITY, acosh);
    within(builder, "atanh(float8)", -1.0, 1.0, f64::atanh);
    finite(builder, "sind(float8)", degrees::sin);
    finite(builder, "cosd(float8)", degrees::cos);
    finite(builder, "tand(float8)", degrees::tan);
    finite(builder, "cotd(float8)", degrees::cot);
    within(builder, "asind(float8)", -1.0, 1.0, degrees::asin);
    within(builder, "acosd(float8)", -1.0, 1.0, degrees::acos);
    one(builder, "atand(float8)", |value| value.atan() / 1f64.atan() * 45.0);
    builder.scalar::<(f64, f64), _>("atan2d(float8,float8)", |_, (y, x)| {
        one_nan(y.atan2(x) / 1f64.atan() * 45.0)
    });

    builder.scalar::<(f64, f64, f64, i32), _>(
        "width_bucket(float8,float8,float8,int4)",
        |_, (operand, low, high, count)| width_bucket(operand, low, high, count),
    );
}

const RADIANS: f64 = std::f64::consts::PI / 180.0;

fn arithmetic<A: Float, B: Float, R: Float + From<A> + From<B>>(
    builder: &mut RegistryBuilder,
    signature: &str,
) {
    let name = |operation: &str| signature.replace('%', operation);
    builder.scalar::<(A, B), _>(&name("pl"), |_, (left, right)| {
        let may_be_infinite = left.wide().is_infinite() || right.wide().is_infinite();
        checked(R::from(left).plus(right.into()), may_be_infinite, true)
    });
    builder.scalar::<(A, B), _>(&name("mi"), |_, (left, right)| {
        let may_be_infinite = left.wide().is_infinite() || right.wide().is_infinite();
        checked(R::from(left).minus(right.into()), may_be_infinite, true)
    });
    builder.scalar::<(A, B), _>(&name("mul"), |_, (left, right)| {
        let may_be_infinite = left.wide().is_infinite() || right.wide().is_infinite();
        let may_be_zero = left.wide() == 0.0 || right.wide() == 0.0;
        checked(R::from(left).times(right.into()), may_be_infinite, may_be_zero)
    });
    builder.scalar::<(A, B), _>(&name("div"), |_, (left, right)| -> Result<R> {
        if right.wide() == 0.0 && !left.wide().is_nan() {
            return Err(division_by_zero());
        }
        let may_be_zero = left.wide() == 0.0 || right.wide().is_infinite();
        Ok(checked(R::from(left).divided(right.into()), left.wide().is_infinite(), may_be_zero)?)
    });
}

/// A function that is defined everywhere.
fn one(
    builder: &mut RegistryBuilder,
    signatures: &str,
    function: impl Fn(f64) -> f64 + Send + Sync + 'static,
) {
    builder.scalar::<(f64,), _>(signatures, move |_, (value,)| one_nan(function(value)));
}

/// A function that is not defined for infinities.
fn finite(
    builder: &mut RegistryBuilder,
    signatures: &str,
    function: impl Fn(f64) -> f64 + Send + Sync + 'static,
) {
    builder.scalar::<(f64,), _>(signatures, move |_, (value,)| match value.is_infinite() {
        true => Err(INPUT),
        false => Ok(one_nan(function(value))),
    });
}

/// The square of a large number is beyond all: there it is ln 2x, to the last digit.
fn acosh(x: f64) -> f64 {
    match x > (1u64 << 28) as f64 {
        true => x.ln() + std::f64::consts::LN_2,
        false => x.acosh(),
    }
}

/// A function that is defined between two limits.
fn within(
    builder: &mut RegistryBuilder,
    signatures: &str,
    low: f64,
    high: f64,
    function: impl Fn(f64) -> f64 + Send + Sync + 'static,
) {
    builder.scalar::<(f64,), _>(signatures, move |_, (value,)| match value < low || value > high {
        true => Err(INPUT),
        false => Ok(one_nan(function(value))),
    });
}

fn logarithm(value: f64, function: fn(f64) -> f64) -> Result<f64> {
    if value == 0.0 {
        return Err(Error::new(SqlState::new("2201E"), "cannot take logarithm of zero"));
    }
    if value < 0.0 {
        return Err(Error::new(SqlState::new("2201E"), "cannot take logarithm of a negative number"));
    }
    Ok(checked(function(value), value.is_infinite(), value == 1.0)?)
}

#[cold]
fn power_error(message: &str) -> Error {
    Error::new(SqlState::new("2201F"), message)
}

fn power(base: f64, exponent: f64) -> Result<f64> {
    // Of C's rules: 1 to any power is 1, and anything to the power 0, NaN or not.
    if base.is_nan() {
        return Ok(if exponent == 0.0 { 1.0 } else { f64::NAN });
    }
    if exponent.is_nan() {
        return Ok(if base == 1.0 { 1.0 } else { f64::NAN });
    }
    if base == 0.0 && exponent < 0.0 {
        return Err(power_error("zero raised to a negative power is undefined"));
    }
    if base < 0.0 && exponent.floor() != exponent {
        return Err(power_error("a negative number raised to a non-integer power yields a complex result"));
    }
    let is_limit = base.is_infinite() || exponent.is_infinite();
    Ok(checked(base.powf(exponent), is_limit, is_limit || base == 0.0)?)
}

/// In which of `count` stretches between two limits a number lies, from 1; 0 and `count + 1` beyond them.
fn width_bucket(operand: f64, low: f64, high: f64, count: i32) -> Result<i32> {
    let refused = |message| Err(Error::new(SqlState::new("2201G"), message));
    if count <= 0 {
        return refused("count must be greater than zero");
    }
    if operand.is_nan() || low.is_nan() || high.is_nan() {
        return refused("operand, lower bound, and upper bound cannot be NaN");
    }
    if low.is_infinite() || high.is_infinite() {
        return refused("lower and upper bounds must be finite");
    }
    if low == high {
        return refused("lower bound cannot equal upper bound");
    }
    let (before, behind) =
        if low < high { (operand < low, operand >= high) } else { (operand > low, operand <= high) };
    if before {
        return Ok(0);
    }
    if behind {
        return Ok(count.checked_add(1).ok_or(Overflow("integer out of range"))?);
    }
    let share = match (high - low).is_finite() {
        true => (operand - low) / (high - low),
        // Halves do not overflow.
        false => (operand / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0),
    };
    Ok(((f64::from(count) * share) as i32).min(count - 1) + 1)
}

/// Functions of angles in degrees, exact where the result is: `sind(30)` is 0.5.
mod degrees {
    use super::RADIANS;

    fn sin_to_30(x: f64) -> f64 {
        (x * RADIANS).sin() / (30.0 * RADIANS).sin() / 2.0
    }

    fn cos_to_60(x: f64) -> f64 {
        1.0 - (1.0 - (x * RADIANS).cos()) / (1.0 - (60.0 * RADIANS).cos()) / 2.0
    }

    /// Of angles up to 90 degrees.
    fn sin_to_90(x: f64) -> f64 {
        if x <= 30.0 { sin_to_30(x) } else { cos_to_60(90.0 - x) }
    }

    /// Of angles up to 90 degrees.
    fn cos_to_90(x: f64) -> f64 {
        if x <= 60.0 { cos_to_60(x) } else { sin_to_30(90.0 - x) }
    }

    /// An angle between 0 and 90 degrees, and the signs of its sine and its cosine.
    fn quadrant(x: f64) -> (f64, f64, f64) {
        let (mut sine, mut cosine, mut x) = (1.0, 1.0, x % 360.0);
        if x < 0.0 {
            (x, sine) = (-x, -sine);
        }
        if x > 180.0 {
            (x, sine) = (360.0 - x, -sine);
        }
        if x > 90.0 {
            (x, cosine) = (180.0 - x, -cosine);
        }
        (x, sine, cosine)
    }

    pub fn sin(x: f64) -> f64 {
        let (x, sign, _) = quadrant(x);
        sign * sin_to_90(x)
    }

    pub fn cos(x: f64) -> f64 {
        let (x, _, sign) = quadrant(x);
        sign * cos_to_90(x)
    }

    pub fn tan(x: f64) -> f64 {
        let (x, sine, cosine) = quadrant(x);
        let result = sine * cosine * (sin_to_90(x) / cos_to_90(x) / (sin_to_90(45.0) / cos_to_90(45.0)));
        // Never -0.
        if result == 0.0 { 0.0 } else { result }
    }

    pub fn cot(x: f64) -> f64 {
        let (x, sine, cosine) = quadrant(x);
        let result = sine * cosine * (cos_to_90(x) / sin_to_90(x) / (cos_to_90(45.0) / sin_to_90(45.0)));
        if result == 0.0 { 0.0 } else { result }
    }

    fn asin_positive(x: f64) -> f64 {
        if x <= 0.5 { x.asin() / 0.5f64.asin() * 30.0 } else { 90.0 - x.acos() / 0.5f64.acos() * 60.0 }
    }

    pub fn asin(x: f64) -> f64 {
        if x >= 0.0 { asin_positive(x) } else { -asin_positive(-x) }
    }

    pub fn acos(x: f64) -> f64 {
        let positive = |x: f64| {
            if x <= 0.5 { 90.0 - x.asin() / 0.5f64.asin() * 30.0 } else { x.acos() / 0.5f64.acos() * 60.0 }
        };
        if x >= 0.0 { positive(x) } else { 90.0 + asin_positive(-x) }
    }
}
/// The cube root as the GNU C library before 2.41 computes it, and so PostgreSQL on most systems: its last digit is not always
/// that of the nearest number. A polynomial estimates the root of the mantissa, and one step of Halley's method makes it precise.
#[allow(clippy::excessive_precision)]
fn cube_root(value: f64) -> f64 {
    /// The cube root of 2.
    const ROOT: f64 = 1.259_921_049_894_873_164_8;
    /// The cube root of 4.
    const SQUARED: f64 = 1.587_401_051_968_199_474_8;
    const FACTORS: [f64; 5] = [1.0 / SQUARED, 1.0 / ROOT, 1.0, ROOT, SQUARED];
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let (mantissa, exponent) = split(value.abs());
    let inner = 1.834_692_774_836_130_86
        - (0.784_932_344_976_639_262 - 0.145_263_899_385_486_367 * mantissa) * mantissa;
    let middle = 2.114_994_941_673_712_87 - (2.446_931_225_635_344_30 - inner * mantissa) * mantissa;
    let estimate = 0.354_895_765_043_919_860 + (1.508_191_937_815_848_96 - middle * mantissa) * mantissa;
    let cube = estimate * estimate * estimate;
    let factor = FACTORS[(2 + exponent % 3) as usize];
    let root = estimate * (cube + 2.0 * mantissa) / (2.0 * cube + mantissa) * factor;
    // The exponent of a root is far from the limits.
    (root * f64::powi(2.0, exponent / 3)).copysign(value)
}

/// A finite number above zero as one from 0.5 up to 1 and a power of 2.
fn split(value: f64) -> (f64, i32) {
    const MANTISSA: u64 = (1 << 52) - 1;
    if value < f64::MIN_POSITIVE {
        let (mantissa, exponent) = split(value * f64::powi(2.0, 64));
        return (mantissa, exponent - 64);
    }
    let bits = value.to_bits();
    (f64::from_bits(bits & MANTISSA | 1022 << 52), (bits >> 52) as i32 - 1022)
}
