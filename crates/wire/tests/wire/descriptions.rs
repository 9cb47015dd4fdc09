//! What RowDescription and ParameterDescription say of types and columns, as PostgreSQL 15 has it. Drivers convert values by it, and write
//! changed rows back by it.

use crate::raw::*;

/// A column of RowDescription, without its format.
#[derive(PartialEq, Debug)]
struct Described {
    name: String,
    table: u32,
    number: i16,
    ty: u32,
    size: i16,
    modifier: i32,
}

/// A number of `N` bytes, which are taken off.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (number, after) = rest.split_first_chunk().expect("the message is long enough");
    *rest = after;
    *number
}

/// The oids of the parameters and the columns of a statement that is prepared without running.
fn described(raw: &mut Raw, sql: &str) -> (Vec<u32>, Vec<Described>) {
    raw.send(&[parse("", sql), describe('S', ""), sync()].concat());
    let received = raw.until('Z');
    let body = |tag: char| received.iter().find(|(found, _)| *found == tag).map(|(_, body)| &body[..]);
    let mut rest = body('t').unwrap_or_else(|| panic!("{sql}: {}", summary(&received)));
    let count = i16::from_be_bytes(take(&mut rest));
    let parameters = (0..count).map(|_| u32::from_be_bytes(take(&mut rest))).collect();
    let Some(mut rest) = body('T') else { return (parameters, Vec::new()) };
    let count = i16::from_be_bytes(take(&mut rest));
    let columns = (0..count).map(|_| {
        let end = rest.iter().position(|byte| *byte == 0).expect("names end with a zero");
        let name = String::from_utf8(rest[..end].to_vec()).expect("names are UTF-8");
        rest = &rest[end + 1..];
        let column = Described {
            name,
            table: u32::from_be_bytes(take(&mut rest)),
            number: i16::from_be_bytes(take(&mut rest)),
            ty: u32::from_be_bytes(take(&mut rest)),
            size: i16::from_be_bytes(take(&mut rest)),
            modifier: i32::from_be_bytes(take(&mut rest)),
        };
        let _format: [u8; 2] = take(&mut rest);
        column
    });
    (parameters, columns.collect())
}

/// The oids of the types of a statement's columns.
fn types(raw: &mut Raw, sql: &str) -> Vec<u32> {
    described(raw, sql).1.iter().map(|column| column.ty).collect()
}

#[test]
fn results_have_the_oids_of_postgresqls_types() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (id int, v varchar(5), c char(3))"));
    for (sql, expected) in [
        (
            "SELECT oid, relname, relkind, relnamespace, relacl, reloptions, relfrozenxid FROM pg_class",
            &[26, 19, 18, 26, 1034, 1009, 28][..],
        ),
        (
            "SELECT 1::oid, 'x'::name, 'pg_class'::regclass, 'int4'::regtype, 'now'::regproc, 'x'::\"char\"",
            &[26, 19, 2205, 2206, 24, 18],
        ),
        (
            "SELECT ARRAY[1::oid], ARRAY['x'::name], array_agg(attname), array_agg(attrelid), array_agg(attnum) \
             FROM pg_attribute",
            &[1028, 1003, 1003, 1028, 1005],
        ),
        ("SELECT indkey, indclass, indoption FROM pg_index", &[22, 30, 22]),
        ("SELECT conkey, confkey FROM pg_constraint", &[1005, 1005]),
        (
            "SELECT proargtypes, proallargtypes, proargmodes, proargnames FROM pg_proc",
            &[30, 1028, 1002, 1009],
        ),
        ("SELECT current_user, current_database(), version(), pg_backend_pid()", &[19, 19, 25, 23]),
        ("SELECT pg_sleep(0)", &[2278]),
        ("SELECT pg_typeof(1), ctid, xmin, tableoid FROM t", &[2206, 27, 28, 26]),
        ("SELECT v, c, v || 'x', coalesce(v, 'x'), min(v) FROM t GROUP BY v, c", &[1043, 1042, 25, 1043, 25]),
        (
            "SELECT ARRAY[1], ARRAY[1::bigint], ARRAY[now()], ARRAY[date '2030-01-01'], ARRAY[true], ARRAY[1.5], \
             ARRAY['a'], ARRAY[gen_random_uuid()], ARRAY[v], ARRAY[c] FROM t",
            &[1007, 1016, 1185, 1182, 1000, 1231, 1009, 2951, 1015, 1014],
        ),
        ("SELECT NULL, 'a', 1, 1.5, true", &[25, 25, 23, 1700, 16]),
        ("SELECT NULL::oid[], NULL::int4[], NULL::name[]", &[1028, 1007, 1003]),
    ] {
        assert_eq!(types(&mut raw, sql), expected, "{sql}");
    }
}

