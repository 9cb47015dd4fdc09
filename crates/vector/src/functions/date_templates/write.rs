//! `to_char` of moments and intervals: fills in the fields of a template.

use super::super::moments::iso_week;
use super::{Case, DAYS, Field, MONTHS, Node, ROMAN};
use firn_base::datetime::{MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, days_from_civil};
use firn_base::{Error, Interval, Result, SqlState, TimeZoneSetting};
use std::fmt::Write;

/// What fields show.
pub struct Values<'a> {
    /// Year, month from 1 and day; of an interval the numbers of these.
    year: i64,
    month: i64,
    day: i64,
    /// Hours, which may be more than a day has, or negative, in an interval.
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// Days since 1970; `None` of an interval.
    days: Option<i64>,
    /// The zone, and the moment in it.
    zone: Option<(&'a TimeZoneSetting, i64)>,
}

/// A date by ISO weeks.
struct IsoDate {
    year: i64,
    week: i64,
    day_of_year: i64,
}

impl<'a> Values<'a> {
    /// Those of a moment as the clocks show it, and, if it is in a zone, the zone and the moment itself.
    pub fn of_moment(local: i64, zone: Option<(&'a TimeZoneSetting, i64)>) -> Values<'a> {
        let days = local.div_euclid(MICROS_PER_DAY);
        let time = local.rem_euclid(MICROS_PER_DAY);
        let (year, month, day) = civil_from_days(days);
        Values { days: Some(days), zone, ..Values::of(year, month.into(), day.into(), time) }
    }

    /// Those of an interval.
    pub fn of_interval(span: Interval) -> Values<'a> {
        let (years, months) = (span.months / 12, span.months % 12);
        Values::of(years.into(), months.into(), span.days.into(), span.microseconds())
    }

    fn of(year: i64, month: i64, day: i64, time: i64) -> Values<'a> {
        let seconds = time / MICROS_PER_SECOND;
        Values {
            year,
            month,
            day,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: time % MICROS_PER_SECOND,
            days: None,
            zone: None,
        }
    }

    /// Days since 1970; 22007 of an interval, which has none.
    fn date(&self) -> Result<i64> {
        self.days.ok_or_else(|| {
            Error::new(
                SqlState::INVALID_DATETIME_FORMAT,
                "invalid format specification for an interval value",
            )
            .with_hint("Intervals are not tied to specific calendar dates.")
        })
    }

    /// Seconds east of Greenwich.
    fn offset(&self) -> i32 {
        self.zone.map_or(0, |(zone, moment)| zone.offset_at(moment))
    }

    /// The year as it is written: the year before 1 is 1 BC. Of an interval, the number of years.
    fn shown_year(&self, year: i64) -> i64 {
        if self.days.is_some() && year <= 0 { 1 - year } else { year }
    }

    fn day_of_year(&self) -> i64 {
        match self.days {
            Some(days) => days - days_from_civil(self.year, 1, 1) + 1,
            None => (self.year * 12 + self.month) * 30 + self.day,
        }
    }

    /// The Julian day. An interval is taken for the date with its numbers, as PostgreSQL does.
    fn julian(&self) -> i64 {
        match self.days {
            Some(days) => days + 2_440_588,
            None => julian(self.year, self.month, self.day),
        }
    }

    /// The date by ISO weeks.
    fn iso(&self) -> IsoDate {
        if let Some(days) = self.days {
            let (year, week) = iso_week(days);
            // The ISO year begins on the Monday of the week with 4 January.
            let fourth = days_from_civil(year, 1, 4);
            let day_of_year = days - (fourth - (fourth + 3).rem_euclid(7)) + 1;
            return IsoDate { year, week, day_of_year };
        }
        let day = self.julian();
        let monday = |year: i64| {
            let fourth = julian(year, 1, 4);
            fourth - fourth.rem_euclid(7)
        };
        let week = |start: i64| (day - start) / 7 + 1;
        let year = if day < monday(self.year) { self.year - 1 } else { self.year };
        let is_next = week(monday(year)) >= 52 && day >= monday(self.year + 1);
        let year_of_week = if is_next { self.year + 1 } else { year };
        let found = if is_next { year + 1 } else { year };
        IsoDate { year: found, week: week(monday(year_of_week)), day_of_year: day - monday(found) + 1 }
    }
}

