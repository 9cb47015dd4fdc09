//! Keys: the values of some columns of a row as one string of bits, which has SQL's equality and order.
//!
//! Two rows are equal in the columns exactly if their keys are, and one comes first exactly if its key is smaller as
//! an unsigned number (or as bytes). Grouping, joins, sorting, DISTINCT and the partitions of windows all
//! compare keys and never values.
//!
//! ```text
//! a word, up to 64 bits          first column in the highest bits
//!   [not-NULL 1] value 8…64      one bit more only if the column may be NULL
//! a wide word, up to 128 bits    likewise
//! a double word, up to 256 bits  likewise
//! a record                       only where nothing but equality matters, if there are strings
//!   fixed    16 bytes            the columns of fixed width as a wide word, if there are any
//!   string   16 bytes each       a view as Arrow's: inline up to 12 bytes, else with a place among the keys' bytes
//! bytes                          else
//!   flag 1  value                0 = NULL first, 1 = a value, 2 = NULL last
//!     integers                   big-endian, sign flipped
//!     strings                    0 as 0 ff, then 0 0
//!     numeric                    class 1, exponent 2, 38 digits as 16 bytes
//!     arrays                     (1 value | 2 for NULL)*, 0, dimensions
//!   descending                   the value's bytes inverted
//! ```
//!
//! Words and records are made column by column, bytes row by row. Modules in reading order.

pub mod list;
mod slots;

mod dense;
mod double;

pub mod few;

pub mod index;
pub mod set;

pub use dense::WordSet;
pub use double::DoubleWord;
pub use few::FewKeys;
pub use index::KeyIndex;
pub use list::{Key, Keys};
pub use set::KeySet;
pub use slots::NONE;

use arrow_buffer::NullBuffer;
use firn_base::{Numeric, Representation};
use firn_vector::selection::Rows;
use firn_vector::{Data, Datum, Vector};
use list::{ByteKeys, Records};
use std::ops::{BitAnd, BitOr, Not, Shl};

/// A column of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyColumn {
    /// How its values are made comparable. Values of several representations may have one class.
    pub class: Class,
    /// Whether NULL makes a key of its own. If not, the key of a row with NULL means nothing.
    pub nullable: bool,
    /// Whether large values come first.
    pub descending: bool,
    /// Whether NULL comes before all values, else behind.
    pub nulls_first: bool,
}

/// What values are comparable as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Values of this representation among each other.
    Same(Representation),
    /// Whole numbers of 2, 4 and 8 bytes.
    Integer,
    /// Numbers of any scale.
    Numeric,
    /// Floating-point numbers of 4 and 8 bytes.
    Float,
}

impl Class {
    /// In which two columns can be compared, if they can.
    pub fn common(left: Representation, right: Representation) -> Option<Class> {
        use Representation::{Decimal, Float32, Float64, Int16, Int32, Int64, Numeric};
        match (left, right) {
            _ if left == right => Some(Class::Same(left)),
            (Int16 | Int32 | Int64, Int16 | Int32 | Int64) => Some(Class::Integer),
            (Decimal { .. } | Numeric, Decimal { .. } | Numeric) => Some(Class::Numeric),
            (Float32 | Float64, Float32 | Float64) => Some(Class::Float),
            _ => None,
        }
    }

    /// How many bits a value takes, if all take as many.
    fn bits(self) -> Option<u32> {
        Some(match self {
            Class::Integer | Class::Float => 64,
            Class::Numeric => return None,
            Class::Same(representation) => match representation {
                Representation::Boolean => 8,
                Representation::Int16 => 16,
                Representation::Int32
                | Representation::Date
                | Representation::Oid
                | Representation::Float32 => 32,
                Representation::Int64
                | Representation::Time
                | Representation::Timestamp
                | Representation::TimestampTz
                | Representation::Float64 => 64,
                Representation::Decimal { precision, .. } => {
                    if precision <= 18 {
                        64
                    } else {
                        128
                    }
                }
                Representation::Interval | Representation::Uuid => 128,
                Representation::Numeric
                | Representation::Text
                | Representation::PaddedText
                | Representation::Bytes
                | Representation::List(_)
                | Representation::Record => return None,
            },
        })
    }
}

impl KeyColumn {
    /// A column of which only equality matters.
    pub fn equal(representation: Representation, nullable: bool) -> KeyColumn {
        KeyColumn { class: Class::Same(representation), nullable, descending: false, nulls_first: false }
    }

