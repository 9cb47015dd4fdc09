//! Unsigned numbers of 256 bits: keys of a few columns that are too wide for 128 bits, such as two of type bigint that may be NULL.
//! They are compared and sorted as numbers, without a look at other memory.

use std::ops::{BitAnd, BitOr, Not, Shl};

/// A number of 256 bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DoubleWord {
    // The order of the fields is that of the comparison.
    /// The upper half.
    pub high: u128,
    /// The lower half.
    pub low: u128,
}

impl Shl<u32> for DoubleWord {
    type Output = DoubleWord;

    /// Up to 128 bits.
    #[inline]
    fn shl(self, bits: u32) -> DoubleWord {
        match bits {
            0 => self,
            128 => DoubleWord { high: self.low, low: 0 },
            _ => DoubleWord { high: self.high << bits | self.low >> (128 - bits), low: self.low << bits },
        }
    }
}

impl BitOr for DoubleWord {
    type Output = DoubleWord;

    #[inline]
    fn bitor(self, other: DoubleWord) -> DoubleWord {
        DoubleWord { high: self.high | other.high, low: self.low | other.low }
    }
}

impl BitAnd for DoubleWord {
    type Output = DoubleWord;

    #[inline]
    fn bitand(self, other: DoubleWord) -> DoubleWord {
        DoubleWord { high: self.high & other.high, low: self.low & other.low }
    }
}

impl Not for DoubleWord {
    type Output = DoubleWord;

    #[inline]
    fn not(self) -> DoubleWord {
        DoubleWord { high: !self.high, low: !self.low }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_move_to_the_upper_half_which_counts_more() {
        let one = DoubleWord { high: 0, low: 1 };
        assert_eq!(one << 0, one);
        assert_eq!(one << 127, DoubleWord { high: 0, low: 1 << 127 });
        assert_eq!((one << 127) << 1, DoubleWord { high: 1, low: 0 });
        assert_eq!(one << 128, DoubleWord { high: 1, low: 0 });
        assert_eq!((one << 65) << 65, DoubleWord { high: 4, low: 0 });
        assert!(one << 128 > !one & (DoubleWord { high: 0, low: u128::MAX } | one));
    }
}
