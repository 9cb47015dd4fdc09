//! Orders by sub-queries that refer to the rows which they order: DataFusion knows none.
//!
//! | written | becomes |
//! |---|---|
//! | `SELECT id FROM t ORDER BY (SELECT count(*) … t.id …)` | `SELECT id FROM (SELECT id, count … FROM t) ORDER BY count` |
//! | `SELECT id FROM t ORDER BY (SELECT count(*) … t.a …)` | the same, but that the count is taken below the outputs, where there is an `a` |

use super::beyond::{Form, has, subquery_of};
use super::{only_columns, values_where};
use crate::bind::lateral::refers;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Sort, Subquery};
use firn_base::sync::Arc;
use firn_exec::types::NAME_END;

pub(super) fn in_sort(sort: &Sort, names: &mut usize) -> Result<Option<LogicalPlan>> {
    if let LogicalPlan::Projection(outputs) = sort.input.as_ref()
        && let Some(sorted) = below_outputs(sort, outputs, names)?
    {
        return Ok(Some(sorted));
    }
    let schema = sort.input.schema();
    let keys: Vec<Expr> = sort.expr.iter().map(|key| key.expr.clone()).collect();
    let mut any = false;
    for key in &keys {
        any |= asks_of(key, schema)?;
    }
    if !any {
        return Ok(None);
    }
    let input = sort.input.as_ref().clone();
    let Some((computed, keys)) = values_where(input, keys, names, is_wanted)? else { return Ok(None) };
    let keys = keys.into_iter().zip(&sort.expr).map(|(key, old)| old.with_expr(key)).collect();
    let sorted = Sort { expr: keys, input: Arc::new(computed), fetch: sort.fetch };
    only_columns(LogicalPlan::Sort(sorted), schema).map(Some)
}

/// Every sub-query that refers to the rows: no other plan of it is known here.
fn is_wanted(subquery: &Subquery, _: Form, outer: &DFSchema) -> Result<bool> {
    refers(&subquery.subquery, outer)
}

/// Whether a sub-query in an expression refers to such columns.
fn asks_of(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    has(expression, &mut |part: &Expr| match subquery_of(part) {
        Some((subquery, _)) => refers(&subquery.subquery, schema),
        None => Ok(false),
    })
}

/// An order whose sub-queries refer to what the outputs are computed of, and do not have. `None` if there is no such sub-query.
fn below_outputs(sort: &Sort, outputs: &Projection, names: &mut usize) -> Result<Option<LogicalPlan>> {
    let (below, above) = (outputs.input.schema(), &outputs.schema);
    let mut places = Vec::new();
    let mut keys = Vec::new();
    let mut is_below = false;
    for (place, key) in sort.expr.iter().enumerate() {
        if !asks_of(&key.expr, below)? {
            continue;
        }
        is_below |= reaches_below(&key.expr, below, above)?;
        let Some(key) = over_input(&key.expr, outputs)? else { return Ok(None) };
        places.push(place);
        keys.push(key);
    }
    if !is_below {
        return Ok(None);
    }
    let input = outputs.input.as_ref().clone();
    let Some((computed, keys)) = values_where(input, keys, names, is_wanted)? else { return Ok(None) };
    let mut expressions = outputs.expr.clone();
    let mut order = sort.expr.clone();
    for (place, key) in places.into_iter().zip(keys) {
        *names += 1;
        let name = format!("{NAME_END}dependent {names}");
        expressions.push(key.alias(name.clone()));
        order[place].expr = Expr::Column(Column::from_name(name));
    }
    let computed = LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(computed))?);
    let sorted = Sort { expr: order, input: Arc::new(computed), fetch: sort.fetch };
    only_columns(LogicalPlan::Sort(sorted), above).map(Some)
}

/// Whether a sub-query in an expression refers to a column of `below` that `above` has not.
fn reaches_below(expression: &Expr, below: &DFSchema, above: &DFSchema) -> Result<bool> {
    let is_below = |part: &Expr| match part {
        Expr::OuterReferenceColumn(_, column) => {
            below.is_column_from_schema(column) && !above.is_column_from_schema(column)
        }
        _ => false,
    };
    has(expression, &mut |part: &Expr| {
        let Some((subquery, _)) = subquery_of(part) else { return Ok(false) };
        let mut found = false;
        subquery.subquery.apply_with_subqueries(|node| {
            node.apply_expressions(|expression| {
                expression.apply(|part| {
                    found |= is_below(part);
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(found)
    })
}

/// An expression over outputs as one over what these are computed of. `None` if it has a column that is none there.
fn over_input(expression: &Expr, outputs: &Projection) -> Result<Option<Expr>> {
    let mut is_known = true;
    let over = expression.clone().transform_up(|part| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        let output = outputs.expr[outputs.schema.index_of_column(column)?].clone().unalias();
        is_known &= matches!(output, Expr::Column(_));
        Ok(Transformed::yes(output))
    })?;
    Ok(is_known.then_some(over.data))
}
