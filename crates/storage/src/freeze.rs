//! Freezing: how a block that nobody writes to becomes canonical Arrow, and hot again.
//!
//! Which transition follows which, [`crate::state`] decides. Here is who does them, and why nobody meets a row
//! half moved (seed 004 §5.3; the race of its figure 5.4 is the one that matters):
//!
//! ```text
//! freezer                                        writer
//! hot → cooling
//! waits until every guard of that time has gone  (who saw the block hot has linked his record by then)
//! sees no version but a common one, and no gap   state not hot: thaws, by what it is
//! cooling → freezing                               cooling → hot: the freezer's next step fails
//!   strings gathered, views under NULLs cleared,    freezing: asks, and waits until the freezer has stopped
//!   zones found
//! freezing → frozen                                 frozen → hot: in place, or in a copy if the rows are held
//! ```
//! Readers are not concerned: freezing moves strings, of which they find either place, and a thaw copies what
//! does not change.
//!
//! A compact block stays what it is whoever deletes a row of it. What the freezer waits for are its chain heads, which it
//! gives up when nobody has written to it for as long and no version is left.
//!
//! Who takes rows out of a frozen block gets arrays that share its memory and hold it. The block itself is never
//! held: whoever writes next leaves that memory to the arrays and goes on in a copy.
//!
//! Invariants: the rows of a frozen block lie in its first slots without a gap, and of its memory nothing changes as long
//! as it is frozen or held. They have no versions, and are the same to everybody; or they have come since a long reader
//! began, and are all that they ever were since then: so the one record that they have in common says
//! ([`crate::heads`]). Then a snapshot sees all of them or none.

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
use firn_base::{BlockNumber, ColumnId, Slot, Snapshot, SqlType, clock};
use std::time::Duration;

/// What came of an attempt to freeze a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frozen {
    /// It is frozen.
    Yes,
    /// Somebody has written, or wants to.
    Hot,
    /// Some row has versions of its own.
    HasVersions,
    /// Some slot before a row holds none.
    HasGaps,
    /// It holds no row.
    Empty,
    /// It is compact, and has given up its chain heads if it could.
    Compact,
}

impl Block {
    /// From now on it is known whether somebody writes. False if the block is not hot, or empty.
    pub fn cool(&self) -> bool {
        self.allocated() > 0 && self.life.is_hot() && self.life.step(BlockState::Hot, BlockEvent::GoneCold)
    }

