//! Arrays in PostgreSQL's two formats, as clients send them. Arrays are no type of column yet; they
//! come as parameters, and have one dimension.
//!
//! ```text
//! text     {1,NULL,"a b"}
//! binary   dimensions:i32  has_nulls:i32  element type:u32
//!          then per dimension  length:i32  first index:i32
//!          then per element    length:i32 (-1 for NULL)  bytes
//! ```

use crate::error::{Error, Result, SqlState};
use crate::time_zone::TimeZoneSetting;
use crate::types::{ParameterType, SqlType};
use crate::value::Value;
use crate::{binary, text};

/// Reads an array of `element` from text; 22P02 if it is none.
pub fn parse(text: &str, element: SqlType, zone: &TimeZoneSetting) -> Result<Value> {
    let read = |element_text: Option<String>| match element_text {
        Some(element_text) => text::parse(&element_text, element, zone),
        None => Ok(Value::Null),
    };
    Ok(Value::Array(split(text)?.into_iter().map(read).collect::<Result<_>>()?))
}

/// The elements of an array as text; `None` for NULL. 22P02 if it is no array, 0A000 if it has more
/// than one dimension.
pub fn split(text: &str) -> Result<Vec<Option<String>>> {
    let whole = text.trim_matches(is_blank);
    let Some(inside) = whole.strip_prefix('{') else {
        let detail = match whole.starts_with('[') {
            true => "Arrays begin at index 1 here; leave the bounds out.",
            false => "Array value must start with \"{\" or dimension information.",
        };
        return Err(malformed(text, detail));
    };
    let mut rest = Elements { text, characters: inside.chars() };
    let mut elements = Vec::new();
    loop {
        let (element, end) = rest.next()?;
        match element {
            Element::Missing if end == '}' && elements.is_empty() => {}
            Element::Missing => return Err(malformed(text, &format!("Unexpected \"{end}\" character."))),
            Element::Null => elements.push(None),
            Element::Text(element) => elements.push(Some(element)),
        }
        if end == '}' {
            break;
        }
    }
    match rest.characters.as_str() {
        "" => Ok(elements),
        _ => Err(malformed(text, "Junk after closing right brace.")),
    }
}

/// What stands between two commas.
enum Element {
    Missing,
    Null,
    Text(String),
}

/// The rest of an array's text.
struct Elements<'a> {
    text: &'a str,
    characters: std::str::Chars<'a>,
}

impl Elements<'_> {
    /// The next element and the comma or brace behind it.
    fn next(&mut self) -> Result<(Element, char)> {
        let mut element = String::new();
        // Blanks at the end go, but for those behind a backslash or in quotes.
        let mut kept = 0;
        let (mut quoted, mut escaped) = (false, false);
        loop {
            let character = self.character()?;
            match character {
                ',' | '}' => {
                    element.truncate(kept);
                    let found = match quoted || escaped {
                        _ if element.is_empty() && !quoted => Element::Missing,
                        false if element.eq_ignore_ascii_case("null") => Element::Null,
                        _ => Element::Text(element),
                    };
                    return Ok((found, character));
                }
                '{' if element.is_empty() && !quoted => {
                    return Err(Error::unsupported("an array of more than one dimension")
                        .with_hint("Pass one array for each of its rows."));
                }
                '{' => return Err(malformed(self.text, "Unexpected \"{\" character.")),
                '"' if !element.is_empty() || quoted => {
                    return Err(malformed(self.text, "Unexpected array element."));
                }
                '"' => {
                    quoted = true;
                    self.quoted(&mut element)?;
                    kept = element.len();
                }
                blank if is_blank(blank) => {
                    if !element.is_empty() && !quoted {
                        element.push(blank);
                    }
                }
                _ if quoted => return Err(malformed(self.text, "Unexpected array element.")),
                '\\' => {
                    escaped = true;
                    element.push(self.character()?);
                    kept = element.len();
                }
                other => {
                    element.push(other);
                    kept = element.len();
                }
            }
        }
    }

    /// Reads up to the closing quote.
    fn quoted(&mut self, element: &mut String) -> Result<()> {
        loop {
            match self.character()? {
                '"' => return Ok(()),
                '\\' => element.push(self.character()?),
                other => element.push(other),
            }
        }
    }

    fn character(&mut self) -> Result<char> {
        self.characters.next().ok_or_else(|| malformed(self.text, "Unexpected end of input."))
    }
}

/// What C calls a space; Rust leaves the vertical tab out.
fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace() || character == '\u{b}'
}

#[cold]
fn malformed(text: &str, detail: &str) -> Error {
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{text}\""))
        .with_detail(detail)
}

/// Appends an array as text.
pub fn write(elements: &[Value], element: SqlType, zone: &TimeZoneSetting, out: &mut String) {
    out.push('{');
    let mut written = String::new();
    for (position, value) in elements.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        if value.is_null() {
            out.push_str("NULL");
            continue;
        }
        written.clear();
        text::write(value, element, zone, &mut written);
        write_element(&written, out);
    }
    out.push('}');
}

/// Appends an element, in quotes if it would be taken for something else without.
fn write_element(text: &str, out: &mut String) {
    let is_special = |c: char| is_blank(c) || matches!(c, '{' | '}' | ',' | '"' | '\\');
    if !text.is_empty() && !text.contains(is_special) && !text.eq_ignore_ascii_case("null") {
        out.push_str(text);
        return;
    }
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}

