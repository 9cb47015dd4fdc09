//! Operators between operands of any types: what PostgreSQL's operator resolution makes of them.
//!
//! A bare literal in quotes, NULL, and a parameter of no declared type are *unknown*: beside a typed
//! operand they take its type. Between known types we build what DataFusion computes alike, and a
//! function of our own ([`firn_exec::lower::operate`]) where it does not: numeric division, products
//! of too many digits, moments and spans of time.

use super::parameters::Parameters;
use super::{days, floats};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, Result, ScalarValue, TableReference};
use datafusion::logical_expr::expr::{
    Case, Cast, Placeholder, ScalarFunction, WindowFunction, WindowFunctionParams,
};
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr, RawWindowExpr,
};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use firn_base::{Error, ParameterType, SqlState, SqlType, TimeZoneSetting, Value, coerce, numeric};
use firn_exec::error::to_datafusion;
use firn_exec::interrupt;
use firn_exec::lower::operate::{Operation, operate};
use firn_exec::types;

/// Resolves operators while DataFusion plans expressions.
#[derive(Debug)]
pub struct Operators {
    parameters: Parameters,
    zone: TimeZoneSetting,
}

/// What is known of an operand's type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Operand {
    /// Nothing yet: a bare literal, NULL or an untyped parameter.
    Unknown,
    /// Its SQL type.
    Known(SqlType),
    /// A type that SQL has no name for here, such as an array: DataFusion's affair.
    Foreign,
}

impl Operand {
    /// The type, if it is known.
    pub fn known(self) -> Option<SqlType> {
        match self {
            Operand::Known(ty) => Some(ty),
            _ => None,
        }
    }
}

impl Operators {
    /// Resolves operators, learning types of parameters on the way.
    pub fn new(parameters: Parameters, zone: TimeZoneSetting) -> Operators {
        Operators { parameters, zone }
    }

    /// The operand with constant casts folded, and what is known of its type.
    fn operand(&self, expression: Expr, schema: &DFSchema) -> Result<(Expr, Operand)> {
        let expression = super::analysis::narrow(super::analysis::fold(expression, self.zone)?, schema);
        let known = operand(&expression, schema, &self.parameters);
        Ok((expression, known))
    }

    fn adopt(&self, expression: Expr, ty: SqlType) -> Result<Expr> {
        adopt(expression, ty, &self.parameters, self.zone)
    }
}

/// What is known of an expression's type.
pub fn operand(expression: &Expr, schema: &DFSchema, parameters: &Parameters) -> Operand {
    match expression {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _) => Operand::Unknown,
        Expr::Placeholder(Placeholder { id, field: None }) => match parameters.get(id) {
            Some(ParameterType::Single(ty)) => Operand::Known(ty),
            Some(ParameterType::Array(_)) => Operand::Foreign,
            None => Operand::Unknown,
        },
        Expr::Alias(alias) => operand(&alias.expr, schema, parameters),
        other => match other.to_field(schema) {
            Ok((_, field)) if field.data_type().is_null() => Operand::Unknown,
            Ok((_, field)) if field.data_type().is_nested() => Operand::Foreign,
            Ok((_, field)) => match types::sql_type(&field) {
                Some(ty) => Operand::Known(ty),
                None => Operand::Foreign,
            },
            Err(_) => Operand::Foreign,
        },
    }
}

/// An unknown operand as one of type `ty`: literals are read, parameters learnt.
pub fn adopt(expression: Expr, ty: SqlType, parameters: &Parameters, zone: TimeZoneSetting) -> Result<Expr> {
    match expression {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => literal(&text, ty, zone),
        Expr::Literal(ScalarValue::Utf8(None) | ScalarValue::Null, _) => Ok(constant(&Value::Null, ty)),
        Expr::Placeholder(Placeholder { id, field: None }) => Ok(learn(id, ty.into(), parameters)),
        Expr::Alias(alias) => {
            let inner = adopt(*alias.expr, ty, parameters, zone)?;
            Ok(inner.alias_qualified(alias.relation, alias.name))
        }
        other => Ok(other),
    }
}

