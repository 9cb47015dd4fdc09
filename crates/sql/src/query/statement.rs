//! How a session prepares and starts a statement on the query engine.

use super::context::{BUDGET, LentSession, surroundings};
use super::registry;
use super::relations::SessionRelations;
use crate::files::{FileVersions, Files};
use crate::parse::Parsed;
use crate::run::{NoSession, RunOptions};
use crate::session_facts::SessionFacts;
use firn_base::sync::Arc;
use firn_base::{Cancel, Error, Result, Type, TypeId, Value};
use firn_bind::FileArgument;
use firn_executor::write::{check_all, check_immediate};
use firn_executor::{Options, Source};
use firn_plan::operator::{LockStrength, SourceId};
use firn_query::catalog::{Binding, Names};
use firn_query::expressions::TransactionExpressions;
use firn_query::prepared::Preparing;
use firn_query::{Executed, Found, KeptRows, Relations, ResultColumn, Stream};
use firn_syntax::tree::{Expr, TypeName};
use firn_txn::Transaction;
use firn_txn::dependencies::Dependencies;
use firn_vector::kernel::Signature;
use firn_vector::{Context, Datum, Slot};
use std::borrow::Cow;
use std::time::Duration;

/// The result of a query.
pub enum QueryOutput {
    /// The number of rows of the whole result, whose values have been appended to those of the caller.
    Values(usize),
    /// Rows that are computed while they are read. Boxed, like other results that short statements do not have but move.
    Stream(Box<Stream>),
}

/// The result of a statement that changes or locks rows.
pub enum Execution {
    /// It has touched few rows. The values of its result have been appended to those of the caller.
    Short {
        /// The number of changed rows; `None` for a query.
        count: Option<u64>,
    },
    /// It has run as pipelines.
    Pipelines(Box<Executed>),
}

/// A prepared statement.
pub struct Prepared {
    prepared: firn_query::Prepared,
    files: Box<[FileVersions]>,
}

/// How many bytes of their memory the queries of the process have in use.
pub fn query_memory_used() -> u64 {
    BUDGET.used()
}

impl Prepared {
    /// Prepares a query or a row change.
    pub fn new(
        parsed: &Parsed,
        parameters: &[Option<TypeId>],
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        cancel: &Cancel,
    ) -> Result<Prepared> {
        prepare(transaction, facts, cancel, |preparing| {
            firn_query::Prepared::new(&parsed.script, &parsed.statement, parameters, preparing)
        })
    }

    /// Prepares the arguments of EXECUTE: a query for one row of values of these types.
    pub fn arguments(
        parsed: &Parsed,
        arguments: &[Expr],
        types: &[Type],
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        cancel: &Cancel,
    ) -> Result<Prepared> {
        prepare(transaction, facts, cancel, |preparing| {
            firn_query::Prepared::arguments(&parsed.script, arguments, types, preparing)
        })
    }

    /// The columns of its result.
    pub fn columns(&self) -> &Arc<[ResultColumn]> {
        self.prepared.columns()
    }

    /// The files that it reads.
    pub fn files(&self) -> Box<[FileVersions]> {
        self.files.clone()
    }

    /// The types of its parameters.
    pub fn parameters(&self) -> &[Type] {
        self.prepared.parameters()
    }

    /// What it was made of in the catalog.
    pub fn dependencies(&self) -> &Dependencies {
        self.prepared.dependencies()
    }

    /// Its plan.
    pub fn plan(&self) -> &firn_plan::Plan {
        self.prepared.plan()
    }

    /// How strongly it locks rows, if it locks any.
    pub fn lock_strength(&self) -> Option<LockStrength> {
        self.prepared.lock_strength()
    }

    /// Whether it changes or locks rows.
    pub fn has_effects(&self) -> bool {
        self.prepared.has_effects()
    }

