//! The rows that a pipeline has left in a buffer: those that a change has changed, groups, and windows.

use super::scan::Cut;
use crate::buffer::RowBuffer;
use crate::pipeline::{Input, InputPlan, OpenInput, SlotId, Step, Work};
use crate::run::Run;
use crate::sinks::Changed;
use firn_base::Result;
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_vector::Chunk;

/// The images of a slot that holds a [`Changed`]. Workers take parts of them.
pub struct ChangedPlan(pub SlotId);

/// The rows of a slot that holds a [`RowBuffer`]. Workers take parts of them.
pub struct BufferedPlan(pub SlotId);

/// Reads a chunk of a slot by its number; the outer `None` if the slot is not filled, the inner one at the end.
type Read = fn(&Run, SlotId, usize) -> Option<Option<Result<Chunk>>>;

fn chunk_of(buffer: &RowBuffer, number: usize) -> Option<Result<Chunk>> {
    (number < buffer.len()).then(|| buffer.get(number))
}

impl InputPlan for ChangedPlan {
    fn open(&self, _: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        let read: Read = |run, slot, number| Some(chunk_of(&run.filled::<Changed>(slot)?.images, number));
        Ok(Arc::new(OpenBuffer { slot: self.0, next: Arc::new(AtomicU64::new(0)), read }))
    }
}

impl InputPlan for BufferedPlan {
    fn open(&self, _: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        let read: Read = |run, slot, number| Some(chunk_of(&*run.filled::<RowBuffer>(slot)?, number));
        Ok(Arc::new(OpenBuffer { slot: self.0, next: Arc::new(AtomicU64::new(0)), read }))
    }
}

struct OpenBuffer {
    slot: SlotId,
    next: Arc<AtomicU64>,
    read: Read,
}

impl OpenInput for OpenBuffer {
    fn worker(&self, run: &Run) -> Box<dyn Input> {
        let cut = Cut::new(run.options.vector_rows);
        Box::new(BufferInput {
            slot: self.slot,
            next: self.next.clone(),
            read: self.read,
            claimed: None,
            cut,
        })
    }
}

struct BufferInput {
    slot: SlotId,
    next: Arc<AtomicU64>,
    read: Read,
    /// The chunk that this worker reads next.
    claimed: Option<usize>,
    cut: Cut,
}

impl Input for BufferInput {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        if let Some(chunk) = self.cut.next() {
            return Ok(Step::Full(chunk));
        }
        let claim = || self.next.fetch_add(1, Ordering::Relaxed) as usize;
        let number = *self.claimed.get_or_insert_with(claim);
        match (self.read)(work.run, self.slot, number) {
            // Once it is filled the chunk is still this worker's.
            None => Ok(Step::Blocked(self.slot)),
            Some(None) => Ok(Step::Done),
            Some(Some(chunk)) => {
                self.claimed = None;
                self.cut.set(chunk?);
                Ok(Step::More)
            }
        }
    }
}
