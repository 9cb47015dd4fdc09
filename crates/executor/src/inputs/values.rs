//! Rows that the statement lists.

use crate::expression::Expression;
use crate::pipeline::{Input, InputPlan, OpenInput, Step, Work};
use crate::run::Run;
use crate::template::Template;
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::Chunk;
use firn_vector::builder::Builder;

/// Rows, each with an expression for each column.
pub struct ValuesPlan {
    rows: Template<Vec<Vec<Expression>>>,
    representations: Vec<Representation>,
}

impl ValuesPlan {
    /// Rows of columns with these representations.
    pub fn new(rows: Vec<Vec<Expression>>, representations: Vec<Representation>) -> ValuesPlan {
        ValuesPlan { rows: Template::new(rows), representations }
    }

    /// One row without columns.
    pub fn one_row() -> ValuesPlan {
        ValuesPlan::new(vec![Vec::new()], Vec::new())
    }
}

impl InputPlan for ValuesPlan {
    fn open(&self, _: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        let representations = self.representations.clone();
        Ok(Arc::new(OpenValues { rows: Template::new(self.rows.copy()), representations }))
    }
}

struct OpenValues {
    rows: Template<Vec<Vec<Expression>>>,
    representations: Vec<Representation>,
}

impl OpenInput for OpenValues {
    fn worker(&self, _: &Run) -> Box<dyn Input> {
        Box::new(ValuesInput {
            rows: self.rows.copy().into_iter(),
            representations: self.representations.clone(),
        })
    }
}

struct ValuesInput {
    rows: std::vec::IntoIter<Vec<Expression>>,
    representations: Vec<Representation>,
}

impl Input for ValuesInput {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        let mut columns: Vec<Builder> = self.representations.iter().map(|it| Builder::new(*it)).collect();
        let mut count = 0;
        for mut row in self.rows.by_ref().take(work.run.options.vector_rows) {
            for (column, expression) in columns.iter_mut().zip(&mut row) {
                column.push(expression.evaluate_once(&work.scope())?.datum(0));
            }
            count += 1;
        }
        if count == 0 {
            return Ok(Step::Done);
        }
        Ok(Step::Full(Chunk::new(count, columns.into_iter().map(Builder::finish).collect())))
    }
}
