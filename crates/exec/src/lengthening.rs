//! Functions that make strings as long as they are told to: what they are going to make is counted before it is made.
//!
//! All of a batch lies in memory at the same time, outside what a plan asks for its hash tables and buffers, so that a
//! `repeat` of many rows could end the process.

use crate::error::to_datafusion;
use crate::runtime;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use firn_base::sync::Arc;
use firn_base::{Error, SqlState};

/// PostgreSQL's longest value.
const LONGEST: u64 = (1 << 30) - 1;

/// Less is not asked for.
const SMALL: u64 = 1 << 20;

/// A function, but for those whose results may be far longer than what they are given: they ask for memory first.
pub fn bounded(function: &Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    let repeats = match function.name() {
        "repeat" => true,
        "lpad" | "rpad" => false,
        _ => return function.clone(),
    };
    Arc::new(ScalarUDF::from(Lengthening { function: function.clone(), repeats }))
}

/// A function of a string and a number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Lengthening {
    function: Arc<ScalarUDF>,
    /// Whether it makes the string so many times as long, rather than so long.
    repeats: bool,
}

impl Lengthening {
    /// The bytes of all results, at least. 54000 if one is too long. Numbers below zero become zero, which not all functions take
    /// them for.
    fn bytes(&self, arguments: &mut ScalarFunctionArgs) -> Result<u64> {
        let [strings, told, ..] = &mut arguments.args[..] else { return Ok(0) };
        let is_one = |argument: &ColumnarValue| matches!(argument, ColumnarValue::Scalar(_));
        let rows = if is_one(strings) && is_one(told) { 1 } else { arguments.number_rows };
        let integers = |array: ArrayRef| -> Result<Int64Array> {
            Ok(cast(&array, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
        };
        // Not a long string once for each row.
        let string = strings.to_array(if is_one(strings) { 1 } else { rows })?;
        let (lengths, numbers) = (integers(length(string.as_ref())?)?, integers(told.to_array(rows)?)?);
        let mut bytes = 0;
        for (row, number) in numbers.iter().enumerate() {
            let of = if is_one(strings) { 0 } else { row };
            let Some(number) = number.filter(|_| lengths.is_valid(of)) else { continue };
            let [length, number] = [lengths.value(of), number].map(|n| u64::try_from(n).unwrap_or(0));
            let made = if self.repeats { length.saturating_mul(number) } else { number };
            if made > LONGEST {
                let error = Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
                    .with_detail(format!("{} would make a string of {made} bytes.", self.name()));
                return Err(to_datafusion(error));
            }
            bytes += made;
        }
        if numbers.iter().flatten().any(|number| number < 0) {
            let numbers: Int64Array = numbers.unary(|number: i64| number.max(0));
            *told = match is_one(told) {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?),
                false => ColumnarValue::Array(Arc::new(numbers)),
            };
        }
        Ok(bytes)
    }
}

impl ScalarUDFImpl for Lengthening {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.function.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.function.return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let bytes = self.bytes(&mut arguments)?;
        let memory = MemoryConsumer::new(self.name()).register(&runtime::memory());
        if bytes > SMALL {
            memory.try_grow(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        }
        self.function.invoke_with_args(arguments)
    }
}
