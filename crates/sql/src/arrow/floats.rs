//! Floats that are equal but differ in their bits. A NaN with a sign, which processors make of `∞ - ∞`, equals the NaN
//! without one. Values from outside are converted to the latter, so that comparisons and sorts need not check.

use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use firn_base::sync::Arc;

/// The same floats, with the same bits for every NaN; other arrays are unchanged.
pub(super) fn with_one_nan(array: &ArrayRef) -> ArrayRef {
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

/// The array with one value in place of the odd ones.
fn replaced<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    is_odd: impl Fn(T::Native) -> bool,
    value: T::Native,
) -> ArrayRef {
    let floats = array.as_primitive::<T>();
    // Mostly there are none: a loop without an exit checks several at once.
    match floats.values().iter().fold(false, |found, float| found | is_odd(*float)) {
        true => Arc::new(floats.unary::<_, T>(|float| if is_odd(float) { value } else { float })),
        false => Arc::clone(array),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float32Array, Float64Array};

    #[test]
    fn nans_become_one() {
        let odd = f64::from_bits(f64::NAN.to_bits() | 7);
        let doubles: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(-0.0), Some(-f64::NAN), None, Some(odd)]));
        let found = with_one_nan(&doubles);
        let bits: Vec<Option<u64>> =
            found.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits)).collect();
        let nan = Some(f64::NAN.to_bits());
        assert_eq!(bits, [Some((-0.0_f64).to_bits()), nan, None, nan]);
        let reals: ArrayRef = Arc::new(Float32Array::from(vec![-f32::NAN, 1.5]));
        let reals = with_one_nan(&reals);
        let bits: Vec<u32> =
            reals.as_primitive::<Float32Type>().values().iter().map(|real| real.to_bits()).collect();
        assert_eq!(bits, [f32::NAN.to_bits(), 1.5_f32.to_bits()]);
    }
}
