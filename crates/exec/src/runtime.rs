//! The process-wide runtime that analytical plans run on: worker threads, a memory budget, and a
//! planning state to start from.
//!
//! Callers are plain threads that wait for a plan's batches. Its root has a thread of its own for as long
//! as it runs; the workers run the partitions behind exchanges. Where there are too few cores for all, both
//! stand back behind transactions and the threads that these wait for
//! (docs/decisions/0011-queries-are-nice.md).

use crate::exact::ExactComparisons;
use crate::interrupt;
use crate::join_keys::FloatKeys;
use crate::memory::QueryMemory;
use crate::plain_conditions::PlainConditions;
use crate::query::{Cancel, Stop};
use crate::session::SessionServices;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::execution::memory_pool::{MemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::SessionConfig;
use firn_base::stack;
use firn_base::sync::{Arc, OnceLock};
use firn_base::thread::{self, Behind};
use std::any::Any;
use std::num::NonZeroUsize;

/// The threads that run partitions of plans. Made on first use, kept until the process ends.
pub fn workers() -> &'static tokio::runtime::Runtime {
    static WORKERS: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    WORKERS.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(thread::available_parallelism().map_or(1, NonZeroUsize::get))
            .thread_name("firn-query")
            .on_thread_start(|| thread::stand_back(Behind::Transactions))
            // Operators and expressions call what is below them.
            .thread_stack_size(stack::WORKER_BYTES)
            .enable_time()
            .build()
            .expect("the operating system starts threads")
    })
}

/// Starts the threads that run partitions of plans, unless they have been. They are as nice as the first who asks for them, at
/// least: whoever stands back has this done before.
pub fn start_workers() {
    workers();
}

/// The environment that all plans share: the memory budget; spill files in the system's temporary
/// directory.
fn environment() -> Arc<RuntimeEnv> {
    static ENVIRONMENT: OnceLock<Arc<RuntimeEnv>> = OnceLock::new();
    let environment = ENVIRONMENT.get_or_init(|| {
        let consumers = NonZeroUsize::new(3).expect("3 > 0");
        let pool: Arc<dyn MemoryPool> =
            Arc::new(TrackConsumersPool::new(QueryMemory::of_process(), consumers));
        RuntimeEnvBuilder::new()
            .with_memory_pool(pool)
            .build_arc()
            .expect("the environment needs nothing that can fail")
    });
    Arc::clone(environment)
}

/// The memory of all queries, for what beside plans holds some.
pub fn memory() -> Arc<dyn MemoryPool> {
    environment().memory_pool.clone()
}

/// The planning state that every run copies: optimiser rules, function registries.
pub fn planning_state() -> &'static SessionState {
    static STATE: OnceLock<SessionState> = OnceLock::new();
    STATE.get_or_init(|| {
        let mut config = SessionConfig::new();
        let options = config.options_mut();
        // Aggregates lose the SQL types that scans put into field metadata; nothing depends on them.
        options.execution.skip_physical_aggregate_schema_check = true;
        // Build sides are chosen with the join order, from better estimates.
        options.optimizer.join_reordering = false;
        options.sql_parser.map_string_types_to_utf8view = true;
        SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(environment())
            .with_default_features()
            .with_optimizer_rules(optimizer_rules())
            .with_physical_optimizer_rules(physical_optimizer_rules())
            .build()
    })
}

/// DataFusion's rules for physical plans, but the one that pushes conditions down.
///
/// That one tells columns by their names, which have no tables any more: below a projection of `a.id` and `t.id`, `a.id <> t.id` became
/// `id@1 <> id@1`. It would also take conditions that are guarded ([`crate::guards`]) to rows that others had left out. The logical plan's
/// conditions are where they go, and no source of ours takes any from the physical plan; so the filters that joins and sorts make as they run,
/// which a later rule of the same kind pushes down, end nowhere but in such sources.
fn physical_optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::default().rules;
    let pushing = rules.iter().position(|rule| rule.name() == "FilterPushdown");
    rules.remove(pushing.expect("DataFusion pushes conditions down"));
    interrupt::physical_rules(rules)
}

/// DataFusion's rules, and ours: one where constants have been folded and filters are still above the joins, and two at the end.
fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    let folded = rules.iter().position(|rule| rule.name() == "simplify_expressions");
    rules.insert(folded.expect("DataFusion simplifies expressions") + 1, Arc::new(ExactComparisons));
    rules.push(Arc::new(PlainConditions));
    rules.push(Arc::new(FloatKeys));
    interrupt::optimizer_rules(rules)
}

/// The session that runs a plan, as a configuration extension: functions see nothing else of their
/// surroundings.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// What functions ask of it.
    pub services: Arc<dyn SessionServices>,
    /// When its transaction began, in microseconds since 1970 UTC.
    pub now: i64,
    /// Stops its statement.
    pub cancel: Cancel,
    /// Says that nobody wants the plan's batches any more.
    pub stop: Stop,
}

impl ConfigExtension for SessionOptions {
    const PREFIX: &'static str = "firn";
}

impl ExtensionOptions for SessionOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> DataFusionResult<()> {
        datafusion::common::not_impl_err!("firn.{key}")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// An expression of constants as the literal that it comes to.
pub fn simplify(expression: Expr) -> DataFusionResult<Expr> {
    ExprSimplifier::new(SimplifyContext::default()).simplify(expression)
}

/// Coerces the types within an expression over the columns of `schema`.
pub fn coerce(expression: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
    let context = SimplifyContext::builder().with_schema(Arc::new(schema.clone())).build();
    ExprSimplifier::new(context).coerce(expression, schema)
}
