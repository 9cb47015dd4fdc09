//! Functions of identifiers and of Unicode: `parse_ident`, `unistr`, `normalize`; and the comparisons of strings that index
//! classes call.

use crate::Datum;
use crate::builder::Builder;
use crate::kernel::{Any, Call, Text};
use crate::registry::RegistryBuilder;
use firn_base::operators::compare_blank_padded;
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState};
use unicode_normalization::UnicodeNormalization;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(&str, bool), _>("parse_ident(text,bool)", |call, (text, is_strict)| {
        let parts = identifiers(text, is_strict)?;
        let mut elements = Builder::new(Representation::Text);
        parts.iter().for_each(|part| elements.push(Datum::Text(part)));
        call.value.set_list(Arc::new(elements.finish()), None);
        Ok::<_, Error>(Any)
    });
    builder.scalar::<(&str,), _>("unistr(text)", |call, (text,)| unescape(call, text));
    builder.scalar::<(&str, &str), _>("normalize(text,text)", |call, (text, form)| {
        match Form::named(form)? {
            Form::Nfc => call.text.extend(text.nfc()),
            Form::Nfd => call.text.extend(text.nfd()),
            Form::Nfkc => call.text.extend(text.nfkc()),
            Form::Nfkd => call.text.extend(text.nfkd()),
        }
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(&str, &str), _>("is_normalized(text,text)", |_, (text, form)| {
        Ok::<_, Error>(match Form::named(form)? {
            Form::Nfc => unicode_normalization::is_nfc(text),
            Form::Nfd => unicode_normalization::is_nfd(text),
            Form::Nfkc => unicode_normalization::is_nfkc(text),
            Form::Nfkd => unicode_normalization::is_nfkd(text),
        })
    });
    builder.scalar::<(&str, u32), _>("nameconcatoid(name,oid)", |call, (name, oid)| {
        let suffix = format!("_{oid}");
        let mut length = name.len().min(MOST_NAME_BYTES - suffix.len());
        while !name.is_char_boundary(length) {
            length -= 1;
        }
        call.text.push_str(&name[..length]);
        call.text.push_str(&suffix);
        Text
    });
    builder.scalar::<(&str, &str), _>(
        "bttextcmp(text,text) btnamecmp(name,name) btnametextcmp(name,text) bttextnamecmp(text,name) \
         bttext_pattern_cmp(text,text)",
        |_, (left, right)| left.cmp(right) as i32,
    );
    builder.scalar::<(&str, &str), _>("btbpchar_pattern_cmp(bpchar,bpchar)", |_, (left, right)| {
        compare_blank_padded(left, right) as i32
    });
    builder.scalar::<(u32, u32), _>("btoidcmp(oid,oid)", |_, (left, right)| left.cmp(&right) as i32);
    builder
        .scalar::<([u8; 16], [u8; 16]), _>("uuid_cmp(uuid,uuid)", |_, (left, right)| left.cmp(&right) as i32);
}

/// The most bytes of a name.
const MOST_NAME_BYTES: usize = 63;

/// The parts of a qualified name. If the name has to be the whole text, 22023 of what stands behind it.
fn identifiers(text: &str, is_strict: bool) -> Result<Vec<String>> {
    let invalid = |detail: Option<String>| {
        let message = format!("string is not a valid identifier: \"{text}\"");
        let error = Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
        detail.into_iter().fold(error, Error::with_detail)
    };
    let is_space = |character: char| matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0c');
    let is_start =
        |character: char| character.is_ascii_alphabetic() || character == '_' || !character.is_ascii();
    let (mut parts, mut is_behind_dot) = (Vec::new(), false);
    let mut rest = text.trim_start_matches(is_space);
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut part = String::new();
            let mut inside = quoted;
            loop {
                let Some(place) = inside.find('"') else {
                    return Err(invalid(Some("String has unclosed double quotes.".to_owned())));
                };
                part.push_str(&inside[..place]);
                inside = &inside[place + 1..];
                match inside.strip_prefix('"') {
                    Some(behind) => {
                        part.push('"');
                        inside = behind;
                    }
                    None => break,
                }
            }
            if part.is_empty() {
                return Err(invalid(Some("Quoted identifier must not be empty.".to_owned())));
            }
            parts.push(part);
            rest = inside;
        } else if rest.starts_with(is_start) {
            let is_part =
                |character: char| is_start(character) || character.is_ascii_digit() || character == '$';
            let end = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
            parts.push(rest[..end].to_ascii_lowercase());
            rest = &rest[end..];
        } else {
            return Err(invalid(match (rest.starts_with('.'), is_behind_dot) {
                (true, _) => Some("No valid identifier before \".\".".to_owned()),
                (false, true) => Some("No valid identifier after \".\".".to_owned()),
                (false, false) => None,
            }));
        }
        rest = rest.trim_start_matches(is_space);
        match rest.strip_prefix('.') {
            Some(behind) => {
                is_behind_dot = true;
                rest = behind.trim_start_matches(is_space);
            }
            None if rest.is_empty() || !is_strict => return Ok(parts),
            None => return Err(invalid(None)),
        }
    }
}

/// Appends a text with its escapes `\XXXX`, `\+XXXXXX`, `\uXXXX` and `\UXXXXXXXX` replaced.
fn unescape(call: &mut Call<'_>, text: &str) -> Result<Text> {
    let invalid = |message: &str| Error::new(SqlState::SYNTAX_ERROR, message);
    let no_pair = || invalid("invalid Unicode surrogate pair");
    let mut high: Option<u32> = None;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first != '\\' || rest[1..].starts_with('\\') {
            if high.is_some() {
                return Err(no_pair());
            }
            call.text.push(first);
            rest = &rest[first.len_utf8() + usize::from(first == '\\')..];
            continue;
        }
        let digits = |from: usize, count: usize| {
            let digits = rest.get(from..from + count)?;
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hex.then(|| (u32::from_str_radix(digits, 16).expect("these are its digits"), from + count))
        };
        let escape = digits(1, 4).or_else(|| match rest.as_bytes().get(1) {
            Some(b'u') => digits(2, 4),
            Some(b'+') => digits(2, 6),
            Some(b'U') => digits(2, 8),
            _ => None,
        });
        let Some((code, length)) = escape else {
            return Err(invalid("invalid Unicode escape")
                .with_hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX."));
        };
        rest = &rest[length..];
        let code = match (high.take(), code) {
            (None, 0xd800..=0xdbff) => {
                high = Some(code);
                continue;
            }
            (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high & 0x3ff) << 10) + (code & 0x3ff),
            (Some(_), _) | (None, 0xdc00..=0xdfff) => return Err(no_pair()),
            (None, code) => code,
        };
        let Some(character) = char::from_u32(code).filter(|character| *character != '\0') else {
            let message = format!("invalid Unicode code point: {code:04X}");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        };
        call.text.push(character);
    }
    match high {
        Some(_) => Err(no_pair()),
        None => Ok(Text),
    }
}

/// A form of Unicode normalization.
enum Form {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

impl Form {
    fn named(name: &str) -> Result<Form> {
        match name.to_ascii_uppercase().as_str() {
            "NFC" => Ok(Form::Nfc),
            "NFD" => Ok(Form::Nfd),
            "NFKC" => Ok(Form::Nfkc),
            "NFKD" => Ok(Form::Nfkd),
            _ => {
                let message = format!("invalid normalization form: {name}");
                Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
            }
        }
    }
}
