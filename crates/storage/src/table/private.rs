//! Tables that are private: only the transaction knows of one that has made it.
//!
//! | what rows need beside themselves | why it can be done without |
//! |---|---|
//! | a version, for who must not see them | whoever can name the table sees what its transaction has left there |
//! | redo as they come | nothing of them is to be recovered but what is there in the end, which the commit logs as a whole |
//! | to be taken back by a rollback | the table is given up with them |
//!
//! So rows come at the price of their columns and index entries, and their blocks can be frozen with the commit. There are
//! undo records of them all the same, in no chain: by these savepoints find what to take back.
//!
//! Invariant: the freezer and the merger leave private tables alone. Which of their blocks are frozen says their transaction,
//! which thaws them as anybody does if it writes to them again.

use super::{Rows, Table};
use crate::arrow_rows::BatchRows;
use crate::block::Block;
use crate::cold::Cold;
use crate::version::Record;
use crate::{Frozen, WriteSet, pin};
use arrow_array::ArrayRef;
use firn_base::sync::Ordering;
use firn_base::{BlockNumber, RowId};

/// More bytes of strings than that do not go into one record of redo, unless one row has more.
const LOGGED_BYTES: usize = if cfg!(debug_assertions) { 4 << 10 } else { 1 << 20 };

impl Table {
    /// Makes a table private that nobody knows of yet.
    pub fn keep_private(&self) {
        self.published.store(false, Ordering::Relaxed);
    }

    /// Lets others know of it: its transaction commits, and has logged what is in it.
    pub fn publish(&self) {
        // Release: with what its transaction has done.
        self.published.store(true, Ordering::Release);
    }

    /// Whether it is not private.
    #[inline]
    pub fn is_published(&self) -> bool {
        // Acquire: pairs with `publish`, for the freezer, which comes to tables otherwise than through the catalog.
        self.published.load(Ordering::Acquire)
    }

    /// Links the record of a row in a slot that was just given out, if it needs a version.
    #[inline]
    pub(crate) fn link_fresh(&self, block: &Block, record: Record<'_>) {
        if self.is_published() { block.link_fresh(record) } else { record.set_out() }
    }

    /// As [`Table::link_fresh`], of several rows.
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

    /// For the transaction of a private table: has a block cool that is full, and tells its bytes. From now on it may be
    /// [frozen](Table::freeze_cooling) unless the transaction writes to it again. There are no guards to be waited for first:
    /// nobody else has seen it hot.
    pub fn cool_full(&self, number: BlockNumber) -> Option<u64> {
        debug_assert!(!self.is_published());
        let block = self.blocks.get(number)?;
        let is_full = block.rows_present() == self.layout.slots;
        (is_full && block.cool()).then(|| block.raw_bytes() as u64)
    }

    /// Freezes such a block, unless it has been written to since or a row of it has versions; what is known of it then.
    pub fn freeze_cooling(&self, number: BlockNumber) -> Option<Cold> {
        let frozen = self.freeze(number, &pin()) == Frozen::Yes;
        frozen.then(|| self.cold(number)).flatten()
    }

    /// Logs, by one record, that rows came which a scan of all columns has yielded, row `i` at `rows[i]`: those from `from` on
    /// that lie side by side, but no more than have some bytes of strings. How many.
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

/// How many of the rows lie side by side, the first of them first.
pub(super) fn side_by_side(rows: &[RowId]) -> u32 {
    let first = rows[0].to_bits();
    (0..).zip(rows).take_while(|(offset, row)| row.to_bits() == first + offset).count() as u32
}
