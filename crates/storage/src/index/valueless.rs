//! Indexes without values (value-less): of the rows of compact blocks they keep only the row ids, in the
//! order of the rows' keys. The key of such an entry is read from the row, which never changes. See Funke,
//! Kemper and Neumann, "Compacting Transactional Data in Hybrid OLTP&OLAP Databases", VLDB 2012, section 3.5.
//!
//! ```text
//! fresh    key ‖ row id, in a tree       rows that may still change, and those not yet taken
//! sorted   row ids, in an array          rows of compact blocks, 8 bytes each
//! ```
//!
//! The array is replaced as a whole. Now and then the entries of blocks that have become compact are *taken*
//! out of the tree. Entries of dead rows, or of blocks that are about to be freed, are *dropped*. A range is
//! read from both at once. A reader that has begun to read an array continues with it. So taken entries
//! remain in the tree, and a dropped block remains as it is, until no reader has a former array:
//!
//! ```text
//! idle ──blocks have become compact, or are to be freed──> settling ──former arrays have no reader──> idle
//!        a new array is put in place                          taken entries are removed from the tree
//! ```
//!
//! Meanwhile an entry may be in both, and is returned once. No entry is added for a row of a compact block,
//! so an entry that is removed need not be searched for again.
//!
//! A look-up is a binary search in the array, and each row that it reads may be in no cache. So eight bytes
//! of every [`SAMPLE`]th key are kept, those behind the common prefix of all keys.

use super::KeyBuffer;
use super::art::PairTree;
use super::key::Codec;
use super::ordered::{EVERYTHING, OrderedIndex, Span, split};
use super::spec::IndexColumn;
use crate::block::Block;
use crate::budget::{Counted, Held};
use crate::decoded::Scratch;
use crate::state::BlockState;
use crate::{Guard, Table};
use firn_base::sync::{Arc, AtomicU64, Mutex, OnceLock, Ordering, RwLock, Weak};
use firn_base::{BlockNumber, RowId};
use std::cmp;
use std::collections::HashSet;
use std::ops::Range;

/// Eight bytes are kept of one key in this many.
const SAMPLE: usize = 64;

/// Entries of the tree that are processed under one guard.
const STRETCH: usize = 4096;

/// A new array is made when there is at least one new block for this many in the current array.
const SHARE: usize = 8;

/// This many removals are applied while other threads wait.
const FEW: usize = 64;

/// How many rows ahead of the visited one are prefetched.
const AHEAD: usize = 8;

const WORD_BITS: usize = u64::BITS as usize;

/// A non-unique index that stores the keys only of rows that may change.
pub(super) struct ValuelessIndex {
    fresh: PairTree,
    sorted: RwLock<Arc<Sorted>>,
    codec: Codec,
    columns: usize,
    /// The table of the rows, once the index belongs to one.
    table: OnceLock<Weak<Table>>,
    /// The holder may replace the array.
    turn: Mutex<Turn>,
    /// Set while a new array is being made.
    noted: Mutex<Option<Noted>>,
}

/// Entries that have been removed since the making of a new array began, and may be in it.
struct Noted {
    /// The blocks whose rows it will have.
    blocks: Arc<HashSet<BlockNumber>>,
    removed: Vec<(KeyBuffer, RowId)>,
}

/// The state of the replacement of arrays.
#[derive(Default)]
struct Turn {
    /// Former arrays.
    replaced: Vec<Weak<Sorted>>,
    /// Whether the tree still has taken entries.
    has_taken: bool,
}

impl Turn {
    /// Whether no former array has a reader.
    fn is_settled(&mut self) -> bool {
        self.replaced.retain(|array| array.strong_count() > 0);
        self.replaced.is_empty()
    }
}

/// The rows of compact blocks.
#[derive(Default)]
struct Sorted {
    /// In the order of their keys, and for one key by their ids.
    rows: Vec<RowId>,
    /// A bit for each of them that has been removed since.
    gone: Vec<AtomicU64>,
    /// The blocks from which entries were taken.
    blocks: Arc<HashSet<BlockNumber>>,
    /// The common prefix of all keys.
    common: Vec<u8>,
    /// The following bytes of each [`SAMPLE`]th key.
    samples: Vec<u64>,
    counted: Option<Counted>,
}

impl Sorted {
    fn is_gone(&self, at: usize) -> bool {
        self.gone[at / WORD_BITS].load(Ordering::Relaxed) >> (at % WORD_BITS) & 1 == 1
    }

