//! Replicas with their threads: they are made, follow, are away, begin anew.

use crate::support::*;
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use firn_base::{Error, Lsn, Result, SqlState, clock};
use firn_replica::following::{Following, FollowingState, Options};
use firn_replica::promotion::Promotion;
use firn_replica::rejoin::{Rejoined, interrupted, rejoin};
use firn_replica::standbys::{StandbyLevel, StandbyNames};
use firn_replica::{Channel, Senders, join};
use firn_session::Database;
use firn_txn::DirectoryRole;
use std::path::Path;
use std::time::Duration;

const REPLICA: &str = "/replica";

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = clock::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        clock::sleep(Duration::from_millis(2));
    }
}

/// A server that replicas can connect to while it has a database.
#[derive(Clone, Default)]
struct Server {
    database: Arc<Mutex<Option<Database>>>,
    senders: Senders,
    /// Set once its connections are lost.
    is_cut: Arc<Mutex<Arc<AtomicBool>>>,
    /// Whether its database is to be opened again, since it has handed over.
    has_given_up: Arc<Mutex<bool>>,
}

impl Server {
    fn of(database: &Database) -> Server {
        let server = Server::default();
        *server.database.lock() = Some(database.clone());
        server
    }

    fn connect(&self) -> Result<Pipe> {
        let database = self.database.lock().clone();
        let database =
            database.ok_or_else(|| Error::new(SqlState::CONNECTION_FAILURE, "connection refused"))?;
        let has_given_up = self.has_given_up.clone();
        Ok(connect_with(&database, &self.senders, &self.is_cut.lock(), move || *has_given_up.lock() = true))
    }

    /// Ends, with all connections.
    fn end(&self) {
        *self.database.lock() = None;
        std::mem::take(&mut *self.is_cut.lock()).store(true, Ordering::SeqCst);
        wait_until("the connections end", || self.senders.list().is_empty());
    }
}

/// A replica on a disk of its own.
struct Replica {
    database: Database,
    following: Following,
    /// Why it follows no more.
    ended: Arc<Mutex<Option<FollowingState>>>,
}

impl Replica {
    fn make(disk: &Arc<SimulatedDisk>, server: &Server) -> Replica {
        let dynamic: Arc<dyn Disk> = disk.clone();
        join::join(&dynamic, Path::new(REPLICA), &mut server.connect().unwrap(), "server:1", "r").unwrap();
        Replica::open(disk, server)
    }

    fn open(disk: &Arc<SimulatedDisk>, server: &Server) -> Replica {
        Replica::open_at(disk, REPLICA, server)
    }

    fn open_at(disk: &Arc<SimulatedDisk>, directory: &str, server: &Server) -> Replica {
        join::finish(&**disk, Path::new(directory)).unwrap();
        let database = open_at(disk, directory).unwrap();
        let ended = Arc::new(Mutex::default());
        let options = Options {
            name: "r".to_owned(),
            disk: disk.clone(),
            directory: directory.into(),
            connect: Box::new({
                let server = server.clone();
                move || server.connect().map(|pipe| Box::new(pipe) as Box<dyn Channel>)
            }),
            may_diverge: true,
            report: Box::new(|_| {}),
            ended: Box::new({
                let ended = ended.clone();
                move |state| *ended.lock() = Some(state)
            }),
        };
        let following = Following::start(database.engine().clone(), options).unwrap();
        Replica { database, following, ended }
    }

    /// Waits until it shows what the primary does.
    fn catch_up(&self, primary: &Database) {
        primary.engine().flush_log().unwrap();
        let end = primary.engine().log_point().unwrap();
        wait_until("the replica catches up", || {
            self.database.engine().received().unwrap().is_same_place(&end)
                && self.database.engine().visible_lsn() == end.lsn
        });
    }

    fn compare(&self, primary: &Database) {
        self.catch_up(primary);
        assert_eq!(contents(&self.database), contents(primary));
    }

    fn stop(self) {
        self.following.stop();
        drop(self.database);
    }
}

