//! Lists of VALUES with strings of several types, and with bare literals beside others: DataFusion takes a column for what its first row says
//! of itself.
//!
//! | written | becomes |
//! |---|---|
//! | `VALUES (CAST('a' AS char(5))), (NULL)` | `VALUES (CAST('a' AS char(5))), (CAST(NULL AS char(5)))` |
//! | `VALUES (CAST('a' AS char(5))), ('b')` | `VALUES (CAST(CAST('a' AS char(5)) AS text)), ('b')` |
//! | `VALUES (interval '1 day'), ('24 hours')` | `VALUES (interval '1 day'), (CAST('24 hours' AS interval))` |
//!
//! A char(n) loses its blanks there, as it does in the other places where rows of several types meet.

use super::wrap;
use crate::bind::insert::syntax_of;
use crate::data_type::sql_type;
use datafusion::sql::sqlparser::ast::{DataType, Expr, SetExpr, TypedString, Value, Values};
use firn_base::SqlType;

/// Gives the rows of a query's lists one type where some of them are cast to strings, or some literals.
pub(super) fn unite(body: &mut SetExpr) {
    match body {
        SetExpr::Values(values) => unite_columns(values),
        SetExpr::SetOperation { left, right, .. } => {
            unite(left);
            unite(right);
        }
        _ => {}
    }
}

fn unite_columns(values: &mut Values) {
    let columns = values.rows.iter().map(|row| row.content.len()).min().unwrap_or(0);
    for column in 0..columns {
        let mut cells: Vec<&mut Expr> = values.rows.iter_mut().map(|row| &mut row.content[column]).collect();
        if let Some(ty) = told(&cells) {
            cells.into_iter().filter(|cell| is_bare(cell)).for_each(|cell| wrap(cell, syntax_of(ty)));
            continue;
        }
        let types: Vec<Option<DataType>> = cells.iter().map(|cell| declared(cell)).collect();
        let Some(first) = types.iter().flatten().next().cloned() else { continue };
        let is_first = |ty: &DataType| sql_type(ty).ok() == sql_type(&first).ok();
        let are_alike =
            cells.iter().zip(&types).all(|(cell, ty)| ty.as_ref().map_or(is_null(cell), is_first));
        for (cell, ty) in cells.iter_mut().zip(types) {
            match (are_alike, ty) {
                (true, None) => wrap(cell, first.clone()),
                (false, Some(_)) => wrap(cell, DataType::Text),
                _ => {}
            }
        }
    }
}

/// The one type that all expressions but bare literals are cast to. Strings have no type of their own here, and numerics as many digits
/// as each of them.
fn told(cells: &[&mut Expr]) -> Option<SqlType> {
    let mut types = cells.iter().filter(|cell| !is_bare(cell)).map(|cell| cast_to(cell));
    let first = types.next().flatten()?;
    let is_told = !first.is_string() && !matches!(first, SqlType::Numeric { .. });
    (is_told && types.all(|ty| ty == Some(first))).then_some(first)
}

fn cast_to(expression: &Expr) -> Option<SqlType> {
    match expression {
        Expr::Nested(inner) => cast_to(inner),
        Expr::Interval(_) => Some(SqlType::Interval),
        Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) => {
            sql_type(data_type).ok()
        }
        _ => None,
    }
}

/// Whether an expression has no type of its own.
fn is_bare(expression: &Expr) -> bool {
    let is_text =
        |value: &Value| matches!(value, Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_));
    is_null(expression) || matches!(expression, Expr::Value(value) if is_text(&value.value))
}

/// The type of strings that an expression is cast to, if it is none of text.
fn declared(expression: &Expr) -> Option<DataType> {
    match expression {
        Expr::Nested(inner) => declared(inner),
        Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) => {
            let ty = sql_type(data_type).ok()?;
            (ty.is_string() && ty != SqlType::Text).then(|| data_type.clone())
        }
        _ => None,
    }
}

fn is_null(expression: &Expr) -> bool {
    matches!(expression, Expr::Value(value) if value.value == Value::Null)
}
