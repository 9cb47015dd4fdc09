//! CREATE INDEX.

use super::{Context, already_exists, column, kinds, parameter};
use crate::names::missing_column;
use crate::operator_classes;
use crate::statement::{ObjectKind, QualifiedName};
use firn_base::{ColumnId, Error, Result, SqlState, Type};
use firn_syntax::tree::{CreateIndex, ExprKind, IndexElement, NullsOrder, SortOrder};
use firn_txn::catalog::{Deferral, IndexAnnotations, IndexColumnDef, IndexDef, TableDef};
use firn_txn::{IndexColumn, IndexSpec};

/// The most columns of an index, as in PostgreSQL.
const MOST_COLUMNS: usize = 32;

/// CREATE INDEX
pub(super) fn create(context: &mut Context<'_>, index: &CreateIndex) -> Result<()> {
    let table = context.names().table(&QualifiedName::from(&index.table.name))?;
    if let Some(method) = index.method.as_ref().filter(|method| &*method.text != "btree") {
        return Err(Error::unsupported(format!("index method {}", method.text))
            .with_hint("Leave USING out; indexes are ordered."));
    }
    kinds::check_tablespace(index.tablespace.as_ref())?;
    if index.condition.is_some() {
        return Err(Error::unsupported("a partial index").with_hint("Index the column without WHERE."));
    }
    if index.nulls_not_distinct {
        return Err(Error::unsupported("NULLS NOT DISTINCT"));
    }
    let (values, parameters) = parameter::of_index(&index.options)?;
    let mut annotations = IndexAnnotations { parameters, ..IndexAnnotations::default() };
    let mut columns = Vec::with_capacity(index.elements.len());
    for (position, element) in index.elements.iter().enumerate() {
        let (column, class) = index_column(&table, element)?;
        columns.push(column);
        annotations.classes.extend(class.map(|class| (position as u16, class.to_owned())));
    }
    // INCLUDE columns only spare PostgreSQL a look at the table; ours are as good without.
    for element in &index.include {
        let (column, _) = index_column(&table, element)?;
        annotations.include.push(column.column);
    }
    if columns.len() > MOST_COLUMNS {
        return Err(Error::new(
            SqlState::new("54011"),
            format!("cannot use more than {MOST_COLUMNS} columns in an index"),
        ));
    }
    let name = match &index.name {
        Some(name) => name.text.to_string(),
        None => {
            let stem = default_stem(&table, &columns, &annotations.include);
            context.names().fresh(table.schema, &stem, "idx", &[])
        }
    };
    if context.names().relation_in(table.schema, &name).is_some() {
        if index.if_not_exists {
            let message = format!("relation \"{name}\" already exists, skipping");
            context.notice(SqlState::DUPLICATE_TABLE, message);
            return Ok(());
        }
        return Err(already_exists(ObjectKind::Index, &name));
    }
    if index.is_unique && !values {
        return Err(unique_without_values());
    }
    context.lock(&table)?;
    context.refuse_pending(&table, "CREATE INDEX")?;
    let definition = IndexDef {
        oid: context.allocate(),
        name,
        columns,
        unique: index.is_unique,
        values,
        deferral: Deferral::Never,
        internal: false,
        annotations,
    };
    let mut table = TableDef::clone(&context.table(table.oid));
    build(context, &table, &definition)?;
    table.indexes.push(definition);
    context.put_table(table)
}

/// `table_column_column`, the beginning of generated names.
pub(super) fn default_stem(table: &TableDef, columns: &[IndexColumnDef], include: &[u16]) -> String {
    let mut stem = table.name.clone();
    for column in columns.iter().map(|column| column.column).chain(include.iter().copied()) {
        stem.push('_');
        stem.push_str(&table.columns[usize::from(column)].name);
    }
    stem
}

/// 0A000
pub(super) fn unique_without_values() -> Error {
    Error::unsupported("a unique index without values")
        .with_hint("Leave values = off out, or UNIQUE: a unique index looks its keys up at every insert.")
}

/// A column of an index, with its operator class if that is not the default one; 0A000 for expressions.
fn index_column(table: &TableDef, element: &IndexElement) -> Result<(IndexColumnDef, Option<&'static str>)> {
    if let Some(collation) = &element.collation {
        column::check_collation(collation)?;
    }
    let name = match &element.value.kind {
        ExprKind::Column(name) if name.qualifiers.is_empty() => &name.name.text,
        _ => {
            return Err(Error::unsupported("an index on an expression")
                .with_hint("Keep the expression's value in a column of its own and index that."));
        }
    };
    let Some((id, definition)) = table.column(name) else {
        return Err(Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")));
    };
    let class = match &element.class {
        None => None,
        Some(class) => {
            let ty = definition.ty.declared;
            let shown = QualifiedName::from(class);
            let known = operator_classes::named(&class.name.text).ok_or_else(|| {
                let message =
                    format!("operator class \"{shown}\" does not exist for access method \"btree\"");
                Error::new(SqlState::UNDEFINED_OBJECT, message)
            })?;
            if !known.accepts(ty) {
                let ty = Type::new(ty.id);
                let message = format!("operator class \"{shown}\" does not accept data type {ty}");
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
            }
            (!known.is_default_of(ty)).then_some(known.name)
        }
    };
    let descending = element.order == SortOrder::Descending;
    let nulls_first = match element.nulls {
        NullsOrder::Default => descending,
        NullsOrder::First => true,
        NullsOrder::Last => false,
    };
    Ok((IndexColumnDef { column: id.0, descending, nulls_first }, class))
}

/// Plain ascending columns.
pub(super) fn plain_columns(table: &TableDef, names: &[String]) -> Result<Vec<IndexColumnDef>> {
    names
        .iter()
        .map(|name| match table.column(name) {
            Some((id, _)) => Ok(IndexColumnDef { column: id.0, descending: false, nulls_first: false }),
            None => Err(missing_column(table, name)),
        })
        .collect()
}

/// Builds the physical index over what the table holds. The caller has locked the table. 23505 if the
/// index is unique, whenever that is tested, and two rows share a key.
pub(super) fn build(context: &mut Context<'_>, table: &TableDef, index: &IndexDef) -> Result<()> {
    build_again(context, table, index)?;
    match index.unique && !index.is_always_unique() {
        true => {
            let storage = context.transaction.table(table.storage());
            context.transaction.refuse_duplicates(&storage, index.id())
        }
        false => Ok(()),
    }
}

/// As [`build`] for an index that takes the place of one that was as unique. Rows may share a key of a deferrable
/// constraint: they are tested at the end of their transaction.
pub(super) fn build_again(context: &mut Context<'_>, table: &TableDef, index: &IndexDef) -> Result<()> {
    let storage = context.transaction.table(table.storage());
    let columns = index
        .columns
        .iter()
        .map(|column| IndexColumn {
            column: ColumnId(column.column),
            representation: storage.columns()[usize::from(column.column)].representation,
            nullable: storage.columns()[usize::from(column.column)].nullable,
            descending: column.descending,
            nulls_first: column.nulls_first,
        })
        .collect();
    let unique = index.is_always_unique();
    let spec = IndexSpec { id: index.id(), name: index.name.clone(), columns, unique, values: index.values };
    context.transaction.create_index(&storage, spec, context.options.threads)
}
