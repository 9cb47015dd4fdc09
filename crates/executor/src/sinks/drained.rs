//! Rows that are not kept: what matters has been noted on the way, as which rows of a build side have had a partner.

use crate::pipeline::{Sink, SinkPlan, Work};
use firn_base::Result;
use firn_base::sync::Arc;
use firn_vector::Chunk;
use std::any::Any;

/// Drops rows.
pub struct DrainPlan;

/// Fills the slot of a pipeline whose rows have all been dropped.
pub struct Drained;

struct Drain;

impl SinkPlan for DrainPlan {
    fn start(&self, _: Work<'_>) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Drain))
    }

    fn finish(&self, _: Work<'_>, _: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>> {
        Ok(Arc::new(Drained))
    }
}

impl Sink for Drain {
    fn consume(&mut self, _: Work<'_>, _: Chunk) -> Result<bool> {
        Ok(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
