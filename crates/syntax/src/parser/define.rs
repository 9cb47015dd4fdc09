//! CREATE, ALTER and DROP: which statement the words behind them begin.

use super::Parser;
use super::record::Recorder;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{
    ChangeOwner, Name, Object, ObjectName, ObjectReference, ObjectType, Part, Persistence, Rename,
    RenamedPart, SetSchema, Statement,
};
use firn_base::Result;

impl Parser<'_> {
    // CREATE.

    pub(super) fn create(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Create)?;
        if self.accept_keyword(Keyword::Or) {
            self.expect_keyword(Keyword::Replace)?;
            let persistence = self.create_persistence()?;
            if persistence != Persistence::Permanent
                || matches!(self.keyword(), Some(Keyword::View | Keyword::Recursive))
            {
                return self.create_view(true, persistence);
            }
            return self.create_replaceable(true);
        }
        let persistence = self.create_persistence()?;
        match self.keyword() {
            Some(Keyword::Table) => return self.create_table(persistence, false, true),
            Some(Keyword::Sequence) => return self.create_sequence(persistence),
            Some(Keyword::View | Keyword::Recursive) => return self.create_view(false, persistence),
            Some(Keyword::Materialized) if persistence != Persistence::Temporary => {
                return self.create_materialized_view(persistence);
            }
            _ if persistence != Persistence::Permanent => return self.unexpected(),
            _ => {}
        }
        match self.keyword() {
            Some(Keyword::Unique | Keyword::Index) => self.create_index(),
            Some(Keyword::Schema) => self.create_schema(),
            Some(Keyword::Role | Keyword::Group) => self.create_role(),
            Some(Keyword::User) if !self.next_is(Keyword::Mapping) => self.create_role(),
            Some(Keyword::User) => {
                // MAPPING may be a role.
                if self.peek(2) == TokenKind::Keyword(Keyword::For)
                    || self.peek(2) == TokenKind::Keyword(Keyword::If)
                {
                    self.create_other()
                } else {
                    self.create_role()
                }
            }
            Some(Keyword::Foreign) if self.next_is(Keyword::Table) => {
                self.advance();
                self.create_table(Persistence::Permanent, true, false)
            }
            _ => self.create_other(),
        }
    }

    /// What CREATE SCHEMA may make, behind CREATE.
    pub(super) fn create_in_schema(&mut self) -> Result<Statement> {
        if self.accept_keyword(Keyword::Or) {
            self.expect_keyword(Keyword::Replace)?;
            if matches!(self.keyword(), Some(Keyword::Trigger | Keyword::Constraint)) {
                return self.create_replaceable(true);
            }
            let persistence = self.create_persistence()?;
            return self.create_view(true, persistence);
        }
        let persistence = self.create_persistence()?;
        match self.keyword() {
            Some(Keyword::Table) => self.create_table(persistence, false, false),
            Some(Keyword::Sequence) => self.create_sequence(persistence),
            Some(Keyword::View | Keyword::Recursive) => self.create_view(false, persistence),
            Some(Keyword::Unique | Keyword::Index) if persistence == Persistence::Permanent => {
                self.create_index()
            }
            Some(Keyword::Trigger | Keyword::Constraint) if persistence == Persistence::Permanent => {
                self.create_replaceable(false)
            }
            _ => self.unexpected(),
        }
    }

    // ALTER.

    pub(super) fn alter(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Alter)?;
        match self.keyword() {
            Some(Keyword::Default) => return self.alter_default_privileges(),
            Some(Keyword::Role | Keyword::Group) => return self.alter_role(),
            Some(Keyword::User)
                if !self.next_is(Keyword::Mapping) || self.peek(2) != TokenKind::Keyword(Keyword::For) =>
            {
                return self.alter_role();
            }
            Some(Keyword::System) => {
                return self.record("ALTER SYSTEM", &[Keyword::Alter, Keyword::System], |r| {
                    r.parser.advance();
                    r.alter_system()
                });
            }
            Some(Keyword::User) => {
                return self.record("ALTER USER MAPPING", &[Keyword::Alter], |r| {
                    r.words(&[Keyword::User, Keyword::Mapping])?;
                    r.user_mapping()?;
                    r.generic_option_changes()
                });
            }
            _ => {}
        }
        let refused =
            [Keyword::Access, Keyword::Cast, Keyword::Column, Keyword::Constraint, Keyword::Transform];
        let Some(object_type) = self.optional_object_type(&refused)? else { return self.unexpected() };
        use ObjectType::*;
        match object_type {
            Table | Index | Sequence | View | MaterializedView | ForeignTable => {
                self.alter_relation(object_type)
            }
            _ => self.alter_object(object_type),
        }
    }

    fn alter_object(&mut self, object_type: ObjectType) -> Result<Statement> {
        use ObjectType::*;
        let may_exist = matches!(object_type, Policy | Statistics);
        let if_exists = may_exist && self.optional_if_exists();
        let name = match object_type {
            Type | Domain => ObjectReference::Name(self.any_name()?),
            Policy | Rule | Trigger => {
                let name = self.name()?;
                self.expect_keyword(Keyword::On)?;
                ObjectReference::On { name, relation: self.relation_name()? }
            }
            _ => self.object_reference(object_type)?,
        };
        let object = Object { object_type, name };
        if let Some(statement) = self.optional_common_change(&object, if_exists)? {
            return Ok(statement);
        }
        if if_exists && object_type == Policy {
            return self.unexpected();
        }
        self.record(alter_tag(object_type), &[Keyword::Alter], |r| {
            if if_exists {
                r.push(Part::Words(object_type.words()));
                r.push(Part::Word(Keyword::If));
                r.push(Part::Word(Keyword::Exists));
                r.push(Part::Reference(Box::new(object.name)));
            } else {
                r.push(Part::Object(Box::new(object)));
            }
            r.alter_rest(object_type)
        })
    }

    /// RENAME TO, SET SCHEMA, OWNER TO, DEPENDS ON EXTENSION.
    fn optional_common_change(&mut self, object: &Object, if_exists: bool) -> Result<Option<Statement>> {
        use ObjectType::*;
        let object_type = object.object_type;
        let copy = || object.clone();
        let next = self.peek(1);
        if self.at_keyword(Keyword::Rename) && (!if_exists || object_type == Policy) {
            let part = match (object_type, next) {
                (Operator | Extension | LargeObject, _) => return Ok(None),
                (Domain, TokenKind::Keyword(Keyword::Constraint)) => {
                    self.advance();
                    self.advance();
                    RenamedPart::Constraint(self.name()?)
                }
                (Type, TokenKind::Keyword(Keyword::Attribute)) => {
                    self.advance();
                    self.advance();
                    RenamedPart::Attribute(self.name()?)
                }
                (Type, TokenKind::Keyword(Keyword::Value)) => return Ok(None),
                _ => {
                    self.advance();
                    RenamedPart::Object
                }
            };
            self.expect_keyword(Keyword::To)?;
            let new_name: Name = self.name()?;
            let cascade = matches!(part, RenamedPart::Attribute(_)) && self.optional_cascade();
            let rename = Rename { object: copy(), if_exists, part, new_name, cascade };
            return Ok(Some(Statement::Rename(Box::new(rename))));
        }
        if if_exists {
            return Ok(None);
        }
        if self.at_keyword(Keyword::Owner)
            && !matches!(
                object_type,
                Extension | Policy | Rule | Trigger | TextSearchParser | TextSearchTemplate
            )
            // OWNER is an option of databases as well.
            && (object_type != Database || next == TokenKind::Keyword(Keyword::To))
        {
            self.expect_keywords(&[Keyword::Owner, Keyword::To])?;
            let owner = self.role()?;
            return Ok(Some(Statement::ChangeOwner(Box::new(ChangeOwner { object: copy(), owner }))));
        }
        let is_function = matches!(object_type, Function | Procedure | Routine);
        let is_schema = self.at_keyword(Keyword::Set)
            && next == TokenKind::Keyword(Keyword::Schema)
            && (!is_function || Self::is_name(self.peek(2)));
        if is_schema
            && matches!(
                object_type,
                Aggregate
                    | Collation
                    | Conversion
                    | Domain
                    | Extension
                    | Function
                    | Operator
                    | OperatorClass
                    | OperatorFamily
                    | Procedure
                    | Routine
                    | Statistics
                    | TextSearchParser
                    | TextSearchDictionary
                    | TextSearchTemplate
                    | TextSearchConfiguration
                    | Type
            )
        {
            self.advance();
            self.advance();
            let schema = self.name()?;
            return Ok(Some(Statement::SetSchema(Box::new(SetSchema { object: copy(), if_exists, schema }))));
        }
        if (is_function || object_type == Trigger) && self.begins_depends() {
            return Ok(Some(self.depends(copy())?));
        }
        Ok(None)
    }

    /// Whether [NO] DEPENDS stands here.
    pub(super) fn begins_depends(&mut self) -> bool {
        self.at_keyword(Keyword::Depends) || (self.at_keyword(Keyword::No) && self.next_is(Keyword::Depends))
    }

    /// `[NO] DEPENDS ON EXTENSION name`
    pub(super) fn depends(&mut self, object: Object) -> Result<Statement> {
        self.record(alter_tag(object.object_type), &[Keyword::Alter], |r| {
            r.push(Part::Object(Box::new(object)));
            r.optional(Keyword::No);
            r.words(&[Keyword::Depends, Keyword::On, Keyword::Extension])?;
            r.name()
        })
    }

    // DROP.

    pub(super) fn drop(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Drop)?;
        match self.keyword() {
            Some(Keyword::Owned) => self.record("DROP OWNED", &[Keyword::Drop], |r| {
                r.words(&[Keyword::Owned, Keyword::By])?;
                r.roles()?;
                r.cascade();
                Ok(())
            }),
            Some(Keyword::Database) => self.record("DROP DATABASE", &[Keyword::Drop], |r| {
                r.word(Keyword::Database)?;
                r.if_exists();
                r.name()?;
                let has_with = r.parser.optional_with_word();
                if has_with || r.parser.at_symbol(b'(') {
                    r.parenthesised(|r| r.list(|r| r.word(Keyword::Force)))?;
                }
                Ok(())
            }),
            Some(Keyword::User)
                if self.next_is(Keyword::Mapping)
                    && matches!(self.peek(2), TokenKind::Keyword(Keyword::For | Keyword::If)) =>
            {
                self.record("DROP USER MAPPING", &[Keyword::Drop], |r| {
                    r.words(&[Keyword::User, Keyword::Mapping])?;
                    if r.optional(Keyword::If) {
                        r.word(Keyword::Exists)?;
                    }
                    r.user_mapping()
                })
            }
            _ => self.drop_objects(),
        }
    }
}

