//! Cancelling a statement while it is bound and planned.
//!
//! Passes over a plan have no access to the statement's cancel flag, so the thread that plans keeps it: [`interruptible`]
//! sets it for as long as the statement is prepared or started, and [`check`] reads it. The passes of the binder check
//! before each node. DataFusion's own rules are wrapped, and check before each node that they rewrite.
//!
//! Invariant: planning runs on the thread that asks for it, so a flag that is set is that of the statement being planned.

use crate::error::to_datafusion;
use crate::query::Cancel;
use crate::scan::cancelled;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use firn_base::sync::Arc;
use std::cell::RefCell;

thread_local! {
    static FLAG: RefCell<Option<Cancel>> = const { RefCell::new(None) };
}

/// Sets the flag that it replaced when it is dropped, also by a panic.
struct Before(Option<Cancel>);

impl Drop for Before {
    fn drop(&mut self) {
        FLAG.set(self.0.take());
    }
}

/// Runs `work`, in which [`check`] fails once the flag is raised.
pub fn interruptible<T>(cancel: &Cancel, work: impl FnOnce() -> T) -> T {
    let _before = Before(FLAG.replace(Some(cancel.clone())));
    work()
}

/// The flag of the statement that the calling thread works for; one that nobody raises without.
pub fn current() -> Cancel {
    FLAG.with_borrow(|flag| flag.clone().unwrap_or_default())
}

/// 57014 if the statement that the calling thread works for is cancelled.
pub fn check() -> Result<()> {
    match FLAG.with_borrow(|flag| flag.as_ref().is_some_and(Cancel::is_cancelled)) {
        true => Err(to_datafusion(cancelled())),
        false => Ok(()),
    }
}

/// A rule that checks for a cancel before it is applied to a plan, or to each node if it is applied so.
#[derive(Debug)]
pub struct Interruptible<R: ?Sized>(Arc<R>);

/// Rules of which each checks for a cancel.
pub fn optimizer_rules(
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Interruptible(rule)) as _).collect()
}

/// The same of the analyzer's.
pub fn analyzer_rules(
    rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>>,
) -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Interruptible(rule)) as _).collect()
}

/// The same of those for physical plans.
pub fn physical_rules(
    rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Interruptible(rule)) as _).collect()
}

impl OptimizerRule for Interruptible<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        check()?;
        self.0.rewrite(plan, config)
    }
}

impl AnalyzerRule for Interruptible<dyn AnalyzerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        check()?;
        self.0.analyze(plan, config)
    }
}

impl PhysicalOptimizerRule for Interruptible<dyn PhysicalOptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check()?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check()?;
        self.0.optimize_with_context(plan, context)
    }
}
