//! Time zones written as rules: `EST5EDT,M3.2.0,M11.1.0`, the POSIX form of the variable TZ.
//!
//! Offsets count west of Greenwich in the text, and east in the result. Daylight-saving time without rules
//! follows those of the United States, as in PostgreSQL.

use super::MICROS_PER_DAY;
use crate::datetime::{MICROS_PER_SECOND, civil_from_days, days_from_civil, days_in_month};
use std::fmt;

/// The largest number of bytes of an abbreviation.
const ABBREVIATION_BYTES: usize = 15;

/// A zone with one offset, or with two that alternate each year.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PosixZone {
    standard: Clock,
    daylight: Option<Daylight>,
}

/// An offset and its abbreviation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Clock {
    abbreviation: Abbreviation,
    /// Seconds east of Greenwich.
    offset: i32,
}

/// Daylight-saving time, from its first second to its last one. Both are local times before the change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Daylight {
    clock: Clock,
    start: Change,
    end: Change,
}

/// When the offset changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Change {
    day: Day,
    /// Seconds after midnight; they may be negative, and more than a day.
    time: i32,
}

/// A day of each year.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Day {
    /// 1 to 365; February 29 is not counted.
    Julian(i32),
    /// 0 to 365.
    OfYear(i32),
    /// A weekday (0 is Sunday) of a month; the fifth week is the last one.
    OfWeek { month: u32, week: i64, weekday: i64 },
}

/// A short name, stored inline so that zones can be copied.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Abbreviation {
    bytes: [u8; ABBREVIATION_BYTES],
    length: u8,
}

/// The rules of a zone without rules: those of the United States.
const DEFAULT_START: Change = Change { day: Day::OfWeek { month: 3, week: 2, weekday: 0 }, time: 2 * 3600 };
const DEFAULT_END: Change = Change { day: Day::OfWeek { month: 11, week: 1, weekday: 0 }, time: 2 * 3600 };

impl PosixZone {
    /// Reads a specification.
    pub fn parse(text: &str) -> Option<PosixZone> {
        let mut reader = Reader(text);
        let abbreviation = reader.abbreviation()?;
        let standard = Clock { abbreviation, offset: -reader.time()? };
        if reader.0.is_empty() {
            return Some(PosixZone { standard, daylight: None });
        }
        let abbreviation = reader.abbreviation().filter(|name| name.length > 0)?;
        let offset = match reader.0.bytes().next() {
            None | Some(b',') => standard.offset + 3600,
            Some(_) => -reader.time()?,
        };
        let (start, end) = match reader.0 {
            "" => (DEFAULT_START, DEFAULT_END),
            _ => (reader.change()?, reader.change()?),
        };
        let daylight = Daylight { clock: Clock { abbreviation, offset }, start, end };
        reader.0.is_empty().then_some(PosixZone { standard, daylight: Some(daylight) })
    }

    /// A zone with an offset, named by it: `<+02>-02`.
    pub fn of_offset(seconds: i32) -> PosixZone {
        let mut name = String::new();
        crate::datetime::write_offset(seconds, &mut name);
        let abbreviation = Abbreviation::new(&name).expect("an offset is short");
        PosixZone { standard: Clock { abbreviation, offset: seconds }, daylight: None }
    }

    /// Seconds east of Greenwich at a timestamp, in microseconds since 1970 UTC.
    pub fn offset_at(&self, utc: i64) -> i32 {
        self.clock_at(utc).offset
    }

    /// The abbreviation at a timestamp.
    pub fn abbreviation_at(&self, utc: i64) -> String {
        self.clock_at(utc).abbreviation.text().to_owned()
    }

    /// Whether daylight-saving time is in effect at a timestamp.
    pub fn is_daylight_saving_at(&self, utc: i64) -> bool {
        self.daylight.is_some_and(|daylight| self.is_within(&daylight, utc))
    }

    /// Seconds east of Greenwich at the local time `local`. A local time that is skipped counts as before the
    /// change, one that occurs twice as its second occurrence.
    pub fn offset_of_local(&self, local: i64) -> i32 {
        let Some(daylight) = &self.daylight else { return self.standard.offset };
        let (first, second) = (self.standard.offset, daylight.clock.offset);
        let moment = |offset: i32| local.saturating_sub(i64::from(offset) * MICROS_PER_SECOND);
        let shows = |offset: &i32| self.offset_at(moment(*offset)) == *offset;
        let shown = [first, second].into_iter().filter(shows).min();
        shown.unwrap_or_else(|| self.offset_at(moment(first.max(second)).saturating_sub(MICROS_PER_DAY)))
    }

