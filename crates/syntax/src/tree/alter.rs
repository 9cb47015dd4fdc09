//! ALTER TABLE and its relatives, and what may be changed of any object: its name, schema and owner.

use super::{
    ColumnDef, ConstraintAttributes, Expr, GenericOptionChange, Name, Object, ObjectName, ObjectType,
    PartitionBound, RelOption, Relation, Role, SequenceOption, TableConstraint, TypeName,
};
use crate::span::Span;

/// `ALTER TABLE`, `ALTER INDEX`, `ALTER SEQUENCE`, `ALTER VIEW`, `ALTER MATERIALIZED VIEW`, `ALTER FOREIGN TABLE`
#[derive(Clone, Debug, PartialEq)]
pub struct AlterTable {
    /// What kind of relation.
    pub object_type: ObjectType,
    /// IF EXISTS
    pub if_exists: bool,
    /// The relation.
    pub relation: Relation,
    /// One or more. ATTACH and DETACH stand alone.
    pub actions: Vec<AlterTableAction>,
}

/// An action of ALTER TABLE and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct AlterTableAction {
    /// Its place.
    pub span: Span,
    /// What is done.
    pub kind: AlterTableKind,
}

/// What ALTER TABLE does.
#[derive(Clone, Debug, PartialEq)]
pub enum AlterTableKind {
    /// ADD COLUMN
    AddColumn {
        /// IF NOT EXISTS
        if_not_exists: bool,
        /// The column.
        column: Box<ColumnDef>,
    },
    /// DROP COLUMN
    DropColumn {
        /// IF EXISTS
        if_exists: bool,
        /// The column.
        name: Name,
        /// CASCADE
        cascade: bool,
    },
    /// ALTER COLUMN
    AlterColumn {
        /// The column.
        name: Name,
        /// What is done with it.
        change: ColumnChange,
    },
    /// ALTER COLUMN number SET STATISTICS, of an index
    SetStatisticsOfNumber {
        /// From 1.
        number: i32,
        /// The target.
        target: i32,
    },
    /// ADD CONSTRAINT
    AddConstraint(Box<TableConstraint>),
    /// ALTER CONSTRAINT
    AlterConstraint {
        /// The constraint.
        name: Name,
        /// What it is from now on.
        attributes: ConstraintAttributes,
    },
    /// VALIDATE CONSTRAINT
    ValidateConstraint(Name),
    /// DROP CONSTRAINT
    DropConstraint {
        /// IF EXISTS
        if_exists: bool,
        /// The constraint.
        name: Name,
        /// CASCADE
        cascade: bool,
    },
    /// SET WITHOUT OIDS
    SetWithoutOids,
    /// CLUSTER ON
    ClusterOn(Name),
    /// SET WITHOUT CLUSTER
    SetWithoutCluster,
    /// SET LOGGED
    SetLogged,
    /// SET UNLOGGED
    SetUnlogged,
    /// ENABLE TRIGGER, DISABLE TRIGGER
    Trigger {
        /// When it fires from now on.
        firing: Firing,
        /// Which ones.
        trigger: TriggerChoice,
    },
    /// ENABLE RULE, DISABLE RULE
    Rule {
        /// When it applies from now on.
        firing: Firing,
        /// The rule.
        name: Name,
    },
    /// INHERIT
    Inherit(ObjectName),
    /// NO INHERIT
    NoInherit(ObjectName),
    /// OF
    Of(ObjectName),
    /// NOT OF
    NotOf,
    /// OWNER TO
    OwnerTo(Role),
    /// SET ACCESS METHOD
    SetAccessMethod(Name),
    /// SET TABLESPACE
    SetTablespace(Name),
    /// SET (…)
    SetOptions(Vec<RelOption>),
    /// RESET (…)
    ResetOptions(Vec<RelOption>),
    /// REPLICA IDENTITY
    ReplicaIdentity(ReplicaIdentity),
    /// ENABLE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY
    RowSecurity {
        /// ENABLE
        enable: bool,
    },
    /// FORCE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY
    ForceRowSecurity {
        /// FORCE
        force: bool,
    },
    /// OPTIONS
    Options(Vec<GenericOptionChange>),
    /// ATTACH PARTITION; an index has no bound.
    AttachPartition {
        /// The partition.
        name: ObjectName,
        /// Which rows.
        bound: Option<PartitionBound>,
    },
    /// DETACH PARTITION
    DetachPartition {
        /// The partition.
        name: ObjectName,
        /// CONCURRENTLY, FINALIZE
        mode: DetachMode,
    },
}

