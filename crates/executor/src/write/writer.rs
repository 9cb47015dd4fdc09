//! The writer: changes rows and tests the constraints that do not wait for the end of the statement.
//!
//! A foreign key of a row is tested at once where the statement changes no other table, since the referenced row cannot come later.
//! What references its own table, and what the actions of foreign keys cause, waits for [`Writer::finish`]; so do all references
//! of a statement with several changes. Where a constraint is deferred the transaction notes the check.
//!
//! After an error the caller rolls the transaction back to the beginning of the statement.

use super::foreign_key::{self, Pending};
use super::messages;
use super::rows::{Cells, RowData, RowVectors, StoredCells, stored};
use super::target::{Target, TargetSet};
use crate::expression::truth;
use crate::values::{push, value};
use firn_base::{Cell, ColumnId, Error, Result, RowId, Value};
use firn_storage::KeyBuffer;
use firn_txn::{Check, Guard, Transaction};
use firn_vector::Context;
use firn_vector::builder::Builder;
use firn_vector::selection::Rows;
use smallvec::SmallVec;
use std::collections::{HashSet, VecDeque};

/// What the changes of one statement write with.
pub struct Writer<'a> {
    pub(super) set: &'a TargetSet,
    pub(crate) transaction: &'a mut Transaction,
    pub(super) pending: VecDeque<Pending>,
    /// The rows that the statement has changed, each with its table's position: under the id that its snapshot sees, and the present one.
    changed: HashSet<(usize, RowId)>,
    pub(super) has_several_changes: bool,
    /// The table whose rows have been inserted [together](super::bulk), if there is one: their keys may wait.
    pub(super) inserted_together: Option<usize>,
    pub(super) key_threads: usize,
}

