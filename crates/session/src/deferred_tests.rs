//! Constraints that are tested at COMMIT, where two transactions have changed both ends of a foreign key, or
//! give one key to two rows.

use crate::table_waiting_tests::until;
use crate::{Connection, Database};
use firn_base::disk::SimulatedDisk;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, Value, clock, thread};
use firn_txn::{Config, Engine};
use std::sync::Barrier;
use std::time::Duration;

const LEVELS: [&str; 3] = ["SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED"];
const ADD: &str = "INSERT INTO child VALUES (1, 1)";
const REMOVE: &str = "DELETE FROM parent WHERE id = 1";

fn database() -> Database {
    let database = Database::memory().unwrap();
    run(
        &mut database.connect(),
        &[
            "CREATE TABLE parent (id integer PRIMARY KEY)",
            "CREATE TABLE child (id integer PRIMARY KEY,
                 p integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
            "INSERT INTO parent VALUES (1), (2)",
        ],
    )
    .unwrap();
    database
}

fn run(connection: &mut Connection, statements: &[&str]) -> Result<()> {
    statements.iter().try_for_each(|sql| connection.execute(sql).map(drop))
}

fn begin(level: &str) -> String {
    format!("BEGIN ISOLATION LEVEL {level}")
}

fn count(database: &Database, sql: &str) -> i64 {
    match database.connect().query_row(sql, &[]).unwrap().unwrap().as_slice() {
        [Value::BigInt(count)] => *count,
        other => panic!("{other:?}"),
    }
}

fn orphans(database: &Database) -> i64 {
    count(database, "SELECT count(*) FROM child WHERE p IS NOT NULL AND p NOT IN (SELECT id FROM parent)")
}

/// The errors of a transaction of two that cannot both commit.
fn is_conflict(error: &Error) -> bool {
    [SqlState::FOREIGN_KEY_VIOLATION, SqlState::SERIALIZATION_FAILURE, SqlState::DEADLOCK_DETECTED]
        .contains(&error.state())
}

/// `second` reaches its COMMIT while `first` is open, all of whose tests are done, and waits there for the end of
/// that one, which is `end`. Returns the result of the COMMIT.
fn commit_beside(database: &Database, level: &str, first: &str, second: &str, end: &str) -> Result<()> {
    let mut holder = database.connect();
    run(&mut holder, &["BEGIN", first, "SET CONSTRAINTS ALL IMMEDIATE"]).unwrap();
    thread::scope(|scope| {
        let waiting = thread::spawn_scoped(scope, "second", || {
            let mut connection = database.connect();
            run(&mut connection, &[&begin(level), second]).expect("statements are not tested");
            run(&mut connection, &["COMMIT"])
        });
        clock::sleep(Duration::from_millis(30));
        assert!(!waiting.is_finished(), "it waits");
        run(&mut holder, &[end]).unwrap();
        waiting.join().unwrap()
    })
}

#[test]
fn a_commit_waits_for_changes_of_the_other_side() {
    for level in LEVELS {
        let expected = match level {
            "REPEATABLE READ" => SqlState::SERIALIZATION_FAILURE,
            _ => SqlState::FOREIGN_KEY_VIOLATION,
        };
        let database = database();
        let refused = commit_beside(&database, level, REMOVE, ADD, "COMMIT").unwrap_err();
        assert_eq!(refused.state(), expected, "{level}");
        assert_eq!(orphans(&database), 0);

        let database = self::database();
        commit_beside(&database, level, REMOVE, ADD, "ROLLBACK").unwrap();
        assert_eq!(count(&database, "SELECT count(*) FROM child"), 1);

        let database = self::database();
        let refused = commit_beside(&database, level, ADD, REMOVE, "COMMIT").unwrap_err();
        assert_eq!(refused.state(), expected, "{level}");
        assert_eq!(orphans(&database), 0);

        let database = self::database();
        commit_beside(&database, level, ADD, REMOVE, "ROLLBACK").unwrap();
        assert_eq!(count(&database, "SELECT count(*) FROM parent"), 1);
    }
}

