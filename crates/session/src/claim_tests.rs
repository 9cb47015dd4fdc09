//! What keys guarantee while other transactions may still change: rows that are rolled back, keys that are restored, rows that
//! are inserted while their target is deleted.

use crate::waiting_tests::{beside, run, state};
use crate::{Connection, Database, Outcome};
use firn_base::{SqlState, Value, clock, thread};
use std::time::Duration;

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn with(statements: &[&str]) -> Database {
    let database = Database::memory().unwrap();
    run(&mut database.connect(), statements).unwrap();
    database
}

fn begin(connection: &mut Connection, level: &str) {
    run(connection, &[&format!("BEGIN ISOLATION LEVEL {level}")]).unwrap();
}

fn count(database: &Database, query: &str) -> i64 {
    let mut connection = database.connect();
    let statement = connection.prepare(&format!("SELECT count(*) FROM {query}")).unwrap();
    match connection.query_values(&statement, &[]).unwrap()[0][0] {
        Value::BigInt(count) => count,
        ref other => panic!("{other:?}"),
    }
}

/// Rows that reference no existing row.
const ORPHANS: &str = "c WHERE pid IS NOT NULL AND pid NOT IN (SELECT id FROM p)";

fn family(action: &str) -> Database {
    with(&[
        "CREATE TABLE p (id integer PRIMARY KEY)",
        &format!("CREATE TABLE c (id integer PRIMARY KEY, pid integer REFERENCES p {action})"),
        "INSERT INTO p VALUES (1)",
        "INSERT INTO c VALUES (1, 1)",
    ])
}

/// Also where some rows already reference the target, which the action finds.
#[test]
fn an_action_takes_or_meets_all_rows_that_come_to_point_at_what_goes() {
    let actions = ["ON DELETE CASCADE", "ON DELETE SET NULL", "ON UPDATE CASCADE", "ON UPDATE SET NULL"];
    for action in actions {
        let change = match action.contains("DELETE") {
            true => "DELETE FROM p WHERE id = 1",
            false => "UPDATE p SET id = 2 WHERE id = 1",
        };
        for level in LEVELS {
            // A referencing row has been committed since the snapshot.
            let database = family(action);
            let mut connection = database.connect();
            begin(&mut connection, level);
            run(&mut connection, &["SELECT count(*) FROM p"]).unwrap();
            run(&mut database.connect(), &["INSERT INTO c VALUES (2, 1)"]).unwrap();
            let outcome = run(&mut connection, &[change]);
            match level {
                "REPEATABLE READ" => assert_eq!(state(outcome), SqlState::SERIALIZATION_FAILURE, "{action}"),
                _ => outcome.unwrap(),
            }
            run(&mut connection, &["COMMIT"]).unwrap();
            assert_eq!(count(&database, ORPHANS), 0, "{action}, {level}");

            // A referencing row is inserted and not yet committed.
            for end in ["COMMIT", "ROLLBACK"] {
                let database = family(action);
                let first =
                    [&format!("SET TRANSACTION ISOLATION LEVEL {level}"), "INSERT INTO c VALUES (2, 1)"];
                beside(&database, &first, &[change], end).unwrap();
                assert_eq!(count(&database, ORPHANS), 0, "{action}, {level}, {end}");
                assert_eq!(count(&database, "p WHERE id = 1"), 0);
            }
        }
    }
}

/// As in PostgreSQL, a check whether rows reference a key writes nothing to their table.
#[test]
fn removing_a_key_writes_to_referring_tables_only_by_actions() {
    let actions = [
        ("", false),
        ("ON DELETE RESTRICT", false),
        ("ON UPDATE CASCADE", false),
        ("ON DELETE CASCADE", true),
        ("ON DELETE SET NULL", true),
    ];
    for (action, writes) in actions {
        let database = family(action);
        let (mut holder, mut other) = (database.connect(), database.connect());
        run(&mut holder, &["INSERT INTO p VALUES (2)", "BEGIN"]).unwrap();
        run(&mut holder, &["LOCK TABLE c IN SHARE ROW EXCLUSIVE MODE"]).unwrap();
        let delete = "DELETE FROM p WHERE id = 2";
        run(&mut other, &["SET lock_timeout = '20ms'", "BEGIN"]).unwrap();
        let outcome = run(&mut other, &[delete]);
        match writes {
            true => assert_eq!(state(outcome), SqlState::LOCK_NOT_AVAILABLE, "{action}"),
            false => outcome.unwrap(),
        }
        run(&mut other, &["ROLLBACK"]).unwrap();
        run(&mut holder, &["COMMIT", delete]).unwrap();
    }
}

