//! Floats, spans of time and char(n) as keys: those by which a window is divided and ordered, rows are sorted and an aggregate tells
//! values apart. What else is done by spans: see [`spans`].
//!
//! DataFusion groups, joins and compares by which floats are equal; where rows are sorted first it goes by bits, so that 0 and -0 are
//! two values ([`crate::floats`]). Keys become floats that have the bits in common, under the name of what they stand for. The last key
//! of a sort stays what it is, since nothing tells rows of equal ones apart.
//!
//! Strings of one char(n) are equal with their blanks if they are without; but a character before the blank stands before nothing
//! only with them. What orders such strings leaves the blanks out.

use super::spans;
use crate::aggregate::gather_spans;
use crate::floats;
use crate::spans::keys as spans_to_keys;
use crate::types::{self, NAME_END};
use datafusion::arrow::array::{ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue, utils::take_function_args};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction, Sort as SortKey, WindowFunction};
use datafusion::logical_expr::{
    ColumnarValue, Distinct, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use firn_base::SqlType;
use firn_base::sync::{Arc, OnceLock};

/// The keys of a node of a plan.
pub fn of_node(node: LogicalPlan) -> Result<LogicalPlan> {
    Ok(match node {
        LogicalPlan::Sort(mut sort) => {
            of_order(&mut sort.expr, sort.input.schema())?;
            LogicalPlan::Sort(sort)
        }
        // The order begins with what rows are to differ in.
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            let schema = on.input.schema();
            let order = on.sort_expr.iter_mut().flatten().map(|key| &mut key.expr);
            on.on_expr.iter_mut().chain(order).try_for_each(|key| {
                of_float(key, schema)?;
                of_span(key, schema)?;
                of_string(key, schema)
            })?;
            LogicalPlan::Distinct(Distinct::On(on))
        }
        LogicalPlan::Distinct(Distinct::All(rows)) => spans::distinct(rows)?,
        LogicalPlan::Aggregate(aggregate) => spans::grouped(aggregate)?,
        LogicalPlan::Join(join) => spans::joined(join)?,
        other => other,
    })
}

/// The keys of a window.
pub fn of_window(window: &mut WindowFunction, schema: &DFSchema) -> Result<()> {
    let params = &mut window.params;
    params.order_by.iter_mut().try_for_each(|key| of_string(&mut key.expr, schema))?;
    let order = params.order_by.iter_mut().map(|key| &mut key.expr);
    params.partition_by.iter_mut().chain(order).try_for_each(|key| {
        of_float(key, schema)?;
        of_span(key, schema)
    })
}

/// The keys of an aggregate.
pub fn of_aggregate(aggregate: &mut AggregateFunction, schema: &DFSchema) -> Result<()> {
    let params = &mut aggregate.params;
    if !params.distinct {
        return of_order(&mut params.order_by, schema);
    }
    let is_of_spans = match params.args.as_slice() {
        [argument] => spans::is_span(&argument.get_type(schema)?),
        _ => false,
    };
    let is_argument = |key: &SortKey| key.expr == params.args[0];
    match aggregate.func.name() {
        "count" => params.args.iter_mut().try_for_each(|key| of_span(key, schema))?,
        // What these yield is made of spans, and not of keys.
        "sum" | "avg" | "array_agg" if is_of_spans && params.order_by.iter().all(is_argument) => {
            gather_spans(aggregate);
            return Ok(());
        }
        _ => {}
    }
    let order = params.order_by.iter_mut().map(|key| &mut key.expr);
    params.args.iter_mut().chain(order).try_for_each(|key| of_float(key, schema))?;
    if let [first, second] = params.args.as_mut_slice()
        && first == second
        && second.get_type(schema)?.is_floating()
    {
        // DataFusion takes the pair for a single argument, by which it would group.
        make(second);
    }
    Ok(())
}

