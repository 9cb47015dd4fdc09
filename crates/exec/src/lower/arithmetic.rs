//! Arithmetic that refuses to overflow.
//!
//! Decimals are checked by Arrow itself; integers wrap there and floats run to infinity, or to a NaN with a sign.

use super::operate::{Operation, operation_of};
use crate::floats;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Datum};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue, utils::take_function_args};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_expr_common::datum::apply;
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Error, SqlState};

/// An operator on two numbers of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operator: Operator,
    signature: Signature,
}

/// The checked function of an operator, if it has one.
fn checked(operator: Operator) -> Option<Arc<ScalarUDF>> {
    static FUNCTIONS: OnceLock<Vec<(Operator, Arc<ScalarUDF>)>> = OnceLock::new();
    let functions = FUNCTIONS.get_or_init(|| {
        let operators =
            [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide, Operator::Modulo];
        let function = |operator| {
            let signature = Signature::any(2, Volatility::Immutable);
            (operator, Arc::new(ScalarUDF::from(Checked { operator, signature })))
        };
        operators.into_iter().map(function).collect()
    });
    functions.iter().find(|(candidate, _)| *candidate == operator).map(|(_, function)| Arc::clone(function))
}

/// Whether a function divides by its last argument.
pub(crate) fn divides(function: &ScalarUDF) -> bool {
    let checked = function.inner().downcast_ref::<Checked>().map(|checked| checked.operator);
    matches!(checked, Some(Operator::Divide | Operator::Modulo))
        || operation_of(function).is_some_and(|(operation, _)| operation == Operation::Divide)
}

/// Replaces an operator on two integers or two floats by its checked function.
pub fn lower(binary: BinaryExpr, left: &DataType, right: &DataType) -> Transformed<Expr> {
    let applies = left == right && (left.is_signed_integer() || left.is_floating());
    match checked(binary.op) {
        Some(function) if applies => Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
            function,
            vec![*binary.left, *binary.right],
        ))),
        _ => Transformed::no(Expr::BinaryExpr(binary)),
    }
}

/// Replaces the negation of an integer by a checked subtraction from zero, that of a float by a product: `-0` is not `0 - 0`, and
/// NaN has no sign.
pub fn lower_negation(operand: Box<Expr>, ty: &DataType) -> Transformed<Expr> {
    let (operator, arguments) = if ty.is_signed_integer() {
        let zero = ScalarValue::new_zero(ty).expect("integers have a zero");
        (Operator::Minus, vec![Expr::Literal(zero, None), *operand])
    } else if ty.is_floating() {
        let minus_one = ScalarValue::new_negative_one(ty).expect("floats have a one");
        (Operator::Multiply, vec![*operand, Expr::Literal(minus_one, None)])
    } else {
        return Transformed::no(Expr::Negative(operand));
    };
    let function = checked(operator).expect("both are checked");
    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments)))
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operator {
            Operator::Plus => "+",
            Operator::Minus => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Modulo => "%",
            other => unreachable!("{other} has no checked function"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = take_function_args(self.name(), arguments.args)?;
        apply(&left, &right, |left, right| self.compute(left, right))
    }
}

impl Checked {
    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> std::result::Result<ArrayRef, ArrowError> {
        let ty = left.get().0.data_type().clone();
        if self.operator == Operator::Divide && ty.is_floating() {
            refuse_zero(right.get().0)?;
        }
        let result = match self.operator {
            Operator::Plus => numeric::add(left, right),
            Operator::Minus => numeric::sub(left, right),
            Operator::Multiply => numeric::mul(left, right),
            Operator::Divide => numeric::div(left, right),
            Operator::Modulo => numeric::rem(left, right),
            other => unreachable!("{other} has no checked function"),
        };
        match result {
            Err(ArrowError::ArithmeticOverflow(_)) => Err(external(out_of_range(&ty))),
            Ok(result) if ty.is_floating() => {
                refuse_new_infinity(result.as_ref(), left.get().0, right.get().0)?;
                Ok(floats::with_one_nan(&result))
            }
            other => other,
        }
    }
}

fn external(error: Error) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}

/// PostgreSQL's words for a result that its type cannot hold.
pub(crate) fn out_of_range(ty: &DataType) -> Error {
    let what = match ty {
        DataType::Int16 => "smallint out of range",
        DataType::Int32 => "integer out of range",
        DataType::Int64 => "bigint out of range",
        DataType::Float32 | DataType::Float64 => "value out of range: overflow",
        _ => "value out of range",
    };
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, what)
}

fn refuse_zero(divisors: &dyn Array) -> std::result::Result<(), ArrowError> {
    let zero = match divisors.data_type() {
        DataType::Float32 => divisors.as_primitive::<Float32Type>().iter().any(|value| value == Some(0.0)),
        DataType::Float64 => divisors.as_primitive::<Float64Type>().iter().any(|value| value == Some(0.0)),
        _ => false,
    };
    if zero { Err(ArrowError::DivideByZero) } else { Ok(()) }
}

/// An infinity may come out only where one went in.
fn refuse_new_infinity(
    result: &dyn Array,
    left: &dyn Array,
    right: &dyn Array,
) -> std::result::Result<(), ArrowError> {
    let infinite = |array: &dyn Array| match array.data_type() {
        DataType::Float32 => {
            array.as_primitive::<Float32Type>().iter().flatten().any(|value| value.is_infinite())
        }
        DataType::Float64 => {
            array.as_primitive::<Float64Type>().iter().flatten().any(|value| value.is_infinite())
        }
        _ => false,
    };
    if infinite(result) && !infinite(left) && !infinite(right) {
        return Err(external(out_of_range(result.data_type())));
    }
    Ok(())
}
