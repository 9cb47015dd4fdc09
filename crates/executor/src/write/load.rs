//! Loads: rows that come into a table from outside, batch after batch, in one statement. COPY FROM is one.
//!
//! Rows come as columns of the storage. Where nothing asks about single rows they are stored as they are; else they are vectors for
//! a while: columns that are not given take their defaults, a condition chooses among the rows, and constraints are tested.
//!
//! The ordinal of an error is the place of its row in the batch. What waits for the end of the statement is kept from batch to batch
//! until [`Load::finish`].

use super::foreign_key::Pending;
use super::rows::{RowVectors, fitted};
use super::target::{CatalogExpressions, RowExpression, StoredExpression, Target, TargetSet};
use super::writer::Writer;
use crate::arrays::{array_of, vector_of};
use crate::expression::truth;
use arrow_array::{Array, ArrayRef};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result};
use firn_txn::catalog::TableDef;
use firn_txn::{Transaction, pin};
use firn_vector::selection::Rows;
use firn_vector::{Context, Vector};
use std::collections::VecDeque;

/// How many rows are vectors at a time.
const TOGETHER: usize = 2048;

/// A load of a table.
pub struct Load {
    set: Arc<TargetSet>,
    target: usize,
    /// The columns that are given, in their order.
    columns: Vec<ColumnId>,
    /// The defaults of others.
    defaults: Vec<(ColumnId, RowExpression)>,
    condition: Option<RowExpression>,
    /// How many threads may enter keys.
    key_threads: usize,
    pending: VecDeque<Pending>,
}

impl Load {
    /// A load of these columns of a table, which is the first of a set.
    pub fn compile(
        set: Arc<TargetSet>,
        columns: Vec<ColumnId>,
        condition: Option<&StoredExpression>,
        expressions: &dyn CatalogExpressions,
    ) -> Result<Load> {
        let target = set.first();
        let definition: &Arc<TableDef> = &set.target(target).definition;
        let registry = expressions.registry();
        let mut defaults = Vec::new();
        for (column, described) in definition.visible_columns() {
            let has_default = described.default.is_some() || described.identity.is_some();
            if has_default && !columns.contains(&column) {
                let default = expressions.default(definition, column)?;
                defaults.push((column, RowExpression::compile(&default, registry)?));
            }
        }
        let condition = condition.map(|condition| RowExpression::compile(condition, registry)).transpose()?;
        Ok(Load { set, target, columns, defaults, condition, key_threads: 1, pending: VecDeque::new() })
    }

    /// How many threads may enter keys.
    pub fn set_key_threads(&mut self, threads: usize) {
        self.key_threads = threads;
    }

    fn table(&self) -> &Target {
        self.set.target(self.target)
    }

    /// Whether rows can be stored without a snapshot: no other row is read for them but those with their keys.
    pub fn reads_keys_alone(&self) -> bool {
        self.condition.is_none() && self.table().references.is_empty() && self.table().late_keys.is_empty()
    }

    /// Stores rows of the given columns, as the storage has values of their types. Returns how many: those that the condition
    /// chooses.
    pub fn insert(
        &mut self,
        transaction: &mut Transaction,
        rows: usize,
        columns: &[ArrayRef],
        context: &Context<'_>,
    ) -> Result<u64> {
        assert_eq!(columns.len(), self.columns.len());
        context.check_cancel()?;
        transaction.lock_row_exclusive(&self.table().table)?;
        if self.condition.is_none() && self.table().takes_arrays() && !self.violates_not_null(columns) {
            let whole = self.whole_columns(rows, columns, context)?;
            if let Some(whole) = whole {
                let target = self.target;
                self.write(transaction, |writer| writer.insert_arrays(target, &whole))?;
                return Ok(rows as u64);
            }
        }
        let representations: Vec<_> =
            self.columns.iter().map(|column| self.table().general(*column)).collect();
        let mut stored = 0;
        for first in (0..rows).step_by(TOGETHER) {
            let length = TOGETHER.min(rows - first);
            let vectors = columns
                .iter()
                .zip(&representations)
                .map(|(column, representation)| vector_of(&column.slice(first, length), *representation))
                .collect();
            stored +=
                self.insert_vectors(transaction, length, vectors, context).map_err(|error| {
                    match error.ordinal() {
                        Some(ordinal) => error.with_ordinal(first as u64 + ordinal),
                        None => error,
                    }
                })?;
        }
        Ok(stored)
    }

