//! Functions of lists, and those over values of any type that plans of sub-queries are made with.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Builder, ListArray, ListBuilder, new_null_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{concat, nullif};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Error, SqlState};
use firn_exec::error::to_datafusion;

/// A function of this file by its name.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    match name {
        ARRAY => Some(array()),
        POSITIONS => Some(positions()),
        _ => Measure::named(name).map(Measure::udf),
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

/// What is told of the size of a list. DataFusion's functions of these names yield bigints, and take empty lists for lists of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Measure {
    /// Of a dimension, if there is one.
    Length,
    /// Likewise; the least is 1.
    Upper,
    Lower,
    /// Elements of all dimensions.
    Cardinality,
    Dimensions,
}

impl Measure {
    const ALL: [Measure; 5] =
        [Measure::Length, Measure::Upper, Measure::Lower, Measure::Cardinality, Measure::Dimensions];

    fn named(name: &str) -> Option<Measure> {
        Measure::ALL.into_iter().find(|measure| measure.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Measure::Length => "array_length",
            Measure::Upper => "array_upper",
            Measure::Lower => "array_lower",
            Measure::Cardinality => "cardinality",
            Measure::Dimensions => "array_ndims",
        }
    }

    fn is_of_dimension(self) -> bool {
        matches!(self, Measure::Length | Measure::Upper | Measure::Lower)
    }

    fn udf(self) -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Measured { measure: self, signature }))
    }

    /// What it is of one list.
    fn of(self, lists: &ListArray, row: usize, dimension: i32) -> Option<i32> {
        if lists.is_null(row) {
            return None;
        }
        match self {
            Measure::Length | Measure::Upper => length(lists, row, dimension),
            Measure::Lower => length(lists, row, dimension).map(|_| 1),
            Measure::Cardinality => Some(leaves(lists, row)),
            Measure::Dimensions => dimensions(lists, row),
        }
    }
}

/// How many elements a list has in one of its dimensions: they are all of one length.
fn length(lists: &ListArray, row: usize, dimension: i32) -> Option<i32> {
    if leaves(lists, row) == 0 {
        return None;
    }
    match (dimension, lists.value_length(row)) {
        (1, length) => Some(length),
        (2.., _) => length(lists.value(row).as_list_opt::<i32>()?, 0, dimension - 1),
        _ => None,
    }
}

fn leaves(lists: &ListArray, row: usize) -> i32 {
    let elements = lists.value(row);
    match elements.as_list_opt::<i32>() {
        Some(inner) => (0..inner.len()).map(|row| leaves(inner, row)).sum(),
        None => lists.value_length(row),
    }
}

fn dimensions(lists: &ListArray, row: usize) -> Option<i32> {
    let elements = lists.value(row);
    match elements.as_list_opt::<i32>() {
        _ if elements.is_empty() => None,
        Some(inner) => dimensions(inner, 0).map(|inner| inner + 1),
        None => Some(1),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Measured {
    measure: Measure,
    signature: Signature,
}

impl ScalarUDFImpl for Measured {
    fn name(&self) -> &str {
        self.measure.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// A bare literal may be a dimension.
    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        use DataType::{Int8, Int16, Int32, Int64, List, Null, Utf8};
        match (self.measure.is_of_dimension(), arguments) {
            (false, [list @ (List(_) | Null)]) => Ok(vec![list.clone()]),
            (true, [list @ (List(_) | Null), Int8 | Int16 | Int32 | Int64 | Utf8 | Null]) => {
                Ok(vec![list.clone(), Int32])
            }
            _ => {
                let message = format!("function {} does not take arguments of these types", self.name());
                Err(to_datafusion(Error::new(SqlState::UNDEFINED_FUNCTION, message)))
            }
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays = arguments.args.into_iter().map(|argument| argument.into_array(rows));
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let Some(lists) = arrays[0].as_list_opt::<i32>() else {
            return Ok(ColumnarValue::Array(new_null_array(&DataType::Int32, rows)));
        };
        let dimensions = arrays.get(1).map(|dimensions| dimensions.as_primitive::<Int32Type>());
        let measured: Int32Array = (0..lists.len())
            .map(|row| match dimensions {
                Some(dimensions) if dimensions.is_null(row) => None,
                Some(dimensions) => self.measure.of(lists, row, dimensions.value(row)),
                None => self.measure.of(lists, row, 1),
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(measured)))
    }
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
