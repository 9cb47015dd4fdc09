//! Columns that grow at their end: what operators keep of the rows that they collect.
//!
//! A row costs its bytes once: fixed widths are copied by loops over one buffer each; strings of up to 12 bytes lie in their
//! views (16 bytes a row), longer ones are copied to buffers of the column, so that no buffer of a block is kept
//! alive. Nothing is allocated for a single row.

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, IntervalMonthDayNano, NullBuffer};
use firn_base::Representation;
use firn_base::sync::Arc;
use firn_vector::builder::Builder;
use firn_vector::numerics::Numerics;
use firn_vector::selection::Rows;
use firn_vector::strings::{INLINE, Strings, view};
use firn_vector::{Data, Datum, Vector};

/// The place of a row that is not there: its columns are NULL.
pub const NO_ROW: u32 = u32::MAX;

/// A buffer of strings is closed at this size, well below what the offset of a view can name.
const CLOSE_AT: usize = 1 << 28;

/// One growing column.
pub struct Column {
    representation: Representation,
    length: usize,
    values: Values,
    /// The bits of all rows so far, once one of them is NULL.
    validity: Option<BooleanBufferBuilder>,
}

enum Values {
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
    Strings {
        views: Vec<u128>,
        full: Vec<Buffer>,
        open: Vec<u8>,
    },
    /// Arrays and records go value by value. It keeps the NULLs as well.
    General(Builder, usize),
}

