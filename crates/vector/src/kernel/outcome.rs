//! What a row kernel returns, and how results become a vector or fill a slot.

use super::Call;
use crate::builder::{Builder, at_scale};
use crate::data::Data;
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::numerics::Numerics;
use crate::strings::StringBuilder;
use arrow_buffer::{BooleanBuffer, Buffer, IntervalMonthDayNano};
use firn_base::numeric::Numeric;
use firn_base::{Error, Interval, Representation, SqlState};

/// What a call of a kernel may come to: a value, NULL, or an error.
pub trait Outcome {
    /// The type of its values.
    type Value: Output;
    /// Whether it may be an error that the optimiser must reckon with.
    const CAN_FAIL: bool;
    /// Whether it may be NULL.
    const MAY_BE_NULL: bool;

    /// The value, or `None` for NULL, or the error.
    fn result(self) -> Result<Option<Self::Value>, Error>;
}

/// A number that does not fit: 22003, which does not count as a way to fail.
#[derive(Clone, Copy, Debug)]
pub struct Overflow(pub &'static str);

impl From<Overflow> for Error {
    #[cold]
    fn from(overflow: Overflow) -> Error {
        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, overflow.0)
    }
}

/// As [`Overflow`], with an error that was made elsewhere.
#[derive(Clone, Debug)]
pub struct TooLarge(pub Error);

impl<T: Outcome> Outcome for Result<T, TooLarge> {
    type Value = T::Value;
    const CAN_FAIL: bool = T::CAN_FAIL;
    const MAY_BE_NULL: bool = T::MAY_BE_NULL;

    #[inline]
    fn result(self) -> Result<Option<T::Value>, Error> {
        let result = self.map_err(|TooLarge(error)| {
            debug_assert_eq!(error.state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
            error
        });
        result?.result()
    }
}

impl<T: Output> Outcome for T {
    type Value = T;
    const CAN_FAIL: bool = false;
    const MAY_BE_NULL: bool = T::MAY_BE_NULL;

    #[inline]
    fn result(self) -> Result<Option<T>, Error> {
        Ok(Some(self))
    }
}

impl<T: Output> Outcome for Option<T> {
    type Value = T;
    const CAN_FAIL: bool = false;
    const MAY_BE_NULL: bool = true;

    #[inline]
    fn result(self) -> Result<Option<T>, Error> {
        Ok(self)
    }
}

impl<T: Outcome> Outcome for Result<T, Error> {
    type Value = T::Value;
    const CAN_FAIL: bool = true;
    const MAY_BE_NULL: bool = T::MAY_BE_NULL;

    #[inline]
    fn result(self) -> Result<Option<T::Value>, Error> {
        self?.result()
    }
}

impl<T: Outcome> Outcome for Result<T, Overflow> {
    type Value = T::Value;
    const CAN_FAIL: bool = T::CAN_FAIL;
    const MAY_BE_NULL: bool = T::MAY_BE_NULL;

    #[inline]
    fn result(self) -> Result<Option<T::Value>, Error> {
        self?.result()
    }
}

/// A type of results.
pub trait Output: Sized + 'static {
    /// A vector that is being written.
    type Column;
    /// Where a row's result begins in a buffer of the call.
    type Mark: Copy;
    /// Whether a result of this type may be NULL by itself.
    const MAY_BE_NULL: bool = false;

    /// Whether results can lie like this.
    fn accepts(representation: Representation) -> bool;

    /// A vector of so many rows, which are written in rising order, each at most once.
    fn column(representation: Representation, length: usize) -> Self::Column;

    /// Whether results may be of any size.
    const IS_WIDE: bool = false;

    /// How many bytes the results of the rows before take, if they [may be of any size](Output::IS_WIDE).
    #[inline]
    fn bytes(_: &Self::Column, _: &Call<'_>) -> usize {
        0
    }