    /// The first entry not before this key and row.
    fn first_from(&self, key: &[u8], row: RowId, values: &mut Values<'_>) -> usize {
        if self.rows.is_empty() {
            return 0;
        }
        let shared = key.len().min(self.common.len());
        match key[..shared].cmp(&self.common[..shared]) {
            cmp::Ordering::Less => return 0,
            cmp::Ordering::Greater => return self.rows.len(),
            cmp::Ordering::Equal if key.len() < self.common.len() => return 0,
            cmp::Ordering::Equal => {}
        }
        let word = word(key, self.common.len());
        let least = self.samples.partition_point(|sample| *sample < word);
        let most = self.samples.partition_point(|sample| *sample <= word);
        let from = least.saturating_sub(1) * SAMPLE;
        let to = (most * SAMPLE).min(self.rows.len());
        self.first_within(from, to, key, row, values)
    }

    /// As [`Sorted::first_from`], if it is known to be between `from` and `to`.
    fn first_within(&self, from: usize, to: usize, key: &[u8], row: RowId, values: &mut Values<'_>) -> usize {
        let is_before = |other: &RowId| (values.key(*other), *other) < (key, row);
        from + self.rows[from..to].partition_point(is_before)
    }

    /// As [`Sorted::first_from`], if it is known to be at `from` or soon after.
    fn first_after(&self, from: usize, key: &[u8], row: RowId, values: &mut Values<'_>) -> usize {
        let (mut from, mut step) = (from, 1);
        loop {
            let Some(next) = self.rows.get(from + step - 1) else {
                return self.first_within(from, self.rows.len(), key, row, values);
            };
            if (values.key(*next), *next) >= (key, row) {
                return self.first_within(from, from + step - 1, key, row, values);
            }
            from += step;
            step *= 2;
        }
    }

    /// The position of the entry of this key and row. The row may have another key by now, and an entry for
    /// that.
    fn position(&self, key: &[u8], row: RowId, values: &mut Values<'_>) -> Option<usize> {
        let may_be_here = self.blocks.contains(&row.block()) && values.key(row) == key;
        let at = may_be_here.then(|| self.first_from(key, row, values))?;
        (self.rows.get(at) == Some(&row) && !self.is_gone(at)).then_some(at)
    }

    fn remove(&self, at: usize) {
        self.gone[at / WORD_BITS].fetch_or(1 << (at % WORD_BITS), Ordering::Relaxed);
    }

    /// Entries of a part that are of these blocks and have not been removed.
    fn still_in(&self, blocks: &HashSet<BlockNumber>, part: Range<usize>) -> impl Iterator<Item = RowId> {
        let remains = |at: &usize| !self.is_gone(*at) && blocks.contains(&self.rows[*at].block());
        part.filter(remains).map(|at| self.rows[at])
    }

    fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<RowId>() + (self.gone.len() + self.samples.len()) * size_of::<u64>()
    }
}

/// Eight bytes of a key after the first `skip`; the words of ascending keys ascend.
fn word(key: &[u8], skip: usize) -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    let rest = &key[skip.min(key.len())..];
    let length = rest.len().min(bytes.len());
    bytes[..length].copy_from_slice(&rest[..length]);
    u64::from_be_bytes(bytes)
}

/// Reads the keys of rows of compact blocks.
struct Values<'a> {
    table: Arc<Table>,
    index: &'a ValuelessIndex,
    guard: &'a Guard,
    scratch: Scratch,
    key: KeyBuffer,
}

impl Values<'_> {
    fn key(&mut self, row: RowId) -> &[u8] {
        self.key.clear();
        let block = self.table.blocks().get(row.block()).expect("a table keeps its blocks");
        let compact = block.compact().expect("a block with listed rows is compact");
        let slot = row.slot().index();
        let columns = self.index.columns;
        let mut cell = self.scratch.row(columns, |column, keep| compact.column(column).cell(slot, keep));
        self.index.codec.encode(|part| cell(part.column), columns, &mut self.key);
        &self.key
    }
}

impl ValuelessIndex {
    pub(super) fn new(columns: &[IndexColumn]) -> ValuelessIndex {
        ValuelessIndex {
            fresh: PairTree::new(),
            sorted: RwLock::new(Arc::default()),
            codec: Codec::new(columns),
            columns: columns.len(),
            table: OnceLock::new(),
            turn: Mutex::new(Turn::default()),
            noted: Mutex::new(None),
        }
    }

