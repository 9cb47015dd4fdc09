//! Table constraints: creating them, naming them, checking the existing rows.

use super::{Context, drop, expression, foreign_key, index, parameter, rename, rewrite};
use crate::statement::{ObjectKind, quote_ident};
use firn_base::{Error, Result, SqlState};
use firn_syntax::tree::{
    ConstraintAttributes, ConstraintIndex, Expr, Name, TableConstraint, TableConstraintKind,
};
use firn_txn::catalog::{
    ConstraintDef, ConstraintKind, Deferral, IndexAnnotations, IndexColumnDef, IndexDef, TableDef,
};

/// Whether existing rows may violate a constraint that is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rows {
    /// The table has just been made and is empty.
    None,
    /// They are checked.
    Check,
    /// NOT VALID: they are not checked.
    Trust,
}

/// Adds a constraint to a table that is in the catalog. The caller has locked the table. `text` is the text from which the constraint was parsed.
pub(super) fn add(
    context: &mut Context<'_>,
    text: &str,
    table: &mut TableDef,
    constraint: &TableConstraint,
    rows: Rows,
) -> Result<()> {
    let given = constraint.name.as_ref();
    let attributes = &constraint.attributes;
    let rows = match rows {
        Rows::Check if attributes.not_valid => Rows::Trust,
        rows => rows,
    };
    match &constraint.kind {
        TableConstraintKind::Check(condition) => add_check(context, text, table, given, condition, rows),
        TableConstraintKind::Unique { is_primary, nulls_not_distinct, columns, include, index } => {
            let parameters = check_index(index)?;
            let mut annotations = IndexAnnotations { parameters, ..IndexAnnotations::default() };
            for column in include {
                let (id, _) = table.column(&column.text).ok_or_else(|| missing_in_key(&column.text))?;
                annotations.include.push(id.0);
            }
            if *is_primary {
                refuse_second_primary_key(table)?;
            }
            let columns = key_columns(table, columns)?;
            if *is_primary {
                for column in &columns {
                    set_not_null(context, table, column.column, rows)?;
                }
            }
            let key = Key {
                columns,
                primary: *is_primary,
                nulls_not_distinct: *nulls_not_distinct,
                deferral: deferral(attributes),
                annotations,
            };
            add_key(context, table, given, key)
        }
        TableConstraintKind::UsingIndex { is_primary, index } => {
            use_index(context, table, given, index, *is_primary, deferral(attributes), rows)
        }
        TableConstraintKind::ForeignKey { columns, reference } => {
            let key = foreign_key::Key { given, columns, reference, deferral: deferral(attributes) };
            foreign_key::add(context, table, &key, rows)
        }
        TableConstraintKind::Exclude { .. } => Err(Error::unsupported("an exclusion constraint")
            .with_hint("UNIQUE constraints exclude rows that are equal.")),
    }
}

/// The columns of a primary key among constraints that are about to be added.
pub(super) fn primary_key_columns(constraints: &[TableConstraint]) -> Vec<String> {
    let key = constraints.iter().find_map(|constraint| match &constraint.kind {
        TableConstraintKind::Unique { is_primary: true, columns, .. } => Some(columns),
        _ => None,
    });
    key.map(|columns| columns.iter().map(|column| column.text.to_string()).collect()).unwrap_or_default()
}

/// When a constraint is tested, according to its attributes.
pub(super) fn deferral(attributes: &ConstraintAttributes) -> Deferral {
    match (attributes.deferrable, attributes.initially_deferred) {
        (_, true) => Deferral::InitiallyDeferred,
        (true, false) => Deferral::InitiallyImmediate,
        (false, false) => Deferral::Never,
    }
}

/// The parameters of a constraint's index that are only shown.
fn check_index(index: &ConstraintIndex) -> Result<Vec<(String, String)>> {
    super::kinds::check_tablespace(index.tablespace.as_ref())?;
    match parameter::of_index(&index.options)? {
        (true, shown) => Ok(shown),
        (false, _) => Err(index::unique_without_values()),
    }
}

fn refuse_second_primary_key(table: &TableDef) -> Result<()> {
    match table.primary_key() {
        None => Ok(()),
        Some(_) => Err(Error::new(
            SqlState::INVALID_TABLE_DEFINITION,
            format!("multiple primary keys for table \"{}\" are not allowed", table.name),
        )),
    }
}

fn missing_in_key(column: &str) -> Error {
    Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{column}\" named in key does not exist"))
}