    /// Before a call.
    fn mark(call: &Call<'_>) -> Self::Mark;

    /// Writes the result of a row.
    fn put(self, column: &mut Self::Column, row: usize, call: &mut Call<'_>, mark: Self::Mark);

    /// Whether a result that is returned is NULL nevertheless.
    #[inline]
    fn is_null(&self, _: &Call<'_>) -> bool {
        false
    }

    /// After a call without a result.
    fn abandon(call: &mut Call<'_>, mark: Self::Mark);

    /// The vector's values.
    fn finish(column: Self::Column, length: usize, call: &mut Call<'_>) -> Data;

    /// Makes a slot hold the result of a call that wrote to the slot's own buffers.
    fn store(self, slot: &mut Slot, call: &mut Call<'_>);
}

macro_rules! plain_outputs {
    ($($ty:ty: $kind:ident, ($representations:pat);)*) => {
        $(impl Output for $ty {
            type Column = Vec<$ty>;
            type Mark = ();

            fn accepts(representation: Representation) -> bool {
                matches!(representation, $representations)
            }
            fn column(_: Representation, length: usize) -> Vec<$ty> {
                vec![<$ty>::default(); length]
            }
            #[inline]
            fn mark(_: &Call<'_>) {}
            #[inline]
            fn put(self, column: &mut Vec<$ty>, row: usize, _: &mut Call<'_>, _: ()) {
                column[row] = self;
            }
            #[inline]
            fn abandon(_: &mut Call<'_>, _: ()) {}
            fn finish(column: Vec<$ty>, _: usize, _: &mut Call<'_>) -> Data {
                Data::$kind(column.into())
            }
            #[inline]
            fn store(self, slot: &mut Slot, _: &mut Call<'_>) {
                slot.set_fixed(Datum::$kind(self));
            }
        })*
    };
}

plain_outputs! {
    i16: Int16, (Representation::Int16);
    i32: Int32, (Representation::Int32 | Representation::Date);
    i64: Int64, (Representation::Int64 | Representation::Time | Representation::Timestamp | Representation::TimestampTz);
    u32: UInt32, (Representation::Oid);
    f32: Float32, (Representation::Float32);
    f64: Float64, (Representation::Float64);
}

impl Output for bool {
    type Column = Vec<u8>;
    type Mark = ();

    fn accepts(representation: Representation) -> bool {
        representation == Representation::Boolean
    }
    fn column(_: Representation, length: usize) -> Vec<u8> {
        vec![0; length.div_ceil(8)]
    }
    #[inline]
    fn mark(_: &Call<'_>) {}
    #[inline]
    fn put(self, column: &mut Vec<u8>, row: usize, _: &mut Call<'_>, _: ()) {
        column[row / 8] |= u8::from(self) << (row % 8);
    }
    #[inline]
    fn abandon(_: &mut Call<'_>, _: ()) {}
    fn finish(column: Vec<u8>, length: usize, _: &mut Call<'_>) -> Data {
        Data::Boolean(BooleanBuffer::new(Buffer::from_vec(column), 0, length))
    }
    #[inline]
    fn store(self, slot: &mut Slot, _: &mut Call<'_>) {
        slot.set_fixed(Datum::Boolean(self));
    }
}

impl Output for Interval {
    type Column = Vec<IntervalMonthDayNano>;
    type Mark = ();

    fn accepts(representation: Representation) -> bool {
        representation == Representation::Interval
    }
    fn column(_: Representation, length: usize) -> Self::Column {
        vec![IntervalMonthDayNano::default(); length]
    }
    #[inline]
    fn mark(_: &Call<'_>) {}
    #[inline]
    fn put(self, column: &mut Self::Column, row: usize, _: &mut Call<'_>, _: ()) {
        column[row] = IntervalMonthDayNano::new(self.months, self.days, self.nanoseconds);
    }
    #[inline]
    fn abandon(_: &mut Call<'_>, _: ()) {}
    fn finish(column: Self::Column, _: usize, _: &mut Call<'_>) -> Data {
        Data::Interval(column.into())
    }
    #[inline]
    fn store(self, slot: &mut Slot, _: &mut Call<'_>) {
        slot.set_fixed(Datum::Interval(self));
    }
}

impl Output for [u8; 16] {
    type Column = Vec<u128>;
    type Mark = ();

    fn accepts(representation: Representation) -> bool {
        representation == Representation::Uuid
    }
    fn column(_: Representation, length: usize) -> Vec<u128> {
        vec![0; length]
    }
    #[inline]
    fn mark(_: &Call<'_>) {}
    #[inline]
    fn put(self, column: &mut Vec<u128>, row: usize, _: &mut Call<'_>, _: ()) {
        column[row] = u128::from_le_bytes(self);
    }
    #[inline]
    fn abandon(_: &mut Call<'_>, _: ()) {}
    fn finish(column: Vec<u128>, _: usize, _: &mut Call<'_>) -> Data {
        Data::Uuid(column.into())
    }
    #[inline]
    fn store(self, slot: &mut Slot, _: &mut Call<'_>) {
        slot.set_fixed(Datum::Uuid(self));
    }
}

/// Numbers that are being written, with one scale or many.
pub enum NumberColumn {
    /// A scale for each.
    Numeric(Vec<i128>, Vec<u16>),
    /// Eight bytes each, and the scale of all.
    Narrow(Vec<i64>, u8),
    /// Sixteen bytes each, and the scale of all.
    Wide(Vec<i128>, u8),
}

impl Output for Numeric {
    type Column = NumberColumn;
    type Mark = ();

    fn accepts(representation: Representation) -> bool {
        matches!(representation, Representation::Numeric | Representation::Decimal { .. })
    }
    fn column(representation: Representation, length: usize) -> NumberColumn {
        match representation {
            Representation::Decimal { precision: ..=18, scale } => {
                NumberColumn::Narrow(vec![0; length], scale)
            }
            Representation::Decimal { scale, .. } => NumberColumn::Wide(vec![0; length], scale),
            _ => NumberColumn::Numeric(vec![0; length], vec![0; length]),
        }
    }
    #[inline]
    fn mark(_: &Call<'_>) {}
    fn put(self, column: &mut NumberColumn, row: usize, _: &mut Call<'_>, _: ()) {
        match column {
            NumberColumn::Numeric(digits, scales) => {
                (digits[row], scales[row]) = self.to_parts();
            }
            NumberColumn::Narrow(values, scale) => values[row] = at_scale(self, *scale) as i64,
            NumberColumn::Wide(values, scale) => values[row] = at_scale(self, *scale),
        }
    }
    #[inline]
    fn abandon(_: &mut Call<'_>, _: ()) {}
    fn finish(column: NumberColumn, _: usize, _: &mut Call<'_>) -> Data {
        match column {
            NumberColumn::Numeric(digits, scales) => {
                Data::Numeric(Numerics::new(digits.into(), scales.into()))
            }
            NumberColumn::Narrow(values, _) => Data::Int64(values.into()),
            NumberColumn::Wide(values, _) => Data::Int128(values.into()),
        }
    }
    #[inline]
    fn store(self, slot: &mut Slot, _: &mut Call<'_>) {
        slot.set_fixed(Datum::Numeric(self));
    }
}

/// The sign that a result of characters has been appended to [`Call::text`].
#[derive(Clone, Copy, Debug)]
pub struct Text;

impl Output for Text {
    type Column = StringBuilder;
    type Mark = usize;
    const IS_WIDE: bool = true;

    #[inline]
    fn bytes(_: &StringBuilder, call: &Call<'_>) -> usize {
        call.text.len()
    }
    fn accepts(representation: Representation) -> bool {
        matches!(representation, Representation::Text | Representation::PaddedText)
    }
    fn column(_: Representation, length: usize) -> StringBuilder {
        StringBuilder::new(length)
    }
    #[inline]
    fn mark(call: &Call<'_>) -> usize {
        call.text.len()
    }
    fn put(self, column: &mut StringBuilder, row: usize, call: &mut Call<'_>, mark: usize) {
        column.put_text(row, &mut call.text, mark);
    }
    #[inline]
    fn abandon(call: &mut Call<'_>, mark: usize) {
        call.text.truncate(mark);
    }
    fn finish(column: StringBuilder, _: usize, call: &mut Call<'_>) -> Data {
        Data::Strings(column.finish(std::mem::take(&mut call.text).into_bytes()))
    }
    #[inline]
    fn store(self, slot: &mut Slot, _: &mut Call<'_>) {
        slot.set_text();
    }
}

/// The sign that a result of bytes has been appended to [`Call::bytes`].
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

impl Output for Bytes {
    type Column = StringBuilder;
    type Mark = usize;
    const IS_WIDE: bool = true;

    #[inline]
    fn bytes(_: &StringBuilder, call: &Call<'_>) -> usize {
        call.bytes.len()
    }
    fn accepts(representation: Representation) -> bool {
        representation == Representation::Bytes
    }
    fn column(_: Representation, length: usize) -> StringBuilder {
        StringBuilder::new(length)
    }
    #[inline]
    fn mark(call: &Call<'_>) -> usize {
        call.bytes.len()
    }
    fn put(self, column: &mut StringBuilder, row: usize, call: &mut Call<'_>, mark: usize) {
        column.put(row, &mut call.bytes, mark);
    }
    #[inline]
    fn abandon(call: &mut Call<'_>, mark: usize) {
        call.bytes.truncate(mark);
    }
    fn finish(column: StringBuilder, _: usize, call: &mut Call<'_>) -> Data {
        Data::Strings(column.finish(std::mem::take(&mut call.bytes)))
    }
    #[inline]
    fn store(self, slot: &mut Slot, _: &mut Call<'_>) {
        slot.set_bytes();
    }
}

/// The sign that a result has been put into [`Call::value`].
#[derive(Clone, Copy, Debug)]
pub struct Any;

impl Output for Any {
    type Column = Builder;
    type Mark = ();
    const MAY_BE_NULL: bool = true;
    const IS_WIDE: bool = true;

    #[inline]
    fn bytes(column: &Builder, _: &Call<'_>) -> usize {
        column.bytes()
    }
    fn is_null(&self, call: &Call<'_>) -> bool {
        call.value.get().is_null()
    }

    fn accepts(_: Representation) -> bool {
        true
    }
    fn column(representation: Representation, _: usize) -> Builder {
        Builder::new(representation)
    }
    #[inline]
    fn mark(_: &Call<'_>) {}
    fn put(self, column: &mut Builder, row: usize, call: &mut Call<'_>, _: ()) {
        column.pad(row);
        column.push(call.value.get());
    }
    #[inline]
    fn abandon(_: &mut Call<'_>, _: ()) {}
    fn finish(mut column: Builder, length: usize, _: &mut Call<'_>) -> Data {
        column.pad(length);
        column.finish_data()
    }
    #[inline]
    fn store(self, slot: &mut Slot, call: &mut Call<'_>) {
        std::mem::swap(slot, &mut call.value);
    }
}
