//! The operations of a [`Table`] on rows as tuples. The protocols are those of `crate::table` and
//! `crate::block`; errors are those of the functions of the same name there.

use super::{Misfit, Place, Projection, Row};
use crate::block::{Block, RawCell, set_bits};
use crate::index::{AT_ONCE, Runs};
use crate::row_lock::RowLock;
use crate::version::Change;
use crate::{Guard, Index, KeyBuffer, Table, WriteSet};
use firn_base::sync::{Ordering, fence};
use firn_base::{ColumnId, Result, RowId, Slot, Snapshot};
use smallvec::SmallVec;
use std::ops::Bound;

/// The result of a search for some keys of a unique index, at most [`Rows::MOST`]. The rows' values are being
/// prefetched.
#[derive(Clone, Copy)]
pub struct Rows {
    found: [std::result::Result<Option<RowId>, ()>; AT_ONCE],
    count: usize,
}

impl Rows {
    /// How many keys are searched for at once.
    pub const MOST: usize = AT_ONCE;
}

impl Block {
    /// As [`Block::read`], for a row of known types.
    #[inline(always)]
    fn read_as<'g, R: Row>(
        &'g self,
        slot: Slot,
        snapshot: Snapshot,
        projection: &Projection<R>,
        guard: &'g Guard,
    ) -> Option<R::Values<'g>> {
        self.check(slot);
        let layouts = projection.layouts(self);
        let place = Place { block: self, at: slot.index() };
        loop {
            let head = self.head(slot, guard);
            if !self.sees_newest(head, snapshot) || self.is_compact() {
                return self.read_slowly_as(slot, snapshot, projection, guard);
            }
            let present = self.is_present(slot);
            // SAFETY: the slot is checked, and the columns are this block's.
            let raws = unsafe { R::load(place, layouts) };
            // Pairs with the release fence in `link`.
            fence(Ordering::Acquire);
            if self.head(slot, guard) == head {
                return present.then(|| R::values(place, raws));
            }
            std::hint::spin_loop();
        }
    }

    #[cold]
    fn read_slowly_as<'g, R: Row>(
        &'g self,
        slot: Slot,
        snapshot: Snapshot,
        projection: &Projection<R>,
        guard: &'g Guard,
    ) -> Option<R::Values<'g>> {
        let mut raw: SmallVec<[RawCell; 16]> = SmallVec::from_elem(RawCell::default(), R::LEN);
        let place = Place { block: self, at: slot.index() };
        self.read_raw(slot, snapshot, projection.columns(), &mut raw, guard)
            .then(|| R::values(place, R::raws(&raw)))
    }

    #[inline(always)]
    fn prefetch_as<R: Row>(&self, slot: Slot, projection: &Projection<R>) {
        self.prefetch_head(slot);
        if self.prefetch_compact(slot, projection.columns()) {
            return;
        }
        self.prefetch_present(slot.index());
        R::prefetch(Place { block: self, at: slot.index() }, projection.layouts(self));
    }

    /// As [`Block::prefetch_further`].
    #[inline(always)]
    fn prefetch_further_as<R: Row>(&self, slot: Slot, projection: &Projection<R>, guard: &Guard) {
        self.check(slot);
        self.prefetch_newest(slot, guard);
        if let Some(compact) = self.compact() {
            return compact.prefetch_further(slot.index(), projection.columns());
        }
        let place = Place { block: self, at: slot.index() };
        // SAFETY: just checked, and the columns are this block's.
        unsafe { R::prefetch_further(place, projection.layouts(self)) };
    }
}

impl Table {
    /// Columns of this table, to be read or set as values of `R`'s types.
    pub fn projection<R: Row>(&self, columns: &[ColumnId]) -> std::result::Result<Projection<R>, Misfit> {
        Projection::new(self.columns(), self.shared_layout(), columns)
    }

