//! LIKE of patterns that may end with the backslash, which then takes the meaning of nothing: PostgreSQL refuses such a pattern once
//! a text has matched all before it, where DataFusion takes the backslash for itself.
//!
//! Whoever's pattern turns out to end well is DataFusion's again as soon as constants are folded.

use crate::error::to_datafusion;
use crate::expression::like;
use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, utils::take_function_args};
use datafusion::logical_expr::expr::{Like, ScalarFunction};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use firn_base::sync::Arc;

/// What the backslash is in patterns.
const ESCAPE: char = '\\';

/// Replaces LIKE by the function, unless its pattern is known to end well.
pub(super) fn lower(like: Like) -> Expr {
    let is_other = like.escape_char.is_some_and(|escape| escape != ESCAPE);
    if is_other || ends_well(&like.pattern) {
        return Expr::Like(like);
    }
    let Like { negated, expr, pattern, case_insensitive: ignore_case, .. } = like;
    let signature = Signature::any(2, Volatility::Immutable);
    let function = Arc::new(ScalarUDF::from(Matches { negated, ignore_case, signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![*expr, *pattern]))
}

/// The LIKE that an operator is, such as `~~`.
pub(super) fn of_operator(binary: BinaryExpr) -> std::result::Result<Like, BinaryExpr> {
    let (negated, ignore_case) = match binary.op {
        Operator::LikeMatch => (false, false),
        Operator::ILikeMatch => (false, true),
        Operator::NotLikeMatch => (true, false),
        Operator::NotILikeMatch => (true, true),
        _ => return Err(binary),
    };
    Ok(Like::new(negated, binary.left, binary.right, None, ignore_case))
}

/// Whether a pattern is a constant that does not end with a backslash, or with one that another gives its meaning.
fn ends_well(pattern: &Expr) -> bool {
    let Expr::Literal(pattern, _) = pattern else { return false };
    match pattern.try_as_str().flatten() {
        Some(pattern) => (pattern.len() - pattern.trim_end_matches(ESCAPE).len()).is_multiple_of(2),
        None => true,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Matches {
    negated: bool,
    ignore_case: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Matches {
    fn name(&self) -> &str {
        match (self.negated, self.ignore_case) {
            (false, false) => "like",
            (true, false) => "not like",
            (false, true) => "ilike",
            (true, true) => "not ilike",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn simplify(&self, arguments: Vec<Expr>, _context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if !ends_well(&arguments[1]) {
            return Ok(ExprSimplifyResult::Original(arguments));
        }
        let [text, pattern] = take_function_args(self.name(), arguments)?;
        let like = Like::new(self.negated, Box::new(text), Box::new(pattern), None, self.ignore_case);
        Ok(ExprSimplifyResult::Simplified(Expr::Like(like)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let [text, pattern] = take_function_args(self.name(), arguments.args)?;
        let is_scalar = matches!((&text, &pattern), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { rows };
        let strings = |values: ColumnarValue| -> Result<ArrayRef> {
            Ok(cast(&values.into_array(rows)?, &DataType::Utf8View)?)
        };
        let (texts, patterns) = (strings(text)?, strings(pattern)?);
        let pairs = texts.as_string_view().iter().zip(patterns.as_string_view().iter());
        let matches = pairs.map(|(text, pattern)| -> Result<Option<bool>> {
            let (Some(text), Some(pattern)) = (text, pattern) else { return Ok(None) };
            let matches = like::matches(text, pattern, ESCAPE, self.ignore_case).map_err(to_datafusion)?;
            Ok(Some(matches != self.negated))
        });
        let matches: ArrayRef = Arc::new(matches.collect::<Result<BooleanArray>>()?);
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&matches, 0)?),
            false => ColumnarValue::Array(matches),
        })
    }
}
