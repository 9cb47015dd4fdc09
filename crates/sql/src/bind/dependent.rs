//! Sub-queries that compute with columns of the rows outside of them.
//!
//! DataFusion makes a join of a sub-query whose outer columns stand in conditions, and knows no others. Those are computed here,
//! of all outer rows at once: the outer rows are numbered, and take the place of what the sub-query reads first.
//!
//! | written | becomes |
//! |---|---|
//! | `SELECT (SELECT sum(b.x * a.y) FROM b WHERE b.z = a.z) FROM a` | `SELECT sum FROM (SELECT a.*, number, sum(b.x * a.y) FROM a LEFT JOIN b ON b.z = a.z GROUP BY a.*, number)` |
//! | `FROM a WHERE EXISTS (SELECT FROM unnest(a.list) AS x WHERE x > a.y)` | the same with a count of the rows that there are |
//! | `FROM a WHERE a.y IN (SELECT …)` | with counts of those that are equal, and of those of which nobody knows |
//! | `FROM a, LATERAL (SELECT … FROM b WHERE … ORDER BY x LIMIT 2)` | `SELECT … FROM (SELECT a.*, b.*, row_number() OVER (PARTITION BY number ORDER BY x) …) WHERE …` |
//!
//! An aggregate without groups yields a row where there is nothing to aggregate, and so may LEFT JOIN. Below these no outer row gets
//! lost: whether a row is *present*, which means that the sub-query has it, is a column of its own then. What might fail is
//! computed of rows that are present alone.
//!
//! The way is that of Neumann and Kemper, "Unnesting Arbitrary Queries" (BTW 2015), with numbers in place of sets of outer values:
//! see decision 51.
//!
//! This happens when all types are known; operators that are made here compare values of types that have been brought together.

mod beyond;
mod outer_conditions;
mod outer_joins;
mod sorts;

use super::keys;
use super::lateral::{refers, with_references_told};
use super::operators::cast;
use crate::functions::{if_present, positions};
use beyond::{
    Form, any_beyond_joins, has, has_beyond_joins, has_several_in_case, is_beyond_joins, is_computed_here,
    subquery_of,
};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, DFSchemaRef, JoinConstraint, JoinType, NullEquality, NullHandling,
    RecursionUnnestOption, Result, ScalarValue, UnnestOptions,
};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{AggregateFunction, Case, InSubquery, ScalarFunction, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, FetchType, Filter, Join, Limit, LogicalPlan,
    LogicalPlanBuilder, Operator, Projection, SkipType, SortExpr, Subquery, Unnest, Values, Window,
    WindowFrame, WindowFunctionDefinition, binary_expr, lit,
};
use firn_base::sync::Arc;
use firn_exec::aggregate::{few, only_value};
use firn_exec::types::{self, NAME_END};

/// Computes such sub-queries of a plan whose expressions have their types. Those of other kinds stay.
pub fn compute(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        firn_exec::interrupt::check()?;
        found |= node.contains_outer_reference();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let mut names = 0;
    let mut changed = false;
    // From the leaves: what a sub-query has computed itself may be part of what another is computed of.
    let computed = plan.clone().transform_up_with_subqueries(|node| {
        firn_exec::interrupt::check()?;
        let node = node.recompute_schema()?;
        let computed = match &node {
            LogicalPlan::Join(join) => lateral(join, &mut names)?,
            LogicalPlan::Filter(filter) => in_filter(filter, &mut names)?,
            LogicalPlan::Projection(projection) => in_projection(projection, &mut names)?,
            LogicalPlan::Aggregate(aggregate) => in_aggregate(aggregate, &mut names)?,
            LogicalPlan::Sort(sort) => sorts::in_sort(sort, &mut names)?,
            _ => None,
        };
        changed |= computed.is_some();
        Ok(computed.map_or_else(|| Transformed::no(node), Transformed::yes))
    })?;
    match changed {
        true => keys::end(with_references_told(computed.data)?),
        false => Ok(plan),
    }
}

/// A join whose right side is computed of each row of its left.
fn lateral(join: &Join, names: &mut usize) -> Result<Option<LogicalPlan>> {
    let keeps = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left => true,
        _ => return Ok(None),
    };
    let left = join.left.schema();
    let Some(item) = lateral_item(&join.right) else { return Ok(None) };
    if join.null_equality != NullEquality::NullEqualsNothing
        || !refers(item, left)?
        || !is_beyond_joins(item, Form::Lateral, left)?
    {
        return Ok(None);
    }
    let mut dependent = Dependent { outer: Arc::clone(left), number: None, names };
    let rows = match keeps || numbers(item)? {
        true => dependent.numbered(join.left.as_ref().clone())?,
        false => Rows::of(join.left.as_ref().clone()),
    };
    let Some(mut rows) = dependent.over(rows, &join.right, keeps)? else { return Ok(None) };
    let always = |condition: &Expr| matches!(condition, Expr::Literal(ScalarValue::Boolean(Some(true)), _));
    let condition = condition_of(join).filter(|condition| !always(condition));
    if keeps {
        if let Some(condition) = &condition {
            let columns: Vec<Column> = left.columns().into_iter().chain(rows.columns.clone()).collect();
            let Some(condition) = dependent.resolved(condition, &join.schema, &columns)? else {
                return Ok(None);
            };
            rows = dependent.filtered(rows, condition, true)?;
        }
        rows = dependent.one_at_least(rows)?;
    }
    let mut outputs: Vec<Expr> = left.columns().into_iter().map(Expr::Column).collect();
    for (column, (qualifier, field)) in rows.columns.iter().zip(join.right.schema().iter()) {
        let value = match &rows.present {
            Some(present) => only_if(present, column),
            None => Expr::Column(column.clone()),
        };
        outputs.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    let joined = LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(rows.plan))?);
    match condition.filter(|_| !keeps) {
        Some(condition) => {
            Filter::try_new(condition, Arc::new(joined)).map(|filter| Some(LogicalPlan::Filter(filter)))
        }
        None => Ok(Some(joined)),
    }
}

