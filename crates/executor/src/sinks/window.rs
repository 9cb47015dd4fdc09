//! Windows: rows are sorted by partition and order, and each function goes through every partition.
//!
//! A row costs its columns twice (collected, then gathered in the order), its key, and one value a function. An aggregate over
//! frames keeps one state that follows the frame: it adds the rows that come into it, removes those that leave it
//! if the aggregate can, and begins anew otherwise.
//!
//! Where memory does not suffice, sorted runs go to temporary files. As they are merged, whole partitions are
//! computed, as many at once as make a few vectors. One that does not fit is computed while its rows come, or in a second pass over
//! them ([`long`]), unless a function looks at single rows far away.

mod long;

use self::long::LongPartition;
use super::build::LEAST_BYTES;
use super::runs::{Merge, SortedRun};
use super::sort::{SortSink, sorted};
use crate::budget::Account;
use crate::buffer::RowBuffer;
use crate::columns::Collection;
use crate::expression::{Conditions, Expression};
use crate::keys::{Class, Key, KeyColumn, KeyLayout, Keys};
use crate::pipeline::{Sink, SinkPlan, Work};
use crate::template::Template;
use firn_base::datetime::MICROS_PER_DAY;
use firn_base::sync::Arc;
use firn_base::{Error, Interval, Representation, Result, SqlState, TimeZoneSetting, operators};
use firn_plan::operator::{Exclude, FrameUnit};
use firn_vector::aggregate::{AggregateKernel, States};
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Local, Signature};
use firn_vector::selection::Rows;
use firn_vector::window::{Partition, WindowKernel};
use firn_vector::{Chunk, Datum, Slot, Vector};
use std::any::Any;
use std::ops::Range;

/// Window functions of one window.
pub struct WindowPlan {
    /// How the columns of the input lie; all are kept.
    pub representations: Vec<Representation>,
    /// The positions of the partition's columns, then of the order's.
    pub columns: Vec<usize>,
    /// How many of them are the partition's.
    pub partition: usize,
    /// Their keys.
    pub layout: Vec<KeyColumn>,
    /// How many rows of each partition are wanted at least, the first ones; all, if it is NULL or below zero.
    pub first: Option<Template<Expression>>,
    /// The functions.
    pub calls: Template<Vec<WindowCallPlan>>,
    /// Whether the arguments of a row may be computed twice.
    pub is_repeatable: bool,
}

/// A window function, or an aggregate over a frame.
#[derive(Clone)]
pub struct WindowCallPlan {
    /// What it does.
    pub function: WindowFunctionPlan,
    /// The types that it is called with.
    pub signature: Arc<Signature>,
    /// Its arguments.
    pub arguments: Vec<Expression>,
    /// Rows that an aggregate adds.
    pub filter: Conditions,
    /// Over which rows it is computed.
    pub frame: FramePlan,
}

/// What a window function does.
#[derive(Clone)]
pub enum WindowFunctionPlan {
    /// A value made of where a row stands in its partition.
    Window(Arc<dyn WindowKernel>),
    /// An aggregate of the rows of the frame.
    Aggregate(Arc<dyn AggregateKernel>),
}

/// A frame.
#[derive(Clone)]
pub struct FramePlan {
    /// In what its bounds count.
    pub unit: FrameUnit,
    /// The first row.
    pub start: BoundPlan,
    /// The last row.
    pub end: BoundPlan,
    /// Rows that are left out.
    pub exclude: Exclude,
}

/// A bound of a frame.
#[derive(Clone)]
pub enum BoundPlan {
    /// The first or the last row of the partition.
    Unbounded,
    /// The current row, or its peers.
    Current,
    /// So much before the current row.
    Preceding(Expression),
    /// So much after it.
    Following(Expression),
}

/// Chunks of the result have the rows of so many vectors, and at least as many are computed at once if runs are merged.
const VECTORS_AT_ONCE: usize = 4;

