//! Running an analysed plan at a snapshot.
//!
//! An analysed plan says what a statement means in PostgreSQL's terms. Running it lowers it to what
//! DataFusion computes ([`crate::lower`]), optimises it, and has the physical plan run by other threads
//! ([`crate::runtime`]); the calling thread waits for batches.

use crate::cancellable::{cancellable, without_cancellable};
use crate::error::from_datafusion;
use crate::interrupt;
use crate::runtime::{self, SessionOptions};
use crate::scan::ScanContext;
use crate::session::{NoSession, SessionServices};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Distinct, LogicalPlan};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, displayable, execute_stream, replace_children_if_necessary,
};
pub use firn_base::cancel::Cancel;
use firn_base::cancel::cancelled;
use firn_base::sync::{Arc, AtomicBool, Ordering, RwLock};
use firn_base::{Result, Snapshot, Value, clock, stack};
use firn_txn::Transaction;
use futures::{FutureExt, StreamExt};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Says that nobody wants a plan's batches any more, and keeps whoever says so until nobody reads rows for
/// it. The plan's snapshot protects the rows only as long as its transaction lets it, and changes nothing
/// itself. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(AtomicBool, RwLock<()>)>);

impl Stop {
    /// Nobody wants batches any more. From when this returns no row is read.
    pub fn stop(&self) {
        self.0.0.store(true, Ordering::Relaxed);
        drop(self.0.1.write());
    }

    /// Whether nobody wants batches any more.
    pub fn is_stopped(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }

