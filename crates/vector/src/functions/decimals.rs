//! Arithmetic on decimals of one scale, for which whole vectors are computed by loops over integers.
//!
//! A plan knows precision and scale of the arguments, and from these the precision of every result. Where that is at most 38 digits
//! the result lies as a decimal, and no loop needs to check anything: of 18 digits or fewer in 64 bits, else in 128.
//! A product that may have more digits lies as plain `numeric`; its loop gives up a vector in which a product is too large.
//!
//! The scales are PostgreSQL's: of a sum the larger one, of a product their sum.

use crate::data::Data;
use crate::kernel::Signature;
use crate::kernel::batch::{Operand, batched, validity, zip};
use crate::kernel::scalar::scalar;
use crate::kernel::{Kernel, Overflow};
use crate::numerics::Numerics;
use crate::registry::RegistryBuilder;
use crate::selection::Rows;
use crate::vector::Vector;
use firn_base::numeric::{Numeric, POWERS};
use firn_base::{Representation, Result};

/// The most digits of a decimal that lies in 64 bits.
const NARROW: u8 = 18;
/// The most digits of a decimal.
const WIDE: u8 = 38;

/// Adds the bodies for decimals to functions that have been added.
pub fn register(builder: &mut RegistryBuilder) {
    let proved = |result: Result<Numeric>| result.map_err(|_| Overflow("value overflows numeric format"));
    builder.special(
        "numeric_add(numeric,numeric)",
        sum,
        batched(
            scalar::<(Numeric, Numeric), _>(move |_, (left, right)| proved(left.checked_add(right))),
            |signature, arguments, _| add(signature, arguments, 1),
        ),
    );
    builder.special(
        "numeric_sub(numeric,numeric)",
        sum,
        batched(
            scalar::<(Numeric, Numeric), _>(move |_, (left, right)| proved(left.checked_sub(right))),
            |signature, arguments, _| add(signature, arguments, -1),
        ),
    );
    builder.special(
        "numeric_mul(numeric,numeric)",
        product,
        batched(
            scalar::<(Numeric, Numeric), _>(move |_, (left, right)| proved(left.checked_mul(right))),
            |signature, arguments, _| multiply(signature, arguments),
        ),
    );
    builder.special(
        "numeric_uminus(numeric)",
        same,
        batched(scalar::<(Numeric,), _>(|_, (value,)| value.negate()), |signature, arguments, _| {
            negate(signature, arguments)
        }),
    );
    builder.special("numeric(int2)", digits_of_integer, of_integer::<i16>());
    builder.special("numeric(int4)", digits_of_integer, of_integer::<i32>());
    builder.special("numeric(int8)", digits_of_integer, of_integer::<i64>());
}

/// Multiplication of plain `numeric`, with a loop for decimals whose products may have more than 38 digits.
pub fn multiplication(row: impl Kernel) -> impl Kernel {
    batched(row, |signature: &Signature, arguments: &[Vector], _: Rows<'_>| {
        (signature.representation == Representation::Numeric).then_some(())?;
        multiply_checked(arguments)
    })
}

/// Precision and scale of a decimal.
fn decimal(representation: Representation) -> Option<(u8, u8)> {
    match representation {
        Representation::Decimal { precision, scale } => Some((precision, scale)),
        _ => None,
    }
}

/// The decimal of a sum or a difference, if every one fits.
fn sum(arguments: &[Representation]) -> Option<Representation> {
    let [left, right] = arguments else { return None };
    let ((left, left_scale), (right, right_scale)) = (decimal(*left)?, decimal(*right)?);
    let scale = left_scale.max(right_scale);
    let precision = (left - left_scale).max(right - right_scale) + scale + 1;
    (precision <= WIDE).then_some(Representation::Decimal { precision, scale })
}

/// The decimal of a product, if every one fits.
fn product(arguments: &[Representation]) -> Option<Representation> {
    let [left, right] = arguments else { return None };
    let ((left, left_scale), (right, right_scale)) = (decimal(*left)?, decimal(*right)?);
    let (precision, scale) = (left + right, left_scale + right_scale);
    (precision <= WIDE).then_some(Representation::Decimal { precision, scale })
}

/// The decimal of the argument.
fn same(arguments: &[Representation]) -> Option<Representation> {
    let [argument] = arguments else { return None };
    decimal(*argument).map(|_| *argument)
}

/// The decimal that holds every integer of a type.
fn digits_of_integer(arguments: &[Representation]) -> Option<Representation> {
    let precision = match arguments {
        [Representation::Int16] => 5,
        [Representation::Int32] => 10,
        [Representation::Int64] => 19,
        _ => return None,
    };
    Some(Representation::Decimal { precision, scale: 0 })
}

