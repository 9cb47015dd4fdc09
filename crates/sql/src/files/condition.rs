//! The conditions of a statement on the rows of files, as far as a scan can use them to read less. The executor evaluates them again.
//!
//! There are two ways. A [`Condition`] is evaluated over the first columns of a chunk of rows, and the values of the other columns
//! are read only for rows that satisfy it. A [`Test`] compares one column with constants, and so can exclude a whole chunk or row
//! group by the least and the greatest value in it ([`Bounds`]).
//!
//! Invariant: both accept all rows that satisfy the statement's conditions, and possibly more.

use arrow::array::ArrayRef;
use arrow::buffer::{BooleanBuffer, MutableBuffer};
use firn_base::sync::{Arc, Mutex};
use firn_base::{Representation, Type, TypeId, Value};
use firn_executor::arrays::vector_of;
use firn_executor::expression::{Compiler, Conditions, Expression, Layout, Scope};
use firn_executor::source::Request;
use firn_executor::values;
use firn_load::Sieve;
use firn_plan::function::{Function, Strategy, Volatility};
use firn_plan::scalar::{Quantified, Values};
use firn_plan::{Column, Columns, Scalar};
use firn_vector::context::detached;
use firn_vector::pattern::{Beginning, Rest, TEXT_LIKE, successor};
use firn_vector::{Chunk, Datum, Registry, Vector, order};
use std::cmp::Ordering;

/// How many rows a condition is evaluated over at once.
const ROWS_AT_ONCE: usize = 1 << 14;

/// Conditions over some columns of a file.
#[derive(Clone)]
pub(super) struct Condition {
    /// The positions of the columns in the file, in ascending order.
    pub columns: Vec<usize>,
    representations: Vec<Representation>,
    /// The conditions, which each thread copies before it evaluates them.
    conditions: Arc<Mutex<Conditions>>,
    /// A constant vector of one row for each parameter of the statement.
    parameters: Vec<Vector>,
}

impl Condition {
    /// The conditions of a request that use only columns of the file, whose positions `place` returns, and can be evaluated
    /// apart from the statement. `None` if there are none.
    pub fn new(
        request: &Request<'_>,
        registry: &Registry,
        place: impl Fn(i16) -> Option<usize>,
    ) -> Option<Condition> {
        let place = |column: Column| {
            let (_, attribute) = request.columns.iter().find(|(other, _)| *other == column)?;
            place(*attribute)
        };
        let is_usable = |condition: &&Scalar| {
            let mut columns = 0;
            let mut are_ours = true;
            condition.for_each_column(&mut |column| {
                columns += 1;
                are_ours &= place(column).is_some();
            });
            columns > 0 && are_ours && !depends_on_statement(condition, request.all)
        };
        let usable: Vec<&Scalar> = request.conditions.iter().filter(is_usable).collect();
        let mut columns: Vec<(usize, Column)> = Vec::new();
        for condition in &usable {
            condition.for_each_column(&mut |column| {
                columns.extend(place(column).map(|position| (position, column)));
            });
        }
        columns.sort_unstable_by_key(|(position, _)| *position);
        columns.dedup_by_key(|(position, _)| *position);
        let representation = |column: Column| request.all[column].ty.representation();
        let representations: Vec<Representation> =
            columns.iter().map(|(_, column)| representation(*column)).collect::<Option<_>>()?;
        let layout: Layout =
            columns.iter().map(|(_, column)| *column).zip(representations.iter().copied()).collect();
        let compiler = Compiler { registry, columns: request.all };
        let compiled = usable.iter().filter_map(|condition| compiler.scalar(condition, &layout).ok());
        let compiled: Vec<Expression> = compiled.collect();
        if compiled.is_empty() {
            return None;
        }
        Some(Condition {
            columns: columns.into_iter().map(|(position, _)| position).collect(),
            representations,
            conditions: Arc::new(Mutex::new(Conditions::new(compiled))),
            parameters: parameters(request),
        })
    }

