//! Time zones: a fixed offset, a place with a history, or rules; the values of the setting `TimeZone`.

mod posix;

use crate::datetime::{MICROS_PER_DAY, civil_from_days, days_from_civil, days_in_month};
use crate::error::{Error, Result, SqlState};
use chrono::{LocalResult, NaiveDateTime, Offset, TimeZone as _};
use chrono_tz::{OffsetComponents as _, OffsetName as _};
pub use posix::PosixZone;
use std::fmt;

/// The largest offset from UTC that PostgreSQL accepts, in seconds.
const MAX_OFFSET: i32 = 15 * 3600 + 59 * 60 + 59;

/// The session setting `TimeZone`, or the zone written in a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TimeZoneSetting {
    /// Seconds east of Greenwich.
    Fixed(i32),
    /// A place of the IANA database.
    Place(chrono_tz::Tz),
    /// Rules as POSIX writes them.
    Rules(PosixZone),
}

impl Default for TimeZoneSetting {
    fn default() -> Self {
        TimeZoneSetting::UTC
    }
}

impl TimeZoneSetting {
    /// Greenwich.
    pub const UTC: TimeZoneSetting = TimeZoneSetting::Place(chrono_tz::Tz::UTC);

    /// A zone by its name, or by an offset like `+02`, `-3:30`, in which `+` means east (ISO 8601).
    pub fn parse(name: &str) -> Result<TimeZoneSetting> {
        let trimmed = name.trim();
        parse_offset(trimmed)
            .or_else(|| TimeZoneSetting::from_name(trimmed))
            .ok_or_else(|| not_recognized(trimmed))
    }

    /// A zone as in the setting `TimeZone` and AT TIME ZONE: `+02` is a POSIX rule, west of Greenwich.
    pub fn named(name: &str) -> Result<TimeZoneSetting> {
        let trimmed = name.trim();
        TimeZoneSetting::from_name(trimmed).ok_or_else(|| not_recognized(trimmed))
    }

    /// A zone by its name or abbreviation, or by rules as POSIX writes them.
    pub fn from_name(name: &str) -> Option<TimeZoneSetting> {
        if name.eq_ignore_ascii_case("z") || name.eq_ignore_ascii_case("zulu") {
            return Some(TimeZoneSetting::UTC);
        }
        if let Some((_, hours, _)) = ABBREVIATIONS.iter().find(|(known, ..)| name.eq_ignore_ascii_case(known))
        {
            return Some(TimeZoneSetting::Fixed(hours * 3600));
        }
        let place = name.parse().ok().or_else(|| {
            chrono_tz::TZ_VARIANTS.iter().copied().find(|place| place.name().eq_ignore_ascii_case(name))
        });
        place.map(TimeZoneSetting::Place).or_else(|| PosixZone::parse(name).map(TimeZoneSetting::Rules))
    }

    /// Seconds east of Greenwich at a timestamp, in microseconds since 1970 UTC.
    pub fn offset_at(&self, utc: i64) -> i32 {
        match self {
            TimeZoneSetting::Fixed(seconds) => *seconds,
            TimeZoneSetting::Rules(zone) => zone.offset_at(utc),
            TimeZoneSetting::Place(chrono_tz::Tz::UTC) => 0,
            TimeZoneSetting::Place(place) => {
                place.offset_from_utc_datetime(&naive(utc)).fix().local_minus_utc()
            }
        }
    }

    /// The abbreviation of the zone at a timestamp: `CET`, or the offset if it has no name.
    pub fn abbreviation_at(&self, utc: i64) -> String {
        if let TimeZoneSetting::Rules(zone) = self {
            return zone.abbreviation_at(utc);
        }
        if let TimeZoneSetting::Place(place) = self
            && let Some(name) = place.offset_from_utc_datetime(&naive(utc)).abbreviation()
        {
            return name.to_owned();
        }
        let mut text = String::new();
        crate::datetime::write_offset(self.offset_at(utc), &mut text);
        text
    }

