//! A simulation of a primary and its replicas on one thread: each seed is one sequence of steps, with clients, readers, lost
//! connections, kills, power cuts and full disks. Replicas take over: the primary hands over to them, or they are promoted by force while
//! it is alive, and the others rejoin.
//!
//! The engines have no threads. What is sent waits in queues until the simulation delivers it, message by message. Whenever a replica
//! has replayed a commit whose state was noted when the primary made it, its tables must be the same, with the ids of all rows.

use crate::support::{Totals, config, connect, for_each_seed};
use arrow_array::Array;
use firn_base::disk::{Disk, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Lsn, Result, SqlState};
use firn_replica::rejoin::{Rejoined, rejoin};
use firn_replica::{Channel, Peer, Received, Receiver, Senders, Serving, Taken, join};
use firn_session::{Connection, Database};
use firn_txn::{ClusterId, Engine, Isolation, Replayer, pin};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

pub const DATA: &str = "/data";
const NODES: usize = 3;

pub type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of a connection whose messages wait to be delivered.
pub struct End {
    pub outgoing: Queue,
}

impl Channel for End {
    fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.outgoing.borrow_mut().push_back(parts.concat());
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn receive(&mut self, _message: &mut Vec<u8>) -> Result<bool> {
        unreachable!("messages are delivered")
    }

    fn receive_within(&mut self, _message: &mut Vec<u8>, _longest: Duration) -> Result<Received> {
        unreachable!("messages are delivered")
    }
}

/// A connection of a replica.
struct Link {
    /// The node that serves it.
    upstream: usize,
    serving: Serving,
    receiver: Receiver,
    to_replica: Queue,
    to_server: Queue,
}

/// A reader of a replica, and what it has seen.
struct Reader {
    connection: Connection,
    seen: String,
}

struct Node {
    disk: Arc<SimulatedDisk>,
    database: Database,
    /// Of a replica.
    replayer: Option<Replayer>,
    link: Option<Link>,
    /// Whom it follows, if it is a replica.
    upstream: usize,
    readers: Vec<Reader>,
    /// It cannot connect before this step.
    away_until: usize,
}

/// How often what is rare has happened.
#[derive(Default, Debug)]
pub struct Counts {
    pub commits: usize,
    pub compared: usize,
    pub primary_ends: usize,
    pub replica_ends: usize,
    pub lost_connections: usize,
    pub begun_anew: usize,
    pub refused_by_disk: usize,
    pub readings: usize,
    pub handovers: usize,
    /// The primary has given up, and the connection was lost before the replica knew.
    pub left_alone: usize,
    pub forced: usize,
    pub cut: usize,
    pub copied: usize,
    /// Sessions that would have to wait for a commit, and that have learned that it is lost.
    pub waits: usize,
    pub lost: usize,
}

struct World {
    random: Random,
    step: usize,
    nodes: Vec<Node>,
    /// Of the primary, if there is one.
    client: Option<Connection>,
    /// Which node is a primary, or was one last.
    primary: usize,
    /// Which one takes over while there is none.
    successor: usize,
    /// The state at some commit times.
    ledger: BTreeMap<u64, String>,
    /// The newest commit whose client got an acknowledgement that waits for the disk.
    acknowledged: u64,
    next: i64,
    /// Tokens of commits, where these are in the log, and whether they are lost.
    tokens: Vec<(String, Lsn, bool)>,
    trace: Vec<(usize, usize, u64)>,
    counts: Counts,
}

pub fn open(disk: &Arc<SimulatedDisk>) -> Database {
    let mut config = config(Path::new(DATA));
    (config.has_threads, config.log.has_threads, config.threads) = (false, false, 1);
    config.checkpoint_after_bytes = u64::MAX;
    config.log.most_pinned_bytes = Some(256 << 10);
    Database::with_engine(Engine::open_on(disk.clone(), config).unwrap())
}

