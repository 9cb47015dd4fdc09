//! Expressions.

use super::{Name, ObjectName, Query, SortItem, TypeName};
use crate::span::Span;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// From its first token to its last one, without parentheses around it.
    pub span: Span,
}

/// What an expression is.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `NULL`
    Null,
    /// `TRUE`, `FALSE`
    Boolean(bool),
    /// Digits that fit an `integer`. A sign before them is a [`Prefix`].
    Integer(i32),
    /// Any other number, as written.
    Number(Box<str>),
    /// A string constant, without quotes and escapes.
    String(Box<str>),
    /// `B'…'`: the digits as written.
    BitString(Box<str>),
    /// `X'…'`: the digits as written.
    HexString(Box<str>),
    /// `date '…'`, `interval '…' day`
    TypedLiteral(Box<TypedLiteral>),
    /// `$1`
    Parameter(u32),
    /// `DEFAULT`, which only some places allow to mean something
    Default,
    /// A column, or a field of one: `a`, `t.a`, `s.t.a`
    Column(Box<ObjectName>),
    /// `t.*`, in a select list or as a row
    AllColumns(Box<ObjectName>),
    /// Operators before their operand.
    Prefix(Box<Prefix>),
    /// Everything that has its first operand on the left.
    Chain(Box<Chain>),
    /// Two or more conditions.
    And(Vec<Expr>),
    /// Two or more conditions.
    Or(Vec<Expr>),
    /// `ROW(…)`, `(a, b)`
    Row(Box<Row>),
    /// `(a, b) OVERLAPS (c, d)`
    Overlaps(Box<[[Expr; 2]; 2]>),
    /// `ARRAY[…]`; elements in brackets are arrays themselves
    Array(Vec<Expr>),
    /// `ARRAY(SELECT …)`
    ArrayQuery(Box<Query>),
    /// `(SELECT …)`
    Subquery(Box<Query>),
    /// `EXISTS (SELECT …)`
    Exists(Box<Query>),
    /// `CASE … END`
    Case(Box<Case>),
    /// A function, an aggregate or a window function.
    Call(Box<Call>),
    /// `COALESCE(…)`
    Coalesce(Vec<Expr>),
    /// `GREATEST(…)`
    Greatest(Vec<Expr>),
    /// `LEAST(…)`
    Least(Vec<Expr>),
    /// `NULLIF(a, b)`
    NullIf(Box<[Expr; 2]>),
    /// `GROUPING(…)`
    Grouping(Vec<Expr>),
    /// `CURRENT_DATE` and its relatives
    CurrentValue(CurrentValue),
    /// Functions with a syntax of their own.
    Special(Box<Special>),
    /// XML functions.
    Xml(Box<XmlExpr>),
}

/// A string that is read as a value of a type: `date '2030-01-01'`.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedLiteral {
    /// The type.
    pub type_name: TypeName,
    /// The string.
    pub value: Box<str>,
}

/// Operators before their operand. `- - NOT a` is one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefix {
    /// Innermost first, which is the order in which they apply.
    pub operators: Vec<PrefixOperator>,
    /// What the innermost applies to. It is no `Prefix`.
    pub operand: Expr,
}

/// An operator before its operand.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixOperator {
    /// Where it stands.
    pub span: Span,
    /// What it does.
    pub kind: PrefixKind,
}

/// What an operator before its operand does.
#[derive(Clone, Debug, PartialEq)]
pub enum PrefixKind {
    /// `NOT`
    Not,
    /// `+`, `-`, or any other operator
    Operator(Operator),
}

/// An operand and all that applies to it from the left to the right: `a + b::int IS NULL` is `a` with the
/// steps `+ b::int` and `IS NULL`. Each step's left operand is everything before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// The leftmost operand. It is no `Chain`.
    pub first: Expr,
    /// One or more.
    pub steps: Vec<Step>,
}

