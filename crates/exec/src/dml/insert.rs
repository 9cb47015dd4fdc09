//! INSERT: new rows from expressions or a query, and what to do when a key is already there.

use super::Run;
use super::source::own_bytes;
use super::target::{Target, UniqueIndex};
use super::writer::{self, Cells};
use crate::error::from_datafusion;
use crate::expression::{Row, RowExpression};
use crate::scan::FirnTable;
use crate::{query, runtime, types};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringViewArray, new_null_array};
use datafusion::arrow::datatypes::Fields;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::{LogicalPlan, TableType};
use firn_base::sync::Arc;
use firn_base::{
    Cell, ColumnId, Error, Result, RowId, Snapshot, SqlState, SqlType, Stamp, Time, Value, text,
};
use firn_txn::{Guard, pin};
use smallvec::SmallVec;
use std::collections::HashSet;

/// INSERT.
#[derive(Debug)]
pub struct Insert {
    /// The columns that the source yields, in order; the others take their defaults.
    pub columns: Vec<ColumnId>,
    /// The new rows.
    pub source: InsertSource,
    /// Whether rows of other inserts of the same statement follow, so that their keys may wait for each other, to enter on up to so
    /// many threads: who runs it has them entered at the end ([`super::enter_keys`]), and asks for the
    /// [first mistake](super::first_mistake) if one fails.
    pub goes_on: Option<usize>,
    /// ON CONFLICT.
    pub on_conflict: Option<OnConflict>,
}

/// Where new rows come from.
#[derive(Debug)]
pub enum InsertSource {
    /// VALUES: a list per row. DEFAULT VALUES is one empty list for no columns.
    Values(Vec<Vec<InsertValue>>),
    /// A query, analysed.
    Query(Box<LogicalPlan>),
    /// Rows that are there.
    Batch(RecordBatch),
}

/// A value of VALUES.
#[derive(Debug)]
pub enum InsertValue {
    /// An expression over no columns.
    Expression(RowExpression),
    /// DEFAULT
    Default,
}

/// ON CONFLICT.
#[derive(Debug)]
pub struct OnConflict {
    /// The unique indexes in which a conflict counts, by position among the table's.
    pub(super) arbiters: Vec<usize>,
    /// What to do about one.
    pub action: ConflictAction,
}

/// What ON CONFLICT does.
#[derive(Debug)]
pub enum ConflictAction {
    /// DO NOTHING
    Nothing,
    /// DO UPDATE. Expressions are over the existing row in storage order, followed by the row that
    /// was to be inserted.
    Update {
        /// The columns to set, each once.
        columns: Vec<ColumnId>,
        /// Their values; `None` is DEFAULT.
        values: Vec<Option<RowExpression>>,
        /// WHERE
        condition: Option<RowExpression>,
    },
}

impl OnConflict {
    /// `columns` is the conflict target by columns, `constraint` the one by name; with neither
    /// every unique index counts. 42P10 if no unique index is over exactly these columns, 42704 if
    /// there is no such constraint.
    pub fn new(
        target: &Target,
        columns: Option<&[ColumnId]>,
        constraint: Option<&str>,
        action: ConflictAction,
    ) -> Result<OnConflict> {
        let all = target.unique.iter().enumerate();
        let arbiters: Vec<usize> = match (columns, constraint) {
            (Some(columns), _) => all
                .filter(|(_, unique)| {
                    unique.columns.iter().all(|column| columns.contains(column))
                        && columns.iter().all(|column| unique.columns.contains(column))
                })
                .map(|(position, _)| position)
                .collect(),
            (None, Some(name)) => {
                use firn_txn::catalog::ConstraintKind::{PrimaryKey, Unique};
                let index =
                    target.definition.constraints.iter().find_map(|constraint| match &constraint.kind {
                        PrimaryKey { index } | Unique { index } if constraint.name == name => Some(*index),
                        _ => None,
                    });
                let Some(index) = index else {
                    return Err(Error::new(
                        SqlState::UNDEFINED_OBJECT,
                        format!(
                            "constraint \"{name}\" for table \"{}\" does not exist",
                            target.definition.name
                        ),
                    ));
                };
                all.filter(|(_, unique)| unique.oid == index).map(|(position, _)| position).collect()
            }
            (None, None) => all.map(|(position, _)| position).collect(),
        };
        if arbiters.is_empty() && columns.is_some() {
            return Err(Error::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "there is no unique or exclusion constraint matching the ON CONFLICT specification",
            ));
        }
        Ok(OnConflict { arbiters, action })
    }
}

