//! Set-returning functions: each row of the input with the rows that functions give for it.
//!
//! It keeps its place: the row of its chunk, and the sets that have begun for it. A result gathers the input's columns by row, and
//! the functions write theirs.

use crate::expression::{Cutter, Expression};
use crate::pipeline::{Output, Stage, StagePlan, Work};
use crate::template::Template;
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Local, Part, Set, SetKernel, Signature};
use firn_vector::{Chunk, Datum, Vector};

/// What is called.
#[derive(Clone)]
pub enum Callee {
    /// A function that returns a set, with the types of the call and its arguments.
    Set(Arc<dyn SetKernel>, Arc<Signature>, Vec<Expression>),
    /// A scalar, which gives one row.
    Scalar(Expression),
}

/// A call, and how its columns lie.
#[derive(Clone)]
pub struct SetCallPlan {
    /// What is called.
    pub callee: Callee,
    /// How each of its columns lies.
    pub representations: Vec<Representation>,
}

/// Calls, side by side: where one has fewer rows than another, its columns are NULL.
pub struct FlatMapPlan {
    /// The calls.
    pub calls: Template<Vec<SetCallPlan>>,
    /// The columns of the input that go on.
    pub columns: Vec<usize>,
    /// Whether the number of the row follows.
    pub with_ordinality: bool,
}

impl StagePlan for FlatMapPlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Stage>> {
        let begin =
            |call| Calling { call, arguments: Vec::new(), set: Progress::Ended, local: Local::default() };
        Ok(Box::new(FlatMap {
            calls: self.calls.copy().into_iter().map(begin).collect(),
            columns: self.columns.clone(),
            with_ordinality: self.with_ordinality,
            cutter: Cutter::new(work),
            chunk: None,
            row: 0,
            ordinal: 0,
        }))
    }
}

struct FlatMap {
    calls: Vec<Calling>,
    columns: Vec<usize>,
    with_ordinality: bool,
    /// What it gets, compact: it works on a part of that whose arguments are not too wide.
    cutter: Cutter,
    chunk: Option<Chunk>,
    /// The row of it, and how many rows that has had; at the first one its sets have not begun.
    row: usize,
    ordinal: i64,
}

/// A call at work.
struct Calling {
    call: SetCallPlan,
    /// The arguments for all rows of the chunk.
    arguments: Vec<Vector>,
    set: Progress,
    local: Local,
}

enum Progress {
    /// A scalar's row is still to come.
    Once,
    Set(Box<dyn Set>),
    Ended,
}

impl Calling {
    /// The arguments in a part of a chunk; `None` if they are too wide.
    fn evaluate(&mut self, work: Work<'_>, chunk: &Chunk, part: Part) -> Result<Option<Vec<Vector>>> {
        let arguments = match &mut self.call.callee {
            Callee::Set(_, _, arguments) => &mut arguments[..],
            Callee::Scalar(scalar) => std::slice::from_mut(scalar),
        };
        arguments.iter_mut().map(|argument| argument.evaluate_part(&work.scope(), chunk, part)).collect()
    }

    fn begin(&mut self, work: Work<'_>, row: usize) -> Result<()> {
        self.set = match &self.call.callee {
            Callee::Scalar(_) => Progress::Once,
            Callee::Set(kernel, signature, _) => {
                let arguments: Vec<Datum<'_>> =
                    self.arguments.iter().map(|argument| argument.datum(row)).collect();
                let mut call = Call::new(work.context, signature, &mut self.local);
                kernel.begin(&mut call, &arguments)?.map_or(Progress::Ended, Progress::Set)
            }
        };
        Ok(())
    }