/// A parameter of which something is learnt: the first thing that was.
fn learn(id: String, ty: ParameterType, parameters: &Parameters) -> Expr {
    parameters.learn(&id, Some(ty));
    let ty = parameters.get(&id).expect("it was learnt");
    let field = types::parameter_field(&id, ty);
    Expr::Placeholder(Placeholder::new_with_field(id, Some(field)))
}

/// An unknown operand as an array with elements of type `element`. 42804 if it is a parameter that
/// holds no arrays.
pub fn adopt_array(
    expression: Expr,
    element: SqlType,
    parameters: &Parameters,
    zone: TimeZoneSetting,
) -> Result<Expr> {
    let ty = ParameterType::array_of(element);
    let ParameterType::Array(element) = ty else { unreachable!("it is one of arrays") };
    let literal = |value| Ok(Expr::Literal(types::parameter_scalar(&value, ty), None));
    match expression {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => {
            literal(firn_base::array::parse(&text, element, &zone).map_err(to_datafusion)?)
        }
        Expr::Literal(scalar, _) if scalar.is_null() => literal(Value::Null),
        Expr::Placeholder(Placeholder { id, field: None }) => Ok(learn(id, ty, parameters)),
        Expr::Alias(alias) => {
            let inner = adopt_array(*alias.expr, element, parameters, zone)?;
            Ok(inner.alias_qualified(alias.relation, alias.name))
        }
        other => Ok(other),
    }
}

/// What is known of the elements of an array; `None` if it is none.
pub fn element(array: &Expr, schema: &DFSchema, parameters: &Parameters) -> Option<Operand> {
    match operand(array, schema, parameters) {
        Operand::Unknown => Some(Operand::Unknown),
        Operand::Known(_) => None,
        Operand::Foreign => {
            if let Expr::Placeholder(Placeholder { id, field: None }) = array
                && let Some(ParameterType::Array(element)) = parameters.get(id)
            {
                return Some(Operand::Known(element));
            }
            let (_, field) = array.to_field(schema).ok()?;
            match field.data_type() {
                DataType::List(inner) if inner.data_type().is_null() => Some(Operand::Unknown),
                list => types::element_type(list).map(Operand::Known),
            }
        }
    }
}

/// The type as which values of two types are compared, if they can be.
pub fn common_type(a: SqlType, b: SqlType) -> Option<SqlType> {
    if !comparable(a, b) {
        return None;
    }
    if a.is_string() {
        return Some(SqlType::Text);
    }
    if let Some(common) = compared(a, b) {
        return Some(common);
    }
    let (a, b) = (types::data_type(a), types::data_type(b));
    let common = comparison_coercion(&a, &b)?;
    types::sql_type(&Field::new("", common, true))
}

/// The one type of several values of types that DataFusion, left alone, would unite otherwise: of floats among other
/// numbers, of dates among timestamps, of char(n) among other strings.
pub fn united(types: &[SqlType]) -> Option<SqlType> {
    floats::united(types).or_else(|| days::united(types)).or_else(|| united_strings(types))
}

/// As [`united`], the type in which two values are compared.
pub fn compared(a: SqlType, b: SqlType) -> Option<SqlType> {
    floats::compared(a, b).or_else(|| days::united(&[a, b])).or_else(|| united_strings(&[a, b]))
}

/// Text, for strings of different types if there is a char(n) among them: it loses its blanks there, or they would count.
fn united_strings(types: &[SqlType]) -> Option<SqlType> {
    let first = types.first()?;
    let is_char = |ty: &SqlType| matches!(ty, SqlType::Char(_));
    let mixed = types.iter().any(is_char) && types.iter().any(|ty| ty != first);
    (mixed && types.iter().all(|ty| ty.is_string())).then_some(SqlType::Text)
}

/// The literal that a text in quotes stands for as type `ty`.
pub fn literal(text: &str, ty: SqlType, zone: TimeZoneSetting) -> Result<Expr> {
    let read = |ty| firn_base::text::parse(text, ty, &zone).map_err(to_datafusion);
    let (value, ty) = match ty {
        SqlType::Numeric { .. } => {
            let (unscaled, scale) = numeric::parse(text).map_err(to_datafusion)?;
            return Ok(numeric_literal(unscaled, scale));
        }
        SqlType::Varchar(_) | SqlType::Text => (Value::Text(text.to_owned()), SqlType::Text),
        // Blank-padded comparison: pad, but never refuse or cut.
        SqlType::Char(length) => (Value::Text(padded(text, length)), ty),
        other => (read(other)?, other),
    };
    Ok(constant(&value, ty))
}

