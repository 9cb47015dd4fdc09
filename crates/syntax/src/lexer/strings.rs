//! Quoted tokens: where they end, and what they stand for.
//!
//! A token keeps only its place. Strings with escapes are decoded twice: once to find mistakes in the
//! order of the text, and once when the parser takes the value.

use super::{Lexer, SPACE, WORD, is};
use crate::span::error_at;
use crate::token::{Token, TokenKind};
use firn_base::{Error, SqlState};

const INVALID_ESCAPE_SEQUENCE: SqlState = SqlState::new("22025");

/// The value of a string token or a quoted identifier that the lexer has found to be right.
pub(crate) fn value(text: &str, token: Token, standard_strings: bool) -> Box<str> {
    let raw = token.span.of(text);
    let mut lexer = Lexer::new(text, standard_strings);
    lexer.at = token.span.start as usize;
    let start = lexer.at;
    let found = match token.kind {
        TokenKind::String { plain: true } => return raw[1..raw.len() - 1].into(),
        TokenKind::DollarString => {
            let tag = raw[1..].find('$').expect("the tag ends") + 2;
            return raw[tag..raw.len() - tag].into();
        }
        TokenKind::String { plain: false } => lexer.quoted(start, b'\'', true),
        TokenKind::QuotedIdentifier => lexer.quoted(start, b'"', false),
        TokenKind::EscapeString => {
            lexer.at += usize::from(raw.as_bytes()[0] != b'\'');
            lexer.escaped(start)
        }
        TokenKind::BitString | TokenKind::HexString => {
            lexer.at += 1;
            lexer.bits_body(start, "")
        }
        TokenKind::UnicodeString | TokenKind::UnicodeIdentifier => {
            lexer.at += 2;
            return match lexer.unicode_value(start, token.kind) {
                Ok(value) => value.into(),
                Err(token) => unreachable!("{token:?} was decoded before"),
            };
        }
        _ => unreachable!("{token:?} has no value in quotes"),
    };
    match found {
        Ok(bytes) => String::from_utf8(bytes).expect("checked by the lexer").into(),
        Err(token) => unreachable!("{token:?} was decoded before"),
    }
}

