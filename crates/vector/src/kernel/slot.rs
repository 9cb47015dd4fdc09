//! Slots: places that own one value, with buffers that are used again. The registers of short programs are slots.

use crate::datum::Datum;
use crate::kernel::Call;
use crate::lists::{List, Record, Shape};
use crate::vector::Vector;
use firn_base::Type;
use firn_base::sync::Arc;

/// A place for one value. Writing strings to it again and again allocates only as long as they get longer.
#[derive(Debug, Default)]
pub struct Slot {
    content: Content,
    pub(crate) text: String,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
enum Content {
    /// Values that own no memory.
    Fixed(Datum<'static>),
    /// What stands in `text`.
    Text,
    /// What stands in `bytes`.
    Bytes,
    List(Arc<Vector>, Option<Shape>),
    Record(Arc<[(Type, Vector)]>),
}

impl Default for Content {
    fn default() -> Content {
        Content::Fixed(Datum::Null)
    }
}

impl Slot {
    /// A slot that holds NULL.
    pub fn new() -> Slot {
        Slot::default()
    }

    /// What it holds.
    #[inline]
    pub fn get(&self) -> Datum<'_> {
        match &self.content {
            Content::Fixed(value) => *value,
            Content::Text => Datum::Text(&self.text),
            Content::Bytes => Datum::Bytes(&self.bytes),
            Content::List(elements, shape) => Datum::List(List::with_shape(elements, shape.as_ref())),
            Content::Record(fields) => Datum::Record(Record::new(fields, 0)),
        }
    }

    /// Whether it holds NULL.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self.content, Content::Fixed(Datum::Null))
    }

    /// Makes it hold a copy of a value.
    pub fn set(&mut self, value: Datum<'_>) {
        self.content = match value {
            Datum::Null => Content::Fixed(Datum::Null),
            Datum::Boolean(value) => Content::Fixed(Datum::Boolean(value)),
            Datum::Int16(value) => Content::Fixed(Datum::Int16(value)),
            Datum::Int32(value) => Content::Fixed(Datum::Int32(value)),
            Datum::Int64(value) => Content::Fixed(Datum::Int64(value)),
            Datum::UInt32(value) => Content::Fixed(Datum::UInt32(value)),
            Datum::Float32(value) => Content::Fixed(Datum::Float32(value)),
            Datum::Float64(value) => Content::Fixed(Datum::Float64(value)),
            Datum::Numeric(value) => Content::Fixed(Datum::Numeric(value)),
            Datum::Interval(value) => Content::Fixed(Datum::Interval(value)),
            Datum::Uuid(value) => Content::Fixed(Datum::Uuid(value)),
            Datum::Text(value) => {
                self.text.clear();
                self.text.push_str(value);
                Content::Text
            }
            Datum::Bytes(value) => {
                self.bytes.clear();
                self.bytes.extend_from_slice(value);
                Content::Bytes
            }
            Datum::List(list) => Content::List(Arc::new(list.elements()), list.shape().cloned()),
            Datum::Record(record) => Content::Record(record.fields()),
        };
    }

    /// Lends its buffers to a call, emptied.
    pub(crate) fn lend(&mut self, call: &mut Call<'_>) {
        self.text.clear();
        self.bytes.clear();
        self.take_back(call);
    }

    /// Takes back the buffers that it has lent.
    pub(crate) fn take_back(&mut self, call: &mut Call<'_>) {
        std::mem::swap(&mut call.text, &mut self.text);
        std::mem::swap(&mut call.bytes, &mut self.bytes);
    }

    /// Makes it hold a value that owns no memory.
    #[inline]
    pub(crate) fn set_fixed(&mut self, value: Datum<'static>) {
        self.content = Content::Fixed(value);
    }

    /// Makes it hold the text that has been written to its buffer.
    #[inline]
    pub(crate) fn set_text(&mut self) {
        self.content = Content::Text;
    }

    /// Makes it hold the bytes that have been written to its buffer.
    #[inline]
    pub(crate) fn set_bytes(&mut self) {
        self.content = Content::Bytes;
    }

    /// About how many bytes of memory it has allocated.
    pub fn memory(&self) -> usize {
        let content = match &self.content {
            Content::List(elements, _) => elements.memory(),
            Content::Record(fields) => fields.iter().map(|(_, field)| field.memory()).sum(),
            _ => 0,
        };
        self.text.capacity() + self.bytes.capacity() + content
    }

    /// Makes it hold an array of these elements.
    pub fn set_list(&mut self, elements: Arc<Vector>, shape: Option<Shape>) {
        self.content = Content::List(elements, shape);
    }

    /// Makes it hold a record of these fields, each in a vector of one row.
    pub fn set_record(&mut self, fields: Arc<[(Type, Vector)]>) {
        self.content = Content::Record(fields);
    }
}

impl Clone for Slot {
    fn clone(&self) -> Slot {
        let mut copy = Slot::new();
        copy.set(self.get());
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_keeps_what_it_was_given() {
        let mut slot = Slot::new();
        assert!(slot.get().is_null());
        slot.set(Datum::Text("ä"));
        assert!(matches!(slot.get(), Datum::Text("ä")));
        assert!(matches!(slot.clone().get(), Datum::Text("ä")));
        slot.set(Datum::Int32(7));
        assert!(matches!(slot.get(), Datum::Int32(7)));
    }
}
