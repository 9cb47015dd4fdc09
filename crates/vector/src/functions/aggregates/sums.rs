//! Counts, sums, averages, and what is true or set in all or some rows.

use super::numeric_sums::NumericSum;
use crate::aggregate::{Aggregate, Groups};
use crate::builder::Builder;
use crate::data::Data;
use crate::datum::Datum;
use crate::image::take;
use crate::kernel::{Argument, Call, Signature};
use crate::registry::RegistryBuilder;
use crate::selection::Rows;
use crate::vector::{Form, Vector};
use arrow_buffer::NullBuffer;
use firn_base::numeric::Numeric;
use firn_base::{Error, Interval, Representation, Result, SqlState};
use std::marker::PhantomData;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.aggregate("count()", CountRows);
    builder.aggregate("count(any)", CountValues);
    builder.aggregate("sum(int2)", WholeSum::<i16, false>(PhantomData));
    builder.aggregate("sum(int4)", WholeSum::<i32, false>(PhantomData));
    builder.aggregate("sum(int8)", WholeSum::<i64, false>(PhantomData));
    builder.aggregate("avg(int2)", WholeSum::<i16, true>(PhantomData));
    builder.aggregate("avg(int4)", WholeSum::<i32, true>(PhantomData));
    builder.aggregate("avg(int8)", WholeSum::<i64, true>(PhantomData));
    builder.aggregate("sum(numeric)", NumericSum::<false>);
    builder.aggregate("avg(numeric)", NumericSum::<true>);
    builder.aggregate("sum(float4)", FloatSum::<f32>(PhantomData));
    builder.aggregate("sum(float8)", FloatSum::<f64>(PhantomData));
    builder.aggregate("sum(interval)", IntervalSum::<false>);
    builder.aggregate("avg(interval)", IntervalSum::<true>);
    builder.aggregate("bool_and(bool) every(bool)", Fold::<bool>(|left, right| left & right));
    builder.aggregate("bool_or(bool)", Fold::<bool>(|left, right| left | right));
    builder.aggregate("bit_and(int2)", Fold::<i16>(|left, right| left & right));
    builder.aggregate("bit_or(int2)", Fold::<i16>(|left, right| left | right));
    builder.aggregate("bit_xor(int2)", Fold::<i16>(|left, right| left ^ right));
    builder.aggregate("bit_and(int4)", Fold::<i32>(|left, right| left & right));
    builder.aggregate("bit_or(int4)", Fold::<i32>(|left, right| left | right));
    builder.aggregate("bit_xor(int4)", Fold::<i32>(|left, right| left ^ right));
    builder.aggregate("bit_and(int8)", Fold::<i64>(|left, right| left & right));
    builder.aggregate("bit_or(int8)", Fold::<i64>(|left, right| left | right));
    builder.aggregate("bit_xor(int8)", Fold::<i64>(|left, right| left ^ right));
}

#[derive(Clone)]
struct CountRows;

impl Aggregate for CountRows {
    type Arguments = ();
    type State = i64;

