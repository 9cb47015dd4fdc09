//! Which part of the log of a primary is committed: what a majority of the voters has on disk, the primary included. And until when it is
//! certainly the primary: its *lease*.
//!
//! A voter that has answered a beat does not promise to follow another primary for a while. So as long as that lasts for a majority, counted
//! from when the beats were sent, no other primary has begun (Gray and Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for
//! Distributed File Cache Consistency", SOSP 1989; Ongaro, §6.4.1). Only readers rely on it.

use firn_base::sync::{Arc, Mutex};
use firn_base::{Lsn, NodeId};
use firn_log::faults::Fault;
use firn_txn::Engine;
use std::collections::{BTreeMap, BTreeSet};

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
    rules: Rules,
    /// The voters but for the primary itself.
    others: BTreeSet<u64>,
    /// What each of them has on disk.
    reached: BTreeMap<u64, Lsn>,
    /// When the last beat was sent that each of them has answered.
    beats: BTreeMap<u64, u64>,
    /// What was committed when the set became the present one.
    adopting: Lsn,
}

/// How voters are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The version of the set of voters.
    pub version: u64,
    /// Nothing is committed before a majority has this: where the beginning of the epoch ends.
    pub floor: Lsn,
    /// How long a voter that has answered a beat follows no other primary, in microseconds.
    pub lease: u64,
}

impl Quorum {
    /// Counts by a set of voters from now on.
    pub fn count_by(&self, engine: &Engine, own: NodeId, voters: impl Iterator<Item = u64>, rules: Rules) {
        let others = voters.filter(|node| *node != own.0).collect();
        let mut state = self.0.lock();
        let (reached, beats) =
            state.counting.take().map(|counting| (counting.reached, counting.beats)).unwrap_or_default();
        // First: one that is alone has confirmed everything in advance.
        engine.confirm_anew();
        let adopting = engine.committed_lsn();
        let counting = Counting { rules, others, reached, beats, adopting };
        counting.confirm(engine);
        engine.set_lease(counting.lease());
        state.counting = Some(counting);
    }

    /// Counts nothing any more.
    pub fn end(&self) {
        self.0.lock().counting = None;
    }

    /// The version of the set of voters that counts, and whether all that was committed before is on a majority of it.
    pub fn version(&self) -> (u64, bool) {
        self.0.lock().counting.as_ref().map_or((0, false), |counting| {
            (counting.rules.version, counting.agreed() >= counting.adopting.max(counting.rules.floor))
        })
    }

    /// Notes that a voter has answered: it has the log on disk up to a position. `beat` is when the beat was sent that it has answered, or 0.
    pub fn note(&self, engine: &Engine, node: NodeId, flushed: Lsn, beat: u64) {
        let mut state = self.0.lock();
        let Some(counting) = &mut state.counting else { return };
        let reached = counting.reached.entry(node.0).or_insert(flushed);
        *reached = flushed.max(*reached);
        counting.confirm(engine);
        let answered = counting.beats.entry(node.0).or_insert(0);
        if beat > *answered {
            *answered = beat;
            engine.set_lease(counting.lease());
        }
    }
}

impl Counting {
    /// Up to where enough of the others have the log on disk for a majority.
    fn agreed(&self) -> Lsn {
        // None of them is needed by one that is alone.
        self.of_majority(|node| self.reached.get(node).copied().unwrap_or(Lsn(0))).unwrap_or(Lsn(u64::MAX))
    }

    /// Until when no other primary has begun; `None` as long as this is the only voter.
    fn lease(&self) -> Option<u64> {
        // A clock may be a tenth slower than another one.
        let lease = self.rules.lease - self.rules.lease / 10;
        self.of_majority(|node| self.beats.get(node).copied().unwrap_or(0))
            .map(|beat| if beat == 0 { 0 } else { beat + lease })
    }

    /// The least value of as many of the others as make a majority together with the primary: of those with the greatest values. `None` if
    /// none is needed.
    fn of_majority<T: Ord + Copy>(&self, of: impl Fn(&u64) -> T) -> Option<T> {
        let needed = self.others.len().div_ceil(2);
        let mut values: Vec<T> = self.others.iter().map(of).collect();
        values.sort_unstable();
        (needed > 0).then(|| values[values.len() - needed])
    }

    fn confirm(&self, engine: &Engine) {
        let agreed = self.agreed();
        if agreed >= self.rules.floor || Fault::EarlierEpochsCounted.is_made() {
            engine.confirm(agreed);
        }
    }
}
