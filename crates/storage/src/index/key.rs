//! Keys: the columns of a row as one byte string whose order is the index's order.
//!
//! | representation | bytes |
//! |---|---|
//! | boolean | 1: 0 or 1 |
//! | integers, date, time, timestamp(tz) | 2, 4 or 8, big-endian, sign bit inverted |
//! | oid | 4, big-endian |
//! | decimal | the unscaled value, 8 or 16, big-endian, sign bit inverted (one column has one scale) |
//! | numeric | 2 for the sign and the power of ten of the first digit, then the digits: see [`encode_numeric`] |
//! | floats | 4 or 8: PostgreSQL's order, where -0 = 0 and NaN is the largest |
//! | text, bytes | the bytes, 00 as 01 01 and 01 as 01 02, then 00 |
//! | padded text | as text, without trailing blanks, which comparisons ignore |
//! | uuid | its 16 bytes |
//! | interval | 12: nanoseconds with months of 30 days and days of 24 hours, as PostgreSQL compares |
//! | list | 01 and the bytes of each element, 02 for NULL, then 00, the number of dimensions, their lengths, their bounds |
//!
//! A nullable column begins with a marker: 01 before a value; 00 or 02 is NULL, first or last. A descending
//! column has the bytes of its value inverted, but not the marker, since NULLS FIRST is a place in the index.
//!
//! Invariant: no key of an index is a prefix of another. Invariant: two keys are equal exactly if PostgreSQL
//! calls the values equal. So `1 mon` and `30 days` have one key, as have 1.0 and 1.00, and a key cannot be
//! decoded into its value.

use super::KeyBuffer;
use super::spec::IndexColumn;
use firn_base::array::ArrayImage;
use firn_base::types::Width;
use firn_base::{Cell, Numeric, Representation};

const NULL_FIRST: u8 = 0;
const VALUE: u8 = 1;
const NULL_LAST: u8 = 2;

/// Ends a string; it is the lowest byte, so `a` sorts before `ab`.
const END: u8 = 0;
/// Begins the two bytes that represent [`END`] or this byte.
const ESCAPE: u8 = 1;

const INTERVAL_BYTES: usize = 12;

/// The encoding of an index's columns as keys, prepared once.
pub(super) struct Codec {
    columns: Box<[(IndexColumn, Option<Word>)]>,
}

/// A column whose value is an integer of up to 8 bytes that cannot be NULL, as most key columns are. The
/// value is shifted to the top of a word and combined with `flip`; its first `length` bytes are the key's.
#[derive(Clone, Copy)]
struct Word {
    shift: u8,
    length: u8,
    flip: u64,
}

impl Word {
    fn of(column: &IndexColumn) -> Option<Word> {
        use Representation::{Date, Decimal, Int16, Int32, Int64, Time, Timestamp, TimestampTz};
        let Width::Fixed(length @ ..=8) = column.representation.width() else { return None };
        let is_integer = matches!(
            column.representation,
            Int16 | Int32 | Int64 | Date | Time | Timestamp | TimestampTz | Decimal { .. }
        );
        let sign = 1 << 63;
        (is_integer && !column.nullable).then_some(Word {
            shift: 64 - 8 * length,
            length,
            flip: if column.descending { !sign } else { sign },
        })
    }
}

impl Codec {
    pub(super) fn new(columns: &[IndexColumn]) -> Codec {
        Codec { columns: columns.iter().map(|column| (*column, Word::of(column))).collect() }
    }

    /// Whether every column is an ascending integer that is not nullable: its bytes, the highest first and
    /// with the sign bit inverted.
    pub(super) fn is_plain(&self) -> bool {
        self.columns.iter().all(|(_, word)| word.is_some_and(|word| word.flip == 1 << 63))
    }

    /// The number of bytes of a key, if it is a number of [`Packed`]: plain, and not too long.
    pub(super) fn packed_width(&self) -> Option<usize> {
        let bytes = |(_, word): &(IndexColumn, Option<Word>)| word.map_or(0, |word| usize::from(word.length));
        let width = self.columns.iter().map(bytes).sum();
        (self.is_plain() && width <= size_of::<Packed>()).then_some(width)
    }

    /// Appends the first `count` columns to a key, in order.
    #[inline(always)]
    pub(super) fn encode<'c>(
        &self,
        mut cell: impl FnMut(&IndexColumn) -> Cell<'c>,
        count: usize,
        key: &mut KeyBuffer,
    ) {
        for (column, word) in &self.columns[..count] {
            let cell = &cell(column);
            match word {
                Some(word) => {
                    let bytes = (cell.word() << word.shift ^ word.flip).to_be_bytes();
                    key.push_word(bytes, usize::from(word.length));
                }
                None => encode(column, cell, key),
            }
        }
    }
}

/// A plain key as a number, in its lowest bytes, the highest first.
pub(crate) type Packed = u128;

/// A plain key as a number.
#[inline]
pub(super) fn packed(key: &[u8]) -> Packed {
    let mut bytes = [0; size_of::<Packed>()];
    let from = bytes.len() - key.len();
    bytes[from..].copy_from_slice(key);
    Packed::from_be_bytes(bytes)
}

