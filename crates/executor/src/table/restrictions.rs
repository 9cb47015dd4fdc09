//! What conditions ask of single columns, with the values of parameters: for zones, and for the predicate log.
//!
//! A restriction may admit more than its condition, never less. Where it is exactly the condition, a change of the column matters
//! only if it moves a row into the restriction or out of it; where it is not, the column counts as read.

use super::column_id;
use crate::source::Request;
use firn_base::{ColumnId, Numeric, Representation, Type, TypeId, Value, numeric};
use firn_plan::function::Strategy;
use firn_plan::operator::ROW_ID;
use firn_plan::scalar::{Quantified, Values};
use firn_plan::{Column, Scalar};
use firn_storage::{Restriction, StringRange, comparisons_are_exact, summary, summary_is_exact};
use firn_txn::catalog::{ColumnType, TableDef};
use firn_vector::FunctionId;
use firn_vector::pattern::{Beginning, Rest, STARTS_WITH, TEXT_LIKE, successor};

/// What the conditions of a scan ask.
pub(super) struct Restrictions {
    /// All of which a row that is used meets.
    pub restrictions: Vec<Restriction>,
    /// Columns of conditions that are not wholly among them.
    pub other_columns: Vec<ColumnId>,
    /// What they compare single columns with, for an index.
    pub comparisons: Vec<Comparison>,
    /// Whether no row meets them.
    pub is_never_met: bool,
}

/// A comparison of a column with values of its type, none of them NULL: with any of them, if it is an equality.
pub(super) struct Comparison {
    pub column: ColumnId,
    pub strategy: Strategy,
    pub values: Vec<Value>,
}

/// The restrictions of a request to scan a table.
pub(super) fn of(request: &Request<'_>, definition: &TableDef) -> Restrictions {
    let (mut restrictions, mut other_columns) = (Vec::new(), Vec::new());
    let (mut comparisons, mut is_never_met) = (Vec::new(), false);
    let asked = Asked { request, definition };
    let mut parts: Vec<&Scalar> = request.conditions.iter().rev().collect();
    while let Some(condition) = parts.pop() {
        if let Scalar::And(list) = condition {
            parts.extend(list.iter().rev());
            continue;
        }
        match asked.comparison(condition) {
            Some(comparison) if comparison.values.is_empty() => is_never_met = true,
            Some(comparison) => comparisons.push(comparison),
            None => {
                if let Some((column, Beginning { prefix, rest })) = asked.beginning(condition) {
                    let compared =
                        |strategy, text| Comparison { column, strategy, values: vec![Value::Text(text)] };
                    match rest {
                        Rest::Nothing => comparisons.push(compared(Strategy::Equal, prefix)),
                        _ => {
                            let end = successor(prefix.clone());
                            comparisons.push(compared(Strategy::GreaterOrEqual, prefix));
                            comparisons.extend(end.map(|end| compared(Strategy::Less, end)));
                        }
                    }
                }
            }
        }
        let found = asked.restriction(condition);
        if !found.as_ref().is_some_and(|(_, is_exact)| *is_exact) {
            condition.for_each_column(&mut |column| other_columns.extend(asked.id(column)));
        }
        restrictions.extend(found.map(|(restriction, _)| restriction));
    }
    Restrictions { restrictions, other_columns, comparisons, is_never_met }
}

struct Asked<'a> {
    request: &'a Request<'a>,
    definition: &'a TableDef,
}

/// Smaller ones are bigints when their fraction is cut off.
const DOUBLE_IN_BIGINT: f64 = 9e18;

/// A comparison of a column of whole numbers with one of them; without a value with a number that is none of them.
struct Whole {
    column: ColumnId,
    ty: ColumnType,
    strategy: Strategy,
    value: Option<Value>,
}

/// A restriction, and whether it is exactly the condition.
type Found = Option<(Restriction, bool)>;

