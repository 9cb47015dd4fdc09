//! What a session promises of COPYs that are cancelled or take too long: they store nothing, and they can be run again.
//!
//! A statement can be cancelled wherever it checks for that: a watch counts the checks, and cancels at a given one.

use crate::file_tests::{Folder, connection, rows};
use crate::interrupted_tests::{LARGE, Load, SMALL, Way, database, load_files, loads_in, open, spills};
use crate::server::ServerConnection as _;
use crate::{Connection, Outcome};
use firn_base::sync::{Arc, AtomicBool, AtomicI64, Ordering};
use firn_base::{Error, SqlState};
use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

const CANCELLED: &str = "canceling statement due to user request";
const TOO_LATE: &str = "canceling statement due to statement timeout";

/// How many more checks a connection's statements may make before they are cancelled.
struct Looks(Arc<AtomicI64>);

impl Looks {
    const FOR_EVER: i64 = i64::MAX;

    fn of(connection: &Connection) -> Looks {
        let left = Arc::new(AtomicI64::new(Looks::FOR_EVER));
        let watched = left.clone();
        connection.set_interrupt_hook(move || watched.fetch_sub(1, Ordering::Relaxed) <= 0);
        Looks(left)
    }

    fn set(&self, left: i64) {
        self.0.store(left, Ordering::Relaxed);
    }
}

fn assert_message(error: &Error, message: &str) {
    assert_eq!((error.state(), error.message()), (SqlState::QUERY_CANCELED, message));
}

#[test]
fn a_load_that_is_cancelled_anywhere_leaves_nothing_and_can_be_run_again() {
    for (count, way) in [SMALL, LARGE].into_iter().flat_map(|count| Way::ALL.map(|way| (count, way))) {
        let load = Load { number: 2, rows: count };
        let mut looks = 0;
        loop {
            let (disk, database, before) = database();
            let (possible, after) = ([&before[..], &[load]].concat(), way.after(&before, load));
            let (spilled, mut connection) = (spills(&disk), database.connect());
            let left = Looks::of(&connection);
            if let Some(opening) = way.opening() {
                connection.execute(&format!("{opening}; SAVEPOINT made")).unwrap();
            }
            left.set(looks);
            let copied = load.copy(&mut connection, way);
            left.set(Looks::FOR_EVER);
            let Err(error) = copied else { break };
            assert_message(&error, CANCELLED);
            if way.opening().is_some() && looks % 2 == 0 {
                // The transaction continues, with the table that it has made.
                connection.execute("ROLLBACK TO made").unwrap();
                assert_eq!(rows(&mut connection, "SELECT count(*) FROM loaded"), ["BigInt(0)"]);
                load.copy(&mut connection, way).unwrap();
                connection.execute("COMMIT").unwrap();
            } else {
                if way.opening().is_some() {
                    connection.execute("ROLLBACK").unwrap();
                }
                assert_eq!((spills(&disk), load_files(&disk)), (spilled, 0), "its file is gone");
                assert_eq!(loads_in(&database, &possible), before);
                assert_eq!(loads_in(&open(&disk.after_kill()), &possible), before);
                load.run(&mut connection, way).unwrap();
            }
            assert_eq!(loads_in(&database, &possible), after);
            assert_eq!(loads_in(&open(&disk.after_kill()), &possible), after);
            looks = 3 * looks + 1;
        }
        assert!(looks > 0, "{way:?}: it never looks");
    }
}