    /// The expected number of rows of each operator of its plan, by its number.
    pub fn estimates(
        &self,
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        cancel: &Cancel,
    ) -> Result<Vec<f64>> {
        let estimates = |lent: Preparing<'_>| Ok(self.prepared.estimates(lent));
        preparing(transaction, facts, cancel, estimates).map(|(estimates, _)| estimates)
    }

    /// Whether it reads tables, and not only catalogs, files and the like.
    pub fn reads_tables(&self) -> bool {
        self.prepared.reads_tables()
    }

    /// Whether it is a query that gives the same rows on another server with the same tables and catalog.
    pub fn is_portable(&self) -> bool {
        self.prepared.is_portable() && self.files.is_empty()
    }

    /// About how many rows its operators handle.
    pub fn work(
        &self,
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parameters: &[Value],
        cancel: &Cancel,
    ) -> Result<f64> {
        let work = |lent: Preparing<'_>| self.prepared.work(lent, parameters);
        preparing(transaction, facts, cancel, work).map(|(work, _)| work)
    }

    /// The index by which each scan of its plan finds rows, by the scan's number.
    pub fn indexes(
        &self,
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        cancel: &Cancel,
        parameters: &[Value],
    ) -> Result<Vec<Option<String>>> {
        let indexes = |lent: Preparing<'_>| self.prepared.indexes(lent, parameters);
        let (indexes, _) = preparing(transaction, facts, cancel, indexes)?;
        let tables = &transaction.catalog().tables;
        let name = |oid: u32| {
            let mut all = tables.values().flat_map(|table| &table.indexes);
            all.find(|index| index.oid.0 == oid).map(|index| index.name.to_string())
        };
        Ok(indexes.into_iter().map(|oid| oid.and_then(name)).collect())
    }

    /// Executes a statement that changes or locks rows.
    pub fn execute(
        &self,
        transaction: &mut Transaction,
        facts: &Arc<SessionFacts>,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<Executed> {
        let others = SessionRelations { facts: facts.clone(), services: options.services.clone() };
        let surroundings = Arc::new(surroundings(transaction, facts, options));
        let run = run_options(options);
        match options.allows_short() {
            true => self.prepared.execute(transaction, &others, parameters, surroundings, run),
            false => self.prepared.execute_pipelines(transaction, &others, parameters, surroundings, run),
        }
    }

    /// About how many bytes it takes, without the tables that it reads.
    pub fn memory(&self) -> usize {
        self.prepared.memory()
    }

    /// Whether it touches few rows, as far as is known before it runs.
    pub fn is_short(&self) -> bool {
        self.prepared.is_short()
    }

    /// Whether it finds every row that it reads by all of a unique key.
    pub fn is_by_keys(&self) -> bool {
        self.prepared.is_by_keys()
    }

    /// Whether its tables have grown so much that it should be prepared again.
    pub fn has_outgrown(&self) -> bool {
        self.prepared.has_outgrown()
    }

    /// As [`Prepared::execute`], but values of a result of few rows are appended to `values`, and parameters may be names of
    /// objects.
    pub fn change(
        &self,
        transaction: &mut Transaction,
        facts: &Arc<SessionFacts>,
        parameters: &[Value],
        options: &RunOptions,
        values: &mut Vec<Value>,
    ) -> Result<Execution> {
        // The transaction is lent to the statement, which may change it.
        let catalog = transaction.catalog().clone();
        let session = LentSession::new(&catalog, facts, options);
        let context = session.context();
        let parameters = &*with_objects(self.parameters(), parameters, &context)?;
        if options.allows_short()
            && let Some(done) = self.prepared.execute_short(transaction, parameters, &context, values)?
        {
            return Ok(Execution::Short { count: done.count });
        }
        let others = SessionRelations { facts: facts.clone(), services: options.services.clone() };
        let surroundings = Arc::new(surroundings(transaction, facts, options));
        let options = run_options(options);
        let executed =
            self.prepared.execute_pipelines(transaction, &others, parameters, surroundings, options)?;
        Ok(Execution::Pipelines(Box::new(executed)))
    }

    /// Runs a query that only reads: to its end if it touches few rows, whose values are appended to `values`. Parameters may
    /// be names of objects.
    pub fn query(
        &self,
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parameters: &[Value],
        options: &RunOptions,
        values: &mut Vec<Value>,
    ) -> Result<QueryOutput> {
        let session = LentSession::new(transaction.catalog(), facts, options);
        let context = session.context();
        let parameters = &*with_objects(self.parameters(), parameters, &context)?;
        if options.allows_short()
            && let Some(rows) = self.prepared.run_short(transaction, parameters, &context, values)?
        {
            return Ok(QueryOutput::Values(rows));
        }
        let others = SessionRelations { facts: facts.clone(), services: options.services.clone() };
        let surroundings = Arc::new(surroundings(transaction, facts, options));
        let options = run_options(options);
        let stream = self.prepared.start(transaction, &others, parameters, surroundings, options)?;
        Ok(QueryOutput::Stream(Box::new(stream)))
    }

    /// Starts it in a transaction, which must remain open as long as rows are read.
    pub fn start(
        &self,
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<Stream> {
        let others = SessionRelations { facts: facts.clone(), services: options.services.clone() };
        let surroundings = surroundings(transaction, facts, options);
        self.prepared.start(transaction, &others, parameters, Arc::new(surroundings), run_options(options))
    }
}

/// The parameters, with oids in place of the names of objects.
fn with_objects<'v>(
    types: &[Type],
    parameters: &'v [Value],
    context: &Context<'_>,
) -> Result<Cow<'v, [Value]>> {
    let is_name = |(ty, value): (&Type, &Value)| matches!(value, Value::Text(_)) && ty.names_objects();
    if !types.iter().zip(parameters).any(is_name) {
        return Ok(Cow::Borrowed(parameters));
    }
    let values = types.iter().zip(parameters).map(|(ty, value)| match value {
        Value::Text(name) if ty.names_objects() => object_named(name, *ty, context),
        value => Ok(value.clone()),
    });
    values.collect::<Result<_>>().map(Cow::Owned)
}

