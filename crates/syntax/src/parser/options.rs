//! Lists of options, which utility statements share.

use super::Parser;
use crate::keyword::{Category, Keyword};
use crate::token::TokenKind;
use crate::tree::{Name, OptionValue, RelOption, UtilityOption, UtilityValue};
use firn_base::Result;

impl Parser<'_> {
    /// `name [value], …` in parentheses (PostgreSQL's utility_option_list).
    pub(crate) fn utility_options(&mut self) -> Result<Vec<UtilityOption>> {
        self.parenthesised_list(|parser| {
            let name = match parser.keyword() {
                Some(Keyword::Analyze | Keyword::Analyse) => {
                    let name = parser.take_name();
                    Name { text: "analyze".into(), ..name }
                }
                _ => parser.word()?,
            };
            let value = match parser.kind() {
                TokenKind::Symbol(b',' | b')') => None,
                _ => Some(parser.utility_value()?),
            };
            Ok(UtilityOption { name, value })
        })
    }

    /// A word, a string or a number (PostgreSQL's opt_boolean_or_string and NumericOnly).
    pub(crate) fn utility_value(&mut self) -> Result<UtilityValue> {
        Ok(match self.kind() {
            kind if kind.is_string() => UtilityValue::Word(self.string()?),
            TokenKind::Keyword(Keyword::True | Keyword::False | Keyword::On) => {
                UtilityValue::Word(self.take_name().text)
            }
            TokenKind::Integer | TokenKind::Number | TokenKind::Symbol(b'+' | b'-') => {
                UtilityValue::Number(self.number()?)
            }
            _ => UtilityValue::Word(self.word()?.text),
        })
    }

    /// `[namespace.]name [= value], …` in parentheses (PostgreSQL's reloptions).
    pub(crate) fn rel_options(&mut self) -> Result<Vec<RelOption>> {
        self.parenthesised_list(|parser| {
            let mut name = parser.label()?;
            let mut namespace = None;
            if parser.accept_symbol(b'.') {
                namespace = Some(std::mem::replace(&mut name, parser.label()?));
            }
            let value = if parser.accept_symbol(b'=') { Some(parser.option_value()?) } else { None };
            Ok(RelOption { namespace, name, value })
        })
    }

    /// `name [= value], …` in parentheses (PostgreSQL's definition).
    pub(crate) fn definition(&mut self) -> Result<Vec<RelOption>> {
        self.parenthesised_list(|parser| {
            let name = parser.label()?;
            let value = if parser.accept_symbol(b'=') { Some(parser.option_value()?) } else { None };
            Ok(RelOption { namespace: None, name, value })
        })
    }

    /// Nearly anything (PostgreSQL's def_arg).
    pub(crate) fn option_value(&mut self) -> Result<OptionValue> {
        match self.kind() {
            kind if kind.is_string() => Ok(OptionValue::String(self.string()?)),
            TokenKind::Integer | TokenKind::Number => Ok(OptionValue::Number(self.number()?)),
            TokenKind::Symbol(b'+' | b'-')
                if matches!(self.peek(1), TokenKind::Integer | TokenKind::Number) =>
            {
                Ok(OptionValue::Number(self.number()?))
            }
            TokenKind::Keyword(keyword)
                if keyword == Keyword::None || keyword.category() == Category::Reserved =>
            {
                Ok(OptionValue::Word(self.take_name()))
            }
            TokenKind::Keyword(Keyword::Operator) if self.peek(1) == TokenKind::Symbol(b'(') => {
                Ok(OptionValue::Operator(self.operator()?))
            }
            kind if Self::is_operator(kind) => Ok(OptionValue::Operator(self.any_operator()?)),
            _ => self.function_type(),
        }
    }
}
