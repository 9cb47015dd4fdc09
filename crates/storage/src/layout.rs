//! The layout of a block: which byte of it holds what. Computed once per table version.
//!
//! ```text
//! | present bitmap | column 0 | validity 0 | column 1 | validity 1 | … |
//! ```
//! Every part starts on a 64-byte boundary, as Arrow prefers. `present` says whether the newest
//! version of a slot is a row; Arrow readers never see it. A column that is not nullable has no
//! validity bitmap. Invariant: `slots` is a multiple of [`RANGE_SLOTS`].

use crate::column::ColumnSpec;
use firn_base::ids::SLOT_BITS;
use firn_base::types::Width;
use firn_base::{ColumnId, Representation};

/// Slots that share one versioned-positions entry (1,024 as in Mühlbauer, "On Scalable and Flexible
/// Transaction and Query Processing in Main-Memory Database Systems", TU München 2016, section 2.2.6). Blocks
/// of models are smaller.
pub(crate) const RANGE_SLOTS: u32 = if cfg!(feature = "models") { 64 } else { 1024 };

/// Every part of a block begins at a multiple of this.
pub(crate) const PART_ALIGN: usize = 64;

const _: () = assert!(RANGE_SLOTS.is_multiple_of(64), "a range is whole words of every bitmap");

/// The unit in which values of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub enum Unit {
    Bit,
    Two,
    Four,
    Eight,
    /// Two words of 8 bytes.
    Pair,
    /// As [`Unit::Pair`]: a string's view.
    View,
}

impl Unit {
    fn of(width: Width) -> Unit {
        match width {
            Width::Bit => Unit::Bit,
            Width::Fixed(2) => Unit::Two,
            Width::Fixed(4) => Unit::Four,
            Width::Fixed(8) => Unit::Eight,
            Width::Fixed(bytes) => {
                assert_eq!(bytes, 16, "fixed widths are 2, 4, 8 and 16");
                Unit::Pair
            }
            Width::View => Unit::View,
        }
    }

    /// The logarithm to base 2 of the bits of a value.
    #[inline]
    fn log_bits(self) -> u32 {
        /// A hexadecimal digit for every unit, the first one lowest.
        const DIGITS: u32 = 0x77_6540;
        DIGITS >> (4 * self as u32) & 0xf
    }

    /// Bits of a value.
    #[inline]
    pub fn bits(self) -> usize {
        1 << self.log_bits()
    }

    #[inline]
    fn from_number(number: u64) -> Unit {
        match number {
            0 => Unit::Bit,
            1 => Unit::Two,
            2 => Unit::Four,
            3 => Unit::Eight,
            4 => Unit::Pair,
            _ => Unit::View,
        }
    }
}

/// Where one column lies, in one word, since every access to a value looks it up:
///
/// ```text
/// | values 26, log of the bits 3, unit 3 | validity 32 |      byte offsets, both multiples of 64
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnLayout(u64);

const UNIT_MASK: u64 = 7;
const LOG_SHIFT: u32 = 3;

impl ColumnLayout {
    /// `validity` is 0, the offset of the present bits, if there is no such bitmap.
    fn new(values: usize, validity: usize, unit: Unit) -> ColumnLayout {
        const _: () = assert!(PART_ALIGN == 64 && UNIT_MASK > Unit::View as u64);
        let offset = |bytes: usize| u64::from(u32::try_from(bytes).expect("a block is smaller than 4 GiB"));
        let unit = u64::from(unit.log_bits()) << LOG_SHIFT | unit as u64;
        ColumnLayout(offset(validity) << 32 | offset(values) | unit)
    }

    /// Byte offset of the values.
    #[inline]
    pub fn values(self) -> usize {
        self.0 as u32 as usize & !(PART_ALIGN - 1)
    }

    /// Byte offset of the validity bitmap (1 = not NULL) of a nullable column.
    #[inline]
    pub fn validity(self) -> Option<usize> {
        let validity = (self.0 >> 32) as usize;
        (validity != 0).then_some(validity)
    }

    /// The unit of its values.
    #[inline]
    pub fn unit(self) -> Unit {
        Unit::from_number(self.0 & UNIT_MASK)
    }

