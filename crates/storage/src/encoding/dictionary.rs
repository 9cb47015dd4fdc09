//! Dictionaries: the different values of a column, sorted, each once. A value's code is its position.
//!
//! ```text
//!  words    | ordinal 0 | ordinal 1 | ordinal 2 | …       ascending, of the column's width
//!  strings  | offset 0 | offset 1 | …  bytes  ascending by bytes (strings.rs)
//! ```
//! It is sorted, so that a range of values is a range of codes, and so that two dictionaries merge in one
//! pass (merge.rs). The blocks of a column share it: each has a reference to the one that its codes were made
//! for, so blocks of an older and of a newer dictionary coexist. It never changes. Values that no block has
//! any more are removed when [another one replaces it](crate::encoding::merge::Merge::forgetting).

use super::ColumnWord;
use super::choose::Distinct;
use super::condition::{CodeSet, Condition, bytes_of};
use super::merge::hash_string;
use super::strings::Strings;
use super::word::{Order, Word, ordinals_within};
use arrow_array::ArrayRef;
use arrow_buffer::ScalarBuffer;
use firn_base::Representation;
use firn_base::sync::{Arc, OnceLock};
use std::cmp::Ordering;
use std::ops::{Bound, Range};

/// More values than this do not fit into a dictionary.
pub const MOST_VALUES: usize = i32::MAX as usize;

/// Sorted values of fixed width.
#[derive(Debug)]
pub struct WordDictionary<T: Word> {
    pub(super) representation: Representation,
    pub(super) ordinals: ScalarBuffer<T>,
    /// The values as an Arrow array.
    array: OnceLock<ArrayRef>,
}

impl<T: Word> WordDictionary<T> {
    pub(super) fn new(representation: Representation, ordinals: ScalarBuffer<T>) -> WordDictionary<T> {
        debug_assert!(ordinals.is_sorted_by(|a, b| a < b));
        WordDictionary { representation, ordinals, array: OnceLock::new() }
    }

    /// The ordinals of its values.
    pub fn ordinals(&self) -> &[T] {
        &self.ordinals
    }

    /// The mapping from words to its ordinals.
    #[inline]
    pub(super) fn order(&self) -> Order {
        Order::of(self.representation)
    }

    /// The value with a code.
    #[inline]
    pub fn word(&self, code: usize) -> T {
        self.ordinals[code].word(self.order())
    }

    /// The code of a value.
    pub fn code_of(&self, word: T) -> Option<usize> {
        self.ordinals.binary_search(&word.ordinal(self.order())).ok()
    }

    pub(super) fn array(&self) -> &ArrayRef {
        self.array.get_or_init(|| {
            let words = match self.order() {
                Order::Signed | Order::Foreign => self.ordinals.clone(),
                order => self.ordinals.iter().map(|ordinal| ordinal.word(order)).collect(),
            };
            super::export::words_to_array(self.representation, words, None)
        })
    }

    fn codes_within(&self, low: T, high: T) -> Range<u64> {
        let start = self.ordinals.partition_point(|ordinal| *ordinal < low);
        let end = start + self.ordinals[start..].partition_point(|ordinal| *ordinal <= high);
        start as u64..end as u64
    }
}

/// Sorted strings.
#[derive(Debug)]
pub struct StringDictionary {
    pub(super) representation: Representation,
    pub(super) strings: Strings,
    array: OnceLock<ArrayRef>,
    /// The values as views, for arrays that are not dictionary arrays.
    views: OnceLock<ArrayRef>,
}

