//! Copies and loads of memory to which other threads may be writing, many values at a time.

use crate::memory::Atomic;
use firn_base::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Atomics that scans copy.
pub trait Number: Atomic {
    /// The type of one value.
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

/// A way to load atomics with the effect of relaxed loads of one after another. Other threads may be writing
/// to them.
pub trait Loads {
    /// # Safety
    /// The processor has the instructions that the implementation uses.
    unsafe fn load<A: Number>(source: &[A; LANES]) -> [A::Plain; LANES];
}

/// One value at a time.
pub(crate) enum OneByOne {}

impl Loads for OneByOne {
    #[inline(always)]
    unsafe fn load<A: Number>(source: &[A; LANES]) -> [A::Plain; LANES] {
        std::array::from_fn(|lane| source[lane].load_relaxed())
    }
}

/// With vectors of AVX2. The compiler makes one instruction of each atomic load, and single-value
/// instructions of what follows. After these loads it uses vectors, as for a slice. Values may be torn, as in
/// [`append`].
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
        // SAFETY: the part is within the atomics, and loading several at a time has the effect of loading
        // each. What is written is within the values. Without `pure`, so that the compiler does not load
        // twice. The prefetched address is a page further, where the processor's own prefetching ends. It may
        // be unmapped, which does no harm.
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
    // SAFETY: all of it was written, and atomics of this size may hold any bits.
    unsafe { values.assume_init() }
}

/// Appends the values of atomics, with the effect of relaxed loads of one after another. Other threads may be
/// writing to them.
#[inline]
pub(crate) fn append<A: Number>(source: &[A], target: &mut Vec<A::Plain>) {
    const { assert!(size_of::<A>() == size_of::<A::Plain>()) };
    target.reserve(source.len());
    let room = target.spare_capacity_mut().as_mut_ptr();
    if copy(source.as_ptr().cast(), room.cast(), size_of_val(source)) {
        // SAFETY: this many values were written behind the last one, where there is room for them.
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
    // On the processors that do this, the low word comes first.
    if copy(source.as_ptr().cast(), room.cast(), size_of_val(source)) {
        // SAFETY: as above.
        unsafe { target.set_len(target.len() + pairs.len()) };
    } else {
        target.extend(pairs.iter().map(|[low, high]| {
            u128::from(low.load(Ordering::Relaxed)) | u128::from(high.load(Ordering::Relaxed)) << 64
        }));
    }
}

/// Fewer bytes are loaded one by one: the processor needs time to start a copy instruction.
const WORTH_COPYING: usize = 512;

/// Copies `bytes` bytes, if that pays. Returns whether it has copied.
///
/// The compiler makes one load of each atomic load, which reaches a quarter of the memory's speed. The
/// processor's copy instruction loads several values at a time, and may tear a value. Scans check afterwards
/// whether there was a writer, and if so discard what they have copied.
#[inline]
fn copy(source: *const u8, target: *mut u8, bytes: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes >= WORTH_COPYING {
        // SAFETY: the caller has this many bytes to read, which are atomics, and to write, which it owns.
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
