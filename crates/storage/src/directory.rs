//! The block directory: block number → block. It only grows, and is read without a lock.
//!
//! It contains the first [`NEAR`] entries. After them level `k` has `NEAR << k` more, and is made when it is
//! first needed. So nothing ever moves, and a look-up is one load, or two in a large table. Every access to a
//! row begins with a look-up.

use crate::block::Block;
use firn_base::BlockNumber;
use firn_base::sync::{AtomicPtr, AtomicU64, Mutex, Ordering};
use std::ptr;

/// Blocks of tables of at most this size, which is most tables, are found in one step.
const NEAR: u64 = 256;
const LEVELS: usize = 40;

/// A list of blocks that only grows.
pub(crate) struct Directory {
    /// The first entries. An entry is null or a block, is set once, and its block is freed with the
    /// directory.
    near: [AtomicPtr<Block>; NEAR as usize],
    /// Null, or the first entry of a level, likewise.
    levels: [AtomicPtr<AtomicPtr<Block>>; LEVELS],
    len: AtomicU64,
    growing: Mutex<()>,
}

impl Directory {
    pub fn new() -> Directory {
        Directory {
            near: [const { AtomicPtr::new(ptr::null_mut()) }; NEAR as usize],
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
        match self.near.get(number.0 as usize) {
            // SAFETY: a block lives as long as the directory. Acquire: pairs with the release in `grow`.
            Some(entry) => unsafe { entry.load(Ordering::Acquire).as_ref() },
            None => self.get_far(number.0),
        }
    }

    #[inline]
    fn get_far(&self, number: u64) -> Option<&Block> {
        let (level, at) = place(number);
        // Acquire, twice: pairs with the release in `grow`.
        let entries = self.levels[level].load(Ordering::Acquire);
        if entries.is_null() {
            return None;
        }
        // SAFETY: `place` returns a level and a place in it, and a level has all its entries. A block lives
        // as long as the directory.
        unsafe { (*entries.add(at)).load(Ordering::Acquire).as_ref() }
    }

    /// The newest block.
    #[inline]
    pub fn last(&self) -> Option<&Block> {
        self.get(BlockNumber(self.len().checked_sub(1)?))
    }

    /// Appends a block if there are still `known` blocks.
    pub fn grow(&self, known: u64, make: impl FnOnce() -> Block) {
        let _turn = self.growing.lock();
        if self.len() != known {
            return;
        }
        let entry = match self.near.get(known as usize) {
            Some(entry) => entry,
            None => {
                let (level, at) = place(known);
                let mut entries = self.levels[level].load(Ordering::Relaxed);
                if entries.is_null() {
                    let fresh: Box<[AtomicPtr<Block>]> =
                        (0..NEAR << level).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
                    entries = Box::into_raw(fresh).cast();
                    self.levels[level].store(entries, Ordering::Release);
                }
                // SAFETY: as in `get_far`.
                unsafe { &*entries.add(at) }
            }
        };
        let block = Box::into_raw(Box::new(make()));
        let before = entry.swap(block, Ordering::Release);
        assert!(before.is_null(), "blocks are appended under the lock");
        self.len.store(known + 1, Ordering::Release);
    }

    /// Every block, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        (0..self.len()).map(|number| self.get(BlockNumber(number)).expect("the number is below the length"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let free = |block: *mut Block| {
            if !block.is_null() {
                // SAFETY: made by `grow` from a box; the directory has no borrower any more.
                drop(unsafe { Box::from_raw(block) });
            }
        };
        self.near.iter_mut().for_each(|entry| free(*entry.get_mut()));
        for (level, entries) in self.levels.iter_mut().enumerate() {
            let entries = *entries.get_mut();
            if entries.is_null() {
                continue;
            }
            let entries = ptr::slice_from_raw_parts_mut(entries, (NEAR << level) as usize);
            // SAFETY: made by `grow` from a box of this length; the directory has no borrower any more.
            let entries = unsafe { Box::from_raw(entries) };
            entries.into_iter().map(AtomicPtr::into_inner).for_each(free);
        }
    }
}

/// The level, and the place in it, of entry `number`, which is not a near one.
#[inline]
fn place(number: u64) -> (usize, usize) {
    let level = number.ilog2() - NEAR.ilog2();
    (level as usize, (number - (NEAR << level)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_fill_level_after_level_without_gaps() {
        let mut expected = (0, 0);
        for number in NEAR..10_000 {
            assert_eq!(place(number), expected);
            expected.1 += 1;
            if expected.1 as u64 == NEAR << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }
}