    /// Byte offset of the value of a slot, or of the byte with its bit.
    #[inline]
    pub fn value_at(self, slot: usize) -> usize {
        self.values() + (slot << (self.0 >> LOG_SHIFT & UNIT_MASK) >> 3)
    }
}

/// Where the parts of a block are.
#[derive(Debug, PartialEq)]
pub(crate) struct Layout {
    pub columns: Box<[ColumnLayout]>,
    pub types: Box<[Representation]>,
    pub slots: u32,
    pub bytes: usize,
}

impl Layout {
    /// The layout with as many slots as fit into about `block_bytes`, but at least one range.
    pub fn new(columns: &[ColumnSpec], block_bytes: usize) -> Layout {
        let row_bits: usize = 1 + columns
            .iter()
            .map(|column| Unit::of(column.representation.width()).bits() + usize::from(column.nullable))
            .sum::<usize>();
        let fitting = block_bytes * 8 / row_bits;
        let most = (1 << SLOT_BITS) - RANGE_SLOTS as usize;
        let ranges = (fitting.min(most) / RANGE_SLOTS as usize).max(1);
        let slots = ranges * RANGE_SLOTS as usize;

        let mut bytes = part_bytes(slots);
        let types = columns.iter().map(|column| column.representation).collect();
        let columns = columns
            .iter()
            .map(|column| {
                let unit = Unit::of(column.representation.width());
                let values = bytes;
                bytes += part_bytes(slots * unit.bits());
                let validity = if column.nullable { bytes } else { 0 };
                if column.nullable {
                    bytes += part_bytes(slots);
                }
                ColumnLayout::new(values, validity, unit)
            })
            .collect();
        Layout { columns, types, slots: slots as u32, bytes }
    }

    /// Where `column` is.
    #[inline]
    pub fn column(&self, column: ColumnId) -> ColumnLayout {
        self.columns[column.index()]
    }
}

fn part_bytes(bits: usize) -> usize {
    bits.div_ceil(8).next_multiple_of(PART_ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_says_what_it_was_made_of() {
        for (unit, bits) in [
            (Unit::Bit, 1),
            (Unit::Two, 16),
            (Unit::Four, 32),
            (Unit::Eight, 64),
            (Unit::Pair, 128),
            (Unit::View, 128),
        ] {
            let column = ColumnLayout::new(7 * PART_ALIGN, 9 * PART_ALIGN, unit);
            assert_eq!((column.unit(), unit.bits()), (unit, bits));
            assert_eq!((column.values(), column.validity()), (7 * PART_ALIGN, Some(9 * PART_ALIGN)));
            assert_eq!(column.value_at(12), 7 * PART_ALIGN + 12 * bits / 8);
            assert_eq!(ColumnLayout::new(PART_ALIGN, 0, unit).validity(), None);
        }
    }

    #[test]
    fn parts_are_aligned_apart_and_within_the_block() {
        let columns = [
            ColumnSpec { representation: Representation::Boolean, nullable: true },
            ColumnSpec { representation: Representation::Int16, nullable: false },
            ColumnSpec { representation: Representation::Text, nullable: true },
            ColumnSpec { representation: Representation::Uuid, nullable: false },
        ];
        for block_bytes in [0, 1 << 16, 1 << 20] {
            let layout = Layout::new(&columns, block_bytes);
            assert_eq!(layout.slots % RANGE_SLOTS, 0);
            let slots = layout.slots as usize;
            let mut end = slots / 8;
            for column in &layout.columns {
                assert_eq!(column.values() % PART_ALIGN, 0);
                assert!(column.values() >= end);
                end = column.values() + slots * column.unit().bits() / 8;
                if let Some(validity) = column.validity() {
                    assert!(validity >= end && validity % PART_ALIGN == 0);
                    end = validity + slots / 8;
                }
            }
            assert!(end <= layout.bytes);
            assert!(block_bytes < 1 << 20 || layout.bytes <= block_bytes + 16 * PART_ALIGN);
        }
    }

    #[test]
    fn a_narrow_table_never_needs_more_slots_than_a_row_id_can_name() {
        let layout =
            Layout::new(&[ColumnSpec { representation: Representation::Boolean, nullable: false }], 1 << 20);
        assert!(layout.slots <= (1 << SLOT_BITS) - RANGE_SLOTS);
    }
}
