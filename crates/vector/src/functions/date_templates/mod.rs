//! Templates of dates and times: `to_char` fills them in, `to_date` and `to_timestamp` read with them.
//!
//! A template is a list of fields and of characters between them. Prefixes and suffixes of a field say how it is written:
//! `FM` without padding, `TM` with the locale's names, which are the English ones here, `TH` as an ordinal.

mod read;
mod write;

use crate::kernel::{Call, Text};
use crate::registry::RegistryBuilder;
use firn_base::{Interval, Result, datetime};
use read::Parts;
use write::Values;

pub use write::ordinal_suffix;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(i64, &str), _>("to_char(timestamp,text)", |call, (local, template)| {
        // An infinite one has no fields.
        let local = datetime::is_finite(local).then_some(local)?;
        fill(call, template, &Values::of_moment(local, None)).expect("timestamps have all fields")
    });
    builder.scalar::<(i64, &str), _>("to_char(timestamptz,text)", |call, (moment, template)| {
        if !datetime::is_finite(moment) {
            return Ok(None);
        }
        let zone = call.context.zone();
        let local = datetime::to_local(moment, zone)?;
        fill(call, template, &Values::of_moment(local, Some((zone, moment))))
    });
    builder.scalar::<(Interval, &str), _>("to_char(interval,text)", |call, (span, template)| {
        fill(call, template, &Values::of_interval(span))
    });
    builder.scalar::<(&str, &str), _>("to_date(text,text)", |call, (text, template)| {
        Parts::read(text, kept(call, template))?.moment(text)?.date(text)
    });
    builder.scalar::<(&str, &str), _>("to_timestamp(text,text)", |call, (text, template)| {
        let moment = Parts::read(text, kept(call, template))?.moment(text)?;
        moment.timestamptz(call.context.zone())
    });
}

/// Appends the template with its fields filled in. An empty one is NULL.
fn fill(call: &mut Call<'_>, template: &str, values: &Values<'_>) -> Result<Option<Text>> {
    let mut text = std::mem::take(&mut call.text);
    let written = write::write(kept(call, template), values, &mut text);
    call.text = text;
    written.map(|()| (!template.is_empty()).then_some(Text))
}

/// The template, which is taken apart only if it differs from that of the call before.
fn kept<'a>(call: &'a mut Call<'_>, text: &str) -> &'a [Node] {
    let kept = call.local.get::<(String, Vec<Node>)>(Default::default);
    if kept.0 != text {
        *kept = (text.to_owned(), parse(text));
    }
    &kept.1
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
#[derive(Clone, Copy, PartialEq, Debug)]
enum Case {
    Upper,
    Lower,
    Capital,
}

/// A part of a template.
#[derive(Clone, Copy, Debug)]
enum Node {
    Field(Field),
    /// A printable ASCII character that is no letter or digit.
    Separator(char),
    Space(char),
    /// Any other character, and each one in quotes.
    Character(char),
}

/// A field of a template.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// In capitals.
    name: &'static str,
    case: Case,
    /// `FM`
    is_filled: bool,
    /// `TM`
    is_localized: bool,
    /// `TH` or `th`
    ordinal: Option<Case>,
}

fn parse(template: &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut rest = template;
    while !rest.is_empty() {
        // A prefix before anything but a field is left out.
        let (mut is_filled, mut is_localized) = (false, false);
        match rest.get(..2) {
            Some("FM" | "fm") => (is_filled, rest) = (true, &rest[2..]),
            Some("TM" | "tm") => (is_localized, rest) = (true, &rest[2..]),
            _ => {}
        }
        if let Some((name, case, after)) = field(rest) {
            let (ordinal, after) = match after.get(..2) {
                Some("TH") => (Some(Case::Upper), &after[2..]),
                Some("th") => (Some(Case::Lower), &after[2..]),
                // A number in words is written in digits, by PostgreSQL as well.
                Some("SP") => (None, &after[2..]),
                _ => (None, after),
            };
            nodes.push(Node::Field(Field { name, case, is_filled, is_localized, ordinal }));
            rest = after;
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let mut characters = quoted.chars();
            while let Some(character) = characters.next() {
                match character {
                    '"' => break,
                    '\\' => nodes.push(Node::Character(characters.next().unwrap_or('\\'))),
                    other => nodes.push(Node::Character(other)),
                }
            }
            rest = characters.as_str();
        } else {
            // Outside quotes a backslash means something before a quote alone.
            let literal = rest.strip_prefix('\\').filter(|after| after.starts_with('"')).unwrap_or(rest);
            let mut characters = literal.chars();
            nodes.extend(characters.next().map(|character| match character {
                other if other.is_ascii_punctuation() => Node::Separator(other),
                other if is_space(other) => Node::Space(other),
                other => Node::Character(other),
            }));
            rest = characters.as_str();
        }
    }
    nodes
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

/// C's `isspace`.
fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t'..='\r')
}
