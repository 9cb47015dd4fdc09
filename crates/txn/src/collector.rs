//! The garbage collector: takes the write sets of ended transactions in the order of their times
//! and has storage unlink what no snapshot needs.
//!
//! Committers run it every few commits, while what they wrote is still in their cache, and each time
//! for a few write sets only, so that none pays for all that a long query has held back; a background
//! tick does what they leave, and runs when nobody commits. A reader that runs long holds back the
//! horizon; then the tick trims chains of the versions between what anybody reads ([`Retired::trim`]).

use crate::active::ActiveSet;
use firn_base::Time;
use firn_base::sync::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering};
use firn_storage::{Garbage, MemoryBudget, Retired, pin};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// In a model a few commits are many.
const MODELLED: bool = cfg!(feature = "models");

/// Commits after which a committer collects: few enough that what they touched, and the memory of their
/// undo records, which is then used again, has not left the core's cache.
const COLLECT_EVERY: usize = if MODELLED { 2 } else { 16 };

/// Write sets that a committer collects at most: more than come, so that committers alone keep up.
const COLLECT_INLINE: usize = 2 * COLLECT_EVERY;

/// Write sets that a long reader may hold back before chains are trimmed, some tens of megabytes: most
/// queries end before that, and what is trimmed must be collected all the same. And the number of newer
/// ones that are left alone then: short readers are among them.
const TRIM_ABOVE: usize = if MODELLED { 1 } else { 32 << 10 };
const TRIM_SPARES: usize = if MODELLED { 1 } else { 1024 };

/// Of the newest write sets so many are left alone while they may yet be lost, for those who only read and want
/// to know what of it may be ([`Collector::holds_since`]).
const SPARED: usize = if MODELLED { 1 } else { 64 };

/// Write sets that are given to a validator at a time.
const VALIDATED_AT_ONCE: usize = if MODELLED { 1 } else { 1024 };

/// What has ended and waits to be collected.
#[derive(Default)]
pub(crate) struct Collector {
    ended: Mutex<Ended>,
    /// Ended write sets that no committer has looked after yet.
    uncollected: AtomicUsize,
    /// One collector at a time.
    turn: Mutex<()>,
    /// Commits up to this time are on disk.
    safe: AtomicU64,
}

/// Ended write sets in the order of their times: the trimmed ones before all others. Those that ended
/// after some transaction began stay here as long as it runs, so that it can validate what it read.
#[derive(Default)]
struct Ended {
    trimmed: VecDeque<Arc<Retired>>,
    retired: VecDeque<Arc<Retired>>,
    /// When the newest ended that is no longer here.
    gone_until: u64,
}

/// A few of them, which the collector works on without the lock.
type Few = SmallVec<[Arc<Retired>; COLLECT_INLINE]>;

impl Collector {
    /// Takes a write set. Called inside the commit section, so that times ascend.
    pub fn retire(&self, retired: Arc<Retired>) {
        self.ended.lock().retired.push_back(retired);
        self.uncollected.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it is worth collecting now.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.uncollected.load(Ordering::Relaxed) >= COLLECT_EVERY
    }

    /// Write sets that wait.
    pub fn backlog(&self) -> usize {
        // Not those that somebody is collecting just now.
        let _turn = self.turn.lock();
        self.ended.lock().len()
    }

    /// What has ended first after `since` and up to `until`: as many as are quickly copied, since
    /// committers wait meanwhile; none if there are none. The caller is counted as running since
    /// `since` or before, and lets go of them before it no longer is.
    pub fn ended_between(&self, since: Time, until: Time) -> Vec<Arc<Retired>> {
        let ended = self.ended.lock();
        let between = |list: &VecDeque<Arc<Retired>>| {
            let first = list.partition_point(|retired| retired.time <= since);
            let found = list.range(first..).take_while(|retired| retired.time <= until);
            found.take(VALIDATED_AT_ONCE).cloned().collect::<Vec<_>>()
        };
        let found = between(&ended.trimmed);
        if found.is_empty() { between(&ended.retired) } else { found }
    }

