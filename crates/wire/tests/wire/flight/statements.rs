//! Queries, changes, prepared statements, transactions.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionEndSavepointRequest, Any, EndTransaction,
    ProstMessageExt,
};
use arrow_flight::{Action, FlightDescriptor};
use arrow_schema::DataType;
use futures::TryStreamExt;
use prost::Message;

use super::*;

#[test]
fn every_type_arrives_as_what_clients_can_read() {
    let fixture = serve();
    fixture.execute(
        "CREATE TABLE t (a boolean, b smallint, c integer, d bigint, e real, f double precision, \
         g numeric(10,2), h numeric, i text, j varchar(10), k char(3), l bytea, m date, n time, o timestamp, \
         p timestamptz, q interval, r uuid)",
    );
    fixture.execute(
        "INSERT INTO t VALUES (true, -1, 2, 3, 1.5, 2.5, 12.34, 5.25, 'a longer text, снег', 'v', 'c', '\\x0102', \
         '2024-02-29', '12:30:01.5', '2024-02-29 12:30:01', '2024-02-29 12:30:01+00', '1 month 2 days 3 seconds', \
         '01234567-89ab-cdef-0123-456789abcdef'), \
         (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    );
    fixture.run(async {
        let mut client = fixture.client().await;
        let info = client.execute("SELECT * FROM t ORDER BY a NULLS LAST".into(), None).await.unwrap();
        let announced = info.clone().try_decode_schema().unwrap();
        let batches = fetch(&mut client, info).await.unwrap();
        // The described schema is that of the rows: names and types.
        let came = batches[0].schema();
        assert_eq!(announced, *came);
        let types: Vec<&DataType> = came.fields().iter().map(|field| field.data_type()).collect();
        assert!(!types.iter().any(|ty| matches!(ty, DataType::Utf8View | DataType::BinaryView)), "{types:?}");
        let name = came.field(6).metadata().get("ARROW:FLIGHT:SQL:TYPE_NAME").cloned();
        assert_eq!(name.as_deref(), Some("numeric(10,2)"));
        let rows = shown(&batches);
        assert_eq!(
            rows[0],
            [
                "true",
                "-1",
                "2",
                "3",
                "1.5",
                "2.5",
                "12.34",
                "5.2500000000000000",
                "a longer text, снег",
                "v",
                "c  ",
                "0102",
                "2024-02-29",
                "12:30:01.500",
                "2024-02-29T12:30:01",
                "2024-02-29T12:30:01Z",
                "1 mons 2 days 3.000000000 secs",
                "0123456789abcdef0123456789abcdef",
            ]
        );
        assert!(rows[1].iter().all(|cell| cell == "NULL"));
    });
}

#[test]
fn arrays_arrive_as_lists() {
    let fixture = serve();
    fixture.run(async {
        let mut client = fixture.client().await;
        let sql = "SELECT ARRAY['a', NULL] AS strings, '{1,2}'::numeric[] AS numbers";
        let info = client.execute(sql.into(), None).await.unwrap();
        let announced = info.clone().try_decode_schema().unwrap();
        let batches = fetch(&mut client, info).await.unwrap();
        assert_eq!(announced, *batches[0].schema());
        let lists = batches[0].column(0).as_list::<i32>().value(0);
        assert_eq!(lists.as_string::<i32>(), &StringArray::from(vec![Some("a"), None]));
        assert_eq!(batches[0].column(1).as_list::<i32>().value(0).len(), 2);
        // The type of a column does not determine how many dimensions its values have.
        let nested = query(&mut client, "SELECT ARRAY[ARRAY[1, 2], ARRAY[3, 4]]", None).await;
        assert_eq!(state(nested), "0A000");
    });
}

/// 100,000 rows of the analytical path, a few of the short path, and none.
#[test]
fn large_small_and_empty_results_arrive_whole() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    fixture.execute("INSERT INTO t SELECT g, 'name number ' || g FROM generate_series(1, 100000) g");
    fixture.run(async {
        let mut client = fixture.client().await;
        let batches = query(&mut client, "SELECT id, name FROM t ORDER BY id", None).await.unwrap();
        let mut next = 1;
        for batch in &batches {
            let names = batch.column(1).as_string::<i32>();
            for (id, name) in batch.column(0).as_primitive::<Int64Type>().iter().zip(names) {
                assert_eq!((id, name), (Some(next), Some(&*format!("name number {next}"))));
                next += 1;
            }
        }
        assert_eq!(next, 100_001);
        let few = query(&mut client, "SELECT name FROM t WHERE id = 77", None).await.unwrap();
        assert_eq!(shown(&few), [["name number 77"]]);
        let info = client.execute("SELECT id FROM t WHERE id = 0".into(), None).await.unwrap();
        let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(rows.try_next().await.unwrap().is_none());
        assert_eq!(rows.schema().unwrap().field(0).name(), "id");
    });
}

