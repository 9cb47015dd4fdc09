//! `sum` of exact numbers, which DataFusion lets wrap around: 22003 if the sum has more than the 38 digits that
//! `numeric` has here. PostgreSQL's has more, but no sum of ours is a wrong one.
//!
//! A sum is checked for its digits when it is asked for. Sums of many groups and those that threads make of their parts are kept in
//! 128 bits, which hold 38 digits and somewhat more: where one of them has more on the way to a sum that fits, that is an error too.

use super::nan::{GroupsOneNan, OneNan};
use super::sliding::{Asked, Frame};
use super::wide::Wide;
use super::{add, passes};
use crate::error::to_datafusion;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, FieldRef};
use datafusion::common::{HashSet, Result, ScalarValue};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, Operator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use firn_base::numeric;
use firn_base::sync::{Arc, OnceLock};

/// `sum`.
pub fn sum() -> Arc<AggregateUDF> {
    static SUM: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    let sum = || Arc::new(AggregateUDF::from(Sum { signature: sum_udaf().signature().clone() }));
    Arc::clone(SUM.get_or_init(sum))
}

/// `sum`: checked over exact numbers, DataFusion's over everything else.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    signature: Signature,
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        sum_udaf().return_type(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match (Digits::of(arguments.return_field.data_type()), arguments.is_distinct) {
            (Some(digits), false) => Ok(Box::new(ExactSum { digits, sum: Wide::default(), count: 0 })),
            (Some(digits), true) => Ok(Box::new(DistinctSum { digits, values: HashSet::new() })),
            (None, _) => Ok(Box::new(OneNan(sum_udaf().inner().accumulator(arguments)?))),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        sum_udaf().inner().state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        sum_udaf().inner().groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match Digits::of(arguments.return_field.data_type()) {
            Some(digits) => Ok(Box::new(GroupSums { digits, sums: Vec::new(), seen: Vec::new() })),
            None => Ok(Box::new(GroupsOneNan(sum_udaf().inner().create_groups_accumulator(arguments)?))),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match Digits::of(arguments.return_field.data_type()) {
            Some(_) if !arguments.is_distinct => self.accumulator(arguments),
            None if !arguments.is_distinct && arguments.return_field.data_type().is_floating() => {
                Ok(Box::new(Frame::new(Asked::Sum, arguments.return_field.data_type())))
            }
            _ => Ok(Box::new(OneNan(sum_udaf().inner().create_sliding_accumulator(arguments)?))),
        }
    }

    fn simplify_expr_op_literal(
        &self,
        call: &AggregateFunction,
        argument: &Expr,
        op: Operator,
        literal: &Expr,
        is_left: bool,
    ) -> Result<Option<Expr>> {
        match literal {
            // The number of rows need not fit into the type of the literal.
            Expr::Literal(ScalarValue::Decimal128(..), _) => Ok(None),
            _ => sum_udaf().inner().simplify_expr_op_literal(call, argument, op, literal, is_left),
        }
    }

    fn value_from_stats(&self, arguments: &StatisticsArgs) -> Option<ScalarValue> {
        match arguments.return_type {
            DataType::Decimal128(..) => None,
            _ => sum_udaf().inner().value_from_stats(arguments),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn set_monotonicity(&self, ty: &DataType) -> SetMonotonicity {
        sum_udaf().inner().set_monotonicity(ty)
    }
}

/// The type of a sum.
#[derive(Clone, Copy, Debug)]
struct Digits {
    precision: u8,
    scale: i8,
}

impl Digits {
    fn of(result: &DataType) -> Option<Digits> {
        match result {
            DataType::Decimal128(precision, scale) => Some(Digits { precision: *precision, scale: *scale }),
            _ => None,
        }
    }

    fn check(self, sum: i128) -> Result<()> {
        let limit =
            numeric::power_of_ten(u32::from(self.precision)).expect("no type has more than 38 digits");
        match sum.unsigned_abs() < limit.unsigned_abs() {
            true => Ok(()),
            false => Err(to_datafusion(numeric::overflow())),
        }
    }

    fn scalar(self, sum: Option<i128>) -> ScalarValue {
        ScalarValue::Decimal128(sum, self.precision, self.scale)
    }

    fn array(self, sums: Decimal128Array) -> Result<ArrayRef> {
        Ok(Arc::new(sums.with_precision_and_scale(self.precision, self.scale)?))
    }
}

/// The sum of one group or window frame, of which rows leave after others have come.
#[derive(Debug)]
struct ExactSum {
    digits: Digits,
    sum: Wide,
    count: u64,
}

impl ExactSum {
    fn total(&self) -> Result<Option<i128>> {
        if self.count > 0 { self.sum.total().map(Some) } else { Ok(None) }
    }
}

impl Accumulator for ExactSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Decimal128Type>();
        self.count += (values.len() - values.null_count()) as u64;
        self.sum.add_all(values);
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let total = self.total()?;
        total.map_or(Ok(()), |sum| self.digits.check(sum))?;
        Ok(self.digits.scalar(total))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.digits.scalar(self.total()?)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Decimal128Type>();
        self.count -= (values.len() - values.null_count()) as u64;
        self.sum.subtract_all(values);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

/// The sum of the different values of a group.
#[derive(Debug)]
struct DistinctSum {
    digits: Digits,
    values: HashSet<i128>,
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend(values[0].as_primitive::<Decimal128Type>().iter().flatten());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sum = 0;
        for value in &self.values {
            add(&mut sum, *value)?;
        }
        self.digits.check(sum)?;
        Ok(self.digits.scalar((!self.values.is_empty()).then_some(sum)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<i128>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> =
            self.values.iter().map(|value| self.digits.scalar(Some(*value))).collect();
        let ty = DataType::Decimal128(self.digits.precision, self.digits.scale);
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &ty))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }
}

/// Sums of many groups.
struct GroupSums {
    digits: Digits,
    sums: Vec<i128>,
    /// Whether a group has had a value.
    seen: Vec<bool>,
}

impl GroupSums {
    /// The sums so far, of groups that leave.
    fn take(&mut self, emit_to: EmitTo) -> Decimal128Array {
        let (sums, seen) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.seen));
        sums.into_iter().zip(seen).map(|(sum, seen)| seen.then_some(sum)).collect()
    }
}

