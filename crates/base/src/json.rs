//! JSON (RFC 8259) as text: its validation, and the writing of strings.
//!
//! Nesting uses no stack.

use crate::error::{Error, Result, SqlState};
use std::fmt::Write;

/// 22P02 unless a text is one JSON value, possibly surrounded by blanks.
pub fn check(text: &str) -> Result<()> {
    let mut reader = Reader { text, place: 0 };
    // The containers that are open.
    let mut open: Vec<Container> = Vec::new();
    'value: loop {
        match reader.next_byte() {
            Some(b'{') => {
                reader.place += 1;
                if reader.next_byte() != Some(b'}') {
                    reader.key("Expected string or \"}\"")?;
                    open.push(Container::Object);
                    continue 'value;
                }
                reader.place += 1;
            }
            Some(b'[') => {
                reader.place += 1;
                if reader.next_byte() != Some(b']') {
                    open.push(Container::Array);
                    continue 'value;
                }
                reader.place += 1;
            }
            Some(b'"') => reader.string()?,
            _ => reader.word()?,
        }
        loop {
            let Some(container) = open.last() else {
                return match reader.next_byte() {
                    None => Ok(()),
                    Some(_) => Err(reader.unexpected("Expected end of input")),
                };
            };
            let (end, expected) = match container {
                Container::Object => (b'}', "Expected \",\" or \"}\""),
                Container::Array => (b']', "Expected \",\" or \"]\""),
            };
            match reader.next_byte() {
                Some(b',') => {
                    reader.place += 1;
                    if matches!(container, Container::Object) {
                        reader.next_byte();
                        reader.key("Expected string")?;
                    }
                    continue 'value;
                }
                Some(byte) if byte == end => {
                    reader.place += 1;
                    open.pop();
                }
                _ => return Err(reader.unexpected(expected)),
            }
        }
    }
}

enum Container {
    Object,
    Array,
}

struct Reader<'t> {
    text: &'t str,
    place: usize,
}

impl Reader<'_> {
    /// The next byte that is not blank, which becomes the reader's position.
    fn next_byte(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.place), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.place += 1;
        }
        bytes.get(self.place).copied()
    }

    /// A key and the colon after it.
    fn key(&mut self, expected: &str) -> Result<()> {
        match self.next_byte() {
            Some(b'"') => self.string()?,
            _ => return Err(self.unexpected(expected)),
        }
        match self.next_byte() {
            Some(b':') => self.place += 1,
            _ => return Err(self.unexpected("Expected \":\"")),
        }
        Ok(())
    }

    /// A string; the reader is at its first quote.
    fn string(&mut self) -> Result<()> {
        let start = self.place;
        let bytes = self.text.as_bytes();
        self.place += 1;
        // Whether the previous escape was a high surrogate.
        let mut is_high = false;
        loop {
            let Some(byte) = bytes.get(self.place) else {
                return Err(invalid(format!("Token \"{}\" is invalid.", &self.text[start..])));
            };
            if is_high && *byte != b'\\' {
                return Err(invalid("Unicode low surrogate must follow a high surrogate.".to_owned()));
            }
            match byte {
                b'"' => {
                    self.place += 1;
                    return Ok(());
                }
                b'\\' => is_high = self.escape(is_high)?,
                0..0x20 => {
                    return Err(invalid(format!("Character with value 0x{byte:02x} must be escaped.")));
                }
                _ => self.place += 1,
            }
        }
    }

    /// An escape; the reader is at its backslash. Returns whether it is a high surrogate.
    fn escape(&mut self, is_behind_high: bool) -> Result<bool> {
        let rest = &self.text[self.place + 1..];
        let Some(kind) = rest.chars().next() else {
            return Err(invalid(format!("Token \"{}\" is invalid.", &self.text[self.place..])));
        };
        let low = || invalid("Unicode low surrogate must follow a high surrogate.".to_owned());
        if kind != 'u' {
            if is_behind_high {
                return Err(low());
            }
            if !matches!(kind, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') {
                return Err(invalid(format!("Escape sequence \"\\{kind}\" is invalid.")));
            }
            self.place += 2;
            return Ok(false);
        }
        let digits = rest.get(1..5).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some(digits) = digits else {
            return Err(invalid("\"\\u\" must be followed by four hexadecimal digits.".to_owned()));
        };
        self.place += 6;
        match u32::from_str_radix(digits, 16).expect("these are hexadecimal digits") {
            0xd800..0xdc00 if is_behind_high => {
                Err(invalid("Unicode high surrogate must not follow a high surrogate.".to_owned()))
            }
            0xd800..0xdc00 => Ok(true),
            0xdc00..0xe000 if !is_behind_high => Err(low()),
            0xdc00..0xe000 => Ok(false),
            _ if is_behind_high => Err(low()),
            _ => Ok(false),
        }
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<()> {
        let word = self.token();
        if word.is_empty() {
            return Err(self.unexpected("Expected JSON value"));
        }
        match matches!(word, "true" | "false" | "null") || is_number(word) {
            true => {
                self.place += word.len();
                Ok(())
            }
            false => Err(invalid(format!("Token \"{word}\" is invalid."))),
        }
    }

    /// The letters, digits and signs from here on.
    fn token(&self) -> &str {
        let rest = &self.text[self.place..];
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
        &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())]
    }

    /// The error that something else was found than expected.
    #[cold]
    fn unexpected(&mut self, expected: &str) -> Error {
        if self.next_byte().is_none() {
            return invalid("The input string ended unexpectedly.".to_owned());
        }
        let token = self.token();
        let found = match token {
            "" => self.text[self.place..].chars().next().map(String::from).unwrap_or_default(),
            token => token.to_owned(),
        };
        invalid(format!("{expected}, but found \"{found}\"."))
    }
}