/// Referencing rows may be inserted beside others that replace all that there were.
#[test]
fn removing_a_key_waits_for_truncation_of_referring_tables() {
    for level in LEVELS {
        for (end, deferral) in ["COMMIT", "ROLLBACK"]
            .into_iter()
            .flat_map(|end| ["", "DEFERRABLE INITIALLY DEFERRED"].map(|how| (end, how)))
        {
            let database = family(deferral);
            run(&mut database.connect(), &["DELETE FROM c"]).unwrap();
            let mut holder = database.connect();
            begin(&mut holder, level);
            run(&mut holder, &["TRUNCATE c", "INSERT INTO c VALUES (2, 1)"]).unwrap();
            let (ended, outcome) = thread::scope(|scope| {
                let taking = thread::spawn_scoped(scope, "taking", || {
                    let mut connection = database.connect();
                    begin(&mut connection, level);
                    run(&mut connection, &["DELETE FROM p WHERE id = 1", "COMMIT"])
                });
                clock::sleep(Duration::from_millis(30));
                assert!(!taking.is_finished(), "it waits");
                let ended = run(&mut holder, &[end]);
                (ended, taking.join().unwrap())
            });
            let what = format!("{level}, {end}, {deferral}");
            // The other's commit may wait for this one in turn: then one of the two fails.
            match (end, ended) {
                ("COMMIT", Ok(())) => {
                    let state = state(outcome);
                    let allowed = [
                        SqlState::FOREIGN_KEY_VIOLATION,
                        SqlState::SERIALIZATION_FAILURE,
                        SqlState::DEADLOCK_DETECTED,
                    ];
                    assert!(allowed.contains(&state), "{what}: {state:?}");
                }
                ("COMMIT", Err(error)) => {
                    assert_eq!(error.state(), SqlState::DEADLOCK_DETECTED, "{what}: {error:?}");
                    outcome.unwrap();
                }
                (_, ended) => {
                    ended.unwrap();
                    outcome.unwrap();
                }
            }
            assert_eq!(count(&database, ORPHANS), 0, "{what}");
            // In the other order.
            let database = family(deferral);
            run(&mut database.connect(), &["DELETE FROM c"]).unwrap();
            let mut holder = database.connect();
            begin(&mut holder, level);
            run(&mut holder, &["DELETE FROM p WHERE id = 1"]).unwrap();
            let mut emptying = database.connect();
            run(&mut emptying, &["SET lock_timeout = '10ms'"]).unwrap();
            begin(&mut emptying, level);
            assert_eq!(state(run(&mut emptying, &["TRUNCATE c"])), SqlState::LOCK_NOT_AVAILABLE, "{what}");
            run(&mut holder, &[end]).unwrap();
        }
    }
}

/// A key that a rollback has restored to its row is not final before the transaction has ended.
#[test]
fn a_key_that_may_be_rolled_back_cannot_be_referenced() {
    for level in LEVELS {
        for (ends, remains) in
            [(&["COMMIT"][..], true), (&["ROLLBACK"], true), (&["ROLLBACK TO s", "COMMIT"], false)]
        {
            let database = family("");
            run(&mut database.connect(), &["DELETE FROM c"]).unwrap();
            let mut holder = database.connect();
            begin(&mut holder, level);
            let back = ["UPDATE p SET id = 2", "SAVEPOINT s", "UPDATE p SET id = 1"];
            run(&mut holder, &back).unwrap();
            let waits = &database.engine().statistics().waits;
            let before = waits.get();
            let outcome = thread::scope(|scope| {
                let pointing = thread::spawn_scoped(scope, "pointing", || {
                    let mut connection = database.connect();
                    begin(&mut connection, level);
                    run(&mut connection, &["INSERT INTO c VALUES (9, 1)"])
                        .and_then(|()| run(&mut connection, &["COMMIT"]))
                });
                while waits.get() == before && !pointing.is_finished() {
                    thread::yield_now();
                }
                assert!(!pointing.is_finished(), "it waits");
                run(&mut holder, ends).unwrap();
                pointing.join().unwrap()
            });
            match (remains, level) {
                (true, _) if ends == ["ROLLBACK"] => outcome.unwrap(),
                // The row has changed since the snapshot, though to the value that it had.
                (true, "REPEATABLE READ") => drop(outcome),
                (true, _) => outcome.unwrap(),
                (false, "REPEATABLE READ") => assert_eq!(state(outcome), SqlState::SERIALIZATION_FAILURE),
                (false, _) => assert_eq!(state(outcome), SqlState::FOREIGN_KEY_VIOLATION),
            }
            assert_eq!(count(&database, ORPHANS), 0, "{level}, {ends:?}");
        }
    }
}