impl Asked<'_> {
    /// The column of the table that a column of the plan is.
    fn id(&self, column: Column) -> Option<ColumnId> {
        let (_, attribute) = self.request.columns.iter().find(|(other, _)| *other == column)?;
        (*attribute != ROW_ID).then(|| column_id(*attribute))
    }

    /// The column that a scalar is, and its type.
    fn as_column(&self, scalar: &Scalar) -> Option<(ColumnId, ColumnType)> {
        let id = self.id(scalar.as_kept_column(|column| self.request.all[column].ty)?)?;
        Some((id, self.definition.columns[id.index()].ty))
    }

    /// A constant or the value of a parameter, with its type.
    fn as_value<'s>(&'s self, scalar: &'s Scalar) -> Option<(Type, &'s Value)> {
        match scalar {
            Scalar::Constant(ty, value) => Some((*ty, value)),
            Scalar::Parameter(number, ty) => {
                Some((*ty, self.request.parameters.get(usize::from(*number) - 1)?))
            }
            _ => None,
        }
    }

    fn restriction(&self, condition: &Scalar) -> Found {
        match condition {
            Scalar::Or(list) => {
                let each: Vec<(Restriction, bool)> =
                    list.iter().map(|part| self.restriction(part)).collect::<Option<_>>()?;
                let is_exact = each.iter().all(|(_, is_exact)| *is_exact);
                Some((Restriction::any(each.into_iter().map(|(restriction, _)| restriction))?, is_exact))
            }
            // Below OR. Any part alone is wider.
            Scalar::And(list) => {
                let parts = list.iter().filter_map(|part| self.restriction(part));
                let all = parts
                    .map(|(restriction, _)| restriction)
                    .reduce(|left, right| left.and(&right).unwrap_or(left));
                Some((all?, false))
            }
            Scalar::Call(call) if call.function.strategy.is_none() => {
                let (column, Beginning { prefix, rest }) = self.beginning(condition)?;
                let range = match rest {
                    Rest::Nothing => StringRange::only(prefix.as_bytes()),
                    _ => StringRange::prefixed(prefix.as_bytes()),
                };
                Some((Restriction::of_strings(column, range), rest != Rest::Restricted))
            }
            Scalar::Call(call) if call.arguments.len() == 2 => {
                let strategy = call.function.strategy?;
                let (left, right) = (&call.arguments[0], &call.arguments[1]);
                match (self.as_value(left), self.as_value(right)) {
                    (_, Some(value)) => self.compared(left, strategy, value),
                    (Some(value), _) => self.compared(right, strategy.commuted(), value),
                    _ => None,
                }
            }
            Scalar::Quantified(quantified) => self.quantified(quantified),
            Scalar::IsNull(operand, negated) => {
                let (column, _) = self.as_column(operand)?;
                Some((if *negated { Restriction::not_null(column) } else { Restriction::null(column) }, true))
            }
            Scalar::Test(operand, Some(which), false) => self.flag(operand, *which),
            Scalar::Not(operand) => self.flag(operand, false),
            Scalar::Column(_) => self.flag(condition, true),
            _ => None,
        }
    }

    /// A column of strings that begins with others, or is one: by LIKE or `starts_with`. What it begins with is not empty.
    fn beginning(&self, condition: &Scalar) -> Option<(ColumnId, Beginning)> {
        let Scalar::Call(call) = condition else { return None };
        let [text, pattern] = &call.arguments[..] else { return None };
        let (_, Value::Text(pattern)) = self.as_value(pattern)? else { return None };
        let beginning = match FunctionId(call.function.oid) {
            TEXT_LIKE => Beginning::of(pattern)?,
            STARTS_WITH => Beginning { prefix: pattern.clone(), rest: Rest::Anything },
            _ => return None,
        };
        let (column, ty) = self.as_column(text)?;
        let says_much = beginning.rest == Rest::Nothing || !beginning.prefix.is_empty();
        (says_much && is_text(ty.declared)).then_some((column, beginning))
    }

    /// A column of booleans that is true, or false.
    fn flag(&self, operand: &Scalar, wanted: bool) -> Found {
        let (column, ty) = self.as_column(operand)?;
        (ty.stored == Representation::Boolean).then_some(())?;
        compared(column, ty, Strategy::Equal, &Value::Boolean(wanted))
    }

    /// A column of whole numbers that is cast to a type of numbers with which each of them stays what it is.
    fn as_whole_number(&self, scalar: &Scalar) -> Option<(ColumnId, ColumnType)> {
        let Scalar::Cast(cast) = scalar else { return None };
        let (column, ty) = self.as_column(&cast.argument)?;
        let is_exact = match cast.ty.id {
            TypeId::NUMERIC => cast.ty.modifier < 0,
            TypeId::FLOAT8 => ty.stored != Representation::Int64,
            _ => false,
        };
        let is_whole =
            matches!(ty.stored, Representation::Int16 | Representation::Int32 | Representation::Int64);
        (is_whole && is_exact).then_some((column, ty))
    }

    /// A comparison of whole numbers with one that need not be whole, as one of these numbers; `None` if they do not tell.
    fn compared_whole(&self, scalar: &Scalar, strategy: Strategy, value: &Value) -> Option<Whole> {
        let (column, ty) = self.as_whole_number(scalar)?;
        let floor = |number: Numeric| {
            let below = number.floor().ok()?;
            Some((below.to_i64().ok()?, below == number))
        };
        let (below, is_whole) = match value {
            Value::Numeric { unscaled, scale } => floor(Numeric::from_decimal(*unscaled, *scale))?,
            Value::Number(number) => floor(*number)?,
            // As a numeric it would have 15 digits.
            Value::Double(value) if value.abs() < DOUBLE_IN_BIGINT => {
                (value.floor() as i64, value.floor() == *value)
            }
            _ => return None,
        };
        let (least, most) = match ty.stored {
            Representation::Int16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
            Representation::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (i64::MIN, i64::MAX),
        };
        (least..most).contains(&below).then_some(())?;
        let (strategy, at) = match strategy {
            Strategy::Equal | Strategy::NotEqual if !is_whole => {
                return Some(Whole { column, ty, strategy, value: None });
            }
            Strategy::Less if !is_whole => (Strategy::LessOrEqual, below),
            Strategy::GreaterOrEqual if !is_whole => (Strategy::Greater, below),
            strategy => (strategy, below),
        };
        let value = match ty.stored {
            Representation::Int16 => Value::SmallInt(at as i16),
            Representation::Int32 => Value::Integer(at as i32),
            _ => Value::BigInt(at),
        };
        Some(Whole { column, ty, strategy, value: Some(value) })
    }

    fn compared(&self, scalar: &Scalar, strategy: Strategy, (of, value): (Type, &Value)) -> Found {
        if let Some(Whole { column, ty, strategy, value }) = self.compared_whole(scalar, strategy, value) {
            return match (value, strategy) {
                (Some(value), strategy) => compared(column, ty, strategy, &value),
                (None, Strategy::NotEqual) => Some((Restriction::not_null(column), true)),
                (None, _) => Some((Restriction::within(column, 1, 0), true)),
            };
        }
        let (column, ty) = self.as_column(scalar)?;
        if *value == Value::Null {
            // It is true of no row.
            return Some((Restriction::within(column, 1, 0), true));
        }
        let value = fitting(value, of, ty)?;
        compared(column, ty, strategy, &value)
    }

    /// What a condition compares a column with. Without values no row meets it.
    fn comparison(&self, condition: &Scalar) -> Option<Comparison> {
        let one = |scalar: &Scalar, strategy, (of, value): (Type, &Value)| {
            if let Some(whole) = self.compared_whole(scalar, strategy, value) {
                let Whole { column, strategy, value, .. } = whole;
                let values = value.into_iter().collect();
                return (strategy != Strategy::NotEqual).then_some(Comparison { column, strategy, values });
            }
            let (column, ty) = self.as_column(scalar)?;
            let values = match value {
                Value::Null => Vec::new(),
                value => vec![fitting(value, of, ty)?],
            };
            (strategy != Strategy::NotEqual).then_some(Comparison { column, strategy, values })
        };
        match condition {
            Scalar::Call(call) if call.arguments.len() == 2 => {
                let strategy = call.function.strategy?;
                let (left, right) = (&call.arguments[0], &call.arguments[1]);
                match (self.as_value(left), self.as_value(right)) {
                    (_, Some(value)) => one(left, strategy, value),
                    (Some(value), _) => one(right, strategy.commuted(), value),
                    _ => None,
                }
            }
            Scalar::Quantified(quantified) if !quantified.all && quantified.function.is_equality() => {
                let (column, ty) = self.as_column(&quantified.argument)?;
                let given = self.elements(&quantified.values)?;
                let given = given.into_iter().filter(|(_, value)| **value != Value::Null);
                let values = given.map(|(of, value)| fitting(value, of, ty)).collect::<Option<Vec<_>>>()?;
                Some(Comparison { column, strategy: Strategy::Equal, values })
            }
            _ => None,
        }
    }

    /// The right operands of a quantified comparison, if all are known.
    fn elements<'s>(&'s self, values: &'s Values) -> Option<Vec<(Type, &'s Value)>> {
        match values {
            Values::List(list) => list.iter().map(|value| self.as_value(value)).collect(),
            Values::Array(array) => match self.as_value(array)? {
                (ty, Value::Array(array)) => {
                    let element = ty.element()?;
                    Some(array.elements().iter().map(|value| (element, value)).collect())
                }
                (_, Value::Null) => Some(Vec::new()),
                _ => None,
            },
        }
    }

    /// `column = ANY (values)`, or `column <> ALL (values)`.
    fn quantified(&self, quantified: &Quantified) -> Found {
        let wanted = if quantified.all { Strategy::NotEqual } else { Strategy::Equal };
        (quantified.function.strategy == Some(wanted)).then_some(())?;
        if quantified.all && matches!(quantified.values, Values::Array(_)) {
            return None;
        }
        let list = self.elements(&quantified.values)?;
        let (mut each, mut is_exact) = (Vec::with_capacity(list.len()), true);
        for (of, value) in list {
            if *value == Value::Null {
                // Not equal to NULL is never true; equal to it neither.
                if quantified.all {
                    return None;
                }
                continue;
            }
            let (one, exact) = self.compared(&quantified.argument, Strategy::Equal, (of, value))?;
            is_exact &= exact;
            each.push(one);
        }
        let any = Restriction::any(each)?;
        match quantified.all {
            false => Some((any, is_exact)),
            true if is_exact => Some((any.others(), true)),
            true => Some((Restriction::not_null(any.column()), false)),
        }
    }
}

