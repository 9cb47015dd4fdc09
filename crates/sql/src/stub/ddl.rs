#![allow(missing_docs, unused)]
use crate::parse::Parsed;
use crate::run::RunOptions;
use crate::session_facts::SessionFacts;
use firn_base::sync::Arc;
use firn_base::{Error, Result};
use firn_txn::catalog::{IndexDef, Oid, TableDef, TableSettings, ViewDef};
use firn_txn::{Catalog, Engine, Transaction};
pub struct Context<'a> {
    pub engine: &'a Arc<Engine>,
    pub transaction: &'a mut Transaction,
    pub facts: &'a Arc<SessionFacts>,
    pub options: &'a RunOptions,
    pub notices: &'a mut Vec<Error>,
}
/// Runs a statement; how many rows it made, if the command tag has them.
pub fn execute(context: &mut Context<'_>, parsed: &Parsed) -> Result<Option<u64>> {
    unimplemented!()
}
/// The command tag of a statement that changes the catalog; `None` of any other.
pub fn tag(statement: &firn_syntax::tree::Statement) -> Option<&'static str> {
    unimplemented!()
}
pub(crate) fn columns_in(table: &TableDef, expression: &firn_syntax::tree::Expr) -> Vec<u16> {
    unimplemented!()
}
pub(crate) mod view {
    use super::*;
    pub(crate) fn dependencies(catalog: &Catalog, view: &ViewDef) -> Vec<Oid> {
        unimplemented!()
    }
}
pub(crate) mod parameter {
    use super::*;
    pub(crate) fn options(settings: &TableSettings) -> Vec<String> {
        unimplemented!()
    }
    pub(crate) fn index_options(index: &IndexDef) -> Vec<String> {
        unimplemented!()
    }
}

pub(crate) fn plain_table(
    context: &mut Context<'_>,
    name: &crate::statement::QualifiedName,
    columns: &[(&str, firn_base::Type)],
) -> Result<()> {
    unimplemented!()
}
