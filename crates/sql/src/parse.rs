//! Text to statements: what `firn_syntax` parses, refused where FirnDB does not have it.

use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_syntax::tree::{Expr, Statement};
use firn_syntax::{Options, Span, character_position};

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
    let nodes = firn_syntax::parse(script, Options::default())?;
    let script: Arc<str> = script.into();
    Ok(nodes
        .into_iter()
        .map(|node| Parsed { script: script.clone(), span: node.span, statement: node.statement })
        .collect())
}

/// The one statement of a text, or nothing if the text is empty.
/// 42601 if there are several, as PostgreSQL says of prepared statements.
pub fn parse_one(text: &str) -> Result<Option<Parsed>> {
    let mut statements = parse(text)?;
    match statements.len() {
        0 | 1 => Ok(statements.pop()),
        _ => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "cannot insert multiple commands into a prepared statement",
        )),
    }
}

/// An expression, such as the text of a default or a check.
pub fn parse_expression(text: &str) -> Result<Expr> {
    firn_syntax::parse_expression(text, Options::default())
}
