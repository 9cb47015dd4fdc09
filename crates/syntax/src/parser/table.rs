//! CREATE TABLE, CREATE TABLE AS, CREATE MATERIALIZED VIEW.

use super::Parser;
use crate::keyword::Keyword;
use crate::span::error_at;
use crate::token::TokenKind;
use crate::tree::{
    ColumnDef, CreateTable, CreateTableAs, ForeignTable, GenericOption, IndexElement, LikeOption, Name,
    NullsOrder, ObjectName, OnCommit, PartitionBound, PartitionBy, Persistence, RelOption, SortOrder,
    Statement, TableBody, TableElement, TableLike, TableSource, TypeName,
};
use firn_base::{Error, Result, SqlState};

/// What stands behind the columns of a table.
struct Storage {
    access_method: Option<Name>,
    options: Vec<RelOption>,
    on_commit: Option<OnCommit>,
    tablespace: Option<Name>,
}

impl Parser<'_> {
    /// At TABLE. Within CREATE SCHEMA there is no AS.
    pub(super) fn create_table(
        &mut self,
        persistence: Persistence,
        is_foreign: bool,
        may_be_query: bool,
    ) -> Result<Statement> {
        self.expect_keyword(Keyword::Table)?;
        let if_not_exists = self.optional_if_not_exists()?;
        let name = self.relation_name()?;
        let may_be_query = may_be_query && !is_foreign;
        // A parenthesis with names alone is that of AS.
        let has_names = self.at_symbol(b'(')
            && Self::is_name(self.peek(1))
            && matches!(self.peek(2), TokenKind::Symbol(b',' | b')'));
        let has_body = matches!(self.keyword(), Some(Keyword::Partition))
            || (self.at_keyword(Keyword::Of) && !is_foreign)
            || (self.at_symbol(b'(') && !(has_names && may_be_query));
        if !has_body {
            if !may_be_query {
                return self.unexpected();
            }
            return self.create_table_as(persistence, false, if_not_exists, name);
        }
        let (body, elements) = self.table_body()?;
        let mut table = CreateTable {
            persistence,
            if_not_exists,
            name,
            body,
            elements,
            partition_by: None,
            access_method: None,
            options: Vec::new(),
            on_commit: None,
            tablespace: None,
            foreign: None,
        };
        if is_foreign {
            self.expect_keyword(Keyword::Server)?;
            let server = self.name()?;
            table.foreign = Some(ForeignTable { server, options: self.optional_generic_options()? });
        } else {
            table.partition_by = self.optional_partition_by()?;
            let storage = self.storage(true, true)?;
            table.access_method = storage.access_method;
            table.options = storage.options;
            table.on_commit = storage.on_commit;
            table.tablespace = storage.tablespace;
        }
        Ok(Statement::CreateTable(Box::new(table)))
    }

    fn table_body(&mut self) -> Result<(TableBody, Vec<TableElement>)> {
        if self.accept_keyword(Keyword::Partition) {
            self.expect_keyword(Keyword::Of)?;
            let parent = self.relation_name()?;
            let elements = self.optional_typed_elements()?;
            let bound = self.partition_bound()?;
            return Ok((TableBody::Partition { parent, bound }, elements));
        }
        if self.accept_keyword(Keyword::Of) {
            let type_name = self.any_name()?;
            return Ok((TableBody::Of(type_name), self.optional_typed_elements()?));
        }
        self.expect_symbol(b'(')?;
        let elements =
            if self.at_symbol(b')') { Vec::new() } else { self.list(|parser| parser.table_element(true))? };
        self.expect_symbol(b')')?;
        let inherits = if self.accept_keyword(Keyword::Inherits) {
            self.parenthesised_list(Self::relation_name)?
        } else {
            Vec::new()
        };
        Ok((TableBody::Plain { inherits }, elements))
    }

    fn optional_typed_elements(&mut self) -> Result<Vec<TableElement>> {
        if self.at_symbol(b'(') {
            self.parenthesised_list(|parser| parser.table_element(false))
        } else {
            Ok(Vec::new())
        }
    }

    fn table_element(&mut self, has_types: bool) -> Result<TableElement> {
        if self.begins_table_constraint() {
            return Ok(TableElement::Constraint(Box::new(self.table_constraint()?)));
        }
        if has_types && self.at_keyword(Keyword::Like) {
            return Ok(TableElement::Like(Box::new(self.table_like()?)));
        }
        if has_types {
            return Ok(TableElement::Column(Box::new(self.column_def()?)));
        }
        let start = self.start();
        let name = self.name()?;
        if !self.begins_pair() && self.accept_keyword(Keyword::With) {
            self.expect_keyword(Keyword::Options)?;
        }
        Ok(TableElement::Column(Box::new(self.column_rest(name, None, start)?)))
    }

    /// A column with its type (PostgreSQL's columnDef).
    pub(super) fn column_def(&mut self) -> Result<ColumnDef> {
        let start = self.start();
        let name = self.name()?;
        let type_name = self.type_name()?;
        self.column_rest(name, Some(type_name), start)
    }

    fn column_rest(&mut self, name: Name, type_name: Option<TypeName>, start: u32) -> Result<ColumnDef> {
        let (mut compression, mut options) = (None, Vec::new());
        if type_name.is_some() {
            if self.at_keyword(Keyword::Compression) {
                compression = Some(self.compression()?);
            }
            options = self.optional_generic_options()?;
        }
        let (constraints, collation) = self.column_constraints()?;
        let span = self.span_from(start);
        Ok(ColumnDef { span, name, type_name, compression, options, collation, constraints })
    }

    /// COMPRESSION with its method.
    pub(super) fn compression(&mut self) -> Result<Name> {
        self.expect_keyword(Keyword::Compression)?;
        if self.at_keyword(Keyword::Default) { Ok(self.take_name()) } else { self.name() }
    }

    fn table_like(&mut self) -> Result<TableLike> {
        let start = self.start();
        self.expect_keyword(Keyword::Like)?;
        let table = self.relation_name()?;
        let mut options = Vec::new();
        loop {
            let is_including = self.accept_keyword(Keyword::Including);
            if !is_including && !self.accept_keyword(Keyword::Excluding) {
                return Ok(TableLike { span: self.span_from(start), table, options });
            }
            let option = match self.keyword() {
                Some(Keyword::Comments) => LikeOption::Comments,
                Some(Keyword::Compression) => LikeOption::Compression,
                Some(Keyword::Constraints) => LikeOption::Constraints,
                Some(Keyword::Defaults) => LikeOption::Defaults,
                Some(Keyword::Identity) => LikeOption::Identity,
                Some(Keyword::Generated) => LikeOption::Generated,
                Some(Keyword::Indexes) => LikeOption::Indexes,
                Some(Keyword::Statistics) => LikeOption::Statistics,
                Some(Keyword::Storage) => LikeOption::Storage,
                Some(Keyword::All) => LikeOption::All,
                _ => return self.unexpected(),
            };
            self.advance();
            options.push((is_including, option));
        }
    }

    /// `OPTIONS (name 'value', …)` or nothing (PostgreSQL's create_generic_options).
    pub(super) fn optional_generic_options(&mut self) -> Result<Vec<GenericOption>> {
        if !self.accept_keyword(Keyword::Options) {
            return Ok(Vec::new());
        }
        self.parenthesised_list(Self::generic_option)
    }

    pub(super) fn generic_option(&mut self) -> Result<GenericOption> {
        Ok(GenericOption { name: self.label()?, value: self.string()? })
    }

    fn optional_partition_by(&mut self) -> Result<Option<PartitionBy>> {
        let start = self.start();
        if !self.accept_keyword(Keyword::Partition) {
            return Ok(None);
        }
        self.expect_keyword(Keyword::By)?;
        let strategy = self.name()?;
        let elements = self.parenthesised_list(|parser| {
            let start = parser.start();
            let (value, collation) = parser.index_key()?;
            let class = parser.optional_operator_class()?;
            let (order, nulls) = (SortOrder::Default, NullsOrder::Default);
            let span = parser.span_from(start);
            Ok(IndexElement { span, value, collation, class, class_parameters: Vec::new(), order, nulls })
        })?;
        Ok(Some(PartitionBy { span: self.span_from(start), strategy, elements }))
    }

    /// Which rows are in a partition (PostgreSQL's PartitionBoundSpec).
    pub(super) fn partition_bound(&mut self) -> Result<PartitionBound> {
        if self.accept_keyword(Keyword::Default) {
            return Ok(PartitionBound::Default);
        }
        self.expect_keywords(&[Keyword::For, Keyword::Values])?;
        if self.accept_keyword(Keyword::In) {
            return Ok(PartitionBound::List(self.parenthesised_list(Self::expr)?));
        }
        if self.accept_keyword(Keyword::From) {
            let from = self.parenthesised_list(Self::expr)?;
            self.expect_keyword(Keyword::To)?;
            return Ok(PartitionBound::Range { from, to: self.parenthesised_list(Self::expr)? });
        }
        self.expect_keyword(Keyword::With)?;
        let parts = self.parenthesised_list(|parser| Ok((parser.word()?, parser.integer()?)))?;
        self.hash_bound(&parts)
    }

    fn hash_bound(&mut self, parts: &[(Name, i32)]) -> Result<PartitionBound> {
        let (mut modulus, mut remainder) = (None, None);
        for (name, value) in parts {
            let slot = match &*name.text {
                "modulus" => &mut modulus,
                "remainder" => &mut remainder,
                other => {
                    let message = format!("unrecognized hash partition bound specification \"{other}\"");
                    return self.error(SqlState::SYNTAX_ERROR, message, name.span.start);
                }
            };
            if slot.replace(*value).is_some() {
                let message = format!("{} for hash partition provided more than once", name.text);
                return self.error(SqlState::DUPLICATE_OBJECT, message, name.span.start);
            }
        }
        let missing =
            |what| Error::new(SqlState::SYNTAX_ERROR, format!("{what} for hash partition must be specified"));
        Ok(PartitionBound::Hash {
            modulus: modulus.ok_or_else(|| missing("modulus"))?,
            remainder: remainder.ok_or_else(|| missing("remainder"))?,
        })
    }

    /// USING, WITH, ON COMMIT and TABLESPACE, each or none.
    fn storage(&mut self, may_be_without_oids: bool, may_have_on_commit: bool) -> Result<Storage> {
        let access_method = if self.accept_keyword(Keyword::Using) { Some(self.name()?) } else { None };
        let mut options = Vec::new();
        if self.at_keyword(Keyword::With) {
            self.advance();
            options = self.rel_options()?;
        } else if may_be_without_oids && self.accept_keyword(Keyword::Without) {
            self.expect_keyword(Keyword::Oids)?;
        }
        let mut on_commit = None;
        if may_have_on_commit && self.accept_keyword(Keyword::On) {
            self.expect_keyword(Keyword::Commit)?;
            on_commit = Some(if self.accept_keyword(Keyword::Drop) {
                OnCommit::Drop
            } else if self.accept_keyword(Keyword::Delete) {
                self.expect_keyword(Keyword::Rows)?;
                OnCommit::DeleteRows
            } else {
                self.expect_keywords(&[Keyword::Preserve, Keyword::Rows])?;
                OnCommit::PreserveRows
            });
        }
        Ok(Storage { access_method, options, on_commit, tablespace: self.optional_tablespace()? })
    }

    /// TABLESPACE or nothing.
    pub(super) fn optional_tablespace(&mut self) -> Result<Option<Name>> {
        if self.accept_keyword(Keyword::Tablespace) { Ok(Some(self.name()?)) } else { Ok(None) }
    }

    fn create_table_as(
        &mut self,
        persistence: Persistence,
        is_materialized_view: bool,
        if_not_exists: bool,
        name: ObjectName,
    ) -> Result<Statement> {
        let columns = self.optional_names()?;
        let storage = self.storage(!is_materialized_view, !is_materialized_view)?;
        self.expect_keyword(Keyword::As)?;
        let source = if !is_materialized_view && self.accept_keyword(Keyword::Execute) {
            TableSource::Execute(self.execute_rest()?)
        } else {
            TableSource::Query(self.query()?)
        };
        Ok(Statement::CreateTableAs(Box::new(CreateTableAs {
            is_materialized_view,
            persistence,
            if_not_exists,
            name,
            columns,
            access_method: storage.access_method,
            options: storage.options,
            on_commit: storage.on_commit,
            tablespace: storage.tablespace,
            source,
            with_no_data: self.optional_with_no_data()?,
        })))
    }

    /// At MATERIALIZED.
    pub(super) fn create_materialized_view(&mut self, persistence: Persistence) -> Result<Statement> {
        self.expect_keywords(&[Keyword::Materialized, Keyword::View])?;
        let if_not_exists = self.optional_if_not_exists()?;
        let name = self.relation_name()?;
        self.create_table_as(persistence, true, if_not_exists, name)
    }

    /// WITH DATA, WITH NO DATA or nothing; whether it is WITH NO DATA.
    pub(super) fn optional_with_no_data(&mut self) -> Result<bool> {
        if self.begins_pair() || !self.accept_keyword(Keyword::With) {
            return Ok(false);
        }
        let is_without = self.accept_keyword(Keyword::No);
        self.expect_keyword(Keyword::Data)?;
        Ok(is_without)
    }

    /// CREATE TABLE … AS or CREATE MATERIALIZED VIEW, at CREATE.
    pub(super) fn explained_create(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Create)?;
        let persistence = self.create_persistence()?;
        if self.at_keyword(Keyword::Materialized) && persistence != Persistence::Temporary {
            return self.create_materialized_view(persistence);
        }
        self.expect_keyword(Keyword::Table)?;
        let if_not_exists = self.optional_if_not_exists()?;
        let name = self.relation_name()?;
        self.create_table_as(persistence, false, if_not_exists, name)
    }

    /// TEMPORARY, UNLOGGED or nothing behind CREATE, where no name stands.
    pub(super) fn create_persistence(&mut self) -> Result<Persistence> {
        match self.keyword() {
            Some(Keyword::Temporary | Keyword::Temp) => {
                self.advance();
                Ok(Persistence::Temporary)
            }
            Some(Keyword::Local | Keyword::Global) => {
                self.advance();
                if !self.accept_keyword(Keyword::Temporary) {
                    self.expect_keyword(Keyword::Temp)?;
                }
                Ok(Persistence::Temporary)
            }
            Some(Keyword::Unlogged) => {
                self.advance();
                Ok(Persistence::Unlogged)
            }
            _ => Ok(Persistence::Permanent),
        }
    }

    /// IF NOT EXISTS or nothing. IF alone may be a name.
    pub(super) fn optional_if_not_exists(&mut self) -> Result<bool> {
        if !self.at_keyword(Keyword::If) || !self.next_is(Keyword::Not) {
            return Ok(false);
        }
        self.expect_keywords(&[Keyword::If, Keyword::Not, Keyword::Exists])?;
        Ok(true)
    }

    /// IF EXISTS or nothing. IF alone may be a name.
    pub(super) fn optional_if_exists(&mut self) -> bool {
        let found = self.at_keyword(Keyword::If) && self.next_is(Keyword::Exists);
        if found {
            self.advance();
            self.advance();
        }
        found
    }

    /// CASCADE, RESTRICT or nothing; whether it is CASCADE.
    pub(super) fn optional_cascade(&mut self) -> bool {
        self.accept_keyword(Keyword::Cascade) || {
            self.accept_keyword(Keyword::Restrict);
            false
        }
    }

    /// An error without a place.
    #[cold]
    pub(super) fn error_somewhere<T>(&mut self, state: SqlState, message: impl Into<String>) -> Result<T> {
        if self.at(TokenKind::Invalid) {
            return self.unexpected();
        }
        Err(Error::new(state, message))
    }

    /// An error at a byte of the text, with a hint.
    #[cold]
    pub(super) fn error_with_hint<T>(
        &mut self,
        state: SqlState,
        message: impl Into<String>,
        offset: u32,
        hint: &str,
    ) -> Result<T> {
        if self.at(TokenKind::Invalid) {
            return self.unexpected();
        }
        Err(error_at(state, message, self.text, offset).with_hint(hint))
    }
}
