//! Copies and loads of memory that others may be writing to, many values at a time.

use crate::memory::Atomic;
use firn_base::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Atomics that scans copy.
pub trait Number: Atomic {
    /// What one holds.
    type Plain: Copy;

    fn load_relaxed(&self) -> Self::Plain;
}

macro_rules! numbers {
    ($($atomic:ty: $plain:ty),*) => {$(
        impl Number for $atomic {
            type Plain = $plain;

            #[inline]
            fn load_relaxed(&self) -> $plain {
                self.load(Ordering::Relaxed)
            }
        }
    )*};
}
numbers!(AtomicU16: u16, AtomicU32: u32, AtomicU64: u64);

/// How many values are loaded together.
pub(crate) const LANES: usize = 16;

/// A way to load what atomics hold, as relaxed loads of one after another would. Others may be writing to
/// them.
pub trait Loads {
    /// # Safety
    /// The processor has the instructions.
    unsafe fn load<A: Number>(source: &[A; LANES]) -> [A::Plain; LANES];
}

/// One by one.
pub(crate) enum OneByOne {}

impl Loads for OneByOne {
    #[inline(always)]
    unsafe fn load<A: Number>(source: &[A; LANES]) -> [A::Plain; LANES] {
        std::array::from_fn(|lane| source[lane].load_relaxed())
    }
}

/// By vectors of AVX2. The compiler makes one instruction of each atomic load, and of what follows them
/// instructions for single values; of these loads it goes on with vectors, as it would from a slice. Values
/// may be torn, as in [`append`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) enum Avx2 {}

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl Loads for Avx2 {
    #[inline(always)]
    unsafe fn load<A: Number>(source: &[A; LANES]) -> [A::Plain; LANES] {
        // SAFETY: by the caller.
        unsafe { load_avx2(source) }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
#[inline]
fn load_avx2<A: Number>(source: &[A; LANES]) -> [A::Plain; LANES] {
    use std::arch::{asm, x86_64::__m256i};
    const {
        assert!(size_of::<A>() == size_of::<A::Plain>());
        assert!(size_of::<[A; LANES]>().is_multiple_of(size_of::<__m256i>()));
    }
    let mut values = std::mem::MaybeUninit::<[A::Plain; LANES]>::uninit();
    for part in 0..size_of::<[A; LANES]>() / size_of::<__m256i>() {
        let vector: __m256i;
        // SAFETY: the part lies within the atomics, of which it is loads, several at a time; and what is
        // written lies within the values. Without `pure`, so that it is not done twice. What is fetched lies a page
        // further, where the processor's own prefetching ends; there may be nothing, which does no harm.
        unsafe {
            asm!(
                "prefetcht0 [{place} + 4096]",
                "vmovdqu {vector}, [{place}]",
                vector = lateout(ymm_reg) vector,
                place = in(reg) source.as_ptr().cast::<__m256i>().add(part),
                options(nostack, preserves_flags, readonly),
            );
            values.as_mut_ptr().cast::<__m256i>().add(part).write_unaligned(vector);
        }
    }
    // SAFETY: all of it was written, and atomics of this size hold values of any bits.
    unsafe { values.assume_init() }
}

/// Appends what the atomics hold, as relaxed loads of one after another would. Others may be writing to
/// them.
#[inline]
pub(crate) fn append<A: Number>(source: &[A], target: &mut Vec<A::Plain>) {
    const { assert!(size_of::<A>() == size_of::<A::Plain>()) };
    target.reserve(source.len());
    let room = target.spare_capacity_mut().as_mut_ptr();
    if copy(source.as_ptr().cast(), room.cast(), size_of_val(source)) {
        // SAFETY: so many values were written behind the last, where there is room for them.
        unsafe { target.set_len(target.len() + source.len()) };
    } else {
        target.extend(source.iter().map(A::load_relaxed));
    }
}

/// As [`append`], for pairs of words, low word first.
#[inline]
pub(crate) fn append_pairs(source: &[AtomicU64], target: &mut Vec<u128>) {
    let (pairs, rest) = source.as_chunks::<2>();
    assert!(rest.is_empty());
    target.reserve(pairs.len());
    let room = target.spare_capacity_mut().as_mut_ptr();
    // Where this is done, the low word lies first.
    if copy(source.as_ptr().cast(), room.cast(), size_of_val(source)) {
        // SAFETY: as above.
        unsafe { target.set_len(target.len() + pairs.len()) };
    } else {
        target.extend(pairs.iter().map(|[low, high]| {
            u128::from(low.load(Ordering::Relaxed)) | u128::from(high.load(Ordering::Relaxed)) << 64
        }));
    }
}

/// Fewer bytes are loaded one by one: it takes the processor a while to begin a copy.
const WORTH_COPYING: usize = 512;

/// Copies `bytes` bytes, if that is worth it; whether it has.
///
/// The compiler makes one load of each atomic load, which is a quarter of the speed that memory has. The
/// processor's own copy is such loads as well, several at a time, and may tear a value: scans look
/// afterwards whether somebody was writing, and if so throw away what they have copied.
#[inline]
fn copy(source: *const u8, target: *mut u8, bytes: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes >= WORTH_COPYING {
        // SAFETY: callers have as many bytes to read, which are atomics, and to write, which are theirs.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rsi") source => _,
                inout("rdi") target => _,
                inout("rcx") bytes => _,
                options(nostack, preserves_flags),
            );
        }
        return true;
    }
    let _ = (source, target, bytes, WORTH_COPYING);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_are_copied_whatever_their_number() {
        let words: Vec<AtomicU64> = (0..300u64).map(|at| AtomicU64::new(at << 33 | at)).collect();
        let halves: Vec<AtomicU32> = (0..300).map(AtomicU32::new).collect();
        let (mut numbers, mut small, mut pairs) = (vec![7], vec![7], vec![7]);
        for count in (0..=10).chain([63, 64, 150, 300]) {
            append(&words[..count], &mut numbers);
            append(&halves[300 - count..], &mut small);
            append_pairs(&words[..count / 2 * 2], &mut pairs);
            assert!(numbers.drain(1..).eq((0..count as u64).map(|at| at << 33 | at)));
            assert!(small.drain(1..).eq(300 - count as u32..300));
            let word = |at: u64| u128::from(at << 33 | at);
            let pair = |at: u64| word(2 * at) | word(2 * at + 1) << 64;
            assert!(pairs.drain(1..).eq((0..count as u64 / 2).map(pair)));
            assert_eq!((numbers[0], small[0], pairs[0]), (7, 7, 7));
        }
    }
}
