//! Row changes and locks of short programs: what rows have come is known before the first is changed.

use super::run::Run;
use super::sink::{keep, row_id};
use super::{Done, ShortProgram, State};
use crate::effects::State as Effects;
use crate::expression::{CellScope, datum_of_cell};
use crate::stages::{LockedRows, lock_row_of};
use crate::write::{Cells, RowData, Target, TargetSet, fitted_value};
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Representation, Result, RowId, Value};
use firn_plan::operator::LockWait;
use firn_storage::Table;
use firn_txn::{Transaction, pin};
use firn_vector::{Context, Datum, Slot};
use smallvec::SmallVec;

/// What a program does beside finding rows.
pub(super) enum Body {
    Query,
    Lock(Lock),
    Change(Change),
}

/// Locks of the rows that rows are made of.
pub(super) struct Lock {
    /// Where a target's row id is, is a place.
    pub targets: Vec<LockedRows>,
    /// The table of each target.
    pub tables: Vec<Arc<Table>>,
}

/// A change of a table.
pub(super) struct Change {
    /// Where the table is among those that the statement writes to.
    pub target: usize,
    pub kind: ChangeKind,
    /// The columns that change: those that get values, and behind them the generated ones.
    pub columns: Vec<ColumnId>,
    /// The expression of each that gets a value, and how its values lie.
    pub values: Vec<(usize, Representation)>,
    /// The generated ones.
    pub generated: Vec<ColumnId>,
    /// The columns of the old row that are used.
    pub old: Vec<ColumnId>,
    /// What RETURNING sees.
    pub images: Vec<ShortImage>,
    /// What it computes of that: expressions and registers.
    pub returning: Vec<(usize, usize)>,
}

pub(super) enum ChangeKind {
    /// For each column of the table its place among those that change.
    Insert(Vec<Option<usize>>),
    /// The place of the row's id.
    Update(usize),
    Delete(usize),
}

/// A column of a changed row, in a register.
pub(super) struct ShortImage {
    pub column: ColumnId,
    pub old: bool,
    pub register: usize,
}

impl Body {
    /// Whether rows that LIMIT leaves out need not be found.
    pub fn takes_in_order(&self) -> bool {
        !matches!(self, Body::Change(_))
    }
}

impl Lock {
    /// How many rows must be found, at most, so that a limit is reached.
    pub fn wanted(&self, in_order: bool, take: u64, skip: u64) -> u64 {
        let may_skip = self.targets.iter().any(|target| target.wait == LockWait::Skip);
        if in_order && !may_skip { take.saturating_add(skip) } else { u64::MAX }
    }
}

impl Change {
    /// Keeps what is to be done with a row that has come.
    pub fn collect(&self, run: &Run<'_, '_>, state: &mut State) -> Result<()> {
        let State { expressions, registers, assigned, assigned_now, ids, .. } = state;
        let row = run.row(registers);
        for (number, representation) in &self.values {
            let value = expressions[*number].evaluate(run.scope, &row)?;
            keep(assigned, assigned_now, fitted_value(value, *representation)?);
        }
        ids.push(match self.kind {
            ChangeKind::Insert(_) => None,
            ChangeKind::Update(place) | ChangeKind::Delete(place) => row_id(&row, place),
        });
        Ok(())
    }

    /// Computes the generated columns of a row with these values.
    fn generate(
        &self,
        context: &Context<'_>,
        old: &OldRow<'_>,
        assigned: &[Slot],
        generated: &mut [Slot],
    ) -> Result<()> {
        for (place, column) in self.generated.iter().enumerate() {
            let (before, rest) = generated.split_at_mut(place);
            let values = NewValues { assigned, generated: before };
            match &self.kind {
                ChangeKind::Insert(places) => {
                    old.table.generate_one(*column, context, &NewRow { values, places }, &mut rest[0])?;
                }
                ChangeKind::Update(_) | ChangeKind::Delete(_) => {
                    let row = UpdatedRow { old, columns: &self.columns, values };
                    old.table.generate_one(*column, context, &row, &mut rest[0])?;
                }
            }
        }
        Ok(())
    }
}

