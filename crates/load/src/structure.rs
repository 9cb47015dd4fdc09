//! Where fields end: one pass over the bytes, 64 at a time.
//!
//! Every byte that means something (delimiter, line feed, quote, escape) becomes a bit of a 64-bit mask; from then on a
//! few operations on words say for 64 bytes at once which delimiters and line feeds count. The masks come from AVX-512,
//! AVX2 or plain words, whichever the processor has; all three give the same, which the tests compare.
//!
//! Mühlbauer searches for delimiters with SSE 4.2 ("On Scalable and Flexible Transaction and Query Processing
//! in Main-Memory Database Systems", TU München 2016, section 3.3.3). The use of masks for quotes as well is
//! from Langdale and Lemire, "Parsing gigabytes of JSON per second", VLDB Journal 28, 2019.

/// Which bytes mean something, and how they lose their meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    pub delimiter: u8,
    pub quoting: Quoting,
}

/// How delimiters and line feeds lose their meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quoting {
    /// Not at all: a line feed always ends a record.
    Never,
    /// The text format: after a backslash.
    Backslash,
    /// CSV: between quotes. A doubled quote leaves the quotes and enters them again, which comes to the same.
    Doubled(u8),
    /// CSV: between quotes, where a quote after the escape is none.
    Escaped { quote: u8, escape: u8 },
    /// CSV: likewise, but only a quote opens that begins a field or follows one that has closed; others stand for themselves.
    /// The escape is the quote where quotes are doubled.
    Leading { quote: u8, escape: u8 },
}

/// What is known at one byte of the bytes before it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Context {
    pub in_quotes: bool,
    /// The next byte stands for itself.
    after_escape: bool,
    /// A quote that comes next stands for itself, for being within a field ([`Quoting::Leading`] alone asks).
    within_field: bool,
}

impl Context {
    /// Whether bytes that begin with this one mean what they would at the beginning of a record.
    pub fn is_as_at_beginning(self, first: Option<u8>, dialect: Dialect) -> bool {
        let Context { in_quotes, after_escape, within_field } = self;
        let begins_with_quote = first.is_some_and(|first| first == dialect.needles().0);
        !(in_quotes || after_escape || within_field && begins_with_quote)
    }

    /// Whether the byte that comes next stands for itself.
    pub fn is_escaped(self) -> bool {
        self.after_escape
    }
}

/// Stands for the end of what precedes the first field: one less than zero, as others are one less than where the next
/// field begins.
const BEFORE_ALL: u32 = u32::MAX;

/// Bytes longer than chunks mostly are: some record is long, for its fields or for how many they are.
const LONG_BYTES: usize = 4 << 20;

/// Where the fields of some bytes end.
#[derive(Default, Debug)]
pub(crate) struct Structure {
    /// The positions of all delimiters and line feeds that count, rising, behind [`BEFORE_ALL`].
    ends: Vec<u32>,
    /// How many they are; the rest of the vector is of no account.
    len: usize,
    /// How many there are beside them, of records that have too many.
    pub left_out: usize,
    /// How many of them are line feeds.
    pub lines: usize,
    /// Line feeds that do not count, for being in quotes or after an escape.
    pub void_lines: usize,
    /// Carriage returns outside quotes.
    pub carriage_returns: usize,
    /// Whether there is any quote, or in the text format any backslash.
    pub has_quoting: bool,
    /// Whether fields hold quotes or escapes, others than a quote at the beginning with its like at the end.
    pub has_inner_quoting: bool,
    /// The last byte looked at, if an end, and if a quote that an end should follow.
    after_end: bool,
    closes: bool,
    pub is_ascii: bool,
    pub has_nul: bool,
}

impl Structure {
    /// Finds the ends of fields in `bytes`, which begin with a record.
    pub fn find(&mut self, bytes: &[u8], dialect: Dialect) {
        self.find_with(Kernel::best(), bytes, dialect);
    }

    /// As [`Structure::find`], but of a record in which more than `most` delimiters count, not all of them need be found: so many
    /// and the line feed will do to tell that they are too many. For one that is nothing but delimiters would take four times its length.
    pub fn find_some(&mut self, bytes: &[u8], dialect: Dialect, most: usize) {
        match bytes.len() > LONG_BYTES {
            true => self.find_some_with(Kernel::best(), bytes, dialect, most),
            false => self.find(bytes, dialect),
        }
    }

