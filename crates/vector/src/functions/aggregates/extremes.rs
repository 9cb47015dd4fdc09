//! `min` and `max`.

use crate::aggregate::{Aggregate, Groups};
use crate::builder::Builder;
use crate::data::Data;
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::kernel::{Call, Signature};
use crate::registry::RegistryBuilder;
use crate::selection::Rows;
use crate::vector::{Form, Vector};
use crate::{image, order};
use firn_base::numeric::Numeric;
use firn_base::{Representation, Result};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    for (name, is_largest) in [("min", false), ("max", true)] {
        let types = "int2 int4 int8 oid tid pg_lsn float4 float8 date time timestamp timestamptz interval text bpchar numeric \
                     anyarray";
        let signatures: Vec<String> = types.split(' ').map(|ty| format!("{name}({ty})")).collect();
        builder.aggregate(&signatures.join(" "), Extreme { is_largest });
    }
}

/// The smallest or the largest value.
#[derive(Clone)]
struct Extreme {
    is_largest: bool,
}

/// The value, and how it lies.
struct State(Slot, Representation);

impl Aggregate for Extreme {
    type Arguments = (Datum<'static>,);
    type State = State;

    fn accepts(_: Representation) -> bool {
        true
    }
    fn start(&self, signature: &Signature) -> State {
        State(Slot::new(), signature.representation)
    }
    fn add(
        &self,
        _: &mut Call<'_>,
        State(best, representation): &mut State,
        (value,): (Datum<'_>,),
    ) -> Result<()> {
        let is_better = match best.get() {
            Datum::Null => true,
            best => {
                let order = order::of(&value, &best, *representation);
                let order = if self.is_largest { order } else { order.reverse() };
                // Of values that are equal and not the same the last counts, but of padded texts the first.
                order.is_gt() || order.is_eq() && *representation != Representation::PaddedText
            }
        };
        if is_better {
            best.set(value);
        }
        Ok(())
    }
    fn add_batch(
        &self,
        states: &mut [State],
        groups: Groups<'_>,
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<bool> {
        let [argument] = arguments else { return Ok(false) };
        let Form::Flat(data) = argument.form() else { return Ok(false) };
        let lies = argument.representation();
        let decimal = |unscaled, scale| Datum::Numeric(Numeric::from_decimal(unscaled, scale));
        match (data, lies) {
            (Data::Int32(values), _) => {
                self.add_words(states, groups, argument, values, rows, Datum::Int32, |best| match best {
                    Datum::Int32(best) => Some(best),
                    _ => None,
                })
            }
            (Data::Int64(values), Representation::Decimal { scale, .. }) => {
                let digits = |best: Datum<'_>| i64::try_from(digits_at(best, scale)?).ok();
                let datum = |value: i64| decimal(value.into(), scale);
                self.add_words(states, groups, argument, values, rows, datum, digits)
            }
            (Data::Int128(values), Representation::Decimal { scale, .. }) => {
                let datum = |value| decimal(value, scale);
                self.add_words(states, groups, argument, values, rows, datum, |best| digits_at(best, scale))
            }
            (Data::Int64(values), _) => {
                self.add_words(states, groups, argument, values, rows, Datum::Int64, |best| match best {
                    Datum::Int64(best) => Some(best),
                    _ => None,
                })
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
    fn merge(&self, call: &mut Call<'_>, state: &mut State, other: State) -> Result<()> {
        match other.0.get() {
            Datum::Null => Ok(()),
            value => self.add(call, state, (value,)),
        }
    }
    fn finish(&self, _: &mut Call<'_>, State(best, _): &State, out: &mut Builder) -> Result<()> {
        out.push(best.get());
        Ok(())
    }
    fn memory(State(best, _): &State) -> usize {
        best.memory()
    }
    fn write(&self, State(best, _): &State, out: &mut Vec<u8>) {
        image::write(&best.get(), out);
    }
    fn read(&self, signature: &Signature, bytes: &mut &[u8]) -> State {
        let mut best = Slot::new();
        image::read(bytes, signature.representation, &mut best);
        State(best, signature.representation)
    }
}

impl Extreme {
    /// Adds integers, of which `datum` makes a value and which `word` reads from one that lies in the same way.
    #[allow(clippy::too_many_arguments)]
    fn add_words<T: Copy + Ord>(
        &self,
        states: &mut [State],
        groups: Groups<'_>,
        argument: &Vector,
        values: &[T],
        rows: Rows<'_>,
        datum: impl Fn(T) -> Datum<'static>,
        word: impl Fn(Datum<'_>) -> Option<T>,
    ) {
        let add = |State(best, representation): &mut State, value: T| {
            let old = best.get();
            let order = match word(old) {
                Some(old) => value.cmp(&old),
                None if old.is_null() => return best.set_fixed(datum(value)),
                None => order::of(&datum(value), &old, *representation),
            };
            let is_better = if self.is_largest { order.is_ge() } else { order.is_le() };
            if is_better {
                best.set_fixed(datum(value));
            }
        };
        groups
            .add_each(states, values, argument.validity(), rows, |state, value| {
                add(state, value);
                Ok(())
            })
            .expect("comparing does not fail");
    }
}

/// The digits of a number of this scale.
fn digits_at(value: Datum<'_>, scale: u8) -> Option<i128> {
    match value {
        Datum::Numeric(value) => {
            value.number().filter(|(_, own)| *own == u16::from(scale)).map(|(unscaled, _)| unscaled)
        }
        _ => None,
    }
}
