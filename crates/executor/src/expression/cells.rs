//! Expressions over one row: compiled scalars whose functions are called on single values.
//!
//! They are made of the same [`Expression`]s as pipelines evaluate over vectors, and call the same functions. Each call has
//! a slot for its result, so that evaluating one allocates nothing once the slots have grown.

use super::{Conditions, Expression, Node, Values};
use firn_base::value::uuid_from_words;
use firn_base::{Cell, Representation, Result};
use firn_base::{Interval, Numeric};
use firn_vector::kernel::CallSite;
use firn_vector::{Context, Datum, Slot, Vector, order};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// A row whose values an expression reads.
pub(crate) trait Row {
    /// The value at a place.
    fn datum(&self, place: usize) -> Datum<'_>;
}

/// A row without values.
pub(crate) struct NoRow;

impl Row for NoRow {
    fn datum(&self, place: usize) -> Datum<'_> {
        panic!("there is no value at {place}")
    }
}

impl Row for [Datum<'_>] {
    fn datum(&self, place: usize) -> Datum<'_> {
        self[place]
    }
}

/// What expressions over one row are evaluated with.
#[derive(Clone, Copy)]
pub(crate) struct CellScope<'s> {
    /// The statement's surroundings.
    pub context: &'s Context<'s>,
    /// The values of parameters.
    pub parameters: &'s [Datum<'s>],
}

/// A compiled scalar that is evaluated for one row at a time.
#[derive(Clone)]
pub(crate) struct CellExpression {
    node: CellNode,
    representation: Representation,
}

#[derive(Clone)]
enum CellNode {
    Column(usize),
    /// A vector of one row.
    Constant(Vector),
    Parameter(usize),
    Call {
        site: Box<CallSite>,
        arguments: Vec<CellExpression>,
        result: Slot,
    },
    Chain {
        first: Box<CellExpression>,
        steps: Vec<(CallSite, CellExpression, Slot)>,
    },
    Connect {
        all: bool,
        operands: Vec<CellExpression>,
    },
    Not(Box<CellExpression>),
    Case {
        operand: Option<Box<CellExpression>>,
        arms: Vec<(CellExpression, CellExpression)>,
        otherwise: Box<CellExpression>,
    },
    CaseValue,
    Coalesce(Vec<CellExpression>),
    IsNull {
        operand: Box<CellExpression>,
        negated: bool,
    },
    Test {
        operand: Box<CellExpression>,
        which: Option<bool>,
        negated: bool,
    },
    Distinct {
        operands: Box<(CellExpression, CellExpression)>,
        negated: bool,
    },
    Quantified {
        site: Box<CallSite>,
        all: bool,
        argument: Box<CellExpression>,
        values: CellValues,
        result: Slot,
    },
    Convert(Box<CellExpression>),
}

#[derive(Clone)]
enum CellValues {
    List(Vec<CellExpression>),
    Array(Box<CellExpression>),
}

type Datums<'s> = SmallVec<[Datum<'s>; 4]>;

impl CellExpression {
    /// The same for one row at a time; `None` if it is of a kind that only vectors have, or reads a column of such a kind.
    pub fn of(expression: &Expression) -> Option<CellExpression> {
        let each = |list: &[Expression]| list.iter().map(CellExpression::of).collect::<Option<Vec<_>>>();
        let boxed = |expression: &Expression| CellExpression::of(expression).map(Box::new);
        let node = match &expression.node {
            // Cells hold images of arrays, and no records.
            Node::Column(_)
                if matches!(expression.representation, Representation::List(_) | Representation::Record) =>
            {
                return None;
            }
            Node::Column(place) => CellNode::Column(*place),
            Node::Constant(vector) => CellNode::Constant(vector.clone()),
            Node::Parameter(number) => CellNode::Parameter(*number),
            Node::Call(site, arguments) => {
                CellNode::Call { site: site.clone(), arguments: each(arguments)?, result: Slot::new() }
            }
            Node::Chain(first, steps) => {
                let step = |(site, right): &(CallSite, Expression)| {
                    Some((site.clone(), CellExpression::of(right)?, Slot::new()))
                };
                let steps = steps.iter().map(step).collect::<Option<_>>()?;
                CellNode::Chain { first: boxed(first)?, steps }
            }
            Node::Connect { all, operands } => CellNode::Connect { all: *all, operands: each(operands)? },
            Node::Not(operand) => CellNode::Not(boxed(operand)?),
            Node::Case(case) => CellNode::Case {
                operand: match &case.operand {
                    Some(operand) => Some(boxed(operand)?),
                    None => None,
                },
                arms: case
                    .arms
                    .iter()
                    .map(|(condition, result)| {
                        Some((CellExpression::of(condition)?, CellExpression::of(result)?))
                    })
                    .collect::<Option<_>>()?,
                otherwise: boxed(&case.otherwise)?,
            },
            Node::CaseValue => CellNode::CaseValue,
            Node::Coalesce(list) => CellNode::Coalesce(each(list)?),
            Node::IsNull { operand, negated } => {
                CellNode::IsNull { operand: boxed(operand)?, negated: *negated }
            }
            Node::Test { operand, which, negated } => {
                CellNode::Test { operand: boxed(operand)?, which: *which, negated: *negated }
            }
            Node::Distinct { operands, negated, .. } => {
                let (left, right) = (CellExpression::of(&operands.0)?, CellExpression::of(&operands.1)?);
                // Values of two widths are compared by a common one, which single values do not have.
                let is_same = left.representation == right.representation;
                is_same.then_some(())?;
                CellNode::Distinct { operands: Box::new((left, right)), negated: *negated }
            }
            Node::Quantified(quantified) => CellNode::Quantified {
                site: Box::new(quantified.site.clone()),
                all: quantified.all,
                argument: boxed(&quantified.argument)?,
                values: match &quantified.values {
                    Values::List(list) => CellValues::List(each(list)?),
                    Values::Array(array) => CellValues::Array(boxed(array)?),
                    Values::Set { .. } => return None,
                },
                result: Slot::new(),
            },
            Node::Convert(operand) => CellNode::Convert(boxed(operand)?),
            Node::Array(_) | Node::Row(_) | Node::Field(..) | Node::Elements(..) => return None,
        };
        Some(CellExpression { node, representation: expression.representation })
    }

