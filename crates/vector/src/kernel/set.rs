//! Functions that return sets: `generate_series`, `unnest`.
//!
//! A call yields rows on demand, so that a LIMIT ends it, and no more than its caller asks for at a time.

use super::Call;
use crate::builder::Builder;
use crate::datum::Datum;
use firn_base::Result;

/// The body of a function that returns a set.
pub trait SetKernel: Send + Sync {
    /// Whether a call may raise an error other than 22003 of a number that does not fit.
    fn can_fail(&self) -> bool;

    /// Begins a call. `None` if the set is empty, as it is of a strict function with a NULL.
    fn begin(&self, call: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>>;
}

/// The rows of one call.
pub trait Set: Send {
    /// Appends at most `most` rows to the columns: one, or as many as the rows of the set have. Whether there may be more.
    fn next(&mut self, call: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool>;
}