    /// Appends rows until the columns have so many, or the set has no more.
    fn fill(&mut self, work: Work<'_>, row: usize, columns: &mut [Builder], until: usize) -> Result<()> {
        while columns[0].len() < until {
            match &mut self.set {
                Progress::Ended => break,
                Progress::Once => {
                    match self.arguments[0].datum(row) {
                        Datum::Record(record) if columns.len() > 1 => {
                            for (field, column) in columns.iter_mut().enumerate() {
                                column.push(record.get(field).1);
                            }
                        }
                        value => columns.iter_mut().for_each(|column| column.push(value)),
                    }
                    self.set = Progress::Ended;
                }
                Progress::Set(set) => {
                    let Callee::Set(_, signature, _) = &self.call.callee else { panic!("it is a set") };
                    let mut call = Call::new(work.context, signature, &mut self.local);
                    let most = until - columns[0].len();
                    if !set.next(&mut call, columns, most)? {
                        self.set = Progress::Ended;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Stage for FlatMap {
    fn push(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Output> {
        // Arguments that fail do so for rows that are there.
        self.cutter.begin(chunk.compact());
        self.resume(work)
    }

    fn resume(&mut self, work: Work<'_>) -> Result<Output> {
        let (most, most_bytes) = (work.run.options.vector_rows, work.run.options.vector_bytes);
        let chunk = match self.chunk.take() {
            Some(chunk) => chunk,
            None => match self.next_part(work)? {
                Some(chunk) => chunk,
                None => return Ok(Output::None),
            },
        };
        let mut rows: Vec<usize> = Vec::with_capacity(most);
        let mut ordinals = Builder::new(Representation::Int64);
        let mut columns: Vec<Vec<Builder>> = self
            .calls
            .iter()
            .map(|call| call.call.representations.iter().map(|it| Builder::new(*it)).collect())
            .collect();
        let bytes = |columns: &[Vec<Builder>]| columns.iter().flatten().map(Builder::bytes).sum::<usize>();
        while rows.len() < most && self.row < chunk.length() && bytes(&columns) < most_bytes {
            let row = self.row;
            if self.ordinal == 0 {
                self.calls.iter_mut().try_for_each(|call| call.begin(work, row))?;
            }
            let before = rows.len();
            for (call, columns) in self.calls.iter_mut().zip(&mut columns) {
                call.fill(work, row, columns, most)?;
            }
            let after = columns.iter().map(|columns| columns[0].len()).max().unwrap_or(before);
            columns.iter_mut().flatten().for_each(|column| column.pad(after));
            for _ in before..after {
                rows.push(row);
                self.ordinal += 1;
                ordinals.push(Datum::Int64(self.ordinal));
            }
            if self.calls.iter().all(|call| matches!(call.set, Progress::Ended)) {
                (self.row, self.ordinal) = (row + 1, 0);
            }
        }
        let input = self.columns.iter().map(|place| chunk.vectors()[*place].take(rows.iter().copied()));
        let mut vectors: Vec<Vector> = input.collect();
        vectors.extend(columns.into_iter().flatten().map(Builder::finish));
        if self.with_ordinality {
            vectors.push(ordinals.finish());
        }
        let result = Chunk::new(rows.len(), vectors);
        if self.row < chunk.length() {
            self.chunk = Some(chunk);
        }
        match self.chunk.is_none() && self.cutter.is_done() {
            true => Ok(Output::Last(result)),
            false => Ok(Output::Some(result)),
        }
    }
}

impl FlatMap {
    /// The next part of what it has got, with the arguments of all calls.
    fn next_part(&mut self, work: Work<'_>) -> Result<Option<Chunk>> {
        let calls = &mut self.calls;
        let part = self.cutter.next(|chunk, part| {
            let arguments = calls.iter_mut().map(|call| call.evaluate(work, chunk, part));
            let arguments: Option<Vec<Vec<Vector>>> = arguments.collect::<Result<_>>()?;
            Ok(arguments.map(|all| {
                let bytes = all.iter().flatten().map(Vector::memory).sum();
                (all, bytes)
            }))
        })?;
        let Some((chunk, arguments)) = part else { return Ok(None) };
        for (call, arguments) in self.calls.iter_mut().zip(arguments) {
            call.arguments = arguments;
        }
        (self.row, self.ordinal) = (0, 0);
        Ok(Some(chunk))
    }
}
