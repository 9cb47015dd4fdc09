//! DDL: statements that change the catalog.
//!
//! Everything happens in the transaction. The catalog is a copy of its own until commit, and physical
//! tables and indexes are created and dropped with it. A rollback undoes all of it. Existing rows are
//! checked and rewritten by ordinary statements, which see the transaction's own changes.
//!
//! Defaults, conditions of CHECK and queries of views are bound before they are stored, and are stored as the canonical text of
//! `firn_syntax::print`: see `expression` and `view`.
//!
//! In reading order: `kinds` (command tags, and what is refused), `create`, `column`, `expression`, `constraint`, `foreign_key`,
//! `index`, `sequence`, `view`, `alter`, `alter_column`, `rename`, `rewrite`, `drop`, `comment`.

mod absent;
mod alter;
mod alter_column;
mod column;
mod comment;
mod constraint;
mod create;
mod drop;
mod expression;
mod foreign_key;
mod index;
mod kinds;
mod like;
pub(crate) mod parameter;
mod relation_options;
mod rename;
mod rewrite;
mod sequence;
pub(crate) mod view;

use crate::Column;
use crate::names::Names;
use crate::parse::Parsed;
use crate::query::Prepared;
use crate::run::RunOptions;
use crate::services::Services;
use crate::session_facts::SessionFacts;
use crate::statement::{ObjectKind, QualifiedName, quote_ident};
pub(crate) use comment::DATABASE;
#[allow(unused_imports)] // COPY uses it to create its table of rejects.
pub(crate) use create::plain_table;
pub(crate) use expression::columns_in;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, Type, TypeId, Value, stack};
use firn_query::ResultChunk;
use firn_syntax::tree::{Query, Role, RoleKind, Statement};
use firn_txn::catalog::{Oid, TableDef};
use firn_txn::{Catalog, Check, Engine, Transaction};
pub(crate) use index::{distinct_names, expression_name, looks_like_function};
pub use kinds::{refuse, tag};
use std::any::Any;
pub use view::locked_by;

/// The context of DDL.
pub struct Context<'a> {
    /// Allocates object ids and sequences.
    pub engine: &'a Arc<Engine>,
    /// The transaction of the statement.
    pub transaction: &'a mut Transaction,
    /// How names are resolved.
    pub facts: &'a Arc<SessionFacts>,
    /// How to run statements over existing rows.
    pub options: &'a RunOptions,
    /// Notices for the user.
    pub notices: &'a mut Vec<Error>,
}

/// The source of the rows of CREATE TABLE AS and SELECT INTO, if their query has been prepared: because it has parameters, or
/// is that of EXECUTE.
#[derive(Clone, Copy)]
pub struct Filling<'a> {
    /// The statement whose text contains the query.
    pub parsed: &'a Parsed,
    /// The query.
    pub query: &'a Query,
    /// Its columns.
    pub columns: &'a [Column],
    /// The types of its parameters.
    pub types: &'a [Type],
    /// The values of its parameters.
    pub values: &'a [Value],
}

/// As [`execute`], for a statement that creates a table from a query which has been prepared.
pub fn execute_filled(
    context: &mut Context<'_>,
    parsed: &Parsed,
    filling: &Filling<'_>,
) -> Result<Option<u64>> {
    stack::with_room(|| {
        refuse(&parsed.statement)?;
        create::table_filled(context, &parsed.statement, filling)
    })
}

/// Runs a statement that has a [`tag`]. Returns how many rows it made, if the command tag shows them.
pub fn execute(context: &mut Context<'_>, parsed: &Parsed) -> Result<Option<u64>> {
    stack::with_room(|| execute_statement(context, &parsed.script, &parsed.statement))
}