/// What a row gets: first the values that the statement gives, then those of generated columns that have been computed.
#[derive(Clone, Copy)]
struct NewValues<'a> {
    assigned: &'a [Slot],
    generated: &'a [Slot],
}

impl NewValues<'_> {
    #[inline]
    fn get(&self, place: usize) -> Datum<'_> {
        match self.assigned.get(place) {
            Some(slot) => slot.get(),
            None => self.generated.get(place - self.assigned.len()).map_or(Datum::Null, Slot::get),
        }
    }

    fn is_null(&self, place: usize) -> bool {
        match self.assigned.get(place) {
            Some(slot) => slot.is_null(),
            None => self.generated.get(place - self.assigned.len()).is_none_or(Slot::is_null),
        }
    }
}

/// A row to insert.
struct NewRow<'a> {
    values: NewValues<'a>,
    places: &'a [Option<usize>],
}

impl RowData for NewRow<'_> {
    fn get(&self, column: ColumnId) -> Option<Datum<'_>> {
        Some(self.datum(column))
    }

    #[inline]
    fn datum(&self, column: ColumnId) -> Datum<'_> {
        match self.places[column.index()] {
            Some(place) => self.values.get(place),
            None => Datum::Null,
        }
    }

    fn is_null(&self, column: ColumnId) -> bool {
        self.places[column.index()].is_none_or(|place| self.values.is_null(place))
    }
}

/// The columns that are used of a row as it was.
struct OldRow<'a> {
    table: &'a Target,
    columns: &'a [ColumnId],
    cells: Cells<'a>,
}

impl RowData for OldRow<'_> {
    fn get(&self, column: ColumnId) -> Option<Datum<'_>> {
        let place = self.columns.iter().position(|known| *known == column)?;
        Some(datum_of_cell(&self.cells[place], self.table.stored(column), self.table.general(column)))
    }
}

/// The same with the columns that are set.
struct UpdatedRow<'a, 'o> {
    old: &'a OldRow<'o>,
    columns: &'a [ColumnId],
    values: NewValues<'a>,
}

impl RowData for UpdatedRow<'_, '_> {
    fn get(&self, column: ColumnId) -> Option<Datum<'_>> {
        match self.columns.iter().position(|known| *known == column) {
            Some(place) => Some(self.values.get(place)),
            None => self.old.get(column),
        }
    }

    #[inline]
    fn datum(&self, column: ColumnId) -> Datum<'_> {
        match self.columns.iter().position(|known| *known == column) {
            Some(place) => self.values.get(place),
            None => self.old.datum(column),
        }
    }
}

impl ShortProgram {
    /// Runs it with its changes or locks.
    pub(super) fn change(
        &self,
        state: &mut State,
        targets: &TargetSet,
        transaction: &mut Transaction,
        parameters: &[Value],
        scope: CellScope<'_>,
        values: &mut Vec<Value>,
    ) -> Result<Option<Done>> {
        // Before anything is read or a guard is held, since it may have to wait for a table.
        for target in targets.named() {
            transaction.lock_row_exclusive_to_read(&target.table)?;
        }
        if let Body::Lock(lock) = &self.body {
            for table in &lock.tables {
                transaction.lock_row_share_to_read(table)?;
            }
        }
        let begin = values.len();
        let Some(rows) = self.rows(state, transaction, parameters, scope, values)? else { return Ok(None) };
        let (count, rows) = match &self.body {
            Body::Query => (None, rows),
            Body::Lock(lock) => {
                let (take, skip) = self.limit(state, scope)?;
                let mut effects = Effects::new(targets, transaction, false, 1);
                let rows = self.lock(lock, state, &mut effects, (take, skip), begin, rows, scope, values)?;
                effects.finish(scope.context)?;
                (None, rows)
            }
            Body::Change(change) => {
                let mut effects = Effects::new(targets, transaction, false, 1);
                let count = self.write(change, state, &mut effects, rows, scope, values)?;
                effects.finish(scope.context)?;
                (Some(count), if self.outputs.is_empty() { 0 } else { count as usize })
            }
        };
        Ok(Some(Done { count, rows }))
    }