/// The value of a type of objects, or of arrays of them, that a text denotes: the result of the type's input function.
fn object_named(text: &str, ty: Type, context: &Context<'_>) -> Result<Value> {
    let input = registry().input(ty.id).and_then(|input| registry().function(input));
    let input = input.ok_or_else(|| Error::unsupported(format_args!("type {ty} as text")))?;
    let element = ty.element().map_or(0, |element| element.id.0);
    let arguments = [Datum::Text(text), Datum::UInt32(element), Datum::Int32(ty.modifier)];
    let types = [TypeId::CSTRING, TypeId::OID, TypeId::INT4].map(Type::new);
    // Input functions of single objects have the text as their only parameter.
    let count = if element == 0 { 1 } else { 3 };
    let represented = |ty: &Type| ty.representation().expect("values of the type are stored");
    let signature = Signature {
        arguments: types[..count].into(),
        representations: types[..count].iter().map(represented).collect(),
        result: ty,
        representation: represented(&ty),
        has_variadic_array: false,
    };
    let mut object = Slot::new();
    input.call_site(signature).cells(context, &arguments[..count], &mut object)?;
    Ok(object.get().to_value(ty))
}

/// The relations of a session, which records the files that were found: a plan over files is valid as long as they are unchanged.
struct Noting {
    relations: SessionRelations,
    files: Files,
}

impl Relations for Noting {
    fn relation(&self, schema: Option<&str>, name: &str) -> Result<Option<Found>> {
        self.relations.relation(schema, name)
    }

    fn has_schema(&self, name: &str) -> bool {
        self.relations.has_schema(name)
    }

    fn file(&self, pattern: &str) -> Result<Option<Found>> {
        self.relations.files_named(pattern, &self.files).map(Some)
    }

    fn reads_files(&self, function: &str) -> bool {
        self.relations.reads_files(function)
    }

