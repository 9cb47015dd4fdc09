//! Names: which words may stand where as one.

use super::Parser;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{Name, ObjectName};
use firn_base::{Result, SqlState};

impl Parser<'_> {
    /// Whether a token may be the name of a column, a table or an alias (PostgreSQL's ColId).
    pub(crate) fn is_name(kind: TokenKind) -> bool {
        match kind {
            TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier => true,
            TokenKind::Keyword(keyword) => keyword.is_column_name(),
            _ => false,
        }
    }

    /// Whether a token may be the name of a type or a function (PostgreSQL's type_function_name).
    pub(crate) fn is_type_or_function_name(kind: TokenKind) -> bool {
        match kind {
            TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier => true,
            TokenKind::Keyword(keyword) => keyword.is_type_or_function_name(),
            _ => false,
        }
    }

    /// The name of a column, a table, an alias and most other things (PostgreSQL's ColId and name).
    pub(crate) fn name(&mut self) -> Result<Name> {
        if Self::is_name(self.kind()) && !self.begins_pair() {
            Ok(self.take_name())
        } else {
            self.unexpected()
        }
    }

    /// The name of a type or a function (PostgreSQL's type_function_name).
    pub(crate) fn type_or_function_name(&mut self) -> Result<Name> {
        if Self::is_type_or_function_name(self.kind()) { Ok(self.take_name()) } else { self.unexpected() }
    }

    /// Any word that is not reserved (PostgreSQL's NonReservedWord).
    pub(crate) fn word(&mut self) -> Result<Name> {
        if Self::is_name(self.kind()) || Self::is_type_or_function_name(self.kind()) {
            Ok(self.take_name())
        } else {
            self.unexpected()
        }
    }

    /// Any word at all, as behind AS or a dot (PostgreSQL's ColLabel and attr_name).
    pub(crate) fn label(&mut self) -> Result<Name> {
        match self.kind() {
            TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier => {
                Ok(self.take_name())
            }
            TokenKind::Keyword(_) if !self.begins_pair() => Ok(self.take_name()),
            _ => self.unexpected(),
        }
    }

    /// Whether a token may label a column without AS (PostgreSQL's BareColLabel).
    pub(crate) fn is_bare_label(kind: TokenKind) -> bool {
        match kind {
            TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier => true,
            TokenKind::Keyword(keyword) => keyword.is_bare_label(),
            _ => false,
        }
    }

    /// Takes the current token, which is an identifier or a keyword, as a name.
    pub(crate) fn take_name(&mut self) -> Name {
        let token = self.advance();
        let text = match token.kind {
            TokenKind::Keyword(Keyword::Nchar) => Keyword::Nchar.text().into(),
            TokenKind::Keyword(_) | TokenKind::Identifier => {
                let mut text: Box<str> = token.span.of(self.text).into();
                text.make_ascii_lowercase();
                text
            }
            _ => self.string_value(token),
        };
        Name { text, span: token.span }
    }

    /// `AS name`, `name` or nothing.
    pub(crate) fn optional_alias(&mut self) -> Result<Option<Name>> {
        if self.accept_keyword(Keyword::As) || Self::is_name(self.kind()) {
            return Ok(Some(self.name()?));
        }
        Ok(None)
    }

    /// `(name, …)` or nothing (PostgreSQL's opt_name_list).
    pub(crate) fn optional_names(&mut self) -> Result<Vec<Name>> {
        if self.at_symbol(b'(') { self.parenthesised_list(Self::name) } else { Ok(Vec::new()) }
    }

    /// A name with any number of qualifiers (PostgreSQL's any_name).
    pub(crate) fn any_name(&mut self) -> Result<ObjectName> {
        let first = self.name()?;
        self.with_attributes(first)
    }

    /// The rest of a name behind its first part: `.name` as often as it comes (PostgreSQL's attrs).
    pub(crate) fn with_attributes(&mut self, first: Name) -> Result<ObjectName> {
        let mut name = ObjectName::simple(first);
        while self.accept_symbol(b'.') {
            let part = self.label()?;
            name.qualifiers.push(std::mem::replace(&mut name.name, part));
        }
        Ok(name)
    }

    /// The name of a relation: up to three parts (PostgreSQL's qualified_name).
    pub(crate) fn relation_name(&mut self) -> Result<ObjectName> {
        let first = self.name()?;
        self.relation_name_from(first)
    }

    /// The same behind its first part.
    pub(crate) fn relation_name_from(&mut self, first: Name) -> Result<ObjectName> {
        let mut name = ObjectName::simple(first);
        while self.at_symbol(b'.') && self.peek(1) != TokenKind::Symbol(b'*') {
            self.advance();
            let part = self.label()?;
            name.qualifiers.push(std::mem::replace(&mut name.name, part));
        }
        self.as_relation_name(name)
    }

    /// A name that has at most three parts.
    pub(super) fn as_relation_name(&mut self, name: ObjectName) -> Result<ObjectName> {
        if self.at_symbol(b'.') || self.at_symbol(b'[') {
            while self.optional_accessor()?.is_some() {}
            return self.unexpected();
        }
        if name.qualifiers.len() > 2 {
            let parts: Vec<&str> = name.parts().map(|part| &*part.text).collect();
            return self.error(
                SqlState::SYNTAX_ERROR,
                format!("improper qualified name (too many dotted names): {}", parts.join(".")),
                name.span().start,
            );
        }
        Ok(name)
    }

    /// The name of a function (PostgreSQL's func_name).
    pub(crate) fn function_name(&mut self) -> Result<ObjectName> {
        let is_simple = Self::is_type_or_function_name(self.kind());
        if !Self::is_name(self.kind()) {
            return Ok(ObjectName::simple(self.type_or_function_name()?));
        }
        let name = self.any_name()?;
        if self.at_symbol(b'[') {
            while self.optional_accessor()?.is_some() {}
            return self.unexpected();
        }
        if !is_simple && name.qualifiers.is_empty() { self.unexpected() } else { Ok(name) }
    }
}
