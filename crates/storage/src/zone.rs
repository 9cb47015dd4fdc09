//! Computing the [zones](Zone) of a block's columns.

use crate::block::Block;
use crate::index::{numeric_summary, ordered_double, ordered_real, summary, wide_summary};
use crate::layout::Unit;
use crate::zone_map::Zone;
use firn_base::sync::{AtomicU64, Ordering};
use firn_base::{Cell, ColumnId, Numeric, Representation};

impl Block {
    /// The zone of a column over the first `rows` rows, none of which is missing or being changed.
    pub(crate) fn zone(&self, column: ColumnId, rows: u32) -> Zone {
        let rows = rows as usize;
        let representation = self.layout.types[column.index()];
        let valid = self.validity(column);
        match (self.layout.column(column).unit(), representation) {
            // Conditions on intervals are evaluated by value and not by summary.
            (_, Representation::Interval) => Zone::ANY,
            (Unit::Bit, _) => {
                let bits = self.bits(column);
                extremes(valid, rows, |at| (bits[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1) << 56)
            }
            (Unit::Four, Representation::Float32) => {
                let values = &self.u32s(column)[..rows];
                let real = |at: usize| f32::from_bits(values[at].load(Ordering::Relaxed));
                extremes(valid, rows, |at| u64::from(ordered_real(real(at))) << 32)
            }
            (Unit::Eight, Representation::Float64) => {
                let values = &self.u64s(column)[..rows];
                let double = |at: usize| f64::from_bits(values[at].load(Ordering::Relaxed));
                extremes(valid, rows, |at| ordered_double(double(at)))
            }
            (Unit::Four, Representation::Oid) => {
                let values = &self.u32s(column)[..rows];
                extremes(valid, rows, |at| u64::from(values[at].load(Ordering::Relaxed)) << 32)
            }
            (Unit::Two, _) => {
                let values = &self.u16s(column)[..rows];
                extremes(valid, rows, |at| u64::from(values[at].load(Ordering::Relaxed) ^ 1 << 15) << 48)
            }
            (Unit::Four, _) => {
                let values = &self.u32s(column)[..rows];
                extremes(valid, rows, |at| u64::from(values[at].load(Ordering::Relaxed) ^ 1 << 31) << 32)
            }
            (Unit::Eight, _) => {
                let values = &self.u64s(column)[..rows];
                extremes(valid, rows, |at| values[at].load(Ordering::Relaxed) ^ 1 << 63)
            }
            (Unit::Pair, Representation::Decimal { .. }) => {
                let values = &self.pairs(column)[..2 * rows];
                let number = |at: usize| [2 * at, 2 * at + 1].map(|at| values[at].load(Ordering::Relaxed));
                extremes(valid, rows, |at| wide_summary(number(at)))
            }
            (Unit::Pair, _) => {
                let values = &self.pairs(column)[..2 * rows];
                // The bytes of a uuid are compared in memory order.
                extremes(valid, rows, |at| values[2 * at].load(Ordering::Relaxed).swap_bytes())
            }
            (Unit::View, Representation::Numeric) => self.numeric_zone(column, rows),
            // Arrays and records have no zone: conditions on them are rare.
            (Unit::View, representation) if representation.is_image() => Zone::ANY,
            (Unit::View, _) => self.string_zone(column, representation, rows),
        }
    }

    /// The images of numerics have no order of their own, so each value is read.
    fn numeric_zone(&self, column: ColumnId, rows: usize) -> Zone {
        let views = &self.pairs(column)[..2 * rows];
        extremes(self.validity(column), rows, |at| {
            let view = [&views[2 * at], &views[2 * at + 1]].map(|word| word.load(Ordering::Relaxed));
            let length = crate::heap::view_len(view);
            let value = if length <= crate::heap::INLINE_BYTES {
                let inline = (u128::from(view[1]) << 64 | u128::from(view[0])).to_le_bytes();
                Numeric::from_image(&inline[4..4 + length])
            } else {
                Numeric::from_image(self.heap().bytes(view))
            };
            numeric_summary(value.expect("the column holds images of numerics"))
        })
    }

    /// For strings the views are enough: the first 8 bytes of short ones, and the first 4 of others. Blanks
    /// at the end of char(n) do not count.
    fn string_zone(&self, column: ColumnId, representation: Representation, rows: usize) -> Zone {
        let views = &self.pairs(column)[..2 * rows];
        let is_padded = matches!(representation, Representation::PaddedText);
        let first = |at: usize| {
            let [low, high] = [&views[2 * at], &views[2 * at + 1]].map(|word| word.load(Ordering::Relaxed));
            let known = u64::from(((low >> 32) as u32).swap_bytes()) << 32;
            let is_whole = crate::heap::view_len([low, high]) <= crate::heap::INLINE_BYTES;
            if !is_whole {
                // What follows may be blanks only.
                let least = if is_padded { without_blanks(known) } else { known };
                return [least, known | u64::from(u32::MAX)];
            }
            let mut bytes = known | u64::from((high as u32).swap_bytes());
            // Zeros that belong to the string look like those that follow it.
            let mut length = crate::heap::view_len([low, high]);
            if is_padded {
                let inline = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
                let string = &inline[4..4 + length];
                length = string.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
                let shift = 64 - 8 * length.min(8) as u32;
                bytes = bytes.checked_shr(shift).map_or(0, |bytes| bytes << shift);
            }
            let length = length.min(8);
            let ends_with_zero = 8 - bytes.trailing_zeros() as usize / 8 < length;
            [bytes, if ends_with_zero { u64::MAX } else { bytes }]
        };
        let bytes = extremes_of(self.validity(column), rows, first);
        if bytes == Zone::EMPTY {
            return bytes;
        }
        // The shortest string with this beginning, which sorts before no longer one.
        let summary_of = |bytes: u64| {
            let bytes = bytes.to_be_bytes();
            let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            // Remaining blanks are followed by something else.
            summary(Representation::Text, &Cell::Bytes(&bytes[..length])).expect("a string is not NULL")
        };
        // Keys have two bytes for a byte of 0 or 1, so that what follows decides.
        let high = bytes.high.to_be_bytes();
        let is_plain = high[..8 - bytes.high.trailing_zeros() as usize / 8].iter().all(|byte| *byte > 1);
        Zone { low: summary_of(bytes.low), high: if is_plain { summary_of(bytes.high) } else { u64::MAX } }
    }
}

/// The first bytes of a string, with the blanks at their end replaced by zeros.
fn without_blanks(bytes: u64) -> u64 {
    let bytes = bytes.to_be_bytes();
    let length = bytes.iter().rposition(|byte| !matches!(byte, 0 | b' ')).map_or(0, |last| last + 1);
    let mut kept = [0; 8];
    kept[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(kept)
}

/// The least and the greatest of the numbers of rows that are not NULL.
fn extremes(valid: Option<&[AtomicU64]>, rows: usize, number: impl Fn(usize) -> u64) -> Zone {
    extremes_of(valid, rows, |at| [number(at); 2])
}

/// The least of the first numbers and the greatest of the second.
fn extremes_of(valid: Option<&[AtomicU64]>, rows: usize, numbers: impl Fn(usize) -> [u64; 2]) -> Zone {
    let mut zone = Zone::EMPTY;
    let Some(valid) = valid else {
        for at in 0..rows {
            let [low, high] = numbers(at);
            zone.add(low, high);
        }
        return zone;
    };
    for (word, first) in valid.iter().zip((0..rows).step_by(64)) {
        let mut left = word.load(Ordering::Relaxed);
        if rows - first < 64 {
            left &= (1 << (rows - first)) - 1;
        }
        while left != 0 {
            let [low, high] = numbers(first + left.trailing_zeros() as usize);
            zone.add(low, high);
            left &= left - 1;
        }
    }
    zone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnSpec, Table, TableOptions, WriteSet, pin};
    use firn_base::random::Random;
    use firn_base::{BlockNumber, Snapshot, Stamp, TableId, Time};

    /// A value of a type, often near other values and often short.
    fn any_bytes(representation: Representation, random: &mut Random) -> Vec<u8> {
        let word = random.next_u64() >> random.uniform(0, 63);
        let word = if random.uniform(0, 1) == 0 { word } else { word.wrapping_neg() };
        match representation {
            Representation::Text | Representation::Bytes | Representation::PaddedText => {
                let length = random.uniform(0, 20);
                let mut byte = || [0, 1, 2, b' ', b'a', b'b', 0x7f][random.uniform(0, 6) as usize];
                let mut bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
                if let Representation::PaddedText = representation {
                    bytes.resize(length as usize, b' ');
                }
                bytes
            }
            Representation::Float32 | Representation::Float64 if random.uniform(0, 2) == 0 => {
                let special =
                    [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.5, -1e-310];
                let special = special[random.uniform(0, 7) as usize];
                let bits = match representation {
                    Representation::Float32 => u64::from((special as f32).to_bits()),
                    _ => special.to_bits(),
                };
                u128::from(bits).to_le_bytes().to_vec()
            }
            Representation::Uuid => [word, random.next_u64()].map(u64::to_be_bytes).concat(),
            _ => i128::from(word as i64).to_le_bytes().to_vec(),
        }
    }

    fn cell(representation: Representation, bytes: &[u8]) -> Cell<'_> {
        let word = |bytes: &[u8]| i64::from_le_bytes(bytes[..8].try_into().expect("there are 16"));
        match representation {
            Representation::Text | Representation::Bytes | Representation::PaddedText => Cell::Bytes(bytes),
            Representation::Boolean => Cell::boolean(word(bytes) & 1 != 0),
            Representation::Float32 => Cell::f32(f32::from_bits(word(bytes) as u32)),
            Representation::Float64 => Cell::f64(f64::from_bits(word(bytes) as u64)),
            Representation::Uuid => Cell::i128(i128::from_le_bytes(bytes.try_into().expect("there are 16"))),
            Representation::Int16 => Cell::i16(word(bytes) as i16),
            Representation::Int32 => Cell::i32(word(bytes) as i32),
            Representation::Int64 => Cell::i64(word(bytes)),
            _ => Cell::i128(i128::from_le_bytes(bytes.try_into().expect("there are 16")) << 20),
        }
    }

