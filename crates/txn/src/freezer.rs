//! The freezer: finds out which blocks nobody writes to any more, and has storage freeze them.
//!
//! It goes in rounds. At the beginning of a round every hot block begins to *cool*: whoever writes to one takes
//! that back, so that what still cools at the end of the round has not been written to for as long as that took
//! ([`Config::freeze_after`](crate::Config::freeze_after)). So a transaction does no more for this than to look at
//! the state of the blocks it writes to, which it does anyway.
//!
//! Blocks are frozen a few at a time, so that the collector, which has the same thread, is not kept waiting.

use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use firn_base::{BlockNumber, clock};
use firn_storage::{Frozen, Table, pin};
use std::time::Duration;

/// Blocks that are frozen at a time; each takes some tenths of a millisecond.
const AT_ONCE: usize = if cfg!(feature = "models") { 1 } else { 16 };

/// See the module.
#[derive(Default)]
pub(crate) struct Freezer(Mutex<Option<Round>>);

struct Round {
    begun: clock::Instant,
    cooling: Vec<(Arc<Table>, Vec<BlockNumber>)>,
    /// No guard is held any more that was held when the round began.
    quiet: Arc<AtomicBool>,
}

impl Freezer {
    /// Goes on with the round, or begins one with `tables`, which ends when it has lasted for `freeze_after`. Whether
    /// the round is over.
    pub fn work(&self, tables: impl FnOnce() -> Vec<Arc<Table>>, freeze_after: Duration) -> bool {
        let mut round = self.0.lock();
        let Some(now) = &mut *round else {
            *round = Some(Round::begin(tables()));
            return false;
        };
        if now.begun.elapsed() < freeze_after || !now.quiet.load(Ordering::SeqCst) {
            return false;
        }
        let is_over = now.freeze_some();
        if is_over {
            *round = None;
        }
        is_over
    }
}

impl Round {
    fn begin(tables: Vec<Arc<Table>>) -> Round {
        let mut cooling = Vec::new();
        for table in tables {
            let mut blocks = Vec::new();
            table.cool(&mut blocks);
            if !blocks.is_empty() {
                cooling.push((table, blocks));
            }
        }
        let quiet = Arc::new(AtomicBool::new(false));
        let guard = pin();
        let told = quiet.clone();
        guard.defer(move || told.store(true, Ordering::SeqCst));
        guard.flush();
        Round { begun: clock::now(), cooling, quiet }
    }

    /// Freezes some blocks. Whether none is left.
    fn freeze_some(&mut self) -> bool {
        let guard = pin();
        let mut frozen = 0;
        while frozen < AT_ONCE
            && let Some((table, blocks)) = self.cooling.last_mut()
        {
            match blocks.pop() {
                Some(block) => frozen += usize::from(table.freeze(block, &guard) == Frozen::Yes),
                None => drop(self.cooling.pop()),
            }
        }
        // The memory of chain heads shall not wait for others to free something.
        guard.flush();
        self.cooling.is_empty()
    }
}
