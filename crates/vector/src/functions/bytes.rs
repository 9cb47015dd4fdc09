//! Functions of strings of bytes: bits, LIKE, hashes, and encodings of characters.
//!
//! Text is UTF-8. `convert_from`, `convert_to` and `convert` know the encodings that [`Encoding`] lists.

use super::encoding_names::{encoding_name, encoding_number};
use crate::kernel::{Bytes, Call, Text};
use crate::registry::RegistryBuilder;
use firn_base::encoding::Encoding;
use firn_base::{Error, Result, SqlState};
use sha2::Digest;
use std::fmt::Write;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(&[u8], i64), _>("get_bit(bytea,int8)", |_, (bytes, place)| {
        let (byte, bit) = bit_place(bytes, place)?;
        Ok::<_, Error>(i32::from(bytes[byte] >> bit & 1))
    });
    builder.scalar::<(&[u8], i64, i32), _>("set_bit(bytea,int8,int4)", |call, (bytes, place, value)| {
        let (byte, bit) = bit_place(bytes, place)?;
        if !(0..=1).contains(&value) {
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "new bit must be 0 or 1"));
        }
        let start = call.bytes.len();
        call.bytes.extend_from_slice(bytes);
        call.bytes[start + byte] = bytes[byte] & !(1 << bit) | (value as u8) << bit;
        Ok(Bytes)
    });
    builder.scalar::<(&[u8], &[u8], i32, i32), _>(
        "overlay(bytea,bytea,int4,int4)",
        |call, (bytes, new, start, count)| overlay(call, bytes, new, start, count),
    );
    builder.scalar::<(&[u8], &[u8], i32), _>("overlay(bytea,bytea,int4)", |call, (bytes, new, start)| {
        overlay(call, bytes, new, start, new.len() as i32)
    });
    builder.scalar::<(&[u8], &[u8]), _>("byteacmp(bytea,bytea)", |_, (left, right)| left.cmp(right) as i32);

    builder.scalar::<(&[u8], &[u8]), _>("bytealike(bytea,bytea) like(bytea,bytea)", |_, (bytes, pattern)| {
        like(bytes, pattern)
    });
    builder.scalar::<(&[u8], &[u8]), _>(
        "byteanlike(bytea,bytea) notlike(bytea,bytea)",
        |_, (bytes, pattern)| Ok::<_, Error>(!like(bytes, pattern)?),
    );
    builder.scalar::<(&[u8], &[u8]), _>("like_escape(bytea,bytea)", |call, (pattern, escape)| {
        like_escape(pattern, escape, &mut call.bytes)?;
        Ok::<_, Error>(Bytes)
    });

    builder.scalar::<(&str,), _>("md5(text)", |call, (text,)| md5(text.as_bytes(), &mut call.text));
    builder.scalar::<(&[u8],), _>("md5(bytea)", |call, (bytes,)| md5(bytes, &mut call.text));
    builder.scalar::<(&[u8],), _>("sha224(bytea)", |call, (bytes,)| digest::<sha2::Sha224>(bytes, call));
    builder.scalar::<(&[u8],), _>("sha256(bytea)", |call, (bytes,)| digest::<sha2::Sha256>(bytes, call));
    builder.scalar::<(&[u8],), _>("sha384(bytea)", |call, (bytes,)| digest::<sha2::Sha384>(bytes, call));
    builder.scalar::<(&[u8],), _>("sha512(bytea)", |call, (bytes,)| digest::<sha2::Sha512>(bytes, call));

    builder.scalar::<(&[u8], &str), _>("convert_from(bytea,name)", |call, (bytes, encoding)| {
        let text = named(encoding, "source")?.read(bytes)?;
        call.text.push_str(&text);
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(&str, &str), _>("convert_to(text,name)", |call, (text, encoding)| {
        named(encoding, "destination")?.write(text, &mut call.bytes)?;
        Ok::<_, Error>(Bytes)
    });
    builder.scalar::<(&[u8], &str, &str), _>(
        "convert(bytea,name,name)",
        |call, (bytes, source, destination)| {
            let (source, destination) = (named(source, "source")?, named(destination, "destination")?);
            if source == destination || source == Encoding::SqlAscii && destination != Encoding::Utf8 {
                destination.check(bytes)?;
                call.bytes.extend_from_slice(bytes);
            } else {
                destination.write(&source.read(bytes)?, &mut call.bytes)?;
            }
            Ok::<_, Error>(Bytes)
        },
    );
    builder.scalar::<(&[u8], &str), _>("length(bytea,name)", |_, (bytes, encoding)| {
        let encoding = named(encoding, "").map_err(|error| match error.state() {
            SqlState::INVALID_PARAMETER_VALUE => {
                Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid encoding name \"{encoding}\""))
            }
            _ => error,
        })?;
        encoding.check(bytes)?;
        Ok::<_, Error>(match encoding {
            Encoding::Utf8 => encoding.read(bytes)?.chars().count() as i32,
            _ => bytes.len() as i32,
        })
    });
}

