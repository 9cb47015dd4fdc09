//! Comparisons of dates with timestamps, which PostgreSQL makes as if a date were its midnight.
//!
//! A date plus an interval is a timestamp, so ranges of dates are mostly written like this:
//! `d < date '1995-09-01' + interval '1 month'`. To cast the column for every row costs several
//! times what the comparison does and hides the column from its indexes; DataFusion, left alone,
//! would even cast to nanoseconds, which end in 2262. So it is the constant that changes its type:
//!
//! | written | compared with |
//! |---|---|
//! | `d < t`, `d >= t` | the first day that does not begin before `t` |
//! | `d <= t`, `d > t` | the last day that does not begin after `t` |
//! | `d = t`, `d <> t` | the day that begins at `t`, if one does |
//! | whatever is left, and any `t` that is no constant | `t`, by the date's midnight |
//!
//! Beside a timestamp with time zone a date is its midnight in the session's time zone. Where several values have to
//! be of one type, as the branches of CASE have, that is the one to which all others may be cast unasked: with a time
//! zone if one of them has it.

use super::floats;
use super::operators::{Operand, cast, operand};
use super::parameters::Parameters;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::Between;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, binary_expr};
use firn_base::datetime::MICROS_PER_DAY;
use firn_base::{SqlType, TimeZoneSetting, Value};
use firn_exec::types;

/// Whether an operator asks which of two values comes first, or whether they are equal.
pub fn is_ordering(op: Operator) -> bool {
    use Operator::*;
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// The one type of several dates and timestamps, if there are both.
pub fn united(types: &[SqlType]) -> Option<SqlType> {
    let is_moment = |ty: &SqlType| matches!(ty, SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz);
    if !types.contains(&SqlType::Date) || !types.iter().all(is_moment) {
        return None;
    }
    [SqlType::TimestampTz, SqlType::Timestamp].into_iter().find(|moment| types.contains(moment))
}

/// Compares by the day where a date stands beside a timestamp; else the comparison as it is.
pub fn compare(
    comparison: BinaryExpr,
    schema: &DFSchema,
    parameters: &Parameters,
    zone: TimeZoneSetting,
) -> Result<Expr> {
    let BinaryExpr { left, op, right } = comparison;
    let moment = |date: Expr| floats::convert(date, SqlType::Date, SqlType::TimestampTz, zone);
    Ok(match (operand(&left, schema, parameters), operand(&right, schema, parameters)) {
        (Operand::Known(SqlType::Date), Operand::Known(SqlType::Timestamp)) => with_moment(*left, op, *right),
        (Operand::Known(SqlType::Timestamp), Operand::Known(SqlType::Date)) => {
            with_moment(*right, op.swap().expect("comparisons have a mirror image"), *left)
        }
        (Operand::Known(SqlType::Date), Operand::Known(SqlType::TimestampTz)) => {
            binary_expr(moment(*left)?, op, *right)
        }
        (Operand::Known(SqlType::TimestampTz), Operand::Known(SqlType::Date)) => {
            binary_expr(*left, op, moment(*right)?)
        }
        _ => binary_expr(*left, op, *right),
    })
}

/// BETWEEN as the two comparisons that it is, if it holds a date against a timestamp.
pub fn between(
    between: Between,
    schema: &DFSchema,
    parameters: &Parameters,
    zone: TimeZoneSetting,
) -> Result<Expr> {
    let known = |expression: &Expr| operand(expression, schema, parameters).known();
    let types: Vec<SqlType> =
        [&between.expr, &between.low, &between.high].into_iter().filter_map(|part| known(part)).collect();
    let Some(common) = united(&types).filter(|_| types.len() == 3) else {
        return Ok(Expr::Between(between));
    };
    if between.expr.is_volatile() {
        let part = |part: Box<Expr>, from| floats::convert(*part, from, common, zone).map(Box::new);
        let (expr, low) = (part(between.expr, types[0])?, part(between.low, types[1])?);
        return Ok(Expr::Between(Between::new(expr, between.negated, low, part(between.high, types[2])?)));
    }
    let (lower, upper, both) = match between.negated {
        false => (Operator::GtEq, Operator::LtEq, Operator::And),
        true => (Operator::Lt, Operator::Gt, Operator::Or),
    };
    let low = BinaryExpr::new(between.expr.clone(), lower, between.low);
    let high = BinaryExpr::new(between.expr, upper, between.high);
    Ok(binary_expr(compare(low, schema, parameters, zone)?, both, compare(high, schema, parameters, zone)?))
}

fn with_moment(date: Expr, op: Operator, moment: Expr) -> Expr {
    match constant(&moment).and_then(|micros| day(op, micros)) {
        Some(day) => {
            binary_expr(date, op, Expr::Literal(types::scalar(&Value::Date(day), SqlType::Date), None))
        }
        None => binary_expr(cast(date, SqlType::Timestamp), op, moment),
    }
}

/// The timestamp that a literal is, or a literal and an interval.
fn constant(moment: &Expr) -> Option<i64> {
    match moment {
        Expr::Literal(ScalarValue::TimestampMicrosecond(micros, None), _) => *micros,
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right })
            if matches!((&**left, &**right), (Expr::Literal(..), Expr::Literal(..))) =>
        {
            // An error is not ours to report: it comes when the rows do.
            constant(&firn_exec::runtime::simplify(moment.clone()).ok().filter(|folded| folded != moment)?)
        }
        _ => None,
    }
}

