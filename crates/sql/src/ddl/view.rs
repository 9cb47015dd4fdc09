//! Views: the text of a query with every name in it qualified and every `*` written out.
//!
//! The binder resolves the names of a query ([`firn_bind::describe`]). The dependencies of a view are read from its text when
//! they are needed, so they cannot be outdated. A relation's new name is written into the texts that name it.

use super::create::{named, plain_column, refuse_duplicates};
use super::expression::fix_literal;
use super::{Context, already_exists, column};
use crate::names::{Names, Relation};
use crate::statement::{ObjectKind, QualifiedName};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_bind::{Described, RelationUses};
use firn_syntax::Span;
use firn_syntax::print;
use firn_syntax::tree::{
    self, Alias, CommonTable, CreateView, Expr, ExprKind, FromItem, Join, JoinConstraint, JoinKind, Name,
    ObjectName, Query, QueryBody, Select, SortItem, Statement, Table, TableKind, Target, With,
};
use firn_syntax::visit::{self, Visitor};
use firn_txn::Catalog;
use firn_txn::catalog::{ColumnDef, Oid, TableDef, ViewDef};

/// CREATE [OR REPLACE] VIEW
pub(super) fn create(context: &mut Context<'_>, text: &str, create: &CreateView) -> Result<()> {
    let name = QualifiedName::from(&create.name);
    let schema = context.names().creation_schema(&name)?;
    let old = match context.names().relation_in(schema, &name.name) {
        None => None,
        Some(Relation::View(view)) if create.or_replace => Some(view),
        Some(_) if create.or_replace => return Err(crate::names::wrong_kind(ObjectKind::View, &name.name)),
        Some(_) => return Err(already_exists(ObjectKind::View, &name.name)),
    };
    let mut query = match create.is_recursive {
        true => recursive(create),
        false => (*create.query).clone(),
    };
    check_form(&mut query)?;
    visit::query(&mut WithoutTable, &mut query);
    let described = context.bound(|catalog| firn_bind::describe(text, &query, catalog))?;
    for (_, relation) in &described.uses.relations {
        if relation.schema.is_empty() {
            let unqualified = QualifiedName { schema: None, name: relation.name.to_string() };
            context.names().refuse_source(&unqualified)?;
        }
    }
    let names: Vec<&str> = create.columns.iter().map(|name| &*name.text).collect();
    let found = described.columns.iter().map(|column| (&*column.name, column.ty));
    let mut columns: Vec<ColumnDef> = Vec::with_capacity(described.columns.len());
    for (name, ty) in named(found, &names)? {
        columns.push(plain_column(name.to_owned(), column::stored_type(name, ty)?));
    }
    refuse_duplicates(columns.iter().map(|column| column.name.as_str()))?;
    if let Some(old) = &old {
        keeps_columns(old, &columns)?;
    }
    let query = canonical(context, &query, &described)?;
    let oid = old.as_ref().map_or_else(|| context.allocate(), |old| old.oid);
    let view = ViewDef { oid, schema, name: name.name.clone(), columns, query };
    if let Some(old) = &old {
        let mut before: Vec<String> = old.columns.iter().map(|column| column.name.clone()).collect();
        let schema = context.schema_name(schema).to_owned();
        for column in &view.columns[old.columns.len()..] {
            keep_names_apart(context, oid, (&schema, &view.name), &before, &column.name)?;
            before.push(column.name.clone());
        }
    }
    if old.is_some() && relations_behind(context.transaction.catalog(), &view).contains(&oid) {
        return Err(Error::new(
            SqlState::INVALID_OBJECT_DEFINITION,
            format!("infinite recursion detected in rules for relation \"{}\"", name.name),
        ));
    }
    context.catalog_mut()?.views.insert(oid, Arc::new(view));
    Ok(())
}

