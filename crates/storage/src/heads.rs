//! Chain heads: the heads of the version chains of a block's rows.
//!
//! The heads are an array of the block, which is made when the first version is, and freed when the block is
//! frozen. Behind a long reader the rows that were inserted later keep their heads as long as it runs, eight
//! bytes each. Mostly all heads of a block refer to one record, which says that the rows were inserted
//! ([`crate::attic`]). Then the block keeps that record only:
//!
//! ```text
//! each: an array  → it has the head of a row
//! each: none      → `common` is the head: one record for all rows, or null, no row has versions
//! ```
//! So the block can be frozen and encoded nevertheless: a snapshot sees all its rows or none.
//!
//! A writer that links a record makes the array again, filled with the common record. The freezer replaces
//! the array by the common record. It holds the turn, so no writer links ([`crate::freeze`]), and no
//! collection runs (the transaction manager ensures it). The array is freed once every guard of that time is
//! released. The collector removes the common record while no thread can make the array.
//!
//! A compact block has an array after the first delete of a row, and remains compact. So the freezer marks
//! the array with a mark of its own, which a writer removes, as it makes other blocks hot. The array is freed
//! at the end of a round if no writer has removed the mark and no row has versions. Otherwise one deleted row
//! would cost eight bytes for each of the others permanently.
//!
//! Behind a long reader the record of a head is mostly in no cache, and does not affect most readers: it is
//! one of the records that the attic keeps for old readers. So the head itself says so, without access to the
//! record:
//!
//! ```text
//! | pointer to the newest record 63 | kept 1 |      8 bytes; null if the row has no versions
//! ```
//! The block has the commit time up to which records of its rows are kept. A reader at that time or later
//! sees the row as it is in the block. The time rises before a head is set to such a record.
//!
//! Readers look for the array first. If there is none, and one is made before they load the common record,
//! they get the former common record. It was valid for all rows until then, so this is as if they had read
//! earlier. As always, they load the head again after they have copied the row.

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

/// Bit of a head: the record is kept in the attic. Records are aligned, so the bit is free.
const KEPT: usize = 1;
const _: () = assert!(align_of::<UndoHeader>() > KEPT);

/// State of the array of a compact block: it remains; it is freed unless a writer comes; it is being freed.
const UNWATCHED: u8 = 0;
const WATCHED: u8 = 1;
const FREEING: u8 = 2;

/// A row's chain head at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head<'g> {
    word: *mut UndoHeader,
    life: PhantomData<&'g Guard>,
}

