//! CREATE SCHEMA, CREATE TABLE, CREATE TABLE AS, SELECT INTO.

use super::sequence::SequenceOptions;
use super::{
    Context, Filling, already_exists, column, constraint, execute_statement, expression, kinds, like,
    parameter, rewrite, sequence,
};
use crate::Column;
use crate::statement::{ObjectKind, QualifiedName, without_into};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, Type, Value};
use firn_syntax::tree::{
    CreateSchema, CreateTable, CreateTableAs, Query, Role, RoleKind, Statement, TableConstraintKind,
    TableElement, TableSource,
};
use firn_txn::catalog::{ColumnDef, ColumnType, Oid, SchemaDef, TableDef, TableSettings};

/// The most columns of a table, as in PostgreSQL.
pub(super) const MOST_COLUMNS: usize = 1600;

/// CREATE SCHEMA, with the objects that it creates.
pub(super) fn schema(context: &mut Context<'_>, text: &str, create: &CreateSchema) -> Result<()> {
    create.owner.iter().try_for_each(|owner| context.check_role(owner))?;
    let name = match (&create.name, &create.owner) {
        (Some(name), _) => name.text.to_string(),
        (None, Some(owner)) => role_name(context, owner),
        (None, None) => panic!("a schema has a name or an owner"),
    };
    if context.names().find_schema(&name).is_some() {
        if create.if_not_exists {
            let message = format!("schema \"{name}\" already exists, skipping");
            context.notice(SqlState::DUPLICATE_SCHEMA, message);
            return Ok(());
        }
        return Err(already_exists(ObjectKind::Schema, &name));
    }
    if name.starts_with("pg_") {
        return Err(Error::new(SqlState::new("42939"), format!("unacceptable schema name \"{name}\""))
            .with_detail("The prefix \"pg_\" is reserved for system schemas."));
    }
    let oid = context.allocate();
    let schema = SchemaDef { oid, name: name.clone() };
    context.catalog_mut()?.schemas.insert(oid, Arc::new(schema));
    if create.elements.is_empty() {
        return Ok(());
    }
    // Its elements find the schema before all others.
    let mut facts = (**context.facts).clone();
    facts.search_path.insert(0, name);
    let facts = Arc::new(facts);
    let mut inner = Context {
        engine: context.engine,
        transaction: context.transaction,
        facts: &facts,
        options: context.options,
        notices: context.notices,
    };
    for element in &create.elements {
        if super::tag(&element.statement).is_none() {
            return Err(Error::unsupported("this element of CREATE SCHEMA"));
        }
        execute_statement(&mut inner, text, &element.statement)?;
    }
    Ok(())
}

fn role_name(context: &Context<'_>, role: &Role) -> String {
    match &role.kind {
        RoleKind::Name(name) => name.to_string(),
        RoleKind::CurrentRole | RoleKind::CurrentUser | RoleKind::SessionUser => context.facts.user.clone(),
        RoleKind::Public => "public".to_owned(),
    }
}

/// The schema for a new table of that name; `None` if it exists and IF NOT EXISTS permits that.
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

pub(super) fn refuse_duplicates<'n>(columns: impl Iterator<Item = &'n str>) -> Result<()> {
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
        return Err(too_many_columns());
    }
    Ok(())
}

/// 54011
pub(super) fn too_many_columns() -> Error {
    Error::new(SqlState::new("54011"), format!("tables can have at most {MOST_COLUMNS} columns"))
}

