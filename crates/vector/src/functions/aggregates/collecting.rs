//! Aggregates that keep all values: `string_agg` and `array_agg`.

use crate::aggregate::Aggregate;
use crate::builder::Builder;
use crate::datum::Datum;
use crate::image::{self, take_bytes};
use crate::kernel::slot::Slot;
use crate::kernel::{Call, Signature};
use crate::lists::List;
use crate::registry::RegistryBuilder;
use firn_base::array::{Dimension, MAX_DIMENSIONS};
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState};

/// The most bytes of a string.
const MOST_BYTES: usize = (1 << 30) - 5;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.aggregate("string_agg(text,text)", Texts);
    builder.aggregate("string_agg(bytea,bytea)", Strings);
    builder.aggregate("array_agg(anynonarray)", Elements);
    builder.aggregate("array_agg(anyarray)", Arrays);
}

/// Strings one after another, each behind its separator. The first separator does not count, but is kept for when the state is put behind
/// another one.
#[derive(Default)]
struct Joined {
    bytes: Vec<u8>,
    first_separator: usize,
    is_empty: bool,
}

impl Joined {
    fn add(&mut self, value: &[u8], separator: &[u8]) -> Result<()> {
        if self.bytes.len() + value.len() + separator.len() > MOST_BYTES {
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "out of memory")
                .with_detail("A string has at most 1 GB."));
        }
        if self.is_empty {
            self.first_separator = separator.len();
            self.is_empty = false;
        }
        self.bytes.extend_from_slice(separator);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    fn merge(&mut self, other: Joined) -> Result<()> {
        if self.is_empty {
            *self = other;
        } else if !other.is_empty {
            self.add(&other.bytes, b"")?;
        }
        Ok(())
    }

    fn value(&self) -> Option<&[u8]> {
        (!self.is_empty).then(|| &self.bytes[self.first_separator..])
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_empty));
        out.extend_from_slice(&(self.first_separator as u32).to_le_bytes());
        out.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.bytes);
    }

    fn read(image: &mut &[u8]) -> Joined {
        let [is_empty] = image::take(image);
        let first_separator = u32::from_le_bytes(image::take(image)) as usize;
        Joined { bytes: take_bytes(image).to_vec(), first_separator, is_empty: is_empty != 0 }
    }
}

#[derive(Clone)]
struct Texts;

impl Aggregate for Texts {
    type Arguments = (&'static str, Option<&'static str>);
    type State = Joined;
    const KEEPS_ORDER: bool = true;

    fn accepts(result: Representation) -> bool {
        result == Representation::Text
    }
    fn start(&self, _: &Signature) -> Joined {
        Joined { is_empty: true, ..Joined::default() }
    }
    fn add(
        &self,
        _: &mut Call<'_>,
        state: &mut Joined,
        (value, separator): (&str, Option<&str>),
    ) -> Result<()> {
        state.add(value.as_bytes(), separator.unwrap_or("").as_bytes())
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut Joined, other: Joined) -> Result<()> {
        state.merge(other)
    }
    fn finish(&self, _: &mut Call<'_>, state: &Joined, out: &mut Builder) -> Result<()> {
        let text = state.value().map(|bytes| std::str::from_utf8(bytes).expect("it is made of texts"));
        out.push(text.map_or(Datum::Null, Datum::Text));
        Ok(())
    }
    fn memory(state: &Joined) -> usize {
        state.bytes.capacity()
    }
    fn write(&self, state: &Joined, out: &mut Vec<u8>) {
        state.write(out);
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> Joined {
        Joined::read(image)
    }
}

#[derive(Clone)]
struct Strings;

impl Aggregate for Strings {
    type Arguments = (&'static [u8], Option<&'static [u8]>);
    type State = Joined;
    const KEEPS_ORDER: bool = true;

    fn accepts(result: Representation) -> bool {
        result == Representation::Bytes
    }
    fn start(&self, _: &Signature) -> Joined {
        Joined { is_empty: true, ..Joined::default() }
    }
    fn add(
        &self,
        _: &mut Call<'_>,
        state: &mut Joined,
        (value, separator): (&[u8], Option<&[u8]>),
    ) -> Result<()> {
        state.add(value, separator.unwrap_or(b""))
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut Joined, other: Joined) -> Result<()> {
        state.merge(other)
    }
    fn finish(&self, _: &mut Call<'_>, state: &Joined, out: &mut Builder) -> Result<()> {
        out.push(state.value().map_or(Datum::Null, Datum::Bytes));
        Ok(())
    }
    fn memory(state: &Joined) -> usize {
        state.bytes.capacity()
    }
    fn write(&self, state: &Joined, out: &mut Vec<u8>) {
        state.write(out);
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> Joined {
        Joined::read(image)
    }
}

/// The images of some values, one behind another.
#[derive(Default)]
pub(super) struct Images {
    pub count: usize,
    pub bytes: Vec<u8>,
}

impl Images {
    pub fn push(&mut self, value: &Datum<'_>) {
        self.count += 1;
        image::write(value, &mut self.bytes);
    }

    pub fn append(&mut self, other: &Images) {
        self.count += other.count;
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// The values as a vector.
    pub fn vector(&self, representation: Representation) -> crate::Vector {
        let (mut builder, mut slot) = (Builder::new(representation), Slot::new());
        let mut bytes = self.bytes.as_slice();
        for _ in 0..self.count {
            image::read(&mut bytes, representation, &mut slot);
            builder.push(slot.get());
        }
        builder.finish()
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.count as u64).to_le_bytes());
        out.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.bytes);
    }

