//! ALTER: tables column by column, and names.

use super::{Context, already_exists, column, constraint, drop, index, parameter, rewrite, sequence, view};
use crate::data_type::sql_type;
use crate::names::{NAME_BYTES, Relation, missing_relation};
use crate::statement::{
    Behavior, Concerned, ObjectKind, QualifiedName, SequenceOptions, TableOperation, fold, quote_ident,
};
use datafusion::sql::sqlparser::ast::{self, AlterColumnOperation, AlterTableOperation};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, SqlState, SqlType};
use firn_txn::catalog::{
    ConstraintKind, Identity, Oid, SchemaDef, SequenceDef, TableDef, TableSettings, ViewDef,
};

/// ALTER TABLE
pub(super) fn table(
    context: &mut Context<'_>,
    name: &QualifiedName,
    if_exists: bool,
    operations: &[TableOperation],
) -> Result<()> {
    context.names().refuse_source(name)?;
    let oid = match context.names().find(name) {
        Some(Relation::Table(table)) => table.oid,
        Some(_) => return Err(crate::names::wrong_kind(ObjectKind::Table, &name.name)),
        None if if_exists => {
            let message = format!("relation \"{name}\" does not exist, skipping");
            context.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            return Ok(());
        }
        None => return Err(missing_relation(name)),
    };
    // Nobody who writes is concerned by a parameter.
    let is_parameter = |operation: &TableOperation| {
        matches!(
            operation,
            TableOperation::Set(_) | TableOperation::Reset(_) | TableOperation::WithoutEffect(_)
        )
    };
    if !operations.iter().all(is_parameter) {
        context.lock(&TableDef::clone(&context.table(oid)))?;
    }
    for operation in operations {
        let table = TableDef::clone(&context.table(oid));
        match operation {
            TableOperation::AlterConstraint { name, characteristics } => {
                context.refuse_pending(&table, "ALTER TABLE")?;
                constraint::alter(context, table, name, characteristics)?;
            }
            TableOperation::AddIdentity { column, always, options } => {
                context.refuse_pending(&table, "ALTER TABLE")?;
                let identity = if *always { Identity::Always } else { Identity::ByDefault };
                add_identity(context, table, column, identity, options)?;
            }
            TableOperation::Set(parameters) => {
                let settings = parameter::set(table.settings, parameters)?;
                put_settings(context, table, settings)?;
            }
            TableOperation::Reset(names) => {
                let settings = parameter::reset(table.settings, names)?;
                put_settings(context, table, settings)?;
            }
            TableOperation::WithoutEffect(concerned) => find_concerned(&table, concerned)?,
            TableOperation::Tree(operation) => operate(context, table, operation)?,
        }
    }
    Ok(())
}

fn find_concerned(table: &TableDef, concerned: &Concerned) -> Result<()> {
    match concerned {
        Concerned::Table => Ok(()),
        Concerned::Column(name) if table.column(name).is_some() => Ok(()),
        Concerned::Column(name) => Err(crate::names::missing_column(table, name)),
        Concerned::Index(name) if table.indexes.iter().any(|index| index.name == *name) => Ok(()),
        Concerned::Index(name) => Err(Error::new(
            SqlState::UNDEFINED_OBJECT,
            format!("index \"{name}\" for table \"{}\" does not exist", table.name),
        )),
    }
}

fn put_settings(context: &mut Context<'_>, table: TableDef, settings: TableSettings) -> Result<()> {
    if settings == table.settings {
        return Ok(());
    }
    context.put_table(TableDef { settings, ..table })
}

fn behavior(behavior: &Option<ast::DropBehavior>) -> Behavior {
    match behavior {
        Some(ast::DropBehavior::Cascade) => Behavior::Cascade,
        _ => Behavior::Restrict,
    }
}

