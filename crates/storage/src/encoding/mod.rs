//! Encodings of the columns of compact blocks (Funke, Kemper and Neumann, "Compacting Transactional Data in
//! Hybrid OLTP&OLAP Databases", VLDB 2012, section 3.4; Krueger et al., "Fast Updates on Read-Optimized
//! Databases Using Multi-Core CPUs", PVLDB 5(1), 2011, section 3).
//!
//! A column of one block consists of at most three layers, each of which is optional:
//!
//! ```text
//!   slots   0 1 2 3 4 5 6 7 8 9 …
//!             │ runs       ends 3 7 9 …: consecutive equal values are one                runs.rs
//!   values  0 1 2 3 …      one for every run, or for every slot
//!             │ validity   a bit for every value
//!             │ one of
//!             ├─ plain     the words, bits or strings themselves
//!             ├─ offsets   distances from the lowest one, 1, 2, 4 or 8 bytes             codes.rs
//!             ├─ symbols   strings divided into parts that many of them share            symbols.rs
//!             └─ codes     positions in a dictionary, 1, 2 or 4 bytes                    codes.rs
//!                  │
//!   dictionary  sorted values of the whole column, shared by its blocks                  dictionary.rs
//! ```
//! Offsets from a lowest value are known as frame of reference. The runs of a column of codes are run-length
//! encoding on top of dictionary compression. One implementation of each layer serves all combinations. Slots
//! do not change, so row ids do not either.
//!
//! [`choose`] selects the layers that pay, from the [`Statistics`] of one pass. [`EncodedColumn::encode`]
//! makes all but codes and symbols. Codes come from [`merge`]: a dictionary for new blocks, merged with the
//! one that the column has, and codes for the merged one. Plain strings may be encoded as symbols afterwards
//! ([`EncodedColumn::with_symbols`]). Encoded columns are immutable, and are read
//! - by slot ([`EncodedColumn::cell`]),
//! - by range of slots, as words or as Arrow ([`EncodedColumn::decode_words`], [`EncodedColumn::to_array`]),
//!   or some slots of it ([`EncodedColumn::take`]),
//! - by [`Condition`], evaluated on the encoded form ([`EncodedColumn::select`]).

mod choose;
mod codes;
mod condition;
mod dictionary;
mod export;
pub mod merge;
mod runs;
mod strings;
mod symbols;
pub(crate) mod widen;
mod word;

#[cfg(test)]
mod tests;

pub use choose::{Distinct, Offer, Statistics, choose};
pub use codes::{Code, CodeWidth, Codes};
pub use condition::{CodeSet, Condition};
pub use dictionary::{Dictionary, MOST_VALUES, StringDictionary, WordDictionary};
pub use export::Form;
pub use merge::{Merge, TooLarge};
pub use runs::RunEnds;
pub use strings::{MOST_STRING_BYTES, Strings};
pub use word::{Order, Word};

use crate::heap::{INLINE_BYTES, inline_cell, inline_view};
use crate::memory::prefetch;
use crate::spare::Spare;
use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use condition::{select_offsets, select_words};
use firn_base::sync::{Arc, OnceLock};
use firn_base::types::Width;
use firn_base::{Cell, Representation};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use symbols::SymbolStrings;

/// The next slot's run is searched for one by one in up to this many runs.
const MOST_STEPS: usize = 8;

/// The largest number of slots of a block.
const MOST_SLOTS: usize = 1 << firn_base::ids::SLOT_BITS;

/// A column of a block before it is encoded.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Its values. Those of NULLs may be anything.
    pub values: Source<'a>,
    /// Which of them are not NULL; all if there is no bitmap.
    pub nulls: Option<&'a NullBuffer>,
}

/// Values before they are encoded.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Booleans
    Bits(&'a BooleanBuffer),
    /// 2 bytes
    Two(&'a [i16]),
    /// 4 bytes
    Four(&'a [i32]),
    /// 8 bytes
    Eight(&'a [i64]),
    /// 16 bytes
    Sixteen(&'a [i128]),
    /// Strings, UTF-8 if the type is a text type
    Strings(&'a [&'a [u8]]),
}

impl Piece<'_> {
    /// How many slots it has.
    pub fn slots(&self) -> usize {
        match self.values {
            Source::Bits(bits) => bits.len(),
            Source::Two(words) => words.len(),
            Source::Four(words) => words.len(),
            Source::Eight(words) => words.len(),
            Source::Sixteen(words) => words.len(),
            Source::Strings(strings) => strings.len(),
        }
    }

    #[inline]
    fn is_null(&self, slot: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(slot))
    }

    /// Panics unless it holds values of the type, and a bit for each if there is a bitmap.
    fn check(&self, representation: Representation) {
        let fits = match self.values {
            Source::Bits(_) => representation.width() == Width::Bit,
            Source::Two(_) => representation.width() == Width::Fixed(2),
            Source::Four(_) => representation.width() == Width::Fixed(4),
            Source::Eight(_) => representation.width() == Width::Fixed(8),
            Source::Sixteen(_) => representation.width() == Width::Fixed(16),
            Source::Strings(_) => representation.width() == Width::View,
        };
        assert!(fits, "{representation} is of another width");
        assert!(self.slots() <= MOST_SLOTS, "a block cannot have {} slots", self.slots());
        assert!(self.nulls.is_none_or(|nulls| nulls.len() == self.slots()));
    }
}

/// The layers of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoding {
    /// Consecutive equal values are stored once.
    pub runs: bool,
    /// The representation of the values.
    pub values: Kept,
}

