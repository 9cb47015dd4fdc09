//! Keys: the values of some columns of a row as one string of bits, which has SQL's equality and order.
//!
//! Two rows are equal in the columns exactly if their keys are, and one comes first exactly if its key is smaller as
//! an unsigned number (or as bytes). Grouping, joins, sorting, DISTINCT and the partitions of windows all
//! compare keys and never values.
//!
//! ```text
//! fixed, up to 128 bits          first column in the highest bits
//!   [not-NULL 1] value 8…128     one bit more only if the column may be NULL
//! bytes                          else
//!   flag 1  value                0 = NULL first, 1 = a value, 2 = NULL last
//!     integers                   big-endian, sign flipped
//!     strings                    0 as 0 ff, then 0 0
//!     numeric                    class 1, exponent 2, 38 digits as 16 bytes
//!     arrays                     (1 value | 2 for NULL)*, 0, dimensions
//!   descending                   the value's bytes inverted
//! ```
//!
//! A fixed key costs 16 bytes a row and one comparison; it is made column by column. Bytes are made row by row.

use arrow_buffer::NullBuffer;
use firn_base::{Numeric, Representation};
use firn_vector::selection::Rows;
use firn_vector::{Data, Datum, Vector};

/// A column of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyColumn {
    /// How its values are made comparable. Values of several representations may have one class.
    pub class: Class,
    /// Whether it may be NULL.
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
}

/// How keys of some columns are made.
#[derive(Clone, Debug)]
pub struct KeyLayout {
    columns: Box<[KeyColumn]>,
    /// The width of fixed keys.
    fixed: Option<u32>,
}

/// The keys of some rows, in their order, unselected rows left out.
#[derive(Clone, Debug)]
pub enum Keys {
    /// Of up to 128 bits.
    Fixed(Vec<u128>),
    /// Of any length, one after the other, and where each ends.
    Bytes(Vec<u8>, Vec<usize>),
}

impl KeyLayout {
    /// A layout of these columns.
    pub fn new(columns: Vec<KeyColumn>) -> KeyLayout {
        let bits = |column: &KeyColumn| Some(column.class.bits()? + u32::from(column.nullable));
        let fixed = columns.iter().map(bits).sum::<Option<u32>>().filter(|bits| *bits <= 128);
        KeyLayout { columns: columns.into(), fixed }
    }

    /// How many columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there are no columns: all rows are equal.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// No keys of this layout.
    pub fn none(&self) -> Keys {
        match self.fixed {
            Some(_) => Keys::Fixed(Vec::new()),
            None => Keys::Bytes(Vec::new(), Vec::new()),
        }
    }

    /// The keys of rows; a vector for each column.
    pub fn keys(&self, vectors: &[Vector], rows: Rows<'_>) -> Keys {
        assert_eq!(vectors.len(), self.columns.len());
        match self.fixed {
            Some(_) => {
                let mut keys = vec![0u128; rows.count()];
                for (column, vector) in self.columns.iter().zip(vectors) {
                    put_fixed(column, &vector.plain(rows), rows, &mut keys);
                }
                Keys::Fixed(keys)
            }
            None => {
                let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(rows.count()));
                rows.each(|row| {
                    for (column, vector) in self.columns.iter().zip(vectors) {
                        put_bytes(column, vector.datum(row), &mut bytes);
                    }
                    ends.push(bytes.len());
                });
                Keys::Bytes(bytes, ends)
            }
        }
    }
}

