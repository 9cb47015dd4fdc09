//! INSERT, UPDATE, DELETE and MERGE: sinks that change a table.
//!
//! Where the change might meet its own rows, the rows of its input are collected first, which several workers may do; else it takes
//! them as they come. Rows are changed in their order. What is computed of them (new values, NOT NULL, CHECK, the columns of old rows)
//! is computed for a whole chunk before; the first row that violates a constraint is still reached in its turn, after those before it.

mod conflict;
mod delete;
mod insert;
mod merge;
mod update;

pub use conflict::{ArmPlan, ConflictUpdatePlan};
pub use insert::InsertPlan;
pub use merge::{MergeActionPlan, MergeArmPlan, MergePlan};
pub use update::UpdatePlan;

use crate::buffer::RowBuffer;
use crate::effects::State;
use crate::expression::{Expression, Scope, converted};
use crate::pipeline::{Sink, SinkPlan, Work};
use crate::write::{RowVectors, Target, fitted};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Representation, Result, RowId, SqlState};
use firn_plan::operator::SourceId;
use firn_vector::builder::Builder;
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Datum, Selection, Vector};
use std::any::Any;

/// A change of a table.
pub struct ChangePlan(pub Arc<Change>);

/// What it is.
pub struct Change {
    /// The table.
    pub target: SourceId,
    /// What is done.
    pub kind: ChangeKind,
    /// The columns of changed rows that it gives.
    pub images: Vec<ImagePlan>,
    /// The columns of its input that it passes on, behind the images.
    pub passed_on: Vec<usize>,
    /// How the columns of its input lie.
    pub input: Vec<Representation>,
    /// Whether the rows of its input are collected before the first change.
    pub collects: bool,
    /// Whether the input gives no row of the table twice, and the statement changes rows of the table nowhere else.
    pub rows_are_distinct: bool,
}

/// What is done to rows.
pub enum ChangeKind {
    /// INSERT
    Insert(InsertPlan),
    /// UPDATE
    Update(UpdatePlan),
    /// DELETE: where the row's id is.
    Delete(usize),
    /// MERGE
    Merge(MergePlan),
}

/// A column of a changed row.
#[derive(Clone, Copy)]
pub struct ImagePlan {
    /// What it shows.
    pub of: ImageOf,
    /// Whether it is that of the row before the change.
    pub old: bool,
    /// How its values shall lie.
    pub representation: Representation,
}

/// What a column of a changed row shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ImageOf {
    /// A column of the table.
    Column(ColumnId),
    /// `xmax`
    Holder,
    /// `ctid` of an inserted or merged row.
    Id,
}

impl ImagePlan {
    fn column(&self) -> Option<ColumnId> {
        match self.of {
            ImageOf::Column(column) => Some(column),
            ImageOf::Holder | ImageOf::Id => None,
        }
    }
}

/// Values for columns of a table.
pub type Assignments = Vec<(ColumnId, Expression)>;

/// What a change has done: the content of its slot.
pub struct Changed {
    /// How many rows it has changed.
    pub count: u64,
    /// Their images.
    pub images: RowBuffer,
}

struct ChangeSink {
    collected: RowBuffer,
    changed: Changed,
}

impl SinkPlan for ChangePlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Sink>> {
        let images = self.0.images.iter().map(|image| image.representation);
        let passed_on = self.0.passed_on.iter().map(|place| self.0.input[*place]);
        let options = &work.run.options;
        let changed =
            Changed { count: 0, images: RowBuffer::new(images.chain(passed_on).collect(), options) };
        let collected = RowBuffer::new(self.0.input.clone(), options);
        match self.0.collects {
            true => Ok(Box::new(ChangeSink { collected, changed })),
            false => Ok(Box::new(Streaming { change: self.0.clone(), changed })),
        }
    }

    fn finish(&self, work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>> {
        if !self.0.collects {
            let mut sinks = super::own::<Streaming>(sinks);
            return Ok(Arc::new(sinks.next().expect("one worker has run it").changed));
        }
        let mut changed = None;
        for ChangeSink { collected, changed: empty } in super::own::<ChangeSink>(sinks) {
            let changed = changed.get_or_insert(empty);
            for number in 0..collected.len() {
                self.0.apply(work, changed, &collected.get(number)?)?;
            }
        }
        Ok(Arc::new(changed.expect("there is a worker")))
    }
}

