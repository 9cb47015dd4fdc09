//! `to_char` of numbers, and `to_number`.

use crate::kernel::{Call, Text};
use crate::registry::RegistryBuilder;
use firn_base::numeric::{self, Numeric};
use firn_base::{Error, Result, SqlState};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(i32, &str), _>("to_char(int4,text)", |call, (value, pattern)| {
        write_number(call, Numeric::from(i64::from(value)), pattern)
    });
    builder.scalar::<(i64, &str), _>("to_char(int8,text)", |call, (value, pattern)| {
        write_number(call, Numeric::from(value), pattern)
    });
    builder.scalar::<(Numeric, &str), _>("to_char(numeric,text)", |call, (value, pattern)| {
        write_number(call, value, pattern)
    });
    builder.scalar::<(&str, &str), _>("to_number(text,text)", |_, (text, pattern)| {
        check_pattern(pattern)?;
        let (unscaled, scale) = read_number(text, pattern)?;
        Numeric::new(unscaled, scale.into()).ok_or_else(numeric::overflow)
    });
}

/// 0A000 of a pattern with anything but digits, points, separators, signs and FM.
fn check_pattern(pattern: &str) -> Result<()> {
    let upper = pattern.to_ascii_uppercase();
    let rest = upper.replacen("FM", "", 1).replacen("MI", "", 1).replacen('S', "", 1);
    match rest.chars().all(|c| matches!(c, '0' | '9' | '.' | ',' | 'D' | 'G')) {
        true => Ok(()),
        false => Err(Error::unsupported(format_args!("the pattern \"{pattern}\" for numbers"))
            .with_hint("Patterns may have 9, 0, point, comma, D, G, S, MI and FM.")),
    }
}

fn write_number(call: &mut Call<'_>, value: Numeric, pattern: &str) -> Result<Option<Text>> {
    if pattern.is_empty() {
        return Ok(None);
    }
    check_pattern(pattern)?;
    let Some((unscaled, scale)) = value.number() else {
        return Err(Error::unsupported("to_char of what is no number"));
    };
    let value = if scale > 38 { value.round(38)? } else { value };
    let (unscaled, scale) = value.number().unwrap_or((unscaled, scale));
    call.text.push_str(&number(pattern, unscaled, u8::try_from(scale).expect("it was rounded")));
    Ok(Some(Text))
}

/// A number, written after a pattern of `9`, `0`, `.`, `,`, `D`, `G`, `S`, `MI`, `FM`.
fn number(pattern: &str, unscaled: i128, scale: u8) -> String {
    let (bare, pattern) = match pattern.strip_prefix("FM").or_else(|| pattern.strip_prefix("fm")) {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let upper = pattern.to_uppercase();
    let (whole, fraction) = match upper.find(['.', 'D']) {
        Some(point) => (&upper[..point], &upper[point + 1..]),
        None => (upper.as_str(), ""),
    };
    let slots = |text: &str| text.chars().filter(|c| matches!(c, '0' | '9')).count();
    let decimals = slots(fraction) as u8;
    let rounded = numeric::rescale(unscaled, scale, decimals).unwrap_or(i128::MAX);
    let negative = rounded < 0;
    let digits = format!("{:0width$}", rounded.unsigned_abs(), width = usize::from(decimals) + 1);
    let (before, after) = digits.split_at(digits.len() - usize::from(decimals));
    let before = before.trim_start_matches('0');
    let width = slots(whole);
    let overflow = before.len() > width;

    let mut body = String::new();
    let mut missing = width.saturating_sub(before.len());
    let mut source = before.chars();
    // From the first 0 on, missing digits are written as zeros.
    let mut zeros = false;
    let mut begun = false;
    for character in whole.chars() {
        match character {
            '0' | '9' => {
                zeros |= character == '0';
                if overflow {
                    body.push('#');
                } else if missing > 0 {
                    missing -= 1;
                    begun |= zeros;
                    body.push(if zeros { '0' } else { ' ' });
                } else {
                    begun = true;
                    body.extend(source.next());
                }
            }
            ',' | 'G' => body.push(if begun || overflow { ',' } else { ' ' }),
            _ => {}
        }
    }
    if decimals > 0 || upper.contains(['.', 'D']) {
        body.push('.');
        if overflow {
            body.extend(std::iter::repeat_n('#', usize::from(decimals)));
        } else {
            body.push_str(after);
        }
    }
    if bare {
        let optional = fraction.chars().rev().take_while(|c| *c == '9').count();
        for _ in 0..optional {
            if body.ends_with('0') {
                body.pop();
            }
        }
    }
    // The sign stands right before the first digit.
    let start = body.len() - body.trim_start().len();
    let sign = if negative { '-' } else { ' ' };
    if upper.ends_with("MI") {
        body.push(sign);
    } else if upper.starts_with('S') {
        body.insert(start, if negative { '-' } else { '+' });
    } else if upper.ends_with('S') {
        body.push(if negative { '-' } else { '+' });
    } else {
        body.insert(start, sign);
        if start > 0 {
            // The place for the sign is before all digits; padding moves in front of it.
            let moved: String = std::iter::repeat_n(' ', start).chain(body[start..].chars()).collect();
            body = moved;
        }
    }
    if bare { body.trim().to_owned() } else { body }
}

/// Reads a number after a pattern, as `to_number` does: digits beyond those that the pattern has room
/// for are passed over. 22P02 if it finds no digit.
fn read_number(text: &str, pattern: &str) -> Result<(i128, u8)> {
    let mut rest = text.trim_start().chars().peekable();
    let mut pattern = pattern.chars().peekable();
    let mut number = String::new();
    let mut negative = false;
    let mut sign = |next: Option<char>| {
        negative |= matches!(next, Some('-' | '<'));
        matches!(next, Some('-' | '+' | '<'))
    };
    if sign(rest.peek().copied()) {
        rest.next();
    }
    while let Some(piece) = pattern.next() {
        match piece.to_ascii_uppercase() {
            '9' | '0' => {
                while rest.next_if(|next| *next == ' ').is_some() {}
                number.extend(rest.next_if(char::is_ascii_digit));
            }
            '.' | 'D' => number.extend(rest.next_if_eq(&'.')),
            ',' | 'G' => drop(rest.next_if_eq(&',')),
            'L' | '$' => drop(rest.next_if_eq(&'$')),
            'S' | 'M' | 'P' => {
                // S, SG, MI, PL, PR
                pattern.next_if(|next| matches!(next.to_ascii_uppercase(), 'G' | 'I' | 'L' | 'R'));
                if sign(rest.peek().copied()) {
                    rest.next();
                }
            }
            'F' => drop(pattern.next_if(|next| next.eq_ignore_ascii_case(&'m'))),
            _ => drop(rest.next_if_eq(&piece)),
        }
    }
    let (unscaled, scale) = numeric::parse(&number).map_err(|_| {
        Error::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type numeric: \"{text}\""),
        )
    })?;
    Ok((if negative { -unscaled } else { unscaled }, scale))
}
