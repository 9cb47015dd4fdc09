//! Recovery: rows are restored to their former places. One thread per row, no readers, no versions, no
//! indexes yet.
//!
//! If memory is short, blocks that were restored completely become compact before others are read
//! ([`Table::compact_restored`]). If the log then changes a row of such a block, the block is decoded again;
//! a delete only clears a bit.

use super::main::LEFT_BELOW;
use super::private::side_by_side;
use super::slots::NONE;
use super::{Rows, Table};
use crate::arrow_rows::BatchRows;
use crate::block::{Block, set_bits};
use crate::is_long_string;
use arrow_array::ArrayRef;
use firn_base::sync::{Arc, Ordering};
use firn_base::{BlockNumber, Cell, ColumnId, RowId, Slot, Snapshot, Stamp, Time};
use std::time::Duration;

impl Table {
    /// Whether a block has slots for `rows` rows from `first` on.
    #[inline]
    pub fn has_slots(&self, first: RowId, rows: u32) -> bool {
        rows > 0 && first.slot().0.checked_add(rows).is_some_and(|end| end <= self.layout.slots)
    }

    /// Consecutive rows, at the place given in the log, to be filled. Panics if a block has no such slots.
    #[inline]
    pub fn restore_rows(&self, first: RowId, rows: u32) -> Restored<'_> {
        let block = self.restore_block(first);
        let slot = first.slot();
        assert!(self.has_slots(first, rows), "the rows of a block lie in its slots");
        block.allocate_through(Slot(slot.0 + rows - 1));
        Restored { block, slot, rows }
    }

    /// A row that was restored before, to be changed; `None` if it was not.
    #[inline]
    pub fn restored(&self, row: RowId) -> Option<Restored<'_>> {
        let block = self.blocks.get(row.block()).filter(|_| self.has_slots(row, 1))?;
        self.prepare_restored(block);
        block.is_present(row.slot()).then_some(Restored { block, slot: row.slot(), rows: 1 })
    }

    /// Deletes a row that was restored before. Returns false if it does not exist.
    #[inline]
    pub fn delete_restored(&self, row: RowId) -> bool {
        let Some(block) = self.blocks.get(row.block()).filter(|_| self.has_slots(row, 1)) else {
            return false;
        };
        // Other threads may give the block other codes meanwhile.
        let _guard = crate::pin();
        let compact = block.compact();
        if compact.is_none() {
            block.prepare_write();
        }
        if !block.is_present(row.slot()) {
            return false;
        }
        block.set_present(row.slot(), false);
        if let Some(compact) = compact {
            compact.count_dead();
        }
        true
    }

    /// Makes full blocks compact that have been frozen again, if they are worth a merge (as defined by
    /// [`Table::compact`]), and frees the memory of their rows. Other threads may be restoring other blocks.
    pub fn compact_restored(self: &Arc<Self>, threads: usize) {
        if self.compact(Duration::from_nanos(1), threads, &|| true) > 0 {
            // The memory is freed with the guards of that time, none of which is held for long.
            (0..4).for_each(|_| crate::pin().flush());
        }
    }

    /// Whether all of some consecutive rows exist.
    pub fn has_restored(&self, first: RowId, rows: u32) -> bool {
        let Some(block) = self.blocks.get(first.block()).filter(|_| self.has_slots(first, rows)) else {
            return false;
        };
        let slots = first.slot().0..first.slot().0 + rows;
        slots.map(Slot).all(|slot| block.is_present(slot))
    }

    /// Restores whole columns of a checkpoint: row `i` at `rows[i]`. Consecutive rows, which nearly all are,
    /// are copied by column.
    pub fn restore_batch(&self, rows: &[RowId], columns: &[ArrayRef]) {
        let batch = BatchRows::new(columns, &self.columns);
        let mut from = 0;
        while let Some(first) = rows.get(from) {
            let count = side_by_side(&rows[from..]);
            let block = self.restore_block(*first);
            assert!(first.slot().0 + count <= self.layout.slots, "the rows of a block lie in its slots");
            // Repeated strings share their bytes.
            let expected = self.expected_string_bytes(block).unwrap_or(usize::MAX);
            block.heap().reserve_first(expected.min(batch.string_bytes(from, count as usize)));
            block.allocate_through(Slot(first.slot().0 + count - 1));
            batch.store(from, count, block, first.slot());
            set_bits(block.present_words(), first.slot(), count);
            from += count as usize;
        }
    }

    /// Fills empty slots between rows of a block, so that it can be frozen and become compact. Returns these
    /// slots, which have to be [deleted](Table::delete_restored) before recovery ends. Fills none in a block
    /// whose rows would be moved out anyway, or whose memory would grow by more than its rows take.
    pub fn fill_gaps(&self, number: BlockNumber) -> Vec<RowId> {
        // From here on, since other threads may make the block compact.
        let guard = &crate::pin();
        let Some(block) = self.blocks.get(number).filter(|block| !block.is_compact()) else {
            return Vec::new();
        };
        let is_gap = |slot: &Slot| !block.is_present(*slot);
        let gaps: Vec<Slot> = (0..self.layout.slots).map(Slot).filter(is_gap).collect();
        let rows = self.layout.slots - gaps.len() as u32;
        if gaps.is_empty() || rows * LEFT_BELOW < self.layout.slots {
            return Vec::new();
        }
        block.prepare_write();
        block.allocate_through(Slot(self.layout.slots - 1));
        let columns: Vec<ColumnId> = (0..self.columns.len()).map(|column| ColumnId(column as u16)).collect();
        let mut cells = vec![Cell::Null; columns.len()];
        // There are no versions yet.
        let everything = Snapshot { read_time: Time(1), owner: Stamp::transaction(0) };
        let first = (0..self.layout.slots).map(Slot).find(|slot| block.is_present(*slot));
        let mut like = first.expect("a block has rows");
        let mut string_bytes = 0;
        let mut filled_gaps = Vec::with_capacity(gaps.len());
        for gap in &gaps {
            // The values before the gap, so that it extends neither zones nor dictionaries, and ends no runs.
            if let Some(before) = gap.0.checked_sub(1).map(Slot) {
                like = if block.is_present(before) { before } else { like };
            }
            let known = self.read(everything, block.row(like), &columns, &mut cells, guard);
            assert!(known, "rows that are put back have no versions");
            let long = cells.iter().filter(|cell| is_long_string(cell));
            string_bytes += long.map(|cell| cell.bytes().len()).sum::<usize>();
            if string_bytes > self.layout.bytes {
                // It remains as it is; what was filled so far is deleted again.
                return filled_gaps;
            }
            let filled = Restored { block, slot: *gap, rows: 1 };
            columns.iter().zip(&cells).for_each(|(column, cell)| filled.set(*column, cell));
            filled.insert();
            filled_gaps.push(block.row(*gap));
        }
        filled_gaps
    }

    /// Whether a block is compact.
    pub fn has_become_compact(&self, number: BlockNumber) -> bool {
        self.blocks.get(number).is_some_and(Block::is_compact)
    }

    /// Ends recovery: counts the rows and finds the slots to reuse.
    pub fn finish_restore(&self) {
        let mut rows = 0;
        let mut free = Vec::new();
        for block in self.blocks.iter() {
            if block.is_compact() {
                // Its slots are reused when all of its rows are deleted.
                rows += i64::from(block.rows_present());
                continue;
            }
            for slot in (0..block.allocated()).map(Slot) {
                if block.is_present(slot) {
                    rows += 1;
                } else {
                    free.push(block.row(slot));
                }
            }
        }
        // Popped from the end: the lowest row ids first.
        free.reverse();
        let last = self.blocks.len().checked_sub(1);
        self.filling.store(last.unwrap_or(NONE), Ordering::Relaxed);
        self.rows.store(rows, Ordering::Relaxed);
        match self.vacant.get() {
            None => {
                self.free_count.store(free.len(), Ordering::Relaxed);
                *self.free.lock() = free;
            }
            Some(vacant) => *vacant.lock() = Some(free.into_iter().collect()),
        }
    }

    fn restore_block(&self, row: RowId) -> &Block {
        while self.blocks.len() <= row.block().0 {
            let known = self.blocks.len();
            if let Some(before) = self.blocks.last() {
                // Full for inserts; `finish_restore` finds the free slots.
                before.allocate_through(Slot(self.layout.slots - 1));
            }
            self.grow(known);
        }
        let block = self.blocks.get(row.block()).expect("just grown");
        self.prepare_restored(block);
        block
    }

    /// Prepares a block for writing.
    #[inline]
    fn prepare_restored(&self, block: &Block) {
        if block.is_compact() {
            self.decode_restored(block);
        }
        block.prepare_write();
    }

    /// Restores the rows of a compact block to their form before it became compact.
    #[cold]
    fn decode_restored(&self, block: &Block) {
        let guard = crate::pin();
        let compact = block.compact().expect("the caller has checked it");
        let slots: Vec<u32> = (0..compact.slots()).filter(|slot| block.is_present(Slot(*slot))).collect();
        let rows: Vec<RowId> = slots.iter().map(|slot| block.row(Slot(*slot))).collect();
        let columns: Vec<ArrayRef> = compact.columns().iter().map(|column| column.take(&slots)).collect();
        for slot in slots {
            block.set_present(Slot(slot), false);
            compact.count_dead();
        }
        let given_up = block.give_up_compact(self.nothing(), &guard);
        assert!(given_up, "only the thread that restores its rows uses the block");
        self.restore_batch(&rows, &columns);
        block.allocate_through(Slot(self.layout.slots - 1));
    }
}

