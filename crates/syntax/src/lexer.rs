//! Text to tokens, by the rules of PostgreSQL's scanner.
//!
//! Tokens are made one by one, as the parser asks. Text that is no token becomes `Invalid` and its error
//! is kept, so that a syntax error before it is reported first. `strings` makes values of quoted tokens.

mod strings;

pub(crate) use strings::value;

use crate::keyword::{Keyword, LONGEST};
use crate::span::{Span, error_at};
use crate::token::{Token, TokenKind};
use firn_base::{Error, SqlState};

/// Reads the tokens of a text, first to last.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    standard_strings: bool,
    error: Option<Error>,
}

/// Operators are shorter than this, as in PostgreSQL.
const OPERATOR_LIMIT: usize = 64;

const WORD_START: u8 = 1;
const WORD: u8 = 2;
const DIGIT: u8 = 4;
const SPACE: u8 = 8;
const OPERATOR: u8 = 16;
static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut i = 0;
    while i < 256 {
        let byte = i as u8;
        if byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80 {
            classes[i] |= WORD_START | WORD;
        }
        if byte.is_ascii_digit() {
            classes[i] |= DIGIT | WORD;
        }
        if byte == b'$' {
            classes[i] |= WORD;
        }
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0C) {
            classes[i] |= SPACE;
        }
        if matches!(
            byte,
            b'~' | b'!' | b'@' | b'#' | b'^' | b'&' | b'|' | b'`' | b'?' | b'+' | b'-' | b'*' | b'/' | b'%'
        ) || matches!(byte, b'<' | b'>' | b'=')
        {
            classes[i] |= OPERATOR;
        }
        i += 1;
    }
    classes
}

fn is(byte: u8, class: u8) -> bool {
    CLASSES[byte as usize] & class != 0
}

impl<'a> Lexer<'a> {
    /// A lexer at the beginning of `text`.
    pub(crate) fn new(text: &'a str, standard_strings: bool) -> Lexer<'a> {
        Lexer { text, bytes: text.as_bytes(), at: 0, standard_strings, error: None }
    }

    /// The reason of the first token that was `Invalid`.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    fn byte(&self, ahead: usize) -> u8 {
        // NUL stands for the end: it is no part of any token, as PostgreSQL's texts cannot hold it.
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&self, kind: TokenKind, start: usize) -> Token {
        Token { kind, span: Span::new(start as u32, self.at as u32) }
    }

    /// Ends the text here: everything behind a mistake is unread.
    #[cold]
    fn invalid(&mut self, error: Error, start: usize) -> Token {
        let token = self.token(TokenKind::Invalid, start);
        self.error.get_or_insert(error);
        self.at = self.bytes.len();
        token
    }

    /// A mistake that is named with the text from `start` to here, as PostgreSQL's scanner does.
    #[cold]
    fn mistake(&mut self, message: &str, start: usize) -> Token {
        let error = error_near(self.text, message, Span::new(start as u32, self.at as u32));
        self.invalid(error, start)
    }

