//! ALTER TABLE … ALTER COLUMN.

use super::alter::identity_sources;
use super::{
    Context, column, constraint, create, expression, foreign_key, index, parameter, rewrite, sequence, view,
};
use crate::names::missing_column;
use crate::statement::quote_ident;
use firn_base::{ColumnId, Error, Result, SqlState};
use firn_bind::Place;
use firn_syntax::print;
use firn_syntax::tree::{ColumnChange, Expr, IdentityChange, Name, SequenceOption};
use firn_txn::catalog::{ColumnType, ConstraintKind, TableDef};

/// ALTER COLUMN. `text` is the text from which the change was parsed.
pub(super) fn alter(
    context: &mut Context<'_>,
    text: &str,
    mut table: TableDef,
    name: &Name,
    change: &ColumnChange,
) -> Result<()> {
    let name = &*name.text;
    let Some((id, _)) = table.column(name) else { return Err(missing_column(&table, name)) };
    let column = id.index();
    match change {
        ColumnChange::SetNotNull => {
            constraint::set_not_null(context, &mut table, id.0, constraint::Rows::Check)?;
            context.put_table(table)
        }
        ColumnChange::DropNotNull => drop_not_null(context, table, id),
        ColumnChange::SetDefault(value) => {
            refuse_identity(&table, id)?;
            refuse_generated(&table, id, false)?;
            let ty = table.columns[column].ty.declared;
            table.columns[column].default = expression::default(context, text, name, ty, value)?;
            context.put_table(table)
        }
        ColumnChange::DropDefault => {
            refuse_identity(&table, id)?;
            refuse_generated(&table, id, true)?;
            table.columns[column].default = None;
            context.put_table(table)
        }
        ColumnChange::Type { type_name, collation, using } => {
            if let Some(collation) = collation {
                column::check_collation(collation)?;
            }
            let ty = column::column_type(context, text, name, type_name)?;
            set_type(context, text, table, id, ty, using.as_ref())
        }
        ColumnChange::AddIdentity { always, options } => {
            add_identity(context, text, table, id, *always, options)
        }
        ColumnChange::SetIdentity(changes) => set_identity(context, text, table, id, changes),
        ColumnChange::DropIdentity { if_exists } => drop_identity(context, table, id, *if_exists),
        ColumnChange::DropExpression { .. } if table.columns[column].generated.is_some() => {
            table.columns[column].generated = None;
            context.put_table(table)
        }
        ColumnChange::DropExpression { if_exists } => {
            let message =
                format!("column \"{name}\" of relation \"{}\" is not a stored generated column", table.name);
            match if_exists {
                true => {
                    context.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{message}, skipping"));
                    Ok(())
                }
                false => Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)),
            }
        }
        // How PostgreSQL samples and stores; FirnDB does so in its own way.
        ColumnChange::SetStatistics(target) => check_statistics(context, *target),
        ColumnChange::SetStorage(storage) => {
            column::check_storage(table.columns[column].ty.declared, &storage.text)
        }
        ColumnChange::SetCompression(method) => {
            column::check_compression(table.columns[column].ty.declared, &method.text)
        }
        ColumnChange::SetOptions(options) => parameter::check_of_column(options),
        ColumnChange::ResetOptions(options) => parameter::refuse_values_of_reset(options),
        ColumnChange::Options(_) => {
            Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a foreign table", table.name)))
        }
    }
}

/// 22023 for a statistics target that is too low; a warning for one that is too high.
pub(super) fn check_statistics(context: &mut Context<'_>, target: i32) -> Result<()> {
    const MOST: i32 = 10_000;
    if target < -1 {
        let message = format!("statistics target {target} is too low");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    if target > MOST {
        let message = format!("lowering statistics target to {MOST}");
        context.notice(SqlState::INVALID_PARAMETER_VALUE, message);
    }
    Ok(())
}

/// 42601 for a default of an identity column.
fn refuse_identity(table: &TableDef, column: ColumnId) -> Result<()> {
    let found = &table.columns[column.index()];
    match found.identity {
        None => Ok(()),
        Some(_) => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("column \"{}\" of relation \"{}\" is an identity column", found.name, table.name),
        )),
    }
}

