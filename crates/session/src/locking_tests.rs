//! `SELECT … FOR UPDATE` and its relatives: which statement waits for which, and the rows that it finds afterwards.

use crate::waiting_tests::{ADD_ONE, ADD_TEN, beside, database, rows, run, state};
use crate::{Connection, Database};
use firn_base::sync::{AtomicUsize, Ordering};
use firn_base::{Result, SqlState, Value, clock, thread};
use std::time::Duration;

const READ_COMMITTED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// The rows of a query.
fn query(connection: &mut Connection, sql: &str) -> Result<Vec<Vec<Value>>> {
    let statement = connection.prepare(sql)?;
    connection.query_values(&statement, &[])
}

/// The integers of its first column.
fn numbers(connection: &mut Connection, sql: &str) -> Vec<i32> {
    let number = |row: Vec<Value>| match row[0] {
        Value::Integer(number) => number,
        ref other => panic!("{other:?}"),
    };
    query(connection, sql).unwrap().into_iter().map(number).collect()
}

/// Through an index, and without one.
const WAYS: [&str; 2] = ["SELECT b FROM t WHERE a = 1", "SELECT b FROM t WHERE abs(a) = 1"];

#[test]
fn a_locked_row_blocks_other_transactions() {
    let database = database();
    for way in WAYS {
        for clause in ["FOR UPDATE", "FOR NO KEY UPDATE", "FOR SHARE"] {
            let before = rows(&database)[0].1;
            let lock = format!("{way} {clause}");
            beside(&database, &[&lock], &["BEGIN", ADD_TEN, "COMMIT"], "COMMIT").unwrap();
            beside(&database, &[&lock, ADD_ONE], &[ADD_TEN], "COMMIT").unwrap();
            beside(&database, &[&lock, ADD_ONE], &[ADD_TEN], "ROLLBACK").unwrap();
            assert_eq!(rows(&database)[0].1, before + 31, "{lock}");
            // In the other order.
            beside(&database, &[ADD_ONE], &["BEGIN", &lock, ADD_TEN, "COMMIT"], "COMMIT").unwrap();
            assert_eq!(rows(&database)[0].1, before + 42, "{lock}");
            let exclusive = format!("{way} FOR UPDATE");
            beside(&database, &[&lock], &["BEGIN", &exclusive, "COMMIT"], "COMMIT").unwrap();
            beside(&database, &[&exclusive], &[&lock], "ROLLBACK").unwrap();
        }
        let lock = format!("{way} FOR KEY SHARE");
        let mut holder = database.connect();
        run(&mut holder, &["BEGIN", &lock]).unwrap();
        run(&mut database.connect(), &[ADD_ONE, &format!("{way} FOR NO KEY UPDATE")]).unwrap();
        run(&mut holder, &["COMMIT"]).unwrap();
        beside(&database, &[&lock], &["BEGIN", "UPDATE t SET a = 10 WHERE a = 1", "ROLLBACK"], "COMMIT")
            .unwrap();
        beside(&database, &[&lock], &["BEGIN", "DELETE FROM t WHERE a = 1", "ROLLBACK"], "COMMIT").unwrap();
    }
}

#[test]
fn several_share_a_row() {
    let database = database();
    let (mut first, mut second) = (database.connect(), database.connect());
    run(&mut first, &["BEGIN", "SELECT b FROM t FOR SHARE"]).unwrap();
    run(&mut second, &["BEGIN", "SELECT b FROM t FOR SHARE", "SELECT b FROM t FOR KEY SHARE"]).unwrap();
    run(&mut first, &["COMMIT"]).unwrap();
    run(&mut second, &["SET LOCAL lock_timeout = '5s'", ADD_ONE, "COMMIT"]).unwrap();
    assert_eq!(rows(&database)[0], (1, 1));
}

