//! Foreign keys: creating them, the indexes that find referencing rows, and checking the existing rows.

use super::constraint::Rows;
use super::{Context, constraint, index};
use crate::names::{Relation, wrong_kind};
use crate::statement::{ObjectKind, QualifiedName, quote_ident};
use firn_base::{Error, Result, SqlState, TypeId};
use firn_syntax::tree::{KeyAction, Name, Reference};
use firn_txn::catalog::{
    ColumnDef, ColumnType, ConstraintDef, ConstraintKind, Deferral, IndexColumnDef, IndexDef, Oid,
    ReferentialAction, TableDef,
};
use firn_vector::Datum;

/// A foreign key as written.
pub(super) struct Key<'t> {
    /// Its name, if it has one.
    pub given: Option<&'t Name>,
    /// The referencing columns.
    pub columns: &'t [Name],
    /// The referenced table and columns.
    pub reference: &'t Reference,
    /// When it is tested.
    pub deferral: Deferral,
}

fn referenced(table: &TableDef, column: &Name) -> Result<u16> {
    table.column(&column.text).map(|(id, _)| id.0).ok_or_else(|| {
        Error::new(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{}\" referenced in foreign key constraint does not exist", column.text),
        )
    })
}

/// Adds a foreign key to a table that is in the catalog. The caller has locked the table.
pub(super) fn add(context: &mut Context<'_>, table: &mut TableDef, key: &Key<'_>, rows: Rows) -> Result<()> {
    let Key { given, columns, reference, deferral } = *key;
    let (on_delete, on_update) = (action(&reference.on_delete), action(&reference.on_update));
    let columns: Vec<u16> = columns.iter().map(|column| referenced(table, column)).collect::<Result<_>>()?;
    let on_delete_columns = set_columns(table, &columns, &reference.on_delete)?;
    let is_generated = |column: &u16| table.columns[usize::from(*column)].generated.is_some();
    if columns.iter().any(is_generated) {
        use ReferentialAction::{Cascade, SetDefault, SetNull};
        let refuse = |event: &str| {
            let message =
                format!("invalid ON {event} action for foreign key constraint containing generated column");
            Err(Error::new(SqlState::SYNTAX_ERROR, message))
        };
        if matches!(on_update, SetNull | SetDefault | Cascade) {
            return refuse("UPDATE");
        }
        if matches!(on_delete, SetNull | SetDefault) {
            return refuse("DELETE");
        }
    }
    let parent_name = QualifiedName::from(&reference.table);
    let to_itself = parent_name.name == table.name
        && match &parent_name.schema {
            Some(schema) => context.names().schema(schema)?.oid == table.schema,
            None => true,
        };
    let parent = match to_itself {
        true => table.clone(),
        false => match context.names().relation(&parent_name)? {
            Relation::Table(parent) => TableDef::clone(&parent),
            _ => return Err(wrong_kind(ObjectKind::Table, &parent_name.name)),
        },
    };
    let parent_columns: Vec<u16> = if reference.columns.is_empty() {
        match parent.primary_key() {
            Some(index) if !index.is_always_unique() => {
                return Err(deferrable_target("primary key", &parent));
            }
            Some(index) => index.columns.iter().map(|column| column.column).collect(),
            None => {
                return Err(Error::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("there is no primary key for referenced table \"{}\"", parent.name),
                ));
            }
        }
    } else {
        reference.columns.iter().map(|column| referenced(&parent, column)).collect::<Result<_>>()?
    };
    if columns.len() != parent_columns.len() {
        return Err(Error::new(
            SqlState::INVALID_FOREIGN_KEY,
            "number of referencing and referenced columns for foreign key disagree",
        ));
    }
    let covers = |index: &&IndexDef| {
        index.unique
            && index.columns.len() == parent_columns.len()
            && parent_columns.iter().all(|wanted| index.columns.iter().any(|found| found.column == *wanted))
    };
    let mut covering = parent.indexes.iter().filter(covers).peekable();
    if covering.peek().is_some() && !covering.any(IndexDef::is_always_unique) {
        return Err(deferrable_target("unique constraint", &parent));
    }
    if parent.indexes.iter().find(covers).is_none() {
        return Err(Error::new(
            SqlState::INVALID_FOREIGN_KEY,
            format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                parent.name
            ),
        ));
    }
    let names: Vec<&str> =
        columns.iter().map(|column| table.columns[usize::from(*column)].name.as_str()).collect();
    let stem = format!("{}_{}", table.name, names.join("_"));
    let name = constraint::name(context, table, given, &stem, "fkey")?;
    for (column, parent_column) in columns.iter().zip(&parent_columns) {
        let (ours, theirs) =
            (&table.columns[usize::from(*column)], &parent.columns[usize::from(*parent_column)]);
        check_comparable(&name, ours, theirs)?;
    }
    if !to_itself {
        context.lock(&parent)?;
    }
    let constraint = ConstraintDef {
        oid: context.allocate(),
        name: name.clone(),
        kind: ConstraintKind::ForeignKey {
            columns: columns.clone(),
            parent: parent.oid,
            parent_columns: parent_columns.clone(),
            on_delete,
            on_update,
            on_delete_columns,
            match_full: reference.match_full,
            deferral,
        },
        valid: rows != Rows::Trust,
    };
    if rows == Rows::Check {
        verify(context, table, &constraint)?;
    }
    table.constraints.push(constraint);
    index_all(context, table)
}

