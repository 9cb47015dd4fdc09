//! Bulk ingestion.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, TimestampMillisecondArray,
};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    CommandStatementIngest, EndTransaction, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use futures::stream;

use super::*;

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let names: StringArray = ids.clone().map(|id| (id % 10 != 0).then(|| format!("name {id}"))).collect();
    let made = TimestampMillisecondArray::from_iter_values(ids.clone().map(|id| id * 1000));
    RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from_iter_values(ids)) as ArrayRef),
        ("Name", Arc::new(names)),
        ("made", Arc::new(made)),
    ])
    .unwrap()
}

fn command(if_not_exist: TableNotExistOption, if_exists: TableExistsOption) -> CommandStatementIngest {
    CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: if_not_exist.into(),
            if_exists: if_exists.into(),
        }),
        table: "t".into(),
        schema: None,
        catalog: None,
        temporary: false,
        transaction_id: None,
        options: HashMap::new(),
    }
}

async fn ingest(
    client: &mut Client,
    command: CommandStatementIngest,
    batches: Vec<RecordBatch>,
) -> Result<i64> {
    let batches = stream::iter(batches.into_iter().map(Ok::<_, FlightError>));
    client.execute_ingest(command, batches).await
}

#[test]
fn tables_are_created_appended_to_and_replaced_as_asked() {
    use {TableExistsOption as If, TableNotExistOption as Else};
    let fixture = serve();
    let count = || fixture.number("SELECT count(*) FROM t");
    fixture.run(async {
        let mut client = fixture.client().await;
        let client = &mut client;
        let rows = || vec![batch(0..5000), batch(5000..7000)];
        assert_eq!(state(ingest(client, command(Else::Fail, If::Append), rows()).await), "42P01");
        assert_eq!(ingest(client, command(Else::Create, If::Fail), rows()).await.unwrap(), 7000);
        assert_eq!(state(ingest(client, command(Else::Create, If::Fail), rows()).await), "42P07");
        assert_eq!(count(), 7000);
        assert_eq!(ingest(client, command(Else::Fail, If::Append), rows()).await.unwrap(), 7000);
        assert_eq!(count(), 14000);
        assert_eq!(ingest(client, command(Else::Create, If::Replace), vec![batch(1..3)]).await.unwrap(), 2);
        assert_eq!(count(), 2);
        let sql =
            "SELECT count(*) FROM t WHERE id = 2 AND \"Name\" = 'name 2' AND made = '1970-01-01 00:00:02'";
        assert_eq!(fixture.number(sql), 1);
        let elsewhere =
            CommandStatementIngest { schema: Some("other".into()), ..command(Else::Create, If::Append) };
        assert_eq!(state(ingest(client, elsewhere.clone(), rows()).await), "3F000");
        fixture.execute("CREATE SCHEMA other");
        assert_eq!(ingest(client, elsewhere, rows()).await.unwrap(), 7000);
        assert_eq!(fixture.number("SELECT count(*) FROM other.t"), 7000);
    });
}

