//! The freezer: finds blocks that are not written to any more, and has storage freeze them.
//!
//! It works in rounds. At the beginning of a round every hot block begins to *cool*. A write to a block ends
//! that. So a block that still cools at the end of the round has not been written to for the length of the
//! round. That is [`Config::freeze_after`](crate::Config::freeze_after), or the table's own setting. So all
//! that a transaction does for the freezer is to check the state of the blocks to which it writes, which it
//! does anyway. Compact blocks take part only with their chain heads, which are freed instead.
//!
//! Blocks are frozen a few at a time, so that the collector, which runs on the same thread, does not have to
//! wait. At the end of a round rows are moved between the blocks of a table that are not frozen only because
//! of gaps, in small transactions: the fullest blocks are frozen in the next round, and the memory of the
//! emptiest is freed. Rows are not moved while a transaction runs that began more than a short time ago.
//! Their old slots would have to be kept for it. If it then changed a row that has moved, it would get a
//! conflict with no transaction that it can see.

use crate::engine::Engine;
use crate::isolation::Isolation;
use crate::times::Times;
use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering, Weak};
use firn_base::{BlockNumber, Result, TableId, clock};
use firn_storage::{Frozen, Move, Table, pin};
use smallvec::SmallVec;
use std::time::Duration;
use std::vec::IntoIter;

const MODELLED: bool = cfg!(feature = "models");

/// How many blocks are checked, and frozen, at a time; each takes some tenths of a millisecond.
const AT_ONCE: usize = if MODELLED { 1 } else { 16 };

/// The number of blocks between which rows are moved in a round, and of the rows that are moved, in all and
/// by one transaction.
const GROUP: usize = if MODELLED { 4 } else { 32 };
pub(crate) const MOVED: usize = if MODELLED { 4 } else { 64 << 10 };
const MOVED_AT_ONCE: usize = if MODELLED { 2 } else { 1024 };

/// The rounds of freezing; see the module.
#[derive(Default)]
pub(crate) struct Freezer(Mutex<State>);

#[derive(Default)]
struct State {
    /// No two are for the same interval, and no table is in two: otherwise one would freeze blocks that began to cool in the
    /// other, without having waited for the guards of that time.
    rounds: Vec<Round>,
    times: Option<Times>,
}

/// A transaction that began longer ago than this may hold row ids and must find all rows where they were. Ages are known to some
/// milliseconds, or some more after idle time.
const SHORT_AGE: Duration = if MODELLED { Duration::MAX } else { Duration::from_millis(50) };

/// The progress of a call of [`Freezer::work`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Progress {
    /// There is nothing to do yet.
    Waiting,
    /// A round has ended.
    Done,
    /// Some work was done, and there is more.
    Working,
}

struct Round {
    /// How long the blocks must not have been written to.
    after: Duration,
    begun: clock::Instant,
    cooling: Vec<Cooling>,
    /// Rows of a table that will be moved.
    moving: Option<(Weak<Table>, IntoIter<Move>)>,
    /// Whether all guards have been released that were held when the round began.
    quiet: Arc<AtomicBool>,
}

/// A table with blocks that cool, which may be dropped meanwhile.
struct Cooling {
    id: TableId,
    table: Weak<Table>,
    blocks: Vec<BlockNumber>,
    /// The blocks that have gaps.
    gaps: Vec<BlockNumber>,
    /// The blocks that hold no row.
    empty: Vec<BlockNumber>,
}

impl Freezer {
    /// Continues the rounds, each of which waits for its interval before it freezes blocks, and begins those that are missing: one
    /// for all tables without an interval of their own, and one for each such interval.
    pub fn work(&self, engine: &Arc<Engine>, freeze_after: Option<Duration>) -> Progress {
        let State { rounds, times } = &mut *self.0.lock();
        let catalog = engine.catalog();
        let times = match times {
            Some(times) if times.are_of(&catalog) => times,
            times => times.insert(Times::of(catalog, |settings| settings.freeze_after)),
        };
        let wanted: SmallVec<[Duration; 4]> =
            freeze_after.into_iter().chain(times.own.iter().copied()).collect();
        let mut progress = Progress::Waiting;
        let mut left = AT_ONCE;
        rounds.retain_mut(|round| {
            if !wanted.contains(&round.after) {
                // Another caller may request it.
                return !round.is_over();
            }
            let after = round.after;
            let has_it = |table| times.of_table(table, freeze_after) == Some(after);
            let next = round.work(engine, &has_it, &mut left);
            progress = progress.max(next);
            next != Progress::Done
        });
        let mut tables = None;
        for after in &wanted {
            if rounds.iter().any(|round| round.after == *after) {
                continue;
            }
            let tables: &Vec<Arc<Table>> = tables.get_or_insert_with(|| engine.tables());
            let has_it = |table: &&Arc<Table>| times.of_table(table.id(), freeze_after) == Some(*after);
            let new = Round::begin(tables.iter().filter(has_it), *after);
            rounds.iter_mut().for_each(|round| round.leave_to(&new));
            // At the end: the first round may use up all blocks that are left for a call.
            rounds.push(new);
        }
        progress
    }
}

