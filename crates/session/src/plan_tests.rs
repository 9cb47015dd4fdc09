//! Plans: what keeps them, and for how long.

use crate::table_waiting_tests::until;
use crate::{Config, Connection, Database, TransactionStatus};
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::{Value, thread};
use std::time::{Duration, Instant};

/// There is no room for twice the rows of the table. The connection that has prepared the statements does nothing after the DDL.
#[test]
fn no_prepared_statement_keeps_a_table_that_is_dropped_or_truncated() {
    // Room for two tables: a dropped one is freed a little later, once its old versions are collected.
    let database = Database::open_with(Config { memory_limit: Some(40 << 20), ..Config::default() }).unwrap();
    let (mut connection, mut idle) = (database.connect(), database.connect());
    let create = "CREATE TABLE IF NOT EXISTS big (a bigint PRIMARY KEY, b text)";
    let fill = "INSERT INTO big SELECT g, repeat(g::text, 20) FROM generate_series(1, 100000) g";
    for ddl in ["TRUNCATE big", "DROP TABLE big", "BEGIN; DROP TABLE big; COMMIT"] {
        connection.execute(create).unwrap();
        connection.execute("TRUNCATE big").unwrap();
        connection.execute(fill).unwrap();
        let statements = [
            "SELECT b FROM big WHERE a = $1",
            "SELECT count(*) FROM big WHERE a > $1",
            "SELECT b FROM big WHERE a = $1 FOR UPDATE",
            "UPDATE big SET b = b WHERE a = $1",
            "INSERT INTO big VALUES ($1, '') ON CONFLICT DO NOTHING",
        ];
        let statements = statements.map(|sql| idle.prepare(sql).unwrap());
        for statement in &statements {
            idle.execute_statement(statement, &[Value::Integer(1)]).unwrap();
            assert!(statement.keeps_plan());
        }
        idle.execute("PREPARE named AS SELECT count(*) FROM big; EXECUTE named").unwrap();
        connection.execute(ddl).unwrap();
        assert!(!statements.iter().any(|statement| statement.keeps_plan()), "{ddl}");
        connection.execute(create).unwrap();
        // Memory is freed once no thread of the process has a guard from before, also those of other tests.
        let begun = Instant::now();
        while let Err(error) = connection.execute(fill) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{ddl}: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        // They are planned again, and keep the new plan.
        for statement in &statements {
            idle.execute_statement(statement, &[Value::Integer(1)]).unwrap();
            assert!(statement.keeps_plan());
        }
        idle.execute("EXECUTE named; DEALLOCATE named").unwrap();
    }
}

/// A plan that is the same was not made again. Once only the test has it, nothing else keeps it.
#[test]
fn a_block_that_reads_an_older_catalog_keeps_its_plans_for_itself_until_it_ends() {
    let database = Database::memory().unwrap();
    let (mut connection, mut other) = (database.connect(), database.connect());
    other
        .execute("CREATE TABLE t (a bigint PRIMARY KEY); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT a FROM t")
        .unwrap();
    let text = "SELECT count(*) FROM v";
    let kept = |connection: &Connection| connection.block.own_plans()?.get(text, &[], |_| true);
    for (number, ends) in ["COMMIT", "ROLLBACK", "an error"].into_iter().enumerate() {
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t").unwrap();
        connection.query(text).unwrap();
        assert!(kept(&connection).is_none(), "it reads the same catalog as all others");
        other.execute(&format!("CREATE TABLE u{number} (a bigint)")).unwrap();
        connection.query(text).unwrap();
        assert!(kept(&connection).is_none(), "it reads the same view as all others");
        other.execute("CREATE OR REPLACE VIEW v AS SELECT a FROM t WHERE a > 0").unwrap();
        let statement = connection.prepare(text).unwrap();
        let plan = kept(&connection).expect("it was planned");
        assert!(!statement.keeps_plan());
        connection.query(text).unwrap();
        connection.query_statement(&statement, &[]).unwrap();
        assert!(Arc::ptr_eq(&plan, &kept(&connection).unwrap()));
        match ends {
            "an error" => drop(connection.execute("INSERT INTO t VALUES (1)").unwrap_err()),
            statement => drop(connection.execute(statement).unwrap()),
        }
        assert_eq!(Arc::strong_count(&plan), 1, "{ends}");
        connection.execute("ROLLBACK").unwrap();
        connection.query_statement(&statement, &[]).unwrap();
        assert!(statement.keeps_plan());
    }
}