/// 42601 for a default of a generated column.
fn refuse_generated(table: &TableDef, column: ColumnId, drops: bool) -> Result<()> {
    let found = &table.columns[column.index()];
    if found.generated.is_none() {
        return Ok(());
    }
    let message = format!("column \"{}\" of relation \"{}\" is a generated column", found.name, table.name);
    let error = Error::new(SqlState::SYNTAX_ERROR, message);
    Err(match drops {
        true => error.with_hint("Use ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION instead."),
        false => error,
    })
}

fn drop_not_null(context: &mut Context<'_>, mut table: TableDef, column: ColumnId) -> Result<()> {
    if table.primary_key().is_some_and(|key| key.columns.iter().any(|found| found.column == column.0)) {
        return Err(Error::new(
            SqlState::INVALID_TABLE_DEFINITION,
            format!("column \"{}\" is in a primary key", table.columns[column.index()].name),
        ));
    }
    refuse_identity(&table, column)?;
    let old = table.clone();
    table.columns[column.index()].not_null = false;
    let nullable = context.transaction.table(old.storage()).columns()[column.index()].nullable;
    match nullable {
        true => context.put_table(table),
        false => {
            let sources = identity_sources(&table);
            rewrite::table(context, &old, table, &sources)
        }
    }
}

/// ADD GENERATED … AS IDENTITY
fn add_identity(
    context: &mut Context<'_>,
    text: &str,
    mut table: TableDef,
    column: ColumnId,
    always: bool,
    options: &[SequenceOption],
) -> Result<()> {
    let found = &table.columns[column.index()];
    let refuse = |message: &str| {
        let message = format!("column \"{}\" of relation \"{}\" {message}", found.name, table.name);
        Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
    };
    if !found.not_null {
        return refuse("must be declared NOT NULL before identity can be added");
    }
    if found.identity.is_some() {
        return refuse("is already an identity column");
    }
    if found.default.is_some() || found.generated.is_some() {
        return refuse("already has a default value");
    }
    column::check_identity_type(found.ty.declared)?;
    let options = sequence::options_of(context, text, options, true)?;
    table.columns[column.index()].identity = Some(column::identity(always));
    let place = (table.schema, table.name.as_str());
    let owner = (table.oid, column.0);
    create::add_sequence(context, place, owner, &table.columns[column.index()], &options)?;
    context.put_table(table)
}

fn not_an_identity(table: &TableDef, column: ColumnId) -> String {
    let name = &table.columns[column.index()].name;
    format!("column \"{name}\" of relation \"{}\" is not an identity column", table.name)
}

