//! What a session promises of statements that are too deep or too large: an error that says so, whatever makes them deep. And
//! of those that are not: they can be cancelled while they are planned.
//!
//! A stack that overflows ends the process, and with it these tests, which run on threads with small stacks.

use crate::server::ServerConnection as _;
use crate::{Connection, Database};
use firn_base::SqlState;
use firn_base::sync::Arc;
use firn_base::thread;

const TOO_DEEP: &str = "54001";
const CANCELLED: SqlState = SqlState::QUERY_CANCELED;

/// A stack that a program might give a thread of its own.
const SMALL_STACK: usize = 512 << 10;

/// Statements of each kind with `n` levels.
fn kinds(n: usize) -> Vec<(&'static str, String)> {
    let of = |before: &str, inner: &str, after: &str| {
        format!("SELECT {}{inner}{}", before.repeat(n), after.repeat(n))
    };
    let joins = |join: &str| {
        let mut text = "SELECT count(*) FROM t t0".to_owned();
        for i in 1..=n {
            text += &format!(" {join} t t{i} ON t{i}.x = t{}.x", i - 1);
        }
        text
    };
    let list = |separator: &str| {
        vec!["t"; n].iter().enumerate().map(|(i, t)| format!("{t} q{i}")).collect::<Vec<_>>().join(separator)
    };
    let mut with = "WITH c0 AS (SELECT 1 AS x)".to_owned();
    for i in 1..=n {
        with += &format!(", c{i} AS (SELECT x FROM c{})", i - 1);
    }
    let derived: String = (0..n).map(|i| format!(") d{i}")).collect();
    vec![
        ("+", of("", "1", " + 1")),
        ("- and *", of("", "1", " - x * x").replace("SELECT 1", "SELECT x") + " FROM t"),
        ("||", of("", "'a'", " || 'b'")),
        ("OR", of("", "false", " OR x = 1") + " FROM t"),
        ("AND", of("", "true", " AND x = 1") + " FROM t"),
        ("=", of("", "true", " = true")),
        ("::", of("", "1", "::int")),
        ("::text", of("", "'a'", "::text::varchar")),
        ("type of arrays", of("", "NULL::int", "[]")),
        ("IS NULL", of("", "1", " IS NULL")),
        ("IS DISTINCT FROM", of("", "1", " IS DISTINCT FROM NULL")),
        ("BETWEEN", of("", "true", " BETWEEN false AND true")),
        ("BETWEEN SYMMETRIC", of("", "1", " BETWEEN SYMMETRIC 1 AND 2")),
        ("LIKE", of("", "'a'", " LIKE 'a'")),
        ("IN", of("", "true", " IN (true)")),
        ("AT TIME ZONE", of("", "timestamp '2030-01-01'", " AT TIME ZONE 'UTC'")),
        ("COLLATE", of("", "'a'", " COLLATE \"C\"")),
        ("subscripts", of("", "(ARRAY[1])", "[1]")),
        ("NOT", of("NOT ", "true", "")),
        ("minus", of("- ", "1", "")),
        ("INTERVAL", of("INTERVAL ", "'1'", "")),
        ("parentheses", of("(", "1", ")")),
        ("CAST", of("CAST(", "1", " AS int)")),
        ("calls", of("abs(", "1", ")")),
        ("coalesce", of("coalesce(", "1", ", 2)")),
        ("CASE", of("CASE WHEN true THEN ", "1", " ELSE 0 END")),
        ("arrays", of("ARRAY[", "1", "]")),
        ("rows", of("ROW(", "1", ")")),
        ("sub-queries", of("(SELECT ", "1", ")")),
        ("EXISTS", of("EXISTS (SELECT 1 WHERE ", "true", ")")),
        ("IN of sub-queries", of("1 IN (SELECT ", "1", ")")),
        ("derived tables", format!("SELECT * FROM {}(VALUES (1)) t{derived}", "(SELECT * FROM ".repeat(n))),
        ("names of keywords", of("", "1", " + from + select")),
        ("UNION ALL", of("", "1", " UNION ALL SELECT 1")),
        ("UNION", of("", "1", " UNION SELECT 1")),
        ("EXCEPT", of("", "1", " EXCEPT SELECT 2")),
        ("INTERSECT", of("", "1", " INTERSECT SELECT 1")),
        ("JOIN", joins("JOIN")),
        ("LEFT JOIN", joins("LEFT JOIN")),
        ("FULL JOIN", joins("FULL JOIN")),
        ("comma", format!("SELECT count(*) FROM {}", list(", "))),
        ("CROSS JOIN", format!("SELECT count(*) FROM {}", list(" CROSS JOIN "))),
        (
            "parentheses of joins",
            format!("SELECT count(*) FROM {}t{}", "(".repeat(n), " JOIN t USING (x))".repeat(n)),
        ),
        ("WITH", format!("{with} SELECT x FROM c{n}")),
        ("UPDATE FROM", format!("UPDATE t SET x = 1 FROM {}", list(", "))),
        ("UPDATE with WITH", format!("{with} UPDATE t SET x = 1 FROM c{n}")),
        ("DELETE USING", format!("DELETE FROM t USING {}", list(", "))),
        ("EXPLAIN", "EXPLAIN ".repeat(n) + "SELECT 1"),
        ("PREPARE", "PREPARE p AS ".repeat(n) + "SELECT 1"),
    ]
}

