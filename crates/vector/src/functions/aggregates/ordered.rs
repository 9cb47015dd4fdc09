//! Ordered-set aggregates: percentiles and the most frequent value. Their rows arrive in order.

use super::collecting::Images;
use crate::aggregate::Aggregate;
use crate::builder::Builder;
use crate::datum::Datum;
use crate::image;
use crate::kernel::slot::Slot;
use crate::kernel::{Call, Signature};
use crate::order;
use crate::registry::RegistryBuilder;
use firn_base::sync::Arc;
use firn_base::{Error, Interval, Representation, Result, SqlState};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.aggregate("mode(anyelement)", Mode);
    for is_continuous in [false, true] {
        let signatures = match is_continuous {
            false => "percentile_disc(float8,anyelement) percentile_disc(_float8,anyelement)",
            true => {
                "percentile_cont(float8,float8) percentile_cont(float8,interval) \
                 percentile_cont(_float8,float8) percentile_cont(_float8,interval)"
            }
        };
        builder.aggregate(signatures, Percentile { is_continuous });
    }
}

/// Of the values that occur most often, the first.
#[derive(Clone)]
struct Mode;

#[derive(Default)]
struct Runs {
    best: Slot,
    most: u64,
    last: Slot,
    count: u64,
}

impl Aggregate for Mode {
    type Arguments = (Datum<'static>,);
    type State = Runs;

    fn accepts(_: Representation) -> bool {
        true
    }
    fn start(&self, _: &Signature) -> Runs {
        Runs::default()
    }
    fn add(&self, call: &mut Call<'_>, state: &mut Runs, (value,): (Datum<'_>,)) -> Result<()> {
        let representation = call.signature.representation;
        if state.count > 0 && order::of(&state.last.get(), &value, representation).is_eq() {
            state.count += 1;
        } else {
            state.last.set(value);
            state.count = 1;
        }
        if state.count > state.most {
            state.most = state.count;
            if state.count == 1 || order::of(&state.best.get(), &value, representation).is_ne() {
                state.best.set(value);
            }
        }
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, _: &mut Runs, _: Runs) -> Result<()> {
        panic!("rows that arrive in order arrive at one state")
    }
    fn finish(&self, _: &mut Call<'_>, state: &Runs, out: &mut Builder) -> Result<()> {
        out.push(state.best.get());
        Ok(())
    }
    fn memory(state: &Runs) -> usize {
        state.best.memory() + state.last.memory()
    }
    fn write(&self, state: &Runs, out: &mut Vec<u8>) {
        out.extend_from_slice(&state.most.to_le_bytes());
        out.extend_from_slice(&state.count.to_le_bytes());
        image::write(&state.best.get(), out);
        image::write(&state.last.get(), out);
    }
    fn read(&self, signature: &Signature, bytes: &mut &[u8]) -> Runs {
        let most = u64::from_le_bytes(image::take(bytes));
        let count = u64::from_le_bytes(image::take(bytes));
        let (mut best, mut last) = (Slot::new(), Slot::new());
        image::read(bytes, signature.representation, &mut best);
        image::read(bytes, signature.representation, &mut last);
        Runs { best, most, last, count }
    }
}

/// The value, or the place between two values, at a fraction of the rows.
#[derive(Clone)]
struct Percentile {
    is_continuous: bool,
}

/// The fractions, and all values.
#[derive(Default)]
struct Values {
    fractions: Slot,
    values: Images,
}

impl Aggregate for Percentile {
    type Arguments = (Option<Datum<'static>>, Datum<'static>);
    type State = Values;

    fn accepts(_: Representation) -> bool {
        true
    }
    fn start(&self, _: &Signature) -> Values {
        Values::default()
    }
    fn add(
        &self,
        _: &mut Call<'_>,
        state: &mut Values,
        (fractions, value): (Option<Datum<'_>>, Datum<'_>),
    ) -> Result<()> {
        if state.values.count == 0 {
            state.fractions.set(fractions.unwrap_or(Datum::Null));
        }
        state.values.push(&value);
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, _: &mut Values, _: Values) -> Result<()> {
        panic!("rows that arrive in order arrive at one state")
    }
    fn finish(&self, call: &mut Call<'_>, state: &Values, out: &mut Builder) -> Result<()> {
        if state.values.count == 0 {
            out.push_null();
            return Ok(());
        }
        let values = state.values.vector(call.signature.representations[1]);
        match state.fractions.get() {
            Datum::Null => out.push_null(),
            Datum::List(list) => {
                let mut elements = Builder::new(values.representation());
                for fraction in list.iter() {
                    self.push(fraction, &values, &mut elements)?;
                }
                let mut slot = Slot::new();
                slot.set_list(Arc::new(elements.finish()), list.shape().cloned());
                out.push(slot.get());
            }
            fraction => self.push(fraction, &values, out)?,
        }
        Ok(())
    }
    fn memory(state: &Values) -> usize {
        state.fractions.memory() + state.values.bytes.capacity()
    }
    fn write(&self, state: &Values, out: &mut Vec<u8>) {
        image::write(&state.fractions.get(), out);
        state.values.write(out);
    }
    fn read(&self, signature: &Signature, bytes: &mut &[u8]) -> Values {
        let mut fractions = Slot::new();
        image::read(bytes, signature.representations[0], &mut fractions);
        Values { fractions, values: Images::read(bytes) }
    }
}

impl Percentile {
    fn push(&self, fraction: Datum<'_>, values: &crate::Vector, out: &mut Builder) -> Result<()> {
        let Datum::Float64(fraction) = fraction else {
            out.push_null();
            return Ok(());
        };
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("percentile value {fraction} is not between 0 and 1"),
            ));
        }
        let count = values.len();
        if !self.is_continuous {
            let place = ((fraction * count as f64).ceil() as usize).max(1) - 1;
            out.push(values.datum(place));
            return Ok(());
        }
        let place = fraction * (count - 1) as f64;
        let (before, behind) = (place.floor() as usize, place.ceil() as usize);
        let share = place - before as f64;
        out.push(match (values.datum(before), values.datum(behind)) {
            (value, _) if before == behind => value,
            (Datum::Float64(before), Datum::Float64(behind)) => {
                Datum::Float64(before + share * (behind - before))
            }
            (Datum::Interval(before), Datum::Interval(behind)) => {
                let difference: Interval = behind.checked_add(before.checked_neg()?)?;
                Datum::Interval(before.checked_add(difference.checked_mul(share)?)?)
            }
            other => panic!("{other:?} have nothing between them"),
        });
        Ok(())
    }
}
