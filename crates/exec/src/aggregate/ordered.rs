//! Aggregates that pick one of their values by its place in the order: `percentile_disc`, `mode`.
//!
//! All values of a group are kept until the end, as PostgreSQL does.

use crate::error::to_datafusion;
use crate::{floats, spans};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use datafusion::arrow::compute::{
    SortOptions, concat, filter, is_not_null, partition, sort, sort_to_indices, take,
};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use datafusion::physical_expr::expressions::Literal;
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Error, SqlState};

/// `percentile_disc(fraction) WITHIN GROUP (ORDER BY value)`.
pub fn percentile_disc() -> Arc<AggregateUDF> {
    static FUNCTION: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| Picking::udf("percentile_disc", 2)))
}

/// `mode() WITHIN GROUP (ORDER BY value)`.
pub fn mode() -> Arc<AggregateUDF> {
    static FUNCTION: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| Picking::udf("mode", 1)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Picking {
    name: &'static str,
    signature: Signature,
}

impl Picking {
    fn udf(name: &'static str, arguments: usize) -> Arc<AggregateUDF> {
        let signature = Signature::any(arguments, Volatility::Immutable);
        Arc::new(AggregateUDF::from(Picking { name, signature }))
    }
}

impl AggregateUDFImpl for Picking {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        Ok(Arc::new(arguments[0].as_ref().clone().with_name(self.name).with_nullable(true)))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let element = arguments.input_fields[0].data_type().clone();
        let list = DataType::List(Arc::new(Field::new_list_field(element, true)));
        Ok(vec![Arc::new(Field::new(format_state_name(arguments.name, self.name), list, true))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let descending = arguments.order_bys.first().is_some_and(|order| order.options.descending);
        let pick = match arguments.exprs.get(1) {
            None => Pick::MostFrequent,
            Some(_) => Pick::Share(share_of(&arguments)?),
        };
        let element = arguments.expr_fields[0].data_type().clone();
        Ok(Box::new(Values { pick, descending, element, parts: Vec::new() }))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// The fraction that is the second argument of a percentile.
pub(super) fn share_of(arguments: &AccumulatorArgs) -> Result<Option<f64>> {
    match arguments.exprs.get(1).and_then(|fraction| fraction.downcast_ref::<Literal>()) {
        Some(fraction) => share(fraction.value()),
        None => plan_err!("a percentile that is no constant is not supported"),
    }
}

/// A fraction; NULL is none.
fn share(fraction: &ScalarValue) -> Result<Option<f64>> {
    let ScalarValue::Float64(share) = fraction.cast_to(&DataType::Float64)? else { return Ok(None) };
    match share {
        Some(share) if !(0.0..=1.0).contains(&share) => Err(to_datafusion(Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("percentile value {share} is not between 0 and 1"),
        ))),
        share => Ok(share),
    }
}

/// Which value is picked.
#[derive(Clone, Copy, Debug)]
enum Pick {
    /// The first at or beyond that share of all.
    Share(Option<f64>),
    /// The most frequent, the first in the order among equals.
    MostFrequent,
}

/// The values of a group, as they came.
#[derive(Debug)]
struct Values {
    pick: Pick,
    descending: bool,
    element: DataType,
    parts: Vec<ArrayRef>,
}

impl Values {
    fn all(&self) -> Result<ArrayRef> {
        let parts: Vec<&dyn Array> = self.parts.iter().map(AsRef::as_ref).collect();
        match parts.is_empty() {
            true => Ok(new_empty_array(&self.element)),
            false => Ok(concat(&parts)?),
        }
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let known = filter(&values[0], &is_not_null(&values[0])?)?;
        if !known.is_empty() {
            self.parts.push(known);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let options = SortOptions { descending: self.descending, nulls_first: false };
        let all = self.all()?;
        let sorted = match self.element {
            DataType::Interval(_) => {
                let order = sort_to_indices(&spans::keys(&all), Some(options), None)?;
                take(&all, &order, None)?
            }
            _ => sort(&all, Some(options))?,
        };
        let picked = match self.pick {
            _ if sorted.is_empty() => None,
            Pick::Share(share) => {
                share.map(|share| ((share * sorted.len() as f64).ceil() as usize).saturating_sub(1))
            }
            Pick::MostFrequent => {
                let runs = partition(&[spans::keys(&floats::keys(&sorted))])?.ranges();
                runs.into_iter().rev().max_by_key(ExactSizeIterator::len).map(|run| run.start)
            }
        };
        match picked {
            Some(row) => ScalarValue::try_from_array(&sorted, row),
            None => ScalarValue::try_from(&self.element),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.parts.iter().map(|part| part.get_array_memory_size()).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let all = self.all()?;
        let values =
            (0..all.len()).map(|row| ScalarValue::try_from_array(&all, row)).collect::<Result<Vec<_>>>()?;
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.element))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }
}
