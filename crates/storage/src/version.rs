//! Version chains: the row versions that older snapshots must still see.
//!
//! Rows change in place. The chain of a slot holds, newest first, the image *before* each change. A record's
//! stamp determines which snapshots need not apply it. Records are in their transaction's undo buffer
//! ([`crate::undo`]), or in the [attic](crate::attic) if a long reader still needs them. The header is
//! followed by the changed columns:
//!
//! ```text
//! | stamp 8 | older 8 | newer 8 | block 8 | slot 4 | entries 2 | change 1 | flags 1 |   40 bytes
//! | column 2, null 1, wide 1, 0… | word 8 | word 8 if wide |                             per entry
//! ```
//! A record of [`Change::Delete`] has 1 in the place of the number of entries if its transaction has put the
//! row elsewhere; then a word follows with the new row id. A record of [`Change::Lock`] has its [`RowLock`]
//! there. It gives the row to its transaction until that ends or releases the row, as any change does, and
//! does not affect readers.
//!
//! The rows of a replica get the slots that the log names (`table/replay.rs`). There another row may get the slot of a
//! deleted one that some snapshot still sees. The chain then continues: a record of [`Change::Refill`] has all
//! columns of the former row, and the record below it is that row's deletion.
//!
//! `newer` refers to the record that is before this one, so that the collector removes the oldest record of a
//! long chain without walking down to it. Readers follow `older` only.
//!
//! Invariants:
//! - Uncommitted records of a chain have one writer and are before all committed ones.
//! - Stamps never rise from newer to older.
//! - A record that was rolled back remains in its place, with a time stamp of its own, until it is collected.
//!   If it were unlinked at once, a reader that copied the row while it was dirty would find the same chain
//!   head again and use its copy.
//! - `newer` is null or refers to the record whose `older` refers to this one. The writer that links a record
//!   sets it right afterwards, so it may still be null then. It remains null in a record of the attic, whose
//!   cache line the writer avoids, and in a record of several rows.
//! - Everything in a record but `stamp`, `older`, `newer` and `flags` is written before it is linked, and
//!   never again.

use crate::Guard;
use crate::block::{Block, RawCell};
use crate::layout::PART_ALIGN;
use crate::memory::prefetch;
use crate::row_lock::RowLock;
use firn_base::sync::{AtomicPtr, AtomicU8, AtomicU64, Ordering};
use firn_base::{ColumnId, RowId, Slot, Snapshot, Stamp, visible};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The kind of change that a record undoes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Change {
    /// The row was inserted. Always the oldest record of a chain.
    Insert,
    /// This row and the following ones were inserted; one word of payload is their number. In a record of the
    /// attic it is 0: some rows of its block were inserted.
    InsertMany,
    /// Some columns changed; the entries have their former values.
    Update,
    /// The row was deleted; its columns still have their former values.
    Delete,
    /// Nothing changed: the row was locked.
    Lock,
    /// A row was inserted into the slot of a deleted one that some snapshot may still see; the entries have all
    /// columns of that one.
    Refill,
}

/// The header of a record.
#[repr(C)]
pub(crate) struct UndoHeader {
    stamp: AtomicU64,
    older: AtomicPtr<UndoHeader>,
    newer: AtomicPtr<UndoHeader>,
    block: NonNull<Block>,
    slot: u32,
    entries: u16,
    change: Change,
    flags: AtomicU8,
}

/// In `flags`: the change has been undone.
const UNDONE: u8 = 1;
/// In `flags`: it is in no chain. Records of the attic are marked so in the end. Records of rows whose table
/// is private ([`Table::publish`](crate::Table::publish)) are from the beginning.
const OUT: u8 = 2;
/// In `flags`: it is kept in the attic.
const KEPT: u8 = 4;
/// In `flags`: its transaction, which is still running, has released it.
const LET_GO: u8 = 8;

pub(crate) const HEADER_LEN: usize = 40;
const _: () = assert!(HEADER_LEN.is_multiple_of(8) && size_of::<UndoHeader>() == HEADER_LEN);

const ENTRY_NULL: u64 = 1 << 16;
const ENTRY_WIDE: u64 = 1 << 24;

