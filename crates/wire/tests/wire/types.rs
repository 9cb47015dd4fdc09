//! Every type in both formats, as parameter and as result, from the short path and from Arrow.

use crate::raw::*;

/// A type, a value as text, and its binary form as PostgreSQL 15 sends it (empty: not compared).
const VALUES: &[(&str, &str, &str)] = &[
    ("boolean", "t", "01"),
    ("smallint", "-32768", "8000"),
    ("integer", "2147483647", "7fffffff"),
    ("bigint", "-2", "fffffffffffffffe"),
    ("real", "0.5", "3f000000"),
    ("double precision", "-1.5", "bff8000000000000"),
    ("numeric(12,2)", "-12345.67", "0003000140000002000109291a2c"),
    ("numeric(38,10)", "123456789012345678901.0123456789", ""),
    ("numeric(12,2)", "0.00", "0000000000000002"),
    ("text", "Schnee, снег, 雪", "5363686e65652c20d181d0bdd0b5d0b32c20e99baa"),
    ("varchar(10)", "", ""),
    ("char(4)", "ab  ", "61622020"),
    ("bytea", "\\x00ff", "00ff"),
    ("date", "1999-12-31", "ffffffff"),
    ("time", "23:59:59.999999", "000000141dd75fff"),
    ("timestamp", "2000-01-01 00:00:00.000001", "0000000000000001"),
    ("timestamptz", "1999-12-31 23:59:59+00", "fffffffffff0bdc0"),
    ("interval", "1 mon 2 days 00:00:03", "00000000002dc6c00000000200000001"),
    ("uuid", "01234567-89ab-cdef-0123-456789abcdef", "0123456789abcdef0123456789abcdef"),
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn one_cell(raw: &mut Raw, series: &[Vec<u8>]) -> Option<Vec<u8>> {
    raw.send(&series.concat());
    let received = raw.until('Z');
    let row = received.iter().find(|(tag, _)| *tag == 'D');
    let (_, row) = row.unwrap_or_else(|| panic!("no row but {}: {received:?}", summary(&received)));
    cells(row).remove(0)
}

/// A parameter is sent as text and the result is returned in binary format; that is sent again and returned as text.
#[test]
fn every_type_is_unchanged_through_both_formats() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    for (ty, text, binary) in VALUES {
        raw.answers(&[parse("s", &format!("SELECT $1::{ty}")), sync()].concat());
        let into = [Some(text.as_bytes())];
        let found = one_cell(&mut raw, &[bind_in("", "s", &into, 0, 1), execute("", 0), sync()]);
        let found = found.expect("not NULL");
        if !binary.is_empty() {
            assert_eq!(hex(&found), *binary, "{ty} {text}");
        }
        let again = one_cell(&mut raw, &[bind_in("", "s", &[Some(&found)], 1, 0), execute("", 0), sync()]);
        assert_eq!(String::from_utf8(again.unwrap()).unwrap(), *text, "{ty}");
        let null = one_cell(&mut raw, &[bind_in("", "s", &[None], 1, 1), execute("", 0), sync()]);
        assert_eq!(null, None);
        raw.answers(&[close('S', "s"), sync()].concat());
    }
}

/// A scan yields Arrow batches; an index look-up, if it took the short path, yields values.
#[test]
fn stored_values_come_back_alike_from_a_scan_and_from_an_index() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    let columns: Vec<_> = VALUES.iter().enumerate().map(|(i, (ty, ..))| format!("c{i} {ty}")).collect();
    let created =
        raw.answers(&query(&format!("CREATE TABLE t (id integer PRIMARY KEY, {})", columns.join(", "))));
    assert_eq!(created, "C ZI");
    let literals: Vec<_> = VALUES.iter().map(|(_, text, _)| format!("'{text}'")).collect();
    let nulls = vec!["NULL"; VALUES.len()].join(", ");
    let insert = format!("INSERT INTO t VALUES (1, {}), (2, {nulls})", literals.join(", "));
    assert_eq!(raw.answers(&query(&insert)), "C ZI");

    let expected: Vec<_> = VALUES.iter().map(|(_, text, _)| Some((*text).to_owned())).collect();
    for sql in ["SELECT * FROM t WHERE id = 1", "SELECT * FROM t WHERE id + 0 = 1"] {
        let texts = row_of(&mut raw, sql, 0);
        let texts: Vec<_> =
            texts[1..].iter().map(|cell| cell.clone().map(|cell| String::from_utf8(cell).unwrap())).collect();
        assert_eq!(texts, expected, "{sql}");
    }
    let by_index = row_of(&mut raw, "SELECT * FROM t WHERE id = 1", 1);
    let by_scan = row_of(&mut raw, "SELECT * FROM t WHERE id + 0 = 1", 1);
    assert_eq!(by_index, by_scan);
    for (cell, (ty, _, binary)) in by_index[1..].iter().zip(VALUES) {
        if !binary.is_empty() {
            assert_eq!(hex(cell.as_ref().unwrap()), *binary, "{ty}");
        }
    }
    assert!(row_of(&mut raw, "SELECT * FROM t WHERE id = 2", 1)[1..].iter().all(Option::is_none));
}

