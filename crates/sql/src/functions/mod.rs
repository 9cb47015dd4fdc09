//! The functions that SQL text can call: DataFusion's, and ours where PostgreSQL means something
//! else by the name.

mod float;
mod format;
mod general;
mod list;
mod moment;
mod number;
mod series;
mod session;
mod span;
mod text;

use crate::session_facts::SessionFacts;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use firn_base::Error;
use firn_base::sync::Arc;
use firn_exec::error::unknown_function;
use firn_exec::lower::quantified::Quantifier;

pub use self::list::{if_present, positions};
pub use self::moment::extract;
pub use self::session::SEQUENCE_FUNCTIONS;
pub(crate) use self::session::version;
pub use self::span::{LENGTH_TYPE as LENGTH_OF_SPAN, extreme as extreme_of_spans, length as length_of_span};

/// A scalar function of ours by its name; `None` leaves the name to DataFusion.
pub fn scalar(name: &str, facts: &SessionFacts) -> Option<Arc<ScalarUDF>> {
    moment::function(name)
        .or_else(|| number::function(name))
        .or_else(|| float::function(name))
        .or_else(|| text::function(name))
        .or_else(|| general::function(name))
        .or_else(|| list::function(name))
        .or_else(|| series::function(name))
        .or_else(|| span::function(name))
        .or_else(|| session::function(name, facts))
        .or_else(|| Quantifier::named(name).map(Quantifier::udf))
}

/// PostgreSQL's error for a function that does not exist.
pub fn unknown(name: &str) -> Error {
    let state = firn_exec::runtime::planning_state();
    let known = state.scalar_functions().keys().chain(state.aggregate_functions().keys()).map(String::as_str);
    unknown_function(name, known)
}

/// An aggregate by a name that DataFusion does not know, or means something else by.
pub fn aggregate(name: &str) -> Option<Arc<AggregateUDF>> {
    match name {
        "avg" => Some(firn_exec::aggregate::average()),
        "sum" => Some(firn_exec::aggregate::sum()),
        "min" => Some(firn_exec::aggregate::smallest()),
        "max" => Some(firn_exec::aggregate::largest()),
        "mode" => Some(firn_exec::aggregate::mode()),
        "percentile_cont" => Some(firn_exec::aggregate::percentile_cont()),
        "percentile_disc" => Some(firn_exec::aggregate::percentile_disc()),
        "every" => Some(datafusion::functions_aggregate::bool_and_or::bool_and_udaf()),
        other => firn_exec::aggregate::statistic(other),
    }
}
