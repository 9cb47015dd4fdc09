//! DROP and TRUNCATE, and dependencies between objects.
//!
//! A table is dropped with its indexes, its constraints and the sequences it owns. Foreign keys of
//! other tables, views, and defaults that use a sequence depend on it: RESTRICT refuses with
//! 2BP01 and names them, CASCADE drops them too and reports them.

use super::foreign_key::index_all;
use super::{Context, absent, expression, index, kinds, rewrite, sequence, view};
use crate::names::Relation;
use crate::statement::{ObjectKind, QualifiedName};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, SqlState};
use firn_syntax::tree::{DropObjects, ObjectReference, Truncate};
use firn_txn::catalog::{ConstraintKind, IndexDef, Oid, SequenceDef, TableDef, ViewDef};

/// Something that may be dropped.
#[derive(Clone, PartialEq, Debug)]
enum Object {
    Schema(Oid),
    Table(Oid),
    View(Oid),
    Sequence(Oid),
    /// A foreign key of a table.
    ForeignKey(Oid, Oid),
    /// The default of a column.
    Default(Oid, u16),
}

/// DROP
pub(super) fn objects(context: &mut Context<'_>, objects: &DropObjects) -> Result<()> {
    let Some(kind) = kinds::object_kind(objects.object_type) else { return absent::drop(context, objects) };
    let mut wanted: Vec<Object> = Vec::new();
    for object in &objects.objects {
        let name = match object {
            ObjectReference::Name(name) => QualifiedName::from(name),
            ObjectReference::Relation(relation) => QualifiedName::from(&relation.name),
            other => panic!("{other:?} names no object of ours"),
        };
        if let Err(error) = context.names().check_schema(&name) {
            if !objects.if_exists {
                return Err(error);
            }
            context.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{}, skipping", error.message()));
            continue;
        }
        let found = match kind {
            ObjectKind::Schema => {
                context.names().schema(&name.name).map(|schema| Some(Object::Schema(schema.oid)))
            }
            _ => context.names().object(kind, &name).map(|relation| match relation {
                Relation::Table(table) => Some(Object::Table(table.oid)),
                Relation::View(view) => Some(Object::View(view.oid)),
                Relation::Sequence(sequence) => Some(Object::Sequence(sequence.oid)),
                Relation::Index(..) => None,
            }),
        };
        match found {
            Ok(Some(object)) if wanted.contains(&object) => {}
            Ok(Some(object)) => wanted.push(object),
            // An index is dropped at once: only constraints depend on one.
            Ok(None) => drop_index(context, &name, objects.cascade)?,
            Err(error) if objects.if_exists && error.state() != SqlState::WRONG_OBJECT_TYPE => {
                let message = format!("{} \"{}\" does not exist, skipping", kind.word(), name.name);
                context.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            }
            Err(error) => {
                let other =
                    context.names().find(&name).filter(|_| error.state() == SqlState::WRONG_OBJECT_TYPE);
                return Err(match other {
                    Some(other) => error.with_hint(absent::remove_hint(&other)),
                    None => error,
                });
            }
        }
    }
    drop_all(context, wanted, objects.cascade)
}