/// SET GENERATED, SET option, RESTART
fn set_identity(
    context: &mut Context<'_>,
    text: &str,
    mut table: TableDef,
    column: ColumnId,
    changes: &[IdentityChange],
) -> Result<()> {
    if table.columns[column.index()].identity.is_none() {
        let message = not_an_identity(&table, column);
        return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    }
    let mut options = Vec::new();
    let mut generated = None;
    for change in changes {
        match change {
            IdentityChange::Generated { always } => {
                if generated.replace(*always).is_some() {
                    return Err(Error::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options"));
                }
            }
            IdentityChange::Option(option) => options.push(option.clone()),
        }
    }
    if !options.is_empty() {
        let options = sequence::options_of(context, text, &options, false)?;
        let owned = context.transaction.catalog().identity_sequence(table.oid, column.0).cloned();
        let owned = owned.ok_or_else(|| Error::internal("an identity column has no sequence"))?;
        sequence::change(context, &owned, &options)?;
    }
    if let Some(always) = generated {
        table.columns[column.index()].identity = Some(column::identity(always));
        context.put_table(table)?;
    }
    Ok(())
}

fn drop_identity(
    context: &mut Context<'_>,
    mut table: TableDef,
    column: ColumnId,
    if_exists: bool,
) -> Result<()> {
    if table.columns[column.index()].identity.is_none() {
        let message = not_an_identity(&table, column);
        if if_exists {
            context.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{message}, skipping"));
            return Ok(());
        }
        return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    }
    let catalog = context.catalog_mut()?;
    if let Some(sequence) = catalog.identity_sequence(table.oid, column.0).map(|sequence| sequence.oid) {
        catalog.sequences.remove(&sequence);
    }
    table.columns[column.index()].identity = None;
    context.put_table(table)
}

/// ALTER COLUMN TYPE: every row is rewritten with the column cast.
fn set_type(
    context: &mut Context<'_>,
    text: &str,
    table: TableDef,
    id: ColumnId,
    ty: ColumnType,
    using: Option<&Expr>,
) -> Result<()> {
    let (position, column) = (id.0, id.index());
    let name = table.columns[column].name.clone();
    // A plain numeric column of an older directory has another representation than a new one; it need not change.
    if table.columns[column].ty.declared == ty.declared && using.is_none() {
        return Ok(());
    }
    if using.is_some() && table.columns[column].generated.is_some() {
        return Err(Error::new(
            SqlState::INVALID_COLUMN_DEFINITION,
            "cannot specify USING when altering type of generated column",
        )
        .with_detail(format!("Column \"{name}\" is a generated column.")));
    }
    if let Some(over) = expression::generated_over(&table, id).first() {
        let over = &table.columns[over.index()].name;
        return Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "cannot alter type of a column used by a generated column",
        )
        .with_detail(format!("Column \"{name}\" is used by generated column \"{over}\".")));
    }
    let views = view::dependents_on(context, &table, position);
    if let Some(view) = views.first() {
        return Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "cannot alter type of a column used by a view or rule",
        )
        .with_detail(format!("rule _RETURN on view {} depends on column \"{name}\"", view.name)));
    }
    let keys = foreign_key::keys_with(context, table.oid, position);
    for (child, key) in &keys {
        let ConstraintKind::ForeignKey { columns, parent, parent_columns, .. } = &key.kind else {
            unreachable!("only foreign keys refer")
        };
        let (child, parent) = (context.table(*child), context.table(*parent));
        for other in [&child, &parent].into_iter().filter(|other| other.oid != table.oid) {
            context.lock(other)?;
        }
        let with_type = |of: &TableDef, number: u16| {
            let mut column = of.columns[usize::from(number)].clone();
            if (of.oid, number) == (table.oid, position) {
                column.ty = ty;
            }
            column
        };
        for (ours, theirs) in columns.iter().zip(parent_columns) {
            foreign_key::check_comparable(
                &key.name,
                &with_type(&child, *ours),
                &with_type(&parent, *theirs),
            )?;
        }
    }
    if table.columns[column].identity.is_some() {
        column::check_identity_type(ty.declared)?;
    }
    if let Some(using) = using {
        let place = Place::Using { column: &name, ty: ty.declared };
        expression::over_table(context, text, &table, using, place)?;
    }
    // The default must fit the new type as well.
    if let Some(default) = &table.columns[column].default {
        let types = (table.columns[column].ty.declared, ty.declared);
        expression::check_default(context, &name, types, default)?;
    }
    let old = table.clone();
    let mut new = table;
    new.columns[column].ty = ty;
    index::retype_hidden_columns(context, &old, &mut new, id)?;
    let mut sources = Vec::new();
    for (id, found) in old.visible_columns() {
        sources.push(Some(match using {
            Some(using) if id.0 == position => format!("({})", print::expression(using)),
            _ => quote_ident(&found.name),
        }));
    }
    let oid = new.oid;
    let result = rewrite::table(context, &old, new, &sources);
    result.map_err(|error| match (error.state(), using) {
        (SqlState::DATATYPE_MISMATCH, None) => Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!("column \"{name}\" cannot be cast automatically to type {}", ty.declared),
        )
        .with_hint(format!(
            "You might need to specify \"USING {}::{}\".",
            quote_ident(&name),
            ty.declared
        )),
        _ => error,
    })?;
    check_again(context, &TableDef::clone(&context.table(oid)), position)?;
    for (child, key) in keys.iter().filter(|(_, key)| key.valid) {
        let child = context.table(*child);
        foreign_key::verify(context, &child, key)?;
    }
    Ok(())
}

/// Conditions over a column whose type has changed are those of the new type.
fn check_again(context: &mut Context<'_>, table: &TableDef, column: u16) -> Result<()> {
    for found in &table.constraints {
        let ConstraintKind::Check { expression } = &found.kind else { continue };
        let condition = crate::parse::parse_expression(expression)?;
        if !expression::columns_in(table, &condition).contains(&column) {
            continue;
        }
        expression::over_table(context, expression, table, &condition, Place::Check)
            .map_err(Error::without_position)?;
        if found.valid {
            constraint::verify_check(context, table, &found.name, expression)?;
        }
    }
    Ok(())
}
