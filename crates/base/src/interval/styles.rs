//! Intervals in the styles other than `postgres`. They are rare, so this code is not optimised.

use crate::datetime::{MICROS_PER_SECOND, push_two, write_fraction};
use crate::value::Interval;
use std::fmt::Write;

/// The fields that PostgreSQL writes, all with their signs.
struct Fields {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    /// Seconds with their fraction.
    micros: i64,
}

impl Fields {
    fn of(interval: &Interval) -> Fields {
        let micros = interval.microseconds();
        let seconds = micros / MICROS_PER_SECOND;
        Fields {
            years: i64::from(interval.months / 12),
            months: i64::from(interval.months % 12),
            days: i64::from(interval.days),
            hours: seconds / 3600,
            minutes: seconds / 60 % 60,
            micros: micros % (60 * MICROS_PER_SECOND),
        }
    }

    fn all(&self) -> [i64; 6] {
        [self.years, self.months, self.days, self.hours, self.minutes, self.micros]
    }

    /// Writes `h:mm:ss` with the fraction of a second, without a sign.
    fn write_clock(&self, out: &mut String) {
        write!(out, "{}:", self.hours.unsigned_abs()).expect("a write to a string succeeds");
        push_two(self.minutes.abs(), out);
        out.push(':');
        let micros = self.micros.abs();
        push_two(micros / MICROS_PER_SECOND, out);
        write_fraction(micros % MICROS_PER_SECOND, out);
    }

    /// Writes seconds with their fraction, without a sign.
    fn write_seconds(&self, out: &mut String) {
        let micros = self.micros.abs();
        write!(out, "{}", micros / MICROS_PER_SECOND).expect("a write to a string succeeds");
        write_fraction(micros % MICROS_PER_SECOND, out);
    }
}

/// Appends an interval, `@ 1 year 2 mons -3 days 4 hours 5 mins 6.7 secs ago`. All fields after the first
/// negative one are negated.
#[cold]
pub(super) fn write_verbose(interval: &Interval, out: &mut String) {
    let fields = Fields::of(interval);
    let is_negative = fields.all().into_iter().find(|field| *field != 0).is_some_and(|first| first < 0);
    let sign = if is_negative { -1 } else { 1 };
    out.push('@');
    let units = ["year", "mon", "day", "hour", "min"];
    for (value, unit) in fields.all().into_iter().zip(units).filter(|(value, _)| *value != 0) {
        let value = sign * value;
        let plural = if value == 1 { "" } else { "s" };
        write!(out, " {value} {unit}{plural}").expect("a write to a string succeeds");
    }
    if fields.micros != 0 {
        out.push_str(if (fields.micros < 0) == is_negative { " " } else { " -" });
        fields.write_seconds(out);
        out.push_str(if fields.micros.abs() == MICROS_PER_SECOND { " sec" } else { " secs" });
    }
    if fields.all() == [0; 6] {
        out.push_str(" 0");
    }
    if is_negative {
        out.push_str(" ago");
    }
}

/// Appends an interval in the form of the SQL standard, `1-2` or `-3 4:05:06.7`; others with a sign before
/// each part: `+1-2 -3 +4:05:06.7`.
#[cold]
pub(super) fn write_sql_standard(interval: &Interval, out: &mut String) {
    let fields = Fields::of(interval);
    let has_negative = fields.all().iter().any(|field| *field < 0);
    let has_positive = fields.all().iter().any(|field| *field > 0);
    let has_year_month = interval.months != 0;
    let has_day_time = interval.days != 0 || interval.microseconds() != 0;
    let (years, months, days) = (fields.years.abs(), fields.months.abs(), fields.days.abs());
    if !has_negative && !has_positive {
        return out.push('0');
    }
    if has_negative && has_positive || has_year_month && has_day_time {
        let sign = |is_negative: bool| if is_negative { '-' } else { '+' };
        let year_sign = sign(interval.months < 0);
        let (day_sign, time_sign) = (sign(interval.days < 0), sign(interval.microseconds() < 0));
        write!(out, "{year_sign}{years}-{months} {day_sign}{days} {time_sign}")
            .expect("a write to a string succeeds");
        return fields.write_clock(out);
    }
    if has_negative {
        out.push('-');
    }
    if has_year_month {
        write!(out, "{years}-{months}").expect("a write to a string succeeds");
        return;
    }
    if interval.days != 0 {
        write!(out, "{days} ").expect("a write to a string succeeds");
    }
    fields.write_clock(out);
}

