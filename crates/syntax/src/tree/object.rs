//! Objects of any kind, and the statements about them: DROP, COMMENT ON.

use super::{Name, ObjectName, Operator, OptionValue, Relation, TypeName};
use crate::span::Span;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ObjectType {
    AccessMethod,
    Aggregate,
    Cast,
    Collation,
    Column,
    Constraint,
    Conversion,
    Database,
    Domain,
    DomainConstraint,
    EventTrigger,
    Extension,
    ForeignDataWrapper,
    ForeignTable,
    Function,
    Index,
    Language,
    LargeObject,
    MaterializedView,
    Operator,
    OperatorClass,
    OperatorFamily,
    Parameter,
    Policy,
    Procedure,
    Publication,
    Role,
    Routine,
    Rule,
    Schema,
    Sequence,
    Server,
    Statistics,
    Subscription,
    Table,
    Tablespace,
    TextSearchConfiguration,
    TextSearchDictionary,
    TextSearchParser,
    TextSearchTemplate,
    Transform,
    Trigger,
    Type,
    View,
}

impl ObjectType {
    /// Its words in SQL, in capitals.
    pub fn words(self) -> &'static str {
        match self {
            ObjectType::AccessMethod => "ACCESS METHOD",
            ObjectType::Aggregate => "AGGREGATE",
            ObjectType::Cast => "CAST",
            ObjectType::Collation => "COLLATION",
            ObjectType::Column => "COLUMN",
            ObjectType::Constraint | ObjectType::DomainConstraint => "CONSTRAINT",
            ObjectType::Conversion => "CONVERSION",
            ObjectType::Database => "DATABASE",
            ObjectType::Domain => "DOMAIN",
            ObjectType::EventTrigger => "EVENT TRIGGER",
            ObjectType::Extension => "EXTENSION",
            ObjectType::ForeignDataWrapper => "FOREIGN DATA WRAPPER",
            ObjectType::ForeignTable => "FOREIGN TABLE",
            ObjectType::Function => "FUNCTION",
            ObjectType::Index => "INDEX",
            ObjectType::Language => "LANGUAGE",
            ObjectType::LargeObject => "LARGE OBJECT",
            ObjectType::MaterializedView => "MATERIALIZED VIEW",
            ObjectType::Operator => "OPERATOR",
            ObjectType::OperatorClass => "OPERATOR CLASS",
            ObjectType::OperatorFamily => "OPERATOR FAMILY",
            ObjectType::Parameter => "PARAMETER",
            ObjectType::Policy => "POLICY",
            ObjectType::Procedure => "PROCEDURE",
            ObjectType::Publication => "PUBLICATION",
            ObjectType::Role => "ROLE",
            ObjectType::Routine => "ROUTINE",
            ObjectType::Rule => "RULE",
            ObjectType::Schema => "SCHEMA",
            ObjectType::Sequence => "SEQUENCE",
            ObjectType::Server => "SERVER",
            ObjectType::Statistics => "STATISTICS",
            ObjectType::Subscription => "SUBSCRIPTION",
            ObjectType::Table => "TABLE",
            ObjectType::Tablespace => "TABLESPACE",
            ObjectType::TextSearchConfiguration => "TEXT SEARCH CONFIGURATION",
            ObjectType::TextSearchDictionary => "TEXT SEARCH DICTIONARY",
            ObjectType::TextSearchParser => "TEXT SEARCH PARSER",
            ObjectType::TextSearchTemplate => "TEXT SEARCH TEMPLATE",
            ObjectType::Transform => "TRANSFORM",
            ObjectType::Trigger => "TRIGGER",
            ObjectType::Type => "TYPE",
            ObjectType::View => "VIEW",
        }
    }
}

/// An object: its kind and how it is named.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The kind.
    pub object_type: ObjectType,
    /// Which one.
    pub name: ObjectReference,
}

/// How an object is named, which its kind decides.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectReference {
    /// By its name.
    Name(ObjectName),
    /// A relation, with ONLY or not; in ALTER.
    Relation(Relation),
    /// `name ON relation`: constraints, policies, rules, triggers.
    On {
        /// The name.
        name: Name,
        /// The relation or the domain.
        relation: ObjectName,
    },
    /// Types and domains.
    Type(TypeName),
    /// Functions, procedures, routines.
    Function(FunctionReference),
    /// Aggregates.
    Aggregate(AggregateReference),
    /// Operators.
    Operator(OperatorReference),
    /// `name USING method`: operator classes and families.
    Class {
        /// The name.
        name: ObjectName,
        /// The access method.
        method: Name,
    },
    /// `(source AS target)`: casts.
    Cast {
        /// The source.
        source: TypeName,
        /// The target.
        target: TypeName,
    },
    /// `FOR type LANGUAGE name`: transforms.
    Transform {
        /// The type.
        type_name: TypeName,
        /// The language.
        language: Name,
    },
    /// Large objects.
    Number(Box<str>),
    /// Roles.
    Role(Role),
}

/// A role, as RoleSpec of PostgreSQL's grammar.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// Its place.
    pub span: Span,
    /// Which one.
    pub kind: RoleKind,
}

/// Which role.
#[derive(Clone, Debug, PartialEq)]
pub enum RoleKind {
    /// One with a name.
    Name(Box<str>),
    /// CURRENT_ROLE
    CurrentRole,
    /// CURRENT_USER
    CurrentUser,
    /// SESSION_USER
    SessionUser,
    /// PUBLIC: all roles.
    Public,
}

/// A function with the types of its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionReference {
    /// The name.
    pub name: ObjectName,
    /// The arguments; None if there are no parentheses.
    pub arguments: Option<Vec<FunctionParameter>>,
}

/// An aggregate with the types of its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateReference {
    /// The name.
    pub name: ObjectName,
    /// The arguments.
    pub arguments: AggregateParameters,
}

/// The parameters of an aggregate.
#[derive(Clone, Debug, PartialEq)]
pub enum AggregateParameters {
    /// `(*)`
    Star,
    /// `(direct ORDER BY aggregated)`
    List {
        /// Before ORDER BY, or all of them.
        direct: Vec<FunctionParameter>,
        /// Behind ORDER BY.
        ordered: Vec<FunctionParameter>,
    },
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionParameter {
    /// Its place.
    pub span: Span,
    /// IN, OUT, …
    pub mode: ParameterMode,
    /// The name.
    pub name: Option<Name>,
    /// The type.
    pub type_name: OptionValue,
    /// DEFAULT
    pub default: Option<super::Expr>,
}

/// The mode of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterMode {
    /// Not said, which is IN.
    Default,
    /// IN
    In,
    /// OUT
    Out,
    /// INOUT
    InOut,
    /// VARIADIC
    Variadic,
}

/// An operator with the types of its operands.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorReference {
    /// The operator.
    pub operator: Operator,
    /// The left operand; None is NONE.
    pub left: Option<TypeName>,
    /// The right operand; None is NONE.
    pub right: Option<TypeName>,
}

/// `DROP`
#[derive(Clone, Debug, PartialEq)]
pub struct DropObjects {
    /// What is dropped.
    pub object_type: ObjectType,
    /// CONCURRENTLY, of indexes
    pub concurrently: bool,
    /// IF EXISTS
    pub if_exists: bool,
    /// One or more.
    pub objects: Vec<ObjectReference>,
    /// CASCADE
    pub cascade: bool,
}

/// `COMMENT ON`
#[derive(Clone, Debug, PartialEq)]
pub struct Comment {
    /// The object.
    pub object: Object,
    /// None is NULL.
    pub text: Option<Box<str>>,
}
