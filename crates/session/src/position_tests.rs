//! Where errors are: the position in characters, in texts with characters of two to four bytes, and in statements within statements.

use crate::{Connection, Database, Outcome};
use firn_base::{Error, Result};

/// Statements with the SQLSTATE and the position that PostgreSQL 15 gives.
const ERRORS: [(&str, &str, Option<u32>); 62] = [
    ("SELECT 'äöü', nonsense", "42703", Some(15)),
    ("SELECT 'äöü' || (SELECT (SELECT nonsense FROM (SELECT 1 AS ü) AS q))", "42703", Some(33)),
    ("SELECT ü FROM (SELECT 1 AS ö) AS q", "42703", Some(8)),
    ("SELECT '日本語' AS 日本, x.b FROM (SELECT 1 AS a) AS x", "42703", Some(21)),
    ("SELECT * FROM (SELECT '日本' AS a) AS x WHERE a = 1", "42883", Some(47)),
    ("SELECT * FROM (SELECT '日本'::text AS a) AS x WHERE a = 1", "42883", Some(53)),
    ("SELECT '𝔸𝔹' FROM nowhere", "42P01", Some(18)),
    ("SELECT '𝔸𝔹', 1 FROM pg_class AS é, nowhere", "42P01", Some(36)),
    ("SELECT lengthh('é') || 'ü'", "42883", Some(8)),
    ("SELECT 'é', sum(1, 2)", "42883", Some(13)),
    ("SELECT 'é' + 1::date", "42846", Some(15)),
    ("SELECT '𝔸', 1 +", "42601", Some(16)),
    ("SELECT '𝔸' FRO x", "42601", Some(16)),
    ("SELECT 'é', (1", "42601", Some(15)),
    ("SELECT CAST('é' AS integer)", "22P02", Some(13)),
    ("SELECT 'ü', CAST('x' AS nothing)", "42704", Some(25)),
    ("SELECT 'ü', 'x'::integer", "22P02", Some(13)),
    ("SELECT 'ü', 1/0", "22012", None),
    ("WITH ä AS (SELECT 1 AS b) SELECT c FROM ä", "42703", Some(34)),
    ("WITH ä AS (SELECT c) SELECT * FROM ä", "42703", Some(19)),
    ("WITH ä AS (SELECT 1 AS a) SELECT (WITH b AS (SELECT ä.c FROM ä) SELECT * FROM b)", "42703", Some(53)),
    ("SELECT 'ü' FROM (SELECT 1 AS a) x GROUP BY b", "42703", Some(44)),
    ("SELECT 'ü', a FROM (SELECT 1 AS a, 2 AS b) x GROUP BY b", "42803", Some(13)),
    ("SELECT 'ü' ORDER BY 2", "42P10", Some(21)),
    ("SELECT 'ü', count(*) FROM (SELECT 1 AS a) x WHERE count(*) > 1", "42803", Some(51)),
    ("SELECT 'ü' UNION SELECT 1, 2", "42601", Some(25)),
    ("SELECT 'ü' UNION ALL SELECT 1", "22P02", Some(8)),
    ("SELECT CASE WHEN 'é' THEN 1 END", "22P02", Some(18)),
    ("SELECT 'ü' IN (SELECT 1, 2)", "42601", Some(12)),
    ("SELECT 'ü' IN (1, 2)", "22P02", Some(8)),
    ("SELECT ('ü', 1) = (1, 2, 3)", "42601", Some(17)),
    ("SELECT 'é' LIKE 1", "42883", Some(12)),
    ("VALUES ('é', 1), ('ü')", "42601", Some(19)),
    ("SELECT 'ü' AS a, a.b.c.d.e", "42601", Some(18)),
    ("SELECT x.* , 'é' FROM (SELECT 1) y", "42P01", Some(8)),
    ("SELECT 'ü', row_number()", "42809", Some(13)),
    ("SELECT 'ü', sum(sum(1))", "42803", Some(17)),
    ("SELECT \"é\".a FROM (SELECT 1 AS a) e", "42P01", Some(8)),
    ("INSERT INTO nowhere VALUES ('ü')", "42P01", Some(13)),
    ("SELECT 'ü' FROM pg_class JOIN pg_attribute USING (nothing)", "42703", None),
    ("SELECT 'é' FROM pg_class a, pg_class b WHERE relname = 'x'", "42702", Some(46)),
    ("SELECT 'ü' LIMIT a", "42703", Some(18)),
    ("SELECT 'ü' WHERE 1", "42804", Some(18)),
    ("SELECT '日' FROM (SELECT 1 AS a) q WHERE a IN (SELECT b FROM (SELECT 2 AS c) r)", "42703", Some(54)),
    (
        "SELECT '日' FROM (SELECT 1 AS a) q WHERE EXISTS (SELECT 1 FROM (SELECT 2 AS c) r WHERE r.d = q.a)",
        "42703",
        Some(87),
    ),
    ("SELECT U&'\\00e4', nonsense", "42703", Some(19)),
    ("SELECT $ü$é$ü$, nonsense", "42703", Some(17)),
    ("SELECT E'\\u00e4ä', nonsense -- ü", "42703", Some(20)),
    ("/* ü */ SELECT nonsense", "42703", Some(16)),
    ("SELECT -- ü\n nonsense", "42703", Some(14)),
    ("SELECT interval 'é'", "22007", Some(17)),
    ("SELECT date '日本'", "22007", Some(13)),
    ("SELECT '{é'::text[]", "22P02", Some(8)),
    ("SELECT array['é', 1]", "22P02", Some(14)),
    ("SELECT 'é' COLLATE nothing", "42704", Some(12)),
    ("CREATE TABLE é (a nothing)", "42704", Some(19)),
    ("PREPARE p AS SELECT 'é', nonsense", "42703", Some(26)),
    ("EXPLAIN SELECT 'é', nonsense", "42703", Some(21)),
    ("DECLARE c CURSOR FOR SELECT 'é', nonsense", "42703", Some(34)),
    ("CREATE VIEW v AS SELECT 'é' AS a, nonsense", "42703", Some(35)),
    ("CREATE TABLE x AS SELECT 'é' AS a, nonsense", "42703", Some(36)),
    ("COPY (SELECT 'é', nonsense) TO STDOUT", "42703", Some(19)),
];