/// The same statement in the others that contain one, and the text of an expression in definitions.
fn around(statement: &str) -> Vec<String> {
    let mut around = vec![
        statement.to_owned(),
        format!("EXPLAIN {statement}"),
        format!("PREPARE p AS {statement}"),
        format!("DECLARE c CURSOR WITH HOLD FOR {statement}"),
        format!("CREATE VIEW v AS {statement}"),
        format!("CREATE TABLE made AS {statement}"),
        format!("INSERT INTO t {statement}"),
        format!("COPY ({statement}) TO STDOUT"),
        format!("SELECT EXISTS ({statement})"),
    ];
    if let Some(expression) = statement.strip_prefix("SELECT ").filter(|text| !text.contains("FROM")) {
        around.extend([
            format!("CREATE TABLE made (x int DEFAULT {expression})"),
            format!("CREATE TABLE made (x int CHECK (({expression}) IS NULL))"),
            format!("ALTER TABLE t ADD COLUMN y text DEFAULT {expression}"),
            format!("ALTER TABLE t ADD CHECK (({expression}) IS NULL)"),
            format!("EXECUTE p ({expression})"),
            format!("UPDATE t SET x = {expression}"),
            format!("DELETE FROM t WHERE ({expression}) IS NULL"),
            format!("INSERT INTO t VALUES ({expression}) RETURNING {expression}"),
            format!("COPY t FROM STDIN WHERE ({expression}) IS NULL"),
        ]);
    }
    around
}

fn database() -> Database {
    let database = Database::memory().unwrap();
    database.connect().execute("CREATE TABLE t (x int); INSERT INTO t VALUES (1)").unwrap();
    database
}

/// Runs work on a thread with a small stack.
fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    thread::try_spawn("small", SMALL_STACK, work).unwrap().join().unwrap();
}

/// The SQLSTATE of what running a statement fails with.
fn state(connection: &mut Connection, sql: &str) -> Option<SqlState> {
    connection.execute(sql).err().map(|error| error.state())
}

/// Kinds that nest, so that a tree is as deep as they are long. The others are lists.
const NESTED: [&str; 12] = [
    "parentheses",
    "CAST",
    "calls",
    "coalesce",
    "CASE",
    "arrays",
    "rows",
    "sub-queries",
    "EXISTS",
    "IN of sub-queries",
    "derived tables",
    "parentheses of joins",
];

/// 54001 comes before any planning, so none of these takes long.
#[test]
fn statements_that_are_too_deep_are_refused_whatever_makes_them_deep() {
    on_small_stack(|| {
        let database = database();
        let mut connection = database.connect();
        for n in [3_000, 20_000] {
            for (what, statement) in kinds(n).into_iter().filter(|(what, _)| NESTED.contains(what)) {
                for statement in around(&statement) {
                    let state = state(&mut connection, &statement);
                    let state = state.map(|state| state.as_str().to_owned());
                    let is_refused = matches!(state.as_deref(), Some(TOO_DEEP | "42601" | "0A000"));
                    let start: String = statement.chars().take(60).collect();
                    assert!(is_refused, "{n} × {what} in {start} …: {state:?}");
                }
                let refused = connection.execute(&statement).unwrap_err();
                assert_eq!(refused.state().as_str(), TOO_DEEP, "{n} × {what}");
                assert!(refused.hint().is_some(), "{n} × {what}");
            }
        }
        assert_eq!(connection.execute("SELECT 7").unwrap(), 1);
    });
}

/// Those that are nearly too deep and chains of any length are planned as far as they get within the timeout.
#[test]
fn statements_that_are_nearly_too_deep_find_room_on_small_stacks() {
    on_small_stack(|| {
        let database = database();
        let mut connection = database.connect();
        connection.execute("SET statement_timeout = '300ms'").unwrap();
        for n in [30, 145, 290, 640] {
            for (what, statement) in kinds(n) {
                let state = state(&mut connection, &statement);
                // The timeout comes between the steps of the planner.
                let state = state.map(|state| state.as_str().to_owned());
                assert_ne!(state.as_deref(), Some("XX000"), "{n} × {what}");
            }
        }
    });
}