/// The values of decimals, side by side or one for all.
#[derive(Clone, Copy)]
enum Side<'a> {
    Narrow(Operand<'a, i64>),
    Wide(Operand<'a, i128>),
}

impl<'a> Side<'a> {
    fn of(vector: &'a Vector) -> Option<Side<'a>> {
        decimal(vector.representation())?;
        Some(match vector.data()? {
            Data::Int64(values) => Side::Narrow(Operand::of(vector, values)),
            Data::Int128(values) => Side::Wide(Operand::of(vector, values)),
            _ => return None,
        })
    }
}

/// A function of two decimals, of which either may be wide.
#[inline]
fn wide_zip(left: Side<'_>, right: Side<'_>, call: impl Fn(i128, i128) -> i128) -> Option<Vec<i128>> {
    match (left, right) {
        (Side::Narrow(left), Side::Narrow(right)) => zip(left, right, |l, r| call(l.into(), r.into())),
        (Side::Narrow(left), Side::Wide(right)) => zip(left, right, |l, r| call(l.into(), r)),
        (Side::Wide(left), Side::Narrow(right)) => zip(left, right, |l, r| call(l, r.into())),
        (Side::Wide(left), Side::Wide(right)) => zip(left, right, call),
    }
}

/// `left + sign · right`
fn add(signature: &Signature, arguments: &[Vector], sign: i64) -> Option<Vector> {
    let [left, right] = arguments else { return None };
    let (precision, scale) = decimal(signature.representation)?;
    let factor = |vector: &Vector| {
        let (_, own) = decimal(vector.representation())?;
        Some(POWERS[usize::from(scale - own)])
    };
    let (of_left, of_right) = (factor(left)?, factor(right)? * i128::from(sign));
    let validity = validity(arguments)?;
    let (left, right) = (Side::of(left)?, Side::of(right)?);
    let data = if precision <= NARROW {
        let (Side::Narrow(left), Side::Narrow(right)) = (left, right) else { return None };
        let (of_left, of_right) = (of_left as i64, of_right as i64);
        Data::Int64(
            match (of_left, of_right) {
                (1, 1) => zip(left, right, i64::wrapping_add),
                (1, -1) => zip(left, right, i64::wrapping_sub),
                _ => zip(left, right, |left, right| {
                    left.wrapping_mul(of_left).wrapping_add(right.wrapping_mul(of_right))
                }),
            }?
            .into(),
        )
    } else {
        Data::Int128(
            match (of_left, of_right) {
                (1, 1) => wide_zip(left, right, i128::wrapping_add),
                (1, -1) => wide_zip(left, right, i128::wrapping_sub),
                _ => wide_zip(left, right, |left, right| {
                    left.wrapping_mul(of_left).wrapping_add(right.wrapping_mul(of_right))
                }),
            }?
            .into(),
        )
    };
    Some(Vector::flat(signature.representation, data, validity))
}

/// A product that has been proved to fit.
fn multiply(signature: &Signature, arguments: &[Vector]) -> Option<Vector> {
    let [left, right] = arguments else { return None };
    let (precision, _) = decimal(signature.representation)?;
    let validity = validity(arguments)?;
    let data = match (Side::of(left)?, Side::of(right)?) {
        (Side::Narrow(left), Side::Narrow(right)) if precision <= NARROW => {
            Data::Int64(zip(left, right, i64::wrapping_mul)?.into())
        }
        (left, right) => Data::Int128(wide_zip(left, right, i128::wrapping_mul)?.into()),
    };
    Some(Vector::flat(signature.representation, data, validity))
}

/// A product that may have more than 38 digits, as plain `numeric`. `None` if one of the vector may have.
fn multiply_checked(arguments: &[Vector]) -> Option<Vector> {
    let [left, right] = arguments else { return None };
    let ((_, left_scale), (_, right_scale)) =
        (decimal(left.representation())?, decimal(right.representation())?);
    let validity = validity(arguments)?;
    let (mut left_buffer, mut right_buffer) = (Vec::new(), Vec::new());
    let left = narrowed(Side::of(left)?, &mut left_buffer)?;
    let right = narrowed(Side::of(right)?, &mut right_buffer)?;
    // A product of two numbers of 64 bits is at most 2^126, which is less than 10^38.
    let products = zip(left, right, |left, right| i128::from(left) * i128::from(right))?;
    let scales = vec![u16::from(left_scale) + u16::from(right_scale); products.len()];
    let data = Data::Numeric(Numerics::new(products.into(), scales.into()));
    Some(Vector::flat(Representation::Numeric, data, validity))
}

/// Values in 64 bits, if all of them fit; a buffer holds those that were wide.
fn narrowed<'a>(side: Side<'a>, buffer: &'a mut Vec<i64>) -> Option<Operand<'a, i64>> {
    match side {
        Side::Narrow(values) => Some(values),
        Side::Wide(Operand::One(value)) => i64::try_from(value).ok().map(Operand::One),
        Side::Wide(Operand::Each(values)) => {
            // Bits that are set where the upper half is not the sign of the lower one.
            let mut lost = 0;
            buffer.extend(values.iter().map(|value| {
                let low = *value as i64;
                lost |= (*value >> 64) as i64 ^ (low >> 63);
                low
            }));
            (lost == 0).then_some(Operand::Each(buffer))
        }
    }
}

fn negate(signature: &Signature, arguments: &[Vector]) -> Option<Vector> {
    let [argument] = arguments else { return None };
    let validity = validity(arguments)?;
    let data = match Side::of(argument)? {
        Side::Narrow(Operand::Each(values)) => {
            Data::Int64(values.iter().map(|value| value.wrapping_neg()).collect())
        }
        Side::Wide(Operand::Each(values)) => {
            Data::Int128(values.iter().map(|value| value.wrapping_neg()).collect())
        }
        _ => return None,
    };
    Some(Vector::flat(signature.representation, data, validity))
}

/// An integer as a decimal without decimals.
fn of_integer<T>() -> impl Kernel
where
    T: for<'a> crate::kernel::Argument<Row<'a> = T> + Into<i64>,
{
    let row = scalar::<(T,), _>(|_, (value,)| Numeric::from(value.into()));
    batched(row, |signature: &Signature, arguments: &[Vector], _: Rows<'_>| {
        let [argument] = arguments else { return None };
        if argument.is_constant() {
            return None;
        }
        let data = match argument.data()? {
            Data::Int16(values) => Data::Int64(values.iter().map(|value| i64::from(*value)).collect()),
            Data::Int32(values) => Data::Int64(values.iter().map(|value| i64::from(*value)).collect()),
            Data::Int64(values) => Data::Int128(values.iter().map(|value| i128::from(*value)).collect()),
            _ => return None,
        };
        Some(Vector::flat(signature.representation, data, validity(arguments)?))
    })
}
