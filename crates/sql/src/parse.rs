//! Text to statements.
//!
//! sqlparser cuts the whole script into tokens and knows queries, row changes and table
//! definitions; [`utility`] knows the statements around them. A script parses as a whole or not at
//! all, as in PostgreSQL: nothing runs before its last statement has been read.
//!
//! Syntax errors are 42601 with the position in characters and PostgreSQL's words; what sqlparser
//! expected there is the error's detail.

mod depth;
mod dialect;
pub(crate) mod locks;
mod utility;

use crate::statement::{Parsed, Statement};
use datafusion::sql::sqlparser::ast::{DataType, Ident, Statement as Tree};
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};
use firn_base::stack::{self, Deep};
use firn_base::{Error, Result, SqlState};
use std::cell::Cell;

pub(crate) use depth::{LIMIT, exceeded, of_expression as depth_of};

/// How deep the parser may recurse.
const NESTING_LIMIT: usize = 100;

/// How deep statements may stand in statements, as in EXPLAIN.
const INNER_LIMIT: u32 = 4;

/// The dialect that everything is parsed in.
fn dialect() -> &'static dyn Dialect {
    &dialect::PostgreSql
}

/// The statements of a script; empty ones are passed over.
pub fn parse(script: &str) -> Result<Vec<Deep<Parsed>>> {
    let source = Source::new(script);
    let tokens = source.tokens()?;
    let mut statements = Vec::new();
    for statement in tokens.split(|token| token.token == Token::SemiColon) {
        if !statement.is_empty() {
            let statement = locks::plain(&source, statement)?;
            let depth = depth::of_tokens(&statement)?;
            let parsed = stack::with_room_for(depth, || parse_tokens(&source, &statement, depth))?;
            statements.push(Deep::new(parsed.depth, parsed));
        }
    }
    Ok(statements)
}

/// The one statement of a text, or nothing if the text is empty.
/// 42601 if there are several, as PostgreSQL says of prepared statements.
pub fn parse_one(text: &str) -> Result<Option<Deep<Parsed>>> {
    let mut statements = parse(text)?;
    match statements.len() {
        0 | 1 => Ok(statements.pop()),
        _ => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "cannot insert multiple commands into a prepared statement",
        )),
    }
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
    let source = Source::new(text);
    let tokens = source.tokens()?;
    let is_text = |token: &Token| match token {
        Token::Word(_) | Token::Number(..) | Token::Placeholder(_) => true,
        // Everything else that is quoted somehow.
        other => other.to_string().contains(['\'', '"', '$']),
    };
    let mut numbered = Numbered { text: String::with_capacity(text.len() + 16), grown: Vec::new() };
    let (mut done, mut characters) = (0, 0);
    for token in tokens.iter().filter(|token| !is_text(&token.token)) {
        let (start, end) = (source.byte(token.span.start), source.byte(token.span.end));
        for (offset, _) in text[start..end].match_indices('?') {
            let before = &text[done..start + offset];
            let number = format!("${}", numbered.grown.len() + 1);
            numbered.text.push_str(before);
            numbered.text.push_str(&number);
            done = start + offset + 1;
            characters += before.chars().count() as u32;
            numbered.grown.push((characters + 1, number.len() as u32 - 1));
            characters += number.len() as u32;
        }
    }
    if numbered.grown.is_empty() {
        return Ok(None);
    }
    if let Some(token) = tokens.iter().find(|token| matches!(token.token, Token::Placeholder(_))) {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "parameters are written either ? or $1, $2, …")
            .with_position(source.character(source.byte(token.span.start))));
    }
    numbered.text.push_str(&text[done..]);
    Ok(Some(numbered))
}

/// An expression, such as the text of a default or a check. The caller has room for a deep one.
pub fn parse_expression(text: &str) -> Result<datafusion::sql::sqlparser::ast::Expr> {
    let source = Source::new(text);
    let tokens = source.tokens()?;
    depth::of_tokens(&tokens)?;
    let mut parser = new_parser(&tokens);
    let expression = parser.parse_expr().map_err(|error| source.error(error, &parser))?;
    source.expect_end(&parser)?;
    depth::of_expression(&expression)?;
    Ok(expression)
}

