//! LIKE and ILIKE on one string.

use firn_base::{Error, Result, SqlState};

/// Whether all of `text` matches `pattern`: `%` stands for any run of characters, `_` for one, and
/// the character after `escape` for itself. 22025 if there is none and the text goes on there.
pub(crate) fn matches(text: &str, pattern: &str, escape: char, ignore_case: bool) -> Result<bool> {
    if ignore_case {
        return matches(&text.to_lowercase(), &pattern.to_lowercase(), escape, false);
    }
    // The classic greedy match: on a mismatch, let the latest `%` swallow one character more.
    // Earlier ones never need to be tried again.
    let (mut text, mut pattern) = (text.chars(), pattern.chars());
    let mut retry = None;
    loop {
        let before = pattern.clone();
        let matched = match pattern.next() {
            Some('%') if escape != '%' => {
                retry = Some((text.clone(), pattern.clone()));
                continue;
            }
            Some('_') if escape != '_' => text.next().is_some(),
            Some(wanted) => {
                let wanted = if wanted == escape { pattern.next() } else { Some(wanted) };
                match (text.next(), wanted) {
                    (Some(_), None) => return Err(ends_with_escape()),
                    (next, wanted) => next.is_some() && next == wanted,
                }
            }
            None => {
                if text.as_str().is_empty() {
                    return Ok(true);
                }
                pattern = before;
                false
            }
        };
        if !matched {
            let Some((later_text, later_pattern)) = &mut retry else { return Ok(false) };
            if later_text.next().is_none() {
                return Ok(false);
            }
            (text, pattern) = (later_text.clone(), later_pattern.clone());
        }
    }
}

#[cold]
fn ends_with_escape() -> Error {
    Error::new(SqlState::new("22025"), "LIKE pattern must not end with escape character")
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn wildcards_stand_for_characters_and_the_escape_takes_their_meaning() {
        for (text, pattern, expected) in [
            ("", "", true),
            ("", "%", true),
            ("", "_", false),
            ("firn", "firn", true),
            ("firn", "f%", true),
            ("firn", "%n", true),
            ("firn", "%i%n", true),
            ("firn", "f_rn", true),
            ("firn", "f_n", false),
            ("firn", "f", false),
            ("aaab", "%aab", true),
            ("abcabd", "%ab_", true),
            ("100%", "100\\%", true),
            ("1000", "100\\%", false),
            ("a_b", "a\\_b", true),
            ("axb", "a\\_b", false),
            ("äöü", "_ö_", true),
        ] {
            assert_eq!(matches(text, pattern, '\\', false).unwrap(), expected, "{text:?} LIKE {pattern:?}");
        }
        assert!(matches("FiRn", "fI%", '\\', true).unwrap());
    }

    #[test]
    fn a_pattern_that_ends_with_its_escape_is_an_error_where_the_text_goes_on() {
        for (text, pattern, is_error) in [
            ("a\\", "a\\", true),
            ("ab", "a\\", true),
            ("a", "a\\", false),
            ("b", "a\\", false),
            ("", "%\\", false),
            ("ab", "%\\", true),
            ("a\\", "a\\\\", false),
        ] {
            assert_eq!(matches(text, pattern, '\\', false).is_err(), is_error, "{text:?} LIKE {pattern:?}");
        }
    }
}
