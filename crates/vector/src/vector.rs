//! Vectors: the values of one column of a chunk.
//!
//! | form | what it holds |
//! |---|---|
//! | Flat | the values side by side |
//! | Constant | one value, which all rows have |
//! | Codes | places in a dictionary |
//! | Offsets | how much higher than a base value each whole number is |
//! | Runs | values, and where the rows that have each of them end |
//!
//! Arrays, records and strings are kinds of [`Data`]. A vector owns counted buffers and never a guard: those
//! of blocks that no longer change are shared, those of others are copies. Every form can be made flat.
//!
//! Invariant: there is a validity bitmap only if at least one of its bits says NULL.

use crate::data::Data;
use crate::datum::Datum;
use crate::selection::Rows;
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use firn_base::Representation;
use firn_base::sync::Arc;

/// Values of one column, in one of several forms.
#[derive(Clone, Debug)]
pub struct Vector {
    representation: Representation,
    length: usize,
    form: Form,
    /// Of each row; of a constant, of its one value; of runs, `None`: it is that of their values.
    validity: Option<NullBuffer>,
}

/// How the values of a vector are kept.
#[derive(Clone, Debug)]
pub enum Form {
    /// Side by side.
    Flat(Data),
    /// One value for all rows.
    Constant(Data),
    /// Places in a dictionary.
    Codes(Codes, Arc<Dictionary>),
    /// Whole numbers as what they have above the smallest: `Int16`, `Int32`, `Int64` and what lies like these.
    Offsets(Codes, i64),
    /// Runs of one value each: the row behind the last of each run, rising, and a vector of the values.
    Runs(ScalarBuffer<u32>, Arc<Vector>),
}

/// Small whole numbers: places in a dictionary, or offsets.
#[derive(Clone, Debug)]
pub enum Codes {
    /// Of one byte.
    U8(ScalarBuffer<u8>),
    /// Of two bytes.
    U16(ScalarBuffer<u16>),
    /// Of four bytes.
    U32(ScalarBuffer<u32>),
}

impl Codes {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Codes::U8(codes) => codes.len(),
            Codes::U16(codes) => codes.len(),
            Codes::U32(codes) => codes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    #[inline]
    pub fn get(&self, row: usize) -> u32 {
        match self {
            Codes::U8(codes) => u32::from(codes[row]),
            Codes::U16(codes) => u32::from(codes[row]),
            Codes::U32(codes) => codes[row],
        }
    }

    fn slice(&self, from: usize, length: usize) -> Codes {
        match self {
            Codes::U8(codes) => Codes::U8(codes.slice(from, length)),
            Codes::U16(codes) => Codes::U16(codes.slice(from, length)),
            Codes::U32(codes) => Codes::U32(codes.slice(from, length)),
        }
    }

    fn take(&self, positions: impl Iterator<Item = usize>) -> Codes {
        match self {
            Codes::U8(codes) => Codes::U8(positions.map(|row| codes[row]).collect()),
            Codes::U16(codes) => Codes::U16(positions.map(|row| codes[row]).collect()),
            Codes::U32(codes) => Codes::U32(positions.map(|row| codes[row]).collect()),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Codes::U8(codes) => codes.len(),
            Codes::U16(codes) => codes.len() * 2,
            Codes::U32(codes) => codes.len() * 4,
        }
    }
}

/// The different values of a column.
#[derive(Debug)]
pub struct Dictionary {
    /// Which dictionary: two of one number are the same.
    pub id: u64,
    /// Whether the values rise in SQL's order, so that codes compare as values do.
    pub is_sorted: bool,
    /// The values: flat, each different from the others, none NULL.
    pub values: Vector,
}

impl Vector {
    /// Values side by side. The bitmap is dropped if it says NULL of none.
    pub fn flat(representation: Representation, data: Data, validity: Option<NullBuffer>) -> Vector {
        debug_assert!(data.is_of(representation), "{representation:?} is not {data:?}");
        let length = data.len();
        assert!(validity.as_ref().is_none_or(|validity| validity.len() == length));
        Vector { representation, length, form: Form::Flat(data), validity: some_null(validity) }
    }

    /// The one value of `data` in each of `length` rows.
    pub fn constant(representation: Representation, data: Data, length: usize) -> Vector {
        debug_assert!(data.is_of(representation), "{representation:?} is not {data:?}");
        assert_eq!(data.len(), 1);
        Vector { representation, length, form: Form::Constant(data), validity: None }
    }

