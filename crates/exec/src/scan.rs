//! A table as DataFusion sees it: a provider for planning, and the leaf of physical plans.
//!
//! The snapshot is bound when a plan is executed, not when it is planned, through the session
//! extension [`ScanContext`]; so a plan can be kept and run again. All partitions of a scan draw
//! from one cursor, so that fast threads take more of the table than slow ones.
//!
//! Invariant: a storage guard lives within one call of `poll_next`, never across two.

use crate::index_path::{self, IndexPath};
use crate::judge::{self, ColumnCondition};
use crate::query::{Cancel, Stop};
use crate::reads;
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraint, Constraints, Result, Statistics};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
pub use firn_base::cancel::cancelled;
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Cell, ColumnId, Representation, RowId, Snapshot, Value};
use firn_storage::arrow::values_to_array;
use firn_storage::{Guard, Restriction, ScanBatch, Table, TableScan};
use firn_txn::catalog::{ConstraintKind, TableDef};
use futures::Stream;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The name of the hidden column that holds the row ids of a scan made for DML (UInt64,
/// [`firn_base::RowId::to_bits`]).
pub const ROW_ID_COLUMN: &str = "_rowid";

/// What scans take from whoever executes the plan they are in.
#[derive(Clone, Debug)]
pub struct ScanContext {
    /// What they see.
    pub snapshot: Snapshot,
    /// What stops them.
    pub cancel: Cancel,
    /// Raised when whoever drew the plan's batches has gone. Rows are read under it.
    pub stop: Stop,
}

/// A table of ours as a DataFusion table provider. It names no snapshot: that comes at execution.
#[derive(Clone)]
pub struct FirnTable {
    definition: Arc<TableDef>,
    table: Arc<Table>,
    with_row_id: bool,
    schema: SchemaRef,
    constraints: Constraints,
}

impl FirnTable {
    /// The visible columns of the table, in order.
    pub fn new(definition: Arc<TableDef>, table: Arc<Table>) -> FirnTable {
        let fields: Vec<Field> = definition
            .visible_columns()
            .map(|(_, column)| {
                crate::types::column_field(&column.name, column.ty.sql_type(), !column.not_null)
            })
            .collect();
        let constraints = keys(&definition);
        FirnTable {
            definition,
            table,
            with_row_id: false,
            schema: Arc::new(Schema::new(fields)),
            constraints,
        }
    }

    /// With [`ROW_ID_COLUMN`] after the visible columns.
    pub fn with_row_id(mut self) -> FirnTable {
        let mut fields = self.schema.fields().to_vec();
        fields.push(Arc::new(Field::new(ROW_ID_COLUMN, DataType::UInt64, false)));
        self.schema = Arc::new(Schema::new(fields));
        self.with_row_id = true;
        self
    }

    /// As if the table had no keys.
    pub fn without_keys(self) -> FirnTable {
        FirnTable { constraints: Constraints::default(), ..self }
    }

    /// What the catalog says of it.
    pub fn definition(&self) -> &Arc<TableDef> {
        &self.definition
    }

    /// The physical table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether [`ROW_ID_COLUMN`] follows the visible columns.
    pub fn has_row_id(&self) -> bool {
        self.with_row_id
    }
}

/// The keys of a table by the positions of their visible columns: what lets the optimiser drop
/// needless grouping columns, and users select columns that depend on a grouping key.
fn keys(definition: &TableDef) -> Constraints {
    let position_of = |column: u16| {
        definition.visible_columns().position(|(id, _)| id.0 == column).expect("key columns are visible")
    };
    let columns_of = |index| {
        let index = definition.indexes.iter().find(|candidate| candidate.oid == index)?;
        index.is_always_unique().then_some(())?;
        Some(index.columns.iter().map(|column| position_of(column.column)).collect::<Vec<_>>())
    };
    let key = |kind: &ConstraintKind| match kind {
        ConstraintKind::PrimaryKey { index } => Some(Constraint::PrimaryKey(columns_of(*index)?)),
        // Only what GROUP BY a key may leave out counts here, and a unique column may hold NULLs.
        _ => None,
    };
    let keys = definition.constraints.iter().filter_map(|constraint| key(&constraint.kind)).collect();
    Constraints::new_unverified(keys)
}

impl fmt::Debug for FirnTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FirnTable({})", self.definition.name)
    }
}

