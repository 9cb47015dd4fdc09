//! Constraints of columns, tables and domains.

use super::Parser;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{
    ColumnConstraint, ColumnConstraintKind, ConstraintAttributes, ConstraintIndex, ExcludeElement, KeyAction,
    Name, ObjectName, Reference, SequenceOption, TableConstraint, TableConstraintKind,
};
use firn_base::{Result, SqlState};

/// Which attributes a kind of constraint may have.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    /// How PostgreSQL names the kind in errors.
    pub kind: &'static str,
    pub deferrable: bool,
    pub not_valid: bool,
    pub no_inherit: bool,
}

impl Allowed {
    pub(super) const fn deferrable(kind: &'static str) -> Allowed {
        Allowed { kind, deferrable: true, not_valid: false, no_inherit: false }
    }
}

impl Parser<'_> {
    /// The constraints of a column or a domain, and its COLLATE (PostgreSQL's ColQualList).
    pub(super) fn column_constraints(&mut self) -> Result<(Vec<ColumnConstraint>, Option<ObjectName>)> {
        let mut constraints = Vec::new();
        let mut collation = None;
        let mut second_collation = None;
        loop {
            let start = self.start();
            if self.accept_keyword(Keyword::Collate) {
                let name = self.any_name()?;
                if collation.replace(name).is_some() {
                    second_collation.get_or_insert(start);
                }
                continue;
            }
            let Some(constraint) = self.optional_column_constraint()? else { break };
            constraints.push(constraint);
        }
        if let Some(at) = second_collation {
            return self.error(SqlState::SYNTAX_ERROR, "multiple COLLATE clauses not allowed", at);
        }
        Ok((constraints, collation))
    }

    fn optional_column_constraint(&mut self) -> Result<Option<ColumnConstraint>> {
        let start = self.start();
        let name = if self.accept_keyword(Keyword::Constraint) { Some(self.name()?) } else { None };
        let kind = self.optional_column_constraint_kind(name.is_some())?;
        match kind {
            Some(kind) => Ok(Some(ColumnConstraint { span: self.span_from(start), name, kind })),
            None if name.is_some() => self.unexpected(),
            None => Ok(None),
        }
    }

    fn optional_column_constraint_kind(&mut self, has_name: bool) -> Result<Option<ColumnConstraintKind>> {
        use ColumnConstraintKind::*;
        let Some(keyword) = self.keyword() else { return Ok(None) };
        let kind = match keyword {
            Keyword::Not if !self.begins_pair() => {
                self.advance();
                if !has_name && self.accept_keyword(Keyword::Deferrable) {
                    return Ok(Some(NotDeferrable));
                }
                self.expect_keyword(Keyword::Null)?;
                NotNull
            }
            Keyword::Null => {
                self.advance();
                Null
            }
            Keyword::Unique => {
                self.advance();
                let nulls_not_distinct = self.optional_nulls_not_distinct()?;
                Unique { nulls_not_distinct, index: self.constraint_index()? }
            }
            Keyword::Primary => {
                self.expect_keywords(&[Keyword::Primary, Keyword::Key])?;
                PrimaryKey(self.constraint_index()?)
            }
            Keyword::Check => {
                self.advance();
                let condition = self.parenthesised_expr()?;
                let no_inherit = self.accept_keyword(Keyword::No);
                if no_inherit {
                    self.expect_keyword(Keyword::Inherit)?;
                }
                Check { condition, no_inherit }
            }
            Keyword::Default => {
                self.advance();
                Default(self.restricted_expr()?)
            }
            Keyword::Generated => self.generated()?,
            Keyword::References => References(self.reference()?),
            Keyword::Deferrable if !has_name => {
                self.advance();
                Deferrable
            }
            Keyword::Initially if !has_name => {
                self.advance();
                if self.accept_keyword(Keyword::Deferred) {
                    InitiallyDeferred
                } else {
                    self.expect_keyword(Keyword::Immediate)?;
                    InitiallyImmediate
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(kind))
    }

    /// `(expr)`
    pub(super) fn parenthesised_expr(&mut self) -> Result<crate::tree::Expr> {
        self.expect_symbol(b'(')?;
        let expr = self.expr()?;
        self.expect_symbol(b')')?;
        Ok(expr)
    }

    fn generated(&mut self) -> Result<ColumnConstraintKind> {
        self.expect_keyword(Keyword::Generated)?;
        let when_at = self.start();
        let always = self.generated_when()?;
        self.expect_keyword(Keyword::As)?;
        if self.accept_keyword(Keyword::Identity) {
            return Ok(ColumnConstraintKind::Identity { always, options: self.optional_identity_options()? });
        }
        let value = self.parenthesised_expr()?;
        self.expect_keyword(Keyword::Stored)?;
        if !always {
            let message = "for a generated column, GENERATED ALWAYS must be specified";
            return self.error(SqlState::SYNTAX_ERROR, message, when_at);
        }
        Ok(ColumnConstraintKind::Generated(value))
    }

    /// ALWAYS or BY DEFAULT; whether it is ALWAYS.
    pub(super) fn generated_when(&mut self) -> Result<bool> {
        if self.accept_keyword(Keyword::Always) {
            return Ok(true);
        }
        self.expect_keywords(&[Keyword::By, Keyword::Default])?;
        Ok(false)
    }

    /// Options of a sequence in parentheses, or nothing.
    pub(super) fn optional_identity_options(&mut self) -> Result<Vec<SequenceOption>> {
        if !self.accept_symbol(b'(') {
            return Ok(Vec::new());
        }
        let options = self.sequence_options()?;
        if options.is_empty() {
            return self.unexpected();
        }
        self.expect_symbol(b')')?;
        Ok(options)
    }

    /// NULLS DISTINCT, NULLS NOT DISTINCT or nothing.
    pub(super) fn optional_nulls_not_distinct(&mut self) -> Result<bool> {
        if self.begins_pair() || !self.accept_keyword(Keyword::Nulls) {
            return Ok(false);
        }
        let is_not = self.accept_keyword(Keyword::Not);
        self.expect_keyword(Keyword::Distinct)?;
        Ok(is_not)
    }

    /// WITH and USING INDEX TABLESPACE, each or none.
    fn constraint_index(&mut self) -> Result<ConstraintIndex> {
        let mut index = ConstraintIndex::default();
        if !self.begins_pair() && self.accept_keyword(Keyword::With) {
            index.options = self.definition()?;
        }
        if self.accept_keyword(Keyword::Using) {
            self.expect_keywords(&[Keyword::Index, Keyword::Tablespace])?;
            index.tablespace = Some(self.name()?);
        }
        Ok(index)
    }

    fn reference(&mut self) -> Result<Reference> {
        self.expect_keyword(Keyword::References)?;
        let table = self.relation_name()?;
        let columns = self.optional_names()?;
        let mut match_full = false;
        let match_at = self.start();
        if self.accept_keyword(Keyword::Match) {
            match self.keyword() {
                Some(Keyword::Full) => match_full = true,
                Some(Keyword::Simple) => {}
                Some(Keyword::Partial) => {
                    self.advance();
                    let message = "MATCH PARTIAL not yet implemented";
                    return self.error(SqlState::FEATURE_NOT_SUPPORTED, message, match_at);
                }
                _ => return self.unexpected(),
            }
            self.advance();
        }
        let (mut on_update, mut on_delete) = (None, None);
        while self.at_keyword(Keyword::On) {
            let at = self.start();
            self.advance();
            if on_update.is_none() && self.accept_keyword(Keyword::Update) {
                let action = self.key_action()?;
                if let KeyAction::SetNull(columns) | KeyAction::SetDefault(columns) = &action
                    && !columns.is_empty()
                {
                    let what =
                        if matches!(action, KeyAction::SetNull(_)) { "SET NULL" } else { "SET DEFAULT" };
                    let message =
                        format!("a column list with {what} is only supported for ON DELETE actions");
                    return self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at);
                }
                on_update = Some(action);
            } else if on_delete.is_none() && self.accept_keyword(Keyword::Delete) {
                on_delete = Some(self.key_action()?);
            } else {
                return self.unexpected();
            }
        }
        Ok(Reference {
            table,
            columns,
            match_full,
            on_update: on_update.unwrap_or(KeyAction::NoAction),
            on_delete: on_delete.unwrap_or(KeyAction::NoAction),
        })
    }

    fn key_action(&mut self) -> Result<KeyAction> {
        match self.keyword() {
            Some(Keyword::No) => {
                self.expect_keywords(&[Keyword::No, Keyword::Action])?;
                Ok(KeyAction::NoAction)
            }
            Some(Keyword::Restrict) => {
                self.advance();
                Ok(KeyAction::Restrict)
            }
            Some(Keyword::Cascade) => {
                self.advance();
                Ok(KeyAction::Cascade)
            }
            _ => {
                self.expect_keyword(Keyword::Set)?;
                if self.accept_keyword(Keyword::Null) {
                    return Ok(KeyAction::SetNull(self.optional_names()?));
                }
                self.expect_keyword(Keyword::Default)?;
                Ok(KeyAction::SetDefault(self.optional_names()?))
            }
        }
    }

    // Constraints of tables.

    /// Whether a constraint of a table begins here, not a column.
    pub(super) fn begins_table_constraint(&mut self) -> bool {
        match self.keyword() {
            Some(
                Keyword::Constraint | Keyword::Check | Keyword::Unique | Keyword::Primary | Keyword::Foreign,
            ) => true,
            Some(Keyword::Exclude) => {
                matches!(self.peek(1), TokenKind::Symbol(b'(') | TokenKind::Keyword(Keyword::Using))
            }
            _ => false,
        }
    }

    /// A constraint of a table or a domain (PostgreSQL's TableConstraint).
    pub(super) fn table_constraint(&mut self) -> Result<TableConstraint> {
        let start = self.start();
        let name = if self.accept_keyword(Keyword::Constraint) { Some(self.name()?) } else { None };
        let (kind, allowed) = match self.keyword() {
            Some(Keyword::Check) => {
                self.advance();
                let allowed = Allowed { kind: "CHECK", deferrable: false, not_valid: true, no_inherit: true };
                (TableConstraintKind::Check(self.parenthesised_expr()?), allowed)
            }
            Some(Keyword::Unique) => {
                self.advance();
                (self.unique_rest(false)?, Allowed::deferrable("UNIQUE"))
            }
            Some(Keyword::Primary) => {
                self.expect_keywords(&[Keyword::Primary, Keyword::Key])?;
                (self.unique_rest(true)?, Allowed::deferrable("PRIMARY KEY"))
            }
            Some(Keyword::Exclude) => (self.exclude()?, Allowed::deferrable("EXCLUDE")),
            _ => {
                self.expect_keywords(&[Keyword::Foreign, Keyword::Key])?;
                let columns = self.parenthesised_list(Self::name)?;
                let reference = self.reference()?;
                let allowed = Allowed { not_valid: true, ..Allowed::deferrable("FOREIGN KEY") };
                (TableConstraintKind::ForeignKey { columns, reference }, allowed)
            }
        };
        let attributes = self.constraint_attributes(allowed)?;
        Ok(TableConstraint { span: self.span_from(start), name, kind, attributes })
    }

    fn unique_rest(&mut self, is_primary: bool) -> Result<TableConstraintKind> {
        let mut nulls_not_distinct = false;
        if !is_primary && self.at_keyword(Keyword::Nulls) {
            nulls_not_distinct = self.optional_nulls_not_distinct()?;
        } else if self.accept_keyword(Keyword::Using) {
            self.expect_keyword(Keyword::Index)?;
            return Ok(TableConstraintKind::UsingIndex { is_primary, index: self.name()? });
        }
        let columns = self.parenthesised_list(Self::name)?;
        let include = self.optional_include_names()?;
        let index = self.constraint_index()?;
        Ok(TableConstraintKind::Unique { is_primary, nulls_not_distinct, columns, include, index })
    }

    fn optional_include_names(&mut self) -> Result<Vec<Name>> {
        if self.accept_keyword(Keyword::Include) {
            self.parenthesised_list(Self::name)
        } else {
            Ok(Vec::new())
        }
    }

    fn exclude(&mut self) -> Result<TableConstraintKind> {
        self.expect_keyword(Keyword::Exclude)?;
        let method = if self.accept_keyword(Keyword::Using) { Some(self.name()?) } else { None };
        let elements = self.parenthesised_list(|parser| {
            let element = parser.index_element()?;
            parser.expect_keyword(Keyword::With)?;
            Ok(ExcludeElement { element, operator: parser.exclude_operator()? })
        })?;
        let include = self.optional_include_names()?;
        let index = self.constraint_index()?;
        let condition =
            if self.accept_keyword(Keyword::Where) { Some(self.parenthesised_expr()?) } else { None };
        Ok(TableConstraintKind::Exclude { method, elements, include, index, condition })
    }

    /// `operator`, `OPERATOR(operator)`. OPERATOR may be a schema.
    fn exclude_operator(&mut self) -> Result<crate::tree::Operator> {
        if self.at_keyword(Keyword::Operator) && self.peek(1) == TokenKind::Symbol(b'(') {
            return self.operator();
        }
        self.any_operator()
    }

    /// What stands behind a constraint (PostgreSQL's ConstraintAttributeSpec).
    pub(super) fn constraint_attributes(&mut self, allowed: Allowed) -> Result<ConstraintAttributes> {
        let (mut deferrable, mut not_deferrable) = (false, false);
        let (mut deferred, mut immediate) = (false, false);
        let (mut not_valid, mut no_inherit) = (false, false);
        loop {
            let at = self.start();
            match self.keyword() {
                Some(Keyword::Deferrable) => {
                    self.advance();
                    deferrable = true;
                }
                Some(Keyword::Not) if !self.begins_pair() => {
                    self.advance();
                    if self.accept_keyword(Keyword::Valid) {
                        not_valid = true;
                    } else {
                        self.expect_keyword(Keyword::Deferrable)?;
                        not_deferrable = true;
                    }
                }
                Some(Keyword::Initially) => {
                    self.advance();
                    if self.accept_keyword(Keyword::Deferred) {
                        deferred = true;
                    } else {
                        self.expect_keyword(Keyword::Immediate)?;
                        immediate = true;
                    }
                }
                Some(Keyword::No) => {
                    self.expect_keywords(&[Keyword::No, Keyword::Inherit])?;
                    no_inherit = true;
                }
                _ => break,
            }
            if not_deferrable && deferred {
                let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
                return self.error(SqlState::SYNTAX_ERROR, message, at);
            }
            if (not_deferrable && deferrable) || (deferred && immediate) {
                return self.error(SqlState::SYNTAX_ERROR, "conflicting constraint properties", at);
            }
        }
        let refused = if (deferrable || deferred) && !allowed.deferrable {
            Some("DEFERRABLE")
        } else if not_valid && !allowed.not_valid {
            Some("NOT VALID")
        } else if no_inherit && !allowed.no_inherit {
            Some("NO INHERIT")
        } else {
            None
        };
        if let Some(refused) = refused {
            let message = format!("{} constraints cannot be marked {refused}", allowed.kind);
            return self.error_somewhere(SqlState::FEATURE_NOT_SUPPORTED, message);
        }
        Ok(ConstraintAttributes {
            deferrable: deferrable || deferred,
            initially_deferred: deferred,
            not_valid,
            no_inherit,
        })
    }
}
