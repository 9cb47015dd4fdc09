//! INSERT, UPDATE, DELETE, MERGE.

use super::NullsOrder;
use super::{Expr, FromItem, Name, ObjectName, Query, Relation, SortOrder, Target, TargetColumn, With};
use crate::span::Span;

/// `INSERT INTO …`
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// WITH
    pub with: Option<Box<With>>,
    /// The table.
    pub table: ObjectName,
    /// AS
    pub alias: Option<Name>,
    /// The columns, in the order of the values; all if there are none.
    pub columns: Vec<TargetColumn>,
    /// OVERRIDING
    pub overriding: Option<Overriding>,
    /// The rows; None is DEFAULT VALUES.
    pub source: Option<Box<Query>>,
    /// ON CONFLICT
    pub on_conflict: Option<Box<OnConflict>>,
    /// RETURNING
    pub returning: Vec<Target>,
}

/// What values for identity columns mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overriding {
    /// OVERRIDING USER VALUE
    User,
    /// OVERRIDING SYSTEM VALUE
    System,
}

/// `ON CONFLICT …`
#[derive(Clone, Debug, PartialEq)]
pub struct OnConflict {
    /// Its place.
    pub span: Span,
    /// Which conflicts; all if None.
    pub target: Option<ConflictTarget>,
    /// DO UPDATE; None is DO NOTHING.
    pub update: Option<ConflictUpdate>,
}

/// Which conflicts an arm is for.
#[derive(Clone, Debug, PartialEq)]
pub enum ConflictTarget {
    /// `(columns) [WHERE condition]`: of the unique indexes that these tell.
    Inference {
        /// Its place.
        span: Span,
        /// The columns.
        elements: Vec<IndexElement>,
        /// The condition of a partial index.
        condition: Option<Expr>,
    },
    /// ON CONSTRAINT
    Constraint(Name),
}

/// A column of an index, or of what ON CONFLICT infers one from.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexElement {
    /// Its place.
    pub span: Span,
    /// A column is an expression as well.
    pub value: Expr,
    /// COLLATE
    pub collation: Option<ObjectName>,
    /// The operator class.
    pub class: Option<ObjectName>,
    /// The parameters of the operator class.
    pub class_parameters: Vec<RelOption>,
    /// Never USING.
    pub order: SortOrder,
    /// NULLS FIRST, NULLS LAST
    pub nulls: NullsOrder,
}

/// `[namespace.]name [= value]` in a list of storage parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct RelOption {
    /// `toast` in `toast.autovacuum_enabled`
    pub namespace: Option<Name>,
    /// The name.
    pub name: Name,
    /// The value.
    pub value: Option<OptionValue>,
}

/// The value of an option, where the grammar allows nearly anything (PostgreSQL's def_arg).
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// A word is a type as well, unless it is reserved.
    Type(super::TypeName),
    /// `name%TYPE`: the type of a column.
    TypeOf {
        /// SETOF
        is_set: bool,
        /// The column.
        name: ObjectName,
    },
    /// A reserved word, or NONE.
    Word(Name),
    /// An operator.
    Operator(super::Operator),
    /// A number with its sign.
    Number(Box<str>),
    /// A string.
    String(Box<str>),
}

/// `DO UPDATE SET … [WHERE …]`
#[derive(Clone, Debug, PartialEq)]
pub struct ConflictUpdate {
    /// SET
    pub assignments: Vec<Assignment>,
    /// WHERE
    pub condition: Option<Expr>,
}

/// An item of SET.
#[derive(Clone, Debug, PartialEq)]
pub enum Assignment {
    /// `column = value`
    Single {
        /// The column.
        column: TargetColumn,
        /// The value.
        value: Expr,
    },
    /// `(columns) = row`
    Multiple {
        /// One or more.
        columns: Vec<TargetColumn>,
        /// A row or a sub-query, if it is to mean something.
        value: Expr,
    },
}

/// `UPDATE …`
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// WITH
    pub with: Option<Box<With>>,
    /// The table.
    pub table: Relation,
    /// AS
    pub alias: Option<Name>,
    /// SET
    pub assignments: Vec<Assignment>,
    /// FROM
    pub from: Vec<FromItem>,
    /// WHERE
    pub condition: Option<ChangeCondition>,
    /// RETURNING
    pub returning: Vec<Target>,
}

/// `DELETE FROM …`
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// WITH
    pub with: Option<Box<With>>,
    /// The table.
    pub table: Relation,
    /// AS
    pub alias: Option<Name>,
    /// USING
    pub using: Vec<FromItem>,
    /// WHERE
    pub condition: Option<ChangeCondition>,
    /// RETURNING
    pub returning: Vec<Target>,
}

/// WHERE of UPDATE and DELETE.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeCondition {
    /// A condition.
    Expr(Expr),
    /// CURRENT OF
    CurrentOf(Name),
}

/// `MERGE INTO …`
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// WITH
    pub with: Option<Box<With>>,
    /// The table.
    pub table: Relation,
    /// AS
    pub alias: Option<Name>,
    /// USING
    pub source: FromItem,
    /// ON
    pub condition: Expr,
    /// One or more.
    pub arms: Vec<MergeArm>,
    /// RETURNING. PostgreSQL has it since 17 only.
    pub returning: Vec<Target>,
}

/// `WHEN [NOT] MATCHED [AND condition] THEN action`
#[derive(Clone, Debug, PartialEq)]
pub struct MergeArm {
    /// Its place.
    pub span: Span,
    /// MATCHED
    pub is_matched: bool,
    /// AND
    pub condition: Option<Expr>,
    /// THEN
    pub action: MergeAction,
}

/// What MERGE does with a row.
#[derive(Clone, Debug, PartialEq)]
pub enum MergeAction {
    /// UPDATE
    Update(Vec<Assignment>),
    /// DELETE
    Delete,
    /// INSERT
    Insert {
        /// The columns; all if there are none.
        columns: Vec<TargetColumn>,
        /// OVERRIDING
        overriding: Option<Overriding>,
        /// None is DEFAULT VALUES.
        values: Option<Vec<Expr>>,
    },
    /// DO NOTHING
    Nothing,
}