impl<'a> Writer<'a> {
    /// A writer of a statement that makes one change of a table, or several.
    pub fn new(
        set: &'a TargetSet,
        transaction: &'a mut Transaction,
        has_several_changes: bool,
    ) -> Writer<'a> {
        Writer {
            set,
            transaction,
            pending: VecDeque::new(),
            changed: HashSet::new(),
            has_several_changes,
            inserted_together: None,
            key_threads: 1,
        }
    }

    /// The tables that it may write to.
    pub(crate) fn set(&self) -> &'a TargetSet {
        self.set
    }

    /// Notes that the statement changes a row; false if it has done so before.
    pub(crate) fn claim(&mut self, target: usize, row: RowId) -> bool {
        self.changed.insert((target, row))
    }

    /// Whether the statement has changed a row.
    pub(crate) fn has_changed(&self, target: usize, row: RowId) -> bool {
        self.changed.contains(&(target, row))
    }

    /// The first of some rows to be written that violates NOT NULL or a CHECK, by its place in `rows`, and its error. Of an
    /// update `given` are the columns that it sets.
    pub(crate) fn first_violation(
        &self,
        target: usize,
        columns: &RowVectors,
        rows: Rows<'_>,
        given: Option<&[ColumnId]>,
        context: &Context<'_>,
    ) -> Option<(usize, Violation)> {
        let table = self.set.target(target);
        let is_given = |column: &ColumnId| given.is_none_or(|given| given.contains(column));
        let positions: Vec<u16> = positions(rows);
        let mut first: Option<(usize, Violation)> = None;
        for (number, column) in table.columns.iter().enumerate() {
            let id = ColumnId(number as u16);
            if !column.not_null || !is_given(&id) {
                continue;
            }
            let vector = columns.vector(id);
            if vector.has_no_null() {
                continue;
            }
            let before = first.as_ref().map_or(positions.len(), |(place, _)| *place);
            let found = positions[..before].iter().position(|row| vector.is_null(usize::from(*row)));
            if let Some(place) = found {
                first = Some((place, Violation::Null(id)));
            }
        }
        for (number, check) in table.checks.iter().enumerate() {
            let before = first.as_ref().map_or(positions.len(), |(place, _)| *place);
            let asked = Rows::at(&positions[..before], rows.length());
            if before == 0 {
                break;
            }
            let truths = match check.condition.evaluate(context, columns, asked) {
                Ok(truths) => truths.plain(asked),
                Err(_) => {
                    first = self
                        .first_failing(number, target, columns, &positions[..before], rows, context)
                        .or(first);
                    continue;
                }
            };
            // NULL passes.
            let is_violated = |row: &u16| truth(&truths, usize::from(*row)) == Some(false);
            if let Some(place) = positions[..before].iter().position(is_violated) {
                first = Some((place, Violation::Check(number)));
            }
        }
        first
    }

    /// The error of a row that violates NOT NULL or a CHECK, of a table whose CHECK conditions take single rows. Of an update `given` are
    /// the columns that it sets, and `id` is the row.
    #[inline]
    pub(crate) fn check<R: RowData>(
        &self,
        target: usize,
        row: &R,
        id: Option<RowId>,
        given: Option<&[ColumnId]>,
        context: &Context<'_>,
        guard: &Guard,
    ) -> Result<()> {
        match self.violation_of(target, row, given, context) {
            None => Ok(()),
            Some(violation) => Err(self.violation(target, violation, row, id, guard)),
        }
    }

    /// As [`Writer::first_violation`], of one row.
    fn violation_of<R: RowData>(
        &self,
        target: usize,
        row: &R,
        given: Option<&[ColumnId]>,
        context: &Context<'_>,
    ) -> Option<Violation> {
        let table = self.set.target(target);
        let is_violated = |id: &ColumnId| table.columns[id.index()].not_null && row.is_null(*id);
        let null = match given {
            Some(given) => given.iter().copied().filter(is_violated).min(),
            None => (0..table.width()).map(|number| ColumnId(number as u16)).find(is_violated),
        };
        if let Some(id) = null {
            return Some(Violation::Null(id));
        }
        table.checks.iter().enumerate().find_map(|(number, check)| {
            match check.condition.truth(context, row) {
                // NULL passes.
                Ok(truth) => (truth == Some(false)).then_some(Violation::Check(number)),
                Err(error) => Some(Violation::Failed(error)),
            }
        })
    }

    /// The first row in which a CHECK is violated or raises an error, asked row by row.
    #[cold]
    fn first_failing(
        &self,
        number: usize,
        target: usize,
        columns: &RowVectors,
        positions: &[u16],
        rows: Rows<'_>,
        context: &Context<'_>,
    ) -> Option<(usize, Violation)> {
        let check = &self.set.target(target).checks[number];
        positions.iter().enumerate().find_map(|(place, row)| {
            let one = [*row];
            let one = Rows::at(&one, rows.length());
            match check.condition.evaluate(context, columns, one) {
                Ok(truths) if truth(&truths.plain(one), usize::from(*row)) == Some(false) => {
                    Some((place, Violation::Check(number)))
                }
                Ok(_) => None,
                Err(error) => Some((place, Violation::Failed(error))),
            }
        })
    }

    /// The error of a violation by a row with these columns; those that are not known are those of the row `id`.
    #[cold]
    pub(crate) fn violation(
        &self,
        target: usize,
        violation: Violation,
        row: &dyn RowData,
        id: Option<RowId>,
        guard: &Guard,
    ) -> Error {
        let table = self.set.target(target);
        let values = || self.values(target, row, id, guard);
        match violation {
            Violation::Null(column) => messages::null_violation(table, column, &values()),
            Violation::Check(number) => {
                messages::check_violation(table, &table.checks[number].name, &values())
            }
            Violation::Failed(error) => error,
        }
    }

    /// The values of all columns of a row; those that are not known are those of the row `id`.
    #[cold]
    fn values(&self, target: usize, row: &dyn RowData, id: Option<RowId>, guard: &Guard) -> Vec<Value> {
        let table = self.set.target(target);
        let all: Vec<ColumnId> = (0..table.width()).map(|number| ColumnId(number as u16)).collect();
        let mut old: Cells<'_> = SmallVec::from_elem(Cell::Null, all.len());
        if let Some(id) = id {
            self.transaction.peek(&table.table, id, &all, &mut old, guard);
        }
        let known = |column: &ColumnId| match row.get(*column) {
            Some(datum) => value(datum, table.general(*column)),
            None => old[column.index()].to_value(table.stored(*column)),
        };
        all.iter().map(known).collect()
    }

    /// Inserts a row that violates neither NOT NULL nor a CHECK; all columns are known.
    pub(crate) fn insert<R: RowData>(&mut self, target: usize, row: &R, guard: &Guard) -> Result<RowId> {
        let set = self.set;
        let table = set.target(target);
        let mut stored_row = StoredCells::default();
        for number in 0..table.width() {
            let column = ColumnId(number as u16);
            stored_row.push(stored(row.datum(column), table.stored(column))?);
        }
        let id = stored_row.with(|cells| {
            self.transaction.insert(&table.table, cells, guard).map_err(|error| {
                let value = |column: ColumnId| cells[column.index()].to_value(table.stored(column));
                messages::explain_duplicate(error, table, value)
            })
        })?;
        for position in 0..table.late_keys.len() {
            self.look_for_shared_key(target, position, id, guard)?;
        }
        for position in 0..table.references.len() {
            self.check_reference(target, position, id, row, false, guard)?;
        }
        Ok(id)
    }

    /// Columns of rows, each at its place in vectors of a length, and the places of those rows that are there. Places must rise.
    pub(crate) fn read(
        &self,
        target: usize,
        columns: &[ColumnId],
        length: usize,
        rows: impl Iterator<Item = (usize, RowId)>,
    ) -> (RowVectors, Vec<u16>) {
        let table = self.set.target(target);
        let guard = firn_txn::pin();
        let mut builders: Vec<Builder> =
            columns.iter().map(|column| Builder::new(table.general(*column))).collect();
        let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, columns.len());
        let mut found = Vec::new();
        for (place, id) in rows {
            // It is about to be changed: a change by another transaction is a conflict, so nothing has to be logged.
            if !self.transaction.peek(&table.table, id, columns, &mut cells, &guard) {
                continue;
            }
            found.push(place as u16);
            for ((builder, cell), column) in builders.iter_mut().zip(&cells).zip(columns) {
                builder.pad(place);
                push(builder, &cell.to_value(table.stored(*column)), table.general(*column));
            }
        }
        let mut vectors = RowVectors::new(table.width());
        for (mut builder, column) in builders.into_iter().zip(columns) {
            builder.pad(length);
            vectors.set(*column, builder.finish());
        }
        (vectors, found)
    }

    /// Sets columns of a row to those of a row of vectors, which violates neither NOT NULL nor a CHECK. Of the old row the
    /// [columns that it must know](Target::columns_to_update) are given, and in `new` likewise.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn update<N: RowData, O: RowData>(
        &mut self,
        target: usize,
        id: RowId,
        set_columns: &[ColumnId],
        new: &N,
        old: &O,
        by_action: bool,
        guard: &Guard,
    ) -> Result<()> {
        let set = self.set;
        let table = set.target(target);
        let mut changed = StoredCells::default();
        for column in set_columns {
            changed.push(stored(new.datum(*column), table.stored(*column))?);
        }
        let updated =
            changed.with(|cells| self.transaction.update(&table.table, id, set_columns, cells, guard));
        updated.map_err(|error| {
            let values = self.values(target, new, Some(id), guard);
            messages::explain_duplicate(error, table, |column| values[column.index()].clone())
        })?;
        let id = self.transaction.current_row_id(&table.table, id);
        let is_set = |column: &ColumnId| set_columns.contains(column);
        for position in 0..table.late_keys.len() {
            if table.late_keys[position].columns.iter().any(is_set) {
                self.look_for_shared_key(target, position, id, guard)?;
            }
        }
        for position in 0..table.references.len() {
            if table.references[position].columns.iter().any(is_set) {
                self.check_reference(target, position, id, new, by_action, guard)?;
            }
        }
        let referrers = match self.transaction.trusts_references() {
            true => &table.referrers[..0],
            false => &table.referrers[..],
        };
        for (position, referrer) in referrers.iter().enumerate() {
            if !referrer.columns.iter().any(is_set) {
                continue;
            }
            let before = key_values(table, &referrer.columns, old)?;
            let after = key_values(table, &referrer.columns, new)?;
            if before != after && !before.iter().any(Value::is_null) {
                self.pending.push_back(Pending::Gone {
                    target,
                    referrer: position,
                    old: before,
                    new: Some(after),
                });
            }
        }
        Ok(())
    }

    /// Sets columns of one row to values as they are stored, for the action of a foreign key.
    pub(super) fn update_to_values(
        &mut self,
        target: usize,
        id: RowId,
        set_columns: &[ColumnId],
        values: &[Value],
        context: &Context<'_>,
        guard: &Guard,
    ) -> Result<()> {
        let table = self.set.target(target);
        let changed = table.with_generated(set_columns.to_vec());
        let needed = table.columns_to_update(&changed);
        let (old, found) = self.read(target, &needed, 1, std::iter::once((0, id)));
        if found.is_empty() {
            return Ok(());
        }
        let mut new = old.clone();
        for (column, value) in set_columns.iter().zip(values) {
            let mut builder = Builder::new(table.general(*column));
            push(&mut builder, value, table.general(*column));
            new.set(*column, builder.finish());
        }
        table.generate(Some(&changed), context, &mut new, Rows::all(1))?;
        if let Some((_, violation)) =
            self.first_violation(target, &new, Rows::all(1), Some(&changed), context)
        {
            return Err(self.violation(target, violation, &new.row(0), Some(id), guard));
        }
        self.update(target, id, &changed, &new.row(0), &old.row(0), true, guard)
    }

    /// Deletes a row, of which the [columns that it must know](Target::columns_to_delete) are given.
    pub(crate) fn delete(
        &mut self,
        target: usize,
        id: RowId,
        old: &dyn RowData,
        guard: &Guard,
    ) -> Result<()> {
        let set = self.set;
        let table = set.target(target);
        let referrers = match self.transaction.trusts_references() {
            true => &table.referrers[..0],
            false => &table.referrers[..],
        };
        for (position, referrer) in referrers.iter().enumerate() {
            let key = key_values(table, &referrer.columns, old)?;
            if !key.iter().any(Value::is_null) {
                self.pending.push_back(Pending::Gone { target, referrer: position, old: key, new: None });
            }
        }
        self.transaction.delete(&table.table, id, guard)
    }

    /// Notes if a row that was just written shares a deferrable key, perhaps with a row that has left it or is about to: the end of
    /// the statement or of the transaction tests it.
    fn look_for_shared_key(
        &mut self,
        target: usize,
        position: usize,
        row: RowId,
        guard: &Guard,
    ) -> Result<()> {
        let table = self.set.target(target);
        let key = &table.late_keys[position];
        let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, key.columns.len());
        // Its own row: no other transaction can change it.
        let snapshot = self.transaction.snapshot();
        if !table.table.read(snapshot, row, &key.columns, &mut cells, guard) {
            return Ok(());
        }
        let mut encoded = KeyBuffer::new();
        key.index.encode(&cells, &mut encoded);
        if !self.transaction.shares_key(&table.table, &key.index, &encoded, row, guard) {
            return Ok(());
        }
        if self.transaction.defers(key.constraint, key.deferral) {
            return self.transaction.defer(Check::Row { constraint: key.constraint, row });
        }
        self.pending.push_back(Pending::SharedKey { target, key: position, row });
        Ok(())
    }

    /// Tests a foreign key of a row that was just written, or leaves that to the end of the statement or of the transaction.
    #[allow(clippy::too_many_arguments)]
    fn check_reference(
        &mut self,
        target: usize,
        position: usize,
        id: RowId,
        row: &dyn RowData,
        by_action: bool,
        guard: &Guard,
    ) -> Result<()> {
        let table = self.set.target(target);
        let reference = &table.references[position];
        let refers = reference.refers(reference.columns.iter().map(|column| row.datum(*column).is_null()));
        if !refers || self.transaction.trusts_references() {
            return Ok(());
        }
        if self.transaction.defers(reference.constraint, reference.deferral) {
            return self.transaction.defer(Check::Row { constraint: reference.constraint, row: id });
        }
        if reference.to_itself || by_action || self.has_several_changes {
            self.pending.push_back(Pending::Reference { target, reference: position, row: id });
            return Ok(());
        }
        let key = key_values(table, &reference.columns, row)?;
        foreign_key::check_reference(self.transaction, &table.definition, reference, &key, guard)
    }

    /// Carries out the actions of foreign keys and tests what had to wait for the end of the statement.
    pub fn finish(self, context: &Context<'_>) -> Result<()> {
        if self.pending.is_empty() { Ok(()) } else { foreign_key::finish(self, context) }
    }
}

/// How a row violates a constraint that is tested before it is written.
pub(crate) enum Violation {
    /// A column must not be NULL.
    Null(ColumnId),
    /// A CHECK, by its number, is false.
    Check(usize),
    /// A CHECK raises an error.
    Failed(Error),
}

fn positions(rows: Rows<'_>) -> Vec<u16> {
    match rows.positions() {
        Some(positions) => positions.to_vec(),
        None => (0..rows.length()).map(|row| row as u16).collect(),
    }
}

/// The values of some columns of a row, as they are stored.
pub(super) fn key_values(table: &Target, key: &[ColumnId], row: &dyn RowData) -> Result<Vec<Value>> {
    let value = |column: &ColumnId| {
        let to = table.stored(*column);
        Ok(stored(row.datum(*column), to)?.cell().to_value(to))
    };
    key.iter().map(value).collect()
}
