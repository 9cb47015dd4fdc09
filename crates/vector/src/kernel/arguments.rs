//! How a row kernel reads its arguments: one at a time, and all together.

use crate::data::Data;
use crate::datum::Datum;
use crate::lists::{List, Lists, Record};
use crate::numerics::Numerics;
use crate::strings::Strings;
use crate::vector::{Form, Vector};
use arrow_buffer::{BooleanBuffer, IntervalMonthDayNano, NullBuffer};
use firn_base::numeric::Numeric;
use firn_base::{Interval, Representation};

/// A type of argument: what values of one row a kernel gets for it, and how they are found.
pub trait Argument: 'static {
    /// The value of a row.
    type Row<'a>: Copy;
    /// A flat or constant vector, made ready for reading.
    type Column<'a>;
    /// Whether a kernel is called with NULL.
    const TAKES_NULL: bool = false;

    /// Whether it reads values that lie like this.
    fn accepts(representation: Representation) -> bool;

    /// Makes a flat or constant vector ready.
    fn column(vector: &Vector) -> Self::Column<'_>;

    /// The value of a row, which is not NULL unless the type takes NULLs.
    fn get<'a>(column: &Self::Column<'a>, row: usize) -> Self::Row<'a>;

    /// A single value; `None` if it is NULL and the type takes none.
    fn single(datum: Datum<'_>) -> Option<Self::Row<'_>>;
}

/// Values of a vector. A constant is read at 0 for every row.
pub struct Column<T> {
    values: T,
    mask: usize,
}

impl<T> Column<T> {
    fn new(vector: &Vector, values: T) -> Column<T> {
        Column { values, mask: if vector.is_constant() { 0 } else { usize::MAX } }
    }
}

fn data(vector: &Vector) -> &Data {
    vector.data().expect("kernels get flat and constant vectors")
}

#[cold]
fn other_kind(found: impl std::fmt::Debug) -> ! {
    panic!("the call was bound with another type than {found:?}")
}

/// Types whose values stand side by side in one buffer.
macro_rules! plain_arguments {
    ($($ty:ty: $kind:ident, ($representations:pat);)*) => {
        $(impl Argument for $ty {
            type Row<'a> = $ty;
            type Column<'a> = Column<&'a [$ty]>;

            fn accepts(representation: Representation) -> bool {
                matches!(representation, $representations)
            }
            fn column(vector: &Vector) -> Column<&[$ty]> {
                match data(vector) {
                    Data::$kind(values) => Column::new(vector, values),
                    other => other_kind(other),
                }
            }
            #[inline]
            fn get<'a>(column: &Self::Column<'a>, row: usize) -> Self::Row<'a> {
                column.values[row & column.mask]
            }
            #[inline]
            fn single(datum: Datum<'_>) -> Option<$ty> {
                match datum {
                    Datum::$kind(value) => Some(value),
                    Datum::Null => None,
                    other => other_kind(other),
                }
            }
        })*
    };
}

plain_arguments! {
    i16: Int16, (Representation::Int16);
    i32: Int32, (Representation::Int32 | Representation::Date);
    i64: Int64, (Representation::Int64 | Representation::Time | Representation::Timestamp | Representation::TimestampTz);
    u32: UInt32, (Representation::Oid);
    f32: Float32, (Representation::Float32);
    f64: Float64, (Representation::Float64);
}

/// Types of which a row's value is made from what the buffer holds.
macro_rules! made_arguments {
    ($($ty:ty => $row:ty: $kind:ident($values:ty), $representations:pat, |$buffer:ident, $place:ident| $read:expr;)*) => {
        $(impl Argument for $ty {
            type Row<'a> = $row;
            type Column<'a> = Column<&'a $values>;

            fn accepts(representation: Representation) -> bool {
                matches!(representation, $representations)
            }
            fn column(vector: &Vector) -> Column<&$values> {
                match data(vector) {
                    Data::$kind(values) => Column::new(vector, values),
                    other => other_kind(other),
                }
            }
            #[inline]
            fn get<'a>(column: &Self::Column<'a>, row: usize) -> Self::Row<'a> {
                let ($buffer, $place) = (column.values, row & column.mask);
                $read
            }
            #[inline]
            fn single<'a>(datum: Datum<'a>) -> Option<$row> {
                match datum {
                    Datum::$kind(value) => Some(value),
                    Datum::Null => None,
                    other => other_kind(other),
                }
            }
        })*
    };
}

made_arguments! {
    bool => bool: Boolean(BooleanBuffer), Representation::Boolean, |values, row| values.value(row);
    Interval => Interval: Interval([IntervalMonthDayNano]), Representation::Interval, |values, row| {
        let value = values[row];
        Interval { months: value.months, days: value.days, nanoseconds: value.nanoseconds }
    };
    [u8; 16] => [u8; 16]: Uuid([u128]), Representation::Uuid, |values, row| values[row].to_le_bytes();
    List<'static> => List<'a>: List(Lists), Representation::List(_), |values, row| values.value(row);
    Record<'static> => Record<'a>: Record(crate::lists::Records), Representation::Record, |values, row| values.value(row);
}

