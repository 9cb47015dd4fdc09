//! Dates and times as PostgreSQL reads and writes them: input in the common forms, output according to
//! `DateStyle`, the proleptic Gregorian calendar.
//!
//! Timestamps are microseconds since 1970, so they end in the year 294247; PostgreSQL's, counted from 2000,
//! end in 294276.
//!
//! `infinity` and `-infinity` are the largest and the smallest integer, as in PostgreSQL, so that they
//! compare like other values. Invariant: no computation on finite values returns them.

mod read;
mod styles;

use crate::error::{Error, Result, SqlState};
use crate::text_style::{DateStyle, TextStyle};
use crate::time_zone::TimeZoneSetting;
use crate::types::SqlType;
use read::{Fields, out_of_range, syntax};

/// Microseconds in a second.
pub const MICROS_PER_SECOND: i64 = 1_000_000;
/// Microseconds in a day.
pub const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// 2000-01-01, from which PostgreSQL's binary format counts, in days since 1970.
pub const POSTGRES_EPOCH_DAYS: i32 = 10_957;

/// 4714-11-24 BC, Julian day 0, the first day of PostgreSQL's range.
const FIRST_DAY: i64 = -2_440_588;
/// 5874897-12-31, the last day.
const LAST_DAY: i64 = 2_145_042_905;

/// `infinity` of dates.
pub const DATE_INFINITY: i32 = i32::MAX;
/// `-infinity` of dates.
pub const DATE_MINUS_INFINITY: i32 = i32::MIN;
/// `infinity` of timestamps.
pub const TIMESTAMP_INFINITY: i64 = i64::MAX;
/// `-infinity` of timestamps.
pub const TIMESTAMP_MINUS_INFINITY: i64 = i64::MIN;

/// Whether a date is finite.
#[inline]
pub const fn is_finite_date(days: i32) -> bool {
    !matches!(days, DATE_INFINITY | DATE_MINUS_INFINITY)
}

/// Whether a timestamp is finite.
#[inline]
pub const fn is_finite(micros: i64) -> bool {
    !matches!(micros, TIMESTAMP_INFINITY | TIMESTAMP_MINUS_INFINITY)
}

/// The text of an infinite date or timestamp.
fn infinite_text(is_positive: bool) -> &'static str {
    if is_positive { "infinity" } else { "-infinity" }
}

/// Days from 1970-01-01 to a day of the Gregorian calendar; year 0 is 1 BC.
pub const fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    // Years begin in March here, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = ((153 * ((month + 9) % 12) + 2) / 5 + day - 1) as i64;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a day counted from 1970-01-01; year 0 is 1 BC.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The number of days of a month.
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A number as a date, if it is in PostgreSQL's range.
pub fn check_date(days: i64) -> Result<i32> {
    if (FIRST_DAY..=LAST_DAY).contains(&days) {
        Ok(days as i32)
    } else {
        Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range"))
    }
}

/// A number of microseconds as a timestamp, if it is in range.
pub fn check_timestamp(micros: Option<i64>) -> Result<i64> {
    match micros {
        Some(micros) if micros >= FIRST_DAY * MICROS_PER_DAY && micros != TIMESTAMP_INFINITY => Ok(micros),
        _ => Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range")),
    }
}

/// Midnight of a day.
pub fn date_to_timestamp(days: i32) -> Result<i64> {
    match days {
        DATE_INFINITY => return Ok(TIMESTAMP_INFINITY),
        DATE_MINUS_INFINITY => return Ok(TIMESTAMP_MINUS_INFINITY),
        _ => {}
    }
    i64::from(days)
        .checked_mul(MICROS_PER_DAY)
        .ok_or_else(|| Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range for timestamp"))
}

/// The day of a timestamp.
pub fn day_of(local: i64) -> i32 {
    match local {
        TIMESTAMP_INFINITY => DATE_INFINITY,
        TIMESTAMP_MINUS_INFINITY => DATE_MINUS_INFINITY,
        local => local.div_euclid(MICROS_PER_DAY) as i32,
    }
}

/// The time of day of a timestamp; `None` for an infinite one.
pub fn time_of(local: i64) -> Option<i64> {
    is_finite(local).then(|| local.rem_euclid(MICROS_PER_DAY))
}

/// The local time of `zone` at a timestamp.
pub fn to_local(utc: i64, zone: &TimeZoneSetting) -> Result<i64> {
    if !is_finite(utc) {
        return Ok(utc);
    }
    check_timestamp(utc.checked_add(i64::from(zone.offset_at(utc)) * MICROS_PER_SECOND))
}

/// The timestamp at which the local time of `zone` is `local`.
pub fn to_utc(local: i64, zone: &TimeZoneSetting) -> Result<i64> {
    if !is_finite(local) {
        return Ok(local);
    }
    check_timestamp(local.checked_sub(i64::from(zone.offset_of_local(local)) * MICROS_PER_SECOND))
}

/// The time to which the words `now`, `today`, `tomorrow` and `yesterday` refer.
#[derive(Clone, Copy)]
pub struct Present<'a> {
    /// The current time, in microseconds since 1970 UTC.
    pub moment: i64,
    /// The style for reading texts, with the zone that determines the current day.
    pub style: &'a TextStyle,
}