impl Insert {
    /// What EXPLAIN says of its source.
    pub(super) fn describe(&self) -> Vec<String> {
        match &self.source {
            InsertSource::Values(rows) => vec![format!("Values ({} rows)", rows.len())],
            InsertSource::Query(plan) => {
                plan.display_indent().to_string().lines().map(str::to_owned).collect()
            }
            InsertSource::Batch(batch) => vec![format!("Batch ({} rows)", batch.num_rows())],
        }
    }

    pub(super) fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let mut seen = HashSet::new();
        match &self.source {
            InsertSource::Values(rows) => {
                for values in rows {
                    let guard = pin();
                    let row = self.row_of_values(values, run)?;
                    self.insert(run, row, &mut seen, &guard)?;
                }
                Ok(())
            }
            InsertSource::Query(plan) => {
                let inserted = self.run_query(plan, run, &mut seen);
                if self.goes_on.is_some() {
                    return inserted;
                }
                let writer::Writer { set, transaction, environment, .. } = &mut run.writer;
                match inserted {
                    Ok(()) => super::enter_keys(set, transaction, environment.options),
                    Err(error) => {
                        // Rows of a query have no order but that they came.
                        let first =
                            super::first_mistake(set, transaction, environment.options, error, |_, _, _| {
                                true
                            });
                        Err(first)
                    }
                }
            }
            InsertSource::Batch(batch) => {
                let bulk = self.takes_batches(batch.schema_ref().fields(), run);
                self.insert_batch(run, batch, bulk, &mut seen)
            }
        }
    }

    fn row_of_values(&self, values: &[InsertValue], run: &Run<'_>) -> Result<Vec<Value>> {
        let table = run.writer.set.root();
        let environment = &run.writer.environment;
        let mut row = vec![Value::Null; table.columns.len()];
        for (column, value) in self.columns.iter().zip(values) {
            row[column.index()] = match value {
                InsertValue::Expression(expression) => {
                    let value = expression.evaluate(Row { cells: &[], environment })?.into_owned();
                    writer::assign(value, table.columns[column.index()].ty, environment)?
                }
                InsertValue::Default => table.default_value(*column, environment)?,
            };
        }
        self.fill_defaults(&mut row, run)?;
        Ok(row)
    }

    fn fill_defaults(&self, row: &mut [Value], run: &Run<'_>) -> Result<()> {
        let table = run.writer.set.root();
        if self.columns.len() == table.columns.len() {
            return Ok(());
        }
        for column in &table.all_columns {
            if table.columns[column.index()].default.is_some() && !self.columns.contains(column) {
                row[column.index()] = table.default_value(*column, &run.writer.environment)?;
            }
        }
        Ok(())
    }

    fn insert(
        &self,
        run: &mut Run<'_>,
        row: Vec<Value>,
        seen: &mut HashSet<RowId>,
        guard: &Guard,
    ) -> Result<()> {
        let set = run.writer.set;
        let table = set.root();
        if let Some(on_conflict) = &self.on_conflict {
            let cells = writer::cells_of(table, &row);
            if let Some(existing) = on_conflict.find(run, &cells, guard)? {
                return match &on_conflict.action {
                    ConflictAction::Nothing => Ok(()),
                    ConflictAction::Update { columns, values, condition } => {
                        if !seen.insert(existing) {
                            return Err(Error::new(
                                SqlState::CARDINALITY_VIOLATION,
                                "ON CONFLICT DO UPDATE command cannot affect row a second time",
                            )
                            .with_hint(
                                "Ensure that no rows proposed for insertion within the same command \
                                 have duplicate constrained values.",
                            ));
                        }
                        update_existing(run, existing, &cells, columns, values, condition.as_ref(), guard)?;
                        seen.insert(run.writer.transaction.current_row_id(&table.table, existing));
                        Ok(())
                    }
                };
            }
        }
        let inserted = run.writer.insert(0, &row, guard);
        let id = inserted.map_err(|error| match &self.on_conflict {
            Some(on_conflict) if on_conflict.missed(run, &row, &error, guard) => {
                Error::write_conflict(&table.definition.name)
            }
            _ => error,
        })?;
        if matches!(&self.on_conflict, Some(OnConflict { action: ConflictAction::Update { .. }, .. })) {
            seen.insert(id);
        }
        if run.returning.is_some() { run.done(&writer::cells_of(table, &row)) } else { run.done(&[]) }
    }

    fn run_query(&self, plan: &LogicalPlan, run: &mut Run<'_>, seen: &mut HashSet<RowId>) -> Result<()> {
        let environment = run.writer.environment;
        let mut stream =
            query::run(plan, environment.parameters, run.writer.transaction, environment.options)?;
        let bulk = self.takes_batches(plan.schema().fields(), run);
        if !reads(plan, run.writer.set.root()) {
            while let Some(batch) = stream.next()? {
                self.insert_batch(run, &batch, bulk, seen)?;
            }
            return Ok(());
        }
        let memory = MemoryConsumer::new("rows to insert").register(&runtime::memory());
        let mut batches = Vec::new();
        while let Some(batch) = stream.next()? {
            memory.try_grow(own_bytes(&batch)).map_err(from_datafusion)?;
            batches.push(batch);
        }
        for batch in batches {
            self.insert_batch(run, &batch, bulk, seen)?;
        }
        Ok(())
    }

    /// Whether batches with these columns can go in as they are: nothing looks at single rows, and their
    /// types are the table's, but for the length of strings.
    fn takes_batches(&self, fields: &Fields, run: &Run<'_>) -> bool {
        let table = run.writer.set.root();
        table.takes_batches()
            && self.on_conflict.is_none()
            && run.returning.is_none()
            && self.columns.iter().zip(fields).all(|(column, field)| {
                let ty = table.columns[column.index()].ty;
                let fits =
                    types::sql_type(field).is_some_and(|source| source == ty || is_to_be_fitted(source, ty));
                fits && *field.data_type() == firn_storage::arrow::data_type(ty)
            })
            && table.all_columns.iter().all(|column| {
                let default = &table.columns[column.index()].default;
                self.columns.contains(column) || default.as_ref().is_none_or(RowExpression::is_constant)
            })
    }

    fn insert_batch(
        &self,
        run: &mut Run<'_>,
        batch: &RecordBatch,
        bulk: bool,
        seen: &mut HashSet<RowId>,
    ) -> Result<()> {
        let set = run.writer.set;
        let table = set.root();
        if bulk
            && !self.violates_not_null(table, batch)
            && let Some(columns) = self.whole_columns(run, batch)?
        {
            run.writer.stop_if_cancelled()?;
            let (transaction, options) = (&mut *run.writer.transaction, run.writer.environment.options);
            // The keys of a batch that nothing follows enter with it.
            let of_query = || matches!(self.source, InsertSource::Query(_)).then_some(options.threads);
            let inserted = match self.goes_on.or_else(of_query) {
                Some(threads) => transaction.insert_batch_waiting(&table.table, &columns, threads),
                None => transaction.insert_batch(&table.table, &columns, &pin()),
            };
            inserted.map_err(|error| match error.ordinal() {
                Some(_) => writer::explain_duplicate_in(error, table, &columns),
                None => writer::explain_waiting_duplicate(error, table, transaction),
            })?;
            run.outcome.count += batch.num_rows() as u64;
            return Ok(());
        }
        // Of mistakes the first is told.
        super::enter_keys(set, run.writer.transaction, run.writer.environment.options)?;
        for position in 0..batch.num_rows() {
            let guard = pin();
            let inserted =
                self.row_of(batch, position, run).and_then(|row| self.insert(run, row, seen, &guard));
            inserted.map_err(|error| error.with_ordinal(position as u64))?;
        }
        Ok(())
    }

    fn row_of(&self, batch: &RecordBatch, position: usize, run: &Run<'_>) -> Result<Vec<Value>> {
        let table = run.writer.set.root();
        let mut row = vec![Value::Null; table.columns.len()];
        for (column, array) in self.columns.iter().zip(batch.columns()) {
            let value = types::value_at(array, position)?;
            let ty = table.columns[column.index()].ty;
            row[column.index()] = writer::assign(value, ty, &run.writer.environment)?;
        }
        self.fill_defaults(&mut row, run)?;
        Ok(row)
    }

    /// Whether a column that must not be NULL is: then the rows go in one by one, to name the first.
    fn violates_not_null(&self, table: &Target, batch: &RecordBatch) -> bool {
        table.all_columns.iter().any(|column| {
            let described = &table.columns[column.index()];
            described.not_null
                && match self.columns.iter().position(|given| given == column) {
                    Some(position) => batch.column(position).null_count() > 0,
                    None => described.default.is_none(),
                }
        })
    }

    /// All columns of the table; nothing if a string is too long for its column: then the rows go in one by one, to name
    /// the first.
    fn whole_columns(&self, run: &Run<'_>, batch: &RecordBatch) -> Result<Option<Vec<ArrayRef>>> {
        let table = run.writer.set.root();
        table
            .all_columns
            .iter()
            .map(|column| {
                let ty = table.columns[column.index()].ty;
                if let Some(position) = self.columns.iter().position(|given| given == column) {
                    let (given, schema) = (batch.column(position), batch.schema_ref());
                    let fits = types::sql_type(schema.field(position)) == Some(ty);
                    return Ok(if fits { Some(given.clone()) } else { fitted(given, ty) });
                }
                match table.default_value(*column, &run.writer.environment)? {
                    Value::Null => {
                        Ok(Some(new_null_array(&firn_storage::arrow::data_type(ty), batch.num_rows())))
                    }
                    value => types::scalar(&value, ty)
                        .to_array_of_size(batch.num_rows())
                        .map(Some)
                        .map_err(crate::error::from_datafusion),
                }
            })
            .collect()
    }
}

