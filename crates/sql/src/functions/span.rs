//! Comparing spans and periods of time.

use datafusion::logical_expr::{ScalarUDF, Volatility};
use firn_base::sync::Arc;
use firn_base::{Result, SqlType, TimeZoneSetting, Value, operators};
use firn_exec::function::ValueFunction;
use std::cmp::Ordering;

/// What [`LENGTH`] is called in plans; no function that a user writes is.
const LENGTH_NAME: &str = "length of span";

/// A function of this file by its name.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    (name == OVERLAPS.name).then(|| OVERLAPS.udf())
}

/// The length of a span as comparisons see it, a month of 30 days and a day of 24 hours, as a number
/// that orders spans as PostgreSQL does.
pub fn length() -> Arc<ScalarUDF> {
    LENGTH.udf()
}

/// `greatest` or `least` of spans, of which the first counts among equal ones.
pub fn extreme(name: &str) -> Option<Arc<ScalarUDF>> {
    [&GREATEST, &LEAST].into_iter().find(|function| function.name == name).map(ValueFunction::udf)
}

/// The type of [`length`], in which sums of lengths stay.
pub const LENGTH_TYPE: SqlType = SqlType::Numeric { precision: 38, scale: 0 };

static LENGTH: ValueFunction = ValueFunction {
    name: LENGTH_NAME,
    resolve: |arguments| (arguments.len() == 1).then(|| (vec![SqlType::Interval], LENGTH_TYPE)),
    compute: |values, _| match &values[0] {
        Value::Interval(span) => Ok(Value::Numeric { unscaled: span.comparable(), scale: 0 }),
        other => panic!("{other:?} was coerced to an interval"),
    },
    volatility: Volatility::Immutable,
    takes_null: false,
};

static GREATEST: ValueFunction = ValueFunction {
    name: "greatest",
    resolve: all_spans,
    compute: |values, _| Ok(first_of(values, Ordering::Greater)),
    volatility: Volatility::Immutable,
    takes_null: true,
};

static LEAST: ValueFunction = ValueFunction {
    name: "least",
    resolve: all_spans,
    compute: |values, _| Ok(first_of(values, Ordering::Less)),
    volatility: Volatility::Immutable,
    takes_null: true,
};

fn all_spans(arguments: &[Option<SqlType>]) -> Option<(Vec<SqlType>, SqlType)> {
    Some((vec![SqlType::Interval; arguments.len()], SqlType::Interval))
}

/// The first of the values that stands in that order to all others; NULLs do not count.
fn first_of(values: &[Value], wanted: Ordering) -> Value {
    let known = values.iter().filter(|value| !value.is_null());
    let first = known.reduce(|first, value| match value.compare(first) {
        Some(order) if order == wanted => value,
        _ => first,
    });
    first.cloned().unwrap_or(Value::Null)
}

/// `(begin, end) OVERLAPS (begin, end)`; an end may be a span from the beginning.
static OVERLAPS: ValueFunction = ValueFunction {
    name: "overlaps",
    resolve: |arguments| {
        let [begin, end, other_begin, other_end] = arguments else { return None };
        let moments = [begin, end, other_begin, other_end];
        let is = |wanted| moments.into_iter().any(|ty| *ty == Some(wanted));
        let moment = if is(SqlType::TimestampTz) {
            SqlType::TimestampTz
        } else if is(SqlType::Time) {
            SqlType::Time
        } else if is(SqlType::Timestamp) || is(SqlType::Date) {
            SqlType::Timestamp
        } else {
            return None;
        };
        let end = |ty: &Option<SqlType>| match ty {
            Some(SqlType::Interval) => SqlType::Interval,
            _ => moment,
        };
        Some((vec![moment, end(&moments[1].clone()), moment, end(&moments[3].clone())], SqlType::Boolean))
    },
    compute: |values, around| {
        let [begin, end, other_begin, other_end] = values else { panic!("it takes four") };
        let one = period(begin, end, &around.zone)?;
        let other = period(other_begin, other_end, &around.zone)?;
        Ok(one.zip(other).and_then(|(one, other)| overlap(&one, &other)).map_or(Value::Null, Value::Boolean))
    },
    volatility: Volatility::Stable,
    takes_null: true,
};

/// A period with a beginning; its end may be unknown.
type Period = (Value, Option<Value>);

/// The period between two moments in either order; `None` if neither is known.
fn period(begin: &Value, end: &Value, zone: &TimeZoneSetting) -> Result<Option<Period>> {
    let end = match (begin, end) {
        (Value::Null, Value::Interval(_)) => return Ok(None),
        (begin, Value::Interval(_)) => operators::add(begin, end, zone)?,
        (_, end) => end.clone(),
    };
    Ok(match begin.compare(&end) {
        Some(Ordering::Greater) => Some((end, Some(begin.clone()))),
        Some(_) => Some((begin.clone(), Some(end))),
        None if !begin.is_null() => Some((begin.clone(), None)),
        None if !end.is_null() => Some((end, None)),
        None => None,
    })
}

/// Whether two periods have a moment in common, beginnings included and ends not; `None` is unknown.
fn overlap(one: &Period, other: &Period) -> Option<bool> {
    let (first, second) = match one.0.compare(&other.0)? {
        Ordering::Equal => return one.1.as_ref().and(other.1.as_ref()).map(|_| true),
        Ordering::Less => (one, other),
        Ordering::Greater => (other, one),
    };
    match second.0.compare(first.1.as_ref()?)? {
        Ordering::Less => Some(true),
        _ => second.1.as_ref().map(|_| false),
    }
}
