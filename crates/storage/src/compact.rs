//! Compact blocks: rows that have been cold for long, each column [encoded](crate::encoding).
//!
//! The columns never change; only the set of present rows does. A delete clears the bit of its row and links
//! an undo record, as in any block. An update deletes the row here and inserts the changed row elsewhere. So
//! the chain of a row has only records of deletes and locks, and perhaps at its end the one record that all
//! rows share ([`crate::heads`]). Every snapshot that sees the row sees the same values. Slots without a row
//! are not given out before the whole block is used again.
//!
//! Readers and writers find out whether a block is compact *after* they have loaded the chain head, or the
//! versioned positions, of the row:
//!
//! ```text
//! freezer                                   writer                        reader
//!                                                                         loads the chain head
//! publishes the encoded columns             finds them                    finds none: reads the rows' memory
//! frees the rows' memory, once every        links an undo record
//! guard of that time is released            clears the row's bit          loads the head again: changed? → redo
//! ```
//! So if a thread finds that a block is not compact, no row of it had been deleted when the thread loaded the
//! head. The memory that it then reads remains until its guard is released.
//!
//! Strings are returned as views, as those of other blocks are: the block's heap has the buffers of the
//! encoded strings, so the user of a view need not know the kind of its block. Strings that have to be
//! decoded remain at least as long as the guard of their reader ([`crate::decoded`]).

use crate::block::{Block, RawCell};
use crate::budget::{Counted, Held, MemoryBudget};
use crate::encoding::EncodedColumn;
use crate::heap::{BUFFERS, INLINE_BYTES, inline_view, long_view, view_elsewhere};
use crate::memory::prefetch;
use crate::shared::CountedMemory;
use crate::state::{BlockEvent, BlockState};
use crate::{Guard, decoded};
use arrow_buffer::Buffer;
use firn_base::sync::{Arc, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use firn_base::{Cell, ColumnId, Slot};
use std::ptr;

/// The rows of a compact block.
pub(crate) struct Compact {
    columns: Box<[EncodedColumn]>,
    /// The number of the heap's buffer in which each column's strings are.
    buffers: Box<[u32]>,
    /// Kept when the columns are encoded again.
    rows: Arc<CompactRows>,
    /// The memory that it took before it was encoded.
    raw_bytes: usize,
    counted: Counted,
}

/// The part of a compact block that changes.
struct CompactRows {
    /// How many rows it had at first, in its first slots.
    slots: u32,
    /// A bit for every row that is present.
    present: Box<[AtomicU64]>,
    /// How many rows are dead to every snapshot and have been processed by the collector, with their index
    /// entries.
    dead: AtomicU32,
}

impl Compact {
    fn new(
        columns: Box<[EncodedColumn]>,
        numbers: &[u32],
        rows: Arc<CompactRows>,
        raw_bytes: usize,
        budget: &Arc<MemoryBudget>,
    ) -> Box<Compact> {
        let mut numbers = numbers.iter();
        let number = |column: &EncodedColumn| match column.string_bytes() {
            Some(_) => *numbers.next().expect("every column of strings has a number"),
            None => u32::MAX,
        };
        let buffers = columns.iter().map(number).collect();
        let bytes = columns.iter().map(EncodedColumn::bytes).sum::<usize>() + size_of_val(&rows.present[..]);
        let counted = Counted::new(Held::Rows, bytes, budget);
        Box::new(Compact { columns, buffers, rows, raw_bytes, counted })
    }

    /// The columns.
    pub fn columns(&self) -> &[EncodedColumn] {
        &self.columns
    }

    /// A column.
    #[inline]
    pub fn column(&self, column: ColumnId) -> &EncodedColumn {
        &self.columns[column.index()]
    }

    /// How many rows it had at first, in its first slots.
    pub fn slots(&self) -> u32 {
        self.rows.slots
    }

    /// Which rows are present.
    #[inline]
    pub fn present(&self) -> &[AtomicU64] {
        &self.rows.present
    }

    /// How many rows a snapshot or an index entry may still refer to.
    pub fn left(&self) -> u32 {
        // Acquire: pairs with `count_dead`.
        self.rows.slots - self.rows.dead.load(Ordering::Acquire)
    }

    /// Counts a row to which nothing refers any more.
    pub fn count_dead(&self) {
        // Release: the removal of what referred to it comes before.
        self.rows.dead.fetch_add(1, Ordering::Release);
    }

    /// The memory it takes, without what it shares with other blocks.
    pub fn bytes(&self) -> usize {
        self.counted.bytes()
    }

    /// The memory that it took before it was encoded.
    pub fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// A value; NULL for a slot that never had a row. A reader with an outdated index entry gets there before
    /// it checks.
    #[inline(always)]
    pub fn cell(&self, slot: usize, column: ColumnId) -> Cell<'_> {
        if slot >= self.rows.slots as usize {
            return Cell::Null;
        }
        // SAFETY: a reader that has found the block compact holds a guard as long as it uses the value.
        self.column(column).cell(slot, |decoded| unsafe { decoded::keep(decoded) })
    }

    /// Prefetches what reading columns of a row touches first.
    #[inline]
    pub fn prefetch(&self, slot: usize, columns: impl IntoIterator<Item = ColumnId>) {
        if let Some(present) = self.rows.present.get(slot / 64) {
            prefetch(std::ptr::from_ref(present).cast());
        }
        for column in columns {
            self.column(column).prefetch(slot);
        }
    }

    /// Prefetches what the memory refers to that [`Compact::prefetch`] fetched.
    #[inline]
    pub fn prefetch_further(&self, slot: usize, columns: &[ColumnId]) {
        if slot < self.rows.slots as usize {
            columns.iter().for_each(|column| self.column(*column).prefetch_further(slot));
        }
    }

    /// A value in the form of a block that is not compact.
    pub fn load(&self, slot: usize, column: ColumnId) -> RawCell {
        let words = match self.cell(slot, column) {
            Cell::Null => return RawCell { null: true, words: [0, 0] },
            Cell::Word(word) => [word, 0],
            Cell::Wide(words) => words,
            string => self.view(column, string.bytes()),
        };
        RawCell { null: false, words }
    }

    /// The view of a string of a column.
    #[inline]
    fn view(&self, column: ColumnId, string: &[u8]) -> [u64; 2] {
        if string.len() <= INLINE_BYTES {
            return inline_view(string);
        }
        match self.column(column).string_bytes() {
            Some(all) => {
                let offset = string.as_ptr().addr() - all.as_ptr().addr();
                long_view(string, self.buffers[column.index()], offset as u32)
            }
            None => view_elsewhere(string),
        }
    }

    /// Appends the views of the strings of a range of slots. Strings that have to be decoded are appended to
    /// `decoded`; their views refer to it as the buffer after all that a heap can have.
    pub fn views(
        &self,
        from: usize,
        to: usize,
        column: ColumnId,
        out: &mut Vec<u128>,
        decoded: &mut Vec<u8>,
    ) {
        let encoded = self.column(column);
        let lie_there = encoded.string_bytes().is_some();
        encoded.each_string(from..to, |string, times| {
            let [low, high] =
                if lie_there { self.view(column, string) } else { put_decoded(string, decoded) };
            out.extend(std::iter::repeat_n(u128::from(low) | u128::from(high) << 64, times));
        });
    }
}

