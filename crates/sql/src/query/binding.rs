//! Names, types and functions in the context of a session, for definitions, which are bound outside of a running statement.

use super::registry;
use super::relations::SessionRelations;
use crate::run::NoSession;
use crate::session_facts::SessionFacts;
use firn_base::sync::Arc;
use firn_base::{Result, clock};
use firn_bind::Catalog;
use firn_query::catalog::{Binding, Names};
use firn_txn::Transaction;

/// Calls `work` with the binder's view of a transaction's catalog.
pub fn with_catalog<T>(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    bind: impl FnOnce(&dyn Catalog) -> Result<T>,
) -> Result<T> {
    // No rows are read while a definition is bound.
    let others = SessionRelations { facts: facts.clone(), services: Arc::new(NoSession) };
    let names = Names {
        search_path: &facts.search_path,
        database: &facts.database,
        literals: &facts.style,
        style: &facts.style,
        present: Some(clock::wall_clock_micros()),
    };
    bind(&Binding::new(registry(), transaction.catalog(), names, &others))
}