/// The Julian day of a date, whose month and day may be any number.
fn julian(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year + 4800, month + 1) } else { (year + 4799, month + 13) };
    let century = year / 100;
    year * 365 - 32_167 + year / 4 - century + century / 4 + 7834 * month / 256 + day
}

/// Appends a template with its fields filled in.
pub fn write(nodes: &[Node], values: &Values<'_>, out: &mut String) -> Result<()> {
    for node in nodes {
        match node {
            Node::Field(field) => write_field(field, values, out)?,
            Node::Separator(character) | Node::Space(character) | Node::Character(character) => {
                out.push(*character);
            }
        }
    }
    Ok(())
}

fn write_field(field: &Field, values: &Values<'_>, out: &mut String) -> Result<()> {
    let start = out.len();
    let Field { name, is_filled, .. } = *field;
    let cased = |word: &str| match field.case {
        Case::Upper => word.to_uppercase(),
        Case::Lower => word.to_lowercase(),
        Case::Capital => word.to_owned(),
    };
    let number = |out: &mut String, value: i64, width: usize| {
        let width = if is_filled { 0 } else { width };
        write!(out, "{value:0width$}").expect("strings take all");
    };
    // A sign takes a place more: that of the whole value, whether this number shows it or not.
    let signed = |out: &mut String, value: i64, whole: i64, width: usize| {
        number(out, value, width + usize::from(whole < 0));
    };
    let word = |out: &mut String, word: &str, width: usize| {
        let width = if is_filled { 0 } else { width };
        write!(out, "{word:width$}").expect("strings take all");
    };
    // The locale's names are not padded.
    let name_width = if field.is_localized { 0 } else { 9 };
    let is_afternoon = values.hour % 24 >= 12;
    match name {
        "A.M." | "P.M." => out.push_str(&cased(if is_afternoon { "P.M." } else { "A.M." })),
        "AM" | "PM" => out.push_str(&cased(if is_afternoon { "PM" } else { "AM" })),
        "A.D." | "B.C." => {
            values.date()?;
            out.push_str(&cased(if values.year <= 0 { "B.C." } else { "A.D." }));
        }
        "AD" | "BC" => {
            values.date()?;
            out.push_str(&cased(if values.year <= 0 { "BC" } else { "AD" }));
        }
        "MONTH" | "MON" => {
            values.date()?;
            let month = MONTHS[values.month as usize - 1];
            match name {
                "MON" => out.push_str(&cased(&month[..3])),
                _ => word(out, &cased(month), name_width),
            }
        }
        "DAY" | "DY" => {
            let day = DAYS[(values.date()? + 4).rem_euclid(7) as usize];
            match name {
                "DY" => out.push_str(&cased(&day[..3])),
                _ => word(out, &cased(day), name_width),
            }
        }
        "RM" => {
            // A whole number of years has no month, and is written as its last one.
            let place = match values.month {
                0 if values.year == 0 => return Ok(()),
                0 if values.year > 0 => 11,
                0 => 0,
                month if month < 0 => month + 12,
                month => month - 1,
            };
            word(out, &cased(ROMAN[place as usize]), 4);
        }
        "TZ" => {
            values.date()?;
            if let Some((zone, moment)) = values.zone {
                let abbreviation = zone.abbreviation_at(moment);
                out.push_str(&match field.case {
                    Case::Lower => abbreviation.to_ascii_lowercase(),
                    _ => abbreviation,
                });
            }
        }
        "TZH" => {
            values.date()?;
            let sign = if values.offset() < 0 { '-' } else { '+' };
            write!(out, "{sign}{:02}", values.offset().abs() / 3600).expect("strings take all");
        }
        "TZM" => {
            values.date()?;
            write!(out, "{:02}", values.offset().abs() / 60 % 60).expect("strings take all");
        }
        "OF" => {
            values.date()?;
            let offset = values.offset();
            let sign = if offset < 0 { '-' } else { '+' };
            let width = if is_filled { 0 } else { 2 };
            write!(out, "{sign}{:0width$}", offset.abs() / 3600).expect("strings take all");
            if offset % 3600 != 0 {
                write!(out, ":{:02}", offset.abs() / 60 % 60).expect("strings take all");
            }
        }
        // An interval without months has no quarter.
        "Q" if values.month == 0 => {}
        // FX only matters to what reads.
        "FX" => {}
        _ => {
            write_number(name, values, out, &signed, &number)?;
            if let Some(case) = field.ordinal {
                let suffix = ordinal_suffix(&out[start..]);
                out.push_str(&if case == Case::Upper { suffix.to_uppercase() } else { suffix.to_owned() });
            }
        }
    }
    Ok(())
}

