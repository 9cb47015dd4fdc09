//! Statements of parts: those that define what is no table, and small ones.

use super::Parser;
use super::constraint::Allowed;
use super::record::Recorder;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{IndexElement, NullsOrder, ObjectType, Part, SortOrder, Statement};
use firn_base::{Result, SqlState};

impl Parser<'_> {
    /// A statement that begins with any other word.
    pub(super) fn other(&mut self, keyword: Keyword) -> Result<Statement> {
        match keyword {
            Keyword::Do => self.record("DO", &[], |r| {
                r.word(Keyword::Do)?;
                loop {
                    if r.optional(Keyword::Language) {
                        r.word_or_string()?;
                    } else {
                        r.string()?;
                    }
                    if !r.at(Keyword::Language) && !r.parser.kind().is_string() {
                        return Ok(());
                    }
                }
            }),
            Keyword::Load => self.record("LOAD", &[], |r| {
                r.word(Keyword::Load)?;
                r.string()
            }),
            Keyword::Reassign => self.record("REASSIGN OWNED", &[], |r| {
                r.words(&[Keyword::Reassign, Keyword::Owned, Keyword::By])?;
                r.roles()?;
                r.word(Keyword::To)?;
                r.role()
            }),
            Keyword::Security => self.record("SECURITY LABEL", &[], |r| {
                r.words(&[Keyword::Security, Keyword::Label])?;
                if r.optional(Keyword::For) {
                    r.word_or_string()?;
                }
                r.word(Keyword::On)?;
                let object = r.parser.commented_object(true)?;
                r.push(Part::Object(Box::new(object)));
                r.word(Keyword::Is)?;
                if r.optional(Keyword::Null) { Ok(()) } else { r.string() }
            }),
            Keyword::Import => self.record("IMPORT FOREIGN SCHEMA", &[], |r| {
                r.words(&[Keyword::Import, Keyword::Foreign, Keyword::Schema])?;
                r.name()?;
                if r.optional_words(&[Keyword::Limit, Keyword::To])? || r.optional(Keyword::Except) {
                    r.parenthesised(|r| r.list(Recorder::relation))?;
                }
                r.words(&[Keyword::From, Keyword::Server])?;
                r.name()?;
                r.word(Keyword::Into)?;
                r.name()?;
                r.optional_generic_options()
            }),
            _ => self.unexpected(),
        }
    }

    /// What CREATE makes but relations, schemas and roles.
    pub(super) fn create_other(&mut self) -> Result<Statement> {
        let (tag, rest): (&'static str, fn(&mut Recorder<'_, '_>) -> Result<()>) = match self.keyword() {
            Some(Keyword::Access) => ("CREATE ACCESS METHOD", |r| r.create_access_method()),
            Some(Keyword::Assertion) => ("CREATE ASSERTION", |r| r.create_assertion()),
            Some(Keyword::Cast) => ("CREATE CAST", |r| r.create_cast()),
            Some(Keyword::Collation) => ("CREATE COLLATION", |r| r.create_collation()),
            Some(Keyword::Default | Keyword::Conversion) => ("CREATE CONVERSION", |r| r.create_conversion()),
            Some(Keyword::Database) => ("CREATE DATABASE", |r| {
                r.word(Keyword::Database)?;
                r.name()?;
                r.noise(Keyword::With);
                r.database_options()
            }),
            Some(Keyword::Domain) => ("CREATE DOMAIN", |r| r.create_domain()),
            Some(Keyword::Event) => ("CREATE EVENT TRIGGER", |r| r.create_event_trigger()),
            Some(Keyword::Extension) => ("CREATE EXTENSION", |r| r.create_extension()),
            Some(Keyword::Foreign) => ("CREATE FOREIGN DATA WRAPPER", |r| {
                r.words(&[Keyword::Foreign, Keyword::Data, Keyword::Wrapper])?;
                r.name()?;
                while r.optional_wrapper_option()? {}
                r.optional_generic_options()
            }),
            Some(Keyword::Operator) => ("CREATE OPERATOR", |r| r.create_operator()),
            Some(Keyword::Policy) => ("CREATE POLICY", |r| r.create_policy()),
            Some(Keyword::Publication) => ("CREATE PUBLICATION", |r| r.create_publication()),
            Some(Keyword::Server) => ("CREATE SERVER", |r| r.create_server()),
            Some(Keyword::Statistics) => ("CREATE STATISTICS", |r| r.create_statistics()),
            Some(Keyword::Subscription) => ("CREATE SUBSCRIPTION", |r| {
                r.word(Keyword::Subscription)?;
                r.name()?;
                r.word(Keyword::Connection)?;
                r.string()?;
                r.word(Keyword::Publication)?;
                r.names()?;
                r.optional_with_definition()
            }),
            Some(Keyword::Tablespace) => ("CREATE TABLESPACE", |r| {
                r.word(Keyword::Tablespace)?;
                r.name()?;
                if r.optional(Keyword::Owner) {
                    r.role()?;
                }
                r.word(Keyword::Location)?;
                r.string()?;
                if r.optional(Keyword::With) { r.rel_options() } else { Ok(()) }
            }),
            Some(Keyword::Text) => ("CREATE TEXT SEARCH", |r| {
                r.words(&[Keyword::Text, Keyword::Search])?;
                r.one_of(&[Keyword::Parser, Keyword::Dictionary, Keyword::Template, Keyword::Configuration])?;
                r.any_name()?;
                r.definition()
            }),
            Some(Keyword::Type) => ("CREATE TYPE", |r| r.create_type()),
            Some(Keyword::User) => ("CREATE USER MAPPING", |r| {
                r.words(&[Keyword::User, Keyword::Mapping])?;
                r.optional_words(&[Keyword::If, Keyword::Not, Keyword::Exists])?;
                r.user_mapping()?;
                r.optional_generic_options()
            }),
            _ => return self.create_replaceable(false),
        };
        self.record(tag, &[Keyword::Create], rest)
    }
}

