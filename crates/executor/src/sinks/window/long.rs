//! A partition for which there is no memory, of whose rows only those near the current one are kept: where no function asks for others.
//!
//! Such functions need what they know from the rows before (row_number, rank, dense_rank, aggregates from the first row on), or rows
//! at a distance that is the same everywhere (lag and lead by a constant, aggregates over some rows before and behind).
//!
//! Others need what is known at the end of the partition: aggregates over all of it, and functions that ask how many rows there are
//! (ntile, percent_rank, cume_dist). Then the rows go to a temporary file as they come, and are read again from there.

use super::{Added, Bound, Calls, Frame, Moving, Sorted, VECTORS_AT_ONCE, View, WindowCallPlan};
use super::{WindowFunctionPlan, WindowPlan, inputs};
use crate::budget::Account;
use crate::buffer::RowBuffer;
use crate::columns::Collection;
use crate::pipeline::Work;
use crate::sinks::LEAST_BYTES;
use crate::values::repeat;
use firn_base::Result;
use firn_plan::operator::{Exclude, FrameUnit};
use firn_vector::aggregate::States;
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Local};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Datum, Vector};
use std::any::Any;

/// A partition that is computed while its rows come.
pub(super) struct LongPartition {
    /// The rows so far, if something must be known of all of them first.
    all: Option<AllRows>,
    /// How many rows there are, once that is known.
    length: Option<u64>,
    reach: Reach,
    running: Vec<Running>,
    /// The rows that are kept.
    rows: Collection,
    /// How many rows of the partition came before them.
    dropped: u64,
    /// The first of the peers of the first one that is kept, counted from the first row of the partition.
    first_peer: u64,
    /// How many of those that are kept have been computed.
    computed: usize,
    /// With so many it is worth while to go on.
    enough: usize,
    account: Account,
}

/// The rows of a partition that go to a temporary file, and what is to be known of all of them.
struct AllRows {
    rows: RowBuffer,
    /// The states of the aggregates over the whole partition, by the numbers of their calls.
    states: Vec<Option<(Box<dyn States>, Local)>>,
    account: Account,
}

/// The rows that functions look at.
#[derive(Clone, Copy, Default)]
struct Reach {
    before: usize,
    behind: usize,
    /// Whether the last of a row's peers must be known.
    all_peers: bool,
    /// Whether something must be known of all rows.
    all_rows: bool,
}

/// A function within a partition.
enum Running {
    Window(Box<dyn Any + Send>, Local),
    Aggregate(Box<Moving>, Local),
    /// An aggregate over the whole partition: its value, once that is known.
    Whole(Option<Vector>),
}

/// Functions that look farther have no reach.
const FARTHEST: u64 = 1 << 16;

impl Reach {
    fn of(plan: &WindowPlan, call: &WindowCallPlan, frame: &Frame) -> Option<Reach> {
        let near = |before: u64, behind: u64| {
            let is_near = before.max(behind) <= FARTHEST;
            // One row more, to see whether the next one is its peer.
            is_near.then_some(Reach {
                before: before as usize + 1,
                behind: behind as usize,
                ..Reach::default()
            })
        };
        if let WindowFunctionPlan::Window(kernel) = &call.function {
            let steps = match call.arguments.get(1).map(|argument| argument.constant()) {
                None => Some(1),
                Some(Some(Datum::Int32(steps))) => Some(steps),
                Some(_) => None,
            };
            let reach = kernel.reach(steps)?;
            let near = near(reach.before, reach.behind)?;
            return Some(Reach { all_peers: reach.all_peers, all_rows: reach.length, ..near });
        }
        if frame.is_whole(plan) {
            return Some(Reach { before: 1, all_rows: true, ..Reach::default() });
        }
        if frame.exclude != Exclude::NoOthers {
            return None;
        }
        if frame.unit != FrameUnit::Rows {
            let is_running = matches!((&frame.start, &frame.end), (Bound::Unbounded, Bound::Current));
            return is_running.then_some(Reach { before: 1, all_peers: true, ..Reach::default() });
        }
        let end = match &frame.end {
            Bound::Current => 0,
            Bound::Count(count) => *count,
            _ => return None,
        };
        let start = match &frame.start {
            Bound::Unbounded | Bound::Current => 0,
            Bound::Count(count) => *count,
            Bound::Distance(..) => return None,
        };
        near(start.min(end).min(0).unsigned_abs(), end.max(0).unsigned_abs())
    }
}