impl GroupsAccumulator for GroupSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.sums.resize(total_num_groups, 0);
        self.seen.resize(total_num_groups, false);
        let values = values[0].as_primitive::<Decimal128Type>();
        let mut overflows = false;
        let mut plus = |group: usize, value: i128| {
            let (sum, overflow) = self.sums[group].overflowing_add(value);
            self.sums[group] = sum;
            self.seen[group] = true;
            overflows |= overflow;
        };
        if values.null_count() == 0 && opt_filter.is_none() {
            group_indices.iter().zip(values.values()).for_each(|(group, value)| plus(*group, *value));
        } else {
            for (row, (group, value)) in group_indices.iter().zip(values.iter()).enumerate() {
                if let (Some(value), true) = (value, passes(opt_filter, row)) {
                    plus(*group, value);
                }
            }
        }
        if overflows { Err(to_datafusion(numeric::overflow())) } else { Ok(()) }
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = self.take(emit_to);
        sums.iter().flatten().try_for_each(|sum| self.digits.check(sum))?;
        self.digits.array(sums)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = self.take(emit_to);
        Ok(vec![self.digits.array(sums)?])
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
        let values = values[0].as_primitive::<Decimal128Type>();
        let kept = match opt_filter {
            None => values.clone(),
            Some(_) => {
                let kept = |(row, value): (usize, Option<i128>)| value.filter(|_| passes(opt_filter, row));
                values.iter().enumerate().map(kept).collect()
            }
        };
        Ok(vec![self.digits.array(kept)?])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.capacity()
    }
}
