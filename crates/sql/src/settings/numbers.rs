//! Numbers of settings: how they are read with PostgreSQL's units, and printed.
//!
//! A number without a unit counts the setting's own unit. One with another unit is converted; a fraction is rounded as
//! PostgreSQL 15's `parse_int` and `convert_to_base_unit` (`guc.c`) round it.

/// What the numbers of a setting count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Milliseconds,
    Seconds,
    Kilobytes,
    /// PostgreSQL's blocks of 8 kB.
    Blocks,
}

use Unit::{Blocks, Kilobytes, Milliseconds, Seconds};

impl Unit {
    /// `pg_settings.unit`
    pub(super) fn name(self) -> &'static str {
        match self {
            Milliseconds => "ms",
            Seconds => "s",
            Kilobytes => "kB",
            Blocks => "8kB",
        }
    }

    /// The units that a value may have, from the largest to the smallest, each as so many of this one.
    fn accepted(self) -> &'static [(&'static str, f64)] {
        const MEMORY: [(&str, f64); 5] =
            [("TB", 1_073_741_824.0), ("GB", 1_048_576.0), ("MB", 1024.0), ("kB", 1.0), ("B", 1.0 / 1024.0)];
        const BLOCKS: [(&str, f64); 5] =
            [("TB", 134_217_728.0), ("GB", 131_072.0), ("MB", 128.0), ("kB", 1.0 / 8.0), ("B", 1.0 / 8192.0)];
        const MILLISECONDS: [(&str, f64); 6] = [
            ("d", 86_400_000.0),
            ("h", 3_600_000.0),
            ("min", 60_000.0),
            ("s", 1000.0),
            ("ms", 1.0),
            ("us", 1.0 / 1000.0),
        ];
        const SECONDS: [(&str, f64); 6] = [
            ("d", 86_400.0),
            ("h", 3600.0),
            ("min", 60.0),
            ("s", 1.0),
            ("ms", 1.0 / 1000.0),
            ("us", 1.0 / 1_000_000.0),
        ];
        match self {
            Kilobytes => &MEMORY,
            Blocks => &BLOCKS,
            Milliseconds => &MILLISECONDS,
            Seconds => &SECONDS,
        }
    }

    /// The hint of an error.
    fn hint(self) -> &'static str {
        match self {
            Kilobytes | Blocks => {
                "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\"."
            }
            Milliseconds | Seconds => {
                "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\"."
            }
        }
    }
}

/// What is wrong with a text: a hint, if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wrong(pub(super) Option<&'static str>);

/// A whole number.
pub(super) fn integer(text: &str, unit: Option<Unit>) -> Result<i32, Wrong> {
    let (number, rest) = leading_number(text, true).ok_or(Wrong(None))?;
    let number = with_unit(number, rest, unit)?.round_ties_even();
    match (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) {
        true => Ok(number as i32),
        false => Err(Wrong(Some("Value exceeds integer range."))),
    }
}

/// A number with a fraction.
pub(super) fn real(text: &str, unit: Option<Unit>) -> Result<f64, Wrong> {
    let (number, rest) = leading_number(text, false).ok_or(Wrong(None))?;
    with_unit(number, rest, unit)
}

fn with_unit(number: f64, rest: &str, unit: Option<Unit>) -> Result<f64, Wrong> {
    let rest = rest.trim_ascii();
    if rest.is_empty() {
        return Ok(number);
    }
    let unit = unit.ok_or(Wrong(None))?;
    let accepted = unit.accepted();
    let found = accepted.iter().position(|(name, _)| *name == rest).ok_or(Wrong(Some(unit.hint())))?;
    let converted = number * accepted[found].1;
    // A fraction is one of the next smaller unit.
    Ok(match accepted.get(found + 1) {
        Some((_, smaller)) => (converted / smaller).round_ties_even() * smaller,
        None => converted,
    })
}

/// The number with which a text begins, and the rest of the text. A whole one may be hexadecimal or octal, as in C.
fn leading_number(text: &str, is_whole: bool) -> Option<(f64, &str)> {
    let text = text.trim_ascii_start();
    let digits_at = usize::from(text.starts_with(['+', '-']));
    let (sign, digits) = text.split_at(digits_at);
    let sign = if sign == "-" { -1.0 } else { 1.0 };
    if is_whole {
        let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
        let (radix, digits) = match hexadecimal {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_hexdigit()) => (16, rest),
            _ if digits.starts_with('0') => (8, digits),
            _ => (10, digits),
        };
        let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
        let rest = &digits[end..];
        if end > 0
            && !rest.starts_with(['.', 'e', 'E'])
            && let Ok(number) = i64::from_str_radix(&digits[..end], radix)
        {
            return Some((sign * number as f64, rest));
        }
    }
    let count = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let whole = count(digits);
    let mut end = whole;
    if digits[end..].starts_with('.') {
        let fraction = count(&digits[end + 1..]);
        if whole + fraction > 0 {
            end += 1 + fraction;
        }
    }
    if end == 0 {
        return None;
    }
    if digits[end..].starts_with(['e', 'E']) {
        let at = end + 1 + usize::from(digits[end + 1..].starts_with(['+', '-']));
        let exponent = count(&digits[at..]);
        if exponent > 0 {
            end = at + exponent;
        }
    }
    let number: f64 = digits[..end].parse().ok()?;
    number.is_finite().then(|| (sign * number, &digits[end..]))
}

