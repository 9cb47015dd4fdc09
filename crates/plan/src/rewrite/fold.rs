//! Folding: scalars that are constants become constants, and connectives lose what does not matter.
//!
//! Folding is always tried. If evaluating raises an error, the expression stays and raises it when a
//! row reaches it. Conditions of filters and joins become lists without TRUE and without AND.

use super::Evaluator;
use crate::faults::Fault;
use crate::function::{Function, Volatility};
use crate::operator::{JoinKind, Operator};
use crate::plan::Plan;
use crate::properties::widen_nullability;
use crate::scalar::{Scalar, Values};
use firn_base::{Result, Type, TypeId, Value};

/// Folds all scalars of a plan.
pub fn fold(plan: &mut Plan, evaluator: &dyn Evaluator) {
    for node in plan.post_order() {
        let mut operator = plan.take(node);
        operator.for_each_scalar_mut(|scalar| fold_scalar(scalar, evaluator));
        match &mut operator {
            Operator::Filter { conditions, .. } => split_conditions(conditions),
            Operator::Scan(scan) => split_conditions(&mut scan.conditions),
            // A mark is NULL or FALSE as the conjunction is.
            Operator::Join(join) if join.kind == JoinKind::Mark => {
                join.conditions.retain(|condition| !condition.is_true());
            }
            Operator::Join(join) => split_conditions(&mut join.conditions),
            _ => {}
        }
        plan[node] = operator;
    }
    widen_nullability(plan);
}

/// Folds one scalar.
pub fn fold_alone(scalar: &mut Scalar, evaluator: &dyn Evaluator) {
    fold_scalar(scalar, evaluator);
}

/// Conditions of which only TRUE counts, as a list without AND; one FALSE or NULL is all there is then.
fn split_conditions(conditions: &mut Vec<Scalar>) {
    let mut list = Vec::with_capacity(conditions.len());
    for condition in conditions.drain(..) {
        match condition {
            // Operands of AND are no ANDs: folding has made one list of them.
            Scalar::And(operands) => list.extend(operands),
            other => list.push(other),
        }
    }
    list.retain(|condition| !condition.is_true());
    if list.iter().any(is_never_true) {
        list = vec![Scalar::boolean(false)];
    }
    conditions.reserve(list.len());
    for condition in list {
        match condition {
            Scalar::Or(alternatives) => factor(alternatives, conditions),
            other => conditions.push(other),
        }
    }
}

/// Comparisons of scalars that [`factor`] makes at most.
const MOST_COMPARISONS: usize = 10_000;

/// `(a AND b) OR (a AND c)` as `a` and `(b OR c)`: what all alternatives ask becomes a condition of its own, which a join may
/// have as its key. What can fail stays where it is asked.
fn factor(mut alternatives: Vec<Scalar>, conditions: &mut Vec<Scalar>) {
    fn operands(alternative: &Scalar) -> &[Scalar] {
        match alternative {
            Scalar::And(list) => list,
            other => std::slice::from_ref(other),
        }
    }
    let (first, others) = alternatives.split_first().expect("OR has operands");
    let count: usize = others.iter().map(|other| operands(other).len()).sum();
    let mut common: Vec<Scalar> = Vec::new();
    if operands(first).len().saturating_mul(count) <= MOST_COMPARISONS {
        let is_common = |operand: &&Scalar| {
            others.iter().all(|other| operands(other).contains(operand))
                && !operand.can_fail()
                && !operand.is_volatile()
        };
        common.extend(operands(first).iter().filter(is_common).cloned());
    }
    if common.is_empty() {
        conditions.push(Scalar::Or(alternatives));
        return;
    }
    let mut asks_more = true;
    for alternative in &mut alternatives {
        let rest = match alternative {
            Scalar::And(list) => {
                list.retain(|operand| !common.contains(operand));
                match list.len() {
                    0 => None,
                    1 => list.pop(),
                    _ => continue,
                }
            }
            _ => None,
        };
        match rest {
            Some(rest) => *alternative = rest,
            // It asks nothing more, so neither does the whole.
            None => asks_more = false,
        }
    }
    conditions.append(&mut common);
    if asks_more {
        conditions.push(Scalar::Or(alternatives));
    }
}

/// Whether a condition is FALSE or NULL for all rows.
pub fn is_never_true(condition: &Scalar) -> bool {
    matches!(condition, Scalar::Constant(_, Value::Boolean(false) | Value::Null))
}