/// The representation of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// As they are.
    Plain,
    /// As distances from the lowest one.
    Offsets,
    /// As symbols, in a table of the block.
    Symbols,
    /// As positions in the column's dictionary.
    Codes,
}

/// A column of a block, encoded.
#[derive(Clone, Debug)]
pub struct EncodedColumn {
    representation: Representation,
    slots: usize,
    runs: Option<RunEnds>,
    /// For values: for runs, if there are runs.
    nulls: Option<NullBuffer>,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    Bits(BooleanBuffer),
    Two(Words<i16>),
    Four(Words<i32>),
    Eight(Words<i64>),
    Sixteen(Words<i128>),
    Strings(StringValues),
}

#[derive(Clone, Debug)]
enum Words<T: Word> {
    Plain(ScalarBuffer<T>),
    Offsets { base: T, offsets: Codes },
    Codes { codes: Codes, dictionary: Arc<WordDictionary<T>> },
}

#[derive(Clone, Debug)]
enum StringValues {
    Plain { strings: Strings, array: Arc<OnceLock<ArrayRef>> },
    Symbols(SymbolStrings),
    Codes { codes: Codes, dictionary: Arc<StringDictionary> },
}

/// Runs an expression over words of any width, or others over bits or strings.
macro_rules! each_values {
    ($values:expr, $bits:ident => $of_bits:expr, $words:ident => $of_words:expr, $strings:ident => $of_strings:expr) => {
        match $values {
            $crate::encoding::Values::Bits($bits) => $of_bits,
            $crate::encoding::Values::Two($words) => $of_words,
            $crate::encoding::Values::Four($words) => $of_words,
            $crate::encoding::Values::Eight($words) => $of_words,
            $crate::encoding::Values::Sixteen($words) => $of_words,
            $crate::encoding::Values::Strings($strings) => $of_strings,
        }
    };
}
use each_values;

/// The types of words in a column.
pub trait ColumnWord: Word {
    #[doc(hidden)]
    fn of_source<'a>(source: &Source<'a>) -> Option<&'a [Self]>;
    #[doc(hidden)]
    fn of_dictionary(dictionary: &Dictionary) -> Option<&Arc<WordDictionary<Self>>>;
    #[doc(hidden)]
    fn into_dictionary(dictionary: Arc<WordDictionary<Self>>) -> Dictionary;
}

/// Functions that only this module uses.
trait Sealed: ColumnWord + Spare {
    fn of(values: &Values) -> Option<&Words<Self>>;
    fn into_values(words: Words<Self>) -> Values;
}

macro_rules! column_words {
    ($($word:ty: $variant:ident),*) => {$(
        impl ColumnWord for $word {
            fn of_source<'a>(source: &Source<'a>) -> Option<&'a [Self]> {
                if let Source::$variant(words) = source { Some(words) } else { None }
            }

            fn of_dictionary(dictionary: &Dictionary) -> Option<&Arc<WordDictionary<Self>>> {
                if let Dictionary::$variant(words) = dictionary { Some(words) } else { None }
            }

            fn into_dictionary(dictionary: Arc<WordDictionary<Self>>) -> Dictionary {
                Dictionary::$variant(dictionary)
            }
        }

        impl Sealed for $word {
            #[inline]
            fn of(values: &Values) -> Option<&Words<Self>> {
                if let Values::$variant(words) = values { Some(words) } else { None }
            }

            fn into_values(words: Words<Self>) -> Values {
                Values::$variant(words)
            }
        }
    )*};
}
column_words!(i16: Two, i32: Four, i64: Eight, i128: Sixteen);

impl<T: Word> Words<T> {
    fn len(&self) -> usize {
        match self {
            Words::Plain(words) => words.len(),
            Words::Offsets { offsets: codes, .. } | Words::Codes { codes, .. } => codes.len(),
        }
    }

    #[inline]
    fn get(&self, at: usize) -> T {
        match self {
            Words::Plain(words) => words[at],
            Words::Offsets { base, offsets } => base.plus(offsets.number(at)),
            Words::Codes { codes, dictionary } => dictionary.word(codes.get(at)),
        }
    }