/// CREATE TABLE
pub(super) fn table(context: &mut Context<'_>, text: &str, create: &CreateTable) -> Result<()> {
    let name = QualifiedName::from(&create.name);
    kinds::check_access_method(create.access_method.as_ref())?;
    kinds::check_tablespace(create.tablespace.as_ref())?;
    let settings = parameter::settings_of(&create.options)?;
    let Some(schema) = place(context, &name, create.if_not_exists)? else { return Ok(()) };
    let mut parts = Vec::with_capacity(create.elements.len());
    let mut constraints = Vec::new();
    let mut sources = Vec::new();
    for element in &create.elements {
        match element {
            TableElement::Column(definition) => {
                let mut part = column::parts(context, text, &name.name, definition)?;
                constraints.append(&mut part.constraints);
                parts.push(part);
            }
            TableElement::Like(like) => {
                let (source, mut columns) = like::columns(context, like)?;
                parts.append(&mut columns);
                sources.extend(source.map(|source| (source, like)));
            }
            TableElement::Constraint(constraint) => constraints.push((**constraint).clone()),
        }
    }
    refuse_duplicates(parts.iter().map(|part| part.column.name.as_str()))?;
    // They are known before the physical table is created, which then need not provide for NULLs there.
    for key in constraint::primary_key_columns(&constraints) {
        if let Some(part) = parts.iter_mut().find(|part| part.column.name == key) {
            part.column.not_null = true;
        }
    }
    let oid = context.allocate();
    for (position, part) in parts.iter_mut().enumerate() {
        if let Some(options) = &part.sequence {
            let owner = (oid, position as u16);
            let place = (schema, name.name.as_str());
            let (schema, sequence) = add_sequence(context, place, owner, &part.column, options)?;
            if part.serial {
                part.column.default = Some(column::next_value_of(context, schema, &sequence));
            }
        }
    }
    let (columns, generated): (Vec<ColumnDef>, Vec<_>) =
        parts.into_iter().map(|part| (part.column, part.generated)).unzip();
    let mut table = add(context, oid, schema, &name.name, columns, settings)?;
    for (place, expression) in generated.iter().enumerate() {
        if let Some(expression) = expression {
            let column = &table.columns[place];
            let kept = expression::check_generated(context, text, &table, column, expression)?;
            table.columns[place].generated = Some(kept);
        }
    }
    for (source, like) in &sources {
        like::constraints(context, &mut table, source, like)?;
    }
    // Keys before foreign keys, which may reference them.
    constraints.sort_by_key(|constraint| match &constraint.kind {
        TableConstraintKind::Unique { is_primary: true, .. } => 0,
        TableConstraintKind::Unique { .. } => 1,
        TableConstraintKind::Check(_) => 2,
        _ => 3,
    });
    for wanted in &constraints {
        constraint::add(context, text, &mut table, wanted, constraint::Rows::None)?;
    }
    context.put_table(table)
}

/// Creates the sequence of a serial or identity column of a table. Returns its schema and name.
pub(super) fn add_sequence(
    context: &mut Context<'_>,
    (schema, table): (Oid, &str),
    owner: (Oid, u16),
    column: &ColumnDef,
    options: &SequenceOptions,
) -> Result<(Oid, String)> {
    let name = match &options.name {
        None => context.names().fresh(schema, &format!("{table}_{}", column.name), "seq", &[]),
        Some(wanted) => {
            let placed = match &wanted.schema {
                Some(_) => context.names().creation_schema(wanted)?,
                None => schema,
            };
            if placed != schema {
                return Err(Error::new(
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    "sequence must be in same schema as table it is linked to",
                ));
            }
            if context.names().relation_in(schema, &wanted.name).is_some() {
                return Err(already_exists(ObjectKind::Sequence, &wanted.name));
            }
            wanted.name.clone()
        }
    };
    let ty = match options.ty {
        Some(ty) => ty,
        None => sequence::type_of(column.ty.declared)?,
    };
    let user = sequence::DrawingColumn { owner, is_identity: column.identity.is_some() };
    sequence::add(context, schema, &name, ty, options, Some(user))?;
    Ok((schema, name))
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
    // The catalog first: a transaction that does not get the DDL lock should leave nothing behind.
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

/// A table of columns that have only a type.
pub(crate) fn plain_table(
    context: &mut Context<'_>,
    name: &QualifiedName,
    columns: &[(&str, Type)],
) -> Result<()> {
    let schema = place(context, name, false)?.expect("an error if it exists");
    let columns = columns.iter().map(|(name, ty)| {
        let ty = ColumnType::new(*ty).expect("it is the type of a column");
        plain_column((*name).to_owned(), ty)
    });
    let columns = columns.collect();
    let oid = context.allocate();
    add(context, oid, schema, &name.name, columns, TableSettings::default()).map(drop)
}

pub(super) fn plain_column(name: String, ty: ColumnType) -> ColumnDef {
    ColumnDef {
        name,
        ty,
        not_null: false,
        default: None,
        identity: None,
        generated: None,
        hidden: false,
        dropped: false,
    }
}

/// CREATE TABLE AS. Returns how many rows it stored.
pub(super) fn table_as(context: &mut Context<'_>, text: &str, create: &CreateTableAs) -> Result<Option<u64>> {
    let TableSource::Query(query) = &create.source else { panic!("what EXECUTE runs has been prepared") };
    let new = NewTable::of(create)?;
    fill_from_query(context, text, &new, query)
}

/// SELECT INTO. Returns how many rows it stored.
pub(super) fn select_into(context: &mut Context<'_>, text: &str, query: &Query) -> Result<Option<u64>> {
    let new = NewTable::of_into(query);
    fill_from_query(context, text, &new, &without_into(query.clone()))
}

/// CREATE TABLE AS or SELECT INTO whose query has been prepared. Returns how many rows it stored.
pub(super) fn table_filled(
    context: &mut Context<'_>,
    statement: &Statement,
    filling: &Filling<'_>,
) -> Result<Option<u64>> {
    let new = match statement {
        Statement::CreateTableAs(create) => NewTable::of(create)?,
        Statement::Query(query) => NewTable::of_into(query),
        other => panic!("{other:?} makes no table from a query"),
    };
    let columns = |_: &Context<'_>| Ok(filling.columns.to_vec());
    let parameters = (filling.types, filling.values);
    fill(context, &new, columns, &filling.parsed.script, filling.query, parameters)
}

/// A table that is created from a query.
struct NewTable<'t> {
    name: QualifiedName,
    if_not_exists: bool,
    /// Of the first columns.
    names: Vec<&'t str>,
    settings: TableSettings,
    with_data: bool,
}