fn fold_scalar(scalar: &mut Scalar, evaluator: &dyn Evaluator) {
    scalar.for_each_child_mut(|child| fold_scalar(child, evaluator));
    let boolean = Type::new(TypeId::BOOL);
    let folded = match scalar {
        Scalar::Call(call) => {
            let function = &call.function;
            let arguments: Option<Vec<(Type, Value)>> = call.arguments.iter().map(constant).collect();
            let is_null = |argument: &Scalar| matches!(argument, Scalar::Constant(_, Value::Null));
            if function.strict
                && function.volatility != Volatility::Volatile
                && call.arguments.iter().any(is_null)
                && !call.arguments.iter().any(Scalar::can_fail)
            {
                Some(Scalar::Constant(call.ty, Value::Null))
            } else if let Some(arguments) = arguments
                && function.volatility == Volatility::Immutable
            {
                let value = match function.is_chain(arguments.len()) {
                    true => chained(evaluator, function, arguments, call.ty),
                    false => evaluator.call(function, &arguments, call.ty),
                };
                value.ok().map(|value| Scalar::Constant(call.ty, value))
            } else {
                None
            }
        }
        Scalar::Cast(cast) => match (&cast.function, constant(&cast.argument)) {
            (_, Some((_, Value::Null))) => Some(Scalar::Constant(cast.ty, Value::Null)),
            (function, Some((source, value)))
                if function.as_ref().is_none_or(|function| function.volatility == Volatility::Immutable) =>
            {
                let value = evaluator.cast(cast, source, value).ok();
                value.map(|value| Scalar::Constant(cast.ty, value))
            }
            _ => None,
        },
        Scalar::Parameter(_, ty) if Fault::ParameterFolded.is_made() && ty.id == TypeId::INT4 => {
            Some(Scalar::Constant(*ty, Value::Integer(1)))
        }
        Scalar::And(list) => connect(list, false),
        Scalar::Or(list) => connect(list, true),
        Scalar::Not(argument) => match &mut **argument {
            Scalar::Constant(_, Value::Boolean(value)) => Some(Scalar::boolean(!*value)),
            Scalar::Constant(_, Value::Null) => Some(Scalar::Constant(boolean, Value::Null)),
            Scalar::Not(inner) => Some(std::mem::replace(&mut **inner, Scalar::boolean(true))),
            Scalar::IsNull(inner, negated) => {
                let inner = std::mem::replace(&mut **inner, Scalar::boolean(true));
                Some(Scalar::IsNull(Box::new(inner), !*negated))
            }
            _ => None,
        },
        Scalar::IsNull(argument, negated) => match &**argument {
            Scalar::Constant(_, value) => Some(Scalar::boolean((*value == Value::Null) != *negated)),
            _ => None,
        },
        Scalar::Test(argument, which, negated) => match &**argument {
            Scalar::Constant(_, value) => {
                let is = match (value, which) {
                    (Value::Boolean(value), Some(which)) => value == which,
                    (Value::Null, None) => true,
                    _ => false,
                };
                Some(Scalar::boolean(is != *negated))
            }
            _ => None,
        },
        Scalar::Coalesce(list) => {
            let last = list.last().cloned();
            list.retain(|scalar| !matches!(scalar, Scalar::Constant(_, Value::Null)));
            if list.is_empty() {
                list.extend(last);
            }
            // Behind a constant nothing is asked.
            if let Some(first) = list.iter().position(|scalar| matches!(scalar, Scalar::Constant(..))) {
                list.truncate(first + 1);
            }
            match list.len() {
                1 => list.pop(),
                _ => None,
            }
        }
        Scalar::Case(case) if case.operand.is_none() => {
            case.arms.retain(|(condition, _)| !is_never_true(condition));
            if let Some(first) = case.arms.iter().position(|(condition, _)| condition.is_true()) {
                case.otherwise = std::mem::replace(&mut case.arms[first].1, Scalar::boolean(true));
                case.arms.truncate(first);
            }
            case.arms.is_empty().then(|| std::mem::replace(&mut case.otherwise, Scalar::boolean(true)))
        }
        Scalar::Quantified(quantified) => match &quantified.values {
            Values::List(list) if list.is_empty() && !quantified.argument.can_fail() => {
                Some(Scalar::boolean(quantified.all))
            }
            _ => None,
        },
        _ => None,
    };
    if let Some(folded) = folded {
        *scalar = folded;
    }
}

/// A binary operator over a list, from left to right.
fn chained(
    evaluator: &dyn Evaluator,
    function: &Function,
    arguments: Vec<(Type, Value)>,
    ty: Type,
) -> Result<Value> {
    let mut rest = arguments.into_iter();
    let mut left = rest.next().expect("a chain has operands");
    for right in rest {
        left = (ty, evaluator.call(function, &[left, right], ty)?);
    }
    Ok(left.1)
}

fn constant(scalar: &Scalar) -> Option<(Type, Value)> {
    match scalar {
        Scalar::Constant(ty, value) => Some((*ty, value.clone())),
        _ => None,
    }
}

/// AND (`decisive` FALSE) and OR (TRUE): one list of operands that may matter.
fn connect(list: &mut Vec<Scalar>, decisive: bool) -> Option<Scalar> {
    let mut flat = Vec::with_capacity(list.len());
    for operand in list.drain(..) {
        match operand {
            Scalar::And(inner) if !decisive => flat.extend(inner),
            Scalar::Or(inner) if decisive => flat.extend(inner),
            Scalar::Constant(_, Value::Boolean(value)) if value != decisive => {}
            other => flat.push(other),
        }
    }
    let decides = |operand: &Scalar| matches!(operand, Scalar::Constant(_, Value::Boolean(value)) if *value == decisive);
    if flat.iter().any(decides) {
        return Some(Scalar::boolean(decisive));
    }
    *list = flat;
    match list.len() {
        0 => Some(Scalar::boolean(!decisive)),
        1 => list.pop(),
        _ => None,
    }
}
