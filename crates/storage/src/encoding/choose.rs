//! The choice of an encoding for a column of a block.
//!
//! One pass over the values counts runs, NULLs and bytes, finds the lowest and the highest value, and
//! estimates the number of different values. From this follows the size of every encoding, exact except for
//! the estimate. The smallest wins, where each is weighed by its cost of reading ([`COST`]).

use super::word::{Order, Word, fold};
use super::{CodeWidth, Encoding, Kept, Piece, Source};
use firn_base::Representation;
use firn_base::types::Width;

/// The number of registers of an estimate: its standard error is 1.04 / √4096 = 1.6 %.
const REGISTERS: usize = 1 << 12;

/// An estimate of the number of different values: HyperLogLog (Flajolet, Fusy, Gandouet and Meunier,
/// "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", AofA 2007, figure 3).
/// Estimates of several blocks can be joined to one of all of them.
#[derive(Clone, Debug)]
pub struct Distinct {
    /// For each register, the largest number of leading zeros among the hashes that selected it, plus one.
    registers: Box<[u8; REGISTERS]>,
}

impl Distinct {
    pub(super) fn new() -> Distinct {
        Distinct { registers: Box::new([0; REGISTERS]) }
    }

    /// Counts a value by its hash: a [word's](Word::hash), or a [string's](super::merge::hash_string).
    #[inline]
    pub(super) fn add(&mut self, hash: u64) {
        const CHOOSING: u32 = REGISTERS.trailing_zeros();
        // Folded once more, since the highest bits of one product are distributed more evenly than random
        // ones.
        let hash = fold(hash, 0);
        let register = &mut self.registers[(hash >> (64 - CHOOSING)) as usize];
        // The bit behind the last one limits the zeros of a hash that has no other bit.
        let zeros = (hash << CHOOSING | 1 << (CHOOSING - 1)).leading_zeros() as u8 + 1;
        *register = zeros.max(*register);
    }

    /// Joins another estimate.
    pub fn join(&mut self, other: &Distinct) {
        for (register, other) in self.registers.iter_mut().zip(other.registers.iter()) {
            *register = (*register).max(*other);
        }
    }

    /// The estimate.
    pub fn estimate(&self) -> u64 {
        let count = REGISTERS as f64;
        let sum: f64 = self.registers.iter().map(|zeros| 2f64.powi(-i32::from(*zeros))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let empty = self.registers.iter().filter(|zeros| **zeros == 0).count();
        // A small number is estimated from the number of unused registers.
        let estimate =
            if raw <= 2.5 * count && empty > 0 { count * (count / empty as f64).ln() } else { raw };
        estimate.round() as u64
    }
}

/// The result of one pass over a column of a block.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// The type of the values.
    pub representation: Representation,
    /// Slots.
    pub slots: usize,
    /// The number of NULLs among them.
    pub nulls: usize,
    /// Runs of equal values, or of NULL.
    pub runs: usize,
    /// Different values.
    pub distinct: Distinct,
    /// The lowest and the highest word in the order of words; `None` for strings, booleans and columns of
    /// NULLs only.
    pub words: Option<(i128, i128)>,
    /// The lowest and the highest string.
    pub strings: Option<(Vec<u8>, Vec<u8>)>,
    /// Bytes of all strings, and of the first string of each run.
    pub string_bytes: (usize, usize),
}