/// Whether strings of a type may have another length than those of a column.
fn is_to_be_fitted(source: SqlType, ty: SqlType) -> bool {
    let has_length = matches!(ty, SqlType::Varchar(Some(_)) | SqlType::Char(_));
    has_length && matches!(source, SqlType::Text | SqlType::Varchar(None))
}

/// Strings as a column with a length has them; nothing if one is too long.
fn fitted(strings: &ArrayRef, ty: SqlType) -> Option<ArrayRef> {
    let array = strings.as_string_view();
    let is_fitting = |text: &str| match ty {
        // Never more characters than bytes.
        SqlType::Varchar(Some(most)) => text.len() <= most as usize,
        SqlType::Char(exactly) => text.len() == exactly as usize && text.is_ascii(),
        _ => true,
    };
    if array.iter().flatten().all(is_fitting) {
        return Some(strings.clone());
    }
    let fit = |text: &str| match ty {
        SqlType::Varchar(Some(most)) => text::fit_varchar(text, most).map(str::to_owned),
        SqlType::Char(exactly) => text::fit_char(text, exactly),
        _ => Ok(text.to_owned()),
    };
    let fitted = array.iter().map(|string| string.map(fit).transpose());
    let fitted = fitted.collect::<Result<StringViewArray>>().ok()?;
    Some(Arc::new(fitted))
}

