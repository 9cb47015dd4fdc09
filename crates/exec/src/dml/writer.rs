//! The writer: changes rows one at a time and keeps the table's constraints.
//!
//! NOT NULL and CHECK are tested before a row is written, uniqueness by storage as it is written, unless it
//! is deferrable: then a row that shares its key is looked at again by [`Writer::finish`].
//! Foreign keys are tested against what the statement leaves behind, as PostgreSQL does: a row
//! that points at another table is tested at once, since the statement does not change that table;
//! what points at its own table, and whatever referential actions bring about, waits for
//! [`Writer::finish`]. Where a constraint is deferred the transaction takes note, and its end tests it.
//!
//! After an error the caller rolls the transaction back to where the statement began.

use super::target::{Target, TargetSet};
use crate::constraint::{self, Pending};
use crate::expression::{Environment, Row};
use crate::scan::cancelled;
use crate::types;
use datafusion::arrow::array::ArrayRef;
use firn_base::{Cell, ColumnId, Error, Result, RowId, SqlState, SqlType, TimeZoneSetting, Value, coerce};
use firn_storage::KeyBuffer;
use firn_txn::{Check, Guard, Transaction, pin};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The cells of a row, on the stack for tables of usual width.
pub(crate) type Cells<'a> = SmallVec<[Cell<'a>; 24]>;

