//! Zone maps: between which values the columns of a frozen block lie, so that a scan under conditions need not read
//! a block that cannot meet them (Moerkotte's small materialized aggregates, VLDB 1998).
//!
//! Values are compared by their [`summary`], as in the predicate log: the [restrictions](Restriction) are the same. A zone may be
//! wider than its values, never narrower.

use crate::block::Block;
use crate::index::{summary, wide_summary};
use crate::layout::Unit;
use crate::restriction::Restriction;
use firn_base::sync::{AtomicU64, Ordering};
use firn_base::{Cell, ColumnId, SqlType};

/// The least and the greatest summary of a column's values. NULLs have none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Zone {
    low: u64,
    high: u64,
}

impl Zone {
    /// Nothing is known.
    const ANY: Zone = Zone { low: 0, high: u64::MAX };
    /// There is no value.
    const EMPTY: Zone = Zone { low: u64::MAX, high: 0 };

    /// Whether some value in it may be admitted. NULLs are in none.
    pub fn may_meet(self, restriction: &Restriction) -> bool {
        restriction.admits_null() || self.low <= self.high && restriction.admits_within(self.low, self.high)
    }

    /// With the numbers in it.
    fn add(&mut self, low: u64, high: u64) {
        self.low = self.low.min(low);
        self.high = self.high.max(high);
    }
}

impl Block {
    /// The zone of a column over the first `rows` rows, none of which is missing or being changed.
    pub(crate) fn zone(&self, column: ColumnId, rows: u32) -> Zone {
        let rows = rows as usize;
        let ty = self.layout.types[column.index()];
        let valid = self.validity(column);
        match (self.layout.column(column).unit(), ty) {
            // Their conditions say nothing of zones, or no condition is made of them.
            (_, SqlType::Real | SqlType::Double | SqlType::Interval | SqlType::Uuid | SqlType::Char(_)) => {
                Zone::ANY
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
            (Unit::Pair, SqlType::Numeric { .. }) => {
                let values = &self.pairs(column)[..2 * rows];
                let number = |at: usize| [2 * at, 2 * at + 1].map(|at| values[at].load(Ordering::Relaxed));
                extremes(valid, rows, |at| wide_summary(number(at)))
            }
            (Unit::View, SqlType::Text | SqlType::Varchar(_)) => self.text_zone(column, ty, rows),
            _ => Zone::ANY,
        }
    }

    /// Of texts the views tell enough: the first 8 bytes of short ones, and the first 4 of others.
    fn text_zone(&self, column: ColumnId, ty: SqlType, rows: usize) -> Zone {
        let views = &self.pairs(column)[..2 * rows];
        let first = |at: usize| {
            let [low, high] = [&views[2 * at], &views[2 * at + 1]].map(|word| word.load(Ordering::Relaxed));
            let known = u64::from(((low >> 32) as u32).swap_bytes()) << 32;
            let is_whole = crate::heap::view_len([low, high]) <= crate::heap::INLINE_BYTES;
            if !is_whole {
                return [known, known | u64::from(u32::MAX)];
            }
            let bytes = known | u64::from((high as u32).swap_bytes());
            // Zeros that belong to the text look like those that follow it.
            let length = crate::heap::view_len([low, high]).min(8);
            let ends_with_zero = 8 - bytes.trailing_zeros() as usize / 8 < length;
            [bytes, if ends_with_zero { u64::MAX } else { bytes }]
        };
        let bytes = extremes_of(self.validity(column), rows, first);
        if bytes == Zone::EMPTY {
            return bytes;
        }
        // The shortest string that begins so, which no longer one comes before.
        let summary_of = |bytes: u64| {
            let bytes = bytes.to_be_bytes();
            let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            summary(ty, &Cell::Bytes(&bytes[..length])).expect("it is no NULL")
        };
        // Keys have two bytes for one of 0 or 1, so that what follows decides.
        let high = bytes.high.to_be_bytes();
        let is_plain = high[..8 - bytes.high.trailing_zeros() as usize / 8].iter().all(|byte| *byte > 1);
        Zone { low: summary_of(bytes.low), high: if is_plain { summary_of(bytes.high) } else { u64::MAX } }
    }
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

    /// A value of a type, often near others and often short.
    fn any_bytes(ty: SqlType, random: &mut Random) -> Vec<u8> {
        let word = random.next_u64() >> random.uniform(0, 63);
        let word = if random.uniform(0, 1) == 0 { word } else { word.wrapping_neg() };
        match ty {
            SqlType::Text => {
                let length = random.uniform(0, 20);
                (0..length).map(|_| [0, 1, 2, b'a', b'b', 0x7f][random.uniform(0, 5) as usize]).collect()
            }
            _ => i128::from(word as i64).to_le_bytes().to_vec(),
        }
    }

    fn cell(ty: SqlType, bytes: &[u8]) -> Cell<'_> {
        let word = |bytes: &[u8]| i64::from_le_bytes(bytes[..8].try_into().expect("there are 16"));
        match ty {
            SqlType::Text => Cell::Bytes(bytes),
            SqlType::SmallInt => Cell::i16(word(bytes) as i16),
            SqlType::Integer => Cell::i32(word(bytes) as i32),
            SqlType::BigInt => Cell::i64(word(bytes)),
            _ => Cell::i128(i128::from_le_bytes(bytes.try_into().expect("there are 16")) << 20),
        }
    }

