//! Loads that are interrupted, and loads for which the disk has no room: a load is stored as a whole or not at all.
//!
//! Loads of two sizes, from files and from the client. Redo of the small one waits in memory for the commit, that of the large
//! one is written to a spill file long before. If the load's transaction has created or truncated its table, the full blocks of
//! the large load are written to a file that its commit names. Only the rest of its redo is spilled.

use crate::file_tests::Folder;
use crate::server::ServerConnection as _;
use crate::{Config, Connection, Database, Outcome};
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Result, SqlState, Value};
use firn_txn::Engine;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

const LOG: &str = "/data/db/log";
const CHECKPOINT: &str = "/data/db/checkpoint";

/// Redo of this length is written to a spill file; a COPY passes its rows on after every 512 KiB.
const SPILL_BYTES: usize = 64 << 10;

/// The number of rows of a block.
const BLOCK_ROWS: usize = 1024;

/// The approximate length of a row.
const ROW_BYTES: usize = 1000;

/// Where the rows of a load come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    File,
    Client,
    /// From a file, into a table which the transaction has made in place of an existing one.
    Made,
    /// From the client, into the table which the transaction has truncated.
    Truncated,
}

impl Way {
    pub(crate) const ALL: [Way; 4] = [Way::File, Way::Client, Way::Made, Way::Truncated];

    /// The statements that open the transaction, if the load is not one by itself.
    pub(crate) fn opening(self) -> Option<String> {
        match self {
            Way::File | Way::Client => None,
            Way::Made => Some(format!("BEGIN; DROP TABLE loaded; {TABLE}")),
            Way::Truncated => Some("BEGIN; TRUNCATE loaded".to_owned()),
        }
    }

    /// The loads that the table holds after a load, given those before.
    pub(crate) fn after(self, before: &[Load], load: Load) -> Vec<Load> {
        match self {
            Way::File | Way::Client => [before, &[load]].concat(),
            Way::Made | Way::Truncated => vec![load],
        }
    }
}

/// The table of the loads.
const TABLE: &str = "CREATE TABLE loaded (load integer, row integer, text text, PRIMARY KEY (load, row));
    CREATE INDEX ON loaded (text)";

/// A load: rows `(load, row, text)` with a primary key over the first two and an index over the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    pub(crate) number: i32,
    pub(crate) rows: i32,
}

pub(crate) const SMALL: i32 = 40;
pub(crate) const LARGE: i32 = 1200;

impl Load {
    fn text(self, row: i32) -> String {
        format!("{:>4} {:>4}: and so on. ", self.number, row).repeat(ROW_BYTES / 20 - 1)
    }

    pub(crate) fn csv(self) -> String {
        let mut csv = String::new();
        for row in 0..self.rows {
            writeln!(csv, "{},{row},\"{}\"", self.number, self.text(row)).unwrap();
        }
        csv
    }

    pub(crate) fn run(self, connection: &mut Connection, way: Way) -> Result<()> {
        let Some(opening) = way.opening() else { return self.copy(connection, way) };
        connection.execute(&opening)?;
        let loaded = self.copy(connection, way).and_then(|()| connection.execute("COMMIT"));
        if loaded.is_err() {
            // A commit that has failed has left nothing to roll back.
            let _ = connection.execute("ROLLBACK");
        }
        loaded.map(drop)
    }

    /// The load itself.
    pub(crate) fn copy(self, connection: &mut Connection, way: Way) -> Result<()> {
        let csv = self.csv();
        match way {
            Way::File | Way::Made => {
                let folder = Folder::new(&[("rows.csv", &csv)]);
                connection.execute(&folder.sql("COPY loaded FROM '@/rows.csv' (FORMAT csv)")).map(drop)
            }
            Way::Client | Way::Truncated => {
                let statement = connection.prepare("COPY loaded FROM STDIN (FORMAT csv)")?;
                let Outcome::CopyIn(mut copy) = connection.run(&statement, &[])? else { panic!() };
                csv.as_bytes().chunks(100_000).try_for_each(|piece| copy.write_data(piece))?;
                copy.finish().map(drop)
            }
        }
    }
}

pub(crate) fn open(disk: &Arc<SimulatedDisk>) -> Database {
    let mut config = Config { directory: Some("/data/db".into()), block_bytes: 1, ..Config::default() };
    (config.log.spill_bytes, config.log.segment_bytes) = (SPILL_BYTES, 32 << 10);
    Database::with_engine(Engine::open_on(disk.clone(), config).unwrap())
}

/// A database that has one load in its checkpoint and another in its log.
pub(crate) fn database() -> (Arc<SimulatedDisk>, Database, Vec<Load>) {
    let disk = SimulatedDisk::new();
    let database = open(&disk);
    let mut connection = database.connect();
    connection.execute(TABLE).unwrap();
    let loads = vec![Load { number: 0, rows: 20 }, Load { number: 1, rows: 200 }];
    loads[0].run(&mut connection, Way::File).unwrap();
    database.checkpoint().unwrap();
    loads[1].run(&mut connection, Way::Client).unwrap();
    (disk, database, loads)
}

