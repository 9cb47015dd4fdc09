//! The freezer: finds out which blocks nobody writes to any more, and has storage freeze them.
//!
//! It goes in rounds. At the beginning of a round every hot block begins to *cool*: whoever writes to one takes
//! that back, so that what still cools at the end of the round has not been written to for as long as that took
//! ([`Config::freeze_after`](crate::Config::freeze_after), or what was said of the table alone). So a transaction does no more for this than to look at
//! the state of the blocks it writes to, which it does anyway. Compact blocks take part with their chain heads alone, which
//! they give up instead.
//!
//! Blocks are frozen a few at a time, so that the collector, which has the same thread, is not kept waiting. At the
//! end of a round rows are moved between the blocks of a table that would be frozen but for their gaps, in small
//! transactions: the fullest are frozen next time, and the emptiest give up their memory. As long as a transaction
//! runs that began more than a moment ago that does not happen: the old places would have to stay for it, and if it
//! went on to change a row that has moved it would have a conflict with nobody that it knows of.

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

/// Blocks that are looked at, and frozen, at a time; each takes some tenths of a millisecond.
const AT_ONCE: usize = if MODELLED { 1 } else { 16 };

/// Blocks between which rows are moved in a round, and rows: in all, and by one transaction.
const GROUP: usize = if MODELLED { 4 } else { 32 };
pub(crate) const MOVED: usize = if MODELLED { 4 } else { 64 << 10 };
const MOVED_AT_ONCE: usize = if MODELLED { 2 } else { 1024 };

/// See the module.
#[derive(Default)]
pub(crate) struct Freezer(Mutex<State>);

#[derive(Default)]
struct State {
    /// None is for the same time as another, and no table is in two: then one would freeze blocks that began to cool
    /// in the other, for whose guards it has not waited.
    rounds: Vec<Round>,
    times: Option<Times>,
}

/// Who began longer ago than this may be in the middle of something, and shall find all rows where they were. Ages
/// are known to some milliseconds, or some more if nothing has been going on.
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
    id: TableId,
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
                // Somebody else may ask for it.
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
            // At the end: whoever comes first may take all that is left of a call.
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
        let told = quiet.clone();
        guard.defer(move || told.store(true, Ordering::SeqCst));
        guard.flush();
        Round { after, begun: clock::now(), cooling, moving: None, quiet }
    }

    /// Whether there is nothing left to do.
    fn is_over(&self) -> bool {
        self.cooling.is_empty() && self.moving.is_none()
    }

    /// Forgets the tables of a round that begins, whose blocks cool from then on.
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

    /// Goes on if it is time, with tables that still `have_it`; looks at `left` blocks at most.
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
        let nobody_minds = || may_move(engine, after);
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
                // What cannot be moved now is tried again in another round.
                if !gaps.is_empty() && nobody_minds() {
                    self.moving = Some((weak.clone(), table.plan_moves(gaps, MOVED).into_iter()));
                }
                self.cooling.pop();
                break;
            };
            match table.freeze(block, &guard) {
                Frozen::Empty => empty.push(block),
                Frozen::HasGaps if gaps.len() < GROUP => gaps.push(block),
                Frozen::HasVersions if table.may_share_heads(block, &guard) => {
                    if engine.while_nobody_collects(|| table.share_heads(block, &guard)) {
                        // It is frozen next; apart, so that nobody waits for both.
                        blocks.push(block);
                    }
                }
                Frozen::Yes | Frozen::HasGaps | Frozen::HasVersions | Frozen::Hot | Frozen::Compact => {}
            }
        }
        if looked_at > 0 {
            // The memory of chain heads shall not wait for others to free something.
            pin().flush();
        } else if let Some((table, moves)) = &mut self.moving {
            let moved = table.upgrade().is_some_and(|table| {
                nobody_minds() && move_some(engine, &table, moves).is_ok() && moves.len() > 0
            });
            if !moved {
                self.stop_moving();
            }
        }
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

/// Whether rows may be moved of blocks that become cold after so long: not while somebody is in the middle of something,
/// and where they become cold within less than a moment, not while somebody has been running for as long.
pub(crate) fn may_move(engine: &Engine, after: Duration) -> bool {
    let moment = if MODELLED { A_MOMENT } else { A_MOMENT.min(after) };
    engine.running().iter().all(|running| running.age < moment)
}

/// Moves some rows. Error: 40001 if somebody else changes one of them, 55P03 if DDL has the table, or 53200.
pub(crate) fn move_some(engine: &Arc<Engine>, table: &Arc<Table>, moves: &mut IntoIter<Move>) -> Result<()> {
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