/// Everything in the tables, with the ids of rows; what indexes there are; and the sequences.
pub fn state(database: &Database) -> String {
    let engine = database.engine();
    let transaction = engine.try_begin(Isolation::Snapshot).unwrap();
    let (catalog, mut text) = (transaction.catalog().clone(), String::new());
    for definition in catalog.tables.values() {
        let table = transaction.table(definition.storage());
        let columns: Vec<ColumnId> = (0..table.columns().len() as u16).map(ColumnId).collect();
        let scan = table.scan(transaction.snapshot(), &columns, true);
        let mut rows = BTreeMap::new();
        while let Some(batch) = scan.next_batch(&pin()) {
            let ids = batch.row_ids.expect("asked for");
            for (at, id) in ids.values().iter().enumerate() {
                let mut row = String::new();
                for column in &batch.columns {
                    write!(row, "{:?}", column.slice(at, 1)).unwrap();
                }
                rows.insert(*id, row);
            }
        }
        let names: Vec<&str> = definition.indexes.iter().map(|index| &*index.name).collect();
        let built = table.indexes().len();
        writeln!(text, "{} {names:?} {built} {rows:?}", definition.name).unwrap();
    }
    for sequence in catalog.sequences.values() {
        writeln!(text, "{} {}", sequence.name, sequence.increment).unwrap();
    }
    text
}

/// What a reader sees: by a scan, and by an index.
fn read(connection: &mut Connection) -> String {
    let all =
        "SELECT count(*)::text || coalesce(md5(string_agg(id || text, ',' ORDER BY id)), '') FROM ledger";
    let scanned = connection.query_row_as::<String>(all, ()).unwrap().unwrap();
    let found = "SELECT coalesce(max(text), '') FROM ledger WHERE id = 5";
    format!("{scanned} {}", connection.query_row_as::<String>(found, ()).unwrap().unwrap())
}

fn address(node: usize) -> String {
    format!("node{node}:1")
}

impl World {
    fn new(seed: u64) -> World {
        let disk = SimulatedDisk::new();
        let database = open(&disk);
        let mut client = database.connect();
        client.execute("CREATE TABLE ledger (id bigint PRIMARY KEY, text text)").unwrap();
        client.execute("CREATE SEQUENCE numbers").unwrap();
        let mut world = World {
            random: Random::seeded(seed),
            step: 0,
            nodes: vec![Node::of(disk, database)],
            client: Some(client),
            primary: 0,
            successor: 0,
            ledger: BTreeMap::new(),
            acknowledged: 0,
            next: 0,
            tokens: Vec::new(),
            trace: Vec::new(),
            counts: Counts::default(),
        };
        for _ in 1..NODES {
            let disk = SimulatedDisk::new();
            let dynamic: Arc<dyn Disk> = disk.clone();
            let mut pipe = connect(&world.nodes[0].database);
            join::join(&dynamic, Path::new(DATA), &mut pipe, &address(0), "r").unwrap();
            world.nodes.push(Node::open(disk));
        }
        world
    }

    fn one_in(&mut self, many: i64) -> bool {
        self.random.uniform(1, many) == 1
    }

    fn any_node(&mut self) -> usize {
        self.random.uniform(0, NODES as i64 - 1) as usize
    }

    fn has_primary(&self) -> bool {
        self.client.is_some()
    }

    fn run(&mut self, steps: usize) {
        for step in 0..steps {
            self.step = step;
            let (kind, at) = (self.random.uniform(0, 99), self.any_node());
            match kind {
                0..=19 => self.commit(),
                20..=34 => self.send(at),
                35..=64 => self.deliver(at),
                65..=79 => self.replay(at),
                80..=85 => self.nodes[at].read(&mut self.random, &mut self.counts),
                86 => self.read_after(at),
                87..=89 => self.nodes[self.primary].database.engine().flush_log().unwrap(),
                90..=93 => drop(self.nodes[at].database.engine().work_in_background()),
                94..=95 => self.nodes[at].checkpoint(&mut self.counts),
                96 => self.lose_connection(at),
                97 if at != self.primary || self.one_in(3) => self.end_node(at),
                98 if self.one_in(8) => self.promote_by_force(at),
                98 => self.hand_over_to(at),
                _ => self.break_disk(at),
            }
            self.trace.push((kind as usize, at, self.nodes[at].database.engine().now().0));
        }
        // In the end there is a primary, and all others have everything.
        for node in &mut self.nodes {
            node.disk.heal();
            node.away_until = 0;
        }
        let mut rounds = 0;
        while !self.has_primary() {
            self.ask_for_handover(self.successor);
            (0..NODES).for_each(|at| self.follow(at));
            rounds += 1;
            assert!(rounds < 10_000, "a replica takes over");
        }
        self.commit();
        let engine = self.nodes[self.primary].database.engine().clone();
        engine.flush_log().unwrap();
        let end = engine.log_point().unwrap().lsn;
        drop(engine);
        let is_behind = |node: &Node| node.replayer.is_some() && node.database.engine().visible_lsn() < end;
        while self.nodes.iter().any(is_behind) {
            (0..NODES).for_each(|at| self.follow(at));
            rounds += 1;
            let upstreams: Vec<usize> = self.nodes.iter().map(|node| node.upstream).collect();
            assert!(rounds < 20_000, "a replica catches up, the primary is {}: {upstreams:?}", self.primary);
        }
        let expected = state(&self.nodes[self.primary].database);
        self.nodes.iter().for_each(|node| assert_eq!(state(&node.database), expected));
    }

