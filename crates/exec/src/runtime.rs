//! The process-wide runtime that analytical plans run on: worker threads, a memory budget, and a
//! planning state to start from.
//!
//! Callers are plain threads that wait for a plan's batches. Its root has a thread of its own for as long
//! as it runs; the workers run the partitions behind exchanges. Where there are too few cores for all, both
//! stand back behind transactions and the threads that these wait for
//! (docs/decisions/0011-queries-are-nice.md).

use crate::session::SessionServices;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::prelude::SessionConfig;
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
            // Planning deeply nested statements recurses deeply.
            .thread_stack_size(8 << 20)
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

static QUERY_MEMORY: OnceLock<u64> = OnceLock::new();

/// Says how many bytes all running plans together may hold in their hash tables and sort buffers; false if that has been
/// said or [asked](query_memory) before, when it stays as it is.
pub fn limit_query_memory(bytes: u64) -> bool {
    QUERY_MEMORY.set(bytes).is_ok()
}

/// How many bytes that are. If nobody has said, half of the memory that the process may have: the tables themselves live in
/// the rest.
pub fn query_memory() -> u64 {
    *QUERY_MEMORY.get_or_init(|| memory_of_process().map_or(4 << 30, |bytes| bytes / 2))
}

/// What the machine has, or the least that a control group around the process allows.
fn memory_of_process() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        Some(1024 * line.split_whitespace().nth(1)?.parse::<u64>().ok()?)
    });
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    limits_of_groups(&groups).filter_map(|path| read(&path)?.trim().parse().ok()).chain(machine).min()
}

/// Where the limits of a process's control groups and of those around them stand, by its `/proc/self/cgroup`: of the second
/// version's hierarchy, and of the first one's for memory. A file that says `max` limits nothing.
fn limits_of_groups(groups: &str) -> impl Iterator<Item = String> + '_ {
    groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let found = match controllers {
            "" => Some(("/sys/fs/cgroup", "memory.max")),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some(("/sys/fs/cgroup/memory", "memory.limit_in_bytes"))
            }
            _ => None,
        };
        let groups = std::path::Path::new(path).ancestors();
        groups.filter_map(move |group| {
            let (root, file) = found?;
            let group = group.to_str()?.trim_end_matches('/');
            Some(format!("{root}{group}/{file}"))
        })
    })
}

/// The environment that all plans share: the memory budget; spill files in the system's temporary
/// directory.
fn environment() -> Arc<RuntimeEnv> {
    static ENVIRONMENT: OnceLock<Arc<RuntimeEnv>> = OnceLock::new();
    let environment = ENVIRONMENT.get_or_init(|| {
        let consumers = NonZeroUsize::new(3).expect("3 > 0");
        let pool: Arc<dyn MemoryPool> =
            Arc::new(TrackConsumersPool::new(GreedyMemoryPool::new(query_memory() as usize), consumers));
        RuntimeEnvBuilder::new()
            .with_memory_pool(pool)
            .build_arc()
            .expect("the environment needs nothing that can fail")
    });
    Arc::clone(environment)
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
            .build()
    })
}

/// The session that runs a plan, as a configuration extension: functions see nothing else of their
/// surroundings.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// What functions ask of it.
    pub services: Arc<dyn SessionServices>,
    /// When its transaction began, in microseconds since 1970 UTC.
    pub now: i64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_in_all_groups_around_a_process() {
        let second: Vec<_> = limits_of_groups("0::/a/b").collect();
        assert_eq!(
            second,
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"]
        );
        let first: Vec<_> = limits_of_groups("5:cpu,cpuacct:/x\n4:memory:/x\n").collect();
        let root = "/sys/fs/cgroup/memory";
        assert_eq!(
            first,
            [format!("{root}/x/memory.limit_in_bytes"), format!("{root}/memory.limit_in_bytes")]
        );
        assert!(memory_of_process().is_some_and(|bytes| bytes > 1 << 20));
    }
}
