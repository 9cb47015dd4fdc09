//! DDL: statements that change the catalog.
//!
//! Everything happens in the transaction: the catalog is a copy of its own until commit, physical
//! tables and indexes come and go with it, and rolling back takes all of it away. Existing rows
//! are checked and rewritten by ordinary queries, which see the transaction's own changes.

mod alter;
mod column;
mod constraint;
mod create;
mod drop;
mod index;
mod like;
mod modifier;
pub(crate) mod parameter;
mod rewrite;
mod sequence;
pub(crate) mod view;

use crate::bind::Binder;
use crate::names::Names;
use crate::session_facts::SessionFacts;
use crate::statement::{Commented, Ddl, ObjectKind, QualifiedName, quote_ident};
pub(crate) use column::check_collation;
pub(crate) use constraint::columns_in;
pub(crate) use create::plain_table;
use datafusion::arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_exec::RunOptions;
use firn_txn::catalog::{Oid, TableDef};
use firn_txn::{Catalog, Check, Engine, Transaction};

/// What DDL works with.
pub struct Context<'a> {
    /// Object ids and sequences come from here.
    pub engine: &'a Arc<Engine>,
    /// Everything happens in it.
    pub transaction: &'a mut Transaction,
    /// How names are to be understood.
    pub facts: &'a SessionFacts,
    /// How to run queries over existing rows.
    pub options: &'a RunOptions,
    /// What the user should know though nothing is wrong.
    pub notices: &'a mut Vec<Error>,
    /// How deep the statement is ([`crate::statement::Parsed::depth`]).
    pub depth: u32,
}

/// Runs a statement; how many rows it made, if it tells.
pub fn execute(context: &mut Context<'_>, ddl: &Ddl) -> Result<Option<u64>> {
    match ddl {
        Ddl::CreateSchema { name, if_not_exists } => create::schema(context, name, *if_not_exists)?,
        Ddl::CreateTable(table) => create::table(context, table)?,
        Ddl::CreateTableAs { name, if_not_exists, columns, query, parameters, with_data } => {
            let settings = parameter::settings_of(parameters)?;
            return create::table_as(context, name, *if_not_exists, columns, query, settings, *with_data);
        }
        Ddl::CreateView { name, or_replace, columns, query } => {
            view::create(context, name, *or_replace, columns, query)?;
        }
        Ddl::CreateIndex(index) => index::create(context, index)?,
        Ddl::CreateSequence { name, if_not_exists, options } => {
            sequence::create(context, name, *if_not_exists, options)?;
        }
        Ddl::AlterSequence { name, if_exists, options } => {
            sequence::alter(context, name, *if_exists, options)?;
        }
        Ddl::AlterTable { name, if_exists, operations } => {
            alter::table(context, name, *if_exists, operations)?;
        }
        Ddl::Rename { kind, if_exists, name, to } => alter::rename(context, *kind, *if_exists, name, to)?,
        Ddl::SetSchema { kind, if_exists, name, schema } => {
            alter::set_schema(context, *kind, *if_exists, name, schema)?;
        }
        Ddl::Drop { kind, if_exists, names, behavior } => {
            drop::objects(context, *kind, *if_exists, names, *behavior)?;
        }
        Ddl::Truncate { names, restart_identity, behavior } => {
            drop::truncate(context, names, *restart_identity, *behavior)?;
        }
        Ddl::Owner { kind, if_exists, name } => alter::owner(context, *kind, *if_exists, name)?,
        Ddl::Comment(commented) => comment(context, commented)?,
    }
    Ok(None)
}

/// COMMENT ON: the object must exist; the comment itself has no place in the catalog yet.
fn comment(context: &Context<'_>, commented: &Commented) -> Result<()> {
    match commented {
        Commented::Object(ObjectKind::Schema, name) => drop_value(context.names().schema(&name.name)),
        Commented::Object(kind, name) => drop_value(context.names().object(*kind, name)),
        Commented::Column(table, column) => {
            let table = context.names().table(table)?;
            match table.column(column) {
                Some(_) => Ok(()),
                None => Err(crate::names::missing_column(&table, column)),
            }
        }
        Commented::Constraint(table, name) => {
            let table = context.names().table(table)?;
            match table.constraints.iter().any(|constraint| constraint.name == *name) {
                true => Ok(()),
                false => Err(Error::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("constraint \"{name}\" for table \"{}\" does not exist", table.name),
                )),
            }
        }
        Commented::Database => Ok(()),
    }
}

