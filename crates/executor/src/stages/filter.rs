//! Filters and maps.
//!
//! A filter copies nothing: it narrows the selection. A map adds one vector for each output, written once.

use crate::expression::{Conditions, Expression};
use crate::pipeline::{Output, Stage, StagePlan, Work};
use crate::template::Template;
use firn_base::Result;
use firn_vector::Chunk;

/// Rows for which all conditions are TRUE.
pub struct FilterPlan(pub Template<Conditions>);

/// Rows with more columns.
pub struct MapPlan(pub Template<Vec<Expression>>);

struct Filter(Conditions);
struct Map(Vec<Expression>);

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
    fn start(&self, _: Work<'_>) -> Result<Box<dyn Stage>> {
        Ok(Box::new(Map(self.0.copy())))
    }
}

impl Stage for Map {
    fn push(&mut self, work: Work<'_>, mut chunk: Chunk) -> Result<Output> {
        let mut vectors = Vec::with_capacity(self.0.len());
        for expression in &mut self.0 {
            vectors.push(expression.evaluate(&work.scope(), &chunk)?);
        }
        vectors.into_iter().for_each(|vector| chunk.push(vector));
        Ok(Output::Last(chunk))
    }
}
