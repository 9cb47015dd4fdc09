//! Strings made of symbols: FSST (Boncz, Neumann and Leis, "FSST: Fast Random Access String Compression", PVLDB 13,
//! 2020).
//!
//! ```text
//!  symbols  0 "furio"  1 "usly "  2 " pack"  3 "ages"  …      up to 255 of 1 to 8 bytes, one table for a block
//!  codes    0 1 2 3 …                                         a byte each; 255 and a byte stand for that byte
//! ```
//! What many strings have parts of in common is written once, however different they are as wholes. Each string is
//! decoded without the others, but has to be: it lies nowhere as it is.

use super::strings::Strings;
use firn_base::sync::Arc;
use fsst::{Compressor, Decompressor, Symbol};
use std::fmt;

/// Fewer bytes are not worth a table.
const FEWEST_BYTES: usize = 8 << 10;

/// More are not taken into memory three times.
const MOST_BYTES: usize = 64 << 20;

/// So much of what the strings take by themselves they may take at most, a table included: what is read has to be decoded.
const WORTH: (usize, usize) = (3, 4);

/// No symbol is longer.
const SYMBOL_BYTES: usize = 8;

/// What codes stand for.
struct Table {
    symbols: [Symbol; 255],
    lengths: [u8; 255],
}

/// Many strings, each a sequence of codes.
#[derive(Clone)]
pub(super) struct SymbolStrings {
    codes: Strings,
    table: Arc<Table>,
}

impl SymbolStrings {
    /// The strings in this form. `None` if they are not much smaller in it.
    pub fn of(strings: &Strings) -> Option<SymbolStrings> {
        let bytes = strings.all_bytes().len();
        if !(FEWEST_BYTES..=MOST_BYTES).contains(&bytes) {
            return None;
        }
        let encoded = SymbolStrings::encode(strings);
        let (most, of) = WORTH;
        let is_worth_it = encoded.bytes() * of <= strings.bytes() * most;
        // The strings are about to be let go: whether all is there is known for certain before.
        (is_worth_it && encoded.is_same(strings)).then_some(encoded)
    }

    /// The strings in this form, however large. They take [`MOST_BYTES`] at most.
    pub(super) fn encode(strings: &Strings) -> SymbolStrings {
        let all: Vec<&[u8]> = (0..strings.len()).map(|at| strings.get(at)).collect();
        let compressor = train(&all);
        let (mut codes, mut ends) = (Vec::new(), vec![0]);
        compressor.compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(&all, &mut codes, &mut ends);
        codes.shrink_to_fit();
        let parts = compressor.into_parts();
        let table = Arc::new(Table { symbols: parts.symbols, lengths: parts.lengths });
        let ends = ends.into_iter().map(|end| end as i32).collect();
        SymbolStrings { codes: Strings::new(ends, codes), table }
    }

    fn is_same(&self, strings: &Strings) -> bool {
        let mut string = Vec::new();
        (0..strings.len()).all(|at| {
            string.clear();
            self.decode(at, &mut string);
            string == strings.get(at)
        })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// Appends one of them.
    #[inline]
    pub fn decode(&self, at: usize, out: &mut Vec<u8>) {
        let codes = self.codes.get(at);
        let decompressor = Decompressor::new(&self.table.symbols, &self.table.lengths);
        // Symbols are written as wholes.
        out.reserve(SYMBOL_BYTES * (codes.len() + 1));
        let length = decompressor.decompress_into(codes, out.spare_capacity_mut());
        // SAFETY: so many bytes have been written there.
        unsafe { out.set_len(out.len() + length) };
    }

    /// About how many bytes so many of them have.
    pub fn expected_bytes(&self, count: usize) -> usize {
        const USUAL: usize = 3;
        USUAL * count * self.codes.all_bytes().len() / self.len().max(1) + SYMBOL_BYTES
    }

    /// All of them, decoded.
    pub fn strings(&self) -> Strings {
        let (mut ends, mut bytes) = (vec![0], Vec::with_capacity(self.expected_bytes(self.len())));
        for at in 0..self.len() {
            self.decode(at, &mut bytes);
            ends.push(bytes.len() as i32);
        }
        Strings::new(ends, bytes)
    }

    /// The memory they take.
    pub fn bytes(&self) -> usize {
        self.codes.bytes() + size_of::<Table>()
    }

    /// Panics if an invariant does not hold.
    pub fn verify(&self) {
        self.codes.verify();
    }
}

/// What finds symbols that these strings have.
#[cfg(not(miri))]
fn train(strings: &Vec<&[u8]>) -> Compressor {
    Compressor::train(strings)
}

/// As above, but knows them before: Miri would take minutes.
#[cfg(miri)]
fn train(_strings: &Vec<&[u8]>) -> Compressor {
    let mut builder = fsst::CompressorBuilder::new();
    for symbol in [&b"furious"[..], b"ly ", b"ion", b"e "] {
        let mut bytes = [0; SYMBOL_BYTES];
        bytes[..symbol.len()].copy_from_slice(symbol);
        assert!(builder.insert(Symbol::from_slice(&bytes), symbol.len()));
    }
    builder.build()
}

impl fmt::Debug for SymbolStrings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SymbolStrings").field("codes", &self.codes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(count: usize, of: impl Fn(usize) -> String) -> Strings {
        let all: Vec<String> = (0..count).map(of).collect();
        Strings::collect(all.iter().map(|string| string.as_bytes())).unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "symbols are known before there")]
    fn what_strings_have_in_common_is_written_once() {
        const WORDS: [&str; 6] = ["furiously", "ironic", "packages", "sleep", "blithely", "among the"];
        let plain = strings(1000, |at| {
            let words = (0..4).map(|place| WORDS[at * (place + 7) / 3 % 6]);
            format!("{} {at}", words.collect::<Vec<_>>().join(" "))
        });
        let encoded = SymbolStrings::of(&plain).expect("they are worth it");
        assert!(encoded.bytes() * 2 < plain.bytes(), "{} of {}", encoded.bytes(), plain.bytes());
        assert_eq!(encoded.len(), 1000);
        encoded.verify();
        let mut all = b"before: ".to_vec();
        (0..1000).for_each(|at| encoded.decode(at, &mut all));
        assert_eq!(all, [b"before: ", plain.all_bytes()].concat());
    }

    #[test]
    #[cfg_attr(miri, ignore = "as above")]
    fn few_strings_and_such_as_have_nothing_in_common_stay_as_they_are() {
        assert!(SymbolStrings::of(&strings(20, |at| format!("quickly, quickly {at}"))).is_none());
        let mut state = 1_u64;
        let random: Vec<Vec<u8>> = std::iter::repeat_with(|| {
            let byte = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            };
            (0..24).map(byte).collect()
        })
        .take(1000)
        .collect();
        let random = Strings::collect(random.iter().map(|string| &string[..])).unwrap();
        assert!(SymbolStrings::of(&random).is_none());
    }
}
