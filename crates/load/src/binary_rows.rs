//! Rows of the binary format from Arrow columns, a column at a time.
//!
//! First the length of each row is computed. Then every column is written by one loop over its values, whose type is
//! known: no type is examined for each value.

use crate::kind::Kind;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::IntervalMonthDayNano;
use arrow_buffer::NullBuffer;
use firn_base::array::ArrayImage;
use firn_base::{Interval, Numeric, Representation, SqlType, TypeId, Value, binary};

/// The number of rows that are written together: those of usual width fit into the cache of a processor.
const TOGETHER: usize = 1024;

const LENGTH_BYTES: usize = 4;
/// The length of a NULL.
const NULL: [u8; LENGTH_BYTES] = (-1i32).to_be_bytes();

/// Appends `rows` rows of columns that have the Arrow types of `kinds`, except for the scale of decimals, which is the
/// array's. Panics if one has another type.
pub(crate) fn write(columns: &[ArrayRef], kinds: &[Kind], rows: usize, out: &mut Vec<u8>) {
    assert_eq!(columns.len(), kinds.len());
    let mut writer = RowsWriter { count: (columns.len() as i16).to_be_bytes(), ends: Vec::new() };
    for first in (0..rows).step_by(TOGETHER) {
        let rows = TOGETHER.min(rows - first);
        let columns: Vec<Column> = columns
            .iter()
            .zip(kinds)
            .map(|(column, kind)| Column::new(&column.slice(first, rows), *kind))
            .collect();
        writer.write(&columns, rows, out);
    }
}

/// Some values of a column that are written.
struct Column {
    array: ArrayRef,
    kind: Kind,
    cells: Cells,
}

/// The lengths of cells.
enum Cells {
    /// The size of all values in bytes.
    Fixed(usize),
    /// Those of the strings.
    Strings,
    /// Encoded values, one after another, and the end of each.
    Encoded { bytes: Vec<u8>, ends: Vec<usize> },
}

impl Column {
    fn new(array: &ArrayRef, kind: Kind) -> Column {
        let cells = match kind {
            Kind::Typed(ty) => Cells::typed(array, ty),
            Kind::General(_, Representation::Oid) => Cells::Fixed(4),
            Kind::General(_, Representation::Numeric) => {
                let images = array.as_binary_view();
                encoded(array, |row, bytes| {
                    Numeric::from_image(images.value(row)).expect("it is an image").encode(bytes);
                })
            }
            Kind::General(ty, Representation::List(element)) => {
                let images = array.as_binary_view();
                encoded(array, |row, bytes| {
                    let image = ArrayImage::new(images.value(row), *element).expect("it is an image");
                    binary::encode_any(&Value::Array(image.to_value()), ty, bytes);
                })
            }
            Kind::General(..) => Cells::Strings,
        };
        Column { array: array.clone(), kind, cells }
    }

    /// The length of a string.
    fn length(&self, row: usize) -> usize {
        match self.kind {
            Kind::Typed(SqlType::Bytea) => self.array.as_binary_view().views()[row] as u32 as usize,
            _ => self.array.as_string_view().views()[row] as u32 as usize,
        }
    }
}

impl Cells {
    fn typed(array: &ArrayRef, ty: SqlType) -> Cells {
        match ty {
            SqlType::Boolean => Cells::Fixed(1),
            SqlType::SmallInt => Cells::Fixed(2),
            SqlType::Integer | SqlType::Real | SqlType::Date => Cells::Fixed(4),
            SqlType::BigInt | SqlType::Double | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz => {
                Cells::Fixed(8)
            }
            SqlType::Interval | SqlType::Uuid => Cells::Fixed(16),
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Bytea => Cells::Strings,
            SqlType::Numeric { .. } => decimals(array),
        }
    }
}

fn decimals(array: &ArrayRef) -> Cells {
    let numbers = array.as_primitive::<Decimal128Type>();
    let scale = u8::try_from(numbers.scale()).expect("numerics have no negative scale");
    encoded(array, |row, bytes| {
        let value = Value::Numeric { unscaled: numbers.value(row), scale };
        binary::encode_any(&value, TypeId::NUMERIC.into(), bytes);
    })
}

/// Values that `encode` appends, of the rows that are not NULL.
fn encoded(array: &ArrayRef, encode: impl Fn(usize, &mut Vec<u8>)) -> Cells {
    let (mut bytes, mut ends) = (Vec::with_capacity(16 * array.len()), Vec::with_capacity(array.len()));
    for row in 0..array.len() {
        if array.is_valid(row) {
            encode(row, &mut bytes);
        }
        ends.push(bytes.len());
    }
    Cells::Encoded { bytes, ends }
}

struct RowsWriter {
    /// The number of fields, with which every row begins.
    count: [u8; 2],
    /// The end of each row so far.
    ends: Vec<usize>,
}

impl RowsWriter {
    fn write(&mut self, columns: &[Column], rows: usize, out: &mut Vec<u8>) {
        self.ends.clear();
        self.ends.resize(rows, self.count.len());
        for column in columns {
            self.add_lengths(column);
        }
        let mut end = out.len();
        for row in &mut self.ends {
            // From now on the end of what has been written of the row.
            end += std::mem::replace(row, end);
        }
        out.resize(end, 0);
        for at in &mut self.ends {
            put(out, at, self.count);
        }
        for column in columns {
            self.write_column(column, out);
        }
    }

