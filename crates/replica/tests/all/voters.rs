//! A simulation of voters on one thread: each seed is one sequence of steps, with clients, lost connections, kills, power cuts, full disks,
//! lost disks, disks that fail while a server writes, servers that are cut off, clocks that run fast and slow, and changes of the set of
//! voters. What the voters agree on is in a register that all share, and learn of late.
//!
//! The engines have no threads. What is sent waits in queues until the simulation delivers it, message by message.
//!
//! Checked: no commit that a client was told of is lost; no two primaries acknowledge commits in one epoch; what is replayed has the state
//! that the primary had, with the ids of all rows; a server that is no voter is never ahead of the voters; a server has on disk what it has
//! said to have there; what is committed is one history ([`crate::one_history`]); a primary has no lease any more when another one has been
//! appointed.

mod scenarios;

use crate::one_history::OneHistory;
use crate::sim::{DATA, End, Queue, open, state};
use crate::support::{Totals, connect, for_each_seed};
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Epoch, Lsn, NodeId, SqlState};
use firn_replica::cluster::{
    Change, Cluster, Duty, End as LogEnd, Lead, Member, Outcome, Patience, Refusal, Standing, Watch,
};
use firn_replica::message::Request;
use firn_replica::quorum::Rules;
use firn_replica::rejoin::{Rejoined, rejoin};
use firn_replica::{Channel, Peer, Receiver, Senders, Serving, join};
use firn_session::{Connection, Database};
use firn_txn::Replayer;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// Prints what happens, if the environment variable FIRN_SIM_TRACE is set: to understand a seed.
macro_rules! note {
    ($($part:tt)*) => {
        if std::env::var_os("FIRN_SIM_TRACE").is_some() {
            eprintln!($($part)*);
        }
    };
}

const NODES: usize = 5;
const FOUNDERS: usize = 3;

/// A connection of a replica.
struct Link {
    upstream: usize,
    serving: Serving,
    receiver: Receiver,
    to_replica: Queue,
    to_server: Queue,
}

/// A commit whose client waits.
struct Pending {
    id: i64,
    lsn: Lsn,
    time: u64,
    state: Option<String>,
}

struct Node {
    disk: Arc<SimulatedDisk>,
    database: Database,
    replayer: Option<Replayer>,
    /// Where the beginning of the epoch ends for which it has been appointed.
    begun: Option<Lsn>,
    senders: Senders,
    link: Option<Link>,
    /// Whom it follows.
    upstream: Option<usize>,
    client: Option<Connection>,
    pending: VecDeque<Pending>,
    watch: Watch,
    /// Which state of the cluster it knows.
    seen: usize,
    /// It reaches nobody before this time.
    cut_off_until: u64,
    /// Up to where it has said to have the log on disk.
    said: Lsn,
    clock: Clock,
}

/// A server's clock, and how long it waits by it.
#[derive(Clone, Copy)]
struct Clock {
    /// So many thousandths of the true speed.
    speed: u64,
    patience: Patience,
}

/// How often what is rare has happened.
#[derive(Default, Debug)]
pub struct Counts {
    commits: usize,
    acknowledged: usize,
    given_up: usize,
    compared: usize,
    epochs: usize,
    takeovers: usize,
    asked_to_hand_over: usize,
    handed_over: usize,
    deposed: usize,
    kills: usize,
    cut_off: usize,
    swapped: usize,
    ended_in_flush: usize,
    cut: usize,
    copied: usize,
    begun_anew: usize,
    added: usize,
    removed: usize,
    added_while_cut_off: usize,
    refused_by_disk: usize,
    checkpoints: usize,
    ended_leases: usize,
    ended_in_answer: usize,
    stopped_in_checkpoint: usize,
    led_in_turns: usize,
    wiped: usize,
    promised_before_delivery: usize,
}

struct World {
    random: Random,
    now: u64,
    /// After so long without a message a primary is given up.
    lease: u64,
    nodes: Vec<Node>,
    /// All states of the cluster.
    history: Vec<Arc<Cluster>>,
    /// The ids that were acknowledged.
    acknowledged: BTreeSet<i64>,
    /// Who has acknowledged in an epoch.
    acknowledgers: BTreeMap<u64, usize>,
    /// The state at some commit times that were acknowledged.
    states: BTreeMap<u64, String>,
    committed: OneHistory,
    next: i64,
    trace: Vec<(usize, usize, u64)>,
    counts: Counts,
}

fn address(node: usize) -> String {
    format!("node{node}:1")
}

fn member(node: usize) -> Member {
    Member { name: format!("node{node}"), address: address(node) }
}

