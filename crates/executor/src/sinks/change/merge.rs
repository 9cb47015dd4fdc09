//! MERGE: each row of the source does what the first arm says whose conditions hold for it.
//!
//! Which arm that is, and the new values, are computed for a whole chunk; rows are changed in their order.

use super::{Applying, Assignments, second_change, sorted};
use crate::expression::Conditions;
use crate::template::Template;
use crate::values::{push, value};
use crate::write::{RowVectors, Violation};
use firn_base::{ColumnId, Result, RowId};
use firn_txn::pin;
use firn_vector::builder::Builder;
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Datum, Selection};

/// A merge.
pub struct MergePlan {
    /// Where the row's id is; it is NULL in rows without a match.
    pub row: usize,
    /// WHEN.
    pub arms: Vec<MergeArmPlan>,
}

/// An arm of it.
pub struct MergeArmPlan {
    /// Whether it is for rows with a match.
    pub matched: bool,
    /// AND …
    pub conditions: Template<Conditions>,
    /// What is done.
    pub action: MergeActionPlan,
}

/// What is done with a row.
pub enum MergeActionPlan {
    /// UPDATE SET
    Update(Template<Assignments>),
    /// DELETE
    Delete,
    /// INSERT
    Insert(Template<Assignments>),
    /// DO NOTHING
    Nothing,
}

/// What an arm does with the rows of a chunk that it is for.
struct ArmRows {
    action: Action,
    old: RowVectors,
    new: RowVectors,
    /// The first of its rows that violates a constraint.
    violated: Option<(u16, Violation)>,
}

enum Action {
    Update(Vec<ColumnId>),
    Delete,
    Insert,
    Nothing,
}

impl Applying<'_, '_> {
    /// Merges the rows of a chunk.
    pub(super) fn merge(&mut self, plan: &MergePlan, chunk: &Chunk) -> Result<()> {
        let length = chunk.length();
        // For each row its arm.
        let mut arm_of: Vec<Option<usize>> = vec![None; length];
        let mut open: [Vec<u16>; 2] = Default::default();
        let ids = &chunk.vectors()[plan.row];
        chunk.rows().each(|row| open[usize::from(!ids.is_null(row))].push(row as u16));
        let mut arms = Vec::with_capacity(plan.arms.len());
        for (number, arm) in plan.arms.iter().enumerate() {
            let rows = &mut open[usize::from(arm.matched)];
            let asked = chunk.clone().with_selection(Some(Selection::new(rows.clone())));
            let chosen = arm.conditions.copy().select(&self.scope, asked)?;
            let mut taken = Vec::with_capacity(chosen.count());
            chosen.rows().each(|row| {
                arm_of[row] = Some(number);
                taken.push(row as u16);
            });
            rows.retain(|row| arm_of[usize::from(*row)].is_none());
            arms.push(self.arm_rows(arm, plan.row, chunk, &taken)?);
        }
        let images = self.change.images.clone();
        let mut builders: Vec<Builder> =
            images.iter().map(|image| Builder::new(image.representation)).collect();
        let (mut count, mut merged) = (0, Vec::new());
        for row in (0..length).filter(|row| arm_of[*row].is_some()) {
            let arm = &mut arms[arm_of[row].expect("it has been filtered")];
            if let Some(id) = self.merge_row(arm, plan.row, chunk, row)? {
                count += 1;
                merged.push(row);
                for (builder, image) in builders.iter_mut().zip(&images) {
                    // RETURNING of a deleted row is over the row as it was.
                    let is_old = image.old || matches!(arm.action, Action::Delete);
                    let Some(column) = image.column() else {
                        builder.push(Datum::Int64(id.to_bits() as i64));
                        continue;
                    };
                    let vector = if is_old { &arm.old } else { &arm.new }.get(column);
                    match vector {
                        Some(vector) => {
                            let general = vector.representation();
                            push(builder, &value(vector.datum(row), general), image.representation);
                        }
                        None => builder.push_null(),
                    }
                }
            }
        }
        self.changed.count += count as u64;
        let passed_on = self.change.passed_on.iter();
        let passed_on = passed_on.map(|place| chunk.vectors()[*place].take(merged.iter().copied()));
        let vectors = builders.into_iter().map(Builder::finish).chain(passed_on).collect();
        self.changed.images.push(Chunk::new(count, vectors))
    }