    /// A sieve that keeps the rows that satisfy it, if its columns come first.
    pub fn sieve(&self) -> Sieve {
        let condition = self.clone();
        let keeps = move |columns: &[ArrayRef], rows| condition.met(columns, rows);
        Sieve { columns: self.columns.len(), keeps: Box::new(keeps) }
    }

    /// The rows of arrays that satisfy it, unless all do.
    fn met(&self, columns: &[ArrayRef], rows: usize) -> Option<BooleanBuffer> {
        let mut met = MutableBuffer::new_null(rows);
        let mut count = 0;
        for from in (0..rows).step_by(ROWS_AT_ONCE) {
            let length = ROWS_AT_ONCE.min(rows - from);
            let vectors = columns
                .iter()
                .zip(&self.representations)
                .map(|(array, representation)| vector_of(&array.slice(from, length), *representation));
            let kept = self.select(Chunk::new(length, vectors.collect()))?;
            count += kept.count();
            kept.rows().each(|row| arrow::util::bit_util::set_bit(&mut met, from + row));
        }
        (count < rows).then(|| BooleanBuffer::new(met.into(), 0, rows))
    }

    /// The rows of a chunk that satisfy it. `None` if it fails for one: the executor, which evaluates it again, reports the error.
    pub fn select(&self, chunk: Chunk) -> Option<Chunk> {
        let context = detached();
        let scope = Scope { context: &context, parameters: &self.parameters };
        let mut conditions = self.conditions.lock().clone();
        conditions.select(&scope, chunk).ok()
    }
}

/// Whether evaluating a condition needs more than its columns and the values of parameters: the time, the session, the catalog.
fn depends_on_statement(condition: &Scalar, columns: &Columns) -> bool {
    let is_immutable = |function: &Function| function.volatility == Volatility::Immutable;
    condition.any(&mut |scalar| match scalar {
        Scalar::Call(call) => !is_immutable(&call.function),
        Scalar::Quantified(quantified) => !is_immutable(&quantified.function),
        Scalar::Cast(cast) => match &cast.function {
            Some(function) => !is_immutable(function),
            // Unless the bits are the same, the cast uses the text form, which may depend on settings.
            None => cast.argument.ty(columns).representation() != cast.ty.representation(),
        },
        _ => false,
    })
}

/// The values of a request's parameters, for those that its conditions use.
fn parameters(request: &Request<'_>) -> Vec<Vector> {
    let null = || values::constant(&Value::Null, Representation::Boolean, 1);
    let mut vectors: Vec<Vector> = request.parameters.iter().map(|_| null()).collect();
    for condition in request.conditions {
        condition.any(&mut |scalar| {
            if let Scalar::Parameter(number, ty) = scalar
                && let Some(representation) = ty.representation()
            {
                let place = usize::from(*number) - 1;
                vectors[place] = values::constant(&request.parameters[place], representation, 1);
            }
            false
        });
    }
    vectors
}

/// A condition over one column of a file, or several of these.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Test {
    /// The column at that position has this comparison with one of these values, none of which is NULL.
    Compared { column: usize, representation: Representation, strategy: Strategy, values: Vec<Value> },
    /// The column is NULL.
    Null(usize),
    /// The column is not NULL.
    NotNull(usize),
    /// All of these hold.
    All(Vec<Test>),
    /// One of these holds.
    Any(Vec<Test>),
}

/// The range of the values of a column in some rows.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Bounds {
    /// No value is less.
    pub lower: Option<Value>,
    /// No value is greater.
    pub upper: Option<Value>,
    /// Whether one may be NULL.
    pub may_be_null: bool,
    /// Whether all are NULL.
    pub are_null: bool,
}

impl Test {
    /// The conditions of a request on single columns of a file, whose positions `place` returns; `None` if there are none.
    pub fn new(request: &Request<'_>, place: impl Fn(i16) -> Option<usize>) -> Option<Test> {
        let asked = Asked { request, place: &place };
        let tests: Vec<Test> =
            request.conditions.iter().filter_map(|condition| asked.test(condition)).collect();
        (!tests.is_empty()).then_some(Test::All(tests))
    }

