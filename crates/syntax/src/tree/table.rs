//! CREATE TABLE, its columns and its constraints.

use super::{
    Execute, Expr, IndexElement, Name, ObjectName, Operator, Persistence, Query, RelOption, SequenceOption,
    TypeName,
};
use crate::span::Span;

/// `CREATE [FOREIGN] TABLE`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTable {
    /// TEMPORARY, UNLOGGED
    pub persistence: Persistence,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// Its name.
    pub name: ObjectName,
    /// Where its columns come from.
    pub body: TableBody,
    /// Columns and constraints. Of a typed table and a partition the columns have no types.
    pub elements: Vec<TableElement>,
    /// PARTITION BY
    pub partition_by: Option<PartitionBy>,
    /// USING
    pub access_method: Option<Name>,
    /// WITH
    pub options: Vec<RelOption>,
    /// ON COMMIT
    pub on_commit: Option<OnCommit>,
    /// TABLESPACE
    pub tablespace: Option<Name>,
    /// SERVER of a foreign table.
    pub foreign: Option<ForeignTable>,
}

/// Where the columns of a table come from.
#[derive(Clone, Debug, PartialEq)]
pub enum TableBody {
    /// From the elements and these parents.
    Plain {
        /// INHERITS
        inherits: Vec<ObjectName>,
    },
    /// From a composite type.
    Of(ObjectName),
    /// From the partitioned table.
    Partition {
        /// The partitioned table.
        parent: ObjectName,
        /// Which rows.
        bound: PartitionBound,
    },
}

/// `SERVER name OPTIONS (…)`
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignTable {
    /// The server.
    pub server: Name,
    /// OPTIONS
    pub options: Vec<GenericOption>,
}

/// `name 'value'` in OPTIONS of foreign objects.
#[derive(Clone, Debug, PartialEq)]
pub struct GenericOption {
    /// The name.
    pub name: Name,
    /// The value.
    pub value: Box<str>,
}

/// A change of an option of a foreign object.
#[derive(Clone, Debug, PartialEq)]
pub enum GenericOptionChange {
    /// ADD, which is the default.
    Add(GenericOption),
    /// SET
    Set(GenericOption),
    /// DROP
    Drop(Name),
}

/// An item between the parentheses of CREATE TABLE.
#[derive(Clone, Debug, PartialEq)]
pub enum TableElement {
    /// A column.
    Column(Box<ColumnDef>),
    /// LIKE
    Like(Box<TableLike>),
    /// A constraint of the table.
    Constraint(Box<TableConstraint>),
}

/// A column of CREATE TABLE or ALTER TABLE … ADD COLUMN.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDef {
    /// Its place.
    pub span: Span,
    /// The name.
    pub name: Name,
    /// The type; None in typed tables and partitions.
    pub type_name: Option<TypeName>,
    /// COMPRESSION; `default` is a name here.
    pub compression: Option<Name>,
    /// OPTIONS
    pub options: Vec<GenericOption>,
    /// COLLATE
    pub collation: Option<ObjectName>,
    /// Constraints, in the order of the text.
    pub constraints: Vec<ColumnConstraint>,
}

/// A constraint of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnConstraint {
    /// Its place.
    pub span: Span,
    /// CONSTRAINT
    pub name: Option<Name>,
    /// What it says.
    pub kind: ColumnConstraintKind,
}

/// What a constraint of a column says. The last four have no name and belong to the constraint before them.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnConstraintKind {
    /// NOT NULL
    NotNull,
    /// NULL
    Null,
    /// UNIQUE
    Unique {
        /// NULLS NOT DISTINCT
        nulls_not_distinct: bool,
        /// WITH and USING INDEX TABLESPACE.
        index: ConstraintIndex,
    },
    /// PRIMARY KEY
    PrimaryKey(ConstraintIndex),
    /// CHECK
    Check {
        /// The condition.
        condition: Expr,
        /// NO INHERIT
        no_inherit: bool,
    },
    /// DEFAULT
    Default(Expr),
    /// GENERATED … AS IDENTITY
    Identity {
        /// ALWAYS and not BY DEFAULT.
        always: bool,
        /// Options of the sequence.
        options: Vec<SequenceOption>,
    },
    /// GENERATED ALWAYS AS (…) STORED
    Generated(Expr),
    /// REFERENCES
    References(Reference),
    /// DEFERRABLE
    Deferrable,
    /// NOT DEFERRABLE
    NotDeferrable,
    /// INITIALLY DEFERRED
    InitiallyDeferred,
    /// INITIALLY IMMEDIATE
    InitiallyImmediate,
}

/// How the index of a constraint is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConstraintIndex {
    /// WITH
    pub options: Vec<RelOption>,
    /// USING INDEX TABLESPACE
    pub tablespace: Option<Name>,
}

/// `REFERENCES table (columns) …`
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The table.
    pub table: ObjectName,
    /// The columns; those of its primary key if there are none.
    pub columns: Vec<Name>,
    /// MATCH FULL. SIMPLE is the default.
    pub match_full: bool,
    /// ON UPDATE
    pub on_update: KeyAction,
    /// ON DELETE
    pub on_delete: KeyAction,
}