/// Two that share a row and both want to change it.
#[test]
fn of_two_that_wait_for_each_others_lock_one_fails() {
    let database = database();
    for lock in ["SELECT b FROM t WHERE a = 1 FOR SHARE", "SELECT b FROM t WHERE a = $$ FOR UPDATE"] {
        let outcomes: Vec<Result<()>> = thread::scope(|scope| {
            let connections = [(1, 2), (2, 1)].map(|(own, other)| {
                let database = &database;
                thread::spawn_scoped(scope, "locking", move || {
                    let mut connection = database.connect();
                    let first = lock.replace("$$", &own.to_string());
                    run(&mut connection, &["BEGIN", &first]).unwrap();
                    clock::sleep(Duration::from_millis(40));
                    let second = match lock.contains("$$") {
                        true => lock.replace("$$", &other.to_string()),
                        false => ADD_ONE.to_owned(),
                    };
                    let outcome = run(&mut connection, &[&second]);
                    run(&mut connection, &["COMMIT"]).unwrap();
                    outcome
                })
            });
            connections.into_iter().map(|connection| connection.join().unwrap()).collect()
        });
        let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(failed[0].state(), SqlState::DEADLOCK_DETECTED);
    }
}

/// A statement that had to wait for a row finds it as the other transaction has left it.
#[test]
fn after_waiting_the_newest_version_is_what_counts() {
    let database = database();
    for way in WAYS {
        let lock = format!("{way} AND b = 0 FOR UPDATE");
        for begin in ["BEGIN", READ_COMMITTED] {
            let second = [
                begin,
                &lock,
                "UPDATE t SET b = 100 WHERE a = 2 AND (SELECT b FROM t WHERE a = 1) = 1",
                "COMMIT",
            ];
            beside(&database, &[ADD_ONE], &second, "COMMIT").unwrap();
            assert_eq!(rows(&database)[..2], [(1, 1), (2, 100)]);
            run(&mut database.connect(), &["UPDATE t SET b = 0"]).unwrap();
        }
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
        assert_eq!(
            state(beside(&database, &[ADD_ONE], &[begin, &lock], "COMMIT")),
            SqlState::SERIALIZATION_FAILURE
        );
        run(&mut database.connect(), &["UPDATE t SET b = 0"]).unwrap();
        beside(&database, &[ADD_ONE], &[begin, &lock, "COMMIT"], "ROLLBACK").unwrap();
        let deleted = "DELETE FROM t WHERE a = 1";
        beside(&database, &[deleted], &["BEGIN", &lock, "COMMIT"], "COMMIT").unwrap();
        run(&mut database.connect(), &["INSERT INTO t VALUES (1, 0)"]).unwrap();
    }
    // A serializable transaction cannot continue if what it has read before has changed.
    let second = ["BEGIN", "SELECT sum(b) FROM t", "SELECT b FROM t WHERE a = 1 FOR UPDATE"];
    assert_eq!(state(beside(&database, &[ADD_ONE], &second, "COMMIT")), SqlState::SERIALIZATION_FAILURE);
}

/// A row that has changed since it was read is locked in its current version, which the transaction does not see.
#[test]
fn a_lock_of_a_row_that_has_changed_does_not_hide_the_change() {
    let database = database();
    for way in WAYS {
        for clause in ["FOR UPDATE", "FOR NO KEY UPDATE", "FOR SHARE"] {
            let lock = format!("{way} {clause}");
            let mut connection = database.connect();
            run(&mut connection, &["BEGIN"]).unwrap();
            let before = numbers(&mut connection, way);
            run(&mut database.connect(), &[ADD_ONE]).unwrap();
            run(&mut connection, &["SAVEPOINT s"]).unwrap();
            assert_eq!(state(run(&mut connection, &[&lock])), SqlState::SERIALIZATION_FAILURE, "{lock}");
            run(&mut connection, &["ROLLBACK TO s"]).unwrap();
            for way in WAYS {
                assert_eq!(numbers(&mut connection, way), before, "{lock}");
            }
            assert_eq!(state(run(&mut connection, &[ADD_TEN])), SqlState::SERIALIZATION_FAILURE, "{lock}");
            run(&mut connection, &["ROLLBACK"]).unwrap();
            assert_eq!(numbers(&mut connection, way), [before[0] + 1]);
            // A transaction that has read nothing before, or is READ COMMITTED, continues with the current rows.
            for begin in ["BEGIN", READ_COMMITTED] {
                run(&mut connection, &[begin, "SELECT b FROM t WHERE a = 2"]).unwrap();
                run(&mut database.connect(), &[ADD_ONE]).unwrap();
                let newest = numbers(&mut database.connect(), way);
                assert_eq!(numbers(&mut connection, &lock), newest, "{lock}");
                run(&mut connection, &["COMMIT"]).unwrap();
            }
        }
    }
}