/// The style for reading, and the time to which words refer: 0A000 if there is none.
#[derive(Clone, Copy)]
struct Manner<'a> {
    style: &'a TextStyle,
    moment: Option<i64>,
}

impl<'a> From<&'a TextStyle> for Manner<'a> {
    fn from(style: &'a TextStyle) -> Manner<'a> {
        Manner { style, moment: None }
    }
}

impl<'a> From<Present<'a>> for Manner<'a> {
    fn from(present: Present<'a>) -> Manner<'a> {
        Manner { style: present.style, moment: Some(present.moment) }
    }
}

/// Reads a date. Here and below, a word that refers to the current time is 0A000 if the function gets none.
pub fn parse_date(text: &str, style: &TextStyle) -> Result<i32> {
    read_date(text, style.into())
}

/// Reads a date, which may be `today`.
pub fn parse_date_at(text: &str, present: Present<'_>) -> Result<i32> {
    read_date(text, present.into())
}

fn read_date(text: &str, manner: Manner<'_>) -> Result<i32> {
    if let Some(days) = iso_date(text.as_bytes()) {
        return Ok(days);
    }
    if let Some(is_positive) = read::infinity(text) {
        return Ok(if is_positive { DATE_INFINITY } else { DATE_MINUS_INFINITY });
    }
    let fields = Fields::read(text, SqlType::Date, manner)?;
    let (year, month, day) = fields.date.ok_or_else(|| syntax(text, SqlType::Date))?;
    check_date(days_from_civil(year, month, day))
        .map_err(|_| Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date out of range: \"{text}\"")))
}

/// Reads a time of day.
pub fn parse_time(text: &str) -> Result<i64> {
    read_time(text, (&TextStyle::DEFAULT).into())
}

/// Reads a time of day, which may be `now`.
pub fn parse_time_at(text: &str, present: Present<'_>) -> Result<i64> {
    read_time(text, present.into())
}

fn read_time(text: &str, manner: Manner<'_>) -> Result<i64> {
    let fields = Fields::read(text, SqlType::Time, manner)?;
    fields.time.ok_or_else(|| syntax(text, SqlType::Time))
}

/// Reads a timestamp without time zone; a zone in the text is read and ignored, as in PostgreSQL.
pub fn parse_timestamp(text: &str, style: &TextStyle) -> Result<i64> {
    read_timestamp(text, style.into())
}

/// Reads a timestamp without time zone, which may be `now`.
pub fn parse_timestamp_at(text: &str, present: Present<'_>) -> Result<i64> {
    read_timestamp(text, present.into())
}

fn read_timestamp(text: &str, manner: Manner<'_>) -> Result<i64> {
    if let Some(micros) = iso_timestamp(text.as_bytes()) {
        return Ok(micros);
    }
    if let Some(infinite) = infinite_timestamp(text) {
        return Ok(infinite);
    }
    let fields = Fields::read(text, SqlType::Timestamp, manner)?;
    fields.timestamp(text, SqlType::Timestamp)
}

/// Reads a timestamp with time zone; if the text has no zone, that of the style applies.
pub fn parse_timestamptz(text: &str, style: &TextStyle) -> Result<i64> {
    read_timestamptz(text, style.into())
}

/// Reads a timestamp with time zone, which may be `now`.
pub fn parse_timestamptz_at(text: &str, present: Present<'_>) -> Result<i64> {
    read_timestamptz(text, present.into())
}

fn infinite_timestamp(text: &str) -> Option<i64> {
    let is_positive = read::infinity(text)?;
    Some(if is_positive { TIMESTAMP_INFINITY } else { TIMESTAMP_MINUS_INFINITY })
}

