//! Intervals as PostgreSQL reads and writes them.
//!
//! Months, days and time are separate parts; only comparisons convert a month to 30 days and a day to 24
//! hours. Storage counts nanoseconds, so the time part ends at 292 years; PostgreSQL's ends at 292 thousand.

mod styles;

use crate::datetime::{MICROS_PER_DAY, MICROS_PER_SECOND, fraction_micros, push_two, write_fraction};
use crate::error::{Error, Result, SqlState};
use crate::text_style::IntervalStyle;
use crate::value::Interval;
use std::cmp::Ordering;
use std::fmt::Write;

const NANOS_PER_MICRO: i64 = 1_000;

impl Interval {
    /// An interval from PostgreSQL's three parts; 22008 if the time part is out of range.
    pub fn from_parts(months: i32, days: i32, microseconds: i64) -> Result<Interval> {
        let nanoseconds = microseconds.checked_mul(NANOS_PER_MICRO).ok_or_else(out_of_range)?;
        Ok(Interval { months, days, nanoseconds })
    }

    /// The time part in microseconds.
    pub fn microseconds(&self) -> i64 {
        self.nanoseconds / NANOS_PER_MICRO
    }

    /// The length with which intervals are compared, in microseconds.
    pub fn comparable(&self) -> i128 {
        let days = i64::from(self.months) * 30 + i64::from(self.days);
        i128::from(days) * i128::from(MICROS_PER_DAY) + i128::from(self.microseconds())
    }

    /// SQL order: 1 month = 30 days = 720 hours.
    pub fn compare(&self, other: &Interval) -> Ordering {
        self.comparable().cmp(&other.comparable())
    }

    /// The sum, part by part.
    pub fn checked_add(self, other: Interval) -> Result<Interval> {
        let sum = || {
            Some(Interval {
                months: self.months.checked_add(other.months)?,
                days: self.days.checked_add(other.days)?,
                nanoseconds: self.nanoseconds.checked_add(other.nanoseconds)?,
            })
        };
        sum().ok_or_else(out_of_range)
    }

    /// The difference, part by part.
    pub fn checked_sub(self, other: Interval) -> Result<Interval> {
        let difference = || {
            Some(Interval {
                months: self.months.checked_sub(other.months)?,
                days: self.days.checked_sub(other.days)?,
                nanoseconds: self.nanoseconds.checked_sub(other.nanoseconds)?,
            })
        };
        difference().ok_or_else(out_of_range)
    }

    /// The interval with the opposite sign.
    pub fn checked_neg(self) -> Result<Interval> {
        let negated = || {
            Some(Interval {
                months: self.months.checked_neg()?,
                days: self.days.checked_neg()?,
                nanoseconds: self.nanoseconds.checked_neg()?,
            })
        };
        negated().ok_or_else(out_of_range)
    }

    /// The interval times a number. The fraction of a month is added to the days, that of a day to the time.
    pub fn checked_mul(self, factor: f64) -> Result<Interval> {
        Interval::scaled(
            f64::from(self.months) * factor,
            f64::from(self.days) * factor,
            self.microseconds() as f64 * factor,
        )
    }

