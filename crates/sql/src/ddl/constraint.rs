//! Table constraints: making them, naming them, checking the rows that are already there.

use super::{Context, alter, drop, index, rewrite};
use crate::names::{Relation, missing_column, wrong_kind};
use crate::statement::{ObjectKind, fold, qualified_name, quote_ident};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::DFSchema;
use datafusion::logical_expr::ExprSchemable;
use datafusion::sql::sqlparser::ast::{self, Expr};
use firn_base::{Error, Result, SqlState, SqlType};
use firn_txn::catalog::{
    ConstraintDef, ConstraintKind, Deferral, IndexColumnDef, IndexDef, ReferentialAction, TableDef,
};

/// Whether rows may already violate a constraint that is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rows {
    /// The table has just been made and is empty.
    None,
    /// They are to be checked.
    Check,
    /// NOT VALID: they are not to be checked.
    Trust,
}

/// Adds a constraint to a table that is in the catalog. The caller has locked it.
pub(super) fn add(
    context: &mut Context<'_>,
    table: &mut TableDef,
    constraint: &ast::TableConstraint,
    rows: Rows,
) -> Result<()> {
    let kept_by_index = match constraint {
        ast::TableConstraint::PrimaryKey(_) | ast::TableConstraint::PrimaryKeyUsingIndex(_) => "PRIMARY KEY",
        ast::TableConstraint::Unique(_) | ast::TableConstraint::UniqueUsingIndex(_) => "UNIQUE",
        _ => "",
    };
    if rows == Rows::Trust && !kept_by_index.is_empty() {
        let message = format!("{kept_by_index} constraints cannot be marked NOT VALID");
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    match constraint {
        ast::TableConstraint::PrimaryKey(key) => {
            let deferral = deferral(&key.characteristics)?;
            if table.primary_key().is_some() {
                return Err(Error::new(
                    SqlState::INVALID_TABLE_DEFINITION,
                    format!("multiple primary keys for table \"{}\" are not allowed", table.name),
                ));
            }
            let columns = key_columns(table, &key.columns)?;
            for column in &columns {
                set_not_null(context, table, column.column, rows)?;
            }
            add_key(context, table, key.name.as_ref(), columns, true, deferral)
        }
        ast::TableConstraint::Unique(key) => {
            let deferral = deferral(&key.characteristics)?;
            if matches!(key.nulls_distinct, ast::NullsDistinctOption::NotDistinct) {
                return Err(Error::unsupported("NULLS NOT DISTINCT"));
            }
            let columns = key_columns(table, &key.columns)?;
            add_key(context, table, key.name.as_ref(), columns, false, deferral)
        }
        ast::TableConstraint::Check(check) => add_check(context, table, check, rows),
        ast::TableConstraint::ForeignKey(key) => add_foreign_key(context, table, key, rows),
        ast::TableConstraint::PrimaryKeyUsingIndex(using) => use_index(context, table, using, true, rows),
        ast::TableConstraint::UniqueUsingIndex(using) => use_index(context, table, using, false, rows),
        other => Err(Error::unsupported(format!("constraint {other}"))),
    }
}

/// The columns of a primary key among constraints that are about to be added.
pub(super) fn primary_key_columns(constraints: &[ast::TableConstraint]) -> Vec<String> {
    let key = constraints.iter().find_map(|constraint| match constraint {
        ast::TableConstraint::PrimaryKey(key) => Some(&key.columns),
        _ => None,
    });
    let name = |column: &ast::IndexColumn| match &column.column.expr {
        Expr::Identifier(name) => Some(fold(name)),
        _ => None,
    };
    key.map(|columns| columns.iter().filter_map(name).collect()).unwrap_or_default()
}

/// When a constraint is tested, by what was written behind it.
pub(super) fn deferral(characteristics: &Option<ast::ConstraintCharacteristics>) -> Result<Deferral> {
    let Some(characteristics) = characteristics else { return Ok(Deferral::Never) };
    refuse_unenforced(characteristics.enforced)?;
    let initially_deferred = matches!(characteristics.initially, Some(ast::DeferrableInitial::Deferred));
    match (characteristics.deferrable, initially_deferred) {
        (Some(false), true) => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "constraint declared INITIALLY DEFERRED must be DEFERRABLE",
        )),
        (_, true) => Ok(Deferral::InitiallyDeferred),
        (Some(true), false) => Ok(Deferral::InitiallyImmediate),
        (_, false) => Ok(Deferral::Never),
    }
}

