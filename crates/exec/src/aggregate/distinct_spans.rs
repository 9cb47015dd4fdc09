//! Aggregates of spans of time that differ: `sum(DISTINCT i)` and the like. DataFusion tells spans apart part by part, `1 day` from
//! `24 hours`, so that another aggregate gathers the spans by their lengths, the first of each, and gives them in order to the one that is meant.

use crate::spans::length;
use datafusion::arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{HashSet, Result, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use firn_base::sync::Arc;
use std::cmp::Reverse;

const SPAN: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Makes such an aggregate of one that is to be over spans that differ. Its order can only be that of the spans.
pub(crate) fn gather(aggregate: &mut AggregateFunction) {
    let params = &mut aggregate.params;
    params.distinct = false;
    let order = std::mem::take(&mut params.order_by);
    let gathering = Gathering {
        name: format!("{} of different spans", aggregate.func.name()),
        function: Arc::clone(&aggregate.func),
        is_descending: order.first().is_some_and(|key| !key.asc),
        nulls_first: order.first().is_some_and(|key| key.nulls_first),
        signature: Signature::any(1, Volatility::Immutable),
    };
    aggregate.func = Arc::new(AggregateUDF::from(gathering));
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Gathering {
    name: String,
    function: Arc<AggregateUDF>,
    is_descending: bool,
    nulls_first: bool,
    signature: Signature,
}

impl AggregateUDFImpl for Gathering {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.function.return_type(arguments)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        self.function.return_field(arguments)
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format_state_name(arguments.name, "spans");
        Ok(vec![Arc::new(Field::new_list(name, Field::new_list_field(SPAN, true), true))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Gathered {
            accumulator: self.function.accumulator(arguments)?,
            is_descending: self.is_descending,
            nulls_first: self.nulls_first,
            lengths: HashSet::new(),
            spans: Vec::new(),
            has_null: false,
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

#[derive(Debug)]
struct Gathered {
    /// What gets the spans in the end.
    accumulator: Box<dyn Accumulator>,
    is_descending: bool,
    nulls_first: bool,
    lengths: HashSet<i128>,
    /// One of each length, in the order in which they came.
    spans: Vec<IntervalMonthDayNano>,
    has_null: bool,
}

impl Accumulator for Gathered {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for span in values[0].as_primitive::<IntervalMonthDayNanoType>() {
            match span {
                None => self.has_null = true,
                Some(span) if self.lengths.insert(length(span)) => self.spans.push(span),
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.is_descending {
            true => self.spans.sort_by_key(|span| Reverse(length(*span))),
            false => self.spans.sort_by_key(|span| length(*span)),
        }
        let null = self.has_null.then_some(None);
        let (before, behind) = if self.nulls_first { (null, None) } else { (None, null) };
        let spans = self.spans.iter().copied().map(Some);
        let spans: IntervalMonthDayNanoArray = before.into_iter().chain(spans).chain(behind).collect();
        if !spans.is_empty() {
            self.accumulator.update_batch(&[Arc::new(spans)])?;
        }
        self.accumulator.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.accumulator.size()
            + self.lengths.capacity() * size_of::<i128>()
            + self.spans.capacity() * size_of::<IntervalMonthDayNano>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let spans = self.spans.iter().copied().map(Some).chain(self.has_null.then_some(None));
        let spans: Vec<ScalarValue> = spans.map(ScalarValue::IntervalMonthDayNano).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&spans, &SPAN))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }
}
