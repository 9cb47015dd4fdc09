//! Plans: queries and row changes bound to objects of the catalog, ready to run any number of times as long as these are the same.

use crate::explain::Explanation;
use crate::files::FileVersions;
use crate::options::ExplainOptions;
use crate::parse::Parsed;
use crate::query::{Execution, Prepared, QueryOutput};
use crate::rows::values_of_row;
use crate::run::RunOptions;
use crate::session_facts::SessionFacts;
use firn_base::stack::Tree;
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{Cancel, Error, Result, SqlState, TextStyle, Type, TypeId, Value};
use firn_executor::Measures;
use firn_plan::operator::LockStrength;
use firn_query::{Executed, Stream};
use firn_syntax::tree::{Execute, Statement};
use firn_txn::Transaction;
use firn_txn::dependencies::CatalogLookup;

/// A column of a result: its name, its type, and the column of a relation from which its values are taken.
pub type Column = firn_query::ResultColumn;

/// A statement ready to run.
pub struct Plan {
    /// The types of `$1`, `$2`, …
    pub parameters: Vec<Type>,
    /// The columns that it yields; `None` if it yields no rows.
    pub columns: Option<Arc<[Column]>>,
    /// A version of the catalog to which it is bound: the newest committed one for which this was found out, once there is one.
    catalog_version: AtomicU64,
    /// The facts of the session that it is bound to.
    pub facts: Arc<SessionFacts>,
    /// How its literals have been read, if that is not as these facts say.
    literals: Option<TextStyle>,
    /// The files that it reads as tables.
    files: Box<[FileVersions]>,
    prepared: Tree<Prepared>,
    /// The effect of a query that does more than read.
    effect: Option<QueryEffect>,
}

/// The effect of a query on rows beside reading them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueryEffect {
    /// It locks rows.
    Locks(LockStrength),
    /// A statement in its WITH changes rows.
    Changes,
}

impl QueryEffect {
    /// What a query does beside reading rows, if anything.
    pub(crate) fn of(query: &Prepared) -> Option<QueryEffect> {
        query.has_effects().then(|| query.lock_strength().map_or(QueryEffect::Changes, QueryEffect::Locks))
    }

    /// The clause with this effect.
    pub fn clause(self) -> Option<&'static str> {
        match self {
            QueryEffect::Locks(LockStrength::KeyShare) => Some("FOR KEY SHARE"),
            QueryEffect::Locks(LockStrength::Share) => Some("FOR SHARE"),
            QueryEffect::Locks(LockStrength::NoKeyUpdate) => Some("FOR NO KEY UPDATE"),
            QueryEffect::Locks(LockStrength::Update) => Some("FOR UPDATE"),
            QueryEffect::Changes => None,
        }
    }

    /// The name of the query in the refusal of a read-only transaction.
    pub fn command(self) -> String {
        self.clause().map_or_else(|| "SELECT".to_owned(), |clause| format!("SELECT {clause}"))
    }
}

/// The result of a statement that changes or locks rows.
pub struct Changed {
    /// The number of rows for the command tag; `None` to count the rows that are read.
    pub count: Option<u64>,
    /// The rows of RETURNING, or of the query.
    pub rows: ChangedRows,
}

/// The rows of a statement that changes or locks rows. They are all there and need no transaction.
pub enum ChangedRows {
    /// The values of a short statement, row by row.
    Values(Vec<Value>),
    /// Those that its pipelines have kept.
    Kept(Box<Stream>),
}

impl Plan {
    /// Binds a query or a change. Types of parameters that are not given are inferred. `literals` is how literals are read, if
    /// that is not as the facts say. Panics for other statements.
    pub fn new(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parsed: &Parsed,
        types: &[Option<TypeId>],
        options: &RunOptions,
        literals: Option<&TextStyle>,
    ) -> Result<Plan> {
        let read_so = literals.map(|literals| {
            Arc::new(SessionFacts { literals: Some(*literals), ..SessionFacts::clone(facts) })
        });
        let seen = read_so.as_ref().unwrap_or(facts);
        let prepared = Prepared::new(parsed, types, transaction, seen, &options.cancel)?;
        let is_query = matches!(parsed.statement, Statement::Query(_));
        let effect = QueryEffect::of(&prepared).filter(|_| is_query);
        Ok(Plan {
            parameters: prepared.parameters().to_vec(),
            columns: (is_query || !prepared.columns().is_empty()).then(|| prepared.columns().clone()),
            catalog_version: AtomicU64::new(transaction.catalog_version()),
            facts: facts.clone(),
            literals: literals.cloned(),
            files: prepared.files(),
            effect,
            prepared: Tree::new(prepared),
        })
    }

    /// Whether it still means what its text means, if literals are read so, and tables have about as many rows as it was planned for.
    #[inline]
    pub fn is_current(
        &self,
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        literals: Option<&TextStyle>,
    ) -> bool {
        (self.is_bound_to(transaction.catalog_version()) || self.holds_in(transaction))
            && self.literals.as_ref() == literals
            && (Arc::ptr_eq(&self.facts, facts) || *self.facts == **facts)
            && self.files.iter().all(FileVersions::is_current)
            && !self.prepared.has_outgrown()
    }