    /// How its values lie.
    pub fn representation(&self) -> Representation {
        self.representation
    }

    /// The number of the parameter that it is, if it is one.
    pub fn as_parameter(&self) -> Option<usize> {
        match self.node {
            CellNode::Parameter(number) => Some(number),
            _ => None,
        }
    }

    /// Its value for a row.
    #[inline]
    pub fn evaluate<'s>(
        &'s mut self,
        scope: CellScope<'s>,
        row: &'s (impl Row + ?Sized),
    ) -> Result<Datum<'s>> {
        self.within(scope, row, None)
    }

    /// `case`: the operand of the CASE around.
    #[inline]
    fn within<'s, R: Row + ?Sized>(
        &'s mut self,
        scope: CellScope<'s>,
        row: &'s R,
        case: Option<Datum<'s>>,
    ) -> Result<Datum<'s>> {
        // Most expressions, and most arguments, are one of these.
        match &self.node {
            CellNode::Column(place) => Ok(row.datum(*place)),
            CellNode::Parameter(number) => Ok(scope.parameters[*number]),
            _ => self.computed(scope, row, case),
        }
    }

    fn computed<'s, R: Row + ?Sized>(
        &'s mut self,
        scope: CellScope<'s>,
        row: &'s R,
        case: Option<Datum<'s>>,
    ) -> Result<Datum<'s>> {
        let representation = self.representation;
        Ok(match &mut self.node {
            CellNode::Column(place) => row.datum(*place),
            CellNode::Constant(vector) => vector.datum(0),
            CellNode::Parameter(number) => scope.parameters[*number],
            CellNode::Call { site, arguments, result } => {
                match &mut arguments[..] {
                    [one] => {
                        let one = one.within(scope, row, case)?;
                        site.cells(scope.context, &[one], result)?;
                    }
                    [left, right] => {
                        let left = left.within(scope, row, case)?;
                        let right = right.within(scope, row, case)?;
                        site.cells(scope.context, &[left, right], result)?;
                    }
                    arguments => {
                        let mut datums = Datums::new();
                        for argument in arguments {
                            datums.push(argument.within(scope, row, case)?);
                        }
                        site.cells(scope.context, &datums, result)?;
                    }
                }
                result.get()
            }
            CellNode::Chain { first, steps } => {
                let mut left = first.within(scope, row, case)?;
                for (site, right, result) in steps {
                    let right = right.within(scope, row, case)?;
                    site.cells(scope.context, &[left, right], result)?;
                    left = result.get();
                }
                left
            }
            CellNode::Connect { all, operands } => {
                let mut is_known = true;
                for operand in operands {
                    match truth(operand.within(scope, row, case)?) {
                        Some(truth) if truth != *all => return Ok(Datum::Boolean(truth)),
                        Some(_) => {}
                        None => is_known = false,
                    }
                }
                if is_known { Datum::Boolean(*all) } else { Datum::Null }
            }
            CellNode::Not(operand) => match truth(operand.within(scope, row, case)?) {
                Some(truth) => Datum::Boolean(!truth),
                None => Datum::Null,
            },
            CellNode::Case { operand, arms, otherwise } => {
                let inner = match operand {
                    Some(operand) => Some(operand.within(scope, row, case)?),
                    None => case,
                };
                for (condition, result) in arms {
                    if truth(condition.within(scope, row, inner)?) == Some(true) {
                        return result.within(scope, row, case);
                    }
                }
                otherwise.within(scope, row, case)?
            }
            CellNode::CaseValue => case.expect("a CASE with an operand is around"),
            CellNode::Coalesce(list) => {
                for operand in list {
                    let value = operand.within(scope, row, case)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Datum::Null
            }
            CellNode::IsNull { operand, negated } => {
                Datum::Boolean(operand.within(scope, row, case)?.is_null() != *negated)
            }
            CellNode::Test { operand, which, negated } => {
                Datum::Boolean((truth(operand.within(scope, row, case)?) == *which) != *negated)
            }
            CellNode::Distinct { operands, negated } => {
                let representation = operands.0.representation;
                let left = operands.0.within(scope, row, case)?;
                let right = operands.1.within(scope, row, case)?;
                let is_same = order::of(&left, &right, representation) == Ordering::Equal;
                Datum::Boolean(is_same == *negated)
            }
            CellNode::Quantified { site, all, argument, values, result } => {
                let left = argument.within(scope, row, case)?;
                let mut is_known = true;
                let mut is_decided = |right: Datum<'_>| -> Result<bool> {
                    site.cells(scope.context, &[left, right], result)?;
                    let found = truth(result.get());
                    is_known &= found.is_some();
                    Ok(found.is_some_and(|found| found != *all))
                };
                match values {
                    CellValues::List(list) => {
                        for value in list {
                            if is_decided(value.within(scope, row, case)?)? {
                                return Ok(Datum::Boolean(!*all));
                            }
                        }
                    }
                    CellValues::Array(array) => match array.within(scope, row, case)? {
                        Datum::List(list) => {
                            for value in list.iter() {
                                if is_decided(value)? {
                                    return Ok(Datum::Boolean(!*all));
                                }
                            }
                        }
                        _ => return Ok(Datum::Null),
                    },
                }
                if is_known { Datum::Boolean(*all) } else { Datum::Null }
            }
            CellNode::Convert(operand) => match (operand.within(scope, row, case)?, representation) {
                (Datum::Int32(value), Representation::Oid) => Datum::UInt32(value as u32),
                (Datum::UInt32(value), Representation::Int32) => Datum::Int32(value as i32),
                (value, _) => value,
            },
        })
    }
}