fn is_text(ty: Type) -> bool {
    matches!(ty.id, TypeId::TEXT | TypeId::VARCHAR)
}

/// A value that is compared with a column as one of exactly the column's type, if it is one.
fn fitting(value: &Value, of: Type, ty: ColumnType) -> Option<Value> {
    use Representation as R;
    match (value, ty.stored) {
        (Value::Numeric { unscaled, scale }, R::Decimal { .. }) => {
            fitting(&Value::Number(Numeric::from_decimal(*unscaled, *scale)), of, ty)
        }
        (Value::Number(number), R::Decimal { precision, scale }) => {
            let unscaled = number.exactly_at(scale.into())?;
            let fits = unscaled.unsigned_abs() < numeric::power_of_ten(precision.into())?.unsigned_abs();
            fits.then_some(Value::Numeric { unscaled, scale })
        }
        (Value::Numeric { .. } | Value::Number(_), R::Numeric) => Some(value.clone()),
        // Integers of all widths are compared as numbers.
        (Value::SmallInt(value), R::Int16 | R::Int32 | R::Int64) => of_width((*value).into(), ty.stored),
        (Value::Integer(value), R::Int16 | R::Int32 | R::Int64) => of_width((*value).into(), ty.stored),
        (Value::BigInt(value), R::Int16 | R::Int32 | R::Int64) => of_width(*value, ty.stored),
        // Types of strings are compared in different ways.
        (Value::Text(_), R::Text) if is_text(ty.declared) => is_text(of).then(|| value.clone()),
        // Comparisons of both types go by doubles.
        (Value::Double(value), R::Float32) => {
            let real = *value as f32;
            (f64::from(real) == *value || value.is_nan()).then_some(Value::Real(real))
        }
        (Value::Real(value), R::Float64) => Some(Value::Double(f64::from(*value))),
        (Value::Oid(_), R::Oid) => Some(value.clone()),
        _ if of.id == ty.declared.id && *value != Value::Null => Some(value.clone()),
        _ => None,
    }
}