fn operate(context: &mut Context<'_>, mut table: TableDef, operation: &AlterTableOperation) -> Result<()> {
    if !matches!(
        operation,
        AlterTableOperation::RenameColumn { .. } | AlterTableOperation::RenameConstraint { .. }
    ) {
        context.refuse_pending(&table, "ALTER TABLE")?;
    }
    match operation {
        AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
            add_column(context, table, *if_not_exists, column_def)
        }
        AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
            for name in column_names {
                let table = TableDef::clone(&context.table(table.oid));
                drop_column(context, table, &fold(name), *if_exists, behavior(drop_behavior))?;
            }
            Ok(())
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            rename_column(context, table, &fold(old_column_name), &fold(new_column_name))
        }
        AlterTableOperation::AlterColumn { column_name, op } => {
            alter_column(context, table, &fold(column_name), op)
        }
        AlterTableOperation::AddConstraint { constraint: wanted, not_valid } => {
            let rows = if *not_valid { constraint::Rows::Trust } else { constraint::Rows::Check };
            constraint::add(context, &mut table, wanted, rows)?;
            context.put_table(table)
        }
        AlterTableOperation::DropConstraint { if_exists, name, drop_behavior } => {
            drop_constraint(context, table, &fold(name), *if_exists, behavior(drop_behavior))
        }
        AlterTableOperation::RenameConstraint { old_name, new_name } => {
            rename_constraint(context, table, &fold(old_name), &fold(new_name))
        }
        AlterTableOperation::ValidateConstraint { name } => constraint::validate(context, table, &fold(name)),
        AlterTableOperation::OwnerTo { .. } => {
            context.notice(SqlState::SUCCESSFUL_COMPLETION, OWNERS);
            Ok(())
        }
        AlterTableOperation::ReplicaIdentity { .. } => Ok(()),
        other => Err(Error::unsupported(format!("ALTER TABLE … {other}"))),
    }
}

fn column_exists(table: &TableDef, name: &str) -> Error {
    Error::new(
        SqlState::DUPLICATE_COLUMN,
        format!("column \"{name}\" of relation \"{}\" already exists", table.name),
    )
}

/// The visible columns as expressions over themselves.
fn identity_sources(table: &TableDef) -> Vec<String> {
    table.visible_columns().map(|(_, column)| quote_ident(&column.name)).collect()
}

fn add_column(
    context: &mut Context<'_>,
    table: TableDef,
    if_not_exists: bool,
    definition: &ast::ColumnDef,
) -> Result<()> {
    let mut parts = column::parts(context, definition)?;
    let name = parts.column.name.clone();
    if table.column(&name).is_some() {
        if if_not_exists {
            let message =
                format!("column \"{name}\" of relation \"{}\" already exists, skipping", table.name);
            context.notice(SqlState::DUPLICATE_COLUMN, message);
            return Ok(());
        }
        return Err(column_exists(&table, &name));
    }
    let mut identity_sequence = None;
    if let Some(options) = &parts.sequence {
        let stem = format!("{}_{name}", table.name);
        let sequence = context.names().fresh(table.schema, &stem, "seq", &[]);
        let owner = Some((table.oid, table.columns.len() as u16));
        sequence::add(context, table.schema, &sequence, parts.column.ty.sql_type(), options, owner)?;
        let next = column::next_value_of(context, table.schema, &sequence);
        match parts.serial {
            true => parts.column.default = Some(next),
            false => identity_sequence = Some(next),
        }
    }
    let mut sources = identity_sources(&table);
    let value = parts.column.default.as_ref().or(identity_sequence.as_ref());
    sources.push(match value {
        Some(default) => format!("({default})"),
        None => format!("CAST(NULL AS {})", parts.column.ty),
    });
    let mut new = table.clone();
    new.columns.push(parts.column);
    rewrite::table(context, &table, new, &sources)?;
    let mut new = TableDef::clone(&context.table(table.oid));
    for wanted in &parts.constraints {
        constraint::add(context, &mut new, wanted, constraint::Rows::Check)?;
    }
    context.put_table(new)
}