    /// Whether it is known to be bound to that version of the catalog.
    #[inline]
    fn is_bound_to(&self, catalog_version: u64) -> bool {
        // Relaxed: no version has another content, so the number says all.
        self.catalog_version.load(Ordering::Relaxed) == catalog_version
    }

    /// Whether the catalog of a transaction has the same of everything that it was made of. That is found out again for each execution if
    /// the catalog is an older one, or has uncommitted DDL: others would have to find it out again, if this one were noted.
    #[cold]
    fn holds_in(&self, transaction: &Transaction) -> bool {
        let lookup = CatalogLookup::of_few(transaction.catalog());
        let is_newer = transaction.catalog_version() > self.catalog_version.load(Ordering::Relaxed);
        match !transaction.has_ddl() && is_newer {
            true => self.holds_in_newest(&lookup),
            false => self.prepared.dependencies().hold_in(&lookup),
        }
    }

    /// Likewise of a catalog that is, or a moment ago was, the newest committed one.
    pub fn holds_in_newest(&self, newest: &CatalogLookup<'_>) -> bool {
        let version = newest.catalog().version;
        if self.is_bound_to(version) {
            return true;
        }
        let holds = self.prepared.dependencies().hold_in(newest);
        if holds {
            self.catalog_version.store(version, Ordering::Relaxed);
        }
        holds
    }

    /// About how many bytes it takes, without the tables that it reads.
    pub fn memory(&self) -> usize {
        self.prepared.memory()
    }

    /// The effect of a query that does more than read.
    #[inline]
    pub fn effect(&self) -> Option<QueryEffect> {
        self.effect
    }

    /// Whether it touches few rows, as far as is known before it runs.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.prepared.is_short()
    }

    /// Whether it reads tables, and not only catalogs, files and the like.
    pub fn reads_tables(&self) -> bool {
        self.prepared.reads_tables()
    }

    /// Whether it is a query that gives the same rows on another server with the same tables and catalog, for a session with the same
    /// settings, user and time. Its parameters are no names of objects, which only the session could read.
    pub fn is_portable(&self) -> bool {
        self.prepared.is_portable() && !self.parameters.iter().any(|ty| ty.names_objects())
    }

    /// About how many rows its operators handle, with these parameters.
    pub fn work(&self, transaction: &Transaction, parameters: &[Value], cancel: &Cancel) -> Result<f64> {
        self.prepared.work(transaction, &self.facts, parameters, cancel)
    }

    /// Whether statements that differ in [literals](crate::literals) may share it: it finds every row that it reads by all of a
    /// unique key.
    pub fn is_by_keys(&self) -> bool {
        self.prepared.is_by_keys()
    }

    /// Runs a query that only reads.
    pub fn query(
        &self,
        transaction: &Transaction,
        parameters: &[Value],
        options: &RunOptions,
        values: &mut Vec<Value>,
    ) -> Result<QueryOutput> {
        self.prepared.query(transaction, &self.facts, parameters, options, values)
    }

    /// Runs a statement that changes or locks rows.
    pub fn change(
        &self,
        transaction: &mut Transaction,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<Changed> {
        let mut values = Vec::new();
        match self.prepared.change(transaction, &self.facts, parameters, options, &mut values)? {
            Execution::Short { count } => Ok(Changed { count, rows: ChangedRows::Values(values) }),
            Execution::Pipelines(executed) => {
                let Executed { count, rows } = *executed;
                Ok(Changed { count, rows: ChangedRows::Kept(Box::new(rows.without_cancel())) })
            }
        }
    }

    /// The output of EXPLAIN for it, if it is run with these parameters and options.
    pub fn explain(
        &self,
        transaction: &Transaction,
        explain: &ExplainOptions,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<Explanation> {
        let estimates = match explain.costs {
            true => Some(self.prepared.estimates(transaction, &self.facts, &options.cancel)?),
            false => None,
        };
        let indexes = self.prepared.indexes(transaction, &self.facts, &options.cancel, parameters)?;
        Ok(Explanation::new(self.prepared.plan(), *explain, estimates, indexes, options.measures.clone()))
    }

    /// Empty measures of its operators.
    pub fn measures(&self) -> Arc<Measures> {
        Arc::new(Measures::of(self.prepared.plan()))
    }
}

/// The values of EXECUTE's arguments, as those of the statement's parameters. The text of `parsed` contains the arguments.
pub fn arguments(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    options: &RunOptions,
    parsed: &Parsed,
    execute: &Execute,
    types: &[Type],
) -> Result<Vec<Value>> {
    let Execute { name, arguments } = execute;
    if arguments.len() != types.len() {
        let message = format!("wrong number of parameters for prepared statement \"{}\"", name.text);
        let detail = format!("Expected {} parameters but got {}.", types.len(), arguments.len());
        return Err(Error::new(SqlState::SYNTAX_ERROR, message).with_detail(detail));
    }
    if arguments.is_empty() {
        return Ok(Vec::new());
    }
    let prepared = Prepared::arguments(parsed, arguments, types, transaction, facts, &options.cancel)?;
    let mut rows = prepared.start(transaction, facts, &[], options)?;
    let row = rows.next()?.expect("arguments are one row");
    Ok(values_of_row(prepared.columns(), &row, 0))
}
