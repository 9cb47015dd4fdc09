//! Freezing: how a block to which no transaction writes becomes canonical Arrow, and hot again.
//!
//! [`crate::state`] decides which transition follows which. The code that makes them is here. It also ensures
//! that no reader or writer sees a row half moved. The problem is described by Li, "Supporting Hybrid
//! Workloads for In-Memory Database Management Systems via a Universal Columnar Storage Format", CMU 2019,
//! section 5.3; its figure 5.4 shows the critical race:
//!
//! ```text
//! freezer                                          writer
//! hot → cooling
//! waits until every guard of that time is released (a writer that saw it hot has linked its record by then)
//! sees no version but a common one, and no gap     state not hot: thaws, depending on the state
//! cooling → freezing                                cooling → hot: the freezer's next step fails
//!   gathers strings, clears views of NULLs,         freezing: requests the block, and waits for the
//!   computes zones                                            freezer to stop
//! freezing → frozen                                 frozen → hot: in place, or in a copy if the rows are held
//! ```
//! Readers are not affected. Freezing moves strings, of which readers find either copy, and a thaw copies
//! data that does not change.
//!
//! A compact block remains compact when a row of it is deleted. The freezer then waits to free its chain
//! heads: it frees them when no transaction has written to the block for `freeze_after` and no version is
//! left.
//!
//! A reader that takes rows out of a frozen block gets arrays that share its memory and hold it. The block
//! itself is never held: the next writer leaves that memory to the arrays and continues in a copy.
//!
//! Invariants: the rows of a frozen block are in its first slots without a gap, and its memory does not
//! change while it is frozen or held. The rows have no versions and are the same to every snapshot. Or they
//! were inserted after a long reader began and have not changed since then: this is what the one record means
//! that they share ([`crate::heads`]). Then a snapshot sees all of them or none.

use crate::block::Block;
use crate::budget::Held;
use crate::compact::Compact;
use crate::encoded_scan::Asked;
use crate::encoding::widen::widen;
use crate::encoding::{EncodedColumn, Encoding, Piece, Source};
use crate::heap::INLINE_BYTES;
use crate::layout::{RANGE_SLOTS, Unit};
use crate::life::Turn;
use crate::memory::Memory;
use crate::restriction::Restriction;
use crate::shared::CountedMemory;
use crate::state::{BlockEvent, BlockState};
use crate::zone_map::Zone;
use crate::{Guard, Table, arrow, spare};
use arrow_array::types::Decimal128Type;
use arrow_array::{ArrayRef, BinaryViewArray, BooleanArray, PrimitiveArray, StringViewArray, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use firn_base::sync::{Arc, Ordering};
use firn_base::{BlockNumber, ColumnId, Representation, Slot, Snapshot, clock};
use std::time::Duration;

/// The result of an attempt to freeze a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frozen {
    /// It is frozen.
    Yes,
    /// A writer has written to it, or is waiting for it.
    Hot,
    /// Some row has versions of its own.
    HasVersions,
    /// Some slot before a row is empty.
    HasGaps,
    /// It holds no row.
    Empty,
    /// It is compact, and its chain heads were freed if possible.
    Compact,
}

impl Block {
    /// Begins to watch the block for writers. Returns false if it is not hot, or empty.
    pub fn cool(&self) -> bool {
        self.allocated() > 0 && self.life.is_hot() && self.life.step(BlockState::Hot, BlockEvent::GoneCold)
    }

    /// Makes a cooling block canonical. Since it began to cool, the caller has waited until every guard of
    /// that time was released.
    pub fn freeze(&self, guard: &Guard) -> Frozen {
        let mut turn = self.life.turn.lock();
        match self.life.state() {
            BlockState::Cooling => {}
            BlockState::Compact => {
                self.give_up_heads(guard);
                return Frozen::Compact;
            }
            _ => return Frozen::Hot,
        }
        if !self.heads.are_one_kept(guard) && self.may_have_versions() {
            return Frozen::HasVersions;
        }
        // A writer that fills another slot from now on prepares to write before.
        let rows = self.rows_present();
        if rows == 0 {
            return Frozen::Empty;
        }
        if !self.is_dense(rows) {
            return Frozen::HasGaps;
        }
        self.life.wanted.store(false, Ordering::Relaxed);
        if !self.life.step(BlockState::Cooling, BlockEvent::VersionsGone) {
            return Frozen::Hot;
        }
        let buffers = self.tidy_strings(rows, guard).filter(|_| self.find_zones(rows, &mut turn.zones));
        let Some(buffers) = buffers else {
            let hot = self.life.step(BlockState::Freezing, BlockEvent::Write);
            assert!(hot, "a writer of a block that is being frozen waits for the turn");
            return Frozen::Hot;
        };
        turn.buffers = buffers;
        if !self.heads.are_one_kept(guard) {
            self.forget_versions(guard);
        }
        self.become_frozen(rows);
        turn.encoded_after = Some(clock::now());
        Frozen::Yes
    }

