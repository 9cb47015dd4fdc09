//! Text to statements, each with the text that it stands in, and question marks as parameters.
//!
//! A script is parsed as a whole, as in PostgreSQL: nothing runs before its last statement has been read.

use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_syntax::tree::{Expr, Statement};
use firn_syntax::{Options, Span, TokenKind, character_position};

/// A statement and the text that it stands in.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The whole text. Positions in the tree are bytes of it.
    pub script: Arc<str>,
    /// From its first token to its last one.
    pub span: Span,
    /// What it says.
    pub statement: Statement,
}

impl Parsed {
    /// Its own text, without the semicolon behind it.
    pub fn text(&self) -> &str {
        self.span.of(&self.script)
    }

    /// How many characters of the script stand before it.
    pub fn offset(&self) -> u32 {
        character_position(&self.script, self.span.start) - 1
    }

    /// Another statement of the same text, such as that in EXPLAIN or PREPARE.
    pub fn inner(&self, statement: Statement) -> Parsed {
        Parsed { script: self.script.clone(), span: self.span, statement }
    }
}

/// The statements of a script; empty ones are left out.
pub fn parse(script: &str) -> Result<Vec<Parsed>> {
    parse_with(script, Options::default())
}

/// As [`parse`], with the session's options.
pub fn parse_with(script: &str, options: Options) -> Result<Vec<Parsed>> {
    // No client of a protocol can send one; a program in this process can.
    if let Some(at) = script.bytes().position(|byte| byte == 0) {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        let error = Error::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message);
        return Err(error.with_position(character_position(script, at as u32)));
    }
    let nodes = firn_syntax::parse(script, options)?;
    let script: Arc<str> = script.into();
    Ok(nodes
        .into_iter()
        .map(|node| Parsed { script: script.clone(), span: node.span, statement: node.statement })
        .collect())
}

/// The one statement of a text, or nothing if the text is empty.
/// 42601 if there are several, as PostgreSQL says of prepared statements.
pub fn parse_one(text: &str) -> Result<Option<Parsed>> {
    parse_one_with(text, Options::default())
}

/// As [`parse_one`], with the session's options.
pub fn parse_one_with(text: &str, options: Options) -> Result<Option<Parsed>> {
    let mut statements = parse_with(text, options)?;
    match statements.len() {
        0 | 1 => Ok(statements.pop()),
        _ => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "cannot insert multiple commands into a prepared statement",
        )),
    }
}

/// The highest number of a parameter `$1`, … outside of strings, names and comments; 0 if there is none.
pub fn parameters(text: &str) -> Result<u32> {
    if !text.contains('$') {
        return Ok(0);
    }
    let tokens = firn_syntax::tokens(text, Options::default())?;
    let parameters = tokens.iter().filter(|token| token.kind == TokenKind::Parameter);
    Ok(parameters.filter_map(|token| token.span.of(text)[1..].parse().ok()).max().unwrap_or(0))
}

/// An expression, such as the text of a default or a check.
pub fn parse_expression(text: &str) -> Result<Expr> {
    firn_syntax::parse_expression(text, Options::default())
}

/// A statement whose parameters have become `$1`, `$2`, …
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// Its text.
    pub text: String,
    replaced: Vec<Replaced>,
}

/// A number that stands for something else in the original text. All counts are of characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Replaced {
    /// Where the number begins, from 1.
    at: u32,
    length: u32,
    /// The length of what it stands for.
    before: u32,
}

impl Numbered {
    /// The position in the original text, in characters from 1, of one in this.
    pub fn original(&self, position: u32) -> u32 {
        let (mut numbered, mut original) = (0, 0);
        for replaced in self.replaced.iter().take_while(|replaced| replaced.at <= position) {
            if position < replaced.at + replaced.length {
                return replaced.at - numbered + original;
            }
            numbered += replaced.length;
            original += replaced.before;
        }
        position - numbered + original
    }
}

/// Writes numbers in place of parts of a text.
struct Numbering<'t> {
    text: &'t str,
    /// In bytes.
    done: usize,
    characters: u32,
    numbered: Numbered,
}

impl<'t> Numbering<'t> {
    fn of(text: &'t str) -> Numbering<'t> {
        let numbered = Numbered { text: String::with_capacity(text.len() + 16), replaced: Vec::new() };
        Numbering { text, done: 0, characters: 0, numbered }
    }

    /// Replaces the bytes of this range, which comes after those before.
    fn replace(&mut self, range: std::ops::Range<usize>, number: usize) {
        let (before, replaced) = (&self.text[self.done..range.start], &self.text[range.clone()]);
        let number = format!("${number}");
        self.characters += before.chars().count() as u32;
        let length = number.len() as u32;
        self.numbered.replaced.push(Replaced {
            at: self.characters + 1,
            length,
            before: replaced.chars().count() as u32,
        });
        self.characters += length;
        self.numbered.text.push_str(before);
        self.numbered.text.push_str(&number);
        self.done = range.end;
    }

    fn finish(mut self) -> Numbered {
        self.numbered.text.push_str(&self.text[self.done..]);
        self.numbered
    }
}

/// A text in which question marks stand for parameters, in order; `None` if it has none, and 42601 if it has both
/// kinds. Question marks in strings, names and comments are left alone, and operators have none in this dialect.
pub fn number_parameters(text: &str) -> Result<Option<Numbered>> {
    if !text.contains('?') {
        return Ok(None);
    }
    let tokens = firn_syntax::tokens(text, Options::default())?;
    let mut numbering = Numbering::of(text);
    for token in tokens.iter().filter(|token| token.kind == TokenKind::Operator) {
        for (offset, _) in token.span.of(text).match_indices('?') {
            let at = token.span.start as usize + offset;
            let number = numbering.numbered.replaced.len() + 1;
            numbering.replace(at..at + 1, number);
        }
    }
    if numbering.numbered.replaced.is_empty() {
        return Ok(None);
    }
    if let Some(token) = tokens.iter().find(|token| token.kind == TokenKind::Parameter) {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "parameters are written either ? or $1, $2, …")
            .with_position(character_position(text, token.span.start)));
    }
    Ok(Some(numbering.finish()))
}

