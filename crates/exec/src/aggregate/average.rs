//! Exact averages: a sum and a count, divided at the end as PostgreSQL divides numerics.

use super::wide::Wide;
use super::{add, passes};
use crate::error::to_datafusion;
use crate::types;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array, PrimitiveArray,
};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{Result, ScalarValue, not_impl_err};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use firn_base::numeric::{self, MAX_PRECISION};
use firn_base::sync::Arc;
use firn_base::{Interval, SqlType, Value, interval};
use std::collections::HashSet;

/// The type of averages of a `numeric(precision, scale)`.
pub(super) fn result_type(precision: u8, scale: i8) -> DataType {
    types::data_type(numeric::quotient_type(precision - scale as u8, scale as u8))
}

/// An average of one group or window frame.
pub(super) fn exact(scale: i8, result: &DataType, distinct: bool) -> Result<Box<dyn Accumulator>> {
    let quotient = Quotient::new(scale, result);
    Ok(match distinct {
        true => Box::new(DistinctAverage { quotient, values: HashSet::new() }),
        false => Box::new(ExactAverage { quotient, sum: Wide::default(), count: 0 }),
    })
}

/// Averages of many groups.
pub(super) fn exact_groups(scale: i8, result: &DataType) -> Result<Box<dyn GroupsAccumulator>> {
    Ok(Box::new(GroupAverages {
        quotient: Quotient::new(scale, result),
        sums: Vec::new(),
        counts: Vec::new(),
    }))
}

/// What partial averages hand on: count and sum, or the values if they must differ.
pub(super) fn exact_state(name: &str, scale: i8, distinct: bool) -> Vec<FieldRef> {
    let sum = DataType::Decimal128(MAX_PRECISION, scale);
    match distinct {
        true => {
            let values = Field::new_list_field(sum, true);
            vec![Arc::new(Field::new_list(format_state_name(name, "values"), values, false))]
        }
        false => vec![
            Arc::new(Field::new(format_state_name(name, "count"), DataType::Int64, false)),
            Arc::new(Field::new(format_state_name(name, "sum"), sum, false)),
        ],
    }
}

/// How to divide a sum by a count.
#[derive(Clone, Copy, Debug)]
struct Quotient {
    from: u8,
    precision: u8,
    to: u8,
}

impl Quotient {
    fn new(scale: i8, result: &DataType) -> Quotient {
        let DataType::Decimal128(precision, to) = result else {
            panic!("averages are numerics, not {result}")
        };
        Quotient { from: scale as u8, precision: *precision, to: *to as u8 }
    }

    fn of(self, sum: i128, count: i64) -> Result<i128> {
        let fit = |(unscaled, scale)| numeric::fit(unscaled, scale, self.precision, self.to);
        numeric::divide((sum, self.from), (i128::from(count), 0)).and_then(fit).map_err(to_datafusion)
    }

    fn scalar(self, sum: i128, count: i64) -> Result<ScalarValue> {
        let average = if count == 0 { None } else { Some(self.of(sum, count)?) };
        Ok(ScalarValue::Decimal128(average, self.precision, self.to as i8))
    }

    fn sum_scalar(self, sum: i128) -> ScalarValue {
        ScalarValue::Decimal128(Some(sum), MAX_PRECISION, self.from as i8)
    }

    fn sum_array(self, sums: Vec<i128>) -> Result<ArrayRef> {
        let array = Decimal128Array::from(sums).with_precision_and_scale(MAX_PRECISION, self.from as i8)?;
        Ok(Arc::new(array))
    }
}

/// The average of one group or window frame, of which rows leave after others have come.
#[derive(Debug)]
struct ExactAverage {
    quotient: Quotient,
    sum: Wide,
    count: i64,
}

impl Accumulator for ExactAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Decimal128Type>();
        self.count += (values.len() - values.null_count()) as i64;
        self.sum.add_all(values);
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.quotient.scalar(self.sum.total()?, self.count)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Int64(Some(self.count)), self.quotient.sum_scalar(self.sum.total()?)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.count += states[0].as_primitive::<Int64Type>().iter().flatten().sum::<i64>();
        self.sum.add_all(states[1].as_primitive());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Decimal128Type>();
        self.count -= (values.len() - values.null_count()) as i64;
        self.sum.subtract_all(values);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct DistinctAverage {
    quotient: Quotient,
    values: HashSet<i128>,
}

impl Accumulator for DistinctAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend(values[0].as_primitive::<Decimal128Type>().iter().flatten());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sum = 0;
        for value in &self.values {
            add(&mut sum, *value)?;
        }
        self.quotient.scalar(sum, self.values.len() as i64)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<i128>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> =
            self.values.iter().map(|value| self.quotient.sum_scalar(*value)).collect();
        let ty = DataType::Decimal128(MAX_PRECISION, self.quotient.from as i8);
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &ty))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }
}

