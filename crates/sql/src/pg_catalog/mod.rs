//! PostgreSQL's system catalogs, `information_schema`, and the related functions, computed
//! from our [`Catalog`] when they are queried.
//!
//! Clients query these relations for the content of a database, with queries that were written for PostgreSQL.
//! Their shapes (`relations.tsv`) are exactly PostgreSQL 15's; `firn_stat_…` are ours. Relations about features
//! that FirnDB does not have are empty. `relation` defines a relation, `source` makes one a source of rows for the
//! executor, `rows`, `activity` and `replication` make the rows of the database, `facts` those that every database has.

mod activity;
mod comments;
pub(crate) mod definitions;
pub(crate) mod deparse;
mod facts;
pub(crate) mod functions;
pub(crate) mod names;
pub(crate) mod relation;
pub(crate) mod replication;
pub(crate) mod rows;
mod script;
pub(crate) mod source;
#[cfg(test)]
mod tests;
mod types;

use crate::run::SessionServices;
use crate::services::Services;
use crate::session_facts::SessionFacts;
use definitions::{Object, quote_identifier};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_txn::Catalog;
use firn_txn::catalog::{Oid, SchemaDef};
use firn_vector::Registry;
use std::any::Any;

pub(crate) use facts::has_language;
pub(crate) use relation::{Cell, Relation, Row, parse_relations};
pub(crate) use source::CatalogRelation;

/// The oid of the only role, which owns everything; it is that of PostgreSQL's bootstrap superuser.
pub(crate) const OWNER: i64 = 10;

/// The oid of the only database.
pub(crate) const DATABASE: i64 = crate::ddl::DATABASE.0 as i64;

/// Everything from which rows and functions are computed.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) facts: Arc<SessionFacts>,
    /// The functions that can be called.
    pub(crate) registry: &'static Registry,
    /// The session that queries; `None` while a statement is bound.
    services: Option<Arc<dyn SessionServices>>,
}

impl Source {
    /// For the queries of a session.
    pub(crate) fn of_session(
        catalog: &Arc<Catalog>,
        facts: &Arc<SessionFacts>,
        services: &Arc<dyn SessionServices>,
        registry: &'static Registry,
    ) -> Source {
        let services = Some(services.clone());
        Source { catalog: catalog.clone(), facts: facts.clone(), registry, services }
    }

    /// The session that queries.
    pub(crate) fn services(&self) -> Option<&dyn SessionServices> {
        self.services.as_deref()
    }

    /// The name of a sequence, with its schema and quoted. 42809 if the relation is no sequence, 42P01 if there is none.
    pub(crate) fn sequence_name(&self, oid: i64) -> Result<String> {
        match self.object(oid) {
            Some(Object::Sequence(sequence)) => Ok(format!(
                "{}.{}",
                quote_identifier(self.schema_name(sequence.schema)),
                quote_identifier(&sequence.name)
            )),
            Some(object) => Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{}\" is not a sequence", self.name_to_find(&object)),
            )),
            None => {
                Err(Error::new(SqlState::UNDEFINED_TABLE, format!("could not open relation with OID {oid}")))
            }
        }
    }

    /// The session that queries, in its current state.
    pub(crate) fn session(&self) -> Option<&Services> {
        let services: &dyn Any = &**self.services.as_ref()?;
        services.downcast_ref()
    }

    /// The name of a schema.
    pub(crate) fn schema_name(&self, schema: Oid) -> &str {
        match schema {
            Oid::PG_CATALOG => "pg_catalog",
            Oid::INFORMATION_SCHEMA => "information_schema",
            _ => self.catalog.schemas.get(&schema).map_or("", |schema| &schema.name),
        }
    }

    /// The schemas, with the two system schemas if the catalog does not list them.
    pub(crate) fn schemas(&self) -> impl Iterator<Item = (Oid, &str)> {
        let system = [(Oid::PG_CATALOG, "pg_catalog"), (Oid::INFORMATION_SCHEMA, "information_schema")];
        let missing = system.into_iter().filter(|(oid, _)| !self.catalog.schemas.contains_key(oid));
        let listed = self
            .catalog
            .schemas
            .iter()
            .map(|(oid, schema): (&Oid, &Arc<SchemaDef>)| (*oid, schema.name.as_str()));
        missing.chain(listed)
    }

    /// Whether unqualified names find objects of a schema.
    pub(crate) fn is_searched(&self, schema: Oid) -> bool {
        schema == Oid::PG_CATALOG
            || self.facts.search_path.iter().any(|searched| searched == self.schema_name(schema))
    }
}

/// The relation with that name in one of the two schemas.
pub(crate) fn find(schema: &str, name: &str) -> Option<&'static Relation> {
    match schema {
        "pg_catalog" => relation::find(name),
        "information_schema" => crate::information_schema::find(name),
        _ => None,
    }
}

/// The relation with that oid in either of the two schemas.
pub(crate) fn numbered(oid: u32) -> Option<&'static Relation> {
    let all = relation::all().iter().chain(crate::information_schema::all());
    all.into_iter().find(|relation| relation.oid == i64::from(oid))
}

/// The names of all relations of `pg_catalog` or `information_schema`.
#[cfg(test)]
fn relation_names(schema: &str) -> Vec<&'static str> {
    match schema {
        "pg_catalog" => relation::all().iter().map(|relation| relation.name).collect(),
        "information_schema" => {
            crate::information_schema::all().iter().map(|relation| relation.name).collect()
        }
        _ => Vec::new(),
    }
}
