//! JDBC's placeholders. The Flight SQL driver for JDBC sends a statement as its program wrote it, with `?` for
//! parameters. PostgreSQL's drivers replace these with `$1`, `$2`, … before they send it, and this module does the same.

/// The statement with `$1`, `$2`, … for every `?` outside quotes and comments. No operator of ours has
/// one in its name.
pub(super) fn numbered(sql: &str) -> String {
    let mut numbered = String::with_capacity(sql.len() + 8);
    let mut rest = sql;
    let mut parameters = 0;
    while let Some(at) = rest.find(['?', '\'', '"', '-', '/', '$']) {
        let before = &rest[..at];
        numbered.push_str(before);
        rest = &rest[at..];
        let length = match rest.as_bytes()[0] {
            b'?' => {
                parameters += 1;
                numbered.push_str(&format!("${parameters}"));
                rest = &rest[1..];
                continue;
            }
            b'\'' if ends_in_escape_prefix(before) => quoted(rest, '\'', true),
            quote @ (b'\'' | b'"') => quoted(rest, char::from(quote), false),
            b'-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => comment(rest),
            b'$' => dollar_quoted(rest),
            _ => 1,
        };
        numbered.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    numbered.push_str(rest);
    numbered
}

/// Whether a string that begins here is one with backslashes (`E'…'`).
fn ends_in_escape_prefix(before: &str) -> bool {
    let mut letters = before.chars().rev();
    matches!(letters.next(), Some('e' | 'E'))
        && !letters.next().is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
}

/// The length of quoted text. A doubled quote ends it and begins it again, which has the same effect.
fn quoted(text: &str, quote: char, backslashes: bool) -> usize {
    let mut escaped = false;
    for (position, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' if backslashes => escaped = true,
            character if character == quote => return position + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a comment, with those inside it.
fn comment(text: &str) -> usize {
    let (mut depth, mut position) = (0, 0);
    while position < text.len() {
        let rest = &text.as_bytes()[position..];
        position += match (rest.starts_with(b"/*"), rest.starts_with(b"*/")) {
            (true, _) => {
                depth += 1;
                2
            }
            (_, true) => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        if depth == 0 {
            return position;
        }
    }
    text.len()
}

/// The length of `$tag$ … $tag$`, or of the `$` that begins a parameter.
fn dollar_quoted(text: &str) -> usize {
    let is_of_tag = |character: char| character.is_alphanumeric() || character == '_';
    let tag = text[1..].find(|character| !is_of_tag(character)).map(|end| &text[..end + 2]);
    match tag.filter(|tag| tag.ends_with('$') && !tag[1..].starts_with(|first: char| first.is_ascii_digit()))
    {
        Some(tag) => text[tag.len()..].find(tag).map_or(text.len(), |end| end + 2 * tag.len()),
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_marks_outside_quotes_and_comments_are_parameters() {
        for (sql, expected) in [
            ("SELECT ? + ?", "SELECT $1 + $2"),
            ("SELECT '?', \"?\", ?", "SELECT '?', \"?\", $1"),
            ("SELECT 'it''s ?' || ?", "SELECT 'it''s ?' || $1"),
            ("SELECT E'\\'?' || ?", "SELECT E'\\'?' || $1"),
            ("SELECT date'\\' || ?", "SELECT date'\\' || $1"),
            ("SELECT 1 -- ?\n + ?", "SELECT 1 -- ?\n + $1"),
            ("SELECT /* ? /* ? */ ? */ ? - 1 / 2", "SELECT /* ? /* ? */ ? */ $1 - 1 / 2"),
            ("SELECT $$?$$, $a$ ? $$ $a$, ?", "SELECT $$?$$, $a$ ? $$ $a$, $1"),
            ("SELECT $1, $2", "SELECT $1, $2"),
            ("SELECT 'снег ?', ?, '…", "SELECT 'снег ?', $1, '…"),
            ("/* ?", "/* ?"),
        ] {
            assert_eq!(numbered(sql), expected);
        }
    }
}