    /// Reads a row; `None` if `snapshot` does not see it.
    #[inline]
    pub fn read_as<'g, R: Row>(
        &'g self,
        snapshot: Snapshot,
        row: RowId,
        projection: &Projection<R>,
        guard: &'g Guard,
    ) -> Option<R::Values<'g>> {
        self.block(row).read_as(row.slot(), snapshot, projection, guard)
    }

    /// The row that `snapshot` sees under a full key of a unique index.
    #[inline]
    pub fn find_as<'g, R: Row>(
        &'g self,
        index: &Index,
        key: &[u8],
        snapshot: Snapshot,
        projection: &Projection<R>,
        guard: &'g Guard,
    ) -> Option<(RowId, R::Values<'g>)> {
        let mut found = None;
        index.lookup(key, guard, &mut |row| {
            found = self.sees_as(index, key, row, snapshot, projection, guard).map(|values| (row, values));
            found.is_none()
        });
        found
    }

    /// Reads a row if `snapshot` sees it under `key` of `index`.
    #[inline(always)]
    fn sees_as<'g, R: Row>(
        &'g self,
        index: &Index,
        key: &[u8],
        row: RowId,
        snapshot: Snapshot,
        projection: &Projection<R>,
        guard: &'g Guard,
    ) -> Option<R::Values<'g>> {
        if self.have_keys_changed() && !self.has_key(index, key, row, snapshot, guard) {
            return None;
        }
        self.read_as(snapshot, row, projection, guard)
    }

    /// Searches for the rows under `keys`, at most [`Rows::MOST`], all together, and prefetches what reading
    /// them will touch. [`Table::read_located`] reads them later, under the same guard: the more work is done
    /// before, the less time is spent waiting.
    #[inline]
    pub fn locate<K: Row, R: Row>(
        &self,
        index: &Index,
        keys: &[K::Values<'_>],
        projection: &Projection<R>,
        guard: &Guard,
    ) -> Rows {
        assert!(keys.len() <= Rows::MOST);
        let mut buffers = [const { KeyBuffer::new() }; AT_ONCE];
        for (key, buffer) in keys.iter().zip(&mut buffers) {
            index.encode_as::<K>(key, buffer);
        }
        let mut rows = Rows { found: [Ok(None); AT_ONCE], count: keys.len() };
        index.only_many(&buffers[..keys.len()], &mut rows.found[..keys.len()], guard);
        self.prefetch_rows_as(&rows, projection);
        rows
    }

    /// Prefetches what reading or setting these columns of some rows touches.
    #[inline]
    pub fn prefetch_rows_as<R: Row>(&self, rows: &Rows, projection: &Projection<R>) {
        for row in rows.found[..rows.count].iter().filter_map(|found| found.ok().flatten()) {
            self.prefetch_as(row, projection);
        }
    }

    /// Calls `visit` with the rows of [`Table::locate`], by the number of their key and in that order.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    pub fn read_located<'g, K: Row, R: Row>(
        &'g self,
        index: &Index,
        keys: &[K::Values<'_>],
        rows: &Rows,
        snapshot: Snapshot,
        projection: &Projection<R>,
        guard: &'g Guard,
        visit: &mut impl FnMut(usize, Option<(RowId, R::Values<'g>)>),
    ) {
        assert!(keys.len() == rows.count);
        let found = &rows.found[..rows.count];
        for row in found.iter().filter_map(|found| found.ok().flatten()) {
            self.block(row).prefetch_further_as(row.slot(), projection, guard);
        }
        for (number, found) in found.iter().enumerate() {
            let seen = match *found {
                Ok(None) => None,
                // Checked after the look-up: a transaction that changes a row's key sets this before. A dead
                // row's slot may have been given to a new row meanwhile, which only its own transaction sees.
                Ok(Some(row)) if !self.have_keys_changed() && !self.is_headed_by(row, snapshot, guard) => {
                    self.read_as(snapshot, row, projection, guard).map(|values| (row, values))
                }
                _ => {
                    let mut key = KeyBuffer::new();
                    index.encode_as::<K>(&keys[number], &mut key);
                    self.find_as(index, &key, snapshot, projection, guard)
                }
            };
            visit(number, seen);
        }
    }

    /// Whether the newest change of a row is the snapshot's own.
    #[inline(always)]
    fn is_headed_by(&self, row: RowId, snapshot: Snapshot, guard: &Guard) -> bool {
        let head = self.block(row).head(row.slot(), guard);
        // The attic has nothing of running transactions.
        !head.is_kept() && head.record().is_some_and(|record| record.stamp() == snapshot.owner)
    }

    /// As [`Table::find_as`] for any number of keys; calls `visit` in their order. While some rows are read
    /// the next ones are being fetched.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    pub fn find_many_as<'g, K: Row, R: Row>(
        &'g self,
        index: &Index,
        keys: &[K::Values<'_>],
        snapshot: Snapshot,
        projection: &Projection<R>,
        guard: &'g Guard,
        visit: &mut impl FnMut(usize, Option<(RowId, R::Values<'g>)>),
    ) {
        let mut chunks = keys.chunks(Rows::MOST);
        let mut current =
            chunks.next().map(|chunk| (chunk, self.locate::<K, R>(index, chunk, projection, guard)));
        let mut first = 0;
        while let Some((chunk, rows)) = current {
            current =
                chunks.next().map(|chunk| (chunk, self.locate::<K, R>(index, chunk, projection, guard)));
            self.read_located::<K, R>(
                index,
                chunk,
                &rows,
                snapshot,
                projection,
                guard,
                &mut |number, row| {
                    visit(first + number, row);
                },
            );
            first += chunk.len();
        }
    }

    /// Calls `visit` with the rows that `snapshot` sees between bounds of an index, in key order or against
    /// it, until it returns false; then returns the key that was reached.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    pub fn range_as<'g, R: Row>(
        &'g self,
        index: &Index,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        snapshot: Snapshot,
        projection: &Projection<R>,
        guard: &'g Guard,
        visit: &mut impl FnMut(RowId, R::Values<'g>) -> bool,
    ) -> Option<KeyBuffer> {
        let mut end = None;
        let mut ahead = |row: RowId| {
            if let Some(block) = self.blocks().get(row.block()) {
                block.prefetch_as(row.slot(), projection);
            }
        };
        index.range_ahead(bounds, reverse, guard, &mut ahead, &mut |key, row| {
            let continues = match self.sees_as(index, key, row, snapshot, projection, guard) {
                Some(values) => visit(row, values),
                None => true,
            };
            if !continues {
                end = Some(KeyBuffer::from_slice(key));
            }
            continues
        });
        end
    }

    /// Prefetches what reading or setting these columns of a row touches.
    #[inline]
    pub fn prefetch_as<R: Row>(&self, row: RowId, projection: &Projection<R>) {
        if let Some(block) = self.blocks().get(row.block()) {
            block.prefetch_as(row.slot(), projection);
        }
    }

    /// Inserts a row; `projection` has all columns in order.
    #[inline]
    pub fn insert_as<R: Row>(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        projection: &Projection<R>,
        values: &R::Values<'_>,
        guard: &Guard,
    ) -> Result<RowId> {
        let cells = R::cells(values);
        assert!(R::LEN == self.columns().len(), "a row has all columns");
        let (block, slot) = self.allocate_slot()?;
        block.check(slot);
        let record = write_set.push_plain(block, slot, Change::Insert);
        block.prepare_write();
        self.link_fresh(block, record);
        self.count_rows(1);
        let place = Place { block, at: slot.index() };
        let layouts = projection.layouts(block);
        // Rows are filled one after another, so the cache lines have arrived when they are needed.
        block.prefetch_to_write(slot, layouts.as_ref());
        // SAFETY: the slot is checked, the columns are this block's, and the row is ours.
        unsafe { R::store(place, layouts, values) };
        // Last; see `Table::insert`.
        block.set_present(slot, true);
        let id = block.row(slot);
        if let Some(redo) = write_set.redo_of(self) {
            redo.insert(self.id(), id, cells.as_ref());
        }
        write_set.count_row(self.budget());
        self.enter_row(id, cells.as_ref(), None, snapshot, guard)?;
        Ok(id)
    }

    /// Inserts rows: one undo record and one redo record for all consecutive ones. `projection` has all
    /// columns in order.
    #[inline]
    pub fn insert_rows_as<R: Row>(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        projection: &Projection<R>,
        mut rows: &[R::Values<'_>],
        guard: &Guard,
    ) -> Result<()> {
        assert!(R::LEN == self.columns().len(), "a row has all columns");
        // Slots of dead rows are not consecutive.
        while let [row, rest @ ..] = rows
            && (rest.is_empty() || self.has_free_slots())
        {
            self.insert_as(write_set, snapshot, projection, row, guard)?;
            rows = rest;
        }
        let mut key = KeyBuffer::new();
        while !rows.is_empty() {
            let wanted = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            let (block, first, count) = self.allocate_slots(wanted)?;
            block.check(Slot(first.0 + count - 1));
            let (stretch, rest) = rows.split_at(count as usize);
            let record = write_set.push_insert_many(block, first, count);
            block.prepare_write();
            self.link_many(block, record);
            self.count_rows(i64::from(count));
            let layouts = projection.layouts(block);
            block.prefetch_to_write(Slot(first.0 + count), layouts.as_ref());
            // SAFETY: the slots are checked, the columns are this block's, and the rows are ours.
            unsafe { R::store_rows(Place { block, at: first.index() }, layouts, stretch) };
            set_bits(block.present_words(), first, count);
            if let Some(redo) = write_set.redo_of(self) {
                redo.insert_batch(self.id(), block.row(first), count, R::LEN as u16, |column, cells| {
                    R::log_column(stretch, column.index(), cells);
                });
            }
            write_set.count_growth(self.budget());
            for index in self.indexes_now(guard).iter() {
                let mut runs = Runs::new(index);
                let mut enter = |key: &[u8], row| self.enter(index, key, row, snapshot, guard);
                for (offset, row) in (0..).zip(stretch) {
                    let cells = R::cells(row);
                    key.clear();
                    index.encode_with(|column| cells.as_ref()[column.index()], &mut key);
                    runs.add(&key, block.row(Slot(first.0 + offset)), guard, &mut enter)?;
                }
                runs.finish(guard, &mut enter)?;
            }
            rows = rest;
        }
        Ok(())
    }

    /// Sets columns of a row that `snapshot` sees.
    #[inline]
    pub fn update_as<R: Row>(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        projection: &Projection<R>,
        values: &R::Values<'_>,
        guard: &Guard,
    ) -> Result<()> {
        let cells = R::cells(values);
        if self.may_index(projection.set(), guard) {
            return self.update(write_set, snapshot, row, projection.columns(), cells.as_ref(), guard);
        }
        let block = self.block(row);
        let slot = row.slot();
        block.check(slot);
        let layouts = projection.layouts(block);
        let place = Place { block, at: slot.index() };
        block.prepare_write();
        if block.is_compact() {
            return self.update(write_set, snapshot, row, projection.columns(), cells.as_ref(), guard);
        }
        loop {
            let head = block.head(slot, guard);
            self.check_conflict(block, head, snapshot, RowLock::Update, guard)?;
            self.check_sharers(row, snapshot, || RowLock::NoKeyUpdate)?;
            // If another writer changes the columns meanwhile, linking fails.
            let record = write_set.push_update(block, slot, R::LEN, |entries| {
                // SAFETY: the slot is checked, and the columns are this block's.
                unsafe { R::remember(place, projection.ids(), layouts, entries) };
            });
            if block.link(record, head) {
                break;
            }
            // Another writer was first, or the collector has removed the head: check again.
            write_set.pop();
        }
        self.check_sharers(row, snapshot, || RowLock::NoKeyUpdate)?;
        assert!(block.is_present(slot), "only rows that the snapshot sees are updated");
        // SAFETY: as above, and the row is ours.
        unsafe { R::store(place, layouts, values) };
        if let Some(redo) = write_set.redo_of(self) {
            redo.update(self.id(), row, projection.columns(), cells.as_ref());
        }
        write_set.count_row(self.budget());
        Ok(())
    }
}
