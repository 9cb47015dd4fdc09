//! What a session promises of statements that are too deep or too large: an error that says so, whatever makes them deep.
//! Statements within the limits can be cancelled while they are planned.
//!
//! A stack that overflows ends the process, and with it these tests, which run on threads with small stacks.

use crate::server::ServerConnection as _;
use crate::{Connection, Database};
use firn_base::sync::Arc;
use firn_base::thread;
use firn_base::{SqlState, Value};

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

/// The statement inside each kind of statement that contains another, and the text of an expression in definitions.
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

/// Asserts that a query has this value, or 54001 where that is said to be fine.
fn assert_value(connection: &mut Connection, what: &str, sql: &str, expected: &Value, may_be_refused: bool) {
    match connection.query_row(sql, &[]) {
        Ok(row) => assert_eq!(row.as_deref(), Some(std::slice::from_ref(expected)), "{what}"),
        Err(error) if may_be_refused => assert_eq!(error.state().as_str(), TOO_DEEP, "{what}: {error}"),
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Kinds that nest, so that the depth of the tree grows with their length. The others are lists.
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

/// 54001 is raised before any planning, so none of these takes long.
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

/// PostgreSQL answers all of these.
#[test]
fn long_chains_have_the_right_answer_or_are_refused() {
    on_small_stack(|| {
        let database = database();
        let mut connection = database.connect();
        for n in [1_000, 8_000] {
            let of = |before: &str, inner: &str, after: &str| {
                format!("SELECT {}{inner}{}", before.repeat(n), after.repeat(n))
            };
            let number = |number: usize| Value::Integer(number as i32);
            let count = |number: usize| Value::BigInt(number as i64);
            let counted = |more: &str| format!("SELECT count(*) FROM (SELECT 1{}) q", more.repeat(n));
            for (what, statement, expected) in [
                ("::int", of("", "1", "::int"), number(1)),
                ("::int::text", of("", "'5'", "::int::text"), Value::Text("5".into())),
                ("::numeric", format!("SELECT count(1{})", "::numeric".repeat(n)), count(1)),
                ("+", of("", "1", " + 1"), number(n + 1)),
                ("||", format!("SELECT length('a'{})", " || 'b'".repeat(n)), number(n + 1)),
                ("AND", of("", "true", " AND true"), Value::Boolean(true)),
                ("OR", of("", "false", " OR false"), Value::Boolean(false)),
                ("IS NULL", of("", "1", " IS NULL"), Value::Boolean(false)),
                (
                    "AT TIME ZONE",
                    format!("SELECT count(timestamp '2030-01-01'{})", " AT TIME ZONE 'UTC'".repeat(n)),
                    count(1),
                ),
                ("COLLATE", of("", "'a'", " COLLATE \"C\""), Value::Text("a".into())),
                ("UNION ALL", counted(" UNION ALL SELECT 1"), count(n + 1)),
                ("UNION", counted(" UNION SELECT 1"), count(1)),
                ("EXCEPT", counted(" EXCEPT SELECT 2"), count(1)),
                ("parentheses", of("(", "1", ")"), number(1)),
                ("NOT", of("NOT ", "true", ""), Value::Boolean(true)),
                ("minus", of("- ", "1", ""), number(1)),
                ("abs", of("abs(", "1", ")"), number(1)),
                ("CAST", of("CAST(", "1", " AS int)"), number(1)),
            ] {
                assert_value(&mut connection, &format!("{n} × {what}"), &statement, &expected, true);
            }
        }
    });
}

/// Each level may cost as much as the one before, not twice as much: then 40 of them would take years.
#[test]
fn nested_calls_and_sub_queries_are_planned_level_by_level() {
    let database = database();
    let mut connection = database.connect();
    connection.execute("SET statement_timeout = '60s'").unwrap();
    let n = 40;
    let of = |before: &str, inner: &str, after: &str| {
        format!("SELECT {}{inner}{}", before.repeat(n), after.repeat(n))
    };
    let text = |text: &str| Value::Text(text.into());
    let derived: String = (0..n).map(|i| format!(") q{i}")).collect();
    let with: String = (1..100).map(|i| format!(", c{i} AS (SELECT x FROM c{})", i - 1)).collect();
    let twice: String =
        (1..12).map(|i| format!(", c{i} AS (SELECT a.x FROM c{0} a, c{0} b)", i - 1)).collect();
    for (what, statement, expected) in [
        ("replace", of("replace(", "'a'", ", 'a', 'a')"), text("a")),
        ("coalesce", of("coalesce(", "1", ", 0)"), Value::Integer(1)),
        ("greatest", of("greatest(", "1", ", 0)"), Value::Integer(1)),
        ("round", of("round(", "1.5", ", 1)") + "::text", text("1.5")),
        (
            "concat",
            format!("SELECT length({}'a'{})", "concat(".repeat(n), ", 'b')".repeat(n)),
            Value::Integer(41),
        ),
        ("left", of("left(", "'abc'", ", 2)"), text("ab")),
        (
            "date_trunc",
            of("date_trunc('day', ", "timestamp '2030-01-01 10:00'", ")") + "::text",
            text("2030-01-01 00:00:00"),
        ),
        (
            "nullif and upper",
            format!("SELECT {}'a'{}", "upper(nullif(".repeat(20), ", 'b'))".repeat(20)),
            text("A"),
        ),
        ("scalar sub-queries", of("(SELECT ", "1", ")"), Value::Integer(1)),
        (
            "scalar sub-queries with a column",
            format!("SELECT {}1{} FROM (VALUES (1)) t(v)", "(SELECT v + ".repeat(20), ")".repeat(20)),
            Value::Integer(21),
        ),
        (
            "EXISTS",
            format!(
                "SELECT count(*) FROM (VALUES (1)) t(v) WHERE {}true{}",
                "EXISTS (SELECT 1 WHERE ".repeat(n),
                ")".repeat(n)
            ),
            Value::BigInt(1),
        ),
        (
            "derived tables",
            format!("SELECT * FROM {}(VALUES (1)) t{derived}", "(SELECT * FROM ".repeat(n)),
            Value::Integer(1),
        ),
        ("CASE", of("CASE WHEN true THEN ", "1", " ELSE 0 END"), Value::Integer(1)),
        ("WITH", format!("WITH c0 AS (SELECT 1 AS x){with} SELECT * FROM c99"), Value::Integer(1)),
        (
            "WITH that is named twice",
            format!("WITH c0 AS (SELECT 1 AS x){twice} SELECT count(*) FROM c11"),
            Value::BigInt(1),
        ),
    ] {
        assert_value(&mut connection, what, &statement, &expected, false);
    }
}

/// The time may grow with the number of terms, not with its square: then these would take minutes.
#[test]
fn chains_of_a_thousand_terms_are_planned_and_right() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection
        .execute(
            "CREATE TABLE t (x int, y text, z numeric); \
             INSERT INTO t VALUES (1, 'a', 1.5), (2, 'b', 2.5), (2000, 'c', 0); SET statement_timeout = '60s'",
        )
        .unwrap();
    let n = 1_000;
    let list =
        |of: &dyn Fn(usize) -> String, separator: &str| (0..n).map(of).collect::<Vec<_>>().join(separator);
    let counted = |condition: String| format!("SELECT count(*) FROM t WHERE {condition}");
    for (what, statement, expected) in [
        ("plus", format!("SELECT x{} FROM t WHERE x = 1", " + 1".repeat(n)), Value::Integer(1_001)),
        ("OR", counted(list(&|i| format!("x = {i}"), " OR ")), Value::BigInt(2)),
        ("AND", counted(list(&|i| format!("x <> {}", i + 5), " AND ")), Value::BigInt(3)),
        ("OR of AND", counted(list(&|i| format!("(x = {i} AND y = 'a')"), " OR ")), Value::BigInt(1)),
        (
            "IN of pairs",
            counted(format!("(x, y) IN ({})", list(&|i| format!("({i}, 'b')"), ", "))),
            Value::BigInt(1),
        ),
        ("OR of LIKE", counted(list(&|i| format!("y LIKE 'b{i}%'"), " OR ")), Value::BigInt(0)),
        (
            "concatenation",
            format!("SELECT length(y{}) FROM t WHERE x = 1", " || 'xy'".repeat(n)),
            Value::Integer(2_001),
        ),
        (
            "plus and minus of columns",
            format!("SELECT x{} FROM t WHERE x = 2", " + x - x".repeat(n / 2)),
            Value::Integer(2),
        ),
        (
            "sum of columns in ORDER BY",
            format!("SELECT x FROM t ORDER BY 0{} LIMIT 1", " + x".repeat(n)),
            Value::Integer(1),
        ),
    ] {
        assert_value(&mut connection, what, &statement, &expected, false);
    }
}

/// Many parameters, sub-queries, windows and joins side by side.
#[test]
fn wide_statements_are_planned_and_right() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection
        .execute(
            "CREATE TABLE t (a int, b text, c numeric); CREATE TABLE s (k int PRIMARY KEY, v int); \
             INSERT INTO s SELECT g, g % 7 FROM generate_series(1, 100) g; SET statement_timeout = '60s'",
        )
        .unwrap();
    let list = |n: usize, of: &dyn Fn(usize) -> String, separator: &str| {
        (0..n).map(of).collect::<Vec<_>>().join(separator)
    };
    let rows = list(2_000, &|i| format!("(${}, ${}, ${})", 3 * i + 1, 3 * i + 2, 3 * i + 3), ", ");
    let values: Vec<Value> = (0..2_000)
        .flat_map(|i| [Value::Integer(i), Value::Text(format!("text {i}")), Value::Integer(i)])
        .collect();
    let insert = connection.prepare(&format!("INSERT INTO t VALUES {rows}")).unwrap();
    assert_eq!(connection.execute_statement(&insert, &values).unwrap(), 2_000);
    let rows = list(1_000, &|i| format!("(${}::int, ${}::text)", 2 * i + 1, 2 * i + 2), ", ");
    let values: Vec<Value> =
        (0..1_000).flat_map(|i| [Value::Integer(i), Value::Text("new".into())]).collect();
    let update = format!("UPDATE t SET b = v.b FROM (VALUES {rows}) v(a, b) WHERE v.a = t.a");
    let update = connection.prepare(&update).unwrap();
    assert_eq!(connection.execute_statement(&update, &values).unwrap(), 1_000);
    let count =
        format!("SELECT count(*) FROM s WHERE k IN ({})", list(5_000, &|i| format!("${}", i + 1), ", "));
    let values: Vec<Value> = (0..5_000).map(Value::Integer).collect();
    assert_eq!(connection.query_row(&count, &values).unwrap(), Some(vec![Value::BigInt(100)]));

    let looked_up = list(160, &|i| format!("(SELECT v FROM s WHERE k = {})", i + 1), ", ");
    let row = connection.query_row(format!("SELECT {looked_up}"), &[]).unwrap().unwrap();
    let expected: Vec<Value> =
        (1..=160).map(|i| if i <= 100 { Value::Integer(i % 7) } else { Value::Null }).collect();
    assert_eq!(row, expected);
    let filtered = list(100, &|i| format!("count(*) FILTER (WHERE k = {i})"), ", ");
    let row = connection.query_row(format!("SELECT {filtered} FROM s"), &[]).unwrap().unwrap();
    let expected: Vec<Value> = (0..100).map(|i| Value::BigInt(i64::from(i > 0))).collect();
    assert_eq!(row, expected);

    let exists = list(160, &|i| format!("EXISTS (SELECT 1 FROM s x WHERE x.k = s.k + {})", i + 50), " OR ");
    let windows = list(40, &|i| format!("row_number() OVER (ORDER BY (k * {}) % 101, k)", i + 3), " + ");
    let joins = list(70, &|i| format!("JOIN s s{} ON s{0}.k = s{i}.k", i + 1), " ");
    let left_joins = list(70, &|i| format!("LEFT JOIN s s{0} ON s{0}.k = s0.k + {0}", i + 1), " ");
    let branches = list(1_000, &|i| format!("WHEN {} THEN {i}", i + 100), " ");
    let union = list(500, &|i| format!("SELECT {i} AS x"), " UNION ALL ");
    for (what, statement, expected) in [
        ("EXISTS with OR", format!("SELECT count(*) FROM s WHERE {exists}"), Value::BigInt(50)),
        ("windows", format!("SELECT count(m) FROM (SELECT {windows} AS m FROM s) q"), Value::BigInt(100)),
        ("joins", format!("SELECT count(*) FROM s s0 {joins}"), Value::BigInt(100)),
        ("left joins", format!("SELECT count(*) FROM s s0 {left_joins}"), Value::BigInt(100)),
        ("CASE", format!("SELECT CASE v {branches} ELSE -1 END FROM s WHERE k = 1"), Value::Integer(-1)),
        ("UNION ALL", format!("SELECT sum(x) FROM ({union}) q"), Value::BigInt(124_750)),
    ] {
        assert_value(&mut connection, what, &statement, &expected, false);
    }
}

