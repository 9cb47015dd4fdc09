//! A database with a ledger, backups over a channel in memory, and restored databases.

use firn_base::disk::{Disk, SimulatedDisk};
use firn_base::sync::{Arc, AtomicBool, Ordering, mpsc};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Error, Lsn, Result, SqlState, clock};
use firn_replica::backup::{self, Created, Repository, Restored, Target, Wanted};
use firn_replica::{Channel, Peer, Received, Senders};
use firn_session::{Config, Connection, Database};
use firn_txn::Engine;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Runs a simulation for each of so many seeds, or for those that the environment variables FIRN_SIM_SEEDS and FIRN_SIM_FIRST say. A seed
/// that fails is printed. Returns whether these are at least as many as usual.
pub fn for_each_seed<T>(usual: u64, simulate: impl Fn(u64) -> T, mut took: impl FnMut(T)) -> bool {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (seeds, first) =
        (variable("FIRN_SIM_SEEDS").unwrap_or(usual), variable("FIRN_SIM_FIRST").unwrap_or(1));
    for seed in first..first + seeds {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulate(seed)));
        took(outcome.unwrap_or_else(|panic| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic)
        }));
    }
    seeds >= usual
}

/// How often what is rare has happened, over all seeds.
#[derive(Default)]
pub struct Totals(BTreeMap<String, usize>);

impl Totals {
    /// Adds the counts of a seed: a structure of numbers.
    pub fn add(&mut self, counts: &impl std::fmt::Debug) {
        let text = format!("{counts:?}");
        let (_, fields) = text.split_once('{').expect("it has fields");
        for field in fields.trim_end_matches('}').split(',') {
            let (name, count) = field.trim().split_once(": ").expect("a field and its value");
            *self.0.entry(name.to_owned()).or_default() += count.parse::<usize>().unwrap();
        }
    }

    /// Prints them. With as many seeds as usual, all of it has happened.
    pub fn report(&self, is_usual: bool) {
        println!("{:?}", self.0);
        let never: Vec<&String> =
            self.0.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name).collect();
        assert!(!is_usual || never.is_empty(), "never: {never:?}");
    }
}

pub const BACKUPS: &str = "/backups";
const DATA: &str = "/data";

/// Small blocks, segments and spill files, so that there are many.
pub fn config(directory: &Path) -> Config {
    let mut config = Config { directory: Some(directory.to_owned()), block_bytes: 1, ..Config::default() };
    (config.log.spill_bytes, config.log.segment_bytes) = (64 << 10, 32 << 10);
    config
}

pub fn open_at(disk: &Arc<SimulatedDisk>, directory: &str) -> Result<Database> {
    Engine::open_on(disk.clone(), config(Path::new(directory))).map(Database::with_engine)
}

pub fn open(disk: &Arc<SimulatedDisk>) -> Database {
    open_at(disk, DATA).unwrap()
}

/// A commit of the ledger.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub id: i64,
    /// The wall time before it began, and after it was acknowledged.
    pub begun: i64,
    pub acknowledged: i64,
    /// Where the log ended then.
    pub lsn: Lsn,
}

/// A database whose rows are numbered by commit.
pub struct Ledger {
    pub database: Database,
    pub connection: Connection,
    pub entries: Vec<Entry>,
}

impl Ledger {
    pub fn new(disk: &Arc<SimulatedDisk>) -> Ledger {
        let database = open(disk);
        let mut connection = database.connect();
        connection.execute("CREATE TABLE ledger (id bigint PRIMARY KEY, text text)").unwrap();
        connection.execute("CREATE SEQUENCE numbers").unwrap();
        Ledger { database, connection, entries: Vec::new() }
    }

    /// Makes so many commits: each inserts its number, and changes or deletes other rows.
    pub fn commit(&mut self, count: usize) {
        for _ in 0..count {
            let id = self.entries.len() as i64;
            let begun = clock::wall_clock_micros();
            let text = "x".repeat(1 + id as usize % 50);
            self.connection
                .execute(&format!(
                    "BEGIN; INSERT INTO ledger VALUES ({id}, '{text}'); \
                     UPDATE ledger SET text = text || 'y' WHERE id = {}; COMMIT",
                    id / 2
                ))
                .unwrap();
            let (acknowledged, lsn) = (clock::wall_clock_micros(), self.database.engine().durable_lsn());
            self.entries.push(Entry { id, begun, acknowledged, lsn });
            // So that no two have one time.
            while clock::wall_clock_micros() <= acknowledged {}
        }
    }

    /// A load with a spill file, and one with files of its own.
    pub fn load(&mut self) {
        let rows = "SELECT g, repeat('long ', 30) FROM generate_series(1, 1500) g";
        self.connection
            .execute(&format!(
                "CREATE TABLE IF NOT EXISTS other (a bigint, b text); INSERT INTO other {rows}"
            ))
            .unwrap();
        self.connection
            .execute(&format!("BEGIN; DROP TABLE IF EXISTS made; CREATE TABLE made (a bigint, b text); INSERT INTO made {rows}; COMMIT"))
            .unwrap();
    }
}