/// How a partition is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetachMode {
    /// At once.
    Plain,
    /// CONCURRENTLY
    Concurrently,
    /// FINALIZE
    Finalize,
}

/// When triggers fire and rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firing {
    /// ENABLE
    Enable,
    /// ENABLE ALWAYS
    EnableAlways,
    /// ENABLE REPLICA
    EnableReplica,
    /// DISABLE
    Disable,
}

/// Which triggers.
#[derive(Clone, Debug, PartialEq)]
pub enum TriggerChoice {
    /// One.
    Name(Name),
    /// ALL
    All,
    /// USER
    User,
}

/// What identifies a row for replication.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaIdentity {
    /// NOTHING
    Nothing,
    /// FULL
    Full,
    /// DEFAULT
    Default,
    /// USING INDEX
    Index(Name),
}

/// What ALTER COLUMN does.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnChange {
    /// SET DEFAULT
    SetDefault(Expr),
    /// DROP DEFAULT
    DropDefault,
    /// SET NOT NULL
    SetNotNull,
    /// DROP NOT NULL
    DropNotNull,
    /// DROP EXPRESSION
    DropExpression {
        /// IF EXISTS
        if_exists: bool,
    },
    /// SET STATISTICS
    SetStatistics(i32),
    /// SET (…)
    SetOptions(Vec<RelOption>),
    /// RESET (…)
    ResetOptions(Vec<RelOption>),
    /// SET STORAGE
    SetStorage(Name),
    /// SET COMPRESSION; `default` is a name here.
    SetCompression(Name),
    /// ADD GENERATED … AS IDENTITY
    AddIdentity {
        /// ALWAYS and not BY DEFAULT.
        always: bool,
        /// Options of the sequence.
        options: Vec<SequenceOption>,
    },
    /// SET GENERATED, SET option, RESTART: one or more
    SetIdentity(Vec<IdentityChange>),
    /// DROP IDENTITY
    DropIdentity {
        /// IF EXISTS
        if_exists: bool,
    },
    /// TYPE
    Type {
        /// The new type.
        type_name: TypeName,
        /// COLLATE
        collation: Option<ObjectName>,
        /// USING
        using: Option<Expr>,
    },
    /// OPTIONS
    Options(Vec<GenericOptionChange>),
}

/// A change of an identity column.
#[derive(Clone, Debug, PartialEq)]
pub enum IdentityChange {
    /// SET GENERATED
    Generated {
        /// ALWAYS and not BY DEFAULT.
        always: bool,
    },
    /// RESTART, or SET and any other option.
    Option(SequenceOption),
}

/// `ALTER … ALL IN TABLESPACE`
#[derive(Clone, Debug, PartialEq)]
pub struct MoveAll {
    /// Tables, indexes or materialized views.
    pub object_type: ObjectType,
    /// The old tablespace.
    pub from: Name,
    /// OWNED BY
    pub owners: Vec<Role>,
    /// The new tablespace.
    pub to: Name,
    /// NOWAIT
    pub nowait: bool,
}

/// `ALTER … RENAME`
#[derive(Clone, Debug, PartialEq)]
pub struct Rename {
    /// The object, or what the renamed thing is part of.
    pub object: Object,
    /// IF EXISTS
    pub if_exists: bool,
    /// What is renamed.
    pub part: RenamedPart,
    /// TO
    pub new_name: Name,
    /// CASCADE, of an attribute
    pub cascade: bool,
}

/// What RENAME renames.
#[derive(Clone, Debug, PartialEq)]
pub enum RenamedPart {
    /// The object itself.
    Object,
    /// A column of it.
    Column(Name),
    /// A constraint of it.
    Constraint(Name),
    /// An attribute of a composite type.
    Attribute(Name),
}

/// `ALTER … SET SCHEMA`
#[derive(Clone, Debug, PartialEq)]
pub struct SetSchema {
    /// The object.
    pub object: Object,
    /// IF EXISTS
    pub if_exists: bool,
    /// The new schema.
    pub schema: Name,
}

/// `ALTER … OWNER TO` of anything but relations, of which it is an action of ALTER TABLE
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeOwner {
    /// The object.
    pub object: Object,
    /// The new owner.
    pub owner: Role,
}