fn execute_statement(context: &mut Context<'_>, text: &str, statement: &Statement) -> Result<Option<u64>> {
    refuse(statement)?;
    match statement {
        Statement::CreateSchema(schema) => create::schema(context, text, schema)?,
        Statement::CreateTable(table) => create::table(context, text, table)?,
        Statement::CreateTableAs(create) => return create::table_as(context, text, create),
        Statement::Query(query) => return create::select_into(context, text, query),
        Statement::CreateView(view) => view::create(context, text, view)?,
        Statement::CreateIndex(index) => index::create(context, text, index)?,
        Statement::CreateSequence(sequence) => sequence::create(context, text, sequence)?,
        Statement::AlterSequence(sequence) => sequence::alter(context, text, sequence)?,
        Statement::AlterTable(table) => alter::relation(context, text, table)?,
        Statement::Rename(rename) => rename::rename(context, rename)?,
        Statement::SetSchema(change) => rename::set_schema(context, change)?,
        Statement::ChangeOwner(change) => alter::owner_of_schema(context, change)?,
        Statement::MoveAll(change) => alter::move_all(context, change)?,
        Statement::Drop(objects) => drop::objects(context, objects)?,
        Statement::Truncate(truncate) => drop::truncate(context, truncate)?,
        Statement::Comment(comment) => comment::set(context, comment)?,
        other => panic!("{other:?} changes no catalog"),
    }
    let may_drop =
        matches!(statement, Statement::Drop(_) | Statement::AlterTable(_) | Statement::AlterSequence(_));
    if may_drop && !context.transaction.catalog().comments.is_empty() {
        context.catalog_mut()?.forget_comments();
    }
    Ok(None)
}

