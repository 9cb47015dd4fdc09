//! How calls end: cancelled, abandoned, shut down, refused.

use std::time::{Duration, Instant};

use arrow_flight::sql::{ActionCancelQueryRequest, EndTransaction, ProstMessageExt};
use arrow_flight::{Action, CancelFlightInfoRequest};
use futures::{StreamExt, TryStreamExt};
use prost::Message;

use super::*;

/// A query that returns rows for hours.
const ENDLESS: &str =
    "SELECT a, b FROM generate_series(1, 10000000) a, generate_series(1, 10000000) b WHERE a >= 0";
/// A query with a practically endless result, whose batches are computed quickly.
const EASY: &str = "SELECT g FROM generate_series(1, 1000000000000) g";
/// A query that runs for hours without a row.
const SILENT: &str = "SELECT count(*) FROM generate_series(1, 10000000) a, generate_series(1, 10000000) b";

/// Waits until no trace of a query is visible to other sessions.
fn wait_until_nothing_runs(fixture: &Fixture) {
    let until = Instant::now() + Duration::from_secs(30);
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%generate_series%' \
               AND query NOT LIKE '%pg_stat_activity%'";
    while fixture.number(sql) > 0 {
        assert!(Instant::now() < until, "a query runs without a client");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_until_something_runs(fixture: &Fixture) {
    let until = Instant::now() + Duration::from_secs(30);
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%generate_series%' \
               AND query NOT LIKE '%pg_stat_activity%'";
    while fixture.number(sql) == 0 {
        assert!(Instant::now() < until, "the query does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_query_stops_when_its_rows_are_no_longer_wanted() {
    let fixture = serve();
    let mut client = fixture.run(fixture.client());
    fixture.run(async {
        let info = client.execute(ENDLESS.into(), None).await.unwrap();
        let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        rows.try_next().await.unwrap().unwrap();
    });
    wait_until_nothing_runs(&fixture);
    // A query that has not yet yielded a row is stopped as well.
    fixture.run(async {
        let info = client.execute(SILENT.into(), None).await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        let mut rows = client.inner_mut().do_get(ticket).await.unwrap().into_inner();
        let first = tokio::time::timeout(Duration::from_millis(300), async {
            loop {
                rows.message().await.unwrap();
            }
        });
        assert!(first.await.is_err());
    });
    wait_until_nothing_runs(&fixture);
}

#[test]
fn a_transaction_with_an_error_amid_rows_is_not_committed() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint)");
    fixture.run(async {
        let mut client = fixture.client().await;
        let transaction = client.begin_transaction().await.unwrap();
        let insert = "INSERT INTO t VALUES (1)".to_owned();
        client.execute_update(insert, Some(transaction.clone())).await.unwrap();
        assert_eq!(state(query(&mut client, "SELECT 1/0", Some(&transaction)).await), "22012");
        assert_eq!(state(client.end_transaction(transaction, EndTransaction::Commit).await), "25P02");
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
    });
}

/// As ADBC does when a program fetches one row and continues.
#[test]
fn a_transaction_continues_after_unread_rows() {
    let fixture = serve();
    let mut client = fixture.run(fixture.client());
    fixture.run(async {
        let transaction = client.begin_transaction().await.unwrap();
        // Not a query whose next batch may take longer, beside other tests, than unread queries are given to end by themselves.
        for sql in [EASY, "SELECT g FROM generate_series(1, 10) g", EASY] {
            let info = client.execute(sql.into(), Some(transaction.clone())).await.unwrap();
            let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
            rows.try_next().await.unwrap().unwrap();
        }
        let sql = "SELECT 1::bigint";
        assert_eq!(number(&mut client, sql, Some(&transaction)).await.unwrap(), 1);
        client.end_transaction(transaction, EndTransaction::Commit).await.unwrap();
    });
    wait_until_nothing_runs(&fixture);
}

#[test]
fn a_query_is_cancelled_by_its_flight_info() {
    let fixture = serve();
    fixture.run(async {
        for action in ["CancelFlightInfo", "CancelQuery"] {
            let mut client = fixture.client().await;
            let info = client.execute(SILENT.into(), None).await.unwrap();
            let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
            let mut other = fixture.client().await;
            let body = match action {
                "CancelFlightInfo" => CancelFlightInfoRequest::new(info.clone()).encode_to_vec(),
                _ => ActionCancelQueryRequest { info: info.encode_to_vec().into() }.as_any().encode_to_vec(),
            };
            let cancelling = async {
                loop {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    let mut answers = other.do_action(Action::new(action, body.clone())).await.unwrap();
                    let answer = answers.message().await.unwrap().unwrap().body;
                    // 1 is "cancelled". Before the query runs, and after its end, it cannot be cancelled.
                    if answer.ends_with(&[1]) {
                        break;
                    }
                }
            };
            let (ended, ()) = futures::join!(rows.try_next(), cancelling);
            let error = ended.unwrap_err().to_string();
            assert!(error.contains("57014"), "{error}");
        }
    });
}

#[test]
fn a_transaction_that_is_left_behind_is_rolled_back() {
    let fixture = serve_with(|config| config.transaction_timeout = Duration::from_millis(200));
    fixture.execute("CREATE TABLE t (a bigint)");
    fixture.run(async {
        let mut client = fixture.client().await;
        let insert = "INSERT INTO t VALUES (1)".to_owned();
        let transaction = client.begin_transaction().await.unwrap();
        client.execute_update(insert.clone(), Some(transaction.clone())).await.unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while fixture.number("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
            > 0
        {
            assert!(Instant::now() < until, "the transaction does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Its client gets an error, and does not continue in another one unnoticed.
        let first = state(client.execute_update(insert.clone(), Some(transaction.clone())).await);
        assert!(["25P03", "25P01"].contains(&&*first), "{first}");
        assert_eq!(state(client.execute_update(insert, Some(transaction.clone())).await), "25P01");
        assert_eq!(state(client.end_transaction(transaction, EndTransaction::Commit).await), "25P01");
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
    });
}

#[test]
fn too_many_transactions_and_statements_are_refused() {
    let fixture = serve_with(|config| {
        config.max_transactions = 2;
        config.max_statements = 1;
    });
    let mut client = fixture.run(fixture.client());
    fixture.run(async {
        let first = client.begin_transaction().await.unwrap();
        client.begin_transaction().await.unwrap();
        assert_eq!(state(client.begin_transaction().await), "53300");
        client.end_transaction(first, EndTransaction::Rollback).await.unwrap();
        client.begin_transaction().await.unwrap();
    });
    let rows = fixture.run(async {
        let info = client.execute(ENDLESS.into(), None).await.unwrap();
        let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        rows.try_next().await.unwrap().unwrap();
        assert_eq!(state(query(&mut client, "SELECT 1", None).await), "53300");
        rows
    });
    drop(rows);
    let until = Instant::now() + Duration::from_secs(30);
    while fixture.run(query(&mut client, "SELECT 1", None)).is_err() {
        assert!(Instant::now() < until, "the place is not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_dropped_prepared_statement_is_an_error() {
    let fixture = serve_with(|config| config.max_handles = 2);
    fixture.run(async {
        let mut client = fixture.client().await;
        let mut prepared = Vec::new();
        for number in 0..3 {
            prepared.push(client.prepare(format!("SELECT {number}"), None).await.unwrap());
        }
        assert_eq!(state(prepared[0].execute().await), "26000");
        prepared[1].execute().await.unwrap();
        prepared[2].execute().await.unwrap();
    });
}

/// A stream that is read, a query without rows yet, and a transaction, during the shutdown.
#[test]
fn a_shutdown_notifies_clients_and_does_not_close_the_database() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint)");
    let mut client = fixture.run(fixture.client());
    let (mut read, silent) = fixture.run(async {
        let transaction = client.begin_transaction().await.unwrap();
        client.execute_update("INSERT INTO t VALUES (1)".into(), Some(transaction)).await.unwrap();
        client.prepare("SELECT 1".into(), None).await.unwrap();
        let info = client.execute(ENDLESS.into(), None).await.unwrap();
        let mut read = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        read.try_next().await.unwrap().unwrap();
        let info = client.execute(SILENT.into(), None).await.unwrap();
        (read, client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap())
    });
    wait_until_something_runs(&fixture);
    let Fixture { database, server, runtime } = fixture;
    let began = Instant::now();
    let stopping = std::thread::spawn(move || server.shutdown());
    runtime.block_on(async {
        let error = loop {
            match read.try_next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the rows do not end"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("57P01"), "{error}");
        let error = { silent }.try_next().await.unwrap_err().to_string();
        assert!(error.contains("57P01"), "{error}");
    });
    drop(client);
    stopping.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(database.connect().query("SELECT a FROM t").unwrap().len(), 0);
    drop(runtime);
    database.close().unwrap();
}

/// A change of one row that occupies its transaction until this number of rows has been counted.
fn slow_change(rows: u64) -> String {
    format!("INSERT INTO slow SELECT count(*) FROM generate_series(1, {rows}) g WHERE g % 7 = 0")
}

/// A write and the commit of its transaction both wait for a statement. Whichever runs first: if the write was
/// acknowledged to the client, it is committed.
#[test]
fn a_write_that_was_acknowledged_is_in_the_commit_of_its_transaction() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint); CREATE TABLE slow (a bigint)");
    fixture.run(async {
        let client = fixture.client().await;
        let (mut acknowledged, mut refused) = (0, 0);
        for round in 0..60 {
            let (mut first, mut second, mut third) = (client.clone(), client.clone(), client.clone());
            let transaction = first.begin_transaction().await.unwrap();
            let slow = first.execute_update(slow_change(1_000_000), Some(transaction.clone()));
            let write = async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                second.execute_update("INSERT INTO t VALUES (1)".into(), Some(transaction.clone())).await
            };
            let end = async {
                tokio::time::sleep(Duration::from_millis(if round % 2 == 0 { 5 } else { 6 })).await;
                third.end_transaction(transaction.clone(), EndTransaction::Commit).await
            };
            let (slow, write, end) = futures::join!(slow, write, end);
            // On a busy machine it may even run after the commit.
            if let Err(error) = slow {
                assert_eq!(state::<()>(Err(error)), "25P01");
            }
            end.unwrap();
            match write {
                Ok(_) => acknowledged += 1,
                Err(error) => {
                    assert_eq!(state::<()>(Err(error)), "25P01");
                    refused += 1;
                }
            }
            assert_eq!(fixture.number("SELECT count(*) FROM t"), acknowledged, "{refused} were refused");
        }
        println!("{acknowledged} came before the commit, {refused} after it");
    });
}

#[test]
fn a_call_that_stops_waiting_stops_no_other() {
    let fixture = serve();
    fixture.execute("CREATE TABLE slow (a bigint)");
    fixture.run(async {
        let client = fixture.client().await;
        let (mut first, mut second) = (client.clone(), client.clone());
        let transaction = first.begin_transaction().await.unwrap();
        let slow = first.execute_update(slow_change(200_000_000), Some(transaction.clone()));
        let waiting = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let waiting = second.execute_update("SELECT 1".into(), Some(transaction.clone()));
            assert!(tokio::time::timeout(Duration::from_millis(100), waiting).await.is_err());
        };
        let (slow, ()) = futures::join!(slow, waiting);
        slow.unwrap();
        second.end_transaction(transaction, EndTransaction::Commit).await.unwrap();
    });
}

#[test]
fn a_transaction_can_always_go_on_and_end() {
    let fixture = serve_with(|config| config.max_statements = 1);
    fixture.execute("CREATE TABLE t (a bigint)");
    fixture.run(async {
        let mut client = fixture.client().await;
        let transaction = client.begin_transaction().await.unwrap();
        let info = client.execute(ENDLESS.into(), None).await.unwrap();
        let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        rows.try_next().await.unwrap().unwrap();
        assert_eq!(state(query(&mut client, "SELECT 1", None).await), "53300");
        let insert = "INSERT INTO t VALUES (1)".to_owned();
        client.execute_update(insert, Some(transaction.clone())).await.unwrap();
        assert_eq!(number(&mut client, "SELECT a FROM t", Some(&transaction)).await.unwrap(), 1);
        client.end_transaction(transaction, EndTransaction::Commit).await.unwrap();
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 1);
    });
}

/// A statement that runs with a thousand rows of parameters, of which each takes a while.
#[test]
fn stopping_a_call_stops_all_that_it_would_have_run() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint)");
    let mut client = fixture.run(fixture.client());
    fixture.run(async {
        let sql = "INSERT INTO t SELECT count(*) FROM generate_series(1, 20000) g WHERE g > $1";
        let mut insert = client.prepare(sql.into(), None).await.unwrap();
        let rows = arrow_array::Int64Array::from_iter_values(0..1000);
        let column = std::sync::Arc::new(rows) as arrow_array::ArrayRef;
        insert.set_parameters(RecordBatch::try_from_iter([("$1", column)]).unwrap()).unwrap();
        let update = insert.execute_update();
        assert!(tokio::time::timeout(Duration::from_millis(200), update).await.is_err());
    });
    let until = Instant::now() + Duration::from_secs(5);
    while fixture.number("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO t SELECT%'") > 0
    {
        assert!(Instant::now() < until, "it runs without a client");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
}