    /// NULL in each of `length` rows.
    pub fn null(representation: Representation, length: usize) -> Vector {
        let data = Data::zeros(representation, 1);
        Vector { representation, length, form: Form::Constant(data), validity: Some(NullBuffer::new_null(1)) }
    }

    /// Codes into a dictionary. What the code of a NULL is must be a place in the dictionary as well.
    pub fn codes(codes: Codes, dictionary: Arc<Dictionary>, validity: Option<NullBuffer>) -> Vector {
        let length = codes.len();
        assert!(validity.as_ref().is_none_or(|validity| validity.len() == length));
        let representation = dictionary.values.representation;
        Vector { representation, length, form: Form::Codes(codes, dictionary), validity: some_null(validity) }
    }

    /// Whole numbers above a base.
    pub fn offsets(
        representation: Representation,
        offsets: Codes,
        base: i64,
        validity: Option<NullBuffer>,
    ) -> Vector {
        let length = offsets.len();
        assert!(validity.as_ref().is_none_or(|validity| validity.len() == length));
        debug_assert!(matches!(
            Data::zeros(representation, 0),
            Data::Int16(_) | Data::Int32(_) | Data::Int64(_)
        ));
        Vector { representation, length, form: Form::Offsets(offsets, base), validity: some_null(validity) }
    }

    /// Runs that end before these rows, which rise, and the value of each.
    pub fn runs(ends: ScalarBuffer<u32>, values: Arc<Vector>) -> Vector {
        assert_eq!(ends.len(), values.len());
        debug_assert!(ends.is_sorted_by(|left, right| left < right));
        Vector {
            representation: values.representation,
            length: ends.last().map_or(0, |end| *end as usize),
            form: Form::Runs(ends, values),
            validity: None,
        }
    }

