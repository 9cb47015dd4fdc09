//! Aggregates: states, one a group, that rows are added to.
//!
//! An aggregate is written as [`Aggregate`], over one state and the values of one row. [`AggregateKernel`] and
//! [`States`] are what an operator sees: a column of states of a type that it does not know.
//!
//! The operator filters (FILTER), removes duplicates (DISTINCT) and sorts (ORDER BY, WITHIN GROUP) before it adds rows. The rows of
//! an ordered-set aggregate arrive in their order; its direct arguments are arguments of each row.

use crate::builder::Builder;
use crate::kernel::arguments::{Arguments, Nulls};
use crate::kernel::scalar::valid_positions;
use crate::kernel::{Call, Signature};
use crate::selection::Rows;
use crate::vector::Vector;
use arrow_buffer::NullBuffer;
use firn_base::{Representation, Result};
use std::any::Any;

/// An aggregate, as it is written.
pub trait Aggregate: Send + Sync + Clone + 'static {
    /// What a row has. Rows with a NULL in an argument that takes none are not added.
    type Arguments: Arguments;
    /// What is known of the rows of one group.
    type State: Send + 'static;
    /// Whether the result shows the order in which rows were added.
    const KEEPS_ORDER: bool = false;

    /// Whether results can lie like this.
    fn accepts(result: Representation) -> bool;

    /// Of no rows.
    fn start(&self, signature: &Signature) -> Self::State;

    /// Adds a row.
    fn add(
        &self,
        call: &mut Call<'_>,
        state: &mut Self::State,
        row: <Self::Arguments as Arguments>::Row<'_>,
    ) -> Result<()>;

    /// Adds rows by a loop over whole buffers, with the result that adding them one by one has. `false` if there is none for vectors like
    /// these; then nothing has been added.
    fn add_batch(&self, _: &mut [Self::State], _: Groups<'_>, _: &[Vector], _: Rows<'_>) -> Result<bool> {
        Ok(false)
    }

    /// Adds the rows that another state has seen, behind its own.
    fn merge(&self, call: &mut Call<'_>, state: &mut Self::State, other: Self::State) -> Result<()>;

    /// Appends the result to `out`, whose representation is that of the signature.
    fn finish(&self, call: &mut Call<'_>, state: &Self::State, out: &mut Builder) -> Result<()>;

    /// Bytes of memory that the state has allocated.
    fn memory(_: &Self::State) -> usize {
        0
    }

    /// Writes the state's image, for a file of the running server.
    fn write(&self, state: &Self::State, out: &mut Vec<u8>);

    /// Reads an image that [`Aggregate::write`] wrote, and moves `image` behind it.
    fn read(&self, signature: &Signature, image: &mut &[u8]) -> Self::State;

    /// Removes a row, the first of those that were added, if the state can do that: for moving frames of windows. `false` if not.
    fn remove(
        &self,
        _: &mut Call<'_>,
        _: &mut Self::State,
        _: <Self::Arguments as Arguments>::Row<'_>,
    ) -> Result<bool> {
        Ok(false)
    }
}

/// To which states rows are added.
#[derive(Clone, Copy, Debug)]
pub enum Groups<'a> {
    /// All to one.
    One(usize),
    /// Each row of the chunk to its own.
    Each(&'a [u32]),
}

impl Groups<'_> {
    /// Calls a closure with the state and the value of each selected row that is not NULL. The values are those of a flat vector.
    #[inline]
    pub fn add_each<S, T: Copy>(
        self,
        states: &mut [S],
        values: &[T],
        validity: Option<&NullBuffer>,
        rows: Rows<'_>,
        mut add: impl FnMut(&mut S, T) -> Result<()>,
    ) -> Result<()> {
        match (self, rows.positions(), validity) {
            (Groups::One(group), None, None) => {
                let state = &mut states[group];
                values.iter().try_for_each(|value| add(state, *value))
            }
            (Groups::Each(groups), None, None) => {
                let groups = groups.iter();
                values
                    .iter()
                    .zip(groups)
                    .try_for_each(|(value, group)| add(&mut states[*group as usize], *value))
            }
            (groups, positions, validity) => {
                let valid = validity.map(|validity| valid_positions(rows, validity));
                let positions = valid.as_deref().or(positions).expect("rows are left out");
                let mut each = |row: usize, group: usize| add(&mut states[group], values[row]);
                let mut rows = positions.iter().map(|position| usize::from(*position));
                match groups {
                    Groups::One(group) => rows.try_for_each(|row| each(row, group)),
                    Groups::Each(groups) => rows.try_for_each(|row| each(row, groups[row] as usize)),
                }
            }
        }
    }

    /// Counts the selected rows that are not NULL.
    pub fn count_each<S>(
        self,
        states: &mut [S],
        validity: Option<&NullBuffer>,
        rows: Rows<'_>,
        mut count: impl FnMut(&mut S, i64),
    ) {
        let valid = validity.map(|validity| valid_positions(rows, validity));
        let rows = match &valid {
            Some(positions) => Rows::at(positions, rows.length()),
            None => rows,
        };
        match self {
            Groups::One(group) => count(&mut states[group], rows.count() as i64),
            Groups::Each(groups) => rows.each(|row| count(&mut states[groups[row] as usize], 1)),
        }
    }
}

