//! A sample of rows spread over a table, from which a planner estimates, and what it has derived from it.

use super::Table;
use firn_base::sync::Arc;
use firn_base::{BlockNumber, RowId, Slot};
use std::any::Any;

impl Table {
    /// The ids of at most `most` slots, spread evenly over the table; all if it has no more. The same table
    /// gives the same ids. A snapshot need not see a row in each.
    pub fn spread_rows(&self, most: usize) -> Vec<RowId> {
        let allocated: Vec<u32> = self.blocks.iter().map(|block| block.allocated()).collect();
        let total: u64 = allocated.iter().map(|slots| u64::from(*slots)).sum();
        let count = total.min(most as u64);
        let mut rows = Vec::with_capacity(count as usize);
        let (mut block, mut before) = (0, 0);
        for number in 0..count {
            // One slot of each of `count` intervals, at a pseudorandom place in it.
            let (start, end) = (number * total / count, (number + 1) * total / count);
            let slot = start + spread(number) % (end - start);
            while slot >= before + u64::from(allocated[block]) {
                before += u64::from(allocated[block]);
                block += 1;
            }
            rows.push(RowId::new(BlockNumber(block as u64), Slot((slot - before) as u32)));
        }
        rows
    }

    /// The data that a planner has stored with the table.
    pub fn estimates(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.estimates.read().clone()
    }

    /// Stores data of a planner with the table, in place of the former data. It is dropped with the table.
    pub fn set_estimates(&self, estimates: Arc<dyn Any + Send + Sync>) {
        *self.estimates.write() = Some(estimates);
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
fn spread(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