/// One operation with its left operand before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The operator alone: where PostgreSQL places errors.
    pub span: Span,
    /// What it does.
    pub kind: StepKind,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// `… + b`
    Binary(Operator, Expr),
    /// `…::type`, `CAST(… AS type)`
    Cast(Box<TypeName>),
    /// `… COLLATE name`
    Collate(Box<ObjectName>),
    /// `… AT TIME ZONE zone`
    AtTimeZone(Expr),
    /// `… IS [NOT] NULL` and its relatives
    Is {
        /// IS NOT
        is_negated: bool,
        /// What is asked.
        test: IsTest,
    },
    /// `… IS [NOT] DISTINCT FROM b`
    IsDistinctFrom {
        /// IS NOT DISTINCT FROM
        is_negated: bool,
        /// The other side.
        right: Expr,
    },
    /// `… [NOT] LIKE pattern [ESCAPE escape]` and its relatives
    Like(Box<Like>),
    /// `… [NOT] BETWEEN [SYMMETRIC] low AND high`
    Between(Box<Between>),
    /// `… [NOT] IN (a, b)`
    InList {
        /// NOT IN
        is_negated: bool,
        /// One or more.
        items: Vec<Expr>,
    },
    /// `… [NOT] IN (SELECT …)`
    InQuery {
        /// NOT IN
        is_negated: bool,
        /// The query.
        query: Box<Query>,
    },
    /// `… = ANY (…)`
    Quantified(Box<Quantified>),
    /// `….name`, `…[i]`
    Access(Accessor),
}

/// What IS asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsTest {
    /// `IS NULL`
    Null,
    /// `IS TRUE`
    True,
    /// `IS FALSE`
    False,
    /// `IS UNKNOWN`
    Unknown,
    /// `IS DOCUMENT`
    Document,
    /// `IS [NFC] NORMALIZED`
    Normalized(Option<NormalForm>),
}

/// A normal form of Unicode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NormalForm {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

/// A match with a pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Like {
    /// By which rules.
    pub kind: LikeKind,
    /// NOT LIKE
    pub is_negated: bool,
    /// The pattern.
    pub pattern: Expr,
    /// The escape character.
    pub escape: Option<Expr>,
}

/// The rules of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LikeKind {
    /// `LIKE`
    Like,
    /// `ILIKE`
    ILike,
    /// `SIMILAR TO`
    SimilarTo,
}

/// A range test.
#[derive(Clone, Debug, PartialEq)]
pub struct Between {
    /// NOT BETWEEN
    pub is_negated: bool,
    /// The bounds may come in either order.
    pub is_symmetric: bool,
    /// One bound.
    pub low: Expr,
    /// The other one.
    pub high: Expr,
}

/// A comparison with each row of a query or each element of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantified {
    /// The operator. LIKE and ILIKE are `~~` and `~~*`.
    pub operator: Operator,
    /// ALL, not ANY
    pub is_all: bool,
    /// The other side.
    pub right: QuantifiedRight,
}

/// What a quantified comparison runs over.
#[derive(Clone, Debug, PartialEq)]
pub enum QuantifiedRight {
    /// The rows of a query.
    Query(Box<Query>),
    /// The elements of an array.
    Array(Expr),
}

/// A way into a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Accessor {
    /// `.name`
    Field(Name),
    /// `.*`
    AllFields,
    /// `[i]`
    Subscript(Expr),
    /// `[low:high]`
    Slice(Box<(Option<Expr>, Option<Expr>)>),
}

/// The name of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Plus,
    Minus,
    Times,
    Divide,
    Modulo,
    Power,
    Less,
    Greater,
    Equal,
    LessEqual,
    GreaterEqual,
    NotEqual,
    /// Any other one, and all with a schema: `OPERATOR(s.+)`.
    Other(Box<OtherOperator>),
}

impl Operator {
    /// The operator without its schema; `<>` for `!=`.
    pub fn symbol(&self) -> &str {
        match self {
            Operator::Plus => "+",
            Operator::Minus => "-",
            Operator::Times => "*",
            Operator::Divide => "/",
            Operator::Modulo => "%",
            Operator::Power => "^",
            Operator::Less => "<",
            Operator::Greater => ">",
            Operator::Equal => "=",
            Operator::LessEqual => "<=",
            Operator::GreaterEqual => ">=",
            Operator::NotEqual => "<>",
            Operator::Other(other) => &other.symbol,
        }
    }