/// What happens to a row whose referenced row changes.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyAction {
    /// NO ACTION, which is the default.
    NoAction,
    /// RESTRICT
    Restrict,
    /// CASCADE
    Cascade,
    /// SET NULL, of some columns or of all; some only ON DELETE.
    SetNull(Vec<Name>),
    /// SET DEFAULT, of some columns or of all; some only ON DELETE.
    SetDefault(Vec<Name>),
}

/// A constraint of a table or a domain.
#[derive(Clone, Debug, PartialEq)]
pub struct TableConstraint {
    /// Its place.
    pub span: Span,
    /// CONSTRAINT
    pub name: Option<Name>,
    /// What it says.
    pub kind: TableConstraintKind,
    /// DEFERRABLE, NOT VALID, …
    pub attributes: ConstraintAttributes,
}

/// What a constraint of a table says.
#[derive(Clone, Debug, PartialEq)]
pub enum TableConstraintKind {
    /// CHECK
    Check(Expr),
    /// UNIQUE, PRIMARY KEY
    Unique {
        /// PRIMARY KEY
        is_primary: bool,
        /// NULLS NOT DISTINCT
        nulls_not_distinct: bool,
        /// The columns.
        columns: Vec<Name>,
        /// INCLUDE
        include: Vec<Name>,
        /// WITH and USING INDEX TABLESPACE.
        index: ConstraintIndex,
    },
    /// UNIQUE USING INDEX, PRIMARY KEY USING INDEX
    UsingIndex {
        /// PRIMARY KEY
        is_primary: bool,
        /// NULLS NOT DISTINCT is not allowed here.
        index: Name,
    },
    /// EXCLUDE
    Exclude {
        /// USING
        method: Option<Name>,
        /// The elements with their operators.
        elements: Vec<ExcludeElement>,
        /// INCLUDE
        include: Vec<Name>,
        /// WITH and USING INDEX TABLESPACE.
        index: ConstraintIndex,
        /// WHERE
        condition: Option<Expr>,
    },
    /// FOREIGN KEY
    ForeignKey {
        /// The columns.
        columns: Vec<Name>,
        /// REFERENCES
        reference: Reference,
    },
}

/// `element WITH operator`
#[derive(Clone, Debug, PartialEq)]
pub struct ExcludeElement {
    /// What the index holds.
    pub element: IndexElement,
    /// The operator.
    pub operator: Operator,
}

/// What stands behind a constraint of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConstraintAttributes {
    /// DEFERRABLE, which INITIALLY DEFERRED implies.
    pub deferrable: bool,
    /// INITIALLY DEFERRED
    pub initially_deferred: bool,
    /// NOT VALID
    pub not_valid: bool,
    /// NO INHERIT
    pub no_inherit: bool,
}

/// `LIKE table INCLUDING …`
#[derive(Clone, Debug, PartialEq)]
pub struct TableLike {
    /// Its place.
    pub span: Span,
    /// The table.
    pub table: ObjectName,
    /// In the order of the text; INCLUDING is true.
    pub options: Vec<(bool, LikeOption)>,
}

/// What LIKE copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LikeOption {
    Comments,
    Compression,
    Constraints,
    Defaults,
    Identity,
    Generated,
    Indexes,
    Statistics,
    Storage,
    All,
}

/// `PARTITION BY strategy (…)`
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionBy {
    /// Its place.
    pub span: Span,
    /// `range`, `list` or `hash`, if it is to mean something.
    pub strategy: Name,
    /// Columns or expressions, without order.
    pub elements: Vec<IndexElement>,
}

/// Which rows are in a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum PartitionBound {
    /// DEFAULT
    Default,
    /// FOR VALUES WITH
    Hash {
        /// MODULUS
        modulus: i32,
        /// REMAINDER
        remainder: i32,
    },
    /// FOR VALUES IN
    List(Vec<Expr>),
    /// FOR VALUES FROM … TO
    Range {
        /// FROM. MINVALUE and MAXVALUE are names of columns here.
        from: Vec<Expr>,
        /// TO
        to: Vec<Expr>,
    },
}

/// What becomes of a temporary table at the end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCommit {
    /// DROP
    Drop,
    /// DELETE ROWS
    DeleteRows,
    /// PRESERVE ROWS
    PreserveRows,
}

/// `CREATE TABLE … AS`, `CREATE MATERIALIZED VIEW`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTableAs {
    /// MATERIALIZED VIEW
    pub is_materialized_view: bool,
    /// TEMPORARY, UNLOGGED
    pub persistence: Persistence,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// Its name.
    pub name: ObjectName,
    /// The names of the first columns.
    pub columns: Vec<Name>,
    /// USING
    pub access_method: Option<Name>,
    /// WITH
    pub options: Vec<RelOption>,
    /// ON COMMIT
    pub on_commit: Option<OnCommit>,
    /// TABLESPACE
    pub tablespace: Option<Name>,
    /// Where the rows come from.
    pub source: TableSource,
    /// WITH NO DATA
    pub with_no_data: bool,
}

/// Where the rows of a new table come from.
#[derive(Clone, Debug, PartialEq)]
pub enum TableSource {
    /// AS query
    Query(Box<Query>),
    /// AS EXECUTE
    Execute(Execute),
}
