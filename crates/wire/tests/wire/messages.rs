//! The order of replies, message by message.

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
fn a_script_is_one_transaction_without_transaction_control() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&query("CREATE TABLE t (a int)")), "C ZI");
    assert_eq!(raw.answers(&query("INSERT INTO t VALUES (1); SELECT 1/0")), "C E22012 ZI");
    assert_eq!(count(&mut raw), "0");
    assert_eq!(
        raw.answers(&query("INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2); SELECT 1/0")),
        "C C C E22012 ZI"
    );
    assert_eq!(count(&mut raw), "1");
    assert_eq!(raw.answers(&query("INSERT INTO t VALUES (2); BEGIN; INSERT INTO t VALUES (3)")), "C C C ZT");
    assert_eq!(raw.answers(&query("ROLLBACK")), "C ZI");
    assert_eq!(count(&mut raw), "1");
    assert_eq!(raw.answers(&query("BEGIN; SELECT 1/0")), "C E22012 ZE");
    assert_eq!(raw.answers(&query("SELECT 1")), "E25P02 ZE");
    assert_eq!(raw.answers(&query("ROLLBACK")), "C ZI");
}

/// By both protocols.
#[test]
fn a_commit_after_an_error_within_rows_rolls_back_and_reports_it() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&query("CREATE TABLE t (a int)")), "C ZI");
    let extended = [parse("", "SELECT 1/0"), bind("", "", &[]), execute("", 0), sync()].concat();
    for failing in [query("SELECT 1/0"), extended] {
        assert_eq!(raw.answers(&query("BEGIN")), "C ZT");
        assert_eq!(raw.answers(&query("INSERT INTO t VALUES (1)")), "C ZT");
        let answers = raw.answers(&failing);
        assert!(answers.ends_with("E22012 ZE"), "{answers}");
        raw.send(&query("COMMIT"));
        let received = raw.until('Z');
        assert_eq!((summary(&received).as_str(), &received[0].1[..]), ("C ZI", &b"ROLLBACK\0"[..]));
        assert_eq!(count(&mut raw), "0");
    }
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
    // The statement remains, the portal is dropped.
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
    // Division by zero may be found during planning or at run time.
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
fn a_protocol_error_fails_the_transaction_block_too() {
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

    // Cut anywhere, with another statement in the same script.
    raw.send(&query("COPY t FROM STDIN; SELECT 1"));
    raw.until('G');
    assert_eq!(raw.answers(&[data(b"1\n2"), data(b"\n3\n"), done.clone()].concat()), "C T D C ZI");
    // Each row is a message of its own, even if it has several lines.
    assert_eq!(raw.answers(&query("COPY t TO STDOUT")), "H d d d c C ZI");
    let csv = "COPY (SELECT 'x' || chr(10) || 'y' FROM t) TO STDOUT WITH (FORMAT csv, HEADER)";
    assert_eq!(raw.answers(&query(csv)), "H d d d d c C ZI");

    // As in libpq, Sync is sent with Execute, and is ignored while the server waits for data.
    let open = [parse("", "COPY t FROM STDIN"), bind("", "", &[]), execute("", 0), sync()].concat();
    raw.send(&open);
    raw.until('G');
    assert_eq!(raw.answers(&[data(b"4\n"), done.clone(), sync()].concat()), "C ZI");
    assert_eq!(count(&mut raw), "4");

    // A client that aborts, and one that sends invalid data.
    raw.send(&query("COPY t FROM STDIN"));
    raw.until('G');
    assert_eq!(raw.answers(&[data(b"5\n"), message(b'f', b"no more\0")].concat()), "E57014 ZI");
    raw.send(&query("COPY t FROM STDIN"));
    raw.until('G');
    // The error may be found with the data or at its end; what follows it is ignored.
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

/// The settings that a statement reports, as `name=value`.
fn reported(received: &[Received]) -> Vec<String> {
    let reports = received.iter().filter(|(tag, _)| *tag == 'S');
    let text = |body: &[u8]| String::from_utf8(body.to_vec()).expect("text").replacen('\0', "=", 1);
    reports.map(|(_, body)| text(body).trim_end_matches('\0').to_owned()).collect()
}

#[test]
fn settings_are_reported_at_the_start_and_whichever_way_they_change() {
    let server = serve_plainly();
    let mut raw = Raw::silent(&server);
    raw.send(&startup(3 << 16, b"user\0tester\0options\0-c TimeZone=Asia/Seoul\0\0"));
    let at_start = reported(&raw.until('Z'));
    assert!(at_start.contains(&"TimeZone=Asia/Seoul".to_owned()), "{at_start:?}");
    for name in [
        "server_version",
        "server_encoding",
        "client_encoding",
        "DateStyle",
        "IntervalStyle",
        "integer_datetimes",
        "standard_conforming_strings",
        "is_superuser",
        "session_authorization",
        "application_name",
        "default_transaction_read_only",
        "in_hot_standby",
    ] {
        let is_reported = at_start.iter().any(|report| report.starts_with(&format!("{name}=")));
        assert!(is_reported, "{name} in {at_start:?}");
    }
    let mut raw = Raw::connect(&server);
    let set = |value: &str, local: bool| format!("SELECT set_config('TimeZone', '{value}', {local})");
    for (sql, expected) in [
        ("SET TimeZone = 'Asia/Tokyo'".to_owned(), &["TimeZone=Asia/Tokyo"][..]),
        (set("America/Chicago", false), &["TimeZone=America/Chicago"]),
        ("BEGIN; SET LOCAL TimeZone = 'Europe/Paris'".to_owned(), &["TimeZone=Europe/Paris"]),
        ("COMMIT".to_owned(), &["TimeZone=America/Chicago"]),
        (format!("BEGIN; {}", set("Asia/Kolkata", true)), &["TimeZone=Asia/Kolkata"]),
        ("ROLLBACK".to_owned(), &["TimeZone=America/Chicago"]),
        (format!("BEGIN; SAVEPOINT s; {}", set("Asia/Dubai", false)), &["TimeZone=Asia/Dubai"]),
        ("ROLLBACK TO s".to_owned(), &["TimeZone=America/Chicago"]),
        (format!("{}; COMMIT", set("Asia/Dubai", false)), &["TimeZone=Asia/Dubai"]),
        ("SET default_transaction_read_only = on".to_owned(), &["default_transaction_read_only=on"]),
        ("RESET ALL".to_owned(), &["TimeZone=UTC", "default_transaction_read_only=off"]),
        (
            "SELECT set_config(n, v, false) FROM (VALUES ('TimeZone', 'Asia/Baku'), ('application_name', 'x')) s(n, v)"
                .to_owned(),
            &["TimeZone=Asia/Baku", "application_name=x"],
        ),
        ("DISCARD ALL".to_owned(), &["TimeZone=UTC", "application_name="]),
    ] {
        raw.send(&query(&sql));
        let mut reports = reported(&raw.until('Z'));
        reports.sort();
        assert_eq!(reports, expected, "{sql}");
    }
}

#[test]
fn the_function_call_protocol_is_refused_politely() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&message(b'F', b"\0\0\0\x01\0\0\0\0\0\0")), "E0A000 ZI");
}