/// The view of a decoded string, which is appended to those of its batch.
pub(crate) fn put_decoded(string: &[u8], decoded: &mut Vec<u8>) -> [u64; 2] {
    if string.len() <= INLINE_BYTES {
        return inline_view(string);
    }
    let offset = u32::try_from(decoded.len()).expect("a batch has fewer bytes");
    decoded.extend_from_slice(string);
    long_view(string, BUFFERS as u32, offset)
}

/// Whether a block has become compact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Joined {
    /// It is compact.
    Yes,
    /// A writer has written to it, or is about to.
    No,
    /// Its heap has too few buffer numbers left for its columns of strings.
    NoRoom,
}

/// A pointer to the rows of a compact block: null or made from a box.
pub(crate) struct CompactPointer(AtomicPtr<Compact>);

impl CompactPointer {
    pub fn null() -> CompactPointer {
        CompactPointer(AtomicPtr::new(ptr::null_mut()))
    }

    /// Replaces the rows; the former ones are freed once every guard that is held now is released.
    fn replace(&self, with: Option<Box<Compact>>, guard: &Guard) {
        let with = with.map_or(ptr::null_mut(), Box::into_raw);
        // Release: publishes the content. Acquire: another thread may have made what is freed.
        let before = self.0.swap(with, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: made from a box, and the swap has removed it.
            let before = unsafe { Box::from_raw(before) };
            guard.defer(move || drop(before));
        }
    }
}

impl Drop for CompactPointer {
    fn drop(&mut self) {
        let last = *self.0.get_mut();
        if !last.is_null() {
            // SAFETY: made from a box, and no reference to it is left.
            drop(unsafe { Box::from_raw(last) });
        }
    }
}

impl Block {
    /// The rows, if the block is compact. The caller has loaded the chain head or the positions of its rows
    /// before (see the module), and has held a guard since then.
    #[inline(always)]
    pub fn compact(&self) -> Option<&Compact> {
        // SAFETY: null or made from a box, which is freed when every guard is released that was held when it
        // was replaced. Acquire: its content is visible.
        unsafe { self.compact.0.load(Ordering::Acquire).as_ref() }
    }

    /// Calls [`Compact::prefetch`] if the block is compact; returns false otherwise.
    #[inline]
    pub fn prefetch_compact(&self, slot: Slot, columns: &[ColumnId]) -> bool {
        if !self.is_compact() {
            return false;
        }
        // The caller may hold no guard.
        let _guard = crate::pin();
        if let Some(compact) = self.compact() {
            compact.prefetch(slot.index(), columns.iter().copied());
        }
        true
    }

    /// Whether updates move rows elsewhere. The caller has prepared to write.
    #[inline]
    pub fn is_compact(&self) -> bool {
        self.compact().is_some()
    }

