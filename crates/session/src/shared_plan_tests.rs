//! Plans that statements share which differ in literals.

use crate::{Connection, Database, Statement};

fn planned(database: &Database, work: impl FnOnce()) -> u64 {
    let plans = || database.engine().statistics().plans.get();
    let before = plans();
    work();
    plans() - before
}

#[test]
fn statements_that_differ_in_literals_share_a_plan_if_they_find_rows_by_keys() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection
        .execute(
            "CREATE TABLE t (a bigint PRIMARY KEY, b int, c varchar(9) UNIQUE, d date, e numeric(9, 2));
             CREATE INDEX ON t (b);
             CREATE TABLE pairs (x int, y int, z text, PRIMARY KEY (x, y));
             INSERT INTO t SELECT g, g % 7, 'c' || g, '2020-01-01'::date + g, g FROM generate_series(1, 100) g;
             INSERT INTO pairs SELECT g, g, 'z' FROM generate_series(1, 100) g",
        )
        .unwrap();
    // How often ten of them are planned, of which the last repeats the first: all texts that cannot share a plan, and once more to find
    // that out, if literals could be parameters.
    for (text, times) in [
        ("SELECT * FROM t WHERE a = 10#", 1),
        ("SELECT * FROM t WHERE 3#00000000 = a", 1),
        ("SELECT e FROM t WHERE c = 'c1#' AND b = #", 1),
        ("SELECT t.b, z FROM t JOIN pairs ON x = t.a AND y = t.a WHERE a = #", 1),
        ("SELECT z FROM pairs WHERE x = # AND y = # FOR UPDATE", 1),
        ("UPDATE t SET b = #, c = 'd#', d = '2021-01-0#', e = #.5 WHERE a = 1#", 1),
        ("DELETE FROM pairs WHERE x = 5# AND y = 5#", 1),
        ("INSERT INTO t VALUES (100#, #, 'x#', '2022-01-0#', #)", 1),
        ("INSERT INTO pairs VALUES (200#, 1, 'a'), (200#, 2, 'b')", 1),
        ("SELECT * FROM pairs WHERE x = #", 10),
        ("SELECT * FROM t WHERE b = #", 10),
        ("SELECT * FROM t WHERE a = 1 AND e < #", 9),
        ("SELECT #, e FROM t WHERE a = 1", 9),
        ("SELECT * FROM t WHERE a > #", 9),
    ] {
        let planned = planned(&database, || {
            for digit in 0..10 {
                let text = text.replace('#', &(digit % 9 + 1).to_string());
                connection
                    .execute(&format!("BEGIN; {text}; ROLLBACK"))
                    .unwrap_or_else(|e| panic!("{text}: {e}"));
            }
        });
        assert_eq!(planned, times, "{text}");
    }
}

#[test]
fn a_shared_plan_is_made_again_when_its_table_has_changed() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection
        .execute("CREATE TABLE t (a bigint PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1), (2, 2)")
        .unwrap();
    let statement = connection.prepare("SELECT b FROM t WHERE a = 1").unwrap();
    let other = connection.prepare("SELECT b FROM t WHERE a = 2").unwrap();
    assert!(statement.parameters().is_empty());
    let b = |connection: &mut Connection, statement: &Statement| {
        connection.query_row_as::<i32>(statement, ()).unwrap()
    };
    for ddl in
        ["SELECT 1", "CREATE INDEX ON t (b)", "SET search_path = public, other", "SET DateStyle = German"]
    {
        connection.execute(ddl).unwrap();
        for _ in 0..2 {
            assert_eq!(
                (b(&mut connection, &statement), b(&mut connection, &other)),
                (Some(1), Some(2)),
                "{ddl}"
            );
        }
        assert!(connection.query_statement(&statement, (1,)).is_err());
    }
    // EXPLAIN shows the literals.
    connection.name_statement("named", statement, "SELECT b FROM t WHERE a = 1".into(), false).unwrap();
    let plan = connection.query_values("EXPLAIN (COSTS OFF) EXECUTE named", ()).unwrap();
    assert!(format!("{plan:?}").contains("= 1"), "{plan:?}");
    assert_eq!(connection.query_row_as::<i32>("EXECUTE named", ()).unwrap(), Some(1));
}

