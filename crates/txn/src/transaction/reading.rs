//! What a transaction reads, and notes for its validation.

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

    /// As [`Transaction::read`], of a row in a stretch whose reading is noted as a whole.
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

    /// The visible rows under `count` full keys of a unique index, with columns of them; see
    /// [`Table::find_many`]. Quicker than one after another when the rows are not in a cache.
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

    /// Asks the processor to fetch what reading or changing `columns` of a row touches. It comes while the
    /// transaction does something else; a row that is in no cache costs a microsecond otherwise.
    #[inline]
    pub fn prefetch(&self, table: &Table, row: RowId, columns: &[ColumnId]) {
        table.prefetch(row, columns);
    }

    /// Calls `visit` with every visible row whose key lies in the bounds, in key order or against
    /// it, until `visit` returns false. Bounds as for [`Index::range`]. The order is read as well: that is, the index's columns.
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

    /// As [`Transaction::range`], for a caller who goes on only with rows that meet the restrictions, and
    /// [peeks](Transaction::peek) at no columns of them but these; and minds the order only if the index's are among them.
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
            let goes_on = !table.sees(index, key, row, self.snapshot, guard) || visit(row);
            if !goes_on {
                end = Some(KeyBuffer::from_slice(key));
            }
            goes_on
        });
        self.note_range(table, index, (low, high), reverse, end.as_ref(), restrictions, columns);
    }

    /// Notes the part of a stretch of an index that was read: as far as `end`, if it was left there.
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

    /// As [`Transaction::range`], and reads `columns` of each row into `cells` before `visit` gets it.
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

    /// Counts all rows of what it has looked through as read, whatever was asked of them: an error that it has been told and goes
    /// on after may have come of any.
    pub fn widen_reads(&mut self) {
        self.reads.get_mut().widen();
    }

    /// Notes that it has read every row that meets the restrictions, `columns` of each.
    pub fn note_scan(&self, table: &Table, restrictions: &[Restriction], columns: ColumnSet) {
        self.note(|reads| reads.scan(table, restrictions, columns));
    }

    /// Whether a row that this transaction sees stands under a full key of a unique index: what a
    /// foreign key asks before it points there. 40001 if another transaction is deleting or moving
    /// that row, or has since this one began; also if it has put it back, and may yet take that back.
    ///
    /// Ask after inserting the pointing row: of a concurrent delete and this, at least one then
    /// sees the other (seed 000 §2.2.5, and its missing direction below).
    pub fn reference_target_exists(
        &self,
        table: &Table,
        index: &Index,
        key: &[u8],
        guard: &Guard,
    ) -> Result<bool> {
        let Some(row) = self.get(table, index, key, guard) else { return Ok(false) };
        // In this order: who has ended before the first look lies in place for good, and who begins after it finds the pointing row.
        table.check_key_stays(row, self.snapshot, guard)?;
        match table.stands_in_place(index, key, row) {
            true => Ok(true),
            false => Err(table.conflict(row, self.snapshot, guard)),
        }
    }

    /// Whether a row that this transaction sees has a key that begins with `prefix`: what deleting
    /// a referenced row asks of the referencing table, after the delete. 40001 if another
    /// transaction is inserting such a row or taking it away, or has since this one began.
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

    /// Calls `visit` with the rows that [`Transaction::referencing_row_exists`] asks for, until it returns false. 40001 if
    /// another transaction may come to have one beside those, or takes one of them away.
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
                // Whoever takes it away just now may be through with that soon, or not.
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
            // That there is no other is kept so by the conflict above as long as the delete stands.
            self.note_range(table, index, bounds, false, None, &[], ColumnSet::NONE);
        }
        outcome
    }
}
