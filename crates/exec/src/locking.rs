//! `SELECT … FOR UPDATE` and its relatives: queries that lock the rows they yield.
//!
//! The query is planned without its LIMIT, and yields behind its columns the ids of the rows of every table
//! that is to be locked. Rows are locked in its order, after all its conditions, until there are as many as
//! LIMIT wants: a row that is passed over (SKIP LOCKED) does not count. All are locked before the first
//! is handed out.
//!
//! A row that another transaction holds, or has changed since the snapshot, is a write conflict; what
//! follows from that (waiting, running the statement again on a newer snapshot) is the session's affair, as
//! for any statement that writes. Rows that have changed are locked all the same, as they are by now, before
//! the statement is given back to be run again: so it gets them, however often others change them. Under
//! SKIP LOCKED both are passed over; if the rows then do not suffice and one of them had only changed, the
//! statement is to be run again all the same: on a newer snapshot it may do.
//!
//! SKIP LOCKED promises nothing about the rows that it does not yield, and those that it yields, and locks
//! alone, stay as they were read until the transaction ends, unless it goes back to a savepoint. So
//! if all rows that a query reads are locked so, and there is no savepoint, it is noted as having read nothing: workers that take
//! from one queue do not fail, serializable as they may be, because of what the others have taken.

use crate::dml::source::row_id;
use crate::expression::{Environment, RowExpression};
use crate::query::{self, RunOptions};
use crate::reads::firn_table;
use crate::scan::cancelled;
use crate::short::{Completion, MOST_ROWS, ShortProgram, row_count};
use crate::types;
use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use firn_base::sync::Arc;
use firn_base::{Error, Result, RowId, SqlState, Value};
use firn_storage::Table;
use firn_txn::{RowLock, Transaction, pin};
use std::collections::VecDeque;

/// What to do about a row that somebody else holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wait {
    /// Wait for him.
    Block,
    /// SKIP LOCKED: pass it over.
    Skip,
    /// NOWAIT: fail with 55P03.
    Fail,
}

/// A table whose rows are locked.
pub struct LockedTable {
    /// What the query calls it.
    pub name: String,
    /// The table.
    pub table: Arc<Table>,
    /// How its rows are locked.
    pub lock: RowLock,
    /// What to do if they cannot be at once.
    pub wait: Wait,
}

/// A query that locks rows, ready to run any number of times while the catalog stays as it is.
pub struct LockingQuery {
    /// The way through indexes, if the query has one.
    short: Option<ShortProgram>,
    /// The way that always works.
    plan: LogicalPlan,
    /// The tables whose row ids the plan's last columns are.
    tables: Vec<LockedTable>,
    skip: Option<RowExpression>,
    fetch: Option<RowExpression>,
    /// Whether it relies on nothing but the rows that it gets.
    reads_what_it_gets: bool,
}

/// The rows that were locked.
pub enum LockedRows {
    /// Row-major, and how many rows.
    Values(Vec<Value>, u64),
    /// As batches.
    Batches(VecDeque<RecordBatch>),
}

impl LockingQuery {
    /// A query over a plan whose last columns are the row ids of `tables`. `skip` and `fetch` are OFFSET and
    /// LIMIT: constants of an integer type.
    pub fn new(
        plan: LogicalPlan,
        tables: Vec<LockedTable>,
        skip: Option<RowExpression>,
        fetch: Option<RowExpression>,
        may_be_short: bool,
    ) -> LockingQuery {
        let mut scans = 0;
        plan.apply_with_subqueries(|node| {
            scans += usize::from(matches!(node, LogicalPlan::TableScan(scan) if firn_table(scan).is_some()));
            Ok(TreeNodeRecursion::Continue)
        })
        .expect("looking at nodes does not fail");
        let stays_as_read = |table: &LockedTable| table.wait == Wait::Skip && !table.lock.is_shared();
        let reads_what_it_gets = scans == tables.len() && tables.iter().all(stays_as_read);
        let short = if may_be_short { ShortProgram::compile(&plan) } else { None };
        LockingQuery { short, plan, tables, skip, fetch, reads_what_it_gets }
    }

    /// The columns of its plan that are the user's.
    pub fn width(&self) -> usize {
        self.plan.schema().fields().len() - self.tables.len()
    }

