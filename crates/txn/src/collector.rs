//! The garbage collector: takes the write sets of ended transactions in the order of their times
//! and has storage unlink what no snapshot needs.
//!
//! Committers run it every few commits, while what they wrote is still in their cache, and each time
//! for a few write sets only, so that none pays for all that a long query has held back; a background
//! tick does what they leave, and runs when nobody commits. It does all at once, for which rows that have changed
//! thousands of times are looked through once: so committers that meet one leave the rest to it. A reader that runs long holds back the
//! horizon; then the tick moves what is still needed to the [attic](Attic), and the rest goes.
//!
//! Invariant: whatever the attic was given ended before all that is listed here.

use crate::active::ActiveSet;
use firn_base::Time;
use firn_base::sync::{Apart, Arc, AtomicU64, Mutex, Ordering, ShortMutex};
use firn_storage::{Attic, Digest, Digests, Garbage, Guard, MemoryBudget, Recent, Retired, pin};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// In a model a few commits are many.
const MODELLED: bool = cfg!(feature = "models");

/// Commits after which a committer collects: few enough that what they touched, and the memory of their
/// undo records, which is then used again, has not left the core's cache.
const COLLECT_EVERY: usize = if MODELLED { 2 } else { 16 };

/// Write sets that a committer collects at most: more than come, so that committers alone keep up.
const COLLECT_INLINE: usize = 2 * COLLECT_EVERY;

/// Versions of rows that a committer has looked at when it leaves the rest to the next tick: long chains are looked through anew for each guard.
const LEFT_TO_TICK: usize = if MODELLED { 4 } else { 4096 };

/// Write sets that a long reader may hold back before they are moved to the attic, some tens of megabytes:
/// most queries end before that, and what is moved must be collected all the same. Once something is there
/// fewer are waited for, so that their records are still in some cache.
const MOVE_ABOVE: Amount = if MODELLED { ONE } else { Amount { write_sets: 32 << 10, bytes: 64 << 20 } };
const MOVE_MORE_ABOVE: Amount = if MODELLED { ONE } else { Amount { write_sets: 4 << 10, bytes: 16 << 20 } };
/// The newer ones that are left alone then: short readers are among them.
const SPARES: Amount = if MODELLED { ONE } else { Amount { write_sets: 1 << 10, bytes: 4 << 20 } };

/// How much waits.
#[derive(Clone, Copy, Default)]
struct Amount {
    write_sets: usize,
    bytes: usize,
}

const ONE: Amount = Amount { write_sets: 1, bytes: usize::MAX };

impl Amount {
    fn exceeds(self, other: Amount) -> bool {
        self.write_sets > other.write_sets || self.bytes > other.bytes
    }
}

/// Records of the attic that are collected under one guard.
const COLLECT_FROM_ATTIC: usize = if MODELLED { 2 } else { 1024 };

/// Records, and write sets, that are moved to the attic under one guard: of a row that has changed over and over the whole chain is
/// looked through once for each guard.
const MOVED_RECORDS: usize = if MODELLED { 2 } else { 16 << 10 };
const MOVED_AT_ONCE: usize = if MODELLED { 2 } else { 16 * COLLECT_INLINE };

/// So many times as many are settled in a turn.
const SETTLE_AT_ONCE: usize = 32;

/// Of the newest write sets so many are left alone while they may yet be lost, for those who only read and want
/// to know what of it may be ([`Collector::holds_since`]).
const SPARED: usize = if MODELLED { 1 } else { 64 };

/// Records that are looked through for them while committers wait.
const LOOKED_THROUGH: usize = 1024;

/// Write sets that are given to a validator at a time.
const VALIDATED_AT_ONCE: usize = if MODELLED { 1 } else { 256 };

/// Of the newest ends so many are shown to validators without a lock: some milliseconds of them.
const SHOWN: usize = if MODELLED || cfg!(miri) { 2 } else { 2048 };

