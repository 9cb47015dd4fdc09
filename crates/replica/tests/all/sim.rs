//! A simulation of a primary and its replicas on one thread: each seed is one sequence of steps, with clients, readers, lost
//! connections, kills, power cuts and full disks.
//!
//! The engines have no threads. What is sent waits in queues until the simulation delivers it, message by message. Whenever a replica
//! has replayed a commit whose state was noted when the primary made it, its tables must be the same, with the ids of all rows.

use crate::support::{Pipe, config, connect};
use arrow_array::Array;
use firn_base::disk::{Disk, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Result, SqlState};
use firn_replica::{Channel, Peer, Received, Receiver, Senders, Serving, join};
use firn_session::{Connection, Database};
use firn_txn::{Engine, Isolation, Replayer, pin};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const DATA: &str = "/data";
const REPLICAS: usize = 2;

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of a connection whose messages wait to be delivered.
struct End {
    outgoing: Queue,
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
    serving: Serving,
    receiver: Receiver,
    to_replica: Queue,
    to_primary: Queue,
}

/// A reader of a replica, and what it has seen.
struct Reader {
    connection: Connection,
    seen: String,
}

struct Replica {
    disk: Arc<SimulatedDisk>,
    database: Database,
    replayer: Option<Replayer>,
    link: Option<Link>,
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
}

struct World {
    random: Random,
    step: usize,
    disk: Arc<SimulatedDisk>,
    primary: Database,
    client: Connection,
    replicas: Vec<Replica>,
    /// The state at some commit times.
    ledger: BTreeMap<u64, String>,
    /// The newest commit whose client got an acknowledgement that waits for the disk.
    acknowledged: u64,
    next: i64,
    trace: Vec<(usize, usize, u64)>,
    counts: Counts,
}

fn open(disk: &Arc<SimulatedDisk>) -> Database {
    let mut config = config(Path::new(DATA));
    (config.has_threads, config.log.has_threads, config.threads) = (false, false, 1);
    config.checkpoint_after_bytes = u64::MAX;
    config.log.most_pinned_bytes = Some(256 << 10);
    Database::with_engine(Engine::open_on(disk.clone(), config).unwrap())
}

