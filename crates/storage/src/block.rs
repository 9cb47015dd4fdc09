//! A block: up to 1 MiB of rows of one table, stored by column, changed in place.
//!
//! Writers and readers of a block use no locks. Every function below is a part of this protocol between a
//! writer and a reader of one row or one range of rows:
//!
//! ```text
//! writer                                        reader
//! cover the row in `positions`                  load the chain head (or the range's position)
//! link an undo record at the chain head         copy the columns (relaxed)
//! fence(Release)                                fence(Acquire)
//! change the columns (relaxed)                  load the head (or position) again: changed? → redo
//!                                               undo what the snapshot does not see
//! ```
//! If the copy contains anything that the writer wrote, the fences order the link before the second load, so
//! the reader notices. A 16-byte value may be read torn; the reader follows no view before the check.

use crate::Guard;
use crate::budget::{Held, MemoryBudget};
use crate::compact::CompactPointer;
use crate::heads::Heads;
use crate::heap::{self, Appender, Heap, INLINE_BYTES, Recent};
use crate::layout::{ColumnLayout, Layout, PART_ALIGN, RANGE_SLOTS, Unit};
use crate::life::Life;
use crate::memory::{Memory, Span};
use crate::position::Position;
use crate::shared::{CountedMemory, SharedMemory};
use crate::version::undo_unseen;
use arrow_buffer::{Buffer, NullBuffer};
use firn_base::sync::{Arc, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use firn_base::{BlockNumber, Cell, ColumnId, RowId, Slot, Snapshot, TableId};
use smallvec::SmallVec;

/// A cell as a block holds it: zero-extended bits, or a view into the block's heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RawCell {
    pub null: bool,
    pub words: [u64; 2],
}

/// How many rows ahead of the one that is written memory is prefetched.
pub(crate) const AHEAD: usize = 8;

/// The number of rows from which on the search for repeated strings pays.
const ENOUGH_TO_SHARE: u32 = 16;

/// A block of rows.
pub(crate) struct Block {
    pub table: TableId,
    pub number: BlockNumber,
    pub layout: Arc<Layout>,
    pub(crate) rows: SharedMemory,
    pub(crate) compact: CompactPointer,
    pub(crate) heap: Heap,
    pub(crate) life: Life,
    /// The heads of its rows' version chains.
    pub(crate) heads: Heads,
    positions: Box<[Position]>,
    /// Number of slots given out, from 0 on.
    allocated: AtomicU32,
    /// Counts the block's memory.
    pub(crate) budget: Arc<MemoryBudget>,
}

impl Block {
    pub fn new(table: TableId, number: BlockNumber, layout: Arc<Layout>, budget: Arc<MemoryBudget>) -> Block {
        let rows = CountedMemory::new(Memory::zeroed(layout.bytes), Held::Rows, &budget);
        Block {
            table,
            number,
            rows: SharedMemory::new(rows),
            compact: CompactPointer::null(),
            heap: Heap::new(budget.clone()),
            budget,
            life: Life::default(),
            heads: Heads::none(layout.slots),
            positions: (0..layout.slots / RANGE_SLOTS).map(|_| Position::default()).collect(),
            allocated: AtomicU32::new(0),
            layout,
        }
    }

    /// The id of the row in `slot`.
    #[inline]
    pub fn row(&self, slot: Slot) -> RowId {
        RowId::new(self.number, slot)
    }

    /// Number of slots given out. There are no rows beyond.
    #[inline]
    pub fn allocated(&self) -> u32 {
        self.allocated.load(Ordering::Acquire).min(self.layout.slots)
    }

