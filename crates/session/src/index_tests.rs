//! What a session promises of indexes on expressions and of partial indexes beyond what `tests/slt` states: conditions find
//! rows by them, and they are unchanged after a crash.

use crate::file_tests::rows;
use crate::{Connection, Database};
use firn_base::SqlState;
use firn_base::disk::SimulatedDisk;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_txn::{Config, Engine};

fn run(connection: &mut Connection, statements: &[&str]) {
    for sql in statements {
        connection.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

const MADE: [&str; 4] = [
    "CREATE TABLE t (id integer PRIMARY KEY, name text, a integer, done boolean)",
    "INSERT INTO t SELECT n, 'Name' || n, n % 100, n % 10 <> 0 FROM generate_series(1, 10000) AS n",
    "CREATE UNIQUE INDEX by_name ON t (lower(name))",
    "CREATE UNIQUE INDEX open ON t (a, id) WHERE NOT done",
];

/// A change conflicts with a query if it moves a row into the condition of the query, or out of it.
#[test]
fn conditions_find_rows_by_expressions_and_by_the_condition_of_an_index() {
    let database = Database::memory().unwrap();
    let (mut one, mut other) = (database.connect(), database.connect());
    run(&mut one, &MADE);
    for (query, change, conflicts) in [
        ("SELECT id FROM t WHERE lower(name) = 'name7'", "UPDATE t SET name = 'x' WHERE id = 8", false),
        ("SELECT id FROM t WHERE lower(name) = 'name9'", "UPDATE t SET name = 'y' WHERE id = 9", true),
        ("SELECT id FROM t WHERE NOT done AND a = 10", "UPDATE t SET name = 'z' WHERE id = 11", false),
        ("SELECT id FROM t WHERE NOT done AND a = 11", "UPDATE t SET done = false WHERE id = 111", true),
    ] {
        run(&mut one, &["BEGIN ISOLATION LEVEL SERIALIZABLE"]);
        rows(&mut one, query);
        run(&mut other, &[change]);
        let result = one.execute("INSERT INTO t (id) VALUES (20000); DELETE FROM t WHERE id = 20000; COMMIT");
        let failed = result.is_err_and(|error| error.state() == SqlState::SERIALIZATION_FAILURE);
        assert_eq!(failed, conflicts, "{query}; {change}");
        run(&mut one, &["ROLLBACK"]);
    }
    let plan = rows(&mut one, "EXPLAIN SELECT id FROM t WHERE lower(name) = 'name7'").join("\n");
    assert!(plan.contains("\"lower(name)\""), "{plan}");
    let plan = rows(&mut one, "EXPLAIN SELECT id FROM t WHERE NOT done AND a > 10").join("\n");
    assert!(plan.contains("CASE WHEN"), "{plan}");
    let plan = rows(&mut one, "EXPLAIN SELECT id FROM t WHERE a > 10").join("\n");
    assert!(!plan.contains("CASE WHEN"), "{plan}");
}

/// After recovery from the log alone, and from a checkpoint.
#[test]
fn they_are_what_they_were_after_a_crash() {
    let open = |disk: &Arc<SimulatedDisk>| {
        let config = Config { directory: Some("/data/db".into()), ..Config::default() };
        Database::with_engine(Engine::open_on(disk.clone(), config).unwrap())
    };
    for checkpoint in [None, Some("CHECKPOINT")] {
        let disk = SimulatedDisk::new();
        let database = open(&disk);
        let mut connection = database.connect();
        run(&mut connection, &MADE);
        run(&mut connection, &["UPDATE t SET done = false WHERE id = 1", "DELETE FROM t WHERE id = 10"]);
        run(&mut connection, checkpoint.as_slice());
        run(&mut connection, &["INSERT INTO t VALUES (0, 'Zero', 1, false)"]);
        let after = open(&disk.after_power_cut(&mut Random::from_entropy()));
        let mut connection = after.connect();
        assert_eq!(rows(&mut connection, "SELECT id FROM t WHERE lower(name) = 'zero'"), ["Integer(0)"]);
        let found = rows(&mut connection, "SELECT id FROM t WHERE NOT done AND a < 11 ORDER BY id LIMIT 3");
        assert_eq!(found, ["Integer(0)", "Integer(1)", "Integer(100)"]);
        for (sql, key) in [
            ("INSERT INTO t VALUES (-1, 'ZERO', 2, true)", "Key (lower(name))=(zero) already exists."),
            ("UPDATE t SET name = 'NAME5' WHERE id = 6", "Key (lower(name))=(name5) already exists."),
        ] {
            assert_eq!(connection.execute(sql).unwrap_err().detail(), Some(key), "{sql}");
        }
        run(&mut connection, &["DROP INDEX by_name", "INSERT INTO t VALUES (-1, 'ZERO', 2, true)"]);
    }
}

/// An index is made and dropped many times: its hidden column is always the same one, so the next column follows it.
#[test]
fn indexes_that_come_and_go_take_the_same_places() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    run(&mut connection, &["CREATE TABLE t (a integer, b text)", "INSERT INTO t VALUES (1, 'X')"]);
    for n in 0..20 {
        let made = format!("CREATE INDEX i ON t ((a + {n})) WHERE lower(b) = 'x'");
        run(&mut connection, &[&made, "DROP INDEX i"]);
    }
    run(&mut connection, &["ALTER TABLE t ADD COLUMN c integer DEFAULT 7"]);
    let number = "SELECT attnum FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'c'";
    assert_eq!(rows(&mut connection, number), ["SmallInt(5)"]);
    assert_eq!(rows(&mut connection, "SELECT a + c FROM t"), ["Integer(8)"]);
}

/// Conditions on columns of all types find rows by an index, and find those that a scan finds.
#[test]
fn columns_of_all_types_are_looked_up_by_their_indexes() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    for (ty, value, other) in [
        ("smallint", "1", "2"),
        ("integer", "1", "2"),
        ("bigint", "1", "2"),
        ("real", "1.5", "'NaN'"),
        ("double precision", "1.5", "'-0'"),
        ("numeric", "1.50", "2"),
        ("numeric(10, 2)", "1.5", "2"),
        ("text", "'x'", "'y'"),
        ("varchar(20)", "'x'", "'y'"),
        ("char(10)", "'x'", "'x y'"),
        ("bpchar", "'x '", "'x  y '"),
        ("name", "'x'", "'y'"),
        ("date", "'2030-01-01'", "'2030-01-02'"),
        ("time", "'10:00'", "'10:01'"),
        ("timestamp", "'2030-01-01'", "'infinity'"),
        ("timestamptz", "'2030-01-01'", "'-infinity'"),
        ("interval", "'1 day'", "'24:00:01'"),
        ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
        ("bytea", "'\\x00'", "'\\x0001'"),
        ("oid", "'1'", "'4000000000'"),
        ("integer[]", "'{1,2}'", "'{1,3}'"),
        ("text[]", "'{a}'", "'{a,b}'"),
        ("numeric[]", "'{1.0}'", "'{1.5}'"),
        ("char(3)[]", "'{a}'", "'{b}'"),
    ] {
        connection
            .execute(&format!(
                "DROP TABLE IF EXISTS t; CREATE TABLE t (a {ty}, b integer); CREATE INDEX ON t (a);
                 INSERT INTO t SELECT NULL, i FROM generate_series(1, 2000) AS i;
                 INSERT INTO t VALUES ({value}, 0), ({other}, -1), ({value}, -2)"
            ))
            .unwrap();
        for condition in [
            format!("a = {value}"),
            format!("a IN ({value}, {other})"),
            format!("a BETWEEN {value} AND {other}"),
        ] {
            // Arrays have no operator with ANY.
            if ty.ends_with("[]") && condition.contains(" IN ") {
                continue;
            }
            let query = format!("SELECT b FROM t WHERE {condition} ORDER BY b");
            let plan = connection.query(&format!("EXPLAIN (COSTS OFF) {query}")).unwrap();
            assert!(format!("{plan:?}").contains("using t_a_idx"), "{ty} {condition}: {plan:?}");
            // A scan computes the condition of each row.
            let scanned =
                format!("SELECT b FROM (SELECT * FROM t OFFSET 0) AS t WHERE {condition} ORDER BY b");
            let rows =
                |connection: &mut Connection, sql: &str| format!("{:?}", connection.query(sql).unwrap());
            assert_eq!(rows(&mut connection, &query), rows(&mut connection, &scanned), "{ty} {condition}");
        }
        // Short programs and joins look up keys that they compute.
        connection.execute(&format!("PREPARE p ({ty}) AS SELECT b FROM t WHERE a = $1 ORDER BY b")).unwrap();
        let expected = connection.query("SELECT b FROM (VALUES (-2), (0)) AS v (b)").unwrap();
        for query in [
            format!("EXECUTE p ({value})"),
            "SELECT t.b FROM t AS other JOIN t ON t.a = other.a WHERE other.b = -2 ORDER BY t.b".to_owned(),
        ] {
            let found = connection.query(&query).unwrap();
            assert!(found.into_iter().eq(expected.clone().into_iter()), "{ty} {query}");
        }
        connection.execute("DEALLOCATE p").unwrap();
    }
}
