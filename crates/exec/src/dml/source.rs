//! Row sources: which rows a change is about, and what it needs to know about them.

use crate::error::from_datafusion;
use crate::expression::Environment;
use crate::short::{Completion, ShortProgram};
use crate::{query, runtime, types};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::LogicalPlan;
use firn_base::{Result, RowId, Value};
use firn_txn::Transaction;

/// A query whose last column is the id of the row to change.
pub struct RowSource {
    /// The way through indexes, if the query has one.
    short: Option<ShortProgram>,
    /// The way that always works.
    plan: LogicalPlan,
}

/// Drained rows.
pub(super) enum SourceRows {
    /// Found by the short way: values row-major, without the row ids.
    Few { values: Vec<Value>, width: usize, ids: Vec<RowId> },
    /// As the plan yields them, row ids last, and what holds their memory against that of queries.
    Many { batches: Vec<RecordBatch>, _memory: MemoryReservation },
}

impl SourceRows {
    /// Takes each, with the values beside its id.
    pub(super) fn for_each(self, mut body: impl FnMut(RowId, &[Value]) -> Result<()>) -> Result<()> {
        match self {
            SourceRows::Few { values, width, ids } => {
                let mut ids = ids.into_iter().enumerate();
                ids.try_for_each(|(row, id)| body(id, &values[row * width..(row + 1) * width]))
            }
            SourceRows::Many { batches, .. } => {
                let mut values = Vec::new();
                for batch in batches {
                    let (ids, columns) = batch.columns().split_last().expect("the row id is a column");
                    for (row, id) in ids.as_primitive::<UInt64Type>().values().iter().enumerate() {
                        values.clear();
                        for column in columns {
                            values.push(types::value_at(column, row)?);
                        }
                        body(RowId::from_bits(*id), &values)?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl RowSource {
    /// The rows of an analysed plan whose last column is a row id.
    pub fn new(plan: LogicalPlan) -> RowSource {
        RowSource { short: ShortProgram::compile(&plan), plan }
    }

    /// Whether rows are found through indexes.
    pub fn is_short(&self) -> bool {
        self.short.is_some()
    }

    /// What EXPLAIN says of it.
    pub(super) fn describe(&self) -> Vec<String> {
        match &self.short {
            Some(short) => short.describe(),
            None => self.plan.display_indent().to_string().lines().map(str::to_owned).collect(),
        }
    }

    pub(super) fn avoid_short_path(&mut self) {
        self.short = None;
    }

    /// All rows, before any of them changes.
    pub(super) fn drain(
        &self,
        transaction: &Transaction,
        environment: Environment<'_>,
    ) -> Result<SourceRows> {
        if let Some(short) = &self.short {
            let mut found = Vec::new();
            let (parameters, options) = (environment.parameters, environment.options);
            if let Completion::Done { .. } = short.run(transaction, parameters, options, &mut found)? {
                return Ok(self.few(found));
            }
        }
        let memory = MemoryConsumer::new("rows to change").register(&runtime::memory());
        let mut batches = Vec::new();
        let mut stream = query::run(&self.plan, environment.parameters, transaction, environment.options)?;
        while let Some(batch) = stream.next()? {
            match batch.num_columns() {
                // To delete rows is what makes room.
                1 => memory.grow(own_bytes(&batch)),
                _ => memory.try_grow(own_bytes(&batch)).map_err(from_datafusion)?,
            }
            batches.push(batch);
        }
        Ok(SourceRows::Many { batches, _memory: memory })
    }

    fn few(&self, found: Vec<Value>) -> SourceRows {
        let width = self.plan.schema().fields().len() - 1;
        if width == 0 {
            return SourceRows::Few { values: Vec::new(), width, ids: found.iter().map(row_id).collect() };
        }
        let mut ids = Vec::new();
        let mut values = Vec::with_capacity(found.len() / (width + 1) * width);
        for (position, value) in found.into_iter().enumerate() {
            if position % (width + 1) == width {
                ids.push(row_id(&value));
            } else {
                values.push(value);
            }
        }
        SourceRows::Few { values, width, ids }
    }
}

/// About how many bytes a batch has to itself: strings may be those of blocks, and are not counted.
pub(super) fn own_bytes(batch: &RecordBatch) -> usize {
    let width = |column: &ArrayRef| column.data_type().primitive_width().unwrap_or(size_of::<u128>());
    batch.num_rows() * batch.columns().iter().map(width).sum::<usize>()
}

/// The row id that a short program yields: the bits of a [`RowId`] in a bigint.
pub(crate) fn row_id(value: &Value) -> RowId {
    match value {
        Value::BigInt(bits) => RowId::from_bits(*bits as u64),
        other => panic!("{other:?} is no row id"),
    }
}
