//! Images of values: bytes in which states of aggregates keep values, and which files of the running server hold. They are not stored
//! beyond it, so their form may change.
//!
//! ```text
//! 0                           NULL
//! 1 value                     fixed width, little-endian
//! 1 length u32, bytes         strings
//! 1 count u32, dimensions u8, (length u32, lower i32)…, elements…      arrays; dimensions are 0 if the array has no shape
//! 1 count u32, (type u32, modifier i32, collation u32, value)…         records
//! ```

use crate::builder::Builder;
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::lists::Shape;
use firn_base::array::Dimension;
use firn_base::numeric::Numeric;
use firn_base::sync::Arc;
use firn_base::value::uuid_to_words;
use firn_base::{Collation, Interval, Representation, Type, TypeId};

/// Appends the image of a value.
pub fn write(value: &Datum<'_>, out: &mut Vec<u8>) {
    if value.is_null() {
        return out.push(0);
    }
    out.push(1);
    let strings = |bytes: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    match value {
        Datum::Null => {}
        Datum::Boolean(value) => out.push(u8::from(*value)),
        Datum::Int16(value) => out.extend_from_slice(&value.to_le_bytes()),
        Datum::Int32(value) => out.extend_from_slice(&value.to_le_bytes()),
        Datum::Int64(value) => out.extend_from_slice(&value.to_le_bytes()),
        Datum::UInt32(value) => out.extend_from_slice(&value.to_le_bytes()),
        Datum::Float32(value) => out.extend_from_slice(&value.to_bits().to_le_bytes()),
        Datum::Float64(value) => out.extend_from_slice(&value.to_bits().to_le_bytes()),
        Datum::Numeric(value) => {
            let (unscaled, scale) = value.to_parts();
            out.extend_from_slice(&unscaled.to_le_bytes());
            out.extend_from_slice(&scale.to_le_bytes());
        }
        Datum::Interval(value) => {
            value.to_words().iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()))
        }
        Datum::Uuid(value) => {
            uuid_to_words(*value).iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()))
        }
        Datum::Text(value) => strings(value.as_bytes(), out),
        Datum::Bytes(value) => strings(value, out),
        Datum::List(list) => {
            out.extend_from_slice(&(list.len() as u32).to_le_bytes());
            let shape: &[Dimension] = list.shape().map_or(&[], |shape| shape);
            out.push(shape.len() as u8);
            for dimension in shape {
                out.extend_from_slice(&dimension.length.to_le_bytes());
                out.extend_from_slice(&dimension.lower.to_le_bytes());
            }
            list.iter().for_each(|element| write(&element, out));
        }
        Datum::Record(record) => {
            out.extend_from_slice(&(record.len() as u32).to_le_bytes());
            for number in 0..record.len() {
                let (ty, field) = record.get(number);
                out.extend_from_slice(&ty.id.0.to_le_bytes());
                out.extend_from_slice(&ty.modifier.to_le_bytes());
                out.extend_from_slice(&ty.collation.0.to_le_bytes());
                write(&field, out);
            }
        }
    }
}

/// Takes so many bytes from the front of an image. Panics if it has fewer.
pub fn take<const N: usize>(image: &mut &[u8]) -> [u8; N] {
    let (first, rest) = image.split_first_chunk().expect("an image is whole");
    *image = rest;
    *first
}

/// Takes bytes that stand behind their number.
pub fn take_bytes<'a>(image: &mut &'a [u8]) -> &'a [u8] {
    let length = u32::from_le_bytes(take(image)) as usize;
    let (bytes, rest) = image.split_at(length);
    *image = rest;
    bytes
}