/// The body of an aggregate.
pub trait AggregateKernel: Send + Sync {
    /// Whether it reads arguments and gives a result of these representations.
    fn accepts(&self, arguments: &[Representation], result: Representation) -> bool;

    /// Whether the result shows the order in which rows were added.
    fn keeps_order(&self) -> bool;

    /// A column of no states.
    fn states(&self) -> Box<dyn States>;
}

/// A column of states, one a group.
pub trait States: Send {
    /// How many groups.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds groups of no rows until there are so many, or forgets the last ones.
    fn resize(&mut self, signature: &Signature, groups: usize);

    /// Adds each selected row to its group; `groups` has the group of each row of the chunk. The arguments are flat or constant.
    fn add(
        &mut self,
        call: &mut Call<'_>,
        groups: &[u32],
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<()>;

    /// Adds all selected rows to one group.
    fn add_to(
        &mut self,
        call: &mut Call<'_>,
        group: usize,
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<()>;

    /// Removes rows from a group, the first of those that were added to it. `false`, and the group is spoilt, if its states cannot do that.
    fn remove_from(
        &mut self,
        call: &mut Call<'_>,
        group: usize,
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<bool>;

    /// Adds each state of another column of the same aggregate to a group of this one, in order; `groups` has the group for each.
    /// The other column is empty afterwards.
    fn merge(&mut self, call: &mut Call<'_>, other: &mut dyn States, groups: &[u32]) -> Result<()>;

    /// Moves each state to a column of its own part, of which `sizes` has the length. The states of a part keep their order; there are
    /// none afterwards.
    fn split(&mut self, parts: &[u8], sizes: &[usize]) -> Vec<Box<dyn States>>;

    /// Appends the results of some groups.
    fn finish(&self, call: &mut Call<'_>, groups: std::ops::Range<usize>, out: &mut Builder) -> Result<()>;

    /// Bytes of memory that the states take. It looks at each state that allocates.
    fn memory(&self) -> usize;

    /// Appends the image of a group's state.
    fn write(&self, group: usize, out: &mut Vec<u8>);

    /// Appends a group with the state of an image, and moves `image` behind it.
    fn read(&mut self, signature: &Signature, image: &mut &[u8]);

    /// For [`States::merge`].
    fn as_any(&mut self) -> &mut dyn Any;
}

/// Makes the body of an aggregate.
pub fn aggregate<A: Aggregate>(aggregate: A) -> impl AggregateKernel {
    Adapter(aggregate)
}

struct Adapter<A>(A);

impl<A: Aggregate> AggregateKernel for Adapter<A> {
    fn accepts(&self, arguments: &[Representation], result: Representation) -> bool {
        A::Arguments::accepts(arguments) && A::accepts(result)
    }

    fn keeps_order(&self) -> bool {
        A::KEEPS_ORDER
    }

    fn states(&self) -> Box<dyn States> {
        Box::new(Column { aggregate: self.0.clone(), states: Vec::new() })
    }
}

struct Column<A: Aggregate> {
    aggregate: A,
    states: Vec<A::State>,
}

impl<A: Aggregate> Column<A> {
    /// Calls a closure with each row that is selected and has no NULL where none is taken.
    fn each(
        arguments: &[Vector],
        rows: Rows<'_>,
        mut step: impl FnMut(usize, <A::Arguments as Arguments>::Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let columns = A::Arguments::columns(arguments);
        match Nulls::of::<A::Arguments>(arguments) {
            Nulls::All => Ok(()),
            Nulls::None => rows.try_each(|row| step(row, A::Arguments::get(&columns, row))),
            Nulls::Some(validity) => rows.try_each(|row| match validity.is_valid(row) {
                true => step(row, A::Arguments::get(&columns, row)),
                false => Ok(()),
            }),
        }
    }
}

impl<A: Aggregate> States for Column<A> {
    fn len(&self) -> usize {
        self.states.len()
    }

    fn resize(&mut self, signature: &Signature, groups: usize) {
        let aggregate = &self.aggregate;
        self.states.resize_with(groups, || aggregate.start(signature));
    }

    fn add(
        &mut self,
        call: &mut Call<'_>,
        groups: &[u32],
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<()> {
        let Column { aggregate, states, .. } = self;
        let all = if states.len() == 1 { Groups::One(0) } else { Groups::Each(groups) };
        if aggregate.add_batch(states, all, arguments, rows)? {
            return Ok(());
        }
        Self::each(arguments, rows, |row, values| {
            aggregate.add(call, &mut states[groups[row] as usize], values)
        })
    }

    fn add_to(
        &mut self,
        call: &mut Call<'_>,
        group: usize,
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<()> {
        let Column { aggregate, states, .. } = self;
        if aggregate.add_batch(states, Groups::One(group), arguments, rows)? {
            return Ok(());
        }
        let state = &mut states[group];
        Self::each(arguments, rows, |_, values| aggregate.add(call, state, values))
    }

    fn remove_from(
        &mut self,
        call: &mut Call<'_>,
        group: usize,
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<bool> {
        let Column { aggregate, states, .. } = self;
        let (state, mut all) = (&mut states[group], true);
        Self::each(arguments, rows, |_, values| {
            all = all && aggregate.remove(call, state, values)?;
            Ok(())
        })?;
        Ok(all)
    }

    fn merge(&mut self, call: &mut Call<'_>, other: &mut dyn States, groups: &[u32]) -> Result<()> {
        let other: &mut Column<A> = other.as_any().downcast_mut().expect("states of one aggregate meet");
        assert_eq!(other.states.len(), groups.len());
        for (state, group) in other.states.drain(..).zip(groups) {
            self.aggregate.merge(call, &mut self.states[*group as usize], state)?;
        }
        Ok(())
    }

    fn split(&mut self, parts: &[u8], sizes: &[usize]) -> Vec<Box<dyn States>> {
        assert_eq!(self.states.len(), parts.len());
        let mut columns: Vec<Vec<A::State>> = sizes.iter().map(|size| Vec::with_capacity(*size)).collect();
        for (state, part) in self.states.drain(..).zip(parts) {
            columns[usize::from(*part)].push(state);
        }
        let column = |states| Column { aggregate: self.aggregate.clone(), states };
        columns.into_iter().map(|states| Box::new(column(states)) as Box<dyn States>).collect()
    }

    fn finish(&self, call: &mut Call<'_>, groups: std::ops::Range<usize>, out: &mut Builder) -> Result<()> {
        self.states[groups].iter().try_for_each(|state| self.aggregate.finish(call, state, out))
    }

    fn memory(&self) -> usize {
        self.states.capacity() * size_of::<A::State>() + self.states.iter().map(A::memory).sum::<usize>()
    }

    fn write(&self, group: usize, out: &mut Vec<u8>) {
        self.aggregate.write(&self.states[group], out);
    }

    fn read(&mut self, signature: &Signature, image: &mut &[u8]) {
        self.states.push(self.aggregate.read(signature, image));
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
