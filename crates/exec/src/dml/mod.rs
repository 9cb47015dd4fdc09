//! INSERT, UPDATE and DELETE: plans that change rows, and running them.
//!
//! A change has a *row source*: expressions (INSERT VALUES), a short program, or a DataFusion plan.
//! The source of UPDATE and DELETE yields, besides what is to be assigned, the id of each row.
//! It is drained before the first row is written, so that no statement meets its own changes
//! (the Halloween problem); only an INSERT whose query does not read the table streams.
//!
//! Constraints are the [`writer`]'s affair. After an error the caller rolls the transaction back
//! to where the statement began; nothing here cleans up.
//!
//! Unique keys are tested row by row, as PostgreSQL does, unless their constraint is deferrable:
//! `UPDATE t SET k = k + 1` fails with 23505 if it meets a key that a later row is yet to leave.

mod changed;
mod insert;
pub(crate) mod source;
pub mod target;
pub(crate) mod writer;

pub use changed::{ChangedRows, ORDINAL_COLUMN};
pub use insert::{ConflictAction, Insert, InsertSource, InsertValue, OnConflict};
pub use source::RowSource;
pub use target::{Target, TargetSet, TextCompiler};

use crate::expression::{Environment, Row, RowExpression};
use crate::locking::Picked;
use crate::query::RunOptions;
use datafusion::logical_expr::LogicalPlan;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Error, ParameterType, Result, RowId, SqlState, SqlType, Value};
use firn_txn::{Guard, Transaction, pin};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::HashSet;
use writer::{Cells, Writer};

/// A change of rows, ready to run any number of times while the catalog stays as it is.
pub struct DmlPlan {
    /// The table and what its foreign keys lead to.
    pub set: Arc<TargetSet>,
    /// What to do.
    pub change: Change,
    /// RETURNING.
    pub returning: Option<Returning>,
    /// Queries that lock rows and are run first: what they yield are parameters behind those.
    pub picked: Vec<Picked>,
    /// The types of `$1`, `$2`, …
    pub parameters: Vec<ParameterType>,
}

/// What a [`DmlPlan`] does to its table.
pub enum Change {
    /// INSERT
    Insert(Insert),
    /// UPDATE
    Update(Update),
    /// DELETE
    Delete(Delete),
}

/// UPDATE.
pub struct Update {
    /// Yields per row: what is to be assigned, what RETURNING wants of other tables, the row id.
    pub source: RowSource,
    /// The columns to set, each once.
    pub columns: Vec<ColumnId>,
    /// Where their values come from, in the same order.
    pub values: Vec<Assigned>,
    /// Where in the source's rows the columns stand that RETURNING wants, with their types.
    pub carried: Vec<(usize, SqlType)>,
    /// Whether the source may yield a row more than once; the first counts.
    pub may_repeat: bool,
}

/// Where a new value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assigned {
    /// From that column of the source.
    Output(usize),
    /// From the column's DEFAULT.
    Default,
}

/// DELETE.
pub struct Delete {
    /// Yields per row: what RETURNING wants of other tables, the row id.
    pub source: RowSource,
    /// As in [`Update`].
    pub carried: Vec<(usize, SqlType)>,
    /// As in [`Update`].
    pub may_repeat: bool,
}

/// RETURNING: expressions over a row of the table in storage order, followed by what the source
/// carried along.
#[derive(Debug)]
pub struct Returning {
    /// The expressions.
    pub outputs: Vec<RowExpression>,
    /// The names and types of what is returned: of the expressions, or of the query over them.
    pub columns: Vec<(String, SqlType)>,
    /// What is returned if there are sub-queries in it: a query over [`ChangedRows`] that have the
    /// expressions for columns.
    pub query: Option<Box<LogicalPlan>>,
}

/// What a change has done.
#[derive(Clone, PartialEq, Debug)]
pub struct DmlOutcome {
    /// How many rows the command tag tells.
    pub count: u64,
    /// The rows of RETURNING, row-major.
    pub returning: Option<Vec<Value>>,
}