#[test]
fn statements_without_row_counts_have_tags_without_numbers() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.send(&query("SHOW TimeZone; EXPLAIN SELECT 1; SELECT 1"));
    let received = raw.until('Z');
    let tags: Vec<_> = received.iter().filter(|(tag, _)| *tag == 'C').map(|(_, body)| &body[..]).collect();
    assert_eq!(tags, [&b"SHOW\0"[..], b"EXPLAIN\0", b"SELECT 1\0"]);
}

#[test]
fn a_portal_is_described_in_the_formats_that_it_was_bound_with() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&[parse("s", "SELECT $1::int"), sync()].concat());
    for format in [0u16, 1, 1, 0] {
        let series = [bind_in("", "s", &[Some(b"7")], 0, format), describe('P', ""), execute("", 0)];
        raw.send(&[series.concat(), describe('S', "s"), sync()].concat());
        let received = raw.until('Z');
        assert_eq!(summary(&received), "2 T D C t T ZI");
        // A RowDescription ends with the format of its last column.
        assert!(received[1].1.ends_with(&format.to_be_bytes()));
        assert!(received[5].1.ends_with(&[0, 0]));
        let seven = if format == 0 { b"7".to_vec() } else { 7i32.to_be_bytes().to_vec() };
        assert_eq!(cells(&received[2].1), [Some(seven)]);
    }
}

