//! Indexes, views, sequences, schemas, and statements about whole relations: TRUNCATE, LOCK, VACUUM, COPY.

use super::{
    Expr, IndexElement, Name, ObjectName, Persistence, Query, RelOption, Relation, Role, Statement,
    StatementNode, TypeName, UtilityOption, UtilityValue,
};
use crate::span::Span;

/// `CREATE INDEX`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateIndex {
    /// UNIQUE
    pub is_unique: bool,
    /// CONCURRENTLY
    pub concurrently: bool,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The name; made from the columns if there is none.
    pub name: Option<Name>,
    /// The table.
    pub table: Relation,
    /// USING
    pub method: Option<Name>,
    /// One or more.
    pub elements: Vec<IndexElement>,
    /// INCLUDE
    pub include: Vec<IndexElement>,
    /// NULLS NOT DISTINCT
    pub nulls_not_distinct: bool,
    /// WITH
    pub options: Vec<RelOption>,
    /// TABLESPACE
    pub tablespace: Option<Name>,
    /// WHERE
    pub condition: Option<Expr>,
}

/// `CREATE VIEW`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateView {
    /// OR REPLACE
    pub or_replace: bool,
    /// TEMPORARY
    pub persistence: Persistence,
    /// RECURSIVE
    pub is_recursive: bool,
    /// Its name.
    pub name: ObjectName,
    /// The names of the first columns.
    pub columns: Vec<Name>,
    /// WITH
    pub options: Vec<RelOption>,
    /// The query.
    pub query: Box<Query>,
    /// WITH CHECK OPTION
    pub check_option: Option<CheckOption>,
}

/// Which conditions the rows that go into a view must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOption {
    /// CASCADED, which is the default.
    Cascaded,
    /// LOCAL
    Local,
}

/// `REFRESH MATERIALIZED VIEW`
#[derive(Clone, Debug, PartialEq)]
pub struct RefreshView {
    /// CONCURRENTLY
    pub concurrently: bool,
    /// Its name.
    pub name: ObjectName,
    /// WITH NO DATA
    pub with_no_data: bool,
}

/// `CREATE SEQUENCE`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateSequence {
    /// TEMPORARY, UNLOGGED
    pub persistence: Persistence,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// Its name.
    pub name: ObjectName,
    /// In the order of the text.
    pub options: Vec<SequenceOption>,
}

/// `ALTER SEQUENCE` with options
#[derive(Clone, Debug, PartialEq)]
pub struct AlterSequence {
    /// IF EXISTS
    pub if_exists: bool,
    /// Its name.
    pub name: ObjectName,
    /// One or more, in the order of the text.
    pub options: Vec<SequenceOption>,
}

/// An option of a sequence and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceOption {
    /// Its place.
    pub span: Span,
    /// What it says.
    pub kind: SequenceOptionKind,
}

/// An option of a sequence. Numbers are as they are written, with their sign.
#[derive(Clone, Debug, PartialEq)]
pub enum SequenceOptionKind {
    /// AS
    Type(TypeName),
    /// CACHE
    Cache(Box<str>),
    /// CYCLE, NO CYCLE
    Cycle(bool),
    /// INCREMENT BY
    Increment(Box<str>),
    /// LOGGED
    Logged,
    /// UNLOGGED
    Unlogged,
    /// MAXVALUE; None is NO MAXVALUE.
    MaxValue(Option<Box<str>>),
    /// MINVALUE; None is NO MINVALUE.
    MinValue(Option<Box<str>>),
    /// OWNED BY: a column, or `none`
    OwnedBy(ObjectName),
    /// SEQUENCE NAME
    SequenceName(ObjectName),
    /// START WITH
    Start(Box<str>),
    /// RESTART WITH
    Restart(Option<Box<str>>),
}

/// `CREATE SCHEMA`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateSchema {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// Its name; that of its owner if there is none.
    pub name: Option<Name>,
    /// AUTHORIZATION
    pub owner: Option<Role>,
    /// CREATE and GRANT of what is in it.
    pub elements: Vec<StatementNode>,
}

