//! Rewriting a table: for changes that cannot be made to the physical table in place.
//!
//! The new physical table is filled by an INSERT … SELECT from the old one. Meanwhile the new one is in the catalog under a name
//! that no statement uses, without constraints and indexes.

use super::{Context, index};
use crate::statement::quote_ident;
use firn_base::{ColumnId, Error, Result, SqlState, TableId};
use firn_syntax::tree::{Insert, Name, ObjectName, Query, Statement, TargetColumn};
use firn_txn::ColumnSpec;
use firn_txn::catalog::{ColumnDef, Oid, TableDef, TableSettings};

/// Makes an empty physical table for these columns.
pub(super) fn create_storage(
    context: &mut Context<'_>,
    name: &str,
    columns: &[ColumnDef],
) -> Result<TableId> {
    // The storage permits NULLs of a column for ever or not at all; a dropped column has only NULLs.
    let columns = columns
        .iter()
        .map(|column| ColumnSpec {
            representation: column.ty.stored,
            nullable: column.dropped || !column.not_null,
        })
        .collect();
    context.transaction.create_storage(name, columns)
}

/// The name of a table while it is filled.
pub(super) fn hidden_name(oid: Oid) -> String {
    format!("........filling.{}........", oid.0)
}

/// An INSERT of the rows of a query into all visible columns of a table that are not generated.
pub(super) fn insertion(context: &Context<'_>, table: &TableDef, query: &Query) -> Insert {
    let given = table.visible_columns().filter(|(_, definition)| definition.generated.is_none());
    let column = |name: &str| TargetColumn { name: Name::new(name), path: Vec::new() };
    Insert {
        with: None,
        table: ObjectName {
            qualifiers: vec![Name::new(context.schema_name(table.schema))],
            name: Name::new(&*table.name),
        },
        alias: None,
        columns: given.map(|(_, definition)| column(&definition.name)).collect(),
        overriding: None,
        source: Some(Box::new(query.clone())),
        on_conflict: None,
        returning: Vec::new(),
    }
}

/// Gives `new`, a changed definition of `old`, a physical table of its own, fills it with the rows
/// of the old one and stores it in the catalog. `sources` are SQL expressions over the old
/// columns, one for each visible column of `new`; a generated column without one is computed. The caller has locked the table.
pub(super) fn table(
    context: &mut Context<'_>,
    old: &TableDef,
    mut new: TableDef,
    sources: &[Option<String>],
) -> Result<()> {
    let name = new.name.clone();
    new.storage = create_storage(context, &name, &new.columns)?.0;
    // A row without columns cannot be stored; dropped columns count.
    if !new.columns.is_empty() {
        fill(context, old, &new, sources)?;
    }
    for definition in &new.indexes {
        index::build(context, &new, definition)?;
    }
    context.transaction.drop_storage(old.storage())?;
    context.put_table(new)
}

fn fill(context: &mut Context<'_>, old: &TableDef, new: &TableDef, sources: &[Option<String>]) -> Result<()> {
    let oid = context.allocate();
    let plain = |column: &ColumnDef| ColumnDef { default: None, identity: None, ..column.clone() };
    let mut columns: Vec<ColumnDef> = new.columns.iter().map(plain).collect();
    let visible: Vec<ColumnId> = new.visible_columns().map(|(id, _)| id).collect();
    for (id, source) in visible.into_iter().zip(sources) {
        if source.is_some() {
            columns[id.index()].generated = None;
        }
    }
    let hidden = TableDef {
        oid,
        schema: new.schema,
        name: hidden_name(oid),
        columns,
        constraints: Vec::new(),
        indexes: Vec::new(),
        storage: new.storage,
        settings: TableSettings::default(),
    };
    context.put_table(hidden.clone())?;
    let from = context.sql_name(old.schema, &old.name);
    let given: Vec<&str> = sources.iter().flatten().map(String::as_str).collect();
    let text = format!("SELECT {} FROM {from} AS {}", given.join(", "), quote_ident(&old.name));
    let mut parsed = crate::parse::parse_one(&text)?.expect("it is a statement");
    let Statement::Query(query) = &parsed.statement else { panic!("it is a query") };
    parsed.statement = Statement::Insert(Box::new(insertion(context, &hidden, query)));
    let filled = context.change(&parsed, &[], &[]).map_err(|error| match error.column().map(str::to_owned) {
        Some(column) if error.state() == SqlState::NOT_NULL_VIOLATION => {
            contains_nulls(context, new, &column)
        }
        _ => error.without_position(),
    });
    context.catalog_mut()?.tables.remove(&oid);
    filled.map(drop)
}

/// 23502 for existing rows.
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
