//! Functions that plans of sub-queries are made with, over values of any type, and lists.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Builder, ListArray, ListBuilder,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{concat, nullif};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use firn_base::sync::{Arc, OnceLock};

/// A function of this file by its name.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    match name {
        ARRAY => Some(array()),
        POSITIONS => Some(positions()),
        _ => None,
    }
}

const ARRAY: &str = "array";

/// Users have other functions of that name.
const POSITIONS: &str = "list positions";

/// The function that yields `1, 2, …`: as many as the longest of some lists has elements.
pub fn positions() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    let signature = || Signature::variadic_any(Volatility::Immutable);
    let function = FUNCTION.get_or_init(|| Arc::new(ScalarUDF::from(Positions { signature: signature() })));
    Arc::clone(function)
}

/// The function that yields its second argument if its first is true, else NULL, and keeps its type and all that is known of it.
pub fn if_present() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    let signature = || Signature::any(2, Volatility::Immutable);
    let function = FUNCTION.get_or_init(|| Arc::new(ScalarUDF::from(IfPresent { signature: signature() })));
    Arc::clone(function)
}

/// The function that makes an empty list of NULL: `ARRAY(SELECT …)` of no rows.
fn array() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    let signature = || Signature::any(1, Volatility::Immutable);
    let function = FUNCTION.get_or_init(|| Arc::new(ScalarUDF::from(FromRows { signature: signature() })));
    Arc::clone(function)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Positions {
    signature: Signature,
}

impl ScalarUDFImpl for Positions {
    fn name(&self) -> &str {
        POSITIONS
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut lengths = vec![0; arguments.number_rows];
        for argument in arguments.args {
            let lists = argument.into_array(arguments.number_rows)?;
            let Some(lists) = lists.as_list_opt::<i32>() else {
                // NULL of no type has no elements.
                if lists.data_type().is_null() {
                    continue;
                }
                return exec_err!("positions of {}, which is no list", lists.data_type());
            };
            for (row, length) in lengths.iter_mut().enumerate() {
                if lists.is_valid(row) {
                    *length = lists.value_length(row).max(*length);
                }
            }
        }
        let mut positions = ListBuilder::new(Int64Builder::new());
        for length in lengths {
            positions.append_value((1..=i64::from(length)).map(Some));
        }
        Ok(ColumnarValue::Array(Arc::new(positions.finish())))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IfPresent {
    signature: Signature,
}

impl ScalarUDFImpl for IfPresent {
    fn name(&self) -> &str {
        "if_present"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[1].clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(arguments.arg_fields[1].as_ref().clone().with_nullable(true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let [present, value] = take_function_args(self.name(), arguments.args)?;
        let (present, value) = (present.into_array(rows)?, value.into_array(rows)?);
        if value.data_type().is_null() {
            return Ok(ColumnarValue::Array(value));
        }
        let present = present.as_boolean();
        let absent: BooleanArray = present.iter().map(|present| Some(present != Some(true))).collect();
        Ok(ColumnarValue::Array(nullif(value.as_ref(), &absent)?))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FromRows {
    signature: Signature,
}

impl ScalarUDFImpl for FromRows {
    fn name(&self) -> &str {
        ARRAY
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match &arguments[0] {
            list @ DataType::List(_) => Ok(list.clone()),
            other => plan_err!("an array of {other}, which is no list"),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        self.return_type(&[arguments.arg_fields[0].data_type().clone()])?;
        Ok(Arc::clone(&arguments.arg_fields[0]))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let [lists] = take_function_args(self.name(), arguments.args)?;
        let lists = lists.into_array(rows)?;
        let lists = lists.as_list::<i32>();
        if lists.null_count() == 0 {
            return Ok(ColumnarValue::Array(Arc::new(lists.clone())));
        }
        Ok(ColumnarValue::Array(filled(lists)?))
    }
}

/// Lists of which none is NULL: those that are have no elements.
fn filled(lists: &ListArray) -> Result<ArrayRef> {
    let DataType::List(field) = lists.data_type() else { unreachable!("it is a list") };
    let is_plain = |row: usize| lists.is_valid(row) || lists.value_length(row) == 0;
    let (offsets, values) = if (0..lists.len()).all(is_plain) {
        (lists.offsets().clone(), Arc::clone(lists.values()))
    } else {
        // What lies behind a NULL is skipped.
        let lengths = lists.iter().map(|list| list.map_or(0, |list| list.len()));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let parts: Vec<ArrayRef> = lists.iter().flatten().collect();
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
        let values = match parts.is_empty() {
            true => lists.values().slice(0, 0),
            false => concat(&parts)?,
        };
        (offsets, values)
    };
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, None)?))
}
