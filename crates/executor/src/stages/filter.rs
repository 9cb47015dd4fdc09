//! Filters and maps.
//!
//! A filter copies nothing: it narrows the selection. A map adds one vector for each output, written once; if these are too wide, it
//! gives the chunk in parts.

use crate::expression::{Conditions, Cutter, Expression};
use crate::pipeline::{Output, Stage, StagePlan, Work};
use crate::template::Template;
use firn_base::Result;
use firn_vector::Chunk;

/// Rows for which all conditions are TRUE.
pub struct FilterPlan(pub Template<Conditions>);

/// Rows with more columns.
pub struct MapPlan(pub Template<Vec<Expression>>);

struct Filter(Conditions);

struct Map {
    expressions: Vec<Expression>,
    cutter: Cutter,
}

impl StagePlan for FilterPlan {
    fn start(&self, _: Work<'_>) -> Result<Box<dyn Stage>> {
        Ok(Box::new(Filter(self.0.copy())))
    }
}

impl Stage for Filter {
    fn push(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Output> {
        Ok(Output::Last(self.0.select(&work.scope(), chunk)?))
    }
}

impl StagePlan for MapPlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Stage>> {
        Ok(Box::new(Map { expressions: self.0.copy(), cutter: Cutter::new(work) }))
    }
}

impl Stage for Map {
    fn push(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Output> {
        self.cutter.begin(chunk);
        self.resume(work)
    }

    fn resume(&mut self, work: Work<'_>) -> Result<Output> {
        let (expressions, scope) = (&mut self.expressions, work.scope());
        let part = self.cutter.next(|chunk, part| {
            let (mut vectors, mut bytes) = (Vec::with_capacity(expressions.len()), 0);
            for expression in &mut *expressions {
                let Some(vector) = expression.evaluate_part(&scope, chunk, part)? else { return Ok(None) };
                if expression.as_column().is_none() {
                    bytes += vector.memory();
                }
                vectors.push(vector);
            }
            Ok(Some((vectors, bytes)))
        })?;
        let Some((mut chunk, vectors)) = part else { return Ok(Output::None) };
        vectors.into_iter().for_each(|vector| chunk.push(vector));
        Ok(if self.cutter.is_done() { Output::Last(chunk) } else { Output::Some(chunk) })
    }
}
