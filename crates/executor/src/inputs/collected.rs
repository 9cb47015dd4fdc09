//! The rows that a pipeline has collected: sorted rows, and those of a build side.

use crate::columns::Table;
use crate::keys::{KeyLayout, Keys};
use crate::pipeline::{Input, InputPlan, OpenInput, SlotId, Step, Work};
use crate::run::Run;
use crate::sinks::{Build, Drained, Merge, Sorted};
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{Representation, Result};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Selection, Vector};

/// The rows of a slot that holds a [`Sorted`], in their order.
pub struct SortedPlan {
    /// Which slot.
    pub slot: SlotId,
    /// The columns of the table that go on.
    pub columns: Vec<usize>,
}

/// The rows of a build side that have had a partner, or those that have not, behind NULLs for the other side.
#[derive(Clone)]
pub struct MatchedPlan {
    /// The slot of the build side.
    pub slot: SlotId,
    /// The slot that is filled once all partners have been found; without it they have been when this is read.
    pub after: Option<SlotId>,
    /// Whether rows with a partner are wanted.
    pub matched: bool,
    /// How the other side's columns lie.
    pub padding: Vec<Representation>,
    /// The columns of the build side that go on.
    pub columns: Vec<usize>,
}

struct Cursor {
    plan: MatchedPlan,
    next: Arc<AtomicU64>,
}

impl InputPlan for MatchedPlan {
    fn open(&self, _: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        Ok(Arc::new(Cursor { plan: self.clone(), next: Arc::new(AtomicU64::new(0)) }))
    }
}

impl OpenInput for Cursor {
    fn worker(&self, _: &Run) -> Box<dyn Input> {
        Box::new(Cursor { plan: self.plan.clone(), next: self.next.clone() })
    }
}

struct OpenSorted(SlotId, Vec<usize>);

impl InputPlan for SortedPlan {
    fn open(&self, _: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        Ok(Arc::new(OpenSorted(self.slot, self.columns.clone())))
    }
}

impl OpenInput for OpenSorted {
    fn worker(&self, _: &Run) -> Box<dyn Input> {
        Box::new(SortedInput { slot: self.0, columns: self.1.clone(), from: 0, merge: None, last: None })
    }
}

/// Sorted rows, which one worker reads.
struct SortedInput {
    slot: SlotId,
    columns: Vec<usize>,
    from: usize,
    merge: Option<Merge>,
    /// The group of the last row, if only the first row of each goes on.
    last: Option<Keys>,
}

impl Input for SortedInput {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        let Some(sorted) = work.run.filled::<Sorted>(self.slot) else { return Ok(Step::Blocked(self.slot)) };
        let most = work.run.options.vector_rows;
        match &*sorted {
            Sorted::Memory { table, order, .. } => {
                let places = &order[self.from..order.len().min(self.from + most)];
                if places.is_empty() {
                    return Ok(Step::Done);
                }
                self.from += places.len();
                let vectors = table.gather(self.columns.iter().copied(), places);
                Ok(Step::Full(Chunk::new(places.len(), vectors)))
            }
            Sorted::Runs { runs, representations, layout, first_of } => {
                let merge = match &mut self.merge {
                    Some(merge) => merge,
                    None => {
                        let (representations, layout) = (representations.clone(), layout.clone());
                        self.merge.insert(Merge::new(work, runs.clone(), representations, layout)?)
                    }
                };
                let table = merge.next(most)?;
                if table.rows() == 0 {
                    return Ok(Step::Done);
                }
                let vectors = table.slice(self.columns.iter().copied(), 0, table.rows());
                let chunk = Chunk::new(table.rows(), vectors);
                Ok(Step::Full(match first_of {
                    Some((columns, layout)) => self.first_of_each(&table, chunk, columns, layout),
                    None => chunk,
                }))
            }
        }
    }
}

impl SortedInput {
    /// The rows that have another group than the row before.
    fn first_of_each(&mut self, table: &Table, chunk: Chunk, columns: &[usize], layout: &KeyLayout) -> Chunk {
        let vectors = table.slice(columns.iter().copied(), 0, table.rows());
        let keys = layout.keys(&vectors, Rows::all(table.rows()));
        let is_first = |row: usize| match row {
            0 => self.last.as_ref().is_none_or(|last| last.get(0) != keys.get(0)),
            _ => keys.get(row - 1) != keys.get(row),
        };
        let selection = Selection::filter(table.rows(), is_first);
        let mut last = layout.none();
        last.push(keys.get(table.rows() - 1));
        self.last = Some(last);
        chunk.with_selection(Some(selection))
    }
}

impl Input for Cursor {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        if let Some(after) = self.plan.after
            && work.run.filled::<Drained>(after).is_none()
        {
            return Ok(Step::Blocked(after));
        }
        let Some(build) = work.run.filled::<Build>(self.plan.slot) else {
            return Ok(Step::Blocked(self.plan.slot));
        };
        let most = work.run.options.vector_rows;
        let from = self.next.fetch_add(most as u64, Ordering::Relaxed) as usize;
        let total = build.table.rows();
        if from >= total {
            // Then come those of parts that were in temporary files.
            let number = from / most - total.div_ceil(most);
            let Some(spilled) = &build.spilled else { return Ok(Step::Done) };
            let rest = spilled.rest.lock();
            let Some(rest) = rest.as_ref().filter(|rest| number < rest.len()) else { return Ok(Step::Done) };
            let chunk = rest.get(number)?;
            let padding = self.plan.padding.iter().map(|it| Vector::null(*it, chunk.length()));
            let vectors = padding.chain(chunk.vectors().iter().cloned()).collect();
            return Ok(Step::Full(Chunk::new(chunk.length(), vectors)));
        }
        let rows = from..total.min(from + most);
        let places: Vec<u32> =
            rows.map(|row| row as u32).filter(|row| build.is_matched(*row) == self.plan.matched).collect();
        let padding = self.plan.padding.iter().map(|it| Vector::null(*it, places.len()));
        let columns = build.table.gather(self.plan.columns.iter().copied(), &places);
        Ok(Step::Full(Chunk::new(places.len(), padding.chain(columns).collect())))
    }
}
