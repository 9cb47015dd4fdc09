//! Functions of parts of the grammar that have a syntax of their own and no function in PostgreSQL: the binder calls
//! them by name.
//!
//! | function | of |
//! |---|---|
//! | `greatest`, `least` | GREATEST and LEAST: NULLs are left out |
//! | `array_subscript(a, i, j, …)` | `a[i][j]` |
//! | `array_slice(a, omitted, low, high, …)` | `a[low:high]…`; bit 2n of `omitted` says that the lower bound of dimension n is not written, bit 2n + 1 the same of the upper one |
//! | `array_set_element(a, value, i, j, …)` | `SET a[i][j] = value`: the array with an element replaced |
//! | `array_set_slice(a, source, omitted, low, high, …)` | `SET a[low:high]… = source`, `omitted` as above |
//! | `limit_count`, `offset_count` | the numbers of LIMIT and OFFSET: 2201W or 2201X below zero |
//!
//! Invariant: their oids are from 9000 to 9099; PostgreSQL assigns none of 8000 to 9999 in a release.

use super::array_parts::{set_element, set_slice};
use crate::Datum;
use crate::builder::Builder;
use crate::kernel::scalar::scalar;
use crate::kernel::{Any, Arguments, Call, Kernel, Outcome};
use crate::lists::{List, Shape};
use crate::order;
use crate::registry::{
    Body, Function, FunctionId, Kernels, Mode, Parallel, Parameter, RegistryBuilder, Volatility,
};
use firn_base::array::Dimension;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, TypeId};
use std::cmp::Ordering;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    let many = TypeId::ANYCOMPATIBLEARRAY;
    let extremes = [(9000, "greatest", Ordering::Greater), (9001, "least", Ordering::Less)];
    for (oid, name, wanted) in extremes {
        let parameters = [(many, Mode::Variadic)];
        add::<(List,), _>(builder, oid, name, &parameters, TypeId::ANYCOMPATIBLE, move |call, (list,)| {
            extreme(call, &list, wanted)
        });
    }
    let numbers = (TypeId::INT4_ARRAY, Mode::Variadic);
    let array = (TypeId::ANYARRAY, Mode::In);
    add::<(List, List), _>(
        builder,
        9002,
        "array_subscript",
        &[array, numbers],
        TypeId::ANYELEMENT,
        |call, (list, subscripts)| subscript(call, &list, &subscripts),
    );
    add::<(List, i32, List), _>(
        builder,
        9003,
        "array_slice",
        &[array, (TypeId::INT4, Mode::In), numbers],
        TypeId::ANYARRAY,
        |call, (list, omitted, bounds)| slice(call, &list, omitted as u32, &bounds),
    );
    let element = (TypeId::ANYELEMENT, Mode::In);
    let parameters = [array, element, numbers];
    add_lax::<(Option<List>, Option<Datum>, List), _>(
        builder,
        9006,
        "array_set_element",
        &parameters,
        TypeId::ANYARRAY,
        |call, (list, value, subscripts)| set_element(call, list.as_ref(), value, &subscripts),
    );
    let parameters = [array, array, (TypeId::INT4, Mode::In), numbers];
    add_lax::<(Option<List>, Option<List>, i32, List), _>(
        builder,
        9007,
        "array_set_slice",
        &parameters,
        TypeId::ANYARRAY,
        |call, (list, source, omitted, bounds)| {
            set_slice(call, list.as_ref(), source.as_ref(), omitted as u32, &bounds)
        },
    );
    let counts = [
        (9004, "limit_count", "2201W", "LIMIT must not be negative"),
        (9005, "offset_count", "2201X", "OFFSET must not be negative"),
    ];
    for (oid, name, state, message) in counts {
        let parameters = [(TypeId::INT8, Mode::In)];
        add::<(i64,), _>(builder, oid, name, &parameters, TypeId::INT8, move |_, (count,)| match count {
            0.. => Ok(count),
            _ => Err(Error::new(SqlState::new(state), message)),
        });
    }
}

/// As [`add`], of a function that is called where arguments are NULL.
fn add_lax<A: Arguments, O: Outcome + 'static>(
    builder: &mut RegistryBuilder,
    oid: u32,
    name: &str,
    parameters: &[(TypeId, Mode)],
    result: TypeId,
    call: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O + Send + Sync + 'static,
) {
    builder.add(Function { is_strict: false, ..function::<A, O>(oid, name, parameters, result, call) });
}

fn add<A: Arguments, O: Outcome + 'static>(
    builder: &mut RegistryBuilder,
    oid: u32,
    name: &str,
    parameters: &[(TypeId, Mode)],
    result: TypeId,
    call: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O + Send + Sync + 'static,
) {
    builder.add(function::<A, O>(oid, name, parameters, result, call));
}