    /// Reads rows; `None` if nobody wants them.
    pub fn read<T>(&self, rows: impl FnOnce() -> T) -> Option<T> {
        let _reading = self.0.1.read();
        // Whoever raised it before we had the lock is seen; whoever does later waits for us.
        (!self.is_stopped()).then(rows)
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

type Batch = std::result::Result<RecordBatch, DataFusionError>;

/// The batches of a running plan, in order. Dropping it stops the plan.
pub struct BatchStream {
    root: Root,
    schema: SchemaRef,
    cancel: Cancel,
    /// The statement's own flag would not do: it is taken down again for the next statement, which may
    /// come before the workers have looked.
    stop: Stop,
}

/// The root of a plan.
enum Root {
    /// Nobody has asked for a batch yet.
    Waiting(SendableRecordBatchStream),
    Running {
        batches: mpsc::Receiver<Batch>,
        thread: JoinHandle<()>,
    },
    Ended,
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        self.stop.stop();
        let root = std::mem::replace(&mut self.root, Root::Ended);
        if matches!(root, Root::Waiting(_)) {
            stack::with_room(|| drop(root));
        }
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
        let next = self.next_nonempty();
        if !matches!(next, Ok(Some(_))) {
            // Below a LIMIT others may still be reading.
            self.stop.stop();
        }
        next
    }

    fn next_nonempty(&mut self) -> Result<Option<RecordBatch>> {
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

    /// Waits for the next batch, looking up now and then: an aggregate may work for long before it
    /// yields one. The runtime's own timers would not do: they stand still while every worker
    /// computes.
    fn next_or_cancelled(&mut self) -> Result<Option<Batch>> {
        self.begin();
        let waker = Waker::from(Arc::new(WakeThread(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            let Root::Running { batches, thread } = &mut self.root else { return Ok(None) };
            match batches.poll_recv(&mut context) {
                Poll::Ready(Some(batch)) => return Ok(Some(batch)),
                // All have come: now the thread ends, perhaps by a panic, which goes on here.
                Poll::Ready(None) => {
                    if let Poll::Ready(end) = thread.poll_unpin(&mut context) {
                        self.root = Root::Ended;
                        if let Some(panic) = end.err().and_then(|error| error.try_into_panic().ok()) {
                            std::panic::resume_unwind(panic);
                        }
                        return Ok(None);
                    }
                }
                Poll::Pending => {}
            }
            if self.cancel.is_cancelled() {
                return Err(cancelled());
            }
            std::thread::park_timeout(CANCEL_INTERVAL);
        }
    }

    /// Gives the root a thread, if it has none yet.
    fn begin(&mut self) {
        if !matches!(self.root, Root::Waiting(_)) {
            return;
        }
        let Root::Waiting(stream) = std::mem::replace(&mut self.root, Root::Ended) else { unreachable!() };
        let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
        let drive = move || runtime::workers().block_on(drive(stream, sender));
        self.root = Root::Running { batches, thread: runtime::workers().spawn_blocking(drive) };
    }
}

/// Batches that a plan may be ahead of whoever asks for them.
const BATCHES_AHEAD: usize = 1;

/// Sends the batches of a plan until nobody wants more, or there is an error.
async fn drive(mut stream: SendableRecordBatchStream, batches: mpsc::Sender<Batch>) {
    while let Some(batch) = stream.next().await {
        let failed = batch.is_err();
        if batches.send(batch).await.is_err() || failed {
            break;
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

/// Starts an analysed plan at a transaction's snapshot, and notes in it what the plan reads. Placeholders
/// `$1`, `$2`, … take `parameters`.
pub fn run(
    plan: &LogicalPlan,
    parameters: &[Value],
    transaction: &Transaction,
    options: &RunOptions,
) -> Result<BatchStream> {
    stack::with_room(|| {
        let state = state(options);
        let physical = plan_physically(plan, parameters, transaction, &state)?;
        let physical = cancellable(physical).map_err(from_datafusion)?;
        start(physical, plan, transaction.snapshot(), options, &state)
    })
}

/// The plan as EXPLAIN prints it, a line each; with `analyze` it is run and tells what that took.
pub fn explain(
    plan: &LogicalPlan,
    parameters: &[Value],
    transaction: &Transaction,
    options: &RunOptions,
    analyze: bool,
) -> Result<Vec<String>> {
    stack::with_room(|| explain_with_room(plan, parameters, transaction, options, analyze))
}

fn explain_with_room(
    plan: &LogicalPlan,
    parameters: &[Value],
    transaction: &Transaction,
    options: &RunOptions,
    analyze: bool,
) -> Result<Vec<String>> {
    let state = state(options);
    let planning = clock::now();
    let physical = plan_physically(plan, parameters, transaction, &state)?;
    let planning = planning.elapsed();
    if !analyze {
        return Ok(lines(&displayable(physical.as_ref()).indent(false).to_string()));
    }
    let physical = cancellable(physical).map_err(from_datafusion)?;
    let execution = clock::now();
    let mut stream = start(Arc::clone(&physical), plan, transaction.snapshot(), options, &state)?;
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

pub(crate) fn lines(text: &str) -> Vec<String> {
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
    config.extensions.insert(SessionOptions {
        services: Arc::clone(&options.services),
        now: options.now,
        cancel: options.cancel.clone(),
        stop: Stop::default(),
    });
    let config = Arc::clone(state.config().options());
    let properties = state.execution_props_mut();
    properties.mark_start_execution(config);
    properties.query_execution_start_time = crate::types::date_time(options.now);
    state
}

/// Lowers, optimises and plans, and notes what the plan reads.
fn plan_physically(
    plan: &LogicalPlan,
    parameters: &[Value],
    transaction: &Transaction,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = || -> std::result::Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let lowered = crate::lower::plan(plan.clone(), parameters)?;
        let optimised = state.optimize(&lowered)?;
        interrupt::check()?;
        let reordered = crate::join_order::reorder(optimised, transaction.snapshot())?;
        // Joins in another order need other columns on the way.
        let rules = interrupt::optimizer_rules(vec![Arc::new(OptimizeProjections::new())]);
        let pruned = Optimizer::with_rules(rules).optimize(reordered, state, |_, _| {})?;
        crate::reads::note(&pruned, transaction)?;
        let pruned = crate::guards::plan(pruned)?;
        interrupt::check()?;
        let planned = async { state.query_planner().create_physical_plan(&pruned, state).await };
        let planned = runtime::workers().block_on(planned)?;
        if has_order(plan) { in_order(planned) } else { Ok(planned) }
    };
    plan().map_err(from_datafusion)
}

/// Whether the rows of a plan come in an order that is asked for.
fn has_order(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Distinct(Distinct::On(on)) => on.sort_expr.is_some(),
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Limit(_) => {
            plan.inputs().into_iter().all(has_order)
        }
        _ => false,
    }
}

/// The plan without an exchange that deals out rows which are in order already, for work that is left to do on each: DataFusion puts one
/// above the order that it has been asked for, and several streams of a root are taken as they come.
fn in_order(plan: Arc<dyn ExecutionPlan>) -> std::result::Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    if plan.output_partitioning().partition_count() <= 1 {
        return Ok(plan);
    }
    let mut children: Vec<_> = plan.children().into_iter().map(Arc::clone).collect();
    // Behind its input this one has the sub-queries whose values it wants.
    if children.is_empty() || children.len() > 1 && plan.name() != "ScalarSubqueryExec" {
        return Ok(plan);
    }
    let input = Arc::clone(&children[0]);
    if plan.downcast_ref::<RepartitionExec>().is_some() {
        let is_dealt_out = input.output_partitioning().partition_count() == 1;
        return Ok(if is_dealt_out { input } else { plan });
    }
    match plan.maintains_input_order().first() {
        Some(true) => {
            children[0] = in_order(input)?;
            replace_children_if_necessary(plan, children)
        }
        _ => Ok(plan),
    }
}

fn start(
    physical: Arc<dyn ExecutionPlan>,
    plan: &LogicalPlan,
    snapshot: Snapshot,
    options: &RunOptions,
    state: &SessionState,
) -> Result<BatchStream> {
    let own = state.config().options().extensions.get::<SessionOptions>();
    let stop = own.expect("a state for one run has them").stop.clone();
    let scan = ScanContext { snapshot, cancel: options.cancel.clone(), stop: stop.clone() };
    let config = state.config().clone().with_extension(Arc::new(scan));
    let context = TaskContext::from(state).with_session_config(config);
    // Exchanges start tasks as soon as they are executed.
    let _inside = runtime::workers().enter();
    let stream = execute_stream(physical, Arc::new(context)).map_err(from_datafusion)?;
    // The logical schema, not the physical: only it knows the SQL types of all columns.
    let schema = Arc::clone(plan.schema().inner());
    Ok(BatchStream { root: Root::Waiting(stream), schema, cancel: options.cancel.clone(), stop })
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

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::thread;

    #[test]
    fn nobody_reads_rows_once_stop_has_returned() {
        for _ in 0..100 {
            let (stop, stopped) = (Stop::default(), AtomicBool::new(false));
            thread::scope(|scope| {
                for _ in 0..3 {
                    thread::spawn_scoped(scope, "reader", || {
                        let read = || {
                            assert!(!stopped.load(Ordering::SeqCst));
                            thread::yield_now();
                            assert!(!stopped.load(Ordering::SeqCst));
                        };
                        while stop.read(read).is_some() {}
                    });
                }
                thread::yield_now();
                stop.stop();
                stopped.store(true, Ordering::SeqCst);
            });
        }
    }
}
