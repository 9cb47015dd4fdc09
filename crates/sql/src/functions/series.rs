//! `generate_series` as a list, which is taken apart where rows are wanted: of integers it is one of integers.
//!
//! DataFusion counts in bigints, so integers are made wide before it counts, and what it has counted narrow. All lies between
//! bounds that are integers.

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use firn_base::sync::Arc;

const NAME: &str = "generate_series";

/// The function of this file by its name.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    if name != NAME {
        return None;
    }
    let counted = firn_exec::runtime::planning_state().scalar_functions().get(NAME)?;
    let signature = Signature::user_defined(Volatility::Immutable);
    Some(Arc::new(ScalarUDF::from(Series { counted: Arc::clone(counted), signature })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    /// What counts.
    counted: Arc<ScalarUDF>,
    signature: Signature,
}

/// Whether bounds are no more than integers; NULL may be anything.
fn are_integers(types: &[DataType]) -> bool {
    let is_small = |ty: &DataType| matches!(ty, DataType::Int16 | DataType::Int32);
    types.iter().any(is_small) && types.iter().all(|ty| is_small(ty) || ty.is_null())
}

impl ScalarUDFImpl for Series {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        if are_integers(arguments) {
            return Ok(vec![DataType::Int32; arguments.len()]);
        }
        let field = |ty: &DataType| Arc::new(Field::new("", ty.clone(), true));
        let fields: Vec<FieldRef> = arguments.iter().map(field).collect();
        let coerced = fields_with_udf(&fields, self.counted.as_ref())?;
        Ok(coerced.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match are_integers(arguments) {
            true => Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true)))),
            false => self.counted.inner().return_type(arguments),
        }
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = arguments.args.iter().map(ColumnarValue::data_type).collect();
        if !are_integers(&types) {
            return self.counted.inner().invoke_with_args(arguments);
        }
        for argument in &mut arguments.args {
            *argument = argument.cast_to(&DataType::Int64, None)?;
        }
        let narrow = self.return_type(&types)?;
        self.counted.inner().invoke_with_args(arguments)?.cast_to(&narrow, None)
    }
}