fn refuse_unenforced(enforced: Option<bool>) -> Result<()> {
    match enforced {
        Some(false) => Err(Error::unsupported("NOT ENFORCED").with_hint("Constraints are always enforced.")),
        _ => Ok(()),
    }
}

fn key_columns(table: &TableDef, columns: &[ast::IndexColumn]) -> Result<Vec<IndexColumnDef>> {
    let mut names = Vec::with_capacity(columns.len());
    for column in columns {
        let Expr::Identifier(name) = &column.column.expr else {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "a key is made of columns"));
        };
        let name = fold(name);
        if table.column(&name).is_none() {
            return Err(Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" named in key does not exist"),
            ));
        }
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

/// Takes the name that was given, or makes one as PostgreSQL does. 42710 if the table has it.
fn name(
    context: &Context<'_>,
    table: &TableDef,
    given: Option<&ast::Ident>,
    stem: &str,
    suffix: &str,
) -> Result<String> {
    let taken: Vec<String> = table.constraints.iter().map(|constraint| constraint.name.clone()).collect();
    match given {
        Some(given) => {
            let name = fold(given);
            if taken.contains(&name) {
                return Err(Error::new(
                    SqlState::DUPLICATE_OBJECT,
                    format!("constraint \"{name}\" for relation \"{}\" already exists", table.name),
                ));
            }
            Ok(name)
        }
        None => {
            let indexes = table.indexes.iter().map(|index| index.name.clone());
            let taken: Vec<String> = taken.into_iter().chain(indexes).collect();
            Ok(context.names().fresh(table.schema, stem, suffix, &taken))
        }
    }
}

/// Adds a primary key or a unique constraint over columns that suit it.
pub(super) fn add_key(
    context: &mut Context<'_>,
    table: &mut TableDef,
    given: Option<&ast::Ident>,
    columns: Vec<IndexColumnDef>,
    primary: bool,
    deferral: Deferral,
) -> Result<()> {
    let name = match primary {
        true => name(context, table, given, &table.name, "pkey")?,
        false => name(context, table, given, &index::default_stem(table, &columns), "key")?,
    };
    if context.names().relation_in(table.schema, &name).is_some() {
        return Err(super::already_exists(ObjectKind::Index, &name));
    }
    let definition = IndexDef {
        oid: context.allocate(),
        name: name.clone(),
        columns,
        unique: true,
        values: true,
        deferral,
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
    using: &ast::ConstraintUsingIndex,
    primary: bool,
    rows: Rows,
) -> Result<()> {
    let deferral = deferral(&using.characteristics)?;
    let wanted = fold(&using.index_name);
    let Some(position) = table.indexes.iter().position(|index| index.name == wanted) else {
        return Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("index \"{wanted}\" does not exist")));
    };
    if !table.indexes[position].unique {
        return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{wanted}\" is not a unique index"))
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
        return Err(deferrable_target("unique constraint", table)
            .with_hint("Foreign keys rely on the index. Create another one for the constraint."));
    }
    if primary {
        if table.primary_key().is_some() {
            return Err(Error::new(
                SqlState::INVALID_TABLE_DEFINITION,
                format!("multiple primary keys for table \"{}\" are not allowed", table.name),
            ));
        }
        for column in table.indexes[position].columns.clone() {
            set_not_null(context, table, column.column, rows)?;
        }
    }
    let name = match &using.name {
        Some(given) => name(context, table, Some(given), "", "")?,
        None => wanted.clone(),
    };
    if name != wanted || deferral != Deferral::Never {
        let definition = &mut table.indexes[position];
        definition.name = name.clone();
        definition.deferral = deferral;
        let definition = definition.clone();
        alter::rebuild(context, table, &definition)?;
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
        if context.any_row(&text)? {
            return Err(rewrite::contains_nulls(context, table, &table.columns[column].name));
        }
    }
    table.columns[column].not_null = true;
    Ok(())
}

