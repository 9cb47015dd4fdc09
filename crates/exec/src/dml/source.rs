//! Row sources: which rows a change is about, and what it needs to know about them.

use crate::expression::Environment;
use crate::query;
use crate::short::{Completion, ShortProgram};
use crate::types;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt64Type;
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

/// Drained rows: values row-major, without the row ids.
pub(super) struct SourceRows {
    values: Vec<Value>,
    width: usize,
    ids: Vec<RowId>,
}

impl SourceRows {
    pub(super) fn iter(&self) -> impl Iterator<Item = (RowId, &[Value])> {
        let width = self.width;
        self.ids.iter().enumerate().map(move |(row, id)| (*id, &self.values[row * width..(row + 1) * width]))
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
        let width = self.plan.schema().fields().len() - 1;
        let mut rows = SourceRows { values: Vec::new(), width, ids: Vec::new() };
        if let Some(short) = &self.short {
            let mut found = Vec::new();
            let (parameters, options) = (environment.parameters, environment.options);
            if let Completion::Done { .. } = short.run(transaction, parameters, options, &mut found)? {
                if width == 0 {
                    rows.ids.extend(found.iter().map(row_id));
                    return Ok(rows);
                }
                rows.values.reserve_exact(found.len() / (width + 1) * width);
                for (position, value) in found.into_iter().enumerate() {
                    if position % (width + 1) == width {
                        rows.ids.push(row_id(&value));
                    } else {
                        rows.values.push(value);
                    }
                }
                return Ok(rows);
            }
        }
        let mut stream = query::run(&self.plan, environment.parameters, transaction, environment.options)?;
        while let Some(batch) = stream.next()? {
            let (ids, columns) = batch.columns().split_last().expect("the row id is a column");
            rows.ids.extend(ids.as_primitive::<UInt64Type>().values().iter().map(|&id| RowId::from_bits(id)));
            rows.values.reserve(batch.num_rows() * width);
            for row in 0..batch.num_rows() {
                for column in columns {
                    rows.values.push(types::value_at(column, row)?);
                }
            }
        }
        Ok(rows)
    }
}

/// The row id that a short program yields: the bits of a [`RowId`] in a bigint.
pub(crate) fn row_id(value: &Value) -> RowId {
    match value {
        Value::BigInt(bits) => RowId::from_bits(*bits as u64),
        other => panic!("{other:?} is no row id"),
    }
}
