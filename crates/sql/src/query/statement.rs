//! How a session prepares and starts a statement on the query engine of our own.

use super::registry;
use super::relations::SessionRelations;
use crate::files::{FileVersions, Files};
use crate::parse::Parsed;
use crate::pg_catalog::Source as CatalogSource;
use crate::run::{NoSession, RunOptions, SessionServices};
use crate::session_facts::SessionFacts;
use firn_base::sync::Arc;
use firn_base::{Cancel, Result, TimeZoneSetting, Type, TypeId, Value, clock};
use firn_bind::FileArgument;
use firn_executor::write::{check_all, check_immediate};
use firn_executor::{Budget, Options, Source};
use firn_plan::operator::{LockStrength, SourceId};
use firn_query::catalog::{Binding, Names};
use firn_query::expressions::TransactionExpressions;
use firn_query::prepared::Preparing;
use firn_query::{Executed, Found, Relations, ResultColumn, Stream, Surroundings};
use firn_syntax::tree::{Expr, TypeName};
use firn_txn::Transaction;
use firn_vector::context::Settings;
use std::sync::LazyLock;

/// A prepared statement.
pub struct Prepared {
    prepared: firn_query::Prepared,
    files: Box<[FileVersions]>,
}

/// What all queries of the process share.
static BUDGET: LazyLock<Arc<Budget>> = LazyLock::new(Budget::of_process);

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

    /// The lines of EXPLAIN.
    pub fn explain(&self) -> Vec<String> {
        self.prepared.explain().lines().map(str::to_owned).collect()
    }

    /// How strongly it locks rows, if it does.
    pub fn lock_strength(&self) -> Option<LockStrength> {
        self.prepared.lock_strength()
    }

    /// Whether it changes or locks rows.
    pub fn has_effects(&self) -> bool {
        self.prepared.has_effects()
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
        let surroundings = surroundings(transaction, facts, options);
        self.prepared.execute(transaction, &others, parameters, Arc::new(surroundings), run_options(options))
    }

    /// Starts it in a transaction, which must run as long as rows are drawn.
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

/// The relations of a session, and the files among them that were found: a plan over files holds as long as they are what they were.
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

/// The type that a name in a statement means.
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

/// Lends what statements of a session are prepared with; with the files that were looked at.
fn preparing<T>(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    cancel: &Cancel,
    work: impl FnOnce(Preparing<'_>) -> Result<T>,
) -> Result<(T, Box<[FileVersions]>)> {
    let zone = zone(&facts.time_zone);
    // Nobody asks for rows while a statement is prepared.
    let relations = SessionRelations { facts: facts.clone(), services: Arc::new(NoSession) };
    let others = Noting { relations, files: Files::default() };
    let done = work(Preparing {
        registry: registry(),
        transaction,
        names: Names { search_path: &facts.search_path, database: &facts.database, zone: &zone },
        others: &others,
        cancel,
    })?;
    Ok((done, others.files.versions()))
}

/// Calls with what binds the expressions that rows of a load need.
pub(crate) fn load_expressions<T>(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    call: impl FnOnce(&TransactionExpressions<'_>) -> Result<T>,
) -> Result<T> {
    let bound = preparing(transaction, facts, &Cancel::new(), |preparing| {
        let Preparing { registry, names, others, .. } = preparing;
        let binding = Binding::new(registry, transaction.catalog(), names, others);
        call(&TransactionExpressions { binding: &binding, transaction })
    });
    bound.map(|(bound, _)| bound)
}

/// What the functions of a statement are called with.
pub(crate) fn surroundings(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    options: &RunOptions,
) -> Surroundings {
    let services = &options.services;
    let session = Arc::new(CatalogSource::of_session(transaction.catalog(), facts, services));
    Surroundings {
        statement_time: clock::wall_clock_micros(),
        transaction_time: options.now,
        zone: zone(&options.time_zone),
        settings: Arc::new(SessionSettings(services.clone())),
        objects: session.clone(),
        session,
        budget: BUDGET.clone(),
        cancel: options.cancel.clone(),
    }
}

fn run_options(options: &RunOptions) -> Options {
    Options { workers: options.threads.max(1), ..Options::new(BUDGET.clone()) }
}

fn zone(name: &str) -> TimeZoneSetting {
    TimeZoneSetting::parse(name).unwrap_or(TimeZoneSetting::UTC)
}

/// The settings of a session, for functions.
struct SessionSettings(Arc<dyn SessionServices>);

impl Settings for SessionSettings {
    fn get(&self, name: &str) -> Option<String> {
        self.0.setting(name)
    }
}