    /// The interval divided by a number.
    pub fn checked_div(self, divisor: f64) -> Result<Interval> {
        if divisor == 0.0 {
            return Err(Error::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        Interval::scaled(
            f64::from(self.months) / divisor,
            f64::from(self.days) / divisor,
            self.microseconds() as f64 / divisor,
        )
    }

    /// Months, days and microseconds with fractions, made whole by carrying fractions downwards.
    fn scaled(months: f64, days: f64, micros: f64) -> Result<Interval> {
        // Rounded to microseconds of a day, as in PostgreSQL, so that 0.1 month is exactly 3 days.
        let tidy =
            |value: f64| (value * MICROS_PER_SECOND as f64).round_ties_even() / MICROS_PER_SECOND as f64;
        let month_days = tidy((months - months.trunc()) * 30.0);
        let mut seconds = tidy((days - days.trunc() + month_days - month_days.trunc()) * 86_400.0);
        let mut whole_days = days.trunc() + month_days.trunc();
        if seconds.abs() >= 86_400.0 {
            whole_days += (seconds / 86_400.0).trunc();
            seconds %= 86_400.0;
        }
        let micros = (micros + seconds * MICROS_PER_SECOND as f64).round_ties_even();
        let fits = |value: f64| value.abs() < f64::from(i32::MAX);
        if !fits(months) || !fits(whole_days) || micros.is_nan() || micros.abs() >= i64::MAX as f64 {
            return Err(out_of_range());
        }
        Interval::from_parts(months.trunc() as i32, whole_days as i32, micros as i64)
    }
}

/// 22008: the interval is out of range.
pub fn out_of_range() -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

/// Reads an interval: `1 year 2 mons -3 days 04:05:06.7 ago`, `1-2`, `3 4:05`, `P1Y2M3DT4H5M6.7S`.
pub fn parse(text: &str, style: IntervalStyle) -> Result<Interval> {
    parse_within(text, -1, style)
}

/// Reads an interval of a type with that modifier. A number without a unit is in the smallest field that the
/// modifier allows; the result is not rounded to it.
pub fn parse_within(text: &str, modifier: i32, style: IntervalStyle) -> Result<Interval> {
    let syntax = || {
        Error::new(
            SqlState::INVALID_DATETIME_FORMAT,
            format!("invalid input syntax for type interval: \"{text}\""),
        )
    };
    let trimmed = text.trim();
    let sum = match trimmed.strip_prefix('P') {
        Some(iso) => parse_iso(iso).ok_or_else(syntax)?,
        None => parse_words(trimmed, modifier, style).ok_or_else(syntax)?,
    };
    let field_overflow =
        || Error::new(INTERVAL_FIELD_OVERFLOW, format!("interval field value out of range: \"{text}\""));
    sum.finish().ok_or_else(field_overflow)?.ok_or_else(out_of_range)
}

const INTERVAL_FIELD_OVERFLOW: SqlState = SqlState::new("22015");

/// Appends an interval.
pub fn write(interval: &Interval, style: IntervalStyle, out: &mut String) {
    match style {
        IntervalStyle::Postgres => write_postgres(interval, out),
        IntervalStyle::PostgresVerbose => styles::write_verbose(interval, out),
        IntervalStyle::SqlStandard => styles::write_sql_standard(interval, out),
        IntervalStyle::Iso8601 => styles::write_iso_8601(interval, out),
    }
}

/// Appends an interval, `1 year 2 mons -3 days +04:05:06.7`.
fn write_postgres(interval: &Interval, out: &mut String) {
    let start = out.len();
    let mut previous_negative = false;
    let parts = [(interval.months / 12, "year"), (interval.months % 12, "mon"), (interval.days, "day")];
    for (value, unit) in parts {
        if value == 0 {
            continue;
        }
        let space = if out.len() == start { "" } else { " " };
        // A plus sign marks a positive part after a negative one.
        let plus = if previous_negative && value > 0 { "+" } else { "" };
        let plural = if value == 1 { "" } else { "s" };
        write!(out, "{space}{plus}{value} {unit}{plural}").expect("a write to a string succeeds");
        previous_negative = value < 0;
    }
    let micros = interval.microseconds();
    if micros == 0 && out.len() != start {
        return;
    }
    if out.len() != start {
        out.push(' ');
    }
    if micros < 0 {
        out.push('-');
    } else if previous_negative {
        out.push('+');
    }
    let micros = micros.unsigned_abs() as i64;
    let seconds = micros / MICROS_PER_SECOND;
    push_two(seconds / 3600, out);
    out.push(':');
    push_two(seconds / 60 % 60, out);
    out.push(':');
    push_two(seconds % 60, out);
    write_fraction(micros % MICROS_PER_SECOND, out);
}

/// Sums of the parts while reading, wide enough that overflow is detected only at the end.
#[derive(Default)]
struct Sum {
    years: i128,
    months: i128,
    days: i128,
    micros: i128,
}

/// A number as written: sign, whole part, and fraction in billionths.
#[derive(Clone, Copy)]
struct Number {
    negative: bool,
    whole: i128,
    billionths: i128,
}

const BILLION: i128 = 1_000_000_000;

impl Number {
    fn read(text: &str) -> Option<Number> {
        let (negative, digits) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0
            || whole.len() > 18
            || !all_digits(whole)
            || !all_digits(fraction)
        {
            return None;
        }
        let mut billionths = 0;
        for position in 0..9 {
            let digit = fraction.as_bytes().get(position).map_or(0, |digit| i128::from(digit - b'0'));
            billionths = billionths * 10 + digit;
        }
        Some(Number { negative, whole: if whole.is_empty() { 0 } else { whole.parse().ok()? }, billionths })
    }

    fn signed(self, value: i128) -> i128 {
        if self.negative { -value } else { value }
    }
}

impl Sum {
    /// Adds a number of a unit; a fraction of a large unit becomes smaller ones.
    fn add(&mut self, number: Number, unit: &Unit) {
        let Number { whole, billionths, .. } = number;
        let (years, months, days, day_billionths, micros) = match unit.size {
            Size::Micros(size) => (0, 0, 0, 0, whole * size + rounded(billionths * size)),
            Size::Days(size) => (0, 0, whole * size, billionths * size, 0),
            Size::Month => (0, whole, 0, billionths * 30, 0),
            // A fraction of a year is rounded to months.
            Size::Years(size) => (whole * size, rounded(billionths * size * 12), 0, 0, 0),
        };
        let of_days = rounded(day_billionths % BILLION * i128::from(MICROS_PER_DAY));
        self.years += number.signed(years);
        self.months += number.signed(months);
        self.days += number.signed(days + day_billionths / BILLION);
        self.micros += number.signed(micros + of_days);
    }

    fn negate(&mut self) {
        (self.years, self.months) = (-self.years, -self.months);
        (self.days, self.micros) = (-self.days, -self.micros);
    }

    /// `None` if a field has no room for its value; nothing within it if the months have none for the years.
    fn finish(self) -> Option<Option<Interval>> {
        let years: i32 = self.years.try_into().ok()?;
        let months: i32 = self.months.try_into().ok()?;
        let days = self.days.try_into().ok()?;
        let nanoseconds = (self.micros * i128::from(NANOS_PER_MICRO)).try_into().ok()?;
        let months = i32::try_from(i64::from(years) * 12 + i64::from(months)).ok();
        Some(months.map(|months| Interval { months, days, nanoseconds }))
    }
}

/// Rounds billionths to the nearest integer.
fn rounded(billionths: i128) -> i128 {
    (billionths + BILLION / 2) / BILLION
}

/// A unit of intervals.
struct Unit {
    names: &'static [&'static str],
    /// PostgreSQL's field of the unit.
    field: Fields,
    size: Size,
}

/// The size of a unit.
enum Size {
    Micros(i128),
    Days(i128),
    /// A fraction of it is days, 30 for a whole month.
    Month,
    Years(i128),
}

const UNITS: [Unit; 12] = [
    unit(&["us", "usec", "usecs", "microsecond", "microseconds", "microsecon"], MICROSECOND, Size::Micros(1)),
    unit(
        &["ms", "msec", "msecs", "millisecond", "milliseconds", "mseconds"],
        MILLISECOND,
        Size::Micros(1_000),
    ),
    unit(&["s", "sec", "secs", "second", "seconds"], SECOND, Size::Micros(1_000_000)),
    unit(&["m", "min", "mins", "minute", "minutes"], MINUTE, Size::Micros(60_000_000)),
    unit(&["h", "hr", "hrs", "hour", "hours"], HOUR, Size::Micros(3_600_000_000)),
    unit(&["d", "day", "days"], 1 << 5, Size::Days(1)),
    unit(&["w", "week", "weeks"], 1 << 6, Size::Days(7)),
    unit(&["mon", "mons", "month", "months"], MONTH, Size::Month),
    unit(&["y", "yr", "yrs", "year", "years"], 1 << 8, Size::Years(1)),
    unit(&["decade", "decades", "dec", "decs"], 1 << 9, Size::Years(10)),
    unit(&["c", "cent", "century", "centuries"], 1 << 10, Size::Years(100)),
    unit(&["mil", "mils", "millennium", "millennia"], 1 << 11, Size::Years(1_000)),
];

const fn unit(names: &'static [&'static str], field: Fields, size: Size) -> Unit {
    Unit { names, field, size }
}