/// Appends a field that is a number. `signed` takes the value whose sign decides the width.
fn write_number(
    name: &str,
    values: &Values<'_>,
    out: &mut String,
    signed: &dyn Fn(&mut String, i64, i64, usize),
    number: &dyn Fn(&mut String, i64, usize),
) -> Result<()> {
    let year = values.shown_year(values.year);
    let fraction = |out: &mut String, digits: usize| {
        let value = values.micros / 10i64.pow(6 - digits as u32);
        write!(out, "{value:0digits$}").expect("strings take all");
    };
    match name {
        "MM" => signed(out, values.month, values.month, 2),
        "DD" => number(out, values.day, 2),
        "DDD" => number(out, values.day_of_year(), 3),
        "D" => number(out, (values.date()? + 4).rem_euclid(7) + 1, 0),
        "ID" => number(out, (values.date()? + 3).rem_euclid(7) + 1, 0),
        "IDDD" => number(out, values.iso().day_of_year, 3),
        "IW" => number(out, values.iso().week, 2),
        "WW" => number(out, (values.day_of_year() - 1) / 7 + 1, 2),
        "W" => number(out, (values.day - 1) / 7 + 1, 0),
        "Q" => number(out, (values.month - 1) / 3 + 1, 0),
        "CC" => {
            let century = match values.days {
                Some(_) if values.year > 0 => (values.year - 1) / 100 + 1,
                Some(_) => values.year / 100 - 1,
                None => values.year / 100,
            };
            signed(out, century, century, 2);
        }
        "Y,YYY" => write!(out, "{},{:03}", year / 1000, year % 1000).expect("strings take all"),
        "YYYY" => signed(out, year, year, 4),
        "YYY" => signed(out, year % 1000, year, 3),
        "YY" => signed(out, year % 100, year, 2),
        "Y" => number(out, year % 10, 0),
        "IYYY" => signed(out, values.shown_year(values.iso().year), year, 4),
        "IYY" => signed(out, values.shown_year(values.iso().year) % 1000, year, 3),
        "IY" => signed(out, values.shown_year(values.iso().year) % 100, year, 2),
        "I" => number(out, values.shown_year(values.iso().year) % 10, 0),
        "J" => number(out, values.julian(), 0),
        "HH24" => signed(out, values.hour, values.hour, 2),
        "HH12" | "HH" => {
            let hour = if values.hour % 12 == 0 { 12 } else { values.hour % 12 };
            signed(out, hour, values.hour, 2);
        }
        "MI" => signed(out, values.minute, values.minute, 2),
        "SS" => signed(out, values.second, values.second, 2),
        "SSSSS" | "SSSS" => number(out, values.hour * 3600 + values.minute * 60 + values.second, 0),
        "MS" => fraction(out, 3),
        "US" => fraction(out, 6),
        "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
            fraction(out, usize::from(name.as_bytes()[2] - b'0'))
        }
        other => panic!("{other} is no field"),
    }
    Ok(())
}

/// `st`, `nd`, `rd` or `th` for a number in digits.
pub fn ordinal_suffix(number: &str) -> &'static str {
    let digits = number.as_bytes();
    let last = digits.last().copied().unwrap_or(b'0');
    let is_teen = digits.len() > 1 && digits[digits.len() - 2] == b'1';
    match last {
        b'1' if !is_teen => "st",
        b'2' if !is_teen => "nd",
        b'3' if !is_teen => "rd",
        _ => "th",
    }
}