/// A whole number with so many bytes, if it has no more.
fn of_width(value: i64, stored: Representation) -> Option<Value> {
    match stored {
        Representation::Int16 => value.try_into().ok().map(Value::SmallInt),
        Representation::Int32 => value.try_into().ok().map(Value::Integer),
        _ => Some(Value::BigInt(value)),
    }
}

/// What `column strategy value` asks of a column, whose type the value has. `None` if restrictions cannot say it.
fn compared(column: ColumnId, ty: ColumnType, strategy: Strategy, value: &Value) -> Found {
    match ty.stored {
        Representation::Text | Representation::Bytes => {
            Some((of_string(column, strategy, value.as_cell(ty.stored).bytes()), true))
        }
        Representation::Float32 | Representation::Float64 => of_float(column, ty.stored, strategy, value),
        stored if stored.is_image() => None,
        stored => {
            let at = summary(stored, &value.as_cell(stored))?;
            let within = |low, high| Restriction::within(column, low, high);
            // Where other values have the same summary, it stays in.
            let is_exact = comparisons_are_exact(stored);
            let beyond = |next: Option<u64>| if summary_is_exact(stored) { next } else { Some(at) };
            let none = within(1, 0);
            let restriction = match strategy {
                Strategy::Equal => within(at, at),
                Strategy::NotEqual if is_exact => within(at, at).others(),
                Strategy::NotEqual => Restriction::not_null(column),
                Strategy::GreaterOrEqual => within(at, u64::MAX),
                Strategy::LessOrEqual => within(0, at),
                Strategy::Greater => beyond(at.checked_add(1)).map_or(none, |low| within(low, u64::MAX)),
                Strategy::Less => beyond(at.checked_sub(1)).map_or(none, |high| within(0, high)),
            };
            Some((restriction, is_exact))
        }
    }
}