    fn become_frozen(&self, rows: u32) {
        self.life.set_rows(rows);
        self.life.generation.fetch_add(1, Ordering::Relaxed);
        let frozen = self.life.step(BlockState::Freezing, BlockEvent::Canonical);
        assert!(frozen, "a writer of a block that is being frozen waits for the turn");
    }

    /// Notes that no row has versions.
    pub fn forget_versions(&self, guard: &Guard) {
        self.heads.clear(guard);
        for start in (0..self.layout.slots).step_by(RANGE_SLOTS as usize) {
            self.position(Slot(start)).clear();
        }
        self.hold_heads();
    }

    /// Replaces the memory of a cooling block without rows by `nothing`, which it shares with others, and
    /// freezes it. Then its slots are fresh again. The caller has waited as for [`Block::freeze`], and has
    /// ensured that no transaction has been given one of its slots. Returns false if a writer has written to
    /// it.
    pub fn give_up_rows(&self, nothing: Arc<CountedMemory>, guard: &Guard) -> bool {
        let _turn = self.life.turn.lock();
        if self.life.state() != BlockState::Cooling
            || self.may_have_versions()
            || self.rows_present() > 0
            || !self.life.step(BlockState::Cooling, BlockEvent::VersionsGone)
        {
            return false;
        }
        self.heap.gather().finish(guard);
        self.rows.change_for(nothing, guard);
        self.take_back_slots();
        self.forget_versions(guard);
        self.become_frozen(0);
        true
    }

    /// Makes the block hot, for a writer.
    #[cold]
    pub fn thaw(&self) {
        loop {
            let state = self.life.state();
            match state {
                BlockState::Hot => return,
                BlockState::Cooling => {
                    self.life.step(state, BlockEvent::Write);
                }
                BlockState::Freezing => {
                    self.life.wanted.store(true, Ordering::Relaxed);
                    drop(self.life.turn.lock());
                }
                BlockState::Frozen => {
                    let _turn = self.life.turn.lock();
                    // Only the holder of the turn leaves this state, and only it hands the block out.
                    if self.life.state() == BlockState::Frozen {
                        if self.rows.is_held() {
                            self.change_rows_for_copy();
                        }
                        self.life.step(BlockState::Frozen, BlockEvent::Write);
                    }
                }
                // Rows are deleted in place, and inserted elsewhere.
                BlockState::Compact => return self.keep_heads(),
            }
        }
    }

    /// Leaves the rows' memory to its holders.
    fn change_rows_for_copy(&self) {
        let Some(before) = self.rows.hold() else { return };
        let copy = Memory::zeroed(self.layout.bytes);
        // SAFETY: both have this many bytes. Nothing writes to the former, since the block is being frozen,
        // and no other thread can reach the latter.
        unsafe { copy.start().copy_from_nonoverlapping(before.start(), self.layout.bytes) };
        let copy = CountedMemory::new(copy, Held::Rows, &self.budget);
        self.rows.change_for(Arc::new(copy), &crate::pin());
    }

    /// Whether it has the memory that blocks without rows share.
    pub fn has_given_up_rows(&self) -> bool {
        self.allocated() == 0 && self.life.state() == BlockState::Frozen
    }

    /// How many rows are present.
    pub fn rows_present(&self) -> u32 {
        self.present_words().iter().map(|word| word.load(Ordering::Acquire).count_ones()).sum()
    }

