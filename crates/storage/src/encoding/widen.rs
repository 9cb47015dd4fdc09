//! Words of up to 8 bytes as numbers of 16 bytes, which Arrow uses for all decimals.
//!
//! Every word becomes two: itself, and its sign bit 64 times. The compiler vectorises loops in this form, but
//! not loops over 16-byte integers.

/// Appends a 16-byte number for each of `numbers`, which `word` converts to words.
pub(crate) fn widen<N: Copy>(numbers: &[N], word: impl Fn(N) -> i64 + Copy, out: &mut Vec<i128>) {
    out.reserve(numbers.len());
    let room = &mut out.spare_capacity_mut()[..numbers.len()];
    // SAFETY: a number of 16 bytes is two words, which need no greater alignment; only words are written
    // there.
    let room: &mut [[i64; 2]] =
        unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), room.len()) };
    pairs(numbers, word, room);
    // SAFETY: this many have just been written.
    unsafe { out.set_len(out.len() + numbers.len()) };
}

const _: () = assert!(cfg!(target_endian = "little"), "the lower word comes first");

fn pairs<N: Copy>(numbers: &[N], word: impl Fn(N) -> i64 + Copy, out: &mut [[i64; 2]]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("avx2") {
        /// As [`write`], which the compiler makes vectors of twice the width of here.
        #[target_feature(enable = "avx2")]
        fn by_avx2<N: Copy>(numbers: &[N], word: impl Fn(N) -> i64 + Copy, out: &mut [[i64; 2]]) {
            write(numbers, word, out);
        }
        // SAFETY: the processor has the instructions.
        return unsafe { by_avx2(numbers, word, out) };
    }
    write(numbers, word, out);
}

#[inline(always)]
fn write<N: Copy>(numbers: &[N], word: impl Fn(N) -> i64, out: &mut [[i64; 2]]) {
    for (pair, number) in out.iter_mut().zip(numbers) {
        let word = word(*number);
        *pair = [word, word >> 63];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_number_is_the_narrow_one() {
        let numbers: Vec<i16> =
            (0..1000).map(|number: i32| (number * 7919) as i16).chain([i16::MIN, -1, 0]).collect();
        let mut wide = vec![5];
        widen(&numbers, i64::from, &mut wide);
        assert!(
            wide[0] == 5 && wide[1..].iter().copied().eq(numbers.iter().map(|number| i128::from(*number)))
        );
        wide.clear();
        widen(&[i64::MIN, -1, i64::MAX], |word| word, &mut wide);
        assert_eq!(wide, [i128::from(i64::MIN), -1, i128::from(i64::MAX)]);
    }
}
