//! ALTER of relations.

use super::Parser;
use super::constraint::Allowed;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{
    AlterSequence, AlterTable, AlterTableAction, AlterTableKind, ColumnChange, DetachMode, Firing,
    GenericOptionChange, IdentityChange, MoveAll, Name, Object, ObjectReference, ObjectType, Relation,
    Rename, RenamedPart, ReplicaIdentity, SequenceOptionKind, SetSchema, Statement, TriggerChoice,
};
use firn_base::{Result, SqlState};

impl Parser<'_> {
    /// Behind the kind of the relation: TABLE, VIEW and their relatives.
    pub(super) fn alter_relation(&mut self, object_type: ObjectType) -> Result<Statement> {
        let may_move =
            matches!(object_type, ObjectType::Table | ObjectType::Index | ObjectType::MaterializedView);
        if may_move && self.at_keyword(Keyword::All) {
            return self.move_all(object_type);
        }
        let if_exists = self.optional_if_exists();
        let is_table = matches!(object_type, ObjectType::Table | ObjectType::ForeignTable);
        let relation = if is_table {
            self.relation()?
        } else {
            Relation { name: self.relation_name()?, is_only: false }
        };
        if self.at_keyword(Keyword::Rename) {
            return self.rename_relation(object_type, if_exists, relation);
        }
        if self.at_keyword(Keyword::Set) && self.next_is(Keyword::Schema) && object_type != ObjectType::Index
        {
            self.advance();
            self.advance();
            let object = Object { object_type, name: ObjectReference::Relation(relation) };
            return Ok(Statement::SetSchema(Box::new(SetSchema { object, if_exists, schema: self.name()? })));
        }
        let may_depend =
            matches!(object_type, ObjectType::Index | ObjectType::MaterializedView) && !if_exists;
        if may_depend && self.begins_depends() {
            let object = Object { object_type, name: ObjectReference::Name(relation.name) };
            return self.depends(object);
        }
        if object_type == ObjectType::Sequence && self.begins_sequence_option() {
            let options = self.sequence_options()?;
            let name = relation.name;
            return Ok(Statement::AlterSequence(Box::new(AlterSequence { if_exists, name, options })));
        }
        let start = self.start();
        let is_attach = self.at_keyword(Keyword::Attach)
            && (object_type == ObjectType::Table || (object_type == ObjectType::Index && !if_exists));
        let actions = if is_attach || (self.at_keyword(Keyword::Detach) && object_type == ObjectType::Table) {
            let kind = self.partition_action(object_type)?;
            vec![AlterTableAction { span: self.span_from(start), kind }]
        } else {
            self.list(Self::alter_table_action)?
        };
        Ok(Statement::AlterTable(Box::new(AlterTable { object_type, if_exists, relation, actions })))
    }

    fn move_all(&mut self, object_type: ObjectType) -> Result<Statement> {
        self.expect_keywords(&[Keyword::All, Keyword::In, Keyword::Tablespace])?;
        let from = self.name()?;
        let mut owners = Vec::new();
        if self.accept_keyword(Keyword::Owned) {
            self.expect_keyword(Keyword::By)?;
            owners = self.list(Self::role)?;
        }
        self.expect_keywords(&[Keyword::Set, Keyword::Tablespace])?;
        let to = self.name()?;
        let nowait = self.accept_keyword(Keyword::Nowait);
        Ok(Statement::MoveAll(Box::new(MoveAll { object_type, from, owners, to, nowait })))
    }

    fn rename_relation(
        &mut self,
        object_type: ObjectType,
        if_exists: bool,
        relation: Relation,
    ) -> Result<Statement> {
        self.expect_keyword(Keyword::Rename)?;
        let has_columns = !matches!(object_type, ObjectType::Index | ObjectType::Sequence);
        let part = if self.at_keyword(Keyword::To) {
            RenamedPart::Object
        } else if object_type == ObjectType::Table && self.accept_keyword(Keyword::Constraint) {
            RenamedPart::Constraint(self.name()?)
        } else if has_columns {
            self.accept_keyword(Keyword::Column);
            RenamedPart::Column(self.name()?)
        } else {
            return self.unexpected();
        };
        self.expect_keyword(Keyword::To)?;
        let new_name = self.name()?;
        let object = Object { object_type, name: ObjectReference::Relation(relation) };
        Ok(Statement::Rename(Box::new(Rename { object, if_exists, part, new_name, cascade: false })))
    }

    fn partition_action(&mut self, object_type: ObjectType) -> Result<AlterTableKind> {
        let is_attach = self.accept_keyword(Keyword::Attach);
        if !is_attach {
            self.expect_keyword(Keyword::Detach)?;
        }
        self.expect_keyword(Keyword::Partition)?;
        let name = self.relation_name()?;
        if is_attach {
            let bound = if object_type == ObjectType::Index { None } else { Some(self.partition_bound()?) };
            return Ok(AlterTableKind::AttachPartition { name, bound });
        }
        let mode = if self.accept_keyword(Keyword::Concurrently) {
            DetachMode::Concurrently
        } else if self.accept_keyword(Keyword::Finalize) {
            DetachMode::Finalize
        } else {
            DetachMode::Plain
        };
        Ok(AlterTableKind::DetachPartition { name, mode })
    }

    fn alter_table_action(&mut self) -> Result<AlterTableAction> {
        let start = self.start();
        let kind = self.alter_table_kind()?;
        Ok(AlterTableAction { span: self.span_from(start), kind })
    }

    fn alter_table_kind(&mut self) -> Result<AlterTableKind> {
        use AlterTableKind::*;
        let Some(keyword) = self.keyword() else { return self.unexpected() };
        if keyword == Keyword::Options {
            return Ok(Options(self.generic_option_changes()?));
        }
        if !matches!(
            keyword,
            Keyword::Add
                | Keyword::Alter
                | Keyword::Drop
                | Keyword::Validate
                | Keyword::Set
                | Keyword::Cluster
                | Keyword::Enable
                | Keyword::Disable
                | Keyword::Inherit
                | Keyword::No
                | Keyword::Of
                | Keyword::Not
                | Keyword::Owner
                | Keyword::Reset
                | Keyword::Replica
                | Keyword::Force
        ) || self.begins_pair()
        {
            return self.unexpected();
        }
        self.advance();
        Ok(match keyword {
            Keyword::Add => {
                if self.begins_table_constraint() {
                    return Ok(AddConstraint(Box::new(self.table_constraint()?)));
                }
                self.accept_keyword(Keyword::Column);
                let if_not_exists = self.optional_if_not_exists()?;
                AddColumn { if_not_exists, column: Box::new(self.column_def()?) }
            }
            Keyword::Alter => self.alter_column_or_constraint()?,
            Keyword::Drop => {
                if self.accept_keyword(Keyword::Constraint) {
                    let if_exists = self.optional_if_exists();
                    let name = self.name()?;
                    return Ok(DropConstraint { if_exists, name, cascade: self.optional_cascade() });
                }
                self.accept_keyword(Keyword::Column);
                let if_exists = self.optional_if_exists();
                let name = self.name()?;
                DropColumn { if_exists, name, cascade: self.optional_cascade() }
            }
            Keyword::Validate => {
                self.expect_keyword(Keyword::Constraint)?;
                ValidateConstraint(self.name()?)
            }
            Keyword::Set => self.alter_table_set()?,
            Keyword::Cluster => {
                self.expect_keyword(Keyword::On)?;
                ClusterOn(self.name()?)
            }
            Keyword::Enable => self.enable()?,
            Keyword::Disable => match self.keyword() {
                Some(Keyword::Row) => {
                    self.row_level_security()?;
                    RowSecurity { enable: false }
                }
                _ => self.trigger_or_rule(Firing::Disable)?,
            },
            Keyword::Inherit => Inherit(self.relation_name()?),
            Keyword::No => {
                if self.accept_keyword(Keyword::Force) {
                    self.row_level_security()?;
                    return Ok(ForceRowSecurity { force: false });
                }
                self.expect_keyword(Keyword::Inherit)?;
                NoInherit(self.relation_name()?)
            }
            Keyword::Of => Of(self.any_name()?),
            Keyword::Not => {
                self.expect_keyword(Keyword::Of)?;
                NotOf
            }
            Keyword::Owner => {
                self.expect_keyword(Keyword::To)?;
                OwnerTo(self.role()?)
            }
            Keyword::Reset => ResetOptions(self.rel_options()?),
            Keyword::Replica => {
                self.expect_keyword(Keyword::Identity)?;
                ReplicaIdentity(self.replica_identity()?)
            }
            _ => {
                self.row_level_security()?;
                ForceRowSecurity { force: true }
            }
        })
    }

    fn row_level_security(&mut self) -> Result<()> {
        self.expect_keywords(&[Keyword::Row, Keyword::Level, Keyword::Security])
    }

    fn replica_identity(&mut self) -> Result<ReplicaIdentity> {
        let identity = match self.keyword() {
            Some(Keyword::Nothing) => ReplicaIdentity::Nothing,
            Some(Keyword::Full) => ReplicaIdentity::Full,
            Some(Keyword::Default) => ReplicaIdentity::Default,
            _ => {
                self.expect_keywords(&[Keyword::Using, Keyword::Index])?;
                return Ok(ReplicaIdentity::Index(self.name()?));
            }
        };
        self.advance();
        Ok(identity)
    }

    fn enable(&mut self) -> Result<AlterTableKind> {
        let firing = match self.keyword() {
            Some(Keyword::Row) => {
                self.row_level_security()?;
                return Ok(AlterTableKind::RowSecurity { enable: true });
            }
            Some(Keyword::Always) => Firing::EnableAlways,
            Some(Keyword::Replica) => Firing::EnableReplica,
            _ => return self.trigger_or_rule(Firing::Enable),
        };
        self.advance();
        self.trigger_or_rule(firing)
    }

    fn trigger_or_rule(&mut self, firing: Firing) -> Result<AlterTableKind> {
        if self.accept_keyword(Keyword::Rule) {
            return Ok(AlterTableKind::Rule { firing, name: self.name()? });
        }
        self.expect_keyword(Keyword::Trigger)?;
        let may_be_group = matches!(firing, Firing::Enable | Firing::Disable);
        let trigger = if may_be_group && self.accept_keyword(Keyword::All) {
            TriggerChoice::All
        } else if may_be_group && self.accept_keyword(Keyword::User) {
            TriggerChoice::User
        } else {
            TriggerChoice::Name(self.name()?)
        };
        Ok(AlterTableKind::Trigger { firing, trigger })
    }

    /// Behind SET.
    fn alter_table_set(&mut self) -> Result<AlterTableKind> {
        use AlterTableKind::*;
        Ok(match self.keyword() {
            Some(Keyword::Without) => {
                self.advance();
                if self.accept_keyword(Keyword::Oids) {
                    SetWithoutOids
                } else {
                    self.expect_keyword(Keyword::Cluster)?;
                    SetWithoutCluster
                }
            }
            Some(Keyword::Logged) => {
                self.advance();
                SetLogged
            }
            Some(Keyword::Unlogged) => {
                self.advance();
                SetUnlogged
            }
            Some(Keyword::Access) => {
                self.expect_keywords(&[Keyword::Access, Keyword::Method])?;
                SetAccessMethod(self.name()?)
            }
            Some(Keyword::Tablespace) => {
                self.advance();
                SetTablespace(self.name()?)
            }
            _ => SetOptions(self.rel_options()?),
        })
    }

    /// Behind ALTER.
    fn alter_column_or_constraint(&mut self) -> Result<AlterTableKind> {
        if self.accept_keyword(Keyword::Constraint) {
            let name = self.name()?;
            let attributes = self.constraint_attributes(Allowed::deferrable("FOREIGN KEY"))?;
            return Ok(AlterTableKind::AlterConstraint { name, attributes });
        }
        self.accept_keyword(Keyword::Column);
        if self.at(TokenKind::Integer) {
            let at = self.start();
            let number = self.integer()?;
            self.expect_keywords(&[Keyword::Set, Keyword::Statistics])?;
            let target = self.signed_integer()?;
            if !(1..=i32::from(i16::MAX)).contains(&number) {
                let message = "column number must be in range from 1 to 32767";
                return self.error(SqlState::INVALID_PARAMETER_VALUE, message, at);
            }
            return Ok(AlterTableKind::SetStatisticsOfNumber { number, target });
        }
        let name = self.name()?;
        Ok(AlterTableKind::AlterColumn { name, change: self.column_change()? })
    }

    fn column_change(&mut self) -> Result<ColumnChange> {
        use ColumnChange::*;
        let Some(keyword) = self.keyword() else { return self.unexpected() };
        Ok(match keyword {
            Keyword::Options => Options(self.generic_option_changes()?),
            Keyword::Type => self.column_type()?,
            Keyword::Add => {
                self.expect_keywords(&[Keyword::Add, Keyword::Generated])?;
                let always = self.generated_when()?;
                self.expect_keywords(&[Keyword::As, Keyword::Identity])?;
                AddIdentity { always, options: self.optional_identity_options()? }
            }
            Keyword::Reset => {
                self.advance();
                ResetOptions(self.rel_options()?)
            }
            Keyword::Restart => self.identity_changes()?,
            Keyword::Drop => {
                self.advance();
                match self.keyword() {
                    Some(Keyword::Default) => {
                        self.advance();
                        DropDefault
                    }
                    Some(Keyword::Not) => {
                        self.expect_keywords(&[Keyword::Not, Keyword::Null])?;
                        DropNotNull
                    }
                    Some(Keyword::Expression) => {
                        self.advance();
                        DropExpression { if_exists: self.expect_if_exists()? }
                    }
                    _ => {
                        self.expect_keyword(Keyword::Identity)?;
                        DropIdentity { if_exists: self.expect_if_exists()? }
                    }
                }
            }
            Keyword::Set => match self.peek(1) {
                TokenKind::Keyword(
                    Keyword::Default
                    | Keyword::Not
                    | Keyword::Statistics
                    | Keyword::Storage
                    | Keyword::Compression
                    | Keyword::Data,
                )
                | TokenKind::Symbol(b'(') => {
                    self.advance();
                    self.column_set()?
                }
                _ => self.identity_changes()?,
            },
            _ => return self.unexpected(),
        })
    }

    /// IF EXISTS or nothing, where no name may follow.
    pub(super) fn expect_if_exists(&mut self) -> Result<bool> {
        let found = self.accept_keyword(Keyword::If);
        if found {
            self.expect_keyword(Keyword::Exists)?;
        }
        Ok(found)
    }

    /// Behind SET of a column.
    fn column_set(&mut self) -> Result<ColumnChange> {
        use ColumnChange::*;
        Ok(match self.keyword() {
            Some(Keyword::Default) => {
                self.advance();
                SetDefault(self.expr()?)
            }
            Some(Keyword::Not) => {
                self.expect_keywords(&[Keyword::Not, Keyword::Null])?;
                SetNotNull
            }
            Some(Keyword::Statistics) => {
                self.advance();
                SetStatistics(self.signed_integer()?)
            }
            Some(Keyword::Storage) => {
                self.advance();
                SetStorage(self.name()?)
            }
            Some(Keyword::Compression) => SetCompression(self.compression()?),
            Some(Keyword::Data) => {
                self.advance();
                self.column_type()?
            }
            _ => SetOptions(self.rel_options()?),
        })
    }

    fn column_type(&mut self) -> Result<ColumnChange> {
        self.expect_keyword(Keyword::Type)?;
        let type_name = self.type_name()?;
        let collation = if self.accept_keyword(Keyword::Collate) { Some(self.any_name()?) } else { None };
        let using = if self.accept_keyword(Keyword::Using) { Some(self.expr()?) } else { None };
        Ok(ColumnChange::Type { type_name, collation, using })
    }

    fn identity_changes(&mut self) -> Result<ColumnChange> {
        let mut changes = Vec::new();
        loop {
            if self.at_keyword(Keyword::Restart) {
                changes.push(IdentityChange::Option(self.sequence_option()?));
            } else if self.accept_keyword(Keyword::Set) {
                if self.accept_keyword(Keyword::Generated) {
                    changes.push(IdentityChange::Generated { always: self.generated_when()? });
                    continue;
                }
                let at = self.start();
                let option = self.sequence_option()?;
                let refused = match option.kind {
                    SequenceOptionKind::Type(_) => "as",
                    SequenceOptionKind::OwnedBy(_) => "owned_by",
                    SequenceOptionKind::Restart(_) => "restart",
                    _ => {
                        changes.push(IdentityChange::Option(option));
                        continue;
                    }
                };
                let message = format!("sequence option \"{refused}\" not supported here");
                return self.error(SqlState::SYNTAX_ERROR, message, at);
            } else {
                return Ok(ColumnChange::SetIdentity(changes));
            }
        }
    }

    /// `OPTIONS (…)` with ADD, SET and DROP (PostgreSQL's alter_generic_options).
    pub(super) fn generic_option_changes(&mut self) -> Result<Vec<GenericOptionChange>> {
        self.expect_keyword(Keyword::Options)?;
        self.parenthesised_list(|parser| {
            // The words are names of options as well, if a string follows.
            if parser.peek(1).is_string() {
                return Ok(GenericOptionChange::Add(parser.generic_option()?));
            }
            match parser.keyword() {
                Some(Keyword::Set) => {
                    parser.advance();
                    Ok(GenericOptionChange::Set(parser.generic_option()?))
                }
                Some(Keyword::Drop) => {
                    parser.advance();
                    Ok(GenericOptionChange::Drop(parser.label()?))
                }
                Some(Keyword::Add) => {
                    parser.advance();
                    Ok(GenericOptionChange::Add(parser.generic_option()?))
                }
                _ => Ok(GenericOptionChange::Add(parser.generic_option()?)),
            }
        })
    }

    /// The name of an object as a name without qualifiers.
    pub(super) fn simple_reference(&mut self) -> Result<ObjectReference> {
        let name: Name = self.name()?;
        Ok(ObjectReference::Name(crate::tree::ObjectName::simple(name)))
    }
}
