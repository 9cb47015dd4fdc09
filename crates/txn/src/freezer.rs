//! The freezer: finds out which blocks nobody writes to any more, and has storage freeze them.
//!
//! It goes in rounds. At the beginning of a round every hot block begins to *cool*: whoever writes to one takes
//! that back, so that what still cools at the end of the round has not been written to for as long as that took
//! ([`Config::freeze_after`](crate::Config::freeze_after), or what was said of the table alone). So a transaction does no more for this than to look at
//! the state of the blocks it writes to, which it does anyway.
//!
//! Blocks are frozen a few at a time, so that the collector, which has the same thread, is not kept waiting. At the
//! end of a round rows are moved between the blocks of a table that would be frozen but for their gaps, in small
//! transactions: the fullest are frozen next time, and the emptiest give up their memory. As long as a transaction
//! runs that began more than a moment ago that does not happen: the old places would have to stay for it, and if it
//! went on to change a row that has moved it would have a conflict with nobody that it knows of.

use crate::catalog::{Catalog, FreezeAfter, TableDef};
use crate::engine::Engine;
use crate::transaction::Isolation;
use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering, Weak};
use firn_base::{BlockNumber, Result, TableId, clock};
use firn_storage::{Frozen, Move, Table, pin};
use std::collections::HashMap;
use std::time::Duration;
use std::vec::IntoIter;

const MODELLED: bool = cfg!(feature = "models");

/// Blocks that are looked at, and frozen, at a time; each takes some tenths of a millisecond.
const AT_ONCE: usize = if MODELLED { 1 } else { 16 };

/// Blocks between which rows are moved in a round, and rows: in all, and by one transaction.
const GROUP: usize = if MODELLED { 4 } else { 32 };
const MOVED: usize = if MODELLED { 4 } else { 64 << 10 };
const MOVED_AT_ONCE: usize = if MODELLED { 2 } else { 1024 };

/// See the module.
#[derive(Default)]
pub(crate) struct Freezer(Mutex<State>);

#[derive(Default)]
struct State {
    /// None is for the same time as another.
    rounds: Vec<Round>,
    times: Option<Times>,
}

/// Times after which tables have their blocks frozen that were given one of their own.
struct Times {
    /// What says so.
    catalog: Arc<Catalog>,
    by_table: HashMap<TableId, FreezeAfter>,
    /// Each once.
    all: Vec<Duration>,
}

/// Who began longer ago than this may be in the middle of something, and shall find all rows where they were. What
/// is known of the ages is some milliseconds old.
const A_MOMENT: Duration = if MODELLED { Duration::MAX } else { Duration::from_millis(50) };

/// How far a call of [`Freezer::work`] has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Progress {
    /// There was nothing to do yet.
    Waiting,
    /// A round is over.
    Done,
    /// Something was done, and there is more.
    Working,
}

struct Round {
    /// How long nobody must have written.
    after: Duration,
    begun: clock::Instant,
    cooling: Vec<Cooling>,
    /// Rows of a table that are to be moved.
    moving: Option<(Weak<Table>, IntoIter<Move>)>,
    /// No guard is held any more that was held when the round began.
    quiet: Arc<AtomicBool>,
}

/// A table with blocks that cool, which may be dropped meanwhile.
struct Cooling {
    table: Weak<Table>,
    blocks: Vec<BlockNumber>,
    /// Those of them that have gaps.
    gaps: Vec<BlockNumber>,
    /// Those of them that hold no row.
    empty: Vec<BlockNumber>,
}

impl Freezer {
    /// Goes on with the rounds, each of which ends when it has lasted for as long as nobody must have written, and
    /// begins those that are missing: one of all tables that have no time of their own, and one for each such time.
    pub fn work(&self, engine: &Arc<Engine>, freeze_after: Option<Duration>) -> Progress {
        let State { rounds, times } = &mut *self.0.lock();
        let mut progress = Progress::Waiting;
        rounds.retain_mut(|round| {
            let next = round.work(engine);
            progress = progress.max(next);
            next != Progress::Done
        });
        let catalog = engine.catalog();
        if !times.as_ref().is_some_and(|times| Arc::ptr_eq(&times.catalog, &catalog)) {
            *times = Some(Times::of(catalog));
        }
        let times = times.as_ref().expect("just found");
        for after in freeze_after.iter().chain(&times.all) {
            if rounds.iter().all(|round| round.after != *after) {
                let has_it = |table: &Arc<Table>| match times.by_table.get(&table.id()) {
                    Some(own) => own.duration() == Some(*after),
                    None => freeze_after == Some(*after),
                };
                let tables = engine.tables().into_iter().filter(has_it);
                rounds.push(Round::begin(tables, *after));
            }
        }
        progress
    }
}

