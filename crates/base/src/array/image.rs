//! The image of an array: its bytes in blocks, the log and checkpoints, where they are the bytes of a view.
//!
//! ```text
//! 0   dimensions: u8   0 to 6
//! 1   flags: u8        1: the lower bounds follow; 2: a bitmap of the elements that are not NULL follows
//! 2   length: u32      for each dimension
//!     lower: i32       for each dimension, if flagged; otherwise each is 1
//!     bitmap           if flagged: a bit for each element, the first the lowest of its byte, set if it is not NULL
//!     elements         booleans: a bit for each;
//!                      fixed width: the bytes of each;
//!                      others: end: u32 for each, where its bytes end, then the bytes of all
//! ```
//!
//! Everything is little-endian. Elements have the layout of their [`Representation`]; those of numerics are
//! images themselves. Elements that are NULL have zeros, or no bytes; bits after the last element are zero.
//! An image is canonical: two are equal exactly if dimensions, bounds and the bits of all elements are. An
//! array of one dimension is fast to convert to an Arrow list, because its elements are adjacent.

use super::{ArrayValue, Dimension, MAX_DIMENSIONS, are_in_bounds, count};
use crate::representation::Representation;
use crate::types::Width;
use crate::value::{Cell, Value};

const HEADER: usize = 2;
const HAS_BOUNDS: u8 = 1;
const HAS_NULLS: u8 = 2;

impl ArrayValue {
    /// Appends the image of an array whose elements have the representation `element`. Panics if they have another.
    pub fn write_image(&self, element: Representation, out: &mut Vec<u8>) {
        let has_bounds = self.dimensions.iter().any(|dimension| dimension.lower != 1);
        let has_nulls = self.elements.iter().any(Value::is_null);
        out.push(self.dimensions.len() as u8);
        out.push(if has_bounds { HAS_BOUNDS } else { 0 } | if has_nulls { HAS_NULLS } else { 0 });
        for dimension in &self.dimensions {
            out.extend(dimension.length.to_le_bytes());
        }
        if has_bounds {
            for dimension in &self.dimensions {
                out.extend(dimension.lower.to_le_bytes());
            }
        }
        if has_nulls {
            write_bits(self.elements.iter().map(|value| !value.is_null()), out);
        }
        match element.width() {
            Width::Bit => write_bits(self.elements.iter().map(|value| *value == Value::Boolean(true)), out),
            Width::Fixed(width) => {
                for value in &self.elements {
                    match value.stored(element).cell() {
                        Cell::Null => out.extend(std::iter::repeat_n(0, width.into())),
                        Cell::Wide([low, high]) => {
                            out.extend(low.to_le_bytes());
                            out.extend(high.to_le_bytes());
                        }
                        cell => out.extend(&cell.word().to_le_bytes()[..width.into()]),
                    }
                }
            }
            Width::View => {
                let ends = out.len();
                out.extend(std::iter::repeat_n(0, self.elements.len() * 4));
                let start = out.len();
                for (position, value) in self.elements.iter().enumerate() {
                    if !value.is_null() {
                        out.extend(value.stored(element).cell().bytes());
                    }
                    let end = u32::try_from(out.len() - start).expect("values are smaller than 4 GiB");
                    out[ends + position * 4..][..4].copy_from_slice(&end.to_le_bytes());
                }
            }
        }
    }

    /// The image of an array whose elements have the representation `element`. Panics if they have another.
    pub fn image(&self, element: Representation) -> Vec<u8> {
        let mut image = Vec::new();
        self.write_image(element, &mut image);
        image
    }
}

fn write_bits(bits: impl ExactSizeIterator<Item = bool>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend(std::iter::repeat_n(0, bits.len().div_ceil(8)));
    for (position, bit) in bits.enumerate() {
        out[start + position / 8] |= u8::from(bit) << (position % 8);
    }
}

/// An image, split into its parts but not yet decoded.
#[derive(Clone, Copy)]
pub struct ArrayImage<'a> {
    element: Representation,
    dimensions: u8,
    lengths: &'a [u8],
    bounds: Option<&'a [u8]>,
    count: usize,
    validity: Option<&'a [u8]>,
    /// The elements, or the end of each.
    fixed: &'a [u8],
    /// The bytes of elements without a fixed width.
    bytes: &'a [u8],
}