    /// Makes a cooling block canonical. The caller has waited since it began to cool until every guard of that
    /// time had gone.
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
        // Who fills another slot from now on prepares to write before.
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
            assert!(hot, "whoever wants a block that is being frozen waits for his turn");
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
        assert!(frozen, "whoever wants a block that is being frozen waits for his turn");
    }

    /// Notes that no row has versions.
    pub fn forget_versions(&self, guard: &Guard) {
        self.heads.clear(guard);
        for start in (0..self.layout.slots).step_by(RANGE_SLOTS as usize) {
            self.position(Slot(start)).clear();
        }
        self.hold_heads();
    }

    /// Gives up the memory of a cooling block without rows for `nothing`, which it shares with others, and freezes it:
    /// then its slots are fresh again. The caller has waited as for [`Block::freeze`], and knows that nobody else
    /// has been given one of its slots, nor is just now. False if somebody has written to it.
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
                    // Nobody but who has the turn leaves this state, and nobody else hands the block out.
                    if self.life.state() == BlockState::Frozen {
                        if self.rows.is_held() {
                            self.change_rows_for_copy();
                        }
                        self.life.step(BlockState::Frozen, BlockEvent::Write);
                    }
                }
                // Rows are deleted where they are, and inserted elsewhere.
                BlockState::Compact => return self.keep_heads(),
            }
        }
    }

    /// Leaves the rows' memory to those who hold it.
    fn change_rows_for_copy(&self) {
        let Some(before) = self.rows.hold() else { return };
        let copy = Memory::zeroed(self.layout.bytes);
        // SAFETY: both are of so many bytes. Nobody writes to the one, the block being frozen, and nobody
        // knows of the other.
        unsafe { copy.start().copy_from_nonoverlapping(before.start(), self.layout.bytes) };
        let copy = CountedMemory::new(copy, Held::Rows, &self.budget);
        self.rows.change_for(Arc::new(copy), &crate::pin());
    }

    /// Whether it shares the memory of its rows with others that have none either.
    pub fn has_given_up_rows(&self) -> bool {
        self.allocated() == 0 && self.life.state() == BlockState::Frozen
    }

    /// How many rows are there.
    pub fn rows_present(&self) -> u32 {
        self.present_words().iter().map(|word| word.load(Ordering::Acquire).count_ones()).sum()
    }

    /// Whether its `rows` rows lie in its first slots.
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

    /// Finds the zones of all columns. False if somebody wants to write.
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

    /// The rows, to keep as long as one likes, if the block is frozen and the snapshot sees them.
    pub fn hand_out(&self, snapshot: Snapshot, strings: bool, asked: &[Asked], guard: &Guard) -> HandedOut {
        let is_cold = || matches!(self.life.state(), BlockState::Frozen | BlockState::Compact);
        if !is_cold() {
            return HandedOut::NotCold;
        }
        let turn = self.life.turn();
        if !is_cold() {
            return HandedOut::NotCold;
        }
        // For good: what the snapshot does not see it will not see.
        let seen = self.sees_all(snapshot, guard);
        if seen == Some(false) {
            return HandedOut::NotSeen;
        }
        // Of a block that has given up its rows they are of no account, if there are any.
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

    /// Whether it was frozen so long ago and has at least so many rows, and nobody has found that it cannot be encoded.
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

    /// Notes that it cannot be encoded before it is frozen anew.
    pub fn stays_frozen(&self) {
        self.life.turn().encoded_after = None;
    }

    /// In the turn.
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
    /// Has all hot blocks begin to cool, and the chain heads of compact ones, and adds the numbers of all that cool to
    /// `cooling`.
    pub fn cool(&self, cooling: &mut Vec<BlockNumber>) {
        for block in self.blocks().iter() {
            if block.cool() || block.life.state() == BlockState::Cooling || block.cool_heads() {
                cooling.push(block.number);
            }
        }
    }

    /// Freezes a block, if nobody has written to it since it began to cool; has a compact one give up its chain heads. The caller has waited since then until
    /// every guard of that time had gone.
    pub fn freeze(&self, block: BlockNumber, guard: &Guard) -> Frozen {
        self.blocks().get(block).expect("block numbers name existing blocks").freeze(guard)
    }

    /// Whether a block that has versions may give up its chain heads.
    pub fn may_share_heads(&self, block: BlockNumber, guard: &Guard) -> bool {
        self.blocks().get(block).expect("block numbers name existing blocks").may_share_heads(guard)
    }

    /// Has it do so, if one record of all rows tells as much; then it may be frozen at once. The caller has waited as
    /// for [`Table::freeze`], and nobody collects meanwhile.
    pub fn share_heads(&self, block: BlockNumber, guard: &Guard) -> bool {
        self.blocks().get(block).expect("block numbers name existing blocks").share_heads(guard)
    }

    /// Its blocks, in their order.
    pub fn block_usage(&self) -> impl Iterator<Item = BlockUsage> {
        self.blocks().iter().map(|block| {
            // A thaw may leave the rows' memory just now.
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

/// What a block consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockUsage {
    /// Which one.
    pub number: BlockNumber,
    /// What it is now.
    pub state: BlockState,
    /// Rows, whoever sees them.
    pub rows: u32,
    /// Slots that were given out and hold no row now.
    pub free: u32,
    /// Bytes of rows, strings, and where version chains begin, without dictionaries that it shares with others.
    pub bytes: u64,
    /// Bytes that rows and strings would take if they were not encoded.
    pub raw_bytes: u64,
    /// How each column is kept, if it is compact.
    pub encodings: Option<Vec<Encoding>>,
}

/// What a block gives out of itself.
pub(crate) enum HandedOut {
    /// Nothing: somebody may be writing to it.
    NotCold,
    /// It is frozen or compact, and none of its rows meets all conditions.
    NothingMeets,
    /// It is frozen or compact, and the snapshot sees none of its rows.
    NotSeen,
    /// All rows of a frozen one.
    Rows(FrozenRows),
    /// Nothing, since it is compact.
    Encoded,
}

/// The rows of a frozen block as they were when they were handed out.
pub(crate) struct FrozenRows {
    pub memory: Arc<CountedMemory>,
    heap: Vec<Buffer>,
    /// Those of each column, a bit each.
    buffers: Arc<[u64]>,
    /// How many there are.
    pub rows: u32,
}

impl FrozenRows {
    /// A column of some of the rows. Only numerics that are stored in fewer bytes than Arrow gives them are
    /// copied.
    pub fn column(&self, block: &Block, column: ColumnId, first: u32, rows: u32) -> ArrayRef {
        let layout = block.layout.column(column);
        let ty = block.layout.types[column.index()];
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
                // SAFETY: the views were written by `Heap::store` of this block, and those under NULLs are
                // empty; the buffers that they lead to are in `heap`. Text is UTF-8 on every way in.
                unsafe {
                    if ty == SqlType::Bytea {
                        Arc::new(BinaryViewArray::new_unchecked(views, heap, nulls))
                    } else {
                        Arc::new(StringViewArray::new_unchecked(views, heap, nulls))
                    }
                }
            }
            Unit::Eight if matches!(ty, SqlType::Numeric { .. }) => {
                let values: ScalarBuffer<i64> = ScalarBuffer::new(values(), 0, rows);
                let mut wide = spare::take(rows);
                widen(&values, |value| value, &mut wide);
                let wide = ScalarBuffer::new(spare::into_buffer(wide), 0, rows);
                Arc::new(
                    PrimitiveArray::<Decimal128Type>::new(wide, nulls).with_data_type(arrow::data_type(ty)),
                )
            }
            _ => {
                let data =
                    ArrayData::builder(arrow::data_type(ty)).len(rows).add_buffer(values()).nulls(nulls);
                // SAFETY: one buffer of `rows` values of the type's width.
                make_array(unsafe { data.build_unchecked() })
            }
        }
    }

    /// The buffers of the heap where strings of a column lie, with empty ones in the place of those before them that are
    /// others'.
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
                // SAFETY: so many values lie there, aligned to more than theirs, by the layout; any bits are values, and
                // nobody writes to them as long as the memory is held.
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
                // SAFETY: as above; two words are a view, and 16 bytes.
                let views: &[[u8; 16]] =
                    unsafe { std::slice::from_raw_parts(start.add(layout.values()).cast().as_ptr(), rows) };
                Values::Strings(views.iter().map(|view| self.string(view)).collect())
            }
        };
        ColumnSource { values, nulls }
    }

    /// The string of a view, which is empty under a NULL.
    fn string<'a>(&'a self, view: &'a [u8; 16]) -> &'a [u8] {
        let number = |at: usize| u32::from_le_bytes(view[at..at + 4].try_into().expect("4 bytes")) as usize;
        let (length, buffer, offset) = (number(0), number(8), number(12));
        if length > INLINE_BYTES { &self.heap[buffer][offset..offset + length] } else { &view[4..4 + length] }
    }

    fn bits(&self, block: &Block, bitmap: usize, at: usize, rows: usize) -> BooleanBuffer {
        BooleanBuffer::new(self.buffer(bitmap, block.layout.slots as usize / 8), at, rows)
    }

    fn buffer(&self, offset: usize, bytes: usize) -> Buffer {
        // SAFETY: within the memory, by the layout. It was initialised with zeros, is not written to as long as
        // it is held (module), and the buffer holds it.
        unsafe { Buffer::from_custom_allocation(self.memory.start().add(offset), bytes, self.memory.clone()) }
    }
}

/// A column of a frozen block, as an encoding takes it.
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
