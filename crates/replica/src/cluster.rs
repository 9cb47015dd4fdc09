//! The control plane, as the rest sees it: which servers are voters, and which of them is the primary in which epoch.
//!
//! [`Cluster`] is that state, and [`Cluster::apply`] the only way in which it changes. It is the same on all voters: a library for
//! consensus has it (the crate `control`), and the simulation has a register that all share. Nothing here knows how.
//!
//! ```text
//!           Suspect by a majority
//!           or BeginEpoch                        Report by a majority
//! Led(e, p) ───────────────────> Choosing(e + 1) ────────────────────> Led(e + 1, the one with the last log)
//!                                  │        ^
//!                                  └────────┘ BeginEpoch
//! ```
//! A voter that learns that an epoch has begun promises to take nothing from an earlier primary, and reports after that where its log
//! ends. So when a majority has reported, the primary of the epoch before commits nothing any more, and whatever it has committed is in
//! the log of one that has reported: the last one, by epoch and position.
//!
//! **Who votes** changes by one voter at a time, so that majorities of two successive sets have a voter in common. The primary says when
//! what is committed is on a majority of the present set ([`Change::Adopt`]). Before that the set does not change again.

use firn_base::{Epoch, NodeId};
use firn_log::faults::Fault;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The state of a cluster of voters.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cluster {
    /// The voters.
    pub voters: BTreeMap<u64, Member>,
    /// How often the set of voters has changed.
    pub version: u64,
    /// The version of the set by which the primary has committed everything that it has committed.
    pub adopted: u64,
    /// The present epoch.
    pub epoch: u64,
    /// Who leads it.
    pub lead: Lead,
    /// The voters that do not hear its primary.
    pub suspects: BTreeSet<u64>,
}

/// A voter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The name that its operator has given it.
    pub name: String,
    /// Where others reach it: `HOST:PORT`.
    pub address: String,
}

/// Who leads an epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lead {
    /// This one is its primary, or is becoming that.
    Primary(u64),
    /// Nobody yet.
    Choosing {
        /// The primary of the epoch before, if there was one.
        former: Option<u64>,
        /// The one to which that one hands over. It is appointed if no other log is longer.
        preferred: Option<u64>,
        /// Where the logs of those end who have promised to follow the epoch.
        reports: BTreeMap<u64, End>,
    },
}

impl Default for Lead {
    fn default() -> Lead {
        Lead::Choosing { former: None, preferred: None, reports: BTreeMap::new() }
    }
}

/// Where a log ends. Of two logs, the one with the later epoch has more of what was committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct End {
    /// The epoch of its last group.
    pub epoch: u64,
    /// Its position.
    pub position: u64,
}

impl End {
    /// What makes one log have more of what was committed than another one.
    fn rank(self) -> End {
        let epoch = if Fault::LongestLogAppointed.is_made() { 0 } else { self.epoch };
        End { epoch, ..self }
    }
}

/// A change of the state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// The first voter, which is a primary.
    Found {
        /// Its number.
        node: u64,
        /// What is known of it.
        member: Member,
        /// The epoch in which it writes its log.
        epoch: u64,
    },
    /// A voter does not hear the primary of an epoch, or hears it again. When a majority does not hear it, the next epoch begins.
    Suspect {
        /// The voter.
        node: u64,
        /// The epoch.
        epoch: u64,
        /// Whether it does not hear it.
        suspects: bool,
    },
    /// Nothing changes, but it is known whether a server is a voter.
    Confirm {
        /// Its number.
        node: u64,
    },
    /// The epoch after this one begins: it has no primary, or that one gives it up, or is to.
    BeginEpoch {
        /// The present epoch.
        after: u64,
        /// The one that is to be appointed.
        preferred: Option<u64>,
    },
    /// A voter has promised to follow an epoch.
    Report {
        /// The voter.
        node: u64,
        /// The epoch.
        epoch: u64,
        /// Where its log ends.
        end: End,
    },
    /// What the primary of an epoch has committed is on a majority of a set of voters.
    Adopt {
        /// The epoch.
        epoch: u64,
        /// The version of the set.
        version: u64,
    },
    /// A server becomes a voter.
    Add {
        /// Its number.
        node: u64,
        /// What is known of it.
        member: Member,
    },
    /// A server is no voter any more.
    Remove {
        /// Its number.
        node: u64,
    },
}

