//! Functions of text whose meaning in PostgreSQL DataFusion does not share.

use datafusion::logical_expr::{ScalarUDF, Volatility};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType, Value};
use firn_exec::error::check_pattern;
use firn_exec::function::ValueFunction;

/// A function of this file by its name.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    FUNCTIONS.iter().find(|function| function.name == name).map(ValueFunction::udf)
}

fn string(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        other => panic!("{other:?} was coerced to text"),
    }
}

fn count(value: &Value) -> i64 {
    match value {
        Value::Integer(value) => i64::from(*value),
        Value::BigInt(value) => *value,
        other => panic!("{other:?} was coerced to an integer"),
    }
}

/// The character of a code point. 54000 for what is none, or what no string can hold.
fn character(code: i64) -> Result<String> {
    let refused = |message: String| Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    match u32::try_from(code).map(|code| (code, char::from_u32(code))) {
        Err(_) => refused("character number must be positive".to_owned()),
        Ok((0, _)) => refused("null character not permitted".to_owned()),
        Ok((_, Some(character))) => Ok(character.to_string()),
        Ok((code, None)) if code > u32::from(char::MAX) => {
            refused(format!("requested character too large for encoding: {code}"))
        }
        Ok((code, None)) => refused(format!("requested character not valid for encoding: {code}")),
    }
}

static FUNCTIONS: &[ValueFunction] = &[
    ValueFunction {
        name: "chr",
        resolve: |arguments| match arguments {
            [None | Some(SqlType::SmallInt | SqlType::Integer)] => {
                Some((vec![SqlType::Integer], SqlType::Text))
            }
            _ => None,
        },
        compute: |values, _| character(count(&values[0])).map(Value::Text),
        volatility: Volatility::Immutable,
        takes_null: false,
    },
    ValueFunction {
        name: "similar_to_escape",
        resolve: |arguments| {
            (1..=2).contains(&arguments.len()).then(|| (vec![SqlType::Text; arguments.len()], SqlType::Text))
        },
        compute: |values, _| {
            let escape = values.get(1).map_or("\\", string);
            similar_to_regex(string(&values[0]), escape).map(Value::Text)
        },
        volatility: Volatility::Immutable,
        takes_null: false,
    },
    ValueFunction {
        name: "whole group",
        resolve: |arguments| (arguments.len() == 1).then(|| (vec![SqlType::Text], SqlType::Text)),
        compute: |values, _| whole_group(string(&values[0])).map(Value::Text),
        volatility: Volatility::Immutable,
        takes_null: false,
    },
    ValueFunction {
        name: "like_escape",
        resolve: |arguments| {
            (arguments.len() == 2).then(|| (vec![SqlType::Text, SqlType::Text], SqlType::Text))
        },
        compute: |values, _| like_escape(string(&values[0]), string(&values[1])).map(Value::Text),
        volatility: Volatility::Immutable,
        takes_null: false,
    },
    ValueFunction {
        name: "length",
        resolve: |arguments| match arguments {
            [Some(SqlType::Bytea)] => Some((vec![SqlType::Bytea], SqlType::Integer)),
            [None | Some(SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_))] => {
                Some((vec![SqlType::Text], SqlType::Integer))
            }
            _ => None,
        },
        compute: |values, _| {
            Ok(Value::Integer(match &values[0] {
                Value::Bytea(bytes) => bytes.len() as i32,
                other => string(other).chars().count() as i32,
            }))
        },
        volatility: Volatility::Immutable,
        takes_null: false,
    },
    ValueFunction {
        name: "to_hex",
        resolve: |arguments| match arguments {
            [Some(SqlType::BigInt)] => Some((vec![SqlType::BigInt], SqlType::Text)),
            [None | Some(SqlType::SmallInt | SqlType::Integer)] => {
                Some((vec![SqlType::Integer], SqlType::Text))
            }
            _ => None,
        },
        compute: |values, _| {
            Ok(Value::Text(match &values[0] {
                Value::Integer(value) => format!("{value:x}"),
                other => format!("{:x}", count(other)),
            }))
        },
        volatility: Volatility::Immutable,
        takes_null: false,
    },
    ValueFunction {
        name: "quote_ident",
        resolve: |arguments| (arguments.len() == 1).then(|| (vec![SqlType::Text], SqlType::Text)),
        compute: |values, _| Ok(Value::Text(crate::statement::quote_ident(string(&values[0])))),
        volatility: Volatility::Immutable,
        takes_null: false,
    },
    ValueFunction {
        name: "quote_literal",
        resolve: |arguments| (arguments.len() == 1).then(|| (vec![SqlType::Text], SqlType::Text)),
        compute: |values, _| Ok(Value::Text(crate::statement::quote_literal(string(&values[0])))),
        volatility: Volatility::Immutable,
        takes_null: false,
    },
    ValueFunction {
        name: "quote_nullable",
        resolve: |arguments| (arguments.len() == 1).then(|| (vec![SqlType::Text], SqlType::Text)),
        compute: |values, _| {
            Ok(Value::Text(match &values[0] {
                Value::Null => "NULL".to_owned(),
                other => crate::statement::quote_literal(string(other)),
            }))
        },
        volatility: Volatility::Immutable,
        takes_null: true,
    },
];

