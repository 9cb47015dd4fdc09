//! `sum` and `avg` of `numeric`.
//!
//! A state holds digits and one scale, the largest that a value had, as PostgreSQL's result does. Adding a value of the state's scale is
//! an addition of integers; all values of a column of decimals are such, and mostly those of a column of plain `numeric`.

use super::sums::sum_of_words;
use crate::aggregate::{Aggregate, Groups};
use crate::builder::Builder;
use crate::data::Data;
use crate::datum::Datum;
use crate::image::take;
use crate::kernel::{Call, Signature};
use crate::selection::Rows;
use crate::vector::{Form, Vector};
use arrow_buffer::NullBuffer;
use firn_base::numeric::{Numeric, POWERS};
use firn_base::{Representation, Result};

/// The sum, or the average.
#[derive(Clone)]
pub(super) struct NumericSum<const AVERAGE: bool>;

/// Sum and number of values.
pub(super) struct State {
    /// Digits and scale of the sum, as [`Numeric::to_parts`] gives them: NaN and infinities are scales of their own.
    unscaled: i128,
    scale: u16,
    /// Whether all values had the scale of the sum, so that it is exact and remains so if one is removed.
    is_uniform: bool,
    count: i64,
}

impl State {
    const EMPTY: State = State { unscaled: 0, scale: 0, is_uniform: true, count: 0 };

    fn sum(&self) -> Numeric {
        Numeric::from_parts(self.unscaled, self.scale)
    }

    /// Adds the sum of some values that have one scale.
    #[inline]
    fn add(&mut self, unscaled: i128, scale: u16, count: i64) -> Result<()> {
        if self.scale == scale
            && let Some(sum) = self.unscaled.checked_add(unscaled)
            && is_number(sum)
        {
            // NaN and infinities have the digits 0, and remain what they are.
            self.unscaled = sum;
            self.count += count;
            return Ok(());
        }
        if self.count == 0 {
            *self = State { unscaled, scale, count, ..State::EMPTY };
            return Ok(());
        }
        self.add_other(Numeric::from_parts(unscaled, scale), count)
    }

    /// Adds values of another scale, or so large ones that the sum loses decimals.
    #[cold]
    fn add_other(&mut self, sum: Numeric, count: i64) -> Result<()> {
        let result = self.sum().checked_add(sum)?;
        self.is_uniform &= self.count == 0 && result.is_identical(sum);
        (self.unscaled, self.scale) = result.to_parts();
        self.count += count;
        Ok(())
    }

    /// Removes a value. `false` if what remains cannot be told.
    fn remove(&mut self, value: Numeric) -> bool {
        let (unscaled, scale) = value.to_parts();
        if !self.is_uniform || self.scale != scale || !value.is_finite() {
            return false;
        }
        match self.unscaled.checked_sub(unscaled).filter(|rest| is_number(*rest)) {
            Some(rest) => {
                (self.unscaled, self.count) = (rest, self.count - 1);
                if self.count == 0 {
                    *self = State::EMPTY;
                }
                true
            }
            None => false,
        }
    }
}

/// Whether these are at most 38 digits.
#[inline]
fn is_number(unscaled: i128) -> bool {
    const MOST: i128 = POWERS[38] - 1;
    (-MOST..=MOST).contains(&unscaled)
}

impl<const AVERAGE: bool> Aggregate for NumericSum<AVERAGE> {
    type Arguments = (Numeric,);
    type State = State;

    fn accepts(result: Representation) -> bool {
        result == Representation::Numeric
    }
    fn start(&self, _: &Signature) -> State {
        State::EMPTY
    }
    fn add(&self, _: &mut Call<'_>, state: &mut State, (value,): (Numeric,)) -> Result<()> {
        let (unscaled, scale) = value.to_parts();
        state.add(unscaled, scale, 1)
    }
    fn add_batch(
        &self,
        states: &mut [State],
        groups: Groups<'_>,
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<bool> {
        let [argument] = arguments else { return Ok(false) };
        let (Form::Flat(data), validity) = (argument.form(), argument.validity()) else { return Ok(false) };
        let scale = match argument.representation() {
            Representation::Decimal { scale, .. } => u16::from(scale),
            _ => 0,
        };
        let is_whole = validity.is_none() && rows.positions().is_none();
        match (data, groups) {
            // The sum of the vector fits: it has less than 2^16 rows of 2^63.
            (Data::Int64(values), Groups::One(group)) if is_whole && !values.is_empty() => {
                states[group].add(sum_of_words(values), scale, values.len() as i64)?;
            }
            (Data::Int64(values), _) => {
                groups.add_each(states, values, validity, rows, |state, value| {
                    state.add(value.into(), scale, 1)
                })?;
            }
            (Data::Int128(values), _) => {
                groups.add_each(states, values, validity, rows, |state, value| state.add(value, scale, 1))?;
            }
            (Data::Numeric(values), _) => {
                add_numerics(states, groups, values.unscaled(), values.scales(), validity, rows)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut State, other: State) -> Result<()> {
        if other.count == 0 {
            return Ok(());
        }
        let is_uniform = state.is_uniform && other.is_uniform;
        state.add(other.unscaled, other.scale, other.count)?;
        state.is_uniform &= is_uniform;
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, state: &State, out: &mut Builder) -> Result<()> {
        out.push(match state.count {
            0 => Datum::Null,
            count if AVERAGE => Datum::Numeric(state.sum().checked_div(Numeric::from(count))?),
            _ => Datum::Numeric(state.sum()),
        });
        Ok(())
    }
    fn write(&self, state: &State, out: &mut Vec<u8>) {
        out.extend_from_slice(&state.unscaled.to_le_bytes());
        out.extend_from_slice(&state.scale.to_le_bytes());
        out.push(u8::from(state.is_uniform));
        out.extend_from_slice(&state.count.to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> State {
        let (unscaled, scale) = (i128::from_le_bytes(take(image)), u16::from_le_bytes(take(image)));
        let [is_uniform] = take(image);
        let is_uniform = is_uniform != 0;
        State { unscaled, scale, is_uniform, count: i64::from_le_bytes(take(image)) }
    }
    fn remove(&self, _: &mut Call<'_>, state: &mut State, (value,): (Numeric,)) -> Result<bool> {
        Ok(state.remove(value))
    }
}

/// Adds numbers with a scale each.
fn add_numerics(
    states: &mut [State],
    groups: Groups<'_>,
    unscaled: &[i128],
    scales: &[u16],
    validity: Option<&NullBuffer>,
    rows: Rows<'_>,
) -> Result<()> {
    let mut add = |row: usize| {
        let group = match groups {
            Groups::One(group) => group,
            Groups::Each(groups) => groups[row] as usize,
        };
        states[group].add(unscaled[row], scales[row], 1)
    };
    match validity {
        None => rows.try_each(add),
        Some(validity) => rows.try_each(|row| if validity.is_valid(row) { add(row) } else { Ok(()) }),
    }
}
