//! SET, RESET, SHOW, SET CONSTRAINTS, DISCARD, LISTEN, NOTIFY, UNLISTEN, CALL.

use super::Parser;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{
    CallProcedure, Discard, IntervalFields, Name, Notify, ObjectName, Reset, Set, SetConstraints, Setting,
    SettingValue, Show, Statement, Unlisten, UtilityValue,
};
use firn_base::{Result, SqlState};

/// A setting that has words of its own.
fn setting_name(text: &str) -> ObjectName {
    ObjectName::simple(Name::new(text))
}

impl Parser<'_> {
    pub(super) fn set(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Set)?;
        let mut is_local = false;
        if !self.begins_generic_setting() {
            if self.at_keyword(Keyword::Constraints) {
                return self.set_constraints();
            }
            is_local = self.accept_keyword(Keyword::Local);
            if !is_local
                && self.at_keyword(Keyword::Session)
                && !matches!(
                    self.peek(1),
                    TokenKind::Keyword(Keyword::Characteristics | Keyword::Authorization)
                )
            {
                self.advance();
            } else if !is_local
                && self.at_keyword(Keyword::Session)
                && self.next_is(Keyword::Characteristics)
                && matches!(
                    self.peek(2),
                    TokenKind::Keyword(Keyword::To | Keyword::From) | TokenKind::Symbol(b'=' | b'.')
                )
            {
                // `SET SESSION characteristics = …`
                self.advance();
            }
        }
        let setting = self.setting(true)?;
        Ok(Statement::Set(Box::new(Set { is_local, setting })))
    }

    /// Whether the name of a setting stands here, not a word of its own.
    fn begins_generic_setting(&mut self) -> bool {
        Self::is_name(self.kind())
            && matches!(
                self.peek(1),
                TokenKind::Keyword(Keyword::To | Keyword::From) | TokenKind::Symbol(b'=' | b'.')
            )
    }

    /// What SET sets (PostgreSQL's set_rest, or set_rest_more without modes of transactions).
    pub(super) fn setting(&mut self, may_be_modes: bool) -> Result<Setting> {
        let one = |name: &str, value| Setting::Values { name: setting_name(name), values: vec![value] };
        let word = |text: Box<str>| SettingValue::Value(UtilityValue::Word(text));
        if self.begins_generic_setting() {
            return self.generic_setting();
        }
        let Some(keyword) = self.keyword() else { return self.generic_setting() };
        match keyword {
            Keyword::Transaction => {
                self.advance();
                if self.accept_keyword(Keyword::Snapshot) {
                    return Ok(Setting::Snapshot(self.string()?));
                }
                if !may_be_modes {
                    return self.unexpected();
                }
                Ok(Setting::Transaction(self.transaction_mode_list()?))
            }
            Keyword::Session => {
                self.advance();
                if may_be_modes && self.accept_keyword(Keyword::Characteristics) {
                    self.expect_keywords(&[Keyword::As, Keyword::Transaction])?;
                    return Ok(Setting::SessionCharacteristics(self.transaction_mode_list()?));
                }
                self.expect_keyword(Keyword::Authorization)?;
                if self.accept_keyword(Keyword::Default) {
                    return Ok(Setting::Default(setting_name("session_authorization")));
                }
                Ok(one("session_authorization", word(self.word_or_string()?)))
            }
            Keyword::Time => {
                self.expect_keywords(&[Keyword::Time, Keyword::Zone])?;
                if self.accept_keyword(Keyword::Default) || self.accept_keyword(Keyword::Local) {
                    return Ok(Setting::Default(setting_name("timezone")));
                }
                Ok(one("timezone", self.zone()?))
            }
            Keyword::Catalog => {
                let at = self.current.span.end;
                self.advance();
                let at = if self.kind().is_string() { self.start() } else { at };
                self.string()?;
                let message = "current database cannot be changed";
                self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at)
            }
            Keyword::Schema => {
                self.advance();
                Ok(one("search_path", word(self.string()?)))
            }
            Keyword::Names => {
                self.advance();
                if self.kind().is_string() {
                    return Ok(one("client_encoding", word(self.string()?)));
                }
                self.accept_keyword(Keyword::Default);
                Ok(Setting::Default(setting_name("client_encoding")))
            }
            Keyword::Role => {
                self.advance();
                Ok(one("role", word(self.word_or_string()?)))
            }
            Keyword::Xml => {
                self.expect_keywords(&[Keyword::Xml, Keyword::Option])?;
                let value = if self.accept_keyword(Keyword::Document) {
                    "document"
                } else {
                    self.expect_keyword(Keyword::Content)?;
                    "content"
                };
                Ok(one("xmloption", word(value.into())))
            }
            _ => self.generic_setting(),
        }
    }

    fn transaction_mode_list(&mut self) -> Result<Vec<crate::tree::TransactionMode>> {
        let modes = self.optional_transaction_modes()?;
        if modes.is_empty() { self.unexpected() } else { Ok(modes) }
    }

    /// A word or a string (PostgreSQL's NonReservedWord_or_Sconst).
    pub(super) fn word_or_string(&mut self) -> Result<Box<str>> {
        if self.kind().is_string() { self.string() } else { Ok(self.word()?.text) }
    }

    /// The value of TIME ZONE but DEFAULT and LOCAL.
    fn zone(&mut self) -> Result<SettingValue> {
        match self.kind() {
            TokenKind::Keyword(Keyword::Interval) => {
                self.advance();
                if self.at_symbol(b'(') {
                    let precision = self.optional_parenthesised_integer()?;
                    return Ok(SettingValue::Interval { value: self.string()?, fields: None, precision });
                }
                let value = self.string()?;
                let at = self.start();
                let (fields, _) = self.optional_interval_fields()?;
                use IntervalFields::*;
                if !matches!(fields, None | Some(Hour | Minute | HourToMinute)) {
                    let message = "time zone interval must be HOUR or HOUR TO MINUTE";
                    return self.error(SqlState::SYNTAX_ERROR, message, at);
                }
                Ok(SettingValue::Interval { value, fields, precision: None })
            }
            kind if kind.is_string() => Ok(SettingValue::Value(UtilityValue::Word(self.string()?))),
            TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier => {
                Ok(SettingValue::Value(UtilityValue::Word(self.take_name().text)))
            }
            _ => Ok(SettingValue::Value(UtilityValue::Number(self.number()?))),
        }
    }

    /// The name of a setting (PostgreSQL's var_name).
    pub(super) fn setting_name(&mut self) -> Result<ObjectName> {
        let mut name = ObjectName::simple(self.name()?);
        while self.accept_symbol(b'.') {
            let part = self.name()?;
            name.qualifiers.push(std::mem::replace(&mut name.name, part));
        }
        Ok(name)
    }

    fn generic_setting(&mut self) -> Result<Setting> {
        let name = self.setting_name()?;
        if self.accept_keyword(Keyword::From) {
            self.expect_keyword(Keyword::Current)?;
            return Ok(Setting::FromCurrent(name));
        }
        self.setting_value(name)
    }

    /// `TO values` or `= values`, behind the name.
    pub(super) fn setting_value(&mut self, name: ObjectName) -> Result<Setting> {
        if !self.accept_symbol(b'=') {
            self.expect_keyword(Keyword::To)?;
        }
        if self.accept_keyword(Keyword::Default) {
            return Ok(Setting::Default(name));
        }
        let values = self.list(|parser| Ok(SettingValue::Value(parser.utility_value()?)))?;
        Ok(Setting::Values { name, values })
    }

    fn set_constraints(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Constraints)?;
        let constraints =
            if self.accept_keyword(Keyword::All) { Vec::new() } else { self.list(Self::relation_name)? };
        let deferred = self.accept_keyword(Keyword::Deferred);
        if !deferred {
            self.expect_keyword(Keyword::Immediate)?;
        }
        Ok(Statement::SetConstraints(Box::new(SetConstraints { constraints, deferred })))
    }

    pub(super) fn reset(&mut self) -> Result<Statement> {
        Ok(Statement::Reset(Box::new(self.reset_rest()?)))
    }

    /// RESET (PostgreSQL's VariableResetStmt).
    pub(super) fn reset_rest(&mut self) -> Result<Reset> {
        self.expect_keyword(Keyword::Reset)?;
        Ok(Reset { name: self.shown_setting()? })
    }

    pub(super) fn show(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Show)?;
        Ok(Statement::Show(Box::new(Show { name: self.shown_setting()? })))
    }

    /// ALL, which is None, a name, or words that stand for one.
    fn shown_setting(&mut self) -> Result<Option<ObjectName>> {
        let next = self.peek(1);
        let name = match self.keyword() {
            Some(Keyword::All) => {
                self.advance();
                return Ok(None);
            }
            Some(Keyword::Time) if next == TokenKind::Keyword(Keyword::Zone) => {
                self.advance();
                "timezone"
            }
            Some(Keyword::Transaction) if next == TokenKind::Keyword(Keyword::Isolation) => {
                self.advance();
                self.advance();
                if !self.at_keyword(Keyword::Level) {
                    return self.unexpected();
                }
                "transaction_isolation"
            }
            Some(Keyword::Session) if next == TokenKind::Keyword(Keyword::Authorization) => {
                self.advance();
                "session_authorization"
            }
            _ => return Ok(Some(self.setting_name()?)),
        };
        self.advance();
        Ok(Some(setting_name(name)))
    }

    pub(super) fn discard(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Discard)?;
        let discard = match self.keyword() {
            Some(Keyword::All) => Discard::All,
            Some(Keyword::Temp | Keyword::Temporary) => Discard::Temporary,
            Some(Keyword::Plans) => Discard::Plans,
            Some(Keyword::Sequences) => Discard::Sequences,
            _ => return self.unexpected(),
        };
        self.advance();
        Ok(Statement::Discard(discard))
    }

    pub(super) fn notify(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Notify)?;
        let channel = self.name()?;
        let payload = if self.accept_symbol(b',') { Some(self.string()?) } else { None };
        Ok(Statement::Notify(Box::new(Notify { channel, payload })))
    }

    pub(super) fn unlisten(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Unlisten)?;
        let channel = if self.accept_symbol(b'*') { None } else { Some(self.name()?) };
        Ok(Statement::Unlisten(Unlisten { channel }))
    }

    /// CALL and a function with its arguments (PostgreSQL's func_application).
    pub(super) fn call_procedure(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Call)?;
        let start = self.start();
        let name = self.function_name()?;
        let call = self.call(name, start, false)?;
        Ok(Statement::Call(Box::new(CallProcedure { call })))
    }
}
