//! Access to randomness: a small generator with a seed that tests can print and repeat.

use std::hash::{BuildHasher, Hasher, RandomState};

/// xoshiro256++ (Blackman and Vigna, "Scrambled Linear Pseudorandom Number Generators", 2019): fast, and good
/// enough for everything but secrets.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// The generator that always returns the same sequence for `seed`.
    pub fn seeded(seed: u64) -> Random {
        // SplitMix64 spreads the seed over the state, as the authors advise.
        let mut state = seed;
        Random(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// A generator with a seed that differs in every call.
    pub fn from_entropy() -> Random {
        Random::seeded(RandomState::new().build_hasher().finish())
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        let c = c ^ a;
        let d = d ^ b;
        self.0 = [a ^ d, b ^ c, c ^ shifted, d.rotate_left(45)];
        result
    }

    /// A number in `low..=high`, uniformly distributed except for a bias below 2^-32 over ranges of up to
    /// 2^32.
    #[inline]
    pub fn uniform(&mut self, low: i64, high: i64) -> i64 {
        debug_assert!(low <= high);
        let span = (high - low) as u64 + 1;
        low + ((u128::from(self.next_u64()) * u128::from(span)) >> 64) as i64
    }

    /// A number in `0.0..1.0`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// 128 random bits that an attacker cannot guess: salts, nonces, cancel keys, uuids.
pub fn secret_bytes<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let mut filled = 0;
    while filled < LENGTH {
        // SAFETY: the pointer and length describe the unfilled rest of `bytes`.
        let got = unsafe { libc::getrandom(bytes[filled..].as_mut_ptr().cast(), LENGTH - filled, 0) };
        assert!(got > 0, "the operating system returns no random bytes");
        filled += got as usize;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence_and_stays_in_range() {
        let (mut a, mut b) = (Random::seeded(7), Random::seeded(7));
        let mut seen = [false; 10];
        for _ in 0..1000 {
            let number = a.uniform(-4, 5);
            assert_eq!(number, b.uniform(-4, 5));
            seen[(number + 4) as usize] = true;
            assert!((0.0..1.0).contains(&a.unit()) && b.unit() < 1.0);
        }
        assert_eq!(seen, [true; 10]);
    }
}