    /// Lets a replica receive and replay what there is.
    fn follow(&mut self, at: usize) {
        self.send(at);
        while self.nodes[at].link.as_ref().is_some_and(Link::has_messages) {
            self.deliver(at);
        }
        self.replay(at);
    }

    /// A client's transaction.
    fn commit(&mut self) {
        let (id, kind) = (self.next, self.random.uniform(0, 19));
        let old = self.random.uniform(0, id.max(1));
        let waits = !self.one_in(4);
        let long = "long ".repeat(self.random.uniform(0, 20) as usize);
        let Some(client) = &mut self.client else { return };
        self.next += 1;
        let setting = if waits { "on" } else { "off" };
        client.execute(&format!("SET synchronous_commit = {setting}")).unwrap();
        let sql = match kind {
            0..=6 => format!("INSERT INTO ledger VALUES ({id}, '{long}{id}')"),
            7..=9 => format!("UPDATE ledger SET text = text || '{id}' WHERE id % 7 = {}", old % 7),
            10 => format!("UPDATE ledger SET id = id + 1000000 WHERE id = {old}"),
            11..=13 => format!("DELETE FROM ledger WHERE id % 5 = {}", old % 5),
            14 => format!(
                "BEGIN; DELETE FROM ledger WHERE id = {old}; INSERT INTO ledger VALUES ({old}, 'again') ON CONFLICT DO NOTHING; \
                 SAVEPOINT s; UPDATE ledger SET text = 'never'; ROLLBACK TO s; COMMIT"
            ),
            15 => format!(
                "INSERT INTO ledger SELECT g, 'many {long}' || g FROM generate_series({}, {}) g ON CONFLICT DO NOTHING",
                id * 1000,
                id * 1000 + 30
            ),
            16 => format!(
                "DROP TABLE IF EXISTS made; CREATE TABLE made AS SELECT g, '{long}' t FROM generate_series(1, 400) g"
            ),
            17 => "DROP INDEX IF EXISTS by_text; CREATE INDEX by_text ON ledger (text)".to_owned(),
            18 => "SELECT nextval('numbers')".to_owned(),
            _ => "TRUNCATE ledger".to_owned(),
        };
        let engine = self.nodes[self.primary].database.engine().clone();
        let before = engine.now().0;
        if let Err(error) = client.execute(&sql) {
            // A key that was changed to one that exists; a server that hands over; a full disk.
            let expected = [SqlState::UNIQUE_VIOLATION, SqlState::ADMIN_SHUTDOWN, SqlState::DISK_FULL];
            assert!(expected.contains(&error.state()), "{error}");
            client.execute("ROLLBACK").unwrap();
            self.counts.refused_by_disk += usize::from(error.state() == SqlState::DISK_FULL);
            return;
        }
        self.counts.commits += 1;
        let now = engine.now().0;
        // What draws from a sequence is not made durable by itself.
        if waits && now > before && kind != 18 {
            self.acknowledged = now;
        }
        if self.one_in(8)
            && let Some(client) = &mut self.client
            && let Some(token) = client.query_row_as::<String>("SELECT firn_commit_token()", ()).unwrap()
        {
            // The session may have committed nothing of what has come last.
            let (_, lsn) = token.split_once('/').expect("EPOCH:HIGH/LOW");
            let lsn = Lsn(u64::from_str_radix(lsn, 16).unwrap());
            assert!(lsn <= engine.visible_lsn());
            self.tokens.push((token, lsn, false));
        }
        if self.one_in(3) {
            self.ledger.insert(now, state(&self.nodes[self.primary].database));
        }
    }