pub(crate) fn spills(disk: &SimulatedDisk) -> usize {
    disk.list(Path::new(LOG)).unwrap().iter().filter(|name| name.ends_with(".spill")).count()
}

/// How many files there are of loads into tables of their own.
pub(crate) fn load_files(disk: &SimulatedDisk) -> usize {
    disk.list(Path::new(CHECKPOINT)).unwrap().iter().filter(|name| name.contains("-load-")).count()
}

/// The loads of which there are rows; each must be there as a whole, and in every index.
pub(crate) fn loads_in(database: &Database, possible: &[Load]) -> Vec<Load> {
    let mut connection = database.connect();
    let all = connection.prepare("SELECT load, row, text FROM loaded ORDER BY load, row").unwrap();
    let all = connection.query_values(&all, &[]).unwrap();
    let mut rest = &all[..];
    let mut found = Vec::new();
    while let Some([Value::Integer(number), ..]) = rest.first().map(Vec::as_slice) {
        let load = possible.iter().find(|load| load.number == *number).expect("a load that there was");
        let (rows, later) = rest.split_at_checked(load.rows as usize).expect("all rows of a load");
        for (row, at) in (0..load.rows).zip(rows) {
            assert_eq!(*at, [Value::Integer(*number), Value::Integer(row), Value::Text(load.text(row))]);
        }
        found.push(*load);
        rest = later;
    }
    // Each index finds every row, and has no other entry.
    for (sql, of) in [
        ("SELECT text FROM loaded WHERE load = $1 AND row = $2", 0..2),
        ("SELECT row FROM loaded WHERE text = $1", 2..3),
    ] {
        let statement = connection.prepare(sql).unwrap();
        for row in &all {
            assert_eq!(connection.query_values(&statement, &row[of.clone()]).unwrap().len(), 1);
        }
    }
    let engine = database.engine();
    while engine.garbage_backlog() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let tx = engine.begin();
    for definition in tx.catalog().tables.values() {
        let table = tx.table(definition.storage());
        assert_eq!(table.indexes().len(), 2);
        for index in table.indexes().iter() {
            index.verify();
            assert_eq!(index.len(), all.len(), "entries of {}", index.spec().name);
        }
    }
    found
}

/// Opens what a crash has left. A load that was acknowledged is there. One that was not is there as a whole or not at
/// all, and then nothing remains of it that a second attempt would conflict with.
fn check_after_crash(disk: &Arc<SimulatedDisk>, before: &[Load], load: Load, way: Way, acknowledged: bool) {
    let database = open(disk);
    let (possible, with) = ([before, &[load]].concat(), way.after(before, load));
    let mut found = loads_in(&database, &possible);
    if !acknowledged && found == before {
        load.run(&mut database.connect(), way).unwrap();
        found = loads_in(&database, &possible);
    }
    assert_eq!(found, with);
    database.checkpoint().unwrap();
    assert_eq!(spills(disk), 0, "a spill file that is not needed");
    let full_blocks = if way.opening().is_some() { load.rows as usize / BLOCK_ROWS } else { 0 };
    assert!(load_files(disk) <= full_blocks, "files of loads that are not needed");
    assert_eq!(loads_in(&open(&disk.after_kill()), &possible), with);
}

#[test]
fn a_load_that_is_cut_off_anywhere_is_there_as_a_whole_or_not_at_all() {
    let seed = Random::from_entropy().next_u64();
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    for (rows, way) in [SMALL, LARGE].into_iter().flat_map(|rows| Way::ALL.map(|way| (rows, way))) {
        let load = Load { number: 2, rows };
        let (disk, whole, _) = database();
        let (begin, spilled) = (disk.operations(), spills(&disk));
        load.run(&mut whole.connect(), way).unwrap();
        let committed = disk.operations() - begin;
        let is_own = way.opening().is_some();
        assert_eq!(rows == LARGE, spills(&disk) > spilled, "only the large one is spilled");
        assert_eq!(rows == LARGE && is_own, load_files(&disk) > 0, "only the large one has full blocks");
        whole.checkpoint().unwrap();
        let all = disk.operations() - begin;
        // The operations up to the commit, all of them if they are few, and some of the checkpoint's.
        let mut at = 0;
        while at <= all + 1 {
            let (disk, database, before) = database();
            // From here on nothing reaches the disk, as after a kill.
            disk.fail_after_operations(at, Fault::Broken);
            let acknowledged = load.run(&mut database.connect(), way).is_ok();
            let _ = database.checkpoint();
            check_after_crash(&disk.after_kill(), &before, load, way, acknowledged);
            check_after_crash(&disk.after_power_cut(&mut random), &before, load, way, acknowledged);
            at += if at + 5 < committed { (committed / 8).max(1) } else { 1 + (all - committed) / 12 };
        }
    }
}