    fn find_with(&mut self, kernel: Kernel, bytes: &[u8], dialect: Dialect) {
        self.begin(bytes);
        walk(kernel, bytes, dialect, &mut Context::default(), self);
        self.end(dialect);
    }

    fn find_some_with(&mut self, kernel: Kernel, bytes: &[u8], dialect: Dialect, most: usize) {
        self.begin(bytes);
        let mut few = FewEnds { structure: self, bytes, most, in_record: 0 };
        walk(kernel, bytes, dialect, &mut Context::default(), &mut few);
        self.end(dialect);
    }

    fn begin(&mut self, bytes: &[u8]) {
        assert!(bytes.len() < BEFORE_ALL as usize, "positions are of 32 bits");
        let mut ends = std::mem::take(&mut self.ends);
        ends.resize(ends.len().max(1), 0);
        ends[0] = BEFORE_ALL;
        *self = Structure { ends, len: 1, is_ascii: true, after_end: true, ..Structure::default() };
    }

    fn end(&mut self, dialect: Dialect) {
        self.has_inner_quoting |= self.closes;
        self.has_inner_quoting |= self.has_quoting && !matches!(dialect.quoting, Quoting::Doubled(_));
    }

    /// The ends of all fields, behind what stands for the end of what precedes the first: `u32::MAX`.
    pub fn ends(&self) -> &[u32] {
        &self.ends[..self.len]
    }
}

impl Visit for Structure {
    #[inline(always)]
    fn visit(&mut self, base: usize, found: Found, positions: impl Fn(u64, u32, &mut [u32; 64])) {
        self.carriage_returns += (found.carriage_returns & !found.void).count_ones() as usize;
        self.has_quoting |= found.quoting != 0;
        self.is_ascii &= found.high == 0;
        self.has_nul |= found.nul != 0;
        self.lines += (found.line_feeds & !found.void).count_ones() as usize;
        self.void_lines += (found.line_feeds & found.void).count_ones() as usize;
        let ends = (found.delimiters | found.line_feeds) & !found.void;
        if found.quoting != 0 || self.closes {
            // A field has an even number of quotes, so if they touch its ends there are two, the first and the last.
            let bounds = ends | found.carriage_returns & !found.void;
            let opens = bounds << 1 | u64::from(self.after_end);
            let closing = found.quoting & !opens;
            self.has_inner_quoting |= closing & !(1 << 63) & !(bounds >> 1) != 0;
            self.has_inner_quoting |= self.closes && bounds & 1 == 0;
            self.closes = closing >> 63 == 1;
        }
        self.after_end = ends >> 63 == 1;
        let count = ends.count_ones() as usize;
        if self.ends.len() < self.len + 64 {
            self.ends.resize((self.len + 64).next_power_of_two(), 0);
        }
        let room = (&mut self.ends[self.len..self.len + 64]).try_into().expect("just made");
        positions(ends, base as u32, room);
        self.len += count;
    }
}

/// Finds of each record only so many delimiters, and its line feed.
struct FewEnds<'s> {
    structure: &'s mut Structure,
    bytes: &'s [u8],
    most: usize,
    /// How many delimiters the record has so far.
    in_record: usize,
}

impl Visit for FewEnds<'_> {
    #[inline(always)]
    fn visit(&mut self, base: usize, found: Found, positions: impl Fn(u64, u32, &mut [u32; 64])) {
        let before = self.structure.len;
        self.structure.visit(base, found, positions);
        let mut kept = before;
        for place in before..self.structure.len {
            let end = self.structure.ends[place];
            let is_last = self.bytes[end as usize] == b'\n';
            if is_last || self.in_record < self.most {
                self.structure.ends[kept] = end;
                kept += 1;
            }
            self.in_record = if is_last { 0 } else { self.in_record + 1 };
        }
        self.structure.left_out += self.structure.len - kept;
        self.structure.len = kept;
    }
}

/// How far the search for the ends of records has come.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Progress {
    pub context: Context,
    /// Bytes searched.
    pub searched: usize,
    /// Where the last record ends that is whole, its line feed included; zero if none is.
    pub whole: usize,
    /// Line feeds in whole records, those inside quotes included.
    pub lines: u64,
    /// Line feeds behind them, which are all void.
    pub lines_behind: u64,
}