    /// Adds the lengths of a column's cells.
    fn add_lengths(&mut self, column: &Column) {
        let nulls = column.array.nulls();
        let mut add = |length: &dyn Fn(usize) -> usize| {
            for (row, sum) in self.ends.iter_mut().enumerate() {
                *sum += LENGTH_BYTES + if is_null(nulls, row) { 0 } else { length(row) };
            }
        };
        match &column.cells {
            Cells::Fixed(bytes) if nulls.is_none() => {
                self.ends.iter_mut().for_each(|sum| *sum += LENGTH_BYTES + bytes);
            }
            Cells::Fixed(bytes) => add(&|_| *bytes),
            Cells::Strings => add(&|row| column.length(row)),
            Cells::Encoded { ends, .. } => add(&|row| length_of(ends, row)),
        }
    }

    fn write_column(&mut self, column: &Column, out: &mut [u8]) {
        let array = &column.array;
        if let Cells::Encoded { bytes, ends } = &column.cells {
            return self.varying(array, out, |row| &bytes[ends[row] - length_of(ends, row)..ends[row]]);
        }
        let ty = match column.kind {
            Kind::Typed(ty) => ty,
            Kind::General(_, Representation::Oid) => {
                let values = array.as_primitive::<UInt32Type>().values();
                return self.fixed(array, out, |row| values[row].to_be_bytes());
            }
            Kind::General(..) => SqlType::Text,
        };
        match ty {
            SqlType::Boolean => {
                let values = array.as_boolean();
                self.fixed(array, out, |row| [u8::from(values.value(row))]);
            }
            SqlType::SmallInt => {
                let values = array.as_primitive::<Int16Type>().values();
                self.fixed(array, out, |row| values[row].to_be_bytes());
            }
            SqlType::Integer => {
                let values = array.as_primitive::<Int32Type>().values();
                self.fixed(array, out, |row| values[row].to_be_bytes());
            }
            SqlType::BigInt => {
                let values = array.as_primitive::<Int64Type>().values();
                self.fixed(array, out, |row| values[row].to_be_bytes());
            }
            SqlType::Real => {
                let values = array.as_primitive::<Float32Type>().values();
                self.fixed(array, out, |row| values[row].to_be_bytes());
            }
            SqlType::Double => {
                let values = array.as_primitive::<Float64Type>().values();
                self.fixed(array, out, |row| values[row].to_be_bytes());
            }
            SqlType::Date => {
                let values = array.as_primitive::<Date32Type>().values();
                self.fixed(array, out, |row| binary::date(values[row]));
            }
            SqlType::Time => {
                let values = array.as_primitive::<Time64MicrosecondType>().values();
                self.fixed(array, out, |row| values[row].to_be_bytes());
            }
            SqlType::Timestamp | SqlType::TimestampTz => {
                let values = array.as_primitive::<TimestampMicrosecondType>().values();
                self.fixed(array, out, |row| binary::timestamp(values[row]));
            }
            SqlType::Interval => {
                let values = array.as_primitive::<IntervalMonthDayNanoType>().values();
                self.fixed(array, out, |row| {
                    let IntervalMonthDayNano { months, days, nanoseconds } = values[row];
                    binary::interval(&Interval { months, days, nanoseconds })
                });
            }
            SqlType::Uuid => {
                let values = array.as_fixed_size_binary();
                self.fixed(array, out, |row| -> [u8; 16] { values.value(row).try_into().expect("16 bytes") });
            }
            SqlType::Bytea => {
                let values = array.as_binary_view();
                self.varying(array, out, |row| values.value(row));
            }
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
                let values = array.as_string_view();
                self.varying(array, out, |row| values.value(row).as_bytes());
            }
            SqlType::Numeric { .. } => unreachable!("their values have been encoded"),
        }
    }

    /// Writes values that are all of one length.
    #[inline(always)]
    fn fixed<const BYTES: usize>(
        &mut self,
        array: &ArrayRef,
        out: &mut [u8],
        value: impl Fn(usize) -> [u8; BYTES],
    ) {
        let nulls = array.nulls();
        for (row, at) in self.ends.iter_mut().enumerate() {
            if is_null(nulls, row) {
                put(out, at, NULL);
            } else {
                put(out, at, (BYTES as i32).to_be_bytes());
                put(out, at, value(row));
            }
        }
    }

    /// Writes values of any length.
    #[inline(always)]
    fn varying<'v>(&mut self, array: &ArrayRef, out: &mut [u8], value: impl Fn(usize) -> &'v [u8]) {
        let nulls = array.nulls();
        for (row, at) in self.ends.iter_mut().enumerate() {
            if is_null(nulls, row) {
                put(out, at, NULL);
            } else {
                let value = value(row);
                put(out, at, (value.len() as i32).to_be_bytes());
                out[*at..*at + value.len()].copy_from_slice(value);
                *at += value.len();
            }
        }
    }
}

#[inline(always)]
fn is_null(nulls: Option<&NullBuffer>, row: usize) -> bool {
    nulls.is_some_and(|nulls| nulls.is_null(row))
}

/// Writes bytes, and advances the position.
#[inline(always)]
fn put<const BYTES: usize>(out: &mut [u8], at: &mut usize, bytes: [u8; BYTES]) {
    out[*at..*at + BYTES].copy_from_slice(&bytes);
    *at += BYTES;
}

/// The length of one of several consecutive entries.
fn length_of(ends: &[usize], at: usize) -> usize {
    ends[at] - if at == 0 { 0 } else { ends[at - 1] }
}