#[async_trait]
impl TableProvider for FirnTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Filters are only taken note of: they may lead to an index, or past blocks, and tell what is read. DataFusion
    /// still applies them.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let is_of_use = |filter: &Expr| {
            index_path::may_help(&self.definition, filter)
                || reads::narrows(&self.definition, filter)
                || judge::is_of_use(&self.definition, filter)
        };
        let support = |filter: &&Expr| match is_of_use(filter) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let path = index_path::choose(&self.definition, &self.table, filters);
        let partitions = if path.is_some() { 1 } else { state.config().target_partitions() };
        let restrictions = reads::implied(&self.definition, filters);
        let conditions = judge::conditions(&self.definition, filters, state);
        let scan = ScanExec::new(self, projection, path, limit, partitions)?;
        Ok(Arc::new(ScanExec { restrictions, conditions, ..scan }))
    }
}

/// The leaf of a physical plan that yields what a snapshot sees of a table.
#[derive(Debug)]
pub(crate) struct ScanExec {
    source: FirnTable,
    /// The storage columns to read, and whether row ids follow them.
    columns: Vec<ColumnId>,
    row_ids: bool,
    schema: SchemaRef,
    /// The stretch of an index to read instead of the table; then there is one partition.
    path: Option<IndexPath>,
    /// What those above will ask of the rows, as far as that may spare reading the table.
    restrictions: Vec<Restriction>,
    /// And what is judged for values of dictionaries.
    conditions: Vec<ColumnCondition>,
    /// How many rows each partition yields at most.
    fetch: Option<usize>,
    /// The cursor that partitions share, made by the first that is executed.
    cursor: OnceLock<Cursor>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

#[derive(Clone)]
struct Cursor(Arc<TableScan>);

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cursor")
    }
}