fn bit_place(bytes: &[u8], place: i64) -> Result<(usize, u32)> {
    let bits = bytes.len() as i64 * 8;
    if !(0..bits).contains(&place) {
        let message = format!("index {place} out of valid range, 0..{}", bits - 1);
        return Err(Error::new(SqlState::new("2202E"), message));
    }
    Ok(((place / 8) as usize, (place % 8) as u32))
}

fn overlay(call: &mut Call<'_>, bytes: &[u8], new: &[u8], start: i32, count: i32) -> Result<Bytes> {
    if start <= 0 {
        return Err(Error::new(SqlState::new("22011"), "negative substring length not allowed"));
    }
    let behind = start
        .checked_add(count)
        .ok_or_else(|| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range"))?;
    call.bytes.extend_from_slice(&bytes[..bytes.len().min(start as usize - 1)]);
    call.bytes.extend_from_slice(new);
    call.bytes.extend_from_slice(&bytes[bytes.len().min((behind - 1).max(0) as usize)..]);
    Ok(Bytes)
}

/// Whether bytes match a pattern, of which `%` is any bytes and `_` one. It goes back to the last `%` alone.
fn like(bytes: &[u8], pattern: &[u8]) -> Result<bool> {
    let (mut at, mut next) = (0, 0);
    // Behind the last `%`, and where what follows it is tried next.
    let mut again: Option<(usize, usize)> = None;
    while at < bytes.len() {
        let (step, width) = match pattern.get(next) {
            Some(b'%') if next + 1 == pattern.len() => return Ok(true),
            Some(b'%') => {
                next += 1;
                again = Some((next, at));
                continue;
            }
            Some(b'_') => (None, 1),
            Some(b'\\') => match pattern.get(next + 1) {
                Some(byte) => (Some(Some(*byte)), 2),
                None => {
                    let message = "LIKE pattern must not end with escape character";
                    return Err(Error::new(SqlState::new("22025"), message));
                }
            },
            Some(byte) => (Some(Some(*byte)), 1),
            None => (Some(None), 0),
        };
        if step.is_none_or(|wanted| wanted == Some(bytes[at])) {
            (at, next) = (at + 1, next + width);
            continue;
        }
        let Some((behind, tried)) = again else { return Ok(false) };
        (next, at, again) = (behind, tried + 1, Some((behind, tried + 1)));
    }
    Ok(pattern[next..].iter().all(|byte| *byte == b'%'))
}

/// Appends a LIKE pattern with another escape byte as one with the backslash. An empty one escapes nothing.
fn like_escape(pattern: &[u8], escape: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if escape.len() > 1 {
        return Err(Error::new(SqlState::new("22025"), "invalid escape string")
            .with_hint("Escape string must be empty or one character."));
    }
    let mut is_escaped = false;
    for byte in pattern {
        if escape.first() == Some(byte) && !is_escaped {
            out.push(b'\\');
            is_escaped = true;
            continue;
        }
        if *byte == b'\\' && !is_escaped {
            out.push(b'\\');
        }
        out.push(*byte);
        is_escaped = false;
    }
    Ok(())
}

fn md5(bytes: &[u8], out: &mut String) -> Text {
    for byte in md5::Md5::digest(bytes) {
        write!(out, "{byte:02x}").expect("strings take all");
    }
    Text
}

fn digest<D: Digest>(bytes: &[u8], call: &mut Call<'_>) -> Bytes {
    call.bytes.extend_from_slice(&D::digest(bytes));
    Bytes
}

/// The encoding of a name, of which case and punctuation do not matter.
fn named(name: &str, role: &str) -> Result<Encoding> {
    match encoding_number(name).and_then(encoding_name) {
        Some(known) => {
            Encoding::of(known).ok_or_else(|| Error::unsupported(format!("the encoding \"{name}\"")))
        }
        None => {
            let message = format!("invalid {role} encoding name \"{name}\"");
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}
