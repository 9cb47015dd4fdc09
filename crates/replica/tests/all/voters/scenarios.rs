//! Sequences of steps that chance alone hardly ever makes, at times that chance decides.

use super::{DATA, Link, World, address, index_of};
use crate::support::connect;
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Lsn, SqlState};
use firn_replica::cluster::Change;
use firn_replica::join;
use std::path::Path;

/// For so many rounds the simulation waits for what a scenario needs.
const ROUNDS: usize = 600;
/// The end of a time that a scenario ends.
const UNTIL_ENDED: u64 = u64::MAX;

impl World {
    /// The servers that are voters, with the primary. None while the set changes or a voter is lost.
    fn voters_of(&self, primary: usize) -> Option<Vec<usize>> {
        let cluster = self.cluster();
        let has_vote = |at: &usize| {
            let voter = self.nodes[*at].database.engine().voter();
            voter.is_some_and(|voter| cluster.member(voter.node).is_some())
        };
        let voters: Vec<usize> = (0..self.nodes.len()).filter(has_vote).collect();
        let is_whole = voters.len() == cluster.voters.len() && cluster.adopted == cluster.version;
        Some(voters).filter(|voters| is_whole && voters.contains(&primary))
    }

    /// Lets only these servers reach one another.
    fn isolate_all_but(&mut self, connected: &[usize]) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.cut_off_until = if connected.contains(&at) { 0 } else { UNTIL_ENDED };
        }
    }

    /// Lets some servers do what they have to do, until something is so, or for some rounds. Returns whether it is.
    fn drive(&mut self, servers: &[usize], until: impl Fn(&World) -> bool) -> bool {
        for _ in 0..ROUNDS {
            self.now += 5;
            for at in servers.iter().copied() {
                self.nodes[at].seen = self.history.len() - 1;
                self.duty(at);
                if until(self) {
                    return true;
                }
                self.exchange(at);
                self.replay(at);
                self.flush(at);
                self.acknowledge();
            }
        }
        until(self)
    }

    /// A server sends some of its log to a replica; all messages between the two arrive.
    pub(super) fn exchange(&mut self, at: usize) {
        self.send(at);
        self.deliver_all(at);
    }

    /// All messages between a replica and its server arrive.
    fn deliver_all(&mut self, at: usize) {
        while self.nodes[at].link.as_ref().is_some_and(Link::has_messages) && !self.is_separated(at) {
            self.deliver(at);
        }
    }

    /// The server among these that has begun the present epoch.
    fn leader_of(&self, servers: &[usize]) -> Option<usize> {
        let epoch = Some(self.cluster().epoch());
        servers.iter().copied().find(|at| self.nodes[*at].database.engine().written_epoch() == epoch)
    }

    /// A primary is lost with groups that nobody else has, and the next one with the beginning of its epoch. Then the first one leads
    /// again: a majority gets its groups, but nobody the beginning of its new epoch. It is lost again, and the second one may lead.
    /// (Ongaro, "Consensus: Bridging Theory and Practice", figure 3.7.)
    pub(super) fn lead_in_turns(&mut self) {
        let Some(first) = self.primary() else { return };
        let Some(voters) = self.voters_of(first).filter(|voters| voters.len() >= 3) else { return };
        self.nodes.iter().for_each(|node| node.disk.heal());
        if let Some(second) = self.lose_two_primaries(first, &voters) {
            self.lead_again(first, second, &voters);
        }
        let now = self.now;
        self.nodes.iter_mut().for_each(|node| node.cut_off_until = now);
    }

    /// The first part, after which both are cut off. Returns the second one.
    fn lose_two_primaries(&mut self, first: usize, voters: &[usize]) -> Option<usize> {
        let others: Vec<usize> = voters.iter().copied().filter(|at| *at != first).collect();
        self.isolate_all_but(&others);
        (0..self.random.uniform(1, 3)).for_each(|_| self.commit(first));
        self.flush(first);
        let engine = self.nodes[first].database.engine();
        if engine.committed_lsn() == engine.durable_lsn() {
            return None;
        }
        self.drive(&others, |world| world.leader_of(&others).is_some());
        let second = self.leader_of(&others)?;
        self.isolate_all_but(&[]);
        if self.one_in(2) {
            self.reopen(second, |node| node.disk.after_kill());
        }
        Some(second)
    }

    /// The second part: the first one leads again without the second one, and is lost.
    fn lead_again(&mut self, first: usize, second: usize, voters: &[usize]) {
        let without = |lost: usize| voters.iter().copied().filter(|at| *at != lost).collect::<Vec<_>>();
        let led = without(second);
        self.isolate_all_but(&led);
        self.drive(&led, |world| world.leader_of(&led).is_some());
        let Some(begun) = self.nodes[first].begun.filter(|_| self.leader_of(&led) == Some(first)) else {
            return;
        };
        // It counts by the voters.
        self.duty(first);
        let majority = self.cluster().majority();
        let end = |world: &World, at: usize| world.nodes[at].database.engine().log_point().unwrap().lsn;
        for at in led.iter().copied().filter(|at| *at != first).take(majority - 1) {
            let before = end(self, at);
            for _ in 0..ROUNDS {
                self.now += 1;
                self.nodes[at].seen = self.history.len() - 1;
                self.duty(at);
                self.exchange(at);
                self.acknowledge();
                if end(self, at) > before {
                    break;
                }
            }
            if end(self, at) >= begun {
                return;
            }
        }
        self.counts.led_in_turns += 1;
        self.replay(first);
        self.acknowledge();
        let led = without(first);
        self.isolate_all_but(&led);
        self.drive(&led, |world| world.leader_of(&led).is_some());
    }

    /// A primary sends groups to voters. Before these arrive, the voters promise to follow the next epoch, of which the primary does not
    /// learn.
    pub(super) fn promise_before_delivery(&mut self) {
        let Some(primary) = self.primary() else { return };
        let Some(voters) = self.voters_of(primary).filter(|voters| voters.len() >= 3) else { return };
        let others: Vec<usize> = voters.iter().copied().filter(|at| *at != primary).collect();
        self.nodes.iter().for_each(|node| node.disk.heal());
        self.isolate_all_but(&voters);
        self.settle(5, 1);
        if self.primary() == Some(primary) {
            (0..self.random.uniform(1, 3)).for_each(|_| self.commit(primary));
            self.flush(primary);
            others.iter().for_each(|at| self.send(*at));
            let epoch = self.cluster().epoch;
            let _ = self.change(Change::BeginEpoch { after: epoch, preferred: None });
            for at in others.iter().copied().cycle().take(ROUNDS) {
                self.now += 1;
                self.nodes[at].seen = self.history.len() - 1;
                self.duty(at);
                if self.cluster().primary().is_some() {
                    break;
                }
            }
            let appointed =
                self.cluster().primary().and_then(|node| self.cluster().member(node)).map(index_of);
            for at in others.iter().copied().filter(|at| Some(*at) != appointed) {
                self.deliver_all(at);
            }
            self.counts.promised_before_delivery += usize::from(appointed.is_some());
            self.drive(&others, |world| world.leader_of(&others).is_some());
        }
        let now = self.now;
        self.nodes.iter_mut().for_each(|node| node.cut_off_until = now);
    }

    /// A replica is lost while it makes durable what it has received. What it has sent before may arrive.
    pub(super) fn end_in_answer(&mut self, at: usize) {
        self.send(at);
        if self.nodes[at].link.is_none() {
            return;
        }
        // A write, a sync, or the change of a name.
        let operations = self.random.uniform(0, 5) as u64;
        self.nodes[at].disk.fail_after_operations(operations, Fault::Broken);
        for _ in 0..20 {
            self.deliver(at);
            if self.nodes[at].link.is_none() {
                self.counts.ended_in_answer += 1;
                let mut random = Random::seeded(self.random.next_u64());
                return self.reopen(at, |node| node.disk.after_power_cut(&mut random));
            }
        }
        self.nodes[at].disk.heal();
    }

    /// A primary is stopped while it writes a checkpoint, which waits for the other voters.
    pub(super) fn stop_in_checkpoint(&mut self) {
        let Some(primary) = self.primary() else { return };
        (0..self.random.uniform(1, 3)).for_each(|_| self.commit(primary));
        let engine = self.nodes[primary].database.engine().clone();
        engine.end_waits();
        match engine.checkpoint() {
            Ok(()) => self.counts.checkpoints += 1,
            Err(error) => {
                let expected = [SqlState::TRANSACTION_RESOLUTION_UNKNOWN, SqlState::DISK_FULL];
                assert!(expected.contains(&error.state()), "{error}");
                self.counts.stopped_in_checkpoint += 1;
            }
        }
        drop(engine);
        self.end_node(primary);
    }

    /// A voter loses its disk. It joins again as a replica, of a server that can be reached, and an operator may make it a voter.
    /// Perhaps the primary is cut off just then, and one is back that lacks what the lost disk had.
    pub(super) fn lose_disk(&mut self, at: usize) {
        if !self.may_be_wiped(at) {
            return;
        }
        let is_voter = |at: &usize| self.nodes[*at].database.engine().voter().is_some();
        let primary = self.primary().filter(|primary| *primary != at && !self.is_cut_off(*primary));
        let absent = (0..self.nodes.len())
            .find(|other| ![Some(at), primary].contains(&Some(*other)) && is_voter(other));
        if let (Some(absent), Some(primary), true) = (absent, primary, self.one_in(2)) {
            self.nodes[absent].cut_off_until = UNTIL_ENDED;
            (0..self.random.uniform(1, 3)).for_each(|_| self.commit(primary));
            self.flush(primary);
            (0..4).for_each(|_| self.exchange(at));
            self.acknowledge();
            self.nodes[absent].cut_off_until = self.now;
            self.nodes[primary].cut_off_until = self.in_leases(4, 8);
        }
        self.nodes[at].cut_off_until = self.now;
        let reached: Vec<usize> =
            (0..self.nodes.len()).filter(|other| *other != at && self.may_be_copied(*other)).collect();
        for from in reached {
            let disk = SimulatedDisk::new();
            let dynamic: Arc<dyn Disk> = disk.clone();
            let mut pipe = connect(&self.nodes[from].database);
            if join::join(&dynamic, Path::new(DATA), &mut pipe, &address(from), "r").is_err() {
                continue;
            }
            drop(pipe);
            self.counts.wiped += 1;
            self.nodes[at].said = Lsn(0);
            self.reopen(at, |_| disk);
            self.nodes[at].upstream = Some(from);
            if self.one_in(2) {
                self.add_voter(at);
            }
            return;
        }
    }

    /// Whether a server can be reached, and a copy of it need not wait for other voters.
    fn may_be_copied(&self, at: usize) -> bool {
        let engine = self.nodes[at].database.engine();
        let waits = engine.written_epoch().is_some() && engine.committed_lsn().0 < engine.log_bytes().0;
        !self.is_cut_off(at) && !waits
    }

    /// Whether a majority of the voters still has its disks without this one.
    fn may_be_wiped(&self, at: usize) -> bool {
        let cluster = self.cluster();
        let number = self.nodes[at].database.engine().voter().map(|voter| voter.node.0);
        let is_voter = number.is_some_and(|number| cluster.voters.contains_key(&number));
        let left = cluster.voters.len() - self.lost_voters().len();
        is_voter && cluster.adopted == cluster.version && left > cluster.majority()
    }

    /// The voters that nobody is any more.
    pub(super) fn lost_voters(&self) -> Vec<u64> {
        let numbers: Vec<u64> = self
            .nodes
            .iter()
            .filter_map(|node| node.database.engine().voter().map(|voter| voter.node.0))
            .collect();
        self.cluster().voters.keys().copied().filter(|voter| !numbers.contains(voter)).collect()
    }
}