/// Rows that recovery or replay puts in place; no other thread can reach them yet.
pub struct Restored<'t> {
    block: &'t Block,
    slot: Slot,
    rows: u32,
}

impl<'t> Restored<'t> {
    /// Rows in slots that were just given out.
    pub(super) fn over(block: &'t Block, slot: Slot, rows: u32) -> Restored<'t> {
        Restored { block, slot, rows }
    }

    /// Sets one column of the first row. The cell is of the column's type.
    #[inline(always)]
    pub fn set(&self, column: ColumnId, cell: &Cell<'_>) {
        self.block.store_one(self.slot, column, cell);
    }

    /// Sets one column of every row.
    #[inline]
    pub fn set_all<'c>(&self, column: ColumnId, cells: impl Iterator<Item = Cell<'c>>) {
        self.block.store_column(self.slot, self.rows, column, cells);
    }

    /// As [`Restored::set_all`], for a type of up to 8 bytes; `None` for NULL.
    #[inline]
    pub fn set_all_words(&self, column: ColumnId, words: impl Iterator<Item = Option<u64>>) {
        self.block.store_words_column(self.slot, self.rows, column, words);
    }

    /// As [`Restored::set_all`], for strings; `None` for NULL.
    #[inline]
    pub fn set_all_strings<'c>(&self, column: ColumnId, strings: impl Iterator<Item = Option<&'c [u8]>>) {
        self.block.store_strings_column(self.slot, self.rows, column, strings);
    }

    /// Completes the insertion of the rows, with all their columns.
    #[inline]
    pub fn insert(self) {
        set_bits(self.block.present_words(), self.slot, self.rows);
    }
}

