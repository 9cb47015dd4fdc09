//! Private tables: only the transaction that has made one can name it.
//!
//! | what rows usually need | why a private table does not need it |
//! |---|---|
//! | a version, for snapshots that must not see them | every transaction that can name the table sees the final rows |
//! | redo for every change | only the final rows have to be recovered, which the commit logs as a whole |
//! | undo by a rollback | the table is dropped together with them |
//!
//! So rows cost only their columns and index entries, and their blocks can be frozen with the commit. There
//! are undo records of them nevertheless, in no chain, from which a rollback to a savepoint finds what to
//! undo.
//!
//! Invariant: the freezer and the merger ignore private tables. The transaction determines which of their
//! blocks are frozen, and thaws a block like any other writer if it writes to it again.

use super::{Rows, Table};
use crate::arrow_rows::BatchRows;
use crate::block::Block;
use crate::cold::Cold;
use crate::version::Record;
use crate::{Frozen, WriteSet, pin};
use arrow_array::ArrayRef;
use firn_base::sync::Ordering;
use firn_base::{BlockNumber, RowId};

/// A redo record has at most this many bytes of strings, unless one row has more.
const LOGGED_BYTES: usize = if cfg!(debug_assertions) { 4 << 10 } else { 1 << 20 };

impl Table {
    /// Makes a table private that no other transaction can name yet.
    pub fn keep_private(&self) {
        self.published.store(false, Ordering::Relaxed);
    }

    /// Makes it visible to others: its transaction commits, and has logged its content.
    pub fn publish(&self) {
        // Release: publishes what its transaction has done.
        self.published.store(true, Ordering::Release);
    }

    /// Whether it is not private.
    #[inline]
    pub fn is_published(&self) -> bool {
        // Acquire: pairs with `publish`, for the freezer, which does not find tables by the catalog.
        self.published.load(Ordering::Acquire)
    }

    /// Links the record of a row in a slot that was just given out, if it needs a version.
    #[inline]
    pub(crate) fn link_fresh(&self, block: &Block, record: Record<'_>) {
        if self.is_published() { block.link_fresh(record) } else { record.set_out() }
    }

    /// As [`Table::link_fresh`], for several rows.
    pub(crate) fn link_many(&self, block: &Block, record: Record<'_>) {
        if self.is_published() {
            block.link_many(record, record.slot(), record.inserted_rows());
        } else {
            record.set_out();
        }
    }

    /// How many blocks there are.
    pub fn block_count(&self) -> u64 {
        self.blocks.len()
    }

    /// For the transaction of a private table: begins to cool a full block. Returns its bytes. From now on it
    /// may be [frozen](Table::freeze_cooling) unless the transaction writes to it again. There is no guard to
    /// wait for, since no other thread has seen it hot.
    pub fn cool_full(&self, number: BlockNumber) -> Option<u64> {
        debug_assert!(!self.is_published());
        let block = self.blocks.get(number)?;
        let is_full = block.rows_present() == self.layout.slots;
        (is_full && block.cool()).then(|| block.raw_bytes() as u64)
    }

    /// Freezes such a block, unless it has been written to since or a row of it has versions. Returns what is
    /// known of it then.
    pub fn freeze_cooling(&self, number: BlockNumber) -> Option<Cold> {
        let frozen = self.freeze(number, &pin()) == Frozen::Yes;
        frozen.then(|| self.cold(number)).flatten()
    }

    /// Logs, by one record, the insertion of rows of a scan of all columns, row `i` at `rows[i]`: those from
    /// `from` on that are consecutive, limited by the bytes of their strings. Returns their number.
    pub fn log_rows(
        &self,
        write_set: &mut WriteSet,
        rows: &[RowId],
        columns: &[ArrayRef],
        from: usize,
    ) -> usize {
        let batch = BatchRows::new(columns, &self.columns);
        let mut count = side_by_side(&rows[from..]) as usize;
        while count > 1 && batch.string_bytes(from, count) > LOGGED_BYTES {
            count /= 2;
        }
        if let Some(redo) = write_set.redo() {
            redo.insert_batch(
                self.id,
                rows[from],
                count as u32,
                self.columns.len() as u16,
                |column, cells| {
                    batch.log(from..from + count, column.index(), cells);
                },
            );
        }
        count
    }
}

/// How many of the rows are consecutive, beginning with the first.
pub(super) fn side_by_side(rows: &[RowId]) -> u32 {
    let first = rows[0].to_bits();
    (0..).zip(rows).take_while(|(offset, row)| row.to_bits() == first + offset).count() as u32
}