    /// Makes the change of each row. How many rows have been changed.
    fn write(
        &self,
        change: &Change,
        state: &mut State,
        effects: &mut Effects<'_>,
        rows: usize,
        scope: CellScope<'_>,
        output: &mut Vec<Value>,
    ) -> Result<u64> {
        let writer = &mut effects.writer;
        let table = writer.set().target(change.target);
        let (width, mut count) = (change.values.len(), 0);
        for number in 0..rows {
            scope.context.check_cancel()?;
            let guard = pin();
            let State { expressions, registers, assigned, generated, ids, .. } = &mut *state;
            let assigned = &assigned[number * width..][..width];
            let id = ids[number];
            let mut old = OldRow { table, columns: &change.old, cells: SmallVec::new() };
            if !change.old.is_empty() {
                let id = id.expect("the row has an id");
                old.cells.resize(change.old.len(), Cell::Null);
                if !writer.transaction.peek(&table.table, id, &change.old, &mut old.cells, &guard) {
                    continue;
                }
            }
            change.generate(scope.context, &old, assigned, generated)?;
            let values = NewValues { assigned, generated };
            let (inserted, updated);
            let new: Option<&dyn RowData> = match (&change.kind, id) {
                (ChangeKind::Insert(places), _) => {
                    inserted = NewRow { values, places };
                    writer.check(change.target, &inserted, id, None, scope.context, &guard)?;
                    writer.insert(change.target, &inserted, &guard)?;
                    Some(&inserted)
                }
                (ChangeKind::Update(_), Some(id)) => {
                    let columns = &change.columns[..];
                    updated = UpdatedRow { old: &old, columns, values };
                    writer.check(change.target, &updated, Some(id), Some(columns), scope.context, &guard)?;
                    writer.update(change.target, id, columns, &updated, &old, false, &guard)?;
                    Some(&updated)
                }
                (ChangeKind::Delete(_), Some(id)) => {
                    writer.delete(change.target, id, &old, &guard)?;
                    None
                }
                (ChangeKind::Update(_) | ChangeKind::Delete(_), None) => {
                    unreachable!("rows that are changed have ids")
                }
            };
            count += 1;
            for image in &change.images {
                let row = if image.old { &old } else { new.expect("only old rows are deleted") };
                registers[image.register].set(row.datum(image.column));
            }
            for (expression, register) in &change.returning {
                let (before, rest) = registers.split_at_mut(*register);
                let row = self.row_without_cells(before, scope);
                rest[0].set(expressions[*expression].evaluate(scope, &row)?);
            }
            let row = self.row_without_cells(registers, scope);
            output.extend(self.outputs.iter().map(|output| row.value(*output)));
        }
        Ok(count)
    }

    /// Locks the rows that have been found, as many as a limit lets pass. How many rows the result has; others' values are removed.
    #[allow(clippy::too_many_arguments)]
    fn lock(
        &self,
        lock: &Lock,
        state: &State,
        effects: &mut Effects<'_>,
        (mut take, mut skip): (u64, u64),
        begin: usize,
        rows: usize,
        scope: CellScope<'_>,
        values: &mut Vec<Value>,
    ) -> Result<usize> {
        let (width, count) = (self.outputs.len(), lock.targets.len());
        let mut kept = 0;
        for row in 0..rows {
            if take == 0 {
                break;
            }
            scope.context.check_cancel()?;
            let ids: &[Option<RowId>] = &state.ids[row * count..][..count];
            let mut is_locked = true;
            for ((target, table), id) in lock.targets.iter().zip(&lock.tables).zip(ids) {
                let Some(id) = id else { continue };
                if !lock_row_of(target, effects, table, *id)? {
                    is_locked = false;
                    break;
                }
            }
            if !is_locked {
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            for place in 0..width {
                values.swap(begin + kept * width + place, begin + row * width + place);
            }
            (kept, take) = (kept + 1, take.saturating_sub(1));
        }
        if take == 0 {
            effects.has_enough();
        }
        values.truncate(begin + kept * width);
        Ok(kept)
    }
}