/// Everything in the tables, with the ids of rows; what indexes there are; and the sequences.
fn state(database: &Database) -> String {
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

impl World {
    fn new(seed: u64) -> World {
        let disk = SimulatedDisk::new();
        let primary = open(&disk);
        let mut client = primary.connect();
        client.execute("CREATE TABLE ledger (id bigint PRIMARY KEY, text text)").unwrap();
        client.execute("CREATE SEQUENCE numbers").unwrap();
        let mut world = World {
            random: Random::seeded(seed),
            step: 0,
            disk,
            primary,
            client,
            replicas: Vec::new(),
            ledger: BTreeMap::new(),
            acknowledged: 0,
            next: 0,
            trace: Vec::new(),
            counts: Counts::default(),
        };
        for _ in 0..REPLICAS {
            let disk = SimulatedDisk::new();
            let dynamic: Arc<dyn Disk> = disk.clone();
            join::join(&dynamic, Path::new(DATA), &mut world.connect_to_copy(), "primary:1", "r").unwrap();
            let replica = Replica::open(disk);
            world.replicas.push(replica);
        }
        world
    }

    fn connect_to_copy(&self) -> Pipe {
        connect(&self.primary)
    }

    fn one_in(&mut self, many: i64) -> bool {
        self.random.uniform(1, many) == 1
    }

    fn any_replica(&mut self) -> usize {
        self.random.uniform(0, REPLICAS as i64 - 1) as usize
    }

    fn run(&mut self, steps: usize) {
        for step in 0..steps {
            self.step = step;
            let (kind, at) = (self.random.uniform(0, 99), self.any_replica());
            match kind {
                0..=19 => self.commit(),
                20..=34 => self.send(at),
                35..=64 => self.deliver(at),
                65..=79 => self.replay(at),
                80..=86 => self.replicas[at].read(&mut self.random, &mut self.counts),
                87..=89 => self.primary.engine().flush_log().unwrap(),
                90..=91 => drop(self.primary.engine().work_in_background()),
                92..=93 => drop(self.replicas[at].database.engine().work_in_background()),
                94 => self.primary.checkpoint().unwrap(),
                95 => self.replicas[at].checkpoint(&mut self.counts),
                96 => self.lose_connection(at),
                97 => self.end_replica(at),
                98 if self.one_in(3) => self.end_primary(),
                _ => self.break_disk(at),
            }
            let replica = &self.replicas[at];
            self.trace.push((kind as usize, at, replica.database.engine().now().0));
        }
        // In the end all of them have everything.
        self.primary.engine().flush_log().unwrap();
        for at in 0..REPLICAS {
            self.replicas[at].disk.heal();
            self.replicas[at].away_until = 0;
            let mut rounds = 0;
            let end = self.primary.engine().log_point().unwrap().lsn;
            while self.replicas[at].database.engine().visible_lsn() < end {
                self.send(at);
                while self.replicas[at].link.as_ref().is_some_and(Link::has_messages) {
                    self.deliver(at);
                }
                self.replay(at);
                rounds += 1;
                assert!(rounds < 10_000, "a replica catches up");
            }
            assert_eq!(state(&self.replicas[at].database), state(&self.primary));
        }
    }

    /// A client's transaction.
    fn commit(&mut self) {
        let (id, kind) = (self.next, self.random.uniform(0, 19));
        self.next += 1;
        let old = self.random.uniform(0, id.max(1));
        let waits = !self.one_in(4);
        let setting = if waits { "on" } else { "off" };
        self.client.execute(&format!("SET synchronous_commit = {setting}")).unwrap();
        let long = "long ".repeat(self.random.uniform(0, 20) as usize);
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
        let before = self.primary.engine().now().0;
        if let Err(error) = self.client.execute(&sql) {
            // A key that was changed to one that exists.
            assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION, "{error}");
            return;
        }
        self.counts.commits += 1;
        let now = self.primary.engine().now().0;
        // What draws from a sequence is not made durable by itself.
        if waits && now > before && kind != 18 {
            self.acknowledged = now;
        }
        if self.one_in(3) {
            self.ledger.insert(now, state(&self.primary));
        }
    }

    /// The primary sends what there is to a replica, which connects if it is not connected.
    fn send(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        let Some(link) = &mut replica.link else {
            if self.step >= replica.away_until {
                replica.link = Some(Link::begin(&self.primary, &replica.database));
            }
            return;
        };
        let mut end = End { outgoing: link.to_replica.clone() };
        if link.serving.send_some(&mut end).is_err() {
            replica.link = None;
        }
    }

    /// Delivers one message to the primary or to a replica, if one waits.
    fn deliver(&mut self, at: usize) {
        let to_primary = self.one_in(2);
        let replica = &mut self.replicas[at];
        let Some(link) = &mut replica.link else { return };
        let message = if to_primary { link.to_primary.borrow_mut().pop_front() } else { None };
        if let Some(message) = message {
            let mut end = End { outgoing: link.to_replica.clone() };
            if let Err(error) = link.serving.take(&message, &mut end) {
                let is_gone = error.state() == SqlState::UNDEFINED_FILE
                    || error.state() == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
                replica.link = None;
                assert!(is_gone, "{error}");
                self.begin_anew(at);
            }
            return;
        }
        let Some(message) = link.to_replica.borrow_mut().pop_front() else { return };
        let mut end = End { outgoing: link.to_primary.clone() };
        let taken = link.receiver.take(&message, &mut end);
        let answered = match taken {
            Ok(_) if link.to_replica.borrow().is_empty() && link.serving.is_sending() => {
                link.receiver.answer(&mut end).map(drop)
            }
            other => other.map(drop),
        };
        if let Err(error) = answered {
            assert!(error.state() == SqlState::DISK_FULL, "{error}");
            self.counts.refused_by_disk += 1;
            replica.link = None;
        }
    }

    fn replay(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        let replayer = replica.replayer.as_mut().expect("it is open");
        let limit = self.random.uniform(1, 3);
        for _ in 0..limit {
            if replayer.replay_next().unwrap().is_none() {
                return;
            }
            if let Some(expected) = self.ledger.get(&replica.database.engine().now().0) {
                assert!(
                    *expected == state(&replica.database),
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
        let replica = &mut self.replicas[at];
        (replica.link, replica.away_until) = (None, self.step + away);
    }

    /// The process of a replica is killed, or its machine loses power; it starts again.
    fn end_replica(&mut self, at: usize) {
        self.counts.replica_ends += 1;
        let replica = &mut self.replicas[at];
        let before = replica.database.engine().now();
        let disk = match self.random.uniform(0, 1) {
            0 => replica.disk.after_kill(),
            _ => replica.disk.after_power_cut(&mut self.random),
        };
        disk.heal();
        *replica = Replica::open(disk);
        let now = replica.database.engine().now();
        assert!(now >= before, "what has been replayed was on disk");
        self.compare(at);
    }

    /// What a replica shows just after it was opened.
    fn compare(&mut self, at: usize) {
        let database = &self.replicas[at].database;
        if let Some(expected) = self.ledger.get(&database.engine().now().0) {
            assert!(
                *expected == state(database),
                "step {}: a replica was opened with another state",
                self.step
            );
            self.counts.compared += 1;
        }
    }

    fn begin_anew(&mut self, at: usize) {
        self.counts.begun_anew += 1;
        let (directory, disk) = (Path::new(DATA), self.replicas[at].disk.clone());
        disk.heal();
        let dynamic: Arc<dyn Disk> = disk.clone();
        let identity = self.primary.engine().identity().unwrap();
        join::copy_anew(&dynamic, directory, &mut self.connect_to_copy(), "primary:1", "r", identity)
            .unwrap();
        let disk = disk.after_kill();
        join::finish(&*disk, directory).unwrap();
        self.replicas[at] = Replica::open(disk);
        self.compare(at);
    }

    /// The process of the primary is killed, or its machine loses power; it starts again, in another epoch.
    fn end_primary(&mut self) {
        self.counts.primary_ends += 1;
        self.replicas.iter_mut().for_each(|replica| replica.link = None);
        self.disk = match self.random.uniform(0, 1) {
            0 => self.disk.after_kill(),
            _ => self.disk.after_power_cut(&mut self.random),
        };
        self.primary = open(&self.disk);
        self.client = self.primary.connect();
        let now = self.primary.engine().now().0;
        assert!(now >= self.acknowledged, "an acknowledged commit is lost");
        for replica in &self.replicas {
            assert!(replica.database.engine().now().0 <= now, "a replica is ahead of its primary");
        }
        self.ledger.split_off(&(now + 1));
        if let Some(expected) = self.ledger.get(&now) {
            assert!(*expected == state(&self.primary), "the primary was opened with another state");
        }
    }

    fn break_disk(&mut self, at: usize) {
        let room = self.random.uniform(0, 60_000) as u64;
        let disk = &self.replicas[at].disk;
        if self.random.uniform(0, 1) == 0 { disk.leave_room(room) } else { disk.heal() }
    }
}

impl Link {
    fn begin(primary: &Database, replica: &Database) -> Link {
        let (to_replica, to_primary) = (Queue::default(), Queue::default());
        let peer = Peer { name: String::new(), session: 0, client: None, begun: 0 };
        let mut end = End { outgoing: to_primary.clone() };
        Link {
            serving: Serving::new(primary.engine().clone(), Senders::default(), peer),
            receiver: Receiver::begin(replica.engine().clone(), &mut end, "r").unwrap(),
            to_replica,
            to_primary,
        }
    }

    fn has_messages(&self) -> bool {
        !self.to_replica.borrow().is_empty() || !self.to_primary.borrow().is_empty()
    }
}

impl Replica {
    fn open(disk: Arc<SimulatedDisk>) -> Replica {
        let database = open(&disk);
        let replayer = Some(database.engine().replayer().unwrap());
        Replica { disk, database, replayer, link: None, readers: Vec::new(), away_until: 0 }
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

impl Drop for Replica {
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
    let seeds = std::env::var("FIRN_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40);
    let first = std::env::var("FIRN_SIM_FIRST").ok().and_then(|first| first.parse().ok()).unwrap_or(1);
    let mut all = Counts::default();
    for seed in first..first + seeds {
        let outcome = std::panic::catch_unwind(|| simulate(seed, 1_500));
        let (_, counts) = outcome.unwrap_or_else(|panic| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic)
        });
        all.commits += counts.commits;
        all.compared += counts.compared;
        all.primary_ends += counts.primary_ends;
        all.replica_ends += counts.replica_ends;
        all.lost_connections += counts.lost_connections;
        all.begun_anew += counts.begun_anew;
        all.refused_by_disk += counts.refused_by_disk;
        all.readings += counts.readings;
    }
    println!("{all:?}");
    let each = [all.compared, all.primary_ends, all.replica_ends, all.lost_connections];
    assert!(each.iter().all(|count| *count > 0), "{all:?}");
    assert!(seeds < 40 || all.begun_anew > 0 && all.refused_by_disk > 0, "{all:?}");
}

#[test]
fn one_seed_is_one_sequence_of_steps() {
    assert_eq!(simulate(7, 800).0, simulate(7, 800).0);
}
