//! Functions of strings of characters. Positions and lengths count characters, from 1.

use super::casts::first_characters;
use crate::kernel::{Bytes, Call, Text};
use crate::registry::RegistryBuilder;
use firn_base::{Error, Result, SqlState};

/// The most bytes of a string.
const MOST_BYTES: usize = (1 << 30) - 5;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(&str,), _>(
        "length(text) char_length(text) character_length(text) textlen(text)",
        |_, (text,)| text.chars().count() as i32,
    );
    builder
        .scalar::<(&str,), _>("length(bpchar) char_length(bpchar) character_length(bpchar)", |_, (text,)| {
            text.trim_end_matches(' ').chars().count() as i32
        });
    builder.scalar::<(&str,), _>("octet_length(text) octet_length(bpchar)", |_, (text,)| text.len() as i32);
    builder.scalar::<(&str,), _>("bit_length(text)", |_, (text,)| text.len() as i32 * 8);
    builder.scalar::<(&str,), _>("ascii(text)", |_, (text,)| {
        text.chars().next().map_or(0, |first| first as i32)
    });
    builder.scalar::<(i32,), _>("chr(int4)", |call, (code,)| {
        call.text.push(character(code)?);
        Ok::<_, Error>(Text)
    });

    builder.scalar::<(&str,), _>("lower(text)", |call, (text,)| {
        call.text.extend(text.chars().map(lower));
        Text
    });
    builder.scalar::<(&str,), _>("upper(text)", |call, (text,)| {
        call.text.extend(text.chars().map(upper));
        Text
    });
    builder.scalar::<(&str,), _>("initcap(text)", |call, (text,)| {
        let mut is_inside = false;
        for character in text.chars() {
            call.text.push(if is_inside { lower(character) } else { upper(character) });
            is_inside = character.is_alphanumeric();
        }
        Text
    });
    builder.scalar::<(&str,), _>("reverse(text)", |call, (text,)| {
        call.text.extend(text.chars().rev());
        Text
    });
    builder.scalar::<(&str, &str), _>("textcat(text,text)", |call, (left, right)| {
        call.text.push_str(left);
        call.text.push_str(right);
        Text
    });
    builder.scalar::<(&str, i32), _>("repeat(text,int4)", |call, (text, times)| {
        let times = times.max(0) as usize;
        check_length(text.len().saturating_mul(times))?;
        for time in 0..times {
            call.text.push_str(text);
            if time % 4096 == 4095 {
                call.context.check_cancel()?;
            }
        }
        Ok::<_, Error>(Text)
    });

    builder.scalar::<(&str, i32), _>("left(text,int4)", |call, (text, count)| {
        let count = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => text.chars().count().saturating_sub(count.unsigned_abs() as usize),
        };
        call.text.push_str(first_characters(text, count));
        Text
    });
    builder.scalar::<(&str, i32), _>("right(text,int4)", |call, (text, count)| {
        let skipped = match usize::try_from(count) {
            Ok(count) => text.chars().count().saturating_sub(count),
            Err(_) => count.unsigned_abs() as usize,
        };
        call.text.push_str(without_first(text, skipped));
        Text
    });
    builder.scalar::<(&str, i32), _>("substring(text,int4) substr(text,int4)", |call, (text, start)| {
        call.text.push_str(substring(text, start, None).expect("no count is negative"));
        Text
    });
    builder.scalar::<(&str, i32, i32), _>(
        "substring(text,int4,int4) substr(text,int4,int4)",
        |call, (text, start, count)| {
            call.text.push_str(substring(text, start, Some(count))?);
            Ok::<_, Error>(Text)
        },
    );
    builder.scalar::<(&str, &str, i32, i32), _>(
        "overlay(text,text,int4,int4)",
        |call, (text, new, start, count)| overlay(call, text, new, start, count),
    );
    builder.scalar::<(&str, &str, i32), _>("overlay(text,text,int4)", |call, (text, new, start)| {
        overlay(call, text, new, start, new.chars().count() as i32)
    });
    builder.scalar::<(&str, &str, &str), _>("replace(text,text,text)", |call, (text, from, to)| {
        if from.is_empty() {
            call.text.push_str(text);
            return Ok(Text);
        }
        let mut last = 0;
        for (place, found) in text.match_indices(from) {
            call.text.push_str(&text[last..place]);
            call.text.push_str(to);
            last = place + found.len();
        }
        call.text.push_str(&text[last..]);
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(&str, &str, &str), _>("translate(text,text,text)", |call, (text, from, to)| {
        for character in text.chars() {
            match from.chars().position(|other| other == character) {
                None => call.text.push(character),
                Some(place) => call.text.extend(to.chars().nth(place)),
            }
        }
        Text
    });
    builder.scalar::<(&str, &str, i32), _>(
        "split_part(text,text,int4)",
        |call, (text, separator, number)| {
            call.text.push_str(part(text, separator, number)?);
            Ok::<_, Error>(Text)
        },
    );

    builder
        .scalar::<(&str, &str), _>("btrim(text,text)", |call, (text, set)| trim(call, text, set, true, true));
    builder.scalar::<(&str, &str), _>("ltrim(text,text)", |call, (text, set)| {
        trim(call, text, set, true, false)
    });
    builder.scalar::<(&str, &str), _>("rtrim(text,text)", |call, (text, set)| {
        trim(call, text, set, false, true)
    });
    builder.scalar::<(&str,), _>("btrim(text)", |call, (text,)| trim(call, text, " ", true, true));
    builder.scalar::<(&str,), _>("ltrim(text)", |call, (text,)| trim(call, text, " ", true, false));
    builder.scalar::<(&str,), _>("rtrim(text)", |call, (text,)| trim(call, text, " ", false, true));
    builder.scalar::<(&str, i32, &str), _>("lpad(text,int4,text)", |call, (text, length, fill)| {
        pad(call, text, length, fill, true)
    });
    builder.scalar::<(&str, i32), _>("lpad(text,int4)", |call, (text, length)| {
        pad(call, text, length, " ", true)
    });
    builder.scalar::<(&str, i32, &str), _>("rpad(text,int4,text)", |call, (text, length, fill)| {
        pad(call, text, length, fill, false)
    });
    builder.scalar::<(&str, i32), _>("rpad(text,int4)", |call, (text, length)| {
        pad(call, text, length, " ", false)
    });

    builder.scalar::<(i32,), _>("to_hex(int4)", |call, (value,)| {
        push_hex(call, u64::from(value as u32));
        Text
    });
    builder.scalar::<(i64,), _>("to_hex(int8)", |call, (value,)| {
        push_hex(call, value as u64);
        Text
    });
    builder.scalar::<(&str,), _>("quote_literal(text)", |call, (text,)| {
        quote_literal(text, &mut call.text);
        Text
    });
    builder.scalar::<(Option<&str>,), _>("quote_nullable(text)", |call, (text,)| {
        match text {
            Some(text) => quote_literal(text, &mut call.text),
            None => call.text.push_str("NULL"),
        }
        Text
    });
    bytes(builder);
}

pub(super) fn lower(character: char) -> char {
    let mut lowered = character.to_lowercase();
    let first = lowered.next().unwrap_or(character);
    if lowered.next().is_none() { first } else { character }
}

fn upper(character: char) -> char {
    let mut raised = character.to_uppercase();
    let first = raised.next().unwrap_or(character);
    if raised.next().is_none() { first } else { character }
}

/// The character of a code point; 54000 of what is none, or what no string can hold.
fn character(code: i32) -> Result<char> {
    let refused = |message: String| Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    match u32::try_from(code).map(|code| (code, char::from_u32(code))) {
        Err(_) => Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "character number must be positive")),
        Ok((0, _)) => refused("null character not permitted".to_owned()),
        Ok((_, Some(character))) => Ok(character),
        Ok((code, None)) if code > u32::from(char::MAX) => {
            refused(format!("requested character too large for encoding: {code}"))
        }
        Ok((code, None)) => refused(format!("requested character not valid for encoding: {code}")),
    }
}