#[test]
fn files_of_columns_and_streams_of_them_can_be_cancelled_as_well() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    let left = Looks::of(&connection);
    connection.execute("CREATE TABLE t (i integer PRIMARY KEY, t text)").unwrap();
    let source = "SELECT i, 'row ' || i AS t FROM generate_series(1, 150000) AS g(i)";
    for format in ["parquet", "arrow"] {
        let to = format!("COPY ({source}) TO '@/t.{format}' (FORMAT {format})");
        assert_eq!(connection.execute(&folder.sql(&to)).unwrap(), 150_000);
        for condition in ["", " WHERE i % 2 = 0"] {
            let copy = folder.sql(&format!("COPY t FROM '@/t.{format}' (FORMAT {format}){condition}"));
            for looks in [0, 1, 2] {
                left.set(looks);
                let error = connection.execute(&copy).unwrap_err();
                left.set(Looks::FOR_EVER);
                assert_message(&error, CANCELLED);
                assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(0)"]);
            }
            connection.execute(&copy).unwrap();
            connection.execute("TRUNCATE t").unwrap();
        }
    }
    let statement = connection.prepare(&format!("COPY ({source}) TO STDOUT (FORMAT arrow)")).unwrap();
    let Outcome::CopyOut(mut copy) = connection.run(&statement, &[]).unwrap() else { panic!() };
    let mut data = Vec::new();
    while let Some(piece) = copy.next_chunk().unwrap() {
        data.extend_from_slice(&piece);
    }
    drop(copy);
    let statement = connection.prepare("COPY t FROM STDIN (FORMAT arrow)").unwrap();
    for looks in [0, 1, 10, Looks::FOR_EVER] {
        let Outcome::CopyIn(mut copy) = connection.run(&statement, &[]).unwrap() else { panic!() };
        left.set(looks);
        let sent = data.chunks(10_000).try_for_each(|piece| copy.write_data(piece));
        let sent = sent.and_then(|()| connection.finish_copy(*copy));
        left.set(Looks::FOR_EVER);
        match sent {
            Ok(tag) => assert_eq!((looks, tag.rows), (Looks::FOR_EVER, Some(150_000))),
            Err(error) => {
                assert_message(&error, CANCELLED);
                assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(0)"]);
            }
        }
    }
}

/// A pipe with a name.
fn make_pipe(folder: &Folder) {
    assert!(Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().success());
}

/// The writing end, which opens once a reader has opened the pipe.
fn writer(folder: &Folder) -> File {
    fs::OpenOptions::new().write(true).open(folder.path("pipe")).unwrap()
}

