//! Eight fields of a column at once, in the lanes of wide registers.
//!
//! A column is mostly numbers of one form, so that eight of them can be read by the same steps, without a branch. The steps are
//! plain loops over arrays, which the compiler turns into instructions for eight lanes or four, depending on the processor. All
//! of them are inlined into callers that are compiled for it ([`Kernel`]). A lane that holds another form is reported, and its
//! field is read by itself (`number`). The tests compare the two.
//!
//! Mühlbauer (dissertation, TU München 2016, §3.3.3) validates and folds the digits of one number by SIMD. Here a column of a
//! chunk is read as a whole, so that lanes can be rows.

use crate::number::{FIRST_YEAR, YEARS};
use crate::structure::Kernel;
use std::ops::{Range, RangeInclusive};

/// How many fields are read at once.
pub(crate) const LANES: usize = 8;

/// Fields of a column, in consecutive rows.
#[derive(Clone, Copy)]
pub(crate) struct Eight<'c> {
    kernel: Kernel,
    chunk: &'c [u8],
    /// Their beginnings and ends in the chunk.
    starts: [u32; LANES],
    ends: [u32; LANES],
}

/// The result of reading eight fields: a mask of the fields that were read, the first field's bit the lowest, and the values. The
/// other fields hold a form that is not read here.
pub(crate) type Read = (u8, [i64; LANES]);

/// `0` eight times.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The longest integers that are read here have two words of this size.
const WORD: u64 = 8;

/// The most bytes that may be removed from the end of a field: a carriage return, and the quote before it.
const TRIMMED: u64 = 2;

impl<'c> Eight<'c> {
    /// The fields between ends: those of the first row are at the beginning of `ends`, those of each other row `width` further on.
    /// `None` if the words that hold them would begin before the chunk.
    #[inline(always)]
    pub fn new(kernel: Kernel, chunk: &'c [u8], ends: &[u32], width: usize) -> Option<Eight<'c>> {
        let ends = &ends[..(LANES - 1) * width + 2];
        let mut pairs = [0; LANES];
        for (lane, pair) in pairs.iter_mut().enumerate() {
            let [before, end] = *ends[lane * width..].first_chunk().expect("two ends");
            *pair = u64::from(before) | u64::from(end) << 32;
        }
        #[cfg(target_arch = "x86_64")]
        if kernel == Kernel::Avx512 {
            // SAFETY: as in `words`.
            pairs = unsafe { x86::together(pairs) };
        }
        let (mut starts, mut ends) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            starts[lane] = (pairs[lane] as u32).wrapping_add(1);
            ends[lane] = (pairs[lane] >> 32) as u32;
        }
        let eight = Eight { kernel, chunk, starts, ends };
        (u64::from(eight.ends[0]) >= 2 * WORD + TRIMMED).then_some(eight)
    }

    /// The bytes of a field.
    #[inline(always)]
    pub fn field(&self, lane: usize) -> Range<usize> {
        self.starts[lane] as usize..self.ends[lane] as usize
    }