fn row_of(raw: &mut Raw, sql: &str, format: u16) -> Vec<Option<Vec<u8>>> {
    raw.send(&[parse("", sql), bind_in("", "", &[], 0, format), execute("", 0), sync()].concat());
    let received = raw.until('Z');
    let row = received.iter().find(|(tag, _)| *tag == 'D');
    cells(&row.unwrap_or_else(|| panic!("no row but {}: {received:?}", summary(&received))).1)
}

#[test]
fn a_value_that_is_none_of_its_type_is_refused() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    for (ty, text, state) in [
        ("integer", "x", "22P02"),
        ("integer", "2147483648", "22003"),
        ("date", "2024-02-30", "22008"),
        ("uuid", "0", "22P02"),
        ("bytea", "\\xz", "22023"),
    ] {
        let series = [parse("", &format!("SELECT $1::{ty}")), bind("", "", &[text]), sync()];
        let answers = raw.answers(&series.concat());
        assert_eq!(answers, format!("1 E{state} ZI"), "{ty} {text}");
    }
    // Binary of the wrong length.
    let series = [parse("", "SELECT $1::integer"), bind_in("", "", &[Some(&[1, 2, 3])], 1, 0), sync()];
    assert_eq!(raw.answers(&series.concat()), "1 E22P03 ZI");
}

#[test]
fn parameters_of_a_type_that_is_not_served_are_refused() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    let point = message(b'P', b"\0SELECT $1\0\0\x01\0\0\x02\x58");
    assert_eq!(raw.answers(&[point, sync()].concat()), "E0A000 ZI");
}

/// An array of one value and NULL is sent as text and returned in binary format; that is sent again.
#[test]
fn arrays_of_every_type_are_parameters_in_both_formats() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    for (ty, text, _) in VALUES {
        // Elements have any length: blanks at the end of char(4) are part of a text.
        let ty = ty.split('(').next().unwrap().replace("char", "text").replace("vartext", "text");
        raw.answers(&[parse("s", &format!("SELECT $1::{ty}[], $1")), sync()].concat());
        let array = format!("{{\"{}\",NULL}}", text.replace('\\', "\\\\"));
        let into = [Some(array.as_bytes())];
        let found = one_cell(&mut raw, &[bind_in("", "s", &into, 0, 1), execute("", 0), sync()]);
        let binary = found.expect("not NULL");
        let again = one_cell(&mut raw, &[bind_in("", "s", &[Some(&binary)], 1, 1), execute("", 0), sync()]);
        assert_eq!(again.unwrap(), binary, "{ty}");
        let null = one_cell(&mut raw, &[bind_in("", "s", &[None], 1, 1), execute("", 0), sync()]);
        assert_eq!(null, None);
        raw.answers(&[close('S', "s"), sync()].concat());
    }
}