    #[test]
    fn a_zone_holds_every_value_and_no_more_if_summaries_are_exact() {
        let types = [
            SqlType::SmallInt,
            SqlType::Integer,
            SqlType::BigInt,
            SqlType::Numeric { precision: 38, scale: 0 },
            SqlType::Text,
        ];
        let seed = Random::from_entropy().next_u64();
        println!("seed {seed}");
        let mut random = Random::seeded(seed);
        for _ in 0..if cfg!(miri) { 2 } else { 200 } {
            let specs: Vec<ColumnSpec> = [false, true]
                .iter()
                .flat_map(|&nullable| types.map(|ty| ColumnSpec { ty, nullable }))
                .collect();
            let options = TableOptions { block_bytes: 1, ..TableOptions::default() };
            let table = Table::new(TableId(1), "t", specs.clone(), options);
            let count = random.uniform(1, if cfg!(miri) { 20 } else { 200 }) as u32;
            let snapshot = Snapshot { read_time: Time(1), owner: Stamp::transaction(1) };
            let mut writes = WriteSet::new(snapshot.owner, None);
            let mut zones = vec![Zone::EMPTY; specs.len()];
            for _ in 0..count {
                let row: Vec<Vec<u8>> = specs.iter().map(|spec| any_bytes(spec.ty, &mut random)).collect();
                let cells: Vec<Cell<'_>> = specs
                    .iter()
                    .zip(&row)
                    .map(|(spec, bytes)| match spec.nullable && random.uniform(0, 3) > 0 {
                        true => Cell::Null,
                        false => cell(spec.ty, bytes),
                    })
                    .collect();
                for ((zone, spec), cell) in zones.iter_mut().zip(&specs).zip(&cells) {
                    if let Some(summary) = summary(spec.ty, cell) {
                        zone.add(summary, summary);
                    }
                }
                table.insert(&mut writes, snapshot, &cells, &pin()).unwrap();
            }
            let block = table.blocks().get(BlockNumber(0)).unwrap();
            for (at, (expected, spec)) in zones.iter().zip(&specs).enumerate() {
                let zone = block.zone(ColumnId(at as u16), count);
                if spec.ty == SqlType::Text {
                    assert!(zone.low <= expected.low && expected.high <= zone.high, "{zone:?} {expected:?}");
                } else {
                    assert_eq!(zone, *expected, "{spec:?}");
                }
            }
        }
    }
}