    /// How many bits it takes, if all its values take as many.
    fn bits(&self) -> Option<u32> {
        Some(self.class.bits()? + u32::from(self.nullable))
    }

    /// Whether its values are strings whose equality is that of bytes, perhaps without blanks at their ends.
    fn is_string(&self) -> bool {
        use Representation::{Bytes, PaddedText, Text};
        matches!(self.class, Class::Same(Text | PaddedText | Bytes))
    }
}

/// How keys of some columns are made.
#[derive(Clone, Debug)]
pub struct KeyLayout {
    columns: Box<[KeyColumn]>,
    form: Form,
}

/// What keys of a layout are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// Up to 64 bits.
    Word,
    /// Up to 128 bits.
    Wide,
    /// Up to 256 bits.
    Double,
    /// So many strings, behind the columns of fixed width if there are any.
    Record {
        has_fixed: bool,
        strings: usize,
    },
    Bytes,
}

impl KeyLayout {
    /// A layout of these columns.
    pub fn new(columns: Vec<KeyColumn>) -> KeyLayout {
        let form = match columns.iter().map(KeyColumn::bits).sum::<Option<u32>>() {
            Some(0..=64) => Form::Word,
            Some(65..=128) => Form::Wide,
            Some(129..=256) => Form::Double,
            _ => Form::Bytes,
        };
        KeyLayout { columns: columns.into(), form }
    }

    /// A layout of these columns whose keys need not have an order, but to be equal or not.
    pub fn for_equality(columns: Vec<KeyColumn>) -> KeyLayout {
        let layout = KeyLayout::new(columns);
        let of_strings = layout.columns.iter().filter(|column| column.is_string()).count();
        let fixed = layout.columns.iter().filter(|column| !column.is_string()).map(KeyColumn::bits);
        match fixed.sum::<Option<u32>>() {
            Some(bits @ 0..=128) if of_strings > 0 => {
                KeyLayout { form: Form::Record { has_fixed: bits > 0, strings: of_strings }, ..layout }
            }
            _ => layout,
        }
    }

    /// How many columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether keys are words of 64 bits, which cost less than anything else.
    pub fn is_word(&self) -> bool {
        self.form == Form::Word
    }

    /// Where the bits of a column stand in a key, if the column alone makes a word.
    pub(crate) fn bits_of(&self, place: usize) -> Option<ColumnBits> {
        let width = self.columns[place].bits().filter(|width| *width <= u64::BITS)?;
        let behind = self.columns[place + 1..].iter().map(KeyColumn::bits).sum::<Option<u32>>()?;
        matches!(self.form, Form::Word | Form::Wide).then_some(ColumnBits { behind, width })
    }

    /// The layout of keys of one column alone, as it is here.
    pub fn of_column(&self, place: usize) -> KeyLayout {
        KeyLayout::for_equality(vec![self.columns[place]])
    }

    /// Whether there are no columns: all rows are equal.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Whether each of these rows has a key.
    pub fn admits(&self, vectors: &[Vector], rows: Rows<'_>) -> bool {
        let is_value = |vector: &Vector, row| if vector.is_null(row) { Err(row) } else { Ok(()) };
        let mut columns = self.columns.iter().zip(vectors);
        columns.all(|(column, vector)| column.nullable || rows.try_each(|row| is_value(vector, row)).is_ok())
    }

    /// No keys of this layout.
    pub fn none(&self) -> Keys {
        match self.form {
            Form::Word => Keys::Words(Vec::new()),
            Form::Wide => Keys::Wide(Vec::new()),
            Form::Double => Keys::Double(Vec::new()),
            Form::Record { has_fixed, strings } => Keys::Records(Records::new(has_fixed, strings)),
            Form::Bytes => Keys::Bytes(ByteKeys::default()),
        }
    }

    /// The keys of rows; a vector for each column.
    pub fn keys(&self, vectors: &[Vector], rows: Rows<'_>) -> Keys {
        let mut keys = self.none();
        self.keys_into(vectors, rows, &mut keys);
        keys
    }

