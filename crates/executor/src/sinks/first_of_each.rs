//! The first rows of each partition, among those that a sort collects: a hash table of partitions, and for each a heap of its rows.
//!
//! ```text
//! set      key of the partition → number
//! heaps    number → start, length                      room: the next power of two, but no more than are wanted
//! places   … [7 3 9 ·] [2] [5 4] …                     in the collection of rows; the last row of a partition is on top
//! ```
//!
//! A row that comes behind the top of a heap that is full is left out. A row before it takes its place; the one that was on top remains in the
//! collection until as many have been replaced as are kept. Of equal rows those are kept that came first.

use crate::keys::{Key, KeyLayout, KeySet, Keys};
use firn_vector::Vector;
use firn_vector::selection::Rows;

/// Which rows are the first of their partitions.
pub(super) struct FirstOfEach {
    /// How many of a partition are wanted: not 0.
    count: usize,
    layout: KeyLayout,
    set: KeySet,
    heaps: Vec<Heap>,
    places: Vec<u32>,
    /// How many rows are in heaps.
    kept: usize,
    /// Of the rows that are being added: the keys of their partitions, and their numbers.
    keys: Keys,
    numbers: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct Heap {
    start: u32,
    length: u32,
}

impl Heap {
    /// How many places it has.
    fn room(self, count: usize) -> usize {
        match self.length as usize {
            0 => 0,
            length => length.next_power_of_two().min(count),
        }
    }
}

impl FirstOfEach {
    /// So many of each partition, whose keys have a layout.
    pub fn new(count: usize, layout: KeyLayout) -> FirstOfEach {
        assert!(count > 0, "rows are wanted");
        FirstOfEach {
            count,
            set: KeySet::new(&layout),
            keys: layout.none(),
            layout,
            heaps: Vec::new(),
            places: Vec::new(),
            kept: 0,
            numbers: Vec::new(),
        }
    }

    /// How many rows are kept.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.set.memory() + self.heaps.capacity() * size_of::<Heap>() + self.places.capacity() * 4
    }

    /// No rows are kept.
    pub fn clear(&mut self) {
        *self = FirstOfEach::new(self.count, self.layout.clone());
    }

    /// Which rows are among the first of their partitions so far. The first vectors are the partition's; `keys` has the rows' keys in the
    /// order, `all` those of the collection, which gets the rows that are returned.
    pub fn choose(&mut self, vectors: &[Vector], rows: Rows<'_>, keys: &Keys, all: &mut Keys) -> Vec<u16> {
        self.layout.keys_into(&vectors[..self.layout.len()], rows, &mut self.keys);
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.clear();
        self.set.insert(&self.keys, &mut numbers);
        self.heaps.resize(self.set.len(), Heap::default());
        let (mut chosen, mut place) = (Vec::new(), 0);
        rows.each(|row| {
            if self.add(numbers[place] as usize, keys.get(place), all) {
                chosen.push(row as u16);
            }
            place += 1;
        });
        self.numbers = numbers;
        chosen
    }

    /// Adds a row behind the collection to a partition, unless it comes behind enough others.
    fn add(&mut self, number: usize, key: Key<'_>, all: &mut Keys) -> bool {
        let Heap { start, length } = self.heaps[number];
        let (mut start, length) = (start as usize, length as usize);
        if length == self.count {
            let heap = &mut self.places[start..start + length];
            if key >= all.get(heap[0] as usize) {
                return false;
            }
            heap[0] = all.len() as u32;
            all.push(key);
            sift_down(heap, all);
            return true;
        }
        let room = self.heaps[number].room(self.count);
        if length == room {
            let more = (room * 2).clamp(1, self.count);
            let from = std::mem::replace(&mut start, self.places.len());
            self.places.extend_from_within(from..from + length);
            self.places.resize(start + more, 0);
        }
        self.heaps[number] = Heap { start: start as u32, length: length as u32 + 1 };
        let heap = &mut self.places[start..=start + length];
        heap[length] = all.len() as u32;
        all.push(key);
        sift_up(heap, all);
        self.kept += 1;
        true
    }