fn drop_column(
    context: &mut Context<'_>,
    table: TableDef,
    name: &str,
    if_exists: bool,
    behavior: Behavior,
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
    let views = view::dependents_on_column(context.transaction.catalog(), &table, name);
    drop::refuse_or_drop_views(context, &what, views, behavior)?;
    let is_over =
        |index: &firn_txn::catalog::IndexDef| index.columns.iter().any(|indexed| indexed.column == column.0);
    for index in table.indexes.iter().filter(|index| index.unique && is_over(index)) {
        let keys = drop::relying_foreign_keys(context, &table, index.oid);
        drop::refuse_or_drop_foreign_keys(context, &what, &keys, behavior)?;
    }
    let mut table = TableDef::clone(&context.table(table.oid));
    let involved: Vec<Oid> = table
        .constraints
        .iter()
        .filter(|constraint| match &constraint.kind {
            ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index } => {
                table.indexes.iter().any(|found| found.oid == *index && is_over(found))
            }
            ConstraintKind::ForeignKey { columns, .. } => columns.contains(&column.0),
            ConstraintKind::Check { expression } => crate::parse::parse_expression(expression)
                .is_ok_and(|expression| constraint::columns_in(&table, &expression).contains(&column.0)),
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
    constraint::index_foreign_keys(context, &mut table)?;
    drop::remove_owned_sequences(context, table.oid, column)?;
    let old = table.clone();
    let position = column.index();
    let dropped = &mut table.columns[position];
    // The name must not be in the way of a new column, nor look like one.
    dropped.name = format!("........dropped.{}........", position + 1);
    dropped.dropped = true;
    dropped.not_null = false;
    dropped.default = None;
    dropped.identity = None;
    let nullable = context.transaction.table(old.storage()).columns()[position].nullable;
    if nullable {
        return context.put_table(table);
    }
    // New rows have nothing for the column, so it must be able to hold NULL.
    let sources = identity_sources(&table);
    context.put_table(old.clone())?;
    rewrite::table(context, &old, table, &sources)
}

fn rename_column(context: &mut Context<'_>, mut table: TableDef, from: &str, to: &str) -> Result<()> {
    let Some((column, _)) = table.column(from) else {
        return Err(Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{from}\" does not exist")));
    };
    if table.column(to).is_some() {
        return Err(column_exists(&table, to));
    }
    let views = view::dependents_on_column(context.transaction.catalog(), &table, from);
    if let Some(view) = views.first() {
        return Err(Error::unsupported("renaming a column that a view uses")
            .with_detail(format!("View \"{}\" uses column \"{from}\".", view.name))
            .with_hint("Drop the view, rename the column, and make the view again."));
    }
    table.columns[column.index()].name = to.to_owned();
    for constraint in &mut table.constraints {
        if let ConstraintKind::Check { expression } = &mut constraint.kind {
            *expression = constraint::rename_in_expression(expression, from, to)?;
        }
    }
    context.put_table(table)
}

fn alter_column(
    context: &mut Context<'_>,
    mut table: TableDef,
    name: &str,
    operation: &AlterColumnOperation,
) -> Result<()> {
    let position = constraint::column_position(&table, name)?;
    let column = usize::from(position);
    match operation {
        AlterColumnOperation::SetNotNull => {
            constraint::set_not_null(context, &mut table, position, constraint::Rows::Check)?;
            context.put_table(table)
        }
        AlterColumnOperation::DropNotNull => {
            if table.primary_key().is_some_and(|key| key.columns.iter().any(|found| found.column == position))
            {
                return Err(Error::new(
                    SqlState::INVALID_TABLE_DEFINITION,
                    format!("column \"{name}\" is in a primary key"),
                ));
            }
            if table.columns[column].identity.is_some() {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    format!("column \"{name}\" of relation \"{}\" is an identity column", table.name),
                ));
            }
            let old = table.clone();
            table.columns[column].not_null = false;
            let nullable = context.transaction.table(old.storage()).columns()[column].nullable;
            match nullable {
                true => context.put_table(table),
                false => {
                    let sources = identity_sources(&table);
                    rewrite::table(context, &old, table, &sources)
                }
            }
        }
        AlterColumnOperation::SetDefault { value } => {
            if table.columns[column].identity.is_some() {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    format!("column \"{name}\" of relation \"{}\" is an identity column", table.name),
                ));
            }
            let ty = table.columns[column].ty.sql_type();
            table.columns[column].default = column::default(context, name, ty, value)?;
            context.put_table(table)
        }
        AlterColumnOperation::DropDefault => {
            table.columns[column].default = None;
            context.put_table(table)
        }
        AlterColumnOperation::SetDataType { data_type, using, .. } => {
            column::note_decimals(context, name, data_type);
            set_type(context, table, position, sql_type(data_type)?, using.as_ref())
        }
        AlterColumnOperation::AddGenerated { .. } => unreachable!("the parser makes it AddIdentity"),
    }
}