#[test]
fn a_load_whose_client_is_still_sending_leaves_nothing_after_a_crash() {
    for way in [Way::Client, Way::Truncated] {
        let load = Load { number: 2, rows: 2 * LARGE };
        let (disk, database, before) = database();
        let mut connection = database.connect();
        if let Some(opening) = way.opening() {
            connection.execute(&opening).unwrap();
        }
        let statement = connection.prepare("COPY loaded FROM STDIN (FORMAT csv)").unwrap();
        let Outcome::CopyIn(mut copy) = connection.run(&statement, &[]).unwrap() else { panic!() };
        let written = |disk: &SimulatedDisk| spills(disk) + load_files(disk);
        let (at_first, mut has_written) = (written(&disk), false);
        for piece in load.csv().as_bytes().chunks(400_000) {
            copy.write_data(piece).unwrap();
            let killed = disk.after_kill();
            has_written |= written(&killed) > at_first;
            let with = [&before[..], &[load]].concat();
            assert_eq!(loads_in(&open(&killed), &with), before);
            check_after_crash(&killed, &before, load, way, false);
        }
        assert!(has_written, "the kill has met a spill file, or the file of a load");
        connection.finish_copy(*copy).unwrap();
        if way.opening().is_some() {
            connection.execute("COMMIT").unwrap();
        }
        check_after_crash(&disk.after_kill(), &before, load, way, true);
    }
}

#[test]
fn a_long_load_that_the_disk_has_no_room_for_fails_and_others_go_on() {
    let load = Load { number: 2, rows: LARGE };
    let bytes = load.csv().len() as u64;
    for way in Way::ALL {
        let mut room = 0;
        loop {
            let (disk, database, before) = database();
            let possible = [&before[..], &[load]].concat();
            let spilled = spills(&disk);
            disk.leave_room(room);
            let Err(error) = load.run(&mut database.connect(), way) else { break };
            assert_eq!(error.state(), SqlState::DISK_FULL, "{error}");
            assert!(error.hint().is_some(), "{error:?}");
            assert_eq!((spills(&disk), load_files(&disk)), (spilled, 0), "its file is gone");
            // Nothing of the load is there, and other transactions write as before, while the disk is as full as it was.
            assert_eq!(loads_in(&database, &possible), before);
            let mut other = database.connect();
            other.execute("INSERT INTO loaded VALUES (2, 0, 'somebody else''s')").unwrap();
            other.execute("DELETE FROM loaded WHERE load = 2").unwrap();
            // The load does not reappear, and it succeeds once there is room.
            assert_eq!(loads_in(&open(&disk.after_kill()), &possible), before);
            disk.heal();
            load.run(&mut other, way).unwrap();
            assert_eq!(loads_in(&database, &possible), way.after(&before, load));
            check_after_crash(&disk.after_kill(), &before, load, way, true);
            room += bytes / 7;
        }
        assert!(room >= bytes, "it takes as much room as it has bytes");
    }
}

#[test]
fn a_short_load_that_the_log_has_no_room_for_is_not_there_and_others_go_on_once_there_is_room() {
    for way in [Way::File, Way::Client] {
        let (disk, database, mut before) = database();
        let mut connection = database.connect();
        connection.execute("CREATE SEQUENCE filler").unwrap();
        disk.leave_room(0);
        // The existing segments have room for some.
        let (load, error) = loop {
            let load = Load { number: before.len() as i32, rows: SMALL };
            match load.run(&mut connection, way) {
                Ok(()) => before.push(load),
                Err(error) => break (load, error),
            }
        };
        assert_eq!(error.state(), SqlState::DISK_FULL, "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("Free space")), "{error:?}");
        // Nobody sees it, and it does not come back.
        let with = [&before[..], &[load]].concat();
        assert_eq!(loads_in(&database, &with), before);
        assert_eq!(loads_in(&open(&disk.after_kill()), &with), before);
        // Neither do other statements end anything, whatever they change. The shortest record takes what is left of the log.
        let mut other = database.connect();
        let error = (0..100_000).find_map(|_| other.execute("SELECT setval('filler', 1)").err());
        assert_eq!(error.expect("the disk is full").state(), SqlState::DISK_FULL);
        for sql in [
            "CREATE TABLE another AS SELECT * FROM generate_series(1, 100000) AS number",
            "INSERT INTO loaded SELECT -1, number, repeat('x', 1000) FROM generate_series(1, 100) AS number",
            "UPDATE loaded SET text = repeat('y', 1000)",
            "CREATE INDEX ON loaded (row)",
            "ALTER TABLE loaded ADD COLUMN more integer DEFAULT 7",
            "CREATE SEQUENCE one",
            "TRUNCATE loaded",
            "DROP TABLE loaded",
            "CHECKPOINT",
        ] {
            let error = other.execute(sql).expect_err(sql);
            assert_eq!(error.state(), SqlState::DISK_FULL, "{sql}: {error}");
        }
        assert_eq!(loads_in(&database, &with), before);
        disk.heal();
        load.run(&mut other, way).unwrap();
        assert_eq!(loads_in(&database, &with), with);
        drop((connection, other, database));
        check_after_crash(&disk, &before, load, way, true);
    }
}