fn index_of(member: &Member) -> usize {
    member.name.strip_prefix("node").and_then(|number| number.parse().ok()).expect("its name has its number")
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::seeded(seed);
        let disk = SimulatedDisk::new();
        let database = open(&disk);
        let mut client = database.connect();
        client.execute("CREATE TABLE acks (id bigint PRIMARY KEY)").unwrap();
        client.execute("CREATE TABLE ledger (id bigint PRIMARY KEY, text text)").unwrap();
        database.engine().flush_log().unwrap();
        drop(client);
        let lease = [30, 80, 200][random.uniform(0, 2) as usize];
        let patience = Patience { lease, choice: lease + 20 };
        let clock = |random: &mut Random| Clock { speed: random.uniform(850, 1150) as u64, patience };
        let mut nodes = vec![Node::of(disk, database, 0, clock(&mut random))];
        for _ in 1..NODES {
            let disk = SimulatedDisk::new();
            let dynamic: Arc<dyn Disk> = disk.clone();
            let mut pipe = connect(&nodes[0].database);
            join::join(&dynamic, Path::new(DATA), &mut pipe, &address(0), "r").unwrap();
            let database = open(&disk);
            nodes.push(Node::of(disk, database, 0, clock(&mut random)));
        }
        let committed = OneHistory::from(nodes[0].database.engine());
        let mut world = World {
            random,
            now: 10_000,
            lease,
            nodes,
            history: vec![Arc::default()],
            acknowledged: BTreeSet::new(),
            acknowledgers: BTreeMap::new(),
            states: BTreeMap::new(),
            committed,
            next: 0,
            trace: Vec::new(),
            counts: Counts::default(),
        };
        let engine = world.nodes[0].database.engine().clone();
        let epoch = engine.written_epoch().unwrap();
        let founder = NodeId(world.random.next_u64());
        engine.begin_to_vote(founder, epoch).unwrap();
        world.change(Change::Found { node: founder.0, member: member(0), epoch: epoch.0 }).unwrap();
        world.nodes[0].client = Some(world.nodes[0].database.connect());
        for at in 1..NODES {
            world.nodes[at].upstream = Some(0);
        }
        for at in 1..FOUNDERS {
            world.settle(10, 1);
            assert!(world.add_voter(at), "nothing prevents it");
        }
        world.settle(10, 1);
        world
    }

    fn cluster(&self) -> &Arc<Cluster> {
        self.history.last().expect("there is one")
    }

    fn change(&mut self, change: Change) -> Outcome {
        let mut cluster = (**self.cluster()).clone();
        cluster.apply(change)?;
        self.counts.epochs += usize::from(cluster.epoch > self.cluster().epoch);
        note!("{:?}", cluster);
        self.history.push(Arc::new(cluster));
        Ok(())
    }

    fn one_in(&mut self, many: i64) -> bool {
        self.random.uniform(1, many) == 1
    }

    fn any_node(&mut self) -> usize {
        self.random.uniform(0, NODES as i64 - 1) as usize
    }

    fn is_cut_off(&self, at: usize) -> bool {
        self.nodes[at].cut_off_until > self.now
    }

    /// Whether no message passes between a replica and the server to which it is connected.
    fn is_separated(&self, at: usize) -> bool {
        let upstream = self.nodes[at].link.as_ref().map(|link| link.upstream);
        self.is_cut_off(at) || upstream.is_none_or(|upstream| self.is_cut_off(upstream))
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now += self.random.uniform(0, 1) as u64;
            let (kind, at) = (self.random.uniform(0, 199), self.any_node());
            match kind {
                0..=39 => self.commit(at),
                40..=59 => self.send(at),
                60..=119 => self.deliver(at),
                120..=139 => self.replay(at),
                140..=149 => self.duty(at),
                150..=154 => self.see(at),
                155..=162 => self.flush(at),
                163..=168 => drop(self.nodes[at].database.engine().work_in_background()),
                169..=172 => self.checkpoint(at),
                // Otherwise most of the time nobody would be the primary.
                173..=192 => self.settle(1, 1),
                _ => self.disturb(at),
            }
            self.acknowledge();
            self.trace.push((kind as usize, at, self.nodes[at].database.engine().now().0));
        }
        // In the end all is well again.
        for node in &mut self.nodes {
            node.disk.heal();
            node.cut_off_until = 0;
        }
        let primary = self.settle_to_the_end();
        self.commit(primary);
        let primary = self.settle_to_the_end();
        let expected = state(&self.nodes[primary].database);
        for at in (0..NODES).filter(|at| *at != primary) {
            let node = &self.nodes[at];
            assert!(state(&node.database) == expected, "node {at} has the state of {primary}");
        }
        self.check_acknowledged(primary);
    }

    /// Lets all servers go on until one is the primary, and all have everything. Returns that one.
    fn settle_to_the_end(&mut self) -> usize {
        const ROUNDS: usize = 8_000;
        for _ in 0..ROUNDS {
            self.settle(1, 5);
            if let Some(primary) = self.primary() {
                let end = self.nodes[primary].database.engine().durable_lsn();
                let has_all = |node: &Node| {
                    let engine = node.database.engine();
                    engine.committed_lsn() >= end && (!engine.is_replica() || engine.visible_lsn() >= end)
                };
                if self.nodes[primary].pending.is_empty() && self.nodes.iter().all(has_all) {
                    return primary;
                }
            }
        }
        panic!("a primary takes over, and the others catch up: {:?}", self.cluster());
    }

    /// Something fails, or an operator changes something.
    fn disturb(&mut self, at: usize) {
        match self.random.uniform(0, 19) {
            0 => self.nodes[at].link = None,
            1 => self.hand_over_to(at),
            2..=3 => self.cut_off(at),
            4 => self.cut_off_primary(),
            5..=6 => self.swap_cut_off(at),
            7 => self.end_node(at),
            8 => self.end_in_flush(),
            9 => self.end_in_answer(at),
            10 => self.stop_in_checkpoint(),
            11..=12 => self.break_disk(at),
            13 => self.hand_over_to(at),
            14 => drop(self.add_voter(at)),
            15 => self.remove_voter(at),
            16..=17 => self.lose_disk(at),
            18 if self.one_in(4) => self.lead_in_turns(),
            19 if self.one_in(4) => self.promise_before_delivery(),
            _ => self.see(at),
        }
    }

    /// Lets all servers do what they have to do, for so many rounds. Each takes some time.
    fn settle(&mut self, rounds: usize, time: u64) {
        for _ in 0..rounds {
            self.now += time;
            for at in 0..NODES {
                if !self.is_cut_off(at) {
                    self.nodes[at].seen = self.history.len() - 1;
                }
                self.duty(at);
                self.exchange(at);
                self.replay(at);
                self.flush(at);
                self.acknowledge();
            }
        }
    }

    /// The primary of the present epoch.
    fn primary(&self) -> Option<usize> {
        let node = self.cluster().primary()?;
        let at = index_of(self.cluster().member(node)?);
        let engine = self.nodes[at].database.engine();
        (!engine.is_replica() && engine.written_epoch() == Some(self.cluster().epoch())).then_some(at)
    }

    /// A client's transaction, of which it is told later.
    fn commit(&mut self, at: usize) {
        let (id, kind, old) =
            (self.next, self.random.uniform(0, 9), self.random.uniform(0, self.next.max(1)));
        let many = self.random.uniform(0, 30);
        // Clients find the primary, or one that was it before.
        let at = if self.nodes[at].client.is_some() { at } else { self.primary().unwrap_or(at) };
        let Some(client) = &mut self.nodes[at].client else { return };
        self.next += 1;
        let other = match kind {
            0..=3 => format!("INSERT INTO ledger VALUES ({id}, 'new')"),
            4 => format!("UPDATE ledger SET text = text || '{id}' WHERE id % 7 = {}", old % 7),
            5 => format!("DELETE FROM ledger WHERE id % 5 = {}", old % 5),
            6 => format!(
                "INSERT INTO ledger SELECT g, 'many' || g FROM generate_series({}, {}) g ON CONFLICT DO NOTHING",
                id * 1000,
                id * 1000 + many
            ),
            7 => "DROP TABLE IF EXISTS made; CREATE TABLE made AS SELECT g FROM generate_series(1, 400) g"
                .into(),
            8 => "DROP INDEX IF EXISTS by_text; CREATE INDEX by_text ON ledger (text)".into(),
            _ => "SELECT 1".into(),
        };
        let sql =
            format!("SET synchronous_commit = off; BEGIN; {other}; INSERT INTO acks VALUES ({id}); COMMIT");
        if let Err(error) = client.execute(&sql) {
            let expected = [SqlState::UNIQUE_VIOLATION, SqlState::ADMIN_SHUTDOWN, SqlState::DISK_FULL];
            assert!(expected.contains(&error.state()), "{error}");
            self.counts.refused_by_disk += usize::from(error.state() == SqlState::DISK_FULL);
            client.execute("ROLLBACK").unwrap();
            return;
        }
        self.counts.commits += 1;
        let engine = self.nodes[at].database.engine().clone();
        let noted = self.one_in(4).then(|| state(&self.nodes[at].database));
        // With everything that it has seen.
        let pending = Pending { id, lsn: Lsn(engine.log_bytes().0), time: engine.now().0, state: noted };
        self.nodes[at].pending.push_back(pending);
    }

    /// Once another primary has been appointed, no earlier one may believe that it is the primary: readers rely on it.
    fn check_leases(&mut self) {
        if self.cluster().primary().is_none() {
            return;
        }
        let (epoch, fastest) = (self.cluster().epoch(), self.nodes.iter().map(|node| node.clock.speed).max());
        for at in 0..NODES {
            let engine = self.nodes[at].database.engine();
            let is_former =
                engine.written_epoch().is_some_and(|written| written < epoch) && !engine.is_replica();
            // What is promised holds for clocks of which none is a tenth slower than another one.
            if !is_former || self.nodes[at].clock.speed * 10 < fastest.expect("there are nodes") * 9 {
                continue;
            }
            let (lease, now) = (engine.lease(), self.time_of(at));
            assert!(
                lease.is_some_and(|until| until <= now),
                "node {at} believes until {lease:?} that it is the primary"
            );
            self.counts.ended_leases += usize::from(lease > Some(0));
        }
    }

    fn check_committed(&mut self) {
        self.committed.check(self.nodes.iter().map(|node| &**node.database.engine()));
    }

    /// Clients learn that their commits are durable.
    fn acknowledge(&mut self) {
        self.check_leases();
        self.check_committed();
        for at in 0..NODES {
            let engine = self.nodes[at].database.engine().clone();
            let committed = engine.committed_lsn();
            while let Some(done) = self.nodes[at].pending.pop_front_if(|pending| pending.lsn <= committed) {
                self.counts.acknowledged += 1;
                let epoch = engine.written_epoch().expect("it is a primary").0;
                let by = *self.acknowledgers.entry(epoch).or_insert(at);
                assert_eq!(by, at, "two primaries acknowledge commits in epoch {epoch}");
                note!("node {at} acknowledges {} at {:?} in epoch {epoch}", done.id, done.lsn);
                self.acknowledged.insert(done.id);
                if let Some(state) = done.state {
                    self.states.insert(done.time, state);
                }
            }
        }
    }

    /// All commits are there of which clients have been told.
    fn check_acknowledged(&self, at: usize) {
        let mut connection = self.nodes[at].database.connect();
        connection.execute("SET synchronous_commit = off").unwrap();
        let ids = "SELECT coalesce(string_agg(id::text, ',' ORDER BY id), '') FROM acks";
        let there = connection.query_row_as::<String>(ids, ()).unwrap().unwrap();
        let there: BTreeSet<i64> = there.split(',').filter_map(|id| id.parse().ok()).collect();
        let lost: Vec<&i64> = self.acknowledged.difference(&there).collect();
        assert!(lost.is_empty(), "node {at} lacks acknowledged commits: {lost:?}");
    }

    /// A server sends what there is to a replica, which connects if it is not connected.
    fn send(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(upstream) = node.upstream.filter(|upstream| *upstream != at) else { return };
        if node.replayer.is_none() || node.begun.is_some() || self.is_cut_off(at) || self.is_cut_off(upstream)
        {
            return;
        }
        let is_current = |link: &Link| link.upstream == upstream && link.receiver.is_current();
        if !node.link.as_ref().is_some_and(is_current) {
            let server = &self.nodes[upstream];
            let (to_replica, to_server) = (Queue::default(), Queue::default());
            let peer = Peer { name: String::new(), voter: None, session: 0, client: None, begun: 0 };
            let mut end = End { outgoing: to_server.clone() };
            let serving = Serving::new(server.database.engine().clone(), server.senders.clone(), peer);
            let receiver = Receiver::begin(node.database.engine().clone(), &mut end, "r").unwrap();
            self.nodes[at].link = Some(Link { upstream, serving, receiver, to_replica, to_server });
            return;
        }
        let now = self.time_of(upstream);
        let link = self.nodes[at].link.as_mut().expect("just seen");
        let mut end = End { outgoing: link.to_replica.clone() };
        link.serving.beat(now);
        if link.serving.send_some(&mut end).is_err() {
            self.nodes[at].link = None;
        }
    }

    /// Delivers one message to a server or to its replica, if one waits.
    fn deliver(&mut self, at: usize) {
        self.deliver_unchecked(at);
        self.check_committed();
    }

    /// The same, without a check of what is committed.
    fn deliver_unchecked(&mut self, at: usize) {
        let watch = self.nodes[at].watch;
        let to_server = self.one_in(2);
        if self.is_separated(at) {
            return;
        }
        let link = self.nodes[at].link.as_mut().expect("just seen");
        let upstream = link.upstream;
        let message = if to_server { link.to_server.borrow_mut().pop_front() } else { None };
        if let Some(message) = message {
            let mut end = End { outgoing: link.to_replica.clone() };
            let asks = link.serving.is_sending();
            if let Err(error) = link.serving.take(&message, &mut end) {
                self.nodes[at].link = None;
                let is_voter = self.nodes[at].database.engine().voter().is_some();
                note!("node {at} cannot follow {upstream}: {error}");
                for one in [at, upstream] {
                    let engine = self.nodes[one].database.engine();
                    let (point, committed) = (engine.log_point(), engine.committed_lsn());
                    note!("  {one}: {point:?}, committed {committed:?}, writes {:?}", engine.written_epoch());
                }
                match error.state() {
                    _ if asks => {}
                    SqlState::UNDEFINED_FILE => self.begin_anew(at, upstream),
                    // What a voter has more than the primary of a later epoch is of another history.
                    SqlState::CANNOT_CONNECT_NOW if is_voter => self.rejoin(at, upstream),
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => {
                        assert!(is_voter, "only a voter can be ahead of the voters: {error}");
                        self.rejoin(at, upstream);
                    }
                    // The server does not have everything yet.
                    SqlState::CANNOT_CONNECT_NOW => {}
                    // Its disk has failed, and it ends.
                    SqlState::IO_ERROR => {}
                    _ => panic!("{error}"),
                }
            }
            return;
        }
        let Some(message) = link.to_replica.borrow_mut().pop_front() else { return };
        let mut end = End { outgoing: link.to_server.clone() };
        let taken = link.receiver.take(&message, &mut end).map(drop);
        if !watch.may_rely(link.receiver.sender()) {
            link.receiver.forget_beat();
        }
        let answered = match taken {
            Ok(()) if link.to_replica.borrow().is_empty() && link.serving.is_sending() => {
                link.receiver.answer(&mut end).map(drop)
            }
            other => other,
        };
        let epoch = link.receiver.sender();
        self.note_said(at);
        match answered {
            Ok(()) => {
                let now = self.time_of(at);
                self.nodes[at].watch.hear(epoch, now);
            }
            Err(error) => {
                // A voter has promised to follow a later epoch, or its disk is full, or has failed.
                let expected = [
                    SqlState::DISK_FULL,
                    SqlState::IO_ERROR,
                    SqlState::CANNOT_CONNECT_NOW,
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                ];
                assert!(expected.contains(&error.state()), "{error}");
                self.counts.refused_by_disk += usize::from(error.state() == SqlState::DISK_FULL);
                // What was sent before may arrive.
                if let Some(mut link) = self.nodes[at].link.take() {
                    let mut end = End { outgoing: link.to_replica.clone() };
                    while let Some(message) = link.to_server.borrow_mut().pop_front()
                        && !self.one_in(4)
                        && link.serving.take(&message, &mut end).is_ok()
                    {}
                }
            }
        }
    }

    /// Notes what a replica has said to have on disk.
    fn note_said(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(link) = &node.link else { return };
        for message in link.to_server.borrow().iter() {
            if let Ok(Request::Status { reached: status, .. }) = Request::decode(message) {
                node.said = node.said.max(status.flushed);
            }
        }
    }

    /// The time that a server's clock shows.
    fn time_of(&self, at: usize) -> u64 {
        self.now * self.nodes[at].clock.speed / 1000
    }

    /// What a server knows of the cluster becomes newer.
    fn see(&mut self, at: usize) {
        if !self.is_cut_off(at) {
            let newest = self.history.len() - 1;
            let node = &mut self.nodes[at];
            node.seen = self.random.uniform(node.seen as i64, newest as i64) as usize;
        }
    }

    /// A voter does what it has to do.
    fn duty(&mut self, at: usize) {
        let now = self.time_of(at);
        let (cluster, node) = (self.history[self.nodes[at].seen].clone(), &mut self.nodes[at]);
        let engine = node.database.engine().clone();
        let Some(voter) = engine.voter() else {
            node.upstream = cluster.primary().and_then(|primary| cluster.member(primary)).map(index_of);
            return;
        };
        let point = engine.log_point().unwrap();
        let standing = Standing {
            node: voter.node,
            promised: voter.promised,
            end: LogEnd { epoch: point.epoch.0, position: point.lsn.0 },
            known: engine.known_epoch(),
            writes: engine.written_epoch(),
            commits_by: node.senders.quorum().version(),
            is_settled: engine.committed_lsn() == engine.durable_lsn(),
        };
        match node.watch.duty(&cluster, &standing, now) {
            Duty::Nothing => {}
            Duty::Promise(epoch) => match engine.promise(epoch) {
                // The connection ends when a message arrives over it.
                Ok(_) => {}
                Err(error) => assert_eq!(error.state(), SqlState::DISK_FULL, "{error}"),
            },
            Duty::Propose(change) => {
                if !self.is_cut_off(at) && !self.one_in(8) {
                    // It may be too late.
                    if self.change(change) == Err(Refusal::Unknown) {
                        self.nodes[at].watch.note_unknown();
                    }
                }
            }
            Duty::Lead(epoch) => {
                let before = self.history.iter().rev().find(|before| before.primary().is_none());
                let preferred = before.and_then(|before| match before.lead {
                    Lead::Choosing { preferred, .. } => preferred,
                    Lead::Primary(_) => None,
                });
                let is_new = self.nodes[at].begun.is_none() && preferred == Some(voter.node.0);
                self.counts.handed_over += usize::from(is_new);
                self.lead(at, epoch);
            }
            Duty::Follow(primary) => {
                node.upstream = cluster.member(primary).map(index_of);
            }
            Duty::StepDown => {
                self.counts.deposed += 1;
                self.reopen(at, |node| node.disk.after_kill());
            }
            Duty::Adopt => {
                let floor = node.begun.unwrap_or(Lsn(0));
                let voters = cluster.voters.keys().copied();
                note!("node {at} counts by {:?} from {floor:?}", cluster.voters);
                let rules = Rules { version: cluster.version, floor, lease: node.clock.patience.lease };
                node.senders.count_by(&engine, voter.node, voters, rules);
            }
            Duty::Leave => {
                if let Some(primary) = cluster.primary().and_then(|primary| cluster.member(primary)) {
                    node.upstream = Some(index_of(primary));
                    engine.set_upstream(&primary.address);
                }
                if engine.cease_to_vote().is_err() {
                    return;
                }
                self.counts.removed += 1;
                self.reopen(at, |node| node.disk.after_kill());
            }
        }
    }

    /// A voter that has been appointed begins its epoch.
    fn lead(&mut self, at: usize, epoch: Epoch) {
        let node = &mut self.nodes[at];
        if node.begun.is_some() {
            return;
        }
        node.link = None;
        match node.replayer.as_mut().expect("it is a replica").begin_epoch(epoch) {
            Ok(begun) => {
                note!("node {at} begins {epoch:?} at {begun:?}");
                node.begun = Some(begun);
                self.committed.check_successor(node.database.engine());
            }
            Err(error) => {
                assert_eq!(error.state(), SqlState::DISK_FULL, "{error}");
                self.reopen(at, |node| node.disk.after_kill());
            }
        }
    }

    fn replay(&mut self, at: usize) {
        let limit = self.random.uniform(1, 3);
        for _ in 0..limit {
            let node = &mut self.nodes[at];
            let Some(replayer) = &mut node.replayer else { return };
            let replayed = replayer.replay_next();
            let replayed = replayed.unwrap_or_else(|error| {
                let engine = node.database.engine();
                panic!(
                    "node {at} cannot replay: {error}; {:?}, log {:?}, committed {:?}, begun {:?}",
                    replayer.point(),
                    engine.log_point(),
                    engine.committed_point(),
                    node.begun
                );
            });
            if let Some(begun) = node.begun
                && replayer.take_over(begun).unwrap()
            {
                self.counts.takeovers += 1;
                note!("node {at} takes over at {begun:?}");
                node.replayer = None;
                node.client = Some(node.database.connect());
                self.check_acknowledged(at);
                return;
            }
            if replayed.is_none() {
                return;
            }
            self.compare(at);
        }
    }

    /// What a server shows.
    fn compare(&mut self, at: usize) {
        let database = &self.nodes[at].database;
        if let Some(expected) = self.states.get(&database.engine().now().0) {
            assert!(*expected == state(database), "node {at} shows another state");
            self.counts.compared += 1;
        }
    }

    fn flush(&mut self, at: usize) {
        let engine = self.nodes[at].database.engine();
        if engine.written_epoch().is_some() {
            engine.flush_log().unwrap();
        }
    }

    fn checkpoint(&mut self, at: usize) {
        let engine = self.nodes[at].database.engine();
        // It would wait until everything is committed.
        if !engine.is_replica() && engine.committed_lsn().0 < engine.log_bytes().0 {
            return;
        }
        self.counts.checkpoints += 1;
        if let Err(error) = self.nodes[at].database.checkpoint() {
            assert_eq!(error.state(), SqlState::DISK_FULL, "{error}");
        }
    }

    /// Some time from now, between so many leases.
    fn in_leases(&mut self, least: u64, most: u64) -> u64 {
        self.now + self.random.uniform((least * self.lease) as i64, (most * self.lease) as i64) as u64
    }

    fn cut_off(&mut self, at: usize) {
        self.counts.cut_off += 1;
        let leases = if self.one_in(4) { 4 } else { 1 };
        self.nodes[at].cut_off_until = self.in_leases(0, leases);
    }

    /// The primary goes on for a while with nobody but its clients.
    fn cut_off_primary(&mut self) {
        if let Some(primary) = self.primary() {
            self.counts.cut_off += 1;
            (0..self.random.uniform(0, 4)).for_each(|_| self.commit(primary));
            self.flush(primary);
            self.nodes[primary].cut_off_until = self.in_leases(1, 4);
        }
    }

    /// A server that was cut off is back, just when the primary is lost: so it may be needed with a log that leaves that of the others.
    fn swap_cut_off(&mut self, at: usize) {
        if let Some(primary) = self.primary().filter(|primary| *primary != at && self.is_cut_off(at)) {
            self.counts.swapped += 1;
            (0..self.random.uniform(0, 3)).for_each(|_| self.commit(primary));
            self.flush(primary);
            self.nodes[at].cut_off_until = self.now;
            self.nodes[primary].cut_off_until = self.in_leases(1, 4);
        }
    }

    /// The process of a server is killed, or its machine loses power.
    fn end_node(&mut self, at: usize) {
        self.counts.kills += 1;
        note!("node {at} is killed");
        let mut random = Random::seeded(self.random.next_u64());
        match self.one_in(2) {
            true => self.reopen(at, |node| node.disk.after_kill()),
            false => self.reopen(at, |node| node.disk.after_power_cut(&mut random)),
        }
    }

    /// The primary is lost while it writes a group, which others may have already.
    fn end_in_flush(&mut self) {
        let Some(primary) = self.primary() else { return };
        (0..self.random.uniform(1, 3)).for_each(|_| self.commit(primary));
        self.nodes[primary].disk.fail_after_bytes(self.random.uniform(0, 500) as u64, Fault::Broken);
        if self.nodes[primary].database.engine().flush_log().is_ok() {
            self.nodes[primary].disk.heal();
            return;
        }
        self.counts.ended_in_flush += 1;
        for at in (0..NODES).filter(|at| *at != primary) {
            if self.one_in(2) {
                self.send(at);
                (0..self.random.uniform(0, 8)).for_each(|_| self.deliver(at));
            }
        }
        self.end_node(primary);
    }

    /// Closes a database, and opens it again on what `disk` returns.
    fn reopen(&mut self, at: usize, disk: impl FnOnce(&mut Node) -> Arc<SimulatedDisk>) {
        for other in (0..NODES).filter(|other| *other != at) {
            if self.nodes[other].link.as_ref().is_some_and(|link| link.upstream == at) {
                self.nodes[other].link = None;
            }
        }
        let node = &mut self.nodes[at];
        self.counts.given_up += node.pending.len();
        let disk = disk(node);
        disk.heal();
        self.open(at, disk);
        self.compare(at);
    }

    fn open(&mut self, at: usize, disk: Arc<SimulatedDisk>) {
        let now = self.time_of(at);
        let node = &self.nodes[at];
        let (upstream, seen, cut_off_until, said, clock) =
            (node.upstream, node.seen, node.cut_off_until, node.said, node.clock);
        let database = open(&disk);
        let end = database.engine().log_point().unwrap().lsn;
        assert!(end >= said, "node {at} has said to have the log up to {said:?}, and has it up to {end:?}");
        let mut new = Node::of(disk, database, now, clock);
        (new.upstream, new.seen, new.cut_off_until, new.said) = (upstream, seen, cut_off_until, said);
        self.nodes[at] = new;
        assert!(self.nodes[at].replayer.is_some(), "a voter begins as a replica");
    }

    fn begin_anew(&mut self, at: usize, from: usize) {
        let (directory, disk) = (Path::new(DATA), self.nodes[at].disk.clone());
        disk.heal();
        let dynamic: Arc<dyn Disk> = disk.clone();
        let upstream = &self.nodes[from].database;
        let identity = upstream.engine().identity().unwrap();
        let voter = self.nodes[at].database.engine().voter();
        let name = address(from);
        let copied =
            join::copy_anew(&dynamic, directory, &mut connect(upstream), (&name, None), "r", identity, voter);
        if copied.is_err() {
            return;
        }
        self.counts.begun_anew += 1;
        self.nodes[at].said = Lsn(0);
        // It may promise something meanwhile.
        if self.one_in(3) {
            self.see(at);
            self.duty(at);
        }
        self.reopen(at, |node| {
            let disk = node.disk.after_kill();
            join::finish(&*disk, directory).unwrap();
            disk
        });
    }

    /// The log of a voter is cut where it leaves that of the primary.
    fn rejoin(&mut self, at: usize, from: usize) {
        self.nodes[at].disk.heal();
        let disk = match self.one_in(2) {
            true => self.nodes[at].disk.after_kill(),
            false => self.nodes[at].disk.after_power_cut(&mut self.random),
        };
        let dynamic: Arc<dyn Disk> = disk.clone();
        let server = self.nodes[from].database.clone();
        let connect = || Ok(Box::new(connect(&server)) as Box<dyn Channel>);
        let mut end = None;
        match rejoin(&dynamic, Path::new(DATA), &connect, &|| false, &address(from), None, "r") {
            Ok(Rejoined::Unchanged) => {}
            Ok(Rejoined::Cut { to, .. }) => {
                self.counts.cut += 1;
                (self.nodes[at].said, end) = (to, Some(to));
            }
            Ok(Rejoined::Copied) => {
                self.counts.copied += 1;
                self.nodes[at].said = Lsn(0);
            }
            Err(error) => assert_eq!(error.state(), SqlState::CANNOT_CONNECT_NOW, "{error}"),
        }
        let disk = if self.one_in(2) { disk.after_kill() } else { disk.after_power_cut(&mut self.random) };
        self.reopen(at, |_| disk);
        let point = self.nodes[at].database.engine().log_point().unwrap();
        assert!(end.is_none_or(|end| end == point.lsn), "the log was cut at {end:?}, and ends at {point:?}");
    }

    fn break_disk(&mut self, at: usize) {
        let room = self.random.uniform(0, 60_000) as u64;
        let node = &self.nodes[at];
        // That of a primary is for other tests.
        let breaks = node.replayer.is_some() && node.begun.is_none() && self.random.uniform(0, 1) == 0;
        if breaks { node.disk.leave_room(room) } else { node.disk.heal() }
    }

    /// A server becomes a voter, if the cluster lets it.
    fn add_voter(&mut self, at: usize) -> bool {
        let (cluster, node) = (self.cluster().clone(), &self.nodes[at]);
        let engine = node.database.engine().clone();
        let may_change = cluster.primary().is_some() && cluster.adopted == cluster.version;
        if engine.voter().is_some() || !engine.is_replica() || self.is_cut_off(at) || !may_change {
            return false;
        }
        let id = NodeId(self.random.next_u64());
        if engine.begin_to_vote(id, cluster.epoch()).is_err() {
            return false;
        }
        self.nodes[at].link = None;
        if self.change(Change::Add { node: id.0, member: member(at) }).is_ok() {
            self.counts.added += 1;
            self.counts.added_while_cut_off += usize::from((0..NODES).any(|at| self.is_cut_off(at)));
        }
        self.nodes[at].seen = self.history.len() - 1;
        self.nodes[at].watch = Watch::new(self.nodes[at].clock.patience, self.time_of(at));
        true
    }

    /// An operator lets a voter take over.
    fn hand_over_to(&mut self, at: usize) {
        let (cluster, engine) = (self.cluster().clone(), self.nodes[at].database.engine().clone());
        if let (Some(voter), Some(_)) = (engine.voter(), cluster.primary())
            && engine.is_replica()
        {
            self.counts.asked_to_hand_over += 1;
            let _ = self.change(Change::BeginEpoch { after: cluster.epoch, preferred: Some(voter.node.0) });
        }
    }

    /// An operator removes a voter: one that has lost its disk first.
    fn remove_voter(&mut self, at: usize) {
        if let Some(lost) = self.lost_voters().first() {
            let _ = self.change(Change::Remove { node: *lost });
            return;
        }
        if let Some(voter) = self.nodes[at].database.engine().voter()
            && self.cluster().voters.len() > 2
        {
            let _ = self.change(Change::Remove { node: voter.node.0 });
        }
    }
}

