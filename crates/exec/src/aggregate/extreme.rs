//! `min` and `max`, which DataFusion begins with the largest and the smallest finite float where there are groups, so that it yields
//! these of groups of nothing but infinity, and for which a NaN there is no value larger than the others.
//!
//! Spans of time compare by their lengths ([`crate::spans`]). Everything else is DataFusion's.

use super::{any_type, passes};
use crate::spans;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, FieldRef, Float32Type, Float64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs,
};
use firn_base::sync::{Arc, OnceLock};
use std::collections::VecDeque;

/// `min`.
pub fn smallest() -> Arc<AggregateUDF> {
    static SMALLEST: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    Arc::clone(SMALLEST.get_or_init(|| Extreme::of(Side::Smallest)))
}

/// `max`.
pub fn largest() -> Arc<AggregateUDF> {
    static LARGEST: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    Arc::clone(LARGEST.get_or_init(|| Extreme::of(Side::Largest)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Side {
    Smallest,
    Largest,
}

impl Side {
    /// DataFusion's.
    fn theirs(self) -> Arc<AggregateUDF> {
        match self {
            Side::Smallest => min_udaf(),
            Side::Largest => max_udaf(),
        }
    }

    /// Whether a span of one length takes the place of one of another that came before.
    fn replaces(self, new: i128, old: i128) -> bool {
        match self {
            Side::Smallest => new <= old,
            Side::Largest => new >= old,
        }
    }

    /// The span that all others take the place of.
    fn last_span(self) -> IntervalMonthDayNano {
        match self {
            Side::Smallest => IntervalMonthDayNano::new(i32::MAX, i32::MAX, i64::MAX),
            Side::Largest => IntervalMonthDayNano::new(i32::MIN, i32::MIN, i64::MIN),
        }
    }

    /// Ours over groups, where DataFusion has none or is wrong. Each begins with what every other value replaces.
    fn groups(self, ty: &DataType) -> Option<Box<dyn GroupsAccumulator>> {
        match (self, ty) {
            (Side::Smallest, DataType::Float32) => {
                Some(groups_of::<Float32Type>(f32::NAN, |new: f32, old: f32| new < old || old.is_nan()))
            }
            (Side::Smallest, DataType::Float64) => {
                Some(groups_of::<Float64Type>(f64::NAN, |new: f64, old: f64| new < old || old.is_nan()))
            }
            (Side::Largest, DataType::Float32) => {
                let larger = |new: f32, old: f32| new > old || new.is_nan();
                Some(groups_of::<Float32Type>(f32::NEG_INFINITY, larger))
            }
            (Side::Largest, DataType::Float64) => {
                let larger = |new: f64, old: f64| new > old || new.is_nan();
                Some(groups_of::<Float64Type>(f64::NEG_INFINITY, larger))
            }
            (side, ty) if is_span(ty) => {
                let replaces = move |new, old| side.replaces(spans::length(new), spans::length(old));
                Some(groups_of::<IntervalMonthDayNanoType>(side.last_span(), replaces))
            }
            _ => None,
        }
    }
}

fn groups_of<T: ArrowPrimitiveType>(
    start: T::Native,
    replaces: impl Fn(T::Native, T::Native) -> bool + Send + 'static,
) -> Box<dyn GroupsAccumulator> {
    Box::new(GroupExtremes::<T, _> { start, replaces, values: Vec::new(), seen: Vec::new() })
}

/// `min` or `max`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    side: Side,
    signature: Signature,
}

impl Extreme {
    fn of(side: Side) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::from(Extreme { side, signature: any_type() }))
    }
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        match self.side {
            Side::Smallest => "min",
            Side::Largest => "max",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.side.theirs().coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.side.theirs().return_type(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match is_span(arguments.return_field.data_type()) {
            true => Ok(Box::new(SpanExtreme { side: self.side, extreme: None })),
            false => self.side.theirs().inner().accumulator(arguments),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.side.theirs().inner().state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        is_span(arguments.return_field.data_type())
            || self.side.theirs().inner().groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match self.side.groups(arguments.return_field.data_type()) {
            Some(groups) => Ok(groups),
            None => self.side.theirs().inner().create_groups_accumulator(arguments),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match is_span(arguments.return_field.data_type()) {
            true => Ok(Box::new(SpanFrame { side: self.side, rows: VecDeque::new(), came: 0, left: 0 })),
            false => self.side.theirs().inner().create_sliding_accumulator(arguments),
        }
    }

    fn is_descending(&self) -> Option<bool> {
        self.side.theirs().inner().is_descending()
    }

    fn value_from_stats(&self, arguments: &StatisticsArgs) -> Option<ScalarValue> {
        match is_span(arguments.return_type) {
            true => None,
            false => self.side.theirs().inner().value_from_stats(arguments),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn set_monotonicity(&self, ty: &DataType) -> SetMonotonicity {
        self.side.theirs().inner().set_monotonicity(ty)
    }
}

fn is_span(ty: &DataType) -> bool {
    matches!(ty, DataType::Interval(IntervalUnit::MonthDayNano))
}

fn spans_of(array: &ArrayRef) -> &PrimitiveArray<IntervalMonthDayNanoType> {
    array.as_primitive()
}

/// The extreme span of one group. What it hands on is what it yields.
#[derive(Debug)]
struct SpanExtreme {
    side: Side,
    extreme: Option<IntervalMonthDayNano>,
}

impl Accumulator for SpanExtreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for span in spans_of(&values[0]).iter().flatten() {
            let replaces = |old| self.side.replaces(spans::length(span), spans::length(old));
            if self.extreme.is_none_or(replaces) {
                self.extreme = Some(span);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.extreme))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

/// The extreme span of a frame that rows leave.
#[derive(Debug)]
struct SpanFrame {
    side: Side,
    /// Rows by their numbers, but for those that one behind them takes the place of: the first is the extreme.
    rows: VecDeque<(usize, IntervalMonthDayNano)>,
    /// How many rows have come.
    came: usize,
    /// How many of these have left.
    left: usize,
}

impl Accumulator for SpanFrame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for span in spans_of(&values[0]) {
            if let Some(span) = span {
                let length = spans::length(span);
                let side = self.side;
                let is_replaced =
                    |(_, old): &(usize, IntervalMonthDayNano)| side.replaces(length, spans::length(*old));
                while self.rows.back().is_some_and(is_replaced) {
                    self.rows.pop_back();
                }
                self.rows.push_back((self.came, span));
            }
            self.came += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.left += values[0].len();
        while self.rows.front().is_some_and(|(row, _)| *row < self.left) {
            self.rows.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.rows.front().map(|(_, span)| *span)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.capacity() * size_of::<(usize, IntervalMonthDayNano)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("frames are not merged")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("frames are not merged")
    }
}

/// The extremes of many groups. What they hand on is what they yield.
struct GroupExtremes<T: ArrowPrimitiveType, F> {
    /// What a group begins with.
    start: T::Native,
    /// Whether a value (the first) takes the place of another.
    replaces: F,
    values: Vec<T::Native>,
    /// Whether a group has had a value.
    seen: Vec<bool>,
}

impl<T, F> GroupExtremes<T, F>
where
    T: ArrowPrimitiveType,
{
    /// The extremes so far, of groups that leave.
    fn take(&mut self, emit_to: EmitTo) -> ArrayRef {
        let (values, seen) = (emit_to.take_needed(&mut self.values), emit_to.take_needed(&mut self.seen));
        Arc::new(PrimitiveArray::<T>::new(values.into(), Some(NullBuffer::from(seen))))
    }
}

impl<T, F> GroupsAccumulator for GroupExtremes<T, F>
where
    T: ArrowPrimitiveType,
    F: Fn(T::Native, T::Native) -> bool + Send + 'static,
{
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.values.resize(total_num_groups, self.start);
        self.seen.resize(total_num_groups, false);
        let values = values[0].as_primitive::<T>();
        let mut add = |group: usize, value: T::Native| {
            if (self.replaces)(value, self.values[group]) {
                self.values[group] = value;
            }
            self.seen[group] = true;
        };
        if values.null_count() == 0 && opt_filter.is_none() {
            group_indices.iter().zip(values.values().iter()).for_each(|(group, value)| add(*group, *value));
        } else {
            for (row, (group, value)) in group_indices.iter().zip(values.iter()).enumerate() {
                if let (Some(value), true) = (value, passes(opt_filter, row)) {
                    add(*group, value);
                }
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.take(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.take(emit_to)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.update_batch(values, group_indices, None, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        if opt_filter.is_none() {
            return Ok(vec![Arc::clone(&values[0])]);
        }
        let kept = |(row, value): (usize, Option<T::Native>)| value.filter(|_| passes(opt_filter, row));
        let kept: PrimitiveArray<T> = values[0].as_primitive::<T>().iter().enumerate().map(kept).collect();
        Ok(vec![Arc::new(kept)])
    }

    fn size(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.seen.capacity()
    }
}