impl SinkPlan for WindowPlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Sink>> {
        let first = match &self.first {
            Some(first) => match first.copy().evaluate_once(&work.scope())?.datum(0) {
                Datum::Int64(count) => usize::try_from(count).ok(),
                _ => None,
            },
            None => None,
        };
        let partition = || KeyLayout::for_equality(self.layout[..self.partition].to_vec());
        let limit = first.map(|count| (count, Some(partition())));
        let (representations, layout) = (self.representations.clone(), KeyLayout::new(self.layout.clone()));
        Ok(Box::new(SortSink::new(work, representations, self.columns.clone(), layout, limit)))
    }

    fn finish(&self, work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>> {
        let mut all = SortSink::of_all(work, sinks)?;
        let mut calls = Calls::new(work, self)?;
        let bytes = all.rows.memory() + all.keys.memory();
        if all.runs.is_empty()
            && let Err(error) = all.account.set(2 * bytes)
        {
            all.spill(work, error)?;
        }
        let representations = self.representations.iter().copied();
        let results = calls.calls.iter().map(|call| call.signature.representation);
        let representations = representations.chain(results).collect();
        if all.runs.is_empty() {
            let order = sorted(&all.keys, work)?;
            let SortSink { rows, mut account, .. } = all;
            let table = rows.finish();
            let vectors = table.gather(0..table.vectors().len(), &order);
            drop(table);
            let mut result = RowBuffer::new(representations, &work.run.options);
            // From here on the result is charged for them.
            let charged = &mut || account.set(0);
            calls.compute(work, self, vectors, order.len(), charged, &mut result)?;
            return Ok(Arc::new(result));
        }
        if all.rows.rows() > 0 {
            all.write_run(work)?;
        }
        let mut result = RowBuffer::in_file(representations, &work.run.options)?;
        self.merge(work, all.runs, &mut calls, &mut result)?;
        Ok(Arc::new(result))
    }
}

impl WindowPlan {
    /// Merges runs and computes partition after partition.
    fn merge(
        &self,
        work: Work<'_>,
        runs: Vec<SortedRun>,
        calls: &mut Calls,
        result: &mut RowBuffer,
    ) -> Result<()> {
        let layout = KeyLayout::new(self.layout.clone());
        let mut merge = Merge::new(work, Arc::new(runs), self.representations.clone(), layout)?;
        let partition = KeyLayout::new(self.layout[..self.partition].to_vec());
        let most = work.run.options.vector_rows;
        let mut account = Account::new(&work.run.options.budget);
        let empty = || Collection::new(self.representations.iter().copied());
        let mut rows = empty();
        // How many of them are of partitions that have ended, and the partition of the last one.
        let (mut ended, mut last) = (0, partition.none());
        let mut long: Option<LongPartition> = None;
        loop {
            work.context.check_cancel()?;
            let table = merge.next(most)?;
            if table.rows() == 0 {
                break;
            }
            let columns = self.columns[..self.partition].iter();
            let vectors: Vec<Vector> = columns.map(|place| table.vectors()[*place].clone()).collect();
            let keys = partition.keys(&vectors, Rows::all(table.rows()));
            let is_first = |row: &usize| match row {
                0 => !last.is_empty() && last.get(0) != keys.get(0),
                _ => keys.get(row - 1) != keys.get(*row),
            };
            let first: Vec<usize> = (0..table.rows()).filter(is_first).collect();
            last.clear();
            last.push(keys.get(table.rows() - 1));
            let slice = |from: usize, to: usize| table.slice(0..table.vectors().len(), from, to - from);
            let mut from = 0;
            if let Some(partition) = &mut long {
                from = first.first().copied().unwrap_or(table.rows());
                partition.append(work, calls, &slice(0, from), from)?;
                partition.advance(work, self, calls, !first.is_empty(), result)?;
                if first.is_empty() {
                    continue;
                }
                long = None;
            }
            if let Some(first) = first.last() {
                ended = rows.rows() + first - from;
            }
            rows.append(&slice(from, table.rows()), Rows::all(table.rows() - from));
            let refused = |rows: &Collection, account: &mut Account| {
                account.set(2 * rows.memory()).err().filter(|_| rows.memory() >= LEAST_BYTES)
            };
            if ended >= most * VECTORS_AT_ONCE || ended > 0 && refused(&rows, &mut account).is_some() {
                let table = std::mem::replace(&mut rows, empty()).finish();
                let width = table.vectors().len();
                let vectors = table.slice(0..width, 0, ended);
                calls.compute(work, self, vectors, ended, &mut || Ok(()), result)?;
                let left = table.rows() - ended;
                rows.append(&table.slice(0..width, ended, left), Rows::all(left));
                ended = 0;
            }
            let error = refused(&rows, &mut account);
            // With partitions that have ended the next turn computes them first.
            if ended == 0 && (error.is_some() || work.run.options.always_spill) {
                match (LongPartition::new(work, self, calls)?, error) {
                    (Some(mut partition), _) => {
                        let table = std::mem::replace(&mut rows, empty()).finish();
                        account.set(0)?;
                        partition.append(work, calls, table.vectors(), table.rows())?;
                        partition.advance(work, self, calls, false, result)?;
                        long = Some(partition);
                    }
                    (None, Some(error)) => return Err(error),
                    (None, None) => {}
                }
            }
        }
        if let Some(partition) = &mut long {
            return partition.advance(work, self, calls, true, result);
        }
        let count = rows.rows();
        calls.compute(work, self, rows.finish().vectors().to_vec(), count, &mut || Ok(()), result)
    }
}

