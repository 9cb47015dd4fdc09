//! Arrays: [`ArrayValue`], its order, and its forms.
//!
//! An array has up to six dimensions, each with a length and a lower bound of its indexes. It has its
//! elements with the last index varying fastest. An array without elements has no dimensions. If a function
//! on arrays takes a type, that is the type of the elements.
//!
//! `text` is the text format, `binary` the format of clients, `image` that of blocks.

mod binary;
mod image;
mod text;

pub use binary::{decode_any, encode_any};
pub use image::ArrayImage;
pub use text::{ArrayText, parse_any, write, write_any};

use crate::error::{Error, Result, SqlState};
use crate::value::Value;
use std::cmp::Ordering;

/// The most dimensions (PostgreSQL's `MAXDIM`).
pub const MAX_DIMENSIONS: usize = 6;

/// One dimension of an array.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dimension {
    /// The number of indexes; at least one.
    pub length: u32,
    /// The first index.
    pub lower: i32,
}

impl Dimension {
    /// The last index.
    pub fn upper(self) -> i32 {
        (i64::from(self.lower) + i64::from(self.length) - 1) as i32
    }
}

/// An array of any number of dimensions.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ArrayValue {
    dimensions: Vec<Dimension>,
    elements: Vec<Value>,
}

impl ArrayValue {
    /// Makes an array. Panics unless the number of elements matches the dimensions, no dimension is empty,
    /// and all indexes are integers.
    pub fn new(dimensions: Vec<Dimension>, elements: Vec<Value>) -> ArrayValue {
        assert_eq!(count(&dimensions), Some(elements.len()), "an array is full");
        assert!(
            dimensions.len() <= MAX_DIMENSIONS && dimensions.iter().all(|dimension| dimension.length > 0)
        );
        assert!(are_in_bounds(&dimensions));
        ArrayValue { dimensions, elements }
    }

    /// The array with one more dimension, whose elements are these arrays. 2202E unless all have the same
    /// dimensions, 54000 if it has too many.
    pub fn stacked(parts: Vec<ArrayValue>) -> Result<ArrayValue> {
        let Some(first) = parts.first() else { return Ok(ArrayValue::default()) };
        let inner = first.dimensions.clone();
        if parts.iter().any(|part| part.dimensions != inner) {
            return Err(Error::new(
                SqlState::ARRAY_SUBSCRIPT_ERROR,
                "multidimensional arrays must have array expressions with matching dimensions",
            ));
        }
        if inner.len() == MAX_DIMENSIONS {
            return Err(too_many_dimensions(MAX_DIMENSIONS + 1));
        }
        if inner.is_empty() {
            return Ok(ArrayValue::default());
        }
        let length = u32::try_from(parts.len()).expect("arrays are shorter");
        let dimensions = [&[Dimension { length, lower: 1 }], &inner[..]].concat();
        Ok(ArrayValue::new(dimensions, parts.into_iter().flat_map(|part| part.elements).collect()))
    }

    /// Length and lower bound of each dimension, the outermost first.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// The elements, the last index varying fastest.
    pub fn elements(&self) -> &[Value] {
        &self.elements
    }

    /// The elements, the last index varying fastest.
    pub fn into_elements(self) -> Vec<Value> {
        self.elements
    }

    /// The elements of an array that is a plain list; 0A000 if it has several dimensions or its indexes do
    /// not begin at 1.
    pub fn into_list(self) -> Result<Vec<Value>> {
        self.list()?;
        Ok(self.elements)
    }

    /// As [`ArrayValue::into_list`], borrowed.
    pub fn list(&self) -> Result<&[Value]> {
        match self.dimensions[..] {
            [] | [Dimension { lower: 1, .. }] => Ok(&self.elements),
            [_] => Err(Error::unsupported("an array whose indexes do not begin at 1")),
            _ => Err(Error::unsupported("an array of more than one dimension")
                .with_hint("Pass one array for each of its rows.")),
        }
    }