impl DmlPlan {
    /// The columns of RETURNING; `None` without it.
    pub fn columns(&self) -> Option<&[(String, SqlType)]> {
        self.returning.as_ref().map(|returning| returning.columns.as_slice())
    }

    /// The types of `$1`, `$2`, …
    pub fn parameter_types(&self) -> &[ParameterType] {
        &self.parameters
    }

    /// What EXPLAIN says of it, a line each.
    pub fn describe(&self) -> Vec<String> {
        let (verb, source) = match &self.change {
            Change::Insert(insert) => ("Insert", insert.describe()),
            Change::Update(update) => ("Update", update.source.describe()),
            Change::Delete(delete) => ("Delete", delete.source.describe()),
        };
        let mut lines = vec![format!("{verb} on {}", self.set.root().definition.name)];
        lines.extend(source.into_iter().map(|line| format!("  {line}")));
        for picked in &self.picked {
            lines.extend(picked.query.describe().into_iter().map(|line| format!("  {line}")));
        }
        lines
    }

    /// Takes every row from the analytical path, for tests that compare the two.
    pub fn avoid_short_path(&mut self) {
        match &mut self.change {
            Change::Insert(_) => {}
            Change::Update(update) => update.source.avoid_short_path(),
            Change::Delete(delete) => delete.source.avoid_short_path(),
        }
    }

    /// Makes the change. Parameters are of their declared types.
    pub fn execute(
        &self,
        transaction: &mut Transaction,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<DmlOutcome> {
        // Before it reads or holds a guard, since it may have to wait for the table.
        let table = &self.set.root().table;
        match &self.change {
            Change::Insert(Insert { source: InsertSource::Batch(_), .. }) => {
                transaction.lock_row_exclusive(table)?;
            }
            _ => transaction.lock_row_exclusive_to_read(table)?,
        }
        let mut all = Cow::Borrowed(parameters);
        for picked in &self.picked {
            let values = picked.run(transaction, &all, options)?;
            all.to_mut().extend(values);
        }
        let environment = Environment { parameters: &all, options };
        let mut run = Run {
            writer: Writer::new(&self.set, transaction, environment),
            returning: self.returning.as_ref(),
            outcome: DmlOutcome { count: 0, returning: self.returning.as_ref().map(|_| Vec::new()) },
        };
        match &self.change {
            Change::Insert(insert) => insert.run(&mut run)?,
            Change::Update(update) => update.run(&mut run)?,
            Change::Delete(delete) => delete.run(&mut run)?,
        }
        let Run { writer, mut outcome, .. } = run;
        writer.finish()?;
        if let Some(Returning { outputs, query: Some(query), .. }) = &self.returning {
            let rows = outcome.returning.take().unwrap_or_default();
            let ty = |output: &RowExpression| output.ty().unwrap_or(SqlType::Text);
            let types: Vec<SqlType> = outputs.iter().map(ty).collect();
            outcome.returning = Some(changed::run(query, rows, &types, transaction, environment)?);
        }
        Ok(outcome)
    }
}

/// Enters the keys of rows that [inserts](Insert::goes_on) of one statement have left to wait. Errors as of these, with the row
/// that is at fault ([`Error::row`]) in place of its ordinal.
pub fn enter_keys(set: &TargetSet, transaction: &mut Transaction, options: &RunOptions) -> Result<()> {
    let table = set.root();
    let entered = transaction.enter_keys(&table.table, options.threads);
    entered.map_err(|error| writer::explain_waiting_duplicate(error, table, transaction))
}

/// Of an error that ended such inserts and of those that are found as the keys enter which wait yet, the one of the row that came first:
/// `comes_before` says of one of these whether it does.
pub fn first_mistake(
    set: &TargetSet,
    transaction: &mut Transaction,
    options: &RunOptions,
    error: Error,
    comes_before: impl FnOnce(&Transaction, &Error, &Error) -> bool,
) -> Error {
    let is_of_row = ["0A", "22", "23", "54"].iter().any(|class| error.state().as_str().starts_with(class));
    if !is_of_row {
        return error;
    }
    let is_taken = |waiting: &Error| waiting.state() == SqlState::UNIQUE_VIOLATION;
    match enter_keys(set, transaction, options) {
        Err(waiting) if is_taken(&waiting) && comes_before(transaction, &waiting, &error) => waiting,
        _ => error,
    }
}

/// A change in progress.
struct Run<'a> {
    writer: Writer<'a>,
    returning: Option<&'a Returning>,
    outcome: DmlOutcome,
}

