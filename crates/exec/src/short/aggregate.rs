//! Aggregates over the few rows of a short statement.

use crate::expression::{Row, RowExpression};
use firn_base::{Error, Result, SqlState, SqlType, Value, numeric};
use std::cmp::Ordering;

/// One aggregate.
#[derive(Debug)]
pub(super) struct Aggregate {
    pub function: AggregateFunction,
    /// What it is over; `None` for `count(*)`.
    pub argument: Option<RowExpression>,
    /// The type that the plan promises for the result.
    pub result: SqlType,
}

/// What an aggregate computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AggregateFunction {
    Count,
    CountDistinct,
    Sum,
    Average,
    Smallest,
    Largest,
}

/// An aggregate in the making.
#[derive(Debug)]
pub(super) enum State {
    Count(i64),
    Distinct(Vec<Value>),
    /// Sum of integers and numerics (with their scale), of floats, and how many there were.
    Sum {
        exact: i128,
        scale: u8,
        float: f64,
        count: i64,
    },
    Extreme(Value),
}

impl Aggregate {
    pub(super) fn start(&self) -> State {
        match self.function {
            AggregateFunction::Count => State::Count(0),
            AggregateFunction::CountDistinct => State::Distinct(Vec::new()),
            AggregateFunction::Sum | AggregateFunction::Average => {
                State::Sum { exact: 0, scale: 0, float: 0.0, count: 0 }
            }
            AggregateFunction::Smallest | AggregateFunction::Largest => State::Extreme(Value::Null),
        }
    }

    /// Takes a row into account.
    pub(super) fn add(&self, state: &mut State, row: Row<'_>) -> Result<()> {
        let Some(argument) = &self.argument else {
            let State::Count(count) = state else { unreachable!("only count(*) has no argument") };
            *count += 1;
            return Ok(());
        };
        let value = argument.evaluate(row)?;
        if value.is_null() {
            return Ok(());
        }
        match state {
            State::Count(count) => *count += 1,
            State::Distinct(values) => values.push(value.into_owned()),
            State::Extreme(extreme) => {
                let wanted = match self.function {
                    AggregateFunction::Smallest => Ordering::Less,
                    _ => Ordering::Greater,
                };
                if value.compare(extreme).is_none_or(|ordering| ordering == wanted) {
                    *extreme = value.into_owned();
                }
            }
            State::Sum { exact, scale, float, count } => {
                *count += 1;
                let term = match *value {
                    Value::SmallInt(value) => i128::from(value),
                    Value::Integer(value) => i128::from(value),
                    Value::BigInt(value) => i128::from(value),
                    Value::Numeric { unscaled, scale: of_term } => {
                        *scale = of_term;
                        unscaled
                    }
                    Value::Real(value) => {
                        *float += f64::from(value);
                        0
                    }
                    Value::Double(value) => {
                        *float += value;
                        0
                    }
                    ref other => panic!("{other:?} cannot be summed up"),
                };
                *exact = exact.checked_add(term).ok_or_else(numeric::overflow)?;
            }
        }
        Ok(())
    }

    /// The result, of the promised type.
    pub(super) fn finish(&self, state: State) -> Result<Value> {
        Ok(match state {
            State::Count(count) => Value::BigInt(count),
            State::Distinct(mut values) => {
                values.sort_unstable_by(|left, right| left.compare(right).expect("NULLs were left out"));
                values.dedup_by(|left, right| left.compare(right) == Some(Ordering::Equal));
                Value::BigInt(values.len() as i64)
            }
            State::Extreme(value) => value,
            State::Sum { count: 0, .. } => Value::Null,
            State::Sum { exact, scale, float, count } => match (self.function, self.result) {
                (AggregateFunction::Average, SqlType::Double) => {
                    Value::Double((numeric::to_f64((exact, scale)) + float) / count as f64)
                }
                (AggregateFunction::Average, SqlType::Numeric { precision, scale: wanted }) => {
                    let (unscaled, of_quotient) = numeric::divide((exact, scale), (i128::from(count), 0))?;
                    let unscaled = numeric::fit(unscaled, of_quotient, precision, wanted)?;
                    Value::Numeric { unscaled, scale: wanted }
                }
                (AggregateFunction::Sum, SqlType::BigInt) => {
                    Value::BigInt(i64::try_from(exact).map_err(|_| {
                        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range")
                    })?)
                }
                (AggregateFunction::Sum, SqlType::Double) => Value::Double(float),
                (AggregateFunction::Sum, SqlType::Real) => Value::Real(float as f32),
                (AggregateFunction::Sum, SqlType::Numeric { precision, scale: wanted }) => {
                    let unscaled = numeric::fit(exact, scale, precision, wanted);
                    Value::Numeric { unscaled: unscaled.map_err(|_| numeric::overflow())?, scale: wanted }
                }
                (function, ty) => panic!("{function:?} does not yield {ty}"),
            },
        })
    }

    /// Whether an aggregate over that type yields this one, so that [`Aggregate::finish`] can.
    pub(super) fn is_supported(
        function: AggregateFunction,
        argument: Option<SqlType>,
        result: SqlType,
    ) -> bool {
        use SqlType::{BigInt, Char, Double, Integer, Numeric, Real, SmallInt};
        match function {
            AggregateFunction::Count => result == BigInt,
            AggregateFunction::CountDistinct => {
                result == BigInt && argument.is_some_and(|ty| !matches!(ty, Char(_)))
            }
            AggregateFunction::Smallest | AggregateFunction::Largest => {
                argument == Some(result) && !matches!(result, Char(_))
            }
            AggregateFunction::Average => match argument {
                Some(SmallInt | Integer | BigInt | Numeric { .. }) => matches!(result, Numeric { .. }),
                Some(Real | Double) => result == Double,
                _ => false,
            },
            AggregateFunction::Sum => match argument {
                Some(SmallInt | Integer | BigInt) => matches!(result, BigInt | Numeric { .. }),
                Some(Real | Double) => matches!(result, Real | Double),
                Some(Numeric { scale, .. }) => {
                    matches!(result, Numeric { scale: wanted, .. } if wanted >= scale)
                }
                _ => false,
            },
        }
    }
}