impl Times {
    fn of(catalog: Arc<Catalog>) -> Times {
        let own = |table: &Arc<TableDef>| table.settings.freeze_after.map(|own| (table.storage(), own));
        let by_table: HashMap<TableId, FreezeAfter> = catalog.tables.values().filter_map(own).collect();
        let mut all: Vec<Duration> = by_table.values().filter_map(|own| own.duration()).collect();
        all.sort_unstable();
        all.dedup();
        Times { catalog, by_table, all }
    }
}

impl Round {
    fn begin(tables: impl Iterator<Item = Arc<Table>>, after: Duration) -> Round {
        let mut cooling = Vec::new();
        for table in tables {
            let mut blocks = Vec::new();
            table.cool(&mut blocks);
            if !blocks.is_empty() {
                let table = Arc::downgrade(&table);
                cooling.push(Cooling { table, blocks, gaps: Vec::new(), empty: Vec::new() });
            }
        }
        let quiet = Arc::new(AtomicBool::new(false));
        let guard = pin();
        let told = quiet.clone();
        guard.defer(move || told.store(true, Ordering::SeqCst));
        guard.flush();
        Round { after, begun: clock::now(), cooling, moving: None, quiet }
    }

    fn work(&mut self, engine: &Arc<Engine>) -> Progress {
        if self.begun.elapsed() < self.after || !self.quiet.load(Ordering::SeqCst) {
            Progress::Waiting
        } else if self.freeze_some(engine) {
            Progress::Done
        } else {
            Progress::Working
        }
    }

    /// Freezes some blocks, or moves some rows. Whether there is nothing left to do.
    fn freeze_some(&mut self, engine: &Arc<Engine>) -> bool {
        let mut looked_at = 0;
        while looked_at < AT_ONCE
            && self.moving.is_none()
            && let Some(Cooling { table: weak, blocks, gaps, empty }) = self.cooling.last_mut()
        {
            let Some(table) = weak.upgrade() else {
                self.cooling.pop();
                continue;
            };
            let guard = pin();
            looked_at += 1;
            let Some(block) = blocks.pop() else {
                table.give_up_empty(empty, &guard);
                if !gaps.is_empty() {
                    self.moving = Some((weak.clone(), table.plan_moves(gaps, MOVED).into_iter()));
                }
                self.cooling.pop();
                break;
            };
            match table.freeze(block, &guard) {
                Frozen::Empty => empty.push(block),
                Frozen::HasGaps if gaps.len() < GROUP => gaps.push(block),
                Frozen::Yes | Frozen::HasGaps | Frozen::HasVersions | Frozen::Hot => {}
            }
        }
        if looked_at > 0 {
            // The memory of chain heads shall not wait for others to free something.
            pin().flush();
        } else if let Some((table, moves)) = &mut self.moving
            && let Some(table) = table.upgrade()
        {
            let is_young = || engine.running().iter().all(|running| running.age < A_MOMENT);
            // What cannot be moved now is tried again in another round.
            if !is_young() || move_some(engine, &table, moves).is_err() || moves.len() == 0 {
                self.stop_moving();
            }
        } else {
            self.moving = None;
        }
        self.cooling.is_empty() && self.moving.is_none()
    }

    /// Gives the slots back to which no row was moved.
    fn stop_moving(&mut self) {
        if let Some((table, moves)) = self.moving.take()
            && let Some(table) = table.upgrade()
        {
            table.give_back(moves.map(|(_, to)| to));
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.stop_moving();
    }
}

/// Moves some rows. Error: 40001 if somebody else changes one of them, 55P03 if DDL has the table, or 53200.
fn move_some(engine: &Arc<Engine>, table: &Arc<Table>, moves: &mut IntoIter<Move>) -> Result<()> {
    let mut tx = engine.try_begin(Isolation::Snapshot)?;
    // DDL is not waited for: the collector would wait as well.
    tx.try_to_write_to(table)?;
    let guard = pin();
    for next in moves.take(MOVED_AT_ONCE) {
        tx.move_row(table, next, &guard)?;
    }
    drop(guard);
    tx.commit().map(drop)
}
