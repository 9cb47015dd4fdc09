//! Pipelines: an input, stages that each chunk passes through, and a sink that keeps what comes out.
//!
//! A pipeline is resumable. One [`Stream::step`] takes one chunk from the input, or goes on with one that a stage has not used up, and
//! yields at most one vector of rows. So a join that multiplies rows keeps its place inside its input vector, a LIMIT ends the work
//! below it, and the caller may stop after any step.
//!
//! | a step returns | meaning |
//! |---|---|
//! | More | nothing came out yet; call again |
//! | Full | a chunk for the sink |
//! | Blocked | a slot must be filled first: by running its pipeline |
//! | Idle | other workers must go on first |
//! | Done | there are no more rows |
//!
//! When the input has ended, stages give what they have put off ([`Stage::end`]), the first first: a join, the rows for which there was
//! no memory. What workers share for that belongs to the opened fragment ([`StagePlan::open`]).
//!
//! What a pipeline is (its [`Fragment`]) is shared by all workers that run it; each has a [`Stream`] of its own,
//! and all streams of one pipeline take morsels from one opened input.

use crate::effects::Effects;
use crate::expression::Scope;
use crate::run::Run;
use firn_base::Result;
use firn_base::sync::Arc;
use firn_vector::{Chunk, Context};
use std::any::Any;

/// The number of a result that other pipelines wait for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotId(pub usize);

/// What one step comes to.
pub enum Step {
    /// Nothing has come out yet.
    More,
    /// Rows.
    Full(Chunk),
    /// A slot must be filled first.
    Blocked(SlotId),
    /// Other workers must go on first: what they come to is shared.
    Idle,
    /// There are no more rows.
    Done,
}

/// What a worker works with.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The execution.
    pub run: &'a Run,
    /// The statement's surroundings.
    pub context: &'a Context<'a>,
    /// Where rows are changed and locked, while the program is [executed](crate::execution::execute).
    pub effects: Option<&'a (dyn Effects + 'a)>,
}

impl<'a> Work<'a> {
    /// What expressions are evaluated with.
    pub fn scope(&self) -> Scope<'a> {
        Scope { context: self.context, parameters: &self.run.parameters }
    }
}

/// Where the chunks of a stream come from, as one worker sees it.
pub trait Input: Send {
    /// Comes to the next chunk.
    fn step(&mut self, work: Work<'_>) -> Result<Step>;
}

/// An input that has been opened: what its workers share.
pub trait OpenInput: Send + Sync {
    /// The input of one worker.
    fn worker(&self, run: &Run) -> Box<dyn Input>;

    /// Whether its chunks come in an order that a result keeps.
    fn is_ordered(&self) -> bool {
        false
    }
}

/// An input of a plan.
pub trait InputPlan: Send + Sync {
    /// Begins it.
    fn open(&self, work: Work<'_>) -> Result<Arc<dyn OpenInput>>;
}

/// What a stage makes of a chunk, or of the end of its input.
pub enum Output {
    /// Nothing, and it is through with the chunk.
    None,
    /// Rows, and it is through with the chunk.
    Last(Chunk),
    /// Rows, and [`Stage::resume`] may give more of the same chunk.
    Some(Chunk),
    /// Nothing yet: [`Stage::resume`] goes on.
    Again,
    /// A slot must be filled before [`Stage::resume`].
    Blocked(SlotId),
    /// Other workers must go on before [`Stage::end`], from which alone it comes.
    Idle,
    /// Perhaps rows, and it wants no more chunks at all.
    Done(Option<Chunk>),
}

/// An operator that passes rows on without collecting them, as one worker runs it.
pub trait Stage: Send {
    /// Gives it a chunk, with at least one selected row. It is through with the one before.
    fn push(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Output>;

    /// Goes on with the chunk that it has.
    fn resume(&mut self, _: Work<'_>) -> Result<Output> {
        panic!("the stage has used up its chunk")
    }

    /// Gives it the end of its input, again and again until it is done: for rows that it has put off.
    fn end(&mut self, _: Work<'_>) -> Result<Output> {
        Ok(Output::Done(None))
    }
}

/// A stage of a plan.
pub trait StagePlan: Send + Sync {
    /// The stage of a fragment that has begun, if its workers share something.
    fn open(&self) -> Option<Box<dyn StagePlan>> {
        None
    }

