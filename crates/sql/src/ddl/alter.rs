//! ALTER TABLE: its actions, and those of ALTER VIEW, ALTER INDEX and ALTER SEQUENCE.
//!
//! The actions of a statement are executed in PostgreSQL's order: first those that drop, then types, new columns, properties of
//! columns, constraints, and all others; within each group in the order of the text.

use super::{
    Context, alter_column, column, constraint, create, drop, expression, foreign_key, index, kinds,
    parameter, rewrite, view,
};
use crate::names::{Relation, wrong_kind};
use crate::statement::{ObjectKind, QualifiedName, quote_ident};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, SqlState};
use firn_syntax::tree::{
    AlterTable, AlterTableKind, ChangeOwner, ColumnChange, ColumnDef, MoveAll, Name, ObjectReference,
    ObjectType, Role, TableConstraintKind, TriggerChoice,
};
use firn_txn::catalog::{ConstraintKind, IndexDef, Oid, TableDef, TableSettings};

/// ALTER TABLE and its relatives.
pub(super) fn relation(context: &mut Context<'_>, text: &str, alter: &AlterTable) -> Result<()> {
    let name = QualifiedName::from(&alter.relation.name);
    match alter.object_type {
        ObjectType::Table => {
            // ALTER TABLE also changes the owner of other relations, as in PostgreSQL, whose dumps use TABLE for them.
            if let [action] = &alter.actions[..]
                && let AlterTableKind::OwnerTo(role) = &action.kind
            {
                return owner(context, ObjectKind::Table, alter.if_exists, &name, role);
            }
            match table_to_alter(context, alter.if_exists, &name)? {
                Some(table) => actions(context, text, table.oid, alter),
                None => Ok(()),
            }
        }
        object_type => {
            let kind = kinds::object_kind(object_type).expect("other kinds are refused");
            for action in &alter.actions {
                other_relation(context, kind, alter.if_exists, &name, &action.kind)?;
            }
            Ok(())
        }
    }
}

/// An action on a view, index or sequence.
fn other_relation(
    context: &mut Context<'_>,
    kind: ObjectKind,
    if_exists: bool,
    name: &QualifiedName,
    action: &AlterTableKind,
) -> Result<()> {
    match action {
        AlterTableKind::OwnerTo(role) => owner(context, kind, if_exists, name, role),
        AlterTableKind::SetTablespace(space) if kind == ObjectKind::Index => {
            match index_to_alter(context, if_exists, name)? {
                Some(_) => kinds::check_tablespace(Some(space)),
                None => Ok(()),
            }
        }
        AlterTableKind::SetStatisticsOfNumber { number, target } if kind == ObjectKind::Index => {
            match index_to_alter(context, if_exists, name)? {
                Some((table, index)) => check_statistics_of(context, table, &index, *number, *target),
                None => Ok(()),
            }
        }
        AlterTableKind::SetOptions(options) | AlterTableKind::ResetOptions(options)
            if kind == ObjectKind::Index =>
        {
            let resets = matches!(action, AlterTableKind::ResetOptions(_));
            let change = |shown: &mut Vec<(String, String)>| match resets {
                true => parameter::reset_of_index(shown, options),
                false => parameter::set_of_index(shown, options),
            };
            // Errors in the parameters are raised before the index is looked up.
            change(&mut Vec::new())?;
            let Some((table, index)) = index_to_alter(context, if_exists, name)? else { return Ok(()) };
            let mut table = TableDef::clone(&context.table(table));
            let index = table.indexes.iter_mut().find(|known| known.oid == index.oid);
            change(&mut index.expect("it was found").annotations.parameters)?;
            context.put_table(table)
        }
        _ => Err(Error::unsupported(format!("this form of ALTER {}", kind.word().to_uppercase())).with_hint(
            match kind {
                ObjectKind::Index => "RENAME TO, OWNER TO, SET TABLESPACE, SET and RESET are known.",
                _ => "RENAME TO, SET SCHEMA and OWNER TO are known.",
            },
        )),
    }
}

/// The index that ALTER names, and its table; nothing if there is none and that is fine.
fn index_to_alter(
    context: &mut Context<'_>,
    if_exists: bool,
    name: &QualifiedName,
) -> Result<Option<(Oid, IndexDef)>> {
    Ok(match relation_to_alter(context, Some(ObjectKind::Index), if_exists, name)? {
        Some(Relation::Index(table, index)) => Some((table.oid, index)),
        _ => None,
    })
}