impl Argument for &'static str {
    type Row<'a> = &'a str;
    type Column<'a> = Column<&'a Strings>;

    fn accepts(representation: Representation) -> bool {
        matches!(representation, Representation::Text | Representation::PaddedText)
    }
    fn column(vector: &Vector) -> Column<&Strings> {
        match data(vector) {
            Data::Strings(values) => Column::new(vector, values),
            other => other_kind(other),
        }
    }
    #[inline]
    fn get<'a>(column: &Self::Column<'a>, row: usize) -> &'a str {
        column.values.text(row & column.mask)
    }
    #[inline]
    fn single(datum: Datum<'_>) -> Option<&str> {
        match datum {
            Datum::Text(value) => Some(value),
            Datum::Null => None,
            other => other_kind(other),
        }
    }
}

impl Argument for &'static [u8] {
    type Row<'a> = &'a [u8];
    type Column<'a> = Column<&'a Strings>;

    fn accepts(representation: Representation) -> bool {
        representation == Representation::Bytes
    }
    fn column(vector: &Vector) -> Column<&Strings> {
        <&str as Argument>::column(vector)
    }
    #[inline]
    fn get<'a>(column: &Self::Column<'a>, row: usize) -> &'a [u8] {
        column.values.bytes(row & column.mask)
    }
    #[inline]
    fn single(datum: Datum<'_>) -> Option<&[u8]> {
        match datum {
            Datum::Bytes(value) => Some(value),
            Datum::Null => None,
            other => other_kind(other),
        }
    }
}

/// Numbers of a vector, with one scale or many.
pub enum Numbers<'a> {
    /// A scale for each.
    Numeric(Column<&'a Numerics>),
    /// Eight bytes each, and the scale of all.
    Narrow(Column<&'a [i64]>, u8),
    /// Sixteen bytes each, and the scale of all.
    Wide(Column<&'a [i128]>, u8),
}

impl Argument for Numeric {
    type Row<'a> = Numeric;
    type Column<'a> = Numbers<'a>;

    fn accepts(representation: Representation) -> bool {
        matches!(representation, Representation::Numeric | Representation::Decimal { .. })
    }
    fn column(vector: &Vector) -> Numbers<'_> {
        let scale = match vector.representation() {
            Representation::Decimal { scale, .. } => scale,
            _ => 0,
        };
        match data(vector) {
            Data::Numeric(values) => Numbers::Numeric(Column::new(vector, values)),
            Data::Int64(values) => Numbers::Narrow(Column::new(vector, values), scale),
            Data::Int128(values) => Numbers::Wide(Column::new(vector, values), scale),
            other => other_kind(other),
        }
    }
    #[inline]
    fn get<'a>(column: &Self::Column<'a>, row: usize) -> Self::Row<'a> {
        match column {
            Numbers::Numeric(column) => column.values.value(row & column.mask),
            Numbers::Narrow(column, scale) => {
                Numeric::from_decimal(i128::from(column.values[row & column.mask]), *scale)
            }
            Numbers::Wide(column, scale) => Numeric::from_decimal(column.values[row & column.mask], *scale),
        }
    }
    #[inline]
    fn single(datum: Datum<'_>) -> Option<Numeric> {
        match datum {
            Datum::Numeric(value) => Some(value),
            Datum::Null => None,
            other => other_kind(other),
        }
    }
}

/// A value of any type, never NULL.
impl Argument for Datum<'static> {
    type Row<'a> = Datum<'a>;
    type Column<'a> = &'a Vector;

    fn accepts(_: Representation) -> bool {
        true
    }
    fn column(vector: &Vector) -> &Vector {
        vector
    }
    fn get<'a>(vector: &Self::Column<'a>, row: usize) -> Datum<'a> {
        vector.datum(row)
    }
    fn single(datum: Datum<'_>) -> Option<Datum<'_>> {
        if datum.is_null() { None } else { Some(datum) }
    }
}

/// Values that may be NULL.
pub struct Nullable<'a, T> {
    column: T,
    validity: Option<&'a NullBuffer>,
    mask: usize,
}

impl<T: Argument> Argument for Option<T> {
    type Row<'a> = Option<T::Row<'a>>;
    type Column<'a> = Nullable<'a, T::Column<'a>>;
    const TAKES_NULL: bool = true;

    fn accepts(representation: Representation) -> bool {
        T::accepts(representation)
    }
    fn column(vector: &Vector) -> Nullable<'_, T::Column<'_>> {
        let mask = if vector.is_constant() { 0 } else { usize::MAX };
        Nullable { column: T::column(vector), validity: vector.validity(), mask }
    }
    #[inline]
    fn get<'a>(column: &Self::Column<'a>, row: usize) -> Option<T::Row<'a>> {
        let is_valid = column.validity.is_none_or(|validity| validity.is_valid(row & column.mask));
        is_valid.then(|| T::get(&column.column, row))
    }
    #[inline]
    fn single(datum: Datum<'_>) -> Option<Option<T::Row<'_>>> {
        Some(T::single(datum))
    }
}