#[test]
fn a_replica_shows_what_its_primary_does() {
    let (disk, other) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    ledger.commit(30);
    ledger.load();
    let server = Server::of(&ledger.database);
    let replica = Replica::make(&other, &server);
    replica.compare(&ledger.database);
    for round in 0..4 {
        ledger.commit(40);
        ledger.load();
        ledger.connection.execute("SELECT nextval('numbers')").unwrap();
        let sql = format!(
            "CREATE INDEX i{round} ON ledger (text, id); TRUNCATE other; CREATE VIEW v{round} AS SELECT 1 a"
        );
        ledger.connection.execute(&sql).unwrap();
        if round == 1 {
            ledger.database.checkpoint().unwrap();
            replica.database.checkpoint().unwrap();
        }
        replica.compare(&ledger.database);
    }
    assert_eq!(last_id(&replica.database), ledger.entries.len() as i64 - 1);
    let status = server.senders.list();
    assert_eq!((status.len(), &*status[0].peer.name), (1, "r"));
    let end = ledger.database.engine().log_point().unwrap().lsn;
    wait_until("the primary knows that", || server.senders.list()[0].reached.replayed == end);
    let before = replica.database.engine().now();
    let mut connection = replica.database.connect();
    for sql in [
        "INSERT INTO ledger VALUES (-1, '')",
        "UPDATE ledger SET text = ''",
        "DELETE FROM ledger",
        "CREATE TABLE more (a int)",
        "SELECT nextval('numbers')",
        "SELECT * FROM ledger FOR UPDATE",
        "BEGIN; LOCK TABLE ledger; COMMIT",
        "TRUNCATE ledger",
        "DROP TABLE ledger",
        "BEGIN; SELECT 1; CREATE TABLE more (a int); COMMIT",
    ] {
        let error = connection.execute(sql).unwrap_err();
        assert_eq!(error.state(), SqlState::READ_ONLY_SQL_TRANSACTION, "{sql}: {error}");
        let _ = connection.execute("ROLLBACK");
    }
    connection.execute("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM ledger; COMMIT").unwrap();
    assert_eq!(replica.database.engine().now(), before, "only replay moves the clock of a replica");
    replica.stop();
    wait_until("the connection ends", || server.senders.list().is_empty());
    wait_until("nothing is retained", || ledger.database.engine().pinned().is_empty());
}

#[test]
fn a_snapshot_of_a_replica_keeps_seeing_what_it_saw() {
    let (disk, other) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    ledger.commit(50);
    let server = Server::of(&ledger.database);
    let replica = Replica::make(&other, &server);
    replica.catch_up(&ledger.database);
    let read = "SELECT md5(string_agg(id || text, ',' ORDER BY id)), count(*) FROM ledger";
    let by_index = "SELECT count(text) FROM ledger WHERE id = 7";
    let mut readers = Vec::new();
    for round in 0..6 {
        let mut connection = replica.database.connect();
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
        let seen = connection.query_row_as::<(String, i64)>(read, ()).unwrap().unwrap();
        let found = connection.query_row_as::<i64>(by_index, ()).unwrap().unwrap();
        readers.push((connection, seen, found));
        // Slots of deleted rows get other rows, again and again.
        for step in 0..5 {
            let sql = format!(
                "DELETE FROM ledger WHERE id % 3 = {}; INSERT INTO ledger SELECT g, 'new {round} {step} ' || g \
                 FROM generate_series(0, 60) g ON CONFLICT DO NOTHING; UPDATE ledger SET text = text || '.' WHERE id % 5 = 1",
                step % 3
            );
            ledger.connection.execute(&sql).unwrap();
        }
        replica.compare(&ledger.database);
        for (connection, seen, found) in &mut readers {
            assert_eq!(&connection.query_row_as::<(String, i64)>(read, ()).unwrap().unwrap(), seen);
            assert_eq!(&connection.query_row_as::<i64>(by_index, ()).unwrap().unwrap(), found);
        }
        if round == 3 {
            readers.swap_remove(1);
        }
    }
    drop(readers);
    replica.compare(&ledger.database);
    replica.stop();
}