/// `CREATE RECURSIVE VIEW v (columns) AS query` as `WITH RECURSIVE v (columns) AS (query) SELECT columns FROM v`.
fn recursive(create: &CreateView) -> Query {
    let name = &create.name.name;
    let common = CommonTable {
        name: name.clone(),
        columns: create.columns.clone(),
        is_materialized: None,
        statement: Statement::Query(create.query.clone()),
        search: None,
        cycle: None,
    };
    let column = |column: &Name| Target::Value {
        value: Expr {
            kind: ExprKind::Column(Box::new(ObjectName::simple(column.clone()))),
            span: column.span,
        },
        alias: None,
    };
    let relation = tree::Relation { name: ObjectName::simple(name.clone()), is_only: false };
    let kind = TableKind::Relation { relation, sample: None };
    let from = FromItem { first: Table { span: name.span, kind, alias: None }, joins: Vec::new() };
    let targets = create.columns.iter().map(column).collect();
    let span = create.query.span;
    Query {
        span,
        with: Some(Box::new(With { span, is_recursive: true, tables: vec![common] })),
        body: QueryBody::Select(Box::new(select(span, targets, from))),
        order_by: Vec::new(),
        limit: None,
        offset: None,
        locking: Vec::new(),
    }
}

fn select(span: Span, targets: Vec<Target>, from: FromItem) -> Select {
    Select {
        span,
        distinct: None,
        targets,
        into: None,
        from: vec![from],
        condition: None,
        group_by: Vec::new(),
        is_group_distinct: false,
        having: None,
        windows: Vec::new(),
    }
}

/// 0A000 for queries that a view cannot have.
fn check_form(query: &mut Query) -> Result<()> {
    struct Changes(bool);
    impl Visitor for Changes {
        fn change(&mut self, _: &Statement) {
            self.0 = true;
        }
    }
    let refuse = |message: &str| Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    if super::kinds::into_of(query).is_some() {
        return refuse("views must not contain SELECT INTO");
    }
    let mut changes = Changes(false);
    visit::query(&mut changes, query);
    match changes.0 {
        true => refuse("views must not contain data-modifying statements in WITH"),
        false => Ok(()),
    }
}

/// Writes `TABLE t` as `SELECT * FROM t`, whose columns can be expanded.
struct WithoutTable;

impl Visitor for WithoutTable {
    fn body(&mut self, body: &mut QueryBody) {
        let QueryBody::Table(relation) = body else { return };
        let span = relation.name.span();
        let kind = TableKind::Relation { relation: (**relation).clone(), sample: None };
        let from = FromItem { first: Table { span, kind, alias: None }, joins: Vec::new() };
        *body = QueryBody::Select(Box::new(select(span, vec![Target::All(span)], from)));
    }
}

/// The text of a query that means the same under every search path, and after columns are added to its relations.
fn canonical(context: &Context<'_>, query: &Query, described: &Described) -> Result<String> {
    let text = |writes_columns: bool| {
        let mut query = query.clone();
        visit::query(&mut Qualify { uses: &described.uses, writes_columns }, &mut query);
        print::query(&query)
    };
    let written = text(true);
    let again = parsed(&written).map_or_else(
        || Err(Error::internal("a view's text is no query")),
        |query| context.bound(|catalog| firn_bind::describe(&written, &query, catalog)),
    );
    let is_same = |again: &Described| {
        again.columns.len() == described.columns.len()
            && again.columns.iter().zip(&described.columns).all(|(a, b)| a.name == b.name && a.ty == b.ty)
    };
    // A column of an expanded star may have no unambiguous name.
    Ok(if again.is_ok_and(|again| is_same(&again)) { written } else { text(false) })
}

/// Writes the resolved names into a query.
struct Qualify<'u> {
    uses: &'u RelationUses,
    /// Whether stars are expanded, and columns qualified with their relations.
    writes_columns: bool,
}

fn noted<T>(list: &[(Span, T)], span: Span) -> Option<&T> {
    // Spans are compared by their positions alone.
    let is_there = |(place, _): &&(Span, T)| (place.start, place.end) == (span.start, span.end);
    list.iter().find(is_there).map(|(_, what)| what)
}