fn read_timestamptz(text: &str, manner: Manner<'_>) -> Result<i64> {
    if let Some(infinite) = infinite_timestamp(text) {
        return Ok(infinite);
    }
    let utc = match iso_timestamp(text.as_bytes()) {
        Some(local) => to_utc(local, &manner.style.zone),
        None => {
            let fields = Fields::read(text, SqlType::TimestampTz, manner)?;
            let local = fields.timestamp(text, SqlType::TimestampTz)?;
            to_utc(local, fields.zone.as_ref().unwrap_or(&manner.style.zone))
        }
    };
    utc.map_err(|_| out_of_range(text))
}

/// Appends a date.
pub fn write_date(days: i32, style: &TextStyle, out: &mut String) {
    match style.dates {
        _ if !is_finite_date(days) => out.push_str(infinite_text(days > 0)),
        DateStyle::Iso => write_iso_date(days, out),
        other => styles::write_date(days, other, style.order, out),
    }
}

/// Appends a date in ISO 8601 form, `2024-01-31` or `0044-03-15 BC`.
pub fn write_iso_date(days: i32, out: &mut String) {
    if !is_finite_date(days) {
        return out.push_str(infinite_text(days > 0));
    }
    let (year, month, day) = civil_from_days(i64::from(days));
    write_civil(year, month, day, out);
    if year <= 0 {
        out.push_str(" BC");
    }
}

/// Appends a time of day, `02:03:04.5`.
pub fn write_time(micros: i64, out: &mut String) {
    let seconds = micros / MICROS_PER_SECOND;
    push_two(seconds / 3600, out);
    out.push(':');
    push_two(seconds / 60 % 60, out);
    out.push(':');
    push_two(seconds % 60, out);
    write_fraction(micros % MICROS_PER_SECOND, out);
}

/// Appends a timestamp.
pub fn write_timestamp(micros: i64, style: &TextStyle, out: &mut String) {
    match style.dates {
        _ if !is_finite(micros) => out.push_str(infinite_text(micros > 0)),
        DateStyle::Iso => write_iso_timestamp(micros, out),
        other => styles::write_timestamp(micros, None, other, style.order, out),
    }
}

/// Appends a timestamp in ISO 8601 form, `2024-01-31 02:03:04`.
pub fn write_iso_timestamp(micros: i64, out: &mut String) {
    if !is_finite(micros) {
        return out.push_str(infinite_text(micros > 0));
    }
    if write_date_and_time(micros, out) {
        out.push_str(" BC");
    }
}

/// Appends a timestamp with time zone in the local time of the style's zone.
pub fn write_timestamptz(micros: i64, style: &TextStyle, out: &mut String) {
    match style.dates {
        _ if !is_finite(micros) => out.push_str(infinite_text(micros > 0)),
        DateStyle::Iso => write_iso_timestamptz(micros, &style.zone, out),
        other => {
            let local = micros.saturating_add(i64::from(style.zone.offset_at(micros)) * MICROS_PER_SECOND);
            let zone = style.zone.abbreviation_at(micros);
            styles::write_timestamp(local, Some(&zone), other, style.order, out);
        }
    }
}

/// Appends a timestamp with time zone in ISO 8601 form, in the local time of `zone`, `2024-01-31
/// 02:03:04+00`.
pub fn write_iso_timestamptz(micros: i64, zone: &TimeZoneSetting, out: &mut String) {
    if !is_finite(micros) {
        return out.push_str(infinite_text(micros > 0));
    }
    let offset = zone.offset_at(micros);
    let before_christ =
        write_date_and_time(micros.saturating_add(i64::from(offset) * MICROS_PER_SECOND), out);
    write_offset(offset, out);
    if before_christ {
        out.push_str(" BC");
    }
}

/// Appends an offset in seconds east of Greenwich, `+00`, `-03:30`, `+00:53:28`.
pub fn write_offset(seconds: i32, out: &mut String) {
    out.push(if seconds < 0 { '-' } else { '+' });
    let seconds = i64::from(seconds.unsigned_abs());
    push_two(seconds / 3600, out);
    if seconds % 3600 != 0 {
        out.push(':');
        push_two(seconds / 60 % 60, out);
    }
    if seconds % 60 != 0 {
        out.push(':');
        push_two(seconds % 60, out);
    }
}

/// Appends the fraction of a second without trailing zeros, with its point.
pub(crate) fn write_fraction(micros: i64, out: &mut String) {
    if micros == 0 {
        return;
    }
    let mut digits = [b'0'; 6];
    let mut rest = micros;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let length = digits.iter().rposition(|&digit| digit != b'0').map_or(0, |last| last + 1);
    out.push('.');
    out.extend(digits[..length].iter().map(|&digit| char::from(digit)));
}