/// Appends an interval in ISO 8601 form, with a sign for each negative field: `P1Y2M-3DT4H5M6.7S`.
#[cold]
pub(super) fn write_iso_8601(interval: &Interval, out: &mut String) {
    let fields = Fields::of(interval);
    if fields.all() == [0; 6] {
        return out.push_str("PT0S");
    }
    let part = |value: i64, unit: char, out: &mut String| {
        if value != 0 {
            write!(out, "{value}{unit}").expect("a write to a string succeeds");
        }
    };
    out.push('P');
    part(fields.years, 'Y', out);
    part(fields.months, 'M', out);
    part(fields.days, 'D', out);
    if interval.microseconds() != 0 {
        out.push('T');
    }
    part(fields.hours, 'H', out);
    part(fields.minutes, 'M', out);
    if fields.micros != 0 {
        if fields.micros < 0 {
            out.push('-');
        }
        fields.write_seconds(out);
        out.push('S');
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse, write};
    use crate::text_style::IntervalStyle;

    const STYLES: [IntervalStyle; 3] =
        [IntervalStyle::PostgresVerbose, IntervalStyle::SqlStandard, IntervalStyle::Iso8601];

    /// As PostgreSQL 15 writes them.
    #[test]
    fn intervals_are_written_in_each_style() {
        for (text, expected) in [
            (
                "1 year 2 days 03:04:05",
                ["@ 1 year 2 days 3 hours 4 mins 5 secs", "+1-0 +2 +3:04:05", "P1Y2DT3H4M5S"],
            ),
            ("-3 hours", ["@ 3 hours ago", "-3:00:00", "PT-3H"]),
            ("0", ["@ 0", "0", "PT0S"]),
            ("1 year 2 mons", ["@ 1 year 2 mons", "1-2", "P1Y2M"]),
            ("-1 year -2 mons", ["@ 1 year 2 mons ago", "-1-2", "P-1Y-2M"]),
            ("-1 day -2 hours", ["@ 1 day 2 hours ago", "-1 2:00:00", "P-1DT-2H"]),
            ("1 day 00:00:01", ["@ 1 day 1 sec", "1 0:00:01", "P1DT1S"]),
            ("2 days 00:00:01.5", ["@ 2 days 1.5 secs", "2 0:00:01.5", "P2DT1.5S"]),
            (
                "-1 mon +2 days -00:00:00.5",
                ["@ 1 mon -2 days 0.5 secs ago", "-0-1 +2 -0:00:00.5", "P-1M2DT-0.5S"],
            ),
            ("-1 mons", ["@ 1 mon ago", "-0-1", "P-1M"]),
            ("-00:00:01", ["@ 1 sec ago", "-0:00:01", "PT-1S"]),
            ("00:01:00", ["@ 1 min", "0:01:00", "PT1M"]),
            (
                "-1 year 3 days 04:05:06.7",
                ["@ 1 year -3 days -4 hours -5 mins -6.7 secs ago", "-1-0 +3 +4:05:06.7", "P-1Y3DT4H5M6.7S"],
            ),
            ("3 days -04:05:06", ["@ 3 days -4 hours -5 mins -6 secs", "+0-0 +3 -4:05:06", "P3DT-4H-5M-6S"]),
            ("10:00:00.000001", ["@ 10 hours 0.000001 secs", "10:00:00.000001", "PT10H0.000001S"]),
            ("-1 day 00:00:01", ["@ 1 day -1 sec ago", "+0-0 -1 +0:00:01", "P-1DT1S"]),
            ("1 mon -1 sec", ["@ 1 mon -1 sec", "+0-1 +0 -0:00:01", "P1MT-1S"]),
        ] {
            let interval = parse(text, IntervalStyle::Postgres).unwrap();
            let found = STYLES.map(|style| {
                let mut out = String::new();
                write(&interval, style, &mut out);
                assert_eq!(parse(&out, style).unwrap(), interval, "{out} is read back");
                out
            });
            assert_eq!(found, expected, "{text}");
        }
    }

    /// As PostgreSQL 15 reads them.
    #[test]
    fn in_the_style_of_the_standard_the_only_sign_is_that_of_all_fields() {
        for (text, expected) in [
            ("-1 2:03:04", "-1 days -02:03:04"),
            ("-1-2", "-1 years -2 mons"),
            ("-1 year 2 days", "-1 years -2 days"),
            ("-1 year +2 days", "-1 years +2 days"),
            ("-1 -2:03:04", "-1 days -02:03:04"),
            ("1 -2:03:04", "1 day -02:03:04"),
            ("-1 2:03:04 ago", "1 day 02:03:04"),
            ("P-1Y2D", "-1 years +2 days"),
            ("-1-2 3 4:05:06", "-1 years -2 mons -3 days -04:05:06"),
            ("-1.5 days 2 hours", "-1 days -14:00:00"),
        ] {
            let mut out = String::new();
            write(&parse(text, IntervalStyle::SqlStandard).unwrap(), IntervalStyle::Postgres, &mut out);
            assert_eq!(out, expected, "{text}");
        }
    }
}
