//! Chain heads: where the version chains of a block's rows begin.
//!
//! A row's head lies in an array of the block, which is made when the first version is, and given up when the block
//! is frozen. Behind a reader that runs long, rows that have come since keep their heads as long as it runs, eight bytes
//! each, and all of a block mostly lead to one record, which tells that they came to be ([`crate::attic`]). Then
//! the block keeps that record alone:
//!
//! ```text
//! each: an array  → the head of a row stands in it
//! each: none      → it is `common`: one record for all rows, or null, no row has versions
//! ```
//! So the block can be frozen and encoded all the same: a snapshot sees all its rows or none.
//!
//! Whoever links a record makes the array again, filled with the common record. The freezer goes from the array to
//! the common record, in whose turn nobody links ([`crate::freeze`]) and nobody collects (the transaction manager sees to
//! it); the array is freed once every guard of that time has gone. The collector takes the common record out while
//! nobody makes the array.
//!
//! A compact block whose row is deleted has an array from then on, and stays compact. So the freezer asks for it by a mark of
//! its own, which whoever writes takes back, as the state of a hot block; the array goes at the end of a round if nobody
//! has and no row has versions. Otherwise one deleted row would cost eight bytes for each of the others, for ever.
//!
//! What a head leads to is mostly in no cache behind a long reader, and mostly is nothing to who reads: it is one of the
//! records that the attic keeps for readers who began long ago. So a head tells that without a look at the record:
//!
//! ```text
//! | pointer to the newest record 63 | kept 1 |      8 bytes; null if the row has no versions
//! ```
//! and the block until when the changes were committed whose records of its rows are kept. Whoever reads at that time or
//! later sees the row as it lies there. The time rises before a head that leads to such a record is put in its place.
//!
//! Readers look for the array first. If there is none, and one is made before they look for the common record, they
//! find the record that stood for all rows until then: as if they had looked a moment before, and as always they look at the head again
//! after they have copied the row.

use crate::Guard;
use crate::block::{AHEAD, Block};
use crate::budget::{Held, MemoryBudget};
use crate::layout::RANGE_SLOTS;
use crate::memory::{Memory, Span, prefetch_to_write};
use crate::position::Reset;
use crate::shared::{CountedMemory, SharedMemory};
use crate::state::{BlockEvent, BlockState};
use crate::version::{Change, Record, UndoHeader};
use firn_base::sync::{Arc, AtomicPtr, AtomicU8, AtomicU64, Ordering, fence};
use firn_base::{BlockNumber, Slot, Snapshot, Time};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Bytes of a chain head.
const HEAD_BYTES: usize = size_of::<AtomicPtr<UndoHeader>>();

/// In a head: the record is kept in the attic. The alignment of records leaves the bit.
const KEPT: usize = 1;
const _: () = assert!(align_of::<UndoHeader>() > KEPT);

/// What becomes of the array of a compact block: it stays; it goes unless somebody writes; it is being taken off.
const STAYS: u8 = 0;
const COOLS: u8 = 1;
const GOES: u8 = 2;

/// A row's chain head, as it was at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head<'g> {
    word: *mut UndoHeader,
    life: PhantomData<&'g Guard>,
}

impl<'g> Head<'g> {
    #[inline]
    fn load(head: &AtomicPtr<UndoHeader>, _guard: &'g Guard) -> Head<'g> {
        // Acquire: pairs with the store that put the record there, so that its content is there.
        Head { word: head.load(Ordering::Acquire), life: PhantomData }
    }

    /// That leads to a record.
    #[inline]
    fn to(record: Record<'g>) -> Head<'g> {
        let word = record.as_ptr();
        let word = if record.is_kept() { word.map_addr(|address| address | KEPT) } else { word };
        Head { word, life: PhantomData }
    }

    /// The row's newest record.
    #[inline]
    pub fn record(self) -> Option<Record<'g>> {
        let at = NonNull::new(self.word.map_addr(|address| address & !KEPT));
        // SAFETY: whoever set a head to it had linked or was linking it, and it is freed through guards.
        at.map(|at| unsafe { Record::from_raw(at) })
    }

    /// Whether the record is kept in the attic.
    #[inline]
    pub fn is_kept(self) -> bool {
        self.word.addr() & KEPT != 0
    }
}

/// The chain heads of a block.
pub(crate) struct Heads {
    each: SharedMemory,
    /// Means nothing while there is an array.
    common: AtomicPtr<UndoHeader>,
    slots: usize,
    /// What becomes of the array of a compact block, whose state writers leave as it is.
    array: AtomicU8,
    /// Until when the changes were committed whose records of these rows are kept in the attic, or later.
    kept_until: AtomicU64,
}

impl Heads {
    /// Of so many rows, none of which has versions.
    pub fn none(slots: u32) -> Heads {
        let slots = slots as usize;
        let each = SharedMemory::none(slots * HEAD_BYTES);
        let common = AtomicPtr::new(std::ptr::null_mut());
        Heads { each, common, slots, array: AtomicU8::new(STAYS), kept_until: AtomicU64::new(0) }
    }