impl<'a> ArrayImage<'a> {
    /// Splits the image of an array with such elements into its parts; `None` for bytes that are not an
    /// image.
    pub fn new(image: &'a [u8], element: Representation) -> Option<ArrayImage<'a>> {
        let mut rest = image;
        let mut take = |length: usize| {
            let (taken, others) = rest.split_at_checked(length)?;
            rest = others;
            Some(taken)
        };
        let &[dimensions, flags] = take(HEADER)? else { return None };
        if usize::from(dimensions) > MAX_DIMENSIONS || flags > HAS_BOUNDS | HAS_NULLS {
            return None;
        }
        let lengths = take(usize::from(dimensions) * 4)?;
        let bounds = match flags & HAS_BOUNDS {
            0 => None,
            _ => Some(take(usize::from(dimensions) * 4)?),
        };
        let mut found = ArrayImage {
            element,
            dimensions,
            lengths,
            bounds,
            count: 0,
            validity: None,
            fixed: &[],
            bytes: &[],
        };
        let all: Vec<Dimension> = found.dimensions().collect();
        if all.iter().any(|dimension| dimension.length == 0) || !are_in_bounds(&all) {
            return None;
        }
        found.count = count(&all)?;
        if flags & HAS_NULLS != 0 {
            found.validity = Some(take(found.count.div_ceil(8))?);
        }
        found.fixed = take(match element.width() {
            Width::Bit => found.count.div_ceil(8),
            Width::Fixed(width) => found.count.checked_mul(width.into())?,
            Width::View => found.count.checked_mul(4)?,
        })?;
        found.bytes = rest;
        match element.width() {
            Width::View => {
                let mut ends = (0..found.count).map(|position| found.end(position));
                (ends.clone().is_sorted() && ends.next_back().unwrap_or(0) == found.bytes.len())
                    .then_some(found)
            }
            _ => found.bytes.is_empty().then_some(found),
        }
    }

    /// Length and lower bound of each dimension.
    pub fn dimensions(self) -> impl DoubleEndedIterator<Item = Dimension> + ExactSizeIterator + 'a {
        let word = |bytes: &[u8], position: usize| {
            <[u8; 4]>::try_from(&bytes[position * 4..][..4]).expect("each has 4 bytes")
        };
        (0..usize::from(self.dimensions)).map(move |position| Dimension {
            length: u32::from_le_bytes(word(self.lengths, position)),
            lower: self.bounds.map_or(1, |bounds| i32::from_le_bytes(word(bounds, position))),
        })
    }

    /// The number of elements.
    pub fn len(self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// The bits of elements that are not NULL, the first the lowest; `None` if none is NULL.
    pub fn validity(self) -> Option<&'a [u8]> {
        self.validity
    }

