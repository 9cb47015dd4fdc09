//! Errors: what a session adds to those of the layers below.

use crate::timer::Alarm;
use firn_base::sync::Arc;
use firn_base::{Error, SqlState};
use firn_txn::Catalog;
use firn_txn::catalog::TableDef;
use std::any::Any;

/// Adds to the error of a constraint which table it belongs to, as PostgreSQL does.
#[cold]
pub(crate) fn with_table_of_constraint(error: Error, catalog: &Catalog) -> Error {
    let (Some(name), None) = (error.constraint(), error.table()) else { return error };
    let has_it = |table: &&Arc<TableDef>| {
        table.constraints.iter().any(|constraint| constraint.name == name)
            || table.indexes.iter().any(|index| index.name == name)
    };
    let mut owners = catalog.tables.values().filter(has_it);
    // Tables may give the same name to constraints without an index.
    let (Some(table), None) = (owners.next(), owners.next()) else { return error };
    match catalog.schemas.get(&table.schema) {
        Some(schema) => error.with_table(schema.name.as_str(), table.name.as_str()),
        None => error,
    }
}

/// XX000 for a panic.
#[cold]
pub(crate) fn internal_error(panic: &(dyn Any + Send)) -> Error {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown cause");
    Error::internal(message)
}

/// Adds to a cancellation that the timeout has caused it.
pub(crate) fn timed_out(error: Error, alarm: Option<&Alarm>) -> Error {
    if error.state() == SqlState::QUERY_CANCELED && alarm.is_some_and(Alarm::rang) {
        return Error::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout");
    }
    error
}
