//! The block directory: block number → block. Append-only, readable without a lock.
//!
//! Level `k` holds `FIRST << k` entries and is made when first needed, so that nothing ever moves
//! and a look-up is two loads. Every access to a row begins with one.

use crate::block::Block;
use firn_base::BlockNumber;
use firn_base::sync::{AtomicPtr, AtomicU64, Mutex, Ordering};
use std::ptr;

const FIRST: u64 = 16;
const LEVELS: usize = 40;

/// A list of blocks that only grows.
pub(crate) struct Directory {
    /// Null or the first of a level's entries; an entry is null or a block. Both are set once, and
    /// what they lead to is freed with the directory.
    levels: [AtomicPtr<AtomicPtr<Block>>; LEVELS],
    len: AtomicU64,
    growing: Mutex<()>,
}

impl Directory {
    pub fn new() -> Directory {
        Directory {
            levels: [const { AtomicPtr::new(ptr::null_mut()) }; LEVELS],
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
        // Acquire, twice: pairs with the release in `grow`.
        let entries = self.levels[level].load(Ordering::Acquire);
        if entries.is_null() {
            return None;
        }
        // SAFETY: level and place belong together (`place`), and the level has all its entries. A block
        // lives as long as the directory.
        unsafe { (*entries.add(at)).load(Ordering::Acquire).as_ref() }
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
        let mut entries = self.levels[level].load(Ordering::Relaxed);
        if entries.is_null() {
            let fresh: Box<[AtomicPtr<Block>]> =
                (0..FIRST << level).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
            entries = Box::into_raw(fresh).cast();
            self.levels[level].store(entries, Ordering::Release);
        }
        let block = Box::into_raw(Box::new(make()));
        // SAFETY: as in `get`.
        let before = unsafe { (*entries.add(at)).swap(block, Ordering::Release) };
        assert!(before.is_null(), "blocks are appended under the lock");
        self.len.store(known + 1, Ordering::Release);
    }

    /// Every block, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        (0..self.len()).map(|number| self.get(BlockNumber(number)).expect("below the length"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        for (level, entries) in self.levels.iter_mut().enumerate() {
            let entries = *entries.get_mut();
            if entries.is_null() {
                continue;
            }
            // SAFETY: made by `grow` from a box of this length; nobody borrows from the directory.
            unsafe {
                let entries =
                    Box::from_raw(ptr::slice_from_raw_parts_mut(entries, (FIRST << level) as usize));
                for block in entries.into_iter().map(AtomicPtr::into_inner).filter(|block| !block.is_null()) {
                    drop(Box::from_raw(block));
                }
            }
        }
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
