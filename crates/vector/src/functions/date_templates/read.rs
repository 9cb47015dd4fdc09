//! `to_date` and `to_timestamp`: reads a text field by field, then makes a date and a time of the fields.
//!
//! A field whose number is 0 counts as one that is not there, as in PostgreSQL, which gives such numbers no meaning.

use super::{DAYS, Field, MONTHS, Node, ROMAN, is_space};
use firn_base::datetime::{self, MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, days_from_civil};
use firn_base::{Error, Result, SqlState, TimeZoneSetting};

/// The Julian day of 1970-01-01.
const JULIAN_1970: i64 = 2_440_588;

/// The numbers that a text has for the fields of a template.
#[derive(Default)]
pub struct Parts {
    is_iso: Option<bool>,
    hour: i32,
    is_12_hours: bool,
    /// 1 after noon.
    afternoon: i32,
    minute: i32,
    second: i32,
    second_of_day: i32,
    millis: i32,
    micros: i32,
    fraction_digits: i32,
    /// 1 before Christ.
    before_christ: i32,
    century: i32,
    year: i32,
    year_digits: usize,
    month: i32,
    day: i32,
    day_of_year: i32,
    /// From 1, Sunday.
    day_of_week: i32,
    week: i32,
    week_of_month: i32,
    julian: i32,
    /// -1 west, 1 east, 0 if there is no zone.
    zone_sign: i32,
    zone_hours: i32,
    zone_minutes: i32,
}

/// A date, and which of its numbers are known.
#[derive(Default)]
struct Date {
    year: i64,
    month: i64,
    day: i64,
    has_year: bool,
    has_month: bool,
    has_day: bool,
}

/// A date and a time of day, and where.
pub struct Moment {
    date: Date,
    /// Microseconds.
    time: i64,
    fraction_digits: i32,
    /// Seconds east of Greenwich.
    offset: Option<i64>,
}

#[cold]
fn wrong(message: String) -> Error {
    Error::new(SqlState::INVALID_DATETIME_FORMAT, message)
}

#[cold]
fn out_of_range(message: String) -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
}

/// Sets a number that is not set, or set to the same.
fn set(place: &mut i32, value: i32, field: &Field) -> Result<()> {
    if *place != 0 && *place != value {
        let message = format!("conflicting values for \"{}\" field in formatting string", field.shown());
        let detail = "This value contradicts a previous setting for the same field type.";
        return Err(wrong(message).with_detail(detail));
    }
    *place = value;
    Ok(())
}

impl Field {
    /// The name as it stands in the template.
    fn shown(&self) -> String {
        match self.case {
            super::Case::Upper => self.name.to_owned(),
            super::Case::Lower => self.name.to_ascii_lowercase(),
            super::Case::Capital => {
                let (first, rest) = self.name.split_at(1);
                format!("{first}{}", rest.to_ascii_lowercase())
            }
        }
    }

    /// Whether a number stands there.
    fn is_number(&self) -> bool {
        !matches!(
            self.name,
            "A.D."
                | "A.M."
                | "AD"
                | "AM"
                | "B.C."
                | "BC"
                | "DAY"
                | "DY"
                | "FX"
                | "MONTH"
                | "MON"
                | "OF"
                | "P.M."
                | "PM"
                | "RM"
                | "TZH"
                | "TZ"
        )
    }

    /// Whether it belongs to ISO week dates; `None` if it goes with both kinds of dates.
    fn is_iso(&self) -> Option<bool> {
        match self.name {
            "IDDD" | "ID" | "IW" | "IYYY" | "IYY" | "IY" | "I" => Some(true),
            "DDD" | "DD" | "D" | "MM" | "MONTH" | "MON" | "RM" | "WW" | "W" | "Y,YYY" | "YYYY" | "YYY"
            | "YY" | "Y" => Some(false),
            _ => None,
        }
    }
}

