//! Casts with PostgreSQL's syntax, rounding, lengths and errors.
//!
//! A cast that Arrow's kernel does just as well stays DataFusion's; the others become a function
//! that converts value by value with the same code as the short path and COPY
//! ([`firn_base::coerce`]).

use crate::types;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Float64Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue, utils::take_function_args};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use firn_base::sync::Arc;
use firn_base::{ParameterType, SqlType, TimeZoneSetting, Value, coerce, numeric};
use firn_storage::arrow::values_to_array;

/// The cast to an SQL type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PgCast {
    to: SqlType,
    /// Whether blanks at the end go: char(n) loses them on its way to any other string.
    trims: bool,
    /// Whether it casts the elements of an array.
    of_elements: bool,
    signature: Signature,
}

/// Whether a function casts to what not all values can be cast to.
pub(crate) fn may_fail(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<PgCast>().is_some_and(|cast| !cast.to.is_string())
}

/// Replaces a cast that DataFusion would compute differently.
pub fn lower(cast: Cast, from: &Field) -> Transformed<Expr> {
    let types = types::sql_type(from).zip(types::sql_type(&cast.field));
    match types {
        Some((from, to)) if !arrow_agrees(from, to) => {
            // The session's zone has a say in moments.
            let of_strings = from.is_string() && to.is_string();
            let volatility = if of_strings { Volatility::Immutable } else { Volatility::Stable };
            let signature = Signature::any(1, volatility);
            let trims = matches!(from, SqlType::Char(_)) && !matches!(to, SqlType::Char(_));
            let function = Arc::new(ScalarUDF::from(PgCast { to, trims, of_elements: false, signature }));
            Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![*cast.expr])))
        }
        _ => match elements(&cast, from) {
            Some(to) => {
                let signature = Signature::any(1, Volatility::Stable);
                let function = ScalarUDF::from(PgCast { to, trims: false, of_elements: true, signature });
                let function = ScalarFunction::new_udf(Arc::new(function), vec![*cast.expr]);
                Transformed::yes(Expr::ScalarFunction(function))
            }
            None => Transformed::no(Expr::Cast(cast)),
        },
    }
}

/// What the elements of an array become, if the session's zone has a say in it.
fn elements(cast: &Cast, from: &Field) -> Option<SqlType> {
    let [from, to] = [from.data_type(), cast.field.data_type()].map(types::element_type);
    let (from, to) = from.zip(to)?;
    (from != to && [from, to].contains(&SqlType::TimestampTz)).then_some(to)
}

/// The constant that a cast of a constant to an array makes: an array cast element by element, a text
/// read. `None` for anything else.
pub(super) fn array(cast: &Cast) -> Result<Option<Expr>> {
    let (Some(to), Expr::Literal(constant, _)) = (types::element_type(cast.field.data_type()), &*cast.expr)
    else {
        return Ok(None);
    };
    // What the session's zone has a say in is no constant.
    if to == SqlType::TimestampTz
        && types::element_type(&constant.data_type()) != Some(to)
        && !constant.is_null()
    {
        return Ok(None);
    }
    let zone = TimeZoneSetting::UTC;
    let value = match constant {
        constant if constant.is_null() => Ok(Value::Null),
        ScalarValue::List(list) if types::element_type(list.data_type()).is_some() => {
            let elements = types::elements_at(list.as_ref(), 0).map_err(crate::error::to_datafusion)?;
            let cast = |value| coerce::cast(value, to, &zone);
            elements.into_iter().flatten().map(cast).collect::<firn_base::Result<_>>().map(Value::Array)
        }
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            firn_base::array::parse(text, to, &zone)
        }
        _ => return Ok(None),
    };
    let value = value.map_err(crate::error::to_datafusion)?;
    Ok(Some(Expr::Literal(types::parameter_scalar(&value, ParameterType::Array(to)), None)))
}

/// What is cast, and to which type, before or after casts have been lowered.
pub(crate) fn of(expression: &Expr) -> Option<(&Expr, SqlType)> {
    match expression {
        Expr::Cast(cast) => Some((&cast.expr, types::sql_type(&cast.field)?)),
        Expr::ScalarFunction(function) => {
            let cast = function.func.inner().downcast_ref::<PgCast>().filter(|cast| !cast.of_elements)?;
            Some((function.args.first()?, cast.to))
        }
        _ => None,
    }
}

/// Whether every value of the one type becomes one of the other, those that follow it none that comes before.
pub(crate) fn is_rising(from: SqlType, to: SqlType) -> bool {
    let is_rounded = matches!((from, to), (SqlType::Numeric { .. }, SqlType::Double));
    is_rounded || from != to && !from.is_string() && arrow_agrees(from, to)
}

