//! Functions of arrays.

use super::io::write;
use crate::Datum;
use crate::builder::Builder;
use crate::kernel::{Any, Call, Set, SetKernel, Text};
use crate::lists::{List, Shape};
use crate::order;
use crate::registry::RegistryBuilder;
use firn_base::array::{Dimension, MAX_DIMENSIONS};
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState};
use std::fmt::Write;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(List,), _>("array_ndims(anyarray)", |_, (list,)| {
        Some(list.dimensions() as i32).filter(|dimensions| *dimensions > 0)
    });
    builder.scalar::<(List,), _>("array_dims(anyarray)", |call, (list,)| {
        for number in 0..list.dimensions() {
            let dimension = list.dimension(number).expect("it is one of them");
            write!(call.text, "[{}:{}]", dimension.lower, dimension.upper()).expect("strings take all");
        }
        (!list.is_empty()).then_some(Text)
    });
    builder.scalar::<(List,), _>("cardinality(anyarray)", |_, (list,)| list.len() as i32);
    builder.scalar::<(List, i32), _>("array_length(anyarray,int4)", |_, (list, number)| {
        dimension(&list, number).map(|dimension| dimension.length as i32)
    });
    builder.scalar::<(List, i32), _>("array_lower(anyarray,int4)", |_, (list, number)| {
        dimension(&list, number).map(|dimension| dimension.lower)
    });
    builder.scalar::<(List, i32), _>("array_upper(anyarray,int4)", |_, (list, number)| {
        dimension(&list, number).map(Dimension::upper)
    });

    builder.scalar::<(Option<List>, Option<Datum>), _>(
        "array_append(anycompatiblearray,anycompatible)",
        |call, (list, value)| extended(call, list, value, false),
    );
    builder.scalar::<(Option<Datum>, Option<List>), _>(
        "array_prepend(anycompatible,anycompatiblearray)",
        |call, (value, list)| extended(call, list, value, true),
    );
    builder.scalar::<(Option<List>, Option<List>), _>(
        "array_cat(anycompatiblearray,anycompatiblearray)",
        |call, (left, right)| match (left, right) {
            (None, None) => Ok(None),
            (Some(list), None) | (None, Some(list)) => {
                call.value.set(Datum::List(list));
                Ok::<_, Error>(Some(Any))
            }
            (Some(left), Some(right)) => concatenated(call, &left, &right).map(Some),
        },
    );
    builder.scalar::<(Option<List>, Option<Datum>), _>(
        "array_remove(anycompatiblearray,anycompatible)",
        |call, (list, value)| {
            let Some(list) = list else { return Ok(None) };
            if list.dimensions() > 1 {
                return Err(Error::unsupported("removing elements from multidimensional arrays"));
            }
            let representation = list.representation();
            let kept = list.iter().filter(|element| !is_same(element, value, representation));
            let (elements, count) = collected(representation, kept);
            let shape = list.dimension(0).filter(|first| first.lower != 1 && count > 0);
            let shape: Option<Shape> = shape.map(|first| [Dimension { length: count, ..first }].into());
            call.value.set_list(elements, shape);
            Ok(Some(Any))
        },
    );
    builder.scalar::<(Option<List>, Option<Datum>, Option<Datum>), _>(
        "array_replace(anycompatiblearray,anycompatible,anycompatible)",
        |call, (list, from, to)| {
            let list = list?;
            let representation = list.representation();
            let replaced = list.iter().map(|element| match is_same(&element, from, representation) {
                true => to.unwrap_or(Datum::Null),
                false => element,
            });
            call.value.set_list(collected(representation, replaced).0, list.shape().cloned());
            Some(Any)
        },
    );
    builder.scalar::<(Option<List>, Option<Datum>), _>(
        "array_position(anycompatiblearray,anycompatible)",
        |_, (list, value)| position(list, value, Some(i32::MIN)),
    );
    builder.scalar::<(Option<List>, Option<Datum>, Option<i32>), _>(
        "array_position(anycompatiblearray,anycompatible,int4)",
        |_, (list, value, from)| position(list, value, from),
    );
    builder.scalar::<(Option<List>, Option<Datum>), _>(
        "array_positions(anycompatiblearray,anycompatible)",
        |call, (list, value)| {
            let Some(list) = list else { return Ok(None) };
            check_one_dimension(&list)?;
            let lower = list.dimension(0).map_or(1, |first| first.lower);
            let representation = list.representation();
            let places = list
                .iter()
                .enumerate()
                .filter(|(_, element)| is_same(element, value, representation))
                .map(|(place, _)| Datum::Int32(lower + place as i32));
            call.value.set_list(collected(Representation::Int32, places).0, None);
            Ok::<_, Error>(Some(Any))
        },
    );
    builder.scalar::<(List, i32), _>("trim_array(anyarray,int4)", |call, (list, count)| {
        let length = list.dimension(0).map_or(0, |first| first.length);
        let count = u32::try_from(count).ok().filter(|count| *count <= length).ok_or_else(|| {
            Error::new(
                SqlState::new("2202E"),
                format!("number of elements to trim must be between 0 and {length}"),
            )
        })?;
        let kept = length - count;
        let rows = if length == 0 { 0 } else { list.len() / length as usize };
        let (elements, _) = collected(list.representation(), list.iter().take(rows * kept as usize));
        let shape = (list.dimensions() > 1 && kept > 0).then(|| {
            let dimensions = (0..list.dimensions()).filter_map(|number| list.dimension(number));
            // Lower bounds begin at 1, as those of slices do.
            let mut shape: Vec<Dimension> =
                dimensions.map(|dimension| Dimension { lower: 1, ..dimension }).collect();
            shape[0].length = kept;
            Shape::from(shape)
        });
        call.value.set_list(elements, shape);
        Ok::<_, Error>(Any)
    });

    builder.scalar::<(List, List), _>("arraycontains(anyarray,anyarray)", |_, (left, right)| {
        contains(&left, &right)
    });
    builder.scalar::<(List, List), _>("arraycontained(anyarray,anyarray)", |_, (left, right)| {
        contains(&right, &left)
    });
    builder.scalar::<(List, List), _>("arrayoverlap(anyarray,anyarray)", |_, (left, right)| {
        left.iter().any(|element| !element.is_null() && has(&right, &element))
    });

    builder.scalar::<(List, &str), _>("array_to_string(anyarray,text)", |call, (list, separator)| {
        to_string(call, &list, separator, None)
    });
    builder.scalar::<(Option<List>, Option<&str>, Option<&str>), _>(
        "array_to_string(anyarray,text,text)",
        |call, (list, separator, null)| match (list, separator) {
            (Some(list), Some(separator)) => to_string(call, &list, separator, null).map(Some),
            _ => Ok(None),
        },
    );
    builder.scalar::<(Option<&str>, Option<&str>), _>(
        "string_to_array(text,text)",
        |call, (text, separator)| {
            parts_of(call, text?, separator, None);
            Some(Any)
        },
    );
    builder.scalar::<(Option<&str>, Option<&str>, Option<&str>), _>(
        "string_to_array(text,text,text)",
        |call, (text, separator, null)| {
            parts_of(call, text?, separator, null);
            Some(Any)
        },
    );
    builder.scalar::<(Option<Datum>, Option<List>), _>(
        "array_fill(anyelement,_int4)",
        |call, (value, lengths)| filled(call, value, lengths, None),
    );
    builder.scalar::<(Option<Datum>, Option<List>, Option<List>), _>(
        "array_fill(anyelement,_int4,_int4)",
        |call, (value, lengths, lowers)| match lowers {
            Some(lowers) => filled(call, value, lengths, Some(lowers)),
            None => Err(null_dimensions()),
        },
    );
    builder.scalar::<(Datum, List), _>(
        "width_bucket(anycompatible,anycompatiblearray)",
        |call, (value, thresholds)| bucket(call, &value, &thresholds),
    );
    builder.set("string_to_table(text,text) string_to_table(text,text,text)", StringParts);
    builder.set("unnest(anyarray)", Unnest);
    builder.set("generate_subscripts(anyarray,int4) generate_subscripts(anyarray,int4,bool)", Subscripts);
}

