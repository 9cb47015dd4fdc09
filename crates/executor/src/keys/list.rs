//! The keys of many rows, side by side, and their hashes.
//!
//! Keys of one [layout](super::KeyLayout) have one kind, and only those meet. Hashes depend on a key's value alone: not on the rows
//! that it was made with, and so not on the worker.

use super::DoubleWord;
use firn_vector::selection::Rows;
use firn_vector::strings::{INLINE, view};
use firn_vector::{Data, Vector};
use std::cmp::Ordering;

/// The keys of some rows, in their order, unselected rows left out.
#[derive(Clone, Debug)]
pub enum Keys {
    /// Of up to 64 bits.
    Words(Vec<u64>),
    /// Of up to 128 bits.
    Wide(Vec<u128>),
    /// Of up to 256 bits.
    Double(Vec<DoubleWord>),
    /// With strings, for equality alone.
    Records(Records),
    /// Of any length.
    Bytes(ByteKeys),
}

/// One key, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    /// Of up to 64 bits.
    Word(u64),
    /// Of up to 128 bits.
    Wide(u128),
    /// Of up to 256 bits.
    Double(DoubleWord),
    /// A record, by its number.
    Record(&'a Records, usize),
    /// Of any length.
    Bytes(&'a [u8]),
}

impl PartialEq for Key<'_> {
    #[inline]
    fn eq(&self, other: &Key<'_>) -> bool {
        match (self, other) {
            (Key::Word(one), Key::Word(other)) => one == other,
            (Key::Wide(one), Key::Wide(other)) => one == other,
            (Key::Double(one), Key::Double(other)) => one == other,
            (Key::Record(records, one), Key::Record(others, other)) => records.equals(*one, others, *other),
            (Key::Bytes(one), Key::Bytes(other)) => one == other,
            _ => panic!("keys of one layout are compared"),
        }
    }
}

impl Eq for Key<'_> {}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Key<'_>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Panics for records, which have no order.
impl Ord for Key<'_> {
    fn cmp(&self, other: &Key<'_>) -> Ordering {
        match (self, other) {
            (Key::Word(one), Key::Word(other)) => one.cmp(other),
            (Key::Wide(one), Key::Wide(other)) => one.cmp(other),
            (Key::Double(one), Key::Double(other)) => one.cmp(other),
            (Key::Bytes(one), Key::Bytes(other)) => one.cmp(other),
            _ => panic!("keys of one layout that has an order are compared"),
        }
    }
}

/// Keys of one kind.
pub(super) trait KeyList {
    /// How many.
    fn count(&self) -> usize;

    /// Whether one of them is a key of another list.
    fn equals(&self, number: usize, other: &Self, of_other: usize) -> bool;

    /// Appends a key of another list.
    fn push_from(&mut self, other: &Self, of_other: usize);
}

impl<W: Copy + PartialEq> KeyList for Vec<W> {
    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn equals(&self, number: usize, other: &Self, of_other: usize) -> bool {
        self[number] == other[of_other]
    }

    #[inline]
    fn push_from(&mut self, other: &Self, of_other: usize) {
        self.push(other[of_other]);
    }
}

/// Keys of any length, one after the other, and where each ends.
#[derive(Clone, Default, Debug)]
pub struct ByteKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ByteKeys {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends the key whose bytes are written.
    #[inline]
    pub(super) fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of one of them.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.bytes[start..self.ends[number]]
    }
}

impl KeyList for ByteKeys {
    #[inline]
    fn count(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    fn equals(&self, number: usize, other: &Self, of_other: usize) -> bool {
        self.get(number) == other.get(of_other)
    }

    #[inline]
    fn push_from(&mut self, other: &Self, of_other: usize) {
        self.put(|bytes| bytes.extend_from_slice(other.get(of_other)));
    }
}

/// Keys with strings: a stretch of 16-byte words each.
///
/// ```text
/// fixed     the columns of fixed width, if there are any
/// view      for each string: length u32 | up to 12 bytes, padded with zeros
///                            length u32 | first 4 bytes | place u64        longer
///                            all bits set                                  NULL
/// ```
///
/// So short strings are compared and hashed as numbers.
#[derive(Clone, Debug)]
pub struct Records {
    /// How many words a key has.
    width: usize,
    /// How many of them, the first ones, are no views.
    fixed: usize,
    words: Vec<u128>,
    /// The bytes of long strings.
    long: Vec<u8>,
}

/// The view of a NULL; no string is so long.
const NULL: u128 = u128::MAX;

#[inline]
fn is_long(view: u128) -> bool {
    view as u32 as usize > INLINE && view != NULL
}

impl Records {
    pub(super) fn new(has_fixed: bool, strings: usize) -> Records {
        let fixed = usize::from(has_fixed);
        Records { width: fixed + strings, fixed, words: Vec::new(), long: Vec::new() }
    }

