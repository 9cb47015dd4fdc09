//! Rows that cannot be read to their end: how the block that they belong to fails.

use crate::{Connection, Database, Outcome, Rows, TransactionStatus};
use firn_base::{SqlState, Value};

/// The error occurs when rows are read, not when the query is run.
const FAILING: &str = "SELECT 1 / (g - 5000) FROM generate_series(1, 10000) AS s(g)";
const INSERT: &str = "INSERT INTO t SELECT count(*) FROM t";

fn connection() -> Connection {
    let mut connection = Database::memory().unwrap().connect();
    connection.execute("CREATE TABLE t (a bigint)").unwrap();
    connection
}

fn run(connection: &mut Connection, sql: &str) -> Outcome {
    let statement = connection.prepare(sql).unwrap();
    connection.run(&statement, &[]).unwrap()
}

fn failing_rows(connection: &mut Connection) -> Rows {
    let Outcome::Rows(rows) = run(connection, FAILING) else { panic!("it is a query") };
    rows
}

fn draw(rows: Rows) {
    assert_eq!(rows.into_values().unwrap_err().state(), SqlState::DIVISION_BY_ZERO);
}

/// The command tag of COMMIT.
fn commit(connection: &mut Connection) -> &'static str {
    let Outcome::Done(tag) = run(connection, "COMMIT") else { panic!("it has a tag") };
    tag.verb
}

fn count(connection: &mut Connection) -> Value {
    connection.query_row("SELECT count(*) FROM t", &[]).unwrap().unwrap().remove(0)
}

/// The error occurs when the program reads the rows, or already when a later statement reads them ahead. Even then it is
/// reported only when the program reads the rows.
#[test]
fn an_error_amid_rows_fails_their_block_whenever_it_was_met() {
    let mut connection = connection();
    for read_ahead in [false, true] {
        connection.execute("BEGIN").unwrap();
        connection.execute(INSERT).unwrap();
        let rows = failing_rows(&mut connection);
        if read_ahead {
            connection.execute(INSERT).unwrap();
            assert_eq!(connection.status(), TransactionStatus::InBlock);
        }
        draw(rows);
        assert_eq!(connection.status(), TransactionStatus::Failed);
        assert_eq!(commit(&mut connection), "ROLLBACK");
        assert_eq!(count(&mut connection), Value::BigInt(0));
        // The guard of a program has no command tag.
        let mut transaction = connection.transaction().unwrap();
        transaction.execute(INSERT).unwrap();
        let rows = failing_rows(&mut transaction);
        if read_ahead {
            transaction.execute(INSERT).unwrap();
        }
        draw(rows);
        assert_eq!(transaction.commit().unwrap_err().state(), SqlState::IN_FAILED_SQL_TRANSACTION);
        assert_eq!(count(&mut connection), Value::BigInt(0));
        // Statements after it are refused, until the block returns to the savepoint.
        connection.execute("BEGIN; SAVEPOINT s").unwrap();
        let rows = failing_rows(&mut connection);
        if read_ahead {
            connection.execute(INSERT).unwrap();
        }
        draw(rows);
        let refused = connection.execute(INSERT).unwrap_err();
        assert_eq!(refused.state(), SqlState::IN_FAILED_SQL_TRANSACTION);
        connection.execute("ROLLBACK TO s").unwrap();
        assert_eq!((commit(&mut connection), count(&mut connection)), ("COMMIT", Value::BigInt(0)));
    }
}

#[test]
fn an_error_in_rows_that_are_not_fetched_in_their_block_is_not_reported() {
    let mut connection = connection();
    connection.execute("BEGIN").unwrap();
    connection.execute(INSERT).unwrap();
    let (one, other) = (failing_rows(&mut connection), failing_rows(&mut connection));
    assert_eq!(commit(&mut connection), "COMMIT");
    draw(one);
    assert_eq!(connection.status(), TransactionStatus::Idle);
    // Nor is it that of a later block.
    connection.execute("BEGIN").unwrap();
    connection.execute(INSERT).unwrap();
    draw(other);
    assert_eq!(connection.status(), TransactionStatus::InBlock);
    assert_eq!((commit(&mut connection), count(&mut connection)), ("COMMIT", Value::BigInt(2)));
}
