//! The rows of several fragments, one after the other.

use crate::execution::Run;
use crate::expression::converted;
use crate::pipeline::{Fragment, Input, InputPlan, OpenFragment, OpenInput, Step, Stream, Work};
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::Chunk;

/// One of the inputs of a union: a fragment, and where it has the union's columns.
pub struct UnionInput {
    /// Its rows.
    pub fragment: Arc<Fragment>,
    /// For each column of the union the position of the fragment's.
    pub columns: Vec<usize>,
}

/// The rows of all inputs. Each is opened when the one before has ended.
pub struct UnionPlan {
    /// The inputs.
    pub inputs: Arc<Vec<UnionInput>>,
    /// How the values of the union's columns lie.
    pub representations: Vec<Representation>,
}

impl InputPlan for UnionPlan {
    fn open(&self, work: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        let opened = self.inputs.iter().map(|input| input.fragment.open(work)).collect::<Result<_>>()?;
        Ok(Arc::new(OpenUnion {
            inputs: self.inputs.clone(),
            opened,
            representations: self.representations.clone(),
        }))
    }
}

struct OpenUnion {
    inputs: Arc<Vec<UnionInput>>,
    opened: Arc<[OpenFragment]>,
    representations: Vec<Representation>,
}

impl OpenInput for OpenUnion {
    fn worker(&self, _: &Run) -> Box<dyn Input> {
        Box::new(Union {
            inputs: self.inputs.clone(),
            opened: self.opened.clone(),
            representations: self.representations.clone(),
            at: 0,
            stream: None,
        })
    }
}

struct Union {
    inputs: Arc<Vec<UnionInput>>,
    opened: Arc<[OpenFragment]>,
    representations: Vec<Representation>,
    at: usize,
    stream: Option<Stream>,
}

impl Input for Union {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        let Some(input) = self.inputs.get(self.at) else { return Ok(Step::Done) };
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(self.opened[self.at].stream(work)?),
        };
        Ok(match stream.step(work)? {
            Step::Full(chunk) => Step::Full(renamed(&chunk, &input.columns, &self.representations)),
            Step::Done => {
                (self.stream, self.at) = (None, self.at + 1);
                Step::More
            }
            other => other,
        })
    }
}

/// Some columns of a chunk, in these representations.
pub(super) fn renamed(chunk: &Chunk, columns: &[usize], representations: &[Representation]) -> Chunk {
    let vector = |(place, representation): (&usize, &Representation)| {
        converted(&chunk.vectors()[*place], *representation, chunk.rows())
    };
    let vectors = columns.iter().zip(representations).map(vector).collect();
    Chunk::new(chunk.length(), vectors).with_selection(chunk.selection().cloned())
}