    /// The tree.
    pub(super) fn fresh(&self) -> &PairTree {
        &self.fresh
    }

    /// Sets the table of the rows.
    pub(super) fn read_values_from(&self, table: Weak<Table>) {
        // The first table to which it was added.
        let _known = self.table.set(table);
    }

    /// Bytes of the array.
    pub(super) fn sorted_bytes(&self) -> usize {
        self.sorted.read().counted.as_ref().map_or(0, Counted::bytes)
    }

    /// The current array. While it is held, entries that a later array has taken remain in the tree.
    fn sorted(&self) -> Arc<Sorted> {
        self.sorted.read().clone()
    }

    /// A reader of the keys of rows; `None` if the table was dropped.
    fn values<'a>(&'a self, guard: &'a Guard) -> Option<Values<'a>> {
        let table = self.table.get()?.upgrade()?;
        Some(Values { table, index: self, guard, scratch: Scratch::default(), key: KeyBuffer::new() })
    }

    /// Takes the entries of blocks that have become compact, if there are any. Returns whether there was
    /// anything to do. To be called regularly, by one thread at a time. It takes long, and ends early when
    /// `go_on` returns false.
    pub(super) fn tend(&self, go_on: &dyn Fn() -> bool) -> bool {
        let mut turn = self.turn.lock();
        if !turn.is_settled() {
            return false;
        }
        if turn.has_taken {
            if !self.forget_taken(go_on) {
                return false;
            }
            turn.has_taken = false;
        }
        let Some(blocks) = self.compact_blocks() else { return false };
        let before = self.sorted();
        let new = blocks.difference(&before.blocks).count();
        new > 0
            && new * SHARE >= before.blocks.len()
            && self.take(&mut turn, &before, Arc::new(blocks), go_on)
    }

    /// Whether nothing is read of these blocks for the index any more. If something may be, arranges that it
    /// soon is not. The blocks are compact, and none of their rows is left.
    pub(super) fn has_dropped(&self, blocks: &[BlockNumber]) -> bool {
        let mut turn = self.turn.lock();
        let before = self.sorted();
        if blocks.iter().any(|block| before.blocks.contains(block)) {
            let kept = before.blocks.iter().copied().filter(|block| !blocks.contains(block));
            let kept = Arc::new(kept.collect());
            self.note(&kept);
            let rows = before.still_in(&kept, 0..before.rows.len()).collect();
            self.replace(&mut turn, rows, kept);
        }
        drop(before);
        turn.is_settled()
    }

    /// The compact blocks that may have rows; `None` if the table was dropped.
    fn compact_blocks(&self) -> Option<HashSet<BlockNumber>> {
        let table = self.table.get()?.upgrade()?;
        let _guard = crate::pin();
        let is_compact = |block: &&Block| block.life.state() == BlockState::Compact && !block.is_left();
        Some(table.blocks().iter().filter(is_compact).map(|block| block.number).collect())
    }

    /// Begins to note removals.
    fn note(&self, blocks: &Arc<HashSet<BlockNumber>>) {
        *self.noted.lock() = Some(Noted { blocks: blocks.clone(), removed: Vec::new() });
    }