    /// What EXPLAIN says of it, a line each.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for LockedTable { name, lock, wait, .. } in &self.tables {
            let wait = match wait {
                Wait::Block => "",
                Wait::Skip => " SKIP LOCKED",
                Wait::Fail => " NOWAIT",
            };
            lines.push(format!("LockRows: {} OF {name}{wait}", clause(*lock)));
        }
        let source = match &self.short {
            Some(short) => short.describe(),
            None => query::lines(&self.plan.display_indent().to_string()),
        };
        lines.extend(source.into_iter().map(|line| format!("  {line}")));
        lines
    }

    /// Locks the rows. Parameters are of their declared types.
    pub fn run(
        &self,
        transaction: &mut Transaction,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<LockedRows> {
        let environment = Environment { parameters, options };
        let skip = row_count(&self.skip, &environment, "OFFSET")?.unwrap_or(0);
        let fetch = row_count(&self.fetch, &environment, "LIMIT")?.unwrap_or(usize::MAX);
        // Before it reads or holds a guard, since it may have to wait for a table.
        self.tables.iter().try_for_each(|locked| transaction.lock_row_share_to_read(&locked.table))?;
        let before = transaction.reads_so_far();
        let mut locking = Locking {
            query: self,
            transaction,
            options,
            skip,
            left: fetch,
            is_out_of_date: false,
            changed: None,
        };
        let rows = match &self.short {
            Some(short) => locking.run_short(short, parameters)?,
            None => None,
        };
        let rows = match rows {
            Some(rows) => rows,
            None => locking.run_plan(parameters)?,
        };
        if let Some(changed) = locking.changed
            && (locking.left > 0 || locking.is_out_of_date)
        {
            return Err(changed);
        }
        if self.reads_what_it_gets && !transaction.continues_after_error() {
            transaction.forget_reads(&before);
        }
        Ok(rows)
    }
}

/// A query that locks rows for another statement, which takes what it yields for parameters.
pub struct Picked {
    /// The query.
    pub query: LockingQuery,
    /// What becomes of its rows.
    pub yields: Yields,
}

/// What becomes of the rows of a [`Picked`] query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Yields {
    /// An array of each of so many columns.
    Columns(usize),
    /// There is one at most, of one column: its value.
    Value,
}

impl Picked {
    /// How many parameters it makes.
    pub fn parameters(&self) -> usize {
        match self.yields {
            Yields::Columns(columns) => columns,
            Yields::Value => 1,
        }
    }

    /// Locks the rows: the parameters that they make.
    pub fn run(
        &self,
        transaction: &mut Transaction,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<Vec<Value>> {
        let mut columns = vec![Vec::new(); self.parameters()];
        match self.query.run(transaction, parameters, options)? {
            LockedRows::Values(values, _) => {
                let width = columns.len();
                for (position, value) in values.into_iter().enumerate() {
                    columns[position % width].push(value);
                }
            }
            LockedRows::Batches(batches) => {
                for batch in batches {
                    for (values, column) in columns.iter_mut().zip(batch.columns()) {
                        for row in 0..batch.num_rows() {
                            values.push(types::value_at(column, row)?);
                        }
                    }
                }
            }
        }
        match self.yields {
            Yields::Columns(_) => Ok(columns.into_iter().map(|column| Value::Array(column.into())).collect()),
            Yields::Value if columns[0].len() > 1 => Err(Error::new(
                SqlState::CARDINALITY_VIOLATION,
                "more than one row returned by a subquery used as an expression",
            )),
            Yields::Value => Ok(vec![columns[0].pop().unwrap_or(Value::Null)]),
        }
    }
}

/// A run.
struct Locking<'a> {
    query: &'a LockingQuery,
    transaction: &'a mut Transaction,
    options: &'a RunOptions,
    /// Rows to pass over, and rows still wanted after that.
    skip: usize,
    left: usize,
    /// The conflict with a row that had changed.
    changed: Option<Error>,
    /// Whether such a row was not passed over but locked as it is by now, and the statement must be run again.
    is_out_of_date: bool,
}

