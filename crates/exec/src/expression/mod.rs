//! Row expressions: SQL expressions evaluated on one row, without batches.
//!
//! What touches a handful of rows (a look-up by key, an insert, a CHECK constraint, a RETURNING
//! list) would spend more time on building Arrow arrays of length one than on the work itself. A
//! [`RowExpression`] is compiled from DataFusion's analysed logical expression and evaluated on a
//! slice of storage cells; values of fixed size never touch the heap, strings of parameters and
//! literals are borrowed.
//!
//! [`RowExpression::compile`] knows the operators and functions that short statements use. For all
//! others [`RowExpression::compile_or_delegate`] keeps DataFusion's own physical expression and
//! evaluates it on a batch of one row, so that every expression can be evaluated somewhere.
//!
//! Invariant: an expression that compiles yields what DataFusion yields for it, errors included,
//! as far as SQLSTATE goes (`tests/` compares the two on random rows).

mod compile;
mod delegate;
mod function;
pub(crate) mod like;
#[cfg(test)]
mod tests;

use self::delegate::Delegate;
use self::function::Function;
use crate::function::{Surroundings, ValueFunction};
use crate::lower::operate::{self, Operation};
use crate::lower::quantified::{Comparison, Quantifier};
use crate::query::RunOptions;
use crate::types;
use datafusion::logical_expr::Volatility;
use firn_base::{
    ArrayValue, Cell, Error, ParameterType, Result, SqlState, SqlType, TimeZoneSetting, Value, numeric,
    operators,
};
use std::borrow::Cow;
use std::cmp::Ordering;

/// What an expression may refer to besides its row.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// `$1`, `$2`, …, already of their declared types.
    pub parameters: &'a [Value],
    /// How the statement runs: its time, what functions ask of its session.
    pub options: &'a RunOptions,
}

impl Environment<'_> {
    /// The session's time zone.
    pub(crate) fn zone(&self) -> TimeZoneSetting {
        match self.options.time_zone.as_str() {
            types::UTC => TimeZoneSetting::UTC,
            name => TimeZoneSetting::parse(name).unwrap_or_default(),
        }
    }

    /// What functions ask for.
    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings { zone: self.zone(), now: self.options.now, services: Some(&self.options.services) }
    }
}

/// A row to evaluate on.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// Its columns, at the positions that the expression was compiled for.
    pub cells: &'a [Cell<'a>],
    /// Parameters and time.
    pub environment: &'a Environment<'a>,
}

/// An expression compiled for rows of one shape.
#[derive(Debug)]
pub struct RowExpression {
    node: Node,
    ty: Option<SqlType>,
}

/// One operation of an expression.
#[derive(Debug)]
enum Node {
    Literal(Value),
    Parameter(usize),
    Column {
        position: usize,
        ty: SqlType,
    },
    Arithmetic {
        operator: Arithmetic,
        left: Box<Node>,
        right: Box<Node>,
        result: SqlType,
    },
    Negate(Box<Node>),
    Compare {
        comparison: Comparison,
        left: Box<Node>,
        right: Box<Node>,
    },
    Distinct {
        negated: bool,
        left: Box<Node>,
        right: Box<Node>,
    },
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Not(Box<Node>),
    IsNull {
        operand: Box<Node>,
        negated: bool,
    },
    /// `IS [NOT] TRUE / FALSE / UNKNOWN`.
    IsTruth {
        operand: Box<Node>,
        expected: Option<bool>,
        negated: bool,
    },
    InList {
        operand: Box<Node>,
        list: Vec<Node>,
        negated: bool,
    },
    /// `operand comparison ANY / ALL (array)`.
    Quantified {
        quantifier: Quantifier,
        operand: Box<Node>,
        array: Box<Node>,
    },
    /// An array with elements of type `to`.
    CastArray {
        operand: Box<Node>,
        to: SqlType,
    },
    Case {
        branches: Vec<(Node, Node)>,
        otherwise: Option<Box<Node>>,
    },
    Cast {
        operand: Box<Node>,
        ty: SqlType,
    },
    /// A char(n) without the blanks at its end.
    Trim(Box<Node>),
    Like {
        operand: Box<Node>,
        pattern: Box<Node>,
        escape: char,
        ignore_case: bool,
        negated: bool,
    },
    Call {
        function: Function,
        arguments: Vec<Node>,
        result: SqlType,
    },
    /// An operator that the analysis has made a function.
    Operate {
        operation: Operation,
        left: Box<Node>,
        right: Box<Node>,
        result: SqlType,
    },
    /// A function that DataFusion calls value by value as well.
    ValueFunction {
        function: &'static ValueFunction,
        arguments: Vec<Node>,
    },
    Delegate(Box<Delegate>),
}