    /// The places of the rows that are kept: the collection is to have these rows alone, in this order.
    pub fn compact(&mut self) -> Vec<u32> {
        let (mut kept, mut places) = (Vec::with_capacity(self.kept), Vec::new());
        for heap in &mut self.heaps {
            let from = heap.start as usize;
            heap.start = places.len() as u32;
            places.extend(kept.len() as u32..kept.len() as u32 + heap.length);
            places.resize(heap.start as usize + heap.room(self.count), 0);
            kept.extend_from_slice(&self.places[from..from + heap.length as usize]);
        }
        self.places = places;
        kept
    }
}

/// Moves the last place up to where it belongs.
fn sift_up(heap: &mut [u32], keys: &Keys) {
    let mut at = heap.len() - 1;
    while at > 0 {
        let above = (at - 1) / 2;
        if keys.get(heap[at] as usize) <= keys.get(heap[above] as usize) {
            break;
        }
        heap.swap(at, above);
        at = above;
    }
}

/// Moves the first place down to where it belongs.
fn sift_down(heap: &mut [u32], keys: &Keys) {
    let (mut at, key) = (0, |heap: &[u32], at: usize| keys.get(heap[at] as usize));
    loop {
        let (left, right) = (2 * at + 1, 2 * at + 2);
        let mut last = at;
        for below in [left, right] {
            if below < heap.len() && key(heap, below) > key(heap, last) {
                last = below;
            }
        }
        if last == at {
            break;
        }
        heap.swap(at, last);
        at = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyColumn;
    use firn_base::Representation;
    use firn_base::random::Random;
    use firn_vector::Data;
    use std::collections::BTreeMap;

    /// Random rows in random chunks, some of which are not selected, compared with sorting all of them.
    #[test]
    fn the_first_rows_of_each_partition_are_kept() {
        for seed in 0..200 {
            let mut random = Random::seeded(seed);
            let column = KeyColumn::equal(Representation::Int64, false);
            let (layout, of_partition) = (KeyLayout::new(vec![column; 2]), KeyLayout::new(vec![column]));
            let count = [1, 2, 3, 7, 1000][seed as usize % 5];
            let partitions = random.uniform(1, 40);
            let values = random.uniform(1, 1000);
            let mut first = FirstOfEach::new(count, of_partition);
            let (mut all, mut rows) = (layout.none(), Vec::new());
            let mut expected: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
            for _ in 0..random.uniform(1, 20) {
                let length = random.uniform(1, 100) as usize;
                let mut column = |most| (0..length).map(|_| random.uniform(1, most)).collect::<Vec<i64>>();
                let (of_partition, order) = (column(partitions), column(values));
                let vector = |values: &[i64]| {
                    Vector::flat(Representation::Int64, Data::Int64(values.to_vec().into()), None)
                };
                let vectors = [vector(&of_partition), vector(&order)];
                let positions: Vec<u16> = (0..length as u16).filter(|_| random.uniform(0, 3) > 0).collect();
                let selected = Rows::at(&positions, length);
                let keys = layout.keys(&vectors, selected);
                for row in first.choose(&vectors, selected, &keys, &mut all) {
                    rows.push((of_partition[usize::from(row)], order[usize::from(row)]));
                }
                for row in &positions {
                    let row = usize::from(*row);
                    expected.entry(of_partition[row]).or_default().push(order[row]);
                }
                if random.uniform(0, 3) == 0 {
                    let kept = first.compact();
                    rows = kept.iter().map(|place| rows[*place as usize]).collect();
                    let mut keys = layout.none();
                    keys.push_all(&all, &kept);
                    all = keys;
                    assert_eq!(rows.len(), first.kept());
                }
            }
            let mut rows: Vec<(i64, i64)> =
                first.compact().iter().map(|place| rows[*place as usize]).collect();
            rows.sort_unstable();
            let expected = expected.into_iter().flat_map(|(partition, mut values)| {
                values.sort_unstable();
                values.into_iter().take(count).map(move |value| (partition, value))
            });
            assert_eq!(rows, expected.collect::<Vec<_>>(), "seed {seed}");
        }
    }
}
