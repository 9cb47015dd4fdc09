//! Scans of compact blocks: conditions are judged on the encoded columns, and only rows that meet them are decoded
//! (seed 001 §3.4; Abadi, Myers, DeWitt and Madden call that late materialisation, ICDE 2007).
//!
//! That is for batches of which no row has versions that are anything to the snapshot; others go the way of all blocks,
//! through [`crate::walk`].

use crate::Guard;
use crate::block::Block;
use crate::compact::Compact;
use crate::encoding::{self, EncodedColumn, Form};
use crate::index::summary;
use crate::layout::RANGE_SLOTS;
use crate::scan::{ScanBatch, TableScan, row_ids};
use crate::zone::Condition;
use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer};
use firn_base::sync::{AtomicU64, Ordering, fence};
use firn_base::types::Width;
use firn_base::{Cell, ColumnId, Slot, SqlType};
use std::ops::Bound;

/// If more than one in so many rows meets the conditions, all are given: whoever asks looks at them again, and whole
/// ranges are decoded faster than single rows.
const FEW: usize = 2;

/// Dictionaries of so many strings at most are looked through for a condition, once for every batch.
const MOST_LOOKED_THROUGH: usize = 1024;

/// What becomes of some rows of a compact block.
pub(crate) enum Encoded {
    /// Those that may meet the conditions.
    Rows(ScanBatch),
    /// None meets them.
    NothingMeets,
    /// They have to be looked at one by one.
    MayHaveVersions,
}

impl TableScan {
    /// Rows of a compact block, if the snapshot sees what is left of them as it lies there.
    pub(crate) fn encoded(&self, block: &Block, first: u32, end: u32, guard: &Guard) -> Encoded {
        let is_clean = || {
            let mut ranges = (first..end).step_by(RANGE_SLOTS as usize).map(Slot);
            ranges.all(|start| block.position(start).versioned().is_empty())
                || block
                    .sees_all(self.snapshot(), guard)
                    .unwrap_or_else(|| !block.differs(first, end, self.snapshot(), guard).0)
        };
        if !is_clean() {
            return Encoded::MayHaveVersions;
        }
        // After the positions: see there.
        let Some(compact) = block.compact() else { return Encoded::MayHaveVersions };
        let end = end.min(compact.slots());
        if first >= end {
            return Encoded::NothingMeets;
        }
        let present = bits_of(compact.present(), first, end);
        // As in `Walk::range`.
        fence(Ordering::Acquire);
        if !is_clean() {
            return Encoded::MayHaveVersions;
        }
        let rows = present.count_set_bits();
        let is_full = rows == present.len();
        // Of rows that are gone the values are still there.
        let selected = match self.select(compact, first, end) {
            Some(selected) if is_full => selected,
            Some(selected) => &selected & &present,
            None => present,
        };
        if is_full && selected.count_set_bits() * FEW >= rows {
            let slots = first as usize..end as usize;
            let array = |column: &ColumnId| compact.column(*column).to_array(slots.clone(), Form::Plain);
            let ids = || row_ids(block, first, end).collect::<Vec<_>>().into();
            return Encoded::Rows(ScanBatch {
                columns: self.columns().iter().map(array).collect(),
                rows,
                row_ids: self.gives_row_ids().then(ids),
            });
        }
        let slots: Vec<u32> = selected.set_indices().map(|at| first + at as u32).collect();
        self.pass_over(rows - slots.len());
        if slots.is_empty() {
            return Encoded::NothingMeets;
        }
        let array = |column: &ColumnId| -> ArrayRef { compact.column(*column).take(&slots) };
        let ids = || slots.iter().map(|slot| block.row(Slot(*slot)).to_bits()).collect::<Vec<_>>().into();
        Encoded::Rows(ScanBatch {
            columns: self.columns().iter().map(array).collect(),
            rows: slots.len(),
            row_ids: self.gives_row_ids().then(ids),
        })
    }

    /// A bit for every slot: false if its row does not meet the conditions. `None` if nothing is known.
    fn select(&self, compact: &Compact, first: u32, end: u32) -> Option<BooleanBuffer> {
        let mut all: Option<BooleanBuffer> = None;
        for condition in self.conditions() {
            let Some(one) = select(compact.column(condition.column), condition, first, end) else { continue };
            let both = match all {
                Some(all) => &all & &one,
                None => one,
            };
            if both.count_set_bits() == 0 {
                return Some(both);
            }
            all = Some(both);
        }
        all
    }
}

