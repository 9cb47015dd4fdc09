//! Sub-plans that are read more than once: evaluated once, and no further than a reader asks for.
//!
//! Their rows are kept in memory, and in a temporary file once there is no more of it.

use super::union::renamed;
use crate::buffer::RowBuffer;
use crate::pipeline::{Fragment, Input, InputPlan, OpenInput, SlotId, Step, Stream, Work};
use crate::run::Run;
use firn_base::sync::{Arc, Mutex, RwLock};
use firn_base::{Error, Representation, Result};
use firn_plan::faults::Fault;

/// The definition of a shared sub-plan.
pub struct SharedPlan {
    /// Where its rows are kept.
    pub slot: SlotId,
    /// What gives them.
    pub fragment: Arc<Fragment>,
    /// The columns that are kept.
    pub columns: Vec<usize>,
    /// How they lie.
    pub representations: Vec<Representation>,
}

/// The rows of a shared sub-plan, as one reader sees them.
pub struct SharedReadPlan {
    /// What is read.
    pub shared: Arc<SharedPlan>,
    /// The kept columns that it reads.
    pub columns: Vec<usize>,
    /// How they lie.
    pub representations: Vec<Representation>,
}

/// What has been produced so far, and what produces more.
struct Produced {
    rows: RwLock<RowBuffer>,
    producer: Mutex<Producer>,
}

struct Producer {
    /// `None` at the end.
    stream: Option<Stream>,
    /// What ended it, if it was an error: each reader reports it.
    error: Option<Error>,
}

impl InputPlan for SharedReadPlan {
    fn open(&self, work: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        let shared = &self.shared;
        if Fault::SharedTwice.is_made() {
            work.run.empty(&[shared.slot]);
        }
        let produced = work.run.filled_or(shared.slot, || {
            let stream = shared.fragment.open(work)?.stream(work)?;
            let producer = Mutex::new(Producer { stream: Some(stream), error: None });
            let rows = RowBuffer::new(shared.representations.clone(), &work.run.options);
            Ok(Arc::new(Produced { rows: RwLock::new(rows), producer }))
        })?;
        Ok(Arc::new(Reading {
            produced,
            shared: shared.clone(),
            columns: self.columns.clone(),
            representations: self.representations.clone(),
            at: 0,
        }))
    }
}

#[derive(Clone)]
struct Reading {
    produced: Arc<Produced>,
    shared: Arc<SharedPlan>,
    columns: Vec<usize>,
    representations: Vec<Representation>,
    at: usize,
}

impl OpenInput for Reading {
    fn worker(&self, _: &Run) -> Box<dyn Input> {
        Box::new(self.clone())
    }
}

impl Reading {
    fn take(&mut self) -> Result<Option<Step>> {
        let rows = self.produced.rows.read();
        if self.at == rows.len() {
            return Ok(None);
        }
        let chunk = rows.get(self.at)?;
        drop(rows);
        self.at += 1;
        Ok(Some(Step::Full(renamed(&chunk, &self.columns, &self.representations))))
    }
}

impl Input for Reading {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        if let Some(step) = self.take()? {
            return Ok(step);
        }
        let produced = self.produced.clone();
        let mut producer = produced.producer.lock();
        // Another reader may have been quicker.
        if let Some(step) = self.take()? {
            return Ok(step);
        }
        if let Some(error) = &producer.error {
            return Err(error.clone());
        }
        let result = self.produce(work, &mut producer);
        if let Err(error) = &result {
            // A stream that has failed cannot go on.
            (producer.stream, producer.error) = (None, Some(error.clone()));
        }
        result
    }
}

impl Reading {
    fn produce(&self, work: Work<'_>, producer: &mut Producer) -> Result<Step> {
        let Some(stream) = &mut producer.stream else { return Ok(Step::Done) };
        match stream.step(work)? {
            Step::Full(chunk) => {
                let kept = renamed(&chunk, &self.shared.columns, &self.shared.representations);
                self.produced.rows.write().push(kept)?;
                Ok(Step::More)
            }
            Step::Done => {
                producer.stream = None;
                Ok(Step::Done)
            }
            other => Ok(other),
        }
    }
}
