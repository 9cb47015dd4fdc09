//! The undo buffer: memory of one transaction's undo records, in segments that never move.

use crate::block::Block;
use crate::version::{self, Change, Place, UndoHeader};
use firn_base::sync::{Arc, Mutex};
use firn_base::{ColumnId, Slot, Stamp};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::NonNull;

/// Size of a usual segment. A record that is larger gets a segment of its own.
const SEGMENT_BYTES: usize = 4096;
const SEGMENT_WORDS: usize = SEGMENT_BYTES / 8;

/// Words of segments to use again, so that short transactions do not allocate.
static POOL: Mutex<Vec<Words>> = Mutex::new(Vec::new());
const POOLED_SEGMENTS: usize = 4096;

thread_local! {
    /// The segment that this thread's last transaction did not fill: the next one goes on there.
    /// Were every transaction to begin a segment of its own, a long reader, for which everybody's
    /// records must be kept, would keep mostly empty memory.
    static UNFILLED: Cell<Option<(Arc<Segment>, usize)>> = const { Cell::new(None) };
}

thread_local! {
    /// Empty lists of records to use again: the collector gives back many at once.
    static SPARE: RefCell<Vec<Vec<NonNull<UndoHeader>>>> = const { RefCell::new(Vec::new()) };
}

const SPARE_LISTS: usize = 128;
/// Lists longer than this are not used again.
const SPARE_RECORDS: usize = 1024;

/// Keeps the memory of a list of records that nobody needs any more.
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

/// A place in a segment is written once, by the one transaction it was reserved for, before the
/// record there is linked; from then on it is read through `Record`, whose rules say when.
struct Words(Box<[UnsafeCell<u64>]>);

// SAFETY: by the rule above no word is ever accessed by two threads without the link between.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

/// Memory for records, of one or of several transactions.
struct Segment(Option<Words>);

impl Segment {
    fn new(bytes: usize) -> Segment {
        let pooled = if bytes <= SEGMENT_BYTES { POOL.lock().pop() } else { None };
        let fresh = || Words((0..bytes.div_ceil(8).max(SEGMENT_WORDS)).map(|_| UnsafeCell::new(0)).collect());
        Segment(Some(pooled.unwrap_or_else(fresh)))
    }

    fn words(&self) -> &[UnsafeCell<u64>] {
        &self.0.as_ref().expect("taken only by drop").0
    }

    fn bytes(&self) -> usize {
        self.words().len() * 8
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let words = self.0.take().expect("dropped once");
        let mut pool = POOL.lock();
        if words.0.len() == SEGMENT_WORDS && pool.len() < POOLED_SEGMENTS {
            pool.push(words);
        }
    }
}

/// Memory that was a transaction's undo records. Dropping it gives the segments up; that may happen
/// only once no reader can still stand on a record: through `Guard::defer`.
pub(crate) struct UndoMemory(#[expect(dead_code, reason = "held to be dropped")] SmallVec<[Arc<Segment>; 2]>);

/// The records of a running transaction, in the order they were made.
pub(crate) struct UndoBuffer {
    owner: Stamp,
    segments: SmallVec<[Arc<Segment>; 2]>,
    /// Bytes used of the last segment, and how many it has.
    used: usize,
    room: usize,
    /// Where the last segment begins; dangling if there is none.
    start: NonNull<u8>,
    records: Vec<NonNull<UndoHeader>>,
}

// SAFETY: the pointers lead into the segments, which it shares in.
unsafe impl Send for UndoBuffer {}
// SAFETY: sharing gives no access to the segments' content.
unsafe impl Sync for UndoBuffer {}

impl UndoBuffer {
    pub fn new(owner: Stamp) -> UndoBuffer {
        let records = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        UndoBuffer { owner, segments: SmallVec::new(), used: 0, room: 0, start: NonNull::dangling(), records }
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
        self.records.push(record);
        record
    }

    /// Adds a record of an insert of several rows that follow each other.
    pub fn push_insert_many(&mut self, block: &Block, slot: Slot, rows: u32) -> NonNull<UndoHeader> {
        let at = self.reserve(version::INSERT_MANY_LEN);
        // SAFETY: just reserved.
        let record = unsafe { Place { owner: self.owner, block, slot }.write_insert_many(at, rows) };
        self.records.push(record);
        record
    }

    /// Adds a record of an update, with what the columns are before it.
    #[inline]
    pub fn push_update(&mut self, block: &Block, slot: Slot, columns: &[ColumnId]) -> NonNull<UndoHeader> {
        let most = version::longest_update(columns.len());
        let at = self.reserve(most);
        // SAFETY: just reserved.
        let (record, bytes) = unsafe { Place { owner: self.owner, block, slot }.write_update(at, columns) };
        self.used -= most - bytes;
        self.records.push(record);
        record
    }

    /// Takes back the newest record, which was never linked. Its memory stays used.
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
        at
    }

    /// Goes on in a segment that has room for a record.
    #[cold]
    fn begin_segment(&mut self, bytes: usize) {
        let unfilled = UNFILLED.take().filter(|(segment, used)| used + bytes <= segment.bytes());
        let (segment, used) = unfilled.unwrap_or_else(|| (Arc::new(Segment::new(bytes)), 0));
        (self.used, self.room) = (used, segment.bytes());
        // The pointer may reach the whole segment: it is derived from the slice, not from one word.
        let start = segment.words().as_ptr().cast_mut().cast::<u8>();
        self.start = NonNull::new(start).expect("boxes are not null");
        self.segments.push(segment);
    }

    /// The records and the memory they lie in, for the collector.
    pub fn into_parts(self) -> (Vec<NonNull<UndoHeader>>, UndoMemory) {
        if let Some(last) = self.segments.last() {
            UNFILLED.set(Some((last.clone(), self.used)));
        }
        (self.records, UndoMemory(self.segments))
    }
}