impl Progress {
    /// Searches the rest of `bytes`.
    pub fn search(&mut self, bytes: &[u8], dialect: Dialect) {
        let mut context = self.context;
        walk(Kernel::best(), &bytes[self.searched..], dialect, &mut context, self);
        self.context = context;
        self.searched = bytes.len();
    }
}

impl Visit for Progress {
    #[inline(always)]
    fn visit(&mut self, base: usize, found: Found, _: impl Fn(u64, u32, &mut [u32; 64])) {
        let counting = found.line_feeds & !found.void;
        if counting == 0 {
            self.lines_behind += u64::from(found.line_feeds.count_ones());
            return;
        }
        let last = counting.ilog2();
        let upto = u64::MAX >> (63 - last);
        self.lines += self.lines_behind + u64::from((found.line_feeds & upto).count_ones());
        self.lines_behind = u64::from((found.line_feeds & !upto).count_ones());
        self.whole = self.searched + base + last as usize + 1;
    }
}

/// What the bits of 64 bytes say.
struct Found {
    delimiters: u64,
    line_feeds: u64,
    carriage_returns: u64,
    /// Quotes or escapes.
    quoting: u64,
    /// Bytes that have no meaning, for being in quotes or after an escape.
    void: u64,
    nul: u64,
    /// Bytes beyond ASCII.
    high: u64,
}

/// Who wants to know.
trait Visit {
    /// Of up to 64 bytes from `base` on. `positions` writes the places of the bits of a mask, counted from a base, to the
    /// beginning of some room; what stands behind them then is of no account.
    fn visit(&mut self, base: usize, found: Found, positions: impl Fn(u64, u32, &mut [u32; 64]));
}

/// Bits of 64 bytes, the first byte's the lowest.
#[derive(Clone, Copy)]
struct Masks {
    delimiters: u64,
    line_feeds: u64,
    carriage_returns: u64,
    quotes: u64,
    escapes: u64,
    nul: u64,
    high: u64,
}

/// How masks are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Words,
}

impl Kernel {
    /// The quickest that the processor has.
    #[inline]
    pub(crate) fn best() -> Kernel {
        #[cfg(target_arch = "x86_64")]
        {
            if x86::has_avx512() {
                return Kernel::Avx512;
            }
            if x86::has_avx2() {
                return Kernel::Avx2;
            }
        }
        Kernel::Words
    }
}