/// Appends a column's value of `bytes` bytes to a plain key, which is a number. The lowest bytes of the word
/// count.
#[inline(always)]
pub(crate) fn append_packed(key: &mut Packed, word: u64, bytes: usize) {
    let shift = 64 - 8 * bytes;
    *key = *key << (8 * bytes) | Packed::from((word << shift ^ 1 << 63) >> shift);
}

/// The first 8 bytes of a value's key as a number; for numbers of 16 bytes their first [56
/// bits](wide_summary). If the numbers of two values differ, the values have the same order. `None` for NULL.
pub fn summary(representation: impl Into<Representation>, cell: &Cell<'_>) -> Option<u64> {
    let representation = representation.into();
    if cell.is_null() {
        return None;
    }
    if is_wide_number(representation) {
        let [low, high] = wide(cell);
        return Some(wide_summary([low, high]));
    }
    let mut key = KeyBuffer::new();
    encode_value(representation, cell, &mut key);
    Some(first_bytes(&key))
}

/// The first 8 bytes as a number, padded with zeros.
fn first_bytes(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
}

/// Whether values of a type with the same [`summary`] are equal.
pub fn summary_is_exact(representation: impl Into<Representation>) -> bool {
    let representation = representation.into();
    matches!(representation.width(), Width::Bit | Width::Fixed(..=8))
}

/// Whether summaries decide comparisons of a column exactly. For floats they do not, since a comparison may
/// distinguish zeros of both signs and NaNs.
pub fn comparisons_are_exact(representation: impl Into<Representation>) -> bool {
    let representation = representation.into();
    summary_is_exact(representation)
        && !matches!(representation, Representation::Float32 | Representation::Float64)
}

/// Whether values of a type are numbers of 16 bytes.
fn is_wide_number(representation: Representation) -> bool {
    matches!(representation, Representation::Decimal { .. }) && representation.width() == Width::Fixed(16)
}

/// Numbers below two to this power have a summary of their own.
const EXACT: u32 = 56;

/// The summary of a number of 16 bytes, its lower word first: small numbers themselves, otherwise the length
/// and the first bits, as in a floating-point number. So ranges of large numbers share one, none wider than
/// 2⁻⁵⁵ of its size.
#[inline]
pub(crate) fn wide_summary([low, high]: [u64; 2]) -> u64 {
    let number = (u128::from(high) << 64 | u128::from(low)) as i128;
    let of_magnitude = |magnitude: u128| {
        let bits = u128::BITS - magnitude.leading_zeros();
        let Some(left_out) = bits.checked_sub(EXACT).filter(|left_out| *left_out > 0) else {
            return magnitude as u64;
        };
        // The first bit is always set, so each length continues where the one before it ends.
        (u64::from(left_out) << (EXACT - 1)) + (magnitude >> left_out) as u64
    };
    if number < 0 {
        !(1 << 63 | of_magnitude(!number as u128))
    } else {
        1 << 63 | of_magnitude(number as u128)
    }
}

/// The least and the greatest number whose summaries are in this range; `None` if there is none.
pub(crate) fn wide_numbers(first: u64, last: u64) -> Option<[i128; 2]> {
    // The least and the greatest of the magnitudes with a summary, if they exist.
    let magnitudes = |summary: u64| {
        let left_out = (summary >> (EXACT - 1)).saturating_sub(1) as u32;
        if left_out > i128::BITS - 1 - EXACT {
            return None;
        }
        let begins = u128::from(summary - (u64::from(left_out) << (EXACT - 1)));
        Some([begins << left_out, ((begins + 1) << left_out) - 1].map(|magnitude| magnitude as i128))
    };
    let low = match first >> 63 {
        1 => magnitudes(first & !(1 << 63))?[0],
        _ => magnitudes(!first & !(1 << 63)).map_or(i128::MIN, |[_, greatest]| !greatest),
    };
    let high = match last >> 63 {
        1 => magnitudes(last & !(1 << 63)).map_or(i128::MAX, |[_, greatest]| greatest),
        _ => !magnitudes(!last & !(1 << 63))?[0],
    };
    (low <= high).then_some([low, high])
}

/// Appends one column to a key.
fn encode(column: &IndexColumn, cell: &Cell<'_>, key: &mut KeyBuffer) {
    if column.nullable {
        if cell.is_null() {
            key.push(if column.nulls_first { NULL_FIRST } else { NULL_LAST });
            return;
        }
        key.push(VALUE);
    }
    let start = key.len();
    encode_value(column.representation, cell, key);
    if column.descending {
        for byte in &mut key[start..] {
            *byte = !*byte;
        }
    }
}