#[test]
fn nowait_fails_and_skip_locked_continues() {
    let database = database();
    let mut holder = database.connect();
    run(&mut holder, &["BEGIN", "SELECT b FROM t WHERE a = 2 FOR UPDATE"]).unwrap();
    for order in ["ORDER BY a", "ORDER BY abs(a)"] {
        let mut other = database.connect();
        run(&mut other, &["BEGIN"]).unwrap();
        let all = format!("SELECT a FROM t {order} FOR UPDATE");
        let error = query(&mut other, &format!("{all} NOWAIT")).unwrap_err();
        assert_eq!(error.state(), SqlState::LOCK_NOT_AVAILABLE);
        assert_eq!(error.message(), "could not obtain lock on row in relation \"t\"");
        run(&mut other, &["ROLLBACK", "BEGIN"]).unwrap();
        assert_eq!(numbers(&mut other, &format!("{all} SKIP LOCKED")), [1, 3]);
        assert_eq!(numbers(&mut database.connect(), &format!("{all} SKIP LOCKED")), [0; 0]);
        run(&mut other, &["ROLLBACK", "BEGIN"]).unwrap();
        assert_eq!(numbers(&mut other, &format!("{all} SKIP LOCKED LIMIT 1")), [1]);
        assert_eq!(numbers(&mut database.connect(), &format!("{all} SKIP LOCKED LIMIT 1")), [3]);
        assert_eq!(numbers(&mut other, &format!("{all} SKIP LOCKED LIMIT 1 OFFSET 1")), [3]);
        assert_eq!(numbers(&mut other, &format!("{all} SKIP LOCKED LIMIT 0")), [0; 0]);
        run(&mut other, &["COMMIT"]).unwrap();
    }
}

/// Outside a block a lock lasts for the statement; inside until the end of the block, or a rollback to before it.
#[test]
fn locks_end_with_their_transaction() {
    let database = database();
    let mut first = database.connect();
    let try_lock = |clause: &str| query(&mut database.connect(), &format!("SELECT a FROM t {clause} NOWAIT"));
    run(&mut first, &["SELECT a FROM t FOR UPDATE"]).unwrap();
    assert_eq!(try_lock("FOR UPDATE").unwrap().len(), 3);
    run(&mut first, &["BEGIN", "SELECT a FROM t FOR UPDATE"]).unwrap();
    assert_eq!(try_lock("FOR KEY SHARE").unwrap_err().state(), SqlState::LOCK_NOT_AVAILABLE);
    run(&mut first, &["COMMIT", "BEGIN", "SAVEPOINT s", "SELECT a FROM t FOR SHARE", "ROLLBACK TO s"])
        .unwrap();
    assert_eq!(try_lock("FOR UPDATE").unwrap().len(), 3);
    run(&mut first, &["SELECT a FROM t FOR SHARE"]).unwrap();
    assert_eq!(try_lock("FOR UPDATE").unwrap_err().state(), SqlState::LOCK_NOT_AVAILABLE);
    // A block that has failed holds no locks any more.
    assert_eq!(state(run(&mut first, &["INSERT INTO t VALUES (1, 1)"])), SqlState::UNIQUE_VIOLATION);
    assert_eq!(try_lock("FOR UPDATE").unwrap().len(), 3);
    run(&mut first, &["ROLLBACK", "BEGIN READ ONLY"]).unwrap();
    let error = run(&mut first, &["SELECT a FROM t FOR NO KEY UPDATE"]).unwrap_err();
    assert_eq!(error.state(), SqlState::READ_ONLY_SQL_TRANSACTION);
    assert_eq!(error.message(), "cannot execute SELECT FOR NO KEY UPDATE in a read-only transaction");
    run(&mut first, &["ROLLBACK", "BEGIN", "DECLARE c CURSOR FOR SELECT a FROM t ORDER BY a FOR UPDATE"])
        .unwrap();
    assert_eq!(try_lock("FOR UPDATE").unwrap_err().state(), SqlState::LOCK_NOT_AVAILABLE);
    assert_eq!(numbers(&mut first, "FETCH 2 FROM c"), [1, 2]);
    run(&mut first, &["COMMIT"]).unwrap();
}

