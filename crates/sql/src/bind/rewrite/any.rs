//! ANY and ALL over constant arrays and sub-queries, in words that DataFusion plans best.
//!
//! | written | becomes |
//! |---|---|
//! | `x = ANY (ARRAY[a, b])`, `x = ANY ('{a,b}')` | `x IN (a, b)` |
//! | `x <> ALL (ARRAY[a, b])` | `x NOT IN (a, b)` |
//! | `x < ANY (ARRAY[a, b])`, `x LIKE ANY (ARRAY[a, b])` | `x < a OR x < b`, `x LIKE a OR x LIKE b` |
//! | `x < ALL (ARRAY[a, b])` | `x < a AND x < b` |
//! | `x < ANY (SELECT y …)`, `x < ALL (SELECT y …)` | `[NOT] EXISTS (SELECT … WHERE …)` |
//! | the same where NULL is not false | CASE over counts: of rows that decide, of those that nobody knows of |
//! | `x = ANY (SELECT …)`, `x <> ALL (SELECT …)` | `x IN (SELECT …)`, `x NOT IN (SELECT …)` |
//! | `x = ANY ($1)`, `x < ALL (y)`, `x LIKE ANY ($1)` | a function: [`Quantifier`] |

use super::{binary, cast, digits, parsed, quoted_call, take};
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType, Expr, Ident, Query, SelectItem, SetExpr, Statement,
    TableFactor, Value,
};
use firn_exec::lower::quantified::{Comparison, Quantifier};

/// What the column of rows is called that something is compared with.
const VALUE: &str = "set value";

/// Rewrites the expression if it is one of these.
pub(super) fn rewrite(expression: &mut Expr) {
    let rewritten = match expression {
        Expr::AnyOp { left, compare_op, right, .. } => over(left, compare_op, right, true),
        Expr::AllOp { left, compare_op, right } => over(left, compare_op, right, false),
        Expr::Like { any: true, pattern, .. } | Expr::ILike { any: true, pattern, .. } => {
            let Some(patterns) = elements(pattern) else { return pattern_function(expression) };
            let one = |pattern: Expr| {
                let mut like = expression.clone();
                if let Expr::Like { any, pattern: place, .. } | Expr::ILike { any, pattern: place, .. } =
                    &mut like
                {
                    *any = false;
                    **place = pattern;
                }
                like
            };
            Some(joined(patterns.into_iter().map(one), BinaryOperator::Or, false))
        }
        _ => None,
    };
    if let Some(rewritten) = rewritten {
        *expression = rewritten;
    }
}

/// The same where NULL is not false, of comparisons with rows but for those that IN makes.
pub(super) fn rewrite_beside_null(expression: &mut Expr) {
    let any = matches!(expression, Expr::AnyOp { .. });
    if is_membership(expression) {
        return;
    }
    let rewritten = match expression {
        Expr::AnyOp { left, compare_op, right, .. } | Expr::AllOp { left, compare_op, right } => {
            match &**right {
                Expr::Subquery(rows) => Some(counts_of_compared(take(left), compare_op, rows, any)),
                _ => None,
            }
        }
        _ => None,
    };
    if let Some(rewritten) = rewritten {
        *expression = rewritten;
    }
}

/// Whether an expression is `= ANY` or `<> ALL`.
pub(super) fn is_membership(expression: &Expr) -> bool {
    match expression {
        Expr::AnyOp { compare_op, .. } => *compare_op == BinaryOperator::Eq,
        Expr::AllOp { compare_op, .. } => *compare_op == BinaryOperator::NotEq,
        _ => false,
    }
}

/// `x < ANY (SELECT …)` and `x < ALL (SELECT …)` with all three truths.
fn counts_of_compared(left: Expr, op: &BinaryOperator, rows: &Query, any: bool) -> Expr {
    let value = Expr::Identifier(Ident::with_quote('"', VALUE));
    let compared = Box::new(Expr::Nested(Box::new(binary(Expr::Nested(Box::new(left)), op.clone(), value))));
    let decides = if any { Expr::IsTrue(compared.clone()) } else { Expr::IsFalse(compared.clone()) };
    truth_by_counts(rows, &[VALUE.to_owned()], decides, Expr::IsNull(compared), any)
}

/// `(a, b) IN (SELECT c, d …)` with all three truths.
pub(super) fn counts_of_row_in(row: Vec<Expr>, rows: &Query) -> Expr {
    let names: Vec<String> = (1..=row.len()).map(|place| format!("{VALUE} {place}")).collect();
    let equal = row.into_iter().zip(&names).map(|(value, name)| {
        let column = Expr::Identifier(Ident::with_quote('"', name.as_str()));
        binary(column, BinaryOperator::Eq, Expr::Nested(Box::new(value)))
    });
    let equal = joined(equal, BinaryOperator::And, true);
    truth_by_counts(rows, &names, equal.clone(), Expr::IsNull(Box::new(equal)), true)
}

/// What a condition is of some rows, whose columns have such names: `truth` if a row decides, else NULL if one is not known of, else
/// the other.
fn truth_by_counts(rows: &Query, names: &[String], decides: Expr, unknown: Expr, truth: bool) -> Expr {
    let text = format!("SELECT CASE WHEN 1 > 0 THEN {truth} WHEN 1 > 0 THEN NULL ELSE {} END", !truth);
    let Statement::Query(mut outer) = parsed(&text) else { unreachable!("it is a query") };
    let SetExpr::Select(select) = outer.body.as_mut() else { unreachable!("it is a SELECT") };
    let Some(SelectItem::UnnamedExpr(mut case)) = select.projection.pop() else {
        unreachable!("it has an output")
    };
    if let Expr::Case { conditions, .. } = &mut case {
        for (branch, condition) in conditions.iter_mut().zip([decides, unknown]) {
            let count = Expr::Subquery(set_rows("count(*)", rows.clone(), names, condition));
            branch.condition = binary(count, BinaryOperator::Gt, digits("0"));
        }
    }
    Expr::Nested(Box::new(case))
}