impl Locking<'_> {
    /// Runs the short program, first for as many rows as are wanted, then, when some of them could not be
    /// locked, for those behind them. `None` if it has given up; what it has locked stays so.
    fn run_short(&mut self, short: &ShortProgram, parameters: &[Value]) -> Result<Option<LockedRows>> {
        let tables = self.query.tables.len();
        let width = self.query.width();
        let (skip, fetch) = (self.skip, self.left);
        let mut seen = 0;
        let mut wanted = fetch.saturating_add(skip);
        let mut values = Vec::new();
        let mut rows = 0;
        let mut found = Vec::new();
        while self.left > 0 {
            found.clear();
            let part =
                short.run_part(self.transaction, parameters, self.options, seen, wanted, &mut found)?;
            let Completion::Done { rows: came } = part else {
                if let (Some(changed), true) = (self.changed.take(), self.is_out_of_date) {
                    return Err(changed);
                }
                (self.skip, self.left) = (skip, fetch);
                return Ok(None);
            };
            for row in found.chunks_mut(width + tables) {
                if self.left == 0 {
                    break;
                }
                let (row, ids) = row.split_at_mut(width);
                if self.lock(ids.iter().map(row_id))? {
                    values.extend(row.iter_mut().map(|value| std::mem::replace(value, Value::Null)));
                    rows += 1;
                }
            }
            seen += came;
            if came < wanted {
                break;
            }
            wanted = (2 * wanted).min(MOST_ROWS);
        }
        Ok(Some(LockedRows::Values(values, rows)))
    }

    fn run_plan(&mut self, parameters: &[Value]) -> Result<LockedRows> {
        let width = self.query.width();
        let mut batches = VecDeque::new();
        let mut stream = query::run(&self.query.plan, parameters, self.transaction, self.options)?;
        while self.left > 0
            && let Some(batch) = stream.next()?
        {
            let ids: Vec<_> =
                batch.columns()[width..].iter().map(|ids| ids.as_primitive::<UInt64Type>()).collect();
            let mut kept = Vec::with_capacity(batch.num_rows());
            for row in 0..batch.num_rows() {
                let ids = ids.iter().map(|ids| RowId::from_bits(ids.value(row)));
                kept.push(self.left > 0 && self.lock(ids)?);
            }
            let columns: Vec<usize> = (0..width).collect();
            let locked = batch
                .project(&columns)
                .and_then(|batch| filter_record_batch(&batch, &BooleanArray::from(kept)))
                .map_err(|error| crate::error::from_datafusion(error.into()))?;
            batches.push_back(locked);
        }
        Ok(LockedRows::Batches(batches))
    }

    /// Locks the rows that a row of the result is made of; whether it is one that was asked for.
    fn lock(&mut self, ids: impl Iterator<Item = RowId>) -> Result<bool> {
        if self.options.cancel.is_cancelled() {
            return Err(cancelled());
        }
        let query = self.query;
        for (LockedTable { table, lock, wait, .. }, id) in query.tables.iter().zip(ids) {
            let Err(conflict) = self.transaction.lock(table, id, *lock, &pin()) else { continue };
            match (wait, conflict.blocker()) {
                _ if conflict.state() != SqlState::SERIALIZATION_FAILURE => return Err(conflict),
                (Wait::Skip, Some(_)) => return Ok(false),
                (Wait::Skip, None) => {
                    self.changed = Some(conflict);
                    return Ok(false);
                }
                (Wait::Fail, Some(_)) => return Err(not_at_once(table)),
                (Wait::Block | Wait::Fail, None) if self.transaction.can_advance_snapshot() => {
                    // Were it not locked now, others might change it again and again before this is run
                    // again. If it is gone, that finds nothing to wait for.
                    let newest = self.transaction.lock_newest(table, id, *lock, &pin());
                    if let Some(blocker) = newest.err().and_then(|error| error.blocker()) {
                        match wait {
                            Wait::Fail => return Err(not_at_once(table)),
                            _ => return Err(conflict.with_blocker(blocker)),
                        }
                    }
                    self.changed = Some(conflict);
                    self.is_out_of_date = true;
                }
                (Wait::Block | Wait::Fail, _) => return Err(conflict),
            }
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(false);
        }
        self.left -= 1;
        Ok(true)
    }
}

/// The error of NOWAIT.
#[cold]
fn not_at_once(table: &Table) -> Error {
    let message = format!("could not obtain lock on row in relation \"{}\"", table.name());
    Error::new(SqlState::LOCK_NOT_AVAILABLE, message)
}

/// The clause that asks for a lock.
pub fn clause(lock: RowLock) -> &'static str {
    match lock {
        RowLock::KeyShare => "FOR KEY SHARE",
        RowLock::Share => "FOR SHARE",
        RowLock::NoKeyUpdate => "FOR NO KEY UPDATE",
        RowLock::Update => "FOR UPDATE",
    }
}
