//! Running an analysed plan at a snapshot.
//!
//! An analysed plan says what a statement means in PostgreSQL's terms. Running it lowers it to what
//! DataFusion computes ([`crate::lower`]), optimises it, and drives the physical plan from the
//! calling thread.

use crate::cancellable::{cancellable, without_cancellable};
use crate::error::from_datafusion;
use crate::runtime::{self, SessionOptions};
use crate::scan::{ScanContext, cancelled};
use crate::session::{NoSession, SessionServices};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::{Result, Snapshot, Value, clock};
use futures::StreamExt;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A flag that stops a running plan. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is down.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Raises it: what runs under it fails with 57014 soon.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Takes it down again, for the next statement.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether it is up.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How to run a plan.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Stops it.
    pub cancel: Cancel,
    /// Partitions of the plan: how many cores it may use at once.
    pub threads: usize,
    /// Rows of a batch.
    pub batch_rows: usize,
    /// What `now()` says: the start of the transaction, in microseconds since 1970 UTC.
    pub now: i64,
    /// The session's time zone (`UTC` or a name of the IANA database).
    pub time_zone: String,
    /// What functions ask of the session.
    pub services: Arc<dyn SessionServices>,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            cancel: Cancel::new(),
            threads: firn_base::thread::available_parallelism().map_or(1, usize::from),
            batch_rows: 8192,
            now: clock::wall_clock_micros(),
            time_zone: "UTC".to_owned(),
            services: Arc::new(NoSession),
        }
    }
}

/// The batches of a running plan, in order. Dropping it stops the plan.
pub struct BatchStream {
    stream: SendableRecordBatchStream,
    schema: SchemaRef,
    cancel: Cancel,
    /// Raised when nobody wants batches any more. The statement's own flag would not do: it is taken
    /// down again for the next statement, which may come before the workers have looked.
    stop: Cancel,
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl BatchStream {
    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next batch, never empty; blocks the calling thread. `None` at the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(cancelled());
            }
            let Some(batch) = self.next_or_cancelled()? else { return Ok(None) };
            let batch = batch.map_err(from_datafusion)?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
    }
}

impl BatchStream {
    /// Waits for the next batch, looking up now and then: an aggregate may work for long before it
    /// yields one. The runtime's own timers would not do: they stand still while every worker
    /// computes.
    fn next_or_cancelled(&mut self) -> Result<Option<std::result::Result<RecordBatch, DataFusionError>>> {
        let _inside = runtime::workers().enter();
        let waker = Waker::from(Arc::new(WakeThread(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(next) = self.stream.poll_next_unpin(&mut context) {
                return Ok(next);
            }
            if self.cancel.is_cancelled() {
                return Err(cancelled());
            }
            std::thread::park_timeout(CANCEL_INTERVAL);
        }
    }
}

/// Wakes the thread that waits for a batch.
struct WakeThread(std::thread::Thread);

impl Wake for WakeThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How often a waiting stream looks whether it was cancelled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(10);

/// Starts an analysed plan at a snapshot. Placeholders `$1`, `$2`, … take `parameters`.
pub fn run(
    plan: &LogicalPlan,
    parameters: &[Value],
    snapshot: Snapshot,
    options: &RunOptions,
) -> Result<BatchStream> {
    let state = state(options);
    let physical = plan_physically(plan, parameters, snapshot, &state)?;
    let physical = cancellable(physical).map_err(from_datafusion)?;
    start(physical, plan, snapshot, options, &state)
}

/// The plan as EXPLAIN prints it, a line each; with `analyze` it is run and tells what that took.
pub fn explain(
    plan: &LogicalPlan,
    parameters: &[Value],
    snapshot: Snapshot,
    options: &RunOptions,
    analyze: bool,
) -> Result<Vec<String>> {
    let state = state(options);
    let planning = clock::now();
    let physical = plan_physically(plan, parameters, snapshot, &state)?;
    let planning = planning.elapsed();
    if !analyze {
        return Ok(lines(&displayable(physical.as_ref()).indent(false).to_string()));
    }
    let physical = cancellable(physical).map_err(from_datafusion)?;
    let execution = clock::now();
    let mut stream = start(Arc::clone(&physical), plan, snapshot, options, &state)?;
    let mut rows = 0;
    while let Some(batch) = stream.next()? {
        rows += batch.num_rows();
    }
    let execution = execution.elapsed();
    let mut text =
        lines(&DisplayableExecutionPlan::with_metrics(physical.as_ref()).indent(false).to_string());
    text = without_cancellable(text);
    text.push(format!("Rows: {rows}"));
    text.push(format!("Planning Time: {:.3} ms", planning.as_secs_f64() * 1e3));
    text.push(format!("Execution Time: {:.3} ms", execution.as_secs_f64() * 1e3));
    Ok(text)
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// A planning state for one run.
pub(crate) fn state(options: &RunOptions) -> SessionState {
    let mut state = runtime::planning_state().clone();
    *state.config_mut() = state
        .config()
        .clone()
        .with_target_partitions(options.threads.max(1))
        .with_batch_size(options.batch_rows.max(1));
    let config = state.config_mut().options_mut();
    config.execution.time_zone = Some(options.time_zone.clone());
    config.extensions.insert(SessionOptions { services: Arc::clone(&options.services), now: options.now });
    let config = Arc::clone(state.config().options());
    let properties = state.execution_props_mut();
    properties.mark_start_execution(config);
    properties.query_execution_start_time = crate::types::date_time(options.now);
    state
}

/// Lowers, optimises and plans.
fn plan_physically(
    plan: &LogicalPlan,
    parameters: &[Value],
    snapshot: Snapshot,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = || -> std::result::Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let lowered = crate::lower::plan(plan.clone(), parameters)?;
        let optimised = state.optimize(&lowered)?;
        let reordered = crate::join_order::reorder(optimised, snapshot)?;
        // Joins in another order need other columns on the way.
        let pruned = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]).optimize(
            reordered,
            state,
            |_, _| {},
        )?;
        let planned = async { state.query_planner().create_physical_plan(&pruned, state).await };
        runtime::workers().block_on(planned)
    };
    plan().map_err(from_datafusion)
}

fn start(
    physical: Arc<dyn ExecutionPlan>,
    plan: &LogicalPlan,
    snapshot: Snapshot,
    options: &RunOptions,
    state: &SessionState,
) -> Result<BatchStream> {
    let stop = Cancel::new();
    let scan = ScanContext { snapshot, cancel: options.cancel.clone(), stop: stop.clone() };
    let config = state.config().clone().with_extension(Arc::new(scan));
    let context = TaskContext::from(state).with_session_config(config);
    // Exchanges start tasks as soon as they are executed.
    let _inside = runtime::workers().enter();
    let stream = execute_stream(physical, Arc::new(context)).map_err(from_datafusion)?;
    // The logical schema, not the physical: only it knows the SQL types of all columns.
    let schema = Arc::clone(plan.schema().inner());
    Ok(BatchStream { stream, schema, cancel: options.cancel.clone(), stop })
}

/// A physical expression for an analysed expression over the columns of `schema`, for evaluating
/// row by row what has no faster way.
pub fn physical_expression(
    expression: datafusion::logical_expr::Expr,
    schema: &datafusion::common::DFSchema,
    parameters: &[Value],
    options: &RunOptions,
) -> Result<Arc<dyn datafusion::physical_expr::PhysicalExpr>> {
    let build = || -> std::result::Result<_, DataFusionError> {
        let lowered = crate::lower::expression(expression, schema, parameters)?;
        state(options).create_physical_expr(lowered, schema)
    };
    build().map_err(from_datafusion)
}
