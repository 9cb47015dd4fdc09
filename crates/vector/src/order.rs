//! The order of values whose representation is known only when they are met: of arrays, records, keys and states.
//!
//! NULL is larger than everything else, and equal to itself, as in the order of arrays and records.

use crate::datum::Datum;
use crate::lists::{List, Record};
use firn_base::Representation;
use firn_base::operators::{compare_blank_padded, compare_floats};
use std::cmp::Ordering;

/// Two values of one type. Panics if they are of different ones. Of padded text, blanks at the end must have been cut.
pub fn datums(left: &Datum<'_>, right: &Datum<'_>) -> Ordering {
    match (left, right) {
        (Datum::Null, _) | (_, Datum::Null) => left.is_null().cmp(&right.is_null()),
        (Datum::Boolean(left), Datum::Boolean(right)) => left.cmp(right),
        (Datum::Int16(left), Datum::Int16(right)) => left.cmp(right),
        (Datum::Int32(left), Datum::Int32(right)) => left.cmp(right),
        (Datum::Int64(left), Datum::Int64(right)) => left.cmp(right),
        (Datum::UInt32(left), Datum::UInt32(right)) => left.cmp(right),
        (Datum::Float32(left), Datum::Float32(right)) => compare_floats((*left).into(), (*right).into()),
        (Datum::Float64(left), Datum::Float64(right)) => compare_floats(*left, *right),
        (Datum::Numeric(left), Datum::Numeric(right)) => left.cmp(right),
        (Datum::Interval(left), Datum::Interval(right)) => left.compare(right),
        (Datum::Uuid(left), Datum::Uuid(right)) => left.cmp(right),
        (Datum::Text(left), Datum::Text(right)) => left.cmp(right),
        (Datum::Bytes(left), Datum::Bytes(right)) => left.cmp(right),
        (Datum::List(left), Datum::List(right)) => lists(left, right),
        (Datum::Record(left), Datum::Record(right)) => records(left, right),
        (left, right) => panic!("{left:?} and {right:?} are of different types"),
    }
}

/// Two values of a representation.
pub fn of(left: &Datum<'_>, right: &Datum<'_>, representation: Representation) -> Ordering {
    match (left, right) {
        (Datum::Text(left), Datum::Text(right)) if representation == Representation::PaddedText => {
            compare_blank_padded(left, right)
        }
        _ => datums(left, right),
    }
}

/// Two arrays: by their elements in turn, then the shorter first, then by dimensions, their lengths and their first subscripts.
pub fn lists(left: &List<'_>, right: &List<'_>) -> Ordering {
    let representation = left.representation();
    let pairs = left.iter().zip(right.iter());
    let by_elements = pairs
        .map(|(left, right)| of(&left, &right, representation))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal);
    let dimensions =
        |list: &List<'_>| (0..list.dimensions()).filter_map(|n| list.dimension(n)).collect::<Vec<_>>();
    by_elements.then_with(|| left.len().cmp(&right.len())).then_with(|| {
        let (left, right) = (dimensions(left), dimensions(right));
        let lengths = left.iter().map(|d| d.length).cmp(right.iter().map(|d| d.length));
        let lowers = left.iter().map(|d| d.lower).cmp(right.iter().map(|d| d.lower));
        left.len().cmp(&right.len()).then(lengths).then(lowers)
    })
}

/// Two records with the same types: by their fields in turn.
pub fn records(left: &Record<'_>, right: &Record<'_>) -> Ordering {
    for number in 0..left.len().min(right.len()) {
        let ((ty, left), (_, right)) = (left.get(number), right.get(number));
        let order = of(&left, &right, ty.representation().unwrap_or(Representation::Text));
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len())
}
