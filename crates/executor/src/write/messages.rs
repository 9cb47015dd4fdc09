//! Errors of constraints, with PostgreSQL's messages and details.

use super::target::Target;
use firn_base::{ColumnId, Error, SqlState, TextStyle, Type, TypeId, Value, text};

/// `values` are those of all columns.
#[cold]
pub(super) fn null_violation(table: &Target, column: ColumnId, values: &[Value]) -> Error {
    let (name, relation) = (table.column_name(column), &table.definition.name);
    let message =
        format!("null value in column \"{name}\" of relation \"{relation}\" violates not-null constraint");
    Error::new(SqlState::NOT_NULL_VIOLATION, message)
        .with_detail(failing_row(table, values))
        .with_table(table.schema.as_str(), relation.as_str())
        .with_column(name)
}

/// Likewise.
#[cold]
pub(super) fn check_violation(table: &Target, check: &str, values: &[Value]) -> Error {
    let relation = &table.definition.name;
    let message = format!("new row for relation \"{relation}\" violates check constraint \"{check}\"");
    Error::new(SqlState::CHECK_VIOLATION, message)
        .with_constraint(check)
        .with_detail(failing_row(table, values))
        .with_table(table.schema.as_str(), relation.as_str())
}

/// Adds to an error of a unique index which key it is.
#[cold]
pub(super) fn explain_duplicate(error: Error, table: &Target, value: impl Fn(ColumnId) -> Value) -> Error {
    if error.state() != SqlState::UNIQUE_VIOLATION || error.detail().is_some() {
        return error;
    }
    let unique = table.unique.iter().find(|unique| error.constraint() == Some(unique.name.as_str()));
    let Some(unique) = unique else { return error };
    let shown = &unique.columns[usize::from(unique.is_partial)..];
    let names: Vec<&str> = shown.iter().map(|column| table.column_name(*column)).collect();
    let values: Vec<Value> = shown.iter().copied().map(value).collect();
    error
        .with_detail(format!("Key {} already exists.", described_key(&names, &values)))
        .with_table(table.schema.as_str(), table.definition.name.as_str())
}

/// `(a, b)=(1, x)`, as PostgreSQL's details name a key.
pub(super) fn described_key(names: &[&str], values: &[Value]) -> String {
    let values: Vec<String> = values.iter().map(shown).collect();
    format!("({})=({})", names.join(", "), values.join(", "))
}

fn failing_row(table: &Target, values: &[Value]) -> String {
    let columns = values.iter().zip(&table.definition.columns);
    let shown: Vec<String> = columns
        .filter(|(_, column)| !column.dropped && !column.hidden)
        .map(|(value, _)| shown(value))
        .collect();
    format!("Failing row contains ({}).", shown.join(", "))
}

/// A value as messages show it; long ones are cut as PostgreSQL cuts them.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 64;
    if value.is_null() {
        return "null".to_owned();
    }
    let mut written = String::new();
    text::write_any(value, Type::new(TypeId::TEXT), &TextStyle::DEFAULT, &mut written);
    match written.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &written[..end]),
        None => written,
    }
}
