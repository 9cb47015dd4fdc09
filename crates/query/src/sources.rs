//! The sources of a statement that runs: tables by the oid that they have in its transaction's catalog, what the plan holds,
//! and the session's other relations.

use crate::relations::{FIRST_HELD, Relations};
use firn_base::sync::Arc;
use firn_executor::{Source, Sources, TableSource};
use firn_plan::operator::SourceId;
use firn_txn::Transaction;
use firn_txn::catalog::Oid;
use std::collections::HashMap;

/// Where a statement finds its sources.
pub struct TransactionSources<'a> {
    /// The transaction in which it runs.
    pub transaction: &'a Transaction,
    /// What its plan holds.
    pub held: &'a HashMap<SourceId, Arc<dyn Source>>,
    /// Everything else.
    pub others: &'a dyn Relations,
}

impl Sources for TransactionSources<'_> {
    fn source(&self, id: SourceId) -> Arc<dyn Source> {
        if id.0 >= FIRST_HELD {
            return self.held[&id].clone();
        }
        match self.transaction.catalog().tables.get(&Oid(id.0)) {
            Some(table) => Arc::new(TableSource::new(table.clone(), self.transaction.table(table.storage()))),
            None => self.others.source(id, self.transaction),
        }
    }
}

/// Sources that were found before: of a statement that changes the transaction while it runs.
#[derive(Default)]
pub struct FoundSources(pub HashMap<SourceId, Arc<dyn Source>>);

impl Sources for FoundSources {
    fn source(&self, id: SourceId) -> Arc<dyn Source> {
        self.0[&id].clone()
    }
}