    /// Whether its `rows` rows are in its first slots.
    fn is_dense(&self, rows: u32) -> bool {
        let words = self.present_words();
        let full = (rows / 64) as usize;
        words[..full].iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX)
            && (rows.is_multiple_of(64) || words[full].load(Ordering::Relaxed).trailing_ones() == rows % 64)
    }

    pub fn may_have_versions(&self) -> bool {
        (0..self.allocated()).step_by(RANGE_SLOTS as usize).any(|start| {
            !self.position(Slot(start)).versioned().is_empty()
                && self.has_versions(start, start + RANGE_SLOTS)
        })
    }

    /// Computes the zones of all columns. Returns false if a writer wants the block.
    fn find_zones(&self, rows: u32, zones: &mut Box<[Zone]>) -> bool {
        let columns = 0..self.layout.columns.len() as u16;
        *zones = columns
            .map_while(|column| (!self.is_wanted()).then(|| self.zone(ColumnId(column), rows)))
            .collect();
        zones.len() == self.layout.columns.len()
    }

    pub fn is_wanted(&self) -> bool {
        self.life.wanted.load(Ordering::Relaxed)
    }

    /// The rows, to keep for any time, if the block is frozen and the snapshot sees them.
    pub fn hand_out(&self, snapshot: Snapshot, strings: bool, asked: &[Asked], guard: &Guard) -> HandedOut {
        let is_cold = || matches!(self.life.state(), BlockState::Frozen | BlockState::Compact);
        if !is_cold() {
            return HandedOut::NotCold;
        }
        let turn = self.life.turn();
        if !is_cold() {
            return HandedOut::NotCold;
        }
        // This does not change: what the snapshot does not see now it never sees.
        let seen = self.sees_all(snapshot, guard);
        if seen == Some(false) {
            return HandedOut::NotSeen;
        }
        // The zones of a block without rows, if it has any, do not count.
        let may_meet = |restriction: &Restriction| {
            turn.zones.get(restriction.column().index()).is_none_or(|zone| zone.may_meet(restriction))
        };
        if !asked.iter().all(|asked| may_meet(&asked.restriction)) {
            return HandedOut::NothingMeets;
        }
        match self.life.state() {
            BlockState::Compact => HandedOut::Encoded,
            _ if seen.is_none() => {
                debug_assert!(false, "the rows of a frozen block have no heads of their own");
                HandedOut::NotCold
            }
            _ => HandedOut::Rows(self.frozen_rows(&turn, strings)),
        }
    }

    /// Whether it has been frozen for so long, has at least this many rows, and has not been found impossible
    /// to encode.
    pub fn may_be_encoded(&self, frozen_for: Duration, least: u32) -> bool {
        self.life.state() == BlockState::Frozen && self.is_due(&self.life.turn(), frozen_for, least)
    }

    /// The rows of such a block.
    pub fn rows_to_encode(&self, frozen_for: Duration, least: u32) -> Option<FrozenRows> {
        let turn = self.life.turn();
        self.is_due(&turn, frozen_for, least).then(|| self.frozen_rows(&turn, true))
    }

    fn is_due(&self, turn: &Turn, frozen_for: Duration, least: u32) -> bool {
        self.life.state() == BlockState::Frozen
            && self.life.rows.load(Ordering::Relaxed) >= least
            && turn.encoded_after.is_some_and(|frozen_at| frozen_at.elapsed() >= frozen_for)
    }

    /// Notes that it cannot be encoded until it is frozen again.
    pub fn stays_frozen(&self) {
        self.life.turn().encoded_after = None;
    }

    /// Called with the turn.
    fn frozen_rows(&self, turn: &Turn, strings: bool) -> FrozenRows {
        FrozenRows {
            memory: self.rows.hold().expect("a block has memory"),
            heap: if strings { self.heap.arrow_buffers(false) } else { Vec::new() },
            buffers: turn.buffers.clone(),
            rows: self.life.rows.load(Ordering::Relaxed),
        }
    }
}

impl Table {
    /// Begins to cool all hot blocks, and the chain heads of compact ones. Adds their numbers to `cooling`.
    pub fn cool(&self, cooling: &mut Vec<BlockNumber>) {
        for block in self.blocks().iter() {
            if block.cool() || block.life.state() == BlockState::Cooling || block.cool_heads() {
                cooling.push(block.number);
            }
        }
    }

    /// Freezes a block, if no transaction has written to it since it began to cool; of a compact one, frees
    /// the chain heads. The caller has waited since then until every guard of that time was released.
    pub fn freeze(&self, block: BlockNumber, guard: &Guard) -> Frozen {
        self.blocks().get(block).expect("block numbers refer to existing blocks").freeze(guard)
    }

