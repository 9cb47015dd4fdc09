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
//! Whoever links a record then makes the array again, filled with the common record. The freezer goes from the array to
//! the common record, in whose turn nobody links ([`crate::freeze`]) and nobody collects (the transaction manager sees to
//! it); the array is freed once every guard of that time has gone. The collector takes the common record out while
//! nobody makes the array.
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
use firn_base::sync::{Arc, AtomicPtr, Ordering, fence};
use firn_base::{BlockNumber, Slot};

/// Bytes of a chain head.
const HEAD_BYTES: usize = size_of::<AtomicPtr<UndoHeader>>();

/// The chain heads of a block.
pub(crate) struct Heads {
    each: SharedMemory,
    /// Means nothing while there is an array.
    common: AtomicPtr<UndoHeader>,
    slots: usize,
}

impl Heads {
    /// Of so many rows, none of which has versions.
    pub fn none(slots: u32) -> Heads {
        let slots = slots as usize;
        let each = SharedMemory::none(slots * HEAD_BYTES);
        Heads { each, common: AtomicPtr::new(std::ptr::null_mut()), slots }
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
    fn common<'g>(&self, guard: &'g Guard) -> Option<Record<'g>> {
        Record::load(&self.common, guard)
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

    /// Notes that no row has versions.
    pub fn clear(&self, guard: &Guard) {
        // First: who finds no array looks there.
        self.common.store(std::ptr::null_mut(), Ordering::Release);
        self.each.take_off(guard);
    }

    /// Takes the common record out, if it is that. False if it is not, or there is an array.
    fn take_common_out(&self, record: Record<'_>) -> bool {
        let take_out = || {
            let is_it = self.common.load(Ordering::Relaxed) == record.as_ptr();
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

    /// The newest record of a row.
    #[inline]
    pub fn head<'g>(&self, slot: Slot, guard: &'g Guard) -> Option<Record<'g>> {
        let Some(each) = self.heads.each.get() else { return self.heads.common(guard) };
        self.check(slot);
        // SAFETY: there is a head for every slot.
        Record::load(unsafe { each.at(slot.index() * HEAD_BYTES) }, guard)
    }

    /// Links `record` as the newest of its row, whose newest was `head`. False if that changed.
    /// After true the caller may change the row in place.
    #[inline]
    pub fn link<'g>(&self, record: Record<'g>, head: Option<Record<'g>>) -> bool {
        let slot = record.slot();
        record.set_older(head);
        // A row that has versions is covered, and stays so as long as its chain has a head.
        if head.is_none() {
            self.position(slot).cover(slot, 1);
        }
        let expected = head.map_or(std::ptr::null_mut(), Record::as_ptr);
        let linked = self.heads()[slot.index()]
            // The record's content goes with it, and older ones are followed from here. In sequential order
            // with the writer's look at who shares the row (`row_lock.rs`).
            .compare_exchange(expected, record.as_ptr(), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        if let (true, Some(head)) = (linked, head) {
            head.set_newer(Some(record));
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

    /// Which of at most 64 rows from `first` up to but not including `end` have versions, the first one
    /// lowest. Fetches the newest of each.
    #[inline]
    pub fn heads_of(&self, first: u32, end: u32) -> u64 {
        debug_assert!(end - first <= 64);
        let Some(heads) = self.heads.some(first, end) else {
            let is_common = self.has_versions(first, end);
            return if is_common && first < end { u64::MAX >> (64 - (end - first)) } else { 0 };
        };
        heads.iter().enumerate().fold(0, |bits, (at, head)| {
            // Acquire: as in `Record::load`.
            let record = head.load(Ordering::Acquire);
            if record.is_null() {
                return bits;
            }
            Record::prefetch_at(record);
            bits | 1 << at
        })
    }

    /// The record of several rows that came together, if that is the newest record of `first` and of rows that follow
    /// it, and where those end, at `end` at most.
    pub fn shared_head<'g>(&self, first: u32, end: u32, guard: &'g Guard) -> Option<(Record<'g>, u32)> {
        let Some(heads) = self.heads.some(first, end) else { return Some((self.heads.common(guard)?, end)) };
        let [newest, next, ..] = heads else { return None };
        let record = Record::load(newest, guard)?;
        // Mostly this tells, and the record is not fetched.
        if next.load(Ordering::Relaxed) != record.as_ptr() {
            return None;
        }
        debug_assert!(record.change() == Change::InsertMany, "no other record is of several rows");
        // Acquire: as in `Record::load`.
        let rows = heads.iter().take_while(|head| head.load(Ordering::Acquire) == record.as_ptr()).count();
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
        // Looked for once: the freezer may take the array of a block without versions off just now.
        let heads = match self.heads.some(0, self.layout.slots) {
            Some(heads) => heads,
            None if self.heads.common.load(Ordering::Relaxed) != record.as_ptr() => return false,
            None if instead.is_none() && self.heads.take_common_out(record) => return true,
            None => self.heads(),
        };
        let head = &heads[slot.index()];
        let instead = instead.map_or(std::ptr::null_mut(), Record::as_ptr);
        // A look first: the heads of rows that are changed all the time lie in their writers' caches.
        head.load(Ordering::Relaxed) == record.as_ptr()
            && head
                // Acquire and release: what `instead` holds goes with it, as when it is linked.
                .compare_exchange(record.as_ptr(), instead, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// The record that all heads of the array are, if there is one, and it is of rows whose coming has been committed.
    fn one_head<'g>(&self, guard: &'g Guard) -> Option<Record<'g>> {
        let heads = self.heads.some(0, self.layout.slots)?;
        let record = Record::load(&heads[0], guard)?;
        let is_it = |head: &AtomicPtr<UndoHeader>| head.load(Ordering::Acquire) == record.as_ptr();
        let is_of_all = heads.iter().all(is_it)
            && record.is_insert()
            && !record.undone()
            && record.stamp().time().is_some();
        is_of_all.then_some(record)
    }

    /// Whether [`Block::share_heads`] is worth while.
    pub fn may_share_heads(&self, guard: &Guard) -> bool {
        self.one_head(guard).is_some()
    }

    /// Gives up the array of a full cooling block, if all heads are one record. The caller has waited as for
    /// [`Block::freeze`], and nobody collects meanwhile.
    pub fn share_heads(&self, guard: &Guard) {
        let _turn = self.life.turn();
        if self.life.state() != BlockState::Cooling
            || !self.life.step(BlockState::Cooling, BlockEvent::VersionsGone)
        {
            return;
        }
        // From here on who wants to write waits for the turn.
        if let Some(record) = self.one_head(guard)
            && self.rows_present() == self.layout.slots
        {
            // First: who finds no array looks there.
            self.heads.common.store(record.as_ptr(), Ordering::Release);
            self.heads.each.take_off(guard);
        }
        let hot = self.life.step(BlockState::Freezing, BlockEvent::Write);
        assert!(hot, "whoever wants a block that is being frozen waits for his turn");
    }

    /// Asks the processor to fetch the chain head of a row.
    #[inline]
    pub fn prefetch_head(&self, slot: Slot) {
        if let Some(each) = self.heads.each.get() {
            each.prefetch(slot.index() * HEAD_BYTES);
        }
    }
}
