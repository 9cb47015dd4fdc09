//! ALTER of relations, RENAME, SET SCHEMA, OWNER TO.

use super::Printer;
use crate::tree::{
    AlterSequence, AlterTable, AlterTableAction, AlterTableKind, ChangeOwner, ColumnChange, DetachMode,
    Firing, GenericOptionChange, IdentityChange, MoveAll, Name, Rename, RenamedPart, ReplicaIdentity,
    SequenceOptionKind, SetSchema, TriggerChoice,
};

impl Printer {
    pub(super) fn alter_table(&mut self, alter: &AlterTable) {
        self.put("ALTER ");
        self.put(alter.object_type.words());
        self.put(" ");
        self.if_exists(alter.if_exists);
        self.relation(&alter.relation);
        self.put(" ");
        self.list(&alter.actions, Self::alter_table_action);
    }

    pub(super) fn alter_sequence(&mut self, alter: &AlterSequence) {
        self.put("ALTER SEQUENCE ");
        self.if_exists(alter.if_exists);
        self.object_name(&alter.name);
        self.put(" ");
        self.sequence_options(&alter.options);
    }

    pub(super) fn move_all(&mut self, alter: &MoveAll) {
        self.put("ALTER ");
        self.put(alter.object_type.words());
        self.put(" ALL IN TABLESPACE ");
        self.name(&alter.from);
        if !alter.owners.is_empty() {
            self.put(" OWNED BY ");
            self.list(&alter.owners, Self::role);
        }
        self.put(" SET TABLESPACE ");
        self.name(&alter.to);
        if alter.nowait {
            self.put(" NOWAIT");
        }
    }

    fn word_and_name(&mut self, word: &str, name: &Name) {
        self.put(word);
        self.name(name);
    }

    fn alter_table_action(&mut self, action: &AlterTableAction) {
        use AlterTableKind::*;
        match &action.kind {
            AddColumn { if_not_exists, column } => {
                self.put("ADD COLUMN ");
                self.if_not_exists(*if_not_exists);
                self.column_def(column);
            }
            DropColumn { if_exists, name, cascade } => {
                self.put("DROP COLUMN ");
                self.if_exists(*if_exists);
                self.name(name);
                self.cascade(*cascade);
            }
            AlterColumn { name, change } => {
                self.word_and_name("ALTER COLUMN ", name);
                self.put(" ");
                self.column_change(change);
            }
            SetStatisticsOfNumber { number, target } => {
                self.put("ALTER COLUMN ");
                self.integer(*number);
                self.put(" SET STATISTICS ");
                self.integer(*target);
            }
            AddConstraint(constraint) => {
                self.put("ADD ");
                self.table_constraint(constraint);
            }
            AlterConstraint { name, attributes } => {
                self.word_and_name("ALTER CONSTRAINT ", name);
                self.constraint_attributes(*attributes);
            }
            ValidateConstraint(name) => self.word_and_name("VALIDATE CONSTRAINT ", name),
            DropConstraint { if_exists, name, cascade } => {
                self.put("DROP CONSTRAINT ");
                self.if_exists(*if_exists);
                self.name(name);
                self.cascade(*cascade);
            }
            SetWithoutOids => self.put("SET WITHOUT OIDS"),
            ClusterOn(name) => self.word_and_name("CLUSTER ON ", name),
            SetWithoutCluster => self.put("SET WITHOUT CLUSTER"),
            SetLogged => self.put("SET LOGGED"),
            SetUnlogged => self.put("SET UNLOGGED"),
            Trigger { firing, trigger } => {
                self.firing(*firing);
                self.put(" TRIGGER ");
                match trigger {
                    TriggerChoice::Name(name) => self.name(name),
                    TriggerChoice::All => self.put("ALL"),
                    TriggerChoice::User => self.put("USER"),
                }
            }
            Rule { firing, name } => {
                self.firing(*firing);
                self.word_and_name(" RULE ", name);
            }
            Inherit(name) => {
                self.put("INHERIT ");
                self.object_name(name);
            }
            NoInherit(name) => {
                self.put("NO INHERIT ");
                self.object_name(name);
            }
            Of(name) => {
                self.put("OF ");
                self.object_name(name);
            }
            NotOf => self.put("NOT OF"),
            OwnerTo(role) => {
                self.put("OWNER TO ");
                self.role(role);
            }
            SetAccessMethod(name) => self.word_and_name("SET ACCESS METHOD ", name),
            SetTablespace(name) => self.word_and_name("SET TABLESPACE ", name),
            SetOptions(options) => {
                self.put("SET ");
                self.rel_options(options);
            }
            ResetOptions(options) => {
                self.put("RESET ");
                self.rel_options(options);
            }
            ReplicaIdentity(identity) => self.replica_identity(identity),
            RowSecurity { enable: true } => self.put("ENABLE ROW LEVEL SECURITY"),
            RowSecurity { enable: false } => self.put("DISABLE ROW LEVEL SECURITY"),
            ForceRowSecurity { force: true } => self.put("FORCE ROW LEVEL SECURITY"),
            ForceRowSecurity { force: false } => self.put("NO FORCE ROW LEVEL SECURITY"),
            Options(changes) => self.generic_option_changes(changes),
            AttachPartition { name, bound } => {
                self.put("ATTACH PARTITION ");
                self.object_name(name);
                if let Some(bound) = bound {
                    self.put(" ");
                    self.partition_bound(bound);
                }
            }
            DetachPartition { name, mode } => {
                self.put("DETACH PARTITION ");
                self.object_name(name);
                self.put(match mode {
                    DetachMode::Plain => "",
                    DetachMode::Concurrently => " CONCURRENTLY",
                    DetachMode::Finalize => " FINALIZE",
                });
            }
        }
    }

