//! A table: a list of blocks, the rows in them, and the indexes over them.
//!
//! Every change has the same steps: check for a conflict, write an undo record, link it, change the row in
//! place, append the redo image, maintain the indexes. After an error the caller rolls the write set back to
//! a mark that it took before, which undoes a partial change as well. Rows that are inserted into a private
//! table (`table/private.rs`) have no linked records, and no change of one is logged.
//!
//! Invariants:
//! - An index has an entry for every key of every version of a row, except waiting keys (`index/waiting.rs`)
//!   of a running statement. It has further entries only until they are collected.
//! - A slot is given out again only when no snapshot can see anything in it. Tables of replicas are an exception
//!   (`table/replay.rs`).

mod claims;
mod duplicates;
mod keys;
mod locks;
mod main;
mod private;
mod purge;
mod replay;
mod restore;
mod sample;
mod slots;

use crate::arrow_rows::BatchRows;
use crate::block::{Block, set_bits};
use crate::budget::MemoryBudget;
use crate::column::ColumnSpec;
use crate::directory::Directory;
use crate::gate::Gate;
use crate::heads::Head;
use crate::index::{AT_ONCE, IndexList, Packed, Runs, Verdict, WaitingKeys, append_packed};
use crate::layout::Layout;
use crate::region::PLACE_BYTES;
use crate::row_lock::{RowLock, Sharers};
use crate::shared::CountedMemory;
use crate::version::{Change, Record};
use crate::{Guard, Index, KeyBuffer, TableScan, WriteSet};
use arrow_array::ArrayRef;
use firn_base::sync::{
    Arc, AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Mutex, OnceLock, Ordering, RwLock, Weak,
};
use firn_base::types::Width;
use firn_base::{BlockNumber, Cell, ColumnId, ColumnSet, Result, RowId, Slot, Snapshot, TableId};
use firn_log::CellWriter;
use keys::{key_columns, key_in_place, key_of};
pub(crate) use purge::{Purges, ReplacedKeys};
pub use restore::Restored;
pub use slots::Move;
use smallvec::SmallVec;
use std::any::Any;
use std::collections::HashSet;
use std::ops::{Bound, Range};

/// Rows to be inserted together.
pub(crate) trait Rows<'c> {
    /// How many.
    fn len(&self) -> usize;
    /// One cell.
    fn cell(&self, row: usize, column: usize) -> Cell<'c>;
    /// Copies `count` rows from row `from` on into the slots from `first` on.
    fn store(&self, from: usize, count: u32, block: &Block, first: Slot);
    /// Writes one column of some rows as redo cells.
    fn log(&self, rows: Range<usize>, column: usize, cells: &mut CellWriter<'_>) {
        cells.extend(rows.map(|row| self.cell(row, column)));
    }
    /// Appends a column of `bytes` bytes to keys of some rows; see [`append_packed`].
    fn append_to_keys(&self, rows: Range<usize>, column: usize, bytes: usize, keys: &mut [Packed]) {
        keys.iter_mut()
            .zip(rows)
            .for_each(|(key, row)| append_packed(key, self.cell(row, column).word(), bytes));
    }
}

impl<'c, const N: usize> Rows<'c> for &[[Cell<'c>; N]] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    #[inline]
    fn cell(&self, row: usize, column: usize) -> Cell<'c> {
        self[row][column]
    }

    fn store(&self, from: usize, count: u32, block: &Block, first: Slot) {
        let rows = &self[from..from + count as usize];
        for column in 0..N {
            block.store_column(first, count, ColumnId(column as u16), rows.iter().map(|row| row[column]));
        }
    }
}

/// A row that a look-up has found, with some columns; `None` if there is none.
pub type Found<'a, 'g, const N: usize> = Option<(RowId, &'a [Cell<'g>; N])>;

/// Sizes of a table's parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableUsage {
    /// Blocks.
    pub blocks: u64,
    /// Slots of dead rows that new rows will use.
    pub free_slots: u64,
    /// Slots that scans search for versions.
    pub versioned_slots: u64,
    /// Bytes of blocks.
    pub row_bytes: u64,
    /// Bytes of long strings.
    pub string_bytes: u64,
    /// Bytes of chain heads.
    pub head_bytes: u64,
    /// Bytes of the indexes.
    pub index_bytes: u64,
}

