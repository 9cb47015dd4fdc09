//! Spans of time as keys of groups, of rows that differ and of joins: equal ones have a key in common ([`crate::spans`]), and a
//! group shows the span that came first, as in PostgreSQL.
//!
//! | by a span `i` | lowered to |
//! |---|---|
//! | `SELECT i, f(x) … GROUP BY i` | `SELECT first AS i, f FROM (SELECT f(x) AS f, first_value(i) AS first … GROUP BY key(i))` |
//! | `SELECT DISTINCT i, x …` | `SELECT DISTINCT ON (key(i), x) i, x …` |
//! | `a JOIN b USING (i)`, INTERSECT, EXCEPT | a join on `key(a.i) = key(b.i)` |

use super::keys::{of_joined_span, of_span};
use crate::types::NAME_END;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, JoinConstraint, Result};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Case, GroupingSet};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprSchemable, Join, LogicalPlan, Projection,
};
use firn_base::sync::Arc;

/// An aggregation.
pub(super) fn grouped(aggregate: Aggregate) -> Result<LogicalPlan> {
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = &aggregate;
    let members: Vec<Expr> = grouping_set_to_exprlist(group_expr)?.into_iter().cloned().collect();
    let mut spans = Vec::new();
    for (position, member) in members.iter().enumerate() {
        if is_span(&member.get_type(input.schema())?) {
            spans.push(position);
        }
    }
    if spans.is_empty() {
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    let mut keys = group_expr.clone();
    keys.iter_mut().try_for_each(|member| of_member(member, input.schema()))?;
    let mut computed = aggr_expr.clone();
    for position in &spans {
        let argument = vec![members[*position].clone()];
        let first = AggregateFunction::new_udf(first_value_udaf(), argument, false, None, Vec::new(), None);
        computed.push(Expr::AggregateFunction(first).alias(format!("{NAME_END}first {position}")));
    }
    let groups = Aggregate::try_new(Arc::clone(input), keys, computed)?;
    // Where a set leaves a member out there is none to be shown.
    let shows_all = !matches!(group_expr.as_slice(), [Expr::GroupingSet(_)]);
    let mut outputs: Vec<Expr> = groups.schema.iter().map(Expr::from).collect();
    let firsts = outputs.split_off(outputs.len() - spans.len());
    for (position, first) in spans.iter().zip(firsts) {
        let key = std::mem::take(&mut outputs[*position]);
        outputs[*position] = match shows_all {
            true => first,
            false => {
                let branch = (Box::new(key.is_not_null()), Box::new(first));
                Expr::Case(Case::new(None, vec![branch], None))
            }
        };
    }
    let named = outputs.into_iter().zip(schema.iter()).enumerate();
    let named = named.map(|(position, (output, (qualifier, field)))| match spans.contains(&position) {
        true => output.alias_qualified(qualifier.cloned(), field.name()),
        false => output,
    });
    let named: Vec<Expr> = named.collect();
    Projection::try_new(named, Arc::new(LogicalPlan::Aggregate(groups))).map(LogicalPlan::Projection)
}

/// A member of GROUP BY, or the members of its sets, as keys.
fn of_member(member: &mut Expr, schema: &DFSchema) -> Result<()> {
    match member {
        Expr::GroupingSet(GroupingSet::Rollup(members) | GroupingSet::Cube(members)) => {
            members.iter_mut().try_for_each(|member| of_span(member, schema))
        }
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
            sets.iter_mut().flatten().try_for_each(|member| of_span(member, schema))
        }
        member => of_span(member, schema),
    }
}

/// DISTINCT.
pub(super) fn distinct(rows: Arc<LogicalPlan>) -> Result<LogicalPlan> {
    if !rows.schema().fields().iter().any(|field| is_span(field.data_type())) {
        return Ok(LogicalPlan::Distinct(Distinct::All(rows)));
    }
    let columns: Vec<Expr> = rows.schema().iter().map(Expr::from).collect();
    let mut keys = columns.clone();
    keys.iter_mut().try_for_each(|column| of_span(column, rows.schema()))?;
    let on = DistinctOn::try_new(keys, columns, None, rows)?;
    Ok(LogicalPlan::Distinct(Distinct::On(on)))
}

/// A join. Names have found their columns, for which DataFusion still looks at what USING compares, and takes it to be columns; these
/// may be casts by now as well.
pub(super) fn joined(mut join: Join) -> Result<LogicalPlan> {
    for (left, right) in &mut join.on {
        of_joined_span(left, join.left.schema())?;
        of_joined_span(right, join.right.schema())?;
    }
    join.join_constraint = JoinConstraint::On;
    Ok(LogicalPlan::Join(join))
}

/// Whether values of a type are spans.
pub(super) fn is_span(ty: &DataType) -> bool {
    matches!(ty, DataType::Interval(_))
}
