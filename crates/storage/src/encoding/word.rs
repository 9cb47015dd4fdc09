//! Words: values of fixed width as blocks store them. Ordinals: numbers in SQL's order of the values.
//!
//! A word is the bits of a value as a signed integer of its width. For most types these integers have the
//! order of the values. For the others a dictionary has ordinals instead:
//!
//! | type | ordinal of a word |
//! |---|---|
//! | smallint, integer, bigint, numeric, date, time, timestamps | the word |
//! | oid | the word, sign bit inverted |
//! | real, double precision | sign and magnitude as a two's complement, all NaNs above infinity |
//! | uuid | the bytes read as a number, first byte highest, sign bit inverted |
//! | interval | the word; SQL orders intervals by their length, which does not fit into 16 bytes beside their parts |
//!
//! Word and ordinal are one to one, so that encoding loses nothing. If SQL calls different words equal (zeros
//! of both signs, NaNs), their ordinals are neighbours: they are one *class*, and conditions select it as a
//! whole.

use arrow_buffer::ArrowNativeType;
use firn_base::{Cell, Representation};
use std::fmt::Debug;
use std::ops::Bound;

/// The mapping from a type's words to ordinals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// An ordinal is the word.
    Signed,
    /// The word is an unsigned number.
    Unsigned,
    /// IEEE 754.
    Float,
    /// Bytes in memory order.
    Bytes,
    /// An ordinal is the word, but SQL has another order of values.
    Foreign,
}

impl Order {
    /// The order of a type of fixed width.
    pub fn of(representation: Representation) -> Order {
        match representation {
            Representation::Float32 | Representation::Float64 => Order::Float,
            Representation::Uuid => Order::Bytes,
            Representation::Oid => Order::Unsigned,
            Representation::Interval => Order::Foreign,
            _ => Order::Signed,
        }
    }
}

/// A value of fixed width.
pub trait Word: ArrowNativeType + Ord + Debug + Send + Sync {
    /// Its width.
    const BYTES: usize;
    /// The lowest ordinal.
    const LOWEST: Self;
    /// The highest ordinal.
    const HIGHEST: Self;