fn of_string(column: ColumnId, strategy: Strategy, string: &[u8]) -> Restriction {
    let range = match strategy {
        Strategy::Equal | Strategy::NotEqual => StringRange::only(string),
        Strategy::Greater => StringRange::after(string),
        Strategy::GreaterOrEqual => StringRange::from(string),
        Strategy::Less => StringRange::before(string),
        Strategy::LessOrEqual => StringRange::until(string),
    };
    let restriction = Restriction::of_strings(column, range);
    if strategy == Strategy::NotEqual { restriction.others() } else { restriction }
}

/// Summaries of floats are in SQL's order, and equal exactly if the floats are. Zeros, and NaNs, can be told apart otherwise than by
/// comparing them, so that the column counts as read.
fn of_float(column: ColumnId, stored: Representation, strategy: Strategy, value: &Value) -> Found {
    let at = summary(stored, &value.as_cell(stored))?;
    let within = |low, high| Restriction::within(column, low, high);
    let restriction = match strategy {
        Strategy::Equal => within(at, at),
        Strategy::NotEqual => within(at, at).others(),
        Strategy::GreaterOrEqual => within(at, u64::MAX),
        Strategy::LessOrEqual => within(0, at),
        Strategy::Greater => at.checked_add(1).map_or(within(1, 0), |low| within(low, u64::MAX)),
        Strategy::Less => at.checked_sub(1).map_or(within(1, 0), |high| within(0, high)),
    };
    Some((restriction, false))
}