/// Through an index, alone, as one of several in a pipeline, and in portions.
#[test]
fn rows_of_short_queries_come_alike_whichever_way_they_are_asked_for() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    let fill = "INSERT INTO t SELECT g, g::text FROM generate_series(1, 30) g";
    raw.answers(&query(&format!("CREATE TABLE t (a int PRIMARY KEY, b text); {fill}")));
    raw.answers(&[parse("s", "SELECT b FROM t WHERE a > $1"), sync()].concat());
    let mut rows_and_tags = |messages: &[Vec<u8>]| {
        raw.send(&messages.concat());
        let (mut rows, mut tags) = (Vec::new(), Vec::new());
        for (tag, body) in raw.until('Z') {
            match tag {
                'D' => rows.extend(cells(&body)),
                'C' => tags.push(String::from_utf8(body).unwrap()),
                _ => {}
            }
        }
        (rows, tags)
    };
    for above in [0, 15, 20, 21, 28, 29, 30, 1000] {
        let bind = bind("", "s", &[&above.to_string()]);
        let count = 30i32.saturating_sub(above).max(0);
        let expected: Vec<_> = (above + 1..=30).map(|row| Some(row.to_string().into_bytes())).collect();
        let tag = format!("SELECT {count}\0");
        let (rows, tags) = rows_and_tags(&[bind.clone(), execute("", 0), sync()]);
        assert_eq!((rows, tags), (expected.clone(), vec![tag.clone()]));
        let once = [bind.clone(), execute("", 0)].concat();
        let (rows, tags) = rows_and_tags(&[once.clone(), once, sync()]);
        assert_eq!((rows, tags), ([expected.clone(), expected.clone()].concat(), vec![tag.clone(), tag]));
        // The tag of a suspended portal counts the rows since.
        let (rows, tags) = rows_and_tags(&[bind, execute("", 14), execute("", 0), sync()]);
        let rest = if count < 14 { 0 } else { count - 14 };
        assert_eq!((rows, tags.last().unwrap()), (expected, &format!("SELECT {rest}\0")));
    }
}

#[test]
fn numbers_as_text_may_have_signs_blanks_and_zeros() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    for ty in ["int", "bigint"] {
        for (text, number) in
            [("0", "0"), ("999999999", "999999999"), ("0000000000012", "12"), ("-7", "-7"), (" +7 ", "7")]
        {
            raw.send(
                &[parse("", &format!("SELECT $1::{ty}")), bind("", "", &[text]), execute("", 0), sync()]
                    .concat(),
            );
            let received = raw.until('Z');
            assert_eq!(cells(&received[2].1), [Some(number.as_bytes().to_vec())], "{ty} {text}");
        }
        for text in ["", "1:", "1/"] {
            let series = [parse("", &format!("SELECT $1::{ty}")), bind("", "", &[text]), sync()];
            assert_eq!(raw.answers(&series.concat()), "1 E22P02 ZI", "{ty} {text:?}");
        }
    }
}

#[test]
fn sql_and_messages_share_the_names_of_prepared_statements() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&[parse("A b", "SELECT $1::int + 1"), sync()].concat()), "1 ZI");
    assert_eq!(raw.answers(&query("EXECUTE \"A b\" (1)")), "T D C ZI");
    assert_eq!(raw.answers(&query("DEALLOCATE \"A b\"")), "C ZI");
    assert_eq!(raw.answers(&[bind("", "A b", &["1"]), sync()].concat()), "E26000 ZI");
    assert_eq!(raw.answers(&query("PREPARE p AS SELECT $1::int")), "C ZI");
    assert_eq!(raw.answers(&[describe('S', "p"), sync()].concat()), "t T ZI");
    assert_eq!(raw.answers(&[bind("", "p", &["7"]), execute("", 0), sync()].concat()), "2 D C ZI");
    assert_eq!(raw.answers(&[parse("p", "SELECT 1"), sync()].concat()), "E42P05 ZI");
    assert_eq!(raw.answers(&query("DISCARD ALL")), "C ZI");
    // The name is free again, and its earlier meaning is dropped.
    assert_eq!(raw.answers(&[parse("p", "SELECT 1, 2"), describe('S', "p"), sync()].concat()), "1 t T ZI");
    assert_eq!(raw.answers(&[close('S', "p"), bind("", "p", &[]), sync()].concat()), "3 E26000 ZI");
}

#[test]
fn a_binary_cursor_sends_binary_values() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("BEGIN; DECLARE b BINARY CURSOR FOR SELECT 258"));
    raw.send(&query("FETCH b"));
    let received = raw.until('Z');
    assert_eq!(summary(&received), "T D C ZT");
    assert_eq!(received[1].1, b"\0\x01\0\0\0\x04\0\0\x01\x02");
}

#[test]
fn notifications_arrive_when_idle_or_after_the_block() {
    let server = serve_plainly();
    let (mut listening, mut sending) = (Raw::connect(&server), Raw::connect(&server));
    assert_eq!(listening.answers(&query("LISTEN news")), "C ZI");
    assert_eq!(sending.answers(&query("NOTIFY news, 'one'")), "C ZI");
    let received = listening.until('A');
    assert!(received[0].1.ends_with(b"news\0one\0"), "{received:?}");
    assert_eq!(listening.answers(&query("BEGIN")), "C ZT");
    assert_eq!(sending.answers(&query("NOTIFY news")), "C ZI");
    assert_eq!(sending.answers(&query("BEGIN; NOTIFY news, 'lost'; ROLLBACK")), "C C C ZI");
    assert_eq!(listening.answers(&query("SELECT 1")), "T D C ZT");
    assert_eq!(listening.answers(&query("COMMIT")), "C A ZI");
    assert_eq!(listening.answers(&query("NOTIFY news, 'own'")), "C A ZI");
    assert_eq!(listening.answers(&query("UNLISTEN *; NOTIFY news")), "C C ZI");
}