fn run(connection: &mut Connection, sql: &str) -> Result<()> {
    let statement = connection.prepare(sql)?;
    match connection.run(&statement, &[])? {
        Outcome::Rows(mut rows) => while rows.next_chunk()?.is_some() {},
        Outcome::CopyOut(mut copy) => while copy.next_chunk()?.is_some() {},
        _ => {}
    }
    Ok(())
}

fn check(sql: &str, offset: u32, error: &Error, state: &str, position: Option<u32>) {
    let found = (error.state().to_string(), error.position());
    assert_eq!(found, (state.to_owned(), position.map(|position| position + offset)), "{sql}: {error}");
}

#[test]
fn errors_are_where_postgres_says() {
    let mut connection = Database::memory().unwrap().connect();
    for (sql, state, position) in ERRORS {
        connection.execute("BEGIN").unwrap();
        let error = run(&mut connection, sql).expect_err(sql);
        check(sql, 0, &error, state, position);
        connection.execute("ROLLBACK").unwrap();
    }
}

/// The position in a script counts from its beginning.
#[test]
fn errors_in_a_script_are_where_they_stand_in_it() {
    let mut connection = Database::memory().unwrap().connect();
    let before = "/* 日本 */ SELECT 'é𝔸'; BEGIN; ";
    for (sql, state, position) in ERRORS {
        let script = format!("{before}{sql}; SELECT 'ü'");
        let is_copy = sql.starts_with("COPY");
        if is_copy || state == "42601" && sql.ends_with('+') {
            continue;
        }
        let error = connection.execute(&script).expect_err(sql);
        check(&script, before.chars().count() as u32, &error, state, position);
        connection.execute("ROLLBACK").unwrap();
    }
}