/// A whole number as SHOW prints it: in the largest unit that says it without a fraction.
pub(super) fn print_integer(number: i32, unit: Option<Unit>) -> String {
    let Some(unit) = unit.filter(|_| number > 0) else { return number.to_string() };
    let divides = |(_, of): &&(&str, f64)| *of <= 1.0 || number % *of as i32 == 0 && f64::from(number) >= *of;
    let (name, of) = unit.accepted().iter().find(divides).expect("the smallest divides all");
    format!("{}{name}", (f64::from(number) / of).round_ties_even() as i64)
}

/// Likewise, a number with a fraction.
pub(super) fn print_real(number: f64, unit: Option<Unit>) -> String {
    let Some(unit) = unit.filter(|_| number > 0.0) else { return general(number) };
    let is_whole = |(_, of): &&(&str, f64)| {
        let count = number / of;
        ((count.round_ties_even() / count) - 1.0).abs() <= 1e-8
    };
    let all = unit.accepted();
    let (name, of) = all.iter().find(is_whole).unwrap_or(&all[all.len() - 1]);
    format!("{}{name}", general(number / of))
}

/// `%g` of C.
pub(super) fn general(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{number:.5e}");
    let (digits, exponent) = scientific.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("it is a number");
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", short(digits), exponent.abs());
    }
    short(&format!("{number:.*}", (5 - exponent) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL 15 reads and prints them.
    #[test]
    fn numbers_are_read_and_printed_with_units() {
        for (text, unit, number, printed) in [
            ("0x100", Some(Kilobytes), 256, "256kB"),
            ("1.5MB", Some(Kilobytes), 1536, "1536kB"),
            (" 64 kB ", Some(Kilobytes), 64, "64kB"),
            ("1GB", Some(Kilobytes), 1 << 20, "1GB"),
            ("3", Some(Blocks), 3, "24kB"),
            ("4GB", Some(Blocks), 1 << 19, "4GB"),
            ("20 d", Some(Milliseconds), 1_728_000_000, "20d"),
            ("1500us", Some(Milliseconds), 2, "2ms"),
            ("1.0001h", Some(Milliseconds), 3_600_000, "1h"),
            ("2min", Some(Seconds), 120, "2min"),
            ("5.4", None, 5, "5"),
            ("-1", Some(Kilobytes), -1, "-1"),
            ("010", None, 8, "8"),
            ("1e2", None, 100, "100"),
        ] {
            assert_eq!(integer(text, unit), Ok(number), "{text}");
            assert_eq!(print_integer(number, unit), printed, "{text}");
        }
        for (text, unit, number, printed) in [
            ("1.5ms", Some(Milliseconds), 1.5, "1500us"),
            (".5", None, 0.5, "0.5"),
            ("0.30", None, 0.3, "0.3"),
            ("1e+10", None, 1e10, "1e+10"),
            ("0.00001", None, 1e-5, "1e-05"),
            ("123456.7", None, 123_456.7, "123457"),
        ] {
            assert_eq!(real(text, unit), Ok(number), "{text}");
            assert_eq!(print_real(number, unit), printed, "{text}");
        }
        let (range, time) = (Wrong(Some("Value exceeds integer range.")), Wrong(Some(Milliseconds.hint())));
        for (text, unit, wrong) in [
            ("", None, Wrong(None)),
            ("ms", Some(Milliseconds), Wrong(None)),
            ("5ms", None, Wrong(None)),
            ("08", None, Wrong(None)),
            ("5 weeks", Some(Milliseconds), time),
            ("1 h 2", Some(Milliseconds), time),
            ("1 MS", Some(Milliseconds), time),
            ("25d", Some(Milliseconds), range),
            ("99999999999", Some(Kilobytes), range),
        ] {
            assert_eq!(integer(text, unit), Err(wrong), "{text}");
        }
        assert_eq!((real("nan", None), real("1e400", None)), (Err(Wrong(None)), Err(Wrong(None))));
    }
}
