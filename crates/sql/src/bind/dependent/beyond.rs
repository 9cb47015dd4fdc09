//! Which sub-queries are computed of all outer rows at once: those of which DataFusion makes no join, or a wrong one.

use super::refers;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::utils::{split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, SkipType, Subquery};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;
use std::collections::HashSet;

/// What a sub-query is asked for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    Value,
    Exists,
    In,
    NotIn,
    Lateral,
}

/// The sub-query that an expression is, and what is asked of it.
pub(super) fn subquery_of(expression: &Expr) -> Option<(&Subquery, Form)> {
    match expression {
        Expr::ScalarSubquery(subquery) => Some((subquery, Form::Value)),
        Expr::Exists(exists) => Some((&exists.subquery, Form::Exists)),
        Expr::InSubquery(within) => {
            Some((&within.subquery, if within.negated { Form::NotIn } else { Form::In }))
        }
        _ => None,
    }
}

/// Whether DataFusion makes no join of a plan that refers to outer rows.
pub(super) fn is_beyond_joins(plan: &LogicalPlan, form: Form, outer: &DFSchema) -> Result<bool> {
    // NULL counts in NOT IN, and aggregates without groups yield a row of no rows.
    let asks_for_rows = matches!(form, Form::Exists | Form::In);
    if form == Form::NotIn || asks_for_rows && is_of_all_rows(plan) || tells_rows_apart(plan, form, outer)? {
        return Ok(true);
    }
    let mut pulled = PullUpCorrelatedExpr::new()
        .with_need_handle_count_bug(matches!(form, Form::Value | Form::Lateral))
        .with_exists_sub_query(form == Form::Exists);
    let Ok(rest) = plan.clone().rewrite(&mut pulled) else { return Ok(true) };
    if !pulled.can_pull_up || pulled.pull_up_having_expr.is_some() {
        return Ok(true);
    }
    Ok(refers(&rest.data, outer)? || confuses_names(plan, &rest.data)?)
}

/// Whether columns that are compared with outer ones have one name, or that of another output: the join's condition has no other
/// way to tell them apart. `rest` is the plan without these conditions, which yields the columns too.
fn confuses_names(plan: &LogicalPlan, rest: &LogicalPlan) -> Result<bool> {
    let mut compared: HashSet<Column> = HashSet::new();
    plan.apply(|node| {
        match node {
            LogicalPlan::Subquery(_) => return Ok(TreeNodeRecursion::Jump),
            LogicalPlan::Filter(filter) => {
                for condition in split_conjunction(&filter.predicate) {
                    if condition.contains_outer() {
                        compared.extend(condition.column_refs().into_iter().cloned());
                    }
                }
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let names: HashSet<&str> = compared.iter().map(|column| column.name.as_str()).collect();
    let is_doubled = |schema: &DFSchema| {
        let count = |name: &str| schema.fields().iter().filter(|field| field.name() == name).count();
        names.iter().any(|name| count(name) > 1)
    };
    let mut found = names.len() < compared.len() || is_doubled(rest.schema());
    // Behind an alias they have one qualifier.
    rest.apply(|node| {
        found |= matches!(node, LogicalPlan::SubqueryAlias(alias) if is_doubled(alias.input.schema()));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether a plan yields one row of all the rows below it, or some part of that one.
fn is_of_all_rows(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_) => plan.inputs().into_iter().all(is_of_all_rows),
        _ => false,
    }
}

/// Whether rows are told apart or counted above a condition on outer columns that would become a join's: they would be those of
/// all outer rows.
fn tells_rows_apart(plan: &LogicalPlan, form: Form, outer: &DFSchema) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= match node {
            LogicalPlan::Window(window) => refers(&window.input, outer)?,
            LogicalPlan::Distinct(distinct) if matches!(form, Form::Value | Form::Lateral) => {
                compares_otherwise(distinct.input(), outer)?
            }
            LogicalPlan::Aggregate(aggregate) => compares_otherwise(&aggregate.input, outer)?,
            // It would get lost, which matters but for the last LIMIT.
            LogicalPlan::Limit(limit) if form == Form::Exists => {
                let is_last = std::ptr::eq(node, plan);
                let skips = !matches!(limit.get_skip_type()?, SkipType::Literal(0));
                (skips || !is_last) && refers(&limit.input, outer)?
            }
            LogicalPlan::Filter(filter) if matches!(form, Form::Value | Form::Lateral) => {
                is_of_all_rows(&filter.input) && refers(&filter.input, outer)?
            }
            // What is no aggregate's would be NULL where there is nothing to aggregate.
            LogicalPlan::Projection(projection) if matches!(form, Form::Value | Form::Lateral) => {
                projection.expr.iter().any(|output| !output.any_column_refs())
                    && is_of_all_rows(&projection.input)
                    && refers(&projection.input, outer)?
            }
            _ => false,
        };
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether there is a condition on outer columns in a plan that is no equality.
fn compares_otherwise(plan: &LogicalPlan, outer: &DFSchema) -> Result<bool> {
    let is_outer = |part: &Expr| matches!(part, Expr::OuterReferenceColumn(_, column) if outer.is_column_from_schema(column));
    let mut found = false;
    plan.apply(|node| {
        if let LogicalPlan::Filter(filter) = node {
            for condition in split_conjunction_owned(filter.predicate.clone()) {
                let is_equality = matches!(&condition, Expr::BinaryExpr(binary) if binary.op == Operator::Eq);
                found |= !is_equality && has(&condition, &mut |part: &Expr| Ok(is_outer(part)))?;
            }
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

pub(super) fn is_computed_here(subquery: &Subquery, form: Form, schema: &DFSchema) -> Result<bool> {
    Ok(refers(&subquery.subquery, schema)? && is_beyond_joins(&subquery.subquery, form, schema)?)
}

/// Whether there is such a part of an expression.
pub(super) fn has(expression: &Expr, is_it: &mut dyn FnMut(&Expr) -> Result<bool>) -> Result<bool> {
    let mut found = false;
    expression.apply(|part| {
        found = found || is_it(part)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether there are several such sub-queries in a CASE, as there are where IN yields all three truths: DataFusion loses columns of
/// the joins that it makes of those.
pub(super) fn has_several_in_case(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    has(expression, &mut |part: &Expr| {
        let mut count = 0;
        if matches!(part, Expr::Case(_)) {
            part.apply(|inner| {
                if let Some((subquery, _)) = subquery_of(inner) {
                    count += usize::from(refers(&subquery.subquery, schema)?);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(count > 1)
    })
}

pub(super) fn has_beyond_joins(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    if has_several_in_case(expression, schema)? {
        return Ok(true);
    }
    has(expression, &mut |part: &Expr| match subquery_of(part) {
        Some((subquery, form)) => is_computed_here(subquery, form, schema),
        None => Ok(false),
    })
}

pub(super) fn any_beyond_joins(expressions: &[Expr], schema: &DFSchema) -> Result<bool> {
    for expression in expressions {
        if has_beyond_joins(expression, schema)? {
            return Ok(true);
        }
    }
    Ok(false)
}