    /// Makes them so many keys of zeros.
    pub(super) fn clear(&mut self, count: usize) {
        self.words.clear();
        self.words.resize(count * self.width, 0);
        self.long.clear();
    }

    /// The words of all keys, and how many a key has.
    pub(super) fn words(&mut self) -> (&mut [u128], usize) {
        (&mut self.words, self.width)
    }

    /// Sets a string of each key, by its number, from a vector that is flat or constant.
    pub(super) fn put_strings(&mut self, number: usize, vector: &Vector, rows: Rows<'_>, is_padded: bool) {
        let Some(Data::Strings(strings)) = vector.data() else { panic!("these are strings") };
        let mask = if vector.is_constant() { 0 } else { usize::MAX };
        let (may_be_null, views) = (!vector.has_no_null(), strings.views());
        let Records { width, fixed, words, long } = self;
        let mut at = *fixed + number;
        rows.each(|row| {
            let found = views[row & mask];
            words[at] = if may_be_null && vector.is_null(row) {
                NULL
            } else if found as u32 as usize <= INLINE && !is_padded {
                found
            } else {
                let bytes = strings.bytes(row & mask);
                let kept = match is_padded {
                    true => bytes.len() - bytes.iter().rev().take_while(|byte| **byte == b' ').count(),
                    false => bytes.len(),
                };
                keep(&bytes[..kept], long)
            };
            at += *width;
        });
    }

    #[inline]
    fn record(&self, number: usize) -> &[u128] {
        &self.words[number * self.width..(number + 1) * self.width]
    }

    /// The bytes of a long string.
    #[inline]
    fn bytes(&self, view: u128) -> &[u8] {
        let place = (view >> 64) as usize;
        &self.long[place..place + view as u32 as usize]
    }

    fn hash(&self, number: usize) -> u64 {
        let record = self.record(number);
        if self.long.is_empty() {
            return record.iter().fold(K1, |hash, word| fold(hash ^ hash_wide(*word), K2));
        }
        let mut hash = K1;
        for (place, word) in record.iter().enumerate() {
            let of_word = match place >= self.fixed && is_long(*word) {
                true => hash_bytes(self.bytes(*word)),
                false => hash_wide(*word),
            };
            hash = fold(hash ^ of_word, K2);
        }
        hash
    }
}

/// The view of a string, whose bytes are appended to those of long strings if it is long.
#[inline]
fn keep(bytes: &[u8], long: &mut Vec<u8>) -> u128 {
    let found = view(bytes, 0, 0);
    if bytes.len() <= INLINE {
        return found;
    }
    let place = long.len();
    long.extend_from_slice(bytes);
    found | (place as u128) << 64
}

impl KeyList for Records {
    #[inline]
    fn count(&self) -> usize {
        self.words.len() / self.width
    }

    #[inline]
    fn equals(&self, number: usize, other: &Self, of_other: usize) -> bool {
        let mut pairs = self.record(number).iter().zip(other.record(of_other));
        // Without long strings in one of them, equal words are equal values.
        if self.long.is_empty() || other.long.is_empty() {
            return pairs.all(|(one, other)| one == other);
        }
        for (place, (one, two)) in pairs.enumerate() {
            let is_equal = match place >= self.fixed && is_long(*one) {
                // Places of the bytes say nothing.
                true => *one as u64 == *two as u64 && self.bytes(*one) == other.bytes(*two),
                false => one == two,
            };
            if !is_equal {
                return false;
            }
        }
        true
    }

