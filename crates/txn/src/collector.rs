//! The garbage collector: takes the write sets of ended transactions in the order of their times
//! and has storage unlink what no snapshot needs.
//!
//! Committers run it every few commits, while their changes are still in their cache. They process only a few
//! write sets each time, so that no committer pays for everything that a long query has held back. A
//! background tick collects the rest, also while no transaction commits. It collects everything at once, so
//! it reads the versions of a row that has changed thousands of times only once: committers that meet such a
//! row leave the rest to it. A long reader holds back the horizon; then the tick moves what is still needed
//! to the [attic](Attic), and frees the rest.
//!
//! Invariant: every write set in the attic ended before all that are listed here.

use crate::active::ActiveSet;
use firn_base::Time;
use firn_base::sync::{Apart, Arc, AtomicU64, Mutex, Ordering, ShortMutex};
use firn_storage::{Attic, Digest, Digests, Garbage, Guard, MemoryBudget, Recent, Retired, pin};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Models run few commits, so their limits are small.
const MODELLED: bool = cfg!(feature = "models");

/// The number of commits after which a committer collects. They are few enough that the rows they touched,
/// and the memory of their undo records, which is then reused, are still in the core's cache.
const COLLECT_EVERY: usize = if MODELLED { 2 } else { 16 };

/// The most write sets that a committer collects: more than are added meanwhile, so that committers alone keep up.
const COLLECT_INLINE: usize = 2 * COLLECT_EVERY;

/// The number of versions of rows after which a committer leaves the rest to the next tick: long chains are
/// read again for each guard.
const LEFT_TO_TICK: usize = if MODELLED { 4 } else { 4096 };

/// How much a long reader may hold back before it is moved to the attic, some tens of megabytes: most queries end before that,
/// and what is moved must still be collected. While the attic has something, the limit is lower, so that the records to move are
/// still in some cache.
const MOVE_ABOVE: Amount = if MODELLED { ONE } else { Amount { write_sets: 32 << 10, bytes: 64 << 20 } };
const MOVE_MORE_ABOVE: Amount = if MODELLED { ONE } else { Amount { write_sets: 4 << 10, bytes: 16 << 20 } };
/// How much of the newest is not moved then: short readers may need it.
const SPARES: Amount = if MODELLED { ONE } else { Amount { write_sets: 1 << 10, bytes: 4 << 20 } };

/// An amount of write sets.
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

/// How many records of the attic are collected under one guard.
const COLLECT_FROM_ATTIC: usize = if MODELLED { 2 } else { 1024 };

/// How many records, and write sets, are moved to the attic under one guard: the whole chain of a row that has changed many times is
/// read once for each guard.
const MOVED_RECORDS: usize = if MODELLED { 2 } else { 16 << 10 };
const MOVED_AT_ONCE: usize = if MODELLED { 2 } else { 16 * COLLECT_INLINE };

/// At one tick, [`COLLECT_FROM_ATTIC`] records are settled at most this many times.
const SETTLE_AT_ONCE: usize = 32;

/// The number of the newest write sets that are retained while a crash may still undo them. Readers check
/// whether they depend on them ([`Collector::holds_since`]).
const SPARED: usize = if MODELLED { 1 } else { 64 };

/// How many records are read for these while committers wait.
const LOOKED_THROUGH: usize = 1024;

/// How many write sets a validator gets at a time.
const VALIDATED_AT_ONCE: usize = if MODELLED { 1 } else { 256 };

/// How many of the newest write sets validators can read without a lock: those of some milliseconds.
const SHOWN: usize = if MODELLED || cfg!(miri) { 2 } else { 2048 };

/// The write sets that have ended and wait to be collected.
pub(crate) struct Collector {
    /// The newest write sets, which validators read first.
    recent: Recent,
    ended: ShortMutex<Ended>,
    /// When a committer last began to collect.
    collected_at: Apart<AtomicU64>,
    /// The collecting thread's own state; one thread collects at a time.
    turn: Mutex<Turn>,
    /// All guards have been released that were held when this was the newest time.
    quiet: Arc<AtomicU64>,
}

#[derive(Default)]
struct Turn {
    attic: Attic,
    /// The next value of `quiet`.
    requested: u64,
    /// Whether a committer has met long chains since the last tick.
    is_for_tick: bool,
}

/// Ended write sets in the order of their times. While a transaction runs, those that ended after its
/// beginning remain here or in the attic, so that it can validate its reads.
#[derive(Default)]
struct Ended {
    retired: VecDeque<Retired>,
    /// Bytes of their undo records.
    bytes: usize,
    /// The time of the newest write set that was moved to the attic.
    moved_until: u64,
    /// The time of the newest write set that is no longer here.
    gone_until: u64,
}