/// What has ended and waits to be collected.
pub(crate) struct Collector {
    /// What validators look through first.
    recent: Recent,
    ended: ShortMutex<Ended>,
    /// When a committer last began to collect.
    collected_at: Apart<AtomicU64>,
    /// What the collector has to itself; there is one at a time.
    turn: Mutex<Turn>,
    /// No guard is held any more that was held when this was the newest time.
    quiet: Arc<AtomicU64>,
}

#[derive(Default)]
struct Turn {
    attic: Attic,
    /// What `quiet` will be next.
    asked: u64,
    /// A committer has met long chains since the last tick.
    is_for_tick: bool,
}

/// Ended write sets in the order of their times. Those that ended after some transaction began stay here or in
/// the attic as long as it runs, so that it can validate what it read.
#[derive(Default)]
struct Ended {
    retired: VecDeque<Retired>,
    /// Bytes of their undo records.
    bytes: usize,
    /// When the newest ended that the attic was given.
    moved_until: u64,
    /// When the newest ended that is no longer here.
    gone_until: u64,
}

/// A few of them, which the collector works on without the lock.
type Few = SmallVec<[Retired; COLLECT_INLINE]>;

impl Default for Collector {
    fn default() -> Collector {
        Collector {
            recent: Recent::new(SHOWN),
            ended: ShortMutex::default(),
            collected_at: Apart::default(),
            turn: Mutex::default(),
            quiet: Arc::default(),
        }
    }
}

impl Collector {
    /// Takes a write set. Called inside the commit section, so that times ascend, before its time is published.
    pub fn retire(&self, retired: Retired) {
        self.recent.publish(&retired);
        let mut ended = self.ended.lock();
        ended.bytes += retired.bytes;
        ended.retired.push_back(retired);
    }

    /// Whether it is worth collecting now.
    #[inline]
    pub fn is_due(&self, last: &AtomicU64) -> bool {
        let since = self.collected_at.load(Ordering::Relaxed);
        last.load(Ordering::Relaxed).saturating_sub(since) >= COLLECT_EVERY as u64
    }

    /// Write sets that wait, and records in the attic.
    pub fn backlog(&self) -> usize {
        // Not those that somebody is collecting just now.
        let turn = self.turn.lock();
        self.ended.lock().retired.len() + turn.attic.kept().0
    }

