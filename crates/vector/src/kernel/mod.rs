//! Kernels: the bodies of scalar functions, and what makes them out of Rust functions.
//!
//! A function is written once, as a closure over the values of one row:
//!
//! ```text
//! builder.scalar::<(i32, i32), _>("int4pl(int4,int4)", |_, (left, right)| {
//!     left.checked_add(right).ok_or(Overflow("integer out of range"))
//! });
//! builder.scalar::<(&str,), _>("initcap(text)", |call, (text,)| {
//!     initcap(text, &mut call.text);
//!     Text
//! });
//! ```
//!
//! [`scalar`] makes a [`Kernel`] of it: a loop over the selected rows of vectors, and a call on single values.
//! What the closure's types say is all that there is to declare:
//!
//! - An argument of type `T` is never NULL: a row with a NULL gives NULL without a call. `Option<T>` takes NULLs.
//! - A result `Option<T>` may be NULL. `Result<T>` can fail; `Result<T, Overflow>` and `Result<T, TooLarge>` fail only by numbers that do not
//!   fit, which does not count where the optimiser asks what can fail.
//! - Strings are not returned but appended to [`Call::text`] or [`Call::bytes`], and [`Text`] or [`Bytes`] is
//!   returned as the sign that this has been done; so no row allocates. Results of a type that only the signature of the call
//!   knows are put into [`Call::value`], and the sign is [`Any`].
//!
//! Where a profile shows that a call a row is too slow, a loop over whole vectors stands beside the row kernel. These are all of them;
//! `tests/all/batches.rs` compares each with its row kernel:
//!
//! | functions | where |
//! |---|---|
//! | `+`, `-`, `*` and unary `-` of decimals, integers as decimals | `functions/decimals.rs`, by [`batch`] |
//! | comparisons of integers, dates, times, timestamps and decimals; equality of strings | `functions/comparison_loops.rs`, by [`batch`] |
//! | LIKE, `strpos`, `extract`, `date_part`, `date_trunc` with a constant text | `functions/patterns.rs`, `functions/moments.rs`, by [`prepared`] |
//! | `count`; `sum`, `avg`, `min` and `max` of numbers, dates and timestamps | `functions/aggregates`, by [`Aggregate::add_batch`](crate::aggregate::Aggregate::add_batch) |

pub mod arguments;
pub mod batch;
pub mod errors;
pub mod outcome;
pub mod prepared;
pub mod scalar;
pub mod set;
pub mod site;
pub mod slot;
#[cfg(test)]
mod tests;

use crate::context::Context;
use crate::datum::Datum;
use crate::selection::Rows;
use crate::vector::Vector;
use firn_base::{Representation, Result, Type};

pub use arguments::{Argument, Arguments, Rest};
pub use errors::Errors;
pub use outcome::{Any, Bytes, Outcome, Output, Overflow, Text, TooLarge};
pub use set::{Set, SetKernel};
pub use site::{CallSite, Part};
pub use slot::Slot;

/// The body of a scalar function.
pub trait Kernel: Send + Sync {
    /// Whether some call of it may raise an error other than 22003 of a number that does not fit.
    fn can_fail(&self) -> bool;

    /// Whether some call of it may give NULL.
    fn may_be_null(&self) -> bool;

    /// Whether it is called where this argument is NULL; otherwise the result is NULL then.
    fn takes_null(&self, number: usize) -> bool;

    /// Whether it reads arguments and writes a result of these representations.
    fn accepts(&self, arguments: &[Representation], result: Representation) -> bool;

    /// Calls it for each of the rows. The arguments are flat or constant, and as long as the chunk; so is the result, in which
    /// rows that are not selected have any value. The first error ends it, unless `errors` takes them all and the rows become NULL.
    fn vectors(
        &self,
        call: &mut Call<'_>,
        arguments: &[Vector],
        rows: Rows<'_>,
        errors: Option<&mut Errors>,
    ) -> Result<Vector>;

    /// Calls it for one row.
    fn cells(&self, call: &mut Call<'_>, arguments: &[Datum<'_>], out: &mut Slot) -> Result<()>;
}

/// The types that a call has been bound with.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Of each argument, with the elements of a variadic one apart.
    pub arguments: Box<[Type]>,
    /// How the values of each argument lie.
    pub representations: Box<[Representation]>,
    /// Of the result.
    pub result: Type,
    /// How the values of the result lie.
    pub representation: Representation,
    /// Whether the last argument was written `VARIADIC array`: it is the array of a `VARIADIC "any"` parameter.
    pub has_variadic_array: bool,
}

/// What a kernel gets beside the values of a row.
pub struct Call<'c> {
    /// The surroundings.
    pub context: &'c Context<'c>,
    /// The types that the call has been bound with.
    pub signature: &'c Signature,
    /// What the function keeps from call to call at this place of the plan, for one thread.
    pub local: &'c mut Local,
    /// A result of characters is appended here. What stands here already belongs to other rows.
    pub text: String,
    /// A result of bytes is appended here. What stands here already belongs to other rows.
    pub bytes: Vec<u8>,
    /// A result of a type that only the signature knows is put here.
    pub value: Slot,
    /// How many bytes the results of a vector may take before the last one. With more it ends early.
    pub(crate) most_bytes: usize,
    /// Whether it has ended early for that.
    pub(crate) is_too_wide: bool,
}

/// How many bytes the results of a vector may take that is not evaluated in [parts](Part).
const MOST_BYTES: usize = 1 << 29;

impl<'c> Call<'c> {
    /// A call with empty buffers.
    pub fn new(context: &'c Context<'c>, signature: &'c Signature, local: &'c mut Local) -> Call<'c> {
        Call {
            context,
            signature,
            local,
            text: String::new(),
            bytes: Vec::new(),
            value: Slot::new(),
            most_bytes: MOST_BYTES,
            is_too_wide: false,
        }
    }
}

/// What a function keeps from call to call: a compiled regular expression, for one. Nothing that a result depends on.
#[derive(Default)]
pub struct Local(Option<Box<dyn std::any::Any + Send>>);

impl Local {
    /// What was kept, made at first. Panics if two functions of one call site keep different things.
    pub fn get<T: std::any::Any + Send>(&mut self, make: impl FnOnce() -> T) -> &mut T {
        let kept = self.0.get_or_insert_with(|| Box::new(make()));
        kept.downcast_mut().expect("a function keeps values of one type")
    }

    /// Takes out what was kept, if it is of the type.
    pub fn take<T: std::any::Any + Send>(&mut self) -> Option<Box<T>> {
        self.0.take()?.downcast().ok()
    }

    /// Keeps something in place of what was kept.
    pub fn put<T: std::any::Any + Send>(&mut self, value: Box<T>) {
        self.0 = Some(value);
    }
}
