//! Statements that find a row which another transaction is changing: they wait, and continue if they can.

use crate::{Connection, Database, Outcome, TransactionStatus};
use firn_base::{Result, SqlState, Value, clock, thread};
use std::time::Duration;

pub(crate) fn database() -> Database {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection.execute("CREATE TABLE t (a integer PRIMARY KEY, b integer)").unwrap();
    connection.execute("CREATE TABLE child (id integer PRIMARY KEY, a integer REFERENCES t)").unwrap();
    connection.execute("INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)").unwrap();
    database
}

pub(crate) fn run(connection: &mut Connection, statements: &[&str]) -> Result<()> {
    statements.iter().try_for_each(|sql| connection.execute(sql).map(drop))
}

pub(crate) fn rows(database: &Database) -> Vec<(i32, i32)> {
    let mut connection = database.connect();
    let statement = connection.prepare("SELECT a, b FROM t ORDER BY a").unwrap();
    let rows = connection.query_values(&statement, &[]).unwrap();
    let number = |value: &Value| match value {
        Value::Integer(number) => *number,
        other => panic!("{other:?}"),
    };
    rows.iter().map(|row| (number(&row[0]), number(&row[1]))).collect()
}

/// Runs `second` in a connection of its own while a transaction of `first` is open, and ends that one
/// with `end` once the other waits. Returns the result of the other.
pub(crate) fn beside(database: &Database, first: &[&str], second: &[&str], end: &str) -> Result<()> {
    let mut holder = database.connect();
    run(&mut holder, &["BEGIN"]).unwrap();
    run(&mut holder, first).unwrap();
    let waits = &database.engine().statistics().waits;
    let before = waits.get();
    thread::scope(|scope| {
        let waiting = thread::spawn_scoped(scope, "second", || {
            let mut connection = database.connect();
            let outcome = run(&mut connection, second);
            if outcome.is_err() && connection.status() == TransactionStatus::Failed {
                run(&mut connection, &["ROLLBACK"]).unwrap();
            }
            outcome
        });
        until(|| waits.get() > before);
        assert!(!waiting.is_finished(), "it waits");
        run(&mut holder, &[end]).unwrap();
        waiting.join().unwrap()
    })
}

pub(crate) fn state(result: Result<()>) -> SqlState {
    result.expect_err("it fails").state()
}

pub(crate) const ADD_ONE: &str = "UPDATE t SET b = b + 1 WHERE a = 1";
pub(crate) const ADD_TEN: &str = "UPDATE t SET b = b + 10 WHERE a = 1";

#[test]
fn a_writer_waits_for_the_previous_one_and_continues_from_its_row() {
    let database = database();
    beside(&database, &[ADD_ONE], &["BEGIN", ADD_TEN, "COMMIT"], "COMMIT").unwrap();
    assert_eq!(rows(&database)[0], (1, 11));
    beside(&database, &[ADD_ONE], &["BEGIN", ADD_TEN, "COMMIT"], "ROLLBACK").unwrap();
    assert_eq!(rows(&database)[0], (1, 21));
    // As a statement by itself, and as the last of several.
    beside(&database, &[ADD_ONE], &[ADD_TEN], "COMMIT").unwrap();
    assert_eq!(rows(&database)[0], (1, 32));
    let several =
        ["BEGIN", "UPDATE t SET b = 7 WHERE a = 2", "SELECT b FROM t WHERE a = 2", ADD_TEN, "COMMIT"];
    beside(&database, &[ADD_ONE], &several, "COMMIT").unwrap();
    assert_eq!(rows(&database), [(1, 43), (2, 7), (3, 0)]);
    // Not through an index.
    beside(&database, &[ADD_ONE], &["BEGIN", "UPDATE t SET b = b + 100 WHERE b > 40", "COMMIT"], "COMMIT")
        .unwrap();
    assert_eq!(rows(&database)[0], (1, 144));
    beside(&database, &["DELETE FROM t WHERE a = 3"], &["BEGIN", "DELETE FROM t", "COMMIT"], "COMMIT")
        .unwrap();
    assert_eq!(rows(&database), []);
}

/// It cannot continue if the change affects what it had read before.
#[test]
fn a_transaction_with_changed_reads_fails_after_its_wait() {
    let database = database();
    for read in ["SELECT b FROM t WHERE a = 1", "SELECT sum(b) FROM t", "SELECT a FROM t WHERE b = 0"] {
        let outcome = beside(&database, &[ADD_ONE], &["BEGIN", read, ADD_TEN, "COMMIT"], "COMMIT");
        assert_eq!(state(outcome), SqlState::SERIALIZATION_FAILURE, "{read}");
        run(&mut database.connect(), &["UPDATE t SET b = 0 WHERE a = 1"]).unwrap();
        beside(&database, &[ADD_ONE], &["BEGIN", read, ADD_TEN, "COMMIT"], "ROLLBACK").unwrap();
        run(&mut database.connect(), &["UPDATE t SET b = 0 WHERE a = 1"]).unwrap();
    }
    let other = "SELECT b FROM t WHERE a = 2";
    beside(&database, &[ADD_ONE], &["BEGIN", other, ADD_TEN, "COMMIT"], "COMMIT").unwrap();
    assert_eq!(rows(&database)[0], (1, 11));
}

/// A change that was committed before the statement ran, but after its transaction began.
#[test]
fn a_transaction_moves_on_over_what_it_has_not_read() {
    let database = database();
    let (mut first, mut second) = (database.connect(), database.connect());
    run(&mut first, &["BEGIN", "UPDATE t SET b = 5 WHERE a = 2"]).unwrap();
    run(&mut second, &[ADD_ONE, "INSERT INTO t VALUES (4, 4)"]).unwrap();
    run(&mut first, &[ADD_TEN]).unwrap();
    // Its snapshot is later by now.
    let count = first.query_row("SELECT count(*) FROM t", &[]).unwrap().unwrap();
    assert_eq!(count, [Value::BigInt(4)]);
    run(&mut first, &["COMMIT"]).unwrap();
    assert_eq!(rows(&database), [(1, 11), (2, 5), (3, 0), (4, 4)]);
}

