//! Dates and times from text. A text is divided into tokens by their characters only. Then each token sets
//! some fields, according to its kind and to the fields that came before it. No field may be given twice. The
//! rules are PostgreSQL's (appendix "Date/Time Input Interpretation" of its manual).

use super::{
    MICROS_PER_DAY, MICROS_PER_SECOND, Manner, Present, civil_from_days, days_from_civil, days_in_month,
    to_local,
};
use crate::error::{Error, Result, SqlState};
use crate::text_style::DateOrder;
use crate::time_zone::{TimeZoneSetting, parse_offset};
use crate::types::SqlType;

/// The fields in a text.
#[derive(Default)]
pub(super) struct Fields {
    /// Year (0 is 1 BC), month, day.
    pub date: Option<(i64, u32, u32)>,
    /// Microseconds since midnight; 24:00:00 is allowed.
    pub time: Option<i64>,
    /// The zone, if one was written.
    pub zone: Option<TimeZoneSetting>,
}

impl Fields {
    /// Reads the text of a value of that type.
    pub(super) fn read(text: &str, ty: SqlType, manner: Manner<'_>) -> Result<Fields> {
        let mut reading = Reading::new(text, ty, manner);
        let tokens = Token::all(text).ok_or_else(|| syntax(text, ty))?;
        for (place, token) in tokens.iter().enumerate() {
            reading.token(place, token)?;
        }
        reading.finish()
    }

    pub(super) fn timestamp(&self, text: &str, ty: SqlType) -> Result<i64> {
        let (year, month, day) = self.date.ok_or_else(|| syntax(text, ty))?;
        let micros = days_from_civil(year, month, day)
            .checked_mul(MICROS_PER_DAY)
            .and_then(|midnight| midnight.checked_add(self.time.unwrap_or(0)));
        super::check_timestamp(micros).map_err(|_| out_of_range(text))
    }
}

/// Whether a text is `infinity` or `-infinity`, and which. In other texts, and for times, the word has no
/// meaning.
pub(super) fn infinity(text: &str) -> Option<bool> {
    let sole = text.trim_ascii();
    let (unsigned, is_positive) = match sole.strip_prefix('-') {
        Some(unsigned) => (unsigned.trim_ascii_start(), false),
        None => (sole, true),
    };
    unsigned.eq_ignore_ascii_case("infinity").then_some(is_positive)
}

/// A part of a text.
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Digits, perhaps with a point.
    Number,
    /// Letters and digits with `-`, `/` or `.` between them: a date, or the name of a zone.
    Date,
    /// Digits with colons.
    Time,
    /// A sign and digits.
    Offset,
    Word,
}

/// The largest number of tokens of a text.
const MOST_TOKENS: usize = 25;

impl<'a> Token<'a> {
    /// All tokens; `None` if the text has a character that no token begins with.
    fn all(text: &'a str) -> Option<Vec<Token<'a>>> {
        let mut tokens = Vec::new();
        let mut rest = text;
        loop {
            // Punctuation without a meaning is skipped.
            let is_skipped = |c: char| {
                c.is_ascii_whitespace()
                    || c == '\u{b}'
                    || c.is_ascii_punctuation() && !matches!(c, '+' | '-' | '.')
            };
            rest = rest.trim_start_matches(is_skipped);
            let Some(first) = rest.chars().next() else { return Some(tokens) };
            let (kind, end) = match first {
                '0'..='9' => of_digit(rest),
                'a'..='z' | 'A'..='Z' => of_letter(rest),
                '.' => (Kind::Number, 1 + span(&rest[1..], |c| c.is_ascii_digit())),
                '+' | '-' => match rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
                    true => {
                        (Kind::Offset, 1 + span(&rest[1..], |c| c.is_ascii_digit() || matches!(c, ':' | '.')))
                    }
                    false => return None,
                },
                _ => return None,
            };
            if tokens.len() == MOST_TOKENS {
                return None;
            }
            tokens.push(Token { kind, text: &rest[..end] });
            rest = &rest[end..];
        }
    }
}

