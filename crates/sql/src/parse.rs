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
    parse_with(script, true)
}

/// As [`parse`], with strings in which backslashes are ordinary characters, or are not.
pub fn parse_with(script: &str, standard_conforming_strings: bool) -> Result<Vec<Parsed>> {
    // No client of a protocol can send one; a program in this process can.
    if let Some(at) = script.bytes().position(|byte| byte == 0) {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        let error = Error::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message);
        return Err(error.with_position(character_position(script, at as u32)));
    }
    let options = Options { standard_conforming_strings, ..Options::default() };
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
    parse_one_with(text, true)
}

/// As [`parse_one`], with strings as [`parse_with`] reads them.
pub fn parse_one_with(text: &str, standard_conforming_strings: bool) -> Result<Option<Parsed>> {
    let mut statements = parse_with(text, standard_conforming_strings)?;
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

/// A statement whose question marks have become `$1`, `$2`, …
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// Its text.
    pub text: String,
    /// Where the numbers begin, in characters from 1, and how many characters longer than a question mark they are.
    grown: Vec<(u32, u32)>,
}

impl Numbered {
    /// The position in the original text, in characters from 1, of one in this.
    pub fn original(&self, position: u32) -> u32 {
        let before = self.grown.iter().take_while(|(start, _)| *start < position);
        position - before.map(|(start, longer)| (*longer).min(position - start)).sum::<u32>()
    }
}

/// A text in which question marks stand for parameters, in order; `None` if it has none, and 42601 if it has both
/// kinds. Question marks in strings, names and comments are left alone, and operators have none in this dialect.
pub fn number_parameters(text: &str) -> Result<Option<Numbered>> {
    if !text.contains('?') {
        return Ok(None);
    }
    let tokens = firn_syntax::tokens(text, Options::default())?;
    let mut numbered = Numbered { text: String::with_capacity(text.len() + 16), grown: Vec::new() };
    let (mut done, mut characters) = (0, 0);
    for token in tokens.iter().filter(|token| token.kind == TokenKind::Operator) {
        for (offset, _) in token.span.of(text).match_indices('?') {
            let at = token.span.start as usize + offset;
            let before = &text[done..at];
            let number = format!("${}", numbered.grown.len() + 1);
            numbered.text.push_str(before);
            numbered.text.push_str(&number);
            done = at + 1;
            characters += before.chars().count() as u32;
            numbered.grown.push((characters + 1, number.len() as u32 - 1));
            characters += number.len() as u32;
        }
    }
    if numbered.grown.is_empty() {
        return Ok(None);
    }
    if let Some(token) = tokens.iter().find(|token| token.kind == TokenKind::Parameter) {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "parameters are written either ? or $1, $2, …")
            .with_position(character_position(text, token.span.start)));
    }
    numbered.text.push_str(&text[done..]);
    Ok(Some(numbered))
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