fn key_columns(table: &TableDef, columns: &[Name]) -> Result<Vec<IndexColumnDef>> {
    let mut names: Vec<String> = Vec::with_capacity(columns.len());
    for column in columns {
        let name = column.text.to_string();
        let Some((_, known)) = table.column(&name) else { return Err(missing_in_key(&name)) };
        index::check_order(known.ty.declared)?;
        if names.contains(&name) {
            return Err(Error::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" appears twice in a key constraint"),
            ));
        }
        names.push(name);
    }
    index::plain_columns(table, &names)
}

/// Returns the given name, or makes one as PostgreSQL does. 42710 if the table has it.
pub(super) fn name(
    context: &Context<'_>,
    table: &TableDef,
    given: Option<&Name>,
    stem: &str,
    suffix: &str,
) -> Result<String> {
    let taken: Vec<String> = table.constraints.iter().map(|constraint| constraint.name.clone()).collect();
    match given {
        Some(given) => {
            let name = given.text.to_string();
            if taken.contains(&name) {
                return Err(Error::new(
                    SqlState::DUPLICATE_OBJECT,
                    format!("constraint \"{name}\" for relation \"{}\" already exists", table.name),
                ));
            }
            Ok(name)
        }
        None => {
            let indexes = table.visible_indexes().map(|index| index.name.clone());
            let taken: Vec<String> = taken.into_iter().chain(indexes).collect();
            Ok(context.names().fresh(table.schema, stem, suffix, &taken))
        }
    }
}

/// A primary key or a unique constraint.
pub(super) struct Key {
    pub columns: Vec<IndexColumnDef>,
    pub primary: bool,
    pub nulls_not_distinct: bool,
    pub deferral: Deferral,
    pub annotations: IndexAnnotations,
}

/// Adds a primary key or a unique constraint over valid columns.
pub(super) fn add_key(
    context: &mut Context<'_>,
    table: &mut TableDef,
    given: Option<&Name>,
    key: Key,
) -> Result<()> {
    let Key { columns, primary, nulls_not_distinct, deferral, annotations } = key;
    let name = match primary {
        true => name(context, table, given, &table.name, "pkey")?,
        false => {
            name(context, table, given, &index::default_stem(table, &columns, &annotations.include), "key")?
        }
    };
    if context.names().relation_in(table.schema, &name).is_some() {
        return Err(super::already_exists(ObjectKind::Index, &name));
    }
    let definition = IndexDef {
        oid: context.allocate(),
        name: name.clone(),
        columns,
        unique: true,
        nulls_not_distinct,
        values: true,
        deferral,
        condition: None,
        internal: false,
        annotations,
    };
    index::build(context, table, &definition)?;
    let index = definition.oid;
    let kind = if primary { ConstraintKind::PrimaryKey { index } } else { ConstraintKind::Unique { index } };
    table.indexes.push(definition);
    table.constraints.push(ConstraintDef { oid: context.allocate(), name, kind, valid: true });
    Ok(())
}

/// ADD PRIMARY KEY USING INDEX, ADD UNIQUE USING INDEX
fn use_index(
    context: &mut Context<'_>,
    table: &mut TableDef,
    given: Option<&Name>,
    index: &Name,
    primary: bool,
    deferral: Deferral,
    rows: Rows,
) -> Result<()> {
    let wanted = index.text.to_string();
    let Some(position) = table.indexes.iter().position(|index| !index.internal && index.name == wanted)
    else {
        return Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("index \"{wanted}\" does not exist")));
    };
    if !table.indexes[position].unique {
        return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{wanted}\" is not a unique index"))
            .with_detail("Cannot create a primary key or unique constraint using such an index."));
    }
    let refused = match &table.indexes[position] {
        found if found.key_columns().iter().any(|part| table.columns[usize::from(part.column)].hidden) => {
            Some(format!("index \"{wanted}\" contains expressions"))
        }
        found if found.condition.is_some() => Some(format!("\"{wanted}\" is a partial index")),
        _ => None,
    };
    if let Some(message) = refused {
        return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message)
            .with_detail("Cannot create a primary key or unique constraint using such an index."));
    }
    let oid = table.indexes[position].oid;
    let has_it = |constraint: &ConstraintDef| match constraint.kind {
        ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index } => index == oid,
        _ => false,
    };
    if table.constraints.iter().any(has_it) {
        return Err(Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("index \"{wanted}\" is already associated with a constraint"),
        ));
    }
    if deferral != Deferral::Never && !drop::relying_foreign_keys(context, table, oid).is_empty() {
        return Err(foreign_key::deferrable_target("unique constraint", table)
            .with_hint("Foreign keys rely on the index. Create another one for the constraint."));
    }
    if primary {
        refuse_second_primary_key(table)?;
        for column in table.indexes[position].columns.clone() {
            set_not_null(context, table, column.column, rows)?;
        }
    }
    let name = match given {
        Some(given) => name(context, table, Some(given), "", "")?,
        None => wanted.clone(),
    };
    if name != wanted || deferral != Deferral::Never {
        let definition = &mut table.indexes[position];
        definition.name = name.clone();
        definition.deferral = deferral;
        let definition = definition.clone();
        rename::rebuild(context, table, &definition)?;
    }
    let index = table.indexes[position].oid;
    let kind = if primary { ConstraintKind::PrimaryKey { index } } else { ConstraintKind::Unique { index } };
    table.constraints.push(ConstraintDef { oid: context.allocate(), name, kind, valid: true });
    Ok(())
}

