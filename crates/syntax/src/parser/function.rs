//! CREATE FUNCTION and its relatives, triggers, rules, languages, casts.

use super::Parser;
use super::constraint::Allowed;
use super::record::Recorder;
use crate::keyword::Keyword;
use crate::lexer::error_near;
use crate::token::TokenKind;
use crate::tree::{AggregateParameters, ConstraintAttributes, ObjectType, ParameterMode, Part, Statement};
use firn_base::{Result, SqlState};

impl Parser<'_> {
    /// What may stand behind OR REPLACE but views; without OR REPLACE as well.
    pub(super) fn create_replaceable(&mut self, or_replace: bool) -> Result<Statement> {
        let words: &[Keyword] =
            if or_replace { &[Keyword::Create, Keyword::Or, Keyword::Replace] } else { &[Keyword::Create] };
        match self.keyword() {
            Some(Keyword::Function) => self.record("CREATE FUNCTION", words, |r| r.create_function()),
            Some(Keyword::Procedure) => self.record("CREATE PROCEDURE", words, |r| r.create_function()),
            Some(Keyword::Aggregate) => self.record("CREATE AGGREGATE", words, |r| r.create_aggregate()),
            Some(Keyword::Trusted | Keyword::Procedural | Keyword::Language) => {
                self.record("CREATE LANGUAGE", words, |r| r.create_language())
            }
            Some(Keyword::Rule) => self.record("CREATE RULE", words, |r| r.create_rule()),
            Some(Keyword::Transform) => self.record("CREATE TRANSFORM", words, |r| r.create_transform()),
            Some(Keyword::Trigger) => self.record("CREATE TRIGGER", words, |r| r.create_trigger()),
            Some(Keyword::Constraint) => {
                self.record("CREATE TRIGGER", words, |r| r.create_constraint_trigger(or_replace))
            }
            _ => self.unexpected(),
        }
    }
}

impl Recorder<'_, '_> {
    fn create_function(&mut self) -> Result<()> {
        let is_function = self.one_of(&[Keyword::Function, Keyword::Procedure])? == Keyword::Function;
        self.function_name()?;
        let mut has_output = false;
        self.parenthesised(|r| {
            if r.parser.at_symbol(b')') {
                return Ok(());
            }
            r.list(|r| {
                let mut parameter = r.parser.parameter()?;
                has_output |= matches!(parameter.mode, ParameterMode::Out | ParameterMode::InOut);
                if r.parser.accept_keyword(Keyword::Default) || r.parser.accept_symbol(b'=') {
                    parameter.default = Some(r.parser.expr()?);
                }
                r.push(Part::Parameter(Box::new(parameter)));
                Ok(())
            })
        })?;
        if is_function && self.at(Keyword::Returns) && !self.next_is(Keyword::Null) {
            self.word(Keyword::Returns)?;
            if self.optional(Keyword::Table) {
                self.parenthesised(|r| {
                    r.list(|r| {
                        let name = r.parser.type_or_function_name()?;
                        r.push(Part::Name(name));
                        r.function_type()
                    })
                })?;
                if has_output {
                    let message = "OUT and INOUT arguments aren't allowed in TABLE functions";
                    return self.parser.error_somewhere(SqlState::SYNTAX_ERROR, message);
                }
            } else {
                self.function_type()?;
            }
        }
        loop {
            match self.parser.keyword() {
                Some(Keyword::As) => {
                    self.word(Keyword::As)?;
                    self.string()?;
                    if self.parser.at_symbol(b',') {
                        self.sign(b',')?;
                        self.string()?;
                    }
                }
                Some(Keyword::Language) => {
                    self.word(Keyword::Language)?;
                    self.word_or_string()?;
                }
                Some(Keyword::Transform) => {
                    self.word(Keyword::Transform)?;
                    self.list(|r| {
                        r.words(&[Keyword::For, Keyword::Type])?;
                        r.type_name()
                    })?;
                }
                Some(Keyword::Window) => self.word(Keyword::Window)?,
                _ if self.optional_function_option()? => {}
                _ => break,
            }
        }
        self.optional_body()
    }

