//! Arrays with a part replaced, as assignments to elements and slices of columns make them.
//!
//! As in PostgreSQL (array_set_element and array_set_slice in arrayfuncs.c) an array of one dimension grows to the subscripts, with
//! NULLs between them and the elements that it had. NULL counts as an empty array, which takes the subscripts as its bounds. Arrays of
//! more dimensions do not grow.

use crate::Datum;
use crate::builder::Builder;
use crate::kernel::{Any, Call};
use crate::lists::{List, Shape};
use firn_base::array::Dimension;
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState};

const SUBSCRIPT_ERROR: SqlState = SqlState::new("2202E");

/// Most elements of an array.
const MOST_ELEMENTS: i64 = 134_217_727;

/// `SET list[subscripts] = value`
pub(super) fn set_element(
    call: &mut Call<'_>,
    list: Option<&List<'_>>,
    value: Option<Datum<'_>>,
    subscripts: &List<'_>,
) -> Result<Any> {
    let subscripts = numbers(subscripts)?;
    let value = value.unwrap_or(Datum::Null);
    let representation = element_of(call);
    let mut elements = Builder::new(representation);
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        elements.push(value);
        let dimensions =
            subscripts.iter().map(|subscript| dimension(*subscript, 1)).collect::<Result<Vec<_>>>()?;
        return Ok(made(call, elements, &dimensions));
    };
    let mut dimensions = dimensions_of(list);
    if dimensions.len() != subscripts.len() {
        return Err(wrong_number());
    }
    if let [dimension] = &mut dimensions[..] {
        let place = i64::from(subscripts[0]);
        replace(&mut elements, list, dimension, place, place, std::iter::once(value))?;
        return Ok(made(call, elements, &dimensions));
    }
    let mut place = 0;
    for (dimension, subscript) in dimensions.iter().zip(subscripts) {
        let offset = i64::from(subscript) - i64::from(dimension.lower);
        let offset = u32::try_from(offset).ok().filter(|offset| *offset < dimension.length);
        place = place * dimension.length as usize + offset.ok_or_else(out_of_range)? as usize;
    }
    for (at, element) in list.iter().enumerate() {
        elements.push(if at == place { value } else { element });
    }
    Ok(made(call, elements, &dimensions))
}

/// `SET list[low:high]… = source`. Bit 2n of `omitted` says that the lower bound of dimension n is not written, bit 2n + 1 the same of the
/// upper one. A source that is NULL changes nothing.
pub(super) fn set_slice(
    call: &mut Call<'_>,
    list: Option<&List<'_>>,
    source: Option<&List<'_>>,
    omitted: u32,
    bounds: &List<'_>,
) -> Result<Any> {
    let bounds = numbers(bounds)?;
    let bound = |place: usize| (omitted >> place & 1 == 0).then(|| i64::from(bounds[place]));
    let count = bounds.len() / 2;
    let mut elements = Builder::new(element_of(call));
    let list = list.filter(|list| !list.is_empty());
    let Some(source) = source else {
        let Some(list) = list else { return Ok(made(call, elements, &[])) };
        list.iter().for_each(|element| elements.push(element));
        return Ok(made(call, elements, &dimensions_of(list)));
    };
    let Some(list) = list else {
        let mut dimensions = Vec::with_capacity(count);
        let mut length = 1;
        for number in 0..count {
            let (Some(low), Some(high)) = (bound(number * 2), bound(number * 2 + 1)) else {
                let message = "array slice subscript must provide both boundaries";
                return Err(Error::new(SUBSCRIPT_ERROR, message).with_detail(
                    "When assigning to a slice of an empty array value, slice boundaries must be fully specified.",
                ));
            };
            let dimension = dimension(low as i32, high - low + 1)?;
            length *= i64::from(dimension.length);
            if length > MOST_ELEMENTS {
                return Err(too_large());
            }
            dimensions.push(dimension);
        }
        let length = length as usize;
        if source.len() < length {
            return Err(too_small());
        }
        source.iter().take(length).for_each(|element| elements.push(element));
        if length == 0 {
            dimensions.clear();
        }
        return Ok(made(call, elements, &dimensions));
    };
    let mut dimensions = dimensions_of(list);
    if dimensions.len() < count {
        return Err(wrong_number());
    }
    if let [dimension] = &mut dimensions[..] {
        let low = bound(0).unwrap_or_else(|| i64::from(dimension.lower));
        let high = bound(1).unwrap_or_else(|| i64::from(dimension.upper()));
        if low > high {
            return Err(crossed());
        }
        if (source.len() as i64) < high - low + 1 {
            return Err(too_small());
        }
        replace(&mut elements, list, dimension, low, high, source.iter())?;
        return Ok(made(call, elements, &dimensions));
    }
    // The places of each dimension that are replaced.
    let mut parts = Vec::with_capacity(dimensions.len());
    let mut length = 1;
    for (number, dimension) in dimensions.iter().enumerate() {
        let (first, last) = (i64::from(dimension.lower), i64::from(dimension.upper()));
        let given = |place: usize| if number < count { bound(place) } else { None };
        let (low, high) = (given(number * 2).unwrap_or(first), given(number * 2 + 1).unwrap_or(last));
        if low > high {
            return Err(crossed());
        }
        if low < first || high > last {
            return Err(out_of_range());
        }
        parts.push((low - first) as usize..(high - first + 1) as usize);
        length *= (high - low + 1) as usize;
    }
    if source.len() < length {
        return Err(too_small());
    }
    let mut given = source.iter();
    for (at, element) in list.iter().enumerate() {
        let mut rest = at;
        let is_replaced = dimensions.iter().zip(&parts).rev().all(|(dimension, part)| {
            let place = rest % dimension.length as usize;
            rest /= dimension.length as usize;
            part.contains(&place)
        });
        elements.push(if is_replaced { given.next().expect("there are enough") } else { element });
    }
    Ok(made(call, elements, &dimensions))
}