    /// The order of arrays, as in PostgreSQL's `array_cmp`: by the elements in turn, with NULL after
    /// everything else, then the shorter first, then by dimensions, lengths and bounds. `compare` orders
    /// elements that are not NULL.
    pub fn compare(&self, other: &ArrayValue, compare: impl Fn(&Value, &Value) -> Ordering) -> Ordering {
        let pairs = self.elements.iter().zip(&other.elements);
        let by_elements = pairs
            .map(|(left, right)| match (left.is_null(), right.is_null()) {
                (false, false) => compare(left, right),
                (left, right) => left.cmp(&right),
            })
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal);
        let lengths = |array: &ArrayValue| {
            let lengths: Vec<u32> = array.dimensions.iter().map(|dimension| dimension.length).collect();
            (array.elements.len(), lengths.len(), lengths)
        };
        let bounds =
            |array: &ArrayValue| array.dimensions.iter().map(|dimension| dimension.lower).collect::<Vec<_>>();
        by_elements
            .then_with(|| lengths(self).cmp(&lengths(other)))
            .then_with(|| bounds(self).cmp(&bounds(other)))
    }
}

impl From<Vec<Value>> for ArrayValue {
    /// A plain list: one dimension, whose indexes begin at 1.
    fn from(elements: Vec<Value>) -> ArrayValue {
        let dimensions = match u32::try_from(elements.len()).expect("arrays are shorter") {
            0 => Vec::new(),
            length => vec![Dimension { length, lower: 1 }],
        };
        ArrayValue { dimensions, elements }
    }
}

impl FromIterator<Value> for ArrayValue {
    fn from_iter<I: IntoIterator<Item = Value>>(elements: I) -> ArrayValue {
        Vec::from_iter(elements).into()
    }
}

/// The number of elements of an array with these dimensions, unless it overflows.
fn count(dimensions: &[Dimension]) -> Option<usize> {
    match dimensions {
        [] => Some(0),
        _ => dimensions
            .iter()
            .try_fold(1usize, |count, dimension| count.checked_mul(dimension.length as usize)),
    }
}

/// Whether all indexes, and the one after the last, are integers.
fn are_in_bounds(dimensions: &[Dimension]) -> bool {
    dimensions
        .iter()
        .all(|dimension| i64::from(dimension.lower) + i64::from(dimension.length) <= i64::from(i32::MAX))
}

#[cold]
fn too_many_dimensions(dimensions: usize) -> Error {
    Error::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        format!("number of array dimensions ({dimensions}) exceeds the maximum allowed ({MAX_DIMENSIONS})"),
    )
}

#[cold]
fn bound_is_too_large(lower: i32) -> Error {
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("array lower bound is too large: {lower}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_type::{Type, TypeId};
    use crate::text_style::TextStyle;

    #[test]
    fn arrays_of_the_same_dimensions_are_stacked() {
        let element = Type::new(TypeId::INT4);
        let read = |text: &str| parse_any(text, element, &TextStyle::DEFAULT).expect("the text is an array");
        let stacked = |parts: &[&str]| ArrayValue::stacked(parts.iter().map(|part| read(part)).collect());
        assert_eq!(stacked(&["{1,2}", "{3,NULL}"]).unwrap(), read("{{1,2},{3,NULL}}"));
        assert_eq!(stacked(&["{{1}}", "{{2}}"]).unwrap(), read("{{{1}},{{2}}}"));
        assert_eq!(stacked(&["{}", "{}"]).unwrap(), read("{}"));
        assert_eq!(stacked(&[]).unwrap(), read("{}"));
        for uneven in [["{1,2}", "{3}"], ["{1}", "{}"], ["{}", "{1}"]] {
            assert_eq!(stacked(&uneven).unwrap_err().state(), SqlState::ARRAY_SUBSCRIPT_ERROR);
        }
        let deepest = "{{{{{{1}}}}}}";
        assert_eq!(stacked(&[deepest]).unwrap_err().state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }

    /// PostgreSQL 15 has this order, each array before the next.
    #[test]
    fn arrays_have_the_order_of_postgres() {
        let ordered = [
            "{}",
            "{1}",
            "[0:1]={1,2}",
            "{1,2}",
            "{{1,2}}",
            "{{1},{2}}",
            "{1,2,0}",
            "{1,2,NULL}",
            "{1,3}",
            "{1,NULL}",
            "{2}",
            "{NULL}",
        ];
        let element = Type::new(TypeId::INT4);
        let read = |text: &str| parse_any(text, element, &TextStyle::DEFAULT).expect("the text is an array");
        let compare = |left: &Value, right: &Value| left.compare(right).expect("neither is NULL");
        for (place, left) in ordered.iter().enumerate() {
            for (other, right) in ordered.iter().enumerate() {
                assert_eq!(read(left).compare(&read(right), compare), place.cmp(&other), "{left} {right}");
            }
        }
    }
}
