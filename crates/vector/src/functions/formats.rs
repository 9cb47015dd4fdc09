//! `to_char` of moments and intervals: templates, taken apart and filled in.

use super::moments::iso_week;
use crate::kernel::{Call, Text};
use crate::registry::RegistryBuilder;
use firn_base::datetime::{self, MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, days_from_civil};
use firn_base::{Error, Interval, Result, SqlState};
use std::fmt::Write;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(i64, &str), _>("to_char(timestamp,text)", |call, (local, template)| {
        fill(call, template, &Fields::of_moment(local, None)).map(|()| (!template.is_empty()).then_some(Text))
    });
    builder.scalar::<(i64, &str), _>("to_char(timestamptz,text)", |call, (moment, template)| {
        let zone = call.context.zone;
        let fields = Fields::of_moment(datetime::to_local(moment, zone)?, Some(zone.offset_at(moment)));
        fill(call, template, &fields).map(|()| (!template.is_empty()).then_some(Text))
    });
    builder.scalar::<(Interval, &str), _>("to_char(interval,text)", |call, (span, template)| {
        fill(call, template, &Fields::of_interval(span)).map(|()| (!template.is_empty()).then_some(Text))
    });
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// The names of fields in capitals, longer ones before those that they begin with. Each may stand in small letters as well, and the names
/// of months and days with one capital.
const NAMES: &[&str] = &[
    "A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "CC", "DAY", "DDD", "DD", "DY", "D", "FF1", "FF2", "FF3",
    "FF4", "FF5", "FF6", "FX", "HH24", "HH12", "HH", "IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I", "J", "MI",
    "MM", "MONTH", "MON", "MS", "OF", "P.M.", "PM", "Q", "RM", "SSSSS", "SSSS", "SS", "TZH", "TZM", "TZ",
    "US", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y",
];

/// How the letters of a name are written.
#[derive(Clone, Copy, PartialEq)]
enum Case {
    Upper,
    Lower,
    Capital,
}

/// A field at the beginning of a template: its name, and what follows it.
fn field(template: &str) -> Option<(&'static str, Case, &str)> {
    let capital = |name: &str| {
        let (first, rest) = name.split_at(1);
        format!("{first}{}", rest.to_lowercase())
    };
    // Names of one capital are longer or as long as others that would match.
    for name in ["MONTH", "MON", "DAY", "DY"] {
        if let Some(rest) = template.strip_prefix(capital(name).as_str()) {
            return Some((name, Case::Capital, rest));
        }
    }
    NAMES.iter().find_map(|name| {
        let start = template.get(..name.len())?;
        let case = match start {
            start if start == *name => Case::Upper,
            start if start == name.to_lowercase() => Case::Lower,
            _ => return None,
        };
        Some((*name, case, &template[name.len()..]))
    })
}

/// What fields show.
struct Fields {
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
    /// Seconds east of Greenwich.
    offset: i32,
}

impl Fields {
    fn of_moment(local: i64, offset: Option<i32>) -> Fields {
        let days = local.div_euclid(MICROS_PER_DAY);
        let time = local.rem_euclid(MICROS_PER_DAY);
        let (year, month, day) = civil_from_days(days);
        Fields {
            days: Some(days),
            offset: offset.unwrap_or(0),
            ..Fields::of(year, month.into(), day.into(), time)
        }
    }

    fn of_interval(span: Interval) -> Fields {
        let (years, months) = (span.months / 12, span.months % 12);
        Fields::of(years.into(), months.into(), span.days.into(), span.microseconds())
    }