impl Recorder<'_, '_> {
    fn create_access_method(&mut self) -> Result<()> {
        self.words(&[Keyword::Access, Keyword::Method])?;
        self.name()?;
        self.word(Keyword::Type)?;
        self.one_of(&[Keyword::Index, Keyword::Table])?;
        self.word(Keyword::Handler)?;
        self.any_name()
    }

    fn create_assertion(&mut self) -> Result<()> {
        self.word(Keyword::Assertion)?;
        self.any_name()?;
        self.word(Keyword::Check)?;
        self.parenthesised_expr()?;
        let all = Allowed { kind: "", deferrable: true, not_valid: true, no_inherit: true };
        self.parser.constraint_attributes(all)?;
        let message = "CREATE ASSERTION is not yet implemented";
        self.parser.error_somewhere(SqlState::FEATURE_NOT_SUPPORTED, message)
    }

    fn create_collation(&mut self) -> Result<()> {
        self.word(Keyword::Collation)?;
        self.if_not_exists()?;
        self.any_name()?;
        if self.optional(Keyword::From) { self.any_name() } else { self.definition() }
    }

    fn create_conversion(&mut self) -> Result<()> {
        self.optional(Keyword::Default);
        self.word(Keyword::Conversion)?;
        self.any_name()?;
        self.word(Keyword::For)?;
        self.string()?;
        self.word(Keyword::To)?;
        self.string()?;
        self.word(Keyword::From)?;
        self.any_name()
    }

    /// Options of a database, as many as come (PostgreSQL's createdb_opt_list).
    fn database_options(&mut self) -> Result<()> {
        loop {
            match self.parser.keyword() {
                Some(Keyword::Connection) => self.words(&[Keyword::Connection, Keyword::Limit])?,
                Some(
                    keyword @ (Keyword::Encoding
                    | Keyword::Location
                    | Keyword::Owner
                    | Keyword::Tablespace
                    | Keyword::Template),
                ) => self.word(keyword)?,
                None if matches!(
                    self.parser.kind(),
                    TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier
                ) =>
                {
                    let name = self.parser.take_name();
                    self.push(Part::Name(name));
                }
                _ => return Ok(()),
            }
            self.parser.accept_symbol(b'=');
            self.push(Part::Sign('='));
            if !self.optional(Keyword::Default) {
                let value = self.parser.utility_value()?;
                self.push(Part::Value(value));
            }
        }
    }

    fn create_domain(&mut self) -> Result<()> {
        self.word(Keyword::Domain)?;
        self.any_name()?;
        self.noise(Keyword::As);
        self.push(Part::Word(Keyword::As));
        self.type_name()?;
        let (constraints, collation) = self.parser.column_constraints()?;
        if let Some(collation) = collation {
            self.push(Part::Word(Keyword::Collate));
            self.push(Part::ObjectName(Box::new(collation)));
        }
        for constraint in constraints {
            self.push(Part::ColumnConstraint(Box::new(constraint)));
        }
        Ok(())
    }

