//! Floats that are equal but differ in their bits, by which Arrow's kernels order them and look them up.
//!
//! | bits | to Arrow | here |
//! |---|---|---|
//! | `-0` | before `0` | shown as it is; as a key, the `0` that it equals: see [`keys`] |
//! | a NaN with a sign, which processors make of `∞ - ∞` | before everything | there is but one NaN, the largest value: see [`with_one_nan`] |
//!
//! Whatever computes floats or takes them over from outside leaves one NaN, so that those that compare and sort need not look.

use datafusion::arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::utils::normalize_float_zero;
use firn_base::sync::Arc;

/// The same floats, of which every NaN has the same bits; other arrays as they are.
pub fn with_one_nan(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => replaced::<Float32Type>(
            array,
            |value: f32| value.is_nan() && value.to_bits() != f32::NAN.to_bits(),
            f32::NAN,
        ),
        DataType::Float64 => replaced::<Float64Type>(
            array,
            |value: f64| value.is_nan() && value.to_bits() != f64::NAN.to_bits(),
            f64::NAN,
        ),
        _ => Arc::clone(array),
    }
}

/// Floats by which equal ones have the same bits; other arrays as they are.
pub fn keys(array: &ArrayRef) -> ArrayRef {
    normalize_float_zero(&with_one_nan(array))
}

/// The array with one value in place of those that are odd.
fn replaced<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    is_odd: impl Fn(T::Native) -> bool,
    value: T::Native,
) -> ArrayRef {
    let floats = array.as_primitive::<T>();
    // Mostly there are none: without a way out of the loop it looks at several at once.
    match floats.values().iter().fold(false, |found, float| found | is_odd(*float)) {
        true => Arc::new(floats.unary::<_, T>(|float| if is_odd(float) { value } else { float })),
        false => Arc::clone(array),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Float32Array, Float64Array};

    #[test]
    fn nans_become_one_and_zeros_one_as_keys() {
        let odd = f64::from_bits(f64::NAN.to_bits() | 7);
        let doubles: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(-0.0), Some(-f64::NAN), None, Some(odd)]));
        let bits = |array: &ArrayRef| -> Vec<Option<u64>> {
            array.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits)).collect()
        };
        let nan = Some(f64::NAN.to_bits());
        assert_eq!(bits(&with_one_nan(&doubles)), [Some((-0.0_f64).to_bits()), nan, None, nan]);
        assert_eq!(bits(&keys(&doubles)), [Some(0), nan, None, nan]);
        let reals: ArrayRef = Arc::new(Float32Array::from(vec![-0.0, -f32::NAN, 1.5]));
        let reals = keys(&reals);
        let bits: Vec<u32> =
            reals.as_primitive::<Float32Type>().values().iter().map(|real| real.to_bits()).collect();
        assert_eq!(bits, [0, f32::NAN.to_bits(), 1.5_f32.to_bits()]);
    }
}
