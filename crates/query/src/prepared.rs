//! Prepared statements: bound, optimised and compiled once, run any number of times.
//!
//! A statement that touches few rows has a [short program](firn_executor::ShortProgram). Its pipelines are then compiled when the
//! short program gives up for the first time, or when they are asked for.

use crate::catalog::{Binding, Names};
use crate::expressions::TransactionExpressions;
use crate::relations::Relations;
use crate::sources::{FoundSources, TransactionSources};
use crate::stream::{Stream, depends_on_session};
use crate::surroundings::Surroundings;
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Cancel, Error, Result, SqlState, Type, TypeId, Value, stack};
use firn_bind::{Bound, OutputColumn};
use firn_executor::compile::targets_of;
use firn_executor::execution::execute;
use firn_executor::statistics::SourceFacts;
use firn_executor::write::TargetSet;
use firn_executor::{Options, Program, Reader, Rows, ShortProgram, Source, Sources};
use firn_plan::evaluator::RegistryEvaluator;
use firn_plan::function::{Function, Volatility};
use firn_plan::operator::{LockStrength, SourceId};
use firn_plan::properties::calls;
use firn_plan::statistics::Estimates;
use firn_plan::{Operator, Plan, rewrite, text};
use firn_storage::Table;
use firn_syntax::tree::{Expr, Statement, TypeName};
use firn_txn::Transaction;
use firn_txn::catalog::{Oid, TableDef};
use firn_txn::dependencies::Dependencies;
use firn_vector::context::detached;
use firn_vector::registry::FunctionId;
use firn_vector::{Context, Registry};
use std::collections::HashMap;

pub use firn_executor::short::Done;

/// A column of a result.
pub type ResultColumn = OutputColumn;

/// A statement that can be run any number of times, as long as its [dependencies](Prepared::dependencies) hold in the catalog of the
/// transaction that runs it.
pub struct Prepared {
    columns: Arc<[ResultColumn]>,
    parameters: Vec<Type>,
    plan: Plan,
    short: Option<ShortProgram>,
    /// The pipelines, once they have been needed.
    program: OnceLock<Arc<Program>>,
    held: HashMap<SourceId, Arc<dyn Source>>,
    /// All sources that it reads or changes.
    sources: Vec<SourceId>,
    /// The tables among them, and how many rows each had when it was planned.
    tables: Vec<(Arc<Table>, u64)>,
    registry: &'static Registry,
    bytes: usize,
    /// The tables that it changes or locks, compiled for writing; `None` of a query that only reads.
    targets: Option<Arc<TargetSet>>,
    dependencies: Dependencies,
    is_portable: bool,
    reads_tables: bool,
}

/// A plan is made anew when a table has so many times the rows that it was planned with.
const GROWTH: u64 = 10;

/// A plan is kept in so many forms: as algebra, as a short program, and as pipelines.
const FORMS: usize = 3;

/// What a prepared statement takes beside that.
const LEAST_BYTES: usize = 4096;

/// With fewer rows than these it does not matter how a table is read.
const FEW_ROWS: u64 = 100;

/// What a statement has done that changes or locks rows.
pub struct Executed {
    /// How many rows it has changed; `None` of a query that locks rows.
    pub count: Option<u64>,
    /// The rows of RETURNING, or of the query. They need no transaction.
    pub rows: Stream,
}

/// What a statement is prepared with.
#[derive(Clone, Copy)]
pub struct Preparing<'a> {
    /// Functions, operators and casts.
    pub registry: &'static Registry,
    /// The transaction whose catalog names are looked up in.
    pub transaction: &'a Transaction,
    /// How the session sees names.
    pub names: Names<'a>,
    /// Relations outside of the catalog.
    pub others: &'a dyn Relations,
    /// Ends the preparation.
    pub cancel: &'a Cancel,
}

/// Whether all functions of a plan are such that their results depend on nothing but arguments, settings, the time and the catalog.
fn calls_portable(plan: &Plan, registry: &Registry) -> bool {
    let is_bound = |function: &Function| match function.volatility {
        Volatility::Immutable => false,
        Volatility::Stable => registry.may_ask_session(FunctionId(function.oid)),
        Volatility::Volatile => true,
    };
    let is_sample = |node| matches!(plan[node], Operator::Sample { seed: None, .. });
    !plan.post_order().into_iter().any(|node| is_sample(node) || calls(plan, node, &mut { is_bound }))
}

impl Prepared {
    /// Prepares a query or a row change. Positions in its tree are bytes of `text`. Types of parameters that are not given
    /// are determined by their use.
    pub fn new(
        text: &str,
        statement: &Statement,
        parameters: &[Option<TypeId>],
        preparing: Preparing<'_>,
    ) -> Result<Prepared> {
        let bind = |binding: &Binding<'_>| firn_bind::bind(text, statement, parameters, binding);
        stack::with_room_for_tree(|| Prepared::compile(bind, preparing, true))
    }