/// A client that calls GetFlightInfo and fetches nothing, or fetches, or puts an update.
#[test]
fn a_change_happens_once_whether_its_rows_are_fetched_or_not() {
    let fixture = serve();
    fixture.run(async {
        let mut client = fixture.client().await;
        let created = client.execute("CREATE TABLE t (a bigint)".into(), None).await.unwrap();
        assert!(created.endpoint.is_empty());
        let info = client.execute("INSERT INTO t VALUES (1), (2)".into(), None).await.unwrap();
        assert_eq!((info.total_records, info.endpoint.len()), (2, 0));
        let returning = "INSERT INTO t VALUES (3) RETURNING a * 10 AS ten";
        client.execute(returning.into(), None).await.unwrap();
        let info = client.execute(returning.into(), None).await.unwrap();
        let rows = fetch(&mut client, info.clone()).await.unwrap();
        assert_eq!(shown(&rows), [["30"]]);
        // Fetched rows are dropped: running the statement again would insert again.
        assert_eq!(state(fetch(&mut client, info).await), "34000");
        assert_eq!(client.execute_update("UPDATE t SET a = a + 1".into(), None).await.unwrap(), 4);
        assert_eq!(client.execute_update("DROP TABLE IF EXISTS other".into(), None).await.unwrap(), 0);
        assert_eq!(number(&mut client, "SELECT count(*) FROM t", None).await.unwrap(), 4);
        assert_eq!(shown(&query(&mut client, "SHOW search_path", None).await.unwrap()).len(), 1);
    });
}

#[test]
fn errors_have_their_sqlstate_and_hint() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint PRIMARY KEY); INSERT INTO t VALUES (1)");
    fixture.run(async {
        let mut client = fixture.client().await;
        for (sql, expected) in [
            ("SELEC 1", "42601"),
            ("SELECT * FROM nowhere", "42P01"),
            ("SELECT $1::bigint", "42P02"),
            ("INSERT INTO t VALUES (1)", "23505"),
            ("BEGIN", "0A000"),
            ("PREPARE p AS SELECT 1", "0A000"),
            ("SET search_path = elsewhere", "0A000"),
            ("COPY t TO STDOUT", "0A000"),
            ("COPY t FROM STDIN", "0A000"),
        ] {
            assert_eq!(state(query(&mut client, sql, None).await), expected, "{sql}");
        }
        // An error amid the rows.
        let sql = "SELECT 1 / (a - 1) FROM t";
        assert_eq!(state(query(&mut client, sql, None).await), "22012");
        let status = client
            .inner_mut()
            .get_flight_info(FlightDescriptor::new_cmd(
                arrow_flight::sql::CommandStatementQuery { query: "BEGIN".into(), transaction_id: None }
                    .as_any()
                    .encode_to_vec(),
            ))
            .await
            .unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unimplemented);
        assert_eq!(status.metadata().get("sqlstate").unwrap(), "0A000");
        assert!(status.message().contains("\nHINT: Begin a transaction with"), "{}", status.message());
        // Bytes that are no message of Flight SQL.
        let nonsense = client.inner_mut().get_flight_info(FlightDescriptor::new_cmd("nonsense")).await;
        assert_eq!(nonsense.unwrap_err().code(), tonic::Code::InvalidArgument);
        let nonsense = client.inner_mut().do_get(arrow_flight::Ticket::new("nonsense")).await;
        assert_eq!(nonsense.err().unwrap().code(), tonic::Code::InvalidArgument);
    });
}