    /// The schema, and what stands before that.
    pub fn qualifiers(&self) -> &[Name] {
        match self {
            Operator::Other(other) => &other.qualifiers,
            _ => &[],
        }
    }

    /// An operator without a schema.
    pub fn from_symbol(symbol: &str) -> Operator {
        match symbol {
            "+" => Operator::Plus,
            "-" => Operator::Minus,
            "*" => Operator::Times,
            "/" => Operator::Divide,
            "%" => Operator::Modulo,
            "^" => Operator::Power,
            "<" => Operator::Less,
            ">" => Operator::Greater,
            "=" => Operator::Equal,
            "<=" => Operator::LessEqual,
            ">=" => Operator::GreaterEqual,
            "<>" | "!=" => Operator::NotEqual,
            _ => Operator::Other(Box::new(OtherOperator { qualifiers: Vec::new(), symbol: symbol.into() })),
        }
    }
}

/// An operator that the grammar has no name for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherOperator {
    /// The schema, and what stands before that.
    pub qualifiers: Vec<Name>,
    /// The operator; `<>` for `!=`.
    pub symbol: Box<str>,
}

/// A row of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `ROW(a, b)`, not `(a, b)`
    pub is_explicit: bool,
    /// The values; two or more without ROW.
    pub items: Vec<Expr>,
}

/// `CASE [operand] WHEN … THEN … [ELSE …] END`
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What the conditions are compared with.
    pub operand: Option<Expr>,
    /// One or more.
    pub arms: Vec<CaseArm>,
    /// ELSE
    pub otherwise: Option<Expr>,
}

/// `WHEN condition THEN result`
#[derive(Clone, Debug, PartialEq)]
pub struct CaseArm {
    /// From WHEN on.
    pub span: Span,
    /// When.
    pub condition: Expr,
    /// Then.
    pub result: Expr,
}

/// A call of a function, an aggregate or a window function.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its name.
    pub name: ObjectName,
    /// What it is called with.
    pub arguments: Vec<Argument>,
    /// `f(*)`
    pub is_star: bool,
    /// `f(DISTINCT …)`
    pub is_distinct: bool,
    /// `f(…, VARIADIC last)`
    pub is_variadic: bool,
    /// `f(… ORDER BY …)`
    pub order_by: Vec<SortItem>,
    /// `f(…) WITHIN GROUP (ORDER BY …)`
    pub within_group: Vec<SortItem>,
    /// `f(…) FILTER (WHERE …)`
    pub filter: Option<Expr>,
    /// `f(…) OVER …`
    pub over: Option<Over>,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// `name => value`
    pub name: Option<Name>,
    /// The value.
    pub value: Expr,
}

/// The window of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Over {
    /// `OVER name`
    Named(Name),
    /// `OVER (…)`
    Window(Box<WindowSpec>),
}

/// `([base] [PARTITION BY …] [ORDER BY …] [frame])`
#[derive(Clone, Debug, PartialEq)]
pub struct WindowSpec {
    /// Its place.
    pub span: Span,
    /// The window that it starts from.
    pub base: Option<Name>,
    /// PARTITION BY
    pub partition_by: Vec<Expr>,
    /// ORDER BY
    pub order_by: Vec<SortItem>,
    /// The frame.
    pub frame: Option<Frame>,
}

/// Which rows of the partition a window function sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Its place.
    pub span: Span,
    /// What bounds count.
    pub unit: FrameUnit,
    /// Where it begins.
    pub start: FrameBound,
    /// Where it ends; at the current row if it does not say.
    pub end: Option<FrameBound>,
    /// What is left out.
    pub exclusion: FrameExclusion,
}

/// What the bounds of a frame count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FrameUnit {
    Range,
    Rows,
    Groups,
}

/// A bound of a frame.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum FrameBound {
    UnboundedPreceding,
    Preceding(Expr),
    CurrentRow,
    Following(Expr),
    UnboundedFollowing,
}

/// Which rows of a frame are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FrameExclusion {
    NoOthers,
    CurrentRow,
    Group,
    Ties,
}

/// Values of the session and the clock that are written without parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CurrentValue {
    Date,
    Time(Option<i32>),
    Timestamp(Option<i32>),
    LocalTime(Option<i32>),
    LocalTimestamp(Option<i32>),
    Role,
    CurrentUser,
    SessionUser,
    User,
    Catalog,
    Schema,
}

