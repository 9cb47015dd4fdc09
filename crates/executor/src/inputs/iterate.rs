//! Recursion: the rows of the first round, then those of a step over the rows of the round before, until there are none.
//!
//! Rows are produced on demand, so a LIMIT above an endless recursion ends. What the step does not compute from
//! the round before, build sides for one, is kept from round to round.
//!
//! The rows of a round go to a temporary file if there is no memory for them, and so do the keys of UNION ([`Seen`]): then a round's
//! rows come when it has ended.

use super::union::renamed;
use crate::budget::Account;
use crate::buffer::RowBuffer;
use crate::keys::KeyLayout;
use crate::pipeline::{Fragment, Input, InputPlan, OpenInput, SlotId, Step, Stream, Work};
use crate::run::Run;
use crate::seen::Seen;
use crate::sinks::LEAST_BYTES;
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::Chunk;

/// A recursion.
pub struct IteratePlan {
    /// The first rows.
    pub initial: Arc<Fragment>,
    /// Where `initial` has the columns.
    pub initial_columns: Vec<usize>,
    /// The rows of the next round.
    pub step: Arc<Fragment>,
    /// Where `step` has the columns.
    pub step_columns: Vec<usize>,
    /// How the values of the columns lie.
    pub representations: Vec<Representation>,
    /// For UNION: rows with a key that was there are left out.
    pub distinct: Option<KeyLayout>,
    /// Where the rows of the round before are found.
    pub round: SlotId,
    /// Slots that hold what was computed from the round before.
    pub emptied: Vec<SlotId>,
}

/// The rows of the round before.
pub struct RoundPlan(pub SlotId);

#[derive(Clone)]
struct OpenIterate(Arc<IteratePlan>);

impl InputPlan for Arc<IteratePlan> {
    fn open(&self, _: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        Ok(Arc::new(OpenIterate(self.clone())))
    }
}

impl OpenInput for OpenIterate {
    fn worker(&self, run: &Run) -> Box<dyn Input> {
        Box::new(Iterate {
            plan: self.0.clone(),
            phase: Phase::New,
            next: RowBuffer::new(self.0.representations.clone(), &run.options),
            seen: self.0.distinct.as_ref().map(Seen::new),
            keys: Account::new(&run.options.budget),
        })
    }
}

struct Iterate {
    plan: Arc<IteratePlan>,
    phase: Phase,
    /// The rows of this round so far, which the next one reads.
    next: RowBuffer,
    seen: Option<Seen>,
    keys: Account,
}

enum Phase {
    New,
    Initial(Stream),
    Step(Stream),
    /// Rows that were put off are given, from that chunk of the round on.
    Rest(usize),
    Ended,
}

impl Iterate {
    /// Keeps the rows that are new for the next round. `None` if there are none as far as is known.
    fn keep(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Option<Chunk>> {
        let mut chunk = chunk.compact();
        if let (Some(layout), Some(seen)) = (&self.plan.distinct, &mut self.seen) {
            let keys = layout.keys(chunk.vectors(), chunk.rows());
            let Some(new) = seen.add(work, chunk.vectors(), &keys, chunk.rows())? else { return Ok(None) };
            chunk = chunk.with_selection(Some(new)).compact();
            let (bytes, options) = (seen.memory(), &work.run.options);
            match (self.keys.set(bytes), &options.spill) {
                (Err(error), None) => return Err(error),
                (refused, Some(area)) if options.always_spill || refused.is_err() && bytes >= LEAST_BYTES => {
                    seen.spill(area, self.plan.representations.clone())?;
                    self.keys.set(0)?;
                }
                _ => {}
            }
        }
        if chunk.count() == 0 {
            return Ok(None);
        }
        self.next.push(chunk.clone())?;
        Ok(Some(chunk))
    }
}

impl Input for Iterate {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        let (stream, columns) = match &mut self.phase {
            Phase::New => {
                self.phase = Phase::Initial(self.plan.initial.open(work)?.stream(work)?);
                return Ok(Step::More);
            }
            Phase::Initial(stream) => (stream, &self.plan.initial_columns),
            Phase::Step(stream) => (stream, &self.plan.step_columns),
            Phase::Rest(number) if *number < self.next.len() => {
                *number += 1;
                return Ok(Step::Full(self.next.get(*number - 1)?));
            }
            Phase::Rest(_) => return self.begin_round(work),
            Phase::Ended => return Ok(Step::Done),
        };
        match stream.step(work)? {
            Step::Full(chunk) => {
                let chunk = renamed(&chunk, columns, &self.plan.representations);
                Ok(self.keep(work, chunk)?.map_or(Step::More, Step::Full))
            }
            Step::Done => {
                let known = self.next.len();
                if let Some(seen) = &mut self.seen {
                    seen.drain(work, false, &mut |chunk| self.next.push(chunk))?;
                }
                self.phase = Phase::Rest(known);
                Ok(Step::More)
            }
            other => Ok(other),
        }
    }
}

impl Iterate {
    /// The rows of the round that has ended are what the next one reads.
    fn begin_round(&mut self, work: Work<'_>) -> Result<Step> {
        if self.next.is_empty() {
            self.phase = Phase::Ended;
            return Ok(Step::Done);
        }
        let empty = RowBuffer::new(self.plan.representations.clone(), &work.run.options);
        let round = std::mem::replace(&mut self.next, empty);
        work.run.empty(&self.plan.emptied);
        work.run.fill(self.plan.round, Arc::new(round));
        self.phase = Phase::Step(self.plan.step.open(work)?.stream(work)?);
        Ok(Step::More)
    }
}

impl InputPlan for RoundPlan {
    fn open(&self, work: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        let round = work.run.filled::<RowBuffer>(self.0).expect("the recursion around has filled it");
        Ok(Arc::new(OpenRound(round)))
    }
}

struct OpenRound(Arc<RowBuffer>);

impl OpenInput for OpenRound {
    fn worker(&self, _: &Run) -> Box<dyn Input> {
        Box::new(RoundInput { round: self.0.clone(), at: 0 })
    }
}

struct RoundInput {
    round: Arc<RowBuffer>,
    at: usize,
}

impl Input for RoundInput {
    fn step(&mut self, _: Work<'_>) -> Result<Step> {
        if self.at == self.round.len() {
            return Ok(Step::Done);
        }
        self.at += 1;
        Ok(Step::Full(self.round.get(self.at - 1)?))
    }
}