/// An insertion proves that its key was free. Once the row is rolled back, nothing else guarantees that.
#[test]
fn a_rolled_back_insert_still_relies_on_its_key_having_been_free() {
    let claims = [
        "INSERT INTO k VALUES (1)",
        "INSERT INTO k SELECT g FROM generate_series(1, 2) g",
        "INSERT INTO k SELECT g FROM generate_series(1, 1000) g",
        "UPDATE k SET id = 1 WHERE id = -1",
        "WITH a AS (SELECT 1) UPDATE k SET id = 1 WHERE id = -1",
    ];
    for claim in claims {
        let others = [("INSERT INTO k VALUES (1)", false), ("INSERT INTO k VALUES (-7)", true)];
        for ((other, holds), key) in
            others.into_iter().flat_map(|other| ["PRIMARY KEY", "UNIQUE DEFERRABLE"].map(|key| (other, key)))
        {
            let database = with(&[
                &format!("CREATE TABLE k (id integer {key})"),
                "CREATE TABLE log (id integer)",
                "INSERT INTO k VALUES (-1)",
            ]);
            let mut connection = database.connect();
            run(&mut connection, &["BEGIN", "SAVEPOINT s", claim, "ROLLBACK TO s"]).unwrap();
            let others = ["BEGIN", "SELECT count(*) FROM log", other, "COMMIT"];
            run(&mut database.connect(), &others).unwrap();
            run(&mut connection, &["INSERT INTO log VALUES (1)"]).unwrap();
            let outcome = run(&mut connection, &["COMMIT"]);
            // Of many rows inserted together it is not recorded which keys they had; rows with late keys are inserted one by one.
            let holds = holds && !(claim.contains("1000") && key == "PRIMARY KEY");
            let result = outcome.err().map(|error| error.state());
            let expected = (!holds).then_some(SqlState::SERIALIZATION_FAILURE);
            assert_eq!(result, expected, "{key}: {claim}; {other}");
        }
    }
    // A statement that fails rolls back what it has done, and its error has named the key.
    let database = with(&["CREATE TABLE k (id integer PRIMARY KEY)", "CREATE TABLE log (id integer)"]);
    run(&mut database.connect(), &["INSERT INTO k VALUES (2)"]).unwrap();
    let mut connection = database.connect();
    run(&mut connection, &["BEGIN", "SAVEPOINT s"]).unwrap();
    let result = run(&mut connection, &["INSERT INTO k VALUES (1), (2)"]);
    assert_eq!(state(result), SqlState::UNIQUE_VIOLATION);
    run(&mut connection, &["ROLLBACK TO s"]).unwrap();
    let others = ["BEGIN", "SELECT FROM log", "INSERT INTO k VALUES (1)", "COMMIT"];
    run(&mut database.connect(), &others).unwrap();
    run(&mut connection, &["INSERT INTO log VALUES (1)"]).unwrap();
    assert_eq!(state(run(&mut connection, &["COMMIT"])), SqlState::SERIALIZATION_FAILURE);

    let database = family("");
    let mut connection = database.connect();
    let takes_back = ["BEGIN", "SAVEPOINT s", "DELETE FROM c", "DELETE FROM p WHERE id = 1", "ROLLBACK TO s"];
    run(&mut database.connect(), &["CREATE TABLE log (id integer)", "DELETE FROM c"]).unwrap();
    run(&mut connection, &takes_back).unwrap();
    run(&mut database.connect(), &["BEGIN", "SELECT FROM log", "INSERT INTO c VALUES (2, 1)", "COMMIT"])
        .unwrap();
    run(&mut connection, &["INSERT INTO log VALUES (1)"]).unwrap();
    assert_eq!(state(run(&mut connection, &["COMMIT"])), SqlState::SERIALIZATION_FAILURE);
}

