//! The rows of a scan: morsels that are cut into vectors.

use crate::execution::Run;
use crate::pipeline::{Input, InputPlan, OpenInput, Step, Work};
use crate::source::Morsels;
use firn_base::Result;
use firn_base::sync::Arc;
use firn_vector::{Chunk, Selection, Vector};

/// A scan by its number in the program.
pub struct ScanPlan(pub usize);

impl InputPlan for ScanPlan {
    fn open(&self, work: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        let scan = work.run.scan(self.0);
        Ok(Arc::new(OpenScan { morsels: scan.morsels(), is_ordered: scan.is_ordered() }))
    }
}

struct OpenScan {
    morsels: Arc<dyn Morsels>,
    is_ordered: bool,
}

impl OpenInput for OpenScan {
    fn worker(&self, run: &Run) -> Box<dyn Input> {
        Box::new(ScanInput { morsels: self.morsels.clone(), cut: Cut::new(run.options.vector_rows) })
    }

    fn is_ordered(&self) -> bool {
        self.is_ordered
    }
}

struct ScanInput {
    morsels: Arc<dyn Morsels>,
    cut: Cut,
}

impl Input for ScanInput {
    fn step(&mut self, _: Work<'_>) -> Result<Step> {
        if let Some(chunk) = self.cut.next() {
            return Ok(Step::Full(chunk));
        }
        match self.morsels.next()? {
            Some(chunk) => {
                self.cut.set(chunk);
                Ok(Step::More)
            }
            None => Ok(Step::Done),
        }
    }
}

/// Cuts a chunk into vectors of the usual length; buffers are shared.
pub(super) struct Cut {
    most: usize,
    chunk: Option<Chunk>,
    from: usize,
}

impl Cut {
    pub fn new(most: usize) -> Cut {
        Cut { most, chunk: None, from: 0 }
    }

    pub fn set(&mut self, chunk: Chunk) {
        (self.chunk, self.from) = (Some(chunk), 0);
    }

    pub fn next(&mut self) -> Option<Chunk> {
        let chunk = self.chunk.as_ref()?;
        let (from, length) = (self.from, self.most.min(chunk.length() - self.from));
        if length == 0 {
            self.chunk = None;
            return None;
        }
        self.from += length;
        if length == chunk.length() {
            return self.chunk.take();
        }
        let vectors: Vec<Vector> = chunk.vectors().iter().map(|vector| vector.slice(from, length)).collect();
        let selection = chunk.selection().map(|selection| {
            let positions = selection.positions();
            let start = positions.partition_point(|position| usize::from(*position) < from);
            let end = positions.partition_point(|position| usize::from(*position) < from + length);
            Selection::new(
                positions[start..end].iter().map(|position| position - from as u16).collect::<Vec<_>>(),
            )
        });
        Some(Chunk::new(length, vectors).with_selection(selection))
    }
}
