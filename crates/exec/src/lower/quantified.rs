//! `x = ANY (array)`, `x < ALL (array)`: comparisons with every element of an array.
//!
//! The array of a parameter is known when a plan is lowered, and most comparisons are `= ANY` or
//! `<> ALL`, which DataFusion plans best as `IN` and `NOT IN`. All others are computed value by value.

use super::spans::is_span;
use super::zeros;
use crate::expression::like;
use crate::types;
use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, utils::take_function_args};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use firn_base::sync::Arc;
use firn_base::{SqlType, Value};
use firn_storage::arrow::values_to_array;
use std::cmp::Ordering;

/// How the value is compared with each element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `LIKE` and its relatives
    Like {
        /// `NOT LIKE`
        negated: bool,
        /// `ILIKE`
        ignore_case: bool,
    },
}

impl Comparison {
    /// The operator.
    pub fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "<>",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
            Comparison::Like { negated: false, ignore_case: false } => "~~",
            Comparison::Like { negated: true, ignore_case: false } => "!~~",
            Comparison::Like { negated: false, ignore_case: true } => "~~*",
            Comparison::Like { negated: true, ignore_case: true } => "!~~*",
        }
    }

    /// Whether it holds between two values that stand in that order. Panics on patterns, which know none.
    pub(crate) fn accepts(self, ordering: Ordering) -> bool {
        match self {
            Comparison::Equal => ordering.is_eq(),
            Comparison::NotEqual => ordering.is_ne(),
            Comparison::Less => ordering.is_lt(),
            Comparison::LessOrEqual => ordering.is_le(),
            Comparison::Greater => ordering.is_gt(),
            Comparison::GreaterOrEqual => ordering.is_ge(),
            Comparison::Like { .. } => panic!("a pattern is no place in an order"),
        }
    }

    /// Whether it holds between two values; `None` if either is NULL.
    fn holds(self, left: &Value, right: &Value) -> firn_base::Result<Option<bool>> {
        Ok(match (self, left, right) {
            (Comparison::Like { negated, ignore_case }, Value::Text(text), Value::Text(pattern)) => {
                Some(like::matches(text, pattern, '\\', ignore_case)? != negated)
            }
            (Comparison::Like { .. }, ..) => None,
            (comparison, left, right) => left.compare(right).map(|ordering| comparison.accepts(ordering)),
        })
    }
}

/// A comparison with ANY or ALL elements of an array.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quantifier {
    /// The comparison.
    pub comparison: Comparison,
    /// ANY, not ALL.
    pub any: bool,
}

impl Quantifier {
    const ALL: [Quantifier; 16] = {
        use Comparison::*;
        const fn quantifier(comparison: Comparison, any: bool) -> Quantifier {
            Quantifier { comparison, any }
        }
        [
            quantifier(Equal, true),
            quantifier(NotEqual, true),
            quantifier(Less, true),
            quantifier(LessOrEqual, true),
            quantifier(Greater, true),
            quantifier(GreaterOrEqual, true),
            quantifier(Equal, false),
            quantifier(NotEqual, false),
            quantifier(Less, false),
            quantifier(LessOrEqual, false),
            quantifier(Greater, false),
            quantifier(GreaterOrEqual, false),
            quantifier(Like { negated: false, ignore_case: false }, true),
            quantifier(Like { negated: true, ignore_case: false }, true),
            quantifier(Like { negated: false, ignore_case: true }, true),
            quantifier(Like { negated: true, ignore_case: true }, true),
        ]
    };

    /// The one that goes by that name in syntax trees.
    pub fn named(name: &str) -> Option<Quantifier> {
        Quantifier::ALL.into_iter().find(|quantifier| quantifier.name() == name)
    }

    /// What it is called in syntax trees, such as `= any`: no function that a user writes is.
    pub fn name(self) -> String {
        format!("{} {}", self.comparison.symbol(), if self.any { "any" } else { "all" })
    }

