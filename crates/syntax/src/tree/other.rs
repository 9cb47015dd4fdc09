//! Statements of which the tree is a sequence of parts.
//!
//! Only the statements that FirnDB runs have trees of their own. The others are parsed by PostgreSQL's grammar all the same, so
//! that mistakes in them are found and their text is kept: a part is a word of the grammar, a sign, or a node that the tree has
//! anyway. Words that mean nothing are left out, and one of several words for the same is written.

use super::{
    AggregateParameters, ColumnConstraint, Expr, FromItem, FunctionParameter, GenericOptionChange,
    IndexElement, Name, Object, ObjectName, ObjectReference, Operator, OptionValue, Query, RelOption,
    Relation, Role, Setting, Statement, TableConstraint, TypeName, UtilityValue,
};
use crate::keyword::Keyword;

/// A statement as a sequence of parts.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherStatement {
    /// PostgreSQL's name of the kind of statement, as in its command tags.
    pub tag: &'static str,
    /// The whole statement.
    pub parts: Vec<Part>,
}

/// A part of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A word of the grammar.
    Word(Keyword),
    /// The words of a kind of object.
    Words(&'static str),
    /// `(`, `)`, `,`, `;`, `=`, `*`
    Sign(char),
    /// A name.
    Name(Name),
    /// A name that may have qualifiers.
    ObjectName(Box<ObjectName>),
    /// A relation.
    Relation(Box<Relation>),
    /// A role.
    Role(Role),
    /// A string.
    String(Box<str>),
    /// A number with its sign.
    Number(Box<str>),
    /// A word, string or number.
    Value(UtilityValue),
    /// A type.
    Type(Box<TypeName>),
    /// A type, or nearly anything.
    OptionValue(Box<OptionValue>),
    /// An operator.
    Operator(Operator),
    /// An expression.
    Expr(Box<Expr>),
    /// A query.
    Query(Box<Query>),
    /// A statement in the statement.
    Statement(Box<Statement>),
    /// A column or an expression of statistics.
    IndexElement(Box<IndexElement>),
    /// An item of FROM.
    From(Box<FromItem>),
    /// A parameter of a function.
    Parameter(Box<FunctionParameter>),
    /// The parameters of an aggregate in parentheses.
    AggregateParameters(Box<AggregateParameters>),
    /// How an object is named.
    Reference(Box<ObjectReference>),
    /// An object with its kind.
    Object(Box<Object>),
    /// `(name = value, …)`
    Definition(Vec<RelOption>),
    /// `OPTIONS (…)`
    Options(Vec<GenericOptionChange>),
    /// A constraint of a domain.
    ColumnConstraint(Box<ColumnConstraint>),
    /// A constraint of a domain in ALTER DOMAIN.
    TableConstraint(Box<TableConstraint>),
    /// SET
    Set(Box<Setting>),
}
