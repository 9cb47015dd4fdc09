//! LIKE, ILIKE, and the position of one text in another.
//!
//! A pattern that is the same in all rows is taken apart once: the parts between `%` are found one after the other, bytes in bytes.
//! That is right for UTF-8, in which no character's bytes begin within another's.

use super::texts::lower;
use crate::kernel::Text;
use crate::kernel::prepared::prepared;
use crate::kernel::scalar::scalar;
use crate::registry::{FunctionId, RegistryBuilder};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use memchr::memmem::Finder;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    let likes = scalar::<(&str, &str), _>(|_, (text, pattern)| like(text, pattern, false));
    let likes =
        prepared::<&str, Pattern, _>(likes, 1, Pattern::new, |_, pattern, text| pattern.matches(text));
    builder.kernel(
        "textlike(text,text) like(text,text) namelike(name,text) like(name,text) bpcharlike(bpchar,text)",
        Arc::new(likes),
    );
    let differs =
        scalar::<(&str, &str), _>(|_, (text, pattern)| Ok::<_, Error>(!like(text, pattern, false)?));
    let differs = prepared::<&str, Pattern, _>(differs, 1, Pattern::new, |_, pattern, text| {
        Ok::<_, Error>(!pattern.matches(text)?)
    });
    builder.kernel(
        "textnlike(text,text) notlike(text,text) namenlike(name,text) notlike(name,text) bpcharnlike(bpchar,text)",
        Arc::new(differs),
    );
    builder.scalar::<(&str, &str), _>(
        "texticlike(text,text) nameiclike(name,text) bpchariclike(bpchar,text)",
        |_, (text, pattern)| like(text, pattern, true),
    );
    builder.scalar::<(&str, &str), _>(
        "texticnlike(text,text) nameicnlike(name,text) bpcharicnlike(bpchar,text)",
        |_, (text, pattern)| Ok::<_, Error>(!like(text, pattern, true)?),
    );
    let position = scalar::<(&str, &str), _>(|_, (text, part)| position(text, text.find(part)));
    let position = prepared::<&str, Finder<'static>, _>(
        position,
        1,
        |part| Finder::new(part).into_owned(),
        |_, part, text| self::position(text, part.find(text.as_bytes())),
    );
    builder.kernel("strpos(text,text) position(text,text)", Arc::new(position));
    builder.scalar::<(&str, &str), _>("like_escape(text,text)", |call, (pattern, escape)| {
        like_escape(pattern, escape, &mut call.text)?;
        Ok::<_, Error>(Text)
    });
}

/// The position of a character, from 1, whose first byte is at a place; 0 without a place.
fn position(text: &str, place: Option<usize>) -> i32 {
    place.map_or(0, |place| text[..place].chars().count() as i32 + 1)
}

/// A pattern of LIKE that is asked of many texts.
enum Pattern {
    /// This text alone.
    Whole(Box<[u8]>),
    /// What a text begins with, what lies between in this order, and what it ends with: the parts between `%`.
    Parts { start: Box<[u8]>, between: Box<[Finder<'static>]>, end: Box<[u8]> },
    /// A pattern with `_`, or one that is not valid.
    Steps(Box<str>),
}

impl Pattern {
    fn new(pattern: &str) -> Pattern {
        let (mut parts, mut rest) = (vec![String::new()], pattern);
        loop {
            match step(rest) {
                Ok(None) => break,
                Ok(Some((Step::Any, behind))) => {
                    parts.push(String::new());
                    rest = behind;
                }
                Ok(Some((Step::Is(character), behind))) => {
                    parts.last_mut().expect("there is one").push(character);
                    rest = behind;
                }
                Ok(Some((Step::One, _))) | Err(_) => return Pattern::Steps(pattern.into()),
            }
        }
        let bytes = |part: &str| Box::from(part.as_bytes());
        match &parts[..] {
            [whole] => Pattern::Whole(bytes(whole)),
            [start, between @ .., end] => {
                let between = between.iter().filter(|part| !part.is_empty());
                let between = between.map(|part| Finder::new(part).into_owned()).collect();
                Pattern::Parts { start: bytes(start), between, end: bytes(end) }
            }
            [] => unreachable!("there is a part before the first %"),
        }
    }

    fn matches(&self, text: &str) -> Result<bool> {
        let bytes = text.as_bytes();
        Ok(match self {
            Pattern::Whole(whole) => *bytes == **whole,
            Pattern::Parts { start, between, end } => {
                let rest = bytes.strip_prefix(&**start).and_then(|rest| rest.strip_suffix(&**end));
                let Some(mut rest) = rest else { return Ok(false) };
                // The first place of each part leaves most for those behind it.
                between.iter().all(|part| {
                    let found = part.find(rest);
                    rest = found.map_or(&[], |place| &rest[place + part.needle().len()..]);
                    found.is_some()
                })
            }
            Pattern::Steps(pattern) => like(text, pattern, false)?,
        })
    }
}

/// `textlike(text, text)`: what `~~` and LIKE call.
pub const TEXT_LIKE: FunctionId = FunctionId(850);

/// `starts_with(text, text)`, and `^@`.
pub const STARTS_WITH: FunctionId = FunctionId(3696);

/// What a text begins with that a pattern of LIKE matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// The characters before the first wildcard.
    pub prefix: String,
    /// What the pattern says of what follows.
    pub rest: Rest,
}

/// What a pattern says of what follows its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Nothing follows.
    Nothing,
    /// Anything may follow.
    Anything,
    /// Not anything.
    Restricted,
}