    fn of(year: i64, month: i64, day: i64, time: i64) -> Fields {
        let seconds = time / MICROS_PER_SECOND;
        Fields {
            year,
            month,
            day,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: time % MICROS_PER_SECOND,
            days: None,
            offset: 0,
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
}

/// Appends the template with its fields filled in.
fn fill(call: &mut Call<'_>, template: &str, fields: &Fields) -> Result<()> {
    let mut rest = template;
    while !rest.is_empty() {
        let mut is_bare = false;
        let mut after = rest;
        // FM takes padding away, and TM as well; it asks for the locale's names, which are the English ones here.
        while let Some(next) = ["FM", "fm", "TM", "tm"].iter().find_map(|prefix| after.strip_prefix(prefix)) {
            is_bare = true;
            after = next;
        }
        if let Some((name, case, next)) = field(after) {
            let (ordinal, next) = match next.get(..2) {
                Some("TH") => (Some(Case::Upper), &next[2..]),
                Some("th") => (Some(Case::Lower), &next[2..]),
                _ => (None, next),
            };
            write_field(&mut call.text, name, case, is_bare, ordinal, fields)?;
            rest = next;
        } else if let Some(quoted) = after.strip_prefix('"') {
            rest = quoted;
            loop {
                let mut characters = rest.chars();
                match characters.next() {
                    None => break,
                    Some('"') => {
                        rest = characters.as_str();
                        break;
                    }
                    Some('\\') => {
                        call.text.extend(characters.next());
                        rest = characters.as_str();
                    }
                    Some(other) => {
                        call.text.push(other);
                        rest = characters.as_str();
                    }
                }
            }
        } else {
            let mut characters = after.chars();
            match characters.next() {
                Some('\\') if after[1..].starts_with('"') => call.text.extend(characters.next()),
                Some(other) => call.text.push(other),
                None => {}
            }
            rest = characters.as_str();
        }
    }
    Ok(())
}

fn write_field(
    out: &mut String,
    name: &str,
    case: Case,
    is_bare: bool,
    ordinal: Option<Case>,
    fields: &Fields,
) -> Result<()> {
    let cased = |word: &str| match case {
        Case::Upper => word.to_uppercase(),
        Case::Lower => word.to_lowercase(),
        Case::Capital => word.to_owned(),
    };
    let number = |out: &mut String, value: i64, width: usize| {
        // A sign takes a place more.
        let width = if is_bare { 0 } else { width + usize::from(value < 0) };
        let start = out.len();
        write!(out, "{value:0width$}").expect("strings take all");
        if let Some(case) = ordinal {
            let suffix = ordinal_suffix(&out[start..]);
            out.push_str(&if case == Case::Upper { suffix.to_uppercase() } else { suffix.to_owned() });
        }
    };
    let word = |out: &mut String, word: &str, width: usize| {
        let width = if is_bare { 0 } else { width };
        write!(out, "{word:width$}").expect("strings take all");
    };
    let is_afternoon = fields.hour.rem_euclid(24) >= 12;
    let iso = |fields: &Fields| fields.date().map(iso_week);
    match name {
        "A.M." | "P.M." => out.push_str(&cased(if is_afternoon { "P.M." } else { "A.M." })),
        "AM" | "PM" => out.push_str(&cased(if is_afternoon { "PM" } else { "AM" })),
        "A.D." | "B.C." => {
            fields.date()?;
            out.push_str(&cased(if fields.year <= 0 { "B.C." } else { "A.D." }));
        }
        "AD" | "BC" => {
            fields.date()?;
            out.push_str(&cased(if fields.year <= 0 { "BC" } else { "AD" }));
        }
        "MONTH" | "MON" => {
            fields.date()?;
            let month = MONTHS[fields.month as usize - 1];
            match name {
                "MON" => out.push_str(&cased(&month[..3])),
                _ => word(out, &cased(month), 9),
            }
        }
        "DAY" | "DY" => {
            let day = DAYS[(fields.date()? + 4).rem_euclid(7) as usize];
            match name {
                "DY" => out.push_str(&cased(&day[..3])),
                _ => word(out, &cased(day), 9),
            }
        }
        "MM" => number(out, fields.month, 2),
        // Its sign takes one of the two places.
        "DD" => number(out, fields.day, if fields.day < 0 { 1 } else { 2 }),
        "DDD" => number(out, fields.day_of_year(), 3),
        "D" => number(out, (fields.date()? + 4).rem_euclid(7) + 1, 1),
        "ID" => number(out, (fields.date()? + 3).rem_euclid(7) + 1, 1),
        "IDDD" => {
            let days = fields.date()?;
            let (year, _) = iso_week(days);
            // The ISO year begins on the Monday of the week with 4 January.
            let fourth = days_from_civil(year, 1, 4);
            number(out, days - (fourth - (fourth + 3).rem_euclid(7)) + 1, 3);
        }
        "IW" => number(out, iso(fields)?.1, 2),
        "WW" => number(out, (fields.day_of_year() - 1) / 7 + 1, 2),
        "W" => number(out, (fields.day - 1) / 7 + 1, 1),
        // An interval without months has no quarter and no month.
        "Q" | "RM" if fields.month == 0 => {}
        "Q" => number(out, (fields.month - 1) / 3 + 1, 1),
        "CC" => {
            let century = match fields.days {
                Some(_) if fields.year > 0 => (fields.year - 1) / 100 + 1,
                Some(_) => fields.year / 100 - 1,
                None => fields.year / 100,
            };
            number(out, century, 2);
        }
        "Y,YYY" => {
            let year = fields.shown_year(fields.year);
            write!(out, "{},{:03}", year / 1000, year % 1000).expect("strings take all");
            if let Some(case) = ordinal {
                let suffix = ordinal_suffix(&year.to_string());
                out.push_str(&if case == Case::Upper { suffix.to_uppercase() } else { suffix.to_owned() });
            }
        }
        "YYYY" => number(out, fields.shown_year(fields.year), 4),
        "YYY" => number(out, fields.shown_year(fields.year) % 1000, 3),
        "YY" => number(out, fields.shown_year(fields.year) % 100, 2),
        "Y" => number(out, fields.shown_year(fields.year) % 10, 1),
        "IYYY" | "IYY" | "IY" | "I" => {
            let year = fields.shown_year(iso(fields)?.0);
            let modulus = [10, 100, 1000, i64::MAX][name.len() - 1];
            number(out, year % modulus, name.len());
        }
        "RM" => {
            let month = (fields.month - 1).rem_euclid(12) as usize;
            word(out, &cased(ROMAN[month]), 4);
        }
        "J" => number(out, fields.date()? + 2_440_588, 0),
        "HH24" => number(out, fields.hour, 2),
        "HH12" | "HH" => number(out, if fields.hour % 12 == 0 { 12 } else { fields.hour % 12 }, 2),
        "MI" => number(out, fields.minute, 2),
        "SS" => number(out, fields.second, 2),
        "SSSSS" | "SSSS" => number(out, fields.hour * 3600 + fields.minute * 60 + fields.second, 0),
        "MS" | "FF3" => fraction(out, fields, 3, ordinal),
        "US" | "FF6" => fraction(out, fields, 6, ordinal),
        "FF1" => fraction(out, fields, 1, ordinal),
        "FF2" => fraction(out, fields, 2, ordinal),
        "FF4" => fraction(out, fields, 4, ordinal),
        "FF5" => fraction(out, fields, 5, ordinal),
        "TZ" => return Err(Error::unsupported("the pattern \"TZ\"").with_hint("Use OF or TZH:TZM.")),
        "TZH" => {
            fields.date()?;
            let sign = if fields.offset < 0 { '-' } else { '+' };
            write!(out, "{sign}{:02}", fields.offset.abs() / 3600).expect("strings take all");
        }
        "TZM" => {
            fields.date()?;
            write!(out, "{:02}", fields.offset.abs() / 60 % 60).expect("strings take all");
        }
        "OF" => {
            fields.date()?;
            let sign = if fields.offset < 0 { '-' } else { '+' };
            let width = if is_bare { 0 } else { 2 };
            write!(out, "{sign}{:0width$}", fields.offset.abs() / 3600).expect("strings take all");
            if fields.offset % 3600 != 0 {
                write!(out, ":{:02}", fields.offset.abs() / 60 % 60).expect("strings take all");
            }
        }
        // FX only matters to what reads.
        _ => {}
    }
    Ok(())
}

/// The decimals of a second, cut.
fn fraction(out: &mut String, fields: &Fields, digits: usize, ordinal: Option<Case>) {
    let start = out.len();
    let value = fields.micros / 10i64.pow(6 - digits as u32);
    write!(out, "{value:0digits$}").expect("strings take all");
    if let Some(case) = ordinal {
        let suffix = ordinal_suffix(&out[start..]);
        out.push_str(&if case == Case::Upper { suffix.to_uppercase() } else { suffix.to_owned() });
    }
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
