//! UPDATE.

use super::{Applying, Assignments, sorted};
use crate::template::Template;
use firn_base::Result;
use firn_txn::pin;
use firn_vector::Chunk;
use firn_vector::selection::Rows;

/// An update of rows.
pub struct UpdatePlan {
    /// Where the row's id is.
    pub row: usize,
    /// The new values.
    pub set: Template<Assignments>,
}

impl Applying<'_, '_> {
    /// Updates the rows of a chunk. Of several that change one row the first counts.
    pub(super) fn update(&mut self, plan: &UpdatePlan, chunk: &Chunk) -> Result<()> {
        let length = chunk.length();
        let positions = self.claimed(chunk, plan.row);
        let set = plan.set.copy();
        let columns = self.table().with_generated(set.iter().map(|(column, _)| *column).collect());
        let needed = self.table().columns_to_update(&columns);
        let images = self.image_columns(true, &[]).chain(self.image_columns(false, &columns));
        let needed = sorted(needed.into_iter().chain(images));
        let (old, found) = self.old_rows(chunk, plan.row, &needed, &positions);
        let mut new = old.clone();
        let rows = Rows::at(&found, length);
        self.assign(set, chunk, rows, &mut new)?;
        self.table().generate(Some(&columns), self.scope.context, &mut new, rows)?;
        let violated =
            self.state.writer.first_violation(self.target, &new, rows, Some(&columns), self.scope.context);
        let until = violated.as_ref().map_or(found.len(), |(place, _)| *place);
        for row in &found[..until] {
            self.scope.context.check_cancel()?;
            let row = usize::from(*row);
            let id = Applying::id(chunk, plan.row, row);
            let writer = &mut self.state.writer;
            writer.update(self.target, id, &columns, &new.row(row), &old.row(row), false, &pin())?;
            self.claim_present(id);
        }
        if let Some((place, violation)) = violated {
            let row = usize::from(found[place]);
            let id = Applying::id(chunk, plan.row, row);
            return Err(self.state.writer.violation(self.target, violation, &new.row(row), Some(id), &pin()));
        }
        self.done(&found, chunk, Some(&old), Some(&new))
    }
}
