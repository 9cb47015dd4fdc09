//! Fields that are not literal: quotes and escapes are removed.

use crate::options::{CopyOptions, QuotesOpen};

/// Removes the quotes of a field of a CSV file: those that open where the options allow it, and those that close them.
pub(crate) fn unquote(raw: &[u8], options: &CopyOptions, out: &mut Vec<u8>) {
    out.clear();
    let anywhere = options.quotes_open == QuotesOpen::Anywhere;
    let (mut in_quotes, mut may_open) = (false, true);
    let mut position = 0;
    while let Some(&byte) = raw.get(position) {
        position += 1;
        let next = raw.get(position).copied();
        let escapes = |next: &u8| *next == options.quote || *next == options.escape;
        if in_quotes && byte == options.escape && next.as_ref().is_some_and(escapes) {
            out.extend(next);
            position += 1;
        } else if byte == options.quote && (in_quotes || may_open) {
            in_quotes = !in_quotes;
            // A quote may also open directly after one that has closed.
            may_open = true;
        } else {
            out.push(byte);
            may_open = anywhere;
        }
    }
}

/// Resolves the backslash escapes of the text format.
pub(crate) fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&escape, after)) = rest.split_first() else {
            // A backslash at the very end is literal.
            out.push(b'\\');
            break;
        };
        rest = after;
        match escape {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let digits = after.iter().take(2).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
                let start = u32::from(escape - b'0');
                let value =
                    after[..digits].iter().fold(start, |value, digit| value * 8 + u32::from(digit - b'0'));
                out.push(value as u8);
                rest = &after[digits..];
            }
            b'x' => {
                let digits = after.iter().take(2).take_while(|digit| digit.is_ascii_hexdigit()).count();
                if digits == 0 {
                    out.push(b'x');
                } else {
                    let value = after[..digits]
                        .iter()
                        .filter_map(|digit| char::from(*digit).to_digit(16))
                        .fold(0, |value, digit| value * 16 + digit);
                    out.push(value as u8);
                    rest = &after[digits..];
                }
            }
            other => out.push(other),
        }
    }
}