#[test]
fn prepared_statements_take_rows_of_parameters() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (id integer PRIMARY KEY, name text, price numeric(10,2), day date)");
    fixture.run(async {
        let mut client = fixture.client().await;
        let sql = "INSERT INTO t VALUES ($1, $2, $3, $4)";
        let mut insert = client.prepare(sql.into(), None).await.unwrap();
        let types: Vec<_> = insert
            .parameter_schema()
            .unwrap()
            .fields()
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        assert_eq!(types, [DataType::Int32, DataType::Utf8, DataType::Decimal128(38, 16), DataType::Date32]);
        assert!(insert.dataset_schema().unwrap().fields().is_empty());
        // The types that a program happens to have, rather than those of the parameters.
        let rows = |ids: Vec<i64>| {
            let names: StringArray = ids.iter().map(|id| Some(format!("n{id}"))).collect();
            let days: StringArray = ids.iter().map(|_| Some("2024-02-29")).collect();
            RecordBatch::try_from_iter([
                ("id", Arc::new(Int64Array::from(ids.clone())) as ArrayRef),
                ("name", Arc::new(names)),
                ("price", Arc::new(Int64Array::from(ids))),
                ("day", Arc::new(days)),
            ])
            .unwrap()
        };
        insert.set_parameters(rows(vec![1, 2, 3])).unwrap();
        assert_eq!(insert.execute_update().await.unwrap(), 3);
        // All of them or none.
        insert.set_parameters(rows(vec![4, 5, 1])).unwrap();
        assert_eq!(state(insert.execute_update().await), "23505");
        assert_eq!(number(&mut client, "SELECT count(*) FROM t", None).await.unwrap(), 3);
        insert.close().await.unwrap();

        let sql = "SELECT id, name, price, day FROM t WHERE id >= $1 ORDER BY id";
        let mut select = client.prepare(sql.into(), None).await.unwrap();
        assert_eq!(select.dataset_schema().unwrap().fields().len(), 4);
        for (least, expected) in [(3, 1), (1, 3), (9, 0)] {
            let row =
                RecordBatch::try_from_iter([("$1", Arc::new(Int32Array::from(vec![least])) as ArrayRef)]);
            select.set_parameters(row.unwrap()).unwrap();
            let info = select.execute().await.unwrap();
            let found = shown(&fetch(&mut client, info).await.unwrap());
            assert_eq!(found.len(), expected);
            assert!(expected != 1 || found[0] == ["3", "n3", "3.00", "2024-02-29"], "{found:?}");
        }
        // A query runs with each row in turn.
        let rows = RecordBatch::try_from_iter([("$1", Arc::new(Int32Array::from(vec![3, 2])) as ArrayRef)]);
        select.set_parameters(rows.unwrap()).unwrap();
        let info = select.execute().await.unwrap();
        let found = fetch(&mut client, info).await.unwrap();
        let ids: Vec<i32> = found
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Int32Type>().values().to_vec())
            .collect();
        assert_eq!(ids, [3, 2, 3]);
    });
}

#[test]
fn a_transaction_is_seen_by_others_when_it_commits() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint PRIMARY KEY)");
    let count = || fixture.number("SELECT count(*) FROM t");
    fixture.run(async {
        let mut client = fixture.client().await;
        let insert = |value: i64| format!("INSERT INTO t VALUES ({value})");
        let transaction = client.begin_transaction().await.unwrap();
        client.execute_update(insert(1), Some(transaction.clone())).await.unwrap();
        client.execute(insert(2), Some(transaction.clone())).await.unwrap();
        let sql = "SELECT count(*) FROM t";
        assert_eq!((number(&mut client, sql, Some(&transaction)).await.unwrap(), count()), (2, 0));
        client.end_transaction(transaction.clone(), EndTransaction::Commit).await.unwrap();
        assert_eq!(count(), 2);
        assert_eq!(state(query(&mut client, sql, Some(&transaction)).await), "25P01");
        assert_eq!(state(client.end_transaction(transaction.clone(), EndTransaction::Commit).await), "25P01");
        client.end_transaction(transaction, EndTransaction::Rollback).await.unwrap();

        let transaction = client.begin_transaction().await.unwrap();
        client.execute_update(insert(3), Some(transaction.clone())).await.unwrap();
        client.end_transaction(transaction, EndTransaction::Rollback).await.unwrap();
        assert_eq!(count(), 2);

        // A failed transaction cannot be committed, and the client gets an error.
        let transaction = client.begin_transaction().await.unwrap();
        client.execute_update(insert(4), Some(transaction.clone())).await.unwrap();
        assert_eq!(state(client.execute_update(insert(1), Some(transaction.clone())).await), "23505");
        assert_eq!(state(client.execute_update(insert(5), Some(transaction.clone())).await), "25P02");
        assert_eq!(state(client.end_transaction(transaction, EndTransaction::Commit).await), "25P02");
        assert_eq!(count(), 2);

        // A prepared statement belongs to the transaction that it was prepared in.
        let transaction = client.begin_transaction().await.unwrap();
        let mut prepared = client.prepare(insert(6), Some(transaction.clone())).await.unwrap();
        assert_eq!(prepared.execute_update().await.unwrap(), 1);
        assert_eq!(count(), 2);
        client.end_transaction(transaction, EndTransaction::Commit).await.unwrap();
        assert_eq!(count(), 3);
        // Afterwards to the one that the same client has open, as ADBC expects; never to an arbitrary one.
        client.execute_update("DELETE FROM t WHERE a = 6".into(), None).await.unwrap();
        assert_eq!(state(prepared.execute_update().await), "25P01");
        let mut other = fixture.client().await;
        let foreign = other.begin_transaction().await.unwrap();
        assert_eq!(state(prepared.execute_update().await), "25P01");
        let transaction = client.begin_transaction().await.unwrap();
        assert_eq!((prepared.execute_update().await.unwrap(), count()), (1, 2));
        client.end_transaction(transaction, EndTransaction::Rollback).await.unwrap();
        other.end_transaction(foreign, EndTransaction::Commit).await.unwrap();
        assert_eq!(count(), 2);
    });
}

