//! Windows: rows are sorted by partition and order, and each function goes through every partition.
//!
//! A row costs its columns twice (collected, then gathered in the order), its key, and one value a function. An aggregate over
//! frames keeps one state that follows the frame: it adds the rows that come into it, removes those that leave it
//! if the aggregate can, and begins anew otherwise.

use super::Kept;
use super::sort::sorted;
use crate::budget::Account;
use crate::columns::Collection;
use crate::expression::{Conditions, Expression};
use crate::keys::{Class, Key, KeyColumn, KeyLayout, Keys};
use crate::pipeline::{Sink, SinkPlan, Template, Work};
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
    /// The functions.
    pub calls: Template<Vec<WindowCallPlan>>,
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

struct WindowSink {
    columns: Vec<usize>,
    layout: KeyLayout,
    rows: Collection,
    keys: Keys,
    account: Account,
}

impl SinkPlan for WindowPlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Sink>> {
        let layout = KeyLayout::new(self.layout.clone());
        Ok(Box::new(WindowSink {
            columns: self.columns.clone(),
            rows: Collection::new(self.representations.iter().copied()),
            keys: layout.none(),
            layout,
            account: Account::new(&work.run.options.budget),
        }))
    }

    fn finish(&self, work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>> {
        let mut sinks = super::own::<WindowSink>(sinks);
        let mut all = sinks.next().expect("there is a worker");
        for other in sinks {
            all.keys.append(&other.keys);
            all.rows.append_all(&other.rows.finish());
        }
        let bytes = all.rows.memory() + all.keys.memory();
        all.account.set(2 * bytes)?;
        let order = sorted(&all.keys, work)?;
        let rows = all.rows.finish();
        let mut vectors = rows.gather(0..rows.vectors().len(), &order);
        let sorted = Sorted::new(self, &vectors, order.len());
        let mut results = Vec::new();
        for mut call in self.calls.copy() {
            results.push(evaluate(work, &mut call, &sorted, &vectors)?);
        }
        vectors.extend(results);
        let mut result = Collection::new(vectors.iter().map(Vector::representation));
        result.append(&vectors, Rows::all(order.len()));
        all.account.set(result.memory())?;
        Ok(Arc::new(Kept { table: result.finish(), account: all.account }))
    }
}