/// The largest number of bytes of a record of this many changed columns.
pub(crate) fn longest_update(columns: usize) -> usize {
    HEADER_LEN + columns * 24
}

/// Bytes of an entry.
pub(crate) fn entry_bytes(cell: RawCell) -> usize {
    if cell.words[1] != 0 { 24 } else { 16 }
}

/// Bytes of a record of [`Change::InsertMany`].
pub(crate) const INSERT_MANY_LEN: usize = HEADER_LEN + 8;

/// Bytes of a record of a row that was put elsewhere.
pub(crate) const MOVE_LEN: usize = HEADER_LEN + 8;

/// A record that can be reached during `'g`: while a guard is held or, for its writer, while the write set
/// lives.
#[derive(Clone, Copy)]
pub(crate) struct Record<'g> {
    at: NonNull<UndoHeader>,
    life: PhantomData<&'g Guard>,
}

impl PartialEq for Record<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<'g> Record<'g> {
    /// The record to which a chain pointer refers.
    #[inline]
    pub fn load(pointer: &AtomicPtr<UndoHeader>, _guard: &'g Guard) -> Option<Record<'g>> {
        // Acquire: pairs with the compare-and-swap that linked it, so that its content is visible.
        NonNull::new(pointer.load(Ordering::Acquire)).map(|at| Record { at, life: PhantomData })
    }

    /// # Safety
    /// `at` was made by one of the `write_` functions below, and its memory outlives `'g`.
    #[inline]
    pub unsafe fn from_raw(at: NonNull<UndoHeader>) -> Record<'g> {
        Record { at, life: PhantomData }
    }

    /// The pointer with which to link it.
    #[inline]
    pub fn as_ptr(self) -> *mut UndoHeader {
        self.at.as_ptr()
    }

    /// Prefetches a record and the images of a few columns.
    #[inline]
    pub fn prefetch_at(at: *const UndoHeader) {
        prefetch(at.cast());
        prefetch(at.wrapping_byte_add(PART_ALIGN).cast());
    }

    /// Prefetches the part that every record has; it may be in two cache lines.
    #[inline]
    pub fn prefetch_header(self) {
        prefetch(self.as_ptr().cast());
        prefetch(self.as_ptr().wrapping_byte_add(HEADER_LEN - 1).cast());
    }

    /// As [`Record::prefetch_at`].
    #[inline]
    pub fn prefetch(self) {
        Record::prefetch_at(self.as_ptr());
    }

