//! Plans: queries and row changes bound to one version of the catalog, ready to run any number of times.

use crate::files::FileVersions;
use crate::parse::Parsed;
use crate::query::Prepared;
use crate::run::RunOptions;
use crate::session_facts::SessionFacts;
use firn_base::sync::Arc;
use firn_base::{Result, Type, TypeId, Value};
use firn_query::{ResultChunk, Stream};
use firn_syntax::tree::Statement;
use firn_txn::Transaction;
use std::collections::VecDeque;

/// A column of a result: its name, its type, and the column of a relation that its values are.
pub type Column = firn_query::ResultColumn;

/// A statement ready to run.
pub struct Plan {
    /// The types of `$1`, `$2`, …
    pub parameters: Vec<Type>,
    /// The columns that it yields; `None` if it yields no rows.
    pub columns: Option<Arc<[Column]>>,
    /// The version of the catalog that it is bound to.
    pub catalog_version: u64,
    /// What else it is bound to.
    pub facts: Arc<SessionFacts>,
    /// The files that it reads as tables.
    files: Box<[FileVersions]>,
    prepared: Prepared,
    /// If it is a query that locks rows: the clause that it is known by.
    locks: Option<&'static str>,
}

/// What a statement has done that changes or locks rows.
pub struct Changed {
    /// How many rows the command tag counts; those that are drawn without.
    pub count: Option<u64>,
    /// The rows of RETURNING, or of the query.
    pub rows: VecDeque<RowChunk>,
}

/// Some rows of a result.
#[derive(Clone, Debug)]
pub enum RowChunk {
    /// Row-major values: as many per row as there are columns.
    Values(Vec<Value>),
    /// A vector for each column, all rows of them.
    Vectors(ResultChunk),
}

impl RowChunk {
    /// How many rows, of so many columns.
    pub fn rows(&self, columns: usize) -> usize {
        match self {
            RowChunk::Values(values) => values.len() / columns.max(1),
            RowChunk::Vectors(chunk) => chunk.rows(),
        }
    }

    /// Its first rows, so many, which it has, and the others.
    pub fn split(self, first: usize, columns: usize) -> (RowChunk, RowChunk) {
        match self {
            RowChunk::Values(mut values) => {
                let rest = values.split_off(first * columns);
                (RowChunk::Values(values), RowChunk::Values(rest))
            }
            RowChunk::Vectors(chunk) => {
                let rest = chunk.slice(first, chunk.rows() - first);
                (RowChunk::Vectors(chunk.slice(0, first)), RowChunk::Vectors(rest))
            }
        }
    }
}

impl Plan {
    /// Binds a query or a change. Types of parameters that are not given are inferred. Panics for other statements.
    pub fn new(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parsed: &Parsed,
        types: &[Option<TypeId>],
        options: &RunOptions,
    ) -> Result<Plan> {
        let prepared = Prepared::new(parsed, types, transaction, facts, &options.cancel)?;
        let is_query = matches!(parsed.statement, Statement::Query(_));
        let locks = (is_query && prepared.has_effects()).then_some("FOR UPDATE");
        Ok(Plan {
            parameters: prepared.parameters().to_vec(),
            columns: (is_query || !prepared.columns().is_empty()).then(|| prepared.columns().clone()),
            catalog_version: transaction.catalog_version(),
            facts: facts.clone(),
            files: prepared.files(),
            locks,
            prepared,
        })
    }

    /// Whether it still means what its text means.
    #[inline]
    pub fn is_current(&self, transaction: &Transaction, facts: &Arc<SessionFacts>) -> bool {
        self.catalog_version == transaction.catalog_version()
            && (Arc::ptr_eq(&self.facts, facts) || *self.facts == **facts)
            && self.files.iter().all(FileVersions::is_current)
    }

    /// If it is a query that locks rows: the clause that says so.
    #[inline]
    pub fn locks(&self) -> Option<&'static str> {
        self.locks
    }

    /// Runs a query that locks no rows.
    pub fn query(
        &self,
        transaction: &Transaction,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<Stream> {
        self.prepared.start(transaction, &self.facts, parameters, options)
    }

    /// Runs a statement that changes or locks rows.
    pub fn change(
        &self,
        transaction: &mut Transaction,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<Changed> {
        if !self.prepared.has_effects() {
            // No row is locked where no table is read.
            let rows = self.prepared.start(transaction, &self.facts, parameters, options)?;
            return Ok(Changed { count: None, rows: drained(rows)? });
        }
        let executed = self.prepared.execute(transaction, &self.facts, parameters, options)?;
        Ok(Changed { count: executed.count, rows: drained(executed.rows)? })
    }

    /// The lines of EXPLAIN.
    pub fn explain(&self) -> Vec<String> {
        self.prepared.explain()
    }
}

fn drained(mut rows: Stream) -> Result<VecDeque<RowChunk>> {
    let mut chunks = VecDeque::new();
    while let Some(chunk) = rows.next()? {
        chunks.push_back(RowChunk::Vectors(chunk));
    }
    Ok(chunks)
}
