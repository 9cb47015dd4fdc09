//! How a scan reads a block: the protocol, independent of the use of the rows.
//!
//! The versioned positions of a range of 1,024 slots give the intervals in which rows may have versions
//! ([`crate::position`]). Everything outside them is read in place, by columns, as fast as memory allows.
//! Afterwards the positions are read again. If there are more by then, what was read is discarded, and the
//! range is read again by the rules for intervals. Ranges without versions are read several at a time. See
//! Mühlbauer, "On Scalable and Flexible Transaction and Query Processing in Main-Memory Database Systems", TU
//! München 2016, section 2.2.6.
//!
//! Within an interval the chain heads of 64 rows decide: rows without one are read in the same way, others
//! one by one through the version chains. Rows that were inserted together share one record. They are read in
//! the same way if the snapshot sees it, and skipped if not: so a table that was just loaded is read by
//! columns.
//!
//! Changed rows are mostly few and far apart, and what they refer to is in no cache. To wait for it, record
//! by record, would cost as much as a thousand rows without versions. So short intervals are postponed until
//! the end of a few blocks, unless the order of the rows matters. Their memory is then fetched together.

use crate::block::{Block, RawCell};
use crate::layout::RANGE_SLOTS;
use crate::position::{Position, Versioned};
use crate::version::Record;
use crate::{Guard, Table};
use firn_base::sync::{Arc, Ordering, fence};
use firn_base::{ColumnId, Slot, Snapshot, visible};
use smallvec::SmallVec;
use std::ops::Range;

/// Rows within an interval that are examined together.
const STEP: u32 = 64;

/// Most rows without versions that are read together: all of them are read again if a writer comes.
const MOST_TOGETHER: u32 = 16 * RANGE_SLOTS;

/// Intervals up to this length are postponed. Longer ones are of rows that were inserted together, and mostly
/// have no heads any more.
const PUT_OFF: usize = STEP as usize;
/// Rows that were inserted together are read together if they are at least this many: fewer are faster one by
/// one.
const LEAST_TOGETHER: u32 = if cfg!(feature = "models") { 2 } else { 32 };
/// Records of a chain that are fetched before it is walked.
const FETCHED: usize = 4;

/// The receiver of the rows.
pub(crate) trait Sink {
    /// Whether it requires the rows in the order of their slots.
    const IN_ORDER: bool;

    /// A point in the sequence of received rows.
    type Mark;

    fn mark(&self) -> Self::Mark;

    /// Discards the rows received since then.
    fn forget(&mut self, since: Self::Mark);

    /// Receives the rows in slots `from..to` of a block in place. A writer may be changing them: in that case
    /// they are discarded later.
    fn take(&mut self, block: &Block, from: u32, to: u32);

    /// Receives a row as the snapshot sees it.
    fn take_row(&mut self, slot: Slot, cells: &[RawCell]);
}

/// A walk through some blocks, one after another.
pub(crate) struct Walk<'a> {
    table: &'a Arc<Table>,
    block: &'a Block,
    snapshot: Snapshot,
    columns: &'a [ColumnId],
    guard: &'a Guard,
    raw: Vec<RawCell>,
    asked_for_reset: bool,
    put_off: Vec<PutOff<'a>>,
}

/// An interval that was postponed.
struct PutOff<'a> {
    block: &'a Block,
    /// The start of its range.
    start: u32,
    /// The value of the range's position.
    versioned: Versioned,
    /// In slots, limited to those given out.
    from: u32,
    to: u32,
    /// Its rows that the snapshot may see other than as they are in the block.
    heads: u64,
}

