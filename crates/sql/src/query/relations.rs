//! Relations outside of the catalog of tables: the system schemas, sequences, and what the session has registered.

use crate::pg_catalog::{self, CatalogRelation, Source as CatalogSource};
use crate::session_facts::SessionFacts;
use firn_base::Result;
use firn_base::sync::Arc;
use firn_exec::SessionServices;
use firn_executor::Source;
use firn_plan::operator::SourceId;
use firn_query::{Found, Relations};
use firn_txn::Transaction;

/// What a session sees beside the tables and views of a catalog.
pub struct SessionRelations {
    /// Whose search path and user it is.
    pub facts: Arc<SessionFacts>,
    /// The session.
    pub services: Arc<dyn SessionServices>,
}

const SYSTEM: [&str; 2] = ["pg_catalog", "information_schema"];

impl Relations for SessionRelations {
    fn relation(&self, schema: Option<&str>, name: &str) -> Result<Option<Found>> {
        let Some(schema) = schema.filter(|schema| SYSTEM.contains(schema)) else { return Ok(None) };
        let found = pg_catalog::find(schema, name);
        Ok(found.map(|relation| Found {
            relation: Arc::new(pg_catalog::source::described(schema, relation)),
            source: None,
        }))
    }

    fn has_schema(&self, name: &str) -> bool {
        SYSTEM.contains(&name)
    }

    fn file(&self, _: &str) -> Result<Option<Found>> {
        Ok(None)
    }

    fn source(&self, id: SourceId, transaction: &Transaction) -> Arc<dyn Source> {
        let relation = pg_catalog::numbered(id.0).expect("a plan has the sources that were found");
        let source = CatalogSource::of_session(transaction.catalog(), &self.facts, &self.services);
        Arc::new(CatalogRelation::new(relation, source))
    }
}