    pub fn read(image: &mut &[u8]) -> Images {
        let count = u64::from_le_bytes(image::take(image)) as usize;
        Images { count, bytes: take_bytes(image).to_vec() }
    }
}

#[derive(Clone)]
struct Elements;

impl Aggregate for Elements {
    type Arguments = (Option<Datum<'static>>,);
    type State = Images;
    const KEEPS_ORDER: bool = true;

    fn accepts(_: Representation) -> bool {
        true
    }
    fn start(&self, _: &Signature) -> Images {
        Images::default()
    }
    fn add(&self, _: &mut Call<'_>, state: &mut Images, (value,): (Option<Datum<'_>>,)) -> Result<()> {
        state.push(&value.unwrap_or(Datum::Null));
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut Images, other: Images) -> Result<()> {
        state.append(&other);
        Ok(())
    }
    fn finish(&self, call: &mut Call<'_>, state: &Images, out: &mut Builder) -> Result<()> {
        let Representation::List(element) = call.signature.representation else {
            panic!("the result is an array")
        };
        if state.count == 0 {
            out.push_null();
            return Ok(());
        }
        let mut slot = Slot::new();
        slot.set_list(Arc::new(state.vector(*element)), None);
        out.push(slot.get());
        Ok(())
    }
    fn memory(state: &Images) -> usize {
        state.bytes.capacity()
    }
    fn write(&self, state: &Images, out: &mut Vec<u8>) {
        state.write(out);
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> Images {
        Images::read(image)
    }
}

/// Arrays of the same dimensions as one with a dimension more.
#[derive(Clone)]
struct Arrays;

/// The elements of all arrays, and the dimensions of each.
#[derive(Default)]
struct Stacked {
    elements: Images,
    dimensions: Vec<Dimension>,
    count: u32,
}

#[cold]
fn cannot_accumulate(state: &str, what: &str) -> Error {
    Error::new(SqlState::new(state), format!("cannot accumulate {what}"))
}

impl Aggregate for Arrays {
    type Arguments = (Option<List<'static>>,);
    type State = Stacked;
    const KEEPS_ORDER: bool = true;

    fn accepts(_: Representation) -> bool {
        true
    }
    fn start(&self, _: &Signature) -> Stacked {
        Stacked::default()
    }
    fn add(&self, _: &mut Call<'_>, state: &mut Stacked, (list,): (Option<List<'_>>,)) -> Result<()> {
        let list = list.ok_or_else(|| cannot_accumulate("22004", "null arrays"))?;
        if list.is_empty() {
            return Err(cannot_accumulate("2202E", "empty arrays"));
        }
        let dimensions: Vec<Dimension> =
            (0..list.dimensions()).filter_map(|number| list.dimension(number)).collect();
        if dimensions.len() == MAX_DIMENSIONS {
            let message = format!(
                "number of array dimensions ({}) exceeds the maximum allowed ({MAX_DIMENSIONS})",
                MAX_DIMENSIONS + 1
            );
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        if state.count == 0 {
            state.dimensions = dimensions;
        } else if state.dimensions != dimensions {
            return Err(cannot_accumulate("2202E", "arrays of different dimensionality"));
        }
        state.count += 1;
        list.iter().for_each(|element| state.elements.push(&element));
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut Stacked, other: Stacked) -> Result<()> {
        if state.count == 0 {
            *state = other;
        } else if other.count > 0 {
            if state.dimensions != other.dimensions {
                return Err(cannot_accumulate("2202E", "arrays of different dimensionality"));
            }
            state.count += other.count;
            state.elements.append(&other.elements);
        }
        Ok(())
    }
    fn finish(&self, call: &mut Call<'_>, state: &Stacked, out: &mut Builder) -> Result<()> {
        let Representation::List(element) = call.signature.representation else {
            panic!("the result is an array")
        };
        if state.count == 0 {
            out.push_null();
            return Ok(());
        }
        let first = Dimension { length: state.count, lower: 1 };
        let shape = std::iter::once(first).chain(state.dimensions.iter().copied()).collect();
        let mut slot = Slot::new();
        slot.set_list(Arc::new(state.elements.vector(*element)), Some(shape));
        out.push(slot.get());
        Ok(())
    }
    fn memory(state: &Stacked) -> usize {
        state.elements.bytes.capacity()
    }
    fn write(&self, state: &Stacked, out: &mut Vec<u8>) {
        out.extend_from_slice(&state.count.to_le_bytes());
        out.push(state.dimensions.len() as u8);
        for dimension in &state.dimensions {
            out.extend_from_slice(&dimension.length.to_le_bytes());
            out.extend_from_slice(&dimension.lower.to_le_bytes());
        }
        state.elements.write(out);
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> Stacked {
        let count = u32::from_le_bytes(image::take(image));
        let [number] = image::take(image);
        let dimensions = (0..number).map(|_| Dimension {
            length: u32::from_le_bytes(image::take(image)),
            lower: i32::from_le_bytes(image::take(image)),
        });
        let dimensions = dimensions.collect();
        Stacked { elements: Images::read(image), dimensions, count }
    }
}