impl<'a> Walk<'a> {
    /// A walk that reads the columns as the snapshot sees them.
    pub fn new(
        table: &'a Arc<Table>,
        block: &'a Block,
        snapshot: Snapshot,
        columns: &'a [ColumnId],
        guard: &'a Guard,
    ) -> Walk<'a> {
        Walk {
            table,
            block,
            snapshot,
            columns,
            guard,
            raw: vec![RawCell::default(); columns.len()],
            asked_for_reset: false,
            put_off: Vec::new(),
        }
    }

    /// Continues with another block of the table.
    pub fn turn_to(&mut self, block: &'a Block) {
        self.block = block;
    }

    /// Passes to the sink what the snapshot sees in the slots `start..end`, which begin with a range. If the
    /// sink requires no order, some rows may be postponed until the walk ends.
    pub fn rows(&mut self, start: u32, end: u32, sink: &mut impl Sink) {
        debug_assert!(start.is_multiple_of(RANGE_SLOTS));
        let mut next = start;
        while next < end {
            next = self.ranges(next, end, sink);
        }
    }

    /// Ends the walk.
    pub fn finish(mut self, sink: &mut impl Sink) {
        self.take_put_off(sink);
        if self.asked_for_reset {
            // Threads of a pool might not defer enough for a collection to run.
            self.guard.flush();
        }
    }

    /// Reads the range that begins at `start`, and if it has no versions also those after it that have none:
    /// the processor is fastest with long pieces. Returns where they end.
    fn ranges(&mut self, start: u32, end: u32, sink: &mut impl Sink) -> u32 {
        let end = end.min(start + MOST_TOGETHER);
        let ranges = |to: u32| (start..to).step_by(RANGE_SLOTS as usize);
        let is_clean = |start: &u32| self.block.position(Slot(*start)).versioned().is_empty();
        let clean = ranges(end).take_while(is_clean).count() as u32;
        let to = end.min(start + clean.max(1) * RANGE_SLOTS);
        if clean > 0 {
            let mark = sink.mark();
            self.clean(start, to, sink);
            // As in `range`.
            fence(Ordering::Acquire);
            if ranges(to).all(|start| is_clean(&start)) {
                return to;
            }
            sink.forget(mark);
        }
        for start in ranges(to) {
            self.range(start, to.min(start + RANGE_SLOTS), sink);
        }
        to
    }

    /// Reads one range.
    fn range<S: Sink>(&mut self, start: u32, end: u32, sink: &mut S) {
        let position = self.block.position(Slot(start));
        let versioned = position.versioned();
        let mark = sink.mark();
        let put_off_before = self.put_off.len();
        let mut found = versioned.is_empty();
        let mut next = start;
        self.prefetch_present(start);
        for stretch in versioned.stretches() {
            // In slots, limited to those given out.
            let (from, to) = ((start + stretch.start).min(end), (start + stretch.end).min(end));
            self.clean(next, from, sink);
            if const { !S::IN_ORDER } && stretch.len() <= PUT_OFF {
                self.put_off.push(PutOff { block: self.block, start, versioned, from, to, heads: 0 });
                found = true;
            } else {
                found |= self.versioned(from, to, sink);
            }
            next = to;
        }
        self.clean(next, end, sink);
        // Pairs with the release fence in `Block::link`: if a value had been read that was written since, the
        // position would have the writer's row.
        fence(Ordering::Acquire);
        let now = position.versioned();
        if now != versioned && !now.is_empty() {
            sink.forget(mark);
            self.put_off.truncate(put_off_before);
            self.versioned(start, end, sink);
        } else if !found {
            self.ask_for_reset(position, versioned, start);
        }
    }

    /// Reads the intervals that were postponed.
    fn take_put_off(&mut self, sink: &mut impl Sink) {
        if self.put_off.is_empty() {
            return;
        }
        let mut put_off = std::mem::take(&mut self.put_off);
        // Mostly they have one row.
        put_off.iter().for_each(|stretch| stretch.block.prefetch(Slot(stretch.from), self.columns));
        // The first record of every chain, then the second, and so on.
        let mut chains: SmallVec<[Record<'_>; 32]> = SmallVec::new();
        for stretch in &mut put_off {
            (stretch.heads, _) = stretch.block.differing(stretch.from, stretch.to, self.snapshot, self.guard);
            let mut heads = stretch.heads;
            while heads != 0 {
                let slot = Slot(stretch.from + heads.trailing_zeros());
                chains.extend(stretch.block.newest(slot, self.guard));
                heads &= heads - 1;
            }
        }
        for _ in 1..FETCHED {
            chains.retain(|record| {
                let older = (!record.is_seen_by(self.snapshot)).then(|| record.older(self.guard));
                match older.flatten() {
                    Some(older) => {
                        older.prefetch();
                        *record = older;
                        true
                    }
                    None => false,
                }
            });
        }
        let mut range_before = None;
        for PutOff { block, start, versioned, from, to, heads } in put_off {
            self.block = block;
            if !self.mixed(from, to, heads, sink) {
                self.row_by_row(from, to, sink);
            }
            let has_versions =
                |stretch: Range<u32>| self.block.has_versions(start + stretch.start, start + stretch.end);
            // Checked once for each range: if only the last of many intervals has a version, the check reads
            // all of them.
            let is_first = range_before.replace((block.number, start)) != Some((block.number, start));
            if is_first && heads == 0 && !versioned.stretches().any(has_versions) {
                self.ask_for_reset(self.block.position(Slot(start)), versioned, start);
            }
        }
    }

    /// Requests a reset, so that later scans need not look for versions here, where there are none any more.
    #[cold]
    fn ask_for_reset(&mut self, position: &Position, versioned: Versioned, start: u32) {
        if let Some(reset) = position.ask(versioned) {
            // This must not keep a table that is dropped meanwhile.
            let (table, number) = (Arc::downgrade(self.table), self.block.number);
            self.guard.defer(move || {
                if let Some(table) = table.upgrade() {
                    let block = table.blocks().get(number).expect("tables keep their blocks");
                    block.finish_reset(start, reset);
                }
            });
            self.asked_for_reset = true;
        }
    }

    /// Prefetches the present bits of a range that is far enough ahead: two cache lines.
    #[inline]
    fn prefetch_present(&self, start: u32) {
        self.block.prefetch_present((start + 8 * RANGE_SLOTS) as usize);
        self.block.prefetch_present((start + 8 * RANGE_SLOTS + RANGE_SLOTS / 2) as usize);
    }

    /// Reads rows without versions: all that are present.
    fn clean<S: Sink>(&self, start: u32, end: u32, sink: &mut S) {
        let present = self.block.present_words();
        let is_full = |next: u32| {
            let words = (next / 64) as usize..((next + RANGE_SLOTS) / 64) as usize;
            next.is_multiple_of(64)
                && next + RANGE_SLOTS <= end
                && present[words].iter().fold(u64::MAX, |all, word| all & word.load(Ordering::Relaxed))
                    == u64::MAX
        };
        let mut next = start;
        while next < end {
            // Mostly all are present.
            let from = next;
            while is_full(next) {
                self.prefetch_present(next);
                next += RANGE_SLOTS;
                // Copies are faster if they are long. A sink that reads rows in place needs the bits only one
                // range ahead.
                if !S::IN_ORDER {
                    break;
                }
            }
            if from < next {
                sink.take(self.block, from, next);
                continue;
            }
            // One word of the bitmap at a time; runs of rows within it, or over several full words.
            let mut word = present[next as usize / 64].load(Ordering::Relaxed) >> (next % 64);
            let in_word = (64 - next % 64).min(end - next);
            if in_word < 64 {
                word &= (1 << in_word) - 1;
            }
            if word == 0 {
                next += in_word;
                continue;
            }
            let skip = word.trailing_zeros();
            let run = (word >> skip).trailing_ones();
            let from = next + skip;
            let mut to = from + run;
            if to == next + in_word {
                while end - to >= 64 && present[to as usize / 64].load(Ordering::Relaxed) == u64::MAX {
                    to += 64;
                }
            }
            sink.take(self.block, from, to);
            next = to;
        }
    }

    /// Reads rows that may have versions. Returns whether some have.
    fn versioned(&mut self, start: u32, end: u32, sink: &mut impl Sink) -> bool {
        if end - start > STEP
            && let Some(found) = self.clean_by_heads(start, end, sink)
        {
            return found;
        }
        let mut found = false;
        let mut next = start;
        while next < end {
            let to = self.inserted_together(next, end, sink);
            if to > next {
                found = true;
                next = to;
                continue;
            }
            let to = end.min((next / STEP + 1) * STEP);
            let (heads, some) = self.block.differing(next, to, self.snapshot, self.guard);
            found |= some;
            if !self.mixed(next, to, heads, sink) {
                self.row_by_row(next, to, sink);
            }
            next = to;
        }
        found
    }

    /// Reads rows whose versions do not affect the snapshot, after a check of each chain head. Returns
    /// whether some have versions; `None`, without reading any, if some affect the snapshot.
    fn clean_by_heads(&mut self, start: u32, end: u32, sink: &mut impl Sink) -> Option<bool> {
        let (differs, found) = self.block.differs(start, end, self.snapshot, self.guard);
        if differs {
            return None;
        }
        let mark = sink.mark();
        self.clean(start, end, sink);
        // Pairs with the release fence in `Block::link`: if a value had been read that was written since,
        // there would be a head, which remains as long as our snapshot needs it.
        fence(Ordering::Acquire);
        let (differs, _) = self.block.differs(start, end, self.snapshot, self.guard);
        if differs {
            sink.forget(mark);
        }
        (!differs).then_some(found)
    }

    /// Reads the rows from `start` on whose only record is the shared one of their insertion, or skips them
    /// if the snapshot does not see it. Returns where they end: at `start` if there are none, or if a writer
    /// changes them meanwhile.
    fn inserted_together(&self, start: u32, end: u32, sink: &mut impl Sink) -> u32 {
        let Some((record, to)) = self.block.shared_head(start, end, self.guard) else { return start };
        if to - start < LEAST_TOGETHER {
            return start;
        }
        let stamp = record.stamp();
        if !visible(stamp, self.snapshot) {
            return to;
        }
        if stamp.time().is_none() {
            // Our own transaction may still be writing them.
            return start;
        }
        let mark = sink.mark();
        self.clean(start, to, sink);
        // As in `clean_by_heads`: if a value had been read that was written since, its row would have another
        // head.
        fence(Ordering::Acquire);
        if self.block.shared_head(start, to, self.guard) == Some((record, to)) {
            return to;
        }
        sink.forget(mark);
        start
    }

    /// Reads at most [`STEP`] rows, of which the snapshot may see those in `heads` other than as they are in
    /// the block. Returns false, without reading any, if there may be more meanwhile.
    fn mixed(&mut self, start: u32, end: u32, heads: u64, sink: &mut impl Sink) -> bool {
        let mark = sink.mark();
        let mut next = start;
        while next < end {
            let left = heads >> (next - start);
            let to = end.min(next + left.trailing_zeros());
            self.clean(next, to, sink);
            next = end.min(to + (heads.checked_shr(to - start).unwrap_or(0)).trailing_ones());
            self.row_by_row(to, next, sink);
        }
        // As in `clean_by_heads`.
        fence(Ordering::Acquire);
        let unchanged = self.block.differing(start, end, self.snapshot, self.guard).0 & !heads == 0;
        if !unchanged {
            sink.forget(mark);
        }
        unchanged
    }

    /// Reads rows one by one, as the snapshot sees them.
    fn row_by_row(&mut self, start: u32, end: u32, sink: &mut impl Sink) {
        for slot in (start..end).map(Slot) {
            if self.block.read_raw(slot, self.snapshot, self.columns, &mut self.raw, self.guard) {
                sink.take_row(slot, &self.raw);
            }
        }
    }
}
