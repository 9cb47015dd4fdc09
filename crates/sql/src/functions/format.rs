//! The patterns of `to_char`, `to_number`, `to_date` and `to_timestamp`.

use firn_base::datetime::{
    MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, days_from_civil, days_in_month,
};
use firn_base::{Error, Result, SqlState, numeric};

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

/// The pieces of a pattern for moments, longest first where one begins another.
const PIECES: &[&str] = &[
    "HH24", "HH12", "HH", "MI", "SSSSS", "SSSS", "SS", "MS", "US", "A.M.", "a.m.", "P.M.", "p.m.", "AM",
    "am", "PM", "pm", "Y,YYY", "YYYY", "YYY", "YY", "Y", "IYYY", "IYY", "IY", "IDDD", "ID", "IW", "I",
    "MONTH", "Month", "month", "MON", "Mon", "mon", "MM", "DAY", "Day", "day", "DY", "Dy", "dy", "DDD", "DD",
    "D", "WW", "W", "CC", "J", "Q", "TZH", "TZM", "TZ", "tz", "OF", "FF6", "FF3",
];

/// One part of a pattern.
enum Part<'p> {
    /// A field; `bare` without padding (FM), `ordinal` with st, nd, rd, th.
    Field {
        name: &'static str,
        bare: bool,
        ordinal: Option<bool>,
    },
    Literal(&'p str),
}

fn parts(pattern: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    let mut bare = false;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
            bare = true;
            rest = after;
            continue;
        }
        if let Some(after) = rest.strip_prefix('"') {
            let end = after.find('"').unwrap_or(after.len());
            parts.push(Part::Literal(&after[..end]));
            rest = after[end..].strip_prefix('"').unwrap_or("");
            continue;
        }
        // Fields may be written in any case; only names of months and days care.
        let field = PIECES.iter().find(|piece| rest.starts_with(**piece)).or_else(|| {
            PIECES
                .iter()
                .find(|piece| rest.get(..piece.len()).is_some_and(|start| start.eq_ignore_ascii_case(piece)))
        });
        if let Some(name) = field {
            rest = &rest[name.len()..];
            let ordinal = match rest.get(..2) {
                Some("th") => Some(false),
                Some("TH") => Some(true),
                _ => None,
            };
            if ordinal.is_some() {
                rest = &rest[2..];
            }
            parts.push(Part::Field { name, bare, ordinal });
            bare = false;
        } else {
            let length = rest.chars().next().map_or(0, char::len_utf8);
            parts.push(Part::Literal(&rest[..length]));
            rest = &rest[length..];
        }
    }
    parts
}