/// ALTER INDEX … ALTER COLUMN number SET STATISTICS, which has no effect.
fn check_statistics_of(
    context: &mut Context<'_>,
    table: Oid,
    index: &IndexDef,
    number: i32,
    target: i32,
) -> Result<()> {
    alter_column::check_statistics(context, target)?;
    let place = usize::try_from(number - 1).expect("the parser has checked it");
    let Some(part) = index.key_columns().get(place) else {
        let message = format!("column number {number} of relation \"{}\" does not exist", index.name);
        return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
    };
    let table = context.table(table);
    let column = &table.columns[usize::from(part.column)];
    if column.hidden {
        return Ok(());
    }
    let message = format!(
        "cannot alter statistics on non-expression column \"{}\" of index \"{}\"",
        column.name, index.name
    );
    let error = Error::new(SqlState::FEATURE_NOT_SUPPORTED, message);
    Err(error.with_hint("Alter statistics on table column instead."))
}

/// The table that ALTER names; `None` if it does not exist and IF EXISTS permits that.
pub(super) fn table_to_alter(
    context: &mut Context<'_>,
    if_exists: bool,
    name: &QualifiedName,
) -> Result<Option<Arc<TableDef>>> {
    Ok(match relation_to_alter(context, Some(ObjectKind::Table), if_exists, name)? {
        Some(Relation::Table(table)) => Some(table),
        _ => None,
    })
}

/// The relation that ALTER names, of this kind, or of any; `None` if it does not exist and IF EXISTS permits that.
pub(super) fn relation_to_alter(
    context: &mut Context<'_>,
    kind: Option<ObjectKind>,
    if_exists: bool,
    name: &QualifiedName,
) -> Result<Option<Relation>> {
    let names = context.names();
    names.refuse_source(name)?;
    match (names.find(name), kind) {
        (Some(relation), kind) if kind.is_none_or(|kind| relation.kind() == kind) => Ok(Some(relation)),
        (Some(_), kind) => Err(wrong_kind(kind.expect("any kind will do"), &name.name)),
        (None, _) if if_exists => {
            let message = format!("relation \"{}\" does not exist, skipping", name.name);
            context.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            Ok(None)
        }
        (None, _) => Err(names.missing_relation(name)),
    }
}

/// The phase of an action among those of its statement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Pass {
    Drop,
    Type,
    NewColumn,
    OfColumn,
    Key,
    Constraint,
    Other,
}

fn pass(action: &AlterTableKind) -> Pass {
    match action {
        AlterTableKind::DropColumn { .. } | AlterTableKind::DropConstraint { .. } => Pass::Drop,
        AlterTableKind::AddColumn { .. } => Pass::NewColumn,
        AlterTableKind::AlterColumn { change, .. } => match change {
            ColumnChange::DropDefault
            | ColumnChange::DropNotNull
            | ColumnChange::DropIdentity { .. }
            | ColumnChange::DropExpression { .. } => Pass::Drop,
            ColumnChange::Type { .. } => Pass::Type,
            ColumnChange::SetDefault(_)
            | ColumnChange::SetNotNull
            | ColumnChange::AddIdentity { .. }
            | ColumnChange::SetIdentity(_) => Pass::OfColumn,
            _ => Pass::Other,
        },
        AlterTableKind::AddConstraint(constraint) => match constraint.kind {
            TableConstraintKind::Unique { .. } | TableConstraintKind::UsingIndex { .. } => Pass::Key,
            _ => Pass::Constraint,
        },
        _ => Pass::Other,
    }
}

/// Whether an action affects neither rows nor how they are written.
fn is_setting(action: &AlterTableKind) -> bool {
    match action {
        AlterTableKind::AlterColumn { change, .. } => matches!(
            change,
            ColumnChange::SetStatistics(_)
                | ColumnChange::SetOptions(_)
                | ColumnChange::ResetOptions(_)
                | ColumnChange::SetStorage(_)
                | ColumnChange::SetCompression(_)
        ),
        _ => matches!(
            action,
            AlterTableKind::SetOptions(_)
                | AlterTableKind::ResetOptions(_)
                | AlterTableKind::ClusterOn(_)
                | AlterTableKind::SetWithoutCluster
                | AlterTableKind::SetWithoutOids
        ),
    }
}

fn actions(context: &mut Context<'_>, text: &str, table: Oid, alter: &AlterTable) -> Result<()> {
    let mut actions: Vec<&AlterTableKind> = alter.actions.iter().map(|action| &action.kind).collect();
    actions.sort_by_key(|action| pass(action));
    // Writers need not wait for the change of a parameter.
    if !actions.iter().all(|action| is_setting(action)) {
        context.lock(&TableDef::clone(&context.table(table)))?;
    }
    for action in actions {
        let table = TableDef::clone(&context.table(table));
        if !is_setting(action) {
            context.refuse_pending(&table, "ALTER TABLE")?;
        }
        operate(context, text, table, action)?;
    }
    Ok(())
}