fn drop_value<T>(result: Result<T>) -> Result<()> {
    result.map(|_| ())
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

    /// Tells what else a CASCADE dropped.
    fn notice_cascade(&mut self, what: &[String]) {
        match what {
            [] => {}
            [one] => self.notice(SqlState::SUCCESSFUL_COMPLETION, format!("drop cascades to {one}")),
            many => {
                let detail =
                    many.iter().map(|one| format!("drop cascades to {one}")).collect::<Vec<_>>().join("\n");
                self.notices.push(
                    Error::new(
                        SqlState::new("00000"),
                        format!("drop cascades to {} other objects", many.len()),
                    )
                    .with_detail(detail),
                );
            }
        }
    }

    /// The table as it stands now.
    fn table(&self, oid: Oid) -> Arc<TableDef> {
        self.transaction.catalog().tables[&oid].clone()
    }

    /// Puts a table's definition into the catalog, or replaces it.
    fn put_table(&mut self, table: TableDef) -> Result<()> {
        self.catalog_mut()?.tables.insert(table.oid, Arc::new(table));
        Ok(())
    }

    /// Keeps others from writing to a table until this transaction ends.
    fn lock(&mut self, table: &TableDef) -> Result<()> {
        // The catalog first: whoever loses the race for the DDL lock should not hold tables.
        self.catalog_mut()?;
        let storage = self.transaction.table(table.storage());
        self.transaction.lock_exclusive(&storage)
    }

    /// Refuses to change a table while deferred checks wait for its rows: 55006.
    fn refuse_pending(&self, table: &TableDef, statement: &str) -> Result<()> {
        if !self.transaction.has_deferred_checks() {
            return Ok(());
        }
        let catalog = self.transaction.catalog();
        let of_referrers: Vec<Oid> = firn_exec::dml::target::referring(catalog, table.oid)
            .map(|(_, constraint, _)| constraint.oid)
            .collect();
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
        .with_hint("Constraints wait to be checked. Use SET CONSTRAINTS ALL IMMEDIATE first."))
    }

    /// The name of a relation as SQL text, with its schema.
    fn sql_name(&self, schema: Oid, name: &str) -> String {
        match self.transaction.catalog().schemas.get(&schema) {
            Some(schema) => format!("{}.{}", quote_ident(&schema.name), quote_ident(name)),
            None => quote_ident(name),
        }
    }

    /// The name of a relation as messages show it: with its schema only where it takes one.
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

    /// Lends a binder over the transaction's catalog.
    fn bind<T>(&self, work: impl FnOnce(&Binder<'_>) -> Result<T>) -> Result<T> {
        let tables = |id| self.transaction.table(id);
        work(&Binder::new(self.transaction.catalog(), &tables, self.facts).with_depth(self.depth))
    }

    /// Runs a query of our own making and hands its batches out.
    fn query(
        &mut self,
        text: &str,
        mut take: impl FnMut(&mut Self, RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let query = crate::parse::parse_query(text)?;
        let plan = self.bind(|binder| binder.query(&query))?;
        let mut batches = firn_exec::run(&plan, &[], self.transaction, self.options)?;
        while let Some(batch) = batches.next()? {
            take(self, batch)?;
        }
        Ok(())
    }

    /// Whether a query of our own making yields any row.
    fn any_row(&mut self, text: &str) -> Result<bool> {
        let mut found = false;
        self.query(text, |_, batch| {
            found |= batch.num_rows() > 0;
            Ok(())
        })?;
        Ok(found)
    }

    /// Runs a query whose rows are to be stored in columns of these types.
    fn query_for_insert(
        &mut self,
        query: &ast::Query,
        columns: &[(String, firn_base::SqlType)],
        mut take: impl FnMut(&mut Self, RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let plan = self.bind(|binder| binder.query_for_insert(query, columns))?;
        let mut batches = firn_exec::run(&plan, &[], self.transaction, self.options)?;
        while let Some(batch) = batches.next()? {
            take(self, batch)?;
        }
        Ok(())
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
