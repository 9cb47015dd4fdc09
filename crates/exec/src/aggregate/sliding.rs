//! Sums and averages of floats over frames that rows leave.
//!
//! What has left a frame cannot be subtracted: `1e20 + 1 - 1e20` is 0, and an infinity makes NaN of everything behind it.
//! PostgreSQL adds each frame up anew. Here a frame is a queue of two stacks: rows come in at the one, which has its sum, and
//! leave from the other, which has for each of its rows the sum from there on. When that one is empty, the rows of the first
//! are moved to it. So every row is added three times at the most.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;
use firn_base::operators::one_nan;

/// A sum, and of how many values that are not NULL.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    sum: f64,
    count: usize,
}

impl Part {
    /// This with a row before it.
    fn after(self, row: Option<f64>) -> Part {
        match row {
            // Of nothing, not even a zero is added: -0 stays.
            Some(value) if self.count == 0 => Part { sum: value, count: 1 },
            Some(value) => Part { sum: value + self.sum, count: self.count + 1 },
            None => self,
        }
    }
}

/// What is asked of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Sum,
    Average,
}

/// A frame.
#[derive(Debug)]
pub(super) struct Frame {
    asked: Asked,
    /// What is yielded.
    ty: DataType,
    /// The rows that came last.
    came: Vec<Option<f64>>,
    sum_of_came: Part,
    /// Of those before them, the next to leave at the end, the sums from each to the last.
    leaving: Vec<Part>,
}

impl Frame {
    pub fn new(asked: Asked, ty: &DataType) -> Frame {
        let ty = ty.clone();
        Frame { asked, ty, came: Vec::new(), sum_of_came: Part::default(), leaving: Vec::new() }
    }

    fn come(&mut self, row: Option<f64>) {
        self.came.push(row);
        self.sum_of_came = self.sum_of_came.after(row);
    }

    /// The row that came first leaves.
    fn leave(&mut self) {
        if self.leaving.is_empty() {
            let mut sum = Part::default();
            self.leaving.extend(self.came.drain(..).rev().map(|row| {
                sum = sum.after(row);
                sum
            }));
            self.sum_of_came = Part::default();
        }
        self.leaving.pop().expect("who leaves has come");
    }

    fn all(&self) -> Part {
        match (self.leaving.last(), self.sum_of_came) {
            (Some(first), Part { count: 0, .. }) => *first,
            (Some(first), last) if first.count > 0 => {
                Part { sum: first.sum + last.sum, count: first.count + last.count }
            }
            (_, last) => last,
        }
    }
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = cast(&values[0], &DataType::Float64)?;
        for row in values.as_primitive::<Float64Type>() {
            self.come(row);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..values[0].len() {
            self.leave();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Part { sum, count } = self.all();
        let value = match (self.asked, count) {
            (_, 0) => None,
            (Asked::Sum, _) => Some(one_nan(sum)),
            (Asked::Average, count) => Some(one_nan(sum / count as f64)),
        };
        ScalarValue::Float64(value).cast_to(&self.ty)
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.came.capacity() * size_of::<Option<f64>>()
            + self.leaving.capacity() * size_of::<Part>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("frames are not merged")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("frames are not merged")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::Float64Array;
    use firn_base::sync::Arc;

    #[test]
    fn a_frame_is_as_if_it_were_added_up_anew() {
        let rows: Vec<Option<f64>> =
            (0..200).map(|i| (i % 7 != 3).then_some(f64::from(i * i % 31) - 15.0)).collect();
        let array = |rows: &[Option<f64>]| vec![Arc::new(Float64Array::from(rows.to_vec())) as ArrayRef];
        for width in [1, 2, 5, 60] {
            let mut frame = Frame::new(Asked::Sum, &DataType::Float64);
            for end in 1..=rows.len() {
                frame.update_batch(&array(&rows[end - 1..end])).unwrap();
                let first = end.saturating_sub(width);
                frame.retract_batch(&array(&rows[first.saturating_sub(1)..first])).unwrap();
                // Of whole numbers, the order does not matter.
                let sum = rows[first..end].iter().flatten().copied().reduce(|a, b| a + b);
                assert_eq!(frame.evaluate().unwrap(), ScalarValue::Float64(sum), "{first}..{end}");
            }
        }
    }
}