impl Link {
    fn has_messages(&self) -> bool {
        !self.to_replica.borrow().is_empty() || !self.to_server.borrow().is_empty()
    }
}

impl Node {
    fn of(disk: Arc<SimulatedDisk>, database: Database, now: u64, clock: Clock) -> Node {
        let engine = database.engine();
        let replayer = engine.is_replica().then(|| engine.replayer().unwrap());
        Node {
            disk,
            database,
            replayer,
            begun: None,
            senders: Senders::default(),
            link: None,
            upstream: None,
            client: None,
            pending: VecDeque::new(),
            watch: Watch::new(clock.patience, now),
            seen: 0,
            cut_off_until: 0,
            said: Lsn(0),
            clock,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.link = None;
        self.replayer = None;
        self.client = None;
    }
}

fn simulate(seed: u64, steps: usize) -> (Vec<(usize, usize, u64)>, Counts) {
    let mut world = World::new(seed);
    world.run(steps);
    (std::mem::take(&mut world.trace), std::mem::take(&mut world.counts))
}

#[test]
fn nothing_acknowledged_is_lost_whoever_is_the_primary() {
    let mut totals = Totals::default();
    let is_usual = for_each_seed(200, |seed| simulate(seed, 2_400), |(_, counts)| totals.add(&counts));
    totals.report(is_usual);
}

#[test]
fn one_seed_of_voters_is_one_sequence_of_steps() {
    assert_eq!(simulate(7, 1_000).0, simulate(7, 1_000).0);
}
