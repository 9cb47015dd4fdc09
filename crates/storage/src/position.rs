//! Versioned positions: which rows of a range may have versions, so that scans read all other rows in place
//! without looking for versions. See Mühlbauer, "On Scalable and Flexible Transaction and Query Processing in
//! Main-Memory Database Systems", TU München 2016, section 2.2.6.
//!
//! ```text
//! | number of reset requests 20 | requested 1 | how many rows 3 | row 10 | row 10 | row 10 | row 10 |
//! | number of reset requests 20 | requested 1 | 7               | 0 8    | a bit per group of rows 32 |
//! ```
//! Up to four rows are listed, in order: mostly few rows of a range are changed, anywhere in it. If there are
//! more, their groups are marked, of which there are 32.
//!
//! Writers only add rows. Mostly the row is in the position already, and they write nothing. A count of the
//! rows would cost every change of a row two atomic additions. A scan that finds that none of these rows has
//! a version requests a reset:
//!
//! ```text
//! scan: sees no version ── requests ──> … until every guard of that time is released … ──> finishes
//! ```
//! A writer that began before the request, and may have found its row there, has linked its record by then,
//! and the finishing scan sees it. A writer that began later sees the request and cancels it. So no reset
//! removes a row that a writer relies on.
//!
//! Invariant: a row whose chain head is set is in its range's position.

use crate::layout::RANGE_SLOTS;
use firn_base::Slot;
use firn_base::sync::{AtomicU64, Ordering};
use std::ops::Range;

const COUNT_SHIFT: u32 = 40;
const ROW_BITS: u32 = 10;
/// The largest number of rows that are listed.
const LISTED: u32 = 4;
/// Rows of a group.
const GROUP: u32 = RANGE_SLOTS / u32::BITS;
/// In the place of their number: the groups of the rows are marked.
const GROUPS: u64 = 7 << COUNT_SHIFT;
const ASKED: u64 = 1 << 43;
const NEXT_RESET: u64 = 1 << 44;
const VERSIONED: u64 = ASKED - 1;

const _: () = assert!(RANGE_SLOTS <= 1 << ROW_BITS && LISTED * ROW_BITS == COUNT_SHIFT);

/// The rows of a range that may have versions, by their number in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Versioned(u64);

impl Versioned {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    fn by_groups(self) -> bool {
        self.0 & GROUPS == GROUPS
    }

    #[inline]
    fn count(self) -> u32 {
        (self.0 >> COUNT_SHIFT) as u32
    }

    #[inline]
    fn listed(self) -> impl Iterator<Item = u32> {
        (0..self.count()).map(move |at| (self.0 >> (at * ROW_BITS)) as u32 & (RANGE_SLOTS - 1))
    }

    /// The groups in which they are.
    #[inline]
    fn groups(self) -> u32 {
        if self.by_groups() {
            self.0 as u32
        } else {
            self.listed().fold(0, |groups, row| groups | 1 << (row / GROUP))
        }
    }

    /// Whether all of these rows are among them.
    #[inline]
    fn has(self, rows: &Range<u32>) -> bool {
        if self.by_groups() {
            groups(rows) & !(self.0 as u32) == 0
        } else {
            self.count() > 0 && rows.len() == 1 && self.listed().any(|listed| listed == rows.start)
        }
    }

    /// The same with these rows added.
    fn with(self, rows: &Range<u32>) -> Versioned {
        if self.has(rows) {
            return self;
        }
        if rows.len() > 1 || self.by_groups() || self.count() == LISTED {
            return Versioned(GROUPS | u64::from(self.groups() | groups(rows)));
        }
        let before = self.listed().take_while(|listed| *listed < rows.start).count() as u32;
        let [low, high] = [0, 1].map(|more| (before + more) * ROW_BITS);
        let list = self.0 & ((1 << COUNT_SHIFT) - 1);
        let beyond = list >> low << high;
        let count = u64::from(self.count() + 1) << COUNT_SHIFT;
        Versioned(count | beyond | u64::from(rows.start) << low | list & ((1 << low) - 1))
    }

