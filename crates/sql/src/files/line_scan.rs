//! The leaf of physical plans that yields the rows of CSV and JSON files ([`super::lines`]).

use super::condition::Condition;
use super::lines::{Lines, Told};
use super::names;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use firn_base::sync::Arc;
use std::fmt::{self, Debug};

/// The rows of files, one after another, as one partition.
#[derive(Debug)]
pub(super) struct LineScan {
    lines: Arc<Lines>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl LineScan {
    pub fn new(lines: Lines) -> LineScan {
        let schema = names::schema(&lines.names, &lines.schema);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        LineScan {
            lines: Arc::new(lines),
            schema,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl DisplayAs for LineScan {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.schema().fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "LineScan: files={}, columns=[{}]", self.lines.pattern, names.join(", "))?;
        match &self.lines.condition {
            Some(Condition { expression, .. }) => write!(f, ", condition={expression}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for LineScan {
    fn name(&self) -> &str {
        "LineScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let counter = |name: &'static str| MetricBuilder::new(&self.metrics).counter(name, partition);
        let output_rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let (passed_over, bytes_read) = (counter("rows_passed_over"), counter("bytes_read"));
        let tell = move |told: Told| {
            output_rows.add(told.rows);
            passed_over.add(told.rows_passed_over);
            bytes_read.add(told.bytes_read);
        };
        let threads = context.session_config().target_partitions();
        let lines = self.lines.clone();
        let stream = super::spawn(self.schema().clone(), move |sink| lines.read(threads, &tell, sink));
        Ok(make_cooperative(stream))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