    /// Whether daylight-saving time is in effect at a timestamp.
    pub fn is_daylight_saving_at(&self, utc: i64) -> bool {
        match self {
            TimeZoneSetting::Fixed(_) => false,
            TimeZoneSetting::Rules(zone) => zone.is_daylight_saving_at(utc),
            TimeZoneSetting::Place(place) => {
                !place.offset_from_utc_datetime(&naive(utc)).dst_offset().is_zero()
            }
        }
    }

    /// Seconds east of Greenwich at the local time `local`, in microseconds since 1970. A local time that is
    /// skipped counts as before the change; one that occurs twice as its second (standard time) occurrence,
    /// as in PostgreSQL.
    pub fn offset_of_local(&self, local: i64) -> i32 {
        match self {
            TimeZoneSetting::Fixed(seconds) => *seconds,
            TimeZoneSetting::Rules(zone) => zone.offset_of_local(local),
            TimeZoneSetting::Place(chrono_tz::Tz::UTC) => 0,
            TimeZoneSetting::Place(place) => match place.offset_from_local_datetime(&naive(local)) {
                LocalResult::Single(offset) => offset.fix().local_minus_utc(),
                LocalResult::Ambiguous(first, second) => {
                    first.fix().local_minus_utc().min(second.fix().local_minus_utc())
                }
                LocalResult::None => {
                    // No zone ever changed by a day, so a day earlier the old offset was in effect.
                    let before = naive(local.saturating_sub(MICROS_PER_DAY));
                    match place.offset_from_local_datetime(&before) {
                        LocalResult::Single(offset) | LocalResult::Ambiguous(offset, _) => {
                            offset.fix().local_minus_utc()
                        }
                        LocalResult::None => 0,
                    }
                }
            },
        }
    }
}

impl fmt::Display for TimeZoneSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeZoneSetting::Fixed(seconds) => {
                let mut text = String::new();
                crate::datetime::write_offset(*seconds, &mut text);
                f.write_str(&text)
            }
            TimeZoneSetting::Place(place) => f.write_str(place.name()),
            TimeZoneSetting::Rules(zone) => zone.fmt(f),
        }
    }
}

#[cold]
fn not_recognized(name: &str) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
}

/// The names of the zones of the IANA database.
pub fn names() -> impl Iterator<Item = &'static str> {
    chrono_tz::TZ_VARIANTS.iter().map(|place| place.name())
}

/// Abbreviations that are not names of zones, with their hours east of Greenwich and whether they are of
/// daylight-saving time.
pub fn abbreviations() -> impl Iterator<Item = (&'static str, i32, bool)> {
    ABBREVIATIONS.iter().copied()
}

/// The abbreviations that are not names of the IANA database, from PostgreSQL's default list.
const ABBREVIATIONS: &[(&str, i32, bool)] = &[
    ("PST", -8, false),
    ("PDT", -7, true),
    ("CST", -6, false),
    ("CDT", -5, true),
    ("EDT", -4, true),
    ("MDT", -6, true),
    ("BST", 1, true),
    ("CEST", 2, true),
    ("EEST", 3, true),
    ("MSK", 3, false),
    ("JST", 9, false),
    ("KST", 9, false),
    ("AEST", 10, false),
    ("AEDT", 11, true),
    ("NZST", 12, false),
    ("NZDT", 13, true),
    ("AKST", -9, false),
    ("AKDT", -8, true),
];