impl Visitor for Qualify<'_> {
    fn relation(&mut self, relation: &mut tree::Relation) {
        if let Some(found) = noted(&self.uses.relations, relation.name.span()) {
            let schema = Name { text: (&*found.schema).into(), span: relation.name.span() };
            relation.name.qualifiers = vec![schema];
        }
    }

    fn expr(&mut self, expr: &mut Expr) {
        fix_literal(expr, &self.uses.literals);
        let ExprKind::Column(name) = &mut expr.kind else { return };
        if self.writes_columns && name.qualifiers.is_empty() {
            let meant = self.uses.names.iter().find(|(at, _)| *at == name.name.span.start);
            if let Some((_, meant)) = meant.filter(|(_, meant)| meant.name == name.name) {
                name.qualifiers.clone_from(&meant.qualifiers);
            }
        }
    }

    fn targets(&mut self, targets: &mut Vec<Target>) {
        if !self.writes_columns {
            return;
        }
        let mut written = Vec::with_capacity(targets.len());
        for target in std::mem::take(targets) {
            let span = match &target {
                Target::All(span) => *span,
                Target::Value { value, .. } => value.span,
            };
            match noted(&self.uses.stars, span) {
                Some(columns) => written.extend(columns.iter().map(|column| Target::Value {
                    value: Expr { kind: ExprKind::Column(Box::new(column.clone())), span },
                    alias: None,
                })),
                None => written.push(target),
            }
        }
        *targets = written;
    }

    fn join(&mut self, join: &mut Join) {
        let Some(columns) = noted(&self.uses.natural, join.span) else { return };
        join.constraint = match (&columns[..], join.kind) {
            ([], JoinKind::Inner) => JoinConstraint::None,
            ([], _) => JoinConstraint::On(Expr { kind: ExprKind::Boolean(true), span: join.span }),
            (columns, _) => JoinConstraint::Using {
                columns: columns.iter().map(|name| Name::new(name.clone())).collect(),
                alias: None,
            },
        };
    }
}

/// OR REPLACE may only add columns at the end, since other objects may use the existing ones.
fn keeps_columns(old: &ViewDef, new: &[ColumnDef]) -> Result<()> {
    let refuse = |message: String| Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
    if new.len() < old.columns.len() {
        return refuse("cannot drop columns from view".into());
    }
    for (old, new) in old.columns.iter().zip(new) {
        if old.name != new.name {
            return refuse(format!("cannot change name of view column \"{}\" to \"{}\"", old.name, new.name));
        }
        if old.ty.declared != new.ty.declared {
            return refuse(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                new.name, old.ty, new.ty
            ));
        }
    }
    Ok(())
}

/// The query of a view.
fn parsed(text: &str) -> Option<Query> {
    match crate::parse::parse_one(text).ok()??.statement {
        Statement::Query(query) => Some(*query),
        _ => None,
    }
}

/// The query of a view as the catalogs show it: with the names of the view's columns, which it may have been given apart from
/// its query. A query whose ORDER BY uses an alias is shown as it is written.
pub(crate) fn shown_query(view: &ViewDef) -> String {
    let as_written = || view.query.trim().trim_end_matches(';').to_owned();
    let Some(mut query) = parsed(&view.query) else { return as_written() };
    let uses_alias = |item: &SortItem| matches!(item.value.kind, ExprKind::Column(_));
    let is_sorted = query.order_by.iter().any(uses_alias);
    let Some(select) = first_select(&mut query.body) else { return as_written() };
    let has_stars = select.targets.iter().any(|target| matches!(target, Target::All(_)));
    if is_sorted || has_stars || select.targets.len() != view.columns.len() {
        return as_written();
    }
    let mut is_renamed = false;
    for (target, column) in select.targets.iter_mut().zip(&view.columns) {
        let Target::Value { value, alias } = target else { continue };
        let name =
            alias.as_ref().map_or_else(|| firn_bind::column_name(value), |alias| alias.text.to_string());
        if name != column.name {
            *alias = Some(Name { text: column.name.as_str().into(), span: value.span });
            is_renamed = true;
        }
    }
    if is_renamed { print::query(&query) } else { as_written() }
}

/// The SELECT that names the columns of a query.
fn first_select(body: &mut QueryBody) -> Option<&mut Select> {
    match body {
        QueryBody::Select(select) => Some(select),
        QueryBody::SetOperation(operation) => first_select(&mut operation.first),
        QueryBody::Nested(query) => first_select(&mut query.body),
        QueryBody::Values(_) | QueryBody::Table(_) => None,
    }
}

