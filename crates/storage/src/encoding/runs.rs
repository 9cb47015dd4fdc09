//! Runs: consecutive equal values, stored once, with the slots at which each of them ends.
//!
//! ```text
//!  slots   a a a b b b b c c d d d         ends    3 7 9 12           Arrow's RunEndEncoded
//!                                          values  a b c d
//!                                          guides  0 1 2 3            which run has slot 0, 4, 8, 12
//! ```
//! This is position-based run-length encoding (Funke, Kemper and Neumann, "Compacting Transactional Data in
//! Hybrid OLTP&OLAP Databases", VLDB 2012, section 3.4). A binary search for a slot's run would miss the
//! cache as often as the number of runs has doublings. *Guides* give the run of slots at regular distances,
//! about every eighth run, so that the remaining search is in one or two cache lines. The paper found a
//! look-up seven times as slow as a plain one for runs of ten (section 5.6.2); `firn bench merge` prints the
//! factor for this implementation.
//!
//! Invariant: ends rise, and the last one is the number of slots. A run of NULLs is a run like others,
//! separate from one of values.

use crate::memory::prefetch;
use arrow_buffer::{BooleanBuffer, Buffer, ScalarBuffer};
use firn_base::sync::Arc;
use std::ops::Range;

/// The average number of runs between two guides.
const RUNS_PER_GUIDE: usize = 8;

/// The ends of runs.
#[derive(Clone, Debug)]
pub struct RunEnds {
    ends: ScalarBuffer<i32>,
    /// The run of every slot that is a multiple of `1 << shift`; one more behind the last.
    guides: Arc<[u32]>,
    shift: u32,
}

impl RunEnds {
    /// Runs that end at these ascending slots.
    pub fn new(ends: Vec<i32>) -> RunEnds {
        let slots = ends.last().map_or(0, |end| *end as usize);
        let apart = (slots * RUNS_PER_GUIDE / ends.len().max(1)).max(1).next_power_of_two();
        let shift = apart.trailing_zeros();
        let mut guides = Vec::with_capacity(slots / apart + 2);
        let mut run = 0;
        for slot in (0..slots).step_by(apart) {
            while ends[run] as usize <= slot {
                run += 1;
            }
            guides.push(run as u32);
        }
        guides.push(ends.len().saturating_sub(1) as u32);
        RunEnds { ends: ends.into(), guides: guides.into(), shift }
    }

    /// How many runs.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The number of slots that they cover.
    pub fn slots(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }

