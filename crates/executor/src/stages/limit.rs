//! LIMIT and OFFSET, WITH TIES: some of the rows, in the order in which they come.

use crate::expression::Expression;
use crate::keys::{Key, KeyLayout, Keys};
use crate::pipeline::{Output, Stage, StagePlan, Work};
use crate::template::Template;
use firn_base::Result;
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Datum, Selection, Vector};

/// How many rows go on, and how many are passed over before.
#[derive(Clone, Default)]
pub struct LimitBounds {
    /// How many; all if it is NULL.
    pub count: Option<Expression>,
    /// How many are passed over; none if it is NULL.
    pub offset: Option<Expression>,
}

impl LimitBounds {
    /// How many rows go on, if there is a limit, and how many are passed over.
    pub fn evaluate(&mut self, work: Work<'_>) -> Result<(Option<u64>, u64)> {
        let number = |expression: &mut Option<Expression>| -> Result<Option<u64>> {
            let Some(expression) = expression else { return Ok(None) };
            match expression.evaluate_once(&work.scope())?.datum(0) {
                Datum::Null => Ok(None),
                Datum::Int64(number) => Ok(Some(u64::try_from(number).expect("the binder checks the sign"))),
                other => panic!("a limit is a bigint, not {other:?}"),
            }
        };
        Ok((number(&mut self.count)?, number(&mut self.offset)?.unwrap_or(0)))
    }
}

/// A limit.
pub struct LimitPlan {
    /// How many rows.
    pub bounds: Template<LimitBounds>,
    /// WITH TIES: the positions of the order's columns, and their keys.
    pub ties: Option<(Vec<usize>, KeyLayout)>,
    /// Whether it limits how many rows are locked.
    pub is_above_locks: bool,
}

impl StagePlan for LimitPlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Stage>> {
        let (count, offset) = self.bounds.copy().evaluate(work)?;
        let is_above_locks = self.is_above_locks;
        Ok(Box::new(Limit { skip: offset, take: count, ties: self.ties.clone(), last: None, is_above_locks }))
    }
}

struct Limit {
    /// How many rows are still to be passed over, and to go on.
    skip: u64,
    take: Option<u64>,
    ties: Option<(Vec<usize>, KeyLayout)>,
    /// The key of the last row, once all that were asked for have gone on.
    last: Option<Keys>,
    is_above_locks: bool,
}

impl Limit {
    /// The keys of rows in the order that ties are by.
    fn keys(ties: &(Vec<usize>, KeyLayout), chunk: &Chunk, rows: Rows<'_>) -> Keys {
        let vectors: Vec<Vector> = ties.0.iter().map(|place| chunk.vectors()[*place].clone()).collect();
        ties.1.keys(&vectors, rows)
    }

    /// How many of the rows from one on have the last key.
    fn ties(ties: &(Vec<usize>, KeyLayout), last: Key<'_>, chunk: &Chunk, positions: &[u16]) -> usize {
        let keys = Limit::keys(ties, chunk, Rows::at(positions, chunk.length()));
        (0..keys.len()).take_while(|number| keys.get(*number) == last).count()
    }
}

impl Stage for Limit {
    fn push(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Output> {
        let output = self.limited(chunk)?;
        if self.is_above_locks
            && matches!(output, Output::Done(_))
            && let Some(effects) = work.effects
        {
            effects.with(&mut |state| {
                state.has_enough();
                Ok(())
            })?;
        }
        Ok(output)
    }
}

impl Limit {
    fn limited(&mut self, chunk: Chunk) -> Result<Output> {
        let count = chunk.count() as u64;
        let skipped = self.skip.min(count);
        self.skip -= skipped;
        let Some(take) = &mut self.take else {
            return Ok(match skipped {
                0 => Output::Last(chunk),
                _ => Output::Last(part(chunk, skipped as usize, count as usize)),
            });
        };
        if *take == 0 && self.last.is_none() {
            return Ok(Output::Done(None));
        }
        let mut end = skipped + (*take).min(count - skipped);
        *take -= end - skipped;
        if *take > 0 {
            return Ok(Output::Last(part(chunk, skipped as usize, count as usize)));
        }
        let Some(ties) = &self.ties else {
            return Ok(Output::Done(Some(part(chunk, skipped as usize, end as usize))));
        };
        let positions: Vec<u16> = match chunk.rows().positions() {
            Some(positions) => positions.to_vec(),
            None => (0..chunk.length()).map(|row| row as u16).collect(),
        };
        if self.last.is_none() {
            let last = &positions[end as usize - 1..end as usize];
            self.last = Some(Limit::keys(ties, &chunk, Rows::at(last, chunk.length())));
        }
        let last = self.last.as_ref().expect("it has just been set").get(0);
        end += Limit::ties(ties, last, &chunk, &positions[end as usize..]) as u64;
        let rows = part(chunk, skipped as usize, end as usize);
        Ok(if end < count { Output::Done(Some(rows)) } else { Output::Last(rows) })
    }
}

/// The selected rows from one on, before another.
fn part(chunk: Chunk, from: usize, until: usize) -> Chunk {
    if from == 0 && until == chunk.count() {
        return chunk;
    }
    let positions: Vec<u16> = match chunk.rows().positions() {
        Some(positions) => positions[from..until].to_vec(),
        None => (from..until).map(|row| row as u16).collect(),
    };
    chunk.with_selection(Some(Selection::new(positions)))
}