/// Both have made their changes before either reaches its COMMIT.
#[test]
fn of_a_referring_row_and_the_deletion_of_its_target_one_fails() {
    for level in LEVELS {
        for _ in 0..20 {
            let database = database();
            let both = Barrier::new(2);
            let outcomes = thread::scope(|scope| {
                let works = [ADD, REMOVE].map(|work| {
                    let (database, both) = (&database, &both);
                    thread::spawn_scoped(scope, "side", move || {
                        let mut connection = database.connect();
                        let begun = run(&mut connection, &[&begin(level), work]);
                        // If one has failed, the other does not wait for ever.
                        both.wait();
                        begun.expect("statements are not tested");
                        run(&mut connection, &["COMMIT"])
                    })
                });
                works.map(|work| work.join().unwrap())
            });
            let failed: Vec<&Error> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
            assert!(!failed.is_empty(), "{level}: both have committed");
            assert!(failed.iter().all(|error| is_conflict(error)), "{level}: {failed:?}");
            assert_eq!(orphans(&database), 0, "{level}");
        }
    }
}

/// Since the snapshot a row has begun to reference a key. A third transaction makes it reference another one; if the third
/// rolls back, the first reference is restored. The check waits for the third, or fails for it.
#[test]
fn a_row_that_is_being_pointed_elsewhere_still_counts() {
    for level in ["SERIALIZABLE", "REPEATABLE READ"] {
        for tested in ["SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED"] {
            let database = database();
            let (mut first, mut second) = (database.connect(), database.connect());
            run(&mut second, &["INSERT INTO child VALUES (5, NULL)"]).unwrap();
            run(&mut first, &[&begin(level), tested]).unwrap();
            run(&mut second, &["UPDATE child SET p = 1 WHERE id = 5"]).unwrap();
            run(&mut second, &["BEGIN", "UPDATE child SET p = NULL WHERE id = 5"]).unwrap();
            let waits = &database.engine().statistics().waits;
            let before = waits.get();
            thread::scope(|scope| {
                let remove = || run(&mut first, &[REMOVE, "COMMIT"]).unwrap_err();
                let removal = thread::spawn_scoped(scope, "first", remove);
                until(|| waits.get() > before || removal.is_finished());
                run(&mut second, &["ROLLBACK"]).unwrap();
                let refused = removal.join().unwrap();
                assert!(is_conflict(&refused), "{level}: {refused}");
            });
            assert_eq!(orphans(&database), 0, "{level}");
        }
    }
}

