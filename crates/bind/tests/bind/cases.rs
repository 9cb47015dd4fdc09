//! Statements, and what is known of their results.

use crate::catalog::CATALOG;
use firn_base::{Error, Type, TypeId};
use firn_bind::{Bound, bind};
use firn_syntax::{Options, parse};

/// The statements of a file. They end with a semicolon at the end of a line.
pub fn statements(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with("--"));
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    text.split(";\n").map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

pub fn bound(statement: &str) -> Result<Bound, Error> {
    let parsed = parse(statement, Options { additions: false, ..Options::default() })?;
    bind(statement, &parsed[0].statement, &[], &*CATALOG)
}

/// What the oracle writes of a statement.
pub fn described(statement: &str) -> String {
    match bound(statement) {
        Ok(bound) => {
            let column = |column: &firn_bind::OutputColumn| {
                let origin = column.origin.map_or(String::new(), |origin| {
                    format!(" from {}.{}", CATALOG.relation_name(origin.relation), origin.attribute)
                });
                format!("{} {}{origin}", column.name, type_name(column.ty))
            };
            let columns: Vec<String> = bound.columns.iter().map(column).collect();
            let mut line = format!("columns {}", columns.join(", "));
            if !bound.parameters.is_empty() {
                let types: Vec<String> = bound.parameters.iter().map(|ty| type_name(*ty)).collect();
                line.push_str(&format!(" parameters {}", types.join(", ")));
            }
            line
        }
        Err(error) => {
            let position = error.position().map_or("-".to_owned(), |position| position.to_string());
            let mut line = format!("error {} | {position} | {}", error.state(), error.message());
            if let Some(hint) = error.hint() {
                line.push_str(&format!(" | HINT: {hint}"));
            }
            if let Some(detail) = error.detail() {
                line.push_str(&format!(" | DETAIL: {detail}"));
            }
            line
        }
    }
}

/// As `format_type` prints a type without a modifier.
fn type_name(ty: Type) -> String {
    match ty.id {
        TypeId::BPCHAR if ty.modifier < 0 => "character".to_owned(),
        TypeId::BPCHAR_ARRAY if ty.modifier < 0 => "character[]".to_owned(),
        _ => ty.to_string(),
    }
}

/// Compares a file of statements with PostgreSQL's answers; `known` are the statements whose answers differ still.
fn compare(name: &str, sql: &str, expected: &str, known: &[&str]) {
    let statements = statements(sql);
    let expected: Vec<&str> = expected.lines().filter(|line| !line.starts_with("  ")).collect();
    assert_eq!(statements.len(), expected.len(), "{name} has an answer for each statement");
    let mut differing = Vec::new();
    let mut count = 0;
    for (statement, expected) in statements.iter().zip(expected) {
        let found = std::panic::catch_unwind(|| described(statement)).unwrap_or_else(|_| "panic".to_owned());
        let is_known = known.contains(&&**statement);
        if (found == *expected) == is_known {
            differing.push(format!("{statement}\n  expected {expected}\n  found    {found}"));
        }
        count += usize::from(found == *expected);
    }
    assert!(differing.is_empty(), "{name}: {count} of {} agree\n{}", statements.len(), differing.join("\n"));
}

macro_rules! files {
    ($($test:ident = $file:literal, $known:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let sql = include_str!(concat!("../cases/", $file, ".sql"));
                let expected = include_str!(concat!("../cases/", $file, ".expected"));
                compare($file, sql, expected, $known);
            }
        )*
    };
}

files! {
    columns_of_queries_with_rows_are_those_of_postgresql = "rows-queries", &[];
    overloads_and_casts_are_those_of_postgresql = "overloads", &[];
    names_mean_what_they_mean_in_postgresql = "names", &[];
    clauses_of_select_are_those_of_postgresql = "select", &[];
    // PostgreSQL looks for the index when it plans.
    changes_are_bound_as_by_postgresql = "changes", &[
        "INSERT INTO customers (id, name) VALUES (1, 'x') ON CONFLICT (name) DO NOTHING",
    ];
}