/// Why a change has not been made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// It was meant for an earlier state.
    Late,
    /// The voter is unknown.
    Unknown,
    /// The set of voters is changing, or there is no primary: later it may be possible.
    Busy,
    /// The primary cannot be removed.
    IsPrimary,
}

/// Whether a change has been made.
pub type Outcome = Result<(), Refusal>;

impl Cluster {
    /// The voter of a number.
    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.voters.get(&node.0)
    }

    /// How many of the voters are a majority.
    pub fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// The present epoch.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// The primary of the present epoch, or the one that becomes that.
    pub fn primary(&self) -> Option<NodeId> {
        match self.lead {
            Lead::Primary(node) => Some(NodeId(node)),
            Lead::Choosing { .. } => None,
        }
    }

    /// Changes the state, if the change fits.
    pub fn apply(&mut self, change: Change) -> Outcome {
        match change {
            Change::Found { node, member, epoch } => {
                if !self.voters.is_empty() {
                    return Err(Refusal::Late);
                }
                self.voters.insert(node, member);
                (self.version, self.adopted, self.epoch, self.lead) = (1, 1, epoch, Lead::Primary(node));
            }
            Change::BeginEpoch { after, preferred } => {
                if after != self.epoch || self.voters.is_empty() {
                    return Err(Refusal::Late);
                }
                self.begin_epoch(preferred);
            }
            Change::Suspect { node, epoch, suspects } => {
                if !self.voters.contains_key(&node) {
                    return Err(Refusal::Unknown);
                }
                if epoch != self.epoch || self.primary().is_none() {
                    return Err(Refusal::Late);
                }
                match suspects {
                    true => self.suspects.insert(node),
                    false => self.suspects.remove(&node),
                };
                if self.suspects.len() >= self.majority() {
                    self.begin_epoch(None);
                }
            }
            Change::Confirm { node } => {
                if !self.voters.contains_key(&node) {
                    return Err(Refusal::Unknown);
                }
            }
            Change::Report { node, epoch, end } => {
                if !self.voters.contains_key(&node) {
                    return Err(Refusal::Unknown);
                }
                let (present, majority) = (self.epoch, self.majority());
                match &mut self.lead {
                    Lead::Choosing { preferred, reports, .. } if epoch == present => {
                        reports.insert(node, end);
                        if reports.len() >= majority {
                            let rank =
                                |(node, end): &(&u64, &End)| (end.rank(), Some(**node) == *preferred, **node);
                            let (chosen, _) = reports.iter().max_by_key(rank).expect("a majority");
                            self.lead = Lead::Primary(*chosen);
                        }
                    }
                    _ => return Err(Refusal::Late),
                }
            }
            Change::Adopt { epoch, version } => {
                if epoch != self.epoch || version != self.version || self.primary().is_none() {
                    return Err(Refusal::Late);
                }
                self.adopted = version;
            }
            Change::Add { node, member } => {
                if Fault::WipedVoterCounted.is_made() {
                    let is_same = |known: &&u64| self.voters[*known].address == member.address;
                    if let Some(former) = self.voters.keys().find(is_same).copied() {
                        self.voters.remove(&former);
                        self.voters.insert(node, member.clone());
                    }
                }
                // It may be proposed again.
                if !self.voters.contains_key(&node) {
                    self.check_that_voters_may_change()?;
                    self.version += 1;
                }
                self.voters.insert(node, member);
            }
            Change::Remove { node } => {
                if !self.voters.contains_key(&node) {
                    return Err(Refusal::Unknown);
                }
                self.check_that_voters_may_change()?;
                if self.primary() == Some(NodeId(node)) {
                    return Err(Refusal::IsPrimary);
                }
                self.voters.remove(&node);
                self.suspects.remove(&node);
                self.version += 1;
            }
        }
        Ok(())
    }

    fn begin_epoch(&mut self, preferred: Option<u64>) {
        let former = self.primary().map(|node| node.0);
        self.epoch += 1;
        self.lead = Lead::Choosing { former, preferred, reports: BTreeMap::new() };
        self.suspects.clear();
    }

    fn check_that_voters_may_change(&self) -> Result<(), Refusal> {
        match self.primary().is_some() && self.adopted == self.version {
            true => Ok(()),
            false => Err(Refusal::Busy),
        }
    }
}