    /// The intervals in which they are, in order.
    #[inline]
    pub fn stretches(self) -> Stretches {
        Stretches(self)
    }
}

/// The groups of some rows.
#[inline]
fn groups(rows: &Range<u32>) -> u32 {
    let last = (rows.end - 1) / GROUP;
    (u32::MAX >> (u32::BITS - 1 - last)) & (u32::MAX << (rows.start / GROUP))
}

/// The remaining intervals; see [`Versioned::stretches`].
pub(crate) struct Stretches(Versioned);

impl Iterator for Stretches {
    type Item = Range<u32>;

    #[inline]
    fn next(&mut self) -> Option<Range<u32>> {
        let Stretches(left) = self;
        if left.by_groups() {
            let groups = left.0 as u32;
            if groups == 0 {
                return None;
            }
            let first = groups.trailing_zeros();
            let end = first + (groups >> first).trailing_ones();
            *left = Versioned(GROUPS | u64::from(groups & u32::MAX.checked_shl(end).unwrap_or(0)));
            return Some(first * GROUP..end * GROUP);
        }
        let row = left.listed().next()?;
        let list = left.0 & ((1 << COUNT_SHIFT) - 1);
        *left = Versioned(u64::from(left.count() - 1) << COUNT_SHIFT | list >> ROW_BITS);
        Some(row..row + 1)
    }
}

/// A word that changes by compare-and-swap: an atomic, or a model of one.
pub(crate) trait Word: Default {
    fn load(&self, order: Ordering) -> u64;
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering) -> Result<u64, u64>;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline]
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        AtomicU64::compare_exchange(self, current, new, success, Ordering::Relaxed)
    }
}

/// The versioned positions of one range of [`RANGE_SLOTS`] rows.
#[derive(Default)]
pub(crate) struct Position<W = AtomicU64>(W);

/// A requested reset.
#[derive(Clone, Copy)]
pub(crate) struct Reset(u64);

impl<W: Word> Position<W> {
    /// Adds `rows` rows from `slot` on to the position, before their records are linked and under the same
    /// guard.
    #[inline]
    pub fn cover(&self, slot: Slot, rows: u32) {
        let first = slot.0 % RANGE_SLOTS;
        let rows = first..first + rows;
        debug_assert!(rows.end <= RANGE_SLOTS);
        let entry = self.0.load(Ordering::Relaxed);
        if entry & ASKED != 0 || !Versioned(entry & VERSIONED).has(&rows) {
            self.add(&rows);
        }
    }

    #[cold]
    fn add(&self, rows: &Range<u32>) {
        let mut entry = self.0.load(Ordering::Relaxed);
        loop {
            let Versioned(with) = Versioned(entry & VERSIONED).with(rows);
            match self.0.compare_exchange(entry, entry & !VERSIONED & !ASKED | with, Ordering::AcqRel) {
                Ok(_) => return,
                Err(now) => entry = now,
            }
        }
    }

    /// Notes that no row of the range has versions. There is no writer in it.
    pub fn clear(&self) {
        let mut entry = self.0.load(Ordering::Relaxed);
        // As in `finish`; a scan may request a reset at the same time.
        while let Err(now) = self.0.compare_exchange(entry, entry & !VERSIONED & !ASKED, Ordering::AcqRel) {
            entry = now;
        }
    }

    /// The rows of the range that may have versions; no other row has any.
    #[inline]
    pub fn versioned(&self) -> Versioned {
        // Acquire: what a scan copies next is not older than this.
        Versioned(self.0.load(Ordering::Acquire) & VERSIONED)
    }