#[test]
fn a_replica_that_was_away_resumes_from_its_own_log() {
    let (mut disk, mut other) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let server = Server::of(&ledger.database);
    let mut replica = Replica::make(&other, &server);
    let mut random = Random::seeded(5);
    for round in 0..12 {
        ledger.commit(10);
        if round % 3 == 0 {
            ledger.load();
        }
        if random.uniform(1, 2) == 1 {
            // Its process is killed, or its machine loses power.
            replica.stop();
            other = if random.uniform(1, 2) == 1 {
                other.after_kill()
            } else {
                other.after_power_cut(&mut random)
            };
            ledger.commit(10);
            replica = Replica::open(&other, &server);
        } else if random.uniform(1, 2) == 1 {
            // That of the primary is, and another epoch begins.
            server.end();
            let entries = std::mem::take(&mut ledger.entries);
            drop(ledger);
            disk =
                if random.uniform(1, 2) == 1 { disk.after_kill() } else { disk.after_power_cut(&mut random) };
            let database = open(&disk);
            *server.database.lock() = Some(database.clone());
            ledger = Ledger { connection: database.connect(), database, entries };
        }
        if random.uniform(1, 3) == 1 {
            replica.database.checkpoint().unwrap();
        }
        ledger.commit(5);
        replica.compare(&ledger.database);
        assert_eq!(last_id(&replica.database), ledger.entries.len() as i64 - 1);
    }
    assert_eq!(*replica.ended.lock(), None);
    replica.stop();
}

#[test]
fn a_replica_that_is_too_far_behind_begins_anew() {
    let (disk, other) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let server = Server::of(&ledger.database);
    let replica = Replica::make(&other, &server);
    ledger.commit(20);
    replica.compare(&ledger.database);
    let seen = contents(&replica.database);
    replica.stop();
    // Without a pin the log goes with the checkpoints.
    for _ in 0..3 {
        ledger.commit(300);
        ledger.load();
        ledger.database.checkpoint().unwrap();
    }
    let replica = Replica::open(&other, &server);
    assert_eq!(contents(&replica.database), seen, "it can be read meanwhile");
    wait_until("it is copied anew", || replica.ended.lock().is_some());
    assert_eq!(replica.following.watch().status().state, FollowingState::Superseded);
    replica.stop();
    let replica = Replica::open(&other, &server);
    ledger.commit(10);
    replica.compare(&ledger.database);
    replica.stop();
}

#[test]
fn a_copy_takes_the_place_of_the_old_one_wherever_that_is_interrupted() {
    let (disk, other) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let server = Server::of(&ledger.database);
    Replica::make(&other, &server).stop();
    ledger.commit(30);
    ledger.load();
    let dynamic: Arc<dyn Disk> = other.clone();
    let directory = Path::new(REPLICA);
    let identity = ledger.database.engine().identity().unwrap();
    join::copy_anew(
        &dynamic,
        directory,
        &mut server.connect().unwrap(),
        ("server:1", None),
        "r",
        identity,
        None,
    )
    .unwrap();
    let expected = contents(&ledger.database);
    let mut random = Random::seeded(3);
    for operations in 0.. {
        let broken = other.after_kill();
        broken.fail_after_operations(operations, Fault::Broken);
        let finished = join::finish(&*broken, directory);
        let cut =
            if random.uniform(1, 2) == 1 { broken.after_kill() } else { broken.after_power_cut(&mut random) };
        join::finish(&*cut, directory).unwrap();
        let database = open_at(&cut, REPLICA).unwrap();
        assert_eq!(contents(&database), expected, "after {operations} operations");
        assert_eq!(database.engine().upstream().as_deref(), Some("server:1"));
        drop(database);
        if finished.is_ok() {
            break;
        }
    }
}

