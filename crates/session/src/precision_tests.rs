//! What a query of a serializable transaction counts as having read. Changes that it would not have seen do not conflict;
//! others fail its commit. Each query is run with its values in the text and with parameters, on a table with an index and on
//! one without. This covers access through an index, through a plan and through prepared statements.

use crate::{Connection, Database};
use firn_base::{Result, SqlState, Value, thread};

/// `id`, `a` (1 to 5, in order), `b` (10 times that, NULL where `a` is 3), `s`, `f` (whether `a` is odd).
fn database(indexed: bool) -> Database {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    let mut run = |sql: &str| connection.execute(sql).map(drop).unwrap();
    run("CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, b int, s text, f boolean)");
    run("CREATE TABLE log (id int PRIMARY KEY)");
    if indexed {
        run("CREATE INDEX t_a ON t (a)");
        run("CREATE INDEX t_b ON t (b)");
    }
    run("INSERT INTO t VALUES (1, 1, 10, 'apple', true), (2, 2, 20, 'banana', false), (3, 3, NULL, 'cherry', true),
         (4, 4, 40, 'damson', false), (5, 5, 50, NULL, true)");
    database
}

/// Whether the transaction of the query still commits if the change is made meanwhile.
fn holds(database: &Database, query: &str, parameters: &[Value], change: &str) -> bool {
    let run = |connection: &mut Connection, sql: &str| -> Result<()> { connection.execute(sql).map(drop) };
    let mut reader = database.connect();
    run(&mut reader, "BEGIN").unwrap();
    let statement = reader.prepare(query).unwrap();
    reader.query_values(&statement, parameters).unwrap();
    run(&mut database.connect(), change).unwrap();
    run(&mut reader, "INSERT INTO log SELECT count(*) FROM log").unwrap();
    match run(&mut reader, "COMMIT") {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{query}: {error}");
            false
        }
    }
}

/// A condition with `$1`, … for its values, these, changes that do not conflict, and changes that do.
type Case = (&'static str, &'static [i32], &'static [&'static str], &'static [&'static str]);