    /// Prefetches what [`Words::get`] reads first.
    #[inline]
    fn prefetch(&self, at: usize) {
        match self {
            Words::Plain(words) => prefetch(words.as_ptr().wrapping_add(at).cast()),
            Words::Offsets { offsets: codes, .. } | Words::Codes { codes, .. } => codes.prefetch(at),
        }
    }

    /// Prefetches what the code refers to, if it is one of a dictionary.
    #[inline]
    fn prefetch_further(&self, at: usize) {
        if let Words::Codes { codes, dictionary } = self {
            prefetch(dictionary.ordinals.as_ptr().wrapping_add(codes.get(at)).cast());
        }
    }

    /// Appends a range of them, each converted by `of`. NULLs may be anything.
    #[inline]
    fn decode<U>(&self, range: Range<usize>, out: &mut Vec<U>, of: impl Fn(T) -> U) {
        match self {
            Words::Plain(words) => out.extend(words[range].iter().map(|word| of(*word))),
            Words::Offsets { base, offsets } => codes::each_codes!(offsets, offsets => {
                out.extend(offsets[range].iter().map(|offset| of(base.plus(offset.number()))));
            }),
            Words::Codes { codes, dictionary } => {
                let (ordinals, order) = (&dictionary.ordinals[..], dictionary.order());
                codes::each_codes!(codes, codes => match order {
                    Order::Signed | Order::Foreign => {
                        out.extend(codes[range].iter().map(|code| of(ordinals[code.number() as usize])));
                    }
                    order => {
                        let word = |code: usize| of(ordinals[code].word(order));
                        out.extend(codes[range].iter().map(|code| word(code.number() as usize)));
                    }
                });
            }
        }
    }

    /// Appends a range of them, widened to 16 bytes.
    fn decode_wide(&self, range: Range<usize>, out: &mut Vec<i128>) {
        let narrow = |word: T| word.to_i128() as i64;
        match self {
            Words::Plain(words) => widen::widen(&words[range], narrow, out),
            Words::Offsets { base, offsets } => codes::each_codes!(offsets, offsets => {
                let base = *base;
                widen::widen(&offsets[range], move |offset| narrow(base.plus(offset.number())), out);
            }),
            Words::Codes { codes: Codes::One(codes), dictionary } => {
                let mut table = [0; 256];
                for (wide, code) in table.iter_mut().zip(0..dictionary.ordinals.len()) {
                    *wide = dictionary.word(code).to_i128();
                }
                out.extend(codes[range].iter().map(|code| table[usize::from(*code)]));
            }
            Words::Codes { .. } => self.decode(range, out, T::to_i128),
        }
    }

    /// The words at some places.
    fn take(&self, places: &[u32]) -> Vec<T> {
        let places = places.iter().map(|place| *place as usize);
        match self {
            Words::Plain(words) => places.map(|place| words[place]).collect(),
            Words::Offsets { base, offsets } => codes::each_codes!(offsets, offsets => {
                places.map(|place| base.plus(offsets[place].number())).collect()
            }),
            Words::Codes { codes, dictionary } => codes::each_codes!(codes, codes => {
                places.map(|place| dictionary.word(codes[place].number() as usize)).collect()
            }),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Words::Plain(words) => size_of_val(&words[..]),
            Words::Offsets { offsets: codes, .. } | Words::Codes { codes, .. } => codes.bytes(),
        }
    }

    fn kept(&self) -> Kept {
        match self {
            Words::Plain(_) => Kept::Plain,
            Words::Offsets { .. } => Kept::Offsets,
            Words::Codes { .. } => Kept::Codes,
        }
    }
}

impl StringValues {
    fn plain(strings: Strings) -> StringValues {
        StringValues::Plain { strings, array: Arc::new(OnceLock::new()) }
    }

    fn len(&self) -> usize {
        match self {
            StringValues::Plain { strings, .. } => strings.len(),
            StringValues::Symbols(strings) => strings.len(),
            StringValues::Codes { codes, .. } => codes.len(),
        }
    }

    /// The string at a place, put into `decoded` if it has to be decoded.
    #[inline]
    fn get<'a>(&'a self, at: usize, decoded: &'a mut Vec<u8>) -> &'a [u8] {
        match self {
            StringValues::Plain { strings, .. } => strings.get(at),
            StringValues::Symbols(strings) => {
                decoded.clear();
                strings.decode(at, decoded);
                decoded
            }
            StringValues::Codes { codes, dictionary } => dictionary.get(codes.get(at)),
        }
    }
}