/// Whether a text is a JSON number: no leading zeros, and digits on both sides of a point.
pub fn is_number(text: &str) -> bool {
    fn digits(text: &str) -> (usize, &str) {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        (end, &text[end..])
    }
    let (whole, mut rest) = digits(text.strip_prefix('-').unwrap_or(text));
    let has_leading_zero = whole > 1 && text.trim_start_matches('-').starts_with('0');
    if whole == 0 || has_leading_zero {
        return false;
    }
    if let Some(fraction) = rest.strip_prefix('.') {
        let (count, behind) = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = behind;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let (count, behind) = digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
        return count > 0 && behind.is_empty();
    }
    rest.is_empty()
}

/// Appends a string in quotes.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..' ' => write!(out, "\\u{:04x}", character as u32).expect("a write to a string succeeds"),
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cold]
fn invalid(detail: String) -> Error {
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json")
        .with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rfc_8259_allows_is_accepted() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let texts = [
            "1",
            " -0.5e+3 ",
            "\"a\\n\\u00e4\\ud834\\udd1e\"",
            "[]",
            "{}",
            "[1, [2, {\"a\": null}], true]",
            "{\"a\" : {\"b\":[ ]} , \"c\":\"\"}",
            &deep,
        ];
        for text in texts {
            assert_eq!(check(text).map_err(|error| error.to_string()), Ok(()), "{text}");
        }
    }

    /// The details are those of PostgreSQL 15.
    #[test]
    fn everything_else_is_refused_with_what_was_expected() {
        let cases = [
            ("{\"a\":1,}", "Expected string, but found \"}\"."),
            ("{\"a\":1", "The input string ended unexpectedly."),
            ("", "The input string ended unexpectedly."),
            ("\"a", "Token \"\"a\" is invalid."),
            ("nul", "Token \"nul\" is invalid."),
            ("[1 2]", "Expected \",\" or \"]\", but found \"2\"."),
            ("\"\\x\"", "Escape sequence \"\\x\" is invalid."),
            ("01", "Token \"01\" is invalid."),
            ("{1:2}", "Expected string or \"}\", but found \"1\"."),
            ("1 1", "Expected end of input, but found \"1\"."),
        ];
        for (text, detail) in cases {
            let error = check(text).unwrap_err();
            assert_eq!(
                (error.state(), error.detail()),
                (SqlState::INVALID_TEXT_REPRESENTATION, Some(detail)),
                "{text}"
            );
        }
        for text in
            ["+1", "1.", ".5", "1e", "-", "\"\u{1}\"", "\"\\ud834\"", "\"\\udd1e\"", "[,]", "{\"a\"}", "]"]
        {
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn strings_are_written_with_escapes() {
        let mut out = String::new();
        write_string("a\"\\\n\u{1}ä", &mut out);
        assert_eq!(out, "\"a\\\"\\\\\\n\\u0001ä\"");
        assert!(check(&out).is_ok());
    }
}
