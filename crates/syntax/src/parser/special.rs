//! Functions with a syntax of their own (PostgreSQL's func_expr_common_subexpr).

use super::types::is_extract_field;
use super::{Parser, Stop};
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{
    Call, CurrentValue, Expr, ExprKind, Name, ObjectName, Special, TrimSide, XmlAttribute, XmlExpr,
    XmlStandalone,
};
use firn_base::Result;

impl Parser<'_> {
    /// Whether a keyword begins one of these functions here.
    pub(super) fn at_special(&mut self, keyword: Keyword) -> bool {
        match keyword {
            Keyword::CurrentDate
            | Keyword::CurrentTime
            | Keyword::CurrentTimestamp
            | Keyword::Localtime
            | Keyword::Localtimestamp
            | Keyword::CurrentRole
            | Keyword::CurrentUser
            | Keyword::SessionUser
            | Keyword::User
            | Keyword::CurrentCatalog
            | Keyword::Cast => true,
            Keyword::CurrentSchema => {
                !matches!(self.peek(1), TokenKind::Symbol(b'(')) && !self.peek(1).is_string()
            }
            Keyword::Collation => self.next_is(Keyword::For),
            Keyword::Extract
            | Keyword::Normalize
            | Keyword::Overlay
            | Keyword::Position
            | Keyword::Substring
            | Keyword::Treat
            | Keyword::Trim
            | Keyword::Nullif
            | Keyword::Coalesce
            | Keyword::Greatest
            | Keyword::Least
            | Keyword::Xmlconcat
            | Keyword::Xmlelement
            | Keyword::Xmlexists
            | Keyword::Xmlforest
            | Keyword::Xmlparse
            | Keyword::Xmlpi
            | Keyword::Xmlroot
            | Keyword::Xmlserialize => self.peek(1) == TokenKind::Symbol(b'('),
            _ => false,
        }
    }

    /// One of these functions.
    pub(super) fn special(&mut self, keyword: Keyword) -> Result<Expr> {
        let start = self.start();
        let name = self.take_name();
        let precise = |precision: Option<i32>| match keyword {
            Keyword::CurrentTime => CurrentValue::Time(precision),
            Keyword::CurrentTimestamp => CurrentValue::Timestamp(precision),
            Keyword::Localtime => CurrentValue::LocalTime(precision),
            _ => CurrentValue::LocalTimestamp(precision),
        };
        let kind = match keyword {
            Keyword::CurrentDate => ExprKind::CurrentValue(CurrentValue::Date),
            Keyword::CurrentTime
            | Keyword::CurrentTimestamp
            | Keyword::Localtime
            | Keyword::Localtimestamp => {
                ExprKind::CurrentValue(precise(self.optional_parenthesised_integer()?))
            }
            Keyword::CurrentRole => ExprKind::CurrentValue(CurrentValue::Role),
            Keyword::CurrentUser => ExprKind::CurrentValue(CurrentValue::CurrentUser),
            Keyword::SessionUser => ExprKind::CurrentValue(CurrentValue::SessionUser),
            Keyword::User => ExprKind::CurrentValue(CurrentValue::User),
            Keyword::CurrentCatalog => ExprKind::CurrentValue(CurrentValue::Catalog),
            Keyword::CurrentSchema => ExprKind::CurrentValue(CurrentValue::Schema),
            Keyword::Collation => {
                self.expect_keyword(Keyword::For)?;
                self.expect_symbol(b'(')?;
                let value = self.expr()?;
                self.expect_symbol(b')')?;
                special(Special::CollationFor(value))
            }
            _ => {
                self.expect_symbol(b'(')?;
                let kind = self.special_arguments(keyword, name, start)?;
                self.expect_symbol(b')')?;
                kind
            }
        };
        Ok(Expr { kind, span: self.span_from(start) })
    }

    /// What stands in the parentheses of these functions.
    fn special_arguments(&mut self, keyword: Keyword, name: Name, start: u32) -> Result<ExprKind> {
        Ok(match keyword {
            Keyword::Cast => {
                let value = self.expr()?;
                self.expect_keyword(Keyword::As)?;
                let type_name = self.type_name()?;
                cast(value, Box::new(type_name), self.span_from(start))
            }
            Keyword::Treat => {
                let value = self.expr()?;
                self.expect_keyword(Keyword::As)?;
                special(Special::Treat { value, type_name: self.type_name()? })
            }
            Keyword::Coalesce => ExprKind::Coalesce(self.exprs()?),
            Keyword::Greatest => ExprKind::Greatest(self.exprs()?),
            Keyword::Least => ExprKind::Least(self.exprs()?),
            Keyword::Nullif => {
                let left = self.expr()?;
                self.expect_symbol(b',')?;
                ExprKind::NullIf(Box::new([left, self.expr()?]))
            }
            Keyword::Extract => special(self.extract()?),
            Keyword::Normalize => {
                let string = self.expr()?;
                let form = if self.accept_symbol(b',') { Some(self.normal_form()?) } else { None };
                special(Special::Normalize { string, form })
            }
            Keyword::Overlay => self.overlay(name)?,
            Keyword::Position => {
                let part = self.restricted_expr()?;
                self.expect_keyword(Keyword::In)?;
                special(Special::Position { part, string: self.restricted_expr()? })
            }
            Keyword::Substring => self.substring(name)?,
            Keyword::Trim => special(self.trim()?),
            Keyword::Xmlconcat => xml(XmlExpr::Concat(self.exprs()?)),
            Keyword::Xmlelement => xml(self.xml_element()?),
            Keyword::Xmlexists => {
                let path = self.operand()?;
                let value = self.xml_passing()?;
                xml(XmlExpr::Exists { path, xml: value })
            }
            Keyword::Xmlforest => xml(XmlExpr::Forest(self.list(Self::xml_attribute)?)),
            Keyword::Xmlparse => {
                let is_document = self.document_or_content()?;
                let text = self.expr()?;
                let preserves_whitespace = self.accept_keyword(Keyword::Preserve);
                if preserves_whitespace || self.accept_keyword(Keyword::Strip) {
                    self.expect_keyword(Keyword::Whitespace)?;
                }
                xml(XmlExpr::Parse { is_document, text, preserves_whitespace })
            }
            Keyword::Xmlpi => {
                self.expect_keyword(Keyword::Name)?;
                let name = self.label()?;
                let content = if self.accept_symbol(b',') { Some(self.expr()?) } else { None };
                xml(XmlExpr::Pi { name, content })
            }
            Keyword::Xmlroot => xml(self.xml_root()?),
            Keyword::Xmlserialize => {
                let is_document = self.document_or_content()?;
                let value = self.expr()?;
                self.expect_keyword(Keyword::As)?;
                xml(XmlExpr::Serialize { is_document, xml: value, type_name: self.simple_type_name()? })
            }
            _ => return self.unexpected(),
        })
    }

    fn extract(&mut self) -> Result<Special> {
        let field = match self.kind() {
            TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier => {
                self.take_name()
            }
            TokenKind::Keyword(keyword) if is_extract_field(keyword) => self.take_name(),
            kind if kind.is_string() => {
                let start = self.start();
                let text = self.string()?;
                Name { text, span: self.span_from(start) }
            }
            _ => return self.unexpected(),
        };
        self.expect_keyword(Keyword::From)?;
        Ok(Special::Extract { field, from: self.expr()? })
    }

    /// A call of the plain function of the same name, behind its first parenthesis.
    fn plain_call(&mut self, name: Name, first: Option<crate::tree::Argument>) -> Result<ExprKind> {
        let mut arguments = Vec::new();
        if let Some(first) = first {
            arguments.push(first);
            while self.accept_symbol(b',') {
                arguments.push(self.argument()?);
            }
        }
        Ok(ExprKind::Call(Box::new(Call {
            name: ObjectName::simple(name),
            arguments,
            is_star: false,
            is_distinct: false,
            is_variadic: false,
            order_by: Vec::new(),
            within_group: Vec::new(),
            filter: None,
            over: None,
        })))
    }

    fn overlay(&mut self, name: Name) -> Result<ExprKind> {
        if self.at_symbol(b')') {
            return self.plain_call(name, None);
        }
        let first = self.argument()?;
        if first.name.is_some() || !self.accept_keyword(Keyword::Placing) {
            return self.plain_call(name, Some(first));
        }
        let replacement = self.expr()?;
        self.expect_keyword(Keyword::From)?;
        let start = self.expr()?;
        let length = if self.accept_keyword(Keyword::For) { Some(self.expr()?) } else { None };
        Ok(special(Special::Overlay { string: first.value, replacement, start, length }))
    }

    fn substring(&mut self, name: Name) -> Result<ExprKind> {
        if self.at_symbol(b')') {
            return self.plain_call(name, None);
        }
        self.stop = Stop::Similar;
        let first = self.argument()?;
        let keyword = if first.name.is_some() { None } else { self.keyword() };
        let string = match keyword {
            Some(Keyword::From | Keyword::For | Keyword::Similar) => first.value,
            _ => return self.plain_call(name, Some(first)),
        };
        self.advance();
        if keyword == Some(Keyword::Similar) {
            let pattern = self.expr()?;
            self.expect_keyword(Keyword::Escape)?;
            return Ok(special(Special::SubstringSimilar { string, pattern, escape: self.expr()? }));
        }
        let (mut start, mut length) = (None, None);
        if keyword == Some(Keyword::From) {
            start = Some(self.expr()?);
            if self.accept_keyword(Keyword::For) {
                length = Some(self.expr()?);
            }
        } else {
            length = Some(self.expr()?);
            if self.accept_keyword(Keyword::From) {
                start = Some(self.expr()?);
            }
        }
        Ok(special(Special::Substring { string, start, length }))
    }

    fn trim(&mut self) -> Result<Special> {
        let side = match self.keyword() {
            Some(Keyword::Both) => TrimSide::Both,
            Some(Keyword::Leading) => TrimSide::Leading,
            Some(Keyword::Trailing) => TrimSide::Trailing,
            _ => {
                let arguments = self.trim_arguments()?;
                return Ok(Special::Trim { side: TrimSide::Both, arguments });
            }
        };
        self.advance();
        Ok(Special::Trim { side, arguments: self.trim_arguments()? })
    }

    fn trim_arguments(&mut self) -> Result<Vec<Expr>> {
        if self.accept_keyword(Keyword::From) {
            return self.exprs();
        }
        let first = self.expr()?;
        if self.accept_keyword(Keyword::From) {
            let mut arguments = self.exprs()?;
            arguments.push(first);
            return Ok(arguments);
        }
        let mut arguments = vec![first];
        while self.accept_symbol(b',') {
            arguments.push(self.expr()?);
        }
        Ok(arguments)
    }

    // XML.

    fn xml_element(&mut self) -> Result<XmlExpr> {
        self.expect_keyword(Keyword::Name)?;
        let name = self.label()?;
        let (mut attributes, mut content) = (Vec::new(), Vec::new());
        if self.accept_symbol(b',') {
            let mut has_content = true;
            if self.at_keyword(Keyword::Xmlattributes) && self.peek(1) == TokenKind::Symbol(b'(') {
                self.advance();
                attributes = self.parenthesised_list(Self::xml_attribute)?;
                has_content = self.accept_symbol(b',');
            }
            if has_content {
                content = self.exprs()?;
            }
        }
        Ok(XmlExpr::Element { name, attributes, content })
    }

    fn xml_attribute(&mut self) -> Result<XmlAttribute> {
        let value = self.expr()?;
        let name = if self.accept_keyword(Keyword::As) { Some(self.label()?) } else { None };
        Ok(XmlAttribute { value, name })
    }

    fn document_or_content(&mut self) -> Result<bool> {
        let is_document = self.accept_keyword(Keyword::Document);
        if !is_document {
            self.expect_keyword(Keyword::Content)?;
        }
        Ok(is_document)
    }

    fn xml_root(&mut self) -> Result<XmlExpr> {
        let xml = self.expr()?;
        self.expect_symbol(b',')?;
        self.expect_keyword(Keyword::Version)?;
        let version = if self.at_keyword(Keyword::No) && self.next_is(Keyword::Value) {
            self.advance();
            self.advance();
            None
        } else {
            Some(self.expr()?)
        };
        let mut standalone = None;
        if self.accept_symbol(b',') {
            self.expect_keyword(Keyword::Standalone)?;
            standalone = Some(if self.accept_keyword(Keyword::Yes) {
                XmlStandalone::Yes
            } else {
                self.expect_keyword(Keyword::No)?;
                if self.accept_keyword(Keyword::Value) { XmlStandalone::NoValue } else { XmlStandalone::No }
            });
        }
        Ok(XmlExpr::Root { xml, version, standalone })
    }

    /// `PASSING [BY REF] value [BY REF]`
    pub(super) fn xml_passing(&mut self) -> Result<Expr> {
        self.expect_keyword(Keyword::Passing)?;
        self.optional_passing_mechanism()?;
        let xml = self.operand()?;
        self.optional_passing_mechanism()?;
        Ok(xml)
    }

    fn optional_passing_mechanism(&mut self) -> Result<()> {
        if self.at_keyword(Keyword::By)
            && matches!(self.peek(1), TokenKind::Keyword(Keyword::Ref | Keyword::Value))
        {
            self.advance();
            self.advance();
        }
        Ok(())
    }
}

fn special(function: Special) -> ExprKind {
    ExprKind::Special(Box::new(function))
}

fn xml(function: XmlExpr) -> ExprKind {
    ExprKind::Xml(Box::new(function))
}

/// `value::type_name`
fn cast(value: Expr, type_name: Box<crate::tree::TypeName>, span: crate::span::Span) -> ExprKind {
    let step = crate::tree::Step { span, kind: crate::tree::StepKind::Cast(type_name) };
    super::expression::with_step(value, step).kind
}