/// The block's client does nothing after it was idle for too long, and the test only reads the state of the block.
#[test]
fn a_block_that_was_idle_for_too_long_keeps_no_plans() {
    const HURRY: &str = "SET LOCAL idle_in_transaction_session_timeout = '5ms'";
    let database = Database::memory().unwrap();
    let (mut connection, mut other) = (database.connect(), database.connect());
    other
        .execute("CREATE TABLE t (a bigint PRIMARY KEY); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT a FROM t")
        .unwrap();
    let kept = |connection: &Connection, text: &str| {
        let own_plans = connection.block.own_plans().expect("it is in a block");
        own_plans.get(text, &[], |_| true).expect("no other transaction can use it")
    };
    let text = "SELECT count(*) FROM v";
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t").unwrap();
    other.execute("CREATE OR REPLACE VIEW v AS SELECT a FROM t WHERE a > 0").unwrap();
    connection.query(text).unwrap();
    let plan = kept(&connection, text);
    connection.execute(HURRY).unwrap();
    until(|| connection.status() == TransactionStatus::Failed);
    assert_eq!(Arc::strong_count(&plan), 1);
    connection.execute("ROLLBACK").unwrap();
    // Plans of what it has changed are dropped as well.
    let text = "SELECT count(*) FROM own";
    connection.execute("BEGIN; CREATE TABLE own (a bigint)").unwrap();
    let statement = connection.prepare(text).unwrap();
    assert!(statement.keeps_plan() && database.shared.statements.lists(&statement));
    let plan = kept(&connection, text);
    assert!(database.shared.plans.all_hold(database.engine()));
    connection.execute(HURRY).unwrap();
    until(|| connection.status() == TransactionStatus::Failed);
    assert_eq!(Arc::strong_count(&plan), 1);
    assert!(!statement.keeps_plan() && !database.shared.statements.lists(&statement));
}

/// The next DDL does not examine statements whose plans earlier DDL has taken.
#[test]
fn only_statements_that_keep_a_plan_are_listed() {
    let database = Database::memory().unwrap();
    let (mut connection, mut idle) = (database.connect(), database.connect());
    connection.execute("CREATE TABLE t (a bigint PRIMARY KEY); INSERT INTO t VALUES (1)").unwrap();
    let prepare = |number| idle.prepare(&format!("SELECT a + {number} FROM t WHERE a = $1")).unwrap();
    let statements: Vec<_> = (0..200).map(prepare).collect();
    let listed = &database.shared.statements;
    assert!(statements.iter().all(|statement| statement.keeps_plan() && listed.lists(statement)));
    for number in 0..2 {
        connection.execute(&format!("ALTER TABLE t ADD COLUMN b{number} bigint")).unwrap();
        assert!(!statements.iter().any(|statement| statement.keeps_plan()));
        assert_eq!(listed.len(), 0);
        // It keeps a plan again, and does not lose it where nothing has changed.
        let statement = &statements[7 + number];
        idle.query_statement(statement, &[Value::BigInt(1)]).unwrap();
        database.shared.note_end_of_ddl();
        assert!(statement.keeps_plan() && listed.lists(statement));
        assert_eq!(listed.len(), 1);
    }
    // A statement that was dropped does not remain on the list either.
    drop(statements);
    connection.execute("DROP TABLE t").unwrap();
    assert_eq!(listed.len(), 0);
}

/// The count of references to the plan is unchanged, so no session plans again.
#[test]
fn sessions_that_share_a_statement_each_find_its_plan_until_ddl_ends() {
    let database = Database::memory().unwrap();
    let mut sessions = [(); 3].map(|()| database.connect());
    sessions[0].execute("CREATE TABLE t (a bigint PRIMARY KEY); INSERT INTO t VALUES (1)").unwrap();
    let text = "SELECT count(*) FROM t";
    let statement = sessions[0].prepare(text).unwrap();
    let plan = database.shared.plans.get(text, &[], |_| true).expect("it was planned");
    let mut run_by_all = || {
        for session in &mut sessions {
            session.query_statement(&statement, &[]).unwrap();
        }
        Arc::strong_count(&plan)
    };
    let before = run_by_all();
    // The first session has its plan in a place of its own from before there were others.
    assert_eq!(run_by_all(), before + 1);
    assert_eq!(run_by_all(), before + 1);
    assert!(database.shared.statements.lists(&statement));
    database.connect().execute("DROP TABLE t").unwrap();
    assert_eq!(Arc::strong_count(&plan), 1);
}