/// A value of a type as a literal. One of char(n) says so: what it is compared with may turn out to be text.
fn constant(value: &Value, ty: SqlType) -> Expr {
    let metadata =
        matches!(ty, SqlType::Char(_)).then(|| FieldMetadata::from(types::field("", ty).metadata().clone()));
    Expr::Literal(types::scalar(value, ty), metadata)
}

/// The literal of a numeric, with no more digits than it has.
pub fn numeric_literal(unscaled: i128, scale: u8) -> Expr {
    let digits = unscaled.unsigned_abs().checked_ilog10().map_or(1, |digits| digits as u8 + 1);
    let ty = SqlType::Numeric { precision: digits.max(scale), scale };
    Expr::Literal(types::scalar(&Value::Numeric { unscaled, scale }, ty), None)
}

/// A text as char(n) holds it: trailing blanks count for nothing.
fn padded(text: &str, length: u32) -> String {
    let text = text.trim_end_matches(' ');
    let missing = (length as usize).saturating_sub(text.chars().count());
    let mut padded = text.to_owned();
    padded.extend(std::iter::repeat_n(' ', missing));
    padded
}

impl ExprPlanner for Operators {
    /// `t.a` where there is a column `t`: no column of ours has fields, so `t` can only be a table.
    fn plan_compound_identifier(
        &self,
        field: &Field,
        _qualifier: Option<&TableReference>,
        nested_names: &[String],
    ) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(match nested_names {
            [name] if !field.data_type().is_nested() => {
                let table = TableReference::bare(field.name().clone());
                PlannerResult::Planned(Expr::Column(Column::new(Some(table), name.clone())))
            }
            _ => PlannerResult::Original(Vec::new()),
        })
    }

    fn plan_binary_op(&self, raw: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        // The types of the operands are derived anew at each level of a chain.
        interrupt::check()?;
        let RawBinaryExpr { op, left, right } = raw;
        let (left, left_type) = self.operand(left, schema)?;
        let (right, right_type) = self.operand(right, schema)?;
        let kind = Kind::of(&op);
        let (left, right) = match kind {
            Kind::Comparison => self.compare(&op, (left, left_type), (right, right_type))?,
            Kind::Arithmetic(operator) => {
                return self.arithmetic(operator, op, (left, left_type), (right, right_type));
            }
            Kind::Logic => {
                let boolean = |expression, known| match known {
                    Operand::Unknown => self.adopt(expression, SqlType::Boolean),
                    _ => Ok(expression),
                };
                (boolean(left, left_type)?, boolean(right, right_type)?)
            }
            Kind::Text | Kind::Pattern => {
                let strings = matches!(left_type, Operand::Known(ty) if ty.is_string())
                    || matches!(right_type, Operand::Known(ty) if ty.is_string());
                let unknown = left_type == Operand::Unknown || right_type == Operand::Unknown;
                match (left_type, right_type) {
                    // Arrays are joined by the same operator.
                    (Operand::Foreign, _) | (_, Operand::Foreign) => (left, right),
                    (Operand::Known(a), Operand::Known(b)) if !strings && !unknown => {
                        return Err(to_datafusion(no_operator(&op, Some(a), Some(b))));
                    }
                    _ => {
                        // Patterns are matched with all of a char(n).
                        let left = match (&kind, left_type) {
                            (Kind::Pattern, Operand::Known(SqlType::Char(_))) => left,
                            _ => self.text(left, left_type)?,
                        };
                        (left, self.text(right, right_type)?)
                    }
                }
            }
            Kind::Other => (left, right),
        };
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }

    /// Names of aggregates leave casts out, so that two which differ in nothing else would collide.
    fn plan_aggregate(&self, mut raw: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        raw.args = raw.args.into_iter().map(named_by_casts).collect::<Result<_>>()?;
        Ok(PlannerResult::Original(raw))
    }

    fn plan_window(&self, mut raw: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        let default = match (raw.func_def.name(), raw.args.as_slice()) {
            ("lag" | "lead", [_, _, default]) if differs_by_row(default)? => raw.args.pop(),
            _ => None,
        };
        raw.args = raw.args.into_iter().map(named_by_casts).collect::<Result<_>>()?;
        Ok(match default {
            Some(default) => PlannerResult::Planned(with_default(raw, default)),
            None => PlannerResult::Original(raw),
        })
    }

    fn plan_extract(&self, arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let Some(Expr::Literal(ScalarValue::Utf8(Some(field)), _)) = arguments.first() else {
            return Ok(PlannerResult::Original(arguments));
        };
        let function = crate::functions::extract(field);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))))
    }
}

