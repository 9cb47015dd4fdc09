//! Arrays and records in vectors.
//!
//! The elements of all arrays of a vector lie in one vector; an array is a stretch of it. An array with one
//! dimension that begins at 1, or an empty one, needs nothing else; any other has a shape.

use crate::Datum;
use crate::vector::Vector;
use arrow_buffer::ScalarBuffer;
use firn_base::array::Dimension;
use firn_base::sync::Arc;
use firn_base::{Representation, Type};

/// The dimensions of an array that has not just one that begins at 1.
pub type Shape = Arc<[Dimension]>;

/// The arrays of a vector.
#[derive(Clone, Debug)]
pub struct Lists {
    elements: Arc<Vector>,
    starts: ScalarBuffer<u32>,
    lengths: ScalarBuffer<u32>,
    shapes: Option<Arc<[Option<Shape>]>>,
}

impl Lists {
    /// Arrays that are stretches of a vector of elements, from `starts` on, so many. `shapes` is `None` if no array has one.
    pub fn new(
        elements: Arc<Vector>,
        starts: ScalarBuffer<u32>,
        lengths: ScalarBuffer<u32>,
        shapes: Option<Arc<[Option<Shape>]>>,
    ) -> Lists {
        assert_eq!(starts.len(), lengths.len());
        assert!(shapes.as_ref().is_none_or(|shapes| shapes.len() == starts.len()));
        Lists { elements, starts, lengths, shapes }
    }

    /// How many arrays.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The elements of all of them.
    pub fn elements(&self) -> &Arc<Vector> {
        &self.elements
    }

    /// One array.
    #[inline]
    pub fn value(&self, row: usize) -> List<'_> {
        List {
            elements: &self.elements,
            start: self.starts[row] as usize,
            length: self.lengths[row] as usize,
            shape: self.shapes.as_ref().and_then(|shapes| shapes[row].as_ref()),
        }
    }

    /// The arrays from a row on, so many.
    pub fn slice(&self, from: usize, length: usize) -> Lists {
        Lists {
            elements: self.elements.clone(),
            starts: self.starts.slice(from, length),
            lengths: self.lengths.slice(from, length),
            shapes: self.shapes.as_ref().map(|shapes| shapes[from..from + length].into()),
        }
    }

    /// The arrays at these positions; the elements are shared.
    pub fn take(&self, positions: impl Iterator<Item = usize> + Clone) -> Lists {
        Lists {
            elements: self.elements.clone(),
            starts: positions.clone().map(|row| self.starts[row]).collect(),
            lengths: positions.clone().map(|row| self.lengths[row]).collect(),
            shapes: self.shapes.as_ref().map(|shapes| positions.map(|row| shapes[row].clone()).collect()),
        }
    }

    /// Bytes of memory that they take, with all elements.
    pub fn memory(&self) -> usize {
        self.len() * 8 + self.elements.memory()
    }
}

/// One array.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    elements: &'a Vector,
    start: usize,
    length: usize,
    shape: Option<&'a Shape>,
}

impl<'a> List<'a> {
    /// An array of all elements of a vector, with one dimension that begins at 1.
    pub fn of(elements: &'a Vector) -> List<'a> {
        List { elements, start: 0, length: elements.len(), shape: None }
    }

    /// An array of all elements of a vector. A shape is given if it has not just one dimension that begins at 1.
    pub fn with_shape(elements: &'a Vector, shape: Option<&'a Shape>) -> List<'a> {
        let length = shape.map_or(elements.len(), |shape| shape.iter().map(|d| d.length as usize).product());
        debug_assert_eq!(length, elements.len());
        List { elements, start: 0, length, shape }
    }

    /// How its elements lie.
    pub fn representation(&self) -> Representation {
        self.elements.representation()
    }

    /// How many elements, in all dimensions.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no elements, and so no dimensions.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// An element by its place from 0, row by row of a matrix.
    #[inline]
    pub fn get(&self, place: usize) -> Datum<'a> {
        debug_assert!(place < self.length);
        self.elements.datum(self.start + place)
    }

    /// The elements, row by row of a matrix.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Datum<'a>> + use<'a> {
        let (elements, start) = (self.elements, self.start);
        (0..self.length).map(move |place| elements.datum(start + place))
    }

    /// How many dimensions it has; 0 if it is empty.
    pub fn dimensions(&self) -> usize {
        self.shape.map_or(usize::from(self.length > 0), |shape| shape.len())
    }

    /// A dimension, from 0.
    pub fn dimension(&self, number: usize) -> Option<Dimension> {
        match self.shape {
            Some(shape) => shape.get(number).copied(),
            None if number == 0 && self.length > 0 => {
                Some(Dimension { length: self.length as u32, lower: 1 })
            }
            None => None,
        }
    }

    /// Its dimensions, if it has not just one that begins at 1.
    pub fn shape(&self) -> Option<&'a Shape> {
        self.shape
    }

    /// Its elements as a vector.
    pub fn elements(&self) -> Vector {
        self.elements.slice(self.start, self.length)
    }
}

/// The records of a vector: a vector for each field. A NULL record has NULL fields.
#[derive(Clone, Debug)]
pub struct Records {
    fields: Arc<[(Type, Vector)]>,
    length: usize,
}

impl Records {
    /// So many records of these fields.
    pub fn new(fields: Arc<[(Type, Vector)]>, length: usize) -> Records {
        assert!(fields.iter().all(|(_, field)| field.len() == length));
        Records { fields, length }
    }

    /// How many records.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Their fields.
    pub fn fields(&self) -> &Arc<[(Type, Vector)]> {
        &self.fields
    }

    /// One record.
    pub fn value(&self, row: usize) -> Record<'_> {
        debug_assert!(row < self.length);
        Record { fields: &self.fields, row }
    }

    /// The records from a row on, so many.
    pub fn slice(&self, from: usize, length: usize) -> Records {
        let fields = self.fields.iter().map(|(ty, field)| (*ty, field.slice(from, length)));
        Records { fields: fields.collect(), length }
    }

    /// The records at these positions.
    pub fn take(&self, positions: impl Iterator<Item = usize> + Clone) -> Records {
        let length = positions.clone().count();
        let fields = self.fields.iter().map(|(ty, field)| (*ty, field.take(positions.clone())));
        Records { fields: fields.collect(), length }
    }

    /// Bytes of memory that they take.
    pub fn memory(&self) -> usize {
        self.fields.iter().map(|(_, field)| field.memory()).sum()
    }
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    fields: &'a [(Type, Vector)],
    row: usize,
}

impl<'a> Record<'a> {
    /// The record in one row of some fields.
    pub fn new(fields: &'a [(Type, Vector)], row: usize) -> Record<'a> {
        Record { fields, row }
    }

    /// How many fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether it has no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Its fields, each in a vector of one row.
    pub fn fields(&self) -> Arc<[(Type, Vector)]> {
        self.fields.iter().map(|(ty, field)| (*ty, field.slice(self.row, 1))).collect()
    }

    /// A field and its type, from 0.
    pub fn get(&self, field: usize) -> (Type, Datum<'a>) {
        let (ty, values) = &self.fields[field];
        (*ty, values.datum(self.row))
    }
}