/// Every plan that is kept while DDL ends is known to the next DDL, which takes it away.
#[test]
fn no_plan_of_an_older_catalog_outlives_ddl_unlisted() {
    let database = Database::memory().unwrap();
    let (mut connection, mut owner) = (database.connect(), database.connect());
    connection
        .execute("CREATE TABLE t (a bigint PRIMARY KEY); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT a FROM t")
        .unwrap();
    let texts = ["SELECT a FROM v WHERE a = 1", "SELECT count(*) FROM v", "DELETE FROM t WHERE a = 2"];
    let statements = texts.map(|text| owner.prepare(text).unwrap());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            let (database, statements, done) = (&database, &statements, &done);
            thread::spawn_scoped(scope, "runner", move || {
                let mut connection = database.connect();
                while !done.load(Ordering::Relaxed) {
                    for statement in statements {
                        connection.execute_statement(statement, &[]).unwrap();
                    }
                }
            });
        }
        for _ in 0..20 {
            connection
                .execute(
                    "CREATE OR REPLACE VIEW v AS SELECT a FROM t; CREATE TABLE u (a bigint); DROP TABLE u",
                )
                .unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let listed = &database.shared.statements;
    assert!(statements.iter().all(|statement| !statement.keeps_plan() || listed.lists(statement)));
    connection.execute("DROP TABLE t CASCADE").unwrap();
    assert!(!statements.iter().any(|statement| statement.keeps_plan()));
    assert_eq!(listed.len(), 0);
}

/// Rows of compact blocks are not even read in full if the other side of the join has no partner for them. The first morsels are
/// scanned before that side.
#[test]
fn a_join_filters_the_scan_below_it() {
    let config = Config { freeze_after: None, compact_after: None, ..Config::default() };
    let database = Database::open_with(config).unwrap();
    let mut connection = database.connect();
    for sql in [
        "CREATE TABLE big (id bigint, k int, t text, odd int)",
        "INSERT INTO big SELECT g, g, 'row ' || g, g % 2 FROM generate_series(1, 200000) g",
        "CREATE TABLE close (odd int, k int)",
        "INSERT INTO close SELECT 1, g FROM generate_series(1, 3000) g",
        "CREATE TABLE small (id bigint, k int)",
        "INSERT INTO small SELECT g * 10000, g * 10000 FROM generate_series(1, 20) g",
    ] {
        connection.execute(sql).unwrap();
    }
    let engine = database.engine();
    until(|| {
        engine.collect();
        crate::native::pin().flush();
        let _ = engine.freeze(Duration::ZERO);
        engine.compact(Duration::ZERO);
        // The last blocks of both tables have free slots.
        let sql = "SELECT count(*) FILTER (WHERE state = 'compact') > 3
                      AND count(*) FILTER (WHERE state <> 'compact') < 4 FROM firn_blocks";
        let row = database.connect().query_row(sql, &[]).unwrap().expect("it is one row");
        row[0] == Value::Boolean(true)
    });
    // Both columns of a key are one word.
    for query in [
        "SELECT count(*) FROM big JOIN close USING (odd, k)",
        "SELECT count(*) FROM big WHERE EXISTS (SELECT FROM close c WHERE c.odd = big.odd AND c.k = big.k)",
    ] {
        let row = connection.query_row(query, &[]).unwrap();
        assert_eq!(row, Some(vec![Value::BigInt(1500)]), "{query}");
    }
    for (query, is_filtered) in [
        ("SELECT count(*), min(t) FROM big JOIN small USING (k)", true),
        ("SELECT count(*), min(t) FROM big JOIN small USING (id, k)", true),
        ("SELECT count(*), min(t) FROM big WHERE k IN (SELECT k FROM small)", true),
        (
            "SELECT count(*), min(t) FROM big JOIN small ON big.k = small.k AND t LIKE 'r%' WHERE big.id > 0",
            true,
        ),
        (
            "SELECT count(*), min(t) FROM small JOIN big ON big.k = small.k JOIN small s ON s.id = big.id",
            true,
        ),
        // All rows of the left side are in the result.
        ("SELECT count(small.k), min(t) FROM big LEFT JOIN small USING (k)", false),
        (
            "SELECT 200000 - count(*), 'row 10000' FROM big WHERE k NOT IN (SELECT k FROM small WHERE k > 0)",
            false,
        ),
    ] {
        let row = connection.query_row(query, &[]).unwrap();
        let least = if is_filtered { "row 10000" } else { "row " };
        assert!(
            matches!(&row.as_deref(), Some([Value::BigInt(20), Value::Text(text)]) if text.starts_with(least)),
            "{query}: {row:?}"
        );
        let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {query}");
        let explain = connection.prepare(&explain).unwrap();
        let lines = connection.query_values(&explain, &[]).unwrap();
        let rows = lines.iter().find_map(|line| {
            let Value::Text(line) = &line[0] else { panic!("lines are text") };
            let (_, rows) = line.split_once(" big [")?.1.split_once("(actual rows=")?;
            rows.trim_end_matches(')').parse::<u64>().ok()
        });
        assert_eq!(rows.expect("it is scanned") < 100_000, is_filtered, "{query}: {lines:?}");
    }
}