const CASES: [Case; 11] = [
    (
        "a = $1",
        &[2],
        &["UPDATE t SET a = 9 WHERE a = 4", "DELETE FROM t WHERE a = 1", "INSERT INTO t VALUES (9, 3)"],
        &["UPDATE t SET a = 9 WHERE a = 2", "UPDATE t SET a = 2 WHERE a = 4", "INSERT INTO t VALUES (9, 2)"],
    ),
    (
        "a IN ($1, $2)",
        &[1, 5],
        &["INSERT INTO t VALUES (9, 3)", "UPDATE t SET a = 4 WHERE a = 2", "DELETE FROM t WHERE a = 3"],
        &["INSERT INTO t VALUES (9, 5)", "DELETE FROM t WHERE a = 1", "UPDATE t SET a = 5 WHERE a = 3"],
    ),
    (
        "a > $1 AND a <= $2",
        &[1, 3],
        &["INSERT INTO t VALUES (9, 1)", "UPDATE t SET a = 1 WHERE a = 5", "INSERT INTO t VALUES (9, 4)"],
        &["INSERT INTO t VALUES (9, 3)", "UPDATE t SET a = 2 WHERE a = 5", "UPDATE t SET a = 4 WHERE a = 2"],
    ),
    (
        "a BETWEEN $1 AND $2 AND b < $3",
        &[1, 4, 20],
        &[
            "UPDATE t SET b = 30 WHERE a = 4",
            "INSERT INTO t VALUES (9, 3, 20)",
            "UPDATE t SET b = 20 WHERE a = 3",
            "DELETE FROM t WHERE a = 2",
        ],
        &["UPDATE t SET b = 19 WHERE a = 4", "INSERT INTO t VALUES (9, 3, 5)", "DELETE FROM t WHERE a = 1"],
    ),
    (
        "a >= $1 AND b IN ($2, $3)",
        &[2, 20, 40],
        &[
            "UPDATE t SET b = 30 WHERE a = 5",
            "INSERT INTO t VALUES (9, 9, 30)",
            "UPDATE t SET b = 20 WHERE a = 1",
        ],
        &[
            "UPDATE t SET b = 40 WHERE a = 5",
            "INSERT INTO t VALUES (9, 9, 20)",
            "UPDATE t SET b = 41 WHERE a = 4",
        ],
    ),
    (
        "b <> $1",
        &[20],
        &[
            "INSERT INTO t VALUES (9, 9, 20)",
            "INSERT INTO t VALUES (9, 9, NULL)",
            "DELETE FROM t WHERE a = 2",
        ],
        &[
            "INSERT INTO t VALUES (9, 9, 21)",
            "UPDATE t SET b = 1 WHERE a = 2",
            "UPDATE t SET b = 20 WHERE a = 4",
        ],
    ),
    (
        "b NOT IN ($1, $2)",
        &[20, 40],
        &[
            "INSERT INTO t VALUES (9, 9, 40)",
            "UPDATE t SET b = 40 WHERE a = 2",
            "UPDATE t SET b = 20 WHERE a = 3",
        ],
        &["INSERT INTO t VALUES (9, 9, 30)", "UPDATE t SET b = 30 WHERE a = 2", "DELETE FROM t WHERE a = 1"],
    ),
    (
        "b < $1 OR b >= $2",
        &[20, 50],
        &["INSERT INTO t VALUES (9, 9, 20)", "UPDATE t SET b = 49 WHERE a = 4", "DELETE FROM t WHERE a = 3"],
        &[
            "INSERT INTO t VALUES (9, 9, 19)",
            "UPDATE t SET b = 50 WHERE a = 4",
            "UPDATE t SET b = 9 WHERE a = 3",
        ],
    ),
    (
        "b IS NULL",
        &[],
        &["INSERT INTO t VALUES (9, 9, 1)", "UPDATE t SET b = 11 WHERE a = 1", "DELETE FROM t WHERE a = 2"],
        &[
            "INSERT INTO t VALUES (9, 9)",
            "UPDATE t SET b = 11 WHERE a = 3",
            "UPDATE t SET b = NULL WHERE a = 2",
        ],
    ),
    (
        "f AND a > $1",
        &[1],
        &["INSERT INTO t VALUES (9, 9, 9, 'x', false)", "DELETE FROM t WHERE a = 4"],
        &["INSERT INTO t VALUES (9, 9, 9, 'x', true)", "UPDATE t SET f = true WHERE a = 4"],
    ),
    (
        "NOT f",
        &[],
        &[
            "INSERT INTO t VALUES (9, 9, 9, 'x', true)",
            "INSERT INTO t VALUES (9, 9)",
            "DELETE FROM t WHERE a = 1",
        ],
        &["INSERT INTO t VALUES (9, 9, 9, 'x', false)", "UPDATE t SET f = true WHERE a = 4"],
    ),
];