/// Drops objects with all their dependents, or refuses.
fn drop_all(context: &mut Context<'_>, wanted: Vec<Object>, cascade: bool) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    for object in &wanted {
        if let Object::Schema(oid) = object
            && [Oid::PG_CATALOG, Oid::INFORMATION_SCHEMA].contains(oid)
        {
            let name = context.transaction.catalog().schemas[oid].name.clone();
            return Err(Error::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot drop schema {name} because it is required by the database system"),
            ));
        }
    }
    for object in &wanted {
        let Object::Sequence(sequence) = object else { continue };
        let sequence = &context.transaction.catalog().sequences[sequence];
        let Some((table, column)) = sequence::identity_column(context, sequence) else { continue };
        let column = format!("column {} of table {}", table.columns[usize::from(column)].name, table.name);
        return Err(Error::new(
            SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop sequence {} because {column} requires it", sequence.name),
        )
        .with_hint(format!("You can drop {column} instead.")));
    }
    // `all` grows during the loop; each object is stored with the one that it depends on.
    let mut all: Vec<(Object, Option<usize>)> = wanted.iter().map(|object| (object.clone(), None)).collect();
    let mut next = 0;
    while next < all.len() {
        for (dependent, silent) in dependents(context, &all[next].0.clone()) {
            // A part of a table is dropped with it and not mentioned.
            let whole = match &dependent {
                Object::ForeignKey(table, _) | Object::Default(table, _) => Object::Table(*table),
                other => other.clone(),
            };
            if !all.iter().any(|(known, _)| *known == dependent || *known == whole) {
                all.push((dependent, if silent { None } else { Some(next) }));
            }
        }
        next += 1;
    }
    let lines: Vec<(String, String)> = all
        .iter()
        .filter_map(|(object, cause)| {
            cause.map(|cause| (describe(context, object), describe(context, &all[cause].0)))
        })
        .collect();
    if !cascade && !lines.is_empty() {
        let what = match wanted.as_slice() {
            [one] => describe(context, one),
            _ => "desired object(s)".to_owned(),
        };
        let detail: Vec<String> =
            lines.iter().map(|(dependent, cause)| format!("{dependent} depends on {cause}")).collect();
        return Err(Error::new(
            SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop {what} because other objects depend on it").replace(
                "object(s) because other objects depend on it",
                "object(s) because other objects depend on them",
            ),
        )
        .with_detail(detail.join("\n"))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
    }
    let cascaded: Vec<String> = lines.into_iter().map(|(dependent, _)| dependent).collect();
    context.notice_cascade(&cascaded);
    // Dependents first, so that no definition ever names a dropped object.
    for (object, _) in all.iter().rev() {
        remove(context, object)?;
    }
    Ok(())
}

/// The dependents of an object; the flag is true for parts of it, which are not mentioned.
fn dependents(context: &Context<'_>, object: &Object) -> Vec<(Object, bool)> {
    let catalog = context.transaction.catalog();
    let mut found = Vec::new();
    match object {
        Object::Schema(schema) => {
            for table in catalog.tables.values().filter(|table| table.schema == *schema) {
                found.push((Object::Table(table.oid), false));
            }
            for view in catalog.views.values().filter(|view| view.schema == *schema) {
                found.push((Object::View(view.oid), false));
            }
            for sequence in catalog.sequences.values().filter(|sequence| sequence.schema == *schema) {
                let owned = sequence.owner.is_some_and(|(table, _)| {
                    catalog.tables.get(&table).is_some_and(|table| table.schema == *schema)
                });
                found.push((Object::Sequence(sequence.oid), owned));
            }
        }
        Object::Table(table) => {
            for sequence in catalog.sequences.values() {
                if sequence.owner.is_some_and(|(owner, _)| owner == *table) {
                    found.push((Object::Sequence(sequence.oid), true));
                }
            }
            for (child, constraint) in foreign_keys_to(context, *table) {
                if child.oid != *table {
                    found.push((Object::ForeignKey(child.oid, constraint), false));
                }
            }
            for view in view::dependents(catalog, *table) {
                found.push((Object::View(view.oid), false));
            }
        }
        Object::View(view) => {
            for view in view::dependents(catalog, *view) {
                found.push((Object::View(view.oid), false));
            }
        }
        Object::Sequence(sequence) => {
            let sequence = &catalog.sequences[sequence];
            for table in catalog.tables.values() {
                for (column, definition) in table.visible_columns() {
                    let uses = definition
                        .default
                        .as_deref()
                        .is_some_and(|default| expression::uses_sequence(context, default, sequence));
                    if uses {
                        // The default of the owning column belongs to a table that is dropped too, or
                        // is a dependent that must be reported to the user.
                        found.push((Object::Default(table.oid, column.0), false));
                    }
                }
            }
            for view in view::dependents(catalog, sequence.oid) {
                found.push((Object::View(view.oid), false));
            }
        }
        Object::ForeignKey(..) | Object::Default(..) => {}
    }
    found
}