/// Whether Arrow's kernel converts every value just as PostgreSQL does.
fn arrow_agrees(from: SqlType, to: SqlType) -> bool {
    use SqlType::*;
    let rank = |ty| match ty {
        SmallInt => Some(0),
        Integer => Some(1),
        BigInt => Some(2),
        _ => None,
    };
    if types::data_type(from) == types::data_type(to) {
        // Same representation: only a length can make a difference, and blanks behind char(n).
        return match (from, to) {
            (_, Varchar(Some(_)) | Char(_)) => from == to,
            (Char(_), _) => false,
            _ => true,
        };
    }
    match (from, to) {
        (from, to) if rank(from).is_some() && rank(to).is_some() => rank(from) < rank(to),
        // Not a numeric: Arrow divides by a power of ten that is not quite one.
        (SmallInt | Integer | BigInt | Real, Double) | (SmallInt | Integer, Real) => true,
        // Widening a numeric; everything else may have to round or to fail.
        (Numeric { precision: p, scale: s }, Numeric { precision, scale }) => {
            scale >= s && precision - scale >= p - s
        }
        (SmallInt, Numeric { precision, scale }) => precision - scale >= 5,
        (Integer, Numeric { precision, scale }) => precision - scale >= 10,
        (BigInt, Numeric { precision, scale }) => precision - scale >= 19,
        (Date, Timestamp) => true,
        _ => false,
    }
}

impl ScalarUDFImpl for PgCast {
    fn name(&self) -> &str {
        "cast"
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let brackets = if self.of_elements { "[]" } else { "" };
        Ok(format!("CAST({} AS {}{brackets})", arguments[0].schema_name(), self.to))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.result())
    }

    fn return_field_from_args(&self, _arguments: ReturnFieldArgs) -> Result<FieldRef> {
        match self.of_elements {
            true => Ok(Arc::new(Field::new(self.name(), self.result(), true))),
            false => Ok(types::field(self.name(), self.to)),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = zone(&arguments)?;
        let [argument] = take_function_args(self.name(), arguments.args)?;
        match argument {
            ColumnarValue::Scalar(scalar) => {
                let array = self.convert(scalar.to_array()?.as_ref(), &zone)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(array.as_ref(), 0)?))
            }
            ColumnarValue::Array(array) => Ok(ColumnarValue::Array(self.convert(array.as_ref(), &zone)?)),
        }
    }
}

/// The session's time zone, for casts between texts and moments.
pub(crate) fn zone(arguments: &ScalarFunctionArgs) -> Result<TimeZoneSetting> {
    let name = arguments.config_options.execution.time_zone.as_deref().unwrap_or(types::UTC);
    TimeZoneSetting::parse(name).map_err(crate::error::to_datafusion)
}

impl PgCast {
    fn result(&self) -> DataType {
        if self.of_elements { types::array_type(self.to) } else { types::data_type(self.to) }
    }

    /// Integers as narrower ones, if all of them fit: Arrow finds that out many times faster. Who does not
    /// fit is told of value by value.
    fn narrowed(&self, array: &dyn Array) -> Option<ArrayRef> {
        let is_integer = |ty: &DataType| matches!(ty, DataType::Int16 | DataType::Int32 | DataType::Int64);
        let to = types::data_type(self.to);
        if !is_integer(array.data_type()) || !is_integer(&to) {
            return None;
        }
        let checked = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(array, &to, &checked).ok()
    }

    /// Numerics as doubles, without a detour.
    fn rounded(&self, array: &dyn Array) -> Option<ArrayRef> {
        let decimals = array.as_primitive_opt::<Decimal128Type>().filter(|_| self.to == SqlType::Double)?;
        let scale = u8::try_from(decimals.scale()).ok()?;
        let double = |unscaled| numeric::to_f64(numeric::without_trailing_zeros(unscaled, scale));
        Some(Arc::new(decimals.unary::<_, Float64Type>(double)))
    }

    fn convert(&self, array: &dyn Array, zone: &TimeZoneSetting) -> Result<ArrayRef> {
        let (true, DataType::List(field)) = (self.of_elements, self.result()) else {
            return self.convert_values(array, zone);
        };
        let lists = array.as_list::<i32>();
        // Others may have been cut off.
        let (first, last) = (lists.offsets()[0] as usize, lists.offsets()[lists.len()] as usize);
        let values = self.convert_values(lists.values().slice(first, last - first).as_ref(), zone)?;
        let offsets = OffsetBuffer::from_lengths(lists.offsets().lengths());
        Ok(Arc::new(ListArray::try_new(field, offsets, values, lists.nulls().cloned())?))
    }

    fn convert_values(&self, array: &dyn Array, zone: &TimeZoneSetting) -> Result<ArrayRef> {
        if let Some(doubles) = self.rounded(array) {
            return Ok(doubles);
        }
        if let Some(integers) = self.narrowed(array) {
            return Ok(integers);
        }
        let convert = |row| {
            let mut value = types::value_at(array, row)?;
            if let (true, Value::Text(text)) = (self.trims, &mut value) {
                text.truncate(text.trim_end_matches(' ').len());
            }
            coerce::cast(value, self.to, zone)
        };
        let values: firn_base::Result<Vec<Value>> = (0..array.len()).map(convert).collect();
        Ok(values_to_array(&values.map_err(crate::error::to_datafusion)?, self.to))
    }
}
