//! DELETE.

use super::{Applying, sorted};
use crate::write::RowVectors;
use firn_base::{ColumnId, Result};
use firn_txn::pin;
use firn_vector::Chunk;

impl Applying<'_, '_> {
    /// Deletes the rows of a chunk.
    pub(super) fn delete(&mut self, row_column: usize, chunk: &Chunk) -> Result<()> {
        let positions = self.claimed(chunk, row_column);
        let needed = self.table().columns_to_delete();
        let needed = sorted(needed.into_iter().chain(self.image_columns(true, &[])));
        let (old, found) = self.old_rows(chunk, row_column, &needed, &positions);
        for row in &found {
            self.scope.context.check_cancel()?;
            let id = Applying::id(chunk, row_column, usize::from(*row));
            self.state.writer.delete(self.target, id, &old.row(usize::from(*row)), &pin())?;
        }
        self.done(&found, chunk, Some(&old), None)
    }

    /// Columns of the rows of the table that rows of a chunk name, and which of these are there.
    pub(super) fn old_rows(
        &self,
        chunk: &Chunk,
        row_column: usize,
        needed: &[ColumnId],
        positions: &[u16],
    ) -> (RowVectors, Vec<u16>) {
        if needed.is_empty() {
            return (RowVectors::new(self.table().width()), positions.to_vec());
        }
        let rows = positions.iter().map(|row| {
            let row = usize::from(*row);
            (row, Applying::id(chunk, row_column, row))
        });
        self.state.writer.read(self.target, needed, chunk.length(), rows)
    }
}