    /// As [`KeyLayout::keys`], in place of the keys of this layout that `keys` has.
    pub fn keys_into(&self, vectors: &[Vector], rows: Rows<'_>, keys: &mut Keys) {
        assert_eq!(vectors.len(), self.columns.len());
        let columns = self.columns.iter().zip(vectors);
        match keys {
            Keys::Words(words) => {
                words.clear();
                words.resize(rows.count(), 0);
                columns
                    .for_each(|(column, vector)| put_fixed(column, &vector.plain(rows), rows, words, 0, 1));
            }
            Keys::Wide(words) => {
                words.clear();
                words.resize(rows.count(), 0);
                columns
                    .for_each(|(column, vector)| put_fixed(column, &vector.plain(rows), rows, words, 0, 1));
            }
            Keys::Double(words) => {
                words.clear();
                words.resize(rows.count(), DoubleWord::default());
                columns
                    .for_each(|(column, vector)| put_fixed(column, &vector.plain(rows), rows, words, 0, 1));
            }
            Keys::Records(records) => {
                records.clear(rows.count());
                let (words, width) = records.words();
                for (column, vector) in columns.clone().filter(|(column, _)| !column.is_string()) {
                    put_fixed(column, &vector.plain(rows), rows, words, 0, width);
                }
                for (number, (column, vector)) in columns.filter(|(column, _)| column.is_string()).enumerate()
                {
                    let is_padded = column.class == Class::Same(Representation::PaddedText);
                    records.put_strings(number, &vector.plain(rows), rows, is_padded);
                }
            }
            Keys::Bytes(keys) => {
                keys.clear();
                rows.each(|row| {
                    keys.put(|bytes| {
                        columns
                            .clone()
                            .for_each(|(column, vector)| put_bytes(column, vector.datum(row), bytes));
                    });
                });
            }
        }
    }
}

/// Where the bits of a column stand in a key.
#[derive(Clone, Copy)]
pub(crate) struct ColumnBits {
    behind: u32,
    width: u32,
}

impl ColumnBits {
    /// Of a key of 64 bits.
    fn of_word(self, key: u64) -> u64 {
        self.of_wide(u128::from(key))
    }

    /// Of a key of 128 bits.
    fn of_wide(self, key: u128) -> u64 {
        (key >> self.behind) as u64 & u64::MAX >> (u64::BITS - self.width)
    }
}

/// An unsigned number that a key is made in.
trait Word:
    Copy + Shl<u32, Output = Self> + BitOr<Output = Self> + BitAnd<Output = Self> + Not<Output = Self>
{
    const BITS: u32;
    fn of(bits: u128) -> Self;
}

impl Word for u64 {
    const BITS: u32 = 64;
    #[inline]
    fn of(bits: u128) -> u64 {
        bits as u64
    }
}

impl Word for u128 {
    const BITS: u32 = 128;
    #[inline]
    fn of(bits: u128) -> u128 {
        bits
    }
}

impl Word for DoubleWord {
    const BITS: u32 = 256;
    #[inline]
    fn of(bits: u128) -> DoubleWord {
        DoubleWord { high: 0, low: bits }
    }
}

/// Appends a column's bits to each key, which are at each `width`th place from `first` on.
fn put_fixed<W: Word>(
    column: &KeyColumn,
    vector: &Vector,
    rows: Rows<'_>,
    keys: &mut [W],
    first: usize,
    width: usize,
) {
    match width {
        // The loops of this case are the ones that count; a stride that is known makes them vector code.
        1 => put_fixed_by(column, vector, rows, keys, |place| place),
        _ => put_fixed_by(column, vector, rows, keys, |place| place * width + first),
    }
}