#[test]
fn making_a_replica_can_be_repeated_wherever_it_is_interrupted() {
    let (disk, directory) = (SimulatedDisk::new(), Path::new(REPLICA));
    let mut ledger = Ledger::new(&disk);
    ledger.commit(10);
    ledger.load();
    let server = Server::of(&ledger.database);
    let mut random = Random::seeded(4);
    let mut operations = 0;
    loop {
        let broken = SimulatedDisk::new();
        broken.fail_after_operations(operations, Fault::Broken);
        let dynamic: Arc<dyn Disk> = broken.clone();
        let made = join::join(&dynamic, directory, &mut server.connect().unwrap(), "server:1", "r");
        let cut =
            if random.uniform(1, 2) == 1 { broken.after_kill() } else { broken.after_power_cut(&mut random) };
        if DirectoryRole::read(&*cut, directory).unwrap().is_none() {
            assert!(made.is_err());
            let dynamic: Arc<dyn Disk> = cut.clone();
            join::join(&dynamic, directory, &mut server.connect().unwrap(), "server:1", "r").unwrap();
        }
        assert_eq!(contents(&open_at(&cut, REPLICA).unwrap()), contents(&ledger.database));
        if made.is_ok() {
            break;
        }
        operations += 1 + operations / 8;
    }
    // What is there is never replaced.
    let dynamic: Arc<dyn Disk> = disk.after_kill();
    let error = join::join(&dynamic, Path::new("/data"), &mut server.connect().unwrap(), "server:1", "r");
    assert_eq!(error.unwrap_err().state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
}

#[test]
fn a_replica_follows_only_its_own_cluster() {
    let (disk, other, backups) = (SimulatedDisk::new(), SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    ledger.commit(5);
    let server = Server::of(&ledger.database);
    Replica::make(&other, &server).stop();
    create(&backups, &ledger.database, false);
    let restored = restore(&backups, "/restored", &to(firn_replica::backup::Target::Latest));
    *server.database.lock() = Some(restored);
    let replica = Replica::open(&other, &server);
    let error = || replica.following.watch().status().receive_error;
    wait_until("it is refused", || error().is_some());
    assert!(error().unwrap().contains("another cluster"), "{:?}", error());
    // Its own may come back.
    *server.database.lock() = Some(ledger.database.clone());
    ledger.commit(5);
    replica.compare(&ledger.database);
    assert_eq!(error(), None);
    replica.stop();
}

#[test]
fn replay_can_be_paused_and_be_late() {
    let (disk, other) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let server = Server::of(&ledger.database);
    let replica = Replica::make(&other, &server);
    ledger.commit(5);
    replica.compare(&ledger.database);
    let watch = replica.following.watch();
    watch.pause(true);
    // What is being replayed ends first.
    clock::sleep(Duration::from_millis(150));
    ledger.commit(5);
    let end = ledger.database.engine().log_point().unwrap();
    wait_until("it is received", || replica.database.engine().received().unwrap().is_same_place(&end));
    clock::sleep(Duration::from_millis(150));
    assert_eq!(last_id(&replica.database), 4);
    watch.set_delay(Duration::from_secs(3600));
    watch.pause(false);
    clock::sleep(Duration::from_millis(250));
    assert_eq!(last_id(&replica.database), 4);
    watch.set_delay(Duration::ZERO);
    replica.compare(&ledger.database);
    replica.stop();
}

#[test]
fn a_full_disk_of_a_replica_delays_it_and_loses_nothing() {
    let (disk, other) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let server = Server::of(&ledger.database);
    let replica = Replica::make(&other, &server);
    for room in [0, 10, 5_000, 50_000] {
        other.leave_room(room);
        ledger.commit(20);
        ledger.load();
        ledger.commit(20);
        clock::sleep(Duration::from_millis(50));
        other.heal();
        replica.compare(&ledger.database);
    }
    replica.stop();
}

/// Everything that has been asked of a promotion without time.
const SOON: Duration = Duration::from_secs(60);

/// An error in place of a wait that lasts for long.
fn not_for_long() -> impl Fn() -> Result<()> {
    let begun = clock::now();
    move || match begun.elapsed() < Duration::from_millis(300) {
        true => Ok(()),
        false => Err(Error::new(SqlState::QUERY_CANCELED, "it lasts")),
    }
}

#[test]
fn commits_wait_for_synchronous_standbys() {
    let (disk, other) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let server = Server::of(&ledger.database);
    let replica = Replica::make(&other, &server);
    let standbys = server.senders.standbys().clone();
    let names = |names: &str| server.senders.set_standby_names(StandbyNames::parse(names).unwrap());
    let end = |ledger: &Ledger| {
        ledger.database.engine().flush_log().unwrap();
        ledger.database.engine().log_point().unwrap().lsn
    };
    let is_reached = |lsn, level| match standbys.wait(lsn, level, &not_for_long()) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.message(), "it lasts");
            false
        }
    };
    // Nobody is named.
    assert!(is_reached(Lsn(u64::MAX), StandbyLevel::Replayed));
    names("r");
    replica.catch_up(&ledger.database);
    for _ in 0..20 {
        ledger.commit(1);
        let lsn = end(&ledger);
        assert!(is_reached(lsn, StandbyLevel::Flushed));
        assert!(replica.database.engine().durable_lsn() >= lsn);
        assert!(is_reached(lsn, StandbyLevel::Replayed));
        assert!(replica.database.engine().visible_lsn() >= lsn);
    }
    // What is on disk there does not need to be replayed.
    replica.following.watch().pause(true);
    clock::sleep(Duration::from_millis(200));
    ledger.commit(1);
    let lsn = end(&ledger);
    assert!(is_reached(lsn, StandbyLevel::Received) && is_reached(lsn, StandbyLevel::Flushed));
    assert!(!is_reached(lsn, StandbyLevel::Replayed));
    replica.following.watch().pause(false);
    assert!(is_reached(lsn, StandbyLevel::Replayed));
    // There is one, and not two.
    for (text, is_enough) in [("FIRST 2 (r, x)", false), ("ANY 1 (x, r)", true), ("x", false), ("*", true)] {
        names(text);
        ledger.commit(1);
        assert_eq!(is_reached(end(&ledger), StandbyLevel::Flushed), is_enough, "{text}");
    }
    // It is lost; what waits goes on when it is back, or when nobody is named any more.
    replica.stop();
    wait_until("its connection ends", || server.senders.list().is_empty());
    ledger.commit(1);
    let lsn = end(&ledger);
    assert!(!is_reached(lsn, StandbyLevel::Received));
    let waiting = std::thread::spawn({
        let standbys = standbys.clone();
        move || standbys.wait(lsn, StandbyLevel::Replayed, &|| Ok(()))
    });
    let replica = Replica::open(&other, &server);
    waiting.join().unwrap().unwrap();
    replica.compare(&ledger.database);
    replica.stop();
    ledger.commit(1);
    let lsn = end(&ledger);
    for ends_by_names in [true, false] {
        names("r");
        let waiting = std::thread::spawn({
            let standbys = standbys.clone();
            move || standbys.wait(lsn, StandbyLevel::Received, &|| Ok(()))
        });
        clock::sleep(Duration::from_millis(20));
        match ends_by_names {
            true => names(""),
            false => standbys.end(Error::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, "it is stopped")),
        }
        assert_eq!(waiting.join().unwrap().is_ok(), ends_by_names);
    }
}