fn encode_value(representation: Representation, cell: &Cell<'_>, key: &mut KeyBuffer) {
    match representation {
        Representation::Boolean => key.push(u8::from(cell.word() != 0)),
        Representation::Int16 => key.extend_from_slice(&(cell.word() as u16 ^ 1 << 15).to_be_bytes()),
        Representation::Int32 | Representation::Date => {
            key.extend_from_slice(&(cell.word() as u32 ^ 1 << 31).to_be_bytes())
        }
        Representation::Int64
        | Representation::Time
        | Representation::Timestamp
        | Representation::TimestampTz => key.extend_from_slice(&(cell.word() ^ 1 << 63).to_be_bytes()),
        Representation::Decimal { .. } if representation.width() == Width::Fixed(8) => {
            key.extend_from_slice(&(cell.word() ^ 1 << 63).to_be_bytes())
        }
        Representation::Decimal { .. } => {
            let [low, high] = wide(cell);
            key.extend_from_slice(&(high ^ 1 << 63).to_be_bytes());
            key.extend_from_slice(&low.to_be_bytes());
        }
        Representation::Oid => key.extend_from_slice(&(cell.word() as u32).to_be_bytes()),
        Representation::Numeric => encode_numeric(cell.as_numeric(), key),
        Representation::List(element) => encode_array(cell.as_array(*element), *element, key),
        Representation::Record => panic!("records are no columns of an index"),
        Representation::Float32 => {
            key.extend_from_slice(&ordered_real(f32::from_bits(cell.word() as u32)).to_be_bytes())
        }
        Representation::Float64 => {
            key.extend_from_slice(&ordered_double(f64::from_bits(cell.word())).to_be_bytes())
        }
        Representation::Text | Representation::Bytes => encode_string(cell.bytes(), key),
        Representation::PaddedText => {
            let bytes = cell.bytes();
            let length = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
            encode_string(&bytes[..length], key);
        }
        Representation::Uuid => {
            for word in wide(cell) {
                key.extend_from_slice(&word.to_le_bytes());
            }
        }
        Representation::Interval => {
            let [low, high] = wide(cell);
            let (months, days) = (i128::from(low as u32 as i32), i128::from((low >> 32) as u32 as i32));
            let span = (months * 30 + days) * 86_400_000_000_000 + i128::from(high as i64);
            // 31 bits of months make less than 2^83 nanoseconds; 96 bits hold that with its sign.
            let biased = (span + (1 << 95)) as u128;
            key.extend_from_slice(&biased.to_be_bytes()[16 - INTERVAL_BYTES..]);
        }
    }
}

/// The header before the digits of a numeric. There is one for each power of ten of the first digit of a
/// positive number. A negative number has the mirrored one, so that a larger power is lower.
mod header {
    pub const NEGATIVE_INFINITY: u16 = 0;
    pub const ZERO: u16 = 0x8000;
    pub const INFINITY: u16 = 0xfffe;
    pub const NAN: u16 = 0xffff;

    /// The header of a positive number whose first digit counts 10^exponent.
    pub fn positive(exponent: i32) -> u16 {
        (i32::from(ZERO) + 1 + exponent + i32::from(firn_base::numeric::MAX_SCALE)) as u16
    }

    /// Whether a terminator ends the digits that follow.
    pub fn has_digits(header: u16) -> bool {
        !matches!(header, NEGATIVE_INFINITY | ZERO | INFINITY | NAN)
    }
}

/// Appends a numeric: the header, big-endian; for numbers other than zero the digits from the first one on,
/// without zeros at the end, two in a byte, which is incremented by one; and 00. All bytes of a negative
/// number are inverted.
fn encode_numeric(value: Numeric, key: &mut KeyBuffer) {
    let mut special = |header: u16| key.extend_from_slice(&header.to_be_bytes());
    let Some((unscaled, scale)) = value.number() else {
        return special(match value.sign() {
            None => header::NAN,
            Some(1) => header::INFINITY,
            Some(_) => header::NEGATIVE_INFINITY,
        });
    };
    let mut magnitude = unscaled.unsigned_abs();
    let Some(digits) = magnitude.checked_ilog10() else { return special(header::ZERO) };
    let start = key.len();
    key.extend_from_slice(&header::positive(digits as i32 - i32::from(scale)).to_be_bytes());
    // An even number of digits, so that pairs begin at the first one.
    if digits.is_multiple_of(2) {
        magnitude *= 10;
    }
    let mut pairs = [0; 20];
    let mut first = pairs.len();
    while magnitude > 0 {
        first -= 1;
        pairs[first] = (magnitude % 100) as u8 + 1;
        magnitude /= 100;
    }
    let last = pairs.iter().rposition(|pair| *pair > 1).expect("the number is not zero");
    key.extend_from_slice(&pairs[first..=last]);
    key.push(END);
    if unscaled < 0 {
        for byte in &mut key[start..] {
            *byte = !*byte;
        }
    }
}

/// The [`summary`] of a numeric.
pub(crate) fn numeric_summary(value: Numeric) -> u64 {
    let mut key = KeyBuffer::new();
    encode_numeric(value, &mut key);
    first_bytes(&key)
}