impl Unit {
    fn called(name: &str) -> Option<&'static Unit> {
        UNITS.iter().find(|unit| unit.names.contains(&name))
    }

    /// The fields that a number of the unit sets: seconds with a fraction also set their parts.
    fn fields_of(&self, number: Number) -> Fields {
        match self.field {
            SECOND if number.billionths != 0 => SECOND | MILLISECOND | MICROSECOND,
            field => field,
        }
    }
}

/// A set of fields.
type Fields = u16;

const MICROSECOND: Fields = 1;
const MILLISECOND: Fields = 1 << 1;
const SECOND: Fields = 1 << 2;
const MINUTE: Fields = 1 << 3;
const HOUR: Fields = 1 << 4;
const MONTH: Fields = 1 << 7;
const CLOCK: Fields = HOUR | MINUTE | SECOND | MILLISECOND | MICROSECOND;

/// Takes fields that were not there yet.
fn take(fields: Fields, said: &mut Fields) -> Option<()> {
    let is_new = *said & fields == 0;
    *said |= fields;
    is_new.then_some(())
}

/// The unit of a number without one, for a modifier.
fn smallest_unit(modifier: i32) -> &'static str {
    let fields = if modifier < 0 { 0 } else { modifier >> 16 & 0x7fff };
    // By PostgreSQL's numbers of fields, the smallest first.
    let units = [(12, "s"), (11, "m"), (10, "h"), (3, "d"), (1, "mon"), (2, "y")];
    units.into_iter().find(|(field, _)| fields & 1 << field != 0).map_or("s", |(_, unit)| unit)
}