/// The number of first characters, which are ASCII, of a class.
fn span(text: &str, is_of_class: impl Fn(char) -> bool) -> usize {
    text.find(|c: char| !c.is_ascii() || !is_of_class(c)).unwrap_or(text.len())
}

fn of_digit(text: &str) -> (Kind, usize) {
    let is_digit = |c: char| c.is_ascii_digit();
    let end = span(text, is_digit);
    let rest = &text[end..];
    match rest.chars().next() {
        Some(':') => (Kind::Time, end + span(rest, |c| is_digit(c) || matches!(c, ':' | '.'))),
        Some(delimiter @ ('-' | '/' | '.')) if rest[1..].starts_with(is_digit) => {
            let end = end + 1 + span(&rest[1..], is_digit);
            match text[end..].starts_with(delimiter) {
                true => (Kind::Date, end + span(&text[end..], |c| is_digit(c) || c == delimiter)),
                false => (if delimiter == '.' { Kind::Number } else { Kind::Date }, end),
            }
        }
        Some(delimiter @ ('-' | '/' | '.')) => {
            (Kind::Date, end + span(rest, |c| c.is_ascii_alphanumeric() || c == delimiter))
        }
        _ => (Kind::Number, end),
    }
}

fn of_letter(text: &str) -> (Kind, usize) {
    let end = span(text, |c| c.is_ascii_alphabetic());
    let is_name = match text[end..].chars().next() {
        Some('-' | '/' | '.') => true,
        Some(c) if c == '+' || c.is_ascii_digit() => word(&text[..end].to_ascii_lowercase()).is_none(),
        _ => false,
    };
    if !is_name {
        return (Kind::Word, end);
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '/' | '_' | '.' | ':');
    (Kind::Date, span(text, is_part))
}

/// A word with a meaning of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Month(i64),
    Weekday,
    /// The era of the year: whether it was before Christ.
    BeforeChrist(bool),
    Afternoon(bool),
    Ignored,
    Epoch,
    Allballs,
    Now,
    /// This many days after the current one.
    Today(i64),
    /// The next number is a Julian day.
    Julian,
    /// The next token is a time.
    IsoTime,
}

/// The meaning of a word in lower case.
fn word(lower: &str) -> Option<Word> {
    Some(match lower {
        "bc" => Word::BeforeChrist(true),
        "ad" => Word::BeforeChrist(false),
        "am" => Word::Afternoon(false),
        "pm" => Word::Afternoon(true),
        "at" | "on" => Word::Ignored,
        "epoch" => Word::Epoch,
        "allballs" => Word::Allballs,
        "now" => Word::Now,
        "yesterday" => Word::Today(-1),
        "today" => Word::Today(0),
        "tomorrow" => Word::Today(1),
        "j" | "jd" | "julian" => Word::Julian,
        "t" => Word::IsoTime,
        _ if is_weekday(lower) => Word::Weekday,
        _ => Word::Month(month_by_name(lower)?),
    })
}

/// Sets of fields.
type Mask = u8;
const YEAR: Mask = 1;
const MONTH: Mask = 1 << 1;
const DAY: Mask = 1 << 2;
const DATE: Mask = YEAR | MONTH | DAY;
const DAY_OF_YEAR: Mask = 1 << 3;
const TIME: Mask = 1 << 4;
const ZONE: Mask = 1 << 5;
const ERA: Mask = 1 << 6;

/// The state of reading.
struct Reading<'a> {
    text: &'a str,
    ty: SqlType,
    manner: Manner<'a>,
    /// The fields that have been given.
    given: Mask,
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    time: i64,
    zone: Option<TimeZoneSetting>,
    before_christ: bool,
    afternoon: Option<bool>,
    /// The year was written with one or two digits.
    is_short_year: bool,
    /// The month was written as a word.
    is_named_month: bool,
    /// The day was counted from 4714 BC or from the current time: it need not be checked.
    is_counted: bool,
    /// What the word before determines about the next token.
    expected: Option<Word>,
}