/// What a voter is to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Duty {
    /// To go on with what it does.
    Nothing,
    /// To promise to follow an epoch, and to take nothing from the server that it follows.
    Promise(Epoch),
    /// To propose a change.
    Propose(Change),
    /// To begin an epoch, as the one that has been appointed.
    Lead(Epoch),
    /// To follow this one in the present epoch, if it does not yet.
    Follow(NodeId),
    /// To end its sessions, and to be opened again as a replica: another epoch has begun than that in which it is a primary.
    StepDown,
    /// To commit by the present set of voters.
    Adopt,
    /// To be a server that is no voter.
    Leave,
}

/// What a voter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Its number.
    pub node: NodeId,
    /// The epoch that it has promised to follow.
    pub promised: Epoch,
    /// Where its log ends.
    pub end: End,
    /// The latest epoch that it may have begun before it was opened.
    pub known: Epoch,
    /// The epoch in which it writes its log, if it does.
    pub writes: Option<Epoch>,
    /// The version of the set of voters by which it commits, and whether all that it has committed is on a majority of that.
    pub commits_by: (u64, bool),
    /// Whether it knows that everything is committed that it has on disk.
    pub is_settled: bool,
}

/// How long a voter waits for what. Times are of a clock that is never set, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// A primary that has not been heard for so long is given up. A voter that has heard it promises nothing else as long.
    pub lease: u64,
    /// One that has been appointed has so long to be heard; and as long may it take until one is.
    pub choice: u64,
}

/// How long a voter has waited, and decides what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    patience: Patience,
    /// The epoch that it watches, and since when it has known of it and of its primary.
    epoch: Epoch,
    primary: Option<NodeId>,
    since: u64,
    /// When the primary of the epoch was heard last, and until when it may rely on that.
    heard: Option<u64>,
    relied_on_until: u64,
    /// How many epochs have ended without that their primary was heard.
    failures: u32,
    /// Whether it was a voter, or is known to be none any more.
    was_member: bool,
}

impl Watch {
    /// Of a voter that begins now. It may have been heard by a primary before.
    pub fn new(patience: Patience, now: u64) -> Watch {
        let relied_on_until = now + patience.lease;
        Watch {
            patience,
            epoch: Epoch(0),
            primary: None,
            since: now,
            heard: None,
            relied_on_until,
            failures: 0,
            was_member: false,
        }
    }

    /// Notes that the voters do not know this one.
    pub fn note_unknown(&mut self) {
        self.was_member = true;
    }

    /// Notes that the primary of an epoch has been heard.
    pub fn hear(&mut self, epoch: Epoch, now: u64) {
        if self.may_rely(epoch) {
            (self.heard, self.relied_on_until, self.failures) = (Some(now), now + self.patience.lease, 0);
        }
    }

    /// Whether the primary of an epoch may rely on this voter: it has not seen a later epoch.
    pub fn may_rely(&self, epoch: Epoch) -> bool {
        epoch >= self.epoch
    }