    /// Makes the block consist of encoded columns, if it is still frozen and has the rows that were encoded.
    /// The caller later [frees the rows' memory](Block::let_go_of_rows), and no slot of the block is given
    /// out any more.
    pub fn become_compact(
        &self,
        rows: &Arc<CountedMemory>,
        columns: Box<[EncodedColumn]>,
        guard: &Guard,
    ) -> Joined {
        let _turn = self.life.turn();
        if self.life.state() != BlockState::Frozen || !self.rows.is(rows) {
            return Joined::No;
        }
        let slots = self.rows_present();
        assert!(slots > 0 && columns.iter().all(|column| column.slots() == slots as usize));
        let present = self.present_words().iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed)));
        let rows = CompactRows { slots, present: present.collect(), dead: AtomicU32::new(0) };
        if !self.publish(columns, Arc::new(rows), guard) {
            return Joined::NoRoom;
        }
        self.hold_heads();
        let compact = self.life.step(BlockState::Frozen, BlockEvent::Encoded);
        assert!(compact, "only the holder of the turn leaves this state");
        Joined::Yes
    }

    /// Replaces the memory of rows that have been encoded by `nothing`. Every guard that was held then is
    /// released.
    pub fn let_go_of_rows(&self, rows: &Arc<CountedMemory>, nothing: Arc<CountedMemory>) {
        let _turn = self.life.turn();
        if self.life.state() == BlockState::Compact && self.rows.is(rows) {
            self.rows.change_unread(nothing);
        }
    }

    /// Replaces the columns of a compact block by others with the same values. Returns false if it is not
    /// compact any more, or its heap has no buffer numbers left.
    #[must_use]
    pub fn replace_columns(&self, columns: Box<[EncodedColumn]>, guard: &Guard) -> bool {
        let _turn = self.life.turn();
        if self.life.state() != BlockState::Compact {
            return false;
        }
        let rows = self.compact().expect("the state is compact").rows.clone();
        self.publish(columns, rows, guard)
    }

    /// Called with the turn. Returns false, and does nothing, if the heap has too few buffer numbers left.
    fn publish(&self, columns: Box<[EncodedColumn]>, rows: Arc<CompactRows>, guard: &Guard) -> bool {
        let raw_bytes = self.raw_bytes();
        // Buffers that the block has already keep their number.
        let number_before = |at: usize, strings: &Buffer| {
            let before = self.compact()?;
            let same = before.columns[at].string_bytes()?.as_ptr() == strings.as_ptr();
            same.then_some(before.buffers[at])
        };
        let all = || {
            let strings =
                columns.iter().enumerate().filter_map(|(at, column)| Some((at, column.string_bytes()?)));
            strings.map(|(at, strings)| (number_before(at, strings), strings))
        };
        let new: Vec<&Buffer> =
            all().filter_map(|(number, strings)| number.is_none().then_some(strings)).collect();
        let Some(adopted) = self.heap.adopt(&new) else { return false };
        let mut adopted = adopted.into_iter();
        let numbers: Vec<u32> = all()
            .map(|(number, _)| number.or_else(|| adopted.next()).expect("each new buffer has a number"))
            .collect();
        let compact = Compact::new(columns, &numbers, rows, raw_bytes, &self.budget);
        self.compact.replace(Some(compact), guard);
        // Only now: readers from here on find the new columns, and have no view of the former ones.
        self.heap.keep_only(&numbers, guard);
        true
    }

    /// Whether it is compact, and all its rows are dead to every snapshot.
    pub fn is_left(&self) -> bool {
        self.compact().is_some_and(|compact| compact.left() == 0)
    }

    /// Makes the slots of a compact block without rows fresh again, in the memory that blocks without rows
    /// share. Returns false if [rows are left](Block::is_left).
    pub fn give_up_compact(&self, nothing: Arc<CountedMemory>, guard: &Guard) -> bool {
        let _turn = self.life.turn();
        if self.life.state() != BlockState::Compact || !self.is_left() {
            return false;
        }
        assert!(!self.may_have_versions() && self.rows_present() == 0, "dead rows have no versions");
        self.forget_versions(guard);
        self.life.set_rows(0);
        // First the memory that is used without the columns: a reader that finds no columns reads there.
        self.rows.change_for(nothing, guard);
        self.compact.replace(None, guard);
        self.heap.keep_only(&[], guard);
        let empty = self.life.step(BlockState::Compact, BlockEvent::Emptied);
        assert!(empty, "only the holder of the turn leaves this state");
        // Last: a writer that is given a slot must find the block frozen, and wait for the turn.
        self.take_back_slots();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decoded_for_a_batch_lies_behind_all_buffers() {
        let mut decoded = Vec::new();
        assert_eq!(put_decoded(b"short", &mut decoded), inline_view(b"short"));
        put_decoded(b"the first long string", &mut decoded);
        let view = put_decoded(b"the second long string", &mut decoded);
        assert_eq!((view[1] as u32 as usize, view[1] >> 32), (BUFFERS, 21));
        assert_eq!(decoded[21..], *b"the second long string");
    }
}