/// Of each key an index finds the first rows, with those that OFFSET passes over, wherever it has its NULLs.
#[test]
fn an_index_finds_the_rows_that_are_used() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection
        .execute(
            "CREATE TABLE items (k int, y int);
             INSERT INTO items SELECT g % 100, nullif(g * 7919 % 10007, 5) FROM generate_series(1, 20000) g;
             CREATE INDEX ON items (k, y)",
        )
        .unwrap();
    for (query, count, order) in [
        ("(SELECT max(y) FROM items i WHERE i.k = o.k)", 1, "desc nulls last"),
        ("(SELECT min(y) FROM items i WHERE i.k = o.k)", 1, ""),
        ("(SELECT y FROM items i WHERE i.k = o.k ORDER BY y NULLS FIRST OFFSET 3 LIMIT 2)", 5, "nulls first"),
    ] {
        let query = format!(
            "EXPLAIN (COSTS OFF) SELECT o.k, l.* FROM (VALUES (1), (2), (3)) o (k), LATERAL {query} l"
        );
        let lines = format!("{:?}", connection.query_values(&query, ()).unwrap());
        let found = lines.split_once(&format!(" by [1] first {count}::int8 order [#"));
        let found = found.and_then(|(_, rest)| rest.split_once(']'));
        assert!(found.is_some_and(|(found, _)| found.ends_with(order)), "{query}: {lines}");
    }
}

