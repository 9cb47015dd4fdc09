//! Queries: WITH, set operations, SELECT, VALUES, TABLE, and what stands behind them.

use super::{Parser, Stop};
use crate::keyword::Keyword;
use crate::span::Span;
use crate::token::TokenKind;
use crate::tree::{
    CommonTable, Cycle, Distinct, Expr, ExprKind, GroupItem, Into, Limit, LockStrength, LockWait, Locking,
    Persistence, Prefix, PrefixKind, Query, QueryBody, Search, Select, SetOperation, SetOperator, SetStep,
    Target, WindowDefinition, With,
};
use firn_base::{Result, SqlState};

/// How tightly set operations bind.
const UNION_LEVEL: u8 = 1;
const INTERSECT_LEVEL: u8 = 2;

impl Parser<'_> {
    /// Whether the current token begins a query, parentheses aside.
    pub(crate) fn begins_query(&mut self) -> bool {
        match self.keyword() {
            Some(Keyword::Select | Keyword::With | Keyword::Table) => true,
            Some(Keyword::Values) => self.peek(1) == TokenKind::Symbol(b'('),
            _ => false,
        }
    }

    /// Whether what follows a query in parentheses goes on with a query.
    pub(super) fn continues_query(&self) -> bool {
        matches!(
            self.keyword(),
            Some(
                Keyword::Union
                    | Keyword::Intersect
                    | Keyword::Except
                    | Keyword::Order
                    | Keyword::Limit
                    | Keyword::Offset
                    | Keyword::Fetch
                    | Keyword::For
            )
        )
    }

    /// A query, in parentheses or not (PostgreSQL's SelectStmt).
    pub(crate) fn query(&mut self) -> Result<Box<Query>> {
        self.enter()?;
        let start = self.start();
        let with = self.optional_with()?;
        let first = self.query_operand()?;
        let mut query = self.query_rest(first, start)?;
        if let Some(with) = with {
            self.add_with(&mut query, with)?;
        }
        self.leave();
        Ok(query)
    }

    /// Adds WITH to a query that may have stood in parentheses with a WITH of its own.
    pub(super) fn add_with(&mut self, query: &mut Query, with: Box<With>) -> Result<()> {
        if query.with.is_some() {
            return self.error(SqlState::SYNTAX_ERROR, "multiple WITH clauses not allowed", with.span.start);
        }
        query.span.start = with.span.start;
        query.with = Some(with);
        Ok(())
    }

    /// `(query)`
    pub(crate) fn parenthesised_query(&mut self) -> Result<Box<Query>> {
        self.expect_symbol(b'(')?;
        let query = self.query()?;
        self.expect_symbol(b')')?;
        Ok(query)
    }

    /// The rest of a query that began with a query in parentheses.
    pub(super) fn query_from(&mut self, first: Box<Query>, start: u32) -> Result<Box<Query>> {
        self.query_rest(first, start)
    }

    /// Set operations behind the first operand, and the clauses behind them.
    fn query_rest(&mut self, first: Box<Query>, start: u32) -> Result<Box<Query>> {
        let mut query = self.set_operations(first, 0)?;
        self.query_clauses(&mut query)?;
        if self.previous_end > query.span.end {
            query.span = self.span_from(start);
        }
        Ok(query)
    }

    /// Set operations that bind more tightly than `floor`, behind their first operand.
    fn set_operations(&mut self, mut left: Box<Query>, floor: u8) -> Result<Box<Query>> {
        loop {
            let operator = match self.keyword() {
                Some(Keyword::Union) => SetOperator::Union,
                Some(Keyword::Except) => SetOperator::Except,
                Some(Keyword::Intersect) => SetOperator::Intersect,
                _ => return Ok(left),
            };
            let level = if operator == SetOperator::Intersect { INTERSECT_LEVEL } else { UNION_LEVEL };
            if level <= floor {
                return Ok(left);
            }
            let span = self.advance().span;
            let is_all = self.accept_keyword(Keyword::All);
            if !is_all {
                self.accept_keyword(Keyword::Distinct);
            }
            let right = self.query_operand()?;
            let right = self.set_operations(right, level)?;
            let step = SetStep { span, operator, is_all, right: body_of(right) };
            let start = left.span.start;
            let body = match body_of(left) {
                QueryBody::SetOperation(mut chain) => {
                    chain.steps.push(step);
                    QueryBody::SetOperation(chain)
                }
                first => QueryBody::SetOperation(Box::new(SetOperation { first, steps: vec![step] })),
            };
            left = plain_query(body, self.span_from(start));
        }
    }

    /// An operand of set operations: a query in parentheses, SELECT, VALUES or TABLE.
    fn query_operand(&mut self) -> Result<Box<Query>> {
        let start = self.start();
        let body = match self.keyword() {
            Some(Keyword::Select) => QueryBody::Select(self.select()?),
            Some(Keyword::Values) => {
                self.advance();
                QueryBody::Values(self.list(|parser| parser.parenthesised_list(Self::expr))?)
            }
            Some(Keyword::Table) => {
                self.advance();
                QueryBody::Table(Box::new(self.relation()?))
            }
            _ if self.at_symbol(b'(') => return self.query_in_parentheses(),
            _ => return self.unexpected(),
        };
        Ok(plain_query(body, self.span_from(start)))
    }

    fn query_in_parentheses(&mut self) -> Result<Box<Query>> {
        self.expect_symbol(b'(')?;
        let query = self.query()?;
        self.expect_symbol(b')')?;
        Ok(query)
    }

    /// WITH or nothing.
    pub(super) fn optional_with(&mut self) -> Result<Option<Box<With>>> {
        if !self.at_keyword(Keyword::With) {
            return Ok(None);
        }
        let start = self.start();
        self.advance();
        let is_recursive = self.at_keyword(Keyword::Recursive)
            && self.peek(1) != TokenKind::Symbol(b'(')
            && !self.next_is(Keyword::As);
        if is_recursive {
            self.advance();
        }
        let tables = self.list(Self::common_table)?;
        Ok(Some(Box::new(With { span: self.span_from(start), is_recursive, tables })))
    }

    fn common_table(&mut self) -> Result<CommonTable> {
        self.enter()?;
        let name = self.name()?;
        let columns = self.optional_names()?;
        self.expect_keyword(Keyword::As)?;
        let is_materialized = match self.keyword() {
            Some(Keyword::Materialized) => {
                self.advance();
                Some(true)
            }
            _ if self.accept_not() => {
                self.expect_keyword(Keyword::Materialized)?;
                Some(false)
            }
            _ => None,
        };
        self.expect_symbol(b'(')?;
        let statement = self.preparable()?;
        self.expect_symbol(b')')?;
        let search = self.optional_search()?;
        let cycle = self.optional_cycle()?;
        self.leave();
        Ok(CommonTable { name, columns, is_materialized, statement, search, cycle })
    }

    fn optional_search(&mut self) -> Result<Option<Box<Search>>> {
        let start = self.start();
        if !self.accept_keyword(Keyword::Search) {
            return Ok(None);
        }
        let is_breadth_first = self.accept_keyword(Keyword::Breadth);
        if !is_breadth_first {
            self.expect_keyword(Keyword::Depth)?;
        }
        self.expect_keywords(&[Keyword::First, Keyword::By])?;
        let columns = self.list(Self::name)?;
        self.expect_keyword(Keyword::Set)?;
        let sequence = self.name()?;
        Ok(Some(Box::new(Search { span: self.span_from(start), is_breadth_first, columns, sequence })))
    }

    fn optional_cycle(&mut self) -> Result<Option<Box<Cycle>>> {
        let start = self.start();
        if !self.accept_keyword(Keyword::Cycle) {
            return Ok(None);
        }
        let columns = self.list(Self::name)?;
        self.expect_keyword(Keyword::Set)?;
        let mark = self.name()?;
        let mut values = None;
        if self.accept_keyword(Keyword::To) {
            let value = self.constant()?;
            self.expect_keyword(Keyword::Default)?;
            values = Some([value, self.constant()?]);
        }
        self.expect_keyword(Keyword::Using)?;
        let path = self.name()?;
        Ok(Some(Box::new(Cycle { span: self.span_from(start), columns, mark, values, path })))
    }

    /// A constant (PostgreSQL's AexprConst).
    pub(crate) fn constant(&mut self) -> Result<Expr> {
        let start = self.start();
        let near = self.current;
        let expr = self.operand()?;
        match expr.kind {
            ExprKind::Null
            | ExprKind::Boolean(_)
            | ExprKind::Integer(_)
            | ExprKind::Number(_)
            | ExprKind::String(_)
            | ExprKind::BitString(_)
            | ExprKind::HexString(_)
            | ExprKind::TypedLiteral(_)
                if expr.span.start == start =>
            {
                Ok(expr)
            }
            // A name was the beginning of a typed literal until something else than a string followed.
            ExprKind::Column(_) | ExprKind::Call(_) => self.unexpected(),
            _ => Err(crate::lexer::error_near(self.text, "syntax error", near.span)),
        }
    }

    /// The tree is filled in place: a frame that held all its parts would be large, and this nests.
    fn select(&mut self) -> Result<Box<Select>> {
        let start = self.start();
        self.advance();
        let mut select = Box::new(Select {
            span: Span::default(),
            distinct: None,
            targets: Vec::new(),
            into: None,
            from: Vec::new(),
            condition: None,
            group_by: Vec::new(),
            is_group_distinct: false,
            having: None,
            windows: Vec::new(),
        });
        if self.accept_keyword(Keyword::Distinct) {
            select.distinct = Some(if self.accept_keyword(Keyword::On) {
                Distinct::On(self.parenthesised_list(Self::expr)?)
            } else {
                Distinct::All
            });
        } else {
            self.accept_keyword(Keyword::All);
        }
        if select.distinct.is_some() || !Self::ends_target(self.kind()) {
            select.targets = self.list(Self::target)?;
        }
        select.into = self.optional_into()?;
        select.from = self.optional_from(Keyword::From)?;
        select.condition = self.optional_where()?;
        if self.accept_keyword(Keyword::Group) {
            self.group_by(&mut select)?;
        }
        if self.accept_keyword(Keyword::Having) {
            select.having = Some(self.expr()?);
        }
        if self.accept_keyword(Keyword::Window) {
            select.windows = self.list(Self::window_definition)?;
        }
        select.span = self.span_from(start);
        Ok(select)
    }

    fn group_by(&mut self, select: &mut Select) -> Result<()> {
        self.expect_keyword(Keyword::By)?;
        select.is_group_distinct = self.accept_keyword(Keyword::Distinct);
        if !select.is_group_distinct {
            self.accept_keyword(Keyword::All);
        }
        select.group_by = self.list(Self::group_item)?;
        Ok(())
    }

    fn window_definition(&mut self) -> Result<WindowDefinition> {
        let name = self.name()?;
        self.expect_keyword(Keyword::As)?;
        Ok(WindowDefinition { name, window: self.window_spec()? })
    }

    /// Whether a token stands behind an item of a select list.
    pub(super) fn ends_target(kind: TokenKind) -> bool {
        match kind {
            TokenKind::End | TokenKind::Symbol(b')' | b';' | b',') => true,
            TokenKind::Keyword(keyword) => matches!(
                keyword,
                Keyword::Into
                    | Keyword::From
                    | Keyword::Where
                    | Keyword::Group
                    | Keyword::Having
                    | Keyword::Window
                    | Keyword::Union
                    | Keyword::Intersect
                    | Keyword::Except
                    | Keyword::Order
                    | Keyword::Limit
                    | Keyword::Offset
                    | Keyword::Fetch
                    | Keyword::For
                    | Keyword::On
                    | Keyword::Returning
                    | Keyword::With
            ),
            _ => false,
        }
    }

    /// An item of a select list or of RETURNING.
    pub(super) fn target(&mut self) -> Result<Target> {
        if self.at_symbol(b'*') {
            return Ok(Target::All(self.advance().span));
        }
        self.stop = Stop::Label;
        let value = self.expr()?;
        let alias = if self.accept_keyword(Keyword::As) {
            Some(self.label()?)
        } else if Self::is_bare_label(self.kind()) {
            Some(self.take_name())
        } else {
            None
        };
        Ok(Target::Value { value, alias })
    }

    fn optional_into(&mut self) -> Result<Option<Box<Into>>> {
        if !self.accept_keyword(Keyword::Into) {
            return Ok(None);
        }
        let persistence = self.optional_persistence()?;
        self.accept_keyword(Keyword::Table);
        Ok(Some(Box::new(Into { name: self.relation_name()?, persistence })))
    }

    /// TEMPORARY, UNLOGGED or nothing, before the name of a relation or TABLE.
    fn optional_persistence(&mut self) -> Result<Persistence> {
        // All of these words may be names of relations themselves.
        let is_name_next = |kind| kind == TokenKind::Keyword(Keyword::Table) || Self::is_name(kind);
        let persistence = match self.keyword() {
            Some(Keyword::Temporary | Keyword::Temp) => Persistence::Temporary,
            Some(Keyword::Unlogged) => Persistence::Unlogged,
            Some(Keyword::Local | Keyword::Global)
                if matches!(self.peek(1), TokenKind::Keyword(Keyword::Temporary | Keyword::Temp)) =>
            {
                self.advance();
                self.advance();
                return Ok(Persistence::Temporary);
            }
            _ => return Ok(Persistence::Permanent),
        };
        if !is_name_next(self.peek(1)) {
            return Ok(Persistence::Permanent);
        }
        self.advance();
        Ok(persistence)
    }

    /// WHERE or nothing.
    pub(crate) fn optional_where(&mut self) -> Result<Option<Expr>> {
        if self.accept_keyword(Keyword::Where) { Ok(Some(self.expr()?)) } else { Ok(None) }
    }

    fn group_item(&mut self) -> Result<GroupItem> {
        let start = self.start();
        let is_open = |kind| kind == TokenKind::Symbol(b'(');
        match self.kind() {
            TokenKind::Symbol(b'(') if self.peek(1) == TokenKind::Symbol(b')') => {
                self.advance();
                self.advance();
                Ok(GroupItem::Empty(self.span_from(start)))
            }
            TokenKind::Keyword(Keyword::Rollup) if is_open(self.peek(1)) => {
                self.advance();
                let items = self.parenthesised_list(Self::expr)?;
                Ok(GroupItem::Rollup(self.span_from(start), items))
            }
            TokenKind::Keyword(Keyword::Cube) if is_open(self.peek(1)) => {
                self.advance();
                let items = self.parenthesised_list(Self::expr)?;
                Ok(GroupItem::Cube(self.span_from(start), items))
            }
            TokenKind::Keyword(Keyword::Grouping) if self.next_is(Keyword::Sets) => {
                self.enter()?;
                self.advance();
                self.advance();
                let items = self.parenthesised_list(Self::group_item)?;
                self.leave();
                Ok(GroupItem::Sets(self.span_from(start), items))
            }
            _ => Ok(GroupItem::Expr(self.expr()?)),
        }
    }

    // Behind the rows: ORDER BY, LIMIT, locking.

    /// ORDER BY, LIMIT, OFFSET and locking, in PostgreSQL's orders. A query that stood in parentheses may have
    /// some of them already; then the others join them.
    fn query_clauses(&mut self, query: &mut Query) -> Result<()> {
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
                return Err(firn_base::Error::new(SqlState::SYNTAX_ERROR, mistake));
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
                return Err(firn_base::Error::new(
                    SqlState::SYNTAX_ERROR,
                    "LIMIT #,# syntax is not supported",
                )
                .with_hint("Use separate LIMIT and OFFSET clauses.")
                .with_position(crate::span::character_position(self.text, start)));
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
            TokenKind::Symbol(b'+') => crate::tree::Operator::Plus,
            TokenKind::Symbol(b'-') => crate::tree::Operator::Minus,
            _ => return self.operand(),
        };
        let span = self.advance().span;
        if !matches!(self.kind(), TokenKind::Integer | TokenKind::Number) {
            return self.unexpected();
        }
        let operand = self.operand()?;
        let operators = vec![crate::tree::PrefixOperator { span, kind: PrefixKind::Operator(operator) }];
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

fn plain_query(body: QueryBody, span: Span) -> Box<Query> {
    let order_by = Vec::new();
    Box::new(Query { span, with: None, body, order_by, limit: None, offset: None, locking: Vec::new() })
}

/// A query as an operand of a set operation: its rows alone if it has no clauses.
fn body_of(query: Box<Query>) -> QueryBody {
    let is_plain = query.with.is_none()
        && query.order_by.is_empty()
        && query.limit.is_none()
        && query.offset.is_none()
        && query.locking.is_empty();
    if is_plain { query.body } else { QueryBody::Nested(query) }
}
