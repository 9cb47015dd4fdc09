//! `generate_series` of numbers in FROM: its rows are of the type that its bounds have.
//!
//! DataFusion counts in bigints. A series of integers is one of these, cast; a series of numerics counts in
//! the smallest unit that a bound or the step has:
//!
//! | written | counts | and yields |
//! |---|---|---|
//! | `generate_series(1, 3)` | `1, 2, 3` | `CAST(value AS integer)` |
//! | `generate_series(1, 2, 0.5)` | `10, 15, 20` | `value * 0.1` |
//! | with a bigint; of moments | | what it counts |

use super::operators::{cast, numeric_literal};
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, col, lit};
use firn_base::sync::Arc;
use firn_base::{Error, SqlType, Value, numeric};
use firn_exec::error::to_datafusion;
use firn_exec::types;

/// What a series yields of each number that it counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unit {
    /// The number.
    Itself,
    /// It as an integer.
    Integer,
    /// So many decimals behind the point are it.
    Decimals(u8),
}

/// The unit of a series between such bounds, and the bounds as they are to be counted.
pub fn unit(arguments: Vec<Expr>) -> Result<(Unit, Vec<Expr>)> {
    let is = |kind: fn(&ScalarValue) -> bool| move |argument: &Expr| matches!(argument, Expr::Literal(scalar, _) if kind(scalar));
    let is_small = is(|scalar| matches!(scalar, ScalarValue::Int16(_) | ScalarValue::Int32(_)));
    let is_null = is(|scalar| scalar.is_null());
    let is_number = is(|scalar| scalar.data_type().is_numeric() && !scalar.data_type().is_floating());
    let scale = arguments.iter().filter_map(|argument| match argument {
        Expr::Literal(ScalarValue::Decimal128(_, _, scale), _) => Some(scale.unsigned_abs()),
        _ => None,
    });
    match scale.max() {
        Some(scale) if arguments.iter().all(|argument| is_number(argument) || is_null(argument)) => {
            let mut counted =
                arguments.into_iter().map(|bound| count(bound, scale)).collect::<Result<Vec<_>>>()?;
            if counted.len() == 2 {
                counted.push(count(lit(1), scale)?);
            }
            Ok((Unit::Decimals(scale), counted))
        }
        None if arguments.iter().any(is_small)
            && arguments.iter().all(|argument| is_small(argument) || is_null(argument)) =>
        {
            Ok((Unit::Integer, arguments))
        }
        _ => Ok((Unit::Itself, arguments)),
    }
}

/// A bound as a number of units.
fn count(bound: Expr, scale: u8) -> Result<Expr> {
    let Expr::Literal(scalar, _) = bound else { return Ok(bound) };
    if scalar.is_null() {
        return Ok(lit(ScalarValue::Null));
    }
    let (unscaled, from) = match types::value(&scalar).map_err(to_datafusion)? {
        Value::SmallInt(value) => (i128::from(value), 0),
        Value::Integer(value) => (i128::from(value), 0),
        Value::BigInt(value) => (i128::from(value), 0),
        Value::Numeric { unscaled, scale } => (unscaled, scale),
        other => unreachable!("{other:?} passed for an exact number"),
    };
    let counted = numeric::rescale(unscaled, from, scale).and_then(|units| i64::try_from(units).ok());
    let counted = counted.ok_or_else(|| {
        Error::unsupported("generate_series of numerics with more than 18 digits")
            .with_hint("Compute them from a series of bigints.")
    });
    counted.map(lit).map_err(to_datafusion)
}

/// The series that yields of what another counts.
pub fn of(counted: Arc<dyn TableProvider>, unit: Unit) -> Result<Arc<dyn TableProvider>> {
    let name = counted.schema().field(0).name().clone();
    let value = col(&name);
    let value = match unit {
        Unit::Itself => return Ok(counted),
        Unit::Integer => cast(value, SqlType::Integer),
        Unit::Decimals(scale) => {
            let units = cast(value, SqlType::Numeric { precision: 19, scale: 0 });
            let precision = numeric::MAX_PRECISION.min(19 + scale);
            cast(units * numeric_literal(1, scale), SqlType::Numeric { precision, scale })
        }
    };
    let plan = LogicalPlanBuilder::scan("generate_series", provider_as_source(counted), None)?
        .project(vec![value.alias(name)])?
        .build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}