    /// Whether something holds of all that has ended after `since` and up to `until`. False as well if some
    /// of that is gone, or it is too much to look at while committers wait.
    pub fn holds_since(&self, since: Time, until: Time, holds: impl Fn(&Retired) -> bool) -> bool {
        let ended = self.ended.lock();
        let first = ended.retired.partition_point(|retired| retired.time <= since);
        let all_listed = ended.gone_until <= since.0 && (first > 0 || ended.trimmed.is_empty());
        // The newest are never trimmed.
        const { assert!(SPARED <= TRIM_SPARES) };
        all_listed
            && ended.retired.len() - first <= SPARED
            && ended
                .retired
                .range(first..)
                .take_while(|retired| retired.time <= until)
                .all(|retired| holds(retired))
    }

    /// Says up to when commits are on disk.
    pub fn set_safe(&self, time: Time) {
        self.safe.store(time.0, Ordering::Relaxed);
    }

    /// What ended up to then may go: no snapshot needs it, and it is on disk unless that is far behind.
    fn horizon(&self, active: &ActiveSet, last: &AtomicU64) -> Time {
        let horizon = active.horizon(last);
        let safe = self.safe.load(Ordering::Relaxed);
        if horizon.0 <= safe.saturating_add(SPARED as u64) { horizon.min(Time(safe)) } else { horizon }
    }

    /// Collects what no snapshot needs and trims chains.
    pub fn collect(&self, active: &ActiveSet, last: &AtomicU64, memory: &MemoryBudget) {
        let _turn = self.turn.lock();
        self.collect_some(usize::MAX, active, last, memory);
        if self.ended.lock().retired.len() > TRIM_ABOVE {
            self.trim(active, last, memory);
        }
    }

    /// A committer's part of the collection, unless another thread is at it.
    pub fn collect_inline(&self, active: &ActiveSet, last: &AtomicU64, memory: &MemoryBudget) {
        if let Some(_turn) = self.turn.try_lock() {
            self.collect_some(COLLECT_INLINE, active, last, memory);
        }
    }

    /// Collects the oldest, at most so many, in the collector's turn.
    fn collect_some(&self, most: usize, active: &ActiveSet, last: &AtomicU64, memory: &MemoryBudget) {
        self.uncollected.store(0, Ordering::Relaxed);
        let horizon = self.horizon(active, last);
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
                let mut retired =
                    Arc::into_inner(retired).expect("who validates against it began before it ended");
                records += retired.record_count();
                bytes += retired.bytes;
                retired.collect(&mut garbage, &guard);
            }
        }
        garbage.free(&guard);
        memory.collect(records, bytes);
        // Otherwise the memory comes back hundreds of transactions later.
        guard.flush();
    }

    /// Trims everything not yet trimmed but for the newest few, in the collector's turn.
    fn trim(&self, active: &ActiveSet, last: &AtomicU64, memory: &MemoryBudget) {
        let Some((times, now)) = active.snapshot_times(last) else { return };
        let guard = pin();
        let mut garbage = Garbage::default();
        let (mut records, mut bytes) = (0, 0);
        loop {
            let few: Few = {
                let ended = self.ended.lock();
                let most = ended.retired.len().saturating_sub(TRIM_SPARES).min(COLLECT_INLINE);
                // Later ones have their turn when it is known who reads then.
                let few = ended.retired.range(..most).take_while(|retired| retired.time <= now);
                few.cloned().collect()
            };
            if few.is_empty() {
                break;
            }
            for retired in &few {
                records += retired.trim(&times, now, &guard);
            }
            // They went on standing in the list meanwhile, for those who validate.
            let mut ended = self.ended.lock();
            for retired in few {
                let listed = ended.retired.pop_front().expect("only the collector takes some out");
                debug_assert!(Arc::ptr_eq(&listed, &retired));
                drop(listed);
                match Arc::try_unwrap(retired) {
                    Ok(retired) if retired.is_empty() => {
                        bytes += retired.bytes;
                        retired.discard(&mut garbage);
                    }
                    Ok(retired) => ended.trimmed.push_back(Arc::new(retired)),
                    // Somebody validates against it just now.
                    Err(retired) => ended.trimmed.push_back(retired),
                }
            }
        }
        garbage.free(&guard);
        memory.collect(records, bytes);
        guard.flush();
    }
}

impl Ended {
    fn len(&self) -> usize {
        self.trimmed.len() + self.retired.len()
    }

    /// Takes the oldest, if its time is not after `horizon`.
    fn pop_until(&mut self, horizon: Time) -> Option<Arc<Retired>> {
        let list = if self.trimmed.is_empty() { &mut self.retired } else { &mut self.trimmed };
        self.gone_until = list.front().filter(|oldest| oldest.time <= horizon)?.time.0;
        list.pop_front()
    }
}