#[test]
fn statements_of_usual_width_are_not_refused() {
    let database = database();
    let mut connection = database.connect();
    connection.execute("SET statement_timeout = '0'").unwrap();
    let many = |n: usize, of: &dyn Fn(usize) -> String, separator: &str| {
        (0..n).map(of).collect::<Vec<_>>().join(separator)
    };
    for statement in [
        format!("INSERT INTO t VALUES {}", many(3_000, &|i| format!("(-{i} + 1)"), ", ")),
        format!("SELECT count(*) FROM t WHERE x IN ({})", many(10_000, &|i| i.to_string(), ", ")),
        format!("SELECT {}", many(1_600, &|i| format!("{i} AS c{i}"), ", ")),
        format!("SELECT {} FROM t", many(300, &|i| format!("x IS DISTINCT FROM {i}"), ", ")),
        format!("SELECT CASE x {} END FROM t", many(500, &|i| format!("WHEN {i} THEN {i}"), " ")),
        format!("SELECT {}1{}", "(".repeat(60), ")".repeat(60)),
        format!("SELECT {}1{}", "CAST(".repeat(40), " AS int)".repeat(40)),
        format!("SELECT {}", many(200, &|_| "1".into(), " + ")),
        format!("SELECT count(*) FROM t WHERE {}", many(100, &|i| format!("x = {i} AND x <> -{i}"), " OR ")),
        format!("SELECT 1 {}", "UNION ALL SELECT 1 ".repeat(5_000)),
        format!("SELECT x{} FROM t WHERE x{} > 0", " + x - x".repeat(500), " - x + x".repeat(400)),
        format!("SELECT sum(x{}) FROM t GROUP BY x", " * 1 + x - x".repeat(300)),
        format!("SELECT {}'a'{}", "upper(nullif(".repeat(40), ", 'b'))".repeat(40)),
        format!(
            "SELECT count(*) FROM t t0 {}",
            many(20, &|i| format!("JOIN t t{} ON t0.x = t{0}.x", i + 1), " ")
        ),
    ] {
        let start: String = statement.chars().take(60).collect();
        assert!(
            connection.execute(&statement).is_ok(),
            "{start}: {:?}",
            connection.execute(&statement).err()
        );
    }
}

/// The parser tries alternatives one within the other.
#[test]
fn mistakes_within_nested_calls_are_found_in_a_bounded_number_of_steps() {
    let database = database();
    let mut connection = database.connect();
    for n in [24, 90] {
        for (statement, expected) in [
            (format!("SELECT {}1", "CAST(".repeat(n)), "42601"),
            (format!("SELECT {}1", "coalesce(".repeat(n)), "42601"),
            (format!("SELECT {}1", "abs(".repeat(n)), "42601"),
            (format!("SELECT {}1", "CASE WHEN ".repeat(n)), "42601"),
            (format!("SELECT {}1", "(".repeat(n)), "42601"),
            (format!("SELECT {}1", "(SELECT ".repeat(n)), "42601"),
            (format!("SELECT {}1 1{}", "CAST(".repeat(n), " AS int)".repeat(n)), "42601"),
            (format!("SELECT {}'a' 'b' c d{}", "lower(".repeat(n), ")".repeat(n)), "42601"),
            (format!("SELECT {}1{}", "ceil(".repeat(n), ")".repeat(n + 1)), "42601"),
            (
                format!("SELECT 1 WHERE 1 IN {}(1{}", "(SELECT 1 WHERE 1 IN ".repeat(n), ")".repeat(n)),
                "42601",
            ),
        ] {
            let state = state(&mut connection, &statement).map(|state| state.as_str().to_owned());
            let found = state.as_deref();
            assert!(found == Some(expected) || found == Some(TOO_DEEP), "{statement}: {state:?}");
        }
        let nots = format!("SELECT {}true", "NOT ".repeat(150));
        assert_eq!(state(&mut connection, &nots), None);
    }
}

#[test]
fn views_upon_views_end_at_the_limit() {
    on_small_stack(|| {
        let database = database();
        let mut connection = database.connect();
        connection.execute("CREATE VIEW v0 AS SELECT x FROM t").unwrap();
        let mut made = 0;
        for i in 1.. {
            match state(&mut connection, &format!("CREATE VIEW v{i} AS SELECT x FROM v{made}")) {
                None => made = i,
                Some(state) => {
                    assert_eq!(state.as_str(), TOO_DEEP);
                    break;
                }
            }
        }
        assert!(made >= 60, "{made} levels");
        // A statement over the last one is as deep as the view that was refused.
        assert_eq!(connection.execute(&format!("SELECT x FROM v{}", made - 1)).unwrap(), 1);
        // What was planned in one session is dropped in another.
        database.connect().execute("CREATE TABLE other (x int)").unwrap();
    });
}

