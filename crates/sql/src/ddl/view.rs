//! Views: the text of a query with every name in it qualified and every `*` written out.
//!
//! What a view depends on is read from that text when somebody asks, so there is nothing to keep
//! in step. A relation's new name is written into the texts that name it.

use super::{Context, already_exists, create};
use crate::files::is_file;
use crate::names::{Names, Relation};
use crate::statement::{ObjectKind, QualifiedName, fold, qualified_name};
use datafusion::sql::sqlparser::ast::{self, Expr};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_txn::Catalog;
use firn_txn::catalog::{ColumnDef, Oid, TableDef, ViewDef};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// CREATE [OR REPLACE] VIEW
pub(super) fn create(
    context: &mut Context<'_>,
    name: &QualifiedName,
    or_replace: bool,
    columns: &[String],
    query: &ast::Query,
) -> Result<()> {
    let schema = context.names().creation_schema(name)?;
    let old = match context.names().relation_in(schema, &name.name) {
        None => None,
        Some(Relation::View(view)) if or_replace => Some(view),
        Some(_) if or_replace => return Err(crate::names::wrong_kind(ObjectKind::View, &name.name)),
        Some(_) => return Err(already_exists(ObjectKind::View, &name.name)),
    };
    let output = create::output_columns(context, query, columns)?;
    let mut seen = BTreeSet::new();
    for (column, _) in &output {
        if !seen.insert(column.as_str()) {
            return Err(Error::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{column}\" specified more than once"),
            ));
        }
    }
    if let Some(old) = &old {
        keeps_columns(old, &output)?;
    }
    let mut query = query.clone();
    context.bind(|binder| {
        binder.merge_columns(&mut query);
        Ok(())
    })?;
    expand_wildcards(context, &mut query);
    qualify(context, &mut query)?;
    let oid = old.as_ref().map_or_else(|| context.allocate(), |old| old.oid);
    let view = ViewDef {
        oid,
        schema,
        name: name.name.clone(),
        columns: output
            .into_iter()
            .map(|(name, ty)| ColumnDef {
                name,
                ty: ty.into(),
                not_null: false,
                default: None,
                identity: None,
                dropped: false,
            })
            .collect(),
        query: query.to_string(),
    };
    if old.is_some() && dependencies(context.transaction.catalog(), &view).contains(&oid) {
        return Err(Error::new(
            SqlState::INVALID_OBJECT_DEFINITION,
            format!("infinite recursion detected in rules for relation \"{}\"", name.name),
        ));
    }
    context.catalog_mut()?.views.insert(oid, Arc::new(view));
    Ok(())
}

/// OR REPLACE may only add columns at the end, since others may use those that are there.
fn keeps_columns(old: &ViewDef, new: &[(String, firn_base::SqlType)]) -> Result<()> {
    let refuse = |message: String| Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
    if new.len() < old.columns.len() {
        return refuse("cannot drop columns from view".into());
    }
    for (old, (name, ty)) in old.columns.iter().zip(new) {
        if old.name != *name {
            return refuse(format!("cannot change name of view column \"{}\" to \"{name}\"", old.name));
        }
        if old.ty != (*ty).into() {
            return refuse(format!(
                "cannot change data type of view column \"{name}\" from {} to {ty}",
                old.ty
            ));
        }
    }
    Ok(())
}

/// Every table and view that a view's text names.
pub(crate) fn dependencies(catalog: &Catalog, view: &ViewDef) -> Vec<Oid> {
    let Ok(query) = crate::parse::parse_query(&view.query) else { return Vec::new() };
    let names = Names::qualified(catalog);
    let mut found = Vec::new();
    let _ = ast::visit_relations(&query, |name| {
        // Unqualified names are those of WITH and of functions.
        let relation = qualified_name(name).ok().and_then(|name| names.find(&name));
        let oid = match relation {
            Some(Relation::Table(table)) => table.oid,
            Some(Relation::View(view)) => view.oid,
            _ => return ControlFlow::<()>::Continue(()),
        };
        if !found.contains(&oid) {
            found.push(oid);
        }
        ControlFlow::Continue(())
    });
    found
}