/// The name of a type.
pub fn parse_type(text: &str) -> Result<DataType> {
    let source = Source::new(text);
    let tokens = source.tokens()?;
    depth::of_tokens(&tokens)?;
    let mut parser = new_parser(&tokens);
    let ty = parser.parse_data_type().map_err(|error| source.error(error, &parser))?;
    source.expect_end(&parser)?;
    Ok(ty)
}

/// Columns as `CREATE TABLE` declares them: names with their types.
pub fn parse_declarations(text: &str) -> Result<Vec<(Ident, DataType)>> {
    let declared = |parser: &mut Parser<'_>| {
        let column = parser.parse_identifier()?;
        Ok((column, parser.parse_data_type()?))
    };
    let source = Source::new(text);
    let tokens = source.tokens()?;
    depth::of_tokens(&tokens)?;
    let mut parser = new_parser(&tokens);
    let list = parser.parse_comma_separated(declared).map_err(|error| source.error(error, &parser))?;
    source.expect_end(&parser)?;
    Ok(list)
}

/// A query, such as the text of a view. The caller has room for a deep one.
pub fn parse_query(text: &str) -> Result<Box<datafusion::sql::sqlparser::ast::Query>> {
    parse_measured_query(text).map(|(query, _)| query)
}

/// A query with its depth.
pub(crate) fn parse_measured_query(text: &str) -> Result<(Box<datafusion::sql::sqlparser::ast::Query>, u32)> {
    match parse_one(text)?.map(Deep::into_inner) {
        Some(Parsed { statement: Statement::Query(query), depth, .. }) => Ok((query, depth)),
        _ => Err(Error::new(SqlState::SYNTAX_ERROR, "a query was expected")),
    }
}

/// A statement whose tokens bound its depth so. The caller has room for it.
fn parse_tokens(source: &Source<'_>, tokens: &[TokenWithSpan], depth: u32) -> Result<Parsed> {
    let start = source.byte(tokens[0].span.start);
    // Tokens may have moved.
    let end = tokens.iter().map(|token| token.span.end).max().expect("there are tokens");
    let text = source.text[start..source.byte(end)].to_owned();
    let statement = utility::statement(source, tokens)?;
    let depth = depth.max(depth::of_statement(&statement)?);
    Ok(Parsed { text, offset: source.character(start) - 1, statement, depth })
}

fn new_parser(tokens: &[TokenWithSpan]) -> Parser<'static> {
    dialect::allow_steps(tokens.len());
    Parser::new(dialect()).with_recursion_limit(NESTING_LIMIT).with_tokens_with_locations(tokens.to_vec())
}

/// What sqlparser makes of the tokens, all of which must belong to the statement.
fn parse_tree(source: &Source<'_>, tokens: &[TokenWithSpan]) -> Result<Tree> {
    let is_current_of = |three: &[TokenWithSpan]| {
        three.iter().zip(["where", "current", "of"]).all(|(token, word)| utility::is_word(&token.token, word))
    };
    if tokens.windows(3).any(is_current_of) {
        return Err(Error::unsupported("WHERE CURRENT OF").with_hint(
            "Have the cursor yield the key of its rows, FOR UPDATE if need be, and change them by that.",
        ));
    }
    let mut parser = new_parser(tokens);
    let tree = parser.parse_statement().map_err(|error| source.error(error, &parser))?;
    source.expect_end(&parser)?;
    Ok(tree)
}

/// The text of a script with what turns sqlparser's lines and columns into positions.
struct Source<'a> {
    text: &'a str,
    /// Byte offset of the beginning of each line.
    lines: Vec<usize>,
    /// How many statements are being parsed of which one stands in the other.
    inner: Cell<u32>,
}

