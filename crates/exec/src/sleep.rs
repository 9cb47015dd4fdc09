//! `pg_sleep`: a function that takes its time.
//!
//! It runs only where a whole plan does, on the threads of that: never in a short program or in a writer, which hold guards. It
//! wakes when the statement is cancelled, or when nobody wants the plan's rows any more; and while it sleeps in a worker, another
//! thread takes over what else that would have run.

use crate::error::to_datafusion;
use crate::query::{Cancel, Stop};
use crate::runtime::SessionOptions;
use crate::scan::cancelled;
use datafusion::arrow::array::{Array, AsArray, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use firn_base::sync::Arc;
use firn_base::{Error, SqlState, clock};
use std::time::Duration;

/// How often a sleeper looks whether he is to wake.
const INTERVAL: Duration = Duration::from_millis(10);

/// `pg_sleep(double precision)`. It yields nothing, which is the empty string: so clients show PostgreSQL's `void`.
pub fn pg_sleep() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Volatile);
    Arc::new(ScalarUDF::from(Sleep { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sleep {
    signature: Signature,
}

/// Whether a function is that one.
pub(crate) fn is_pg_sleep(udf: &ScalarUDF) -> bool {
    udf.inner().downcast_ref::<Sleep>().is_some()
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        "pg_sleep"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            // Bare literals are `Utf8`.
            [ty] if ty.is_numeric() || matches!(ty, DataType::Utf8 | DataType::Null) => {
                Ok(vec![DataType::Float64])
            }
            _ => {
                let message = "function pg_sleep does not exist for these arguments";
                Err(to_datafusion(
                    Error::new(SqlState::UNDEFINED_FUNCTION, message)
                        .with_hint("It takes a number of seconds, of type double precision."),
                ))
            }
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let options = arguments.config_options.extensions.get::<SessionOptions>();
        let (cancel, stop) = options.map(|options| (&options.cancel, &options.stop)).unzip();
        let seconds = arguments.args[0].to_array(arguments.number_rows)?;
        let mut ends = Vec::with_capacity(seconds.len());
        for seconds in seconds.as_primitive::<Float64Type>() {
            if let Some(seconds) = seconds {
                tokio::task::block_in_place(|| sleep(seconds, cancel, stop))?;
            }
            ends.push(seconds.map(|_| ""));
        }
        Ok(ColumnarValue::Array(Arc::new(StringViewArray::from(ends))))
    }
}

fn sleep(seconds: f64, cancel: Option<&Cancel>, stop: Option<&Stop>) -> Result<()> {
    // Neither ends before it has begun, nor later than anybody can tell.
    let longest = match Duration::try_from_secs_f64(seconds) {
        Ok(longest) => longest,
        Err(_) if seconds > 0.0 => Duration::MAX,
        Err(_) => Duration::ZERO,
    };
    let begun = clock::now();
    loop {
        if cancel.is_some_and(Cancel::is_cancelled) || stop.is_some_and(Stop::is_stopped) {
            return Err(to_datafusion(cancelled()));
        }
        let left = longest.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        clock::sleep(left.min(INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_ends_when_it_is_over_or_nobody_waits_for_it() {
        let (cancel, stop) = (Cancel::new(), Stop::default());
        let (cancelled, stopped) = (Cancel::new(), Stop::default());
        sleep(0.001, Some(&cancel), Some(&stop)).unwrap();
        for nothing in [0.0, -5.0, f64::NEG_INFINITY, f64::NAN] {
            sleep(nothing, None, None).unwrap();
        }
        cancelled.cancel();
        stopped.stop();
        for long in [3600.0, 1e300, f64::INFINITY] {
            sleep(long, Some(&cancelled), Some(&stop)).unwrap_err();
            sleep(long, Some(&cancel), Some(&stopped)).unwrap_err();
        }
    }
}
