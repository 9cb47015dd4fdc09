//! Arithmetic on whole numbers.

use crate::kernel::{Argument, Output, Overflow};
use crate::registry::RegistryBuilder;
use firn_base::{Error, Result, SqlState};

const INT2: Overflow = Overflow("smallint out of range");
const INT4: Overflow = Overflow("integer out of range");
const INT8: Overflow = Overflow("bigint out of range");

/// A type of whole numbers.
trait Whole: for<'a> Argument<Row<'a> = Self> + Output + Copy + Send + Sync + PartialEq + TryFrom<i128> {
    const ZERO: Self;
    const OVERFLOW: Overflow;
    fn wide(self) -> i128;
    fn plus(self, other: Self) -> Option<Self>;
    fn minus(self, other: Self) -> Option<Self>;
    fn times(self, other: Self) -> Option<Self>;
    fn divided(self, other: Self) -> Option<Self>;
    fn rest(self, other: Self) -> Self;
}

macro_rules! whole {
    ($($ty:ty, $overflow:expr;)*) => {
        $(impl Whole for $ty {
            const ZERO: $ty = 0;
            const OVERFLOW: Overflow = $overflow;
            #[inline]
            fn wide(self) -> i128 {
                self.into()
            }
            #[inline]
            fn plus(self, other: $ty) -> Option<$ty> {
                self.checked_add(other)
            }
            #[inline]
            fn minus(self, other: $ty) -> Option<$ty> {
                self.checked_sub(other)
            }
            #[inline]
            fn times(self, other: $ty) -> Option<$ty> {
                self.checked_mul(other)
            }
            #[inline]
            fn divided(self, other: $ty) -> Option<$ty> {
                self.checked_div(other)
            }
            #[inline]
            fn rest(self, other: $ty) -> $ty {
                // The smallest number modulo -1 is 0; the processor would trap.
                self.wrapping_rem(other)
            }
        })*
    };
}

whole! {
    i16, INT2;
    i32, INT4;
    i64, INT8;
}

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    arithmetic::<i16, i16, i16>(builder, "int2%(int2,int2)");
    arithmetic::<i32, i32, i32>(builder, "int4%(int4,int4)");
    arithmetic::<i64, i64, i64>(builder, "int8%(int8,int8)");
    arithmetic::<i16, i32, i32>(builder, "int24%(int2,int4)");
    arithmetic::<i32, i16, i32>(builder, "int42%(int4,int2)");
    arithmetic::<i16, i64, i64>(builder, "int28%(int2,int8)");
    arithmetic::<i64, i16, i64>(builder, "int82%(int8,int2)");
    arithmetic::<i32, i64, i64>(builder, "int48%(int4,int8)");
    arithmetic::<i64, i32, i64>(builder, "int84%(int8,int4)");
    modulo::<i16>(builder, "int2mod(int2,int2) mod(int2,int2)");
    modulo::<i32>(builder, "int4mod(int4,int4) mod(int4,int4)");
    modulo::<i64>(builder, "int8mod(int8,int8) mod(int8,int8)");
    signs::<i16>(builder, "int2");
    signs::<i32>(builder, "int4");
    signs::<i64>(builder, "int8");

    builder.scalar::<(i32,), _>("int4inc(int4)", |_, (value,)| value.checked_add(1).ok_or(INT4));
    builder.scalar::<(i64,), _>("int8inc(int8)", |_, (value,)| value.checked_add(1).ok_or(INT8));
    builder.scalar::<(i64,), _>("int8dec(int8)", |_, (value,)| value.checked_sub(1).ok_or(INT8));

    builder.scalar::<(i16, i16), _>("int2and(int2,int2)", |_, (left, right)| left & right);
    builder.scalar::<(i16, i16), _>("int2or(int2,int2)", |_, (left, right)| left | right);
    builder.scalar::<(i16, i16), _>("int2xor(int2,int2)", |_, (left, right)| left ^ right);
    builder.scalar::<(i16,), _>("int2not(int2)", |_, (value,)| !value);
    builder.scalar::<(i32, i32), _>("int4and(int4,int4)", |_, (left, right)| left & right);
    builder.scalar::<(i32, i32), _>("int4or(int4,int4)", |_, (left, right)| left | right);
    builder.scalar::<(i32, i32), _>("int4xor(int4,int4)", |_, (left, right)| left ^ right);
    builder.scalar::<(i32,), _>("int4not(int4)", |_, (value,)| !value);
    builder.scalar::<(i64, i64), _>("int8and(int8,int8)", |_, (left, right)| left & right);
    builder.scalar::<(i64, i64), _>("int8or(int8,int8)", |_, (left, right)| left | right);
    builder.scalar::<(i64, i64), _>("int8xor(int8,int8)", |_, (left, right)| left ^ right);
    builder.scalar::<(i64,), _>("int8not(int8)", |_, (value,)| !value);
    // As the processor shifts: by the distance modulo the width of its registers, which hold an int2 as an int4.
    builder.scalar::<(i16, i32), _>("int2shl(int2,int4)", |_, (value, by)| {
        (i32::from(value)).wrapping_shl(by as u32) as i16
    });
    builder.scalar::<(i16, i32), _>("int2shr(int2,int4)", |_, (value, by)| {
        (i32::from(value)).wrapping_shr(by as u32) as i16
    });
    builder.scalar::<(i32, i32), _>("int4shl(int4,int4)", |_, (value, by)| value.wrapping_shl(by as u32));
    builder.scalar::<(i32, i32), _>("int4shr(int4,int4)", |_, (value, by)| value.wrapping_shr(by as u32));
    builder.scalar::<(i64, i32), _>("int8shl(int8,int4)", |_, (value, by)| value.wrapping_shl(by as u32));
    builder.scalar::<(i64, i32), _>("int8shr(int8,int4)", |_, (value, by)| value.wrapping_shr(by as u32));

    builder.scalar::<(i32, i32), _>("gcd(int4,int4)", |_, (left, right)| {
        narrow::<i32>(divisor(left.wide(), right.wide()))
    });
    builder.scalar::<(i64, i64), _>("gcd(int8,int8)", |_, (left, right)| {
        narrow::<i64>(divisor(left.wide(), right.wide()))
    });
    builder.scalar::<(i32, i32), _>("lcm(int4,int4)", |_, (left, right)| {
        narrow::<i32>(multiple(left.wide(), right.wide()))
    });
    builder.scalar::<(i64, i64), _>("lcm(int8,int8)", |_, (left, right)| {
        narrow::<i64>(multiple(left.wide(), right.wide()))
    });
}