    /// The memory they take.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.ends[..]) + size_of_val(&self.guides[..])
    }

    /// The ends as Arrow has them.
    pub fn ends(&self) -> &ScalarBuffer<i32> {
        &self.ends
    }

    /// Prefetches what [`RunEnds::find`] reads first.
    #[inline]
    pub fn prefetch(&self, slot: usize) {
        prefetch(self.guides.as_ptr().wrapping_add(slot >> self.shift).cast());
    }

    /// The run of a slot.
    #[inline]
    pub fn find(&self, slot: usize) -> usize {
        let guide = slot >> self.shift;
        let (mut run, last) = (self.guides[guide] as usize, self.guides[guide + 1] as usize);
        let between = &self.ends[run..last];
        // A few ends are counted without an unpredictable branch; among more there is a binary search.
        if between.len() <= 2 * RUNS_PER_GUIDE {
            run += between.iter().map(|end| usize::from(*end as usize <= slot)).sum::<usize>();
        } else {
            run += between.partition_point(|end| *end as usize <= slot);
        }
        run
    }

    /// The runs that overlap a range of slots.
    pub fn overlapping(&self, slots: &Range<usize>) -> Range<usize> {
        if slots.is_empty() {
            return 0..0;
        }
        self.find(slots.start)..self.find(slots.end - 1) + 1
    }

    /// For each run that [overlaps](RunEnds::overlapping) a range, its number of slots there, in order.
    pub fn lengths(&self, slots: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let runs = self.overlapping(&slots);
        let mut start = slots.start;
        self.ends[runs].iter().map(move |end| {
            let end = slots.end.min(*end as usize);
            let length = end - start;
            start = end;
            length
        })
    }

    /// Appends the value of every slot of a range, given values for the runs that overlap it.
    pub(super) fn repeat<T: Copy + Default>(&self, values: &[T], slots: Range<usize>, out: &mut Vec<T>) {
        // This many are written at once, and the excess is overwritten by the next run. Most runs are short,
        // and a loop over the exact length would end in an unpredictable branch.
        const AT_ONCE: usize = 16;
        let start = out.len();
        let end = start + slots.len();
        out.resize(end + AT_ONCE, T::default());
        let mut at = start;
        for (value, length) in values.iter().zip(self.lengths(slots)) {
            let (first, rest) = out[at..].split_at_mut(AT_ONCE);
            first.fill(*value);
            if length > AT_ONCE {
                rest[..length - AT_ONCE].fill(*value);
            }
            at += length;
        }
        assert_eq!(at, end);
        out.truncate(end);
    }

    /// The bit of every slot of a range, given bits for runs from `first` on.
    pub(super) fn repeat_bits(
        &self,
        bits: &BooleanBuffer,
        first: usize,
        slots: Range<usize>,
    ) -> BooleanBuffer {
        let length = slots.len();
        // First a slot is 1 if its bit differs from the one before. Then its bit is the parity of the number
        // of ones up to it.
        let mut words = vec![0u64; length.div_ceil(64)];
        let (mut at, mut last) = (0, false);
        for (run, length) in self.overlapping(&slots).zip(self.lengths(slots)) {
            let bit = bits.value(run - first);
            words[at / 64] |= u64::from(bit != last) << (at % 64);
            last = bit;
            at += length;
        }
        let mut odd = 0;
        for word in &mut words {
            for shift in [1, 2, 4, 8, 16, 32] {
                *word ^= *word << shift;
            }
            *word ^= odd;
            odd = ((*word as i64) >> 63) as u64;
        }
        BooleanBuffer::new(Buffer::from_vec(words), 0, length)
    }

    /// Panics if an invariant does not hold.
    pub fn verify(&self) {
        assert!(self.ends.is_sorted_by(|a, b| a < b), "run ends rise");
        assert!(self.ends.first().is_none_or(|end| *end > 0), "no run is empty");
        let slots = self.slots();
        for slot in (0..slots).step_by(1 << self.shift) {
            let run = self.guides[slot >> self.shift] as usize;
            let start = if run == 0 { 0 } else { self.ends[run - 1] as usize };
            assert!((start..self.ends[run] as usize).contains(&slot), "guide of slot {slot}");
        }
        assert_eq!(self.guides.len(), slots.div_ceil(1 << self.shift) + 1);
    }
}

/// The ends of the runs: `same` compares a value with its predecessor.
pub(super) fn ends(slots: usize, same: impl Fn(usize) -> bool) -> Vec<i32> {
    let mut ends: Vec<i32> = (1..slots).filter(|slot| !same(*slot)).map(|slot| slot as i32).collect();
    if slots > 0 {
        ends.push(slots as i32);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::random::Random;

    #[test]
    fn every_slot_is_found_in_the_run_that_holds_it() {
        let random = &mut Random::seeded(5);
        for longest in [1, 2, 10, 300, 5000] {
            let mut ends = Vec::new();
            let mut model = Vec::new();
            while model.len() < if cfg!(miri) { 100 } else { 5000 } {
                // Some intervals of short runs among long ones.
                let longest = if random.uniform(0, 9) == 0 { 1 } else { longest };
                let length = random.uniform(1, longest) as usize;
                model.extend(std::iter::repeat_n(ends.len(), length));
                ends.push(model.len() as i32);
            }
            let runs = RunEnds::new(ends);
            runs.verify();
            assert_eq!(runs.slots(), model.len());
            for (slot, run) in model.iter().enumerate() {
                assert_eq!(runs.find(slot), *run, "slot {slot}, runs of up to {longest}");
            }
            for _ in 0..if cfg!(miri) { 5 } else { 100 } {
                let start = random.uniform(0, model.len() as i64) as usize;
                let end = random.uniform(start as i64, model.len() as i64) as usize;
                let lengths = runs.overlapping(&(start..end)).zip(runs.lengths(start..end));
                let expanded: Vec<usize> =
                    lengths.flat_map(|(run, length)| std::iter::repeat_n(run, length)).collect();
                assert_eq!(expanded, model[start..end]);
            }
        }
        let none = RunEnds::new(Vec::new());
        none.verify();
        assert_eq!((none.slots(), none.overlapping(&(0..0))), (0, 0..0));
    }
}