impl Statistics {
    /// Gathers the statistics of a column of a block.
    pub fn gather(representation: Representation, piece: Piece<'_>) -> Statistics {
        piece.check(representation);
        let mut statistics = Statistics {
            representation,
            slots: piece.slots(),
            nulls: piece.nulls.map_or(0, |nulls| nulls.null_count()),
            runs: 0,
            distinct: Distinct::new(),
            words: None,
            strings: None,
            string_bytes: (0, 0),
        };
        match piece.values {
            Source::Bits(bits) => {
                let hash = |value| fold(u64::from(value), 0);
                statistics.pass(&piece, |slot| bits.value(slot), hash, |_| {});
            }
            Source::Two(words) => statistics.pass_words(&piece, words),
            Source::Four(words) => statistics.pass_words(&piece, words),
            Source::Eight(words) => statistics.pass_words(&piece, words),
            Source::Sixteen(words) => statistics.pass_words(&piece, words),
            Source::Strings(strings) => {
                let mut bytes = 0;
                let mut ends: Option<(&[u8], &[u8])> = None;
                let mut runs_bytes = 0;
                let mut last: &[u8] = &[];
                let mut began = false;
                statistics.pass(
                    &piece,
                    |slot| strings[slot],
                    super::merge::hash_string,
                    |string| {
                        bytes += string.len();
                        // Close enough: a run that NULLs interrupt counts once.
                        if !began || last != string {
                            runs_bytes += string.len();
                            (last, began) = (string, true);
                        }
                        ends = Some(
                            ends.map_or((string, string), |(low, high)| (low.min(string), high.max(string))),
                        );
                    },
                );
                statistics.strings = ends.map(|(low, high)| (low.to_vec(), high.to_vec()));
                statistics.string_bytes = (bytes, runs_bytes);
            }
        }
        statistics
    }

    fn pass_words<T: Word>(&mut self, piece: &Piece<'_>, words: &[T]) {
        let (mut low, mut high) = (T::HIGHEST, T::LOWEST);
        self.pass(
            piece,
            |slot| words[slot],
            T::hash,
            |word| {
                low = low.min(word);
                high = high.max(word);
            },
        );
        self.words = (low <= high).then(|| (low.to_i128(), high.to_i128()));
    }

    fn pass<V: PartialEq + Copy>(
        &mut self,
        piece: &Piece<'_>,
        get: impl Fn(usize) -> V,
        hash: impl Fn(V) -> u64,
        mut each: impl FnMut(V),
    ) {
        // Begins with NULL, which the first slot cannot continue.
        let mut last: Option<Option<V>> = None;
        for slot in 0..piece.slots() {
            let value = (!piece.is_null(slot)).then(|| get(slot));
            if last != Some(value) {
                self.runs += 1;
                last = Some(value);
                if let Some(value) = value {
                    self.distinct.add(hash(value));
                }
            }
            if let Some(value) = value {
                each(value);
            }
        }
    }

    /// Bytes of a column of this many values, some of them NULL, without the values themselves.
    fn validity_bytes(&self, places: usize) -> usize {
        if self.nulls > 0 { places.div_ceil(8) } else { 0 }
    }

    /// Bytes of this many values in an encoding; `None` if it cannot hold them.
    fn values_bytes(
        &self,
        kept: Kept,
        places: usize,
        string_bytes: usize,
        offer: Option<&Offer>,
    ) -> Option<usize> {
        Some(match (kept, self.representation.width()) {
            (Kept::Plain, Width::Bit) => places.div_ceil(8),
            (Kept::Plain, Width::Fixed(width)) => places * usize::from(width),
            (Kept::Plain, Width::View) => 4 * (places + 1) + string_bytes,
            (Kept::Offsets, Width::Fixed(width)) => {
                let (low, high) = self.words.filter(|_| Order::of(self.representation) == Order::Signed)?;
                let span = u64::try_from(high.checked_sub(low)?).ok()?;
                let narrowed = CodeWidth::for_highest(span).bytes();
                (narrowed < usize::from(width)).then_some(places * narrowed)?
            }
            (Kept::Codes, Width::Fixed(_) | Width::View) => {
                let offer = offer?;
                let share = offer.dictionary_bytes as f64 * self.slots as f64 / offer.slots.max(1) as f64;
                places * CodeWidth::for_highest(offer.values.saturating_sub(1)).bytes() + share as usize
            }
            _ => None?,
        })
    }
}

/// The dictionary that a column has, or would have once the block has joined it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Offer {
    /// The number of its values.
    pub values: u64,
    /// The memory that it takes.
    pub dictionary_bytes: u64,
    /// The slots of all blocks that share it, including this one.
    pub slots: u64,
}

