//! Tokens to the syntax tree: recursive descent in one pass.
//!
//! The parser looks at most three tokens ahead and never goes back, so its time is linear in the text.
//! Its functions bear the names of what they parse, stand at its first token and leave the parser behind its
//! last one. A function that parses an optional clause is called `optional_…`. [`Parser::unexpected`] is the one way
//! to a syntax error: it names the current token, as PostgreSQL does.
//!
//! Depth: every function that the text can nest without end calls [`Parser::enter`] and [`Parser::leave`].
//!
//! The files: `names`, `types`, `options`, `expression` and `object` serve all statements; `query`, `from`, `change`,
//! `session`, `table`, `alter`, `relation` and `setting` are families of statements. `define` divides CREATE, ALTER and DROP among
//! them. `record`, `privilege`, `function` and `other` parse statements whose tree is a sequence of parts.

mod alter;
mod change;
mod clauses;
mod constraint;
mod define;
mod expression;
mod from;
mod function;
mod names;
mod object;
mod options;
mod other;
mod primary;
mod privilege;
mod query;
mod record;
mod relation;
mod session;
mod setting;
mod special;
mod table;
mod types;
mod windows;

use crate::keyword::Keyword;
use crate::lexer::{Lexer, error_near, value};
use crate::span::{Span, error_at};
use crate::token::{Token, TokenKind};
use crate::tree::{ColumnDefinition, Expr, Statement, StatementNode, TypeName};
use crate::{DEPTH_LIMIT, Options};
use firn_base::{Error, Result, SqlState};

/// A parser in the middle of a text.
pub(crate) struct Parser<'a> {
    text: &'a str,
    options: Options,
    lexer: Lexer<'a>,
    current: Token,
    /// The tokens behind the current one that have been looked at.
    ahead: [Token; 2],
    ahead_len: usize,
    /// Where the last token that was taken ends.
    previous_end: u32,
    depth: u32,
    /// Where the last primary expression that was parsed begins and ends, with its parentheses.
    primary: Span,
    /// What the next expression stops at.
    stop: Stop,
}

/// What an expression stops at although its operators go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Nothing.
    Nowhere,
    /// A word with nothing behind it that it could be an operator of is the label of a column: `SELECT 1 and, 2`.
    Label,
    /// SIMILAR without TO, in SUBSTRING.
    Similar,
}

/// Parses all statements of a text.
pub(crate) fn statements(text: &str, options: Options) -> Result<Vec<StatementNode>> {
    let mut parser = Parser::new(text, options)?;
    let mut statements = Vec::new();
    loop {
        while parser.accept(TokenKind::Symbol(b';')) {}
        if parser.at(TokenKind::End) {
            return Ok(statements);
        }
        let start = parser.start();
        let statement = parser.top_statement()?;
        statements.push(StatementNode { statement, span: parser.span_from(start) });
        if !parser.at(TokenKind::Symbol(b';')) && !parser.at(TokenKind::End) {
            return parser.unexpected();
        }
    }
}

/// Parses a text that is an expression.
pub(crate) fn expression(text: &str, options: Options) -> Result<Expr> {
    let mut parser = Parser::new(text, options)?;
    let expr = parser.expr()?;
    parser.end()?;
    Ok(expr)
}

/// Parses a text that is the name of a type.
pub(crate) fn type_name(text: &str, options: Options) -> Result<TypeName> {
    let mut parser = Parser::new(text, options)?;
    let name = parser.type_name()?;
    parser.end()?;
    Ok(name)
}