/// 54000 if a string of so many bytes is too long.
pub(super) fn check_length(bytes: usize) -> Result<()> {
    match bytes > MOST_BYTES {
        true => Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large")),
        false => Ok(()),
    }
}

fn without_first(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or("", |(start, _)| &text[start..])
}

/// At most `count` characters from the position `start` on, which may lie before the string.
fn substring(text: &str, start: i32, count: Option<i32>) -> Result<&str> {
    let end = match count {
        Some(count) if count < 0 => {
            return Err(Error::new(SqlState::new("22011"), "negative substring length not allowed"));
        }
        Some(count) => i64::from(start) + i64::from(count),
        None => i64::MAX,
    };
    let first = i64::from(start).max(1);
    let (skipped, most) = ((first - 1) as usize, usize::try_from(end.saturating_sub(first)).unwrap_or(0));
    // Where all characters up to the end are single bytes, positions are those of bytes.
    let last = skipped.saturating_add(most).min(text.len());
    let read = if count.is_some() { last } else { skipped.min(text.len()) };
    if text.as_bytes()[..read].is_ascii() {
        return Ok(&text[skipped.min(last)..last]);
    }
    Ok(first_characters(without_first(text, skipped), most))
}

fn overlay(call: &mut Call<'_>, text: &str, new: &str, start: i32, count: i32) -> Result<Text> {
    if start <= 0 {
        return Err(Error::new(SqlState::new("22011"), "negative substring length not allowed"));
    }
    let behind = start
        .checked_add(count)
        .ok_or_else(|| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range"))?;
    call.text.push_str(substring(text, 1, Some(start - 1))?);
    call.text.push_str(new);
    call.text.push_str(substring(text, behind, None)?);
    Ok(Text)
}

/// A part of a text between separators, from 1; from the end if the number is negative.
fn part<'a>(text: &'a str, separator: &str, number: i32) -> Result<&'a str> {
    let place = number.unsigned_abs() as usize;
    if place == 0 {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    if separator.is_empty() {
        return Ok(if place == 1 { text } else { "" });
    }
    let found = match number > 0 {
        true => text.split(separator).nth(place - 1),
        false => text
            .split(separator)
            .count()
            .checked_sub(place)
            .and_then(|place| text.split(separator).nth(place)),
    };
    Ok(found.unwrap_or(""))
}