impl Offer {
    /// What a column of this many slots would need, estimated from the joined [`Statistics`] of its blocks.
    pub fn estimated(
        representation: Representation,
        distinct: &Distinct,
        slots: u64,
        string_bytes: u64,
    ) -> Offer {
        let values = distinct.estimate().min(slots);
        let value_bytes = match representation.width() {
            // Without further knowledge, repeated strings are assumed to be as long on average as others.
            Width::View => 4.0 + string_bytes as f64 / slots.max(1) as f64,
            Width::Fixed(bytes) => f64::from(bytes),
            Width::Bit => 1.0,
        };
        Offer { values, dictionary_bytes: (values as f64 * value_bytes) as u64, slots }
    }
}

/// The cost of an encoding in addition to its bytes: hundredths that a byte of it counts, and bytes for the
/// encoding as such. Plain words are read in place. Offsets are added up, so they must be slightly smaller.
/// Codes are looked up in memory that may not be in the cache, and their dictionary has to be merged with
/// others: two thirds. Runs must be half as large, since a slot's run must be searched for.
const COST: [(Encoding, usize, usize); 6] = [
    (Encoding { runs: false, values: Kept::Plain }, 100, 0),
    (Encoding { runs: false, values: Kept::Offsets }, 105, 32),
    (Encoding { runs: false, values: Kept::Codes }, 150, 64),
    (Encoding { runs: true, values: Kept::Plain }, 200, 0),
    (Encoding { runs: true, values: Kept::Offsets }, 205, 32),
    (Encoding { runs: true, values: Kept::Codes }, 225, 64),
];

/// The encoding for a column of a block, given the dictionary that it could share.
pub fn choose(statistics: &Statistics, offer: Option<&Offer>) -> Encoding {
    let weighed = COST.iter().filter_map(|(encoding, cost, more)| {
        let bytes = encoded_bytes(statistics, *encoding, offer)? + more;
        Some((bytes as u128 * *cost as u128, *encoding))
    });
    // Of equal ones the first, which is cheaper to read.
    weighed.min_by_key(|(weight, _)| *weight).expect("everything can be kept plain").1
}