    /// A session reads after a commit, which is there, or not yet, or lost.
    fn read_after(&mut self, at: usize) {
        if self.tokens.is_empty() {
            return;
        }
        let which = self.random.uniform(0, self.tokens.len() as i64 - 1) as usize;
        let (token, _, is_lost) = &self.tokens[which];
        let mut connection = self.nodes[at].database.connect();
        connection
            .execute(&format!("SET firn.read_after_timeout = 1; SET firn.read_after = '{token}'"))
            .unwrap();
        match connection.execute("SELECT 1") {
            Ok(_) => assert!(!is_lost, "{token} is lost"),
            Err(error) if error.state() == SqlState::QUERY_CANCELED => {
                self.counts.waits += 1;
                assert!(self.nodes[at].replayer.is_some(), "a primary does not wait");
            }
            Err(error) => {
                self.counts.lost += 1;
                assert!(
                    error.state() == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE && *is_lost,
                    "{token} {error}"
                );
            }
        }
    }

    /// A server sends what there is to a replica, which connects if it is not connected.
    fn send(&mut self, at: usize) {
        let upstream = self.nodes[at].upstream;
        if self.nodes[at].replayer.is_none() {
            return;
        }
        let Some(link) = &mut self.nodes[at].link else {
            if self.step >= self.nodes[at].away_until {
                let link = Link::begin(upstream, &self.nodes[upstream].database, &self.nodes[at].database);
                self.nodes[at].link = Some(link);
            }
            return;
        };
        let mut end = End { outgoing: link.to_replica.clone() };
        if link.serving.send_some(&mut end).is_err() {
            self.end_link(at);
        }
    }

    /// Delivers one message to a server or to its replica, if one waits.
    fn deliver(&mut self, at: usize) {
        let to_server = self.one_in(2);
        let Some(link) = &mut self.nodes[at].link else { return };
        let message = if to_server { link.to_server.borrow_mut().pop_front() } else { None };
        if let Some(message) = message {
            let mut end = End { outgoing: link.to_replica.clone() };
            let asks = link.serving.is_sending();
            match link.serving.take(&message, &mut end).map(drop) {
                Ok(()) if link.serving.is_handed_over() => self.end_link(at),
                Ok(()) if link.serving.has_given_up() => self.successor = at,
                Ok(()) => {}
                // It does not follow the primary, or another one takes over.
                Err(error) if asks => {
                    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
                    self.end_link(at);
                }
                Err(error) => {
                    self.end_link(at);
                    // The one that takes over does not have everything yet.
                    if error.state() != SqlState::CANNOT_CONNECT_NOW || self.has_primary() {
                        assert_eq!(error.state(), SqlState::UNDEFINED_FILE, "{error}");
                        self.begin_anew(at);
                    }
                }
            }
            return;
        }
        let Some(message) = link.to_replica.borrow_mut().pop_front() else { return };
        let mut end = End { outgoing: link.to_server.clone() };
        match link.receiver.take(&message, &mut end) {
            Ok(Taken::HandedOver) => {
                link.receiver.answer(&mut end).unwrap();
                // The answer arrives, or is lost.
                while self.nodes[at].link.as_ref().is_some_and(Link::has_messages) && !self.one_in(4) {
                    self.deliver_to_server(at);
                }
                self.end_link(at);
                self.promote(at, None);
                self.counts.handovers += 1;
            }
            Ok(_) if link.to_replica.borrow().is_empty() && link.serving.is_sending() => {
                if let Err(error) = link.receiver.answer(&mut end) {
                    assert!(error.state() == SqlState::DISK_FULL, "{error}");
                    self.counts.refused_by_disk += 1;
                    self.end_link(at);
                }
            }
            Ok(_) => {}
            Err(error) => {
                assert!(error.state() == SqlState::DISK_FULL, "{error}");
                self.counts.refused_by_disk += 1;
                self.end_link(at);
            }
        }
    }