/// Random transactions at all levels, with savepoints and SET CONSTRAINTS in between; no commit
/// leaves a row whose reference has no target.
#[test]
fn nothing_that_commits_leaves_a_row_that_points_nowhere() {
    const THREADS: u64 = 4;
    const TRANSACTIONS: usize = 300;
    let database = database();
    let seed = Random::from_entropy().uniform(0, i64::MAX) as u64;
    let committed: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                let database = &database;
                thread::spawn_scoped(scope, "worker", move || {
                    let mut random = Random::seeded(seed + worker);
                    let mut connection = database.connect();
                    let mut committed = 0;
                    for _ in 0..TRANSACTIONS {
                        committed += usize::from(random_transaction(&mut connection, &mut random));
                        // At once, as a later transaction may repair it.
                        assert_eq!(orphans(database), 0, "seed {seed}");
                    }
                    committed
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert!(committed > TRANSACTIONS / 2, "only {committed} transactions came through, seed {seed}");
}

/// Whether it has committed.
fn random_transaction(connection: &mut Connection, random: &mut Random) -> bool {
    let level = LEVELS[random.uniform(0, 2) as usize];
    let mut work = |connection: &mut Connection| -> Result<()> {
        run(connection, &[&begin(level)])?;
        for _ in 0..random.uniform(1, 5) {
            let (child, parent) = (random.uniform(1, 12), random.uniform(1, 6));
            let change = match random.uniform(0, 6) {
                0 | 1 => format!("INSERT INTO child VALUES ({child}, {parent}) ON CONFLICT DO NOTHING"),
                2 => format!("UPDATE child SET p = {parent} WHERE id = {child}"),
                3 => format!("DELETE FROM child WHERE p = {parent}"),
                4 => format!("INSERT INTO parent VALUES ({parent}) ON CONFLICT DO NOTHING"),
                5 => format!("DELETE FROM parent WHERE id = {parent}"),
                _ => format!("UPDATE child SET p = {parent} WHERE p = {}", random.uniform(1, 6)),
            };
            // Other transactions run between a check and the commit after it.
            clock::sleep(Duration::from_micros(random.uniform(0, 100) as u64));
            match random.uniform(0, 5) {
                0 => run(connection, &["SAVEPOINT a", &change, "ROLLBACK TO a"])?,
                1 => run(connection, &[&change, "SET CONSTRAINTS ALL IMMEDIATE"])?,
                2 => run(connection, &["SET CONSTRAINTS ALL DEFERRED", &change])?,
                _ => run(connection, &[&change])?,
            }
        }
        run(connection, &["COMMIT"])
    };
    let outcome = work(connection);
    if let Err(error) = &outcome {
        assert!(is_conflict(error), "{error}");
        run(connection, &["ROLLBACK"]).unwrap();
    }
    outcome.is_ok()
}

/// A program's commit and one that is dropped, with the checks between.
#[test]
fn a_programs_commit_reports_the_violation() {
    let database = database();
    let mut connection = database.connect();
    let mut transaction = connection.transaction().unwrap();
    transaction.execute("INSERT INTO child VALUES (1, 7)").unwrap();
    let error = transaction.commit().unwrap_err();
    assert_eq!(error.state(), SqlState::FOREIGN_KEY_VIOLATION);
    assert_eq!(error.constraint(), Some("child_p_fkey"));
    assert_eq!(error.table(), Some("child"));
    connection.execute("INSERT INTO child VALUES (1, 2)").unwrap();
}

/// Rows that are loaded by COPY, alone and in a block.
#[test]
fn copied_rows_are_tested_at_the_end_of_the_transaction() {
    let database = database();
    let mut connection = database.connect();
    let copy = |connection: &mut Connection, rows: &str| {
        let statement = connection.prepare("COPY child FROM STDIN").unwrap();
        let crate::Outcome::CopyIn(mut copy) = connection.run(&statement, &[]).unwrap() else {
            panic!("COPY FROM STDIN wants data")
        };
        copy.write_data(rows.as_bytes()).unwrap();
        copy.finish().map(drop)
    };
    let error = copy(&mut connection, "1\t1\n2\t9\n").unwrap_err();
    assert_eq!(error.state(), SqlState::FOREIGN_KEY_VIOLATION);
    run(&mut connection, &["BEGIN"]).unwrap();
    copy(&mut connection, "1\t1\n2\t9\n").unwrap();
    run(&mut connection, &["INSERT INTO parent VALUES (9)", "COMMIT"]).unwrap();
    assert_eq!(count(&database, "SELECT count(*) FROM child"), 2);
}

/// A key of the people, tested with every statement, and one of their places, tested at COMMIT.
fn seats() -> Database {
    let database = Database::memory().unwrap();
    run(
        &mut database.connect(),
        &[
            "CREATE TABLE seats (id integer PRIMARY KEY DEFERRABLE,
                 place integer UNIQUE DEFERRABLE INITIALLY DEFERRED)",
            "INSERT INTO seats VALUES (1, 1), (2, 2), (3, 3)",
        ],
    )
    .unwrap();
    database
}

fn doubles(database: &Database) -> i64 {
    let doubles =
        |column| format!("SELECT count(*) - count(DISTINCT {column}) FROM seats WHERE place IS NOT NULL");
    count(database, &doubles("id")) + count(database, &doubles("place"))
}

#[test]
fn a_commit_waits_for_transactions_with_the_same_key() {
    const TAKE: &str = "INSERT INTO seats VALUES (7, 9)";
    const LEAVE: &str = "UPDATE seats SET place = 9 WHERE place = 1";
    for level in LEVELS {
        for (first, second) in [(TAKE, LEAVE), (LEAVE, TAKE)] {
            let database = seats();
            let refused = commit_beside(&database, level, first, second, "COMMIT").unwrap_err();
            assert_eq!(refused.state(), SqlState::UNIQUE_VIOLATION, "{level}");
            assert_eq!(refused.detail(), Some("Key (place)=(9) already exists."));
            assert_eq!((refused.table(), refused.constraint()), (Some("seats"), Some("seats_place_key")));
            commit_beside(&seats(), level, first, second, "ROLLBACK").unwrap();
        }
        // An insertion of a place that another transaction is about to leave waits, too.
        const CLAIM: &str = "INSERT INTO seats VALUES (7, 1)";
        let refused = commit_beside(&seats(), level, LEAVE, CLAIM, "ROLLBACK").unwrap_err();
        assert_eq!(refused.state(), SqlState::UNIQUE_VIOLATION, "{level}");
        let claimed = commit_beside(&seats(), level, LEAVE, CLAIM, "COMMIT");
        match level {
            // Its snapshot still sees the other person there.
            "REPEATABLE READ" => {
                assert_eq!(claimed.unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
            }
            _ => claimed.unwrap(),
        }
    }
}

/// Both have made their changes before either reaches its COMMIT.
#[test]
fn of_two_rows_with_one_key_one_fails() {
    for level in LEVELS {
        for _ in 0..20 {
            let database = seats();
            let both = Barrier::new(2);
            let outcomes = thread::scope(|scope| {
                let works = [11, 12].map(|id| {
                    let (database, both) = (&database, &both);
                    thread::spawn_scoped(scope, "side", move || {
                        let mut connection = database.connect();
                        let insert = format!("INSERT INTO seats VALUES ({id}, 9)");
                        let begun = run(&mut connection, &[&begin(level), &insert]);
                        both.wait();
                        begun.expect("statements are not tested");
                        run(&mut connection, &["COMMIT"])
                    })
                });
                works.map(|work| work.join().unwrap())
            });
            let failed: Vec<&Error> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
            assert_eq!(failed.len(), 1, "{level}: {failed:?}");
            assert!(
                is_conflict(failed[0]) || failed[0].state() == SqlState::UNIQUE_VIOLATION,
                "{level}: {failed:?}"
            );
            assert_eq!(doubles(&database), 0, "{level}");
        }
    }
}

/// Random transactions at all levels that change places; no reader ever sees two people in one.
#[test]
fn nothing_that_commits_leaves_two_rows_under_one_key() {
    const THREADS: u64 = 4;
    const TRANSACTIONS: usize = 300;
    let database = seats();
    let seed = Random::from_entropy().uniform(0, i64::MAX) as u64;
    let committed: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                let database = &database;
                thread::spawn_scoped(scope, "worker", move || {
                    let mut random = Random::seeded(seed + worker);
                    let mut connection = database.connect();
                    let mut committed = 0;
                    for _ in 0..TRANSACTIONS {
                        committed += usize::from(change_places(&mut connection, &mut random, seed));
                        assert_eq!(doubles(database), 0, "seed {seed}");
                    }
                    committed
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert!(committed > TRANSACTIONS / 2, "only {committed} transactions came through, seed {seed}");
}

/// Whether it has committed.
fn change_places(connection: &mut Connection, random: &mut Random, seed: u64) -> bool {
    let level = LEVELS[random.uniform(0, 2) as usize];
    let mut work = |connection: &mut Connection| -> Result<()> {
        run(connection, &[&begin(level)])?;
        for _ in 0..random.uniform(1, 4) {
            let (id, place) = (random.uniform(1, 8), random.uniform(1, 8));
            let change = match random.uniform(0, 5) {
                0 => format!("INSERT INTO seats VALUES ({id}, {place})"),
                1 => format!("DELETE FROM seats WHERE place = {place}"),
                2 => format!("UPDATE seats SET place = {place} WHERE id = {id}"),
                3 => {
                    format!("UPDATE seats SET place = {id} + {place} - place WHERE place IN ({id}, {place})")
                }
                4 => format!("UPDATE seats SET id = {id} + {place} - id WHERE id IN ({id}, {place})"),
                _ => "UPDATE seats SET place = 9 - place".to_owned(),
            };
            clock::sleep(Duration::from_micros(random.uniform(0, 100) as u64));
            match random.uniform(0, 5) {
                0 => run(connection, &["SAVEPOINT a", &change, "ROLLBACK TO a"])?,
                1 => run(connection, &[&change, "SET CONSTRAINTS ALL IMMEDIATE"])?,
                2 => run(connection, &["SET CONSTRAINTS ALL DEFERRED", &change])?,
                _ => run(connection, &[&change])?,
            }
        }
        run(connection, &["COMMIT"])
    };
    let outcome = work(connection);
    if let Err(error) = &outcome {
        assert!(is_conflict(error) || error.state() == SqlState::UNIQUE_VIOLATION, "{error}, seed {seed}");
        run(connection, &["ROLLBACK"]).unwrap();
    }
    outcome.is_ok()
}

/// Rows that are loaded by COPY, in columns and one by one.
#[test]
fn copied_rows_have_keys_of_their_own() {
    let database = seats();
    let mut connection = database.connect();
    run(&mut connection, &["CREATE TABLE more AS SELECT generate_series(3, 6) AS id"]).unwrap();
    let error = run(&mut connection, &["INSERT INTO seats SELECT id, id + 10 FROM more"]).unwrap_err();
    assert_eq!(error.detail(), Some("Key (id)=(3) already exists."));
    let statement = connection.prepare("COPY seats FROM STDIN").unwrap();
    let crate::Outcome::CopyIn(mut copy) = connection.run(&statement, &[]).unwrap() else {
        panic!("COPY FROM STDIN wants data")
    };
    copy.write_data(b"4\t4\n5\t4\n").unwrap();
    assert_eq!(copy.finish().unwrap_err().detail(), Some("Key (place)=(4) already exists."));
    assert_eq!(count(&database, "SELECT count(*) FROM seats"), 3);
}

/// After recovery from the log alone, and from a checkpoint.
#[test]
fn deferrable_keys_are_what_they_were_after_a_crash() {
    let open = |disk: &Arc<SimulatedDisk>| {
        let config = Config { directory: Some("/data/db".into()), ..Config::default() };
        Database::with_engine(Engine::open_on(disk.clone(), config).unwrap())
    };
    for checkpoint in [None, Some("CHECKPOINT")] {
        let disk = SimulatedDisk::new();
        let database = open(&disk);
        let mut connection = database.connect();
        let made = [
            "CREATE TABLE seats (id integer PRIMARY KEY DEFERRABLE,
                 place integer UNIQUE DEFERRABLE INITIALLY DEFERRED)",
            "INSERT INTO seats VALUES (1, 1), (2, 2)",
            "BEGIN",
            "UPDATE seats SET id = id + 1",
            "INSERT INTO seats VALUES (4, 1)",
            "UPDATE seats SET place = 9 WHERE id = 2",
            "COMMIT",
        ];
        run(&mut connection, &made).unwrap();
        run(&mut connection, checkpoint.as_slice()).unwrap();
        // Never committed.
        run(&mut connection, &["BEGIN", "INSERT INTO seats VALUES (5, 9)"]).unwrap();
        let after = open(&disk.after_power_cut(&mut Random::from_entropy()));
        assert_eq!(count(&after, "SELECT count(*) FROM seats WHERE place IN (1, 9)"), 2);
        assert_eq!(doubles(&after), 0);
        let mut connection = after.connect();
        run(&mut connection, &["UPDATE seats SET id = id + 1", "BEGIN"]).unwrap();
        run(&mut connection, &["INSERT INTO seats VALUES (6, 9)"]).expect("that is tested later");
        let error = run(&mut connection, &["COMMIT"]).unwrap_err();
        assert_eq!(error.detail(), Some("Key (place)=(9) already exists."));
        let error = run(&mut connection, &["INSERT INTO seats VALUES (3, 7)"]).unwrap_err();
        assert_eq!(error.detail(), Some("Key (id)=(3) already exists."));
    }
}

#[test]
fn an_index_that_foreign_keys_rely_on_does_not_become_deferrable() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    for sql in [
        "CREATE TABLE p (a integer NOT NULL)",
        "CREATE UNIQUE INDEX i ON p (a)",
        "CREATE TABLE c (a integer REFERENCES p (a))",
    ] {
        connection.execute(sql).unwrap();
    }
    let change = "ALTER TABLE p ADD CONSTRAINT u UNIQUE USING INDEX i DEFERRABLE";
    let error = connection.execute(change).expect_err("c relies on i");
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    for sql in ["INSERT INTO p VALUES (1)", "INSERT INTO c VALUES (1), (NULL)"] {
        connection.execute(sql).unwrap();
    }
}