    /// Whether a block that has versions may replace its chain heads by one.
    pub fn may_share_heads(&self, block: BlockNumber, guard: &Guard) -> bool {
        self.blocks().get(block).expect("block numbers refer to existing blocks").may_share_heads(guard)
    }

    /// Replaces the chain heads by one, if one record of all rows is equivalent; then the block may be frozen
    /// at once. The caller has waited as for [`Table::freeze`], and no collection runs meanwhile.
    pub fn share_heads(&self, block: BlockNumber, guard: &Guard) -> bool {
        self.blocks().get(block).expect("block numbers refer to existing blocks").share_heads(guard)
    }

    /// The usage of its blocks, in their order.
    pub fn block_usage(&self) -> impl Iterator<Item = BlockUsage> {
        self.blocks().iter().map(|block| {
            // A thaw may replace the rows' memory meanwhile.
            let _guard = crate::pin();
            let rows = block.rows_present();
            BlockUsage {
                number: block.number,
                state: block.life.state(),
                rows,
                free: block.compact().map_or(block.allocated(), Compact::slots).saturating_sub(rows),
                bytes: block.held_bytes().iter().sum::<usize>() as u64,
                raw_bytes: block.raw_bytes() as u64,
                encodings: block
                    .compact()
                    .map(|compact| compact.columns().iter().map(EncodedColumn::encoding).collect()),
            }
        })
    }
}

/// Size and contents of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockUsage {
    /// Its number.
    pub number: BlockNumber,
    /// Its current state.
    pub state: BlockState,
    /// Present rows, whichever snapshots see them.
    pub rows: u32,
    /// Slots that were given out and hold no row now.
    pub free: u32,
    /// Bytes of rows, strings and chain heads, without dictionaries that it shares with other blocks.
    pub bytes: u64,
    /// Bytes that rows and strings would take without encodings.
    pub raw_bytes: u64,
    /// The encoding of each column, if it is compact.
    pub encodings: Option<Vec<Encoding>>,
}

/// What a block hands out.
pub(crate) enum HandedOut {
    /// Nothing: a transaction may be writing to it.
    NotCold,
    /// It is frozen or compact, and none of its rows meets all conditions.
    NothingMeets,
    /// It is frozen or compact, and the snapshot sees none of its rows.
    NotSeen,
    /// All rows of a frozen block.
    Rows(FrozenRows),
    /// Nothing, since it is compact.
    Encoded,
}

/// The rows of a frozen block as they were when they were handed out.
pub(crate) struct FrozenRows {
    pub memory: Arc<CountedMemory>,
    heap: Vec<Buffer>,
    /// The heap buffers of each column, a bit each.
    buffers: Arc<[u64]>,
    /// How many there are.
    pub rows: u32,
}

impl FrozenRows {
    /// A column of some of the rows. Only numerics that take fewer bytes than in Arrow are copied.
    pub fn column(&self, block: &Block, column: ColumnId, first: u32, rows: u32) -> ArrayRef {
        let layout = block.layout.column(column);
        let representation = block.layout.types[column.index()];
        let (at, rows) = (first as usize, rows as usize);
        let nulls = layout
            .validity()
            .map(|validity| NullBuffer::new(self.bits(block, validity, at, rows)))
            .filter(|nulls| nulls.null_count() > 0);
        let width = layout.unit().bits() / 8;
        let values = || self.buffer(layout.values() + at * width, rows * width);
        match layout.unit() {
            Unit::Bit => Arc::new(BooleanArray::new(self.bits(block, layout.values(), at, rows), nulls)),
            Unit::View => {
                let views = ScalarBuffer::new(values(), 0, rows);
                let heap = self.buffers_of(column);
                // SAFETY: `Heap::store` of this block wrote the views, and those of NULLs are empty. The
                // buffers that they refer to are in `heap`. Text is checked to be UTF-8 wherever it enters.
                unsafe {
                    if representation.is_string() {
                        Arc::new(StringViewArray::new_unchecked(views, heap, nulls))
                    } else {
                        Arc::new(BinaryViewArray::new_unchecked(views, heap, nulls))
                    }
                }
            }
            Unit::Eight if matches!(representation, Representation::Decimal { .. }) => {
                let values: ScalarBuffer<i64> = ScalarBuffer::new(values(), 0, rows);
                let mut wide = spare::take(rows);
                widen(&values, |value| value, &mut wide);
                let wide = ScalarBuffer::new(spare::into_buffer(wide), 0, rows);
                Arc::new(
                    PrimitiveArray::<Decimal128Type>::new(wide, nulls)
                        .with_data_type(arrow::data_type(representation)),
                )
            }
            _ => {
                let data = ArrayData::builder(arrow::data_type(representation))
                    .len(rows)
                    .add_buffer(values())
                    .nulls(nulls);
                // SAFETY: one buffer of `rows` values of the type's width.
                make_array(unsafe { data.build_unchecked() })
            }
        }
    }