fn function<A: Arguments, O: Outcome + 'static>(
    oid: u32,
    name: &str,
    parameters: &[(TypeId, Mode)],
    result: TypeId,
    call: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O + Send + Sync + 'static,
) -> Function {
    let parameter =
        |(ty, mode): &(TypeId, Mode)| Parameter { ty: *ty, name: None, mode: *mode, default: None };
    let kernel = scalar::<A, O>(call);
    Function {
        id: FunctionId(oid),
        schema: None,
        name: name.into(),
        parameters: parameters.iter().map(parameter).collect(),
        result,
        volatility: Volatility::Immutable,
        is_strict: true,
        parallel: Parallel::Safe,
        may_be_null: kernel.may_be_null(),
        can_fail: kernel.can_fail(),
        cannot_fail: None,
        body: Body::Scalar(Kernels { general: Arc::new(kernel), special: Vec::new() }),
    }
}

/// The first element that all others are not beyond; NULL if all are NULL.
fn extreme(call: &mut Call<'_>, list: &List<'_>, wanted: Ordering) -> Any {
    let representation = list.representation();
    let mut best = Datum::Null;
    for element in list.iter().filter(|element| !element.is_null()) {
        if best.is_null() || order::of(&element, &best, representation) == wanted {
            best = element;
        }
    }
    call.value.set(best);
    Any
}

/// The numbers, unless one is NULL.
fn numbers(list: &List<'_>) -> Option<Vec<i32>> {
    let number = |datum| match datum {
        Datum::Int32(number) => Some(number),
        _ => None,
    };
    list.iter().map(number).collect()
}

/// An element. A subscript beyond the bounds is that of no element, nor are too few or too many subscripts.
fn subscript(call: &mut Call<'_>, list: &List<'_>, subscripts: &List<'_>) -> Option<Any> {
    let subscripts = numbers(subscripts)?;
    if subscripts.is_empty() || subscripts.len() != list.dimensions() {
        return None;
    }
    let mut place = 0;
    for (number, subscript) in subscripts.into_iter().enumerate() {
        let dimension = list.dimension(number)?;
        let offset = i64::from(subscript) - i64::from(dimension.lower);
        let offset = u32::try_from(offset).ok().filter(|offset| *offset < dimension.length)?;
        place = place * dimension.length as usize + offset as usize;
    }
    call.value.set(list.get(place));
    Some(Any)
}

/// A part of an array: its dimensions begin at 1. Bounds beyond those of the array are cut; dimensions without bounds are whole.
fn slice(call: &mut Call<'_>, list: &List<'_>, omitted: u32, bounds: &List<'_>) -> Result<Option<Any>> {
    let is_omitted = |place: usize| omitted >> place & 1 == 1;
    let mut given = Vec::with_capacity(bounds.len());
    for (place, bound) in bounds.iter().enumerate() {
        given.push(match bound {
            _ if is_omitted(place) => None,
            Datum::Int32(bound) => Some(bound),
            _ => return Ok(None),
        });
    }
    let mut elements = Builder::new(list.representation());
    let mut parts: Vec<(Dimension, std::ops::Range<usize>)> = Vec::with_capacity(list.dimensions());
    let dimensions = (0..list.dimensions()).filter_map(|number| list.dimension(number));
    for (number, dimension) in dimensions.enumerate() {
        let bound = |place: usize| given.get(place).copied().flatten();
        let (first, last) = (dimension.lower, dimension.upper());
        let low = bound(number * 2).map_or(first, |low| low.max(first));
        let high = bound(number * 2 + 1).map_or(last, |high| high.min(last));
        let start = (i64::from(low) - i64::from(first)) as usize;
        let end = (i64::from(high) + 1 - i64::from(first)).max(0) as usize;
        parts.push((dimension, start..end.max(start)));
    }
    let is_empty = given.len() / 2 > parts.len() || parts.iter().any(|(_, range)| range.is_empty());
    let mut shape: Option<Shape> = None;
    if !is_empty && !parts.is_empty() {
        // The places count up as an odometer does, the last dimension fastest.
        let mut place: Vec<usize> = parts.iter().map(|(_, range)| range.start).collect();
        loop {
            let flat = place
                .iter()
                .zip(&parts)
                .fold(0, |flat, (at, (dimension, _))| flat * dimension.length as usize + at);
            elements.push(list.get(flat));
            let Some(moving) = (0..parts.len()).rev().find(|at| place[*at] + 1 < parts[*at].1.end) else {
                break;
            };
            place[moving] += 1;
            (moving + 1..parts.len()).for_each(|at| place[at] = parts[at].1.start);
        }
        if parts.len() > 1 {
            let dimension =
                |range: &std::ops::Range<usize>| Dimension { length: range.len() as u32, lower: 1 };
            shape = Some(parts.iter().map(|(_, range)| dimension(range)).collect());
        }
    }
    call.value.set_list(Arc::new(elements.finish()), shape);
    Ok(Some(Any))
}