/// ADBC begins the next transaction at every commit and may leave it open for long.
#[test]
fn a_transaction_reads_what_was_there_when_its_first_statement_came() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint)");
    fixture.run(async {
        let mut client = fixture.client().await;
        let transaction = client.begin_transaction().await.unwrap();
        fixture.execute("INSERT INTO t VALUES (1)");
        let sql = "SELECT count(*) FROM t";
        assert_eq!(number(&mut client, sql, Some(&transaction)).await.unwrap(), 1);
        fixture.execute("INSERT INTO t VALUES (2)");
        assert_eq!(number(&mut client, sql, Some(&transaction)).await.unwrap(), 1);
    });
}

/// A stream of a transaction's rows, and a statement of it before all of them have been sent.
#[test]
fn a_transaction_continues_while_its_rows_are_fetched() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint)");
    fixture.execute("INSERT INTO t SELECT g FROM generate_series(1, 300000) g");
    fixture.run(async {
        let mut client = fixture.client().await;
        let transaction = client.begin_transaction().await.unwrap();
        let info = client.execute("SELECT a FROM t".into(), Some(transaction.clone())).await.unwrap();
        let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        let mut seen = rows.try_next().await.unwrap().unwrap().num_rows();
        client.execute_update("DELETE FROM t".into(), Some(transaction.clone())).await.unwrap();
        while let Some(batch) = rows.try_next().await.unwrap() {
            seen += batch.num_rows();
        }
        assert_eq!(seen, 300_000);
        client.end_transaction(transaction, EndTransaction::Commit).await.unwrap();
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
    });
}

#[test]
fn savepoints_undo_a_part_of_a_transaction() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint)");
    fixture.run(async {
        let mut client = fixture.client().await;
        let transaction = client.begin_transaction().await.unwrap();
        let insert = |value| format!("INSERT INTO t VALUES ({value})");
        client.execute_update(insert(1), Some(transaction.clone())).await.unwrap();
        let request =
            ActionBeginSavepointRequest { transaction_id: transaction.clone(), name: "a \"point\"".into() };
        let action = Action::new("BeginSavepoint", request.as_any().encode_to_vec());
        let answer = client.do_action(action).await.unwrap().message().await.unwrap().unwrap();
        let savepoint: ActionBeginSavepointResult =
            Any::decode(&*answer.body).unwrap().unpack().unwrap().unwrap();
        client.execute_update(insert(2), Some(transaction.clone())).await.unwrap();
        for action in [2, 1] {
            let request = ActionEndSavepointRequest { savepoint_id: savepoint.savepoint_id.clone(), action };
            let action = Action::new("EndSavepoint", request.as_any().encode_to_vec());
            assert!(client.do_action(action).await.unwrap().message().await.unwrap().is_none());
        }
        client.end_transaction(transaction, EndTransaction::Commit).await.unwrap();
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 1);
    });
}

#[test]
fn get_schema_returns_the_columns_and_runs_nothing() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (a bigint, b text)");
    fixture.run(async {
        let mut client = fixture.client().await;
        for (query, columns) in
            [("SELECT * FROM t", 2), ("INSERT INTO t VALUES (1) RETURNING a", 1), ("DELETE FROM t", 0)]
        {
            let command =
                arrow_flight::sql::CommandStatementQuery { query: query.into(), transaction_id: None };
            let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
            let result = client.inner_mut().get_schema(descriptor).await.unwrap().into_inner();
            assert_eq!(arrow_schema::Schema::try_from(&result).unwrap().fields().len(), columns, "{query}");
        }
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
    });
}
