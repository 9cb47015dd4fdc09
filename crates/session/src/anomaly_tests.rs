//! The anomalies that distinguish the isolation levels, each at every level: the cases of Hermitage
//! (Kleppmann 2014) and what the literature adds. docs/mvcc.md lists them beside what PostgreSQL does.
//!
//! A case is a script. `1: SELECT …` is a statement of transaction 1, which begins there; `0:` is a statement
//! by itself. The expected outcome follows the arrow: rows as `id=value`, how many rows were changed, an
//! SQLSTATE, or `waits`; without an arrow the statement succeeds. `1: …` is the end of waiting. Three outcomes are
//! those at READ COMMITTED, REPEATABLE READ and SERIALIZABLE.

use crate::{Connection, Database, TransactionStatus};
use firn_base::random::Random;
use firn_base::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use firn_base::{Result, Value, thread};
use std::collections::HashMap;
use std::time::Duration;

/// A statement that has not returned by then counts as waiting.
const WAITS: Duration = Duration::from_millis(40);
/// No statement takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// Makes a module of an anomaly, with a test for every level.
macro_rules! anomaly {
    ($(#[$comment:meta])* $name:ident, $script:literal) => {
        $(#[$comment])*
        mod $name {
            #[test]
            fn read_committed() {
                super::play(0, $script);
            }

            #[test]
            fn repeatable_read() {
                super::play(1, $script);
            }

            #[test]
            fn serializable() {
                super::play(2, $script);
            }
        }
    };
}

anomaly!(
    /// Two transactions that change the same rows do so in one order.
    g0_write_cycle,
    "1: UPDATE test SET value = 11 WHERE id = 1
     2: UPDATE test SET value = 12 WHERE id = 1 -> waits
     1: UPDATE test SET value = 21 WHERE id = 2
     1: COMMIT
     0: SELECT * FROM test -> 1=11 2=21
     2: … -> 1 changed | 40001 | 1 changed
     2: UPDATE test SET value = 22 WHERE id = 2 -> 1 changed | 25P02 | 1 changed
     2: COMMIT
     0: SELECT * FROM test -> 1=12 2=22 | 1=11 2=21 | 1=12 2=22"
);

anomaly!(
    /// What was rolled back was never seen.
    g1a_aborted_read,
    "1: UPDATE test SET value = 101 WHERE id = 1
     2: SELECT * FROM test -> 1=10 2=20
     1: ROLLBACK
     2: SELECT * FROM test -> 1=10 2=20
     2: COMMIT"
);

anomaly!(
    /// What was overwritten before its commit was never seen.
    g1b_intermediate_read,
    "1: UPDATE test SET value = 101 WHERE id = 1
     2: SELECT * FROM test -> 1=10 2=20
     1: UPDATE test SET value = 11 WHERE id = 1
     1: COMMIT
     2: SELECT * FROM test -> 1=11 2=20 | 1=10 2=20 | 1=10 2=20
     2: COMMIT"
);

anomaly!(
    /// Two transactions do not both see what the other has written.
    g1c_circular_information_flow,
    "1: UPDATE test SET value = 11 WHERE id = 1
     2: UPDATE test SET value = 22 WHERE id = 2
     1: SELECT * FROM test WHERE id = 2 -> 2=20
     2: SELECT * FROM test WHERE id = 1 -> 1=10
     1: COMMIT
     2: COMMIT -> ok | ok | 40001
     0: SELECT * FROM test -> 1=11 2=22 | 1=11 2=22 | 1=11 2=20"
);

anomaly!(
    /// A reader that has seen one change of a transaction does not then miss another.
    otv_observed_transaction_vanishes,
    "1: UPDATE test SET value = 11 WHERE id = 1
     1: UPDATE test SET value = 19 WHERE id = 2
     2: UPDATE test SET value = 12 WHERE id = 1 -> waits
     1: COMMIT
     2: … -> 1 changed | 40001 | 1 changed
     3: SELECT * FROM test WHERE id = 1 -> 1=11
     2: UPDATE test SET value = 18 WHERE id = 2 -> 1 changed | 25P02 | 1 changed
     3: SELECT * FROM test WHERE id = 2 -> 2=19
     2: COMMIT
     3: SELECT * FROM test WHERE id = 2 -> 2=18 | 2=19 | 2=19
     3: SELECT * FROM test WHERE id = 1 -> 1=12 | 1=11 | 1=11
     3: COMMIT"
);

anomaly!(
    /// Two conditions are evaluated on one state.
    pmp_predicate_many_preceders,
    "1: SELECT * FROM test WHERE value = 30 -> nothing
     2: INSERT INTO test VALUES (3, 30)
     2: COMMIT
     1: SELECT * FROM test WHERE value % 3 = 0 -> 3=30 | nothing | nothing
     1: COMMIT"
);

anomaly!(
    /// Rows are chosen to be deleted in the state in which they are deleted.
    pmp_of_a_write,
    "1: UPDATE test SET value = value + 10 -> 2 changed
     2: DELETE FROM test WHERE value = 20 -> waits
     1: COMMIT
     2: … -> 1 changed | 40001 | 1 changed
     2: SELECT * FROM test -> 2=30 | 25P02 | 2=30
     2: COMMIT
     0: SELECT * FROM test -> 2=30 | 1=20 2=30 | 2=30"
);

anomaly!(
    /// A transaction changes what it has read before any other transaction has changed it.
    p4_lost_update,
    "1: SELECT * FROM test WHERE id = 1 -> 1=10
     2: SELECT * FROM test WHERE id = 1 -> 1=10
     1: UPDATE test SET value = 11 WHERE id = 1
     2: UPDATE test SET value = 12 WHERE id = 1 -> waits
     1: COMMIT
     2: … -> 1 changed | 40001 | 40001
     2: COMMIT
     0: SELECT * FROM test WHERE id = 1 -> 1=12 | 1=11 | 1=11"
);

anomaly!(
    /// Two rows are read as they were at one time.
    g_single_read_skew,
    "1: SELECT * FROM test WHERE id = 1 -> 1=10
     2: SELECT * FROM test -> 1=10 2=20
     2: UPDATE test SET value = 12 WHERE id = 1
     2: UPDATE test SET value = 18 WHERE id = 2
     2: COMMIT
     1: SELECT * FROM test WHERE id = 2 -> 2=18 | 2=20 | 2=20
     1: COMMIT"
);

anomaly!(
    /// So are the rows that meet two conditions.
    g_single_of_predicates,
    "1: SELECT * FROM test WHERE value % 5 = 0 -> 1=10 2=20
     2: UPDATE test SET value = 12 WHERE value = 10
     2: COMMIT
     1: SELECT * FROM test WHERE value % 3 = 0 -> 1=12 | nothing | nothing
     1: COMMIT"
);

anomaly!(
    /// A row that is written was chosen in the state that was read.
    g_single_of_a_write,
    "1: SELECT * FROM test WHERE id = 1 -> 1=10
     2: SELECT * FROM test -> 1=10 2=20
     2: UPDATE test SET value = 12 WHERE id = 1
     2: UPDATE test SET value = 18 WHERE id = 2
     2: COMMIT
     1: DELETE FROM test WHERE value = 20 -> 0 changed | 40001 | 40001
     1: COMMIT
     0: SELECT * FROM test -> 1=12 2=18"
);

anomaly!(
    /// A transaction that waits for a write that is rolled back continues as if the write had never been.
    g_single_of_a_write_that_is_rolled_back,
    "1: SELECT * FROM test WHERE id = 1 -> 1=10
     2: SELECT * FROM test -> 1=10 2=20
     2: UPDATE test SET value = 12 WHERE id = 1
     1: DELETE FROM test WHERE value = 20 -> 1 changed
     2: UPDATE test SET value = 18 WHERE id = 2 -> waits
     1: ROLLBACK
     2: … -> 1 changed
     2: COMMIT
     0: SELECT * FROM test -> 1=12 2=18"
);

anomaly!(
    /// Of two that each change what the other has read, one fails.
    g2_item_write_skew,
    "1: SELECT * FROM test WHERE id IN (1, 2) -> 1=10 2=20
     2: SELECT * FROM test WHERE id IN (1, 2) -> 1=10 2=20
     1: UPDATE test SET value = 11 WHERE id = 1
     2: UPDATE test SET value = 21 WHERE id = 2
     1: COMMIT
     2: COMMIT -> ok | ok | 40001
     0: SELECT * FROM test -> 1=11 2=21 | 1=11 2=21 | 1=11 2=20"
);

anomaly!(
    /// The same of rows that were not there.
    g2_anti_dependency_cycle,
    "1: SELECT * FROM test WHERE value % 3 = 0 -> nothing
     2: SELECT * FROM test WHERE value % 3 = 0 -> nothing
     1: INSERT INTO test VALUES (3, 30)
     2: INSERT INTO test VALUES (4, 42)
     1: COMMIT
     2: COMMIT -> ok | ok | 40001
     0: SELECT * FROM test WHERE value % 3 = 0 -> 3=30 4=42 | 3=30 4=42 | 3=30"
);

anomaly!(
    /// A reader has seen the second change without the first. So the first must not rely on the absence of the second
    /// (Fekete, O'Neil and O'Neil 2004).
    g2_two_edges,
    "1: SELECT * FROM test -> 1=10 2=20
     2: UPDATE test SET value = value + 5 WHERE id = 2
     2: COMMIT
     3: SELECT * FROM test -> 1=10 2=25
     3: COMMIT
     1: UPDATE test SET value = 0 WHERE id = 1
     1: COMMIT -> ok | ok | 40001
     0: SELECT * FROM test -> 1=0 2=25 | 1=0 2=25 | 1=10 2=25"
);

anomaly!(
    /// The same with consequences: two accounts hold 30; drawing more than that costs a fee of 1. A statement of
    /// account shows a deposit of 20 and no withdrawal, so a later withdrawal of 40 should have cost nothing.
    read_only_transaction,
    "1: SELECT sum(value) FROM test -> 30
     2: UPDATE test SET value = value + 20 WHERE id = 2
     2: COMMIT
     3: SELECT sum(value) FROM test -> 50
     3: COMMIT
     1: UPDATE test SET value = value - 41 WHERE id = 1
     1: COMMIT -> ok | ok | 40001
     0: SELECT sum(value) FROM test -> 9 | 9 | 50"
);

anomaly!(
    /// A rule that only programs know: row 2 permits values above 100, and may be deleted only if there are none.
    write_skew_of_a_deletion_and_an_insertion,
    "1: SELECT * FROM test WHERE id = 2 -> 2=20
     2: SELECT * FROM test WHERE value > 100 -> nothing
     1: INSERT INTO test VALUES (7, 120)
     2: DELETE FROM test WHERE id = 2 -> 1 changed
     2: COMMIT
     1: COMMIT -> ok | ok | 40001
     0: SELECT * FROM test -> 1=10 7=120 | 1=10 7=120 | 1=10"
);

anomaly!(
    /// A row that an update moves into a condition counts like an inserted row.
    write_skew_of_rows_that_move_into_a_range,
    "1: SELECT count(*) FROM test WHERE value >= 50 -> 0
     2: SELECT count(*) FROM test WHERE value >= 50 -> 0
     1: UPDATE test SET value = 50 WHERE id = 1
     2: UPDATE test SET value = 60 WHERE id = 2
     2: COMMIT
     1: COMMIT -> ok | ok | 40001
     0: SELECT * FROM test -> 1=50 2=60 | 1=50 2=60 | 1=10 2=60"
);

anomaly!(
    /// Three of which each has read what the next one changes.
    long_cycle,
    "0: INSERT INTO test VALUES (3, 30)
     1: SELECT * FROM test WHERE id = 2 -> 2=20
     2: SELECT * FROM test WHERE id = 3 -> 3=30
     3: SELECT * FROM test WHERE id = 1 -> 1=10
     1: UPDATE test SET value = 11 WHERE id = 1
     2: UPDATE test SET value = 21 WHERE id = 2
     3: UPDATE test SET value = 31 WHERE id = 3
     1: COMMIT
     2: COMMIT
     3: COMMIT -> ok | ok | 40001
     0: SELECT * FROM test -> 1=11 2=21 3=31 | 1=11 2=21 3=31 | 1=11 2=21 3=30"
);

anomaly!(
    /// No anomaly: the first could precede the second. But a writer must fit in the order of commits, whereas
    /// PostgreSQL fails no transaction here.
    reader_of_an_old_version_that_writes,
    "1: SELECT * FROM test WHERE id = 2 -> 2=20
     2: UPDATE test SET value = 21 WHERE id = 2
     2: COMMIT
     1: UPDATE test SET value = 11 WHERE id = 1
     1: COMMIT -> ok | ok | 40001
     0: SELECT * FROM test -> 1=11 2=21 | 1=11 2=21 | 1=10 2=21"
);

/// Random transfers between accounts. A reader that adds them all up in one statement, or in several at the
/// levels that read one state, finds the initial sum.
#[test]
fn transfers_leave_the_sum_as_it_was() {
    const TRANSFERS: usize = 100;
    for level in LEVELS {
        let database = Database::memory().unwrap();
        let connect = || {
            let mut connection = database.connect();
            connection.set("default_transaction_isolation", level).unwrap();
            connection
        };
        let mut reader = connect();
        reader.execute("CREATE TABLE test (id bigint PRIMARY KEY, value bigint)").unwrap();
        reader.execute("INSERT INTO test VALUES (0, 100), (1, 100), (2, 100), (3, 100)").unwrap();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..3)
                .map(|seed| {
                    let mut connection = connect();
                    thread::spawn_scoped(scope, "transfers", move || {
                        let mut random = Random::seeded(seed);
                        (0..TRANSFERS).for_each(|_| transfer(&mut connection, &mut random));
                    })
                })
                .collect();
            while !clients.iter().all(|client| client.is_finished()) {
                assert_eq!(sum(&mut reader, "id >= 0"), 400, "{level}: by the key");
                assert_eq!(sum(&mut reader, "value + id > -100000"), 400, "{level}: by a scan");
                if level != "read committed" {
                    reader.execute("BEGIN").unwrap();
                    let sums = ["id < 2", "id >= 2"].map(|half| sum(&mut reader, half));
                    reader.execute("COMMIT").unwrap();
                    assert_eq!(sums.iter().sum::<i64>(), 400, "{level}: in two statements");
                }
            }
        });
        assert_eq!(sum(&mut reader, "true"), 400, "{level}: afterwards");
    }
}

