//! Cursors, named prepared statements, EXPLAIN and CREATE TABLE AS EXECUTE, with PostgreSQL 15's results.

use crate::{Connection, Database, Outcome};
use firn_base::{SqlState, Value};

fn connection() -> Connection {
    let mut connection = Database::memory().unwrap().connect();
    connection
        .execute("CREATE TABLE t (x integer PRIMARY KEY); INSERT INTO t SELECT * FROM generate_series(1, 5)")
        .unwrap();
    connection
}

/// The rows of a statement as text, separated by blanks; columns by `|`.
fn shown(connection: &mut Connection, sql: &str) -> String {
    let statement = connection.prepare(sql).unwrap();
    let rows = connection.query_values(&statement, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let value = |value: &Value| match value {
        Value::Integer(number) => number.to_string(),
        Value::BigInt(number) => number.to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Text(text) => text.clone(),
        Value::Array(array) => format!("{:?}", array.elements()),
        Value::Null => "NULL".to_owned(),
        other => format!("{other:?}"),
    };
    let row = |row: &Vec<Value>| row.iter().map(value).collect::<Vec<_>>().join("|");
    rows.iter().map(row).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_cursor_goes_where_fetch_and_move_say() {
    let mut connection = connection();
    for declared in ["SCROLL CURSOR", "CURSOR", "SCROLL CURSOR WITH HOLD"] {
        connection.execute(&format!("BEGIN; DECLARE s {declared} FOR SELECT x FROM t ORDER BY x")).unwrap();
        if declared.contains("HOLD") {
            connection.execute("COMMIT").unwrap();
        }
        // Each from the position that the one before has left; what PostgreSQL 15 returns.
        for (fetch, rows) in [
            ("FETCH 0 s", ""),
            ("FETCH PRIOR s", ""),
            ("FETCH LAST s", "5"),
            ("FETCH PRIOR s", "4"),
            ("FETCH BACKWARD 2 s", "3 2"),
            ("FETCH 0 s", "2"),
            ("FETCH ABSOLUTE 2 s", "2"),
            ("FETCH RELATIVE 2 s", "4"),
            ("FETCH RELATIVE -3 s", "1"),
            ("FETCH RELATIVE 0 s", "1"),
            ("FETCH FIRST s", "1"),
            ("FETCH -1 s", ""),
            ("FETCH NEXT s", "1"),
            ("FETCH FORWARD ALL s", "2 3 4 5"),
            ("FETCH 0 s", ""),
            ("FETCH 1 s", ""),
            ("FETCH BACKWARD ALL s", "5 4 3 2 1"),
            ("FETCH BACKWARD s", ""),
            ("FETCH 2 s", "1 2"),
            ("FETCH ABSOLUTE 9 s", ""),
            ("FETCH PRIOR s", "5"),
            ("FETCH ABSOLUTE -2 s", "4"),
            ("FETCH ABSOLUTE -9 s", ""),
            ("FETCH 1 s", "1"),
            ("FETCH ABSOLUTE 0 s", ""),
            ("FETCH BACKWARD -2 s", "1 2"),
        ] {
            assert_eq!(shown(&mut connection, fetch), rows, "{declared}: {fetch}");
        }
        for (statement, rows) in [
            ("MOVE 0 s", 1),
            ("MOVE FORWARD ALL s", 3),
            ("MOVE 0 s", 0),
            ("MOVE BACKWARD ALL s", 5),
            ("MOVE 3 s", 3),
            ("MOVE LAST s", 1),
            ("MOVE RELATIVE -1 s", 1),
            ("MOVE ABSOLUTE 7 s", 0),
        ] {
            assert_eq!(connection.execute(statement).unwrap(), rows, "{declared}: {statement}");
        }
        connection.execute("CLOSE s; ROLLBACK").unwrap();
    }
}

#[test]
fn a_cursor_keeps_large_results_only_if_it_was_declared_to_scroll() {
    let mut connection = connection();
    let query = "SELECT repeat('x', 1000) || n AS s, n FROM generate_series(1, 20000) AS g(n)";
    connection
        .execute(&format!("BEGIN; DECLARE s SCROLL CURSOR FOR {query}; DECLARE c CURSOR FOR {query}"))
        .unwrap();
    assert_eq!(connection.execute("MOVE ALL s").unwrap(), 20_000);
    let statement = connection.prepare("FETCH ABSOLUTE 4321 s").unwrap();
    assert_eq!(connection.query_values(&statement, &[]).unwrap()[0][1], Value::Integer(4321));
    assert_eq!(connection.execute("MOVE 2 c").unwrap(), 2);
    assert_eq!(connection.execute("MOVE BACKWARD 1 c").unwrap(), 1);
    assert_eq!(connection.execute("MOVE ALL c").unwrap(), 19_999);
    let error = connection.execute("FETCH PRIOR c").unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
}

#[test]
fn statements_in_statements_take_the_parameters_of_the_message() {
    let mut connection = connection();
    connection.execute("BEGIN").unwrap();
    let declare = connection.prepare("DECLARE c CURSOR FOR SELECT x FROM t WHERE x > $1 ORDER BY x").unwrap();
    assert_eq!(declare.parameters().len(), 1);
    connection.execute_statement(&declare, &[Value::BigInt(3)]).unwrap();
    assert_eq!(shown(&mut connection, "FETCH ALL c"), "4 5");
    connection.execute("COMMIT").unwrap();
    let explain = connection.prepare("EXPLAIN ANALYZE INSERT INTO t VALUES ($1)").unwrap();
    assert!(!connection.query_values(&explain, &[Value::Integer(6)]).unwrap().is_empty());
    assert_eq!(shown(&mut connection, "SELECT x FROM t WHERE x > 5"), "6");
    for text in ["CREATE TABLE u AS SELECT x + $1 AS y FROM t", "SELECT x + $1 AS y INTO u FROM t"] {
        let create = connection.prepare(text).unwrap();
        assert_eq!(connection.execute_statement(&create, &[Value::Integer(10)]).unwrap(), 6);
        assert_eq!(shown(&mut connection, "SELECT min(y), count(*) FROM u; "), "11|6", "{text}");
        connection.execute("DROP TABLE u").unwrap();
    }
    let none = connection.prepare("EXPLAIN SELECT 1").unwrap();
    assert_eq!(connection.run(&none, &[Value::Null]).err().unwrap().state(), SqlState::PROTOCOL_VIOLATION);
}

#[test]
fn tables_are_made_of_what_execute_yields() {
    let mut connection = connection();
    connection.execute("PREPARE p (int) AS SELECT x FROM t WHERE x > $1").unwrap();
    assert_eq!(connection.execute("CREATE TABLE a AS EXECUTE p (2)").unwrap(), 3);
    connection
        .execute("CREATE TABLE b (n) AS EXECUTE p (4); CREATE TABLE e AS EXECUTE p (0) WITH NO DATA")
        .unwrap();
    assert_eq!(shown(&mut connection, "SELECT sum(x) FROM a"), "12");
    assert_eq!(shown(&mut connection, "SELECT n, (SELECT count(x) FROM e) FROM b"), "5|0");
    connection.execute("PREPARE d AS DELETE FROM t").unwrap();
    let error = connection.execute("CREATE TABLE f AS EXECUTE d").unwrap_err();
    assert_eq!(error.state(), SqlState::WRONG_OBJECT_TYPE);
    let error = connection.execute("CREATE TABLE f AS EXECUTE p").unwrap_err();
    assert_eq!(error.state(), SqlState::SYNTAX_ERROR);
}

#[test]
fn cursors_and_prepared_statements_are_listed_while_they_last() {
    let mut connection = connection();
    let cursors =
        "SELECT name, is_holdable, is_binary, is_scrollable, statement FROM pg_cursors ORDER BY name";
    let declare = "DECLARE n BINARY NO SCROLL CURSOR FOR SELECT 1";
    connection.execute("BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT 2").unwrap();
    connection.execute(declare).unwrap();
    let statement = connection.prepare("FETCH n").unwrap();
    let Outcome::Rows(fetched) = connection.run(&statement, &[]).unwrap() else {
        panic!("FETCH yields rows")
    };
    assert!(fetched.are_binary());
    let hold = "BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT 2";
    let expected = format!("h|true|false|true|{hold} n|false|true|false|{declare}");
    assert_eq!(shown(&mut connection, cursors), expected);
    connection.execute("COMMIT").unwrap();
    assert_eq!(shown(&mut connection, "SELECT name FROM pg_cursors"), "h");
    connection.execute("CLOSE ALL").unwrap();
    assert_eq!(shown(&mut connection, cursors), "");

    let prepared =
        "SELECT name, statement, parameter_types::text, from_sql FROM pg_prepared_statements ORDER BY name";
    connection.execute("PREPARE p (int) AS SELECT $1;").unwrap();
    let before = connection.forgotten_statements();
    let statement = connection.prepare("SELECT $1::text").unwrap();
    connection.keep_statement("Q", &statement).unwrap();
    let taken = connection.keep_statement("p", &statement).unwrap_err();
    assert_eq!(taken.state(), SqlState::DUPLICATE_PREPARED_STATEMENT);
    let expected = "Q|SELECT $1::text|{text}|false p|PREPARE p (int) AS SELECT $1;|{integer}|true";
    assert_eq!(shown(&mut connection, prepared), expected);
    assert_eq!(shown(&mut connection, "EXECUTE \"Q\" ('x')"), "x");
    assert_eq!(connection.forgotten_statements(), before);
    connection.execute("DEALLOCATE \"Q\"").unwrap();
    assert!(connection.kept_statement("Q").is_none() && connection.forgotten_statements() != before);
    connection.execute("DISCARD ALL").unwrap();
    assert_eq!(shown(&mut connection, prepared), "");
}

#[test]
fn explain_writes_a_tree_in_three_formats() {
    let mut connection = connection();
    let analyze = "EXPLAIN (ANALYZE, FORMAT JSON) SELECT count(*) FROM t WHERE x > 2 UNION ALL SELECT 1";
    let json = shown(&mut connection, analyze);
    let checked = connection.query_row("SELECT $1::json IS NOT NULL", &[Value::Text(json.clone())]).unwrap();
    assert_eq!(checked, Some(vec![Value::Boolean(true)]));
    for part in [
        "[\n  {\n    \"Plan\": {\n      \"Node Type\": \"",
        "\"Plans\": [",
        "\"Relation Name\": \"t\"",
        "\"Actual Rows\": 2",
        "\"Actual Total Time\"",
        "\"Execution Time\"",
        "\"Planning Time\"",
    ] {
        assert!(json.contains(part), "{part} in {json}");
    }
    let yaml = shown(&mut connection, "EXPLAIN (FORMAT YAML) SELECT x FROM t ORDER BY x");
    assert!(yaml.starts_with("- Plan: \n    Node Type: \""), "{yaml}");
    let xml = shown(&mut connection, "EXPLAIN (FORMAT XML) UPDATE t SET x = x WHERE x < 2");
    assert!(xml.contains("<Node-Type>ModifyTable</Node-Type>") && xml.contains("&lt;"), "{xml}");
}

#[test]
fn the_row_on_which_a_cursor_stands_can_be_changed() {
    let mut connection = connection();
    connection.execute("CREATE TABLE u (x integer)").unwrap();
    for declare in [
        "DECLARE c CURSOR FOR SELECT x FROM t WHERE x > 2 ORDER BY x FOR UPDATE",
        "DECLARE c SCROLL CURSOR FOR SELECT x, x + 1 FROM t AS q WHERE x > 2 ORDER BY x",
        "DECLARE c NO SCROLL CURSOR FOR SELECT * FROM t WHERE x > 2 ORDER BY x",
    ] {
        connection.execute(&format!("BEGIN; {declare}")).unwrap();
        let columns = connection.cursor_columns("c").unwrap().len();
        assert_eq!(columns, if declare.contains("x + 1") { 2 } else { 1 }, "{declare}");
        let error = connection.execute("DELETE FROM t WHERE CURRENT OF c").unwrap_err();
        assert_eq!(error.state().as_str(), "24000", "it stands before the first row");
        connection.execute("ROLLBACK").unwrap();

        connection.execute(&format!("BEGIN; {declare}; FETCH 2 c")).unwrap();
        let error = connection.execute("DELETE FROM u WHERE CURRENT OF c").unwrap_err();
        assert_eq!(error.state().as_str(), "24000", "it is over another table");
        connection.execute("ROLLBACK").unwrap();

        connection.execute(&format!("BEGIN; {declare}; FETCH 2 c")).unwrap();
        let update = "UPDATE t AS r SET x = x + $1 WHERE CURRENT OF c RETURNING x";
        let update = connection.prepare(update).unwrap();
        assert_eq!(update.parameters().len(), 1);
        let changed = connection.query_values(&update, &[Value::Integer(100)]).unwrap();
        assert_eq!(changed, [[Value::Integer(104)]], "{declare}");
        assert_eq!(shown(&mut connection, "SELECT x FROM t ORDER BY x"), "1 2 3 5 104");
        connection.execute("ROLLBACK").unwrap();
    }
    connection.execute("BEGIN; DECLARE c CURSOR FOR SELECT count(*) FROM t; FETCH c").unwrap();
    let error = connection.execute("DELETE FROM t WHERE CURRENT OF c").unwrap_err();
    assert_eq!(error.state().as_str(), "24000");
    connection
        .execute("ROLLBACK; BEGIN; DECLARE c CURSOR FOR SELECT x FROM t ORDER BY x FOR UPDATE; FETCH 4 c")
        .unwrap();
    assert_eq!(connection.execute("DELETE FROM t WHERE CURRENT OF c").unwrap(), 1);
    connection.execute("COMMIT").unwrap();
    assert_eq!(shown(&mut connection, "SELECT x FROM t ORDER BY x"), "1 2 3 5");
    let error = connection.execute("DELETE FROM t WHERE CURRENT OF c").unwrap_err();
    assert_eq!(error.state(), SqlState::INVALID_CURSOR_NAME);
}