/// Every table, view and sequence that a view's text reads.
pub(crate) fn dependencies(catalog: &Catalog, view: &ViewDef) -> Vec<Oid> {
    struct Relations<'c>(Names<'c>, Vec<Oid>);
    impl Visitor for Relations<'_> {
        fn relation(&mut self, relation: &mut tree::Relation) {
            // Unqualified names are those of WITH.
            let oid = match self.0.find(&QualifiedName::from(&relation.name)) {
                Some(Relation::Table(table)) => table.oid,
                Some(Relation::View(view)) => view.oid,
                Some(Relation::Sequence(sequence)) => sequence.oid,
                _ => return,
            };
            if !self.1.contains(&oid) {
                self.1.push(oid);
            }
        }
    }
    let Some(mut query) = parsed(&view.query) else { return Vec::new() };
    let mut relations = Relations(Names::qualified(catalog), Vec::new());
    visit::query(&mut relations, &mut query);
    relations.1
}

/// All that a view reads, directly or through other views.
fn relations_behind(catalog: &Catalog, view: &ViewDef) -> Vec<Oid> {
    let mut found = dependencies(catalog, view);
    let mut next = 0;
    while let Some(relation) = found.get(next) {
        if let Some(view) = catalog.views.get(relation) {
            let further = dependencies(catalog, view);
            let new: Vec<Oid> = further.into_iter().filter(|relation| !found.contains(relation)).collect();
            found.extend(new);
        }
        next += 1;
    }
    found
}

/// The tables that LOCK TABLE locks under a name: those of a view are all that it reads, directly or through other views.
pub fn locked_by(names: &Names<'_>, name: &QualifiedName) -> Result<Vec<Arc<TableDef>>> {
    let what = match names.relation(name)? {
        Relation::Table(table) => return Ok(vec![table]),
        Relation::View(view) => {
            let relations = relations_behind(names.catalog, &view);
            let tables = relations.iter().filter_map(|relation| names.catalog.tables.get(relation));
            return Ok(tables.cloned().collect());
        }
        Relation::Sequence(_) => "sequences",
        Relation::Index(..) => "indexes",
    };
    let message = format!("cannot lock relation \"{}\"", name.name);
    let detail = format!("This operation is not supported for {what}.");
    Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).with_detail(detail))
}

/// The views whose texts name a relation.
pub(super) fn dependents(catalog: &Catalog, relation: Oid) -> Vec<Arc<ViewDef>> {
    let views = catalog.views.values();
    views.filter(|view| dependencies(catalog, view).contains(&relation)).cloned().collect()
}

/// The views whose texts use a column of a table or view, by the column's number.
pub(super) fn dependents_on_column(context: &Context<'_>, relation: Oid, number: i16) -> Vec<Arc<ViewDef>> {
    let uses_column = |view: &ViewDef| {
        let Some(query) = parsed(&view.query) else { return true };
        let described = context.bound(|catalog| firn_bind::describe(&view.query, &query, catalog));
        described.map_or(true, |described| described.uses.columns.contains(&(relation.0, number)))
    };
    let mut views = dependents(context.transaction.catalog(), relation);
    views.retain(|view| uses_column(view));
    views
}

/// Likewise, of a column of a table by its position.
pub(super) fn dependents_on(context: &Context<'_>, table: &TableDef, column: u16) -> Vec<Arc<ViewDef>> {
    dependents_on_column(context, table.oid, column as i16 + 1)
}

/// Renames a relation in the views that name it.
pub(super) fn rename_relation(context: &mut Context<'_>, from: (&str, &str), to: (&str, &str)) -> Result<()> {
    let renamed = |view: &Arc<ViewDef>| {
        let mut query = parsed(&view.query)?;
        let mut rename = RenameRelation { from, to, found: false };
        visit::query(&mut rename, &mut query);
        rename.found.then(|| ViewDef { query: print::query(&query), ..ViewDef::clone(view) })
    };
    let changed: Vec<ViewDef> = context.transaction.catalog().views.values().filter_map(renamed).collect();
    let catalog = context.catalog_mut()?;
    for view in changed {
        catalog.views.insert(view.oid, Arc::new(view));
    }
    Ok(())
}

/// Keeps the texts of views as they are when a column of a relation gets another name: those that use it call the columns as before,
/// by names in FROM (`t AS t(a, b)`). `columns` are the names so far. Call it once the catalog has the new one.
pub(super) fn keep_column_names(
    context: &mut Context<'_>,
    views: &[Arc<ViewDef>],
    (schema, name): (&str, &str),
    columns: &[String],
) -> Result<()> {
    for view in views {
        let mut query = query_of(view)?;
        visit::query(&mut NameColumns { relation: (schema, name), columns }, &mut query);
        let view = ViewDef { query: print::query(&query), ..ViewDef::clone(view) };
        let described = context.bound(|catalog| firn_bind::describe(&view.query, &query_of(&view)?, catalog));
        if described.is_err() {
            return Err(Error::unsupported("renaming a column of a relation that a view names twice")
                .with_detail(format!("View \"{}\" uses the column.", view.name))
                .with_hint("Drop the view, rename the column, and make the view again."));
        }
        context.catalog_mut()?.views.insert(view.oid, Arc::new(view));
    }
    Ok(())
}