/// A transaction that deletes many rows does not conflict with others that insert references to the remaining rows.
#[test]
fn nothing_is_noted_of_rows_that_nothing_pointed_at_while_they_cannot_come_back() {
    let database = family("");
    let rows = ["DELETE FROM c", "INSERT INTO p SELECT g FROM generate_series(2, 5000) g"];
    run(&mut database.connect(), &rows).unwrap();
    let mut connection = database.connect();
    run(&mut connection, &["BEGIN", "DELETE FROM p WHERE id % 2 = 0"]).unwrap();
    run(&mut database.connect(), &["INSERT INTO c SELECT g, g FROM generate_series(1, 4999, 2) g"]).unwrap();
    run(&mut connection, &["COMMIT"]).unwrap();
    assert_eq!(count(&database, ORPHANS), 0);
}

/// The error of a taken key describes the state that the transaction sees; it would otherwise reveal another state.
#[test]
fn a_duplicate_key_error_comes_only_with_a_visible_row() {
    for table in ["k (id integer PRIMARY KEY)", "k (id integer UNIQUE DEFERRABLE)"] {
        for reads_before in [true, false] {
            let database = with(&[
                &format!("CREATE TABLE {table}"),
                "CREATE TABLE x (v integer)",
                "CREATE TABLE log (id integer)",
                "INSERT INTO x VALUES (0)",
            ]);
            let mut connection = database.connect();
            let first = if reads_before { "SELECT v FROM x" } else { "SELECT 1" };
            run(&mut connection, &["BEGIN", first]).unwrap();
            // The key is taken while `v` is 1, and then only.
            let takes = ["BEGIN", "INSERT INTO k VALUES (1)", "UPDATE x SET v = 1", "COMMIT"];
            let mut without_savepoint = database.connect();
            run(&mut without_savepoint, &["BEGIN", "SELECT v FROM x"]).unwrap();
            run(&mut database.connect(), &takes).unwrap();
            // A transaction that does not continue from there has read another `v`.
            let result = run(&mut without_savepoint, &["INSERT INTO k VALUES (1)", "COMMIT"]);
            assert_eq!(state(result), SqlState::SERIALIZATION_FAILURE, "{table}");
            let result = run(&mut connection, &["SAVEPOINT s", "INSERT INTO k VALUES (1)"]);
            let expected = match reads_before {
                true => SqlState::SERIALIZATION_FAILURE,
                false => SqlState::UNIQUE_VIOLATION,
            };
            assert_eq!(state(result), expected, "{table}");
            run(&mut connection, &["ROLLBACK TO s", "SELECT v FROM x"]).unwrap();
            let gives_back = ["BEGIN", "DELETE FROM k", "UPDATE x SET v = 0", "COMMIT"];
            run(&mut database.connect(), &gives_back).unwrap();
            run(&mut connection, &["INSERT INTO log VALUES (1)"]).unwrap();
            let outcome = run(&mut connection, &["COMMIT"]);
            match reads_before {
                // It knows only that `v` was 0, and `v` is 0 again.
                true => outcome.unwrap(),
                false => assert_eq!(state(outcome), SqlState::SERIALIZATION_FAILURE, "{table}"),
            }
        }
    }
}

/// Of two transactions that both look for a key and then insert it the second must begin again: it would do something else then.
/// A transaction that has read nothing that has changed could have come later.
#[test]
fn a_key_that_has_been_taken_since_it_was_looked_for_is_a_conflict() {
    for table in ["k (id integer PRIMARY KEY)", "k (id integer UNIQUE DEFERRABLE)"] {
        for (read, insert, expected) in [
            ("SELECT FROM k WHERE id = 5", "INSERT INTO k VALUES (5)", SqlState::SERIALIZATION_FAILURE),
            ("SELECT FROM k WHERE id = 5", "INSERT INTO k VALUES (4), (5)", SqlState::SERIALIZATION_FAILURE),
            ("SELECT max(id) FROM k", "INSERT INTO k VALUES (5)", SqlState::SERIALIZATION_FAILURE),
            ("SELECT count(*) FROM k", "UPDATE k SET id = 5", SqlState::SERIALIZATION_FAILURE),
            ("SELECT FROM k WHERE id = 1", "INSERT INTO k VALUES (5)", SqlState::UNIQUE_VIOLATION),
            ("SELECT FROM k WHERE id = 6", "INSERT INTO k VALUES (5)", SqlState::UNIQUE_VIOLATION),
            ("SELECT FROM other", "INSERT INTO k VALUES (5)", SqlState::UNIQUE_VIOLATION),
        ] {
            let database = with(&[
                &format!("CREATE TABLE {table}"),
                "CREATE TABLE other (id integer)",
                "INSERT INTO k VALUES (1)",
            ]);
            let (mut first, mut second) = (database.connect(), database.connect());
            run(&mut first, &["BEGIN", read]).unwrap();
            run(&mut second, &["BEGIN", read]).unwrap();
            run(&mut first, &["INSERT INTO k VALUES (5)", "COMMIT"]).unwrap();
            let result = run(&mut second, &[insert]);
            assert_eq!(state(result), expected, "{table}: {read}; {insert}");
            run(&mut second, &["ROLLBACK"]).unwrap();
            assert_eq!(count(&database, "k"), 2);
        }
    }
}