impl<'a> Source<'a> {
    /// Reads the lines of a text.
    fn new(text: &'a str) -> Source<'a> {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Source { text, lines: std::iter::once(0).chain(ends).collect(), inner: Cell::new(0) }
    }

    /// The byte offset of a location.
    fn byte(&self, location: Location) -> usize {
        let line = (location.line as usize).saturating_sub(1);
        let Some(&start) = self.lines.get(line) else { return self.text.len() };
        let column = (location.column as usize).saturating_sub(1);
        let rest = &self.text[start..];
        start + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at)
    }

    /// The position of a byte, in characters from 1.
    fn character(&self, byte: usize) -> u32 {
        self.text[..byte].chars().count() as u32 + 1
    }

    fn tokens(&self) -> Result<Vec<TokenWithSpan>> {
        // No client of a protocol can send one.
        if let Some(at) = self.text.bytes().position(|byte| byte == 0) {
            let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
            return Err(
                Error::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message).with_position(self.character(at))
            );
        }
        let mut tokens = Tokenizer::new(dialect(), self.text).tokenize_with_location().map_err(|error| {
            // An open comment is noticed at the end; the error is where it begins.
            let at = match error.message.contains("multi-line comment") {
                true => self.text.rfind("/*").unwrap_or(0),
                false => self.byte(error.location),
            };
            Error::new(SqlState::SYNTAX_ERROR, tokenizer_message(&error.message, &self.text[at..]))
                .with_position(self.character(at))
        })?;
        tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
        let tokens = self.unescape(spell_out_tables(end_operators(tokens)))?;
        let is_zero = |token: &&TokenWithSpan| matches!(&token.token, Token::UnicodeStringLiteral(text) if text.contains('\0'));
        match tokens.iter().find(is_zero) {
            None => Ok(tokens),
            Some(token) => Err(Error::new(SqlState::SYNTAX_ERROR, "invalid Unicode escape value")
                .with_position(self.character(self.byte(token.span.start)))),
        }
    }

    /// `U&'!0041' UESCAPE '!'` as the string that it is; sqlparser has taken the backslash for what escapes.
    fn unescape(&self, tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
        if !tokens.iter().any(|token| utility::is_word(&token.token, "uescape")) {
            return Ok(tokens);
        }
        let mut unescaped: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let is_uescape = |next: &TokenWithSpan| utility::is_word(&next.token, "uescape");
            let Token::UnicodeStringLiteral(text) = &token.token else {
                unescaped.push(token);
                continue;
            };
            if tokens.next_if(is_uescape).is_none() {
                unescaped.push(token);
                continue;
            }
            let (start, end) = (self.byte(token.span.start), self.byte(token.span.end));
            let refused = |message: &str| {
                Error::new(SqlState::SYNTAX_ERROR, message).with_position(self.character(start))
            };
            let Some(TokenWithSpan { token: Token::SingleQuotedString(escape), span }) = tokens.next() else {
                return Err(refused("UESCAPE must be followed by a simple string literal"));
            };
            let mut characters = escape.chars();
            let (Some(escape), None) = (characters.next(), characters.next()) else {
                return Err(refused("invalid Unicode escape character"));
            };
            let is_no_escape = |character: char| {
                character.is_ascii_hexdigit()
                    || character.is_whitespace()
                    || matches!(character, '+' | '\'' | '"')
            };
            // What has been taken for escaped is gone.
            if is_no_escape(escape) || escape != '\\' && self.text[start..end].contains('\\') {
                return Err(refused("invalid Unicode escape character"));
            }
            let plain = match escape {
                '\\' => text.clone(),
                escape => unescape(text, escape).ok_or_else(|| refused("invalid Unicode escape"))?,
            };
            let span = Span::new(token.span.start, span.end);
            unescaped.push(TokenWithSpan { token: Token::UnicodeStringLiteral(plain), span });
        }
        Ok(unescaped)
    }

    /// The syntax error for a token that should not stand where it does.
    fn unexpected(&self, token: &TokenWithSpan) -> Error {
        match token.token {
            Token::EOF => self.unexpected_end(),
            _ => {
                let (start, end) = (self.byte(token.span.start), self.byte(token.span.end));
                let near = self.text.get(start..end).unwrap_or_default();
                Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{near}\""))
                    .with_position(self.character(start))
            }
        }
    }

    fn unexpected_end(&self) -> Error {
        Error::new(SqlState::SYNTAX_ERROR, "syntax error at end of input")
            .with_position(self.character(self.text.len()))
    }

    /// The error for what sqlparser says.
    fn error(&self, error: ParserError, parser: &Parser<'_>) -> Error {
        let message = match error {
            ParserError::RecursionLimitExceeded => return exceeded(),
            ParserError::ParserError(message) | ParserError::TokenizerError(message) => message,
        };
        let (message, location) = split_location(&message);
        let next = parser.peek_token();
        let error = match location {
            // The tokens that sqlparser holds are gone from here, so the token at that place is
            // read again.
            Some(location) => match self.token_at(location) {
                Some(token) => self.unexpected(&token),
                None => self.unexpected_end(),
            },
            None => self.unexpected(&next),
        };
        match message.strip_prefix("Expected: ").and_then(|rest| rest.split_once(", found: ")) {
            Some((expected, _)) => error.with_detail(format!("Expected {}.", expected.trim_end_matches('.'))),
            None => error.with_detail(format!("{message}.")),
        }
    }

    fn token_at(&self, location: Location) -> Option<TokenWithSpan> {
        self.tokens().ok()?.into_iter().find(|token| token.span.start == location)
    }

    fn expect_end(&self, parser: &Parser<'_>) -> Result<()> {
        let next = parser.peek_token();
        match next.token {
            Token::EOF => Ok(()),
            _ => Err(self.unexpected(&next)),
        }
    }
}