/// Windows of which only the first rows of each partition are used give hardly more, and EXPLAIN shows how many are used.
#[test]
fn windows_give_the_rows_that_are_used() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection
        .execute(
            "CREATE TABLE owners (k int PRIMARY KEY);
             CREATE TABLE items (id int, k int, y int);
             INSERT INTO owners SELECT g FROM generate_series(0, 99) g;
             INSERT INTO items SELECT g, g % 100, g * 7919 % 10007 FROM generate_series(1, 20000) g",
        )
        .unwrap();
    let numbered = |call: &str, condition: &str| {
        format!(
            "SELECT count(*) FROM (SELECT id, {call} OVER (PARTITION BY k ORDER BY y) n FROM items) x WHERE {condition}"
        )
    };
    for (query, count, first) in [
        ("SELECT count(*) FROM owners o, LATERAL (SELECT id FROM items i WHERE i.k = o.k ORDER BY y LIMIT 3) i".to_owned(), 300, Some(3)),
        ("SELECT count(*) FROM owners o, LATERAL (SELECT id FROM items i WHERE i.k = o.k ORDER BY y OFFSET 2 LIMIT 3) i".to_owned(), 300, Some(5)),
        ("SELECT count((SELECT id FROM items i WHERE i.k = o.k ORDER BY y DESC LIMIT 1)) FROM owners o".to_owned(), 100, Some(1)),
        ("SELECT count(*) FROM owners o, LATERAL (SELECT id FROM items i WHERE i.k = o.k ORDER BY y FETCH FIRST 3 ROWS WITH TIES) i".to_owned(), 300, None),
        (numbered("row_number()", "n <= 3"), 300, Some(3)),
        (numbered("row_number()", "n BETWEEN 3 AND 4"), 200, Some(4)),
        (numbered("row_number()", "n = 2"), 100, Some(2)),
        (numbered("row_number()", "n > 198"), 200, None),
        (numbered("rank()", "n <= 3"), 300, None),
        (numbered("ntile(4)", "n = 1"), 5000, None),
    ] {
        let mut explain = |options: &str| -> String {
            let lines = connection.query_values(format!("EXPLAIN ({options}) {query}").as_str(), ()).unwrap();
            let line = |line: &Vec<Value>| match &line[0] {
                Value::Text(line) => line.clone(),
                other => panic!("lines are text, not {other:?}"),
            };
            lines.iter().map(line).collect::<Vec<_>>().join("\n")
        };
        let text = explain("ANALYZE, COSTS OFF, TIMING OFF");
        let window = text.lines().find(|line| line.trim().starts_with("Window ")).unwrap();
        let rows = window.split_once("(actual rows=").unwrap().1.split([' ', ')']).next().unwrap();
        let shown = first.map(|first| format!(" first {first}::int8 "));
        assert_eq!(shown.is_some(), window.contains(" first "), "{query}: {text}");
        assert!(shown.is_none_or(|shown| window.contains(&shown)), "{query}: {text}");
        let rows = rows.parse::<u64>().unwrap();
        match first {
            // Each worker has the first ones of its rows.
            Some(first) => assert!((first * 100..8_000).contains(&rows), "{query}: {text}"),
            None => assert_eq!(rows, 20_000, "{query}: {text}"),
        }
        let json = explain("FORMAT JSON");
        let condition = first.map(|first| format!("\"Run Condition\": \"(row_number() OVER (?) <= {first})\""));
        assert_eq!(condition.is_some(), json.contains("Run Condition"), "{query}: {json}");
        assert!(condition.is_none_or(|condition| json.contains(&condition)), "{query}: {json}");
        let found = connection.query_row(&query, &[]).unwrap();
        assert_eq!(found, Some(vec![Value::BigInt(count)]), "{query}");
    }
}

#[test]
fn the_cache_keeps_as_many_plans_as_there_are_bytes_for() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection.execute("CREATE TABLE t (a bigint PRIMARY KEY)").unwrap();
    let plans = || (database.shared.plans.len(), database.shared.plans.bytes());
    let mut most = 0;
    for number in 0..80 {
        let constants: Vec<String> =
            (0..2000).map(|constant| format!("{}", constant * 10 + number)).collect();
        connection.prepare(&format!("SELECT a FROM t WHERE a IN ({})", constants.join(","))).unwrap();
        most = most.max(plans().1);
        assert!(most <= 32 << 20, "{most}");
    }
    assert!(plans().0 < 80 && most > 16 << 20, "{:?}, {most}", plans());
    connection.execute("ALTER TABLE t ADD COLUMN b bigint").unwrap();
    assert_eq!(plans(), (0, 0));
}

/// A statement is planned when it is prepared, and not when it is executed, by whatever way.
#[test]
fn an_execution_does_not_plan() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection
        .execute("CREATE TABLE t (a bigint PRIMARY KEY, b text); INSERT INTO t SELECT i, i FROM generate_series(1, 100) i")
        .unwrap();
    let plans = || database.engine().statistics().plans.get();
    let before = plans();
    for (name, statement) in [
        ("short", "SELECT b FROM t WHERE a = $1"),
        ("long", "SELECT count(*), max(b) FROM t x JOIN t y USING (a, b) WHERE a > $1"),
        ("changes", "UPDATE t SET b = b || $1 WHERE a = $1 RETURNING b"),
    ] {
        connection.execute(&format!("PREPARE {name} (bigint) AS {statement}")).unwrap();
    }
    assert_eq!(plans(), before + 3);
    for number in 0..50_i64 {
        for name in ["short", "long", "changes"] {
            let executed = format!("EXECUTE {name} ({number} + length('x'))");
            assert_eq!(connection.query_values(&executed, &[]).unwrap().len(), 1, "{executed}");
            let kept = connection.kept_statement(name).unwrap().clone();
            assert_eq!(connection.query_values(&kept, &[Value::BigInt(number + 1)]).unwrap().len(), 1);
        }
    }
    assert_eq!(plans(), before + 3);
}
