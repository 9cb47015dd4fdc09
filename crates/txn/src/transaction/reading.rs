//! Reading rows, and noting what was read for validation.

use super::Transaction;
use firn_base::{Cell, ColumnId, ColumnSet, Result, RowId};
use firn_storage::{Found, Guard, Index, KeyBuffer, Restriction, Table};
use smallvec::SmallVec;
use std::ops::Bound;

impl Transaction {
    /// Reads columns of a row; false if this transaction does not see it.
    #[inline]
    pub fn read<'g>(
        &self,
        table: &'g Table,
        row: RowId,
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        guard: &'g Guard,
    ) -> bool {
        let row = self.current_row_id(table, row);
        let seen = table.read(self.snapshot, row, columns, cells, guard);
        if seen {
            self.note(|reads| reads.row(table.id(), row, columns.iter().copied().collect()));
        }
        seen
    }

    /// As [`Transaction::read`], of a row in a range that is noted as a whole.
    #[inline]
    pub fn peek<'g>(
        &self,
        table: &'g Table,
        row: RowId,
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        guard: &'g Guard,
    ) -> bool {
        table.read(self.snapshot, self.current_row_id(table, row), columns, cells, guard)
    }

    /// The visible row under a full key of a unique index.
    #[inline]
    pub fn get(&self, table: &Table, index: &Index, key: &[u8], guard: &Guard) -> Option<RowId> {
        self.find(table, index, key, &[], &mut [], guard)
    }

    /// The visible row under a full key of a unique index, with columns of it.
    #[inline]
    pub fn find<'g>(
        &self,
        table: &'g Table,
        index: &Index,
        key: &[u8],
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        guard: &'g Guard,
    ) -> Option<RowId> {
        let found = table.find(index, key, self.snapshot, columns, cells, guard);
        self.note(|reads| match found {
            Some(row) => {
                let columns: ColumnSet = columns.iter().copied().collect();
                reads.row(table.id(), row, columns.union(index.columns()));
            }
            None => reads.nothing(table.id(), index, key),
        });
        found
    }

    /// As [`Transaction::find`], for a caller that uses only a row that meets the restrictions, and only the columns `read` of it.
    #[allow(clippy::too_many_arguments)]
    pub fn find_under<'g>(
        &self,
        table: &'g Table,
        index: &Index,
        key: &[u8],
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        restrictions: &[Restriction],
        read: ColumnSet,
        guard: &'g Guard,
    ) -> Option<RowId> {
        let bounds = (Bound::Included(key), Bound::Included(key));
        self.note_range(table, index, bounds, false, None, restrictions, read);
        table.find(index, key, self.snapshot, columns, cells, guard)
    }

    /// The visible rows under `count` full keys of a unique index, with columns of them; see
    /// [`Table::find_many`]. Faster than one after another when the rows are not in a cache.
    #[allow(clippy::too_many_arguments)]
    pub fn find_many<'g, const N: usize>(
        &self,
        table: &'g Table,
        index: &Index,
        count: usize,
        encode: &mut dyn FnMut(usize, &mut KeyBuffer),
        columns: &[ColumnId; N],
        guard: &'g Guard,
        visit: &mut dyn FnMut(usize, Found<'_, 'g, N>),
    ) {
        let read = columns.iter().copied().collect::<ColumnSet>().union(index.columns());
        let mut missing: SmallVec<[usize; 4]> = SmallVec::new();
        table.find_many(index, count, encode, self.snapshot, columns, guard, &mut |number, found| {
            match &found {
                Some((row, _)) => self.note(|reads| reads.row(table.id(), *row, read)),
                None => missing.push(number),
            }
            visit(number, found);
        });
        for number in missing {
            let mut key = KeyBuffer::new();
            encode(number, &mut key);
            self.note(|reads| reads.nothing(table.id(), index, &key));
        }
    }

    /// Prefetches the memory that reading or changing `columns` of a row touches, while the transaction does something else. A
    /// row that is in no cache costs a microsecond otherwise.
    #[inline]
    pub fn prefetch(&self, table: &Table, row: RowId, columns: &[ColumnId]) {
        table.prefetch(row, columns);
    }

    /// Calls `visit` with every visible row whose key is within the bounds, in key order or against it, until
    /// `visit` returns false. Bounds as for [`Index::range`]. The order counts as read too, that is, the
    /// index's columns.
    #[allow(clippy::too_many_arguments)]
    pub fn range(
        &self,
        table: &Table,
        index: &Index,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
        guard: &Guard,
        visit: &mut dyn FnMut(RowId) -> bool,
    ) {
        self.range_under(table, index, (low, high), reverse, &[], index.columns(), guard, visit);
    }

    /// As [`Transaction::range`], for a caller that uses only rows that meet the restrictions, and [peeks](Transaction::peek) only
    /// at `columns` of them. It depends on the order only if the index's columns are among these.
    #[allow(clippy::too_many_arguments)]
    pub fn range_under(
        &self,
        table: &Table,
        index: &Index,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        restrictions: &[Restriction],
        columns: ColumnSet,
        guard: &Guard,
        visit: &mut dyn FnMut(RowId) -> bool,
    ) {
        let mut end = None;
        index.range(low, high, reverse, guard, &mut |key, row| {
            let continues = !table.sees(index, key, row, self.snapshot, guard) || visit(row);
            if !continues {
                end = Some(KeyBuffer::from_slice(key));
            }
            continues
        });
        self.note_range(table, index, (low, high), reverse, end.as_ref(), restrictions, columns);
    }

    /// Notes the part of a range of an index that was read: up to `end`, if reading stopped there.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn note_range(
        &self,
        table: &Table,
        index: &Index,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        end: Option<&KeyBuffer>,
        restrictions: &[Restriction],
        columns: ColumnSet,
    ) {
        let (low, high) = match end.map(|key| Bound::Included(key.as_slice())) {
            None => (low, high),
            Some(end) if reverse => (end, high),
            Some(end) => (low, end),
        };
        self.note(|reads| reads.range(table, index, (low, high), restrictions, columns));
    }

    /// As [`Transaction::range`]; `visit` also gets `columns` of each row.
    #[allow(clippy::too_many_arguments)]
    pub fn range_read<'g, const N: usize>(
        &self,
        table: &'g Table,
        index: &Index,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        columns: &[ColumnId; N],
        guard: &'g Guard,
        visit: &mut dyn FnMut(RowId, &[Cell<'g>; N]) -> bool,
    ) {
        let end = table.range(index, (low, high), reverse, self.snapshot, columns, guard, visit);
        let read = columns.iter().copied().collect::<ColumnSet>().union(index.columns());
        self.note_range(table, index, (low, high), reverse, end.as_ref(), &[], read);
    }

    /// Counts all rows of the ranges and tables that it has searched as read, whatever the conditions were: the error after which
    /// it continues may be due to any of them.
    pub fn widen_reads(&mut self) {
        self.take_notes();
        self.reads.get_mut().widen();
    }

    /// Notes that it has read every row that meets the restrictions, `columns` of each.
    pub fn note_scan(&self, table: &Table, restrictions: &[Restriction], columns: ColumnSet) {
        self.note(|reads| reads.scan(table, restrictions, columns));
    }

    /// Whether this transaction sees a row under a full key of a unique index: the check of a foreign
    /// key's referencing side. 40001 if another transaction is deleting or moving that row, or has since
    /// this one began; also if it has restored the row, and may still undo that.
    ///
    /// Call it after inserting the referencing row: then of this transaction and one that deletes the
    /// referenced row at the same time, at least one sees the other.
    pub fn reference_target_exists(
        &self,
        table: &Table,
        index: &Index,
        key: &[u8],
        guard: &Guard,
    ) -> Result<bool> {
        let Some(row) = self.get(table, index, key, guard) else { return Ok(false) };
        // In this order: the changes of a transaction that ended before the first check are final, and one that begins after it
        // finds the referencing row.
        table.check_key_stays(row, self.snapshot, guard)?;
        match table.stands_in_place(index, key, row) {
            true => Ok(true),
            false => Err(table.conflict(row, self.snapshot, guard)),
        }
    }

    /// Whether this transaction sees a row whose key begins with `prefix`: the check of the referencing
    /// table after a referenced row was deleted. 40001 if another transaction is inserting or removing
    /// such a row, or has since this one began.
    pub fn referencing_row_exists(
        &self,
        table: &Table,
        index: &Index,
        prefix: &[u8],
        guard: &Guard,
    ) -> Result<bool> {
        let mut exists = false;
        self.referencing_rows(table, index, prefix, guard, &mut |_| {
            exists = true;
            false
        })?;
        Ok(exists)
    }

    /// Calls `visit` with the rows that [`Transaction::referencing_row_exists`] searches for, until it returns false. 40001 if
    /// another transaction may add such a row, or is removing one.
    pub fn referencing_rows(
        &self,
        table: &Table,
        index: &Index,
        prefix: &[u8],
        guard: &Guard,
        visit: &mut dyn FnMut(RowId) -> bool,
    ) -> Result<()> {
        let (mut outcome, mut exists) = (Ok(()), false);
        let bounds = (Bound::Included(prefix), Bound::Included(prefix));
        index.range(bounds.0, bounds.1, false, guard, &mut |key, row| {
            if table.sees(index, key, row, self.snapshot, guard) {
                // Another transaction is removing the row, and may commit or roll back.
                if !table.stands_in_place(index, key, row) && table.changed_unseen(row, self.snapshot, guard)
                {
                    outcome = Err(table.conflict(row, self.snapshot, guard));
                    return false;
                }
                exists = true;
                return visit(row);
            }
            if table.changed_unseen(row, self.snapshot, guard)
                && table.may_come_to_stand(index, key, row, self.snapshot, guard)
            {
                outcome = Err(table.conflict(row, self.snapshot, guard));
            }
            outcome.is_ok()
        });
        if outcome.is_ok() && (exists || self.continues_after_error) {
            // As long as the delete is in place, the conflict above prevents others from adding such a row.
            self.note_range(table, index, bounds, false, None, &[], ColumnSet::NONE);
        }
        outcome
    }
}