/// A function with a syntax of its own. Its plain form, such as `substring(a, b)`, is a [`Call`].
#[derive(Clone, Debug, PartialEq)]
pub enum Special {
    /// `EXTRACT(field FROM from)`
    Extract {
        /// In lower case unless it was a string.
        field: Name,
        /// The date, time or interval.
        from: Expr,
    },
    /// `OVERLAY(string PLACING replacement FROM start [FOR length])`
    Overlay {
        /// The string.
        string: Expr,
        /// What replaces a part of it.
        replacement: Expr,
        /// Where.
        start: Expr,
        /// How much of it.
        length: Option<Expr>,
    },
    /// `POSITION(part IN string)`
    Position {
        /// What is searched for.
        part: Expr,
        /// Where.
        string: Expr,
    },
    /// `SUBSTRING(string [FROM start] [FOR length])`
    Substring {
        /// The string.
        string: Expr,
        /// Where it begins, or a pattern.
        start: Option<Expr>,
        /// How long it is, or an escape character.
        length: Option<Expr>,
    },
    /// `SUBSTRING(string SIMILAR pattern ESCAPE escape)`
    SubstringSimilar {
        /// The string.
        string: Expr,
        /// The pattern.
        pattern: Expr,
        /// The escape character.
        escape: Expr,
    },
    /// `TRIM([side] [characters] FROM string)`. With FROM the characters, if any, are the last argument.
    Trim {
        /// Where.
        side: TrimSide,
        /// The string and what may follow it.
        arguments: Vec<Expr>,
    },
    /// `NORMALIZE(string [, form])`
    Normalize {
        /// The string.
        string: Expr,
        /// The normal form.
        form: Option<NormalForm>,
    },
    /// `COLLATION FOR (value)`
    CollationFor(Expr),
    /// `TREAT(value AS type)`
    Treat {
        /// The value.
        value: Expr,
        /// The type.
        type_name: TypeName,
    },
}

/// The side of TRIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TrimSide {
    Both,
    Leading,
    Trailing,
}

/// A function of XML.
#[derive(Clone, Debug, PartialEq)]
pub enum XmlExpr {
    /// `XMLCONCAT(…)`
    Concat(Vec<Expr>),
    /// `XMLELEMENT(NAME name, XMLATTRIBUTES(…), …)`
    Element {
        /// The name of the element.
        name: Name,
        /// XMLATTRIBUTES
        attributes: Vec<XmlAttribute>,
        /// The content.
        content: Vec<Expr>,
    },
    /// `XMLFOREST(…)`
    Forest(Vec<XmlAttribute>),
    /// `XMLPARSE(DOCUMENT text)`
    Parse {
        /// DOCUMENT, not CONTENT
        is_document: bool,
        /// The text.
        text: Expr,
        /// PRESERVE WHITESPACE
        preserves_whitespace: bool,
    },
    /// `XMLPI(NAME name [, content])`
    Pi {
        /// The name.
        name: Name,
        /// The content.
        content: Option<Expr>,
    },
    /// `XMLROOT(xml, VERSION version [, STANDALONE …])`
    Root {
        /// The value.
        xml: Expr,
        /// None is NO VALUE.
        version: Option<Expr>,
        /// STANDALONE
        standalone: Option<XmlStandalone>,
    },
    /// `XMLSERIALIZE(DOCUMENT xml AS type)`
    Serialize {
        /// DOCUMENT, not CONTENT
        is_document: bool,
        /// The value.
        xml: Expr,
        /// The type.
        type_name: TypeName,
    },
    /// `XMLEXISTS(path PASSING xml)`
    Exists {
        /// The path.
        path: Expr,
        /// The value.
        xml: Expr,
    },
}

/// `value [AS name]` in XMLATTRIBUTES and XMLFOREST
#[derive(Clone, Debug, PartialEq)]
pub struct XmlAttribute {
    /// The value.
    pub value: Expr,
    /// Its name.
    pub name: Option<Name>,
}

/// STANDALONE of XMLROOT
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum XmlStandalone {
    Yes,
    No,
    NoValue,
}
