//! RENAME and SET SCHEMA: definitions that name an object are updated.

use super::{Context, already_exists, alter, expression, index, view};
use crate::names::{NAME_BYTES, Relation, missing_column, wrong_kind};
use crate::statement::{ObjectKind, QualifiedName, quote_ident};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_syntax::tree::{Name, Object, ObjectReference, Rename, RenamedPart, SetSchema};
use firn_txn::catalog::{ConstraintKind, IndexDef, Oid, SchemaDef, SequenceDef, TableDef, ViewDef};

/// ALTER … RENAME
pub(super) fn rename(context: &mut Context<'_>, rename: &Rename) -> Result<()> {
    let kind = super::kinds::object_kind(rename.object.object_type).expect("other kinds are refused");
    let name = name_of(&rename.object);
    let to = &*rename.new_name.text;
    if to.is_empty() || to.len() > NAME_BYTES {
        return Err(Error::new(SqlState::new("42622"), format!("name \"{to}\" is too long")));
    }
    if kind == ObjectKind::Schema {
        return rename_schema(context, &name.name, to);
    }
    match &rename.part {
        RenamedPart::Object => {
            let found = alter::relation_to_alter(context, kind.accepted_by_alter(), rename.if_exists, &name)?;
            let Some(relation) = found else { return Ok(()) };
            let schema = relation.schema();
            if context.names().relation_in(schema, to).is_some() {
                return Err(already_exists(kind, to));
            }
            put_moved(context, relation, None, Some(to))
        }
        RenamedPart::Column(column) => {
            match alter::relation_to_alter(context, kind.accepted_by_alter(), rename.if_exists, &name)? {
                None => Ok(()),
                Some(Relation::Table(table)) => {
                    context.lock(&table)?;
                    let table = TableDef::clone(&context.table(table.oid));
                    rename_column(context, table, &column.text, to)
                }
                Some(Relation::View(view)) => rename_view_column(context, &view, column, to),
                Some(_) => Err(wrong_kind(ObjectKind::Table, &name.name)),
            }
        }
        RenamedPart::Constraint(constraint) => {
            let found = alter::table_to_alter(context, rename.if_exists, &name)?;
            let Some(table) = found else { return Ok(()) };
            context.lock(&table)?;
            let table = TableDef::clone(&context.table(table.oid));
            rename_constraint(context, table, &constraint.text, to)
        }
        RenamedPart::Attribute(_) => unreachable!("it is refused"),
    }
}

/// ALTER … SET SCHEMA
pub(super) fn set_schema(context: &mut Context<'_>, change: &SetSchema) -> Result<()> {
    let kind = super::kinds::object_kind(change.object.object_type).expect("other kinds are refused");
    let name = name_of(&change.object);
    let found = alter::relation_to_alter(context, kind.accepted_by_alter(), change.if_exists, &name)?;
    let Some(relation) = found else { return Ok(()) };
    let placed = QualifiedName { schema: Some(change.schema.text.to_string()), name: name.name.clone() };
    let schema = context.names().creation_schema(&placed)?;
    if schema == relation.schema() {
        return Ok(());
    }
    if context.names().relation_in(schema, &name.name).is_some() {
        return Err(already_exists(kind, &name.name));
    }
    put_moved(context, relation, Some(schema), None)
}

fn name_of(object: &Object) -> QualifiedName {
    match &object.name {
        ObjectReference::Name(name) => name.into(),
        ObjectReference::Relation(relation) => (&relation.name).into(),
        other => panic!("{other:?} names no object of ours"),
    }
}

/// The relation and the position of a column. 42703 without one.
pub(super) fn column_of(context: &Context<'_>, relation: &QualifiedName, column: &str) -> Result<(Oid, u16)> {
    match context.names().relation(relation)? {
        Relation::Table(table) => match table.column(column) {
            Some((id, _)) => Ok((table.oid, id.0)),
            None => Err(missing_column(&table, column)),
        },
        Relation::View(view) => match view.columns.iter().position(|found| found.name == column) {
            Some(place) => Ok((view.oid, place as u16)),
            None => Err(missing_view_column(&view, column)),
        },
        _ => Err(wrong_kind(ObjectKind::Table, &relation.name)),
    }
}

fn missing_view_column(view: &ViewDef, column: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_COLUMN,
        format!("column \"{column}\" of relation \"{}\" does not exist", view.name),
    )
}

fn rename_column(context: &mut Context<'_>, mut table: TableDef, from: &str, to: &str) -> Result<()> {
    let Some((column, _)) = table.column(from) else {
        return Err(Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{from}\" does not exist")));
    };
    if table.column(to).is_some() {
        return Err(alter::column_exists(&table.name, to));
    }
    let views = view::dependents_on(context, &table, column.0);
    let names: Vec<String> = table.visible_columns().map(|(_, column)| column.name.clone()).collect();
    let (schema, relation) = (context.schema_name(table.schema).to_owned(), table.name.clone());
    table.columns[column.index()].name = to.to_owned();
    for definition in &mut table.columns {
        if let Some(expression) = &mut definition.generated {
            *expression = expression::rename_column(expression, from, to)?;
        }
    }
    index::rename_column(&mut table, from, to)?;
    for constraint in &mut table.constraints {
        if let ConstraintKind::Check { expression } = &mut constraint.kind {
            *expression = expression::rename_column(expression, from, to)?;
        }
    }
    context.put_table(table)?;
    view::keep_column_names(context, &views, (&schema, &relation), &names)
}