fn operate(
    context: &mut Context<'_>,
    text: &str,
    mut table: TableDef,
    action: &AlterTableKind,
) -> Result<()> {
    match action {
        AlterTableKind::AddColumn { if_not_exists, column } => {
            add_column(context, text, table, *if_not_exists, column)
        }
        AlterTableKind::DropColumn { if_exists, name, cascade } => {
            drop_column(context, table, &name.text, *if_exists, *cascade)
        }
        AlterTableKind::AlterColumn { name, change } => {
            alter_column::alter(context, text, table, name, change)
        }
        AlterTableKind::AddConstraint(wanted) => {
            constraint::add(context, text, &mut table, wanted, constraint::Rows::Check)?;
            context.put_table(table)
        }
        AlterTableKind::AlterConstraint { name, attributes } => {
            constraint::alter(context, table, &name.text, attributes)
        }
        AlterTableKind::ValidateConstraint(name) => constraint::validate(context, table, &name.text),
        AlterTableKind::DropConstraint { if_exists, name, cascade } => {
            drop_constraint(context, table, &name.text, *if_exists, *cascade)
        }
        AlterTableKind::SetOptions(options) => {
            let settings = parameter::set(table.settings, options)?;
            put_settings(context, table, settings)
        }
        AlterTableKind::ResetOptions(options) => {
            let settings = parameter::reset(table.settings, options)?;
            put_settings(context, table, settings)
        }
        AlterTableKind::OwnerTo(role) => context.check_role(role),
        // How PostgreSQL stores, logs, sorts and replicates; FirnDB does so in its own way.
        AlterTableKind::SetWithoutOids
        | AlterTableKind::SetWithoutCluster
        | AlterTableKind::SetLogged
        | AlterTableKind::SetUnlogged
        | AlterTableKind::ReplicaIdentity(_)
        | AlterTableKind::RowSecurity { enable: false }
        | AlterTableKind::ForceRowSecurity { force: false }
        | AlterTableKind::Trigger { trigger: TriggerChoice::All | TriggerChoice::User, .. } => Ok(()),
        AlterTableKind::ClusterOn(name) => {
            match table.visible_indexes().any(|index| *index.name == *name.text) {
                true => Ok(()),
                false => Err(no_part(&table, "index", name)),
            }
        }
        AlterTableKind::SetAccessMethod(name) => kinds::check_access_method(Some(name)),
        AlterTableKind::SetTablespace(name) => kinds::check_tablespace(Some(name)),
        AlterTableKind::Trigger { trigger: TriggerChoice::Name(name), .. } => {
            Err(no_part(&table, "trigger", name))
        }
        AlterTableKind::Rule { name, .. } => Err(Error::new(
            SqlState::UNDEFINED_OBJECT,
            format!("rule \"{}\" for relation \"{}\" does not exist", name.text, table.name),
        )),
        AlterTableKind::RowSecurity { .. } | AlterTableKind::ForceRowSecurity { .. } => {
            Err(Error::unsupported("row security")
                .with_hint("Roles and privileges come with a later release; every user may do everything."))
        }
        AlterTableKind::Inherit(_)
        | AlterTableKind::NoInherit(_)
        | AlterTableKind::Of(_)
        | AlterTableKind::NotOf
        | AlterTableKind::AttachPartition { .. }
        | AlterTableKind::DetachPartition { .. } => {
            Err(Error::unsupported("table inheritance and partitioning")
                .with_hint("The rows of a table are limited only by the memory."))
        }
        AlterTableKind::SetStatisticsOfNumber { .. } => {
            Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot refer to non-index column by number"))
        }
        AlterTableKind::Options(_) => Err(Error::unsupported("this form of ALTER TABLE")),
    }
}

/// 42704
fn no_part(table: &TableDef, what: &str, name: &Name) -> Error {
    Error::new(
        SqlState::UNDEFINED_OBJECT,
        format!("{what} \"{}\" for table \"{}\" does not exist", name.text, table.name),
    )
}

fn put_settings(context: &mut Context<'_>, table: TableDef, settings: TableSettings) -> Result<()> {
    if settings == table.settings {
        return Ok(());
    }
    context.put_table(TableDef { settings, ..table })
}

