//! Waiting keys: keys of rows that are in their blocks already. They are collected, to be inserted into their
//! indexes together.
//!
//! The insertion of a single key into a large index waits for the memory of every node on its path. The next
//! key waits for other nodes: 90 ns a key for dense numbers, up to 400 ns for sparse ones. A load whose keys
//! are in no order therefore collects them here, and so does the building of a new index ([`super::Load`]).
//! When there are many, they are partitioned by their first bits that differ. The parts share no node but
//! those at the top of the tree. Several threads sort and insert them. So each part fits into a cache, and
//! each node is visited once for all of its keys (the batches of [`super::radix`]).
//!
//! Mühlbauer builds an index of each chunk of a file and merges these ("On Scalable and Flexible Transaction
//! and Query Processing in Main-Memory Database Systems", TU München 2016, section 3.3.6). A merge discards
//! nodes that were built before, so here keys are merged into the one tree.
//!
//! ```text
//! number    key: up to 12 bytes ‖ place: 4                 unique, plain
//! pair      key: up to 8 bytes ‖ row id: 8                 not unique, plain
//! string    8 bytes from the first that differs on, where the key begins, its length, place          all others
//!
//! place     number of the block among those of the waiting rows: 12 bits ‖ slot: 20 bits
//! ```
//! Places have the order in which the rows were inserted, within a block and, except for blocks that several
//! threads fill at the same time, beyond.
//!
//! Waiting keys do not affect the correctness of other transactions. A transaction that claims the same key
//! meanwhile finds no other row, and gets it; the waiting key then finds a row in its way. Keys of rows that
//! are rolled back are removed here ([`WaitingKeys::truncate`]), since nothing would remove a key that was
//! inserted afterwards. They are inserted before the index is read by their transaction, or the transaction
//! ends.

use super::ordered::ROW_ID_BYTES;
use super::posting::{SUFFIXED, single};
use super::radix::{Ascending, Left, Numbers, Tree};
use super::{AT_ONCE, Index, KeyBuffer, Packed};
use crate::budget::{Counted, Held, MemoryBudget};
use crate::{Guard, pin};
use firn_base::sync::{Arc, AtomicU64, Mutex, Ordering};
use firn_base::{BlockNumber, RowId, Slot, thread};
use smallvec::SmallVec;
use std::cmp::Ordering as Compared;

/// Waiting keys take up to this many bytes, and as many once more while they are partitioned.
const MOST_BYTES: usize = if cfg!(debug_assertions) { 64 << 10 } else { 4 << 20 };

/// The budget is updated in multiples of this.
const LOT: usize = 1 << 20;

const SLOT_BITS: u32 = 20;
const MOST_BLOCKS: usize = 1 << (32 - SLOT_BITS);
const PLACE_BITS: u32 = 32;
/// A number of this size fits into [`Packed`] with its place.
const NUMBER_BYTES: usize = size_of::<Packed>() - 4;
/// So does a pair.
const PAIR_BYTES: usize = size_of::<Packed>() - ROW_ID_BYTES;

/// Fewer are sorted and inserted by one thread.
const PART: usize = if cfg!(debug_assertions) { 100 } else { 16 << 10 };

/// This many sorted keys descend the tree together.
const TOGETHER: usize = 4096;

/// Longer keys are inserted one by one: together they would need recursion as deep as their number of bytes.
const LONGEST_TOGETHER: usize = 128;

/// Waiting keys of rows of one table.
pub struct WaitingKeys {
    indexes: Vec<(Arc<Index>, Waiting)>,
    /// The blocks of their rows.
    blocks: Vec<BlockNumber>,
    budget: Arc<MemoryBudget>,
    counted: Option<Counted>,
}

/// A number of waiting keys, by index.
#[derive(Clone)]
pub struct WaitingMark(SmallVec<[(usize, usize); 4]>);

enum Waiting {
    /// With the number of bytes of a key.
    Numbers(Items<Packed>, usize),
    Pairs(Items<Packed>, usize),
    Strings(Strings),
}

/// Keys of one kind. The memory is kept for later ones.
struct Items<T> {
    waiting: Vec<T>,
    /// The target of partitioning.
    spare: Vec<T>,
}

struct Strings {
    bytes: Vec<u8>,
    items: Items<Text>,
}

impl<T> Items<T> {
    fn new() -> Items<T> {
        Items { waiting: Vec::new(), spare: Vec::new() }
    }
}

/// Reserves room for `more` keys. If there are many, reserves room for the largest number at once, so that no
/// outgrown memory is left behind; memory that is not touched is not allocated.
fn reserve<T>(waiting: &mut Vec<T>, more: usize) {
    const FEW_BYTES: usize = 64 << 10;
    if waiting.len() + more > waiting.capacity() && size_of_val(&waiting[..]) > FEW_BYTES {
        waiting.reserve_exact((MOST_BYTES / size_of::<T>()).max(more));
    }
}

/// A key that is not a number, perhaps followed by the row id.
#[derive(Clone, Copy)]
struct Text {
    /// The first bytes that are not common to all, while it is sorted.
    word: u64,
    /// Where it begins; and in the lowest bit, whether it ends with the row id.
    start: u64,
    length: u32,
    place: u32,
}