/// The size of a column of a block in an encoding; `None` if the encoding cannot hold it. A dictionary counts
/// by the block's share of the slots.
pub fn encoded_bytes(statistics: &Statistics, encoding: Encoding, offer: Option<&Offer>) -> Option<usize> {
    let runs = statistics.runs;
    let (places, string_bytes, ends) = match encoding.runs {
        false => (statistics.slots, statistics.string_bytes.0, 0),
        // Ends, and a guide for about every eighth run.
        true => (runs, statistics.string_bytes.1, 4 * runs + runs / 2 + 8),
    };
    let values = statistics.values_bytes(encoding.values, places, string_bytes, offer)?;
    Some(values + ends + statistics.validity_bytes(places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_buffer::{BooleanBuffer, NullBuffer};

    const PLAIN: Encoding = Encoding { runs: false, values: Kept::Plain };
    const OFFSETS: Encoding = Encoding { runs: false, values: Kept::Offsets };
    const CODES: Encoding = Encoding { runs: false, values: Kept::Codes };
    const RUNS: Encoding = Encoding { runs: true, values: Kept::Plain };
    const RUNS_OF_CODES: Encoding = Encoding { runs: true, values: Kept::Codes };

    /// The choice for a block that is the only one of its column.
    fn chosen(representation: Representation, values: Source<'_>, nulls: Option<&NullBuffer>) -> Encoding {
        let statistics = Statistics::gather(representation, Piece { values, nulls });
        let slots = statistics.slots as u64;
        let bytes = statistics.string_bytes.0 as u64;
        let offer = Offer::estimated(representation, &statistics.distinct, slots, bytes);
        choose(&statistics, Some(&offer))
    }

    #[test]
    #[cfg_attr(miri, ignore = "large, and without unsafe code")]
    fn what_is_small_and_cheap_is_chosen() {
        let spread = |number: i64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
        let eight = |of: &dyn Fn(i64) -> i64| (0..10_000).map(of).collect::<Vec<i64>>();
        let cases: [(&str, Vec<i64>, Encoding); 8] = [
            ("all differ widely", eight(&spread), PLAIN),
            ("close together", eight(&|number| (1 << 40) + spread(number).rem_euclid(60_000)), OFFSETS),
            ("rising", eight(&|number| (1 << 40) + number), OFFSETS),
            ("two hundred, far apart", eight(&|number| spread(number % 200)), CODES),
            ("two hundred, close", eight(&|number| spread(number % 200) & 0xff), OFFSETS),
            ("one", eight(&|_| 1 << 40), RUNS),
            ("long runs", eight(&|number| spread(number / 1000)), RUNS),
            ("runs of two", eight(&|number| spread(number / 2)), PLAIN),
        ];
        for (what, words, expected) in cases {
            assert_eq!(chosen(Representation::Int64, Source::Eight(&words), None), expected, "{what}");
        }
        let doubles = eight(&|number| (number as f64 / 7.0).to_bits() as i64);
        assert_eq!(
            chosen(Representation::Float64, Source::Eight(&doubles), None),
            PLAIN,
            "doubles have no offsets"
        );
        let small: Vec<i16> = (0..10_000).map(|number: i32| (number * 7 % 5000) as i16).collect();
        assert_eq!(chosen(Representation::Int16, Source::Two(&small), None), PLAIN, "nothing narrower");
        let wide: Vec<i128> = (0..10_000).map(|number| i128::from(spread(number) as u32)).collect();
        assert_eq!(
            chosen(Representation::Decimal { precision: 38, scale: 16 }, Source::Sixteen(&wide), None),
            OFFSETS,
            "small decimals"
        );
        let nulls = NullBuffer::new_null(10_000);
        assert_eq!(
            chosen(Representation::Int64, Source::Eight(&doubles), Some(&nulls)),
            RUNS,
            "nothing but NULL"
        );
        let bits: BooleanBuffer = (0..10_000).map(|number| number % 3 == 0).collect();
        assert_eq!(chosen(Representation::Boolean, Source::Bits(&bits), None), PLAIN, "bits");
        let bits = BooleanBuffer::new_set(10_000);
        assert_eq!(chosen(Representation::Boolean, Source::Bits(&bits), None), RUNS, "always true");
    }

    #[test]
    #[cfg_attr(miri, ignore = "large, and without unsafe code")]
    fn strings_that_repeat_get_codes_and_others_stay() {
        let strings = |of: &dyn Fn(usize) -> String| (0..10_000).map(of).collect::<Vec<String>>();
        let cases = [
            ("all different", strings(&|number| format!("comment number {number}")), PLAIN),
            ("a few", strings(&|number| format!("delivery mode {}", number * 7 % 5)), CODES),
            ("a few, sorted", strings(&|number| format!("delivery mode {}", number / 50 % 5)), RUNS_OF_CODES),
        ];
        for (what, strings, expected) in cases {
            let bytes: Vec<&[u8]> = strings.iter().map(|string| string.as_bytes()).collect();
            assert_eq!(chosen(Representation::Text, Source::Strings(&bytes), None), expected, "{what}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "large, and without unsafe code")]
    fn without_a_dictionary_there_are_no_codes() {
        let words: Vec<i64> = (0..1000).map(|number| (number % 3) << 60).collect();
        let statistics =
            Statistics::gather(Representation::Int64, Piece { values: Source::Eight(&words), nulls: None });
        assert_eq!(choose(&statistics, None), PLAIN);
        assert_eq!(statistics.words, Some((0, 2 << 60)));
        assert_eq!((statistics.runs, statistics.distinct.estimate()), (1000, 3));
    }

    #[test]
    #[cfg_attr(miri, ignore = "large, and without unsafe code")]
    fn the_number_of_different_values_is_estimated_and_estimates_join() {
        for count in [1, 10, 1000, 20_000, 1_000_000] {
            let mut halves = [Distinct::new(), Distinct::new()];
            for number in 0..count {
                halves[number as usize % 2].add(i64::hash(number));
                halves[0].add(i64::hash(number / 2));
            }
            let [mut all, other] = halves;
            all.join(&other);
            let error = (all.estimate() as f64 - count as f64) / count as f64;
            assert!(error.abs() < 0.06, "{count}: off by {error}");
        }
    }
}