    /// The chunk that they are in.
    pub fn chunk(&self) -> &'c [u8] {
        self.chunk
    }

    /// A mask of the empty fields, the first field's bit the lowest.
    #[inline(always)]
    pub fn empty(&self) -> u8 {
        let mut mask = 0;
        for lane in 0..LANES {
            mask |= u8::from(self.starts[lane] == self.ends[lane]) << lane;
        }
        mask
    }

    /// A mask of the fields equal to `text`, the first field's bit the lowest.
    #[inline(always)]
    pub fn equal(&self, text: &[u8]) -> u8 {
        let mut mask = 0;
        for lane in 0..LANES {
            let field = self.field(lane);
            let is_equal = field.len() == text.len() && self.chunk[field] == *text;
            mask |= u8::from(is_equal) << lane;
        }
        mask
    }

    /// Without the carriage returns at their ends.
    #[inline(always)]
    pub fn without_returns(mut self) -> Eight<'c> {
        for lane in 0..LANES {
            let field = self.field(lane);
            let ends_in_return = self.chunk[field].last() == Some(&b'\r');
            self.ends[lane] -= u32::from(ends_in_return);
        }
        self
    }

    /// Without the quotes around those that have them on both sides.
    #[inline(always)]
    pub fn without_quotes(mut self, quote: u8) -> Eight<'c> {
        for lane in 0..LANES {
            let field = &self.chunk[self.field(lane)];
            let is_quoted = field.len() > 1 && field[0] == quote && field[field.len() - 1] == quote;
            self.starts[lane] += u32::from(is_quoted);
            self.ends[lane] -= u32::from(is_quoted);
        }
        self
    }

    /// The eight bytes that end `back` bytes before the end of each field, the first of them the lowest.
    #[inline(always)]
    fn words(&self, back: usize) -> [u64; LANES] {
        let mut words = [0; LANES];
        for (word, end) in words.iter_mut().zip(self.ends) {
            let end = end as usize - back;
            *word = u64::from_le_bytes(self.chunk[end - 8..end].try_into().expect("eight bytes"));
        }
        match self.kernel {
            // SAFETY: the processor has these instructions: `Kernel::best` has checked it.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => unsafe { x86::together(words) },
            _ => words,
        }
    }

    #[inline(always)]
    fn lengths(&self) -> [u64; LANES] {
        let mut lengths = [0; LANES];
        for (lane, length) in lengths.iter_mut().enumerate() {
            *length = u64::from(self.ends[lane] - self.starts[lane]);
        }
        lengths
    }

    /// Integers of up to sixteen bytes.
    #[inline(always)]
    pub fn integers(&self, range: RangeInclusive<i64>) -> Read {
        let mut is_short = true;
        for lane in 0..LANES {
            is_short &= self.ends[lane] - self.starts[lane] <= WORD as u32;
        }
        self.take(if is_short { Steps::Short } else { Steps::Long }, range)
    }

    /// Decimals of up to eight digits, `scale` of them behind a point or none, in units of the last.
    #[inline(always)]
    pub fn decimals(&self, scale: u32, range: RangeInclusive<i64>) -> Read {
        self.take(Steps::Decimals(scale), range)
    }

    /// Days `YYYY-MM-DD` since 1970-01-01, of the years that `number` supports.
    #[inline(always)]
    pub fn dates(&self) -> Read {
        self.take(Steps::Dates, i64::MIN..=i64::MAX)
    }

    /// Removes values out of the range from the mask.
    #[inline(always)]
    fn take(&self, steps: Steps, range: RangeInclusive<i64>) -> Read {
        let (values, odd) = take(steps, &self.words(0), &self.words(steps.back()), &self.lengths());
        let mask = match self.kernel {
            // SAFETY: the processor has these instructions: `Kernel::best` has checked it.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => unsafe { x86::counting(values, odd, *range.start(), *range.end()) },
            _ => {
                let mut mask = 0;
                for lane in 0..LANES {
                    mask |= u8::from(odd[lane] == 0 && range.contains(&values[lane])) << lane;
                }
                mask
            }
        };
        (mask, values)
    }
}

/// The form that is read.
#[derive(Clone, Copy)]
enum Steps {
    /// Integers of one word.
    Short,
    /// Integers of two.
    Long,
    /// Decimals of this scale.
    Decimals(u32),
    /// Days.
    Dates,
}

impl Steps {
    /// How far before the end of a field the second word ends that is used.
    #[inline(always)]
    fn back(self) -> usize {
        match self {
            Steps::Short => 0,
            Steps::Decimals(_) => 1,
            Steps::Dates => 2,
            Steps::Long => 8,
        }
    }
}

/// The values of lanes, and for each a word that is not zero if it holds another form.
type Lanes = ([i64; LANES], [u64; LANES]);

/// `words` are the last eight bytes of fields, `others` those that end [`Steps::back`] before.
#[inline(always)]
fn take(steps: Steps, words: &[u64; LANES], others: &[u64; LANES], lengths: &[u64; LANES]) -> Lanes {
    let (mut values, mut odd) = ([0; LANES], [0; LANES]);
    match steps {
        Steps::Short => {
            for lane in 0..LANES {
                (values[lane], odd[lane]) = short_integer(words[lane], lengths[lane]);
            }
        }
        Steps::Long => {
            for lane in 0..LANES {
                (values[lane], odd[lane]) = long_integer(words[lane], others[lane], lengths[lane]);
            }
        }
        Steps::Decimals(scale) => {
            let unit = 10_u64.pow(scale);
            for lane in 0..LANES {
                (values[lane], odd[lane]) = decimal(words[lane], others[lane], lengths[lane], scale, unit);
            }
        }
        Steps::Dates => {
            for lane in 0..LANES {
                (values[lane], odd[lane]) = date(words[lane], others[lane], lengths[lane]);
            }
        }
    }
    (values, odd)
}