#[test]
fn what_functions_set_is_reported_too() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    let set = |value: &str, local: bool| query(&format!("SELECT set_config('TimeZone', '{value}', {local})"));
    assert_eq!(raw.answers(&set("Asia/Tokyo", false)), "T D C S ZI");
    assert_eq!(raw.answers(&query("BEGIN")), "C ZT");
    assert_eq!(raw.answers(&set("Asia/Dubai", true)), "T D C S ZT");
    assert_eq!(raw.answers(&query("ROLLBACK")), "C S ZI");
    let several = "SELECT set_config('application_name', n, false) FROM (VALUES ('a'), ('b')) AS v(n)";
    assert_eq!(raw.answers(&query(several)), "T D D C S ZI");
}

#[test]
fn the_database_has_the_name_by_which_it_was_asked_for() {
    let server = serve_plainly();
    for (asked, name) in [("database\0shop\0", "shop"), ("", "tester")] {
        let mut raw = Raw::silent(&server);
        raw.send(&startup(3 << 16, format!("user\0tester\0{asked}\0").as_bytes()));
        raw.until('Z');
        raw.send(&query("SELECT datname FROM pg_database WHERE datname = current_database()"));
        let received = raw.until('Z');
        assert!(received[1].1.ends_with(name.as_bytes()), "{received:?}");
    }
}

#[test]
fn rows_of_returning_are_copied_out() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a int, s text); INSERT INTO t VALUES (1, 'x'), (2, 'y')"));
    assert_eq!(raw.answers(&query("COPY (UPDATE t SET s = 'z' RETURNING a, s) TO STDOUT")), "H d d c C ZI");
    assert_eq!(raw.answers(&query("COPY (SELECT * FROM t FOR UPDATE) TO STDOUT")), "H d d c C ZI");
    assert_eq!(
        raw.answers(&query("BEGIN; COPY (DELETE FROM t RETURNING s) TO STDOUT; ROLLBACK")),
        "C H d d c C C ZI"
    );
    assert_eq!(raw.answers(&query("COPY (DELETE FROM t) TO STDOUT")), "E0A000 ZI");
    assert_eq!(count(&mut raw), "2");
}

/// Strings are received and sent in `client_encoding`: of statements, parameters, rows, names and errors.
#[test]
fn strings_are_in_the_encoding_of_the_client() {
    let server = serve_plainly();
    let mut raw = Raw::silent(&server);
    raw.send(&startup(3 << 16, b"user\0tester\0client_encoding\0LATIN1\0\0"));
    let received = raw.until('Z');
    assert!(received.iter().any(|(tag, body)| *tag == 'S' && body == b"client_encoding\0LATIN1\0"));
    let cell = |received: &[Received]| {
        let (_, row) = received.iter().find(|(tag, _)| *tag == 'D').expect("a row");
        row[6..].to_vec()
    };
    let latin = |sql: &[u8]| message(b'Q', &[sql, &b"\0"[..]].concat());
    raw.send(&latin(b"SELECT '\xe4' || chr(246) AS \"\xfc\", length('\xe4')"));
    let received = raw.until('Z');
    let (_, names) = &received[0];
    assert_eq!(names[2..4], *b"\xfc\0");
    assert_eq!(cell(&received), b"\xe4\xf6\0\0\0\x011");
    let bound = bind_in("", "", &[Some(b"\xe4")], 0, 0);
    let parameter = [parse("", "SELECT upper($1), $1 = chr(228)"), bound, execute("", 0), sync()];
    raw.send(&parameter.concat());
    assert_eq!(cell(&raw.until('Z')), b"\xc4\0\0\0\x01t");
    // A character without a code is an error of its row, and becomes a question mark in an error.
    assert_eq!(raw.answers(&query("SELECT chr(8364)")), "T E22P05 ZI");
    raw.send(&latin(b"SELECT \"\xe4\""));
    let received = raw.until('Z');
    let shown = b"column \"\xe4\" does not exist";
    assert!(received[0].1.windows(shown.len()).any(|part| part == shown));
    assert_eq!(raw.answers(&query("SET client_encoding = UTF8")), "C S ZI");
    raw.send(&query("SELECT 'ä'"));
    assert_eq!(cell(&raw.until('Z')), "ä".as_bytes());
}