fn trim(call: &mut Call<'_>, text: &str, set: &str, left: bool, right: bool) -> Text {
    let is_of_set = |character: char| set.contains(character);
    let text = if left { text.trim_start_matches(is_of_set) } else { text };
    let text = if right { text.trim_end_matches(is_of_set) } else { text };
    call.text.push_str(text);
    Text
}

fn pad(call: &mut Call<'_>, text: &str, length: i32, fill: &str, is_left: bool) -> Result<Text> {
    let length = length.max(0) as usize;
    check_length(length.saturating_mul(4))?;
    let missing = if fill.is_empty() { 0 } else { length.saturating_sub(text.chars().count()) };
    let kept = first_characters(text, length);
    if !is_left {
        call.text.push_str(kept);
    }
    call.text.extend(fill.chars().cycle().take(missing));
    if is_left {
        call.text.push_str(kept);
    }
    Ok(Text)
}

fn push_hex(call: &mut Call<'_>, value: u64) {
    use std::fmt::Write;
    write!(call.text, "{value:x}").expect("strings take all");
}

/// Appends a text as a literal of SQL.
pub fn quote_literal(text: &str, out: &mut String) {
    if text.contains('\\') {
        out.push('E');
    }
    out.push('\'');
    for character in text.chars() {
        if matches!(character, '\'' | '\\') {
            out.push(character);
        }
        out.push(character);
    }
    out.push('\'');
}

