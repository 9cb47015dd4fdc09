//! Functions in FROM that DataFusion does not plan as they are.
//!
//! - A series with a parameter, a column, a subquery or the length of a list for a bound becomes a subquery that
//!   unnests a list, because a table function takes constants only.
//! - `pg_get_keywords()` becomes the words that our parser knows. Which of them are reserved is told of
//!   none: clients want to know what to put in quotes, and quotes never hurt.

use super::rewrite::function_name;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, Ident, ObjectNamePart, TableAlias, TableFactor, Value, visit_expressions,
};
use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;
use std::ops::ControlFlow;

/// Rewrites one item of a FROM clause in place.
pub(super) fn rewrite(factor: &mut TableFactor) {
    let (name, arguments, alias) = match factor {
        TableFactor::Table { name, args: Some(arguments), alias, with_ordinality: false, .. } => {
            (name, &arguments.args, alias)
        }
        TableFactor::Function { name, args, alias, with_ordinality: false, .. } => (name, &*args, alias),
        _ => return,
    };
    let Some(ObjectNamePart::Identifier(function)) = name.0.last() else { return };
    let (subquery, lateral) = match function.value.to_ascii_lowercase().as_str() {
        "generate_series" if arguments.iter().any(is_computed) => {
            (computed_series(arguments, alias.as_ref()), arguments.iter().any(names_columns))
        }
        "pg_get_keywords" if arguments.is_empty() => (keywords(), false),
        _ => return,
    };
    // Bounds are the user's, and may nest so deep that there is no room for what is around them.
    let Ok(subquery) = crate::parse::parse_query(&subquery) else { return };
    let alias = alias.take().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: function.clone(),
        columns: Vec::new(),
        at: None,
    });
    *factor = TableFactor::Derived { lateral, subquery, alias: Some(alias), sample: None };
}

/// Whether a bound is known only when the query runs.
fn is_computed(bound: &FunctionArg) -> bool {
    let found = visit_expressions(bound, |expr| match expr {
        Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => ControlFlow::Break(()),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_) => ControlFlow::Break(()),
        Expr::Function(function)
            if matches!(function_name(function).as_str(), "array_upper" | "array_length") =>
        {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Whether a bound may be told by rows of items that stand before the series.
fn names_columns(bound: &FunctionArg) -> bool {
    let found = visit_expressions(bound, |expr| match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

fn computed_series(arguments: &[FunctionArg], alias: Option<&TableAlias>) -> String {
    let bounds: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let column = match alias {
        None => Ident::new("generate_series"),
        Some(alias) => alias.columns.first().map_or(&alias.name, |column| &column.name).clone(),
    };
    format!("SELECT unnest(generate_series({})) AS {column}", bounds.join(", "))
}

fn keywords() -> String {
    let words: Vec<String> =
        ALL_KEYWORDS.iter().map(|word| format!("('{}')", word.to_ascii_lowercase())).collect();
    format!(
        "SELECT word, 'U' AS catcode, true AS barelabel, 'unreserved' AS catdesc, \
         'can be bare label' AS baredesc FROM (VALUES {}) AS keywords (word)",
        words.join(", ")
    )
}