/// 22012
#[cold]
pub fn division_by_zero() -> Error {
    Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn arithmetic<A: Whole, B: Whole, R: Whole + From<A> + From<B>>(
    builder: &mut RegistryBuilder,
    signature: &str,
) {
    let name = |operation: &str| signature.replace('%', operation);
    builder.hot::<(A, B), _>(&name("pl"), |_, (left, right)| {
        R::from(left).plus(right.into()).ok_or(R::OVERFLOW)
    });
    builder.hot::<(A, B), _>(&name("mi"), |_, (left, right)| {
        R::from(left).minus(right.into()).ok_or(R::OVERFLOW)
    });
    builder.hot::<(A, B), _>(&name("mul"), |_, (left, right)| {
        R::from(left).times(right.into()).ok_or(R::OVERFLOW)
    });
    builder.hot::<(A, B), _>(&name("div"), |_, (left, right)| -> Result<R> {
        let (left, right) = (R::from(left), R::from(right));
        match right == R::ZERO {
            true => Err(division_by_zero()),
            false => Ok(left.divided(right).ok_or(R::OVERFLOW)?),
        }
    });
}

fn modulo<T: Whole>(builder: &mut RegistryBuilder, signatures: &str) {
    builder.scalar::<(T, T), _>(signatures, |_, (left, right)| match right == T::ZERO {
        true => Err(division_by_zero()),
        false => Ok(left.rest(right)),
    });
}

fn signs<T: Whole>(builder: &mut RegistryBuilder, ty: &str) {
    builder
        .scalar::<(T,), _>(&format!("{ty}um({ty})"), |_, (value,)| T::ZERO.minus(value).ok_or(T::OVERFLOW));
    builder.scalar::<(T,), _>(&format!("{ty}up({ty})"), |_, (value,)| value);
    builder.scalar::<(T,), _>(&format!("{ty}abs({ty}) abs({ty})"), |_, (value,)| {
        if value.wide() < 0 { T::ZERO.minus(value).ok_or(T::OVERFLOW) } else { Ok(value) }
    });
}

fn narrow<T: Whole>(value: i128) -> std::result::Result<T, Overflow> {
    T::try_from(value).map_err(|_| T::OVERFLOW)
}

/// The greatest common divisor.
fn divisor(left: i128, right: i128) -> i128 {
    let (mut left, mut right) = (left.abs(), right.abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

/// The least common multiple.
fn multiple(left: i128, right: i128) -> i128 {
    match divisor(left, right) {
        0 => 0,
        divisor => (left / divisor * right).abs(),
    }
}
