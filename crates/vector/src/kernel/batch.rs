//! Batch kernels: loops over whole buffers, beside the row kernel that says what a function means.
//!
//! A batch kernel exists where a profile shows that a call a row is too slow. It decides once a vector, from the forms and the
//! representations of the arguments, whether it has a loop for them; otherwise the row kernel runs. It computes all rows, selected
//! or not and NULL or not, because a plain loop over a buffer costs less than leaving rows out: so it never fails, never
//! panics on a value that is out of its type's range, and its results in rows that are not valid have any value.
//!
//! Where few rows are selected the row kernel runs.

use super::{Call, Errors, Kernel, Signature};
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::selection::Rows;
use crate::vector::{Form, Vector};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use firn_base::{Representation, Result};

/// A loop over vectors; `None` if it has none for vectors like these.
pub trait Batch: Fn(&Signature, &[Vector], Rows<'_>) -> Option<Vector> + Send + Sync {}

impl<F: Fn(&Signature, &[Vector], Rows<'_>) -> Option<Vector> + Send + Sync> Batch for F {}

/// A row kernel with a batch kernel that is tried first. The row kernel must be strict and give the same results.
pub fn batched<K: Kernel, B: Batch>(row: K, batch: B) -> Batched<K, B> {
    Batched { row, batch }
}

/// What [`batched`] makes.
pub struct Batched<K, B> {
    row: K,
    batch: B,
}

impl<K: Kernel, B: Batch> Kernel for Batched<K, B> {
    fn can_fail(&self) -> bool {
        self.row.can_fail()
    }

    fn may_be_null(&self) -> bool {
        self.row.may_be_null()
    }

    fn takes_null(&self, number: usize) -> bool {
        self.row.takes_null(number)
    }

    fn accepts(&self, arguments: &[Representation], result: Representation) -> bool {
        self.row.accepts(arguments, result)
    }

    fn vectors(
        &self,
        call: &mut Call<'_>,
        arguments: &[Vector],
        rows: Rows<'_>,
        errors: Option<&mut Errors>,
    ) -> Result<Vector> {
        if is_dense(rows)
            && let Some(result) = (self.batch)(call.signature, arguments, rows)
        {
            return Ok(result);
        }
        self.row.vectors(call, arguments, rows, errors)
    }

    fn cells(&self, call: &mut Call<'_>, arguments: &[Datum<'_>], out: &mut Slot) -> Result<()> {
        self.row.cells(call, arguments, out)
    }
}

/// Whether so many rows are selected that computing the others as well costs less than leaving them out.
pub fn is_dense(rows: Rows<'_>) -> bool {
    rows.count() * 8 >= rows.length()
}

/// In which rows no argument is NULL, as the bitmap of the result. `None` if an argument is a NULL constant.
pub fn validity(arguments: &[Vector]) -> Option<Option<NullBuffer>> {
    let mut validity: Option<NullBuffer> = None;
    for argument in arguments {
        match (argument.form(), argument.validity()) {
            (_, None) => {}
            (Form::Flat(_), bits) => validity = NullBuffer::union(validity.as_ref(), bits),
            _ => return None,
        }
    }
    Some(validity)
}

/// The values of one argument: a buffer, or one value for all rows.
#[derive(Clone, Copy)]
pub enum Operand<'a, T> {
    /// A value for each row.
    Each(&'a [T]),
    /// The same value for all rows.
    One(T),
}

impl<'a, T: Copy> Operand<'a, T> {
    /// The values of a flat or constant vector, of which these are the data.
    pub fn of(vector: &Vector, values: &'a [T]) -> Operand<'a, T> {
        match vector.is_constant() {
            true => Operand::One(values[0]),
            false => Operand::Each(values),
        }
    }
}

/// A function of two values in each row. `None` if both are constant: one call of the row kernel does that.
#[inline]
pub fn zip<L: Copy, R: Copy, O>(
    left: Operand<'_, L>,
    right: Operand<'_, R>,
    call: impl Fn(L, R) -> O,
) -> Option<Vec<O>> {
    match (left, right) {
        (Operand::Each(left), Operand::Each(right)) => {
            Some(left.iter().zip(right).map(|(left, right)| call(*left, *right)).collect())
        }
        (Operand::Each(left), Operand::One(right)) => {
            Some(left.iter().map(|left| call(*left, right)).collect())
        }
        (Operand::One(left), Operand::Each(right)) => {
            Some(right.iter().map(|right| call(left, *right)).collect())
        }
        (Operand::One(_), Operand::One(_)) => None,
    }
}

/// The bitmap of a test of each value, or of its negation.
#[inline]
pub fn bits<T: Copy>(values: &[T], negated: bool, test: impl Fn(T) -> bool) -> BooleanBuffer {
    let mut bytes = vec![0u8; values.len().div_ceil(64) * 8];
    for (chunk, out) in values.chunks(64).zip(bytes.as_chunks_mut::<8>().0) {
        let mut truths = [0u8; 64];
        for (truth, value) in truths.iter_mut().zip(chunk) {
            *truth = u8::from(test(*value));
        }
        *out = packed(&truths, negated);
    }
    BooleanBuffer::new(Buffer::from_vec(bytes), 0, values.len())
}

/// As [`bits`], of the values of two buffers of one length.
#[inline]
pub fn bits_of_pairs<T: Copy>(
    left: &[T],
    right: &[T],
    negated: bool,
    test: impl Fn(T, T) -> bool,
) -> BooleanBuffer {
    assert_eq!(left.len(), right.len());
    let mut bytes = vec![0u8; left.len().div_ceil(64) * 8];
    let chunks = left.chunks(64).zip(right.chunks(64));
    for ((left, right), out) in chunks.zip(bytes.as_chunks_mut::<8>().0) {
        let mut truths = [0u8; 64];
        for (truth, (left, right)) in truths.iter_mut().zip(left.iter().zip(right)) {
            *truth = u8::from(test(*left, *right));
        }
        *out = packed(&truths, negated);
    }
    BooleanBuffer::new(Buffer::from_vec(bytes), 0, left.len())
}

/// 64 bytes that are 0 or 1 as 64 bits.
#[inline]
fn packed(truths: &[u8; 64], negated: bool) -> [u8; 8] {
    let flip = if negated { 0xff } else { 0 };
    let mut out = [0; 8];
    for (byte, eight) in out.iter_mut().zip(truths.as_chunks::<8>().0) {
        // The multiplication adds byte i, shifted left by 7 · i bits less than its place, to the highest byte: no two bits meet.
        let product = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080);
        *byte = (product >> 56) as u8 ^ flip;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_the_truth_of_each_row_at_every_length() {
        for length in 0..200usize {
            let values: Vec<u32> =
                (0..length as u32).map(|row| row.wrapping_mul(2_654_435_761) >> 7).collect();
            let other: Vec<u32> = values.iter().map(|value| value.rotate_left(9) >> 3).collect();
            for negated in [false, true] {
                let single = bits(&values, negated, |value| value % 3 == 0);
                let pairs = bits_of_pairs(&values, &other, negated, |left, right| left < right);
                assert_eq!((single.len(), pairs.len()), (length, length));
                for row in 0..length {
                    assert_eq!(
                        single.value(row),
                        values[row].is_multiple_of(3) != negated,
                        "{row} of {length}"
                    );
                    assert_eq!(pairs.value(row), (values[row] < other[row]) != negated, "{row} of {length}");
                }
            }
        }
    }
}