/// A text on its way through a template.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip(&mut self) {
        self.at += self.next().map_or(0, char::len_utf8);
    }

    /// Goes on behind blanks, and returns how many.
    fn skip_spaces(&mut self) -> i32 {
        let count = self.rest().bytes().take_while(|byte| is_space(char::from(*byte))).count();
        self.at += count;
        count as i32
    }

    /// A number as C's `strtol` reads it, and the bytes that it takes; 0 bytes if there is none. `None` if it is too large.
    fn number(text: &str) -> (Option<i32>, usize) {
        let bytes = text.as_bytes();
        let spaces = bytes.iter().take_while(|byte| is_space(char::from(**byte))).count();
        let signed = usize::from(matches!(bytes.get(spaces), Some(b'+' | b'-')));
        let start = spaces + signed;
        let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return (Some(0), 0);
        }
        (text[spaces..start + digits].parse().ok(), start + digits)
    }

    /// A number of so many digits, or of any number of them if no digit can follow. Returns how many bytes were read, blanks included.
    fn integer(&mut self, length: usize, field: &Field, is_open: bool) -> Result<(i32, usize)> {
        let start = self.at;
        let name = field.shown();
        let before = self.rest();
        self.skip_spaces();
        let rest = self.rest();
        // The field's digits end where a character of several bytes begins.
        let copy = &rest[..rest.floor_char_boundary(length)];
        let value = if field.is_filled || is_open {
            let (value, used) = Reader::number(before);
            self.at = start + used;
            value
        } else {
            if rest.len() < length {
                let message = format!("source string too short for \"{name}\" formatting field");
                return Err(wrong(message)
                    .with_detail(format!(
                        "Field requires {length} characters, but only {} remain.",
                        rest.len()
                    ))
                    .with_hint("If your source string is not fixed-width, try using the \"FM\" modifier."));
            }
            let (value, used) = Reader::number(copy);
            if used > 0 && used < length {
                let message = format!("invalid value \"{copy}\" for \"{name}\"");
                return Err(wrong(message)
                    .with_detail(format!(
                        "Field requires {length} characters, but only {used} could be parsed."
                    ))
                    .with_hint("If your source string is not fixed-width, try using the \"FM\" modifier."));
            }
            self.at += used;
            value
        };
        if self.at == start {
            return Err(wrong(format!("invalid value \"{copy}\" for \"{name}\""))
                .with_detail("Value must be an integer."));
        }
        let value = value.ok_or_else(|| {
            out_of_range(format!("value for \"{name}\" in source string is out of range"))
                .with_detail(format!("Value must be in the range {} to {}.", i32::MIN, i32::MAX))
        })?;
        Ok((value, self.at - start))
    }

    /// The number of the first of these words that the text goes on with, in any case.
    fn word(&mut self, words: &[&str], field: &Field) -> Result<i32> {
        let rest = self.rest();
        let is_next =
            |word: &&str| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        match words.iter().position(is_next) {
            Some(place) => {
                self.at += words[place].len();
                Ok(place as i32)
            }
            None => {
                let shown = rest.split(is_space).next().unwrap_or("");
                Err(wrong(format!("invalid value \"{shown}\" for \"{}\"", field.shown()))
                    .with_detail("The given value did not match any of the allowed values for this field."))
            }
        }
    }
}

/// Whether a number at this place of a template ends with the digits of the text: no digit can follow it.
fn is_open(nodes: &[Node], place: usize) -> bool {
    if matches!(nodes[place], Node::Field(field) if field.ordinal.is_some()) {
        return true;
    }
    match nodes.get(place + 1) {
        None => true,
        Some(Node::Field(field)) => !field.is_number(),
        Some(Node::Separator(next) | Node::Space(next) | Node::Character(next)) => !next.is_ascii_digit(),
    }
}

/// A year of less than four digits: the one nearest to 2020.
fn near_2020(year: i32) -> i32 {
    match year {
        ..70 => year.wrapping_add(2000),
        70..100 => year + 1900,
        100..520 => year + 2000,
        520..1000 => year + 1000,
        _ => year,
    }
}

impl Parts {
    /// Reads a text with a template.
    pub fn read(text: &str, nodes: &[Node]) -> Result<Parts> {
        let mut parts = Parts::default();
        let mut reader = Reader { text, at: 0 };
        let mut is_fixed = false;
        // Characters of the text that were skipped beyond those of the template.
        let mut skipped = 0;
        for (place, node) in nodes.iter().enumerate() {
            if reader.rest().is_empty() {
                break;
            }
            let is_field = matches!(node, Node::Field(_));
            let is_fx = matches!(node, Node::Field(Field { name: "FX", .. }));
            if !is_fixed && !is_fx && (is_field || place == 0) {
                skipped += reader.skip_spaces();
            }
            match node {
                Node::Separator(_) | Node::Space(_) if is_fixed => reader.skip(),
                Node::Separator(_) | Node::Space(_) => {
                    skipped -= 1;
                    let is_one = |next: char| is_space(next) || next.is_ascii_punctuation();
                    if reader.next().is_some_and(is_one) {
                        reader.skip();
                        skipped += 1;
                    }
                }
                Node::Character(_) if !is_fixed && skipped > 0 => skipped -= 1,
                Node::Character(_) => reader.skip(),
                Node::Field(field) => {
                    if let Some(is_iso) = field.is_iso() {
                        if parts.is_iso.is_some_and(|before| before != is_iso) {
                            let message = "invalid combination of date conventions";
                            return Err(wrong(message.to_owned()).with_hint(
                                "Do not mix Gregorian and ISO week date conventions in a formatting template.",
                            ));
                        }
                        parts.is_iso = Some(is_iso);
                    }
                    is_fixed |= is_fx;
                    let is_number = parts.field(&mut reader, field, is_open(nodes, place), skipped)?;
                    if is_number && field.ordinal.is_some() {
                        reader.skip();
                        reader.skip();
                    }
                    if !is_fixed {
                        skipped = reader.skip_spaces();
                    }
                }
            }
        }
        Ok(parts)
    }