/// What an item of FROM that refers to those before it is computed by.
fn lateral_item(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => lateral_item(&alias.input),
        LogicalPlan::Subquery(subquery) => Some(subquery.subquery.as_ref()),
        _ => None,
    }
}

fn condition_of(join: &Join) -> Option<Expr> {
    let equal = |(left, right): &(Expr, Expr)| binary_expr(left.clone(), Operator::Eq, right.clone());
    conjunction(join.on.iter().map(equal).chain(join.filter.clone()))
}

/// Conditions that ask for no such sub-query come first.
fn in_filter(filter: &Filter, names: &mut usize) -> Result<Option<LogicalPlan>> {
    let schema = filter.input.schema();
    let mut plain = Vec::new();
    let mut others = Vec::new();
    for condition in split_conjunction_owned(filter.predicate.clone()) {
        match has_beyond_joins(&condition, schema)? {
            true => others.push(condition),
            false => plain.push(condition),
        }
    }
    if others.is_empty() {
        return Ok(None);
    }
    let mut input = filter.input.as_ref().clone();
    if let Some(condition) = conjunction(plain) {
        input = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(input))?);
    }
    let Some((computed, conditions)) = values(input, others, names)? else { return Ok(None) };
    let condition = conjunction(conditions).expect("there are some");
    let filtered = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(computed))?);
    only_columns(filtered, schema).map(Some)
}

fn in_projection(projection: &Projection, names: &mut usize) -> Result<Option<LogicalPlan>> {
    if !any_beyond_joins(&projection.expr, projection.input.schema())? {
        return Ok(None);
    }
    let preserver = NamePreserver::new_for_projection();
    let saved: Vec<_> = projection.expr.iter().map(|expression| preserver.save(expression)).collect();
    let input = projection.input.as_ref().clone();
    let Some((computed, outputs)) = values(input, projection.expr.clone(), names)? else { return Ok(None) };
    let outputs = outputs.into_iter().zip(saved).map(|(output, name)| name.restore(output)).collect();
    Projection::try_new(outputs, Arc::new(computed)).map(|all| Some(LogicalPlan::Projection(all)))
}

fn in_aggregate(aggregate: &Aggregate, names: &mut usize) -> Result<Option<LogicalPlan>> {
    let expressions = [aggregate.group_expr.as_slice(), &aggregate.aggr_expr].concat();
    let is_set = |expression: &Expr| matches!(expression, Expr::GroupingSet(_));
    if expressions.iter().any(is_set) || !any_beyond_joins(&expressions, aggregate.input.schema())? {
        return Ok(None);
    }
    let preserver = NamePreserver::new_for_projection();
    let saved: Vec<_> = expressions.iter().map(|expression| preserver.save(expression)).collect();
    let input = aggregate.input.as_ref().clone();
    let Some((computed, outputs)) = values(input, expressions, names)? else { return Ok(None) };
    let mut groups: Vec<Expr> =
        outputs.into_iter().zip(saved).map(|(output, name)| name.restore(output)).collect();
    let aggregates = groups.split_off(aggregate.group_expr.len());
    Aggregate::try_new(Arc::new(computed), groups, aggregates).map(|all| Some(LogicalPlan::Aggregate(all)))
}

/// The columns of a schema, and no others.
fn only_columns(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let columns = schema.columns().into_iter().map(Expr::Column).collect();
    Projection::try_new(columns, Arc::new(plan)).map(LogicalPlan::Projection)
}

/// Expressions without such sub-queries, over rows that have more columns than the input's. `None` if there is one of another kind.
fn values(
    input: LogicalPlan,
    expressions: Vec<Expr>,
    names: &mut usize,
) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
    values_where(input, expressions, names, is_computed_here)
}

fn values_where(
    input: LogicalPlan,
    expressions: Vec<Expr>,
    names: &mut usize,
    is_wanted: impl Fn(&Subquery, Form, &DFSchema) -> Result<bool>,
) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
    let schema = Arc::clone(input.schema());
    let mut dependent = Dependent { outer: Arc::clone(&schema), number: None, names };
    let mut rows = dependent.numbered(input)?;
    let mut is_known = true;
    let mut outputs = Vec::with_capacity(expressions.len());
    for expression in expressions {
        let wants_all = has_several_in_case(&expression, &schema)?;
        let output = expression.transform_up(|part| {
            let wanted = match subquery_of(&part) {
                Some((subquery, _)) if wants_all && refers(&subquery.subquery, &schema)? => true,
                Some((subquery, form)) => is_wanted(subquery, form, &schema)?,
                None => false,
            };
            if !wanted || !is_known {
                return Ok(Transformed::no(part));
            }
            match dependent.value(rows.clone(), &part)? {
                Some((computed, value)) => {
                    rows = computed;
                    Ok(Transformed::yes(value))
                }
                None => {
                    is_known = false;
                    Ok(Transformed::no(part))
                }
            }
        })?;
        outputs.push(output.data);
    }
    Ok(is_known.then_some((rows.plan, outputs)))
}