#[test]
fn a_copy_from_a_silent_pipe_can_be_cancelled() {
    let folder = Folder::new(&[]);
    make_pipe(&folder);
    let mut copying = connection();
    copying.execute("CREATE TABLE t (i int PRIMARY KEY)").unwrap();
    let cases: [(&str, Option<&[u8]>); 6] = [
        ("csv", None),
        ("csv", Some(b"1\n2\n")),
        ("csv, ON_ERROR ignore", Some(b"1")),
        ("json", Some(b"")),
        ("binary", None),
        ("binary", Some(b"PGCOPY\n\xff\r\n\0")),
    ];
    for (format, begins) in cases {
        let handle = copying.cancel_handle();
        let copy = folder.sql(&format!("COPY t FROM '@/pipe' (FORMAT {format})"));
        let error = std::thread::scope(|scope| {
            let copied = scope.spawn(|| copying.execute(&copy).map(|_| ()));
            // A writer may never open the pipe; or it has opened the pipe and written, and now writes nothing more.
            let pipe = begins.map(|begins| {
                let mut pipe = writer(&folder);
                pipe.write_all(begins).unwrap();
                pipe
            });
            while !copied.is_finished() {
                // A cancel from before the statement began does not count.
                handle.cancel();
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(pipe);
            copied.join().unwrap().unwrap_err()
        });
        assert_message(&error, CANCELLED);
        assert_eq!(rows(&mut copying, "SELECT count(*) FROM t"), ["BigInt(0)"]);
        // A cancel that is too late has no effect either.
        copying.execute("BEGIN; SET LOCAL statement_timeout = 50").unwrap();
        assert_message(&copying.execute(&copy).unwrap_err(), TOO_LATE);
        copying
            .execute("ROLLBACK; BEGIN; CREATE TABLE made (i int); SET LOCAL statement_timeout = 50")
            .unwrap();
        assert_message(&copying.execute(&copy.replace("COPY t", "COPY made")).unwrap_err(), TOO_LATE);
        copying.execute("ROLLBACK").unwrap();
        // The same pipe is good for the next load.
        std::thread::scope(|scope| {
            scope.spawn(|| writer(&folder).write_all(b"1\n2\n3\n").unwrap());
            let copy = folder.sql("BEGIN; COPY t FROM '@/pipe' (FORMAT csv)");
            assert_eq!(copying.execute(&copy).unwrap(), 3);
        });
        copying.execute("ROLLBACK").unwrap();
    }
    // Files of columns are read from their end, which is impossible with a pipe.
    let copy = folder.sql("COPY t FROM '@/pipe' (FORMAT parquet)");
    assert_eq!(copying.execute(&copy).unwrap_err().state(), SqlState::WRONG_OBJECT_TYPE);
    // The watching hook may have to be called on the thread that runs the statement, as with Python.
    let (here, raised) = (std::thread::current().id(), Arc::new(AtomicBool::new(true)));
    copying.set_interrupt_hook({
        let raised = raised.clone();
        move || raised.load(Ordering::Relaxed) && std::thread::current().id() == here
    });
    for (format, condition) in
        [("csv", ""), ("csv", " WHERE i > 1"), ("json", " WHERE i > 1"), ("binary", " WHERE i > 1")]
    {
        let copy = folder.sql(&format!("COPY t FROM '@/pipe' (FORMAT {format}){condition}"));
        assert_message(&copying.execute(&copy).unwrap_err(), CANCELLED);
    }
}

/// The error is in the first bytes, whether these are few or more than one read returns; the writer then neither writes nor closes.
#[test]
fn a_copy_that_has_failed_does_not_wait_for_a_silent_pipe() {
    let folder = Folder::new(&[]);
    make_pipe(&folder);
    let mut copying = connection();
    copying.execute("CREATE TABLE t (i int PRIMARY KEY)").unwrap();
    copying.execute("INSERT INTO t VALUES (100000)").unwrap();
    let lines = |bytes: usize, json: bool| {
        let line = |i: usize| if json { format!("{{\"i\": {i}}}\n") } else { format!("{i}\n") };
        let mut lines = String::new();
        for i in 100_000.. {
            if lines.len() >= bytes {
                break;
            }
            lines += &line(i);
        }
        lines
    };
    for bytes in [1, 600 << 10, 900 << 10, 2 << 20] {
        let (csv, json) = (lines(bytes, false), lines(bytes, true));
        for (options, sent, state) in [
            ("(FORMAT csv)", format!("x\n{csv}"), "22P02"),
            ("(FORMAT csv)", csv.clone(), "23505"),
            ("(FORMAT csv) WHERE i > 0", format!("x\n{csv}"), "22P02"),
            ("(FORMAT csv) WHERE i > 0", csv, "23505"),
            ("(FORMAT json)", format!("[]\n{json}"), "22P04"),
            ("(FORMAT json) WHERE i > 0", json, "23505"),
        ] {
            let copy = folder.sql(&format!("COPY t FROM '@/pipe' {options}"));
            let begun = Instant::now();
            let error = std::thread::scope(|scope| {
                let copied = scope.spawn(|| copying.execute(&copy).map(|_| ()));
                let mut pipe = writer(&folder);
                // The write may fail because the reader has gone.
                let _ = pipe.write_all(sent.as_bytes());
                while !copied.is_finished() && begun.elapsed() < Duration::from_secs(20) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                assert!(copied.is_finished(), "{options}: it waits for {bytes} bytes and more");
                copied.join().unwrap().unwrap_err()
            });
            assert_eq!(error.state(), SqlState::new(state), "{options}: {error}");
            assert_eq!(rows(&mut copying, "SELECT count(*) FROM t"), ["BigInt(1)"]);
        }
    }
}

#[test]
fn a_copy_to_a_pipe_without_a_reader_can_be_cancelled() {
    let folder = Folder::new(&[]);
    make_pipe(&folder);
    let mut copying = connection();
    let copy = |rows: u32| {
        folder
            .sql(&format!("COPY (SELECT i FROM generate_series(1, {rows}) AS g(i)) TO '@/pipe' (FORMAT csv)"))
    };
    // No reader opens the pipe; or one opens it and does not read, and the data exceeds the pipe's buffer.
    for comes in [false, true] {
        let handle = copying.cancel_handle();
        let error = std::thread::scope(|scope| {
            let copied = scope.spawn(|| copying.execute(&copy(1_000_000)).map(|_| ()));
            let pipe = comes.then(|| File::open(folder.path("pipe")).unwrap());
            while !copied.is_finished() {
                handle.cancel();
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(pipe);
            copied.join().unwrap().unwrap_err()
        });
        assert_message(&error, CANCELLED);
        copying.execute("SET statement_timeout = 50").unwrap();
        assert_message(&copying.execute(&copy(1)).unwrap_err(), TOO_LATE);
        copying.execute("SET statement_timeout = 0").unwrap();
        std::thread::scope(|scope| {
            let read = scope.spawn(|| fs::read_to_string(folder.path("pipe")).unwrap());
            assert_eq!(copying.execute(&copy(100_000)).unwrap(), 100_000);
            assert!(read.join().unwrap().ends_with("99999\n100000\n"));
        });
    }
}

#[test]
fn a_copy_that_takes_too_long_ends() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (i int PRIMARY KEY)").unwrap();
    let large: String = (0..500_000).map(|row| format!("{row}\n")).collect();
    fs::write(folder.path("large.csv"), large).unwrap();
    let copy = folder.sql("COPY t FROM '@/large.csv' (FORMAT csv)");
    // On a machine that does much else, the load may have ended before the thread runs that ends it.
    let error = (0..50).find_map(|_| {
        let prepare = "SET statement_timeout = 0; TRUNCATE t; SET statement_timeout = 1";
        connection.execute(prepare).unwrap();
        connection.execute(&copy).err()
    });
    assert_message(&error.expect("it takes too long"), TOO_LATE);
    let to =
        folder.sql("COPY (SELECT i FROM generate_series(1, 1000000000) AS g(i)) TO '@/out.csv' (FORMAT csv)");
    assert_message(&connection.execute(&to).unwrap_err(), TOO_LATE);
    assert!(!folder.path("out.csv").exists());
    connection.execute("SET statement_timeout = 0").unwrap();
    // The time that the client takes counts, inside a block and outside.
    for table in ["t", "made"] {
        if table == "made" {
            connection.execute("BEGIN; CREATE TABLE made (i int PRIMARY KEY)").unwrap();
        }
        for at_end in [false, true] {
            if table == "made" {
                connection.execute("SAVEPOINT s").unwrap();
            }
            connection.execute("SET statement_timeout = 200").unwrap();
            let statement = connection.prepare(&format!("COPY {table} FROM STDIN")).unwrap();
            let Outcome::CopyIn(mut copy) = connection.run(&statement, &[]).unwrap() else { panic!() };
            copy.write_data(b"1\n").unwrap();
            std::thread::sleep(Duration::from_millis(400));
            let error = match at_end {
                false => copy.write_data(b"2\n").unwrap_err(),
                true => connection.finish_copy(*copy).map(|_| ()).unwrap_err(),
            };
            assert_message(&error, TOO_LATE);
            if table == "made" {
                connection.execute("ROLLBACK TO s").unwrap();
            }
            connection.execute("SET statement_timeout = 0").unwrap();
            assert_eq!(rows(&mut connection, &format!("SELECT count(*) FROM {table}")), ["BigInt(0)"]);
        }
        if table == "made" {
            connection.execute("ROLLBACK").unwrap();
        }
    }
    assert_eq!(connection.execute(&copy).unwrap(), 500_000);
}
