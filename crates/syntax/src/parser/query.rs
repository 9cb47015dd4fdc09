//! Queries: WITH, set operations, SELECT, VALUES, TABLE, and what stands behind them.

use super::{Parser, Stop};
use crate::keyword::Keyword;
use crate::span::Span;
use crate::token::TokenKind;
use crate::tree::{
    CommonTable, Cycle, Distinct, Expr, ExprKind, GroupItem, Into, Persistence, Query, QueryBody, Search,
    Select, SetOperation, SetOperator, SetStep, Target, WindowDefinition, With,
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
                QueryBody::Values(self.rows()?)
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

    /// The rows of VALUES. Usually all have the width of the first.
    fn rows(&mut self) -> Result<Vec<Vec<Expr>>> {
        let mut rows: Vec<Vec<Expr>> = Vec::new();
        loop {
            let mut row = Vec::with_capacity(rows.last().map_or(4, Vec::len));
            self.expect_symbol(b'(')?;
            row.push(self.expr()?);
            while self.accept_symbol(b',') {
                row.push(self.expr()?);
            }
            self.expect_symbol(b')')?;
            rows.push(row);
            if !self.accept_symbol(b',') {
                return Ok(rows);
            }
        }
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
        let may_begin = match self.kind() {
            TokenKind::Integer | TokenKind::Number | TokenKind::BitString | TokenKind::HexString => true,
            TokenKind::Keyword(Keyword::True | Keyword::False | Keyword::Null) => true,
            kind => kind.is_string() || Self::is_name(kind) || Self::is_type_or_function_name(kind),
        };
        if !may_begin {
            return self.unexpected();
        }
        let expr = self.operand()?;
        match expr.kind {
            ExprKind::Null
            | ExprKind::Boolean(_)
            | ExprKind::Integer(_)
            | ExprKind::Number(_)
            | ExprKind::String(_)
            | ExprKind::BitString(_)
            | ExprKind::HexString(_)
            | ExprKind::TypedLiteral(_) => Ok(expr),
            // A name was the beginning of a typed literal until something else than a string followed.
            _ => self.unexpected(),
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