/// Statements that are nearly too deep, and chains of any length, are planned until they are done or the timeout ends them.
#[test]
fn statements_that_are_nearly_too_deep_find_room_on_small_stacks() {
    on_small_stack(|| {
        let database = database();
        let mut connection = database.connect();
        connection.execute("SET statement_timeout = '300ms'").unwrap();
        for n in [30, 145, 290, 640] {
            for (what, statement) in kinds(n) {
                let state = state(&mut connection, &statement);
                // The timeout takes effect between two steps of the planner.
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
fn errors_within_nested_calls_are_found_in_a_bounded_number_of_steps() {
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
            (format!("SELECT {}1{} FROM (", "CAST(".repeat(n), " AS int)".repeat(n)), "42601"),
            (format!("SELECT {}1{}", "coalesce(".repeat(n), ")".repeat(n + 1)), "42601"),
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
        for level in [made / 2, made - 1] {
            assert_eq!(connection.execute(&format!("SELECT x FROM v{level}")).unwrap(), 1);
            let join = format!("SELECT count(*) FROM v{level} a JOIN v{level} b USING (x)");
            assert_value(&mut connection, "a join of views", &join, &Value::BigInt(1), true);
        }
        // What one session has planned is dropped in another.
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

/// A statement is cancelled at each of its first checks of the flag, during planning and after it, and can be run again.
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

/// Chains are as long as one likes where a row is found by its key, too.
#[test]
fn long_chains_are_computed_for_single_rows() {
    on_small_stack(|| {
        let database = database();
        let mut connection = database.connect();
        connection.execute("CREATE TABLE k (id integer PRIMARY KEY, v bigint, s text)").unwrap();
        connection.execute("INSERT INTO k VALUES (1, 2, 'a')").unwrap();
        let n = 20_000;
        for (sql, expected) in [
            (format!("SELECT (v{})::text FROM k WHERE id = 1", " + v".repeat(n)), (2 * (n + 1)).to_string()),
            (format!("SELECT length(s{})::text FROM k WHERE id = 1", " || s".repeat(n)), (n + 1).to_string()),
            (format!("SELECT id::text FROM k WHERE id = 1 AND v{} < 0", " - v".repeat(n)), "1".to_owned()),
            (
                format!("UPDATE k SET v = v{} WHERE id = 1 RETURNING v::text", " - v * 0".repeat(n)),
                "2".to_owned(),
            ),
        ] {
            let found: Option<String> = connection.query_row_as(sql.as_str(), ()).unwrap();
            assert_eq!(found, Some(expected));
        }
    });
}