/// What an operator is about.
enum Kind {
    Comparison,
    Arithmetic(Operator),
    Logic,
    Text,
    /// A text on the left, a pattern on the right.
    Pattern,
    Other,
}

impl Kind {
    fn of(op: &BinaryOperator) -> Kind {
        use BinaryOperator as B;
        match op {
            B::Eq | B::NotEq | B::Lt | B::LtEq | B::Gt | B::GtEq | B::Spaceship => Kind::Comparison,
            B::Plus => Kind::Arithmetic(Operator::Plus),
            B::Minus => Kind::Arithmetic(Operator::Minus),
            B::Multiply => Kind::Arithmetic(Operator::Multiply),
            B::Divide => Kind::Arithmetic(Operator::Divide),
            B::Modulo => Kind::Arithmetic(Operator::Modulo),
            B::And | B::Or => Kind::Logic,
            B::StringConcat => Kind::Text,
            B::PGRegexMatch
            | B::PGRegexIMatch
            | B::PGRegexNotMatch
            | B::PGRegexNotIMatch
            | B::PGLikeMatch
            | B::PGILikeMatch
            | B::PGNotLikeMatch
            | B::PGNotILikeMatch => Kind::Pattern,
            _ => Kind::Other,
        }
    }
}

impl Operators {
    /// An operand of a text operator. Blanks behind char(n) go, as in PostgreSQL's cast to text.
    fn text(&self, expression: Expr, known: Operand) -> Result<Expr> {
        match known {
            Operand::Unknown => self.adopt(expression, SqlType::Text),
            Operand::Known(SqlType::Text | SqlType::Varchar(_)) | Operand::Foreign => Ok(expression),
            Operand::Known(_) => Ok(cast(expression, SqlType::Text)),
        }
    }

    fn compare(
        &self,
        op: &BinaryOperator,
        left: (Expr, Operand),
        right: (Expr, Operand),
    ) -> Result<(Expr, Expr)> {
        let (left, right) = match (left, right) {
            ((left, Operand::Unknown), (right, Operand::Unknown)) => {
                (self.adopt(left, SqlType::Text)?, self.adopt(right, SqlType::Text)?)
            }
            ((left, Operand::Unknown), (right, Operand::Known(ty))) => {
                spans(ty, self.adopt(left, ty)?, right)
            }
            ((left, Operand::Known(ty)), (right, Operand::Unknown)) => {
                spans(ty, left, self.adopt(right, ty)?)
            }
            ((left, Operand::Known(a)), (right, Operand::Known(b))) => {
                if !comparable(a, b) {
                    return Err(to_datafusion(no_operator(op, Some(a), Some(b))));
                }
                match (a, b) {
                    (SqlType::Interval, SqlType::Interval) => spans(a, left, right),
                    (SqlType::Char(a), SqlType::Char(b)) if a == b => (left, right),
                    // Different lengths: compare without the blanks.
                    (SqlType::Char(_), b) if b.is_string() => (as_text(left), trimmed(right, b)),
                    (a, SqlType::Char(_)) if a.is_string() => (trimmed(left, a), as_text(right)),
                    _ => (left, right),
                }
            }
            ((left, _), (right, _)) => (left, right),
        };
        Ok((left, right))
    }

