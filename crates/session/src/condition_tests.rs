//! How scans evaluate conditions: with zones and dictionaries, queries of frozen and compact rows have the same answers as
//! queries of hot rows.

use crate::{Config, Connection, Database};
use firn_base::{SqlState, Value};
use std::time::{Duration, Instant};

/// How cold rows are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cold {
    Hot,
    Frozen,
    Compact,
}

/// A database with small blocks, which reach that state and keep it.
fn database(cold: Cold) -> Database {
    let at_once = |wanted| (cold >= wanted).then_some(Duration::ZERO);
    let config = Config {
        block_bytes: 64 << 10,
        freeze_after: at_once(Cold::Frozen),
        compact_after: at_once(Cold::Compact),
        ..Config::default()
    };
    Database::open_with(config).unwrap()
}

impl PartialOrd for Cold {
    fn partial_cmp(&self, other: &Cold) -> Option<std::cmp::Ordering> {
        (*self as u8).partial_cmp(&(*other as u8))
    }
}

/// The rows of a query, a text each.
fn rows(connection: &mut Connection, sql: &str) -> Vec<String> {
    let statement = connection.prepare(sql).unwrap();
    let rows = connection.query_values(&statement, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        value => format!("{value:?}"),
    };
    rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join("|")).collect()
}