    /// As [`Load::insert`], of rows that are vectors: at most 65,535.
    pub fn insert_vectors(
        &mut self,
        transaction: &mut Transaction,
        length: usize,
        vectors: Vec<Vector>,
        context: &Context<'_>,
    ) -> Result<u64> {
        context.check_cancel()?;
        transaction.lock_row_exclusive(&self.table().table)?;
        let mut new = self.whole_rows(length, vectors, context)?;
        let (mut rows, mut failure) = self.chosen(&new, length, context);
        if let Err(error) = self.table().generate_placed(context, &mut new, Rows::at(&rows, length)) {
            rows.truncate(rows.iter().position(|row| error.ordinal() == Some(u64::from(*row))).unwrap_or(0));
            // Those before it have been computed one by one.
            self.table().generate(None, context, &mut new, Rows::at(&rows, length))?;
            failure = Some(error);
        }
        let target = self.target;
        self.write(transaction, |writer| {
            let violated = writer.first_violation(target, &new, Rows::at(&rows, length), None, context);
            let until = violated.as_ref().map_or(rows.len(), |(place, _)| *place);
            let row_of = |place: usize| u64::from(rows[place]);
            match writer.inserts_together(target) {
                true => writer.insert_together(target, &new, &rows[..until]).map_err(|error| match error
                    .ordinal()
                {
                    Some(place) => error.with_ordinal(row_of(place as usize)),
                    None => error,
                })?,
                false => {
                    for (place, row) in rows[..until].iter().enumerate() {
                        context.check_cancel()?;
                        let inserted = writer.insert(target, &new.row(usize::from(*row)), &pin());
                        inserted.map_err(|error| error.with_ordinal(row_of(place)))?;
                    }
                }
            }
            if let Some((place, violation)) = violated {
                let row = usize::from(rows[place]);
                let error = writer.violation(target, violation, &new.row(row), None, &pin());
                return Err(error.with_ordinal(row as u64));
            }
            failure.map_or(Ok(()), Err)
        })?;
        Ok(rows.len() as u64)
    }

    /// Enters the keys of rows that have been stored and wait for their indexes. 23505 of the first whose key is taken, which
    /// [`Error::row`] names.
    pub fn enter_keys(&mut self, transaction: &mut Transaction) -> Result<()> {
        self.write(transaction, |writer| writer.enter_keys())
    }

    /// See [`Writer::first_error`].
    #[cold]
    pub fn first_error(
        &mut self,
        transaction: &mut Transaction,
        error: Error,
        comes_before: impl FnOnce(&Transaction, &Error, &Error) -> bool,
    ) -> Error {
        let mut first = None;
        let kept = self.write(transaction, |writer| {
            first = Some(writer.first_error(error, comes_before));
            Ok(())
        });
        kept.expect("it reports its error otherwise");
        first.expect("it was found")
    }

    /// Ends the statement: all keys enter, and what had to wait is tested.
    pub fn finish(&mut self, transaction: &mut Transaction, context: &Context<'_>) -> Result<()> {
        self.enter_keys(transaction)?;
        let set = self.set.clone();
        let mut writer = Writer::new(&set, transaction, false);
        writer.pending = std::mem::take(&mut self.pending);
        writer.finish(context)
    }