    fn clock_at(&self, utc: i64) -> &Clock {
        match &self.daylight {
            Some(daylight) if self.is_within(daylight, utc) => &daylight.clock,
            _ => &self.standard,
        }
    }

    fn is_within(&self, daylight: &Daylight, utc: i64) -> bool {
        let seconds = utc.div_euclid(MICROS_PER_SECOND);
        let (year, ..) = civil_from_days((seconds + i64::from(self.standard.offset)).div_euclid(86_400));
        let start = daylight.start.in_year(year) - i64::from(self.standard.offset);
        let end = daylight.end.in_year(year) - i64::from(daylight.clock.offset);
        match start < end {
            true => (start..end).contains(&seconds),
            // In the southern hemisphere it spans the new year.
            false => !(end..start).contains(&seconds),
        }
    }
}

impl Change {
    /// Seconds since 1970 in local time before the change.
    fn in_year(self, year: i64) -> i64 {
        let first = days_from_civil(year, 1, 1);
        let day = match self.day {
            Day::OfYear(number) => first + i64::from(number),
            Day::Julian(number) => {
                let leap_day = days_in_month(year, 2) == 29 && number >= 60;
                first + i64::from(number) - 1 + i64::from(leap_day)
            }
            Day::OfWeek { month, week, weekday } => {
                let first = days_from_civil(year, month, 1);
                // 1970-01-01 was a Thursday.
                let ahead = (weekday - (first + 4).rem_euclid(7)).rem_euclid(7);
                let number = ahead + (week - 1) * 7;
                let length = i64::from(days_in_month(year, month));
                first + if number >= length { number - 7 } else { number }
            }
        };
        day * 86_400 + i64::from(self.time)
    }
}

impl fmt::Display for PosixZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.standard.write(f)?;
        let Some(daylight) = &self.daylight else { return Ok(()) };
        daylight.clock.write(f)?;
        for change in [daylight.start, daylight.end] {
            match change.day {
                Day::Julian(number) => write!(f, ",J{number}")?,
                Day::OfYear(number) => write!(f, ",{number}")?,
                Day::OfWeek { month, week, weekday } => write!(f, ",M{month}.{week}.{weekday}")?,
            }
            if change.time != 2 * 3600 {
                f.write_str("/")?;
                write_time(change.time, f)?;
            }
        }
        Ok(())
    }
}

impl Clock {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.abbreviation.text();
        match name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            true => f.write_str(name)?,
            false => write!(f, "<{name}>")?,
        }
        write_time(-self.offset, f)
    }
}

fn write_time(seconds: i32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let size = seconds.unsigned_abs();
    write!(f, "{}{:02}", if seconds < 0 { "-" } else { "+" }, size / 3600)?;
    if !size.is_multiple_of(3600) {
        write!(f, ":{:02}", size / 60 % 60)?;
    }
    if !size.is_multiple_of(60) {
        write!(f, ":{:02}", size % 60)?;
    }
    Ok(())
}

impl Abbreviation {
    fn new(text: &str) -> Option<Abbreviation> {
        let mut bytes = [0; ABBREVIATION_BYTES];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Abbreviation { bytes, length: text.len() as u8 })
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("the bytes are from a string")
    }
}

impl fmt::Debug for Abbreviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.text(), f)
    }
}

/// The rest of a specification.
struct Reader<'a>(&'a str);

