//! Compact blocks: rows that have been cold for long, each column [encoded](crate::encoding) (DESIGN §3.3).
//!
//! The columns never change. What may change is which rows are still there: a delete clears the bit of its row and
//! links an undo record, as in any block, and an update deletes the row here and inserts it, changed, elsewhere. So the
//! chain of a row of a compact block has records of deletes and locks alone, and at its end perhaps the one that all rows have in
//! common ([`crate::heads`]), and whoever sees the row sees the same
//! values. Slots without a row are not given out before the whole block is used again.
//!
//! Readers and writers find out whether a block is compact *after* they have loaded the chain head, or the versioned
//! positions, of what they look at:
//!
//! ```text
//! freezer                                   writer                        reader
//!                                                                         loads the chain head
//! publishes the encoded columns             finds them                    finds none: reads what was there before
//! lets the rows' memory go, once            links an undo record
//! every guard of that time has gone         clears the row's bit          loads the head again: changed? → redo
//! ```
//! So who finds a block not to be compact knows that no row of it had been deleted by the time of the head that he has.
//! What he then reads stays as long as his guard.
//!
//! Strings are given out as views, as those of other blocks: the block's heap has the buffers that the encoded strings lie
//! in, so that who has a view need not know what it is of. Those that have to be decoded stay at least as long as the guard of who
//! asked for them ([`crate::decoded`]).

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
    /// In which buffer of the block's heap each column's strings lie.
    buffers: Box<[u32]>,
    /// Lasts when the columns are encoded anew.
    rows: Arc<CompactRows>,
    /// The memory that it took before it was encoded.
    raw_bytes: usize,
    counted: Counted,
}

/// What changes in a compact block.
struct CompactRows {
    /// How many rows it had at first, in its first slots.
    slots: u32,
    /// A bit for every row that is there.
    present: Box<[AtomicU64]>,
    /// How many are dead to everybody, and the collector is through with them: also with what leads to them.
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
            Some(_) => *numbers.next().expect("one for every column of strings"),
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

    /// One of them.
    #[inline]
    pub fn column(&self, column: ColumnId) -> &EncodedColumn {
        &self.columns[column.index()]
    }

    /// How many rows it had at first, in its first slots.
    pub fn slots(&self) -> u32 {
        self.rows.slots
    }

    /// Which rows are there.
    #[inline]
    pub fn present(&self) -> &[AtomicU64] {
        &self.rows.present
    }

    /// How many rows may still be known to somebody.
    pub fn left(&self) -> u32 {
        // Acquire: pairs with `count_dead`.
        self.rows.slots - self.rows.dead.load(Ordering::Acquire)
    }

    /// Counts a row of which nobody knows any more.
    pub fn count_dead(&self) {
        // Release: what was done about it comes before.
        self.rows.dead.fetch_add(1, Ordering::Release);
    }

    /// The memory it takes, without what it shares with others.
    pub fn bytes(&self) -> usize {
        self.counted.bytes()
    }

    /// The memory that it took before it was encoded.
    pub fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// A value; NULL where there never was a row, as whoever is led there by what is out of date is about to find.
    #[inline(always)]
    pub fn cell(&self, slot: usize, column: ColumnId) -> Cell<'_> {
        if slot >= self.rows.slots as usize {
            return Cell::Null;
        }
        // SAFETY: whoever has found the block compact holds a guard as long as he looks at what is in it.
        self.column(column).cell(slot, |decoded| unsafe { decoded::keep(decoded) })
    }

    /// Asks the processor to fetch what reading columns of a row touches first.
    #[inline]
    pub fn prefetch(&self, slot: usize, columns: impl IntoIterator<Item = ColumnId>) {
        if let Some(present) = self.rows.present.get(slot / 64) {
            prefetch(std::ptr::from_ref(present).cast());
        }
        for column in columns {
            self.column(column).prefetch(slot);
        }
    }

    /// Asks the processor to fetch what the memory leads to that [`Compact::prefetch`] asked for.
    #[inline]
    pub fn prefetch_further(&self, slot: usize, columns: &[ColumnId]) {
        if slot < self.rows.slots as usize {
            columns.iter().for_each(|column| self.column(*column).prefetch_further(slot));
        }
    }

    /// A value, as it would lie in a block that is not compact.
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

    /// Appends the views of the strings of a range of slots; those that have to be decoded are put into `decoded`, which
    /// the views name as if it came after all buffers that a heap may have.
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

/// The view of a string that has been decoded, and is put where others of its batch are.
pub(crate) fn put_decoded(string: &[u8], decoded: &mut Vec<u8>) -> [u64; 2] {
    if string.len() <= INLINE_BYTES {
        return inline_view(string);
    }
    let offset = u32::try_from(decoded.len()).expect("a block has fewer");
    decoded.extend_from_slice(string);
    long_view(string, BUFFERS as u32, offset)
}

/// Whether a block has become compact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Joined {
    /// It has.
    Yes,
    /// Somebody has written to it, or is about to.
    No,
    /// Its heap has no numbers left for so many columns of strings.
    NoRoom,
}

