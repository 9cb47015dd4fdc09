//! RETURNING with sub-queries: a query over the rows that a change has made.
//!
//! The query is planned over [`ChangedRows`], which holds nothing. Each run puts a table of the rows
//! in its place.

use crate::expression::Environment;
use crate::query;
use crate::types;
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::internal_err;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::{MemTable, provider_as_source, source_as_provider};
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use firn_base::sync::Arc;
use firn_base::{Result, SqlType, Value};
use firn_storage::arrow::values_to_array;
use firn_txn::Transaction;

/// The column of [`ChangedRows`] that numbers the rows; it comes last.
pub const ORDINAL_COLUMN: &str = "_ordinal";

/// The rows of a change, before there are any.
#[derive(Debug)]
pub struct ChangedRows {
    schema: SchemaRef,
}

impl ChangedRows {
    /// Rows with these columns, and [`ORDINAL_COLUMN`] behind them.
    pub fn new(mut columns: Vec<FieldRef>) -> ChangedRows {
        columns.push(Arc::new(Field::new(ORDINAL_COLUMN, DataType::Int64, false)));
        ChangedRows { schema: Arc::new(Schema::new(columns)) }
    }
}

#[async_trait]
impl TableProvider for ChangedRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        internal_err!("changed rows are put in place before a plan runs")
    }
}

/// What a query over [`ChangedRows`] yields, row-major. `values` are the rows, row-major, of
/// `types`.
pub(super) fn run(
    plan: &LogicalPlan,
    values: Vec<Value>,
    types: &[SqlType],
    transaction: &Transaction,
    environment: Environment<'_>,
) -> Result<Vec<Value>> {
    let rows = values.len().checked_div(types.len()).unwrap_or(0);
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(types.len() + 1);
    for (position, ty) in types.iter().enumerate() {
        let column: Vec<Value> = values.iter().skip(position).step_by(types.len()).cloned().collect();
        columns.push(values_to_array(&column, *ty));
    }
    columns.push(Arc::new(Int64Array::from_iter_values(0..rows as i64)));
    let put = |node: LogicalPlan| match node {
        LogicalPlan::TableScan(scan) => filled(scan, &columns),
        other => Ok(Transformed::no(other)),
    };
    let plan = plan.clone().transform_up_with_subqueries(put).map_err(crate::error::from_datafusion)?.data;
    let mut stream = query::run(&plan, environment.parameters, transaction, environment.options)?;
    let mut outputs = Vec::new();
    while let Some(batch) = stream.next()? {
        for row in 0..batch.num_rows() {
            for column in batch.columns() {
                outputs.push(types::value_at(column, row)?);
            }
        }
    }
    Ok(outputs)
}

fn filled(scan: TableScan, columns: &[ArrayRef]) -> datafusion::common::Result<Transformed<LogicalPlan>> {
    let provider = source_as_provider(&scan.source)?;
    let Some(changed) = provider.downcast_ref::<ChangedRows>() else {
        return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
    };
    let schema = changed.schema();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.to_vec())?;
    let table = MemTable::try_new(schema, vec![vec![batch]])?;
    let source = provider_as_source(Arc::new(table));
    Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan })))
}
