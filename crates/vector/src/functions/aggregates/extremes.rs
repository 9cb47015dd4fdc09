//! `min` and `max`.

use crate::aggregate::Aggregate;
use crate::builder::Builder;
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::kernel::{Call, Signature};
use crate::registry::RegistryBuilder;
use crate::{image, order};
use firn_base::{Representation, Result};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    for (name, is_largest) in [("min", false), ("max", true)] {
        let types = "int2 int4 int8 oid float4 float8 date time timestamp timestamptz interval text bpchar numeric anyarray";
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