/// A text in which `$name` stands for a parameter, and the names in the order of their numbers. A name may be repeated and is
/// taken as it is written, a keyword or not. 42601 if the text has parameters of another kind as well.
pub fn number_named_parameters(text: &str) -> Result<(Numbered, Vec<&str>)> {
    let tokens = firn_syntax::tokens(text, Options::default())?;
    let mut numbering = Numbering::of(text);
    let mut names: Vec<&str> = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        let start = token.span.start;
        match token.kind {
            TokenKind::Symbol(b'$') => {
                let Some(name) = tokens.get(place + 1).filter(|next| {
                    next.span.start == start + 1
                        && matches!(next.kind, TokenKind::Identifier | TokenKind::Keyword(_))
                }) else {
                    continue;
                };
                let name = name.span.of(text);
                let number = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                });
                let start = start as usize;
                numbering.replace(start..start + 1 + name.len(), number + 1);
            }
            TokenKind::Parameter => return Err(mixed(text, start)),
            TokenKind::Operator => {
                if let Some(offset) = token.span.of(text).find('?') {
                    return Err(mixed(text, start + offset as u32));
                }
            }
            _ => {}
        }
    }
    Ok((numbering.finish(), names))
}

/// 42601 for a parameter that has no name, in bytes from 0.
#[cold]
fn mixed(text: &str, at: u32) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, "values with names are for parameters with names, such as $name")
        .with_hint("Give a sequence of values for ? or $1, $2, ….")
        .with_position(character_position(text, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_marks_become_numbered_parameters_where_they_are_no_text() {
        let numbered = |text: &str| number_parameters(text).unwrap().map(|numbered| numbered.text);
        for (text, expected) in [
            ("SELECT ?", "SELECT $1"),
            ("SELECT ?||'?' -- ?\n, a+?-?", "SELECT $1||'?' -- ?\n, a+$2-$3"),
            (
                "SELECT \"?\", /* ? */ E'\\'?', $$?$$, b FROM t WHERE b=? AND(?)IS NULL",
                "SELECT \"?\", /* ? */ E'\\'?', $$?$$, b FROM t WHERE b=$1 AND($2)IS NULL",
            ),
            ("SELECT 'ä', ?::int", "SELECT 'ä', $1::int"),
        ] {
            assert_eq!(numbered(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["SELECT 1", "SELECT '?'", "SELECT \"?\" -- ?"] {
            assert_eq!(numbered(text), None, "{text}");
        }
        let both = number_parameters("SELECT ?, $1").unwrap_err();
        assert_eq!((both.state(), both.position()), (SqlState::SYNTAX_ERROR, Some(11)));
        let numbered = number_parameters("SELECT 'ä', ?, ?, x").unwrap().unwrap();
        let positions = [1, 13, 14, 15, 17, 21].map(|position| numbered.original(position));
        assert_eq!(numbered.text, "SELECT 'ä', $1, $2, x");
        assert_eq!(positions, [1, 13, 13, 14, 16, 19]);
    }

    #[test]
    fn names_behind_dollars_become_numbers_and_casts_stay_casts() {
        let text = "SELECT 'ä $a', $a::int[1:2], $date, $a, a$b, $$ $c $$, x[$d:$d] -- $e";
        let (numbered, names) = number_named_parameters(text).unwrap();
        assert_eq!(names, ["a", "date", "d"]);
        assert_eq!(numbered.text, "SELECT 'ä $a', $1::int[1:2], $2, $1, a$b, $$ $c $$, x[$3:$3] -- $e");
        // The beginning, those of the first two parameters, the middle of the second, and what follows.
        let positions = [1, 16, 30, 31, 32].map(|position| numbered.original(position));
        assert_eq!(positions, [1, 16, 30, 30, 35]);
        for (text, position) in [("SELECT $a, $1", 12), ("SELECT $a, ?", 12), ("SELECT 1+?", 10)] {
            let error = number_named_parameters(text).unwrap_err();
            assert_eq!((error.state(), error.position()), (SqlState::SYNTAX_ERROR, Some(position)), "{text}");
        }
        assert_eq!(number_named_parameters("SELECT 1").unwrap().1, Vec::<&str>::new());
    }

    #[test]
    fn a_script_splits_at_semicolons_outside_strings_and_comments() {
        let script = "select ';' ; -- ;\n /* ; /* ; */ */ select $a$ ; $$ ; $a$;;\nselect \"a;b\" from t ;";
        let parsed = parse(script).unwrap();
        let texts: Vec<&str> = parsed.iter().map(Parsed::text).collect();
        assert_eq!(texts, ["select ';'", "select $a$ ; $$ ; $a$", "select \"a;b\" from t"]);
        assert!(parse(" ; /* nothing */ ; ").unwrap().is_empty());
        assert_eq!(parse("select 'é';\n  select 2").unwrap()[1].offset(), 14);
        assert_eq!(parse_one("select 1; select 2").unwrap_err().state(), SqlState::SYNTAX_ERROR);
        let error = parse("select 'é'\0").unwrap_err();
        assert_eq!((error.state(), error.position()), (SqlState::CHARACTER_NOT_IN_REPERTOIRE, Some(11)));
    }
}