impl Text {
    fn length(self) -> usize {
        self.length as usize
    }

    fn ends_with_row(self) -> bool {
        self.start & 1 == 1
    }

    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[(self.start >> 1) as usize..][..self.length()]
    }
}

/// A row whose key was refused, and the error.
pub(crate) struct Refused<E> {
    pub row: RowId,
    pub error: E,
}

/// Inserts a single key.
pub(crate) type Enter<'e, E> = &'e (dyn Fn(&Index, &[u8], RowId, &Guard) -> Result<(), E> + Sync);

impl WaitingKeys {
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> WaitingKeys {
        WaitingKeys { indexes: Vec::new(), blocks: Vec::new(), budget: budget.clone(), counted: None }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether there is none for an index.
    pub(crate) fn has_none_of(&self, index: &Arc<Index>) -> bool {
        let waiting = self.indexes.iter().find(|(known, _)| Arc::ptr_eq(known, index));
        waiting.is_none_or(|(_, waiting)| match waiting {
            Waiting::Numbers(items, _) | Waiting::Pairs(items, _) => items.waiting.is_empty(),
            Waiting::Strings(strings) => strings.items.waiting.is_empty(),
        })
    }

    /// Whether there are so many that they should be inserted now.
    pub fn is_due(&self) -> bool {
        self.bytes() >= MOST_BYTES || self.blocks.len() >= MOST_BLOCKS / 2
    }

    fn bytes(&self) -> usize {
        let bytes = |waiting: &Waiting| match waiting {
            Waiting::Numbers(items, _) | Waiting::Pairs(items, _) => size_of_val(&items.waiting[..]),
            Waiting::Strings(Strings { bytes, items }) => bytes.len() + size_of_val(&items.waiting[..]),
        };
        self.indexes.iter().map(|(_, waiting)| bytes(waiting)).sum()
    }

    /// The current number.
    pub fn mark(&self) -> WaitingMark {
        let length = |(_, waiting): &(Arc<Index>, Waiting)| match waiting {
            Waiting::Numbers(items, _) | Waiting::Pairs(items, _) => (items.waiting.len(), 0),
            Waiting::Strings(Strings { bytes, items }) => (items.waiting.len(), bytes.len()),
        };
        WaitingMark(self.indexes.iter().map(length).collect())
    }

    /// Removes those that were added since.
    pub fn truncate(&mut self, mark: &WaitingMark) {
        for (at, (_, waiting)) in self.indexes.iter_mut().enumerate() {
            let (keys, bytes) = mark.0.get(at).copied().unwrap_or_default();
            match waiting {
                Waiting::Numbers(items, _) | Waiting::Pairs(items, _) => items.waiting.truncate(keys),
                Waiting::Strings(strings) => {
                    strings.items.waiting.truncate(keys);
                    strings.bytes.truncate(bytes);
                }
            }
        }
    }

    /// The place of a row; `None` if the waiting keys are of too many blocks.
    fn place(&mut self, row: RowId) -> Option<u32> {
        let block = match self.blocks.iter().rposition(|block| *block == row.block()) {
            Some(known) => known,
            None if self.blocks.len() == MOST_BLOCKS => return None,
            None => {
                self.blocks.push(row.block());
                self.blocks.len() - 1
            }
        };
        Some((block as u32) << SLOT_BITS | row.slot().0)
    }

    /// The keys that wait for an index.
    fn of(&mut self, index: &Arc<Index>) -> &mut Waiting {
        let known = self.indexes.iter().position(|(known, _)| Arc::ptr_eq(known, index));
        let at = known.unwrap_or_else(|| {
            let waiting = match index.packed_width() {
                Some(width) if index.spec().unique && width <= NUMBER_BYTES => {
                    Waiting::Numbers(Items::new(), width)
                }
                Some(width) if !index.spec().unique && width <= PAIR_BYTES => {
                    Waiting::Pairs(Items::new(), width)
                }
                _ => Waiting::Strings(Strings { bytes: Vec::new(), items: Items::new() }),
            };
            self.indexes.push((index.clone(), waiting));
            self.indexes.len() - 1
        });
        &mut self.indexes[at].1
    }

    /// Adds the keys of `rows` rows, in consecutive slots from that of `first` on, for an index: as numbers
    /// if they are numbers, otherwise from `encode`. Returns false without an effect if they must be inserted
    /// at once, since there is no place for rows of one more block.
    pub(crate) fn take(
        &mut self,
        index: &Arc<Index>,
        first: RowId,
        numbers: Option<&[Packed]>,
        count: usize,
        mut key: impl FnMut(usize, &mut KeyBuffer),
    ) -> bool {
        let Some(place) = self.place(first) else { return false };
        match self.of(index) {
            Waiting::Numbers(Items { waiting, .. }, _) => {
                let keys = numbers.expect("plain keys are numbers");
                reserve(waiting, count);
                waiting.extend(
                    keys.iter().zip(place..).map(|(key, place)| key << PLACE_BITS | Packed::from(place)),
                );
            }
            Waiting::Pairs(Items { waiting, .. }, _) => {
                let keys = numbers.expect("plain keys are numbers");
                reserve(waiting, count);
                let rows = single(first)..;
                waiting.extend(keys.iter().zip(rows).map(|(key, row)| key << u64::BITS | Packed::from(row)));
            }
            Waiting::Strings(strings) => {
                let mut buffer = KeyBuffer::new();
                let waiting = &mut strings.items.waiting;
                reserve(waiting, count);
                for (at, place) in (0..count).zip(place..) {
                    buffer.clear();
                    key(at, &mut buffer);
                    let ends_with_row = !index.is_exclusive(&buffer);
                    let start = strings.bytes.len();
                    reserve(&mut strings.bytes, buffer.len() + ROW_ID_BYTES);
                    strings.bytes.extend_from_slice(&buffer);
                    if ends_with_row {
                        let row = single(first) + at as u64;
                        strings.bytes.extend_from_slice(&row.to_be_bytes());
                    }
                    let length = u32::try_from(strings.bytes.len() - start);
                    waiting.push(Text {
                        word: 0,
                        start: (start as u64) << 1 | u64::from(ends_with_row),
                        length: length.expect("a key is shorter than 4 GiB"),
                        place,
                    });
                }
            }
        }
        let bytes = 2 * self.bytes();
        if self.counted.as_ref().is_none_or(|counted| counted.bytes() < bytes) {
            // First, so that the count is never too low.
            let counted = Counted::new(Held::Unfinished, bytes.next_multiple_of(LOT), &self.budget);
            self.counted = Some(counted);
        }
        true
    }

    /// Inserts all waiting keys, on up to `threads` threads; a key with a possible conflict by `enter`. If
    /// some are refused, returns the first one in the order of insertion. All remain in the list, in another
    /// order, to be cleared or inserted once more.
    pub(crate) fn enter<E: Send>(&mut self, threads: usize, enter: Enter<'_, E>) -> Result<(), Refused<E>> {
        let refused = Refusals { first: AtomicU64::new(u64::MAX), error: Mutex::new(None) };
        // If several keys of a row are refused, the error of the oldest index is returned.
        self.indexes.sort_by_key(|(index, _)| index.spec().id);
        let blocks = &self.blocks[..];
        for (index, waiting) in &mut self.indexes {
            let all = All { index, enter, refused: &refused };
            let pairs = !index.spec().unique;
            match waiting {
                Waiting::Numbers(items, width) | Waiting::Pairs(items, width) => {
                    all.enter(threads, &OfNumbers { width: *width, pairs, blocks }, items);
                }
                Waiting::Strings(Strings { bytes, items }) => {
                    let keys = OfStrings { bytes, blocks, pairs };
                    keys.set_words(&mut items.waiting);
                    all.enter(threads, &keys, items);
                }
            }
        }
        match refused.error.into_inner() {
            None => Ok(()),
            Some((place, error)) => Err(Refused { row: row_at(blocks, place), error }),
        }
    }

    /// Removes all, since they were inserted or are not needed.
    pub fn clear(&mut self) {
        self.truncate(&WaitingMark(SmallVec::new()));
        self.blocks.clear();
    }
}

fn row_at(blocks: &[BlockNumber], place: u32) -> RowId {
    let block = blocks[(place >> SLOT_BITS) as usize];
    RowId::new(block, Slot(place & ((1 << SLOT_BITS) - 1)))
}

/// The first refused key.
struct Refusals<E> {
    /// Its place; higher than any if there is none.
    first: AtomicU64,
    error: Mutex<Option<(u32, E)>>,
}

impl<E> Refusals<E> {
    /// Whether a key in this place does not matter any more.
    fn is_behind(&self, place: u32) -> bool {
        u64::from(place) > self.first.load(Ordering::Relaxed)
    }