    fn create_event_trigger(&mut self) -> Result<()> {
        self.words(&[Keyword::Event, Keyword::Trigger])?;
        self.name()?;
        self.word(Keyword::On)?;
        let event = self.parser.label()?;
        self.push(Part::Name(event));
        if self.optional(Keyword::When) {
            loop {
                self.name()?;
                self.word(Keyword::In)?;
                self.parenthesised(|r| r.list(Self::string))?;
                if !self.optional(Keyword::And) {
                    break;
                }
            }
        }
        self.word(Keyword::Execute)?;
        self.function_or_procedure()?;
        self.function_name()?;
        self.parenthesised(|_| Ok(()))
    }

    fn create_extension(&mut self) -> Result<()> {
        self.word(Keyword::Extension)?;
        self.if_not_exists()?;
        self.name()?;
        self.noise(Keyword::With);
        loop {
            let at = self.parser.start();
            if self.optional(Keyword::Schema) {
                self.name()?;
            } else if self.optional(Keyword::Version) {
                self.word_or_string()?;
            } else if self.optional(Keyword::From) {
                self.word_or_string()?;
                let message = "CREATE EXTENSION ... FROM is no longer supported";
                return self.parser.error(SqlState::FEATURE_NOT_SUPPORTED, message, at);
            } else if !self.optional(Keyword::Cascade) {
                return Ok(());
            }
        }
    }

    /// An option of a foreign-data wrapper (PostgreSQL's fdw_option).
    fn optional_wrapper_option(&mut self) -> Result<bool> {
        if self.optional(Keyword::No) {
            self.one_of(&[Keyword::Handler, Keyword::Validator])?;
            return Ok(true);
        }
        let found = self.optional(Keyword::Handler) || self.optional(Keyword::Validator);
        if found {
            self.any_name()?;
        }
        Ok(found)
    }

    // Operators.

    fn any_operator(&mut self) -> Result<()> {
        let operator = self.parser.any_operator()?;
        self.push(Part::Operator(operator));
        Ok(())
    }

    fn create_operator(&mut self) -> Result<()> {
        self.word(Keyword::Operator)?;
        // CLASS and FAMILY may be schemas of operators.
        let is_schema = self.parser.peek(1) == TokenKind::Symbol(b'.') && {
            let behind = self.parser.peek(2);
            Parser::is_operator(behind)
        };
        if is_schema || !matches!(self.parser.keyword(), Some(Keyword::Class | Keyword::Family)) {
            self.any_operator()?;
            return self.definition();
        }
        let is_class = self.one_of(&[Keyword::Class, Keyword::Family])? == Keyword::Class;
        self.any_name()?;
        if !is_class {
            self.word(Keyword::Using)?;
            return self.name();
        }
        self.optional(Keyword::Default);
        self.words(&[Keyword::For, Keyword::Type])?;
        self.type_name()?;
        self.word(Keyword::Using)?;
        self.name()?;
        if self.optional(Keyword::Family) {
            self.any_name()?;
        }
        self.word(Keyword::As)?;
        self.list(Self::class_item)
    }

    /// An item of an operator class (PostgreSQL's opclass_item).
    fn class_item(&mut self) -> Result<()> {
        match self.one_of(&[Keyword::Operator, Keyword::Function, Keyword::Storage])? {
            Keyword::Storage => self.type_name(),
            Keyword::Operator => {
                self.integer()?;
                let operator = self.parser.any_operator()?;
                if self.parser.at_symbol(b'(') {
                    let reference = self.parser.operator_reference_from(operator)?;
                    self.push(Part::Reference(Box::new(crate::tree::ObjectReference::Operator(reference))));
                } else {
                    self.push(Part::Operator(operator));
                }
                if self.optional(Keyword::For)
                    && self.one_of(&[Keyword::Search, Keyword::Order])? == Keyword::Order
                {
                    self.word(Keyword::By)?;
                    self.any_name()?;
                }
                // RECHECK means nothing any more.
                self.noise(Keyword::Recheck);
                Ok(())
            }
            _ => {
                self.integer()?;
                if self.parser.at_symbol(b'(') {
                    self.types()?;
                }
                self.function()
            }
        }
    }

