//! How a session reads values from text and writes them as text: the settings `TimeZone`, `DateStyle`,
//! `IntervalStyle`, `bytea_output` and `extra_float_digits`. Functions that write a value as text or read one
//! from text take it.

use crate::time_zone::TimeZoneSetting;

/// The settings of a session on which the text of a value depends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TextStyle {
    /// The zone in whose local time a timestamp with time zone is read and written.
    pub zone: TimeZoneSetting,
    /// How dates and timestamps are written.
    pub dates: DateStyle,
    /// The order of the fields of a date, if its digits do not determine it.
    pub order: DateOrder,
    /// How intervals are written, and the meaning of one sign before several of their fields.
    pub intervals: IntervalStyle,
    /// How bytes are written.
    pub bytea: ByteaStyle,
    /// `extra_float_digits`: above 0 a float has the fewest digits that read back as it. Otherwise it has
    /// this many more digits than the 15 (6 for a real) that every decimal number keeps.
    pub float_digits: i8,
}

/// The first word of `DateStyle`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DateStyle {
    /// `2030-02-05 10:00:00+01`
    #[default]
    Iso,
    /// `02/05/2030 10:00:00 CET`
    Sql,
    /// `Tue Feb 05 10:00:00 2030 CET`
    Postgres,
    /// `05.02.2030 10:00:00 CET`
    German,
}

/// The second word of `DateStyle`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DateOrder {
    /// Month, day, year.
    #[default]
    Mdy,
    /// Day, month, year.
    Dmy,
    /// Year, month, day.
    Ymd,
}

/// `IntervalStyle`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IntervalStyle {
    /// `1 year 2 days 03:04:05`
    #[default]
    Postgres,
    /// `@ 1 year 2 days 3 hours 4 mins 5 secs`
    PostgresVerbose,
    /// `+1-0 +2 +3:04:05`
    SqlStandard,
    /// `P1Y2DT3H4M5S`
    Iso8601,
}

/// `bytea_output`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ByteaStyle {
    /// `\x41005c`
    #[default]
    Hex,
    /// `A\000\\`
    Escape,
}

impl TextStyle {
    /// The style of a session without settings.
    pub const DEFAULT: TextStyle = TextStyle::in_zone(TimeZoneSetting::UTC);

    /// The default style in a zone.
    pub const fn in_zone(zone: TimeZoneSetting) -> TextStyle {
        TextStyle {
            zone,
            dates: DateStyle::Iso,
            order: DateOrder::Mdy,
            intervals: IntervalStyle::Postgres,
            bytea: ByteaStyle::Hex,
            float_digits: 1,
        }
    }

    /// The part of the style that affects reading.
    pub const fn for_reading(&self) -> TextStyle {
        TextStyle { order: self.order, intervals: self.intervals, ..TextStyle::in_zone(self.zone) }
    }
}

impl Default for TextStyle {
    fn default() -> TextStyle {
        TextStyle::DEFAULT
    }
}

impl DateStyle {
    /// The style of that name, in any case.
    pub fn named(word: &str) -> Option<DateStyle> {
        // PostgreSQL compares only the beginning of some names.
        let begins = |name: &str| word.get(..name.len()).is_some_and(|part| part.eq_ignore_ascii_case(name));
        Some(match () {
            () if word.eq_ignore_ascii_case("iso") => DateStyle::Iso,
            () if word.eq_ignore_ascii_case("sql") => DateStyle::Sql,
            () if begins("postgres") => DateStyle::Postgres,
            () if word.eq_ignore_ascii_case("german") => DateStyle::German,
            () => return None,
        })
    }

    /// Its name, as `SHOW` prints it.
    pub fn name(self) -> &'static str {
        match self {
            DateStyle::Iso => "ISO",
            DateStyle::Sql => "SQL",
            DateStyle::Postgres => "Postgres",
            DateStyle::German => "German",
        }
    }
}

impl DateOrder {
    /// The order of that name, in any case.
    pub fn named(word: &str) -> Option<DateOrder> {
        let is = |name: &str| word.eq_ignore_ascii_case(name);
        let begins = |name: &str| word.get(..name.len()).is_some_and(|part| part.eq_ignore_ascii_case(name));
        Some(match () {
            () if is("ymd") => DateOrder::Ymd,
            () if is("dmy") || begins("euro") => DateOrder::Dmy,
            () if is("mdy") || is("us") || begins("noneuro") => DateOrder::Mdy,
            () => return None,
        })
    }

    /// Its name, as `SHOW` prints it.
    pub fn name(self) -> &'static str {
        match self {
            DateOrder::Mdy => "MDY",
            DateOrder::Dmy => "DMY",
            DateOrder::Ymd => "YMD",
        }
    }
}

impl IntervalStyle {
    /// The names of all styles, in the order of PostgreSQL.
    pub const NAMES: &'static [&'static str] = &["postgres", "postgres_verbose", "sql_standard", "iso_8601"];

    /// The style of that name, in lower case.
    pub fn named(word: &str) -> Option<IntervalStyle> {
        Some(match word {
            "postgres" => IntervalStyle::Postgres,
            "postgres_verbose" => IntervalStyle::PostgresVerbose,
            "sql_standard" => IntervalStyle::SqlStandard,
            "iso_8601" => IntervalStyle::Iso8601,
            _ => return None,
        })
    }
}