impl Run<'_> {
    /// Counts a row and evaluates RETURNING on it.
    fn done(&mut self, cells: &[Cell<'_>]) -> Result<()> {
        self.outcome.count += 1;
        if let (Some(returning), Some(rows)) = (self.returning, &mut self.outcome.returning) {
            let row = Row { cells, environment: &self.writer.environment };
            for output in &returning.outputs {
                rows.push(output.evaluate(row)?.into_owned());
            }
        }
        Ok(())
    }

    /// [`Run::done`] for a row of the table as it is now, with what the source carried along.
    fn done_with(
        &mut self,
        row: RowId,
        carried: &[(usize, SqlType)],
        source: &[Value],
        guard: &Guard,
    ) -> Result<()> {
        if self.returning.is_none() {
            self.outcome.count += 1;
            return Ok(());
        }
        let table = self.writer.set.root();
        let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, table.columns.len());
        let seen = self.writer.transaction.read(&table.table, row, &table.all_columns, &mut cells, guard);
        assert!(seen, "a row that was just written is visible to its writer");
        cells.extend(carried.iter().map(|&(position, ty)| source[position].as_cell(ty)));
        self.done(&cells)
    }
}

impl Update {
    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let set = run.writer.set;
        let table = set.root();
        let rows = self.source.drain(run.writer.transaction, run.writer.environment)?;
        let mut seen = HashSet::new();
        let mut values = Vec::with_capacity(self.columns.len());
        rows.for_each(|id, source| {
            if self.may_repeat && !seen.insert(id) {
                return Ok(());
            }
            let guard = pin();
            values.clear();
            for (column, assigned) in self.columns.iter().zip(&self.values) {
                values.push(match assigned {
                    Assigned::Output(position) => writer::assign(
                        source[*position].clone(),
                        table.columns[column.index()].ty,
                        &run.writer.environment,
                    )?,
                    Assigned::Default => table.default_value(*column, &run.writer.environment)?,
                });
            }
            run.writer.update(0, id, &self.columns, &values, false, &guard)?;
            run.done_with(id, &self.carried, source, &guard)
        })
    }
}

impl Delete {
    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let rows = self.source.drain(run.writer.transaction, run.writer.environment)?;
        let mut seen = HashSet::new();
        rows.for_each(|id, source| {
            if self.may_repeat && !seen.insert(id) {
                return Ok(());
            }
            let guard = pin();
            run.done_with(id, &self.carried, source, &guard)?;
            run.writer.delete(0, id, &guard)
        })
    }
}

impl Target {
    /// The value that a column takes when none is given.
    pub(crate) fn default_value(&self, column: ColumnId, environment: &Environment<'_>) -> Result<Value> {
        let column = &self.columns[column.index()];
        match &column.default {
            None => Ok(Value::Null),
            Some(default) => {
                let value = default.evaluate(Row { cells: &[], environment })?.into_owned();
                writer::assign(value, column.ty, environment)
            }
        }
    }

    /// Refuses to set a column GENERATED ALWAYS to anything but its DEFAULT: SQLSTATE 428C9.
    pub fn refuse_generated(&self, column: ColumnId, inserting: bool) -> Result<()> {
        if !self.columns[column.index()].always_generated {
            return Ok(());
        }
        let name = self.column_name(column);
        let state = SqlState::new("428C9");
        let error = if inserting {
            Error::new(state, format!("cannot insert a non-DEFAULT value into column \"{name}\""))
                .with_hint("Use OVERRIDING SYSTEM VALUE to override.")
        } else {
            Error::new(state, format!("column \"{name}\" can only be updated to DEFAULT"))
        };
        Err(error
            .with_detail(format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS.")))
    }
}