    /// Bytes of the array.
    pub fn bytes(&self) -> usize {
        self.each.get().map_or(0, Span::len)
    }

    /// The heads of some rows, if there is an array.
    #[inline]
    fn some(&self, first: u32, end: u32) -> Option<&[AtomicPtr<UndoHeader>]> {
        Some(self.each.get()?.pointers(first as usize * HEAD_BYTES, (end - first) as usize))
    }

    /// The head of all rows, if there is no array.
    #[inline]
    fn common<'g>(&self, guard: &'g Guard) -> Head<'g> {
        Head::load(&self.common, guard)
    }

    #[cold]
    fn make(&self, number: BlockNumber, budget: &Arc<MemoryBudget>) -> Span<'_> {
        let bytes = self.slots * HEAD_BYTES;
        self.each.get_or_make(|| {
            // A small table shall not take a place of 1 MiB for them.
            let is_one_of_many = number.0 >= 4;
            let heads = if is_one_of_many { Memory::zeroed_of_many(bytes) } else { Memory::zeroed(bytes) };
            let common = self.common.load(Ordering::Acquire);
            if !common.is_null() {
                // Nobody knows of them yet.
                let all: &[AtomicPtr<UndoHeader>] = heads.span().pointers(0, self.slots);
                all.iter().for_each(|head| head.store(common, Ordering::Relaxed));
            }
            CountedMemory::new(heads, Held::Heads, budget)
        })
    }

    /// Whether all rows have one head, and that of the attic: they came to be, and all else is known to everybody.
    pub fn are_one_kept(&self, guard: &Guard) -> bool {
        self.each.get().is_none() && self.common(guard).is_kept()
    }

    /// Notes that no row has versions.
    pub fn clear(&self, guard: &Guard) {
        // First: who finds no array looks there.
        self.common.store(std::ptr::null_mut(), Ordering::Release);
        self.each.take_off(guard);
    }

    /// Takes the common record out, if it is that. False if it is not, or there is an array.
    fn take_common_out(&self, head: Head<'_>) -> bool {
        let take_out = || {
            let is_it = self.common.load(Ordering::Relaxed) == head.word;
            if is_it {
                self.common.store(std::ptr::null_mut(), Ordering::Release);
            }
            is_it
        };
        self.each.while_none(take_out).unwrap_or(false)
    }
}

impl Block {
    /// The heads of all rows.
    #[inline]
    fn heads(&self) -> &[AtomicPtr<UndoHeader>] {
        let each = self.heads.each.get().unwrap_or_else(|| self.heads.make(self.number, &self.budget));
        each.pointers(0, self.heads.slots)
    }