/// The columns of a table as expressions see them.
pub(super) fn schema_of(table: &TableDef) -> Result<DFSchema> {
    let fields: Vec<_> = table
        .visible_columns()
        .map(|(_, column)| firn_exec::types::field(&column.name, column.ty.sql_type()))
        .collect();
    DFSchema::try_from_qualified_schema(table.name.as_str(), &Schema::new(fields))
        .map_err(firn_exec::error::from_datafusion)
}

fn add_check(
    context: &mut Context<'_>,
    table: &mut TableDef,
    check: &ast::CheckConstraint,
    rows: Rows,
) -> Result<()> {
    refuse_unenforced(check.enforced)?;
    let columns = columns_in(table, &check.expr);
    let stem = match columns.as_slice() {
        [only] => format!("{}_{}", table.name, table.columns[usize::from(*only)].name),
        _ => table.name.clone(),
    };
    let name = name(context, table, check.name.as_ref(), &stem, "check")?;
    let mut has_query = false;
    let _ = ast::visit_expressions(&*check.expr, |inner| {
        has_query |= matches!(inner, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. });
        std::ops::ControlFlow::<()>::Continue(())
    });
    if has_query {
        return Err(Error::unsupported("a subquery in a check constraint")
            .with_hint("Conditions over several rows or tables cannot be checked row by row."));
    }
    let schema = schema_of(table)?;
    let bound = context.bind(|binder| binder.expression(&check.expr, &schema))?;
    let ty = bound.get_type(&schema).map_err(firn_exec::error::from_datafusion)?;
    if !matches!(ty, DataType::Boolean | DataType::Null) {
        let ty = bound.to_field(&schema).ok().and_then(|(_, field)| firn_exec::types::sql_type(&field));
        let ty = ty.map_or("unknown".to_owned(), |ty| ty.to_string());
        return Err(Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!("argument of CHECK must be type boolean, not type {ty}"),
        ));
    }
    let expression = check.expr.to_string();
    if rows == Rows::Check {
        verify_check(context, table, &name, &expression)?;
    }
    let oid = context.allocate();
    let kind = ConstraintKind::Check { expression };
    table.constraints.push(ConstraintDef { oid, name, kind, valid: rows != Rows::Trust });
    Ok(())
}

/// 23514 if a row is there that the condition refuses.
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
    if context.any_row(&text)? {
        return Err(Error::new(
            SqlState::CHECK_VIOLATION,
            format!("check constraint \"{name}\" of relation \"{}\" is violated by some row", table.name),
        )
        .with_constraint(name));
    }
    Ok(())
}

