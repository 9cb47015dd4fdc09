//! A partition for which there is no memory, of whose rows only those near the current one are kept: where no function asks for others.
//!
//! Such functions need what they know from the rows before (row_number, rank, dense_rank, aggregates from the first row on), or rows
//! at a distance that is the same everywhere (lag and lead by a constant, aggregates over some rows before and behind).

use super::{Added, Bound, Calls, Frame, Moving, Sorted, VECTORS_AT_ONCE, View, WindowCallPlan};
use super::{WindowFunctionPlan, WindowPlan, inputs};
use crate::budget::Account;
use crate::buffer::RowBuffer;
use crate::columns::Collection;
use crate::pipeline::Work;
use crate::sinks::LEAST_BYTES;
use firn_base::Result;
use firn_plan::operator::{Exclude, FrameUnit};
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Local};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Datum, Vector};
use std::any::Any;

/// A partition that is computed while its rows come.
pub(super) struct LongPartition {
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

/// The rows that functions look at.
#[derive(Clone, Copy)]
struct Reach {
    before: usize,
    behind: usize,
    /// Whether the last of a row's peers must be known.
    all_peers: bool,
}

/// A function within a partition.
enum Running {
    Window(Box<dyn Any + Send>, Local),
    Aggregate(Box<Moving>, Local),
}

/// Functions that look farther have no reach.
const FARTHEST: u64 = 1 << 16;

impl Reach {
    fn of(call: &WindowCallPlan, frame: &Frame) -> Option<Reach> {
        let near = |before: u64, behind: u64| {
            let is_near = before.max(behind) <= FARTHEST;
            // One row more, to see whether the next one is its peer.
            is_near.then_some(Reach {
                before: before as usize + 1,
                behind: behind as usize,
                all_peers: false,
            })
        };
        if let WindowFunctionPlan::Window(kernel) = &call.function {
            let steps = match call.arguments.get(1).map(|argument| argument.constant()) {
                None => Some(1),
                Some(Some(Datum::Int32(steps))) => Some(steps),
                Some(_) => None,
            };
            let reach = kernel.reach(steps)?;
            return near(reach.before, reach.behind);
        }
        if frame.exclude != Exclude::NoOthers {
            return None;
        }
        if frame.unit != FrameUnit::Rows {
            let is_running = matches!((&frame.start, &frame.end), (Bound::Unbounded, Bound::Current));
            return is_running.then_some(Reach { before: 1, behind: 0, all_peers: true });
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
    pub fn new(work: Work<'_>, plan: &WindowPlan, calls: &Calls) -> Option<LongPartition> {
        if !plan.is_repeatable {
            return None;
        }
        let mut reach = Reach { before: 1, behind: 0, all_peers: false };
        for (call, frame) in calls.calls.iter().zip(&calls.frames) {
            let of_call = Reach::of(call, frame)?;
            reach.before = reach.before.max(of_call.before);
            reach.behind = reach.behind.max(of_call.behind);
            reach.all_peers |= of_call.all_peers;
        }
        let running = |call: &WindowCallPlan| match &call.function {
            WindowFunctionPlan::Window(kernel) => Running::Window(kernel.start(), Local::default()),
            WindowFunctionPlan::Aggregate(kernel) => {
                Running::Aggregate(Box::new(Moving::new(&**kernel, &call.signature, 0)), Local::default())
            }
        };
        Some(LongPartition {
            reach,
            running: calls.calls.iter().map(running).collect(),
            rows: Collection::new(plan.representations.iter().copied()),
            dropped: 0,
            first_peer: 0,
            computed: 0,
            enough: 0,
            account: Account::new(&work.run.options.budget),
        })
    }

    /// Adds the next rows of the partition.
    pub fn append(&mut self, vectors: &[Vector], count: usize) {
        self.rows.append(vectors, Rows::all(count));
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
            let (arguments, chosen) = inputs(work, call, &sorted, vectors)?;
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