/// A transaction that is overtaken is run again, and never gets an error for a key that it has not seen.
#[test]
fn several_that_take_the_next_number_never_meet_a_taken_one() {
    const EACH: usize = 30;
    let database = with(&["CREATE TABLE k (id integer PRIMARY KEY)", "INSERT INTO k VALUES (0)"]);
    let given_up: i64 = thread::scope(|scope| {
        let inserting = [(); 3].map(|()| {
            let database = &database;
            thread::spawn_scoped(scope, "inserting", move || {
                let mut connection = database.connect();
                let insert = "INSERT INTO k SELECT max(id) + 1 FROM k";
                let outcomes = (0..EACH).map(|_| run(&mut connection, &[insert]));
                let errors: Vec<SqlState> =
                    outcomes.filter_map(|outcome| Some(outcome.err()?.state())).collect();
                assert!(errors.iter().all(|state| *state == SqlState::SERIALIZATION_FAILURE), "{errors:?}");
                errors.len() as i64
            })
        });
        inserting.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert_eq!(count(&database, "k"), 1 + 3 * EACH as i64 - given_up);
    assert_eq!(count(&database, "k WHERE id >= (SELECT count(*) FROM k)"), 0);
}

/// COPY returns the rows as of its start, whatever its connection does meanwhile.
#[test]
fn a_copy_that_is_drawn_beside_other_statements_shows_one_state() {
    const ROWS: i64 = 50_000;
    for level in LEVELS {
        for (next, whole) in [
            ("SELECT 1", true),
            ("UPDATE t SET b = b + 1", true),
            ("SAVEPOINT s", true),
            ("COMMIT", true),
            ("ROLLBACK", false),
        ] {
            let database = with(&[
                "CREATE TABLE t (a bigint, b bigint)",
                &format!("INSERT INTO t SELECT g, 0 FROM generate_series(1, {ROWS}) g"),
            ]);
            let mut connection = database.connect();
            begin(&mut connection, level);
            let statement = connection.prepare("COPY t TO STDOUT").unwrap();
            let Outcome::CopyOut(mut copy) = connection.run(&statement, &[]).unwrap() else { panic!() };
            let mut text = copy.next_chunk().unwrap().expect("there are rows");
            if !next.starts_with("UPDATE") {
                run(&mut database.connect(), &["UPDATE t SET b = 7", "DELETE FROM t WHERE a % 2 = 0"])
                    .unwrap();
            }
            run(&mut connection, &[next]).unwrap();
            run(&mut database.connect(), &["CREATE TABLE other (a integer)"]).unwrap();
            database.engine().collect();
            let mut drawn = Ok(());
            loop {
                match copy.next_chunk() {
                    Ok(Some(piece)) => text.extend(piece),
                    Ok(None) => break,
                    Err(error) => {
                        drawn = Err(error);
                        break;
                    }
                }
            }
            let text = String::from_utf8(text).unwrap();
            assert!(text.lines().all(|line| line.ends_with("\t0")), "{level}, {next}");
            match whole {
                true => {
                    drawn.unwrap();
                    assert_eq!(text.lines().count() as i64, ROWS, "{level}, {next}");
                    assert_eq!(copy.tag().rows, Some(ROWS as u64));
                }
                false => assert_eq!(state(drawn), SqlState::INVALID_CURSOR_NAME),
            }
        }
    }
}
