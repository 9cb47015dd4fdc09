//! Making plans stop: whoever cancels a statement wants its threads back, not only an answer.
//!
//! Dropping a plan's stream ends its tasks where they wait, and an operator that draws rows as fast as
//! it can from one that makes them up (a series, a join of few rows with few rows) never waits. So
//! every such source is wrapped in a node that looks at the flags before each batch. Scans of tables
//! look by themselves. For the same reason the node counts its batches against the turn of its task:
//! a few such queries would keep the workers from all others, also from those that ask what is running.

use crate::scan::{ScanContext, ScanExec, cancelled};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use firn_base::sync::Arc;
use futures::{Stream, StreamExt};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What the node is called where plans are printed.
const NAME: &str = "Cancellable";

/// A plan of which every source that never waits stops when the statement is cancelled.
pub fn cancellable(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let wrapped = plan.transform_up(|node| {
        let multiplies = node.children().len() > 1;
        let makes_up = node.children().is_empty() && node.downcast_ref::<ScanExec>().is_none();
        let unnests = node.name() == "UnnestExec";
        Ok(match multiplies || makes_up || unnests {
            true => Transformed::yes(Arc::new(Cancellable { input: node }) as Arc<dyn ExecutionPlan>),
            false => Transformed::no(node),
        })
    })?;
    Ok(wrapped.data)
}

/// The lines of a printed plan without these nodes, which tell nobody anything.
pub fn without_cancellable(lines: Vec<String>) -> Vec<String> {
    let mut indents: Vec<usize> = Vec::new();
    let mut kept = Vec::with_capacity(lines.len());
    for line in lines {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        while indents.last().is_some_and(|above| *above >= indent) {
            indents.pop();
        }
        match text.strip_prefix(NAME) {
            Some(rest) if rest.is_empty() || rest.starts_with(',') => indents.push(indent),
            _ => kept.push(format!("{:1$}{text}", "", indent - 2 * indents.len())),
        }
    }
    kept
}

/// Yields what its input yields, until the statement is cancelled.
#[derive(Debug)]
struct Cancellable {
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for Cancellable {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl ExecutionPlan for Cancellable {
    fn name(&self) -> &str {
        NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Cancellable { input: children.pop().expect("it has one child") }))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Cancellable { input: children.pop().expect("it has one child") }))
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let scan = context.session_config().get_extension::<ScanContext>();
        let scan = scan.expect("whoever executes a plan says what stops it");
        let input = self.input.execute(partition, context)?;
        Ok(Box::pin(cooperative(CancellableStream { input, scan })))
    }
}

struct CancellableStream {
    input: SendableRecordBatchStream,
    scan: Arc<ScanContext>,
}

impl Stream for CancellableStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.scan.cancel.is_cancelled() || self.scan.stop.is_stopped() {
            return Poll::Ready(Some(Err(crate::error::to_datafusion(cancelled()))));
        }
        self.input.poll_next_unpin(context)
    }
}

impl RecordBatchStream for CancellableStream {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_plan_does_not_show_what_makes_it_stop() {
        let lines = [
            "Sort",
            "  Cancellable",
            "    Join, on=a",
            "      Cancellable, metrics=[]",
            "        Series",
            "      Scan",
            "  Cancellable2",
        ];
        let kept = without_cancellable(lines.map(str::to_owned).to_vec());
        assert_eq!(kept, ["Sort", "  Join, on=a", "    Series", "    Scan", "  Cancellable2"]);
    }
}