impl TableUsage {
    /// All bytes but those of indexes.
    pub fn bytes(&self) -> u64 {
        self.row_bytes + self.string_bytes + self.head_bytes
    }
}

/// The block size of a table, and the budget of its memory.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// Bytes of a block; tests use small ones so that rows soon fill several blocks.
    pub block_bytes: usize,
    /// The budget that counts its memory.
    pub budget: Arc<MemoryBudget>,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions { block_bytes: 1 << 20, budget: Arc::default() }
    }
}

/// Locks under which the indexed columns of a row change and are read in place. Nothing else is done under
/// one, and no other lock is taken.
const KEY_LOCKS: usize = 64;

/// A physical table.
pub struct Table {
    this: Weak<Table>,
    id: TableId,
    name: RwLock<Arc<str>>,
    columns: Box<[ColumnSpec]>,
    layout: Arc<Layout>,
    blocks: Directory,
    indexes: IndexList,
    /// Removed indexes without values, as long as they are referenced.
    taken_off: Mutex<Vec<Weak<Index>>>,
    /// The block from which fresh slots are taken.
    filling: AtomicU64,
    /// Blocks without rows whose memory was freed; they are filled before new ones. The holder of the lock
    /// decides which block is filled next.
    emptied: Mutex<Vec<BlockNumber>>,
    /// The memory that they share.
    nothing: OnceLock<Arc<CountedMemory>>,
    /// In the tables of a replica, whose rows get the slots that the log names: the slots without a row and without versions
    /// that have been passed. `free` is empty then. None once the replica has become a primary.
    vacant: OnceLock<Mutex<Option<HashSet<RowId>>>>,
    /// Slots of dead rows; they are used before new ones.
    free: Mutex<Vec<RowId>>,
    free_count: AtomicUsize,
    rows: AtomicI64,
    key_locks: [Mutex<()>; KEY_LOCKS],
    /// Whether an update ever changed an indexed column. Until then the key of an entry found in an index
    /// need not be checked.
    keys_changed: AtomicBool,
    gate: Gate,
    /// Whether other transactions than the one that has made it may find it.
    published: AtomicBool,
    sharers: Sharers,
    main: main::Main,
    /// The planner's data for the table.
    estimates: RwLock<Option<Arc<dyn Any + Send + Sync>>>,
    budget: Arc<MemoryBudget>,
}

impl Table {
    /// An empty table. `name` is for messages only.
    pub fn new(id: TableId, name: &str, columns: Vec<ColumnSpec>, options: TableOptions) -> Arc<Table> {
        let layout = Arc::new(Layout::new(&columns, options.block_bytes));
        options.budget.expect_blocks(layout.bytes);
        Arc::new_cyclic(|this| Table {
            this: this.clone(),
            id,
            name: RwLock::new(name.into()),
            columns: columns.into(),
            layout,
            blocks: Directory::new(),
            indexes: IndexList::new(),
            taken_off: Mutex::new(Vec::new()),
            filling: AtomicU64::new(slots::NONE),
            emptied: Mutex::new(Vec::new()),
            nothing: OnceLock::new(),
            vacant: OnceLock::new(),
            free: Mutex::new(Vec::new()),
            free_count: AtomicUsize::new(0),
            rows: AtomicI64::new(0),
            key_locks: [const { Mutex::new(()) }; KEY_LOCKS],
            keys_changed: AtomicBool::new(false),
            gate: Gate::default(),
            published: AtomicBool::new(true),
            sharers: Sharers::default(),
            main: main::Main::default(),
            estimates: RwLock::new(None),
            budget: options.budget,
        })
    }

    /// The id in the log and in the catalog.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The name in messages.
    pub fn name(&self) -> Arc<str> {
        self.name.read().clone()
    }

    /// Changes the name in messages.
    pub fn rename(&self, name: &str) {
        *self.name.write() = name.into();
    }

    /// The columns, dropped ones included.
    pub fn columns(&self) -> &[ColumnSpec] {
        &self.columns
    }

    /// The gate that controls writes.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The indexes that every change maintains.
    pub fn indexes(&self) -> Arc<[Arc<Index>]> {
        self.indexes.get(&crate::pin()).all().clone()
    }

    /// Adds an index; from now on every change maintains it. The caller fills it with the existing rows and
    /// keeps writers out meanwhile.
    pub fn add_index(&self, index: Arc<Index>) {
        index.belong_to(&self.this, &self.budget);
        self.indexes.replace(|all| all.iter().cloned().chain([index]).collect());
    }

