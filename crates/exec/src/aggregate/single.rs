//! The value of a correlated sub-query that should yield one row at most.
//!
//! DataFusion turns such a sub-query into a join with an aggregate over the inner rows, which are
//! then grouped by what ties them to the outer row. `few` gathers up to two values of a group, and
//! `only_value`, called on the outer row, takes the one there is. Groups that no outer row asks for
//! may hold any number of rows, so the aggregate itself must not complain.

use crate::error::to_datafusion;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Error, SqlState};

/// The aggregate that yields up to two values of a group as a list.
pub fn few() -> Arc<AggregateUDF> {
    static FEW: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    let few = FEW.get_or_init(|| {
        Arc::new(AggregateUDF::from(Few { signature: Signature::any(1, Volatility::Immutable) }))
    });
    Arc::clone(few)
}

/// The function that yields the only value of a list: NULL of none, 21000 of more.
pub fn only_value() -> Arc<ScalarUDF> {
    static ONLY: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    let only = ONLY.get_or_init(|| {
        Arc::new(ScalarUDF::from(OnlyValue { signature: Signature::any(1, Volatility::Immutable) }))
    });
    Arc::clone(only)
}

fn list_of(element: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element.clone(), true)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Few {
    signature: Signature,
}

impl AggregateUDFImpl for Few {
    fn name(&self) -> &str {
        "few"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(list_of(&arguments[0]))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = list_of(arguments.input_fields[0].data_type());
        Ok(vec![Arc::new(Field::new(format_state_name(arguments.name, "few"), list, true))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let element = arguments.expr_fields[0].data_type().clone();
        Ok(Box::new(FewValues { element, values: Vec::new() }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

#[derive(Debug)]
struct FewValues {
    element: DataType,
    values: Vec<ScalarValue>,
}

impl Accumulator for FewValues {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let wanted = 2 - self.values.len();
        for row in 0..values[0].len().min(wanted) {
            self.values.push(ScalarValue::try_from_array(&values[0], row)?);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::List(ScalarValue::new_list_nullable(&self.values, &self.element)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.iter().map(ScalarValue::size).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyValue {
    signature: Signature,
}

impl ScalarUDFImpl for OnlyValue {
    fn name(&self) -> &str {
        "only_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match &arguments[0] {
            DataType::List(element) => Ok(element.data_type().clone()),
            other => plan_err!("only_value takes a list, not {other}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let [lists] = take_function_args(self.name(), arguments.args)?;
        let lists = lists.into_array(rows)?;
        let lists = lists.as_list::<i32>();
        let mut places = Vec::with_capacity(lists.len());
        for row in 0..lists.len() {
            places.push(match lists.is_valid(row).then(|| lists.value_length(row)) {
                None | Some(0) => None,
                Some(1) => Some(lists.value_offsets()[row] as u64),
                Some(_) => {
                    let message = "more than one row returned by a subquery used as an expression";
                    return Err(to_datafusion(Error::new(SqlState::CARDINALITY_VIOLATION, message)));
                }
            });
        }
        Ok(ColumnarValue::Array(take(lists.values(), &UInt64Array::from(places), None)?))
    }
}
