//! Statements about the session itself: their arguments, options, tags and errors are PostgreSQL's.

use crate::server::ServerConnection as _;
use crate::{Connection, Database, Outcome};
use firn_base::{Error, Numeric, Type, TypeId, Value};

fn connection() -> Connection {
    let mut connection = Database::memory().unwrap().connect();
    connection.execute("CREATE TABLE t (a integer PRIMARY KEY, n numeric(6,2), s varchar(3))").unwrap();
    connection.execute("INSERT INTO t VALUES (1, 1.5, 'one'), (2, 2.5, 'two')").unwrap();
    connection
}

fn rows(connection: &mut Connection, sql: &str) -> Vec<Vec<Value>> {
    let statement = connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    connection.query_values(&statement, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn lines(connection: &mut Connection, sql: &str) -> Vec<String> {
    let line = |mut row: Vec<Value>| match row.remove(0) {
        Value::Text(text) => text,
        other => panic!("{other:?}"),
    };
    rows(connection, sql).into_iter().map(line).collect()
}

fn error(connection: &mut Connection, sql: &str) -> Error {
    connection.execute(sql).expect_err(sql)
}

fn tag(connection: &mut Connection, sql: &str) -> String {
    let statement = connection.prepare(sql).unwrap();
    match connection.run(&statement, &[]).unwrap() {
        Outcome::Done(tag) => tag.to_string(),
        _ => panic!("{sql} yields more than a tag"),
    }
}

#[test]
fn arguments_of_execute_are_assigned_to_the_types_of_the_parameters() {
    let mut connection = connection();
    let text = |text: &str| Value::Text(text.to_owned());
    connection.execute("PREPARE p (integer, varchar, numeric, int[]) AS SELECT $1, $2, $3, $4[2]").unwrap();
    let found = rows(&mut connection, "EXECUTE p (1 + 1, 'a' || 'b', 2.50, '{1,2}')");
    let numeric = Value::Number(Numeric::parse("2.50").unwrap());
    assert_eq!(found, [[Value::Integer(2), text("ab"), numeric, Value::Integer(2)]]);
    // A bigint is assigned to an integer, which no expression would cast it to.
    let found = rows(&mut connection, "EXECUTE p (3::bigint, 7, 1, ARRAY[NULL, 9])");
    assert_eq!(
        (&found[0][0], &found[0][1], &found[0][3]),
        (&Value::Integer(3), &text("7"), &Value::Integer(9))
    );
    for (sql, state, message) in [
        ("EXECUTE p (1)", "42601", "wrong number of parameters for prepared statement \"p\""),
        ("EXECUTE q", "26000", "prepared statement \"q\" does not exist"),
        (
            "EXECUTE p (true, 'a', 1, '{}')",
            "42804",
            "parameter $1 of type boolean cannot be coerced to the expected type integer",
        ),
        ("EXECUTE p ((SELECT 1), 'a', 1, '{}')", "0A000", "cannot use subquery in EXECUTE parameter"),
        (
            "EXECUTE p (count(*), 'a', 1, '{}')",
            "42803",
            "aggregate functions are not allowed in EXECUTE parameters",
        ),
        ("EXECUTE p (a, 'a', 1, '{}')", "42703", "column \"a\" does not exist"),
        ("EXECUTE p (3000000000, 'a', 1, '{}')", "22003", "integer out of range"),
        ("PREPARE r (nothing) AS SELECT $1", "42704", "type \"nothing\" does not exist"),
        ("PREPARE p AS SELECT 1", "42P05", "prepared statement \"p\" already exists"),
    ] {
        let error = error(&mut connection, sql);
        assert_eq!((error.state().as_str(), error.message()), (state, message), "{sql}");
    }
    let error = error(&mut connection, "SELECT 1; EXECUTE p (true, 'a', 1, '{}')");
    assert_eq!(error.position(), Some(22));
    assert!(error.hint().is_some());
    assert_eq!(tag(&mut connection, "DEALLOCATE p"), "DEALLOCATE");
    assert_eq!(tag(&mut connection, "DEALLOCATE ALL"), "DEALLOCATE ALL");
}

#[test]
fn prepared_changes_are_executed_with_their_tags() {
    let mut connection = connection();
    connection.execute("PREPARE i AS INSERT INTO t VALUES ($1, $2, $3)").unwrap();
    assert_eq!(tag(&mut connection, "EXECUTE i (3, 1, 'x')"), "INSERT 0 1");
    connection.execute("PREPARE d AS DELETE FROM t WHERE a > $1 RETURNING a").unwrap();
    assert_eq!(rows(&mut connection, "EXECUTE d (2)"), [[Value::Integer(3)]]);
    assert_eq!(error(&mut connection, "EXECUTE i (4, 1, 'long')").state().as_str(), "22001");
}

#[test]
fn positions_of_errors_are_those_of_the_script() {
    let mut connection = connection();
    let error = error(&mut connection, "SELECT 'é';\n SELECT nowhere FROM t");
    assert_eq!((error.state().as_str(), error.position()), ("42703", Some(21)));
    let statements = connection.parse_script("SELECT 1; SELECT b FROM t").unwrap();
    let texts: Vec<&str> = statements.iter().map(crate::server::Parsed::text).collect();
    assert_eq!(texts, ["SELECT 1", "SELECT b FROM t"]);
    let mut statements = statements.into_iter();
    connection.prepare_parsed(statements.next().unwrap(), &[]).unwrap();
    let error = connection.prepare_parsed(statements.next().unwrap(), &[]).map(drop).unwrap_err();
    assert_eq!(error.position(), Some(18));
}

#[test]
fn explain_prints_a_plan_and_analyze_runs_the_statement() {
    let mut connection = connection();
    let plan = lines(&mut connection, "EXPLAIN SELECT a FROM t WHERE a = 1");
    assert!(plan.iter().any(|line| line.contains("Scan")), "{plan:?}");
    for sql in [
        "EXPLAIN (ANALYZE, TIMING OFF) SELECT a FROM t",
        "EXPLAIN ANALYZE VERBOSE SELECT a FROM t FOR UPDATE",
        "EXPLAIN (ANALYZE) UPDATE t SET s = 'x'",
        "EXPLAIN ANALYZE DELETE FROM t RETURNING *",
    ] {
        let plan = lines(&mut connection, sql);
        assert!(plan.contains(&"Rows: 2".to_owned()), "{sql}: {plan:?}");
        assert!(plan.iter().any(|line| line.starts_with("Execution Time: ")), "{sql}: {plan:?}");
    }
    assert!(rows(&mut connection, "SELECT * FROM t").is_empty(), "it has been executed");
    // What each operator returns; nothing is measured of a statement that is not explained.
    connection.execute("INSERT INTO t (a, s) VALUES (1, 'a'), (2, 'b'), (3, 'c')").unwrap();
    let sql = "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF, COSTS OFF)
               SELECT s FROM t WHERE a > 1 UNION ALL SELECT 'x' LIMIT 1";
    let plan = lines(&mut connection, sql);
    let ends_of = |operator: &str, end: &str| {
        plan.iter().any(|line| line.trim_start().starts_with(operator) && line.ends_with(end))
    };
    assert!(ends_of("Limit", "(actual rows=1)") && ends_of("Scan", "(actual rows=2)"), "{plan:?}");
    assert!(ends_of("Values", "(never executed)"), "{plan:?}");
    // Operators that keep rows say how much memory they have taken.
    let sql = "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF)
               SELECT x.s, count(*) FROM t AS x, t AS y WHERE x.s <= y.s GROUP BY x.s ORDER BY 2 DESC";
    let plan = lines(&mut connection, sql);
    for operator in ["Sort", "Group", "Join"] {
        let keeps = |line: &String| line.trim_start().starts_with(operator) && line.contains(" memory=");
        assert!(plan.iter().any(keeps), "{operator}: {plan:?}");
    }
    assert!(!plan.iter().any(|line| line.contains("spilled=")), "{plan:?}");
    let plan = lines(&mut connection, "EXPLAIN ANALYZE UPDATE t SET s = 'y' WHERE s < 'c'");
    let is_measured = |line: &&String| {
        line.contains("(rows=") && line.contains("(actual rows=2 time=") && line.ends_with(')')
    };
    assert!(plan.iter().filter(is_measured).count() > 0, "{plan:?}");
    for (sql, index) in [
        ("EXPLAIN SELECT s FROM t WHERE a = 1", true),
        ("EXPLAIN SELECT s FROM t ORDER BY a DESC LIMIT 1", true),
        ("EXPLAIN SELECT max(a) FROM t", true),
        ("EXPLAIN SELECT count(*) FROM t GROUP BY s HAVING max(a) = 1", false),
        ("EXPLAIN SELECT s, count(*) FROM t WHERE a IN (1, 2) GROUP BY s", true),
        ("EXPLAIN (FORMAT JSON) SELECT s FROM t WHERE a > 1", true),
    ] {
        let plan = lines(&mut connection, sql);
        assert_eq!(plan.iter().any(|line| line.contains("t_pkey")), index, "{sql}: {plan:?}");
    }
    connection.execute("DELETE FROM t").unwrap();
    connection.execute("EXPLAIN CREATE TABLE u AS SELECT 1 AS x; EXPLAIN SELECT 1 AS x INTO u").unwrap();
    assert_eq!(error(&mut connection, "SELECT * FROM u").state().as_str(), "42P01");
    let plan = lines(&mut connection, "EXPLAIN (ANALYZE, SUMMARY OFF) CREATE TABLE u AS SELECT 1 AS x");
    assert_eq!(plan.last().unwrap(), "Rows: 1");
    assert_eq!(rows(&mut connection, "SELECT * FROM u"), [[Value::Integer(1)]]);
    connection.execute("PREPARE p AS SELECT $1 + 1; EXPLAIN EXECUTE p (1)").unwrap();
    connection.execute("EXPLAIN DECLARE c CURSOR FOR SELECT 1").unwrap();
    for (sql, state) in [
        ("EXPLAIN (COLOUR) SELECT 1", "42601"),
        ("EXPLAIN (FORMAT csv) SELECT 1", "22023"),
        ("EXPLAIN (TIMING) SELECT 1", "22023"),
        ("EXPLAIN CREATE MATERIALIZED VIEW m AS SELECT 1", "0A000"),
    ] {
        assert_eq!(error(&mut connection, sql).state().as_str(), state, "{sql}");
    }
}

#[test]
fn cursors_are_refused_as_postgres_refuses_them() {
    let mut connection = connection();
    for (sql, state) in [
        ("DECLARE c CURSOR FOR SELECT 1", "25P01"),
        ("BEGIN; DECLARE c SCROLL NO SCROLL CURSOR FOR SELECT 1", "42P11"),
        ("BEGIN; DECLARE c NO SCROLL CURSOR FOR SELECT a FROM t; FETCH BACKWARD 1 FROM c", "55000"),
        ("BEGIN; DECLARE c NO SCROLL CURSOR FOR VALUES (1), (2); FETCH 2 c; FETCH FIRST c", "55000"),
        ("BEGIN; DECLARE c CURSOR FOR SELECT a FROM t FOR UPDATE; FETCH c; FETCH PRIOR c", "55000"),
        ("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT a FROM t FOR UPDATE", "0A000"),
        ("BEGIN; FETCH c", "34000"),
        ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t FOR SHARE", "0A000"),
        ("BEGIN READ ONLY; DECLARE c CURSOR FOR SELECT * FROM t FOR UPDATE", "25006"),
    ] {
        assert_eq!(error(&mut connection, sql).state().as_str(), state, "{sql}");
        connection.execute("ROLLBACK").unwrap();
    }
    let hold = "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t FOR NO KEY UPDATE";
    let refused = error(&mut connection, hold);
    assert_eq!(refused.message(), "DECLARE CURSOR WITH HOLD ... FOR NO KEY UPDATE is not supported");
    connection.execute("BEGIN; DECLARE c NO SCROLL CURSOR FOR SELECT a FROM t ORDER BY a").unwrap();
    assert_eq!(tag(&mut connection, "MOVE 0 IN c"), "MOVE 0");
    assert_eq!(tag(&mut connection, "MOVE 1 IN c"), "MOVE 1");
    assert_eq!(rows(&mut connection, "FETCH FORWARD 5 FROM c"), [[Value::Integer(2)]]);
    assert!(rows(&mut connection, "FETCH ALL c").is_empty());
    assert_eq!(tag(&mut connection, "CLOSE c"), "CLOSE CURSOR");
}

#[test]
fn settings_are_set_shown_and_reset_by_their_names() {
    let mut connection = connection();
    for (set, name, value) in [
        ("SET search_path TO 'A b', public", "search_path", "\"A b\", public"),
        ("SET SCHEMA 'x'", "search_path", "x"),
        ("SET DateStyle = iso, mdy", "datestyle", "ISO, MDY"),
        ("SET TIME ZONE 'Europe/Berlin'", "timezone", "Europe/Berlin"),
        ("SET TIME ZONE LOCAL", "timezone", "UTC"),
        ("SET NAMES 'utf-8'", "client_encoding", "UTF8"),
        ("SET SESSION AUTHORIZATION DEFAULT", "role", "none"),
        ("SET Work_Mem = '8MB'", "work_mem", "8MB"),
        ("SET work_mem FROM CURRENT", "work_mem", "8MB"),
        ("RESET work_mem", "work_mem", "4MB"),
        ("SET my.Own = 5", "my.own", "5"),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "default_transaction_read_only", "on"),
        ("RESET ALL", "default_transaction_read_only", "off"),
    ] {
        assert_eq!(tag(&mut connection, set), if set.starts_with("RESET") { "RESET" } else { "SET" });
        assert_eq!(lines(&mut connection, &format!("SHOW {name}")), [value], "{set}");
    }
    assert_eq!(lines(&mut connection, "SHOW TRANSACTION ISOLATION LEVEL"), ["serializable"]);
    connection.execute("BEGIN; SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ ONLY").unwrap();
    assert_eq!(lines(&mut connection, "SHOW transaction_isolation"), ["read uncommitted"]);
    let refused = error(&mut connection, "UPDATE t SET s = NULL");
    assert_eq!(refused.message(), "cannot execute UPDATE in a read-only transaction");
    connection.execute("ROLLBACK").unwrap();
    assert_eq!(error(&mut connection, "SHOW nothing").state().as_str(), "42704");
}

#[test]
fn what_the_engine_does_by_itself_is_accepted_with_known_options() {
    let mut connection = connection();
    for (sql, expected) in [
        ("VACUUM (FULL, ANALYZE) t", "VACUUM"),
        ("ANALYZE t (a, s)", "ANALYZE"),
        ("CLUSTER t USING t_pkey", "CLUSTER"),
        ("REINDEX TABLE CONCURRENTLY t", "REINDEX"),
        ("REINDEX INDEX t_pkey", "REINDEX"),
        ("CHECKPOINT", "CHECKPOINT"),
        ("DISCARD PLANS", "DISCARD PLANS"),
        ("DISCARD SEQUENCES", "DISCARD SEQUENCES"),
        ("DISCARD TEMPORARY", "DISCARD TEMP"),
        ("DISCARD ALL", "DISCARD ALL"),
    ] {
        assert_eq!(tag(&mut connection, sql), expected);
    }
    assert_eq!(error(&mut connection, "VACUUM nothing").state().as_str(), "42P01");
    let unknown = error(&mut connection, "VACUUM (FASTER) t");
    assert_eq!((unknown.message(), unknown.position()), ("unrecognized VACUUM option \"faster\"", Some(9)));
}

#[test]
fn parameters_are_types_as_postgres_has_them() {
    let mut connection = connection();
    let statement = connection.prepare("SELECT a FROM t WHERE n = $1 AND s = ANY ($2) AND a = $3").unwrap();
    let types = [TypeId::NUMERIC, TypeId::TEXT_ARRAY, TypeId::INT4].map(Type::new);
    assert_eq!(statement.parameters(), types);
    let strings = Value::Array(vec![Value::Text("one".into()), Value::Null].into());
    for numeric in [
        Value::Numeric { unscaled: 1500, scale: 3 },
        Value::Number(Numeric::parse("1.5").unwrap()),
        Value::Double(1.5),
    ] {
        let parameters = [numeric, strings.clone(), Value::SmallInt(1)];
        assert_eq!(connection.query_values(&statement, &parameters).unwrap(), [[Value::Integer(1)]]);
    }
    // Digits and zeros behind the point are kept.
    let echo = connection.prepare("SELECT $1::numeric").unwrap();
    let long = Value::Number(Numeric::parse("12345678901234567890.12345678901000").unwrap());
    let found = connection.query_values(&echo, std::slice::from_ref(&long)).unwrap().remove(0).remove(0);
    let (Value::Number(found), Value::Number(long)) = (found, long) else { panic!("a number is a number") };
    assert!(found.is_identical(long));
}

/// As in PostgreSQL 15.
#[test]
fn functions_and_utilities_say_what_they_have_not_found() {
    let mut connection = connection();
    connection.execute("CREATE TABLE bare (a integer)").unwrap();
    for (sql, code, message) in [
        ("SELECT pg_advisory_unlock(1)", "01000", "you don't own a lock of type ExclusiveLock"),
        ("SELECT pg_advisory_unlock_shared(1, 2)", "01000", "you don't own a lock of type ShareLock"),
        ("SELECT pg_cancel_backend(-5)", "01000", "PID -5 is not a PostgreSQL backend process"),
        ("SELECT pg_terminate_backend(-5)", "01000", "PID -5 is not a PostgreSQL backend process"),
        ("SELECT pg_rotate_logfile()", "01000", "rotation not possible because log collection not active"),
        ("ALTER TABLE t ALTER s SET STATISTICS 20000", "22023", "lowering statistics target to 10000"),
        (
            "DROP FUNCTION IF EXISTS nope(int)",
            "00000",
            "function nope(pg_catalog.int4) does not exist, skipping",
        ),
        ("DROP TYPE IF EXISTS nope.x", "00000", "schema \"nope\" does not exist, skipping"),
        (
            "DROP CAST IF EXISTS (int AS bytea)",
            "00000",
            "cast from type pg_catalog.int4 to type bytea does not exist, skipping",
        ),
        ("REINDEX TABLE bare", "00000", "table \"bare\" has no indexes to reindex"),
        ("SET LOCAL work_mem = '1MB'", "25P01", "SET LOCAL can only be used in transaction blocks"),
    ] {
        connection.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let notices = connection.take_notices();
        let [notice] = &notices[..] else { panic!("{sql}: {} notices", notices.len()) };
        assert_eq!((notice.state().as_str(), notice.message()), (code, message), "{sql}");
        let is_warning = code != "00000";
        assert_eq!(notice.state().is_warning(), is_warning, "{sql}");
    }
    connection
        .execute("ALTER TABLE t OWNER TO current_user; ALTER INDEX t_pkey SET TABLESPACE pg_default")
        .unwrap();
    assert!(connection.take_notices().is_empty());
}

#[test]
fn the_bound_of_the_retained_log_is_shown_and_cannot_be_set() {
    let mut usual = Database::memory().unwrap().connect();
    assert_eq!(usual.setting("max_slot_wal_keep_size").unwrap(), "8GB");
    let error = usual.execute("SET max_slot_wal_keep_size = '1GB'").unwrap_err();
    assert_eq!(error.state().as_str(), "55P02");
    let mut config = crate::Config::default();
    config.log.most_pinned_bytes = None;
    let unlimited = Database::open_with(config).unwrap().connect();
    assert_eq!(unlimited.setting("max_slot_wal_keep_size").unwrap(), "-1");
}