#[test]
fn repeatable_read_waits_but_keeps_its_snapshot() {
    let database = database();
    let second = ["BEGIN ISOLATION LEVEL REPEATABLE READ", ADD_TEN, "COMMIT"];
    assert_eq!(state(beside(&database, &[ADD_ONE], &second, "COMMIT")), SqlState::SERIALIZATION_FAILURE);
    assert_eq!(rows(&database)[0], (1, 1));
    beside(&database, &[ADD_ONE], &second, "ROLLBACK").unwrap();
    assert_eq!(rows(&database)[0], (1, 11));
}

/// Every statement reads what is committed when it begins; one that had to wait begins again.
#[test]
fn read_committed_waits_and_reads_what_the_other_has_left() {
    let database = database();
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
    let read = "SELECT sum(b) FROM t";
    beside(&database, &[ADD_ONE], &[begin, read, ADD_TEN, "COMMIT"], "COMMIT").unwrap();
    assert_eq!(rows(&database)[0], (1, 11));
    let if_eleven = "UPDATE t SET b = 100 WHERE b = 11";
    beside(&database, &[ADD_ONE], &[begin, if_eleven, "COMMIT"], "COMMIT").unwrap();
    assert_eq!(rows(&database)[0], (1, 12), "it was no longer eleven");
    // Rows of a query that are not read yet are those of its statement.
    let (mut first, mut second) = (database.connect(), database.connect());
    run(&mut first, &[begin, "DECLARE old CURSOR FOR SELECT b FROM t ORDER BY a"]).unwrap();
    run(&mut second, &["UPDATE t SET b = 77", "DELETE FROM t WHERE a = 3"]).unwrap();
    let one = |connection: &mut Connection, sql: &str| connection.query_row(sql, &[]).unwrap().unwrap();
    assert_eq!(one(&mut first, "SELECT sum(b) FROM t"), [Value::BigInt(154)]);
    for expected in [12, 0, 0] {
        assert_eq!(one(&mut first, "FETCH old"), [Value::Integer(expected)]);
    }
    run(&mut first, &["UPDATE t SET b = 0", "COMMIT"]).unwrap();
    assert_eq!(rows(&database), [(1, 0), (2, 0)]);
}

#[test]
fn a_key_that_another_is_about_to_take_is_waited_for() {
    let database = database();
    let insert = "INSERT INTO t VALUES (9, 1)";
    beside(&database, &[insert], &["BEGIN", "INSERT INTO t VALUES (9, 2)", "COMMIT"], "ROLLBACK").unwrap();
    assert_eq!(rows(&database)[3], (9, 2));
    let delete = "DELETE FROM t WHERE a = 9";
    beside(&database, &[delete], &["BEGIN", insert, "COMMIT"], "COMMIT").unwrap();
    assert_eq!(rows(&database)[3], (9, 1));
    let outcome = beside(&database, &[delete, insert], &["BEGIN", insert, "COMMIT"], "COMMIT");
    assert_eq!(state(outcome), SqlState::UNIQUE_VIOLATION);
    let upsert = "INSERT INTO t VALUES (9, 5) ON CONFLICT (a) DO UPDATE SET b = t.b + 100";
    beside(&database, &["UPDATE t SET b = 50 WHERE a = 9"], &["BEGIN", upsert, "COMMIT"], "COMMIT").unwrap();
    assert_eq!(rows(&database)[3], (9, 150));
}

const UPSERTS: [(&str, i32); 2] = [
    ("INSERT INTO t VALUES (7, 1) ON CONFLICT DO NOTHING", 0),
    ("INSERT INTO t VALUES (7, 1) ON CONFLICT (a) DO UPDATE SET b = t.b + excluded.b", 1),
];

/// The conflicting row was committed after the snapshot was taken.
#[test]
fn on_conflict_finds_a_row_that_its_snapshot_does_not_see() {
    for (upsert, added) in UPSERTS {
        for (begin, before, expected) in [
            ("BEGIN ISOLATION LEVEL READ COMMITTED", "SELECT sum(b) FROM t", None),
            ("BEGIN", "SELECT count(*) FROM child", None),
            ("BEGIN", "SELECT sum(b) FROM t", Some(SqlState::SERIALIZATION_FAILURE)),
            (
                "BEGIN ISOLATION LEVEL REPEATABLE READ",
                "SELECT count(*) FROM child",
                Some(SqlState::SERIALIZATION_FAILURE),
            ),
        ] {
            let database = database();
            let (mut first, mut second) = (database.connect(), database.connect());
            run(&mut first, &[begin, before]).unwrap();
            run(&mut second, &["INSERT INTO t VALUES (7, 70)"]).unwrap();
            let outcome = run(&mut first, &[upsert, "COMMIT"]);
            assert_eq!(outcome.err().map(|error| error.state()), expected, "{begin}: {upsert}");
            let added = if expected.is_none() { added } else { 0 };
            assert_eq!(rows(&database)[3], (7, 70 + added), "{begin}: {upsert}");
        }
        // A key other than the target's is still a violation.
        let database = database();
        let mut connection = database.connect();
        run(&mut connection, &["UPDATE t SET b = a", "CREATE UNIQUE INDEX ON t (b)"]).unwrap();
        let target = upsert.replace("CONFLICT DO", "CONFLICT (a) DO");
        assert_eq!(state(run(&mut connection, &[&target])), SqlState::UNIQUE_VIOLATION);
    }
}

/// The conflicting row has both keys of the new one, and the target's key is not the one that is entered first.
#[test]
fn on_conflict_finds_an_unseen_row_with_another_duplicate_key() {
    for (isolation, expected) in
        [("SERIALIZABLE", None), ("REPEATABLE READ", Some(SqlState::SERIALIZATION_FAILURE))]
    {
        let database = database();
        let (mut first, mut second) = (database.connect(), database.connect());
        let begin = format!("BEGIN ISOLATION LEVEL {isolation}");
        let create = "CREATE TABLE u (id integer PRIMARY KEY, email text UNIQUE)";
        run(&mut first, &[create, &begin, "SELECT count(*) FROM child"]).unwrap();
        run(&mut second, &["INSERT INTO u VALUES (1, 'a')"]).unwrap();
        let upsert = "INSERT INTO u VALUES (1, 'a') ON CONFLICT (email) DO NOTHING";
        let outcome = run(&mut first, &[upsert, "COMMIT"]);
        assert_eq!(outcome.err().map(|error| error.state()), expected, "{isolation}");
        run(&mut first, &["ROLLBACK"]).unwrap();
        // Another row has the other key, and no row has the target's.
        let violation = "INSERT INTO u VALUES (1, 'b') ON CONFLICT (email) DO NOTHING";
        assert_eq!(state(run(&mut first, &[violation])), SqlState::UNIQUE_VIOLATION);
    }
}