    /// Calls `visit` with each column that it uses, once for each occurrence.
    pub fn for_each_column(&self, visit: &mut impl FnMut(usize)) {
        match self {
            Test::Compared { column, .. } | Test::Null(column) | Test::NotNull(column) => visit(*column),
            Test::All(tests) | Test::Any(tests) => {
                tests.iter().for_each(|test| test.for_each_column(visit));
            }
        }
    }

    /// Whether rows with these bounds of columns may satisfy it.
    pub fn may_hold<'b>(&self, bounds: &impl Fn(usize) -> Option<&'b Bounds>) -> bool {
        match self {
            Test::All(tests) => tests.iter().all(|test| test.may_hold(bounds)),
            Test::Any(tests) => tests.iter().any(|test| test.may_hold(bounds)),
            Test::Null(column) => bounds(*column).is_none_or(|bounds| bounds.may_be_null),
            Test::NotNull(column) => bounds(*column).is_none_or(|bounds| !bounds.are_null),
            Test::Compared { column, representation, strategy, values } => {
                let Some(bounds) = bounds(*column) else { return true };
                let compare =
                    |bound: &Value, value: &Value| order::of(&datum(bound), &datum(value), *representation);
                let lower = |value: &Value| bounds.lower.as_ref().map(|lower| compare(lower, value));
                let upper = |value: &Value| bounds.upper.as_ref().map(|upper| compare(upper, value));
                !bounds.are_null
                    && values.iter().any(|value| match strategy {
                        Strategy::Less => lower(value).is_none_or(Ordering::is_lt),
                        Strategy::LessOrEqual => lower(value).is_none_or(Ordering::is_le),
                        Strategy::Equal => {
                            lower(value).is_none_or(Ordering::is_le)
                                && upper(value).is_none_or(Ordering::is_ge)
                        }
                        Strategy::GreaterOrEqual => upper(value).is_none_or(Ordering::is_ge),
                        Strategy::Greater => upper(value).is_none_or(Ordering::is_gt),
                        // Bounds need not be values.
                        Strategy::NotEqual => true,
                    })
            }
        }
    }
}

/// The value in the form of vectors. Panics for arrays, which are not compared here.
fn datum(value: &Value) -> Datum<'_> {
    match value {
        Value::Null => Datum::Null,
        Value::Boolean(value) => Datum::Boolean(*value),
        Value::SmallInt(value) => Datum::Int64(i64::from(*value)),
        Value::Integer(value) => Datum::Int64(i64::from(*value)),
        Value::Date(value) => Datum::Int32(*value),
        Value::BigInt(value) | Value::Time(value) | Value::Timestamp(value) | Value::TimestampTz(value) => {
            Datum::Int64(*value)
        }
        Value::Oid(value) => Datum::UInt32(*value),
        Value::Real(value) => Datum::Float32(*value),
        Value::Double(value) => Datum::Float64(*value),
        Value::Number(value) => Datum::Numeric(*value),
        Value::Numeric { unscaled, scale } => {
            Datum::Numeric(firn_base::Numeric::from_decimal(*unscaled, *scale))
        }
        Value::Interval(value) => Datum::Interval(*value),
        Value::Uuid(value) => Datum::Uuid(*value),
        Value::Text(value) => Datum::Text(value),
        Value::Bytea(value) => Datum::Bytes(value),
        Value::Array(_) => panic!("arrays are not compared with bounds"),
    }
}

struct Asked<'a, 'r> {
    request: &'a Request<'r>,
    place: &'a dyn Fn(i16) -> Option<usize>,
}