/// Whether rows of a plan are counted, grouped or told apart, for which outer rows must have numbers.
fn numbers(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= matches!(
            node,
            LogicalPlan::Aggregate(_)
                | LogicalPlan::Distinct(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::Window(_)
        );
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Outer rows with what a part of a sub-query makes of each.
#[derive(Clone)]
struct Rows {
    plan: LogicalPlan,
    /// The columns that all plans above go on with: those of the outer rows, their number, values that have been computed.
    kept: Vec<Column>,
    /// The columns of the part, in its order.
    columns: Vec<Column>,
    /// Which rows the part has: those where it is true. All of them if there is no such column.
    present: Option<Column>,
    /// In what order, among those of one outer row.
    order: Vec<(Column, bool, bool)>,
    /// Whether there is one for each outer row, present or not.
    is_single: bool,
}

impl Rows {
    /// Outer rows of which nothing has been computed.
    fn of(plan: LogicalPlan) -> Rows {
        let kept = plan.schema().columns();
        Rows { plan, kept, columns: Vec::new(), present: None, order: Vec::new(), is_single: true }
    }

    /// All columns but the part's.
    fn carried(&self) -> Vec<Expr> {
        let order = self.order.iter().map(|(column, ..)| column);
        self.kept.iter().chain(&self.present).chain(order).cloned().map(Expr::Column).collect()
    }

    /// Rows of which nothing has been computed, but that they have what has been.
    fn settled(self) -> Rows {
        let Rows { plan, mut kept, columns, present, .. } = self;
        for column in present.into_iter().chain(columns) {
            if !kept.contains(&column) {
                kept.push(column);
            }
        }
        Rows { plan, kept, columns: Vec::new(), present: None, order: Vec::new(), is_single: true }
    }

    fn sort_keys(&self) -> Vec<SortExpr> {
        let key = |(column, ascending, nulls_first): &(Column, bool, bool)| {
            SortExpr::new(Expr::Column(column.clone()), *ascending, *nulls_first)
        };
        self.order.iter().map(key).collect()
    }

    /// A condition that is true of no rows but those that are present.
    fn present_and(&self, condition: Option<Expr>) -> Option<Expr> {
        conjunction(self.present.as_ref().map(is_true).into_iter().chain(condition))
    }
}

/// Whether an expression is one that cannot fail.
fn is_plain(expression: &Expr) -> bool {
    match expression {
        Expr::Alias(alias) => is_plain(&alias.expr),
        Expr::Column(_) | Expr::Literal(..) => true,
        _ => false,
    }
}

/// Whether a plan is the row without columns that stands for no FROM.
fn reads_nothing(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row && empty.schema.fields().is_empty(),
        LogicalPlan::Subquery(inner) => reads_nothing(&inner.subquery),
        LogicalPlan::SubqueryAlias(inner) => reads_nothing(&inner.input),
        _ => false,
    }
}

fn is_true(column: &Column) -> Expr {
    Expr::IsTrue(Box::new(Expr::Column(column.clone())))
}

/// A value of rows that are present, NULL of others.
fn only_if(present: &Column, value: &Column) -> Expr {
    let arguments = vec![Expr::Column(present.clone()), Expr::Column(value.clone())];
    Expr::ScalarFunction(ScalarFunction::new_udf(if_present(), arguments))
}

/// A condition whose columns are NULL of rows that are not present: DataFusion makes AND of a CASE of conditions, and may then look at
/// all rows.
fn of_present_inputs(condition: Expr, present: &Column) -> Result<Expr> {
    let guarded = condition.transform_up(|part| {
        Ok(match part {
            Expr::Column(column) => Transformed::yes(only_if(present, &column)),
            other => Transformed::no(other),
        })
    })?;
    Ok(guarded.data)
}

/// A condition on pairs, whose first rows may not be present: where it might fail, their columns are NULL then. It stays one by which
/// rows are joined, as each side keeps to its columns; these are the second's.
fn of_present_pairs(condition: Expr, present: &Column, second: &[Column]) -> Result<Expr> {
    let mut conditions = split_conjunction_owned(condition);
    for condition in &mut conditions {
        if compares_plainly(condition) {
            continue;
        }
        let guarded = std::mem::take(condition).transform_up(|part| {
            Ok(match part {
                Expr::Column(column) if !second.contains(&column) => {
                    Transformed::yes(only_if(present, &column))
                }
                other => Transformed::no(other),
            })
        })?;
        *condition = guarded.data;
    }
    Ok(conjunction(conditions).expect("there was one"))
}

/// Whether a condition compares columns and literals, and does nothing else: it cannot fail.
fn compares_plainly(condition: &Expr) -> bool {
    match condition {
        Expr::BinaryExpr(binary) => {
            use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
            matches!(binary.op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
                && is_plain(&binary.left)
                && is_plain(&binary.right)
        }
        Expr::IsNull(value) | Expr::IsNotNull(value) => is_plain(value),
        _ => false,
    }
}

fn case(branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Expr {
    let branches = branches.into_iter().map(|(when, then)| (Box::new(when), Box::new(then)));
    Expr::Case(Case::new(None, branches.collect(), otherwise.map(Box::new)))
}

fn boolean(value: Option<bool>) -> Expr {
    Expr::Literal(ScalarValue::Boolean(value), None)
}

/// The places of rows in their order, among those of which some values are equal.
fn row_number(partition_by: Vec<Expr>, order_by: Vec<SortExpr>) -> Expr {
    let mut call = WindowFunction::new(WindowFunctionDefinition::WindowUDF(row_number_udwf()), Vec::new());
    call.params.window_frame = WindowFrame::new((!order_by.is_empty()).then_some(true));
    call.params.partition_by = partition_by;
    call.params.order_by = order_by;
    Expr::WindowFunction(Box::new(call))
}

/// How many rows a condition is true of.
fn count_where(condition: Option<Expr>) -> Expr {
    let call = AggregateFunction::new_udf(
        count_udaf(),
        vec![lit(1_i64)],
        false,
        condition.map(Box::new),
        Vec::new(),
        None,
    );
    Expr::AggregateFunction(call)
}

/// A condition on pairs of rows: how it is written, and what columns of the first are called now.
struct Condition<'c> {
    expression: &'c Expr,
    /// The columns of both.
    schema: &'c DFSchema,
    first: &'c [Column],
}

/// A sub-query on its way to the outer rows.
struct Dependent<'n> {
    /// The columns of the outer rows.
    outer: DFSchemaRef,
    /// The column that tells outer rows apart, unless nobody asks, or a part is computed of pairs of an outer row with another.
    number: Option<Column>,
    /// How many names have been given.
    names: &'n mut usize,
}

impl Dependent<'_> {
    fn name(&mut self) -> String {
        *self.names += 1;
        format!("{NAME_END}dependent {}", self.names)
    }

    /// Gives outer rows numbers.
    fn numbered(&mut self, plan: LogicalPlan) -> Result<Rows> {
        let (plan, number) = self.with_places(plan, row_number(Vec::new(), Vec::new()))?;
        self.number = Some(number);
        Ok(Rows::of(plan))
    }

    /// Rows with a window function's value in one more column, and its name.
    fn with_places(&mut self, plan: LogicalPlan, call: Expr) -> Result<(LogicalPlan, Column)> {
        let name = self.name();
        let window = Window::try_new(vec![call.alias(name.clone())], Arc::new(plan))?;
        Ok((LogicalPlan::Window(window), Column::from_name(name)))
    }

    /// The value of an expression that is a sub-query, over rows that have what it is computed of. `None` if the sub-query is of
    /// another kind.
    fn value(&mut self, outer: Rows, expression: &Expr) -> Result<Option<(Rows, Expr)>> {
        let (subquery, _) = subquery_of(expression).expect("called for sub-queries only");
        let Some(rows) = self.over(outer, &subquery.subquery, true)? else { return Ok(None) };
        let (rows, value) = match expression {
            Expr::ScalarSubquery(_) if rows.is_single => {
                let value = match &rows.present {
                    Some(present) => only_if(present, &rows.columns[0]),
                    None => Expr::Column(rows.columns[0].clone()),
                };
                return Ok(Some((rows.settled(), value)));
            }
            Expr::ScalarSubquery(_) => {
                let value = vec![Expr::Column(rows.columns[0].clone())];
                let filter = rows.present_and(None).map(Box::new);
                let few = AggregateFunction::new_udf(few(), value, false, filter, Vec::new(), None);
                let rows = self.gathered(rows, vec![Expr::AggregateFunction(few)])?;
                let few = vec![Expr::Column(rows.columns[0].clone())];
                let only = Expr::ScalarFunction(ScalarFunction::new_udf(only_value(), few));
                (rows, only)
            }
            Expr::Exists(exists) => {
                let (rows, is_there) = match rows.is_single {
                    true => {
                        let is_there = rows.present.as_ref().map_or(boolean(Some(true)), is_true);
                        (rows, is_there)
                    }
                    false => {
                        let count = count_where(rows.present_and(None));
                        let rows = self.gathered(rows, vec![count])?;
                        let count = Expr::Column(rows.columns[0].clone());
                        (rows, count.gt(lit(0_i64)))
                    }
                };
                (rows, if exists.negated { Expr::Not(Box::new(is_there)) } else { is_there })
            }
            Expr::InSubquery(within) => {
                let (rows, is_within) = self.within(rows, within)?;
                (rows, if within.negated { Expr::Not(Box::new(is_within)) } else { is_within })
            }
            other => unreachable!("{other} is no sub-query"),
        };
        Ok(Some((rows.settled(), value)))
    }

    /// True if a row is equal, NULL if a comparison was with NULL and none is, else false.
    fn within(&mut self, rows: Rows, within: &InSubquery) -> Result<(Rows, Expr)> {
        let column = Expr::Column(rows.columns[0].clone());
        let equal = binary_expr(within.expr.as_ref().clone(), Operator::Eq, column);
        if rows.is_single {
            let is_within = match &rows.present {
                Some(present) => case(vec![(is_true(present), equal)], Some(boolean(Some(false)))),
                None => equal,
            };
            return Ok((rows, is_within));
        }
        let true_of = count_where(rows.present_and(Some(equal.clone())));
        let unknown_of = count_where(rows.present_and(Some(Expr::IsNull(Box::new(equal)))));
        let rows = self.gathered(rows, vec![true_of, unknown_of])?;
        let some = |column: &Column| Expr::Column(column.clone()).gt(lit(0_i64));
        let branches =
            vec![(some(&rows.columns[0]), boolean(Some(true))), (some(&rows.columns[1]), boolean(None))];
        let is_within = case(branches, Some(boolean(Some(false))));
        Ok((rows, is_within))
    }

    /// Aggregates of all rows of each outer row.
    fn gathered(&mut self, rows: Rows, aggregates: Vec<Expr>) -> Result<Rows> {
        self.grouped(rows, &[], aggregates, false)
    }

    /// Aggregates of groups of the rows of each outer row: by some columns, and with `apart` by whether they are present.
    fn grouped(&mut self, rows: Rows, keys: &[Column], aggregates: Vec<Expr>, apart: bool) -> Result<Rows> {
        debug_assert!(self.number.as_ref().is_some_and(|number| rows.kept.contains(number)));
        let present = rows.present.filter(|_| apart);
        let groups: Vec<Column> = rows.kept.iter().chain(&present).chain(keys).cloned().collect();
        let mut outputs: Vec<Expr> = groups.iter().cloned().map(Expr::Column).collect();
        let aggregate = Aggregate::try_new(Arc::new(rows.plan), outputs.clone(), aggregates)?;
        let mut columns = keys.to_vec();
        for column in aggregate.schema.columns().split_off(groups.len()) {
            let name = self.name();
            outputs.push(Expr::Column(column).alias(name.clone()));
            columns.push(Column::from_name(name));
        }
        let plan = Projection::try_new(outputs, Arc::new(LogicalPlan::Aggregate(aggregate)))?;
        let plan = LogicalPlan::Projection(plan);
        Ok(Rows { plan, kept: rows.kept, columns, present, order: Vec::new(), is_single: !apart })
    }

    /// What a part of the sub-query makes of outer rows. With `keeps` no outer row gets lost. `None` if that is not known.
    fn over(&mut self, rows: Rows, node: &LogicalPlan, keeps: bool) -> Result<Option<Rows>> {
        match node {
            LogicalPlan::EmptyRelation(_) if reads_nothing(node) => return Ok(Some(rows)),
            LogicalPlan::Subquery(inner) => return self.over(rows, &inner.subquery, keeps),
            LogicalPlan::SubqueryAlias(inner) => return self.over(rows, &inner.input, keeps),
            _ => {}
        }
        if !refers(node, &self.outer)? {
            return self.beside(rows, node, None, keeps);
        }
        match node {
            LogicalPlan::Projection(projection) => {
                let Some(rows) = self.over(rows, &projection.input, keeps)? else { return Ok(None) };
                self.projected(rows, &projection.expr, projection.input.schema())
            }
            LogicalPlan::Filter(filter) => {
                if let Some((conditions, rest)) = self.outer_conditions(filter)? {
                    let rows = self.where_all(rows, conditions, keeps)?;
                    return self.over(rows, &rest, keeps);
                }
                let schema = filter.input.schema();
                if !refers(&filter.input, &self.outer)? && !reads_nothing(&filter.input) {
                    return self.beside_filtered(rows, filter, keeps);
                }
                let Some(rows) = self.over(rows, &filter.input, keeps)? else { return Ok(None) };
                let Some(condition) = self.resolved(&filter.predicate, schema, &rows.columns)? else {
                    return Ok(None);
                };
                let Some((rows, condition)) = self.without_queries(rows, condition, keeps)? else {
                    return Ok(None);
                };
                self.filtered(rows, condition, keeps).map(Some)
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                let Some(rows) = self.over(rows, &sort.input, keeps)? else { return Ok(None) };
                self.sorted(rows, &sort.expr, sort.input.schema())
            }
            LogicalPlan::Limit(limit) => {
                let Some(rows) = self.over(rows, &limit.input, keeps)? else { return Ok(None) };
                self.limited(rows, limit, keeps)
            }
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Some(rows) = self.over(rows, input, keeps)? else { return Ok(None) };
                if self.number.is_none() {
                    return Ok(None);
                }
                let columns = rows.columns.clone();
                self.grouped(rows, &columns, Vec::new(), true).map(Some)
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregated(rows, aggregate, keeps),
            LogicalPlan::Window(window) => {
                let Some(rows) = self.over(rows, &window.input, keeps)? else { return Ok(None) };
                self.windowed(rows, window)
            }
            LogicalPlan::Unnest(unnest) => {
                let Some(rows) = self.over(rows, &unnest.input, keeps)? else { return Ok(None) };
                self.unnested(rows, unnest, keeps)
            }
            LogicalPlan::Join(join) if join.join_type == JoinType::Left => {
                self.left_joined(rows, join, keeps)
            }
            LogicalPlan::Join(join) => self.joined(rows, join, keeps),
            LogicalPlan::Values(values) => self.listed(rows, values),
            _ => Ok(None),
        }
    }

    /// An expression over the columns of `schema`, which are called by `columns` now. `None` if a sub-query in it names them.
    fn resolved(&self, expression: &Expr, schema: &DFSchema, columns: &[Column]) -> Result<Option<Expr>> {
        let names_them = has(expression, &mut |part: &Expr| match subquery_of(part) {
            Some((subquery, _)) => refers(&subquery.subquery, schema),
            None => Ok(matches!(part, Expr::SetComparison(_))),
        })?;
        if names_them {
            return Ok(None);
        }
        let resolved = expression.clone().transform_up(|part| {
            Ok(match part {
                Expr::OuterReferenceColumn(_, column) if self.outer.is_column_from_schema(&column) => {
                    Transformed::yes(Expr::Column(column))
                }
                Expr::Column(column) => {
                    let position = schema.index_of_column(&column)?;
                    Transformed::yes(Expr::Column(columns[position].clone()))
                }
                other => Transformed::no(other),
            })
        })?;
        Ok(Some(resolved.data))
    }

    /// An expression that is computed of rows that are present alone; others might make it fail.
    fn guarded(&self, expression: Expr, rows: &Rows) -> Result<Expr> {
        let Some(present) = &rows.present else { return Ok(expression) };
        if is_plain(&expression) {
            return Ok(expression);
        }
        let schema: &DFSchema = rows.plan.schema();
        let (_, field) = expression.to_field(schema)?;
        let guarded = case(vec![(is_true(present), expression)], None);
        Ok(match types::sql_type(&field) {
            // What a field says of its type besides Arrow's gets lost there.
            Some(ty) if !field.metadata().is_empty() => cast(guarded, ty),
            _ => guarded,
        })
    }

    fn projected(&mut self, rows: Rows, expressions: &[Expr], schema: &DFSchema) -> Result<Option<Rows>> {
        let mut outputs = rows.carried();
        let mut columns = Vec::with_capacity(expressions.len());
        for expression in expressions {
            let Some(resolved) = self.resolved(expression, schema, &rows.columns)? else { return Ok(None) };
            let name = self.name();
            outputs.push(self.guarded(resolved, &rows)?.alias(name.clone()));
            columns.push(Column::from_name(name));
        }
        let plan = LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(rows.plan))?);
        Ok(Some(Rows { plan, columns, ..rows }))
    }

    /// Rows with one more column, and its name.
    fn with_column(&mut self, rows: Rows, value: Expr) -> Result<(Rows, Column)> {
        let mut outputs = rows.carried();
        outputs.extend(rows.columns.iter().cloned().map(Expr::Column));
        let name = self.name();
        outputs.push(value.alias(name.clone()));
        let plan = LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(rows.plan))?);
        Ok((Rows { plan, ..rows }, Column::from_name(name)))
    }

    fn filtered(&mut self, rows: Rows, condition: Expr, keeps: bool) -> Result<Rows> {
        if !keeps {
            let condition = rows.present_and(Some(condition)).expect("there is one");
            let plan = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(rows.plan))?);
            return Ok(Rows { plan, present: None, is_single: false, ..rows });
        }
        let present = match &rows.present {
            Some(present) => case(vec![(is_true(present), of_present_inputs(condition, present)?)], None),
            None => condition,
        };
        let (rows, present) = self.with_column(rows, present)?;
        Ok(Rows { present: Some(present), ..rows })
    }

    fn sorted(&mut self, mut rows: Rows, keys: &[SortExpr], schema: &DFSchema) -> Result<Option<Rows>> {
        let mut order = Vec::with_capacity(keys.len() + rows.order.len());
        let mut carried = rows.order.clone();
        for key in keys {
            let Some(value) = self.resolved(&key.expr, schema, &rows.columns)? else { return Ok(None) };
            let value = self.guarded(value, &rows)?;
            let (more, column) = self.with_column(rows, value)?;
            rows = more;
            order.push((column, key.asc, key.nulls_first));
            rows.order = order.iter().chain(&carried).cloned().collect();
        }
        order.append(&mut carried);
        Ok(Some(Rows { order, ..rows }))
    }

    /// The first rows of each outer row.
    fn limited(&mut self, rows: Rows, limit: &Limit, keeps: bool) -> Result<Option<Rows>> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Ok(None);
        };
        let Some(number) = self.number.clone() else { return Ok(None) };
        let apart = std::iter::once(Expr::Column(number)).chain(rows.present.as_ref().map(is_true));
        let place = row_number(apart.collect(), rows.sort_keys());
        let (plan, place) = self.with_places(rows.plan, place)?;
        let rows = Rows { plan, ..rows };
        let place = Expr::Column(place);
        let after = place.clone().gt(lit(skip as u64));
        let condition = match fetch {
            Some(fetch) => after.and(place.lt_eq(lit(skip.saturating_add(fetch) as u64))),
            None => after,
        };
        self.filtered(rows, condition, keeps).map(Some)
    }

    fn aggregated(&mut self, rows: Rows, aggregate: &Aggregate, keeps: bool) -> Result<Option<Rows>> {
        let is_set = |expression: &Expr| matches!(expression, Expr::GroupingSet(_));
        if self.number.is_none() || aggregate.group_expr.iter().any(is_set) {
            return Ok(None);
        }
        let is_grouped = !aggregate.group_expr.is_empty();
        let schema = aggregate.input.schema();
        let Some(mut rows) = self.over(rows, &aggregate.input, keeps || !is_grouped)? else {
            return Ok(None);
        };
        let mut keys = Vec::with_capacity(aggregate.group_expr.len());
        let columns = rows.columns.clone();
        for key in &aggregate.group_expr {
            let Some(value) = self.resolved(key, schema, &columns)? else { return Ok(None) };
            let value = self.guarded(value, &rows)?;
            let (more, column) = self.with_column(rows, value)?;
            rows = more;
            rows.columns.push(column.clone());
            keys.push(column);
        }
        let mut aggregates = Vec::with_capacity(aggregate.aggr_expr.len());
        for call in &aggregate.aggr_expr {
            let Some(call) = self.resolved(call, schema, &columns)? else { return Ok(None) };
            let call = call.transform_up(|part| match part {
                Expr::AggregateFunction(call) => {
                    self.of_present(call, &rows).map(|call| Transformed::yes(Expr::AggregateFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            })?;
            aggregates.push(call.data);
        }
        self.grouped(rows, &keys, aggregates, is_grouped).map(Some)
    }

    /// A call of an aggregate over the rows that are present, in their order if that matters.
    fn of_present(&self, mut call: AggregateFunction, rows: &Rows) -> Result<AggregateFunction> {
        const IN_ORDER: &[&str] = &["array_agg", "string_agg", "first_value", "last_value", "nth_value"];
        let params = &mut call.params;
        for argument in params.args.iter_mut().chain(params.order_by.iter_mut().map(|key| &mut key.expr)) {
            *argument = self.guarded(std::mem::take(argument), rows)?;
        }
        let mut filter = params.filter.take().map(|filter| *filter);
        if let (Some(condition), Some(present)) = (&mut filter, &rows.present) {
            *condition = of_present_inputs(std::mem::take(condition), present)?;
        }
        params.filter = rows.present_and(filter).map(Box::new);
        if params.order_by.is_empty() && !params.distinct && IN_ORDER.contains(&call.func.name()) {
            params.order_by = rows.sort_keys();
        }
        Ok(call)
    }

    fn windowed(&mut self, rows: Rows, window: &Window) -> Result<Option<Rows>> {
        let Some(number) = self.number.clone() else { return Ok(None) };
        let mut calls = Vec::with_capacity(window.window_expr.len());
        let mut columns = rows.columns.clone();
        for call in &window.window_expr {
            let Some(call) = self.resolved(call, window.input.schema(), &rows.columns)? else {
                return Ok(None);
            };
            let call = call.unalias().transform_up(|part| {
                Ok(match part {
                    Expr::WindowFunction(mut call) => {
                        let params = &mut call.params;
                        let keys = params.order_by.iter_mut().map(|key| &mut key.expr);
                        for input in params.args.iter_mut().chain(&mut params.partition_by).chain(keys) {
                            *input = self.guarded(std::mem::take(input), &rows)?;
                        }
                        let partition = &mut params.partition_by;
                        partition.push(Expr::Column(number.clone()));
                        partition.extend(rows.present.as_ref().map(is_true));
                        Transformed::yes(Expr::WindowFunction(call))
                    }
                    other => Transformed::no(other),
                })
            })?;
            let name = self.name();
            calls.push(call.data.alias(name.clone()));
            columns.push(Column::from_name(name));
        }
        let plan = LogicalPlan::Window(Window::try_new(calls, Arc::new(rows.plan))?);
        Ok(Some(Rows { plan, columns, ..rows }))
    }

    /// The elements of lists; where nothing gets lost, with their places, which tell them from what is there for want of any.
    fn unnested(&mut self, rows: Rows, unnest: &Unnest, keeps: bool) -> Result<Option<Rows>> {
        let schema = unnest.input.schema();
        let mut lists = Vec::with_capacity(unnest.exec_columns.len());
        for column in &unnest.exec_columns {
            let recursions =
                unnest.options.recursions.iter().filter(|recursion| recursion.input_column == *column);
            let depths: Vec<usize> = recursions.map(|recursion| recursion.depth).collect();
            if !(depths.is_empty() || depths == [1]) {
                return Ok(None);
            }
            lists.push(schema.index_of_column(column)?);
        }
        let has_places = keeps || self.number.is_some();
        // Each list once, under a name that nobody else has.
        let mut outputs = rows.carried();
        let mut columns = Vec::with_capacity(rows.columns.len());
        for column in &rows.columns {
            let name = self.name();
            outputs.push(Expr::Column(column.clone()).alias(name.clone()));
            columns.push(Column::from_name(name));
        }
        let mut taken_apart: Vec<Column> = lists.iter().map(|position| columns[*position].clone()).collect();
        if has_places {
            let name = self.name();
            let lists = lists.iter().map(|position| Expr::Column(rows.columns[*position].clone())).collect();
            let places = Expr::ScalarFunction(ScalarFunction::new_udf(positions(), lists));
            outputs.push(places.alias(name.clone()));
            taken_apart.push(Column::from_name(name));
        }
        let mut options = UnnestOptions::new().with_null_handling(match keeps {
            true => NullHandling::PreserveAndExpandEmpty,
            false => unnest.options.null_handling,
        });
        let mut elements = Vec::with_capacity(taken_apart.len());
        for list in &taken_apart {
            let element = Column::from_name(self.name());
            options = options.with_recursions(RecursionUnnestOption {
                input_column: list.clone(),
                output_column: element.clone(),
                depth: 1,
            });
            elements.push(element);
        }
        let listed = Projection::try_new(outputs, Arc::new(rows.plan))?;
        let plan = Unnest::try_new(Arc::new(LogicalPlan::Projection(listed)), taken_apart, options)?;
        for (position, element) in lists.into_iter().zip(&elements) {
            columns[position] = element.clone();
        }
        let mut order = rows.order;
        let place = has_places.then(|| elements.pop().expect("it comes last"));
        order.extend(place.iter().map(|place| (place.clone(), true, false)));
        let rows = Rows { plan: LogicalPlan::Unnest(plan), columns, order, is_single: false, ..rows };
        match place {
            Some(place) if keeps => {
                let is_there = Expr::IsNotNull(Box::new(Expr::Column(place)));
                self.filtered(rows, is_there, true).map(Some)
            }
            _ => Ok(Some(rows)),
        }
    }

    fn joined(&mut self, rows: Rows, join: &Join, keeps: bool) -> Result<Option<Rows>> {
        // An item that is computed of rows of the sub-query would have to know what these are called now.
        if join.join_type != JoinType::Inner
            || join.null_equality != NullEquality::NullEqualsNothing
            || refers(&join.right, join.left.schema())?
        {
            return Ok(None);
        }
        let condition = condition_of(join);
        let Some(left) = self.over(rows, &join.left, keeps)? else { return Ok(None) };
        let before = left.columns.clone();
        let kept = left.kept.clone();
        let pairs = Rows {
            kept: left.kept.iter().chain(&left.columns).cloned().collect(),
            columns: Vec::new(),
            ..left
        };
        if !refers(&join.right, &self.outer)? && !reads_nothing(&join.right) {
            let condition = condition.as_ref().map(|expression| Condition {
                expression,
                schema: &join.schema,
                first: &before,
            });
            let Some(rows) = self.beside(pairs, &join.right, condition, keeps)? else { return Ok(None) };
            let columns = before.iter().chain(&rows.columns).cloned().collect();
            return Ok(Some(Rows { kept, columns, ..rows }));
        }
        // The number of an outer row does not tell the pairs apart that it is part of.
        let number = self.number.take();
        let rows = self.over(pairs, &join.right, keeps);
        self.number = number;
        let Some(rows) = rows? else { return Ok(None) };
        let columns = before.into_iter().chain(rows.columns).collect();
        let rows = Rows { kept, columns, ..rows };
        let Some(condition) = condition else { return Ok(Some(rows)) };
        let Some(condition) = self.resolved(&condition, &join.schema, &rows.columns)? else {
            return Ok(None);
        };
        self.filtered(rows, condition, keeps).map(Some)
    }

    /// The rows of a list that has been written out, by their places in it.
    fn listed(&mut self, rows: Rows, values: &Values) -> Result<Option<Rows>> {
        let places = (0..values.values.len()).map(|place| vec![lit(place as i64)]).collect();
        let places = LogicalPlanBuilder::values(places)?.build()?;
        let Rows { kept, present, .. } = rows.clone();
        // Whether they are present is known before.
        let all = Rows { kept: kept.iter().chain(&present).cloned().collect(), present: None, ..rows };
        let Some(listed) = self.beside(all, &places, None, false)? else { return Ok(None) };
        let guard = Rows { present: present.clone(), ..listed.clone() };
        let place = listed.columns[0].clone();
        let mut outputs = listed.carried();
        outputs.push(Expr::Column(place.clone()));
        let mut columns = Vec::with_capacity(values.schema.fields().len());
        for (column, field) in values.schema.fields().iter().enumerate() {
            let mut branches = Vec::with_capacity(values.values.len());
            for (row, cells) in values.values.iter().enumerate() {
                let Some(cell) = self.resolved(&cells[column], &DFSchema::empty(), &[])? else {
                    return Ok(None);
                };
                branches.push((Expr::Column(place.clone()).eq(lit(row as i64)), cell));
            }
            let value = self.guarded(case(branches, None), &guard)?;
            let value = match types::sql_type(field) {
                Some(ty) if !field.data_type().is_nested() => cast(value, ty),
                _ => value,
            };
            let name = self.name();
            outputs.push(value.alias(name.clone()));
            columns.push(Column::from_name(name));
        }
        let plan = LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(listed.plan))?);
        let mut order = listed.order;
        order.push((place, true, false));
        Ok(Some(Rows { plan, kept, columns, present, order, is_single: false }))
    }

    /// Rows beside all of a plan that refers to no outer one, or beside those of which a condition is true.
    fn beside(
        &mut self,
        rows: Rows,
        plan: &LogicalPlan,
        condition: Option<Condition<'_>>,
        keeps: bool,
    ) -> Result<Option<Rows>> {
        let mut outputs = Vec::new();
        let mut columns = Vec::new();
        for column in plan.schema().columns() {
            let name = self.name();
            outputs.push(Expr::Column(column).alias(name.clone()));
            columns.push(Column::from_name(name));
        }
        let mut present = rows.present.clone();
        let mut filter = None;
        if let Some(Condition { expression, schema, first }) = condition {
            let names: Vec<Column> = first.iter().chain(&columns).cloned().collect();
            let Some(resolved) = self.resolved(expression, schema, &names)? else { return Ok(None) };
            filter = Some(match &rows.present {
                Some(present) => of_present_pairs(resolved, present, &columns)?,
                None => resolved,
            });
        }
        if keeps {
            let name = self.name();
            outputs.push(lit(true).alias(name.clone()));
            present = Some(Column::from_name(name));
            filter = rows.present_and(filter);
        }
        let right = Projection::try_new(outputs, Arc::new(plan.clone()))?;
        let join = Join::try_new(
            Arc::new(rows.plan),
            Arc::new(LogicalPlan::Projection(right)),
            Vec::new(),
            filter,
            if keeps { JoinType::Left } else { JoinType::Inner },
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok(Some(Rows { plan: LogicalPlan::Join(join), columns, present, is_single: false, ..rows }))
    }

    /// Rows beside those of a plan without outer columns of which conditions are true. A join's condition asks no sub-query: those
    /// that do are asked of the plan's rows before, or of the pairs afterwards.
    fn beside_filtered(&mut self, rows: Rows, filter: &Filter, keeps: bool) -> Result<Option<Rows>> {
        let schema = filter.input.schema();
        let (mut before, mut joining, mut afterwards) = (Vec::new(), Vec::new(), Vec::new());
        for condition in split_conjunction_owned(filter.predicate.clone()) {
            let asks = has(&condition, &mut |part: &Expr| Ok(subquery_of(part).is_some()))?;
            match (asks, asks && self.is_dependent(&condition)?) {
                (false, _) => joining.push(condition),
                (true, false) => before.push(condition),
                (true, true) => afterwards.push(condition),
            }
        }
        let mut input = filter.input.as_ref().clone();
        if let Some(condition) = conjunction(before) {
            input = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(input))?);
        }
        let joining = conjunction(joining);
        let condition = joining.as_ref().map(|expression| Condition { expression, schema, first: &[] });
        let Some(rows) = self.beside(rows, &input, condition, keeps)? else { return Ok(None) };
        let Some(condition) = conjunction(afterwards) else { return Ok(Some(rows)) };
        let Some(condition) = self.resolved(&condition, schema, &rows.columns)? else { return Ok(None) };
        let Some((rows, condition)) = self.without_queries(rows, condition, keeps)? else { return Ok(None) };
        self.filtered(rows, condition, keeps).map(Some)
    }

    /// Whether there are outer columns in an expression, or in a sub-query in it.
    fn is_dependent(&self, expression: &Expr) -> Result<bool> {
        has(expression, &mut |part: &Expr| match subquery_of(part) {
            Some((subquery, _)) => refers(&subquery.subquery, &self.outer),
            None => Ok(
                matches!(part, Expr::OuterReferenceColumn(_, column) if self.outer.is_column_from_schema(column)),
            ),
        })
    }

    /// A condition with the values of its sub-queries where DataFusion would make no join of them, and rows that have these.
    fn without_queries(&mut self, rows: Rows, condition: Expr, keeps: bool) -> Result<Option<(Rows, Expr)>> {
        let outer = Arc::clone(&self.outer);
        let mut is_wanted = |part: &Expr| -> Result<bool> {
            match subquery_of(part) {
                Some((subquery, form)) => {
                    Ok(keeps && form != Form::Value || refers(&subquery.subquery, &outer)?)
                }
                None => Ok(false),
            }
        };
        if !has(&condition, &mut is_wanted)? {
            return Ok(Some((rows, condition)));
        }
        // The number of an outer row does not tell its rows apart.
        let (plan, own) = self.with_places(rows.plan, row_number(Vec::new(), Vec::new()))?;
        let mut kept = rows.kept.clone();
        let order = rows.order.iter().map(|(column, ..)| column);
        for column in rows.columns.iter().chain(&rows.present).chain(order).chain([&own]) {
            if !kept.contains(column) {
                kept.push(column.clone());
            }
        }
        let number = self.number.replace(own);
        let mut computed =
            Rows { plan, kept, columns: Vec::new(), present: None, order: Vec::new(), is_single: true };
        let mut is_known = true;
        let condition = condition.transform_up(|part| {
            if !is_known || !is_wanted(&part)? {
                return Ok(Transformed::no(part));
            }
            match self.value(computed.clone(), &part)? {
                Some((more, value)) => {
                    computed = more;
                    Ok(Transformed::yes(value))
                }
                None => {
                    is_known = false;
                    Ok(Transformed::no(part))
                }
            }
        })?;
        self.number = number;
        Ok(is_known.then_some((Rows { plan: computed.plan, ..rows }, condition.data)))
    }

    /// Of each outer row those that are present, or else one that is not.
    fn one_at_least(&mut self, rows: Rows) -> Result<Rows> {
        let Some(present) = rows.present.clone().filter(|_| !rows.is_single) else { return Ok(rows) };
        let number = self.number.clone().expect("rows that are kept have numbers");
        let present_first = SortExpr::new(is_true(&present), false, false);
        let place = row_number(vec![Expr::Column(number)], vec![present_first]);
        let (plan, place) = self.with_places(rows.plan, place)?;
        let condition = is_true(&present).or(Expr::Column(place).eq(lit(1_u64)));
        let plan = Filter::try_new(condition, Arc::new(plan))?;
        Ok(Rows { plan: LogicalPlan::Filter(plan), ..rows })
    }
}
