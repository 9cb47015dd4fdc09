//! Arithmetic on `numeric`, whose meaning is in base. Where a plan knows one scale for each argument, the bodies for
//! decimals are taken.

use super::integers::division_by_zero;
use crate::kernel::scalar::scalar;
use crate::kernel::{Call, Overflow, TooLarge};
use crate::registry::RegistryBuilder;
use firn_base::numeric::Numeric;
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState, Type, TypeId};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(Numeric, Numeric), _>("numeric_add(numeric,numeric)", |_, (left, right)| {
        left.checked_add(right).map_err(TooLarge)
    });
    builder.scalar::<(Numeric, Numeric), _>("numeric_sub(numeric,numeric)", |_, (left, right)| {
        left.checked_sub(right).map_err(TooLarge)
    });
    let multiplied =
        scalar::<(Numeric, Numeric), _>(|_, (left, right)| left.checked_mul(right).map_err(TooLarge));
    let multiplied = super::decimals::multiplication(multiplied);
    builder.kernel("numeric_mul(numeric,numeric)", Arc::new(multiplied));
    builder.scalar::<(Numeric, Numeric), _>("numeric_div(numeric,numeric)", |_, (left, right)| {
        left.checked_div(right)
    });
    builder.scalar::<(Numeric, Numeric), _>(
        "numeric_mod(numeric,numeric) mod(numeric,numeric)",
        |_, (left, right)| left.checked_rem(right),
    );
    builder.scalar::<(Numeric, Numeric), _>(
        "div(numeric,numeric) numeric_div_trunc(numeric,numeric)",
        |_, (left, right)| whole_quotient(left, right),
    );
    builder.scalar::<(Numeric,), _>("numeric_uminus(numeric)", |_, (value,)| value.negate());
    builder.scalar::<(Numeric,), _>("numeric_uplus(numeric)", |_, (value,)| value);
    builder.scalar::<(Numeric,), _>("numeric_abs(numeric) abs(numeric)", |_, (value,)| value.abs());
    builder.scalar::<(Numeric,), _>("numeric_inc(numeric)", |_, (value,)| {
        value.checked_add(Numeric::from(1i64)).map_err(TooLarge)
    });
    builder.scalar::<(Numeric,), _>("sign(numeric)", |_, (value,)| match value.sign() {
        Some(sign) => Numeric::from(i64::from(sign)),
        None => Numeric::NAN,
    });
    builder.scalar::<(Numeric, i32), _>("round(numeric,int4)", |_, (value, digits)| {
        value.round(digits).map_err(TooLarge)
    });
    builder.scalar::<(Numeric,), _>("round(numeric)", |_, (value,)| value.round(0).map_err(TooLarge));
    builder.scalar::<(Numeric, i32), _>("trunc(numeric,int4)", |_, (value, digits)| {
        value.truncate(digits).map_err(TooLarge)
    });
    builder.scalar::<(Numeric,), _>("trunc(numeric)", |_, (value,)| value.truncate(0).map_err(TooLarge));
    builder.scalar::<(Numeric,), _>("ceil(numeric) ceiling(numeric)", |_, (value,)| {
        value.ceil().map_err(TooLarge)
    });
    builder.scalar::<(Numeric,), _>("floor(numeric)", |_, (value,)| value.floor().map_err(TooLarge));
    builder.scalar::<(Numeric,), _>("scale(numeric)", |_, (value,)| {
        value.number().map(|(_, scale)| i32::from(scale))
    });
    builder.scalar::<(Numeric,), _>("min_scale(numeric)", |_, (value,)| {
        value.normalized().number().map(|(_, scale)| i32::from(scale))
    });
    builder.scalar::<(Numeric,), _>("trim_scale(numeric)", |_, (value,)| value.normalized());
    builder.scalar::<(Numeric, Numeric), _>("gcd(numeric,numeric)", |_, (left, right)| divisor(left, right));
    builder.scalar::<(Numeric, Numeric), _>("lcm(numeric,numeric)", |_, (left, right)| multiple(left, right));
    builder.scalar::<(i64,), _>("factorial(int8)", |call, (number,)| {
        if number < 0 {
            return Err(Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                "factorial of a negative number is undefined",
            ));
        }
        let mut product = Numeric::from(1i64);
        for factor in 2..=number {
            product = product.checked_mul(Numeric::from(factor))?;
            call.context.check_cancel()?;
        }
        Ok(product)
    });
    builder.scalar::<(Numeric, Numeric, Numeric, i32), _>(
        "width_bucket(numeric,numeric,numeric,int4)",
        |_, (value, from, to, count)| bucket(value, from, to, count),
    );
    builder.scalar::<(Numeric, i32), _>("numeric(numeric,int4)", |call, (value, modifier)| {
        fit_result(call, value, modifier).map_err(TooLarge)
    });
}