    /// How its values lie in memory.
    pub fn representation(&self) -> Representation {
        self.representation
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How the values are kept.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// The bitmap of the rows that are not NULL, if it has one: of each row, but of a constant of its one value;
    /// runs have that of their values.
    pub fn validity(&self) -> Option<&NullBuffer> {
        self.validity.as_ref()
    }

    /// Whether all rows have one value that is known to be the same.
    pub fn is_constant(&self) -> bool {
        matches!(self.form, Form::Constant(_))
    }

    /// Whether no row can be NULL.
    pub fn has_no_null(&self) -> bool {
        match &self.form {
            Form::Runs(_, values) => values.has_no_null(),
            _ => self.validity.is_none(),
        }
    }

    /// Whether one row is NULL.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        match &self.form {
            Form::Runs(ends, values) => values.is_null(run_of(ends, row)),
            Form::Constant(_) => self.validity.is_some(),
            _ => self.validity.as_ref().is_some_and(|validity| validity.is_null(row)),
        }
    }

    /// The value of one row, of whatever form.
    pub fn datum(&self, row: usize) -> Datum<'_> {
        debug_assert!(row < self.length);
        if self.is_null(row) {
            return Datum::Null;
        }
        match &self.form {
            Form::Flat(data) => Datum::of_data(data, row, self.representation),
            Form::Constant(data) => Datum::of_data(data, 0, self.representation),
            Form::Codes(codes, dictionary) => dictionary.values.datum(codes.get(row) as usize),
            Form::Offsets(offsets, base) => {
                Datum::of_word(base + i64::from(offsets.get(row)), self.representation)
            }
            Form::Runs(ends, values) => values.datum(run_of(ends, row)),
        }
    }

    /// The same values, side by side or constant, which all kernels understand. Rows that are not selected may become any value.
    pub fn plain(&self, rows: Rows<'_>) -> Vector {
        match &self.form {
            Form::Constant(_) | Form::Flat(_) => self.clone(),
            _ => self.flatten(rows),
        }
    }

    /// The same values side by side. Rows that are not selected may become any value.
    pub fn flatten(&self, rows: Rows<'_>) -> Vector {
        debug_assert_eq!(rows.length(), self.length);
        let flat = |data, validity| Vector::flat(self.representation, data, validity);
        match &self.form {
            Form::Flat(_) => self.clone(),
            Form::Constant(data) => {
                let validity = self.validity.is_some().then(|| NullBuffer::new_null(self.length));
                flat(data.take(std::iter::repeat_n(0, self.length)), validity)
            }
            Form::Codes(codes, dictionary) => {
                let values = dictionary.values.data().expect("dictionaries are flat");
                let places = (0..self.length).map(|row| codes.get(row) as usize);
                flat(values.take(places), self.validity.clone())
            }
            Form::Offsets(offsets, base) => {
                let values = (0..self.length).map(|row| base + i64::from(offsets.get(row)));
                let data = match Data::zeros(self.representation, 0) {
                    Data::Int16(_) => Data::Int16(values.map(|value| value as i16).collect()),
                    Data::Int32(_) => Data::Int32(values.map(|value| value as i32).collect()),
                    _ => Data::Int64(values.collect()),
                };
                flat(data, self.validity.clone())
            }
            Form::Runs(ends, values) => {
                let values = values.flatten(Rows::all(values.len()));
                let starts = std::iter::once(0).chain(ends.iter().copied());
                let places = starts.zip(ends.iter().copied()).enumerate();
                let places: Vec<usize> = places
                    .flat_map(|(run, (start, end))| std::iter::repeat_n(run, (end - start) as usize))
                    .collect();
                values.take(places.into_iter())
            }
        }
    }

    /// The values of a flat vector, or the one of a constant.
    pub fn data(&self) -> Option<&Data> {
        match &self.form {
            Form::Flat(data) | Form::Constant(data) => Some(data),
            _ => None,
        }
    }

    /// The rows from one on, so many; buffers are shared.
    pub fn slice(&self, from: usize, length: usize) -> Vector {
        assert!(from + length <= self.length);
        let form = match &self.form {
            Form::Flat(data) => Form::Flat(data.slice(from, length)),
            Form::Constant(_) => return Vector { length, ..self.clone() },
            Form::Codes(codes, dictionary) => Form::Codes(codes.slice(from, length), dictionary.clone()),
            Form::Offsets(offsets, base) => Form::Offsets(offsets.slice(from, length), *base),
            Form::Runs(ends, values) if length > 0 => {
                let (first, last) = (run_of(ends, from), run_of(ends, from + length - 1));
                let end = |run: usize| (ends[run] as usize).min(from + length) - from;
                let ends: ScalarBuffer<u32> = (first..=last).map(|run| end(run) as u32).collect();
                return Vector::runs(ends, Arc::new(values.slice(first, last - first + 1)));
            }
            Form::Runs(_, values) => return Vector::runs(vec![].into(), Arc::new(values.slice(0, 0))),
        };
        let validity = some_null(self.validity.as_ref().map(|validity| validity.slice(from, length)));
        Vector { representation: self.representation, length, form, validity }
    }

    /// The rows at these positions, in this order, each as often as it is named. Codes remain codes and constants constants.
    pub fn take(&self, positions: impl Iterator<Item = usize> + Clone) -> Vector {
        let form = match &self.form {
            Form::Flat(data) => Form::Flat(data.take(positions.clone())),
            Form::Constant(_) => return Vector { length: positions.count(), ..self.clone() },
            Form::Codes(codes, dictionary) => Form::Codes(codes.take(positions.clone()), dictionary.clone()),
            Form::Offsets(offsets, base) => Form::Offsets(offsets.take(positions.clone()), *base),
            Form::Runs(..) => return self.flatten(Rows::all(self.length)).take(positions),
        };
        let taken = |validity: &NullBuffer| {
            NullBuffer::new(positions.clone().map(|row| validity.is_valid(row)).collect::<BooleanBuffer>())
        };
        let validity = some_null(self.validity.as_ref().map(taken));
        Vector { representation: self.representation, length: positions.count(), form, validity }
    }

    /// About how many bytes of memory it takes; dictionaries do not count.
    pub fn memory(&self) -> usize {
        let values = match &self.form {
            Form::Flat(data) | Form::Constant(data) => data.memory(),
            Form::Codes(codes, _) | Form::Offsets(codes, _) => codes.memory(),
            Form::Runs(ends, values) => ends.len() * 4 + values.memory(),
        };
        values + self.validity.as_ref().map_or(0, |validity| validity.len().div_ceil(8))
    }
}

/// The bitmap, if it says NULL of some row.
fn some_null(validity: Option<NullBuffer>) -> Option<NullBuffer> {
    validity.filter(|validity| validity.null_count() > 0)
}

/// In which run a row lies.
fn run_of(ends: &[u32], row: usize) -> usize {
    ends.partition_point(|end| *end as usize <= row)
}
