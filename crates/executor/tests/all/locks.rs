//! FOR UPDATE and its relatives, waits for rows, and samples.

use crate::sql::Database;
use crate::support::{MODES, options};
use firn_base::{Result, SqlState};
use firn_txn::{Isolation, Transaction};
use std::sync::mpsc;
use std::thread;

/// A table `t` of `rows` rows: (1, 10), (2, 20), …
fn database(rows: u32) -> Database {
    let database = Database::new();
    database
        .create("CREATE TABLE t (id integer PRIMARY KEY, v integer); CREATE TABLE o (id integer, t integer)");
    database
        .alone(&format!("INSERT INTO t SELECT g, g * 10 FROM generate_series(1, {rows}) g"), MODES[1])
        .unwrap();
    database
}

/// Runs a statement once: conflicts are reported.
fn once(database: &Database, statement: &str, transaction: &mut Transaction) -> Result<Vec<String>> {
    transaction.refresh();
    let start = transaction.begin_statement();
    let result = database.run_as(statement, transaction, options(MODES[0])).map(|answer| answer.rows);
    if result.is_err() {
        transaction.abort_statement(&start);
    }
    result
}

/// Whether another transaction could update a row.
fn is_locked(database: &Database, id: u32) -> bool {
    let mut other = database.begin();
    let updated = once(database, &format!("UPDATE t SET v = v WHERE id = {id}"), &mut other);
    other.rollback();
    updated.is_err_and(|error| error.blocker().is_some())
}

#[test]
fn rows_that_are_locked_cannot_be_changed_until_the_transaction_ends() {
    let database = database(10);
    let mut first = database.begin();
    assert_eq!(
        once(&database, "SELECT v FROM t WHERE id <= 2 ORDER BY id FOR UPDATE", &mut first).unwrap(),
        ["10", "20"]
    );
    assert_eq!([1, 2, 3].map(|id| is_locked(&database, id)), [true, true, false]);
    let mut other = database.begin();
    let shared = once(&database, "SELECT v FROM t WHERE id = 1 FOR KEY SHARE", &mut other);
    assert!(shared.unwrap_err().blocker().is_some());
    first.rollback();
    assert!(!is_locked(&database, 1));
    other.rollback();
}

#[test]
fn weak_locks_are_compatible_as_in_postgresql() {
    let database = database(1);
    let strengths = ["KEY SHARE", "SHARE", "NO KEY UPDATE", "UPDATE"];
    for (one, strength) in strengths.iter().enumerate() {
        let mut first = database.begin();
        once(&database, &format!("SELECT 1 FROM t FOR {strength}"), &mut first).unwrap();
        for (two, other) in strengths.iter().enumerate() {
            let mut second = database.begin();
            let locked = once(&database, &format!("SELECT 1 FROM t FOR {other}"), &mut second);
            // KEY SHARE conflicts with UPDATE alone; SHARE with itself not; the others with each other.
            assert_eq!(locked.is_err(), one + two >= 3, "{strength}, {other}");
            second.rollback();
        }
        first.rollback();
    }
}

#[test]
fn nowait_fails_and_skip_locked_leaves_rows_out() {
    let database = database(5);
    let mut first = database.begin();
    once(&database, "SELECT 1 FROM t WHERE id IN (1, 3) FOR UPDATE", &mut first).unwrap();
    let mut second = database.begin();
    let error = once(&database, "SELECT id FROM t FOR UPDATE NOWAIT", &mut second).unwrap_err();
    assert_eq!(error.state(), SqlState::LOCK_NOT_AVAILABLE);
    assert_eq!(error.message(), "could not obtain lock on row in relation \"t\"");
    let rows = once(&database, "SELECT id FROM t ORDER BY id FOR UPDATE SKIP LOCKED", &mut second).unwrap();
    assert_eq!(rows, ["2", "4", "5"]);
    let rows =
        once(&database, "SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED", &mut first).unwrap();
    assert_eq!(rows, ["1"]);
    let mut third = database.begin();
    let rows =
        once(&database, "SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED", &mut third).unwrap();
    assert!(rows.is_empty());
    [first, second, third].into_iter().for_each(Transaction::rollback);
}