    /// What has ended first after `since` and up to `until`, which is published: as many as are looked through
    /// at once, and until when that is all. `None` if some are in the [attic](Collector::look_in_attic). The caller is
    /// counted as running since `since` or before.
    pub fn ended_between<'g>(
        &self,
        since: Time,
        until: Time,
        guard: &'g Guard,
    ) -> Option<(Digests<'g>, Time)> {
        let (found, found_until) = self.recent.between(since, until, VALIDATED_AT_ONCE, guard);
        if found_until > since {
            return Some((found, found_until));
        }
        let ended = self.ended.lock();
        if ended.moved_until > since.0 {
            return None;
        }
        let first = ended.retired.partition_point(|retired| retired.time <= since);
        let found = ended.retired.range(first..).take_while(|retired| retired.time <= until);
        let found: Digests<'_> = found.take(VALIDATED_AT_ONCE).map(|retired| retired.digest(guard)).collect();
        // Not every time is a write set's.
        let found_until = found.last().map_or(until, |last| last.time());
        Some((found, found_until))
    }

    /// Whether something holds of all that has ended after `since` and up to `until`. False as well if some
    /// of that is gone, or it is too much to look at while committers wait.
    pub fn holds_since(&self, since: Time, until: Time, holds: impl Fn(&Digest) -> bool) -> bool {
        let guard = &pin();
        let ended = self.ended.lock();
        let first = ended.retired.partition_point(|retired| retired.time <= since);
        // The newest are moved only if they are large.
        const { assert!(SPARED <= SPARES.write_sets) };
        let newer = ended.retired.range(first..).take_while(|retired| retired.time <= until);
        ended.gone_until <= since.0
            && ended.retired.len() - first <= SPARED
            && newer.clone().map(|retired| retired.record_count()).sum::<usize>() <= LOOKED_THROUGH
            && newer.into_iter().all(|retired| holds(retired.digest(guard)))
    }

    /// Does something while nobody collects.
    pub fn while_nobody_collects<T>(&self, body: impl FnOnce() -> T) -> T {
        let _turn = self.turn.lock();
        body()
    }

    /// Calls `look` with the attic, which stays as it is meanwhile, and with the time until which what ended
    /// is in it.
    pub fn look_in_attic<T>(&self, look: impl FnOnce(&Attic, Time) -> T) -> T {
        let turn = self.turn.lock();
        look(&turn.attic, turn.attic.until())
    }

    /// Collects what no snapshot needs, and moves what only old ones need. What ended up to `safe` is on disk.
    pub fn collect(&self, active: &ActiveSet, last: &AtomicU64, safe: Time, memory: &MemoryBudget) {
        let mut turn = self.turn.lock();
        self.collected_at.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
        // The same for both: what is listed is newer than what is in the attic, and collected after it.
        let horizon = horizon(active, last, safe);
        turn.collect(horizon, memory);
        self.collect_some(usize::MAX, horizon, memory);
        turn.is_for_tick = false;
        let most = if turn.attic.is_empty() { MOVE_ABOVE } else { MOVE_MORE_ABOVE };
        let moves = self.ended.lock().amount().exceeds(most);
        if (moves || !turn.attic.is_empty())
            && let Some((times, now)) = active.snapshot_times(last)
            // Otherwise somebody may come to read between what is there.
            && turn.attic.until() <= now
        {
            turn.settle(&times, memory);
            if moves {
                self.move_to_attic(&mut turn, &times, now, memory);
            }
        }
        if moves {
            self.ask_for_quiet(&mut turn, last);
        }
    }

    /// A committer's part of the collection, unless another thread is at it.
    pub fn collect_inline(&self, active: &ActiveSet, last: &AtomicU64, safe: Time, memory: &MemoryBudget) {
        if let Some(mut turn) = self.turn.try_lock() {
            self.collected_at.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
            if turn.attic.is_empty() && !turn.is_for_tick {
                let looked_at = self.collect_some(COLLECT_INLINE, horizon(active, last, safe), memory);
                turn.is_for_tick = looked_at > LEFT_TO_TICK;
            }
        }
    }

    /// Collects the oldest, at most so many, in the collector's turn. How many versions of rows were looked at.
    fn collect_some(&self, most: usize, horizon: Time, memory: &MemoryBudget) -> usize {
        let guard = pin();
        let mut garbage = Garbage::default();
        let mut left = most;
        let (mut records, mut bytes) = (0, 0);
        loop {
            // A few at a time: committers wait for the lock.
            let mut dead = Few::new();
            {
                let mut ended = self.ended.lock();
                while dead.len() < COLLECT_INLINE.min(left)
                    && let Some(retired) = ended.pop_until(horizon)
                {
                    self.recent.withdraw(&retired);
                    dead.push(retired);
                }
            }
            if dead.is_empty() {
                break;
            }
            left -= dead.len();
            let mut next = dead.into_iter().peekable();
            while let Some(retired) = next.next() {
                next.peek().iter().for_each(|next| next.prefetch());
                records += retired.record_count();
                bytes += retired.bytes;
                retired.collect(&mut garbage, &guard);
            }
        }
        let looked_at = garbage.free(&guard);
        memory.collect(records as i64, bytes as i64);
        // Otherwise the memory comes back hundreds of transactions later.
        guard.flush();
        looked_at
    }

    /// Moves all but the newest to the attic, in the collector's turn. Active snapshots read at `times`, and those
    /// begun since at `now` or later.
    fn move_to_attic(&self, turn: &mut Turn, times: &[Time], now: Time, memory: &MemoryBudget) {
        // Later ones have their turn when it is known who reads then, and when nobody can be in the middle of
        // reading what they changed.
        let until = Time(now.0.min(self.quiet.load(Ordering::SeqCst)));
        let mut is_more = true;
        while is_more {
            let guard = pin();
            let mut garbage = Garbage::default();
            let before = turn.attic.kept();
            let (mut moved, mut records, mut bytes) = (0, 0, 0);
            while is_more && moved < MOVED_AT_ONCE && records < MOVED_RECORDS {
                let few = self.take_until(until);
                is_more = !few.is_empty();
                moved += few.len();
                for (at, retired) in few.iter().enumerate() {
                    few.get(at + 1).iter().for_each(|next| next.prefetch());
                    turn.attic.take_in(retired, times, until, &mut garbage, &guard);
                }
                for retired in few {
                    records += retired.record_count();
                    bytes += retired.bytes;
                    retired.discard(&mut garbage);
                }
            }
            free(garbage, (records, bytes), before, turn.attic.kept(), memory, &guard);
        }
    }

    /// Takes a few that are about to be moved, if there are any that may be.
    fn take_until(&self, until: Time) -> Few {
        let mut ended = self.ended.lock();
        let mut few = Few::new();
        while few.len() < COLLECT_INLINE
            && ended.amount().exceeds(SPARES)
            && let Some(retired) = ended.pop_until(until)
        {
            self.recent.withdraw(&retired);
            few.push(retired);
        }
        // Who validates against them waits from now on until they are there.
        ended.moved_until = few.last().map_or(ended.moved_until, |newest| newest.time.0);
        few
    }

    /// Sees to it that what has ended by now can be moved once no guard is held that is held now.
    fn ask_for_quiet(&self, turn: &mut Turn, last: &AtomicU64) {
        if self.quiet.load(Ordering::SeqCst) < turn.asked {
            return;
        }
        turn.asked = last.load(Ordering::SeqCst);
        let (quiet, asked) = (self.quiet.clone(), turn.asked);
        let guard = pin();
        guard.defer(move || quiet.store(asked, Ordering::SeqCst));
        guard.flush();
    }
}

