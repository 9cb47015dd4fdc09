//! Relations outside of the catalog of tables: the system schemas, sequences, and registered sources of the session.

use super::functions;
use super::registry;
use crate::files::{self, Files, Opening};
use crate::pg_catalog::{self, CatalogRelation, Source as CatalogSource};
use crate::run::SessionServices;
use crate::session_facts::SessionFacts;
use firn_base::sync::Arc;
use firn_base::{Result, Type, Value};
use firn_bind::FileArgument;
use firn_executor::source::{MemorySource, Request, Scan, SourceColumn, SourceStatistics};
use firn_executor::{Reader, Source, values};
use firn_plan::operator::SourceId;
use firn_query::catalog::SEQUENCE_COLUMNS;
use firn_query::{Found, Relations};
use firn_txn::Transaction;
use firn_vector::Chunk;
use firn_vector::builder::Builder;

/// The relations that a session has beside the tables and views of a catalog.
pub struct SessionRelations {
    /// The search path and the user.
    pub facts: Arc<SessionFacts>,
    /// The session.
    pub services: Arc<dyn SessionServices>,
}

const SYSTEM: [&str; 2] = ["pg_catalog", "information_schema"];

impl Relations for SessionRelations {
    fn relation(&self, schema: Option<&str>, name: &str) -> Result<Option<Found>> {
        if let Some(source) = self.facts.sources.find(schema, name) {
            let relation = Arc::new(source.relation(name));
            return Ok(Some(Found { relation, source: Some(source.clone()) }));
        }
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

    fn file(&self, pattern: &str) -> Result<Option<Found>> {
        self.files_named(pattern, &Files::default()).map(Some)
    }

    fn reads_files(&self, function: &str) -> bool {
        files::is_reader(function)
    }

    fn file_function(&self, function: &str, arguments: &[FileArgument<'_>]) -> Result<Found> {
        self.files_read_by(function, arguments, &Files::default())
    }

    fn source(&self, id: SourceId, transaction: &Transaction) -> Arc<dyn Source> {
        let source =
            CatalogSource::of_session(transaction.catalog(), &self.facts, &self.services, registry());
        match pg_catalog::numbered(id.0) {
            Some(relation) => Arc::new(CatalogRelation::new(relation, source)),
            None => Arc::new(SequenceRelation { oid: id.0, source }),
        }
    }
}

impl SessionRelations {
    /// The files that a name in FROM denotes, which are recorded in `files`.
    pub(super) fn files_named(&self, pattern: &str, files: &Files) -> Result<Found> {
        files.named(pattern, &self.opening())
    }

    /// The files that a function in FROM reads, which are recorded in `files`.
    pub(super) fn files_read_by(
        &self,
        function: &str,
        arguments: &[FileArgument<'_>],
        files: &Files,
    ) -> Result<Found> {
        files.read_by(function, arguments, &self.opening())
    }

    fn opening(&self) -> Opening<'_> {
        Opening { registry: registry(), style: self.facts.style.for_reading(), zones: &self.facts.zones }
    }
}

/// A sequence: one row with its state at the time of the scan.
struct SequenceRelation {
    oid: u32,
    source: CatalogSource,
}

impl Source for SequenceRelation {
    fn columns(&self) -> Vec<SourceColumn> {
        let columns = (1..).zip(SEQUENCE_COLUMNS);
        let column = |(attribute, (_, ty))| SourceColumn { attribute, ty: Type::new(ty), nullable: false };
        columns.map(column).collect()
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics { rows: 1 }
    }

    fn open(&self, request: &Request<'_>, reader: Reader<'_>) -> Result<Arc<dyn Scan>> {
        let name = self.source.sequence_name(self.oid.into())?;
        let (last_value, is_called) = match self.source.services() {
            Some(services) => services.sequence_state(&name)?,
            None => return Err(functions::no_session()),
        };
        let values = [Value::BigInt(last_value), Value::BigInt(0), Value::Boolean(is_called)];
        let vectors = self.columns().into_iter().zip(&values).map(|(column, value)| {
            let representation = column.ty.representation().expect("it is a built-in type");
            let mut builder = Builder::new(representation);
            values::push(&mut builder, value, representation);
            builder.finish()
        });
        MemorySource::new(self.columns(), vec![Chunk::new(1, vectors.collect())]).open(request, reader)
    }
}