/// The functions of a window, and their frames.
struct Calls {
    calls: Vec<WindowCallPlan>,
    frames: Vec<Frame>,
}

impl Calls {
    fn new(work: Work<'_>, plan: &WindowPlan) -> Result<Calls> {
        let mut calls = plan.calls.copy();
        let frames = calls.iter_mut().map(|call| Frame::new(work, &mut call.frame)).collect::<Result<_>>()?;
        Ok(Calls { calls, frames })
    }

    /// Appends the rows of whole partitions, which are sorted, and the values of all functions in them. `before_result` is called when
    /// only they are kept.
    fn compute(
        &mut self,
        work: Work<'_>,
        plan: &WindowPlan,
        mut vectors: Vec<Vector>,
        rows: usize,
        before_result: &mut dyn FnMut() -> Result<()>,
        result: &mut RowBuffer,
    ) -> Result<()> {
        let sorted = Sorted::new(plan, &vectors, rows);
        let mut results = Vec::with_capacity(self.calls.len());
        for (call, frame) in self.calls.iter_mut().zip(&self.frames) {
            results.push(evaluate(work, call, frame, &sorted, &vectors)?);
        }
        drop(sorted);
        vectors.extend(results);
        before_result()?;
        let most = work.run.options.vector_rows * VECTORS_AT_ONCE;
        for from in (0..rows).step_by(most) {
            work.context.check_cancel()?;
            let length = most.min(rows - from);
            let vectors = vectors.iter().map(|vector| vector.slice(from, length)).collect();
            result.push(Chunk::new(length, vectors))?;
        }
        Ok(())
    }
}

/// Where partitions and peers end.
struct Sorted {
    rows: usize,
    partitions: Vec<Range<usize>>,
    /// The groups of peers of all partitions, and in which of them each row is.
    peers: Vec<Range<usize>>,
    peers_of: Vec<u32>,
    /// The one column of the order, if there is just one.
    order: Option<(Vector, KeyColumn)>,
}

impl Sorted {
    fn new(plan: &WindowPlan, vectors: &[Vector], rows: usize) -> Sorted {
        let columns: Vec<Vector> = plan.columns.iter().map(|place| vectors[*place].clone()).collect();
        let keys = |part: Range<usize>| {
            let layout = KeyLayout::new(plan.layout[part.clone()].to_vec());
            layout.keys(&columns[part], Rows::all(rows))
        };
        let (partition, all) = (keys(0..plan.partition), keys(0..columns.len()));
        let ranges = |keys: &Keys| {
            let (mut ranges, mut start) = (Vec::new(), 0);
            let differs = |row: usize| -> bool {
                let (left, right): (Key<'_>, Key<'_>) = (keys.get(row - 1), keys.get(row));
                left != right
            };
            for row in 1..=rows {
                if row == rows || differs(row) {
                    ranges.push(start..row);
                    start = row;
                }
            }
            ranges
        };
        let peers = ranges(&all);
        let mut peers_of = vec![0; rows];
        for (number, peers) in peers.iter().enumerate() {
            peers_of[peers.clone()].fill(number as u32);
        }
        let order = (columns.len() == plan.partition + 1)
            .then(|| (columns[plan.partition].clone(), plan.layout[plan.partition]));
        Sorted { rows, partitions: ranges(&partition), peers, peers_of, order }
    }
}

