//! Conditions on row numbers, as LIMIT becomes one where there is a row number for each value of a domain: how many of the first rows of a
//! partition they let pass.

use crate::function::Strategy;
use crate::operator::{Operator, Window, WindowCall};
use crate::plan::{NodeId, Plan};
use crate::scalar::Scalar;
use firn_base::{TypeId, Value};

/// How many rows a parameter is taken to ask for.
const ASKED: f64 = 10.0;

/// Up to which row number rows of a window meet a condition: a constant or a parameter.
pub fn limit_of(condition: &Scalar, window: &Window) -> Option<Scalar> {
    let condition = match condition {
        // LIMIT NULL is none.
        Scalar::Test(inner, Some(false), true) => &**inner,
        condition => condition,
    };
    let Scalar::Call(call) = condition else { return None };
    let [left, right] = &call.arguments[..] else { return None };
    let strategy = call.function.strategy?;
    let (passed, strategy, count) = match (passed_over(left, window), passed_over(right, window)) {
        (Some(passed), _) => (passed, strategy, right),
        (None, Some(passed)) => (passed, strategy.commuted(), left),
        (None, None) => return None,
    };
    let more = match strategy {
        Strategy::LessOrEqual | Strategy::Equal => passed,
        Strategy::Less => passed.saturating_sub(1),
        _ => return None,
    };
    // LIMIT refuses numbers below zero, so all rows are needed: the condition has to be asked of one.
    let count = match count {
        Scalar::Call(call) if &*call.function.name == "limit_count" => {
            call.arguments.first().filter(|count| integer(count).is_none_or(|count| count >= 0))?
        }
        count => count,
    };
    match count {
        Scalar::Parameter(_, ty) if ty.id == TypeId::INT8 && more == 0 => Some(count.clone()),
        count => Some(Scalar::int8(integer(count)?.saturating_add(more))),
    }
}

/// How much less than a row number of a window a scalar is, as behind OFFSET: 0 if it is the number.
fn passed_over(scalar: &Scalar, window: &Window) -> Option<i64> {
    let is_number = |scalar: &Scalar| {
        let is_output = |call: &WindowCall| call.is_row_number() && *scalar == Scalar::Column(call.output);
        window.calls.iter().any(is_output)
    };
    match scalar {
        Scalar::Call(call) if call.function.operator.as_deref() == Some("-") => match &call.arguments[..] {
            [number, passed] if is_number(number) => integer(passed),
            _ => None,
        },
        scalar => is_number(scalar).then_some(0),
    }
}

fn integer(scalar: &Scalar) -> Option<i64> {
    match scalar {
        Scalar::Constant(_, Value::BigInt(value)) => Some(*value),
        Scalar::Constant(_, Value::Integer(value)) => Some((*value).into()),
        Scalar::Constant(_, Value::SmallInt(value)) => Some((*value).into()),
        _ => None,
    }
}

/// Whether a condition above an operator holds for the first rows that it gives, and is why it gives no others.
pub fn is_limit(plan: &Plan, node: NodeId, condition: &Scalar) -> bool {
    match &plan[node] {
        Operator::Window(window) if window.first.is_some() => limit_of(condition, window) == window.first,
        _ => false,
    }
}

/// How many rows a count is expected to ask for.
pub fn expected(count: &Scalar) -> f64 {
    match count {
        Scalar::Constant(_, Value::BigInt(count)) => (*count).max(0) as f64,
        _ => ASKED,
    }
}