/// A text with the characters that its escapes stand for; `None` if one stands for none.
fn unescape(text: &str, escape: char) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    // The first half of a pair.
    let mut high: Option<u32> = None;
    while let Some(character) = rest.next() {
        let mut next = rest.clone();
        let is_plain = character != escape;
        if is_plain || next.next() == Some(escape) {
            if !is_plain {
                rest = next;
            }
            if high.is_some() {
                return None;
            }
            plain.push(character);
            continue;
        }
        let length = match rest.clone().next() {
            Some('+') => {
                rest.next();
                6
            }
            _ => 4,
        };
        let code: String = rest.by_ref().take(length).collect();
        if code.len() != length || !code.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let code = u32::from_str_radix(&code, 16).ok()?;
        let code = match (high.take(), code) {
            (None, 0xD800..=0xDBFF) => {
                high = Some(code);
                continue;
            }
            (Some(high), 0xDC00..=0xDFFF) => 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00),
            (Some(_), _) => return None,
            (None, code) => code,
        };
        plain.push(char::from_u32(code)?);
    }
    high.is_none().then_some(plain)
}

/// `TABLE t` as `SELECT * FROM t`, wherever a query begins: sqlparser takes two tokens behind the name for a part of it.
fn spell_out_tables(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    const BEFORE: [&str; 5] = ["union", "intersect", "except", "all", "distinct"];
    let ends = |before: &Token| match before {
        Token::LParen | Token::RParen | Token::SemiColon => true,
        word => BEFORE.iter().any(|before| utility::is_word(word, before)),
    };
    let begins = |at: usize| {
        utility::is_word(&tokens[at].token, "table")
            && (at == 0 || ends(&tokens[at - 1].token) || is_definition(&tokens[..at]))
    };
    if !(0..tokens.len()).any(begins) {
        return tokens;
    }
    let mut spelt = Vec::with_capacity(tokens.len() + 8);
    for (at, token) in tokens.iter().enumerate() {
        if begins(at) {
            for part in [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")] {
                spelt.push(TokenWithSpan { token: part, span: token.span });
            }
        } else {
            spelt.push(token.clone());
        }
    }
    spelt
}