/// A bound of a frame with its value.
enum Bound {
    Unbounded,
    Current,
    /// Rows or groups before (negative) or after.
    Count(i64),
    /// A distance in the order: the value, and whether it is before.
    Distance(Vector, bool),
}

struct Frame {
    unit: FrameUnit,
    start: Bound,
    end: Bound,
    exclude: Exclude,
    /// In which days and months are added to moments.
    zone: TimeZoneSetting,
}

impl Frame {
    fn new(work: Work<'_>, plan: &mut FramePlan) -> Result<Frame> {
        let unit = plan.unit;
        let bound = |plan: &mut BoundPlan, which: &str| -> Result<Bound> {
            let (expression, is_before) = match plan {
                BoundPlan::Unbounded => return Ok(Bound::Unbounded),
                BoundPlan::Current => return Ok(Bound::Current),
                BoundPlan::Preceding(expression) => (expression, true),
                BoundPlan::Following(expression) => (expression, false),
            };
            let value = expression.evaluate_once(&work.scope())?;
            let refused = |state, message: &str| {
                Err(Error::new(state, format!("frame {which} offset must not be {message}")))
            };
            let is_negative = match value.datum(0) {
                Datum::Null => return refused(SqlState::NULL_VALUE_NOT_ALLOWED, "null"),
                Datum::Int16(value) => value < 0,
                Datum::Int32(value) => value < 0,
                Datum::Int64(value) => value < 0,
                Datum::Float32(value) => value < 0.0 || value.is_nan(),
                Datum::Float64(value) => value < 0.0 || value.is_nan(),
                Datum::Numeric(value) => value.sign() == Some(-1),
                Datum::Interval(value) => value.comparable() < 0,
                _ => false,
            };
            if is_negative {
                return match unit {
                    FrameUnit::Range => Err(Error::new(
                        SqlState::INVALID_PRECEDING_OR_FOLLOWING_SIZE,
                        "invalid preceding or following size in window function",
                    )),
                    _ => refused(SqlState::INVALID_PRECEDING_OR_FOLLOWING_SIZE, "negative"),
                };
            }
            if unit == FrameUnit::Range {
                return Ok(Bound::Distance(value, is_before));
            }
            let Datum::Int64(count) = value.datum(0) else { panic!("rows are counted by a bigint") };
            Ok(Bound::Count(if is_before { -count } else { count }))
        };
        let start = bound(&mut plan.start, "starting")?;
        let end = bound(&mut plan.end, "ending")?;
        Ok(Frame { unit, start, end, exclude: plan.exclude, zone: *work.context.zone() })
    }

    /// Whether it is the whole partition for each row.
    fn is_whole(&self, plan: &WindowPlan) -> bool {
        // Without an order all rows are peers.
        let reaches = |bound: &Bound| match bound {
            Bound::Unbounded => true,
            Bound::Current => self.unit != FrameUnit::Rows && plan.columns.len() == plan.partition,
            Bound::Count(_) | Bound::Distance(..) => false,
        };
        self.exclude == Exclude::NoOthers && reaches(&self.start) && reaches(&self.end)
    }

    /// The rows from the first on, before the end, before any is excluded.
    fn whole(&self, sorted: &Sorted, partition: &Range<usize>, row: usize) -> Range<usize> {
        let peers = &sorted.peers[sorted.peers_of[row] as usize];
        let clamp = |place: i64| place.clamp(partition.start as i64, partition.end as i64) as usize;
        let group = |offset: i64| -> Option<&Range<usize>> {
            let number = i64::from(sorted.peers_of[row]).checked_add(offset)?;
            let group = sorted.peers.get(usize::try_from(number).ok()?)?;
            (partition.start <= group.start && group.end <= partition.end).then_some(group)
        };
        let start = match (&self.start, self.unit) {
            (Bound::Unbounded, _) => partition.start,
            (Bound::Current, FrameUnit::Rows) => row,
            (Bound::Current, _) => peers.start,
            (Bound::Count(count), FrameUnit::Rows) => clamp((row as i64).saturating_add(*count)),
            (Bound::Count(count), _) => match group(*count) {
                Some(group) => group.start,
                None if *count < 0 => partition.start,
                None => partition.end,
            },
            (Bound::Distance(distance, is_before), _) => {
                within(sorted, partition, row, (distance, *is_before, &self.zone), true)
            }
        };
        let end = match (&self.end, self.unit) {
            (Bound::Unbounded, _) => partition.end,
            (Bound::Current, FrameUnit::Rows) => row + 1,
            (Bound::Current, _) => peers.end,
            (Bound::Count(count), FrameUnit::Rows) => clamp((row as i64 + 1).saturating_add(*count)),
            (Bound::Count(count), _) => match group(*count) {
                Some(group) => group.end,
                None if *count < 0 => partition.start,
                None => partition.end,
            },
            (Bound::Distance(distance, is_before), _) => {
                within(sorted, partition, row, (distance, *is_before, &self.zone), false)
            }
        };
        start..end.max(start)
    }