impl Beginning {
    /// The beginning of a pattern; `None` if it is not valid.
    pub fn of(pattern: &str) -> Option<Beginning> {
        let (mut prefix, mut rest) = (String::new(), pattern);
        let (mut is_whole, mut is_any) = (true, true);
        while let Some((next, behind)) = step(rest).ok()? {
            match next {
                Step::Is(character) if is_whole => prefix.push(character),
                next => {
                    is_whole = false;
                    is_any &= next == Step::Any;
                }
            }
            rest = behind;
        }
        let rest = match (is_whole, is_any) {
            (true, _) => Rest::Nothing,
            (false, true) => Rest::Anything,
            (false, false) => Rest::Restricted,
        };
        Some(Beginning { prefix, rest })
    }
}

/// A string that is greater than all that begin with another one, which it replaces the last character of by the next one; `None` if there
/// is none.
pub fn successor(mut prefix: String) -> Option<String> {
    while let Some(last) = prefix.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            prefix.push(next);
            return Some(prefix);
        }
    }
    None
}

/// A step of a pattern.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Any,
    One,
    Is(char),
}

/// The first step of a pattern, and what follows it.
fn step(pattern: &str) -> Result<Option<(Step, &str)>> {
    let mut characters = pattern.chars();
    let step = match characters.next() {
        None => return Ok(None),
        Some('%') => Step::Any,
        Some('_') => Step::One,
        Some('\\') => Step::Is(characters.next().ok_or_else(|| {
            Error::new(SqlState::new("22025"), "LIKE pattern must not end with escape character")
        })?),
        Some(other) => Step::Is(other),
    };
    Ok(Some((step, characters.as_str())))
}

/// Whether a text matches a pattern. It goes back to the last `%` alone, so that it takes time in proportion to both lengths.
pub fn like(text: &str, pattern: &str, ignores_case: bool) -> Result<bool> {
    let fold = |character: char| if ignores_case { lower(character) } else { character };
    let (mut text, mut pattern) = (text, pattern);
    // What follows the last `%`, and the text from which it is tried next.
    let mut again: Option<(&str, &str)> = None;
    loop {
        // At the end of the text no other place to begin helps, and a pattern that is not valid is not looked at.
        if text.is_empty() {
            return Ok(pattern.bytes().all(|byte| byte == b'%'));
        }
        let next = step(pattern)?;
        let character = text.chars().next();
        match (next, character) {
            (Some((Step::Any, rest)), _) => {
                // A pattern that ends by % matches whatever comes; one that is not valid fails only where it is reached.
                if rest.is_empty() {
                    return Ok(true);
                }
                (pattern, again) = (rest, Some((rest, text)));
                continue;
            }
            (Some((Step::One, rest)), Some(character)) => {
                (pattern, text) = (rest, &text[character.len_utf8()..]);
                continue;
            }
            (Some((Step::Is(wanted), rest)), Some(character)) if fold(wanted) == fold(character) => {
                (pattern, text) = (rest, &text[character.len_utf8()..]);
                continue;
            }
            _ => {}
        }
        let Some((rest, from)) = again else { return Ok(false) };
        let Some(skipped) = from.chars().next() else { return Ok(false) };
        let from = &from[skipped.len_utf8()..];
        (pattern, text, again) = (rest, from, Some((rest, from)));
    }
}

/// Appends a LIKE pattern with another escape character as one with the backslash. An empty one escapes nothing.
fn like_escape(pattern: &str, escape: &str, out: &mut String) -> Result<()> {
    let mut characters = escape.chars();
    let escape = characters.next();
    if characters.next().is_some() {
        return Err(Error::new(SqlState::new("22025"), "invalid escape string")
            .with_hint("Escape string must be empty or one character."));
    }
    let mut is_escaped = false;
    for character in pattern.chars() {
        if Some(character) == escape && !is_escaped {
            out.push('\\');
            is_escaped = true;
            continue;
        }
        if character == '\\' && !is_escaped {
            out.push('\\');
        }
        out.push(character);
        is_escaped = false;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::random::Random;

    /// Texts and patterns of few characters, so that many match.
    #[test]
    fn a_pattern_that_was_taken_apart_matches_what_its_steps_match() {
        let mut random = Random::seeded(42);
        let mut drawn = |characters: &[char], most: i64| -> String {
            let length = random.uniform(0, most);
            (0..length).map(|_| characters[random.uniform(0, characters.len() as i64 - 1) as usize]).collect()
        };
        let (mut matched, mut refused) = (0, 0);
        for _ in 0..50_000 {
            let text = drawn(&['a', 'b', 'ä', '%', '_'], 8);
            let pattern = drawn(&['a', 'b', 'ä', '%', '%', '%', '_', '\\'], 6);
            let (found, expected) = (Pattern::new(&pattern).matches(&text), like(&text, &pattern, false));
            if let (Some(Beginning { prefix, rest }), Ok(matches)) = (Beginning::of(&pattern), &expected) {
                let begins = text.starts_with(&prefix);
                match rest {
                    Rest::Nothing => assert_eq!(text == prefix, *matches, "{text} {pattern}"),
                    Rest::Anything => assert_eq!(begins, *matches, "{text} {pattern}"),
                    Rest::Restricted => assert!(begins || !matches, "{text} {pattern}"),
                }
            }
            matched += usize::from(matches!(expected, Ok(true)));
            refused += usize::from(expected.is_err());
            assert_eq!(
                found.map_err(|error| error.state()),
                expected.map_err(|error| error.state()),
                "{text} {pattern}"
            );
        }
        assert!(matched > 1000 && refused > 100);
    }
}