impl EncodedColumn {
    /// Encodes a column of a block without a dictionary. `None` if strings are too long together
    /// ([`MOST_STRING_BYTES`]), or values too far apart for offsets of 64 bits.
    ///
    /// Panics if the values are not of the type, if the encoding is one of codes, or if it is one of offsets
    /// and the type has no lowest number.
    pub fn encode(
        representation: Representation,
        piece: Piece<'_>,
        encoding: Encoding,
    ) -> Option<EncodedColumn> {
        piece.check(representation);
        if !encoding.runs {
            return encode_values(representation, piece, None, encoding.kept());
        }
        let (runs, values) = find_runs(piece);
        encode_values(representation, values.piece(), Some(runs), encoding.kept())
    }

    /// A column of NULLs only: one run.
    pub fn of_nulls(representation: Representation, slots: usize) -> EncodedColumn {
        assert!(slots <= MOST_SLOTS);
        let runs = RunEnds::new(if slots == 0 { Vec::new() } else { vec![slots as i32] });
        let places = runs.len();
        fn zeros<T: Sealed>(places: usize) -> Values {
            T::into_values(Words::Plain(vec![T::default(); places].into()))
        }
        let values = match representation.width() {
            Width::Bit => Values::Bits(BooleanBuffer::new_unset(places)),
            Width::Fixed(2) => zeros::<i16>(places),
            Width::Fixed(4) => zeros::<i32>(places),
            Width::Fixed(8) => zeros::<i64>(places),
            Width::Fixed(_) => zeros::<i128>(places),
            Width::View => {
                Values::Strings(StringValues::plain(Strings::new(vec![0; places + 1], Vec::new())))
            }
        };
        let nulls = (places > 0).then(|| NullBuffer::new_null(places));
        EncodedColumn { representation, slots, runs: Some(runs), nulls, values }
    }

    /// A column of codes. An empty dictionary has no codes: all values are NULL.
    fn of_codes(
        representation: Representation,
        runs: Option<RunEnds>,
        nulls: Option<NullBuffer>,
        codes: Codes,
        dictionary: &Dictionary,
    ) -> EncodedColumn {
        let slots = runs.as_ref().map_or(codes.len(), RunEnds::slots);
        if dictionary.is_empty() {
            return EncodedColumn::of_nulls(representation, slots);
        }
        let values = match dictionary.clone() {
            Dictionary::Two(dictionary) => Values::Two(Words::Codes { codes, dictionary }),
            Dictionary::Four(dictionary) => Values::Four(Words::Codes { codes, dictionary }),
            Dictionary::Eight(dictionary) => Values::Eight(Words::Codes { codes, dictionary }),
            Dictionary::Sixteen(dictionary) => Values::Sixteen(Words::Codes { codes, dictionary }),
            Dictionary::Strings(dictionary) => Values::Strings(StringValues::Codes { codes, dictionary }),
        };
        EncodedColumn { representation, slots, runs, nulls, values }
    }

    /// The column with its strings encoded as symbols, if they are plain and become much smaller.
    #[must_use]
    pub fn with_symbols(mut self) -> EncodedColumn {
        if let Values::Strings(StringValues::Plain { strings, .. }) = &self.values
            && self.string_bytes_of_slots(strings) <= symbols::MOST_BYTES
            && let Some(strings) = SymbolStrings::of(strings)
        {
            self.values = Values::Strings(StringValues::Symbols(strings));
        }
        self
    }

    /// The length of the strings of all slots.
    fn string_bytes_of_slots(&self, strings: &Strings) -> usize {
        match &self.runs {
            None => strings.all_bytes().len(),
            Some(runs) => {
                let lengths = runs.lengths(0..self.slots).enumerate();
                lengths.map(|(run, length)| strings.get(run).len() * length).sum()
            }
        }
    }

    /// The type of its values.
    pub fn representation(&self) -> Representation {
        self.representation
    }

    /// How many slots it has.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Its layers.
    pub fn encoding(&self) -> Encoding {
        let values = each_values!(
            &self.values,
            _bits => Kept::Plain,
            words => words.kept(),
            strings => match strings {
                StringValues::Plain { .. } => Kept::Plain,
                StringValues::Symbols(_) => Kept::Symbols,
                StringValues::Codes { .. } => Kept::Codes,
            }
        );
        Encoding { runs: self.runs.is_some(), values }
    }

    /// The memory it takes, without the dictionary that it shares and without Arrow arrays made from plain
    /// strings.
    pub fn bytes(&self) -> usize {
        let values = each_values!(
            &self.values,
            bits => bits.len().div_ceil(8),
            words => words.bytes(),
            strings => match strings {
                StringValues::Plain { strings, .. } => strings.bytes(),
                StringValues::Symbols(strings) => strings.bytes(),
                StringValues::Codes { codes, .. } => codes.bytes(),
            }
        );
        let nulls = self.nulls.as_ref().map_or(0, |nulls| nulls.len().div_ceil(8));
        values + nulls + self.runs.as_ref().map_or(0, RunEnds::bytes)
    }

