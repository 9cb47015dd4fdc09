//! Items of FROM that are computed from the rows of those before them and read no table themselves:
//!
//! | written | becomes |
//! |---|---|
//! | `FROM a, unnest(a.list) AS x` | `SELECT a.*, unnest(a.list) AS x FROM a` |
//! | `FROM a, generate_series(1, a.n) AS i` | `SELECT a.*, unnest(generate_series(1, a.n)) AS i FROM a` |
//! | `FROM a, LATERAL (SELECT a.b + 1 AS c) AS l` | `SELECT a.*, a.b + 1 AS c FROM a` |
//! | `FROM a LEFT JOIN unnest(a.list) AS x ON true` | as the first, with a row of NULL where the list is empty |
//! | `FROM a, b JOIN unnest(a.list) AS x ON …` | `FROM (a CROSS JOIN b) JOIN unnest(a.list) AS x ON …` first |
//!
//! The planner makes a join of each, with a sub-query that refers to the join's other side. DataFusion takes these
//! apart only by their conditions, which sub-queries over nothing have none of. All columns keep the qualifiers and
//! names that they have behind the join, so that nothing above it has to change.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, DFSchemaRef, JoinConstraint, JoinType, NullEquality, NullHandling,
    RecursionUnnestOption, Result, ScalarValue, UnnestOptions,
};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, Filter, Join, LogicalPlan, Operator, Projection, Subquery, Unnest, binary_expr,
};
use firn_base::sync::Arc;
use firn_exec::types::NAME_END;

/// Takes such items out of the joins of a plan as the planner made it. Others stay.
pub fn inline(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        firn_exec::interrupt::check()?;
        found |= matches!(node, LogicalPlan::Subquery(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let mut names = 0;
    // From the top: an item may be computed from one that stands before it.
    let inlined = plan.transform_down_with_subqueries(|mut node| {
        firn_exec::interrupt::check()?;
        let mut changed = false;
        while let Some(next) = step(&node, &mut names)? {
            node = next;
            changed = true;
        }
        Ok(if changed { Transformed::yes(node) } else { Transformed::no(node) })
    })?;
    match inlined.transformed {
        true => with_references_told(inlined.data),
        false => Ok(inlined.data),
    }
}

/// Tells anew of every sub-query what it refers to outside: what an item refers to may be within it.
pub fn with_references_told(plan: LogicalPlan) -> Result<LogicalPlan> {
    fn told(subquery: Subquery) -> Subquery {
        Subquery { outer_ref_columns: subquery.subquery.all_out_ref_exprs(), ..subquery }
    }
    let in_expression = |expression: Expr| {
        expression.transform_up(|part| {
            Ok(match part {
                Expr::ScalarSubquery(subquery) => Transformed::yes(Expr::ScalarSubquery(told(subquery))),
                Expr::Exists(Exists { subquery, negated }) => {
                    Transformed::yes(Expr::Exists(Exists { subquery: told(subquery), negated }))
                }
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery: told(subquery), negated }))
                }
                Expr::SetComparison(comparison) => {
                    let subquery = told(comparison.subquery);
                    Transformed::yes(Expr::SetComparison(SetComparison { subquery, ..comparison }))
                }
                other => Transformed::no(other),
            })
        })
    };
    let told = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Subquery(subquery) => Ok(Transformed::yes(LogicalPlan::Subquery(told(subquery)))),
        other => other.map_expressions(in_expression),
    })?;
    Ok(told.data)
}

/// A join without its item; `None` of anything else.
fn step(node: &LogicalPlan, names: &mut usize) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Join(join) = node else { return Ok(None) };
    let always = |condition: &Expr| matches!(condition, Expr::Literal(ScalarValue::Boolean(Some(true)), _));
    match join.join_type {
        JoinType::Inner if join.null_equality == NullEquality::NullEqualsNothing => {
            let Some(joined) = beside(&join.left, &join.right, false, names)? else { return Ok(None) };
            let equal = |(left, right): &(Expr, Expr)| binary_expr(left.clone(), Operator::Eq, right.clone());
            match conjunction(join.on.iter().map(equal).chain(join.filter.clone())) {
                Some(condition) => Filter::try_new(condition, Arc::new(joined))
                    .map(|filter| Some(LogicalPlan::Filter(filter))),
                None => Ok(Some(joined)),
            }
        }
        JoinType::Left if join.on.is_empty() && join.filter.iter().all(always) => {
            beside(&join.left, &join.right, true, names)
        }
        _ => Ok(None),
    }
}