    /// The next duty of a voter in this state of the cluster, which may be an old one.
    pub fn duty(&mut self, cluster: &Cluster, own: &Standing, now: u64) -> Duty {
        if cluster.voters.is_empty() {
            return Duty::Nothing;
        }
        let (epoch, primary) = (cluster.epoch(), cluster.primary());
        if (epoch, primary) != (self.epoch, self.primary) {
            if epoch != self.epoch && self.heard.is_none() {
                self.failures = (self.failures + 1).min(5);
            }
            (self.epoch, self.primary, self.since, self.heard) = (epoch, primary, now, None);
        }
        if own.writes.is_some_and(|writes| writes < epoch) {
            return match own.promised < epoch {
                true => Duty::Promise(epoch),
                false => match self.report(cluster, own) {
                    Some(report) => Duty::Propose(report),
                    // The one to which it hands over still gets the rest from it.
                    None if self.is_handing_over(cluster, own, now) => Duty::Nothing,
                    None => Duty::StepDown,
                },
            };
        }
        // The state is older than the promise.
        if own.promised > epoch {
            return Duty::Nothing;
        }
        self.was_member |= cluster.member(own.node).is_some();
        if cluster.member(own.node).is_none() {
            return match primary {
                // It may be added in a state that it does not know yet.
                _ if !self.was_member => Duty::Propose(Change::Confirm { node: own.node.0 }),
                _ if own.promised < epoch => Duty::Promise(epoch),
                // What it has more than others may have to be cut.
                _ if own.is_settled => Duty::Leave,
                Some(primary) => Duty::Follow(primary),
                None => Duty::Nothing,
            };
        }
        match primary {
            None if own.promised < epoch => match self.must_wait(cluster, own, now) {
                true => Duty::Nothing,
                false => Duty::Promise(epoch),
            },
            None => match self.report(cluster, own) {
                Some(report) => Duty::Propose(report),
                None => self.give_up(now, self.since, self.patience.choice << self.failures),
            },
            Some(primary) if primary == own.node => match own.writes {
                Some(_) if own.commits_by.0 != cluster.version => Duty::Adopt,
                Some(_) if own.commits_by.1 && cluster.adopted != cluster.version => {
                    Duty::Propose(Change::Adopt { epoch: epoch.0, version: cluster.version })
                }
                Some(_) => Duty::Nothing,
                None if own.promised < epoch => Duty::Promise(epoch),
                // It has written in this epoch before it was opened: the others may have more of that than it has.
                None if own.known >= epoch => {
                    Duty::Propose(Change::BeginEpoch { after: epoch.0, preferred: None })
                }
                None => Duty::Lead(epoch),
            },
            Some(_) if own.promised < epoch => Duty::Promise(epoch),
            Some(primary) => {
                let (since, patience) = match self.heard {
                    Some(heard) => (heard, self.patience.lease),
                    None => (self.since, self.patience.choice << self.failures),
                };
                let suspects = now.saturating_sub(since) > patience;
                match suspects != cluster.suspects.contains(&own.node.0) {
                    true => Duty::Propose(Change::Suspect { node: own.node.0, epoch: epoch.0, suspects }),
                    false => Duty::Follow(primary),
                }
            }
        }
    }

    /// Whether the primary of the epoch before hands over, and the one that takes over may still do so.
    fn is_handing_over(&self, cluster: &Cluster, own: &Standing, now: u64) -> bool {
        match &cluster.lead {
            Lead::Choosing { preferred: Some(preferred), reports, .. } => {
                *preferred != own.node.0
                    && !reports.contains_key(preferred)
                    && now.saturating_sub(self.since) <= self.patience.choice
            }
            _ => false,
        }
    }

    /// Whether a voter must not promise yet to follow an epoch that has no primary: because the primary of the epoch before relies on that,
    /// or because it hands over.
    fn must_wait(&self, cluster: &Cluster, own: &Standing, now: u64) -> bool {
        let Lead::Choosing { former, preferred, reports } = &cluster.lead else { return false };
        // One that has promised it itself relies on nothing.
        let former = former.and_then(|former| reports.get(&former));
        if former.is_none() && now < self.relied_on_until && !Fault::LeaseBroken.is_made() {
            return true;
        }
        if *preferred == Some(own.node.0) {
            let has_all = former.is_some_and(|former| own.end >= *former);
            return !has_all && now.saturating_sub(self.since) <= self.patience.choice;
        }
        self.is_handing_over(cluster, own, now)
    }

    /// Where its log ends, if the epoch has no primary and the cluster does not know that yet.
    fn report(&self, cluster: &Cluster, own: &Standing) -> Option<Change> {
        match &cluster.lead {
            Lead::Choosing { reports, .. } if !reports.contains_key(&own.node.0) => {
                Some(Change::Report { node: own.node.0, epoch: cluster.epoch, end: own.end })
            }
            _ => None,
        }
    }

