//! Writing a table anew: for changes that the physical table cannot take in place.

use super::{Context, index};
use crate::statement::quote_ident;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use datafusion::arrow::compute::cast;
use firn_base::{Error, Result, SqlState, SqlType, TableId};
use firn_txn::catalog::{ColumnDef, TableDef};
use firn_txn::{ColumnSpec, pin};

/// Makes an empty physical table for these columns.
pub(super) fn create_storage(
    context: &mut Context<'_>,
    name: &str,
    columns: &[ColumnDef],
) -> Result<TableId> {
    // Storage holds NULLs of a column for good or not at all; a dropped column holds nothing else.
    let columns = columns
        .iter()
        .map(|column| ColumnSpec {
            representation: column.ty.stored,
            nullable: column.dropped || !column.not_null,
        })
        .collect();
    context.transaction.create_storage(name, columns)
}

/// Gives `new`, a changed definition of `old`, a physical table of its own, fills it with the rows
/// of the old one and puts it into the catalog. `sources` are SQL expressions over the old
/// columns, one for each visible column of `new`. The caller has locked the table.
pub(super) fn table(
    context: &mut Context<'_>,
    old: &TableDef,
    mut new: TableDef,
    sources: &[String],
) -> Result<()> {
    let name = new.name.clone();
    new.storage = create_storage(context, &name, &new.columns)?.0;
    let from = context.sql_name(old.schema, &old.name);
    let text = match sources {
        // A table without columns still has rows, but no row without columns can be stored.
        [] => format!("SELECT FROM {from} WHERE false"),
        _ => format!("SELECT {} FROM {from} AS {}", sources.join(", "), quote_ident(&old.name)),
    };
    let query = crate::parse::parse_query(&text)?;
    let columns: Vec<(String, SqlType)> =
        new.visible_columns().map(|(_, column)| (column.name.clone(), column.ty.sql_type())).collect();
    if !sources.is_empty() {
        context.query_for_insert(&query, &columns, |context, batch| insert(context, &new, batch))?;
    }
    for definition in &new.indexes {
        index::build(context, &new, definition)?;
    }
    context.transaction.drop_storage(old.storage())?;
    context.put_table(new)
}

/// Stores a batch whose columns are the visible columns of the table. 23502 for NULLs where there
/// may be none.
pub(super) fn insert(context: &mut Context<'_>, table: &TableDef, batch: RecordBatch) -> Result<()> {
    let mut given = batch.columns().iter();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(table.columns.len());
    for column in &table.columns {
        let field = firn_exec::types::field(&column.name, column.ty.sql_type());
        if column.dropped {
            columns.push(new_null_array(field.data_type(), batch.num_rows()));
            continue;
        }
        let array = given.next().expect("the query yields every visible column");
        if column.not_null && array.null_count() > 0 {
            return Err(contains_nulls(context, table, &column.name));
        }
        columns.push(match array.data_type() == field.data_type() {
            true => array.clone(),
            false => cast(array, field.data_type())
                .map_err(|error| firn_exec::error::from_datafusion(error.into()))?,
        });
    }
    let storage = context.transaction.table(table.storage());
    context.transaction.insert_batch(&storage, &columns, &pin())
}

/// 23502 for rows that are already there.
pub(super) fn contains_nulls(context: &Context<'_>, table: &TableDef, column: &str) -> Error {
    let error = Error::new(
        SqlState::NOT_NULL_VIOLATION,
        format!("column \"{column}\" of relation \"{}\" contains null values", table.name),
    );
    match context.transaction.catalog().schemas.get(&table.schema) {
        Some(schema) => error.with_table(schema.name.as_str(), table.name.as_str()).with_column(column),
        None => error,
    }
}
