//! `generate_series`.

use crate::builder::Builder;
use crate::datum::Datum;
use crate::kernel::{Call, Set, SetKernel};
use crate::registry::RegistryBuilder;
use firn_base::numeric::Numeric;
use firn_base::operators::{shift, shift_in_zone};
use firn_base::{Error, Interval, Result, SqlState};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder
        .set("generate_series(int4,int4) generate_series(int4,int4,int4)", WholeNumbers { is_wide: false });
    builder.set("generate_series(int8,int8) generate_series(int8,int8,int8)", WholeNumbers { is_wide: true });
    builder.set("generate_series(numeric,numeric) generate_series(numeric,numeric,numeric)", Numerics);
    builder.set("generate_series(timestamp,timestamp,interval)", Moments { is_in_zone: false });
    builder.set("generate_series(timestamptz,timestamptz,interval)", Moments { is_in_zone: true });
}

#[cold]
fn refused(message: &str) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

struct WholeNumbers {
    is_wide: bool,
}

impl SetKernel for WholeNumbers {
    fn can_fail(&self) -> bool {
        true
    }

    fn begin(&self, _: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let whole = |datum: &Datum<'_>| match *datum {
            Datum::Int32(value) => Some(i64::from(value)),
            Datum::Int64(value) => Some(value),
            _ => None,
        };
        let step = arguments.get(2).map_or(Some(1), whole);
        let (Some(next), Some(last), Some(step)) = (whole(&arguments[0]), whole(&arguments[1]), step) else {
            return Ok(None);
        };
        if step == 0 {
            return Err(refused("step size cannot equal zero"));
        }
        Ok(Some(Box::new(WholeSeries { next: Some(next), last, step, is_wide: self.is_wide })))
    }
}

struct WholeSeries {
    /// `None` behind the largest number of all.
    next: Option<i64>,
    last: i64,
    step: i64,
    is_wide: bool,
}

impl Set for WholeSeries {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        let is_before_end =
            |value: &i64| if self.step > 0 { *value <= self.last } else { *value >= self.last };
        for _ in 0..most {
            let Some(value) = self.next.filter(is_before_end) else { return Ok(false) };
            columns[0].push(if self.is_wide { Datum::Int64(value) } else { Datum::Int32(value as i32) });
            self.next = value.checked_add(self.step);
        }
        Ok(self.next.is_some_and(|next| is_before_end(&next)))
    }
}

struct Numerics;

impl SetKernel for Numerics {
    fn can_fail(&self) -> bool {
        true
    }

    fn begin(&self, _: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let number = |datum: &Datum<'_>| match *datum {
            Datum::Numeric(value) => Some(value),
            _ => None,
        };
        let step = arguments.get(2).map_or(Some(Numeric::from(1i64)), number);
        let (Some(next), Some(last), Some(step)) = (number(&arguments[0]), number(&arguments[1]), step)
        else {
            return Ok(None);
        };
        for (value, name) in [(next, "start value"), (last, "stop value"), (step, "step size")] {
            if !value.is_finite() {
                let what = if value.is_nan() { "NaN" } else { "infinity" };
                return Err(refused(&format!("{name} cannot be {what}")));
            }
        }
        if step.sign() == Some(0) {
            return Err(refused("step size cannot equal zero"));
        }
        Ok(Some(Box::new(NumericSeries { next, last, step })))
    }
}

struct NumericSeries {
    next: Numeric,
    last: Numeric,
    step: Numeric,
}

impl Set for NumericSeries {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        let is_upwards = self.step.sign() == Some(1);
        let is_before_end = |value: Numeric| if is_upwards { value <= self.last } else { value >= self.last };
        for _ in 0..most {
            if !is_before_end(self.next) {
                return Ok(false);
            }
            columns[0].push(Datum::Numeric(self.next));
            self.next = self.next.checked_add(self.step)?;
        }
        Ok(is_before_end(self.next))
    }
}

struct Moments {
    is_in_zone: bool,
}

impl SetKernel for Moments {
    fn can_fail(&self) -> bool {
        true
    }

    fn begin(&self, _: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let (Datum::Int64(next), Datum::Int64(last), Datum::Interval(step)) =
            (arguments[0], arguments[1], arguments[2])
        else {
            return Ok(None);
        };
        let direction = step.compare(&Interval::default());
        if direction.is_eq() {
            return Err(refused("step size cannot equal zero"));
        }
        let is_upwards = direction.is_gt();
        Ok(Some(Box::new(MomentSeries { next, last, step, is_upwards, is_in_zone: self.is_in_zone })))
    }
}

struct MomentSeries {
    next: i64,
    last: i64,
    step: Interval,
    is_upwards: bool,
    is_in_zone: bool,
}

impl Set for MomentSeries {
    fn next(&mut self, call: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        let is_before_end =
            |value: i64| if self.is_upwards { value <= self.last } else { value >= self.last };
        for _ in 0..most {
            if !is_before_end(self.next) {
                return Ok(false);
            }
            columns[0].push(Datum::Int64(self.next));
            self.next = match self.is_in_zone {
                true => shift_in_zone(self.next, &self.step, call.context.zone())?,
                false => shift(self.next, &self.step)?,
            };
        }
        Ok(is_before_end(self.next))
    }
}
