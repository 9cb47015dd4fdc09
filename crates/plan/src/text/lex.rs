//! The tokens of a line of plan text.

/// A token.
#[derive(Clone, PartialEq, Debug)]
pub enum Token {
    /// A word without quotes.
    Word(String),
    /// A name in double quotes.
    Name(String),
    /// An integer.
    Number(i128),
    /// Text in single quotes.
    Text(String),
    /// `#n`
    Column(u32),
    /// `$n`
    Parameter(u16),
    /// The symbol of an operator.
    Symbol(String),
    /// Brackets, commas, `:`, `::`, `:=`.
    Mark(&'static str),
}

const MARKS: [&str; 9] = [":=", "::", ":", "(", ")", "[", "]", ",", "."];
const SYMBOLS: &[u8] = b"+-*/<>=~!@%^&|`?";

/// The tokens of a line.
pub fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.bytes().next() {
        let (token, length) = match first {
            b' ' => {
                rest = &rest[1..];
                continue;
            }
            b'\'' | b'"' => {
                let (text, length) = quoted(rest)?;
                (if first == b'"' { Token::Name(text) } else { Token::Text(text) }, length)
            }
            b'#' | b'$' => {
                let length = 1 + count(&rest[1..], |byte| byte.is_ascii_digit());
                let number: u32 = rest[1..length].parse().map_err(|_| format!("no number: {rest}"))?;
                let token =
                    if first == b'#' { Token::Column(number) } else { Token::Parameter(number as u16) };
                (token, length)
            }
            b'0'..=b'9' | b'-' if first != b'-' || rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                let length = 1 + count(&rest[1..], |byte| byte.is_ascii_digit());
                (Token::Number(rest[..length].parse().map_err(|_| format!("no number: {rest}"))?), length)
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let length = count(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
                (Token::Word(rest[..length].to_owned()), length)
            }
            _ if SYMBOLS.contains(&first) => {
                let length = count(rest, |byte| SYMBOLS.contains(&byte));
                (Token::Symbol(rest[..length].to_owned()), length)
            }
            _ => {
                let mark = MARKS.iter().find(|mark| rest.starts_with(**mark));
                let mark = mark.ok_or_else(|| format!("no token: {rest}"))?;
                (Token::Mark(mark), mark.len())
            }
        };
        tokens.push(token);
        rest = &rest[length..];
    }
    Ok(tokens)
}

fn count(text: &str, belongs: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|byte| belongs(*byte)).count()
}

/// The text in quotes that `rest` begins with, and its length with the quotes.
fn quoted(rest: &str) -> Result<(String, usize), String> {
    let quote = rest.chars().next().expect("it begins with a quote");
    let mut text = String::new();
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, other)) => text.push(other),
                None => break,
            },
            _ if character != quote => text.push(character),
            _ if characters.peek().is_some_and(|(_, next)| *next == quote) => {
                text.push(quote);
                characters.next();
            }
            _ => return Ok((text, index + 1)),
        }
    }
    Err(format!("no end of quotes: {rest}"))
}