    /// The buffers of the heap that have strings of a column. Buffers of other columns before them are
    /// replaced by empty ones.
    fn buffers_of(&self, column: ColumnId) -> Arc<[Buffer]> {
        let own = self.buffers[column.index()];
        let buffer = |number: usize| {
            if own >> number & 1 == 1 { self.heap[number].clone() } else { Buffer::from(&[]) }
        };
        (0..(u64::BITS - own.leading_zeros()) as usize).map(buffer).collect()
    }

    /// A column of all rows, to be encoded.
    pub fn source(&self, block: &Block, column: ColumnId) -> ColumnSource<'_> {
        let layout = block.layout.column(column);
        let rows = self.rows as usize;
        let nulls = layout.validity().map(|validity| NullBuffer::new(self.bits(block, validity, 0, rows)));
        let start = self.memory.start();
        macro_rules! words {
            ($kind:ident, $word:ty) => {
                // SAFETY: the layout has this many values there, aligned to at least their width. Any bits
                // are a value, and nothing writes to them while the memory is held.
                Values::$kind(unsafe {
                    std::slice::from_raw_parts(start.add(layout.values()).cast::<$word>().as_ptr(), rows)
                })
            };
        }
        let values = match layout.unit() {
            Unit::Bit => Values::Bits(self.bits(block, layout.values(), 0, rows)),
            Unit::Two => words!(Two, i16),
            Unit::Four => words!(Four, i32),
            Unit::Eight => words!(Eight, i64),
            Unit::Pair => words!(Sixteen, i128),
            Unit::View => {
                // SAFETY: as above; two words are a view of 16 bytes.
                let views: &[[u8; 16]] =
                    unsafe { std::slice::from_raw_parts(start.add(layout.values()).cast().as_ptr(), rows) };
                Values::Strings(views.iter().map(|view| self.string(view)).collect())
            }
        };
        ColumnSource { values, nulls }
    }

    /// The string of a view; the view of a NULL is empty.
    fn string<'a>(&'a self, view: &'a [u8; 16]) -> &'a [u8] {
        let number = |at: usize| u32::from_le_bytes(view[at..at + 4].try_into().expect("4 bytes")) as usize;
        let (length, buffer, offset) = (number(0), number(8), number(12));
        if length > INLINE_BYTES { &self.heap[buffer][offset..offset + length] } else { &view[4..4 + length] }
    }

    fn bits(&self, block: &Block, bitmap: usize, at: usize, rows: usize) -> BooleanBuffer {
        BooleanBuffer::new(self.buffer(bitmap, block.layout.slots as usize / 8), at, rows)
    }

    fn buffer(&self, offset: usize, bytes: usize) -> Buffer {
        // SAFETY: within the memory, by the layout. It was initialised with zeros, does not change while it
        // is held (see the module), and the buffer holds it.
        unsafe { Buffer::from_custom_allocation(self.memory.start().add(offset), bytes, self.memory.clone()) }
    }
}

/// A column of a frozen block, as the input of an encoding.
pub(crate) struct ColumnSource<'a> {
    values: Values<'a>,
    nulls: Option<NullBuffer>,
}

enum Values<'a> {
    Bits(BooleanBuffer),
    Two(&'a [i16]),
    Four(&'a [i32]),
    Eight(&'a [i64]),
    Sixteen(&'a [i128]),
    Strings(Vec<&'a [u8]>),
}

impl ColumnSource<'_> {
    pub fn piece(&self) -> Piece<'_> {
        let values = match &self.values {
            Values::Bits(bits) => Source::Bits(bits),
            Values::Two(words) => Source::Two(words),
            Values::Four(words) => Source::Four(words),
            Values::Eight(words) => Source::Eight(words),
            Values::Sixteen(words) => Source::Sixteen(words),
            Values::Strings(strings) => Source::Strings(strings),
        };
        Piece { values, nulls: self.nulls.as_ref() }
    }
}