    fn arithmetic(
        &self,
        operator: Operator,
        op: BinaryOperator,
        left: (Expr, Operand),
        right: (Expr, Operand),
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let original =
            |left, right| Ok(PlannerResult::Original(RawBinaryExpr { op: op.clone(), left, right }));
        let ((left, left_type), (right, right_type)) = (left, right);
        match (left_type, right_type) {
            (Operand::Known(a), Operand::Known(b)) => match self.known(operator, (left, a), (right, b))? {
                Resolved::Planned(expression) => Ok(PlannerResult::Planned(expression)),
                Resolved::Native(left, right) => original(left, right),
                Resolved::Missing => Err(to_datafusion(no_operator(&op, Some(a), Some(b)))),
            },
            (Operand::Known(a), Operand::Unknown) => {
                let ty = beside(operator, a);
                let right = self.adopt(right, ty)?;
                self.arithmetic(operator, op, (left, left_type), (right, Operand::Known(ty)))
            }
            (Operand::Unknown, Operand::Known(b)) => {
                let ty = match (operator, b) {
                    // The left side of a span is a moment more likely than a span.
                    (Operator::Plus | Operator::Minus, SqlType::Interval) => SqlType::Interval,
                    _ => beside(operator, b),
                };
                let left = self.adopt(left, ty)?;
                self.arithmetic(operator, op, (left, Operand::Known(ty)), (right, right_type))
            }
            (Operand::Unknown, Operand::Unknown) => {
                let error = Error::new(
                    SqlState::new("42725"),
                    format!("operator is not unique: unknown {op} unknown"),
                )
                .with_hint(
                    "Could not choose a best candidate operator. You might need to add explicit type casts.",
                );
                Err(to_datafusion(error))
            }
            _ => original(left, right),
        }
    }

    /// Arithmetic between two known types.
    fn known(&self, operator: Operator, left: (Expr, SqlType), right: (Expr, SqlType)) -> Result<Resolved> {
        use SqlType::*;
        let ((left, a), (right, b)) = (left, right);
        let native = |left, right| Ok(Resolved::Native(left, right));
        let ours =
            |operation, result, left, right| Ok(Resolved::Planned(operate(operation, result, left, right)));
        match (operator, a, b) {
            (_, a, b) if is_number(a) && is_number(b) => self.numbers(operator, (left, a), (right, b)),
            // Days are integers.
            (Operator::Plus, Date, SmallInt | Integer) | (Operator::Plus, SmallInt | Integer, Date) => {
                ours(Operation::Add, Date, left, right)
            }
            (Operator::Minus, Date, SmallInt | Integer) => ours(Operation::Subtract, Date, left, right),
            (Operator::Minus, Date, Date) => ours(Operation::Subtract, Integer, left, right),
            (Operator::Plus | Operator::Minus, Date, Interval) => native(cast(left, Timestamp), right),
            (Operator::Plus, Interval, Date) => native(cast(right, Timestamp), left),
            (Operator::Plus | Operator::Minus, Timestamp, Interval) => native(left, right),
            (Operator::Plus, Interval, Timestamp) => native(right, left),
            // Days and months depend on the zone.
            (Operator::Plus, TimestampTz, Interval) => ours(Operation::Add, TimestampTz, left, right),
            (Operator::Plus, Interval, TimestampTz) => ours(Operation::Add, TimestampTz, right, left),
            (Operator::Minus, TimestampTz, Interval) => ours(Operation::Subtract, TimestampTz, left, right),
            (Operator::Minus, Timestamp | TimestampTz | Date, Timestamp | TimestampTz | Date) => {
                let common = if a == TimestampTz || b == TimestampTz { TimestampTz } else { Timestamp };
                let moment =
                    |expression, ty| if ty == common { expression } else { cast(expression, common) };
                ours(Operation::Subtract, Interval, moment(left, a), moment(right, b))
            }
            (Operator::Plus | Operator::Minus, Interval, Interval) => native(left, right),
            (Operator::Plus, Date, Time) => ours(Operation::Add, Timestamp, left, right),
            (Operator::Plus, Time, Interval) => ours(Operation::Add, Time, left, right),
            (Operator::Plus, Interval, Time) => ours(Operation::Add, Time, right, left),
            (Operator::Minus, Time, Interval) => ours(Operation::Subtract, Time, left, right),
            (Operator::Minus, Time, Time) => ours(Operation::Subtract, Interval, left, right),
            (Operator::Multiply, Interval, number) if is_number(number) => {
                ours(Operation::Multiply, Interval, left, right)
            }
            (Operator::Multiply, number, Interval) if is_number(number) => {
                ours(Operation::Multiply, Interval, right, left)
            }
            (Operator::Divide, Interval, number) if is_number(number) => {
                ours(Operation::Divide, Interval, left, right)
            }
            _ => Ok(Resolved::Missing),
        }
    }