/// Appends an array: its elements, each after a marker, with [`NULL_LAST`] for NULL; [`END`]; its dimensions.
fn encode_array(array: ArrayImage<'_>, element: Representation, key: &mut KeyBuffer) {
    for position in 0..array.len() {
        match array.cell(position) {
            Cell::Null => key.push(NULL_LAST),
            cell => {
                key.push(VALUE);
                encode_value(element, &cell, key);
            }
        }
    }
    key.push(END);
    let dimensions = array.dimensions();
    key.push(dimensions.len() as u8);
    for dimension in array.dimensions() {
        key.extend_from_slice(&dimension.length.to_be_bytes());
    }
    for dimension in dimensions {
        key.extend_from_slice(&(dimension.lower as u32 ^ 1 << 31).to_be_bytes());
    }
}

/// The number of bytes of a value at the beginning of a key; `mask` is what they are inverted with.
fn value_length(representation: Representation, key: &[u8], mask: u8) -> usize {
    let through = |end: u8, key: &[u8]| {
        1 + key.iter().position(|&byte| byte ^ mask == end).expect("a full key ends its strings")
    };
    match (representation, representation.width()) {
        (Representation::Boolean, _) => 1,
        (Representation::Interval, _) => INTERVAL_BYTES,
        (_, Width::Fixed(bytes)) => usize::from(bytes),
        (Representation::Numeric, _) => {
            let header = u16::from_be_bytes([key[0] ^ mask, key[1] ^ mask]);
            let end = if header < header::ZERO { !END } else { END };
            2 + if header::has_digits(header) { through(end, &key[2..]) } else { 0 }
        }
        (Representation::List(element), _) => {
            let mut length = 0;
            loop {
                let marker = key[length] ^ mask;
                length += 1;
                match marker {
                    END => break,
                    VALUE => length += value_length(*element, &key[length..], mask),
                    _ => {}
                }
            }
            length + 1 + usize::from(key[length] ^ mask) * 8
        }
        (_, Width::Bit | Width::View) => through(END, key),
    }
}

/// The two words of a 16-byte cell.
fn wide(cell: &Cell<'_>) -> [u64; 2] {
    match cell {
        Cell::Wide(words) => *words,
        other => panic!("{other:?} is not a 16-byte cell"),
    }
}

fn encode_string(bytes: &[u8], key: &mut KeyBuffer) {
    let mut rest = bytes;
    // Bytes 0 and 1 are very rare in text, so mostly this copies it in one piece.
    while let Some(position) = rest.iter().position(|&byte| byte <= ESCAPE) {
        key.extend_from_slice(&rest[..position]);
        key.extend_from_slice(&[ESCAPE, rest[position] + 1]);
        rest = &rest[position + 1..];
    }
    key.extend_from_slice(rest);
    key.push(END);
}