/// All arguments of a kernel: a tuple of [`Argument`]s, or [`Rest`].
pub trait Arguments: 'static {
    /// The values of a row.
    type Row<'a>;
    /// Vectors, made ready for reading.
    type Columns<'a>;

    /// Whether it reads values that lie like these.
    fn accepts(representations: &[Representation]) -> bool;

    /// Whether a kernel is called if this argument is NULL.
    fn takes_null(number: usize) -> bool;

    /// Makes flat or constant vectors ready.
    fn columns(vectors: &[Vector]) -> Self::Columns<'_>;

    /// The values of a row.
    fn get<'a>(columns: &Self::Columns<'a>, row: usize) -> Self::Row<'a>;

    /// Single values; `None` if one is NULL that must not be.
    fn single<'a>(datums: &'a [Datum<'a>]) -> Option<Self::Row<'a>>;
}

macro_rules! tuples {
    ($(($($name:ident $number:literal),*);)*) => {
        $(#[allow(unused_variables, clippy::unused_unit)]
        impl<$($name: Argument),*> Arguments for ($($name,)*) {
            type Row<'a> = ($($name::Row<'a>,)*);
            type Columns<'a> = ($($name::Column<'a>,)*);

            fn accepts(representations: &[Representation]) -> bool {
                const COUNT: usize = 0 $(+ { let _ = $number; 1 })*;
                representations.len() == COUNT $(&& $name::accepts(representations[$number]))*
            }
            fn takes_null(number: usize) -> bool {
                match number {
                    $($number => $name::TAKES_NULL,)*
                    other => panic!("there is no argument {other}"),
                }
            }
            fn columns(vectors: &[Vector]) -> Self::Columns<'_> {
                ($($name::column(&vectors[$number]),)*)
            }
            #[inline]
            #[allow(non_snake_case)]
            fn get<'a>(columns: &Self::Columns<'a>, row: usize) -> Self::Row<'a> {
                let ($($name,)*) = columns;
                ($($name::get($name, row),)*)
            }
            #[inline]
            fn single<'a>(datums: &'a [Datum<'a>]) -> Option<Self::Row<'a>> {
                Some(($($name::single(datums[$number])?,)*))
            }
        })*
    };
}

tuples! {
    ();
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6);
}

/// Any number of arguments of any types, any of them NULL: of variadic functions.
#[derive(Clone, Copy)]
pub enum Rest<'a> {
    /// A row of vectors.
    Vectors(&'a [Vector], usize),
    /// Single values.
    Cells(&'a [Datum<'a>]),
}

impl<'a> Rest<'a> {
    /// How many arguments.
    pub fn len(&self) -> usize {
        match self {
            Rest::Vectors(vectors, _) => vectors.len(),
            Rest::Cells(datums) => datums.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    pub fn get(&self, number: usize) -> Datum<'a> {
        match self {
            Rest::Vectors(vectors, row) => vectors[number].datum(*row),
            Rest::Cells(datums) => datums[number],
        }
    }

    /// All, from one on.
    pub fn iter_from(self, first: usize) -> impl Iterator<Item = Datum<'a>> {
        (first..self.len()).map(move |number| self.get(number))
    }
}

impl Arguments for Rest<'static> {
    type Row<'a> = Rest<'a>;
    type Columns<'a> = &'a [Vector];

    fn accepts(_: &[Representation]) -> bool {
        true
    }
    fn takes_null(_: usize) -> bool {
        true
    }
    fn columns(vectors: &[Vector]) -> &[Vector] {
        vectors
    }
    fn get<'a>(columns: &Self::Columns<'a>, row: usize) -> Rest<'a> {
        Rest::Vectors(columns, row)
    }
    fn single<'a>(datums: &'a [Datum<'a>]) -> Option<Rest<'a>> {
        Some(Rest::Cells(datums))
    }
}

/// Which rows have a NULL in an argument that takes none.
pub(crate) enum Nulls {
    /// No row.
    None,
    /// Every row.
    All,
    /// Those whose bit is not set.
    Some(NullBuffer),
}

impl Nulls {
    pub(crate) fn of<A: Arguments>(vectors: &[Vector]) -> Nulls {
        let mut validity: Option<NullBuffer> = None;
        for (number, vector) in vectors.iter().enumerate() {
            if A::takes_null(number) {
                continue;
            }
            match (vector.form(), vector.validity()) {
                (_, None) => {}
                (Form::Constant(_), Some(_)) => return Nulls::All,
                (_, bits) => validity = NullBuffer::union(validity.as_ref(), bits),
            }
        }
        validity.map_or(Nulls::None, Nulls::Some)
    }
}
