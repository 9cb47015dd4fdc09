//! Unique keys that are tested late, at the end of a statement or of the transaction.
//!
//! The index of a deferrable constraint lets rows share a key. A row that was written is asked about at once
//! ([`Transaction::shares_key`]), and once more at the end if it did share its key then
//! ([`Transaction::is_duplicate`]); `firn_storage::Table::shares_key` says why that is enough.

use crate::index_build::duplicate;
use crate::transaction::Transaction;
use firn_base::{Result, RowId};
use firn_storage::{Guard, Index, IndexId, KeyBuffer, Table, pin};
use std::ops::Bound;

impl Transaction {
    /// Whether another row, dead or alive, is listed under the full key that `row` has just been given.
    pub fn shares_key(&self, table: &Table, index: &Index, key: &[u8], row: RowId, guard: &Guard) -> bool {
        table.shares_key(index, key, row, guard)
    }

    /// Whether a row that this transaction sees under a full key has it beside another row. 40001 if
    /// another transaction is changing that one, or has since this one began.
    ///
    /// That it has not is nothing that a serializable transaction reads: it is kept so by those who come
    /// later, as long as the row stays.
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
        let index = index.expect("it has just been built");
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