fn walk(kernel: Kernel, bytes: &[u8], dialect: Dialect, context: &mut Context, visitor: &mut impl Visit) {
    match kernel {
        // SAFETY: the processor has these instructions, `Kernel::best` has asked it.
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx512 => unsafe { x86::walk_avx512(bytes, dialect, context, visitor) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx2 => unsafe { x86::walk_avx2(bytes, dialect, context, visitor) },
        Kernel::Words => walk_by(bytes, dialect, context, visitor, words, one_by_one),
    }
}

/// The walk itself, compiled once for each kernel.
#[inline(always)]
fn walk_by(
    bytes: &[u8],
    dialect: Dialect,
    context: &mut Context,
    visitor: &mut impl Visit,
    masks: impl Fn(&[u8; 64], Dialect) -> Masks,
    positions: impl Fn(u64, u32, &mut [u32; 64]),
) {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut base = 0;
    for block in blocks {
        let found = context.weigh(masks(block, dialect), dialect.quoting, 64);
        visitor.visit(base, found, &positions);
        base += 64;
    }
    if !rest.is_empty() {
        // Filled up with a byte that is neither NUL nor anything that means something: those are cut off again.
        let mut block = [b'x'; 64];
        block[..rest.len()].copy_from_slice(rest);
        let masks = masks(&block, dialect).first(rest.len());
        let found = context.weigh(masks, dialect.quoting, rest.len());
        visitor.visit(base, found, &positions);
    }
}

/// Writes the places of bits, eight at a time, whether there are as many or not.
#[inline(always)]
fn one_by_one(mut mask: u64, base: u32, room: &mut [u32; 64]) {
    let count = mask.count_ones() as usize;
    for eight in room.chunks_exact_mut(8).take(count.div_ceil(8)) {
        for place in eight {
            *place = base.wrapping_add(mask.trailing_zeros());
            mask &= mask.wrapping_sub(1);
        }
    }
}

impl Masks {
    fn first(self, count: usize) -> Masks {
        let kept = !(u64::MAX << count);
        Masks {
            delimiters: self.delimiters & kept,
            line_feeds: self.line_feeds & kept,
            carriage_returns: self.carriage_returns & kept,
            quotes: self.quotes & kept,
            escapes: self.escapes & kept,
            nul: self.nul & kept,
            high: self.high & kept,
        }
    }
}

impl Context {
    /// Says which of `count` bytes have no meaning, and goes on behind them.
    #[inline(always)]
    fn weigh(&mut self, masks: Masks, quoting: Quoting, count: usize) -> Found {
        let (void, seen) = match quoting {
            Quoting::Never => (0, 0),
            Quoting::Backslash => (self.escaped(masks.escapes, count), masks.escapes),
            Quoting::Doubled(_) => (self.quoted(masks.quotes), masks.quotes),
            Quoting::Escaped { .. } => {
                let toggles = self.toggles(masks, count, u64::MAX);
                // An escape before the first quote means nothing to a field.
                (self.quoted(toggles), masks.quotes)
            }
            Quoting::Leading { quote, escape } => {
                let bounds = masks.delimiters | masks.line_feeds;
                let opens = bounds << 1 | u64::from(!self.within_field);
                let toggles = match quote == escape {
                    true => self.leading_toggles(masks, count, opens),
                    false => self.toggles(masks, count, opens),
                };
                let void = self.quoted(toggles);
                self.within_field = !self.in_quotes && (bounds | toggles) >> (count - 1) & 1 == 0;
                (void, masks.quotes)
            }
        };
        Found {
            delimiters: masks.delimiters,
            line_feeds: masks.line_feeds,
            carriage_returns: masks.carriage_returns,
            quoting: seen,
            void,
            nul: masks.nul,
            high: masks.high,
        }
    }

    /// The bytes between quotes, the first of each pair included.
    #[inline(always)]
    fn quoted(&mut self, quotes: u64) -> u64 {
        let before = if self.in_quotes { u64::MAX } else { 0 };
        if quotes == 0 {
            return before;
        }
        self.in_quotes ^= quotes.count_ones() % 2 == 1;
        let mut inside = quotes;
        // Each bit becomes the parity of those up to it.
        for distance in [1, 2, 4, 8, 16, 32] {
            inside ^= inside << distance;
        }
        inside ^ before
    }

    /// The bytes that a backslash precedes which is not itself preceded by one, and so on.
    #[inline(always)]
    fn escaped(&mut self, backslashes: u64, count: usize) -> u64 {
        let mut escaped = u64::from(self.after_escape);
        self.after_escape = false;
        // There are few of them.
        let mut rest = backslashes & !escaped;
        while rest != 0 {
            let position = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            if position + 1 == count {
                self.after_escape = true;
            } else {
                escaped |= 2 << position;
                rest &= !(2 << position);
            }
        }
        escaped
    }

    /// The quotes that open or close, where those are doubled that stand between quotes.
    #[inline(always)]
    fn leading_toggles(&mut self, masks: Masks, count: usize, opens: u64) -> u64 {
        let mut ahead = *self;
        let opening = masks.quotes & ahead.quoted(masks.quotes);
        // Mostly all do: each that stands outside begins a field or follows one that has closed.
        match opening & !(opens | masks.quotes << 1) {
            0 => masks.quotes,
            _ => self.toggles(Masks { escapes: 0, ..masks }, count, opens),
        }
    }

    /// The quotes that open or close, where a quote after an escape between quotes does not, nor one outside that is neither
    /// where `opens` says nor behind one that has closed.
    fn toggles(&mut self, masks: Masks, count: usize, opens: u64) -> u64 {
        let mut toggles = 0;
        let mut inside = self.in_quotes;
        let mut rest = (masks.quotes | masks.escapes) & !u64::from(self.after_escape);
        self.after_escape = false;
        while rest != 0 {
            let position = rest.trailing_zeros() as usize;
            let bit = 1 << position;
            rest &= rest - 1;
            if inside && masks.escapes & bit != 0 {
                if position + 1 == count {
                    self.after_escape = true;
                } else {
                    rest &= !(bit << 1);
                }
            } else if masks.quotes & bit != 0 && (inside || (opens | toggles << 1) & bit != 0) {
                toggles |= bit;
                inside = !inside;
            }
        }
        toggles
    }
}

impl Dialect {
    /// The bytes to look for as quotes and as escapes; where there is none of a kind, the delimiter, which nobody asks.
    #[inline(always)]
    fn needles(self) -> (u8, u8) {
        match self.quoting {
            Quoting::Never => (self.delimiter, self.delimiter),
            Quoting::Backslash => (self.delimiter, b'\\'),
            Quoting::Doubled(quote) => (quote, self.delimiter),
            Quoting::Escaped { quote, escape } | Quoting::Leading { quote, escape } => (quote, escape),
        }
    }
}

/// Eight bytes at a time.
fn words(block: &[u8; 64], dialect: Dialect) -> Masks {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let (quote, escape) = dialect.needles();
    // The high bit of each byte, gathered.
    let gather = |bits: u64| (bits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let equal = |byte: u8| {
        let wanted = u64::from_ne_bytes([byte; 8]);
        block.as_chunks::<8>().0.iter().rev().fold(0, |mask, word| {
            let differs = u64::from_le_bytes(*word) ^ wanted;
            // Zero bytes alone keep their high bit: no carry crosses into a neighbour.
            let same = !(((differs & LOW) + LOW) | differs | LOW);
            mask << 8 | gather(same)
        })
    };
    Masks {
        delimiters: equal(dialect.delimiter),
        line_feeds: equal(b'\n'),
        carriage_returns: equal(b'\r'),
        quotes: equal(quote),
        escapes: equal(escape),
        nul: equal(0),
        high: block
            .as_chunks::<8>()
            .0
            .iter()
            .rev()
            .fold(0, |mask, word| mask << 8 | gather(u64::from_le_bytes(*word) & !LOW)),
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Context, Dialect, Masks, Visit, one_by_one, walk_by};
    use std::arch::x86_64::{
        __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8,
        _mm512_add_epi32, _mm512_cmpeq_epi8_mask, _mm512_loadu_si512, _mm512_maskz_compress_epi32,
        _mm512_movepi8_mask, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_setr_epi32, _mm512_storeu_si512,
    };

    /// Whether the processor has what [`walk_avx512`] is made of.
    pub(super) fn has_avx512() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && has_words()
    }

    /// Whether the processor has what [`walk_avx2`] is made of.
    pub(super) fn has_avx2() -> bool {
        is_x86_feature_detected!("avx2") && has_words()
    }

    fn has_words() -> bool {
        is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
    }

    #[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn walk_avx512(
        bytes: &[u8],
        dialect: Dialect,
        context: &mut Context,
        visitor: &mut impl Visit,
    ) {
        let (quote, escape) = dialect.needles();
        let masks = |block: &[u8; 64], dialect: Dialect| {
            // SAFETY: the block has as many bytes as are read, aligned or not.
            let block = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
            let equal = |byte: u8| _mm512_cmpeq_epi8_mask(block, _mm512_set1_epi8(byte as i8));
            Masks {
                delimiters: equal(dialect.delimiter),
                line_feeds: equal(b'\n'),
                carriage_returns: equal(b'\r'),
                quotes: equal(quote),
                escapes: equal(escape),
                nul: equal(0),
                high: _mm512_movepi8_mask(block),
            }
        };
        // Sixteen places at a time are moved up to where bits are set.
        let places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let positions = |mask: u64, base: u32, room: &mut [u32; 64]| {
            let mut written = 0;
            for quarter in 0..4 {
                let bits = (mask >> (16 * quarter)) as u16;
                let first = _mm512_set1_epi32(base.wrapping_add(16 * quarter) as i32);
                let packed = _mm512_maskz_compress_epi32(bits, _mm512_add_epi32(places, first));
                // At most sixteen of each quarter are before it.
                let room = &mut room[written..written + 16];
                // SAFETY: there is room for sixteen places, aligned or not.
                unsafe { _mm512_storeu_si512(room.as_mut_ptr().cast(), packed) };
                written += bits.count_ones() as usize;
            }
        };
        walk_by(bytes, dialect, context, visitor, masks, positions);
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn walk_avx2(bytes: &[u8], dialect: Dialect, context: &mut Context, visitor: &mut impl Visit) {
        let (quote, escape) = dialect.needles();
        let masks = |block: &[u8; 64], dialect: Dialect| {
            // SAFETY: each half of the block has as many bytes as are read, aligned or not.
            let load = |half: &[u8]| unsafe { _mm256_loadu_si256(half[..32].as_ptr().cast::<__m256i>()) };
            let (low, high) = (load(&block[..32]), load(&block[32..]));
            let bits = |half: __m256i| u64::from(_mm256_movemask_epi8(half) as u32);
            let equal = |byte: u8| {
                let wanted = _mm256_set1_epi8(byte as i8);
                bits(_mm256_cmpeq_epi8(low, wanted)) | bits(_mm256_cmpeq_epi8(high, wanted)) << 32
            };
            Masks {
                delimiters: equal(dialect.delimiter),
                line_feeds: equal(b'\n'),
                carriage_returns: equal(b'\r'),
                quotes: equal(quote),
                escapes: equal(escape),
                nul: equal(0),
                high: bits(low) | bits(high) << 32,
            }
        };
        walk_by(bytes, dialect, context, visitor, masks, one_by_one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::random::Random;

    const DIALECTS: [Dialect; 6] = [
        Dialect { delimiter: b',', quoting: Quoting::Doubled(b'"') },
        Dialect { delimiter: b';', quoting: Quoting::Escaped { quote: b'\'', escape: b'\\' } },
        Dialect { delimiter: b'\t', quoting: Quoting::Backslash },
        // An escape that is the delimiter of nobody, and a quote beyond the usual.
        Dialect { delimiter: b'|', quoting: Quoting::Doubled(b'x') },
        Dialect { delimiter: b',', quoting: Quoting::Leading { quote: b'"', escape: b'"' } },
        Dialect { delimiter: b',', quoting: Quoting::Leading { quote: b'"', escape: b'\\' } },
    ];

    fn kernels() -> Vec<Kernel> {
        let mut kernels = vec![Kernel::Words];
        #[cfg(target_arch = "x86_64")]
        {
            kernels.extend(x86::has_avx2().then_some(Kernel::Avx2));
            kernels.extend(x86::has_avx512().then_some(Kernel::Avx512));
        }
        kernels
    }

    /// A byte at a time: whether each has its meaning, and where the last record ends.
    fn plainly(bytes: &[u8], dialect: Dialect) -> (Vec<u32>, Context) {
        let mut context = Context::default();
        let mut has_closed = false;
        let mut ends = Vec::new();
        for (position, &byte) in (0..).zip(bytes) {
            if context.after_escape {
                context.after_escape = false;
                continue;
            }
            let before = u32::checked_sub(position, 1).map(|before| bytes[before as usize]);
            let is_leading = matches!(dialect.quoting, Quoting::Leading { .. });
            let begins = before.is_none_or(|before| [dialect.delimiter, b'\n'].contains(&before));
            let stands_for_itself = is_leading && !context.in_quotes && !begins && !has_closed;
            has_closed = false;
            context.within_field =
                is_leading && !context.in_quotes && byte != dialect.delimiter && byte != b'\n';
            match dialect.quoting {
                Quoting::Backslash if byte == b'\\' => context.after_escape = true,
                Quoting::Escaped { quote, escape } | Quoting::Leading { quote, escape }
                    if byte == escape && quote != escape && context.in_quotes =>
                {
                    context.after_escape = true;
                }
                Quoting::Leading { quote, .. } if byte == quote && stands_for_itself => {}
                Quoting::Doubled(quote) | Quoting::Escaped { quote, .. } | Quoting::Leading { quote, .. }
                    if byte == quote =>
                {
                    has_closed = context.in_quotes;
                    context.in_quotes = !context.in_quotes;
                    context.within_field = false;
                }
                _ if !context.in_quotes && (byte == dialect.delimiter || byte == b'\n') => {
                    ends.push(position)
                }
                _ => {}
            }
        }
        (ends, context)
    }

    fn random_bytes(random: &mut Random, dialect: Dialect) -> Vec<u8> {
        let (quote, escape) = dialect.needles();
        let rare = random.uniform(1, 60);
        let meaning = [dialect.delimiter, b'\n', b'\r', quote, escape, 0, 0xc3, b'\\', b'"'];
        (0..random.uniform(0, 299))
            .map(|_| match random.uniform(0, rare - 1) {
                0 => meaning[random.uniform(0, meaning.len() as i64 - 1) as usize],
                _ => b'a' + random.uniform(0, 25) as u8,
            })
            .collect()
    }

    #[test]
    fn every_kernel_finds_what_a_plain_loop_finds() {
        let mut random = Random::seeded(5);
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        for round in 0..rounds {
            let dialect = DIALECTS[round % DIALECTS.len()];
            let bytes = random_bytes(&mut random, dialect);
            let (ends, context) = plainly(&bytes, dialect);
            for kernel in kernels() {
                let mut structure = Structure::default();
                let mut left = Context::default();
                structure.find_with(kernel, &bytes, dialect);
                assert_eq!(structure.ends()[1..], ends, "{kernel:?} {dialect:?} {bytes:?}");
                walk(kernel, &bytes, dialect, &mut left, &mut Progress::default());
                assert_eq!(left, context, "{kernel:?} {dialect:?} {bytes:?}");
                let lines = ends.iter().filter(|end| bytes[**end as usize] == b'\n').count();
                assert_eq!(structure.lines, lines);
                assert_eq!(structure.is_ascii, bytes.is_ascii());
                assert_eq!(structure.has_nul, bytes.contains(&0));
            }
        }
    }

    #[test]
    fn of_records_with_many_fields_the_first_ones_and_the_end_are_found() {
        let mut random = Random::seeded(7);
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        for round in 0..rounds {
            let dialect = DIALECTS[round % DIALECTS.len()];
            let bytes = random_bytes(&mut random, dialect);
            let most = random.uniform(0, 4) as usize;
            let (ends, _) = plainly(&bytes, dialect);
            let (mut expected, mut in_record) = (Vec::new(), 0);
            for end in &ends {
                let is_last = bytes[*end as usize] == b'\n';
                expected.extend((is_last || in_record < most).then_some(*end));
                in_record = if is_last { 0 } else { in_record + 1 };
            }
            let (mut few, mut all) = (Structure::default(), Structure::default());
            all.find(&bytes, dialect);
            for kernel in kernels() {
                few.find_some_with(kernel, &bytes, dialect, most);
                assert_eq!(few.ends()[1..], expected, "{kernel:?} {dialect:?} {most} {bytes:?}");
                assert_eq!(few.left_out, ends.len() - expected.len());
                let rest = |structure: &Structure| {
                    let Structure {
                        lines, void_lines, carriage_returns, has_quoting, has_inner_quoting, ..
                    } = *structure;
                    (lines, void_lines, carriage_returns, has_quoting, has_inner_quoting)
                };
                assert_eq!(rest(&few), rest(&all));
            }
        }
        // However long it is, it takes little.
        if !cfg!(miri) {
            let bytes = [&[b','; 2 * LONG_BYTES][..], b"\n1,2\n"].concat();
            let mut structure = Structure::default();
            structure.find_some(&bytes, DIALECTS[0], 3);
            assert_eq!((structure.ends().len(), structure.lines), (1 + 4 + 2, 2));
            assert!(structure.ends.capacity() < 1000);
        }
    }

    #[test]
    fn the_ends_of_records_are_found_however_the_bytes_come() {
        let mut random = Random::seeded(6);
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        for round in 0..rounds {
            let dialect = DIALECTS[round % DIALECTS.len()];
            let bytes = random_bytes(&mut random, dialect);
            let (ends, context) = plainly(&bytes, dialect);
            let whole =
                ends.iter().rfind(|end| bytes[**end as usize] == b'\n').map_or(0, |end| *end as usize + 1);
            let mut progress = Progress::default();
            let mut come = 0;
            while come < bytes.len() {
                come = (come + random.uniform(1, 100) as usize).min(bytes.len());
                progress.search(&bytes[..come], dialect);
            }
            let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            assert_eq!((progress.whole, progress.context), (whole, context), "{dialect:?} {bytes:?}");
            assert_eq!(progress.lines, lines(&bytes[..whole]));
            assert_eq!(progress.lines_behind, lines(&bytes[whole..]));
        }
    }
}