/// Appends the elements of a list of one dimension with those from `low` to `high` replaced, and sets its bounds.
fn replace<'a>(
    elements: &mut Builder,
    list: &List<'_>,
    bounds: &mut Dimension,
    low: i64,
    high: i64,
    mut values: impl Iterator<Item = Datum<'a>>,
) -> Result<()> {
    let (first, last) = (i64::from(bounds.lower), i64::from(bounds.upper()));
    let (new_first, new_last) = (first.min(low), last.max(high));
    *bounds = dimension(new_first as i32, new_last - new_first + 1)?;
    for place in new_first..=new_last {
        if (low..=high).contains(&place) {
            elements.push(values.next().expect("there are enough"));
        } else if (first..=last).contains(&place) {
            elements.push(list.get((place - first) as usize));
        } else {
            elements.push(Datum::Null);
        }
    }
    Ok(())
}

fn dimension(lower: i32, length: i64) -> Result<Dimension> {
    match length {
        0..=MOST_ELEMENTS if i64::from(lower) + length <= i64::from(i32::MAX) => {
            Ok(Dimension { length: length as u32, lower })
        }
        _ => Err(too_large()),
    }
}

fn dimensions_of(list: &List<'_>) -> Vec<Dimension> {
    (0..list.dimensions()).filter_map(|number| list.dimension(number)).collect()
}

/// The array of these elements.
fn made(call: &mut Call<'_>, elements: Builder, dimensions: &[Dimension]) -> Any {
    let is_plain = matches!(dimensions, [] | [Dimension { lower: 1, .. }]);
    let shape: Option<Shape> = (!is_plain).then(|| dimensions.into());
    call.value.set_list(Arc::new(elements.finish()), shape);
    Any
}

/// How elements of the result lie.
fn element_of(call: &Call<'_>) -> Representation {
    match call.signature.representation {
        Representation::List(element) => *element,
        other => panic!("{other:?} is no array"),
    }
}

fn numbers(list: &List<'_>) -> Result<Vec<i32>> {
    let number = |datum: Datum<'_>| match datum {
        Datum::Int32(number) => Ok(number),
        _ => {
            let message = "array subscript in assignment must not be null";
            Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message))
        }
    };
    list.iter().map(number).collect()
}

#[cold]
fn wrong_number() -> Error {
    Error::new(SUBSCRIPT_ERROR, "wrong number of array subscripts")
}

#[cold]
fn out_of_range() -> Error {
    Error::new(SUBSCRIPT_ERROR, "array subscript out of range")
}

#[cold]
fn too_small() -> Error {
    Error::new(SUBSCRIPT_ERROR, "source array too small")
}

#[cold]
fn crossed() -> Error {
    Error::new(SUBSCRIPT_ERROR, "upper bound cannot be less than lower bound")
}

#[cold]
fn too_large() -> Error {
    let message = format!("array size exceeds the maximum allowed ({MOST_ELEMENTS})");
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
}
