//! The garbage collector: takes the write sets of ended transactions in the order of their times
//! and has storage unlink what no snapshot needs.
//!
//! Committers run it every few commits, while what they wrote is still in their cache, and each time
//! for a few write sets only, so that none pays for all that a long query has held back; a background
//! tick does what they leave, and runs when nobody commits. A reader that runs long holds back the
//! horizon; then the tick trims chains of the versions between what anybody reads ([`Retired::trim`]).

use crate::active::ActiveSet;
use firn_base::Time;
use firn_base::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};
use firn_storage::{Garbage, Retired, pin};
use std::collections::VecDeque;

/// Commits after which a committer collects: few enough that what they touched, and the memory of their
/// undo records, which is then used again, has not left the core's cache.
const COLLECT_EVERY: usize = 16;

/// Write sets that a committer collects at most: more than come, so that committers alone keep up.
const COLLECT_INLINE: usize = 2 * COLLECT_EVERY;

/// Write sets that a long reader may hold back before chains are trimmed, some tens of megabytes: most
/// queries end before that, and what is trimmed must be collected all the same. And the number of newer
/// ones that are left alone then: short readers are among them.
const TRIM_ABOVE: usize = 32 << 10;
const TRIM_SPARES: usize = 1024;

/// What has ended and waits to be collected.
#[derive(Default)]
pub(crate) struct Collector {
    /// Ended write sets, in the order of their times.
    queue: Mutex<VecDeque<Retired>>,
    queued: AtomicUsize,
    /// One collector at a time; holds what waits for a long reader.
    held: Mutex<Held>,
}

/// Write sets in the order of their times: the trimmed ones before all others.
#[derive(Default)]
struct Held {
    trimmed: VecDeque<Retired>,
    retired: VecDeque<Retired>,
}

impl Collector {
    /// Takes a write set. Called inside the commit section, so that times ascend.
    pub fn retire(&self, retired: Retired) {
        let mut queue = self.queue.lock();
        queue.push_back(retired);
        self.queued.store(queue.len(), Ordering::Relaxed);
    }

    /// Whether it is worth collecting now.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.queued.load(Ordering::Relaxed) >= COLLECT_EVERY
    }

    /// Write sets that wait.
    pub fn backlog(&self) -> usize {
        self.queued.load(Ordering::Relaxed) + self.held.lock().len()
    }

    /// Collects what no snapshot needs and trims chains.
    pub fn collect(&self, active: &ActiveSet, last: &AtomicU64) {
        self.collect_some(self.held.lock(), usize::MAX, active, last);
    }

    /// A committer's part of the collection, unless another thread is at it.
    pub fn collect_inline(&self, active: &ActiveSet, last: &AtomicU64) {
        if let Some(held) = self.held.try_lock() {
            self.collect_some(held, COLLECT_INLINE, active, last);
        }
    }

    fn collect_some(
        &self,
        mut held: MutexGuard<'_, Held>,
        most: usize,
        active: &ActiveSet,
        last: &AtomicU64,
    ) {
        let held = &mut *held;
        {
            let mut queue = self.queue.lock();
            held.retired.append(&mut queue);
            self.queued.store(0, Ordering::Relaxed);
        }
        let horizon = active.horizon(last);
        let guard = pin();
        let mut garbage = Garbage::default();
        for _ in 0..most {
            let Some(retired) = held.pop_until(horizon) else { break };
            held.front().iter().for_each(|next| next.prefetch());
            retired.collect(&mut garbage, &guard);
        }
        if most == usize::MAX && held.retired.len() > TRIM_ABOVE {
            let (times, now) = active.snapshot_times(last);
            held.trim(&times, now, &mut garbage, &guard);
        }
        garbage.free(&guard);
        // Otherwise the memory comes back hundreds of transactions later.
        guard.flush();
    }
}

impl Held {
    fn len(&self) -> usize {
        self.trimmed.len() + self.retired.len()
    }

    fn front(&self) -> Option<&Retired> {
        self.trimmed.front().or(self.retired.front())
    }

    /// Takes the oldest, if its time is not after `horizon`.
    fn pop_until(&mut self, horizon: Time) -> Option<Retired> {
        self.front().filter(|oldest| oldest.time <= horizon)?;
        self.trimmed.pop_front().or_else(|| self.retired.pop_front())
    }

    /// Trims everything not yet trimmed but for the newest few.
    fn trim(&mut self, active: &[Time], now: Time, garbage: &mut Garbage, guard: &firn_storage::Guard) {
        for _ in TRIM_SPARES..self.retired.len() {
            let mut retired = self.retired.pop_front().expect("just counted");
            self.retired.front().iter().for_each(|next| next.prefetch());
            retired.trim(active, now, guard);
            if retired.is_empty() {
                retired.discard(garbage);
            } else {
                self.trimmed.push_back(retired);
            }
        }
    }
}
