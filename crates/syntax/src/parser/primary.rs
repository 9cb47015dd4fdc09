//! Operands: what operators apply to (PostgreSQL's c_expr and what else begins an a_expr).

use super::Parser;
use super::expression::Mode;
use crate::keyword::{Category, Keyword};
use crate::span::Span;
use crate::token::TokenKind;
use crate::tree::{
    Argument, BaseType, Call, Case, CaseArm, Expr, ExprKind, Name, ObjectName, Over, Query, Row, SortItem,
    TypeName, TypedLiteral,
};
use firn_base::{Result, SqlState};

/// What a parenthesis may hold, where only its inside tells.
pub(super) enum Parenthesised {
    /// `(SELECT …)`, without its parentheses
    Query(Box<Query>),
    /// `(a)`
    Expr(Expr),
    /// `(a, b)`
    Row(Vec<Expr>),
}

impl Parser<'_> {
    pub(super) fn primary(&mut self, mode: Mode) -> Result<Expr> {
        let start = self.start();
        let expr = self.primary_without_place(mode)?;
        self.primary = self.span_from(start);
        Ok(expr)
    }

    /// An operand without operators (PostgreSQL's c_expr).
    pub(crate) fn operand(&mut self) -> Result<Expr> {
        self.enter()?;
        let expr = self.primary(Mode::Restricted)?;
        self.leave();
        Ok(expr)
    }

    fn primary_without_place(&mut self, mode: Mode) -> Result<Expr> {
        let start = self.start();
        let kind = match self.kind() {
            TokenKind::Integer => ExprKind::Integer(self.integer()?),
            TokenKind::Number => ExprKind::Number(self.advance().span.of(self.text).into()),
            kind if kind.is_string() => ExprKind::String(self.string()?),
            TokenKind::BitString => {
                let token = self.advance();
                ExprKind::BitString(self.string_value(token))
            }
            TokenKind::HexString => {
                let token = self.advance();
                ExprKind::HexString(self.string_value(token))
            }
            TokenKind::Parameter => {
                let token = self.advance();
                let number = token.span.of(self.text)[1..].parse().unwrap_or(u32::MAX);
                let expr = Expr { kind: ExprKind::Parameter(number), span: token.span };
                return self.with_accessors(expr);
            }
            TokenKind::Symbol(b'(') => return self.parenthesis(mode),
            TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier => {
                return self.column_or_call();
            }
            TokenKind::Keyword(keyword) => return self.keyword_primary(keyword, mode),
            _ => return self.unexpected(),
        };
        Ok(Expr { kind, span: self.span_from(start) })
    }

    fn keyword_primary(&mut self, keyword: Keyword, mode: Mode) -> Result<Expr> {
        let start = self.start();
        let kind = match keyword {
            Keyword::Null => self.take(ExprKind::Null),
            Keyword::True => self.take(ExprKind::Boolean(true)),
            Keyword::False => self.take(ExprKind::Boolean(false)),
            Keyword::Default if mode == Mode::Full => self.take(ExprKind::Default),
            Keyword::Case => self.case()?,
            Keyword::Exists if self.peek(1) == TokenKind::Symbol(b'(') => {
                self.advance();
                ExprKind::Exists(self.parenthesised_query()?)
            }
            Keyword::Array => self.array()?,
            Keyword::Row if self.peek(1) == TokenKind::Symbol(b'(') => {
                let items = self.explicit_row()?;
                return self.row_or_overlaps(true, items, start, mode);
            }
            Keyword::Grouping if self.peek(1) == TokenKind::Symbol(b'(') => {
                self.advance();
                ExprKind::Grouping(self.parenthesised_list(Self::expr)?)
            }
            Keyword::Unique if mode == Mode::Full => {
                self.advance();
                if self.accept_keyword(Keyword::Nulls) {
                    self.accept_keyword(Keyword::Not);
                    self.expect_keyword(Keyword::Distinct)?;
                }
                self.parenthesised_query()?;
                return self.error(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "UNIQUE predicate is not yet implemented",
                    start,
                );
            }
            _ if self.at_special(keyword) => return self.special(keyword),
            _ if Self::begins_system_type(self.kind()) || keyword == Keyword::Double => {
                if let Some(expr) = self.optional_system_literal()? {
                    return Ok(expr);
                }
                return self.column_or_call();
            }
            _ if keyword.category() == Category::Reserved => return self.unexpected(),
            _ => return self.column_or_call(),
        };
        Ok(Expr { kind, span: self.span_from(start) })
    }

    fn take(&mut self, kind: ExprKind) -> ExprKind {
        self.advance();
        kind
    }

    /// `timestamp '…'` and its relatives, unless the word is the name of a column.
    fn optional_system_literal(&mut self) -> Result<Option<Expr>> {
        let start = self.start();
        if self.at_keyword(Keyword::Interval) {
            let is_literal = self.peek(1).is_string() || self.peek(1) == TokenKind::Symbol(b'(');
            if !is_literal {
                return Ok(None);
            }
            self.advance();
            let precision = self.optional_parenthesised_integer()?;
            let type_span = self.span_from(start);
            let value = self.string()?;
            let (fields, second) =
                if precision.is_some() { (None, None) } else { self.optional_interval_fields()? };
            let base = BaseType::Interval { fields, precision: precision.or(second) };
            return Ok(Some(self.typed_literal(base, type_span, value)));
        }
        // A column can be called `time` or `bit`: what follows tells.
        let next = self.peek(1);
        let is_name = match self.keyword() {
            Some(Keyword::Double) => next != TokenKind::Keyword(Keyword::Precision),
            _ => {
                !next.is_string()
                    && !matches!(
                        next,
                        TokenKind::Symbol(b'(')
                            | TokenKind::Keyword(
                                Keyword::Varying
                                    | Keyword::Character
                                    | Keyword::Char
                                    | Keyword::With
                                    | Keyword::Without
                            )
                    )
            }
        };
        if is_name {
            return Ok(None);
        }
        let Some(base) = self.optional_system_type()? else { return Ok(None) };
        let type_span = self.span_from(start);
        let value = self.string()?;
        Ok(Some(self.typed_literal(base, type_span, value)))
    }

    fn typed_literal(&self, base: BaseType, span: Span, value: Box<str>) -> Expr {
        let type_name = TypeName { span, is_set: false, base, bounds: Vec::new() };
        let kind = ExprKind::TypedLiteral(Box::new(TypedLiteral { type_name, value }));
        Expr { kind, span: self.span_from(span.start) }
    }

    /// What begins with a name: a column, a call, or a literal of the type with this name.
    fn column_or_call(&mut self) -> Result<Expr> {
        let start = self.start();
        let is_column = Self::is_name(self.kind());
        let is_function = Self::is_type_or_function_name(self.kind());
        if (!is_column && !is_function) || self.begins_pair() {
            return self.unexpected();
        }
        let mut name = ObjectName::simple(self.take_name());
        let mut is_star = false;
        if is_column {
            while self.at_symbol(b'.') {
                self.advance();
                if self.accept_symbol(b'*') {
                    is_star = true;
                    break;
                }
                let part = self.label()?;
                name.qualifiers.push(std::mem::replace(&mut name.name, part));
            }
        }
        if !is_star && (is_function || !name.qualifiers.is_empty()) {
            if self.at_symbol(b'(') {
                return self.call(name, start, true);
            }
            if self.kind().is_string() {
                let span = self.span_from(start);
                let value = self.string()?;
                return Ok(self.typed_literal(BaseType::Named { name, modifiers: Vec::new() }, span, value));
            }
        }
        if !is_column {
            return self.unexpected();
        }
        let span = self.span_from(start);
        if is_star {
            // `t.*` is the column `t.*` of PostgreSQL's tree: its name is all that stands before the star.
            let expr = Expr { kind: ExprKind::AllColumns(Box::new(name)), span };
            if self.at_symbol(b'.') || self.at_symbol(b'[') {
                self.accessors()?;
                return Err(self.mistake("improper use of \"*\""));
            }
            return Ok(expr);
        }
        let expr = Expr { kind: ExprKind::Column(Box::new(name)), span };
        if self.at_symbol(b'[') {
            let expr = self.with_accessors(expr)?;
            // `a[1](…)` and `a[1] '…'` are names of functions to PostgreSQL's grammar.
            if self.at_symbol(b'(') || self.kind().is_string() {
                return self.unexpected();
            }
            return Ok(expr);
        }
        Ok(expr)
    }

    /// A call behind the name, at its parenthesis. In FROM nothing follows the arguments.
    pub(super) fn call(&mut self, name: ObjectName, start: u32, may_have_window: bool) -> Result<Expr> {
        self.expect_symbol(b'(')?;
        let mut call = Box::new(Call {
            name,
            arguments: Vec::new(),
            is_star: false,
            is_distinct: false,
            is_variadic: false,
            order_by: Vec::new(),
            within_group: Vec::new(),
            filter: None,
            over: None,
        });
        let mut is_plain = true;
        let mut order_at = start;
        if self.at_symbol(b'*') {
            self.advance();
            call.is_star = true;
            is_plain = false;
        } else if !self.at_symbol(b')') {
            match self.keyword() {
                Some(Keyword::All) => {
                    self.advance();
                    is_plain = false;
                }
                Some(Keyword::Distinct) => {
                    self.advance();
                    call.is_distinct = true;
                    is_plain = false;
                }
                _ => {}
            }
            loop {
                if is_plain && self.accept_keyword(Keyword::Variadic) {
                    call.is_variadic = true;
                }
                call.arguments.push(self.argument()?);
                if call.is_variadic || !self.accept_symbol(b',') {
                    break;
                }
            }
            order_at = self.start();
            call.order_by = self.optional_order_by()?;
        } else {
            is_plain = false;
        }
        self.expect_symbol(b')')?;
        if is_plain && !call.is_variadic && self.kind().is_string() && may_have_window {
            return self.literal_with_modifiers(*call, start, order_at);
        }
        if may_have_window {
            self.call_suffixes(&mut call)?;
        }
        Ok(Expr { kind: ExprKind::Call(call), span: self.span_from(start) })
    }

    fn call_suffixes(&mut self, call: &mut Call) -> Result<()> {
        let within = self.start();
        if self.accept_keyword(Keyword::Within) {
            self.expect_keyword(Keyword::Group)?;
            self.expect_symbol(b'(')?;
            if !self.at_keyword(Keyword::Order) {
                return self.unexpected();
            }
            call.within_group = self.optional_order_by()?;
            self.expect_symbol(b')')?;
        }
        if self.accept_keyword(Keyword::Filter) {
            self.expect_symbol(b'(')?;
            self.expect_keyword(Keyword::Where)?;
            call.filter = Some(self.expr()?);
            self.expect_symbol(b')')?;
        }
        if self.accept_keyword(Keyword::Over) {
            call.over = Some(if self.at_symbol(b'(') {
                Over::Window(self.window_spec()?)
            } else {
                Over::Named(self.name()?)
            });
        }
        if call.within_group.is_empty() {
            return Ok(());
        }
        let mistake = if !call.order_by.is_empty() {
            "cannot use multiple ORDER BY clauses with WITHIN GROUP"
        } else if call.is_distinct {
            "cannot use DISTINCT with WITHIN GROUP"
        } else if call.is_variadic {
            "cannot use VARIADIC with WITHIN GROUP"
        } else {
            return Ok(());
        };
        self.error(SqlState::SYNTAX_ERROR, mistake, within)
    }

    /// `type(modifiers) '…'`, which began like a call.
    fn literal_with_modifiers(&mut self, call: Call, start: u32, order_at: u32) -> Result<Expr> {
        if let Some(argument) = call.arguments.iter().find(|argument| argument.name.is_some()) {
            let at = argument.name.as_ref().map_or(start, |name| name.span.start);
            return self.error(SqlState::SYNTAX_ERROR, "type modifier cannot have parameter name", at);
        }
        if !call.order_by.is_empty() {
            return self.error(SqlState::SYNTAX_ERROR, "type modifier cannot have ORDER BY", order_at);
        }
        let span = self.span_from(start);
        let value = self.string()?;
        let modifiers = call.arguments.into_iter().map(|argument| argument.value).collect();
        Ok(self.typed_literal(BaseType::Named { name: call.name, modifiers }, span, value))
    }

    /// `value`, `name => value` or `name := value` (PostgreSQL's func_arg_expr).
    pub(super) fn argument(&mut self) -> Result<Argument> {
        let mut name: Option<Name> = None;
        // `null => 'NA'` names an option of a function that reads files.
        let is_null = self.options.additions && self.at_keyword(Keyword::Null);
        if (is_null || Self::is_type_or_function_name(self.kind()))
            && matches!(self.peek(1), TokenKind::ColonEquals | TokenKind::EqualsGreater)
        {
            name = Some(self.take_name());
            self.advance();
        }
        Ok(Argument { name, value: self.expr()? })
    }

    /// ORDER BY or nothing.
    pub(super) fn optional_order_by(&mut self) -> Result<Vec<SortItem>> {
        if !self.at_keyword(Keyword::Order) {
            return Ok(Vec::new());
        }
        self.advance();
        self.expect_keyword(Keyword::By)?;
        self.list(Self::sort_item)
    }

    fn case(&mut self) -> Result<ExprKind> {
        self.advance();
        let operand = if self.at_keyword(Keyword::When) { None } else { Some(self.expr()?) };
        let mut arms = Vec::new();
        loop {
            let start = self.start();
            self.expect_keyword(Keyword::When)?;
            let condition = self.expr()?;
            self.expect_keyword(Keyword::Then)?;
            let result = self.expr()?;
            arms.push(CaseArm { span: self.span_from(start), condition, result });
            if !self.at_keyword(Keyword::When) {
                break;
            }
        }
        let otherwise = if self.accept_keyword(Keyword::Else) { Some(self.expr()?) } else { None };
        self.expect_keyword(Keyword::End)?;
        Ok(ExprKind::Case(Box::new(Case { operand, arms, otherwise })))
    }

    fn array(&mut self) -> Result<ExprKind> {
        self.advance();
        if self.at_symbol(b'(') {
            return Ok(ExprKind::ArrayQuery(self.parenthesised_query()?));
        }
        self.array_items()
    }

    /// `[…]`: expressions, or arrays in brackets.
    fn array_items(&mut self) -> Result<ExprKind> {
        self.expect_symbol(b'[')?;
        if self.accept_symbol(b']') {
            return Ok(ExprKind::Array(Vec::new()));
        }
        let items = if self.at_symbol(b'[') { self.list(Self::nested_array)? } else { self.exprs()? };
        self.expect_symbol(b']')?;
        Ok(ExprKind::Array(items))
    }

    fn nested_array(&mut self) -> Result<Expr> {
        self.enter()?;
        let start = self.start();
        let kind = self.array_items()?;
        self.leave();
        Ok(Expr { kind, span: self.span_from(start) })
    }

    /// `ROW(…)`: its items.
    fn explicit_row(&mut self) -> Result<Vec<Expr>> {
        self.expect_keyword(Keyword::Row)?;
        self.expect_symbol(b'(')?;
        if self.accept_symbol(b')') {
            return Ok(Vec::new());
        }
        let items = self.exprs()?;
        self.expect_symbol(b')')?;
        Ok(items)
    }

    /// A row, or `row OVERLAPS row`.
    fn row_or_overlaps(
        &mut self,
        is_explicit: bool,
        items: Vec<Expr>,
        start: u32,
        mode: Mode,
    ) -> Result<Expr> {
        if mode == Mode::Restricted || !self.at_keyword(Keyword::Overlaps) {
            let kind = ExprKind::Row(Box::new(Row { is_explicit, items }));
            return Ok(Expr { kind, span: self.span_from(start) });
        }
        self.advance();
        let right_start = self.start();
        let right = if self.at_keyword(Keyword::Row) {
            self.explicit_row()?
        } else {
            self.expect_symbol(b'(')?;
            let mut items = vec![self.expr()?];
            self.expect_symbol(b',')?;
            items.extend(self.exprs()?);
            self.expect_symbol(b')')?;
            items
        };
        let wrong = |side| format!("wrong number of parameters on {side} side of OVERLAPS expression");
        let Ok(left) = <[Expr; 2]>::try_from(items) else {
            return self.error(SqlState::SYNTAX_ERROR, wrong("left"), start);
        };
        let Ok(right) = <[Expr; 2]>::try_from(right) else {
            return self.error(SqlState::SYNTAX_ERROR, wrong("right"), right_start);
        };
        Ok(Expr { kind: ExprKind::Overlaps(Box::new([left, right])), span: self.span_from(start) })
    }

    /// `(…)`: a sub-query, an expression in parentheses or a row, with what may follow each of them.
    fn parenthesis(&mut self, mode: Mode) -> Result<Expr> {
        let start = self.start();
        self.advance();
        let inside = self.inside_parenthesis()?;
        self.expect_symbol(b')')?;
        match inside {
            Parenthesised::Query(query) => {
                let expr = Expr { kind: ExprKind::Subquery(query), span: self.span_from(start) };
                self.with_accessors(expr)
            }
            Parenthesised::Expr(expr) => {
                if self.at_symbol(b'[') || self.at_symbol(b'.') {
                    self.with_accessors(expr)
                } else {
                    Ok(expr)
                }
            }
            Parenthesised::Row(items) => self.row_or_overlaps(false, items, start, mode),
        }
    }

    /// Behind `(`, up to its `)`.
    pub(super) fn inside_parenthesis(&mut self) -> Result<Parenthesised> {
        let first = match self.query_or_expr()? {
            Ok(query) => return Ok(Parenthesised::Query(query)),
            Err(first) => first,
        };
        if !self.at_symbol(b',') {
            return Ok(Parenthesised::Expr(first));
        }
        let mut items = vec![first];
        while self.accept_symbol(b',') {
            items.push(self.expr()?);
        }
        Ok(Parenthesised::Row(items))
    }

    /// What may be a query or an expression: `(SELECT 1) UNION SELECT 2` is one, `(SELECT 1) + 2` the other. A
    /// query in parentheses with nothing behind it but `)` is a query. What stands in inner parentheses is read
    /// once, and then goes into whichever of both it began.
    pub(super) fn query_or_expr(&mut self) -> Result<std::result::Result<Box<Query>, Expr>> {
        if self.begins_query() {
            return Ok(Ok(self.query()?));
        }
        if !self.at_symbol(b'(') {
            return Ok(Err(self.expr()?));
        }
        self.enter()?;
        let start = self.start();
        self.advance();
        let inside = self.inside_parenthesis()?;
        self.expect_symbol(b')')?;
        let operand = match inside {
            Parenthesised::Query(query) => {
                if self.at_symbol(b')') || self.continues_query() {
                    let query = self.query_from(query, start)?;
                    self.leave();
                    return Ok(Ok(query));
                }
                let expr = Expr { kind: ExprKind::Subquery(query), span: self.span_from(start) };
                self.with_accessors(expr)?
            }
            Parenthesised::Expr(expr) => self.with_accessors(expr)?,
            Parenthesised::Row(items) => self.row_or_overlaps(false, items, start, Mode::Full)?,
        };
        self.primary = self.span_from(start);
        let expr = self.expr_from(operand)?;
        self.leave();
        Ok(Err(expr))
    }

    /// `(query)` or `(expr)`.
    pub(super) fn parenthesised_query_or_expr(&mut self) -> Result<std::result::Result<Box<Query>, Expr>> {
        self.expect_symbol(b'(')?;
        let inside = self.query_or_expr()?;
        self.expect_symbol(b')')?;
        Ok(inside)
    }
}