/// `TRUNCATE`
#[derive(Clone, Debug, PartialEq)]
pub struct Truncate {
    /// One or more.
    pub tables: Vec<Relation>,
    /// RESTART IDENTITY
    pub restart_identity: bool,
    /// CASCADE
    pub cascade: bool,
}

/// `LOCK TABLE`
#[derive(Clone, Debug, PartialEq)]
pub struct LockTable {
    /// One or more.
    pub tables: Vec<Relation>,
    /// IN … MODE
    pub mode: LockMode,
    /// NOWAIT
    pub nowait: bool,
}

/// The mode of a lock of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LockMode {
    AccessShare,
    RowShare,
    RowExclusive,
    ShareUpdateExclusive,
    Share,
    ShareRowExclusive,
    Exclusive,
    /// The default.
    AccessExclusive,
}

/// `VACUUM`, `ANALYZE`
#[derive(Clone, Debug, PartialEq)]
pub struct Vacuum {
    /// VACUUM and not ANALYZE.
    pub is_vacuum: bool,
    /// FULL, FREEZE, VERBOSE and ANALYZE without parentheses are options as well.
    pub options: Vec<UtilityOption>,
    /// Which tables and columns; all if there are none.
    pub tables: Vec<VacuumTable>,
}

/// A table of VACUUM or ANALYZE.
#[derive(Clone, Debug, PartialEq)]
pub struct VacuumTable {
    /// The table.
    pub name: ObjectName,
    /// The columns; all if there are none.
    pub columns: Vec<Name>,
}

/// `CLUSTER`
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// VERBOSE without parentheses is an option as well.
    pub options: Vec<UtilityOption>,
    /// The table; None is all that have been clustered.
    pub table: Option<ObjectName>,
    /// USING
    pub index: Option<Name>,
}

/// `REINDEX`
#[derive(Clone, Debug, PartialEq)]
pub struct Reindex {
    /// CONCURRENTLY is an option as well, and the last one.
    pub options: Vec<UtilityOption>,
    /// What is rebuilt.
    pub target: ReindexTarget,
}

/// What REINDEX rebuilds.
#[derive(Clone, Debug, PartialEq)]
pub enum ReindexTarget {
    /// INDEX
    Index(ObjectName),
    /// TABLE
    Table(ObjectName),
    /// SCHEMA
    Schema(Name),
    /// SYSTEM
    System(Name),
    /// DATABASE
    Database(Name),
}

/// `COPY`
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    /// What is copied.
    pub source: CopySource,
    /// FROM and not TO.
    pub is_from: bool,
    /// The other side.
    pub target: CopyTarget,
    /// In the order of the text. Those without parentheses have the names that they have in parentheses.
    pub options: Vec<CopyOption>,
    /// WHERE
    pub condition: Option<Expr>,
}

/// What COPY copies.
#[derive(Clone, Debug, PartialEq)]
pub enum CopySource {
    /// A table.
    Table {
        /// The table.
        name: ObjectName,
        /// The columns; all if there are none.
        columns: Vec<Name>,
    },
    /// The rows of a query, or of RETURNING.
    Query(Box<Statement>),
}

/// From where COPY reads, or where it writes to.
#[derive(Clone, Debug, PartialEq)]
pub enum CopyTarget {
    /// STDIN, STDOUT; both mean the same.
    Standard,
    /// A file.
    File(Box<str>),
    /// PROGRAM
    Program(Box<str>),
}

/// An option of COPY.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyOption {
    /// The name.
    pub name: Name,
    /// The value.
    pub value: CopyValue,
}

/// The value of an option of COPY.
#[derive(Clone, Debug, PartialEq)]
pub enum CopyValue {
    /// Nothing.
    None,
    /// A word, string or number.
    Value(UtilityValue),
    /// `*`
    Star,
    /// `(word, …)`
    List(Vec<Box<str>>),
    /// The name of a table: of REJECTS_TABLE, which PostgreSQL does not have.
    Table(ObjectName),
}
