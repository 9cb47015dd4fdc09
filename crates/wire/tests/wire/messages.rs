//! The order of answers, message by message.

use crate::raw::*;

#[test]
fn a_script_answers_each_statement_and_is_ready_once() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&query("SELECT 1; SELECT 2")), "T D C T D C ZI");
    assert_eq!(raw.answers(&query("")), "I ZI");
    assert_eq!(raw.answers(&query(" ; ;")), "I ZI");
}

#[test]
fn a_script_is_one_transaction_unless_it_says_otherwise() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&query("CREATE TABLE t (a int)")), "C ZI");
    assert_eq!(raw.answers(&query("INSERT INTO t VALUES (1); SELECT 1/0")), "C T E22012 ZI");
    assert_eq!(count(&mut raw), "0");
    assert_eq!(
        raw.answers(&query("INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2); SELECT 1/0")),
        "C C C T E22012 ZI"
    );
    assert_eq!(count(&mut raw), "1");
    assert_eq!(raw.answers(&query("INSERT INTO t VALUES (2); BEGIN; INSERT INTO t VALUES (3)")), "C C C ZT");
    assert_eq!(raw.answers(&query("ROLLBACK")), "C ZI");
    assert_eq!(count(&mut raw), "1");
    assert_eq!(raw.answers(&query("BEGIN; SELECT 1/0")), "C T E22012 ZE");
    assert_eq!(raw.answers(&query("SELECT 1")), "E25P02 ZE");
    assert_eq!(raw.answers(&query("ROLLBACK")), "C ZI");
}

fn count(raw: &mut Raw) -> String {
    raw.send(&query("SELECT count(*) FROM t"));
    let received = raw.until('Z');
    let (_, row) = received.iter().find(|(tag, _)| *tag == 'D').expect("a row");
    String::from_utf8(row[6..].to_vec()).unwrap()
}

#[test]
fn an_error_in_a_later_statement_points_into_the_whole_script() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.send(&query("SELECT 'é';\n SELECT nonsense"));
    let received = raw.until('Z');
    let (_, error) = received.iter().find(|(tag, _)| *tag == 'E').expect("an error");
    assert_eq!(field(error, b'C').as_deref(), Some("42703"));
    if let Some(position) = field(error, b'P') {
        assert_eq!(position, "21");
    }
}

#[test]
fn the_extended_protocol_answers_in_order_and_only_after_sync_in_full() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    let series = [
        parse("s", "SELECT $1::int + 1"),
        describe('S', "s"),
        bind("p", "s", &["41"]),
        describe('P', "p"),
        execute("p", 0),
        close('P', "p"),
        sync(),
    ];
    raw.send(&series.concat());
    let received = raw.until('Z');
    assert_eq!(summary(&received), "1 t T 2 T D C 3 ZI");
    assert_eq!(received[5].1, b"\0\x01\0\0\0\x0242");
    // The statement stays, the portal is gone.
    assert_eq!(raw.answers(&[bind("", "s", &["1"]), execute("", 0), sync()].concat()), "2 D C ZI");
    assert_eq!(raw.answers(&[execute("p", 0), sync()].concat()), "E34000 ZI");
    assert_eq!(raw.answers(&[execute("", 0), sync()].concat()), "E34000 ZI");
    assert_eq!(raw.answers(&[parse("s", "SELECT 1"), sync()].concat()), "E42P05 ZI");
    assert_eq!(raw.answers(&[close('S', "s"), parse("s", "SELECT 1"), sync()].concat()), "3 1 ZI");
}

#[test]
fn after_an_error_everything_up_to_sync_is_skipped() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    let one = [parse("", "SELECT 1"), bind("", "", &[]), execute("", 0)].concat();
    let bad = [parse("", "SELECT 1/0"), bind("", "", &[]), execute("", 0)].concat();
    let answers = raw.answers(&[one.clone(), bad, one.clone(), query("SELECT 1"), sync()].concat());
    // Division by zero may be found when planning or when running.
    assert!(
        ["1 2 D C E22012 ZI", "1 2 D C 1 E22012 ZI", "1 2 D C 1 2 E22012 ZI"].contains(&answers.as_str())
    );
    assert_eq!(raw.answers(&[one, sync()].concat()), "1 2 D C ZI");
}

