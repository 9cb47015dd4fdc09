//! Splits lines into statements: finds the end of each, which is a semicolon outside of quotes,
//! comments, dollar quotes and parentheses, or `\g` or `\gx` outside of all but parentheses.

const SEMICOLON: &str = ";";
const GO: &str = "\\g";
const GO_EXPANDED: &str = "\\gx";

/// Collects lines until they hold whole statements.
#[derive(Default)]
pub struct Splitter {
    text: String,
    /// How far `text` has been scanned.
    scanned: usize,
    inside: Inside,
    parentheses: usize,
}

/// A statement without its end mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    pub sql: String,
    /// Whether it ends with `\gx`: one line per column.
    pub expanded: bool,
}

/// The construct that contains the end of the text so far.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
enum Inside {
    #[default]
    Plain,
    /// '…', where a backslash escapes only after E.
    Quote { escapes: bool },
    /// "…"
    Identifier,
    /// $tag$…$tag$
    Dollar(String),
    /// /* … */, which nests.
    Comment(usize),
}

impl Splitter {
    /// Adds a line.
    pub fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Whether no incomplete statement is left.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Drops the incomplete statement.
    pub fn clear(&mut self) {
        *self = Splitter::default();
    }

    /// The character that psql shows before the `>` of its prompt.
    pub fn prompt_mark(&self) -> char {
        match self.inside {
            _ if self.is_empty() => '=',
            Inside::Quote { .. } => '\'',
            Inside::Identifier => '"',
            Inside::Dollar(_) => '$',
            Inside::Comment(_) => '*',
            Inside::Plain if self.parentheses > 0 => '(',
            Inside::Plain => '-',
        }
    }

    /// Whether a line that begins with a backslash is a command now: not inside quotes or a comment.
    /// An incomplete statement waits meanwhile.
    pub fn takes_commands(&self) -> bool {
        self.inside == Inside::Plain
    }

    /// The incomplete statement.
    pub fn pending(&self) -> &str {
        self.text.trim()
    }

    /// Takes the next whole statement.
    pub fn next_statement(&mut self) -> Option<Statement> {
        while self.scanned < self.text.len() && !self.text.trim_start().starts_with('\\') {
            if let Some(end) = self.step() {
                let rest = self.text.split_off(self.scanned);
                let mut sql = std::mem::replace(&mut self.text, rest);
                self.scanned = 0;
                self.parentheses = 0;
                sql.truncate(sql.len() - end.len());
                let sql = sql.trim().to_owned();
                if !sql.is_empty() {
                    return Some(Statement { sql, expanded: end == GO_EXPANDED });
                }
            }
        }
        None
    }

    /// Takes a command, which begins with a backslash where a statement could begin and ends with its
    /// line.
    pub fn next_command(&mut self) -> Option<String> {
        let begins_one = self.inside == Inside::Plain && self.text.trim_start().starts_with('\\');
        begins_one.then(|| std::mem::take(self).text.trim().to_owned())
    }

    /// Takes the rest as a statement, at the end of the input.
    pub fn finish(&mut self) -> Option<Statement> {
        let sql = std::mem::take(self).text.trim().to_owned();
        (!sql.is_empty()).then_some(Statement { sql, expanded: false })
    }