    /// Its codes and their dictionary, if it has codes: one for every run or slot.
    pub fn codes(&self) -> Option<(&Codes, Dictionary)> {
        fn of<T: Sealed>(words: &Words<T>) -> Option<(&Codes, Dictionary)> {
            let Words::Codes { codes, dictionary } = words else { return None };
            Some((codes, T::into_dictionary(dictionary.clone())))
        }
        each_values!(
            &self.values,
            _bits => None,
            words => of(words),
            strings => match strings {
                StringValues::Plain { .. } | StringValues::Symbols(_) => None,
                StringValues::Codes { codes, dictionary } => Some((codes, Dictionary::Strings(dictionary.clone()))),
            }
        )
    }

    /// Whether a slot's value is NULL.
    #[inline]
    pub fn is_null(&self, slot: usize) -> bool {
        assert!(slot < self.slots);
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(self.place(slot)))
    }

    /// The place of a slot's value.
    #[inline]
    fn place(&self, slot: usize) -> usize {
        match &self.runs {
            Some(runs) => runs.find(slot),
            None => slot,
        }
    }

    /// The places of the values of some slots, in ascending order.
    fn places<'s>(&self, slots: &'s [u32]) -> Cow<'s, [u32]> {
        let Some(runs) = &self.runs else { return slots.into() };
        let ends = runs.ends();
        let Some(first) = slots.first() else { return Cow::Borrowed(&[]) };
        let mut run = runs.find(*first as usize);
        let mut place = |slot: u32| {
            // Mostly in the same run, or in one of the next few.
            let mut steps = 0;
            while ends[run] as u32 <= slot {
                steps += 1;
                run = if steps > MOST_STEPS { runs.find(slot as usize) } else { run + 1 };
            }
            run as u32
        };
        slots.iter().map(|slot| place(*slot)).collect()
    }

    /// Prefetches what [`EncodedColumn::cell`] reads first. If many columns of a row are read, their cache
    /// misses overlap.
    #[inline]
    pub fn prefetch(&self, slot: usize) {
        match &self.runs {
            Some(runs) => runs.prefetch(slot),
            None => self.prefetch_place(slot),
        }
    }

    #[inline]
    fn prefetch_place(&self, place: usize) {
        if let Some(nulls) = &self.nulls {
            prefetch(nulls.validity().as_ptr().wrapping_add((nulls.offset() + place) / 8));
        }
        each_values!(
            &self.values,
            bits => prefetch(bits.values().as_ptr().wrapping_add((bits.offset() + place) / 8)),
            words => words.prefetch(place),
            strings => match strings {
                StringValues::Plain { strings, .. } => strings.prefetch(place),
                StringValues::Symbols(strings) => strings.prefetch(place),
                StringValues::Codes { codes, .. } => codes.prefetch(place),
            }
        );
    }

    /// Prefetches what the memory refers to that [`EncodedColumn::prefetch`] fetched.
    #[inline]
    pub fn prefetch_further(&self, slot: usize) {
        if let Some(runs) = &self.runs {
            return self.prefetch_place(runs.find(slot));
        }
        each_values!(
            &self.values,
            _bits => {},
            words => words.prefetch_further(slot),
            strings => match strings {
                StringValues::Plain { strings, .. } => strings.prefetch_further(slot),
                StringValues::Symbols(strings) => strings.prefetch_further(slot),
                StringValues::Codes { codes, dictionary } => dictionary.strings.prefetch(codes.get(slot)),
            }
        );
    }

    /// The value of a slot. `keep` gets a longer string that had to be decoded, and returns a reference that
    /// outlives the cell.
    #[inline(always)]
    pub fn cell<'a>(&'a self, slot: usize, keep: impl FnOnce(Vec<u8>) -> &'a [u8]) -> Cell<'a> {
        assert!(slot < self.slots);
        let place = self.place(slot);
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(place)) {
            return Cell::Null;
        }
        each_values!(
            &self.values,
            bits => Cell::boolean(bits.value(place)),
            words => words.get(place).to_cell(),
            strings => match strings {
                StringValues::Plain { strings, .. } => Cell::Bytes(strings.get(place)),
                StringValues::Symbols(strings) => {
                    let mut decoded = Vec::new();
                    strings.decode(place, &mut decoded);
                    match decoded.len() {
                        ..=INLINE_BYTES => inline_cell(inline_view(&decoded)),
                        _ => Cell::Bytes(keep(decoded)),
                    }
                }
                StringValues::Codes { codes, dictionary } => Cell::Bytes(dictionary.get(codes.get(place))),
            }
        )
    }

    /// The word of a slot; anything if the value is NULL. Panics if the column's words are of another width.
    #[inline]
    #[expect(private_bounds, reason = "there are only four types of words")]
    pub fn word<T: Sealed>(&self, slot: usize) -> T {
        T::of(&self.values).expect("words of the column's width").get(self.place(slot))
    }

    /// Appends the words of a range of slots; they may be anything where values are NULL. Panics if the
    /// column's words are of another width.
    #[expect(private_bounds, reason = "as above")]
    pub fn decode_words<T: Sealed>(&self, slots: Range<usize>, out: &mut Vec<T>) {
        let words = T::of(&self.values).expect("words of the column's width");
        self.decode(slots, out, |places, out| words.decode(places, out, |word| word));
    }

    /// Appends the values of a range of slots, as `decode` converts them.
    fn decode<U: Copy + Default>(
        &self,
        slots: Range<usize>,
        out: &mut Vec<U>,
        decode: impl Fn(Range<usize>, &mut Vec<U>),
    ) {
        let Some(runs) = &self.runs else { return decode(slots, out) };
        let mut values = Vec::new();
        decode(runs.overlapping(&slots), &mut values);
        runs.repeat(&values, slots, out);
    }

    /// Calls `take` with the strings of a range of slots, each with its number of consecutive slots; anything
    /// where values are NULL. Panics if the column has no strings.
    pub fn each_string(&self, slots: Range<usize>, mut take: impl FnMut(&[u8], usize)) {
        let Values::Strings(strings) = &self.values else {
            panic!("{} is not a string type", self.representation)
        };
        let mut decoded = Vec::new();
        match &self.runs {
            None => slots.for_each(|slot| take(strings.get(slot, &mut decoded), 1)),
            Some(runs) => {
                for (run, length) in runs.overlapping(&slots).zip(runs.lengths(slots)) {
                    take(strings.get(run, &mut decoded), length);
                }
            }
        }
    }

    /// All bytes of the column's strings; those of its dictionary if it has one. `None` if it has no strings,
    /// or only encoded ones.
    pub fn string_bytes(&self) -> Option<&Buffer> {
        match &self.values {
            Values::Strings(StringValues::Plain { strings, .. }) => Some(strings.buffer()),
            Values::Strings(StringValues::Codes { dictionary, .. }) => Some(dictionary.strings.buffer()),
            _ => None,
        }
    }

    /// The booleans of a range of slots; anything where values are NULL. Panics if the column has no
    /// booleans.
    pub fn decode_bits(&self, slots: Range<usize>) -> BooleanBuffer {
        let Values::Bits(bits) = &self.values else { panic!("{} is not boolean", self.representation) };
        self.expand(bits, slots)
    }

    /// Which values of a range of slots are not NULL; `None` if all are.
    pub fn validity(&self, slots: Range<usize>) -> Option<NullBuffer> {
        let nulls = NullBuffer::new(self.expand(self.nulls.as_ref()?.inner(), slots));
        (nulls.null_count() > 0).then_some(nulls)
    }

    /// A bit for every slot of a range, from bits for all values.
    fn expand(&self, bits: &BooleanBuffer, slots: Range<usize>) -> BooleanBuffer {
        match &self.runs {
            None => bits.slice(slots.start, slots.len()),
            Some(runs) => runs.repeat_bits(bits, 0, slots),
        }
    }

    /// A bit for every slot of a range: whether a condition selects its value. `None` if only the decoded
    /// values can decide it: see [`Condition::is_decidable`].
    pub fn select(&self, slots: Range<usize>, condition: &Condition<'_>) -> Option<BooleanBuffer> {
        if let Some((_, dictionary)) = self.codes() {
            return Some(self.select_codes(slots, &dictionary.codes_of(condition)?));
        }
        if !condition.is_decidable(self.representation) {
            return None;
        }
        fn of_words<T: Word>(
            words: &Words<T>,
            places: Range<usize>,
            condition: &Condition<'_>,
            order: Order,
        ) -> BooleanBuffer {
            let ranges = condition.ordinal_ranges(order);
            match words {
                Words::Plain(words) => select_words(&words[places], order, &ranges),
                Words::Offsets { base, offsets } => select_offsets(&offsets.slice(places), *base, &ranges),
                Words::Codes { .. } => unreachable!("codes are selected by sets"),
            }
        }
        Some(self.select_by(slots, |places| {
            each_values!(
                &self.values,
                bits => {
                    let bits = bits.slice(places.start, places.len());
                    match (condition.takes_boolean(false), condition.takes_boolean(true)) {
                        (false, true) => bits,
                        (true, false) => !&bits,
                        (both, _) if both => BooleanBuffer::new_set(bits.len()),
                        _ => BooleanBuffer::new_unset(bits.len()),
                    }
                },
                words => of_words(words, places, condition, Order::of(self.representation)),
                strings => {
                    let mut decoded = Vec::new();
                    places.map(|place| condition.takes_string(strings.get(place, &mut decoded))).collect()
                }
            )
        }))
    }

    /// As [`EncodedColumn::select`], with the codes that a condition selects, computed once for all blocks
    /// with the same dictionary. Panics if the column has no codes.
    pub fn select_codes(&self, slots: Range<usize>, set: &CodeSet) -> BooleanBuffer {
        let (codes, dictionary) = self.codes().expect("a column of codes");
        assert_eq!(set.dictionary_values(), dictionary.len(), "codes of another dictionary");
        if set.is_empty() {
            return BooleanBuffer::new_unset(slots.len());
        }
        self.select_by(slots, |places| set.select(&codes.slice(places)))
    }

    /// Selects among values, then removes NULLs and makes whole runs of bits.
    fn select_by(
        &self,
        slots: Range<usize>,
        select: impl FnOnce(Range<usize>) -> BooleanBuffer,
    ) -> BooleanBuffer {
        assert!(slots.start <= slots.end && slots.end <= self.slots);
        let places = self.runs.as_ref().map_or(slots.clone(), |runs| runs.overlapping(&slots));
        let mut selected = select(places.clone());
        if let Some(nulls) = &self.nulls {
            selected = &selected & nulls.slice(places.start, places.len()).inner();
        }
        match &self.runs {
            None => selected,
            Some(runs) => runs.repeat_bits(&selected, places.start, slots),
        }
    }

    /// Panics if an invariant does not hold.
    pub fn verify(&self) {
        fn of_words<T: Word>(words: &Words<T>, is_null: impl Fn(usize) -> bool) {
            match words {
                Words::Plain(_) => {}
                Words::Offsets { base, offsets } => {
                    for place in (0..offsets.len()).filter(|place| !is_null(*place)) {
                        assert!(base.plus(offsets.number(place)) >= *base, "offsets stay within the type");
                    }
                }
                Words::Codes { codes, dictionary } => check_codes(codes, dictionary.ordinals.len()),
            }
        }
        fn check_codes(codes: &Codes, values: usize) {
            assert!(codes.highest().is_none_or(|highest| highest < values as u64), "codes refer to values");
            let most = values.saturating_sub(1) as u64;
            assert_eq!(codes.width(), CodeWidth::for_highest(most), "codes have the dictionary's width");
        }
        let places = each_values!(
            &self.values,
            bits => bits.len(),
            words => {
                of_words(words, |place| self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(place)));
                words.len()
            },
            strings => {
                match strings {
                    StringValues::Plain { strings, .. } => strings.verify(),
                    StringValues::Symbols(strings) => strings.verify(),
                    StringValues::Codes { codes, dictionary } => check_codes(codes, dictionary.strings.len()),
                }
                strings.len()
            }
        );
        match &self.runs {
            None => assert_eq!(places, self.slots),
            Some(runs) => {
                runs.verify();
                assert_eq!((runs.len(), runs.slots()), (places, self.slots));
            }
        }
        assert!(self.nulls.as_ref().is_none_or(|nulls| nulls.len() == places && nulls.null_count() > 0));
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.runs, self.values) {
            (false, Kept::Plain) => "plain",
            (false, Kept::Offsets) => "offsets",
            (false, Kept::Symbols) => "symbols",
            (false, Kept::Codes) => "codes",
            (true, Kept::Plain) => "runs",
            (true, Kept::Offsets) => "runs of offsets",
            (true, Kept::Symbols) => "runs of symbols",
            (true, Kept::Codes) => "runs of codes",
        })
    }
}

