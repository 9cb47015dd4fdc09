//! Functions that are computed value by value.
//!
//! The plainest way to add a scalar function to SQL: a name, what it returns for which arguments,
//! and a Rust function from values to a value. NULL in any argument makes NULL, unless asked for.

use crate::runtime::SessionOptions;
use crate::session::SessionServices;
use crate::types;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use firn_base::sync::Arc;
use firn_base::{Error, SqlType, TimeZoneSetting, Value};
use firn_storage::arrow::values_to_array;
use std::hash::{Hash, Hasher};

/// What a function may ask for besides its arguments.
pub struct Surroundings<'a> {
    /// The session's time zone.
    pub zone: TimeZoneSetting,
    /// When the transaction began, in microseconds since 1970 UTC.
    pub now: i64,
    /// The session.
    pub services: Option<&'a Arc<dyn SessionServices>>,
}

/// Computes one value.
pub type Compute = fn(&[Value], &Surroundings<'_>) -> firn_base::Result<Value>;

/// The types that the arguments are coerced to, and of the result; `None` if the function does not
/// take such arguments. Bare literals and NULLs come as `None`.
pub type Resolve = fn(&[Option<SqlType>]) -> Option<(Vec<SqlType>, SqlType)>;

/// A scalar function computed value by value.
pub struct ValueFunction {
    /// Its name.
    pub name: &'static str,
    /// Its types.
    pub resolve: Resolve,
    /// Its value.
    pub compute: Compute,
    /// Immutable: of its arguments only. Stable: of the session as well. Volatile: each call anew.
    pub volatility: Volatility,
    /// Whether it is called on NULLs.
    pub takes_null: bool,
}

impl ValueFunction {
    /// As a function that plans can call.
    pub fn udf(&'static self) -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(self.volatility);
        Arc::new(ScalarUDF::from(Callable { function: self, signature }))
    }
}

/// The function that a plan calls, if it is one of these.
pub(crate) fn value_function(udf: &ScalarUDF) -> Option<&'static ValueFunction> {
    udf.inner().downcast_ref::<Callable>().map(|callable| callable.function)
}

#[derive(Debug)]
struct Callable {
    function: &'static ValueFunction,
    signature: Signature,
}

impl std::fmt::Debug for ValueFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Callable {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.function, other.function)
    }
}

impl Eq for Callable {}

impl Hash for Callable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl Callable {
    fn resolve(&self, arguments: &[DataType]) -> Result<(Vec<SqlType>, SqlType)> {
        let known: Vec<Option<SqlType>> = arguments.iter().map(known).collect();
        (self.function.resolve)(&known).ok_or_else(|| {
            let names: Vec<String> =
                known.iter().map(|ty| ty.map_or_else(|| "unknown".to_owned(), |ty| ty.to_string())).collect();
            let message = format!("function {}({}) does not exist", self.function.name, names.join(", "));
            let error = Error::new(firn_base::SqlState::UNDEFINED_FUNCTION, message).with_hint(
                "No function matches the given name and argument types. You might need to add explicit type casts.",
            );
            crate::error::to_datafusion(error)
        })
    }
}

/// The SQL type of an argument. Bare literals are `Utf8`, everything that is text is `Utf8View`.
fn known(ty: &DataType) -> Option<SqlType> {
    match ty {
        DataType::Null | DataType::Utf8 => None,
        other => types::sql_type(&datafusion::arrow::datatypes::Field::new("", other.clone(), true)),
    }
}

impl ScalarUDFImpl for Callable {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let (arguments, _) = self.resolve(arguments)?;
        Ok(arguments.into_iter().map(types::data_type).collect())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(types::data_type(self.resolve(arguments)?.1))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let arguments: Vec<DataType> =
            arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(types::field(self.name(), self.resolve(&arguments)?.1))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = crate::lower::cast::zone(&arguments)?;
        let options = arguments.config_options.extensions.get::<SessionOptions>();
        let now = options.map_or_else(firn_base::clock::wall_clock_micros, |options| options.now);
        let surroundings = Surroundings { zone, now, services: options.map(|options| &options.services) };
        let result = types::sql_type(&arguments.return_field).expect("it was made from an SQL type");
        let volatile = self.function.volatility == Volatility::Volatile;
        let all_scalar = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        // A volatile function without columns still yields a value of its own for every row.
        let rows = if all_scalar && !volatile { 1 } else { arguments.number_rows };
        let columns: Vec<ArrayRef> =
            arguments.args.into_iter().map(|argument| argument.into_array(rows)).collect::<Result<_>>()?;
        let mut inputs = Vec::with_capacity(columns.len());
        let mut compute = |row| -> firn_base::Result<Value> {
            inputs.clear();
            for column in &columns {
                inputs.push(types::value_at(column.as_ref(), row)?);
            }
            if !self.function.takes_null && inputs.iter().any(Value::is_null) {
                return Ok(Value::Null);
            }
            (self.function.compute)(&inputs, &surroundings)
        };
        let values: firn_base::Result<Vec<Value>> = (0..rows).map(&mut compute).collect();
        let array = values_to_array(&values.map_err(crate::error::to_datafusion)?, result);
        if all_scalar && !volatile {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(array.as_ref(), 0)?));
        }
        Ok(ColumnarValue::Array(array))
    }
}
