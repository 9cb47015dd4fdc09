//! From DataFusion's analysed expressions to [`Node`]s.

use super::delegate::Delegate;
use super::function::Function;
use super::{Arithmetic, Node, RowExpression};
use crate::function::value_function;
use crate::lower::operate::operation_of;
use crate::lower::quantified::{Comparison, quantifier_of};
use crate::types;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::expr::{Alias, Between, Case, Cast, InList, Like, Placeholder, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use firn_base::{Error, Result, SqlType, TimeZoneSetting, Value, coerce, operators};
use std::cell::Cell;

/// Where the columns of a schema lie in the rows to evaluate on: from the index of a column in the
/// schema to its position, `None` for columns that rows do not have.
pub type Positions<'a> = &'a dyn Fn(usize) -> Option<usize>;

impl RowExpression {
    /// Compiles an analysed expression over the columns of `schema`; `None` if it uses what only
    /// DataFusion evaluates.
    pub fn compile(expression: &Expr, schema: &DFSchema, positions: Positions<'_>) -> Option<RowExpression> {
        let compiler = Compiler { schema, positions, refusal: None };
        let node = compiler.node(expression)?;
        Some(RowExpression { node, ty: compiler.ty(expression) })
    }

    /// Compiles an analysed expression; the parts of it that have no faster form are evaluated by
    /// DataFusion on batches of one row. Fails for sub-queries, aggregates and columns that rows do
    /// not have.
    pub fn compile_or_delegate(
        expression: &Expr,
        schema: &DFSchema,
        positions: Positions<'_>,
    ) -> Result<RowExpression> {
        let refusal = Cell::new(None);
        let compiler = Compiler { schema, positions, refusal: Some(&refusal) };
        match compiler.node(expression) {
            Some(node) => Ok(RowExpression { node, ty: compiler.ty(expression) }),
            None => Err(refusal.take().expect("only a refusal keeps an expression from being delegated")),
        }
    }
}

struct Compiler<'a> {
    schema: &'a DFSchema,
    positions: Positions<'a>,
    /// Where to say why DataFusion does not evaluate a part either; `None` if it is not to be asked.
    refusal: Option<&'a Cell<Option<Error>>>,
}