/// Where the rows of a block are if it is compact: null or made from a box.
pub(crate) struct CompactPointer(AtomicPtr<Compact>);

impl CompactPointer {
    pub fn null() -> CompactPointer {
        CompactPointer(AtomicPtr::new(ptr::null_mut()))
    }

    /// Puts others in their place, which are freed once every guard of now has gone.
    fn replace(&self, with: Option<Box<Compact>>, guard: &Guard) {
        let with = with.map_or(ptr::null_mut(), Box::into_raw);
        // Release: the content. Acquire: what is freed was others'.
        let before = self.0.swap(with, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: made from a box, and nobody else has taken it out.
            let before = unsafe { Box::from_raw(before) };
            guard.defer(move || drop(before));
        }
    }
}

impl Drop for CompactPointer {
    fn drop(&mut self) {
        let last = *self.0.get_mut();
        if !last.is_null() {
            // SAFETY: made from a box, and nobody borrows it any more.
            drop(unsafe { Box::from_raw(last) });
        }
    }
}

impl Block {
    /// The rows, if the block is compact. The caller has loaded the chain head or the positions of those that he looks
    /// at before (module), and holds a guard since.
    #[inline(always)]
    pub fn compact(&self) -> Option<&Compact> {
        // SAFETY: null or made from a box, which is freed when every guard has gone that was held when it was replaced.
        // Acquire: its content is there.
        unsafe { self.compact.0.load(Ordering::Acquire).as_ref() }
    }

    /// [`Compact::prefetch`], if the block is compact; false otherwise.
    #[inline]
    pub fn prefetch_compact(&self, slot: Slot, columns: &[ColumnId]) -> bool {
        if !self.is_compact() {
            return false;
        }
        // Whoever asks may hold none.
        let _guard = crate::pin();
        if let Some(compact) = self.compact() {
            compact.prefetch(slot.index(), columns.iter().copied());
        }
        true
    }

    /// Whether updates go elsewhere. The caller has prepared to write.
    #[inline]
    pub fn is_compact(&self) -> bool {
        self.compact().is_some()
    }

    /// Has the block be made of encoded columns from now on, if it is still frozen and has the rows that were encoded. The
    /// caller sees to it that [its memory is let go](Block::let_go_of_rows), and that no slot of it is given out any more.
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
        assert!(compact, "nobody but who has the turn leaves this state");
        Joined::Yes
    }

    /// Puts `nothing` in the place of rows that have been encoded. Every guard has gone that was held then.
    pub fn let_go_of_rows(&self, rows: &Arc<CountedMemory>, nothing: Arc<CountedMemory>) {
        let _turn = self.life.turn();
        if self.life.state() == BlockState::Compact && self.rows.is(rows) {
            self.rows.change_unread(nothing);
        }
    }

    /// Puts other columns, with the same values, in the place of those of a compact block. False if it is not compact
    /// any more, or its heap has no numbers left.
    #[must_use]
    pub fn replace_columns(&self, columns: Box<[EncodedColumn]>, guard: &Guard) -> bool {
        let _turn = self.life.turn();
        if self.life.state() != BlockState::Compact {
            return false;
        }
        let rows = self.compact().expect("it is compact").rows.clone();
        self.publish(columns, rows, guard)
    }

    /// In the turn. False, and nothing is done, if the heap has no numbers left for so many columns of strings.
    fn publish(&self, columns: Box<[EncodedColumn]>, rows: Arc<CompactRows>, guard: &Guard) -> bool {
        let raw_bytes = self.raw_bytes();
        // Strings that stay where they are keep their number.
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
            .map(|(number, _)| number.or_else(|| adopted.next()).expect("one for each that is new"))
            .collect();
        let compact = Compact::new(columns, &numbers, rows, raw_bytes, &self.budget);
        self.compact.replace(Some(compact), guard);
        // Only now: whoever comes from here on finds the columns, and has no view of before.
        self.heap.keep_only(&numbers, guard);
        true
    }

    /// Whether it is compact, and all its rows are dead to everybody.
    pub fn is_left(&self) -> bool {
        self.compact().is_some_and(|compact| compact.left() == 0)
    }

    /// Has the slots of a compact block without rows be fresh again, in the memory that blocks without rows share. False
    /// if it is [not left](Block::is_left).
    pub fn give_up_compact(&self, nothing: Arc<CountedMemory>, guard: &Guard) -> bool {
        let _turn = self.life.turn();
        if self.life.state() != BlockState::Compact || !self.is_left() {
            return false;
        }
        assert!(!self.may_have_versions() && self.rows_present() == 0, "dead rows have no versions");
        self.forget_versions(guard);
        self.life.set_rows(0);
        // First what is there without the columns: who does not find them any more goes there.
        self.rows.change_for(nothing, guard);
        self.compact.replace(None, guard);
        self.heap.keep_only(&[], guard);
        let empty = self.life.step(BlockState::Compact, BlockEvent::Emptied);
        assert!(empty, "nobody but who has the turn leaves this state");
        // Last: whoever is given a slot shall find the block frozen, and wait for his turn.
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
