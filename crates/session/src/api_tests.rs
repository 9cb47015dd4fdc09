//! The embedded API as programs use it: values in and out, nested transactions, retries, streams, COPY.

use crate::{Connection, CopyIn, Database, Error, Isolation, Result, SqlState, TransactionStatus, Value};
use firn_base::sync::Arc;
use std::io::{self, Read, Write};

fn with_table() -> (Database, Connection) {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY, name text)").unwrap();
    (database, connection)
}

fn ids(connection: &mut Connection) -> Vec<i32> {
    connection.query_as("SELECT id FROM t ORDER BY id", ()).unwrap()
}

fn insert(connection: &mut Connection, id: i32) -> Result<u64> {
    connection.execute_statement("INSERT INTO t VALUES ($1, $2)", (id, None::<&str>))
}

fn state<T>(result: Result<T>) -> String {
    result.map(drop).unwrap_err().state().as_str().to_owned()
}

#[test]
fn parameters_and_rows_take_every_form() {
    let mut connection = Database::memory().unwrap().connect();
    let values = vec![Value::Integer(1), Value::from("x")];
    let expected = vec![vec![Value::Integer(1), Value::Text("x".into())]];
    let sql = "SELECT $1::integer, $2::text";
    let statement = connection.prepare(sql).unwrap();
    assert_eq!(connection.query_values(sql, &values).unwrap(), expected);
    assert_eq!(connection.query_values(&statement, &values[..]).unwrap(), expected);
    assert_eq!(connection.query_values(&statement, (1, "x")).unwrap(), expected);
    assert_eq!(connection.query_values(sql.to_owned(), [Value::Integer(1), "x".into()]).unwrap(), expected);
    assert_eq!(connection.query_values("SELECT 1", &[]).unwrap(), [[Value::Integer(1)]]);
    assert_eq!(connection.query_as::<(i32, String)>(&statement, values).unwrap(), [(1, "x".to_owned())]);

    let row = connection.query_row_as::<(Vec<Option<i32>>, Vec<u8>, Option<f64>)>(
        "SELECT $1::integer[], $2::bytea, $3::float8",
        (vec![Some(1), None], b"\x00\x01", None::<f64>),
    );
    assert_eq!(row.unwrap(), Some((vec![Some(1), None], vec![0, 1], None)));
    // A string is read as a literal of the type would be, in an array as well.
    let days = connection.query_row_as::<(String, String, Option<i64>)>(
        "SELECT ($1::date + 1)::text, $2::timestamp[]::text, $3::numeric",
        ("2024-02-28", vec![Some("2024-01-01"), None], " 7 "),
    );
    let expected = ("2024-02-29".to_owned(), r#"{"2024-01-01 00:00:00",NULL}"#.to_owned(), Some(7));
    assert_eq!(days.unwrap(), Some(expected));
    let is_today = connection
        .query_row_as::<bool>("SELECT $1::date BETWEEN current_date - 1 AND current_date", ("today",));
    assert_eq!(is_today.unwrap(), Some(true));
    assert_eq!(state(connection.query_values("SELECT $1::date", ("2024-02-30",))), "22008");
    assert_eq!(state(connection.query_values("SELECT $1::date", ("x",))), "22007");
    assert_eq!(state(connection.query_values("SELECT $1::integer", ("x",))), "22P02");
    assert_eq!(state(connection.query_values("SELECT $1::date", (1,))), "42804");
}

#[test]
fn a_row_of_another_shape_is_refused_before_the_statement_changes_anything() {
    let (_database, mut connection) = with_table();
    let refused = connection.query_as::<(i32,)>("INSERT INTO t VALUES (1, 'a') RETURNING id, name", ());
    let error = refused.unwrap_err();
    assert_eq!(error.message(), "the result has 2 columns, but rows of type (i32,) have 1");
    assert_eq!(state(connection.query_values("INSERT INTO t VALUES (1, 'a')", ())), "42601");
    assert_eq!(state(connection.copy_in("INSERT INTO t VALUES (1, 'a')")), "42809");
    assert_eq!(state(connection.copy_out("COPY t FROM STDIN")), "42809");
    assert!(ids(&mut connection).is_empty());

    connection.execute("INSERT INTO t VALUES (1, NULL), (2, 'b')").unwrap();
    let error = connection.query_as::<(i32, String)>("SELECT id, name FROM t ORDER BY id", ()).unwrap_err();
    assert_eq!(error.state(), SqlState::NULL_VALUE_NOT_ALLOWED);
    assert_eq!(error.detail(), Some("It is column 2 of the result."));
    assert_eq!(state(connection.query_row("SELECT id FROM t", ())), "21000");
}

#[test]
fn a_nested_transaction_ends_without_the_outer_one() {
    let (_database, mut connection) = with_table();
    let mut outer = connection.transaction().unwrap();
    insert(&mut outer, 1).unwrap();
    {
        let mut failed = outer.savepoint().unwrap();
        insert(&mut failed, 2).unwrap();
        assert_eq!(state(insert(&mut failed, 1)), "23505");
        assert_eq!(state(failed.savepoint()), "25P02");
        // Its commit reports that nothing was committed.
        assert_eq!(state(failed.commit()), "25P02");
    }
    assert_eq!(outer.status(), TransactionStatus::InBlock);
    {
        let mut kept = outer.savepoint().unwrap();
        insert(&mut kept, 3).unwrap();
        let mut dropped = kept.savepoint().unwrap();
        insert(&mut dropped, 4).unwrap();
        drop(dropped);
        let mut rolled_back = kept.savepoint().unwrap();
        insert(&mut rolled_back, 5).unwrap();
        rolled_back.rollback().unwrap();
        kept.commit().unwrap();
    }
    // A function that begins a transaction of its own can be called within one.
    fn add(connection: &mut Connection, id: i32) -> Result<()> {
        let mut transaction = connection.transaction()?;
        insert(&mut transaction, id)?;
        transaction.commit()
    }
    add(&mut outer, 6).unwrap();
    assert_eq!(state(outer.transaction_at(Isolation::Snapshot)), "25001");
    assert_eq!(state(outer.retry_at(Isolation::Snapshot, |_| Ok(()))), "25001");
    outer.commit().unwrap();
    assert_eq!(ids(&mut connection), [1, 3, 6]);
    assert_eq!(connection.status(), TransactionStatus::Idle);
    assert!(connection.take_notices().is_empty());
}

/// In every attempt except the last, another connection commits between the read and the write.
#[test]
fn retry_runs_again_after_conflicts_and_not_after_other_errors() {
    let (database, mut connection) = with_table();
    let mut other = database.connect();
    insert(&mut connection, 1).unwrap();
    let mut attempts = 0;
    let name = connection
        .retry(|transaction| {
            attempts += 1;
            let name: Option<Option<String>> =
                transaction.query_row_as("SELECT name FROM t WHERE id = 1", ())?;
            if attempts <= 2 {
                other.execute_statement("UPDATE t SET name = $1", (format!("other {attempts}"),))?;
            }
            let changed = transaction.execute("UPDATE t SET name = 'mine' WHERE id = 1");
            // An error of the program's own does not hide the conflict.
            changed.map_err(|_| Error::new(SqlState::new("P0001"), "cannot rename"))?;
            Ok(name)
        })
        .unwrap();
    assert_eq!((attempts, name), (3, Some(Some("other 2".to_owned()))));

    let mut attempts = 0;
    let failed = connection.retry(|transaction| {
        attempts += 1;
        insert(transaction, 2)?;
        insert(transaction, 1)
    });
    assert_eq!(state(failed), "23505");
    assert_eq!(attempts, 1);
    assert_eq!(ids(&mut connection), [1]);
}

#[test]
fn retry_within_a_transaction_leaves_the_conflict_to_the_outermost_one() {
    let (database, mut connection) = with_table();
    let mut other = database.connect();
    insert(&mut connection, 1).unwrap();
    let (mut outer_attempts, mut inner_attempts) = (0, 0);
    connection
        .retry(|outer| {
            outer_attempts += 1;
            outer.query_values("SELECT name FROM t", ())?;
            if outer_attempts == 1 {
                other.execute("UPDATE t SET name = 'other'")?;
            }
            outer.retry(|inner| {
                inner_attempts += 1;
                inner.execute("UPDATE t SET name = 'mine'")
            })
        })
        .unwrap();
    assert_eq!((outer_attempts, inner_attempts), (2, 2));
}

#[test]
fn streams_end_after_an_error() {
    let mut connection = Database::memory().unwrap().connect();
    let sql = "SELECT 1 / (100000 - i) FROM generate_series(1, 200000) AS i";
    let mut typed = connection.stream(sql, ()).unwrap().into_typed::<i32>().unwrap();
    assert_eq!(
        typed.by_ref().find_map(Result::err).map(|error| error.state()),
        Some(SqlState::DIVISION_BY_ZERO)
    );
    assert!(typed.next().is_none());
    let mut batches = connection.stream(sql, ()).unwrap().into_iter();
    assert_eq!(
        batches.by_ref().find_map(Result::err).map(|error| error.state()),
        Some(SqlState::DIVISION_BY_ZERO)
    );
    assert!(batches.next().is_none());
}

struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match std::mem::replace(&mut self.0, 0) {
            0 => Err(io::Error::other("out of tape")),
            bytes => {
                let bytes = bytes.min(buffer.len());
                buffer[..bytes].copy_from_slice(&b"7\tx\n".repeat(bytes)[..bytes]);
                Ok(bytes)
            }
        }
    }
}