    #[cold]
    fn put(&self, place: u32, error: E) {
        let mut first = self.error.lock();
        if first.as_ref().is_none_or(|(known, _)| place < *known) {
            *first = Some((place, error));
            self.first.store(place.into(), Ordering::Relaxed);
        }
    }
}

/// The operations on keys of one kind.
trait Keys: Sync {
    /// A waiting key.
    type Item: Copy + Send + Sync;

    /// A word whose order is that of the keys, without its first `without` bits; equal words decide nothing.
    fn head(&self, item: &Self::Item, without: u32) -> u64;
    /// The number of first bits that some keys have in common; `None` if all are.
    fn common(&self, items: &[Self::Item]) -> Option<u32>;
    /// As [`Keys::common`] for the words after those, for keys whose words are all the same: from now on they
    /// are compared only among themselves.
    fn look_on(&self, _items: &mut [Self::Item]) -> Option<u32> {
        None
    }
    /// The order of keys and, for equal keys, of places.
    fn compare(&self, a: &Self::Item, b: &Self::Item) -> Compared;
    /// Whether two keys are the same.
    fn is_same(&self, a: &Self::Item, b: &Self::Item) -> bool;
    /// Inserts different ascending keys into a tree, except those that are left.
    fn enter(&self, tree: &Tree, items: &[Self::Item], guard: &Guard) -> Left;
    /// The key, without its row, and the row.
    fn whole(&self, item: &Self::Item, key: &mut KeyBuffer) -> RowId;
    /// The place of a key that may be refused.
    fn place(&self, item: &Self::Item) -> u32;
}

/// Numbers and pairs: the lowest bits of a number are its place, those of a pair its row.
struct OfNumbers<'l> {
    /// Bytes of a key.
    width: usize,
    pairs: bool,
    blocks: &'l [BlockNumber],
}