/// The rows of `left` with what an item computes from each; with `keeps`, also those of which it makes no row. `None`
/// if the item is of another kind.
fn beside(
    left: &Arc<LogicalPlan>,
    right: &LogicalPlan,
    keeps: bool,
    names: &mut usize,
) -> Result<Option<LogicalPlan>> {
    // In `a, unnest(a.list) AS x JOIN b ON …` the item stands on the left of a join on the right, in
    // `a, b JOIN unnest(a.list) AS x ON …` on the right of one. Such a join makes what it makes of each row of its left
    // side, so it makes the same of each pair with a row of `a`, which has what the item is computed from.
    if let LogicalPlan::Join(inner) = right {
        if keeps || !matches!(inner.join_type, JoinType::Inner | JoinType::Left) {
            return Ok(None);
        }
        let begun = match beside(left, &inner.left, false, names)? {
            Some(begun) => begun,
            None if refers(&inner.right, left.schema())? => pairs(left, &inner.left)?,
            None => return Ok(None),
        };
        let join = Join::try_new(
            Arc::new(begun),
            Arc::clone(&inner.right),
            inner.on.clone(),
            inner.filter.clone(),
            inner.join_type,
            inner.join_constraint,
            inner.null_equality,
            inner.null_aware,
        )?;
        return Ok(Some(LogicalPlan::Join(join)));
    }
    if !is_lateral(right) || keeps && !keeps_rows(right) {
        return Ok(None);
    }
    let mut item = Item { left: Arc::clone(left.schema()), keeps, names };
    let Some(computed) = item.over(left, right)? else { return Ok(None) };
    let mut columns: Vec<Expr> = computed.schema().columns().into_iter().map(Expr::Column).collect();
    let own = item.left.fields().len();
    for (column, (qualifier, field)) in columns[own..].iter_mut().zip(right.schema().iter()) {
        *column = std::mem::take(column).alias_qualified(qualifier.cloned(), field.name());
    }
    Projection::try_new(columns, Arc::new(computed)).map(|all| Some(LogicalPlan::Projection(all)))
}

/// All pairs of rows.
fn pairs(left: &Arc<LogicalPlan>, right: &Arc<LogicalPlan>) -> Result<LogicalPlan> {
    let join = Join::try_new(
        Arc::clone(left),
        Arc::clone(right),
        Vec::new(),
        None,
        JoinType::Inner,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(LogicalPlan::Join(join))
}

/// Whether a plan, or a sub-query in it, refers to columns of such a schema outside of it.
pub fn refers(plan: &LogicalPlan, outer: &DFSchema) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        firn_exec::interrupt::check()?;
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                found |= matches!(part, Expr::OuterReferenceColumn(_, column) if outer.is_column_from_schema(column));
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether a plan refers to what stands before it.
fn is_lateral(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => is_lateral(&alias.input),
        LogicalPlan::Subquery(_) => true,
        _ => false,
    }
}

/// How many lists an item takes apart, one after the other.
fn unnests(plan: &LogicalPlan) -> usize {
    let own = usize::from(matches!(plan, LogicalPlan::Unnest(_)));
    own + plan.inputs().into_iter().map(unnests).sum::<usize>()
}

/// Whether an item yields a row of NULLs, and no other, of one without elements when it is told to make a row of that.
fn keeps_rows(plan: &LogicalPlan) -> bool {
    fn is_column(expression: &Expr) -> bool {
        match expression {
            Expr::Alias(alias) => is_column(&alias.expr),
            Expr::Column(_) => true,
            _ => false,
        }
    }
    fn yields_elements(plan: &LogicalPlan) -> bool {
        match plan {
            LogicalPlan::Subquery(inner) => yields_elements(&inner.subquery),
            LogicalPlan::SubqueryAlias(inner) => yields_elements(&inner.input),
            LogicalPlan::Projection(inner) => {
                inner.expr.iter().all(is_column) && yields_elements(&inner.input)
            }
            LogicalPlan::Unnest(inner) => inner.exec_columns.len() == inner.input.schema().fields().len(),
            _ => false,
        }
    }
    match unnests(plan) {
        0 => true,
        1 => yields_elements(plan),
        _ => false,
    }
}