/// Whether a modifier allows only minutes and seconds, so that `4:05` is minutes.
fn is_minute_to_second(modifier: i32) -> bool {
    // PostgreSQL's numbers of the two fields.
    modifier >= 0 && modifier >> 16 & 0x7fff == 1 << 11 | 1 << 12
}

/// Numbers without a unit so far.
#[derive(Default)]
struct Pending(Vec<Number>);

impl Pending {
    /// Adds the last number with a unit. A number before hours counts days.
    fn add(&mut self, sum: &mut Sum, said: &mut Fields, unit: &str) -> Option<()> {
        let unit = Unit::called(unit)?;
        let number = self.0.pop()?;
        sum.add(number, unit);
        take(unit.fields_of(number), said)?;
        if unit.field == HOUR {
            self.add_days(sum, said)?;
        }
        self.0.is_empty().then_some(())
    }

    fn add_days(&mut self, sum: &mut Sum, said: &mut Fields) -> Option<()> {
        if self.0.is_empty() { Some(()) } else { self.add(sum, said, "d") }
    }
}

/// Whether one sign applies to all fields: in the style of the SQL standard, if it is the only one.
fn is_all_negative(text: &str, style: IntervalStyle) -> bool {
    style == IntervalStyle::SqlStandard
        && text.starts_with('-')
        && !text.split_ascii_whitespace().skip(1).any(|word| word.starts_with(['-', '+']))
}

/// A list of numbers with units, which may include a time, a SQL year-month or a bare number.
fn parse_words(text: &str, modifier: i32, style: IntervalStyle) -> Option<Sum> {
    let is_all_negative = is_all_negative(text, style);
    let bare = smallest_unit(modifier);
    let mut sum = Sum::default();
    let mut pending = Pending::default();
    // No field may be given twice, as in PostgreSQL.
    let mut said: Fields = 0;
    let mut anything = false;
    for word in text.split_ascii_whitespace() {
        let lower = word.trim_matches(',').to_ascii_lowercase();
        if lower == "@" {
            continue;
        }
        if lower == "ago" {
            if !pending.0.is_empty() {
                pending.add(&mut sum, &mut said, bare)?;
            }
            sum.negate();
            continue;
        }
        anything = true;
        // The unit may follow its number without a space.
        let digits = lower.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(lower.len());
        let (value, unit) = lower.split_at(digits);
        if value.contains(':') {
            // A number before a time counts days.
            pending.add_days(&mut sum, &mut said)?;
            take(CLOCK, &mut said)?;
            let micros = clock(value, is_minute_to_second(modifier))?;
            sum.micros += if is_all_negative { -micros.abs() } else { micros };
            if !unit.is_empty() {
                return None;
            }
            continue;
        }
        if !value.is_empty() {
            match year_month(value) {
                Some(months) if pending.0.is_empty() => {
                    take(MONTH, &mut said)?;
                    sum.months += months;
                }
                Some(_) => return None,
                None => {
                    let number = Number::read(value)?;
                    pending.0.push(Number { negative: number.negative || is_all_negative, ..number });
                }
            }
        }
        if !unit.is_empty() {
            pending.add(&mut sum, &mut said, unit)?;
        }
    }
    if !pending.0.is_empty() {
        pending.add(&mut sum, &mut said, bare)?;
    }
    anything.then_some(sum)
}

/// SQL's `years-months`.
fn year_month(word: &str) -> Option<i128> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    let (years, months) = digits.split_once('-')?;
    let months = i128::from(years.parse::<u64>().ok()?) * 12
        + i128::from(months.parse::<u32>().ok().filter(|m| *m < 12)?);
    Some(if negative { -months } else { months })
}