/// ALTER COLUMN … ADD GENERATED … AS IDENTITY
fn add_identity(
    context: &mut Context<'_>,
    mut table: TableDef,
    name: &str,
    identity: Identity,
    options: &SequenceOptions,
) -> Result<()> {
    let Some((position, found)) = table.column(name) else {
        return Err(crate::names::missing_column(&table, name));
    };
    let (ty, not_null, has_value) =
        (found.ty.sql_type(), found.not_null, found.identity.is_some() || found.default.is_some());
    let refuse = |state, message: &str| {
        Err(Error::new(state, format!("column \"{name}\" of relation \"{}\" {message}", table.name)))
    };
    if !not_null {
        let message = "must be declared NOT NULL before identity can be added";
        return refuse(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
    }
    if has_value {
        return refuse(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "already has a default value");
    }
    if !matches!(ty, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) {
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "identity column type must be smallint, integer, or bigint",
        ));
    }
    let (schema, sequence) = match &options.name {
        None => {
            let stem = format!("{}_{name}", table.name);
            (table.schema, context.names().fresh(table.schema, &stem, "seq", &[]))
        }
        Some(wanted) => {
            let schema = context.names().creation_schema(wanted)?;
            if context.names().relation_in(schema, &wanted.name).is_some() {
                return Err(already_exists(ObjectKind::Sequence, &wanted.name));
            }
            (schema, wanted.name.clone())
        }
    };
    if schema != table.schema {
        return Err(Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "sequence must be in same schema as table it is linked to",
        ));
    }
    sequence::add(context, schema, &sequence, ty, options, Some((table.oid, position.0)))?;
    table.columns[position.index()].identity = Some(identity);
    context.put_table(table)
}

const OWNERS: &str = "owners are not kept: every user may do everything";

/// ALTER … OWNER TO: the object must exist.
pub(super) fn owner(
    context: &mut Context<'_>,
    kind: ObjectKind,
    if_exists: bool,
    name: &QualifiedName,
) -> Result<()> {
    let found = match kind {
        ObjectKind::Schema => context.names().schema(&name.name).map(|_| ()),
        // As in PostgreSQL, whose dumps say TABLE of views and sequences too.
        ObjectKind::Table => context.names().find(name).map(|_| ()).ok_or_else(|| missing_relation(name)),
        _ => context.names().object(kind, name).map(|_| ()),
    };
    match found {
        Err(_) if if_exists => {
            let message = format!("relation \"{name}\" does not exist, skipping");
            context.notice(SqlState::SUCCESSFUL_COMPLETION, message);
        }
        found => {
            found?;
            context.notice(SqlState::SUCCESSFUL_COMPLETION, OWNERS);
        }
    }
    Ok(())
}