fn sum(connection: &mut Connection, condition: &str) -> i64 {
    let sql = format!("SELECT sum(value)::bigint FROM test WHERE {condition}");
    match connection.query_row(&sql, &[]).unwrap().unwrap()[..] {
        [Value::BigInt(sum)] => sum,
        ref other => panic!("{other:?}"),
    }
}

/// Moves money, and retries until no other transaction conflicts.
fn transfer(connection: &mut Connection, random: &mut Random) {
    let (from, by) = (random.uniform(0, 3), random.uniform(1, 50));
    let to = (from + random.uniform(1, 3)) % 4;
    let statements = [
        "BEGIN".to_owned(),
        format!("UPDATE test SET value = value - {by} WHERE id = {from}"),
        format!("UPDATE test SET value = value + {by} WHERE id = {to}"),
        "COMMIT".to_owned(),
    ];
    while let Err(error) = statements.iter().try_for_each(|sql| connection.execute(sql).map(drop)) {
        assert!(error.is_retryable(), "{error}");
        if connection.status() != TransactionStatus::Idle {
            connection.execute("ROLLBACK").unwrap();
        }
    }
}

/// Runs a script at a level.
fn play(level: usize, script: &str) {
    let database = Database::memory().unwrap();
    let mut setup = database.connect();
    setup.execute("CREATE TABLE test (id integer PRIMARY KEY, value integer)").unwrap();
    setup.execute("INSERT INTO test VALUES (1, 10), (2, 20)").unwrap();
    thread::scope(|scope| {
        let mut actors: HashMap<&str, Actor> = HashMap::new();
        for line in script.lines() {
            let (number, rest) = line.trim().split_once(": ").expect("each step has a number");
            let (sql, expected) = rest.split_once(" -> ").unwrap_or((rest, ""));
            let expected = expected.split(" | ").nth(level).unwrap_or(expected);
            let actor = actors.entry(number).or_insert_with(|| {
                let (orders, received) = channel::<String>();
                let (sender, answers) = channel();
                let mut connection = database.connect();
                connection.set("default_transaction_isolation", LEVELS[level]).unwrap();
                thread::spawn_scoped(scope, "actor", move || serve(&mut connection, &received, &sender));
                let actor = Actor { orders, answers };
                if number != "0" {
                    actor.order("BEGIN");
                    assert_eq!(actor.answer(), "ok");
                }
                actor
            });
            if sql != "…" {
                actor.order(sql);
            }
            if expected == "waits" {
                let answer = actor.answers.recv_timeout(WAITS);
                assert_eq!(answer, Err(RecvTimeoutError::Timeout), "{line}");
                continue;
            }
            let answer = actor.answer();
            match expected {
                "" => assert!(answer == "ok" || answer.ends_with("changed"), "{line}: {answer}"),
                expected => assert_eq!(answer, expected, "{line}"),
            }
        }
    });
}