    fn numbers(&self, operator: Operator, left: (Expr, SqlType), right: (Expr, SqlType)) -> Result<Resolved> {
        let ((left, a), (right, b)) = (left, right);
        if is_float(a) != is_float(b) {
            // Between a float and anything exact PostgreSQL computes in double precision.
            return Ok(Resolved::Native(cast(left, SqlType::Double), cast(right, SqlType::Double)));
        }
        Ok(match of_numerics(operator, a, b) {
            Some((operation, result)) => Resolved::Planned(operate(operation, result, left, right)),
            None => Resolved::Native(left, right),
        })
    }
}

/// The operation of ours between exact numbers, of which one is a numeric, and its type; `None` if DataFusion's does.
pub fn of_numerics(operator: Operator, a: SqlType, b: SqlType) -> Option<(Operation, SqlType)> {
    let ((p, s), (q, t)) = (digits(a)?, digits(b)?);
    if !matches!(a, SqlType::Numeric { .. }) && !matches!(b, SqlType::Numeric { .. }) {
        return None;
    }
    match operator {
        Operator::Divide => Some((Operation::Divide, numeric::quotient_type(p - s + t, s.max(t)))),
        // DataFusion would keep all decimals and leave no room for what stands before the point.
        Operator::Multiply if u16::from(p) + u16::from(q) > 38 && s + t > 18 => {
            let result = SqlType::Numeric { precision: numeric::MAX_PRECISION, scale: s.max(t).max(16) };
            Some((Operation::Multiply, result))
        }
        _ => None,
    }
}

/// An argument under a name that tells its casts.
fn named_by_casts(argument: Expr) -> Result<Expr> {
    let casts = argument
        .exists(|part| Ok(matches!(part, Expr::Cast(cast) if !matches!(*cast.expr, Expr::Literal(..)))))?;
    let name = casts.then(|| argument.to_string());
    Ok(match name {
        Some(name) => argument.alias(name),
        None => argument,
    })
}

/// Whether an expression is none that DataFusion makes a literal of.
fn differs_by_row(expression: &Expr) -> Result<bool> {
    expression.exists(|part| {
        Ok(matches!(
            part,
            Expr::Column(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::AggregateFunction(_)
                | Expr::ScalarSubquery(_)
        ))
    })
}

/// `lag` or `lead`, and a default that is of the row which has none before or behind it: that is where a constant has none.
fn with_default(raw: RawWindowExpr, default: Expr) -> Expr {
    let mut row = raw.clone();
    row.args[0] = lit(true);
    let branch = (Box::new(window(row).is_null()), Box::new(default));
    Expr::Case(Case::new(None, vec![branch], Some(Box::new(window(raw)))))
}

fn window(raw: RawWindowExpr) -> Expr {
    let RawWindowExpr {
        func_def: fun,
        args,
        partition_by,
        order_by,
        window_frame,
        filter,
        null_treatment,
        distinct,
    } = raw;
    let params =
        WindowFunctionParams { args, partition_by, order_by, window_frame, filter, null_treatment, distinct };
    Expr::WindowFunction(Box::new(WindowFunction { fun, params }))
}

/// Two values of a type as they are compared: spans of time by their lengths.
fn spans(ty: SqlType, left: Expr, right: Expr) -> (Expr, Expr) {
    match ty {
        SqlType::Interval => (length(left), length(right)),
        _ => (left, right),
    }
}

/// The length of a span of time, which orders spans.
pub fn length(span: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(crate::functions::length_of_span(), vec![span]))
}

