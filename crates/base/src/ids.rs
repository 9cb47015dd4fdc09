//! Identifiers of storage. Each is a type of its own, so that they cannot be confused.

use std::fmt;

/// Bits of a [`RowId`] for the slot.
pub const SLOT_BITS: u32 = 20;
/// Bits of a [`RowId`] for the block number. One bit fewer than would fit: the highest bit of the 64 is free,
/// so that an index can distinguish a row id from a tagged reference.
pub const BLOCK_BITS: u32 = 43;
const _: () = assert!(SLOT_BITS + BLOCK_BITS == 63);

/// A physical table: one list of blocks. `TRUNCATE` and rewrites give a table a new one; the catalog maps
/// names to the current one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableId(pub u32);

/// Position of a column in its physical table, counting dropped columns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ColumnId(pub u16);

impl ColumnId {
    /// The position as an index into per-column arrays.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Some columns of one table. Columns from 63 on share one bit: the set may seem larger than it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ColumnSet(u64);

impl ColumnSet {
    /// No column.
    pub const NONE: ColumnSet = ColumnSet(0);
    /// Every column.
    pub const ALL: ColumnSet = ColumnSet(u64::MAX);

    /// With one more column.
    #[inline]
    pub const fn with(self, column: ColumnId) -> ColumnSet {
        ColumnSet(self.0 | 1 << if column.0 < 63 { column.0 } else { 63 })
    }

    /// The columns of both.
    #[inline]
    pub const fn union(self, other: ColumnSet) -> ColumnSet {
        ColumnSet(self.0 | other.0)
    }

    /// Whether a column may be in both.
    #[inline]
    pub const fn intersects(self, other: ColumnSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether a column may be in it.
    #[inline]
    pub const fn contains(self, column: ColumnId) -> bool {
        self.intersects(ColumnSet::NONE.with(column))
    }

    /// Whether no column is in it.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<ColumnId> for ColumnSet {
    #[inline]
    fn from_iter<I: IntoIterator<Item = ColumnId>>(columns: I) -> ColumnSet {
        columns.into_iter().fold(ColumnSet::NONE, ColumnSet::with)
    }
}

/// Number of a block within its table, from 0, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockNumber(pub u64);

/// Position of a row inside its block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

impl Slot {
    /// The position as an index into per-slot arrays.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Logical address of a row: block number, then slot. Never a memory address; the same on every
/// replica and after recovery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(u64);

impl RowId {
    /// Joins a block number and a slot.
    #[inline]
    pub fn new(block: BlockNumber, slot: Slot) -> RowId {
        debug_assert!(block.0 < 1 << BLOCK_BITS && slot.0 < 1 << SLOT_BITS);
        RowId(block.0 << SLOT_BITS | u64::from(slot.0))
    }

    /// Joins a block number and a slot, if they are in range.
    pub fn checked(block: BlockNumber, slot: Slot) -> Option<RowId> {
        (block.0 < 1 << BLOCK_BITS && slot.0 < 1 << SLOT_BITS).then(|| RowId::new(block, slot))
    }

    /// The block of the row.
    #[inline]
    pub fn block(self) -> BlockNumber {
        BlockNumber(self.0 >> SLOT_BITS)
    }

    /// The position inside the block.
    #[inline]
    pub fn slot(self) -> Slot {
        Slot((self.0 & ((1 << SLOT_BITS) - 1)) as u32)
    }

    /// The id as stored in logs and indexes; below 2^63.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`RowId::to_bits`].
    #[inline]
    pub fn from_bits(bits: u64) -> RowId {
        debug_assert!(bits >> 63 == 0);
        RowId(bits)
    }
}

impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.block().0, self.slot().0)
    }
}

/// Position in the log, in bytes since the log began; commit order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lsn(pub u64);

/// One server of a cluster whose servers agree on who is the primary. Drawn at random when it becomes a voter, and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u64);

/// Number of a primary's term: every start of a primary begins a new one. 0 for what was written before there were epochs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Epoch(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_columns_knows_the_first_63_apart() {
        let set: ColumnSet = [ColumnId(0), ColumnId(7), ColumnId(100)].into_iter().collect();
        assert!(set.contains(ColumnId(7)) && !set.contains(ColumnId(8)) && !set.contains(ColumnId(62)));
        assert!(set.contains(ColumnId(63)), "the set may have it: it shares its bit with 100");
        assert!(!set.intersects(ColumnSet::NONE.with(ColumnId(1))) && ColumnSet::ALL.intersects(set));
        assert!(ColumnSet::NONE.is_empty() && set.union(ColumnSet::NONE) == set);
    }

    #[test]
    fn a_row_id_keeps_its_block_and_slot_apart() {
        let largest_slot = Slot((1 << SLOT_BITS) - 1);
        let largest_block = BlockNumber((1 << BLOCK_BITS) - 1);
        for (block, slot) in [
            (BlockNumber(0), Slot(0)),
            (BlockNumber(7), largest_slot),
            (largest_block, Slot(0)),
            (largest_block, largest_slot),
        ] {
            let row = RowId::new(block, slot);
            assert_eq!((row.block(), row.slot()), (block, slot));
            assert_eq!(RowId::from_bits(row.to_bits()), row);
        }
    }
}
