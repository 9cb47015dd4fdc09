//! What stands behind the rows of a query: ORDER BY, LIMIT, OFFSET, locking.

use super::Parser;
use crate::keyword::Keyword;
use crate::span::error_at;
use crate::token::TokenKind;
use crate::tree::{
    Expr, ExprKind, Limit, LockStrength, LockWait, Locking, Operator, Prefix, PrefixKind, PrefixOperator,
    Query,
};
use firn_base::{Error, Result, SqlState};

impl Parser<'_> {
    /// ORDER BY, LIMIT, OFFSET and locking, in PostgreSQL's orders. A query that stood in parentheses may have
    /// some of them already; then the others join them.
    pub(super) fn query_clauses(&mut self, query: &mut Query) -> Result<()> {
        let order_at = self.start();
        let order_by = self.optional_order_by()?;
        if let Some(first) = order_by.first() {
            if !query.order_by.is_empty() {
                let at = first.value.span.start.max(order_at);
                return self.error(SqlState::SYNTAX_ERROR, "multiple ORDER BY clauses not allowed", at);
            }
            query.order_by = order_by;
        }
        if self.at_keyword(Keyword::For) {
            let locking = self.locking_clauses()?;
            let limits = self.limits()?;
            self.add_limits(query, locking, limits)
        } else {
            let limits = self.limits()?;
            let locking = if self.at_keyword(Keyword::For) { self.locking_clauses()? } else { Vec::new() };
            self.add_limits(query, locking, limits)
        }
    }

    fn add_limits(&mut self, query: &mut Query, locking: Vec<Locking>, limits: Limits) -> Result<()> {
        query.locking.extend(locking);
        if let Some(offset) = limits.offset {
            if query.offset.is_some() {
                let at = offset.span.start;
                return self.error(SqlState::SYNTAX_ERROR, "multiple OFFSET clauses not allowed", at);
            }
            query.offset = Some(offset);
        }
        let Some(limit) = limits.limit else { return Ok(()) };
        if query.limit.is_some() {
            let at = limit.count.as_ref().map_or(limit.span.start, |count| count.span.start);
            return self.error(SqlState::SYNTAX_ERROR, "multiple LIMIT clauses not allowed", at);
        }
        if limit.with_ties {
            let mistake = if query.order_by.is_empty() {
                Some("WITH TIES cannot be specified without ORDER BY clause")
            } else if query.locking.iter().any(|locking| locking.wait == LockWait::Skip) {
                Some("SKIP LOCKED and WITH TIES options cannot be used together")
            } else {
                None
            };
            if let Some(mistake) = mistake {
                return Err(Error::new(SqlState::SYNTAX_ERROR, mistake));
            }
        }
        query.limit = Some(limit);
        Ok(())
    }

    /// LIMIT and OFFSET in either order, each at most once.
    fn limits(&mut self) -> Result<Limits> {
        let mut limits = Limits { limit: None, offset: None };
        loop {
            match self.keyword() {
                Some(Keyword::Limit | Keyword::Fetch) if limits.limit.is_none() => {
                    limits.limit = Some(self.limit()?);
                }
                Some(Keyword::Offset) if limits.offset.is_none() => limits.offset = Some(self.offset()?),
                _ => return Ok(limits),
            }
        }
    }

    fn limit(&mut self) -> Result<Limit> {
        let start = self.start();
        if self.accept_keyword(Keyword::Limit) {
            let count = if self.accept_keyword(Keyword::All) { None } else { Some(self.expr()?) };
            if self.accept_symbol(b',') {
                self.expr()?;
                let message = "LIMIT #,# syntax is not supported";
                let hint = "Use separate LIMIT and OFFSET clauses.";
                return Err(error_at(SqlState::SYNTAX_ERROR, message, self.text, start).with_hint(hint));
            }
            return Ok(Limit { span: self.span_from(start), count, with_ties: false });
        }
        self.expect_keyword(Keyword::Fetch)?;
        if !self.accept_keyword(Keyword::First) {
            self.expect_keyword(Keyword::Next)?;
        }
        let at_rows = |keyword| matches!(keyword, Some(Keyword::Row | Keyword::Rows));
        let is_bare = at_rows(self.keyword())
            && matches!(self.peek(1), TokenKind::Keyword(Keyword::Only | Keyword::With));
        let count = if is_bare {
            Expr { kind: ExprKind::Integer(1), span: self.current.span }
        } else {
            self.fetch_count()?
        };
        if !at_rows(self.keyword()) {
            return self.unexpected();
        }
        self.advance();
        let with_ties = self.accept_keyword(Keyword::With);
        self.expect_keyword(if with_ties { Keyword::Ties } else { Keyword::Only })?;
        Ok(Limit { span: self.span_from(start), count: Some(count), with_ties })
    }

    /// An operand, or a number with a sign (PostgreSQL's select_fetch_first_value).
    fn fetch_count(&mut self) -> Result<Expr> {
        let start = self.start();
        let operator = match self.kind() {
            TokenKind::Symbol(b'+') => Operator::Plus,
            TokenKind::Symbol(b'-') => Operator::Minus,
            _ => return self.operand(),
        };
        let span = self.advance().span;
        if !matches!(self.kind(), TokenKind::Integer | TokenKind::Number) {
            return self.unexpected();
        }
        let operand = self.operand()?;
        let operators = vec![PrefixOperator { span, kind: PrefixKind::Operator(operator) }];
        let kind = ExprKind::Prefix(Box::new(Prefix { operators, operand }));
        Ok(Expr { kind, span: self.span_from(start) })
    }

    fn offset(&mut self) -> Result<Expr> {
        self.advance();
        let start = self.start();
        let value = self.expr()?;
        if !matches!(self.keyword(), Some(Keyword::Row | Keyword::Rows)) {
            return Ok(value);
        }
        // Before ROWS stands an operand or a number with a sign.
        let is_operand = self.primary.start == start && self.primary.end == self.previous_end;
        let is_signed_number = matches!(&value.kind, ExprKind::Prefix(prefix)
            if prefix.operators.len() == 1
                && matches!(prefix.operators[0].kind, PrefixKind::Operator(_))
                && matches!(prefix.operand.kind, ExprKind::Integer(_) | ExprKind::Number(_)));
        if !is_operand && !is_signed_number {
            return self.unexpected();
        }
        self.advance();
        Ok(value)
    }

    fn locking_clauses(&mut self) -> Result<Vec<Locking>> {
        let mut clauses = Vec::new();
        if self.next_is(Keyword::Read) {
            self.advance();
            self.expect_keywords(&[Keyword::Read, Keyword::Only])?;
            return Ok(clauses);
        }
        while self.at_keyword(Keyword::For) {
            clauses.push(self.locking()?);
        }
        Ok(clauses)
    }

    fn locking(&mut self) -> Result<Locking> {
        let start = self.start();
        self.expect_keyword(Keyword::For)?;
        let strength = match self.keyword() {
            Some(Keyword::Update) => {
                self.advance();
                LockStrength::Update
            }
            Some(Keyword::Share) => {
                self.advance();
                LockStrength::Share
            }
            Some(Keyword::No) => {
                self.expect_keywords(&[Keyword::No, Keyword::Key, Keyword::Update])?;
                LockStrength::NoKeyUpdate
            }
            _ => {
                self.expect_keywords(&[Keyword::Key, Keyword::Share])?;
                LockStrength::KeyShare
            }
        };
        let relations =
            if self.accept_keyword(Keyword::Of) { self.list(Self::relation_name)? } else { Vec::new() };
        let wait = if self.accept_keyword(Keyword::Nowait) {
            LockWait::Error
        } else if self.accept_keyword(Keyword::Skip) {
            self.expect_keyword(Keyword::Locked)?;
            LockWait::Skip
        } else {
            LockWait::Block
        };
        Ok(Locking { span: self.span_from(start), strength, relations, wait })
    }
}

struct Limits {
    limit: Option<Limit>,
    offset: Option<Expr>,
}