#[cfg(test)]
mod tests {
    use super::super::TableOptions;
    use super::*;
    use crate::ColumnSpec;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_array::{Int32Array, StringViewArray};
    use firn_base::{Representation, TableId};
    use std::collections::BTreeMap;

    /// Changes, deletes and inserts have the same result whether a block is compact by then or not.
    #[test]
    fn rows_of_blocks_that_are_compact_while_the_log_is_read_are_changed_as_any() {
        let specs = vec![
            ColumnSpec { representation: Representation::Int32, nullable: false },
            ColumnSpec { representation: Representation::Text, nullable: true },
        ];
        let options = || TableOptions { block_bytes: 1, ..TableOptions::default() };
        let content = |compact_first: bool| {
            let table = Table::new(TableId(1), "t", specs.clone(), options());
            let slots = table.layout.slots;
            let row = |block: u64, slot: u32| RowId::new(BlockNumber(block), Slot(slot));
            let mut filled = Vec::new();
            for number in 0..3 {
                // The last one had gaps, at its beginning, in its middle and at its end.
                let is_there = |slot: &u32| number < 2 || slot % 10 > 2 && *slot < slots - 20;
                let there: Vec<u32> = (0..slots).filter(is_there).collect();
                let rows: Vec<RowId> = there.iter().map(|slot| row(number, *slot)).collect();
                let name =
                    |at: &u32| (!at.is_multiple_of(5)).then(|| format!("the long name of one of {}", at % 7));
                let columns: Vec<ArrayRef> = vec![
                    Arc::new(Int32Array::from_iter_values(there.iter().map(|slot| *slot as i32))),
                    Arc::new(StringViewArray::from_iter(there.iter().map(name))),
                ];
                table.restore_batch(&rows, &columns);
                if compact_first {
                    filled.extend(table.fill_gaps(BlockNumber(number)));
                }
                table.freeze_restored(BlockNumber(number));
            }
            if compact_first {
                table.compact_restored(1);
                assert!((0..3).all(|number| table.has_become_compact(BlockNumber(number))));
                assert!(!filled.is_empty() && filled.iter().all(|row| table.delete_restored(*row)));
            }
            // The first has one row less, and a changed one; the second only one row less.
            for block in [0, 1] {
                assert!(table.delete_restored(row(block, 17)) && !table.delete_restored(row(block, 17)));
            }
            let restored = table.restored(row(0, 18)).expect("the row exists");
            restored.set(ColumnId(1), &Cell::text("another name, which is long as well"));
            assert!(table.restored(row(0, 17)).is_none());
            let compact = table.blocks.iter().filter(|block| block.is_compact()).count();
            assert_eq!(compact, if compact_first { 2 } else { 0 }, "what is changed is decoded");
            table.restore_rows(row(0, 17), 1).insert();
            table.finish_restore();
            let snapshot = Snapshot { read_time: Time(1), owner: Stamp::transaction(1) };
            let scan = table.scan(snapshot, &[ColumnId(0), ColumnId(1)], true);
            let mut content = BTreeMap::new();
            while let Some(batch) = scan.next_batch(&crate::pin()) {
                let numbers = batch.columns[0].as_primitive::<Int32Type>();
                let names = batch.columns[1].as_string_view();
                let ids = batch.row_ids.as_ref().expect("asked for");
                for (at, name) in names.iter().enumerate() {
                    content.insert(ids.value(at), (numbers.value(at), name.map(str::to_owned)));
                }
            }
            assert_eq!(table.approximate_rows(), content.len() as u64);
            content.remove(&row(0, 17).to_bits()).expect("the row was inserted again");
            content
        };
        let expected = content(false);
        assert!(content(true) == expected);
    }
}
