//! Recursion: the rows of the first round, then those of a step over the rows of the round before, until there are none.
//!
//! Rows are produced on demand, so a LIMIT above an endless recursion ends. What the step does not compute from
//! the round before, build sides for one, is kept from round to round.

use super::union::renamed;
use crate::budget::Account;
use crate::keys::{KeyLayout, KeySet};
use crate::pipeline::{Fragment, Input, InputPlan, OpenInput, SlotId, Step, Stream, Work};
use crate::run::Run;
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::{Chunk, Selection};

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

/// The rows of a round.
type Round = Vec<Chunk>;

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
            next: Vec::new(),
            seen: self.0.distinct.as_ref().map(KeySet::new),
            rounds: Account::new(&run.options.budget),
            keys: Account::new(&run.options.budget),
        })
    }
}

struct Iterate {
    plan: Arc<IteratePlan>,
    phase: Phase,
    /// The rows that the next round reads.
    next: Round,
    seen: Option<KeySet>,
    rounds: Account,
    keys: Account,
}

enum Phase {
    New,
    Initial(Stream),
    Step(Stream),
    Ended,
}

impl Iterate {
    /// Keeps the rows that are new for the next round.
    fn keep(&mut self, chunk: Chunk) -> Result<Chunk> {
        let chunk = match (&self.plan.distinct, &mut self.seen) {
            (Some(layout), Some(seen)) => {
                let chunk = chunk.compact();
                let (mut before, mut numbers) = (seen.len() as u32, Vec::new());
                seen.insert(&layout.keys(chunk.vectors(), chunk.rows()), &mut numbers);
                let mut new = Vec::new();
                for (row, number) in numbers.iter().enumerate() {
                    if *number == before {
                        new.push(row as u16);
                        before += 1;
                    }
                }
                self.keys.set(seen.memory())?;
                chunk.with_selection(Some(Selection::new(new))).compact()
            }
            _ => chunk.compact(),
        };
        if chunk.count() > 0 {
            self.rounds.add(chunk.memory())?;
            self.next.push(chunk.clone());
        }
        Ok(chunk)
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
            Phase::Ended => return Ok(Step::Done),
        };
        match stream.step(work)? {
            Step::Full(chunk) => {
                let chunk = renamed(&chunk, columns, &self.plan.representations);
                Ok(Step::Full(self.keep(chunk)?))
            }
            Step::Done => {
                let round = std::mem::take(&mut self.next);
                if round.is_empty() {
                    self.phase = Phase::Ended;
                    return Ok(Step::Done);
                }
                self.rounds.set(round.iter().map(Chunk::memory).sum())?;
                work.run.empty(&self.plan.emptied);
                work.run.fill(self.plan.round, Arc::new(round));
                self.phase = Phase::Step(self.plan.step.open(work)?.stream(work)?);
                Ok(Step::More)
            }
            other => Ok(other),
        }
    }
}

impl InputPlan for RoundPlan {
    fn open(&self, work: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        let round = work.run.filled::<Round>(self.0).expect("the recursion around has filled it");
        Ok(Arc::new(OpenRound(round)))
    }
}

struct OpenRound(Arc<Round>);

impl OpenInput for OpenRound {
    fn worker(&self, _: &Run) -> Box<dyn Input> {
        Box::new(RoundInput { round: self.0.clone(), at: 0 })
    }
}

struct RoundInput {
    round: Arc<Round>,
    at: usize,
}

impl Input for RoundInput {
    fn step(&mut self, _: Work<'_>) -> Result<Step> {
        let chunk = self.round.get(self.at).cloned();
        self.at += 1;
        Ok(chunk.map_or(Step::Done, Step::Full))
    }
}
