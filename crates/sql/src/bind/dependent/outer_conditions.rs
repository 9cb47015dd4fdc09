//! Conditions of a sub-query that are on outer columns alone: they hold for all of its rows or none.
//!
//! They are asked before anything else, as PostgreSQL does: `WHERE t.n <> 0 AND 10 / t.n < o.amount` divides by no zero. What comes after
//! computes nothing that might fail of outer rows which are not present.

use super::beyond::{has, subquery_of};
use super::{Dependent, Rows};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan};
use firn_base::sync::Arc;

impl Dependent<'_> {
    /// Such conditions of a filter, and the plan without them. `None` if there are none, or if they may not be asked before: an
    /// aggregate without groups makes a row of nothing.
    pub(super) fn outer_conditions(&self, filter: &Filter) -> Result<Option<(Vec<Expr>, LogicalPlan)>> {
        if makes_rows_of_nothing(&filter.input)? {
            return Ok(None);
        }
        let mut outer = Vec::new();
        let mut others = Vec::new();
        for condition in split_conjunction_owned(filter.predicate.clone()) {
            match self.is_outer_condition(&condition)? {
                true => outer.push(condition),
                false => others.push(condition),
            }
        }
        if outer.is_empty() {
            return Ok(None);
        }
        let rest = match conjunction(others) {
            Some(condition) => LogicalPlan::Filter(Filter::try_new(condition, Arc::clone(&filter.input))?),
            None => filter.input.as_ref().clone(),
        };
        Ok(Some((outer, rest)))
    }

    fn is_outer_condition(&self, condition: &Expr) -> Result<bool> {
        let has_others = has(condition, &mut |part: &Expr| {
            Ok(matches!(part, Expr::Column(_) | Expr::SetComparison(_)) || subquery_of(part).is_some())
        })?;
        Ok(!has_others && !condition.is_volatile() && self.is_dependent(condition)?)
    }

    /// Outer rows of which such conditions are true, one after the other.
    pub(super) fn where_all(&mut self, mut rows: Rows, conditions: Vec<Expr>, keeps: bool) -> Result<Rows> {
        for condition in conditions {
            let condition =
                self.resolved(&condition, &DFSchema::empty(), &[])?.expect("it asks no sub-query");
            rows = self.filtered(rows, condition, keeps)?;
        }
        Ok(rows)
    }
}

fn makes_rows_of_nothing(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= matches!(node, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty());
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