fn query_of(view: &ViewDef) -> Result<Query> {
    parsed(&view.query).ok_or_else(|| Error::internal("a view's text is no query"))
}

/// Writes names of columns behind a relation in FROM.
struct NameColumns<'n> {
    relation: (&'n str, &'n str),
    columns: &'n [String],
}

impl Visitor for NameColumns<'_> {
    fn table(&mut self, table: &mut Table) {
        let TableKind::Relation { relation, .. } = &table.kind else { return };
        let name = &relation.name;
        let is_meant = name.schema().is_some_and(|schema| *schema.text == *self.relation.0)
            && *name.name.text == *self.relation.1;
        if !is_meant {
            return;
        }
        let own = || Alias { name: Name::new(self.relation.1), columns: Vec::new() };
        let alias = table.alias.get_or_insert_with(own);
        let further = self.columns.iter().skip(alias.columns.len());
        alias.columns.extend(further.map(|column| Name::new(column.as_str())));
    }

    fn expr(&mut self, expr: &mut Expr) {
        // A relation with an alias goes by that alone.
        let short = |qualifiers: &mut Vec<Name>| {
            if let [.., schema, table] = &qualifiers[..]
                && (&*schema.text, &*table.text) == self.relation
            {
                *qualifiers = vec![Name::new(self.relation.1)];
            }
        };
        match &mut expr.kind {
            ExprKind::Column(name) => short(&mut name.qualifiers),
            ExprKind::AllColumns(name) => {
                let mut parts: Vec<Name> = name.parts().cloned().collect();
                short(&mut parts);
                let last = parts.pop().expect("a name has parts");
                **name = ObjectName { qualifiers: parts, name: last };
            }
            _ => {}
        }
    }
}

/// A relation gets another column: views that give its columns names in FROM, one of which is that of the new one, give it another.
/// `before` are the names of its columns so far.
pub(super) fn keep_names_apart(
    context: &mut Context<'_>,
    relation: Oid,
    (schema, name): (&str, &str),
    before: &[String],
    added: &str,
) -> Result<()> {
    struct Apart<'n>((&'n str, &'n str), &'n [String], &'n str, bool);
    impl Visitor for Apart<'_> {
        fn table(&mut self, table: &mut Table) {
            let TableKind::Relation { relation, .. } = &table.kind else { return };
            let is_meant = relation.name.schema().is_some_and(|schema| *schema.text == *self.0.0)
                && *relation.name.name.text == *self.0.1;
            let Some(alias) = table.alias.as_mut().filter(|_| is_meant) else { return };
            let is_taken = |columns: &[Name], name: &str| columns.iter().any(|known| *known.text == *name);
            if !is_taken(&alias.columns, self.2) {
                return;
            }
            let further = self.1.iter().skip(alias.columns.len());
            alias.columns.extend(further.map(|column| Name::new(column.as_str())));
            let mut names = (1..).map(|number| format!("{}_{number}", self.2));
            let free = names.find(|name| !is_taken(&alias.columns, name)).expect("numbers have no end");
            alias.columns.push(Name::new(free));
            self.3 = true;
        }
    }
    let mut changed = Vec::new();
    for view in dependents(context.transaction.catalog(), relation) {
        let mut query = query_of(&view)?;
        let mut apart = Apart((schema, name), before, added, false);
        visit::query(&mut apart, &mut query);
        if apart.3 {
            changed.push(ViewDef { query: print::query(&query), ..ViewDef::clone(&view) });
        }
    }
    put_all(context, changed)
}

fn put_all(context: &mut Context<'_>, views: Vec<ViewDef>) -> Result<()> {
    if !views.is_empty() {
        let catalog = context.catalog_mut()?;
        catalog.views.extend(views.into_iter().map(|view| (view.oid, Arc::new(view))));
    }
    Ok(())
}

