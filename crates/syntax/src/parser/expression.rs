//! Operators: precedence climbing over chains that are lists.
//!
//! Levels are those of PostgreSQL's grammar. What stands on the left of an operator is never a level of
//! the tree: [`Chain`] holds all steps, AND and OR all conditions, [`Prefix`] all operators before an operand.
//! Only right operands and what is in parentheses nest.

use super::{Parser, Stop};
use crate::keyword::Keyword;
use crate::level::{self, Level, does_not_associate};
use crate::span::Span;
use crate::token::TokenKind;
use crate::tree::{
    Accessor, Between, Chain, Expr, ExprKind, IsTest, Like, LikeKind, NormalForm, Operator, OtherOperator,
    Prefix, PrefixKind, PrefixOperator, Quantified, QuantifiedRight, Step, StepKind,
};
use firn_base::Result;

/// Which operators an expression may have: PostgreSQL's a_expr and b_expr.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// All.
    Full,
    /// None that are made of words: for places where AND, IN, NOT and such mean something else.
    Restricted,
}

/// What an infix token does.
enum Infix {
    Or,
    And,
    Binary,
    Like(LikeKind),
    Between,
    In,
    Is,
    IsNull,
    NotNull,
    AtTimeZone,
    Collate,
    Cast,
}

impl Parser<'_> {
    /// Any expression (PostgreSQL's a_expr).
    pub(crate) fn expr(&mut self) -> Result<Expr> {
        // A constant with nothing behind it is most of what long statements hold.
        let is_constant = matches!(
            self.kind(),
            TokenKind::Integer | TokenKind::Number | TokenKind::String { .. } | TokenKind::Parameter
        );
        if is_constant && matches!(self.peek(1), TokenKind::Symbol(b',' | b')')) {
            self.stop = Stop::Nowhere;
            self.enter()?;
            let constant = self.primary(Mode::Full)?;
            self.leave();
            return Ok(constant);
        }
        self.expr_above(level::NONE, Mode::Full)
    }

    /// An expression without operators that are made of words (PostgreSQL's b_expr).
    pub(crate) fn restricted_expr(&mut self) -> Result<Expr> {
        self.expr_above(level::NONE, Mode::Restricted)
    }

    /// Expressions with commas between them.
    pub(crate) fn exprs(&mut self) -> Result<Vec<Expr>> {
        self.list(Self::expr)
    }

    /// An expression of operators that bind more tightly than `floor`.
    fn expr_above(&mut self, floor: Level, mode: Mode) -> Result<Expr> {
        self.enter()?;
        let stop = std::mem::replace(&mut self.stop, Stop::Nowhere);
        let left = match self.prefix_operator(mode)? {
            None => self.primary(mode)?,
            Some(prefix) => self.prefixed(prefix, mode)?,
        };
        let expr = self.infixes(left, floor, mode, stop)?;
        self.leave();
        Ok(expr)
    }

    /// The rest of an expression whose first operand has been parsed.
    pub(super) fn expr_from(&mut self, left: Expr) -> Result<Expr> {
        self.infixes(left, level::NONE, Mode::Full, Stop::Nowhere)
    }

    /// Operators before an operand. Each takes the steps that bind more tightly than itself.
    fn prefixed(&mut self, first: (PrefixOperator, Level), mode: Mode) -> Result<Expr> {
        let mut waiting = vec![first];
        while let Some(next) = self.prefix_operator(mode)? {
            waiting.push(next);
        }
        let mut expr = self.primary(mode)?;
        while let Some((operator, level)) = waiting.pop() {
            expr = self.infixes(expr, level, mode, Stop::Nowhere)?;
            expr = with_prefix(operator, expr);
        }
        Ok(expr)
    }

    fn prefix_operator(&mut self, mode: Mode) -> Result<Option<(PrefixOperator, Level)>> {
        let start = self.start();
        let (kind, level) = match self.kind() {
            TokenKind::Symbol(sign @ (b'+' | b'-')) => {
                self.advance();
                let operator = if sign == b'+' { Operator::Plus } else { Operator::Minus };
                (PrefixKind::Operator(operator), level::SIGN)
            }
            TokenKind::Operator => (PrefixKind::Operator(self.operator()?), level::OPERATOR),
            TokenKind::Keyword(Keyword::Operator) if self.peek(1) == TokenKind::Symbol(b'(') => {
                (PrefixKind::Operator(self.operator()?), level::OPERATOR)
            }
            TokenKind::Keyword(Keyword::Not) if mode == Mode::Full => {
                self.advance();
                (PrefixKind::Not, level::NOT)
            }
            _ => return Ok(None),
        };
        Ok(Some((PrefixOperator { span: self.span_from(start), kind }, level)))
    }

    /// All steps behind `left` that bind more tightly than `floor`.
    fn infixes(&mut self, mut left: Expr, floor: Level, mode: Mode, stop: Stop) -> Result<Expr> {
        // The level of the last step if that does not associate and ends in an operand.
        let mut closed = level::NONE;
        while let Some((infix, level)) = self.infix(mode) {
            if level <= floor {
                break;
            }
            // Even where the operator could be a label.
            if level == closed {
                return self.unexpected();
            }
            if stop != Stop::Nowhere && self.stops(stop) {
                break;
            }
            let start = left.span.start;
            if matches!(infix, Infix::Or | Infix::And) {
                self.advance();
                let right = self.expr_above(level, mode)?;
                left = condition(level, left, right);
                closed = level::NONE;
            } else {
                let (step, ends_in_operand) = self.step(infix, level, mode)?;
                left = with_step(left, step);
                closed = if ends_in_operand && does_not_associate(level) { level } else { level::NONE };
            }
            left.span = Span::new(start, self.previous_end);
        }
        Ok(left)
    }

    fn stops(&mut self, stop: Stop) -> bool {
        match (stop, self.keyword()) {
            (Stop::Label, Some(keyword)) if keyword.is_bare_label() => {
                let next = self.peek(1);
                Self::ends_target(next)
            }
            (Stop::Similar, Some(Keyword::Similar)) => !self.next_is(Keyword::To),
            _ => false,
        }
    }

    /// A step, and whether it ends in an operand, so that an operator of the same level may not follow.
    fn step(&mut self, infix: Infix, level: Level, mode: Mode) -> Result<(Step, bool)> {
        if let Infix::Binary = infix {
            return self.binary(level, mode);
        }
        let start = self.start();
        let is_negated = self.accept_keyword(Keyword::Not);
        self.advance();
        let span = self.span_from(start);
        let mut ends_in_operand = false;
        let kind = match infix {
            Infix::Like(LikeKind::SimilarTo) => {
                self.expect_keyword(Keyword::To)?;
                ends_in_operand = true;
                self.like(LikeKind::SimilarTo, is_negated)?
            }
            Infix::Like(kind) => match self.optional_quantifier(mode) {
                Some(is_all) => {
                    let symbol = match (kind, is_negated) {
                        (LikeKind::Like, false) => "~~",
                        (LikeKind::Like, true) => "!~~",
                        (_, false) => "~~*",
                        (_, true) => "!~~*",
                    };
                    self.quantified(Operator::from_symbol(symbol), is_all)?
                }
                None => {
                    ends_in_operand = true;
                    self.like(kind, is_negated)?
                }
            },
            Infix::Between => {
                ends_in_operand = true;
                self.between(is_negated)?
            }
            Infix::In => self.in_list(is_negated)?,
            Infix::Is => {
                let kind = self.is_test(mode)?;
                ends_in_operand = matches!(kind, StepKind::IsDistinctFrom { .. });
                kind
            }
            Infix::IsNull => StepKind::Is { is_negated: false, test: IsTest::Null },
            Infix::NotNull => StepKind::Is { is_negated: true, test: IsTest::Null },
            Infix::AtTimeZone => {
                self.expect_keywords(&[Keyword::Time, Keyword::Zone])?;
                StepKind::AtTimeZone(self.expr_above(level, mode)?)
            }
            Infix::Collate => StepKind::Collate(Box::new(self.any_name()?)),
            Infix::Cast => StepKind::Cast(Box::new(self.type_name()?)),
            Infix::Or | Infix::And | Infix::Binary => unreachable!("no such step"),
        };
        Ok((Step { span, kind }, ends_in_operand))
    }

    fn binary(&mut self, level: Level, mode: Mode) -> Result<(Step, bool)> {
        let start = self.start();
        let operator = self.operator()?;
        let span = self.span_from(start);
        if let Some(is_all) = self.optional_quantifier(mode) {
            return Ok((Step { span, kind: self.quantified(operator, is_all)? }, false));
        }
        let right = self.expr_above(level, mode)?;
        Ok((Step { span, kind: StepKind::Binary(operator, right) }, true))
    }

    /// The operator that the current token is or begins, with its level.
    fn infix(&mut self, mode: Mode) -> Option<(Infix, Level)> {
        let restricted = mode == Mode::Restricted;
        let found = match self.kind() {
            TokenKind::Symbol(b'+' | b'-') => (Infix::Binary, level::SUM),
            TokenKind::Symbol(b'*' | b'/' | b'%') => (Infix::Binary, level::PRODUCT),
            TokenKind::Symbol(b'^') => (Infix::Binary, level::POWER),
            TokenKind::Symbol(b'<' | b'>' | b'=')
            | TokenKind::LessEqual
            | TokenKind::GreaterEqual
            | TokenKind::NotEqual => (Infix::Binary, level::COMPARISON),
            TokenKind::Operator => (Infix::Binary, level::OPERATOR),
            TokenKind::DoubleColon => (Infix::Cast, level::CAST),
            TokenKind::Keyword(keyword) => match keyword {
                Keyword::Operator => (Infix::Binary, level::OPERATOR),
                Keyword::Is => (Infix::Is, level::IS),
                _ if restricted => return None,
                Keyword::Or => (Infix::Or, level::OR),
                Keyword::And => (Infix::And, level::AND),
                Keyword::Isnull => (Infix::IsNull, level::IS),
                Keyword::Notnull => (Infix::NotNull, level::IS),
                Keyword::Collate => (Infix::Collate, level::COLLATE),
                Keyword::At => (Infix::AtTimeZone, level::AT),
                Keyword::Not => match self.peek(1) {
                    TokenKind::Keyword(next) => (word_infix(next)?, level::MATCH),
                    _ => return None,
                },
                _ => (word_infix(keyword)?, level::MATCH),
            },
            _ => return None,
        };
        Some(found)
    }

    /// Whether a token is an operator (PostgreSQL's all_Op).
    pub(crate) fn is_operator(kind: TokenKind) -> bool {
        matches!(
            kind,
            TokenKind::Operator
                | TokenKind::LessEqual
                | TokenKind::GreaterEqual
                | TokenKind::NotEqual
                | TokenKind::Symbol(b'+' | b'-' | b'*' | b'/' | b'%' | b'^' | b'<' | b'>' | b'=')
        )
    }

    /// An operator, or `OPERATOR(schema.operator)` (PostgreSQL's qual_all_Op).
    pub(crate) fn operator(&mut self) -> Result<Operator> {
        if !self.accept_keyword(Keyword::Operator) {
            return self.symbol();
        }
        self.expect_symbol(b'(')?;
        let operator = self.any_operator()?;
        self.expect_symbol(b')')?;
        Ok(operator)
    }

    /// `schema.operator` (PostgreSQL's any_operator).
    pub(crate) fn any_operator(&mut self) -> Result<Operator> {
        let mut qualifiers = Vec::new();
        while Self::is_name(self.kind()) {
            qualifiers.push(self.take_name());
            self.expect_symbol(b'.')?;
        }
        let operator = self.symbol()?;
        if qualifiers.is_empty() {
            return Ok(operator);
        }
        let symbol = operator.symbol().into();
        Ok(Operator::Other(Box::new(OtherOperator { qualifiers, symbol })))
    }

    fn symbol(&mut self) -> Result<Operator> {
        let operator = match self.kind() {
            TokenKind::Symbol(b'+') => Operator::Plus,
            TokenKind::Symbol(b'-') => Operator::Minus,
            TokenKind::Symbol(b'*') => Operator::Times,
            TokenKind::Symbol(b'/') => Operator::Divide,
            TokenKind::Symbol(b'%') => Operator::Modulo,
            TokenKind::Symbol(b'^') => Operator::Power,
            TokenKind::Symbol(b'<') => Operator::Less,
            TokenKind::Symbol(b'>') => Operator::Greater,
            TokenKind::Symbol(b'=') => Operator::Equal,
            TokenKind::LessEqual => Operator::LessEqual,
            TokenKind::GreaterEqual => Operator::GreaterEqual,
            TokenKind::NotEqual => Operator::NotEqual,
            TokenKind::Operator => Operator::from_symbol(self.current.span.of(self.text)),
            _ => return self.unexpected(),
        };
        self.advance();
        Ok(operator)
    }

    /// ANY, SOME or ALL: whether it is ALL.
    fn optional_quantifier(&mut self, mode: Mode) -> Option<bool> {
        let is_all = match self.keyword()? {
            Keyword::Any | Keyword::Some => false,
            Keyword::All => true,
            _ => return None,
        };
        if mode == Mode::Restricted {
            return None;
        }
        self.advance();
        Some(is_all)
    }

    fn quantified(&mut self, operator: Operator, is_all: bool) -> Result<StepKind> {
        let right = match self.parenthesised_query_or_expr()? {
            Ok(query) => QuantifiedRight::Query(query),
            Err(array) => QuantifiedRight::Array(array),
        };
        Ok(StepKind::Quantified(Box::new(Quantified { operator, is_all, right })))
    }

    fn like(&mut self, kind: LikeKind, is_negated: bool) -> Result<StepKind> {
        let pattern = self.expr_above(level::MATCH, Mode::Full)?;
        let escape = if self.accept_keyword(Keyword::Escape) {
            Some(self.expr_above(level::MATCH, Mode::Full)?)
        } else {
            None
        };
        Ok(StepKind::Like(Box::new(Like { kind, is_negated, pattern, escape })))
    }

    fn between(&mut self, is_negated: bool) -> Result<StepKind> {
        let is_symmetric = self.accept_keyword(Keyword::Symmetric);
        if !is_symmetric {
            self.accept_keyword(Keyword::Asymmetric);
        }
        let low = self.restricted_expr()?;
        self.expect_keyword(Keyword::And)?;
        let high = self.expr_above(level::MATCH, Mode::Full)?;
        Ok(StepKind::Between(Box::new(Between { is_negated, is_symmetric, low, high })))
    }

    /// Behind IN. A query in parentheses is a query, however many there are.
    fn in_list(&mut self, is_negated: bool) -> Result<StepKind> {
        self.expect_symbol(b'(')?;
        let first = match self.query_or_expr()? {
            Ok(query) => {
                self.expect_symbol(b')')?;
                return Ok(StepKind::InQuery { is_negated, query });
            }
            Err(first) => first,
        };
        let mut items = vec![first];
        while self.accept_symbol(b',') {
            items.push(self.expr()?);
        }
        self.expect_symbol(b')')?;
        Ok(StepKind::InList { is_negated, items })
    }

    /// Behind IS.
    fn is_test(&mut self, mode: Mode) -> Result<StepKind> {
        let is_negated = self.accept_not();
        let Some(keyword) = self.keyword() else { return self.unexpected() };
        let test = match keyword {
            Keyword::Distinct => {
                self.advance();
                self.expect_keyword(Keyword::From)?;
                let right = self.expr_above(level::IS, mode)?;
                return Ok(StepKind::IsDistinctFrom { is_negated, right });
            }
            Keyword::Document => IsTest::Document,
            _ if mode == Mode::Restricted => return self.unexpected(),
            Keyword::Null => IsTest::Null,
            Keyword::True => IsTest::True,
            Keyword::False => IsTest::False,
            Keyword::Unknown => IsTest::Unknown,
            Keyword::Normalized => IsTest::Normalized(None),
            Keyword::Nfc | Keyword::Nfd | Keyword::Nfkc | Keyword::Nfkd => {
                let form = self.normal_form()?;
                self.expect_keyword(Keyword::Normalized)?;
                return Ok(StepKind::Is { is_negated, test: IsTest::Normalized(Some(form)) });
            }
            _ => return self.unexpected(),
        };
        self.advance();
        Ok(StepKind::Is { is_negated, test })
    }

    pub(super) fn normal_form(&mut self) -> Result<NormalForm> {
        let form = match self.keyword() {
            Some(Keyword::Nfc) => NormalForm::Nfc,
            Some(Keyword::Nfd) => NormalForm::Nfd,
            Some(Keyword::Nfkc) => NormalForm::Nfkc,
            Some(Keyword::Nfkd) => NormalForm::Nfkd,
            _ => return self.unexpected(),
        };
        self.advance();
        Ok(form)
    }

    /// `.name`, `.*`, `[…]` as often as they come (PostgreSQL's opt_indirection).
    pub(crate) fn accessors(&mut self) -> Result<Vec<Accessor>> {
        let mut accessors = Vec::new();
        while let Some((_, accessor)) = self.optional_accessor()? {
            accessors.push(accessor);
        }
        self.check_accessors(&accessors)?;
        Ok(accessors)
    }

    /// A star may stand only at the end.
    fn check_accessors(&mut self, accessors: &[Accessor]) -> Result<()> {
        let star = accessors.iter().position(|accessor| *accessor == Accessor::AllFields);
        if star.is_some_and(|star| star + 1 < accessors.len()) {
            return Err(self.mistake("improper use of \"*\""));
        }
        Ok(())
    }

    /// The same as steps upon an expression.
    pub(super) fn with_accessors(&mut self, mut expr: Expr) -> Result<Expr> {
        let start = expr.span.start;
        let mut has_star = false;
        let mut star_is_last = true;
        let mut is_first = true;
        while let Some((span, accessor)) = self.optional_accessor()? {
            star_is_last = !has_star;
            has_star |= accessor == Accessor::AllFields;
            let step = Step { span, kind: StepKind::Access(accessor) };
            expr = match std::mem::take(&mut is_first) && is_subscript(&step.kind) && ends_in_subscript(&expr)
            {
                // `((a)[1:2])[1]`: subscripts behind a parenthesis are of what it yields.
                true => Expr {
                    span: expr.span,
                    kind: ExprKind::Chain(Box::new(Chain { first: expr, steps: vec![step] })),
                },
                false => with_step(expr, step),
            };
            expr.span = Span::new(start, self.previous_end);
        }
        if !star_is_last {
            return Err(self.mistake("improper use of \"*\""));
        }
        Ok(expr)
    }

    pub(super) fn optional_accessor(&mut self) -> Result<Option<(Span, Accessor)>> {
        let start = self.start();
        let accessor = if self.accept_symbol(b'.') {
            if self.accept_symbol(b'*') { Accessor::AllFields } else { Accessor::Field(self.label()?) }
        } else if self.accept_symbol(b'[') {
            self.subscript()?
        } else {
            return Ok(None);
        };
        Ok(Some((self.span_from(start), accessor)))
    }

    fn subscript(&mut self) -> Result<Accessor> {
        let low = if self.at_symbol(b':') { None } else { Some(self.expr()?) };
        if let Some(low) = low {
            if self.accept_symbol(b']') {
                return Ok(Accessor::Subscript(low));
            }
            return self.slice(Some(low));
        }
        self.slice(None)
    }

    fn slice(&mut self, low: Option<Expr>) -> Result<Accessor> {
        self.expect_symbol(b':')?;
        let high = if self.at_symbol(b']') { None } else { Some(self.expr()?) };
        self.expect_symbol(b']')?;
        Ok(Accessor::Slice(Box::new((low, high))))
    }
}