impl Round {
    fn begin<'t>(tables: impl Iterator<Item = &'t Arc<Table>>, after: Duration) -> Round {
        let mut cooling = Vec::new();
        for table in tables {
            let mut blocks = Vec::new();
            table.cool(&mut blocks);
            if !blocks.is_empty() {
                let (id, table) = (table.id(), Arc::downgrade(table));
                cooling.push(Cooling { id, table, blocks, gaps: Vec::new(), empty: Vec::new() });
            }
        }
        let quiet = Arc::new(AtomicBool::new(false));
        let guard = pin();
        let flag = quiet.clone();
        guard.defer(move || flag.store(true, Ordering::SeqCst));
        guard.flush();
        Round { after, begun: clock::now(), cooling, moving: None, quiet }
    }

    /// Whether there is nothing left to do.
    fn is_over(&self) -> bool {
        self.cooling.is_empty() && self.moving.is_none()
    }

    /// Removes the tables of a round that begins, whose blocks cool from then on.
    fn leave_to(&mut self, new: &Round) {
        let is_in_it = |id: TableId| new.cooling.iter().any(|cooling| cooling.id == id);
        self.cooling.retain(|cooling| !is_in_it(cooling.id));
        if self
            .moving
            .as_ref()
            .is_some_and(|(table, _)| table.upgrade().is_none_or(|table| is_in_it(table.id())))
        {
            self.stop_moving();
        }
    }

    /// Continues if its interval is over, with tables that still `have_it`; checks at most `left` blocks.
    fn work(
        &mut self,
        engine: &Arc<Engine>,
        have_it: &dyn Fn(TableId) -> bool,
        left: &mut usize,
    ) -> Progress {
        if self.begun.elapsed() < self.after || !self.quiet.load(Ordering::SeqCst) {
            return Progress::Waiting;
        }
        self.freeze_some(engine, have_it, left);
        if self.is_over() { Progress::Done } else { Progress::Working }
    }

    /// Freezes some blocks, or moves some rows.
    fn freeze_some(&mut self, engine: &Arc<Engine>, have_it: &dyn Fn(TableId) -> bool, left: &mut usize) {
        let after = self.after;
        let may_move_rows = || may_move(engine, after);
        let mut looked_at = 0;
        while *left > 0
            && self.moving.is_none()
            && let Some(Cooling { id, table: weak, blocks, gaps, empty }) = self.cooling.last_mut()
        {
            let Some(table) = weak.upgrade().filter(|_| have_it(*id)) else {
                self.cooling.pop();
                continue;
            };
            let guard = pin();
            looked_at += 1;
            *left -= 1;
            let Some(block) = blocks.pop() else {
                table.give_up_empty(empty, &guard);
                // If rows cannot be moved now, another round tries again.
                if !gaps.is_empty() && may_move_rows() {
                    self.moving = Some((weak.clone(), table.plan_moves(gaps, MOVED).into_iter()));
                }
                self.cooling.pop();
                break;
            };
            match table.freeze(block, &guard) {
                Frozen::Empty => empty.push(block),
                Frozen::HasGaps if gaps.len() < GROUP => gaps.push(block),
                Frozen::HasVersions if table.may_share_heads(block, &guard) => {
                    if engine.with_collection_paused(|| table.share_heads(block, &guard)) {
                        // It is frozen next, under another guard, so that no thread waits for both steps.
                        blocks.push(block);
                    }
                }
                Frozen::Yes | Frozen::HasGaps | Frozen::HasVersions | Frozen::Hot | Frozen::Compact => {}
            }
        }
        if looked_at > 0 {
            // Frees the memory of chain heads without waiting until other threads free something.
            pin().flush();
        } else if let Some((table, moves)) = &mut self.moving {
            let moved = table.upgrade().is_some_and(|table| {
                may_move_rows() && move_some(engine, &table, moves).is_ok() && moves.len() > 0
            });
            if !moved {
                self.stop_moving();
            }
        }
    }

    /// Gives back the slots to which no row was moved.
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

/// Whether rows may be moved in blocks that are frozen after this interval: only while every running transaction is younger than
/// [`SHORT_AGE`], and than the interval if that is shorter. In a replica rows move only as the log says.
pub(crate) fn may_move(engine: &Engine, after: Duration) -> bool {
    if engine.is_replica() {
        return false;
    }
    let short = if MODELLED { SHORT_AGE } else { SHORT_AGE.min(after) };
    engine.running().iter().all(|running| running.age < short)
}

/// Moves some rows. Errors: 40001 if another transaction changes one of them, 55P03 if DDL has locked the table, 53200.
pub(crate) fn move_some(engine: &Arc<Engine>, table: &Arc<Table>, moves: &mut IntoIter<Move>) -> Result<()> {
    let mut tx = engine.try_begin(Isolation::Snapshot)?;
    // Without waiting for DDL, since the collector would have to wait too.
    tx.try_to_write_to(table)?;
    let guard = pin();
    for next in moves.take(MOVED_AT_ONCE) {
        tx.move_row(table, next, &guard)?;
    }
    drop(guard);
    tx.commit().map(drop)
}