impl Asked<'_, '_> {
    fn test(&self, condition: &Scalar) -> Option<Test> {
        match condition {
            // Each part alone accepts more than all of them together.
            Scalar::And(list) => {
                let tests: Vec<Test> = list.iter().filter_map(|part| self.test(part)).collect();
                (!tests.is_empty()).then_some(Test::All(tests))
            }
            Scalar::Or(list) => list.iter().map(|part| self.test(part)).collect::<Option<_>>().map(Test::Any),
            Scalar::IsNull(operand, negated) => {
                let (column, _) = self.column(operand)?;
                Some(if *negated { Test::NotNull(column) } else { Test::Null(column) })
            }
            Scalar::Test(operand, Some(which), false) => self.flag(operand, *which),
            Scalar::Not(operand) => self.flag(operand, false),
            Scalar::Column(_) => self.flag(condition, true),
            Scalar::Call(call) if call.function.oid == TEXT_LIKE.0 => {
                self.like(&call.arguments[0], &call.arguments[1])
            }
            Scalar::Call(call) if call.arguments.len() == 2 => {
                let strategy = call.function.strategy?;
                let (left, right) = (&call.arguments[0], &call.arguments[1]);
                match (self.value(left), self.value(right)) {
                    (_, Some(value)) => self.compared(left, strategy, &[value]),
                    (Some(value), _) => self.compared(right, commuted(strategy), &[value]),
                    _ => None,
                }
            }
            Scalar::Quantified(quantified) => self.quantified(quantified),
            _ => None,
        }
    }

    /// `column comparison ANY (values)`
    fn quantified(&self, quantified: &Quantified) -> Option<Test> {
        let strategy = quantified.function.strategy.filter(|_| !quantified.all)?;
        match &quantified.values {
            Values::List(list) => {
                let values: Vec<(Type, &Value)> =
                    list.iter().map(|value| self.value(value)).collect::<Option<_>>()?;
                self.compared(&quantified.argument, strategy, &values)
            }
            Values::Array(array) => {
                let (ty, Value::Array(array)) = self.value(array)? else { return None };
                let element = ty.element()?;
                let values: Vec<(Type, &Value)> =
                    array.elements().iter().map(|value| (element, value)).collect();
                self.compared(&quantified.argument, strategy, &values)
            }
        }
    }

    /// A column that begins like a pattern of LIKE.
    fn like(&self, operand: &Scalar, pattern: &Scalar) -> Option<Test> {
        let (ty, Value::Text(pattern)) = self.value(pattern)? else { return None };
        let Beginning { prefix, rest } = Beginning::of(pattern)?;
        let value = |text: &str| Value::Text(text.to_owned());
        if rest == Rest::Nothing {
            return self.compared(operand, Strategy::Equal, &[(ty, &value(&prefix))]);
        }
        let from = self.compared(operand, Strategy::GreaterOrEqual, &[(ty, &value(&prefix))])?;
        Some(match successor(prefix) {
            Some(end) => {
                Test::All(vec![from, self.compared(operand, Strategy::Less, &[(ty, &value(&end))])?])
            }
            None => from,
        })
    }

    /// A column of booleans that is TRUE, or FALSE.
    fn flag(&self, operand: &Scalar, wanted: bool) -> Option<Test> {
        self.compared(operand, Strategy::Equal, &[(Type::new(TypeId::BOOL), &Value::Boolean(wanted))])
    }

    /// A column that compares with one of some values. A NULL among them matches no row.
    fn compared(&self, scalar: &Scalar, strategy: Strategy, values: &[(Type, &Value)]) -> Option<Test> {
        let (column, ty) = self.column(scalar)?;
        let representation = ty.representation()?;
        if matches!(representation, Representation::List(_) | Representation::Record) {
            return None;
        }
        let known = values.iter().filter(|(_, value)| **value != Value::Null);
        let values = known.map(|(of, value)| comparable(*of, ty).then(|| (*value).clone()));
        let values = values.collect::<Option<Vec<Value>>>()?;
        Some(Test::Compared { column, representation, strategy, values })
    }

    /// The position of the column of the file that a scalar refers to, and its type.
    fn column(&self, scalar: &Scalar) -> Option<(usize, Type)> {
        let column = scalar.as_column()?;
        let (_, attribute) = self.request.columns.iter().find(|(other, _)| *other == column)?;
        Some(((self.place)(*attribute)?, self.request.all[column].ty))
    }

    /// A constant or the value of a parameter, with its type.
    fn value<'s>(&'s self, scalar: &'s Scalar) -> Option<(Type, &'s Value)> {
        match scalar {
            Scalar::Constant(ty, value) => Some((*ty, value)),
            Scalar::Parameter(number, ty) => {
                Some((*ty, self.request.parameters.get(usize::from(*number) - 1)?))
            }
            _ => None,
        }
    }
}

