//! Floats as keys: those by which a window is divided and ordered, rows are sorted and an aggregate tells values apart.
//!
//! DataFusion groups, joins and compares by what is equal; where rows are sorted first it goes by bits, so that 0 and -0 are two
//! values ([`crate::floats`]). Keys become floats that have the bits in common, under the name of what they stand for. The last key
//! of a sort stays what it is, since nothing tells rows of equal ones apart.

use crate::floats;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue, utils::take_function_args};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction, Sort as SortKey, WindowFunction};
use datafusion::logical_expr::{
    ColumnarValue, Distinct, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
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
            on.on_expr.iter_mut().chain(order).try_for_each(|key| make(key, schema))?;
            LogicalPlan::Distinct(Distinct::On(on))
        }
        other => other,
    })
}

/// The keys of a window.
pub fn of_window(window: &mut WindowFunction, schema: &DFSchema) -> Result<()> {
    let params = &mut window.params;
    let order = params.order_by.iter_mut().map(|key| &mut key.expr);
    params.partition_by.iter_mut().chain(order).try_for_each(|key| make(key, schema))
}

/// The keys of an aggregate.
pub fn of_aggregate(aggregate: &mut AggregateFunction, schema: &DFSchema) -> Result<()> {
    let params = &mut aggregate.params;
    if !params.distinct {
        return of_order(&mut params.order_by, schema);
    }
    let order = params.order_by.iter_mut().map(|key| &mut key.expr);
    params.args.iter_mut().chain(order).try_for_each(|key| make(key, schema))
}

fn of_order(order: &mut [SortKey], schema: &DFSchema) -> Result<()> {
    match order {
        [keys @ .., _] => keys.iter_mut().try_for_each(|key| make(&mut key.expr, schema)),
        [] => Ok(()),
    }
}

/// Makes a key of an expression, if it is a float.
fn make(expression: &mut Expr, schema: &DFSchema) -> Result<()> {
    static KEY: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    if expression.get_type(schema)?.is_floating() {
        let signature = Signature::any(1, Volatility::Immutable);
        let key = Arc::clone(KEY.get_or_init(|| Arc::new(ScalarUDF::from(Key { signature }))));
        let float = std::mem::take(expression);
        *expression = Expr::ScalarFunction(ScalarFunction::new_udf(key, vec![float]));
    }
    Ok(())
}

/// A float by which equal ones are the same.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    signature: Signature,
}

impl ScalarUDFImpl for Key {
    fn name(&self) -> &str {
        "key"
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments[0].schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [float] = take_function_args(self.name(), arguments.args)?;
        Ok(match float {
            ColumnarValue::Array(array) => ColumnarValue::Array(floats::keys(&array)),
            ColumnarValue::Scalar(scalar) => {
                let key = floats::keys(&scalar.to_array()?);
                ColumnarValue::Scalar(ScalarValue::try_from_array(&key, 0)?)
            }
        })
    }
}
