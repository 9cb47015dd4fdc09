//! What a session promises beyond SQL; the corpus (`tests/slt`) covers SQL.

use crate::server::{RowChunk, ServerConnection as _};
use crate::table_waiting_tests::until_earlier_guards_are_dropped;
use crate::{Connection, Database, Outcome, TransactionStatus};
use firn_base::disk::SimulatedDisk;
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::{Numeric, Result, SqlState, Type, TypeId, Value, thread};
use firn_txn::{Config, Engine};
use std::time::{Duration, Instant};

/// A query over a table of 2,000 rows with so many result rows that it does not end in any test.
const ENDLESS: &str = "SELECT x.b FROM t x, t y, t z";

fn connection() -> Connection {
    Database::memory().unwrap().connect()
}

fn one(connection: &mut Connection, sql: &str) -> Value {
    connection.query_row(sql, &[]).unwrap().unwrap().remove(0)
}

/// A database with this limit of its store's memory.
fn limited(bytes: u64) -> Database {
    Database::open_with(crate::Config { memory_limit: Some(bytes), ..crate::Config::default() }).unwrap()
}

fn state<T>(result: Result<T>) -> SqlState {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.state(),
    }
}

fn filled(rows: i64) -> Database {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection.execute("CREATE TABLE t (a bigint PRIMARY KEY, b bigint NOT NULL)").unwrap();
    let insert = connection.prepare("INSERT INTO t VALUES ($1, $2)").unwrap();
    let mut transaction = connection.transaction().unwrap();
    for row in 0..rows {
        transaction.execute_statement(&insert, &[Value::BigInt(row), Value::BigInt(0)]).unwrap();
    }
    transaction.commit().unwrap();
    database
}

/// A database whose blocks are frozen as soon as they have no versions.
fn freezing() -> Database {
    let freeze_after = Some(Duration::ZERO);
    Database::open_with(crate::Config { freeze_after, ..crate::Config::default() }).unwrap()
}