    /// Calls `each` with all entries of the tree in order, [`STRETCH`] of them under one guard, and with two
    /// readers of keys. Returns false if it ended early.
    fn each_fresh(
        &self,
        go_on: &dyn Fn() -> bool,
        mut each: impl FnMut([&mut Values<'_>; 2], &[u8], RowId),
    ) -> bool {
        let mut from = KeyBuffer::new();
        loop {
            let guard = &crate::pin();
            let (Some(mut values), Some(mut other)) = (self.values(guard), self.values(guard)) else {
                return false;
            };
            let mut left = STRETCH;
            self.fresh.pairs_from(&from.clone(), guard, &mut |pair| {
                let (key, row) = split(pair);
                each([&mut values, &mut other], key, row);
                left -= 1;
                if left == 0 {
                    from.clear();
                    from.extend_from_slice(pair);
                    // The next possible entry.
                    from.push(0);
                }
                left > 0
            });
            if left > 0 {
                return true;
            }
            if !go_on() {
                return false;
            }
        }
    }

    /// Makes an array with the entries of these blocks.
    fn take(
        &self,
        turn: &mut Turn,
        before: &Sorted,
        blocks: Arc<HashSet<BlockNumber>>,
        go_on: &dyn Fn() -> bool,
    ) -> bool {
        self.note(&blocks);
        let mut rows = Vec::new();
        let mut next = 0;
        let mut has_taken = false;
        let through = self.each_fresh(go_on, |[values, other], key, row| {
            // An entry that is about to be removed may not have the row's key.
            if blocks.contains(&row.block()) && values.key(row) == key {
                let to = before.first_after(next, key, row, other);
                rows.extend(before.still_in(&blocks, next..to));
                // It may be in both.
                next = to + usize::from(before.rows.get(to) == Some(&row));
                rows.push(row);
                has_taken = true;
            }
        });
        if !through {
            *self.noted.lock() = None;
            return false;
        }
        rows.extend(before.still_in(&blocks, next..before.rows.len()));
        rows.shrink_to_fit();
        turn.has_taken |= has_taken;
        self.replace(turn, rows, blocks);
        true
    }

    /// Replaces the array, without the entries that have been removed since the making of the new one began.
    fn replace(&self, turn: &mut Turn, rows: Vec<RowId>, blocks: Arc<HashSet<BlockNumber>>) {
        // No reader looks for rows of a dropped table.
        let sorted = Arc::new(self.make(rows, blocks).unwrap_or_default());
        let mut noted = self.noted.lock();
        loop {
            let removed = noted.as_mut().map(|noted| std::mem::take(&mut noted.removed)).unwrap_or_default();
            let make_up = || {
                let guard = &crate::pin();
                let Some(mut values) = self.values(guard) else { return };
                for (key, row) in &removed {
                    sorted.position(key, *row, &mut values).into_iter().for_each(|at| sorted.remove(at));
                }
            };
            if removed.len() <= FEW {
                make_up();
                break;
            }
            drop(noted);
            make_up();
            noted = self.noted.lock();
        }
        *noted = None;
        let before = std::mem::replace(&mut *self.sorted.write(), sorted);
        turn.replaced.push(Arc::downgrade(&before));
    }

    /// An array of rows that existed when they were listed; `None` if the table was dropped.
    fn make(&self, rows: Vec<RowId>, blocks: Arc<HashSet<BlockNumber>>) -> Option<Sorted> {
        let mut common = Vec::new();
        if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
            let guard = &crate::pin();
            let mut values = self.values(guard)?;
            common.extend_from_slice(values.key(*first));
            let shared = common.iter().zip(values.key(*last)).take_while(|(a, b)| a == b).count();
            common.truncate(shared);
        }
        let mut samples = Vec::with_capacity(rows.len().div_ceil(SAMPLE));
        for part in rows.chunks(SAMPLE * STRETCH) {
            let guard = &crate::pin();
            let mut values = self.values(guard)?;
            samples.extend(part.iter().step_by(SAMPLE).map(|row| word(values.key(*row), common.len())));
        }
        let gone = (0..rows.len().div_ceil(WORD_BITS)).map(|_| AtomicU64::new(0)).collect();
        let mut sorted = Sorted { rows, gone, blocks, common, samples, counted: None };
        let table = self.table.get()?.upgrade()?;
        sorted.counted = Some(Counted::new(Held::Indexes, sorted.bytes(), table.budget()));
        Some(sorted)
    }

    /// Removes the taken entries from the tree. Returns false if some are left.
    fn forget_taken(&self, go_on: &dyn Fn() -> bool) -> bool {
        let sorted = self.sorted();
        self.each_fresh(go_on, |[values, _], key, row| {
            if sorted.blocks.contains(&row.block()) && values.key(row) == key {
                self.fresh.remove(key, row, values.guard, || true);
            }
        })
    }

    /// The entries of an array in a span, one after another, if there are any.
    fn listed<'a>(
        &'a self,
        sorted: &'a Sorted,
        span: Span<'_>,
        reverse: bool,
        guard: &'a Guard,
    ) -> Option<Listed<'a>> {
        if sorted.rows.is_empty() {
            return None;
        }
        let mut values = self.values(guard)?;
        let from = sorted.first_from(span.low, RowId::from_bits(0), &mut values);
        let to = match span.high {
            Some(high) => sorted.first_from(high, RowId::from_bits(0), &mut values),
            None => sorted.rows.len(),
        };
        (from < to).then_some(Listed { sorted, values, from, to, reverse, current: None })
    }
}

/// Entries of an array that are being read.
struct Listed<'a> {
    sorted: &'a Sorted,
    values: Values<'a>,
    from: usize,
    to: usize,
    reverse: bool,
    /// The row whose key was read last.
    current: Option<RowId>,
}