/// The views that name a relation, directly or through other views, nearest first.
pub(super) fn dependents(catalog: &Catalog, relation: Oid) -> Vec<Arc<ViewDef>> {
    let mut found: Vec<Arc<ViewDef>> = Vec::new();
    let mut todo = vec![relation];
    while let Some(next) = todo.pop() {
        for view in catalog.views.values() {
            if view.oid != next
                && !found.iter().any(|known| known.oid == view.oid)
                && dependencies(catalog, view).contains(&next)
            {
                found.push(view.clone());
                todo.push(view.oid);
            }
        }
    }
    found
}

/// The views that name both a table and a column of that name.
pub(super) fn dependents_on_column(catalog: &Catalog, table: &TableDef, column: &str) -> Vec<Arc<ViewDef>> {
    let names_column = |view: &ViewDef| {
        let Ok(query) = crate::parse::parse_query(&view.query) else { return false };
        let mut found = false;
        let _ = ast::visit_expressions(&query, |expression| {
            found |= match expression {
                Expr::Identifier(name) => fold(name) == column,
                Expr::CompoundIdentifier(parts) => parts.last().is_some_and(|name| fold(name) == column),
                _ => false,
            };
            ControlFlow::<()>::Continue(())
        });
        found || query.to_string().contains('*')
    };
    catalog
        .views
        .values()
        .filter(|view| dependencies(catalog, view).contains(&table.oid) && names_column(view))
        .cloned()
        .collect()
}

/// Writes a relation's new name into the views that name it.
pub(super) fn rename_relation(context: &mut Context<'_>, from: (&str, &str), to: (&str, &str)) -> Result<()> {
    let changed: Vec<ViewDef> = context
        .transaction
        .catalog()
        .views
        .values()
        .filter_map(|view| {
            let mut query = crate::parse::parse_query(&view.query).ok()?;
            let mut touched = false;
            let _ = visit_tables_mut(&mut query, &mut |factor| {
                let ast::TableFactor::Table { name, alias, .. } = factor else { return };
                let Ok(QualifiedName { schema: Some(schema), name: relation }) = qualified_name(name) else {
                    return;
                };
                if (schema.as_str(), relation.as_str()) == from {
                    touched = true;
                    *name = object_name(to.0, to.1);
                    // Columns may be qualified by the old name.
                    if alias.is_none() && from.1 != to.1 {
                        *alias = Some(ast::TableAlias {
                            explicit: true,
                            name: ast::Ident::with_quote('"', from.1),
                            columns: Vec::new(),
                            at: None,
                        });
                    }
                }
            });
            touched.then(|| ViewDef { query: query.to_string(), ..ViewDef::clone(view) })
        })
        .collect();
    let catalog = context.catalog_mut()?;
    for view in changed {
        catalog.views.insert(view.oid, Arc::new(view));
    }
    Ok(())
}

fn object_name(schema: &str, name: &str) -> ast::ObjectName {
    ast::ObjectName::from(vec![ast::Ident::with_quote('"', schema), ast::Ident::with_quote('"', name)])
}

/// Calls `visit` with every table factor of a query, those of its subqueries included.
fn visit_tables_mut(query: &mut ast::Query, visit: &mut dyn FnMut(&mut ast::TableFactor)) -> ControlFlow<()> {
    struct Visitor<'v>(&'v mut dyn FnMut(&mut ast::TableFactor));
    impl ast::VisitorMut for Visitor<'_> {
        type Break = ();
        fn pre_visit_table_factor(&mut self, factor: &mut ast::TableFactor) -> ControlFlow<()> {
            (self.0)(factor);
            ControlFlow::Continue(())
        }
    }
    ast::VisitMut::visit(query, &mut Visitor(visit))
}

/// Names of WITH anywhere in a query.
fn common_tables(query: &ast::Query) -> BTreeSet<String> {
    struct Visitor(BTreeSet<String>);
    impl ast::Visitor for Visitor {
        type Break = ();
        fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
            for table in query.with.iter().flat_map(|with| &with.cte_tables) {
                self.0.insert(fold(&table.alias.name));
            }
            ControlFlow::Continue(())
        }
    }
    let mut visitor = Visitor(BTreeSet::new());
    let _ = ast::Visit::visit(query, &mut visitor);
    visitor.0
}

