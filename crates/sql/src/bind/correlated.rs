//! Correlated sub-queries that stand for a value.
//!
//! PostgreSQL runs one for every outer row and wants one row of it at most. DataFusion turns it into
//! a join with groups of the inner rows, so the inner rows must be aggregated:
//!
//! | written | becomes |
//! |---|---|
//! | `(SELECT x FROM t WHERE t.a = o.a)` | `only_value((SELECT few(x) FROM t WHERE t.a = o.a))` |
//! | `(SELECT x FROM t WHERE t.a = o.a ORDER BY y LIMIT 1)` | `(SELECT first_value(x ORDER BY y) FROM t WHERE t.a = o.a)` |
//!
//! A sub-query that is an aggregate already, or one row of no table, or refers to nothing outside, stays. An order of the one row of
//! an aggregate without groups, `LIMIT 1` and `DISTINCT` are left out: they would make no row of it where nothing is aggregated.

use super::operators::cast;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::{
    Distinct, Expr, Limit, LogicalPlan, LogicalPlanBuilder, Projection, SortExpr, Subquery, SubqueryAlias,
};
use firn_base::SqlType;
use firn_base::sync::Arc;
use firn_exec::aggregate::{few, only_value};
use firn_exec::types;

/// Rewrites the sub-queries in an expression.
pub fn aggregate_rows(expression: Expr) -> Result<Transformed<Expr>> {
    expression.transform_up(|node| match node {
        Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty() => one_value(subquery),
        // DataFusion takes the value for NOT NULL like its column, but there may be no row.
        Expr::ScalarSubquery(subquery)
            if !subquery.subquery.schema().field(0).is_nullable() && !is_aggregate(&subquery.subquery) =>
        {
            only_row(subquery)
        }
        other => Ok(Transformed::no(other)),
    })
}

fn one_value(subquery: Subquery) -> Result<Transformed<Expr>> {
    if !is_aggregate(&subquery.subquery)
        && let Some(plan) = single_row(&subquery.subquery)?
    {
        return Ok(Transformed::yes(Expr::ScalarSubquery(Subquery { subquery: plan, ..subquery })));
    }
    if is_aggregate(&subquery.subquery) || is_one_row(&subquery.subquery) {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    }
    if let LogicalPlan::Limit(limit) = subquery.subquery.as_ref() {
        if !is_first_row(limit) {
            return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
        }
        let (input, value, mut order) = ordered(&limit.input);
        // They may name what is below the value, and are computed where it is.
        if order.iter().any(|key| asks(&key.expr)) {
            return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
        }
        // A key that has been looked at before tells nothing, and DataFusion's aggregate wants none.
        let mut known: Vec<Expr> = Vec::with_capacity(order.len());
        order.retain(|key| {
            let is_new = !known.contains(&key.expr);
            known.push(key.expr.clone());
            is_new
        });
        let first = AggregateFunction::new_udf(first_value_udaf(), vec![value], false, None, order, None);
        return aggregated(&subquery, input, first).map(Transformed::yes);
    }
    only_row(subquery)
}

fn aggregated(subquery: &Subquery, input: Arc<LogicalPlan>, call: AggregateFunction) -> Result<Expr> {
    let plan = LogicalPlanBuilder::from(input)
        .aggregate(Vec::<Expr>::new(), vec![Expr::AggregateFunction(call)])?
        .build()?;
    Ok(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery.clone() }))
}

/// `only_value((SELECT few(x) …))`
fn only_row(subquery: Subquery) -> Result<Transformed<Expr>> {
    let value = Expr::Column(subquery.subquery.schema().columns().remove(0));
    let call = AggregateFunction::new_udf(few(), vec![value], false, None, Vec::new(), None);
    let rows = aggregated(&subquery, Arc::clone(&subquery.subquery), call)?;
    let value = Expr::ScalarFunction(ScalarFunction::new_udf(only_value(), vec![rows]));
    let field = subquery.subquery.schema().field(0);
    Ok(Transformed::yes(match types::sql_type(field) {
        // A list does not know that its elements are of type char(n), say.
        Some(ty @ (SqlType::Char(_) | SqlType::Varchar(_))) => cast(value, ty),
        _ => value,
    }))
}

/// Whether a plan yields one row of all the rows below it.
fn is_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_aggregate(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_aggregate(&alias.input),
        LogicalPlan::Aggregate(_) => true,
        _ => false,
    }
}

/// An aggregate without groups, and what is computed of its row, without what would only pick or order rows. `None` if a plan is
/// something else.
fn single_row(plan: &Arc<LogicalPlan>) -> Result<Option<Arc<LogicalPlan>>> {
    match plan.as_ref() {
        LogicalPlan::Aggregate(aggregate) => Ok(aggregate.group_expr.is_empty().then(|| Arc::clone(plan))),
        LogicalPlan::Limit(limit) if is_first_row(limit) => single_row(&limit.input),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => single_row(&sort.input),
        LogicalPlan::Distinct(Distinct::All(input)) => single_row(input),
        LogicalPlan::Projection(projection) => {
            let Some(input) = single_row(&projection.input)? else { return Ok(None) };
            let projection = Projection::try_new(projection.expr.clone(), input)?;
            Ok(Some(Arc::new(LogicalPlan::Projection(projection))))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(input) = single_row(&alias.input)? else { return Ok(None) };
            let alias = SubqueryAlias::try_new(input, alias.alias.clone())?;
            Ok(Some(Arc::new(LogicalPlan::SubqueryAlias(alias))))
        }
        _ => Ok(None),
    }
}

/// Whether a plan yields a row without reading any.
fn is_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_one_row(&alias.input),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}

/// `LIMIT 1` without OFFSET.
fn is_first_row(limit: &Limit) -> bool {
    fn number(expression: &Expr) -> Option<i64> {
        match expression {
            Expr::Cast(cast) => number(&cast.expr),
            Expr::Literal(ScalarValue::Int64(number), _) => *number,
            Expr::Literal(ScalarValue::Int32(number), _) => number.map(i64::from),
            _ => None,
        }
    }
    let skip = limit.skip.as_deref().map_or(Some(0), number);
    skip == Some(0) && limit.fetch.as_deref().and_then(number) == Some(1)
}

/// Whether there is a sub-query in an expression.
fn asks(expression: &Expr) -> bool {
    let is_query = |part: &Expr| {
        Ok(matches!(
            part,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
        ))
    };
    expression.exists(is_query).expect("nothing fails here")
}

/// The rows below an order, the value that is wanted of each, and the order.
fn ordered(plan: &Arc<LogicalPlan>) -> (Arc<LogicalPlan>, Expr, Vec<SortExpr>) {
    let column = |plan: &LogicalPlan| Expr::Column(plan.schema().columns().remove(0));
    match plan.as_ref() {
        LogicalPlan::Sort(sort) => (Arc::clone(&sort.input), column(&sort.input), sort.expr.clone()),
        LogicalPlan::Projection(projection) => match projection.input.as_ref() {
            LogicalPlan::Sort(sort) => {
                (Arc::clone(&sort.input), projection.expr[0].clone().unalias(), sort.expr.clone())
            }
            _ => (Arc::clone(plan), column(plan), Vec::new()),
        },
        _ => (Arc::clone(plan), column(plan), Vec::new()),
    }
}