fn dimension(list: &List<'_>, number: i32) -> Option<Dimension> {
    list.dimension(usize::try_from(number).ok()?.checked_sub(1)?)
}

/// Whether an element is a value, or both are NULL.
fn is_same(element: &Datum<'_>, value: Option<Datum<'_>>, representation: Representation) -> bool {
    order::of(element, &value.unwrap_or(Datum::Null), representation).is_eq()
}

/// A vector of some values, and how many there are.
fn collected<'a>(
    representation: Representation,
    values: impl Iterator<Item = Datum<'a>>,
) -> (Arc<crate::Vector>, u32) {
    let mut builder = Builder::new(representation);
    values.for_each(|value| builder.push(value));
    let count = builder.len() as u32;
    (Arc::new(builder.finish()), count)
}

/// How elements lie of the arrays that the call returns.
fn elements_of(call: &Call<'_>) -> Representation {
    match call.signature.representation {
        Representation::List(element) => *element,
        other => panic!("{other:?} is no array"),
    }
}

fn extended(
    call: &mut Call<'_>,
    list: Option<List<'_>>,
    value: Option<Datum<'_>>,
    in_front: bool,
) -> Result<Any> {
    let value = value.unwrap_or(Datum::Null);
    let mut elements = Builder::new(elements_of(call));
    if list.is_some_and(|list| list.dimensions() > 1) {
        return Err(Error::new(SqlState::new("22000"), "argument must be empty or one-dimensional array"));
    }
    if in_front {
        elements.push(value);
    }
    list.iter().flat_map(List::iter).for_each(|element| elements.push(element));
    if !in_front {
        elements.push(value);
    }
    let length = elements.len() as u32;
    let lower = list.and_then(|list| list.dimension(0)).map_or(1, |first| first.lower);
    if i64::from(lower) + i64::from(length) > i64::from(i32::MAX) {
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range"));
    }
    let shape: Option<Shape> = (lower != 1).then(|| [Dimension { length, lower }].into());
    call.value.set_list(Arc::new(elements.finish()), shape);
    Ok(Any)
}