/// A binary arithmetic operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Arithmetic {
    /// What the operator yields for two values, neither of which is a moment with time zone.
    fn apply(self, left: &Value, right: &Value) -> Result<Value> {
        match self {
            Arithmetic::Add => operators::add(left, right, &TimeZoneSetting::UTC),
            Arithmetic::Subtract => operators::subtract(left, right, &TimeZoneSetting::UTC),
            Arithmetic::Multiply => operators::multiply(left, right),
            Arithmetic::Divide => operators::divide(left, right),
            Arithmetic::Remainder => operators::modulo(left, right),
        }
    }
}

/// A numeric at the scale that the plan promises for it.
fn to_scale(value: Value, ty: SqlType) -> Result<Value> {
    match (value, ty) {
        (Value::Numeric { unscaled, scale: from }, SqlType::Numeric { scale, .. }) if from != scale => {
            let unscaled = numeric::rescale(unscaled, from, scale).ok_or_else(numeric::overflow)?;
            Ok(Value::Numeric { unscaled, scale })
        }
        (value, _) => Ok(value),
    }
}

impl RowExpression {
    /// The expression that yields `value` on every row.
    pub fn constant(value: Value, ty: SqlType) -> RowExpression {
        RowExpression { node: Node::Literal(value), ty: Some(ty) }
    }

    /// The expression that yields the cell at `position`.
    pub fn column(position: usize, ty: SqlType) -> RowExpression {
        RowExpression { node: Node::Column { position, ty }, ty: Some(ty) }
    }

    /// The expression that yields parameter `$(index + 1)`.
    pub fn parameter(index: usize, ty: SqlType) -> RowExpression {
        RowExpression { node: Node::Parameter(index), ty: Some(ty) }
    }

    /// The expression that draws the next value of a sequence each time it is evaluated.
    pub fn next_value(sequence: String) -> RowExpression {
        RowExpression {
            node: Node::Call {
                function: Function::NextValue,
                arguments: vec![Node::Literal(Value::Text(sequence))],
                result: SqlType::BigInt,
            },
            ty: Some(SqlType::BigInt),
        }
    }

    /// The type of what it yields; `None` if that is always NULL.
    pub fn ty(&self) -> Option<SqlType> {
        self.ty
    }

    /// Whether it yields a column as it is, and which.
    pub fn as_column(&self) -> Option<usize> {
        match self.node {
            Node::Column { position, .. } => Some(position),
            _ => None,
        }
    }

    /// Whether it yields the same on every row.
    pub fn is_constant(&self) -> bool {
        self.node.is_constant()
    }

    /// Its value on `row`.
    pub fn evaluate<'a>(&'a self, row: Row<'a>) -> Result<Cow<'a, Value>> {
        self.node.evaluate(row)
    }

    /// Whether it is true on `row`: neither false nor NULL.
    pub fn holds(&self, row: Row<'_>) -> Result<bool> {
        Ok(self.node.truth(row)? == Some(true))
    }

    /// Its truth on `row`; `None` is unknown.
    pub fn truth(&self, row: Row<'_>) -> Result<Option<bool>> {
        self.node.truth(row)
    }
}

