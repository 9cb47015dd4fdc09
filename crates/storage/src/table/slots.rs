//! Slots: which ones new rows get, and how gaps between rows are closed.
//!
//! A new row gets the slot of a dead one, if there is one, or the next slot of the block that is being
//! filled.
//!
//! *Gaps* are slots without a row in blocks to which no transaction writes. Rows of the emptiest blocks fill
//! those of the fullest, so that the full ones can be frozen, and the memory of the empty ones freed. This is
//! the approximate algorithm of Li, "Supporting Hybrid Workloads for In-Memory Database Management Systems
//! via a Universal Columnar Storage Format", CMU 2019, section 5.3.1.
//!
//! A row moves as any transaction would move it: it is deleted in its old place and inserted in the new one,
//! with its index entries. So readers, validation, log and recovery do not treat it specially. A transaction
//! that wants to change such a row at the same time has a conflict, which is rare for rows that have been
//! cold for long.
//!
//! A slot without a row and without a version is in the list of free slots, unless it was taken from there to
//! be filled. (In tables of replicas it is in a set.) In a private table it may also be a slot whose insertion was undone, until the collector comes.
//! A plan of moves takes the slots to be filled, so that no other transaction gets them.

use super::Table;
use crate::block::Block;
use crate::budget::Held;
use crate::memory::Memory;
use crate::shared::CountedMemory;
use crate::{Guard, WriteSet};
use firn_base::ids::BLOCK_BITS;
use firn_base::sync::{Arc, Ordering};
use firn_base::{BlockNumber, Cell, ColumnId, Result, RowId, Slot, Snapshot};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// In the place of the number of the block that is being filled, if there is none yet: no block has it.
pub(super) const NONE: u64 = (1 << BLOCK_BITS) - 1;

/// A row that is to be moved to a slot, which is free and which no other row gets.
pub type Move = (RowId, RowId);

impl Table {
    /// A slot for one row: that of a dead row, if there is one.
    #[inline]
    pub(crate) fn allocate_slot(&self) -> Result<(&Block, Slot)> {
        if self.free_count.load(Ordering::Relaxed) > 0 {
            let mut free = self.free.lock();
            if let Some(row) = free.pop() {
                self.free_count.store(free.len(), Ordering::Relaxed);
                return Ok((self.block(row), row.slot()));
            }
        }
        let (block, slot, _) = self.allocate_slots(1)?;
        Ok((block, slot))
    }

    /// Gives out consecutive fresh slots of one block: at least one, at most `wanted`.
    pub(crate) fn allocate_slots(&self, wanted: u32) -> Result<(&Block, Slot, u32)> {
        loop {
            // Acquire: what was done to a reused block comes before. A block is set here only after it is in
            // the directory, by which scans find it.
            let filling = BlockNumber(self.filling.load(Ordering::Acquire));
            if let Some(block) = self.blocks.get(filling)
                && let Some((slot, count)) = block.allocate(wanted)
            {
                return Ok((block, slot, count));
            }
            self.fill_another(filling)?;
        }
    }

    /// Selects another block to be filled, since `full` is full, or does not exist yet.
    #[cold]
    fn fill_another(&self, full: BlockNumber) -> Result<()> {
        let mut emptied = self.emptied.lock();
        if self.filling.load(Ordering::Relaxed) != full.0
            || self.blocks.get(full).is_some_and(|block| block.allocated() < self.layout.slots)
        {
            return Ok(());
        }
        let what_for = || format!("a new block of table \"{}\"", self.name());
        self.budget.admit(self.layout.bytes as u64, what_for)?;
        let next = emptied.pop().unwrap_or_else(|| {
            let number = self.blocks.len();
            self.grow(number);
            BlockNumber(number)
        });
        self.filling.store(next.0, Ordering::Release);
        Ok(())
    }

    /// Adds a block if there are still `known` blocks.
    pub(super) fn grow(&self, known: u64) {
        let number = BlockNumber(known);
        self.blocks.grow(known, || Block::new(self.id, number, self.layout.clone(), self.budget.clone()));
    }

    /// Makes a slot available again; those of a compact block only all together.
    pub(crate) fn free_slot(&self, row: RowId) {
        let block = self.block(row);
        debug_assert!(!block.is_present(row.slot()));
        match block.compact() {
            Some(compact) => compact.count_dead(),
            None => {
                let mut vacant = self.vacant.get().map(|vacant| vacant.lock());
                match vacant.as_mut().and_then(|vacant| vacant.as_mut()) {
                    Some(vacant) => drop(vacant.insert(row)),
                    None => self.give_back([row]),
                }
            }
        }
    }

    /// Lets no slot of a block be given out any more if `change` returns true. The block had `rows` rows when
    /// it was frozen. Returns false, without calling `change`, if a slot has been given out that is not
    /// filled yet.
    pub(super) fn close(&self, block: &Block, rows: u32, change: impl FnOnce() -> bool) -> bool {
        let _emptied = self.emptied.lock();
        // No slot is taken from the list while it is locked.
        let mut free = self.free.lock();
        let allocated = block.close();
        let is_of_block = |row: &RowId| row.block() == block.number;
        let is_free = rows == allocated
            || free.iter().filter(|row| is_of_block(row)).count() == allocated.saturating_sub(rows) as usize;
        if !is_free || !change() {
            block.reopen(allocated);
            return false;
        }
        if rows < allocated {
            free.retain(|row| !is_of_block(row));
            self.free_count.store(free.len(), Ordering::Relaxed);
        }
        true
    }