/// Whether values of two types compare like their values in vectors: they have one type, or are integers, or strings of types that
/// compare alike.
fn comparable(left: Type, right: Type) -> bool {
    const INTEGERS: [TypeId; 3] = [TypeId::INT2, TypeId::INT4, TypeId::INT8];
    const TEXTS: [TypeId; 2] = [TypeId::TEXT, TypeId::VARCHAR];
    let are_both = |group: &[TypeId]| group.contains(&left.id) && group.contains(&right.id);
    left.id == right.id || are_both(&INTEGERS) || are_both(&TEXTS)
}

fn commuted(strategy: Strategy) -> Strategy {
    match strategy {
        Strategy::Less => Strategy::Greater,
        Strategy::LessOrEqual => Strategy::GreaterOrEqual,
        Strategy::GreaterOrEqual => Strategy::LessOrEqual,
        Strategy::Greater => Strategy::Less,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(lower: i64, upper: i64) -> Bounds {
        Bounds { lower: Some(Value::BigInt(lower)), upper: Some(Value::BigInt(upper)), ..Bounds::default() }
    }

    fn compared(strategy: Strategy, values: &[i32]) -> Test {
        let values = values.iter().map(|value| Value::Integer(*value)).collect();
        Test::Compared { column: 0, representation: Representation::Int64, strategy, values }
    }

    #[test]
    fn rows_beyond_the_bounds_are_left_out() {
        let known = bounds(10, 20);
        let cases = [
            (Strategy::Less, 10, false),
            (Strategy::Less, 11, true),
            (Strategy::LessOrEqual, 9, false),
            (Strategy::LessOrEqual, 10, true),
            (Strategy::Equal, 9, false),
            (Strategy::Equal, 10, true),
            (Strategy::Equal, 20, true),
            (Strategy::Equal, 21, false),
            (Strategy::GreaterOrEqual, 20, true),
            (Strategy::GreaterOrEqual, 21, false),
            (Strategy::Greater, 19, true),
            (Strategy::Greater, 20, false),
            (Strategy::NotEqual, 15, true),
        ];
        for (strategy, value, expected) in cases {
            let test = compared(strategy, &[value]);
            assert_eq!(test.may_hold(&|_| Some(&known)), expected, "{strategy:?} {value}");
            assert!(test.may_hold(&|_| None), "nothing is known");
        }
        assert!(!compared(Strategy::Equal, &[]).may_hold(&|_| Some(&known)));
        assert!(compared(Strategy::Equal, &[1, 15]).may_hold(&|_| Some(&known)));
        let (low, high) = (compared(Strategy::Less, &[5]), compared(Strategy::Greater, &[15]));
        assert!(Test::Any(vec![low.clone(), high.clone()]).may_hold(&|_| Some(&known)));
        assert!(!Test::All(vec![low, high]).may_hold(&|_| Some(&known)));
    }

    #[test]
    fn nulls_meet_no_comparison() {
        let none = Bounds { may_be_null: true, are_null: true, ..Bounds::default() };
        assert!(!compared(Strategy::NotEqual, &[1]).may_hold(&|_| Some(&none)));
        assert!(Test::Null(0).may_hold(&|_| Some(&none)) && !Test::NotNull(0).may_hold(&|_| Some(&none)));
        let known = bounds(1, 2);
        assert!(!Test::Null(0).may_hold(&|_| Some(&known)) && Test::NotNull(0).may_hold(&|_| Some(&known)));
        let half_open = Bounds { lower: Some(Value::Double(1.0)), ..Bounds::default() };
        let test = |value| Test::Compared {
            column: 0,
            representation: Representation::Float64,
            strategy: Strategy::Equal,
            values: vec![Value::Double(value)],
        };
        assert!(test(f64::NAN).may_hold(&|_| Some(&half_open)));
        assert!(!test(0.5).may_hold(&|_| Some(&half_open)));
    }
}
