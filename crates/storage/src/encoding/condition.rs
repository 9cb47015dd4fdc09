//! Conditions on a column, evaluated on its encoded form.
//!
//! | encoding | `low ≤ value ≤ high` becomes |
//! |---|---|
//! | codes | a range of codes, found by two binary searches in the dictionary |
//! | offsets | a range of offsets |
//! | plain | comparisons of ordinals |
//! | runs | the same for the values of runs, and then whole runs of bits |
//!
//! A list of values becomes as many ranges, of which adjacent ones are merged. A prefix is one range of a
//! dictionary. All conditions end in loops over slices of numbers that compare 64 of them at a time and
//! ignore NULLs: validity is applied afterwards, 64 slots by one instruction.

use super::codes::{Code, Codes, each_codes};
use super::word::{Order, Word};
use arrow_buffer::{BooleanBuffer, Buffer};
use firn_base::{Cell, Representation};
use std::ops::{Bound, Range, RangeBounds};

/// The values that a condition selects. NULL is never selected, and not allowed as a bound.
#[derive(Clone, Debug)]
pub enum Condition<'a> {
    /// Values in one of several ranges, which ascend and are separate.
    Ranges(Vec<(Bound<Cell<'a>>, Bound<Cell<'a>>)>),
    /// Values of a list.
    In(Vec<Cell<'a>>),
    /// Strings with a prefix.
    Prefix(&'a [u8]),
}

impl<'a> Condition<'a> {
    /// Values between two bounds.
    pub fn range(low: Bound<Cell<'a>>, high: Bound<Cell<'a>>) -> Condition<'a> {
        Condition::Ranges(vec![(low, high)])
    }

    /// Values that equal one value.
    pub fn equal(cell: Cell<'a>) -> Condition<'a> {
        Condition::In(vec![cell])
    }

    /// Whether ordinals can decide it for values of a type. They cannot for intervals and images, nor where
    /// blanks at the end matter in some comparisons and not in others.
    pub fn is_decidable(&self, representation: Representation) -> bool {
        match representation {
            Representation::Interval => false,
            representation if representation.is_image() => false,
            Representation::PaddedText => matches!(self, Condition::In(_)),
            _ => true,
        }
    }

    /// The ordinals that it selects, as ranges with first and last.
    pub(super) fn ordinal_ranges<T: Word>(&self, order: Order) -> Vec<(T, T)> {
        super::dictionary::word_ranges(self, order)
    }

    /// Whether it selects a string.
    pub(super) fn takes_string(&self, string: &[u8]) -> bool {
        match self {
            Condition::Ranges(ranges) => ranges
                .iter()
                .any(|(low, high)| RangeBounds::<[u8]>::contains(&(bytes_of(low), bytes_of(high)), string)),
            Condition::In(cells) => cells.iter().any(|cell| cell.bytes() == string),
            Condition::Prefix(prefix) => string.starts_with(prefix),
        }
    }

    /// Whether it selects a boolean.
    pub(super) fn takes_boolean(&self, value: bool) -> bool {
        let number = |cell: &Cell<'_>| cell.word() != 0;
        match self {
            Condition::Ranges(ranges) => ranges
                .iter()
                .any(|(low, high)| (low.as_ref().map(number), high.as_ref().map(number)).contains(&value)),
            Condition::In(cells) => cells.iter().any(|cell| number(cell) == value),
            Condition::Prefix(_) => panic!("a prefix of values that are not strings"),
        }
    }
}

/// The string of a bound.
pub(super) fn bytes_of<'b>(bound: &'b Bound<Cell<'_>>) -> Bound<&'b [u8]> {
    bound.as_ref().map(Cell::bytes)
}

/// More ranges than this are looked up in a table instead of being compared one after another. A pass over
/// all codes for each range is fast, but one look-up replaces all of the passes.
const MOST_COMPARED: usize = 4;

/// The codes of a dictionary that a condition selects. Computed once for all blocks with this dictionary.
#[derive(Clone, Debug)]
pub struct CodeSet {
    /// Separate and ascending.
    ranges: Vec<Range<u64>>,
    /// A bit for every code of the dictionary, if there are many ranges.
    table: Option<Vec<u64>>,
    dictionary_values: usize,
}

impl CodeSet {
    /// A set of ranges of codes of a dictionary with this many values.
    pub(super) fn of(mut ranges: Vec<Range<u64>>, dictionary_values: usize) -> CodeSet {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        let table = (ranges.len() > MOST_COMPARED).then(|| {
            let mut table = vec![0; dictionary_values.div_ceil(64)];
            for code in ranges.iter().cloned().flatten() {
                table[code as usize / 64] |= 1 << (code % 64);
            }
            table
        });
        CodeSet { ranges, table, dictionary_values }
    }

    /// Whether no value is selected, so that no block needs to be read.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether a code is selected.
    pub fn contains(&self, code: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= code);
        self.ranges.get(at).is_some_and(|range| range.contains(&code))
    }

    /// The dictionary's size, which distinguishes the set from one of another dictionary.
    pub(super) fn dictionary_values(&self) -> usize {
        self.dictionary_values
    }

    /// A bit for every code: whether it is selected.
    pub(super) fn select(&self, codes: &Codes) -> BooleanBuffer {
        each_codes!(codes, codes => self.select_of(codes))
    }

    fn select_of<C: Code>(&self, codes: &[C]) -> BooleanBuffer {
        if let Some(table) = &self.table {
            return bits(codes, |code| {
                let code = code.number() as usize;
                table[code / 64] >> (code % 64) & 1 == 1
            });
        }
        let inclusive: Vec<(C, C)> =
            self.ranges.iter().map(|range| (C::narrow(range.start), C::narrow(range.end - 1))).collect();
        within(codes, &inclusive)
    }
}

