//! Queries.

use super::{Accessor, Expr, Name, ObjectName, Operator, Statement, TypeName, WindowSpec};
use crate::span::Span;

/// A query with what stands around it. `(SELECT 1) LIMIT 1` is `SELECT 1 LIMIT 1`.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Its place, without parentheses around it.
    pub span: Span,
    /// WITH
    pub with: Option<Box<With>>,
    /// The rows.
    pub body: QueryBody,
    /// ORDER BY
    pub order_by: Vec<SortItem>,
    /// LIMIT, FETCH FIRST
    pub limit: Option<Limit>,
    /// OFFSET
    pub offset: Option<Expr>,
    /// FOR UPDATE and its relatives
    pub locking: Vec<Locking>,
}

/// Where the rows of a query come from.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryBody {
    /// `SELECT …`
    Select(Box<Select>),
    /// `VALUES (…), (…)`
    Values(Vec<Vec<Expr>>),
    /// `TABLE t`
    Table(Box<Relation>),
    /// UNION, INTERSECT, EXCEPT
    SetOperation(Box<SetOperation>),
    /// An operand of a set operation with clauses of its own.
    Nested(Box<Query>),
}

/// Set operations from the left to the right; the left operand of each is everything before it.
#[derive(Clone, Debug, PartialEq)]
pub struct SetOperation {
    /// The leftmost operand. It is no `SetOperation`.
    pub first: QueryBody,
    /// One or more.
    pub steps: Vec<SetStep>,
}

/// `UNION [ALL] right`
#[derive(Clone, Debug, PartialEq)]
pub struct SetStep {
    /// The word.
    pub span: Span,
    /// Which.
    pub operator: SetOperator,
    /// ALL
    pub is_all: bool,
    /// The right operand.
    pub right: QueryBody,
}

/// A set operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SetOperator {
    Union,
    Intersect,
    Except,
}

/// `SELECT …` without what may stand around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// Its place.
    pub span: Span,
    /// DISTINCT
    pub distinct: Option<Distinct>,
    /// The select list, which may be empty.
    pub targets: Vec<Target>,
    /// INTO
    pub into: Option<Box<Into>>,
    /// FROM
    pub from: Vec<FromItem>,
    /// WHERE
    pub condition: Option<Expr>,
    /// GROUP BY
    pub group_by: Vec<GroupItem>,
    /// GROUP BY DISTINCT
    pub is_group_distinct: bool,
    /// HAVING
    pub having: Option<Expr>,
    /// WINDOW
    pub windows: Vec<WindowDefinition>,
}

/// DISTINCT
#[derive(Clone, Debug, PartialEq)]
pub enum Distinct {
    /// By all columns.
    All,
    /// DISTINCT ON
    On(Vec<Expr>),
}

/// A column of a select list or of RETURNING.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// `*`
    All(Span),
    /// `value [AS alias]`
    Value {
        /// The value.
        value: Expr,
        /// The name of the column.
        alias: Option<Name>,
    },
}

/// The table that SELECT INTO makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Into {
    /// Its name.
    pub name: ObjectName,
    /// TEMPORARY, UNLOGGED
    pub persistence: Persistence,
}

/// How long a relation's rows last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Persistence {
    Permanent,
    Temporary,
    Unlogged,
}

/// `WITH [RECURSIVE] …`
#[derive(Clone, Debug, PartialEq)]
pub struct With {
    /// Its place.
    pub span: Span,
    /// RECURSIVE
    pub is_recursive: bool,
    /// One or more.
    pub tables: Vec<CommonTable>,
}

/// `name (columns) AS [[NOT] MATERIALIZED] (statement) [SEARCH …] [CYCLE …]`
#[derive(Clone, Debug, PartialEq)]
pub struct CommonTable {
    /// Its name.
    pub name: Name,
    /// The names of its first columns.
    pub columns: Vec<Name>,
    /// `AS [NOT] MATERIALIZED`
    pub is_materialized: Option<bool>,
    /// A query, INSERT, UPDATE, DELETE or MERGE.
    pub statement: Statement,
    /// SEARCH
    pub search: Option<Box<Search>>,
    /// CYCLE
    pub cycle: Option<Box<Cycle>>,
}