impl Listed<'_> {
    /// The next entry.
    fn next(&mut self, ahead: &mut impl FnMut(RowId)) -> Option<(&[u8], RowId)> {
        while self.current.is_none() && self.from < self.to {
            let at = if self.reverse { self.to - 1 } else { self.from };
            let soon = if self.reverse { at.checked_sub(AHEAD) } else { Some(at + AHEAD) };
            soon.filter(|soon| (self.from..self.to).contains(soon))
                .into_iter()
                .for_each(|soon| ahead(self.sorted.rows[soon]));
            if self.reverse {
                self.to -= 1
            } else {
                self.from += 1
            }
            if !self.sorted.is_gone(at) {
                self.current = Some(self.sorted.rows[at]);
                self.values.key(self.sorted.rows[at]);
            }
        }
        self.current.map(|row| (&self.values.key[..], row))
    }

    fn skip(&mut self) {
        self.current = None;
    }
}

impl OrderedIndex for ValuelessIndex {
    fn insert(&self, key: &[u8], row: RowId, guard: &Guard) {
        self.fresh.insert(key, row, guard);
    }

    fn remove(&self, key: &[u8], row: RowId, guard: &Guard, mut dead: impl FnMut() -> bool) {
        self.fresh.remove(key, row, guard, &mut dead);
        // In this order: if no new array is being made, the former one is found in place. An array whose
        // making begins only now does not get the entry, which has left the tree.
        let is_on_its_way =
            self.noted.lock().as_ref().is_some_and(|noted| noted.blocks.contains(&row.block()));
        let position = || self.sorted().position(key, row, &mut self.values(guard)?);
        if !(is_on_its_way || position().is_some()) || !dead() {
            return;
        }
        // Under the lock the current array is not replaced.
        let mut noted = self.noted.lock();
        if let Some(at) = position() {
            self.sorted().remove(at);
        }
        if let Some(noted) = noted.as_mut().filter(|noted| noted.blocks.contains(&row.block())) {
            noted.removed.push((KeyBuffer::from_slice(key), row));
        }
    }

    fn range(
        &self,
        span: Span<'_>,
        reverse: bool,
        guard: &Guard,
        ahead: &mut impl FnMut(RowId),
        visit: &mut impl FnMut(&[u8], RowId) -> bool,
    ) {
        // Held until the tree has been read as well.
        let sorted = self.sorted();
        let Some(mut listed) = self.listed(&sorted, span, reverse, guard) else {
            return self.fresh.range(span, reverse, guard, ahead, visit);
        };
        let mut continues = true;
        self.fresh.range(span, reverse, guard, &mut |_| {}, &mut |key, row| {
            while let Some(next) = listed.next(ahead) {
                let order = if reverse { (key, row).cmp(&next) } else { next.cmp(&(key, row)) };
                if order == cmp::Ordering::Greater {
                    break;
                }
                continues = order == cmp::Ordering::Equal || visit(next.0, next.1);
                listed.skip();
                if !continues {
                    return false;
                }
            }
            continues = visit(key, row);
            continues
        });
        while continues && let Some((key, row)) = listed.next(ahead) {
            continues = visit(key, row);
            listed.skip();
        }
    }

    fn len(&self, guard: &Guard) -> usize {
        let mut count = 0;
        self.range(EVERYTHING, false, guard, &mut |_| {}, &mut |_, _| {
            count += 1;
            true
        });
        count
    }

    fn memory_bytes(&self, guard: &Guard) -> usize {
        self.fresh.memory_bytes(guard) + self.sorted_bytes()
    }

    fn verify(&self, guard: &Guard) {
        self.fresh.verify(guard);
        let sorted = self.sorted();
        let Some(mut values) = self.values(guard) else { return };
        let mut last: Option<(KeyBuffer, RowId)> = None;
        for (at, row) in sorted.rows.iter().enumerate() {
            let key = KeyBuffer::from_slice(values.key(*row));
            assert!(key.starts_with(&sorted.common), "{row:?} has another prefix");
            if at % SAMPLE == 0 {
                assert_eq!(sorted.samples[at / SAMPLE], word(&key, sorted.common.len()), "{row:?}");
            }
            if let Some((last_key, last_row)) = &last {
                assert!((&last_key[..], last_row) < (&key[..], row), "{row:?} is after {last_row:?}");
            }
            last = Some((key, *row));
        }
    }
}