/// A bit for every offset: whether `base` plus the offset is in one of the ranges.
pub(super) fn select_offsets<T: Word>(offsets: &Codes, base: T, ranges: &[(T, T)]) -> BooleanBuffer {
    fn select<C: Code, T: Word>(offsets: &[C], base: T, ranges: &[(T, T)]) -> BooleanBuffer {
        let top = base.plus(C::HIGHEST);
        // The sum wraps around to a value below the base if the width has larger offsets than the type.
        let top = if top < base { T::HIGHEST } else { top };
        let ranges: Vec<(C, C)> = ranges
            .iter()
            .filter(|(low, high)| *high >= base && *low <= top)
            .map(|(low, high)| {
                let offset = |value: T| C::narrow(value.clamp(base, top).offset_from(base));
                (offset(*low), offset(*high))
            })
            .collect();
        within(offsets, &ranges)
    }
    each_codes!(offsets, offsets => select(offsets, base, ranges))
}

/// A bit for every word: whether its ordinal is in one of the ranges.
pub(super) fn select_words<T: Word>(words: &[T], order: Order, ranges: &[(T, T)]) -> BooleanBuffer {
    match order {
        Order::Signed | Order::Foreign => within(words, ranges),
        Order::Float => match ranges {
            [] => BooleanBuffer::new_unset(words.len()),
            &[(low, high)] => bits(words, |word| {
                let ordinal = word.ordinal(Order::Float);
                (low <= ordinal) & (ordinal <= high)
            }),
            ranges => bits(words, |word| in_some(word.ordinal(Order::Float), ranges)),
        },
        order => bits(words, |word| in_some(word.ordinal(order), ranges)),
    }
}

fn in_some<T: Ord + Copy>(ordinal: T, ranges: &[(T, T)]) -> bool {
    let at = ranges.partition_point(|(_, high)| *high < ordinal);
    ranges.get(at).is_some_and(|(low, _)| *low <= ordinal)
}

