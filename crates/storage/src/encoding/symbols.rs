//! Strings made of symbols: FSST (Boncz, Neumann and Leis, "FSST: Fast Random Access String Compression", PVLDB 13,
//! 2020).
//!
//! ```text
//!  symbols  0 "furio"  1 "usly "  2 " pack"  3 "ages"  …      up to 255 of 1 to 8 bytes, one table for a block
//!  codes    0 1 2 3 …                                         a byte each; 255 and a byte stand for that byte
//! ```
//! What many strings have parts of in common is written once, however different they are as wholes. Each string is
//! decoded without the others, but has to be: it lies nowhere as it is. Strings that follow each other are decoded in one
//! go, which is faster; their lengths say then where each begins.

use super::codes::{Code, Codes, each_codes};
use super::strings::Strings;
use firn_base::sync::Arc;
use fsst::{Compressor, Decompressor, Symbol};
use std::fmt;
use std::ops::Range;

/// Fewer bytes are not worth a table.
const FEWEST_BYTES: usize = 8 << 10;

/// More are not taken into memory three times. Nor are more in all slots of a block, if strings are there in runs.
pub(super) const MOST_BYTES: usize = 64 << 20;

/// So much of what the strings take by themselves they may take at most, a table included: what is read has to be decoded.
const WORTH: (usize, usize) = (3, 4);

/// No symbol is longer.
const SYMBOL_BYTES: usize = 8;

/// With so much room beyond what they decode, eight symbols are written without a look at the end.
pub(super) const ROOM: usize = 8 * SYMBOL_BYTES;

/// What codes stand for.
struct Table {
    symbols: [Symbol; 255],
    lengths: [u8; 255],
}

/// Many strings, each a sequence of codes.
#[derive(Clone)]
pub(super) struct SymbolStrings {
    codes: Strings,
    /// How long each is when it is decoded.
    lengths: Codes,
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
        let longest = all.iter().map(|string| string.len()).max().unwrap_or(0);
        let lengths = Codes::collect(longest as u64, all.iter().map(|string| string.len() as u64));
        SymbolStrings { codes: Strings::new(ends, codes), lengths, table }
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

    /// Asks the processor to fetch what [`SymbolStrings::decode`] reads first.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        self.codes.prefetch(at);
        self.lengths.prefetch(at);
    }

    /// Asks the processor to fetch the codes of one of them.
    #[inline]
    pub fn prefetch_further(&self, at: usize) {
        self.codes.prefetch_further(at);
    }

    /// Appends one of them.
    #[inline]
    pub fn decode(&self, at: usize, out: &mut Vec<u8>) {
        self.decode_codes(self.codes.get(at), self.lengths.get(at), out);
    }

    /// Appends a range of them, and gives `take` each and where in `out` it begins.
    pub fn decode_range(&self, range: Range<usize>, out: &mut Vec<u8>, mut take: impl FnMut(&[u8], usize)) {
        let mut start = out.len();
        each_codes!(&self.lengths, lengths => {
            let lengths = lengths[range.clone()].iter().map(|length| length.number() as usize);
            let offsets = self.codes.offsets();
            let codes = offsets[range.start] as usize..offsets[range.end] as usize;
            self.decode_codes(&self.codes.all_bytes()[codes], lengths.clone().sum(), out);
            for length in lengths {
                take(&out[start..start + length], start);
                start += length;
            }
        });
    }

    /// Appends so many bytes that codes stand for.
    #[inline]
    fn decode_codes(&self, codes: &[u8], length: usize, out: &mut Vec<u8>) {
        out.reserve(length + ROOM);
        let decompressor = Decompressor::new(&self.table.symbols, &self.table.lengths);
        let decoded = decompressor.decompress_into(codes, out.spare_capacity_mut());
        debug_assert_eq!(decoded, length, "strings keep their length");
        // SAFETY: so many bytes have been written there.
        unsafe { out.set_len(out.len() + decoded) };
    }

    /// How many bytes a range of them has.
    pub fn decoded_bytes(&self, range: Range<usize>) -> usize {
        each_codes!(&self.lengths, lengths => {
            lengths[range].iter().map(|length| length.number() as usize).sum()
        })
    }

    /// All of them, decoded.
    pub fn strings(&self) -> Strings {
        let (mut ends, mut bytes) = (Vec::with_capacity(self.len() + 1), Vec::new());
        self.decode_range(0..self.len(), &mut bytes, |_, start| ends.push(start as i32));
        ends.push(bytes.len() as i32);
        Strings::new(ends, bytes)
    }

    /// The memory they take.
    pub fn bytes(&self) -> usize {
        self.codes.bytes() + self.lengths.bytes() + size_of::<Table>()
    }

    /// Panics if an invariant does not hold.
    pub fn verify(&self) {
        self.codes.verify();
        assert_eq!(self.lengths.len(), self.codes.len());
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
    for symbol in [&b"the owne"[..], b"r of acc", b"ount num", b"ber "] {
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
        assert_eq!(encoded.strings().all_bytes(), plain.all_bytes());
    }

    #[test]
    fn strings_are_decoded_one_by_one_and_in_ranges() {
        let plain = strings(if cfg!(miri) { 30 } else { 300 }, |at| match at % 3 {
            0 => String::new(),
            1 => format!("the owner of account number {at}"),
            _ => format!("é{at}").repeat(at % 20),
        });
        let encoded = SymbolStrings::encode(&plain);
        assert!(encoded.is_same(&plain));
        for range in [0..0, 0..1, 3..30, 29..30, 0..plain.len()] {
            let mut out = b"before".to_vec();
            let mut at = range.start;
            encoded.decode_range(range.clone(), &mut out, |string, _| {
                assert_eq!(string, plain.get(at));
                at += 1;
            });
            assert_eq!((at, out.len()), (range.end, 6 + encoded.decoded_bytes(range)));
        }
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