/// ALTER COLUMN TYPE: every row is written anew with the column cast.
fn set_type(
    context: &mut Context<'_>,
    table: TableDef,
    position: u16,
    ty: SqlType,
    using: Option<&ast::Expr>,
) -> Result<()> {
    let column = usize::from(position);
    let name = table.columns[column].name.clone();
    if table.columns[column].ty == ty.into() && using.is_none() {
        return Ok(());
    }
    let views = view::dependents_on_column(context.transaction.catalog(), &table, &name);
    if let Some(view) = views.first() {
        return Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "cannot alter type of a column used by a view or rule",
        )
        .with_detail(format!("rule _RETURN on view {} depends on column \"{name}\"", view.name)));
    }
    let in_foreign_key = table.constraints.iter().any(|constraint| {
        matches!(&constraint.kind, ConstraintKind::ForeignKey { columns, .. } if columns.contains(&position))
    });
    let pointed_to = context.transaction.catalog().tables.values().any(|child| {
        child.constraints.iter().any(|constraint| {
            matches!(&constraint.kind, ConstraintKind::ForeignKey { parent, parent_columns, .. }
                if *parent == table.oid && parent_columns.contains(&position))
        })
    });
    if in_foreign_key || pointed_to {
        return Err(Error::unsupported("changing the type of a column in a foreign key")
            .with_hint("Drop the foreign key, change the column on both sides, and add the key again."));
    }
    let old = table.clone();
    let mut new = table;
    new.columns[column].ty = ty.into();
    // The default must fit the new type as well.
    if let Some(default) = new.columns[column].default.clone() {
        let expression = crate::parse::parse_expression(&default)?;
        context
            .bind(|binder| binder.assignment(&expression, &datafusion::common::DFSchema::empty(), &name, ty))
            .map_err(|error| match error.state() {
                SqlState::DATATYPE_MISMATCH => Error::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!("default for column \"{name}\" cannot be cast automatically to type {ty}"),
                ),
                _ => error,
            })?;
    }
    let mut sources = Vec::new();
    for (id, found) in old.visible_columns() {
        sources.push(match (id == ColumnId(position), using) {
            (true, Some(using)) => using.to_string(),
            _ => quote_ident(&found.name),
        });
    }
    let result = rewrite::table(context, &old, new, &sources);
    result.map_err(|error| match (error.state(), using) {
        (SqlState::DATATYPE_MISMATCH, None) => Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!("column \"{name}\" cannot be cast automatically to type {ty}"),
        )
        .with_hint(format!("You might need to specify \"USING {}::{ty}\".", quote_ident(&name))),
        (SqlState::DATATYPE_MISMATCH, Some(_)) => Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!("result of USING clause for column \"{name}\" cannot be cast automatically to type {ty}"),
        )
        .with_hint("You might need to add an explicit cast."),
        _ => error,
    })
}

fn drop_constraint(
    context: &mut Context<'_>,
    table: TableDef,
    name: &str,
    if_exists: bool,
    behavior: Behavior,
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
        drop::refuse_or_drop_foreign_keys(context, &what, &keys, behavior)?;
    }
    // A foreign key of the table itself may just have gone.
    let mut table = TableDef::clone(&context.table(table.oid));
    drop::remove_constraint(context, &mut table, oid)?;
    constraint::index_foreign_keys(context, &mut table)?;
    context.put_table(table)
}

fn rename_constraint(context: &mut Context<'_>, mut table: TableDef, from: &str, to: &str) -> Result<()> {
    if table.constraints.iter().any(|constraint| constraint.name == to) {
        return Err(Error::new(
            SqlState::DUPLICATE_OBJECT,
            format!("constraint \"{to}\" for relation \"{}\" already exists", table.name),
        ));
    }
    let Some(position) = table.constraints.iter().position(|constraint| constraint.name == from) else {
        return Err(Error::new(
            SqlState::UNDEFINED_OBJECT,
            format!("constraint \"{from}\" for table \"{}\" does not exist", table.name),
        ));
    };
    table.constraints[position].name = to.to_owned();
    // The index of a key bears its name.
    if let ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index } =
        table.constraints[position].kind
    {
        if context.names().relation_in(table.schema, to).is_some() {
            return Err(already_exists(ObjectKind::Index, to));
        }
        let index = table.indexes.iter_mut().find(|found| found.oid == index).expect("a key has an index");
        index.name = to.to_owned();
        let definition = index.clone();
        rebuild(context, &mut table, &definition)?;
    }
    context.put_table(table)
}

