//! `pg_sleep`, `pg_sleep_for` and `pg_sleep_until`: functions that take their time.
//!
//! They run only where a whole plan does, on the threads of that: never in a short program or in a writer, which hold guards. They
//! wake when the statement is cancelled, or when nobody wants the plan's rows any more; and while one sleeps in a worker, another
//! thread takes over what else that would have run.

use crate::error::to_datafusion;
use crate::lower::cast;
use crate::query::{Cancel, Stop};
use crate::runtime::SessionOptions;
use crate::scan::cancelled;
use crate::types;
use datafusion::arrow::array::StringViewArray;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use firn_base::operators::shift_in_zone;
use firn_base::sync::Arc;
use firn_base::{Error, SqlState, SqlType, TimeZoneSetting, Value, clock};
use std::time::Duration;

/// How often a sleeper looks whether he is to wake.
const INTERVAL: Duration = Duration::from_millis(10);

/// A function of this file by its name. They yield nothing, which is the empty string: so clients show PostgreSQL's `void`.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    let wakes = match name {
        "pg_sleep" => Wakes::AfterSeconds,
        "pg_sleep_for" => Wakes::AfterInterval,
        "pg_sleep_until" => Wakes::At,
        _ => return None,
    };
    let signature = Signature::user_defined(Volatility::Volatile);
    Some(Arc::new(ScalarUDF::from(Sleep { wakes, signature })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sleep {
    wakes: Wakes,
    signature: Signature,
}

/// What tells how long one sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wakes {
    AfterSeconds,
    /// Its months and days are those that come, by the clocks of the session's time zone.
    AfterInterval,
    At,
}

impl Wakes {
    fn argument(self) -> SqlType {
        match self {
            Wakes::AfterSeconds => SqlType::Double,
            Wakes::AfterInterval => SqlType::Interval,
            Wakes::At => SqlType::TimestampTz,
        }
    }

    fn takes(self, ty: &DataType) -> bool {
        match (self, ty) {
            // Bare literals are `Utf8`.
            (_, DataType::Utf8 | DataType::Null) => true,
            (Wakes::AfterSeconds, ty) => ty.is_numeric(),
            (Wakes::AfterInterval, ty) => matches!(ty, DataType::Interval(_)),
            (Wakes::At, ty) => matches!(ty, DataType::Timestamp(..) | DataType::Date32),
        }
    }
}

/// How long one sleeps who begins now.
fn length(argument: &Value, zone: &TimeZoneSetting) -> firn_base::Result<Duration> {
    let now = clock::wall_clock_micros();
    let micros = match argument {
        Value::Double(seconds) => {
            // Neither does it end before it has begun, nor later than anybody can tell.
            return Ok(match Duration::try_from_secs_f64(*seconds) {
                Ok(length) => length,
                Err(_) if *seconds > 0.0 => Duration::MAX,
                Err(_) => Duration::ZERO,
            });
        }
        Value::Interval(interval) => shift_in_zone(now, interval, zone)?.saturating_sub(now),
        Value::TimestampTz(moment) => moment.saturating_sub(now),
        other => panic!("{other:?} was coerced to the type of the argument"),
    };
    Ok(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// Whether a function is one of these.
pub(crate) fn is_sleep(udf: &ScalarUDF) -> bool {
    udf.inner().downcast_ref::<Sleep>().is_some()
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        match self.wakes {
            Wakes::AfterSeconds => "pg_sleep",
            Wakes::AfterInterval => "pg_sleep_for",
            Wakes::At => "pg_sleep_until",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let wanted = self.wakes.argument();
        match arguments {
            [ty] if self.wakes.takes(ty) => Ok(vec![types::data_type(wanted)]),
            _ => {
                let message = format!("function {} does not exist for these arguments", self.name());
                let hint = match self.wakes {
                    Wakes::AfterSeconds => format!("It takes a number of seconds, of type {wanted}."),
                    Wakes::AfterInterval | Wakes::At => format!("It takes one of type {wanted}."),
                };
                Err(to_datafusion(Error::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(hint)))
            }
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = cast::zone(&arguments)?;
        let options = arguments.config_options.extensions.get::<SessionOptions>();
        let (cancel, stop) = options.map(|options| (&options.cancel, &options.stop)).unzip();
        let column = arguments.args[0].to_array(arguments.number_rows)?;
        let mut ends = Vec::with_capacity(arguments.number_rows);
        for row in 0..arguments.number_rows {
            let argument = types::value_at(column.as_ref(), row).map_err(to_datafusion)?;
            if argument.is_null() {
                ends.push(None);
                continue;
            }
            let longest = length(&argument, &zone).map_err(to_datafusion)?;
            tokio::task::block_in_place(|| sleep(longest, cancel, stop))?;
            ends.push(Some(""));
        }
        Ok(ColumnarValue::Array(Arc::new(StringViewArray::from(ends))))
    }
}

fn sleep(longest: Duration, cancel: Option<&Cancel>, stop: Option<&Stop>) -> Result<()> {
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
        sleep(Duration::from_millis(1), Some(&cancel), Some(&stop)).unwrap();
        sleep(Duration::ZERO, None, None).unwrap();
        cancelled.cancel();
        stopped.stop();
        for long in [Duration::from_secs(3600), Duration::MAX] {
            sleep(long, Some(&cancelled), Some(&stop)).unwrap_err();
            sleep(long, Some(&cancel), Some(&stopped)).unwrap_err();
        }
    }

    #[test]
    fn arguments_tell_how_long() {
        let zone = TimeZoneSetting::UTC;
        let length = |argument: Value| length(&argument, &zone).unwrap();
        for nothing in [0.0, -5.0, f64::NEG_INFINITY, f64::NAN] {
            assert_eq!(length(Value::Double(nothing)), Duration::ZERO);
        }
        assert_eq!(length(Value::Double(0.25)), Duration::from_millis(250));
        for long in [1e300, f64::INFINITY] {
            assert_eq!(length(Value::Double(long)), Duration::MAX);
        }
        let interval = |text| Value::Interval(firn_base::interval::parse(text).unwrap());
        assert_eq!(length(interval("1 day 2 seconds")), Duration::from_secs(86_402));
        assert_eq!(length(interval("-1 month")), Duration::ZERO);
        let month = length(interval("1 month")).as_secs() / 86_400;
        assert!((28..=31).contains(&month), "{month}");
        let now = clock::wall_clock_micros();
        assert_eq!(length(Value::TimestampTz(now - 1)), Duration::ZERO);
        let hour = length(Value::TimestampTz(now + 3_600_000_000));
        assert!(hour <= Duration::from_secs(3600) && hour > Duration::from_secs(3000), "{hour:?}");
    }
}