/// `[-]HH:MM[:SS[.ffffff]]`, or `MM:SS.ffffff`, in microseconds. Two numbers may be minutes and seconds.
fn clock(word: &str, is_minute_to_second: bool) -> Option<i128> {
    let (negative, clock) = match word.strip_prefix('-') {
        Some(clock) => (true, clock),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match parts.as_slice() {
        [minutes, seconds] if !fraction.is_empty() || is_minute_to_second => (0, *minutes, *seconds),
        [hours, minutes] => (*hours, *minutes, 0),
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        _ => return None,
    };
    if minutes > 59 || seconds > 59 {
        return None;
    }
    let seconds = (i128::from(hours) * 60 + i128::from(minutes)) * 60 + i128::from(seconds);
    let micros = seconds * i128::from(MICROS_PER_SECOND) + i128::from(fraction_micros(fraction));
    Some(if negative { -micros } else { micros })
}

/// ISO 8601 after its `P`: `1Y2M3DT4H5M6.7S`, `0001-02-03T04:05:06`, `00010203T040506`. The date and the time
/// may have different forms.
fn parse_iso(text: &str) -> Option<Sum> {
    if text.is_empty() {
        return None;
    }
    let mut sum = Sum::default();
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    if date.contains(|c: char| c.is_ascii_alphabetic()) {
        add_designated(&mut sum, date, &[('Y', "y"), ('M', "mon"), ('W', "w"), ('D', "d")])?;
    } else if !date.is_empty() {
        add_in_order(&mut sum, date, '-', [4, 2, 2], ["y", "mon", "d"])?;
    }
    if time.contains(|c: char| c.is_ascii_alphabetic()) {
        add_designated(&mut sum, time, &[('H', "h"), ('M', "m"), ('S', "s")])?;
    } else if !time.is_empty() {
        add_in_order(&mut sum, time, ':', [2, 2, 2], ["h", "m", "s"])?;
    }
    Some(sum)
}

/// Adds numbers that each have a letter behind them.
fn add_designated(sum: &mut Sum, mut rest: &str, units: &[(char, &str)]) -> Option<()> {
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (letter, unit) = units.iter().find(|(letter, _)| rest[end..].starts_with(*letter))?;
        sum.add(Number::read(&rest[..end])?, Unit::called(unit)?);
        rest = &rest[end + letter.len_utf8()..];
    }
    Some(())
}