fn to_hand_over() -> Promotion {
    Promotion::Handover { server: "replica:1".to_owned() }
}

/// Waits until a server has given up its database, and opens it again, as a replica of `new`.
fn reopen_as_replica(disk: &Arc<SimulatedDisk>, server: &Server, ledger: Ledger, new: &Server) -> Replica {
    wait_until("the primary gives up", || *server.has_given_up.lock());
    server.end();
    drop(ledger);
    let former = Replica::open_at(disk, "/data", new);
    assert_eq!(former.database.engine().upstream().as_deref(), Some("replica:1"));
    former
}

#[test]
fn a_primary_hands_over_to_a_replica_and_back_beside_readers() {
    let (mut disk, mut other) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    ledger.commit(20);
    ledger.load();
    let server = Server::of(&ledger.database);
    let replica = Replica::make(&other, &server);
    replica.compare(&ledger.database);
    let mut reader = replica.database.connect();
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    let count = "SELECT count(*) FROM ledger";
    assert_eq!(reader.query_row_as::<i64>(count, ()).unwrap(), Some(20));
    let mut open = ledger.database.connect();
    open.execute("BEGIN; INSERT INTO ledger VALUES (-1, 'never')").unwrap();
    ledger.connection.execute("SET synchronous_commit = off").unwrap();
    ledger.commit(20);
    replica.following.watch().pause(true);
    let expected = contents(&ledger.database);

    let promoted = replica.following.watch().promote(to_hand_over(), Some(SOON), &|| Ok(())).unwrap();
    assert!(promoted.unwrap().is_same_place(&ledger.database.engine().log_point().unwrap()));
    let error = open.execute("COMMIT").unwrap_err();
    assert_eq!(error.state(), SqlState::ADMIN_SHUTDOWN, "{error}");
    assert!(error.hint().unwrap().contains("replica:1"), "{error:?}");
    drop(open);
    assert_eq!(contents(&replica.database), expected);
    assert_eq!(replica.following.watch().status().state, FollowingState::Promoted);
    assert!(!replica.database.engine().is_replica());
    // A reader from before reads on, and does not write.
    assert_eq!(reader.query_row_as::<i64>(count, ()).unwrap(), Some(20));
    let error = reader.execute("INSERT INTO ledger VALUES (-1, 'never')").unwrap_err();
    assert_eq!(error.state(), SqlState::READ_ONLY_SQL_TRANSACTION);
    drop(reader);

    let new = Server::of(&replica.database);
    let entries = std::mem::take(&mut ledger.entries);
    let former = reopen_as_replica(&disk, &server, ledger, &new);
    let database = replica.database.clone();
    let mut ledger = Ledger { connection: database.connect(), database, entries };
    ledger.commit(20);
    ledger.load();
    former.compare(&ledger.database);
    assert_eq!(last_id(&former.database), 59);
    // Both are what they are now also after they were opened again.
    former.stop();
    replica.stop();
    let entries = std::mem::take(&mut ledger.entries);
    drop(ledger);
    new.end();
    (disk, other) = (disk.after_kill(), other.after_kill());
    let database = open_at(&other, REPLICA).unwrap();
    let mut ledger = Ledger { connection: database.connect(), database, entries };
    let new = Server::of(&ledger.database);
    let former = Replica::open_at(&disk, "/data", &new);
    ledger.commit(5);
    former.compare(&ledger.database);
    // And back, with the name by which the other one knows it.
    let back = Promotion::Handover { server: "data:1".to_owned() };
    former.following.watch().promote(back, Some(SOON), &|| Ok(())).unwrap().unwrap();
    former.database.connect().execute("INSERT INTO ledger VALUES (1000, 'back')").unwrap();
    former.stop();
}