/// `SEARCH DEPTH FIRST BY columns SET column`
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Its place.
    pub span: Span,
    /// BREADTH FIRST, not DEPTH FIRST
    pub is_breadth_first: bool,
    /// BY
    pub columns: Vec<Name>,
    /// SET
    pub sequence: Name,
}

/// `CYCLE columns SET mark [TO value DEFAULT value] USING path`
#[derive(Clone, Debug, PartialEq)]
pub struct Cycle {
    /// Its place.
    pub span: Span,
    /// The columns that tell a cycle.
    pub columns: Vec<Name>,
    /// SET
    pub mark: Name,
    /// TO and DEFAULT; true and false if they are left out.
    pub values: Option<[Expr; 2]>,
    /// USING
    pub path: Name,
}

/// An item of FROM with the joins behind it, from the left to the right.
#[derive(Clone, Debug, PartialEq)]
pub struct FromItem {
    /// The leftmost.
    pub first: Table,
    /// The left side of each is everything before it.
    pub joins: Vec<Join>,
}

/// A join with what stands before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// The words from the kind to JOIN.
    pub span: Span,
    /// Which rows are kept.
    pub kind: JoinKind,
    /// The right side.
    pub right: FromItem,
    /// Which rows meet.
    pub constraint: JoinConstraint,
}

/// The kinds of joins. CROSS JOIN is an inner one without a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
}

/// Which rows a join brings together.
#[derive(Clone, Debug, PartialEq)]
pub enum JoinConstraint {
    /// CROSS JOIN
    None,
    /// NATURAL
    Natural,
    /// ON
    On(Expr),
    /// `USING (columns) [AS alias]`
    Using {
        /// The columns.
        columns: Vec<Name>,
        /// A name for the columns of USING.
        alias: Option<Name>,
    },
}

/// What FROM can name.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its place with its alias.
    pub span: Span,
    /// What it is.
    pub kind: TableKind,
    /// Its name in this query.
    pub alias: Option<Alias>,
}

/// What an item of FROM is.
#[derive(Clone, Debug, PartialEq)]
pub enum TableKind {
    /// A table, view or common table.
    Relation {
        /// Its name.
        relation: Relation,
        /// TABLESAMPLE
        sample: Option<Box<Sample>>,
    },
    /// A call.
    Function(Box<TableFunction>),
    /// A sub-query.
    Query {
        /// LATERAL
        is_lateral: bool,
        /// The query.
        query: Box<Query>,
    },
    /// Joins with an alias.
    Join(Box<FromItem>),
    /// XMLTABLE
    Xml(Box<XmlTable>),
    /// A string: the name of a file, or a pattern of names. Not PostgreSQL's.
    File(Box<str>),
}

/// The name of a relation, and whether its children count.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation {
    /// Up to three parts.
    pub name: ObjectName,
    /// ONLY
    pub is_only: bool,
}

/// `AS name (columns)`
#[derive(Clone, Debug, PartialEq)]
pub struct Alias {
    /// The name.
    pub name: Name,
    /// The names of the first columns.
    pub columns: Vec<Name>,
}

/// Functions in FROM.
#[derive(Clone, Debug, PartialEq)]
pub struct TableFunction {
    /// LATERAL
    pub is_lateral: bool,
    /// `ROWS FROM (…)`, not a single call
    pub is_rows_from: bool,
    /// One or more calls.
    pub functions: Vec<TableFunctionItem>,
    /// WITH ORDINALITY
    pub with_ordinality: bool,
    /// The columns of a single call that yields records.
    pub columns: Vec<ColumnDefinition>,
}