/// Whether tokens end in the AS behind which a statement is written that another defines, and not in that of `SELECT 1 AS table`.
fn is_definition(tokens: &[TokenWithSpan]) -> bool {
    let begin = tokens.iter().rposition(|token| token.token == Token::SemiColon).map_or(0, |end| end + 1);
    let mut defines = false;
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            word if depth > 0 || utility::is_word(word, "select") => defines &= depth > 0,
            word if utility::is_word(word, "create") || utility::is_word(word, "prepare") => defines = true,
            word if utility::is_word(word, "as") => return defines && at + 1 == tokens.len(),
            _ => {}
        }
    }
    false
}

/// Ends operators where PostgreSQL ends them: sqlparser takes the sign of `a>-1` for a part of the operator.
fn end_operators(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_custom = |token: &TokenWithSpan| matches!(token.token, Token::CustomBinaryOperator(_));
    if !tokens.iter().any(is_custom) {
        return tokens;
    }
    let mut ended = Vec::with_capacity(tokens.len() + 8);
    for token in tokens {
        let (operator, signs) = match &token.token {
            Token::CustomBinaryOperator(operator) => operator.split_at(operator_length(operator)),
            _ => ("", ""),
        };
        if signs.is_empty() {
            ended.push(token);
            continue;
        }
        // All of it is ASCII, and on one line.
        let start = token.span.start;
        let place = |at: usize| Location::new(start.line, start.column + at as u64);
        let part = |token: Token, from: usize, to: usize| TokenWithSpan {
            token,
            span: Span::new(place(from), place(to)),
        };
        ended.push(part(operator_token(operator), 0, operator.len()));
        for (at, sign) in signs.char_indices() {
            let at = operator.len() + at;
            let sign = if sign == '+' { Token::Plus } else { Token::Minus };
            ended.push(part(sign, at, at + 1));
        }
    }
    ended
}

/// How much of a text of operators' characters is one operator: of several characters it ends in a sign only if it has
/// one of some others as well. A comment that begins in it has been taken apart by sqlparser; that stays an error.
fn operator_length(operator: &str) -> usize {
    const WITH_SIGN: [char; 10] = ['~', '!', '@', '#', '%', '^', '&', '|', '`', '?'];
    let has_comment = operator.contains("--") || operator.contains("/*");
    match has_comment || operator.contains(WITH_SIGN) {
        true => operator.len(),
        false => operator.trim_end_matches(['+', '-']).len().max(1),
    }
}

/// The token of an operator without a sign behind it.
fn operator_token(operator: &str) -> Token {
    match operator {
        "+" => Token::Plus,
        "-" => Token::Minus,
        "*" => Token::Mul,
        "/" => Token::Div,
        "=" => Token::Eq,
        "<" => Token::Lt,
        ">" => Token::Gt,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        "<<" => Token::ShiftLeft,
        ">>" => Token::ShiftRight,
        "->" => Token::Arrow,
        "->>" => Token::LongArrow,
        "<->" => Token::TwoWayArrow,
        "<=>" => Token::Spaceship,
        other => Token::CustomBinaryOperator(other.to_owned()),
    }
}

/// PostgreSQL's words for what the tokenizer says.
fn tokenizer_message(message: &str, near: &str) -> String {
    let near: String = near.chars().take(40).collect();
    let what = if message.contains("string literal") || message.contains("string after") {
        "unterminated quoted string"
    } else if message.contains("close delimiter '\"'") {
        "unterminated quoted identifier"
    } else if message.contains("multi-line comment") {
        "unterminated /* comment"
    } else if message.contains("dollar-quoted") || message.contains("expected $") {
        "unterminated dollar-quoted string"
    } else {
        "syntax error"
    };
    format!("{what} at or near \"{near}\"")
}