fn concatenated(call: &mut Call<'_>, left: &List<'_>, right: &List<'_>) -> Result<Any> {
    if left.is_empty() || right.is_empty() {
        call.value.set(Datum::List(if left.is_empty() { *right } else { *left }));
        return Ok(Any);
    }
    let incompatible = || Error::new(SqlState::new("2202E"), "cannot concatenate incompatible arrays");
    let dimensions = |list: &List<'_>| -> Vec<Dimension> {
        (0..list.dimensions()).filter_map(|number| list.dimension(number)).collect()
    };
    let (mut of_left, mut of_right) = (dimensions(left), dimensions(right));
    // An array with one dimension less is an element of the other.
    let shape = if of_left.len() == of_right.len() + 1 {
        of_right.insert(0, Dimension { length: 1, lower: 1 });
        &mut of_left
    } else if of_left.len() + 1 == of_right.len() {
        of_left.insert(0, Dimension { length: 1, lower: of_right[0].lower });
        of_left[1..].iter_mut().zip(&of_right[1..]).for_each(|(left, right)| left.lower = right.lower);
        &mut of_left
    } else {
        &mut of_left
    };
    let lengths = |dimensions: &[Dimension]| dimensions.iter().skip(1).map(|d| d.length).collect::<Vec<_>>();
    if shape.len() != of_right.len() || lengths(shape) != lengths(&of_right) {
        return Err(incompatible());
    }
    shape[0].length += of_right[0].length;
    let (elements, _) = collected(left.representation(), left.iter().chain(right.iter()));
    let is_plain = matches!(shape[..], [Dimension { lower: 1, .. }]);
    let shape: Option<Shape> = (!is_plain).then(|| shape.as_slice().into());
    call.value.set_list(elements, shape);
    Ok(Any)
}

fn check_one_dimension(list: &List<'_>) -> Result<()> {
    match list.dimensions() > 1 {
        true => Err(Error::unsupported("searching for elements in multidimensional arrays")),
        false => Ok(()),
    }
}