impl Sink for ChangeSink {
    fn consume(&mut self, _: Work<'_>, chunk: Chunk) -> Result<bool> {
        self.collected.push(chunk)?;
        Ok(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The sink of a change that takes rows as they come.
struct Streaming {
    change: Arc<Change>,
    changed: Changed,
}

impl Sink for Streaming {
    fn consume(&mut self, work: Work<'_>, chunk: Chunk) -> Result<bool> {
        let change = self.change.clone();
        change.apply(work, &mut self.changed, &chunk)?;
        Ok(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Change {
    fn apply(&self, work: Work<'_>, changed: &mut Changed, chunk: &Chunk) -> Result<()> {
        let effects = work.effects.expect("a program with changes is executed");
        effects.with(&mut |state| {
            let target = state.writer.set().position(self.target);
            let mut applying = Applying { change: self, target, scope: work.scope(), state, changed };
            match &self.kind {
                ChangeKind::Insert(plan) => applying.insert(plan, chunk),
                ChangeKind::Update(plan) => applying.update(plan, chunk),
                ChangeKind::Delete(row) => applying.delete(*row, chunk),
                ChangeKind::Merge(plan) => applying.merge(plan, chunk),
            }
        })
    }
}

/// A change of the rows of one chunk.
struct Applying<'s, 't> {
    change: &'s Change,
    /// Where the table is in the set.
    target: usize,
    scope: Scope<'s>,
    state: &'s mut State<'t>,
    changed: &'s mut Changed,
}

impl<'s, 't> Applying<'s, 't> {
    fn table(&self) -> &'t Target {
        self.state.writer.set().target(self.target)
    }

    /// Values for columns in some rows of a chunk, added to those that are known.
    fn assign(
        &mut self,
        mut assignments: Assignments,
        chunk: &Chunk,
        rows: Rows<'_>,
        columns: &mut RowVectors,
    ) -> Result<()> {
        let table = self.table();
        for (column, expression) in &mut assignments {
            let vector = expression.evaluate_on(&self.scope, chunk.vectors(), rows)?;
            columns.set(*column, fitted(&vector, table.general(*column), rows)?);
        }
        Ok(())
    }

    /// The ids of rows of a chunk.
    fn id(chunk: &Chunk, column: usize, row: usize) -> RowId {
        match chunk.vectors()[column].datum(row) {
            Datum::Int64(bits) => RowId::from_bits(bits as u64),
            other => panic!("{other:?} is the id of no row"),
        }
    }

    /// The rows of a chunk that the statement has not changed yet. It changes them now.
    fn claimed(&mut self, chunk: &Chunk, row_column: usize) -> Vec<u16> {
        let mut positions = Vec::with_capacity(chunk.count());
        chunk.rows().each(|row| {
            let id = Applying::id(chunk, row_column, row);
            if self.change.rows_are_distinct || self.state.writer.claim(self.target, id) {
                positions.push(row as u16);
            }
        });
        positions
    }

    /// Notes the present id of a row that the statement has changed or inserted.
    fn claim_present(&mut self, id: RowId) {
        if !self.change.rows_are_distinct {
            let table = &self.table().table;
            let id = self.state.writer.transaction.current_row_id(table, id);
            self.state.writer.claim(self.target, id);
        }
    }

    /// The columns of images that are those of old rows, or those of new ones that are not in `set`.
    fn image_columns(&self, old: bool, set: &[ColumnId]) -> impl Iterator<Item = ColumnId> {
        let wanted = self.change.images.iter().filter(|image| image.old == old);
        let columns: Vec<ColumnId> =
            wanted.filter_map(ImagePlan::column).filter(|column| !set.contains(column)).collect();
        columns.into_iter()
    }

    /// Counts rows that have been changed, and keeps their images with what is passed on of the chunk whose rows they are.
    fn done(
        &mut self,
        rows: &[u16],
        chunk: &Chunk,
        old: Option<&RowVectors>,
        new: Option<&RowVectors>,
    ) -> Result<()> {
        self.done_with(rows, chunk, old, new, &[], &[])
    }

    /// Whether a column shows the ids of inserted rows.
    fn shows_ids(&self) -> bool {
        self.change.images.iter().any(|image| image.of == ImageOf::Id)
    }

    /// As [`Applying::done`]. The transaction has found the rows for which `existed` is true, and locked them. `ids` are those of the
    /// rows, if they are shown.
    fn done_with(
        &mut self,
        rows: &[u16],
        chunk: &Chunk,
        old: Option<&RowVectors>,
        new: Option<&RowVectors>,
        existed: &[bool],
        ids: &[RowId],
    ) -> Result<()> {
        // What PostgreSQL shows is the number of the transaction that holds the lock. Ours have none that lasts: any but 0 says it.
        let own = u32::MAX;
        self.changed.count += rows.len() as u64;
        let length = chunk.length();
        let selected = Rows::at(rows, length);
        let image = |image: &ImagePlan| match (if image.old { old } else { new }, image.of) {
            (Some(columns), ImageOf::Column(column)) => {
                converted(columns.vector(column), image.representation, selected)
            }
            (None, ImageOf::Column(_)) => Vector::null(image.representation, length),
            (_, ImageOf::Id) => {
                let mut of_rows = vec![Datum::Null; length];
                for (row, id) in rows.iter().zip(ids) {
                    of_rows[usize::from(*row)] = Datum::Int64(id.to_bits() as i64);
                }
                let mut builder = Builder::new(image.representation);
                of_rows.into_iter().for_each(|id| builder.push(id));
                builder.finish()
            }
            (_, ImageOf::Holder) => {
                let mut builder = Builder::new(image.representation);
                let holder = |row: usize| if existed.get(row) == Some(&true) { own } else { 0 };
                (0..length).for_each(|row| builder.push(Datum::UInt32(holder(row))));
                builder.finish()
            }
        };
        let passed_on = self.change.passed_on.iter().map(|place| chunk.vectors()[*place].clone());
        let vectors = self.change.images.iter().map(image).chain(passed_on).collect();
        let chunk = Chunk::new(length, vectors).with_selection(Some(Selection::new(rows.to_vec())));
        self.changed.images.push(chunk)
    }
}

fn sorted(columns: impl Iterator<Item = ColumnId>) -> Vec<ColumnId> {
    let mut columns: Vec<ColumnId> = columns.collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// The error of a second change of one row, where that is one.
fn second_change(command: &str, hint: &str) -> firn_base::Error {
    let message = format!("{command} command cannot affect row a second time");
    firn_base::Error::new(SqlState::CARDINALITY_VIOLATION, message).with_hint(hint)
}