/// Qualifies every relation by its schema, so that the search path no longer matters. 42809 for a source, which
/// other sessions do not have.
fn qualify(context: &Context<'_>, query: &mut ast::Query) -> Result<()> {
    let local = common_tables(query);
    let names = context.names();
    let visited = ast::visit_relations_mut(query, |name| {
        if matches!(name.0.as_slice(), [ast::ObjectNamePart::Identifier(name)] if is_file(name)) {
            return ControlFlow::Continue(());
        }
        if let Ok(found) = qualified_name(name)
            && found.schema.is_none()
            && !local.contains(&found.name)
        {
            if let Err(error) = names.refuse_source(&found) {
                return ControlFlow::Break(error);
            }
            if let Some(relation) = names.find(&found)
                && let Some(schema) = names.catalog.schemas.get(&relation.schema())
            {
                *name = object_name(&schema.name, &found.name);
            }
        }
        ControlFlow::Continue(())
    });
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Writes `*` out in the outermost SELECT over plain tables, so that columns that come later stay
/// out of the view. Where FROM holds anything else the `*` stays.
fn expand_wildcards(context: &Context<'_>, query: &mut ast::Query) {
    let local = common_tables(query);
    let names = context.names();
    let ast::SetExpr::Select(select) = &mut *query.body else { return };
    let mut tables = Vec::new();
    for from in &select.from {
        let joined = from.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&from.relation).chain(joined) {
            let ast::TableFactor::Table { name, alias, args, .. } = factor else { return };
            // What is wrong with files has been told when the query was bound.
            if let Ok(Some((stem, columns))) = crate::files::columns_of(name, args.as_ref()) {
                match alias {
                    Some(alias) if !alias.columns.is_empty() => return,
                    Some(alias) => tables.push((fold(&alias.name), columns)),
                    None => tables.push((stem, columns)),
                }
                continue;
            }
            if args.is_some() {
                return;
            }
            let Ok(name) = qualified_name(name) else { return };
            let columns: Vec<String> = match names.find(&name) {
                _ if name.schema.is_none() && local.contains(&name.name) => return,
                Some(Relation::Table(table)) => {
                    table.visible_columns().map(|(_, column)| column.name.clone()).collect()
                }
                Some(Relation::View(view)) => view.columns.iter().map(|column| column.name.clone()).collect(),
                _ => return,
            };
            match alias {
                Some(alias) if alias.columns.is_empty() => tables.push((fold(&alias.name), columns)),
                Some(alias) if alias.columns.len() == columns.len() => {
                    let columns = alias.columns.iter().map(|column| fold(&column.name)).collect();
                    tables.push((fold(&alias.name), columns));
                }
                Some(_) => return,
                None => tables.push((name.name, columns)),
            }
        }
        // USING and NATURAL merge columns.
        let merges = |join: &ast::Join| {
            let constraint = match &join.join_operator {
                ast::JoinOperator::Join(constraint)
                | ast::JoinOperator::Inner(constraint)
                | ast::JoinOperator::Left(constraint)
                | ast::JoinOperator::LeftOuter(constraint)
                | ast::JoinOperator::Right(constraint)
                | ast::JoinOperator::RightOuter(constraint)
                | ast::JoinOperator::FullOuter(constraint) => constraint,
                _ => return false,
            };
            matches!(constraint, ast::JoinConstraint::Using(_) | ast::JoinConstraint::Natural)
        };
        if from.joins.iter().any(merges) {
            return;
        }
    }
    let item = |table: &str, column: &str| {
        ast::SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![
            ast::Ident::with_quote('"', table),
            ast::Ident::with_quote('"', column),
        ]))
    };
    let mut projection = Vec::new();
    for wanted in std::mem::take(&mut select.projection) {
        match &wanted {
            ast::SelectItem::Wildcard(_) => {
                for (table, columns) in &tables {
                    projection.extend(columns.iter().map(|column| item(table, column)));
                }
            }
            ast::SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let table = qualified_name(name).ok().map(|name| name.name);
                match tables.iter().find(|(found, _)| Some(found) == table.as_ref()) {
                    Some((table, columns)) => {
                        projection.extend(columns.iter().map(|column| item(table, column)));
                    }
                    None => projection.push(wanted),
                }
            }
            _ => projection.push(wanted),
        }
    }
    select.projection = projection;
}