impl<'g> Head<'g> {
    #[inline]
    fn load(head: &AtomicPtr<UndoHeader>, _guard: &'g Guard) -> Head<'g> {
        // Acquire: pairs with the store of the head, so that the record's content is visible.
        Head { word: head.load(Ordering::Acquire), life: PhantomData }
    }

    /// The head that refers to a record.
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
        // SAFETY: a thread that set a head to it had linked or was linking it, and it is freed through
        // guards.
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
    /// Not used while there is an array.
    common: AtomicPtr<UndoHeader>,
    slots: usize,
    /// State of the array of a compact block; writers do not change the state of such a block.
    array: AtomicU8,
    /// The commit time up to which records of these rows are kept in the attic, or later.
    kept_until: AtomicU64,
}

impl Heads {
    /// The heads of this many rows, none of which has versions.
    pub fn none(slots: u32) -> Heads {
        let slots = slots as usize;
        let each = SharedMemory::none(slots * HEAD_BYTES);
        let common = AtomicPtr::new(std::ptr::null_mut());
        Heads { each, common, slots, array: AtomicU8::new(UNWATCHED), kept_until: AtomicU64::new(0) }
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
            // A small table should not take a place of 1 MiB for them.
            let is_one_of_many = number.0 >= 4;
            let heads = if is_one_of_many { Memory::zeroed_of_many(bytes) } else { Memory::zeroed(bytes) };
            let common = self.common.load(Ordering::Acquire);
            if !common.is_null() {
                // No other thread can reach them yet.
                let all: &[AtomicPtr<UndoHeader>] = heads.span().pointers(0, self.slots);
                all.iter().for_each(|head| head.store(common, Ordering::Relaxed));
            }
            CountedMemory::new(heads, Held::Heads, budget)
        })
    }

    /// Whether all rows have one head, which is of the attic: they were inserted, and have no other version.
    pub fn are_one_kept(&self, guard: &Guard) -> bool {
        self.each.get().is_none() && self.common(guard).is_kept()
    }

    /// Notes that no row has versions.
    pub fn clear(&self, guard: &Guard) {
        // First: readers that find no array read it.
        self.common.store(std::ptr::null_mut(), Ordering::Release);
        self.each.take_off(guard);
    }

    /// Removes the common record, if it is this one. Returns false if it is not, or if there is an array.
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

    /// Whether a snapshot sees the row with this head as it is in the block.
    #[inline]
    pub fn sees_newest(&self, head: Head<'_>, snapshot: Snapshot) -> bool {
        match head.record() {
            None => true,
            Some(_) if self.is_as_kept(head, snapshot) => true,
            Some(record) => record.is_seen_by(snapshot),
        }
    }

    /// Whether a snapshot sees the rows of a block as they are there, if they have one head or no versions;
    /// `None` if each has a head of its own.
    pub fn sees_all(&self, snapshot: Snapshot, guard: &Guard) -> Option<bool> {
        self.heads.each.get().is_none().then(|| self.sees_newest(self.heads.common(guard), snapshot))
    }

    /// Whether the head refers to a record of the attic, and the kept records of this block do not affect the
    /// snapshot.
    #[inline]
    fn is_as_kept(&self, head: Head<'_>, snapshot: Snapshot) -> bool {
        // Relaxed: it is at least as high as when the head was set.
        head.is_kept() && self.heads.kept_until.load(Ordering::Relaxed) <= snapshot.read_time.0
    }

    /// Notes that records of changes up to a time are about to be kept. Called by the collector.
    #[inline]
    pub fn keep_until(&self, until: Time) {
        let kept_until = &self.heads.kept_until;
        // A load first: the word is in a cache line that all transactions read.
        if kept_until.load(Ordering::Relaxed) < until.0 {
            kept_until.store(until.0, Ordering::Relaxed);
        }
    }

    /// Links `record` as the newest of its row, whose head was `head`. Returns false if the head has changed.
    /// After true the caller may change the row in place.
    #[inline]
    pub fn link<'g>(&self, record: Record<'g>, head: Head<'g>) -> bool {
        let slot = record.slot();
        let older = head.record();
        record.set_older(older);
        // A row that has versions is covered, and remains so while its chain has a head.
        if older.is_none() {
            self.position(slot).cover(slot, 1);
        }
        let linked = self.heads()[slot.index()]
            // Publishes the record's content; older records are reached from it. Sequentially consistent with
            // the writer's check of the row's sharers (`row_lock.rs`).
            .compare_exchange(head.word, record.as_ptr(), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        // Records of the attic are in no cache, and the collector seldom needs their newer neighbour.
        if let (true, Some(older)) = (linked, older)
            && !head.is_kept()
        {
            older.set_newer(Some(record));
        }
        // Pairs with the reader's acquire fence: a reader that sees a change sees the link.
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
        // Release: publishes the record's content.
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
            // Release: publishes the record's content.
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

    /// Whether the snapshot may see some row from `first` up to but not including `end` other than as it is
    /// in the block; and whether some row has versions.
    #[inline]
    pub fn differs(&self, first: u32, end: u32, snapshot: Snapshot, guard: &Guard) -> (bool, bool) {
        // Does not access records.
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

    /// Which of at most 64 rows from `first` up to but not including `end` the snapshot may see other than as
    /// they are in the block. The first one is the lowest bit. Also returns whether some have versions.
    /// Prefetches the newest record of each.
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

    /// The shared record of several inserted rows, if it is the newest record of `first` and of the rows
    /// after it; and where those rows end, at most at `end`.
    pub fn shared_head<'g>(&self, first: u32, end: u32, guard: &'g Guard) -> Option<(Record<'g>, u32)> {
        let Some(heads) = self.heads.some(first, end) else {
            return Some((self.heads.common(guard).record()?, end));
        };
        let [newest, next, ..] = heads else { return None };
        let shared = Head::load(newest, guard);
        let record = shared.record()?;
        // This decides mostly, without access to the record.
        if next.load(Ordering::Relaxed) != shared.word {
            return None;
        }
        debug_assert!(record.change() == Change::InsertMany, "only an insert's record has several rows");
        let rows = heads.iter().take_while(|head| Head::load(head, guard) == shared).count();
        Some((record, first + rows as u32))
    }

    /// Finishes the reset of the positions of the range that begins at `start`, if it still has no versions.
    /// Every guard that was held when the reset was requested is released.
    pub fn finish_reset(&self, start: u32, reset: Reset) {
        if !self.has_versions(start, start + RANGE_SLOTS) {
            self.position(Slot(start)).finish(reset);
        }
    }

    /// Replaces the newest record of a row by another, or removes it, if it still is the newest. Removing a
    /// common record removes it for all rows at once; the collector, the only caller, then continues with the
    /// other rows.
    pub fn replace_head(&self, slot: Slot, record: Record<'_>, instead: Option<Record<'_>>) -> bool {
        let out = Head::to(record);
        // Loaded once: the freezer may free the array of a block without versions meanwhile.
        let heads = match self.heads.some(0, self.layout.slots) {
            Some(heads) => heads,
            None if self.heads.common.load(Ordering::Relaxed) != out.word => return false,
            None if instead.is_none() && self.heads.take_common_out(out) => return true,
            None => self.heads(),
        };
        let head = &heads[slot.index()];
        let instead = instead.map_or(std::ptr::null_mut(), |instead| Head::to(instead).word);
        // A load first: the heads of rows that change all the time are in their writers' caches.
        head.load(Ordering::Relaxed) == out.word
            && head
                // Acquire and release: publishes the content of `instead`, as a link does.
                .compare_exchange(out.word, instead, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// The head of all rows, if the array has the same head for all and it is a record of the attic for
    /// inserted rows.
    fn one_head<'g>(&self, guard: &'g Guard) -> Option<Head<'g>> {
        let heads = self.heads.some(0, self.layout.slots)?;
        let one = Head::load(&heads[0], guard);
        let is_of_all = one.is_kept()
            && heads.iter().all(|head| Head::load(head, guard) == one)
            && one.record()?.is_insert();
        is_of_all.then_some(one)
    }

    /// Begins to watch a compact block for writers. Returns false if it is not compact, or has no array.
    pub fn cool_heads(&self) -> bool {
        let has_array = self.life.state() == BlockState::Compact && self.heads.each.get().is_some();
        if has_array {
            self.heads.array.store(WATCHED, Ordering::Release);
        }
        has_array
    }

    /// Ends the cooling of the array of a block that becomes compact, or whose versions have been forgotten.
    pub fn hold_heads(&self) {
        // Release: a writer that finds this value uses what is there without the array.
        self.heads.array.store(UNWATCHED, Ordering::Release);
    }

    /// Called by a writer of a compact block: its array remains, and no freezer is removing it now.
    pub fn keep_heads(&self) {
        let array = &self.heads.array;
        loop {
            match array.load(Ordering::Acquire) {
                UNWATCHED => return,
                WATCHED => {
                    // It fails if the array is about to be freed, or another writer was first.
                    let _ = array.compare_exchange(WATCHED, UNWATCHED, Ordering::AcqRel, Ordering::Relaxed);
                }
                _ => drop(self.life.turn()),
            }
        }
    }

    /// Frees the array of a compact block without versions, unless a transaction has written to it since
    /// [`Block::cool_heads`]. The caller holds the turn, and has waited as for [`Block::freeze`].
    pub fn give_up_heads(&self, guard: &Guard) {
        let array = &self.heads.array;
        if self.may_have_versions()
            || array.compare_exchange(WATCHED, FREEING, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        // From here on writers wait for the turn. A writer that came earlier has removed the mark; so there
        // are still no versions.
        self.forget_versions(guard);
    }

    /// Whether [`Block::share_heads`] is worth a try.
    pub fn may_share_heads(&self, guard: &Guard) -> bool {
        self.one_head(guard).is_some()
    }

    /// Replaces the array of a full cooling block by one head, if all heads are the same record. Then the
    /// block can be frozen at once. Returns false if the array remains, or a writer wants the block. The
    /// caller has waited as for [`Block::freeze`], and no collection runs meanwhile.
    pub fn share_heads(&self, guard: &Guard) -> bool {
        let _turn = self.life.turn();
        if self.life.state() != BlockState::Cooling {
            return false;
        }
        self.life.wanted.store(false, Ordering::Relaxed);
        if !self.life.step(BlockState::Cooling, BlockEvent::VersionsGone) {
            return false;
        }
        // From here on writers wait for the turn, and then load the state again.
        let one = self.one_head(guard).filter(|_| self.rows_present() == self.layout.slots);
        if let Some(head) = one {
            // First: readers that find no array read it.
            self.heads.common.store(head.word, Ordering::Release);
            self.heads.each.take_off(guard);
        }
        // A writer that waits for this turn should not have to wait for the next one as well.
        let may_freeze = one.is_some() && !self.is_wanted();
        let event = if may_freeze { BlockEvent::HeadsShared } else { BlockEvent::Write };
        let has_left = self.life.step(BlockState::Freezing, event);
        assert!(has_left, "a writer of a block that is being frozen waits for the turn");
        may_freeze
    }

    /// Prefetches the newest record of a row, unless it is one of the attic, which is seldom read.
    #[inline]
    pub fn prefetch_newest(&self, slot: Slot, guard: &Guard) {
        let head = self.head(slot, guard);
        if let Some(record) = head.record()
            && !head.is_kept()
        {
            record.prefetch_header();
        }
    }

    /// Prefetches the chain head of a row.
    #[inline]
    pub fn prefetch_head(&self, slot: Slot) {
        if let Some(each) = self.heads.each.get() {
            each.prefetch(slot.index() * HEAD_BYTES);
        }
    }
}