    /// Prepares the arguments of EXECUTE: a query for one row, whose values are assigned to `types`. They have no parameters
    /// of their own: 42P02.
    pub fn arguments(
        text: &str,
        arguments: &[Expr],
        types: &[Type],
        preparing: Preparing<'_>,
    ) -> Result<Prepared> {
        let bind = |binding: &Binding<'_>| {
            let bound = firn_bind::bind_arguments(text, arguments, types, binding)?;
            match bound.parameters.is_empty() {
                true => Ok(bound),
                false => Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1")),
            }
        };
        // They are computed once, each time they are prepared.
        stack::with_room_for_tree(|| Prepared::compile(bind, preparing, false))
    }

    /// The type that a name means.
    pub fn type_named(text: &str, name: &TypeName, preparing: Preparing<'_>) -> Result<Type> {
        let Preparing { registry, transaction, names, others, .. } = preparing;
        let binding = Binding::new(registry, transaction.catalog(), names, others);
        firn_bind::bind_type_name(text, name, &binding)
    }

    fn compile(
        bind: impl FnOnce(&Binding<'_>) -> Result<Bound>,
        preparing: Preparing<'_>,
        optimises: bool,
    ) -> Result<Prepared> {
        let Preparing { registry, transaction, names, others, .. } = preparing;
        let binding = Binding::new(registry, transaction.catalog(), names, others);
        let bound = bind(&binding)?;
        let depth = bound.depth.max(bound.plan.depth() as u32);
        stack::with_room_for(depth, || Prepared::of_plan(bound, &binding, preparing, optimises))
    }

    /// Optimises and compiles a plan.
    fn of_plan(
        bound: Bound,
        binding: &Binding<'_>,
        preparing: Preparing<'_>,
        optimises: bool,
    ) -> Result<Prepared> {
        let Preparing { registry, transaction, names, others, cancel } = preparing;
        let held = binding.held();
        let mut plan = bound.plan;
        let sources = TransactionSources { transaction, held: &held, others };
        let context = Context { style: names.style, cancel, ..detached() };
        let evaluator = RegistryEvaluator::new(registry, &context);
        let expressions = TransactionExpressions { binding, transaction };
        let tables = &transaction.catalog().tables;
        if optimises || !is_one_row(&plan) {
            let mut computed = HashMap::new();
            for id in plan.sources() {
                let table =
                    tables.get(&Oid(id.0)).filter(|table| table.columns.iter().any(|column| column.hidden));
                if let Some(table) = table {
                    computed.insert(id, expressions.computed(table, &evaluator)?);
                }
            }
            let facts = SourceFacts::new(&sources, transaction.snapshot(), registry, &context);
            let facts = facts.with_computed(computed);
            transaction.engine().statistics().plans.count();
            rewrite::optimise(&mut plan, registry, &evaluator, &facts);
            cancel.check()?;
        }
        let changed = targets_of(&plan);
        let mut ids = plan.sources();
        ids.extend(changed.iter().flatten());
        ids.sort_unstable_by_key(|id| id.0);
        ids.dedup();
        let targets = match &changed {
            Some(changed) => {
                let named = changed.iter().map(|id| (*id, tables[&Oid(id.0)].clone()));
                let named: Vec<(SourceId, Arc<TableDef>)> = named.collect();
                let set = TargetSet::compile(transaction.catalog(), &named, &expressions)?;
                set.definitions().for_each(|table| binding.record_change_of(table));
                Some(set)
            }
            None => None,
        };
        // What only the session can write is written from vectors.
        let has_texts = bound.columns.iter().any(|column| depends_on_session(column.ty));
        // Rows without columns have no values by which they could be counted.
        let has_no_values = plan.output.is_empty() && !plan.is_change;
        let short = match has_texts || has_no_values {
            true => None,
            false => ShortProgram::compile(&plan, registry, &sources, targets.as_deref()),
        };
        let table_of = |id: &SourceId| sources.source(*id).table();
        let rows_of = |table: Arc<Table>| (table.clone(), table.approximate_rows());
        let tables = ids.iter().filter_map(table_of).map(rows_of).collect();
        let program = OnceLock::new();
        if short.is_none() {
            let _ = program.set(Arc::new(Program::compile(&plan, registry)?));
        }
        let bytes = FORMS * plan.memory() + LEAST_BYTES;
        let is_portable = targets.is_none()
            && ids.iter().all(|id| table_of(id).is_some())
            && calls_portable(&plan, registry);
        let reads_tables = ids.iter().any(|id| table_of(id).is_some());
        Ok(Prepared {
            targets,
            short,
            sources: ids,
            tables,
            columns: bound.columns.into(),
            parameters: bound.parameters,
            plan,
            program,
            held,
            registry,
            bytes,
            dependencies: binding.dependencies(),
            is_portable,
            reads_tables,
        })
    }

    /// The columns of its result.
    pub fn columns(&self) -> &Arc<[ResultColumn]> {
        &self.columns
    }

    /// The types of its parameters, from `$1` on.
    pub fn parameters(&self) -> &[Type] {
        &self.parameters
    }

    /// What it was made of in the catalog.
    pub fn dependencies(&self) -> &Dependencies {
        &self.dependencies
    }

    /// The plan that it runs by.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// About how many bytes it takes, without the tables that it reads.
    pub fn memory(&self) -> usize {
        self.bytes
    }

    /// Its plan as text, which EXPLAIN prints.
    pub fn explain(&self) -> String {
        text::print(&self.plan)
    }

    /// How strongly it locks rows of tables, if it does: of the first of them.
    pub fn lock_strength(&self) -> Option<LockStrength> {
        self.plan.post_order().into_iter().find_map(|node| match &self.plan[node] {
            Operator::Lock { targets, .. } => targets.first().map(|target| target.strength),
            _ => None,
        })
    }

    /// Whether it changes or locks rows, so that it is [executed](Prepared::execute) and not [started](Prepared::start).
    pub fn has_effects(&self) -> bool {
        self.targets.is_some()
    }

    /// Whether few rows are expected to be touched, so that [`Prepared::run_short`] or [`Prepared::execute_short`] is worth a call.
    pub fn is_short(&self) -> bool {
        self.short.is_some()
    }

    /// Whether it finds every row that it reads by all of a unique key, so that its plan does not depend on values and estimates.
    pub fn is_by_keys(&self) -> bool {
        self.short.as_ref().is_some_and(ShortProgram::is_by_keys)
    }

    /// Whether it runs as pipelines and a table has so many more rows by now that another plan may be better.
    pub fn has_outgrown(&self) -> bool {
        let has_grown =
            |(table, rows): &(Arc<Table>, u64)| table.approximate_rows() > GROWTH * rows.max(&FEW_ROWS);
        self.program.get().is_some() && self.tables.iter().any(has_grown)
    }

    /// Whether it reads tables, and not only catalogs, files and the like.
    pub fn reads_tables(&self) -> bool {
        self.reads_tables
    }

    /// Whether it is a query that gives the same rows on another server with the same tables and catalog, for a session with the same
    /// settings, user and time: it reads nothing but tables, and calls nothing that is volatile or asks for the session.
    pub fn is_portable(&self) -> bool {
        self.is_portable
    }

    /// About how many rows its operators handle, those among them that scans without an index pass over.
    pub fn work(&self, preparing: Preparing<'_>, parameters: &[Value]) -> Result<f64> {
        let transaction = preparing.transaction;
        let indexes = self.indexes(preparing, parameters)?;
        let mut work: f64 = self.estimates(preparing).iter().sum();
        for node in self.plan.post_order() {
            if let Operator::Scan(scan) = &self.plan[node]
                && indexes[node.index()].is_none()
                && let Some(table) = transaction.catalog().tables.get(&Oid(scan.source.0))
            {
                work += transaction.table(table.storage()).approximate_rows() as f64;
            }
        }
        Ok(work)
    }

    /// Runs a query that touches few rows, and appends the values of its rows, row by row. How many rows; `None` if it
    /// touches too many, and is to be [started](Prepared::start). Then nothing has been appended.
    pub fn run_short(
        &self,
        transaction: &Transaction,
        parameters: &[Value],
        context: &Context<'_>,
        values: &mut Vec<Value>,
    ) -> Result<Option<usize>> {
        match (&self.short, &self.targets) {
            (Some(short), None) => short.query(transaction, parameters, context, values),
            _ => Ok(None),
        }
    }

    /// As [`Prepared::execute`], of a statement that touches few rows: appends the values of RETURNING, or of the rows of a query
    /// that locks rows. `None` if it touches too many, and is to be [executed](Prepared::execute); it has changed nothing then.
    pub fn execute_short(
        &self,
        transaction: &mut Transaction,
        parameters: &[Value],
        context: &Context<'_>,
        values: &mut Vec<Value>,
    ) -> Result<Option<Done>> {
        match (&self.short, &self.targets) {
            (Some(short), Some(targets)) => short.execute(targets, transaction, parameters, context, values),
            _ => Ok(None),
        }
    }

    /// How many rows each operator of its plan is expected to give, by [`NodeId::index`](firn_plan::NodeId::index).
    pub fn estimates(&self, preparing: Preparing<'_>) -> Vec<f64> {
        let Preparing { registry, transaction, names, others, cancel } = preparing;
        let sources = TransactionSources { transaction, held: &self.held, others };
        let context = Context { style: names.style, cancel, ..detached() };
        let facts = SourceFacts::new(&sources, transaction.snapshot(), registry, &context);
        let estimates = Estimates::of(&self.plan, &facts);
        let mut rows = vec![0.0; self.plan.size()];
        for node in self.plan.post_order() {
            rows[node.index()] = estimates.rows(node);
        }
        rows
    }

    /// The oid of the index by which each scan of its plan finds rows, with these parameters, by
    /// [`NodeId::index`](firn_plan::NodeId::index).
    pub fn indexes(&self, preparing: Preparing<'_>, parameters: &[Value]) -> Result<Vec<Option<u32>>> {
        let mut indexes = vec![None; self.plan.size()];
        if let Some(short) = &self.short {
            let mut found: Vec<(u32, u32)> = short.indexes().collect();
            for node in self.plan.post_order() {
                let Operator::Scan(scan) = &self.plan[node] else { continue };
                if let Some(place) = found.iter().position(|(table, _)| *table == scan.source.0) {
                    indexes[node.index()] = Some(found.remove(place).1);
                }
            }
            return Ok(indexes);
        }
        let Preparing { transaction, others, .. } = preparing;
        let sources = TransactionSources { transaction, held: &self.held, others };
        for (node, index) in self.program()?.indexes(&sources, parameters) {
            indexes[node.index()] = Some(index);
        }
        Ok(indexes)
    }

    /// The pipelines; with clocks, if they are asked for.
    fn program_for(&self, options: &Options) -> Result<Arc<Program>> {
        match options.measures.as_ref().filter(|measures| measures.fit(&self.plan)) {
            Some(measures) => {
                let compile = || Program::measured(&self.plan, self.registry, Some(measures.clone()));
                let program = stack::with_room_for(self.plan.depth() as u32, compile)?;
                Ok(Arc::new(program))
            }
            None => self.program().cloned(),
        }
    }

    /// The pipelines.
    fn program(&self) -> Result<&Arc<Program>> {
        if self.program.get().is_none() {
            let program = Arc::new(Program::compile(&self.plan, self.registry)?);
            // Another execution may have been faster.
            let _ = self.program.set(program);
        }
        Ok(self.program.get().expect("it has been set"))
    }

    /// Executes a statement that changes or locks rows. After an error the caller rolls the transaction back to the
    /// beginning of the statement; [`firn_executor::execution`] says when it may run it again.
    pub fn execute(
        &self,
        transaction: &mut Transaction,
        others: &dyn Relations,
        parameters: &[Value],
        surroundings: Arc<Surroundings>,
        options: Options,
    ) -> Result<Executed> {
        let mut values = Vec::new();
        let context = surroundings.context();
        if let Some(done) = self.execute_short(transaction, parameters, &context, &mut values)? {
            let rows = Stream::of_values(values, done.rows, self.columns.clone(), surroundings, options);
            return Ok(Executed { count: done.count, rows });
        }
        self.execute_pipelines(transaction, others, parameters, surroundings, options)
    }

    /// As [`Prepared::execute`], by the pipelines of the plan.
    pub fn execute_pipelines(
        &self,
        transaction: &mut Transaction,
        others: &dyn Relations,
        parameters: &[Value],
        surroundings: Arc<Surroundings>,
        options: Options,
    ) -> Result<Executed> {
        let targets = self.targets.as_ref().expect("a query that only reads is started");
        let found = TransactionSources { transaction, held: &self.held, others };
        let sources = FoundSources(self.sources.iter().map(|id| (*id, found.source(*id))).collect());
        let executed = {
            let context = surroundings.context();
            execute(
                &self.program_for(&options)?,
                &sources,
                targets,
                transaction,
                parameters,
                options.clone(),
                &context,
            )?
        };
        let rows = Stream::new(executed.rows, self.columns.clone(), self.registry, surroundings, options);
        Ok(Executed { count: executed.count, rows })
    }

    /// Starts it: binds all scans to what the transaction sees, and logs what they read. The transaction must run as long
    /// as rows are drawn.
    pub fn start(
        &self,
        transaction: &Transaction,
        others: &dyn Relations,
        parameters: &[Value],
        surroundings: Arc<Surroundings>,
        options: Options,
    ) -> Result<Stream> {
        let sources = TransactionSources { transaction, held: &self.held, others };
        let reader = Reader { snapshot: transaction.snapshot(), transaction: Some(transaction) };
        let program = self.program_for(&options)?;
        let rows = Rows::start(&program, &sources, reader, parameters, options.clone())?;
        Ok(Stream::new(rows, self.columns.clone(), self.registry, surroundings, options))
    }
}

/// Whether a plan is of one row of expressions, so that there is nothing to choose.
fn is_one_row(plan: &Plan) -> bool {
    let is_simple = |node| matches!(&plan[node], Operator::Values { .. } | Operator::Map { .. });
    plan.post_order().into_iter().all(is_simple)
}
