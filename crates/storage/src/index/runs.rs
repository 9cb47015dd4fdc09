//! Many keys for one index, inserted in runs: consecutive keys that differ only in their last byte, such as
//! ascending numbers, are inserted into the tree together.
//!
//! Plain keys of up to 16 bytes are [numbers](Packed) until then: one comparison of two of them shows where a
//! run ends. An ascending batch of them is inserted as a whole ([`super::radix`]). Of others a few runs are
//! inserted after the paths to them have been descended together.

use super::posting::single;
use super::{AT_ONCE, Index, KeyBuffer, Packed};
use crate::Guard;
use firn_base::RowId;
use smallvec::SmallVec;

/// For each key of a run its last byte, and the value for its row.
pub(super) type Run = SmallVec<[(u8, u64); 16]>;

/// From this many on, ascending keys descend the tree together.
const MANY: usize = 32;

/// Larger indexes are not in the caches.
const NEAR_BYTES: u64 = 2 << 20;

/// Keys and rows that are collected until their run ends.
pub(crate) struct Runs<'i> {
    index: &'i Index,
    /// The first key of the run.
    key: KeyBuffer,
    run: Run,
}

impl<'i> Runs<'i> {
    /// An empty run for this index.
    pub fn new(index: &'i Index) -> Runs<'i> {
        Runs { index, key: KeyBuffer::new(), run: Run::new() }
    }

    /// Adds a full key. Keys that must be inserted one by one are passed to `enter`, whose errors end the
    /// run. [`Runs::finish`] must follow the last key.
    #[inline]
    pub fn add<E>(
        &mut self,
        key: &[u8],
        row: RowId,
        guard: &Guard,
        enter: impl FnMut(&[u8], RowId) -> Result<(), E>,
    ) -> Result<(), E> {
        if let (Some((last, shared)), Some((known, _))) = (key.split_last(), self.run.last())
            && self.key.len() == key.len()
            && known < last
            && self.key[..key.len() - 1] == *shared
        {
            self.run.push((*last, single(row)));
            return Ok(());
        }
        self.finish(guard, enter)?;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.run.extend(key.last().map(|last| (*last, single(row))));
        Ok(())
    }

    /// Adds plain keys of `bytes` bytes, of rows in consecutive slots from that of `first` on, and inserts
    /// all of them. As [`Runs::add`].
    pub fn add_packed<E>(
        &mut self,
        keys: &[Packed],
        width: usize,
        first: RowId,
        guard: &Guard,
        mut enter: impl FnMut(&[u8], RowId) -> Result<(), E>,
    ) -> Result<(), E> {
        // The slot is the lowest part of an id.
        let first = single(first);
        if keys.len() < MANY || !keys.is_sorted_by(|a, b| a < b) {
            return self.add_runs(keys, width, first, guard, &mut enter);
        }
        let left = self.index.claim_ascending(keys, width, |at| first + at as u64, guard);
        left.into_iter().try_for_each(|part| {
            let first = first + part.start as u64;
            self.add_runs(&keys[part], width, first, guard, &mut enter)
        })
    }

    /// Adds keys of consecutive rows, run by run.
    fn add_runs<E>(
        &mut self,
        keys: &[Packed],
        width: usize,
        mut row: u64,
        guard: &Guard,
        enter: &mut impl FnMut(&[u8], RowId) -> Result<(), E>,
    ) -> Result<(), E> {
        let follows = |a: &Packed, b: &Packed| a < b && (a ^ b) >> 8 == 0;
        // Without this each of them would wait for memory that is in no cache.
        let goes_ahead = keys.len() >= MANY && self.index.held_bytes() > NEAR_BYTES;
        let mut runs = keys.chunk_by(follows);
        loop {
            let some: SmallVec<[&[Packed]; AT_ONCE]> = runs.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                return Ok(());
            }
            if goes_ahead {
                let mut firsts = [const { KeyBuffer::new() }; AT_ONCE];
                some.iter().zip(&mut firsts).for_each(|(run, first)| first.set_packed(run[0], width));
                let ways: SmallVec<[(&Index, &[u8]); AT_ONCE]> =
                    firsts[..some.len()].iter().map(|first| (self.index, first.as_slice())).collect();
                Index::approach(&ways, guard);
            }
            for run in some {
                self.key.set_packed(run[0], width);
                self.run.extend(run.iter().map(|key| *key as u8).zip(row..));
                row += run.len() as u64;
                self.finish(guard, &mut *enter)?;
            }
        }
    }