impl StringDictionary {
    /// How many values it has.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    pub(super) fn new(representation: Representation, strings: Strings) -> StringDictionary {
        StringDictionary { representation, strings, array: OnceLock::new(), views: OnceLock::new() }
    }

    /// The value with a code.
    #[inline]
    pub fn get(&self, code: usize) -> &[u8] {
        self.strings.get(code)
    }

    /// The code of a value.
    pub fn code_of(&self, string: &[u8]) -> Option<usize> {
        let at = self.first_not(0, |value| value < string);
        (at < self.strings.len() && self.get(at) == string).then_some(at)
    }

    pub(super) fn array(&self) -> &ArrayRef {
        self.array.get_or_init(|| self.strings.to_array(self.representation, None))
    }

    pub(super) fn views(&self) -> &ArrayRef {
        self.views.get_or_init(|| super::strings::as_views(self.array(), 0..self.strings.len()))
    }

    /// The first code from `start` on whose value does not satisfy a condition that all values before it
    /// satisfy.
    fn first_not(&self, start: usize, satisfied: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (start, self.strings.len());
        while low < high {
            let middle = (low + high) / 2;
            if satisfied(self.get(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn codes_within(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Range<u64> {
        let start = match low {
            Bound::Included(low) => self.first_not(0, |value| value < low),
            Bound::Excluded(low) => self.first_not(0, |value| value <= low),
            Bound::Unbounded => 0,
        };
        let end = match high {
            Bound::Included(high) => self.first_not(start, |value| value <= high),
            Bound::Excluded(high) => self.first_not(start, |value| value < high),
            Bound::Unbounded => self.strings.len(),
        };
        start as u64..end as u64
    }
}

/// A column's dictionary, of any type.
#[derive(Clone, Debug)]
pub enum Dictionary {
    /// 2 bytes
    Two(Arc<WordDictionary<i16>>),
    /// 4 bytes
    Four(Arc<WordDictionary<i32>>),
    /// 8 bytes
    Eight(Arc<WordDictionary<i64>>),
    /// 16 bytes
    Sixteen(Arc<WordDictionary<i128>>),
    /// Strings
    Strings(Arc<StringDictionary>),
}

/// Runs one expression over a dictionary of words, or another over one of strings.
macro_rules! each_dictionary {
    ($dictionary:expr, $words:ident => $of_words:expr, $strings:ident => $of_strings:expr) => {
        match $dictionary {
            $crate::encoding::dictionary::Dictionary::Two($words) => $of_words,
            $crate::encoding::dictionary::Dictionary::Four($words) => $of_words,
            $crate::encoding::dictionary::Dictionary::Eight($words) => $of_words,
            $crate::encoding::dictionary::Dictionary::Sixteen($words) => $of_words,
            $crate::encoding::dictionary::Dictionary::Strings($strings) => $of_strings,
        }
    };
}

#[cfg(test)]
pub(super) use each_dictionary;

impl Dictionary {
    /// How many values it has.
    pub fn len(&self) -> usize {
        each_dictionary!(self, words => words.ordinals.len(), strings => strings.strings.len())
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory it takes, without that of arrays made from it: of strings as views, and of values whose
    /// ordinal is not the word.
    pub fn bytes(&self) -> usize {
        each_dictionary!(
            self,
            words => size_of_val(&words.ordinals[..]),
            strings => strings.strings.bytes()
        )
    }

    /// Whether both are the same object, and not only equal.
    pub(crate) fn is(&self, other: &Dictionary) -> bool {
        match (self, other) {
            (Dictionary::Two(a), Dictionary::Two(b)) => Arc::ptr_eq(a, b),
            (Dictionary::Four(a), Dictionary::Four(b)) => Arc::ptr_eq(a, b),
            (Dictionary::Eight(a), Dictionary::Eight(b)) => Arc::ptr_eq(a, b),
            (Dictionary::Sixteen(a), Dictionary::Sixteen(b)) => Arc::ptr_eq(a, b),
            (Dictionary::Strings(a), Dictionary::Strings(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// A dictionary of those of its values for which `used` is true.
    pub(super) fn only(&self, used: &[bool]) -> Dictionary {
        fn only<T: ColumnWord>(words: &WordDictionary<T>, used: &[bool]) -> Dictionary {
            let ordinals = words.ordinals.iter().zip(used).filter(|(_, used)| **used);
            let ordinals: Vec<T> = ordinals.map(|(ordinal, _)| *ordinal).collect();
            T::into_dictionary(Arc::new(WordDictionary::new(words.representation, ordinals.into())))
        }
        match self {
            Dictionary::Two(words) => only(words, used),
            Dictionary::Four(words) => only(words, used),
            Dictionary::Eight(words) => only(words, used),
            Dictionary::Sixteen(words) => only(words, used),
            Dictionary::Strings(strings) => {
                let kept = (0..used.len()).filter(|code| used[*code]).map(|code| strings.get(code));
                let kept = Strings::collect(kept).expect("a part of the strings fits");
                Dictionary::Strings(Arc::new(StringDictionary::new(strings.representation, kept)))
            }
        }
    }

    /// An estimate of its number of different values, which can be joined with those of blocks.
    pub(crate) fn distinct(&self) -> Distinct {
        let mut distinct = Distinct::new();
        fn add<T: Word>(words: &WordDictionary<T>, distinct: &mut Distinct) {
            (0..words.ordinals.len()).for_each(|code| distinct.add(words.word(code).hash()));
        }
        match self {
            Dictionary::Two(words) => add(words, &mut distinct),
            Dictionary::Four(words) => add(words, &mut distinct),
            Dictionary::Eight(words) => add(words, &mut distinct),
            Dictionary::Sixteen(words) => add(words, &mut distinct),
            Dictionary::Strings(strings) => {
                (0..strings.len()).for_each(|code| distinct.add(hash_string(strings.get(code))));
            }
        }
        distinct
    }

    /// The type of its values.
    pub fn representation(&self) -> Representation {
        each_dictionary!(self, words => words.representation, strings => strings.representation)
    }

    /// The values as an Arrow array, which shares their memory unless the type is a narrow decimal or its
    /// ordinals are not words.
    pub fn array(&self) -> &ArrayRef {
        each_dictionary!(self, words => words.array(), strings => strings.array())
    }

    /// The codes of the values that a condition selects; `None` if the order of codes does not decide it.
    pub fn codes_of(&self, condition: &Condition<'_>) -> Option<CodeSet> {
        if !condition.is_decidable(self.representation()) {
            return None;
        }
        let ranges = each_dictionary!(
            self,
            words => condition.ordinal_ranges(words.order()).into_iter().map(|(low, high)| words.codes_within(low, high)).collect(),
            strings => match condition {
                Condition::Ranges(ranges) => {
                    ranges.iter().map(|(low, high)| strings.codes_within(bytes_of(low), bytes_of(high))).collect()
                }
                Condition::In(cells) => cells
                    .iter()
                    .filter_map(|cell| strings.code_of(cell.bytes()))
                    .map(|code| code as u64..code as u64 + 1)
                    .collect(),
                Condition::Prefix(prefix) => {
                    let start = strings.first_not(0, |value| value < *prefix);
                    let end = strings.first_not(start, |value| value.starts_with(prefix));
                    std::iter::once(start as u64..end as u64).collect()
                }
            }
        );
        Some(CodeSet::of(ranges, self.len()))
    }

    /// A set of some ranges of its codes, in any order.
    pub fn codes_within(&self, ranges: Vec<Range<u64>>) -> CodeSet {
        CodeSet::of(ranges, self.len())
    }

    /// The strings as views; `None` if the values are not strings.
    pub(crate) fn views(&self) -> Option<&ArrayRef> {
        match self {
            Dictionary::Strings(strings) => Some(strings.views()),
            _ => None,
        }
    }

    /// The codes of the strings that satisfy any function, for conditions that no range of codes represents.
    /// Panics if the values are not strings.
    pub fn codes_of_strings(&self, satisfied: impl Fn(&[u8]) -> bool) -> CodeSet {
        let Dictionary::Strings(strings) = self else {
            panic!("a dictionary of {} has no strings", self.representation())
        };
        let codes = (0..strings.strings.len()).filter(|code| satisfied(strings.get(*code)));
        CodeSet::of(codes.map(|code| code as u64..code as u64 + 1).collect(), self.len())
    }

    /// The codes of the strings whose summary is in one of some ranges with first and last. Summaries ascend
    /// with the strings, or are equal. Panics if the values are not strings.
    pub fn codes_of_summaries(&self, ranges: &[(u64, u64)], summary: impl Fn(&[u8]) -> u64) -> CodeSet {
        let Dictionary::Strings(strings) = self else {
            panic!("a dictionary of {} has no strings", self.representation())
        };
        let codes = ranges.iter().map(|(low, high)| {
            let start = strings.first_not(0, |value| summary(value) < *low);
            start as u64..strings.first_not(start, |value| summary(value) <= *high) as u64
        });
        CodeSet::of(codes.collect(), self.len())
    }

    /// Panics if an invariant does not hold.
    pub fn verify(&self) {
        each_dictionary!(
            self,
            words => assert!(words.ordinals.is_sorted_by(|a, b| a < b), "ordinals rise"),
            strings => {
                strings.strings.verify();
                let rising = |code: usize| strings.get(code - 1).cmp(strings.get(code)) == Ordering::Less;
                assert!((1..strings.strings.len()).all(rising), "strings rise");
            }
        );
    }
}

/// The ordinals that a condition selects, as ranges with first and last.
pub(super) fn word_ranges<T: Word>(condition: &Condition<'_>, order: Order) -> Vec<(T, T)> {
    match condition {
        Condition::Ranges(ranges) => {
            ranges.iter().filter_map(|(low, high)| ordinals_within(low, high, order)).collect()
        }
        Condition::In(cells) => {
            let mut ranges: Vec<(T, T)> =
                cells.iter().map(|cell| T::from_cell(cell).ordinal(order).class(order)).collect();
            ranges.sort_unstable();
            ranges.dedup();
            ranges
        }
        Condition::Prefix(_) => panic!("a prefix of values that are not strings"),
    }
}