#[test]
fn copy_reads_and_writes_what_io_does() {
    let (_database, mut connection) = with_table();
    let data: String = (0..5000).map(|id| format!("{id},name {id}\n")).collect();
    assert_eq!(connection.copy_from("COPY t FROM STDIN (FORMAT csv)", data.as_bytes()).unwrap(), 5000);

    let mut read = String::new();
    let mut copy = connection.copy_out("COPY (SELECT * FROM t ORDER BY id) TO STDOUT (FORMAT csv)").unwrap();
    copy.read_to_string(&mut read).unwrap();
    assert!(read == data && copy.tag().rows == Some(5000));
    let mut written = Vec::new();
    let rows = connection.copy_to("COPY (SELECT * FROM t ORDER BY id) TO STDOUT (FORMAT csv)", &mut written);
    assert!(rows.unwrap() == 5000 && written == data.as_bytes());

    // A reader that fails stores nothing and fails the transaction that it is in.
    connection.execute("TRUNCATE t").unwrap();
    let error = connection.copy_from("COPY t FROM STDIN", Failing(4)).unwrap_err();
    assert_eq!(error.message(), "could not read the data of COPY FROM STDIN: out of tape");
    assert!(ids(&mut connection).is_empty());
    let mut transaction = connection.transaction().unwrap();
    assert_eq!(state(transaction.copy_from("COPY t FROM STDIN", Failing(4))), "58030");
    assert_eq!(transaction.status(), TransactionStatus::Failed);
    drop(transaction);

    // An error of the data is inside that of the writer.
    let mut copy: CopyIn = connection.copy_in("COPY t FROM STDIN").unwrap();
    let wrong = b"x\ty\n".repeat(20_000);
    let failed = (0..200).find_map(|_| copy.write_all(&wrong).err()).expect("x is no integer");
    let error = failed.get_ref().and_then(|error| error.downcast_ref::<Error>()).expect("it is an SQL error");
    assert_eq!(error.state().as_str(), "22P02");
}