/// The last `count` bytes of a word as digits, with zeros before them; [`odd_digits`] checks whether they are digits.
/// `count` counts modulo eight, with zero for all.
#[inline(always)]
fn last_digits(word: u64, count: u64) -> u64 {
    let foreign = (64_u64.wrapping_sub(count.wrapping_mul(8))) & 63;
    (word ^ ZEROS) >> foreign << foreign
}

/// Not zero if one of eight digits is no digit.
#[inline(always)]
fn odd_digits(digits: u64) -> u64 {
    // A byte above nine sets the high bit, or has it.
    (digits | digits.wrapping_add(0x7676_7676_7676_7676)) & 0x8080_8080_8080_8080
}

/// Neighbours combined into pairs, in sixteen bits each. The first byte has the highest place.
#[inline(always)]
fn pairs(digits: u64) -> u64 {
    digits.wrapping_mul((10 << 8) + 1) >> 8 & 0x00ff_00ff_00ff_00ff
}

/// The value of eight digits.
#[inline(always)]
fn value(digits: u64) -> u64 {
    let fours = pairs(digits).wrapping_mul((100 << 16) + 1) >> 16 & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul((10_000 << 32) + 1) >> 32
}

/// The value with its sign, `negative` being 1 or 0.
#[inline(always)]
fn signed(magnitude: u64, negative: u64) -> i64 {
    ((magnitude ^ negative.wrapping_neg()).wrapping_add(negative)) as i64
}

/// Whether a condition holds, as a number.
#[inline(always)]
fn bit(condition: bool) -> u64 {
    u64::from(condition)
}

#[inline(always)]
fn short_integer(word: u64, length: u64) -> (i64, u64) {
    let first = word >> (64_u64.wrapping_sub(8 * length) & 63) & 0xff;
    let negative = bit(first == u64::from(b'-'));
    let count = length.wrapping_sub(negative);
    let digits = last_digits(word, count);
    let odd = odd_digits(digits) | bit(length > WORD) | bit(count.wrapping_sub(1) >= WORD);
    (signed(value(digits), negative), odd)
}

/// `before` are the eight bytes before the last eight.
#[inline(always)]
fn long_integer(word: u64, before: u64, length: u64) -> (i64, u64) {
    let is_long = bit(length > WORD);
    // The word that the field begins in, and its first byte.
    let front = if is_long == 1 { before } else { word };
    let first = front >> (64_u64.wrapping_sub(8 * length) & 63) & 0xff;
    let negative = bit(first == u64::from(b'-'));
    let count = length.wrapping_sub(negative);
    let has_two = count > WORD;
    let low = last_digits(word, if has_two { WORD } else { count });
    let high = if has_two { last_digits(before, count) } else { 0 };
    // The value of bytes that are no digits does not matter.
    let magnitude = value(high).wrapping_mul(100_000_000).wrapping_add(value(low));
    let odd = odd_digits(low) | odd_digits(high);
    (signed(magnitude, negative), odd | bit(count.wrapping_sub(1) >= 2 * WORD) | bit(length > 2 * WORD))
}

/// `before` are the eight bytes that end one before the last.
#[inline(always)]
fn decimal(word: u64, before: u64, length: u64, scale: u32, unit: u64) -> (i64, u64) {
    // The point, if there is one, is before the last `scale` bytes; the bytes before it move up by one.
    let behind = u64::MAX << (64 - 8 * scale);
    let has_point = word >> (56 - 8 * scale) & 0xff == u64::from(b'.');
    let has_point = has_point && length > u64::from(scale);
    let point = bit(has_point);
    let together = if has_point { word & behind | before & !behind } else { word };
    // Where nine bytes have a point, the first is that of eight digits.
    let count = length.wrapping_sub(point);
    let first = together >> (64_u64.wrapping_sub(count.wrapping_mul(8)) & 63) & 0xff;
    let negative = bit(first == u64::from(b'-'));
    let count = count.wrapping_sub(negative);
    let digits = last_digits(together, count);
    // The value of bytes that are no digits does not matter.
    let magnitude = value(digits).wrapping_mul(if has_point { 1 } else { unit });
    // There is a digit before a point.
    let least = if has_point { u64::from(scale) + 1 } else { 1 };
    let odd = odd_digits(digits) | bit(count > WORD) | bit((count as i64) < least as i64);
    (signed(magnitude, negative), odd)
}