/// Takes ` at Line: 1, Column: 8` off the end of a message of sqlparser.
fn split_location(message: &str) -> (&str, Option<Location>) {
    let location = || {
        let (text, rest) = message.rsplit_once(" at Line: ")?;
        let (line, column) = rest.split_once(", Column: ")?;
        Some((text, Location::new(line.parse().ok()?, column.parse().ok()?)))
    };
    match location() {
        Some((text, location)) => (text, Some(location)),
        None => (message, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::*;

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

    fn one(text: &str) -> Statement {
        parse_one(text).unwrap().unwrap().into_inner().statement
    }

    fn failure(text: &str) -> (String, Option<u32>) {
        let error = parse(text).unwrap_err();
        assert_eq!(error.state(), SqlState::SYNTAX_ERROR, "{text}");
        (error.message().to_owned(), error.position())
    }

    #[test]
    fn a_script_splits_at_semicolons_outside_strings_and_comments() {
        let script = "select ';' ; -- ;\n /* ; /* ; */ */ select $a$ ; $$ ; $a$;;\nselect \"a;b\" from t ;";
        let texts: Vec<String> = parse(script).unwrap().iter().map(|parsed| parsed.text.clone()).collect();
        assert_eq!(texts, ["select ';'", "select $a$ ; $$ ; $a$", "select \"a;b\" from t"]);
        assert!(parse(" ; /* nothing */ ; ").unwrap().is_empty());
    }

    #[test]
    fn a_statement_knows_where_it_stands_in_its_script() {
        let parsed = parse("select 'é';\n  select 2").unwrap();
        assert_eq!(parsed[1].offset, 14);
    }

    #[test]
    fn syntax_errors_name_the_token_and_its_position_in_characters() {
        assert_eq!(failure("SELEC 1"), ("syntax error at or near \"SELEC\"".into(), Some(1)));
        assert_eq!(failure("select 1 from"), ("syntax error at end of input".into(), Some(14)));
        assert_eq!(failure("select 'é' + ) from t").1, Some(14));
        assert_eq!(failure("select 1;\nselect 2 2").0, "syntax error at or near \"2\"");
        assert_eq!(failure("select 'abc").0, "unterminated quoted string at or near \"'abc\"");
        assert_eq!(failure("select \"abc").0, "unterminated quoted identifier at or near \"\"abc\"");
        assert_eq!(failure("select /* abc").0, "unterminated /* comment at or near \"/* abc\"");
    }

    /// PostgreSQL's rule; the others are as sqlparser has them.
    #[test]
    fn operators_end_in_a_sign_only_beside_some_other_characters() {
        let parts = |text: &str| -> Vec<String> {
            Source::new(text).tokens().unwrap().iter().map(|token| token.token.to_string()).collect()
        };
        for operator in [">", "<", "=", ">=", "<=", "<>", "<<", ">>", "->", "->>", "<->", "+", "-", "*", "/"]
        {
            let signed = if operator == "-" { "+" } else { "-" };
            assert_eq!(parts(&format!("a{operator}{signed}1")), ["a", operator, signed, "1"], "{operator}");
            assert_eq!(parts(&format!("a{operator}b")), ["a", operator, "b"]);
        }
        assert_eq!(parts("a>+-1"), ["a", ">", "+", "-", "1"]);
        assert_eq!(parts("a<-1"), ["a", "<", "-", "1"]);
        for operator in ["<@", "@>", "#-", "||-", "@-+", "~-", "&&", ">>=", "%-", "&-"] {
            assert_eq!(parts(&format!("a {operator} b")), ["a", operator, "b"]);
        }
        // Comments are not told from operators where they touch.
        assert_eq!(parts("a>--1\n2"), ["a", ">--", "1", "2"]);
    }

    #[test]
    fn what_operators_are_cut_into_stands_where_it_stood() {
        let source = Source::new("select 'é',\n 'ü'>=+-1");
        let tokens = source.tokens().unwrap();
        let place =
            |token: &TokenWithSpan| &source.text[source.byte(token.span.start)..source.byte(token.span.end)];
        assert_eq!(
            tokens.iter().map(place).collect::<Vec<_>>(),
            ["select", "'é'", ",", "'ü'", ">=", "+", "-", "1"]
        );
        assert_eq!(failure("select 'é'>-)").1, Some(13));
    }

    #[test]
    fn types_and_declarations_are_parsed_to_their_ends() {
        assert_eq!(parse_type("int4").unwrap(), DataType::Int4(None));
        assert!(parse_type("int4 x").is_err());
        let columns = parse_declarations("day date, \"Total\" numeric(12,2)").unwrap();
        assert_eq!(columns[0], (Ident::new("day"), DataType::Date));
        assert_eq!((columns[1].0.value.as_str(), columns.len()), ("Total", 2));
        for wrong in ["", "day", "day date,", "day date; x int", "day date\0"] {
            assert!(parse_declarations(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_crash() {
        let text = format!("select {}1{}", "(".repeat(5000), ")".repeat(5000));
        assert_eq!(parse(&text).unwrap_err().state().as_str(), "54001");
    }

    #[test]
    fn transaction_control_is_understood_in_all_its_forms() {
        let control = |text: &str| match one(text) {
            Statement::Transaction(control) => control,
            other => panic!("{text}: {other:?}"),
        };
        let modes = TransactionModes { read_only: Some(true), isolation: Some(Isolation::Snapshot) };
        assert_eq!(
            control("begin isolation level repeatable read, read only"),
            TransactionControl::Begin { modes, start: false }
        );
        assert_eq!(
            control("start transaction read write"),
            TransactionControl::Begin {
                modes: TransactionModes { read_only: Some(false), isolation: None },
                start: true
            }
        );
        for text in ["commit", "end", "commit work", "end transaction", "COMMIT AND NO CHAIN"] {
            assert_eq!(control(text), TransactionControl::Commit { chain: false });
        }
        assert_eq!(control("abort and chain"), TransactionControl::Rollback { chain: true });
        assert_eq!(control("rollback to savepoint A"), TransactionControl::RollbackTo("a".into()));
        assert_eq!(control("rollback work to \"A\""), TransactionControl::RollbackTo("A".into()));
        assert_eq!(control("release savepoint a"), TransactionControl::Release("a".into()));
        assert_eq!(
            control("set transaction isolation level serializable"),
            TransactionControl::Set(TransactionModes {
                read_only: None,
                isolation: Some(Isolation::Serializable)
            })
        );
    }

    #[test]
    fn settings_take_words_strings_numbers_and_lists() {
        let set = |text: &str| match one(text) {
            Statement::Setting(SettingStatement::Set { name, value, .. }) => (name, value),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(set("set DateStyle to ISO, MDY"), ("datestyle".into(), Some("iso, mdy".into())));
        assert_eq!(set("SET search_path = 'A', b"), ("search_path".into(), Some("\"A\", b".into())));
        assert_eq!(set("set extra_float_digits = -1"), ("extra_float_digits".into(), Some("-1".into())));
        assert_eq!(set("set time zone 'UTC'"), ("timezone".into(), Some("UTC".into())));
        assert_eq!(set("set names 'UTF8'"), ("client_encoding".into(), Some("UTF8".into())));
        assert_eq!(set("set x.y to default"), ("x.y".into(), None));
        assert!(matches!(
            one("show transaction isolation level"),
            Statement::Setting(SettingStatement::Show(Some(name))) if name == "transaction_isolation"
        ));
    }

    #[test]
    fn copy_takes_both_forms_of_options() {
        let copy = |text: &str| match one(text) {
            Statement::Copy(copy) => *copy,
            other => panic!("{text}: {other:?}"),
        };
        let modern =
            copy("copy t (a, \"B\") from stdin with (format csv, header, null 'x', force_not_null (a))");
        assert_eq!(modern.endpoint, CopyEndpoint::Client);
        assert_eq!(
            modern.options,
            [
                ("format".to_owned(), CopyOption::Text("csv".into())),
                ("header".to_owned(), CopyOption::Text("true".into())),
                ("null".to_owned(), CopyOption::Text("x".into())),
                ("force_not_null".to_owned(), CopyOption::Columns(vec!["a".into()])),
            ]
        );
        let old = copy("COPY (select 1) TO '/tmp/x' DELIMITER ',' CSV HEADER");
        assert_eq!(old.endpoint, CopyEndpoint::File("/tmp/x".into()));
        assert_eq!(old.options.len(), 3);
        assert!(copy("copy t from stdin where a > 1").filter.is_some());
    }

    #[test]
    fn table_definitions_that_sqlparser_does_not_know_are_understood() {
        assert!(matches!(one("create unlogged table t (a int)"), Statement::Ddl(ddl)
            if matches!(*ddl, Ddl::CreateTable(_))));
        for (text, data) in [
            ("create table t as select 1 as a", true),
            ("create table if not exists t (x, y) as select 1, 2 with no data", false),
            ("create table t as (select 1) with data", true),
            ("select 1 as a into t", true),
        ] {
            let Statement::Ddl(ddl) = one(text) else { panic!("{text}") };
            assert!(matches!(*ddl, Ddl::CreateTableAs { with_data, .. } if with_data == data), "{text}");
        }
        let Statement::Ddl(ddl) = one("alter table a.b set schema c") else { panic!() };
        assert!(matches!(*ddl, Ddl::SetSchema { schema, .. } if schema == "c"));
        let Statement::Ddl(ddl) = one("alter sequence s restart with 5 no cycle") else { panic!() };
        assert!(matches!(*ddl, Ddl::AlterSequence { options, .. }
            if options.restart == Some(Some(5)) && options.cycle == Some(false)));
    }

    #[test]
    fn options_of_identity_columns_come_in_any_order() {
        let operations = |text: &str| match one(text) {
            Statement::Ddl(ddl) => match *ddl {
                Ddl::AlterTable { operations, .. } => operations,
                other => panic!("{text}: {other:?}"),
            },
            other => panic!("{text}: {other:?}"),
        };
        let text = "alter table only a.t alter column \"Id\" add generated by default as identity ( \
                    sequence name a.\"S\" start with 3 increment by -2 no minvalue maxvalue 9 cache 1 cycle)";
        let [TableOperation::AddIdentity { column, always: false, options }] = &operations(text)[..] else {
            panic!()
        };
        let name = QualifiedName { schema: Some("a".into()), name: "S".into() };
        assert_eq!(column, "Id");
        assert_eq!(
            **options,
            SequenceOptions {
                name: Some(name),
                start: Some(3),
                increment: Some(-2),
                minimum: Some(None),
                maximum: Some(Some(9)),
                cycle: Some(true),
                ..SequenceOptions::default()
            }
        );
        let text = "alter table t alter id add generated always as identity, alter \"column\" drop not null";
        assert!(matches!(
            operations(text)[..],
            [TableOperation::AddIdentity { .. }, TableOperation::Tree(_)]
        ));
        let text = "create table t (a int generated always as identity (cycle start 5 no maxvalue increment 2), b int)";
        let Statement::Ddl(ddl) = one(text) else { panic!() };
        let Ddl::CreateTable(table) = *ddl else { panic!() };
        assert_eq!(table.tree.columns.len(), 2);
        assert!(table.tree.columns[0].to_string().contains("INCREMENT 2 NO MAXVALUE START 5 CYCLE"));
        for text in [
            "create table t (a int generated always as identity (start 5 start 6))",
            "create table t (a int generated always as identity (sequence name s))",
            "create table t (a int generated always as identity (owned by none))",
            "alter table t alter a add generated always as identity (start",
        ] {
            failure(text);
        }
    }

    #[test]
    fn statements_of_later_releases_say_so() {
        for text in ["create role x", "grant select on t to x", "create function f() returns int", "listen x"]
        {
            let error = parse(text).unwrap_err();
            assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED, "{text}");
            assert!(error.hint().is_some(), "{text}");
        }
    }

    #[test]
    fn what_explain_and_prepare_contain_keeps_its_text() {
        let Statement::Prepare { name, types, statement } = one("prepare p (int, text) as  select $1, $2")
        else {
            panic!()
        };
        assert_eq!((name.as_str(), types.len(), statement.text.as_str()), ("p", 2, "select $1, $2"));
        let Statement::Explain { analyze, statement } = one("explain (analyze, buffers off) select 1") else {
            panic!()
        };
        assert!(analyze && statement.text == "select 1");
    }
}