impl Context<'_> {
    pub(crate) fn names(&self) -> Names<'_> {
        Names::new(self.transaction.catalog(), self.facts)
    }

    fn catalog_mut(&mut self) -> Result<&mut Catalog> {
        self.transaction.catalog_mut()
    }

    fn allocate(&self) -> Oid {
        self.engine.allocate_oid()
    }

    fn notice(&mut self, state: SqlState, message: impl Into<String>) {
        self.notices.push(Error::new(state, message));
    }

    /// Reports what else a CASCADE dropped.
    fn notice_cascade(&mut self, what: &[String]) {
        match what {
            [] => {}
            [one] => self.notice(SqlState::SUCCESSFUL_COMPLETION, format!("drop cascades to {one}")),
            many => {
                let detail =
                    many.iter().map(|one| format!("drop cascades to {one}")).collect::<Vec<_>>().join("\n");
                self.notices.push(
                    Error::new(
                        SqlState::SUCCESSFUL_COMPLETION,
                        format!("drop cascades to {} other objects", many.len()),
                    )
                    .with_detail(detail),
                );
            }
        }
    }

    /// The current definition of the table.
    fn table(&self, oid: Oid) -> Arc<TableDef> {
        self.transaction.catalog().tables[&oid].clone()
    }

    /// Adds a table's definition to the catalog, or replaces it.
    fn put_table(&mut self, table: TableDef) -> Result<()> {
        self.catalog_mut()?.tables.insert(table.oid, Arc::new(table));
        Ok(())
    }

    /// Keeps other transactions from writing to a table until this transaction ends.
    fn lock(&mut self, table: &TableDef) -> Result<()> {
        // The catalog first: a transaction that does not get the DDL lock should not hold tables.
        self.catalog_mut()?;
        let storage = self.transaction.table(table.storage());
        self.transaction.lock_exclusive(&storage)
    }

    /// Refuses to change a table while deferred checks wait for its rows: 55006.
    fn refuse_pending(&self, table: &TableDef, statement: &str) -> Result<()> {
        if !self.transaction.has_deferred_checks() {
            return Ok(());
        }
        let of_referrers: Vec<Oid> =
            drop::foreign_keys_to(self, table.oid).into_iter().map(|(_, constraint)| constraint).collect();
        let waits = |check: &Check| match check {
            Check::Row { constraint, .. } => table.constraints.iter().any(|found| found.oid == *constraint),
            Check::Key { constraint, .. } => of_referrers.contains(constraint),
        };
        if !self.transaction.deferred_checks().any(waits) {
            return Ok(());
        }
        Err(Error::new(
            SqlState::OBJECT_IN_USE,
            format!("cannot {statement} \"{}\" because it has pending trigger events", table.name),
        )
        .with_hint("Deferred constraints are not yet checked. Use SET CONSTRAINTS ALL IMMEDIATE first."))
    }

    /// 42704 for a role that does not exist: there is one, the user.
    fn check_role(&self, role: &Role) -> Result<()> {
        let name = match &role.kind {
            RoleKind::CurrentRole | RoleKind::CurrentUser | RoleKind::SessionUser => return Ok(()),
            RoleKind::Name(name) if **name == *self.facts.user => return Ok(()),
            RoleKind::Name(name) => name,
            RoleKind::Public => "public",
        };
        Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist")))
    }

    /// The name of a schema; empty if it was dropped.
    fn schema_name(&self, schema: Oid) -> &str {
        self.transaction.catalog().schemas.get(&schema).map_or("", |schema| &schema.name)
    }

    /// The name of a relation as SQL text, with its schema.
    fn sql_name(&self, schema: Oid, name: &str) -> String {
        match self.transaction.catalog().schemas.get(&schema) {
            Some(schema) => format!("{}.{}", quote_ident(&schema.name), quote_ident(name)),
            None => quote_ident(name),
        }
    }

    /// The name of a relation as shown in messages: with its schema only where the search path does not find it.
    fn shown_name(&self, schema: Oid, name: &str) -> String {
        let found = self.names().find(&QualifiedName { schema: None, name: name.to_owned() });
        match found {
            Some(relation) if relation.schema() == schema => name.to_owned(),
            _ => match self.transaction.catalog().schemas.get(&schema) {
                Some(schema) => format!("{}.{name}", schema.name),
                None => name.to_owned(),
            },
        }
    }

    /// Calls `bind` with the binder's view of the transaction's catalog.
    fn bound<T>(&self, bind: impl FnOnce(&dyn firn_bind::Catalog) -> Result<T>) -> Result<T> {
        crate::query::with_catalog(self.transaction, self.facts, bind)
    }

    /// Prepares a statement over the current catalog, and runs it. Its functions see the sequences of that catalog.
    fn run<T>(&mut self, parsed: &Parsed, run: impl FnOnce(&mut Self, &Prepared) -> Result<T>) -> Result<T> {
        self.run_with(parsed, &[], run)
    }

    /// As [`Context::run`], for a statement with parameters of these types.
    fn run_with<T>(
        &mut self,
        parsed: &Parsed,
        types: &[Option<TypeId>],
        run: impl FnOnce(&mut Self, &Prepared) -> Result<T>,
    ) -> Result<T> {
        let services = self.options.services.clone();
        let services: &dyn Any = &*services;
        let services = services.downcast_ref::<Services>();
        let catalog = self.transaction.catalog().clone();
        let before = services.map(|services| services.set_catalog(Some(catalog)));
        let result = Prepared::new(parsed, types, self.transaction, self.facts, &self.options.cancel)
            .and_then(|prepared| run(self, &prepared));
        // If the statement fails, the transaction's catalog is dropped.
        if let (Some(services), Some(before)) = (services, before) {
            services.set_catalog(before);
        }
        result
    }

    /// The first rows of an internal query, if it yields any.
    fn first_rows(&mut self, text: &str) -> Result<Option<ResultChunk>> {
        let parsed = crate::parse::parse_one(text)?.expect("it is a statement");
        let first = self.run(&parsed, |context, query| {
            query.start(context.transaction, context.facts, &[], context.options)?.next()
        });
        first.map_err(Error::without_position)
    }

    /// Executes a change. Returns how many rows it made.
    fn change(&mut self, parsed: &Parsed, types: &[Type], values: &[Value]) -> Result<u64> {
        let types: Vec<Option<TypeId>> = types.iter().map(|ty| Some(ty.id)).collect();
        self.run_with(parsed, &types, |context, change| {
            let executed = change.execute(context.transaction, context.facts, values, context.options)?;
            Ok(executed.count.unwrap_or(0))
        })
    }
}

/// 42P07
fn already_exists(kind: ObjectKind, name: &str) -> Error {
    match kind {
        ObjectKind::Schema => {
            Error::new(SqlState::DUPLICATE_SCHEMA, format!("schema \"{name}\" already exists"))
        }
        _ => Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")),
    }
}
