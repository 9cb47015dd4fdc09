//! Relations that the catalog of a transaction does not list: system catalogs, registered batches, files, sequences.

use firn_base::Result;
use firn_base::sync::Arc;
use firn_bind::{FileArgument, Relation};
use firn_executor::Source;
use firn_plan::operator::SourceId;
use firn_txn::Transaction;

/// A relation that was found.
pub struct Found {
    /// Its description for the binder.
    pub relation: Arc<Relation>,
    /// Where its rows come from, if they are those of the moment at which the statement is bound. The plan then holds
    /// them. Without it each run asks for the rows by the relation's source ([`Relations::source`]).
    pub source: Option<Arc<dyn Source>>,
}

/// Where relations are found that the catalog of a transaction does not list.
///
/// A relation without rows of its own has its oid as the number of its source. One with rows takes its number from
/// [`FIRST_HELD`] on.
pub trait Relations: Send + Sync {
    /// The relation of that name in a schema, or, without a schema, one that goes before all schemas.
    fn relation(&self, schema: Option<&str>, name: &str) -> Result<Option<Found>>;

    /// Whether there is a schema of that name beside those of the catalog.
    fn has_schema(&self, name: &str) -> bool;

    /// A file, or the files of a pattern.
    fn file(&self, pattern: &str) -> Result<Option<Found>>;

    /// Whether a function in FROM reads files.
    fn reads_files(&self, _function: &str) -> bool {
        false
    }

    /// The files that such a function reads.
    fn file_function(&self, function: &str, _arguments: &[FileArgument<'_>]) -> Result<Found> {
        panic!("function {function} reads no files")
    }

    /// The rows, at this moment and for this session, of a relation that was found before.
    fn source(&self, id: SourceId, transaction: &Transaction) -> Arc<dyn Source>;
}

/// The first number of a source that a plan holds. Oids are smaller.
pub const FIRST_HELD: u32 = 0xf000_0000;

/// No relations.
pub struct NoRelations;

impl Relations for NoRelations {
    fn relation(&self, _: Option<&str>, _: &str) -> Result<Option<Found>> {
        Ok(None)
    }

    fn has_schema(&self, _: &str) -> bool {
        false
    }

    fn file(&self, _: &str) -> Result<Option<Found>> {
        Ok(None)
    }

    fn source(&self, id: SourceId, _: &Transaction) -> Arc<dyn Source> {
        panic!("no relation has the source {id:?}")
    }
}