fn bytes(builder: &mut RegistryBuilder) {
    builder.scalar::<(&[u8],), _>("length(bytea) octet_length(bytea)", |_, (bytes,)| bytes.len() as i32);
    builder.scalar::<(&[u8],), _>("bit_length(bytea)", |_, (bytes,)| bytes.len() as i32 * 8);
    builder.scalar::<(&[u8],), _>("bit_count(bytea)", |_, (bytes,)| {
        bytes.iter().map(|byte| i64::from(byte.count_ones())).sum::<i64>()
    });
    builder.scalar::<(&[u8], &[u8]), _>("byteacat(bytea,bytea)", |call, (left, right)| {
        call.bytes.extend_from_slice(left);
        call.bytes.extend_from_slice(right);
        Bytes
    });
    builder.scalar::<(&[u8], i32), _>("get_byte(bytea,int4)", |_, (bytes, place)| {
        let byte = usize::try_from(place).ok().and_then(|place| bytes.get(place));
        byte.map(|byte| i32::from(*byte)).ok_or_else(|| index_error(i64::from(place), bytes.len()))
    });
    builder.scalar::<(&[u8], i32, i32), _>("set_byte(bytea,int4,int4)", |call, (bytes, place, value)| {
        let at = usize::try_from(place).ok().filter(|place| *place < bytes.len());
        let at = at.ok_or_else(|| index_error(i64::from(place), bytes.len()))?;
        let start = call.bytes.len();
        call.bytes.extend_from_slice(bytes);
        call.bytes[start + at] = value as u8;
        Ok::<_, Error>(Bytes)
    });
    builder.scalar::<(&[u8], &[u8]), _>("position(bytea,bytea)", |_, (bytes, part)| {
        if part.is_empty() {
            return 1;
        }
        bytes.windows(part.len()).position(|window| window == part).map_or(0, |place| place as i32 + 1)
    });
    builder.scalar::<(&[u8], i32), _>("substring(bytea,int4) substr(bytea,int4)", |call, (bytes, start)| {
        part_of_bytes(call, bytes, start, None)
    });
    builder.scalar::<(&[u8], i32, i32), _>(
        "substring(bytea,int4,int4) substr(bytea,int4,int4)",
        |call, (bytes, start, count)| part_of_bytes(call, bytes, start, Some(count)),
    );
    builder.scalar::<(&[u8], &[u8]), _>("btrim(bytea,bytea)", |call, (bytes, set)| {
        trim_bytes(call, bytes, set, true, true)
    });
    builder.scalar::<(&[u8], &[u8]), _>("ltrim(bytea,bytea)", |call, (bytes, set)| {
        trim_bytes(call, bytes, set, true, false)
    });
    builder.scalar::<(&[u8], &[u8]), _>("rtrim(bytea,bytea)", |call, (bytes, set)| {
        trim_bytes(call, bytes, set, false, true)
    });
}

#[cold]
fn index_error(place: i64, length: usize) -> Error {
    let last = length as i64 - 1;
    Error::new(SqlState::new("2202E"), format!("index {place} out of valid range, 0..{last}"))
}

fn part_of_bytes(call: &mut Call<'_>, bytes: &[u8], start: i32, count: Option<i32>) -> Result<Bytes> {
    if count.is_some_and(|count| count < 0) {
        return Err(Error::new(SqlState::new("22011"), "negative substring length not allowed"));
    }
    let end = count.map_or(i64::MAX, |count| i64::from(start) + i64::from(count) - 1);
    let first = (i64::from(start).max(1) - 1).min(bytes.len() as i64);
    let end = end.clamp(first, bytes.len() as i64);
    call.bytes.extend_from_slice(&bytes[first as usize..end as usize]);
    Ok(Bytes)
}

fn trim_bytes(call: &mut Call<'_>, bytes: &[u8], set: &[u8], left: bool, right: bool) -> Bytes {
    let mut bytes = bytes;
    while let Some((first, rest)) = bytes.split_first().filter(|(first, _)| left && set.contains(first)) {
        let _ = first;
        bytes = rest;
    }
    while let Some((last, rest)) = bytes.split_last().filter(|(last, _)| right && set.contains(last)) {
        let _ = last;
        bytes = rest;
    }
    call.bytes.extend_from_slice(bytes);
    Bytes
}
