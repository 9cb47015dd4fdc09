//! CREATE SCHEMA, CREATE TABLE, CREATE TABLE AS.

use super::{Context, already_exists, column, constraint, like, modifier, parameter, rewrite, sequence};
use crate::statement::{CreateTable, ObjectKind, QualifiedName, qualified_name};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType};
use firn_txn::catalog::{ColumnDef, Oid, SchemaDef, TableDef, TableSettings};

/// The most columns of a table, as in PostgreSQL.
const MOST_COLUMNS: usize = 1600;

/// CREATE SCHEMA
pub(super) fn schema(context: &mut Context<'_>, name: &str, if_not_exists: bool) -> Result<()> {
    if context.names().find_schema(name).is_some() {
        if if_not_exists {
            let message = format!("schema \"{name}\" already exists, skipping");
            context.notice(SqlState::DUPLICATE_SCHEMA, message);
            return Ok(());
        }
        return Err(already_exists(ObjectKind::Schema, name));
    }
    if name.starts_with("pg_") {
        return Err(Error::new(SqlState::new("42939"), format!("unacceptable schema name \"{name}\""))
            .with_detail("The prefix \"pg_\" is reserved for system schemas."));
    }
    let oid = context.allocate();
    let schema = SchemaDef { oid, name: name.to_owned() };
    context.catalog_mut()?.schemas.insert(oid, Arc::new(schema));
    Ok(())
}

/// The schema for a new table of that name; nothing if it exists and that is fine.
fn place(context: &mut Context<'_>, name: &QualifiedName, if_not_exists: bool) -> Result<Option<Oid>> {
    let schema = context.names().creation_schema(name)?;
    if context.names().relation_in(schema, &name.name).is_none() {
        return Ok(Some(schema));
    }
    if if_not_exists {
        let message = format!("relation \"{}\" already exists, skipping", name.name);
        context.notice(SqlState::DUPLICATE_TABLE, message);
        return Ok(None);
    }
    Err(already_exists(ObjectKind::Table, &name.name))
}

