//! Blocks that checkpoints need not write again: what is known of one as long as nobody thaws it.
//!
//! Nobody inserts into a cold block or changes a row of it; in a compact one rows may be deleted. So if it has been cold
//! all the time between two moments, and has as many rows at the later one, it has the same. Whether it has been, its
//! generation tells, which each freezing counts up.
//!
//! Which of two moments a scan shows is of no account: a block becomes cold only when no snapshot in use tells its rows
//! apart, though some may see none of them. Deletes from a compact one are the exception, and all that one can make of the
//! number of rows that are there *now* is that no snapshot in use that sees any sees fewer. Hence the comparison: a scan gave so many, and so many are still there. A block
//! that was thawed before the scan came to it has another generation when it is cold again.

use crate::block::Block;
use crate::state::BlockState;
use crate::{Frozen, Guard, Table, pin};
use firn_base::BlockNumber;

/// A block, as checkpoints see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockContent {
    /// Which one.
    pub number: BlockNumber,
    /// The bytes of its rows, as they are when they are not encoded.
    pub bytes: u64,
    /// What is known of it if it is cold and has rows.
    pub cold: Option<Cold>,
}

/// What is known of a cold block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cold {
    /// How often the block had been frozen when it became cold.
    pub generation: u64,
    /// How many rows are there; no snapshot in use sees fewer, unless it sees none.
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

    /// What is known of a block, if there is one of that number.
    pub fn cold(&self, number: BlockNumber) -> Option<Cold> {
        self.blocks().get(number)?.cold(&pin())
    }

    /// Recovery only: freezes a block whose rows have been put back, if they lie in its first slots.
    pub fn freeze_restored(&self, number: BlockNumber) {
        let Some(block) = self.blocks().get(number) else { return };
        if block.cool() && block.freeze(&pin()) != Frozen::Yes {
            block.thaw();
        }
    }
}