#[test]
fn array_parameters_are_described_and_checked() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a bigint PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)"));
    raw.send(
        &[parse("s", "SELECT a FROM t WHERE a = ANY ($1) ORDER BY a"), describe('S', "s"), sync()].concat(),
    );
    let received = raw.until('Z');
    assert_eq!(received[1].1, [0, 1, 0, 0, 3, 248], "one parameter, bigint[]");
    let mut answers = |parameter: &[u8], format| {
        raw.answers(&[bind_in("", "s", &[Some(parameter)], format, 0), execute("", 0), sync()].concat())
    };
    assert_eq!(answers(b"{3,1,NULL,9}", 0), "2 D D C ZI");
    assert_eq!(answers(b"{}", 0), "2 C ZI");
    assert_eq!(answers(b"1", 0), "E22P02 ZI");
    assert_eq!(answers(b"{x}", 0), "E22P02 ZI");
    assert_eq!(answers(b"{{1},{2}}", 0), "2 D D C ZI");
    let words = |words: &[i32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    assert_eq!(answers(&words(&[1, 0, 20, 1, 1, 8, 0, 2]), 1), "2 D C ZI");
    assert_eq!(answers(&words(&[1, 0, 23, 1, 1, 4, 2]), 1), "E42804 ZI");
    assert_eq!(answers(&words(&[1, 0, 20, 7, 1, 8, 0, 2]), 1), "E22P03 ZI");
    // Declared by the client as integer[].
    let declared = message(b'P', b"\0SELECT a FROM t WHERE a = ANY ($1)\0\0\x01\0\0\x03\xef");
    let bound = bind_in("", "", &[Some(&words(&[1, 0, 23, 1, 1, 4, 2]))], 1, 0);
    assert_eq!(raw.answers(&[declared, bound, execute("", 0), sync()].concat()), "1 2 D C ZI");
}

/// As in PostgreSQL, the text of a `regclass` is looked up when the parameter is bound; in binary it is an oid.
#[test]
fn parameters_may_name_objects_of_the_catalog() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a integer); CREATE TABLE \"T u\" (a integer)"));
    raw.answers(&[parse("s", "SELECT relname FROM pg_class WHERE oid = $1::regclass"), sync()].concat());
    raw.answers(&[parse("many", "SELECT $1::regclass[]::oid[]::regclass[]::text"), sync()].concat());
    for (name, found) in [("t", "t"), ("public.t", "t"), ("\"T u\"", "T u"), ("1259", "pg_class")] {
        let cell = one_cell(&mut raw, &[bind("", "s", &[name]), execute("", 0), sync()]);
        assert_eq!(cell.unwrap(), found.as_bytes(), "{name}");
    }
    let oid = 1259u32.to_be_bytes();
    let cell = one_cell(&mut raw, &[bind_in("", "s", &[Some(&oid)], 1, 0), execute("", 0), sync()]);
    assert_eq!(cell.unwrap(), b"pg_class");
    let cell = one_cell(&mut raw, &[bind("", "many", &["{t,\"\\\"T u\\\"\",NULL}"]), execute("", 0), sync()]);
    assert_eq!(cell.unwrap(), b"{t,\"\\\"T u\\\"\",NULL}");
    let absent = [bind("", "s", &["nowhere"]), execute("", 0), sync()].concat();
    assert_eq!(raw.answers(&absent), "2 E42P01 ZI");
}

#[test]
fn arrays_are_announced_as_arrays_and_sent_in_both_formats() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query(
        "CREATE TABLE t (a integer PRIMARY KEY, b varchar(9)); INSERT INTO t VALUES (1, 'x y'), (2, NULL)",
    ));
    for (sql, oid, text, binary) in [
        (
            "SELECT array_agg(a ORDER BY a) FROM t",
            1007,
            "{1,2}",
            "0000000100000000000000170000000200000001000000040000000100000004\
00000002",
        ),
        (
            "SELECT array_agg(b ORDER BY a) FROM t",
            1015,
            "{\"x y\",NULL}",
            "000000010000000100000413000000020000000100000003782079ffffffff",
        ),
        (
            "SELECT conkey FROM pg_constraint WHERE conname = 't_pkey'",
            1005,
            "{1}",
            "00000001000000000000001500000001000000010000000200\
01",
        ),
    ] {
        raw.answers(&[parse("s", sql), sync()].concat());
        raw.send(&[describe('S', "s"), bind("", "s", &[]), execute("", 0), sync()].concat());
        let received = raw.until('Z');
        assert_eq!(summary(&received), "t T 2 D C ZI", "{sql}");
        let description = &received[1].1;
        let type_at = description.len() - 12;
        assert_eq!(description[type_at..type_at + 4], u32::to_be_bytes(oid), "{sql}");
        assert_eq!(cells(&received[3].1), [Some(text.as_bytes().to_vec())], "{sql}");
        let found = one_cell(&mut raw, &[bind_in("", "s", &[], 0, 1), execute("", 0), sync()]);
        assert_eq!(hex(&found.unwrap()), binary, "{sql}");
        raw.answers(&[close('S', "s"), sync()].concat());
    }
}
