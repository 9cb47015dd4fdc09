//! Operators that DataFusion computes otherwise than PostgreSQL or not at all, value by value with
//! the code that the short path uses ([`firn_base::operators`]).

use crate::types;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, utils::take_function_args};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use firn_base::sync::Arc;
use firn_base::{SqlType, TimeZoneSetting, Value, coerce, operators};
use firn_storage::arrow::values_to_array;

/// An operator of arithmetic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// An operator with the type of its result.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Operate {
    operation: Operation,
    result: SqlType,
    signature: Signature,
}

/// `left operation right` as a value of type `result`.
pub fn operate(operation: Operation, result: SqlType, left: Expr, right: Expr) -> Expr {
    // Stable, not immutable: days of a timestamptz depend on the session's zone.
    let signature = Signature::any(2, Volatility::Stable);
    let function = Arc::new(ScalarUDF::from(Operate { operation, result, signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![left, right]))
}

/// The operation and the type of its result, if a function is one of these.
pub fn operation_of(function: &ScalarUDF) -> Option<(Operation, SqlType)> {
    function.inner().downcast_ref::<Operate>().map(|operate| (operate.operation, operate.result))
}

impl ScalarUDFImpl for Operate {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "add",
            Operation::Subtract => "subtract",
            Operation::Multiply => "multiply",
            Operation::Divide => "divide",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(types::data_type(self.result))
    }

    fn return_field_from_args(&self, _arguments: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(types::field(self.name(), self.result))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = super::cast::zone(&arguments)?;
        let rows = arguments.number_rows;
        let [left, right] = take_function_args(self.name(), arguments.args)?;
        let scalar = matches!((&left, &right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { rows };
        let (left, right) = (left.into_array(rows)?, right.into_array(rows)?);
        let value = |row| {
            let (left, right) = (types::value_at(left.as_ref(), row)?, types::value_at(right.as_ref(), row)?);
            compute(self.operation, self.result, &left, &right, &zone)
        };
        let values: firn_base::Result<Vec<Value>> = (0..rows).map(value).collect();
        let array = values_to_array(&values.map_err(crate::error::to_datafusion)?, self.result);
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(array.as_ref(), 0)?));
        }
        Ok(ColumnarValue::Array(array))
    }
}

/// `left operation right` as a value of type `result`; NULL if either is NULL.
pub(crate) fn compute(
    operation: Operation,
    result: SqlType,
    left: &Value,
    right: &Value,
    zone: &TimeZoneSetting,
) -> firn_base::Result<Value> {
    if left.is_null() || right.is_null() {
        return Ok(Value::Null);
    }
    let exact;
    let (left, right) = match result {
        // An integer beside a numeric is a numeric without decimals.
        SqlType::Numeric { .. } => {
            exact = (as_numeric(left), as_numeric(right));
            (&exact.0, &exact.1)
        }
        _ => (left, right),
    };
    let value = match operation {
        Operation::Add => operators::add(left, right, zone),
        Operation::Subtract => operators::subtract(left, right, zone),
        Operation::Multiply => operators::multiply(left, right),
        Operation::Divide => operators::divide(left, right),
    }?;
    coerce::cast(value, result, zone)
}

fn as_numeric(value: &Value) -> Value {
    let unscaled = match value {
        Value::SmallInt(value) => i128::from(*value),
        Value::Integer(value) => i128::from(*value),
        Value::BigInt(value) => i128::from(*value),
        other => return other.clone(),
    };
    Value::Numeric { unscaled, scale: 0 }
}