/// Whether an index finds referencing rows by these columns.
fn leads_with(index: &IndexDef, columns: &[u16]) -> bool {
    index.columns.len() >= columns.len()
        && columns
            .iter()
            .all(|wanted| index.columns[..columns.len()].iter().any(|found| found.column == *wanted))
}

/// Makes an index for every foreign key of a table without one that finds the referencing
/// rows. Deleting a referenced row must find them, and detect those that other transactions are adding;
/// PostgreSQL leaves that index to the user.
pub(super) fn index_all(context: &mut Context<'_>, table: &mut TableDef) -> Result<()> {
    for constraint in table.constraints.clone() {
        let ConstraintKind::ForeignKey { columns, .. } = &constraint.kind else { continue };
        if table.indexes.iter().any(|index| leads_with(index, columns)) {
            continue;
        }
        let definition = IndexDef {
            oid: context.allocate(),
            // The name is only used in messages of the storage.
            name: constraint.name.clone(),
            columns: columns
                .iter()
                .map(|column| IndexColumnDef { column: *column, descending: false, nulls_first: false })
                .collect(),
            unique: false,
            nulls_not_distinct: false,
            values: true,
            deferral: Deferral::Never,
            condition: None,
            internal: true,
            annotations: Default::default(),
        };
        index::build(context, table, &definition)?;
        table.indexes.push(definition);
    }
    Ok(())
}

/// 55000
pub(super) fn deferrable_target(what: &str, parent: &TableDef) -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("cannot use a deferrable {what} for referenced table \"{}\"", parent.name),
    )
}

/// Whether values of the types can be compared without loss.
fn comparable(a: ColumnType, b: ColumnType) -> bool {
    let (a, b) = (a.declared.id, b.declared.id);
    let both = |family: &[TypeId]| family.contains(&a) && family.contains(&b);
    a == b
        || both(&[TypeId::INT2, TypeId::INT4, TypeId::INT8, TypeId::NUMERIC])
        || both(&[TypeId::FLOAT4, TypeId::FLOAT8])
        || both(&[TypeId::TEXT, TypeId::VARCHAR, TypeId::BPCHAR])
}

fn action(action: &KeyAction) -> ReferentialAction {
    match action {
        KeyAction::NoAction => ReferentialAction::NoAction,
        KeyAction::Restrict => ReferentialAction::Restrict,
        KeyAction::Cascade => ReferentialAction::Cascade,
        KeyAction::SetNull(_) => ReferentialAction::SetNull,
        KeyAction::SetDefault(_) => ReferentialAction::SetDefault,
    }
}