fn wait(connection: &mut Connection, cold: Cold) {
    let state = match cold {
        Cold::Hot => return,
        Cold::Frozen => "frozen",
        Cold::Compact => "compact",
    };
    let sql = format!("SELECT relname FROM firn_blocks WHERE rows > 0 AND state <> '{state}'");
    let until = Instant::now() + Duration::from_secs(60);
    while !rows(connection, &sql).is_empty() {
        assert!(Instant::now() < until, "{:?}", rows(connection, "SELECT * FROM firn_blocks"));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The same table hot, frozen and compact.
fn databases(statements: &[&str]) -> Vec<(Cold, Connection)> {
    let made = [Cold::Hot, Cold::Frozen, Cold::Compact].map(|cold| {
        let mut connection = database(cold).connect();
        for statement in statements {
            connection.execute(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        wait(&mut connection, cold);
        (cold, connection)
    });
    made.into()
}

/// Values that rise with the rows, so that zones exclude blocks; the last rows have the special values of floats.
const RISING: &[&str] = &[
    "CREATE TABLE t (id integer NOT NULL, small smallint, big bigint, price numeric(10,2), wide numeric(30,2), day date,
         x double precision, r real, u uuid, c char(14), raw bytea, at time, flag boolean)",
    "INSERT INTO t SELECT n, n / 10 - 1000, n + 9007199254740992 - 20000, n / 100.0 - 100, n * 1000000000000.0,
         date '2020-01-01' + (n / 10)::integer, n / 4.0 - 1000, n / 4.0 - 1000,
         (lpad(to_hex(n), 8, '0') || '-0000-0000-0000-00000000000' || n % 10)::uuid, 'c' || lpad(n::text, 6, '0'),
         decode(lpad(to_hex(n), 8, '0'), 'hex'), time '00:00' + n * interval '1 second', n >= 20000
     FROM generate_series(0, 29983) AS s(n)",
    "INSERT INTO t SELECT 40000 + n, NULL, NULL, NULL, NULL, NULL, x::double precision, x::real, NULL, NULL, NULL, NULL, NULL
     FROM (VALUES (1, 'NaN'), (2, 'Infinity'), (3, '-Infinity'), (4, '-0'), (5, '0'), (6, NULL), (7, 'NaN'), (8, '1e-30'))
         AS v(n, x)",
    "INSERT INTO t SELECT 41000 + n FROM generate_series(1, 8) AS s(n)",
];

#[test]
fn constants_of_wider_types_have_the_same_answers_by_zones_and_codes() {
    for (cold, mut connection) in databases(RISING) {
        for (condition, expected) in [
            ("id < 100.5", 101),
            ("id <= 100.5", 101),
            ("100.5 > id", 101),
            ("id = 100.0", 1),
            ("id = 100.5", 0),
            ("id > 29000.5 AND id < 30000", 983),
            ("id BETWEEN 10.5 AND 12.5", 2),
            ("id IN (1.0, 2.5, 3.0)", 2),
            ("id IN (7, 8.5, 9, 10.25)", 2),
            ("id < 3000000000 AND id < 5.5::double precision", 6),
            ("id > 3000000000", 0),
            ("id = 7::double precision", 1),
            ("id <= -1e300::double precision", 0),
            ("small < -999.5", 10),
            ("small = 100000", 0),
            ("small > 1997.5 AND small < 100000", 4),
            ("big < 9007199254720993.5", 2),
            // Three of the values become the same double, and one becomes the next double.
            ("big = 9007199254740996::double precision", 3),
            ("big > 9007199254750970.5::double precision", 5),
            ("price < -99.985", 2),
            ("price = 10.001", 0),
            ("price = 10.000", 1),
            ("price BETWEEN 10.001 AND 10.0199", 1),
            ("price < -99.985::double precision", 2),
            ("price > 199.8::double precision", 3),
            ("wide < 1000000000000.001", 2),
            ("day < timestamp '2020-01-01 12:00'", 10),
            ("day BETWEEN timestamp '2020-02-01 00:00:01' AND timestamp '2020-02-03 23:59'", 20),
            ("day = timestamp '2020-02-01 00:00:01'", 0),
            ("day IN (timestamp '2020-02-01', timestamp '2020-02-01 00:00:01')", 10),
        ] {
            let sql = format!("SELECT count(*) FROM t WHERE {condition}");
            assert_eq!(rows(&mut connection, &sql), [format!("BigInt({expected})")], "{cold:?}: {condition}");
        }
        // A condition that is true of every value is not true of NULL, and the other way round.
        for (condition, expected) in [
            ("small < 100000", 29_984),
            ("small <> 0.5", 29_984),
            ("NOT (small = 0.5)", 29_984),
            ("small NOT IN (0.5, 1.5)", 29_984),
            ("(small = 0.5) IS NULL", 16),
            ("(small > 100000) IS NULL", 16),
            ("(id > 3000000000) IS NULL", 0),
            ("small IS DISTINCT FROM 0.5", 30_000),
        ] {
            let sql = format!("SELECT count(*) FROM t WHERE {condition}");
            assert_eq!(rows(&mut connection, &sql), [format!("BigInt({expected})")], "{cold:?}: {condition}");
        }
    }
}

#[test]
fn parameters_of_wider_types_are_as_constants() {
    for (cold, mut connection) in databases(RISING) {
        for (condition, parameter, expected) in [
            ("id < $1::double precision", Value::Double(100.5), 101),
            ("id = $1::numeric", Value::Numeric { unscaled: 1005, scale: 1 }, 0),
            ("day < $1::timestamp", Value::Timestamp(18_262 * 86_400_000_000 + 1), 10),
            ("day < $1::date + interval '1 hour'", Value::Date(18_262), 10),
            ("price <= $1::double precision", Value::Double(-99.985), 2),
        ] {
            let sql = format!("SELECT count(*) FROM t WHERE {condition}");
            let statement = connection.prepare(&sql).unwrap();
            let counted = connection.query_values(&statement, std::slice::from_ref(&parameter)).unwrap();
            assert_eq!(counted, [[Value::BigInt(expected)]], "{cold:?}: {condition}");
        }
    }
}

#[test]
fn constants_of_wider_types_have_the_same_answers_by_indexes() {
    let mut connection = database(Cold::Hot).connect();
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY, big bigint, day date, s text)").unwrap();
    connection.execute("CREATE INDEX by_big ON t (big)").unwrap();
    connection.execute("CREATE INDEX by_day ON t (day)").unwrap();
    let filled =
        "INSERT INTO t SELECT n, n, date '2020-01-01' + n::integer, n FROM generate_series(1, 5000) AS s(n)";
    connection.execute(filled).unwrap();
    for (condition, expected) in [
        ("id < 3.5::double precision", 3),
        ("id = 3.0::double precision", 1),
        ("id < 3.5 AND s LIKE '%'", 3),
        ("big = 4::double precision", 1),
        ("day = timestamp '2020-01-05'", 1),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition} AND s <> (SELECT min(s) || 'x' FROM t)");
        assert_eq!(rows(&mut connection, &sql), [format!("BigInt({expected})")], "{condition}");
    }
}

#[test]
fn floats_uuids_and_padded_strings_have_the_same_answers_by_zones_and_codes() {
    for (cold, mut connection) in databases(RISING) {
        for (condition, expected) in [
            ("x < -999", 5),
            ("x <= -999", 6),
            ("x = -999.75", 1),
            ("x = 0", 3),
            ("x = '-0'", 3),
            ("x >= 6490 AND x < 6491", 4),
            ("x BETWEEN 0 AND 0.5", 6),
            ("x IN (0, 1.5, -3)", 5),
            ("x > 6495.5", 4),
            ("x = 'NaN'", 2),
            ("x = 'Infinity'", 1),
            ("x > 'Infinity'", 2),
            ("x < '-Infinity'", 0),
            ("r < -999", 5),
            ("r = 0.25", 1),
            ("r = 0", 3),
            ("r >= 6490 AND r < 6491", 4),
            ("r = 'NaN'", 2),
            ("u = '00000010-0000-0000-0000-000000000006'", 1),
            ("u = '00000010-0000-0000-0000-000000000007'", 0),
            ("u < '00000010-0000-0000-0000-000000000000'", 16),
            ("u > '00007510-0000-0000-0000-000000000000'", 16),
            ("u IN ('00000010-0000-0000-0000-000000000006', '00000011-0000-0000-0000-000000000007')", 2),
            ("c = 'c000017'", 1),
            ("c = 'c00001'", 0),
            ("c IN ('c000017', 'c000018', 'd')", 2),
            ("raw = '\\x00000011'", 1),
            ("raw < '\\x00000011'", 17),
            ("at < '00:00:10'", 10),
            ("flag AND id < 20010", 10),
        ] {
            let sql = format!("SELECT count(*) FROM t WHERE {condition}");
            assert_eq!(rows(&mut connection, &sql), [format!("BigInt({expected})")], "{cold:?}: {condition}");
        }
    }
}

/// Few different values, in no order: zones exclude nothing.
const REPEATED: &[&str] = &[
    "CREATE TABLE t (id integer, x double precision, u uuid, c char(14), s text, b bytea, n integer)",
    "INSERT INTO t SELECT n,
         CASE n * 7 % 11 WHEN 0 THEN NULL WHEN 1 THEN 'NaN'::double precision WHEN 2 THEN '-0' WHEN 3 THEN 0 WHEN 4 THEN 'Infinity'
             ELSE n * 7 % 11 END,
         (n * 7 % 10 || '0000000-0000-0000-0000-000000000000')::uuid,
         'c' || n * 3 % 7,
         CASE WHEN n % 13 > 0 THEN 'The ' || n * 7 % 50 || ' long and Winding road' WHEN n % 26 > 0 THEN '' END,
         decode(lpad(to_hex(n * 7 % 20), 2, '0'), 'hex'), n
     FROM generate_series(1, 30000) AS s(n)",
];

#[test]
fn values_that_repeat_are_judged_by_their_codes() {
    for (cold, mut connection) in databases(REPEATED) {
        for condition in [
            "x = 0",
            "x = 'NaN'",
            "x > 9",
            "u = '30000000-0000-0000-0000-000000000000'",
            "u IN ('30000000-0000-0000-0000-000000000000', '30000000-0000-0000-0000-000000000001')",
            "c = 'c3'",
            "c IN ('c1', 'c4')",
            "c = 'c'",
            "x IS NULL",
            "b = '\\x03'",
        ] {
            check(&mut connection, cold, condition);
        }
    }
}

/// Checks that a condition has the same answer as on a table without zones and dictionaries.
fn check(connection: &mut Connection, cold: Cold, condition: &str) {
    let met = rows(connection, &format!("SELECT id FROM t WHERE {condition} ORDER BY id"));
    let each =
        format!("SELECT id FROM (SELECT id, {condition} AS met FROM t OFFSET 0) AS s WHERE met ORDER BY id");
    assert_eq!(met, rows(connection, &each), "{cold:?}: {condition}");
}

#[test]
fn patterns_and_functions_are_judged_once_for_each_value_of_a_dictionary() {
    for (cold, mut connection) in databases(REPEATED) {
        for condition in [
            "s LIKE '%7 long%'",
            "s LIKE 'The 1%road'",
            "s LIKE 'The 1_ long%'",
            "s NOT LIKE '%long%'",
            "s ILIKE '%the 7 %WIND%'",
            "s ~ ' 4[0-3] '",
            "s LIKE '%7 long%' OR s IS NULL",
            "coalesce(s, 'The 7 l') LIKE 'The 7 l%'",
            "upper(s) = 'THE 17 LONG AND WINDING ROAD'",
            "length(s) = 25 AND s > 'The 3'",
            "CASE WHEN s LIKE '%17%' THEN true END",
            "length(s) IS NULL",
            "c LIKE '%3 %'",
            "length(b) = 1 AND b < '\\x03'",
            "x < 7 AND s LIKE '%17%'",
        ] {
            check(&mut connection, cold, condition);
        }
        // The condition raises its error for a value that a row has, and not for one that only the dictionary still has.
        let divided = connection.prepare("SELECT count(*) FROM t WHERE 1000 / length(s) > 40").unwrap();
        let error = connection.query_values(&divided, &[]).unwrap_err();
        assert_eq!(error.state(), SqlState::DIVISION_BY_ZERO);
        connection.execute("UPDATE t SET s = 'x' WHERE s = ''").unwrap();
        let long = rows(&mut connection, "SELECT count(*) FROM t WHERE length(s) < 25");
        assert_eq!(rows(&mut connection, "SELECT count(*) FROM t WHERE 1000 / length(s) > 40"), long);
        // Rows that are changed have no codes.
        connection.execute("UPDATE t SET s = 'The last 7 long ones' WHERE id % 1000 = 1").unwrap();
        connection.execute("DELETE FROM t WHERE id % 1000 = 2").unwrap();
        for condition in ["s LIKE '%7 long%'", "s NOT LIKE '%7 long%'"] {
            let direct = format!("SELECT count(*), sum(id) FROM t WHERE {condition}");
            let each = format!(
                "SELECT count(*) FILTER (WHERE {condition}), sum(id) FILTER (WHERE {condition}) FROM t"
            );
            assert_eq!(rows(&mut connection, &direct), rows(&mut connection, &each), "{cold:?}: {condition}");
        }
    }
}