    // Policies.

    fn create_policy(&mut self) -> Result<()> {
        self.word(Keyword::Policy)?;
        self.name()?;
        self.word(Keyword::On)?;
        self.relation_name()?;
        if self.optional(Keyword::As) {
            let at = self.parser.start();
            if self.parser.keyword().is_some() {
                return self.unexpected();
            }
            let name = self.parser.name()?;
            if !matches!(&*name.text, "permissive" | "restrictive") {
                let message = format!("unrecognized row security option \"{}\"", name.text);
                let hint = "Only PERMISSIVE or RESTRICTIVE policies are supported currently.";
                return self.parser.error_with_hint(SqlState::SYNTAX_ERROR, message, at, hint);
            }
            self.push(Part::Name(name));
        }
        if self.optional(Keyword::For) {
            self.one_of(&[Keyword::All, Keyword::Select, Keyword::Insert, Keyword::Update, Keyword::Delete])?;
        }
        self.policy_rest()
    }

    /// TO, USING and WITH CHECK, each or none.
    fn policy_rest(&mut self) -> Result<()> {
        if self.optional(Keyword::To) {
            self.roles()?;
        }
        if self.optional(Keyword::Using) {
            self.parenthesised_expr()?;
        }
        if self.optional(Keyword::With) {
            self.word(Keyword::Check)?;
            self.parenthesised_expr()?;
        }
        Ok(())
    }

    // Publications.

    fn create_publication(&mut self) -> Result<()> {
        self.word(Keyword::Publication)?;
        self.name()?;
        if self.optional(Keyword::For) {
            if self.at(Keyword::All) {
                self.words(&[Keyword::All, Keyword::Tables])?;
            } else {
                let mistake = self.publication_objects()?;
                self.optional_with_definition()?;
                return self.check_publication(mistake);
            }
        }
        self.optional_with_definition()
    }