/// Reads a value of a representation into a slot, and moves `image` behind it.
pub fn read(image: &mut &[u8], representation: Representation, out: &mut Slot) {
    let [is_value] = take(image);
    if is_value == 0 {
        return out.set(Datum::Null);
    }
    match representation {
        Representation::Boolean => out.set(Datum::Boolean(take::<1>(image)[0] != 0)),
        Representation::Int16 => out.set(Datum::Int16(i16::from_le_bytes(take(image)))),
        Representation::Int32 | Representation::Date => {
            out.set(Datum::Int32(i32::from_le_bytes(take(image))))
        }
        Representation::Int64
        | Representation::Time
        | Representation::Timestamp
        | Representation::TimestampTz => out.set(Datum::Int64(i64::from_le_bytes(take(image)))),
        Representation::Oid => out.set(Datum::UInt32(u32::from_le_bytes(take(image)))),
        Representation::Float32 => out.set(Datum::Float32(f32::from_bits(u32::from_le_bytes(take(image))))),
        Representation::Float64 => out.set(Datum::Float64(f64::from_bits(u64::from_le_bytes(take(image))))),
        Representation::Numeric | Representation::Decimal { .. } => {
            let unscaled = i128::from_le_bytes(take(image));
            out.set(Datum::Numeric(Numeric::from_parts(unscaled, u16::from_le_bytes(take(image)))));
        }
        Representation::Interval => {
            let words = [u64::from_le_bytes(take(image)), u64::from_le_bytes(take(image))];
            out.set(Datum::Interval(Interval::from_words(words)));
        }
        Representation::Uuid => out.set(Datum::Uuid(take(image))),
        Representation::Text | Representation::PaddedText => {
            let text = std::str::from_utf8(take_bytes(image)).expect("an image of text is UTF-8");
            out.set(Datum::Text(text));
        }
        Representation::Bytes => out.set(Datum::Bytes(take_bytes(image))),
        Representation::List(element) => {
            let count = u32::from_le_bytes(take(image));
            let [dimensions] = take(image);
            let shape: Vec<Dimension> = (0..dimensions)
                .map(|_| Dimension {
                    length: u32::from_le_bytes(take(image)),
                    lower: i32::from_le_bytes(take(image)),
                })
                .collect();
            let (mut elements, mut value) = (Builder::new(*element), Slot::new());
            for _ in 0..count {
                read(image, *element, &mut value);
                elements.push(value.get());
            }
            let shape: Option<Shape> = (!shape.is_empty()).then(|| shape.into());
            out.set_list(Arc::new(elements.finish()), shape);
        }
        Representation::Record => {
            let count = u32::from_le_bytes(take(image));
            let mut fields = Vec::new();
            for _ in 0..count {
                let ty = Type {
                    id: TypeId(u32::from_le_bytes(take(image))),
                    modifier: i32::from_le_bytes(take(image)),
                    collation: Collation(u32::from_le_bytes(take(image))),
                };
                let representation = ty.representation().expect("fields have values");
                let (mut builder, mut value) = (Builder::new(representation), Slot::new());
                read(image, representation, &mut value);
                builder.push(value.get());
                fields.push((ty, builder.finish()));
            }
            out.set_record(fields.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::{List, Record};
    use crate::order;

    #[test]
    fn values_read_as_they_were_written() {
        let mut builder = Builder::new(Representation::Text);
        [Datum::Text("a"), Datum::Null, Datum::Text("a longer text than twelve")]
            .into_iter()
            .for_each(|v| builder.push(v));
        let elements = builder.finish();
        let shape: Shape = [Dimension { length: 3, lower: 0 }].into();
        let fields = [
            (Type::new(TypeId::TEXT), elements.slice(2, 1)),
            (Type::new(TypeId::TEXT), elements.slice(1, 1)),
        ];
        let text = Representation::List(&Representation::Text);
        let cases = [
            (Datum::Null, Representation::Int32),
            (Datum::Int32(-7), Representation::Date),
            (Datum::Numeric(Numeric::NAN), Representation::Numeric),
            (
                Datum::Numeric(Numeric::new(150, 2).expect("it fits")),
                Representation::Decimal { precision: 3, scale: 2 },
            ),
            (Datum::Interval(Interval { months: -1, days: 2, nanoseconds: 3000 }), Representation::Interval),
            (Datum::Uuid([7; 16]), Representation::Uuid),
            (Datum::List(List::of(&elements)), text),
            (Datum::List(List::with_shape(&elements, Some(&shape))), text),
            (Datum::Record(Record::new(&fields, 0)), Representation::Record),
        ];
        let mut image = Vec::new();
        cases.iter().for_each(|(value, _)| write(value, &mut image));
        let (mut image, mut slot) = (image.as_slice(), Slot::new());
        for (value, representation) in &cases {
            read(&mut image, *representation, &mut slot);
            assert!(order::datums(value, &slot.get()).is_eq(), "{value:?} became {:?}", slot.get());
        }
        assert!(image.is_empty());
    }
}