/// Appends a number below 100 as two digits; larger ones with all of their digits.
pub(crate) fn push_two(number: i64, out: &mut String) {
    if number < 100 {
        out.push(char::from(b'0' + (number / 10) as u8));
        out.push(char::from(b'0' + (number % 10) as u8));
    } else {
        out.push_str(&number.to_string());
    }
}

fn write_civil(year: i64, month: u32, day: u32, out: &mut String) {
    write_year(year, out);
    out.push('-');
    push_two(i64::from(month), out);
    out.push('-');
    push_two(i64::from(day), out);
}

/// Appends a year in at least four digits, without its era.
fn write_year(year: i64, out: &mut String) {
    let year = if year <= 0 { 1 - year } else { year };
    if year < 10_000 {
        push_two(year / 100, out);
        push_two(year % 100, out);
    } else {
        out.push_str(&year.to_string());
    }
}

/// Returns whether the year was before Christ.
fn write_date_and_time(micros: i64, out: &mut String) -> bool {
    let (year, month, day) = civil_from_days(micros.div_euclid(MICROS_PER_DAY));
    write_civil(year, month, day, out);
    out.push(' ');
    write_time(micros.rem_euclid(MICROS_PER_DAY), out);
    year <= 0
}

/// The fast path for `YYYY-MM-DD`; anything else, including invalid dates, takes the slow one.
fn iso_date(text: &[u8]) -> Option<i32> {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text else { return None };
    let digits = [y1, y2, y3, y4, m1, m2, d1, d2].map(|byte| u32::from(byte.wrapping_sub(b'0')));
    if digits.iter().any(|&digit| digit > 9) {
        return None;
    }
    let year = i64::from(digits[0] * 1000 + digits[1] * 100 + digits[2] * 10 + digits[3]);
    let (month, day) = (digits[4] * 10 + digits[5], digits[6] * 10 + digits[7]);
    (year > 0 && (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month))
        .then(|| days_from_civil(year, month, day) as i32)
}

/// The fast path for `YYYY-MM-DD HH:MM:SS[.ffffff]`, also with a `T` between.
fn iso_timestamp(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let days = iso_date(date)?;
    let (time, fraction) = rest.split_at_checked(9)?;
    let &[b' ' | b'T', h1, h2, b':', m1, m2, b':', s1, s2] = time else { return None };
    let digits = [h1, h2, m1, m2, s1, s2].map(|byte| i64::from(byte.wrapping_sub(b'0')));
    let (hour, minute, second) =
        (digits[0] * 10 + digits[1], digits[2] * 10 + digits[3], digits[4] * 10 + digits[5]);
    if digits.iter().any(|&digit| digit > 9) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = 0;
    match fraction {
        [] => {}
        [b'.', fraction @ ..] if (1..=6).contains(&fraction.len()) => {
            let mut unit = 100_000;
            for byte in fraction {
                let digit = byte.wrapping_sub(b'0');
                if digit > 9 {
                    return None;
                }
                micros += i64::from(digit) * unit;
                unit /= 10;
            }
        }
        _ => return None,
    }
    let seconds = i64::from(days) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(seconds * MICROS_PER_SECOND + micros)
}