/// Several transactions insert and delete the same few keys; ON CONFLICT never reports a duplicate.
#[test]
fn on_conflict_beside_others_never_finds_a_duplicate() {
    let database = database();
    thread::scope(|scope| {
        for worker in 0..4 {
            let database = &database;
            thread::spawn_scoped(scope, "worker", move || {
                let mut connection = database.connect();
                for round in 0..300 {
                    let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][round % 3];
                    if (round + worker) % 4 == 0 {
                        run(&mut connection, &["DELETE FROM t WHERE a = 7"]).unwrap();
                    }
                    run(&mut connection, &[&format!("BEGIN ISOLATION LEVEL {level}")]).unwrap();
                    // Other transactions run between the snapshot and the row.
                    clock::sleep(Duration::from_micros(50));
                    let (upsert, _) = UPSERTS[round / 3 % 2];
                    if let Err(error) = run(&mut connection, &[upsert, "COMMIT"]) {
                        let state = error.state();
                        assert!(
                            state == SqlState::SERIALIZATION_FAILURE && level != "READ COMMITTED",
                            "{error}"
                        );
                        run(&mut connection, &["ROLLBACK"]).unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn a_row_that_is_referenced_is_waited_for_from_both_sides() {
    let database = database();
    let (delete, insert) = ("DELETE FROM t WHERE a = 3", "INSERT INTO child VALUES (1, 3)");
    let outcome = beside(&database, &[insert], &["BEGIN", delete, "COMMIT"], "COMMIT");
    assert_eq!(state(outcome), SqlState::FOREIGN_KEY_VIOLATION);
    run(&mut database.connect(), &["DELETE FROM child"]).unwrap();
    beside(&database, &[insert], &["BEGIN", delete, "COMMIT"], "ROLLBACK").unwrap();
    run(&mut database.connect(), &["INSERT INTO t VALUES (3, 0)"]).unwrap();
    beside(&database, &[delete], &["BEGIN", insert, "COMMIT"], "ROLLBACK").unwrap();
    run(&mut database.connect(), &["DELETE FROM child"]).unwrap();
    let outcome = beside(&database, &[delete], &["BEGIN", insert, "COMMIT"], "COMMIT");
    assert_eq!(state(outcome), SqlState::FOREIGN_KEY_VIOLATION);

    // A referencing row may be deleted by another transaction, or be changed to reference another key.
    run(&mut database.connect(), &["INSERT INTO t VALUES (3, 0)", insert]).unwrap();
    for first in ["DELETE FROM child", "UPDATE child SET a = 1"] {
        let outcome = beside(&database, &[first], &["BEGIN", delete, "COMMIT"], "ROLLBACK");
        assert_eq!(state(outcome), SqlState::FOREIGN_KEY_VIOLATION);
        for level in ["REPEATABLE READ", "READ COMMITTED", "SERIALIZABLE"] {
            let begin = format!("BEGIN ISOLATION LEVEL {level}");
            let outcome = beside(&database, &[first], &[&begin, delete, "COMMIT"], "COMMIT");
            if level == "REPEATABLE READ" {
                // It does not see that the row was deleted.
                assert_eq!(state(outcome), SqlState::SERIALIZATION_FAILURE, "{first}");
            } else {
                outcome.unwrap_or_else(|error| panic!("{level} {first}: {error}"));
                run(&mut database.connect(), &["INSERT INTO t VALUES (3, 0)"]).unwrap();
            }
            run(&mut database.connect(), &["DELETE FROM child", insert]).unwrap();
        }
    }
    run(&mut database.connect(), &["DELETE FROM child", delete]).unwrap();
}

#[test]
fn of_two_that_wait_for_each_other_one_fails() {
    let database = database();
    let mut first = database.connect();
    run(&mut first, &["BEGIN", "UPDATE t SET b = 1 WHERE a = 1"]).unwrap();
    thread::scope(|scope| {
        let other = thread::spawn_scoped(scope, "second", || {
            let mut second = database.connect();
            run(&mut second, &["BEGIN", "UPDATE t SET b = 2 WHERE a = 2"]).unwrap();
            let outcome = run(&mut second, &["UPDATE t SET b = 2 WHERE a = 1"]);
            run(&mut second, &["COMMIT"]).unwrap();
            outcome
        });
        clock::sleep(Duration::from_millis(30));
        let own = run(&mut first, &["UPDATE t SET b = 1 WHERE a = 2"]);
        run(&mut first, &["COMMIT"]).unwrap();
        let outcomes = [own, other.join().unwrap()];
        let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(failed[0].state(), SqlState::DEADLOCK_DETECTED);
    });
    let statistics = database.engine().statistics();
    assert_eq!(statistics.deadlocks.get(), 1);
    assert!(statistics.restarts.get() > 0, "the waiting statement was run again");
    let rows = rows(&database);
    assert_eq!(rows[0].1, rows[1].1, "one did both");
}

/// Rows that SKIP LOCKED returns are not noted as read, since their locks keep them unchanged: unless a savepoint may release them.
#[test]
fn what_was_picked_since_a_savepoint_counts_as_read() {
    let database = database();
    let picks =
        ["UPDATE t SET b = 0 WHERE a = 1", "SELECT b FROM t WHERE a = 1 FOR NO KEY UPDATE SKIP LOCKED"];
    for picks in [&picks[..], &picks[1..]] {
        let mut picking = database.connect();
        run(&mut picking, &["BEGIN", "SAVEPOINT s"]).unwrap();
        run(&mut picking, picks).unwrap();
        run(&mut picking, &["ROLLBACK TO s"]).unwrap();
        let other = ["BEGIN", "SELECT count(*) FROM child", "UPDATE t SET b = b + 1 WHERE a = 1", "COMMIT"];
        run(&mut database.connect(), &other).unwrap();
        let outcome = run(&mut picking, &["INSERT INTO child VALUES (1, NULL)", "COMMIT"]);
        assert_eq!(state(outcome), SqlState::SERIALIZATION_FAILURE, "{picks:?}");
    }
}

#[test]
fn a_rollback_to_a_savepoint_resolves_a_deadlock() {
    let database = database();
    let statistics = database.engine().statistics();
    // It has the slot that all before had, and so the greater number.
    let mut victim = database.connect();
    let own = ["SAVEPOINT s", "UPDATE t SET b = b + 10 WHERE a = 1", "DELETE FROM t WHERE a = 3"];
    run(&mut victim, &["BEGIN ISOLATION LEVEL READ COMMITTED", "INSERT INTO t VALUES (4, 0)"]).unwrap();
    run(&mut victim, &own).unwrap();
    let mut patient = database.connect();
    run(&mut patient, &["BEGIN ISOLATION LEVEL READ COMMITTED", "UPDATE t SET b = 1 WHERE a = 2"]).unwrap();
    thread::scope(|scope| {
        let waits = statistics.waits.get();
        let waiting = thread::spawn_scoped(scope, "patient", || {
            run(&mut patient, &["UPDATE t SET b = 1 WHERE a IN (1, 3)", "COMMIT"])
        });
        until(|| statistics.waits.get() > waits);
        assert_eq!(state(run(&mut victim, &["UPDATE t SET b = 2 WHERE a = 2"])), SqlState::DEADLOCK_DETECTED);
        run(&mut victim, &["ROLLBACK TO s"]).unwrap();
        // Although the transaction that got the error has not ended.
        waiting.join().unwrap().unwrap();
    });
    run(&mut victim, &own[1..]).unwrap();
    run(&mut victim, &["UPDATE t SET b = 2 WHERE a = 2", "COMMIT"]).unwrap();
    assert_eq!(rows(&database), [(1, 11), (2, 2), (4, 0)]);
}

#[test]
fn waiting_ends_when_the_statement_is_cancelled() {
    let database = database();
    let mut holder = database.connect();
    run(&mut holder, &["BEGIN", ADD_ONE]).unwrap();
    let mut waiting = database.connect();
    run(&mut waiting, &["SET lock_timeout = '20ms'"]).unwrap();
    assert_eq!(state(run(&mut waiting, &[ADD_TEN])), SqlState::LOCK_NOT_AVAILABLE);
    assert_eq!(state(run(&mut waiting, &["BEGIN", ADD_TEN])), SqlState::LOCK_NOT_AVAILABLE);
    run(&mut waiting, &["ROLLBACK", "SET lock_timeout = 0", "SET statement_timeout = '20ms'"]).unwrap();
    let error = run(&mut waiting, &[ADD_TEN]).unwrap_err();
    assert_eq!(error.message(), "canceling statement due to statement timeout");
    run(&mut waiting, &["SET statement_timeout = 0"]).unwrap();
    let cancel = waiting.cancel_handle();
    thread::scope(|scope| {
        let waiting = thread::spawn_scoped(scope, "waiting", || run(&mut waiting, &["BEGIN", ADD_TEN]));
        clock::sleep(Duration::from_millis(20));
        while !waiting.is_finished() {
            cancel.cancel();
            clock::sleep(Duration::from_millis(5));
        }
        assert_eq!(state(waiting.join().unwrap()), SqlState::QUERY_CANCELED);
    });
    run(&mut holder, &["COMMIT"]).unwrap();
    assert_eq!(rows(&database)[0], (1, 1));
}

/// Its client may send ROLLBACK much later.
#[test]
fn a_failed_block_blocks_no_others() {
    let database = database();
    let mut failed = database.connect();
    run(&mut failed, &["BEGIN", ADD_ONE]).unwrap();
    assert_eq!(state(run(&mut failed, &["INSERT INTO t VALUES (1, 1)"])), SqlState::UNIQUE_VIOLATION);
    run(&mut database.connect(), &["SET lock_timeout = '5s'", ADD_TEN]).unwrap();
    assert_eq!(failed.status(), TransactionStatus::Failed);
    assert_eq!(state(run(&mut failed, &[ADD_ONE])), SqlState::IN_FAILED_SQL_TRANSACTION);
    assert_eq!(state(run(&mut failed, &["ROLLBACK TO nowhere"])), SqlState::INVALID_SAVEPOINT);
    run(&mut failed, &["COMMIT", "BEGIN", ADD_ONE, "SAVEPOINT s", "UPDATE t SET b = 5 WHERE a = 2"]).unwrap();
    assert_eq!(state(run(&mut failed, &["SELECT 1 / 0"])), SqlState::DIVISION_BY_ZERO);
    run(&mut failed, &["ROLLBACK TO s", "COMMIT"]).unwrap();
    assert_eq!(rows(&database), [(1, 11), (2, 0), (3, 0)]);
}

/// It could only wait for one after another, and fail in the end.
#[test]
fn a_transaction_that_cannot_restart_does_not_wait_for_an_unseen_change() {
    let database = database();
    let mut old = database.connect();
    run(&mut old, &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT b FROM t"]).unwrap();
    run(&mut database.connect(), &[ADD_ONE]).unwrap();
    let mut holder = database.connect();
    run(&mut holder, &["BEGIN", ADD_ONE]).unwrap();
    assert_eq!(
        state(run(&mut old, &["SET LOCAL lock_timeout = '5s'", ADD_TEN])),
        SqlState::SERIALIZATION_FAILURE
    );
}

/// All of them, in both orders, by statements of their own.
#[test]
fn statements_that_change_many_rows_get_through_beside_others() {
    let database = database();
    thread::scope(|scope| {
        for number in 0..4 {
            let database = &database;
            thread::spawn_scoped(scope, "adder", move || {
                let mut connection = database.connect();
                for round in 0..40 {
                    let sql = match number {
                        0 => "UPDATE t SET b = b + 1".to_owned(),
                        1 => "UPDATE t SET b = b + 1 FROM (SELECT 1 AS one) x WHERE a < 9".to_owned(),
                        _ => format!("UPDATE t SET b = b + 1 WHERE a = {}", round % 3 + 1),
                    };
                    run(&mut connection, &[&sql]).unwrap();
                }
            });
        }
    });
    assert_eq!(rows(&database).iter().map(|row| row.1).sum::<i32>(), 2 * 40 * 3 + 2 * 40);
}

/// Many threads add to few rows in transactions of several statements: none fails, nothing is lost.
#[test]
fn contended_rows_cause_no_errors() {
    const THREADS: i32 = 6;
    const ROUNDS: i32 = 60;
    let database = database();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let database = &database;
            thread::spawn_scoped(scope, "adder", move || {
                let mut connection = database.connect();
                for round in 0..ROUNDS {
                    let row = (number + round) % 2 + 1;
                    let add = format!("UPDATE t SET b = b + 1 WHERE a = {row}");
                    let own = format!("INSERT INTO t VALUES ({}, {round})", 100 + number * ROUNDS + round);
                    run(&mut connection, &["BEGIN", &own, &add, "COMMIT"]).unwrap();
                }
            });
        }
    });
    let rows = rows(&database);
    assert_eq!(rows[0].1 + rows[1].1, THREADS * ROUNDS);
    assert_eq!(rows.len() as i32, 3 + THREADS * ROUNDS);
}

/// Waits until the effect of a timeout is visible.
fn until(mut happened: impl FnMut() -> bool) {
    let begun = clock::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never happens");
        clock::sleep(Duration::from_millis(1));
    }
}

/// A statement uses the catalog as other transactions have committed it before the statement began, also for its analysis.
#[test]
fn a_statement_that_reads_what_is_committed_knows_the_tables_of_now() {
    let cases = [
        ("CREATE TABLE nt AS SELECT 7 AS a", "SELECT * FROM nt", "7"),
        ("CREATE TABLE nt (a integer)", "INSERT INTO nt VALUES (1) RETURNING a", "1"),
        ("ALTER TABLE t ADD COLUMN z integer DEFAULT 7", "SELECT z FROM t WHERE a = 1", "7"),
        (
            "ALTER TABLE t ADD COLUMN z integer DEFAULT 7",
            "UPDATE t SET b = 5 WHERE z = 7 AND a = 1 RETURNING b",
            "5",
        ),
        ("ALTER TABLE t ADD COLUMN z integer DEFAULT 7", "SELECT * FROM t WHERE a = 1", "1|0|7"),
        ("ALTER TABLE t DROP COLUMN b", "SELECT * FROM t WHERE a = 1", "1"),
        ("ALTER TABLE t ALTER COLUMN b TYPE text", "INSERT INTO t VALUES (9, 'nine') RETURNING b", "nine"),
        ("ALTER TABLE t RENAME TO u", "SELECT a FROM u WHERE a = 1", "1"),
        ("CREATE VIEW one AS SELECT 1 AS one", "SELECT * FROM one", "1"),
    ];
    for (change, statement, expected) in cases {
        for prepares in [false, true] {
            let database = database();
            run(&mut database.connect(), &["CREATE TABLE other (a integer)"]).unwrap();
            let mut connection = database.connect();
            run(&mut connection, &["BEGIN ISOLATION LEVEL READ COMMITTED", "SELECT * FROM other"]).unwrap();
            run(&mut database.connect(), &[change]).unwrap();
            if prepares {
                let statement = connection.prepare(statement).unwrap();
                let rows = connection.query_values(&statement, &[]).unwrap();
                let text = |value: &Value| match value {
                    Value::Integer(number) => number.to_string(),
                    Value::Text(text) => text.clone(),
                    other => panic!("{other:?}"),
                };
                let shown: Vec<String> = rows[0].iter().map(text).collect();
                assert_eq!(shown.join("|"), expected, "{change}");
            } else {
                run(&mut connection, &[statement]).unwrap();
            }
            run(&mut connection, &["COMMIT"]).unwrap();
        }
    }
}

/// How many commits the oldest snapshot is behind: none of their old versions are collected.
fn commits_held_back(database: &Database) -> usize {
    database.engine().garbage_backlog()
}

#[test]
fn a_block_that_is_idle_for_too_long_releases_its_rows_and_its_snapshot() {
    let database = database();
    let mut sleeper = database.connect();
    sleeper.set("idle_in_transaction_session_timeout", "20ms").unwrap();
    run(&mut sleeper, &["BEGIN", ADD_ONE, "SAVEPOINT s"]).unwrap();
    // It waits for the row of the sleeping transaction, which only the timer releases.
    run(&mut database.connect(), &[ADD_TEN]).unwrap();
    assert_eq!(rows(&database)[0], (1, 10));
    until(|| commits_held_back(&database) == 0);
    assert_eq!(sleeper.status(), TransactionStatus::Failed);
    for statement in ["SELECT 1", "ROLLBACK TO s", "SELECT 1"] {
        assert_eq!(state(run(&mut sleeper, &[statement])).as_str(), "25P03", "{statement}");
    }
    run(&mut sleeper, &["ROLLBACK", ADD_ONE]).unwrap();
    assert_eq!(rows(&database)[0], (1, 11));
}

#[test]
fn a_commit_that_comes_too_late_reports_it() {
    let database = database();
    let mut connection = database.connect();
    // The last statement before the pause: the statements before it may take longer than the timeout.
    const HURRY: &str = "SET LOCAL idle_in_transaction_session_timeout = '5ms'";
    for by_guard in [false, true] {
        let error = if by_guard {
            let mut transaction = connection.transaction().unwrap();
            transaction.execute(ADD_ONE).unwrap();
            transaction.execute(HURRY).unwrap();
            until(|| transaction.status() == TransactionStatus::Failed);
            transaction.commit().unwrap_err()
        } else {
            run(&mut connection, &["BEGIN", ADD_ONE, HURRY]).unwrap();
            until(|| connection.status() == TransactionStatus::Failed);
            run(&mut connection, &["COMMIT"]).unwrap_err()
        };
        assert_eq!(error.state().as_str(), "25P03");
        assert_eq!(connection.status(), TransactionStatus::Idle);
    }
    assert_eq!(rows(&database)[0], (1, 0));
}

/// The block is idle only once its rows are no longer read; the rest of them is dropped.
#[test]
fn a_client_that_fetches_rows_is_not_idle() {
    let database = database();
    let mut connection = database.connect();
    let timeout = Duration::from_millis(40);
    run(&mut connection, &["SET idle_in_transaction_session_timeout = '40ms'", "BEGIN"]).unwrap();
    let statement = connection.prepare("SELECT x.a FROM t x, t y, generate_series(1, 10000000)").unwrap();
    let Outcome::Rows(mut rows) = connection.run(&statement, &[]).unwrap() else { panic!("it is a query") };
    let begun = clock::now();
    while begun.elapsed() < 5 * timeout {
        assert!(rows.next_chunk().unwrap().is_some());
        assert_eq!(connection.status(), TransactionStatus::InBlock);
        clock::sleep(Duration::from_millis(1));
    }
    until(|| connection.status() == TransactionStatus::Failed);
    assert_eq!(rows.next_chunk().unwrap_err().state().as_str(), "25P03");
}

#[test]
fn a_block_in_use_is_not_ended() {
    let database = database();
    let mut connection = database.connect();
    run(&mut connection, &["SET idle_in_transaction_session_timeout = '200ms'", "BEGIN"]).unwrap();
    for _ in 0..20 {
        run(&mut connection, &[ADD_ONE]).unwrap();
        clock::sleep(Duration::from_millis(10));
    }
    run(&mut connection, &["COMMIT"]).unwrap();
    assert_eq!(rows(&database)[0], (1, 20));
    assert_eq!(connection.setting("idle_in_transaction_session_timeout").unwrap(), "200ms");
}

/// However often other transactions change the rows that it reaches last.
#[test]
fn a_wide_update_gets_through_beside_small_ones() {
    for level in ["READ COMMITTED", "SERIALIZABLE"] {
        let database = Database::memory().unwrap();
        let mut connection = database.connect();
        run(
            &mut connection,
            &[
                "CREATE TABLE t (a integer PRIMARY KEY, b integer)",
                "INSERT INTO t SELECT g, 0 FROM generate_series(0, 20006) AS s(g)",
            ],
        )
        .unwrap();
        let small = std::sync::atomic::AtomicU32::new(0);
        let done = std::sync::atomic::AtomicBool::new(false);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let wide = thread::scope(|scope| {
            for clerk in 0..2 {
                let (database, small, done) = (&database, &small, &done);
                thread::spawn_scoped(scope, "clerk", move || {
                    let mut connection = database.connect();
                    let add = connection.prepare("UPDATE t SET b = b + 1 WHERE a = $1").unwrap();
                    let mut at = 1 + clerk;
                    while !done.load(relaxed) {
                        connection.run(&add, &[Value::Integer(20_000 + at)]).unwrap();
                        small.fetch_add(1, relaxed);
                        at = at * 5 % 7;
                    }
                });
            }
            until(|| small.load(relaxed) > 100);
            let begin = format!("BEGIN ISOLATION LEVEL {level}");
            let wide = run(&mut connection, &[&begin, "UPDATE t SET b = b + 1", "COMMIT"]);
            done.store(true, relaxed);
            wide
        });
        wide.unwrap();
        let sum: i64 = rows(&database).iter().map(|(_, b)| i64::from(*b)).sum();
        assert_eq!(sum, 20_007 + i64::from(small.into_inner()), "{level}");
    }
}

#[test]
fn tables_are_locked_as_they_are_asked_to_be() {
    let database = database();
    let mut holder = database.connect();
    let mut other = database.connect();
    let refused = |connection: &mut Connection, sql: &str| {
        run(connection, &["BEGIN"]).unwrap();
        let state = state(run(connection, &[sql]));
        run(connection, &["ROLLBACK"]).unwrap();
        state
    };
    let modes = ["ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", "SHARE"];
    let stronger = ["SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"];
    for (number, mode) in modes.into_iter().chain(stronger).enumerate() {
        run(&mut holder, &["BEGIN", &format!("LOCK TABLE ONLY child, t IN {mode} MODE NOWAIT")]).unwrap();
        // A reader never conflicts.
        run(&mut other, &["BEGIN", "LOCK t IN ACCESS SHARE MODE NOWAIT", "SELECT * FROM t", "COMMIT"])
            .unwrap();
        run(&mut other, &["SET lock_timeout = '20ms'"]).unwrap();
        for wanted in ["LOCK TABLE t IN ROW EXCLUSIVE MODE NOWAIT", "LOCK TABLE t IN ROW EXCLUSIVE MODE"] {
            match number < 4 {
                true => run(&mut other, &["BEGIN", wanted, ADD_ONE, "ROLLBACK"]).unwrap(),
                false => assert_eq!(refused(&mut other, wanted), SqlState::LOCK_NOT_AVAILABLE, "{mode}"),
            }
        }
        let alone =
            [("LOCK TABLE t NOWAIT", 1), ("LOCK TABLE t", 1), ("LOCK t IN SHARE ROW EXCLUSIVE MODE", 2)];
        for (wanted, weaker) in alone {
            match number < weaker {
                true => run(&mut other, &["BEGIN", wanted, ADD_ONE, "ROLLBACK"]).unwrap(),
                false => assert_eq!(refused(&mut other, wanted), SqlState::LOCK_NOT_AVAILABLE, "{mode}"),
            }
        }
        let share = "LOCK t IN SHARE MODE";
        match mode {
            "ACCESS SHARE" | "ROW SHARE" => {
                run(&mut other, &["BEGIN", share, share, ADD_ONE, share, "ROLLBACK"]).unwrap();
            }
            // Several transactions may hold it, and then none of them may write.
            "SHARE" => {
                run(&mut other, &["BEGIN", share, "SELECT * FROM t", share]).unwrap();
                assert_eq!(state(run(&mut other, &[ADD_ONE])), SqlState::LOCK_NOT_AVAILABLE);
                run(&mut other, &["ROLLBACK"]).unwrap();
            }
            _ => assert_eq!(refused(&mut other, share), SqlState::LOCK_NOT_AVAILABLE, "{mode}"),
        }
        run(&mut holder, &["UPDATE t SET b = b + 1 WHERE a = 2", "COMMIT"]).unwrap();
    }
    assert_eq!(rows(&database), [(1, 0), (2, 8), (3, 0)]);
    for unknown in
        ["LOCK TABLE t IN LOUD MODE", "LOCK TABLE t IN SHARE", "LOCK TABLE t IN ROW MODE", "LOCK t WAIT"]
    {
        assert_eq!(refused(&mut other, unknown), SqlState::SYNTAX_ERROR, "{unknown}");
    }
    assert_eq!(refused(&mut other, "LOCK TABLE nowhere"), SqlState::UNDEFINED_TABLE);

    // A waiting transaction gets the table when it is free, or can be cancelled.
    run(&mut holder, &["BEGIN", "LOCK TABLE t"]).unwrap();
    run(&mut other, &["SET lock_timeout = 0", "SET statement_timeout = '20ms'"]).unwrap();
    assert_eq!(refused(&mut other, "LOCK TABLE t"), SqlState::QUERY_CANCELED);
    run(&mut other, &["SET statement_timeout = 0"]).unwrap();
    thread::scope(|scope| {
        let waiting = thread::spawn_scoped(scope, "waiting", || {
            run(&mut other, &["BEGIN", "LOCK TABLE t", ADD_ONE, "COMMIT"])
        });
        clock::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished(), "it waits");
        run(&mut holder, &[ADD_TEN, "COMMIT"]).unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(rows(&database)[0], (1, 11));
}

/// Each mode beside each, and the statements that take them. PostgreSQL's table, except that ACCESS EXCLUSIVE does not block readers.
#[test]
fn modes_of_table_locks_conflict_as_in_postgresql() {
    const MODES: [(&str, &str); 8] = [
        ("ACCESS SHARE", "........"),
        ("ROW SHARE", "......xx"),
        ("ROW EXCLUSIVE", "....xxxx"),
        ("SHARE UPDATE EXCLUSIVE", "...xxxxx"),
        ("SHARE", "..xx.xxx"),
        ("SHARE ROW EXCLUSIVE", "..xxxxxx"),
        ("EXCLUSIVE", ".xxxxxxx"),
        ("ACCESS EXCLUSIVE", ".xxxxxxx"),
    ];
    let database = database();
    let (mut holder, mut other) = (database.connect(), database.connect());
    let mut refused = |sql: &str| {
        run(&mut other, &["BEGIN"]).unwrap();
        let outcome = run(&mut other, &[sql]);
        run(&mut other, &["ROLLBACK"]).unwrap();
        let state = outcome.err().map(|error| error.state());
        assert!(state.is_none() || state == Some(SqlState::LOCK_NOT_AVAILABLE), "{sql}: {state:?}");
        state.is_some()
    };
    for (held, conflicts) in MODES {
        run(&mut holder, &["BEGIN", &format!("LOCK TABLE t IN {held} MODE")]).unwrap();
        let conflicts: Vec<bool> = conflicts.chars().map(|sign| sign == 'x').collect();
        for ((wanted, _), conflicts) in MODES.iter().zip(&conflicts) {
            assert_eq!(
                refused(&format!("LOCK t IN {wanted} MODE NOWAIT")),
                *conflicts,
                "{wanted} beside {held}"
            );
        }
        assert_eq!(
            refused("SET lock_timeout = '5ms'; SELECT * FROM t FOR KEY SHARE"),
            conflicts[1],
            "{held}"
        );
        assert_eq!(refused("SET lock_timeout = '5ms'; DELETE FROM t WHERE a = 1"), conflicts[2], "{held}");
        // No transaction conflicts with itself, whatever it holds and takes.
        for (wanted, _) in MODES {
            run(&mut holder, &[&format!("LOCK t IN {wanted} MODE NOWAIT")]).unwrap();
        }
        run(&mut holder, &["SELECT * FROM t FOR UPDATE", ADD_ONE, "ROLLBACK"]).unwrap();
    }
    for (mode, _) in MODES {
        assert!(!refused(&format!("LOCK t IN {mode} MODE NOWAIT")), "{mode}");
    }
    // The lock that a statement takes conflicts in the same way.
    for (sql, taken) in [("SELECT * FROM t WHERE a = 2 FOR UPDATE", MODES[1]), (ADD_ONE, MODES[2])] {
        run(&mut holder, &["BEGIN", sql]).unwrap();
        for ((wanted, _), conflicts) in MODES.iter().zip(taken.1.chars()) {
            assert_eq!(
                refused(&format!("LOCK t IN {wanted} MODE NOWAIT")),
                conflicts == 'x',
                "{wanted}: {sql}"
            );
        }
        run(&mut holder, &["ROLLBACK"]).unwrap();
    }
}

/// A transaction that wants the table exclusively waits for another one, whether that locks rows or changes them.
#[test]
fn locked_rows_may_be_changed_while_others_wait_for_the_table() {
    let alone: [&[&str]; 3] = [
        &["BEGIN", "LOCK TABLE t", "COMMIT"],
        &["ALTER TABLE t ADD COLUMN c integer"],
        &["BEGIN ISOLATION LEVEL READ COMMITTED", "LOCK TABLE t IN EXCLUSIVE MODE", ADD_TEN, "COMMIT"],
    ];
    for (wanting, expected) in alone.into_iter().zip([1, 1, 11]) {
        let database = database();
        let mut locker = database.connect();
        run(&mut locker, &["BEGIN", "SELECT * FROM t WHERE a = 1 FOR UPDATE"]).unwrap();
        let waits = &database.engine().statistics().waits;
        let before = waits.get();
        thread::scope(|scope| {
            let waiting = thread::spawn_scoped(scope, "waiting", || run(&mut database.connect(), wanting));
            until(|| waits.get() > before);
            run(&mut locker, &[ADD_ONE, "COMMIT"]).unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(rows(&database)[0], (1, expected), "{wanting:?}");
        assert_eq!(database.engine().statistics().deadlocks.get(), 0, "{wanting:?}");
    }
}

/// A transaction that only locks rows of a table has not changed that table at its commit, whatever else it changes.
#[test]
fn a_table_locked_against_writers_can_be_altered_after_row_locks_end() {
    let database = database();
    let (mut holder, mut locker) = (database.connect(), database.connect());
    run(&mut holder, &["BEGIN", "LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE"]).unwrap();
    let lock = "SELECT * FROM t WHERE a = 1 FOR UPDATE";
    run(&mut locker, &["BEGIN", lock, "INSERT INTO child VALUES (1, NULL)", "COMMIT"]).unwrap();
    run(&mut holder, &["ALTER TABLE t ADD COLUMN c integer", "COMMIT"]).unwrap();
}

/// A transaction that locks rows and then changes them has to wait then.
#[test]
fn rows_of_a_table_that_several_share_are_locked_until_one_writes() {
    let database = database();
    let (mut first, mut second) = (database.connect(), database.connect());
    for (connection, row) in [(&mut first, 1), (&mut second, 2)] {
        let lock = format!("SELECT * FROM t WHERE a = {row} FOR UPDATE");
        run(connection, &["BEGIN", "LOCK TABLE t IN SHARE MODE", &lock]).unwrap();
    }
    run(&mut first, &["SAVEPOINT s", "SET LOCAL lock_timeout = '20ms'"]).unwrap();
    assert_eq!(state(run(&mut first, &[ADD_ONE])), SqlState::LOCK_NOT_AVAILABLE);
    run(&mut first, &["ROLLBACK TO s"]).unwrap();
    run(&mut second, &["COMMIT"]).unwrap();
    run(&mut first, &[ADD_ONE]).unwrap();
    // It holds the table exclusively now, and rows may be locked as before.
    run(&mut second, &["BEGIN", "SELECT * FROM t WHERE a = 2 FOR UPDATE NOWAIT", "COMMIT"]).unwrap();
    run(&mut first, &["COMMIT"]).unwrap();
    assert_eq!(rows(&database)[0], (1, 1));
    assert_eq!(database.engine().statistics().deadlocks.get(), 0);
}

/// As PostgreSQL's, a transaction that begins by locking tables reads what was committed before it had them.
#[test]
fn a_table_lock_before_the_snapshot_sees_earlier_commits() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let database = database();
        let mut holder = database.connect();
        run(&mut holder, &["BEGIN", ADD_ONE]).unwrap();
        thread::scope(|scope| {
            let waiting = thread::spawn_scoped(scope, "waiting", || {
                let mut connection = database.connect();
                let begin = format!("BEGIN ISOLATION LEVEL {level}");
                run(&mut connection, &[&begin, "LOCK TABLE child", "LOCK TABLE t", ADD_TEN, "COMMIT"])
            });
            clock::sleep(Duration::from_millis(20));
            run(&mut holder, &["COMMIT"]).unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(rows(&database)[0], (1, 11), "{level}");
        // A transaction that has read before keeps its snapshot.
        let mut other = database.connect();
        run(&mut other, &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT * FROM t"]).unwrap();
        run(&mut holder, &[ADD_ONE]).unwrap();
        run(&mut other, &["LOCK TABLE t"]).unwrap();
        assert_eq!(state(run(&mut other, &[ADD_TEN])), SqlState::SERIALIZATION_FAILURE);
    }
}

#[test]
fn a_writer_waits_for_a_locked_table_up_to_its_lock_timeout() {
    let database = database();
    let mut holder = database.connect();
    run(&mut holder, &["BEGIN", "LOCK TABLE t"]).unwrap();
    let mut other = database.connect();
    let insert = "INSERT INTO t VALUES (9, 9)";
    let begun = clock::now();
    run(&mut other, &["SET lock_timeout = '20ms'"]).unwrap();
    assert_eq!(state(run(&mut other, &[insert])), SqlState::LOCK_NOT_AVAILABLE);
    run(&mut other, &["SET lock_timeout = 0", "SET statement_timeout = '20ms'"]).unwrap();
    assert_eq!(state(run(&mut other, &[insert])), SqlState::QUERY_CANCELED);
    assert_eq!(state(run(&mut other, &["ALTER TABLE t ADD COLUMN c int"])), SqlState::QUERY_CANCELED);
    assert!(begun.elapsed() < Duration::from_secs(4), "not as long as without a limit of its own");
    run(&mut other, &["SET statement_timeout = 0"]).unwrap();
    thread::scope(|scope| {
        let waiting = thread::spawn_scoped(scope, "waiting", || run(&mut other, &[insert]));
        clock::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished(), "it waits");
        run(&mut holder, &["COMMIT"]).unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(rows(&database).len(), 4);
}

/// A statement that waited for a table which was replaced meanwhile is run again on the new one, unless its transaction must keep its snapshot.
#[test]
fn a_statement_that_waited_for_ddl_uses_the_new_table() {
    let truncate: (&str, &[(i32, i32)]) = ("TRUNCATE t CASCADE", &[(9, 9)]);
    let all: &[(i32, i32)] = &[(1, 0), (2, 0), (3, 0), (9, 9)];
    let rewrite = ("ALTER TABLE t ALTER COLUMN b TYPE bigint", all);
    let extend = ("ALTER TABLE t ADD COLUMN c integer DEFAULT 7", all);
    let insert = "INSERT INTO t (a, b) VALUES (9, 9)";
    let after = |change: &str, waiting: &[&str]| {
        let database = database();
        let mut holder = database.connect();
        run(&mut holder, &["BEGIN", change]).unwrap();
        let outcome = thread::scope(|scope| {
            let waiting = thread::spawn_scoped(scope, "waiting", || {
                let mut connection = database.connect();
                waiting.iter().try_for_each(|sql| connection.execute(sql).map(drop))
            });
            clock::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished(), "it waits for {change}");
            run(&mut holder, &["COMMIT"]).unwrap();
            waiting.join().unwrap()
        });
        let mut connection = database.connect();
        let found = connection.prepare("SELECT a, b::integer FROM t ORDER BY a").and_then(|statement| {
            connection.query_values(&statement, &[]).map(|rows| {
                let number = |value: &Value| match value {
                    Value::Integer(number) => *number,
                    other => panic!("{other:?}"),
                };
                rows.iter().map(|row| (number(&row[0]), number(&row[1]))).collect::<Vec<_>>()
            })
        });
        (outcome, found)
    };
    for (change, left) in [truncate, rewrite, extend] {
        for waiting in [
            &[insert][..],
            &["BEGIN ISOLATION LEVEL READ COMMITTED", "SELECT * FROM t", insert, "COMMIT"],
            &["BEGIN", insert, "COMMIT"],
            &["BEGIN ISOLATION LEVEL READ COMMITTED", "LOCK TABLE t", insert, "COMMIT"],
        ] {
            let (outcome, found) = after(change, waiting);
            outcome.unwrap_or_else(|error| panic!("{change}, {waiting:?}: {error}"));
            assert_eq!(found.unwrap(), left, "{change}, {waiting:?}");
        }
        for begin in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"] {
            let (outcome, _) = after(change, &[begin, "SELECT * FROM t", insert]);
            assert_eq!(state(outcome), SqlState::SERIALIZATION_FAILURE, "{change}, {begin}");
        }
    }
    let (outcome, _) = after("DROP TABLE t CASCADE", &[insert]);
    assert_eq!(state(outcome), SqlState::UNDEFINED_TABLE);
    // Of two changes of the same table one is run after the other.
    let (outcome, found) = after("TRUNCATE t CASCADE", &["TRUNCATE t CASCADE"]);
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found.unwrap(), []);
    let (outcome, found) = after(extend.0, &[rewrite.0]);
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found.unwrap(), [(1, 0), (2, 0), (3, 0)]);
}