/// A few write sets, on which the collector works without the lock.
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
    /// Lists a write set. Called inside the commit section, so that times ascend, before its time is published.
    pub fn retire(&self, retired: Retired) {
        self.recent.publish(&retired);
        let mut ended = self.ended.lock();
        ended.bytes += retired.bytes;
        ended.retired.push_back(retired);
    }

    /// Whether enough has ended to collect now.
    #[inline]
    pub fn is_due(&self, last: &AtomicU64) -> bool {
        let since = self.collected_at.load(Ordering::Relaxed);
        last.load(Ordering::Relaxed).saturating_sub(since) >= COLLECT_EVERY as u64
    }

    /// The number of listed write sets and of records in the attic.
    pub fn backlog(&self) -> usize {
        // Without those that a thread is just collecting.
        let turn = self.turn.lock();
        self.ended.lock().retired.len() + turn.attic.kept().0
    }

    /// The first write sets that ended after `since` and up to `until`, which is published: as many as are validated at
    /// once, and the time up to which these are all. `None` if some are in the [attic](Collector::look_in_attic). The caller
    /// has been active since `since` or before.
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
        // Not every time belongs to a write set.
        let found_until = found.last().map_or(until, |last| last.time());
        Some((found, found_until))
    }

    /// Whether `holds` is true for every write set that ended after `since` and up to `until`. Also false if some of them
    /// are no longer here, or are too many to check while committers wait.
    pub fn holds_since(&self, since: Time, until: Time, holds: impl Fn(&Digest) -> bool) -> bool {
        let guard = &pin();
        let ended = self.ended.lock();
        let first = ended.retired.partition_point(|retired| retired.time <= since);
        // The newest write sets are moved only if they are large.
        const { assert!(SPARED <= SPARES.write_sets) };
        let newer = ended.retired.range(first..).take_while(|retired| retired.time <= until);
        ended.gone_until <= since.0
            && ended.retired.len() - first <= SPARED
            && newer.clone().map(|retired| retired.record_count()).sum::<usize>() <= LOOKED_THROUGH
            && newer.into_iter().all(|retired| holds(retired.digest(guard)))
    }

    /// Runs `body` while no thread collects.
    pub fn with_collection_paused<T>(&self, body: impl FnOnce() -> T) -> T {
        let _turn = self.turn.lock();
        body()
    }

    /// Calls `look` with the attic, which does not change meanwhile, and the time up to which ended write sets are in it.
    pub fn look_in_attic<T>(&self, look: impl FnOnce(&Attic, Time) -> T) -> T {
        let turn = self.turn.lock();
        look(&turn.attic, turn.attic.until())
    }

    /// Collects what no snapshot needs, and moves what only old snapshots need. What ended up to `safe` is on disk.
    pub fn collect(&self, active: &ActiveSet, last: &AtomicU64, safe: Time, memory: &MemoryBudget) {
        let mut turn = self.turn.lock();
        self.collected_at.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
        // One horizon for both: listed write sets are newer than those in the attic, and are collected after them.
        let horizon = horizon(active, last, safe);
        turn.collect(horizon, memory);
        self.collect_some(usize::MAX, horizon, memory);
        turn.is_for_tick = false;
        let most = if turn.attic.is_empty() { MOVE_ABOVE } else { MOVE_MORE_ABOVE };
        let moves = self.ended.lock().amount().exceeds(most);
        if (moves || !turn.attic.is_empty())
            && let Some((times, now)) = active.snapshot_times(last)
            // Otherwise a new snapshot may read between the records in the attic.
            && turn.attic.until() <= now
        {
            turn.settle(&times, memory);
            if moves {
                self.move_to_attic(&mut turn, &times, now, memory);
            }
        }
        if moves {
            self.request_quiet(&mut turn, last);
        }
    }

    /// A committer's part of the collection; nothing if another thread is collecting.
    pub fn collect_inline(&self, active: &ActiveSet, last: &AtomicU64, safe: Time, memory: &MemoryBudget) {
        if let Some(mut turn) = self.turn.try_lock() {
            self.collected_at.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
            if turn.attic.is_empty() && !turn.is_for_tick {
                let looked_at = self.collect_some(COLLECT_INLINE, horizon(active, last, safe), memory);
                turn.is_for_tick = looked_at > LEFT_TO_TICK;
            }
        }
    }

    /// Collects the oldest write sets, at most `most`. The caller has locked `turn`. Returns how many versions of rows were read.
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
        // Otherwise the memory is freed only hundreds of transactions later.
        guard.flush();
        looked_at
    }

    /// Moves all but the newest write sets to the attic. The caller has locked `turn`. Active snapshots read at `times`, and
    /// those that began since at `now` or later.
    fn move_to_attic(&self, turn: &mut Turn, times: &[Time], now: Time, memory: &MemoryBudget) {
        // Later ones are moved when the snapshots of their time are known, and when no thread can still be reading what they
        // changed.
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

    /// Removes a few write sets from the list to move them, if any may be moved.
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
        // From now on, transactions that validate against them wait until they are in the attic.
        ended.moved_until = few.last().map_or(ended.moved_until, |newest| newest.time.0);
        few
    }

    /// Makes everything that has ended by now movable, as soon as all guards are released that are held now.
    fn request_quiet(&self, turn: &mut Turn, last: &AtomicU64) {
        if self.quiet.load(Ordering::SeqCst) < turn.requested {
            return;
        }
        turn.requested = last.load(Ordering::SeqCst);
        let (quiet, requested) = (self.quiet.clone(), turn.requested);
        let guard = pin();
        guard.defer(move || quiet.store(requested, Ordering::SeqCst));
        guard.flush();
    }
}

/// The time up to which ended write sets may be collected: no snapshot needs them, and they are on disk unless the disk is far
/// behind.
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

    /// Merges records that only ended snapshots distinguish; their number is limited so that validating
    /// transactions do not wait long.
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

/// Frees garbage, and subtracts its undo records and bytes from the memory budget, except for what the attic has gained.
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
    // Otherwise the memory is freed only hundreds of transactions later.
    guard.flush();
}

impl Ended {
    fn amount(&self) -> Amount {
        Amount { write_sets: self.retired.len(), bytes: self.bytes }
    }

    /// Removes the oldest write set, if its time is not after `until`.
    fn pop_until(&mut self, until: Time) -> Option<Retired> {
        let oldest = self.retired.pop_front_if(|oldest| oldest.time <= until)?;
        self.bytes -= oldest.bytes;
        self.gone_until = oldest.time.0;
        Some(oldest)
    }
}