/// Runs the cases whose number modulo two is `part`.
fn judge(part: usize) {
    let mut wrong = Vec::new();
    for (condition, values, passing, failing) in CASES.iter().skip(part).step_by(2) {
        let mut in_text = (*condition).to_owned();
        for (number, value) in values.iter().enumerate() {
            in_text = in_text.replace(&format!("${}", number + 1), &value.to_string());
        }
        let parameters: Vec<Value> = values.iter().map(|value| Value::Integer(*value)).collect();
        for indexed in [true, false] {
            for (condition, parameters) in [(*condition, &parameters[..]), (&in_text, &[])] {
                let query = format!("SELECT id FROM t WHERE {condition}");
                for (changes, expected) in [(passing, true), (failing, false)] {
                    for change in *changes {
                        if holds(&database(indexed), &query, parameters, change) != expected {
                            wrong.push(format!("{query} {parameters:?}, indexed: {indexed}; {change}"));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn changes_that_a_query_would_not_have_seen_go_by() {
    thread::scope(|scope| {
        thread::spawn_scoped(scope, "even", || judge(0));
        judge(1);
    });
}

#[test]
fn patterns_restrict_what_is_read() {
    let query = "SELECT id FROM t WHERE s LIKE 'b%'";
    for (change, expected) in [
        ("INSERT INTO t VALUES (9, 9, 9, 'cranberry')", true),
        ("UPDATE t SET s = 'elder' WHERE a = 4", true),
        ("INSERT INTO t VALUES (9, 9, 9, 'bilberry')", false),
        ("UPDATE t SET s = 'bean' WHERE a = 4", false),
    ] {
        for indexed in [true, false] {
            assert_eq!(holds(&database(indexed), query, &[], change), expected, "{change}");
        }
    }
}

/// A query for the greatest value has read no row below it.
#[test]
fn the_least_and_the_greatest_are_read_from_their_end() {
    let cases: [(&str, &[&str], &[&str]); 6] = [
        (
            "SELECT max(id) FROM t",
            &[
                "DELETE FROM t WHERE id = 2",
                "INSERT INTO t VALUES (0, 9)",
                "UPDATE t SET id = -1 WHERE id = 4",
            ],
            &[
                "INSERT INTO t VALUES (6, 9)",
                "DELETE FROM t WHERE id = 5",
                "UPDATE t SET id = 9 WHERE id = 1",
            ],
        ),
        (
            "SELECT min(b) FROM t",
            &["INSERT INTO t VALUES (9, 9, 11)", "INSERT INTO t VALUES (9, 9)", "DELETE FROM t WHERE a = 5"],
            &["INSERT INTO t VALUES (9, 9, 9)", "UPDATE t SET b = NULL WHERE a = 1"],
        ),
        (
            "SELECT max(b) FROM t",
            &["INSERT INTO t VALUES (9, 9, 11)", "DELETE FROM t WHERE a = 1"],
            &["INSERT INTO t VALUES (9, 9, 51)", "DELETE FROM t WHERE a = 5"],
        ),
        (
            "SELECT max(a) FROM t WHERE a < 4",
            &["INSERT INTO t VALUES (9, 4)", "INSERT INTO t VALUES (9, 2)", "DELETE FROM t WHERE a = 5"],
            &["INSERT INTO t VALUES (9, 3)", "DELETE FROM t WHERE a = 3"],
        ),
        (
            "SELECT max(a) FROM t WHERE f = false",
            &["INSERT INTO t VALUES (9, 3, 1, 'x', false)", "INSERT INTO t VALUES (9, 9, 1, 'x', true)"],
            &["INSERT INTO t VALUES (9, 5, 1, 'x', false)", "UPDATE t SET f = false WHERE a = 5"],
        ),
        // The absence of rows is read for the whole range.
        (
            "SELECT min(a) FROM t WHERE a > 7",
            &["INSERT INTO t VALUES (9, 6)", "DELETE FROM t"],
            &["INSERT INTO t VALUES (9, 8)", "UPDATE t SET a = 100 WHERE a = 1"],
        ),
    ];
    for (query, passing, failing) in cases {
        for (changes, expected) in [(passing, true), (failing, false)] {
            for change in changes {
                assert_eq!(holds(&database(true), query, &[], change), expected, "{query}; {change}");
            }
        }
    }
}

/// The order of rows from an index reveals its columns, whether they are in the result or not. So do the first rows.
#[test]
fn the_order_that_an_index_delivers_is_read() {
    let cases: [(&str, &[&str], &[&str]); 6] = [
        (
            "SELECT id FROM t ORDER BY a LIMIT 3",
            &["UPDATE t SET a = 4 WHERE a = 5", "UPDATE t SET s = 'x'", "INSERT INTO t VALUES (9, 4)"],
            &[
                "UPDATE t SET a = 3 WHERE a = 1",
                "UPDATE t SET a = 0 WHERE a = 3",
                "UPDATE t SET a = 3 WHERE a = 5",
            ],
        ),
        (
            "SELECT id FROM t ORDER BY b DESC NULLS FIRST LIMIT 3",
            &["UPDATE t SET b = 11 WHERE a = 2", "UPDATE t SET a = 0"],
            &["UPDATE t SET b = 60 WHERE a = 4", "UPDATE t SET b = NULL WHERE a = 4"],
        ),
        (
            "SELECT s FROM t WHERE f ORDER BY id OFFSET 1 LIMIT 1",
            &["UPDATE t SET id = 7 WHERE id = 5", "UPDATE t SET id = 0 WHERE id = 2"],
            &["UPDATE t SET id = 0 WHERE id = 3", "UPDATE t SET id = 2, f = true WHERE id = 2"],
        ),
        (
            "SELECT s FROM t WHERE f = true ORDER BY b",
            &["UPDATE t SET b = 11 WHERE a = 2", "UPDATE t SET a = 9"],
            &["UPDATE t SET b = 60 WHERE a = 1", "UPDATE t SET b = 0 WHERE a = 3"],
        ),
        (
            "SELECT s FROM t WHERE f >= true ORDER BY f, b",
            &["UPDATE t SET b = 11 WHERE a = 2"],
            &["UPDATE t SET b = 60 WHERE a = 1"],
        ),
        // Without an order the columns are not revealed.
        (
            "SELECT s FROM t WHERE f = true",
            &["UPDATE t SET b = 60 WHERE a = 1", "UPDATE t SET a = 7 WHERE a = 1"],
            &["UPDATE t SET f = false WHERE a = 1", "UPDATE t SET s = 'x' WHERE a = 1"],
        ),
    ];
    for (query, passing, failing) in cases {
        for (changes, expected) in [(passing, true), (failing, false)] {
            for change in changes {
                let database = database(true);
                database.connect().execute("CREATE INDEX t_f_b ON t (f, b)").unwrap();
                assert_eq!(holds(&database, query, &[], change), expected, "{query}; {change}");
            }
        }
    }
}

#[test]
fn constants_of_a_wider_type_restrict_what_is_read() {
    for (condition, passing, failing) in [
        ("a < 2.5", "UPDATE t SET a = 3 WHERE a = 4", "UPDATE t SET a = 2 WHERE a = 4"),
        ("a = 2.5", "UPDATE t SET a = 2 WHERE a = 4", ""),
        ("a > 3.5::double precision", "UPDATE t SET a = 3 WHERE a = 1", "UPDATE t SET a = 4 WHERE a = 1"),
        ("a IN (1.0, 2.5)", "UPDATE t SET a = 2 WHERE a = 4", "UPDATE t SET a = 1 WHERE a = 4"),
        ("b BETWEEN 15.5 AND 40.5", "INSERT INTO t VALUES (9, 9, 15)", "INSERT INTO t VALUES (9, 9, 16)"),
        ("b <> 20.5", "INSERT INTO t VALUES (9, 9, NULL)", "INSERT INTO t VALUES (9, 9, 20)"),
    ] {
        let query = format!("SELECT count(*) FROM t WHERE {condition}");
        for indexed in [false, true] {
            for (change, expected) in [(passing, true), (failing, false)] {
                if !change.is_empty() {
                    let held = holds(&database(indexed), &query, &[], change);
                    assert_eq!(held, expected, "{query}; {change}");
                }
            }
        }
    }
}

/// A comparison may distinguish zeros and NaNs, so restrictions of floats are wider than conditions: a change
/// within a restriction may be one within the condition.
#[test]
fn conditions_on_floats_restrict_what_is_read() {
    let database = || {
        let database = Database::memory().unwrap();
        let rows = "(1, -5::double precision), (2, '-0'), (3, '0'), (4, 1.5), (5, 'Infinity'), (6, 'NaN'), (7, NULL)";
        let mut connection = database.connect();
        connection.execute("CREATE TABLE log (id int PRIMARY KEY)").unwrap();
        connection.execute("CREATE TABLE f (id int PRIMARY KEY, x double precision, r real)").unwrap();
        connection
            .execute(&format!("INSERT INTO f SELECT id, x, x FROM (VALUES {rows}) AS v(id, x)"))
            .unwrap();
        database
    };
    for column in ["x", "r"] {
        for (condition, passing, failing) in [
            (
                "# < 1",
                &["SET # = 7 WHERE id = 4", "SET # = NULL WHERE id = 5", "SET # = 1 WHERE id = 7"][..],
                &[
                    "SET # = 0.5 WHERE id = 4",
                    "SET # = 'NaN' WHERE id = 1",
                    "SET # = '-Infinity' WHERE id = 7",
                ][..],
            ),
            (
                "# > 1",
                &["SET # = '-7' WHERE id = 2", "SET # = 1 WHERE id = 7"],
                &["SET # = 'NaN' WHERE id = 1", "SET # = NULL WHERE id = 6", "SET # = 1 WHERE id = 4"],
            ),
            (
                "# = 0",
                &["SET # = 7 WHERE id = 4", "SET # = NULL WHERE id = 6"],
                &["SET # = 1 WHERE id = 2", "SET # = 1 WHERE id = 3", "SET # = '-0' WHERE id = 4"],
            ),
            (
                "# > 0",
                &["SET # = '-7' WHERE id = 1", "SET # = '-7' WHERE id = 7"],
                &["SET # = 0 WHERE id = 4", "SET # = 4 WHERE id = 3", "SET # = 4 WHERE id = 2"],
            ),
            (
                "# = 'NaN'",
                &["SET # = 7 WHERE id = 4", "SET # = 'Infinity' WHERE id = 4"],
                &["SET # = 'NaN' WHERE id = 7", "SET # = 1 WHERE id = 6"],
            ),
            (
                "# <> 1.5",
                &["SET # = NULL WHERE id = 4", "SET # = 1.5 WHERE id = 7"],
                &["SET # = 1.5 WHERE id = 1", "SET # = 1 WHERE id = 4", "SET # = 1 WHERE id = 7"],
            ),
            (
                "# NOT IN (1.5, 0)",
                &["SET # = NULL WHERE id = 7"],
                &["SET # = 1.5 WHERE id = 1", "SET # = 1 WHERE id = 4", "SET # = 0 WHERE id = 6"],
            ),
        ] {
            let query = format!("SELECT count(*) FROM f WHERE {condition}").replace('#', column);
            for (changes, expected) in [(passing, true), (failing, false)] {
                for change in changes {
                    let change = format!("UPDATE f {change}").replace('#', column);
                    assert_eq!(holds(&database(), &query, &[], &change), expected, "{query}; {change}");
                }
            }
        }
    }
}

/// A transaction that continues after an error has learnt from it about rows that the query did not ask for.
#[test]
fn what_has_failed_has_read_all_that_it_looked_through() {
    for indexed in [true, false] {
        let database = database(indexed);
        let run = |connection: &mut Connection, sql: &str| connection.execute(sql).map(drop);
        run(&mut database.connect(), "UPDATE t SET b = 0 WHERE a = 1").unwrap();
        let mut reader = database.connect();
        run(&mut reader, "BEGIN; SAVEPOINT s").unwrap();
        let failed = run(&mut reader, "SELECT id FROM t WHERE a >= 1 AND 10 / b > 1 AND a < 3").unwrap_err();
        assert_eq!(failed.state(), SqlState::new("22012"));
        run(&mut reader, "ROLLBACK TO s").unwrap();
        run(&mut database.connect(), "UPDATE t SET b = 1 WHERE a = 1").unwrap();
        run(&mut reader, "INSERT INTO log VALUES (1)").unwrap();
        assert_eq!(run(&mut reader, "COMMIT").unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
    }
}

#[test]
fn the_greatest_value_is_the_same_with_an_index() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection
        .execute("CREATE TABLE i (v interval); INSERT INTO i VALUES ('1 month'), ('31 days'), ('1 day')")
        .unwrap();
    let mut greatest = || connection.query_row("SELECT max(v)::text, min(v)::text FROM i", &[]).unwrap();
    let before = greatest();
    database.connect().execute("CREATE INDEX i_v ON i (v)").unwrap();
    assert_eq!(greatest(), before);
}