fn rename_view_column(context: &mut Context<'_>, view: &ViewDef, from: &Name, to: &str) -> Result<()> {
    let mut view = view.clone();
    let Some(place) = view.columns.iter().position(|column| *column.name == *from.text) else {
        return Err(missing_view_column(&view, &from.text));
    };
    if view.columns.iter().any(|column| column.name == to) {
        return Err(alter::column_exists(&view.name, to));
    }
    let views = view::dependents_on_column(context, view.oid, place as i16 + 1);
    let names: Vec<String> = view.columns.iter().map(|column| column.name.clone()).collect();
    let (schema, relation) = (context.schema_name(view.schema).to_owned(), view.name.clone());
    view.columns[place].name = to.to_owned();
    context.catalog_mut()?.views.insert(view.oid, Arc::new(view));
    view::keep_column_names(context, &views, (&schema, &relation), &names)
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
    // The index of a key has its name.
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

/// Builds a physical index again with its new definition: its name, which messages show, and whether it is
/// always unique, cannot be changed in place.
pub(super) fn rebuild(context: &mut Context<'_>, table: &mut TableDef, index: &IndexDef) -> Result<()> {
    context.lock(table)?;
    let storage = context.transaction.table(table.storage());
    context.transaction.drop_index(&storage, index.id())?;
    // A new id, because the old index remains in its table until commit.
    let fresh = IndexDef { oid: context.allocate(), ..index.clone() };
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
    let comment = context.transaction.catalog().comment(index.oid, 0).map(str::to_owned);
    if let Some(comment) = comment {
        context.catalog_mut()?.set_comment(fresh.oid, 0, Some(comment));
    }
    *place = fresh;
    Ok(())
}

/// Stores a relation under another name or schema, and updates views and defaults that name it.
fn put_moved(
    context: &mut Context<'_>,
    relation: Relation,
    schema: Option<Oid>,
    name: Option<&str>,
) -> Result<()> {
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
            return move_sequence(context, &sequence, new_schema, &new_name);
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
            // A key has the name of its index.
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
    let from = context.schema_name(old_schema).to_owned();
    let to = context.schema_name(new_schema).to_owned();
    view::rename_relation(context, (&from, &old_name), (&to, &new_name))
}

/// Stores a sequence under another name or schema, and updates defaults that name it.
fn move_sequence(context: &mut Context<'_>, sequence: &SequenceDef, schema: Oid, name: &str) -> Result<()> {
    let to = context.sql_name(schema, name);
    let defaults = sequence_defaults(context, |known| known.oid == sequence.oid, |_| to.clone());
    let moved = SequenceDef { schema, name: name.to_owned(), ..sequence.clone() };
    context.catalog_mut()?.sequences.insert(moved.oid, Arc::new(moved));
    put_defaults(context, defaults)?;
    let (from, to) =
        (context.schema_name(sequence.schema).to_owned(), context.schema_name(schema).to_owned());
    view::rename_relation(context, (&from, &sequence.name), (&to, name))
}

/// The defaults that name moved sequences, with the new names: the table, the column's position, and the text.
fn sequence_defaults(
    context: &Context<'_>,
    moves: impl Fn(&SequenceDef) -> bool,
    name: impl Fn(&SequenceDef) -> String,
) -> Vec<(Oid, usize, String)> {
    let catalog = context.transaction.catalog();
    let mut found = Vec::new();
    for table in catalog.tables.values() {
        for (id, column) in table.visible_columns() {
            let Some(before) = &column.default else { continue };
            let mut default = before.clone();
            for sequence in catalog.sequences.values().filter(|sequence| moves(sequence)) {
                let renamed = expression::rename_sequence(context, &default, sequence, &name(sequence));
                default = renamed.unwrap_or(default);
            }
            if default != *before {
                found.push((table.oid, id.index(), default));
            }
        }
    }
    found
}

fn put_defaults(context: &mut Context<'_>, defaults: Vec<(Oid, usize, String)>) -> Result<()> {
    for (table, column, default) in defaults {
        let mut table = TableDef::clone(&context.table(table));
        table.columns[column].default = Some(default);
        context.put_table(table)?;
    }
    Ok(())
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
        let sequences = catalog.sequences.values().filter(|sequence| sequence.schema == schema.oid);
        let names = tables.map(|table| &table.name).chain(views.map(|view| &view.name));
        names.chain(sequences.map(|sequence| &sequence.name)).cloned().collect()
    };
    // Defaults name the sequences of the schema.
    let defaults = sequence_defaults(
        context,
        |sequence| sequence.schema == schema.oid,
        |sequence| format!("{}.{}", quote_ident(to), quote_ident(&sequence.name)),
    );
    let renamed = SchemaDef { oid: schema.oid, name: to.to_owned() };
    context.catalog_mut()?.schemas.insert(schema.oid, Arc::new(renamed));
    put_defaults(context, defaults)?;
    for relation in relations {
        view::rename_relation(context, (from, &relation), (to, &relation))?;
    }
    Ok(())
}