impl Encoding {
    /// The representation of the values. Panics for those that need a dictionary or plain strings first.
    fn kept(self) -> Kept {
        assert_ne!(self.values, Kept::Codes, "codes come from a merge");
        assert_ne!(self.values, Kept::Symbols, "symbols are found in plain strings");
        self.values
    }
}

/// The values of a piece's runs.
struct RunValues<'a> {
    values: Owned<'a>,
    nulls: Option<NullBuffer>,
}

enum Owned<'a> {
    Bits(BooleanBuffer),
    Two(Vec<i16>),
    Four(Vec<i32>),
    Eight(Vec<i64>),
    Sixteen(Vec<i128>),
    Strings(Vec<&'a [u8]>),
}

impl RunValues<'_> {
    fn piece(&self) -> Piece<'_> {
        let values = match &self.values {
            Owned::Bits(bits) => Source::Bits(bits),
            Owned::Two(words) => Source::Two(words),
            Owned::Four(words) => Source::Four(words),
            Owned::Eight(words) => Source::Eight(words),
            Owned::Sixteen(words) => Source::Sixteen(words),
            Owned::Strings(strings) => Source::Strings(strings),
        };
        Piece { values, nulls: self.nulls.as_ref() }
    }
}

/// The runs of a piece, and a value for each.
fn find_runs<'a>(piece: Piece<'a>) -> (RunEnds, RunValues<'a>) {
    fn ends_of<T: PartialEq>(piece: &Piece<'_>, get: impl Fn(usize) -> T) -> Vec<i32> {
        runs::ends(piece.slots(), |slot| match (piece.is_null(slot - 1), piece.is_null(slot)) {
            (false, false) => get(slot - 1) == get(slot),
            (before, now) => before == now,
        })
    }
    let firsts = |ends: &[i32]| -> Vec<usize> {
        std::iter::once(0).chain(ends.iter().map(|end| *end as usize)).take(ends.len()).collect()
    };
    fn words<T: Word>(
        piece: &Piece<'_>,
        words: &[T],
        firsts: impl Fn(&[i32]) -> Vec<usize>,
    ) -> (Vec<i32>, Vec<usize>, Vec<T>) {
        let ends = ends_of(piece, |slot| words[slot]);
        let firsts = firsts(&ends);
        let values = firsts.iter().map(|slot| words[*slot]).collect();
        (ends, firsts, values)
    }
    let (ends, firsts, values) = match piece.values {
        Source::Bits(bits) => {
            let ends = ends_of(&piece, |slot| bits.value(slot));
            let firsts = firsts(&ends);
            let values = firsts.iter().map(|slot| bits.value(*slot)).collect();
            (ends, firsts, Owned::Bits(values))
        }
        Source::Two(source) => {
            let (ends, firsts, values) = words(&piece, source, firsts);
            (ends, firsts, Owned::Two(values))
        }
        Source::Four(source) => {
            let (ends, firsts, values) = words(&piece, source, firsts);
            (ends, firsts, Owned::Four(values))
        }
        Source::Eight(source) => {
            let (ends, firsts, values) = words(&piece, source, firsts);
            (ends, firsts, Owned::Eight(values))
        }
        Source::Sixteen(source) => {
            let (ends, firsts, values) = words(&piece, source, firsts);
            (ends, firsts, Owned::Sixteen(values))
        }
        Source::Strings(strings) => {
            let ends = ends_of(&piece, |slot| strings[slot]);
            let firsts = firsts(&ends);
            let values = firsts.iter().map(|slot| strings[*slot]).collect();
            (ends, firsts, Owned::Strings(values))
        }
    };
    let nulls = piece.nulls.map(|nulls| firsts.iter().map(|slot| nulls.is_valid(*slot)).collect());
    (RunEnds::new(ends), RunValues { values, nulls: nulls.map(NullBuffer::new) })
}