    fn check_publication(&mut self, mistake: Option<(&'static str, u32)>) -> Result<()> {
        match mistake {
            None => Ok(()),
            Some((message, at)) => self.parser.error(SqlState::SYNTAX_ERROR, message, at),
        }
    }

    /// Tables and schemas (PostgreSQL's pub_obj_list). An item without TABLE or TABLES IN SCHEMA is of the kind of the one
    /// before it; here every item is written with its kind. A mistake is reported where the whole statement has been read.
    fn publication_objects(&mut self) -> Result<Option<(&'static str, u32)>> {
        let mut items = Vec::new();
        loop {
            let at = self.parser.start();
            let mut kind = PublicationKind::Continuation;
            if self.parser.accept_keyword(Keyword::Table) {
                kind = PublicationKind::Table;
            } else if self.at(Keyword::Tables) && self.next_is(Keyword::In) {
                self.parser.expect_keywords(&[Keyword::Tables, Keyword::In, Keyword::Schema])?;
                kind = PublicationKind::Schema;
            }
            let start = self.parts.len();
            let mut item = PublicationItem {
                at,
                kind,
                name: Vec::new(),
                is_name: false,
                has_columns: false,
                has_where: false,
            };
            if kind != PublicationKind::Table && self.at(Keyword::CurrentSchema) {
                self.word(Keyword::CurrentSchema)?;
            } else if kind == PublicationKind::Schema {
                self.name()?;
                item.is_name = true;
            } else {
                let is_plain = Parser::is_name(self.parser.kind());
                self.relation()?;
                if let Some(Part::Relation(relation)) = self.parts.last() {
                    item.is_name = is_plain && !relation.is_only && relation.name.qualifiers.is_empty();
                }
                if kind == PublicationKind::Continuation && self.parser.follows_symbol(b'*') {
                    item.is_name = false;
                }
                item.has_columns = self.parser.at_symbol(b'(');
                self.optional_names()?;
                if self.optional(Keyword::Where) {
                    item.has_where = true;
                    self.parenthesised_expr()?;
                }
            }
            item.name = self.parts.split_off(start);
            items.push(item);
            if !self.parser.accept_symbol(b',') {
                break;
            }
        }
        let mut kind = PublicationKind::Continuation;
        for (index, item) in items.into_iter().enumerate() {
            if item.kind != PublicationKind::Continuation {
                kind = item.kind;
            }
            let is_schema_word = matches!(item.name[..], [Part::Word(_)]);
            let mistake = match kind {
                PublicationKind::Continuation => Some("invalid publication object list"),
                PublicationKind::Table if is_schema_word => Some("invalid table name"),
                PublicationKind::Table => None,
                PublicationKind::Schema if item.has_where => Some("WHERE clause not allowed for schema"),
                PublicationKind::Schema if item.has_columns => {
                    Some("column specification not allowed for schema")
                }
                PublicationKind::Schema if !item.is_name && !is_schema_word => Some("invalid schema name"),
                PublicationKind::Schema => None,
            };
            if let Some(message) = mistake {
                return Ok(Some((message, item.at)));
            }
            if index > 0 {
                self.push(Part::Sign(','));
            }
            if kind == PublicationKind::Table {
                self.push(Part::Word(Keyword::Table));
            } else {
                for word in [Keyword::Tables, Keyword::In, Keyword::Schema] {
                    self.push(Part::Word(word));
                }
            }
            for part in item.name {
                // A continued schema has been parsed as a relation.
                let part = match part {
                    Part::Relation(relation) if kind == PublicationKind::Schema => {
                        Part::Name(relation.name.name)
                    }
                    part => part,
                };
                self.push(part);
            }
        }
        Ok(None)
    }

    // Foreign servers.

    fn create_server(&mut self) -> Result<()> {
        self.word(Keyword::Server)?;
        self.if_not_exists()?;
        self.name()?;
        if self.optional(Keyword::Type) {
            self.string()?;
        }
        self.optional_server_version()?;
        self.words(&[Keyword::Foreign, Keyword::Data, Keyword::Wrapper])?;
        self.name()?;
        self.optional_generic_options()
    }

    fn optional_server_version(&mut self) -> Result<bool> {
        if !self.optional(Keyword::Version) {
            return Ok(false);
        }
        if !self.optional(Keyword::Null) {
            self.string()?;
        }
        Ok(true)
    }

    fn create_statistics(&mut self) -> Result<()> {
        self.word(Keyword::Statistics)?;
        self.if_not_exists()?;
        self.any_name()?;
        self.optional_names()?;
        self.word(Keyword::On)?;
        self.list(|r| {
            let start = r.parser.start();
            let value = r.parser.index_value()?;
            let span = r.parser.span_from(start);
            let (order, nulls) = (SortOrder::Default, NullsOrder::Default);
            let element = IndexElement {
                span,
                value,
                collation: None,
                class: None,
                class_parameters: Vec::new(),
                order,
                nulls,
            };
            r.push(Part::IndexElement(Box::new(element)));
            Ok(())
        })?;
        self.word(Keyword::From)?;
        self.list(|r| {
            let item = r.parser.table_ref()?;
            r.push(Part::From(Box::new(item)));
            Ok(())
        })
    }

    // Types.

    fn create_type(&mut self) -> Result<()> {
        self.word(Keyword::Type)?;
        self.any_name()?;
        if self.parser.at_symbol(b'(') {
            return self.definition();
        }
        if !self.optional(Keyword::As) {
            return Ok(());
        }
        if self.optional(Keyword::Enum) {
            return self.parenthesised(
                |r| {
                    if r.parser.at_symbol(b')') { Ok(()) } else { r.list(Self::string) }
                },
            );
        }
        if self.optional(Keyword::Range) {
            return self.definition();
        }
        self.parenthesised(|r| if r.parser.at_symbol(b')') { Ok(()) } else { r.list(Self::attribute) })
    }

    /// An attribute of a composite type (PostgreSQL's TableFuncElement).
    fn attribute(&mut self) -> Result<()> {
        self.name()?;
        self.type_name()?;
        self.optional_collation()
    }

    fn optional_collation(&mut self) -> Result<()> {
        if self.optional(Keyword::Collate) { self.any_name() } else { Ok(()) }
    }

    // ALTER.

    /// What only this kind of object may have behind its name.
    pub(super) fn alter_rest(&mut self, object_type: ObjectType) -> Result<()> {
        use ObjectType::*;
        let may_only_set_schema = matches!(
            object_type,
            Aggregate
                | Collation
                | Conversion
                | Extension
                | OperatorClass
                | OperatorFamily
                | TextSearchConfiguration
                | TextSearchDictionary
                | TextSearchParser
                | TextSearchTemplate
        );
        if may_only_set_schema && self.at(Keyword::Set) {
            self.parser.advance();
            return self.unexpected();
        }
        match object_type {
            Collation => self.words(&[Keyword::Refresh, Keyword::Version]),
            Database => self.alter_database(),
            Domain => self.alter_domain(),
            EventTrigger => {
                if self.one_of(&[Keyword::Enable, Keyword::Disable])? == Keyword::Enable
                    && !self.optional(Keyword::Replica)
                {
                    self.optional(Keyword::Always);
                }
                Ok(())
            }
            Extension => self.alter_extension(),
            ForeignDataWrapper => {
                let mut has_option = false;
                while self.optional_wrapper_option()? {
                    has_option = true;
                }
                if has_option && !self.at(Keyword::Options) {
                    return Ok(());
                }
                self.generic_option_changes()
            }
            Function | Procedure | Routine => self.alter_function(),
            Operator => self.set_definition(),
            OperatorFamily => self.alter_operator_family(),
            Policy => self.policy_rest(),
            Publication => self.alter_publication(),
            Server => {
                let has_version = self.optional_server_version()?;
                if has_version && !self.at(Keyword::Options) {
                    return Ok(());
                }
                self.generic_option_changes()
            }
            Statistics => {
                self.words(&[Keyword::Set, Keyword::Statistics])?;
                self.signed_integer()
            }
            Subscription => self.alter_subscription(),
            Tablespace => {
                self.one_of(&[Keyword::Set, Keyword::Reset])?;
                self.rel_options()
            }
            TextSearchDictionary => self.definition(),
            TextSearchConfiguration => self.alter_configuration(),
            Type => self.alter_type(),
            _ => self.unexpected(),
        }
    }

    fn alter_database(&mut self) -> Result<()> {
        if self.optional_words(&[Keyword::Refresh, Keyword::Collation])? {
            return self.word(Keyword::Version);
        }
        if self.at(Keyword::Set) && self.next_is(Keyword::Tablespace) {
            let behind = self.parser.peek(2);
            if Parser::is_name(behind) {
                self.words(&[Keyword::Set, Keyword::Tablespace])?;
                return self.name();
            }
        }
        if matches!(self.parser.keyword(), Some(Keyword::Set | Keyword::Reset)) {
            return self.set_or_reset(true);
        }
        self.noise(Keyword::With);
        self.database_options()
    }

    fn alter_domain(&mut self) -> Result<()> {
        match self.one_of(&[Keyword::Set, Keyword::Drop, Keyword::Add, Keyword::Validate])? {
            Keyword::Add => {
                let constraint = self.parser.table_constraint()?;
                self.push(Part::TableConstraint(Box::new(constraint)));
                Ok(())
            }
            Keyword::Validate => {
                self.word(Keyword::Constraint)?;
                self.name()
            }
            Keyword::Set if self.optional(Keyword::Default) => self.expr(),
            Keyword::Drop if self.optional(Keyword::Default) => Ok(()),
            Keyword::Drop if self.optional(Keyword::Constraint) => {
                self.if_exists();
                self.name()?;
                self.cascade();
                Ok(())
            }
            _ => self.words(&[Keyword::Not, Keyword::Null]),
        }
    }

    fn alter_extension(&mut self) -> Result<()> {
        if self.optional(Keyword::Update) {
            while self.optional(Keyword::To) {
                self.word_or_string()?;
            }
            return Ok(());
        }
        self.one_of(&[Keyword::Add, Keyword::Drop])?;
        let refused = [
            Keyword::Column,
            Keyword::Constraint,
            Keyword::Large,
            Keyword::Policy,
            Keyword::Rule,
            Keyword::Trigger,
        ];
        let Some(object_type) = self.parser.optional_object_type(&refused)? else { return self.unexpected() };
        let name = self.parser.object_reference(object_type)?;
        self.object(object_type, name);
        Ok(())
    }

    /// `SET (…)`
    fn set_definition(&mut self) -> Result<()> {
        self.word(Keyword::Set)?;
        let at = self.parser.at_symbol(b'(');
        if !at {
            return self.unexpected();
        }
        self.parenthesised(|r| {
            r.list(|r| {
                let name = r.parser.label()?;
                r.push(Part::Name(name));
                r.sign(b'=')?;
                let value = r.parser.option_value()?;
                r.push(Part::OptionValue(Box::new(value)));
                Ok(())
            })
        })
    }

    fn alter_operator_family(&mut self) -> Result<()> {
        if self.one_of(&[Keyword::Add, Keyword::Drop])? == Keyword::Add {
            return self.list(Self::class_item);
        }
        self.list(|r| {
            r.one_of(&[Keyword::Operator, Keyword::Function])?;
            r.integer()?;
            r.types()
        })
    }

    fn alter_publication(&mut self) -> Result<()> {
        let word = self.one_of(&[Keyword::Set, Keyword::Add, Keyword::Drop])?;
        if word == Keyword::Set && self.parser.at_symbol(b'(') {
            return self.definition();
        }
        let mistake = self.publication_objects()?;
        self.check_publication(mistake)
    }

    fn alter_subscription(&mut self) -> Result<()> {
        let word = self.one_of(&[
            Keyword::Set,
            Keyword::Connection,
            Keyword::Refresh,
            Keyword::Add,
            Keyword::Drop,
            Keyword::Enable,
            Keyword::Disable,
            Keyword::Skip,
        ])?;
        match word {
            Keyword::Connection => self.string(),
            Keyword::Enable | Keyword::Disable => Ok(()),
            Keyword::Skip => self.definition(),
            Keyword::Set if self.parser.at_symbol(b'(') => self.definition(),
            Keyword::Refresh => {
                self.word(Keyword::Publication)?;
                self.optional_with_definition()
            }
            _ => {
                self.word(Keyword::Publication)?;
                self.names()?;
                self.optional_with_definition()
            }
        }
    }

    fn alter_configuration(&mut self) -> Result<()> {
        let word = self.one_of(&[Keyword::Add, Keyword::Alter, Keyword::Drop])?;
        self.word(Keyword::Mapping)?;
        if word == Keyword::Drop {
            if self.parser.accept_keyword(Keyword::If) {
                self.parser.expect_keyword(Keyword::Exists)?;
                self.push(Part::Word(Keyword::If));
                self.push(Part::Word(Keyword::Exists));
            }
            self.word(Keyword::For)?;
            return self.names();
        }
        let has_types = if word == Keyword::Add {
            self.word(Keyword::For)?;
            true
        } else {
            self.optional(Keyword::For)
        };
        if has_types {
            self.names()?;
        }
        if word == Keyword::Alter && (!has_types || self.at(Keyword::Replace)) {
            self.word(Keyword::Replace)?;
            self.any_name()?;
            self.word(Keyword::With)?;
            return self.any_name();
        }
        self.word(Keyword::With)?;
        self.list(Self::any_name)
    }

    fn alter_type(&mut self) -> Result<()> {
        if self.at(Keyword::Set) {
            return self.set_definition();
        }
        if self.optional_words(&[Keyword::Rename, Keyword::Value])? {
            self.string()?;
            self.word(Keyword::To)?;
            return self.string();
        }
        if self.at(Keyword::Add) && self.next_is(Keyword::Value) {
            self.words(&[Keyword::Add, Keyword::Value])?;
            self.optional_words(&[Keyword::If, Keyword::Not, Keyword::Exists])?;
            self.string()?;
            if self.optional(Keyword::Before) || self.optional(Keyword::After) {
                self.string()?;
            }
            return Ok(());
        }
        self.list(|r| {
            let word = r.one_of(&[Keyword::Add, Keyword::Drop, Keyword::Alter])?;
            r.word(Keyword::Attribute)?;
            match word {
                Keyword::Add => r.attribute()?,
                Keyword::Drop => {
                    r.if_exists();
                    r.name()?;
                }
                _ => {
                    r.name()?;
                    if r.parser.accept_keyword(Keyword::Set) {
                        r.parser.expect_keyword(Keyword::Data)?;
                    }
                    r.word(Keyword::Type)?;
                    r.type_name()?;
                    r.optional_collation()?;
                }
            }
            r.cascade();
            Ok(())
        })
    }
}

/// What an item of a publication says that it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PublicationKind {
    Table,
    Schema,
    /// The same as the item before it.
    Continuation,
}

struct PublicationItem {
    at: u32,
    kind: PublicationKind,
    name: Vec<Part>,
    /// A name without qualifiers, ONLY and `*`, which may be a schema.
    is_name: bool,
    has_columns: bool,
    has_where: bool,
}