/// Many transactions at once read, compute and write: none fails and nothing is lost, at any level that may advance its snapshot.
#[test]
fn reading_for_update_makes_read_and_write_one() {
    const THREADS: i32 = 4;
    const ROUNDS: i32 = 40;
    for begin in ["BEGIN", READ_COMMITTED] {
        for way in WAYS {
            let database = database();
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    let database = &database;
                    thread::spawn_scoped(scope, "adder", move || {
                        let mut connection = database.connect();
                        for _ in 0..ROUNDS {
                            run(&mut connection, &[begin]).unwrap();
                            let b = numbers(&mut connection, &format!("{way} FOR UPDATE"))[0];
                            let set = format!("UPDATE t SET b = {} WHERE a = 1", b + 1);
                            run(&mut connection, &[&set, "COMMIT"]).unwrap();
                        }
                    });
                }
            });
            assert_eq!(rows(&database)[0], (1, THREADS * ROUNDS), "{begin} {way}");
        }
    }
}

/// Rows whose shared locks were released still count as read.
#[test]
fn what_was_read_under_a_lock_that_has_gone_must_still_be_so() {
    let database = database();
    for way in WAYS {
        let lock = format!("{way} FOR SHARE SKIP LOCKED");
        let mut first = database.connect();
        run(&mut first, &["BEGIN", "SAVEPOINT s", &lock, "ROLLBACK TO s"]).unwrap();
        run(&mut database.connect(), &[ADD_ONE]).unwrap();
        run(&mut first, &["UPDATE t SET b = 5 WHERE a = 2"]).unwrap();
        assert_eq!(state(run(&mut first, &["COMMIT"])), SqlState::SERIALIZATION_FAILURE, "{lock}");
    }
}

/// New jobs, in a table with or without an index on their state.
fn jobs(index: &str, count: i32) -> Database {
    let database = Database::memory().unwrap();
    let jobs = "CREATE TABLE jobs (id integer PRIMARY KEY, state text, tries integer)";
    let done = "CREATE TABLE done (id integer PRIMARY KEY)";
    let fill = format!("INSERT INTO jobs SELECT i, 'new', 0 FROM generate_series(1, {count}) AS i");
    run(&mut database.connect(), &[jobs, done, &fill]).unwrap();
    if !index.is_empty() {
        run(&mut database.connect(), &[index]).unwrap();
    }
    database
}

fn assert_all_done(database: &Database, count: i32) {
    let mut connection = database.connect();
    assert_eq!(
        numbers(&mut connection, "SELECT id FROM done ORDER BY id"),
        (1..=count).collect::<Vec<i32>>()
    );
    assert_eq!(numbers(&mut connection, "SELECT id FROM jobs WHERE state <> 'done'"), [0; 0]);
}

/// Several workers take jobs from one queue, and return some: each is done once, none is lost, and no worker fails.
#[test]
fn workers_take_different_jobs_from_one_queue() {
    const JOBS: i32 = 60;
    let by_state = "CREATE INDEX jobs_state ON jobs (state, id)";
    for (begin, index) in
        [("BEGIN", by_state), ("BEGIN", ""), (READ_COMMITTED, by_state), (READ_COMMITTED, "")]
    {
        let database = jobs(index, JOBS);
        thread::scope(|scope| {
            for worker in 0..4 {
                let database = &database;
                thread::spawn_scoped(scope, "worker", move || {
                    let mut connection = database.connect();
                    for turn in 0.. {
                        run(&mut connection, &[begin]).unwrap();
                        let take = "SELECT id FROM jobs WHERE state = 'new' ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1";
                        let [job] = numbers(&mut connection, take)[..] else { break };
                        let done = format!("INSERT INTO done VALUES ({job})");
                        let note = format!("UPDATE jobs SET state = 'done' WHERE id = {job}");
                        run(&mut connection, &[&done, &note]).unwrap();
                        let end = if turn % 5 == worker { "ROLLBACK" } else { "COMMIT" };
                        run(&mut connection, &[end]).unwrap();
                    }
                });
            }
        });
        assert_all_done(&database, JOBS);
    }
}