/// How an operator between known types is computed.
enum Resolved {
    /// By DataFusion, on these operands.
    Native(Expr, Expr),
    /// By this expression.
    Planned(Expr),
    /// There is no such operator.
    Missing,
}

/// Whether values of the type are numbers.
pub fn is_number(ty: SqlType) -> bool {
    is_float(ty) || digits(ty).is_some()
}

/// Whether they are floating-point numbers.
pub fn is_float(ty: SqlType) -> bool {
    matches!(ty, SqlType::Real | SqlType::Double)
}

/// Digits in all and after the point of an exact number.
fn digits(ty: SqlType) -> Option<(u8, u8)> {
    match ty {
        SqlType::SmallInt => Some((5, 0)),
        SqlType::Integer => Some((10, 0)),
        SqlType::BigInt => Some((19, 0)),
        SqlType::Numeric { precision, scale } => Some((precision, scale)),
        _ => None,
    }
}

/// The type that an unknown operand takes beside one of type `ty`.
fn beside(operator: Operator, ty: SqlType) -> SqlType {
    match (operator, ty) {
        (Operator::Plus, SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time) => {
            SqlType::Interval
        }
        (Operator::Multiply | Operator::Divide, SqlType::Interval) => SqlType::Double,
        (_, ty) => ty,
    }
}

/// Whether values of the types can be compared without a cast that the user writes.
fn comparable(a: SqlType, b: SqlType) -> bool {
    let class = |ty| match ty {
        ty if is_number(ty) => 0,
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => 1,
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => 2,
        SqlType::Boolean => 3,
        SqlType::Bytea => 4,
        SqlType::Time => 5,
        SqlType::Interval => 6,
        _ => 7,
    };
    class(a) == class(b)
}

/// A cast that means what PostgreSQL's means.
pub fn cast(expression: Expr, ty: SqlType) -> Expr {
    Expr::Cast(Cast::new_from_field(Box::new(expression), types::field("", ty)))
}

/// The other side of a comparison with char(n): text compares with its own blanks, char without.
fn trimmed(expression: Expr, ty: SqlType) -> Expr {
    if matches!(ty, SqlType::Char(_)) { as_text(expression) } else { expression }
}

/// A char(n) without the blanks at its end. A literal has no cast that could take them off.
pub fn as_text(expression: Expr) -> Expr {
    match expression {
        Expr::Literal(ScalarValue::Utf8View(text), _) => {
            let text = text.map(|text| text.trim_end_matches(' ').to_owned());
            Expr::Literal(ScalarValue::Utf8View(text), None)
        }
        // A field without name and metadata would keep what is known of char(n).
        other => Expr::Cast(Cast::new_from_field(Box::new(other), types::field("text", SqlType::Text))),
    }
}

/// The name of a type without length or precision, of which operators and functions know nothing.
pub fn plain_name(ty: SqlType) -> String {
    match ty {
        SqlType::Char(_) => "character".to_owned(),
        SqlType::Varchar(_) => "character varying".to_owned(),
        SqlType::Numeric { .. } => "numeric".to_owned(),
        ty => ty.to_string(),
    }
}

/// PostgreSQL's error for an operator that does not exist.
pub fn no_operator(op: &dyn std::fmt::Display, left: Option<SqlType>, right: Option<SqlType>) -> Error {
    let name = |ty: Option<SqlType>| ty.map_or_else(|| "unknown".to_owned(), plain_name);
    Error::new(
        SqlState::UNDEFINED_FUNCTION,
        format!("operator does not exist: {} {op} {}", name(left), name(right)),
    )
    .with_hint(
        "No operator matches the given name and argument types. You might need to add explicit type casts.",
    )
}

/// Whether PostgreSQL casts between the types at all; the error if not.
pub fn check_cast(from: SqlType, to: SqlType) -> Result<()> {
    if coerce::can_cast(from, to) || from.is_string() || to.is_string() {
        return Ok(());
    }
    let message = format!("cannot cast type {from} to {to}");
    Err(to_datafusion(Error::new(SqlState::CANNOT_COERCE, message)))
}