/// The subscript of the first element that is a value, not before one.
fn position(list: Option<List<'_>>, value: Option<Datum<'_>>, from: Option<i32>) -> Result<Option<i32>> {
    let Some(list) = list else { return Ok(None) };
    check_one_dimension(&list)?;
    if value.is_none() && !list.iter().any(|element| element.is_null()) {
        return Ok(None);
    }
    let from = from.ok_or_else(|| Error::new(SqlState::new("22004"), "initial position must not be null"))?;
    let lower = list.dimension(0).map_or(1, |first| first.lower);
    let skipped = (i64::from(from) - i64::from(lower)).max(0) as usize;
    let representation = list.representation();
    let found = list.iter().skip(skipped).position(|element| is_same(&element, value, representation));
    Ok(found.map(|place| lower + (skipped + place) as i32))
}

fn has(list: &List<'_>, value: &Datum<'_>) -> bool {
    let representation = list.representation();
    list.iter().any(|element| order::of(&element, value, representation).is_eq())
}

/// Whether all elements of an array are in another. NULL is in none.
fn contains(list: &List<'_>, others: &List<'_>) -> bool {
    others.iter().all(|element| !element.is_null() && has(list, &element))
}

fn to_string(call: &mut Call<'_>, list: &List<'_>, separator: &str, null: Option<&str>) -> Result<Text> {
    let element = call.signature.arguments[0].element().expect("arrays have elements");
    let mut is_first = true;
    for value in list.iter() {
        if value.is_null() && null.is_none() {
            continue;
        }
        if !is_first {
            call.text.push_str(separator);
        }
        is_first = false;
        match null {
            Some(null) if value.is_null() => call.text.push_str(null),
            _ => write(value, element, call)?,
        }
    }
    Ok(Text)
}

/// Puts the parts of a text between separators into the call's value.
fn parts_of(call: &mut Call<'_>, text: &str, separator: Option<&str>, null: Option<&str>) {
    call.value.set_list(Arc::new(parts(text, separator, null)), None);
}

/// The parts of a text between separators: its characters if there is no separator.
fn parts(text: &str, separator: Option<&str>, null: Option<&str>) -> crate::Vector {
    let mut elements = Builder::new(Representation::Text);
    let mut push = |part: &str| match null == Some(part) {
        true => elements.push_null(),
        false => elements.push(Datum::Text(part)),
    };
    match separator {
        _ if text.is_empty() => {}
        None => text
            .char_indices()
            .for_each(|(place, character)| push(&text[place..place + character.len_utf8()])),
        Some("") => push(text),
        Some(separator) => text.split(separator).for_each(push),
    }
    elements.finish()
}

/// How many of the thresholds, which rise, a value reaches.
fn bucket(call: &Call<'_>, value: &Datum<'_>, thresholds: &List<'_>) -> Result<i32> {
    if thresholds.dimensions() > 1 {
        return Err(Error::new(SqlState::new("2202E"), "thresholds must be one-dimensional array"));
    }
    if thresholds.iter().any(|threshold| threshold.is_null()) {
        return Err(Error::new(SqlState::new("22004"), "thresholds array must not contain NULLs"));
    }
    let representation = call.signature.representations[0];
    let (mut low, mut high) = (0, thresholds.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match order::of(value, &thresholds.get(middle), representation).is_lt() {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    Ok(low as i32)
}

#[cold]
fn null_dimensions() -> Error {
    Error::new(SqlState::new("22004"), "dimension array or low bound array cannot be null")
}

fn filled(
    call: &mut Call<'_>,
    value: Option<Datum<'_>>,
    lengths: Option<List<'_>>,
    lowers: Option<List<'_>>,
) -> Result<Any> {
    let wrong = |message: &str| Error::new(SqlState::new("2202E"), message);
    let numbers = |list: &List<'_>| -> Result<Vec<i32>> {
        let number = |value| match value {
            Datum::Int32(value) => Ok(value),
            _ => Err(Error::new(SqlState::new("22004"), "dimension values cannot be null")),
        };
        if list.dimensions() > 1 {
            return Err(wrong("wrong number of array subscripts")
                .with_detail("Dimension array must be one dimensional."));
        }
        list.iter().map(number).collect()
    };
    let lengths = numbers(&lengths.ok_or_else(null_dimensions)?)?;
    let lowers = match lowers {
        Some(lowers) => numbers(&lowers)?,
        None => vec![1; lengths.len()],
    };
    if lengths.len() > MAX_DIMENSIONS {
        return Err(Error::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!(
                "number of array dimensions ({}) exceeds the maximum allowed ({MAX_DIMENSIONS})",
                lengths.len()
            ),
        ));
    }
    if lowers.len() != lengths.len() {
        return Err(wrong("wrong number of array subscripts")
            .with_detail("Low bound array has different size than dimensions array."));
    }
    let too_large =
        || Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "array size exceeds the maximum allowed (134217727)");
    let mut count: usize = usize::from(!lengths.is_empty());
    let mut dimensions = Vec::new();
    for (length, lower) in lengths.iter().zip(&lowers) {
        let length = u32::try_from(*length).map_err(|_| too_large())?;
        count =
            count.checked_mul(length as usize).filter(|count| *count <= 134_217_727).ok_or_else(too_large)?;
        if i64::from(*lower) + i64::from(length) > i64::from(i32::MAX) {
            return Err(Error::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("array lower bound is too large: {lower}"),
            ));
        }
        dimensions.push(Dimension { length, lower: *lower });
    }
    let value = value.unwrap_or(Datum::Null);
    let (elements, _) = collected(elements_of(call), std::iter::repeat_n(value, count));
    let is_plain = count == 0 || matches!(dimensions[..], [Dimension { lower: 1, .. }]);
    call.value.set_list(elements, (!is_plain).then(|| dimensions.into()));
    Ok(Any)
}

