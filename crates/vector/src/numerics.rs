//! `numeric` in vectors: the digits as an integer of 128 bits, and a scale for each value, as [`Numeric::to_parts`] gives them.

use arrow_buffer::ScalarBuffer;
use firn_base::numeric::Numeric;

/// Values of a vector of plain `numeric`, each with a scale of its own.
#[derive(Clone, Debug)]
pub struct Numerics {
    unscaled: ScalarBuffer<i128>,
    scales: ScalarBuffer<u16>,
}

impl Numerics {
    /// Values from their digits and scales, of which there are as many.
    pub fn new(unscaled: ScalarBuffer<i128>, scales: ScalarBuffer<u16>) -> Numerics {
        assert_eq!(unscaled.len(), scales.len());
        Numerics { unscaled, scales }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.unscaled.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.unscaled.is_empty()
    }

    /// The digits of all.
    pub fn unscaled(&self) -> &[i128] {
        &self.unscaled
    }

    /// The scales of all.
    pub fn scales(&self) -> &[u16] {
        &self.scales
    }

    /// One value.
    #[inline]
    pub fn value(&self, row: usize) -> Numeric {
        Numeric::from_parts(self.unscaled[row], self.scales[row])
    }

    /// The values from a row on, so many.
    pub fn slice(&self, from: usize, length: usize) -> Numerics {
        Numerics { unscaled: self.unscaled.slice(from, length), scales: self.scales.slice(from, length) }
    }

    /// The values at these positions.
    pub fn take(&self, positions: impl Iterator<Item = usize> + Clone) -> Numerics {
        Numerics {
            unscaled: positions.clone().map(|row| self.unscaled[row]).collect(),
            scales: positions.map(|row| self.scales[row]).collect(),
        }
    }

    /// Bytes of memory that they take.
    pub fn memory(&self) -> usize {
        self.len() * 18
    }
}
