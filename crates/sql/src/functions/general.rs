//! Functions of values of any type.

use datafusion::logical_expr::{ScalarUDF, Volatility};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType, TimeZoneSetting, Value, text};
use firn_exec::function::ValueFunction;
use std::iter::Peekable;
use std::str::Chars;

/// A function of this file by its name.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    FUNCTIONS.iter().find(|function| function.name == name).map(ValueFunction::udf)
}

/// Arguments as they come; bare literals are texts.
fn as_they_come(arguments: &[Option<SqlType>]) -> Vec<SqlType> {
    arguments.iter().map(|ty| ty.unwrap_or(SqlType::Text)).collect()
}

fn count(number: usize) -> Result<Value> {
    Ok(Value::Integer(number as i32))
}

const fn of_anything(
    name: &'static str,
    resolve: firn_exec::function::Resolve,
    compute: firn_exec::function::Compute,
) -> ValueFunction {
    ValueFunction { name, resolve, compute, volatility: Volatility::Stable, takes_null: true }
}

static FUNCTIONS: &[ValueFunction] = &[
    of_anything(
        "num_nulls",
        |arguments| (!arguments.is_empty()).then(|| (as_they_come(arguments), SqlType::Integer)),
        |values, _| count(values.iter().filter(|value| value.is_null()).count()),
    ),
    of_anything(
        "num_nonnulls",
        |arguments| (!arguments.is_empty()).then(|| (as_they_come(arguments), SqlType::Integer)),
        |values, _| count(values.iter().filter(|value| !value.is_null()).count()),
    ),
    of_anything(
        "pg_typeof",
        |arguments| (arguments.len() == 1).then(|| (as_they_come(arguments), SqlType::Text)),
        |_, _| unreachable!("types are known when a statement is bound"),
    ),
    of_anything(
        "format",
        |arguments| match arguments {
            [None | Some(SqlType::Text | SqlType::Varchar(_)), ..] => {
                Some((as_they_come(arguments), SqlType::Text))
            }
            _ => None,
        },
        |values, around| match &values[0] {
            Value::Text(template) => format(template, &values[1..], &around.zone).map(Value::Text),
            _ => Ok(Value::Null),
        },
    ),
];

/// `format('%s and %2$I', …)`
fn format(template: &str, values: &[Value], zone: &TimeZoneSetting) -> Result<String> {
    let mut written = String::with_capacity(template.len());
    let mut characters = template.chars().peekable();
    let mut next = 0;
    while let Some(character) = characters.next() {
        if character != '%' {
            written.push(character);
            continue;
        }
        if characters.next_if_eq(&'%').is_some() {
            written.push('%');
            continue;
        }
        let mut width = number(&mut characters);
        if width.is_some() && characters.next_if_eq(&'$').is_some() {
            let position = width.take().expect("it is some");
            if position == 0 {
                return refuse("format specifies argument 0, but arguments are numbered from 1");
            }
            next = position - 1;
        }
        let left = characters.next_if_eq(&'-').is_some();
        width = width.or_else(|| number(&mut characters));
        let Some(kind) = characters.next() else {
            return refuse("unterminated format() type specifier");
        };
        if !matches!(kind, 's' | 'I' | 'L') {
            return refuse(&format!("unrecognized format() type specifier \"{kind}\""));
        }
        let Some(value) = values.get(next) else { return refuse("too few arguments for format()") };
        next += 1;
        let shown = shown(value, kind, zone)?;
        let padding = width.unwrap_or(0).saturating_sub(shown.chars().count());
        let blanks = " ".repeat(padding);
        match left {
            true => written.extend([shown, blanks]),
            false => written.extend([blanks, shown]),
        }
    }
    Ok(written)
}

/// Reads a number, if there is one.
fn number(characters: &mut Peekable<Chars<'_>>) -> Option<usize> {
    let mut digits = String::new();
    while let Some(digit) = characters.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    digits.parse().ok()
}

fn shown(value: &Value, kind: char, zone: &TimeZoneSetting) -> Result<String> {
    let Some(ty) = value.natural_type() else {
        return match kind {
            's' => Ok(String::new()),
            'L' => Ok("NULL".to_owned()),
            _ => Err(Error::new(
                SqlState::new("22004"),
                "null values cannot be formatted as an SQL identifier",
            )),
        };
    };
    let mut written = String::new();
    text::write(value, ty, zone, &mut written);
    Ok(match kind {
        'I' => crate::statement::quote_ident(&written),
        'L' => crate::statement::quote_literal(&written),
        _ => written,
    })
}

fn refuse<T>(message: &str) -> Result<T> {
    Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_takes_texts_identifiers_and_literals() {
        let text = |text: &str| Value::Text(text.to_owned());
        let format = |template: &str, values: &[Value]| format(template, values, &TimeZoneSetting::UTC);
        let values = [text("a"), text("B c"), text("it's"), Value::Null, Value::Integer(7)];
        assert_eq!(format("%s %I %L %L %s %%", &values).unwrap(), "a \"B c\" 'it''s' NULL 7 %");
        assert_eq!(format("%2$s|%1$5s|%-4s|", &values).unwrap(), "B c|    a|B c |");
        assert!(format("%s %s", &values[..1]).is_err());
        assert!(format("%x", &values).is_err());
    }
}
