//! Temporary files: rows that an operator keeps and for which there is no memory.
//!
//! ```text
//! a file    images, one after the other; where each begins, its writer knows
//! an image  rows u32, then each column: 1 if all rows have one value, which follows as a column of one row, else 0 and a column
//! a column  1 if there are NULLs, then a bit a row; then by kind
//!   fixed   the values, little-endian
//!   strings a length of 4 bytes each, then all bytes
//!   arrays  a length of 4 bytes and the dimensions of each, then the elements as a column
//!   records the number of fields, then each with its type as a column
//! ```
//!
//! Files have no names: nobody else can open one, and one is gone with its last user, however that ends.

use crate::expression::converted;
use crate::measures::Gauge;
use crate::values::repeat;
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use firn_base::array::Dimension;
use firn_base::disk::{Disk, DiskFile};
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{Collation, Error, Representation, Result, SqlState, Type, TypeId};
use firn_vector::builder::Builder;
use firn_vector::lists::{Lists, Records, Shape};
use firn_vector::numerics::Numerics;
use firn_vector::selection::Rows;
use firn_vector::strings::StringBuilder;
use firn_vector::{Data, Datum, Vector};
use std::path::PathBuf;

/// Where temporary files are, and how much those of one session may hold.
#[derive(Debug)]
pub struct SpillArea {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    limit: u64,
    used: AtomicU64,
    /// All bytes that were ever written.
    written: AtomicU64,
}

impl SpillArea {
    /// Files in a directory, which is there. They may hold `limit` bytes together.
    pub fn new(disk: Arc<dyn Disk>, directory: PathBuf, limit: u64) -> Arc<SpillArea> {
        let [used, written] = [(); 2].map(|()| AtomicU64::new(0));
        Arc::new(SpillArea { disk, directory, limit, used, written })
    }

    /// How many bytes they may hold.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How many bytes the files hold.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How many bytes have been written since it was opened.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// A new file.
    pub fn create(self: &Arc<Self>) -> Result<SpillFile> {
        let file = self.disk.create_temporary(&self.directory)?;
        Ok(SpillFile { area: self.clone(), file, length: AtomicU64::new(0) })
    }
}

/// A temporary file.
#[derive(Debug)]
pub struct SpillFile {
    area: Arc<SpillArea>,
    file: Arc<dyn DiskFile>,
    /// Relaxed: only a reader that has the position of an image reads it.
    length: AtomicU64,
}

impl SpillFile {
    /// Appends an image. Where it lies. 53400 if that is more than the session's files may hold, 53100 if the disk is full.
    pub fn write(&self, image: &[u8]) -> Result<(u64, usize)> {
        let more = image.len() as u64;
        let before = self.area.used.fetch_add(more, Ordering::Relaxed);
        if before + more > self.area.limit {
            self.area.used.fetch_sub(more, Ordering::Relaxed);
            return Err(too_much(self.area.limit));
        }
        // Counted from now on, whether it is written or not.
        let at = self.length.fetch_add(more, Ordering::Relaxed);
        self.area.written.fetch_add(more, Ordering::Relaxed);
        if let Some(gauge) = Gauge::current() {
            gauge.add_spilled(more);
        }
        self.file.write_at(image, at)?;
        Ok((at, image.len()))
    }