/// As ADBC closes a connection inside a transaction, with a user name and without.
#[test]
fn closing_a_session_ends_what_its_client_has_left_open_and_nothing_else() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint); CREATE TABLE slow (a bigint)");
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
    fixture.run(async {
        for user in [None, Some("ada")] {
            let (mut client, mut other) = (fixture.client().await, fixture.client().await);
            if let Some(user) = user {
                client.handshake(user, "").await.unwrap();
                other.handshake(user, "").await.unwrap();
            }
            let insert = "INSERT INTO t VALUES (1)".to_owned();
            let transaction = client.begin_transaction().await.unwrap();
            client.execute_update(insert.clone(), Some(transaction.clone())).await.unwrap();
            let mut prepared = client.prepare("SELECT 1".into(), None).await.unwrap();
            let foreign = other.begin_transaction().await.unwrap();
            other.execute_update(insert.clone(), Some(foreign.clone())).await.unwrap();
            assert_eq!(fixture.number(open), 2);
            // A running statement of the transaction is stopped.
            let mut second = client.clone();
            let slow = second.execute_update(slow_change(10_000_000_000), Some(transaction.clone()));
            let close = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let mut answers = client.do_action(Action::new("CloseSession", "")).await.unwrap();
                answers.message().await.unwrap().unwrap();
            };
            let (slow, ()) = futures::join!(slow, close);
            assert_eq!(state(slow), "57014");
            assert_eq!(fixture.number(open), 1);
            let mut anybody = fixture.client().await;
            let late = anybody.execute_update(insert, Some(transaction)).await;
            assert_eq!(state(late), "25P01");
            let expected = if user.is_some() { "28000" } else { "26000" };
            assert_eq!(state(prepared.execute().await), expected);
            other.end_transaction(foreign, EndTransaction::Commit).await.unwrap();
        }
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 2);
    });
}

