//! The merger: has frozen blocks that stay cold join main, and keeps main dense.
//!
//! It has a thread to itself, since a merge of large dictionaries takes seconds, for which the collector cannot wait.
//! What it does to the blocks of a table storage knows ([`Table::compact`]); here is said when. Rows leave compact blocks of
//! which most are gone as the freezer moves rows: in small transactions, while nobody is in the middle of something.

use crate::engine::Engine;
use crate::freezer::{MOVED, may_move, move_some};
use crate::times::Times;
use firn_base::sync::unmodelled::OnceLock;
use firn_base::sync::{Arc, Mutex};
use firn_base::thread;
use firn_storage::Table;
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub(crate) struct Merger(Mutex<Option<Times>>);

impl Merger {
    /// Does what there is to do with blocks that have been frozen for so long, or for as long as was said of their
    /// table; whether there was anything.
    pub fn work(&self, engine: &Arc<Engine>, compact_after: Option<Duration>) -> bool {
        let mut times = self.0.lock();
        let catalog = engine.catalog();
        let times = match &mut *times {
            Some(times) if times.are_of(&catalog) => times,
            times => times.insert(Times::of(catalog, |settings| settings.compact_after)),
        };
        let work = |table: &Arc<Table>| {
            let after = times.of_table(table.id(), compact_after);
            let go_on = || !engine.is_closing();
            let joined = after.map_or(0, |after| table.compact(after, threads(), &go_on));
            let tended = table.tend_indexes(&go_on);
            let given_up = table.give_up_left();
            // Where nothing is to become compact, nobody expects rows to move either.
            let left = after.is_some_and(|after| leave_sparse_blocks(engine, table, after));
            joined + tended + given_up > 0 || left
        };
        engine.tables().iter().map(work).fold(false, |worked, works| worked | works)
    }
}

/// How many threads a merge may take: those of half the cores, as it is nobody's business that waits, but not very many. They
/// are as nice as the merger's own.
fn threads() -> usize {
    if cfg!(feature = "models") {
        return 1;
    }
    // Asked once: the answer is looked for in files of control groups.
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).clamp(1, 4)))
}

/// Has rows leave compact blocks of which most are gone; whether some have left.
fn leave_sparse_blocks(engine: &Arc<Engine>, table: &Arc<Table>, after: Duration) -> bool {
    let nobody_minds = || may_move(engine, after);
    if !nobody_minds() {
        return false;
    }
    let mut moves = table.plan_leaving(MOVED).into_iter();
    let mut moved = false;
    while moves.len() > 0 && nobody_minds() && move_some(engine, table, &mut moves).is_ok() {
        moved = true;
    }
    table.give_back(moves.map(|(_, to)| to));
    moved
}