    /// Requests a reset of rows without versions. `None` if one is requested already, or if the rows are no
    /// longer what the caller saw.
    pub fn ask(&self, versioned: Versioned) -> Option<Reset> {
        let entry = self.0.load(Ordering::Relaxed);
        if entry & ASKED != 0 || entry & VERSIONED != versioned.0 {
            return None;
        }
        let asked = entry.wrapping_add(NEXT_RESET) | ASKED;
        self.0.compare_exchange(entry, asked, Ordering::AcqRel).is_ok().then_some(Reset(asked))
    }

    /// Resets the rows, unless a writer has cancelled the request. The caller has waited for every guard of
    /// the time of the request, and has found no version in the range since.
    pub fn finish(&self, reset: Reset) {
        // Acquire and release: what comes after an empty position comes after the versions before it.
        let _overtaken = self.0.compare_exchange(reset.0, reset.0 & !VERSIONED & !ASKED, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool, fence};
    use loom::sync::{Arc, RwLock};

    fn stretches(position: &Position) -> Vec<(u32, u32)> {
        position.versioned().stretches().map(|rows| (rows.start, rows.end)).collect()
    }

    #[test]
    fn up_to_four_rows_are_listed_and_more_are_marked_by_groups() {
        let position: Position = Position::default();
        let of_third_range = |row: u32| Slot(3 * RANGE_SLOTS + row);
        let (mut rows, last) = (Vec::new(), RANGE_SLOTS - 1);
        for row in [20, last, 0, 21] {
            position.cover(of_third_range(row), 1);
            position.cover(of_third_range(row), 1);
            rows.push((row, row + 1));
            rows.sort_unstable();
            assert_eq!(stretches(&position), rows);
        }
        position.cover(of_third_range(GROUP), 1);
        let group_of_20 = 20 / GROUP * GROUP;
        let to = if group_of_20 == 0 { 2 * GROUP } else { GROUP };
        assert_eq!(stretches(&position)[0], (0, to));
        assert_eq!(stretches(&position).last(), Some(&(RANGE_SLOTS - GROUP, RANGE_SLOTS)));
        position.cover(of_third_range(0), RANGE_SLOTS);
        assert_eq!(stretches(&position), [(0, RANGE_SLOTS)]);
    }

    #[test]
    fn every_added_row_is_in_the_position() {
        let random = &mut firn_base::random::Random::seeded(1);
        for _ in 0..if cfg!(miri) { 3 } else { 2_000 } {
            let position: Position = Position::default();
            let mut added = vec![false; RANGE_SLOTS as usize];
            for _ in 0..random.uniform(1, 12) {
                let first = random.uniform(0, i64::from(RANGE_SLOTS) - 1) as u32;
                let most = if random.unit() < 0.7 { 1 } else { i64::from(RANGE_SLOTS - first) };
                let rows = random.uniform(1, most) as u32;
                position.cover(Slot(first), rows);
                added[first as usize..(first + rows) as usize].fill(true);
                let found = stretches(&position);
                assert!(found.iter().zip(&found[1..]).all(|(one, next)| one.1 <= next.0), "{found:?}");
                for (row, _) in added.iter().enumerate().filter(|(_, added)| **added) {
                    assert!(
                        found.iter().any(|rows| (rows.0..rows.1).contains(&(row as u32))),
                        "{row} is not in {found:?}"
                    );
                }
                let covered: u32 = found.iter().map(|rows| rows.1 - rows.0).sum();
                let count = added.iter().filter(|added| **added).count() as u32;
                assert!(covered <= GROUP * count, "{found:?} for {count}");
            }
        }
    }

    #[test]
    fn only_a_reset_that_no_writer_overtakes_empties_it() {
        let position: Position = Position::default();
        assert!(position.versioned().is_empty());
        position.cover(Slot(5 * RANGE_SLOTS + 100), 1);
        let first = position.versioned();
        let reset = position.ask(first).unwrap();
        assert!(position.ask(first).is_none(), "it has been requested");
        position.cover(Slot(100), 1);
        position.finish(reset);
        assert_eq!(position.versioned(), first, "a writer was first");
        let again = position.ask(first).unwrap();
        position.finish(reset);
        assert_eq!(position.versioned(), first, "that is not the requested one");
        position.cover(Slot(95), 1);
        let both = position.versioned();
        assert_eq!(stretches(&position), [(95, 96), (100, 101)]);
        assert!(position.ask(first).is_none(), "there are more now");
        position.finish(again);
        assert_eq!(position.versioned(), both, "a writer was first");
        let last = position.ask(both).unwrap();
        position.finish(last);
        assert!(position.versioned().is_empty());
        assert!(position.ask(both).is_none(), "it is empty already");
    }

    #[derive(Default)]
    struct ModelWord(loom::sync::atomic::AtomicU64);

    impl Word for ModelWord {
        fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        fn compare_exchange(&self, current: u64, new: u64, success: Ordering) -> Result<u64, u64> {
            self.0.compare_exchange(current, new, success, Ordering::Relaxed)
        }
    }

    /// A range with two rows, both in its position.
    struct Model {
        position: Position<ModelWord>,
        heads: [AtomicBool; 2],
        cells: [AtomicBool; 2],
        /// Held for reading by pinned threads; once it is taken for writing, all of them have been unpinned.
        pins: RwLock<()>,
    }

    impl Model {
        fn new() -> Model {
            let model = Model {
                position: Position::default(),
                heads: [AtomicBool::new(false), AtomicBool::new(false)],
                cells: [AtomicBool::new(false), AtomicBool::new(false)],
                pins: RwLock::new(()),
            };
            model.position.cover(Slot(0), 2);
            model
        }

        fn write(&self, row: usize) {
            let _pin = self.pins.read().unwrap();
            self.position.cover(Slot(row as u32), 1);
            self.heads[row].store(true, Ordering::Release);
            fence(Ordering::Release);
            self.cells[row].store(true, Ordering::Relaxed);
        }

        fn reset(&self) {
            let asked = {
                let _pin = self.pins.read().unwrap();
                let versioned = self.position.versioned();
                if versioned.is_empty() || self.has_versions() { None } else { self.position.ask(versioned) }
            };
            let Some(asked) = asked else { return };
            drop(self.pins.write().unwrap());
            if !self.has_versions() {
                self.position.finish(asked);
            }
        }

        fn has_versions(&self) -> bool {
            self.heads.iter().any(|head| head.load(Ordering::Acquire))
        }

        /// Reads as a scan does. Returns whether it reads a row in place that has a version.
        fn reads_what_it_must_not(&self) -> bool {
            let before = self.position.versioned();
            let seen = [0, 1].map(|row: usize| self.cells[row].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let now = self.position.versioned();
            before.is_empty() && now.is_empty() && seen.contains(&true)
        }
    }

    fn explore(body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(body);
    }

    #[test]
    #[cfg_attr(miri, ignore = "loom switches stacks")]
    fn a_row_with_a_version_is_always_in_the_position() {
        explore(|| {
            let model = Arc::new(Model::new());
            let writer = {
                let model = model.clone();
                loom::thread::spawn(move || model.write(0))
            };
            let reader = {
                let model = model.clone();
                loom::thread::spawn(move || assert!(!model.reads_what_it_must_not()))
            };
            model.reset();
            writer.join().unwrap();
            reader.join().unwrap();
            assert!(!model.position.versioned().is_empty(), "the version of row 0 is not covered");
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "loom switches stacks")]
    fn a_second_reset_does_not_confirm_the_first() {
        explore(|| {
            let model = Arc::new(Model::new());
            let others = [0, 1].map(|row| {
                let model = model.clone();
                loom::thread::spawn(move || if row == 0 { model.write(0) } else { model.reset() })
            });
            model.reset();
            others.into_iter().for_each(|other| other.join().unwrap());
            assert!(!model.position.versioned().is_empty(), "the version of row 0 is not covered");
        });
    }
}