impl Sink for WindowSink {
    fn consume(&mut self, _: Work<'_>, chunk: Chunk) -> Result<bool> {
        let vectors: Vec<Vector> = self.columns.iter().map(|place| chunk.vectors()[*place].clone()).collect();
        self.keys.append(&self.layout.keys(&vectors, chunk.rows()));
        self.rows.append(chunk.vectors(), chunk.rows());
        self.account.set(self.rows.memory() + self.keys.memory())?;
        Ok(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
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
    sorted: &Sorted,
    vectors: &[Vector],
) -> Result<Vector> {
    let (arguments, chosen) = inputs(work, call, sorted, vectors)?;
    let frame = Frame::new(work, &mut call.frame)?;
    let (signature, mut local) = (call.signature.clone(), Local::default());
    let mut results = Builder::new(signature.representation);
    for partition in &sorted.partitions {
        match &call.function {
            WindowFunctionPlan::Window(kernel) => {
                let mut state = kernel.start();
                let mut view = View { sorted, partition, frame: &frame, arguments: &arguments };
                let mut call = Call::new(work.context, &signature, &mut local);
                kernel.rows(&mut call, &mut *state, &mut view, 0..partition.len() as u64, &mut results)?;
            }
            WindowFunctionPlan::Aggregate(kernel) => {
                let call = Call::new(work.context, &signature, &mut local);
                let mut moving = Moving {
                    states: kernel.states(),
                    call,
                    arguments: &arguments,
                    chosen: chosen.as_deref(),
                    can_remove: true,
                    most: work.run.options.vector_rows,
                };
                moving.partition(sorted, partition, &frame, &mut results)?;
            }
        }
    }
    Ok(results.finish())
}

/// The arguments in all rows, and which rows a filter has chosen.
fn inputs(
    work: Work<'_>,
    call: &mut WindowCallPlan,
    sorted: &Sorted,
    vectors: &[Vector],
) -> Result<(Vec<Vector>, Option<Vec<bool>>)> {
    let mut arguments = Collection::new(call.arguments.iter().map(Expression::representation));
    let mut chosen = (!call.filter.is_empty()).then(|| vec![false; sorted.rows]);
    let most = work.run.options.vector_rows;
    for from in (0..sorted.rows).step_by(most) {
        let length = most.min(sorted.rows - from);
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
struct Moving<'a> {
    states: Box<dyn States>,
    call: Call<'a>,
    arguments: &'a [Vector],
    chosen: Option<&'a [bool]>,
    can_remove: bool,
    most: usize,
}

impl Moving<'_> {
    fn partition(
        &mut self,
        sorted: &Sorted,
        partition: &Range<usize>,
        frame: &Frame,
        results: &mut Builder,
    ) -> Result<()> {
        self.begin();
        let mut before: [Range<usize>; 3] = [partition.start..partition.start, 0..0, 0..0];
        let mut last = Slot::new();
        let mut is_known = false;
        for row in partition.clone() {
            self.call.context.check_cancel()?;
            let parts = frame.parts(sorted, partition, row);
            if !(is_known && parts == before) {
                self.follow(&before, &parts)?;
                let mut one = Builder::new(self.call.signature.representation);
                self.states.finish(&mut self.call, 0..1, &mut one)?;
                last.set(one.finish().datum(0));
                (before, is_known) = (parts, true);
            }
            results.push(last.get());
        }
        Ok(())
    }

    fn begin(&mut self) {
        self.states.resize(self.call.signature, 0);
        self.states.resize(self.call.signature, 1);
    }

    /// Makes the state that of other rows.
    fn follow(&mut self, before: &[Range<usize>; 3], after: &[Range<usize>; 3]) -> Result<()> {
        let is_one = |parts: &[Range<usize>; 3]| parts[1].is_empty() && parts[2].is_empty();
        let (old, new) = (before[0].clone(), after[0].clone());
        let moves_on = is_one(before)
            && is_one(after)
            && old.start <= new.start
            && old.end <= new.end
            && new.start <= old.end;
        // What leaves must be less than what would be added anew.
        let leaves = old.start..new.start.max(old.start);
        if moves_on && (leaves.is_empty() || self.can_remove && leaves.len() < new.len()) {
            if self.remove(leaves)? {
                return self.add(old.end..new.end);
            }
            self.can_remove = false;
        }
        self.begin();
        after.iter().try_for_each(|part| self.add(part.clone()))
    }

    fn add(&mut self, rows: Range<usize>) -> Result<()> {
        for from in rows.clone().step_by(self.most) {
            let length = self.most.min(rows.end - from);
            let (arguments, positions) = self.part(from, length);
            let rows = positions.as_ref().map_or(Rows::all(length), |positions| Rows::at(positions, length));
            self.states.add_to(&mut self.call, 0, &arguments, rows)?;
        }
        Ok(())
    }

    /// Whether they could be removed.
    fn remove(&mut self, rows: Range<usize>) -> Result<bool> {
        for from in rows.clone().step_by(self.most) {
            let length = self.most.min(rows.end - from);
            let (arguments, positions) = self.part(from, length);
            let rows = positions.as_ref().map_or(Rows::all(length), |positions| Rows::at(positions, length));
            if !self.states.remove_from(&mut self.call, 0, &arguments, rows)? {
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
}

impl View<'_> {
    fn own(&self, range: Range<usize>) -> Range<u64> {
        let start = self.partition.start;
        (range.start - start) as u64..(range.end - start) as u64
    }
}

impl Partition for View<'_> {
    fn len(&self) -> u64 {
        self.partition.len() as u64
    }

    fn peers(&mut self, row: u64) -> Result<Range<u64>> {
        let row = self.partition.start + row as usize;
        Ok(self.own(self.sorted.peers[self.sorted.peers_of[row] as usize].clone()))
    }

    fn frame(&mut self, row: u64) -> Result<[Range<u64>; 3]> {
        let row = self.partition.start + row as usize;
        let [one, two, three] = self.frame.parts(self.sorted, self.partition, row);
        Ok([self.own(one), self.own(two), self.own(three)])
    }

    fn argument(&mut self, number: usize, row: u64, out: &mut Slot) -> Result<()> {
        out.set(self.arguments[number].datum(self.partition.start + row as usize));
        Ok(())
    }
}