    /// Plans up to `most` moves between blocks to which no transaction is writing. Each slot that is not
    /// filled afterwards has to be [given back](Table::give_back).
    pub fn plan_moves(&self, blocks: &[BlockNumber], most: usize) -> Vec<Move> {
        let slots = self.layout.slots;
        let block =
            |number: BlockNumber| self.blocks.get(number).expect("block numbers refer to existing blocks");
        let mut group: Vec<(&Block, u32)> =
            blocks.iter().map(|number| (block(*number), block(*number).rows_present())).collect();
        // The fullest first; those beyond the number that all rows need will be empty.
        group.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
        let rows: u64 = group.iter().map(|(_, rows)| u64::from(*rows)).sum();
        let full = (rows / u64::from(slots)) as usize;
        let ends = |at: usize| match at.cmp(&full) {
            std::cmp::Ordering::Less => slots,
            std::cmp::Ordering::Equal => (rows % u64::from(slots)) as u32,
            std::cmp::Ordering::Greater => 0,
        };
        // Rows behind the future end of their block are moved.
        let behind = |(at, (block, _)): (usize, &(&Block, u32))| {
            let (block, first) = (*block, ends(at));
            let slots = (first..block.allocated()).rev().map(Slot);
            slots.filter(|slot| block.is_present(*slot)).map(|slot| block.row(slot)).collect::<Vec<_>>()
        };
        let moving = group.iter().enumerate().rev().flat_map(behind);
        let ends: HashMap<BlockNumber, u32> =
            group.iter().enumerate().map(|(at, (block, _))| (block.number, ends(at))).collect();
        let gaps = self.take_free(most, |row| ends.get(&row.block()).is_some_and(|end| row.slot().0 < *end));
        let mut gaps = gaps.into_iter();
        let moves: Vec<Move> = moving.zip(gaps.by_ref()).collect();
        self.give_back(gaps);
        moves
    }

    /// Takes free slots from the list, the lowest first.
    fn take_free(&self, most: usize, wanted: impl Fn(&RowId) -> bool) -> Vec<RowId> {
        let mut free = self.free.lock();
        let mut taken: Vec<RowId> = free.iter().filter(|row| wanted(row)).copied().collect();
        taken.sort_unstable();
        taken.truncate(most);
        let gone: HashSet<RowId> = taken.iter().copied().collect();
        free.retain(|row| !gone.contains(row));
        self.free_count.store(free.len(), Ordering::Relaxed);
        taken
    }

    /// Puts slots back on the list of free ones.
    pub fn give_back(&self, slots: impl IntoIterator<Item = RowId>) {
        let mut free = self.free.lock();
        free.extend(slots);
        self.free_count.store(free.len(), Ordering::Relaxed);
    }

    /// Moves a row, unless `snapshot` does not see it. In any case the slot is filled or given back. Errors
    /// as for [`Table::insert`].
    pub fn move_row(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        (from, to): Move,
        guard: &Guard,
    ) -> Result<()> {
        let columns: SmallVec<[ColumnId; 16]> =
            (0..self.columns.len()).map(|column| ColumnId(column as u16)).collect();
        let mut cells: SmallVec<[Cell<'_>; 16]> = SmallVec::from_elem(Cell::Null, columns.len());
        if !self.read(snapshot, from, &columns, &mut cells, guard) {
            self.give_back([to]);
            return Ok(());
        }
        self.move_to((self.block(to), to.slot()), write_set, snapshot, from, &cells, guard)
    }

    /// Frees the memory of those of these blocks that still have no row, until it is needed again. Excludes a
    /// block of which a slot has been taken to be filled, or may be given out. Returns their number.
    pub fn give_up_empty(&self, blocks: &[BlockNumber], guard: &Guard) -> usize {
        if blocks.is_empty() || self.follows_log() {
            return 0;
        }
        let mut emptied = self.emptied.lock();
        // No slot is taken from the list while it is locked.
        let mut free = self.free.lock();
        // The number of free slots of each; there may be as many as there ever were rows.
        let mut counts = vec![0; self.blocks.len() as usize];
        free.iter().for_each(|row| counts[row.block().0 as usize] += 1);
        let filling = self.filling.load(Ordering::Acquire);
        let mut gone = vec![false; counts.len()];
        for number in blocks {
            let block = self.blocks.get(*number).expect("block numbers refer to existing blocks");
            let at = number.0 as usize;
            gone[at] = filling != number.0
                && counts[at] >= block.allocated()
                && block.give_up_rows(self.nothing(), guard);
        }
        free.retain(|row| !gone[row.block().0 as usize]);
        self.free_count.store(free.len(), Ordering::Relaxed);
        let before = emptied.len();
        emptied.extend(blocks.iter().filter(|number| gone[number.0 as usize]));
        emptied.len() - before
    }

    /// The memory of all blocks that have none of their own: zeros.
    pub(super) fn nothing(&self) -> Arc<CountedMemory> {
        let make = || CountedMemory::new(Memory::zeroed(self.layout.bytes), Held::Rows, &self.budget);
        self.nothing.get_or_init(|| Arc::new(make())).clone()
    }
}