impl OfNumbers<'_> {
    fn low_bits(&self) -> u32 {
        if self.pairs { u64::BITS } else { PLACE_BITS }
    }

    fn row(&self, item: Packed) -> RowId {
        if self.pairs { RowId::from_bits(item as u64) } else { row_at(self.blocks, item as u32) }
    }
}

impl Keys for OfNumbers<'_> {
    type Item = Packed;

    #[inline(always)]
    fn head(&self, item: &Packed, without: u32) -> u64 {
        // Equal keys are in one part.
        let key = if self.pairs { *item } else { item >> PLACE_BITS << PLACE_BITS };
        (key << without >> u64::BITS) as u64
    }

    fn common(&self, items: &[Packed]) -> Option<u32> {
        let first = items[0];
        let differ = items.iter().fold(0, |bits, item| bits | (item ^ first));
        let common = differ.leading_zeros();
        let bits = if self.pairs { Packed::BITS } else { Packed::BITS - PLACE_BITS };
        (common < bits).then_some(common)
    }

    #[inline(always)]
    fn compare(&self, a: &Packed, b: &Packed) -> Compared {
        a.cmp(b)
    }

    #[inline(always)]
    fn is_same(&self, a: &Packed, b: &Packed) -> bool {
        !self.pairs && (a ^ b) >> PLACE_BITS == 0
    }

    fn enter(&self, tree: &Tree, items: &[Packed], guard: &Guard) -> Left {
        let (keys, width) = (items, self.width);
        if self.pairs {
            let value = |at: usize| items[at] as u64;
            return tree
                .insert_ascending(&Numbers { keys, width: width + ROW_ID_BYTES, below: 0, value }, guard);
        }
        let value = |at: usize| single(self.row(items[at]));
        tree.insert_ascending(&Numbers { keys, width, below: PLACE_BITS, value }, guard)
    }

    fn whole(&self, item: &Packed, key: &mut KeyBuffer) -> RowId {
        key.set_packed(item >> self.low_bits(), self.width);
        self.row(*item)
    }

    fn place(&self, item: &Packed) -> u32 {
        *item as u32
    }
}

struct OfStrings<'l> {
    bytes: &'l [u8],
    blocks: &'l [BlockNumber],
    /// Whether the value of a key that ends with its row is the row, and not the mark of that.
    pairs: bool,
}

impl OfStrings<'_> {
    /// Stores for each key the first word that they do not all have in common.
    fn set_words(&self, waiting: &mut [Text]) {
        let Some(first) = waiting.first() else { return };
        let first = first.key(self.bytes);
        let common = |all: usize, text: &Text| {
            let key = &text.key(self.bytes)[..all.min(text.length())];
            key.iter().zip(first).take_while(|(a, b)| a == b).count()
        };
        let common = waiting.iter().fold(first.len(), common);
        waiting.iter_mut().for_each(|text| text.word = word_of(text.key(self.bytes), common));
    }
}

/// Eight bytes of a key, the first one highest, padded with zeros.
#[inline]
fn word_of(key: &[u8], from: usize) -> u64 {
    let Some(rest) = key.get(from..) else { return 0 };
    match rest.first_chunk::<8>() {
        Some(word) => u64::from_be_bytes(*word),
        None => rest.iter().rev().fold(0, |word, byte| word >> 8 | u64::from(*byte) << 56),
    }
}

impl Keys for OfStrings<'_> {
    type Item = Text;

    fn head(&self, item: &Text, without: u32) -> u64 {
        item.word << without
    }

    fn common(&self, items: &[Text]) -> Option<u32> {
        let first = items[0].word;
        let differ = items.iter().fold(0, |bits, item| bits | (item.word ^ first));
        (differ != 0).then_some(differ.leading_zeros())
    }

    fn look_on(&self, items: &mut [Text]) -> Option<u32> {
        self.set_words(items);
        self.common(items)
    }

    #[inline]
    fn compare(&self, a: &Text, b: &Text) -> Compared {
        a.word
            .cmp(&b.word)
            .then_with(|| a.key(self.bytes).cmp(b.key(self.bytes)).then_with(|| a.place.cmp(&b.place)))
    }

    #[inline]
    fn is_same(&self, a: &Text, b: &Text) -> bool {
        a.word == b.word && a.key(self.bytes) == b.key(self.bytes)
    }

    fn enter(&self, tree: &Tree, items: &[Text], guard: &Guard) -> Left {
        if items.iter().any(|item| item.length() > LONGEST_TOGETHER) {
            return std::iter::once(0..items.len()).collect();
        }
        tree.insert_ascending(&AscendingTexts { of: self, items }, guard)
    }

    fn whole(&self, item: &Text, key: &mut KeyBuffer) -> RowId {
        let text = item.key(self.bytes);
        let text = if item.ends_with_row() { &text[..text.len() - ROW_ID_BYTES] } else { text };
        key.clear();
        key.extend_from_slice(text);
        row_at(self.blocks, item.place)
    }

    fn place(&self, item: &Text) -> u32 {
        item.place
    }
}