/// A regular expression all of which is a group. The parentheses must not make one of what is none: `a)(b` becomes no `(a)(b)`.
fn whole_group(pattern: &str) -> Result<String> {
    if pattern.contains(')') {
        check_pattern(pattern)?;
    }
    Ok(format!("({pattern})"))
}

/// A LIKE pattern with another escape character as one with the backslash.
fn like_escape(pattern: &str, escape: &str) -> firn_base::Result<String> {
    let escape = escape_character(escape)?;
    let mut written = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            written.push('\\');
            written.extend(characters.next());
        } else {
            if character == '\\' {
                written.push('\\');
            }
            written.push(character);
        }
    }
    Ok(written)
}

/// The character of an ESCAPE clause; an empty one escapes nothing.
fn escape_character(escape: &str) -> firn_base::Result<Option<char>> {
    let mut characters = escape.chars();
    let first = characters.next();
    match characters.next() {
        None => Ok(first),
        Some(_) => Err(Error::new(SqlState::new("22025"), "invalid escape string")
            .with_hint("Escape string must be empty or one character.")),
    }
}

/// The regular expression that matches what a SIMILAR TO pattern matches, as a whole.
fn similar_to_regex(pattern: &str, escape: &str) -> firn_base::Result<String> {
    let escape = escape_character(escape)?;
    let mut regex = String::from("^(?:");
    let mut in_class = false;
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            let Some(escaped) = characters.next() else {
                return Err(Error::new(
                    SqlState::new("22025"),
                    "LIKE pattern must not end with escape character",
                ));
            };
            if !escaped.is_alphanumeric() {
                regex.push('\\');
            }
            regex.push(escaped);
            continue;
        }
        match character {
            ']' => {
                in_class = false;
                regex.push(']');
            }
            _ if in_class => regex.push(character),
            '[' => {
                in_class = true;
                regex.push('[');
            }
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            '.' | '^' | '$' | '\\' => {
                regex.push('\\');
                regex.push(character);
            }
            other => regex.push(other),
        }
    }
    regex.push_str(")$");
    Ok(regex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_like_pattern_changes_its_escape_character() {
        assert_eq!(like_escape("10!%\\_!!", "!").unwrap(), "10\\%\\\\_\\!");
        assert_eq!(like_escape("a!b", "").unwrap(), "a!b");
        assert!(like_escape("a", "ab").is_err());
    }

    #[test]
    fn a_similar_to_pattern_becomes_a_regular_expression_for_the_whole_text() {
        assert_eq!(similar_to_regex("a(b|c)%_.", "\\").unwrap(), "^(?:a(?:b|c).*.\\.)$");
        assert_eq!(similar_to_regex("10!%", "!").unwrap(), "^(?:10\\%)$");
        assert_eq!(similar_to_regex("x!", "!").unwrap_err().state(), SqlState::new("22025"));
    }
}