#[test]
fn all_rows_are_stored_or_none_and_constraints_hold() {
    use {TableExistsOption as If, TableNotExistOption as Else};
    let fixture = serve();
    fixture.execute(
        "CREATE TABLE t (id smallint PRIMARY KEY, \"Name\" text, made timestamp, extra text DEFAULT 'x')",
    );
    fixture.run(async {
        let mut client = fixture.client().await;
        let client = &mut client;
        let append = || command(Else::Fail, If::Append);
        assert_eq!(state(ingest(client, append(), vec![batch(0..9), batch(8..10)]).await), "23505");
        // bigint does not fit smallint.
        assert_eq!(state(ingest(client, append(), vec![batch(0..9), batch(40_000..40_001)]).await), "22003");
        let other =
            RecordBatch::try_from_iter([("nonsense", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]);
        assert_eq!(state(ingest(client, append(), vec![other.unwrap()]).await), "42703");
        let texts = RecordBatch::try_from_iter([("id", Arc::new(StringArray::from(vec!["a"])) as ArrayRef)]);
        assert_eq!(state(ingest(client, append(), vec![texts.unwrap()]).await), "42804");
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
        assert_eq!(ingest(client, append(), vec![batch(1..5)]).await.unwrap(), 4);
        assert_eq!(fixture.number("SELECT count(*) FROM t WHERE extra = 'x'"), 4);
        let temporary = CommandStatementIngest { temporary: true, ..append() };
        assert_eq!(state(ingest(client, temporary, vec![batch(5..6)]).await), "0A000");
        let options = HashMap::from([("speed".to_owned(), "high".to_owned())]);
        let optioned = CommandStatementIngest { options, ..append() };
        assert_eq!(state(ingest(client, optioned, vec![batch(5..6)]).await), "0A000");
    });
}

#[test]
fn a_batch_without_rows_makes_a_table_and_one_with_lists_arrays() {
    use {TableExistsOption as If, TableNotExistOption as Else};
    let fixture = serve();
    fixture.run(async {
        let mut client = fixture.client().await;
        let client = &mut client;
        assert_eq!(ingest(client, command(Else::Create, If::Fail), vec![batch(0..0)]).await.unwrap(), 0);
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
        assert_eq!(ingest(client, command(Else::Fail, If::Append), vec![batch(0..3)]).await.unwrap(), 3);

        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![Some(vec![Some(1), None])]);
        let lists = RecordBatch::try_from_iter([("Name", Arc::new(lists) as ArrayRef)]).unwrap();
        // A column of strings takes their texts.
        assert_eq!(ingest(client, command(Else::Fail, If::Append), vec![lists.clone()]).await.unwrap(), 1);
        assert_eq!(fixture.number("SELECT count(*) FROM t WHERE \"Name\" = '{1,NULL}'"), 1);
        let other = || CommandStatementIngest { table: "other".into(), ..command(Else::Create, If::Append) };
        assert_eq!(ingest(client, other(), vec![lists.slice(0, 0)]).await.unwrap(), 0);
        assert_eq!(ingest(client, other(), vec![lists]).await.unwrap(), 1);
        let found = "SELECT count(*) FROM other WHERE \"Name\" = '{1,NULL}'::bigint[]";
        assert_eq!(fixture.number(found), 1);
    });
}

#[test]
fn an_ingestion_belongs_to_its_transaction() {
    use {TableExistsOption as If, TableNotExistOption as Else};
    let fixture = serve();
    fixture.execute("CREATE TABLE t (id bigint, \"Name\" text, made timestamp)");
    fixture.run(async {
        let mut client = fixture.client().await;
        for (end, expected) in [(EndTransaction::Rollback, 0), (EndTransaction::Commit, 10)] {
            let transaction = client.begin_transaction().await.unwrap();
            let inside = CommandStatementIngest {
                transaction_id: Some(transaction.clone()),
                ..command(Else::Fail, If::Append)
            };
            assert_eq!(ingest(&mut client, inside, vec![batch(0..10)]).await.unwrap(), 10);
            assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
            client.end_transaction(transaction, end).await.unwrap();
            assert_eq!(fixture.number("SELECT count(*) FROM t"), expected);
        }
    });
}

/// The client disconnects in the middle of its stream, after many rows.
#[test]
fn what_a_client_gives_up_amid_its_stream_is_rolled_back() {
    use {TableExistsOption as If, TableNotExistOption as Else};
    let fixture = serve();
    fixture.execute("CREATE TABLE t (id bigint, \"Name\" text, made timestamp)");
    fixture.run(async {
        let mut client = fixture.client().await;
        let fed = Arc::new(tokio::sync::Notify::new());
        let notify = fed.clone();
        // Two batches, then silence.
        let batches = stream::unfold(0, move |part| {
            let notify = notify.clone();
            async move {
                if part == 2 {
                    notify.notify_one();
                    std::future::pending::<()>().await;
                }
                Some((Ok::<_, FlightError>(batch(part * 100..part * 100 + 100)), part + 1))
            }
        });
        let ingestion = client.execute_ingest(command(Else::Fail, If::Append), Box::pin(batches));
        tokio::select! {
            _ = ingestion => panic!("it cannot end"),
            () = fed.notified() => {}
        }
        drop(client);
        // Nothing pins the table any more, and nothing was stored.
        let mut client = fixture.client().await;
        client.execute_update("ALTER TABLE t ADD COLUMN more text".into(), None).await.unwrap();
        assert_eq!(fixture.number("SELECT count(*) FROM t"), 0);
    });
}
