//! The hash table below sets of keys and the build sides of joins: from the hash of a key to its number.
//!
//! ```text
//! slots   8 bytes each: number + 1 u32 | tag u32, or 0; about half of them are taken at most
//! ```
//!
//! Open addressing with linear probing. The tag is the upper half of the hash, and its upper bits are the place where a search begins:
//! so a table that grows is read and written from one end to the other, and no key is hashed again.
//!
//! A table may have parts of one size, by the tag's first bits. A search does not leave its part, so each part can be filled by a thread
//! of its own.
//!
//! Searches go through many keys at once. The slots of a batch are read first, in a loop without branches, so that their cache
//! misses overlap; then come the keys that these slots name, of which the processor likewise reads many ahead.

use super::list::KeyList;

/// The number of a key that is not there.
pub const NONE: u32 = u32::MAX;

/// How many keys are looked for at once.
pub(super) const BATCH: usize = 256;

const LEAST: usize = 16;

/// A hash table of numbers.
pub(super) struct Slots {
    slots: Vec<u64>,
    /// How many slots a part has, a power of two.
    part: usize,
}

/// A part of a table, or all of it.
pub(super) struct Part<'a> {
    slots: &'a mut [u64],
    /// The number of slots of the whole table.
    of: usize,
}

#[inline]
pub(super) fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Where the search for a tag begins among so many slots, by the tag's upper bits.
#[inline]
fn home(tag: u32, slots: usize) -> usize {
    ((u64::from(tag) * slots as u64) >> 32) as usize
}

/// The number that a search finds, or the free slot where it ends. `slots` is one part of a table of `of` slots.
#[inline]
fn search(slots: &[u64], of: usize, tag: u32, mut is_equal: impl FnMut(usize) -> bool) -> Result<u32, usize> {
    let mask = slots.len() - 1;
    let mut at = home(tag, of);
    loop {
        let found = slots[at & mask];
        if found == 0 {
            return Err(at & mask);
        }
        let number = found as u32 - 1;
        if (found >> 32) as u32 == tag && is_equal(number as usize) {
            return Ok(number);
        }
        at += 1;
    }
}

impl Slots {
    /// A table with room for so many numbers, in a power of two of parts.
    pub fn with_room(numbers: usize, parts: usize) -> Slots {
        assert!(parts.is_power_of_two());
        let slots = (numbers * 2).next_power_of_two().max(LEAST * parts);
        Slots { slots: vec![0; slots], part: slots / parts }
    }

    /// Removes all numbers; the table stays as large as it is.
    pub fn clear(&mut self) {
        self.slots.fill(0);
    }

    /// Makes the table so large that half of it has room for so many numbers. It has one part.
    pub fn reserve(&mut self, numbers: usize) {
        if numbers * 2 <= self.slots.len() {
            return;
        }
        assert!(numbers < NONE as usize, "numbers have 32 bits");
        let more = Slots::with_room(numbers, 1);
        let before = std::mem::replace(self, more);
        for slot in before.slots.into_iter().filter(|slot| *slot != 0) {
            let free = search(&self.slots, self.slots.len(), (slot >> 32) as u32, |_| false);
            self.slots[free.expect_err("it is not there")] = slot;
        }
    }

    /// The parts, to be filled.
    pub fn parts(&mut self) -> impl Iterator<Item = Part<'_>> {
        let of = self.slots.len();
        self.slots.chunks_mut(self.part).map(move |slots| Part { slots, of })
    }

    /// In which of so many parts a hash belongs.
    pub fn part_of(hash: u64, parts: usize) -> usize {
        home(tag(hash), parts)
    }

    /// The number of the key with a hash.
    #[inline]
    pub fn find(&self, hash: u64, is_equal: impl FnMut(usize) -> bool) -> Option<u32> {
        let of = self.slots.len();
        let from = home(tag(hash), of) & !(self.part - 1);
        search(&self.slots[from..from + self.part], of, tag(hash), is_equal).ok()
    }

    /// Appends the number of each key, or [`NONE`]; `own` are the keys by their numbers.
    pub fn find_all<L: KeyList>(&self, own: &L, keys: &L, hashes: &[u64], numbers: &mut Vec<u32>) {
        numbers.reserve(hashes.len());
        let mut from = 0;
        for hashes in hashes.chunks(BATCH) {
            let firsts = first_slots(&self.slots, self.slots.len(), hashes.iter().copied());
            for (place, (first, hash)) in firsts.iter().zip(hashes).enumerate() {
                let place = from + place;
                let number = (*first as u32).wrapping_sub(1);
                numbers.push(match *first {
                    0 => NONE,
                    _ if (*first >> 32) as u32 == tag(*hash) && own.equals(number as usize, keys, place) => {
                        number
                    }
                    _ => self.find(*hash, |number| own.equals(number, keys, place)).unwrap_or(NONE),
                });
            }
            from += hashes.len();
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.slots.len() * 8
    }
}

impl Part<'_> {
    /// How many slots it has.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Looks for keys, at most [`BATCH`] with their hashes; `is_equal` compares a key by its place in the batch with that of a
    /// number, and `add` gives a new key its number. `found` gets each key's number.
    #[inline]
    pub fn insert<S>(
        &mut self,
        state: &mut S,
        hashes: impl Iterator<Item = u64> + Clone,
        is_equal: impl Fn(&S, usize, usize) -> bool,
        mut add: impl FnMut(&mut S, usize) -> u32,
        mut found: impl FnMut(&mut S, usize, u32),
    ) {
        let firsts = first_slots(self.slots, self.of, hashes.clone());
        for (place, (first, hash)) in firsts.iter().zip(hashes).enumerate() {
            let number = (*first as u32).wrapping_sub(1);
            // Slots that were taken when the batch began have not changed.
            let is_there =
                *first != 0 && (*first >> 32) as u32 == tag(hash) && is_equal(state, place, number as usize);
            if is_there {
                found(state, place, number);
                continue;
            }
            match search(self.slots, self.of, tag(hash), |number| is_equal(state, place, number)) {
                Ok(number) => found(state, place, number),
                Err(free) => {
                    let number = add(state, place);
                    self.slots[free] = u64::from(tag(hash)) << 32 | (u64::from(number) + 1);
                    found(state, place, number);
                }
            }
        }
    }
}

/// The slots where the searches of a batch begin; `slots` is a part of a table of `of` slots.
#[inline]
fn first_slots(slots: &[u64], of: usize, hashes: impl Iterator<Item = u64>) -> [u64; BATCH] {
    let mut found = [0; BATCH];
    let mask = slots.len() - 1;
    for (found, hash) in found.iter_mut().zip(hashes) {
        *found = slots[home(tag(hash), of) & mask];
    }
    found
}