/// Appends a column's bits to each key.
fn put_fixed(column: &KeyColumn, vector: &Vector, rows: Rows<'_>, keys: &mut [u128]) {
    let width = column.class.bits().expect("the key has a fixed width");
    let all = if width == 128 { u128::MAX } else { (1 << width) - 1 };
    let invert = if column.descending { all } else { 0 };
    let mask = if vector.is_constant() { 0 } else { usize::MAX };
    // A key of 128 bits is alone.
    let shift = |key: u128, bits: u32| if bits == 128 { 0 } else { key << bits };
    macro_rules! put {
        ($values:expr, |$value:ident| $code:expr) => {{
            let (values, mut place) = ($values, 0);
            rows.each(|row| {
                let $value = values[row & mask];
                keys[place] = shift(keys[place], width) | (($code) ^ invert);
                place += 1;
            });
        }};
    }
    let is_wide = column.class == Class::Integer;
    let is_float = column.class == Class::Float;
    if column.nullable {
        keys.iter_mut().for_each(|key| *key <<= 1);
    }
    let signed = |value: i64, width: u32| u128::from((value as u64) ^ (1 << (width - 1))) & all;
    match vector.data().expect("it is plain") {
        Data::Boolean(values) => {
            let mut place = 0;
            rows.each(|row| {
                let code = u128::from(values.value(row & mask));
                keys[place] = shift(keys[place], width) | (code ^ invert);
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
        let is_value = |row| if vector.is_null(row) { Err(row) } else { Ok(()) };
        debug_assert_eq!(rows.try_each(is_value), Ok(()), "the plan says that there is no NULL");
        return;
    }
    // The flag stands above the value; NULLs have no value.
    let (of_null, of_value) = if column.nulls_first { (0, 1) } else { (1, 0) };
    let mut place = 0;
    if vector.has_no_null() {
        keys.iter_mut().for_each(|key| *key |= of_value << width);
        return;
    }
    rows.each(|row| {
        keys[place] = match vector.is_null(row) {
            true => keys[place] & !all | of_null << width,
            false => keys[place] | of_value << width,
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

/// One key, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key<'a> {
    /// Of up to 128 bits.
    Fixed(u128),
    /// Of any length.
    Bytes(&'a [u8]),
}

impl Keys {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Keys::Fixed(keys) => keys.len(),
            Keys::Bytes(_, ends) => ends.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    #[inline]
    pub fn get(&self, number: usize) -> Key<'_> {
        match self {
            Keys::Fixed(keys) => Key::Fixed(keys[number]),
            Keys::Bytes(bytes, ends) => {
                let start = if number == 0 { 0 } else { ends[number - 1] };
                Key::Bytes(&bytes[start..ends[number]])
            }
        }
    }

    /// Appends a key of the same layout.
    pub fn push(&mut self, key: Key<'_>) {
        match (self, key) {
            (Keys::Fixed(keys), Key::Fixed(key)) => keys.push(key),
            (Keys::Bytes(bytes, ends), Key::Bytes(key)) => {
                bytes.extend_from_slice(key);
                ends.push(bytes.len());
            }
            _ => panic!("keys of one layout are kept together"),
        }
    }

    /// Appends all keys of another one of the same layout.
    pub fn append(&mut self, other: &Keys) {
        match (self, other) {
            (Keys::Fixed(keys), Keys::Fixed(other)) => keys.extend_from_slice(other),
            (Keys::Bytes(bytes, ends), Keys::Bytes(others, other_ends)) => {
                let start = bytes.len();
                bytes.extend_from_slice(others);
                ends.extend(other_ends.iter().map(|end| start + end));
            }
            _ => panic!("keys of one layout are kept together"),
        }
    }

    /// The hash of each.
    pub fn hashes(&self) -> Vec<u64> {
        match self {
            Keys::Fixed(keys) => keys.iter().map(|key| hash_word(*key)).collect(),
            Keys::Bytes(bytes, ends) => {
                let mut start = 0;
                let hash = |end: &usize| {
                    let hash = hash_bytes(&bytes[start..*end]);
                    start = *end;
                    hash
                };
                ends.iter().map(hash).collect()
            }
        }
    }

    /// Appends the image of some keys, for a temporary file.
    pub fn write(&self, numbers: &[u32], out: &mut Vec<u8>) {
        match self {
            Keys::Fixed(keys) => {
                numbers.iter().for_each(|number| out.extend(keys[*number as usize].to_le_bytes()));
            }
            Keys::Bytes(..) => {
                for number in numbers {
                    let Key::Bytes(key) = self.get(*number as usize) else { panic!("they are bytes") };
                    out.extend((key.len() as u32).to_le_bytes());
                    out.extend_from_slice(key);
                }
            }
        }
    }

    /// So many keys from an image that [`Keys::write`] has written; `self` is an empty one of their layout.
    pub fn read(mut self, count: usize, image: &mut &[u8]) -> Keys {
        for _ in 0..count {
            match &mut self {
                Keys::Fixed(keys) => {
                    let (key, rest) = image.split_first_chunk().expect("it was written");
                    keys.push(u128::from_le_bytes(*key));
                    *image = rest;
                }
                Keys::Bytes(bytes, ends) => {
                    let (length, rest) = image.split_first_chunk().expect("it was written");
                    let (key, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
                    bytes.extend_from_slice(key);
                    ends.push(bytes.len());
                    *image = rest;
                }
            }
        }
        self
    }

    /// Bytes of memory that they take.
    pub fn memory(&self) -> usize {
        match self {
            Keys::Fixed(keys) => keys.capacity() * 16,
            Keys::Bytes(bytes, ends) => bytes.capacity() + ends.capacity() * 8,
        }
    }
}

const K1: u64 = 0x9e37_79b9_7f4a_7c15;
const K2: u64 = 0xd6e8_feb8_6659_fd93;

/// The product's halves, folded: each bit of the factors reaches all bits of the hash.
#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ (product >> 64) as u64
}

#[inline]
fn hash_word(key: u128) -> u64 {
    fold(fold(key as u64 ^ K1, K2) ^ (key >> 64) as u64, K1)
}

fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64 ^ K1;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), K2);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash ^ u64::from_le_bytes(last), K1)
}

/// A set of keys, each with a number from 0 in the order in which they came.
///
/// Open addressing with linear probing. A slot has half of the hash and the number of the key, 8 bytes, and the table is at
/// most half full: finding a key costs one cache line of the slots, and one of the keys where it is there.
pub struct KeySet {
    slots: Vec<(u32, u32)>,
    keys: Keys,
}

const FREE: u32 = u32::MAX;

impl KeySet {
    /// An empty set of keys of a layout.
    pub fn new(layout: &KeyLayout) -> KeySet {
        KeySet { slots: vec![(0, FREE); 16], keys: layout.none() }
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys, by their numbers.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Adds keys that are not there. `numbers` gets the number of each; a key that is new has that of the set's length before.
    pub fn insert(&mut self, keys: &Keys, numbers: &mut Vec<u32>) {
        self.reserve(keys.len());
        for (number, hash) in keys.hashes().into_iter().enumerate() {
            let key = keys.get(number);
            let found = self.search(key, hash);
            numbers.push(match found {
                Ok(number) => number,
                Err(slot) => {
                    let number = self.keys.len() as u32;
                    assert!(number < FREE, "numbers of keys have 32 bits");
                    self.slots[slot] = (hash as u32, number);
                    self.keys.push(key);
                    number
                }
            });
        }
    }

    /// The number of a key, if it is there.
    pub fn find(&self, key: Key<'_>, hash: u64) -> Option<u32> {
        self.search(key, hash).ok()
    }

    #[inline]
    fn search(&self, key: Key<'_>, hash: u64) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = (hash >> 32) as usize & mask;
        loop {
            let (tag, number) = self.slots[slot];
            if number == FREE {
                return Err(slot);
            }
            if tag == hash as u32 && self.keys.get(number as usize) == key {
                return Ok(number);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn reserve(&mut self, more: usize) {
        let wanted = ((self.keys.len() + more) * 2).next_power_of_two();
        if wanted <= self.slots.len() {
            return;
        }
        self.slots = vec![(0, FREE); wanted];
        for (number, hash) in self.keys.hashes().into_iter().enumerate() {
            let mut slot = (hash >> 32) as usize & (wanted - 1);
            while self.slots[slot].1 != FREE {
                slot = (slot + 1) & (wanted - 1);
            }
            self.slots[slot] = (hash as u32, number as u32);
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.slots.len() * 8 + self.keys.memory()
    }
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

    #[test]
    fn a_set_numbers_keys_as_they_come() {
        let layout = KeyLayout::new(vec![KeyColumn::equal(Representation::Int64, false)]);
        let mut random = Random::seeded(3);
        let (mut set, mut model) = (KeySet::new(&layout), Vec::<i64>::new());
        for _ in 0..40 {
            let values: Vec<i64> = (0..50).map(|_| random.uniform(0, 700)).collect();
            let vector = Vector::flat(Representation::Int64, Data::Int64(values.clone().into()), None);
            let mut numbers = Vec::new();
            set.insert(&layout.keys(&[vector], Rows::all(50)), &mut numbers);
            for (value, number) in values.iter().zip(numbers) {
                let expected = model.iter().position(|other| other == value).unwrap_or_else(|| {
                    model.push(*value);
                    model.len() - 1
                });
                assert_eq!(number as usize, expected);
            }
        }
        assert_eq!(set.len(), model.len());
    }
}