/// An item on its way out of a join.
struct Item<'n> {
    /// The columns of the rows that it is computed from.
    left: DFSchemaRef,
    /// Whether a list without elements makes a row.
    keeps: bool,
    /// How many names have been given.
    names: &'n mut usize,
}

impl Item<'_> {
    /// What a node of the item makes of each of some rows: their columns, and behind them the node's in its order, under names
    /// that nobody else has. `None` if that is not known.
    fn over(&mut self, rows: &Arc<LogicalPlan>, node: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        let input = match node {
            LogicalPlan::EmptyRelation(empty) => {
                let is_a_row = empty.produce_one_row && empty.schema.fields().is_empty();
                return Ok(is_a_row.then(|| rows.as_ref().clone()));
            }
            LogicalPlan::Subquery(inner) => return self.over(rows, &inner.subquery),
            LogicalPlan::SubqueryAlias(inner) => return self.over(rows, &inner.input),
            LogicalPlan::Filter(filter) if !self.keeps => &filter.input,
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::Unnest(unnest) => &unnest.input,
            _ => return Ok(None),
        };
        let Some(computed) = self.over(rows, input)? else { return Ok(None) };
        let columns = computed.schema().columns().split_off(self.left.fields().len());
        match node {
            LogicalPlan::Filter(filter) => {
                let Some(condition) = self.resolved(&filter.predicate, input, &columns)? else {
                    return Ok(None);
                };
                Filter::try_new(condition, Arc::new(computed)).map(|filter| Some(LogicalPlan::Filter(filter)))
            }
            LogicalPlan::Projection(projection) => {
                let mut outputs: Vec<Expr> = self.left.columns().into_iter().map(Expr::Column).collect();
                for expression in &projection.expr {
                    let Some(expression) = self.resolved(expression, input, &columns)? else {
                        return Ok(None);
                    };
                    outputs.push(expression.alias(self.name()));
                }
                Projection::try_new(outputs, Arc::new(computed)).map(|all| Some(LogicalPlan::Projection(all)))
            }
            LogicalPlan::Unnest(unnest) => {
                let place = |column: &Column| -> Result<Column> {
                    Ok(columns[input.schema().index_of_column(column)?].clone())
                };
                let lists = unnest.exec_columns.iter().map(place).collect::<Result<Vec<Column>>>()?;
                let empty = match self.keeps {
                    true => NullHandling::PreserveAndExpandEmpty,
                    false => unnest.options.null_handling,
                };
                let mut options = UnnestOptions::new().with_null_handling(empty);
                for recursion in &unnest.options.recursions {
                    options = options.with_recursions(RecursionUnnestOption {
                        input_column: place(&recursion.input_column)?,
                        output_column: Column::from_name(self.name()),
                        depth: recursion.depth,
                    });
                }
                let unnest = Unnest::try_new(Arc::new(computed), lists, options)?;
                Ok(Some(LogicalPlan::Unnest(unnest)))
            }
            other => unreachable!("{} has no input", other.display()),
        }
    }

    /// An expression over the columns of `input`, which are called by `columns` now. `None` if a sub-query in it may name
    /// them.
    fn resolved(&self, expression: &Expr, input: &LogicalPlan, columns: &[Column]) -> Result<Option<Expr>> {
        let is_subquery = |expression: &Expr| -> Result<bool> {
            Ok(matches!(
                expression,
                Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
            ))
        };
        if !columns.is_empty() && expression.exists(is_subquery)? {
            return Ok(None);
        }
        let resolved = expression.clone().transform_up(|node| {
            Ok(match node {
                Expr::OuterReferenceColumn(_, column) if self.left.is_column_from_schema(&column) => {
                    Transformed::yes(Expr::Column(column))
                }
                Expr::Column(column) => {
                    let position = input.schema().index_of_column(&column)?;
                    Transformed::yes(Expr::Column(columns[position].clone()))
                }
                other => Transformed::no(other),
            })
        })?;
        Ok(Some(resolved.data))
    }

    fn name(&mut self) -> String {
        *self.names += 1;
        format!("{NAME_END}lateral {}", self.names)
    }
}