impl LongPartition {
    /// No rows; `None` if a function may look at any row.
    pub fn new(work: Work<'_>, plan: &WindowPlan, calls: &Calls) -> Result<Option<LongPartition>> {
        if !plan.is_repeatable {
            return Ok(None);
        }
        let mut reach = Reach { before: 1, ..Reach::default() };
        for (call, frame) in calls.calls.iter().zip(&calls.frames) {
            let Some(of_call) = Reach::of(plan, call, frame) else { return Ok(None) };
            reach.before = reach.before.max(of_call.before);
            reach.behind = reach.behind.max(of_call.behind);
            reach.all_peers |= of_call.all_peers;
            reach.all_rows |= of_call.all_rows;
        }
        let running = |(call, frame): (&WindowCallPlan, &Frame)| match &call.function {
            WindowFunctionPlan::Window(kernel) => Running::Window(kernel.start(), Local::default()),
            WindowFunctionPlan::Aggregate(_) if frame.is_whole(plan) => Running::Whole(None),
            WindowFunctionPlan::Aggregate(kernel) => {
                Running::Aggregate(Box::new(Moving::new(&**kernel, &call.signature, 0)), Local::default())
            }
        };
        let all = match reach.all_rows {
            true => Some(AllRows::new(work, plan, calls)?),
            false => None,
        };
        Ok(Some(LongPartition {
            all,
            length: None,
            reach,
            running: calls.calls.iter().zip(&calls.frames).map(running).collect(),
            rows: Collection::new(plan.representations.iter().copied()),
            dropped: 0,
            first_peer: 0,
            computed: 0,
            enough: 0,
            account: Account::new(&work.run.options.budget),
        }))
    }

    /// Adds the next rows of the partition.
    pub fn append(
        &mut self,
        work: Work<'_>,
        calls: &mut Calls,
        vectors: &[Vector],
        count: usize,
    ) -> Result<()> {
        match &mut self.all {
            Some(all) => return all.append(work, calls, vectors, count),
            None => self.rows.append(vectors, Rows::all(count)),
        }
        Ok(())
    }

    /// Appends the rows that can be computed to the result: all of them at the end of the partition.
    pub fn advance(
        &mut self,
        work: Work<'_>,
        plan: &WindowPlan,
        calls: &mut Calls,
        is_end: bool,
        result: &mut RowBuffer,
    ) -> Result<()> {
        if self.all.is_some() && !is_end {
            return Ok(());
        }
        if let Some(mut all) = self.all.take() {
            for (running, value) in self.running.iter_mut().zip(all.values(work, calls)?) {
                if let Running::Whole(known) = running {
                    *known = value;
                }
            }
            self.length = Some(all.rows.rows());
            for number in 0..all.rows.len() {
                let chunk = all.rows.take(number)?;
                self.rows.append(chunk.vectors(), chunk.rows());
                self.compute(work, plan, calls, false, result)?;
            }
        }
        self.compute(work, plan, calls, is_end, result)
    }