impl Reader<'_> {
    /// Letters, or anything in angle brackets; upper case, as PostgreSQL shows it. It may be empty.
    fn abbreviation(&mut self) -> Option<Abbreviation> {
        let (name, rest) = match self.0.strip_prefix('<') {
            Some(quoted) => quoted.split_once('>')?,
            None => {
                let is_part = |c: char| !c.is_ascii_digit() && !matches!(c, ',' | '-' | '+');
                let end = self.0.find(|c| !is_part(c)).unwrap_or(self.0.len());
                self.0.split_at(end)
            }
        };
        self.0 = rest;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b':' | b'_');
        if !name.bytes().all(is_plain) {
            return None;
        }
        Abbreviation::new(&name.to_ascii_uppercase())
    }

    /// `[+-]hh[:mm[:ss]]` in seconds; up to a week.
    fn time(&mut self) -> Option<i32> {
        let sign = match self.0.bytes().next()? {
            b'-' => -1,
            _ => 1,
        };
        self.0 = self.0.strip_prefix(['+', '-']).unwrap_or(self.0);
        let mut seconds = self.number(0, 167)? * 3600;
        for (unit, most) in [(60, 59), (1, 60)] {
            let Some(rest) = self.0.strip_prefix(':') else { break };
            self.0 = rest;
            seconds += self.number(0, most)? * unit;
        }
        Some(sign * seconds)
    }

    fn number(&mut self, least: i32, most: i32) -> Option<i32> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits.parse().ok().filter(|number| (least..=most).contains(number))
    }

    /// `,Jn`, `,n` or `,Mm.w.d`, with a time after a slash.
    fn change(&mut self) -> Option<Change> {
        self.0 = self.0.strip_prefix(',')?;
        let day = if let Some(rest) = self.0.strip_prefix(['J', 'j']) {
            self.0 = rest;
            Day::Julian(self.number(1, 365)?)
        } else if let Some(rest) = self.0.strip_prefix(['M', 'm']) {
            self.0 = rest;
            let month = self.number(1, 12)?;
            self.0 = self.0.strip_prefix('.')?;
            let week = self.number(1, 5)?;
            self.0 = self.0.strip_prefix('.')?;
            let weekday = self.number(0, 6)?;
            Day::OfWeek { month: month as u32, week: week.into(), weekday: weekday.into() }
        } else {
            Day::OfYear(self.number(0, 365)?)
        };
        let time = match self.0.strip_prefix('/') {
            None => 2 * 3600,
            Some(rest) => {
                self.0 = rest;
                self.time()?
            }
        };
        Some(Change { day, time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(text: &str) -> PosixZone {
        PosixZone::parse(text).unwrap_or_else(|| panic!("{text} is a zone"))
    }

    fn at(text: &str) -> i64 {
        crate::datetime::parse_timestamp(text, &crate::TextStyle::DEFAULT).unwrap()
    }

    #[test]
    fn offsets_count_west() {
        for (text, offset, shown) in [
            ("UTC+2", -7200, "UTC+02"),
            ("utc-3", 10800, "UTC-03"),
            ("<+0530>-5:30", 19800, "<+0530>-05:30"),
            ("<-03>3", -10800, "<-03>+03"),
            ("+02:00", -7200, "+02"),
            ("-0:0:30", 30, "-00:00:30"),
        ] {
            assert_eq!(zone(text).offset_at(0), offset, "{text}");
            assert_eq!(zone(text).to_string(), shown, "{text}");
        }
        for wrong in
            ["", "UTC", "UTC+", "UTC+200", "UTC+2:99", "UTC2FOO,M3", "<UTC2", "A2B,M13.1.1,M1.1.1", "x y2"]
        {
            assert_eq!(PosixZone::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rules_agree_with_a_place_that_has_them() {
        let berlin = crate::TimeZoneSetting::parse("Europe/Berlin").unwrap();
        let rules = zone("CET-1CEST,M3.5.0,M10.5.0/3");
        let auckland = crate::TimeZoneSetting::parse("Pacific/Auckland").unwrap();
        let south = zone("NZST-12NZDT,M9.5.0,M4.1.0/3");
        let (first, last) = (at("2010-01-01 00:00:00"), at("2036-12-31 00:00:00"));
        let mut moment = first;
        while moment < last {
            assert_eq!(rules.offset_at(moment), berlin.offset_at(moment), "{moment}");
            assert_eq!(rules.offset_of_local(moment), berlin.offset_of_local(moment), "{moment}");
            assert_eq!(south.offset_at(moment), auckland.offset_at(moment), "{moment}");
            assert_eq!(south.offset_of_local(moment), auckland.offset_of_local(moment), "{moment}");
            moment += 1800 * MICROS_PER_SECOND;
        }
        assert_eq!(rules.abbreviation_at(at("2030-07-01 00:00:00")), "CEST");
        assert_eq!(zone("FOO5BAR").to_string(), "FOO+05BAR+04,M3.2.0,M11.1.0");
    }

    #[test]
    fn days_of_the_year_skip_or_count_the_leap_day() {
        let zone = |day: &str| zone(&format!("A0B,{day}/0,365/0"));
        assert!(!zone("J60").is_daylight_saving_at(at("2024-02-29 23:00:00")));
        assert!(zone("J60").is_daylight_saving_at(at("2024-03-01 00:00:00")));
        assert!(zone("59").is_daylight_saving_at(at("2024-02-29 00:00:00")));
    }
}