/// Builds a physical index as it is defined by now: the name of one, which messages show, and whether it is
/// unique at every moment cannot change.
pub(super) fn rebuild(
    context: &mut Context<'_>,
    table: &mut TableDef,
    index: &firn_txn::catalog::IndexDef,
) -> Result<()> {
    context.lock(table)?;
    let storage = context.transaction.table(table.storage());
    context.transaction.drop_index(&storage, index.id())?;
    // A new id, because the old index stays in its table until commit.
    let fresh = firn_txn::catalog::IndexDef { oid: context.allocate(), ..index.clone() };
    index::build_again(context, table, &fresh)?;
    for constraint in &mut table.constraints {
        if let ConstraintKind::PrimaryKey { index: held } | ConstraintKind::Unique { index: held } =
            &mut constraint.kind
            && *held == index.oid
        {
            *held = fresh.oid;
        }
    }
    let place =
        table.indexes.iter_mut().find(|found| found.oid == index.oid).expect("the index is the table's");
    *place = fresh;
    Ok(())
}

/// ALTER … RENAME TO
pub(super) fn rename(
    context: &mut Context<'_>,
    kind: ObjectKind,
    if_exists: bool,
    name: &QualifiedName,
    to: &str,
) -> Result<()> {
    if to.is_empty() || to.len() > NAME_BYTES {
        return Err(Error::new(SqlState::new("42622"), format!("name \"{to}\" is too long")));
    }
    if kind == ObjectKind::Schema {
        return rename_schema(context, &name.name, to);
    }
    let Some(relation) = relation_to_alter(context, kind, if_exists, name)? else { return Ok(()) };
    let schema = relation.schema();
    if context.names().relation_in(schema, to).is_some() {
        return Err(already_exists(kind, to));
    }
    put_moved(context, relation, None, Some(to))
}

/// ALTER … SET SCHEMA
pub(super) fn set_schema(
    context: &mut Context<'_>,
    kind: ObjectKind,
    if_exists: bool,
    name: &QualifiedName,
    schema: &str,
) -> Result<()> {
    let Some(relation) = relation_to_alter(context, kind, if_exists, name)? else { return Ok(()) };
    let placed = QualifiedName { schema: Some(schema.to_owned()), name: name.name.clone() };
    let schema = context.names().creation_schema(&placed)?;
    if schema == relation.schema() {
        return Ok(());
    }
    if context.names().relation_in(schema, &name.name).is_some() {
        return Err(already_exists(kind, &name.name));
    }
    put_moved(context, relation, Some(schema), None)
}

/// The relation that ALTER names. ALTER TABLE also takes the other kinds, as in PostgreSQL.
fn relation_to_alter(
    context: &mut Context<'_>,
    kind: ObjectKind,
    if_exists: bool,
    name: &QualifiedName,
) -> Result<Option<Relation>> {
    context.names().refuse_source(name)?;
    match context.names().find(name) {
        Some(relation) if kind == ObjectKind::Table || relation.kind() == kind => Ok(Some(relation)),
        Some(_) => Err(crate::names::wrong_kind(kind, &name.name)),
        None if if_exists => {
            let message = format!("relation \"{name}\" does not exist, skipping");
            context.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            Ok(None)
        }
        None => Err(missing_relation(name)),
    }
}