#[test]
fn everything_between_two_syncs_is_one_transaction() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a int)"));
    let insert = [parse("", "INSERT INTO t VALUES (1)"), bind("", "", &[]), execute("", 0)].concat();
    let bad = execute("no such portal", 0);
    assert_eq!(raw.answers(&[insert.clone(), bad, sync()].concat()), "1 2 C E34000 ZI");
    assert_eq!(count(&mut raw), "0");
    assert_eq!(raw.answers(&[insert.clone(), insert, sync()].concat()), "1 2 C 1 2 C ZI");
    assert_eq!(count(&mut raw), "2");
}

#[test]
fn a_mistake_found_by_the_protocol_fails_the_transaction_block_too() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&query("BEGIN")), "C ZT");
    assert_eq!(raw.answers(&[execute("no such portal", 0), sync()].concat()), "E34000 ZE");
    assert_eq!(raw.answers(&query("ROLLBACK")), "C ZI");
}

#[test]
fn a_row_limit_suspends_a_portal_until_it_is_executed_again() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&query("BEGIN")), "C ZT");
    let open =
        [parse("", "SELECT * FROM generate_series(1, 7)"), bind("c", "", &[]), execute("c", 3), sync()];
    assert_eq!(raw.answers(&open.concat()), "1 2 D D D s ZT");
    // Other statements may run in between.
    assert_eq!(raw.answers(&query("SELECT 1")), "T D C ZT");
    assert_eq!(raw.answers(&[execute("c", 3), sync()].concat()), "D D D s ZT");
    assert_eq!(raw.answers(&[execute("c", 3), sync()].concat()), "D C ZT");
    assert_eq!(raw.answers(&[execute("c", 3), sync()].concat()), "C ZT");
    assert_eq!(raw.answers(&query("COMMIT")), "C ZI");
    assert_eq!(raw.answers(&[execute("c", 3), sync()].concat()), "E34000 ZI");
}

#[test]
fn a_declared_cursor_can_be_described_as_a_portal() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&query("BEGIN; DECLARE \"C\" CURSOR FOR SELECT 1 AS one")), "C C ZT");
    assert_eq!(raw.answers(&[describe('P', "C"), sync()].concat()), "T ZT");
    assert_eq!(raw.answers(&[describe('P', "c"), sync()].concat()), "E34000 ZE");
}

#[test]
fn flush_answers_without_sync() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.send(&[parse("", "SELECT 1"), message(b'H', b"")].concat());
    assert_eq!(summary(&raw.until('1')), "1");
    raw.send(&[bind("", "", &[]), execute("", 0), message(b'H', b"")].concat());
    assert_eq!(summary(&raw.until('C')), "2 D C");
    assert_eq!(raw.answers(&sync()), "ZI");
}

#[test]
fn copy_goes_both_ways_in_both_protocols() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a int)"));
    let data = |bytes: &[u8]| message(b'd', bytes);
    let done = message(b'c', b"");

    // Cut anywhere, with a statement behind it in the same script.
    raw.send(&query("COPY t FROM STDIN; SELECT 1"));
    raw.until('G');
    assert_eq!(raw.answers(&[data(b"1\n2"), data(b"\n3\n"), done.clone()].concat()), "C T D C ZI");
    // Each row is a message of its own, even if it has several lines.
    assert_eq!(raw.answers(&query("COPY t TO STDOUT")), "H d d d c C ZI");
    let csv = "COPY (SELECT 'x' || chr(10) || 'y' FROM t) TO STDOUT WITH (FORMAT csv, HEADER)";
    assert_eq!(raw.answers(&query(csv)), "H d d d d c C ZI");

    // libpq's way: Sync comes with Execute and is ignored while data is awaited.
    let open = [parse("", "COPY t FROM STDIN"), bind("", "", &[]), execute("", 0), sync()].concat();
    raw.send(&open);
    raw.until('G');
    assert_eq!(raw.answers(&[data(b"4\n"), done.clone(), sync()].concat()), "C ZI");
    assert_eq!(count(&mut raw), "4");

    // A client that gives up, and one that sends nonsense.
    raw.send(&query("COPY t FROM STDIN"));
    raw.until('G');
    assert_eq!(raw.answers(&[data(b"5\n"), message(b'f', b"no more\0")].concat()), "E57014 ZI");
    raw.send(&query("COPY t FROM STDIN"));
    raw.until('G');
    // The error may come with the data or at its end; what follows it is ignored.
    raw.send(&[data(b"5\n!\n"), done].concat());
    let answers = summary(&raw.until('Z'));
    assert!(answers.starts_with("E22") && answers.ends_with(" ZI"), "{answers}");
    assert_eq!(count(&mut raw), "4");
}

