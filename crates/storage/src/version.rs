//! Version chains: how a row remembers what older snapshots must still see.
//!
//! Rows change in place; the chain that hangs off a slot holds, newest first, the image *before*
//! each change. A record's stamp says which snapshots need not apply it. Records lie in their
//! transaction's undo buffer ([`crate::undo`]), or in the [attic](crate::attic) if a long reader still needs
//! them; the header is followed by the changed columns:
//!
//! ```text
//! | stamp 8 | older 8 | newer 8 | block 8 | slot 4 | entries 2 | change 1 | flags 1 |   40 bytes
//! | column 2, null 1, wide 1, 0… | word 8 | word 8 if wide |                             per entry
//! ```
//! A record of [`Change::Delete`] has 1 in the place of the number of entries if its transaction has put the row elsewhere;
//! then a word follows that tells where. One of [`Change::Lock`] has its [`RowLock`] there. It says that the row
//! belongs to its transaction until that ends or lets go of it, as any change does, and is nothing to readers.
//!
//! `newer` leads back to the record that stands before, so that the collector takes the oldest record
//! off a long chain without walking down to it. Readers follow `older` only.
//!
//! Invariants:
//! - Uncommitted records of a chain have one writer and stand before all committed ones.
//! - Stamps never rise from newer to older.
//! - A record that was rolled back stays where it is, with a time stamp of its own, until collected:
//!   were it unlinked at once, a reader that copied the row while it was dirty would find the same
//!   chain head again and believe its copy.
//! - `newer` is null or names the record whose `older` names this one. Whoever links a record sets it
//!   right afterwards, so it may still be null then, and stays so in a record of the attic, to which its writer need
//!   not come; in a record of several rows it always is.
//! - Everything in a record but `stamp`, `older`, `newer` and `flags` is written before it is linked,
//!   and never again.

use crate::Guard;
use crate::block::{Block, RawCell};
use crate::layout::PART_ALIGN;
use crate::memory::prefetch;
use crate::row_lock::RowLock;
use firn_base::sync::{AtomicPtr, AtomicU8, AtomicU64, Ordering};
use firn_base::{ColumnId, RowId, Slot, Snapshot, Stamp, visible};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// What a record undoes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Change {
    /// The row came to be. Always the oldest record of a chain.
    Insert,
    /// This row and the following ones came to be; one word of payload tells how many in all. None if it is
    /// the attic's, and some rows of its block came to be.
    InsertMany,
    /// Some columns changed; the entries hold what they were.
    Update,
    /// The row went; its columns still hold what they were.
    Delete,
    /// Nothing changed: the row was locked.
    Lock,
}

/// The head of a record.
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

/// In `flags`: the change has been taken back.
const UNDONE: u8 = 1;
/// In `flags`: it is in no chain. So are records of the attic in the end, and those of rows whose table nobody else knows
/// of ([`Table::publish`](crate::Table::publish)) from the beginning.
const OUT: u8 = 2;
/// In `flags`: it is kept in the attic.
const KEPT: u8 = 4;
/// In `flags`: its transaction, which runs on, has let go of it.
const LET_GO: u8 = 8;

pub(crate) const HEADER_LEN: usize = 40;
const _: () = assert!(HEADER_LEN.is_multiple_of(8) && size_of::<UndoHeader>() == HEADER_LEN);

const ENTRY_NULL: u64 = 1 << 16;
const ENTRY_WIDE: u64 = 1 << 24;

/// Bytes that a record of so many changed columns takes at most.
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

