//! How a scan goes through a block: the protocol, whatever is made of the rows.
//!
//! The versioned positions of a range of 1,024 slots tell in which stretches rows may have versions
//! ([`crate::position`]); everything outside them is taken as it lies, by columns, as fast as memory allows
//! (seed 000 §2.2.6). Afterwards the positions are read again: if there are more meanwhile, what
//! was taken is forgotten, and the range is read again by the stretches' rules. Ranges without versions are
//! taken several at a time. Within a stretch the chain heads of 64 rows tell: rows without one are taken
//! likewise, others one by one through the version chains. Rows that came together, which share the record of that, are
//! taken likewise if the snapshot sees it, and passed over if not: so a table that was loaded a moment ago is read by columns.
//!
//! Changed rows are mostly few and far apart, and what they lead to is in no cache. To wait for it, record by
//! record, would cost as much as a thousand rows without versions. So if the order of the rows does not matter,
//! short stretches are put off until the end of a few blocks, and then waited for all at once.

use crate::block::{Block, RawCell};
use crate::layout::RANGE_SLOTS;
use crate::position::{Position, Versioned};
use crate::version::Record;
use crate::{Guard, Table};
use firn_base::sync::{Arc, Ordering, fence};
use firn_base::{ColumnId, Slot, Snapshot, visible};
use smallvec::SmallVec;
use std::ops::Range;

/// Rows within a stretch that are looked at together.
const STEP: u32 = 64;

/// Rows without versions that are taken together at most: all of it is read again if somebody comes.
const MOST_TOGETHER: u32 = 16 * RANGE_SLOTS;

/// Stretches up to this length are put off. Longer ones are those of rows that came together, and mostly have
/// no heads any more.
const PUT_OFF: usize = STEP as usize;
/// Rows that came together are taken so if they are as many: of fewer it is quicker to look at each.
const LEAST_TOGETHER: u32 = if cfg!(feature = "models") { 2 } else { 32 };
/// Records of a chain that are fetched before it is walked.
const FETCHED: usize = 4;

/// What takes the rows.
pub(crate) trait Sink {
    /// Whether it wants the rows in the order of their slots.
    const IN_ORDER: bool;

    /// Tells what had been taken at some time.
    type Mark;

    fn mark(&self) -> Self::Mark;

    /// Forgets what was taken since.
    fn forget(&mut self, since: Self::Mark);

    /// Takes the rows in slots `from..to` of a block as they lie there. Somebody may be changing them: if so they
    /// will be forgotten.
    fn take(&mut self, block: &Block, from: u32, to: u32);

    /// Takes a row as the snapshot sees it.
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

/// A stretch that was put off.
struct PutOff<'a> {
    block: &'a Block,
    /// Where its range begins.
    start: u32,
    /// What its position told.
    versioned: Versioned,
    /// In slots, cut to what was given out.
    from: u32,
    to: u32,
    /// Which of its rows may be others to the snapshot than they lie there.
    heads: u64,
}

impl<'a> Walk<'a> {
    /// A walk that shows the columns as the snapshot sees them.
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

    /// Goes on in another block of the table.
    pub fn turn_to(&mut self, block: &'a Block) {
        self.block = block;
    }

