//! How a program is run.

use crate::budget::Budget;
use crate::expression::WIDE_BYTES;
use crate::measures::Measures;
use crate::spill::SpillArea;
use firn_base::sync::Arc;
use std::time::Duration;

/// How long the pipelines of an execution run on the calling thread alone.
const ALONE: Duration = Duration::from_millis(1);

/// How a program is run.
#[derive(Clone)]
pub struct Options {
    /// How many rows a vector has at most.
    pub vector_rows: usize,
    /// How many bytes the values that an expression computes for a vector take at most, before the last one.
    pub vector_bytes: usize,
    /// How many threads may work for one pipeline, the calling one among them.
    pub workers: usize,
    /// How long pipelines run on the calling thread before others take over.
    pub alone: Duration,
    /// Where memory comes from.
    pub budget: Arc<Budget>,
    /// Where rows go for which there is no memory; without it they are refused (53200).
    pub spill: Option<Arc<SpillArea>>,
    /// Whether what can be spilled is spilled though there is memory: for tests.
    pub always_spill: bool,
    /// Where it is noted what each operator comes to, if it is.
    pub measures: Option<Arc<Measures>>,
}

impl Options {
    /// Vectors of 2,048 rows and 16 MiB, and one worker.
    pub fn new(budget: Arc<Budget>) -> Options {
        Options {
            vector_rows: 2048,
            vector_bytes: WIDE_BYTES,
            workers: 1,
            alone: ALONE,
            budget,
            spill: None,
            always_spill: false,
            measures: None,
        }
    }
}