    /// The bytes of all elements of a fixed width, or the bits of booleans; for others the end of each.
    pub fn fixed(self) -> &'a [u8] {
        self.fixed
    }

    /// Whether an element is NULL.
    #[inline]
    pub fn is_null(self, position: usize) -> bool {
        self.validity.is_some_and(|bits| bits[position / 8] >> (position % 8) & 1 == 0)
    }

    fn end(&self, position: usize) -> usize {
        let end = self.fixed[position * 4..][..4].try_into().expect("4 bytes");
        u32::from_le_bytes(end) as usize
    }

    /// An element as a cell.
    #[inline]
    pub fn cell(&self, position: usize) -> Cell<'a> {
        assert!(position < self.count);
        if self.is_null(position) {
            return Cell::Null;
        }
        match self.element.width() {
            Width::Bit => Cell::boolean(self.fixed[position / 8] >> (position % 8) & 1 == 1),
            Width::Fixed(16) => {
                let bytes = &self.fixed[position * 16..][..16];
                let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
                Cell::Wide([word(0), word(8)])
            }
            Width::Fixed(width) => {
                let width = usize::from(width);
                let mut word = [0; 8];
                word[..width].copy_from_slice(&self.fixed[position * width..][..width]);
                Cell::Word(u64::from_le_bytes(word))
            }
            Width::View => {
                let start = if position == 0 { 0 } else { self.end(position - 1) };
                Cell::Bytes(&self.bytes[start..self.end(position)])
            }
        }
    }

    /// The array.
    pub fn to_value(self) -> ArrayValue {
        let elements = (0..self.count).map(|position| self.cell(position).to_value(self.element));
        ArrayValue { dimensions: self.dimensions().collect(), elements: elements.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::parse_any;
    use crate::data_type::{Type, TypeId};
    use crate::text_style::TextStyle;

    fn image(text: &str, id: TypeId) -> (Vec<u8>, ArrayValue, Representation) {
        let ty = Type::new(id);
        let array = parse_any(text, ty, &TextStyle::DEFAULT).expect("the text is an array");
        let element = ty.representation().expect("columns of this type exist");
        (array.image(element), array, element)
    }

    /// The bytes as drawn at the beginning of this file.
    #[test]
    fn an_image_has_the_bytes_that_are_drawn() {
        for (text, id, bytes) in [
            ("{}", TypeId::INT4, &[0, 0][..]),
            ("{258}", TypeId::INT4, &[1, 0, 1, 0, 0, 0, 2, 1, 0, 0]),
            ("[0:1]={1,NULL}", TypeId::INT2, &[1, 3, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0]),
            ("{t,f,t}", TypeId::BOOL, &[1, 0, 3, 0, 0, 0, 5]),
            (
                "{{a},{bc}}",
                TypeId::TEXT,
                &[2, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, b'a', b'b', b'c'],
            ),
            ("{1.0,NULL}", TypeId::NUMERIC, &[1, 2, 2, 0, 0, 0, 1, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 10]),
        ] {
            let (found, array, element) = image(text, id);
            assert_eq!(found, bytes, "{text}");
            assert_eq!(
                ArrayImage::new(&found, element).expect("the bytes are an image").to_value(),
                array,
                "{text}"
            );
        }
    }

    #[test]
    fn arrays_of_every_representation_come_back_from_their_images() {
        for (id, text) in [
            (TypeId::BOOL, "{t,NULL,f,t,t,f,t,t,f,t}"),
            (TypeId::INT8, "{{1,-1},{9223372036854775807,NULL}}"),
            (TypeId::OID, "{4294967295,0}"),
            (TypeId::FLOAT4, "{1.5,NaN,-Infinity}"),
            (TypeId::FLOAT8, "{1e300}"),
            (TypeId::NUMERIC, "{1.00,NaN,-99999999999999999999999999999999999999}"),
            (TypeId::TEXT, "{\"\",NULL,a long string that does not fit a view}"),
            (TypeId::BPCHAR, "{\"a  \"}"),
            (TypeId::BYTEA, "{\"\\\\x00ff\"}"),
            (TypeId::DATE, "{2000-01-01,NULL}"),
            (TypeId::TIME, "{12:00:00}"),
            (TypeId::TIMESTAMP, "{2000-01-01 01:02:03.4}"),
            (TypeId::TIMESTAMPTZ, "{2000-01-01 01:02:03.4+00}"),
            (TypeId::INTERVAL, "{1 mon 2 days 00:00:01,NULL}"),
            (TypeId::UUID, "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}"),
        ] {
            let (found, array, element) = image(text, id);
            let back = ArrayImage::new(&found, element).expect("the bytes are an image").to_value();
            assert_eq!(format!("{back:?}"), format!("{array:?}"), "{text}");
        }
    }

    /// Truncates images everywhere, and changes each byte; bytes that are still accepted as an image can be
    /// decoded.
    #[test]
    fn bytes_that_are_no_image_are_refused_or_harmless() {
        for (text, id) in
            [("[0:1]={1,NULL}", TypeId::INT2), ("{{a,b},{cd,NULL}}", TypeId::TEXT), ("{t,f}", TypeId::BOOL)]
        {
            let (good, _, element) = image(text, id);
            for cut in 0..good.len() {
                assert!(ArrayImage::new(&good[..cut], element).is_none(), "{text} cut at {cut}");
            }
            for place in 0..good.len() {
                for byte in [0, 1, 0x7f, 0xff] {
                    let mut bad = good.clone();
                    bad[place] = byte;
                    // Bytes of strings are trusted to be UTF-8, as in all columns of strings.
                    if element == Representation::Text && byte > 0x7f {
                        continue;
                    }
                    if let Some(image) = ArrayImage::new(&bad, element) {
                        assert_eq!(image.to_value().elements().len(), image.len());
                    }
                }
            }
        }
    }
}
