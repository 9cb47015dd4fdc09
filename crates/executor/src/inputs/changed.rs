//! The rows that a change has changed, as RETURNING sees them.

use super::scan::Cut;
use crate::execution::Run;
use crate::pipeline::{Input, InputPlan, OpenInput, SlotId, Step, Work};
use crate::sinks::Changed;
use firn_base::Result;
use firn_base::sync::{Arc, AtomicU64, Ordering};

/// The images of a slot that holds a [`Changed`]. Workers take parts of them.
pub struct ChangedPlan(pub SlotId);

struct OpenChanged(SlotId, Arc<AtomicU64>);

impl InputPlan for ChangedPlan {
    fn open(&self, _: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        Ok(Arc::new(OpenChanged(self.0, Arc::new(AtomicU64::new(0)))))
    }
}

impl OpenInput for OpenChanged {
    fn worker(&self, run: &Run) -> Box<dyn Input> {
        let cut = Cut::new(run.options.vector_rows);
        Box::new(ChangedInput { slot: self.0, next: self.1.clone(), cut })
    }
}

struct ChangedInput {
    slot: SlotId,
    next: Arc<AtomicU64>,
    cut: Cut,
}

impl Input for ChangedInput {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        if let Some(chunk) = self.cut.next() {
            return Ok(Step::Full(chunk));
        }
        let Some(changed) = work.run.filled::<Changed>(self.slot) else {
            return Ok(Step::Blocked(self.slot));
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        if number >= changed.images.len() {
            return Ok(Step::Done);
        }
        self.cut.set(changed.images.get(number)?);
        Ok(Step::More)
    }
}