impl<'a> Reading<'a> {
    fn new(text: &'a str, ty: SqlType, manner: Manner<'a>) -> Reading<'a> {
        Reading {
            text,
            ty,
            manner,
            given: 0,
            year: 0,
            month: 0,
            day: 0,
            day_of_year: 0,
            time: 0,
            zone: None,
            before_christ: false,
            afternoon: None,
            is_short_year: false,
            is_named_month: false,
            is_counted: false,
            expected: None,
        }
    }

    #[cold]
    fn wrong(&self) -> Error {
        syntax(self.text, self.ty)
    }

    fn give(&mut self, fields: Mask) -> Result<()> {
        if self.given & fields != 0 {
            return Err(self.wrong());
        }
        self.given |= fields;
        Ok(())
    }

    /// The fields of a date that numbers need not give: a time has none.
    fn date_given(&self) -> Mask {
        if self.ty == SqlType::Time { DATE } else { self.given & DATE }
    }

    fn token(&mut self, place: usize, token: &Token<'_>) -> Result<()> {
        let expected = self.expected.take();
        match (expected, token.kind) {
            (Some(Word::Julian), Kind::Number) => return self.julian(token.text),
            (Some(Word::IsoTime), Kind::Number) => return self.run_together(token.text, DATE),
            (Some(Word::IsoTime), Kind::Time | Kind::Date) | (None, _) => {}
            _ => return Err(self.wrong()),
        }
        match token.kind {
            Kind::Number if self.ty == SqlType::Time => match token.text.split_once('.') {
                Some((whole, _)) if whole.len() <= 2 => Err(self.wrong()),
                _ => self.run_together(token.text, DATE),
            },
            Kind::Number => {
                let whole = token.text.split_once('.').map(|(whole, _)| whole.len());
                let has_date = self.given & DATE != 0;
                match whole {
                    Some(_) if !has_date => self.date(token.text),
                    Some(digits) if digits > 2 => self.run_together(token.text, self.given & DATE),
                    None if token.text.len() >= 6 && (!has_date || self.given & TIME == 0) => {
                        self.run_together(token.text, self.given & DATE)
                    }
                    _ => self.number(token.text),
                }
            }
            Kind::Date
                if expected.is_some()
                    || self.given & (MONTH | DAY) == MONTH | DAY
                    || self.ty == SqlType::Time =>
            {
                self.zone_or_time(place, token.text, expected.is_some())
            }
            Kind::Date => self.date(token.text),
            Kind::Time => {
                self.give(TIME)?;
                self.time = clock_time(token.text, self.text, self.ty)?;
                Ok(())
            }
            Kind::Offset => {
                self.give(ZONE)?;
                self.zone = Some(parse_offset(token.text).ok_or_else(|| self.wrong())?);
                Ok(())
            }
            Kind::Word => self.word(token.text),
        }
    }

    /// A token with delimiters after a date: the name of a zone, or a time with an offset, `101112-03`.
    fn zone_or_time(&mut self, place: usize, text: &str, is_time: bool) -> Result<()> {
        if !is_time && !text.starts_with(|c: char| c.is_ascii_digit()) {
            self.give(ZONE)?;
            let zone = TimeZoneSetting::from_name(text).ok_or_else(|| {
                let lower = text.to_ascii_lowercase();
                Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{lower}\" not recognized"))
            })?;
            self.zone = Some(zone);
            return Ok(());
        }
        // A time may have a date before it, which is ignored.
        if self.ty == SqlType::Time && place == 0 && !is_time {
            return self.date(text);
        }
        let (digits, offset) = text.find('-').map(|end| text.split_at(end)).ok_or_else(|| self.wrong())?;
        self.give(ZONE)?;
        self.zone = Some(parse_offset(offset).ok_or_else(|| self.wrong())?);
        self.run_together(digits, DATE)
    }

    /// `2024-1-31`, `1/31/2024`, `31-Jan-2024`, `2024.031`: all fields of a date.
    fn date(&mut self, text: &str) -> Result<()> {
        let parts: Vec<&str> =
            text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).collect();
        if text.ends_with(|c: char| !c.is_ascii_alphanumeric()) {
            return Err(self.wrong());
        }
        let is_word = |part: &&&str| part.starts_with(|c: char| c.is_ascii_alphabetic());
        for part in parts.iter().filter(is_word) {
            match word(&part.to_ascii_lowercase()) {
                Some(Word::Month(month)) => {
                    self.give(MONTH)?;
                    self.month = month;
                    self.is_named_month = true;
                }
                Some(Word::Ignored) => {}
                _ => return Err(self.wrong()),
            }
        }
        for part in parts.iter().filter(|part| !is_word(part)) {
            if !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(self.wrong());
            }
            self.number(part)?;
        }
        if self.given & DATE != DATE {
            return Err(self.wrong());
        }
        Ok(())
    }

    /// A number that is one field, according to the fields so far. A long number that may be one is a year;
    /// of others the style determines which is first.
    fn number(&mut self, text: &str) -> Result<()> {
        let value = number(text.split('.').next().unwrap_or(text)).ok_or_else(|| out_of_range(self.text))?;
        let is_long = text.len() >= 3;
        if text.len() == 3 && self.given & DATE == YEAR && (1..=366).contains(&value) {
            self.day_of_year = value;
            return self.give(DAY_OF_YEAR | MONTH | DAY);
        }
        let order = self.manner.style.order;
        let is_year_first = is_long || order == DateOrder::Ymd;
        let field = match self.given & DATE {
            0 if is_year_first => YEAR,
            0 if order == DateOrder::Dmy => DAY,
            0 => MONTH,
            YEAR => MONTH,
            MONTH if self.is_named_month && is_year_first => YEAR,
            MONTH => DAY,
            DAY => MONTH,
            DATE => return self.run_together(text, DATE),
            _ if self.given & DATE == YEAR | MONTH => {
                if self.is_named_month && is_long && self.is_short_year {
                    // What was taken for a year was the day.
                    (self.day, self.year, self.is_short_year) = (self.year, value, false);
                    return self.give(DAY);
                }
                DAY
            }
            _ => YEAR,
        };
        self.give(field)?;
        match field {
            YEAR => {
                self.year = value;
                self.is_short_year = text.len() <= 2;
            }
            MONTH => self.month = value,
            _ => self.day = value,
        }
        Ok(())
    }

    /// Fields without delimiters: `20240131`, `240131`, and after a date `040506.789`, `0405`.
    fn run_together(&mut self, text: &str, date_given: Mask) -> Result<()> {
        let (digits, fraction) =
            text.split_once('.').map_or((text, None), |(digits, fraction)| (digits, Some(fraction)));
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.wrong());
        }
        if fraction.is_none() && date_given != DATE && digits.len() >= 6 {
            let (rest, day) = digits.split_at(digits.len() - 2);
            let (year, month) = rest.split_at(rest.len() - 2);
            self.give(DATE)?;
            self.year = number(year).ok_or_else(|| out_of_range(self.text))?;
            (self.month, self.day) = (two(month), two(day));
            self.is_short_year = year.len() == 2;
            return Ok(());
        }
        let seconds = match digits.len() {
            6 => two(&digits[4..]),
            4 => 0,
            _ => return Err(self.wrong()),
        };
        self.give(TIME)?;
        let micros = fraction.map_or(0, super::fraction_micros);
        self.time = from_clock(two(&digits[..2]), two(&digits[2..4]), seconds, micros, self.text)?;
        Ok(())
    }

    /// The number of a day since 4714-11-24 BC, perhaps with a fraction.
    fn julian(&mut self, text: &str) -> Result<()> {
        let (whole, fraction) =
            text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
        let days = number(whole).ok_or_else(|| out_of_range(self.text))?;
        self.give(DATE)?;
        self.set_day(days + super::FIRST_DAY);
        if let Some(fraction) = fraction {
            self.give(TIME)?;
            let part: f64 = format!("0.{fraction}").parse().map_err(|_| self.wrong())?;
            self.time = (part * MICROS_PER_DAY as f64).round() as i64;
        }
        Ok(())
    }

    fn set_day(&mut self, days: i64) {
        let (year, month, day) = civil_from_days(days);
        (self.year, self.month, self.day) = (year, month.into(), day.into());
        self.is_counted = true;
    }

    fn word(&mut self, written: &str) -> Result<()> {
        let lower = written.to_ascii_lowercase();
        match word(&lower) {
            Some(Word::Ignored | Word::Weekday) => {}
            Some(Word::Month(month)) => {
                // A number that was taken for the month was the day: `31 Jan 2024`.
                if self.given & MONTH != 0
                    && !self.is_named_month
                    && self.given & DAY == 0
                    && (1..=31).contains(&self.month)
                {
                    self.day = self.month;
                    self.give(DAY)?;
                } else {
                    self.give(MONTH)?;
                }
                self.is_named_month = true;
                self.month = month;
            }
            Some(Word::BeforeChrist(is_before)) => {
                self.give(ERA)?;
                self.before_christ = is_before;
            }
            Some(Word::Afternoon(is_afternoon)) => self.afternoon = Some(is_afternoon),
            Some(Word::Epoch) => {
                self.give(DATE | TIME | ZONE)?;
                self.set_day(0);
                self.zone = Some(TimeZoneSetting::UTC);
            }
            Some(Word::Allballs) => {
                self.give(TIME | ZONE)?;
                self.zone = Some(TimeZoneSetting::UTC);
            }
            Some(Word::Now) => {
                let present = self.present(&lower)?;
                self.give(DATE | TIME | ZONE)?;
                let local = to_local(present.moment, &present.style.zone)?;
                self.set_day(local.div_euclid(MICROS_PER_DAY));
                self.time = local.rem_euclid(MICROS_PER_DAY);
                self.zone = Some(TimeZoneSetting::Fixed(present.style.zone.offset_at(present.moment)));
            }
            Some(Word::Today(after)) => {
                let present = self.present(&lower)?;
                self.give(DATE)?;
                self.set_day(
                    to_local(present.moment, &present.style.zone)?.div_euclid(MICROS_PER_DAY) + after,
                );
            }
            Some(expected @ Word::Julian) => self.expected = Some(expected),
            Some(expected @ Word::IsoTime) => {
                if self.date_given() != DATE {
                    return Err(self.wrong());
                }
                self.expected = Some(expected);
            }
            None => {
                self.give(ZONE)?;
                self.zone = Some(TimeZoneSetting::from_name(written).ok_or_else(|| self.wrong())?);
            }
        }
        Ok(())
    }

    fn present(&self, word: &str) -> Result<Present<'a>> {
        let present = |moment| Present { moment, style: self.manner.style };
        self.manner.moment.map(present).ok_or_else(|| {
            Error::unsupported(format_args!("the {} \"{word}\" here", self.ty))
                .with_hint("Use now() or current_date.")
        })
    }

    fn finish(mut self) -> Result<Fields> {
        if self.expected.is_some() {
            return Err(self.wrong());
        }
        if let Some(is_afternoon) = self.afternoon {
            if self.given & TIME == 0 {
                return Err(self.wrong());
            }
            self.time = twelve_hours(self.time, is_afternoon, self.text)?;
        }
        let time = (self.given & TIME != 0).then_some(self.time);
        if self.ty == SqlType::Time {
            return Ok(Fields { date: None, time, zone: self.zone });
        }
        if self.given & DATE != DATE {
            return Err(self.wrong());
        }
        Ok(Fields { date: Some(self.civil()?), time, zone: self.zone })
    }

    /// Year, month and day after a check.
    fn civil(&self) -> Result<(i64, u32, u32)> {
        let wrong = || out_of_range(self.text);
        let year = match self.year {
            year if self.is_counted => year,
            // There is no year 0.
            ..=0 if self.before_christ || !self.is_short_year => return Err(wrong()),
            year if self.before_christ => 1 - year,
            year if self.is_short_year => year + if year < 70 { 2000 } else { 1900 },
            year => year,
        };
        if self.given & DAY_OF_YEAR != 0 {
            let (_, month, day) = civil_from_days(days_from_civil(year, 1, 1) + self.day_of_year - 1);
            let last = if days_in_month(year, 2) == 29 { 366 } else { 365 };
            return if self.day_of_year <= last { Ok((year, month, day)) } else { Err(wrong()) };
        }
        if !(1..=12).contains(&self.month) || !(1..=31).contains(&self.day) {
            return Err(wrong().with_hint("Perhaps you need a different \"datestyle\" setting."));
        }
        let (month, day) = (self.month as u32, self.day as u32);
        if day > days_in_month(year, month) { Err(wrong()) } else { Ok((year, month, day)) }
    }
}

