//! Window functions: a value for each row of a partition, made of where the row stands in it.

use crate::builder::Builder;
use crate::kernel::Call;
use crate::kernel::slot::Slot;
use firn_base::{Representation, Result};
use std::any::Any;
use std::ops::Range;

/// The rows of a partition in their order, which may lie in memory or in a file.
pub trait Partition {
    /// How many rows.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows that the order of the window does not tell from this one.
    fn peers(&mut self, row: u64) -> Result<Range<u64>>;

    /// The frame of a row, in up to three parts where EXCLUDE leaves rows out of it. The parts follow one another; any may be empty.
    fn frame(&mut self, row: u64) -> Result<[Range<u64>; 3]>;

    /// The value of an argument of the function in a row.
    fn argument(&mut self, number: usize, row: u64, out: &mut Slot) -> Result<()>;
}

/// How far from a row a function looks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reach {
    /// How many rows before it.
    pub before: u64,
    /// How many rows behind it.
    pub behind: u64,
    /// Whether it asks for the last of the row's peers.
    pub all_peers: bool,
    /// Whether it asks how many rows the partition has.
    pub length: bool,
}

/// A window function, as it is written.
pub trait WindowFunction: Send + Sync + 'static {
    /// What it knows of the rows of the partition before the next one.
    type State: Default + Send + 'static;

    /// Whether results can lie like this.
    fn accepts(result: Representation) -> bool;

    /// How far from a row it looks, beside where the row and the first of its peers stand in the partition; `None` if it may look at
    /// any row. `steps` is the second argument if that is the same number in all rows, and 1 if there
    /// is none.
    fn reach(&self, _steps: Option<i32>) -> Option<Reach> {
        None
    }

    /// The value of a row. It is called for all rows of a partition in their order.
    fn row(
        &self,
        call: &mut Call<'_>,
        state: &mut Self::State,
        partition: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()>;
}

/// The body of a window function.
pub trait WindowKernel: Send + Sync {
    /// Whether it gives a result of this representation.
    fn accepts(&self, result: Representation) -> bool;

    /// See [`WindowFunction::reach`].
    fn reach(&self, steps: Option<i32>) -> Option<Reach>;

    /// The state before the first row of a partition.
    fn start(&self) -> Box<dyn Any + Send>;

    /// Appends the values of some rows, which follow those of the call before.
    fn rows(
        &self,
        call: &mut Call<'_>,
        state: &mut (dyn Any + Send),
        partition: &mut dyn Partition,
        rows: Range<u64>,
        out: &mut Builder,
    ) -> Result<()>;
}

/// Makes the body of a window function.
pub fn window<W: WindowFunction>(function: W) -> impl WindowKernel {
    Adapter(function)
}

struct Adapter<W>(W);

impl<W: WindowFunction> WindowKernel for Adapter<W> {
    fn accepts(&self, result: Representation) -> bool {
        W::accepts(result)
    }

    fn reach(&self, steps: Option<i32>) -> Option<Reach> {
        self.0.reach(steps)
    }

    fn start(&self) -> Box<dyn Any + Send> {
        Box::new(W::State::default())
    }

    fn rows(
        &self,
        call: &mut Call<'_>,
        state: &mut (dyn Any + Send),
        partition: &mut dyn Partition,
        rows: Range<u64>,
        out: &mut Builder,
    ) -> Result<()> {
        let state: &mut W::State = state.downcast_mut().expect("it is the state of this function");
        let mut value = Slot::new();
        for row in rows {
            self.0.row(call, state, partition, row, &mut value)?;
            out.push(value.get());
            if row % 1024 == 0 {
                call.context.check_cancel()?;
            }
        }
        Ok(())
    }
}