/// Sorted strings.
struct AscendingTexts<'l, 's> {
    of: &'l OfStrings<'s>,
    items: &'l [Text],
}

impl AscendingTexts<'_, '_> {
    #[inline(always)]
    fn key(&self, at: usize) -> &[u8] {
        self.items[at].key(self.of.bytes)
    }
}

impl Ascending for AscendingTexts<'_, '_> {
    fn len(&self) -> usize {
        self.items.len()
    }

    #[inline]
    fn key_len(&self, at: usize) -> usize {
        self.items[at].length()
    }

    #[inline]
    fn byte(&self, at: usize, depth: usize) -> u8 {
        self.key(at)[depth]
    }

    #[inline]
    fn word(&self, at: usize, depth: usize) -> u64 {
        word_of(self.key(at), depth)
    }

    fn common(&self, first: usize, last: usize, depth: usize) -> usize {
        let (first, last) = (&self.key(first)[depth..], &self.key(last)[depth..]);
        depth + first.iter().zip(last).take_while(|(a, b)| a == b).count()
    }

    fn with_key<R>(&self, at: usize, with: impl FnOnce(&[u8]) -> R) -> R {
        with(self.key(at))
    }

    fn value(&self, at: usize) -> u64 {
        let item = self.items[at];
        match item.ends_with_row() && !self.of.pairs {
            true => SUFFIXED,
            false => single(row_at(self.of.blocks, item.place)),
        }
    }
}

/// The keys that wait for one index.
struct All<'l, E> {
    index: &'l Index,
    enter: Enter<'l, E>,
    refused: &'l Refusals<E>,
}

impl<E: Send> All<'_, E> {
    /// Sorts and inserts keys, on up to `threads` threads.
    fn enter<K: Keys>(&self, threads: usize, keys: &K, items: &mut Items<K::Item>) {
        let Items { waiting, spare } = items;
        let work = |items: &mut [K::Item]| {
            items.sort_unstable_by(|a, b| keys.compare(a, b));
            self.enter_sorted(keys, items);
        };
        if waiting.len() <= PART {
            return work(waiting);
        }
        if waiting.is_sorted_by(|a, b| keys.compare(a, b).is_le()) {
            let most = waiting.len().div_ceil(threads.max(1)).max(PART);
            let (mut rest, mut parts) = (&waiting[..], Vec::new());
            while !rest.is_empty() {
                // Equal keys are in one part: the later one is refused.
                let differ = |at: &usize| !keys.is_same(&rest[at - 1], &rest[*at]);
                let end = (most..rest.len()).find(differ).unwrap_or(rest.len());
                parts.push(rest.split_off(..end).expect("the part is not longer"));
            }
            return for_each(threads, parts, |part| self.enter_sorted(keys, part));
        }
        spare.clear();
        spare.extend_from_slice(waiting);
        let lengths = part(keys, waiting, spare, 0);
        std::mem::swap(waiting, spare);
        let mut rest = &mut waiting[..];
        let mut parts = Vec::with_capacity(lengths.len());
        for length in lengths {
            parts.push(rest.split_off_mut(..length).expect("parts are all of it"));
        }
        for_each(threads, parts, work);
    }

    /// Inserts ascending keys, some of which may be equal.
    fn enter_sorted<K: Keys>(&self, keys: &K, items: &[K::Item]) {
        for some in items.chunks(TOGETHER) {
            let guard = &pin();
            let mut left: SmallVec<[&K::Item; 16]> = SmallVec::new();
            let mut rest = some;
            while !rest.is_empty() {
                let same = rest.windows(2).position(|pair| keys.is_same(&pair[0], &pair[1]));
                let (different, others) = rest.split_at(same.map_or(rest.len(), |at| at + 1));
                match self.index.tree() {
                    Some(tree) => {
                        let ranges = keys.enter(tree, different, guard);
                        left.extend(ranges.into_iter().flat_map(|range| &different[range]));
                    }
                    None => left.extend(different),
                }
                let first = different.last().expect("there is a key");
                let others_of_key = others.iter().take_while(|item| keys.is_same(item, first)).count();
                left.extend(&others[..others_of_key]);
                rest = &others[others_of_key..];
            }
            self.index.settle();
            self.enter_singly(keys, &left, guard);
        }
    }

    /// Inserts keys one by one, after the paths to several of them have been descended together.
    fn enter_singly<K: Keys>(&self, keys: &K, items: &[&K::Item], guard: &Guard) {
        for some in items.chunks(AT_ONCE) {
            let mut buffers = [const { KeyBuffer::new() }; AT_ONCE];
            let rows: SmallVec<[RowId; AT_ONCE]> =
                some.iter().zip(&mut buffers).map(|(item, buffer)| keys.whole(item, buffer)).collect();
            let ways: SmallVec<[(&Index, &[u8]); AT_ONCE]> =
                buffers[..some.len()].iter().map(|key| (self.index, key.as_slice())).collect();
            Index::approach(&ways, guard);
            for ((item, row), (_, key)) in some.iter().zip(rows).zip(ways) {
                let place = keys.place(item);
                if !self.refused.is_behind(place)
                    && let Err(error) = (self.enter)(self.index, key, row, guard)
                {
                    self.refused.put(place, error);
                }
            }
        }
    }
}