/// One statement's changes in the making.
pub(crate) struct Writer<'a> {
    pub(crate) set: &'a TargetSet,
    pub(crate) transaction: &'a mut Transaction,
    pub(crate) environment: Environment<'a>,
    pub(crate) pending: VecDeque<Pending>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        set: &'a TargetSet,
        transaction: &'a mut Transaction,
        environment: Environment<'a>,
    ) -> Writer<'a> {
        Writer { set, transaction, environment, pending: VecDeque::new() }
    }

    /// Inserts a whole row of values that have been coerced to the columns' types.
    pub(crate) fn insert(&mut self, target: usize, row: &[Value], guard: &Guard) -> Result<RowId> {
        self.stop_if_cancelled()?;
        let set = self.set;
        let table = set.target(target);
        debug_assert_eq!(row.len(), table.columns.len());
        for (position, column) in table.columns.iter().enumerate() {
            if column.not_null && row[position].is_null() {
                return Err(null_violation(table, ColumnId(position as u16), row));
            }
        }
        let cells = cells_of(table, row);
        self.check(table, &cells)?;
        let id = self
            .transaction
            .insert(&table.table, &cells, guard)
            .map_err(|error| explain_duplicate(error, table, &cells))?;
        for position in 0..table.late_keys.len() {
            self.look_for_shared_key(target, position, id, guard);
        }
        for position in 0..table.references.len() {
            self.check_reference(target, position, id, &cells, false, guard)?;
        }
        Ok(id)
    }

    /// Sets columns of a visible row to values that have been coerced to the columns' types.
    /// `by_action`: a foreign key's action does so, and other rows may be yet to follow.
    pub(crate) fn update(
        &mut self,
        target: usize,
        row: RowId,
        columns: &[ColumnId],
        values: &[Value],
        by_action: bool,
        guard: &Guard,
    ) -> Result<()> {
        self.stop_if_cancelled()?;
        let set = self.set;
        let table = set.target(target);
        let changed: Cells<'_> = columns
            .iter()
            .zip(values)
            .map(|(column, value)| value.as_cell(table.columns[column.index()].ty))
            .collect();
        let is_changed = |column: &ColumnId| columns.contains(column);
        let violates_not_null =
            || columns.iter().zip(values).find(|(c, v)| v.is_null() && table.columns[c.index()].not_null);
        let references = table.references.iter().any(|key| key.columns.iter().any(is_changed));
        let referrers = table.referrers.iter().any(|key| key.columns.iter().any(is_changed));
        let late_keys = table.late_keys.iter().any(|key| key.columns.iter().any(is_changed));
        let violation = violates_not_null();
        let needs_old =
            violation.is_some() || !table.checks.is_empty() || references || referrers || late_keys;
        if !needs_old {
            return self.transaction.update(&table.table, row, columns, &changed, guard).map_err(|error| {
                let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, table.columns.len());
                self.transaction.read(&table.table, row, &table.all_columns, &mut cells, guard);
                overlay(&mut cells, columns, &changed);
                explain_duplicate(error, table, &cells)
            });
        }
        let mut old: Cells<'_> = SmallVec::from_elem(Cell::Null, table.columns.len());
        if !self.transaction.read(&table.table, row, &table.all_columns, &mut old, guard) {
            return Ok(());
        }
        // What follows must not see the row change under it: cells may point into the block.
        let old = values_of(table, &old);
        let old_cells = cells_of(table, &old);
        let mut new: Cells<'_> = old_cells.clone();
        overlay(&mut new, columns, &changed);
        if let Some((column, _)) = violation {
            return Err(null_violation(table, *column, &values_of(table, &new)));
        }
        self.check(table, &new)?;
        self.transaction
            .update(&table.table, row, columns, &changed, guard)
            .map_err(|error| explain_duplicate(error, table, &new))?;
        let row = self.transaction.current_row_id(&table.table, row);
        for (position, key) in table.late_keys.iter().enumerate() {
            if key.columns.iter().any(is_changed) {
                self.look_for_shared_key(target, position, row, guard);
            }
        }
        for (position, reference) in table.references.iter().enumerate() {
            if !reference.columns.iter().any(is_changed) {
                continue;
            }
            self.check_reference(target, position, row, &new, by_action, guard)?;
        }
        for (position, referrer) in table.referrers.iter().enumerate() {
            if !referrer.columns.iter().any(is_changed) {
                continue;
            }
            let Some(old) = key_of(table, &referrer.columns, &old_cells) else { continue };
            let new: Vec<Value> = referrer
                .columns
                .iter()
                .map(|column| new[column.index()].to_value(table.columns[column.index()].ty))
                .collect();
            if old != new {
                self.pending.push_back(Pending::Gone { target, referrer: position, old, new: Some(new) });
            }
        }
        Ok(())
    }

    /// Deletes a visible row.
    pub(crate) fn delete(&mut self, target: usize, row: RowId, guard: &Guard) -> Result<()> {
        self.stop_if_cancelled()?;
        let set = self.set;
        let table = set.target(target);
        for (position, referrer) in table.referrers.iter().enumerate() {
            let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, referrer.columns.len());
            if !self.transaction.read(&table.table, row, &referrer.columns, &mut cells, guard) {
                return Ok(());
            }
            if cells.iter().any(Cell::is_null) {
                continue;
            }
            let old = cells.iter().zip(&referrer.column_types).map(|(cell, ty)| cell.to_value(*ty)).collect();
            self.pending.push_back(Pending::Gone { target, referrer: position, old, new: None });
        }
        self.transaction.delete(&table.table, row, guard)
    }

    /// Takes note if a row that was just written shares a deferrable key, perhaps with a row that has left
    /// it or is about to: the end of the statement or of the transaction tests it.
    fn look_for_shared_key(&mut self, target: usize, position: usize, row: RowId, guard: &Guard) {
        let table = self.set.target(target);
        let key = &table.late_keys[position];
        let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, key.columns.len());
        // Its own row: nobody else can change what stands there.
        let snapshot = self.transaction.snapshot();
        if !table.table.read(snapshot, row, &key.columns, &mut cells, guard) {
            return;
        }
        let mut encoded = KeyBuffer::new();
        key.index.encode(&cells, &mut encoded);
        if !self.transaction.shares_key(&table.table, &key.index, &encoded, row, guard) {
            return;
        }
        match self.transaction.defers(key.constraint, key.deferral) {
            true => self.transaction.defer(Check::Row { constraint: key.constraint, row }),
            false => self.pending.push_back(Pending::SharedKey { target, key: position, row }),
        }
    }

    /// Tests a foreign key of a row that was just written, or leaves that to the end of the statement or
    /// of the transaction.
    fn check_reference(
        &mut self,
        target: usize,
        position: usize,
        row: RowId,
        cells: &[Cell<'_>],
        by_action: bool,
        guard: &Guard,
    ) -> Result<()> {
        let table = self.set.target(target);
        let reference = &table.references[position];
        let key: Cells<'_> = reference.columns.iter().map(|column| cells[column.index()]).collect();
        // MATCH SIMPLE: a key with a NULL in it points nowhere.
        if key.iter().any(Cell::is_null) {
            return Ok(());
        }
        if self.transaction.defers(reference.constraint, reference.deferral) {
            self.transaction.defer(Check::Row { constraint: reference.constraint, row });
            return Ok(());
        }
        if reference.to_itself || by_action {
            self.pending.push_back(Pending::Reference { target, reference: position, row });
            return Ok(());
        }
        constraint::check_reference(self.transaction, &table.definition, reference, &key, guard)
    }

    /// Carries out referential actions and tests what had to wait for the end of the statement.
    pub(crate) fn finish(self) -> Result<()> {
        if self.pending.is_empty() { Ok(()) } else { constraint::finish(self) }
    }

    /// Fails with 57014 once the statement has been cancelled. A load per row, which costs nothing
    /// beside the row.
    pub(crate) fn stop_if_cancelled(&self) -> Result<()> {
        if self.environment.options.cancel.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    }

    fn check(&self, table: &Target, cells: &[Cell<'_>]) -> Result<()> {
        for check in &table.checks {
            // Unknown passes: only false violates.
            let row = Row { cells, environment: &self.environment };
            if check.condition.truth(row)? == Some(false) {
                return Err(Error::new(
                    SqlState::CHECK_VIOLATION,
                    format!(
                        "new row for relation \"{}\" violates check constraint \"{}\"",
                        table.definition.name, check.name
                    ),
                )
                .with_constraint(check.name.clone())
                .with_detail(failing_row(table, &values_of(table, cells))));
            }
        }
        Ok(())
    }
}

/// Puts `changed` over the cells at `columns`.
pub(crate) fn overlay<'c>(cells: &mut [Cell<'c>], columns: &[ColumnId], changed: &[Cell<'c>]) {
    for (column, cell) in columns.iter().zip(changed) {
        cells[column.index()] = *cell;
    }
}