    /// Reads an image.
    pub fn read(&self, (at, length): (u64, usize)) -> Result<Vec<u8>> {
        let mut image = vec![0; length];
        let read = self.file.read_at(&mut image, at)?;
        match read == length {
            true => Ok(image),
            false => Err(Error::new(SqlState::IO_ERROR, "a temporary file is shorter than it was written")),
        }
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        self.area.used.fetch_sub(self.length.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cold]
fn too_much(limit: u64) -> Error {
    let message = format!("temporary file size exceeds temp_file_limit ({}kB)", limit >> 10);
    Error::new(SqlState::new("53400"), message)
        .with_hint("Raise temp_file_limit, or let the query keep fewer rows at a time.")
}

/// Appends the image of rows of vectors.
pub fn write_rows(vectors: &[Vector], rows: usize, out: &mut Vec<u8>) {
    out.extend((rows as u32).to_le_bytes());
    for vector in vectors {
        let is_constant = vector.is_constant() && rows > 0;
        out.push(u8::from(is_constant));
        match is_constant {
            true => write_vector(&vector.slice(0, 1), out),
            false => write_vector(vector, out),
        }
    }
}

/// The same, of vectors whose values may lie otherwise than those of the columns, as numbers of one scale do in a column for numbers of any.
pub fn write_rows_as(representations: &[Representation], vectors: &[Vector], rows: usize, out: &mut Vec<u8>) {
    let conforms =
        |(vector, representation): (&Vector, &Representation)| vector.representation() == *representation;
    if vectors.iter().zip(representations).all(conforms) {
        return write_rows(vectors, rows, out);
    }
    let conforming = vectors.iter().zip(representations);
    let conforming = conforming.map(|(vector, to)| converted(vector, *to, Rows::all(rows)));
    write_rows(&conforming.collect::<Vec<Vector>>(), rows, out);
}

/// The rows of an image, which begins with them; it ends behind them.
pub fn read_rows(representations: &[Representation], image: &mut &[u8]) -> (Vec<Vector>, usize) {
    let rows = number(image) as usize;
    let vector = |representation: &Representation| match take(image, 1)[0] {
        1 => repeat(&read_vector(*representation, 1, image), rows),
        _ => read_vector(*representation, rows, image),
    };
    (representations.iter().map(vector).collect(), rows)
}

fn write_vector(vector: &Vector, out: &mut Vec<u8>) {
    let vector = vector.flatten(Rows::all(vector.len()));
    out.push(u8::from(!vector.has_no_null()));
    if let Some(validity) = vector.validity() {
        write_bits(validity.inner(), out);
    }
    match vector.data().expect("it is flat") {
        Data::Boolean(values) => write_bits(values, out),
        Data::Int16(values) => out.extend_from_slice(values.inner()),
        Data::Int32(values) => out.extend_from_slice(values.inner()),
        Data::Int64(values) => out.extend_from_slice(values.inner()),
        Data::Int128(values) => out.extend_from_slice(values.inner()),
        Data::UInt32(values) => out.extend_from_slice(values.inner()),
        Data::Float32(values) => out.extend_from_slice(values.inner()),
        Data::Float64(values) => out.extend_from_slice(values.inner()),
        Data::Interval(values) => out.extend_from_slice(values.inner()),
        Data::Uuid(values) => out.extend_from_slice(values.inner()),
        Data::Numeric(values) => {
            for row in 0..values.len() {
                let (unscaled, scale) = values.value(row).to_parts();
                out.extend(unscaled.to_le_bytes());
                out.extend(scale.to_le_bytes());
            }
        }
        Data::Strings(values) => {
            let bytes = |row: usize| if vector.is_null(row) { &[][..] } else { values.bytes(row) };
            (0..values.len()).for_each(|row| out.extend((bytes(row).len() as u32).to_le_bytes()));
            (0..values.len()).for_each(|row| out.extend_from_slice(bytes(row)));
        }
        Data::List(values) => {
            let Representation::List(element) = vector.representation() else { panic!("it is an array") };
            let mut elements = Builder::new(*element);
            for row in 0..values.len() {
                let Datum::List(list) = vector.datum(row) else {
                    out.extend([0; 5]);
                    continue;
                };
                out.extend((list.len() as u32).to_le_bytes());
                let shape = list.shape().map_or(&[][..], |shape| shape);
                out.push(shape.len() as u8);
                for dimension in shape {
                    out.extend(dimension.length.to_le_bytes());
                    out.extend(dimension.lower.to_le_bytes());
                }
                list.iter().for_each(|datum| elements.push(datum));
            }
            out.extend((elements.len() as u32).to_le_bytes());
            write_vector(&elements.finish(), out);
        }
        Data::Record(values) => {
            out.extend((values.fields().len() as u32).to_le_bytes());
            for (ty, field) in values.fields().iter() {
                out.extend(ty.id.0.to_le_bytes());
                out.extend(ty.modifier.to_le_bytes());
                out.extend(ty.collation.0.to_le_bytes());
                let representation = ty.representation().expect("fields have values");
                write_vector(&converted(field, representation, Rows::all(vector.len())), out);
            }
        }
    }
}

fn write_bits(bits: &BooleanBuffer, out: &mut Vec<u8>) {
    out.extend_from_slice(&bits.sliced());
}

fn take<'i>(image: &mut &'i [u8], length: usize) -> &'i [u8] {
    let (taken, rest) = image.split_at(length);
    *image = rest;
    taken
}

fn number(image: &mut &[u8]) -> u32 {
    u32::from_le_bytes(take(image, 4).try_into().expect("these are four bytes"))
}

fn read_bits(rows: usize, image: &mut &[u8]) -> BooleanBuffer {
    BooleanBuffer::new(Buffer::from(take(image, rows.div_ceil(8))), 0, rows)
}

fn read_fixed<T: ArrowNativeType>(rows: usize, image: &mut &[u8]) -> ScalarBuffer<T> {
    ScalarBuffer::new(Buffer::from(take(image, rows * size_of::<T>())), 0, rows)
}