    fn file_function(&self, function: &str, arguments: &[FileArgument<'_>]) -> Result<Found> {
        self.relations.files_read_by(function, arguments, &self.files)
    }

    fn source(&self, id: SourceId, transaction: &Transaction) -> Arc<dyn Source> {
        self.relations.source(id, transaction)
    }
}

/// The type that a name in a statement denotes.
pub fn type_named(
    parsed: &Parsed,
    name: &TypeName,
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
) -> Result<Type> {
    let (ty, _) = preparing(transaction, facts, &Cancel::new(), |preparing| {
        firn_query::Prepared::type_named(&parsed.script, name, preparing)
    })?;
    Ok(ty)
}

/// Makes all checks that a transaction has deferred, before it commits. 23503 or 23505 if one fails.
pub fn check_deferred(
    transaction: &mut Transaction,
    facts: &Arc<SessionFacts>,
    options: &RunOptions,
) -> Result<()> {
    match transaction.has_deferred_checks() {
        true => check_all(transaction, &surroundings(transaction, facts, options).context()),
        false => Ok(()),
    }
}

/// Makes the checks that are no longer deferred, after SET CONSTRAINTS. Errors likewise.
pub fn check_no_longer_deferred(
    transaction: &mut Transaction,
    facts: &Arc<SessionFacts>,
    options: &RunOptions,
) -> Result<()> {
    match transaction.has_deferred_checks() {
        true => check_immediate(transaction, &surroundings(transaction, facts, options).context()),
        false => Ok(()),
    }
}

/// Prepares a statement of a session, with the files that it reads.
fn prepare(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    cancel: &Cancel,
    work: impl FnOnce(Preparing<'_>) -> Result<firn_query::Prepared>,
) -> Result<Prepared> {
    let (prepared, files) = preparing(transaction, facts, cancel, work)?;
    Ok(Prepared { prepared, files })
}

/// Calls `work` with the context in which statements of a session are prepared. Also returns the files that were examined.
fn preparing<T>(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    cancel: &Cancel,
    work: impl FnOnce(Preparing<'_>) -> Result<T>,
) -> Result<(T, Box<[FileVersions]>)> {
    // No rows are read while a statement is prepared.
    let relations = SessionRelations { facts: facts.clone(), services: Arc::new(NoSession) };
    let others = Noting { relations, files: Files::default() };
    let done = work(Preparing {
        registry: registry(),
        transaction,
        names: Names {
            search_path: &facts.search_path,
            database: &facts.database,
            literals: facts.literals.as_ref().unwrap_or(&facts.style),
            style: &facts.style,
            present: None,
        },
        others: &others,
        cancel,
    })?;
    Ok((done, others.files.versions()))
}

/// Calls `work` with a binder for the expressions that rows of a load need.
pub(crate) fn load_expressions<T>(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    call: impl FnOnce(&TransactionExpressions<'_>) -> Result<T>,
) -> Result<T> {
    let (done, _) = preparing(transaction, facts, &Cancel::new(), |preparing| {
        let Preparing { registry, names, others, .. } = preparing;
        let binding = Binding::new(registry, transaction.catalog(), names, others);
        call(&TransactionExpressions { binding: &binding, transaction })
    })?;
    Ok(done)
}

/// A buffer for the rows of a result, charged to the budget of all queries.
pub fn kept_rows(columns: &[ResultColumn], options: &RunOptions) -> KeptRows {
    KeptRows::new(columns, &run_options(options))
}

fn run_options(options: &RunOptions) -> Options {
    let usual = Options::new(BUDGET.clone());
    let forced = &options.forced;
    Options {
        workers: options.threads.max(1),
        alone: if forced.workers.is_some() { Duration::ZERO } else { usual.alone },
        vector_rows: forced.vector_rows.unwrap_or(usual.vector_rows),
        always_spill: forced.spill,
        spill: Some(options.spill.clone()),
        measures: options.measures.clone(),
        ..usual
    }
}