    /// The chain head of a row.
    #[inline]
    pub fn head<'g>(&self, slot: Slot, guard: &'g Guard) -> Head<'g> {
        let Some(each) = self.heads.each.get() else { return self.heads.common(guard) };
        self.check(slot);
        // SAFETY: there is a head for every slot.
        Head::load(unsafe { each.at(slot.index() * HEAD_BYTES) }, guard)
    }

    /// The newest record of a row.
    #[inline]
    pub fn newest<'g>(&self, slot: Slot, guard: &'g Guard) -> Option<Record<'g>> {
        self.head(slot, guard).record()
    }

    /// Whether a snapshot sees the row with this head as it lies there.
    #[inline]
    pub fn sees_newest(&self, head: Head<'_>, snapshot: Snapshot) -> bool {
        match head.record() {
            None => true,
            Some(_) if self.is_as_kept(head, snapshot) => true,
            Some(record) => record.is_seen_by(snapshot),
        }
    }

    /// Whether a snapshot sees the rows of a block as they lie there, which have one head or no versions; `None` if each has
    /// a head of its own.
    pub fn sees_all(&self, snapshot: Snapshot, guard: &Guard) -> Option<bool> {
        self.heads.each.get().is_none().then(|| self.sees_newest(self.heads.common(guard), snapshot))
    }

    /// Whether the head leads to a record of the attic, and none of those of this block is anything to the snapshot.
    #[inline]
    fn is_as_kept(&self, head: Head<'_>, snapshot: Snapshot) -> bool {
        // Relaxed: at least what it was when the head was set.
        head.is_kept() && self.heads.kept_until.load(Ordering::Relaxed) <= snapshot.read_time.0
    }

    /// Notes that records of changes up to then are about to be kept. Called by the collector.
    #[inline]
    pub fn keep_until(&self, until: Time) {
        let kept_until = &self.heads.kept_until;
        // A look first: it lies beside what everybody reads.
        if kept_until.load(Ordering::Relaxed) < until.0 {
            kept_until.store(until.0, Ordering::Relaxed);
        }
    }

    /// Links `record` as the newest of its row, whose head was that. False if that changed.
    /// After true the caller may change the row in place.
    #[inline]
    pub fn link<'g>(&self, record: Record<'g>, head: Head<'g>) -> bool {
        let slot = record.slot();
        let older = head.record();
        record.set_older(older);
        // A row that has versions is covered, and stays so as long as its chain has a head.
        if older.is_none() {
            self.position(slot).cover(slot, 1);
        }
        let linked = self.heads()[slot.index()]
            // The record's content goes with it, and older ones are followed from here. In sequential order
            // with the writer's look at who shares the row (`row_lock.rs`).
            .compare_exchange(head.word, record.as_ptr(), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        // Records of the attic are far away, and the collector seldom asks them.
        if let (true, Some(older)) = (linked, older)
            && !head.is_kept()
        {
            older.set_newer(Some(record));
        }
        // Pairs with the reader's acquire fence: whoever sees a change sees the link.
        fence(Ordering::Release);
        linked
    }

    /// Links the record of an insert into a slot that was just given out.
    #[inline]
    pub fn link_fresh(&self, record: Record<'_>) {
        let slot = record.slot();
        self.position(slot).cover(slot, 1);
        let heads = self.heads();
        let head = &heads[slot.index()];
        if let Some(ahead) = heads.get(slot.index() + AHEAD) {
            prefetch_to_write(std::ptr::from_ref(ahead).cast());
        }
        debug_assert!(head.load(Ordering::Relaxed).is_null(), "a slot is given out without versions");
        // Release: the record's content goes with it.
        head.store(record.as_ptr(), Ordering::Release);
        // As in `link`.
        fence(Ordering::Release);
    }

    /// Links one record as the only one of `rows` fresh rows.
    pub fn link_many(&self, record: Record<'_>, first: Slot, rows: u32) {
        let mut slot = first.0;
        while slot < first.0 + rows {
            let end = (slot / RANGE_SLOTS + 1).saturating_mul(RANGE_SLOTS).min(first.0 + rows);
            self.position(Slot(slot)).cover(Slot(slot), end - slot);
            slot = end;
        }
        for head in &self.heads()[first.index()..(first.0 + rows) as usize] {
            debug_assert!(head.load(Ordering::Relaxed).is_null(), "a fresh slot has no versions");
            // Release: the record's content goes with it.
            head.store(record.as_ptr(), Ordering::Release);
        }
        fence(Ordering::Release);
    }

    /// Whether some row from `first` up to but not including `end` has versions.
    #[inline]
    pub fn has_versions(&self, first: u32, end: u32) -> bool {
        // Acquire: as in `Record::load`.
        let is_set = |head: &AtomicPtr<UndoHeader>| !head.load(Ordering::Acquire).is_null();
        match self.heads.some(first, end) {
            Some(heads) => heads.iter().any(is_set),
            None => is_set(&self.heads.common),
        }
    }

    /// Whether some row from `first` up to but not including `end` may be another to the snapshot than it lies there;
    /// and whether some has versions.
    #[inline]
    pub fn differs(&self, first: u32, end: u32, snapshot: Snapshot, guard: &Guard) -> (bool, bool) {
        // Without a look at records.
        let differs = |head: Head<'_>| head.record().is_some() && !self.is_as_kept(head, snapshot);
        let Some(heads) = self.heads.some(first, end) else {
            let head = self.heads.common(guard);
            return (differs(head), head.record().is_some());
        };
        let mut some = false;
        let differ = heads.iter().any(|head| {
            let head = Head::load(head, guard);
            some |= head.record().is_some();
            differs(head)
        });
        (differ, some)
    }

    /// Which of at most 64 rows from `first` up to but not including `end` may be others to the snapshot than they lie
    /// there, the first one lowest; and whether some have versions. Fetches the newest of each.
    #[inline]
    pub fn differing(&self, first: u32, end: u32, snapshot: Snapshot, guard: &Guard) -> (u64, bool) {
        debug_assert!(end - first <= 64);
        let Some(heads) = self.heads.some(first, end) else {
            let (differ, some) = self.differs(first, end, snapshot, guard);
            return (if differ && first < end { u64::MAX >> (64 - (end - first)) } else { 0 }, some);
        };
        let mut some = false;
        let differing = heads.iter().enumerate().fold(0, |bits, (at, head)| {
            let head = Head::load(head, guard);
            let Some(record) = head.record() else { return bits };
            some = true;
            if self.is_as_kept(head, snapshot) {
                return bits;
            }
            record.prefetch();
            bits | 1 << at
        });
        (differing, some)
    }

    /// The record of several rows that came together, if that is the newest record of `first` and of rows that follow
    /// it, and where those end, at `end` at most.
    pub fn shared_head<'g>(&self, first: u32, end: u32, guard: &'g Guard) -> Option<(Record<'g>, u32)> {
        let Some(heads) = self.heads.some(first, end) else {
            return Some((self.heads.common(guard).record()?, end));
        };
        let [newest, next, ..] = heads else { return None };
        let shared = Head::load(newest, guard);
        let record = shared.record()?;
        // Mostly this tells, and the record is not fetched.
        if next.load(Ordering::Relaxed) != shared.word {
            return None;
        }
        debug_assert!(record.change() == Change::InsertMany, "no other record is of several rows");
        let rows = heads.iter().take_while(|head| Head::load(head, guard) == shared).count();
        Some((record, first + rows as u32))
    }

    /// Finishes the reset of the positions of the range that begins at `start`, if it still has no
    /// versions. Every guard that was held when it was asked for has gone.
    pub fn finish_reset(&self, start: u32, reset: Reset) {
        if !self.has_versions(start, start + RANGE_SLOTS) {
            self.position(Slot(start)).finish(reset);
        }
    }

    /// Puts another record, or nothing, into the place of the newest record of a row, if it still is that. Nothing
    /// takes the place of a common record for all rows at once: the collector, who alone does this, goes on with the others.
    pub fn replace_head(&self, slot: Slot, record: Record<'_>, instead: Option<Record<'_>>) -> bool {
        let out = Head::to(record);
        // Looked for once: the freezer may take the array of a block without versions off just now.
        let heads = match self.heads.some(0, self.layout.slots) {
            Some(heads) => heads,
            None if self.heads.common.load(Ordering::Relaxed) != out.word => return false,
            None if instead.is_none() && self.heads.take_common_out(out) => return true,
            None => self.heads(),
        };
        let head = &heads[slot.index()];
        let instead = instead.map_or(std::ptr::null_mut(), |instead| Head::to(instead).word);
        // A look first: the heads of rows that are changed all the time lie in their writers' caches.
        head.load(Ordering::Relaxed) == out.word
            && head
                // Acquire and release: what `instead` holds goes with it, as when it is linked.
                .compare_exchange(out.word, instead, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// What all heads of the array are, if they are the same, a record of the attic that says that the rows came to be.
    fn one_head<'g>(&self, guard: &'g Guard) -> Option<Head<'g>> {
        let heads = self.heads.some(0, self.layout.slots)?;
        let one = Head::load(&heads[0], guard);
        let is_of_all = one.is_kept()
            && heads.iter().all(|head| Head::load(head, guard) == one)
            && one.record()?.is_insert();
        is_of_all.then_some(one)
    }

    /// From now on it is known whether somebody writes to a compact block. False if it is not, or has no array.
    pub fn cool_heads(&self) -> bool {
        let has_array = self.life.state() == BlockState::Compact && self.heads.each.get().is_some();
        if has_array {
            self.heads.array.store(COOLS, Ordering::Release);
        }
        has_array
    }

    /// The array of a block that becomes compact, or has forgotten its versions, stays as long as it is not to cool.
    pub fn hold_heads(&self) {
        // Release: who finds it so goes on in what there is without the array.
        self.heads.array.store(STAYS, Ordering::Release);
    }

    /// Called by whoever writes to a compact block: its array stays, and nobody is just taking it off.
    pub fn keep_heads(&self) {
        let array = &self.heads.array;
        loop {
            match array.load(Ordering::Acquire) {
                STAYS => return,
                COOLS => {
                    // Failure: it is about to go, or another writer was here.
                    let _ = array.compare_exchange(COOLS, STAYS, Ordering::AcqRel, Ordering::Relaxed);
                }
                _ => drop(self.life.turn()),
            }
        }
    }

    /// Gives up the array of a compact block without versions, unless somebody has written to it since
    /// [`Block::cool_heads`]. The caller has the turn, and has waited as for [`Block::freeze`].
    pub fn give_up_heads(&self, guard: &Guard) {
        let array = &self.heads.array;
        if self.may_have_versions()
            || array.compare_exchange(COOLS, GOES, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        // From here on who wants to write waits for the turn. Whoever did before took it back, and so none of the
        // versions that were not there has come.
        self.forget_versions(guard);
    }

    /// Whether [`Block::share_heads`] is worth while.
    pub fn may_share_heads(&self, guard: &Guard) -> bool {
        self.one_head(guard).is_some()
    }

    /// Gives up the array of a full cooling block, if all heads are one record. Then the block can be frozen at once;
    /// false if the array has stayed, or somebody wants to write. The caller has waited as for [`Block::freeze`], and nobody collects
    /// meanwhile.
    pub fn share_heads(&self, guard: &Guard) -> bool {
        let _turn = self.life.turn();
        if self.life.state() != BlockState::Cooling {
            return false;
        }
        self.life.wanted.store(false, Ordering::Relaxed);
        if !self.life.step(BlockState::Cooling, BlockEvent::VersionsGone) {
            return false;
        }
        // From here on who wants to write waits for the turn, and looks at the state again.
        let one = self.one_head(guard).filter(|_| self.rows_present() == self.layout.slots);
        if let Some(head) = one {
            // First: who finds no array looks there.
            self.heads.common.store(head.word, Ordering::Release);
            self.heads.each.take_off(guard);
        }
        // Who waits for this turn shall not have to wait for the next one as well.
        let may_freeze = one.is_some() && !self.is_wanted();
        let event = if may_freeze { BlockEvent::HeadsShared } else { BlockEvent::Write };
        let has_left = self.life.step(BlockState::Freezing, event);
        assert!(has_left, "whoever wants a block that is being frozen waits for his turn");
        may_freeze
    }

    /// Asks the processor to fetch the newest record of a row, unless it is one of the attic: mostly nobody looks at that.
    #[inline]
    pub fn prefetch_newest(&self, slot: Slot, guard: &Guard) {
        let head = self.head(slot, guard);
        if let Some(record) = head.record()
            && !head.is_kept()
        {
            record.prefetch_header();
        }
    }

    /// Asks the processor to fetch the chain head of a row.
    #[inline]
    pub fn prefetch_head(&self, slot: Slot) {
        if let Some(each) = self.heads.each.get() {
            each.prefetch(slot.index() * HEAD_BYTES);
        }
    }
}