/// The columns of the table that an expression names, in their order.
pub(crate) fn columns_in(table: &TableDef, expression: &Expr) -> Vec<u16> {
    let mut columns = Vec::new();
    let _ = ast::visit_expressions(expression, |inner| {
        let name = match inner {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        if let Some((id, _)) = name.and_then(|name| table.column(&fold(name)))
            && !columns.contains(&id.0)
        {
            columns.push(id.0);
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    columns.sort_unstable();
    columns
}

fn add_foreign_key(
    context: &mut Context<'_>,
    table: &mut TableDef,
    key: &ast::ForeignKeyConstraint,
    rows: Rows,
) -> Result<()> {
    let deferral = deferral(&key.characteristics)?;
    if !matches!(key.match_kind, None | Some(ast::ConstraintReferenceMatchKind::Simple)) {
        return Err(Error::unsupported("MATCH FULL and MATCH PARTIAL")
            .with_hint("Declare the columns NOT NULL, or add a CHECK that they are all NULL or none."));
    }
    let mut columns = Vec::with_capacity(key.columns.len());
    for column in &key.columns {
        let column = fold(column);
        match table.column(&column) {
            Some((id, _)) => columns.push(id.0),
            None => {
                return Err(Error::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{column}\" referenced in foreign key constraint does not exist"),
                ));
            }
        }
    }
    let parent_name = qualified_name(&key.foreign_table)?;
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
    let parent_columns: Vec<u16> = if key.referred_columns.is_empty() {
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
        key.referred_columns
            .iter()
            .map(|column| {
                let column = fold(column);
                parent.column(&column).map(|(id, _)| id.0).ok_or_else(|| {
                    Error::new(
                        SqlState::UNDEFINED_COLUMN,
                        format!("column \"{column}\" referenced in foreign key constraint does not exist"),
                    )
                })
            })
            .collect::<Result<_>>()?
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
    let name = name(context, table, key.name.as_ref(), &stem, "fkey")?;
    for (column, parent_column) in columns.iter().zip(&parent_columns) {
        let (ours, theirs) =
            (&table.columns[usize::from(*column)], &parent.columns[usize::from(*parent_column)]);
        if !comparable(ours.ty.sql_type(), theirs.ty.sql_type()) {
            return Err(Error::new(
                SqlState::DATATYPE_MISMATCH,
                format!("foreign key constraint \"{name}\" cannot be implemented"),
            )
            .with_detail(format!(
                "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                ours.name, theirs.name, ours.ty, theirs.ty
            )));
        }
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
            on_delete: action(&key.on_delete),
            on_update: action(&key.on_update),
            deferral,
        },
        valid: rows != Rows::Trust,
    };
    if rows == Rows::Check {
        verify_foreign_key(context, table, &constraint)?;
    }
    table.constraints.push(constraint);
    index_foreign_keys(context, table)
}

/// Whether an index finds the rows that point somewhere by these columns.
pub(super) fn leads_with(index: &IndexDef, columns: &[u16]) -> bool {
    index.columns.len() >= columns.len()
        && columns
            .iter()
            .all(|wanted| index.columns[..columns.len()].iter().any(|found| found.column == *wanted))
}

/// Makes an index of its own for every foreign key of a table that has lost the one, or has had none yet, by which those who point are found.
/// Deleting a referenced row must find them, and meet those that other transactions are adding;
/// PostgreSQL leaves that index to the user.
pub(super) fn index_foreign_keys(context: &mut Context<'_>, table: &mut TableDef) -> Result<()> {
    for constraint in table.constraints.clone() {
        let ConstraintKind::ForeignKey { columns, .. } = &constraint.kind else { continue };
        if table.indexes.iter().any(|index| leads_with(index, columns)) {
            continue;
        }
        let names: Vec<&str> =
            columns.iter().map(|column| table.columns[usize::from(*column)].name.as_str()).collect();
        let stem = format!("{}_{}", table.name, names.join("_"));
        let is_taken = context.names().relation_in(table.schema, &constraint.name).is_some();
        let definition = IndexDef {
            oid: context.allocate(),
            name: match is_taken {
                false => constraint.name.clone(),
                true => context.names().fresh(table.schema, &stem, "fkey_idx", &[]),
            },
            columns: columns
                .iter()
                .map(|column| IndexColumnDef { column: *column, descending: false, nulls_first: false })
                .collect(),
            unique: false,
            values: true,
            deferral: Deferral::Never,
        };
        index::build(context, table, &definition)?;
        table.indexes.push(definition);
    }
    Ok(())
}

/// 55000
fn deferrable_target(what: &str, parent: &TableDef) -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("cannot use a deferrable {what} for referenced table \"{}\"", parent.name),
    )
}

