//! Deferrable unique keys, which are tested at the end of a statement or of the transaction.
//!
//! The index of a deferrable constraint permits rows to share a key. A written row is checked at once
//! ([`Transaction::shares_key`]), and again at the end if it shared its key then
//! ([`Transaction::is_duplicate`]); `firn_storage::Table::shares_key` explains why that is sufficient.

use crate::index_build::duplicate;
use crate::transaction::Transaction;
use firn_base::{Result, RowId};
use firn_storage::{Guard, Index, IndexId, KeyBuffer, Table, pin};
use std::ops::Bound;

impl Transaction {
    /// Whether the index lists another row, dead or alive, under the full key that `row` has just got.
    pub fn shares_key(&self, table: &Table, index: &Index, key: &[u8], row: RowId, guard: &Guard) -> bool {
        table.shares_key(index, key, row, guard)
    }

    /// Whether another row has the full key under which this transaction sees a row. 40001 if another
    /// transaction is changing the other row, or has since this one began.
    ///
    /// A serializable transaction does not note that there is no other row: transactions that come later keep
    /// it so, as long as the row exists.
    pub fn is_duplicate(
        &self,
        table: &Table,
        index: &Index,
        key: &[u8],
        row: RowId,
        guard: &Guard,
    ) -> Result<bool> {
        let statistics = self.engine().statistics();
        let found = table.duplicate(index, key, row, self.snapshot(), guard);
        let Some(other) = found.inspect_err(|_| statistics.write_conflicts.count())? else {
            return Ok(false);
        };
        if let Some(conflict) = self.conflict_over_unseen(table, index, Some(key), other, guard) {
            return Err(conflict);
        }
        statistics.unique_violations.count();
        let key = Bound::Included(key);
        self.note(|reads| reads.range(table, index, (key, key), &[], index.columns()));
        Ok(true)
    }

    /// 23505 if two rows share a key of an index that has just been built, under
    /// [`Transaction::lock_exclusive`].
    pub fn refuse_duplicates(&self, table: &Table, index: IndexId) -> Result<()> {
        let indexes = table.indexes();
        let index = indexes.iter().find(|candidate| candidate.spec().id == index);
        let index = index.expect("the index has just been built");
        let mut last = KeyBuffer::new();
        let mut found = false;
        index.range(Bound::Unbounded, Bound::Unbounded, false, &pin(), &mut |key, _| {
            found = last.as_slice() == key && !index.holds_null(key);
            last = KeyBuffer::from_slice(key);
            !found
        });
        if found { Err(duplicate(index)) } else { Ok(()) }
    }
}