#[test]
fn a_limit_locks_no_more_rows_than_it_lets_pass() {
    for mode in MODES {
        let database = database(50);
        let mut first = database.begin();
        let statement = "SELECT id, v + 1 FROM t ORDER BY id DESC OFFSET 1 LIMIT 2 FOR UPDATE";
        let rows = database.run_as(statement, &mut first, options(mode)).unwrap().rows;
        assert_eq!(rows, ["49|491", "48|481"]);
        assert_eq!([50, 49, 48, 47, 1].map(|id| is_locked(&database, id)), [true, true, true, false, false]);
        first.rollback();
        let mut first = database.begin();
        assert!(once(&database, "SELECT id FROM t LIMIT 0 FOR UPDATE", &mut first).unwrap().is_empty());
        assert!((1..=50).all(|id| !is_locked(&database, id)));
        first.rollback();
    }
}

#[test]
fn rows_of_an_outer_join_that_are_not_there_are_not_locked() {
    let database = database(2);
    database.alone("INSERT INTO o VALUES (1, 1), (2, 7)", MODES[1]).unwrap();
    let mut first = database.begin();
    let statement = "SELECT o.id, t.id FROM o LEFT JOIN t ON t.id = o.t ORDER BY o.id FOR UPDATE OF o";
    assert_eq!(once(&database, statement, &mut first).unwrap(), ["1|1", "2|"]);
    assert!(!is_locked(&database, 1));
    first.rollback();
}

/// A transaction that waits for a row gets the row as the other one leaves it, and checks its conditions again.
#[test]
fn a_row_that_has_changed_is_checked_again() {
    for (change, statement, rows, count) in [
        ("UPDATE t SET v = 11 WHERE id = 1", "SELECT v FROM t WHERE id = 1 FOR UPDATE", vec!["11"], None),
        ("UPDATE t SET v = 99 WHERE id = 1", "SELECT v FROM t WHERE v = 10 FOR UPDATE", vec![], None),
        ("DELETE FROM t WHERE id = 1", "SELECT v FROM t WHERE id = 1 FOR SHARE", vec![], None),
        (
            "UPDATE t SET v = v + 1 WHERE id = 1",
            "UPDATE t SET v = v * 2 WHERE id = 1 RETURNING v",
            vec!["22"],
            Some(1),
        ),
        ("UPDATE t SET v = 0 WHERE id = 1", "DELETE FROM t WHERE v = 10", vec![], Some(0)),
        (
            "INSERT INTO t VALUES (7, 70)",
            "INSERT INTO t VALUES (7, 1) ON CONFLICT (id) DO UPDATE SET v = t.v + 1 RETURNING v",
            vec!["71"],
            Some(1),
        ),
        (
            "INSERT INTO t VALUES (7, 70)",
            "INSERT INTO t VALUES (7, 1) ON CONFLICT DO NOTHING",
            vec![],
            Some(0),
        ),
    ] {
        let database = database(3);
        let mut first = database.begin();
        once(&database, change, &mut first).unwrap();
        let (waits, waiting) = mpsc::channel();
        let answer = thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut second = database.begin();
                let answer =
                    database.run_until(statement, &mut second, MODES[1], &mut || waits.send(()).unwrap());
                let _ = second.commit().unwrap();
                answer
            });
            waiting.recv().unwrap();
            let _ = first.commit().unwrap();
            second.join().unwrap().unwrap()
        });
        assert_eq!(answer.rows, rows, "{statement}");
        assert_eq!(answer.count, count, "{statement}");
    }
}

