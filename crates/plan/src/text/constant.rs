//! Constants and types as text.

use firn_base::types::SqlType;
use firn_base::{Representation as R, TextStyle, Type, TypeId, Value, numeric, text, type_table};
use std::fmt::Write;

/// A type: its `typname` and modifier, such as `int4`, `numeric(12,2)`, `text[]`.
pub fn write_type(ty: Type, out: &mut String) {
    let (element, suffix) = match ty.element() {
        Some(element) if ty.info().is_some_and(|info| info.is_array()) => (element, "[]"),
        _ => (ty, ""),
    };
    match element.info() {
        Some(info) => write_word(info.name, out),
        None => write!(out, "{}", element.id.0).expect("strings take all"),
    }
    match (element.precision_and_scale(), element.length()) {
        (Some((precision, scale)), _) => write!(out, "({precision},{scale})"),
        (_, Some(length)) => write!(out, "({length})"),
        _ if element.modifier != -1 => write!(out, "({})", element.modifier),
        _ => Ok(()),
    }
    .expect("strings take all");
    out.push_str(suffix);
    if ty.collation != Type::new(ty.id).collation {
        write!(out, " collate {}", ty.collation.0).expect("strings take all");
    }
}

/// The type of that name or oid, with what stands in parentheses behind it.
pub fn read_type(name: &str, modifiers: &[i64], is_array: bool) -> Option<Type> {
    let id = match name.parse() {
        Ok(oid) => TypeId(oid),
        Err(_) => type_table::by_name(name)?.id,
    };
    let ty = match (id, modifiers) {
        (_, []) => Type::new(id),
        (TypeId::NUMERIC, [precision, scale]) => Type::numeric(*precision as u16, *scale as i16),
        (TypeId::VARCHAR, [length]) => Type::varchar(*length as u32),
        (TypeId::BPCHAR, [length]) => Type::character(*length as u32),
        (_, [modifier]) => Type::new(id).with_modifier(*modifier as i32),
        _ => return None,
    };
    if is_array { ty.array() } else { Some(ty) }
}

/// A name, in quotes unless it is a plain word.
pub fn write_word(word: &str, out: &mut String) {
    let mut bytes = word.bytes();
    let is_plain = bytes.next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && !super::KEYWORDS.contains(&word);
    if is_plain {
        out.push_str(word);
    } else {
        write_quoted(word, '"', out);
    }
}

/// Text in quotes; quotes in it are doubled, and a line's end is `\n`.
pub fn write_quoted(text: &str, quote: char, out: &mut String) {
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            _ => {
                if character == quote {
                    out.push(quote);
                }
                out.push(character);
            }
        }
    }
    out.push(quote);
}

/// A constant and its type.
pub fn write_constant(ty: Type, value: &Value, out: &mut String) {
    match value {
        Value::Boolean(value) if ty == Type::new(TypeId::BOOL) => {
            out.push_str(if *value { "true" } else { "false" });
            return;
        }
        _ => write_value(ty, value, out),
    }
    out.push_str("::");
    write_type(ty, out);
}

fn write_value(ty: Type, value: &Value, out: &mut String) {
    let style = TextStyle::DEFAULT;
    match value {
        Value::Null => out.push_str("null"),
        Value::SmallInt(_) | Value::Integer(_) | Value::BigInt(_) => {
            text::write(value, SqlType::BigInt, &style, out);
        }
        Value::Numeric { unscaled, scale } => {
            out.push('\'');
            numeric::write(*unscaled, *scale, out);
            out.push('\'');
        }
        Value::Array(array) => {
            let mut text = String::new();
            let element = ty.element().expect("it is an array");
            firn_base::array::write_any(array, element, &style, &mut text);
            write_quoted(&text, '\'', out);
        }
        other => {
            let mut text = String::new();
            text::write(other, SqlType::Text, &style, &mut text);
            write_quoted(&text, '\'', out);
        }
    }
}

/// The value of a type that a text stands for.
pub fn read_value(text: &str, ty: Type) -> Option<Value> {
    let kind = match ty.representation()? {
        R::Boolean => SqlType::Boolean,
        R::Int16 => SqlType::SmallInt,
        R::Int32 => SqlType::Integer,
        R::Int64 | R::Oid => SqlType::BigInt,
        R::Float32 => SqlType::Real,
        R::Float64 => SqlType::Double,
        R::Numeric | R::Decimal { .. } => {
            let scale = text.split_once('.').map_or(0, |(_, digits)| digits.len() as u8);
            SqlType::Numeric { precision: 38, scale }
        }
        R::Text | R::PaddedText => SqlType::Text,
        R::Bytes => SqlType::Bytea,
        R::Date => SqlType::Date,
        R::Time => SqlType::Time,
        R::Timestamp => SqlType::Timestamp,
        R::TimestampTz => SqlType::TimestampTz,
        R::Interval => SqlType::Interval,
        R::Uuid => SqlType::Uuid,
        R::List(_) => {
            let style = TextStyle::DEFAULT;
            return firn_base::array::parse_any(text, ty.element()?, &style).ok().map(Value::Array);
        }
        R::Record => return None,
    };
    text::parse(text, kind, &TextStyle::DEFAULT).ok()
}