impl ScanExec {
    fn new(
        source: &FirnTable,
        projection: Option<&Vec<usize>>,
        path: Option<IndexPath>,
        fetch: Option<usize>,
        partitions: usize,
    ) -> Result<ScanExec> {
        let visible: Vec<ColumnId> = source.definition.visible_columns().map(|(id, _)| id).collect();
        let all: Vec<usize> = (0..source.schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        // The row id comes last in the schema; projections of DataFusion keep the schema's order.
        let row_ids = wanted.contains(&visible.len());
        debug_assert!(!row_ids || wanted.last() == Some(&visible.len()));
        let columns = wanted.iter().filter_map(|position| visible.get(*position).copied()).collect();
        let schema = Arc::new(source.schema.project(wanted)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(partitions.max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(ScanExec {
            source: source.clone(),
            columns,
            row_ids,
            schema,
            path,
            restrictions: Vec::new(),
            conditions: Vec::new(),
            fetch,
            cursor: OnceLock::new(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Rows by their ids.
    fn read(&self, rows: &[RowId], snapshot: Snapshot, guard: &Guard) -> ScanBatch {
        let table = &self.source.table;
        let types: Vec<Representation> =
            self.columns.iter().map(|column| table.columns()[column.index()].representation).collect();
        let mut values: Vec<Vec<Value>> = types.iter().map(|_| Vec::with_capacity(rows.len())).collect();
        let mut cells = vec![Cell::Null; types.len()];
        let mut seen = Vec::with_capacity(rows.len());
        for row in rows {
            // The snapshot saw it when the index was read, and a snapshot sees the same for ever.
            if table.read(snapshot, *row, &self.columns, &mut cells, guard) {
                seen.push(row.to_bits());
                for ((values, cell), ty) in values.iter_mut().zip(&cells).zip(&types) {
                    values.push(cell.to_value(*ty));
                }
            }
        }
        let columns = values.iter().zip(&types).map(|(values, ty)| values_to_array(values, *ty)).collect();
        ScanBatch { columns, rows: seen.len(), row_ids: self.row_ids.then(|| seen.into()) }
    }

    /// The same scan, not yet begun.
    fn fresh(&self) -> ScanExec {
        ScanExec {
            source: self.source.clone(),
            columns: self.columns.clone(),
            row_ids: self.row_ids,
            schema: Arc::clone(&self.schema),
            path: self.path.clone(),
            restrictions: self.restrictions.clone(),
            conditions: self.conditions.clone(),
            fetch: self.fetch,
            cursor: OnceLock::new(),
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "Scan: table={}, columns=[{}]", self.source.definition.name, names.join(", "))?;
        if let Some(path) = &self.path {
            write!(f, ", index={}", path.name())?;
        }
        match self.fetch {
            Some(fetch) => write!(f, ", fetch={fetch}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &str {
        "Scan"
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

    /// A recursive query runs its step many times: each needs a cursor of its own.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.fresh()))
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let scan = context
            .session_config()
            .get_extension::<ScanContext>()
            .expect("whoever executes a plan over our tables sets its snapshot");
        let source = match &self.path {
            Some(path) => {
                let read = || path.rows(&self.source.table, scan.snapshot, &firn_storage::pin());
                let rows = scan.stop.read(read).ok_or_else(|| crate::error::to_datafusion(cancelled()))?;
                Source::Rows { rows: rows.into_iter(), scan: Box::new(self.fresh()) }
            }
            None => {
                let cursor = self.cursor.get_or_init(|| {
                    let cursor = self.source.table.scan(scan.snapshot, &self.columns, self.row_ids);
                    let judges = self.conditions.iter().map(ColumnCondition::judge);
                    Cursor(Arc::new(cursor.under(&self.restrictions).judging(judges)))
                });
                Source::Cursor(Arc::clone(&cursor.0))
            }
        };
        let stream = ScanStream {
            source,
            context: scan,
            schema: Arc::clone(&self.schema),
            left: self.fetch.unwrap_or(usize::MAX),
            passed_over: MetricBuilder::new(&self.metrics).counter("rows_passed_over", partition),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        Ok(Box::pin(cooperative(stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let partitions = match args.partition() {
            Some(_) => self.properties.output_partitioning().partition_count(),
            None => 1,
        };
        let rows = match &self.path {
            Some(path) => path.entries,
            None => self.source.table.approximate_rows() as usize,
        };
        let rows = (rows / partitions).min(self.fetch.unwrap_or(usize::MAX));
        let mut statistics = Statistics::new_unknown(&self.schema);
        // Never exact: counting is what COUNT(*) must do itself, at its snapshot.
        statistics.num_rows = Precision::Inexact(rows);
        Ok(Arc::new(statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(ScanExec { fetch: limit, ..self.fresh() }))
    }

    /// Of each partition, as everywhere in DataFusion.
    fn fetch(&self) -> Option<usize> {
        self.fetch
    }
}

/// Where the rows of a partition come from.
enum Source {
    /// From the table, stretch by stretch.
    Cursor(Arc<TableScan>),
    /// By their ids, which an index has given.
    Rows { rows: std::vec::IntoIter<RowId>, scan: Box<ScanExec> },
}

/// How many rows are read by their ids for one batch.
const ROWS_BY_ID: usize = 4096;

impl Source {
    fn next(&mut self, snapshot: Snapshot) -> Option<ScanBatch> {
        let guard = firn_storage::pin();
        match self {
            Source::Cursor(cursor) => cursor.next_batch(&guard),
            Source::Rows { rows, scan } => {
                let rows: Vec<RowId> = rows.take(ROWS_BY_ID).collect();
                if rows.is_empty() { None } else { Some(scan.read(&rows, snapshot, &guard)) }
            }
        }
    }
}

/// One partition of a running scan.
struct ScanStream {
    source: Source,
    context: Arc<ScanContext>,
    schema: SchemaRef,
    left: usize,
    /// Rows of blocks that were not read because none of them could meet the conditions.
    passed_over: Count,
    metrics: BaselineMetrics,
}

impl ScanStream {
    fn next(&mut self) -> Option<Result<RecordBatch>> {
        if self.left == 0 {
            return None;
        }
        if self.context.cancel.is_cancelled() {
            self.left = 0;
            return Some(Err(crate::error::to_datafusion(cancelled())));
        }
        let Some(next) = self.context.stop.read(|| self.source.next(self.context.snapshot)) else {
            self.left = 0;
            return Some(Err(crate::error::to_datafusion(cancelled())));
        };
        if let Source::Cursor(cursor) = &self.source {
            self.passed_over.add(cursor.rows_passed_over() as usize);
        }
        let batch = next?;
        let mut columns: Vec<ArrayRef> = batch.columns;
        if let Some(row_ids) = batch.row_ids {
            columns.push(Arc::new(row_ids));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        Some(batch.map_err(Into::into).map(|batch| {
            let taken = batch.num_rows().min(self.left);
            self.left -= taken;
            if taken < batch.num_rows() { batch.slice(0, taken) } else { batch }
        }))
    }
}

impl Stream for ScanStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let timer = self.metrics.elapsed_compute().clone();
        let _running = timer.timer();
        let next = self.next();
        Poll::Ready(next.map(|batch| batch.map(|batch| batch.record_output(&self.metrics))))
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