fn refuse_duplicates<'n>(columns: impl Iterator<Item = &'n str>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in columns {
        if !seen.insert(name) {
            return Err(Error::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
    }
    if seen.len() > MOST_COLUMNS {
        return Err(Error::new(
            SqlState::new("54011"),
            format!("tables can have at most {MOST_COLUMNS} columns"),
        ));
    }
    Ok(())
}

/// CREATE TABLE
pub(super) fn table(context: &mut Context<'_>, create: &CreateTable) -> Result<()> {
    let CreateTable { tree: create, likes, parameters } = create;
    if create.inherits.is_some() || create.partition_of.is_some() || create.partition_by.is_some() {
        return Err(Error::unsupported("table inheritance and partitioning")
            .with_hint("One table holds as many rows as memory does."));
    }
    let name = qualified_name(&create.name)?;
    let settings = parameter::settings_of(parameters)?;
    let Some(schema) = place(context, &name, create.if_not_exists)? else { return Ok(()) };
    let mut parts = Vec::with_capacity(create.columns.len());
    let mut constraints = create.constraints.clone();
    let mut sources = Vec::new();
    for position in 0..=create.columns.len() {
        for like in likes.iter().filter(|like| like.position == position) {
            let (source, mut columns) = like::columns(context, like)?;
            parts.append(&mut columns);
            sources.push((source, like));
        }
        if let Some(definition) = create.columns.get(position) {
            let mut part = column::parts(context, definition)?;
            constraints.append(&mut part.constraints);
            parts.push(part);
        }
    }
    refuse_duplicates(parts.iter().map(|part| part.column.name.as_str()))?;
    // Known before the physical table is made, which then need not provide for NULLs there.
    for key in constraint::primary_key_columns(&constraints) {
        if let Some(part) = parts.iter_mut().find(|part| part.column.name == key) {
            part.column.not_null = true;
        }
    }
    let oid = context.allocate();
    for (position, part) in parts.iter_mut().enumerate() {
        if let Some(options) = &part.sequence {
            let stem = format!("{}_{}", name.name, part.column.name);
            let sequence = context.names().fresh(schema, &stem, "seq", &[]);
            let owner = Some((oid, position as u16));
            sequence::add(context, schema, &sequence, part.column.ty.sql_type(), options, owner)?;
            if part.serial {
                part.column.default = Some(column::next_value_of(context, schema, &sequence));
            }
        }
    }
    let columns: Vec<ColumnDef> = parts.into_iter().map(|part| part.column).collect();
    let mut table = add(context, oid, schema, &name.name, columns, settings)?;
    for (source, like) in &sources {
        like::constraints(context, &mut table, source, like)?;
    }
    // Keys before foreign keys, which may point at them.
    constraints.sort_by_key(|constraint| match constraint {
        ast::TableConstraint::PrimaryKey(_) => 0,
        ast::TableConstraint::Unique(_) => 1,
        ast::TableConstraint::Check(_) => 2,
        _ => 3,
    });
    for wanted in &constraints {
        constraint::add(context, &mut table, wanted, constraint::Rows::None)?;
    }
    context.put_table(table)
}

/// Puts an empty table without constraints into the catalog.
fn add(
    context: &mut Context<'_>,
    oid: Oid,
    schema: Oid,
    name: &str,
    columns: Vec<ColumnDef>,
    settings: TableSettings,
) -> Result<TableDef> {
    // The catalog first: whoever loses the race for the DDL lock should leave nothing behind.
    context.catalog_mut()?;
    let storage = rewrite::create_storage(context, name, &columns)?.0;
    let table = TableDef {
        oid,
        schema,
        name: name.to_owned(),
        columns,
        constraints: Vec::new(),
        indexes: Vec::new(),
        storage,
        settings,
    };
    context.put_table(table.clone())?;
    Ok(table)
}

/// A table of columns that have a type and nothing else.
pub(crate) fn plain_table(
    context: &mut Context<'_>,
    name: &QualifiedName,
    columns: &[(&str, SqlType)],
) -> Result<()> {
    let schema = place(context, name, false)?.expect("an error if it exists");
    let columns = columns.iter().map(|(name, ty)| plain_column(name, *ty)).collect();
    let oid = context.allocate();
    add(context, oid, schema, &name.name, columns, TableSettings::default()).map(drop)
}

fn plain_column(name: &str, ty: SqlType) -> ColumnDef {
    ColumnDef {
        name: name.to_owned(),
        ty: ty.into(),
        not_null: false,
        default: None,
        identity: None,
        dropped: false,
    }
}

/// CREATE TABLE AS, SELECT INTO; how many rows it stored.
pub(super) fn table_as(
    context: &mut Context<'_>,
    name: &QualifiedName,
    if_not_exists: bool,
    names: &[String],
    query: &ast::Query,
    settings: TableSettings,
    with_data: bool,
) -> Result<Option<u64>> {
    let Some(schema) = place(context, name, if_not_exists)? else { return Ok(None) };
    let plan = output_of(context, query)?;
    if let Some(field) = plan.schema().fields().iter().find(|field| field.data_type().is_nested()) {
        let name = firn_exec::types::visible_name(field.name());
        return Err(Error::unsupported(format!("an array as column \"{name}\" of a table"))
            .with_hint("Store a row for each element (unnest)."));
    }
    let columns = columns_of(&plan, names)?;
    refuse_duplicates(columns.iter().map(|(name, _)| name.as_str()))?;
    let definitions = columns.iter().map(|(name, ty)| plain_column(name, *ty)).collect();
    let oid = context.allocate();
    let table = add(context, oid, schema, &name.name, definitions, settings)?;
    let mut rows = 0;
    if with_data && !columns.is_empty() {
        context.query_for_insert(query, &columns, |context, batch| {
            rows += batch.num_rows() as u64;
            rewrite::insert(context, &table, batch)
        })?;
    }
    Ok(with_data.then_some(rows))
}

/// The columns that a query yields, the first of them renamed.
pub(super) fn output_columns(
    context: &Context<'_>,
    query: &ast::Query,
    names: &[String],
) -> Result<Vec<(String, SqlType)>> {
    columns_of(&output_of(context, query)?, names)
}

fn output_of(context: &Context<'_>, query: &ast::Query) -> Result<LogicalPlan> {
    context.bind(|binder| {
        let plan = binder.query(query)?;
        match binder.parameter_types()?.is_empty() {
            true => Ok(plan),
            false => Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1")),
        }
    })
}

fn columns_of(plan: &LogicalPlan, names: &[String]) -> Result<Vec<(String, SqlType)>> {
    let mut columns = crate::bind::columns_of(plan.schema().as_arrow())?;
    for (position, (_, ty)) in columns.iter_mut().enumerate() {
        if matches!(ty, SqlType::Numeric { .. }) && !modifier::is_declared(plan, position) {
            *ty = SqlType::NUMERIC;
        }
    }
    if names.len() > columns.len() {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "too many column names were specified"));
    }
    for (column, name) in columns.iter_mut().zip(names) {
        column.0 = name.clone();
    }
    Ok(columns)
}