/// The cells of a row of coerced values.
pub(crate) fn cells_of<'v>(table: &Target, row: &'v [Value]) -> Cells<'v> {
    row.iter().zip(&table.columns).map(|(value, column)| value.as_cell(column.ty)).collect()
}

/// The values of a row of cells.
pub(crate) fn values_of(table: &Target, cells: &[Cell<'_>]) -> Vec<Value> {
    cells.iter().zip(&table.columns).map(|(cell, column)| cell.to_value(column.ty)).collect()
}

/// The values of some columns; `None` if one of them is NULL.
fn key_of(table: &Target, columns: &[ColumnId], cells: &[Cell<'_>]) -> Option<Vec<Value>> {
    columns
        .iter()
        .map(|column| {
            let cell = &cells[column.index()];
            (!cell.is_null()).then(|| cell.to_value(table.columns[column.index()].ty))
        })
        .collect()
}

#[cold]
fn null_violation(table: &Target, column: ColumnId, row: &[Value]) -> Error {
    Error::new(
        SqlState::NOT_NULL_VIOLATION,
        format!(
            "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
            table.column_name(column),
            table.definition.name
        ),
    )
    .with_detail(failing_row(table, row))
    .with_table(table.schema.as_str(), table.definition.name.as_str())
    .with_column(table.column_name(column))
}

/// Adds to an error of a unique index which key it was.
#[cold]
fn explain_duplicate(error: Error, table: &Target, cells: &[Cell<'_>]) -> Error {
    let value = |column: ColumnId| Ok(cells[column.index()].to_value(table.columns[column.index()].ty));
    explain_key(error, table, value)
}

/// As [`explain_duplicate`], of one of these rows.
#[cold]
pub(crate) fn explain_duplicate_in(error: Error, table: &Target, columns: &[ArrayRef]) -> Error {
    let Some(row) = error.ordinal() else { return error };
    explain_key(error, table, |column| types::value_at(&columns[column.index()], row as usize))
}

/// As [`explain_duplicate`], of a row that has been stored before its key was found to be taken.
#[cold]
pub(crate) fn explain_waiting_duplicate(error: Error, table: &Target, transaction: &Transaction) -> Error {
    let Some(row) = error.row().filter(|_| error.state() == SqlState::UNIQUE_VIOLATION) else { return error };
    let guard = &pin();
    let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, table.columns.len());
    let seen = table.table.read(transaction.snapshot(), row, &table.all_columns, &mut cells, guard);
    assert!(seen, "a row that was just stored is visible to its writer");
    explain_duplicate(error, table, &cells)
}

fn explain_key(error: Error, table: &Target, value: impl Fn(ColumnId) -> Result<Value>) -> Error {
    if error.state() != SqlState::UNIQUE_VIOLATION || error.detail().is_some() {
        return error;
    }
    let Some(unique) = table.unique.iter().find(|unique| error.constraint() == Some(unique.name.as_str()))
    else {
        return error;
    };
    let values: Result<Vec<Value>> = unique.columns.iter().copied().map(value).collect();
    match values {
        Ok(values) => error
            .with_detail(format!("Key {} already exists.", describe_key(table, &unique.columns, &values))),
        Err(_) => error,
    }
}

/// `(a, b)=(1, x)`, as PostgreSQL's details name a key.
pub(crate) fn describe_key(table: &Target, columns: &[ColumnId], values: &[Value]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| table.column_name(*column)).collect();
    describe_named_key(&names, values)
}

/// [`describe_key`] for columns of a table that is not in the set.
pub(crate) fn describe_named_key(names: &[&str], values: &[Value]) -> String {
    let values: Vec<String> = values.iter().map(show).collect();
    format!("({})=({})", names.join(", "), values.join(", "))
}

fn failing_row(table: &Target, row: &[Value]) -> String {
    let shown: Vec<String> = row
        .iter()
        .zip(&table.definition.columns)
        .filter(|(_, column)| !column.dropped)
        .map(|(value, _)| show(value))
        .collect();
    format!("Failing row contains ({}).", shown.join(", "))
}

/// A value as messages show it, long ones cut as PostgreSQL cuts them.
fn show(value: &Value) -> String {
    const LONGEST: usize = 64;
    let Some(ty) = value.natural_type() else { return "null".to_owned() };
    let mut text = String::new();
    firn_base::text::write(value, ty, &TimeZoneSetting::UTC, &mut text);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Coerces a value to a column's type as assignment does; NULL stays NULL.
pub(crate) fn assign(value: Value, ty: SqlType, environment: &Environment<'_>) -> Result<Value> {
    match (&value, ty) {
        (Value::Null, _)
        | (Value::Integer(_), SqlType::Integer)
        | (Value::BigInt(_), SqlType::BigInt)
        | (Value::SmallInt(_), SqlType::SmallInt)
        | (Value::Boolean(_), SqlType::Boolean)
        | (Value::Text(_), SqlType::Text | SqlType::Varchar(None))
        | (Value::Timestamp(_), SqlType::Timestamp)
        | (Value::TimestampTz(_), SqlType::TimestampTz)
        | (Value::Date(_), SqlType::Date) => Ok(value),
        (Value::TimestampTz(_), _) | (_, SqlType::TimestampTz) => {
            coerce::assign(value, ty, &environment.zone())
        }
        _ => coerce::assign(value, ty, &TimeZoneSetting::UTC),
    }
}