impl NewTable<'_> {
    fn of(create: &CreateTableAs) -> Result<NewTable<'_>> {
        kinds::check_access_method(create.access_method.as_ref())?;
        kinds::check_tablespace(create.tablespace.as_ref())?;
        Ok(NewTable {
            name: QualifiedName::from(&create.name),
            if_not_exists: create.if_not_exists,
            names: create.columns.iter().map(|name| &*name.text).collect(),
            settings: parameter::settings_of(&create.options)?,
            with_data: !create.with_no_data,
        })
    }

    fn of_into(query: &Query) -> NewTable<'_> {
        let into = kinds::into_of(query).expect("a query without INTO changes no catalog");
        let settings = TableSettings::default();
        NewTable {
            name: QualifiedName::from(&into.name),
            if_not_exists: false,
            names: Vec::new(),
            settings,
            with_data: true,
        }
    }
}

fn fill_from_query(
    context: &mut Context<'_>,
    text: &str,
    new: &NewTable<'_>,
    query: &Query,
) -> Result<Option<u64>> {
    let columns = |context: &Context<'_>| {
        Ok(context.bound(|catalog| firn_bind::describe(text, query, catalog))?.columns)
    };
    fill(context, new, columns, text, query, (&[], &[]))
}

/// Creates the table and stores in it the rows of a query in `text`, which has parameters of such types and values.
fn fill(
    context: &mut Context<'_>,
    new: &NewTable<'_>,
    columns_of: impl FnOnce(&Context<'_>) -> Result<Vec<Column>>,
    text: &str,
    query: &Query,
    (types, values): (&[Type], &[Value]),
) -> Result<Option<u64>> {
    let Some(schema) = place(context, &new.name, new.if_not_exists)? else { return Ok(None) };
    let yielded = columns_of(context)?;
    let mut columns = Vec::with_capacity(yielded.len());
    for (name, ty) in named(yielded.iter().map(|column| (&*column.name, column.ty)), &new.names)? {
        columns.push(plain_column(name.to_owned(), column::stored_type(name, ty)?));
    }
    refuse_duplicates(columns.iter().map(|column| column.name.as_str()))?;
    let oid = context.allocate();
    let mut table = add(context, oid, schema, &new.name.name, columns, new.settings)?;
    // The query must not see the table that it fills: the table gets its name afterwards.
    table.name = rewrite::hidden_name(oid);
    context.put_table(table.clone())?;
    let mut rows = 0;
    if new.with_data && !table.columns.is_empty() {
        let insert = rewrite::insertion(context, &table, query);
        let parsed = crate::parse::Parsed {
            script: text.into(),
            span: query.span,
            statement: Statement::Insert(Box::new(insert)),
        };
        rows = context.change(&parsed, types, values)?;
    }
    table.name = new.name.name.clone();
    context.put_table(table)?;
    Ok(new.with_data.then_some(rows))
}

/// Columns whose first ones are renamed.
pub(super) fn named<'n>(
    columns: impl ExactSizeIterator<Item = (&'n str, Type)>,
    names: &[&'n str],
) -> Result<Vec<(&'n str, Type)>> {
    if names.len() > columns.len() {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "too many column names were specified"));
    }
    let name = |(place, (name, ty))| (names.get(place).copied().unwrap_or(name), ty);
    Ok(columns.enumerate().map(name).collect())
}