    #[test]
    fn a_zone_holds_every_value_and_no_more_if_summaries_are_exact() {
        let types = [
            Representation::Int16,
            Representation::Int32,
            Representation::Int64,
            Representation::Decimal { precision: 38, scale: 0 },
            Representation::Boolean,
            Representation::Float32,
            Representation::Float64,
            Representation::Uuid,
            Representation::Text,
            Representation::Bytes,
            Representation::PaddedText,
            Representation::PaddedText,
            Representation::PaddedText,
        ];
        let seed = Random::from_entropy().next_u64();
        println!("seed {seed}");
        let mut random = Random::seeded(seed);
        for _ in 0..if cfg!(miri) { 2 } else { 200 } {
            let specs: Vec<ColumnSpec> = [false, true]
                .iter()
                .flat_map(|&nullable| types.map(|representation| ColumnSpec { representation, nullable }))
                .collect();
            let options = TableOptions { block_bytes: 1, ..TableOptions::default() };
            let table = Table::new(TableId(1), "t", specs.clone(), options);
            let count = random.uniform(1, if cfg!(miri) { 20 } else { 200 }) as u32;
            let snapshot = Snapshot { read_time: Time(1), owner: Stamp::transaction(1) };
            let mut writes = WriteSet::new(snapshot.owner, None);
            let mut zones = vec![Zone::EMPTY; specs.len()];
            for _ in 0..count {
                let row: Vec<Vec<u8>> =
                    specs.iter().map(|spec| any_bytes(spec.representation, &mut random)).collect();
                let cells: Vec<Cell<'_>> = specs
                    .iter()
                    .zip(&row)
                    .map(|(spec, bytes)| match spec.nullable && random.uniform(0, 3) > 0 {
                        true => Cell::Null,
                        false => cell(spec.representation, bytes),
                    })
                    .collect();
                for ((zone, spec), cell) in zones.iter_mut().zip(&specs).zip(&cells) {
                    if let Some(summary) = summary(spec.representation, cell) {
                        zone.add(summary, summary);
                    }
                }
                table.insert(&mut writes, snapshot, &cells, &pin()).unwrap();
            }
            let block = table.blocks().get(BlockNumber(0)).unwrap();
            for (at, (expected, spec)) in zones.iter().zip(&specs).enumerate() {
                let zone = block.zone(ColumnId(at as u16), count);
                if matches!(
                    spec.representation,
                    Representation::Text | Representation::Bytes | Representation::PaddedText
                ) {
                    assert!(zone.low <= expected.low && expected.high <= zone.high, "{zone:?} {expected:?}");
                } else {
                    assert_eq!(zone, *expected, "{spec:?}");
                }
            }
        }
    }
}