/// The ISO year and week of a day.
pub fn iso_week(days: i64) -> (i64, i64) {
    // The week belongs to the year of its Thursday.
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    let (year, _, _) = civil_from_days(thursday);
    (year, (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
}

/// A moment on the wall, written after a pattern.
pub fn moment(pattern: &str, local: i64, offset: i32, zone: &str) -> String {
    let days = local.div_euclid(MICROS_PER_DAY);
    let micros = local.rem_euclid(MICROS_PER_DAY);
    let (year, month, day) = civil_from_days(days);
    let weekday = (days + 4).rem_euclid(7);
    let day_of_year = days - days_from_civil(year, 1, 1) + 1;
    let seconds = micros / MICROS_PER_SECOND;
    let hour = seconds / 3600;
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let (iso_year, week) = iso_week(days);
    let iso_weekday = if weekday == 0 { 7 } else { weekday };
    let mut out = String::new();
    for part in parts(pattern) {
        let (name, bare, ordinal) = match part {
            Part::Literal(text) => {
                out.push_str(text);
                continue;
            }
            Part::Field { name, bare, ordinal } => (name, bare, ordinal),
        };
        let number = |value: i64, width: usize| {
            let width = if bare { 0 } else { width };
            let mut text = format!("{value:0width$}");
            if let Some(upper) = ordinal {
                text.push_str(&ordinal_suffix(value, upper));
            }
            text
        };
        let word = |word: &str, width: usize| {
            let cased = if name.chars().all(char::is_uppercase) {
                word.to_uppercase()
            } else if name.chars().all(char::is_lowercase) {
                word.to_lowercase()
            } else {
                word.to_owned()
            };
            if bare { cased } else { format!("{cased:width$}") }
        };
        let text = match name {
            "HH24" => number(hour, 2),
            "HH12" | "HH" => number(hour12, 2),
            "MI" => number(seconds / 60 % 60, 2),
            "SS" => number(seconds % 60, 2),
            "SSSSS" | "SSSS" => number(seconds, 0),
            "MS" | "FF3" => number(micros % MICROS_PER_SECOND / 1000, 3),
            "US" | "FF6" => number(micros % MICROS_PER_SECOND, 6),
            "AM" | "PM" => (if hour < 12 { "AM" } else { "PM" }).to_owned(),
            "am" | "pm" => (if hour < 12 { "am" } else { "pm" }).to_owned(),
            "A.M." | "P.M." => (if hour < 12 { "A.M." } else { "P.M." }).to_owned(),
            "a.m." | "p.m." => (if hour < 12 { "a.m." } else { "p.m." }).to_owned(),
            "Y,YYY" => format!("{},{:03}", year / 1000, year % 1000),
            "YYYY" => number(year, 4),
            "YYY" => number(year % 1000, 3),
            "YY" => number(year % 100, 2),
            "Y" => number(year % 10, 1),
            "IYYY" => number(iso_year, 4),
            "IYY" => number(iso_year % 1000, 3),
            "IY" => number(iso_year % 100, 2),
            "I" => number(iso_year % 10, 1),
            "MONTH" | "Month" | "month" => word(MONTHS[month as usize - 1], 9),
            "MON" | "Mon" | "mon" => word(&MONTHS[month as usize - 1][..3], 0),
            "MM" => number(i64::from(month), 2),
            "DAY" | "Day" | "day" => word(DAYS[weekday as usize], 9),
            "DY" | "Dy" | "dy" => word(&DAYS[weekday as usize][..3], 0),
            "DDD" => number(day_of_year, 3),
            "IDDD" => number((week - 1) * 7 + iso_weekday, 3),
            "DD" => number(i64::from(day), 2),
            "D" => number(weekday + 1, 1),
            "ID" => number(iso_weekday, 1),
            "WW" => number((day_of_year - 1) / 7 + 1, 2),
            "W" => number((i64::from(day) - 1) / 7 + 1, 1),
            "IW" => number(week, 2),
            "CC" => number((year + 99) / 100, 2),
            "J" => number(days + 2_440_588, 0),
            "Q" => number(i64::from(month - 1) / 3 + 1, 1),
            "TZ" => zone.to_uppercase(),
            "tz" => zone.to_lowercase(),
            "TZH" => format!("{}{:02}", if offset < 0 { '-' } else { '+' }, offset.abs() / 3600),
            "TZM" => format!("{:02}", offset.abs() / 60 % 60),
            "OF" => {
                let minutes = offset.abs() / 60 % 60;
                let hours = format!("{}{:02}", if offset < 0 { '-' } else { '+' }, offset.abs() / 3600);
                if minutes == 0 { hours } else { format!("{hours}:{minutes:02}") }
            }
            other => unreachable!("{other} is no field"),
        };
        out.push_str(&text);
    }
    out
}

fn ordinal_suffix(value: i64, upper: bool) -> String {
    let suffix = match (value % 100, value % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    if upper { suffix.to_uppercase() } else { suffix.to_owned() }
}

/// A moment on the wall, read after a pattern.
pub fn read_moment(text: &str, pattern: &str) -> Result<i64> {
    let invalid = |what: &str| {
        Error::new(SqlState::INVALID_DATETIME_FORMAT, format!("invalid value \"{text}\" for \"{what}\""))
    };
    let (mut year, mut month, mut day, mut day_of_year) = (1i64, 1u32, 1u32, None);
    let (mut hour, mut minute, mut second, mut micros) = (0i64, 0i64, 0i64, 0i64);
    let mut afternoon = None;
    let mut rest = text.trim_start();
    for part in parts(pattern) {
        let name = match part {
            Part::Literal(literal) => {
                // Any separator stands for any other.
                let Some(next) = rest.chars().next() else { continue };
                let same = literal.starts_with(next);
                if same || !next.is_alphanumeric() && !literal.chars().all(char::is_alphanumeric) {
                    rest = &rest[next.len_utf8()..];
                }
                continue;
            }
            Part::Field { name, .. } => name,
        };
        rest = rest.trim_start();
        let digits_left = rest.bytes().take(6).take_while(u8::is_ascii_digit).count();
        let mut take = |digits: usize| -> Result<i64> {
            let length = rest.bytes().take(digits).take_while(u8::is_ascii_digit).count();
            let value = rest[..length].parse().map_err(|_| invalid(name))?;
            rest = &rest[length..];
            Ok(value)
        };
        match name {
            "YYYY" | "IYYY" => year = take(4)?,
            "YY" => {
                let short = take(2)?;
                year = if short < 70 { 2000 + short } else { 1900 + short };
            }
            "MM" => month = take(2)? as u32,
            "DD" => day = take(2)? as u32,
            "DDD" => day_of_year = Some(take(3)?),
            "HH24" | "HH12" | "HH" => hour = take(2)?,
            "MI" => minute = take(2)?,
            "SS" => second = take(2)?,
            "MS" | "US" | "FF3" | "FF6" => {
                micros = take(6)? * 10i64.pow(6 - digits_left as u32);
            }
            "AM" | "PM" | "am" | "pm" => {
                let half = rest.get(..2).unwrap_or_default().to_lowercase();
                afternoon = match half.as_str() {
                    "am" => Some(false),
                    "pm" => Some(true),
                    _ => return Err(invalid(name)),
                };
                rest = &rest[2..];
            }
            "MONTH" | "Month" | "month" | "MON" | "Mon" | "mon" => {
                let short = name.len() == 3;
                let found = MONTHS.iter().enumerate().find_map(|(number, month)| {
                    let word = if short { &month[..3] } else { month };
                    let start = rest.get(..word.len())?;
                    start.eq_ignore_ascii_case(word).then_some((number as u32 + 1, word.len()))
                });
                let (number, length) = found.ok_or_else(|| invalid(name))?;
                month = number;
                rest = &rest[length..];
            }
            other => return Err(Error::unsupported(format!("the pattern \"{other}\" for reading a date"))),
        }
    }
    match afternoon {
        Some(true) if hour < 12 => hour += 12,
        Some(false) if hour == 12 => hour = 0,
        _ => {}
    }
    let out_of_range = || {
        Error::new(
            SqlState::DATETIME_FIELD_OVERFLOW,
            format!("date/time field value out of range: \"{text}\""),
        )
    };
    let valid = (1..=12).contains(&month)
        && day >= 1
        && day <= days_in_month(year, month)
        && hour < 24
        && minute < 60
        && second < 60;
    if !valid {
        return Err(out_of_range());
    }
    let days = match day_of_year {
        Some(number) => days_from_civil(year, 1, 1) + number - 1,
        None => days_from_civil(year, month, day),
    };
    let seconds = (hour * 60 + minute) * 60 + second;
    Ok(days * MICROS_PER_DAY + seconds * MICROS_PER_SECOND + micros)
}

/// A number, written after a pattern of `9`, `0`, `.`, `,`, `D`, `G`, `S`, `MI`, `FM`.
pub fn number(pattern: &str, unscaled: i128, scale: u8) -> String {
    let (bare, pattern) = match pattern.strip_prefix("FM").or_else(|| pattern.strip_prefix("fm")) {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let upper = pattern.to_uppercase();
    let (whole, fraction) = match upper.find(['.', 'D']) {
        Some(point) => (&upper[..point], &upper[point + 1..]),
        None => (upper.as_str(), ""),
    };
    let slots = |text: &str| text.chars().filter(|c| matches!(c, '0' | '9')).count();
    let decimals = slots(fraction) as u8;
    let rounded = numeric::rescale(unscaled, scale, decimals).unwrap_or(i128::MAX);
    let negative = rounded < 0;
    let digits = format!("{:0width$}", rounded.unsigned_abs(), width = usize::from(decimals) + 1);
    let (before, after) = digits.split_at(digits.len() - usize::from(decimals));
    let before = before.trim_start_matches('0');
    let width = slots(whole);
    let overflow = before.len() > width;

    let mut body = String::new();
    let mut missing = width.saturating_sub(before.len());
    let mut source = before.chars();
    // From the first 0 on, missing digits are written as zeros.
    let mut zeros = false;
    let mut begun = false;
    for character in whole.chars() {
        match character {
            '0' | '9' => {
                zeros |= character == '0';
                if overflow {
                    body.push('#');
                } else if missing > 0 {
                    missing -= 1;
                    begun |= zeros;
                    body.push(if zeros { '0' } else { ' ' });
                } else {
                    begun = true;
                    body.extend(source.next());
                }
            }
            ',' | 'G' => body.push(if begun || overflow { ',' } else { ' ' }),
            _ => {}
        }
    }
    if decimals > 0 || upper.contains(['.', 'D']) {
        body.push('.');
        if overflow {
            body.extend(std::iter::repeat_n('#', usize::from(decimals)));
        } else {
            body.push_str(after);
        }
    }
    if bare {
        let optional = fraction.chars().rev().take_while(|c| *c == '9').count();
        for _ in 0..optional {
            if body.ends_with('0') {
                body.pop();
            }
        }
    }
    // The sign stands right before the first digit.
    let start = body.len() - body.trim_start().len();
    let sign = if negative { '-' } else { ' ' };
    if upper.ends_with("MI") {
        body.push(sign);
    } else if upper.starts_with('S') {
        body.insert(start, if negative { '-' } else { '+' });
    } else if upper.ends_with('S') {
        body.push(if negative { '-' } else { '+' });
    } else {
        body.insert(start, sign);
        if start > 0 {
            // The place for the sign is before all digits; padding moves in front of it.
            let moved: String = std::iter::repeat_n(' ', start).chain(body[start..].chars()).collect();
            body = moved;
        }
    }
    if bare { body.trim().to_owned() } else { body }
}

/// Reads a number after a pattern, as `to_number` does: digits beyond those that the pattern has room
/// for are passed over. 22P02 if it finds no digit.
pub fn read_number(text: &str, pattern: &str) -> Result<(i128, u8)> {
    let mut rest = text.trim_start().chars().peekable();
    let mut pattern = pattern.chars().peekable();
    let mut number = String::new();
    let mut negative = false;
    let mut sign = |next: Option<char>| {
        negative |= matches!(next, Some('-' | '<'));
        matches!(next, Some('-' | '+' | '<'))
    };
    if sign(rest.peek().copied()) {
        rest.next();
    }
    while let Some(piece) = pattern.next() {
        match piece.to_ascii_uppercase() {
            '9' | '0' => {
                while rest.next_if(|next| *next == ' ').is_some() {}
                number.extend(rest.next_if(char::is_ascii_digit));
            }
            '.' | 'D' => number.extend(rest.next_if_eq(&'.')),
            ',' | 'G' => drop(rest.next_if_eq(&',')),
            'L' | '$' => drop(rest.next_if_eq(&'$')),
            'S' | 'M' | 'P' => {
                // S, SG, MI, PL, PR
                pattern.next_if(|next| matches!(next.to_ascii_uppercase(), 'G' | 'I' | 'L' | 'R'));
                if sign(rest.peek().copied()) {
                    rest.next();
                }
            }
            'F' => drop(pattern.next_if(|next| next.eq_ignore_ascii_case(&'m'))),
            _ => drop(rest.next_if_eq(&piece)),
        }
    }
    let (unscaled, scale) = numeric::parse(&number).map_err(|_| {
        Error::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type numeric: \"{text}\""),
        )
    })?;
    Ok((if negative { -unscaled } else { unscaled }, scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::datetime::parse_timestamp;

    #[test]
    fn moments_are_written_after_patterns() {
        let at = parse_timestamp("2024-03-05 14:07:09.25").unwrap();
        assert_eq!(moment("YYYY-MM-DD HH24:MI:SS.MS", at, 0, ""), "2024-03-05 14:07:09.250");
        assert_eq!(moment("FMDay, DDth FMMonth YYYY", at, 0, ""), "Tuesday, 05th March 2024");
        assert_eq!(moment("HH12:MI AM \"w\"IW", at, 0, ""), "02:07 PM w10");
        assert_eq!(moment("Mon", at, 0, ""), "Mar");
    }

    #[test]
    fn moments_are_read_after_patterns() {
        assert_eq!(
            read_moment("05 Dec 2000", "DD Mon YYYY").unwrap(),
            parse_timestamp("2000-12-05").unwrap()
        );
        assert_eq!(
            read_moment("2000/12/05 03:04 pm", "YYYY-MM-DD HH12:MI PM").unwrap(),
            parse_timestamp("2000-12-05 15:04").unwrap()
        );
        assert!(read_moment("2000-13-05", "YYYY-MM-DD").is_err());
    }

    #[test]
    fn numbers_are_read_after_patterns() {
        for (text, pattern, expected) in [
            ("12,454.8-", "99G999D9S", (-124_548, 1)),
            ("$1,234.56", "L9,999.99", (123_456, 2)),
            (" 125", "999", (125, 0)),
            ("-0.1", "99.99", (-1, 1)),
            ("1234", "99", (12, 0)),
            ("-34,338,492", "99G999G999", (-34_338_492, 0)),
        ] {
            assert_eq!(read_number(text, pattern).unwrap(), expected, "{text} {pattern}");
        }
        assert!(read_number("x", "99").is_err());
    }

    #[test]
    fn numbers_are_written_after_patterns() {
        assert_eq!(number("999", 125, 0), " 125");
        assert_eq!(number("999D9", 1258, 1), " 125.8");
        assert_eq!(number("9,999.99", -123_456, 2), "-1,234.56");
        assert_eq!(number("0009", 7, 0), " 0007");
        assert_eq!(number("FM990.09", 5, 1), "0.5");
        assert_eq!(number("99", 125, 0), " ##");
    }
}
