//! Functions of real numbers, with PostgreSQL's errors where DataFusion answers NaN or infinity.

use datafusion::logical_expr::{ScalarUDF, Volatility};
use firn_base::operators::one_nan;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType, Value, numeric};
use firn_exec::function::{Compute, Resolve, ValueFunction};
use std::f64::consts::LN_2;

/// A function of this file by its name.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    let name = match name {
        "pow" => "power",
        "log10" => "log",
        "dlog1" => "ln",
        other => other,
    };
    FUNCTIONS.iter().find(|function| function.name == name).map(ValueFunction::udf)
}

use SqlType::Double;

fn is_number(ty: &Option<SqlType>) -> bool {
    use SqlType::{BigInt, Integer, Numeric, Real, SmallInt};
    matches!(ty, None | Some(SmallInt | Integer | BigInt | Real | Double | Numeric { .. }))
}

fn doubles(arguments: &[Option<SqlType>], count: usize) -> Option<(Vec<SqlType>, SqlType)> {
    (arguments.len() == count && arguments.iter().all(is_number)).then(|| (vec![Double; count], Double))
}

fn double(value: &Value) -> f64 {
    match value {
        Value::Double(value) => *value,
        other => panic!("{other:?} was coerced to double precision"),
    }
}

fn refuse<T>(state: &'static str, message: &str) -> Result<T> {
    Err(Error::new(SqlState::new(state), message))
}

/// A result that is infinite or zero only because double precision cannot hold it is an error.
fn in_range(result: f64, arguments: &[Value], may_be_zero: bool) -> Result<Value> {
    let finite = arguments.iter().all(|argument| double(argument).is_finite());
    if finite && result.is_infinite() {
        return refuse("22003", "value out of range: overflow");
    }
    if finite && result == 0.0 && !may_be_zero {
        return refuse("22003", "value out of range: underflow");
    }
    Ok(Value::Double(one_nan(result)))
}

/// A function of one float that is defined within bounds.
fn within(values: &[Value], is_within: impl Fn(f64) -> bool, compute: impl Fn(f64) -> f64) -> Result<Value> {
    let value = double(&values[0]);
    if !value.is_nan() && !is_within(value) {
        return refuse("22003", "input is out of range");
    }
    Ok(Value::Double(one_nan(compute(value))))
}

fn is_sine(value: f64) -> bool {
    value.abs() <= 1.0
}

/// From here on both functions are the logarithm of the number's double.
const LARGE: f64 = 1e9;

/// `acosh`; Rust's adds up to infinity before it takes the logarithm.
fn area_of_cosine(value: f64) -> f64 {
    if value >= LARGE { value.ln() + LN_2 } else { value.acosh() }
}

/// `asinh`, likewise.
fn area_of_sine(value: f64) -> f64 {
    if value.abs() >= LARGE { (value.abs().ln() + LN_2).copysign(value) } else { value.asinh() }
}

fn refuse_logarithm(value: f64) -> Result<()> {
    if value == 0.0 {
        return refuse("2201E", "cannot take logarithm of zero");
    }
    if value < 0.0 {
        return refuse("2201E", "cannot take logarithm of a negative number");
    }
    Ok(())
}

/// Whether PostgreSQL computes in numerics: one of the arguments is one, and none is a float.
fn is_exact(arguments: &[Option<SqlType>]) -> bool {
    arguments.iter().any(|ty| matches!(ty, Some(SqlType::Numeric { .. })))
        && !arguments.iter().any(|ty| matches!(ty, Some(SqlType::Real | Double)))
}

/// The numeric that an exact number is coerced to.
fn decimal(ty: &Option<SqlType>) -> SqlType {
    match ty {
        Some(ty @ SqlType::Numeric { .. }) => *ty,
        Some(SqlType::BigInt) => SqlType::Numeric { precision: 19, scale: 0 },
        _ => SqlType::Numeric { precision: 10, scale: 0 },
    }
}

/// The exponents up to which powers of numerics are multiplied out, which keeps all digits.
const LARGEST_EXACT_EXPONENT: i128 = 1000;

fn numeric_power(base: &Value, exponent: &Value) -> Result<Value> {
    let parts = |value: &Value| match value {
        Value::Numeric { unscaled, scale } => (*unscaled, *scale),
        other => panic!("{other:?} was coerced to numeric"),
    };
    let (base, exponent) = (parts(base), parts(exponent));
    refuse_power(numeric::to_f64(base), numeric::to_f64(exponent))?;
    let (whole, decimals) = numeric::without_trailing_zeros(exponent.0, exponent.1);
    let power = if decimals == 0 && whole.abs() <= LARGEST_EXACT_EXPONENT {
        let mut product = (1, 0);
        for _ in 0..whole.abs() {
            product = numeric::multiply(product, base)?;
        }
        if whole < 0 { numeric::divide((1, 0), product)? } else { product }
    } else {
        numeric::from_f64(numeric::to_f64(base).powf(numeric::to_f64(exponent)), 17)?
    };
    let unscaled = numeric::rescale(power.0, power.1, 16).and_then(|kept| numeric::rescale(kept, 16, 20));
    Ok(Value::Numeric { unscaled: unscaled.ok_or_else(numeric::overflow)?, scale: 20 })
}

