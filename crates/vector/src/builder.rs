//! Builds a vector of any representation, row by row.
//!
//! Kernels write through adapters that know their type; this is for results whose type only the call knows, for
//! aggregates, window functions and functions that return sets.

use crate::data::Data;
use crate::datum::Datum;
use crate::lists::{Lists, Records, Shape};
use crate::numerics::Numerics;
use crate::strings::StringBuilder;
use crate::vector::Vector;
use arrow_buffer::{BooleanBufferBuilder, IntervalMonthDayNano, NullBuffer};
use firn_base::numeric::Numeric;
use firn_base::sync::Arc;
use firn_base::{Representation, Type};

/// A vector that grows at its end.
#[derive(Debug)]
pub struct Builder {
    representation: Representation,
    column: Column,
    length: usize,
    /// The bits of all rows so far, once one of them is NULL.
    validity: Option<BooleanBufferBuilder>,
}

#[derive(Debug)]
enum Column {
    Boolean(BooleanBufferBuilder),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Int128(Vec<i128>),
    UInt32(Vec<u32>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Numeric(Vec<i128>, Vec<u16>),
    Interval(Vec<IntervalMonthDayNano>),
    Uuid(Vec<u128>),
    Strings(StringBuilder, Vec<u8>),
    List { elements: Box<Builder>, starts: Vec<u32>, lengths: Vec<u32>, shapes: Option<Vec<Option<Shape>>> },
    Record(Option<Vec<(Type, Builder)>>),
}

impl Column {
    fn new(representation: Representation) -> Column {
        match Data::zeros(representation, 0) {
            Data::Boolean(_) => Column::Boolean(BooleanBufferBuilder::new(0)),
            Data::Int16(_) => Column::Int16(Vec::new()),
            Data::Int32(_) => Column::Int32(Vec::new()),
            Data::Int64(_) => Column::Int64(Vec::new()),
            Data::Int128(_) => Column::Int128(Vec::new()),
            Data::UInt32(_) => Column::UInt32(Vec::new()),
            Data::Float32(_) => Column::Float32(Vec::new()),
            Data::Float64(_) => Column::Float64(Vec::new()),
            Data::Numeric(_) => Column::Numeric(Vec::new(), Vec::new()),
            Data::Interval(_) => Column::Interval(Vec::new()),
            Data::Uuid(_) => Column::Uuid(Vec::new()),
            Data::Strings(_) => Column::Strings(StringBuilder::new(0), Vec::new()),
            Data::List(lists) => Column::List {
                elements: Box::new(Builder::new(lists.elements().representation())),
                starts: Vec::new(),
                lengths: Vec::new(),
                shapes: None,
            },
            Data::Record(_) => Column::Record(None),
        }
    }
}

/// The digits of a value of a vector of decimals, which the plan has proved to have no more of them behind the point.
pub(crate) fn at_scale(value: Numeric, scale: u8) -> i128 {
    value.exactly_at(u16::from(scale)).expect("the plan has proved the scale")
}

impl Builder {
    /// An empty vector of a representation.
    pub fn new(representation: Representation) -> Builder {
        Builder { representation, column: Column::new(representation), length: 0, validity: None }
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// About how many bytes its values take.
    pub fn bytes(&self) -> usize {
        match &self.column {
            Column::Strings(strings, buffer) => strings.len() * size_of::<u128>() + buffer.len(),
            Column::List { elements, starts, .. } => starts.len() * 2 * size_of::<u32>() + elements.bytes(),
            Column::Record(fields) => fields.iter().flatten().map(|(_, field)| field.bytes()).sum(),
            _ => self.length * size_of::<u64>(),
        }
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        let length = self.length;
        let validity = self.validity.get_or_insert_with(|| {
            let mut validity = BooleanBufferBuilder::new(length + 1);
            validity.append_n(length, true);
            validity
        });
        validity.append(false);
        self.push_zero();
        self.length += 1;
    }

    /// Appends a value. Panics if it is of another kind than the vector.
    pub fn push(&mut self, value: Datum<'_>) {
        if value.is_null() {
            return self.push_null();
        }
        let representation = self.representation;
        let unscaled = |value: Numeric| match representation {
            Representation::Decimal { scale, .. } => at_scale(value, scale),
            other => panic!("{other:?} is no decimal"),
        };
        match (&mut self.column, value) {
            (Column::Boolean(values), Datum::Boolean(value)) => values.append(value),
            (Column::Int16(values), Datum::Int16(value)) => values.push(value),
            (Column::Int32(values), Datum::Int32(value)) => values.push(value),
            (Column::Int64(values), Datum::Int64(value)) => values.push(value),
            (Column::Int64(values), Datum::Numeric(value)) => values.push(unscaled(value) as i64),
            (Column::Int128(values), Datum::Numeric(value)) => values.push(unscaled(value)),
            (Column::UInt32(values), Datum::UInt32(value)) => values.push(value),
            (Column::Float32(values), Datum::Float32(value)) => values.push(value),
            (Column::Float64(values), Datum::Float64(value)) => values.push(value),
            (Column::Numeric(digits, scales), Datum::Numeric(value)) => {
                let (unscaled, scale) = value.to_parts();
                digits.push(unscaled);
                scales.push(scale);
            }
            (Column::Interval(values), Datum::Interval(value)) => {
                values.push(IntervalMonthDayNano::new(value.months, value.days, value.nanoseconds));
            }
            (Column::Uuid(values), Datum::Uuid(value)) => values.push(u128::from_le_bytes(value)),
            (Column::Strings(strings, buffer), Datum::Text(value)) => {
                let start = buffer.len();
                buffer.extend_from_slice(value.as_bytes());
                strings.push(buffer, start);
            }
            (Column::Strings(strings, buffer), Datum::Bytes(value)) => {
                debug_assert_eq!(representation, Representation::Bytes);
                let start = buffer.len();
                buffer.extend_from_slice(value);
                strings.push(buffer, start);
            }
            (Column::List { elements, starts, lengths, shapes }, Datum::List(list)) => {
                starts.push(elements.len() as u32);
                lengths.push(list.len() as u32);
                if let Some(shape) = list.shape() {
                    shapes.get_or_insert_with(|| vec![None; lengths.len() - 1]).push(Some(shape.clone()));
                } else if let Some(shapes) = shapes {
                    shapes.push(None);
                }
                list.iter().for_each(|element| elements.push(element));
            }
            (Column::Record(fields), Datum::Record(record)) => {
                let length = self.length;
                let fields = fields.get_or_insert_with(|| {
                    let field = |field| {
                        let (ty, _) = record.get(field);
                        let representation = ty.representation().expect("fields have values");
                        let mut builder = Builder::new(representation);
                        (0..length).for_each(|_| builder.push_null());
                        (ty, builder)
                    };
                    (0..record.len()).map(field).collect()
                });
                for (number, (_, builder)) in fields.iter_mut().enumerate() {
                    builder.push(record.get(number).1);
                }
            }
            (column, value) => panic!("{value:?} does not belong into {column:?}"),
        }
        if let Some(validity) = &mut self.validity {
            validity.append(true);
        }
        self.length += 1;
    }

    /// Appends NULLs until it has so many rows.
    pub fn pad(&mut self, length: usize) {
        while self.length < length {
            self.push_null();
        }
    }

    fn push_zero(&mut self) {
        match &mut self.column {
            Column::Boolean(values) => values.append(false),
            Column::Int16(values) => values.push(0),
            Column::Int32(values) => values.push(0),
            Column::Int64(values) => values.push(0),
            Column::Int128(values) => values.push(0),
            Column::UInt32(values) => values.push(0),
            Column::Float32(values) => values.push(0.0),
            Column::Float64(values) => values.push(0.0),
            Column::Numeric(digits, scales) => {
                digits.push(0);
                scales.push(0);
            }
            Column::Interval(values) => values.push(IntervalMonthDayNano::default()),
            Column::Uuid(values) => values.push(0),
            Column::Strings(strings, buffer) => {
                let start = buffer.len();
                strings.push(buffer, start);
            }
            Column::List { elements, starts, lengths, shapes } => {
                starts.push(elements.len() as u32);
                lengths.push(0);
                if let Some(shapes) = shapes {
                    shapes.push(None);
                }
            }
            Column::Record(fields) => {
                fields.iter_mut().flatten().for_each(|(_, builder)| builder.push_null());
            }
        }
    }

    /// The vector.
    pub fn finish(mut self) -> Vector {
        let validity = self.validity.take().map(|mut validity| NullBuffer::new(validity.finish()));
        Vector::flat(self.representation, self.finish_data(), validity)
    }

    /// Its values alone.
    pub(crate) fn finish_data(self) -> Data {
        match self.column {
            Column::Boolean(mut values) => Data::Boolean(values.finish()),
            Column::Int16(values) => Data::Int16(values.into()),
            Column::Int32(values) => Data::Int32(values.into()),
            Column::Int64(values) => Data::Int64(values.into()),
            Column::Int128(values) => Data::Int128(values.into()),
            Column::UInt32(values) => Data::UInt32(values.into()),
            Column::Float32(values) => Data::Float32(values.into()),
            Column::Float64(values) => Data::Float64(values.into()),
            Column::Numeric(digits, scales) => Data::Numeric(Numerics::new(digits.into(), scales.into())),
            Column::Interval(values) => Data::Interval(values.into()),
            Column::Uuid(values) => Data::Uuid(values.into()),
            Column::Strings(strings, buffer) => Data::Strings(strings.finish(buffer)),
            Column::List { elements, starts, lengths, shapes } => Data::List(Lists::new(
                Arc::new(elements.finish()),
                starts.into(),
                lengths.into(),
                shapes.map(Into::into),
            )),
            Column::Record(fields) => {
                let fields = fields.into_iter().flatten().map(|(ty, builder)| (ty, builder.finish()));
                Data::Record(Records::new(fields.collect(), self.length))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_as_they_were_pushed() {
        let mut builder = Builder::new(Representation::Text);
        builder.push(Datum::Text("a string of more than 12 bytes"));
        builder.push_null();
        builder.push(Datum::Text("short"));
        let vector = builder.finish();
        assert!(matches!(vector.datum(0), Datum::Text("a string of more than 12 bytes")));
        assert!(vector.is_null(1) && vector.datum(1).is_null());
        assert!(matches!(vector.datum(2), Datum::Text("short")));

        let mut builder = Builder::new(Representation::List(&Representation::Int32));
        builder.push_null();
        let elements = Vector::flat(Representation::Int32, Data::Int32(vec![1, 2, 3].into()), None);
        builder.push(Datum::List(crate::lists::List::of(&elements)));
        let vector = builder.finish();
        let Datum::List(list) = vector.datum(1) else { panic!("it is an array") };
        assert_eq!((list.len(), list.dimensions()), (3, 1));
        assert!(matches!(list.get(2), Datum::Int32(3)));
    }
}
