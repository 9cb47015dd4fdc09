//! Aggregates in sub-queries that are of columns of outer queries alone.
//!
//! Such an aggregate is the nearest query's that has one of the columns, says the SQL standard: `SELECT (SELECT sum(t.a)) FROM t` is one
//! row with the sum of all, `WHERE (SELECT count(t.a) FROM o) > 1` an error. The planner makes it the sub-query's own, which yields
//! something else, so it is refused.

use super::lateral::refers;
use super::position;
use crate::statement::fold;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{self, DFSchema};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{self, Visit};
use firn_base::{Error, Result};
use firn_exec::error::from_datafusion;
use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;

/// Refuses a plan, as the planner made it of a query, that has such an aggregate.
pub fn refuse(plan: &LogicalPlan, query: &ast::Query, text: &str) -> Result<()> {
    let Some(call) = first_in(plan).map_err(from_datafusion)? else { return Ok(()) };
    let error = Error::unsupported("an aggregate of an outer query in a sub-query").with_hint(
        "It has columns of the outer query alone, and so is that one's. Write it there, or give it a column of the sub-query as well.",
    );
    Err(match place(query, &call, text) {
        Some(position) => error.with_position(position),
        None => error,
    })
}

fn first_in(plan: &LogicalPlan) -> common::Result<Option<AggregateFunction>> {
    let mut arrays = HashSet::new();
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        firn_exec::interrupt::check()?;
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                arrays.extend(array_of_rows(part));
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        let LogicalPlan::Aggregate(aggregate) = node else { return Ok(TreeNodeRecursion::Continue) };
        if arrays.contains(&std::ptr::from_ref(node)) {
            return Ok(TreeNodeRecursion::Continue);
        }
        for expression in &aggregate.aggr_expr {
            expression.apply(|part| {
                if let Expr::AggregateFunction(call) = part
                    && belongs_outside(call, aggregate.input.schema())?
                {
                    found = Some(call.clone());
                    return Ok(TreeNodeRecursion::Stop);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The aggregate that `ARRAY(SELECT …)` has become, where it stands: nobody wrote that, and its argument is an output of the query.
fn array_of_rows(expression: &Expr) -> Option<*const LogicalPlan> {
    let Expr::ScalarFunction(call) = expression else { return None };
    let [Expr::ScalarSubquery(rows)] = call.args.as_slice() else { return None };
    let mut plan = rows.subquery.as_ref();
    while let LogicalPlan::Projection(projection) = plan {
        plan = projection.input.as_ref();
    }
    let is_made = call.func.name() == "array" && matches!(plan, LogicalPlan::Aggregate(_));
    is_made.then_some(std::ptr::from_ref(plan))
}

/// Whether there are outer columns in an aggregate's arguments, and none of its own query.
fn belongs_outside(call: &AggregateFunction, own_schema: &DFSchema) -> common::Result<bool> {
    // No aggregate of PostgreSQL's, but what sub-queries over the catalogs become that stand for a value.
    if call.func.name() == "first_value" {
        return Ok(false);
    }
    let (mut outer, mut own) = (false, false);
    for argument in arguments(call) {
        argument.apply(|part| {
            let subquery = match part {
                Expr::OuterReferenceColumn(..) => {
                    outer = true;
                    None
                }
                Expr::Column(_) => {
                    own = true;
                    None
                }
                Expr::ScalarSubquery(subquery) => Some(subquery),
                Expr::Exists(exists) => Some(&exists.subquery),
                Expr::InSubquery(within) => Some(&within.subquery),
                _ => None,
            };
            if let Some(subquery) = subquery {
                outer |= !subquery.outer_ref_columns.is_empty();
                own |= refers(&subquery.subquery, own_schema)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(outer && !own)
}

/// The expressions that an aggregate is computed of.
fn arguments(call: &AggregateFunction) -> impl Iterator<Item = &Expr> {
    let params = &call.params;
    params.args.iter().chain(params.filter.as_deref()).chain(params.order_by.iter().map(|key| &key.expr))
}

/// Where a call is written: where a sub-query calls the function with these columns, if there is only one such place.
fn place(query: &ast::Query, call: &AggregateFunction, text: &str) -> Option<u32> {
    let mut columns = BTreeSet::new();
    for argument in arguments(call) {
        let walked = argument.apply(|part| {
            if let Expr::OuterReferenceColumn(_, column) = part {
                columns.insert(column.name.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        });
        walked.ok()?;
    }
    let mut calls = Calls { call, columns, text, queries: 0, places: BTreeSet::new() };
    let _: ControlFlow<()> = query.visit(&mut calls);
    if calls.places.len() == 1 { calls.places.pop_first() } else { None }
}

struct Calls<'c> {
    call: &'c AggregateFunction,
    columns: BTreeSet<String>,
    text: &'c str,
    /// How many queries deep the visit is.
    queries: usize,
    places: BTreeSet<u32>,
}

impl Calls<'_> {
    fn is_it(&self, function: &ast::Function) -> bool {
        let Some(name) = function.name.0.last().and_then(ast::ObjectNamePart::as_ident).map(fold) else {
            return false;
        };
        let mut columns = BTreeSet::new();
        let _: ControlFlow<()> = ast::visit_expressions(function, |part| {
            match part {
                ast::Expr::Identifier(name) => columns.insert(fold(name)),
                ast::Expr::CompoundIdentifier(names) => {
                    names.last().is_some_and(|name| columns.insert(fold(name)))
                }
                _ => false,
            };
            ControlFlow::Continue(())
        });
        (self.call.func.name() == name || self.call.func.aliases().contains(&name)) && columns == self.columns
    }
}

impl ast::Visitor for Calls<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        if self.queries > 1
            && let ast::Expr::Function(function) = expression
            && self.is_it(function)
        {
            self.places.extend(position::of_name(self.text, &function.name));
        }
        ControlFlow::Continue(())
    }
}