/// The day to compare a date with instead of the timestamp.
fn day(op: Operator, micros: i64) -> Option<i32> {
    let begun = micros.div_euclid(MICROS_PER_DAY);
    let is_midnight = micros.rem_euclid(MICROS_PER_DAY) == 0;
    let day = match op {
        Operator::Lt | Operator::GtEq => begun + i64::from(!is_midnight),
        Operator::LtEq | Operator::Gt => begun,
        Operator::Eq | Operator::NotEq if is_midnight => begun,
        _ => return None,
    };
    i32::try_from(day).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_among_timestamps_are_of_the_widest_type_there() {
        use SqlType::{Date, Integer, Timestamp, TimestampTz};
        for (types, expected) in [
            (&[Date, Timestamp][..], Some(Timestamp)),
            (&[Timestamp, Date, TimestampTz], Some(TimestampTz)),
            (&[TimestampTz, Date], Some(TimestampTz)),
            // Without a date there is nothing of which DataFusion would make nanoseconds.
            (&[Timestamp, TimestampTz], None),
            (&[Date, Date], None),
            (&[Date, Timestamp, Integer], None),
            (&[], None),
        ] {
            assert_eq!(united(types), expected, "{types:?}");
        }
    }

    #[test]
    fn a_day_compares_like_the_timestamp_it_stands_for() {
        let holds = |op, a: i64, b: i64| match op {
            Operator::Lt => a < b,
            Operator::LtEq => a <= b,
            Operator::Gt => a > b,
            Operator::GtEq => a >= b,
            Operator::Eq => a == b,
            Operator::NotEq => a != b,
            _ => unreachable!(),
        };
        let ops = [Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq, Operator::Eq, Operator::NotEq];
        for op in ops {
            for micros in [-MICROS_PER_DAY - 1, -MICROS_PER_DAY, -1, 0, 1, MICROS_PER_DAY - 1, MICROS_PER_DAY]
            {
                let Some(day) = day(op, micros) else {
                    assert!(matches!(op, Operator::Eq | Operator::NotEq) && micros % MICROS_PER_DAY != 0);
                    continue;
                };
                for date in -3..=3 {
                    let expected = holds(op, date * MICROS_PER_DAY, micros);
                    assert_eq!(holds(op, date, i64::from(day)), expected, "{date} {op} {micros}");
                }
            }
        }
    }
}
