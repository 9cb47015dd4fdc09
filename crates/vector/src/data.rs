//! Plain values of a vector, one beside the other: what a representation is in memory.

use crate::lists::{Lists, Records};
use crate::numerics::Numerics;
use crate::strings::Strings;
use arrow_buffer::{ArrowNativeType, BooleanBuffer, IntervalMonthDayNano, ScalarBuffer};
use firn_base::Representation;
use firn_base::sync::Arc;

/// Values side by side, in counted buffers. What stands in a row that is NULL is any value of the kind.
#[derive(Clone, Debug)]
pub enum Data {
    /// `Boolean`.
    Boolean(BooleanBuffer),
    /// `Int16`.
    Int16(ScalarBuffer<i16>),
    /// `Int32` and `Date`.
    Int32(ScalarBuffer<i32>),
    /// `Int64`, `Time`, `Timestamp`, `TimestampTz`, and `Decimal` of up to 18 digits.
    Int64(ScalarBuffer<i64>),
    /// `Decimal` of more than 18 digits.
    Int128(ScalarBuffer<i128>),
    /// `Oid`.
    UInt32(ScalarBuffer<u32>),
    /// `Float32`.
    Float32(ScalarBuffer<f32>),
    /// `Float64`.
    Float64(ScalarBuffer<f64>),
    /// `Numeric`.
    Numeric(Numerics),
    /// `Interval`.
    Interval(ScalarBuffer<IntervalMonthDayNano>),
    /// `Uuid`, the bytes in their order.
    Uuid(ScalarBuffer<u128>),
    /// `Text`, `PaddedText` and `Bytes`.
    Strings(Strings),
    /// `List`.
    List(Lists),
    /// `Record`.
    Record(Records),
}

/// Does the same to the buffer of each kind of data, and makes data of that kind of the result.
macro_rules! each_kind {
    ($data:expr, $values:ident => $result:expr) => {
        match $data {
            Data::Boolean($values) => Data::Boolean($result),
            Data::Int16($values) => Data::Int16($result),
            Data::Int32($values) => Data::Int32($result),
            Data::Int64($values) => Data::Int64($result),
            Data::Int128($values) => Data::Int128($result),
            Data::UInt32($values) => Data::UInt32($result),
            Data::Float32($values) => Data::Float32($result),
            Data::Float64($values) => Data::Float64($result),
            Data::Numeric($values) => Data::Numeric($result),
            Data::Interval($values) => Data::Interval($result),
            Data::Uuid($values) => Data::Uuid($result),
            Data::Strings($values) => Data::Strings($result),
            Data::List($values) => Data::List($result),
            Data::Record($values) => Data::Record($result),
        }
    };
}

/// What all buffers of values can do.
trait Values: Sized {
    fn part(&self, from: usize, length: usize) -> Self;
    fn at(&self, positions: impl Iterator<Item = usize> + Clone) -> Self;
}

impl<T: ArrowNativeType> Values for ScalarBuffer<T> {
    fn part(&self, from: usize, length: usize) -> Self {
        self.slice(from, length)
    }
    fn at(&self, positions: impl Iterator<Item = usize> + Clone) -> Self {
        positions.map(|row| self[row]).collect()
    }
}

impl Values for BooleanBuffer {
    fn part(&self, from: usize, length: usize) -> Self {
        self.slice(from, length)
    }
    fn at(&self, positions: impl Iterator<Item = usize> + Clone) -> Self {
        positions.map(|row| self.value(row)).collect()
    }
}

macro_rules! values_by_methods {
    ($($ty:ty),*) => {
        $(impl Values for $ty {
            fn part(&self, from: usize, length: usize) -> Self {
                self.slice(from, length)
            }
            fn at(&self, positions: impl Iterator<Item = usize> + Clone) -> Self {
                self.take(positions)
            }
        })*
    };
}
values_by_methods!(Numerics, Strings, Lists, Records);

impl Data {
    /// So many values of a representation: zeros, empty strings and empty arrays.
    pub fn zeros(representation: Representation, length: usize) -> Data {
        fn fixed<T: ArrowNativeType>(length: usize) -> ScalarBuffer<T> {
            vec![T::default(); length].into()
        }
        match representation {
            Representation::Boolean => Data::Boolean(BooleanBuffer::new_unset(length)),
            Representation::Int16 => Data::Int16(fixed(length)),
            Representation::Int32 | Representation::Date => Data::Int32(fixed(length)),
            Representation::Int64
            | Representation::Time
            | Representation::Timestamp
            | Representation::TimestampTz => Data::Int64(fixed(length)),
            Representation::Decimal { precision: ..=18, .. } => Data::Int64(fixed(length)),
            Representation::Decimal { .. } => Data::Int128(fixed(length)),
            Representation::Oid => Data::UInt32(fixed(length)),
            Representation::Float32 => Data::Float32(fixed(length)),
            Representation::Float64 => Data::Float64(fixed(length)),
            Representation::Numeric => Data::Numeric(Numerics::new(fixed(length), fixed(length))),
            Representation::Interval => Data::Interval(fixed(length)),
            Representation::Uuid => Data::Uuid(fixed(length)),
            Representation::Text | Representation::PaddedText | Representation::Bytes => {
                Data::Strings(Strings::new(fixed(length), Arc::new([])))
            }
            Representation::List(element) => Data::List(Lists::new(
                Arc::new(crate::Vector::flat(*element, Data::zeros(*element, 0), None)),
                fixed(length),
                fixed(length),
                None,
            )),
            Representation::Record => Data::Record(Records::new(Arc::new([]), length)),
        }
    }

    /// Whether values of a representation lie like this.
    pub fn is_of(&self, representation: Representation) -> bool {
        match (self, representation) {
            (Data::List(lists), Representation::List(element)) => {
                lists.elements().representation() == *element
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(&Data::zeros(representation, 0)),
        }
    }

    /// How many values.
    pub fn len(&self) -> usize {
        match self {
            Data::Boolean(values) => values.len(),
            Data::Int16(values) => values.len(),
            Data::Int32(values) => values.len(),
            Data::Int64(values) => values.len(),
            Data::Int128(values) => values.len(),
            Data::UInt32(values) => values.len(),
            Data::Float32(values) => values.len(),
            Data::Float64(values) => values.len(),
            Data::Numeric(values) => values.len(),
            Data::Interval(values) => values.len(),
            Data::Uuid(values) => values.len(),
            Data::Strings(values) => values.len(),
            Data::List(values) => values.len(),
            Data::Record(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values from a row on, so many; buffers are shared.
    pub fn slice(&self, from: usize, length: usize) -> Data {
        each_kind!(self, values => values.part(from, length))
    }

    /// The values at these positions.
    pub fn take(&self, positions: impl Iterator<Item = usize> + Clone) -> Data {
        each_kind!(self, values => values.at(positions))
    }

    /// About how many bytes of memory they take.
    pub fn memory(&self) -> usize {
        match self {
            Data::Boolean(values) => values.len().div_ceil(8),
            Data::Int16(values) => values.len() * 2,
            Data::Int32(values) => values.len() * 4,
            Data::UInt32(values) => values.len() * 4,
            Data::Float32(values) => values.len() * 4,
            Data::Int64(values) => values.len() * 8,
            Data::Float64(values) => values.len() * 8,
            Data::Int128(values) => values.len() * 16,
            Data::Interval(values) => values.len() * 16,
            Data::Uuid(values) => values.len() * 16,
            Data::Numeric(values) => values.memory(),
            Data::Strings(values) => values.memory(),
            Data::List(values) => values.memory(),
            Data::Record(values) => values.memory(),
        }
    }
}