    /// The parts of a frame.
    fn parts(&self, sorted: &Sorted, partition: &Range<usize>, row: usize) -> [Range<usize>; 3] {
        let whole = self.whole(sorted, partition, row);
        let peers = sorted.peers[sorted.peers_of[row] as usize].clone();
        let without = |out: Range<usize>, kept: Range<usize>| {
            let (low, high) =
                (out.start.clamp(whole.start, whole.end), out.end.clamp(whole.start, whole.end));
            let kept = kept.start.clamp(low, high)..kept.end.clamp(low, high);
            [whole.start..low, kept, high..whole.end]
        };
        match self.exclude {
            Exclude::NoOthers => [whole.clone(), whole.end..whole.end, whole.end..whole.end],
            Exclude::CurrentRow => without(row..row + 1, row..row),
            Exclude::Group => without(peers.clone(), peers.end..peers.end),
            Exclude::Ties => without(peers, row..row + 1),
        }
    }
}

/// A bound of a RANGE frame with a distance: the first row at least so far (`is_start`), or the one behind the last.
fn within(
    sorted: &Sorted,
    partition: &Range<usize>,
    row: usize,
    (distance, is_before, zone): (&Vector, bool, &TimeZoneSetting),
    is_start: bool,
) -> usize {
    let (order, column) = sorted.order.as_ref().expect("RANGE with a distance has one order key");
    let peers = &sorted.peers[sorted.peers_of[row] as usize];
    let of = order.representation();
    let Some(own) = Distance::of(order.datum(row), of) else {
        // NULLs are at no distance from each other.
        return if is_start { peers.start } else { peers.end };
    };
    let distance = Distance::of(distance.datum(0), distance.representation());
    let distance = distance.expect("the distance is not NULL");
    // Towards smaller values, in whatever direction they are sorted.
    let bound = own.moved(&distance, is_before != column.descending, zone);
    // Where NULLs stand first they are before every value, else behind.
    let before = |place: usize| match Distance::of(order.datum(place), of) {
        None => column.nulls_first,
        Some(value) => {
            let order = value.compare(&bound);
            let order = if column.descending { order.reverse() } else { order };
            if is_start { order.is_lt() } else { order.is_le() }
        }
    };
    let (mut low, mut high) = (partition.start, partition.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// A value that distances are taken of.
#[derive(Clone, Copy, Debug)]
enum Distance {
    Whole(i128),
    Numeric(firn_base::Numeric),
    Float(f64),
    /// A date or timestamp: microseconds since 1970-01-01, local.
    Moment(i64),
    /// A timestamp with time zone.
    MomentInZone(i64),
    /// A time of day.
    Clock(i64),
    Span(Interval),
    /// How long an interval is to comparisons.
    Length(i128),
}

impl Distance {
    fn of(datum: Datum<'_>, representation: Representation) -> Option<Distance> {
        Some(match (datum, representation) {
            (Datum::Null, _) => return None,
            (Datum::Int32(days), Representation::Date) => {
                Distance::Moment(i64::from(days).saturating_mul(MICROS_PER_DAY))
            }
            (Datum::Int64(micros), Representation::Timestamp) => Distance::Moment(micros),
            (Datum::Int64(micros), Representation::TimestampTz) => Distance::MomentInZone(micros),
            (Datum::Int64(micros), Representation::Time) => Distance::Clock(micros),
            (Datum::Interval(span), _) => Distance::Span(span),
            (Datum::Int16(value), _) => Distance::Whole(value.into()),
            (Datum::Int32(value), _) => Distance::Whole(value.into()),
            (Datum::Int64(value), _) => Distance::Whole(value.into()),
            (Datum::Numeric(value), _) => Distance::Numeric(value),
            (Datum::Float32(value), _) => Distance::Float(value.into()),
            (Datum::Float64(value), _) => Distance::Float(value),
            (other, _) => panic!("the plan has checked that {other:?} has distances"),
        })
    }

    /// So far up or down. What does not fit is beyond all values.
    fn moved(self, by: &Distance, down: bool, zone: &TimeZoneSetting) -> Distance {
        let beyond = if down { i64::MIN } else { i64::MAX };
        let directed = |span: Interval| if down { span.checked_neg() } else { Ok(span) };
        match (self, *by) {
            (Distance::Moment(moment), Distance::Span(span)) => {
                let moved = directed(span).and_then(|span| operators::shift(moment, &span));
                Distance::Moment(moved.unwrap_or(beyond))
            }
            (Distance::MomentInZone(moment), Distance::Span(span)) => {
                let moved = directed(span).and_then(|span| operators::shift_in_zone(moment, &span, zone));
                Distance::MomentInZone(moved.unwrap_or(beyond))
            }
            (Distance::Clock(time), Distance::Span(span)) => {
                let micros = if down { -span.microseconds() } else { span.microseconds() };
                Distance::Clock(time.saturating_add(micros))
            }
            (Distance::Span(own), Distance::Span(span)) => {
                let (own, by) = (own.comparable(), span.comparable());
                Distance::Length(if down { own - by } else { own + by })
            }
            (Distance::Whole(value), Distance::Whole(by)) => {
                Distance::Whole(if down { value - by } else { value + by })
            }
            (Distance::Float(value), by) => {
                let by = by.to_float();
                Distance::Float(if down { value - by } else { value + by })
            }
            (Distance::Numeric(value), Distance::Numeric(by)) => {
                let moved = if down { value.checked_sub(by) } else { value.checked_add(by) };
                // What does not fit is beyond all values.
                let beyond =
                    if down { firn_base::Numeric::NEGATIVE_INFINITY } else { firn_base::Numeric::INFINITY };
                Distance::Numeric(moved.unwrap_or(beyond))
            }
            _ => panic!("a distance has the type of its values"),
        }
    }

    fn to_float(self) -> f64 {
        match self {
            Distance::Float(value) => value,
            Distance::Whole(value) => value as f64,
            other => panic!("{other:?} is no distance of floats"),
        }
    }

    fn compare(&self, other: &Distance) -> std::cmp::Ordering {
        match (self, other) {
            (Distance::Whole(left), Distance::Whole(right)) => left.cmp(right),
            (Distance::Float(left), Distance::Float(right)) => {
                left.partial_cmp(right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
            }
            (Distance::Numeric(left), Distance::Numeric(right)) => left.cmp(right),
            (Distance::Moment(left), Distance::Moment(right))
            | (Distance::MomentInZone(left), Distance::MomentInZone(right))
            | (Distance::Clock(left), Distance::Clock(right)) => left.cmp(right),
            (Distance::Span(left), Distance::Length(right)) => left.comparable().cmp(right),
            _ => panic!("values of one order have one type"),
        }
    }

    /// Whether values of a class have distances.
    pub fn is_of(class: Class) -> bool {
        matches!(
            class,
            Class::Same(
                Representation::Int16
                    | Representation::Int32
                    | Representation::Int64
                    | Representation::Numeric
                    | Representation::Decimal { .. }
                    | Representation::Float32
                    | Representation::Float64
                    | Representation::Date
                    | Representation::Time
                    | Representation::Timestamp
                    | Representation::TimestampTz
                    | Representation::Interval
            )
        )
    }
}

/// Whether RANGE takes distances of values that are compared like this.
pub(crate) fn has_distances(class: Class) -> bool {
    Distance::is_of(class)
}

/// The values of a call in all rows.
fn evaluate(
    work: Work<'_>,
    call: &mut WindowCallPlan,
    frame: &Frame,
    sorted: &Sorted,
    vectors: &[Vector],
) -> Result<Vector> {
    let (arguments, chosen) = inputs(work, call, sorted.rows, vectors)?;
    let (signature, mut local) = (call.signature.clone(), Local::default());
    let mut results = Builder::new(signature.representation);
    for partition in &sorted.partitions {
        match &call.function {
            WindowFunctionPlan::Window(kernel) => {
                let mut state = kernel.start();
                let arguments = &arguments;
                let mut view =
                    View { sorted, partition, frame, arguments, dropped: 0, first_peer: 0, length: None };
                let mut call = Call::new(work.context, &signature, &mut local);
                kernel.rows(&mut call, &mut *state, &mut view, 0..partition.len() as u64, &mut results)?;
            }
            WindowFunctionPlan::Aggregate(kernel) => {
                let mut added = Added {
                    call: Call::new(work.context, &signature, &mut local),
                    arguments: &arguments,
                    chosen: chosen.as_deref(),
                    most: work.run.options.vector_rows,
                };
                let mut moving = Moving::new(&**kernel, &signature, partition.start);
                let rows = partition.clone();
                moving.rows(&mut added, sorted, partition, rows, frame, &mut results)?;
            }
        }
    }
    Ok(results.finish())
}

/// The arguments in all rows, and which rows a filter has chosen.
fn inputs(
    work: Work<'_>,
    call: &mut WindowCallPlan,
    rows: usize,
    vectors: &[Vector],
) -> Result<(Vec<Vector>, Option<Vec<bool>>)> {
    let mut arguments = Collection::new(call.arguments.iter().map(Expression::representation));
    let mut chosen = (!call.filter.is_empty()).then(|| vec![false; rows]);
    let most = work.run.options.vector_rows;
    for from in (0..rows).step_by(most) {
        let length = most.min(rows - from);
        let chunk = Chunk::new(length, vectors.iter().map(|vector| vector.slice(from, length)).collect());
        // Arguments are evaluated for the rows that the filter leaves; the others' are not looked at.
        let filtered = call.filter.select(&work.scope(), chunk)?;
        let mut of_chunk = Vec::with_capacity(call.arguments.len());
        for argument in &mut call.arguments {
            of_chunk.push(argument.evaluate(&work.scope(), &filtered)?);
        }
        arguments.append(&of_chunk, Rows::all(length));
        if let Some(chosen) = &mut chosen {
            filtered.rows().each(|row| chosen[from + row] = true);
        }
    }
    Ok((arguments.finish().vectors().to_vec(), chosen))
}

/// An aggregate whose state follows the frame.
struct Moving {
    states: Box<dyn States>,
    /// The frame of the row before, and the value in it, once there is one.
    before: [Range<usize>; 3],
    last: Slot,
    is_known: bool,
    can_remove: bool,
}

/// What an aggregate adds: the arguments of all rows.
struct Added<'a> {
    call: Call<'a>,
    arguments: &'a [Vector],
    chosen: Option<&'a [bool]>,
    most: usize,
}

impl Moving {
    /// Before the first row of a partition, which begins there.
    fn new(kernel: &dyn AggregateKernel, signature: &Signature, start: usize) -> Moving {
        let mut states = kernel.states();
        states.resize(signature, 1);
        let before = [start..start, 0..0, 0..0];
        Moving { states, before, last: Slot::new(), is_known: false, can_remove: true }
    }

    /// Appends the values in some rows, which follow those of the call before.
    fn rows(
        &mut self,
        added: &mut Added<'_>,
        sorted: &Sorted,
        partition: &Range<usize>,
        rows: Range<usize>,
        frame: &Frame,
        results: &mut Builder,
    ) -> Result<()> {
        for row in rows {
            added.call.context.check_cancel()?;
            let parts = frame.parts(sorted, partition, row);
            if !(self.is_known && parts == self.before) {
                self.follow(added, &parts)?;
                let mut one = Builder::new(added.call.signature.representation);
                self.states.finish(&mut added.call, 0..1, &mut one)?;
                self.last.set(one.finish().datum(0));
                (self.before, self.is_known) = (parts, true);
            }
            results.push(self.last.get());
        }
        Ok(())
    }

    /// The first rows that are kept are no longer: what was counted from them is counted from the ones behind.
    fn drop_first(&mut self, rows: usize) {
        for part in &mut self.before {
            *part = part.start.saturating_sub(rows)..part.end.saturating_sub(rows);
        }
    }

    fn begin(&mut self, added: &Added<'_>) {
        self.states.resize(added.call.signature, 0);
        self.states.resize(added.call.signature, 1);
    }

    /// Makes the state that of other rows.
    fn follow(&mut self, added: &mut Added<'_>, after: &[Range<usize>; 3]) -> Result<()> {
        let is_one = |parts: &[Range<usize>; 3]| parts[1].is_empty() && parts[2].is_empty();
        let (old, new) = (self.before[0].clone(), after[0].clone());
        let moves_on = is_one(&self.before)
            && is_one(after)
            && old.start <= new.start
            && old.end <= new.end
            && new.start <= old.end;
        // What leaves must be less than what would be added anew.
        let leaves = old.start..new.start.max(old.start);
        if moves_on && (leaves.is_empty() || self.can_remove && leaves.len() < new.len()) {
            if added.remove(&mut *self.states, leaves)? {
                return added.add(&mut *self.states, old.end..new.end);
            }
            self.can_remove = false;
        }
        self.begin(added);
        after.iter().try_for_each(|part| added.add(&mut *self.states, part.clone()))
    }
}

impl Added<'_> {
    fn add(&mut self, states: &mut dyn States, rows: Range<usize>) -> Result<()> {
        for from in rows.clone().step_by(self.most) {
            let length = self.most.min(rows.end - from);
            let (arguments, positions) = self.part(from, length);
            let rows = positions.as_ref().map_or(Rows::all(length), |positions| Rows::at(positions, length));
            states.add_to(&mut self.call, 0, &arguments, rows)?;
        }
        Ok(())
    }

    /// Whether they could be removed.
    fn remove(&mut self, states: &mut dyn States, rows: Range<usize>) -> Result<bool> {
        for from in rows.clone().step_by(self.most) {
            let length = self.most.min(rows.end - from);
            let (arguments, positions) = self.part(from, length);
            let rows = positions.as_ref().map_or(Rows::all(length), |positions| Rows::at(positions, length));
            if !states.remove_from(&mut self.call, 0, &arguments, rows)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn part(&self, from: usize, length: usize) -> (Vec<Vector>, Option<Vec<u16>>) {
        let arguments = self.arguments.iter().map(|vector| vector.slice(from, length)).collect();
        let positions = self.chosen.map(|chosen| {
            (0..length).filter(|row| chosen[from + row]).map(|row| row as u16).collect::<Vec<_>>()
        });
        (arguments, positions)
    }
}

/// A partition as window functions see it: rows are counted from its first one.
struct View<'a> {
    sorted: &'a Sorted,
    partition: &'a Range<usize>,
    frame: &'a Frame,
    arguments: &'a [Vector],
    /// How many rows of the partition came before those that are kept, and the first of the peers of the first one that is kept.
    dropped: u64,
    first_peer: u64,
    /// How many rows the partition has, if not only those that are kept and came before.
    length: Option<u64>,
}

impl View<'_> {
    fn place(&self, row: u64) -> usize {
        self.partition.start + (row - self.dropped) as usize
    }

    fn own(&self, range: Range<usize>) -> Range<u64> {
        let own = |place: usize| (place - self.partition.start) as u64 + self.dropped;
        own(range.start)..own(range.end)
    }
}

impl Partition for View<'_> {
    fn len(&self) -> u64 {
        self.length.unwrap_or(self.partition.len() as u64 + self.dropped)
    }

    fn peers(&mut self, row: u64) -> Result<Range<u64>> {
        let peers = self.sorted.peers[self.sorted.peers_of[self.place(row)] as usize].clone();
        let is_first = peers.start == self.partition.start;
        let own = self.own(peers);
        Ok(if is_first { self.first_peer..own.end } else { own })
    }

    fn frame(&mut self, row: u64) -> Result<[Range<u64>; 3]> {
        let [one, two, three] = self.frame.parts(self.sorted, self.partition, self.place(row));
        Ok([self.own(one), self.own(two), self.own(three)])
    }

    fn argument(&mut self, number: usize, row: u64, out: &mut Slot) -> Result<()> {
        out.set(self.arguments[number].datum(self.place(row)));
        Ok(())
    }
}