impl Node {
    fn is_constant(&self) -> bool {
        match self {
            Node::Literal(_) | Node::Parameter(_) => true,
            Node::Column { .. } => false,
            Node::Arithmetic { left, right, .. }
            | Node::Compare { left, right, .. }
            | Node::Distinct { left, right, .. }
            | Node::Operate { left, right, .. }
            | Node::And(left, right)
            | Node::Or(left, right)
            | Node::Quantified { operand: left, array: right, .. } => {
                left.is_constant() && right.is_constant()
            }
            Node::Negate(operand)
            | Node::Not(operand)
            | Node::Trim(operand)
            | Node::IsNull { operand, .. }
            | Node::IsTruth { operand, .. }
            | Node::Cast { operand, .. }
            | Node::CastArray { operand, .. } => operand.is_constant(),
            Node::InList { operand, list, .. } => operand.is_constant() && list.iter().all(Node::is_constant),
            Node::Case { branches, otherwise } => {
                branches.iter().all(|(condition, value)| condition.is_constant() && value.is_constant())
                    && otherwise.as_ref().is_none_or(|value| value.is_constant())
            }
            Node::Like { operand, pattern, .. } => operand.is_constant() && pattern.is_constant(),
            Node::Call { function: Function::NextValue, .. } => false,
            Node::Call { arguments, .. } => arguments.iter().all(Node::is_constant),
            Node::ValueFunction { function, arguments } => {
                function.volatility != Volatility::Volatile && arguments.iter().all(Node::is_constant)
            }
            Node::Delegate(delegate) => delegate.is_constant(),
        }
    }

    fn evaluate<'a>(&'a self, row: Row<'a>) -> Result<Cow<'a, Value>> {
        Ok(match self {
            Node::Literal(value) => Cow::Borrowed(value),
            Node::Parameter(index) => Cow::Borrowed(parameter(row, *index)?),
            Node::Column { position, ty } => Cow::Owned(row.cells[*position].to_value(*ty)),
            Node::Arithmetic { operator, left, right, result } => {
                let left = left.evaluate(row)?;
                let right = right.evaluate(row)?;
                Cow::Owned(to_scale(operator.apply(&left, &right)?, *result)?)
            }
            Node::Negate(operand) => Cow::Owned(operators::negate(&*operand.evaluate(row)?)?),
            Node::Case { branches, otherwise } => {
                for (condition, value) in branches {
                    if condition.truth(row)? == Some(true) {
                        return value.evaluate(row);
                    }
                }
                match otherwise {
                    Some(value) => value.evaluate(row)?,
                    None => Cow::Owned(Value::Null),
                }
            }
            Node::Cast { operand, ty } => {
                let value = operand.evaluate(row)?;
                if value.is_of(*ty) {
                    value
                } else {
                    let zone = row.environment.zone();
                    Cow::Owned(firn_base::coerce::cast(value.into_owned(), *ty, &zone)?)
                }
            }
            Node::Trim(operand) => match operand.evaluate(row)?.into_owned() {
                Value::Text(mut text) => {
                    text.truncate(text.trim_end_matches(' ').len());
                    Cow::Owned(Value::Text(text))
                }
                other => Cow::Owned(other),
            },
            Node::CastArray { operand, to } => match operand.evaluate(row)? {
                array if ParameterType::Array(*to).holds(&array) => array,
                Cow::Borrowed(Value::Array(array)) => Cow::Owned(cast_array(array.clone(), *to, row)?),
                Cow::Owned(Value::Array(array)) => Cow::Owned(cast_array(array, *to, row)?),
                other => return Err(not_of_type(&other, "array")),
            },
            Node::Call { function, arguments, result } => function.call(arguments, *result, row)?,
            Node::Operate { operation, left, right, result } => {
                let left = left.evaluate(row)?;
                let right = right.evaluate(row)?;
                let zone = row.environment.zone();
                Cow::Owned(operate::compute(*operation, *result, &left, &right, &zone)?)
            }
            Node::ValueFunction { function, arguments } => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(argument.evaluate(row)?.into_owned());
                }
                if !function.takes_null && values.iter().any(Value::is_null) {
                    return Ok(Cow::Owned(Value::Null));
                }
                Cow::Owned((function.compute)(&values, &row.environment.surroundings())?)
            }
            Node::Delegate(delegate) => Cow::Owned(delegate.evaluate(row)?),
            _ => Cow::Owned(match self.truth(row)? {
                Some(truth) => Value::Boolean(truth),
                None => Value::Null,
            }),
        })
    }

    fn truth(&self, row: Row<'_>) -> Result<Option<bool>> {
        Ok(match self {
            Node::Compare { comparison, left, right } => {
                compare(left, right, row)?.map(|ordering| comparison.accepts(ordering))
            }
            Node::Distinct { negated, left, right } => {
                let left = left.evaluate(row)?;
                let right = right.evaluate(row)?;
                let distinct = match left.compare(&right) {
                    Some(ordering) => ordering.is_ne(),
                    None => left.is_null() != right.is_null(),
                };
                Some(distinct != *negated)
            }
            Node::And(left, right) => match left.truth(row)? {
                Some(false) => Some(false),
                Some(true) => right.truth(row)?,
                None => match right.truth(row)? {
                    Some(false) => Some(false),
                    _ => None,
                },
            },
            Node::Or(left, right) => match left.truth(row)? {
                Some(true) => Some(true),
                Some(false) => right.truth(row)?,
                None => match right.truth(row)? {
                    Some(true) => Some(true),
                    _ => None,
                },
            },
            Node::Not(operand) => operand.truth(row)?.map(|truth| !truth),
            Node::IsNull { operand, negated } => Some(operand.is_null(row)? != *negated),
            Node::IsTruth { operand, expected, negated } => {
                Some((operand.truth(row)? == *expected) != *negated)
            }
            Node::InList { operand, list, negated } => {
                let value = operand.evaluate(row)?;
                if value.is_null() {
                    return Ok(None);
                }
                let mut unknown = false;
                for candidate in list {
                    match value.compare(&*candidate.evaluate(row)?) {
                        Some(Ordering::Equal) => return Ok(Some(!*negated)),
                        Some(_) => {}
                        None => unknown = true,
                    }
                }
                if unknown { None } else { Some(*negated) }
            }
            Node::Quantified { quantifier, operand, array } => match &*array.evaluate(row)? {
                Value::Array(array) => quantifier.truth(&*operand.evaluate(row)?, array.elements())?,
                _ => None,
            },
            Node::Like { operand, pattern, escape, ignore_case, negated } => {
                let text = operand.evaluate(row)?;
                let pattern = pattern.evaluate(row)?;
                match (&*text, &*pattern) {
                    (Value::Text(text), Value::Text(pattern)) => {
                        Some(like::matches(text, pattern, *escape, *ignore_case)? != *negated)
                    }
                    _ => None,
                }
            }
            _ => match &*self.evaluate(row)? {
                Value::Boolean(truth) => Some(*truth),
                Value::Null => None,
                other => return Err(not_of_type(other, "boolean")),
            },
        })
    }

    /// Whether the value is NULL, without making it if it is a column.
    fn is_null(&self, row: Row<'_>) -> Result<bool> {
        match self {
            Node::Column { position, .. } => Ok(row.cells[*position].is_null()),
            _ => Ok(self.evaluate(row)?.is_null()),
        }
    }
}