/// A bit for every number: whether it is in one of the ranges, which ascend.
fn within<T: Ord + Copy>(numbers: &[T], ranges: &[(T, T)]) -> BooleanBuffer {
    match ranges {
        [] => BooleanBuffer::new_unset(numbers.len()),
        &[(low, high)] if low == high => bits(numbers, |number| number == low),
        &[(low, high)] => bits(numbers, |number| (low <= number) & (number <= high)),
        ranges if ranges.len() <= MOST_COMPARED => {
            let mut ranges = ranges.iter().map(|range| within(numbers, &[*range]));
            let first = ranges.next().expect("there are several ranges");
            ranges.fold(first, |all, one| &all | &one)
        }
        ranges => bits(numbers, |number| in_some(number, ranges)),
    }
}

/// A bit for every number.
#[inline]
fn bits<T: Copy>(numbers: &[T], test: impl Fn(T) -> bool + Copy) -> BooleanBuffer {
    let mut words = Vec::with_capacity(numbers.len().div_ceil(64));
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        unsafe { bits_avx2(numbers, test, &mut words) };
        return BooleanBuffer::new(Buffer::from_vec(words), 0, numbers.len());
    }
    append_bits(numbers, test, &mut words);
    BooleanBuffer::new(Buffer::from_vec(words), 0, numbers.len())
}

/// As [`append_bits`], which the compiler makes vectors of twice the width of here.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
fn bits_avx2<T: Copy>(numbers: &[T], test: impl Fn(T) -> bool + Copy, words: &mut Vec<u64>) {
    append_bits(numbers, test, words);
}

/// Two steps, each of which the compiler vectorises: a byte of 0 or 1 for each of 64 numbers; then one byte
/// of bits from eight such bytes by a multiplication, which moves the lowest bit of byte n to bit n of the
/// highest byte.
#[inline(always)]
fn append_bits<T: Copy>(numbers: &[T], test: impl Fn(T) -> bool + Copy, words: &mut Vec<u64>) {
    let (chunks, rest) = numbers.as_chunks::<64>();
    for chunk in chunks {
        let mut flags = [0u8; 64];
        for (flag, number) in flags.iter_mut().zip(chunk) {
            *flag = u8::from(test(*number));
        }
        let mut word = 0;
        for (place, eight) in flags.as_chunks::<8>().0.iter().enumerate() {
            word |= (u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * place);
        }
        words.push(word);
    }
    if !rest.is_empty() {
        words.push(
            rest.iter().enumerate().fold(0, |word, (place, number)| word | u64::from(test(*number)) << place),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_gets_the_bit_of_its_place() {
        for count in [0, 1, 63, 64, 65, 200] {
            let numbers: Vec<u16> = (0..count).map(|number| number * 7 % 101).collect();
            let selected = bits(&numbers, |number| number % 3 == 0);
            assert!(selected.iter().eq(numbers.iter().map(|number| number % 3 == 0)), "{count}");
        }
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let set = CodeSet::of(vec![7..9, 3..3, 1..2, 2..4, 8..12, 20..21], 30);
        assert_eq!(set.ranges, [1..4, 7..12, 20..21]);
        assert!(set.table.is_none());
        let many = CodeSet::of((0..10).map(|at| 3 * at..3 * at + 1).collect(), 30);
        assert!(many.table.is_some());
        for (set, taken) in [(&set, [1, 2, 3, 7, 11, 20]), (&many, [0, 3, 6, 9, 12, 27])] {
            let codes = Codes::collect(29, 0..30);
            let bits = set.select(&codes);
            assert!((0..30).all(|code| bits.value(code) == set.contains(code as u64)));
            assert!(taken.iter().all(|code| bits.value(*code)));
        }
    }

    #[test]
    fn offsets_near_the_ends_of_the_type_are_compared_as_values_are() {
        let base = i16::MAX - 3;
        let offsets = Codes::collect(3, 0..4);
        let select = |low, high| select_offsets(&offsets, base, &[(low, high)]).iter().collect::<Vec<_>>();
        assert_eq!(select(i16::MIN, i16::MAX), [true; 4]);
        assert_eq!(select(i16::MIN, base - 1), [false; 4]);
        assert_eq!(select(base + 1, base + 2), [false, true, true, false]);
        assert_eq!(select(i16::MAX, i16::MAX), [false, false, false, true]);
    }
}
