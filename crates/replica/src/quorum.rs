//! Which part of the log of a primary is committed: what a majority of the voters has on disk, the primary included.

use firn_base::sync::{Arc, Mutex};
use firn_base::{Lsn, NodeId};
use firn_txn::Engine;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What the voters have of the log of a primary, in one epoch.
#[derive(Clone, Default, Debug)]
pub struct Quorum(Arc<Mutex<State>>);

#[derive(Default, Debug)]
struct State {
    /// `None` if there are no voters.
    counting: Option<Counting>,
}

#[derive(Debug)]
struct Counting {
    /// The version of the set of voters.
    version: u64,
    /// The voters but for the primary itself.
    others: BTreeSet<u64>,
    /// Nothing is committed before a majority has this: where the beginning of the epoch ends.
    floor: Lsn,
    reached: BTreeMap<u64, Reached>,
    /// What was committed when the set became the present one.
    adopting: Lsn,
}

/// How far a voter is.
#[derive(Clone, Copy, Debug)]
struct Reached {
    flushed: Lsn,
    /// When the last message was sent that it has answered. In microseconds of a clock that is never set.
    heartbeat: u64,
}

impl Reached {
    const NOTHING: Reached = Reached { flushed: Lsn(0), heartbeat: 0 };
}

impl Quorum {
    /// Counts by a set of voters from now on. Nothing is committed before a majority of it has what ends at `floor`.
    pub fn count_by(
        &self,
        engine: &Engine,
        own: NodeId,
        voters: impl Iterator<Item = u64>,
        version: u64,
        floor: Lsn,
    ) {
        let others = voters.filter(|node| *node != own.0).collect();
        let mut state = self.0.lock();
        let reached = state.counting.take().map(|counting| counting.reached).unwrap_or_default();
        // First: one that is alone has confirmed everything in advance.
        engine.confirm_anew();
        let adopting = engine.committed_lsn();
        let counting = Counting { version, others, floor, reached, adopting };
        counting.confirm(engine);
        state.counting = Some(counting);
    }

    /// Counts nothing any more.
    pub fn end(&self) {
        self.0.lock().counting = None;
    }

    /// The version of the set of voters that counts, and whether all that was committed before is on a majority of it.
    pub fn version(&self) -> (u64, bool) {
        self.0.lock().counting.as_ref().map_or((0, false), |counting| {
            (counting.version, counting.agreed() >= counting.adopting.max(counting.floor))
        })
    }

    /// Notes that a voter has answered: it has the log on disk up to a position.
    pub fn note(&self, engine: &Engine, node: NodeId, flushed: Lsn, heartbeat: u64) {
        let mut state = self.0.lock();
        let Some(counting) = &mut state.counting else { return };
        let reached = counting.reached.entry(node.0).or_insert(Reached::NOTHING);
        reached.flushed = reached.flushed.max(flushed);
        reached.heartbeat = reached.heartbeat.max(heartbeat);
        counting.confirm(engine);
    }

    /// Until when no other primary can be appointed, if a voter that has heard of this one at a time promises nothing else for so long.
    /// In microseconds of a clock that is never set; `None` if there are no voters.
    pub fn relies_until(&self, lease: Duration) -> Option<u64> {
        let state = self.0.lock();
        let counting = state.counting.as_ref()?;
        let heartbeats = counting.others.iter().map(|node| counting.of(*node).heartbeat);
        // A clock may run faster than that of another machine, by a tenth at most.
        Some(counting.nth(heartbeats).map_or(u64::MAX, |sent| sent + lease.as_micros() as u64 * 10 / 11))
    }
}

impl Counting {
    fn of(&self, node: u64) -> Reached {
        self.reached.get(&node).copied().unwrap_or(Reached::NOTHING)
    }

    /// What enough of the others have reached for a majority; `None` if none of them is needed.
    fn nth<T: Ord>(&self, reached: impl Iterator<Item = T>) -> Option<T> {
        let needed = self.others.len().div_ceil(2);
        let mut reached: Vec<T> = reached.collect();
        reached.sort_unstable();
        let at = reached.len().checked_sub(needed).filter(|_| needed > 0)?;
        Some(reached.swap_remove(at))
    }

    /// Up to where enough of the others have the log on disk.
    fn agreed(&self) -> Lsn {
        self.nth(self.others.iter().map(|node| self.of(*node).flushed)).unwrap_or(Lsn(u64::MAX))
    }

    fn confirm(&self, engine: &Engine) {
        let agreed = self.agreed();
        if agreed >= self.floor {
            engine.confirm(agreed);
        }
    }
}
