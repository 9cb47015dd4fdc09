//! ON CONFLICT: what happens to a row whose key another row has.
//!
//! A row in conflict that the snapshot does not see, since it has been committed later, is found by the insertion: then the
//! statement must be run again on a newer snapshot, or fails (40001) if there can be none.

use super::insert::InsertPlan;
use super::{Applying, Assignments, fitted, second_change};
use crate::expression::Conditions;
use crate::template::Template;
use crate::write::RowVectors;
use firn_base::{Cell, ColumnId, Error, Result, RowId, Snapshot, SqlState, Stamp, Stored, Time};
use firn_storage::RowLock;
use firn_txn::{Guard, pin};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Vector};
use smallvec::SmallVec;

/// What is done where a row has a key that is taken.
pub struct ArmPlan {
    /// The oids of the indexes that count; all, if there are none.
    pub indexes: Vec<u32>,
    /// DO UPDATE; DO NOTHING if there is none.
    pub update: Option<ConflictUpdatePlan>,
}

/// DO UPDATE: expressions over columns of the row that is there, then columns of the row to insert, then columns of the input.
pub struct ConflictUpdatePlan {
    /// Those of the row that is there.
    pub existing: Vec<ColumnId>,
    /// Those of the row to insert.
    pub excluded: Vec<ColumnId>,
    /// Those of the input: values of sub-queries.
    pub given: Vec<usize>,
    /// SET and WHERE.
    pub update: Template<(Assignments, Conditions)>,
}

impl Applying<'_, '_> {
    /// Inserts rows, or does what the arms say. Returns the ids of the rows that were inserted or updated, and whether
    /// each was there before.
    pub(super) fn insert_or_update(
        &mut self,
        plan: &InsertPlan,
        new: &RowVectors,
        input: &Chunk,
        rows: &[u16],
    ) -> Result<Vec<(RowId, bool)>> {
        let mut written = Vec::with_capacity(rows.len());
        for row in rows {
            self.scope.context.check_cancel()?;
            let row = usize::from(*row);
            match self.existing(plan, new, row)? {
                None => {
                    let inserted = self.insert_row(new, row);
                    let id = inserted.map_err(|error| match self.has_missed(plan, new, row, &error) {
                        true => Error::write_conflict(&self.table().table.name()),
                        false => error,
                    })?;
                    written.push((id, false));
                }
                Some((arm, existing)) => {
                    if let Some(update) = &arm.update
                        && self.update_existing(update, existing, new, input, row)?
                    {
                        let table = &self.table().table;
                        written.push((self.state.writer.transaction.current_row_id(table, existing), true));
                    }
                }
            }
        }
        Ok(written)
    }