    fn firing(&mut self, firing: Firing) {
        self.put(match firing {
            Firing::Enable => "ENABLE",
            Firing::EnableAlways => "ENABLE ALWAYS",
            Firing::EnableReplica => "ENABLE REPLICA",
            Firing::Disable => "DISABLE",
        });
    }

    fn replica_identity(&mut self, identity: &ReplicaIdentity) {
        self.put("REPLICA IDENTITY ");
        match identity {
            ReplicaIdentity::Nothing => self.put("NOTHING"),
            ReplicaIdentity::Full => self.put("FULL"),
            ReplicaIdentity::Default => self.put("DEFAULT"),
            ReplicaIdentity::Index(name) => self.word_and_name("USING INDEX ", name),
        }
    }

    fn column_change(&mut self, change: &ColumnChange) {
        use ColumnChange::*;
        match change {
            SetDefault(value) => {
                self.put("SET DEFAULT ");
                self.expr(value);
            }
            DropDefault => self.put("DROP DEFAULT"),
            SetNotNull => self.put("SET NOT NULL"),
            DropNotNull => self.put("DROP NOT NULL"),
            DropExpression { if_exists } => {
                self.put(if *if_exists { "DROP EXPRESSION IF EXISTS" } else { "DROP EXPRESSION" });
            }
            SetStatistics(target) => {
                self.put("SET STATISTICS ");
                self.integer(*target);
            }
            SetOptions(options) => {
                self.put("SET ");
                self.rel_options(options);
            }
            ResetOptions(options) => {
                self.put("RESET ");
                self.rel_options(options);
            }
            SetStorage(name) => self.word_and_name("SET STORAGE ", name),
            SetCompression(name) => {
                self.put("SET COMPRESSION ");
                self.name_or_default(name);
            }
            AddIdentity { always, options } => {
                self.put("ADD ");
                self.generated_when(*always);
                self.put(" AS IDENTITY");
                self.identity_options(options);
            }
            SetIdentity(changes) => {
                for (index, change) in changes.iter().enumerate() {
                    self.put(if index > 0 { " " } else { "" });
                    match change {
                        IdentityChange::Generated { always } => {
                            self.put("SET ");
                            self.generated_when(*always);
                        }
                        IdentityChange::Option(option) => {
                            let is_restart = matches!(option.kind, SequenceOptionKind::Restart(_));
                            self.put(if is_restart { "" } else { "SET " });
                            self.sequence_option(option);
                        }
                    }
                }
            }
            DropIdentity { if_exists } => {
                self.put(if *if_exists { "DROP IDENTITY IF EXISTS" } else { "DROP IDENTITY" });
            }
            Type { type_name, collation, using } => {
                self.put("TYPE ");
                self.type_name(type_name);
                self.collation(collation.as_ref());
                self.clause(" USING ", using.as_ref());
            }
            Options(changes) => self.generic_option_changes(changes),
        }
    }

    fn generated_when(&mut self, always: bool) {
        self.put(if always { "GENERATED ALWAYS" } else { "GENERATED BY DEFAULT" });
    }

    pub(super) fn generic_option_changes(&mut self, changes: &[GenericOptionChange]) {
        self.put("OPTIONS ");
        self.parenthesised(changes, |printer, change| match change {
            GenericOptionChange::Add(option) => printer.generic_option(option),
            GenericOptionChange::Set(option) => {
                printer.put("SET ");
                printer.generic_option(option);
            }
            GenericOptionChange::Drop(name) => printer.word_and_name("DROP ", name),
        });
    }

    pub(super) fn rename(&mut self, rename: &Rename) {
        self.put("ALTER ");
        self.object(&rename.object, rename.if_exists);
        self.put(" RENAME");
        match &rename.part {
            RenamedPart::Object => {}
            RenamedPart::Column(name) => self.word_and_name(" COLUMN ", name),
            RenamedPart::Constraint(name) => self.word_and_name(" CONSTRAINT ", name),
            RenamedPart::Attribute(name) => self.word_and_name(" ATTRIBUTE ", name),
        }
        self.word_and_name(" TO ", &rename.new_name);
        self.cascade(rename.cascade);
    }

    pub(super) fn set_schema(&mut self, change: &SetSchema) {
        self.put("ALTER ");
        self.object(&change.object, change.if_exists);
        self.word_and_name(" SET SCHEMA ", &change.schema);
    }

    pub(super) fn change_owner(&mut self, change: &ChangeOwner) {
        self.put("ALTER ");
        self.object(&change.object, false);
        self.put(" OWNER TO ");
        self.role(&change.owner);
    }
}
