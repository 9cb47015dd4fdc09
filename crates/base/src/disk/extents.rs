//! Which bytes of a simulated file have space on the disk. A file that only has a length has none.

use std::collections::BTreeMap;

/// Disjoint ranges of bytes that do not touch each other: their ends by their starts.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents(BTreeMap<u64, u64>);

impl Extents {
    /// The number of bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// The number of bytes between `from` and `to` that are in no range.
    pub fn missing(&self, from: u64, to: u64) -> u64 {
        (to - from) - self.within(from, to).map(|(start, end)| end - start).sum::<u64>()
    }

    /// The largest position up to `to` for which at most `space` bytes are missing from `from` on.
    pub fn reach(&self, from: u64, to: u64, space: u64) -> u64 {
        let (mut at, mut space) = (from, space);
        for (start, end) in self.within(from, to) {
            if start - at > space {
                return at + space;
            }
            space -= start - at;
            at = end;
        }
        to.min(at.saturating_add(space))
    }

    /// Adds the bytes between `from` and `to`.
    pub fn add(&mut self, from: u64, to: u64) {
        if from == to {
            return;
        }
        let (mut start, mut end) = (from, to);
        while let Some((&before, &until)) = self.0.range(..=end).next_back()
            && until >= start
        {
            self.0.remove(&before);
            (start, end) = (start.min(before), end.max(until));
        }
        self.0.insert(start, end);
    }

    /// Removes the bytes after `length`; returns how many there were.
    pub fn truncate(&mut self, length: u64) -> u64 {
        let before = self.bytes();
        self.0.split_off(&length);
        if let Some(mut last) = self.0.last_entry() {
            *last.get_mut() = length.min(*last.get());
        }
        before - self.bytes()
    }

    /// The parts of the ranges that lie between `from` and `to`, in order.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.0.range(..from).next_back().into_iter();
        let ranges = first.chain(self.0.range(from..to));
        ranges.map(move |(start, end)| (from.max(*start), to.min(*end))).filter(|(start, end)| start < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn they_agree_with_a_set_of_bytes() {
        const BYTES: u64 = 40;
        let mut random = Random::seeded(3);
        let mut draw = |most: u64| random.uniform(0, most as i64) as u64;
        for _ in 0..200 {
            let (mut extents, mut model) = (Extents::default(), [false; BYTES as usize]);
            for _ in 0..20 {
                let from = draw(BYTES);
                let to = from + draw(BYTES - from);
                let range = from as usize..to as usize;
                let missing = model[range.clone()].iter().filter(|there| !**there).count() as u64;
                assert_eq!(extents.missing(from, to), missing);
                let space = draw(10);
                let reach = (from..=to).rev().find(|end| extents.missing(from, *end) <= space).unwrap();
                assert_eq!(extents.reach(from, to, space), reach, "{extents:?} {from} {to} {space}");
                if draw(4) == 0 {
                    let cut = model[from as usize..].iter().filter(|there| **there).count() as u64;
                    assert_eq!(extents.truncate(from), cut);
                    model[from as usize..].fill(false);
                } else {
                    extents.add(from, to);
                    model[range].fill(true);
                }
                assert_eq!(extents.bytes(), model.iter().filter(|there| **there).count() as u64);
            }
        }
    }
}