    /// Proposes another epoch once this one has been without a primary for long.
    fn give_up(&self, now: u64, since: u64, patience: u64) -> Duty {
        match now.saturating_sub(since) > patience {
            true => Duty::Propose(Change::BeginEpoch { after: self.epoch.0, preferred: None }),
            false => Duty::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> Member {
        Member { name: name.to_owned(), address: format!("{name}:5432") }
    }

    /// Voters 1 to 3, of which the first is the primary of epoch 5.
    fn three() -> Cluster {
        let mut cluster = Cluster::default();
        cluster.apply(Change::Found { node: 1, member: member("a"), epoch: 5 }).unwrap();
        for node in [2, 3] {
            cluster.apply(Change::Add { node, member: member("b") }).unwrap();
            assert_eq!(cluster.apply(Change::Add { node: 9, member: member("c") }), Err(Refusal::Busy));
            // The same again changes nothing.
            cluster.apply(Change::Add { node, member: member("b") }).unwrap();
            cluster.apply(Change::Adopt { epoch: 5, version: cluster.version }).unwrap();
        }
        assert_eq!((cluster.version, cluster.adopted, cluster.majority()), (3, 3, 2));
        cluster
    }

    fn report(node: u64, epoch: u64, end: (u64, u64)) -> Change {
        Change::Report { node, epoch, end: End { epoch: end.0, position: end.1 } }
    }

    #[test]
    fn the_last_log_of_a_majority_leads_by_epoch_and_then_by_position() {
        let mut cluster = three();
        cluster.apply(Change::BeginEpoch { after: 5, preferred: None }).unwrap();
        assert_eq!(cluster.apply(Change::BeginEpoch { after: 5, preferred: None }), Err(Refusal::Late));
        cluster.apply(report(2, 6, (4, 900))).unwrap();
        assert_eq!(cluster.primary(), None);
        assert_eq!(cluster.apply(report(9, 6, (9, 9))), Err(Refusal::Unknown));
        cluster.apply(report(3, 6, (5, 100))).unwrap();
        assert_eq!((cluster.epoch(), cluster.primary()), (Epoch(6), Some(NodeId(3))));
        // It is decided.
        assert_eq!(cluster.apply(report(1, 6, (5, 999))), Err(Refusal::Late));
    }

    #[test]
    fn the_preferred_one_leads_if_no_log_is_longer() {
        for (longer, chosen) in [(0, 2), (1, 3)] {
            let mut cluster = three();
            cluster.apply(Change::BeginEpoch { after: 5, preferred: Some(2) }).unwrap();
            cluster.apply(report(3, 6, (5, 100 + longer))).unwrap();
            cluster.apply(report(2, 6, (5, 100))).unwrap();
            assert_eq!(cluster.primary(), Some(NodeId(chosen)));
        }
    }

    #[test]
    fn an_epoch_ends_when_a_majority_does_not_hear_its_primary() {
        let mut cluster = three();
        let suspect = |node, suspects| Change::Suspect { node, epoch: 5, suspects };
        cluster.apply(suspect(2, true)).unwrap();
        cluster.apply(suspect(2, true)).unwrap();
        cluster.apply(suspect(2, false)).unwrap();
        cluster.apply(suspect(3, true)).unwrap();
        assert_eq!(cluster.epoch(), Epoch(5));
        cluster.apply(suspect(2, true)).unwrap();
        assert_eq!((cluster.epoch(), cluster.primary()), (Epoch(6), None));
        assert_eq!(cluster.apply(suspect(2, true)), Err(Refusal::Late));
    }

    #[test]
    fn the_set_of_voters_changes_by_one_at_a_time_and_never_by_the_primary() {
        let mut cluster = three();
        assert_eq!(cluster.apply(Change::Remove { node: 1 }), Err(Refusal::IsPrimary));
        cluster.apply(Change::Remove { node: 3 }).unwrap();
        assert_eq!(cluster.apply(Change::Confirm { node: 3 }), Err(Refusal::Unknown));
        assert_eq!(cluster.apply(Change::Remove { node: 2 }), Err(Refusal::Busy));
        cluster.apply(Change::Adopt { epoch: 5, version: 4 }).unwrap();
        cluster.apply(Change::Remove { node: 2 }).unwrap();
        assert_eq!(cluster.apply(Change::Adopt { epoch: 5, version: 4 }), Err(Refusal::Late));
    }

    fn standing(node: u64, promised: u64) -> Standing {
        Standing {
            node: NodeId(node),
            promised: Epoch(promised),
            end: End { epoch: 5, position: 100 },
            known: Epoch(5),
            writes: None,
            commits_by: (0, false),
            is_settled: true,
        }
    }

    #[test]
    fn a_voter_waits_for_the_lease_before_it_promises_and_reports_after_that() {
        let mut cluster = three();
        let mut watch = Watch::new(Patience { lease: 100, choice: 150 }, 0);
        assert_eq!(watch.duty(&cluster, &standing(2, 5), 10), Duty::Follow(NodeId(1)));
        watch.hear(Epoch(5), 200);
        cluster.apply(Change::BeginEpoch { after: 5, preferred: None }).unwrap();
        assert_eq!(watch.duty(&cluster, &standing(2, 5), 250), Duty::Nothing);
        assert_eq!(watch.duty(&cluster, &standing(2, 5), 300), Duty::Promise(Epoch(6)));
        let expected = report(2, 6, (5, 100));
        assert_eq!(watch.duty(&cluster, &standing(2, 6), 300), Duty::Propose(expected.clone()));
        cluster.apply(expected).unwrap();
        assert_eq!(watch.duty(&cluster, &standing(2, 6), 300), Duty::Nothing);
        // Nobody else reports.
        let again = Change::BeginEpoch { after: 6, preferred: None };
        assert_eq!(watch.duty(&cluster, &standing(2, 6), 9_000), Duty::Propose(again));
        cluster.apply(report(3, 6, (5, 99))).unwrap();
        assert_eq!(watch.duty(&cluster, &standing(2, 6), 9_000), Duty::Lead(Epoch(6)));
        // It has begun that epoch before it was opened.
        let known = Standing { known: Epoch(6), ..standing(2, 6) };
        let next = Change::BeginEpoch { after: 6, preferred: None };
        assert_eq!(watch.duty(&cluster, &known, 9_000), Duty::Propose(next));
    }

    #[test]
    fn a_deposed_primary_promises_reports_and_steps_down() {
        let mut cluster = three();
        let mut watch = Watch::new(Patience { lease: 100, choice: 150 }, 0);
        let writes = Standing { writes: Some(Epoch(5)), commits_by: (3, true), ..standing(1, 5) };
        assert_eq!(watch.duty(&cluster, &writes, 0), Duty::Nothing);
        let other = Standing { commits_by: (2, true), ..writes };
        assert_eq!(watch.duty(&cluster, &other, 0), Duty::Adopt);
        cluster.apply(Change::BeginEpoch { after: 5, preferred: Some(2) }).unwrap();
        assert_eq!(watch.duty(&cluster, &writes, 1), Duty::Promise(Epoch(6)));
        let promised = Standing { promised: Epoch(6), ..writes };
        assert_eq!(watch.duty(&cluster, &promised, 1), Duty::Propose(report(1, 6, (5, 100))));
        cluster.apply(report(1, 6, (5, 100))).unwrap();
        // The other one gets the rest of the log from it.
        assert_eq!(watch.duty(&cluster, &promised, 2), Duty::Nothing);
        assert_eq!(watch.duty(&cluster, &promised, 500), Duty::StepDown);
    }

    #[test]
    fn only_a_server_that_was_a_voter_leaves() {
        let cluster = three();
        let mut watch = Watch::new(Patience { lease: 100, choice: 150 }, 0);
        let confirm = Duty::Propose(Change::Confirm { node: 9 });
        assert_eq!(watch.duty(&cluster, &standing(9, 5), 0), confirm);
        watch.note_unknown();
        assert_eq!(watch.duty(&cluster, &standing(9, 5), 0), Duty::Leave);
        let unsettled = Standing { is_settled: false, ..standing(9, 5) };
        assert_eq!(watch.duty(&cluster, &unsettled, 0), Duty::Follow(NodeId(1)));
    }
}
