//! Recovery: rows are put back where they were. One thread per row, no readers, no versions, no indexes yet.

use super::private::side_by_side;
use super::slots::NONE;
use super::{Rows, Table};
use crate::arrow_rows::BatchRows;
use crate::block::{Block, set_bits};
use arrow_array::ArrayRef;
use firn_base::sync::Ordering;
use firn_base::{Cell, ColumnId, RowId, Slot};

impl Table {
    /// Whether a block has slots for so many rows from `first` on.
    #[inline]
    pub fn has_slots(&self, first: RowId, rows: u32) -> bool {
        rows > 0 && first.slot().0.checked_add(rows).is_some_and(|end| end <= self.layout.slots)
    }

    /// Rows that lie side by side, where the log says they were, to be filled. Panics if a block has no
    /// such slots.
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
        block.prepare_write();
        block.is_present(row.slot()).then_some(Restored { block, slot: row.slot(), rows: 1 })
    }

    /// Whether all of some rows that lie side by side are there.
    pub fn has_restored(&self, first: RowId, rows: u32) -> bool {
        let Some(block) = self.blocks.get(first.block()).filter(|_| self.has_slots(first, rows)) else {
            return false;
        };
        let slots = first.slot().0..first.slot().0 + rows;
        slots.map(Slot).all(|slot| block.is_present(slot))
    }

    /// Puts whole columns where a checkpoint says they were: row `i` at `rows[i]`. Rows that lie side
    /// by side, which nearly all do, are copied by column.
    pub fn restore_batch(&self, rows: &[RowId], columns: &[ArrayRef]) {
        let batch = BatchRows::new(columns, &self.columns);
        let mut from = 0;
        while let Some(first) = rows.get(from) {
            let count = side_by_side(&rows[from..]);
            let block = self.restore_block(*first);
            assert!(first.slot().0 + count <= self.layout.slots, "the rows of a block lie in its slots");
            // Those that repeat share their bytes.
            let expected = self.expected_string_bytes(block).unwrap_or(usize::MAX);
            block.heap().reserve_first(expected.min(batch.string_bytes(from, count as usize)));
            block.allocate_through(Slot(first.slot().0 + count - 1));
            batch.store(from, count, block, first.slot());
            set_bits(block.present_words(), first.slot(), count);
            from += count as usize;
        }
    }

    /// Ends recovery: counts the rows and finds the slots to use again.
    pub fn finish_restore(&self) {
        let mut rows = 0;
        let mut free = Vec::new();
        for block in self.blocks.iter() {
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
        self.free_count.store(free.len(), Ordering::Relaxed);
        *self.free.lock() = free;
    }

    fn restore_block(&self, row: RowId) -> &Block {
        while self.blocks.len() <= row.block().0 {
            let known = self.blocks.len();
            if let Some(before) = self.blocks.last() {
                // Full as far as inserts care; `finish_restore` finds the slots that are not.
                before.allocate_through(Slot(self.layout.slots - 1));
            }
            self.grow(known);
        }
        let block = self.blocks.get(row.block()).expect("just grown");
        block.prepare_write();
        block
    }
}

/// Rows that recovery puts where they were; nobody else knows of them yet.
pub struct Restored<'t> {
    block: &'t Block,
    slot: Slot,
    rows: u32,
}

impl Restored<'_> {
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

    /// The rows are there, with all their columns.
    #[inline]
    pub fn insert(self) {
        set_bits(self.block.present_words(), self.slot, self.rows);
    }

    /// The rows are gone.
    pub fn delete(self) {
        for slot in (self.slot.0..self.slot.0 + self.rows).map(Slot) {
            self.block.set_present(slot, false);
        }
    }
}