    /// The stage of one worker.
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Stage>>;
}

/// What collects the rows of a pipeline, as one worker runs it.
pub trait Sink: Send {
    /// Takes a chunk, with at least one selected row. Whether it wants more.
    fn consume(&mut self, work: Work<'_>, chunk: Chunk) -> Result<bool>;

    /// For [`SinkPlan::finish`], which knows what it has started.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// The sink of a plan.
pub trait SinkPlan: Send + Sync {
    /// The sink of one worker.
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Sink>>;

    /// Makes the result of what all workers have collected.
    fn finish(&self, work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>>;
}

/// An input and the stages above it.
pub struct Fragment {
    /// Where rows come from.
    pub input: Box<dyn InputPlan>,
    /// What they pass through, the first first.
    pub stages: Vec<Box<dyn StagePlan>>,
    /// Whether one worker must run it alone: the order of its rows matters, or a function has effects.
    pub is_serial: bool,
}

/// A pipeline with a sink.
pub struct Pipeline {
    /// Its rows.
    pub fragment: Arc<Fragment>,
    /// What collects them.
    pub sink: Box<dyn SinkPlan>,
}

impl Fragment {
    /// Begins it.
    pub fn open(self: &Arc<Self>, work: Work<'_>) -> Result<OpenFragment> {
        let stages = self.stages.iter().map(|stage| stage.open()).collect();
        Ok(OpenFragment { fragment: self.clone(), input: self.input.open(work)?, stages })
    }
}

/// A fragment that has begun: its workers share the input.
#[derive(Clone)]
pub struct OpenFragment {
    fragment: Arc<Fragment>,
    input: Arc<dyn OpenInput>,
    /// The stages whose workers share something.
    stages: Arc<[Option<Box<dyn StagePlan>>]>,
}

impl OpenFragment {
    /// Whether its rows come in an order that a result keeps, if one worker runs it.
    pub fn is_ordered(&self) -> bool {
        self.input.is_ordered()
    }

    /// The stream of one worker.
    pub fn stream(&self, work: Work<'_>) -> Result<Stream> {
        let stages = self.fragment.stages.iter().zip(&*self.stages);
        let start = |(planned, opened): (_, &Option<Box<dyn StagePlan>>)| {
            opened.as_ref().unwrap_or(planned).start(work)
        };
        let stages = stages.map(start).collect::<Result<_>>()?;
        Ok(Stream { input: Some(self.input.worker(work.run)), stages, pending: Vec::new(), ended: 0 })
    }
}

/// A fragment as one worker runs it.
pub struct Stream {
    /// Until it is through.
    input: Option<Box<dyn Input>>,
    stages: Vec<Box<dyn Stage>>,
    /// The stages that are not through with their chunk, from the input upwards.
    pending: Vec<usize>,
    /// How many stages, from the input upwards, have nothing to give any more, once the input is through.
    ended: usize,
}

impl Stream {
    /// Comes to the next chunk. It has at least one selected row.
    pub fn step(&mut self, work: Work<'_>) -> Result<Step> {
        work.context.check_cancel()?;
        let (at, output) = match self.pending.last() {
            Some(stage) => (*stage, self.stages[*stage].resume(work)?),
            None => {
                let Some(input) = &mut self.input else { return self.end(work) };
                match input.step(work)? {
                    Step::Full(chunk) if self.stages.is_empty() => return Ok(full(chunk)),
                    Step::Full(chunk) if chunk.count() == 0 => return Ok(Step::More),
                    Step::Full(chunk) => (0, self.stages[0].push(work, chunk)?),
                    Step::Done => {
                        self.input = None;
                        return self.end(work);
                    }
                    other => return Ok(other),
                }
            }
        };
        self.pass_on(work, at, output)
    }

    /// Goes on when the input is through: stages give what they have put off.
    fn end(&mut self, work: Work<'_>) -> Result<Step> {
        while let Some(stage) = self.stages.get_mut(self.ended) {
            let at = self.ended;
            let chunk = match stage.end(work)? {
                Output::None | Output::Again => return Ok(Step::More),
                Output::Idle => return Ok(Step::Idle),
                Output::Blocked(slot) => return Ok(Step::Blocked(slot)),
                Output::Last(chunk) | Output::Some(chunk) => Some(chunk),
                Output::Done(chunk) => {
                    self.ended += 1;
                    chunk
                }
            };
            if let Some(chunk) = chunk {
                return self.pass_on(work, at, Output::Last(chunk));
            }
        }
        Ok(Step::Done)
    }

    /// Gives the rows of a stage to those above it.
    fn pass_on(&mut self, work: Work<'_>, mut at: usize, mut output: Output) -> Result<Step> {
        loop {
            // A stage stays pending exactly if it is not through with its chunk.
            let keeps = matches!(output, Output::Some(_) | Output::Again | Output::Blocked(_));
            match (keeps, self.pending.last() == Some(&at)) {
                (true, false) => self.pending.push(at),
                (false, true) => drop(self.pending.pop()),
                _ => {}
            }
            let chunk = match output {
                Output::None | Output::Again => return Ok(Step::More),
                Output::Idle => panic!("a stage waits for other workers only at its end"),
                Output::Blocked(slot) => return Ok(Step::Blocked(slot)),
                Output::Last(chunk) | Output::Some(chunk) => chunk,
                Output::Done(chunk) => {
                    self.close(at);
                    match chunk {
                        Some(chunk) => chunk,
                        None => return Ok(Step::More),
                    }
                }
            };
            at += 1;
            if at == self.stages.len() {
                return Ok(full(chunk));
            }
            if chunk.count() == 0 {
                return Ok(Step::More);
            }
            output = self.stages[at].push(work, chunk)?;
        }
    }

    /// Ends the stages up to one, and the input: their rows are not wanted any more.
    fn close(&mut self, stage: usize) {
        self.input = None;
        self.ended = self.ended.max(stage + 1);
        self.pending.retain(|pending| *pending > stage);
        // Other workers may wait for what they have put off.
        self.stages[..=stage].iter_mut().for_each(|stage| *stage = Box::new(Closed));
    }
}

/// A stage whose rows are not wanted any more.
struct Closed;

impl Stage for Closed {
    fn push(&mut self, _: Work<'_>, _: Chunk) -> Result<Output> {
        panic!("a closed stage gets no rows")
    }
}

fn full(chunk: Chunk) -> Step {
    if chunk.count() == 0 { Step::More } else { Step::Full(chunk) }
}