    /// Reads a field, and returns whether it is a number, behind which `TH` may stand.
    fn field(&mut self, reader: &mut Reader<'_>, field: &Field, is_open: bool, skipped: i32) -> Result<bool> {
        let integer = |reader: &mut Reader<'_>, length: usize| reader.integer(length, field, is_open);
        let length = field.name.len();
        let place = match field.name {
            "FX" => return Ok(false),
            "A.M." | "P.M." | "AM" | "PM" => {
                let words = if length == 4 { ["A.M.", "P.M."] } else { ["AM", "PM"] };
                let value = reader.word(&words, field)?;
                set(&mut self.afternoon, value, field)?;
                self.is_12_hours = true;
                return Ok(false);
            }
            "A.D." | "B.C." | "AD" | "BC" => {
                let words = if length == 4 { ["A.D.", "B.C."] } else { ["AD", "BC"] };
                let value = reader.word(&words, field)?;
                set(&mut self.before_christ, value, field)?;
                return Ok(false);
            }
            "MONTH" | "MON" => {
                let short = MONTHS.map(|name| &name[..3]);
                let value = reader.word(if length == 3 { &short } else { &MONTHS }, field)?;
                set(&mut self.month, value + 1, field)?;
                return Ok(false);
            }
            "DAY" | "DY" => {
                let short = DAYS.map(|name| &name[..3]);
                let value = reader.word(if length == 2 { &short } else { &DAYS }, field)?;
                set(&mut self.day_of_week, value, field)?;
                self.day_of_week += 1;
                return Ok(false);
            }
            "RM" => {
                // From the last: VIII begins with VII.
                let mut numerals = ROMAN;
                numerals.reverse();
                let value = reader.word(&numerals, field)?;
                set(&mut self.month, 12 - value, field)?;
                return Ok(false);
            }
            "TZ" | "OF" => {
                let message = format!("formatting field \"{}\" is only supported in to_char", field.shown());
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            "TZH" => {
                self.zone_sign = match reader.next() {
                    Some(sign @ ('+' | '-' | ' ')) => {
                        reader.skip();
                        if sign == '-' { -1 } else { 1 }
                    }
                    // A minus may have been taken for a separator.
                    _ if skipped > 0 && reader.text[..reader.at].ends_with('-') => -1,
                    _ => 1,
                };
                let (value, _) = integer(reader, 2)?;
                set(&mut self.zone_hours, value, field)?;
                return Ok(false);
            }
            "TZM" => {
                if self.zone_sign == 0 {
                    self.zone_sign = 1;
                }
                let (value, _) = integer(reader, 2)?;
                set(&mut self.zone_minutes, value, field)?;
                return Ok(false);
            }
            "Y,YYY" => {
                let invalid = || wrong("invalid input string for \"Y,YYY\"".to_owned());
                let rest = reader.rest();
                let (thousands, used) = Reader::number(rest);
                let behind = rest[used..].strip_prefix(',').filter(|_| used > 0).ok_or_else(invalid)?;
                // Three characters at most, behind blanks.
                let spaces = behind.bytes().take_while(|byte| is_space(char::from(*byte))).count();
                let most =
                    behind[spaces..].char_indices().nth(3).map_or(behind.len(), |(end, _)| spaces + end);
                let (years, digits) = Reader::number(&behind[..most]);
                if digits == 0 {
                    return Err(invalid());
                }
                let (Some(thousands), Some(years)) = (thousands, years) else { return Err(invalid()) };
                set(&mut self.year, years.wrapping_add(thousands.wrapping_mul(1000)), field)?;
                self.year_digits = 4;
                reader.at += used + 1 + digits;
                return Ok(true);
            }
            "MS" => {
                let (value, read) = integer(reader, 3)?;
                set(&mut self.millis, value, field)?;
                // 25 is a quarter of a second, as 250 is.
                self.millis = self.millis.wrapping_mul([100, 10].get(read - 1).copied().unwrap_or(1));
                return Ok(true);
            }
            "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                let digits = match field.name {
                    "US" => 6,
                    name => {
                        self.fraction_digits = i32::from(name.as_bytes()[2] - b'0');
                        self.fraction_digits as usize
                    }
                };
                let (value, read) = integer(reader, digits)?;
                set(&mut self.micros, value, field)?;
                let unit = [100_000, 10_000, 1_000, 100, 10].get(read - 1).copied().unwrap_or(1);
                self.micros = self.micros.wrapping_mul(unit);
                return Ok(true);
            }
            "YYY" | "IYY" | "YY" | "IY" | "Y" | "I" => {
                let (value, read) = integer(reader, length)?;
                set(&mut self.year, value, field)?;
                if read < 4 {
                    self.year = near_2020(self.year);
                }
                self.year_digits = length;
                return Ok(true);
            }
            "ID" => {
                let (value, _) = integer(reader, 1)?;
                set(&mut self.day_of_week, value, field)?;
                // Monday is the first here.
                self.day_of_week = self.day_of_week.wrapping_add(1);
                if self.day_of_week > 7 {
                    self.day_of_week = 1;
                }
                return Ok(true);
            }
            // A quarter says too little.
            "Q" => return integer(reader, 1).map(|_| true),
            "HH" | "HH12" => {
                self.is_12_hours = true;
                &mut self.hour
            }
            "HH24" => &mut self.hour,
            "MI" => &mut self.minute,
            "SS" => &mut self.second,
            "SSSS" | "SSSSS" => &mut self.second_of_day,
            "MM" => &mut self.month,
            "DDD" | "IDDD" => &mut self.day_of_year,
            "DD" => &mut self.day,
            "D" => &mut self.day_of_week,
            "WW" | "IW" => &mut self.week,
            "CC" => &mut self.century,
            "YYYY" | "IYYY" => {
                self.year_digits = 4;
                &mut self.year
            }
            "W" => &mut self.week_of_month,
            "J" => &mut self.julian,
            other => panic!("{other} is no field"),
        };
        let length = match field.name {
            "HH12" | "HH24" => 2,
            "IDDD" => 3,
            name => name.len(),
        };
        let (value, _) = integer(reader, length)?;
        set(place, value, field)?;
        Ok(true)
    }

    /// The date and the time that the fields make.
    pub fn moment(mut self, text: &str) -> Result<Moment> {
        let invalid = || out_of_range(format!("date/time field value out of range: \"{text}\""));
        let time = self.time(invalid)?;
        let mut date = Date { year: 0, month: 1, day: 1, ..Date::default() };
        if self.before_christ != 0 && self.century != 0 && (self.year == 0 || self.year_digits <= 2) {
            self.century = self.century.wrapping_neg();
        }
        let century = i64::from(self.century);
        if self.year != 0 {
            date.year = self.full_year();
            date.has_year = true;
        } else if self.century != 0 {
            // Its first year.
            date.year = if century >= 0 { (century - 1) * 100 + 1 } else { century * 100 + 1 };
            date.has_year = true;
        }
        if self.julian != 0 {
            date = Date::of(i64::from(self.julian) - JULIAN_1970);
        }
        let is_iso = self.is_iso == Some(true);
        if self.week != 0 && is_iso {
            let behind_monday = match self.day_of_week {
                0 => 0,
                1 => 6,
                day => i64::from(day) - 2,
            };
            date = Date::of(monday(date.year, self.week) + behind_monday);
        } else if self.week != 0 {
            self.day_of_year = self.week.wrapping_sub(1).wrapping_mul(7).wrapping_add(1);
        }
        if self.week_of_month != 0 {
            self.day = self.week_of_month.wrapping_sub(1).wrapping_mul(7).wrapping_add(1);
        }
        if self.day != 0 {
            (date.day, date.has_day) = (self.day.into(), true);
        }
        if self.month != 0 {
            (date.month, date.has_month) = (self.month.into(), true);
        }
        if self.day_of_year != 0 && (date.month <= 1 || date.day <= 1) {
            if date.year == 0 && self.before_christ == 0 {
                return Err(wrong("cannot calculate day of year without year information".to_owned()));
            }
            match is_iso {
                true => date = Date::of(monday(date.year, 1) + i64::from(self.day_of_year) - 1),
                false => date.set_day_of_year(self.day_of_year.into()),
            }
        }
        if !date.is_valid() {
            return Err(invalid());
        }
        let offset = match self.zone_sign {
            0 => None,
            sign => {
                if !(0..=15).contains(&self.zone_hours) || !(0..60).contains(&self.zone_minutes) {
                    let message = format!("time zone displacement out of range: \"{text}\"");
                    return Err(Error::new(SqlState::new("22009"), message));
                }
                Some(i64::from(sign * (self.zone_hours * 3600 + self.zone_minutes * 60)))
            }
        };
        Ok(Moment { date, time, fraction_digits: self.fraction_digits, offset })
    }

    /// The time of day in microseconds.
    fn time(&self, invalid: impl Fn() -> Error) -> Result<i64> {
        let of_day = self.second_of_day;
        let or = |given: i32, other: i32| if given != 0 { given } else { other };
        let mut hour = or(self.hour, of_day / 3600);
        let minute = or(self.minute, of_day % 3600 / 60);
        let second = or(self.second, of_day % 60);
        if self.is_12_hours {
            if !(1..=12).contains(&hour) {
                return Err(wrong(format!("hour \"{hour}\" is invalid for the 12-hour clock"))
                    .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            hour = hour % 12 + if self.afternoon != 0 { 12 } else { 0 };
        }
        let micros = i64::from(self.millis.wrapping_mul(1000)) + i64::from(self.micros);
        let is_valid = (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..MICROS_PER_SECOND).contains(&micros);
        match is_valid {
            true => Ok(i64::from((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + micros),
            false => Err(invalid()),
        }
    }

    /// The year of a year that is given, where 0 is 1 BC. With a century, the last two digits count.
    fn full_year(&self) -> i64 {
        let (year, century) = (i64::from(self.year), i64::from(self.century));
        if self.century != 0 && self.year_digits <= 2 {
            return match (year % 100, century >= 0) {
                (0, true) => century * 100,
                (0, false) => century * 100 + 1,
                (year, true) => year + (century - 1) * 100,
                (year, false) => (century + 1) * 100 - year + 1,
            };
        }
        let year = if self.before_christ != 0 { -year } else { year };
        if year < 0 { year + 1 } else { year }
    }
}

/// The Monday of an ISO week, in days since 1970.
fn monday(year: i64, week: i32) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    fourth - (fourth + 3).rem_euclid(7) + (i64::from(week) - 1) * 7
}

impl Date {
    /// The date of a number of days since 1970.
    fn of(days: i64) -> Date {
        let (year, month, day) = civil_from_days(days);
        Date { year, month: month.into(), day: day.into(), has_year: true, has_month: true, has_day: true }
    }

    /// Sets month and day, unless they are set and not to 1.
    fn set_day_of_year(&mut self, day_of_year: i64) {
        let before = |month: i64| match month {
            12 => days_from_civil(self.year + 1, 1, 1),
            month => days_from_civil(self.year, month as u32 + 1, 1),
        };
        let first = days_from_civil(self.year, 1, 1);
        // Days beyond the year are in a month 13, which is not valid.
        let month = (1..=12).find(|month| day_of_year <= before(*month) - first).unwrap_or(13);
        let start = if month == 1 { 0 } else { before(month - 1) - first };
        if self.month <= 1 {
            self.month = month;
        }
        if self.day <= 1 {
            self.day = day_of_year - start;
        }
        (self.has_month, self.has_day) = (true, true);
    }

    /// Whether the numbers that are known can be those of a date.
    fn is_valid(&self) -> bool {
        let is_month = !self.has_month || (1..=12).contains(&self.month);
        let is_day = !self.has_day || (1..=31).contains(&self.day);
        let is_whole = self.has_year && self.has_month && self.has_day;
        let last = || i64::from(datetime::days_in_month(self.year, self.month as u32));
        is_month && is_day && (!is_whole || self.day <= last())
    }
}

impl Moment {
    fn days(&self) -> i64 {
        days_from_civil(self.date.year, self.date.month as u32, 1) + self.date.day - 1
    }

    /// The date.
    pub fn date(&self, text: &str) -> Result<i32> {
        datetime::check_date(self.days()).map_err(|_| out_of_range(format!("date out of range: \"{text}\"")))
    }

    /// The moment in microseconds, in a zone unless the text names one.
    pub fn timestamptz(&self, zone: &TimeZoneSetting) -> Result<i64> {
        let local = self.days().checked_mul(MICROS_PER_DAY).and_then(|days| days.checked_add(self.time));
        let local = datetime::check_timestamp(local)?;
        let moment = match self.offset {
            Some(offset) => datetime::check_timestamp(local.checked_sub(offset * MICROS_PER_SECOND))?,
            None => datetime::to_utc(local, zone)?,
        };
        match self.fraction_digits {
            0 => Ok(moment),
            digits => super::super::casts::round_timestamp(moment, digits),
        }
    }
}
