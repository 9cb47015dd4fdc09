//! Floating-point numbers beside numbers of other types: what PostgreSQL makes of them.
//!
//! An operator that finds a float on one side and another number on the other works in double
//! precision: there is none that takes an exact number and a `real`. Where several values have to be
//! of one type, as the branches of CASE have, that type is the one to which all others may be cast
//! unasked:
//!
//! | together | compared as | branches, columns of UNION, lists of VALUES |
//! |---|---|---|
//! | `double precision` and any other number | `double precision` | `double precision` |
//! | `real` and an integer or a `numeric` | `double precision` | `real` |
//!
//! DataFusion, left alone, would cast the float to a decimal of 30 or 14 digits, which holds neither
//! large values nor small ones, let alone NaN.
//!
//! So `r > 0.1` over a `real` asks for the double that is closest to a tenth, which no `real` is. To
//! cast the column for every row would hide it from its indexes; as with dates beside timestamps
//! ([`super::days`]) it is the constant that becomes the neighbour that divides the reals alike:
//!
//! | written | compared with |
//! |---|---|
//! | any comparison with a double that is a `real` | that `real` |
//! | `r < d`, `r >= d` | the first `real` above `d` |
//! | `r <= d`, `r > d` | the last `real` below `d` |
//! | whatever is left, and any `d` that is no constant | `d`, by the double that `r` is |

use super::operators::{Operand, as_text, cast, is_float, is_number, operand};
use super::parameters::Parameters;
use super::{analysis, days};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, binary_expr};
use firn_base::{SqlType, TimeZoneSetting};

/// The type in which operators work on two numbers of different types, if one of them is a float.
pub fn compared(a: SqlType, b: SqlType) -> Option<SqlType> {
    let mixed = a != b && is_number(a) && is_number(b) && (is_float(a) || is_float(b));
    mixed.then_some(SqlType::Double)
}

/// The one type of several numbers of different types, if one of them is a float.
pub fn united(types: &[SqlType]) -> Option<SqlType> {
    let first = types.first()?;
    if types.iter().all(|ty| ty == first) || !types.iter().copied().all(is_number) {
        return None;
    }
    [SqlType::Double, SqlType::Real].into_iter().find(|float| types.contains(float))
}

/// The expression, which is of type `from`, as one of type `to`.
pub fn convert(expression: Expr, from: SqlType, to: SqlType, zone: TimeZoneSetting) -> Result<Expr> {
    match (from, to) {
        (from, to) if from == to => Ok(expression),
        (SqlType::Char(_), SqlType::Text) => Ok(as_text(expression)),
        (from, SqlType::Text) if from.is_string() => Ok(expression),
        _ => analysis::fold(cast(expression, to), zone),
    }
}

/// A comparison in double precision where a float stands beside another number; else as it is.
pub fn compare(
    comparison: BinaryExpr,
    schema: &DFSchema,
    parameters: &Parameters,
    zone: TimeZoneSetting,
) -> Result<BinaryExpr> {
    let BinaryExpr { left, op, right } = comparison;
    let (Operand::Known(a), Operand::Known(b)) =
        (operand(&left, schema, parameters), operand(&right, schema, parameters))
    else {
        return Ok(BinaryExpr { left, op, right });
    };
    let Some(common) = compared(a, b) else { return Ok(BinaryExpr { left, op, right }) };
    let (wide_left, wide_right) =
        (convert(*left.clone(), a, common, zone)?, convert(*right.clone(), b, common, zone)?);
    let narrow = match (a, b, days::is_ordering(op)) {
        (SqlType::Real, _, true) => with_constant(&left, op, &wide_right),
        (_, SqlType::Real, true) => {
            with_constant(&right, op.swap().expect("comparisons have a mirror image"), &wide_left)
        }
        _ => None,
    };
    Ok(narrow.unwrap_or_else(|| BinaryExpr::new(Box::new(wide_left), op, Box::new(wide_right))))
}

/// Arithmetic in double precision where a float stands beside another number; else as it is.
pub fn compute(
    binary: BinaryExpr,
    schema: &DFSchema,
    parameters: &Parameters,
    zone: TimeZoneSetting,
) -> Result<Expr> {
    let BinaryExpr { left, op, right } = binary;
    if let (Operand::Known(a), Operand::Known(b)) =
        (operand(&left, schema, parameters), operand(&right, schema, parameters))
        && let Some(common) = compared(a, b)
    {
        return Ok(binary_expr(convert(*left, a, common, zone)?, op, convert(*right, b, common, zone)?));
    }
    Ok(binary_expr(*left, op, *right))
}

/// A comparison of a real with a double, as one with another real.
fn with_constant(real: &Expr, op: Operator, double: &Expr) -> Option<BinaryExpr> {
    let Expr::Literal(ScalarValue::Float64(Some(double)), _) = double else { return None };
    let constant = ScalarValue::Float32(Some(divider(op, *double)?));
    Some(BinaryExpr::new(Box::new(real.clone()), op, Box::new(Expr::Literal(constant, None))))
}

/// The real to compare reals with instead of the double.
fn divider(op: Operator, double: f64) -> Option<f32> {
    let nearest = double as f32;
    if double.is_nan() || f64::from(nearest) == double {
        return Some(nearest);
    }
    let is_below = f64::from(nearest) < double;
    match op {
        Operator::Lt | Operator::GtEq => Some(if is_below { nearest.next_up() } else { nearest }),
        Operator::LtEq | Operator::Gt => Some(if is_below { nearest } else { nearest.next_down() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_compares_like_the_double_it_stands_for() {
        let holds = |op, a: f64, b: f64| match op {
            Operator::Lt => a < b,
            Operator::LtEq => a <= b,
            Operator::Gt => a > b,
            Operator::GtEq => a >= b,
            Operator::Eq => a == b,
            Operator::NotEq => a != b,
            _ => unreachable!(),
        };
        let ops = [Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq, Operator::Eq, Operator::NotEq];
        let doubles = [0.0, 0.1, 0.5, 1.0, 1e-300, 1e-45, 16_777_217.0, 3.5e38, 1e300, f64::INFINITY];
        for double in doubles.into_iter().flat_map(|double| [double, -double]) {
            let nearest = double as f32;
            let reals = [nearest.next_down(), nearest, nearest.next_up(), 0.0, f32::MAX, f32::MIN];
            for op in ops {
                let Some(divider) = divider(op, double) else {
                    assert!(matches!(op, Operator::Eq | Operator::NotEq) && f64::from(nearest) != double);
                    continue;
                };
                for real in reals {
                    let expected = holds(op, f64::from(real), double);
                    assert_eq!(
                        holds(op, f64::from(real), f64::from(divider)),
                        expected,
                        "{real} {op} {double}"
                    );
                }
            }
        }
    }
}