/// Adds numbers by their order: with separators, or so many digits for each.
fn add_in_order(
    sum: &mut Sum,
    text: &str,
    separator: char,
    widths: [usize; 3],
    units: [&str; 3],
) -> Option<()> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let negative = digits.len() < text.len();
    let is_without_separators = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())
        == widths.iter().sum::<usize>()
        && !digits.contains(separator);
    let numbers = if is_without_separators {
        let (first, rest) = digits.split_at(widths[0]);
        let (second, third) = rest.split_at(widths[1]);
        vec![first, second, third]
    } else {
        digits.split(separator).collect()
    };
    if numbers.len() > units.len() {
        return None;
    }
    for (place, (number, unit)) in numbers.into_iter().zip(units).enumerate() {
        let number = Number::read(number)?;
        let negative = number.negative || negative && (place == 0 || is_without_separators);
        sum.add(Number { negative, ..number }, Unit::called(unit)?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: IntervalStyle = IntervalStyle::Postgres;

    fn through(text: &str) -> String {
        let mut out = String::new();
        match parse(text, STYLE) {
            Ok(interval) => write(&interval, STYLE, &mut out),
            Err(error) => out = format!("{} {}", error.state(), error.message()),
        }
        out
    }

    #[test]
    fn intervals_are_read_and_written_like_postgres_does() {
        let cases = [
            ("1 day 02:03:04", "1 day 02:03:04"),
            ("1 year 2 mons", "1 year 2 mons"),
            ("P1DT2H", "1 day 02:00:00"),
            ("P1Y2M3DT4H5M6.7S", "1 year 2 mons 3 days 04:05:06.7"),
            ("P2W", "14 days"),
            ("P0001-02-03T04:05:06.7", "1 year 2 mons 3 days 04:05:06.7"),
            ("P00010203T-040506", "1 year 2 mons 3 days -04:05:06"),
            ("P1-2T3H", "1 year 2 mons 03:00:00"),
            ("P-1-2", "-10 mons"),
            ("PT1", "01:00:00"),
            ("P1-2-3-4", "22007 invalid input syntax for type interval: \"P1-2-3-4\""),
            ("-1 day 02:03:04", "-1 days +02:03:04"),
            ("1 day ago", "-1 days"),
            ("-1 year -2 mons +3 days -04:05:06", "-1 years -2 mons +3 days -04:05:06"),
            ("1.5 days", "1 day 12:00:00"),
            ("1.5 months", "1 mon 15 days"),
            ("1.5 years", "1 year 6 mons"),
            ("1.5 weeks", "10 days 12:00:00"),
            ("1-2", "1 year 2 mons"),
            ("3 4:05", "3 days 04:05:00"),
            ("5", "00:00:05"),
            ("90 minutes", "01:30:00"),
            ("30d", "30 days"),
            ("100 hours", "100:00:00"),
            ("0", "00:00:00"),
            ("@ 1 minute 1.5 seconds", "00:01:01.5"),
            ("1 century", "100 years"),
            ("250 ms", "00:00:00.25"),
            ("hello", "22007 invalid input syntax for type interval: \"hello\""),
            ("", "22007 invalid input syntax for type interval: \"\""),
            ("3000000000 days", "22015 interval field value out of range: \"3000000000 days\""),
        ];
        for (text, written) in cases {
            assert_eq!(through(text), written, "{text}");
        }
    }

    /// As `interval '1' day` in PostgreSQL 15.
    #[test]
    fn a_number_without_a_unit_counts_the_smallest_field() {
        let cases = [
            (1 << 2, "1 year"),
            (1 << 1, "1 mon"),
            (1 << 2 | 1 << 1, "1 mon"),
            (1 << 3, "1 day"),
            (1 << 3 | 1 << 10, "01:00:00"),
            (1 << 3 | 1 << 10 | 1 << 11, "00:01:00"),
            (1 << 11 | 1 << 12, "00:00:01"),
            (0x7fff, "00:00:01"),
        ];
        for (fields, written) in cases {
            let mut out = String::new();
            write(&parse_within("1", fields << 16 | 0xffff, STYLE).unwrap(), STYLE, &mut out);
            assert_eq!(out, written);
        }
        let hour = parse("1 hour", STYLE).unwrap();
        assert_eq!(parse_within("1 hour", 1 << 3 << 16 | 0xffff, STYLE).unwrap(), hour);
    }

    #[test]
    fn each_unit_is_a_field_of_its_own_by_all_its_names() {
        for (place, unit) in UNITS.iter().enumerate() {
            assert_eq!(unit.field.count_ones(), 1);
            for name in unit.names {
                assert_eq!(Unit::called(name).unwrap().field, unit.field, "{name}");
                assert!(parse(&format!("1 {name} 1 {}", unit.names[0]), STYLE).is_err(), "{name}");
                let other = UNITS[(place + 1) % UNITS.len()].names[0];
                assert!(parse(&format!("1 {name} 1 {other}"), STYLE).is_ok(), "{name}");
            }
        }
        for (text, written) in [
            ("1.5 decades 1 year", "16 years"),
            ("1 century 0.5 mil", "600 years"),
            ("-1.5 weeks 1 day", "-9 days -12:00:00"),
            ("1.5 mons 1.5 days", "1 mon 16 days 12:00:00"),
            ("1 sec 1 ms 1 us", "00:00:01.001001"),
            ("1.5 sec 1 ms", "22007 invalid input syntax for type interval: \"1.5 sec 1 ms\""),
            ("1 fortnight", "22007 invalid input syntax for type interval: \"1 fortnight\""),
        ] {
            assert_eq!(through(text), written, "{text}");
        }
    }

    #[test]
    fn arithmetic_keeps_the_parts_apart_and_comparison_does_not() {
        let interval = |text| parse(text, STYLE).unwrap();
        let written = |interval: Interval| {
            let mut out = String::new();
            write(&interval, STYLE, &mut out);
            out
        };
        assert_eq!(written(interval("1 mon 3 days").checked_mul(1.5).unwrap()), "1 mon 19 days 12:00:00");
        assert_eq!(written(interval("1 day").checked_div(3.0).unwrap()), "08:00:00");
        assert_eq!(written(interval("1 mon").checked_add(interval("-1 day")).unwrap()), "1 mon -1 days");
        assert_eq!(interval("1 mon").compare(&interval("30 days")), Ordering::Equal);
        assert_eq!(interval("25 hours").compare(&interval("1 day")), Ordering::Greater);
    }
}
