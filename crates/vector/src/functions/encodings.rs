//! Bytes as text and back: `encode` and `decode`, in hex, base64 and escapes.

use crate::kernel::{Bytes, Text};
use crate::registry::RegistryBuilder;
use firn_base::{Error, Result, SqlState};
use std::fmt::Write;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(&[u8], &str), _>("encode(bytea,text)", |call, (bytes, format)| {
        match Format::named(format)? {
            Format::Hex => {
                bytes.iter().for_each(|byte| write!(call.text, "{byte:02x}").expect("strings take all"))
            }
            Format::Base64 => encode_base64(bytes, &mut call.text),
            Format::Escape => encode_escapes(bytes, &mut call.text),
        }
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(&str, &str), _>("decode(text,text)", |call, (text, format)| {
        match Format::named(format)? {
            Format::Hex => decode_hex(text, &mut call.bytes)?,
            Format::Base64 => decode_base64(text, &mut call.bytes)?,
            Format::Escape => decode_escapes(text, &mut call.bytes)?,
        }
        Ok::<_, Error>(Bytes)
    });
}

enum Format {
    Hex,
    Base64,
    Escape,
}

impl Format {
    fn named(name: &str) -> Result<Format> {
        match name.to_ascii_lowercase().as_str() {
            "hex" => Ok(Format::Hex),
            "base64" => Ok(Format::Base64),
            "escape" => Ok(Format::Escape),
            _ => Err(invalid(format!("unrecognized encoding: \"{name}\""))),
        }
    }
}

#[cold]
fn invalid(message: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The characters of a line of base64.
const LINE: usize = 76;

fn encode_base64(bytes: &[u8], out: &mut String) {
    let mut column = 0;
    for chunk in bytes.chunks(3) {
        if column == LINE {
            out.push('\n');
            column = 0;
        }
        let word = chunk.iter().chain(&[0, 0]).take(3).fold(0, |word, byte| word << 8 | usize::from(*byte));
        for place in 0..4 {
            out.push(match place <= chunk.len() {
                true => char::from(ALPHABET[word >> (18 - 6 * place) & 63]),
                false => '=',
            });
        }
        column += 4;
    }
    // A line that is full is ended, even if it is the last one, but not one that ends by padding.
    if column == LINE && bytes.len().is_multiple_of(3) {
        out.push('\n');
    }
}

fn decode_base64(text: &str, out: &mut Vec<u8>) -> Result<()> {
    let (mut word, mut count, mut ended) = (0u32, 0, 0);
    for character in text.chars().filter(|character| !matches!(character, ' ' | '\t' | '\n' | '\r')) {
        let value = match character {
            '=' => {
                // An end stands for what is missing of four characters.
                if ended == 0 {
                    ended = match count {
                        2 => 1,
                        3 => 2,
                        _ => {
                            return Err(invalid(
                                "unexpected \"=\" while decoding base64 sequence".to_owned(),
                            ));
                        }
                    };
                }
                0
            }
            other => match ALPHABET.iter().position(|known| char::from(*known) == other) {
                Some(value) if ended == 0 => value as u32,
                _ => {
                    return Err(invalid(format!(
                        "invalid symbol \"{other}\" found while decoding base64 sequence"
                    )));
                }
            },
        };
        word = word << 6 | value;
        count += 1;
        if count == 4 {
            let bytes = word.to_be_bytes();
            out.extend_from_slice(&bytes[1..if ended == 0 { 4 } else { 1 + ended }]);
            (word, count) = (0, 0);
        }
    }
    match count {
        0 => Ok(()),
        _ => Err(invalid("invalid base64 end sequence".to_owned())
            .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted.")),
    }
}

fn decode_hex(text: &str, out: &mut Vec<u8>) -> Result<()> {
    let digit = |character: char| {
        character
            .to_digit(16)
            .map(|digit| digit as u8)
            .ok_or_else(|| invalid(format!("invalid hexadecimal digit: \"{character}\"")))
    };
    let mut characters = text.chars().filter(|character| !matches!(character, ' ' | '\t' | '\n' | '\r'));
    while let Some(high) = characters.next() {
        let high = digit(high)?;
        let low = characters.next();
        let low = low.ok_or_else(|| invalid("invalid hexadecimal data: odd number of digits".to_owned()))?;
        out.push(high << 4 | digit(low)?);
    }
    Ok(())
}

fn encode_escapes(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0 | 0x80.. => write!(out, "\\{byte:03o}").expect("strings take all"),
            byte => out.push(char::from(*byte)),
        }
    }
}

fn decode_escapes(text: &str, out: &mut Vec<u8>) -> Result<()> {
    let is_octal = |byte: &u8, most: u8| (b'0'..=most).contains(byte);
    let digit = |byte: &u8| byte - b'0';
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return Ok(()),
            [b'\\', b'\\', rest @ ..] => {
                out.push(b'\\');
                rest
            }
            [b'\\', high, middle, low, rest @ ..]
                if is_octal(high, b'3') && is_octal(middle, b'7') && is_octal(low, b'7') =>
            {
                out.push(digit(high) << 6 | digit(middle) << 3 | digit(low));
                rest
            }
            [b'\\', ..] => {
                let message = "invalid input syntax for type bytea";
                return Err(Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message));
            }
            [byte, rest @ ..] => {
                out.push(*byte);
                rest
            }
        };
    }
}