impl OnConflict {
    /// Whether a row stands in the new one's way that [`OnConflict::find`] could not find: it has been
    /// committed since the snapshot. To look away from it, or to change it, takes a newer snapshot. The error may
    /// be of another key, which was entered first: a newer snapshot may find the row that has both.
    fn missed(&self, run: &Run<'_>, row: &[Value], error: &Error, guard: &Guard) -> bool {
        let table = run.writer.set.root();
        let cells = writer::cells_of(table, row);
        // As others see it: the new row stands there already, and may take the place of one that has gone.
        let find = |unique: &UniqueIndex, key: &[u8], read_time| {
            let committed = Snapshot { read_time, owner: Stamp::committed(Time(0)) };
            table.table.find(&unique.index, key, committed, &[], &mut [], guard)
        };
        let read_time = run.writer.transaction.snapshot().read_time;
        error.state() == SqlState::UNIQUE_VIOLATION
            && self.arbiters.iter().any(|&arbiter| {
                let unique = &table.unique[arbiter];
                error.constraint() == Some(&unique.name)
                    || unique.key(&cells).is_some_and(|key| {
                        let newest = find(unique, &key, Time::LATEST);
                        newest.is_some() && newest != find(unique, &key, read_time)
                    })
            })
    }

    /// The visible row that stands in the new row's way. 55000 if that may be one of several.
    fn find(&self, run: &Run<'_>, cells: &[Cell<'_>], guard: &Guard) -> Result<Option<RowId>> {
        let table = run.writer.set.root();
        for &arbiter in &self.arbiters {
            let unique = &table.unique[arbiter];
            if unique.is_deferrable {
                return Err(Error::new(
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as \
                     arbiters",
                )
                .with_constraint(unique.name.as_str()));
            }
            let Some(key) = unique.key(cells) else { continue };
            let found = run.writer.transaction.get(&table.table, &unique.index, &key, guard);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// DO UPDATE of an existing row.
fn update_existing(
    run: &mut Run<'_>,
    existing: RowId,
    proposed: &[Cell<'_>],
    columns: &[ColumnId],
    values: &[Option<RowExpression>],
    condition: Option<&RowExpression>,
    guard: &Guard,
) -> Result<()> {
    let table = run.writer.set.root();
    let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, table.columns.len());
    let seen = run.writer.transaction.read(&table.table, existing, &table.all_columns, &mut cells, guard);
    assert!(seen, "a conflicting row is visible");
    cells.extend(proposed.iter().copied());
    let environment = run.writer.environment;
    let row = Row { cells: &cells, environment: &environment };
    if let Some(condition) = condition
        && !condition.holds(row)?
    {
        return Ok(());
    }
    let values = columns
        .iter()
        .zip(values)
        .map(|(column, value)| match value {
            Some(value) => writer::assign(
                value.evaluate(row)?.into_owned(),
                table.columns[column.index()].ty,
                &environment,
            ),
            None => table.default_value(*column, &environment),
        })
        .collect::<Result<Vec<Value>>>()?;
    run.writer.update(0, existing, columns, &values, false, guard)?;
    run.done_with(existing, &[], &[], guard)
}

/// Whether a plan reads the table, sub-queries included.
fn reads(plan: &LogicalPlan, target: &Target) -> bool {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            // What is not a table of ours may be a view over anything of ours.
            found |= match source_as_provider(&scan.source) {
                Ok(provider) => match provider.downcast_ref::<FirnTable>() {
                    Some(table) => table.table().id() == target.table.id(),
                    // Rows that somebody holds, or a file's.
                    None => provider.table_type() != TableType::Temporary,
                },
                Err(_) => true,
            };
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })
    .expect("looking cannot fail");
    found
}