/// The sides of a comparison that asks which comes first. Constants do not always say that they are char(n), but analysis has left
/// no other strings beside one.
pub fn of_comparison<const N: usize>(sides: [&mut Box<Expr>; N], schema: &DFSchema) -> Result<()> {
    let mut are_padded = false;
    for side in &sides {
        are_padded |= is_padded(side, schema)?;
    }
    if are_padded {
        sides.into_iter().for_each(|side| make(side));
    }
    Ok(())
}

fn of_order(order: &mut [SortKey], schema: &DFSchema) -> Result<()> {
    order.iter_mut().try_for_each(|key| {
        of_span(&mut key.expr, schema)?;
        of_string(&mut key.expr, schema)
    })?;
    match order {
        [keys @ .., _] => keys.iter_mut().try_for_each(|key| of_float(&mut key.expr, schema)),
        [] => Ok(()),
    }
}

/// Makes a key of an expression, if it is a float.
fn of_float(expression: &mut Expr, schema: &DFSchema) -> Result<()> {
    if expression.get_type(schema)?.is_floating() {
        make(expression);
    }
    Ok(())
}

/// Makes a key of an expression, if it is a span of time.
pub(super) fn of_span(expression: &mut Expr, schema: &DFSchema) -> Result<()> {
    if spans::is_span(&expression.get_type(schema)?) {
        make(expression);
    }
    Ok(())
}

/// Makes a key of an expression that a join goes by, if it is a span of time.
pub(super) fn of_joined_span(expression: &mut Expr, schema: &DFSchema) -> Result<()> {
    if spans::is_span(&expression.get_type(schema)?) {
        make_of_join(expression);
    }
    Ok(())
}

/// Makes a key of an expression that a join goes by. DataFusion computes it beside the columns that it joins, and wants names
/// that differ; an alias would not last.
pub(crate) fn make_of_join(expression: &mut Expr) {
    static KEY: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    call(KEY.get_or_init(|| Key::function(true)), expression);
}

/// Whether an expression is a key already.
pub(crate) fn is_key(expression: &Expr) -> bool {
    matches!(expression, Expr::ScalarFunction(call) if call.func.inner().downcast_ref::<Key>().is_some())
}

/// Makes a key of an expression, if it is a char(n).
fn of_string(expression: &mut Expr, schema: &DFSchema) -> Result<()> {
    if is_padded(expression, schema)? {
        make(expression);
    }
    Ok(())
}

fn is_padded(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    let (_, field) = expression.to_field(schema)?;
    Ok(matches!(types::sql_type(&field), Some(SqlType::Char(_))))
}

fn make(expression: &mut Expr) {
    static KEY: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    call(KEY.get_or_init(|| Key::function(false)), expression);
}

fn call(key: &Arc<ScalarUDF>, expression: &mut Expr) {
    let value = std::mem::take(expression);
    *expression = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(key), vec![value]));
}

/// What equal values have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Whether it has a name of its own, and not that of what it is a key of.
    is_named: bool,
    signature: Signature,
}

impl Key {
    fn function(is_named: bool) -> Arc<ScalarUDF> {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Key { is_named, signature }))
    }
}

impl ScalarUDFImpl for Key {
    fn name(&self) -> &str {
        "key"
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(match self.is_named {
            true => format!("{NAME_END}key {}", arguments[0]),
            false => arguments[0].schema_name().to_string(),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = take_function_args(self.name(), arguments.args)?;
        Ok(match value {
            ColumnarValue::Array(array) => ColumnarValue::Array(keys(&array)),
            ColumnarValue::Scalar(scalar) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&keys(&scalar.to_array()?), 0)?)
            }
        })
    }
}

fn keys(values: &ArrayRef) -> ArrayRef {
    match values.as_string_view_opt() {
        Some(strings) => {
            let trimmed = strings.iter().map(|string| string.map(|string| string.trim_end_matches(' ')));
            Arc::new(trimmed.collect::<StringViewArray>())
        }
        None => spans_to_keys(&floats::keys(values)),
    }
}