/// The bits of a real such that their unsigned order is PostgreSQL's.
pub(crate) fn ordered_real(value: f32) -> u32 {
    let value = if value.is_nan() { f32::NAN.abs() } else { value + 0.0 }; // -0 + 0 = 0
    let bits = value.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The bits of a double such that their unsigned order is PostgreSQL's.
pub(crate) fn ordered_double(value: f64) -> u64 {
    let value = if value.is_nan() { f64::NAN.abs() } else { value + 0.0 };
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The least and the greatest double whose [ordered bits](ordered_double) are in this range; `None` if there
/// is none.
pub(crate) fn doubles_within(first: u64, last: u64) -> Option<[f64; 2]> {
    let marks = [f64::NEG_INFINITY, 0.0, f64::INFINITY, f64::NAN].map(ordered_double);
    let double = |ordered: u64| f64::from_bits(if ordered >> 63 == 1 { ordered ^ 1 << 63 } else { !ordered });
    Some(floats_within(first, last, marks)?.map(double))
}

/// The least and the greatest real whose [ordered bits](ordered_real) are in this range, likewise.
pub(crate) fn reals_within(first: u32, last: u32) -> Option<[f32; 2]> {
    let marks = [f32::NEG_INFINITY, 0.0, f32::INFINITY, f32::NAN].map(|mark| u64::from(ordered_real(mark)));
    let real = |ordered: u64| {
        let ordered = ordered as u32;
        f32::from_bits(if ordered >> 31 == 1 { ordered ^ 1 << 31 } else { !ordered })
    };
    Some(floats_within(first.into(), last.into(), marks)?.map(real))
}

/// The least and the greatest ordered bits in this range that some float has. There are unused bits beyond
/// the ends, between infinity and NaN, and in the place of -0.
fn floats_within(first: u64, last: u64, marks: [u64; 4]) -> Option<[u64; 2]> {
    let [minus_infinity, zero, infinity, nan] = marks;
    let low = match first.max(minus_infinity) {
        first if first > infinity => nan,
        first if first == zero - 1 => zero,
        first => first,
    };
    let high = match last.min(nan) {
        last if last > infinity && last < nan => infinity,
        last if last == zero - 1 => zero - 2,
        last => last,
    };
    (first <= nan && low <= high).then_some([low, high])
}

/// Whether a full key of these columns contains a NULL. Walks over the columns before it.
pub(super) fn holds_null(columns: &[IndexColumn], key: &[u8]) -> bool {
    let mut rest = key;
    for column in columns {
        if column.nullable {
            if rest[0] != VALUE {
                return true;
            }
            rest = &rest[1..];
        }
        let length = value_length(column.representation, rest, if column.descending { u8::MAX } else { 0 });
        rest = &rest[length..];
    }
    debug_assert!(rest.is_empty(), "a full key ends with its columns");
    false
}

/// The least byte string above all that begin with `prefix`; `None` if there is none.
pub(super) fn after(prefix: &[u8]) -> Option<KeyBuffer> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut after = KeyBuffer::from_slice(&prefix[..=last]);
    after[last] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::array::Dimension;
    use firn_base::random::Random;
    use firn_base::{ArrayValue, ColumnId, Interval, Stored, Value};
    use std::cmp::Ordering;

    const TYPES: [Representation; 22] = [
        Representation::Boolean,
        Representation::Int16,
        Representation::Int32,
        Representation::Int64,
        Representation::Float32,
        Representation::Float64,
        Representation::Decimal { precision: 12, scale: 2 },
        Representation::Decimal { precision: 38, scale: 2 },
        Representation::Text,
        Representation::PaddedText,
        Representation::Bytes,
        Representation::Date,
        Representation::Time,
        Representation::Timestamp,
        Representation::TimestampTz,
        Representation::Interval,
        Representation::Uuid,
        Representation::Oid,
        Representation::Numeric,
        Representation::List(&Representation::Int32),
        Representation::List(&Representation::Text),
        Representation::List(&Representation::Numeric),
    ];

    fn column(representation: Representation) -> IndexColumn {
        IndexColumn {
            column: ColumnId(0),
            representation,
            nullable: false,
            descending: false,
            nulls_first: false,
        }
    }

    /// Small numbers, extremes, and all others, with frequent duplicates.
    fn integer(random: &mut Random, bits: u32) -> i64 {
        let shift = 64 - bits;
        match random.uniform(0, 5) {
            0 => i64::MIN >> shift,
            1 => i64::MAX >> shift,
            2 => (random.next_u64() as i64) >> shift,
            _ => random.uniform(-3, 3),
        }
    }

    fn bytes(random: &mut Random) -> Vec<u8> {
        const ALPHABET: [u8; 8] = [0, 1, 2, b' ', b'a', b'b', 0x7f, 0xff];
        (0..random.uniform(0, 4)).map(|_| ALPHABET[random.uniform(0, 7) as usize]).collect()
    }

    fn float(random: &mut Random) -> f64 {
        const SPECIAL: [f64; 8] =
            [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, -1.5];
        match random.uniform(0, 1) {
            0 => SPECIAL[random.uniform(0, 7) as usize],
            _ => random.uniform(-1000, 1000) as f64 / 8.0,
        }
    }

    /// Small ones with zeros at their end, large ones, NaN and infinities.
    fn numeric(random: &mut Random) -> Numeric {
        let (small, zeros) = (i128::from(random.uniform(-30, 30)), random.uniform(0, 3) as u32);
        match random.uniform(0, 7) {
            0 => [Numeric::NAN, Numeric::INFINITY, Numeric::NEGATIVE_INFINITY][random.uniform(0, 2) as usize],
            1 => Numeric::from_parts(i128::from(random.next_u64() as i64), random.uniform(0, 40) as u16),
            2 => Numeric::from_parts(
                small * 10i128.pow(random.uniform(0, 36) as u32),
                random.uniform(0, 16_383) as u16,
            ),
            _ => Numeric::from_parts(small * 10i128.pow(zeros), zeros as u16),
        }
    }

    fn array(element: Representation, random: &mut Random) -> ArrayValue {
        let value = |random: &mut Random| {
            if random.uniform(0, 3) == 0 { Value::Null } else { random_value(element, random) }
        };
        let list: Vec<Value> = (0..random.uniform(0, 4)).map(|_| value(random)).collect();
        let length = list.len() as u32;
        let dimension = |length, lower: i64| Dimension { length, lower: lower as i32 };
        let shape = match random.uniform(0, 3) {
            _ if length == 0 => Vec::new(),
            0 => vec![dimension(length, random.uniform(-1, 1))],
            1 => vec![dimension(length, 1), dimension(1, random.uniform(0, 1))],
            2 if length.is_multiple_of(2) => vec![dimension(2, 1), dimension(length / 2, 1)],
            _ => vec![dimension(length, 1)],
        };
        ArrayValue::new(shape, list)
    }

    fn random_value(representation: Representation, random: &mut Random) -> Value {
        match representation {
            Representation::Boolean => Value::Boolean(random.uniform(0, 1) == 1),
            Representation::Int16 => Value::SmallInt(integer(random, 16) as i16),
            Representation::Int32 => Value::Integer(integer(random, 32) as i32),
            Representation::Int64 => Value::BigInt(integer(random, 64)),
            Representation::Float32 => Value::Real(float(random) as f32),
            Representation::Float64 => Value::Double(float(random)),
            Representation::Decimal { precision, scale } => {
                let small = i128::from(integer(random, 60));
                let unscaled = if precision > 18 { small << random.uniform(0, 60) } else { small };
                Value::Numeric { unscaled, scale }
            }
            Representation::Text | Representation::PaddedText => {
                Value::Text(bytes(random).into_iter().map(|byte| byte as char).collect())
            }
            Representation::Bytes => Value::Bytea(bytes(random)),
            Representation::Date => Value::Date(integer(random, 32) as i32),
            Representation::Time => Value::Time(integer(random, 64)),
            Representation::Timestamp => Value::Timestamp(integer(random, 64)),
            Representation::TimestampTz => Value::TimestampTz(integer(random, 64)),
            Representation::Interval => Value::Interval(Interval {
                months: integer(random, 32) as i32,
                days: (integer(random, 32) as i32).wrapping_mul(if random.uniform(0, 1) == 0 {
                    1
                } else {
                    30
                }),
                nanoseconds: integer(random, 64) / 1000 * 1000,
            }),
            Representation::Uuid => {
                let mut uuid = [0; 16];
                uuid[random.uniform(0, 15) as usize] = random.next_u64() as u8;
                Value::Uuid(uuid)
            }
            Representation::Oid => Value::Oid(integer(random, 32) as u32),
            Representation::Numeric => Value::Number(numeric(random)),
            Representation::List(element) => Value::Array(array(*element, random)),
            Representation::Record => panic!("no column holds records"),
        }
    }

    /// PostgreSQL's order of two values of a type, written from its manual and not from the codec.
    fn compare(representation: Representation, a: &Value, b: &Value) -> Ordering {
        fn floats(a: f64, b: f64) -> Ordering {
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        let span = |interval: &Interval| {
            let days = i128::from(interval.months) * 30 + i128::from(interval.days);
            days * 24 * 3_600_000_000_000 + i128::from(interval.nanoseconds)
        };
        match (a, b) {
            (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
            (Value::SmallInt(a), Value::SmallInt(b)) => a.cmp(b),
            (Value::Integer(a), Value::Integer(b)) | (Value::Date(a), Value::Date(b)) => a.cmp(b),
            (Value::BigInt(a), Value::BigInt(b))
            | (Value::Time(a), Value::Time(b))
            | (Value::Timestamp(a), Value::Timestamp(b))
            | (Value::TimestampTz(a), Value::TimestampTz(b)) => a.cmp(b),
            (Value::Real(a), Value::Real(b)) => floats(f64::from(*a), f64::from(*b)),
            (Value::Double(a), Value::Double(b)) => floats(*a, *b),
            (Value::Numeric { unscaled: a, .. }, Value::Numeric { unscaled: b, .. }) => a.cmp(b),
            (Value::Text(a), Value::Text(b)) if matches!(representation, Representation::PaddedText) => {
                a.trim_end_matches(' ').cmp(b.trim_end_matches(' '))
            }
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::Bytea(a), Value::Bytea(b)) => a.cmp(b),
            (Value::Interval(a), Value::Interval(b)) => span(a).cmp(&span(b)),
            (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
            (Value::Oid(a), Value::Oid(b)) => a.cmp(b),
            // Both are tested against PostgreSQL elsewhere.
            (Value::Number(a), Value::Number(b)) => a.cmp(b),
            (Value::Array(a), Value::Array(b)) => {
                let Representation::List(element) = representation else { panic!("arrays are of lists") };
                a.compare(b, |a, b| compare(*element, a, b))
            }
            other => panic!("{other:?} have different types"),
        }
    }

    fn compare_column(column: &IndexColumn, a: &Value, b: &Value) -> Ordering {
        let nulls = if column.nulls_first { Ordering::Less } else { Ordering::Greater };
        match (a.is_null(), b.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => nulls,
            (false, true) => nulls.reverse(),
            _ if column.descending => compare(column.representation, b, a),
            _ => compare(column.representation, a, b),
        }
    }

    fn key_of(columns: &[IndexColumn], values: &[Value]) -> KeyBuffer {
        let stored: Vec<Stored<'_>> =
            columns.iter().zip(values).map(|(column, value)| value.stored(column.representation)).collect();
        let cells: Vec<Cell<'_>> = stored.iter().map(Stored::cell).collect();
        let mut key = KeyBuffer::new();
        let mut next = cells.iter();
        Codec::new(columns).encode(|_| *next.next().unwrap(), cells.len(), &mut key);
        // The fast encoding of words equals the slow one.
        let mut slow = KeyBuffer::new();
        columns.iter().zip(&cells).for_each(|(column, cell)| encode(column, cell, &mut slow));
        assert_eq!(key, slow);
        key
    }

    /// Compares random composite keys of random columns with a comparison of their values.
    #[test]
    fn keys_compare_as_postgresql_compares_their_values() {
        let seed = Random::from_entropy().next_u64();
        let random = &mut Random::seeded(seed);
        for round in 0..if cfg!(miri) { 10 } else { 2_000 } {
            let columns: Vec<IndexColumn> = (0..random.uniform(1, 9))
                .map(|_| IndexColumn {
                    nullable: random.uniform(0, 1) == 1,
                    descending: random.uniform(0, 1) == 1,
                    nulls_first: random.uniform(0, 1) == 1,
                    ..column(TYPES[random.uniform(0, TYPES.len() as i64 - 1) as usize])
                })
                .collect();
            let rows: Vec<Vec<Value>> = (0..12)
                .map(|_| {
                    let value = |column: &IndexColumn, random: &mut Random| {
                        let null = column.nullable && random.uniform(0, 4) == 0;
                        if null { Value::Null } else { random_value(column.representation, random) }
                    };
                    columns.iter().map(|column| value(column, random)).collect()
                })
                .collect();
            let keys: Vec<KeyBuffer> = rows.iter().map(|row| key_of(&columns, row)).collect();
            for (a, key_a) in rows.iter().zip(&keys) {
                assert_eq!(
                    holds_null(&columns, key_a),
                    a.iter().any(Value::is_null),
                    "seed {seed} round {round}: {columns:?} {a:?}"
                );
                for (b, key_b) in rows.iter().zip(&keys) {
                    let expected = (columns.iter().zip(a.iter().zip(b)))
                        .map(|(column, (a, b))| compare_column(column, a, b))
                        .find(|ordering| ordering.is_ne())
                        .unwrap_or(Ordering::Equal);
                    assert_eq!(
                        key_a.cmp(key_b),
                        expected,
                        "seed {seed} round {round}: {columns:?} {a:?} {b:?} {key_a:02x?} {key_b:02x?}"
                    );
                    assert!(
                        key_a == key_b || !key_b.starts_with(key_a),
                        "seed {seed} round {round}: {key_a:02x?} begins {key_b:02x?}"
                    );
                }
            }
        }
    }

    #[test]
    fn keys_have_the_bytes_that_the_table_above_says() {
        let number = |text: &str| Value::Number(Numeric::parse(text).expect("it is a number"));
        let list = |elements: Vec<Value>| Value::Array(elements.into());
        let cases: [(Representation, Value, &[u8]); 21] = [
            (Representation::Oid, Value::Oid(u32::MAX), &[0xff; 4]),
            (Representation::Numeric, number("0.00"), &[0x80, 0]),
            (Representation::Numeric, number("1.00"), &[0xc0, 0, 11, 0]),
            (Representation::Numeric, number("12.345"), &[0xc0, 1, 13, 35, 51, 0]),
            (Representation::Numeric, number("-12.345"), &[0x3f, 0xfe, !13, !35, !51, 0xff]),
            (Representation::Numeric, number("NaN"), &[0xff, 0xff]),
            (Representation::Numeric, number("Infinity"), &[0xff, 0xfe]),
            (Representation::Numeric, number("-Infinity"), &[0, 0]),
            (Representation::List(&Representation::Int16), list(vec![]), &[0, 0]),
            (
                Representation::List(&Representation::Int16),
                list(vec![Value::SmallInt(1), Value::Null]),
                &[1, 0x80, 1, 2, 0, 1, 0, 0, 0, 2, 0x80, 0, 0, 1],
            ),
            (
                Representation::List(&Representation::Text),
                list(vec![Value::Text("a".into())]),
                &[1, b'a', 0, 0, 1, 0, 0, 0, 1, 0x80, 0, 0, 1],
            ),
            (Representation::Boolean, Value::Boolean(true), &[1]),
            (Representation::Int16, Value::SmallInt(-1), &[0x7f, 0xff]),
            (Representation::Int32, Value::Integer(1), &[0x80, 0, 0, 1]),
            (Representation::Float32, Value::Real(-0.0), &[0x80, 0, 0, 0]),
            (Representation::Float32, Value::Real(-f32::NAN), &[0xff, 0xc0, 0, 0]),
            (Representation::Float64, Value::Double(-1.0), &[0x40, 0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (Representation::Text, Value::Text("a\0b\u{1}".into()), &[b'a', 1, 1, b'b', 1, 2, 0]),
            (Representation::PaddedText, Value::Text("a b ".into()), b"a b\0"),
            (
                Representation::Decimal { precision: 38, scale: 0 },
                Value::Numeric { unscaled: 258, scale: 0 },
                &[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2],
            ),
            (
                Representation::Interval,
                Value::Interval(Interval { months: 0, days: 0, nanoseconds: -1000 }),
                &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc, 0x18],
            ),
        ];
        for (representation, value, bytes) in cases {
            assert_eq!(
                &key_of(&[column(representation)], std::slice::from_ref(&value))[..],
                bytes,
                "{value:?}"
            );
        }
    }

    #[test]
    fn numerics_that_differ_in_scale_alone_have_one_key() {
        let key = |text: &str| {
            let value = Value::Number(Numeric::parse(text).expect("it is a number"));
            key_of(&[column(Representation::Numeric)], &[value])
        };
        assert_eq!(key("1.0"), key("1.00"));
        assert_eq!(key("100"), key("1e2"));
        assert_eq!(key("-0.5"), key("-0.50000"));
        assert_eq!(key("0"), key("-0.000"));
        assert!(key("1") < key("1.0000000000000000000000000000000000001"));
    }

    #[test]
    fn a_month_and_thirty_days_have_one_key() {
        let spans = [
            Interval { months: 1, ..Interval::default() },
            Interval { days: 30, ..Interval::default() },
            Interval { nanoseconds: 30 * 86_400_000_000_000, ..Interval::default() },
        ];
        let keys = spans.map(|span| key_of(&[column(Representation::Interval)], &[Value::Interval(span)]));
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn the_string_after_a_prefix_drops_the_bytes_that_cannot_grow() {
        assert_eq!(after(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(after(&[1, 0xff, 0xff]).as_deref(), Some(&[2][..]));
        assert_eq!(after(&[0xff]), None);
        assert_eq!(after(&[]), None);
    }

    #[test]
    fn floats_within_bounds_are_those_whose_ordered_bits_are() {
        let floats = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::from_bits(2),
            -f64::from_bits(1),
            0.0,
            f64::from_bits(1),
            2.5,
            f64::MAX,
            f64::INFINITY,
            f64::NAN,
        ];
        let reals = [
            f32::NEG_INFINITY,
            f32::MIN,
            -1.5,
            -f32::from_bits(1),
            0.0,
            f32::from_bits(1),
            2.5,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ];
        let near = |at: u64| [at.saturating_sub(1), at, at.saturating_add(1)];
        let bounds: Vec<u64> =
            floats.map(ordered_double).into_iter().chain([0, u64::MAX]).flat_map(near).collect();
        for &first in &bounds {
            for &last in &bounds {
                let within = doubles_within(first, last).map(|ends| ends.map(ordered_double));
                for float in floats {
                    let at = ordered_double(float);
                    let expected = (first..=last).contains(&at);
                    assert_eq!(
                        within.is_some_and(|[low, high]| low <= at && at <= high),
                        expected,
                        "{float}"
                    );
                }
            }
        }
        let near = |at: u32| [at.saturating_sub(1), at, at.saturating_add(1)];
        let bounds: Vec<u32> =
            reals.map(ordered_real).into_iter().chain([0, u32::MAX]).flat_map(near).collect();
        for &first in &bounds {
            for &last in &bounds {
                let within = reals_within(first, last).map(|ends| ends.map(ordered_real));
                for real in reals {
                    let at = ordered_real(real);
                    let expected = (first..=last).contains(&at);
                    assert_eq!(within.is_some_and(|[low, high]| low <= at && at <= high), expected, "{real}");
                }
            }
        }
    }

    #[test]
    fn summaries_of_wide_numbers_rise_with_them_and_distinguish_small_ones() {
        let words = |number: i128| [number as u64, (number >> 64) as u64];
        let summary = |number: i128| wide_summary(words(number));
        let powers = (0..127).flat_map(|bits| [-1, 0, 1].map(|by| (1i128 << bits) + by));
        let mut numbers: Vec<i128> = powers.flat_map(|number| [number, -number]).collect();
        let mut random = Random::seeded(11);
        for _ in 0..if cfg!(miri) { 100 } else { 10_000 } {
            let number = i128::from_le_bytes(
                [random.next_u64(), random.next_u64()].map(u64::to_le_bytes).concat().try_into().unwrap(),
            );
            numbers.push(number >> random.uniform(0, 127));
        }
        numbers.extend([i128::MIN, i128::MAX]);
        numbers.sort_unstable();
        for pair in numbers.windows(2) {
            let [less, more] = [summary(pair[0]), summary(pair[1])];
            assert!(less <= more, "{pair:?}");
            let is_exact = pair.iter().all(|number| number.unsigned_abs() < 1 << 55);
            assert!(!is_exact || pair[0] == pair[1] || less < more, "{pair:?}");
        }
        for &number in &numbers {
            let at = summary(number);
            let [low, high] = wide_numbers(at, at).expect("the summary has numbers");
            assert!(low <= number && number <= high && summary(low) == at && summary(high) == at);
            assert!(low.checked_sub(1).is_none_or(|below| summary(below) < at), "{number}");
            assert!(high.checked_add(1).is_none_or(|above| summary(above) > at), "{number}");
            // Of a large number the first 56 bits count.
            assert!((high - low) as u128 <= number.unsigned_abs() >> 55, "{number}");
            assert_eq!(wide_numbers(0, at), Some([i128::MIN, high]));
            assert_eq!(wide_numbers(at, u64::MAX), Some([low, i128::MAX]));
        }
        assert_eq!(wide_numbers(0, 5), None);
        assert_eq!(wide_numbers(u64::MAX - 5, u64::MAX), None);
        assert_eq!(wide_numbers(summary(7), summary(6)), None);
    }
}
