//! Lines in, statements out: finds the semicolons that end statements, which are those outside of
//! quotes, comments, dollar quotes and parentheses.

/// Collects lines until they hold whole statements.
#[derive(Default)]
pub struct Splitter {
    text: String,
    /// How far `text` has been looked through.
    scanned: usize,
    inside: Inside,
    parentheses: usize,
}

/// What the end of the text so far lies inside of.
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

    /// Whether nothing but blanks waits for its end.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Forgets what waits.
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

    /// Takes the next whole statement, without its semicolon.
    pub fn next_statement(&mut self) -> Option<String> {
        while self.scanned < self.text.len() && !self.text.trim_start().starts_with('\\') {
            if self.step() {
                let rest = self.text.split_off(self.scanned);
                let mut statement = std::mem::replace(&mut self.text, rest);
                self.scanned = 0;
                self.parentheses = 0;
                statement.pop();
                if !statement.trim().is_empty() {
                    return Some(statement.trim().to_owned());
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

    /// Takes what is left as a statement, at the end of the input.
    pub fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(self).text.trim().to_owned();
        (!rest.is_empty()).then_some(rest)
    }

    /// Looks at the next token; whether it is a semicolon that ends a statement.
    fn step(&mut self) -> bool {
        let rest = &self.text[self.scanned..];
        let first = rest.chars().next().expect("called before the end");
        let mut length = first.len_utf8();
        let mut ends = false;
        match &mut self.inside {
            Inside::Plain => match first {
                ';' => ends = self.parentheses == 0,
                '(' => self.parentheses += 1,
                ')' => self.parentheses = self.parentheses.saturating_sub(1),
                '\'' => {
                    let before = self.text[..self.scanned].as_bytes();
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
            // A doubled quote leaves the quotes and enters them again, which comes to the same.
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
        ends
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
            statements.extend(std::iter::from_fn(|| splitter.next_statement()));
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
    fn the_prompt_says_what_is_still_open() {
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
        assert_eq!(splitter.next_statement().as_deref(), Some("SELECT 1"));
        assert_eq!(splitter.next_statement(), None);
        assert_eq!(splitter.next_command().as_deref(), Some("\\x on"));
        assert!(splitter.is_empty());
        splitter.push("SELECT '");
        splitter.push("\\x");
        assert_eq!((splitter.next_statement(), splitter.next_command()), (None, None));
    }

    #[test]
    fn the_end_of_the_input_ends_a_statement() {
        let mut splitter = Splitter::default();
        splitter.push("SELECT 1; SELECT 2");
        assert_eq!(splitter.next_statement().as_deref(), Some("SELECT 1"));
        assert_eq!(splitter.next_statement(), None);
        assert_eq!(splitter.finish().as_deref(), Some("SELECT 2"));
        assert_eq!(splitter.finish(), None);
    }
}