/// Takes the name of a column that goes out of the names that views give a table's columns in FROM. `place` is its place among the
/// columns that users see.
pub(super) fn forget_column_name(context: &mut Context<'_>, table: &TableDef, place: usize) -> Result<()> {
    struct Forget<'n>((&'n str, &'n str), usize, bool);
    impl Visitor for Forget<'_> {
        fn table(&mut self, table: &mut Table) {
            let TableKind::Relation { relation, .. } = &table.kind else { return };
            let is_meant = relation.name.schema().is_some_and(|schema| *schema.text == *self.0.0)
                && *relation.name.name.text == *self.0.1;
            if let Some(alias) = table.alias.as_mut().filter(|alias| is_meant && alias.columns.len() > self.1)
            {
                alias.columns.remove(self.1);
                self.2 = true;
            }
        }
    }
    let schema = context.schema_name(table.schema).to_owned();
    let mut changed = Vec::new();
    for view in dependents(context.transaction.catalog(), table.oid) {
        let mut query = query_of(&view)?;
        let mut forget = Forget((&schema, &table.name), place, false);
        visit::query(&mut forget, &mut query);
        if forget.2 {
            changed.push(ViewDef { query: print::query(&query), ..ViewDef::clone(&view) });
        }
    }
    put_all(context, changed)
}

/// Replaces a relation's name, with its schema.
struct RenameRelation<'n> {
    from: (&'n str, &'n str),
    to: (&'n str, &'n str),
    found: bool,
}

impl RenameRelation<'_> {
    fn is_meant(&self, name: &ObjectName) -> bool {
        name.schema().is_some_and(|schema| *schema.text == *self.from.0) && *name.name.text == *self.from.1
    }

    /// The qualifiers of a column.
    fn qualifiers(&self, qualifiers: &mut Vec<Name>) {
        let [.., schema, table] = &qualifiers[..] else { return };
        if (&*schema.text, &*table.text) != self.from {
            return;
        }
        *qualifiers = match self.from.1 == self.to.1 {
            true => vec![Name::new(self.to.0), Name::new(self.to.1)],
            // The relation is named by its old name.
            false => vec![Name::new(self.from.1)],
        };
    }
}

impl Visitor for RenameRelation<'_> {
    fn table(&mut self, table: &mut Table) {
        let TableKind::Relation { relation, .. } = &table.kind else { return };
        // Columns may be qualified by the old name.
        if self.is_meant(&relation.name) && table.alias.is_none() && self.from.1 != self.to.1 {
            table.alias = Some(Alias { name: Name::new(self.from.1), columns: Vec::new() });
        }
    }

    fn relation(&mut self, relation: &mut tree::Relation) {
        if self.is_meant(&relation.name) {
            self.found = true;
            relation.name = ObjectName { qualifiers: vec![Name::new(self.to.0)], name: Name::new(self.to.1) };
        }
    }

    fn expr(&mut self, expr: &mut Expr) {
        match &mut expr.kind {
            ExprKind::Column(name) => self.qualifiers(&mut name.qualifiers),
            ExprKind::AllColumns(name) => {
                let mut parts: Vec<Name> = name.parts().cloned().collect();
                self.qualifiers(&mut parts);
                let last = parts.pop().expect("a name has parts");
                **name = ObjectName { qualifiers: parts, name: last };
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(text: &str, to: (&str, &str)) -> String {
        let mut query = parsed(text).unwrap();
        let mut rename = RenameRelation { from: ("public", "t"), to, found: false };
        visit::query(&mut rename, &mut query);
        assert!(rename.found, "{text}");
        print::query(&query)
    }

    #[test]
    fn a_renamed_relation_keeps_its_old_name_within_the_query() {
        assert_eq!(
            renamed("SELECT t.a, public.t.b FROM public.t", ("public", "u")),
            "SELECT t.a, t.b FROM public.u AS t"
        );
        assert_eq!(
            renamed("SELECT x.a FROM public.t AS x WHERE EXISTS (TABLE public.t)", ("public", "u")),
            "SELECT x.a FROM public.u AS x WHERE EXISTS (TABLE public.u)"
        );
        assert_eq!(renamed("SELECT t.*, public.t.b FROM public.t", ("s", "t")), "SELECT t.*, s.t.b FROM s.t");
    }
}