impl Column {
    /// No rows.
    pub fn new(representation: Representation) -> Column {
        let values = match Data::zeros(representation, 0) {
            Data::Boolean(_) => Values::Boolean(BooleanBufferBuilder::new(0)),
            Data::Int16(_) => Values::Int16(Vec::new()),
            Data::Int32(_) => Values::Int32(Vec::new()),
            Data::Int64(_) => Values::Int64(Vec::new()),
            Data::Int128(_) => Values::Int128(Vec::new()),
            Data::UInt32(_) => Values::UInt32(Vec::new()),
            Data::Float32(_) => Values::Float32(Vec::new()),
            Data::Float64(_) => Values::Float64(Vec::new()),
            Data::Numeric(_) => Values::Numeric(Vec::new(), Vec::new()),
            Data::Interval(_) => Values::Interval(Vec::new()),
            Data::Uuid(_) => Values::Uuid(Vec::new()),
            Data::Strings(_) => Values::Strings { views: Vec::new(), full: Vec::new(), open: Vec::new() },
            Data::List(_) | Data::Record(_) => Values::General(Builder::new(representation), 0),
        };
        Column { representation, length: 0, values, validity: None }
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Makes room for more rows.
    pub fn reserve(&mut self, more: usize) {
        match &mut self.values {
            Values::Boolean(_) | Values::General(..) => {}
            Values::Int16(values) => values.reserve(more),
            Values::Int32(values) => values.reserve(more),
            Values::Int64(values) => values.reserve(more),
            Values::Int128(values) => values.reserve(more),
            Values::UInt32(values) => values.reserve(more),
            Values::Float32(values) => values.reserve(more),
            Values::Float64(values) => values.reserve(more),
            Values::Interval(values) => values.reserve(more),
            Values::Uuid(values) => values.reserve(more),
            Values::Strings { views, .. } => views.reserve(more),
            Values::Numeric(digits, scales) => {
                digits.reserve(more);
                scales.reserve(more);
            }
        }
    }

    /// Appends rows of a vector, which has the column's representation.
    pub fn append(&mut self, vector: &Vector, rows: Rows<'_>) {
        assert_eq!(vector.representation(), self.representation);
        let count = rows.count();
        if let Values::General(builder, bytes) = &mut self.values {
            rows.each(|row| {
                let datum = vector.datum(row);
                *bytes += datum_bytes(&datum);
                builder.push(datum);
            });
            self.length += count;
            return;
        }
        let vector = vector.plain(rows);
        self.append_validity(&vector, rows);
        let (data, is_constant) = (vector.data().expect("it is plain"), vector.is_constant());
        let mask = if is_constant { 0 } else { usize::MAX };
        macro_rules! extend {
            ($to:expr, $from:expr) => {
                match (is_constant, rows.positions()) {
                    (true, _) => $to.extend(std::iter::repeat_n($from[0], count)),
                    (false, None) => $to.extend_from_slice(&$from[..]),
                    (false, Some(positions)) => {
                        $to.extend(positions.iter().map(|row| $from[usize::from(*row)]))
                    }
                }
            };
        }
        match (&mut self.values, data) {
            (Values::Boolean(bits), Data::Boolean(from)) => match (is_constant, rows.positions()) {
                (true, _) => bits.append_n(count, from.value(0)),
                (false, None) => bits.append_buffer(from),
                (false, Some(positions)) => {
                    positions.iter().for_each(|row| bits.append(from.value(usize::from(*row))));
                }
            },
            (Values::Int16(to), Data::Int16(from)) => extend!(to, from),
            (Values::Int32(to), Data::Int32(from)) => extend!(to, from),
            (Values::Int64(to), Data::Int64(from)) => extend!(to, from),
            (Values::Int128(to), Data::Int128(from)) => extend!(to, from),
            (Values::UInt32(to), Data::UInt32(from)) => extend!(to, from),
            (Values::Float32(to), Data::Float32(from)) => extend!(to, from),
            (Values::Float64(to), Data::Float64(from)) => extend!(to, from),
            (Values::Interval(to), Data::Interval(from)) => extend!(to, from),
            (Values::Uuid(to), Data::Uuid(from)) => extend!(to, from),
            (Values::Numeric(digits, scales), Data::Numeric(from)) => rows.each(|row| {
                let (unscaled, scale) = from.value(row & mask).to_parts();
                digits.push(unscaled);
                scales.push(scale);
            }),
            (Values::Strings { views, full, open }, Data::Strings(from)) => {
                views.reserve(count);
                rows.each(|row| {
                    let row = row & mask;
                    if from.views()[row] as u32 as usize <= INLINE {
                        return views.push(from.views()[row]);
                    }
                    // What the view of a NULL says is not to be followed.
                    if vector.is_null(row) {
                        return views.push(0);
                    }
                    let bytes = from.bytes(row);
                    if open.len() + bytes.len() > CLOSE_AT && !open.is_empty() {
                        full.push(Buffer::from_vec(std::mem::take(open)));
                    }
                    views.push(view(bytes, full.len() as u32, open.len() as u32));
                    open.extend_from_slice(bytes);
                });
            }
            (_, data) => panic!("a column of {:?} gets {data:?}", self.representation),
        }
        self.length += count;
    }

    fn append_validity(&mut self, vector: &Vector, rows: Rows<'_>) {
        let has_null = !vector.has_no_null();
        if !has_null && self.validity.is_none() {
            return;
        }
        let length = self.length;
        let bits = self.validity.get_or_insert_with(|| {
            let mut bits = BooleanBufferBuilder::new(length + rows.count());
            bits.append_n(length, true);
            bits
        });
        match has_null {
            false => bits.append_n(rows.count(), true),
            true => rows.each(|row| bits.append(!vector.is_null(row))),
        }
    }

    /// The rows as a flat vector.
    pub fn finish(self) -> Vector {
        let validity = self.validity.map(|mut bits| NullBuffer::new(bits.finish()));
        let data = match self.values {
            Values::General(builder, _) => return builder.finish(),
            Values::Boolean(mut bits) => Data::Boolean(bits.finish()),
            Values::Int16(values) => Data::Int16(values.into()),
            Values::Int32(values) => Data::Int32(values.into()),
            Values::Int64(values) => Data::Int64(values.into()),
            Values::Int128(values) => Data::Int128(values.into()),
            Values::UInt32(values) => Data::UInt32(values.into()),
            Values::Float32(values) => Data::Float32(values.into()),
            Values::Float64(values) => Data::Float64(values.into()),
            Values::Interval(values) => Data::Interval(values.into()),
            Values::Uuid(values) => Data::Uuid(values.into()),
            Values::Numeric(digits, scales) => Data::Numeric(Numerics::new(digits.into(), scales.into())),
            Values::Strings { views, mut full, open } => {
                if !open.is_empty() {
                    full.push(Buffer::from_vec(open));
                }
                Data::Strings(Strings::new(views.into(), full.into()))
            }
        };
        Vector::flat(self.representation, data, validity)
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        let values = match &self.values {
            Values::Boolean(bits) => bits.capacity() / 8,
            Values::Int16(values) => values.capacity() * 2,
            Values::Int32(values) => values.capacity() * 4,
            Values::UInt32(values) => values.capacity() * 4,
            Values::Float32(values) => values.capacity() * 4,
            Values::Int64(values) => values.capacity() * 8,
            Values::Float64(values) => values.capacity() * 8,
            Values::Int128(values) => values.capacity() * 16,
            Values::Interval(values) => values.capacity() * 16,
            Values::Uuid(values) => values.capacity() * 16,
            Values::Numeric(digits, _) => digits.capacity() * 18,
            Values::Strings { views, full, open } => {
                views.capacity() * 16 + full.iter().map(Buffer::capacity).sum::<usize>() + open.capacity()
            }
            Values::General(_, bytes) => *bytes,
        };
        values + self.length / 8
    }
}

/// About what a value takes in a builder.
fn datum_bytes(datum: &Datum<'_>) -> usize {
    match datum {
        Datum::Text(text) => 16 + text.len(),
        Datum::Bytes(bytes) => 16 + bytes.len(),
        Datum::List(list) => 16 + list.iter().map(|element| datum_bytes(&element)).sum::<usize>(),
        Datum::Record(record) => {
            16 + (0..record.len()).map(|field| datum_bytes(&record.get(field).1)).sum::<usize>()
        }
        _ => 16,
    }
}

/// Columns of one length that grow together.
pub struct Collection {
    rows: usize,
    columns: Vec<Column>,
}

impl Collection {
    /// No rows of columns with these representations.
    pub fn new(representations: impl IntoIterator<Item = Representation>) -> Collection {
        Collection { rows: 0, columns: representations.into_iter().map(Column::new).collect() }
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How the columns lie.
    pub fn representations(&self) -> impl Iterator<Item = Representation> + '_ {
        self.columns.iter().map(|column| column.representation)
    }