/// 42701
pub(super) fn column_exists(relation: &str, name: &str) -> Error {
    Error::new(
        SqlState::DUPLICATE_COLUMN,
        format!("column \"{name}\" of relation \"{relation}\" already exists"),
    )
}

/// The visible columns as expressions: the name of each.
pub(super) fn identity_sources(table: &TableDef) -> Vec<Option<String>> {
    table.visible_columns().map(|(_, column)| Some(quote_ident(&column.name))).collect()
}

fn add_column(
    context: &mut Context<'_>,
    text: &str,
    table: TableDef,
    if_not_exists: bool,
    definition: &ColumnDef,
) -> Result<()> {
    let name = definition.name.text.to_string();
    if table.column(&name).is_some() {
        if if_not_exists {
            let message =
                format!("column \"{name}\" of relation \"{}\" already exists, skipping", table.name);
            context.notice(SqlState::DUPLICATE_COLUMN, message);
            return Ok(());
        }
        return Err(column_exists(&table.name, &name));
    }
    if table.columns.len() >= create::MOST_COLUMNS {
        return Err(create::too_many_columns());
    }
    let mut parts = column::parts(context, text, &table.name, definition)?;
    let before: Vec<String> = table.visible_columns().map(|(_, column)| column.name.clone()).collect();
    let schema = context.schema_name(table.schema).to_owned();
    view::keep_names_apart(context, table.oid, (&schema, &table.name), &before, &name)?;
    let mut identity_sequence = None;
    if let Some(options) = &parts.sequence {
        let owner = (table.oid, table.columns.len() as u16);
        let place = (table.schema, table.name.as_str());
        let (schema, sequence) = create::add_sequence(context, place, owner, &parts.column, options)?;
        let next = column::next_value_of(context, schema, &sequence);
        match parts.serial {
            true => parts.column.default = Some(next),
            false => identity_sequence = Some(next),
        }
    }
    let mut sources = identity_sources(&table);
    let value = parts.column.default.as_ref().or(identity_sequence.as_ref());
    sources.push(match value {
        Some(default) => Some(format!("({default})")),
        None if parts.generated.is_some() => None,
        None => Some("NULL".to_owned()),
    });
    let mut new = table.clone();
    new.columns.push(parts.column);
    if let Some(expression) = &parts.generated {
        // It is bound over the new table, and computed from the rows of the old one.
        context.put_table(new.clone())?;
        let column = new.columns.last().expect("it has been added");
        let kept = expression::check_generated(context, text, &new, column, expression)?;
        new.columns.last_mut().expect("it has been added").generated = Some(kept);
        context.put_table(table.clone())?;
    }
    rewrite::table(context, &table, new, &sources)?;
    let mut new = TableDef::clone(&context.table(table.oid));
    for wanted in &parts.constraints {
        constraint::add(context, text, &mut new, wanted, constraint::Rows::Check)?;
    }
    context.put_table(new)
}

fn drop_column(
    context: &mut Context<'_>,
    table: TableDef,
    name: &str,
    if_exists: bool,
    cascade: bool,
) -> Result<()> {
    let Some((column, _)) = table.column(name) else {
        if if_exists {
            let message =
                format!("column \"{name}\" of relation \"{}\" does not exist, skipping", table.name);
            context.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            return Ok(());
        }
        return Err(crate::names::missing_column(&table, name));
    };
    let what = format!("column {name} of table {}", table.name);
    let table = drop_generated(context, table, column, &what, cascade)?;
    let views = view::dependents_on(context, &table, column.0);
    drop::refuse_or_drop_views(context, &what, views, cascade)?;
    let hidden = index::hidden_over(&table, column);
    let is_over = |index: &IndexDef| {
        index.columns.iter().any(|part| part.column == column.0 || hidden.contains(&ColumnId(part.column)))
            || index.annotations.include.contains(&column.0)
    };
    for index in table.indexes.iter().filter(|index| index.unique && is_over(index)) {
        let keys = drop::relying_foreign_keys(context, &table, index.oid);
        drop::refuse_or_drop_foreign_keys(context, &what, &keys, cascade)?;
    }
    let mut table = TableDef::clone(&context.table(table.oid));
    let place = table.visible_columns().position(|(id, _)| id == column).expect("it is visible");
    view::forget_column_name(context, &table, place)?;
    let involved: Vec<Oid> = table
        .constraints
        .iter()
        .filter(|constraint| match &constraint.kind {
            ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index } => {
                table.indexes.iter().any(|found| found.oid == *index && is_over(found))
            }
            ConstraintKind::ForeignKey { columns, .. } => columns.contains(&column.0),
            ConstraintKind::Check { expression } => crate::parse::parse_expression(expression)
                .is_ok_and(|expression| expression::columns_in(&table, &expression).contains(&column.0)),
        })
        .map(|constraint| constraint.oid)
        .collect();
    for oid in involved {
        drop::remove_constraint(context, &mut table, oid)?;
    }
    let indexes: Vec<Oid> =
        table.indexes.iter().filter(|index| is_over(index)).map(|index| index.oid).collect();
    for oid in indexes {
        drop::remove_index(context, &mut table, oid)?;
    }
    foreign_key::index_all(context, &mut table)?;
    drop::remove_owned_sequences(context, table.oid, column)?;
    let old = table.clone();
    let position = column.index();
    let dropped = &mut table.columns[position];
    // The name must not conflict with that of a new column, nor look like one.
    dropped.name = format!("........dropped.{}........", position + 1);
    dropped.dropped = true;
    dropped.not_null = false;
    dropped.default = None;
    dropped.identity = None;
    dropped.generated = None;
    let nullable = context.transaction.table(old.storage()).columns()[position].nullable;
    if nullable {
        return context.put_table(table);
    }
    // New rows have no value for the column, so it must be able to hold NULL.
    let sources = identity_sources(&table);
    context.put_table(old.clone())?;
    rewrite::table(context, &old, table, &sources)
}

