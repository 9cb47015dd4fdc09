//! The undo buffer: the memory of one transaction's undo records, in segments that never move. And the memory
//! of single records, for the [attic](crate::attic).

use crate::Guard;
use crate::block::{Block, RawCell};
use crate::layout::PART_ALIGN;
use crate::memory::{Piece, Slab, prefetch_to_write};
use crate::row_lock::RowLock;
use crate::version::{self, Change, EntryWriter, Place, Record, UndoHeader};
use firn_base::sync::{Arc, in_model};
use firn_base::{ColumnId, RowId, Slot, Stamp};
use smallvec::SmallVec;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

/// The usual size of a segment. A larger record gets a segment of its own.
const SEGMENT_BYTES: usize = 4096;

/// Usual segments. Those whose reuse a long reader has delayed, up to 256 MiB, are kept by the process: the
/// next long reader will delay reuse again, and to get memory from the system costs more than a transaction.
static SEGMENTS: Slab = Slab::new(SEGMENT_BYTES);
const KEPT_SEGMENTS: usize = 64 << 10;

/// How far ahead of the last record memory is prefetched, in bytes.
const AHEAD: usize = 4 * PART_ALIGN;

thread_local! {
    /// The segment that this thread's last transaction did not fill, which the next one continues. If every
    /// transaction began a segment of its own, a long reader, for which all records are retained, would
    /// retain mostly empty memory.
    static UNFILLED: Cell<Option<(Arc<Segment>, usize)>> = const { Cell::new(None) };
}

thread_local! {
    /// Empty lists of records, to be reused: the collector frees many at once.
    static SPARE: RefCell<Vec<Vec<NonNull<UndoHeader>>>> = const { RefCell::new(Vec::new()) };
}

const SPARE_LISTS: usize = 128;
/// Capacity of a new list: enough for most transactions.
const FIRST_RECORDS: usize = 24;
/// Longer lists are not reused.
const SPARE_RECORDS: usize = 1024;

/// Keeps the memory of a list of records that are not needed any more.
pub(crate) fn reuse(mut records: Vec<NonNull<UndoHeader>>) {
    if (1..=SPARE_RECORDS).contains(&records.capacity()) {
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_LISTS {
                records.clear();
                spare.push(records);
            }
        });
    }
}

/// Memory for records, of one or of several transactions.
///
/// A place in it is written once, by the one transaction for which it was reserved, before the record there
/// is linked. From then on it is read through `Record`, according to its rules.
struct Segment(Piece);

impl Segment {
    fn new(bytes: usize) -> Segment {
        let usual = bytes <= SEGMENT_BYTES;
        Segment(if usual { Piece::of_slab(&SEGMENTS, KEPT_SEGMENTS) } else { Piece::new(bytes) })
    }
}