/// Whether values of the types can be compared without losing anything.
fn comparable(a: SqlType, b: SqlType) -> bool {
    let integer = |ty| matches!(ty, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    let numeric = |ty| integer(ty) || matches!(ty, SqlType::Numeric { .. });
    let float = |ty| matches!(ty, SqlType::Real | SqlType::Double);
    a == b || numeric(a) && numeric(b) || float(a) && float(b) || a.is_string() && b.is_string()
}

fn action(action: &Option<ast::ReferentialAction>) -> ReferentialAction {
    match action {
        None | Some(ast::ReferentialAction::NoAction) => ReferentialAction::NoAction,
        Some(ast::ReferentialAction::Restrict) => ReferentialAction::Restrict,
        Some(ast::ReferentialAction::Cascade) => ReferentialAction::Cascade,
        Some(ast::ReferentialAction::SetNull) => ReferentialAction::SetNull,
        Some(ast::ReferentialAction::SetDefault) => ReferentialAction::SetDefault,
    }
}

/// ALTER CONSTRAINT: only when a foreign key is tested can be altered.
pub(super) fn alter(
    context: &mut Context<'_>,
    mut table: TableDef,
    name: &str,
    characteristics: &Option<ast::ConstraintCharacteristics>,
) -> Result<()> {
    let wanted = deferral(characteristics)?;
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

/// VALIDATE CONSTRAINT: from here on all rows are known to meet it.
pub(super) fn validate(context: &mut Context<'_>, mut table: TableDef, name: &str) -> Result<()> {
    let Some(position) = table.constraints.iter().position(|constraint| constraint.name == name) else {
        return Err(missing_constraint(&table, name));
    };
    let found = &table.constraints[position];
    match &found.kind {
        ConstraintKind::Check { .. } | ConstraintKind::ForeignKey { .. } if found.valid => return Ok(()),
        ConstraintKind::Check { expression } => verify_check(context, &table, name, expression)?,
        ConstraintKind::ForeignKey { .. } => verify_foreign_key(context, &table, found)?,
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

/// 23503 if a row is there that points nowhere. `table` is as the catalog has it or will have it;
/// the constraint need not be in it.
pub(super) fn verify_foreign_key(
    context: &mut Context<'_>,
    table: &TableDef,
    constraint: &ConstraintDef,
) -> Result<()> {
    let ConstraintKind::ForeignKey { columns, parent, parent_columns, .. } = &constraint.kind else {
        panic!("{constraint:?} is no foreign key");
    };
    let parent = context.table(*parent);
    let ours: Vec<String> =
        columns.iter().map(|column| quote_ident(&table.columns[usize::from(*column)].name)).collect();
    let theirs: Vec<String> =
        parent_columns.iter().map(|column| quote_ident(&parent.columns[usize::from(*column)].name)).collect();
    let join = |parts: Vec<String>, with: &str| parts.join(with);
    let text = format!(
        "SELECT {} FROM {} AS child WHERE {} AND NOT EXISTS (SELECT 1 FROM {} AS parent WHERE {}) LIMIT 1",
        join(ours.iter().map(|column| format!("CAST(child.{column} AS text)")).collect(), ", "),
        context.sql_name(table.schema, &table.name),
        join(ours.iter().map(|column| format!("child.{column} IS NOT NULL")).collect(), " AND "),
        context.sql_name(parent.schema, &parent.name),
        join(
            ours.iter()
                .zip(&theirs)
                .map(|(ours, theirs)| format!("parent.{theirs} = child.{ours}"))
                .collect(),
            " AND "
        ),
    );
    let mut missing: Option<String> = None;
    context.query(&text, |_, batch| {
        if batch.num_rows() > 0 {
            let values = batch.columns().iter().map(|column| {
                let strings = datafusion::arrow::compute::cast(column, &DataType::Utf8);
                strings.map(|strings| strings.as_string::<i32>().value(0).to_owned()).unwrap_or_default()
            });
            missing = Some(values.collect::<Vec<_>>().join(", "));
        }
        Ok(())
    })?;
    match missing {
        None => Ok(()),
        Some(values) => Err(Error::new(
            SqlState::FOREIGN_KEY_VIOLATION,
            format!(
                "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
                table.name, constraint.name
            ),
        )
        .with_detail(format!(
            "Key ({})=({values}) is not present in table \"{}\".",
            ours.join(", "),
            parent.name
        ))
        .with_constraint(constraint.name.clone())),
    }
}

/// Renames a column inside the text of an expression over the table.
pub(super) fn rename_in_expression(text: &str, from: &str, to: &str) -> Result<String> {
    let mut expression = crate::parse::parse_expression(text)?;
    let _ = ast::visit_expressions_mut(&mut expression, |inner| {
        let name = match inner {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last_mut(),
            _ => None,
        };
        if let Some(name) = name
            && fold(name) == from
        {
            *name = ast::Ident::with_quote('"', to);
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    Ok(expression.to_string())
}

/// 42704
pub(super) fn missing_constraint(table: &TableDef, name: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_OBJECT,
        format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name),
    )
}

/// The position of a column by name; 42703 without one.
pub(super) fn column_position(table: &TableDef, name: &str) -> Result<u16> {
    match table.column(name) {
        Some((id, _)) => Ok(id.0),
        None => Err(missing_column(table, name)),
    }
}
