//! What a statement asks of the rows of files, as far as a scan can spare itself rows by it. Above the scan it is asked again.

use super::columns;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicate;
use firn_base::sync::Arc;
use firn_load::Sieve;

/// A condition over some columns.
#[derive(Clone)]
pub(super) struct Condition {
    /// Their positions in the file, rising.
    pub columns: Vec<usize>,
    /// What they are.
    schema: SchemaRef,
    /// The condition over these columns.
    pub expression: Arc<dyn PhysicalExpr>,
    /// The same over what is known of chunks, by the columns of the file.
    pub pruning: Option<Arc<PruningPredicate>>,
}

impl Condition {
    /// What filters come to over files with columns as `file` has them; `None` if they are nothing to judge rows by.
    pub fn new(session: &dyn Session, filters: &[Expr], file: &SchemaRef) -> Option<Condition> {
        let condition = conjunction(filters.iter().cloned())?;
        let columns = condition.column_refs();
        let positions = columns.iter().map(|column| file.index_of(&column.name).ok());
        let mut columns = positions.collect::<Option<Vec<usize>>>()?;
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() {
            return None;
        }
        let schema = Arc::new(file.project(&columns).ok()?);
        let input = DFSchema::try_from(schema.clone()).ok()?;
        let expression = session.create_physical_expr(condition, &input).ok()?;
        let pruning = columns::predicate(session, filters, file).map(Arc::new);
        Some(Condition { columns, schema, expression, pruning })
    }

    /// What keeps the rows that meet it, if its columns come first.
    pub fn sieve(&self) -> Sieve {
        let condition = self.clone();
        let keeps = move |columns: &[ArrayRef], rows| condition.met(columns, rows);
        Sieve { columns: self.columns.len(), keeps: Box::new(keeps) }
    }

    /// The rows that meet it, unless all do. Where it fails for a row, whoever asks again hears of it.
    fn met(&self, columns: &[ArrayRef], rows: usize) -> Option<BooleanBuffer> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch =
            RecordBatch::try_new_with_options(self.schema.clone(), columns.to_vec(), &options).ok()?;
        let met = self.expression.evaluate(&batch).ok()?.into_array(rows).ok()?;
        let met = met.as_boolean_opt()?;
        let met = match met.nulls() {
            Some(nulls) => met.values() & nulls.inner(),
            None => met.values().clone(),
        };
        (met.count_set_bits() < rows).then_some(met)
    }
}