/// Reads an array of `element` from its binary format; 22P03 if the bytes are none, 42804 if its
/// elements are of another type, 0A000 if it has more than one dimension.
pub fn decode(bytes: &[u8], element: SqlType) -> Result<Value> {
    let mut rest = bytes;
    let dimensions = word(&mut rest)?;
    let has_nulls = word(&mut rest)?;
    let found = word(&mut rest)? as u32;
    if !matches!(has_nulls, 0 | 1) {
        return Err(invalid("invalid array flags"));
    }
    if SqlType::from_oid(found, -1).map(ParameterType::array_of) != Some(ParameterType::array_of(element)) {
        return Err(Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "binary data has array element type {found} instead of expected {} ({element})",
                element.oid()
            ),
        ));
    }
    match dimensions {
        0 if rest.is_empty() => return Ok(Value::Array(Vec::new())),
        1 => {}
        2..=6 => {
            return Err(Error::unsupported("an array of more than one dimension")
                .with_hint("Pass one array for each of its rows."));
        }
        _ => return Err(invalid("invalid number of array dimensions")),
    }
    let length = usize::try_from(word(&mut rest)?).map_err(|_| invalid("invalid array length"))?;
    word(&mut rest)?; // Where its indexes begin, which nothing here asks for.
    // Each element has a length, so that a number that lies is found out before memory is spent on it.
    if length > rest.len() / 4 {
        return Err(invalid("insufficient data left in message"));
    }
    let mut elements = Vec::with_capacity(length);
    for _ in 0..length {
        elements.push(match word(&mut rest)? {
            -1 => Value::Null,
            length => {
                let cell = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
                let (cell, others) = cell.ok_or_else(|| invalid("insufficient data left in message"))?;
                rest = others;
                binary::decode(cell, element)?
            }
        });
    }
    match rest {
        [] => Ok(Value::Array(elements)),
        _ => Err(invalid("incorrect binary data format of an array")),
    }
}

fn word(rest: &mut &[u8]) -> Result<i32> {
    let (word, others) =
        rest.split_first_chunk().ok_or_else(|| invalid("insufficient data left in message"))?;
    *rest = others;
    Ok(i32::from_be_bytes(*word))
}

#[cold]
fn invalid(message: &str) -> Error {
    Error::new(SqlState::INVALID_BINARY_REPRESENTATION, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String> {
        let Value::Array(elements) = parse(text, SqlType::Text, &TimeZoneSetting::UTC)? else { panic!() };
        let mut out = String::new();
        write(&elements, SqlType::Text, &TimeZoneSetting::UTC, &mut out);
        Ok(out)
    }

    #[test]
    fn arrays_are_read_from_text_as_postgres_reads_them() {
        for (text, expected) in [
            ("{1, 2,3}", "{1,2,3}"),
            ("{a,\"b, \\\"c\",NULL, \"NULL\"}", "{a,\"b, \\\"c\",NULL,\"NULL\"}"),
            (" { } ", "{}"),
            ("{\"\"}", "{\"\"}"),
            ("{ a b , c }", "{\"a b\",c}"),
            ("{N\\ULL,null}", "{\"NULL\",NULL}"),
            ("{a\\ ,\\\\}", "{\"a \",\"\\\\\"}"),
            ("{снег}", "{снег}"),
        ] {
            assert_eq!(shown(text).unwrap(), expected, "{text}");
        }
        for bad in
            ["", "1,2", "{1", "{1,}", "{,1}", "{1}2", "{\"a\"b}", "{a\"b\"}", "{\"a", "{a\\", "[1:2]={1,2}"]
        {
            assert_eq!(shown(bad).unwrap_err().state(), SqlState::INVALID_TEXT_REPRESENTATION, "{bad}");
        }
        assert_eq!(shown("{{1},{2}}").unwrap_err().state(), SqlState::FEATURE_NOT_SUPPORTED);
    }

    #[test]
    fn an_element_that_is_no_value_of_the_type_is_refused() {
        let error = parse("{1,x}", SqlType::Integer, &TimeZoneSetting::UTC).unwrap_err();
        assert_eq!(error.state(), SqlState::INVALID_TEXT_REPRESENTATION);
    }

    fn binary(words: &[i32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn arrays_are_read_from_their_binary_format() {
        let array = binary(&[1, 1, 23, 2, 1, 4, 258, -1]);
        let expected = Value::Array(vec![Value::Integer(258), Value::Null]);
        assert_eq!(decode(&array, SqlType::Integer).unwrap(), expected);
        assert_eq!(decode(&binary(&[0, 0, 25]), SqlType::Text).unwrap(), Value::Array(Vec::new()));
        // Names and strings of limited length are texts.
        assert_eq!(decode(&binary(&[0, 0, 1043]), SqlType::Text).unwrap(), Value::Array(Vec::new()));
        let state = |words: &[i32]| decode(&binary(words), SqlType::Integer).unwrap_err().state();
        assert_eq!(state(&[1, 0, 20, 0, 1]), SqlState::DATATYPE_MISMATCH);
        assert_eq!(state(&[2, 0, 23, 1, 1, 1, 1, 4, 7]), SqlState::FEATURE_NOT_SUPPORTED);
    }

    /// Cuts a good array everywhere and puts numbers that lie into its header.
    #[test]
    fn bytes_that_are_no_array_are_refused() {
        let good = binary(&[1, 0, 23, 1, 1, 4, 7]);
        for cut in 0..good.len() {
            assert!(decode(&good[..cut], SqlType::Integer).is_err(), "{cut}");
        }
        for lie in [
            &[1, 0, 23, i32::MAX, 1, 4, 7][..],
            &[1, 0, 23, -1, 1],
            &[1, 2, 23, 1, 1, 4, 7],
            &[-1, 0, 23],
            &[1, 0, 23, 1, 1, 5, 7],
            &[1, 0, 23, 1, 1, 4, 7, 7],
        ] {
            let state = decode(&binary(lie), SqlType::Integer).unwrap_err().state();
            assert_eq!(state, SqlState::INVALID_BINARY_REPRESENTATION, "{lie:?}");
        }
    }
}