/// A query of those rows, whose columns have such names, of which a condition is true.
fn set_rows(output: &str, rows: Query, names: &[String], condition: Expr) -> Box<Query> {
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let text = format!("SELECT {output} FROM (SELECT 1) AS set_rows({}) WHERE true", names.join(", "));
    let Statement::Query(mut query) = parsed(&text) else { unreachable!("it is a query") };
    let SetExpr::Select(select) = query.body.as_mut() else { unreachable!("it is a SELECT") };
    if let TableFactor::Derived { subquery, .. } = &mut select.from[0].relation {
        **subquery = rows;
    }
    select.selection = Some(condition);
    query
}

fn over(left: &mut Expr, op: &BinaryOperator, right: &mut Expr, any: bool) -> Option<Expr> {
    let is_in = any && *op == BinaryOperator::Eq;
    let is_not_in = !any && *op == BinaryOperator::NotEq;
    if let Expr::Subquery(subquery) = right {
        let (left, subquery) = (take(left), subquery.as_ref().clone());
        return Some(match is_in || is_not_in {
            true => {
                let (expr, subquery) = (Box::new(left), Box::new(subquery));
                Expr::InSubquery { expr, subquery, negated: is_not_in }
            }
            false => compared_with_rows(left, op, subquery, any),
        });
    }
    let Some(elements) = elements(right) else { return function(left, op, right, any) };
    // A list would take one type with the value; an array has one of its own, which counts beside a real.
    let of_decimals = matches!(right, Expr::Array(_)) && elements.iter().any(is_decimal);
    if (is_in || is_not_in) && !elements.is_empty() && !of_decimals {
        return Some(Expr::InList { expr: Box::new(take(left)), list: elements, negated: is_not_in });
    }
    let compared = elements.into_iter().map(|element| binary(left.clone(), op.clone(), element));
    let joiner = if any { BinaryOperator::Or } else { BinaryOperator::And };
    Some(joined(compared, joiner, !any))
}

/// `x < ANY (SELECT …)` as EXISTS over the rows for which the comparison is true, `x < ALL (SELECT …)`
/// as NOT EXISTS over those for which it is not. (DataFusion's own plan of these yields other rows.)
fn compared_with_rows(left: Expr, op: &BinaryOperator, subquery: Query, any: bool) -> Expr {
    let value = Expr::Identifier(Ident::with_quote('"', VALUE));
    let compared = Expr::Nested(Box::new(binary(Expr::Nested(Box::new(left)), op.clone(), value)));
    let condition = if any { compared } else { Expr::IsNotTrue(Box::new(compared)) };
    Expr::Exists { subquery: set_rows("1", subquery, &[VALUE.to_owned()], condition), negated: !any }
}

/// All of the conditions with an operator between them; `empty` if there is none.
fn joined(conditions: impl Iterator<Item = Expr>, op: BinaryOperator, empty: bool) -> Expr {
    let all = conditions.reduce(|all, next| binary(all, op.clone(), next));
    let all = all.unwrap_or_else(|| Expr::Value(Value::Boolean(empty).with_empty_span()));
    Expr::Nested(Box::new(all))
}

/// The elements of a constant array.
fn elements(array: &Expr) -> Option<Vec<Expr>> {
    match array {
        Expr::Nested(inner) => elements(inner),
        Expr::Array(array) => Some(array.elem.clone()),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => {
                let elements = firn_base::array::split(text).ok()?;
                Some(elements.into_iter().map(text_or_null).collect())
            }
            _ => None,
        },
        Expr::Cast {
            expr, data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)), ..
        } => {
            let elements = elements(expr)?;
            Some(elements.into_iter().map(|value| cast(value, element.as_ref().clone())).collect())
        }
        _ => None,
    }
}

fn is_decimal(expression: &Expr) -> bool {
    match expression {
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => is_decimal(expr),
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Numeric(_)),
        Expr::Value(value) => matches!(&value.value, Value::Number(digits, _) if digits.contains('.')),
        _ => false,
    }
}

fn text_or_null(element: Option<String>) -> Expr {
    Expr::Value(element.map_or(Value::Null, Value::SingleQuotedString).with_empty_span())
}

/// A comparison with the elements of an array that only running the statement brings to light: a
/// function that the analysis finds types for.
fn function(left: &mut Expr, op: &BinaryOperator, right: &mut Expr, any: bool) -> Option<Expr> {
    let comparison = match op {
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::NotEqual,
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::LessOrEqual,
        BinaryOperator::Gt => Comparison::Greater,
        BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    };
    let name = Quantifier { comparison, any }.name();
    Some(quoted_call(&name, vec![take(left), take(right)]))
}

/// The same of `x LIKE ANY (y)`.
fn pattern_function(expression: &mut Expr) {
    let ignore_case = matches!(expression, Expr::ILike { .. });
    if let Expr::Like { negated, expr, pattern, escape_char: None, .. }
    | Expr::ILike { negated, expr, pattern, escape_char: None, .. } = expression
    {
        let comparison = Comparison::Like { negated: *negated, ignore_case };
        let name = Quantifier { comparison, any: true }.name();
        *expression = quoted_call(&name, vec![take(expr), take(pattern)]);
    }
}
