//! `percentile_cont`, which DataFusion interpolates by six digits, and makes its own `min` and `max` of where the fraction is 0 or 1.
//!
//! All values of a group are kept until the end, as PostgreSQL does.

use super::ordered::share_of;
use super::passes;
use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, ListArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature,
};
use firn_base::operators::{compare_floats, one_nan};
use firn_base::sync::{Arc, OnceLock};

/// `percentile_cont(fraction) WITHIN GROUP (ORDER BY value)`.
pub fn percentile_cont() -> Arc<AggregateUDF> {
    static FUNCTION: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    let function = || Arc::new(AggregateUDF::from(PercentileCont { signature: super::any_type() }));
    Arc::clone(FUNCTION.get_or_init(function))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PercentileCont {
    signature: Signature,
}

impl AggregateUDFImpl for PercentileCont {
    fn name(&self) -> &str {
        "percentile_cont"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [value, fraction] if value.is_numeric() || value.is_null() => {
                Ok(vec![DataType::Float64, fraction.clone()])
            }
            [value, _] => exec_err!("Function 'percentile_cont' takes no {value}"),
            _ => exec_err!("Function 'percentile_cont' takes one argument"),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)));
        Ok(vec![Arc::new(Field::new(format_state_name(arguments.name, self.name()), list, true))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Values { place: Place::of(&arguments)?, values: Vec::new() }))
    }

    fn groups_accumulator_supported(&self, _arguments: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups { place: Place::of(&arguments)?, groups: Vec::new() }))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// Where the wanted value stands among the others.
#[derive(Clone, Copy, Debug)]
struct Place {
    share: Option<f64>,
    descending: bool,
}

impl Place {
    fn of(arguments: &AccumulatorArgs) -> Result<Place> {
        let descending = arguments.order_bys.first().is_some_and(|order| order.options.descending);
        Ok(Place { share: share_of(arguments)?, descending })
    }

    /// The value there, or between its neighbours.
    fn value(self, values: &mut [f64]) -> Option<f64> {
        let share = self.share?;
        let last = values.len().checked_sub(1)?;
        let index = share * last as f64;
        let (first, second) = (index.floor() as usize, index.ceil() as usize);
        let mut at = |place: usize| {
            let place = if self.descending { last - place } else { place };
            *values.select_nth_unstable_by(place, |a, b| compare_floats(*a, *b)).1
        };
        let value = at(first);
        match first == second {
            true => Some(value),
            false => Some(one_nan(value + (index - first as f64) * (at(second) - value))),
        }
    }
}

/// The values of one group.
#[derive(Debug)]
struct Values {
    place: Place,
    values: Vec<f64>,
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend(values[0].as_primitive::<Float64Type>().iter().flatten());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.place.value(&mut self.values)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<f64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = std::mem::take(&mut self.values);
        Ok(vec![ScalarValue::List(Arc::new(lists([values])))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states[0].as_list::<i32>().iter().flatten().try_for_each(|list| self.update_batch(&[list]))
    }
}

/// The values of many groups.
struct Groups {
    place: Place,
    groups: Vec<Vec<f64>>,
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, Vec::new());
        let values = values[0].as_primitive::<Float64Type>();
        for (row, (group, value)) in group_indices.iter().zip(values.iter()).enumerate() {
            if let (Some(value), true) = (value, passes(opt_filter, row)) {
                self.groups[*group].push(value);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let mut groups = emit_to.take_needed(&mut self.groups);
        let values: Float64Array = groups.iter_mut().map(|values| self.place.value(values)).collect();
        Ok(Arc::new(values))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(lists(emit_to.take_needed(&mut self.groups)))])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, Vec::new());
        for (group, list) in group_indices.iter().zip(values[0].as_list::<i32>().iter()) {
            if let Some(list) = list {
                self.groups[*group].extend(list.as_primitive::<Float64Type>().iter().flatten());
            }
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Float64Type>().iter().enumerate();
        let kept = |(row, value): (usize, Option<f64>)| {
            value.filter(|_| passes(opt_filter, row)).map_or(Vec::new(), |value| vec![value])
        };
        Ok(vec![Arc::new(lists(values.map(kept)))])
    }

    fn size(&self) -> usize {
        let values: usize = self.groups.iter().map(|values| values.capacity() * size_of::<f64>()).sum();
        values + self.groups.capacity() * size_of::<Vec<f64>>()
    }
}

/// The values of groups as they are handed on.
fn lists(groups: impl IntoIterator<Item = Vec<f64>>) -> ListArray {
    let groups = groups.into_iter().map(|values| Some(values.into_iter().map(Some)));
    ListArray::from_iter_primitive::<Float64Type, _, _>(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_between_two_is_as_exact_as_a_double() {
        let at = |share, values: &[f64]| {
            let value = |descending| Place { share, descending }.value(&mut values.to_vec());
            (value(false), value(true))
        };
        assert_eq!(
            at(Some(1.0 / 3.0), &[4.0, 1.0, 2.0]),
            (Some(1.0 + 2.0 / 3.0), Some(4.0 - 2.0 * (2.0 / 3.0)))
        );
        assert_eq!(at(Some(0.0), &[f64::INFINITY]), (Some(f64::INFINITY), Some(f64::INFINITY)));
        assert_eq!(at(Some(1.0), &[2.0, 1.0, f64::NEG_INFINITY]), (Some(2.0), Some(f64::NEG_INFINITY)));
        assert!(at(Some(1.0), &[f64::NAN, 1.0]).0.is_some_and(f64::is_nan));
        assert_eq!(at(None, &[1.0]), (None, None));
        assert_eq!(at(Some(0.5), &[]), (None, None));
    }
}
