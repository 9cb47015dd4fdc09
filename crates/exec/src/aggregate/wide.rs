//! Sums of decimals that may be larger on the way than what they end with.

use crate::error::to_datafusion;
use datafusion::arrow::array::{Array, Decimal128Array};
use datafusion::common::Result;
use firn_base::numeric;

/// A sum of any size: its lowest 128 bits, and how often they have run over, or under.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wide {
    low: i128,
    carries: i64,
}

impl Wide {
    fn add(&mut self, value: i128) {
        let (low, overflows) = self.low.overflowing_add(value);
        self.low = low;
        self.carries += i64::from(overflows) * value.signum() as i64;
    }

    fn subtract(&mut self, value: i128) {
        let (low, overflows) = self.low.overflowing_sub(value);
        self.low = low;
        self.carries -= i64::from(overflows) * value.signum() as i64;
    }

    /// Adds all values of an array.
    pub fn add_all(&mut self, values: &Decimal128Array) {
        let more = Wide::of(values);
        self.add(more.low);
        self.carries += more.carries;
    }

    /// Takes away all values of an array.
    pub fn subtract_all(&mut self, values: &Decimal128Array) {
        let less = Wide::of(values);
        self.subtract(less.low);
        self.carries -= less.carries;
    }

    /// The sum of an array.
    fn of(values: &Decimal128Array) -> Wide {
        // Whether one has overflowed is asked once, at the end.
        let plus = |(sum, overflows): (i128, bool), value: i128| {
            let (sum, overflow) = sum.overflowing_add(value);
            (sum, overflows | overflow)
        };
        let (low, overflows) = match values.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => values.values().iter().copied().fold((0, false), plus),
            Some(nulls) => nulls.valid_indices().map(|row| values.values()[row]).fold((0, false), plus),
        };
        if !overflows {
            return Wide { low, carries: 0 };
        }
        let mut sum = Wide::default();
        values.iter().flatten().for_each(|value| sum.add(value));
        sum
    }

    /// The sum, if it fits into 128 bits; 22003.
    pub fn total(self) -> Result<i128> {
        if self.carries == 0 { Ok(self.low) } else { Err(to_datafusion(numeric::overflow())) }
    }
}
