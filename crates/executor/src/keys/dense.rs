//! Words that lie close together: a bitmap with ranks leads from a word to the first row with it.
//!
//! ```text
//! stretches  for each 64 words, from the least on: a bit for each that a row has, and how many words the stretches before have;
//!            the last stretch is empty
//! firsts     4 bytes for each word that a row has: its first row, and NONE at the end; left out if each word's row is its rank
//! ```
//!
//! Keys of tables are mostly such words. A search hashes nothing and compares no key: for a word that no row has it ends with one
//! access to a table that often fits into a cache. Ranks are those of Jacobson, "Space-efficient Static Trees and Graphs", FOCS 1989.

use super::slots::NONE;
use arrow_buffer::BooleanBuffer;
use firn_base::Result;

/// Rows by words.
pub(super) struct DenseWords {
    least: u64,
    stretches: Vec<(u64, u64)>,
    firsts: Vec<u32>,
}

/// How many words a stretch has.
const WORDS: u64 = u64::BITS as u64;

/// There may be as many stretches as rows, so that the table is about as large as one of hashes.
///
/// A smaller table may be larger than that, since a search in it costs less: so many stretches for each row (a KiB, which takes no longer
/// to make than the row's place in a hash table), up to [`SMALL`] (4 MiB), and always [`FEW`].
const PER_ROW: u64 = 64;
const SMALL: u64 = 1 << 18;
const FEW: u64 = 64;

/// A set, which a scan asks for many rows, may have so many stretches always: 64 KiB.
const FEW_OF_SET: u64 = 1 << 13;

/// Whether the words of so many rows lie close together.
fn is_close(least: u64, greatest: u64, rows: usize, few: u64) -> bool {
    let rows = rows as u64;
    (greatest - least) / WORDS <= rows.max((rows * PER_ROW).min(SMALL)) + few
}

/// How many rows are entered before a cancel is noticed.
const PART: usize = 1 << 16;

/// Rows that repeat a word of an earlier one, each with that one, rising.
type Repeated = Vec<(u32, u32)>;

impl DenseWords {
    /// Enters the rows for which `is_entered` holds, each with its word. `None` if the words are too far apart.
    pub fn new(
        words: &[u64],
        is_entered: impl Fn(usize) -> bool,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<(DenseWords, Repeated)>> {
        let part = |number: usize| {
            let rows = number * PART..words.len().min((number + 1) * PART);
            rows.filter(|row| is_entered(*row)).map(|row| (row, words[row]))
        };
        let parts = 0..words.len().div_ceil(PART);
        let (mut least, mut greatest) = (u64::MAX, 0);
        for number in parts.clone() {
            check()?;
            part(number).for_each(|(_, word)| (least, greatest) = (least.min(word), greatest.max(word)));
        }
        if least > greatest || !is_close(least, greatest, words.len(), FEW) {
            return Ok(None);
        }
        let place = |word: u64| (((word - least) / WORDS) as usize, (word - least) % WORDS);
        let mut stretches = vec![(0u64, 0u64); place(greatest).0 + 2];
        for number in parts.clone() {
            check()?;
            part(number).for_each(|(_, word)| {
                let (stretch, bit) = place(word);
                stretches[stretch].0 |= 1 << bit;
            });
        }
        let mut sum = 0;
        for (bits, before) in &mut stretches {
            *before = sum;
            sum += u64::from(bits.count_ones());
        }
        let mut dense = DenseWords { least, stretches, firsts: vec![NONE; sum as usize + 1] };
        let (mut repeated, mut rank_is_row) = (Vec::new(), true);
        for number in parts {
            check()?;
            part(number).for_each(|(row, word)| {
                let rank = dense.rank(word);
                let first = &mut dense.firsts[rank as usize];
                match *first {
                    NONE => {
                        *first = row as u32;
                        rank_is_row &= row == rank as usize;
                    }
                    first => repeated.push((row as u32, first)),
                }
            });
        }
        if rank_is_row {
            dense.firsts = Vec::new();
        }
        Ok(Some((dense, repeated)))
    }

    /// How many words that rows have are less than one that a row has; [`NONE`] for others.
    #[inline]
    fn rank(&self, word: u64) -> u32 {
        let offset = word.wrapping_sub(self.least);
        let stretch = ((offset / WORDS) as usize).min(self.stretches.len() - 1);
        let (bits, before) = self.stretches[stretch];
        let bit = offset % WORDS;
        let less = bits & ((1 << bit) - 1);
        match bits >> bit & 1 {
            1 => before as u32 + less.count_ones(),
            _ => NONE,
        }
    }

    /// Appends the first row with each word, or [`NONE`].
    pub fn find_all(&self, words: &[u64], rows: &mut Vec<u32>) {
        match &self.firsts[..] {
            [] => rows.extend(words.iter().map(|word| self.rank(*word))),
            firsts => rows.extend(words.iter().map(|word| {
                let rank = self.rank(*word) as usize;
                firsts[rank.min(firsts.len() - 1)]
            })),
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.stretches.len() * 16 + self.firsts.len() * 4
    }
}

/// Words that lie close together: which there are.
pub struct WordSet {
    least: u64,
    bits: Vec<u64>,
}

impl WordSet {
    /// The set of some words. `None` if they are too far apart.
    pub(super) fn new(words: impl Iterator<Item = u64> + Clone, count: usize) -> Option<WordSet> {
        let ends = |(least, greatest): (u64, u64), word: u64| (least.min(word), greatest.max(word));
        let (least, greatest) = words.clone().fold((u64::MAX, 0), ends);
        if least > greatest || !is_close(least, greatest, count, FEW_OF_SET) {
            return None;
        }
        let mut bits = vec![0u64; ((greatest - least) / WORDS) as usize + 2];
        for word in words {
            let offset = word - least;
            bits[(offset / WORDS) as usize] |= 1 << (offset % WORDS);
        }
        Some(WordSet { least, bits })
    }

    /// For each word whether it is there.
    pub fn has_all(&self, words: &[u64]) -> BooleanBuffer {
        // The last entry is empty.
        let last = self.bits.len() - 1;
        BooleanBuffer::collect_bool(words.len(), |place| {
            let offset = words[place].wrapping_sub(self.least);
            self.bits[((offset / WORDS) as usize).min(last)] >> (offset % WORDS) & 1 == 1
        })
    }
}

impl DenseWords {
    /// Which words rows have.
    pub fn words(&self) -> WordSet {
        WordSet { least: self.least, bits: self.stretches.iter().map(|(bits, _)| *bits).collect() }
    }

    /// The words that rows have, each once, rising.
    pub fn each_word(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        let stretches = self.stretches.iter().zip((0..).map(|stretch| self.least + stretch * WORDS));
        stretches.flat_map(|((bits, _), first)| {
            (0..WORDS).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| first + bit)
        })
    }

    /// How many words rows have.
    pub fn count(&self) -> usize {
        self.stretches.last().map_or(0, |(_, before)| *before as usize)
    }
}