/// Parses a text that is a list of definitions of columns.
pub(crate) fn column_definitions(text: &str, options: Options) -> Result<Vec<ColumnDefinition>> {
    let mut parser = Parser::new(text, options)?;
    let definitions = parser.list(Parser::column_definition)?;
    parser.end()?;
    Ok(definitions)
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, mut options: Options) -> Result<Parser<'a>> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "statement is longer than 4 GiB"));
        }
        options.depth_limit = options.depth_limit.min(DEPTH_LIMIT);
        let mut lexer = Lexer::new(text, options.standard_conforming_strings);
        let current = lexer.next();
        Ok(Parser {
            text,
            options,
            lexer,
            current,
            ahead: [current; 2],
            ahead_len: 0,
            previous_end: 0,
            depth: 0,
            primary: Span::default(),
            stop: Stop::Nowhere,
        })
    }

    /// A statement as it stands in a text of its own: BEGIN and END are among them.
    fn top_statement(&mut self) -> Result<Statement> {
        match self.keyword() {
            Some(Keyword::Begin | Keyword::End) => self.begin_or_end(),
            _ => self.statement(),
        }
    }

    /// Any statement but BEGIN and END, which are none within other statements.
    pub(crate) fn statement(&mut self) -> Result<Statement> {
        let Some(keyword) = self.keyword() else {
            if self.at_symbol(b'(') {
                return Ok(Statement::Query(self.query()?));
            }
            return self.unexpected();
        };
        match keyword {
            Keyword::Select | Keyword::Values | Keyword::Table => Ok(Statement::Query(self.query()?)),
            Keyword::With | Keyword::Insert | Keyword::Update | Keyword::Delete | Keyword::Merge => {
                self.preparable()
            }
            Keyword::Explain => self.explain(),
            Keyword::Prepare => self.prepare(),
            Keyword::Execute => self.execute(),
            Keyword::Deallocate => self.deallocate(),
            Keyword::Declare => self.declare_cursor(),
            Keyword::Fetch | Keyword::Move => self.fetch(),
            Keyword::Close => self.close_cursor(),
            Keyword::Abort
            | Keyword::Start
            | Keyword::Commit
            | Keyword::Rollback
            | Keyword::Savepoint
            | Keyword::Release => self.transaction(),
            Keyword::Create => self.create(),
            Keyword::Alter => self.alter(),
            Keyword::Drop => self.drop(),
            Keyword::Comment => self.comment(),
            Keyword::Refresh => self.refresh(),
            Keyword::Truncate => self.truncate(),
            Keyword::Lock => self.lock(),
            Keyword::Vacuum | Keyword::Analyze | Keyword::Analyse => self.vacuum(),
            Keyword::Cluster => self.cluster(),
            Keyword::Reindex => self.reindex(),
            Keyword::Copy => self.copy(),
            Keyword::Set => self.set(),
            Keyword::Reset => self.reset(),
            Keyword::Show => self.show(),
            Keyword::Checkpoint => {
                self.advance();
                Ok(Statement::Checkpoint)
            }
            Keyword::Discard => self.discard(),
            Keyword::Listen => {
                self.advance();
                Ok(Statement::Listen(self.name()?))
            }
            Keyword::Notify => self.notify(),
            Keyword::Unlisten => self.unlisten(),
            Keyword::Call => self.call_procedure(),
            Keyword::Grant => self.grant(),
            Keyword::Revoke => self.revoke(),
            _ => self.other(keyword),
        }
    }

    // Tokens.

    /// What the current token is.
    pub(crate) fn kind(&self) -> TokenKind {
        self.current.kind
    }

    /// The current token, if it is a keyword.
    pub(crate) fn keyword(&self) -> Option<Keyword> {
        match self.current.kind {
            TokenKind::Keyword(keyword) => Some(keyword),
            _ => None,
        }
    }

    /// The token `distance` behind the current one; 1 or 2.
    pub(crate) fn peek(&mut self, distance: usize) -> TokenKind {
        while self.ahead_len < distance {
            self.ahead[self.ahead_len] = self.lexer.next();
            self.ahead_len += 1;
        }
        self.ahead[distance - 1].kind
    }

    /// Whether the token behind the current one is this keyword.
    pub(crate) fn next_is(&mut self, keyword: Keyword) -> bool {
        self.peek(1) == TokenKind::Keyword(keyword)
    }

    /// Takes the current token.
    pub(crate) fn advance(&mut self) -> Token {
        let token = self.current;
        self.previous_end = token.span.end;
        if self.ahead_len == 0 {
            self.current = self.lexer.next();
        } else {
            self.current = self.ahead[0];
            self.ahead[0] = self.ahead[1];
            self.ahead_len -= 1;
        }
        token
    }

    /// Whether the current token is this one.
    pub(crate) fn at(&self, kind: TokenKind) -> bool {
        self.current.kind == kind
    }

    /// Whether the current token is this keyword.
    pub(crate) fn at_keyword(&self, keyword: Keyword) -> bool {
        self.current.kind == TokenKind::Keyword(keyword)
    }

    /// Whether the current token is this character.
    pub(crate) fn at_symbol(&self, symbol: u8) -> bool {
        self.current.kind == TokenKind::Symbol(symbol)
    }

    /// Takes the current token if it is this one.
    pub(crate) fn accept(&mut self, kind: TokenKind) -> bool {
        let found = self.at(kind);
        if found {
            self.advance();
        }
        found
    }

    /// Takes the current token if it is this keyword.
    pub(crate) fn accept_keyword(&mut self, keyword: Keyword) -> bool {
        self.accept(TokenKind::Keyword(keyword))
    }

    /// Takes the current token if it is this character.
    pub(crate) fn accept_symbol(&mut self, symbol: u8) -> bool {
        self.accept(TokenKind::Symbol(symbol))
    }

    /// Whether the current token makes one with the next: NOT IN and its relatives, NULLS FIRST, WITH TIME. Then it is no
    /// word of its own, in PostgreSQL's grammar neither.
    pub(crate) fn begins_pair(&mut self) -> bool {
        let TokenKind::Keyword(keyword @ (Keyword::Not | Keyword::Nulls | Keyword::With)) = self.kind()
        else {
            return false;
        };
        let TokenKind::Keyword(next) = self.peek(1) else { return false };
        match keyword {
            Keyword::Not => matches!(
                next,
                Keyword::Between | Keyword::In | Keyword::Like | Keyword::Ilike | Keyword::Similar
            ),
            Keyword::Nulls => matches!(next, Keyword::First | Keyword::Last),
            _ => matches!(next, Keyword::Time | Keyword::Ordinality),
        }
    }

    /// Takes NOT, unless it belongs to a BETWEEN, IN or LIKE behind it.
    pub(crate) fn accept_not(&mut self) -> bool {
        !self.begins_pair() && self.accept_keyword(Keyword::Not)
    }

    /// Takes this keyword.
    pub(crate) fn expect_keyword(&mut self, keyword: Keyword) -> Result<()> {
        if self.accept_keyword(keyword) { Ok(()) } else { self.unexpected() }
    }

    /// Takes these keywords.
    pub(crate) fn expect_keywords(&mut self, keywords: &[Keyword]) -> Result<()> {
        keywords.iter().try_for_each(|&keyword| self.expect_keyword(keyword))
    }

    /// Takes this character.
    pub(crate) fn expect_symbol(&mut self, symbol: u8) -> Result<()> {
        if self.accept_symbol(symbol) { Ok(()) } else { self.unexpected() }
    }

    fn end(&mut self) -> Result<()> {
        if self.at(TokenKind::End) { Ok(()) } else { self.unexpected() }
    }

    // Places.

    /// Where the current token begins.
    pub(crate) fn start(&self) -> u32 {
        self.current.span.start
    }

    /// From there to the end of the last token that was taken.
    pub(crate) fn span_from(&self, start: u32) -> Span {
        Span::new(start, self.previous_end)
    }

    /// Whether the last token that was taken is this character.
    pub(crate) fn follows_symbol(&self, symbol: u8) -> bool {
        self.previous_end > 0 && self.text.as_bytes()[self.previous_end as usize - 1] == symbol
    }

    // Lists.

    /// One or more items with commas between them.
    pub(crate) fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.accept_symbol(b',') {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// One or more items with commas between them, in parentheses.
    pub(crate) fn parenthesised_list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect_symbol(b'(')?;
        let items = self.list(item)?;
        self.expect_symbol(b')')?;
        Ok(items)
    }

    // Depth.

    /// Goes one level deeper. Pairs with [`leave`](Parser::leave), except on the way out with an error.
    pub(crate) fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > self.options.depth_limit { Err(self.too_deep()) } else { Ok(()) }
    }

    /// Comes back from a level.
    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }

    #[cold]
    fn too_deep(&self) -> Error {
        error_at(STATEMENT_TOO_COMPLEX, "stack depth limit exceeded", self.text, self.start()).with_hint(
            format!(
                "A statement may nest {} levels deep; divide it, for example by a temporary table.",
                self.options.depth_limit
            ),
        )
    }

    // Errors.

    /// `syntax error at or near …`
    #[cold]
    pub(crate) fn unexpected<T>(&mut self) -> Result<T> {
        Err(self.mistake("syntax error"))
    }

    /// An error with this message that names the current token. A token that is none brings its own error.
    #[cold]
    pub(crate) fn mistake(&mut self, message: &str) -> Error {
        // PostgreSQL reads one token ahead of these words.
        let is_read = matches!(self.keyword(), Some(Keyword::Not | Keyword::Nulls | Keyword::With))
            && self.peek(1) == TokenKind::Invalid;
        if (is_read || self.at(TokenKind::Invalid))
            && let Some(error) = self.lexer.take_error()
        {
            return error;
        }
        error_near(self.text, message, self.current.span)
    }

    /// An error at a byte of the text.
    #[cold]
    pub(crate) fn error<T>(&mut self, state: SqlState, message: impl Into<String>, offset: u32) -> Result<T> {
        // PostgreSQL has read the token behind what it finds wrong.
        if self.at(TokenKind::Invalid) {
            return self.unexpected();
        }
        Err(error_at(state, message, self.text, offset))
    }

    // Values of tokens.

    /// Takes a string constant (PostgreSQL's Sconst).
    pub(crate) fn string(&mut self) -> Result<Box<str>> {
        if !self.kind().is_string() {
            return self.unexpected();
        }
        let token = self.advance();
        Ok(self.string_value(token))
    }

    /// The value of a string or a quoted identifier.
    pub(crate) fn string_value(&self, token: Token) -> Box<str> {
        value(self.text, token, self.options.standard_conforming_strings)
    }

    /// Takes digits that fit an `integer` (PostgreSQL's Iconst).
    pub(crate) fn integer(&mut self) -> Result<i32> {
        if !self.at(TokenKind::Integer) {
            return self.unexpected();
        }
        let token = self.advance();
        Ok(token.span.of(self.text).parse().expect("the lexer has seen that it fits"))
    }

    /// Takes such digits with a sign (PostgreSQL's SignedIconst).
    pub(crate) fn signed_integer(&mut self) -> Result<i32> {
        if self.accept_symbol(b'-') {
            return Ok(-self.integer()?);
        }
        self.accept_symbol(b'+');
        self.integer()
    }

    /// Takes any number with its sign (PostgreSQL's NumericOnly). A `+` is dropped.
    pub(crate) fn number(&mut self) -> Result<Box<str>> {
        let is_negative = self.accept_symbol(b'-');
        if !is_negative {
            self.accept_symbol(b'+');
        }
        if !matches!(self.kind(), TokenKind::Integer | TokenKind::Number) {
            return self.unexpected();
        }
        let digits = self.advance().span.of(self.text);
        Ok(if is_negative { format!("-{digits}").into() } else { digits.into() })
    }
}

const STATEMENT_TOO_COMPLEX: SqlState = SqlState::new("54001");
