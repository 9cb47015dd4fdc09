//! Strings encoded as symbols: FSST (Boncz, Neumann and Leis, "FSST: Fast Random Access String Compression",
//! PVLDB 13, 2020).
//!
//! ```text
//!  symbols  0 "furio"  1 "usly "  2 " pack"  3 "ages"  …      up to 255 of 1 to 8 bytes, one table for a block
//!  codes    0 1 2 3 …                                         a byte each; 255 and a byte represent that byte
//! ```
//! Parts that many strings share are stored once, even if the strings as wholes differ. Each string can be
//! decoded without the others, but it must be decoded, since it is not stored as it is. Consecutive strings
//! are decoded together, which is faster; their lengths then give the start of each.

use super::codes::{Code, Codes, each_codes};
use super::strings::Strings;
use firn_base::sync::Arc;
use fsst::{Compressor, Decompressor, Symbol};
use std::fmt;
use std::ops::Range;

/// Fewer bytes do not pay for a table.
const FEWEST_BYTES: usize = 8 << 10;

/// More are not copied in memory three times. The limit also applies to the strings of all slots of a block
/// with runs.
pub(super) const MOST_BYTES: usize = 64 << 20;

/// The largest size in relation to the plain strings, including the table; it must pay for the decoding.
const WORTH: (usize, usize) = (3, 4);

/// The largest size of a symbol.
const SYMBOL_BYTES: usize = 8;

/// With this much room beyond the decoded string, eight symbols are written without a bounds check.
pub(super) const ROOM: usize = 8 * SYMBOL_BYTES;

/// The meaning of the codes.
struct Table {
    symbols: [Symbol; 255],
    lengths: [u8; 255],
}

/// Many strings, each a sequence of codes.
#[derive(Clone)]
pub(super) struct SymbolStrings {
    codes: Strings,
    /// The decoded length of each.
    lengths: Codes,
    table: Arc<Table>,
}

impl SymbolStrings {
    /// Encodes strings. `None` if they do not become much smaller.
    pub fn of(strings: &Strings) -> Option<SymbolStrings> {
        let bytes = strings.all_bytes().len();
        if !(FEWEST_BYTES..=MOST_BYTES).contains(&bytes) {
            return None;
        }
        let encoded = SymbolStrings::encode(strings);
        let (most, of) = WORTH;
        let is_worth_it = encoded.bytes() * of <= strings.bytes() * most;
        // The plain strings are about to be freed, so the result is verified first.
        (is_worth_it && encoded.is_same(strings)).then_some(encoded)
    }

    /// Encodes strings regardless of the resulting size. They have at most [`MOST_BYTES`].
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

    /// Prefetches what [`SymbolStrings::decode`] reads first.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        self.codes.prefetch(at);
        self.lengths.prefetch(at);
    }

    /// Prefetches the codes of a string.
    #[inline]
    pub fn prefetch_further(&self, at: usize) {
        self.codes.prefetch_further(at);
    }

    /// Appends a decoded string.
    #[inline]
    pub fn decode(&self, at: usize, out: &mut Vec<u8>) {
        self.decode_codes(self.codes.get(at), self.lengths.get(at), out);
    }

    /// Appends a range of strings, and calls `take` with each and its offset in `out`.
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

    /// Appends the `length` bytes that codes represent.
    #[inline]
    fn decode_codes(&self, codes: &[u8], length: usize, out: &mut Vec<u8>) {
        out.reserve(length + ROOM);
        let decompressor = Decompressor::new(&self.table.symbols, &self.table.lengths);
        let decoded = decompressor.decompress_into(codes, out.spare_capacity_mut());
        debug_assert_eq!(decoded, length, "strings keep their length");
        // SAFETY: this many bytes have been written there.
        unsafe { out.set_len(out.len() + decoded) };
    }

    /// The number of bytes of a range of strings.
    pub fn decoded_bytes(&self, range: Range<usize>) -> usize {
        each_codes!(&self.lengths, lengths => {
            lengths[range].iter().map(|length| length.number() as usize).sum()
        })
    }

    /// All strings, decoded.
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

/// A compressor with symbols that these strings share.
#[cfg(not(miri))]
fn train(strings: &Vec<&[u8]>) -> Compressor {
    Compressor::train(strings)
}

/// As above with fixed symbols: training would take minutes under Miri.
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
    #[cfg_attr(miri, ignore = "the symbols are fixed there")]
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