/// Forbids NULLs in a column, once no row has any. The physical column may still hold them.
pub(super) fn set_not_null(
    context: &mut Context<'_>,
    table: &mut TableDef,
    column: u16,
    rows: Rows,
) -> Result<()> {
    let column = usize::from(column);
    if table.columns[column].not_null {
        return Ok(());
    }
    if rows != Rows::None {
        let text = format!(
            "SELECT 1 FROM {} WHERE {} IS NULL LIMIT 1",
            context.sql_name(table.schema, &table.name),
            quote_ident(&table.columns[column].name)
        );
        if context.first_rows(&text)?.is_some() {
            return Err(rewrite::contains_nulls(context, table, &table.columns[column].name));
        }
    }
    table.columns[column].not_null = true;
    Ok(())
}

fn add_check(
    context: &mut Context<'_>,
    text: &str,
    table: &mut TableDef,
    given: Option<&Name>,
    condition: &Expr,
    rows: Rows,
) -> Result<()> {
    let (expression, columns) = expression::check(context, text, table, condition)?;
    let stem = match columns.as_slice() {
        [only] => format!("{}_{}", table.name, table.columns[usize::from(*only)].name),
        _ => table.name.clone(),
    };
    let name = name(context, table, given, &stem, "check")?;
    if rows == Rows::Check {
        verify_check(context, table, &name, &expression)?;
    }
    let oid = context.allocate();
    let kind = ConstraintKind::Check { expression };
    table.constraints.push(ConstraintDef { oid, name, kind, valid: rows != Rows::Trust });
    Ok(())
}

/// 23514 if a row violates the condition.
pub(super) fn verify_check(
    context: &mut Context<'_>,
    table: &TableDef,
    name: &str,
    expression: &str,
) -> Result<()> {
    let text = format!(
        "SELECT 1 FROM {} AS {} WHERE NOT ({expression}) LIMIT 1",
        context.sql_name(table.schema, &table.name),
        quote_ident(&table.name),
    );
    if context.first_rows(&text)?.is_some() {
        return Err(Error::new(
            SqlState::CHECK_VIOLATION,
            format!("check constraint \"{name}\" of relation \"{}\" is violated by some row", table.name),
        )
        .with_constraint(name));
    }
    Ok(())
}

/// ALTER CONSTRAINT: only the time at which a foreign key is tested can be altered.
pub(super) fn alter(
    context: &mut Context<'_>,
    mut table: TableDef,
    name: &str,
    attributes: &ConstraintAttributes,
) -> Result<()> {
    let wanted = deferral(attributes);
    let Some(found) = table.constraints.iter_mut().find(|constraint| constraint.name == name) else {
        return Err(missing_constraint(&table, name));
    };
    let ConstraintKind::ForeignKey { deferral: tested, .. } = &mut found.kind else {
        return Err(Error::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("constraint \"{name}\" of relation \"{}\" is not a foreign key constraint", table.name),
        ));
    };
    *tested = wanted;
    context.put_table(table)
}

/// VALIDATE CONSTRAINT: from here on all rows are known to satisfy it.
pub(super) fn validate(context: &mut Context<'_>, mut table: TableDef, name: &str) -> Result<()> {
    let Some(position) = table.constraints.iter().position(|constraint| constraint.name == name) else {
        return Err(missing_constraint(&table, name));
    };
    let found = &table.constraints[position];
    match &found.kind {
        ConstraintKind::Check { .. } | ConstraintKind::ForeignKey { .. } if found.valid => return Ok(()),
        ConstraintKind::Check { expression } => verify_check(context, &table, name, expression)?,
        ConstraintKind::ForeignKey { .. } => foreign_key::verify(context, &table, found)?,
        ConstraintKind::PrimaryKey { .. } | ConstraintKind::Unique { .. } => {
            let of = format!("constraint \"{name}\" of relation \"{}\"", table.name);
            return Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("{of} is not a foreign key or check constraint"),
            ));
        }
    }
    table.constraints[position].valid = true;
    context.put_table(table)
}

/// 42704
pub(super) fn missing_constraint(table: &TableDef, name: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_OBJECT,
        format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name),
    )
}