/// The foreign keys that reference a table: the referencing table and the constraint.
pub(super) fn foreign_keys_to(context: &Context<'_>, parent: Oid) -> Vec<(Arc<TableDef>, Oid)> {
    let mut found = Vec::new();
    for table in context.transaction.catalog().tables.values() {
        for constraint in &table.constraints {
            if matches!(&constraint.kind, ConstraintKind::ForeignKey { parent: to, .. } if *to == parent) {
                found.push((table.clone(), constraint.oid));
            }
        }
    }
    found
}

/// The object as named in messages.
fn describe(context: &Context<'_>, object: &Object) -> String {
    let catalog = context.transaction.catalog();
    match object {
        Object::Schema(oid) => format!("schema {}", catalog.schemas[oid].name),
        Object::Table(oid) => {
            let table = &catalog.tables[oid];
            format!("table {}", context.shown_name(table.schema, &table.name))
        }
        Object::View(oid) => {
            let view = &catalog.views[oid];
            format!("view {}", context.shown_name(view.schema, &view.name))
        }
        Object::Sequence(oid) => {
            let sequence = &catalog.sequences[oid];
            format!("sequence {}", context.shown_name(sequence.schema, &sequence.name))
        }
        Object::ForeignKey(table, constraint) => {
            let table = &catalog.tables[table];
            let name = table.constraints.iter().find(|found| found.oid == *constraint);
            format!(
                "constraint {} on table {}",
                name.map_or("?", |found| found.name.as_str()),
                context.shown_name(table.schema, &table.name)
            )
        }
        Object::Default(table, column) => {
            let table = &catalog.tables[table];
            format!(
                "default value for column {} of table {}",
                table.columns[usize::from(*column)].name,
                context.shown_name(table.schema, &table.name)
            )
        }
    }
}

/// Removes one object from the catalog, whose dependents are removed already.
fn remove(context: &mut Context<'_>, object: &Object) -> Result<()> {
    match object {
        Object::Schema(oid) => {
            context.catalog_mut()?.schemas.remove(oid);
        }
        Object::View(oid) => {
            context.catalog_mut()?.views.remove(oid);
        }
        Object::Sequence(oid) => {
            context.catalog_mut()?.sequences.remove(oid);
        }
        Object::Table(oid) => {
            let table = context.table(*oid);
            context.lock(&table)?;
            context.refuse_pending(&table, "DROP TABLE")?;
            context.transaction.drop_storage(table.storage())?;
            context.catalog_mut()?.tables.remove(oid);
        }
        Object::ForeignKey(table, constraint) => {
            let mut table = TableDef::clone(&context.table(*table));
            context.lock(&table)?;
            remove_constraint(context, &mut table, *constraint)?;
            index_all(context, &mut table)?;
            context.put_table(table)?;
        }
        Object::Default(table, column) => {
            let mut table = TableDef::clone(&context.table(*table));
            table.columns[usize::from(*column)].default = None;
            context.put_table(table)?;
        }
    }
    Ok(())
}

/// Removes a constraint from a table, with the index that was made for it.
pub(super) fn remove_constraint(context: &mut Context<'_>, table: &mut TableDef, oid: Oid) -> Result<()> {
    let position = table
        .constraints
        .iter()
        .position(|constraint| constraint.oid == oid)
        .expect("the constraint is the table's");
    let constraint = table.constraints.remove(position);
    match constraint.kind {
        ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index } => {
            remove_index(context, table, index)
        }
        ConstraintKind::ForeignKey { columns, .. } => {
            // Another key over the same columns makes an index of its own after this one is dropped.
            let index = table.indexes.iter().find(|index| {
                index.internal && index.columns.iter().map(|column| column.column).eq(columns.iter().copied())
            });
            match index.map(|index| index.oid) {
                Some(index) => remove_index(context, table, index),
                None => Ok(()),
            }
        }
        ConstraintKind::Check { .. } => Ok(()),
    }
}