    fn compute(
        &mut self,
        work: Work<'_>,
        plan: &WindowPlan,
        calls: &mut Calls,
        is_end: bool,
        result: &mut RowBuffer,
    ) -> Result<()> {
        let count = self.rows.rows();
        let is_full = self.charge().is_err();
        if !is_end && !is_full && count < self.enough {
            return Ok(());
        }
        let empty = Collection::new(plan.representations.iter().copied());
        let table = std::mem::replace(&mut self.rows, empty).finish();
        let (vectors, width) = (table.vectors(), table.vectors().len());
        let sorted = Sorted::new(plan, vectors, count);
        let mut end = count;
        if !is_end {
            end = end.saturating_sub(self.reach.behind);
            if self.reach.all_peers {
                end = end.min(sorted.peers.last().map_or(0, |peers| peers.start));
            }
            end = end.max(self.computed);
        }
        let (from, whole) = (self.computed, 0..count);
        let mut of_rows = table.slice(0..width, from, end - from);
        for ((call, frame), running) in calls.calls.iter_mut().zip(&calls.frames).zip(&mut self.running) {
            if let Running::Whole(value) = running {
                let value = value.as_ref().expect("it is known before rows are computed");
                of_rows.push(repeat(value, end - from));
                continue;
            }
            let (arguments, chosen) = inputs(work, call, count, vectors)?;
            let mut values = Builder::new(call.signature.representation);
            match (&call.function, running) {
                (WindowFunctionPlan::Window(kernel), Running::Window(state, local)) => {
                    let mut view = View {
                        sorted: &sorted,
                        partition: &whole,
                        frame,
                        arguments: &arguments,
                        dropped: self.dropped,
                        first_peer: self.first_peer,
                        length: self.length,
                    };
                    let rows = self.dropped + from as u64..self.dropped + end as u64;
                    let mut call = Call::new(work.context, &call.signature, local);
                    kernel.rows(&mut call, &mut **state, &mut view, rows, &mut values)?;
                }
                (WindowFunctionPlan::Aggregate(_), Running::Aggregate(moving, local)) => {
                    let mut added = Added {
                        call: Call::new(work.context, &call.signature, local),
                        arguments: &arguments,
                        chosen: chosen.as_deref(),
                        most: work.run.options.vector_rows,
                    };
                    moving.rows(&mut added, &sorted, &whole, from..end, frame, &mut values)?;
                }
                _ => panic!("a function stays what it is"),
            }
            of_rows.push(values.finish());
        }
        let most = work.run.options.vector_rows * VECTORS_AT_ONCE;
        for from in (0..end - self.computed).step_by(most) {
            work.context.check_cancel()?;
            let length = most.min(end - self.computed - from);
            let vectors = of_rows.iter().map(|vector| vector.slice(from, length)).collect();
            result.push(Chunk::new(length, vectors))?;
        }
        let first = end.saturating_sub(self.reach.before);
        if let Some(number) = sorted.peers_of.get(first)
            && sorted.peers[*number as usize].start > 0
        {
            self.first_peer = self.dropped + sorted.peers[*number as usize].start as u64;
        }
        for running in &mut self.running {
            if let Running::Aggregate(moving, _) = running {
                moving.drop_first(first);
            }
        }
        self.rows.append(&table.slice(0..width, first, count - first), Rows::all(count - first));
        self.dropped += first as u64;
        self.computed = end - first;
        // So that rows that cannot be computed yet are not looked at for each few that come.
        self.enough = (self.rows.rows() * 2).max(self.rows.rows() + most);
        self.charge()
    }

    /// States what the rows take that are kept.
    fn charge(&mut self) -> Result<()> {
        let bytes = self.rows.memory();
        match self.account.set(2 * bytes) {
            Err(error) if bytes >= LEAST_BYTES => Err(error),
            _ => Ok(()),
        }
    }
}

impl AllRows {
    fn new(work: Work<'_>, plan: &WindowPlan, calls: &Calls) -> Result<AllRows> {
        let states = |(call, frame): (&WindowCallPlan, &Frame)| match &call.function {
            WindowFunctionPlan::Aggregate(kernel) if frame.is_whole(plan) => {
                let mut states = kernel.states();
                states.resize(&call.signature, 1);
                Some((states, Local::default()))
            }
            _ => None,
        };
        Ok(AllRows {
            rows: RowBuffer::in_file(plan.representations.clone(), &work.run.options)?,
            states: calls.calls.iter().zip(&calls.frames).map(states).collect(),
            account: Account::new(&work.run.options.budget),
        })
    }

    fn append(&mut self, work: Work<'_>, calls: &mut Calls, vectors: &[Vector], count: usize) -> Result<()> {
        let most = work.run.options.vector_rows;
        for (call, states) in calls.calls.iter_mut().zip(&mut self.states) {
            let Some((states, local)) = states else { continue };
            let (arguments, chosen) = inputs(work, call, count, vectors)?;
            let call = Call::new(work.context, &call.signature, local);
            let mut added = Added { call, arguments: &arguments, chosen: chosen.as_deref(), most };
            added.add(&mut **states, 0..count)?;
        }
        self.account.set(self.states.iter().flatten().map(|(states, _)| states.memory()).sum())?;
        for from in (0..count).step_by(most) {
            let length = most.min(count - from);
            let vectors = vectors.iter().map(|vector| vector.slice(from, length)).collect();
            self.rows.push(Chunk::new(length, vectors))?;
        }
        Ok(())
    }

    /// The values of the aggregates, each in a vector of one row.
    fn values(&mut self, work: Work<'_>, calls: &Calls) -> Result<Vec<Option<Vector>>> {
        let mut values = Vec::with_capacity(calls.calls.len());
        for (call, states) in calls.calls.iter().zip(&mut self.states) {
            let Some((states, local)) = states else {
                values.push(None);
                continue;
            };
            let mut value = Builder::new(call.signature.representation);
            states.finish(&mut Call::new(work.context, &call.signature, local), 0..1, &mut value)?;
            values.push(Some(value.finish()));
        }
        Ok(values)
    }
}