    /// Scans the next token. Returns it if it ends a statement.
    fn step(&mut self) -> Option<&'static str> {
        let rest = &self.text[self.scanned..];
        let first = rest.chars().next().expect("called before the end");
        let mut length = first.len_utf8();
        let mut end = None;
        match &mut self.inside {
            Inside::Plain => match first {
                ';' if self.parentheses == 0 => end = Some(SEMICOLON),
                '\\' => {
                    let word = rest.split_ascii_whitespace().next();
                    end = [GO, GO_EXPANDED].into_iter().find(|go| word == Some(go));
                    length = end.map_or(length, str::len);
                }
                '(' => self.parentheses += 1,
                ')' => self.parentheses = self.parentheses.saturating_sub(1),
                '\'' => {
                    let before = &self.text.as_bytes()[..self.scanned];
                    let marked = matches!(before, [.., b'e' | b'E']);
                    let word_before = before.len() >= 2 && is_word(before[before.len() - 2]);
                    self.inside = Inside::Quote { escapes: marked && !word_before };
                }
                '"' => self.inside = Inside::Identifier,
                '-' if rest.starts_with("--") => length = rest.find('\n').unwrap_or(rest.len()),
                '/' if rest.starts_with("/*") => {
                    length = 2;
                    self.inside = Inside::Comment(1);
                }
                '$' => {
                    let word_before = self.text[..self.scanned].bytes().next_back().is_some_and(is_word);
                    if let Some(tag) = dollar_tag(rest).filter(|_| !word_before) {
                        length = tag.len();
                        self.inside = Inside::Dollar(tag.to_owned());
                    }
                }
                _ => {}
            },
            Inside::Quote { escapes: true } if first == '\\' => {
                length += rest[length..].chars().next().map_or(0, char::len_utf8);
            }
            // A doubled quote leaves the quotes and enters them again, which has the same effect.
            Inside::Quote { .. } if first == '\'' => self.inside = Inside::Plain,
            Inside::Identifier if first == '"' => self.inside = Inside::Plain,
            Inside::Dollar(tag) if rest.starts_with(tag.as_str()) => {
                length = tag.len();
                self.inside = Inside::Plain;
            }
            Inside::Comment(depth) if rest.starts_with("/*") => {
                length = 2;
                *depth += 1;
            }
            Inside::Comment(depth) if rest.starts_with("*/") => {
                length = 2;
                *depth -= 1;
                if *depth == 0 {
                    self.inside = Inside::Plain;
                }
            }
            _ => {}
        }
        self.scanned += length;
        end
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// `$$` or `$tag$` at the front of a text.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 1;
    let name = &text[1..end];
    let starts_well = !name.starts_with(|character: char| character.is_ascii_digit());
    (starts_well && name.bytes().all(is_word)).then(|| &text[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> (Vec<String>, char) {
        let mut splitter = Splitter::default();
        let mut statements = Vec::new();
        for line in text.lines() {
            splitter.push(line);
            statements.extend(std::iter::from_fn(|| splitter.next_statement()).map(|found| found.sql));
        }
        (statements, splitter.prompt_mark())
    }

    #[test]
    fn only_semicolons_outside_of_everything_end_statements() {
        for statement in [
            "SELECT 1",
            "SELECT ';', 'it''s;', E'\\';', \"a;b\"",
            "SELECT $$;$$, $x$;$$;$x$, $1",
            "SELECT 1 -- ; no\n+ 1",
            "SELECT /* ; /* ; */ ; */ 1",
            "CREATE RULE r AS (a; b)",
            "SELECT 'two\nlines;'",
            "SELECT name'; '",
        ] {
            let (statements, mark) = split(&format!("{statement};\n;; SELECT 2;"));
            assert_eq!(statements, [statement, "SELECT 2"]);
            assert_eq!(mark, '=');
        }
    }

    #[test]
    fn the_prompt_shows_what_is_still_open() {
        for (text, mark) in [
            ("", '='),
            ("SELECT", '-'),
            ("SELECT 'a", '\''),
            ("SELECT \"a", '"'),
            ("SELECT (1", '('),
            ("SELECT $a$ $$", '$'),
            ("SELECT /* /* */", '*'),
            ("SELECT 1;", '='),
        ] {
            assert_eq!(split(text).1, mark, "{text}");
        }
    }

    #[test]
    fn a_command_may_stand_behind_a_statement_but_not_inside_one() {
        let mut splitter = Splitter::default();
        splitter.push("SELECT 1; \\x on");
        assert_eq!(splitter.next_command(), None);
        assert_eq!(splitter.next_statement().unwrap().sql, "SELECT 1");
        assert_eq!(splitter.next_statement(), None);
        assert_eq!(splitter.next_command().as_deref(), Some("\\x on"));
        assert!(splitter.is_empty());
        splitter.push("SELECT '");
        splitter.push("\\x");
        assert_eq!((splitter.next_statement(), splitter.next_command()), (None, None));
    }

    #[test]
    fn a_backslash_and_g_end_a_statement_like_a_semicolon() {
        let mut splitter = Splitter::default();
        splitter.push("SELECT '\\g' \\gx SELECT (2 \\g");
        splitter.push("SELECT 3 \\gnu");
        let found: Vec<_> = std::iter::from_fn(|| splitter.next_statement()).collect();
        let expected = [("SELECT '\\g'", true), ("SELECT (2", false)];
        assert_eq!(found.len(), 2);
        for (found, (sql, expanded)) in found.iter().zip(expected) {
            assert_eq!((found.sql.as_str(), found.expanded), (sql, expanded));
        }
        assert!(splitter.takes_commands());
        assert_eq!(splitter.pending(), "SELECT 3 \\gnu");
    }

    #[test]
    fn the_end_of_the_input_ends_a_statement() {
        let mut splitter = Splitter::default();
        splitter.push("SELECT 1; SELECT 2");
        assert_eq!(splitter.next_statement().unwrap().sql, "SELECT 1");
        assert_eq!(splitter.next_statement(), None);
        assert_eq!(splitter.finish().unwrap().sql, "SELECT 2");
        assert_eq!(splitter.finish(), None);
    }
}