    /// The word in a cell that is not NULL.
    fn from_cell(cell: &Cell<'_>) -> Self;

    /// The cell of the word.
    fn to_cell(self) -> Cell<'static>;

    /// The ordinal of a word.
    fn ordinal(self, order: Order) -> Self;

    /// The word of an ordinal.
    fn word(self, order: Order) -> Self;

    /// First and last ordinal of the class of an ordinal.
    fn class(self, order: Order) -> (Self, Self);

    /// The next higher number, if there is one.
    fn above(self) -> Option<Self>;

    /// The next lower number, if there is one.
    fn below(self) -> Option<Self>;

    /// The distance from `base`, which must not be higher. Distances that do not fit into 64 bits are
    /// truncated: see [`Word::span`].
    fn offset_from(self, base: Self) -> u64;

    /// The distance from this to `highest`, if it fits into 64 bits.
    fn span(self, highest: Self) -> Option<u64>;

    /// The number at this distance above.
    fn plus(self, offset: u64) -> Self;

    /// Widened.
    fn to_i128(self) -> i128;

    /// 64 bits that differ in all places for different words.
    fn hash(self) -> u64;
}

/// Folds two words into a hash; the constants are digits of π, made odd.
pub(super) fn fold(low: u64, high: u64) -> u64 {
    let product = u128::from(low ^ 0x243f_6a88_85a3_08d3) * u128::from(high ^ 0x1319_8a2e_0370_7345);
    (product as u64) ^ (product >> 64) as u64
}

macro_rules! words {
    ($($word:ty, $unsigned:ty, $float:expr, $from:expr, $to:expr;)*) => {$(
        impl Word for $word {
            const BYTES: usize = size_of::<$word>();
            const LOWEST: $word = <$word>::MIN;
            const HIGHEST: $word = <$word>::MAX;

            #[inline]
            fn from_cell(cell: &Cell<'_>) -> $word {
                let from: fn(&Cell<'_>) -> $word = $from;
                from(cell)
            }

            #[inline]
            fn to_cell(self) -> Cell<'static> {
                let to: fn($word) -> Cell<'static> = $to;
                to(self)
            }

            #[inline]
            fn ordinal(self, order: Order) -> $word {
                match order {
                    Order::Signed | Order::Foreign => self,
                    // Minus infinity becomes the lowest ordinal; what was below it wraps around to the top.
                    Order::Float => magnitude(self).wrapping_sub($float),
                    Order::Unsigned => self ^ <$word>::MIN,
                    Order::Bytes => self.swap_bytes() ^ <$word>::MIN,
                }
            }

            #[inline]
            fn word(self, order: Order) -> $word {
                match order {
                    Order::Signed | Order::Foreign => self,
                    Order::Float => magnitude(self.wrapping_add($float)),
                    Order::Unsigned => self ^ <$word>::MIN,
                    Order::Bytes => (self ^ <$word>::MIN).swap_bytes(),
                }
            }

            fn class(self, order: Order) -> ($word, $word) {
                if order != Order::Float {
                    return (self, self);
                }
                let (minus, plus) = ((<$word>::MIN).ordinal(order), (0 as $word).ordinal(order));
                // Infinity has all exponent bits set, which are those above the fraction's.
                let infinity = (<$word>::MAX - $float).ordinal(order);
                if self == minus || self == plus {
                    (minus, plus)
                } else if self > infinity {
                    (infinity + 1, <$word>::MAX)
                } else {
                    (self, self)
                }
            }

            #[inline]
            fn above(self) -> Option<$word> {
                self.checked_add(1)
            }

            #[inline]
            fn below(self) -> Option<$word> {
                self.checked_sub(1)
            }

            #[inline]
            fn offset_from(self, base: $word) -> u64 {
                self.wrapping_sub(base) as $unsigned as u64
            }

            #[inline]
            fn span(self, highest: $word) -> Option<u64> {
                u64::try_from(highest.wrapping_sub(self) as $unsigned).ok()
            }

            #[inline]
            fn plus(self, offset: u64) -> $word {
                self.wrapping_add(offset as $word)
            }

            #[inline]
            fn to_i128(self) -> i128 {
                i128::from(self)
            }

            #[inline]
            fn hash(self) -> u64 {
                let wide = self as i128 as u128;
                fold(wide as u64, if size_of::<$word>() > 8 { (wide >> 64) as u64 } else { 0 })
            }
        }

        impl Magnitude for $word {
            #[inline]
            fn magnitude(self) -> $word {
                self ^ ((self >> (<$word>::BITS - 1)) as $unsigned >> 1) as $word
            }
        }
    )*};
}

words! {
    i16, u16, 0, |cell| cell.word() as i16, Cell::i16;
    i32, u32, (1 << 23) - 1, |cell| cell.as_i32(), Cell::i32;
    i64, u64, (1 << 52) - 1, |cell| cell.as_i64(), Cell::i64;
    i128, u128, 0, wide, Cell::i128;
}

/// Conversion between sign and magnitude and two's complement.
trait Magnitude {
    fn magnitude(self) -> Self;
}

#[inline]
fn magnitude<T: Magnitude>(word: T) -> T {
    word.magnitude()
}

fn wide(cell: &Cell<'_>) -> i128 {
    let Cell::Wide([low, high]) = *cell else { panic!("{cell:?} is not 16 bytes wide") };
    (u128::from(high) << 64 | u128::from(low)) as i128
}

/// The ordinals within bounds, as first and last, if there are any.
pub(super) fn ordinals_within<T: Word>(
    low: &Bound<Cell<'_>>,
    high: &Bound<Cell<'_>>,
    order: Order,
) -> Option<(T, T)> {
    let class = |cell: &Cell<'_>| T::from_cell(cell).ordinal(order).class(order);
    let low = match low {
        Bound::Included(cell) => class(cell).0,
        Bound::Excluded(cell) => class(cell).1.above()?,
        Bound::Unbounded => T::LOWEST,
    };
    let high = match high {
        Bound::Included(cell) => class(cell).1,
        Bound::Excluded(cell) => class(cell).0.below()?,
        Bound::Unbounded => T::HIGHEST,
    };
    (low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_order_floats_as_sql_does_and_come_back_as_the_same_bits() {
        let floats = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            -0.0,
            0.0,
            f64::from_bits(1),
            2.5,
            f64::MAX,
            f64::INFINITY,
            f64::NAN,
            -f64::NAN,
        ];
        let ordinals = floats.map(|float| (float.to_bits() as i64).ordinal(Order::Float));
        assert!(ordinals.is_sorted_by(|a, b| a < b), "{ordinals:?}");
        assert_eq!(ordinals[0], i64::MIN);
        for (ordinal, float) in ordinals.iter().zip(floats) {
            assert_eq!(ordinal.word(Order::Float), float.to_bits() as i64);
            let small = (float as f32).to_bits() as i32;
            assert_eq!(small.ordinal(Order::Float).word(Order::Float), small);
        }
        assert_eq!(ordinals[4].class(Order::Float), ordinals[5].class(Order::Float));
        assert_eq!(ordinals[10].class(Order::Float), ordinals[11].class(Order::Float));
        assert_eq!(ordinals[9].class(Order::Float), (ordinals[9], ordinals[9]));
        let infinity = (f32::INFINITY.to_bits() as i32).ordinal(Order::Float);
        assert_eq!(infinity.class(Order::Float), (infinity, infinity));
    }

    #[test]
    fn ordinals_order_bytes_from_the_first() {
        let bytes = [[0; 16], [1; 16], [0x7f; 16], [0x80; 16], [0xff; 16]];
        let ordinals = bytes.map(|bytes| i128::from_ne_bytes(bytes).ordinal(Order::Bytes));
        assert!(ordinals.is_sorted_by(|a, b| a < b));
        let one_then_other = i128::from_le_bytes([1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(one_then_other.ordinal(Order::Bytes).word(Order::Bytes), one_then_other);
        let ordinal = one_then_other.ordinal(Order::Bytes);
        assert!(ordinals[1] < ordinal && ordinal < ordinals[2]);
    }

    #[test]
    fn bounds_take_classes_whole() {
        let within = |low, high| ordinals_within::<i64>(&low, &high, Order::Float);
        let (zero, minus) = (Cell::f64(0.0), Cell::f64(-0.0));
        let both = within(Bound::Included(zero), Bound::Included(minus)).unwrap();
        assert_eq!(both.1, both.0 + 1);
        assert_eq!(within(Bound::Excluded(minus), Bound::Excluded(Cell::f64(f64::from_bits(1)))), None);
        assert_eq!(within(Bound::Excluded(Cell::f64(f64::NAN)), Bound::Unbounded), None);
        let all = ordinals_within::<i16>(&Bound::Unbounded, &Bound::Unbounded, Order::Signed);
        assert_eq!(all, Some((i16::MIN, i16::MAX)));
        let over = Bound::Excluded(Cell::i16(i16::MAX));
        assert_eq!(ordinals_within::<i16>(&over, &Bound::Unbounded, Order::Signed), None);
    }
}