    /// As a function of a value and an array.
    pub fn udf(self) -> Arc<ScalarUDF> {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Quantified { quantifier: self, name: self.name(), signature }))
    }

    /// Whether the comparison holds for any, or all, of the elements; `None` is unknown.
    pub(crate) fn truth<'v>(
        self,
        value: &Value,
        elements: impl IntoIterator<Item = &'v Value>,
    ) -> firn_base::Result<Option<bool>> {
        let mut unknown = false;
        for element in elements {
            match self.comparison.holds(value, element)? {
                Some(holds) if holds == self.any => return Ok(Some(self.any)),
                Some(_) => {}
                None => unknown = true,
            }
        }
        Ok((!unknown).then_some(!self.any))
    }
}

/// The quantifier, if a function is one of these.
pub fn quantifier_of(function: &ScalarUDF) -> Option<Quantifier> {
    function.inner().downcast_ref::<Quantified>().map(|quantified| quantified.quantifier)
}

/// `= ANY` and `<> ALL` over an array that is known, as IN and NOT IN.
pub(super) fn lower(function: ScalarFunction) -> Result<Expr> {
    let Some(quantifier) = quantifier_of(&function.func) else { return Ok(Expr::ScalarFunction(function)) };
    let negated = match quantifier {
        Quantifier { comparison: Comparison::Equal, any: true } => false,
        Quantifier { comparison: Comparison::NotEqual, any: false } => true,
        _ => return Ok(Expr::ScalarFunction(function)),
    };
    let [value, Expr::Literal(ScalarValue::List(list), _)] = function.args.as_slice() else {
        return Ok(Expr::ScalarFunction(function));
    };
    let truth = |truth| Ok(Expr::Literal(ScalarValue::Boolean(truth), None));
    if list.is_null(0) {
        return truth(None);
    }
    let elements = list.value(0);
    if elements.is_empty() {
        return truth(Some(negated));
    }
    if is_span(elements.data_type()) {
        // IN would compare part by part.
        return Ok(Expr::ScalarFunction(function));
    }
    let literal = |row| Ok(Expr::Literal(ScalarValue::try_from_array(elements.as_ref(), row)?, None));
    let list = (0..elements.len()).map(literal).collect::<Result<_>>()?;
    Ok(Expr::InList(zeros::in_list(InList { expr: Box::new(value.clone()), list, negated })))
}

fn elements(arrays: &dyn Array, row: usize) -> Result<Option<Vec<Value>>> {
    types::elements_at(arrays, row).map_err(crate::error::to_datafusion)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantified {
    quantifier: Quantifier,
    name: String,
    signature: Signature,
}

impl ScalarUDFImpl for Quantified {
    fn name(&self) -> &str {
        &self.name
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let Quantifier { comparison, any } = self.quantifier;
        let (value, array) = (arguments[0].schema_name(), arguments[1].schema_name());
        Ok(format!("{value} {} {} ({array})", comparison.symbol(), if any { "ANY" } else { "ALL" }))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn return_field_from_args(&self, _arguments: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), DataType::Boolean, true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let [value, array] = take_function_args(self.name(), arguments.args)?;
        let scalar = matches!((&value, &array), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { rows };
        // An array that is the same on every row is taken apart once.
        let constant = match &array {
            ColumnarValue::Scalar(array) => Some(elements(array.to_array()?.as_ref(), 0)?),
            ColumnarValue::Array(_) => None,
        };
        let value = value.into_array(rows)?;
        let arrays = match &constant {
            Some(_) => None,
            None => Some(array.into_array(rows)?),
        };
        let truth = |row| -> Result<Value> {
            let own = match &arrays {
                Some(arrays) => elements(arrays.as_ref(), row)?,
                None => None,
            };
            let constant = constant.as_ref().and_then(Option::as_ref);
            let Some(elements) = own.as_ref().or(constant) else { return Ok(Value::Null) };
            let value = types::value_at(value.as_ref(), row).map_err(crate::error::to_datafusion)?;
            let truth = self.quantifier.truth(&value, elements).map_err(crate::error::to_datafusion)?;
            Ok(truth.map_or(Value::Null, Value::Boolean))
        };
        let values = (0..rows).map(truth).collect::<Result<Vec<Value>>>()?;
        let array = values_to_array(&values, SqlType::Boolean);
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(array.as_ref(), 0)?));
        }
        Ok(ColumnarValue::Array(array))
    }
}
