//! Which columns of a query have a precision that somebody declared.
//!
//! Inside plans every numeric has a precision and a scale, since Arrow's decimals do. To users only
//! columns of tables and casts to `numeric(p, s)` have them: what else a query computes is plain
//! `numeric`, and a table made of it must hold later values of any scale.

use crate::bind::{AS_CAST, AS_IS, ROUNDING};
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan};

/// Whether the precision of an output was declared.
pub(super) fn is_declared(plan: &LogicalPlan, position: usize) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::Projection(projection) => {
            expression_is_declared(&projection.expr[position], &projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => is_declared(&alias.input, position),
        LogicalPlan::Filter(filter) => is_declared(&filter.input, position),
        LogicalPlan::Sort(sort) => is_declared(&sort.input, position),
        LogicalPlan::Limit(limit) => is_declared(&limit.input, position),
        LogicalPlan::Distinct(Distinct::All(input)) => is_declared(input, position),
        LogicalPlan::Window(window) => {
            position < window.input.schema().fields().len() && is_declared(&window.input, position)
        }
        LogicalPlan::Aggregate(aggregate) => aggregate
            .group_expr
            .get(position)
            .is_some_and(|expression| expression_is_declared(expression, &aggregate.input)),
        LogicalPlan::Join(join) => match position.checked_sub(join.left.schema().fields().len()) {
            None => is_declared(&join.left, position),
            Some(position) => is_declared(&join.right, position),
        },
        _ => false,
    }
}

fn expression_is_declared(expression: &Expr, input: &LogicalPlan) -> bool {
    match expression {
        Expr::Alias(alias) => expression_is_declared(&alias.expr, input),
        Expr::Column(column) => {
            input.schema().index_of_column(column).is_ok_and(|position| is_declared(input, position))
        }
        Expr::ScalarFunction(call) if matches!(call.name(), AS_IS | AS_CAST) => {
            expression_is_declared(&call.args[0], input)
        }
        Expr::Cast(cast) if cast.field.name() == ROUNDING => false,
        // A cast of an integer is more likely one to plain numeric than one without decimals.
        Expr::Cast(cast) => !matches!(cast.expr.get_type(input.schema()), Ok(ty) if ty.is_integer()),
        _ => false,
    }
}