    /// Makes room for more rows.
    pub fn reserve(&mut self, more: usize) {
        self.columns.iter_mut().for_each(|column| column.reserve(more));
    }

    /// Appends rows; a vector for each column.
    pub fn append<'a>(&mut self, vectors: impl IntoIterator<Item = &'a Vector>, rows: Rows<'_>) {
        let mut vectors = vectors.into_iter();
        for column in &mut self.columns {
            column.append(vectors.next().expect("there is a vector for each column"), rows);
        }
        self.rows += rows.count();
    }

    /// Appends all rows of another one.
    pub fn append_all(&mut self, table: &Table) {
        for (column, vector) in self.columns.iter_mut().zip(table.vectors()) {
            column.append(vector, Rows::all(table.rows()));
        }
        self.rows += table.rows();
    }

    /// The rows, which no longer grow.
    pub fn finish(self) -> Table {
        let vectors = self.columns.into_iter().map(Column::finish).collect();
        Table { rows: self.rows, vectors }
    }

    /// Bytes of memory that they take.
    pub fn memory(&self) -> usize {
        self.columns.iter().map(Column::memory).sum()
    }
}

/// Rows that operators have collected: flat vectors of any length.
#[derive(Clone)]
pub struct Table {
    rows: usize,
    vectors: Arc<[Vector]>,
}

