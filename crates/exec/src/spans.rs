//! Spans of time that are equal but differ in their parts, as a day and 24 hours do: Arrow's kernels compare part by part, PostgreSQL
//! a length in which a month has 30 days.
//!
//! As a key, a span becomes one with parts of its length, so that what compares part by part compares lengths: the months count
//! [`DAYS_OF_A_KEY`] days each, the days and the time are what remains. No such span is ever shown.

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use firn_base::sync::Arc;

const NANOS_OF_A_DAY: i128 = 86_400_000_000_000;

/// So many that the months of the longest span can count the days of its length.
const DAYS_OF_A_KEY: i128 = 1 << 16;

/// The length by which spans are compared, in nanoseconds.
pub fn length(span: IntervalMonthDayNano) -> i128 {
    let days = i128::from(span.months) * 30 + i128::from(span.days);
    days * NANOS_OF_A_DAY + i128::from(span.nanoseconds)
}

/// Spans of which equal ones have the same parts, and which compare by them; other arrays as they are.
pub fn keys(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => Arc::new(
            array.as_primitive::<IntervalMonthDayNanoType>().unary::<_, IntervalMonthDayNanoType>(key),
        ),
        _ => Arc::clone(array),
    }
}

fn key(span: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let length = length(span);
    let (days, nanoseconds) = (length.div_euclid(NANOS_OF_A_DAY), length.rem_euclid(NANOS_OF_A_DAY));
    IntervalMonthDayNano {
        months: days.div_euclid(DAYS_OF_A_KEY) as i32,
        days: days.rem_euclid(DAYS_OF_A_KEY) as i32,
        nanoseconds: nanoseconds as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_as_lengths_do() {
        let parts = |part: i64| [part, -part, 0, 1, -1, 30];
        let mut spans = Vec::new();
        for months in parts(i64::from(i32::MAX)) {
            for days in parts(i64::from(i32::MAX)) {
                for nanoseconds in [i64::MAX, i64::MIN, 0, 1, -1, NANOS_OF_A_DAY as i64] {
                    let (months, days) = (months as i32, days as i32);
                    spans.push(IntervalMonthDayNano { months, days, nanoseconds });
                }
            }
        }
        for a in &spans {
            for b in &spans {
                let parts = |span: &IntervalMonthDayNano| {
                    let key = key(*span);
                    (key.months, key.days, key.nanoseconds)
                };
                assert_eq!(parts(a).cmp(&parts(b)), length(*a).cmp(&length(*b)), "{a:?} {b:?}");
            }
        }
    }
}