#[test]
fn a_copy_that_fails_in_a_pipeline_skips_to_sync_and_leaves_nothing() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a int)"));
    let insert = [parse("", "INSERT INTO t VALUES (1)"), bind("", "", &[]), execute("", 0)].concat();
    let copy = [parse("", "COPY t FROM STDIN"), bind("", "", &[]), execute("", 0)].concat();
    raw.send(&[insert.clone(), copy].concat());
    raw.send(&message(b'H', b""));
    raw.until('G');
    // A message that does not belong to a COPY ends it; what follows up to Sync is ignored.
    let rest = [message(b'd', b"2\n"), insert.clone(), message(b'c', b""), insert, sync()].concat();
    assert_eq!(raw.answers(&rest), "E08P01 ZI");
    assert_eq!(count(&mut raw), "0");
}

#[test]
fn a_query_during_copy_fails_the_copy_and_is_not_run() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a int)"));
    raw.send(&query("COPY t FROM STDIN"));
    raw.until('G');
    raw.send(&[message(b'd', b"1\n"), query("INSERT INTO t VALUES (7)")].concat());
    assert_eq!(summary(&raw.until('Z')), "E08P01 ZI");
    assert_eq!(count(&mut raw), "0");
}

#[test]
fn a_portal_of_a_statement_that_changes_rows_can_be_read_in_portions_too() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a int)"));
    raw.answers(&query("BEGIN"));
    let open = [
        parse("", "INSERT INTO t SELECT * FROM generate_series(1, 5) RETURNING a"),
        bind("p", "", &[]),
        execute("p", 3),
        sync(),
    ];
    assert_eq!(raw.answers(&open.concat()), "1 2 D D D s ZT");
    raw.send(&[execute("p", 3), sync()].concat());
    let received = raw.until('Z');
    assert_eq!(summary(&received), "D D C ZT");
    assert_eq!(received[2].1, b"INSERT 0 5\0");
    assert_eq!(raw.answers(&query("COMMIT")), "C ZI");
    assert_eq!(count(&mut raw), "5");
}

#[test]
fn a_client_that_vanishes_during_copy_leaves_nothing_behind() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a int)"));
    let mut vanishing = Raw::connect(&server);
    vanishing.send(&query("COPY t FROM STDIN"));
    vanishing.until('G');
    vanishing.send(&message(b'd', b"1\n2\n3"));
    drop(vanishing);
    assert_eq!(count(&mut raw), "0");
}

#[test]
fn a_pipeline_of_many_round_trips_is_answered_in_order() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&[parse("s", "SELECT $1::int"), sync()].concat());
    let mut all = Vec::new();
    for number in 0..1000 {
        all.extend([bind("", "s", &[&number.to_string()]), execute("", 0), sync()].concat());
    }
    raw.send(&all);
    for number in 0..1000 {
        let received = raw.until('Z');
        assert_eq!(summary(&received), "2 D C ZI");
        assert_eq!(&received[1].1[6..], number.to_string().as_bytes());
    }
}

#[test]
fn changed_settings_are_reported_even_when_a_rollback_changes_them() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&query("SET application_name = 'x'")), "C S ZI");
    assert_eq!(raw.answers(&query("SET application_name = 'x'")), "C ZI");
    assert_eq!(raw.answers(&query("BEGIN; SET application_name = 'y'")), "C C S ZT");
    assert_eq!(raw.answers(&query("ROLLBACK")), "C S ZI");
}

#[test]
fn the_function_call_protocol_is_refused_politely() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&message(b'F', b"\0\0\0\x01\0\0\0\0\0\0")), "E0A000 ZI");
}

#[test]
fn statements_whose_rows_nobody_counts_tell_no_number() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.send(&query("SHOW TimeZone; EXPLAIN SELECT 1; SELECT 1"));
    let received = raw.until('Z');
    let tags: Vec<_> = received.iter().filter(|(tag, _)| *tag == 'C').map(|(_, body)| &body[..]).collect();
    assert_eq!(tags, [&b"SHOW\0"[..], b"EXPLAIN\0", b"SELECT 1\0"]);
}