impl Table {
    /// A table of so many rows of these flat vectors.
    pub fn new(rows: usize, vectors: Vec<Vector>) -> Table {
        assert!(vectors.iter().all(|vector| vector.len() == rows));
        Table { rows, vectors: vectors.into() }
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns.
    pub fn vectors(&self) -> &[Vector] {
        &self.vectors
    }

    /// Some columns of the rows from `from` on, uncopied.
    pub fn slice(&self, columns: impl IntoIterator<Item = usize>, from: usize, rows: usize) -> Vec<Vector> {
        columns.into_iter().map(|column| self.vectors[column].slice(from, rows)).collect()
    }

    /// Some columns of the rows at these places.
    pub fn gather(&self, columns: impl IntoIterator<Item = usize>, places: &[u32]) -> Vec<Vector> {
        columns.into_iter().map(|column| gather(&self.vectors[column], places)).collect()
    }
}

/// The rows of a flat vector at these places, of which none is [`NO_ROW`].
pub fn gather(vector: &Vector, places: &[u32]) -> Vector {
    vector.take(places.iter().map(|place| *place as usize))
}

/// As [`gather`], with NULL for [`NO_ROW`].
pub fn gather_padded(vector: &Vector, places: &[u32]) -> Vector {
    if vector.is_empty() || places.iter().all(|place| *place == NO_ROW) {
        return Vector::null(vector.representation(), places.len());
    }
    if !places.contains(&NO_ROW) {
        return gather(vector, places);
    }
    let taken = vector.take(places.iter().map(|place| if *place == NO_ROW { 0 } else { *place as usize }));
    let bits = BooleanBuffer::collect_bool(places.len(), |row| places[row] != NO_ROW && !taken.is_null(row));
    let data = taken.data().expect("collected vectors are flat").clone();
    Vector::flat(taken.representation(), data, Some(NullBuffer::new(bits)))
}

/// A flat vector whose rows are written in parts: the results of CASE and COALESCE.
pub struct Scatter {
    representation: Representation,
    length: usize,
    sources: Vec<Vector>,
    /// From which source each row comes, or none.
    choice: Vec<u16>,
}

const NO_SOURCE: u16 = u16::MAX;

impl Scatter {
    /// A vector of NULLs.
    pub fn new(representation: Representation, length: usize) -> Scatter {
        Scatter { representation, length, sources: Vec::new(), choice: vec![NO_SOURCE; length] }
    }

    /// Takes some rows of a vector that is as long.
    pub fn put(&mut self, vector: Vector, rows: Rows<'_>) {
        debug_assert_eq!((vector.len(), vector.representation()), (self.length, self.representation));
        let source = self.sources.len() as u16;
        assert_ne!(source, NO_SOURCE, "there are not so many arms");
        rows.each(|row| self.choice[row] = source);
        self.sources.push(vector.plain(rows));
    }

    /// The vector.
    pub fn finish(mut self) -> Vector {
        // All rows from one source is common.
        if self.sources.len() == 1 && !self.choice.contains(&NO_SOURCE) {
            return self.sources.pop().expect("there is one");
        }
        let source = |row: usize| self.sources.get(usize::from(self.choice[row]));
        let bits = BooleanBuffer::collect_bool(self.length, |row| {
            source(row).is_some_and(|vector| !vector.is_null(row))
        });
        let validity = (bits.count_set_bits() < self.length).then(|| NullBuffer::new(bits));
        macro_rules! fixed {
            ($kind:ident, $zero:expr) => {{
                let mut values = vec![$zero; self.length];
                for (number, vector) in self.sources.iter().enumerate() {
                    let Some(Data::$kind(from)) = vector.data() else { panic!("it is plain") };
                    let mask = if vector.is_constant() { 0 } else { usize::MAX };
                    for (row, value) in values.iter_mut().enumerate() {
                        if usize::from(self.choice[row]) == number {
                            *value = from[row & mask];
                        }
                    }
                }
                Data::$kind(values.into())
            }};
        }
        let data = match Data::zeros(self.representation, 0) {
            Data::Int16(_) => fixed!(Int16, 0),
            Data::Int32(_) => fixed!(Int32, 0),
            Data::Int64(_) => fixed!(Int64, 0),
            Data::Int128(_) => fixed!(Int128, 0),
            Data::UInt32(_) => fixed!(UInt32, 0),
            Data::Float32(_) => fixed!(Float32, 0.0),
            Data::Float64(_) => fixed!(Float64, 0.0),
            Data::Uuid(_) => fixed!(Uuid, 0),
            _ => {
                let mut builder = Builder::new(self.representation);
                for row in 0..self.length {
                    builder.push(source(row).map_or(Datum::Null, |vector| vector.datum(row)));
                }
                return builder.finish();
            }
        };
        Vector::flat(self.representation, data, validity)
    }
}