    /// Gives the sink what the snapshot sees in the slots `start..end`, which begin with a range. If their order
    /// does not matter to it, some rows may be put off until the walk ends.
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
            // Threads of a pool might not defer enough for that to happen by itself.
            self.guard.flush();
        }
    }

    /// Takes the range that begins at `start`, and if it has no versions also those after it that have none:
    /// the processor is quickest with what lies in one piece. Returns where they end.
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

    /// Takes one range.
    fn range<S: Sink>(&mut self, start: u32, end: u32, sink: &mut S) {
        let position = self.block.position(Slot(start));
        let versioned = position.versioned();
        let mark = sink.mark();
        let put_off_before = self.put_off.len();
        let mut found = versioned.is_empty();
        let mut next = start;
        self.prefetch_present(start);
        for stretch in versioned.stretches() {
            // In slots, cut to what was given out.
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
        // Pairs with the release fence in `Block::link`: had a value been taken that was written since, the
        // writer's row would be among those told.
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

    /// Takes the stretches that were put off.
    fn take_put_off(&mut self, sink: &mut impl Sink) {
        if self.put_off.is_empty() {
            return;
        }
        let mut put_off = std::mem::take(&mut self.put_off);
        // Mostly they are of one row.
        put_off.iter().for_each(|stretch| stretch.block.prefetch(Slot(stretch.from), self.columns));
        // One record of every chain after another.
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
            // Asked once a range: of many stretches the last alone may have one.
            let is_first = range_before.replace((block.number, start)) != Some((block.number, start));
            if is_first && heads == 0 && !versioned.stretches().any(has_versions) {
                self.ask_for_reset(self.block.position(Slot(start)), versioned, start);
            }
        }
    }

    /// Sees to it that the next scan need not look for versions here, where there are none any more.
    #[cold]
    fn ask_for_reset(&mut self, position: &Position, versioned: Versioned, start: u32) {
        if let Some(reset) = position.ask(versioned) {
            // A table that is dropped meanwhile shall not be kept for this.
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

    /// Fetches which rows are present of a range as far ahead as it takes to come: two cache lines.
    #[inline]
    fn prefetch_present(&self, start: u32) {
        self.block.prefetch_present((start + 8 * RANGE_SLOTS) as usize);
        self.block.prefetch_present((start + 8 * RANGE_SLOTS + RANGE_SLOTS / 2) as usize);
    }

    /// Takes rows without versions: whatever is present.
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
            // Mostly all are there.
            let from = next;
            while is_full(next) {
                self.prefetch_present(next);
                next += RANGE_SLOTS;
                // Copies like to be long; what reads rows where they lie has the bits at hand one range ahead.
                if !S::IN_ORDER {
                    break;
                }
            }
            if from < next {
                sink.take(self.block, from, next);
                continue;
            }
            // A word of the bitmap at a time; runs of rows within it, or over several full words.
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

    /// Takes rows that may have versions; whether some have.
    fn versioned(&mut self, start: u32, end: u32, sink: &mut impl Sink) -> bool {
        if end - start > STEP
            && let Some(found) = self.clean_by_heads(start, end, sink)
        {
            return found;
        }
        let mut found = false;
        let mut next = start;
        while next < end {
            let to = self.came_together(next, end, sink);
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

    /// Takes rows of which none has versions that are anything to the snapshot, after a look at each one's chain head.
    /// Whether some has versions; `None`, and none is taken, if they are something to it.
    fn clean_by_heads(&mut self, start: u32, end: u32, sink: &mut impl Sink) -> Option<bool> {
        let (differs, found) = self.block.differs(start, end, self.snapshot, self.guard);
        if differs {
            return None;
        }
        let mark = sink.mark();
        self.clean(start, end, sink);
        // Pairs with the release fence in `Block::link`: had a value been taken that was written since, there
        // would be a head, which stays as long as our snapshot needs it.
        fence(Ordering::Acquire);
        let (differs, _) = self.block.differs(start, end, self.snapshot, self.guard);
        if differs {
            sink.forget(mark);
        }
        (!differs).then_some(found)
    }

    /// Takes the rows from `start` on whose only record says that they came together, or passes over them if the snapshot
    /// does not see it. Returns where they end: at `start` if there are none, or if somebody changes them meanwhile.
    fn came_together(&self, start: u32, end: u32, sink: &mut impl Sink) -> u32 {
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
        // As in `clean_by_heads`: had a value been taken that was written since, its row would have another head.
        fence(Ordering::Acquire);
        if self.block.shared_head(start, to, self.guard) == Some((record, to)) {
            return to;
        }
        sink.forget(mark);
        start
    }

    /// Takes at most [`STEP`] rows, of which those in `heads` may be others to the snapshot than they lie there. False,
    /// and none is taken, if more may be meanwhile.
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

    /// Takes rows one by one, as the snapshot sees them.
    fn row_by_row(&mut self, start: u32, end: u32, sink: &mut impl Sink) {
        for slot in (start..end).map(Slot) {
            if self.block.read_raw(slot, self.snapshot, self.columns, &mut self.raw, self.guard) {
                sink.take_row(slot, &self.raw);
            }
        }
    }
}
