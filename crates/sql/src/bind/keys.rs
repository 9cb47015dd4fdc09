//! Keys end below `unnest`, which makes several rows of one, and above groups that they are only a part of.
//!
//! DataFusion takes the keys of the rows below it for keys of those that it yields, and by them leaves out DISTINCT,
//! grouping columns, and what ORDER BY names behind a key: `SELECT DISTINCT id FROM (SELECT id, unnest(list) FROM t)` had every
//! id as often as its list has elements. So tables are read as if they had no keys there, which costs nothing; and
//! columns that a grouping below may have made a key of are called by a function that DataFusion does not see through.
//!
//! A join makes several rows of one as well, and then DataFusion knows that a key determines what is in its own table alone. But of
//! groups by the key and a column of another table it takes the key for one of the groups: `SELECT t.id, o.x FROM t JOIN o … GROUP BY t.id, o.x
//! ORDER BY t.id, o.x` was in the order of t.id. What such groups yield, and such rows under DISTINCT, is called by that function, too; where
//! it stands in a condition the optimiser takes it away again ([`firn_exec::types::AS_IS`]). DISTINCT below, and what is a UNION, INTERSECT or EXCEPT by it,
//! has keys no sooner than the optimiser has made a grouping of it, so that is looked at as if it were one.
//!
//! Items of FROM lose their keys as they are planned: the planner groups by all that a key determines.
//!
//! A function that yields its argument also keeps apart keys of GROUP BY that are alike but for casts: see [`AS_CAST`].

use super::sets;
pub use crate::output_name::AS_CAST;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::utils::take_function_args;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Distinct, Expr, Join, LogicalPlan, Projection, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TableScan, TableScanBuilder, Unnest, Volatility,
};
use datafusion::sql::sqlparser::ast::TableFactor;
use firn_base::sync::{Arc, AtomicBool, OnceLock, Ordering};
use firn_exec::FirnTable;
pub use firn_exec::types::AS_IS;

/// Plans items of FROM as the planner does, and ends the keys in them.
#[derive(Debug, Default)]
pub struct Items {
    /// The planner has been told to go on with the item that it asks for next.
    told: AtomicBool,
}

impl RelationPlanner for Items {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        // ORDERING: a statement is planned by one thread.
        if self.told.swap(false, Ordering::Relaxed) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        self.told.store(true, Ordering::Relaxed);
        let plan = end(context.plan(relation)?)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

/// Ends them in all of a plan.
pub fn end(plan: LogicalPlan) -> Result<LogicalPlan> {
    end_above_groups(end_below_unnest(plan)?)
}

fn end_above_groups(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !contains(&plan, has_false_keys)? {
        return Ok(plan);
    }
    let ended = plan.transform_up_with_subqueries(|node| {
        firn_exec::interrupt::check()?;
        Ok(Transformed::yes(match node.recompute_schema()? {
            LogicalPlan::Aggregate(aggregate) if tells_values_apart(&aggregate) => of_distinct(aggregate)?,
            node if has_false_keys(&node)? => hidden(node)?,
            LogicalPlan::Join(join) if sets::is_set(&join) => above_set(join)?,
            // This is not the first time.
            LogicalPlan::Projection(mut outer) if is_call_of_all(&outer) => {
                if let LogicalPlan::Projection(inner) = outer.input.as_ref()
                    && is_call_of_all(inner)
                {
                    outer.input = Arc::clone(&inner.input);
                }
                LogicalPlan::Projection(outer)
            }
            node => node,
        }))
    })?;
    Ok(ended.data)
}

fn tells_values_apart(aggregate: &Aggregate) -> bool {
    let is_distinct = |part: &Expr| Ok(matches!(part, Expr::AggregateFunction(call) if call.params.distinct));
    aggregate.aggr_expr.iter().any(|call| call.exists(is_distinct).expect("it never fails"))
}

/// An aggregation of values that differ: the optimiser groups by these as well, below its groups, where a key is as false.
fn of_distinct(aggregate: Aggregate) -> Result<LogicalPlan> {
    let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
    // Of an input that has keys, and more than one table to have them.
    let is_joined =
        contains(&input, |node| Ok(matches!(node, LogicalPlan::Join(_) | LogicalPlan::Window(_))))?;
    let has_keys = !with_groupings(&input)?.schema().functional_dependencies().is_empty();
    let input = match is_joined && has_keys && !group_expr.is_empty() {
        true => Arc::new(hidden(Arc::unwrap_or_clone(input))?),
        false => input,
    };
    Aggregate::try_new(input, group_expr, aggr_expr).map(LogicalPlan::Aggregate)
}

/// A set operation says by DISTINCT on its left that it is not one of ALL. It has the keys of that, which end above it.
fn above_set(mut join: Join) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(left) = join.left.as_ref() else { return Ok(LogicalPlan::Join(join)) };
    if !is_call_of_all(left) || !matches!(left.input.as_ref(), LogicalPlan::Distinct(Distinct::All(_))) {
        return Ok(LogicalPlan::Join(join));
    }
    join.left = Arc::clone(&left.input);
    hidden(LogicalPlan::Join(join).recompute_schema()?)
}

