//! INSERT.

use super::conflict::ArmPlan;
use super::{Applying, Assignments};
use crate::template::Template;
use crate::write::RowVectors;
use firn_base::{ColumnId, Error, Result, RowId};
use firn_txn::pin;
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Vector};

/// An insertion of rows.
pub struct InsertPlan {
    /// The values; columns without one are NULL.
    pub values: Template<Assignments>,
    /// ON CONFLICT.
    pub arms: Vec<ArmPlan>,
}

impl Applying<'_, '_> {
    /// Inserts the rows of a chunk.
    pub(super) fn insert(&mut self, plan: &InsertPlan, chunk: &Chunk) -> Result<()> {
        let (new, rows) = self.new_rows(plan.values.copy(), chunk, chunk.rows())?;
        let violated = self.state.writer.first_violation(
            self.target,
            &new,
            Rows::at(&rows, chunk.length()),
            None,
            self.scope.context,
        );
        let until = violated.as_ref().map_or(rows.len(), |(place, _)| *place);
        match plan.arms.is_empty() {
            true if self.inserts_together(until) => {
                self.scope.context.check_cancel()?;
                self.state
                    .writer
                    .insert_together(self.target, &new, &rows[..until])
                    .map_err(Error::without_row)?;
                if violated.is_none() {
                    self.done(&rows, chunk, None, Some(&new))?;
                }
            }
            true => {
                let mut ids = Vec::with_capacity(until);
                for row in &rows[..until] {
                    ids.push(self.insert_row(&new, usize::from(*row))?);
                }
                if violated.is_none() {
                    self.done_with(&rows, chunk, None, Some(&new), &[], &ids)?;
                }
            }
            false => {
                let written = self.insert_or_update(plan, &new, chunk, &rows[..until])?;
                if violated.is_none() {
                    self.done_by_id(&written)?;
                }
            }
        }
        match violated {
            Some((place, violation)) => {
                let row = usize::from(rows[place]);
                Err(self.state.writer.violation(self.target, violation, &new.row(row), None, &pin()))
            }
            None => Ok(()),
        }
    }

    /// Whether so many rows are inserted together.
    fn inserts_together(&self, rows: usize) -> bool {
        /// Fewer rows are faster one by one.
        const LEAST: usize = 8;
        self.change.rows_are_distinct
            && rows >= LEAST
            && !self.shows_ids()
            && self.state.writer.inserts_together(self.target)
    }

    /// All columns of new rows with these values, and which of a chunk's rows they are.
    pub(super) fn new_rows(
        &mut self,
        values: Assignments,
        chunk: &Chunk,
        rows: Rows<'_>,
    ) -> Result<(RowVectors, Vec<u16>)> {
        let table = self.table();
        let mut new = RowVectors::new(table.width());
        for number in 0..table.width() {
            let column = ColumnId(number as u16);
            new.set(column, Vector::null(table.general(column), chunk.length()));
        }
        self.assign(values, chunk, rows, &mut new)?;
        table.generate(None, self.scope.context, &mut new, rows)?;
        let mut positions = Vec::with_capacity(rows.count());
        rows.each(|row| positions.push(row as u16));
        Ok((new, positions))
    }

    /// Inserts a row.
    pub(super) fn insert_row(&mut self, new: &RowVectors, row: usize) -> Result<RowId> {
        self.scope.context.check_cancel()?;
        let id = self.state.writer.insert(self.target, &new.row(row), &pin())?;
        if !self.change.rows_are_distinct {
            self.state.writer.claim(self.target, id);
        }
        Ok(id)
    }

    /// As [`Applying::done`], of rows that are read as they are now.
    fn done_by_id(&mut self, written: &[(RowId, bool)]) -> Result<()> {
        let images: Vec<ColumnId> = self.image_columns(false, &[]).collect();
        let length = written.len();
        let (new, _) = self.state.writer.read(
            self.target,
            &images,
            length,
            written.iter().map(|(id, _)| *id).enumerate(),
        );
        let rows: Vec<u16> = (0..length).map(|row| row as u16).collect();
        // An insertion passes nothing on.
        let existed: Vec<bool> = written.iter().map(|(_, existed)| *existed).collect();
        let ids: Vec<RowId> = written.iter().map(|(id, _)| *id).collect();
        self.done_with(&rows, &Chunk::new(length, Vec::new()), None, Some(&new), &existed, &ids)
    }
}