impl Compiler<'_> {
    fn ty(&self, expression: &Expr) -> Option<SqlType> {
        let (_, field) = expression.to_field(self.schema).ok()?;
        // Arrays are nothing that the operators here know.
        let plain = !field.data_type().is_nested() && *field.data_type() != DataType::Null;
        if plain { types::sql_type(&field) } else { None }
    }

    fn is_array(&self, expression: &Expr) -> bool {
        expression.get_type(self.schema).is_ok_and(|ty| ty.is_nested())
    }

    fn node(&self, expression: &Expr) -> Option<Node> {
        let native = self.native(expression);
        let (None, Some(refusal)) = (&native, self.refusal) else { return native };
        match Delegate::new(expression, self.schema, self.positions) {
            Ok(delegate) => Some(Node::Delegate(Box::new(delegate))),
            Err(error) => {
                refusal.set(Some(error));
                None
            }
        }
    }

    fn native(&self, expression: &Expr) -> Option<Node> {
        Some(match expression {
            Expr::Alias(Alias { expr, .. }) => self.node(expr)?,
            Expr::Column(column) => {
                let index = self.schema.maybe_index_of_column(column)?;
                let ty = types::sql_type(self.schema.field(index))?;
                Node::Column { position: (self.positions)(index)?, ty }
            }
            Expr::Literal(scalar, _) if !scalar.data_type().is_nested() => {
                Node::Literal(types::value(scalar).ok()?)
            }
            Expr::Placeholder(Placeholder { id, field: Some(field) }) => {
                types::parameter_type(field)?;
                Node::Parameter(parameter_index(id)?)
            }
            Expr::BinaryExpr(binary) => self.binary(binary, expression)?,
            Expr::Not(operand) => Node::Not(self.boxed(operand)?),
            Expr::IsNull(operand) => Node::IsNull { operand: self.boxed(operand)?, negated: false },
            Expr::IsNotNull(operand) => Node::IsNull { operand: self.boxed(operand)?, negated: true },
            Expr::IsTrue(operand) => self.is_truth(operand, Some(true), false)?,
            Expr::IsFalse(operand) => self.is_truth(operand, Some(false), false)?,
            Expr::IsUnknown(operand) => self.is_truth(operand, None, false)?,
            Expr::IsNotTrue(operand) => self.is_truth(operand, Some(true), true)?,
            Expr::IsNotFalse(operand) => self.is_truth(operand, Some(false), true)?,
            Expr::IsNotUnknown(operand) => self.is_truth(operand, None, true)?,
            Expr::Negative(operand) => {
                let negate = Node::Negate(self.boxed(operand)?);
                // `-1` is a literal in everybody's mind, and index look-ups need it to be one.
                self.fold(negate)
            }
            Expr::Between(between) => self.between(between)?,
            Expr::Case(case) => self.case(case)?,
            Expr::Cast(Cast { expr, field }) if field.data_type().is_nested() => {
                let to = types::element_type(field.data_type())?;
                self.is_array(expr).then_some(())?;
                Node::CastArray { operand: self.boxed(expr)?, to }
            }
            Expr::Cast(Cast { expr, field }) => {
                let ty = types::sql_type(field)?;
                if self.is_array(expr) {
                    return None;
                }
                let loses_blanks =
                    matches!(self.ty(expr), Some(SqlType::Char(_))) && !matches!(ty, SqlType::Char(_));
                let operand = self.node(expr)?;
                let operand = if loses_blanks { Node::Trim(Box::new(operand)) } else { operand };
                self.fold(Node::Cast { operand: Box::new(operand), ty })
            }
            Expr::InList(InList { expr, list, negated }) => {
                for candidate in list {
                    self.comparable(expr, candidate)?;
                }
                Node::InList {
                    operand: self.boxed(expr)?,
                    list: list.iter().map(|candidate| self.node(candidate)).collect::<Option<_>>()?,
                    negated: *negated,
                }
            }
            Expr::Like(like) => self.like(like)?,
            Expr::ScalarFunction(ScalarFunction { func, args }) => {
                if let (Some(quantifier), [operand, array]) = (quantifier_of(func), args.as_slice()) {
                    let (operand, array) = (self.boxed(operand)?, self.boxed(array)?);
                    return Some(Node::Quantified { quantifier, operand, array });
                }
                if args.iter().any(|argument| self.is_array(argument)) {
                    return None;
                }
                if let (Some((operation, result)), [left, right]) = (operation_of(func), args.as_slice()) {
                    let (left, right) = (self.boxed(left)?, self.boxed(right)?);
                    return Some(Node::Operate { operation, left, right, result });
                }
                if let Some(function) = value_function(func) {
                    let arguments = args.iter().map(|argument| self.node(argument)).collect::<Option<_>>()?;
                    return Some(Node::ValueFunction { function, arguments });
                }
                let types: Vec<_> = args.iter().map(|argument| self.ty(argument)).collect();
                let function = Function::find(func.name(), &types)?;
                Node::Call {
                    function,
                    arguments: args.iter().map(|argument| self.node(argument)).collect::<Option<_>>()?,
                    result: self.ty(expression)?,
                }
            }
            _ => return None,
        })
    }

    fn boxed(&self, expression: &Expr) -> Option<Box<Node>> {
        self.node(expression).map(Box::new)
    }

    fn is_truth(&self, operand: &Expr, expected: Option<bool>, negated: bool) -> Option<Node> {
        Some(Node::IsTruth { operand: self.boxed(operand)?, expected, negated })
    }

    fn binary(&self, binary: &BinaryExpr, whole: &Expr) -> Option<Node> {
        let BinaryExpr { left, op, right } = binary;
        let comparison = match op {
            Operator::And => return Some(Node::And(self.boxed(left)?, self.boxed(right)?)),
            Operator::Or => return Some(Node::Or(self.boxed(left)?, self.boxed(right)?)),
            Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => {
                self.comparable(left, right)?;
                return Some(Node::Distinct {
                    negated: *op == Operator::IsNotDistinctFrom,
                    left: self.boxed(left)?,
                    right: self.boxed(right)?,
                });
            }
            Operator::Plus => return self.arithmetic(Arithmetic::Add, left, right, whole),
            Operator::Minus => return self.arithmetic(Arithmetic::Subtract, left, right, whole),
            Operator::Multiply => return self.arithmetic(Arithmetic::Multiply, left, right, whole),
            Operator::Divide => return self.arithmetic(Arithmetic::Divide, left, right, whole),
            Operator::Modulo => return self.arithmetic(Arithmetic::Remainder, left, right, whole),
            Operator::StringConcat => {
                if !self.ty(left)?.is_string() || !self.ty(right)?.is_string() {
                    return None;
                }
                return Some(Node::Call {
                    function: Function::Append,
                    arguments: vec![self.node(left)?, self.node(right)?],
                    result: SqlType::Text,
                });
            }
            Operator::Eq => Comparison::Equal,
            Operator::NotEq => Comparison::NotEqual,
            Operator::Lt => Comparison::Less,
            Operator::LtEq => Comparison::LessOrEqual,
            Operator::Gt => Comparison::Greater,
            Operator::GtEq => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.compare(comparison, left, right)
    }

    fn compare(&self, comparison: Comparison, left: &Expr, right: &Expr) -> Option<Node> {
        self.comparable(left, right)?;
        Some(Node::Compare { comparison, left: self.boxed(left)?, right: self.boxed(right)? })
    }

    /// `Some` if values of the two types compare without a conversion.
    fn comparable(&self, left: &Expr, right: &Expr) -> Option<()> {
        let (left, right) = match (self.ty(left), self.ty(right)) {
            (Some(left), Some(right)) => (left, right),
            // An untyped NULL makes every comparison unknown.
            _ => return (is_null(left) || is_null(right)).then_some(()),
        };
        let same = match (left, right) {
            (SqlType::Numeric { .. }, SqlType::Numeric { .. }) => true,
            // Blanks at the end count for DataFusion or not as its analysis has arranged.
            (SqlType::Char(_), _) | (_, SqlType::Char(_)) => false,
            (left, right) if left.is_string() && right.is_string() => true,
            (left, right) => left == right,
        };
        same.then_some(())
    }

    fn arithmetic(&self, operator: Arithmetic, left: &Expr, right: &Expr, whole: &Expr) -> Option<Node> {
        let (left_ty, right_ty, result) = (self.ty(left)?, self.ty(right)?, self.ty(whole)?);
        use SqlType::{BigInt, Date, Double, Integer, Interval, Numeric, Real, SmallInt, Time, Timestamp};
        let fits = match (left_ty, right_ty, result) {
            // The result has a scale of the plan's choice; it must not lose digits of sums and products.
            (Numeric { scale: left, .. }, Numeric { scale: right, .. }, Numeric { scale, .. }) => {
                match operator {
                    Arithmetic::Add | Arithmetic::Subtract => scale >= left.max(right),
                    Arithmetic::Multiply => scale == left + right,
                    Arithmetic::Divide | Arithmetic::Remainder => false,
                }
            }
            (SmallInt | Integer | BigInt | Real | Double, _, _) => left_ty == right_ty && left_ty == result,
            (Date, Integer, Date) | (Date, Interval, Timestamp) | (Timestamp, Interval, Timestamp) => {
                matches!(operator, Arithmetic::Add | Arithmetic::Subtract)
            }
            (Date, Date, Integer) | (Timestamp, Timestamp, Interval) => operator == Arithmetic::Subtract,
            (Interval, Interval, Interval) | (Time, Interval, Time) => {
                matches!(operator, Arithmetic::Add | Arithmetic::Subtract)
            }
            _ => false,
        };
        if !fits {
            return None;
        }
        Some(Node::Arithmetic { operator, left: self.boxed(left)?, right: self.boxed(right)?, result })
    }

    fn between(&self, between: &Between) -> Option<Node> {
        let Between { expr, negated, low, high } = between;
        let node = Node::And(
            Box::new(self.compare(Comparison::GreaterOrEqual, expr, low)?),
            Box::new(self.compare(Comparison::LessOrEqual, expr, high)?),
        );
        Some(if *negated { Node::Not(Box::new(node)) } else { node })
    }

    fn case(&self, case: &Case) -> Option<Node> {
        let mut branches = Vec::with_capacity(case.when_then_expr.len());
        for (when, then) in &case.when_then_expr {
            let condition = match &case.expr {
                Some(operand) => self.compare(Comparison::Equal, operand, when)?,
                None => self.node(when)?,
            };
            branches.push((condition, self.node(then)?));
        }
        let otherwise = match &case.else_expr {
            Some(otherwise) => Some(self.boxed(otherwise)?),
            None => None,
        };
        Some(Node::Case { branches, otherwise })
    }

    fn like(&self, like: &Like) -> Option<Node> {
        if !self.ty(&like.expr)?.is_string() || !self.ty(&like.pattern)?.is_string() {
            return None;
        }
        Some(Node::Like {
            operand: self.boxed(&like.expr)?,
            pattern: self.boxed(&like.pattern)?,
            escape: like.escape_char.unwrap_or('\\'),
            ignore_case: like.case_insensitive,
            negated: like.negated,
        })
    }

    /// The literal that a node over literals comes to; the node itself if it fails, so that the
    /// error appears when, and only when, it is evaluated.
    fn fold(&self, node: Node) -> Node {
        let literal = |operand: &Node| match operand {
            Node::Literal(value) => Some(value.clone()),
            _ => None,
        };
        let folded = match &node {
            Node::Negate(operand) => literal(operand).and_then(|value| operators::negate(&value).ok()),
            // What a cast to or from a moment with time zone yields depends on the session.
            Node::Cast { operand, ty } if *ty != SqlType::TimestampTz => literal(operand)
                .filter(|value| !matches!(value, Value::TimestampTz(_)))
                .and_then(|value| coerce::cast(value, *ty, &TimeZoneSetting::UTC).ok()),
            _ => None,
        };
        folded.map_or(node, Node::Literal)
    }
}

fn is_null(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(scalar, _) => scalar.is_null(),
        Expr::Cast(Cast { expr, .. }) | Expr::Alias(Alias { expr, .. }) => is_null(expr),
        _ => false,
    }
}

/// The index of `$1`, `$2`, … counted from 0.
pub(crate) fn parameter_index(id: &str) -> Option<usize> {
    id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}