impl Lexer<'_> {
    pub(super) fn plain_string(&mut self, start: usize) -> Token {
        if !self.standard_strings {
            return self.escape_string(start);
        }
        // The usual string has neither doubled quotes nor a continuation.
        if let Some(len) = memchr::memchr(b'\'', &self.bytes[start + 1..]) {
            self.at = start + len + 2;
            if self.byte(0) != b'\'' && self.continuation().is_none() {
                return self.token(TokenKind::String { plain: true }, start);
            }
            self.at = start;
        }
        match self.quoted(start, b'\'', true) {
            Ok(_) => self.token(TokenKind::String { plain: false }, start),
            Err(token) => token,
        }
    }

    pub(super) fn escape_string(&mut self, start: usize) -> Token {
        match self.escaped(start) {
            Ok(bytes) => match check_utf8(&bytes) {
                Ok(()) => self.token(TokenKind::EscapeString, start),
                Err(error) => self.invalid(error, start),
            },
            Err(token) => token,
        }
    }

    pub(super) fn bits(&mut self, start: usize, kind: TokenKind, unterminated: &str) -> Token {
        match self.bits_body(start, unterminated) {
            Ok(_) => self.token(kind, start),
            Err(token) => token,
        }
    }

    pub(super) fn quoted_identifier(&mut self, start: usize, kind: TokenKind) -> Token {
        match self.quoted(start, b'"', false) {
            Ok(name) if name.is_empty() => self.mistake("zero-length delimited identifier", start),
            Ok(_) => self.token(kind, start),
            Err(token) => token,
        }
    }

    pub(super) fn unicode_string(&mut self, start: usize) -> Token {
        if !self.standard_strings {
            let error = error_at(
                SqlState::FEATURE_NOT_SUPPORTED,
                "unsafe use of string constant with Unicode escapes",
                self.text,
                start as u32,
            )
            .with_detail(
                "String constants with Unicode escapes cannot be used when standard_conforming_strings is off.",
            );
            return self.invalid(error, start);
        }
        match self.unicode_value(start, TokenKind::UnicodeString) {
            Ok(_) => self.token(TokenKind::UnicodeString, start),
            Err(token) => token,
        }
    }

    /// The same token with its UESCAPE.
    pub(super) fn with_unicode_escape(&mut self, token: Token) -> Token {
        if token.kind != TokenKind::UnicodeIdentifier {
            return token;
        }
        let start = token.span.start as usize;
        self.at = start + 2;
        match self.unicode_value(start, token.kind) {
            Ok(_) => self.token(token.kind, start),
            Err(token) => token,
        }
    }

    /// What stands between quotes in which a doubled quote is one; the lexer is at the first quote.
    fn quoted(&mut self, start: usize, quote: u8, may_continue: bool) -> Result<Vec<u8>, Token> {
        let mut value = Vec::new();
        self.at += 1;
        loop {
            let Some(len) = memchr::memchr(quote, &self.bytes[self.at..]) else {
                self.at = self.bytes.len();
                let message = if quote == b'"' {
                    "unterminated quoted identifier"
                } else {
                    "unterminated quoted string"
                };
                return Err(self.mistake(message, start));
            };
            value.extend_from_slice(&self.bytes[self.at..self.at + len]);
            self.at += len + 1;
            if self.byte(0) == quote {
                value.push(quote);
                self.at += 1;
            } else if may_continue && let Some(next) = self.continuation() {
                self.at = next + 1;
            } else {
                return Ok(value);
            }
        }
    }

    fn bits_body(&mut self, start: usize, unterminated: &str) -> Result<Vec<u8>, Token> {
        let mut value = Vec::new();
        self.at += 1;
        loop {
            let Some(len) = memchr::memchr(b'\'', &self.bytes[self.at..]) else {
                self.at = self.bytes.len();
                return Err(self.mistake(unterminated, start));
            };
            value.extend_from_slice(&self.bytes[self.at..self.at + len]);
            self.at += len + 1;
            match self.continuation() {
                Some(next) => self.at = next + 1,
                None => return Ok(value),
            }
        }
    }

    /// Behind a closing quote: where the string goes on, which takes a line feed in between.
    fn continuation(&self) -> Option<usize> {
        let bytes = self.bytes;
        let mut at = self.at;
        let mut has_newline = false;
        loop {
            match *bytes.get(at)? {
                b'\n' | b'\r' => {
                    has_newline = true;
                    at += 1;
                }
                byte if is(byte, SPACE) => at += 1,
                b'-' if bytes.get(at + 1) == Some(&b'-') => {
                    at += memchr::memchr2(b'\n', b'\r', &bytes[at..])?;
                }
                b'\'' if has_newline => return Some(at),
                _ => return None,
            }
        }
    }

    /// The value of `'…'` with backslashes; the lexer is at the quote. It need not be UTF-8.
    fn escaped(&mut self, start: usize) -> Result<Vec<u8>, Token> {
        let mut value = Vec::new();
        self.at += 1;
        loop {
            let Some(len) = memchr::memchr2(b'\'', b'\\', &self.bytes[self.at..]) else {
                self.at = self.bytes.len();
                return Err(self.mistake("unterminated quoted string", start));
            };
            value.extend_from_slice(&self.bytes[self.at..self.at + len]);
            self.at += len + 1;
            if self.bytes[self.at - 1] == b'\\' {
                self.escape(start, &mut value)?;
            } else if self.byte(0) == b'\'' {
                value.push(b'\'');
                self.at += 1;
            } else if let Some(next) = self.continuation() {
                self.at = next + 1;
            } else {
                return Ok(value);
            }
        }
    }

    /// One escape; the lexer is behind its backslash.
    fn escape(&mut self, start: usize, value: &mut Vec<u8>) -> Result<(), Token> {
        let Some(&byte) = self.bytes.get(self.at) else {
            return Err(self.mistake("unterminated quoted string", start));
        };
        match byte {
            b'u' | b'U' => return self.unicode_escape(value),
            b'0'..=b'7' => {
                let mut code = 0_u32;
                for _ in 0..3 {
                    if !matches!(self.byte(0), b'0'..=b'7') {
                        break;
                    }
                    code = code * 8 + u32::from(self.byte(0) - b'0');
                    self.at += 1;
                }
                value.push(code as u8);
                return Ok(());
            }
            b'x' if self.byte(1).is_ascii_hexdigit() => {
                self.at += 1;
                let len = 1 + usize::from(self.byte(1).is_ascii_hexdigit());
                value.push(self.hexadecimal(len) as u8);
                return Ok(());
            }
            b'b' => value.push(8),
            b'f' => value.push(12),
            b'n' => value.push(b'\n'),
            b'r' => value.push(b'\r'),
            b't' => value.push(b'\t'),
            other => value.push(other),
        }
        self.at += 1;
        Ok(())
    }

    /// Reads so many hexadecimal digits.
    fn hexadecimal(&mut self, len: usize) -> u32 {
        let digits = &self.text[self.at..self.at + len];
        self.at += len;
        u32::from_str_radix(digits, 16).expect("hexadecimal digits")
    }

    fn unicode_escape(&mut self, value: &mut Vec<u8>) -> Result<(), Token> {
        let escape = self.at - 1;
        let first = self.unicode_digits(escape)?;
        let code = match first {
            0xD800..=0xDBFF => {
                let second = self.at;
                if self.byte(0) == b'\\' && matches!(self.byte(1), b'u' | b'U') {
                    self.at += 1;
                    let low = self.unicode_digits(second)?;
                    if !(0xDC00..=0xDFFF).contains(&low) {
                        return Err(self.mistake("invalid Unicode surrogate pair", second));
                    }
                    0x10000 + ((first - 0xD800) << 10) + (low - 0xDC00)
                } else {
                    self.at = (self.at + 1).min(self.bytes.len());
                    return Err(self.mistake("invalid Unicode surrogate pair", second));
                }
            }
            0xDC00..=0xDFFF => return Err(self.mistake("invalid Unicode surrogate pair", escape)),
            code => code,
        };
        match char::from_u32(code) {
            Some(character) if code != 0 => {
                value.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                Ok(())
            }
            _ => Err(self.mistake("invalid Unicode escape value", escape)),
        }
    }

    /// Four digits behind `u`, eight behind `U`.
    fn unicode_digits(&mut self, escape: usize) -> Result<u32, Token> {
        let len = if self.byte(0) == b'u' { 4 } else { 8 };
        if (1..=len).all(|i| self.byte(i).is_ascii_hexdigit()) {
            self.at += 1;
            return Ok(self.hexadecimal(len));
        }
        let error = error_at(INVALID_ESCAPE_SEQUENCE, "invalid Unicode escape", self.text, escape as u32)
            .with_hint("Unicode escapes must be \\uXXXX or \\UXXXXXXXX.");
        Err(self.invalid(error, escape))
    }

    /// The value of `U&'…'` or `U&"…"` with the UESCAPE that may follow; the lexer is at the quote.
    fn unicode_value(&mut self, start: usize, kind: TokenKind) -> Result<String, Token> {
        let raw = match kind {
            TokenKind::UnicodeString => self.quoted(start, b'\'', true)?,
            _ => self.quoted(start, b'"', false)?,
        };
        let raw = String::from_utf8(raw).expect("whole characters of the text");
        let escape = self.unicode_escape_character()?;
        match decode_unicode(&raw, escape, self.text, start + 3) {
            Ok(value) => Ok(value),
            Err(error) => Err(self.invalid(error, start)),
        }
    }

    /// UESCAPE 'c', or the backslash.
    fn unicode_escape_character(&mut self) -> Result<char, Token> {
        let end = self.at;
        let word = "uescape";
        let is_behind = self.skip_space().is_ok()
            && self.bytes[self.at..]
                .get(..word.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
            && !is(self.byte(word.len()), WORD);
        if !is_behind {
            // A mistake in a comment is found again when the next token is read.
            self.error = None;
            self.at = end;
            return Ok('\\');
        }
        self.at += word.len();
        let string = self.token_behind_uescape()?;
        if string.kind == TokenKind::Invalid {
            return Err(string);
        }
        let near = |lexer: &mut Self, message| {
            let error = super::error_near(lexer.text, message, string.span);
            lexer.invalid(error, string.span.start as usize)
        };
        if !string.kind.is_string() {
            return Err(near(self, "UESCAPE must be followed by a simple string literal"));
        }
        let value = value(self.text, string, self.standard_strings);
        match value.as_bytes() {
            &[byte] if !byte.is_ascii_hexdigit() && !b"+'\" \t\n\r\x0b\x0c".contains(&byte) => {
                Ok(byte as char)
            }
            _ => Err(near(self, "invalid Unicode escape character")),
        }
    }
}