/// A record that can be reached as long as `'g` lasts: while a guard is held or, for its writer,
/// while the write set lives.
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
    /// The record a chain pointer leads to.
    #[inline]
    pub fn load(pointer: &AtomicPtr<UndoHeader>, _guard: &'g Guard) -> Option<Record<'g>> {
        // Acquire: pairs with the compare-and-swap that linked it, so that its content is there.
        NonNull::new(pointer.load(Ordering::Acquire)).map(|at| Record { at, life: PhantomData })
    }

    /// # Safety
    /// `at` was made by one of the `write_` functions below, and its memory outlives `'g`.
    #[inline]
    pub unsafe fn from_raw(at: NonNull<UndoHeader>) -> Record<'g> {
        Record { at, life: PhantomData }
    }

    /// The pointer to link it by.
    #[inline]
    pub fn as_ptr(self) -> *mut UndoHeader {
        self.at.as_ptr()
    }

    /// Asks the processor to fetch a record and the images of a few columns.
    #[inline]
    pub fn prefetch_at(at: *const UndoHeader) {
        prefetch(at.cast());
        prefetch(at.wrapping_byte_add(PART_ALIGN).cast());
    }

    /// Asks the processor to fetch what every record has; it may lie in two lines.
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

    /// Release: whoever sees the stamp sees what the transaction did before.
    #[inline]
    pub fn set_stamp(self, stamp: Stamp) {
        self.header().stamp.store(stamp.to_bits(), Ordering::Release);
    }

    #[inline]
    pub fn older(self, guard: &'g Guard) -> Option<Record<'g>> {
        Record::load(&self.header().older, guard)
    }

    /// Cuts off or replaces what is older. Only the collector does this to a linked record.
    pub fn set_older(self, older: Option<Record<'_>>) {
        let older = older.map_or(std::ptr::null_mut(), Record::as_ptr);
        self.header().older.store(older, Ordering::Release);
    }

    /// The record that stands before this one in the chain of its only row, if that is known. Only
    /// the collector asks.
    pub fn newer(self, guard: &'g Guard) -> Option<Record<'g>> {
        Record::load(&self.header().newer, guard)
    }

    /// Notes the record that stands before this one.
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

    /// The block the row lives in.
    #[inline]
    pub fn block(self) -> &'g Block {
        // SAFETY: tables keep their blocks, and a write set (and what becomes of it) keeps its tables.
        unsafe { self.header().block.as_ref() }
    }

    /// Whether the change has been taken back.
    #[inline]
    pub fn undone(self) -> bool {
        self.header().flags.load(Ordering::Acquire) & UNDONE != 0
    }

    pub fn set_undone(self) {
        self.header().flags.fetch_or(UNDONE, Ordering::Release);
    }

    /// Whether it is in no chain: asked by its transaction and by the collector, who alone say so.
    pub fn is_out(self) -> bool {
        self.header().flags.load(Ordering::Relaxed) & OUT != 0
    }

    /// Notes that. The attic keeps no records of changes that were taken back.
    pub fn set_out(self) {
        debug_assert!(!self.undone());
        self.add_flag(OUT);
    }

    /// Whether it is kept in the attic.
    #[inline]
    pub fn is_kept(self) -> bool {
        self.header().flags.load(Ordering::Relaxed) & KEPT != 0
    }

    /// Notes that, before it is linked.
    pub fn set_kept(self) {
        self.add_flag(KEPT);
    }

    /// Whether its transaction has [let go](crate::WriteSet::let_go) of it.
    pub fn is_let_go(self) -> bool {
        self.header().flags.load(Ordering::Relaxed) & LET_GO != 0
    }

    /// Notes that, or that it has not after all.
    pub fn set_let_go(self, is_let_go: bool) {
        let flags = &self.header().flags;
        // Whoever sees the other flags in this shall see what came before them.
        if is_let_go {
            flags.fetch_or(LET_GO, Ordering::Release);
        } else {
            flags.fetch_and(!LET_GO, Ordering::Release);
        }
    }

    /// The caller is the only one to write to the flags.
    fn add_flag(self, flag: u8) {
        let flags = &self.header().flags;
        flags.store(flags.load(Ordering::Relaxed) | flag, Ordering::Relaxed);
    }

    /// Whether rows came to be.
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
            Change::Update => HEADER_LEN + self.entries().map(|(_, cell)| entry_bytes(cell)).sum::<usize>(),
        }
    }

    /// Whether its transaction has ended, and the change was taken back or never was one: it then
    /// conflicts with nobody.
    #[inline]
    pub fn is_void(self) -> bool {
        (self.undone() || self.change() == Change::Lock) && self.stamp().time().is_some()
    }

    /// Whether a snapshot sees this change, and with it all that lies below. Of its owner's locks it does not: a row may be
    /// locked as it is by now, though the snapshot sees it as it was.
    #[inline]
    pub fn is_seen_by(self, snapshot: Snapshot) -> bool {
        let stamp = self.stamp();
        visible(stamp, snapshot) && (stamp != snapshot.owner || self.change() != Change::Lock)
    }

    /// How firmly a record of [`Change::Lock`] locks its row.
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

    /// How many rows came to be.
    pub fn inserted_rows(self) -> u32 {
        match self.change() {
            Change::Insert => 1,
            // SAFETY: such a record has one word of payload (`write_insert_many`).
            Change::InsertMany => unsafe { self.payload().read() as u32 },
            Change::Update | Change::Delete | Change::Lock => 0,
        }
    }

    #[inline]
    fn payload(self) -> NonNull<u64> {
        // SAFETY: the payload lies right behind the header, within the same segment.
        unsafe { self.at.byte_add(HEADER_LEN).cast() }
    }

    /// The changed columns with what they were before.
    #[inline]
    pub fn entries(self) -> Entries<'g> {
        let left = if self.change() == Change::Update { self.header().entries } else { 0 };
        Entries { next: self.payload(), left, life: PhantomData }
    }

    /// Whether every column of `self` is also in `other`.
    pub fn covered_by(self, other: Record<'_>) -> bool {
        self.entries().all(|(column, _)| other.entries().any(|(candidate, _)| candidate == column))
    }
}