/// Waits until all blocks are frozen.
fn wait_until_frozen(connection: &mut Connection) {
    while one(connection, "SELECT count(*) FROM firn_blocks WHERE state <> 'frozen'") != Value::BigInt(0) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn frozen_rows_leave_without_a_copy_and_stay_what_they_were() {
    let database = freezing();
    let mut connection = database.connect();
    connection
        .execute("CREATE TABLE t (a bigint, b boolean NOT NULL, c text, d date, e numeric(12,2))")
        .unwrap();
    let rows = "SELECT n, n % 2 = 0, CASE WHEN n % 3 > 0 THEN 'a string of some length ' || n END, \
                date '2026-11-22' + n::integer, n / 4 FROM generate_series(1, 50000) AS s(n)";
    connection.execute(&format!("INSERT INTO t {rows}")).unwrap();
    wait_until_frozen(&mut connection);
    let addresses = |batches: &[arrow_array::RecordBatch]| -> Vec<[*const u8; 4]> {
        let address = |batch: &arrow_array::RecordBatch, column: usize| {
            batch.column(column).to_data().buffers()[0].as_ptr()
        };
        batches.iter().map(|batch| [0, 1, 2, 3].map(|column| address(batch, column))).collect()
    };
    let mut other = database.connect();
    let mut query = || {
        let mut batches = other.query("SELECT a, b, c, d, e FROM t").unwrap();
        batches.sort_by_key(|batch| addresses(std::slice::from_ref(batch))[0][0]);
        batches
    };
    let (one_time, another) = (query(), query());
    assert_eq!(addresses(&one_time), addresses(&another), "both are of the table's own memory");
    assert_eq!(one_time, another);

    // A writer continues in a copy.
    let kept: Vec<String> = one_time.iter().map(|batch| format!("{batch:?}")).collect();
    connection
        .execute("UPDATE t SET a = -a, b = NOT b, c = 'something else that is long', d = NULL")
        .unwrap();
    wait_until_frozen(&mut connection);
    let now: Vec<String> = one_time.iter().map(|batch| format!("{batch:?}")).collect();
    assert_eq!(kept, now, "what was given out has changed");
    assert_eq!(one(&mut connection, "SELECT sum(a) FROM t WHERE NOT b = (a % 2 = 0)"), {
        let sum: i128 = -(1..=50000).sum::<i128>();
        Value::Number(Numeric::from_decimal(sum, 0))
    });
}

/// Waits until all blocks of a table that have rows are compact.
fn wait_until_compact(database: &Database, table: &str) {
    let mut looking = database.connect();
    let wanted = format!(
        "SELECT count(*) FROM firn_blocks WHERE relname = '{table}' AND rows > 0 AND state <> 'compact'"
    );
    let until = Instant::now() + Duration::from_secs(60);
    while one(&mut looking, &wanted) != Value::BigInt(0) {
        assert!(Instant::now() < until, "{:?}", texts(&mut looking, "SELECT * FROM firn_blocks"));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn strings_made_of_symbols_are_read_as_others_are() {
    let database = freezing();
    let mut a = database.connect();
    let settings = "WITH (compact_after = 0)";
    a.execute(&format!("CREATE TABLE t (k integer PRIMARY KEY, s text, b bytea) {settings}")).unwrap();
    // Some are short, some NULL, and most have parts in common.
    let text = "CASE k % 10 WHEN 0 THEN NULL WHEN 1 THEN 'no. ' || k ELSE 'the packages of order ' || k || ' sleep furiously' END";
    let bytes = |k: i32| format!("({k}, '\\x{}{k:06x}'::bytea)", "00ff80".repeat(8));
    let bytes: Vec<String> = (1..=2000).map(bytes).collect();
    a.execute(&format!("INSERT INTO t SELECT k, {text}, b FROM (VALUES {}) AS v(k, b)", bytes.join(", ")))
        .unwrap();
    let all = "SELECT k, s, b::text FROM t ORDER BY k";
    let expected = texts(&mut a, all);
    assert_eq!(expected[1233][..62], *"1234|the packages of order 1234 sleep furiously|\\x00ff8000ff80");
    wait_until_compact(&database, "t");
    let encodings = "SELECT array_to_string(encodings, ', ') FROM firn_blocks WHERE relname = 't'";
    assert_eq!(texts(&mut a, encodings), ["offsets, symbols, symbols"]);

    assert_eq!(texts(&mut a, all), expected);
    assert_eq!(
        texts(&mut a, "SELECT k, s FROM t WHERE k IN (20, 21, 1234) ORDER BY k"),
        ["20|-", "21|no. 21", "1234|the packages of order 1234 sleep furiously"]
    );
    // A scan that decodes few rows, then an operator that reads the strings, then an index over them.
    assert_eq!(texts(&mut a, "SELECT s FROM t WHERE k % 500 = 2 ORDER BY k").len(), 4);
    let found = "SELECT k FROM t WHERE s = 'the packages of order 1234 sleep furiously'";
    assert_eq!(texts(&mut a, found), ["1234"]);
    assert_eq!(texts(&mut a, "SELECT count(*) FROM t WHERE s LIKE '%order 12%furiously'"), ["89"]);
    a.execute("CREATE UNIQUE INDEX t_s ON t (s)").unwrap();
    assert_eq!(texts(&mut a, found), ["1234"]);
    let twice =
        a.execute("INSERT INTO t VALUES (0, 'the packages of order 1234 sleep furiously')").unwrap_err();
    assert_eq!(twice.state(), SqlState::UNIQUE_VIOLATION);

    // An old snapshot, after which rows of the block are deleted and moved, sees the old rows.
    let mut old = database.connect();
    old.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ").unwrap();
    assert_eq!(one(&mut old, "SELECT count(*) FROM t"), Value::BigInt(2000));
    a.execute("DELETE FROM t WHERE k % 3 = 0").unwrap();
    a.execute("UPDATE t SET s = s || '!' WHERE k % 3 = 1").unwrap();
    assert_eq!(texts(&mut old, all), expected);
    old.execute("COMMIT").unwrap();
    let now = "SELECT count(*), count(s), sum(length(s)) FROM t";
    let changed = format!(
        "SELECT k, {text} || CASE k % 3 WHEN 1 THEN '!' ELSE '' END AS s FROM generate_series(1, 2000) AS s(k)"
    );
    let expected = texts(&mut a, &now.replace("FROM t", &format!("FROM ({changed}) AS t WHERE k % 3 > 0")));
    assert_eq!(texts(&mut a, now), expected);
    wait_until_compact(&database, "t");
    assert_eq!(texts(&mut a, now), expected);
}

#[test]
fn rows_of_compact_blocks_are_changed_as_others_are() {
    let database = freezing();
    let mut a = database.connect();
    a.execute("CREATE TABLE t (k integer PRIMARY KEY, n bigint, s text) WITH (compact_after = 0)").unwrap();
    a.execute("CREATE TABLE child (k integer REFERENCES t)").unwrap();
    let fill = "INSERT INTO t SELECT k, k % 3, 'one of three strings: ' || k % 3 FROM generate_series(1, 300) AS s(k)";
    a.execute(fill).unwrap();
    let wait_until_compact = || wait_until_compact(&database, "t");
    wait_until_compact();
    let encodings =
        "SELECT array_to_string(encodings, ', '), bytes < raw_bytes FROM firn_blocks WHERE relname = 't'";
    assert_eq!(texts(&mut a, encodings), ["offsets, offsets, codes|true"]);

    // A statement that reaches again a row that it has moved, and one that must not.
    assert_eq!(
        texts(&mut a, "UPDATE t SET n = n + 10 WHERE k = 7 RETURNING k, n, s"),
        ["7|11|one of three strings: 1"]
    );
    let upsert = |values: &str| {
        format!(
            "INSERT INTO t VALUES {values} ON CONFLICT (k) DO UPDATE SET n = t.n + excluded.n RETURNING k, n"
        )
    };
    assert_eq!(texts(&mut a, &upsert("(8, 100)")), ["8|102"]);
    let twice = a.execute(&upsert("(9, 1), (9, 1)")).unwrap_err();
    assert_eq!(twice.state(), SqlState::CARDINALITY_VIOLATION);
    a.execute("INSERT INTO child VALUES (10)").unwrap();
    assert_eq!(a.execute("DELETE FROM t WHERE k = 10").unwrap_err().state(), SqlState::FOREIGN_KEY_VIOLATION);
    a.execute("UPDATE t SET n = 0 WHERE k = 10").unwrap();
    assert_eq!(a.execute("DELETE FROM t WHERE k = 10").unwrap_err().state(), SqlState::FOREIGN_KEY_VIOLATION);

    // A transaction that waited for the row finds it at its new place.
    wait_until_compact();
    for isolation in ["READ COMMITTED", "SERIALIZABLE"] {
        a.execute("BEGIN").unwrap();
        a.execute("UPDATE t SET n = n + 1 WHERE k = 20").unwrap();
        let mut b = database.connect();
        let waiting = thread::spawn("waiting", move || {
            b.execute(&format!("SET default_transaction_isolation = '{isolation}'")).unwrap();
            b.execute("UPDATE t SET n = n + 1 WHERE k = 20").map(drop)
        });
        std::thread::sleep(Duration::from_millis(20));
        a.execute("COMMIT").unwrap();
        waiting.join().unwrap().unwrap();
        wait_until_compact();
    }
    assert_eq!(one(&mut a, "SELECT n FROM t WHERE k = 20"), Value::BigInt(6));
    assert_eq!(one(&mut a, "SELECT count(*) FROM t WHERE n < 3"), Value::BigInt(297));
}

#[test]
fn tables_are_frozen_after_a_time_of_their_own() {
    for (database, own, others) in [
        (freezing(), "'never'", "frozen"),
        (
            Database::open_with(crate::Config { freeze_after: None, ..crate::Config::default() }).unwrap(),
            "0",
            "hot",
        ),
    ] {
        let mut connection = database.connect();
        let mut run = |sql: &str| connection.execute(sql).map(drop);
        run("CREATE TABLE a AS SELECT n FROM generate_series(1, 10) AS s(n)").unwrap();
        run(&format!("CREATE TABLE b WITH (freeze_after = {own}, fillfactor = 70) AS SELECT * FROM a"))
            .unwrap();
        run(&format!(
            "CREATE TABLE c (n integer) WITH (autovacuum_enabled, toast.vacuum_index_cleanup = 'auto', freeze_after = {own})"
        ))
        .unwrap();
        run("INSERT INTO c SELECT * FROM a").unwrap();
        run("CREATE TABLE d AS SELECT * FROM a").unwrap();
        run(&format!("ALTER TABLE d SET (freeze_after = {own}, autovacuum_enabled = off)")).unwrap();
        run("UPDATE d SET n = n + 1").unwrap();
        // A round may still have them in the state cooling.
        let states = "SELECT string_agg(relname || ' ' || replace(state, 'cooling', 'hot'), ', ' ORDER BY relname) \
                      FROM firn_blocks";
        let own_state = if others == "hot" { "frozen" } else { "hot" };
        let wait_for = |of_d: &str| {
            let expected = format!("a {others}, b {own_state}, c {own_state}, d {of_d}");
            let mut other = database.connect();
            let until = Instant::now() + Duration::from_secs(60);
            while texts(&mut other, states) != [expected.as_str()] {
                assert!(Instant::now() < until, "{:?}, not {expected}", texts(&mut other, states));
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait_for(own_state);
        let options = "SELECT coalesce(array_to_string(reloptions, ';'), '') FROM pg_class \
                       WHERE relname IN ('a', 'd') ORDER BY relname";
        let own = own.trim_matches('\'');
        assert_eq!(texts(&mut connection, options), ["".to_owned(), format!("freeze_after={own}")]);
        // The default, as for all others.
        connection.execute("ALTER TABLE d RESET (freeze_after)").unwrap();
        connection.execute("UPDATE d SET n = n + 1").unwrap();
        wait_for(others);

        for (wrong, message) in [
            ("freeze_later = 1", "unrecognized parameter \"freeze_later\""),
            ("freeze_after = 'soon'", "invalid value for parameter \"freeze_after\": \"soon\""),
            ("freeze_after = -1", "invalid value for parameter \"freeze_after\": \"-1\""),
            ("freeze_after", "invalid value for parameter \"freeze_after\": \"true\""),
        ] {
            let error = connection.execute(&format!("ALTER TABLE a SET ({wrong})")).unwrap_err();
            assert_eq!((error.state(), error.message()), (SqlState::INVALID_PARAMETER_VALUE, message));
            assert!(error.hint().is_some());
        }
    }
}

#[test]
fn tables_become_compact_after_a_time_of_their_own() {
    for (of_all, own, others, own_state) in
        [(Some(Duration::ZERO), "'never'", "compact", "frozen"), (None, "0", "frozen", "compact")]
    {
        let freeze_after = Some(Duration::ZERO);
        let config = crate::Config { freeze_after, compact_after: of_all, ..crate::Config::default() };
        let database = Database::open_with(config).unwrap();
        let mut connection = database.connect();
        let mut run = |sql: &str| connection.execute(sql).map(drop).unwrap();
        run(&format!("CREATE TABLE a (n integer); CREATE TABLE b (n integer) WITH (compact_after = {own})"));
        run(&format!("CREATE TABLE c (n integer); ALTER TABLE c SET (compact_after = {own})"));
        for table in ["a", "b", "c"] {
            run(&format!("INSERT INTO {table} SELECT n FROM generate_series(1, 10) AS s(n)"));
        }
        let wait_for = |of_c: &str| {
            let expected = format!("a {others}, b {own_state}, c {of_c}");
            let states = "SELECT string_agg(relname || ' ' || state, ', ' ORDER BY relname) FROM firn_blocks \
                          WHERE rows > 0";
            let mut other = database.connect();
            let until = Instant::now() + Duration::from_secs(60);
            while texts(&mut other, states) != [expected.as_str()] {
                assert!(Instant::now() < until, "{:?}, not {expected}", texts(&mut other, states));
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait_for(own_state);
        // Once more, so that what is never to become compact has been skipped.
        run("UPDATE a SET n = n + 1");
        wait_for(own_state);
        // The default, as for all others.
        run("ALTER TABLE c RESET (compact_after)");
        run("UPDATE c SET n = n + 1");
        wait_for(others);
        run(&format!("ALTER TABLE c SET (compact_after = {own}, freeze_after = '1 min')"));
        let options = "SELECT array_to_string(reloptions, ';') FROM pg_class WHERE relname IN ('b', 'c') \
                       ORDER BY relname";
        let own = format!("compact_after={}", own.trim_matches('\''));
        assert_eq!(texts(&mut connection, options), [own.clone(), format!("freeze_after=1min;{own}")]);
        let error = connection.execute("ALTER TABLE a SET (compact_after = 'soon')").unwrap_err();
        assert_eq!(error.message(), "invalid value for parameter \"compact_after\": \"soon\"");
    }
}

#[test]
fn blocks_that_cannot_meet_a_condition_do_not_change_its_answer() {
    let database = freezing();
    let mut connection = database.connect();
    connection
        .execute("CREATE TABLE t (day date, amount numeric(12,2), name text, wide numeric(30,4))")
        .unwrap();
    let rows = "SELECT date '2026-01-01' + (n / 1000)::integer, n, CASE WHEN n % 7 > 0 THEN 'order ' || n END, n \
                FROM generate_series(0, 99999) AS s(n)";
    connection.execute(&format!("INSERT INTO t {rows}")).unwrap();
    wait_until_frozen(&mut connection);
    for (condition, count) in [
        ("day BETWEEN '2026-02-01' AND '2026-02-03'", 3000),
        ("day < '2026-01-01'", 0),
        ("amount > 99000 AND amount <= 99001.00", 1),
        ("wide > 99000 AND wide <= 99001.00", 1),
        ("wide < -1e20", 0),
        ("name = 'order 100'", 1),
        ("name LIKE 'border%'", 0),
        ("day IN ('2026-02-01', '2026-02-02')", 2000),
        ("day IN ('2026-02-01', '2026-02-02', '2026-02-03', '2026-02-04', '2026-02-05')", 5000),
        // Times in between are neither.
        ("day IN ('2026-01-01', '2026-04-10')", 2000),
        ("name IS NOT NULL AND day = '2026-03-31'", 857),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        assert_eq!(one(&mut connection, &sql), Value::BigInt(count), "{condition}");
    }
    // A write to a block invalidates its zones.
    connection.execute("UPDATE t SET day = '2025-12-31' WHERE amount = 50000").unwrap();
    assert_eq!(one(&mut connection, "SELECT count(*) FROM t WHERE day < '2026-01-01'"), Value::BigInt(1));
    wait_until_frozen(&mut connection);
    assert_eq!(one(&mut connection, "SELECT count(*) FROM t WHERE day < '2026-01-01'"), Value::BigInt(1));
}

#[test]
fn rows_of_a_query_that_failed_are_not_returned() {
    let mut connection = connection();
    connection.execute("CREATE TABLE t (a integer PRIMARY KEY, b integer)").unwrap();
    connection.execute("INSERT INTO t VALUES (1, 1), (2, 0)").unwrap();
    let mut values = Vec::new();
    let failing = connection.prepare("SELECT b, 10 / b FROM t WHERE a >= 1").unwrap();
    assert_eq!(state(connection.run_into(&failing, &[], &mut values)), SqlState::DIVISION_BY_ZERO);
    let next = connection.prepare("SELECT a FROM t WHERE a = 2").unwrap();
    let ran = connection.run_into(&next, &[], &mut values).unwrap();
    assert!(matches!(ran, crate::server::Ran::Rows(1)));
    assert_eq!(values, [Value::Integer(2)]);
}

#[test]
fn casts_to_text_are_described_as_text() {
    let mut connection = connection();
    connection
        .execute("CREATE TABLE t (id integer PRIMARY KEY, v varchar(3), c char(3)); INSERT INTO t VALUES (1, 'a', 'b')")
        .unwrap();
    let types = |connection: &mut Connection, sql: &str| {
        let statement = connection.prepare(sql).unwrap();
        let types: Vec<_> = statement.columns().unwrap().iter().map(|column| column.ty).collect();
        (types, connection.query_values(&statement, &[]).unwrap().remove(0))
    };
    let text = |text: &str| Value::Text(text.to_owned());
    let plain = Type::new(TypeId::TEXT);
    for source in [
        "t",
        "t WHERE id = 1",
        "(SELECT v, c FROM t GROUP BY v, c) s",
        "(SELECT * FROM t ORDER BY v LIMIT 1) s",
    ] {
        let casts = format!("SELECT v::text, c::text, CAST(v AS text) AS w, v, c FROM {source}");
        let expected = vec![plain, plain, plain, Type::varchar(3), Type::character(3)];
        let values = vec![text("a"), text("b"), text("a"), text("a"), text("b  ")];
        assert_eq!(types(&mut connection, &casts), (expected, values), "{source}");
    }
    let other = types(
        &mut connection,
        "SELECT v::varchar(2)::text, min(v::text), v::text || c::text FROM t GROUP BY v, c",
    );
    assert_eq!(other, (vec![plain; 3], vec![text("a"), text("a"), text("ab")]));
    let made = "CREATE TABLE made AS SELECT v::text AS v, c::text AS c FROM t";
    connection.execute(made).unwrap();
    assert_eq!(types(&mut connection, "SELECT v, c FROM made").0, [plain, plain]);
}

#[test]
fn statements_describe_their_parameters_and_columns() {
    let mut connection = connection();
    connection.execute("CREATE TABLE t (a integer, b text)").unwrap();
    let insert = connection.prepare("INSERT INTO t VALUES ($1, $2) RETURNING b, a").unwrap();
    assert_eq!(insert.parameters().len(), 2);
    let names: Vec<_> = insert.columns().unwrap().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    assert!(connection.prepare("CREATE TABLE u (a integer)").unwrap().columns().is_none());
    assert_eq!(connection.prepare("SHOW timezone").unwrap().columns().unwrap()[0].name, "TimeZone");
    assert!(connection.prepare(" ;; ").unwrap().columns().is_none());
    assert_eq!(state(connection.prepare("SELECT 1; SELECT 2")), SqlState::SYNTAX_ERROR);
}

/// By index and by scan: the last of the conditions is one that no index serves.
#[test]
fn arrays_are_parameters_of_any_and_all() {
    let mut connection = filled(10).connect();
    let array =
        |elements: &[i32]| Value::Array(elements.iter().map(|&element| Value::Integer(element)).collect());
    for condition in ["a = ANY ($1)", "a = ANY ($1) AND b = 0", "a + 0 = ANY ($1)"] {
        let select = connection.prepare(&format!("SELECT a FROM t WHERE {condition} ORDER BY a")).unwrap();
        let mut found = |parameter: Value| -> Vec<i64> {
            let rows = connection.query_values(&select, &[parameter]).unwrap();
            rows.iter().map(|row| if let Value::BigInt(a) = row[0] { a } else { panic!("{row:?}") }).collect()
        };
        assert_eq!(found(array(&[7, 2, 7, 99])), [2, 7], "{condition}");
        assert_eq!(found(Value::Array(vec![Value::Null, Value::BigInt(3)].into())), [3], "{condition}");
        assert!(found(array(&[])).is_empty() && found(Value::Null).is_empty());
        assert_eq!(
            state(connection.query_values(&select, &[Value::Integer(1)])),
            SqlState::DATATYPE_MISMATCH
        );
    }
    let update = connection.prepare("UPDATE t SET b = 1 WHERE a = ANY ($1)").unwrap();
    assert_eq!(connection.execute_statement(&update, &[array(&[1, 2, 2, 77])]).unwrap(), 2);
    let delete = connection.prepare("DELETE FROM t WHERE a <> ALL ($1)").unwrap();
    assert_eq!(connection.execute_statement(&delete, &[array(&[1, 2, 3])]).unwrap(), 7);
    let insert = connection.prepare("INSERT INTO t SELECT unnest($1::bigint[]), unnest($2::int[])").unwrap();
    assert_eq!(connection.execute_statement(&insert, &[array(&[21, 22]), array(&[5, 6])]).unwrap(), 2);
    assert_eq!(one(&mut connection, "SELECT b FROM t WHERE a = 22"), Value::BigInt(6));
    let integer = connection.prepare("SELECT $1::integer").unwrap();
    assert_eq!(state(connection.query_values(&integer, &[array(&[1])])), SqlState::DATATYPE_MISMATCH);
}

#[test]
fn many_elements_are_looked_up_as_well_as_few() {
    let mut connection = filled(10_000).connect();
    let select = connection.prepare("SELECT count(*) FROM t WHERE a = ANY ($1)").unwrap();
    for many in [0, 1, 4_000, 4_500, 20_000] {
        let array = Value::Array((0..many).map(|element| Value::BigInt(element * 2)).collect());
        let counted = connection.query_values(&select, &[array]).unwrap();
        assert_eq!(counted, [[Value::BigInt(many.min(5_000))]]);
    }
}

#[test]
fn parameters_are_coerced_and_counted() {
    let mut connection = connection();
    connection.execute("CREATE TABLE t (a bigint, b numeric(8,2), c varchar(3))").unwrap();
    let insert = connection.prepare("INSERT INTO t VALUES ($1, $2, $3)").unwrap();
    let row = [Value::Integer(7), Value::Integer(3), Value::Text("abc".into())];
    connection.execute_statement(&insert, &row).unwrap();
    let read = connection.query_row("SELECT a, b FROM t", &[]).unwrap().unwrap();
    assert_eq!(read, [Value::BigInt(7), Value::Numeric { unscaled: 300, scale: 2 }]);
    assert_eq!(state(connection.execute_statement(&insert, &row[..1])), SqlState::PROTOCOL_VIOLATION);
    assert_eq!(state(connection.execute_statement(&insert, &[])), SqlState::UNDEFINED_PARAMETER);
}

#[test]
fn a_transaction_guard_rolls_back_when_dropped() {
    let mut connection = filled(1).connect();
    let mut transaction = connection.transaction().unwrap();
    transaction.execute("UPDATE t SET b = 1").unwrap();
    drop(transaction);
    assert_eq!(connection.status(), TransactionStatus::Idle);
    assert_eq!(one(&mut connection, "SELECT b FROM t"), Value::BigInt(0));
    let mut transaction = connection.transaction().unwrap();
    assert!(transaction.execute("SELECT 1 / 0").is_err());
    assert_eq!(state(transaction.commit()), SqlState::IN_FAILED_SQL_TRANSACTION);
    assert_eq!(connection.status(), TransactionStatus::Idle);
}

#[test]
fn rows_of_a_block_are_read_ahead_when_the_block_moves_on() {
    let mut connection = filled(10).connect();
    connection.execute("BEGIN").unwrap();
    // Too wide for the short path.
    let query = connection.prepare("SELECT a, sum(b) FROM t GROUP BY a ORDER BY a").unwrap();
    let Outcome::Rows(rows) = connection.run(&query, &[]).unwrap() else { panic!() };
    connection.execute("DELETE FROM t").unwrap();
    connection.execute("COMMIT").unwrap();
    assert_eq!(rows.into_values().unwrap().len(), 10);
}

#[test]
fn rows_outside_a_block_keep_their_snapshot() {
    let mut connection = filled(10).connect();
    let query = connection.prepare("SELECT a, sum(b) FROM t GROUP BY a ORDER BY a").unwrap();
    let Outcome::Rows(rows) = connection.run(&query, &[]).unwrap() else { panic!() };
    connection.execute("DELETE FROM t").unwrap();
    assert_eq!(rows.into_values().unwrap().len(), 10);
    assert_eq!(one(&mut connection, "SELECT count(*) FROM t"), Value::BigInt(0));
}

#[test]
fn a_prepared_key_lookup_takes_the_short_path() {
    let mut connection = filled(10).connect();
    let query = connection.prepare("SELECT b FROM t WHERE a = $1").unwrap();
    let Outcome::Rows(mut rows) = connection.run(&query, &[Value::BigInt(3)]).unwrap() else { panic!() };
    assert!(
        matches!(rows.next_chunk().unwrap(), Some(RowChunk::Values(values)) if values == [Value::BigInt(0)])
    );
    assert!(rows.next_chunk().unwrap().is_none());
    assert_eq!(rows.tag().to_string(), "SELECT 1");
}

#[test]
fn single_statements_that_conflict_are_run_again() {
    let database = filled(1);
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let database = database.clone();
            thread::spawn("worker", move || {
                let mut connection = database.connect();
                let update = connection.prepare("UPDATE t SET b = b + 1 WHERE a = 0").unwrap();
                for _ in 0..200 {
                    connection.execute_statement(&update, &[]).unwrap();
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(one(&mut database.connect(), "SELECT b FROM t"), Value::BigInt(800));
}

/// Whether a protocol reports the mistake to the block, as it should, or does not.
#[test]
fn a_copy_that_fails_in_a_block_is_an_error_like_any_other() {
    let database = filled(1);
    let (mut connection, mut other) = (database.connect(), database.connect());
    other.set("lock_timeout", "1s").unwrap();
    let copy = connection.prepare("COPY t FROM STDIN").unwrap();
    for is_failed in [false, true] {
        let fail = |connection: &mut Connection| {
            let Outcome::CopyIn(mut data) = connection.run(&copy, &[]).unwrap() else { panic!() };
            data.write_data(b"0\t7\n").unwrap();
            assert_eq!(state(data.finish()), SqlState::UNIQUE_VIOLATION);
            if is_failed {
                connection.fail_block();
            }
            assert_eq!(connection.status(), TransactionStatus::Failed);
        };
        // The change can be rolled back.
        connection.execute("BEGIN; UPDATE t SET b = 1; SAVEPOINT s").unwrap();
        fail(&mut connection);
        assert_eq!(state(connection.execute("SELECT 1")), SqlState::IN_FAILED_SQL_TRANSACTION);
        connection.execute("ROLLBACK TO s; UPDATE t SET b = b + 1").unwrap();
        fail(&mut connection);
        connection.execute("ROLLBACK TO s; COMMIT").unwrap();
        assert_eq!(one(&mut other, "SELECT b FROM t"), Value::BigInt(1));
        // Without a savepoint no transaction waits for the changes, although the client has not sent ROLLBACK yet.
        connection.execute("BEGIN; UPDATE t SET b = 2").unwrap();
        fail(&mut connection);
        other.execute("UPDATE t SET b = 3").unwrap();
        assert_eq!(connection.status(), TransactionStatus::Failed);
        connection.execute("ROLLBACK").unwrap();
        assert_eq!(one(&mut other, "SELECT b FROM t"), Value::BigInt(3));
    }
}

#[test]
fn plans_are_shared_and_replaced_when_the_catalog_changes() {
    let database = filled(1);
    let plans = || database.shared.plans.len();
    let (mut first, mut second) = (database.connect(), database.connect());
    let before = plans();
    let a = first.prepare("SELECT b FROM t WHERE a = 0").unwrap();
    let b = second.prepare("SELECT b FROM t WHERE a = 0").unwrap();
    assert_eq!(plans(), before + 1);
    first.execute("CREATE INDEX ON t (b)").unwrap();
    for (connection, statement) in [(&mut first, &a), (&mut second, &b)] {
        assert_eq!(connection.query_values(statement, &[]).unwrap(), [[Value::BigInt(0)]]);
    }
    first.execute("ALTER TABLE t ALTER b TYPE integer").unwrap();
    assert_eq!(state(second.query_values(&b, &[])), SqlState::FEATURE_NOT_SUPPORTED);
}

/// The sessions do nothing after the DDL. The last statement that one has run is another session's statement about the table.
#[test]
fn no_plan_keeps_a_table_that_is_dropped_or_truncated() {
    let database = Database::memory().unwrap();
    let (mut connection, mut other) = (database.connect(), database.connect());
    for (ddl, ends) in [
        ("TRUNCATE big", ""),
        ("DROP TABLE big", ""),
        ("BEGIN; DROP TABLE big", "COMMIT"),
        ("BEGIN; CREATE TABLE bigger AS SELECT * FROM big; SELECT count(*) FROM bigger", "ROLLBACK"),
        ("BEGIN; CREATE TABLE bigger AS SELECT * FROM big; SELECT count(*) FROM bigger", "an error"),
        ("BEGIN; CREATE TABLE bigger AS SELECT * FROM big; SELECT count(*) FROM bigger", "its end"),
    ] {
        connection.execute("DROP TABLE IF EXISTS big; CREATE TABLE big (a bigint PRIMARY KEY)").unwrap();
        connection.execute("INSERT INTO big SELECT generate_series(1, 10)").unwrap();
        assert_eq!(one(&mut other, "SELECT count(*) FROM big"), Value::BigInt(10));
        assert!(database.shared.plans.len() > 0);
        connection.execute(ddl).unwrap();
        match ends {
            "an error" => drop(connection.execute("INSERT INTO big VALUES (1)").unwrap_err()),
            "its end" => connection = database.connect(),
            statement => drop(connection.execute(statement).unwrap()),
        }
        if !ddl.contains("bigger") {
            assert_eq!(database.shared.plans.len(), 0, "{ddl}");
        }
        assert!(database.shared.plans.all_hold(database.engine()), "{ddl}; {ends}");
        if ends == "an error" {
            connection.execute("ROLLBACK").unwrap();
        }
    }
}

#[test]
fn a_statement_can_be_cancelled_from_another_thread() {
    let mut connection = filled(2000).connect();
    let cancel = connection.cancel_handle();
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let canceller = thread::spawn("canceller", move || {
        // Until the cancel has taken effect: the statement may not have begun yet.
        while !seen.load(Ordering::Relaxed) {
            firn_base::clock::sleep(Duration::from_millis(5));
            cancel.cancel();
        }
    });
    assert_eq!(state(connection.query(ENDLESS)), SqlState::QUERY_CANCELED);
    done.store(true, Ordering::Relaxed);
    canceller.join().unwrap();
}

/// Statements of every kind, and more of them than there are workers: another session must be able to find and end them.
#[test]
fn queries_that_never_end_leave_others_their_turn() {
    let database = filled(2000);
    let endless = [
        "SELECT count(*) FROM t x, t y, t z, t a",
        "SELECT count(*) FROM generate_series(1, 10000) a, generate_series(1, 100000000000) b",
        "SELECT count(*) FROM generate_series(1, 100000000000) b",
        "SELECT count(*) FROM t x JOIN t y ON x.b % 2 = y.b % 2 JOIN t z ON y.b % 2 = z.b % 2 JOIN t a ON z.b % 2 = a.b % 2",
        "SELECT count(*) FROM (SELECT unnest(ARRAY[a.a, b.a, c.a, d.a]) FROM t a, t b, t c, t d) x",
        "SELECT sum(x.a) FROM t x, t y, t z, t a WHERE x.a + y.a + z.a + a.a > 0",
    ];
    let threads = 2 * thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let run = |number: usize| {
            let mut connection = database.connect();
            let cancel = connection.cancel_handle();
            let running = thread::spawn_scoped(scope, "endless", move || {
                state(connection.query(endless[number % endless.len()]))
            });
            (cancel, running)
        };
        let running: Vec<_> = (0..threads.max(endless.len())).map(run).collect();
        let mut connection = database.connect();
        connection.execute("SET statement_timeout = '100s'").unwrap();
        let active = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active'";
        while one(&mut connection, active) != Value::BigInt(running.len() as i64 + 1) {
            firn_base::clock::sleep(Duration::from_millis(1));
        }
        // Queries with many parts are run as well.
        for _ in 0..3 {
            assert_eq!(
                one(&mut connection, "SELECT count(*) FROM t x JOIN t y USING (a)"),
                Value::BigInt(2000)
            );
        }
        for (cancel, running) in running {
            cancel.cancel();
            assert_eq!(running.join().unwrap(), SqlState::QUERY_CANCELED);
        }
    });
}

#[test]
fn a_statement_that_takes_too_long_is_cancelled() {
    let mut connection = filled(2000).connect();
    connection.execute("SET statement_timeout = 20").unwrap();
    let error = connection.query(ENDLESS).unwrap_err();
    assert_eq!(error.state(), SqlState::QUERY_CANCELED);
    assert_eq!(error.message(), "canceling statement due to statement timeout");
    connection.execute("SET statement_timeout = 0").unwrap();
    assert_eq!(one(&mut connection, "SELECT count(*) FROM t"), Value::BigInt(2000));
}

#[test]
fn columns_round_to_the_decimals_of_their_types() {
    let mut connection = Database::memory().unwrap().connect();
    connection.execute("CREATE TABLE t (a timestamp(3), b timestamptz(0), c time(6))").unwrap();
    let moment = "2026-01-01 00:00:00.123678";
    connection
        .execute(&format!("INSERT INTO t VALUES ('{moment}', '{moment}+00', '00:00:00.123678')"))
        .unwrap();
    let rounded = texts(&mut connection, "SELECT a::text, b::text, c::text FROM t");
    assert_eq!(rounded, ["2026-01-01 00:00:00.124|2026-01-01 00:00:00+00|00:00:00.123678"]);
    assert!(connection.take_notices().is_empty());
}

#[test]
fn notices_come_once_and_in_order() {
    let mut connection = connection();
    connection.execute("DROP TABLE IF EXISTS nothing; COMMIT").unwrap();
    let notices = connection.take_notices();
    let messages: Vec<&str> = notices.iter().map(|notice| notice.message()).collect();
    assert_eq!(
        messages,
        ["table \"nothing\" does not exist, skipping", "there is no transaction in progress"]
    );
    assert!(connection.take_notices().is_empty());
    for (least, reported) in [("debug1", 2), ("notice", 2), ("warning", 1), ("error", 0)] {
        connection.execute(&format!("SET client_min_messages = {least}")).unwrap();
        connection.execute("DROP TABLE IF EXISTS nothing; COMMIT").unwrap();
        assert_eq!(connection.take_notices().len(), reported, "{least}");
    }
}

#[test]
fn copy_in_stores_all_rows_or_none() {
    let mut connection = filled(0).connect();
    let copy = connection.prepare("COPY t FROM STDIN").unwrap();
    let Outcome::CopyIn(mut data) = connection.run(&copy, &[]).unwrap() else { panic!() };
    assert_eq!(data.columns(), 2);
    for piece in ["1\t1", "0\n2", "\t20\n"] {
        data.write_data(piece.as_bytes()).unwrap();
    }
    assert_eq!(data.finish().unwrap().to_string(), "COPY 2");
    assert_eq!(one(&mut connection, "SELECT sum(b)::bigint FROM t"), Value::BigInt(30));

    // Abandoned, outside a block and inside one.
    let Outcome::CopyIn(mut data) = connection.run(&copy, &[]).unwrap() else { panic!() };
    data.write_data(b"3\t30\n").unwrap();
    drop(data);
    assert_eq!(one(&mut connection, "SELECT count(*) FROM t"), Value::BigInt(2));
    connection.execute("BEGIN").unwrap();
    let Outcome::CopyIn(mut data) = connection.run(&copy, &[]).unwrap() else { panic!() };
    data.write_data(b"3\t30\n").unwrap();
    drop(data);
    assert_eq!(connection.status(), TransactionStatus::Failed);
    assert_eq!(state(connection.execute("SELECT 1")), SqlState::IN_FAILED_SQL_TRANSACTION);
    connection.execute("ROLLBACK").unwrap();

    // Finished inside a block that continues.
    connection.execute("BEGIN").unwrap();
    let Outcome::CopyIn(mut data) = connection.run(&copy, &[]).unwrap() else { panic!() };
    data.write_data(b"3\t30\n").unwrap();
    data.finish().unwrap();
    assert_eq!(one(&mut connection, "SELECT count(*) FROM t"), Value::BigInt(3));
    connection.execute("COMMIT").unwrap();
    assert_eq!(one(&mut connection, "SELECT count(*) FROM t"), Value::BigInt(3));

    // Mistakes in the data.
    let Outcome::CopyIn(mut data) = connection.run(&copy, &[]).unwrap() else { panic!() };
    let result = data.write_data(b"4\tx\n").and_then(|()| data.finish().map(drop));
    assert_eq!(state(result), SqlState::INVALID_TEXT_REPRESENTATION);
    let Outcome::CopyIn(mut data) = connection.run(&copy, &[]).unwrap() else { panic!() };
    let result = data.write_data(b"1\t1\n").and_then(|()| data.finish().map(drop));
    assert_eq!(state(result), SqlState::UNIQUE_VIOLATION);
    assert_eq!(one(&mut connection, "SELECT count(*) FROM t"), Value::BigInt(3));
}

#[test]
fn copy_goes_to_a_file_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.csv");
    let file = file.to_str().unwrap();
    let mut connection = filled(3000).connect();
    assert_eq!(connection.execute(&format!("COPY t TO '{file}' (FORMAT csv, HEADER)")).unwrap(), 3000);
    connection.execute("DELETE FROM t").unwrap();
    assert_eq!(connection.execute(&format!("COPY t FROM '{file}' (FORMAT csv, HEADER)")).unwrap(), 3000);
    assert_eq!(one(&mut connection, "SELECT max(a) FROM t"), Value::BigInt(2999));
}

#[test]
fn a_failed_block_refuses_to_prepare_but_not_to_end() {
    let mut connection = connection();
    connection.execute("BEGIN").unwrap();
    assert!(connection.prepare("SELEC").is_err());
    assert_eq!(connection.status(), TransactionStatus::Failed);
    assert_eq!(state(connection.prepare("SELECT 1")), SqlState::IN_FAILED_SQL_TRANSACTION);
    let end = connection.prepare("COMMIT").unwrap();
    let Outcome::Done(tag) = connection.run(&end, &[]).unwrap() else { panic!() };
    assert_eq!(tag.to_string(), "ROLLBACK");
}

/// Commits of others are visible before they are on disk. For every kind of read: short, by a stream, in
/// a block, as a copy.
#[test]
fn what_a_query_has_shown_is_not_lost() {
    let disk = SimulatedDisk::new();
    let open = |disk: &Arc<SimulatedDisk>| {
        let config = Config { directory: Some("/data/db".into()), ..Config::default() };
        Database::with_engine(Engine::open_on(disk.clone(), config).unwrap())
    };
    let database = open(&disk);
    let (mut writer, mut reader) = (database.connect(), database.connect());
    writer.execute("CREATE TABLE t (a bigint PRIMARY KEY)").unwrap();
    writer.execute("SET synchronous_commit = off").unwrap();
    for number in 0..40 {
        writer.execute(&format!("INSERT INTO t VALUES ({number})")).unwrap();
        let found = Value::BigInt(number);
        match number % 4 {
            0 => assert_eq!(one(&mut reader, &format!("SELECT a FROM t WHERE a = {number}")), found),
            1 => assert_eq!(one(&mut reader, "SELECT max(a) FROM t WHERE a + 0 >= 0"), found),
            2 => {
                reader.execute("BEGIN").unwrap();
                assert_eq!(one(&mut reader, "SELECT max(a) FROM t"), found);
                reader.execute("COMMIT").unwrap();
            }
            _ => {
                let copy = reader.prepare("COPY (SELECT max(a) FROM t) TO STDOUT").unwrap();
                let Outcome::CopyOut(mut copy) = reader.run(&copy, &[]).unwrap() else { panic!("no copy") };
                while copy.next_chunk().unwrap().is_some() {}
            }
        }
        let mut after = open(&disk.after_power_cut(&mut Random::from_entropy())).connect();
        assert_eq!(one(&mut after, "SELECT max(a) FROM t"), found, "way {}", number % 4);
    }
}

/// By rows, by strings, by COPY, by CREATE TABLE AS: a failed statement is rolled back as a whole, and truncating frees memory.
#[test]
fn a_full_store_fails_statements_and_continues() {
    let database = limited(24 << 20);
    let mut connection = database.connect();
    assert_eq!(connection.setting("memory_limit").unwrap(), "24MB");
    connection.execute("CREATE TABLE t (a bigint, b text)").unwrap();
    connection.execute("CREATE TABLE n (a bigint PRIMARY KEY, b bigint)").unwrap();
    connection.execute("INSERT INTO n SELECT g, 0 FROM generate_series(1, 1000) g").unwrap();
    let many = "SELECT g, repeat('x', 100) FROM generate_series(1, 1000000) g";
    let file = tempfile::NamedTempFile::new().unwrap();
    connection.execute(&format!("COPY ({many}) TO '{}'", file.path().display())).unwrap();
    for statement in [
        format!("INSERT INTO t {many}"),
        format!("COPY t FROM '{}'", file.path().display()),
        // Rows that become cold at once take little memory if all strings are alike.
        "CREATE TABLE u AS SELECT g, repeat(g::text, 16) FROM generate_series(1, 1000000) g".to_owned(),
        "INSERT INTO n SELECT g, 0 FROM generate_series(1001, 10000000) g".to_owned(),
        // Keys that are collected and inserted in one batch.
        "INSERT INTO n SELECT g::bigint * 7919 % 10000019 + 1001, 0 FROM generate_series(1, 10000000) g"
            .to_owned(),
    ] {
        for in_block in [false, true] {
            if in_block {
                connection.execute("BEGIN; UPDATE n SET b = 1 WHERE a = 1").unwrap();
            }
            let error = connection.execute(&statement).unwrap_err();
            assert_eq!(error.state(), SqlState::OUT_OF_MEMORY, "{statement}: {error}");
            assert!(error.detail().is_some_and(|detail| detail.contains("24.0 MiB")));
            if in_block {
                assert_eq!(state(connection.execute("SELECT 1")), SqlState::IN_FAILED_SQL_TRANSACTION);
                connection.execute("ROLLBACK").unwrap();
            }
            assert_eq!(
                one(
                    &mut connection,
                    "SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM n WHERE b > 0)"
                ),
                Value::BigInt(0)
            );
            connection.execute("DELETE FROM n WHERE a = 1; TRUNCATE t; INSERT INTO n VALUES (1, 0)").unwrap();
        }
    }
    assert_eq!(one(&mut connection, "SELECT count(*) FROM n"), Value::BigInt(1000));
}

pub(crate) fn texts(connection: &mut Connection, sql: &str) -> Vec<String> {
    let statement = connection.prepare(sql).unwrap();
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::BigInt(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let rows = connection.query_values(&statement, &[]).unwrap();
    rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join("|")).collect()
}

fn figure(connection: &mut Connection, name: &str) -> i64 {
    match one(connection, &format!("SELECT value FROM firn_stat_engine WHERE name = '{name}'")) {
        Value::BigInt(value) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sessions_see_what_others_do_and_wait_for() {
    let database = filled(3);
    let mut looking = database.connect();
    let mut holder = database.connect();
    holder.identify("ada", "firn");
    holder.execute("SET application_name = 'desk'; BEGIN; UPDATE t SET b = 1 WHERE a = 1").unwrap();
    let waiter = database.connect();
    let cancel = waiter.cancel_handle();
    thread::scope(|scope| {
        let waiting = thread::spawn_scoped(scope, "waiting", || {
            let mut waiter = waiter;
            waiter.execute("BEGIN ISOLATION LEVEL READ COMMITTED; UPDATE t SET b = 2 WHERE a < 3")
        });
        let sessions = "SELECT pid, usename, application_name, state, wait_event_type, query FROM pg_stat_activity \
                        WHERE pid <> pg_backend_pid() ORDER BY pid";
        let begun = firn_base::clock::now();
        // While it waits for short times, it wakes up to check whether it is cancelled.
        while !texts(&mut looking, sessions).iter().any(|row| row.contains("|active|Lock|")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", texts(&mut looking, sessions));
        }
        assert!(texts(&mut looking, sessions).iter().any(|row| {
            row.ends_with("|ada|desk|idle in transaction|Client|UPDATE t SET b = 1 WHERE a = 1")
        }));
        let edges = "SELECT holder.isolation, holder.writes, holder.records, waiter.isolation, waiter.query \
                     FROM firn_stat_transactions waiter JOIN firn_stat_transactions holder \
                     ON waiter.waits_for = holder.id";
        let edge = "serializable|true|1|read committed|UPDATE t SET b = 2 WHERE a < 3";
        let locks = "SELECT w.mode, h.mode, h.pid = (SELECT pid FROM pg_stat_activity WHERE usename = 'ada') \
                     FROM pg_locks w JOIN pg_locks h ON w.transactionid = h.transactionid AND h.granted \
                     WHERE NOT w.granted";
        // Between two checks of its cancel flag it waits for no other transaction.
        let soon = |connection: &mut Connection, sql: &str, expected: &str| {
            while texts(connection, sql) != [expected] {
                assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", texts(connection, sql));
            }
        };
        soon(&mut looking, edges, edge);
        soon(&mut looking, locks, "ShareLock|ExclusiveLock|true");
        assert!(figure(&mut looking, "waits") >= 1);
        cancel.cancel();
        assert_eq!(state(waiting.join().unwrap()), SqlState::QUERY_CANCELED);
    });
    holder.execute("ROLLBACK").unwrap();
    let rest = "SELECT state, xact_start IS NULL FROM pg_stat_activity WHERE usename = 'ada'";
    assert_eq!(texts(&mut looking, rest), ["idle|true"]);
    drop(holder);
    // The threads of a query release the session a little later.
    while texts(&mut looking, "SELECT state FROM pg_stat_activity") != ["active"] {
        thread::yield_now();
    }
    assert_eq!(texts(&mut looking, rest), [""; 0]);
}

#[test]
fn a_session_is_active_until_its_rows_are_drawn() {
    let database = filled(2000);
    let mut looking = database.connect();
    let mut connection = database.connect();
    let states = "SELECT state FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
    for (begin, after) in [("", "idle"), ("BEGIN", "idle in transaction")] {
        connection.execute(begin).unwrap();
        for drawn in [false, true] {
            let statement = connection.prepare("SELECT x.b FROM t x, generate_series(1, 10)").unwrap();
            let Outcome::Rows(mut rows) = connection.run(&statement, &[]).unwrap() else { panic!("a query") };
            assert_eq!(texts(&mut looking, states), ["active"]);
            while drawn && rows.next_chunk().unwrap().is_some() {}
            drop(rows);
            assert_eq!(texts(&mut looking, states), [after]);
        }
    }
}

/// A sleeping statement can be cancelled, and blocks neither memory nor threads of others.
#[test]
fn sleeping_sessions_block_no_others() {
    let database = filled(2000);
    let sleeping = [
        "SELECT pg_sleep(3600)",
        "UPDATE t SET b = 1 WHERE a = 1 AND pg_sleep(3600) IS NOT NULL",
        // In the workers, below an exchange.
        "SELECT a, count(*) FILTER (WHERE pg_sleep(3600) IS NOT NULL) FROM t GROUP BY a",
    ];
    let sleepers = 2 + firn_base::thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let mut asleep = Vec::new();
        for (at, sql) in sleeping.iter().cycle().take(3 * sleepers).enumerate() {
            let mut connection = database.connect();
            let cancel = connection.cancel_handle();
            let block = if at % 2 == 0 { "" } else { "BEGIN; " };
            let run = move || connection.execute(&format!("{block}{sql}")).map(drop);
            asleep.push((thread::spawn_scoped(scope, "sleeping", run), cancel));
        }
        let mut other = database.connect();
        other.execute("SET statement_timeout = '60s'").unwrap();
        // Its own session as well.
        let active =
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(3600%'";
        while one(&mut other, active) != Value::BigInt(3 * sleepers as i64 + 1) {
            thread::yield_now();
        }
        // It uses workers, too.
        let groups = "SELECT count(*) FROM (SELECT a, count(*) FROM t GROUP BY a) groups";
        assert_eq!(one(&mut other, groups), Value::BigInt(2000));
        until_earlier_guards_are_dropped();
        for (thread, cancel) in asleep {
            assert!(!thread.is_finished(), "it sleeps");
            cancel.cancel();
            assert_eq!(state(thread.join().unwrap()), SqlState::QUERY_CANCELED);
        }
    });
}

#[test]
fn aborted_transactions_are_counted_by_cause() {
    let database = filled(3);
    let (mut a, mut b) = (database.connect(), database.connect());
    let run = |connection: &mut Connection, sql: &str| connection.execute(sql).map(drop);
    // Alone, and in a block whose first error counts.
    assert_eq!(state(a.execute("INSERT INTO t VALUES (1, 1)")), SqlState::UNIQUE_VIOLATION);
    run(&mut a, "BEGIN").unwrap();
    assert_eq!(state(a.execute("INSERT INTO t VALUES (2, 1)")), SqlState::UNIQUE_VIOLATION);
    assert!(run(&mut a, "SELECT 1").is_err());
    run(&mut a, "COMMIT").unwrap();
    // An error after which the block returns to a savepoint does not count.
    run(&mut a, "BEGIN; SAVEPOINT s").unwrap();
    assert!(run(&mut a, "SELECT 1 / 0").is_err());
    run(&mut a, "ROLLBACK TO s; UPDATE t SET b = 7 WHERE a = 1; COMMIT").unwrap();
    run(&mut a, "BEGIN; UPDATE t SET b = 8 WHERE a = 1; ROLLBACK").unwrap();
    run(&mut database.connect(), "BEGIN; UPDATE t SET b = 8 WHERE a = 1").unwrap();

    run(&mut a, "BEGIN; SELECT b FROM t WHERE a = 2; UPDATE t SET b = 5 WHERE a = 1").unwrap();
    run(&mut b, "UPDATE t SET b = 9 WHERE a = 2; SET lock_timeout = '5ms'").unwrap();
    run(&mut b, "BEGIN ISOLATION LEVEL READ COMMITTED").unwrap();
    assert_eq!(state(b.execute("UPDATE t SET b = 9 WHERE a = 1")), SqlState::LOCK_NOT_AVAILABLE);
    run(&mut b, "ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t").unwrap();
    assert_eq!(state(a.execute("COMMIT")), SqlState::SERIALIZATION_FAILURE);
    run(&mut a, "UPDATE t SET b = 6 WHERE a = 2").unwrap();
    assert_eq!(state(b.execute("UPDATE t SET b = 9 WHERE a = 2")), SqlState::SERIALIZATION_FAILURE);
    run(&mut b, "ROLLBACK; SET statement_timeout = '5ms'").unwrap();
    run(&mut b, "BEGIN").unwrap();
    let long = "SELECT x FROM generate_series(1, 100000) AS a(x), generate_series(1, 100000) AS b(y)";
    assert_eq!(state(b.execute(long)), SqlState::QUERY_CANCELED);
    run(&mut b, "ROLLBACK").unwrap();
    // Whether a server ends the connection, or the connection finds out when its client returns, or its client never does.
    run(&mut b, "SET statement_timeout = 0").unwrap();
    for by_caller in [true, false] {
        if !by_caller {
            run(&mut b, "SET idle_in_transaction_session_timeout = '1ms'").unwrap();
        }
        run(&mut b, "BEGIN; SELECT * FROM t").unwrap();
        if by_caller {
            assert_eq!(b.expire().state(), SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT);
            run(&mut b, "ROLLBACK").unwrap();
        }
    }
    while b.status() != TransactionStatus::Failed {
        firn_base::thread::yield_now();
    }
    drop(b);

    let sql =
        "SELECT isolation, sqlstate, cause, transactions FROM firn_stat_aborts ORDER BY isolation, sqlstate";
    assert_eq!(
        texts(&mut a, sql),
        [
            "read committed|55P03|lock not available|1",
            "repeatable read|40001|changed what was to be written|1",
            "serializable|23505|constraint|2",
            "serializable|25P03|idle|2",
            "serializable|40001|changed what was read|1",
            "serializable|57014|cancelled|1",
            "serializable|-|rolled back|2",
        ]
    );
    let conflicts = "SELECT conflicts FROM pg_stat_database";
    assert_eq!(texts(&mut a, conflicts), ["2"]);
}

#[test]
fn the_engine_counts_what_happens_by_cause() {
    let database = filled(3);
    let mut looking = database.connect();
    let (mut a, mut b) = (database.connect(), database.connect());
    let names = [
        "commits",
        "rollbacks",
        "unique_violations",
        "validation_failures",
        "lock_timeouts",
        "write_conflicts",
    ];
    let before = names.map(|name| figure(&mut looking, name));
    a.execute("UPDATE t SET b = 1 WHERE a = 1").unwrap();
    assert_eq!(state(a.execute("INSERT INTO t VALUES (1, 1)")), SqlState::new("23505"));
    a.execute("BEGIN; SELECT b FROM t WHERE a = 2; UPDATE t SET b = 5 WHERE a = 1").unwrap();
    b.execute("UPDATE t SET b = 9 WHERE a = 2; SET lock_timeout = '5ms'").unwrap();
    assert_eq!(state(b.execute("UPDATE t SET b = 9 WHERE a = 1")), SqlState::LOCK_NOT_AVAILABLE);
    assert_eq!(state(a.execute("COMMIT")), SqlState::SERIALIZATION_FAILURE);
    let after = names.map(|name| figure(&mut looking, name));
    let counted: Vec<i64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    assert_eq!(counted[..5], [2, 2, 1, 1, 1], "{names:?}");
    assert!(counted[5] >= 1);
    let timed = texts(&mut looking, "SELECT sum(commits) >= 1, max(upto_us) FROM firn_stat_commit_latency");
    assert_eq!(timed, ["true|16777216"]);
    for name in ["memory_bytes", "row_bytes", "version_bytes", "sessions"] {
        assert!(figure(&mut looking, name) > 0, "{name}");
    }
    a.execute("DELETE FROM t WHERE a = 0").unwrap();
    while figure(&mut looking, "undo_records") > 0 {}
    // The slots of the row that was deleted and of the one that could not be inserted.
    let tables = "SELECT relname, rows, free_slots, blocks, total_bytes > 0 FROM firn_stat_tables";
    assert_eq!(texts(&mut looking, tables), ["t|2|2|1|true"]);
    let blocks =
        "SELECT relname, block, rows, free_slots, bytes > 0, state IN ('hot', 'cooling') FROM firn_blocks";
    assert_eq!(texts(&mut looking, blocks), ["t|0|2|2|true|true"]);
    let settings = "SELECT setting, boot_val, source FROM pg_settings WHERE name = 'lock_timeout'";
    assert_eq!(texts(&mut b, settings), ["5|0|session"]);
    assert_eq!(texts(&mut a, settings), ["0|0|default"]);
}

#[test]
fn rows_without_sql_respect_constraints_that_they_cannot_check() {
    use crate::native::{TableAccess, pin};
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection.execute("CREATE TABLE p (a integer PRIMARY KEY)").unwrap();
    for (table, constraint) in [("c", "CHECK (a > 0)"), ("f", "REFERENCES p"), ("u", "UNIQUE DEFERRABLE")] {
        connection.execute(&format!("CREATE TABLE {table} (a integer NOT NULL {constraint})")).unwrap();
        let access = TableAccess::open(database.engine(), table).unwrap();
        let columns = access.all_columns::<(i32,)>().unwrap();
        let refused = database.engine().transact(|tx| tx.insert_as(&columns, &(1,), &pin()));
        assert_eq!(refused.unwrap_err().state(), SqlState::FEATURE_NOT_SUPPORTED);
    }
    let access = TableAccess::open(database.engine(), "p").unwrap();
    let columns = access.all_columns::<(i32,)>().unwrap();
    database.engine().transact(|tx| tx.insert_as(&columns, &(1,), &pin())).unwrap();
    assert_eq!(one(&mut connection, "SELECT sum(a) FROM p"), Value::BigInt(1));
    // Also for a constraint that is added later, and dropped.
    let insert = |a| database.engine().transact(|tx| tx.insert_as(&columns, &(a,), &pin()));
    connection.execute("ALTER TABLE p ADD CONSTRAINT late UNIQUE (a) DEFERRABLE").unwrap();
    assert_eq!(state(insert(2)), SqlState::FEATURE_NOT_SUPPORTED);
    connection.execute("ALTER TABLE p DROP CONSTRAINT late").unwrap();
    insert(2).unwrap();
}

/// The remaining work on each row was distributed to several threads, above the operator that keeps the requested order.
#[test]
fn rows_come_in_order_also_where_something_is_left_to_do_on_each() {
    let mut connection = Database::memory().unwrap().connect();
    connection.execute("CREATE TABLE t (i int)").unwrap();
    connection.execute("INSERT INTO t SELECT 100000 - i FROM generate_series(1, 100000) AS g(i)").unwrap();
    for (query, first) in [
        ("SELECT i, 'x' FROM t ORDER BY i", 0),
        ("SELECT i, 'x' FROM t ORDER BY i OFFSET 1", 1),
        ("SELECT i, 'x' FROM generate_series(0, 99999) AS g(i) ORDER BY i", 0),
        ("SELECT (-j)::int AS i, 'x' FROM (SELECT -i AS j, i AS k FROM t) AS s ORDER BY k", 0),
        ("SELECT i, 'x' FROM t WHERE i >= (SELECT min(i) FROM t) ORDER BY i", 0),
        ("SELECT i, 'x', (SELECT max(i) FROM t) FROM t ORDER BY i", 0),
        ("SELECT DISTINCT ON (i) i, 'x' FROM t ORDER BY i", 0),
    ] {
        for _ in 0..3 {
            let statement = connection.prepare(query).unwrap();
            let rows = connection.query_values(&statement, &[]).unwrap();
            let number = |row: &Vec<Value>| match row[0] {
                Value::Integer(number) => i64::from(number),
                Value::BigInt(number) => number,
                ref other => panic!("{query}: {other:?}"),
            };
            assert!(rows.iter().map(number).eq(first..100_000), "{query}");
        }
    }
}

/// Those of other sessions may remain, as in PostgreSQL after a crash.
#[test]
fn numbers_of_transactions_that_committed_do_not_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Database::open(directory.path().join("db")).unwrap();
    for _ in 0..3 {
        let database = open();
        let mut connection = database.connect();
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (n bigint)").unwrap();
        connection.execute("INSERT INTO numbers VALUES (txid_current())").unwrap();
        connection.execute("INSERT INTO numbers VALUES (txid_current())").unwrap();
        connection.execute("BEGIN; SELECT txid_current(); ROLLBACK").unwrap();
        drop(connection);
        database.close().unwrap();
    }
    let database = open();
    let mut connection = database.connect();
    let asked = "SELECT count(DISTINCT n) = 6 AND bool_and(n < txid_current()) FROM numbers";
    assert_eq!(one(&mut connection, asked), Value::Boolean(true));
}