/// The columns that ON DELETE sets, if they are not all of the key's.
fn set_columns(table: &TableDef, key: &[u16], action: &KeyAction) -> Result<Vec<u16>> {
    let (KeyAction::SetNull(names) | KeyAction::SetDefault(names)) = action else { return Ok(Vec::new()) };
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let column = referenced(table, name)?;
        if !key.contains(&column) {
            let message = format!(
                "column \"{}\" referenced in ON DELETE SET action must be part of foreign key",
                name.text
            );
            return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    Ok(columns)
}

/// 42804 if values of the columns of a key cannot be compared.
pub(super) fn check_comparable(key: &str, ours: &ColumnDef, theirs: &ColumnDef) -> Result<()> {
    if comparable(ours.ty, theirs.ty) {
        return Ok(());
    }
    let message = format!("foreign key constraint \"{key}\" cannot be implemented");
    Err(Error::new(SqlState::DATATYPE_MISMATCH, message).with_detail(format!(
        "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
        ours.name, theirs.name, ours.ty, theirs.ty
    )))
}

/// The foreign keys that a column of a table belongs to, on either side, each with its own table.
pub(super) fn keys_with(context: &Context<'_>, table: Oid, column: u16) -> Vec<(Oid, ConstraintDef)> {
    let mut found = Vec::new();
    for child in context.transaction.catalog().tables.values() {
        let has_it = |constraint: &&ConstraintDef| match &constraint.kind {
            ConstraintKind::ForeignKey { columns, parent, parent_columns, .. } => {
                child.oid == table && columns.contains(&column)
                    || *parent == table && parent_columns.contains(&column)
            }
            _ => false,
        };
        found.extend(
            child.constraints.iter().filter(has_it).map(|constraint| (child.oid, constraint.clone())),
        );
    }
    found
}

/// 23503 if a row references no existing one. `table` is as the catalog has it or will have it;
/// the constraint need not be in it.
pub(super) fn verify(context: &mut Context<'_>, table: &TableDef, constraint: &ConstraintDef) -> Result<()> {
    let ConstraintKind::ForeignKey { columns, parent, parent_columns, match_full, .. } = &constraint.kind
    else {
        panic!("{constraint:?} is no foreign key");
    };
    let parent = context.table(*parent);
    let names = |table: &TableDef, columns: &[u16]| -> Vec<String> {
        columns.iter().map(|column| table.columns[usize::from(*column)].name.clone()).collect()
    };
    let (ours, theirs) = (names(table, columns), names(&parent, parent_columns));
    let listed = |with: &str, part: &dyn Fn(&str) -> String| -> String {
        let parts: Vec<String> = ours.iter().map(|column| part(&quote_ident(column))).collect();
        parts.join(with)
    };
    let pairs = ours.iter().zip(&theirs);
    let matches: Vec<String> = pairs
        .map(|(ours, theirs)| format!("parent.{} = child.{}", quote_ident(theirs), quote_ident(ours)))
        .collect();
    let text = format!(
        "SELECT {} FROM {} AS child WHERE {} AND NOT EXISTS (SELECT 1 FROM {} AS parent WHERE {}) LIMIT 1",
        listed(", ", &|column| format!("child.{column}::text")),
        context.sql_name(table.schema, &table.name),
        // MATCH FULL: a key with some NULLs references nothing, and must not be.
        format_args!(
            "({})",
            listed(if *match_full { " OR " } else { " AND " }, &|column| format!(
                "child.{column} IS NOT NULL"
            ))
        ),
        context.sql_name(parent.schema, &parent.name),
        matches.join(" AND ")
    );
    let Some(missing) = context.first_rows(&text)? else { return Ok(()) };
    let values = missing.values.vectors().iter().map(|vector| match vector.datum(0) {
        Datum::Text(text) => Some(text.to_owned()),
        Datum::Null => None,
        other => panic!("{other:?} was cast to text"),
    });
    let values: Option<Vec<String>> = values.collect();
    let detail = match values {
        None => MIXED_NULLS.to_owned(),
        Some(values) => format!(
            "Key ({})=({}) is not present in table \"{}\".",
            ours.join(", "),
            values.join(", "),
            parent.name
        ),
    };
    Err(Error::new(
        SqlState::FOREIGN_KEY_VIOLATION,
        format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            table.name, constraint.name
        ),
    )
    .with_detail(detail)
    .with_constraint(constraint.name.clone()))
}

const MIXED_NULLS: &str = "MATCH FULL does not allow mixing of null and nonnull key values.";