/// The digits after the point as microseconds, rounded.
pub(crate) fn fraction_micros(digits: &str) -> i64 {
    let mut micros = 0;
    for position in 0..6 {
        micros = micros * 10 + digits.as_bytes().get(position).map_or(0, |digit| i64::from(digit - b'0'));
    }
    micros + i64::from(digits.as_bytes().get(6).is_some_and(|digit| *digit >= b'5'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> String {
        let mut out = String::new();
        match parse_date(text, &TextStyle::DEFAULT) {
            Ok(days) => write_date(days, &TextStyle::DEFAULT, &mut out),
            Err(error) => out = format!("{} {}", error.state(), error.message()),
        }
        out
    }

    fn timestamptz(text: &str, zone: &str) -> String {
        let style = TextStyle::in_zone(TimeZoneSetting::parse(zone).unwrap());
        let mut out = String::new();
        match parse_timestamptz(text, &style) {
            Ok(micros) => write_timestamptz(micros, &style, &mut out),
            Err(error) => out = format!("{} {}", error.state(), error.message()),
        }
        out
    }

    #[test]
    fn the_calendar_agrees_with_itself_over_all_of_postgres_range() {
        for days in (FIRST_DAY..LAST_DAY).step_by(9_973) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
        assert_eq!(days_from_civil(2000, 1, 1), i64::from(POSTGRES_EPOCH_DAYS));
        assert_eq!(civil_from_days(FIRST_DAY), (-4713, 11, 24));
        assert_eq!(civil_from_days(LAST_DAY), (5874897, 12, 31));
    }

    #[test]
    fn dates_are_read_in_postgres_forms() {
        for text in [
            "2024-01-31",
            "20240131",
            "Jan 31 2024",
            "January 31, 2024",
            "31 jan 2024",
            "31-Jan-2024",
            "2024-Jan-31",
            "1/31/2024",
            "01/31/24",
            "2024.031",
            " 2024-1-31 ",
            "Wed Jan 31 2024",
            "240131",
            "2024-01-31 12:00",
            "2024 1 31",
        ] {
            assert_eq!(date(text), "2024-01-31", "{text}");
        }
        assert_eq!(date("0044-03-15 BC"), "0044-03-15 BC");
        assert_eq!(date("99999-12-31"), "99999-12-31");
        assert_eq!(date("epoch"), "1970-01-01");
        assert_eq!(date("2024-13-01"), "22008 date/time field value out of range: \"2024-13-01\"");
        assert_eq!(date("31.01.2024"), "22008 date/time field value out of range: \"31.01.2024\"");
        assert_eq!(date("2023-02-29"), "22008 date/time field value out of range: \"2023-02-29\"");
        assert_eq!(date("0000-01-01"), "22008 date/time field value out of range: \"0000-01-01\"");
        assert_eq!(date("hello"), "22007 invalid input syntax for type date: \"hello\"");
        assert_eq!(date(""), "22007 invalid input syntax for type date: \"\"");
    }

    #[test]
    fn timestamps_are_read_and_written_in_their_zone() {
        assert_eq!(timestamptz("2024-01-31 02:03:04", "UTC"), "2024-01-31 02:03:04+00");
        assert_eq!(timestamptz("2024-01-31T02:03:04.5Z", "UTC"), "2024-01-31 02:03:04.5+00");
        assert_eq!(timestamptz("2024-01-31 02:03:04+05:30", "UTC"), "2024-01-30 20:33:04+00");
        assert_eq!(timestamptz("2024-01-31 02:03 America/New_York", "UTC"), "2024-01-31 07:03:00+00");
        assert_eq!(timestamptz("2024-07-31 12:00", "Europe/Berlin"), "2024-07-31 12:00:00+02");
        assert_eq!(timestamptz("2024-03-31 02:30", "Europe/Berlin"), "2024-03-31 03:30:00+02");
        assert_eq!(timestamptz("2024-10-27 02:30", "Europe/Berlin"), "2024-10-27 02:30:00+01");
        assert_eq!(timestamptz("1850-01-01 00:00", "Europe/Berlin"), "1850-01-01 00:00:00+00:53:28");
        assert_eq!(timestamptz("20240131 040506", "UTC"), "2024-01-31 04:05:06+00");
        assert_eq!(timestamptz("2024-01-31 11:30 pm", "UTC"), "2024-01-31 23:30:00+00");
        assert_eq!(timestamptz("2024-01-31 24:00", "UTC"), "2024-02-01 00:00:00+00");
        assert_eq!(timestamptz("0044-03-15 BC 12:00", "UTC"), "0044-03-15 12:00:00+00 BC");
        assert_eq!(
            timestamptz("2024-01-31 25:00", "UTC"),
            "22008 date/time field value out of range: \"2024-01-31 25:00\""
        );
        assert_eq!(
            timestamptz("2024-01-31 12:00 Nowhere/Land", "UTC"),
            "22023 time zone \"nowhere/land\" not recognized"
        );
        assert_eq!(
            timestamptz("tuesday-ish", "UTC"),
            "22007 invalid input syntax for type timestamp with time zone: \"tuesday-ish\""
        );
    }

    #[test]
    fn times_are_read_in_postgres_forms() {
        let time = |text| {
            let mut out = String::new();
            write_time(parse_time(text).unwrap(), &mut out);
            out
        };
        assert_eq!(time("04:05:06.789"), "04:05:06.789");
        assert_eq!(time("04:05"), "04:05:00");
        assert_eq!(time("040506"), "04:05:06");
        assert_eq!(time("04:05 PM"), "16:05:00");
        assert_eq!(time("24:00:00"), "24:00:00");
        assert_eq!(time("04:05:06.1234567"), "04:05:06.123457");
        assert!(parse_time("25:00").is_err());
    }
}