/// Whether DataFusion takes a part of what a node groups by for a key that is none.
fn has_false_keys(node: &LogicalPlan) -> Result<bool> {
    let (input, groups): (&Arc<LogicalPlan>, Vec<String>) = match node {
        LogicalPlan::Aggregate(aggregate) => {
            let names = aggregate.group_expr.iter().map(|group| group.schema_name().to_string());
            (&aggregate.input, names.collect())
        }
        LogicalPlan::Distinct(Distinct::All(input)) => (input, input.schema().field_names()),
        _ => return Ok(false),
    };
    let input = with_groupings(input)?;
    let keys = input.schema().functional_dependencies();
    if keys.is_empty() {
        return Ok(false);
    }
    let names = input.schema().field_names();
    Ok(keys.iter().any(|key| {
        let is_in = |within: &[usize], group: &String| within.iter().any(|at| names[*at] == *group);
        key.source_indices.iter().all(|at| groups.contains(&names[*at]))
            && !groups
                .iter()
                .all(|group| is_in(&key.target_indices, group) || is_in(&key.source_indices, group))
    }))
}

/// A plan with the groupings that the optimiser makes of DISTINCT, which have keys.
fn with_groupings(plan: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
    if !contains(plan, |node| Ok(matches!(node, LogicalPlan::Distinct(Distinct::All(_)))))? {
        return Ok(Arc::clone(plan));
    }
    let grouped = plan.as_ref().clone().transform_up(|node| {
        Ok(Transformed::yes(match node {
            LogicalPlan::Distinct(Distinct::All(input)) if !input.schema().fields().is_empty() => {
                let columns = input.schema().iter().map(Expr::from).collect();
                LogicalPlan::Aggregate(Aggregate::try_new(input, columns, Vec::new())?)
            }
            other => other.recompute_schema()?,
        }))
    })?;
    Ok(Arc::new(grouped.data))
}

fn end_below_unnest(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !contains(&plan, |node| Ok(matches!(node, LogicalPlan::Unnest(_))))? {
        return Ok(plan);
    }
    let ended = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Unnest(unnest) => without_keys(unnest).map(Transformed::yes),
        other => other.recompute_schema().map(Transformed::yes),
    })?;
    Ok(ended.data)
}

fn contains(plan: &LogicalPlan, wanted: impl Fn(&LogicalPlan) -> Result<bool>) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        firn_exec::interrupt::check()?;
        found |= wanted(node)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn without_keys(unnest: Unnest) -> Result<LogicalPlan> {
    let Unnest { input, exec_columns, options, .. } = unnest;
    let input = Arc::unwrap_or_clone(input).transform_up(|node| match node {
        LogicalPlan::TableScan(scan) => keyless(scan).map(Transformed::yes),
        other => other.recompute_schema().map(Transformed::yes),
    })?;
    let mut input = input.data;
    // DISTINCT becomes a grouping later, and a window may number the rows.
    let makes_keys = |node: &LogicalPlan| {
        Ok(matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) | LogicalPlan::Window(_)))
    };
    if !is_hidden(&input) && contains(&input, makes_keys)? {
        input = hidden(input)?;
    }
    Unnest::try_new(Arc::new(input), exec_columns, options).map(LogicalPlan::Unnest)
}

/// The columns of a plan as calls that DataFusion does not see through.
fn hidden(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = plan.schema().iter().map(|(qualifier, field)| {
        let column = Expr::from((qualifier, field));
        let hidden = ScalarFunction::new_udf(as_is(), vec![column]);
        Expr::ScalarFunction(hidden).alias_qualified(qualifier.cloned(), field.name())
    });
    let columns: Vec<Expr> = columns.collect();
    Projection::try_new(columns, Arc::new(plan)).map(LogicalPlan::Projection)
}

/// Whether all columns of a plan are such calls.
fn is_hidden(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Projection(projection) if is_call_of_all(projection))
}

fn is_call_of_all(projection: &Projection) -> bool {
    fn is_call(expression: &Expr) -> bool {
        match expression {
            Expr::Alias(alias) => is_call(&alias.expr),
            Expr::ScalarFunction(function) => function.name() == AS_IS,
            _ => false,
        }
    }
    projection.expr.iter().all(is_call)
}

/// A scan of a table of ours as one without keys.
fn keyless(scan: TableScan) -> Result<LogicalPlan> {
    let provider = source_as_provider(&scan.source).ok();
    let Some(table) = provider.as_ref().and_then(|provider| provider.downcast_ref::<FirnTable>()) else {
        return Ok(LogicalPlan::TableScan(scan));
    };
    let source = provider_as_source(Arc::new(table.clone().without_keys()));
    let scan = TableScanBuilder::new(scan.table_name, source)
        .with_projection(scan.projection)
        .with_filters(scan.filters)
        .with_fetch(scan.fetch)
        .build()?;
    Ok(LogicalPlan::TableScan(scan))
}

fn as_is() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| Same::function(false)))
}

/// The function [`AS_CAST`].
pub fn as_cast() -> Arc<ScalarUDF> {
    Same::function(true)
}

/// The functions that yield their argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Same {
    /// It is [`AS_CAST`], and not [`AS_IS`].
    tells_casts: bool,
    signature: Signature,
}

impl Same {
    fn function(tells_casts: bool) -> Arc<ScalarUDF> {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Same { tells_casts, signature }))
    }
}

impl ScalarUDFImpl for Same {
    fn name(&self) -> &str {
        if self.tells_casts { AS_CAST } else { AS_IS }
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(match self.tells_casts {
            true => arguments[0].to_string(),
            false => format!("{AS_IS}({})", arguments[0].schema_name()),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::clone(&arguments.arg_fields[0]))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = take_function_args(self.name(), arguments.args)?;
        Ok(value)
    }
}
