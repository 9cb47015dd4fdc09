//! Functions whose arguments are of one type, as the planner sees them: what a bare literal among them is, the analysis finds out
//! later, and DataFusion would refuse it beside a span of time, a boolean or a uuid before anybody has looked.

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use firn_base::sync::Arc;

/// A function as it is planned.
pub fn planned(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    if !["coalesce", "greatest", "least", "nullif"].contains(&function.name()) {
        return function;
    }
    let signature = Signature::user_defined(function.signature().volatility);
    Arc::new(ScalarUDF::from(Alike { function, signature }))
}

/// The function that is to be run.
pub fn analysed(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    match function.inner().downcast_ref::<Alike>() {
        Some(alike) => Arc::clone(&alike.function),
        None => function,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Alike {
    function: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for Alike {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let fields: Vec<FieldRef> =
            arguments.iter().map(|ty| Arc::new(Field::new("", ty.clone(), true))).collect();
        match fields_with_udf(&fields, self.function.as_ref()) {
            Ok(fields) => Ok(fields.iter().map(|field| field.data_type().clone()).collect()),
            Err(error) => match told(arguments) {
                Some(ty) => Ok(vec![ty.clone(); arguments.len()]),
                None => Err(error),
            },
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.function.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.function.return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.function.invoke_with_args(arguments)
    }
}

/// The one type of all arguments but bare literals. (Texts that are none are views.)
fn told(arguments: &[DataType]) -> Option<&DataType> {
    let mut types = arguments.iter().filter(|ty| !matches!(ty, DataType::Utf8 | DataType::Null));
    let first = types.next()?;
    types.all(|ty| ty == first).then_some(first)
}