    /// Inserts the remaining keys.
    pub fn finish<E>(
        &mut self,
        guard: &Guard,
        mut enter: impl FnMut(&[u8], RowId) -> Result<(), E>,
    ) -> Result<(), E> {
        let entered = if self.run.len() > 1 && self.index.claim_run(&self.key, &self.run, guard) {
            Ok(())
        } else {
            self.run.iter().try_for_each(|(last, row)| {
                *self.key.last_mut().expect("a key of a run has a last byte") = *last;
                enter(&self.key, RowId::from_bits(*row))
            })
        };
        self.run.clear();
        entered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{IndexColumn, IndexId, IndexSpec, Verdict, append_packed};
    use crate::pin;
    use firn_base::random::Random;
    use firn_base::types::Width;
    use firn_base::{BlockNumber, Cell, ColumnId, Representation, Slot};
    use std::convert::Infallible;

    #[test]
    fn packed_keys_are_the_keys_of_their_rows_and_all_are_found() {
        let narrow = Representation::Decimal { precision: 12, scale: 2 };
        let guard = &pin();
        let random = &mut Random::seeded(5);
        for types in [
            &[Representation::Int64, Representation::Int32][..],
            &[Representation::Int16],
            &[Representation::Int16, Representation::Date, Representation::Int16, Representation::Int32],
            &[narrow, Representation::Timestamp],
        ] {
            let column = |(at, representation): (usize, &Representation)| IndexColumn {
                column: ColumnId(at as u16),
                representation: *representation,
                nullable: false,
                descending: false,
                nulls_first: false,
            };
            let columns = types.iter().enumerate().map(column).collect();
            let index = Index::new(IndexSpec {
                id: IndexId(1),
                name: "index".to_owned(),
                columns,
                unique: true,
                values: true,
            });
            // Few numbers near zero: many runs, of both signs, and keys that are not in order.
            let most = |at: usize| if at + 1 < types.len() { 1 } else { 300 };
            let mut value = |at: usize| random.uniform(-most(at), most(at));
            let mut rows: Vec<Vec<i64>> = (0..if cfg!(miri) { 60 } else { 3000 })
                .map(|_| (0..types.len()).map(&mut value).collect())
                .collect();
            let half = rows.len() / 2;
            rows[half..].sort();
            rows.dedup();
            let mut seen = std::collections::HashSet::new();
            rows.retain(|row| seen.insert(row.clone()));
            let cell = |value: i64, representation: &Representation| match representation.width() {
                Width::Fixed(2) => Cell::i16(value as i16),
                Width::Fixed(4) => Cell::i32(value as i32),
                _ => Cell::i64(value),
            };
            let mut packed = Vec::new();
            let mut keys = Vec::new();
            for row in &rows {
                let cells: Vec<Cell<'_>> = row
                    .iter()
                    .zip(types)
                    .map(|(value, representation)| cell(*value, representation))
                    .collect();
                let (mut number, mut key) = (0, KeyBuffer::new());
                for (cell, representation) in cells.iter().zip(types) {
                    let Width::Fixed(bytes) = representation.width() else { unreachable!() };
                    append_packed(&mut number, cell.word(), bytes.into());
                }
                index.encode(&cells, &mut key);
                packed.push(number);
                keys.push(key);
            }
            let width = index.packed_width().unwrap();
            let first = RowId::new(BlockNumber(3), Slot(7));
            let mut alone = 0;
            let mut enter = |key: &[u8], row: RowId| {
                alone += 1;
                index.claim(key, row, guard, &mut |_| Ok::<_, Infallible>(Verdict::Dead))
            };
            Runs::new(&index).add_packed(&packed, width, first, guard, &mut enter).unwrap();
            assert!(alone > 0 && alone < keys.len(), "{alone} of {} were entered alone", keys.len());
            for (at, key) in keys.iter().enumerate() {
                let mut found = Vec::new();
                index.lookup(key, guard, &mut |row| {
                    found.push(row);
                    true
                });
                assert_eq!(found, [RowId::new(BlockNumber(3), Slot(7 + at as u32))], "{:?}", rows[at]);
            }
        }
    }
}