/// Removes an index from a table and its storage.
pub(super) fn remove_index(context: &mut Context<'_>, table: &mut TableDef, oid: Oid) -> Result<()> {
    let position = table.indexes.iter().position(|index| index.oid == oid).expect("the index is the table's");
    let index = table.indexes.remove(position);
    let storage = context.transaction.table(table.storage());
    context.transaction.drop_index(&storage, index.id())?;
    index::drop_hidden_columns(table);
    Ok(())
}

fn drop_index(context: &mut Context<'_>, name: &QualifiedName, cascade: bool) -> Result<()> {
    let Relation::Index(table, index) = context.names().object(ObjectKind::Index, name)? else {
        return Err(context.names().missing(ObjectKind::Index, name));
    };
    let holder = table.constraints.iter().find(|constraint| {
        matches!(constraint.kind, ConstraintKind::PrimaryKey { index: held } | ConstraintKind::Unique { index: held }
            if held == index.oid)
    });
    if let Some(holder) = holder {
        return Err(Error::new(
            SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
            format!(
                "cannot drop index {} because constraint {} on table {} requires it",
                index.name, holder.name, table.name
            ),
        )
        .with_hint(format!("You can drop constraint {} on table {} instead.", holder.name, table.name)));
    }
    context.lock(&table)?;
    let mut table = TableDef::clone(&context.table(table.oid));
    // Foreign keys may reference a unique index without a constraint.
    let relying = relying_foreign_keys(context, &table, index.oid);
    refuse_or_drop_foreign_keys(context, &format!("index {}", index.name), &relying, cascade)?;
    if relying.iter().any(|(child, _)| child.oid == table.oid) {
        table = TableDef::clone(&context.table(table.oid));
    }
    remove_index(context, &mut table, index.oid)?;
    // It may have been the index that finds the rows of a foreign key.
    index_all(context, &mut table)?;
    context.put_table(table)
}

/// The foreign keys that could no longer be checked without a unique index.
pub(super) fn relying_foreign_keys(
    context: &Context<'_>,
    table: &TableDef,
    index: Oid,
) -> Vec<(Arc<TableDef>, Oid)> {
    let covers = |candidate: &IndexDef, columns: &[u16]| {
        candidate.is_always_unique()
            && candidate.columns.len() == columns.len()
            && columns.iter().all(|wanted| candidate.columns.iter().any(|found| found.column == *wanted))
    };
    let mut keys = foreign_keys_to(context, table.oid);
    keys.retain(|(child, constraint)| {
        child.constraints.iter().any(|found| {
            found.oid == *constraint
                && matches!(&found.kind, ConstraintKind::ForeignKey { parent_columns, .. }
                    if !table.indexes.iter().any(|other| other.oid != index && covers(other, parent_columns)))
        })
    });
    keys
}

/// Drops foreign keys that rely on `what`, or refuses with 2BP01.
pub(super) fn refuse_or_drop_foreign_keys(
    context: &mut Context<'_>,
    what: &str,
    keys: &[(Arc<TableDef>, Oid)],
    cascade: bool,
) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> =
        keys.iter().map(|(table, key)| describe(context, &Object::ForeignKey(table.oid, *key))).collect();
    if !cascade {
        let detail: Vec<String> = lines.iter().map(|line| format!("{line} depends on {what}")).collect();
        return Err(Error::new(
            SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop {what} because other objects depend on it"),
        )
        .with_detail(detail.join("\n"))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
    }
    context.notice_cascade(&lines);
    for (table, key) in keys {
        remove(context, &Object::ForeignKey(table.oid, *key))?;
    }
    Ok(())
}