    /// Calls with the writer of the statement.
    fn write<R>(
        &mut self,
        transaction: &mut Transaction,
        call: impl FnOnce(&mut Writer<'_>) -> Result<R>,
    ) -> Result<R> {
        let set = self.set.clone();
        let mut writer = Writer::new(&set, transaction, false).with_key_threads(self.key_threads);
        writer.pending = std::mem::take(&mut self.pending);
        writer.inserted_together = Some(self.target);
        let result = call(&mut writer);
        self.pending = std::mem::take(&mut writer.pending);
        result
    }

    /// Whether a column that must not be NULL may be: then rows are looked at, to name the first.
    fn violates_not_null(&self, columns: &[ArrayRef]) -> bool {
        self.table().columns.iter().enumerate().any(|(number, described)| {
            let column = ColumnId(number as u16);
            described.not_null
                && match self.columns.iter().position(|given| *given == column) {
                    Some(place) => columns[place].null_count() > 0,
                    None => self.defaults.iter().all(|(default, _)| *default != column),
                }
        })
    }

    /// All columns of rows as the storage takes them; `None` if a default is NULL where it must not be.
    fn whole_columns(
        &self,
        rows: usize,
        columns: &[ArrayRef],
        context: &Context<'_>,
    ) -> Result<Option<Vec<ArrayRef>>> {
        let table = self.table();
        let mut whole = Vec::with_capacity(table.width());
        for number in 0..table.width() {
            let column = ColumnId(number as u16);
            if let Some(place) = self.columns.iter().position(|given| *given == column) {
                whole.push(columns[place].clone());
                continue;
            }
            let general = table.general(column);
            let vector = match self.default(column) {
                Some(default) => default_of(default, general, rows, context)?,
                None => Vector::null(general, rows),
            };
            if table.columns[number].not_null && !vector.has_no_null() {
                return Ok(None);
            }
            whole.push(array_of(&vector));
        }
        Ok(Some(whole))
    }

    /// All columns of rows.
    fn whole_rows(&self, length: usize, given: Vec<Vector>, context: &Context<'_>) -> Result<RowVectors> {
        let table = self.table();
        let mut new = RowVectors::new(table.width());
        for number in 0..table.width() {
            let column = ColumnId(number as u16);
            let general = table.general(column);
            new.set(
                column,
                match self.default(column) {
                    Some(default) => default_of(default, general, length, context)?,
                    None => Vector::null(general, length),
                },
            );
        }
        for (column, vector) in self.columns.iter().zip(given) {
            new.set(*column, fitted(&vector, table.general(*column), Rows::all(length))?);
        }
        Ok(new)
    }

    fn default(&self, column: ColumnId) -> Option<&RowExpression> {
        self.defaults.iter().find(|(of, _)| *of == column).map(|(_, default)| default)
    }

    /// The rows that the condition chooses, up to the first for which it raises an error, and that error.
    fn chosen(&self, new: &RowVectors, length: usize, context: &Context<'_>) -> (Vec<u16>, Option<Error>) {
        let Some(condition) = &self.condition else {
            return ((0..length).map(|row| row as u16).collect(), None);
        };
        let all = Rows::all(length);
        if let Ok(truths) = condition.evaluate(context, new, all) {
            let truths = truths.plain(all);
            let chosen = (0..length).filter(|row| truth(&truths, *row) == Some(true));
            return (chosen.map(|row| row as u16).collect(), None);
        }
        let mut rows = Vec::new();
        for row in 0..length as u16 {
            let one = [row];
            let one = Rows::at(&one, length);
            match condition.evaluate(context, new, one) {
                Ok(truths) if truth(&truths.plain(one), usize::from(row)) == Some(true) => rows.push(row),
                Ok(_) => {}
                Err(error) => return (rows, Some(error.with_ordinal(u64::from(row)))),
            }
        }
        (rows, None)
    }
}

/// The default of a column in so many rows. Rows may be more than a vector of the executor has.
fn default_of(
    default: &RowExpression,
    general: firn_base::Representation,
    rows: usize,
    context: &Context<'_>,
) -> Result<Vector> {
    let part = |length: usize| {
        let all = Rows::all(length);
        fitted(&default.evaluate(context, &RowVectors::default(), all)?, general, all)
    };
    if rows <= TOGETHER {
        return part(rows);
    }
    let mut column = crate::columns::Column::new(general);
    for first in (0..rows).step_by(TOGETHER) {
        let length = TOGETHER.min(rows - first);
        column.append(&part(length)?, Rows::all(length));
    }
    Ok(column.finish())
}