/// From the first of March of the year -400 to the last day of 1969.
const DAYS_BEFORE: i64 = 719_469 + 146_097;

/// `front` are the first eight of ten bytes.
#[inline(always)]
fn date(back: u64, front: u64, length: u64) -> (i64, u64) {
    const DASHES: u64 = 0xff00_00ff_0000_0000;
    let no_dashes = front & DASHES ^ 0x2d00_002d_0000_0000;
    let year = front & 0xffff_ffff;
    let month = front >> 8 & 0x0000_ffff_0000_0000;
    let day = back & 0xffff_0000_0000_0000;
    let digits = (year | month | day) ^ ZEROS;
    let pairs = pairs(digits);
    let year = (pairs & 0xff) * 100 + (pairs >> 16 & 0xff);
    let (month, day) = (pairs >> 32 & 0xff, pairs >> 48);
    // Quotients by multiplication, since no processor divides lanes. 5243 / 2^19 is slightly more than a hundredth, 13108 /
    // 2^16 than a fifth; both are exact for the values that occur here.
    let hundreds = |year: u64| (year * 5243) >> 19;
    let century = hundreds(year);
    let is_leap = bit(year & 3 == 0 && (century * 100 != year || century & 3 == 0));
    let length_of_month = if month == 2 { 28 + is_leap } else { 30 + ((month ^ month >> 3) & 1) };
    // Years that begin in March (Fliegel and van Flandern, Communications of the ACM 11, 1968), so that the leap day is the last;
    // 400 more, so that none is negative.
    let early = bit(month < 3);
    let year_of_march = year + 400 - early;
    let months = month + 12 * early - 3;
    let century = hundreds(year_of_march);
    let days = year_of_march * 365 + (year_of_march >> 2) - century + (century >> 2);
    let days = days + (((months * 153 + 2) * 13_108) >> 16) + day;
    let odd = odd_digits(digits)
        | no_dashes
        | length ^ 10
        | bit(month.wrapping_sub(1) >= 12)
        | bit(day.wrapping_sub(1) >= length_of_month)
        | bit(year.wrapping_sub(u64::from(FIRST_YEAR)) >= u64::from(YEARS));
    (days as i64 - DAYS_BEFORE, odd)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::LANES;
    use std::arch::x86_64::{
        __m512i, _mm512_cmpge_epi64_mask, _mm512_cmple_epi64_mask, _mm512_set_epi64, _mm512_set1_epi64,
        _mm512_testn_epi64_mask,
    };
    use std::mem::transmute;

    /// The same in one register. Otherwise the compiler stores them one by one, and the load of all of them
    /// has to wait for that.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn together(values: [u64; LANES]) -> [u64; LANES] {
        let [a, b, c, d, e, f, g, h] = values.map(|value| value as i64);
        // SAFETY: both are 64 bytes, of which every value is valid.
        unsafe { transmute(_mm512_set_epi64(h, g, f, e, d, c, b, a)) }
    }

    /// A mask of the values that are in a range and not odd.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn counting(values: [i64; LANES], odd: [u64; LANES], least: i64, most: i64) -> u8 {
        // SAFETY: as in `together`.
        let values = unsafe { transmute::<[i64; LANES], __m512i>(values) };
        // SAFETY: as above.
        let odd = unsafe { transmute::<[u64; LANES], __m512i>(odd) };
        _mm512_testn_epi64_mask(odd, odd)
            & _mm512_cmpge_epi64_mask(values, _mm512_set1_epi64(least))
            & _mm512_cmple_epi64_mask(values, _mm512_set1_epi64(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number;
    use firn_base::random::Random;

    fn kernels() -> Vec<Kernel> {
        let mut kernels = vec![Kernel::Words];
        if Kernel::best() != Kernel::Words {
            kernels.push(Kernel::best());
        }
        #[cfg(target_arch = "x86_64")]
        if Kernel::best() == Kernel::Avx512 {
            kernels.push(Kernel::Avx2);
        }
        kernels
    }

    /// Eight fields, after enough other bytes: the lanes give the same as reading each field by itself.
    fn check(fields: &[String; LANES]) {
        let mut chunk = b"99-9999-99.99-99999,".to_vec();
        let mut ends = vec![chunk.len() as u32 - 1];
        for field in fields {
            chunk.extend_from_slice(field.as_bytes());
            ends.push(chunk.len() as u32);
            chunk.push(b',');
        }
        for kernel in kernels() {
            let eight = Eight::new(kernel, &chunk, &ends, 1).expect("there is enough before them");
            let hold = |(read, values): Read, by_itself: &dyn Fn(Range<usize>) -> Option<i64>, what: &str| {
                for lane in (0..LANES).filter(|lane| read >> lane & 1 == 1) {
                    let value = Some(values[lane]);
                    assert_eq!(by_itself(eight.field(lane)), value, "{what} of {fields:?}, {lane}");
                }
            };
            let all = i64::MIN..=i64::MAX;
            hold(eight.integers(all.clone()), &|field| number::integer(&chunk, field), "integers");
            let (read, values) = eight.integers(all.clone());
            let (fitting, _) = eight.integers(-9999..=120);
            let fits = |lane: &usize| (-9999..=120).contains(&values[*lane]);
            let those = (0..LANES).filter(fits).fold(0, |mask, lane| mask | 1 << lane);
            assert_eq!(fitting, read & those, "{fields:?}");
            hold(eight.dates(), &|field| number::date(&chunk, field).map(i64::from), "dates");
            for scale in 1..8 {
                let by_itself = |field| number::decimal(&chunk, field, scale as usize);
                hold(eight.decimals(scale, all.clone()), &by_itself, "decimals");
            }
        }
    }

    #[test]
    fn what_lanes_read_is_what_is_read_one_by_one() {
        let mut random = Random::seeded(11);
        let alphabet = b"0123456789-. /:\"";
        for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
            let most = random.uniform(9, alphabet.len() as i64 - 1);
            check(&std::array::from_fn(|_| match random.uniform(0, 4) {
                0 => (0..random.uniform(0, 18))
                    .map(|_| alphabet[random.uniform(0, most) as usize] as char)
                    .collect(),
                1 => (random.uniform(i64::MIN / 2, i64::MAX / 2) >> random.uniform(0, 62)).to_string(),
                2 => {
                    let (whole, scale) = (random.uniform(-9_999_999, 9_999_999), random.uniform(1, 8));
                    let parts = random.uniform(0, 10_i64.pow(scale as u32) - 1);
                    format!("{}.{parts:0width$}", whole >> random.uniform(0, 24), width = scale as usize)
                }
                _ => {
                    let (year, month) = (random.uniform(1890, 2170), random.uniform(0, 13));
                    format!("{year:04}-{month:02}-{:02}", random.uniform(0, 32))
                }
            }));
        }
    }

    #[test]
    fn what_is_common_is_read_in_lanes() {
        let of = |fields: [&str; LANES]| {
            let mut chunk = b"0123456789abcdefgh,".to_vec();
            let mut ends = vec![chunk.len() as u32 - 1];
            for field in fields {
                chunk.extend_from_slice(field.as_bytes());
                ends.push(chunk.len() as u32);
                chunk.push(b'\n');
            }
            (chunk, ends)
        };
        for kernel in kernels() {
            let (chunk, ends) =
                of(["1", "-1", "12345678", "-1234567", "0", "123456789012", "-42", "9999999999999999"]);
            let eight = Eight::new(kernel, &chunk, &ends, 1).unwrap();
            let (read, values) = eight.integers(i64::MIN..=i64::MAX);
            let expected = [1, -1, 12_345_678, -1_234_567, 0, 123_456_789_012, -42, 9_999_999_999_999_999];
            assert_eq!((read, values), (0xff, expected));
            let (chunk, ends) = of(["0.04", "17", "-1.50", "123456.78", "21168.23", "-0.01", "-99", "0.00"]);
            let eight = Eight::new(kernel, &chunk, &ends, 1).unwrap();
            let (read, values) = eight.decimals(2, i64::MIN..=i64::MAX);
            assert_eq!((read, values), (0xff, [4, 1700, -150, 12_345_678, 2_116_823, -1, -9900, 0]));
            let days = ["1970-01-01", "1996-03-13", "2000-02-29", "1999-12-31"];
            let (chunk, ends) =
                of([days[0], days[1], days[2], days[3], "1999-02-29", "1999-13-01", "19990-1-1", "x"]);
            let eight = Eight::new(kernel, &chunk, &ends, 1).unwrap();
            let (read, values) = eight.dates();
            assert_eq!((read, &values[..4]), (0x0f, &[0, 9568, 11_016, 10_956][..]));
        }
    }
}