#[test]
fn a_handover_is_refused_or_given_up_without_harm() {
    let (disk, other, third) = (SimulatedDisk::new(), SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let server = Server::of(&ledger.database);
    let replica = Replica::make(&other, &server);
    replica.compare(&ledger.database);
    // A replica of a replica: its server has nothing to hand over.
    let relay = Server::of(&replica.database);
    let last = Replica::make(&third, &relay);
    let error = last.following.watch().promote(to_hand_over(), Some(SOON), &|| Ok(())).unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
    ledger.commit(5);
    last.compare(&ledger.database);
    // The primary cannot be reached.
    server.end();
    let watch = replica.following.watch();
    let short = Duration::from_millis(300);
    assert_eq!(watch.promote(to_hand_over(), Some(short), &|| Ok(())).unwrap(), None);
    let cancelled = || Err(Error::new(SqlState::QUERY_CANCELED, "cancelled"));
    assert_eq!(
        watch.promote(to_hand_over(), Some(SOON), &cancelled).unwrap_err().state(),
        SqlState::QUERY_CANCELED
    );
    *server.database.lock() = Some(ledger.database.clone());
    ledger.commit(5);
    replica.compare(&ledger.database);
    clock::sleep(short);
    assert!(replica.database.engine().is_replica());
    ledger.commit(5);
    last.compare(&ledger.database);
    last.stop();
    replica.stop();
}

#[test]
fn what_the_new_primary_does_not_have_is_given_up_wherever_rejoining_is_interrupted() {
    for with_checkpoint in [false, true] {
        let (disk, other) = (SimulatedDisk::new(), SimulatedDisk::new());
        let mut ledger = Ledger::new(&disk);
        ledger.commit(20);
        let server = Server::of(&ledger.database);
        let replica = Replica::make(&other, &server);
        replica.compare(&ledger.database);
        ledger.database.checkpoint().unwrap();
        server.end();
        // Nobody gets these, in two epochs and several segments.
        ledger.commit(20);
        let entries = std::mem::take(&mut ledger.entries);
        drop(ledger);
        let database = open(&disk);
        let mut ledger = Ledger { connection: database.connect(), database, entries };
        ledger.load();
        ledger.commit(20);
        ledger.load();
        if with_checkpoint {
            ledger.database.checkpoint().unwrap();
        }
        drop(ledger);

        let watch = replica.following.watch();
        watch.promote(Promotion::Forced, Some(SOON), &|| Ok(())).unwrap().unwrap();
        let database = replica.database.clone();
        let (mut connection, new) = (database.connect(), Server::of(&database));
        connection.execute("INSERT INTO ledger VALUES (20, 'another one')").unwrap();
        let mut random = Random::seeded(5);
        let mut operations = 0;
        loop {
            let broken = disk.after_kill();
            broken.fail_after_operations(operations, Fault::Broken);
            let rejoin_on = |disk: &Arc<SimulatedDisk>| {
                let dynamic: Arc<dyn Disk> = disk.clone();
                let connect = || new.connect().map(|pipe| Box::new(pipe) as Box<dyn Channel>);
                rejoin(&dynamic, Path::new("/data"), &connect, &|| false, "replica:1", None, "former")
            };
            let done = rejoin_on(&broken);
            let cut = if random.uniform(1, 2) == 1 {
                broken.after_kill()
            } else {
                broken.after_power_cut(&mut random)
            };
            match &done {
                Ok(Rejoined::Copied) => assert!(with_checkpoint),
                Ok(rejoined) => assert!(matches!(rejoined, Rejoined::Cut { .. }) && !with_checkpoint),
                Err(_) => {
                    if let Some(server) = interrupted(&*cut, Path::new("/data")).unwrap() {
                        assert_eq!(server, "replica:1");
                        let error = open_at(&cut, "/data").map(drop).unwrap_err();
                        assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
                    }
                    rejoin_on(&cut).unwrap();
                }
            }
            let former = Replica::open_at(&cut, "/data", &new);
            former.compare(&database);
            former.stop();
            if done.is_ok() {
                break;
            }
            operations += 1 + operations / 8;
        }
        drop(connection);
        replica.stop();
    }
}

#[test]
fn only_the_one_to_which_it_was_handed_over_takes_over() {
    let (disk, other, third) = (SimulatedDisk::new(), SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let server = Server::of(&ledger.database);
    let replica = Replica::make(&other, &server);
    ledger.commit(5);
    replica.compare(&ledger.database);
    // The primary gives up, and the message that says so is lost.
    server.end();
    let end = ledger.database.engine().hand_over("replica:1").unwrap();
    assert_eq!(
        ledger.database.engine().hand_over("third:1").unwrap_err().state(),
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
    );
    let expected = contents(&ledger.database);
    drop(ledger);
    let new = Server::of(&replica.database);
    let former = Replica::open_at(&disk, "/data", &new);
    *server.database.lock() = Some(former.database.clone());
    let follows = |replica: &Replica| replica.database.engine().received().unwrap().is_same_place(&end);
    wait_until("the replica gets the end of the log", || follows(&replica));

    // The former primary does not become one again: the other one may have had the message.
    let back = Promotion::Handover { server: "data:1".to_owned() };
    let error = former.following.watch().promote(back, Some(SOON), &|| Ok(())).unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
    // Nor does a replica of it.
    let last = Replica::make(&third, &server);
    let another = Promotion::Handover { server: "third:1".to_owned() };
    last.following.watch().promote(another, Some(SOON), &|| Ok(())).unwrap_err();

    replica.following.watch().promote(to_hand_over(), Some(SOON), &|| Ok(())).unwrap().unwrap();
    assert_eq!(contents(&replica.database), expected);
    replica.database.connect().execute("INSERT INTO ledger VALUES (5, 'new')").unwrap();
    former.compare(&replica.database);
    last.compare(&replica.database);
    // What it was handed over for has happened.
    assert!(former.database.engine().hand_over("replica:1").is_err());

    // Whoever follows a server that begins another cluster is refused from then on.
    former.following.watch().promote(Promotion::Forced, Some(SOON), &|| Ok(())).unwrap().unwrap();
    former.database.connect().execute("INSERT INTO ledger VALUES (6, 'of another cluster')").unwrap();
    let refused = || last.following.watch().status().receive_error;
    wait_until("it is refused", || refused().is_some_and(|error| error.contains("another cluster")));
    assert_eq!(last_id(&last.database), 5);
    assert!(last.database.engine().is_replica());
    last.stop();
    former.stop();
    replica.stop();
}