/// Processes all parts.
fn for_each<T: Send>(threads: usize, parts: Vec<T>, work: impl Fn(T) + Sync) {
    let parts: Vec<Mutex<Option<T>>> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    let all = thread::for_each("firn-keys", threads, &parts, |part| {
        work(part.lock().take().expect("each part is taken once"));
        Ok(())
    });
    all.expect("nothing fails");
}

/// Moves keys to `parted`, which has the same length, such that those of a part sort before those of the next
/// one. Returns the lengths of the parts.
fn part<K: Keys>(keys: &K, items: &mut [K::Item], parted: &mut [K::Item], depth: usize) -> Vec<usize> {
    const BITS: u32 = 8;
    // Numbers are never partitioned more often, and strings hardly ever.
    const DEEPEST: usize = 16;
    let common = if depth < DEEPEST { keys.common(items).or_else(|| keys.look_on(items)) } else { None };
    let Some(common) = common else {
        parted.copy_from_slice(items);
        return vec![items.len()];
    };
    let part_of = |item: &K::Item| (keys.head(item, common) >> (u64::BITS - BITS)) as usize;
    let mut places = [0; 1 << BITS];
    items.iter().for_each(|item| places[part_of(item)] += 1);
    let lengths: Vec<usize> = places.iter().copied().filter(|length| *length > 0).collect();
    let mut next = 0;
    for place in &mut places {
        next += std::mem::replace(place, next);
    }
    for item in &*items {
        let place = &mut places[part_of(item)];
        parted[*place] = *item;
        *place += 1;
    }
    // A part that is too large for one thread is partitioned again, for example if a few keys are far from
    // all others.
    let (mut lengths_of_all, mut start) = (Vec::new(), 0);
    let all = items.len();
    for length in lengths {
        let these = start..start + length;
        start += length;
        if length > PART && length > all / 4 {
            lengths_of_all.extend(part(
                keys,
                &mut parted[these.clone()],
                &mut items[these.clone()],
                depth + 1,
            ));
            parted[these.clone()].copy_from_slice(&items[these]);
        } else {
            lengths_of_all.push(length);
        }
    }
    lengths_of_all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::key::packed;
    use crate::index::{IndexColumn, IndexId, IndexSpec, Verdict};
    use firn_base::random::Random;
    use firn_base::{Cell, ColumnId, Representation};

    fn index(types: &[(Representation, bool)], unique: bool, values: bool) -> Arc<Index> {
        let column = |(at, (representation, nullable)): (usize, &(Representation, bool))| IndexColumn {
            column: ColumnId(at as u16),
            representation: *representation,
            nullable: *nullable,
            descending: *nullable && at % 2 == 1,
            nulls_first: false,
        };
        let columns = types.iter().enumerate().map(column).collect();
        Index::new(IndexSpec { id: IndexId(1), name: "index".to_owned(), columns, unique, values })
    }

    type Value = Option<(i64, String)>;

    fn cell<'v>(representation: Representation, value: &'v Value) -> Cell<'v> {
        match (representation, value) {
            (_, None) => Cell::Null,
            (Representation::Int16, Some((number, _))) => Cell::i16(*number as i16),
            (Representation::Int32, Some((number, _))) => Cell::i32(*number as i32),
            (Representation::Int64, Some((number, _))) => Cell::i64(*number),
            (_, Some((_, text))) => Cell::Bytes(text.as_bytes()),
        }
    }

    /// Rows of some blocks, each with its cells.
    struct Rows {
        types: Vec<(Representation, bool)>,
        /// An interval: its first row, and the values.
        stretches: Vec<(RowId, Vec<Vec<Value>>)>,
    }

    impl Rows {
        fn some(types: &[(Representation, bool)], count: usize, spread: i64, random: &mut Random) -> Rows {
            let mut rows = Rows { types: types.to_vec(), stretches: Vec::new() };
            let (mut block, mut slot, mut left) = (7, 0, count);
            while left > 0 {
                let length = left.min(random.uniform(1, 300) as usize);
                left -= length;
                let mut value = |nullable: bool| -> Value {
                    // A few far from all others; for strings, prefixes that many share.
                    let number = match random.uniform(0, 50) {
                        0 => random.next_u64() as i64,
                        _ => random.uniform(-spread, spread),
                    };
                    let is_null = nullable && random.uniform(0, 5) == 0;
                    let text = match number % 3 {
                        0 if number % 5 == 0 => format!("{}{number}", "long ".repeat(200)),
                        0 => format!("{number}"),
                        1 => format!("a text that many begin with {number}"),
                        _ => format!("a text that many begin with {}\u{1}{number}", number % 7),
                    };
                    (!is_null).then_some((number, text))
                };
                let row = |_| types.iter().map(|(_, nullable)| value(*nullable)).collect();
                let values = (0..length).map(row).collect();
                rows.stretches.push((RowId::new(BlockNumber(block), Slot(slot)), values));
                slot += length as u32;
                if slot > 1_000 {
                    (block, slot) = (block + 1, 0);
                }
            }
            rows
        }

        fn each(&self, index: &Index, mut each: impl FnMut(&KeyBuffer, RowId)) {
            for (first, rows) in &self.stretches {
                for (row, slot) in rows.iter().zip(first.slot().0..) {
                    each(&self.key(index, row), RowId::new(first.block(), Slot(slot)));
                }
            }
        }

        fn key(&self, index: &Index, row: &[Value]) -> KeyBuffer {
            let cells: Vec<Cell<'_>> = row
                .iter()
                .zip(&self.types)
                .map(|(value, (representation, _))| cell(*representation, value))
                .collect();
            let mut key = KeyBuffer::new();
            index.encode(&cells, &mut key);
            key
        }

        /// Adds all of them to the waiting keys.
        fn wait(&self, index: &Arc<Index>, keys: &mut WaitingKeys) {
            for (first, rows) in &self.stretches {
                let packed = index
                    .packed_width()
                    .map(|_| rows.iter().map(|row| packed(&self.key(index, row))).collect::<Vec<Packed>>());
                let key = |at: usize, key: &mut KeyBuffer| *key = self.key(index, &rows[at]);
                assert!(keys.take(index, *first, packed.as_deref(), rows.len(), key));
            }
        }
    }

    /// The first duplicate in the order of a file: the row that requires a key, and the one that has it.
    type Duplicate = (RowId, RowId);

    fn enter(index: &Index, key: &[u8], row: RowId, guard: &Guard) -> Result<(), Duplicate> {
        if !index.spec().unique {
            index.insert(key, row, guard);
            return Ok(());
        }
        index.claim(key, row, guard, &mut |other| Err::<Verdict, _>((row, other)))
    }

    fn entries(index: &Index) -> Vec<(KeyBuffer, RowId)> {
        index.verify();
        let mut entries = Vec::new();
        let all = std::ops::Bound::Unbounded;
        index.range(all, all, false, &pin(), &mut |key, row| {
            entries.push((KeyBuffer::from_slice(key), row));
            true
        });
        entries
    }

    const KINDS: [&[(Representation, bool)]; 7] = [
        &[(Representation::Int64, false)],
        &[(Representation::Int64, false), (Representation::Int32, false)],
        &[(Representation::Int64, false), (Representation::Int64, false)],
        &[(Representation::Int32, true)],
        &[(Representation::Text, false)],
        &[(Representation::Text, true), (Representation::Text, true), (Representation::Int16, false)],
        &[(Representation::Int16, false), (Representation::Text, false)],
    ];

    /// Compares waiting keys with keys that are inserted one by one, in indexes of all kinds, empty ones and
    /// others, with and without duplicates. The resulting index and the reported duplicate are the same.
    #[test]
    fn waiting_keys_are_as_those_that_enter_one_by_one() {
        let seed = Random::from_entropy().next_u64();
        println!("seed {seed}");
        let random = &mut Random::seeded(seed);
        let (mut refused, mut entered) = (0, 0);
        for round in 0..if cfg!(miri) { KINDS.len() } else { 210 } {
            let types = KINDS[round % KINDS.len()];
            let (unique, values) = (random.uniform(0, 2) > 0, random.uniform(0, 3) > 0);
            let count = random.uniform(1, if cfg!(miri) { 20 } else { 4_000 }) as usize;
            let spread = [10, 3_000, 100_000_000][random.uniform(0, 2) as usize];
            let (waiting_index, index) = (index(types, unique, values), index(types, unique, values));
            let mut keys = WaitingKeys::new(&Arc::default());
            let guard = &pin();
            let before = random.uniform(0, if cfg!(miri) { 8 } else { 500 }) as usize;
            let before = Rows::some(types, before, spread, random);
            for index in [&waiting_index, &index] {
                before.each(index, |key, row| {
                    // Rows of other blocks.
                    let row = RowId::new(BlockNumber(row.block().0 + 1_000), row.slot());
                    let _is_twice = enter(index, key, row, guard);
                });
            }
            let rows = Rows::some(types, count, spread, random);
            let mut first = None;
            rows.each(&index, |key, row| {
                if first.is_none() {
                    first = enter(&index, key, row, guard).err();
                }
            });
            rows.wait(&waiting_index, &mut keys);
            let mark = keys.mark();
            // Keys that are rolled back are removed.
            Rows::some(types, 50, spread, random).wait(&waiting_index, &mut keys);
            keys.truncate(&mark);
            let threads = random.uniform(1, 3) as usize;
            let result = keys.enter(threads, &enter);
            assert_eq!(
                result.as_ref().err().map(|refused| refused.error),
                first,
                "seed {seed} round {round}"
            );
            assert!(result.is_ok_and(|()| true) == first.is_none());
            if first.is_some() {
                waiting_index.verify();
                refused += 1;
                continue;
            }
            assert_eq!(entries(&waiting_index), entries(&index), "seed {seed} round {round}");
            // Once more, as after a new snapshot: it has no effect.
            assert!(keys.enter(threads, &enter).is_ok());
            assert_eq!(entries(&waiting_index), entries(&index), "seed {seed} round {round}");
            entered += 1;
        }
        assert!(cfg!(miri) || refused > 0 && entered > 0);
    }

    /// Compares an index built from rows with one into which they are inserted one by one, with ascending
    /// ranges of keys and others, with and without duplicates.
    #[test]
    fn a_new_index_holds_what_enters_one_by_one() {
        let seed = Random::from_entropy().next_u64();
        println!("seed {seed}");
        let random = &mut Random::seeded(seed);
        let (mut refused, mut made) = (0, 0);
        for round in 0..if cfg!(miri) { KINDS.len() } else { 140 } {
            let types = KINDS[round % KINDS.len()];
            let (unique, values) = (random.uniform(0, 2) > 0, random.uniform(0, 3) > 0);
            let count = random.uniform(1, if cfg!(miri) { 30 } else { 6_000 }) as usize;
            let spread = [10, 100_000, 100_000_000][random.uniform(0, 2) as usize];
            let (new, index) = (index(types, unique, values), index(types, unique, values));
            let mut keys: Vec<(KeyBuffer, RowId)> = Vec::new();
            Rows::some(types, count, spread, random)
                .each(&index, |key, row| keys.push((KeyBuffer::from_slice(key), row)));
            let ascending = random.uniform(0, count as i64) as usize;
            let from = random.uniform(0, (count - ascending) as i64) as usize;
            keys[from..][..ascending].sort_by(|(a, _), (b, _)| a[..].cmp(&b[..]));
            let guard = &pin();
            let mut is_twice = false;
            for (key, row) in &keys {
                is_twice |= enter(&index, key, *row, guard).is_err();
            }
            let mut load = new.load(&Arc::default(), random.uniform(1, 3) as usize, guard);
            let added = keys.iter().try_for_each(|(key, row)| load.add(key, *row));
            match added.and_then(|()| load.finish()) {
                Err(duplicate) => {
                    assert!(is_twice, "seed {seed} round {round}");
                    let has = |row: RowId| keys.contains(&(duplicate.key.clone(), row));
                    assert!(duplicate.rows.iter().all(|row| has(*row)), "seed {seed} round {round}");
                    refused += 1;
                }
                Ok(()) => {
                    assert!(!is_twice, "seed {seed} round {round}");
                    assert_eq!(entries(&new), entries(&index), "seed {seed} round {round}");
                    made += 1;
                }
            }
        }
        assert!(cfg!(miri) || refused > 0 && made > 0);
    }

    /// Several threads insert keys while others claim and remove keys among them.
    #[test]
    fn waiting_keys_enter_beside_others() {
        let types = &[(Representation::Int64, false)];
        for unique in [true, false] {
            let index = index(types, unique, true);
            let count = if cfg!(miri) { 100 } else { 20_000 };
            let key = |number: i64| {
                let mut key = KeyBuffer::new();
                index.encode(&[Cell::i64(number)], &mut key);
                key
            };
            let mut keys = WaitingKeys::new(&Arc::default());
            // Even numbers wait, in no order.
            for turn in 0..count {
                let number = turn * 7_919 % count * 2;
                let row = RowId::new(BlockNumber(number as u64 / 1_000), Slot(number as u32 % 1_000));
                let packed = packed(&key(number));
                assert!(keys.take(&index, row, Some(&[packed]), 1, |_, _| unreachable!("it is a number")));
            }
            let other = |number: i64| RowId::new(BlockNumber(9_999), Slot(number as u32));
            thread::scope(|scope| {
                let others = thread::spawn_scoped(scope, "others", || {
                    for number in (1..2 * count).step_by(2) {
                        let guard = &pin();
                        enter(&index, &key(number), other(number), guard).unwrap();
                        if number % 3 == 0 {
                            index.remove(&key(number), other(number), guard);
                        }
                    }
                });
                assert!(keys.enter(2, &enter).is_ok());
                others.join().unwrap();
            });
            let found = entries(&index);
            let expected: Vec<i64> =
                (0..2 * count).filter(|number| number % 2 == 0 || number % 3 != 0).collect();
            assert_eq!(found.len(), expected.len());
            for ((found, row), number) in found.iter().zip(expected) {
                assert_eq!(*found, key(number));
                assert_eq!(*row == other(number), number % 2 == 1);
            }
        }
    }

    /// Rows of more blocks than there are places for are inserted at once; keys that wait already remain.
    #[test]
    #[cfg_attr(miri, ignore = "takes rows of thousands of blocks")]
    fn there_are_places_for_rows_of_so_many_blocks() {
        let index = index(&[(Representation::Int64, false)], true, true);
        let mut keys = WaitingKeys::new(&Arc::default());
        let mut take = |block: usize| {
            keys.take(
                &index,
                RowId::new(BlockNumber(block as u64), Slot(0)),
                Some(&[block as Packed]),
                1,
                |_, _| {},
            )
        };
        assert!((0..MOST_BLOCKS).all(&mut take));
        assert!(!take(MOST_BLOCKS) && take(5));
        assert!(keys.is_due());
    }
}
