//! Aggregates that DataFusion lacks, or types otherwise than PostgreSQL: an average of exact numbers is
//! exact, with as many decimals as a quotient has, and a sum of them overflows with an error. Or computes
//! otherwise: the extremes of floats in groups know infinity and NaN, and so do variances and their like.

mod average;
mod distinct_spans;
mod extreme;
mod nan;
mod ordered;
mod percentile;
mod single;
mod sliding;
mod statistics;
mod sum;
mod wide;

pub(crate) use distinct_spans::gather as gather_spans;
pub use extreme::{largest, smallest};
pub use ordered::{mode, percentile_disc};
pub use percentile::percentile_cont;
pub use single::{few, only_value};
pub use statistics::statistic;
pub use sum::sum;

use self::nan::{GroupsOneNan, OneNan};
use self::sliding::{Asked, Frame};
use crate::error::to_datafusion;
use datafusion::arrow::array::{Array, BooleanArray};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};
use firn_base::numeric;
use firn_base::sync::{Arc, OnceLock};

/// `avg`.
pub fn average() -> Arc<AggregateUDF> {
    static AVERAGE: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    let average = AVERAGE.get_or_init(|| Arc::new(AggregateUDF::from(Average { signature: any_type() })));
    Arc::clone(average)
}

fn any_type() -> Signature {
    Signature::user_defined(Volatility::Immutable)
}

fn add(sum: &mut i128, value: i128) -> Result<()> {
    *sum = sum.checked_add(value).ok_or_else(|| to_datafusion(numeric::overflow()))?;
    Ok(())
}

/// Whether a row passes a filter, if there is one.
fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

/// The digits of an integer type as a decimal.
fn integer_digits(ty: &DataType) -> Option<u8> {
    match ty {
        DataType::Int8 | DataType::UInt8 => Some(3),
        DataType::Int16 | DataType::UInt16 => Some(5),
        DataType::Int32 | DataType::UInt32 => Some(10),
        DataType::Int64 => Some(19),
        DataType::UInt64 => Some(20),
        _ => None,
    }
}

/// `avg`: exact over exact numbers and spans of time, DataFusion's over floats.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    signature: Signature,
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        "avg"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = arguments else { return exec_err!("Function 'avg' takes one argument") };
        Ok(vec![match argument {
            DataType::Float16 | DataType::Float32 | DataType::Float64 | DataType::Null => DataType::Float64,
            DataType::Decimal128(..) | DataType::Interval(_) => argument.clone(),
            other => match integer_digits(other) {
                Some(digits) => DataType::Decimal128(digits, 0),
                None => return exec_err!("Function 'avg' takes no {other}"),
            },
        }])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match &arguments[0] {
            DataType::Decimal128(precision, scale) => Ok(average::result_type(*precision, *scale)),
            DataType::Interval(unit) => Ok(DataType::Interval(*unit)),
            _ => Ok(DataType::Float64),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match arguments.expr_fields[0].data_type() {
            DataType::Decimal128(_, scale) => {
                average::exact(*scale, arguments.return_field.data_type(), arguments.is_distinct)
            }
            DataType::Interval(_) => average::of_spans(arguments.is_distinct),
            _ => Ok(Box::new(OneNan(avg_udaf().inner().accumulator(arguments)?))),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match arguments.input_fields[0].data_type() {
            DataType::Decimal128(_, scale) => {
                Ok(average::exact_state(arguments.name, *scale, arguments.is_distinct))
            }
            DataType::Interval(_) => Ok(average::span_state(arguments.name)),
            _ => avg_udaf().inner().state_fields(arguments),
        }
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        !arguments.is_distinct && !matches!(arguments.return_field.data_type(), DataType::Interval(_))
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match arguments.expr_fields[0].data_type() {
            DataType::Decimal128(_, scale) => {
                average::exact_groups(*scale, arguments.return_field.data_type())
            }
            _ => Ok(Box::new(GroupsOneNan(avg_udaf().inner().create_groups_accumulator(arguments)?))),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match arguments.expr_fields[0].data_type() {
            DataType::Decimal128(..) | DataType::Interval(_) => self.accumulator(arguments),
            _ if !arguments.is_distinct => Ok(Box::new(Frame::new(Asked::Average, &DataType::Float64))),
            _ => Ok(Box::new(OneNan(avg_udaf().inner().create_sliding_accumulator(arguments)?))),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}