/// Everything that a database shows.
pub fn contents(database: &Database) -> String {
    let mut connection = database.connect();
    let mut text = String::new();
    let tables = connection.query_as::<String>("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1", ()).unwrap();
    for table in tables {
        let sql = format!(
            "SELECT count(*), coalesce(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM {table} t"
        );
        let (rows, hash) = connection.query_row_as::<(i64, String)>(&sql, ()).unwrap().unwrap();
        text.push_str(&format!("{table} {rows} {hash}\n"));
    }
    text
}

/// The ids of the ledger, which must be the first ones.
pub fn last_id(database: &Database) -> i64 {
    let sql = "SELECT count(*), coalesce(max(id), -1) FROM ledger";
    let (count, last) = database.connect().query_row_as::<(i64, i64)>(sql, ()).unwrap().unwrap();
    assert_eq!(count, last + 1, "commits are missing");
    last
}

/// One end of a connection in memory.
pub struct Pipe {
    sender: Option<mpsc::SyncSender<std::result::Result<Vec<u8>, Error>>>,
    receiver: mpsc::Receiver<std::result::Result<Vec<u8>, Error>>,
    server: Option<JoinHandle<()>>,
    /// Set once the connection is lost.
    is_cut: Arc<AtomicBool>,
}

impl Channel for Pipe {
    fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        let sender = self.sender.as_ref().filter(|_| !self.is_cut.load(Ordering::SeqCst)).ok_or_else(lost)?;
        sender.send(Ok(parts.concat())).map_err(|_| lost())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> Result<bool> {
        match self.receiver.recv() {
            Ok(received) => {
                *message = received?;
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    fn receive_within(&mut self, message: &mut Vec<u8>, longest: Duration) -> Result<Received> {
        const STEP: Duration = Duration::from_millis(10);
        let begun = clock::now();
        loop {
            if self.is_cut.load(Ordering::SeqCst) {
                return Err(lost());
            }
            let left = longest.saturating_sub(begun.elapsed());
            match self.receiver.recv_timeout(left.min(STEP)) {
                Ok(received) => {
                    *message = received?;
                    return Ok(Received::Message);
                }
                Err(mpsc::RecvTimeoutError::Timeout) if left <= STEP => return Ok(Received::Nothing),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(Received::End),
            }
        }
    }
}

fn lost() -> Error {
    Error::new(SqlState::CONNECTION_FAILURE, "the connection was lost")
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(server) = self.server.take() {
            // It may wait until what it sends is received.
            while self.receiver.recv().is_ok() {}
            server.join().unwrap();
        }
    }
}

/// Connects to a thread that serves copies of a database.
pub fn connect(database: &Database) -> Pipe {
    connect_with(database, &Senders::default(), &Arc::default(), || {})
}

/// The same, and lists it among those that follow, until it is cut. Calls `handed_over` once the database has been handed over.
pub fn connect_with(
    database: &Database,
    senders: &Senders,
    is_cut: &Arc<AtomicBool>,
    handed_over: impl Fn() + Send + 'static,
) -> Pipe {
    let (to_server, from_client) = mpsc::sync_channel(4);
    let (to_client, from_server) = mpsc::sync_channel(4);
    let (engine, senders, cut) = (database.engine().clone(), senders.clone(), is_cut.clone());
    let server = thread::spawn("serve", move || {
        let errors = to_client.clone();
        let mut end = Pipe { sender: Some(to_client), receiver: from_client, server: None, is_cut: cut };
        let peer = Peer { name: String::new(), voter: None, session: 0, client: None, begun: 0 };
        if let Err(error) = firn_replica::serve(&engine, &mut end, &senders, peer, &handed_over, &|_| {
            unreachable!("no voter")
        }) {
            let _ = errors.send(Err(error));
        }
    });
    Pipe { sender: Some(to_server), receiver: from_server, server: Some(server), is_cut: is_cut.clone() }
}

pub fn try_create<D: Disk + 'static>(
    disk: &Arc<D>,
    database: &Database,
    incremental: bool,
) -> Result<Created> {
    backup::create(disk.clone(), Path::new(BACKUPS), incremental, &mut connect(database))
}

pub fn create<D: Disk + 'static>(disk: &Arc<D>, database: &Database, incremental: bool) -> Created {
    try_create(disk, database, incremental).unwrap()
}

pub fn repository<D: Disk + 'static>(disk: &Arc<D>) -> Repository {
    Repository::open(disk.clone(), Path::new(BACKUPS)).unwrap()
}

pub fn to(target: Target) -> Wanted {
    Wanted { target, inclusive: true, backup: None, cluster: None, archive: None }
}

/// Restores into a directory of that name on the disk of the backups.
pub fn try_restore(disk: &Arc<SimulatedDisk>, name: &str, wanted: &Wanted) -> Result<Restored> {
    let target: Arc<dyn Disk> = disk.clone();
    backup::restore(&repository(disk), &target, Path::new(name), wanted)
}

/// Restores, and opens the database.
pub fn restore(disk: &Arc<SimulatedDisk>, name: &str, wanted: &Wanted) -> Database {
    try_restore(disk, name, wanted).unwrap();
    open_at(disk, name).unwrap()
}

/// Removes a restored directory, so that its space and its names can be used again.
pub fn remove(disk: &SimulatedDisk, name: &str) {
    for inner in ["checkpoint", "log", ""] {
        let directory = Path::new(name).join(inner);
        for file in disk.list(&directory).unwrap_or_default() {
            let _ = disk.remove(&directory.join(file));
        }
        let _ = disk.remove_directory(&directory);
    }
}