    fn deliver_to_server(&mut self, at: usize) {
        let Some(link) = &mut self.nodes[at].link else { return };
        let Some(message) = link.to_server.borrow_mut().pop_front() else { return };
        let mut end = End { outgoing: link.to_replica.clone() };
        // What follows may not be retained any more.
        let _ = link.serving.take(&message, &mut end);
    }

    /// Ends the connection of a replica. A primary that has given up is opened again as a replica.
    fn end_link(&mut self, at: usize) {
        let Some(link) = self.nodes[at].link.take() else { return };
        if link.serving.has_given_up() {
            let former = link.upstream;
            drop(link);
            self.counts.left_alone += usize::from(self.nodes[at].replayer.is_some());
            self.reopen(former, |node| node.disk.after_kill());
            assert!(self.nodes[former].replayer.is_some(), "it is a replica");
            self.nodes[former].upstream = at;
        }
    }

    /// Closes a database, and opens it again on what `disk` returns.
    fn reopen(&mut self, at: usize, disk: impl FnOnce(&mut Node) -> Arc<SimulatedDisk>) {
        for other in (0..NODES).filter(|other| *other != at) {
            if self.nodes[other].link.as_ref().is_some_and(|link| link.upstream == at) {
                self.nodes[other].link = None;
            }
        }
        if at == self.primary {
            self.client = None;
        }
        let (upstream, before) = (self.nodes[at].upstream, self.nodes[at].database.engine().now());
        let disk = disk(&mut self.nodes[at]);
        disk.heal();
        self.nodes[at] = Node::open(disk);
        self.nodes[at].upstream = upstream;
        let is_replica = self.nodes[at].replayer.is_some();
        assert!(!is_replica || self.nodes[at].database.engine().now() >= before || at == self.primary);
        if !is_replica {
            assert_eq!(at, self.primary, "no other one is a primary");
            self.client = Some(self.nodes[at].database.connect());
        }
        self.compare(at);
    }

    fn replay(&mut self, at: usize) {
        let limit = self.random.uniform(1, 3);
        let node = &mut self.nodes[at];
        let Some(replayer) = &mut node.replayer else { return };
        for _ in 0..limit {
            if replayer.replay_next().unwrap().is_none() {
                return;
            }
            if let Some(expected) = self.ledger.get(&node.database.engine().now().0) {
                assert!(
                    *expected == state(&node.database),
                    "step {}: a replica shows another state",
                    self.step
                );
                self.counts.compared += 1;
            }
        }
    }

    fn lose_connection(&mut self, at: usize) {
        self.counts.lost_connections += 1;
        let away = self.random.uniform(0, 200) as usize;
        self.end_link(at);
        self.nodes[at].away_until = self.step + away;
    }

    /// The process of a server is killed, or its machine loses power; it starts again, a primary in another epoch.
    fn end_node(&mut self, at: usize) {
        let power_cut = self.one_in(2);
        let is_primary = at == self.primary && self.has_primary();
        let count = if is_primary { &mut self.counts.primary_ends } else { &mut self.counts.replica_ends };
        *count += 1;
        self.end_link(at);
        // Its operator may name the primary anew.
        if at != self.primary && self.has_primary() && self.one_in(4) {
            self.nodes[at].upstream = self.primary;
        }
        let mut random = Random::seeded(self.random.next_u64());
        self.reopen(at, |node| match power_cut {
            false => node.disk.after_kill(),
            true => node.disk.after_power_cut(&mut random),
        });
        if at == self.primary && self.has_primary() {
            let now = self.nodes[at].database.engine().now().0;
            assert!(now >= self.acknowledged, "an acknowledged commit is lost");
            for node in &self.nodes {
                assert!(node.database.engine().now().0 <= now, "a replica is ahead of its primary");
            }
            self.ledger.split_off(&(now + 1));
            self.compare(at);
        } else if at == self.primary {
            // It had given up when it was ended.
            self.nodes[at].upstream = self.successor;
        }
    }

    /// What a server shows.
    fn compare(&mut self, at: usize) {
        let database = &self.nodes[at].database;
        if let Some(expected) = self.ledger.get(&database.engine().now().0) {
            assert!(*expected == state(database), "step {}: a server shows another state", self.step);
            self.counts.compared += 1;
        }
    }

