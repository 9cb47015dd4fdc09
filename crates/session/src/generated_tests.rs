//! What a session promises of generated columns beyond what `tests/slt` states: of COPY, of every kind of change, across
//! sessions, and after a crash.

use crate::file_tests::{Folder, rows};
use crate::{Connection, Database, Outcome};
use firn_base::disk::SimulatedDisk;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Error, SqlState};
use firn_txn::{Config, Engine};

fn connection() -> Connection {
    Database::memory().unwrap().connect()
}

fn run(connection: &mut Connection, statements: &[&str]) {
    for sql in statements {
        connection.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

fn copy(connection: &mut Connection, sql: &str, data: &str) -> Result<(), Error> {
    let statement = connection.prepare(sql)?;
    let Outcome::CopyIn(mut copy) = connection.run(&statement, &[])? else { panic!("{sql} wants data") };
    copy.write_data(data.as_bytes())?;
    copy.finish().map(drop)
}

const TABLE: &str = "CREATE TABLE t (
    a integer PRIMARY KEY, half integer GENERATED ALWAYS AS (100 / (a - 7)) STORED CHECK (half <> 50) UNIQUE, b text)";

#[test]
fn copy_computes_them_and_names_the_line_of_a_row_that_has_none() {
    let mut connection = connection();
    run(&mut connection, &[TABLE]);
    copy(&mut connection, "COPY t FROM STDIN", "8\tx\n17\ty\n").unwrap();
    copy(&mut connection, "COPY t (a) FROM STDIN WHERE a <> 7", "7\n27\n").unwrap();
    assert_eq!(
        rows(&mut connection, "SELECT a, half, b FROM t ORDER BY a"),
        ["Integer(8)|Integer(100)|x", "Integer(17)|Integer(10)|y", "Integer(27)|Integer(5)|Null"]
    );
    let mut fails = |sql: &str, data: &str, state: SqlState, expected_context: Option<&str>| {
        let error = copy(&mut connection, sql, data).expect_err(data);
        assert_eq!((error.state(), error.context()), (state, expected_context), "{data}: {error}");
    };
    // The first row with an error counts.
    let all = "COPY t FROM STDIN";
    fails(all, "6\ta\n7\tb\n9\tc\n", SqlState::DIVISION_BY_ZERO, Some("COPY t, line 2"));
    fails(all, "6\ta\n9\tc\n7\tb\n", SqlState::CHECK_VIOLATION, Some("COPY t, line 2"));
    fails(all, "6\ta\n8\tb\n", SqlState::UNIQUE_VIOLATION, Some("COPY t, line 2"));
    fails("COPY t (half) FROM STDIN", "1\n", SqlState::INVALID_COLUMN_REFERENCE, None);
    fails("COPY t FROM STDIN WHERE half > 5", "1\ta\n", SqlState::INVALID_COLUMN_REFERENCE, None);
}

#[test]
fn files_of_columns_have_none_of_them() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    run(&mut connection, &[TABLE, "INSERT INTO t VALUES (8, DEFAULT, 'x'), (17, DEFAULT, 'y')"]);
    for format in ["parquet", "arrow", "json", "csv", "text", "binary"] {
        let run = |connection: &mut Connection, sql: &str| connection.execute(&folder.sql(sql)).unwrap();
        run(&mut connection, &format!("COPY t TO '@/t.{format}' (FORMAT {format})"));
        run(&mut connection, "DELETE FROM t");
        run(&mut connection, &format!("COPY t FROM '@/t.{format}' (FORMAT {format})"));
        assert_eq!(
            rows(&mut connection, "SELECT a, half, b FROM t ORDER BY a"),
            ["Integer(8)|Integer(100)|x", "Integer(17)|Integer(10)|y"],
            "{format}"
        );
    }
}

/// A date means what it meant in the zone of the session that made the table. By short programs and by pipelines.
#[test]
fn a_value_does_not_depend_on_the_session_that_computes_it() {
    let database = Database::memory().unwrap();
    let mut one = database.connect();
    let limited =
        "CREATE TABLE late (a timestamptz, b boolean GENERATED ALWAYS AS (a > '2030-01-01') STORED)";
    run(&mut one, &["SET TimeZone = 'Europe/Berlin'", limited]);
    let insert = "INSERT INTO late VALUES ('2029-12-31 23:30:00+00') RETURNING b";
    assert_eq!(rows(&mut one, insert), ["Boolean(true)"]);
    let mut other = database.connect();
    run(&mut other, &["SET TimeZone = 'America/New_York'"]);
    assert_eq!(rows(&mut other, insert), ["Boolean(true)"]);
    let many = "INSERT INTO late SELECT '2029-12-31 23:30:00+00' FROM generate_series(1, 100) RETURNING b";
    assert_eq!(rows(&mut other, &format!("WITH i AS ({many}) SELECT DISTINCT b FROM i")), ["Boolean(true)"]);
}

/// After recovery from the log alone, and from a checkpoint.
#[test]
fn they_are_generated_after_a_crash() {
    let open = |disk: &Arc<SimulatedDisk>| {
        let config = Config { directory: Some("/data/db".into()), ..Config::default() };
        Database::with_engine(Engine::open_on(disk.clone(), config).unwrap())
    };
    for checkpoint in [None, Some("CHECKPOINT")] {
        let disk = SimulatedDisk::new();
        let database = open(&disk);
        let mut connection = database.connect();
        run(&mut connection, &[TABLE, "INSERT INTO t VALUES (8)", "ALTER TABLE t RENAME a TO \"A\""]);
        run(&mut connection, checkpoint.as_slice());
        let after = open(&disk.after_power_cut(&mut Random::from_entropy()));
        let mut connection = after.connect();
        run(&mut connection, &["INSERT INTO t VALUES (17)", "UPDATE t SET \"A\" = 32 WHERE half = 100"]);
        assert_eq!(rows(&mut connection, "SELECT half FROM t ORDER BY half"), ["Integer(4)", "Integer(10)"]);
        let error = connection.execute("INSERT INTO t VALUES (9)").unwrap_err();
        assert_eq!(error.state(), SqlState::CHECK_VIOLATION);
        let error = connection.execute("INSERT INTO t VALUES (1, 2)").unwrap_err();
        assert_eq!(error.state().as_str(), "428C9");
    }
}