fn read_vector(representation: Representation, rows: usize, image: &mut &[u8]) -> Vector {
    let has_null = take(image, 1)[0] == 1;
    let validity = has_null.then(|| NullBuffer::new(read_bits(rows, image)));
    let data = match Data::zeros(representation, 0) {
        Data::Boolean(_) => Data::Boolean(read_bits(rows, image)),
        Data::Int16(_) => Data::Int16(read_fixed(rows, image)),
        Data::Int32(_) => Data::Int32(read_fixed(rows, image)),
        Data::Int64(_) => Data::Int64(read_fixed(rows, image)),
        Data::Int128(_) => Data::Int128(read_fixed(rows, image)),
        Data::UInt32(_) => Data::UInt32(read_fixed(rows, image)),
        Data::Float32(_) => Data::Float32(read_fixed(rows, image)),
        Data::Float64(_) => Data::Float64(read_fixed(rows, image)),
        Data::Interval(_) => Data::Interval(read_fixed(rows, image)),
        Data::Uuid(_) => Data::Uuid(read_fixed(rows, image)),
        Data::Numeric(_) => {
            let (mut digits, mut scales) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
            for value in take(image, rows * 18).as_chunks::<18>().0 {
                digits.push(i128::from_le_bytes(value[..16].try_into().expect("these are 16 bytes")));
                scales.push(u16::from_le_bytes([value[16], value[17]]));
            }
            Data::Numeric(Numerics::new(digits.into(), scales.into()))
        }
        Data::Strings(_) => {
            let lengths: Vec<u32> = (0..rows).map(|_| number(image)).collect();
            let (mut strings, mut buffer) = (StringBuilder::new(0), Vec::new());
            for length in lengths {
                let start = buffer.len();
                buffer.extend_from_slice(take(image, length as usize));
                strings.push(&mut buffer, start);
            }
            Data::Strings(strings.finish(buffer))
        }
        Data::List(_) => {
            let Representation::List(element) = representation else { panic!("it is an array") };
            let (mut starts, mut lengths, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
            let mut start = 0;
            for _ in 0..rows {
                let length = number(image);
                let dimensions = take(image, 1)[0];
                let dimension = |_| Dimension { length: number(image), lower: number(image) as i32 };
                let shape: Vec<Dimension> = (0..dimensions).map(dimension).collect();
                shapes.push((!shape.is_empty()).then(|| Shape::from(shape)));
                starts.push(start);
                lengths.push(length);
                start += length;
            }
            let count = number(image) as usize;
            let elements = read_vector(*element, count, image);
            let shapes = shapes.iter().any(Option::is_some).then(|| shapes.into());
            Data::List(Lists::new(Arc::new(elements), starts.into(), lengths.into(), shapes))
        }
        Data::Record(_) => {
            let fields = number(image);
            let field = |_| {
                let ty = Type {
                    id: TypeId(number(image)),
                    modifier: number(image) as i32,
                    collation: Collation(number(image)),
                };
                let representation = ty.representation().expect("fields have values");
                (ty, read_vector(representation, rows, image))
            };
            Data::Record(Records::new((0..fields).map(field).collect(), rows))
        }
    };
    Vector::flat(representation, data, validity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::disk::SimulatedDisk;
    use firn_vector::lists::List;

    #[test]
    fn rows_are_read_as_they_were_written_and_files_go() {
        let mut texts = Builder::new(Representation::Text);
        let mut arrays = Builder::new(Representation::List(&Representation::Int32));
        let mut numbers = Builder::new(Representation::Numeric);
        let mut flags = Builder::new(Representation::Boolean);
        let elements = Vector::flat(Representation::Int32, Data::Int32(vec![1, 2, 3].into()), None);
        for row in 0..100 {
            match row % 3 {
                0 => {
                    texts.push(Datum::Text(&"long ".repeat(row)));
                    arrays.push(Datum::List(List::of(&elements)));
                    numbers.push(Datum::Numeric(firn_base::Numeric::NAN));
                    flags.push_null();
                }
                1 => {
                    texts.push_null();
                    arrays.push_null();
                    numbers.push_null();
                    flags.push(Datum::Boolean(true));
                }
                _ => {
                    texts.push(Datum::Text("short"));
                    let shape: Shape = vec![Dimension { length: 3, lower: -1 }].into();
                    arrays.push(Datum::List(List::with_shape(&elements, Some(&shape))));
                    numbers.push(Datum::Numeric(firn_base::Numeric::new(150, 2).unwrap()));
                    flags.push(Datum::Boolean(false));
                }
            }
        }
        let one = Vector::constant(Representation::Int64, Data::Int64(vec![7].into()), 100);
        let null = Vector::null(Representation::Text, 100);
        let vectors = [texts.finish(), one, arrays.finish(), null, numbers.finish(), flags.finish()];
        let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 20);
        let file = area.create().unwrap();
        let mut image = Vec::new();
        write_rows(&vectors, 100, &mut image);
        file.write(b"other").unwrap();
        let place = file.write(&image).unwrap();
        assert_eq!(area.used(), 5 + image.len() as u64);
        let read = file.read(place).unwrap();
        let representations: Vec<Representation> = vectors.iter().map(Vector::representation).collect();
        let mut rest = &read[..];
        let (again, rows) = read_rows(&representations, &mut rest);
        assert_eq!((rows, rest.len()), (100, 0));
        for (one, other) in vectors.iter().zip(&again) {
            for row in 0..100 {
                assert_eq!(format!("{:?}", one.datum(row)), format!("{:?}", other.datum(row)));
            }
        }
        drop(file);
        assert_eq!(area.used(), 0);
        assert!(area.disk.list(&area.directory).unwrap().is_empty());
    }

    #[test]
    fn temporary_files_have_a_limit() {
        let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 10);
        let file = area.create().unwrap();
        file.write(&[0; 8]).unwrap();
        assert_eq!(file.write(&[0; 3]).unwrap_err().state(), SqlState::new("53400"));
        drop(file);
        assert_eq!(area.used(), 0);
    }
}
