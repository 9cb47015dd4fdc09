//! The merger: encodes frozen blocks that remain cold, so that they join main, and keeps main dense.
//!
//! It has a thread of its own, since a merge of large dictionaries takes seconds, for which the collector cannot wait.
//! [`Table::compact`] does the work; this module decides when. Rows are moved out of compact blocks that have lost most of
//! their rows in the same way as the freezer moves rows: in small transactions, while no older transaction runs.

use crate::engine::Engine;
use crate::freezer::{MOVED, may_move, move_some};
use crate::times::Times;
use firn_base::sync::unmodelled::OnceLock;
use firn_base::sync::{Arc, Mutex};
use firn_base::thread;
use firn_storage::Table;
use std::time::Duration;

/// The merger's state; see the module.
#[derive(Default)]
pub(crate) struct Merger(Mutex<Option<Times>>);

impl Merger {
    /// Encodes blocks that have been frozen for `compact_after`, or for their table's own interval; returns whether there was
    /// anything to do.
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
            // Where blocks do not become compact, rows should not move either.
            let left = after.is_some_and(|after| leave_sparse_blocks(engine, table, after));
            joined + tended + given_up > 0 || left
        };
        engine.tables().iter().map(work).fold(false, |worked, works| worked | works)
    }
}

/// How many threads a merge may use: half as many as cores, since no client waits for it, up to a limit. They have the same low
/// priority as the merger's own thread.
fn threads() -> usize {
    if cfg!(feature = "models") {
        return 1;
    }
    // Determined once, since it reads files of control groups.
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).clamp(1, 4)))
}

/// Moves rows out of compact blocks that have lost most of their rows; returns whether it moved any.
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
