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
use firn_base::Result;

/// Rows by words.
pub(super) struct DenseWords {
    least: u64,
    stretches: Vec<(u64, u64)>,
    firsts: Vec<u32>,
}

/// How many words a stretch has.
const WORDS: u64 = u64::BITS as u64;

/// There may be as many stretches as rows, so that the table is about as large as one of hashes, or this many.
const FEW: u64 = 64;

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
        if least > greatest || (greatest - least) / WORDS > words.len() as u64 + FEW {
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