#[test]
fn parameters_have_the_oids_of_postgresqls_types() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (id int, v varchar(5), c char(3))"));
    for (sql, expected) in [
        ("SELECT 1 WHERE $1::oid = 5", &[26][..]),
        ("SELECT typname FROM pg_type WHERE oid = $1", &[26]),
        ("SELECT typname FROM pg_type WHERE oid = ANY ($1)", &[1028]),
        ("SELECT $1::oid[], $2::regclass, $3::name, $4::regtype", &[1028, 2205, 19, 2206]),
        ("INSERT INTO t VALUES ($1, $2, $3)", &[23, 1043, 1042]),
        ("SELECT 1 FROM t WHERE v = $1 AND c = $2", &[25, 1042]),
        ("SELECT relname FROM pg_class WHERE relname = $1 AND relkind = $2", &[19, 18]),
        ("EXPLAIN SELECT * FROM t WHERE id = $1", &[23]),
    ] {
        assert_eq!(described(&mut raw, sql).0, expected, "{sql}");
    }
}

#[test]
fn columns_name_their_table_and_their_number_there() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query(
        "CREATE TABLE t (id int PRIMARY KEY, name varchar(20), gone int, price numeric(10,2), code char(3)); \
         ALTER TABLE t DROP COLUMN gone; CREATE TABLE u (t int, note text); \
         CREATE VIEW v AS SELECT id, name AS called FROM t",
    ));
    let mut oid = |name: &str| {
        raw.send(&query(&format!("SELECT '{name}'::regclass::oid")));
        let received = raw.until('Z');
        let cell = cells(&received[1].1).remove(0).expect("an oid");
        String::from_utf8(cell).expect("text").parse::<u32>().expect("a number")
    };
    let (t, u, v) = (oid("t"), oid("u"), oid("v"));
    for (sql, expected) in [
        ("SELECT * FROM t", &[(t, 1), (t, 2), (t, 4), (t, 5)][..]),
        ("SELECT name, id FROM t", &[(t, 2), (t, 1)]),
        ("SELECT name AS n, id + 1, upper(name), 1, code FROM t", &[(t, 2), (0, 0), (0, 0), (0, 0), (t, 5)]),
        ("SELECT t.id, u.note FROM t JOIN u ON u.t = t.id", &[(t, 1), (u, 2)]),
        (
            "SELECT x.*, y.id FROM t x LEFT JOIN t y ON y.id = x.id + 1",
            &[(t, 1), (t, 2), (t, 4), (t, 5), (t, 1)],
        ),
        ("SELECT * FROM v", &[(v, 1), (v, 2)]),
        ("SELECT id FROM (SELECT id, name FROM t) q", &[(t, 1)]),
        ("WITH q AS (SELECT name FROM t) SELECT name FROM q", &[(t, 2)]),
        ("SELECT name, count(*) FROM t GROUP BY name", &[(t, 2), (0, 0)]),
        ("SELECT DISTINCT code FROM t ORDER BY code", &[(t, 5)]),
        ("SELECT id FROM t UNION SELECT t FROM u", &[(0, 0)]),
        ("INSERT INTO t (id) VALUES (7) RETURNING id, name", &[(t, 1), (t, 2)]),
        ("UPDATE t SET name = 'x' WHERE id = 7 RETURNING *", &[(t, 1), (t, 2), (t, 4), (t, 5)]),
        ("SELECT relname FROM pg_class", &[(1259, 2)]),
        ("SELECT price, name FROM t WHERE id = $1", &[(t, 4), (t, 2)]),
    ] {
        let columns = described(&mut raw, sql).1;
        let origins: Vec<(u32, i16)> = columns.iter().map(|column| (column.table, column.number)).collect();
        assert_eq!(origins, expected, "{sql}");
    }
    let sizes: Vec<(u32, i16, i32)> =
        described(&mut raw, "SELECT id, name, price, code, 1.5, note FROM t, u")
            .1
            .iter()
            .map(|column| (column.ty, column.size, column.modifier))
            .collect();
    let expected =
        [(23, 4, -1), (1043, -1, 24), (1700, -1, 655_366), (1042, -1, 7), (1700, -1, -1), (25, -1, -1)];
    assert_eq!(sizes, expected);
    // A simple query describes its rows alike.
    raw.send(&query("SELECT name AS n FROM t"));
    let received = raw.until('Z');
    let by_query = &received[0].1;
    raw.send(&[parse("", "SELECT name AS n FROM t"), describe('S', ""), sync()].concat());
    assert_eq!(by_query, &raw.until('Z')[2].1);
}