/// `string_to_table`: a row for each part.
struct StringParts;

impl SetKernel for StringParts {
    fn can_fail(&self) -> bool {
        false
    }

    fn begin(&self, _: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let given = |datum: &Datum<'_>| match *datum {
            Datum::Text(text) => Some(text.to_owned()),
            _ => None,
        };
        let Datum::Text(text) = arguments[0] else { return Ok(None) };
        let (separator, null) = (given(&arguments[1]), arguments.get(2).and_then(given));
        let elements = parts(text, separator.as_deref(), null.as_deref());
        Ok(Some(Box::new(Elements { elements, next: 0 })))
    }
}

/// `unnest`: a row for each element.
struct Unnest;

impl SetKernel for Unnest {
    fn can_fail(&self) -> bool {
        false
    }

    fn begin(&self, _: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let Datum::List(list) = arguments[0] else { return Ok(None) };
        Ok(Some(Box::new(Elements { elements: list.elements(), next: 0 })))
    }
}

struct Elements {
    elements: crate::Vector,
    next: usize,
}

impl Set for Elements {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        let end = self.elements.len().min(self.next + most);
        (self.next..end).for_each(|row| columns[0].push(self.elements.datum(row)));
        self.next = end;
        Ok(end < self.elements.len())
    }
}

/// `generate_subscripts`: the subscripts of a dimension.
struct Subscripts;

impl SetKernel for Subscripts {
    fn can_fail(&self) -> bool {
        false
    }

    fn begin(&self, _: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let (Datum::List(list), Datum::Int32(number)) = (arguments[0], arguments[1]) else { return Ok(None) };
        let is_reverse = match arguments.get(2) {
            Some(Datum::Boolean(is_reverse)) => *is_reverse,
            Some(_) => return Ok(None),
            None => false,
        };
        let Some(dimension) = dimension(&list, number) else { return Ok(None) };
        Ok(Some(Box::new(Numbers {
            first: dimension.lower,
            last: dimension.upper(),
            is_reverse,
            is_done: false,
        })))
    }
}

struct Numbers {
    first: i32,
    last: i32,
    is_reverse: bool,
    is_done: bool,
}

impl Set for Numbers {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        for _ in 0..most {
            if self.is_done {
                return Ok(false);
            }
            columns[0].push(Datum::Int32(if self.is_reverse { self.last } else { self.first }));
            self.is_done = self.first == self.last;
            if self.is_reverse {
                self.last = self.last.wrapping_sub(1);
            } else {
                self.first = self.first.wrapping_add(1);
            }
        }
        Ok(!self.is_done)
    }
}