    #[inline]
    fn header(&self) -> &'g UndoHeader {
        // SAFETY: reachable for `'g` (type invariant), initialised before it was linked, and only its
        // atomic fields change.
        unsafe { self.at.as_ref() }
    }

    #[inline]
    pub fn stamp(self) -> Stamp {
        // Acquire: a stamp that shows a rollback comes after the row was restored.
        Stamp::from_bits(self.header().stamp.load(Ordering::Acquire))
    }

    /// Release: a reader that sees the stamp sees what the transaction did before.
    #[inline]
    pub fn set_stamp(self, stamp: Stamp) {
        self.header().stamp.store(stamp.to_bits(), Ordering::Release);
    }

    #[inline]
    pub fn older(self, guard: &'g Guard) -> Option<Record<'g>> {
        Record::load(&self.header().older, guard)
    }

    /// Cuts off or replaces the older records. Only the collector does this to a linked record.
    pub fn set_older(self, older: Option<Record<'_>>) {
        let older = older.map_or(std::ptr::null_mut(), Record::as_ptr);
        self.header().older.store(older, Ordering::Release);
    }

    /// The record before this one in the chain of its only row, if it is known. Only the collector calls
    /// this.
    pub fn newer(self, guard: &'g Guard) -> Option<Record<'g>> {
        Record::load(&self.header().newer, guard)
    }

    /// Notes the record that is before this one.
    #[inline]
    pub fn set_newer(self, newer: Option<Record<'_>>) {
        if self.change() != Change::InsertMany {
            let newer = newer.map_or(std::ptr::null_mut(), Record::as_ptr);
            self.header().newer.store(newer, Ordering::Release);
        }
    }

    #[inline]
    pub fn change(self) -> Change {
        self.header().change
    }

    #[inline]
    pub fn slot(self) -> Slot {
        Slot(self.header().slot)
    }

    /// The block of the row.
    #[inline]
    pub fn block(self) -> &'g Block {
        // SAFETY: tables keep their blocks, and a write set (and its digest and retired records) keeps its
        // tables.
        unsafe { self.header().block.as_ref() }
    }

    /// Whether the change has been undone.
    #[inline]
    pub fn undone(self) -> bool {
        self.header().flags.load(Ordering::Acquire) & UNDONE != 0
    }

    pub fn set_undone(self) {
        self.header().flags.fetch_or(UNDONE, Ordering::Release);
    }

    /// Whether it is in no chain. Only its transaction and the collector set and read this.
    pub fn is_out(self) -> bool {
        self.header().flags.load(Ordering::Relaxed) & OUT != 0
    }

    /// Marks it as in no chain. The attic has no records of changes that were undone.
    pub fn set_out(self) {
        debug_assert!(!self.undone());
        self.add_flag(OUT);
    }

    /// Whether it is kept in the attic.
    #[inline]
    pub fn is_kept(self) -> bool {
        self.header().flags.load(Ordering::Relaxed) & KEPT != 0
    }

    /// Marks it as kept in the attic, before it is linked.
    pub fn set_kept(self) {
        self.add_flag(KEPT);
    }

    /// Whether its transaction has [released](crate::WriteSet::let_go) it.
    pub fn is_let_go(self) -> bool {
        self.header().flags.load(Ordering::Relaxed) & LET_GO != 0
    }

    /// Marks it as released, or removes the mark.
    pub fn set_let_go(self, is_let_go: bool) {
        let flags = &self.header().flags;
        // A reader that sees the other flags in this value must see what came before them.
        if is_let_go {
            flags.fetch_or(LET_GO, Ordering::Release);
        } else {
            flags.fetch_and(!LET_GO, Ordering::Release);
        }
    }

    /// The caller is the only writer of the flags.
    fn add_flag(self, flag: u8) {
        let flags = &self.header().flags;
        flags.store(flags.load(Ordering::Relaxed) | flag, Ordering::Relaxed);
    }

    /// Whether rows were inserted.
    #[inline]
    pub fn is_insert(self) -> bool {
        matches!(self.change(), Change::Insert | Change::InsertMany)
    }

    /// Bytes that it takes.
    pub fn bytes(self) -> usize {
        match self.change() {
            Change::Insert | Change::Lock => HEADER_LEN,
            Change::Delete => HEADER_LEN + 8 * usize::from(self.header().entries),
            Change::InsertMany => INSERT_MANY_LEN,
            Change::Update | Change::Refill => {
                HEADER_LEN + self.entries().map(|(_, cell)| entry_bytes(cell)).sum::<usize>()
            }
        }
    }

    /// Whether its transaction has ended, and the change was undone or never was one: then it conflicts with
    /// no transaction.
    #[inline]
    pub fn is_void(self) -> bool {
        (self.undone() || self.change() == Change::Lock) && self.stamp().time().is_some()
    }

    /// Whether a snapshot sees this change, and with it everything below. It does not see the locks of its
    /// own transaction: a locked row may have a newer version than the one that the snapshot sees.
    #[inline]
    pub fn is_seen_by(self, snapshot: Snapshot) -> bool {
        let stamp = self.stamp();
        visible(stamp, snapshot) && (stamp != snapshot.owner || self.change() != Change::Lock)
    }

    /// The lock of a record of [`Change::Lock`].
    pub fn row_lock(self) -> RowLock {
        debug_assert!(self.change() == Change::Lock);
        if self.header().entries == RowLock::Update as u16 { RowLock::Update } else { RowLock::NoKeyUpdate }
    }

    /// Where its transaction has put the row that it deleted here.
    pub fn moved_to(self) -> Option<RowId> {
        let moved = self.change() == Change::Delete && self.header().entries > 0;
        // SAFETY: such a record has one word of payload (`write_move`).
        moved.then(|| RowId::from_bits(unsafe { self.payload().read() }))
    }

    /// The number of inserted rows.
    pub fn inserted_rows(self) -> u32 {
        match self.change() {
            Change::Insert => 1,
            // SAFETY: such a record has one word of payload (`write_insert_many`).
            Change::InsertMany => unsafe { self.payload().read() as u32 },
            Change::Update | Change::Delete | Change::Lock | Change::Refill => 0,
        }
    }

    /// Whether it has former values of columns.
    #[inline]
    pub fn has_entries(self) -> bool {
        matches!(self.change(), Change::Update | Change::Refill)
    }

    #[inline]
    fn payload(self) -> NonNull<u64> {
        // SAFETY: the payload is right behind the header, within the same segment.
        unsafe { self.at.byte_add(HEADER_LEN).cast() }
    }

    /// The changed columns with their former values.
    #[inline]
    pub fn entries(self) -> Entries<'g> {
        let left = if self.has_entries() { self.header().entries } else { 0 };
        Entries { next: self.payload(), left, life: PhantomData }
    }

    /// Whether every column of `self` is also in `other`.
    pub fn covered_by(self, other: Record<'_>) -> bool {
        self.entries().all(|(column, _)| other.entries().any(|(candidate, _)| candidate == column))
    }
}