/// A value in a column with a modifier of `numeric`; 22003 if it does not fit.
pub fn fit(value: Numeric, modifier: i32) -> Result<Numeric> {
    match Type::new(TypeId::NUMERIC).with_modifier(modifier).precision_and_scale() {
        Some((precision, scale)) => value.fit(precision, scale),
        None => Ok(value),
    }
}

/// As [`fit`], for a result that may lie as a decimal, which has no NaN: 22003, as PostgreSQL answers to infinities.
pub fn fit_result(call: &Call<'_>, value: Numeric, modifier: i32) -> Result<Numeric> {
    let value = fit(value, modifier)?;
    match call.signature.representation {
        Representation::Decimal { precision, scale } if !value.is_finite() => {
            let detail = format!("A field with precision {precision}, scale {scale} cannot hold NaN.");
            Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
                .with_detail(detail)
                .with_hint("A column of plain numeric can hold it."))
        }
        _ => Ok(value),
    }
}

/// The quotient without its decimals.
fn whole_quotient(left: Numeric, right: Numeric) -> Result<Numeric> {
    let (Some((left_digits, left_scale)), Some((right_digits, right_scale))) =
        (left.number(), right.number())
    else {
        let quotient = left.checked_div(right)?;
        return Ok(quotient);
    };
    if right_digits == 0 {
        return Err(division_by_zero());
    }
    if left_scale == right_scale {
        return Ok(Numeric::new(left_digits / right_digits, 0).expect("it has no more digits"));
    }
    // The remainder is exact, so that what is left divides without rounding.
    let rest = left.checked_rem(right)?;
    left.checked_sub(rest)?.checked_div(right)?.round(0)
}

fn divisor(left: Numeric, right: Numeric) -> Result<Numeric> {
    if !left.is_finite() || !right.is_finite() {
        return Ok(Numeric::NAN);
    }
    let (mut left, mut right) = (left.abs(), right.abs());
    while right.sign() != Some(0) {
        (left, right) = (right, left.checked_rem(right)?);
    }
    // With the decimals of the argument that has more of them.
    left.checked_add(right.abs())
}

fn multiple(left: Numeric, right: Numeric) -> Result<Numeric> {
    if !left.is_finite() || !right.is_finite() {
        return Ok(Numeric::NAN);
    }
    let scale = left.number().into_iter().chain(right.number()).map(|(_, scale)| scale).max().unwrap_or(0);
    if left.sign() == Some(0) || right.sign() == Some(0) {
        return Ok(Numeric::new(0, scale).expect("zero fits"));
    }
    let parts = whole_quotient(left, divisor(left, right)?)?;
    parts.checked_mul(right)?.abs().round(i32::from(scale))
}

/// Which of so many buckets of one width between two bounds a value is in, from 1; 0 and one more than there are lie outside.
fn bucket(value: Numeric, from: Numeric, to: Numeric, count: i32) -> Result<i32> {
    let refused = |message: &str| Err(Error::new(SqlState::new("2201G"), message));
    if count <= 0 {
        return refused("count must be greater than zero");
    }
    if value.is_nan() || from.is_nan() || to.is_nan() {
        return refused("operand, lower bound, and upper bound cannot be NaN");
    }
    if !from.is_finite() || !to.is_finite() {
        return refused("lower and upper bounds must be finite");
    }
    if from == to {
        return refused("lower bound cannot equal upper bound");
    }
    // The bounds may fall.
    let is_rising = from < to;
    let (is_before, is_behind) = match is_rising {
        true => (value < from, value >= to),
        false => (value > from, value <= to),
    };
    if is_before {
        return Ok(0);
    }
    let out_of_range = || Error::from(Overflow("integer out of range"));
    if is_behind {
        return count.checked_add(1).ok_or_else(out_of_range);
    }
    let distance = value.checked_sub(from)?.abs();
    let width = to.checked_sub(from)?.abs();
    let share = distance.checked_mul(Numeric::from(i64::from(count)))?.checked_div(width)?;
    share.checked_add(Numeric::from(1i64))?.floor()?.to_i32()
}