    /// The next token.
    pub(crate) fn next(&mut self) -> Token {
        if let Err(unterminated) = self.skip_space() {
            return unterminated;
        }
        let start = self.at;
        let Some(&byte) = self.bytes.get(self.at) else {
            return self.token(TokenKind::End, start);
        };
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.word_or_prefixed_string(start),
            b'0'..=b'9' => self.number(start),
            b'\'' => self.plain_string(start),
            b'"' => self.quoted_identifier(start, TokenKind::QuotedIdentifier),
            b'.' if is(self.byte(1), DIGIT) => self.number(start),
            b'.' if self.byte(1) == b'.' => self.fixed(TokenKind::DoubleDot, 2),
            b':' if self.byte(1) == b':' => self.fixed(TokenKind::DoubleColon, 2),
            b':' if self.byte(1) == b'=' => self.fixed(TokenKind::ColonEquals, 2),
            b'$' => self.dollar(start),
            _ if is(byte, OPERATOR) => self.operator(start),
            _ => self.fixed(TokenKind::Symbol(byte), 1),
        }
    }

    fn fixed(&mut self, kind: TokenKind, len: usize) -> Token {
        let start = self.at;
        self.at += len;
        self.token(kind, start)
    }

    fn skip_space(&mut self) -> Result<(), Token> {
        loop {
            let byte = self.byte(0);
            if is(byte, SPACE) {
                self.at += 1;
            } else if byte == b'-' && self.byte(1) == b'-' {
                self.skip_line();
            } else if byte == b'/' && self.byte(1) == b'*' {
                self.skip_comment()?;
            } else {
                return Ok(());
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.bytes[self.at..];
        self.at += memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
    }

    /// Comments nest.
    fn skip_comment(&mut self) -> Result<(), Token> {
        let start = self.at;
        self.at += 2;
        let mut depth = 1_usize;
        while depth > 0 {
            let Some(found) = memchr::memchr2(b'*', b'/', &self.bytes[self.at..]) else {
                self.at = self.bytes.len();
                return Err(self.mistake("unterminated /* comment", start));
            };
            self.at += found;
            match (self.byte(0), self.byte(1)) {
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                }
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                _ => self.at += 1,
            }
        }
        Ok(())
    }

    fn word_or_prefixed_string(&mut self, start: usize) -> Token {
        let next = self.byte(1);
        if next == b'\'' {
            match self.byte(0) {
                b'e' | b'E' => {
                    self.at += 1;
                    return self.escape_string(start);
                }
                b'b' | b'B' => {
                    self.at += 1;
                    return self.bits(start, TokenKind::BitString, "unterminated bit string literal");
                }
                b'x' | b'X' => {
                    self.at += 1;
                    return self.bits(start, TokenKind::HexString, "unterminated hexadecimal string literal");
                }
                b'n' | b'N' => {
                    // N'…' is NCHAR '…'.
                    self.at += 1;
                    return self.token(TokenKind::Keyword(Keyword::Nchar), start);
                }
                _ => {}
            }
        } else if next == b'&' && matches!(self.byte(0), b'u' | b'U') {
            match self.byte(2) {
                b'\'' => {
                    self.at += 2;
                    return self.unicode_string(start);
                }
                b'"' => {
                    self.at += 2;
                    let token = self.quoted_identifier(start, TokenKind::UnicodeIdentifier);
                    return self.with_unicode_escape(token);
                }
                _ => {}
            }
        }
        self.word(start)
    }

    fn word(&mut self, start: usize) -> Token {
        let mut lower = [0; LONGEST];
        let mut len = 0;
        while let Some(&byte) = self.bytes.get(self.at)
            && is(byte, WORD)
        {
            if len < LONGEST {
                lower[len] = byte.to_ascii_lowercase();
            }
            len += 1;
            self.at += 1;
        }
        let keyword = if len <= LONGEST { Keyword::find(&lower[..len]) } else { None };
        self.token(keyword.map_or(TokenKind::Identifier, TokenKind::Keyword), start)
    }

    fn digits(&mut self) {
        while is(self.byte(0), DIGIT) {
            self.at += 1;
        }
    }

    fn number(&mut self, start: usize) -> Token {
        self.digits();
        let mut is_integer = true;
        if self.byte(0) == b'.' && self.byte(1) != b'.' {
            is_integer = false;
            self.at += 1;
            self.digits();
        }
        if matches!(self.byte(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(1), b'+' | b'-'));
            if is(self.byte(1 + sign), DIGIT) {
                is_integer = false;
                self.at += 1 + sign;
                self.digits();
            } else if sign > 0 {
                self.at += 2;
                return self.mistake("trailing junk after numeric literal", start);
            }
        }
        if is(self.byte(0), WORD_START) {
            self.skip_word();
            return self.mistake("trailing junk after numeric literal", start);
        }
        let fits = is_integer && self.text[start..self.at].parse::<i32>().is_ok();
        self.token(if fits { TokenKind::Integer } else { TokenKind::Number }, start)
    }

    fn skip_word(&mut self) {
        while self.at < self.bytes.len() && is(self.byte(0), WORD) {
            self.at += 1;
        }
    }

    /// `$1`, `$tag$…$tag$` or a lone `$`.
    fn dollar(&mut self, start: usize) -> Token {
        self.at += 1;
        if is(self.byte(0), DIGIT) {
            self.digits();
            if is(self.byte(0), WORD_START) {
                self.skip_word();
                return self.mistake("trailing junk after parameter", start);
            }
            return self.token(TokenKind::Parameter, start);
        }
        let mut tag_end = self.at;
        if is(self.byte(0), WORD_START) {
            while self.bytes.get(tag_end).is_some_and(|&byte| is(byte, WORD) && byte != b'$') {
                tag_end += 1;
            }
        }
        if self.bytes.get(tag_end) != Some(&b'$') {
            return self.token(TokenKind::Symbol(b'$'), start);
        }
        let tag = &self.bytes[start..=tag_end];
        match memchr::memmem::find(&self.bytes[tag_end + 1..], tag) {
            Some(found) => {
                self.at = tag_end + 1 + found + tag.len();
                self.token(TokenKind::DollarString, start)
            }
            None => {
                self.at = self.bytes.len();
                self.mistake("unterminated dollar-quoted string", start)
            }
        }
    }

    /// An operator ends before a comment. One of several characters does not end in `+` or `-` unless it
    /// has a character that no operator of standard SQL has, so that `a=-1` is two operators.
    fn operator(&mut self, start: usize) -> Token {
        let mut end = start;
        let mut is_special = false;
        while let Some(&byte) = self.bytes.get(end)
            && is(byte, OPERATOR)
        {
            let pair = (byte, self.bytes.get(end + 1).copied().unwrap_or(0));
            if end > start && matches!(pair, (b'/', b'*') | (b'-', b'-')) {
                break;
            }
            is_special |= matches!(byte, b'~' | b'!' | b'@' | b'#' | b'^' | b'&' | b'|' | b'`' | b'?' | b'%');
            end += 1;
        }
        // What qualifies must stand before the trailing signs, which do not qualify themselves.
        if !is_special {
            while end - start > 1 && matches!(self.bytes[end - 1], b'+' | b'-') {
                end -= 1;
            }
        }
        self.at = end;
        let kind = match &self.bytes[start..end] {
            [byte] if matches!(byte, b'+' | b'-' | b'*' | b'/' | b'%' | b'^' | b'<' | b'>' | b'=') => {
                TokenKind::Symbol(*byte)
            }
            b"=>" => TokenKind::EqualsGreater,
            b"<=" => TokenKind::LessEqual,
            b">=" => TokenKind::GreaterEqual,
            b"<>" | b"!=" => TokenKind::NotEqual,
            operator if operator.len() >= OPERATOR_LIMIT => {
                return self.mistake("operator too long", start);
            }
            _ => TokenKind::Operator,
        };
        self.token(kind, start)
    }
}

/// `message at or near "what stands there"`, SQLSTATE 42601.
#[cold]
pub(crate) fn error_near(text: &str, message: &str, near: Span) -> Error {
    let message = if near.start as usize >= text.len() {
        format!("{message} at end of input")
    } else {
        format!("{message} at or near \"{}\"", near_text(text, near))
    };
    error_at(SqlState::SYNTAX_ERROR, message, text, near.start)
}

/// What stands there, whole characters of it.
fn near_text(text: &str, near: Span) -> &str {
    let mut end = (near.end as usize).max(near.start as usize + 1).min(text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    &text[near.start as usize..end]
}
