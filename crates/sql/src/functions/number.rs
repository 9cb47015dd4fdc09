//! Functions of numbers that DataFusion lacks, or computes in floating point where PostgreSQL keeps
//! all digits.

use datafusion::logical_expr::{ScalarUDF, Volatility};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType, Value, numeric};
use firn_exec::function::{Compute, Resolve, ValueFunction};

/// A function of this file by its name.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    let name = match name {
        "ceiling" => "ceil",
        other => other,
    };
    FUNCTIONS.iter().find(|function| function.name == name).map(ValueFunction::udf)
}

use SqlType::{BigInt, Double, Integer};

/// A numeric as it comes, an integer as a numeric without decimals.
fn exact(ty: Option<SqlType>) -> Option<SqlType> {
    match ty {
        Some(SqlType::SmallInt) => Some(SqlType::Numeric { precision: 5, scale: 0 }),
        Some(Integer) => Some(SqlType::Numeric { precision: 10, scale: 0 }),
        Some(BigInt) => Some(SqlType::Numeric { precision: 19, scale: 0 }),
        Some(ty @ SqlType::Numeric { .. }) => Some(ty),
        _ => None,
    }
}

/// The types of a function of one number: exact numbers stay exact and change their decimals, all
/// others are doubles.
fn one_number(arguments: &[Option<SqlType>], decimals: impl Fn(u8) -> u8) -> Option<(Vec<SqlType>, SqlType)> {
    let [argument] = arguments else { return None };
    match exact(*argument) {
        Some(ty) => {
            let SqlType::Numeric { precision, scale } = ty else { unreachable!("exact types are numerics") };
            // Rounding up may add a digit.
            let precision = (precision - scale + decimals(scale) + 1).min(numeric::MAX_PRECISION);
            Some((vec![ty], SqlType::Numeric { precision, scale: decimals(scale) }))
        }
        None => matches!(argument, None | Some(SqlType::Real | Double)).then(|| (vec![Double], Double)),
    }
}

fn parts(value: &Value) -> (i128, u8) {
    match value {
        Value::Numeric { unscaled, scale } => (*unscaled, *scale),
        other => panic!("{other:?} was coerced to numeric"),
    }
}

/// Two integers, as wide as the wider of them.
fn integers(arguments: &[Option<SqlType>]) -> Option<(Vec<SqlType>, SqlType)> {
    let [left, right] = arguments else { return None };
    let ty = match (left, right) {
        (Some(BigInt), None | Some(SqlType::SmallInt | Integer | BigInt))
        | (None | Some(SqlType::SmallInt | Integer), Some(BigInt)) => BigInt,
        (None | Some(SqlType::SmallInt | Integer), None | Some(SqlType::SmallInt | Integer)) => Integer,
        _ => return None,
    };
    Some((vec![ty, ty], ty))
}

/// One exact number.
fn one_numeric(arguments: &[Option<SqlType>], result: SqlType) -> Option<(Vec<SqlType>, SqlType)> {
    let [argument] = arguments else { return None };
    Some((vec![exact(*argument)?], result))
}