    fn begin_anew(&mut self, at: usize) {
        self.counts.begun_anew += 1;
        let (directory, disk) = (Path::new(DATA), self.nodes[at].disk.clone());
        disk.heal();
        let dynamic: Arc<dyn Disk> = disk.clone();
        let upstream = &self.nodes[self.nodes[at].upstream].database;
        let identity = upstream.engine().identity().unwrap();
        let name = address(self.nodes[at].upstream);
        join::copy_anew(&dynamic, directory, &mut connect(upstream), (&name, None), "r", identity, None)
            .unwrap();
        self.reopen(at, |node| {
            let disk = node.disk.after_kill();
            join::finish(&*disk, directory).unwrap();
            disk
        });
    }

    /// The operator lets a replica take over, and waits for that for a while.
    fn hand_over_to(&mut self, at: usize) {
        self.ask_for_handover(at);
        (0..self.random.uniform(0, 12)).for_each(|_| {
            self.send(at);
            self.deliver(at);
        });
    }

    /// The operator lets a replica take over; the primary hands over if the replica follows it.
    fn ask_for_handover(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(link) = node.link.as_mut().filter(|link| link.serving.is_sending()) else { return };
        let is_of_primary = node.upstream == self.primary && at != self.primary;
        if node.replayer.is_none() || !is_of_primary || !link.to_server.borrow().is_empty() {
            return;
        }
        if self.has_primary() || self.successor == at {
            let node = &mut self.nodes[at];
            let link = node.link.as_mut().expect("just seen");
            let mut end = End { outgoing: link.to_server.clone() };
            link.receiver.ask_for_handover(&address(at), &mut end).unwrap();
        }
    }

    /// Everything that a replica has received is replayed, and it becomes a primary.
    fn promote(&mut self, at: usize, cluster: Option<ClusterId>) {
        let node = &mut self.nodes[at];
        node.disk.heal();
        let engine = node.database.engine().clone();
        let received = engine.received().unwrap();
        engine.flush_log().unwrap();
        let mut replayer = node.replayer.take().expect("it is a replica");
        while replayer.replay_next().unwrap().is_some() {}
        let now = engine.now().0;
        self.ledger.split_off(&(now + 1));
        self.compare(at);
        let node = &mut self.nodes[at];
        let mut before = node.database.connect();
        before.execute("BEGIN; SELECT count(*) FROM ledger").unwrap();
        assert!(replayer.promote(cluster).unwrap().is_same_place(&received));
        self.tokens.iter_mut().for_each(|(_, lsn, is_lost)| *is_lost |= *lsn > received.lsn);
        let refused = before.execute("INSERT INTO ledger VALUES (-1, 'never')").unwrap_err();
        assert_eq!(refused.state(), SqlState::READ_ONLY_SQL_TRANSACTION);
        assert!(engine.log_point().unwrap().epoch > received.epoch);
        (self.primary, self.client) = (at, Some(self.nodes[at].database.connect()));
        if cluster.is_none() {
            assert!(now >= self.acknowledged, "an acknowledged commit is lost");
        }
        self.acknowledged = self.acknowledged.min(now);
    }

    /// A replica is promoted, whatever the primary does, which may go on for a while. Then the others rejoin.
    fn promote_by_force(&mut self, at: usize) {
        if self.nodes[at].replayer.is_none() {
            return;
        }
        self.counts.forced += 1;
        // The former primary makes commits that nobody gets.
        let acknowledged = self.acknowledged;
        self.nodes[at].link = None;
        if self.has_primary() {
            (0..self.random.uniform(0, 5)).for_each(|_| self.commit());
            if self.one_in(3) {
                self.nodes[self.primary].checkpoint(&mut self.counts);
            }
        }
        self.acknowledged = acknowledged;
        for node in &mut self.nodes {
            node.link = None;
        }
        self.client = None;
        let (left, right) = (self.random.next_u64(), self.random.next_u64());
        let cluster = u128::from(left) << 64 | u128::from(right);
        self.promote(at, Some(ClusterId(cluster.to_be_bytes())));
        self.commit();
        // It has the database open, which its own disk of that time does not know.
        for other in (0..NODES).filter(|other| *other != at) {
            self.nodes[other].disk.heal();
            let disk = if self.one_in(2) {
                self.nodes[other].disk.after_kill()
            } else {
                self.nodes[other].disk.after_power_cut(&mut self.random)
            };
            let dynamic: Arc<dyn Disk> = disk.clone();
            let new = self.nodes[at].database.clone();
            let connect = || Ok(Box::new(connect(&new)) as Box<dyn Channel>);
            match rejoin(&dynamic, Path::new(DATA), &connect, &|| false, &address(at), None, "r").unwrap() {
                Rejoined::Unchanged => {}
                Rejoined::Cut { .. } => self.counts.cut += 1,
                Rejoined::Copied => self.counts.copied += 1,
            }
            let disk =
                if self.one_in(2) { disk.after_kill() } else { disk.after_power_cut(&mut self.random) };
            self.nodes[other] = Node::open(disk);
            self.nodes[other].upstream = at;
            assert!(self.nodes[other].replayer.is_some(), "it is a replica");
            self.compare(other);
        }
    }

