//! The adapter: makes a kernel of a function over the values of one row.
//!
//! There is one loop for each combination of types of arguments and result, which calls the function through a pointer; so
//! compiling a function costs no more than its body. A few hot functions get a loop of their own, in which they are inlined.
//! A loop has two copies, over all rows and over positions; which columns are constant makes none. Rows with a NULL in an argument that
//! takes none are left out before the loop.

use super::arguments::{Arguments, Nulls};
use super::errors::Errors;
use super::outcome::{Outcome, Output};
use super::{Call, Kernel};
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::selection::Rows;
use crate::vector::Vector;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use firn_base::{Error, Representation, Result, SqlState};
use std::marker::PhantomData;

/// Makes a kernel of a function over the values of one row.
pub fn scalar<A: Arguments, O: Outcome + 'static>(
    call: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O + Send + Sync + 'static,
) -> impl Kernel {
    let call: Box<RowFunction<A, O>> = Box::new(call);
    RowKernel { call, types: PhantomData::<fn(A) -> O> }
}

/// As [`scalar`], with the function inlined into a loop of its own.
pub fn hot<A: Arguments, O: Outcome + 'static>(
    call: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O + Send + Sync + 'static,
) -> impl Kernel {
    RowKernel { call, types: PhantomData::<fn(A) -> O> }
}

type RowFunction<A, O> = dyn for<'a> Fn(&mut Call<'_>, <A as Arguments>::Row<'a>) -> O + Send + Sync;

struct RowKernel<A, O, F> {
    call: F,
    types: PhantomData<fn(A) -> O>,
}

impl<A, O, F> Kernel for RowKernel<A, O, F>
where
    A: Arguments,
    O: Outcome + 'static,
    F: for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O + Send + Sync + 'static,
{
    fn can_fail(&self) -> bool {
        O::CAN_FAIL
    }

    fn may_be_null(&self) -> bool {
        O::MAY_BE_NULL
    }

    fn takes_null(&self, number: usize) -> bool {
        A::takes_null(number)
    }

    fn accepts(&self, arguments: &[Representation], result: Representation) -> bool {
        A::accepts(arguments) && O::Value::accepts(result)
    }

    fn vectors(
        &self,
        call: &mut Call<'_>,
        arguments: &[Vector],
        rows: Rows<'_>,
        errors: Option<&mut Errors>,
    ) -> Result<Vector> {
        run::<A, O>(call, arguments, rows, errors, &self.call)
    }

    fn cells(&self, call: &mut Call<'_>, arguments: &[Datum<'_>], out: &mut Slot) -> Result<()> {
        let Some(row) = A::single(arguments) else {
            out.set_fixed(Datum::Null);
            return Ok(());
        };
        // Others do not write to the buffers.
        if O::Value::IS_WIDE {
            out.lend(call);
        }
        let outcome = (self.call)(call, row).result();
        if O::Value::IS_WIDE {
            out.take_back(call);
        }
        match outcome? {
            Some(value) => value.store(out, call),
            None => out.set_fixed(Datum::Null),
        }
        Ok(())
    }
}

/// Calls a function for each of the rows of flat and constant vectors: what [`Kernel::vectors`] is of a row kernel.
#[inline]
pub(crate) fn run<A: Arguments, O: Outcome>(
    call: &mut Call<'_>,
    arguments: &[Vector],
    rows: Rows<'_>,
    mut errors: Option<&mut Errors>,
    function: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O,
) -> Result<Vector> {
    let representation = call.signature.representation;
    let length = rows.length();
    let positions = match Nulls::of::<A>(arguments) {
        Nulls::All => return Ok(Vector::null(representation, length)),
        Nulls::None => None,
        Nulls::Some(validity) => Some((valid_positions(rows, &validity), validity)),
    };
    let (rows, mut nulls) = match &positions {
        Some((positions, validity)) => (Rows::at(positions, length), Validity::of(validity)),
        None => (rows, Validity(None)),
    };
    let columns = A::columns(arguments);
    let mut out = O::Value::column(representation, length);
    rows.try_each(|row| {
        if O::Value::IS_WIDE && O::Value::bytes(&out, call) > call.most_bytes {
            call.is_too_wide = true;
            return Err(too_wide());
        }
        let mark = O::Value::mark(call);
        match function(call, A::get(&columns, row)).result() {
            Ok(Some(value)) if !value.is_null(call) => value.put(&mut out, row, call, mark),
            Ok(_) => {
                O::Value::abandon(call, mark);
                nulls.set_null(row, length);
            }
            Err(error) => {
                O::Value::abandon(call, mark);
                let Some(errors) = &mut errors else { return Err(error) };
                errors.keep(row, error);
                nulls.set_null(row, length);
            }
        }
        Ok(())
    })?;
    let data = O::Value::finish(out, length, call);
    Ok(Vector::flat(representation, data, nulls.finish(length)))
}

#[cold]
fn too_wide() -> Error {
    Error::new(SqlState::OUT_OF_MEMORY, "out of memory")
        .with_detail("the query needs more memory than it may use: its values are too long.")
}

/// The selected rows that are valid.
pub(crate) fn valid_positions(rows: Rows<'_>, validity: &NullBuffer) -> Vec<u16> {
    let mut positions = Vec::with_capacity(rows.count());
    match rows.positions() {
        None => positions.extend(validity.valid_indices().map(|row| row as u16)),
        Some(selected) => {
            positions.extend(selected.iter().copied().filter(|row| validity.is_valid(usize::from(*row))));
        }
    }
    positions
}

/// The bitmap of a result: bytes once there is a NULL.
struct Validity(Option<Vec<u8>>);

impl Validity {
    fn of(bits: &NullBuffer) -> Validity {
        Validity(Some(bits.inner().sliced().as_slice().to_vec()))
    }

    #[cold]
    fn set_null(&mut self, row: usize, length: usize) {
        let bits = self.0.get_or_insert_with(|| vec![0xff; length.div_ceil(8)]);
        bits[row / 8] &= !(1 << (row % 8));
    }

    fn finish(self, length: usize) -> Option<NullBuffer> {
        let bits = Buffer::from_vec(self.0?);
        Some(NullBuffer::new(BooleanBuffer::new(bits, 0, length)))
    }
}