/// Iterates over the changed columns of a record.
#[derive(Clone)]
pub(crate) struct Entries<'g> {
    next: NonNull<u64>,
    left: u16,
    life: PhantomData<&'g Guard>,
}

impl Iterator for Entries<'_> {
    type Item = (ColumnId, RawCell);

    #[inline]
    fn next(&mut self) -> Option<(ColumnId, RawCell)> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: `left` entries follow, written by `write_update` in this form; the record lives.
        unsafe {
            let head = self.next.read();
            let low = self.next.add(1).read();
            let wide = head & ENTRY_WIDE != 0;
            let high = if wide { self.next.add(2).read() } else { 0 };
            self.next = self.next.add(if wide { 3 } else { 2 });
            let cell = RawCell { null: head & ENTRY_NULL != 0, words: [low, high] };
            Some((ColumnId(head as u16), cell))
        }
    }
}

/// The fields that locate a new record.
pub(crate) struct Place<'a> {
    pub owner: Stamp,
    pub block: &'a Block,
    pub slot: Slot,
}

impl Place<'_> {
    /// # Safety
    /// `at` is aligned to 8 and has room for [`HEADER_LEN`] bytes that are not used otherwise.
    #[inline]
    unsafe fn write_header(&self, at: NonNull<u8>, change: Change, entries: u16) -> NonNull<UndoHeader> {
        let at = at.cast::<UndoHeader>();
        // SAFETY: by the caller.
        unsafe {
            at.write(UndoHeader {
                stamp: AtomicU64::new(self.owner.to_bits()),
                older: AtomicPtr::new(std::ptr::null_mut()),
                newer: AtomicPtr::new(std::ptr::null_mut()),
                block: NonNull::from(self.block),
                slot: self.slot.0,
                entries,
                change,
                flags: AtomicU8::new(0),
            });
        }
        at
    }

    /// Writes a record of [`Change::Insert`] or [`Change::Delete`].
    ///
    /// # Safety
    /// `at` is aligned to 8 and has room for [`HEADER_LEN`] bytes that are not used otherwise.
    #[inline]
    pub unsafe fn write_plain(&self, at: NonNull<u8>, change: Change) -> NonNull<UndoHeader> {
        debug_assert!(matches!(change, Change::Insert | Change::Delete));
        // SAFETY: by the caller.
        unsafe { self.write_header(at, change, 0) }
    }

    /// Writes a record of [`Change::Delete`], of a row that is put elsewhere.
    ///
    /// # Safety
    /// As above, for [`MOVE_LEN`] bytes.
    pub unsafe fn write_move(&self, at: NonNull<u8>, to: RowId) -> NonNull<UndoHeader> {
        // SAFETY: by the caller.
        unsafe {
            at.byte_add(HEADER_LEN).cast::<u64>().write(to.to_bits());
            self.write_header(at, Change::Delete, 1)
        }
    }

    /// Writes a record of [`Change::Lock`].
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub unsafe fn write_lock(&self, at: NonNull<u8>, lock: RowLock) -> NonNull<UndoHeader> {
        // SAFETY: by the caller.
        unsafe { self.write_header(at, Change::Lock, lock as u16) }
    }

    /// Writes a record of [`Change::InsertMany`].
    ///
    /// # Safety
    /// As above, for [`INSERT_MANY_LEN`] bytes.
    pub unsafe fn write_insert_many(&self, at: NonNull<u8>, rows: u32) -> NonNull<UndoHeader> {
        // SAFETY: by the caller.
        unsafe {
            at.byte_add(HEADER_LEN).cast::<u64>().write(u64::from(rows));
            self.write_header(at, Change::InsertMany, 0)
        }
    }

    /// Writes a record of [`Change::Update`] or [`Change::Refill`]; `remember` writes the former values of `columns` columns.
    /// Returns the number of its bytes.
    ///
    /// # Safety
    /// As above, for what `remember` writes, which is at most [`longest_update`] bytes.
    #[inline]
    pub unsafe fn write_update(
        &self,
        at: NonNull<u8>,
        change: Change,
        columns: usize,
        remember: impl FnOnce(&mut EntryWriter),
    ) -> (NonNull<UndoHeader>, usize) {
        debug_assert!(matches!(change, Change::Update | Change::Refill));
        // SAFETY: by the caller.
        unsafe {
            let begin = at.byte_add(HEADER_LEN).cast::<u64>();
            let mut entries = EntryWriter { next: begin, left: columns };
            remember(&mut entries);
            let bytes = HEADER_LEN + entries.next.byte_offset_from_unsigned(begin);
            debug_assert!(entries.left == 0, "a record holds every changed column");
            (self.write_header(at, change, columns as u16), bytes)
        }
    }
}