    #[inline]
    fn push_from(&mut self, other: &Self, of_other: usize) {
        for (place, word) in other.record(of_other).iter().enumerate() {
            let word = match place >= self.fixed && is_long(*word) {
                true => keep(other.bytes(*word), &mut self.long),
                false => *word,
            };
            self.words.push(word);
        }
    }
}

/// Calls a generic expression with the lists of two keys of one kind.
macro_rules! with_lists {
    ($one:expr, $other:expr, |$a:ident, $b:ident| $call:expr) => {
        match ($one, $other) {
            (Keys::Words($a), Keys::Words($b)) => $call,
            (Keys::Wide($a), Keys::Wide($b)) => $call,
            (Keys::Double($a), Keys::Double($b)) => $call,
            (Keys::Records($a), Keys::Records($b)) => $call,
            (Keys::Bytes($a), Keys::Bytes($b)) => $call,
            _ => panic!("keys of one layout meet"),
        }
    };
}
pub(super) use with_lists;

impl Keys {
    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Keys::Words(keys) => keys.len(),
            Keys::Wide(keys) => keys.len(),
            Keys::Double(keys) => keys.len(),
            Keys::Records(keys) => keys.count(),
            Keys::Bytes(keys) => keys.count(),
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
            Keys::Words(keys) => Key::Word(keys[number]),
            Keys::Wide(keys) => Key::Wide(keys[number]),
            Keys::Double(keys) => Key::Double(keys[number]),
            Keys::Records(keys) => Key::Record(keys, number),
            Keys::Bytes(keys) => Key::Bytes(keys.get(number)),
        }
    }

    /// Whether one of them equals a key of others of the same layout.
    #[inline]
    pub fn equals(&self, number: usize, other: &Keys, of_other: usize) -> bool {
        with_lists!(self, other, |own, other| own.equals(number, other, of_other))
    }

    /// Removes all.
    pub fn clear(&mut self) {
        match self {
            Keys::Words(keys) => keys.clear(),
            Keys::Wide(keys) => keys.clear(),
            Keys::Double(keys) => keys.clear(),
            Keys::Records(keys) => keys.clear(0),
            Keys::Bytes(keys) => keys.clear(),
        }
    }

    /// Appends a key of the same layout.
    pub fn push(&mut self, key: Key<'_>) {
        match (self, key) {
            (Keys::Words(keys), Key::Word(key)) => keys.push(key),
            (Keys::Wide(keys), Key::Wide(key)) => keys.push(key),
            (Keys::Double(keys), Key::Double(key)) => keys.push(key),
            (Keys::Records(keys), Key::Record(others, number)) => keys.push_from(others, number),
            (Keys::Bytes(keys), Key::Bytes(key)) => keys.put(|bytes| bytes.extend_from_slice(key)),
            _ => panic!("keys of one layout are kept together"),
        }
    }

    /// Appends some keys of another one of the same layout.
    pub fn push_all(&mut self, other: &Keys, numbers: &[u32]) {
        with_lists!(self, other, |own, other| {
            numbers.iter().for_each(|number| own.push_from(other, *number as usize))
        });
    }

    /// Appends all keys of another one of the same layout.
    pub fn append(&mut self, other: &Keys) {
        match (self, other) {
            (Keys::Words(keys), Keys::Words(other)) => keys.extend_from_slice(other),
            (Keys::Wide(keys), Keys::Wide(other)) => keys.extend_from_slice(other),
            (Keys::Double(keys), Keys::Double(other)) => keys.extend_from_slice(other),
            (keys, other) => with_lists!(keys, other, |own, other| {
                (0..other.count()).for_each(|number| own.push_from(other, number))
            }),
        }
    }

    /// Where runs of equal keys begin, if there are at most so many; else false. Only keys of fixed width are looked at.
    pub fn runs(&self, most: usize, starts: &mut Vec<u32>) -> bool {
        fn of<W: PartialEq>(keys: &[W], most: usize, starts: &mut Vec<u32>) -> bool {
            // Counting is quick, and mostly says that there are no runs.
            let changes = keys.windows(2).map(|pair| usize::from(pair[0] != pair[1])).sum::<usize>();
            if keys.is_empty() || changes + 1 > most {
                return false;
            }
            starts.clear();
            starts.push(0);
            let is_start = |row: &u32| keys[*row as usize] != keys[*row as usize - 1];
            starts.extend((1..keys.len() as u32).filter(is_start));
            true
        }
        match self {
            Keys::Words(keys) => of(keys, most, starts),
            Keys::Wide(keys) => of(keys, most, starts),
            Keys::Double(keys) => of(keys, most, starts),
            Keys::Records(_) | Keys::Bytes(_) => false,
        }
    }

    /// The hash of each.
    pub fn hashes(&self) -> Vec<u64> {
        let mut hashes = Vec::new();
        self.hashes_into(&mut hashes);
        hashes
    }

    /// As [`Keys::hashes`], in place of what `hashes` has.
    pub fn hashes_into(&self, hashes: &mut Vec<u64>) {
        hashes.clear();
        match self {
            Keys::Words(keys) => hashes.extend(keys.iter().map(|key| hash_word(*key))),
            Keys::Wide(keys) => hashes.extend(keys.iter().map(|key| hash_wide(*key))),
            Keys::Double(keys) => hashes.extend(keys.iter().map(|key| hash_double(*key))),
            Keys::Records(keys) => hashes.extend((0..keys.count()).map(|number| keys.hash(number))),
            Keys::Bytes(keys) => hashes.extend((0..keys.count()).map(|number| hash_bytes(keys.get(number)))),
        }
    }

    /// Appends the image of some keys, for a temporary file.
    pub fn write(&self, numbers: &[u32], out: &mut Vec<u8>) {
        let numbers = numbers.iter().map(|number| *number as usize);
        match self {
            Keys::Words(keys) => numbers.for_each(|number| out.extend(keys[number].to_le_bytes())),
            Keys::Wide(keys) => numbers.for_each(|number| out.extend(keys[number].to_le_bytes())),
            Keys::Double(keys) => numbers.for_each(|number| {
                out.extend(keys[number].low.to_le_bytes());
                out.extend(keys[number].high.to_le_bytes());
            }),
            Keys::Records(keys) => numbers.for_each(|number| {
                for (place, word) in keys.record(number).iter().enumerate() {
                    out.extend(word.to_le_bytes());
                    if place >= keys.fixed && is_long(*word) {
                        out.extend_from_slice(keys.bytes(*word));
                    }
                }
            }),
            Keys::Bytes(keys) => numbers.for_each(|number| {
                let key = keys.get(number);
                out.extend((key.len() as u32).to_le_bytes());
                out.extend_from_slice(key);
            }),
        }
    }

    /// So many keys from an image that [`Keys::write`] has written; `self` is an empty one of their layout.
    pub fn read(mut self, count: usize, image: &mut &[u8]) -> Keys {
        fn take<const BYTES: usize>(image: &mut &[u8]) -> [u8; BYTES] {
            let (taken, rest) = image.split_first_chunk().expect("it was written");
            *image = rest;
            *taken
        }
        for _ in 0..count {
            match &mut self {
                Keys::Words(keys) => keys.push(u64::from_le_bytes(take(image))),
                Keys::Wide(keys) => keys.push(u128::from_le_bytes(take(image))),
                Keys::Double(keys) => {
                    let low = u128::from_le_bytes(take(image));
                    keys.push(DoubleWord { high: u128::from_le_bytes(take(image)), low });
                }
                Keys::Records(keys) => {
                    for place in 0..keys.width {
                        let mut word = u128::from_le_bytes(take(image));
                        if place >= keys.fixed && is_long(word) {
                            let (bytes, rest) = image.split_at(word as u32 as usize);
                            word = keep(bytes, &mut keys.long);
                            *image = rest;
                        }
                        keys.words.push(word);
                    }
                }
                Keys::Bytes(keys) => {
                    let length = u32::from_le_bytes(take(image));
                    let (key, rest) = image.split_at(length as usize);
                    keys.put(|bytes| bytes.extend_from_slice(key));
                    *image = rest;
                }
            }
        }
        self
    }

    /// Bytes of memory that they take.
    pub fn memory(&self) -> usize {
        match self {
            Keys::Words(keys) => keys.capacity() * 8,
            Keys::Wide(keys) => keys.capacity() * 16,
            Keys::Double(keys) => keys.capacity() * 32,
            Keys::Records(keys) => keys.words.capacity() * 16 + keys.long.capacity(),
            Keys::Bytes(keys) => keys.bytes.capacity() + keys.ends.capacity() * 8,
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
fn hash_word(key: u64) -> u64 {
    fold(fold(key ^ K1, K2), K1)
}

#[inline]
fn hash_wide(key: u128) -> u64 {
    fold(fold(key as u64 ^ K1, K2) ^ (key >> 64) as u64, K1)
}

#[inline]
fn hash_double(key: DoubleWord) -> u64 {
    fold(hash_wide(key.low) ^ K1, K2) ^ hash_wide(key.high)
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
