//! Codes: small numbers, one for every value, in the narrowest of 1, 2, 4 and 8 bytes that holds them all.
//!
//! ```text
//!  One    | c0 c1 c2 c3 c4 …                1 byte each
//!  Two    | c0   | c1   | c2   …            2
//!  Four   | c0          | c1          …     4
//!  Eight  | c0                        | …   8: only offsets of 16-byte values are that long
//! ```
//! They are either places in a dictionary or distances from the lowest value of their block.
//!
//! They are not packed to bits: Arrow's dictionary arrays have keys of whole bytes, and use these without a
//! copy. A code is read by one load. 64 codes of a byte are compared by one instruction (AVX-512) or two.
//! Packing would save up to half of codes of 9 to 12 and of 17 to 24 bits
//! (docs/decisions/0024-codes-are-whole-bytes.md).

use crate::memory::prefetch;
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use std::ops::Range;

/// The number of a value.
pub trait Code: ArrowNativeType + Ord + Send + Sync {
    /// The highest number that fits.
    const HIGHEST: u64;

    /// From a number that must fit.
    fn narrow(number: u64) -> Self;

    /// As a number.
    fn number(self) -> u64;
}

macro_rules! codes {
    ($($code:ty)*) => {$(
        impl Code for $code {
            const HIGHEST: u64 = <$code>::MAX as u64;

            #[inline]
            fn narrow(number: u64) -> $code {
                debug_assert!(number <= <$code as Code>::HIGHEST);
                number as $code
            }

            #[inline]
            fn number(self) -> u64 {
                u64::from(self)
            }
        }
    )*};
}
codes!(u8 u16 u32 u64);

/// The width of a column's codes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CodeWidth {
    /// 1 byte
    One,
    /// 2 bytes
    Two,
    /// 4 bytes
    Four,
    /// 8 bytes
    Eight,
}

impl CodeWidth {
    /// The narrowest width that holds numbers up to `highest`.
    pub fn for_highest(highest: u64) -> CodeWidth {
        match highest {
            0..=0xff => CodeWidth::One,
            0x100..=0xffff => CodeWidth::Two,
            0x1_0000..=0xffff_ffff => CodeWidth::Four,
            _ => CodeWidth::Eight,
        }
    }

    /// In bytes.
    pub fn bytes(self) -> usize {
        1 << self as usize
    }
}

/// The codes of a column.
#[derive(Clone, Debug)]
pub enum Codes {
    /// Up to 255
    One(ScalarBuffer<u8>),
    /// Up to 65,535
    Two(ScalarBuffer<u16>),
    /// Up to 4,294,967,295
    Four(ScalarBuffer<u32>),
    /// Any
    Eight(ScalarBuffer<u64>),
}

/// Runs an expression over codes of any width.
macro_rules! each_codes {
    ($codes:expr, $slice:ident => $body:expr) => {
        match $codes {
            $crate::encoding::codes::Codes::One($slice) => $body,
            $crate::encoding::codes::Codes::Two($slice) => $body,
            $crate::encoding::codes::Codes::Four($slice) => $body,
            $crate::encoding::codes::Codes::Eight($slice) => $body,
        }
    };
}
pub(super) use each_codes;

impl Codes {
    /// Collects numbers up to `highest`, in the width for it.
    pub fn collect(highest: u64, numbers: impl Iterator<Item = u64>) -> Codes {
        fn narrow<C: Code>(numbers: impl Iterator<Item = u64>) -> ScalarBuffer<C> {
            numbers.map(C::narrow).collect::<Vec<C>>().into()
        }
        match CodeWidth::for_highest(highest) {
            CodeWidth::One => Codes::One(narrow(numbers)),
            CodeWidth::Two => Codes::Two(narrow(numbers)),
            CodeWidth::Four => Codes::Four(narrow(numbers)),
            CodeWidth::Eight => Codes::Eight(narrow(numbers)),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        each_codes!(self, codes => codes.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How wide they are.
    pub fn width(&self) -> CodeWidth {
        match self {
            Codes::One(_) => CodeWidth::One,
            Codes::Two(_) => CodeWidth::Two,
            Codes::Four(_) => CodeWidth::Four,
            Codes::Eight(_) => CodeWidth::Eight,
        }
    }

    /// The memory they take.
    pub fn bytes(&self) -> usize {
        self.len() * self.width().bytes()
    }

    /// The code at a position.
    #[inline]
    pub fn get(&self, at: usize) -> usize {
        each_codes!(self, codes => codes[at].number() as usize)
    }

    /// Prefetches the code at a position.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        each_codes!(self, codes => prefetch(codes.as_ptr().wrapping_add(at).cast()));
    }

    /// As [`Codes::get`], for numbers that may need 64 bits on any machine.
    #[inline]
    pub fn number(&self, at: usize) -> u64 {
        each_codes!(self, codes => codes[at].number())
    }

    /// A range of them, which shares their memory.
    pub fn slice(&self, range: Range<usize>) -> Codes {
        let (start, length) = (range.start, range.len());
        match self {
            Codes::One(codes) => Codes::One(codes.slice(start, length)),
            Codes::Two(codes) => Codes::Two(codes.slice(start, length)),
            Codes::Four(codes) => Codes::Four(codes.slice(start, length)),
            Codes::Eight(codes) => Codes::Eight(codes.slice(start, length)),
        }
    }

    /// The highest one.
    pub fn highest(&self) -> Option<u64> {
        each_codes!(self, codes => codes.iter().max().map(|code| code.number()))
    }

    /// Whether they share memory.
    pub fn shares(&self, other: &Codes) -> bool {
        match (self, other) {
            (Codes::One(a), Codes::One(b)) => a.ptr_eq(b),
            (Codes::Two(a), Codes::Two(b)) => a.ptr_eq(b),
            (Codes::Four(a), Codes::Four(b)) => a.ptr_eq(b),
            (Codes::Eight(a), Codes::Eight(b)) => a.ptr_eq(b),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_as_wide_as_the_highest_of_them_needs() {
        for (highest, bytes) in [
            (0, 1),
            (255, 1),
            (256, 2),
            (65_535, 2),
            (65_536, 4),
            (u64::from(u32::MAX), 4),
            (1 << 32, 8),
            (u64::MAX, 8),
        ] {
            let codes = Codes::collect(highest, [highest, 0, highest / 2].into_iter());
            assert_eq!((codes.width().bytes(), codes.bytes()), (bytes, 3 * bytes));
            assert_eq!((codes.number(0), codes.number(2)), (highest, highest / 2));
            assert_eq!(codes.highest(), Some(highest));
            let rest = codes.slice(1..3);
            assert_eq!((rest.len(), rest.number(1)), (2, highest / 2));
            assert!(codes.shares(&codes.clone()) && !codes.shares(&rest));
        }
    }
}