/// Drops the generated columns over a column that is to be dropped, or refuses to. Returns the resulting table.
fn drop_generated(
    context: &mut Context<'_>,
    table: TableDef,
    column: ColumnId,
    what: &str,
    cascade: bool,
) -> Result<TableDef> {
    let names: Vec<String> = expression::generated_over(&table, column)
        .into_iter()
        .map(|id| table.columns[id.index()].name.clone())
        .collect();
    let shown = |name: &String| format!("column {name} of table {}", table.name);
    if !names.is_empty() && !cascade {
        let lines: Vec<String> =
            names.iter().map(|name| format!("{} depends on {what}", shown(name))).collect();
        return Err(drop::needs_cascade(what, &lines));
    }
    context.notice_cascade(&names.iter().map(shown).collect::<Vec<_>>());
    for name in &names {
        let table = TableDef::clone(&context.table(table.oid));
        drop_column(context, table, name, false, cascade)?;
    }
    Ok(TableDef::clone(&context.table(table.oid)))
}

fn drop_constraint(
    context: &mut Context<'_>,
    table: TableDef,
    name: &str,
    if_exists: bool,
    cascade: bool,
) -> Result<()> {
    let Some(found) = table.constraints.iter().find(|constraint| constraint.name == name) else {
        if if_exists {
            let message =
                format!("constraint \"{name}\" of relation \"{}\" does not exist, skipping", table.name);
            context.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            return Ok(());
        }
        return Err(constraint::missing_constraint(&table, name));
    };
    let oid = found.oid;
    if let ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index } = found.kind {
        let what = format!("constraint {name} on table {}", table.name);
        let keys = drop::relying_foreign_keys(context, &table, index);
        drop::refuse_or_drop_foreign_keys(context, &what, &keys, cascade)?;
    }
    // A foreign key of the table itself may just have been dropped.
    let mut table = TableDef::clone(&context.table(table.oid));
    drop::remove_constraint(context, &mut table, oid)?;
    foreign_key::index_all(context, &mut table)?;
    context.put_table(table)
}

/// ALTER … OWNER TO: the object and the role must exist.
fn owner(
    context: &mut Context<'_>,
    kind: ObjectKind,
    if_exists: bool,
    name: &QualifiedName,
    role: &Role,
) -> Result<()> {
    match relation_to_alter(context, kind.accepted_by_alter(), if_exists, name)? {
        Some(_) => context.check_role(role),
        None => Ok(()),
    }
}

/// ALTER SCHEMA … OWNER TO. Schemas are the only objects with owners that are not relations.
pub(super) fn owner_of_schema(context: &mut Context<'_>, change: &ChangeOwner) -> Result<()> {
    let ObjectReference::Name(name) = &change.object.name else { panic!("it is a schema") };
    context.check_role(&change.owner)?;
    context.names().schema(&name.name.text).map(|_| ())
}

/// ALTER … ALL IN TABLESPACE: all are in the one that there is.
pub(super) fn move_all(context: &Context<'_>, change: &MoveAll) -> Result<()> {
    change.owners.iter().try_for_each(|owner| context.check_role(owner))?;
    kinds::check_tablespace(Some(&change.from))?;
    kinds::check_tablespace(Some(&change.to))
}