/// A bitmap is kept only if it has NULLs, and as a copy of its own rather than a part of a larger one.
fn kept_nulls(nulls: Option<&NullBuffer>) -> Option<NullBuffer> {
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0)?;
    Some(NullBuffer::new(BooleanBuffer::new(nulls.inner().sliced(), 0, nulls.len())))
}

fn encode_values(
    representation: Representation,
    piece: Piece<'_>,
    runs: Option<RunEnds>,
    kept: Kept,
) -> Option<EncodedColumn> {
    fn of_words<T: Sealed>(
        words: &[T],
        piece: &Piece<'_>,
        representation: Representation,
        kept: Kept,
    ) -> Option<Values> {
        Some(T::into_values(match kept {
            Kept::Offsets => {
                assert_eq!(Order::of(representation), Order::Signed, "{representation} has no lowest number");
                let valid =
                    || (0..words.len()).filter(|place| !piece.is_null(*place)).map(|place| words[place]);
                let base = valid().min().unwrap_or(T::LOWEST);
                let highest = valid().max().unwrap_or(base);
                let span = base.span(highest)?;
                let offset = |place| if piece.is_null(place) { 0 } else { words[place].offset_from(base) };
                Words::Offsets { base, offsets: Codes::collect(span, (0..words.len()).map(offset)) }
            }
            _ => Words::Plain(words.to_vec().into()),
        }))
    }
    let values = match piece.values {
        Source::Bits(bits) => Values::Bits(BooleanBuffer::new(bits.sliced(), 0, bits.len())),
        Source::Two(words) => of_words(words, &piece, representation, kept)?,
        Source::Four(words) => of_words(words, &piece, representation, kept)?,
        Source::Eight(words) => of_words(words, &piece, representation, kept)?,
        Source::Sixteen(words) => of_words(words, &piece, representation, kept)?,
        Source::Strings(strings) => {
            let valid = strings.iter().enumerate();
            let valid = valid.map(|(place, string)| if piece.is_null(place) { &[][..] } else { *string });
            Values::Strings(StringValues::plain(Strings::collect(valid)?))
        }
    };
    let slots = runs.as_ref().map_or(piece.slots(), RunEnds::slots);
    Some(EncodedColumn { representation, slots, runs, nulls: kept_nulls(piece.nulls), values })
}
