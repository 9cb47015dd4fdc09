//! Portals: what each Execute does, and what it does not.

use crate::raw::*;
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