    /// RETURN, BEGIN ATOMIC or nothing.
    fn optional_body(&mut self) -> Result<()> {
        if self.optional(Keyword::Return) {
            return self.expr();
        }
        if !self.optional(Keyword::Begin) {
            return Ok(());
        }
        self.word(Keyword::Atomic)?;
        while !self.at(Keyword::End) {
            if self.optional(Keyword::Return) {
                self.expr()?;
            } else if !self.parser.at_symbol(b';') {
                // The functions between two statements take the stack of several levels.
                self.parser.enter()?;
                self.parser.enter()?;
                let statement = self.parser.statement()?;
                self.parser.leave();
                self.parser.leave();
                self.push(Part::Statement(Box::new(statement)));
            }
            self.sign(b';')?;
        }
        self.word(Keyword::End)
    }

    /// An option that ALTER FUNCTION has as well (PostgreSQL's common_func_opt_item).
    pub(super) fn optional_function_option(&mut self) -> Result<bool> {
        match self.parser.keyword() {
            Some(Keyword::Called) => {
                self.words(&[Keyword::Called, Keyword::On, Keyword::Null, Keyword::Input])?
            }
            Some(Keyword::Returns) => {
                self.words(&[Keyword::Returns, Keyword::Null, Keyword::On, Keyword::Null, Keyword::Input])?
            }
            Some(
                keyword @ (Keyword::Strict
                | Keyword::Immutable
                | Keyword::Stable
                | Keyword::Volatile
                | Keyword::Leakproof),
            ) => self.word(keyword)?,
            Some(Keyword::External | Keyword::Security) => {
                self.noise(Keyword::External);
                self.word(Keyword::Security)?;
                self.one_of(&[Keyword::Definer, Keyword::Invoker])?;
            }
            Some(Keyword::Not) if !self.parser.begins_pair() => {
                self.words(&[Keyword::Not, Keyword::Leakproof])?
            }
            Some(keyword @ (Keyword::Cost | Keyword::Rows)) => {
                self.word(keyword)?;
                self.number()?;
            }
            Some(Keyword::Support) => {
                self.word(Keyword::Support)?;
                self.any_name()?;
            }
            Some(Keyword::Set | Keyword::Reset) => self.set_or_reset(false)?,
            Some(Keyword::Parallel) => {
                self.word(Keyword::Parallel)?;
                self.name()?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn function_type(&mut self) -> Result<()> {
        let type_name = self.parser.function_type()?;
        self.push(Part::OptionValue(Box::new(type_name)));
        Ok(())
    }

    fn create_aggregate(&mut self) -> Result<()> {
        self.word(Keyword::Aggregate)?;
        self.function_name()?;
        // In the old form everything is in one pair of parentheses.
        let is_old = matches!(
            self.parser.peek(1),
            TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier
        ) && self.parser.peek(2) == TokenKind::Symbol(b'=');
        if is_old {
            self.parenthesised(|r| {
                r.list(|r| {
                    if !matches!(
                        r.parser.kind(),
                        TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier
                    ) {
                        return r.unexpected();
                    }
                    let name = r.parser.take_name();
                    r.push(Part::Name(name));
                    r.sign(b'=')?;
                    let value = r.parser.option_value()?;
                    r.push(Part::OptionValue(Box::new(value)));
                    Ok(())
                })
            })?;
            return Ok(());
        }
        let parameters: AggregateParameters = self.parser.aggregate_parameters()?;
        self.push(Part::AggregateParameters(Box::new(parameters)));
        self.definition()
    }

    fn create_language(&mut self) -> Result<()> {
        self.optional(Keyword::Trusted);
        self.noise(Keyword::Procedural);
        self.word(Keyword::Language)?;
        self.name()?;
        if self.optional(Keyword::Handler) {
            self.any_name()?;
            if self.optional(Keyword::Inline) {
                self.any_name()?;
            }
            if self.optional(Keyword::Validator) {
                self.any_name()?;
            } else if self.parser.accept_keyword(Keyword::No) {
                self.parser.expect_keyword(Keyword::Validator)?;
            }
        }
        Ok(())
    }

    fn create_rule(&mut self) -> Result<()> {
        self.word(Keyword::Rule)?;
        self.name()?;
        self.words(&[Keyword::As, Keyword::On])?;
        self.one_of(&[Keyword::Select, Keyword::Update, Keyword::Delete, Keyword::Insert])?;
        self.word(Keyword::To)?;
        self.relation_name()?;
        if self.optional(Keyword::Where) {
            self.expr()?;
        }
        self.word(Keyword::Do)?;
        if !self.optional(Keyword::Instead) {
            self.noise(Keyword::Also);
        }
        if self.optional(Keyword::Nothing) {
            return Ok(());
        }
        if !self.parser.at_symbol(b'(') || self.parser.parenthesis_begins_query() {
            return self.rule_action();
        }
        self.parenthesised(|r| {
            loop {
                if !r.parser.at_symbol(b';') && !r.parser.at_symbol(b')') {
                    r.rule_action()?;
                }
                if !r.parser.at_symbol(b';') {
                    return Ok(());
                }
                r.sign(b';')?;
            }
        })
    }

    fn rule_action(&mut self) -> Result<()> {
        let statement = match self.parser.keyword() {
            Some(Keyword::Notify) => self.parser.notify()?,
            Some(Keyword::Merge) => return self.unexpected(),
            _ => self.parser.preparable()?,
        };
        self.push(Part::Statement(Box::new(statement)));
        Ok(())
    }

    fn create_transform(&mut self) -> Result<()> {
        self.words(&[Keyword::Transform, Keyword::For])?;
        self.type_name()?;
        self.word(Keyword::Language)?;
        self.name()?;
        self.parenthesised(|r| {
            let first = r.one_of(&[Keyword::From, Keyword::To])?;
            r.words(&[Keyword::Sql, Keyword::With, Keyword::Function])?;
            r.function()?;
            if r.parser.at_symbol(b',') {
                r.sign(b',')?;
                r.word(if first == Keyword::From { Keyword::To } else { Keyword::From })?;
                r.words(&[Keyword::Sql, Keyword::With, Keyword::Function])?;
                r.function()?;
            }
            Ok(())
        })
    }

    // Triggers.

    fn trigger_events(&mut self) -> Result<()> {
        let mut seen = Vec::new();
        loop {
            let span = self.parser.current.span;
            let event =
                self.one_of(&[Keyword::Insert, Keyword::Delete, Keyword::Update, Keyword::Truncate])?;
            if event == Keyword::Update && self.optional(Keyword::Of) {
                self.names()?;
            }
            if seen.contains(&event) {
                // PostgreSQL has read the token behind UPDATE, which OF may be.
                let message = "duplicate trigger events specified";
                return Err(if event == Keyword::Update {
                    self.parser.mistake(message)
                } else {
                    error_near(self.parser.text, message, span)
                });
            }
            seen.push(event);
            if !self.optional(Keyword::Or) {
                return Ok(());
            }
        }
    }

    fn trigger_function(&mut self) -> Result<()> {
        if self.optional(Keyword::When) {
            self.parenthesised_expr()?;
        }
        self.word(Keyword::Execute)?;
        self.function_or_procedure()?;
        self.function_name()?;
        self.parenthesised(|r| {
            if r.parser.at_symbol(b')') {
                return Ok(());
            }
            // PostgreSQL's grammar takes a comma before the first argument.
            r.parser.accept_symbol(b',');
            r.list(|r| match r.parser.kind() {
                TokenKind::Integer | TokenKind::Number => {
                    let number = r.parser.number()?;
                    // A number is its text; an integer is printed anew.
                    let text = number.parse::<i32>().map_or(number, |number| number.to_string().into());
                    r.push(Part::String(text));
                    Ok(())
                }
                kind if kind.is_string() => r.string(),
                _ => {
                    let label = r.parser.label()?;
                    r.push(Part::String(label.text));
                    Ok(())
                }
            })
        })
    }

    /// FUNCTION or PROCEDURE, which mean the same.
    pub(super) fn function_or_procedure(&mut self) -> Result<()> {
        if !self.parser.accept_keyword(Keyword::Procedure) {
            self.parser.expect_keyword(Keyword::Function)?;
        }
        self.push(Part::Word(Keyword::Function));
        Ok(())
    }

    fn create_trigger(&mut self) -> Result<()> {
        self.word(Keyword::Trigger)?;
        self.name()?;
        if self.one_of(&[Keyword::Before, Keyword::After, Keyword::Instead])? == Keyword::Instead {
            self.word(Keyword::Of)?;
        }
        self.trigger_events()?;
        self.word(Keyword::On)?;
        self.relation_name()?;
        if self.optional(Keyword::Referencing) {
            loop {
                self.one_of(&[Keyword::New, Keyword::Old])?;
                self.one_of(&[Keyword::Table, Keyword::Row])?;
                self.noise(Keyword::As);
                self.name()?;
                if !matches!(self.parser.keyword(), Some(Keyword::New | Keyword::Old)) {
                    break;
                }
            }
        }
        if self.optional(Keyword::For) {
            self.noise(Keyword::Each);
            self.one_of(&[Keyword::Row, Keyword::Statement])?;
        }
        self.trigger_function()
    }

    fn create_constraint_trigger(&mut self, or_replace: bool) -> Result<()> {
        self.words(&[Keyword::Constraint, Keyword::Trigger])?;
        self.name()?;
        self.word(Keyword::After)?;
        self.trigger_events()?;
        self.word(Keyword::On)?;
        self.relation_name()?;
        if self.optional(Keyword::From) {
            self.relation_name()?;
        }
        let attributes = self.parser.constraint_attributes(Allowed::deferrable("TRIGGER"))?;
        self.constraint_attributes(attributes);
        self.words(&[Keyword::For, Keyword::Each, Keyword::Row])?;
        self.trigger_function()?;
        if or_replace {
            let message = "CREATE OR REPLACE CONSTRAINT TRIGGER is not supported";
            return self.parser.error_somewhere(SqlState::FEATURE_NOT_SUPPORTED, message);
        }
        Ok(())
    }

    fn constraint_attributes(&mut self, attributes: ConstraintAttributes) {
        if attributes.deferrable {
            self.push(Part::Word(Keyword::Deferrable));
        }
        if attributes.initially_deferred {
            self.push(Part::Word(Keyword::Initially));
            self.push(Part::Word(Keyword::Deferred));
        }
    }

    // ALTER.

    pub(super) fn alter_function(&mut self) -> Result<()> {
        if !self.optional_function_option()? {
            return self.unexpected();
        }
        while self.optional_function_option()? {}
        self.noise(Keyword::Restrict);
        Ok(())
    }

    /// AS IMPLICIT, AS ASSIGNMENT or nothing.
    fn cast_context(&mut self) -> Result<()> {
        if self.optional(Keyword::As) {
            self.one_of(&[Keyword::Implicit, Keyword::Assignment])?;
        }
        Ok(())
    }

    pub(super) fn create_cast(&mut self) -> Result<()> {
        self.word(Keyword::Cast)?;
        self.reference(ObjectType::Cast)?;
        if self.optional_words(&[Keyword::Without, Keyword::Function])? {
            return self.cast_context();
        }
        self.word(Keyword::With)?;
        if !self.optional(Keyword::Inout) {
            self.word(Keyword::Function)?;
            self.function()?;
        }
        self.cast_context()
    }
}
