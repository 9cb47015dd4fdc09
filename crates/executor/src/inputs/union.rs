//! The rows of several fragments, one after the other.

use crate::expression::converted;
use crate::pipeline::{Fragment, Input, InputPlan, OpenFragment, OpenInput, Step, Stream, Work};
use crate::run::Run;
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{Representation, Result};
use firn_vector::Chunk;

/// One of the inputs of a union: a fragment, and where it has the union's columns.
pub struct UnionInput {
    /// Its rows.
    pub fragment: Arc<Fragment>,
    /// For each column of the union the position of the fragment's.
    pub columns: Vec<usize>,
}

/// The rows of all inputs, one after the other.
pub struct UnionPlan {
    /// The inputs.
    pub inputs: Arc<Vec<UnionInput>>,
    /// How the values of the union's columns lie.
    pub representations: Vec<Representation>,
    /// Whether no worker reads from an input before all have ended the one before: a worker that ends it while others do not leaves
    /// the rest to them.
    pub in_turn: bool,
}

impl InputPlan for UnionPlan {
    fn open(&self, work: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        let opened = self.inputs.iter().map(|input| input.fragment.open(work)).collect::<Result<_>>()?;
        Ok(Arc::new(OpenUnion {
            inputs: self.inputs.clone(),
            opened,
            representations: self.representations.clone(),
            active: self.in_turn.then(|| self.inputs.iter().map(|_| AtomicU64::new(0)).collect()),
        }))
    }
}

struct OpenUnion {
    inputs: Arc<Vec<UnionInput>>,
    opened: Arc<[OpenFragment]>,
    representations: Vec<Representation>,
    /// If inputs are read in turn: how many workers read from each.
    active: Option<Arc<[AtomicU64]>>,
}

impl OpenInput for OpenUnion {
    fn worker(&self, _: &Run) -> Box<dyn Input> {
        Box::new(Union {
            inputs: self.inputs.clone(),
            opened: self.opened.clone(),
            representations: self.representations.clone(),
            active: self.active.clone(),
            at: 0,
            stream: None,
        })
    }
}

struct Union {
    inputs: Arc<Vec<UnionInput>>,
    opened: Arc<[OpenFragment]>,
    representations: Vec<Representation>,
    active: Option<Arc<[AtomicU64]>>,
    at: usize,
    stream: Option<Stream>,
}

impl Input for Union {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        let Some(input) = self.inputs.get(self.at) else { return Ok(Step::Done) };
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                if let Some(active) = &self.active {
                    active[self.at].fetch_add(1, Ordering::AcqRel);
                }
                self.stream.insert(self.opened[self.at].stream(work)?)
            }
        };
        Ok(match stream.step(work)? {
            Step::Full(chunk) => Step::Full(renamed(&chunk, &input.columns, &self.representations)),
            Step::Done => {
                let is_last =
                    self.active.as_ref().is_none_or(|all| all[self.at].fetch_sub(1, Ordering::AcqRel) == 1);
                (self.stream, self.at) = (None, if is_last { self.at + 1 } else { self.inputs.len() });
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
