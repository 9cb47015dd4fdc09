//! Functions of a value and a text that is the same in all rows of nearly all calls: the pattern of LIKE, the field of `extract`.
//!
//! Where the text is constant it is prepared once at each place of a plan, and again only if it has changed: it may be a
//! parameter. Preparing does not fail. What is wrong with the text is an error of the rows that come to it, as without preparation.

use super::arguments::Argument;
use super::outcome::Outcome;
use super::scalar::run;
use super::{Call, Errors, Kernel};
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::selection::Rows;
use crate::vector::Vector;
use firn_base::{Representation, Result};
use std::marker::PhantomData;

/// Adds to a kernel of two arguments, whose argument `text` is a text, a way for constant texts: what `prepare` makes of the text
/// and the other argument's value are all that `function` needs to give the kernel's result.
pub fn prepared<A, P, O>(
    general: impl Kernel,
    text: usize,
    prepare: fn(&str) -> P,
    function: impl for<'a> Fn(&mut Call<'_>, &P, A::Row<'a>) -> O + Send + Sync,
) -> impl Kernel
where
    A: Argument,
    P: Send + 'static,
    O: Outcome + 'static,
{
    assert!(text < 2);
    Prepared { general, text, prepare, function, types: PhantomData::<fn(A) -> O> }
}

struct Prepared<K, P, F, T> {
    general: K,
    text: usize,
    prepare: fn(&str) -> P,
    function: F,
    types: PhantomData<T>,
}

/// What a call site keeps.
struct Kept<P> {
    text: Box<str>,
    prepared: P,
}

impl<K, A, P, O, F> Kernel for Prepared<K, P, F, fn(A) -> O>
where
    K: Kernel,
    A: Argument,
    P: Send + 'static,
    O: Outcome + 'static,
    F: for<'a> Fn(&mut Call<'_>, &P, A::Row<'a>) -> O + Send + Sync,
{
    fn can_fail(&self) -> bool {
        self.general.can_fail()
    }

    fn may_be_null(&self) -> bool {
        self.general.may_be_null()
    }

    fn takes_null(&self, number: usize) -> bool {
        self.general.takes_null(number)
    }

    fn accepts(&self, arguments: &[Representation], result: Representation) -> bool {
        self.general.accepts(arguments, result)
    }

    fn vectors(
        &self,
        call: &mut Call<'_>,
        arguments: &[Vector],
        rows: Rows<'_>,
        errors: Option<&mut Errors>,
    ) -> Result<Vector> {
        let text = match &arguments[self.text] {
            text if text.is_constant() => text.datum(0),
            _ => Datum::Null,
        };
        let Datum::Text(text) = text else {
            return self.general.vectors(call, arguments, rows, errors);
        };
        let kept = call.local.take::<Kept<P>>().filter(|kept| *kept.text == *text);
        let kept =
            kept.unwrap_or_else(|| Box::new(Kept { text: text.into(), prepared: (self.prepare)(text) }));
        let other = 1 - self.text;
        let result = run::<(A,), O>(call, &arguments[other..=other], rows, errors, |call, (value,)| {
            (self.function)(call, &kept.prepared, value)
        });
        call.local.put(kept);
        result
    }

    fn cells(&self, call: &mut Call<'_>, arguments: &[Datum<'_>], out: &mut Slot) -> Result<()> {
        self.general.cells(call, arguments, out)
    }
}