impl Lexer<'_> {
    /// The next token, without a UESCAPE of its own, so that a row of them is no recursion.
    fn token_behind_uescape(&mut self) -> Result<Token, Token> {
        self.skip_space()?;
        let start = self.at;
        if let [b'u' | b'U', b'&', quote @ (b'\'' | b'"'), ..] = self.bytes[start..] {
            self.at += 2;
            self.quoted(start, quote, quote == b'\'')?;
            return Ok(self.token(TokenKind::UnicodeIdentifier, start));
        }
        Ok(self.next())
    }
}

fn check_utf8(bytes: &[u8]) -> Result<(), Error> {
    let wrong = match std::str::from_utf8(bytes) {
        Ok(_) => match memchr::memchr(0, bytes) {
            None => return Ok(()),
            Some(at) => at,
        },
        Err(error) => memchr::memchr(0, bytes).unwrap_or(usize::MAX).min(error.valid_up_to()),
    };
    let len = match bytes[wrong] {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF7 => 4,
        _ => 1,
    };
    let shown: Vec<String> = bytes[wrong..].iter().take(len).map(|byte| format!("0x{byte:02x}")).collect();
    Err(Error::new(
        SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
    ))
}

/// Replaces `\XXXX` and `\+XXXXXX`. `position` is where `raw` begins in `text`.
fn decode_unicode(raw: &str, escape: char, text: &str, position: usize) -> Result<String, Error> {
    let fail = |message: &str, at: usize| {
        Err(error_at(SqlState::SYNTAX_ERROR, message, text, (position + at) as u32))
    };
    let mut value = String::with_capacity(raw.len());
    let mut first_half: Option<u32> = None;
    let mut at = 0;
    while let Some(character) = raw[at..].chars().next() {
        let escaped = &raw[at + character.len_utf8()..];
        if character != escape || escaped.starts_with(escape) {
            if first_half.is_some() {
                return fail("invalid Unicode surrogate pair", at);
            }
            value.push(character);
            at += character.len_utf8() * if character == escape { 2 } else { 1 };
            continue;
        }
        let (skip, len) = if escaped.starts_with('+') { (1, 6) } else { (0, 4) };
        let digits = escaped.as_bytes().get(skip..skip + len);
        let Some(digits) = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit)) else {
            return fail("invalid Unicode escape", at)
                .map_err(|error| error.with_hint("Unicode escapes must be \\XXXX or \\+XXXXXX."));
        };
        let digits = std::str::from_utf8(digits).expect("ASCII digits");
        let mut code = u32::from_str_radix(digits, 16).expect("hexadecimal digits");
        if code == 0 || code > 0x10FFFF {
            return fail("invalid Unicode escape value", at);
        }
        match (first_half.take(), code) {
            (Some(high), 0xDC00..=0xDFFF) => code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00),
            (Some(_), _) | (None, 0xDC00..=0xDFFF) => return fail("invalid Unicode surrogate pair", at),
            _ => {}
        }
        if let 0xD800..=0xDBFF = code {
            first_half = Some(code);
        } else {
            value.push(char::from_u32(code).expect("no surrogate, and in range"));
        }
        at += 1 + skip + len;
    }
    match first_half {
        Some(_) => fail("invalid Unicode surrogate pair", at),
        None => Ok(value),
    }
}