/// Memory of a transaction's undo records. Dropping it frees the segments. That may happen only when no
/// reader can hold a reference to a record: through `Guard::defer`.
pub(crate) struct UndoMemory(#[expect(dead_code, reason = "held to be dropped")] SmallVec<[Arc<Segment>; 2]>);

/// The records of a running transaction, in the order they were made.
pub(crate) struct UndoBuffer {
    owner: Stamp,
    segments: SmallVec<[Arc<Segment>; 2]>,
    /// Bytes used of the last segment, and how many it has.
    used: usize,
    room: usize,
    /// Bytes of records in the segments before, without those that the last one contained already.
    before: isize,
    /// The start of the last segment; dangling if there is none.
    start: NonNull<u8>,
    records: Vec<NonNull<UndoHeader>>,
}

// SAFETY: the pointers refer to the segments, of which it holds references.
unsafe impl Send for UndoBuffer {}
// SAFETY: sharing gives no access to the segments' content.
unsafe impl Sync for UndoBuffer {}

impl UndoBuffer {
    pub fn new(owner: Stamp) -> UndoBuffer {
        let records = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        UndoBuffer {
            owner,
            segments: SmallVec::new(),
            used: 0,
            room: 0,
            before: 0,
            start: NonNull::dangling(),
            records,
        }
    }

    /// Bytes of the records so far.
    #[inline]
    pub fn bytes(&self) -> usize {
        (self.before + self.used as isize) as usize
    }

    /// The records so far.
    pub fn records(&self) -> &[NonNull<UndoHeader>] {
        &self.records
    }

    /// Adds a record of an insert or a delete.
    #[inline]
    pub fn push_plain(&mut self, block: &Block, slot: Slot, change: Change) -> NonNull<UndoHeader> {
        let at = self.reserve(version::HEADER_LEN);
        // SAFETY: just reserved.
        let record = unsafe { Place { owner: self.owner, block, slot }.write_plain(at, change) };
        self.list(record);
        record
    }

    /// Adds a record of a delete of a row that is put elsewhere.
    pub fn push_move(&mut self, block: &Block, slot: Slot, to: RowId) -> NonNull<UndoHeader> {
        let at = self.reserve(version::MOVE_LEN);
        // SAFETY: just reserved.
        let record = unsafe { Place { owner: self.owner, block, slot }.write_move(at, to) };
        self.list(record);
        record
    }

    /// Adds a record of a lock.
    #[inline]
    pub fn push_lock(&mut self, block: &Block, slot: Slot, lock: RowLock) -> NonNull<UndoHeader> {
        let at = self.reserve(version::HEADER_LEN);
        // SAFETY: just reserved.
        let record = unsafe { Place { owner: self.owner, block, slot }.write_lock(at, lock) };
        self.list(record);
        record
    }

    /// Adds a record of an insert of several consecutive rows.
    pub fn push_insert_many(&mut self, block: &Block, slot: Slot, rows: u32) -> NonNull<UndoHeader> {
        let at = self.reserve(version::INSERT_MANY_LEN);
        // SAFETY: just reserved.
        let record = unsafe { Place { owner: self.owner, block, slot }.write_insert_many(at, rows) };
        self.list(record);
        record
    }

    /// Adds a record of an update; `remember` writes the former values of its `columns` columns.
    #[inline]
    pub fn push_update(
        &mut self,
        block: &Block,
        slot: Slot,
        change: Change,
        columns: usize,
        remember: impl FnOnce(&mut EntryWriter),
    ) -> NonNull<UndoHeader> {
        let most = version::longest_update(columns);
        let at = self.reserve(most);
        let place = Place { owner: self.owner, block, slot };
        // SAFETY: just reserved.
        let (record, bytes) = unsafe { place.write_update(at, change, columns, remember) };
        self.used -= most - bytes;
        self.list(record);
        record
    }

    /// Removes the newest record, which was never linked. Its memory remains used.
    pub fn pop(&mut self) {
        self.records.pop();
    }

    #[inline]
    fn reserve(&mut self, bytes: usize) -> NonNull<u8> {
        debug_assert!(bytes.is_multiple_of(8));
        if self.room - self.used < bytes {
            self.begin_segment(bytes);
        }
        // SAFETY: in bounds by the check above.
        let at = unsafe { self.start.add(self.used) };
        self.used += bytes;
        // The next records' memory: behind a long reader it is not in the cache.
        for line in [AHEAD, AHEAD + PART_ALIGN] {
            prefetch_to_write(self.start.as_ptr().wrapping_add(self.used + line));
        }
        at
    }

    fn list(&mut self, record: NonNull<UndoHeader>) {
        if self.records.capacity() == 0 {
            self.records.reserve(FIRST_RECORDS);
        }
        self.records.push(record);
    }

    /// Begins a segment that has room for a record.
    #[cold]
    fn begin_segment(&mut self, bytes: usize) {
        let unfilled = UNFILLED.take().filter(|(segment, used)| used + bytes <= segment.0.len());
        let (segment, used) = unfilled.unwrap_or_else(|| (Arc::new(Segment::new(bytes)), 0));
        self.before += self.used as isize - used as isize;
        (self.used, self.room, self.start) = (used, segment.0.len(), segment.0.start());
        self.segments.push(segment);
    }

    /// Removes the records from a place on that `goes` selects, the oldest first. Returns them with their
    /// memory, part of which may be shared with the remaining records, and with their number of bytes.
    pub fn take_out(
        &mut self,
        from: usize,
        mut goes: impl FnMut(Record<'_>) -> bool,
    ) -> (Vec<NonNull<UndoHeader>>, UndoMemory, usize) {
        let mut gone = Vec::new();
        let mut bytes = 0;
        let mut tail = self.records.split_off(from);
        tail.retain(|at| {
            // SAFETY: in one of our segments.
            let record: Record<'_> = unsafe { Record::from_raw(*at) };
            let remains = !goes(record);
            if !remains {
                gone.push(*at);
                bytes += record.bytes();
            }
            remains
        });
        self.records.append(&mut tail);
        // No longer counted for this transaction.
        self.before -= bytes as isize;
        let segment_of = |record: Option<&NonNull<UndoHeader>>| {
            self.segments
                .iter()
                .rposition(|segment| record.is_some_and(|record| segment.0.holds(record.cast())))
        };
        let first_gone = segment_of(gone.first()).unwrap_or(self.segments.len());
        let memory = UndoMemory(self.segments[first_gone..].iter().cloned().collect());
        // Of the segments behind the last remaining record, only the current one is kept.
        let kept = segment_of(self.records.last()).map_or(0, |last| last + 1);
        let last = self.segments.len().saturating_sub(1);
        if kept < last {
            self.segments.drain(kept..last);
        }
        (gone, memory, bytes)
    }

    /// The records and their memory, for the collector.
    pub fn into_parts(self) -> (Vec<NonNull<UndoHeader>>, UndoMemory) {
        if let Some(last) = self.segments.last() {
            UNFILLED.set(Some((last.clone(), self.used)));
        }
        (self.records, UndoMemory(self.segments))
    }
}

/// One record in memory of its own. Dropping it frees the memory. That may happen only when no reader can
/// hold a reference to it: through `Guard::defer`.
pub(crate) struct OwnRecord(NonNull<UndoHeader>);

// SAFETY: the memory is owned, and readers of the record get it through a guard.
unsafe impl Send for OwnRecord {}
// SAFETY: sharing gives the same access to the record that other readers have.
unsafe impl Sync for OwnRecord {}

impl OwnRecord {
    /// A record of the insertion of some rows of a block.
    pub fn of_inserts(stamp: Stamp, block: &Block) -> OwnRecord {
        let place = Place { owner: stamp, block, slot: Slot(0) };
        // SAFETY: just allocated, with enough room.
        OwnRecord::new(unsafe { place.write_insert_many(allocate(version::INSERT_MANY_LEN), 0) })
    }

    /// A copy of a record, of an update, a delete or a refill.
    pub fn copy(record: Record<'_>) -> OwnRecord {
        match record.change() {
            Change::Update | Change::Refill => OwnRecord::of_update(record, record.entries()),
            change => {
                let place = Place { owner: record.stamp(), block: record.block(), slot: record.slot() };
                // SAFETY: just allocated, with enough room.
                OwnRecord::new(unsafe { place.write_plain(allocate(version::HEADER_LEN), change) })
            }
        }
    }

    /// A record that undoes what both undo; `older` is right behind `newer`.
    pub fn of_both(newer: Record<'_>, older: Record<'_>) -> OwnRecord {
        let is_new = |entry: &(_, _)| !older.entries().any(|(column, _)| column == entry.0);
        OwnRecord::of_update(newer, older.entries().chain(newer.entries().filter(is_new)))
    }

    /// A record of the same change as `record`, of the same row and at the same time.
    fn of_update(
        record: Record<'_>,
        entries: impl Iterator<Item = (ColumnId, RawCell)> + Clone,
    ) -> OwnRecord {
        let place = Place { owner: record.stamp(), block: record.block(), slot: record.slot() };
        let columns = entries.clone().count();
        let bytes = entries.clone().map(|(_, cell)| version::entry_bytes(cell)).sum::<usize>();
        let at = allocate(version::HEADER_LEN + bytes);
        // SAFETY: just allocated. The record is shorter than the longest one of this many columns, and has
        // exactly the size that was computed from the same entries.
        let (record, written) = unsafe {
            place.write_update(at, record.change(), columns, |writer| {
                entries.for_each(|(column, cell)| writer.put(column, cell))
            })
        };
        assert!(written == version::HEADER_LEN + bytes);
        OwnRecord::new(record)
    }

    fn new(record: NonNull<UndoHeader>) -> OwnRecord {
        // SAFETY: no other thread can reach it yet.
        unsafe { Record::from_raw(record) }.set_kept();
        OwnRecord(record)
    }

    /// The record.
    #[inline]
    pub fn record<'g>(&self, _guard: &'g Guard) -> Record<'g> {
        // SAFETY: its memory is freed through a guard (contract of the type), and not before `_guard` is
        // released.
        unsafe { Record::from_raw(self.0) }
    }
}

impl Drop for OwnRecord {
    fn drop(&mut self) {
        // SAFETY: no reader holds a reference to it any more (contract of the type), and `allocate` returned
        // this many bytes.
        unsafe {
            let bytes = Record::from_raw(self.0).bytes();
            let at = self.0.cast::<u8>();
            if in_model() {
                // This exposes a wrong read.
                at.write_bytes(0xa5, bytes);
            }
            dealloc(at.as_ptr(), layout_of(bytes));
        }
    }
}

fn allocate(bytes: usize) -> NonNull<u8> {
    // SAFETY: records are not empty.
    let at = unsafe { alloc(layout_of(bytes)) };
    NonNull::new(at).unwrap_or_else(|| handle_alloc_error(layout_of(bytes)))
}

fn layout_of(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, align_of::<UndoHeader>())
        .expect("a record is smaller than the address space")
}