/// Two texts of one meaning of which the second never shares its plan.
fn alike(connection: &mut Connection, shared: &str, own: &str) -> String {
    let mut outcome = |text: &str| {
        connection.execute("BEGIN").unwrap();
        let outcome = match connection.query_values(text, ()) {
            Ok(rows) => format!("{rows:?}"),
            Err(error) => format!("{} {} at {:?}", error.state().as_str(), error.message(), error.position()),
        };
        connection.execute("ROLLBACK").unwrap();
        outcome
    };
    let (found, expected) = (outcome(shared), outcome(own));
    assert_eq!(found, expected, "{shared}");
    found
}

#[test]
fn literals_mean_the_same_where_the_plan_is_shared() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    let types = [
        ("smallint", "5"),
        ("int", "5"),
        ("bigint", "5"),
        ("real", "5"),
        ("float8", "5"),
        ("numeric", "5"),
        ("numeric(4, 1)", "5"),
        ("text", "'5'"),
        ("varchar(3)", "'5'"),
        ("char(3)", "'5'"),
        ("name", "'5'"),
        ("date", "'2020-01-05'"),
        ("time", "'05:00'"),
        ("timestamp", "'2020-01-05'"),
        ("timestamptz", "'2020-01-05'"),
        ("interval", "'5 days'"),
        ("boolean", "'t'"),
        ("oid", "5"),
        ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
        ("int[]", "'{5}'"),
        ("bytea", "'5'"),
        ("regclass", "'pg_class'"),
    ];
    let literals = [
        "5",
        "5.0",
        "5.04",
        "70000",
        "3000000000",
        "99999999999999999999",
        "1e400",
        "'5'",
        "' 5 '",
        "'5.0'",
        "'5.04'",
        "'70000'",
        "'x'",
        "''",
        "'long string'",
        "'5  '",
        "'2020-01-05'",
        "'5.1.2020'",
        "'January 5, 2020'",
        "'infinity'",
        "'NaN'",
        "'t'",
        "'off'",
        "'{5}'",
        "'5 days'",
        "'05:00'",
        "E'\\065'",
        "'pg_class'",
        "'A0EEBC999C0B4EF8BB6D6BB9BD380A11'",
        "'today'",
        "'epoch'",
        "'\\x35'",
    ];
    let (mut rows, mut errors) = (0, 0);
    for style in ["ISO, MDY", "German", "SQL, DMY"] {
        for (ty, good) in types {
            let is_of_time = ty.starts_with("date") || ty.starts_with("time");
            if !is_of_time && !style.starts_with("ISO") {
                continue;
            }
            connection.execute("SET DateStyle = ISO; DROP TABLE IF EXISTS t").unwrap();
            let create = |key: &str| format!("CREATE TABLE t (id int PRIMARY KEY, c {ty} {key})");
            // Not all types have indexes.
            if connection.execute(&create("UNIQUE NOT NULL")).is_err() {
                connection.execute(&create("")).unwrap();
            }
            connection
                .execute(&format!("INSERT INTO t VALUES (1, {good}); SET DateStyle = '{style}'"))
                .unwrap();
            // The plan is there before a literal that is none of its type.
            for literal in [good].iter().chain(&literals) {
                for (shared, own) in [
                    ("SELECT c FROM t WHERE c = #", "SELECT c FROM t WHERE c = # IS TRUE"),
                    ("SELECT c FROM t WHERE # = c", "SELECT c FROM t WHERE # = c IS TRUE"),
                    (
                        "SELECT c FROM t WHERE id = 1 AND c = #",
                        "SELECT c FROM t WHERE id = 1 AND c = # IS TRUE",
                    ),
                    (
                        "INSERT INTO t VALUES (2, #) RETURNING c",
                        "INSERT INTO t VALUES (2, #) ON CONFLICT (id) DO NOTHING RETURNING c",
                    ),
                    (
                        "INSERT INTO t VALUES (3, #), (2, #) RETURNING id",
                        "INSERT INTO t VALUES (3, #), (2, #) ON CONFLICT (id) DO NOTHING RETURNING id",
                    ),
                    (
                        "UPDATE t SET c = # WHERE id = 1 RETURNING c",
                        "UPDATE t SET c = # WHERE id = 1 IS TRUE RETURNING c",
                    ),
                ] {
                    let text = |text: &str| text.replace('#', literal);
                    let found = alike(&mut connection, &text(shared), &text(own));
                    let is_error = found.contains(" at ");
                    rows += usize::from(!is_error && found.len() > 2);
                    errors += usize::from(is_error);
                }
            }
        }
    }
    assert!(rows > 500 && errors > 1000, "{rows} with rows, {errors} errors");
}
