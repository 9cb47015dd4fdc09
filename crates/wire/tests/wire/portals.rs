//! Portals: what each Execute does, and what it does not.

use crate::raw::*;
use firn_session::Database;
use firn_wire::{Server, WireConfig};
use std::time::{Duration, Instant};

/// The bound is for a machine that does much else: the rows are there in less than a millisecond.
#[test]
fn a_portal_over_a_result_without_end_gives_its_first_rows_at_once() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    for endless in [
        "SELECT i, 'row ' || i FROM generate_series(1, 1000000000000000) AS i",
        "WITH RECURSIVE r (i) AS (SELECT 1::bigint UNION ALL SELECT i + 1 FROM r) SELECT i, 'row ' || i FROM r",
        "SELECT a.i, b.i FROM generate_series(1, 1000000000000000) AS a (i), generate_series(1, 3) AS b (i)",
    ] {
        assert_eq!(raw.answers(&query("BEGIN")), "C ZT");
        let begin = Instant::now();
        let open = [parse("", endless), bind("c", "", &[]), execute("c", 1), sync()].concat();
        assert_eq!(raw.answers(&open), "1 2 D s ZT", "{endless}");
        assert!(begin.elapsed() < Duration::from_secs(2), "{endless}: {:?}", begin.elapsed());
        for _ in 0..5 {
            raw.send(&[execute("c", 10_000), sync()].concat());
            let rows = raw.until('Z');
            assert_eq!(rows.iter().filter(|(tag, _)| *tag == 'D').count(), 10_000, "{endless}");
        }
        assert_eq!(raw.answers(&query("COMMIT")), "C ZI");
        // Nor does anything else that ends its block read the rest.
        let begin = Instant::now();
        for (sql, answers) in [
            ("COMMIT AND CHAIN; ROLLBACK", "C C ZI"),
            ("ROLLBACK", "C ZI"),
            ("SELECT 1; COMMIT", "T D C C ZI"),
        ] {
            let open = [parse("", endless), bind("c", "", &[]), execute("c", 1), sync()].concat();
            assert_eq!(raw.answers(&query("BEGIN")), "C ZT");
            assert_eq!(raw.answers(&open), "1 2 D s ZT", "{endless}");
            assert_eq!(raw.answers(&query(sql)), answers, "{endless}");
        }
        let pipelined =
            [parse("", endless), bind("", "", &[]), execute("", 1), close('S', "none"), sync()].concat();
        assert_eq!(raw.answers(&pipelined), "1 2 D s 3 ZI", "{endless}");
        assert!(begin.elapsed() < Duration::from_secs(4), "{endless}: {:?}", begin.elapsed());
        // Without a block it ends with Sync.
        let begin = Instant::now();
        let open = [parse("", endless), bind("", "", &[]), execute("", 2), sync()].concat();
        assert_eq!(raw.answers(&open), "1 2 D D s ZI", "{endless}");
        assert!(begin.elapsed() < Duration::from_secs(2), "{endless}: {:?}", begin.elapsed());
    }
}

/// The server counts plans.
#[test]
fn neither_bind_nor_execute_plans() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query(
        "CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t SELECT i, i FROM generate_series(1, 100) i",
    ));
    let plans = |raw: &mut Raw| -> u64 {
        raw.send(&query("SELECT value FROM firn_stat_engine WHERE name = 'plans'"));
        let received = raw.until('Z');
        let (_, row) = received.iter().find(|(tag, _)| *tag == 'D').expect("a row");
        String::from_utf8(cells(row)[0].clone().unwrap()).unwrap().parse().unwrap()
    };
    plans(&mut raw);
    let before = plans(&mut raw);
    let statements = [
        parse("short", "SELECT b FROM t WHERE a = $1"),
        parse("long", "SELECT count(*), max(b) FROM t x JOIN t y USING (a, b) WHERE a > $1"),
        parse("changes", "UPDATE t SET b = b || 'x' WHERE a = $1 RETURNING b"),
        sync(),
    ];
    assert_eq!(raw.answers(&statements.concat()), "1 1 1 ZI");
    assert_eq!(plans(&mut raw), before + 3);
    for number in 1..50 {
        for name in ["short", "long", "changes"] {
            let run = [bind("", name, &[&number.to_string()]), execute("", number % 2), sync()];
            let answers = raw.answers(&run.concat());
            assert!(["2 D C ZI", "2 D s ZI"].contains(&answers.as_str()), "{name}: {answers}");
        }
    }
    assert_eq!(plans(&mut raw), before + 3);
}

/// A primary that cannot be certain to be one: what its clients have read may be of the past.
#[test]
fn a_portal_that_is_closed_early_waits_for_what_the_end_of_its_query_waits_for() {
    let database = Database::memory().unwrap();
    let config = WireConfig { listen: vec!["127.0.0.1:0".to_owned()], ..WireConfig::default() };
    let server = Server::start(database.clone(), config).unwrap();
    let mut raw = Raw::connect(&server);
    raw.answers(&query(
        "CREATE TABLE t AS SELECT generate_series(1, 5000) AS a; SET statement_timeout = 100",
    ));
    let take =
        |portal: &str| [parse("", "SELECT a FROM t"), bind(portal, "", &[]), execute(portal, 2)].concat();
    // How the portal ends, and the answer.
    let ends = [
        ("", sync(), ""),
        ("named", sync(), ""),
        ("named", [close('P', "named"), sync()].concat(), "3 "),
        ("", [close('P', ""), sync()].concat(), "3 "),
        ("", [bind("", "", &[]), sync()].concat(), "2 "),
        ("named", [execute("named", 2), close('P', "named"), sync()].concat(), "D D s 3 "),
    ];
    for (portal, end, answer) in &ends {
        let answers = raw.answers(&[take(portal), end.clone()].concat());
        assert_eq!(answers, format!("1 2 D D s {answer}ZI"));
    }
    database.engine().set_lease(Some(0));
    for (portal, end, answer) in &ends {
        raw.send(&[take(portal), end.clone()].concat());
        let received = raw.until('Z');
        assert_eq!(summary(&received), format!("1 2 D D s {answer}E57014 ZI"));
        // Nothing is left of it.
        assert_eq!(raw.answers(&[execute(portal, 1), sync()].concat()), "E34000 ZI");
    }
    raw.answers(&query("SET statement_timeout = 0"));
    let waits = [take(""), sync()].concat();
    let renews = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let renewed = Instant::now();
        database.engine().set_lease(None);
        renewed
    });
    assert_eq!(raw.answers(&waits), "1 2 D D s ZI");
    let answered = Instant::now();
    assert!(answered >= renews.join().unwrap());
}