    fn break_disk(&mut self, at: usize) {
        let room = self.random.uniform(0, 60_000) as u64;
        let disk = &self.nodes[at].disk;
        // That of a primary is for other tests.
        if self.random.uniform(0, 1) == 0 && at != self.primary { disk.leave_room(room) } else { disk.heal() }
    }
}

impl Link {
    fn begin(upstream: usize, server: &Database, replica: &Database) -> Link {
        let (to_replica, to_server) = (Queue::default(), Queue::default());
        let peer = Peer { name: String::new(), voter: None, session: 0, client: None, begun: 0 };
        let mut end = End { outgoing: to_server.clone() };
        Link {
            upstream,
            serving: Serving::new(server.engine().clone(), Senders::default(), peer),
            receiver: Receiver::begin(replica.engine().clone(), &mut end, "r").unwrap(),
            to_replica,
            to_server,
        }
    }

    fn has_messages(&self) -> bool {
        !self.to_replica.borrow().is_empty() || !self.to_server.borrow().is_empty()
    }
}

impl Node {
    fn open(disk: Arc<SimulatedDisk>) -> Node {
        let database = open(&disk);
        Node::of(disk, database)
    }

    fn of(disk: Arc<SimulatedDisk>, database: Database) -> Node {
        let engine = database.engine();
        let replayer = engine.is_replica().then(|| engine.replayer().unwrap());
        Node { disk, database, replayer, link: None, upstream: 0, readers: Vec::new(), away_until: 0 }
    }

    /// A reader begins, reads again, or ends.
    fn read(&mut self, random: &mut Random, counts: &mut Counts) {
        counts.readings += 1;
        if self.readers.len() < 3 && random.uniform(0, 1) == 0 {
            let mut connection = self.database.connect();
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
            let seen = read(&mut connection);
            self.readers.push(Reader { connection, seen });
        } else if !self.readers.is_empty() {
            let at = random.uniform(0, self.readers.len() as i64 - 1) as usize;
            let reader = &mut self.readers[at];
            assert_eq!(read(&mut reader.connection), reader.seen, "a snapshot has changed");
            if random.uniform(0, 2) == 0 {
                self.readers.swap_remove(at);
            }
        }
    }

    fn checkpoint(&mut self, counts: &mut Counts) {
        if let Err(error) = self.database.checkpoint() {
            assert_eq!(error.state(), SqlState::DISK_FULL, "{error}");
            counts.refused_by_disk += 1;
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.readers.clear();
        self.link = None;
        self.replayer = None;
    }
}

fn simulate(seed: u64, steps: usize) -> (Vec<(usize, usize, u64)>, Counts) {
    let mut world = World::new(seed);
    world.run(steps);
    (std::mem::take(&mut world.trace), std::mem::take(&mut world.counts))
}

#[test]
fn replicas_are_prefixes_of_their_primary_whatever_happens() {
    let mut totals = Totals::default();
    let is_usual = for_each_seed(200, |seed| simulate(seed, 1_000), |(_, counts)| totals.add(&counts));
    totals.report(is_usual);
}

#[test]
fn one_seed_is_one_sequence_of_steps() {
    assert_eq!(simulate(7, 800).0, simulate(7, 800).0);
}