    fn accepts(result: Representation) -> bool {
        result == Representation::Int64
    }
    fn start(&self, _: &Signature) -> i64 {
        0
    }
    fn add(&self, _: &mut Call<'_>, count: &mut i64, (): ()) -> Result<()> {
        *count += 1;
        Ok(())
    }
    fn add_batch(
        &self,
        counts: &mut [i64],
        groups: Groups<'_>,
        _: &[Vector],
        rows: Rows<'_>,
    ) -> Result<bool> {
        groups.count_each(counts, None, rows, |count, more| *count += more);
        Ok(true)
    }
    fn merge(&self, _: &mut Call<'_>, count: &mut i64, other: i64) -> Result<()> {
        *count += other;
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, count: &i64, out: &mut Builder) -> Result<()> {
        out.push(Datum::Int64(*count));
        Ok(())
    }
    fn write(&self, count: &i64, out: &mut Vec<u8>) {
        out.extend_from_slice(&count.to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> i64 {
        i64::from_le_bytes(take(image))
    }
    fn remove(&self, _: &mut Call<'_>, count: &mut i64, (): ()) -> Result<bool> {
        *count -= 1;
        Ok(true)
    }
}

#[derive(Clone)]
struct CountValues;

impl Aggregate for CountValues {
    type Arguments = (Datum<'static>,);
    type State = i64;

    fn accepts(result: Representation) -> bool {
        result == Representation::Int64
    }
    fn start(&self, _: &Signature) -> i64 {
        0
    }
    fn add(&self, _: &mut Call<'_>, count: &mut i64, _: (Datum<'_>,)) -> Result<()> {
        *count += 1;
        Ok(())
    }
    fn add_batch(
        &self,
        counts: &mut [i64],
        groups: Groups<'_>,
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<bool> {
        let Form::Flat(_) = arguments[0].form() else { return Ok(false) };
        groups.count_each(counts, arguments[0].validity(), rows, |count, more| *count += more);
        Ok(true)
    }
    fn merge(&self, _: &mut Call<'_>, count: &mut i64, other: i64) -> Result<()> {
        *count += other;
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, count: &i64, out: &mut Builder) -> Result<()> {
        out.push(Datum::Int64(*count));
        Ok(())
    }
    fn write(&self, count: &i64, out: &mut Vec<u8>) {
        out.extend_from_slice(&count.to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> i64 {
        i64::from_le_bytes(take(image))
    }
    fn remove(&self, _: &mut Call<'_>, count: &mut i64, _: (Datum<'_>,)) -> Result<bool> {
        *count -= 1;
        Ok(true)
    }
}

/// Sum and number of whole numbers. No sum of as many as there can be rows overflows 128 bits.
struct WholeSum<A, const AVERAGE: bool>(PhantomData<fn(A)>);

impl<A, const AVERAGE: bool> Clone for WholeSum<A, AVERAGE> {
    fn clone(&self) -> Self {
        WholeSum(PhantomData)
    }
}

impl<A, const AVERAGE: bool> Aggregate for WholeSum<A, AVERAGE>
where
    A: for<'a> Argument<Row<'a> = A> + Into<i128> + Send + Sync,
{
    type Arguments = (A,);
    type State = (i128, i64);

    fn accepts(result: Representation) -> bool {
        matches!(result, Representation::Int64 | Representation::Numeric)
    }
    fn start(&self, _: &Signature) -> (i128, i64) {
        (0, 0)
    }
    fn add(&self, _: &mut Call<'_>, state: &mut (i128, i64), (value,): (A,)) -> Result<()> {
        state.0 += value.into();
        state.1 += 1;
        Ok(())
    }
    fn add_batch(
        &self,
        states: &mut [(i128, i64)],
        groups: Groups<'_>,
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<bool> {
        let Form::Flat(data) = arguments[0].form() else { return Ok(false) };
        let validity = arguments[0].validity();
        let is_whole = validity.is_none() && rows.positions().is_none();
        match (data, groups) {
            (Data::Int64(values), Groups::One(group)) if is_whole => {
                states[group].0 += sum_of_words(values);
                states[group].1 += values.len() as i64;
            }
            (Data::Int16(values), _) => add_whole(states, groups, values, validity, rows)?,
            (Data::Int32(values), _) => add_whole(states, groups, values, validity, rows)?,
            (Data::Int64(values), _) => add_whole(states, groups, values, validity, rows)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut (i128, i64), other: (i128, i64)) -> Result<()> {
        state.0 += other.0;
        state.1 += other.1;
        Ok(())
    }
    fn finish(&self, call: &mut Call<'_>, (sum, count): &(i128, i64), out: &mut Builder) -> Result<()> {
        let number = || {
            Numeric::new(*sum, 0).ok_or_else(|| {
                Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
            })
        };
        out.push(match (*count, call.signature.representation) {
            (0, _) => Datum::Null,
            (count, _) if AVERAGE => Datum::Numeric(number()?.checked_div(Numeric::from(count))?),
            (_, Representation::Int64) => Datum::Int64(
                i64::try_from(*sum)
                    .map_err(|_| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range"))?,
            ),
            _ => Datum::Numeric(number()?),
        });
        Ok(())
    }
    fn write(&self, (sum, count): &(i128, i64), out: &mut Vec<u8>) {
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> (i128, i64) {
        (i128::from_le_bytes(take(image)), i64::from_le_bytes(take(image)))
    }
    fn remove(&self, _: &mut Call<'_>, state: &mut (i128, i64), (value,): (A,)) -> Result<bool> {
        state.0 -= value.into();
        state.1 -= 1;
        Ok(true)
    }
}

fn add_whole<T: Copy + Into<i128>>(
    states: &mut [(i128, i64)],
    groups: Groups<'_>,
    values: &[T],
    validity: Option<&NullBuffer>,
    rows: Rows<'_>,
) -> Result<()> {
    groups.add_each(states, values, validity, rows, |state, value| {
        state.0 += value.into();
        state.1 += 1;
        Ok(())
    })
}

/// The sum of numbers of 64 bits, of which there are less than 2^31: the lower and the upper halves are added apart.
pub(super) fn sum_of_words(values: &[i64]) -> i128 {
    debug_assert!(values.len() < 1 << 31);
    let (low, high) = values
        .iter()
        .fold((0i64, 0i64), |(low, high), value| (low + (*value & 0xffff_ffff), high + (*value >> 32)));
    (i128::from(high) << 32) + i128::from(low)
}

/// Sums of floats in the type's own precision, as PostgreSQL adds them.
struct FloatSum<A>(PhantomData<fn(A)>);

impl<A> Clone for FloatSum<A> {
    fn clone(&self) -> Self {
        FloatSum(PhantomData)
    }
}

/// A type of floats that are added.
trait Float: for<'a> Argument<Row<'a> = Self> + Send + Sync + Copy {
    const REPRESENTATION: Representation;
    fn plus(self, other: Self) -> Self;
    fn wide(self) -> f64;
    fn datum(self) -> Datum<'static>;
    fn of(wide: f64) -> Self;
}

impl Float for f32 {
    const REPRESENTATION: Representation = Representation::Float32;
    fn plus(self, other: f32) -> f32 {
        self + other
    }
    fn wide(self) -> f64 {
        self.into()
    }
    fn datum(self) -> Datum<'static> {
        Datum::Float32(firn_base::operators::one_nan_real(self))
    }
    fn of(wide: f64) -> f32 {
        wide as f32
    }
}

impl Float for f64 {
    const REPRESENTATION: Representation = Representation::Float64;
    fn plus(self, other: f64) -> f64 {
        self + other
    }
    fn wide(self) -> f64 {
        self
    }
    fn datum(self) -> Datum<'static> {
        Datum::Float64(firn_base::operators::one_nan(self))
    }
    fn of(wide: f64) -> f64 {
        wide
    }
}

fn add_floats<A: Float>(left: A, right: A) -> Result<A> {
    let sum = left.plus(right);
    let is_overflow = sum.wide().is_infinite() && left.wide().is_finite() && right.wide().is_finite();
    match is_overflow {
        true => Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")),
        false => Ok(sum),
    }
}

impl<A: Float> Aggregate for FloatSum<A> {
    type Arguments = (A,);
    type State = Option<A>;

    fn accepts(result: Representation) -> bool {
        result == A::REPRESENTATION
    }
    fn start(&self, _: &Signature) -> Option<A> {
        None
    }
    fn add(&self, _: &mut Call<'_>, state: &mut Option<A>, (value,): (A,)) -> Result<()> {
        *state = Some(match *state {
            Some(sum) => add_floats(sum, value)?,
            None => value,
        });
        Ok(())
    }
    fn merge(&self, call: &mut Call<'_>, state: &mut Option<A>, other: Option<A>) -> Result<()> {
        other.map_or(Ok(()), |other| self.add(call, state, (other,)))
    }
    fn finish(&self, _: &mut Call<'_>, state: &Option<A>, out: &mut Builder) -> Result<()> {
        out.push(state.map_or(Datum::Null, A::datum));
        Ok(())
    }
    fn write(&self, state: &Option<A>, out: &mut Vec<u8>) {
        out.push(u8::from(state.is_some()));
        out.extend_from_slice(&state.map_or(0.0, A::wide).to_bits().to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> Option<A> {
        let [is_some] = take(image);
        let wide = f64::from_bits(u64::from_le_bytes(take(image)));
        (is_some != 0).then(|| A::of(wide))
    }
}

#[derive(Clone)]
struct IntervalSum<const AVERAGE: bool>;

impl<const AVERAGE: bool> Aggregate for IntervalSum<AVERAGE> {
    type Arguments = (Interval,);
    type State = (Interval, i64);

    fn accepts(result: Representation) -> bool {
        result == Representation::Interval
    }
    fn start(&self, _: &Signature) -> (Interval, i64) {
        (Interval::default(), 0)
    }
    fn add(&self, _: &mut Call<'_>, state: &mut (Interval, i64), (value,): (Interval,)) -> Result<()> {
        state.0 = state.0.checked_add(value)?;
        state.1 += 1;
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut (Interval, i64), other: (Interval, i64)) -> Result<()> {
        state.0 = state.0.checked_add(other.0)?;
        state.1 += other.1;
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, (sum, count): &(Interval, i64), out: &mut Builder) -> Result<()> {
        out.push(match *count {
            0 => Datum::Null,
            count if AVERAGE => Datum::Interval(sum.checked_div(count as f64)?),
            _ => Datum::Interval(*sum),
        });
        Ok(())
    }
    fn write(&self, (sum, count): &(Interval, i64), out: &mut Vec<u8>) {
        sum.to_words().iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&count.to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> (Interval, i64) {
        let words = [u64::from_le_bytes(take(image)), u64::from_le_bytes(take(image))];
        (Interval::from_words(words), i64::from_le_bytes(take(image)))
    }
    fn remove(&self, _: &mut Call<'_>, state: &mut (Interval, i64), (value,): (Interval,)) -> Result<bool> {
        state.0 = state.0.checked_add(value.checked_neg()?)?;
        state.1 -= 1;
        Ok(true)
    }
}

/// All values put together by a function in which their order does not matter.
#[derive(Clone)]
struct Fold<A>(fn(A, A) -> A);

/// A type of values that are folded.
trait Bits: for<'a> Argument<Row<'a> = Self> + Send + Sync + Copy {
    const REPRESENTATION: Representation;
    fn word(self) -> i64;
    fn of(word: i64) -> Self;
    fn datum(self) -> Datum<'static>;
}

macro_rules! bits {
    ($($ty:ty: $kind:ident, $of:expr;)*) => {
        $(impl Bits for $ty {
            const REPRESENTATION: Representation = Representation::$kind;
            fn word(self) -> i64 {
                self.into()
            }
            fn of(word: i64) -> $ty {
                $of(word)
            }
            fn datum(self) -> Datum<'static> {
                Datum::$kind(self)
            }
        })*
    };
}
bits! {
    bool: Boolean, |word| word != 0;
    i16: Int16, |word| word as i16;
    i32: Int32, |word| word as i32;
    i64: Int64, |word| word;
}

impl<A: Bits> Aggregate for Fold<A> {
    type Arguments = (A,);
    type State = Option<A>;

    fn accepts(result: Representation) -> bool {
        result == A::REPRESENTATION
    }
    fn start(&self, _: &Signature) -> Option<A> {
        None
    }
    fn add(&self, _: &mut Call<'_>, state: &mut Option<A>, (value,): (A,)) -> Result<()> {
        *state = Some(state.map_or(value, |state| (self.0)(state, value)));
        Ok(())
    }
    fn merge(&self, call: &mut Call<'_>, state: &mut Option<A>, other: Option<A>) -> Result<()> {
        other.map_or(Ok(()), |other| self.add(call, state, (other,)))
    }
    fn finish(&self, _: &mut Call<'_>, state: &Option<A>, out: &mut Builder) -> Result<()> {
        out.push(state.map_or(Datum::Null, A::datum));
        Ok(())
    }
    fn write(&self, state: &Option<A>, out: &mut Vec<u8>) {
        out.push(u8::from(state.is_some()));
        out.extend_from_slice(&state.map_or(0, A::word).to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> Option<A> {
        let [is_some] = take(image);
        let word = i64::from_le_bytes(take(image));
        (is_some != 0).then(|| A::of(word))
    }
}