/// What ended up to then may go: no snapshot needs it, and it is on disk unless that is far behind.
fn horizon(active: &ActiveSet, last: &AtomicU64, safe: Time) -> Time {
    let horizon = active.horizon(last);
    if horizon.0 <= safe.0.saturating_add(SPARED as u64) { horizon.min(safe) } else { horizon }
}

impl Turn {
    /// Collects from the attic.
    fn collect(&mut self, horizon: Time, memory: &MemoryBudget) {
        let mut is_more = !self.attic.is_empty();
        while is_more {
            let guard = pin();
            let mut garbage = Garbage::default();
            let before = self.attic.kept();
            is_more = self.attic.collect(horizon, COLLECT_FROM_ATTIC, &mut garbage, &guard);
            free(garbage, (0, 0), before, self.attic.kept(), memory, &guard);
        }
    }

    /// Makes one of what only snapshots kept apart that have ended, so much of it that whoever validates does
    /// not wait long.
    fn settle(&mut self, times: &[Time], memory: &MemoryBudget) {
        for _ in 0..SETTLE_AT_ONCE {
            let guard = pin();
            let mut garbage = Garbage::default();
            let before = self.attic.kept();
            let is_more = self.attic.settle(times, COLLECT_FROM_ATTIC, &mut garbage, &guard);
            free(garbage, (0, 0), before, self.attic.kept(), memory, &guard);
            if !is_more {
                break;
            }
        }
    }
}

/// Frees garbage, and has so many undo records and bytes counted off, less what the attic keeps more than before.
fn free(
    garbage: Garbage,
    (records, bytes): (usize, usize),
    before: (usize, usize),
    after: (usize, usize),
    memory: &MemoryBudget,
    guard: &Guard,
) {
    garbage.free(guard);
    let gone = |freed: usize, before: usize, after: usize| freed as i64 + before as i64 - after as i64;
    memory.collect(gone(records, before.0, after.0), gone(bytes, before.1, after.1));
    // Otherwise the memory comes back hundreds of transactions later.
    guard.flush();
}

impl Ended {
    fn amount(&self) -> Amount {
        Amount { write_sets: self.retired.len(), bytes: self.bytes }
    }

    /// Takes the oldest, if its time is not after that.
    fn pop_until(&mut self, until: Time) -> Option<Retired> {
        let oldest = self.retired.pop_front_if(|oldest| oldest.time <= until)?;
        self.bytes -= oldest.bytes;
        self.gone_until = oldest.time.0;
        Some(oldest)
    }
}