struct GroupAverages {
    quotient: Quotient,
    sums: Vec<i128>,
    counts: Vec<i64>,
}

impl GroupAverages {
    fn make_room(&mut self, groups: usize) {
        self.sums.resize(groups, 0);
        self.counts.resize(groups, 0);
    }
}

impl GroupsAccumulator for GroupAverages {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.make_room(total_num_groups);
        let values = values[0].as_primitive::<Decimal128Type>();
        if values.null_count() == 0 && opt_filter.is_none() {
            for (group, value) in group_indices.iter().zip(values.values()) {
                add(&mut self.sums[*group], *value)?;
                self.counts[*group] += 1;
            }
            return Ok(());
        }
        for (row, (group, value)) in group_indices.iter().zip(values.iter()).enumerate() {
            if let (Some(value), true) = (value, passes(opt_filter, row)) {
                add(&mut self.sums[*group], value)?;
                self.counts[*group] += 1;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        let average = |(sum, count): (&i128, &i64)| match count {
            0 => Ok(None),
            count => self.quotient.of(*sum, *count).map(Some),
        };
        let averages: Decimal128Array = sums.iter().zip(&counts).map(average).collect::<Result<_>>()?;
        let Quotient { precision, to, .. } = self.quotient;
        Ok(Arc::new(averages.with_precision_and_scale(precision, to as i8)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        Ok(vec![Arc::new(Int64Array::from(counts)), self.quotient.sum_array(sums)?])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.make_room(total_num_groups);
        let counts = values[0].as_primitive::<Int64Type>().values();
        let sums = values[1].as_primitive::<Decimal128Type>().values();
        for ((group, count), sum) in group_indices.iter().zip(counts).zip(sums) {
            add(&mut self.sums[*group], *sum)?;
            self.counts[*group] += count;
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Decimal128Type>();
        let (mut counts, mut sums) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
        for (row, value) in values.iter().enumerate() {
            let value = value.filter(|_| passes(opt_filter, row));
            counts.push(i64::from(value.is_some()));
            sums.push(value.unwrap_or(0));
        }
        Ok(vec![Arc::new(Int64Array::from(counts)), self.quotient.sum_array(sums)?])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<i64>()
    }
}

/// An average of spans of time.
pub(super) fn of_spans(distinct: bool) -> Result<Box<dyn Accumulator>> {
    if distinct {
        return not_impl_err!("avg(DISTINCT interval)");
    }
    Ok(Box::new(SpanAverage::default()))
}

/// What partial averages of spans hand on.
pub(super) fn span_state(name: &str) -> Vec<FieldRef> {
    let span = DataType::Interval(IntervalUnit::MonthDayNano);
    vec![
        Arc::new(Field::new(format_state_name(name, "count"), DataType::Int64, false)),
        Arc::new(Field::new(format_state_name(name, "sum"), span, false)),
    ]
}

/// The average of one group or window frame, whose sum may be larger on the way than what it ends with.
#[derive(Debug, Default)]
struct SpanAverage {
    months: i64,
    days: i64,
    nanoseconds: i128,
    count: i64,
}

impl SpanAverage {
    /// Adds spans so many times: once, or with -1 takes them away. How many there are.
    fn add(&mut self, spans: &dyn Array, times: i64) -> i64 {
        let spans: &PrimitiveArray<IntervalMonthDayNanoType> = spans.as_primitive();
        for span in spans.iter().flatten() {
            self.months += times * i64::from(span.months);
            self.days += times * i64::from(span.days);
            self.nanoseconds += i128::from(times) * i128::from(span.nanoseconds);
        }
        (spans.len() - spans.null_count()) as i64
    }

    fn total(&self) -> Result<Interval> {
        let total = || {
            Some(Interval {
                months: self.months.try_into().ok()?,
                days: self.days.try_into().ok()?,
                nanoseconds: self.nanoseconds.try_into().ok()?,
            })
        };
        total().ok_or_else(|| to_datafusion(interval::out_of_range()))
    }
}

impl Accumulator for SpanAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count += self.add(&values[0], 1);
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let average = match self.count {
            0 => Value::Null,
            count => self.total()?.checked_div(count as f64).map(Value::Interval).map_err(to_datafusion)?,
        };
        Ok(types::scalar(&average, SqlType::Interval))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = types::scalar(&Value::Interval(self.total()?), SqlType::Interval);
        Ok(vec![ScalarValue::Int64(Some(self.count)), sum])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.count += states[0].as_primitive::<Int64Type>().iter().flatten().sum::<i64>();
        self.add(&states[1], 1);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count -= self.add(&values[0], -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}