    fn arm_rows(
        &mut self,
        arm: &MergeArmPlan,
        row_column: usize,
        chunk: &Chunk,
        rows: &[u16],
    ) -> Result<ArmRows> {
        let width = self.table().width();
        let (length, selected) = (chunk.length(), Rows::at(rows, chunk.length()));
        let (mut old, mut new) = (RowVectors::new(width), RowVectors::new(width));
        let (action, given) = match &arm.action {
            MergeActionPlan::Nothing => (Action::Nothing, None),
            MergeActionPlan::Delete => {
                let needed = self.table().columns_to_delete();
                let images = self.image_columns(true, &[]).chain(self.image_columns(false, &[]));
                (old, _) = self.old_rows(chunk, row_column, &sorted(needed.into_iter().chain(images)), rows);
                (Action::Delete, None)
            }
            MergeActionPlan::Insert(values) => {
                (new, _) = self.new_rows(values.copy(), chunk, selected)?;
                (Action::Insert, None)
            }
            MergeActionPlan::Update(set) => {
                let set = set.copy();
                let columns = self.table().with_generated(set.iter().map(|(column, _)| *column).collect());
                let needed = self.table().columns_to_update(&columns);
                let images = self.image_columns(true, &[]).chain(self.image_columns(false, &columns));
                (old, _) = self.old_rows(chunk, row_column, &sorted(needed.into_iter().chain(images)), rows);
                new = old.clone();
                self.assign(set, chunk, selected, &mut new)?;
                self.table().generate(Some(&columns), self.scope.context, &mut new, selected)?;
                (Action::Update(columns.clone()), Some(columns))
            }
        };
        let writes = matches!(action, Action::Insert | Action::Update(_));
        let violated = match writes {
            true => {
                let context = self.scope.context;
                self.state.writer.first_violation(self.target, &new, selected, given.as_deref(), context)
            }
            false => None,
        };
        debug_assert!(rows.iter().all(|row| usize::from(*row) < length));
        let violated = violated.map(|(place, violation)| (rows[place], violation));
        Ok(ArmRows { action, old, new, violated })
    }

    /// Does what an arm does with one row. The row that it has changed, if any.
    fn merge_row(
        &mut self,
        arm: &mut ArmRows,
        row_column: usize,
        chunk: &Chunk,
        row: usize,
    ) -> Result<Option<RowId>> {
        self.scope.context.check_cancel()?;
        if matches!(arm.action, Action::Nothing) {
            return Ok(None);
        }
        let id = (!matches!(arm.action, Action::Insert)).then(|| Applying::id(chunk, row_column, row));
        if let Some(id) = id
            && !self.state.writer.claim(self.target, id)
        {
            return Err(second_change(
                "MERGE",
                "Ensure that not more than one source row matches any one target row.",
            ));
        }
        if let Some((_, violation)) = arm.violated.take_if(|(first, _)| usize::from(*first) == row) {
            return Err(self.state.writer.violation(self.target, violation, &arm.new.row(row), id, &pin()));
        }
        let changed = match (&arm.action, id) {
            (Action::Update(columns), Some(id)) => {
                let (new, old) = (&arm.new, &arm.old);
                self.state.writer.update(
                    self.target,
                    id,
                    columns,
                    &new.row(row),
                    &old.row(row),
                    false,
                    &pin(),
                )?;
                self.claim_present(id);
                self.state.writer.transaction.current_row_id(&self.table().table, id)
            }
            (Action::Delete, Some(id)) => {
                self.state.writer.delete(self.target, id, &arm.old.row(row), &pin())?;
                id
            }
            _ => self.insert_row(&arm.new, row)?,
        };
        Ok(Some(changed))
    }
}
