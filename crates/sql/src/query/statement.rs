//! How a session prepares and starts a statement on the query engine of our own.

use super::registry;
use super::relations::SessionRelations;
use crate::files::FileVersions;
use crate::parse::Parsed;
use crate::pg_catalog::Source as CatalogSource;
use crate::run::{NoSession, RunOptions, SessionServices};
use crate::session_facts::SessionFacts;
use firn_base::sync::Arc;
use firn_base::{Cancel, Result, TimeZoneSetting, Type, TypeId, Value, clock};
use firn_executor::write::{check_all, check_immediate};
use firn_executor::{Budget, Options};
use firn_plan::operator::LockStrength;
use firn_query::catalog::{Binding, Names};
use firn_query::expressions::TransactionExpressions;
use firn_query::prepared::Preparing;
use firn_query::{Executed, ResultColumn, Stream, Surroundings};
use firn_syntax::tree::{Expr, TypeName};
use firn_txn::Transaction;
use firn_vector::context::Settings;
use std::sync::LazyLock;

/// A prepared statement.
pub struct Prepared(firn_query::Prepared);

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
            firn_query::Prepared::new(&parsed.script, &parsed.statement, parameters, preparing).map(Prepared)
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
            firn_query::Prepared::arguments(&parsed.script, arguments, types, preparing).map(Prepared)
        })
    }

    /// The columns of its result.
    pub fn columns(&self) -> &Arc<[ResultColumn]> {
        self.0.columns()
    }

    /// The files that it reads.
    pub fn files(&self) -> Box<[FileVersions]> {
        Box::default()
    }

    /// The types of its parameters.
    pub fn parameters(&self) -> &[Type] {
        self.0.parameters()
    }

    /// The lines of EXPLAIN.
    pub fn explain(&self) -> Vec<String> {
        self.0.explain().lines().map(str::to_owned).collect()
    }

    /// How strongly it locks rows, if it does.
    pub fn lock_strength(&self) -> Option<LockStrength> {
        self.0.lock_strength()
    }

    /// Whether it changes or locks rows.
    pub fn has_effects(&self) -> bool {
        self.0.has_effects()
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
        self.0.execute(transaction, &others, parameters, Arc::new(surroundings), run_options(options))
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
        self.0.start(transaction, &others, parameters, Arc::new(surroundings), run_options(options))
    }
}

/// The type that a name in a statement means.
pub fn type_named(
    parsed: &Parsed,
    name: &TypeName,
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
) -> Result<Type> {
    prepare(transaction, facts, &Cancel::new(), |preparing| {
        firn_query::Prepared::type_named(&parsed.script, name, preparing)
    })
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

/// What a session prepares statements with.
fn prepare<T>(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    cancel: &Cancel,
    work: impl FnOnce(Preparing<'_>) -> Result<T>,
) -> Result<T> {
    let zone = zone(&facts.time_zone);
    // Nobody asks for rows while a statement is prepared.
    let others = SessionRelations { facts: facts.clone(), services: Arc::new(NoSession) };
    work(Preparing {
        registry: registry(),
        transaction,
        names: Names { search_path: &facts.search_path, database: &facts.database, zone: &zone },
        others: &others,
        cancel,
    })
}

/// Calls with what binds the expressions that rows of a load need.
pub(crate) fn load_expressions<T>(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    call: impl FnOnce(&TransactionExpressions<'_>) -> Result<T>,
) -> Result<T> {
    prepare(transaction, facts, &Cancel::new(), |preparing| {
        let Preparing { registry, names, others, .. } = preparing;
        let binding = Binding::new(registry, transaction.catalog(), names, others);
        call(&TransactionExpressions { binding: &binding, transaction })
    })
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