    /// The cells of a row to insert, by column.
    fn with_cells<R>(&self, new: &RowVectors, row: usize, call: impl FnOnce(&[Cell<'_>]) -> R) -> Result<R> {
        let table = self.table();
        let column = |number: usize| {
            let column = ColumnId(number as u16);
            crate::write::stored(new.vector(column).datum(row), table.stored(column))
        };
        let stored: SmallVec<[Stored<'_>; 24]> = (0..table.width()).map(column).collect::<Result<_>>()?;
        let cells: SmallVec<[Cell<'_>; 24]> = stored.iter().map(Stored::cell).collect();
        Ok(call(&cells))
    }

    /// The visible row that has a key of the new one, and the arm that says what to do. 55000 if that may be one of several.
    fn existing<'p>(
        &self,
        plan: &'p InsertPlan,
        new: &RowVectors,
        row: usize,
    ) -> Result<Option<(&'p ArmPlan, RowId)>> {
        let (table, guard) = (self.table(), pin());
        self.with_cells(new, row, |cells| {
            for arm in &plan.arms {
                for unique in table.unique.iter().filter(|unique| arm.names(unique.oid)) {
                    if unique.is_deferrable {
                        let message = "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters";
                        let error = Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
                        return Err(error.with_constraint(unique.name.as_str()));
                    }
                    let Some(key) = unique.key(cells) else { continue };
                    let transaction = &self.state.writer.transaction;
                    if let Some(found) = transaction.get(&table.table, &unique.index, &key, &guard) {
                        return Ok(Some((arm, found)));
                    }
                }
            }
            Ok(None)
        })?
    }

    /// Whether a row has a key of the new one that the snapshot does not see: it has been committed since. The error may be of
    /// another key, which was entered first: a newer snapshot may find the row that has both.
    fn has_missed(&self, plan: &InsertPlan, new: &RowVectors, row: usize, error: &Error) -> bool {
        if error.state() != SqlState::UNIQUE_VIOLATION {
            return false;
        }
        let (table, guard): (_, Guard) = (self.table(), pin());
        let read_time = self.state.writer.transaction.snapshot().read_time;
        let missed = self.with_cells(new, row, |cells| {
            // As others see it: the new row is there already, and may have the place of one that has gone.
            let find = |unique: &crate::write::UniqueIndex, key: &[u8], read_time| {
                let committed = Snapshot { read_time, owner: Stamp::committed(Time(0)) };
                table.table.find(&unique.index, key, committed, &[], &mut [], &guard)
            };
            let arbiters =
                table.unique.iter().filter(|unique| plan.arms.iter().any(|arm| arm.names(unique.oid)));
            arbiters.into_iter().any(|unique| {
                error.constraint() == Some(&unique.name)
                    || unique.key(cells).is_some_and(|key| {
                        let newest = find(unique, &key, Time::LATEST);
                        newest.is_some() && newest != find(unique, &key, read_time)
                    })
            })
        });
        missed.unwrap_or(false)
    }

    /// DO UPDATE of a row. Whether its WHERE holds.
    fn update_existing(
        &mut self,
        plan: &ConflictUpdatePlan,
        existing: RowId,
        new: &RowVectors,
        input: &Chunk,
        row: usize,
    ) -> Result<bool> {
        if self.state.writer.has_changed(self.target, existing) {
            return Err(second_change(
                "ON CONFLICT DO UPDATE",
                "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
            ));
        }
        let table = self.table();
        let guard = pin();
        self.state.writer.transaction.lock(&table.table, existing, RowLock::NoKeyUpdate, &guard)?;
        let (set, mut conditions) = plan.update.copy();
        let columns = table.with_generated(set.iter().map(|(column, _)| *column).collect());
        let needed = self.table().columns_to_update(&columns);
        let needed = super::sorted(needed.into_iter().chain(plan.existing.iter().copied()));
        let (old, _) = self.state.writer.read(self.target, &needed, 1, std::iter::once((0, existing)));
        let excluded = |column: &ColumnId| new.vector(*column).slice(row, 1);
        let given = |place: &usize| input.vectors()[*place].slice(row, 1);
        let vectors: Vec<Vector> = plan
            .existing
            .iter()
            .map(|column| old.vector(*column).clone())
            .chain(plan.excluded.iter().map(excluded))
            .chain(plan.given.iter().map(given))
            .collect();
        let chunk = Chunk::new(1, vectors);
        if conditions.select(&self.scope, chunk.clone())?.count() == 0 {
            // It is not changed, so what was read of it has to be logged.
            let mut cells = vec![Cell::Null; plan.existing.len()];
            self.state.writer.transaction.read(&table.table, existing, &plan.existing, &mut cells, &guard);
            return Ok(false);
        }
        let mut updated = old.clone();
        for (column, mut expression) in set {
            let value = expression.evaluate(&self.scope, &chunk)?;
            updated.set(column, fitted(&value, table.general(column), Rows::all(1))?);
        }
        let context = self.scope.context;
        table.generate(Some(&columns), context, &mut updated, Rows::all(1))?;
        let writer = &mut self.state.writer;
        if let Some((_, violation)) =
            writer.first_violation(self.target, &updated, Rows::all(1), Some(&columns), context)
        {
            return Err(writer.violation(self.target, violation, &updated.row(0), Some(existing), &guard));
        }
        writer.claim(self.target, existing);
        writer.update(self.target, existing, &columns, &updated.row(0), &old.row(0), false, &guard)?;
        let present = writer.transaction.current_row_id(&table.table, existing);
        writer.claim(self.target, present);
        Ok(true)
    }
}

impl ArmPlan {
    /// Whether an index counts.
    fn names(&self, index: u32) -> bool {
        self.indexes.is_empty() || self.indexes.contains(&index)
    }
}