#[test]
fn a_transaction_that_was_begun_and_never_used_is_forgotten_too() {
    let fixture = serve_with(|config| {
        config.transaction_timeout = Duration::from_millis(100);
        config.max_transactions = 1;
    });
    fixture.run(async {
        let mut client = fixture.client().await;
        let transaction = client.begin_transaction().await.unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while let Err(error) = client.begin_transaction().await {
            assert_eq!(state::<()>(Err(error)), "53300");
            assert!(Instant::now() < until, "the transaction does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(state(client.end_transaction(transaction, EndTransaction::Commit).await), "25P01");
    });
}

#[test]
fn what_is_kept_for_one_client_has_a_bound() {
    let fixture = serve_with(|config| config.max_kept_bytes = 1 << 20);
    fixture.execute("CREATE TABLE t (a bigint, b text)");
    fixture.run(async {
        let mut client = fixture.client().await;
        let mut other = fixture.client().await;
        // Texts of statements.
        let long = format!("SELECT '{}'", "x".repeat(10_000));
        let mut kept = Vec::new();
        let error = loop {
            match client.prepare(long.clone(), None).await {
                Ok(prepared) => kept.push(prepared),
                Err(error) => break error,
            }
            assert!(kept.len() < 100, "there is no bound");
        };
        assert_eq!(state::<()>(Err(error)), "54000");
        other.prepare(long.clone(), None).await.unwrap();
        kept.pop().unwrap().close().await.unwrap();
        client.prepare("SELECT 1".into(), None).await.unwrap();
        // Parameters.
        let mut insert = other.prepare("INSERT INTO t VALUES ($1, 'x')".into(), None).await.unwrap();
        let rows = arrow_array::Int64Array::from_iter_values(0..50_000);
        let column = std::sync::Arc::new(rows) as arrow_array::ArrayRef;
        insert.set_parameters(RecordBatch::try_from_iter([("$1", column)]).unwrap()).unwrap();
        assert_eq!(state(insert.execute().await), "54000");
        // Rows of changes that are not fetched: the statement beyond the limit has not changed anything.
        let returning = "INSERT INTO t VALUES (1, repeat('x', 300000)) RETURNING b";
        let mut third = fixture.client().await;
        let mut changed = 0;
        let error = loop {
            match third.execute(returning.into(), None).await {
                Ok(_) => changed += 1,
                Err(error) => break error,
            }
            assert!(changed < 100, "there is no bound");
        };
        assert_eq!(state::<()>(Err(error)), "54000");
        assert_eq!(fixture.number("SELECT count(*) FROM t"), changed);
    });
}

/// Its client keeps the stream, reads a message, and no more.
#[test]
fn a_query_whose_rows_are_not_fetched_gives_its_place_back() {
    let fixture = serve_with(|config| {
        config.transaction_timeout = Duration::from_millis(300);
        config.max_statements = 1;
    });
    let mut client = fixture.run(fixture.client());
    let mut rows = fixture.run(async {
        let info = client.execute(ENDLESS.into(), None).await.unwrap();
        let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        rows.try_next().await.unwrap().unwrap();
        rows
    });
    let until = Instant::now() + Duration::from_secs(30);
    while fixture.run(query(&mut client, "SELECT 1", None)).is_err() {
        assert!(Instant::now() < until, "the place is not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_until_nothing_runs(&fixture);
    // The client gets the error when it continues.
    fixture.run(async {
        let error = loop {
            match rows.try_next().await {
                Ok(rows) => assert!(rows.is_some(), "the rows end as if they were all"),
                Err(error) => break error,
            }
        };
        assert_eq!(state::<()>(Err(error)), "57014");
    });
}

/// Two batches, then silence, from a client that remains connected.
#[test]
fn an_ingestion_whose_client_falls_silent_is_given_up() {
    let fixture = serve_with(|config| config.transaction_timeout = Duration::from_millis(300));
    fixture.execute("CREATE TABLE t (a bigint)");
    fixture.run(async {
        let mut client = fixture.client().await;
        let numbers = arrow_array::Int64Array::from_iter_values(0..100);
        let column = std::sync::Arc::new(numbers) as arrow_array::ArrayRef;
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let batches = futures::stream::iter([Ok(batch.clone()), Ok(batch)]).chain(futures::stream::pending());
        let command = arrow_flight::sql::CommandStatementIngest {
            table_definition_options: Some(arrow_flight::sql::TableDefinitionOptions {
                if_not_exist: arrow_flight::sql::TableNotExistOption::Fail.into(),
                if_exists: arrow_flight::sql::TableExistsOption::Append.into(),
            }),
            table: "t".into(),
            ..Default::default()
        };
        let error = client.execute_ingest(command, batches).await;
        assert_eq!(state(error), "57014");
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
    });
}

/// The next statement in the transaction waits for the rows of a query whose client has gone: none has been sent yet.
#[test]
fn a_transaction_ends_although_a_query_of_it_was_given_up_that_yields_nothing() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint)");
    fixture.run(async {
        let mut client = fixture.client().await;
        for next in ["rollback", "commit", "change"] {
            let transaction = client.begin_transaction().await.unwrap();
            let info = client.execute(SILENT.into(), Some(transaction.clone())).await.unwrap();
            let rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
            wait_until_something_runs(&fixture);
            drop(rows);
            if next == "change" {
                // It may be cancelled together with the query; waiting for hours would be worse.
                let insert = "INSERT INTO t VALUES (1)".to_owned();
                let _ = client.execute_update(insert, Some(transaction.clone())).await;
            }
            let end = if next == "commit" { EndTransaction::Commit } else { EndTransaction::Rollback };
            let ended = client.end_transaction(transaction, end).await;
            assert!(next == "commit" || ended.is_ok());
        }
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
    });
    wait_until_nothing_runs(&fixture);
}
