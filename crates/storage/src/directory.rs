//! The block directory: block number → block. Append-only, readable without a lock.
//!
//! Level `k` holds `FIRST << k` entries and is made when first needed, so that nothing ever moves
//! and a look-up is two loads.

use crate::block::Block;
use firn_base::BlockNumber;
use firn_base::sync::{AtomicU64, Mutex, OnceLock, Ordering};

const FIRST: u64 = 16;
const LEVELS: usize = 40;

/// The entries of one level.
type Level = Box<[OnceLock<Box<Block>>]>;

/// A list of blocks that only grows.
pub(crate) struct Directory {
    levels: [OnceLock<Level>; LEVELS],
    len: AtomicU64,
    growing: Mutex<()>,
}

impl Directory {
    pub fn new() -> Directory {
        Directory {
            levels: [const { OnceLock::new() }; LEVELS],
            len: AtomicU64::new(0),
            growing: Mutex::new(()),
        }
    }

    /// Number of blocks.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// The block with that number.
    #[inline]
    pub fn get(&self, number: BlockNumber) -> Option<&Block> {
        let (level, at) = place(number.0);
        self.levels[level].get()?[at].get().map(Box::as_ref)
    }

    /// The newest block.
    #[inline]
    pub fn last(&self) -> Option<&Block> {
        self.get(BlockNumber(self.len().checked_sub(1)?))
    }

    /// Appends a block if there still are just `known`.
    pub fn grow(&self, known: u64, make: impl FnOnce() -> Block) {
        let _turn = self.growing.lock();
        if self.len() != known {
            return;
        }
        let (level, at) = place(known);
        let entries =
            self.levels[level].get_or_init(|| (0..FIRST << level).map(|_| OnceLock::new()).collect());
        let fresh = entries[at].set(Box::new(make())).is_ok();
        assert!(fresh, "blocks are appended under the lock");
        self.len.store(known + 1, Ordering::Release);
    }

    /// Every block, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        (0..self.len()).map(|number| self.get(BlockNumber(number)).expect("below the length"))
    }
}

/// Level and place in it of the entry `number`.
#[inline]
fn place(number: u64) -> (usize, usize) {
    let shifted = number + FIRST;
    let level = shifted.ilog2() - FIRST.ilog2();
    (level as usize, (shifted - (FIRST << level)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_fill_level_after_level_without_gaps() {
        let mut expected = (0, 0);
        for number in 0..10_000 {
            assert_eq!(place(number), expected);
            expected.1 += 1;
            if expected.1 as u64 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }
}
