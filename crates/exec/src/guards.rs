//! Conditions that keep others from failing.
//!
//! `WHERE x <> 0 AND 10 / x > 3` divides by no zero in PostgreSQL, which asks one condition after the other of each row. DataFusion asks
//! each of whole batches, and brings in others from above and beyond. So what might fail is asked last, and of the rows alone that
//! all others leave:
//!
//! | optimised | becomes |
//! |---|---|
//! | `WHERE safe AND failing` | `WHERE CASE WHEN safe THEN failing ELSE false END` |
//! | `a OR failing` | `CASE WHEN a THEN true ELSE a OR failing END` |
//! | `a AND failing`, where NULL is not false | `CASE WHEN NOT a THEN false ELSE a AND failing END` |
//! | `sum(failing) FILTER (WHERE a)` | `sum(CASE WHEN a THEN failing END) FILTER (WHERE a)` |
//!
//! But for aggregates, this comes after all rules of the optimiser: conditions have gone where they go, and joins have found their keys among them.

use crate::lower::{arithmetic, cast, under_its_name};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, Case};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_binary_owned, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, binary_expr};

/// Functions that take not all values of their arguments' types.
const PARTIAL: &[&str] = &[
    "acos",
    "acosh",
    "asin",
    "atanh",
    "chr",
    "decode",
    "ln",
    "log",
    "log10",
    "log2",
    "make_date",
    "pow",
    "power",
    "sqrt",
    "to_date",
    "to_number",
    "to_timestamp",
];

/// Those that take a length.
const SUBSTRINGS: &[&str] = &["substr", "substring"];

/// Rewrites the conditions of a plan.
pub(crate) fn plan(plan: LogicalPlan) -> Result<LogicalPlan> {
    let guarded = plan.transform_up_with_subqueries(|mut node| {
        crate::interrupt::check()?;
        match &mut node {
            LogicalPlan::Filter(filter) if may_fail(&filter.predicate) => {
                filter.predicate = condition(std::mem::take(&mut filter.predicate))?;
                return Ok(Transformed::yes(node));
            }
            LogicalPlan::Join(join) => {
                let Some(filter) = join.filter.take_if(|filter| may_fail(filter)) else {
                    return Ok(Transformed::no(node));
                };
                join.filter = Some(condition(filter)?);
                return Ok(Transformed::yes(node));
            }
            LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => {}
            _ => return Ok(Transformed::no(node)),
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| match may_fail(&expression) {
            true => under_its_name(&names, expression, &mut |expression| value(expression)),
            false => Ok(Transformed::no(expression)),
        })
    })?;
    Ok(guarded.data)
}

/// Whether an expression might fail for some rows, and does for those that another condition is there to leave out. What overflows is not
/// looked for.
fn may_fail(expression: &Expr) -> bool {
    let fails = |part: &Expr| {
        Ok(match part {
            Expr::BinaryExpr(BinaryExpr { op: Operator::Divide | Operator::Modulo, right, .. }) => {
                !matches!(**right, Expr::Literal(..))
            }
            Expr::ScalarFunction(call) if arithmetic::divides(&call.func) => {
                !matches!(call.args.last(), Some(Expr::Literal(..)))
            }
            // No length is less than nothing.
            Expr::ScalarFunction(call) if SUBSTRINGS.contains(&call.name()) => {
                call.args.iter().skip(1).any(|argument| !matches!(argument, Expr::Literal(..)))
            }
            Expr::ScalarFunction(call) => cast::may_fail(&call.func) || PARTIAL.contains(&call.name()),
            _ => false,
        })
    };
    expression.exists(fails).expect("nothing fails here")
}

/// A condition on rows, of which those are left out for which it is false or NULL.
fn condition(predicate: Expr) -> Result<Expr> {
    let (failing, safe): (Vec<Expr>, Vec<Expr>) =
        split_conjunction_owned(predicate).into_iter().partition(may_fail);
    let failing = failing.into_iter().map(|part| value(part).map(|part| part.data));
    let mut parts: Vec<Expr> = conjunction(safe).into_iter().map(Ok).chain(failing).collect::<Result<_>>()?;
    let last = parts.pop().expect("there was a condition");
    Ok(parts.into_iter().rfold(last, |rest, part| case(part, rest, Some(boolean(false)))))
}

/// An expression with all three truths in which no operand of AND and OR is computed that does not matter.
fn value(expression: Expr) -> Result<Transformed<Expr>> {
    expression.transform_down(|part| {
        Ok(match part {
            Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. })
                if may_fail(&part) && !is_told_twice_otherwise(&part) =>
            {
                let (failing, safe): (Vec<Expr>, Vec<Expr>) =
                    split_binary_owned(part, op).into_iter().partition(may_fail);
                let mut parts = Vec::with_capacity(safe.len() + failing.len());
                parts.extend(safe.into_iter().reduce(|left, right| binary_expr(left, op, right)));
                for part in failing {
                    parts.push(value(part)?.data);
                }
                let last = parts.pop().expect("it has operands");
                let joined = parts.into_iter().rfold(last, |rest, part| lazily(part, op, rest));
                Transformed::new(joined, true, TreeNodeRecursion::Jump)
            }
            other => Transformed::no(other),
        })
    })
}

/// Whether an expression would tell another truth if it were asked twice, or would cost too much.
fn is_told_twice_otherwise(expression: &Expr) -> bool {
    let is_query = |part: &Expr| {
        let is_subquery = matches!(
            part,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
        );
        Ok(is_subquery || matches!(part, Expr::AggregateFunction(_) | Expr::WindowFunction(_)))
    };
    expression.is_volatile() || expression.exists(is_query).expect("nothing fails here")
}

/// `left op right`, of which the right side is only asked where the left does not decide.
fn lazily(left: Expr, op: Operator, right: Expr) -> Expr {
    let (decides, truth) = match op {
        Operator::And => (Expr::Not(Box::new(left.clone())), false),
        _ => (left.clone(), true),
    };
    case(decides, boolean(truth), Some(binary_expr(left, op, right)))
}

/// Has arguments of an aggregate computed of the rows alone that its filter leaves. Before the rules of the optimiser, which compute what
/// several aggregates have in common of all rows.
pub(crate) fn of_aggregate(call: &mut AggregateFunction) {
    if let Some(filter) = call.params.filter.as_ref().filter(|filter| !is_told_twice_otherwise(filter)) {
        for argument in call.params.args.iter_mut().filter(|argument| may_fail(argument)) {
            *argument = case((**filter).clone(), std::mem::take(argument), None);
        }
    }
}

fn case(when: Expr, then: Expr, otherwise: Option<Expr>) -> Expr {
    Expr::Case(Case::new(None, vec![(Box::new(when), Box::new(then))], otherwise.map(Box::new)))
}

fn boolean(value: bool) -> Expr {
    Expr::Literal(ScalarValue::Boolean(Some(value)), None)
}
