//! COPY: the bridge between files' bytes and tables.
//!
//! [`options`] reads the options of a COPY. Rows that are read become columns of the storage and are stored by a load of the
//! executor, so that defaults, constraints and foreign keys apply. Rows that are written are the chunks of a query's result.
//!
//! | format | read by | written by |
//! |---|---|---|
//! | text, CSV, binary, JSON | `firn_load` | `rows_out`, `firn_load` |
//! | Parquet, Arrow | `columns_in` | `columns_out`, `parquet_out` |

mod columns_in;
mod columns_out;
mod from;
mod options;
mod parquet_out;
mod progress;
mod rejects;
mod rows_out;
mod to;
mod workers;

use crate::names::missing_column;
use crate::run::RunOptions;
use firn_base::{ColumnId, Error, Result, SqlState, Type};
pub use firn_load::end_of_first_row;
pub use firn_load::source::is_damage;
use firn_syntax::tree::{Copy, CopyTarget, Name};
use firn_txn::catalog::TableDef;
pub use from::{Copied, CopyFrom, Deed, Failed};
pub use options::CopyFormat;
pub use progress::{Channel, Progress};
pub use rejects::make_rejects_table;
pub use to::CopyTo;

/// A column that is copied: its position in the table or in a query's result, its name and its type.
type CopiedColumn = (ColumnId, String, Type);

/// The named columns, or all that are not generated.
fn columns(table: &TableDef, names: &[Name]) -> Result<Vec<CopiedColumn>> {
    if names.is_empty() {
        let all = table.visible_columns().filter(|(_, column)| column.generated.is_none());
        return Ok(all.map(|(id, column)| (id, column.name.clone(), column.ty.declared)).collect());
    }
    let mut found: Vec<CopiedColumn> = Vec::with_capacity(names.len());
    for name in names {
        let Some((id, column)) = table.column(&name.text) else {
            return Err(missing_column(table, &name.text));
        };
        if column.generated.is_some() {
            let message = format!("column \"{}\" is a generated column", name.text);
            return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message)
                .with_detail("Generated columns cannot be used in COPY."));
        }
        if found.iter().any(|(known, ..)| *known == id) {
            return Err(named_twice(&name.text));
        }
        found.push((id, name.text.to_string(), column.ty.declared));
    }
    Ok(found)
}

fn named_twice(column: &str) -> Error {
    Error::new(SqlState::DUPLICATE_COLUMN, format!("column \"{column}\" specified more than once"))
}

/// 0A000: formats other than text and CSV store rows as columns.
fn without_columns(format: CopyFormat) -> Error {
    Error::unsupported(format!("COPY of rows without columns in {} format", format.word()))
}

/// The source or the target of a COPY; 0A000 for programs.
fn channel(copy: &Copy) -> Result<Channel> {
    match copy.target {
        CopyTarget::File(_) => Ok(Channel::File),
        CopyTarget::Standard => Ok(Channel::Pipe),
        CopyTarget::Program(_) => {
            let error = Error::unsupported("COPY with a program");
            Err(error.with_hint("Pipe through the client: COPY … FROM STDIN."))
        }
    }
}

/// Fails with 57014 once the statement has been cancelled.
fn stop_if_cancelled(options: &RunOptions) -> Result<()> {
    if options.cancel.is_cancelled() { Err(crate::cancelled()) } else { Ok(()) }
}