/// ROLLBACK TO cannot return to a savepoint of a transaction that a COPY still had.
#[test]
fn a_copy_that_is_given_up_takes_its_transaction_along() {
    let (_database, mut connection) = with_table();
    connection.execute("BEGIN; SAVEPOINT s").unwrap();
    let copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    assert_eq!(state(connection.execute("SELECT 1")), "25P02");
    drop(copy);
    let error = connection.execute("ROLLBACK TO s").unwrap_err();
    assert_eq!(error.message(), "the transaction has been rolled back because its COPY was not finished");
    connection.execute("ROLLBACK").unwrap();
}

#[test]
fn a_handle_is_used_from_any_thread() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_send::<Connection>();
    is_shared::<Database>();
    is_shared::<crate::Statement>();
    is_shared::<crate::CancelHandle>();
    is_send::<crate::Rows>();
    is_send::<CopyIn>();
    is_shared::<Arc<Error>>();
}

/// A number with more digits after the point than the column has is compared as it is, through an index and by a scan.
#[test]
fn a_numeric_parameter_may_come_with_one_scale() {
    let mut connection = Database::memory().unwrap().connect();
    connection.execute("CREATE TABLE goods (price numeric(6,2), weight numeric(6,2))").unwrap();
    connection.execute("CREATE INDEX ON goods (price)").unwrap();
    connection.execute("INSERT INTO goods SELECT p, p FROM (VALUES (5.00), (5.01), (5.02)) v (p)").unwrap();
    let numeric = |unscaled, scale| [Value::Numeric { unscaled, scale }];
    let text = connection.query_values("SELECT $1::numeric::text", &numeric(500, 2)[..]).unwrap();
    assert_eq!(text, [[Value::Text("5.00".to_owned())]]);
    for column in ["price", "weight"] {
        for (operator, unscaled, scale, expected) in
            [("<", 5_005, 3, 1), (">", 5_005, 3, 2), ("=", 5_010, 3, 1), ("=", 5_005, 3, 0), ("<=", 51, 1, 3)]
        {
            let query = format!("SELECT count(*) FROM goods WHERE {column} {operator} $1");
            let count = connection.query_values(&query, &numeric(unscaled, scale)[..]).unwrap();
            assert_eq!(count, [[Value::BigInt(expected)]], "{query} with {unscaled} at {scale}");
        }
    }
}