/// A connection on a thread of its own, for it may have to wait.
struct Actor {
    orders: Sender<String>,
    answers: Receiver<String>,
}

impl Actor {
    fn order(&self, sql: &str) {
        self.orders.send(sql.to_owned()).unwrap();
    }

    fn answer(&self) -> String {
        self.answers.recv_timeout(PATIENCE).unwrap()
    }
}

fn serve(connection: &mut Connection, orders: &Receiver<String>, answers: &Sender<String>) {
    for sql in orders {
        let answer = run(connection, &sql).unwrap_or_else(|error| error.state().as_str().to_owned());
        // A case that has failed receives no more answers.
        let _ = answers.send(answer);
    }
}

fn run(connection: &mut Connection, sql: &str) -> Result<String> {
    let statement = connection.prepare(sql)?;
    if statement.columns().is_none() {
        let changed = connection.execute_statement(&statement, &[])?;
        return Ok(if changed == 0 && !sql.starts_with("DELETE") {
            "ok".to_owned()
        } else {
            format!("{changed} changed")
        });
    }
    let mut rows = connection.query_values(&statement, &[])?;
    rows.sort_by_key(|row| format!("{row:?}"));
    let number = |value: &Value| match value {
        Value::Integer(number) => number.to_string(),
        Value::BigInt(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let rows: Vec<String> =
        rows.iter().map(|row| row.iter().map(number).collect::<Vec<_>>().join("=")).collect();
    Ok(if rows.is_empty() { "nothing".to_owned() } else { rows.join(" ") })
}