/// `HH:MM`, `HH:MM:SS` or `HH:MM:SS.ffffff`.
fn clock_time(word: &str, text: &str, ty: SqlType) -> Result<i64> {
    let (clock, fraction) = match word.split_once('.') {
        Some((clock, fraction)) => (clock, fraction),
        None => (word, ""),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    if fraction.contains(['.', ':']) || parts.len() < 2 || parts.len() > 3 {
        return Err(syntax(text, ty));
    }
    let parts: Option<Vec<i64>> = parts.into_iter().map(number).collect();
    match parts.ok_or_else(|| out_of_range(text))?[..] {
        // Minutes and seconds, as PostgreSQL reads MM:SS.fff.
        [minutes, seconds] if !fraction.is_empty() => {
            from_clock(0, minutes, seconds, super::fraction_micros(fraction), text)
        }
        [hours, minutes] => from_clock(hours, minutes, 0, 0, text),
        [hours, minutes, seconds] => {
            from_clock(hours, minutes, seconds, super::fraction_micros(fraction), text)
        }
        _ => Err(syntax(text, ty)),
    }
}

fn from_clock(hours: i64, minutes: i64, seconds: i64, micros: i64, text: &str) -> Result<i64> {
    // Second 60 and hour 24 are accepted as the beginning of the next minute and day.
    if hours > 24 || minutes > 59 || seconds > 60 {
        return Err(out_of_range(text));
    }
    let total = ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + micros;
    if total > MICROS_PER_DAY { Err(out_of_range(text)) } else { Ok(total) }
}

fn twelve_hours(time: i64, afternoon: bool, text: &str) -> Result<i64> {
    const HOUR: i64 = 3600 * MICROS_PER_SECOND;
    match time / HOUR {
        13.. => Err(out_of_range(text)),
        12 if !afternoon => Ok(time - 12 * HOUR),
        0..12 if afternoon => Ok(time + 12 * HOUR),
        _ => Ok(time),
    }
}

/// The value of digits; `None` if there are more than any field has.
fn number(digits: &str) -> Option<i64> {
    digits.parse().ok().filter(|value| *value <= i64::from(i32::MAX))
}

/// The value of two digits.
fn two(digits: &str) -> i64 {
    digits.bytes().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'))
}

fn month_by_name(word: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let matches =
        |month: &&str| word == *month || word == &month[..3] || word == "sept" && *month == "september";
    MONTHS.iter().position(matches).map(|place| place as i64 + 1)
}

fn is_weekday(word: &str) -> bool {
    const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    DAYS.iter().any(|day| word == *day || word == &day[..3])
        || matches!(word, "tues" | "thur" | "thurs" | "weds")
}

/// 22007
#[cold]
pub(super) fn syntax(text: &str, ty: SqlType) -> Error {
    let name = match ty {
        SqlType::Time => "time",
        SqlType::Timestamp => "timestamp",
        SqlType::TimestampTz => "timestamp with time zone",
        _ => "date",
    };
    Error::new(SqlState::INVALID_DATETIME_FORMAT, format!("invalid input syntax for type {name}: \"{text}\""))
}

/// 22008
#[cold]
pub(super) fn out_of_range(text: &str) -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}
