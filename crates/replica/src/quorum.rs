//! Which part of the log of a primary is committed: what a majority of the voters has on disk, the primary included.

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
    /// The version of the set of voters.
    version: u64,
    /// The voters but for the primary itself.
    others: BTreeSet<u64>,
    /// Nothing is committed before a majority has this: where the beginning of the epoch ends.
    floor: Lsn,
    /// What each of them has on disk.
    reached: BTreeMap<u64, Lsn>,
    /// What was committed when the set became the present one.
    adopting: Lsn,
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
    pub fn note(&self, engine: &Engine, node: NodeId, flushed: Lsn) {
        let mut state = self.0.lock();
        let Some(counting) = &mut state.counting else { return };
        let reached = counting.reached.entry(node.0).or_insert(flushed);
        *reached = flushed.max(*reached);
        counting.confirm(engine);
    }
}

impl Counting {
    /// Up to where enough of the others have the log on disk for a majority.
    fn agreed(&self) -> Lsn {
        let needed = self.others.len().div_ceil(2);
        let of = |node: &u64| self.reached.get(node).copied().unwrap_or(Lsn(0));
        let mut reached: Vec<Lsn> = self.others.iter().map(of).collect();
        reached.sort_unstable();
        // None of them is needed by one that is alone.
        if needed == 0 { Lsn(u64::MAX) } else { reached[reached.len() - needed] }
    }

    fn confirm(&self, engine: &Engine) {
        let agreed = self.agreed();
        if agreed >= self.floor || Fault::EarlierEpochsCounted.is_made() {
            engine.confirm(agreed);
        }
    }
}