/// Puts a relation back under another name or schema; views and defaults that name it follow.
fn put_moved(
    context: &mut Context<'_>,
    relation: Relation,
    schema: Option<Oid>,
    name: Option<&str>,
) -> Result<()> {
    let schema_name = |context: &Context<'_>, oid: Oid| match context.transaction.catalog().schemas.get(&oid)
    {
        Some(schema) => schema.name.clone(),
        None => String::new(),
    };
    let (old_schema, old_name) = match &relation {
        Relation::Table(table) => (table.schema, table.name.clone()),
        Relation::View(view) => (view.schema, view.name.clone()),
        Relation::Sequence(sequence) => (sequence.schema, sequence.name.clone()),
        Relation::Index(table, index) => (table.schema, index.name.clone()),
    };
    let new_schema = schema.unwrap_or(old_schema);
    let new_name = name.unwrap_or(&old_name).to_owned();
    match relation {
        Relation::Table(table) => {
            context.lock(&table)?;
            let old = table.clone();
            context.put_table(TableDef {
                schema: new_schema,
                name: new_name.clone(),
                ..TableDef::clone(&table)
            })?;
            if schema.is_some() {
                let owned: Vec<Arc<SequenceDef>> = context
                    .transaction
                    .catalog()
                    .sequences
                    .values()
                    .filter(|sequence| sequence.owner.is_some_and(|(owner, _)| owner == old.oid))
                    .cloned()
                    .collect();
                for sequence in owned {
                    put_moved(context, Relation::Sequence(sequence), schema, None)?;
                }
            }
        }
        Relation::View(view) => {
            let view = ViewDef { schema: new_schema, name: new_name.clone(), ..ViewDef::clone(&view) };
            context.catalog_mut()?.views.insert(view.oid, Arc::new(view));
        }
        Relation::Sequence(sequence) => {
            let users: Vec<(Oid, usize)> = context
                .transaction
                .catalog()
                .tables
                .values()
                .flat_map(|table| {
                    let uses = |default: &Option<String>| {
                        let text = context.sql_name(old_schema, &old_name).replace('\'', "''");
                        default.as_deref().is_some_and(|default| default.contains(&format!("'{text}'")))
                    };
                    let columns = table.columns.iter().enumerate();
                    columns.filter(move |(_, column)| uses(&column.default)).map(|(at, _)| (table.oid, at))
                })
                .collect();
            let moved =
                SequenceDef { schema: new_schema, name: new_name.clone(), ..SequenceDef::clone(&sequence) };
            context.catalog_mut()?.sequences.insert(moved.oid, Arc::new(moved));
            for (table, column) in users {
                let mut table = TableDef::clone(&context.table(table));
                table.columns[column].default = Some(column::next_value_of(context, new_schema, &new_name));
                context.put_table(table)?;
            }
            return Ok(());
        }
        Relation::Index(table, index) => {
            if schema.is_some() {
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("cannot change schema of index \"{old_name}\""),
                )
                .with_hint("Change the schema of the table instead."));
            }
            let mut table = TableDef::clone(&table);
            let place = table.indexes.iter_mut().find(|found| found.oid == index.oid);
            let renamed = place.expect("the index is the table's");
            renamed.name = new_name.clone();
            let definition = renamed.clone();
            rebuild(context, &mut table, &definition)?;
            // A key bears the name of its index.
            for constraint in &mut table.constraints {
                if matches!(
                    constraint.kind,
                    ConstraintKind::PrimaryKey { .. } | ConstraintKind::Unique { .. }
                ) && constraint.name == old_name
                {
                    constraint.name = new_name.clone();
                }
            }
            return context.put_table(table);
        }
    }
    let from = (schema_name(context, old_schema), old_name);
    let to = (schema_name(context, new_schema), new_name);
    view::rename_relation(context, (&from.0, &from.1), (&to.0, &to.1))
}

fn rename_schema(context: &mut Context<'_>, from: &str, to: &str) -> Result<()> {
    let schema = context.names().schema(from)?.clone();
    if context.names().find_schema(to).is_some() {
        return Err(already_exists(ObjectKind::Schema, to));
    }
    if from == "pg_catalog" || from == "information_schema" || to.starts_with("pg_") {
        return Err(Error::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("permission denied for schema {from}"),
        ));
    }
    let relations: Vec<String> = {
        let catalog = context.transaction.catalog();
        let tables = catalog.tables.values().filter(|table| table.schema == schema.oid);
        let views = catalog.views.values().filter(|view| view.schema == schema.oid);
        tables.map(|table| table.name.clone()).chain(views.map(|view| view.name.clone())).collect()
    };
    let sequences: Vec<Arc<SequenceDef>> = {
        let sequences = context.transaction.catalog().sequences.values();
        sequences.filter(|sequence| sequence.schema == schema.oid).cloned().collect()
    };
    if !sequences.is_empty() {
        return Err(Error::unsupported("renaming a schema that holds sequences")
            .with_hint("Make a new schema and move its tables with ALTER TABLE … SET SCHEMA."));
    }
    let renamed = SchemaDef { oid: schema.oid, name: to.to_owned() };
    context.catalog_mut()?.schemas.insert(schema.oid, Arc::new(renamed));
    for relation in relations {
        view::rename_relation(context, (from, &relation), (to, &relation))?;
    }
    Ok(())
}
