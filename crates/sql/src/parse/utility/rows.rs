//! Queries, and INSERT, UPDATE and DELETE with WITH before them.

use super::{Words, is_word, unsupported};
use crate::parse::parse_tree;
use crate::statement::*;
use datafusion::sql::sqlparser::ast::{self, Statement as Tree};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use firn_base::{Error, Result};
use std::borrow::Cow;

impl Words<'_> {
    pub(super) fn tree(&mut self) -> Result<Statement> {
        if self.words(&["table"]) {
            let name = self.name()?;
            let text = match &name.schema {
                Some(schema) => format!("{}.{}", quote_ident(schema), quote_ident(&name.name)),
                None => quote_ident(&name.name),
            };
            self.source.expect_end(&self.parser)?;
            return Ok(Statement::Query(crate::parse::parse_query(&format!("SELECT * FROM {text}"))?));
        }
        let (tokens, overriding) = without_overriding(self.tokens);
        let (tree, with) = match parse_tree(self.source, &tokens)? {
            Tree::Query(query) => take_change(query)?,
            other => (other, None),
        };
        match tree {
            Tree::Query(mut query) => match take_into(&mut query)? {
                Some(name) => Ok(Statement::Ddl(Box::new(Ddl::CreateTableAs {
                    name,
                    if_not_exists: false,
                    columns: Vec::new(),
                    query,
                    parameters: Vec::new(),
                    with_data: true,
                }))),
                None => Ok(Statement::Query(query)),
            },
            tree @ (Tree::Insert(_) | Tree::Update(_) | Tree::Delete(_)) => {
                Ok(Statement::Change(Box::new(Change { tree, with, overriding })))
            }
            other => Err(Error::unsupported(format!("\"{other}\""))),
        }
    }
}

/// Takes OVERRIDING … VALUE, which sqlparser does not know, out of the tokens of an INSERT.
fn without_overriding(tokens: &[TokenWithSpan]) -> (Cow<'_, [TokenWithSpan]>, Option<Overriding>) {
    let mut depth = 0usize;
    let mut inserting = false;
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            token if is_word(token, "insert") => inserting = true,
            token if inserting && is_word(token, "overriding") => {
                let follows =
                    |nth: usize, word| tokens.get(at + nth).is_some_and(|token| is_word(&token.token, word));
                let overriding = match follows(2, "value") {
                    true if follows(1, "system") => Overriding::System,
                    true if follows(1, "user") => Overriding::User,
                    _ => continue,
                };
                return (Cow::Owned([&tokens[..at], &tokens[at + 3..]].concat()), Some(overriding));
            }
            _ => {}
        }
    }
    (Cow::Borrowed(tokens), None)
}

/// The change that a query is if it ends in one, with the WITH before it; else the query itself.
fn take_change(query: Box<ast::Query>) -> Result<(Tree, Option<ast::With>)> {
    let changes =
        query.with.as_ref().is_some_and(|with| with.cte_tables.iter().any(|cte| changes(&cte.query)));
    if changes || nested_change(&query.body) {
        return Err(Error::unsupported("a row change inside WITH")
            .with_hint("Run the change on its own, with RETURNING if its rows are needed."));
    }
    match *query {
        ast::Query { with, body, .. } if is_change(&body) => match *body {
            ast::SetExpr::Insert(tree) | ast::SetExpr::Update(tree) | ast::SetExpr::Delete(tree) => {
                Ok((tree, with))
            }
            other => Err(Error::unsupported(format!("\"{other}\" after WITH"))),
        },
        query => Ok((Tree::Query(Box::new(query)), None)),
    }
}

fn is_change(body: &ast::SetExpr) -> bool {
    matches!(
        body,
        ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_) | ast::SetExpr::Merge(_)
    )
}

/// Whether a query contains INSERT, UPDATE or DELETE.
fn changes(query: &ast::Query) -> bool {
    is_change(&query.body)
        || nested_change(&query.body)
        || query.with.as_ref().is_some_and(|with| with.cte_tables.iter().any(|cte| changes(&cte.query)))
}

/// Whether a part of a query's body is one.
fn nested_change(body: &ast::SetExpr) -> bool {
    match body {
        ast::SetExpr::SetOperation { left, right, .. } => {
            is_change(left) || is_change(right) || nested_change(left) || nested_change(right)
        }
        ast::SetExpr::Query(query) => changes(query),
        _ => false,
    }
}

/// Takes INTO off the outermost SELECT of a query.
fn take_into(query: &mut ast::Query) -> Result<Option<QualifiedName>> {
    fn first_select(body: &mut ast::SetExpr) -> Option<&mut ast::Select> {
        match body {
            ast::SetExpr::Select(select) => Some(select),
            ast::SetExpr::SetOperation { left, .. } => first_select(left),
            _ => None,
        }
    }
    match first_select(&mut query.body).and_then(|select| select.into.take()) {
        None => Ok(None),
        Some(into) if into.temporary => Err(unsupported(
            "select into temporary",
            "Make an ordinary table and drop it when the session ends.",
        )),
        Some(into) => qualified_name(&into.name).map(Some),
    }
}