/// Writes the entries of a record.
pub struct EntryWriter {
    next: NonNull<u64>,
    /// The number of entries for which there is room left.
    left: usize,
}

impl EntryWriter {
    /// Adds the former value of a column.
    #[inline(always)]
    pub fn put(&mut self, column: ColumnId, cell: RawCell) {
        self.left = self.left.checked_sub(1).expect("a record has room for every changed column");
        let wide = cell.words[1] != 0;
        let null = if cell.null { ENTRY_NULL } else { 0 };
        // SAFETY: there is room for the entry (`Place::write_update`).
        unsafe {
            self.next.write(u64::from(column.0) | null | if wide { ENTRY_WIDE } else { 0 });
            self.next.add(1).write(cell.words[0]);
            if wide {
                self.next.add(2).write(cell.words[1]);
            }
            self.next = self.next.add(if wide { 3 } else { 2 });
        }
    }
}

/// Walks a chain from `head` and undoes, in `cells` (the values of `columns`), every change that `snapshot`
/// does not see. Returns whether the row exists for it, given whether it exists now.
#[inline]
pub(crate) fn undo_unseen<'g>(
    head: Option<Record<'g>>,
    snapshot: Snapshot,
    mut present: bool,
    columns: &[ColumnId],
    cells: &mut [RawCell],
    guard: &'g Guard,
) -> bool {
    let mut next = head;
    while let Some(record) = next {
        if record.is_seen_by(snapshot) {
            break;
        }
        match record.change() {
            Change::Insert | Change::InsertMany => return false,
            Change::Delete => present = true,
            Change::Update => restore_columns(record, columns, cells),
            Change::Refill => {
                present = false;
                restore_columns(record, columns, cells);
            }
            Change::Lock => {}
        }
        next = record.older(guard);
    }
    present
}

/// Sets those of `columns` that `record` changed back to their values before it.
#[inline]
pub(crate) fn restore_columns(record: Record<'_>, columns: &[ColumnId], cells: &mut [RawCell]) {
    for (changed, before) in record.entries() {
        for (column, cell) in columns.iter().zip(&mut *cells) {
            if *column == changed {
                *cell = before;
            }
        }
    }
}