    /// Gives out up to `wanted` consecutive slots: the first, and how many.
    pub fn allocate(&self, wanted: u32) -> Option<(Slot, u32)> {
        let slots = self.layout.slots;
        let first = self
            .allocated
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |next| {
                (next < slots).then(|| slots.min(next.saturating_add(wanted)))
            })
            .ok()?;
        Some((Slot(first), wanted.min(slots - first)))
    }

    /// Resets the number of slots that are given out to 0.
    pub fn take_back_slots(&self) {
        self.allocated.store(0, Ordering::Release);
    }

    /// Lets no slot be given out from now on, as if all had been. Returns how many have been.
    pub fn close(&self) -> u32 {
        self.allocated.swap(self.layout.slots, Ordering::AcqRel)
    }

    /// Undoes [`Block::close`].
    pub fn reopen(&self, allocated: u32) {
        self.allocated.store(allocated, Ordering::Release);
    }

    /// Recovery only: counts every slot up to and with `slot` as given out.
    pub fn allocate_through(&self, slot: Slot) {
        self.allocated.fetch_max(slot.0 + 1, Ordering::AcqRel);
    }

    /// The rows' memory.
    #[inline(always)]
    fn memory(&self) -> Span<'_> {
        // SAFETY: made with the block, and only ever replaced by other memory.
        unsafe { self.rows.always() }
    }

    /// Every writer calls this, under the guard with which it then reads the row and links its record. If the
    /// block is not hot, a row's memory may be replaced; the writer must not keep references to it from
    /// before this call.
    #[inline]
    pub fn prepare_write(&self) {
        if !self.life.is_hot() {
            self.thaw();
        }
    }

    // ---- present bits ----

    #[inline]
    pub fn present_words(&self) -> &[AtomicU64] {
        match self.compact() {
            None => self.memory().u64s(0, self.layout.slots as usize / 64),
            Some(compact) => compact.present(),
        }
    }

    #[inline]
    pub fn is_present(&self, slot: Slot) -> bool {
        // Acquire: pairs with `set_present`. The columns of a row that is present are there.
        self.present_word(slot).load(Ordering::Acquire) >> (slot.0 % 64) & 1 != 0
    }

    #[inline]
    pub fn set_present(&self, slot: Slot, present: bool) {
        // Pairs with the load in `is_present`.
        fence(Ordering::Release);
        set_bit(self.present_word(slot), slot.index(), present);
    }

    #[inline]
    fn present_word(&self, slot: Slot) -> &AtomicU64 {
        self.check(slot);
        match self.compact() {
            // SAFETY: the block begins with a bit for every slot.
            None => unsafe { self.bit_word(0, slot.index()) },
            Some(compact) => &compact.present()[slot.index() / 64],
        }
    }

    // ---- columns ----

    /// The value bits of a boolean column.
    #[inline]
    pub fn bits(&self, column: ColumnId) -> &[AtomicU64] {
        self.memory().u64s(self.layout.column(column).values(), self.layout.slots as usize / 64)
    }

    /// The validity bits of a nullable column.
    #[inline]
    pub fn validity(&self, column: ColumnId) -> Option<&[AtomicU64]> {
        let validity = self.layout.column(column).validity()?;
        Some(self.memory().u64s(validity, self.layout.slots as usize / 64))
    }

    /// The values of a 2-byte column.
    #[inline]
    pub fn u16s(&self, column: ColumnId) -> &[AtomicU16] {
        self.memory().u16s(self.layout.column(column).values(), self.layout.slots as usize)
    }

    /// The values of a 4-byte column.
    #[inline]
    pub fn u32s(&self, column: ColumnId) -> &[AtomicU32] {
        self.memory().u32s(self.layout.column(column).values(), self.layout.slots as usize)
    }

    /// The values of an 8-byte column.
    #[inline]
    pub fn u64s(&self, column: ColumnId) -> &[AtomicU64] {
        self.memory().u64s(self.layout.column(column).values(), self.layout.slots as usize)
    }

    /// The values of a 16-byte column or the views of a string column: two words a slot.
    #[inline]
    pub fn pairs(&self, column: ColumnId) -> &[AtomicU64] {
        self.memory().u64s(self.layout.column(column).values(), 2 * self.layout.slots as usize)
    }

    /// The heap's buffers, for Arrow.
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// What the column holds now, written by any transaction. May be torn: see the protocol.
    #[inline]
    pub fn load_cell(&self, slot: Slot, column: ColumnId) -> RawCell {
        self.check(slot);
        if let Some(compact) = self.compact() {
            return compact.load(slot.index(), column);
        }
        // SAFETY: just checked.
        match unsafe { self.load_words(slot.index(), self.layout.column(column)) } {
            Some(words) => RawCell { null: false, words },
            None => RawCell { null: true, words: [0, 0] },
        }
    }

    /// The words of a value, `None` for NULL.
    ///
    /// # Safety
    /// The slot `at` has been [checked](Block::check).
    #[inline(always)]
    unsafe fn load_words(&self, at: usize, column: ColumnLayout) -> Option<[u64; 2]> {
        use Ordering::Relaxed;
        let values = column.values();
        // SAFETY: every part of the layout has room for `slots` values, of which this is one, in the unit of
        // the layout. Parts are aligned to more than any unit.
        unsafe {
            if let Some(validity) = column.validity()
                && self.bit_word(validity, at).load(Relaxed) >> (at % 64) & 1 == 0
            {
                return None;
            }
            Some(match column.unit() {
                Unit::Bit => [self.bit_word(values, at).load(Relaxed) >> (at % 64) & 1, 0],
                Unit::Two => [u64::from(self.memory().at::<AtomicU16>(values + 2 * at).load(Relaxed)), 0],
                Unit::Four => [u64::from(self.memory().at::<AtomicU32>(values + 4 * at).load(Relaxed)), 0],
                Unit::Eight => [self.memory().at::<AtomicU64>(values + 8 * at).load(Relaxed), 0],
                Unit::Pair | Unit::View => {
                    let low = self.memory().at::<AtomicU64>(values + 16 * at).load(Relaxed);
                    let high = self.memory().at::<AtomicU64>(values + 16 * at + 8).load(Relaxed);
                    [low, high]
                }
            })
        }
    }

    // ---- columns of a known unit: `at` has been checked, and the column is one of the block's ----

    /// # Safety
    /// The slot `at` has been [checked](Block::check), and the column is of [`Unit::Bit`].
    #[inline(always)]
    pub unsafe fn load_bit(&self, at: usize, column: ColumnLayout) -> u64 {
        // SAFETY: as in `load_words`.
        unsafe { self.bit_word(column.values(), at).load(Ordering::Relaxed) >> (at % 64) & 1 }
    }

    /// # Safety
    /// As above, of [`Unit::Two`].
    #[inline(always)]
    pub unsafe fn load_two(&self, at: usize, column: ColumnLayout) -> u64 {
        // SAFETY: as in `load_words`.
        u64::from(unsafe { self.memory().at::<AtomicU16>(column.values() + 2 * at) }.load(Ordering::Relaxed))
    }

    /// # Safety
    /// As above, of [`Unit::Four`].
    #[inline(always)]
    pub unsafe fn load_four(&self, at: usize, column: ColumnLayout) -> u64 {
        // SAFETY: as in `load_words`.
        u64::from(unsafe { self.memory().at::<AtomicU32>(column.values() + 4 * at) }.load(Ordering::Relaxed))
    }

    /// # Safety
    /// As above, of [`Unit::Eight`].
    #[inline(always)]
    pub unsafe fn load_eight(&self, at: usize, column: ColumnLayout) -> u64 {
        // SAFETY: as in `load_words`.
        unsafe { self.memory().at::<AtomicU64>(column.values() + 8 * at) }.load(Ordering::Relaxed)
    }

    /// # Safety
    /// As above, of [`Unit::Pair`] or [`Unit::View`].
    #[inline(always)]
    pub unsafe fn load_pair(&self, at: usize, column: ColumnLayout) -> [u64; 2] {
        // SAFETY: as in `load_words`.
        unsafe {
            let low = self.memory().at::<AtomicU64>(column.values() + 16 * at).load(Ordering::Relaxed);
            [low, self.memory().at::<AtomicU64>(column.values() + 16 * at + 8).load(Ordering::Relaxed)]
        }
    }

    /// Whether the value is not NULL.
    ///
    /// # Safety
    /// The slot `at` has been [checked](Block::check), and the column is one of the block's.
    #[inline(always)]
    pub unsafe fn is_valid(&self, at: usize, column: ColumnLayout) -> bool {
        column.validity().is_none_or(|validity| {
            // SAFETY: a nullable column has a bitmap there.
            unsafe { self.bit_word(validity, at) }.load(Ordering::Relaxed) >> (at % 64) & 1 != 0
        })
    }

    /// # Safety
    /// The slot `at` has been [checked](Block::check), and the column is of [`Unit::Bit`].
    #[inline(always)]
    pub unsafe fn store_bit(&self, at: usize, column: ColumnLayout, value: bool) {
        // SAFETY: as in `load_words`.
        set_bit(unsafe { self.bit_word(column.values(), at) }, at, value);
    }

    /// # Safety
    /// As above, of [`Unit::Two`].
    #[inline(always)]
    pub unsafe fn store_two(&self, at: usize, column: ColumnLayout, word: u64) {
        // SAFETY: as in `load_words`.
        unsafe { self.memory().at::<AtomicU16>(column.values() + 2 * at) }
            .store(word as u16, Ordering::Relaxed);
    }

    /// # Safety
    /// As above, of [`Unit::Four`].
    #[inline(always)]
    pub unsafe fn store_four(&self, at: usize, column: ColumnLayout, word: u64) {
        // SAFETY: as in `load_words`.
        unsafe { self.memory().at::<AtomicU32>(column.values() + 4 * at) }
            .store(word as u32, Ordering::Relaxed);
    }

    /// # Safety
    /// As above, of [`Unit::Eight`].
    #[inline(always)]
    pub unsafe fn store_eight(&self, at: usize, column: ColumnLayout, word: u64) {
        // SAFETY: as in `load_words`.
        unsafe { self.memory().at::<AtomicU64>(column.values() + 8 * at) }.store(word, Ordering::Relaxed);
    }

    /// # Safety
    /// As above, of [`Unit::Pair`] or [`Unit::View`].
    #[inline(always)]
    pub unsafe fn store_pair(&self, at: usize, column: ColumnLayout, [low, high]: [u64; 2]) {
        // SAFETY: as in `load_words`.
        unsafe {
            self.memory().at::<AtomicU64>(column.values() + 16 * at).store(low, Ordering::Relaxed);
            self.memory().at::<AtomicU64>(column.values() + 16 * at + 8).store(high, Ordering::Relaxed);
        }
    }

    /// Stores what a column holds in the place of a value.
    ///
    /// # Safety
    /// The slot `at` has been [checked](Block::check), and the column is one of the block's.
    #[inline(always)]
    pub unsafe fn store_null(&self, at: usize, column: ColumnLayout) {
        // SAFETY: by the caller.
        unsafe { self.store_words(at, column, [0, 0]) };
    }

    /// Prefetches the cache line of byte `offset`.
    #[inline(always)]
    pub fn prefetch_byte(&self, offset: usize) {
        self.memory().prefetch(offset);
    }

    /// Prefetches whether there is a value in a nullable column.
    #[inline(always)]
    pub fn prefetch_validity(&self, at: usize, column: ColumnLayout) {
        self.memory().prefetch(column.validity().unwrap_or(0) + at / 64 * 8);
    }

    /// Prefetches for writing the memory of rows behind this slot.
    #[inline(always)]
    pub fn prefetch_to_write(&self, slot: Slot, columns: &[ColumnLayout]) {
        columns.iter().for_each(|column| {
            self.memory().prefetch_to_write(column.value_at(slot.index() + AHEAD));
        });
    }

    /// Prefetches whether there is a row.
    #[inline(always)]
    pub fn prefetch_present(&self, at: usize) {
        self.memory().prefetch(at / 64 * 8);
    }

    /// The word of a bitmap that holds the bit of slot `at`.
    ///
    /// # Safety
    /// A bitmap of the layout begins at `bitmap`, and the slot is one of the block's.
    #[inline]
    unsafe fn bit_word(&self, bitmap: usize, at: usize) -> &AtomicU64 {
        // SAFETY: by the caller; bitmaps are whole words.
        unsafe { self.memory().at(bitmap + at / 64 * 8) }
    }

    /// Checks what the accesses to single values rely on.
    #[inline]
    pub fn check(&self, slot: Slot) {
        assert!(slot.0 < self.layout.slots, "row ids refer to existing slots");
    }

    /// Changes the column in place. The caller owns the row: its record heads the chain.
    #[inline]
    pub fn store_cell(&self, slot: Slot, column: ColumnId, cell: RawCell) {
        self.check(slot);
        let (at, column) = (slot.index(), self.layout.column(column));
        // SAFETY: just checked.
        unsafe {
            self.store_validity(at, column, !cell.null);
            self.store_words(at, column, cell.words);
        }
    }

    /// Sets columns in place to the cells; long strings go to the heap. The caller owns the row.
    #[inline]
    pub fn store(&self, slot: Slot, columns: &[ColumnId], cells: &[Cell<'_>]) {
        self.check(slot);
        for (column, cell) in columns.iter().zip(cells) {
            // SAFETY: just checked.
            unsafe { self.store_checked(slot, self.layout.column(*column), cell) };
        }
    }

    /// Fills a column of consecutive rows, which no other transaction can see yet, with their cells. Long
    /// strings go to the heap. What is the same for every row is decided once.
    pub fn store_column<'c>(
        &self,
        first: Slot,
        rows: u32,
        column: ColumnId,
        cells: impl Iterator<Item = Cell<'c>>,
    ) {
        let layout = self.layout.column(column);
        if layout.unit() < Unit::Pair {
            let words = cells.map(|cell| match cell {
                Cell::Word(word) => Some(word),
                Cell::Null => None,
                _ => unreachable!("cells are of their column's type"),
            });
            return self.store_words_column(first, rows, column, words);
        }
        self.prepare_column(first, rows, layout);
        let mut appender = None;
        for (at, cell) in (first.index()..first.index() + rows as usize).zip(cells) {
            // SAFETY: the slots have just been checked.
            unsafe {
                match (layout.unit(), &cell) {
                    (Unit::View, Cell::Null) => self.put_string(at, layout, None, &mut appender, None),
                    (Unit::View, cell) => {
                        self.put_string(at, layout, Some(cell.bytes()), &mut appender, None);
                    }
                    _ => self.store_checked(Slot(at as u32), layout, &cell),
                }
            }
        }
    }

    /// As [`Block::store_column`], for strings that Arrow views refer to. Repeated strings are stored once.
    pub fn store_views(
        &self,
        first: Slot,
        column: ColumnId,
        views: &[u128],
        buffers: &[Buffer],
        nulls: Option<&NullBuffer>,
    ) {
        let rows = views.len() as u32;
        let layout = self.layout.column(column);
        assert!(layout.unit() == Unit::View, "the column holds no strings");
        self.prepare_column(first, rows, layout);
        let mut appender = None;
        let mut recent = Recent::new();
        let pairs = self.pairs(column)[2 * first.index()..].as_chunks::<2>().0;
        for (row, ([low, high], view)) in pairs.iter().zip(views).enumerate() {
            let length = *view as u32 as usize;
            let words = if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                [0, 0]
            } else if length <= INLINE_BYTES {
                // Clear the bytes behind the string: other programs may leave anything there.
                let view = view & (u128::MAX >> (8 * (INLINE_BYTES - length)));
                [view as u64, (view >> 64) as u64]
            } else {
                let (buffer, offset) = ((view >> 64) as u32 as usize, (view >> 96) as usize);
                let appender = appender.get_or_insert_with(|| self.heap.appender());
                appender.append_part(&buffers[buffer], offset..offset + length, &mut recent)
            };
            low.store(words[0], Ordering::Relaxed);
            high.store(words[1], Ordering::Relaxed);
        }
        self.store_validities(first, rows, column, nulls);
    }

    /// Sets which of the rows have a value in a column; all if there are no `nulls`.
    pub fn store_validities(&self, first: Slot, rows: u32, column: ColumnId, nulls: Option<&NullBuffer>) {
        let Some(validity) = self.validity(column) else {
            let missing = nulls.map_or(0, NullBuffer::null_count);
            return assert_eq!(missing, 0, "NULL in a column that is not nullable");
        };
        let Some(nulls) = nulls else { return set_bits(validity, first, rows) };
        let (mut next, end) = (first.0, first.0 + rows);
        while next < end {
            let within = next % 64;
            let taken = (64 - within).min(end - next);
            let bits = nulls.inner().slice((next - first.0) as usize, taken as usize);
            let bits = bits.bit_chunks().iter_padded().next().expect("there is a bit") << within;
            let mask = (u64::MAX >> (64 - taken)) << within;
            // Other rows may have bits in the same word.
            let word = &validity[next as usize / 64];
            word.fetch_or(bits & mask, Ordering::Relaxed);
            word.fetch_and(bits | !mask, Ordering::Relaxed);
            next += taken;
        }
    }

    /// As [`Block::store_column`], for strings; `None` for NULL.
    #[inline]
    pub fn store_strings_column<'c>(
        &self,
        first: Slot,
        rows: u32,
        column: ColumnId,
        strings: impl Iterator<Item = Option<&'c [u8]>>,
    ) {
        let column = self.layout.column(column);
        self.prepare_column(first, rows, column);
        assert!(column.unit() == Unit::View, "the column holds no strings");
        let mut appender = None;
        let mut recent = (rows >= ENOUGH_TO_SHARE).then(Recent::new);
        for (at, string) in (first.index()..first.index() + rows as usize).zip(strings) {
            // SAFETY: the slots have just been checked.
            unsafe { self.put_string(at, column, string, &mut appender, recent.as_mut()) };
        }
    }

    /// Stores a string; the heap is locked once for all strings of a column.
    ///
    /// # Safety
    /// The slot `at` has been [checked](Block::check), and the column holds strings.
    #[inline(always)]
    unsafe fn put_string<'b>(
        &'b self,
        at: usize,
        column: ColumnLayout,
        string: Option<&[u8]>,
        appender: &mut Option<Appender<'b>>,
        recent: Option<&mut Recent>,
    ) {
        let view = match string {
            None => [0, 0],
            Some(bytes) if bytes.len() <= INLINE_BYTES => heap::inline_view(bytes),
            Some(bytes) => {
                let appender = appender.get_or_insert_with(|| self.heap.appender());
                match recent {
                    Some(recent) => appender.append_part(bytes, 0..bytes.len(), recent),
                    None => appender.append(bytes),
                }
            }
        };
        // SAFETY: by the caller.
        unsafe {
            self.store_validity(at, column, string.is_some());
            self.store_words(at, column, view);
        }
    }

    /// As [`Block::store_column`], for values of up to 8 bytes; `None` for NULL.
    #[inline]
    pub fn store_words_column(
        &self,
        first: Slot,
        rows: u32,
        column: ColumnId,
        words: impl Iterator<Item = Option<u64>>,
    ) {
        use Ordering::Relaxed;
        let column = self.layout.column(column);
        self.prepare_column(first, rows, column);
        let (values, unit) = (column.values(), column.unit());
        assert!(unit < Unit::Pair, "a value of more than 8 bytes is not a word");
        for (at, word) in (first.index()..first.index() + rows as usize).zip(words) {
            let bits = word.unwrap_or(0);
            // SAFETY: as in `store_words`; the slots have just been checked.
            unsafe {
                self.store_validity(at, column, word.is_some());
                match unit {
                    Unit::Four => self.memory().at::<AtomicU32>(values + 4 * at).store(bits as u32, Relaxed),
                    Unit::Eight => self.memory().at::<AtomicU64>(values + 8 * at).store(bits, Relaxed),
                    _ => self.store_words(at, column, [bits, 0]),
                }
            }
        }
    }

    /// Checks the slots of rows to be filled, and prefetches what is behind them for the next rows.
    #[inline]
    fn prepare_column(&self, first: Slot, rows: u32, column: ColumnLayout) {
        self.check(Slot(first.0.checked_add(rows.saturating_sub(1)).expect("the last slot is a u32")));
        let next = first.index() + rows as usize;
        let soon = next + (rows as usize).min(2 * AHEAD);
        for line in (column.value_at(next)..column.value_at(soon)).step_by(PART_ALIGN) {
            self.memory().prefetch_to_write(line);
        }
    }

    /// Fills a row with one cell per column; long strings go to the heap. The caller owns the row.
    #[inline]
    pub fn store_row(&self, slot: Slot, cells: &[Cell<'_>]) {
        self.check(slot);
        let at = slot.index();
        for (column, cell) in self.layout.columns.iter().zip(cells) {
            // Rows are filled one after another, so the cache line has arrived when it is needed.
            self.memory().prefetch_to_write(column.value_at(at + AHEAD));
            // SAFETY: just checked.
            unsafe { self.store_checked(slot, *column, cell) };
        }
    }

    /// Sets one column of a row. The caller owns the row.
    #[inline(always)]
    pub fn store_one(&self, slot: Slot, column: ColumnId, cell: &Cell<'_>) {
        self.check(slot);
        // SAFETY: just checked.
        unsafe { self.store_checked(slot, self.layout.column(column), cell) };
    }

    /// # Safety
    /// The slot has been [checked](Block::check).
    #[inline(always)]
    unsafe fn store_checked(&self, slot: Slot, column: ColumnLayout, cell: &Cell<'_>) {
        let at = slot.index();
        // SAFETY: by the caller.
        unsafe {
            match *cell {
                Cell::Word(word) if column.unit() < Unit::Pair => {
                    self.store_validity(at, column, true);
                    self.store_words(at, column, [word, 0]);
                }
                _ => self.store_other(at, column, cell),
            }
        }
    }

    /// # Safety
    /// The slot `at` has been [checked](Block::check).
    unsafe fn store_other(&self, at: usize, column: ColumnLayout, cell: &Cell<'_>) {
        let raw = self.import(column, cell);
        // SAFETY: by the caller.
        unsafe {
            self.store_validity(at, column, !raw.null);
            self.store_words(at, column, raw.words);
        }
    }

    /// # Safety
    /// The slot `at` has been [checked](Block::check).
    #[inline(always)]
    pub unsafe fn store_validity(&self, at: usize, column: ColumnLayout, valid: bool) {
        match column.validity() {
            Some(validity) => {
                // SAFETY: a nullable column has a bitmap there.
                let word = unsafe { self.bit_word(validity, at) };
                // Most writes do not change whether there is a value, and a load is cheaper than an atomic
                // update.
                if (word.load(Ordering::Relaxed) >> (at % 64) & 1 != 0) != valid {
                    set_bit(word, at, valid);
                }
            }
            None => assert!(valid, "NULL in a column that is not nullable"),
        }
    }

    /// # Safety
    /// The slot `at` has been [checked](Block::check).
    #[inline(always)]
    unsafe fn store_words(&self, at: usize, column: ColumnLayout, [low, high]: [u64; 2]) {
        use Ordering::Relaxed;
        let values = column.values();
        // SAFETY: as in `load_words`.
        unsafe {
            match column.unit() {
                Unit::Bit => set_bit(self.bit_word(values, at), at, low != 0),
                Unit::Two => self.memory().at::<AtomicU16>(values + 2 * at).store(low as u16, Relaxed),
                Unit::Four => self.memory().at::<AtomicU32>(values + 4 * at).store(low as u32, Relaxed),
                Unit::Eight => self.memory().at::<AtomicU64>(values + 8 * at).store(low, Relaxed),
                Unit::Pair | Unit::View => {
                    self.memory().at::<AtomicU64>(values + 16 * at).store(low, Relaxed);
                    self.memory().at::<AtomicU64>(values + 16 * at + 8).store(high, Relaxed);
                }
            }
        }
    }

    /// The raw form of a cell for a column; long strings go to the heap.
    fn import(&self, column: ColumnLayout, cell: &Cell<'_>) -> RawCell {
        let words = match *cell {
            Cell::Null => return RawCell { null: true, words: [0, 0] },
            Cell::Word(word) => [word, 0],
            Cell::Wide(words) => words,
            Cell::Inline(..) | Cell::Bytes(_) => self.heap.store(cell.bytes()),
        };
        debug_assert_eq!(
            matches!(cell, Cell::Inline(..) | Cell::Bytes(_)),
            column.unit() == Unit::View,
            "cell {cell:?} does not fit a column of {:?}",
            column.unit()
        );
        RawCell { null: false, words }
    }

    /// The cell that a validated raw cell of `column` stands for.
    #[inline]
    pub fn export(&self, column: ColumnId, raw: RawCell) -> Cell<'_> {
        if raw.null {
            return Cell::Null;
        }
        match self.layout.column(column).unit() {
            Unit::Bit | Unit::Two | Unit::Four | Unit::Eight => Cell::Word(raw.words[0]),
            Unit::Pair => Cell::Wide(raw.words),
            Unit::View => self.export_view(raw.words),
        }
    }

    /// The string of a validated view.
    #[inline]
    pub fn export_view(&self, view: [u64; 2]) -> Cell<'_> {
        if heap::view_len(view) <= INLINE_BYTES {
            heap::inline_cell(view)
        } else {
            Cell::Bytes(self.heap.bytes(view))
        }
    }

    /// The versioned positions of the range that contains `slot`.
    #[inline]
    pub fn position(&self, slot: Slot) -> &Position {
        &self.positions[(slot.0 / RANGE_SLOTS) as usize]
    }

    // ---- reading ----

    /// Reads `columns` of a row as `snapshot` sees them. Returns false if it sees no row there.
    #[inline]
    pub fn read_raw(
        &self,
        slot: Slot,
        snapshot: Snapshot,
        columns: &[ColumnId],
        cells: &mut [RawCell],
        guard: &Guard,
    ) -> bool {
        loop {
            let head = self.head(slot, guard);
            let present = self.is_present(slot);
            for (column, cell) in columns.iter().zip(&mut *cells) {
                *cell = self.load_cell(slot, *column);
            }
            // Pairs with the release fence in `link`.
            fence(Ordering::Acquire);
            if self.head(slot, guard) == head {
                if self.sees_newest(head, snapshot) {
                    return present;
                }
                return undo_unseen(head.record(), snapshot, present, columns, cells, guard);
            }
            std::hint::spin_loop();
        }
    }

    /// Prefetches what reading `columns` of a row touches first.
    #[inline]
    pub fn prefetch(&self, slot: Slot, columns: &[ColumnId]) {
        let at = slot.index();
        self.prefetch_head(slot);
        if self.prefetch_compact(slot, columns) {
            return;
        }
        self.memory().prefetch(at / 64 * 8);
        for column in columns {
            let column = self.layout.column(*column);
            self.memory().prefetch(column.value_at(at));
            if let Some(validity) = column.validity() {
                self.memory().prefetch(validity + at / 64 * 8);
            }
        }
    }

    /// Prefetches what the memory refers to that [`Block::prefetch`] fetched: the newest record and the
    /// strings of a row.
    #[inline]
    pub fn prefetch_further(&self, slot: Slot, columns: &[ColumnId], guard: &Guard) {
        self.check(slot);
        self.prefetch_newest(slot, guard);
        if let Some(compact) = self.compact() {
            return compact.prefetch_further(slot.index(), columns);
        }
        for column in columns {
            let column = self.layout.column(*column);
            if column.unit() == Unit::View
                // SAFETY: just checked.
                && let Some(view) = unsafe { self.load_words(slot.index(), column) }
            {
                self.heap.prefetch(view);
            }
        }
    }

    /// As [`Block::read_raw`], but returns cells. Nearly all rows have a newest version that the snapshot
    /// sees; these are read in one pass.
    #[inline]
    pub fn read<'g>(
        &'g self,
        slot: Slot,
        snapshot: Snapshot,
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        guard: &'g Guard,
    ) -> bool {
        self.check(slot);
        let layouts = &self.layout.columns[..];
        loop {
            let head = self.head(slot, guard);
            if !self.sees_newest(head, snapshot) || self.is_compact() {
                return self.read_slowly(slot, snapshot, columns, cells, guard);
            }
            let present = self.is_present(slot);
            let mut has_long_strings = false;
            for (column, cell) in columns.iter().zip(&mut *cells) {
                // SAFETY: checked above.
                has_long_strings |= unsafe { self.load(slot.index(), layouts[column.index()], cell) };
            }
            // Pairs with the release fence in `link`.
            fence(Ordering::Acquire);
            if self.head(slot, guard) != head {
                std::hint::spin_loop();
                continue;
            }
            if has_long_strings && present {
                self.follow_views(columns, cells);
            }
            return present;
        }
    }

    /// Puts the current value into `cell`, perhaps torn. Returns true for a long string: then it has put the
    /// view there, which must not be followed before it has been validated.
    ///
    /// # Safety
    /// The slot `at` has been [checked](Block::check).
    #[inline(always)]
    unsafe fn load<'a>(&'a self, at: usize, column: ColumnLayout, cell: &mut Cell<'a>) -> bool {
        use Ordering::Relaxed;
        let values = column.values();
        // SAFETY: as in `load_words`.
        unsafe {
            if let Some(validity) = column.validity()
                && self.bit_word(validity, at).load(Relaxed) >> (at % 64) & 1 == 0
            {
                *cell = Cell::Null;
                return false;
            }
            let pair = || {
                let low = self.memory().at::<AtomicU64>(values + 16 * at).load(Relaxed);
                [low, self.memory().at::<AtomicU64>(values + 16 * at + 8).load(Relaxed)]
            };
            *cell = match column.unit() {
                Unit::Bit => Cell::Word(self.bit_word(values, at).load(Relaxed) >> (at % 64) & 1),
                Unit::Two => {
                    Cell::Word(u64::from(self.memory().at::<AtomicU16>(values + 2 * at).load(Relaxed)))
                }
                Unit::Four => {
                    Cell::Word(u64::from(self.memory().at::<AtomicU32>(values + 4 * at).load(Relaxed)))
                }
                Unit::Eight => Cell::Word(self.memory().at::<AtomicU64>(values + 8 * at).load(Relaxed)),
                Unit::Pair => Cell::Wide(pair()),
                Unit::View => {
                    let view = pair();
                    if heap::view_len(view) > INLINE_BYTES {
                        *cell = Cell::Wide(view);
                        return true;
                    }
                    heap::inline_cell(view)
                }
            };
        }
        false
    }

    /// Replaces views, which have been validated, by their long strings.
    fn follow_views<'g>(&'g self, columns: &[ColumnId], cells: &mut [Cell<'g>]) {
        for (column, cell) in columns.iter().zip(cells) {
            if let Cell::Wide(view) = *cell
                && self.layout.column(*column).unit() == Unit::View
            {
                *cell = Cell::Bytes(self.heap.bytes(view));
            }
        }
    }

    #[cold]
    fn read_slowly<'g>(
        &'g self,
        slot: Slot,
        snapshot: Snapshot,
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        guard: &'g Guard,
    ) -> bool {
        let mut raw: SmallVec<[RawCell; 16]> = SmallVec::from_elem(RawCell::default(), columns.len());
        let exists = self.read_raw(slot, snapshot, columns, &mut raw, guard);
        if exists {
            for ((column, raw), cell) in columns.iter().zip(&raw).zip(cells) {
                *cell = self.export(*column, *raw);
            }
        }
        exists
    }

    /// Bytes of its rows, of their long strings, and of their chain heads.
    pub fn held_bytes(&self) -> [usize; 3] {
        let rows = match self.compact() {
            Some(compact) => compact.bytes(),
            None if self.has_given_up_rows() => 0,
            None => self.layout.bytes,
        };
        [rows, self.heap.allocated_bytes(), self.heads.bytes()]
    }

    /// Bytes that its rows and their long strings would take without encodings.
    pub fn raw_bytes(&self) -> usize {
        match self.compact() {
            Some(compact) => compact.raw_bytes(),
            None => {
                let [rows, strings, _] = self.held_bytes();
                rows + strings
            }
        }
    }

    /// The number of slots among which rows may have versions.
    pub fn versioned_slots(&self) -> u32 {
        self.positions
            .iter()
            .flat_map(|position| position.versioned().stretches())
            .map(|rows| rows.len() as u32)
            .sum()
    }
}

/// Sets the bit of slot `at` in its word.
#[inline]
fn set_bit(word: &AtomicU64, at: usize, value: bool) {
    let mask = 1 << (at % 64);
    if value {
        word.fetch_or(mask, Ordering::Relaxed);
    } else {
        word.fetch_and(!mask, Ordering::Relaxed);
    }
}

/// Sets `count` bits from `first` on.
pub(crate) fn set_bits(words: &[AtomicU64], first: Slot, count: u32) {
    let mut next = first.0;
    let end = first.0 + count;
    while next < end {
        let within = next % 64;
        let taken = (64 - within).min(end - next);
        let mask = (u64::MAX >> (64 - taken)) << within;
        words[next as usize / 64].fetch_or(mask, Ordering::Relaxed);
        next += taken;
    }
}
