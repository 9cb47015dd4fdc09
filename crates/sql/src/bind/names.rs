//! What to say about names that stand for nothing.

use crate::names::Names;
use crate::statement::QualifiedName;
use firn_base::{Error, SqlState};
use firn_exec::error::most_similar;

/// Adds to "relation does not exist" the name that was probably meant.
pub fn hinted(error: Error, names: &Names<'_>, name: &QualifiedName) -> Error {
    if error.state() != SqlState::UNDEFINED_TABLE || error.hint().is_some() {
        return error;
    }
    let tables = names.catalog.tables.values().map(|table| table.name.as_str());
    let views = names.catalog.views.values().map(|view| view.name.as_str());
    match most_similar(&name.name, tables.chain(views)) {
        // The same name exists, but in a schema that was not searched.
        Some(similar) if similar == name.name => {
            error.with_hint(format!("There is a \"{similar}\" in another schema; qualify the name."))
        }
        Some(similar) => error.with_hint(format!("Perhaps you meant \"{similar}\".")),
        None => error,
    }
}