#[test]
fn views_that_name_views_twice_are_refused_before_their_plans_grow_too_large() {
    let database = database();
    let mut connection = database.connect();
    connection.execute("CREATE VIEW v0 AS SELECT x FROM t").unwrap();
    let refused = (1..40).find_map(|i| {
        let view = format!("CREATE VIEW v{i} AS SELECT a.x FROM v{0} a, v{0} b", i - 1);
        connection.execute("SET statement_timeout = '2s'").unwrap();
        state(&mut connection, &view)
    });
    let refused = refused.expect("a plan of 2^40 nodes");
    assert!(refused.as_str() == TOO_DEEP || refused == CANCELLED, "{refused:?}");
    // A query of WITH is planned and executed once, however often it is named.
    let mut with = "WITH c0 AS (SELECT 1 AS x)".to_owned();
    for i in 1..40 {
        with += &format!(", c{i} AS (SELECT a.x FROM c{0} a, c{0} b)", i - 1);
    }
    connection.execute("RESET statement_timeout").unwrap();
    assert_eq!(connection.execute(&format!("{with} SELECT count(*) FROM c39")).unwrap(), 1);
}

/// Statements whose planning takes far longer than a timeout of 5 ms.
fn slow_to_plan() -> [String; 2] {
    let or: Vec<String> = (0..40_000).map(|i| format!("x = {i}")).collect();
    let columns: Vec<String> = (0..1_600).map(|i| format!("x + {i} AS c{i}")).collect();
    [
        format!("SELECT count(*) FROM t WHERE {}", or.join(" OR ")),
        format!("SELECT {} FROM t", columns.join(", ")),
    ]
}

#[test]
fn planning_ends_by_the_statement_timeout() {
    let database = database();
    let mut connection = database.connect();
    connection.execute("SET statement_timeout = '5ms'").unwrap();
    for statement in slow_to_plan() {
        let error = connection.execute(&statement).unwrap_err();
        assert_eq!(error.state(), CANCELLED, "{error:?}");
        assert_eq!(error.message(), "canceling statement due to statement timeout");
    }
    connection.execute("RESET statement_timeout; SELECT 1").unwrap();
}

/// A statement is cancelled at each of its first looks at the flag, in planning and behind it, and can be run again.
#[test]
fn planning_can_be_cancelled_wherever_it_looks() {
    use firn_base::sync::{AtomicI64, Ordering};
    let database = database();
    let mut connection = database.connect();
    let left = Arc::new(AtomicI64::new(i64::MAX));
    let watched = left.clone();
    connection.set_interrupt_hook(move || watched.fetch_sub(1, Ordering::Relaxed) <= 0);
    let mut looks = 0;
    for i in 0.. {
        left.store(looks, Ordering::Relaxed);
        let statement = format!(
            "SELECT a.x + {i}, count(*) FROM t a JOIN t b USING (x) WHERE a.x > 0 GROUP BY 1 ORDER BY 1"
        );
        let done = connection.execute(&statement);
        left.store(i64::MAX, Ordering::Relaxed);
        match done {
            Ok(rows) => {
                assert_eq!(rows, 1);
                break;
            }
            Err(error) => assert_eq!(error.state(), CANCELLED, "{error:?}"),
        }
        assert_eq!(connection.execute(&statement).unwrap(), 1);
        looks = looks + looks / 4 + 1;
    }
    assert!(looks > 3, "planning looks {looks} times");
}

/// `max_stack_depth` lowers the limit and never raises it.
#[test]
fn a_smaller_stack_depth_allows_fewer_levels() {
    let mut connection = Database::memory().unwrap().connect();
    let mut state = |depth: &str, levels: usize| {
        connection.execute(&format!("SET max_stack_depth = '{depth}'")).unwrap();
        let sql = format!("SELECT {}1{}", "abs(".repeat(levels), ")".repeat(levels));
        connection.query(&sql).err().map(|error| error.state().to_string())
    };
    let too_deep = Some(TOO_DEEP.to_owned());
    assert_eq!(state("200kB", 20), None);
    assert_eq!(state("200kB", 60), too_deep);
    assert_eq!(state("2MB", 60), None);
    assert_eq!(state("2MB", 400), too_deep);
    assert_eq!(state("6MB", 400), too_deep);
}