fn put_fixed_by<W: Word>(
    column: &KeyColumn,
    vector: &Vector,
    rows: Rows<'_>,
    keys: &mut [W],
    at: impl Fn(usize) -> usize + Copy,
) {
    let width = column.class.bits().expect("the key has a fixed width");
    let all: u128 = if width == 128 { u128::MAX } else { (1 << width) - 1 };
    let invert = if column.descending { all } else { 0 };
    let mask = if vector.is_constant() { 0 } else { usize::MAX };
    // A key whose value has all its bits is alone.
    let append = |key: W, code: u128| match width == W::BITS {
        true => W::of(code ^ invert),
        false => key << width | W::of(code ^ invert),
    };
    macro_rules! put {
        ($values:expr, |$value:ident| $code:expr) => {{
            let (values, mut place) = ($values, 0);
            rows.each(|row| {
                let $value = values[row & mask];
                keys[at(place)] = append(keys[at(place)], $code);
                place += 1;
            });
        }};
    }
    let is_wide = column.class == Class::Integer;
    let is_float = column.class == Class::Float;
    if column.nullable {
        (0..rows.count()).for_each(|place| keys[at(place)] = keys[at(place)] << 1);
    }
    let signed = |value: i64, width: u32| u128::from((value as u64) ^ (1 << (width - 1))) & all;
    match vector.data().expect("it is plain") {
        Data::Boolean(values) => {
            let mut place = 0;
            rows.each(|row| {
                keys[at(place)] = append(keys[at(place)], u128::from(values.value(row & mask)));
                place += 1;
            });
        }
        Data::Int16(values) if is_wide => put!(values, |value| signed(i64::from(value), 64)),
        Data::Int32(values) if is_wide => put!(values, |value| signed(i64::from(value), 64)),
        Data::Int16(values) => put!(values, |value| signed(i64::from(value), 16)),
        Data::Int32(values) => put!(values, |value| signed(i64::from(value), 32)),
        Data::Int64(values) => put!(values, |value| signed(value, 64)),
        Data::Int128(values) => put!(values, |value| (value as u128) ^ (1 << 127)),
        Data::UInt32(values) => put!(values, |value| u128::from(value)),
        Data::Float32(values) if is_float => put!(values, |value| u128::from(ordered(f64::from(value)))),
        Data::Float32(values) => put!(values, |value| u128::from(ordered_single(value))),
        Data::Float64(values) => put!(values, |value| u128::from(ordered(value))),
        Data::Interval(values) => put!(values, |value| {
            let interval = firn_base::Interval {
                months: value.months,
                days: value.days,
                nanoseconds: value.nanoseconds,
            };
            (interval.comparable() as u128) ^ (1 << 127)
        }),
        Data::Uuid(values) => put!(values, |value| value.swap_bytes()),
        other => panic!("keys of {other:?} have no fixed width"),
    }
    if !column.nullable {
        return;
    }
    // The flag stands above the value; NULLs have no value.
    let flag = W::of(1) << width;
    let (of_null, of_value) = if column.nulls_first { (W::of(0), flag) } else { (flag, W::of(0)) };
    if vector.has_no_null() {
        (0..rows.count()).for_each(|place| keys[at(place)] = keys[at(place)] | of_value);
        return;
    }
    let mut place = 0;
    rows.each(|row| {
        keys[at(place)] = match vector.is_null(row) {
            true => keys[at(place)] & !W::of(all) | of_null,
            false => keys[at(place)] | of_value,
        };
        place += 1;
    });
}

