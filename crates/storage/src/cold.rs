//! Blocks that checkpoints need not write again: what is known of a block until it is thawed.
//!
//! No row is inserted into a cold block or changed in it; in a compact one rows may be deleted. A block has
//! the same rows at two points in time if it has been cold all the time between them and has as many rows at
//! the later one. Its generation shows whether it has been cold all the time: each freezing increments it.
//!
//! It does not matter which of the two points a scan shows. A block becomes cold only when no snapshot in use
//! distinguishes its rows, though some snapshots may see none of them. Deletes from a compact block are the
//! exception. All that the number of rows present *now* says is that no snapshot in use that sees any of them
//! sees fewer. Hence the comparison: a scan returned this many, and this many are still present. A block that
//! was thawed before the scan reached it has another generation when it is cold again.

use crate::block::Block;
use crate::state::BlockState;
use crate::{Frozen, Guard, Table, pin};
use firn_base::BlockNumber;

/// A block, as a checkpoint sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockContent {
    /// Its number.
    pub number: BlockNumber,
    /// The bytes of its rows without encodings.
    pub bytes: u64,
    /// What is known of it, if it is cold and has rows.
    pub cold: Option<Cold>,
}

/// What is known of a cold block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cold {
    /// How often the block had been frozen when it became cold.
    pub generation: u64,
    /// How many rows are present; no snapshot in use sees fewer, unless it sees none.
    pub rows: u32,
}

impl Block {
    fn cold(&self, _guard: &Guard) -> Option<Cold> {
        let _turn = self.life.turn();
        if !matches!(self.life.state(), BlockState::Frozen | BlockState::Compact) {
            return None;
        }
        let (generation, rows) = (self.life.generation(), self.rows_present());
        (rows > 0).then_some(Cold { generation, rows })
    }
}

impl Table {
    /// Its blocks, in their order.
    pub fn contents(&self) -> impl Iterator<Item = BlockContent> {
        self.blocks().iter().map(|block| {
            let guard = pin();
            BlockContent { number: block.number, bytes: block.raw_bytes() as u64, cold: block.cold(&guard) }
        })
    }

    /// What is known of the block with a number, if there is one.
    pub fn cold(&self, number: BlockNumber) -> Option<Cold> {
        self.blocks().get(number)?.cold(&pin())
    }

    /// Recovery only: freezes a block whose rows have been restored, if they are in its first slots.
    pub fn freeze_restored(&self, number: BlockNumber) {
        let Some(block) = self.blocks().get(number) else { return };
        if block.cool() && block.freeze(&pin()) != Frozen::Yes {
            block.thaw();
        }
    }
}