/// How two operands compare; `None` if either is NULL.
fn compare(left: &Node, right: &Node, row: Row<'_>) -> Result<Option<Ordering>> {
    // A string column against anything is compared in place, without copying it out of its block.
    if let Node::Column { position, ty } = left
        && ty.is_string()
    {
        let cell = &row.cells[*position];
        return Ok(match &*right.evaluate(row)? {
            Value::Text(text) if !cell.is_null() => Some(cell.bytes().cmp(text.as_bytes())),
            _ => None,
        });
    }
    let left = left.evaluate(row)?;
    let right = right.evaluate(row)?;
    Ok(left.compare(&right))
}

fn parameter<'a>(row: Row<'a>, index: usize) -> Result<&'a Value> {
    row.environment.parameters.get(index).ok_or_else(|| {
        Error::new(SqlState::UNDEFINED_PARAMETER, format!("there is no value for parameter ${}", index + 1))
    })
}

fn cast_array(array: ArrayValue, to: SqlType, row: Row<'_>) -> Result<Value> {
    let zone = row.environment.zone();
    let cast = array.into_list()?.into_iter().map(|value| firn_base::coerce::cast(value, to, &zone));
    cast.collect::<Result<_>>().map(Value::Array)
}

#[cold]
fn not_of_type(value: &Value, wanted: &str) -> Error {
    Error::new(SqlState::DATATYPE_MISMATCH, format!("expected {wanted}, got {value:?}"))
}
