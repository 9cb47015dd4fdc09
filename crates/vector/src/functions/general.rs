//! Functions of values of any type.

use super::io::write;
use super::texts::quote_literal;
use crate::Datum;
use crate::kernel::{Call, Rest, Text};
use crate::registry::RegistryBuilder;
use firn_base::{Error, Result, SqlState, SqlType, Type, text};
use std::sync::LazyLock;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<Rest, _>("concat(any)", |call, values| {
        join(call, values, 0, "")?;
        Ok::<_, Error>(Text)
    });
    builder.scalar::<Rest, _>("concat_ws(text,any)", |call, values| match values.get(0) {
        Datum::Text(separator) => {
            join(call, values, 1, separator)?;
            Ok::<_, Error>(Some(Text))
        }
        _ => Ok(None),
    });
    builder.scalar::<Rest, _>("format(text,any) format(text)", |call, values| match values.get(0) {
        Datum::Text(pattern) => format(call, pattern, values).map(Some),
        _ => Ok(None),
    });
    builder.scalar::<Rest, _>("pg_typeof(any)", |call, _| call.signature.arguments[0].id.0);
    builder.scalar::<Rest, _>("num_nulls(any)", |call, values| count(call, values, true));
    builder.scalar::<Rest, _>("num_nonnulls(any)", |call, values| count(call, values, false));
    builder.scalar::<(&str, Datum), _>("textanycat(text,anynonarray)", |call, (left, right)| {
        call.text.push_str(left);
        write_cast(right, call.signature.arguments[1], call)?;
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(Datum, &str), _>("anytextcat(anynonarray,text)", |call, (left, right)| {
        write_cast(left, call.signature.arguments[0], call)?;
        call.text.push_str(right);
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(&str,), _>("quote_ident(text)", |call, (name,)| {
        quote_identifier(name, &mut call.text);
        Text
    });
    builder.scalar::<(Datum,), _>("quote_literal(anyelement)", |call, (value,)| {
        quote(value, call)?;
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(Option<Datum>,), _>("quote_nullable(anyelement)", |call, (value,)| {
        match value {
            Some(value) => quote(value, call)?,
            None => call.text.push_str("NULL"),
        }
        Ok::<_, Error>(Text)
    });
}

/// Appends what a value is as text by a cast, which differs from its output for boolean.
fn write_cast(value: Datum<'_>, ty: Type, call: &mut Call<'_>) -> Result<()> {
    match value {
        Datum::Boolean(value) => call.text.push_str(if value { "true" } else { "false" }),
        value => write(value, ty, call)?,
    }
    Ok(())
}

fn quote(value: Datum<'_>, call: &mut Call<'_>) -> Result<()> {
    let start = call.text.len();
    write_cast(value, call.signature.arguments[0], call)?;
    let plain = call.text.split_off(start);
    quote_literal(&plain, &mut call.text);
    Ok(())
}

/// Calls a closure with each value from one on and its type: of a variadic array, with its elements.
pub(super) fn each<'a>(
    call: &mut Call<'_>,
    values: Rest<'a>,
    first: usize,
    mut visit: impl FnMut(&mut Call<'_>, Datum<'a>, Type) -> Result<()>,
) -> Result<()> {
    let last = values.len() - 1;
    for number in first..values.len() {
        let ty = call.signature.arguments[number];
        match values.get(number) {
            Datum::List(list) if number == last && call.signature.has_variadic_array => {
                let element = ty.element().expect("arrays have elements");
                for value in list.iter() {
                    visit(call, value, element)?;
                }
            }
            value => visit(call, value, ty)?,
        }
    }
    Ok(())
}

/// Appends all values that are not NULL, with a separator between them.
fn join(call: &mut Call<'_>, values: Rest<'_>, first: usize, separator: &str) -> Result<()> {
    if values.len() <= first {
        return Ok(());
    }
    let mut is_first = true;
    each(call, values, first, |call, value, ty| {
        if value.is_null() {
            return Ok(());
        }
        if !is_first {
            call.text.push_str(separator);
        }
        is_first = false;
        write(value, ty, call)
    })
}

fn count(call: &mut Call<'_>, values: Rest<'_>, nulls: bool) -> Result<Option<i32>> {
    let last = values.len() - 1;
    if call.signature.has_variadic_array && values.get(last).is_null() {
        return Ok(None);
    }
    let mut found = 0;
    each(call, values, 0, |_, value, _| {
        found += i32::from(value.is_null() == nulls);
        Ok(())
    })?;
    Ok(Some(found))
}

/// A conversion of a format: `%[position$][-][width]type`.
#[derive(Default)]
struct Conversion {
    position: Option<usize>,
    is_left: bool,
    width: usize,
}

#[cold]
fn invalid(message: &str) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn format(call: &mut Call<'_>, pattern: &str, values: Rest<'_>) -> Result<Text> {
    // The values with their types, of a variadic array its elements.
    let mut given: Vec<(Datum<'_>, Type)> = Vec::new();
    if values.len() > 1 && !(call.signature.has_variadic_array && values.get(values.len() - 1).is_null()) {
        each(call, values, 1, |_, value, ty| {
            given.push((value, ty));
            Ok(())
        })?;
    }
    let mut next = 0;
    let mut rest = pattern.chars().peekable();
    let ended =
        || invalid("unterminated format() type specifier").with_hint("For a single \"%\" use \"%%\".");
    while let Some(character) = rest.next() {
        if character != '%' {
            call.text.push(character);
            continue;
        }
        if rest.next_if_eq(&'%').is_some() {
            call.text.push('%');
            continue;
        }
        let mut conversion = Conversion::default();
        let number = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>| -> Result<Option<usize>> {
            let mut number: Option<usize> = None;
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                let digit = digit as usize - '0' as usize;
                number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit));
                if number > Some(i32::MAX as usize) {
                    return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "number is out of range"));
                }
            }
            Ok(number)
        };
        let take = |place: Option<usize>, next: &mut usize| -> Result<(Datum<'_>, Type)> {
            let place = match place {
                Some(0) => {
                    return Err(invalid("format specifies argument 0, but arguments are numbered from 1"));
                }
                Some(place) => place - 1,
                None => *next,
            };
            *next = place + 1;
            given.get(place).copied().ok_or_else(|| invalid("too few arguments for format()"))
        };
        let first = number(&mut rest)?;
        if rest.next_if_eq(&'$').is_some() {
            conversion.position = Some(first.unwrap_or(0));
        } else {
            conversion.width = first.unwrap_or(0);
        }
        if first.is_none() || conversion.position.is_some() {
            while rest.next_if_eq(&'-').is_some() {
                conversion.is_left = true;
            }
            if rest.next_if_eq(&'*').is_some() {
                let place = number(&mut rest)?;
                if place.is_some() && rest.next_if_eq(&'$').is_none() {
                    return Err(invalid("width argument position must be ended by \"$\""));
                }
                let (width, ty) = take(place, &mut next)?;
                let start = call.text.len();
                write(width, ty, call)?;
                let written = call.text.split_off(start);
                let width = match width {
                    Datum::Null => 0,
                    _ => text::parse_integer::<i32>(&written, SqlType::Integer)?,
                };
                conversion.is_left |= width < 0;
                conversion.width = width.unsigned_abs() as usize;
            } else if let Some(width) = number(&mut rest)? {
                conversion.width = width;
            }
        }
        let kind = rest.next().ok_or_else(ended)?;
        if !matches!(kind, 's' | 'I' | 'L') {
            return Err(invalid(&format!("unrecognized format() type specifier \"{kind}\""))
                .with_hint("For a single \"%\" use \"%%\"."));
        }
        let (value, ty) = take(conversion.position, &mut next)?;
        let start = call.text.len();
        match (kind, value) {
            ('I', Datum::Null) => {
                return Err(Error::new(
                    SqlState::new("22004"),
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            ('L', Datum::Null) => call.text.push_str("NULL"),
            (_, Datum::Null) => {}
            (_, value) => write(value, ty, call)?,
        }
        if kind == 'L' && !value.is_null() {
            let plain = call.text.split_off(start);
            quote_literal(&plain, &mut call.text);
        } else if kind == 'I' {
            let plain = call.text.split_off(start);
            quote_identifier(&plain, &mut call.text);
        }
        let length = call.text[start..].chars().count();
        let missing = conversion.width.saturating_sub(length);
        if conversion.is_left {
            call.text.extend(std::iter::repeat_n(' ', missing));
        } else if missing > 0 {
            call.text.insert_str(start, &" ".repeat(missing));
        }
    }
    Ok(Text)
}

/// The words that are no names without quotes: PostgreSQL's keywords that are not unreserved, in order.
static KEYWORDS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| include_str!("../facts/keywords.txt").lines().collect());

/// Appends a name as SQL text has it: in quotes where it would read as something else.
pub fn quote_identifier(name: &str, out: &mut String) {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && KEYWORDS.binary_search(&name).is_err();
    if is_plain {
        out.push_str(name);
        return;
    }
    out.push('"');
    for character in name.chars() {
        if character == '"' {
            out.push('"');
        }
        out.push(character);
    }
    out.push('"');
}