/// Numbers in the order of floating-point values: zeros of both signs are equal, and NaN is larger than all.
fn ordered(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn ordered_single(value: f32) -> u32 {
    if value.is_nan() {
        return u32::MAX;
    }
    let bits = (value + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

fn put_bytes(column: &KeyColumn, datum: Datum<'_>, bytes: &mut Vec<u8>) {
    if datum.is_null() {
        return bytes.push(if column.nulls_first { 0 } else { 2 });
    }
    bytes.push(1);
    let start = bytes.len();
    match column.class {
        Class::Same(representation) => put_datum(datum, representation, bytes),
        Class::Integer => {
            let value = match datum {
                Datum::Int16(value) => i64::from(value),
                Datum::Int32(value) => i64::from(value),
                Datum::Int64(value) => value,
                other => panic!("{other:?} is no whole number"),
            };
            put_datum(Datum::Int64(value), Representation::Int64, bytes);
        }
        Class::Numeric => put_datum(datum, Representation::Numeric, bytes),
        Class::Float => match datum {
            Datum::Float32(value) => bytes.extend(ordered(f64::from(value)).to_be_bytes()),
            other => put_datum(other, Representation::Float64, bytes),
        },
    }
    if column.descending {
        bytes[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Appends a value that is not NULL.
fn put_datum(datum: Datum<'_>, representation: Representation, bytes: &mut Vec<u8>) {
    match datum {
        Datum::Null => panic!("NULL has no value"),
        Datum::Boolean(value) => bytes.push(u8::from(value)),
        Datum::Int16(value) => bytes.extend(((value as u16) ^ 1 << 15).to_be_bytes()),
        Datum::Int32(value) => bytes.extend(((value as u32) ^ 1 << 31).to_be_bytes()),
        Datum::Int64(value) => bytes.extend(((value as u64) ^ 1 << 63).to_be_bytes()),
        Datum::UInt32(value) => bytes.extend(value.to_be_bytes()),
        Datum::Float32(value) => bytes.extend(ordered_single(value).to_be_bytes()),
        Datum::Float64(value) => bytes.extend(ordered(value).to_be_bytes()),
        Datum::Numeric(value) => put_numeric(value, bytes),
        Datum::Interval(value) => bytes.extend(((value.comparable() as u128) ^ 1 << 127).to_be_bytes()),
        Datum::Uuid(value) => bytes.extend(value),
        Datum::Text(text) if representation == Representation::PaddedText => {
            put_string(text.trim_end_matches(' ').as_bytes(), bytes);
        }
        Datum::Text(text) => put_string(text.as_bytes(), bytes),
        Datum::Bytes(string) => put_string(string, bytes),
        Datum::List(list) => {
            let Representation::List(element) = representation else { panic!("it is an array") };
            for datum in list.iter() {
                put_field(datum, *element, bytes);
            }
            bytes.push(0);
            bytes.push(list.dimensions() as u8);
            for number in 0..list.dimensions() {
                let dimension = list.dimension(number).expect("it has so many");
                bytes.extend(dimension.length.to_be_bytes());
                bytes.extend(((dimension.lower as u32) ^ 1 << 31).to_be_bytes());
            }
        }
        Datum::Record(record) => {
            for field in 0..record.len() {
                let (ty, datum) = record.get(field);
                put_field(datum, ty.representation().expect("fields have values"), bytes);
            }
            bytes.push(0);
        }
    }
}

/// An element of an array or a field of a record: NULLs are equal, and larger than all values.
fn put_field(datum: Datum<'_>, representation: Representation, bytes: &mut Vec<u8>) {
    if datum.is_null() {
        return bytes.push(2);
    }
    bytes.push(1);
    put_datum(datum, representation, bytes);
}

fn put_string(string: &[u8], bytes: &mut Vec<u8>) {
    // Zeros are rare, and not to be found in text.
    let mut rest = string;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        bytes.extend_from_slice(&rest[..=zero]);
        bytes.push(0xff);
        rest = &rest[zero + 1..];
    }
    bytes.extend_from_slice(rest);
    bytes.extend([0, 0]);
}

fn put_numeric(value: Numeric, bytes: &mut Vec<u8>) {
    const DIGITS: u32 = 38;
    let Some((unscaled, scale)) = value.normalized().number() else {
        let class = if value.is_nan() {
            5
        } else if value.sign() == Some(1) {
            4
        } else {
            0
        };
        return bytes.extend([class; 1].into_iter().chain([0; 18]));
    };
    if unscaled == 0 {
        return bytes.extend([2u8].into_iter().chain([0; 18]));
    }
    let magnitude = unscaled.unsigned_abs();
    let digits = magnitude.ilog10() + 1;
    let exponent = (digits as i32 - i32::from(scale) + (1 << 15)) as u16;
    let mantissa = magnitude * 10u128.pow(DIGITS - digits);
    let (class, exponent, mantissa) =
        if unscaled > 0 { (3u8, exponent, mantissa) } else { (1, !exponent, !mantissa) };
    bytes.push(class);
    bytes.extend(exponent.to_be_bytes());
    bytes.extend(mantissa.to_be_bytes());
}

/// Which rows, in their order, have a NULL in any of the vectors; `None` if none has.
pub fn rows_with_null(vectors: &[Vector], rows: Rows<'_>) -> Option<Vec<bool>> {
    if vectors.iter().all(Vector::has_no_null) {
        return None;
    }
    let mut found = vec![false; rows.count()];
    for vector in vectors.iter().filter(|vector| !vector.has_no_null()) {
        let mut place = 0;
        rows.each(|row| {
            found[place] |= vector.is_null(row);
            place += 1;
        });
    }
    Some(found)
}

/// The rows that are valid in all vectors, as positions.
pub fn valid_rows(vectors: &[Vector], rows: Rows<'_>) -> Option<Vec<u16>> {
    let mut validity: Option<NullBuffer> = None;
    for vector in vectors.iter().filter(|vector| !vector.has_no_null()) {
        match vector.plain(rows) {
            plain if plain.is_constant() => return Some(Vec::new()),
            plain => validity = NullBuffer::union(validity.as_ref(), plain.validity()),
        }
    }
    let validity = validity?;
    let mut positions = Vec::with_capacity(rows.count());
    rows.each(|row| {
        if validity.is_valid(row) {
            positions.push(row as u16);
        }
    });
    Some(positions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::push;
    use firn_base::Value;
    use firn_base::random::Random;
    use firn_vector::builder::Builder;
    use std::cmp::Ordering;

    fn random_value(random: &mut Random, representation: Representation) -> Value {
        if random.uniform(0, 5) == 0 {
            return Value::Null;
        }
        let small = random.uniform(-3, 3);
        match representation {
            Representation::Boolean => Value::Boolean(small > 0),
            Representation::Int16 => Value::SmallInt(small as i16),
            Representation::Int32 => Value::Integer(if small == 3 { i32::MIN } else { small as i32 }),
            Representation::Int64 => Value::BigInt(if small == 3 { i64::MAX } else { small }),
            Representation::Float64 => {
                Value::Double([f64::NAN, -0.0, 0.0, 1.5, -1.5, f64::INFINITY, -2.0][(small + 3) as usize])
            }
            Representation::Numeric => Value::Number(match small {
                3 => Numeric::NAN,
                -3 => Numeric::NEGATIVE_INFINITY,
                _ => Numeric::new(random.uniform(-200, 200).into(), random.uniform(0, 3) as u16).unwrap(),
            }),
            Representation::Text => {
                let texts = ["", "a", "a\u{1}", "ab", "b", "a string of many bytes", "a string"];
                Value::Text(texts[(small + 3) as usize].to_owned())
            }
            Representation::Bytes => {
                let all: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\0\xff", b"\x01", b"a\0b", b"a"];
                Value::Bytea(all[(small + 3) as usize].to_owned())
            }
            other => panic!("no values of {other:?}"),
        }
    }

    /// Random columns of random types: the order of keys is that of the values, one after the other.
    #[test]
    fn keys_have_the_order_of_values() {
        let kinds = [
            Representation::Boolean,
            Representation::Int16,
            Representation::Int32,
            Representation::Int64,
            Representation::Float64,
            Representation::Numeric,
            Representation::Text,
            Representation::Bytes,
        ];
        let seed = 7;
        let mut random = Random::seeded(seed);
        for round in 0..300 {
            let columns: Vec<(Representation, bool, bool)> = (0..random.uniform(1, 3))
                .map(|_| {
                    let kind = kinds[random.uniform(0, kinds.len() as i64 - 1) as usize];
                    (kind, random.uniform(0, 1) == 1, random.uniform(0, 1) == 1)
                })
                .collect();
            let rows: Vec<Vec<Value>> = (0..12)
                .map(|_| columns.iter().map(|(kind, ..)| random_value(&mut random, *kind)).collect())
                .collect();
            let vectors: Vec<Vector> = columns
                .iter()
                .enumerate()
                .map(|(number, (kind, ..))| {
                    let mut builder = Builder::new(*kind);
                    rows.iter().for_each(|row| push(&mut builder, &row[number], *kind));
                    builder.finish()
                })
                .collect();
            let column = |(kind, descending, nulls_first): &(Representation, bool, bool)| KeyColumn {
                class: Class::Same(*kind),
                nullable: true,
                descending: *descending,
                nulls_first: *nulls_first,
            };
            let layout = KeyLayout::new(columns.iter().map(column).collect());
            let keys = layout.keys(&vectors, Rows::all(rows.len()));
            let model = |left: &[Value], right: &[Value]| {
                columns.iter().enumerate().fold(Ordering::Equal, |order, (number, (_, descending, first))| {
                    order.then_with(|| match (&left[number], &right[number]) {
                        (Value::Null, Value::Null) => Ordering::Equal,
                        (Value::Null, _) => {
                            if *first {
                                Ordering::Less
                            } else {
                                Ordering::Greater
                            }
                        }
                        (_, Value::Null) => {
                            if *first {
                                Ordering::Greater
                            } else {
                                Ordering::Less
                            }
                        }
                        (left, right) => {
                            let order = left.compare(right).unwrap();
                            if *descending { order.reverse() } else { order }
                        }
                    })
                })
            };
            for left in 0..rows.len() {
                for right in 0..rows.len() {
                    assert_eq!(
                        keys.get(left).cmp(&keys.get(right)),
                        model(&rows[left], &rows[right]),
                        "seed {seed}, round {round}: {:?} and {:?} of {columns:?}",
                        rows[left],
                        rows[right]
                    );
                }
            }
        }
    }
}