/// Conditions, all of which must be TRUE for a row.
#[derive(Clone, Default)]
pub(crate) struct CellConditions(Vec<CellExpression>);

impl CellConditions {
    /// The same for one row at a time, if there is such a form of each.
    pub fn of(conditions: &Conditions) -> Option<CellConditions> {
        conditions.0.iter().map(CellExpression::of).collect::<Option<_>>().map(CellConditions)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all are TRUE.
    #[inline]
    pub fn hold(&mut self, scope: CellScope<'_>, row: &(impl Row + ?Sized)) -> Result<bool> {
        for condition in &mut self.0 {
            if truth(condition.evaluate(scope, row)?) != Some(true) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[inline]
fn truth(value: Datum<'_>) -> Option<bool> {
    match value {
        Datum::Boolean(value) => Some(value),
        Datum::Null => None,
        other => panic!("{other:?} is no boolean"),
    }
}

/// The value of a cell of a column that lies as `stored` in its table and as `general` in vectors. Not of an array.
#[inline]
pub(crate) fn datum_of_cell<'c>(
    cell: &'c Cell<'_>,
    stored: Representation,
    general: Representation,
) -> Datum<'c> {
    if cell.is_null() {
        return Datum::Null;
    }
    match stored {
        Representation::Boolean => Datum::Boolean(cell.word() != 0),
        Representation::Int16 => Datum::Int16(cell.word() as u16 as i16),
        Representation::Int32 | Representation::Date => Datum::Int32(cell.as_i32()),
        Representation::Int64
        | Representation::Time
        | Representation::Timestamp
        | Representation::TimestampTz => Datum::Int64(cell.as_i64()),
        Representation::Oid => Datum::UInt32(cell.word() as u32),
        Representation::Float32 => Datum::Float32(f32::from_bits(cell.word() as u32)),
        Representation::Float64 => Datum::Float64(f64::from_bits(cell.word())),
        Representation::Decimal { scale, .. } => {
            let unscaled = match cell {
                Cell::Wide([low, high]) => (u128::from(*high) << 64 | u128::from(*low)) as i128,
                _ => i128::from(cell.as_i64()),
            };
            let number = Numeric::from_decimal(unscaled, scale);
            // Which digits of a plain numeric were written is not known: those are shown that matter.
            Datum::Numeric(if general == Representation::Numeric { number.normalized() } else { number })
        }
        Representation::Numeric => Datum::Numeric(cell.as_numeric()),
        Representation::Text | Representation::PaddedText => Datum::Text(cell.str()),
        Representation::Bytes => Datum::Bytes(cell.bytes()),
        Representation::Interval => {
            let Cell::Wide(words) = *cell else { panic!("intervals are wide") };
            Datum::Interval(Interval::from_words(words))
        }
        Representation::Uuid => {
            let Cell::Wide(words) = *cell else { panic!("uuids are wide") };
            Datum::Uuid(uuid_from_words(words))
        }
        Representation::List(_) | Representation::Record => panic!("it is no single value"),
    }
}
