//! Slots: which ones new rows are given, and how gaps between rows are closed.
//!
//! A new row takes the slot of a dead one, if there is such a slot, or the next of the block that is being filled.
//!
//! *Gaps* are slots without a row in blocks that nobody writes to. Rows of the emptiest blocks fill those of the
//! fullest, so that these can be frozen, and the memory of those be given up (seed 004 §5.3.1, the approximate
//! algorithm).
//!
//! A row moves as any transaction would move it: it is deleted where it was and inserted where it goes, with its
//! index entries. So readers, validation, log and recovery need not know of it, and whoever wants to change such a
//! row at that moment has a conflict, which is rare with rows that have been left alone for long.
//!
//! A slot that holds no row, and no version, is in the list of free slots, or somebody has taken it from there to fill
//! it, or it was filled in a private table by what its transaction has taken back, until the collector comes. Whoever plans moves takes those that are to be filled, so that nobody else does.

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

/// A row that is to go to a slot, which is free and which nobody else will be given.
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

    /// Gives out fresh slots that follow each other in one block: at least one, at most `wanted`.
    pub(crate) fn allocate_slots(&self, wanted: u32) -> Result<(&Block, Slot, u32)> {
        loop {
            // Acquire: what was done to a block that is used again comes before. A block is named here only after
            // the directory counts it: scans go by that.
            let filling = BlockNumber(self.filling.load(Ordering::Acquire));
            if let Some(block) = self.blocks.get(filling)
                && let Some((slot, count)) = block.allocate(wanted)
            {
                return Ok((block, slot, count));
            }
            self.fill_another(filling)?;
        }
    }

    /// Has another block filled than that one, which is full, or not there yet.
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

    /// Adds a block if there still are just `known`.
    pub(super) fn grow(&self, known: u64) {
        let number = BlockNumber(known);
        self.blocks.grow(known, || Block::new(self.id, number, self.layout.clone(), self.budget.clone()));
    }

    /// Gives a slot out again from now on; one of a compact block not before all others of it.
    pub(crate) fn free_slot(&self, row: RowId) {
        let block = self.block(row);
        debug_assert!(!block.is_present(row.slot()));
        match block.compact() {
            Some(compact) => compact.count_dead(),
            None => self.give_back([row]),
        }
    }

    /// Has no slot of a block be given out any more if `change` says so, to which the block has so many rows as it had
    /// when it was frozen. False, and `change` is not asked, if somebody has been given one that he has yet to fill.
    pub(super) fn close(&self, block: &Block, rows: u32, change: impl FnOnce() -> bool) -> bool {
        let _emptied = self.emptied.lock();
        // Nobody takes a slot from the list as long as it is locked.
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

    /// Plans so many moves at most between blocks of which none is being written to. Each slot that is not filled
    /// afterwards has to be [given back](Table::give_back).
    pub fn plan_moves(&self, blocks: &[BlockNumber], most: usize) -> Vec<Move> {
        let slots = self.layout.slots;
        let block =
            |number: BlockNumber| self.blocks.get(number).expect("block numbers name existing blocks");
        let mut group: Vec<(&Block, u32)> =
            blocks.iter().map(|number| (block(*number), block(*number).rows_present())).collect();
        // The fullest first; those after as many as all rows need will be empty.
        group.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
        let rows: u64 = group.iter().map(|(_, rows)| u64::from(*rows)).sum();
        let full = (rows / u64::from(slots)) as usize;
        let ends = |at: usize| match at.cmp(&full) {
            std::cmp::Ordering::Less => slots,
            std::cmp::Ordering::Equal => (rows % u64::from(slots)) as u32,
            std::cmp::Ordering::Greater => 0,
        };
        // What stands behind the end of its block moves.
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

    /// Takes free slots off the list, the lowest first.
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

    /// Moves a row, unless `snapshot` does not see it. Whatever comes of it, the slot is filled or given back. Errors
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

    /// Gives up the memory of those of these blocks that still hold no row, until it is needed again. Not of one of
    /// which somebody has taken a slot to fill it, or may be given one. Of how many it was.
    pub fn give_up_empty(&self, blocks: &[BlockNumber], guard: &Guard) -> usize {
        if blocks.is_empty() {
            return 0;
        }
        let mut emptied = self.emptied.lock();
        // Nobody takes a slot from the list as long as it is locked.
        let mut free = self.free.lock();
        // How many free slots each has; there may be as many as there ever were rows.
        let mut counts = vec![0; self.blocks.len() as usize];
        free.iter().for_each(|row| counts[row.block().0 as usize] += 1);
        let filling = self.filling.load(Ordering::Acquire);
        let mut gone = vec![false; counts.len()];
        for number in blocks {
            let block = self.blocks.get(*number).expect("block numbers name existing blocks");
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

    /// The memory of all blocks that have none of their own: nothing but zeros.
    pub(super) fn nothing(&self) -> Arc<CountedMemory> {
        let make = || CountedMemory::new(Memory::zeroed(self.layout.bytes), Held::Rows, &self.budget);
        self.nothing.get_or_init(|| Arc::new(make())).clone()
    }
}