fn greatest_divisor(left: i64, right: i64) -> i128 {
    let (mut left, mut right) = (i128::from(left).abs(), i128::from(right).abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

/// A result of the type that the arguments have.
fn whole_of(like: &Value, value: i128) -> Result<Value> {
    let out_of_range = |ty| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{ty} out of range"));
    match like {
        Value::BigInt(_) => i64::try_from(value).map(Value::BigInt).map_err(|_| out_of_range("bigint")),
        _ => i32::try_from(value).map(Value::Integer).map_err(|_| out_of_range("integer")),
    }
}

fn whole(value: &Value) -> i64 {
    match value {
        Value::Integer(value) => i64::from(*value),
        Value::BigInt(value) => *value,
        other => panic!("{other:?} was coerced to an integer"),
    }
}

/// A number rounded to a whole one: floats by `float`, numerics by the direction of `exact`.
fn round_to_whole(value: &Value, float: fn(f64) -> f64, exact: fn(i128, i128) -> i128) -> Result<Value> {
    Ok(match value {
        Value::Double(value) => Value::Double(float(*value)),
        other => {
            let (unscaled, scale) = parts(other);
            let unit = numeric::power_of_ten(u32::from(scale)).expect("scales are within 38 digits");
            Value::Numeric { unscaled: exact(unscaled, unit), scale: 0 }
        }
    })
}

fn half_away_from_zero(value: i128, unit: i128) -> i128 {
    let (quotient, rest) = (value / unit, value % unit);
    if rest.unsigned_abs() >= (unit as u128).div_ceil(2) && rest != 0 {
        quotient + value.signum()
    } else {
        quotient
    }
}

const fn immutable(name: &'static str, resolve: Resolve, compute: Compute) -> ValueFunction {
    ValueFunction { name, resolve, compute, volatility: Volatility::Immutable, takes_null: false }
}

/// The types of round and trunc: to whole numbers, or of a numeric to some decimals.
fn rounding(arguments: &[Option<SqlType>]) -> Option<(Vec<SqlType>, SqlType)> {
    match arguments {
        [_] => one_number(arguments, |_| 0),
        // PostgreSQL has no such function of doubles; but while a query is bound, averages are doubles.
        [None | Some(SqlType::Real | Double), _] => Some((vec![Double, Integer], Double)),
        [Some(ty), _] => {
            let ty = exact(Some(*ty))?;
            let SqlType::Numeric { precision, scale } = ty else { unreachable!("exact types are numerics") };
            let result = SqlType::Numeric { precision: (precision + 1).min(numeric::MAX_PRECISION), scale };
            Some((vec![ty, Integer], result))
        }
        _ => None,
    }
}

/// A numeric cut to some decimals, which may be fewer than none, by `exact`; its scale stays.
fn round_to_decimals(value: &Value, decimals: i64, exact: fn(i128, i128) -> i128) -> Value {
    if let Value::Double(value) = value {
        let unit = 10f64.powi(decimals.clamp(-300, 300) as i32);
        return Value::Double((value * unit).round() / unit);
    }
    let (unscaled, scale) = parts(value);
    let dropped = i64::from(scale) - decimals;
    let unscaled = match u32::try_from(dropped).ok().filter(|dropped| *dropped > 0) {
        None => unscaled,
        Some(dropped) => match numeric::power_of_ten(dropped) {
            Some(unit) => exact(unscaled, unit) * unit,
            None => 0,
        },
    };
    Value::Numeric { unscaled, scale }
}

static FUNCTIONS: &[ValueFunction] = &[
    immutable(
        "ceil",
        |arguments| one_number(arguments, |_| 0),
        |values, _| round_to_whole(&values[0], f64::ceil, |value, unit| -(-value).div_euclid(unit)),
    ),
    immutable(
        "floor",
        |arguments| one_number(arguments, |_| 0),
        |values, _| round_to_whole(&values[0], f64::floor, |value, unit| value.div_euclid(unit)),
    ),
    immutable("round", rounding, |values, _| match values {
        [value, decimals] => Ok(round_to_decimals(value, whole(decimals), half_away_from_zero)),
        _ => round_to_whole(&values[0], f64::round_ties_even, half_away_from_zero),
    }),
    immutable("trunc", rounding, |values, _| match values {
        [value, decimals] => Ok(round_to_decimals(value, whole(decimals), |value, unit| value / unit)),
        _ => round_to_whole(&values[0], f64::trunc, |value, unit| value / unit),
    }),
    immutable(
        "sign",
        |arguments| one_number(arguments, |_| 0),
        |values, _| {
            Ok(match &values[0] {
                Value::Double(value) if *value == 0.0 => Value::Double(0.0),
                Value::Double(value) => Value::Double(value.signum()),
                other => Value::Numeric { unscaled: parts(other).0.signum(), scale: 0 },
            })
        },
    ),
    immutable(
        "div",
        |arguments| {
            let [left, right] = arguments else { return None };
            let result = SqlType::Numeric { precision: numeric::MAX_PRECISION, scale: 0 };
            Some((vec![exact(*left).or(exact(*right))?, exact(*right).or(exact(*left))?], result))
        },
        |values, _| {
            let (left, right) = (parts(&values[0]), parts(&values[1]));
            if right.0 == 0 {
                return Err(Error::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
            }
            let scale = left.1.max(right.1);
            let to = |(unscaled, from)| numeric::rescale(unscaled, from, scale).ok_or_else(numeric::overflow);
            Ok(Value::Numeric { unscaled: to(left)? / to(right)?, scale: 0 })
        },
    ),
    immutable("gcd", integers, |values, _| {
        whole_of(&values[0], greatest_divisor(whole(&values[0]), whole(&values[1])))
    }),
    immutable("lcm", integers, |values, _| {
        let (left, right) = (whole(&values[0]), whole(&values[1]));
        let divisor = greatest_divisor(left, right);
        whole_of(
            &values[0],
            if divisor == 0 { 0 } else { (i128::from(left) / divisor * i128::from(right)).abs() },
        )
    }),
    immutable(
        "factorial",
        |arguments| {
            let [ty] = arguments else { return None };
            exact(*ty).or(ty.is_none().then_some(BigInt))?;
            Some((vec![BigInt], SqlType::Numeric { precision: numeric::MAX_PRECISION, scale: 0 }))
        },
        |values, _| {
            let number = whole(&values[0]);
            if number < 0 {
                return Err(Error::new(
                    SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                    "factorial of a negative number is undefined",
                ));
            }
            let mut product: i128 = 1;
            for factor in 2..=i128::from(number) {
                product = product.checked_mul(factor).ok_or_else(numeric::overflow)?;
            }
            Ok(Value::Numeric { unscaled: numeric::fit(product, 0, numeric::MAX_PRECISION, 0)?, scale: 0 })
        },
    ),
    immutable(
        "scale",
        |arguments| one_numeric(arguments, Integer),
        |values, _| Ok(Value::Integer(i32::from(parts(&values[0]).1))),
    ),
    immutable(
        "min_scale",
        |arguments| one_numeric(arguments, Integer),
        |values, _| {
            let (unscaled, scale) = parts(&values[0]);
            Ok(Value::Integer(i32::from(numeric::without_trailing_zeros(unscaled, scale).1)))
        },
    ),
    immutable(
        "trim_scale",
        |arguments| one_numeric(arguments, SqlType::NUMERIC),
        |values, _| {
            let (unscaled, scale) = parts(&values[0]);
            let SqlType::Numeric { precision, scale: to } = SqlType::NUMERIC else {
                unreachable!("it is a numeric")
            };
            Ok(Value::Numeric { unscaled: numeric::fit(unscaled, scale, precision, to)?, scale: to })
        },
    ),
    immutable(
        "width_bucket",
        |arguments| (arguments.len() == 4).then(|| (vec![Double, Double, Double, Integer], Integer)),
        |values, _| {
            let [Value::Double(operand), Value::Double(low), Value::Double(high), Value::Integer(count)] =
                values
            else {
                panic!("{values:?} were coerced");
            };
            if *count <= 0 || low == high {
                return Err(Error::new(SqlState::new("2201G"), "count must be greater than zero"));
            }
            let (position, size) = ((operand - low) / (high - low), f64::from(*count));
            let bucket = if position < 0.0 {
                0.0
            } else if position >= 1.0 {
                size + 1.0
            } else {
                (position * size).floor() + 1.0
            };
            Ok(Value::Integer(bucket as i32))
        },
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_away_from_zero() {
        assert_eq!(half_away_from_zero(25, 10), 3);
        assert_eq!(half_away_from_zero(-25, 10), -3);
        assert_eq!(half_away_from_zero(24, 10), 2);
        assert_eq!(half_away_from_zero(7, 1), 7);
    }

    #[test]
    fn rounding_to_decimals_keeps_the_scale() {
        let value = Value::Numeric { unscaled: 2567, scale: 3 };
        assert_eq!(
            round_to_decimals(&value, 2, half_away_from_zero),
            Value::Numeric { unscaled: 2570, scale: 3 }
        );
        assert_eq!(
            round_to_decimals(&value, -1, half_away_from_zero),
            Value::Numeric { unscaled: 0, scale: 3 }
        );
        assert_eq!(round_to_decimals(&value, 5, half_away_from_zero), value);
    }
}