/// Drops views that use an object, or refuses with 2BP01.
pub(super) fn refuse_or_drop_views(
    context: &mut Context<'_>,
    what: &str,
    views: Vec<Arc<ViewDef>>,
    cascade: bool,
) -> Result<()> {
    if views.is_empty() {
        return Ok(());
    }
    if cascade {
        let all = views.iter().map(|view| Object::View(view.oid)).collect();
        let lines: Vec<String> =
            views.iter().map(|view| describe(context, &Object::View(view.oid))).collect();
        context.notice_cascade(&lines);
        return drop_all(context, all, cascade);
    }
    let lines: Vec<String> = views
        .iter()
        .map(|view| format!("{} depends on {what}", describe(context, &Object::View(view.oid))))
        .collect();
    Err(needs_cascade(what, &lines))
}

/// 2BP01; each line names a dependent and the object that it depends on.
pub(super) fn needs_cascade(what: &str, lines: &[String]) -> Error {
    Error::new(
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
        format!("cannot drop {what} because other objects depend on it"),
    )
    .with_detail(lines.join("\n"))
    .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// TRUNCATE: the tables get new, empty storage.
pub(super) fn truncate(context: &mut Context<'_>, truncate: &Truncate) -> Result<()> {
    let mut tables: Vec<Arc<TableDef>> = Vec::new();
    for relation in &truncate.tables {
        let table = context.names().table(&QualifiedName::from(&relation.name))?;
        if !tables.iter().any(|known| known.oid == table.oid) {
            tables.push(table);
        }
    }
    let named = tables.len();
    let mut next = 0;
    while next < tables.len() {
        let parent = tables[next].clone();
        for (child, _) in foreign_keys_to(context, parent.oid) {
            if tables.iter().any(|known| known.oid == child.oid) {
                continue;
            }
            if !truncate.cascade {
                return Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "cannot truncate a table referenced in a foreign key constraint",
                )
                .with_detail(format!("Table \"{}\" references \"{}\".", child.name, parent.name))
                .with_hint(format!(
                    "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
                    child.name
                )));
            }
            tables.push(child);
        }
        next += 1;
    }
    for table in &tables[named..] {
        context.notice(
            SqlState::SUCCESSFUL_COMPLETION,
            format!("truncate cascades to table \"{}\"", context.shown_name(table.schema, &table.name)),
        );
    }
    for table in &tables {
        context.lock(table)?;
        context.refuse_pending(table, "TRUNCATE")?;
        let mut table = TableDef::clone(&context.table(table.oid));
        let old = table.storage();
        let name = table.name.clone();
        table.storage = rewrite::create_storage(context, &name, &table.columns)?.0;
        for definition in table.indexes.clone() {
            index::build(context, &table, &definition)?;
        }
        context.transaction.drop_storage(old)?;
        let oid = table.oid;
        context.put_table(table)?;
        if truncate.restart_identity {
            let owned: Vec<Arc<SequenceDef>> = context
                .transaction
                .catalog()
                .sequences
                .values()
                .filter(|sequence| sequence.owner.is_some_and(|(owner, _)| owner == oid))
                .cloned()
                .collect();
            for sequence in owned {
                context.engine.set_value(&sequence, sequence.start, false)?;
            }
        }
    }
    Ok(())
}

/// The sequences that a column owns are dropped with it.
pub(super) fn remove_owned_sequences(context: &mut Context<'_>, table: Oid, column: ColumnId) -> Result<()> {
    let owned: Vec<Oid> = context
        .transaction
        .catalog()
        .sequences
        .values()
        .filter(|sequence| sequence.owner == Some((table, column.0)))
        .map(|sequence| sequence.oid)
        .collect();
    let catalog = context.catalog_mut()?;
    for sequence in owned {
        catalog.sequences.remove(&sequence);
    }
    Ok(())
}