/// Under REPEATABLE READ a row that has changed since the snapshot is an error.
#[test]
fn a_transaction_with_one_snapshot_fails_on_a_changed_row() {
    let database = database(3);
    let mut first = database.engine.begin();
    first.set_isolation(Isolation::Snapshot);
    assert_eq!(once(&database, "SELECT count(*) FROM t", &mut first).unwrap(), ["3"]);
    database.alone("UPDATE t SET v = 0 WHERE id = 1", MODES[1]).unwrap();
    for statement in [
        "SELECT 1 FROM t WHERE id = 1 FOR UPDATE",
        "UPDATE t SET v = 1 WHERE id = 1",
        "DELETE FROM t WHERE id = 1",
    ] {
        let error = once(&database, statement, &mut first).unwrap_err();
        assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{statement}");
        assert!(error.blocker().is_none());
    }
    first.rollback();
}

/// Two serializable workers that take rows from one queue by SKIP LOCKED do not fail because of each other; without it one does.
#[test]
fn what_skip_locked_leaves_out_is_not_validated() {
    for (clause, fails) in [("FOR UPDATE SKIP LOCKED", false), ("", true)] {
        let database = database(4);
        let mut workers = [0, 1].map(|_| {
            let mut worker = database.engine.begin();
            worker.set_continues_after_error(false);
            worker
        });
        let pick = format!("SELECT id FROM t WHERE v > 0 ORDER BY id LIMIT 2 {clause}");
        for (number, worker) in workers.iter_mut().enumerate() {
            let rows = database.run_as(&pick, worker, options(MODES[1])).unwrap().rows;
            assert_eq!(rows.len(), 2);
            // Each changes a row that the other one does not change, though it has read it.
            let change = format!("UPDATE t SET v = -v WHERE id = {}", rows[number]);
            database.run_as(&change, worker, options(MODES[1])).unwrap();
        }
        let [one, other] = workers;
        let _ = one.commit().unwrap();
        let outcome = other.commit();
        assert_eq!(outcome.is_err(), fails, "{clause}: {outcome:?}");
    }
}

#[test]
fn a_sample_is_a_share_of_the_rows_and_the_same_for_one_seed() {
    let database = database(4000);
    let count = |sample: &str| -> u32 {
        let rows = database.rows(&format!("SELECT count(*) FROM t TABLESAMPLE {sample}"));
        rows[0].parse().unwrap()
    };
    assert_eq!(count("BERNOULLI (100)"), 4000);
    assert_eq!(count("SYSTEM (100)"), 4000);
    assert_eq!(count("BERNOULLI (0)"), 0);
    for _ in 0..5 {
        // Ten standard deviations.
        assert!((600..1000).contains(&count("BERNOULLI (20)")));
    }
    let one = count("BERNOULLI (30) REPEATABLE (5)");
    assert_eq!(count("BERNOULLI (30) REPEATABLE (5)"), one);
    let other = database.rows("SELECT id FROM t TABLESAMPLE BERNOULLI (30) REPEATABLE (6) ORDER BY id");
    assert_ne!(
        other,
        database.rows("SELECT id FROM t TABLESAMPLE BERNOULLI (30) REPEATABLE (5) ORDER BY id")
    );
    let blocks = count("SYSTEM (50) REPEATABLE (1)");
    assert_eq!(count("SYSTEM (50) REPEATABLE (1)"), blocks);
    for mode in MODES {
        let statement =
            "SELECT count(*), sum(v) FROM t TABLESAMPLE BERNOULLI (30) REPEATABLE (5) WHERE id > 0";
        assert!(database.alone(statement, mode).unwrap().rows[0].starts_with(&format!("{one}|")));
    }
    for (sample, state) in [
        ("BERNOULLI (101)", "2202H"),
        ("SYSTEM (-1)", "2202H"),
        ("BERNOULLI (NULL)", "2202H"),
        ("BERNOULLI (5) REPEATABLE (NULL)", "2202G"),
    ] {
        let error = database.alone(&format!("SELECT * FROM o TABLESAMPLE {sample}"), MODES[1]).unwrap_err();
        assert_eq!(error.state().as_str(), state, "{sample}");
    }
}
