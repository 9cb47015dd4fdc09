//! Functions in FROM that DataFusion does not plan as they are.
//!
//! - A series with a parameter, a column, a subquery or the length of a list for a bound becomes a subquery that
//!   unnests a list, because a table function takes constants only. One `WITH ORDINALITY` becomes one whose rows are numbered.
//! - `pg_get_keywords()` becomes the words that our parser knows. Which of them are reserved is told of
//!   none: clients want to know what to put in quotes, and quotes never hurt.

use super::rewrite::function_name;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, Ident, ObjectNamePart, TableAlias, TableAliasColumnDef, TableFactor, Value,
    visit_expressions,
};
use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;
use std::ops::ControlFlow;

/// Rewrites one item of a FROM clause in place.
pub(super) fn rewrite(factor: &mut TableFactor) {
    let (name, arguments, alias, numbered) = match factor {
        TableFactor::Table { name, args: Some(arguments), alias, with_ordinality, .. } => {
            (name, &arguments.args, alias, *with_ordinality)
        }
        TableFactor::Function { name, args, alias, with_ordinality, .. } => {
            (name, &*args, alias, *with_ordinality)
        }
        _ => return,
    };
    let Some(ObjectNamePart::Identifier(function)) = name.0.last() else { return };
    let (subquery, lateral) = match function.value.to_ascii_lowercase().as_str() {
        "generate_series" if arguments.iter().any(is_computed) => {
            let series = computed_series(arguments, alias.as_ref(), numbered);
            (series, arguments.iter().any(names_columns))
        }
        "generate_series" if numbered => (numbered_series(arguments), false),
        "pg_get_keywords" if arguments.is_empty() && !numbered => (keywords(), false),
        _ => return,
    };
    // Bounds are the user's, and may nest so deep that there is no room for what is around them.
    let Ok(subquery) = crate::parse::parse_query(&subquery) else { return };
    let mut alias = alias.take().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: function.clone(),
        columns: Vec::new(),
        at: None,
    });
    if numbered {
        name_numbered(&mut alias, 1);
    }
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

/// Names the columns of functions' rows WITH ORDINALITY that have no names yet: as the alias if there is one beside the number.
pub(crate) fn name_numbered(alias: &mut TableAlias, values: usize) {
    for column in alias.columns.len()..=values {
        let name = match column {
            _ if column == values => Ident::new("ordinality"),
            _ if values == 1 => alias.name.clone(),
            _ => Ident::new("unnest"),
        };
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
}

fn bounds(arguments: &[FunctionArg]) -> String {
    let bounds: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    bounds.join(", ")
}

/// Numbers come in their order.
fn numbered_series(arguments: &[FunctionArg]) -> String {
    let bounds = bounds(arguments);
    format!("SELECT *, row_number() OVER () AS ordinality FROM generate_series({bounds}) AS series")
}

fn computed_series(arguments: &[FunctionArg], alias: Option<&TableAlias>, numbered: bool) -> String {
    let bounds = bounds(arguments);
    let column = match alias {
        None => Ident::new("generate_series"),
        Some(alias) => alias.columns.first().map_or(&alias.name, |column| &column.name).clone(),
    };
    match numbered {
        true => format!(
            "SELECT unnest(generate_series({bounds})) AS {column}, \
             unnest(\"list positions\"(generate_series({bounds}))) AS ordinality"
        ),
        false => format!("SELECT unnest(generate_series({bounds})) AS {column}"),
    }
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