    /// Removes an index; it is no longer maintained.
    pub fn remove_index(&self, index: &Arc<Index>) {
        // First, so that it is always in one of the lists.
        if !index.spec().values {
            self.taken_off.lock().push(Arc::downgrade(index));
        }
        self.indexes.replace(|all| all.iter().filter(|kept| !Arc::ptr_eq(kept, index)).cloned().collect());
    }

    /// Whether it has columns of strings.
    pub fn has_strings(&self) -> bool {
        self.columns.iter().any(|column| column.representation.width() == Width::View)
    }

    /// The budget that counts its memory.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Whether rows can be inserted without a new block.
    pub fn has_free_slots(&self) -> bool {
        self.free_count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn shared_layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    pub(crate) fn blocks(&self) -> &Directory {
        &self.blocks
    }

    #[inline]
    pub(crate) fn block(&self, row: RowId) -> &Block {
        self.blocks.get(row.block()).expect("row ids refer to existing blocks")
    }

    // ---- insert ----

    /// Inserts a row with one cell per column, into the indexes too. The table is
    /// [registered](WriteSet::touch) with the write set.
    ///
    /// Errors: 23505 naming the unique index; 40001 if another running or later transaction holds the key;
    /// 53200 if there is no room for a new block. After an error the caller rolls the write set back to its
    /// former mark.
    pub fn insert(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: &[Cell<'_>],
        guard: &Guard,
    ) -> Result<RowId> {
        self.insert_into(self.allocate_slot()?, write_set, snapshot, row, None, guard)
    }

    /// As [`Table::insert`], into a slot that was given out for it. If the row continues another one, which
    /// the transaction has deleted, `from` is that row.
    fn insert_into(
        &self,
        (block, slot): (&Block, Slot),
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: &[Cell<'_>],
        from: Option<RowId>,
        guard: &Guard,
    ) -> Result<RowId> {
        debug_assert_eq!(row.len(), self.columns.len());
        let record = write_set.push_plain(block, slot, Change::Insert);
        block.prepare_write();
        self.link_fresh(block, record);
        self.rows.fetch_add(1, Ordering::Relaxed);
        block.store_row(slot, row);
        // Last: an index entry that was read just before may still refer to the slot's former row. A reader
        // that follows it must not see half a row.
        block.set_present(slot, true);
        let id = block.row(slot);
        if let Some(redo) = write_set.redo_of(self) {
            redo.insert(self.id, id, row);
        }
        write_set.count_row(&self.budget);
        self.enter_row(id, row, from, snapshot, guard)?;
        Ok(id)
    }

    /// Adds a fresh row to every index.
    pub(crate) fn enter_row(
        &self,
        row: RowId,
        cells: &[Cell<'_>],
        from: Option<RowId>,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> Result<()> {
        let mut key = KeyBuffer::new();
        for index in self.indexes.get(guard).all().iter() {
            key.clear();
            index.encode_with(|column| cells[column.index()], &mut key);
            self.enter_for(index, &key, row, from, snapshot, guard)?;
        }
        Ok(())
    }

    /// Adds one key of a row to one index, unless it violates uniqueness.
    #[inline]
    pub(crate) fn enter(
        &self,
        index: &Index,
        key: &[u8],
        row: RowId,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> Result<()> {
        self.enter_for(index, key, row, None, snapshot, guard)
    }

    /// As [`Table::enter`]; `from` is the row that this one continues, if there is one, which its transaction
    /// has deleted.
    #[inline]
    fn enter_for(
        &self,
        index: &Index,
        key: &[u8],
        row: RowId,
        from: Option<RowId>,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> Result<()> {
        if !index.spec().unique {
            index.insert(key, row, guard);
            return Ok(());
        }
        index.claim(key, row, guard, &mut |other| {
            // The row itself may still be listed: an update that restores its key.
            let is_own = other == row || Some(other) == from;
            if is_own { Ok(Verdict::Dead) } else { self.judge(index, key, other, snapshot, guard) }
        })
    }

    /// Inserts rows with one cell per column: one undo record and one redo record for all consecutive rows.
    /// Errors as for [`Table::insert`].
    pub fn insert_rows<const N: usize>(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        mut rows: &[[Cell<'_>; N]],
        guard: &Guard,
    ) -> Result<()> {
        // Slots of dead rows are not consecutive.
        while let [row, rest @ ..] = rows
            && (rest.is_empty() || self.free_count.load(Ordering::Relaxed) > 0)
        {
            self.insert(write_set, snapshot, row, guard)?;
            rows = rest;
        }
        self.insert_many(write_set, snapshot, &rows, None, guard)
    }

    /// Inserts whole columns (of the types of [`crate::arrow::data_type`]), all of one length, with one undo
    /// record for each interval of slots. Errors as for [`Table::insert`], with the ordinal of the row.
    pub fn insert_batch(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        columns: &[ArrayRef],
        guard: &Guard,
    ) -> Result<()> {
        self.insert_many(write_set, snapshot, &BatchRows::new(columns, &self.columns), None, guard)
    }

    /// As [`Table::insert_batch`], for rows whose keys may wait to enter the indexes, with those that wait
    /// already.
    pub fn insert_batch_waiting(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        columns: &[ArrayRef],
        waiting: &mut WaitingKeys,
        guard: &Guard,
    ) -> Result<()> {
        let rows = BatchRows::new(columns, &self.columns);
        self.insert_many(write_set, snapshot, &rows, Some(waiting), guard)
    }

    /// An empty list of waiting keys for the indexes of this table.
    pub fn waiting_keys(&self) -> WaitingKeys {
        WaitingKeys::new(&self.budget)
    }

    /// Enters waiting keys, on up to `threads` threads. They remain in the list, to be
    /// [cleared](WaitingKeys::clear) or entered once more. Errors as for [`Table::insert`], with the row; of
    /// several errors that of the first row.
    pub fn enter_waiting_keys(
        &self,
        waiting: &mut WaitingKeys,
        snapshot: Snapshot,
        threads: usize,
    ) -> Result<()> {
        let entered =
            waiting.enter(threads, &|index, key, row, guard| self.enter(index, key, row, snapshot, guard));
        entered.map_err(|refused| refused.error.with_row(refused.row))
    }

    /// Inserts rows into consecutive slots, block by block.
    fn insert_many<'c>(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        rows: &impl Rows<'c>,
        mut waiting: Option<&mut WaitingKeys>,
        guard: &Guard,
    ) -> Result<()> {
        let mut key = KeyBuffer::new();
        let mut done = 0;
        while done < rows.len() {
            let wanted = u32::try_from(rows.len() - done).unwrap_or(u32::MAX);
            let (block, first, count) = self.allocate_slots(wanted)?;
            if first == Slot(0) && count > 1 {
                // Larger ones come in pieces whose pages are prepared in advance.
                let expected = self.expected_string_bytes(block).filter(|bytes| *bytes <= PLACE_BYTES);
                block.heap().reserve_first(expected.unwrap_or(0));
            }
            let record = write_set.push_insert_many(block, first, count);
            block.prepare_write();
            self.link_many(block, record);
            self.rows.fetch_add(i64::from(count), Ordering::Relaxed);
            rows.store(done, count, block, first);
            set_bits(block.present_words(), first, count);
            let stretch = done..done + count as usize;
            if let Some(redo) = write_set.redo_of(self) {
                redo.insert_batch(
                    self.id,
                    block.row(first),
                    count,
                    self.columns.len() as u16,
                    |column, cells| rows.log(stretch.clone(), column.index(), cells),
                );
            }
            write_set.count_growth(&self.budget);
            for index in self.indexes.get(guard).all().iter() {
                let first_row = block.row(first);
                let width = index.packed_width();
                let packed = width.map(|width| (width, keys::packed_keys(rows, stretch.clone(), index)));
                let numbers = packed.as_ref().map(|(_, keys)| &keys[..]);
                // If none waits, ascending keys of unique indexes are as fast one by one.
                let ascend =
                    || index.spec().unique && numbers.is_some_and(|keys| keys.is_sorted_by(|a, b| a < b));
                let key_of = |offset: usize, key: &mut KeyBuffer| {
                    let row = stretch.start + offset;
                    index.encode_with(|column| rows.cell(row, column.index()), key);
                };
                if let Some(waiting) = waiting.as_deref_mut()
                    && !(waiting.has_none_of(index) && ascend())
                    && waiting.take(index, first_row, numbers, stretch.len(), key_of)
                {
                    continue;
                }
                let mut runs = Runs::new(index);
                let mut enter = |key: &[u8], row: RowId| {
                    let ordinal = stretch.start as u64 + u64::from(row.slot().0 - first.0);
                    self.enter(index, key, row, snapshot, guard).map_err(|error| error.with_ordinal(ordinal))
                };
                if let Some((width, keys)) = packed {
                    runs.add_packed(&keys, width, first_row, guard, &mut enter)?;
                    continue;
                }
                for (offset, row) in (0..).zip(stretch.clone()) {
                    key.clear();
                    index.encode_with(|column| rows.cell(row, column.index()), &mut key);
                    runs.add(&key, block.row(Slot(first.0 + offset)), guard, &mut enter)?;
                }
                runs.finish(guard, &mut enter)?;
            }
            done += count as usize;
        }
        Ok(())
    }

    /// How many bytes of strings a block will have, estimated from the one before it.
    fn expected_string_bytes(&self, block: &Block) -> Option<usize> {
        let before = self.blocks.get(BlockNumber(block.number.0.checked_sub(1)?))?;
        let bytes = before.heap().appended_bytes();
        (bytes > 0).then(|| bytes + bytes / 32)
    }

    /// Counts inserted rows; deleted ones if it is negative.
    #[inline]
    pub(crate) fn count_rows(&self, rows: i64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// The indexes that a change maintains now.
    #[inline]
    pub fn indexes_now<'g>(&'g self, guard: &'g Guard) -> &'g [Arc<Index>] {
        self.indexes.get(guard).all()
    }

    /// Whether there may be an index over one of these columns.
    #[inline]
    pub(crate) fn may_index(&self, columns: ColumnSet, guard: &Guard) -> bool {
        self.indexes.get(guard).columns().intersects(columns)
    }

    /// Whether an index entry may have a key that its row does not have any more.
    #[inline]
    pub(crate) fn have_keys_changed(&self) -> bool {
        self.keys_changed.load(Ordering::Acquire)
    }

    // ---- update, delete, lock ----

    /// Fails if a change by the owner of `snapshot`, or the lock that it takes, conflicts. A conflict is a
    /// change or a lock that the snapshot does not see.
    #[inline]
    pub(crate) fn check_conflict(
        &self,
        block: &Block,
        head: Head<'_>,
        snapshot: Snapshot,
        lock: RowLock,
        guard: &Guard,
    ) -> Result<()> {
        // Nothing behind it is younger.
        if block.sees_newest(head, snapshot) {
            return Ok(());
        }
        let mut next = head.record();
        while let Some(record) = next {
            if !record.is_void() {
                if record.is_seen_by(snapshot) {
                    return Ok(());
                }
                let is_own = record.stamp() == snapshot.owner;
                // Only one of the locks conflicts with some records and not with others.
                let conflicts =
                    || lock != RowLock::KeyShare || self.held_by(record, guard).conflicts_with(lock);
                if !is_own && conflicts() {
                    return Err(self.conflict_over(next, snapshot, lock, guard));
                }
            }
            next = record.older(guard);
        }
        Ok(())
    }

    /// Sets some columns of a row that `snapshot` sees. A row of a compact block is elsewhere afterwards
    /// ([`WriteSet::place_of`]), and a scan that its transaction has begun may reach it once more. Errors as
    /// for [`Table::insert`].
    pub fn update(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        columns: &[ColumnId],
        cells: &[Cell<'_>],
        guard: &Guard,
    ) -> Result<()> {
        debug_assert_eq!(columns.len(), cells.len());
        let block = self.block(row);
        let slot = row.slot();
        let wanted = || self.lock_of_update(columns.iter().copied(), guard);
        block.prepare_write();
        if let Some(compact) = block.compact() {
            return self.update_elsewhere(compact, write_set, snapshot, row, columns, cells, guard);
        }
        loop {
            let head = block.head(slot, guard);
            self.check_conflict(block, head, snapshot, RowLock::Update, guard)?;
            self.check_sharers(row, snapshot, wanted)?;
            // If another writer changes the columns meanwhile, linking fails.
            let record = write_set.push_update(block, slot, columns.len(), |entries| {
                columns.iter().for_each(|column| entries.put(*column, block.load_cell(slot, *column)));
            });
            if block.link(record, head) {
                break;
            }
            // Another writer was first, or the collector has removed the head: check again.
            write_set.pop();
        }
        self.check_sharers(row, snapshot, wanted)?;
        assert!(block.is_present(slot), "only rows that the snapshot sees are updated");
        let indexes = self.indexes.get(guard);
        if !indexes.columns().intersects(columns.iter().copied().collect()) {
            block.store(slot, columns, cells);
        } else {
            self.keys_changed.store(true, Ordering::Release);
            {
                let _turn = self.key_lock(row).lock();
                block.store(slot, columns, cells);
            }
            // Without the lock: a check of another row takes that row's lock.
            for index in indexes.all().iter().filter(|index| is_over(index, columns)) {
                let (key_columns, mut raw) = key_columns(index);
                for (column, raw) in key_columns.iter().zip(&mut raw) {
                    *raw = block.load_cell(slot, *column);
                }
                let key = key_of(block, index, &raw);
                self.enter(index, &key, row, snapshot, guard)?;
            }
        }
        if let Some(redo) = write_set.redo_of(self) {
            redo.update(self.id, row, columns, cells);
        }
        write_set.count_row(&self.budget);
        Ok(())
    }

    /// Deletes a row that `snapshot` sees. Error: 40001.
    pub fn delete(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        guard: &Guard,
    ) -> Result<()> {
        self.delete_for(write_set, snapshot, row, None, guard)
    }

    /// As [`Table::delete`]; `to` is where the row is put, if it is put elsewhere.
    fn delete_for(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        to: Option<RowId>,
        guard: &Guard,
    ) -> Result<()> {
        let block = self.block(row);
        let slot = row.slot();
        block.prepare_write();
        loop {
            let head = block.head(slot, guard);
            self.check_conflict(block, head, snapshot, RowLock::Update, guard)?;
            self.check_sharers(row, snapshot, || RowLock::Update)?;
            let record = match to {
                None => write_set.push_plain(block, slot, Change::Delete),
                Some(to) => write_set.push_move(block, slot, to),
            };
            if block.link(record, head) {
                break;
            }
            write_set.pop();
        }
        self.check_sharers(row, snapshot, || RowLock::Update)?;
        assert!(block.is_present(slot), "only rows that the snapshot sees are deleted");
        block.set_present(slot, false);
        self.rows.fetch_sub(1, Ordering::Relaxed);
        if let Some(redo) = write_set.redo_of(self) {
            redo.delete(self.id, row);
        }
        write_set.count_row(&self.budget);
        Ok(())
    }

    // ---- read ----

    /// Reads columns of a row into `cells` (as many as `columns`). Returns false if `snapshot` does not see
    /// the row.
    #[inline]
    pub fn read<'g>(
        &'g self,
        snapshot: Snapshot,
        row: RowId,
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        guard: &'g Guard,
    ) -> bool {
        debug_assert_eq!(columns.len(), cells.len());
        self.block(row).read(row.slot(), snapshot, columns, cells, guard)
    }

    /// Whether `snapshot` sees the row, with `key` of `index`.
    #[inline]
    pub fn sees(&self, index: &Index, key: &[u8], row: RowId, snapshot: Snapshot, guard: &Guard) -> bool {
        self.sees_with(index, key, row, snapshot, &[], &mut [], guard)
    }

    /// As [`Table::sees`]; also reads columns of the row.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub fn sees_with<'g>(
        &'g self,
        index: &Index,
        key: &[u8],
        row: RowId,
        snapshot: Snapshot,
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        guard: &'g Guard,
    ) -> bool {
        (!self.keys_changed.load(Ordering::Acquire) || self.has_key(index, key, row, snapshot, guard))
            && self.read(snapshot, row, columns, cells, guard)
    }

    /// The row that `snapshot` sees with a full key of a unique index, and its `columns`.
    #[inline]
    pub fn find<'g>(
        &'g self,
        index: &Index,
        key: &[u8],
        snapshot: Snapshot,
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        guard: &'g Guard,
    ) -> Option<RowId> {
        let mut found = None;
        index.lookup(key, guard, &mut |row| {
            let seen = self.sees_with(index, key, row, snapshot, columns, cells, guard);
            if seen {
                found = Some(row);
            }
            !seen
        });
        found
    }

    /// As [`Table::find`] for `count` full keys, which `encode` appends to an empty buffer by their number.
    /// Calls `visit` in the order of the numbers.
    ///
    /// The look-ups are interleaved, so that the processor waits for the memory of many rows at once: a
    /// single miss costs 200 ns, sixteen at a time 11 ns each.
    #[allow(clippy::too_many_arguments)]
    pub fn find_many<'g, const N: usize>(
        &'g self,
        index: &Index,
        count: usize,
        encode: &mut dyn FnMut(usize, &mut KeyBuffer),
        snapshot: Snapshot,
        columns: &[ColumnId; N],
        guard: &'g Guard,
        visit: &mut dyn FnMut(usize, Found<'_, 'g, N>),
    ) {
        let mut keys: SmallVec<[KeyBuffer; AT_ONCE]> = SmallVec::new();
        keys.resize_with(count.min(AT_ONCE), KeyBuffer::new);
        let mut rows = [Ok(None); AT_ONCE];
        let mut blocks = [None; AT_ONCE];
        let mut cells = [Cell::Null; N];
        let mut first = 0;
        while first < count {
            let rows = &mut rows[..AT_ONCE.min(count - first)];
            let keys = &mut keys[..rows.len()];
            for (number, key) in (first..).zip(&mut *keys) {
                key.clear();
                encode(number, key);
            }
            index.only_many(keys, rows, guard);
            for (row, block) in rows.iter().zip(&mut blocks) {
                *block = row.ok().flatten().map(|row| (self.block(row), row.slot()));
                if let Some((block, slot)) = *block {
                    block.prefetch(slot, columns);
                }
            }
            for (block, slot) in blocks[..rows.len()].iter().flatten() {
                block.prefetch_further(*slot, columns, guard);
            }
            for (at, row) in rows.iter().enumerate() {
                let found = match (*row, blocks[at]) {
                    (Ok(None), _) => None,
                    // Checked after the look-up: a transaction that changes a row's key sets this before.
                    (Ok(Some(row)), Some((block, slot))) if !self.keys_changed.load(Ordering::Acquire) => {
                        block.read(slot, snapshot, columns, &mut cells, guard).then_some(row)
                    }
                    _ => self.find(index, &keys[at], snapshot, columns, &mut cells, guard),
                };
                visit(first + at, found.map(|row| (row, &cells)));
            }
            first += AT_ONCE;
        }
    }

    /// Calls `visit` with the rows that `snapshot` sees between bounds of an index, with their `columns`, in
    /// key order or against it, until it returns false; then returns the key that was reached. Bounds as for
    /// [`Index::range`].
    #[allow(clippy::too_many_arguments)]
    #[inline]
    pub fn range<'g, const N: usize>(
        &'g self,
        index: &Index,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        snapshot: Snapshot,
        columns: &[ColumnId; N],
        guard: &'g Guard,
        visit: &mut dyn FnMut(RowId, &[Cell<'g>; N]) -> bool,
    ) -> Option<KeyBuffer> {
        let mut cells = [Cell::Null; N];
        let mut end = None;
        let mut ahead = |row| self.prefetch(row, columns);
        index.range_ahead(bounds, reverse, guard, &mut ahead, &mut |key, row| {
            let sees = self.sees_with(index, key, row, snapshot, columns, &mut cells, guard);
            let goes_on = !sees || visit(row, &cells);
            if !goes_on {
                end = Some(KeyBuffer::from_slice(key));
            }
            goes_on
        });
        end
    }

    /// Prefetches what reading or changing `columns` of a row touches. To be called in advance, if there is
    /// other work meanwhile.
    #[inline]
    pub fn prefetch(&self, row: RowId, columns: &[ColumnId]) {
        if let Some(block) = self.blocks.get(row.block()) {
            block.prefetch(row.slot(), columns);
        }
    }

    /// Whether another transaction has changed, deleted, inserted or locked a row such that the snapshot does
    /// not see it. The snapshot may or may not see the row.
    pub fn changed_unseen(&self, row: RowId, snapshot: Snapshot, guard: &Guard) -> bool {
        let block = self.block(row);
        let head = block.head(row.slot(), guard);
        self.check_conflict(block, head, snapshot, RowLock::Update, guard).is_err()
    }

    /// A scan of the rows that `snapshot` sees, in the order of blocks, shared by any number of threads.
    pub fn scan(self: &Arc<Self>, snapshot: Snapshot, columns: &[ColumnId], row_ids: bool) -> TableScan {
        TableScan::new(self.clone(), snapshot, columns, row_ids)
    }

    /// The approximate number of rows in the newest version; exact if there are no writers.
    pub fn approximate_rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bytes held: blocks, heaps, chain heads; without indexes.
    pub fn memory_bytes(&self) -> u64 {
        self.usage().bytes()
    }

    /// Sizes of its parts, computed block by block.
    pub fn usage(&self) -> TableUsage {
        let mut usage = TableUsage {
            free_slots: self.free_count.load(Ordering::Relaxed) as u64,
            index_bytes: self.indexes().iter().map(|index| index.held_bytes()).sum(),
            ..TableUsage::default()
        };
        for block in self.blocks.iter() {
            // A block's memory may be replaced meanwhile.
            let _guard = crate::pin();
            let [rows, strings, heads] = block.held_bytes();
            usage.blocks += 1;
            usage.row_bytes += rows as u64;
            usage.string_bytes += strings as u64;
            usage.head_bytes += heads as u64;
            usage.versioned_slots += u64::from(block.versioned_slots());
        }
        usage.row_bytes += self.dictionary_bytes() as u64;
        if self.nothing.get().is_some() {
            usage.row_bytes += self.layout.bytes as u64;
        }
        usage
    }

    /// Bytes of the dictionaries that its compact blocks share.
    pub fn dictionary_bytes(&self) -> usize {
        self.main.bytes()
    }

    // ---- undo and garbage ----

    /// Undoes one change in place.
    pub(crate) fn undo(&self, record: Record<'_>, guard: &Guard) {
        let block = record.block();
        let slot = record.slot();
        match record.change() {
            Change::Insert => {
                block.prepare_write();
                if block.is_present(slot) {
                    self.rows.fetch_sub(1, Ordering::Relaxed);
                }
                block.set_present(slot, false);
                self.remove_entries(block.row(slot), guard);
            }
            Change::InsertMany => {
                block.prepare_write();
                for slot in (slot.0..slot.0 + record.inserted_rows()).map(Slot) {
                    if block.is_present(slot) {
                        self.rows.fetch_sub(1, Ordering::Relaxed);
                    }
                    block.set_present(slot, false);
                    self.remove_entries(block.row(slot), guard);
                }
            }
            Change::Delete => {
                if !block.is_present(slot) {
                    self.rows.fetch_add(1, Ordering::Relaxed);
                }
                block.set_present(slot, true);
            }
            Change::Lock => {}
            Change::Refill => unreachable!("a commit that is replayed is not rolled back"),
            Change::Update => {
                let affected: SmallVec<[&Arc<Index>; 4]> =
                    self.indexes.get(guard).all().iter().filter(|index| changes(index, record)).collect();
                if affected.is_empty() {
                    for (column, before) in record.entries() {
                        block.store_cell(slot, column, before);
                    }
                    return;
                }
                let row = block.row(slot);
                let turn = self.key_lock(row).lock();
                let new_keys: SmallVec<[KeyBuffer; 4]> =
                    affected.iter().map(|index| key_in_place(block, index, slot)).collect();
                for (column, before) in record.entries() {
                    block.store_cell(slot, column, before);
                }
                drop(turn);
                for (index, key) in affected.iter().zip(&new_keys) {
                    self.purge(index, key, row, &mut 0, guard);
                }
            }
        }
    }

    /// Removes the entries of a row that no snapshot can see any more, or that was just rolled back.
    pub(crate) fn remove_entries(&self, row: RowId, guard: &Guard) {
        let block = self.block(row);
        for index in self.indexes.get(guard).all().iter() {
            index.remove(&key_in_place(block, index, row.slot()), row, guard);
        }
    }

    /// Whether a record may have changed a column of an index.
    pub(crate) fn touches_index(&self, record: Record<'_>, guard: &Guard) -> bool {
        self.may_index(record.entries().map(|(column, _)| column).collect(), guard)
    }

    fn key_lock(&self, row: RowId) -> &Mutex<()> {
        &self.key_locks[(row.to_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize]
    }
}

fn is_over(index: &Index, columns: &[ColumnId]) -> bool {
    index.spec().columns.iter().any(|part| columns.contains(&part.column))
}

fn changes(index: &Index, record: Record<'_>) -> bool {
    record.entries().any(|(column, _)| index.spec().columns.iter().any(|part| part.column == column))
}