/// The bits of some slots, the first a multiple of 64.
fn bits_of(words: &[AtomicU64], first: u32, end: u32) -> BooleanBuffer {
    debug_assert!(first.is_multiple_of(64) && first < end);
    let words = &words[first as usize / 64..end.div_ceil(64) as usize];
    let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    BooleanBuffer::new(Buffer::from_vec(words), 0, (end - first) as usize)
}

fn select(column: &EncodedColumn, condition: &Condition, first: u32, end: u32) -> Option<BooleanBuffer> {
    let slots = first as usize..end as usize;
    if let Some(condition) = range_of(column.ty(), condition) {
        return column.select(slots, &condition);
    }
    let is_text = matches!(column.ty(), SqlType::Text | SqlType::Varchar(_));
    let (_, dictionary) =
        column.codes().filter(|(_, dictionary)| is_text && dictionary.len() <= MOST_LOOKED_THROUGH)?;
    let meets = |string: &[u8]| {
        let summary = summary(column.ty(), &Cell::Bytes(string)).expect("it is no NULL");
        (condition.low..=condition.high).contains(&summary)
    };
    Some(column.select_codes(slots, &dictionary.codes_of_strings(meets)))
}

/// The values whose summaries meet a condition, if they are a range of numbers.
fn range_of(ty: SqlType, condition: &Condition) -> Option<encoding::Condition<'static>> {
    // A summary begins with the value, its sign flipped, so that zeros follow if it is less than 8 bytes wide.
    let bits = match (ty, ty.width()) {
        (SqlType::SmallInt, _) => 16,
        (SqlType::Integer | SqlType::Date, _) => 32,
        (SqlType::BigInt | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz, _) => 64,
        (SqlType::Numeric { .. }, Width::Fixed(8)) => 64,
        (SqlType::Numeric { .. }, _) => 128,
        _ => return None,
    };
    let sign = 1 << 63;
    if bits == 128 {
        let [low, high] = [[0, condition.low ^ sign], [u64::MAX, condition.high ^ sign]].map(Cell::Wide);
        return Some(encoding::Condition::Range(Bound::Included(low), Bound::Included(high)));
    }
    let shift = 64 - bits;
    // The least value whose summary is not less, and the greatest whose summary is not greater.
    let low =
        (condition.low >> shift) + u64::from(condition.low.trailing_zeros() < shift && condition.low != 0);
    let high = condition.high >> shift;
    if low > u64::MAX >> shift || low > high {
        return Some(encoding::Condition::In(Vec::new()));
    }
    let cell = |number: u64| match bits {
        16 => Cell::i16((number ^ sign >> shift) as i16),
        32 => Cell::i32((number ^ sign >> shift) as i32),
        _ => Cell::i64((number ^ sign) as i64),
    };
    Some(encoding::Condition::Range(Bound::Included(cell(low)), Bound::Included(cell(high))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::{Encoding, Kept, Piece, Source};

    #[test]
    fn a_range_of_summaries_is_the_range_of_values_that_have_them() {
        let column = ColumnId(0);
        let numbers: Vec<i32> =
            [i32::MIN, i32::MIN + 1, -2, -1, 0, 1, 2, 1000, i32::MAX - 1, i32::MAX].into();
        let piece = Piece { values: Source::Four(&numbers), nulls: None };
        let encoding = Encoding { runs: false, values: Kept::Plain };
        let encoded = EncodedColumn::encode(SqlType::Integer, piece, encoding).unwrap();
        let summaries: Vec<u64> =
            numbers.iter().map(|n| summary(SqlType::Integer, &Cell::i32(*n)).unwrap()).collect();
        let near = |at: u64| [at.saturating_sub(1), at, at.saturating_add(1)];
        let bounds: Vec<u64> = summaries.iter().copied().chain([0, u64::MAX]).flat_map(near).collect();
        for &low in &bounds {
            for &high in &bounds {
                let selected = select(&encoded, &Condition { column, low, high }, 0, 10).unwrap();
                let expected = summaries.iter().map(|summary| (low..=high).contains(summary));
                assert!(selected.iter().eq(expected), "{low:x} to {high:x}");
            }
        }
    }

    #[test]
    fn bits_are_those_of_the_slots() {
        let words = [u64::MAX, 0b101].map(AtomicU64::new);
        let bits = |first, end| bits_of(&words, first, end).iter().collect::<Vec<bool>>();
        assert_eq!(bits(64, 68), [true, false, true, false]);
        assert_eq!(bits(0, 66).iter().filter(|bit| **bit).count(), 65);
    }
}