fn word_infix(keyword: Keyword) -> Option<Infix> {
    Some(match keyword {
        Keyword::Like => Infix::Like(LikeKind::Like),
        Keyword::Ilike => Infix::Like(LikeKind::ILike),
        Keyword::Similar => Infix::Like(LikeKind::SimilarTo),
        Keyword::Between => Infix::Between,
        Keyword::In => Infix::In,
        _ => return None,
    })
}

fn with_prefix(operator: PrefixOperator, operand: Expr) -> Expr {
    let span = operator.span.to(operand.span);
    let kind = match operand.kind {
        ExprKind::Prefix(mut prefix) => {
            prefix.operators.push(operator);
            ExprKind::Prefix(prefix)
        }
        _ => ExprKind::Prefix(Box::new(Prefix { operators: vec![operator], operand })),
    };
    Expr { kind, span }
}

fn ends_in_subscript(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Chain(chain) => chain.steps.last().is_some_and(|step| is_subscript(&step.kind)),
        _ => false,
    }
}

fn is_subscript(step: &StepKind) -> bool {
    matches!(step, StepKind::Access(Accessor::Subscript(_) | Accessor::Slice(_)))
}

/// `left` with one more step; the caller sets the span.
pub(super) fn with_step(left: Expr, step: Step) -> Expr {
    match left.kind {
        ExprKind::Chain(mut chain) => {
            chain.steps.push(step);
            Expr { kind: ExprKind::Chain(chain), span: left.span }
        }
        _ => {
            let span = left.span;
            Expr { kind: ExprKind::Chain(Box::new(Chain { first: left, steps: vec![step] })), span }
        }
    }
}

/// `left AND right` or `left OR right`; the caller sets the span.
fn condition(level: Level, left: Expr, right: Expr) -> Expr {
    let span = left.span;
    let kind = match (level, left.kind) {
        (level::AND, ExprKind::And(mut conditions)) => {
            conditions.push(right);
            ExprKind::And(conditions)
        }
        (level::OR, ExprKind::Or(mut conditions)) => {
            conditions.push(right);
            ExprKind::Or(conditions)
        }
        (level::AND, kind) => ExprKind::And(vec![Expr { kind, span }, right]),
        (_, kind) => ExprKind::Or(vec![Expr { kind, span }, right]),
    };
    Expr { kind, span }
}
