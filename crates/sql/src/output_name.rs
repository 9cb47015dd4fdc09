//! The names that PostgreSQL gives output columns without an alias.

use crate::ident::fold;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    ObjectNamePart, SelectItem, SetExpr, Value,
};

/// The name of a function that returns its argument and whose output column is named after that argument with its casts. Only
/// the binder writes it.
pub const AS_CAST: &str = "as cast";

/// The name that PostgreSQL gives an output column.
pub fn output_name(expression: &Expr) -> String {
    const NONE: &str = "?column?";
    match expression {
        Expr::Identifier(ident) => fold(ident),
        Expr::CompoundIdentifier(idents) => idents.last().map_or_else(|| NONE.to_owned(), fold),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => output_name(inner),
        Expr::Cast { expr, data_type, .. } if is_literal(expr) => type_name(data_type),
        Expr::Cast { expr, data_type, .. } => match output_name(expr).as_str() {
            NONE => type_name(data_type),
            name => name.to_owned(),
        },
        Expr::TypedString(typed) => type_name(&typed.data_type),
        Expr::Interval(_) => "interval".to_owned(),
        Expr::Function(function) if let Some(argument) = as_cast_argument(function) => output_name(argument),
        Expr::Function(function) => match function.name.0.last() {
            Some(ObjectNamePart::Identifier(ident)) => fold(ident),
            _ => NONE.to_owned(),
        },
        Expr::Case { else_result: Some(otherwise), .. } => match output_name(otherwise).as_str() {
            NONE => "case".to_owned(),
            name if matches!(otherwise.as_ref(), Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => {
                name.to_owned()
            }
            _ => "case".to_owned(),
        },
        Expr::Case { .. } => "case".to_owned(),
        Expr::Exists { .. } => "exists".to_owned(),
        Expr::Extract { .. } => "extract".to_owned(),
        Expr::Substring { shorthand: true, .. } => "substr".to_owned(),
        Expr::Substring { .. } => "substring".to_owned(),
        Expr::Trim { trim_where, .. } => match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim".to_owned(),
            Some(ast::TrimWhereField::Trailing) => "rtrim".to_owned(),
            _ => "btrim".to_owned(),
        },
        Expr::Position { .. } => "position".to_owned(),
        Expr::Overlay { .. } => "overlay".to_owned(),
        Expr::Ceil { .. } => "ceil".to_owned(),
        Expr::Floor { .. } => "floor".to_owned(),
        Expr::AtTimeZone { .. } => "timezone".to_owned(),
        Expr::Array(_) => "array".to_owned(),
        Expr::BinaryOp { op: BinaryOperator::Overlaps, .. } => "overlaps".to_owned(),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.first() {
                Some(SelectItem::UnnamedExpr(expression)) => output_name(expression),
                Some(SelectItem::ExprWithAlias { alias, .. }) => fold(alias),
                _ => NONE.to_owned(),
            },
            _ => NONE.to_owned(),
        },
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => "bool".to_owned(),
        _ => NONE.to_owned(),
    }
}

/// Whether an expression is a literal, perhaps under casts: the outermost gives it its name.
fn is_literal(expression: &Expr) -> bool {
    match expression {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => is_literal(inner),
        Expr::Value(_) | Expr::TypedString(_) => true,
        _ => false,
    }
}

/// The internal name of a type, by which PostgreSQL names the output of a cast.
fn type_name(data_type: &DataType) -> String {
    if let DataType::Array(ast::ArrayElemTypeDef::SquareBracket(element, _)) = data_type {
        return type_name(element);
    }
    match crate::data_type::sql_type(data_type) {
        Ok(ty) => ty.typname().to_owned(),
        Err(_) => data_type.to_string().to_lowercase(),
    }
}

/// The argument of a call of [`AS_CAST`].
fn as_cast_argument(function: &Function) -> Option<&Expr> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let FunctionArguments::List(arguments) = &function.args else { return None };
    match arguments.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] if name.value == AS_CAST => Some(argument),
        _ => None,
    }
}
