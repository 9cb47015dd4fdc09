//! Versioned positions (seed 000 §2.2.6): within which stretch of a range of rows versions may hang, so
//! that scans read all else in place without looking for them.
//!
//! ```text
//! | times that a reset was asked for 31 | asked 1 | first 16 | last + 1 16 |
//! ```
//! Writers only widen the stretch, and mostly find it wide enough: then they write nothing, where a count
//! of the rows would cost every change of a row two atomic additions. A scan that meets a stretch without
//! any version asks for it to be reset:
//!
//! ```text
//! scan: sees no version ── asks ──> … until every guard of that time has gone … ──> finishes
//! ```
//! A writer that began before the scan asked, and may have found the stretch wide enough, has linked its
//! record by then, and finishing sees it; one that began later sees that a reset was asked for, and takes
//! that back. So whoever finishes resets nothing that somebody relies on.
//!
//! Invariant: a row whose chain head is set lies in its range's stretch.

use crate::layout::RANGE_SLOTS;
use firn_base::Slot;
use firn_base::sync::{AtomicU64, Ordering};

const ASKED: u64 = 1 << 32;
const NEXT_RESET: u64 = 1 << 33;
const EDGES: u64 = ASKED - 1;

/// Stretches are widened to multiples of this, so that rows which are inserted or changed one after another do not
/// widen them one after another. What is empty becomes just what was changed: scans pass by a single row.
const STEP: u32 = 64;

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

/// A reset that was asked for.
#[derive(Clone, Copy)]
pub(crate) struct Reset(u64);

impl<W: Word> Position<W> {
    /// Sees to it that the stretch covers `rows` rows from `slot` on, before their records are linked and
    /// under the guard under which they are.
    #[inline]
    pub fn cover(&self, slot: Slot, rows: u32) {
        let first = slot.0 % RANGE_SLOTS;
        let end = first + rows;
        debug_assert!(end <= RANGE_SLOTS);
        let entry = self.0.load(Ordering::Relaxed);
        let (from, to) = edges(entry);
        if entry & ASKED != 0 || first < from || end > to {
            self.widen(first, end);
        }
    }

    #[cold]
    fn widen(&self, first: u32, end: u32) {
        let in_steps = (first / STEP * STEP, end.next_multiple_of(STEP));
        let mut entry = self.0.load(Ordering::Relaxed);
        loop {
            let (from, to) = match edges(entry) {
                (_, 0) => (first, end),
                (from, to) if from <= first && end <= to => (from, to),
                (from, to) => {
                    let (first, end) = in_steps;
                    (from.min(first), to.max(end))
                }
            };
            let widened = entry & !EDGES & !ASKED | u64::from(from) << 16 | u64::from(to);
            match self.0.compare_exchange(entry, widened, Ordering::AcqRel) {
                Ok(_) => return,
                Err(now) => entry = now,
            }
        }
    }

    /// Empties the stretch of a range that nobody writes to.
    pub fn clear(&self) {
        let mut entry = self.0.load(Ordering::Relaxed);
        // As in `finish`; somebody may ask for a reset just now.
        while let Err(now) = self.0.compare_exchange(entry, entry & !EDGES & !ASKED, Ordering::AcqRel) {
            entry = now;
        }
    }

    /// The stretch of the range (relative to its start) outside which no row has versions.
    #[inline]
    pub fn stretch(&self) -> (u32, u32) {
        // Acquire: what a scan copies next is not older than this.
        edges(self.0.load(Ordering::Acquire))
    }

    /// Asks for a stretch without versions to be reset. `None` if it has been asked for already, or is
    /// no longer what the caller saw.
    pub fn ask(&self, stretch: (u32, u32)) -> Option<Reset> {
        let entry = self.0.load(Ordering::Relaxed);
        if entry & ASKED != 0 || edges(entry) != stretch {
            return None;
        }
        let asked = entry.wrapping_add(NEXT_RESET) | ASKED;
        self.0.compare_exchange(entry, asked, Ordering::AcqRel).is_ok().then_some(Reset(asked))
    }

    /// Empties the stretch, unless a writer has come since that was asked for. The caller has waited for
    /// every guard of that time, and has found no version in the stretch since.
    pub fn finish(&self, reset: Reset) {
        // Acquire and release: what comes after an empty stretch comes after the versions before it.
        let _overtaken = self.0.compare_exchange(reset.0, reset.0 & !EDGES & !ASKED, Ordering::AcqRel);
    }
}

#[inline]
fn edges(entry: u64) -> (u32, u32) {
    ((entry >> 16 & 0xffff) as u32, (entry & 0xffff) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool, fence};
    use loom::sync::{Arc, RwLock};

    #[test]
    fn a_stretch_covers_what_was_asked_for_and_only_a_reset_empties_it() {
        let position: Position = Position::default();
        assert_eq!(position.stretch(), (0, 0));
        position.cover(Slot(5 * RANGE_SLOTS + 100), 1);
        assert_eq!(position.stretch(), (100, 101));
        position.cover(Slot(1000), 24);
        assert_eq!(position.stretch(), (100, 1024));
        let reset = position.ask((100, 1024)).unwrap();
        assert!(position.ask((100, 1024)).is_none(), "it has been asked for");
        position.cover(Slot(100), 1);
        position.finish(reset);
        assert_eq!(position.stretch(), (100, 1024), "a writer came first");
        let again = position.ask((100, 1024)).unwrap();
        position.finish(reset);
        assert_eq!(position.stretch(), (100, 1024), "that was not the one asked for");
        position.cover(Slot(95), 1);
        assert_eq!(position.stretch(), (64, 1024));
        position.finish(again);
        assert_eq!(position.stretch(), (64, 1024), "a writer came first");
        let last = position.ask((64, 1024)).unwrap();
        position.finish(last);
        assert_eq!(position.stretch(), (0, 0));
        assert!(position.ask((64, 1024)).is_none(), "it is empty already");
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

    /// A range with two rows, whose stretch covers both of them.
    struct Model {
        position: Position<ModelWord>,
        heads: [AtomicBool; 2],
        cells: [AtomicBool; 2],
        /// Held for reading by whoever is pinned; taken for writing, it has been let go by all.
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
                let stretch = self.position.stretch();
                if stretch == (0, 0) || self.has_versions() { None } else { self.position.ask(stretch) }
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

        /// As a scan does it; whether it takes a row as it lies there that has a version.
        fn reads_what_it_must_not(&self) -> bool {
            let before = self.position.stretch();
            let seen = [0, 1].map(|row: usize| self.cells[row].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let now = self.position.stretch();
            before == (0, 0) && now == (0, 0) && seen.contains(&true)
        }
    }

    fn explore(body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(body);
    }

    #[test]
    #[cfg_attr(miri, ignore = "loom switches stacks")]
    fn a_version_is_never_outside_the_stretch() {
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
            assert_ne!(model.position.stretch(), (0, 0), "the version of row 0 is not covered");
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
            assert_ne!(model.position.stretch(), (0, 0), "the version of row 0 is not covered");
        });
    }
}