/// The same with one statement, which picks the job and changes it.
#[test]
fn a_change_takes_its_rows_from_a_query_that_locks_them() {
    const JOBS: i32 = 60;
    for index in ["CREATE INDEX jobs_state ON jobs (state, id)", ""] {
        for pick in [
            "id IN (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED)",
            "id = (SELECT id FROM jobs WHERE state = $1 ORDER BY id FOR NO KEY UPDATE SKIP LOCKED LIMIT 1)",
        ] {
            let database = jobs(index, JOBS);
            let taken = AtomicUsize::new(0);
            thread::scope(|scope| {
                for _ in 0..4 {
                    let (database, taken) = (&database, &taken);
                    thread::spawn_scoped(scope, "worker", move || {
                        let mut connection = database.connect();
                        let sql = format!(
                            "UPDATE jobs SET state = 'done', tries = tries + 1 WHERE {pick} RETURNING id"
                        );
                        let statement = connection.prepare(&sql).unwrap();
                        let parameters: &[Value] =
                            if pick.contains("$1") { &[Value::Text("new".to_owned())] } else { &[] };
                        assert_eq!(statement.parameters().len(), parameters.len());
                        loop {
                            let rows = connection.query_values(&statement, parameters).unwrap();
                            if rows.is_empty() {
                                break;
                            }
                            taken.fetch_add(rows.len(), Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(taken.into_inner() as i32, JOBS);
            assert_eq!(numbers(&mut database.connect(), "SELECT id FROM jobs WHERE tries <> 1"), [0; 0]);
        }
    }
    let database = jobs("", 3);
    let mut holder = database.connect();
    run(&mut holder, &["BEGIN", "SELECT id FROM jobs WHERE id = 2 FOR UPDATE"]).unwrap();
    let mut other = database.connect();
    let delete = "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs FOR UPDATE SKIP LOCKED) RETURNING id";
    assert_eq!(query(&mut other, delete).unwrap().len(), 2);
    let two = "DELETE FROM jobs WHERE id = (SELECT id FROM jobs FOR UPDATE)";
    run(&mut holder, &["ROLLBACK", "INSERT INTO jobs VALUES (7, 'new', 0)"]).unwrap();
    assert_eq!(state(run(&mut other, &[two])), SqlState::CARDINALITY_VIOLATION);
}

/// More rows are locked ahead than are examined at once.
#[test]
fn skipping_continues_after_many_locked_rows() {
    let database = jobs("", 6_000);
    let mut holder = database.connect();
    run(&mut holder, &["BEGIN", "SELECT id FROM jobs WHERE id < 5990 FOR UPDATE"]).unwrap();
    let mut other = database.connect();
    for (from, expected) in [(5_000, 5_990), (3_000, 5_990), (0, 5_990)] {
        let take =
            format!("SELECT id FROM jobs WHERE id > {from} ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED");
        assert_eq!(numbers(&mut other, &take), [expected]);
    }
    let all = "SELECT id FROM jobs WHERE id > 10 FOR SHARE SKIP LOCKED";
    assert_eq!(numbers(&mut other, all), (5_990..=6_000).collect::<Vec<i32>>());
}

#[test]
fn explain_shows_what_is_locked() {
    let database = database();
    let mut connection = database.connect();
    let lines = |connection: &mut Connection, sql: &str| -> Vec<String> {
        let rows = query(connection, sql).unwrap();
        rows.into_iter()
            .map(|row| match &row[0] {
                Value::Text(line) => line.clone(),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    let plan = lines(
        &mut connection,
        "EXPLAIN (COSTS OFF) SELECT b FROM t WHERE a = 1 FOR NO KEY UPDATE SKIP LOCKED",
    );
    assert!(plan[1].starts_with("  Lock [") && plan[1].ends_with(" no key update skip]"), "{plan:?}");
    let plan = lines(&mut connection, "EXPLAIN ANALYZE SELECT b FROM t AS x WHERE b = 0 FOR SHARE OF x");
    assert!(plan[1].starts_with("  Lock [") && plan[1].contains(" share"), "{plan:?}");
    assert!(plan.contains(&"Rows: 3".to_owned()), "{plan:?}");
}