/// `+hh`, `-hhmm`, `+hh:mm`, `+hh:mm:ss` to seconds east.
pub fn parse_offset(text: &str) -> Option<TimeZoneSetting> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        b'0'..=b'9' => (1, text),
        _ => return None,
    };
    let number = |text: &str| -> Option<i32> {
        (!text.is_empty() && text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse().ok())
            .flatten()
    };
    let mut parts = digits.split(':');
    let first = parts.next()?;
    let (hours, minutes, seconds) = match (parts.next(), parts.next(), parts.next()) {
        (None, ..) if first.len() >= 3 && first.is_ascii() => {
            let (hours, minutes) = first.split_at(first.len() - 2);
            (number(hours)?, number(minutes)?, 0)
        }
        (None, ..) => (number(first)?, 0, 0),
        (Some(minutes), None, _) => (number(first)?, number(minutes)?, 0),
        (Some(minutes), Some(seconds), None) => (number(first)?, number(minutes)?, number(seconds)?),
        _ => return None,
    };
    let offset = hours * 3600 + minutes * 60 + seconds;
    (minutes < 60 && seconds < 60 && offset <= MAX_OFFSET).then_some(TimeZoneSetting::Fixed(sign * offset))
}

/// The last year of chrono's tables of zones. After it daylight-saving time follows the same rules.
const LAST_TABULATED_YEAR: i64 = 2099;

/// A timestamp in chrono's type. One after the tables of zones is moved to the year among their last 28 that
/// has the same calendar: rules of daylight-saving time refer to months and weekdays. One before chrono's
/// range becomes its first, whose offset is a sufficient approximation.
fn naive(micros: i64) -> NaiveDateTime {
    let days = micros.div_euclid(MICROS_PER_DAY);
    let (year, _, _) = civil_from_days(days);
    let moved = match year <= LAST_TABULATED_YEAR {
        true => micros,
        false => {
            let first = |year: i64| days_from_civil(year, 1, 1);
            let calendar = |year: i64| (first(year).rem_euclid(7), days_in_month(year, 2));
            let same = (LAST_TABULATED_YEAR - 27..=LAST_TABULATED_YEAR)
                .find(|other| calendar(*other) == calendar(year))
                .expect("28 years of one century have all calendars");
            micros - (first(year) - first(same)) * MICROS_PER_DAY
        }
    };
    let moment = chrono::DateTime::from_timestamp_micros(moved);
    moment.map_or(NaiveDateTime::MIN, |moment| moment.naive_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found_by_name_abbreviation_and_offset() {
        assert_eq!(TimeZoneSetting::parse("utc").unwrap(), TimeZoneSetting::UTC);
        assert_eq!(TimeZoneSetting::parse("europe/berlin").unwrap().to_string(), "Europe/Berlin");
        assert_eq!(TimeZoneSetting::parse("-03:30").unwrap(), TimeZoneSetting::Fixed(-12600));
        assert_eq!(TimeZoneSetting::parse("+0200").unwrap(), TimeZoneSetting::Fixed(7200));
        assert_eq!(TimeZoneSetting::parse("PDT").unwrap(), TimeZoneSetting::Fixed(-7 * 3600));
        assert_eq!(
            TimeZoneSetting::parse("Mars/Olympus").unwrap_err().message(),
            "time zone \"Mars/Olympus\" not recognized"
        );
    }
    #[test]
    fn daylight_saving_time_continues_after_the_tables() {
        let zone = TimeZoneSetting::parse("Europe/Berlin").unwrap();
        let at = |text: &str| crate::datetime::parse_timestamp(text, &crate::TextStyle::DEFAULT).unwrap();
        for year in ["2099", "2100", "2123", "2400", "9999", "200000"] {
            assert_eq!(zone.offset_at(at(&format!("{year}-07-01 00:00:00"))), 7200, "{year}");
            assert_eq!(zone.offset_of_local(at(&format!("{year}-12-31 23:30:00"))), 3600, "{year}");
        }
        // The last Sunday of March 2123 is the 28th.
        assert_eq!(zone.offset_at(at("2123-03-28 00:59:59")), 3600);
        assert_eq!(zone.offset_at(at("2123-03-28 01:00:00")), 7200);
        assert_eq!(zone.abbreviation_at(at("2123-03-28 01:00:00")), "CEST");
        assert_eq!(TimeZoneSetting::Fixed(-12600).abbreviation_at(0), "-03:30");
    }
}
