//! Indexes, views, sequences, schemas; TRUNCATE, LOCK, VACUUM and their relatives; COPY.

use super::Parser;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{
    CheckOption, Cluster, Copy, CopyOption, CopySource, CopyTarget, CopyValue, CreateIndex, CreateSchema,
    CreateSequence, CreateView, LockMode, LockTable, Name, Persistence, RefreshView, Reindex, ReindexTarget,
    SequenceOption, SequenceOptionKind, Statement, StatementNode, Truncate, UtilityOption, UtilityValue,
    Vacuum, VacuumTable,
};
use firn_base::{Result, SqlState};

impl Parser<'_> {
    // Indexes.

    /// At UNIQUE or INDEX.
    pub(super) fn create_index(&mut self) -> Result<Statement> {
        let is_unique = self.accept_keyword(Keyword::Unique);
        self.expect_keyword(Keyword::Index)?;
        let concurrently = self.accept_keyword(Keyword::Concurrently);
        let if_not_exists = self.optional_if_not_exists()?;
        let name = if if_not_exists || !self.at_keyword(Keyword::On) { Some(self.name()?) } else { None };
        self.expect_keyword(Keyword::On)?;
        let table = self.relation()?;
        let method = if self.accept_keyword(Keyword::Using) { Some(self.name()?) } else { None };
        let elements = self.parenthesised_list(Self::index_element)?;
        let include = if self.accept_keyword(Keyword::Include) {
            self.parenthesised_list(Self::index_element)?
        } else {
            Vec::new()
        };
        let nulls_not_distinct = self.optional_nulls_not_distinct()?;
        let options = self.optional_with_options()?;
        let tablespace = self.optional_tablespace()?;
        let condition = self.optional_where()?;
        Ok(Statement::CreateIndex(Box::new(CreateIndex {
            is_unique,
            concurrently,
            if_not_exists,
            name,
            table,
            method,
            elements,
            include,
            nulls_not_distinct,
            options,
            tablespace,
            condition,
        })))
    }

    /// WITH (…) or nothing (PostgreSQL's opt_reloptions).
    pub(super) fn optional_with_options(&mut self) -> Result<Vec<crate::tree::RelOption>> {
        if self.begins_pair() || !self.accept_keyword(Keyword::With) {
            return Ok(Vec::new());
        }
        self.rel_options()
    }

    // Views.

    /// At RECURSIVE or VIEW.
    pub(super) fn create_view(&mut self, or_replace: bool, persistence: Persistence) -> Result<Statement> {
        let is_recursive = self.accept_keyword(Keyword::Recursive);
        self.expect_keyword(Keyword::View)?;
        let name = self.relation_name()?;
        let columns =
            if is_recursive { self.parenthesised_list(Self::name)? } else { self.optional_names()? };
        let options = self.optional_with_options()?;
        self.expect_keyword(Keyword::As)?;
        let query = self.query()?;
        let check_at = self.start();
        let mut check_option = None;
        if !self.begins_pair() && self.accept_keyword(Keyword::With) {
            check_option = Some(if self.accept_keyword(Keyword::Local) {
                CheckOption::Local
            } else {
                self.accept_keyword(Keyword::Cascaded);
                CheckOption::Cascaded
            });
            self.expect_keywords(&[Keyword::Check, Keyword::Option])?;
            if is_recursive {
                let message = "WITH CHECK OPTION not supported on recursive views";
                return self.error(SqlState::FEATURE_NOT_SUPPORTED, message, check_at);
            }
        }
        Ok(Statement::CreateView(Box::new(CreateView {
            or_replace,
            persistence,
            is_recursive,
            name,
            columns,
            options,
            query,
            check_option,
        })))
    }

    pub(super) fn refresh(&mut self) -> Result<Statement> {
        self.expect_keywords(&[Keyword::Refresh, Keyword::Materialized, Keyword::View])?;
        let concurrently = self.accept_keyword(Keyword::Concurrently);
        let name = self.relation_name()?;
        let with_no_data = self.optional_with_no_data()?;
        Ok(Statement::RefreshView(Box::new(RefreshView { concurrently, name, with_no_data })))
    }

    // Sequences.

    /// At SEQUENCE.
    pub(super) fn create_sequence(&mut self, persistence: Persistence) -> Result<Statement> {
        self.expect_keyword(Keyword::Sequence)?;
        let if_not_exists = self.optional_if_not_exists()?;
        let name = self.relation_name()?;
        let options = self.sequence_options()?;
        Ok(Statement::CreateSequence(Box::new(CreateSequence { persistence, if_not_exists, name, options })))
    }

    /// Whether an option of a sequence begins here, and no action of ALTER TABLE.
    pub(super) fn begins_sequence_option(&mut self) -> bool {
        match self.keyword() {
            Some(Keyword::No) => !matches!(
                self.peek(1),
                TokenKind::Keyword(Keyword::Inherit) | TokenKind::Keyword(Keyword::Force)
            ),
            Some(keyword) => matches!(
                keyword,
                Keyword::As
                    | Keyword::Cache
                    | Keyword::Cycle
                    | Keyword::Increment
                    | Keyword::Logged
                    | Keyword::Unlogged
                    | Keyword::Maxvalue
                    | Keyword::Minvalue
                    | Keyword::Owned
                    | Keyword::Sequence
                    | Keyword::Start
                    | Keyword::Restart
            ),
            None => false,
        }
    }

    /// Options as many as come (PostgreSQL's OptSeqOptList).
    pub(super) fn sequence_options(&mut self) -> Result<Vec<SequenceOption>> {
        let mut options = Vec::new();
        while self.begins_sequence_option() {
            options.push(self.sequence_option()?);
        }
        Ok(options)
    }

    pub(super) fn sequence_option(&mut self) -> Result<SequenceOption> {
        use SequenceOptionKind::*;
        if !self.begins_sequence_option() {
            return self.unexpected();
        }
        let start = self.start();
        let keyword = self.keyword();
        self.advance();
        let kind = match keyword {
            Some(Keyword::As) => Type(self.simple_type_name()?),
            Some(Keyword::Cache) => Cache(self.number()?),
            Some(Keyword::Cycle) => Cycle(true),
            Some(Keyword::Increment) => {
                self.accept_keyword(Keyword::By);
                Increment(self.number()?)
            }
            Some(Keyword::Logged) => Logged,
            Some(Keyword::Unlogged) => Unlogged,
            Some(Keyword::Maxvalue) => MaxValue(Some(self.number()?)),
            Some(Keyword::Minvalue) => MinValue(Some(self.number()?)),
            Some(Keyword::No) => match self.keyword() {
                Some(Keyword::Cycle) => {
                    self.advance();
                    Cycle(false)
                }
                Some(Keyword::Maxvalue) => {
                    self.advance();
                    MaxValue(None)
                }
                _ => {
                    self.expect_keyword(Keyword::Minvalue)?;
                    MinValue(None)
                }
            },
            Some(Keyword::Owned) => {
                self.expect_keyword(Keyword::By)?;
                OwnedBy(self.any_name()?)
            }
            Some(Keyword::Sequence) => {
                self.expect_keyword(Keyword::Name)?;
                SequenceName(self.any_name()?)
            }
            Some(Keyword::Start) => {
                self.optional_with_word();
                Start(self.number()?)
            }
            _ => {
                let has_with = self.optional_with_word();
                let has_number = matches!(
                    self.kind(),
                    TokenKind::Integer | TokenKind::Number | TokenKind::Symbol(b'+' | b'-')
                );
                Restart(if has_with || has_number { Some(self.number()?) } else { None })
            }
        };
        Ok(SequenceOption { span: self.span_from(start), kind })
    }

    /// WITH as a word that means nothing (PostgreSQL's opt_with).
    pub(super) fn optional_with_word(&mut self) -> bool {
        self.accept_keyword(Keyword::With)
    }

    // Schemas.

    /// At SCHEMA.
    pub(super) fn create_schema(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Schema)?;
        let if_not_exists = self.optional_if_not_exists()?;
        let name = if self.at_keyword(Keyword::Authorization) { None } else { Some(self.name()?) };
        let owner = if self.accept_keyword(Keyword::Authorization) { Some(self.role()?) } else { None };
        let mut elements = Vec::new();
        let elements_at = self.start();
        self.enter()?;
        while matches!(self.keyword(), Some(Keyword::Create | Keyword::Grant)) {
            let start = self.start();
            let statement = if self.at_keyword(Keyword::Grant) {
                self.grant_in_schema()?
            } else {
                self.advance();
                self.create_in_schema()?
            };
            elements.push(StatementNode { statement, span: self.span_from(start) });
        }
        self.leave();
        if if_not_exists && !elements.is_empty() {
            if !matches!(self.kind(), TokenKind::End | TokenKind::Symbol(b';')) {
                return self.unexpected();
            }
            let message = "CREATE SCHEMA IF NOT EXISTS cannot include schema elements";
            return self.error(SqlState::FEATURE_NOT_SUPPORTED, message, elements_at);
        }
        Ok(Statement::CreateSchema(Box::new(CreateSchema { if_not_exists, name, owner, elements })))
    }

    // Whole tables.

    pub(super) fn truncate(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Truncate)?;
        self.accept_keyword(Keyword::Table);
        let tables = self.list(Self::relation)?;
        let restart_identity = self.accept_keyword(Keyword::Restart);
        if restart_identity || self.accept_keyword(Keyword::Continue) {
            self.expect_keyword(Keyword::Identity)?;
        }
        let cascade = self.optional_cascade();
        Ok(Statement::Truncate(Box::new(Truncate { tables, restart_identity, cascade })))
    }

    pub(super) fn lock(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Lock)?;
        self.accept_keyword(Keyword::Table);
        let tables = self.list(Self::relation)?;
        let mut mode = LockMode::AccessExclusive;
        if self.accept_keyword(Keyword::In) {
            mode = self.lock_mode()?;
            self.expect_keyword(Keyword::Mode)?;
        }
        let nowait = self.accept_keyword(Keyword::Nowait);
        Ok(Statement::Lock(Box::new(LockTable { tables, mode, nowait })))
    }

    fn lock_mode(&mut self) -> Result<LockMode> {
        let keyword = self.keyword();
        Ok(match keyword {
            Some(Keyword::Access | Keyword::Row) => {
                self.advance();
                let is_row = keyword == Some(Keyword::Row);
                if self.accept_keyword(Keyword::Share) {
                    return Ok(if is_row { LockMode::RowShare } else { LockMode::AccessShare });
                }
                self.expect_keyword(Keyword::Exclusive)?;
                if is_row { LockMode::RowExclusive } else { LockMode::AccessExclusive }
            }
            Some(Keyword::Share) => {
                self.advance();
                if self.accept_keyword(Keyword::Update) {
                    self.expect_keyword(Keyword::Exclusive)?;
                    LockMode::ShareUpdateExclusive
                } else if self.accept_keyword(Keyword::Row) {
                    self.expect_keyword(Keyword::Exclusive)?;
                    LockMode::ShareRowExclusive
                } else {
                    LockMode::Share
                }
            }
            _ => {
                self.expect_keyword(Keyword::Exclusive)?;
                LockMode::Exclusive
            }
        })
    }

    /// A word that is an option, if it stands here.
    fn push_word(&mut self, keyword: Keyword, options: &mut Vec<UtilityOption>) {
        if self.at_keyword(keyword) {
            let name = self.take_name();
            options.push(UtilityOption { name, value: None });
        }
    }

    fn push_analyze(&mut self, options: &mut Vec<UtilityOption>) {
        if matches!(self.keyword(), Some(Keyword::Analyze | Keyword::Analyse)) {
            let span = self.advance().span;
            options.push(UtilityOption { name: Name { text: "analyze".into(), span }, value: None });
        }
    }

    /// VACUUM, ANALYZE.
    pub(super) fn vacuum(&mut self) -> Result<Statement> {
        let is_vacuum = self.at_keyword(Keyword::Vacuum);
        self.advance();
        let mut options = Vec::new();
        if self.at_symbol(b'(') {
            options = self.utility_options()?;
        } else if is_vacuum {
            for keyword in [Keyword::Full, Keyword::Freeze, Keyword::Verbose] {
                self.push_word(keyword, &mut options);
            }
            self.push_analyze(&mut options);
        } else {
            self.push_word(Keyword::Verbose, &mut options);
        }
        let tables = if Self::is_name(self.kind()) { self.list(Self::vacuum_table)? } else { Vec::new() };
        Ok(Statement::Vacuum(Box::new(Vacuum { is_vacuum, options, tables })))
    }

    fn vacuum_table(&mut self) -> Result<VacuumTable> {
        Ok(VacuumTable { name: self.relation_name()?, columns: self.optional_names()? })
    }

    pub(super) fn cluster(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Cluster)?;
        let mut options = Vec::new();
        let has_parentheses = self.at_symbol(b'(');
        if has_parentheses {
            options = self.utility_options()?;
        } else {
            self.push_word(Keyword::Verbose, &mut options);
        }
        let (mut table, mut index) = (None, None);
        if has_parentheses || Self::is_name(self.kind()) {
            let name = self.relation_name()?;
            if !has_parentheses && name.qualifiers.is_empty() && self.accept_keyword(Keyword::On) {
                table = Some(self.relation_name()?);
                index = Some(name.name);
            } else {
                table = Some(name);
                index = if self.accept_keyword(Keyword::Using) { Some(self.name()?) } else { None };
            }
        }
        Ok(Statement::Cluster(Box::new(Cluster { options, table, index })))
    }

    pub(super) fn reindex(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Reindex)?;
        let mut options = if self.at_symbol(b'(') { self.utility_options()? } else { Vec::new() };
        let keyword = self.keyword();
        if !matches!(
            keyword,
            Some(Keyword::Index | Keyword::Table | Keyword::Schema | Keyword::System | Keyword::Database)
        ) {
            return self.unexpected();
        }
        self.advance();
        self.push_word(Keyword::Concurrently, &mut options);
        let target = match keyword {
            Some(Keyword::Index) => ReindexTarget::Index(self.relation_name()?),
            Some(Keyword::Table) => ReindexTarget::Table(self.relation_name()?),
            Some(Keyword::Schema) => ReindexTarget::Schema(self.name()?),
            Some(Keyword::System) => ReindexTarget::System(self.name()?),
            _ => ReindexTarget::Database(self.name()?),
        };
        Ok(Statement::Reindex(Box::new(Reindex { options, target })))
    }

    // COPY.

    pub(super) fn copy(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Copy)?;
        let mut options = Vec::new();
        let source = if self.accept_symbol(b'(') {
            let statement = self.preparable()?;
            self.expect_symbol(b')')?;
            CopySource::Query(Box::new(statement))
        } else {
            if self.at_keyword(Keyword::Binary) {
                options.push(self.binary_option());
            }
            CopySource::Table { name: self.relation_name()?, columns: self.optional_names()? }
        };
        let is_table = matches!(source, CopySource::Table { .. });
        let mut program_at = if is_table { None } else { Some(self.start()) };
        let is_from = is_table && self.accept_keyword(Keyword::From);
        if !is_from {
            self.expect_keyword(Keyword::To)?;
        }
        let target = self.copy_target()?;
        if is_table {
            if self.at_keyword(Keyword::Using) {
                program_at = Some(self.start());
            }
            let has_using = self.accept_keyword(Keyword::Using);
            if has_using || self.at_keyword(Keyword::Delimiters) {
                let name = Name { text: "delimiter".into(), span: self.current.span };
                self.expect_keyword(Keyword::Delimiters)?;
                let value = CopyValue::Value(UtilityValue::Word(self.string()?));
                options.push(CopyOption { name, value });
            }
        }
        self.optional_with_word();
        if self.at_symbol(b'(') {
            options.extend(self.parenthesised_list(Self::copy_option)?);
        } else {
            while let Some(option) = self.optional_old_copy_option()? {
                options.push(option);
            }
        }
        let where_at = self.start();
        let condition = if is_table { self.optional_where()? } else { None };
        let Some(target) = target else {
            let message = "STDIN/STDOUT not allowed with PROGRAM";
            return match program_at {
                Some(at) => self.error(SqlState::SYNTAX_ERROR, message, at),
                None => self.error_somewhere(SqlState::SYNTAX_ERROR, message),
            };
        };
        if !is_from && condition.is_some() {
            let message = "WHERE clause not allowed with COPY TO";
            return self.error(SqlState::SYNTAX_ERROR, message, where_at);
        }
        Ok(Statement::Copy(Box::new(Copy { source, is_from, target, options, condition })))
    }

    fn binary_option(&mut self) -> CopyOption {
        let span = self.advance().span;
        let value = CopyValue::Value(UtilityValue::Word("binary".into()));
        CopyOption { name: Name { text: "format".into(), span }, value }
    }

    /// None is PROGRAM with STDIN or STDOUT, which is reported where the whole statement has been read.
    fn copy_target(&mut self) -> Result<Option<CopyTarget>> {
        if self.accept_keyword(Keyword::Program) {
            if self.accept_keyword(Keyword::Stdin) || self.accept_keyword(Keyword::Stdout) {
                return Ok(None);
            }
            return Ok(Some(CopyTarget::Program(self.string()?)));
        }
        if self.accept_keyword(Keyword::Stdin) || self.accept_keyword(Keyword::Stdout) {
            return Ok(Some(CopyTarget::Standard));
        }
        Ok(Some(CopyTarget::File(self.string()?)))
    }

    /// `name value` in parentheses.
    fn copy_option(&mut self) -> Result<CopyOption> {
        let name = self.label()?;
        let value = match self.kind() {
            TokenKind::Symbol(b',' | b')') => CopyValue::None,
            _ if self.options.additions && *name.text == *"rejects_table" => {
                CopyValue::Table(self.relation_name()?)
            }
            TokenKind::Symbol(b'*') => {
                self.advance();
                CopyValue::Star
            }
            TokenKind::Symbol(b'(') => CopyValue::List(self.parenthesised_list(Self::copy_word)?),
            _ => CopyValue::Value(self.utility_value()?),
        };
        Ok(CopyOption { name, value })
    }

    /// A word or a string (PostgreSQL's opt_boolean_or_string).
    fn copy_word(&mut self) -> Result<Box<str>> {
        if matches!(self.kind(), TokenKind::Integer | TokenKind::Number | TokenKind::Symbol(b'+' | b'-')) {
            return self.unexpected();
        }
        match self.utility_value()? {
            UtilityValue::Word(word) | UtilityValue::Number(word) => Ok(word),
        }
    }

    /// An option without parentheses, as PostgreSQL had them before 9.0.
    fn optional_old_copy_option(&mut self) -> Result<Option<CopyOption>> {
        let span = self.current.span;
        let option = |text: &str, value| CopyOption { name: Name { text: text.into(), span }, value };
        let word = |text: &str| CopyValue::Value(UtilityValue::Word(text.into()));
        let Some(keyword) = self.keyword() else { return Ok(None) };
        let name = match keyword {
            Keyword::Binary => return Ok(Some(self.binary_option())),
            Keyword::Freeze => {
                self.advance();
                return Ok(Some(option("freeze", word("true"))));
            }
            Keyword::Csv => {
                self.advance();
                return Ok(Some(option("format", word("csv"))));
            }
            Keyword::Header => {
                self.advance();
                return Ok(Some(option("header", word("true"))));
            }
            Keyword::Force => {
                self.advance();
                let name = match self.keyword() {
                    Some(Keyword::Quote) => "force_quote",
                    Some(Keyword::Null) => "force_null",
                    _ => {
                        self.expect_keyword(Keyword::Not)?;
                        if !self.at_keyword(Keyword::Null) {
                            return self.unexpected();
                        }
                        "force_not_null"
                    }
                };
                self.advance();
                if name == "force_quote" && self.accept_symbol(b'*') {
                    return Ok(Some(option(name, CopyValue::Star)));
                }
                let columns = self.list(Self::name)?;
                let columns = columns.into_iter().map(|name| name.text).collect();
                return Ok(Some(option(name, CopyValue::List(columns))));
            }
            Keyword::Delimiter => "delimiter",
            Keyword::Null => "null",
            Keyword::Quote => "quote",
            Keyword::Escape => "escape",
            Keyword::Encoding => "encoding",
            _ => return Ok(None),
        };
        self.advance();
        if keyword != Keyword::Encoding {
            self.accept_keyword(Keyword::As);
        }
        let value = CopyValue::Value(UtilityValue::Word(self.string()?));
        Ok(Some(option(name, value)))
    }
}