/// A call in FROM.
#[derive(Clone, Debug, PartialEq)]
pub struct TableFunctionItem {
    /// A call or one of the functions with a syntax of their own.
    pub call: Expr,
    /// Its columns within ROWS FROM, if it yields records.
    pub columns: Vec<ColumnDefinition>,
}

/// `name type [COLLATE collation]`
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDefinition {
    /// The name.
    pub name: Name,
    /// The type.
    pub type_name: TypeName,
    /// COLLATE
    pub collation: Option<ObjectName>,
}

/// `TABLESAMPLE method (arguments) [REPEATABLE (seed)]`
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its place.
    pub span: Span,
    /// The method.
    pub method: ObjectName,
    /// Its arguments.
    pub arguments: Vec<Expr>,
    /// REPEATABLE
    pub seed: Option<Expr>,
}

/// `XMLTABLE([XMLNAMESPACES(…),] path PASSING xml COLUMNS …)`
#[derive(Clone, Debug, PartialEq)]
pub struct XmlTable {
    /// LATERAL
    pub is_lateral: bool,
    /// XMLNAMESPACES; DEFAULT has no name.
    pub namespaces: Vec<(Expr, Option<Name>)>,
    /// The path of rows.
    pub path: Expr,
    /// PASSING
    pub xml: Expr,
    /// COLUMNS
    pub columns: Vec<XmlColumn>,
}

/// A column of XMLTABLE.
#[derive(Clone, Debug, PartialEq)]
pub struct XmlColumn {
    /// Its name.
    pub name: Name,
    /// Its type; None is FOR ORDINALITY.
    pub type_name: Option<TypeName>,
    /// PATH
    pub path: Option<Expr>,
    /// DEFAULT
    pub default: Option<Expr>,
    /// NOT NULL or NULL
    pub is_nullable: Option<bool>,
}

/// An item of GROUP BY.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupItem {
    /// An expression; a row is a set of several.
    Expr(Expr),
    /// `()`
    Empty(Span),
    /// ROLLUP
    Rollup(Span, Vec<Expr>),
    /// CUBE
    Cube(Span, Vec<Expr>),
    /// GROUPING SETS
    Sets(Span, Vec<GroupItem>),
}

/// `name AS (…)` in WINDOW
#[derive(Clone, Debug, PartialEq)]
pub struct WindowDefinition {
    /// The name.
    pub name: Name,
    /// What it is.
    pub window: Box<WindowSpec>,
}

/// An item of ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub struct SortItem {
    /// The value.
    pub value: Expr,
    /// The order.
    pub order: SortOrder,
    /// NULLS FIRST, NULLS LAST
    pub nulls: NullsOrder,
}

/// The order of an item.
#[derive(Clone, Debug, PartialEq)]
pub enum SortOrder {
    /// Not said, which is ascending.
    Default,
    /// ASC
    Ascending,
    /// DESC
    Descending,
    /// USING
    Using(Operator),
}

/// Where NULL stands in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NullsOrder {
    Default,
    First,
    Last,
}

/// LIMIT, FETCH FIRST
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Its place.
    pub span: Span,
    /// None is LIMIT ALL.
    pub count: Option<Expr>,
    /// WITH TIES
    pub with_ties: bool,
}

/// `FOR UPDATE [OF …] [NOWAIT | SKIP LOCKED]`
#[derive(Clone, Debug, PartialEq)]
pub struct Locking {
    /// Its place.
    pub span: Span,
    /// How strong.
    pub strength: LockStrength,
    /// OF
    pub relations: Vec<ObjectName>,
    /// What happens if a row is locked.
    pub wait: LockWait,
}

/// The strength of row locks, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LockStrength {
    KeyShare,
    Share,
    NoKeyUpdate,
    Update,
}

/// What happens if a row is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// Wait.
    Block,
    /// NOWAIT
    Error,
    /// SKIP LOCKED
    Skip,
}

/// A column that a statement sets, or a part of one: `a`, `a.b`, `a[1]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetColumn {
    /// The column.
    pub name: Name,
    /// The way to the part.
    pub path: Vec<Accessor>,
}