/// Walks the changed columns of a record.
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

/// Where a record is about to go.
pub(crate) struct Place<'a> {
    pub owner: Stamp,
    pub block: &'a Block,
    pub slot: Slot,
}

impl Place<'_> {
    /// # Safety
    /// `at` is aligned to 8 and has room for [`HEADER_LEN`] bytes that nobody else uses.
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
    /// `at` is aligned to 8 and has room for [`HEADER_LEN`] bytes that nobody else uses.
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

    /// Writes a record of [`Change::Update`]; `remember` writes what `columns` columns are before it.
    /// Returns how many bytes it takes.
    ///
    /// # Safety
    /// As above, for what `remember` writes, which is at most [`longest_update`] bytes.
    #[inline]
    pub unsafe fn write_update(
        &self,
        at: NonNull<u8>,
        columns: usize,
        remember: impl FnOnce(&mut EntryWriter),
    ) -> (NonNull<UndoHeader>, usize) {
        // SAFETY: by the caller.
        unsafe {
            let begin = at.byte_add(HEADER_LEN).cast::<u64>();
            let mut entries = EntryWriter { next: begin, left: columns };
            remember(&mut entries);
            let bytes = HEADER_LEN + entries.next.byte_offset_from_unsigned(begin);
            debug_assert!(entries.left == 0, "a record holds every changed column");
            (self.write_header(at, Change::Update, columns as u16), bytes)
        }
    }
}

/// Writes the entries of a record.
pub struct EntryWriter {
    next: NonNull<u64>,
    /// How many more there is room for.
    left: usize,
}

impl EntryWriter {
    /// Adds what a column is.
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

/// Walks a chain from `head` and takes back, in `cells` (the values of `columns`), every change
/// that `snapshot` does not see. Returns whether the row exists for it, given whether it exists now.
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
            Change::Lock => {}
        }
        next = record.older(guard);
    }
    present
}

/// Sets those of `columns` that `record` changed back to what they were before it.
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