fn refuse_power(base: f64, exponent: f64) -> Result<()> {
    if base == 0.0 && exponent < 0.0 {
        return refuse("2201F", "zero raised to a negative power is undefined");
    }
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return refuse("2201F", "a negative number raised to a non-integer power yields a complex result");
    }
    Ok(())
}

const fn immutable(name: &'static str, resolve: Resolve, compute: Compute) -> ValueFunction {
    ValueFunction { name, resolve, compute, volatility: Volatility::Immutable, takes_null: false }
}

static FUNCTIONS: &[ValueFunction] = &[
    immutable(
        "sqrt",
        |arguments| doubles(arguments, 1),
        |values, _| match double(&values[0]) {
            value if value < 0.0 => refuse("2201F", "cannot take square root of a negative number"),
            value => Ok(Value::Double(value.sqrt())),
        },
    ),
    immutable(
        "ln",
        |arguments| doubles(arguments, 1),
        |values, _| {
            refuse_logarithm(double(&values[0]))?;
            Ok(Value::Double(double(&values[0]).ln()))
        },
    ),
    immutable(
        "log",
        |arguments| match arguments {
            [base, value] if is_number(base) && is_number(value) => {
                Some((vec![Double, Double], numeric::quotient_type(3, 0)))
            }
            _ => doubles(arguments, 1),
        },
        |values, _| match values {
            [base, value] => {
                let (base, value) = (double(base), double(value));
                refuse_logarithm(base)?;
                refuse_logarithm(value)?;
                if base == 1.0 {
                    return refuse("22012", "division by zero");
                }
                let (unscaled, scale) = numeric::from_f64(value.ln() / base.ln(), 15)?;
                let unscaled = numeric::rescale(unscaled, scale, 20).ok_or_else(numeric::overflow)?;
                Ok(Value::Numeric { unscaled, scale: 20 })
            }
            _ => {
                refuse_logarithm(double(&values[0]))?;
                Ok(Value::Double(double(&values[0]).log10()))
            }
        },
    ),
    immutable(
        "exp",
        |arguments| doubles(arguments, 1),
        |values, _| in_range(double(&values[0]).exp(), values, false),
    ),
    immutable(
        "power",
        |arguments| match arguments {
            [base, exponent] if is_number(base) && is_number(exponent) && is_exact(arguments) => {
                Some((vec![decimal(base), decimal(exponent)], numeric::quotient_type(18, 0)))
            }
            _ => doubles(arguments, 2),
        },
        |values, _| {
            if let [Value::Numeric { .. }, Value::Numeric { .. }] = values {
                return numeric_power(&values[0], &values[1]);
            }
            let (base, exponent) = (double(&values[0]), double(&values[1]));
            refuse_power(base, exponent)?;
            in_range(base.powf(exponent), values, base == 0.0)
        },
    ),
    immutable("sin", |arguments| doubles(arguments, 1), |values, _| within(values, f64::is_finite, f64::sin)),
    immutable("cos", |arguments| doubles(arguments, 1), |values, _| within(values, f64::is_finite, f64::cos)),
    immutable("tan", |arguments| doubles(arguments, 1), |values, _| within(values, f64::is_finite, f64::tan)),
    immutable(
        "cot",
        |arguments| doubles(arguments, 1),
        |values, _| within(values, f64::is_finite, |value| value.tan().recip()),
    ),
    immutable("asin", |arguments| doubles(arguments, 1), |values, _| within(values, is_sine, f64::asin)),
    immutable("acos", |arguments| doubles(arguments, 1), |values, _| within(values, is_sine, f64::acos)),
    immutable(
        "acosh",
        |arguments| doubles(arguments, 1),
        |values, _| within(values, |value| value >= 1.0, area_of_cosine),
    ),
    immutable("asinh", |arguments| doubles(arguments, 1), |values, _| within(values, |_| true, area_of_sine)),
    immutable("atanh", |arguments| doubles(arguments, 1), |values, _| within(values, is_sine, f64::atanh)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_do_not_fit_are_errors_and_infinities_stay() {
        let large = [Value::Double(1e300)];
        assert!(in_range(f64::INFINITY, &large, false).is_err());
        assert!(in_range(0.0, &large, false).is_err());
        assert_eq!(in_range(0.0, &large, true).unwrap(), Value::Double(0.0));
        let endless = [Value::Double(f64::INFINITY)];
        assert_eq!(in_range(f64::INFINITY, &endless, false).unwrap(), Value::Double(f64::INFINITY));
    }
}