impl Recorder<'_, '_> {
    /// `FOR role SERVER name`
    pub(super) fn user_mapping(&mut self) -> Result<()> {
        self.word(Keyword::For)?;
        if !self.optional(Keyword::User) {
            self.role()?;
        }
        self.word(Keyword::Server)?;
        self.name()
    }

    /// Behind SYSTEM.
    fn alter_system(&mut self) -> Result<()> {
        if self.at(Keyword::Reset) {
            self.word(Keyword::Reset)?;
            if self.optional(Keyword::All) {
                return Ok(());
            }
            let name: ObjectName = self.parser.setting_name()?;
            self.push(Part::ObjectName(Box::new(name)));
            return Ok(());
        }
        self.word(Keyword::Set)?;
        let name = self.parser.setting_name()?;
        let setting = self.parser.setting_value(name)?;
        self.push(Part::Set(Box::new(setting)));
        Ok(())
    }
}

/// The command tag of ALTER of a kind of object.
fn alter_tag(object_type: ObjectType) -> &'static str {
    use ObjectType::*;
    match object_type {
        AccessMethod => "ALTER ACCESS METHOD",
        Aggregate => "ALTER AGGREGATE",
        Cast => "ALTER CAST",
        Collation => "ALTER COLLATION",
        Column | Constraint | Table => "ALTER TABLE",
        Conversion => "ALTER CONVERSION",
        Database => "ALTER DATABASE",
        Domain | DomainConstraint => "ALTER DOMAIN",
        EventTrigger => "ALTER EVENT TRIGGER",
        Extension => "ALTER EXTENSION",
        ForeignDataWrapper => "ALTER FOREIGN DATA WRAPPER",
        ForeignTable => "ALTER FOREIGN TABLE",
        Function => "ALTER FUNCTION",
        Index => "ALTER INDEX",
        Language => "ALTER LANGUAGE",
        LargeObject => "ALTER LARGE OBJECT",
        MaterializedView => "ALTER MATERIALIZED VIEW",
        Operator => "ALTER OPERATOR",
        OperatorClass => "ALTER OPERATOR CLASS",
        OperatorFamily => "ALTER OPERATOR FAMILY",
        Parameter => "ALTER SYSTEM",
        Policy => "ALTER POLICY",
        Procedure => "ALTER PROCEDURE",
        Publication => "ALTER PUBLICATION",
        Role => "ALTER ROLE",
        Routine => "ALTER ROUTINE",
        Rule => "ALTER RULE",
        Schema => "ALTER SCHEMA",
        Sequence => "ALTER SEQUENCE",
        Server => "ALTER SERVER",
        Statistics => "ALTER STATISTICS",
        Subscription => "ALTER SUBSCRIPTION",
        Tablespace => "ALTER TABLESPACE",
        TextSearchConfiguration => "ALTER TEXT SEARCH CONFIGURATION",
        TextSearchDictionary => "ALTER TEXT SEARCH DICTIONARY",
        TextSearchParser => "ALTER TEXT SEARCH PARSER",
        TextSearchTemplate => "ALTER TEXT SEARCH TEMPLATE",
        Transform => "ALTER TRANSFORM",
        Trigger => "ALTER TRIGGER",
        Type => "ALTER TYPE",
        View => "ALTER VIEW",
    }
}
